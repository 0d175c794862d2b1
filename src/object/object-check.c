/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-check.c - do records, index, references and store agree?  For fsck
 *
 * One listing of the store and short views of the records, while nothing changes (the
 * volume was opened for a check): what is said and counted is so outside of them, once.
 * Memory: one VjPut for each stored object.
 */
#include "object/object-private.h"

typedef struct VjObjectCheck {
    VjObjects *objects;
    VjMeta *meta; /* of objects */
    GHashTable *counts;
    bool read_data;
    VjCheckSay *say;
    void *opaque;
    VjCheckReport *report;
    GArray *stored;    /* of VjPut, by id */
    GArray *id_blocks; /* of VjIdRange */
    uint64_t next_id;  /* no id from here on was ever given out */
    GHashTable *found; /* id → VjCheckBytes: what reading it showed; NULL: not wanted */
} VjObjectCheck;

static void G_GNUC_PRINTF(3, 4)
    problem(VjObjectCheck *c, uint64_t id, const char *format, ...)
{
    g_autofree char *what = NULL, *line = NULL;
    va_list args;

    va_start(args, format);
    what = g_strdup_vprintf(format, args);
    va_end(args);
    line = g_strdup_printf("object %" G_GUINT64_FORMAT ": %s", id, what);
    c->report->problems++;
    c->say(c->opaque, line);
}

/* Damage that the record admits is no problem of the file system, and a loss all the
 * same. */
static void lost(VjObjectCheck *c, const VjObject *object)
{
    g_autofree char *line = g_strdup_printf("object %" G_GUINT64_FORMAT
                                            ": its bytes are lost, as its record says",
                                            object->id);

    c->report->lost++;
    c->say(c->opaque, line);
}

static void note(VjObjectCheck *c, uint64_t id, VjCheckBytes what)
{
    if (c->found != NULL) {
        g_hash_table_insert(c->found, g_memdup2(&id, sizeof id), GINT_TO_POINTER(what));
    }
}

static void leak(VjObjectCheck *c, const VjPut *put)
{
    g_autofree char *line =
        g_strdup_printf("store: object %" G_GUINT64_FORMAT ": %" G_GUINT64_FORMAT
                        " bytes that no record names",
                        put->id, put->stored_bytes);

    c->report->leaks++;
    c->say(c->opaque, line);
}

/* ---- the store --------------------------------------------------------------------- */

static bool collect(void *opaque, const VjPut *object, int64_t mtime_us)
{
    (void)mtime_us;
    g_array_append_vals(opaque, object, 1);
    return true;
}

