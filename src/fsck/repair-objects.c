/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-objects.c - object records, references, index, the dead, the store
 *
 * A record that is lost is made again from what else there is of the object: the index
 * (digest, length, transformation), the trailer that is stored with the bytes, and the
 * bytes themselves, which must have that digest.  Where that fails the record says that
 * the object is damaged: reading it is an error, and equal content is stored anew.
 */
#include "fsck/repair-private.h"

#include <inttypes.h>

#include "object/form.h"

/* What is stored where there are no bytes: no object has these. */
static const char no_bytes[] = "fsck.varjfs: the bytes that were here are lost\n";

/* ---- objects that cannot be read --------------------------------------------------- */

static int put_no_bytes(VjRepair *r, uint64_t id, VjPut *put)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)no_bytes,
                        .iov_len = sizeof no_bytes - 1};
    int rc = vj_store_put_unaligned(r->store, id, &iov, 1, put);

    return rc < 0 ? rc : vj_store_flush(r->store);
}

typedef struct Made {
    VjRepair *r;
    VjObject object;
    uint64_t id_block; /* the id block that goes with the commit; 0: none */
    bool was_put;      /* the store has bytes that no commit names yet */
} Made;

static VjSlice number_key(uint64_t id, uint8_t key[VJ_OBJECT_KEY_BYTES])
{
    vj_be64_set(key, id);
    return vj_slice(key, VJ_OBJECT_KEY_BYTES);
}

