/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * tend.c - gc and scrub of a volume in use, a step at a time
 *
 * gc removes what the store has and no record names.  The order makes it safe beside
 * writers, of this session and of others: the store is listed first, then the open id
 * blocks and the records are looked at, in one state.  Bytes that are on their way to a
 * commit lie in an open id block; one that was closed before we looked has its record in
 * that state.  A listing that failed proves nothing, and the step fails with it.
 *
 * scrub reads objects and compares them with their checksums and digests; what is damaged
 * leaves the index, so that equal content is stored afresh.  The place is kept after each
 * step (scrub-record.c).
 */
#include "object/object-check.h"
#include "volume/scrub-format.h"
#include "volume/volume-private.h"

/* Ids of which one step of gc lists what is stored. */
#define GC_IDS ((uint64_t)1 << 18)
/* Stored bytes, and objects, that one step of scrub reads. */
#define SCRUB_BYTES (8 * VJ_MIB)
#define SCRUB_OBJECTS 1024u

/* ---- gc ---------------------------------------------------------------------------- */

static bool collect(void *opaque, const VjPut *object, int64_t mtime_us)
{
    (void)mtime_us;
    g_array_append_vals(opaque, object, 1);
    return true;
}

static int remove_unreferenced(VjVolume *v, const GArray *puts, VjTend *t)
{
    int rc = 0;

    for (guint i = 0; rc == 0 && i < puts->len; i++) {
        const VjPut *put = &g_array_index(puts, VjPut, i);

        rc = vj_object_remove_unnamed(v->objects, put);
        if (rc == 0) {
            vj_log_info("object %" G_GUINT64_FORMAT ": %" G_GUINT64_FORMAT
                        " bytes that no record names were removed",
                        put->id, put->stored_bytes);
            t->found++;
            t->found_bytes += put->stored_bytes;
        }
    }
    return rc;
}

/* What died goes first: its records would keep the bytes from being unreferenced puts. */
static int gc_purge(VjVolume *v, VjTend *t)
{
    VjObjectsStats before, after;
    int rc;

    vj_objects_stats(v->objects, &before);
    rc = vj_volume_purge(v);
    vj_objects_stats(v->objects, &after);
    t->found += after.removed - before.removed;
    t->found_bytes += after.removed_bytes - before.removed_bytes;
    return rc;
}

static int last_id_body(VjTxn *txn, void *opaque)
{
    uint64_t *last = opaque;
    VjSlice value;
    int rc = vj_txn_get(txn, VJ_SPACE_SYSTEM,
                        vj_slice(VJ_NEXT_ID_KEY, strlen(VJ_NEXT_ID_KEY)), &value);

    *last = 1;
    return rc == 0 ? vj_next_id_decode(value, last) : rc;
}

static int last_id(VjVolume *v, uint64_t *last)
{
    int rc = vj_meta_view(v->meta, last_id_body, last);

    return rc == -ENOENT ? 0 : rc;
}

int vj_volume_gc(VjVolume *v, VjTend *t)
{
    g_autoptr(GArray) puts = g_array_new(FALSE, FALSE, sizeof(VjPut));
    uint64_t first = t->cursor + 1, last;
    int rc = 0;

    if (vj_volume_read_only(v) || v->purge == NULL) {
        return -EROFS;
    }
    if (t->cursor == 0) {
        rc = gc_purge(v, t);
    }
    if (rc == 0) {
        rc = last_id(v, &t->total);
    }
    /* The last step takes what lies behind the numbers that were given out, too. */
    last =
        t->total > first && t->total - first > GC_IDS ? first + GC_IDS - 1 : UINT64_MAX;
    if (rc == 0) {
        rc = vj_store_each(v->store, first, last, collect, puts);
    }
    if (rc < 0) {
        return rc;
    }
    t->examined += puts->len;
    rc = vj_objects_keep_garbage(v->objects, puts);
    if (rc == 0) {
        rc = remove_unreferenced(v, puts, t);
    }
    t->cursor = last;
    return rc;
}

/* ---- scrub ------------------------------------------------------------------------- */

/* The next objects behind the cursor, within the bounds of a step. */
static int next_objects(VjTxn *txn, VjTend *t, GArray *objects)
{
    uint8_t after[VJ_OBJECT_KEY_BYTES];
    uint64_t bytes = 0;
    VjScan scan;

    vj_be64_set(after, t->cursor);
    vj_scan_begin(&scan, txn, VJ_SPACE_OBJECT, VJ_SCAN_ALL);
    vj_scan_behind(&scan, vj_slice(after, sizeof after));
    while (bytes < SCRUB_BYTES && objects->len < SCRUB_OBJECTS) {
        VjObject object;

        if (!vj_scan_next(&scan)) {
            t->cursor = scan.error == 0 ? UINT64_MAX : t->cursor;
            return scan.error;
        }
        if (scan.key.len != sizeof after) {
            return -EBADMSG;
        }
        t->cursor = vj_be64_get(scan.key.data);
        if (vj_object_decode(scan.value, VJ_SPACE_OBJECT, t->cursor, &object) == 0) {
            g_array_append_val(objects, object);
            bytes += object.stored_bytes;
        } else {
            t->found++;
            vj_log_error("object %" G_GUINT64_FORMAT ": its record is damaged",
                         t->cursor);
        }
    }
    return 0;
}