static gint by_id(gconstpointer a, gconstpointer b)
{
    const VjPut *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

/* The first of @stored with an id of at least @id. */
static guint position_of(const GArray *stored, uint64_t id)
{
    guint low = 0, high = stored->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (g_array_index(stored, VjPut, middle).id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static const VjPut *find_stored(VjStore *store, const GArray *stored,
                                const VjObject *object)
{
    for (guint i = position_of(stored, object->id); i < stored->len; i++) {
        const VjPut *put = &g_array_index(stored, VjPut, i);

        if (put->id != object->id) {
            break;
        }
        if (vj_store_same_loc(store, put->loc, object->loc)) {
            return put;
        }
    }
    return NULL;
}

static bool is_in_id_block(const VjObjectCheck *c, uint64_t id)
{
    for (guint i = 0; i < c->id_blocks->len; i++) {
        const VjIdRange *range = &g_array_index(c->id_blocks, VjIdRange, i);

        if (id >= range->first_id && id <= range->last_id) {
            return true;
        }
    }
    return false;
}

/* Each stored object is named by a record, or lies in an open id block. */
static int check_stored(VjObjectCheck *c)
{
    guint count = c->stored->len;
    /* A damaged record is reported by the walk over the records. */
    int rc = vj_objects_keep_unnamed(c->objects, c->stored);

    c->report->stored_objects += count;
    for (guint i = 0; rc == 0 && i < c->stored->len; i++) {
        const VjPut *put = &g_array_index(c->stored, VjPut, i);

        if (!is_in_id_block(c, put->id)) {
            leak(c, put);
        }
    }
    return rc;
}

/* ---- records ----------------------------------------------------------------------- */

/* 0; 1: they cannot be read or are not those of the record, *why says it. */
static int read_all(VjObjectCheck *c, const VjObject *object, const char **why)
{
    g_autoptr(VjBuf) plain = NULL;
    struct iovec iov;
    VjDigest digest;
    int rc = vj_object_load_any(c->objects, object, &plain);

    if (rc == -ENOMEM || rc == -ETIMEDOUT) {
        return rc; /* it may be there: nothing is found out about it */
    }
    if (rc < 0) {
        *why = rc == -EBADMSG ? "its stored bytes cannot be read: they are damaged"
               : rc == -ENOENT
                   ? "its stored bytes cannot be read: they are not in the store"
                   : "its stored bytes cannot be read: the device fails";
        return 1;
    }
    iov = (struct iovec){.iov_base = plain->data, .iov_len = plain->len};
    rc = vj_digest_hash(c->objects->digest, &iov, 1, &digest);
    if (rc < 0) {
        return rc;
    }
    c->report->bytes_verified += object->plain_bytes;
    *why = "its content does not have the digest of its record";
    return memcmp(&digest, &object->digest, sizeof digest) != 0;
}

/* Reads the bytes and compares them with what the record says of them. */
static int check_bytes(VjObjectCheck *c, const VjObject *object)
{
    bool is_known = (object->flags & VJ_OBJECT_DAMAGED) != 0;
    const char *why = "";
    int rc = read_all(c, object, &why);

    if (rc < 0) {
        return rc;
    }
    if (rc == 0 && is_known) {
        c->report->whole++;
        note(c, object->id, VJ_CHECK_BYTES_WHOLE);
    } else if (rc > 0 && is_known) {
        lost(c, object);
    } else if (rc > 0) {
        problem(c, object->id, "%s", why);
        note(c, object->id, VJ_CHECK_BYTES_BAD);
    }
    return 0;
}

static int check_indexed(VjObjectCheck *c, const VjObject *object)
{
    VjIndexKey key;
    uint64_t id = 0;
    int rc;

    vj_index_key_of(object, &key);
    rc = vj_index_view(c->meta, &key, &id);
    if (rc < 0 && rc != -ENOENT && rc != -EBADMSG) {
        return rc;
    }
    if ((object->flags & VJ_OBJECT_UNINDEXED) != 0) {
        if (rc == 0 && id == object->id) {
            problem(c, object->id, "the index names it, but its record denies that");
        }
    } else if (rc == -ENOENT) {
        problem(c, object->id, "it is not in the index");
    } else if (rc == 0 && id != object->id) {
        problem(c, object->id,
                "the index names object %" G_GUINT64_FORMAT " in its place", id);
    }
    return 0; /* a damaged entry is the index walk's */
}

static int check_live(VjObjectCheck *c, const VjObject *object)
{
    gint64 key = (gint64)object->id;
    const gint64 *found = g_hash_table_lookup(c->counts, &key);
    uint64_t count = found != NULL ? (uint64_t)*found : 0;
    const VjPut *put = find_stored(c->objects->store, c->stored, object);
    VjObject dead;
    int rc;

    c->report->objects++;
    vj_check_tick(c->report);
    if (object->refs != count) {
        problem(c, object->id,
                "its record counts %" G_GUINT64_FORMAT
                " references, the maps %" G_GUINT64_FORMAT,
                object->refs, count);
    }
    rc = vj_object_record_view(c->meta, VJ_SPACE_DEAD, object->id, &dead);
    if (rc == 0 || rc == -EBADMSG) {
        problem(c, object->id, "it is referenced and dead at the same time");
    } else if (rc != -ENOENT) {
        return rc;
    }
    rc = check_indexed(c, object);
    if (rc < 0) {
        return rc;
    }
    if (vj_codec_by_id(object->codec) == NULL) {
        problem(c, object->id,
                "it is stored with transformation %u (%s), which is not in this build",
                object->codec, vj_codec_name_of(object->codec));
        return 0;
    }
    if (object->codec != VJ_CODEC_ID_NONE && object->codec != object->requested_codec) {
        problem(c, object->id, "it is stored with %s, but %s was asked for",
                vj_codec_name_of(object->codec),
                vj_codec_name_of(object->requested_codec));
    }
    if (put != NULL && put->stored_bytes == object->stored_bytes && c->read_data) {
        return check_bytes(c, object);
    }
    if ((object->flags & VJ_OBJECT_DAMAGED) != 0) {
        lost(c, object);
    } else if (put == NULL) {
        problem(c, object->id, "its bytes are not in the store");
        note(c, object->id, VJ_CHECK_BYTES_BAD);
    } else if (put->stored_bytes != object->stored_bytes) {
        problem(c, object->id,
                "%" G_GUINT64_FORMAT " bytes are stored, its record says %u",
                put->stored_bytes, object->stored_bytes);
        note(c, object->id, VJ_CHECK_BYTES_BAD);
    }
    return 0;
}

/* The number of no object. */
static const uint8_t number_zero[VJ_OBJECT_KEY_BYTES];

static int check_record(VjObjectCheck *c, VjSpace space, uint64_t id, VjSlice value)
{
    VjObject object;

    c->report->pending += space == VJ_SPACE_DEAD;
    if (id >= c->next_id) {
        problem(c, id, "its number was never given out");
    }
    if (vj_object_decode(value, space, id, &object) < 0) {
        problem(c, id, "its record is damaged");
        return 0;
    }
    return space == VJ_SPACE_OBJECT ? check_live(c, &object) : 0;
}

static int check_records(VjObjectCheck *c, VjSpace space)
{
    VjListing l;
    int rc = 0, listed;

    vj_listing_begin(&l, c->meta, space);
    vj_listing_behind(&l, vj_slice(number_zero, sizeof number_zero));
    while (rc == 0 && vj_listing_next(&l)) {
        if (l.key.len != VJ_OBJECT_KEY_BYTES) {
            problem(c, 0, "a key of %zu bytes among the records", l.key.len);
            break;
        }
        rc = check_record(c, space, vj_be64_get(l.key.data), l.value);
    }
    listed = vj_listing_end(&l);
    return rc < 0 ? rc : listed;
}

/* Each object that a map names has a record. */
static int check_counts(VjObjectCheck *c)
{
    GHashTableIter at;
    gpointer key, value;

    g_hash_table_iter_init(&at, c->counts);
    while (g_hash_table_iter_next(&at, &key, &value)) {
        uint64_t id = (uint64_t) * (const gint64 *)key;
        VjObject object;
        int rc = vj_object_record_view(c->meta, VJ_SPACE_OBJECT, id, &object);

        if (rc == -ENOENT) {
            problem(c, id,
                    "%" G_GINT64_FORMAT " map entries name it, but it has no record",
                    *(const gint64 *)value);
        } else if (rc < 0 && rc != -EBADMSG) {
            return rc;
        }
    }
    return 0;
}

/* ---- index and id blocks ----------------------------------------------------------- */

static int check_index_entry(VjObjectCheck *c, const VjIndexKey *key, VjSlice value)
{
    VjIndexKey named;
    VjObject object;
    uint64_t id;
    int rc = vj_index_decode(key, value, &id);

    c->report->index_entries++;
    if (rc < 0) {
        problem(c, 0, "an index entry is damaged (digest %02x%02x%02x%02x…)",
                key->bytes[0], key->bytes[1], key->bytes[2], key->bytes[3]);
        return 0;
    }
    rc = vj_object_record_view(c->meta, VJ_SPACE_OBJECT, id, &object);
    if (rc == -ENOENT) {
        problem(c, id, "the index names it, but it has no record");
    } else if (rc == 0) {
        vj_index_key_of(&object, &named);
        if (memcmp(&named, key, sizeof named) != 0) {
            problem(c, id, "the index names it for other content");
        }
    }
    return rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
}

static int check_index(VjObjectCheck *c)
{
    VjListing l;
    int rc = 0, listed;

    vj_listing_begin(&l, c->meta, VJ_SPACE_INDEX);
    while (rc == 0 && vj_listing_next(&l)) {
        VjIndexKey key;

        if (l.key.len != sizeof key) {
            problem(c, 0, "a key of %zu bytes in the index", l.key.len);
            break;
        }
        memcpy(&key, l.key.data, sizeof key);
        rc = check_index_entry(c, &key, l.value);
    }
    listed = vj_listing_end(&l);
    return rc < 0 ? rc : listed;
}

/* The id blocks and the counter, of one state: a thread takes new ones now and then. */
typedef struct Numbers {
    uint64_t next_id;
    int next_id_error; /* -EBADMSG: it is damaged */
    int epoch_error;   /* as that */
    GArray *blocks;    /* of VjIdRange; last_id 0: a damaged record */
    size_t odd_key;    /* bytes of a key that is none, behind them; 0: there is none */
} Numbers;

static int next_id_get(VjTxn *txn, Numbers *n)
{
    VjSlice value;
    int rc = vj_txn_get(txn, VJ_SPACE_SYSTEM,
                        vj_slice(VJ_NEXT_ID_KEY, strlen(VJ_NEXT_ID_KEY)), &value);

    n->next_id = 1; /* a volume that was never mounted */
    n->next_id_error = rc == 0 ? vj_next_id_decode(value, &n->next_id) : 0;
    return rc == -ENOENT ? 0 : rc;
}

static int epoch_get(VjTxn *txn, Numbers *n)
{
    VjSlice value;
    uint64_t epoch;
    int rc = vj_txn_get(txn, VJ_SPACE_SYSTEM,
                        vj_slice(VJ_EPOCH_KEY, strlen(VJ_EPOCH_KEY)), &value);

    n->epoch_error = rc == 0 ? vj_epoch_decode(value, &epoch) : 0;
    return rc == -ENOENT ? 0 : rc;
}

static int numbers_body(VjTxn *txn, void *opaque)
{
    Numbers *n = opaque;
    int rc = next_id_get(txn, n);
    VjScan scan;

    if (rc == 0) {
        rc = epoch_get(txn, n);
    }

    g_array_set_size(n->blocks, 0);
    n->odd_key = 0;
    if (rc < 0) {
        return rc;
    }
    vj_scan_begin(&scan, txn, VJ_SPACE_ID_BLOCK, VJ_SCAN_ALL);
    vj_scan_behind(&scan, vj_slice(number_zero, sizeof number_zero));
    while (vj_scan_next(&scan)) {
        VjIdRange range;

        if (scan.key.len != VJ_OBJECT_KEY_BYTES) {
            n->odd_key = scan.key.len;
            return 0;
        }
        if (vj_id_block_decode(scan.key, scan.value, &range) < 0) {
            range = (VjIdRange){.first_id = vj_be64_get(scan.key.data)};
        }
        g_array_append_val(n->blocks, range);
    }
    return scan.error;
}

static void check_block(VjObjectCheck *c, const VjIdRange *range, uint64_t *before)
{
    c->report->pending++;
    if (range->last_id == 0) {
        problem(c, range->first_id, "the id block that begins here is damaged");
        return;
    }
    if (range->first_id <= *before || range->last_id >= c->next_id) {
        problem(c, range->first_id,
                "the id block from here to %" G_GUINT64_FORMAT
                " overlaps another, or numbers not yet given out",
                range->last_id);
    }
    *before = range->last_id;
    g_array_append_vals(c->id_blocks, range, 1);
}

static int check_numbers(VjObjectCheck *c)
{
    g_autoptr(GArray) blocks = g_array_new(FALSE, FALSE, sizeof(VjIdRange));
    Numbers n = {.blocks = blocks};
    uint64_t before = 0;
    int rc = vj_meta_view(c->meta, numbers_body, &n);

    if (rc < 0) {
        return rc;
    }
    c->next_id = n.next_id_error < 0 ? UINT64_MAX : n.next_id;
    if (n.next_id_error < 0) {
        problem(c, 0, "the counter of object numbers is damaged");
    }
    if (n.epoch_error < 0) {
        problem(c, 0, "the counter of epochs is damaged");
    }
    for (guint i = 0; i < blocks->len; i++) {
        check_block(c, &g_array_index(blocks, VjIdRange, i), &before);
    }
    if (n.odd_key > 0) {
        c->report->pending++;
        problem(c, 0, "a key of %zu bytes among the id blocks", n.odd_key);
    }
    return 0;
}

static void check_store_keys(VjObjectCheck *c)
{
    VjStoreBadKeys bad_keys;

    vj_store_bad_keys(c->objects->store, NULL, &bad_keys);
    if (bad_keys.mended > 0) {
        problem(c, 0, "%" G_GUINT64_FORMAT " keys of the store have a wrong bit",
                bad_keys.mended);
    }
    if (bad_keys.lost > 0) {
        problem(c, 0, "%" G_GUINT64_FORMAT " keys of the store are damaged",
                bad_keys.lost);
    }
}

int vj_objects_check(VjObjects *o, GHashTable *counts, bool read_data, GHashTable *found,
                     VjCheckSay *say, void *opaque, VjCheckReport *report)
{
    g_autoptr(GArray) stored = g_array_new(FALSE, FALSE, sizeof(VjPut));
    g_autoptr(GArray) id_blocks = g_array_new(FALSE, FALSE, sizeof(VjIdRange));
    VjObjectCheck c = {.objects = o,
                       .meta = o->meta,
                       .counts = counts,
                       .read_data = read_data,
                       .found = found,
                       .say = say,
                       .opaque = opaque,
                       .report = report,
                       .stored = stored,
                       .id_blocks = id_blocks};
    int rc;

    g_assert(counts != NULL && say != NULL && report != NULL);
    rc = vj_store_each(o->store, 1, UINT64_MAX, collect, stored);
    if (rc < 0) {
        return rc;
    }
    g_array_sort(stored, by_id);
    check_store_keys(&c);
    rc = check_numbers(&c);
    if (rc == 0) {
        rc = check_records(&c, VJ_SPACE_OBJECT);
    }
    if (rc == 0) {
        rc = check_records(&c, VJ_SPACE_DEAD);
    }
    if (rc == 0) {
        rc = check_counts(&c);
    }
    if (rc == 0) {
        rc = check_index(&c);
    }
    return rc < 0 ? rc : check_stored(&c);
}