static int made_body(VjTxn *txn, void *opaque)
{
    const Made *m = opaque;
    VjPut put = vj_object_as_put(&m->object);
    uint8_t key[VJ_OBJECT_KEY_BYTES];
    int rc = vj_object_record_put(txn, VJ_SPACE_OBJECT, &m->object);

    if (rc == 0 && m->was_put) {
        rc = vj_object_stage(m->r->objects, txn, &put, 1, NULL, 0);
    }
    if (rc == 0) {
        rc = vj_txn_del(txn, VJ_SPACE_DEAD, number_key(m->object.id, key));
        rc = rc == -ENOENT ? 0 : rc;
    }
    if (rc == 0 && m->id_block != 0) {
        rc = vj_txn_del(txn, VJ_SPACE_ID_BLOCK, number_key(m->id_block, key));
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

static int id_block_body(VjTxn *txn, void *opaque)
{
    uint64_t *id = opaque;
    uint8_t key[VJ_OBJECT_KEY_BYTES], next[VJ_NEXT_ID_BYTES], id_block[VJ_ID_BLOCK_BYTES];
    VjSlice counter = vj_slice(VJ_NEXT_ID_KEY, strlen(VJ_NEXT_ID_KEY)), value;
    int rc = vj_txn_get(txn, VJ_SPACE_SYSTEM, counter, &value);

    *id = 1;
    if (rc == 0) {
        rc = vj_next_id_decode(value, id);
    }
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    if (*id >= UINT64_MAX - 1) {
        return -EOVERFLOW;
    }
    vj_next_id_encode(*id + 1, next);
    vj_id_block_encode(&(VjIdRange){.first_id = *id, .last_id = *id}, id_block);
    rc = vj_txn_put(txn, VJ_SPACE_SYSTEM, counter, vj_slice(next, sizeof next));
    return rc < 0 ? rc
                  : vj_txn_put(txn, VJ_SPACE_ID_BLOCK, number_key(*id, key),
                               vj_slice(id_block, sizeof id_block));
}

int vj_repair_lost_object(VjRepair *r, VjObject *out)
{
    Made m = {.r = r, .was_put = true};
    VjPut put;
    int rc;

    if (r->lost_object.id != 0) {
        *out = r->lost_object;
        return 0;
    }
    rc = vj_meta_run(r->meta, VJ_RUN_DEFAULT, id_block_body, &m.id_block);
    if (rc == 0) {
        rc = vj_meta_flush(r->meta);
    }
    if (rc == 0) {
        rc = put_no_bytes(r, m.id_block, &put);
    }
    if (rc < 0) {
        return rc;
    }
    m.object = (VjObject){.id = m.id_block,
                          .loc = put.loc,
                          .plain_bytes = VJ_OBJECT_PLAIN_MAX,
                          .stored_bytes = (uint32_t)put.stored_bytes,
                          .flags = VJ_OBJECT_UNINDEXED | VJ_OBJECT_DAMAGED,
                          .refs = 1};
    rc = vj_meta_run(r->meta, VJ_RUN_DEFAULT, made_body, &m);
    if (rc == 0) {
        *out = r->lost_object = m.object;
    }
    return rc;
}

/* ---- a record that is lost --------------------------------------------------------- */

/* An object whose record has to be made. */
typedef struct Wanted {
    gint64 id;
    const VjNeed *need; /* NULL: no map names it */
    VjIndexKey key;     /* when is_indexed */
    bool is_indexed;
    bool was_damaged; /* else it was missing */
} Wanted;

static int see_index(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    GHashTable *wanted = opaque;
    VjIndexKey k;
    uint64_t id;

    (void)r;
    memcpy(&k, key.data, sizeof k);
    if (vj_index_decode(&k, value, &id) == 0) {
        gint64 number = (gint64)id;
        Wanted *w = g_hash_table_lookup(wanted, &number);

        if (w != NULL) {
            w->key = k;
            w->is_indexed = true;
        }
    }
    return 0;
}

static bool take_put(void *opaque, const VjPut *object, int64_t mtime_us)
{
    VjPut *put = opaque;

    (void)mtime_us;
    *put = *object;
    return false;
}

/* Remembers an answer that says nothing about the bytes: they may be whole tomorrow. */
static bool is_read(VjRepair *r, int rc)
{
    if (rc < 0 && rc != -EBADMSG && rc != -ENOENT && rc != -EOPNOTSUPP) {
        r->store_error = rc;
    }
    return rc == 0;
}

/* The bytes of @object can be read: sets its digest, or compares it with @expected. */
static bool content_fits(VjRepair *r, VjObject *object, const VjDigest *expected)
{
    g_autoptr(VjBuf) plain = NULL;
    struct iovec iov;
    VjDigest digest;

    if (!is_read(r, vj_object_load_any(r->objects, object, &plain))) {
        return false;
    }
    iov = (struct iovec){.iov_base = plain->data, .iov_len = plain->len};
    if (vj_digest_hash(r->digest, &iov, 1, &digest) < 0) {
        return false;
    }
    object->digest = digest;
    return expected == NULL || memcmp(&digest, expected, sizeof digest) == 0;
}

/* Tries @codec; the trailer is believed when everything below it fits. */
static bool try_codec(VjRepair *r, VjObject *object, uint8_t codec,
                      const VjDigest *expected)
{
    g_autofree uint8_t *raw = NULL;
    VjCodecSpec spec;
    uint32_t bytes;
    bool varying;

    if (!vj_form_of_codec(codec, &spec, &varying)) {
        return false;
    }
    bytes = vj_trailer_bytes(varying, object->plain_bytes);
    if (object->stored_bytes <= bytes) {
        return false;
    }
    raw = g_try_malloc(bytes);
    if (!is_read(r, raw == NULL ? -ENOMEM
                                : vj_store_get_unaligned(
                                      r->store, object->id, object->loc,
                                      object->stored_bytes - bytes, raw, bytes))) {
        return false;
    }
    object->codec = codec;
    object->trailer_checksum = vj_checksum64(raw, bytes);
    return content_fits(r, object, expected);
}

static bool from_index(VjRepair *r, const Wanted *w, VjObject *object)
{
    const uint8_t *k = w->key.bytes;
    VjDigest digest;

    memcpy(digest.bytes, k, VJ_DIGEST_MAX_BYTES);
    object->plain_bytes = vj_be32_get(k + 32);
    object->requested_codec = k[36];
    object->param = k[37];
    object->key_id = vj_be32_get(k + 38);
    return object->plain_bytes > 0 && object->plain_bytes <= VJ_OBJECT_PLAIN_MAX &&
           (try_codec(r, object, object->requested_codec, &digest) ||
            try_codec(r, object, 0, &digest));
}

/* The footer says length and codec; a transformation with a parameter stays unknown. */
static bool from_footer(VjRepair *r, VjObject *object)
{
    uint8_t footer[VJ_TRAILER_FOOTER_BYTES];

    if (object->stored_bytes <= sizeof footer ||
        !is_read(r, vj_store_get_unaligned(r->store, object->id, object->loc,
                                           object->stored_bytes - sizeof footer, footer,
                                           sizeof footer))) {
        return false;
    }
    object->plain_bytes = vj_le32_get(footer + 4);
    object->requested_codec = footer[12];
    object->param = 0;
    object->key_id = 0;
    return object->plain_bytes > 0 && object->plain_bytes <= VJ_OBJECT_PLAIN_MAX &&
           try_codec(r, object, footer[12], NULL);
}

/* The bytes are of a transformation that this build lacks: another one can read them. */
static bool is_foreign(VjRepair *r, const Wanted *w, const VjPut *put)
{
    uint8_t footer[VJ_TRAILER_FOOTER_BYTES];

    if (put->id == 0 || put->stored_bytes <= sizeof footer) {
        return false;
    }
    if (w->is_indexed && vj_codec_by_id(w->key.bytes[36]) == NULL) {
        return true;
    }
    return vj_store_get_unaligned(r->store, put->id, put->loc,
                                  put->stored_bytes - sizeof footer, footer,
                                  sizeof footer) == 0 &&
           memcmp(footer + 20, "VJtr", 4) == 0 && vj_codec_by_id(footer[12]) == NULL;
}

/* What names it stays as well: the check goes on saying what is wrong. */
static void leave(VjRepair *r, const Wanted *w)
{
    g_hash_table_add(r->foreign, g_memdup2(&w->id, sizeof w->id));
}

/* @put: id 0: the store has nothing of it. */
static int make_record(VjRepair *r, const Wanted *w, VjPut *put)
{
    uint64_t end = w->need != NULL ? w->need->end : 1;
    Made m = {.r = r, .object = {.id = (uint64_t)w->id, .refs = 1}};
    VjObject *o = &m.object;
    bool whole = false;
    int rc;

    if (is_foreign(r, w, put)) {
        leave(r, w);
        return 0;
    }
    r->store_error = 0;
    if (w->need != NULL) {
        o->refs = MAX(w->need->entries, 1);
    }
    if (put->id != 0 && put->stored_bytes > 0 &&
        put->stored_bytes <= VJ_STORE_OBJECT_MAX) {
        o->loc = put->loc;
        o->stored_bytes = (uint32_t)put->stored_bytes;
        whole = (w->is_indexed && from_index(r, w, o)) || from_footer(r, o);
    }
    if (!whole && r->store_error < 0) {
        vj_log_warn("object %" G_GINT64_FORMAT
                    ": its bytes cannot be read now, so its record is not made again: %s",
                    w->id, g_strerror(-r->store_error));
        leave(r, w);
        return 0;
    }
    if (!whole && o->stored_bytes == 0) {
        rc = put_no_bytes(r, o->id, put);
        if (rc < 0) {
            return rc;
        }
        m.was_put = true;
        o->loc = put->loc;
        o->stored_bytes = (uint32_t)put->stored_bytes;
    }
    if (whole) {
        o->flags = VJ_OBJECT_UNINDEXED; /* until the walk over the records has looked */
    } else {
        o->plain_bytes = (uint32_t)CLAMP(end, 1, VJ_OBJECT_PLAIN_MAX);
        o->codec = o->requested_codec = o->param = 0;
        o->key_id = 0;
        o->trailer_checksum = 0;
        o->flags = VJ_OBJECT_UNINDEXED | VJ_OBJECT_DAMAGED;
        memset(&o->digest, 0, sizeof o->digest);
    }
    rc = vj_meta_run(r->meta, VJ_RUN_DEFAULT, made_body, &m);
    if (rc == 0) {
        vj_repair_say(r, "object %" G_GINT64_FORMAT ": its record was %s; %s", w->id,
                      w->was_damaged ? "damaged" : "missing",
                      whole ? "it was made again from the bytes"
                            : "its bytes are lost and cannot be read");
    }
    return rc;
}

static void want(GHashTable *wanted, gint64 id, const VjNeed *need, bool was_damaged)
{
    Wanted *w = g_new0(Wanted, 1);

    w->id = id;
    w->need = need;
    w->was_damaged = was_damaged;
    g_hash_table_insert(wanted, &w->id, w);
}

typedef struct Records {
    GHashTable *needs;  /* of all maps */
    GHashTable *wanted; /* records to be made */
    bool whole;         /* every map node could be read */
} Records;

/* A record that was damaged beyond a bit, or contradicts the maps. */
static int see_record(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    Records *x = opaque;
    gint64 id = (gint64)vj_be64_get(key.data);
    const VjNeed *n = g_hash_table_lookup(x->needs, &id);
    VjObject object;

    (void)r;
    if (vj_object_decode(value, VJ_SPACE_OBJECT, (uint64_t)id, &object) < 0 &&
        !vj_repair_is_sealed(value)) {
        want(x->wanted, id, n, true);
    }
    return 0;
}

/* Referenced and dead at once, or dead and damaged. */
static int see_dead(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    Records *x = opaque;
    uint64_t id = vj_be64_get(key.data);
    gint64 number = (gint64)id;
    bool is_needed = g_hash_table_contains(x->needs, &number);
    VjObject dead, live;
    int rc = vj_object_record_view(r->meta, VJ_SPACE_OBJECT, id, &live);

    if (rc < 0 && rc != -ENOENT && rc != -EBADMSG) {
        return rc;
    }
    if (rc == 0 || vj_object_decode(value, VJ_SPACE_DEAD, id, &dead) < 0) {
        if (rc != 0 && vj_repair_is_sealed(value)) {
            return 0;
        }
        /* Without it the bytes belong to the record that is there, or to none. */
        vj_repair_del(r, VJ_SPACE_DEAD, key);
        vj_repair_say(r, "object %" PRIu64 ": %s was removed", id,
                      rc == 0 ? "the record that says it is dead"
                              : "a damaged record of the dead");
    } else if (rc == -ENOENT && is_needed) {
        const VjNeed *n = g_hash_table_lookup(x->needs, &number);
        uint8_t record[VJ_OBJECT_RECORD_BYTES];

        vj_repair_note_unread(r, id);
        dead.refs = n->entries;
        dead.flags |= VJ_OBJECT_UNINDEXED;
        dead.flags &= ~(uint32_t)VJ_OBJECT_REMOVING; /* reading shows what is left */
        vj_object_encode(&dead, VJ_SPACE_OBJECT, record);
        vj_repair_put(r, VJ_SPACE_OBJECT, key, vj_slice(record, sizeof record));
        vj_repair_del(r, VJ_SPACE_DEAD, key);
        vj_repair_say(r, "object %" PRIu64 ": it was dead although maps name it", id);
    }
    return 0;
}

/* Entries without a record. */
static int see_needs(VjRepair *r, Records *x)
{
    GHashTableIter iter;
    gpointer value;
    int rc = 0;

    g_hash_table_iter_init(&iter, x->needs);
    while (rc == 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        const VjNeed *n = value;
        VjObject object;

        rc = vj_object_record_view(r->meta, VJ_SPACE_OBJECT, (uint64_t)n->id, &object);
        if (rc == -ENOENT && n->id != 0) {
            want(x->wanted, n->id, n, false);
        }
        rc = rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
    }
    return rc;
}

static int make_records(VjRepair *r, Records *x)
{
    GHashTableIter iter;
    gpointer value;
    int rc = vj_repair_each(r, VJ_SPACE_INDEX, see_index, x->wanted);

    g_hash_table_iter_init(&iter, x->wanted);
    while (rc == 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        const Wanted *w = value;
        VjPut put = {0};

        rc = vj_store_each(r->store, (uint64_t)w->id, (uint64_t)w->id, take_put, &put);
        if (rc == 0) {
            rc = make_record(r, w, &put);
        }
    }
    return rc;
}

int vj_repair_object_records(VjRepair *r)
{
    g_autoptr(GHashTable) wanted =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    g_autoptr(GHashTable) needs = NULL;
    Records x = {.wanted = wanted};
    int rc = vj_repair_needs(r, &needs, &x.whole);

    x.needs = needs;
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_OBJECT, see_record, &x);
    }
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_DEAD, see_dead, &x);
    }
    if (rc == 0) {
        rc = see_needs(r, &x);
    }
    if (rc == 0 && g_hash_table_size(wanted) > 0) {
        rc = make_records(r, &x);
    }
    return rc;
}

