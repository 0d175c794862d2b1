/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-records.c - spaces record by record: bits, keys that cannot be, counters
 *
 * What is still damaged afterwards is for the code that knows what it stood for:
 * repair-names.c (inodes), repair-content.c (maps, inline bytes), repair-objects.c
 * (objects, the dead).
 */
#include "file/inode-format.h"
#include "fsck/repair-private.h"
#include "volume/scrub-format.h"

#include <inttypes.h>

/* Numbers that are passed over when a counter is lost: what it said may have been
 * more. */
#define COUNTER_MARGIN 65536u

/* ---- what is good ------------------------------------------------------------------ */

static bool inode_is_good(VjSlice key, VjSlice value)
{
    VjInode inode;

    return vj_inode_decode(value, vj_be64_get(key.data), &inode) == 0;
}

static bool node_is_good(VjSlice key, VjSlice value)
{
    VjMapImage image;

    return vj_map_image_decode(value, vj_be64_get(key.data),
                               vj_be32_get((const uint8_t *)key.data + 8), &image) == 0;
}

/* Inline bytes and fragments: what else they hold depends on the inode, and on the
 * build. */
static bool is_sealed(VjSlice key, VjSlice value)
{
    (void)key;
    return vj_repair_is_sealed(value);
}

static bool orphan_is_good(VjSlice key, VjSlice value)
{
    VjOrphan orphan;

    return vj_orphan_decode(key, value, &orphan) == 0;
}

static bool object_is_good(VjSlice key, VjSlice value)
{
    VjObject object;

    return vj_object_decode(value, VJ_SPACE_OBJECT, vj_be64_get(key.data), &object) == 0;
}

static bool dead_is_good(VjSlice key, VjSlice value)
{
    VjObject object;

    return vj_object_decode(value, VJ_SPACE_DEAD, vj_be64_get(key.data), &object) == 0;
}

static bool index_is_good(VjSlice key, VjSlice value)
{
    VjIndexKey k;
    uint64_t id;

    memcpy(&k, key.data, sizeof k);
    return vj_index_decode(&k, value, &id) == 0;
}

static bool id_block_is_good(VjSlice key, VjSlice value)
{
    VjIdRange range;

    return vj_id_block_decode(key, value, &range) == 0;
}

static bool session_is_good(VjSlice key, VjSlice value)
{
    return vj_session_key_check(VJ_SPACE_SESSION, key, value) == 0;
}

static bool claim_is_good(VjSlice key, VjSlice value)
{
    return vj_session_key_check(VJ_SPACE_CLAIM, key, value) == 0;
}

/* The key that a whole record says it belongs to. */
typedef void OwnKey(const uint8_t *value, uint8_t *key);

static void number_at_8(const uint8_t *value, uint8_t *key)
{
    vj_be64_set(key, vj_le64_get(value + 8));
}

/* Map nodes and fragments. */
static void numbers_at_8_and_16(const uint8_t *value, uint8_t *key)
{
    number_at_8(value, key);
    vj_be32_set(key + 8, vj_le32_get(value + 16));
}

static void numbers_of_orphan(const uint8_t *value, uint8_t *key)
{
    number_at_8(value, key);
    vj_be32_set(key + 8, vj_le32_get(value + 4));
}

typedef struct Kind {
    VjSpace space;
    size_t key_len; /* 0: any */
    const char *of; /* "inode": the first number of the key is one */
    const char *what;
    VjRepairIsGood *is_good;
    OwnKey *own_key; /* NULL: the record does not repeat its key */
    bool spare; /* goes when it is damaged: all that it says is known from elsewhere */
} Kind;

/* Records that repeat their keys have at least so many bytes. */
#define OWN_KEY_BYTES 20u