static void note_bad(VjTend *t, const VjObject *object)
{
    if (t->bad_count < VJ_TEND_BAD_MOST) {
        t->bad[t->bad_count] = object->id;
    }
    t->bad_count++;
    t->found++;
    t->found_bytes += object->plain_bytes;
}

/* From each node that has a replica; what is damaged there is mended from another one. */
static int load(VjVolume *v, const VjObject *object, VjBuf **plain)
{
    bool is_damaged = false;
    VjObject one;

    *plain = NULL;
    for (unsigned i = 0; vj_object_at(v->objects, object, i, &one); i++) {
        g_autoptr(VjBuf) got = NULL;
        int rc = 0;

        if (vj_store_loc_names(v->store, object->loc, i)) {
            rc = vj_object_load(v->objects, &one, &got);
        }
        is_damaged = is_damaged || rc == -EBADMSG;
        if (*plain == NULL) {
            *plain = g_steal_pointer(&got);
        }
        if (rc == -ETIMEDOUT) {
            return *plain != NULL ? 0 : rc; /* the others are asked when it is there */
        }
    }
    if (is_damaged) {
        (void)vj_object_mend(v->objects, object, -EBADMSG);
    }
    return *plain != NULL ? 0 : vj_object_load(v->objects, object, plain);
}

static bool is_a_node_away(VjVolume *v)
{
    VjStoreHealth health = {.dead = 0};

    if (vj_objects_have_replicas(v->objects)) {
        vj_objects_health(v->objects, &health);
    }
    return health.dead > 0;
}

static int verify(VjVolume *v, const VjObject *object, VjTend *t)
{
    g_autoptr(VjBuf) plain = NULL;
    VjIndexKey key;
    struct iovec iov;
    VjDigest digest;
    int rc = load(v, object, &plain);

    t->examined++;
    t->examined_bytes += object->stored_bytes;
    if (rc == 0) {
        iov = (struct iovec){.iov_base = plain->data, .iov_len = plain->len};
        rc = vj_digest_hash(v->super.digest, &iov, 1, &digest);
    }
    if (rc == 0 && memcmp(&digest, &object->digest, sizeof digest) == 0) {
        return 0;
    }
    if (rc == -ENOMEM || rc == -EOPNOTSUPP || rc == -ETIMEDOUT) {
        return rc != -EOPNOTSUPP ? rc : 0; /* another build can read it */
    }
    note_bad(t, object);
    if (rc == -EIO || is_a_node_away(v) || vj_volume_read_only(v) ||
        (object->flags & VJ_OBJECT_UNINDEXED) != 0) {
        /* The device may have a bad day; a node that is away may have a good replica; or
         * the index does not name it. */
        return 0;
    }
    vj_index_key_of(object, &key);
    return vj_object_condemn(v->objects, &key, object->id);
}

typedef struct NextObjects {
    const VjTend *before;
    VjTend *tend;
    GArray *objects;
} NextObjects;

static int next_objects_body(VjTxn *txn, void *opaque)
{
    const NextObjects *n = opaque;

    *n->tend = *n->before;
    g_array_set_size(n->objects, 0);
    return next_objects(txn, n->tend, n->objects);
}

int vj_volume_scrub(VjVolume *v, VjTend *t)
{
    g_autoptr(GArray) objects = g_array_new(FALSE, FALSE, sizeof(VjObject));
    const VjTend before = *t;
    VjReadGuard guard;
    int rc;

    if (t->cursor == UINT64_MAX) {
        return 0; /* the caller goes on behind the end */
    }
    vj_objects_guard_enter(v->objects, &guard);
    rc = vj_meta_view(v->meta, next_objects_body,
                      &(NextObjects){.before = &before, .tend = t, .objects = objects});
    for (guint i = 0; rc == 0 && i < objects->len; i++) {
        rc = verify(v, &g_array_index(objects, VjObject, i), t);
    }
    vj_objects_guard_leave(v->objects, &guard);
    if (rc == 0 && !vj_volume_read_only(v)) {
        VjScrubPass step = {.objects = t->examined - before.examined,
                            .bytes = t->examined_bytes - before.examined_bytes,
                            .damaged = t->found - before.found};

        rc = vj_scrub_note(v->meta, before.cursor, t->cursor, &step);
    }
    return rc;
}