/* ---- index ------------------------------------------------------------------------- */

/* The index names referenced objects under their own keys, and no others. */
static int check_indexed(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    VjIndexKey k, own;
    VjObject object;
    uint64_t id;
    int rc;

    (void)opaque;
    memcpy(&k, key.data, sizeof k);
    if (vj_index_decode(&k, value, &id) < 0) {
        return 0;
    }
    rc = vj_object_record_view(r->meta, VJ_SPACE_OBJECT, id, &object);
    if (rc == 0) {
        vj_index_key_of(&object, &own);
        if (memcmp(&own, &k, sizeof k) == 0 &&
            (object.flags & VJ_OBJECT_UNINDEXED) == 0) {
            return 0;
        }
    } else if (rc != -ENOENT && rc != -EBADMSG) {
        return rc;
    } else if (g_hash_table_contains(r->foreign, &id)) {
        return 0; /* it says how the bytes were encoded */
    }
    vj_repair_del(r, VJ_SPACE_INDEX, key);
    vj_repair_say(r, "object %" PRIu64 ": a wrong index entry was removed", id);
    return 0;
}

/* ---- records against maps, index and bytes ----------------------------------------- */

typedef struct Live {
    GHashTable *needs;
    GHashTable *found; /* id → VjCheckBytes, of the check before */
    bool whole;
} Live;