static const Kind kinds[] = {
    {VJ_SPACE_SYSTEM, 0, NULL,
     "a counter, the copy of varjfs.conf, or the record of scrubs", is_sealed, NULL,
     false},
    {VJ_SPACE_INODE, 8, "inode", "its record", inode_is_good, number_at_8, false},
    {VJ_SPACE_NODE, VJ_MAP_KEY_BYTES, "inode", "a map node", node_is_good,
     numbers_at_8_and_16, false},
    {VJ_SPACE_INLINE, 8, "inode", "its inline content", is_sealed, number_at_8, false},
    {VJ_SPACE_FRAGMENT, 12, "inode", "a fragment", is_sealed, numbers_at_8_and_16, false},
    {VJ_SPACE_ORPHAN, 12, "inode", "an orphan record", orphan_is_good, numbers_of_orphan,
     false},
    {VJ_SPACE_OBJECT, VJ_OBJECT_KEY_BYTES, "object", "its record", object_is_good,
     number_at_8, false},
    {VJ_SPACE_DEAD, VJ_OBJECT_KEY_BYTES, "object", "its dead record", dead_is_good,
     number_at_8, false},
    {VJ_SPACE_ID_BLOCK, VJ_OBJECT_KEY_BYTES, "object", "the id block that begins here",
     id_block_is_good, number_at_8, true},
    {VJ_SPACE_INDEX, VJ_INDEX_KEY_BYTES, NULL, "an index entry", index_is_good, NULL,
     true},
    /* A session whose record is not there has ended, and every session has. */
    {VJ_SPACE_SESSION, 0, NULL, "the record of a session", session_is_good, NULL, true},
    {VJ_SPACE_CLAIM, 0, NULL, "what a session had alone", claim_is_good, NULL, true},
};

/*
 * A whole record under a key that is not its own: it goes back to where it belongs, or,
 * when that place is taken, it goes.  1: it was one; 0, or an error of meta.
 */
static int put_back(VjRepair *r, const Kind *k, VjSlice key, VjSlice value)
{
    uint8_t own_bytes[VJ_MAP_KEY_BYTES];
    VjSlice own = vj_slice(own_bytes, k->key_len), there;
    int rc;

    G_STATIC_ASSERT(sizeof own_bytes >= VJ_OBJECT_KEY_BYTES);
    if (k->own_key == NULL || value.len < OWN_KEY_BYTES || !vj_repair_is_sealed(value)) {
        return 0;
    }
    g_assert(k->key_len <= sizeof own_bytes);
    k->own_key(value.data, own_bytes);
    if (memcmp(own_bytes, key.data, own.len) == 0 || !k->is_good(own, value)) {
        return 0;
    }
    rc = vj_repair_get(r, k->space, own, &there);
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    if (rc == -ENOENT) {
        vj_repair_put(r, k->space, own, value);
    }
    vj_repair_del(r, k->space, key);
    vj_repair_say(r, "%s %" PRIu64 ": %s was under another number and was %s", k->of,
                  vj_be64_get(own_bytes), k->what,
                  rc == -ENOENT ? "put back" : "removed from there");
    return 1;
}

static bool is_name(VjSlice key, const char *name)
{
    return vj_slice_compare(key, vj_slice(name, strlen(name))) == 0;
}

/* Without the record of scrubs the next one begins at the start; without the epoch the
 * next pass over the dead begins the first, which no session that lives has seen. */
static bool is_spare(const Kind *k, VjSlice key)
{
    return k->spare || (k->space == VJ_SPACE_SYSTEM &&
                        (is_name(key, VJ_SCRUB_KEY) || is_name(key, VJ_EPOCH_KEY)));
}

static int check_record(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    const Kind *k = opaque;
    g_autofree char *name = NULL;
    int rc;

    if (k->key_len != 0 && key.len != k->key_len) {
        vj_repair_say(r, "%s with a key of %zu bytes was removed", k->what, key.len);
        vj_repair_del(r, k->space, key);
        return 0;
    }
    rc = put_back(r, k, key, value);
    if (rc != 0) {
        return MIN(rc, 0);
    }
    if (k->is_good(key, value)) {
        return 0;
    }
    name = k->of == NULL ? g_strdup(k->what)
                         : g_strdup_printf("%s %" PRIu64 ": %s", k->of,
                                           vj_be64_get(key.data), k->what);
    if (vj_repair_bit(r, k->space, key, value, k->is_good, name)) {
        if (k->space == VJ_SPACE_OBJECT) {
            vj_repair_note_unread(r, vj_be64_get(key.data));
        }
        return 0;
    }
    if (is_spare(k, key) && !vj_repair_is_sealed(value)) {
        vj_repair_say(r, "%s was damaged and was removed", name);
        vj_repair_del(r, k->space, key);
    }
    return 0;
}