static void put_record(VjRepair *r, VjSlice key, VjSpace space, const VjObject *object)
{
    uint8_t record[VJ_OBJECT_RECORD_BYTES];

    vj_object_encode(object, space, record);
    vj_repair_put(r, space, key, vj_slice(record, sizeof record));
}

static int unindex(VjRepair *r, const VjObject *object)
{
    VjIndexKey k;
    uint64_t id;
    int rc;

    vj_index_key_of(object, &k);
    rc = vj_index_view(r->meta, &k, &id);
    if (rc == 0 && id == object->id) {
        vj_repair_del(r, VJ_SPACE_INDEX, vj_slice(k.bytes, sizeof k.bytes));
    }
    return rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
}

/* No map names it: what is left of it is removed by the next mount. */
static int let_die(VjRepair *r, VjSlice key, VjObject *object)
{
    int rc = unindex(r, object);

    if (rc < 0) {
        return rc;
    }
    object->refs = 0;
    object->deaths++;
    put_record(r, key, VJ_SPACE_DEAD, object);
    vj_repair_del(r, VJ_SPACE_OBJECT, key);
    vj_repair_say(r, "object %" PRIu64 ": no map names it; its space becomes free",
                  object->id);
    return 0;
}

/* Sets the references that the maps have.  *dies: there is none. */
static bool set_refs(VjRepair *r, const Live *x, VjObject *object, bool *dies)
{
    gint64 id = (gint64)object->id;
    const VjNeed *n = g_hash_table_lookup(x->needs, &id);
    uint64_t entries = n != NULL ? n->entries : 0;

    *dies = entries == 0 && x->whole;
    if (entries == object->refs || *dies || (entries < object->refs && !x->whole)) {
        return false; /* a map that cannot be read may hold the others */
    }
    vj_repair_say(r,
                  "object %" PRIu64 ": %" PRIu64 " references were counted as %" PRIu64,
                  object->id, entries, object->refs);
    object->refs = entries;
    return true;
}

/* Damaged objects leave the index, and whole ones are in it. */
static int set_flags(VjRepair *r, const Live *x, VjObject *object, bool *changed)
{
    gint64 number = (gint64)object->id;
    int bytes = GPOINTER_TO_INT(g_hash_table_lookup(x->found, &number));
    uint32_t flags = object->flags;
    VjIndexKey k;
    uint64_t id;
    int rc;

    if (g_hash_table_contains(r->unread, &number) && (flags & VJ_OBJECT_DAMAGED) == 0 &&
        vj_codec_by_id(object->codec) != NULL) {
        VjObject read = *object;

        bytes = content_fits(r, &read, &object->digest) ? bytes : VJ_CHECK_BYTES_BAD;
        g_hash_table_remove(r->unread, &number);
    }
    if (bytes == VJ_CHECK_BYTES_WHOLE && (flags & VJ_OBJECT_DAMAGED) != 0) {
        object->flags = flags &= ~(uint32_t)VJ_OBJECT_DAMAGED;
        *changed = true;
        vj_repair_say(r, "object %" PRIu64 ": its bytes are whole again", object->id);
    } else if (bytes == VJ_CHECK_BYTES_BAD) {
        flags |= VJ_OBJECT_DAMAGED | VJ_OBJECT_UNINDEXED;
    }
    if (flags != object->flags) {
        rc = unindex(r, object);
        object->flags = flags;
        *changed = true;
        vj_repair_say(r,
                      "object %" PRIu64 ": its bytes are lost and cannot be read; "
                      "equal content is stored afresh",
                      object->id);
        return rc;
    }
    if ((flags & VJ_OBJECT_DAMAGED) != 0) {
        return 0;
    }
    vj_index_key_of(object, &k);
    rc = vj_index_view(r->meta, &k, &id);
    if (rc == -ENOENT) {
        uint8_t entry[VJ_INDEX_VALUE_BYTES];

        object->flags &= ~(uint32_t)VJ_OBJECT_UNINDEXED;
        vj_index_encode(&k, object->id, entry);
        vj_repair_put(r, VJ_SPACE_INDEX, vj_slice(k.bytes, sizeof k.bytes),
                      vj_slice(entry, sizeof entry));
        *changed = *changed || object->flags != flags;
        vj_repair_say(r, "object %" PRIu64 ": it was not in the index", object->id);
        rc = 0;
    } else if (rc == 0 && id != object->id && (flags & VJ_OBJECT_UNINDEXED) == 0) {
        object->flags |= VJ_OBJECT_UNINDEXED;
        *changed = true;
        vj_repair_say(
            r, "object %" PRIu64 ": the index names object %" PRIu64 " for its content",
            object->id, id);
    }
    return rc == -EBADMSG ? 0 : rc;
}