/* ---- id blocks and orphans --------------------------------------------------------- */

/* @opaque: uint64_t, behind the last id block. */
static int check_id_block(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    uint64_t *behind = opaque;
    VjIdRange range;

    if (vj_id_block_decode(key, value, &range) < 0) {
        return 0;
    }
    /* The one before it covers it, or the store's walk does. */
    if (range.first_id < *behind) {
        vj_repair_say(r,
                      "object %" PRIu64 ": an id block that overlaps another was removed",
                      range.first_id);
        vj_repair_del(r, VJ_SPACE_ID_BLOCK, key);
        return 0;
    }
    *behind = range.last_id == UINT64_MAX ? UINT64_MAX : range.last_id + 1;
    return 0;
}

/* What an orphan record is about has to be there, and an inode that has a name is
 * none. */
static int check_orphan(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    uint64_t ino = vj_be64_get(key.data);
    uint32_t node = vj_be32_get((const uint8_t *)key.data + 8);
    uint8_t ino_key[8];
    VjSlice record;
    int rc;

    (void)opaque;
    if (!orphan_is_good(key, value)) {
        const VjOrphan anew = {.ino = ino};
        uint8_t made[VJ_ORPHAN_BYTES];

        if (vj_repair_is_sealed(value)) {
            return 0;
        }
        if (node == 0) {
            vj_orphan_encode(&anew, made);
            vj_repair_put(r, VJ_SPACE_ORPHAN, key, vj_slice(made, sizeof made));
            vj_repair_say(r,
                          "inode %" PRIu64 ": its orphan record was damaged and was "
                          "written anew",
                          ino);
        } else {
            vj_repair_say(r,
                          "inode %" PRIu64 ": a damaged record of what was to be "
                          "dropped of it was removed",
                          ino);
            vj_repair_del(r, VJ_SPACE_ORPHAN, key);
        }
        return 0;
    }
    if (node != 0) {
        return 0;
    }
    rc = vj_repair_get(r, VJ_SPACE_INODE, vj_ino_key(ino, ino_key), &record);
    if (rc == -ENOENT) {
        vj_repair_say(
            r, "inode %" PRIu64 ": an orphan record without an inode was removed", ino);
        vj_repair_del(r, VJ_SPACE_ORPHAN, key);
        rc = 0;
    }
    return rc;
}

/* ---- counters ---------------------------------------------------------------------- */

static int last_number(VjTxn *txn, VjSpace space, uint64_t *most)
{
    VjSlice key, value;
    int rc = vj_txn_prev(txn, space, vj_slice(NULL, 0), &key, &value);

    if (rc == 0 && key.len >= 8) {
        *most = MAX(*most, vj_be64_get(key.data));
    }
    return rc == -ENOENT ? 0 : rc;
}

typedef struct Largest {
    const VjSpace *spaces;
    size_t count;
    uint64_t least; /* it is no smaller */
    uint64_t most;
} Largest;

static int largest_body(VjTxn *txn, void *opaque)
{
    Largest *l = opaque;
    int rc = 0;

    l->most = l->least;
    for (size_t i = 0; rc == 0 && i < l->count; i++) {
        rc = last_number(txn, l->spaces[i], &l->most);
    }
    return rc;
}

static int largest_of(VjRepair *r, const VjSpace *spaces, size_t count, uint64_t *most)
{
    Largest l = {.spaces = spaces, .count = count, .least = *most};
    int rc = vj_meta_view(r->meta, largest_body, &l);

    *most = l.most;
    return rc;
}

static int next_ino_body(VjTxn *txn, void *opaque)
{
    return vj_ino_next(txn, opaque);
}