static int check_live(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    const Live *x = opaque;
    VjObject object;
    bool changed, dies;
    int rc = 0;

    if (vj_object_decode(value, VJ_SPACE_OBJECT, vj_be64_get(key.data), &object) < 0) {
        return 0;
    }
    changed = set_refs(r, x, &object, &dies);
    if (dies) {
        return let_die(r, key, &object);
    }
    rc = set_flags(r, x, &object, &changed);
    if (rc == 0 && changed) {
        put_record(r, key, VJ_SPACE_OBJECT, &object);
    }
    return rc;
}

int vj_repair_objects(VjRepair *r)
{
    g_autoptr(GHashTable) needs = NULL;
    Live x = {.found = vj_volume_bytes_found(r->v)};
    int rc = vj_repair_needs(r, &needs, &x.whole);

    x.needs = needs;
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_INDEX, check_indexed, NULL);
    }
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_OBJECT, check_live, &x);
    }
    return rc < 0 ? rc : vj_repair_next_ino(r);
}

/* ---- the store --------------------------------------------------------------------- */

/* Objects of a listing that are looked for among the records in one view. */
#define WALK_BATCH 1024u

typedef struct StoreWalk {
    VjRepair *r;
    GArray *batch; /* VjPut: not looked for yet */
    GArray *puts;  /* VjPut: that no record names */
    int error;
} StoreWalk;

static void sort_out(StoreWalk *s)
{
    s->error = vj_objects_keep_unnamed(s->r->objects, s->batch);
    if (s->error == 0) {
        g_array_append_vals(s->puts, s->batch->data, s->batch->len);
        g_array_set_size(s->batch, 0);
    }
}

static bool see_stored(void *opaque, const VjPut *object, int64_t mtime_us)
{
    StoreWalk *s = opaque;

    (void)mtime_us;
    g_array_append_vals(s->batch, object, 1);
    if (s->batch->len >= WALK_BATCH) {
        sort_out(s);
    }
    return s->error == 0;
}

static int list_unreferenced(VjRepair *r, GArray *puts)
{
    g_autoptr(GArray) batch = g_array_new(FALSE, FALSE, sizeof(VjPut));
    StoreWalk s = {.r = r, .batch = batch, .puts = puts};
    int rc = vj_store_each(r->store, 1, UINT64_MAX, see_stored, &s);

    if (rc == 0 && s.error == 0) {
        sort_out(&s);
    }
    return rc < 0 ? rc : s.error;
}

int vj_repair_store_keys(VjRepair *r)
{
    VjStoreBadKeys bad_keys;
    int rc = vj_object_mend_store_keys(r->objects, &bad_keys);

    if (rc == 0 && bad_keys.mended > 0) {
        vj_repair_say(r, "store: one wrong bit was put right in %" PRIu64 " keys",
                      bad_keys.mended);
    }
    if (rc == 0 && bad_keys.lost > 0) {
        vj_repair_say(r, "store: %" PRIu64 " damaged keys were removed", bad_keys.lost);
    }
    return rc;
}

int vj_repair_store(VjRepair *r)
{
    g_autoptr(GArray) puts = g_array_new(FALSE, FALSE, sizeof(VjPut));
    int rc = vj_meta_flush(r->meta);

    if (rc == 0) {
        rc = list_unreferenced(
            r, puts); /* one that failed proves nothing: then nothing goes */
    }
    for (guint i = 0; rc == 0 && i < puts->len; i++) {
        const VjPut *put = &g_array_index(puts, VjPut, i);

        rc = vj_object_remove_unnamed(r->objects, put);
        if (rc == 0) {
            vj_repair_say(r,
                          "store: object %" PRIu64 ": %" PRIu64
                          " bytes that no record names were removed",
                          put->id, put->stored_bytes);
        }
    }
    return rc;
}