int vj_repair_next_ino(VjRepair *r)
{
    static const VjSpace spaces[] = {VJ_SPACE_INODE, VJ_SPACE_NODE, VJ_SPACE_INLINE,
                                     VJ_SPACE_XATTR, VJ_SPACE_ORPHAN};
    uint8_t value[VJ_NEXT_INO_BYTES];
    uint64_t next = 0, most = VJ_INO_ROOT;
    int rc = vj_meta_view(r->meta, next_ino_body, &next);
    bool damaged = rc == -EBADMSG;

    rc = damaged ? 0 : rc;
    if (rc == 0) {
        rc = largest_of(r, spaces, G_N_ELEMENTS(spaces), &most);
    }
    if (rc < 0 || (!damaged && most < next) || most >= VJ_INO_MAX - COUNTER_MARGIN) {
        return rc;
    }
    vj_ino_next_encode(most + 1 + (damaged ? COUNTER_MARGIN : 0), value);
    vj_repair_put(r, VJ_SPACE_SYSTEM, vj_slice(VJ_NEXT_INO_KEY, strlen(VJ_NEXT_INO_KEY)),
                  vj_slice(value, sizeof value));
    vj_repair_say(r, "the counter of inode numbers was %s",
                  damaged ? "damaged and was set anew" : "too low");
    return vj_repair_commit(r);
}

static bool see_stored(void *opaque, const VjPut *object, int64_t mtime_us)
{
    uint64_t *most = opaque;

    (void)mtime_us;
    *most = MAX(*most, object->id);
    return true;
}

static int see_id_block(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    uint64_t *most = opaque;
    VjIdRange range;

    (void)r;
    if (vj_id_block_decode(key, value, &range) == 0) {
        *most = MAX(*most, range.last_id);
    }
    return 0;
}

static int see_indexed(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    uint64_t *most = opaque, id;
    VjIndexKey k;

    (void)r;
    memcpy(&k, key.data, sizeof k);
    if (vj_index_decode(&k, value, &id) == 0) {
        *most = MAX(*most, id);
    }
    return 0;
}

static int read_next_id(VjRepair *r, uint64_t *next)
{
    VjSlice value;
    int rc = vj_repair_get(r, VJ_SPACE_SYSTEM,
                           vj_slice(VJ_NEXT_ID_KEY, strlen(VJ_NEXT_ID_KEY)), &value);

    *next = 1;
    return rc == 0 ? vj_next_id_decode(value, next) : rc == -ENOENT ? 0 : rc;
}

static int check_next_id(VjRepair *r)
{
    static const VjSpace spaces[] = {VJ_SPACE_OBJECT, VJ_SPACE_DEAD};
    uint8_t value[VJ_NEXT_ID_BYTES];
    uint64_t next = 0, most = 0;
    int rc = read_next_id(r, &next);
    bool damaged = rc == -EBADMSG;

    rc = damaged ? 0 : rc;
    if (rc == 0) {
        rc = largest_of(r, spaces, G_N_ELEMENTS(spaces), &most);
    }
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_ID_BLOCK, see_id_block, &most);
    }
    if (rc == 0 && damaged) {
        rc = vj_repair_each(r, VJ_SPACE_INDEX, see_indexed, &most);
    }
    if (rc == 0 && damaged) {
        rc = vj_store_each(r->store, 1, UINT64_MAX, see_stored, &most);
    }
    if (rc < 0 || (!damaged && most < next) || most >= UINT64_MAX - 2 * COUNTER_MARGIN) {
        return rc;
    }
    vj_next_id_encode(most + 1 + (damaged ? COUNTER_MARGIN : 0), value);
    vj_repair_put(r, VJ_SPACE_SYSTEM, vj_slice(VJ_NEXT_ID_KEY, strlen(VJ_NEXT_ID_KEY)),
                  vj_slice(value, sizeof value));
    vj_repair_say(r, "the counter of object numbers was %s",
                  damaged ? "damaged and was set anew" : "too low");
    return vj_repair_commit(r);
}

int vj_repair_records(VjRepair *r)
{
    uint64_t behind = 1;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < G_N_ELEMENTS(kinds); i++) {
        rc =
            vj_repair_each(r, kinds[i].space, check_record, (void *)(uintptr_t)&kinds[i]);
    }
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_ID_BLOCK, check_id_block, &behind);
    }
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_ORPHAN, check_orphan, NULL);
    }
    if (rc == 0) {
        rc = vj_repair_next_ino(r);
    }
    return rc < 0 ? rc : check_next_id(r);
}
