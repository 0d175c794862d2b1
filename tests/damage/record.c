/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * record.c - classes of damage: records of the metadata, each space in each way
 *
 * A damaged page of the engine is another thing (tests of the engine see to it): here the
 * engine gives a value that is not the one that was put.
 */
#include "sweep.h"

#include "../lib/right-sums.h"

typedef enum How {
    FLIP,    /* one bit of the value */
    SMEAR,   /* eight bytes of it */
    GONE,    /* the record */
    SHORT,   /* the value ends early */
    LONG,    /* the value has bytes more */
    MOVED,   /* one bit of the key */
    EXTRA,   /* a second record with the value, under another key */
    HOSTILE, /* the value says something else, and the checksum is right */
} How;

static const char *const hows[] = {"flip",       "smear", "gone",  "short",
                                   "lengthened", "moved", "extra", "hostile"};

static const char *const spaces[VJ_SPACE_COUNT] = {
    [VJ_SPACE_SYSTEM] = "system",     [VJ_SPACE_INODE] = "inode",
    [VJ_SPACE_DENTRY] = "dentry",     [VJ_SPACE_COOKIE] = "cookie",
    [VJ_SPACE_XATTR] = "xattr",       [VJ_SPACE_NODE] = "node",
    [VJ_SPACE_INLINE] = "inline",     [VJ_SPACE_FRAGMENT] = "fragment",
    [VJ_SPACE_OBJECT] = "object",     [VJ_SPACE_INDEX] = "index",
    [VJ_SPACE_DEAD] = "dead",         [VJ_SPACE_ORPHAN] = "orphan",
    [VJ_SPACE_ID_BLOCK] = "id-block",
};

/* ---- positions --------------------------------------------------------------------- */

static uint64_t positions_in(const Record *r, How how)
{
    switch (how) {
    case FLIP:
        return 8 * g_bytes_get_size(r->value);
    case SMEAR:
    case SHORT:
    case HOSTILE:
        return g_bytes_get_size(r->value);
    case MOVED:
    case EXTRA:
        return 8 * g_bytes_get_size(r->key);
    default:
        return 1;
    }
}

static uint64_t positions(const Tree *t, const Class *c)
{
    uint64_t count = 0;

    for (guint i = 0; i < t->records->len; i++) {
        const Record *r = &g_array_index(t->records, Record, i);

        count += r->space == (VjSpace)c->kind ? positions_in(r, (How)c->how) : 0;
    }
    return count;
}

/* The record that position *at lies in; *at becomes its place there. */
static const Record *find(const Tree *t, const Class *c, uint64_t *at)
{
    for (guint i = 0; i < t->records->len; i++) {
        const Record *r = &g_array_index(t->records, Record, i);
        uint64_t count = r->space == (VjSpace)c->kind ? positions_in(r, (How)c->how) : 0;

        if (*at < count) {
            return r;
        }
        *at -= count;
    }
    g_assert_not_reached();
}

/* ---- what a record stands for ------------------------------------------------------ */

static uint64_t thing_named(const Tree *t, uint64_t dir, const char *name, size_t len)
{
    for (guint i = 0; i < t->things->len; i++) {
        const Thing *thing = &g_array_index(t->things, Thing, i);
        const char *its = strrchr(thing->path, '/') + 1;

        if (thing->dir == dir && strlen(its) == len && memcmp(its, name, len) == 0) {
            return S_ISDIR(thing->mode) ? things_below(t, thing->ino) : (uint64_t)1 << i;
        }
    }
    return 0;
}

/* Its last bytes stand in the record of the inode. */
static void hit_rest(const Tree *t, Hit *h, uint64_t ino)
{
    const size_t at = VJ_FILE_INLINE_MAX - VJ_FILE_INLINE_REST_MAX;

    for (guint i = 0; i < t->things->len; i++) {
        const Thing *thing = &g_array_index(t->things, Thing, i);
        const Use use = {.ino = ino, .at = at, .len = thing->len - MIN(thing->len, at)};

        if (thing->ino == ino && use.len > 0 && thing->len <= VJ_FILE_INLINE_MAX) {
            g_array_append_val(h->ranges, use);
        }
    }
}

static void hit_inode(const Tree *t, Hit *h, uint64_t ino)
{
    uint64_t own = things_of(t, ino);

    h->whole |= things_below(t, ino);
    h->names |= things_below(t, ino);
    h->listing |= own;
    h->is_dir_root = h->is_dir_root || ino == VJ_INO_ROOT;
    if (!h->is_mended) {
        h->records |= own;
        hit_rest(t, h, ino);
    }
    if (h->hostile) {
        h->contents |= things_below(t, ino);
        h->records |= things_below(t, ino);
    }
}

static void hit_node(const Tree *t, Hit *h, uint64_t ino, uint32_t node)
{
    for (guint i = 0; i < t->nodes->len; i++) {
        Use use = g_array_index(t->nodes, Use, i);

        if (use.ino == ino && use.id == node) {
            g_array_append_val(h->ranges, use);
        }
    }
}

static void hit_fragment(const Tree *t, Hit *h, uint64_t ino, uint32_t number)
{
    for (guint i = 0; i < t->fragments->len; i++) {
        Use use = g_array_index(t->fragments, Use, i);

        if (use.ino == ino && use.id == number) {
            g_array_append_val(h->ranges, use);
        }
    }
}

static uint64_t users_of(const Tree *t, uint64_t id)
{
    uint64_t bits = 0;

    for (guint i = 0; i < t->uses->len; i++) {
        if (g_array_index(t->uses, Use, i).id == id) {
            bits |= things_of(t, g_array_index(t->uses, Use, i).ino);
        }
    }
    return bits;
}

static void hit_content(Hit *h, uint64_t bits)
{
    if (h->is_mended) {
        h->whole |= bits;
    } else {
        h->contents |= bits;
    }
}

static void hit_record(const Tree *t, const Record *r, How how, Hit *h)
{
    gsize len;
    const uint8_t *key = g_bytes_get_data(r->key, &len);
    uint64_t first = len < 8 ? 0 : vj_be64_get(key), bits = things_of(t, first);
    bool is_gone = how == GONE || how == MOVED;

    switch (r->space) {
    case VJ_SPACE_SYSTEM:
        /* "volume"; without "object-next-id" nothing can be written. */
        h->refusable = len == 6 || len == 14;
        h->beyond = len == 6 && h->hostile;
        break;
    case VJ_SPACE_INODE:
        hit_inode(t, h, first);
        break;
    case VJ_SPACE_DENTRY:
        bits = thing_named(t, first, (const char *)key + 8, len - 8);
        h->names |= bits;
        h->whole |= h->hostile ? bits : 0;
        break;
    case VJ_SPACE_COOKIE: /* the record of the name stands in for a damaged one */
        h->listing |= is_gone ? bits : 0;
        h->is_dir_root = (is_gone || h->hostile) && first == VJ_INO_ROOT;
        h->whole |= h->hostile ? bits : 0;
        break;
    case VJ_SPACE_XATTR:
        h->attrs |= bits;
        h->is_silent = how == GONE; /* nothing else says that it was there */
        break;
    case VJ_SPACE_NODE:
        hit_node(t, h, first, vj_be32_get(key + 8));
        break;
    case VJ_SPACE_INLINE:
        hit_content(h, bits);
        break;
    case VJ_SPACE_FRAGMENT:
        hit_fragment(t, h, first, vj_be32_get(key + 8));
        break;
    case VJ_SPACE_OBJECT:
        hit_object(t, h, first, 0, UINT32_MAX);
        bits = users_of(t, first);
        break;
    default:
        return;
    }
    if (h->hostile && (r->space == VJ_SPACE_NODE || r->space == VJ_SPACE_INLINE ||
                       r->space == VJ_SPACE_FRAGMENT || r->space == VJ_SPACE_OBJECT)) {
        h->whole |= bits;
        h->contents |= bits;
    }
}

/* ---- another value ----------------------------------------------------------------- */

/* A bit, an extreme byte, or a field of them. */
static void mutate(VjRng *rng, uint8_t *bytes, size_t len, size_t at)
{
    static const uint8_t edges[] = {0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff};
    uint8_t edge = edges[vj_rng_below(rng, sizeof edges)];

    switch (vj_rng_below(rng, 3)) {
    case 0:
        bytes[at] ^= (uint8_t)(1u << vj_rng_below(rng, 8));
        break;
    case 1:
        bytes[at] = edge;
        break;
    default:
        memset(bytes + at, edge, MIN(1 + vj_rng_below(rng, 8), len - at));
    }
}

/* ---- doing it ---------------------------------------------------------------------- */

typedef struct Change {
    VjRng *rng;
    const Record *r;
    How how;
    uint64_t at;
} Change;

static int move(VjTxn *txn, const Change *x, VjSlice key, VjSlice value)
{
    uint8_t other[VJ_META_KEY_MAX];
    VjSlice there;
    uint64_t bit = x->at;
    int r = 0;

    if (x->how == MOVED) {
        r = vj_txn_del(txn, x->r->space, key);
    }
    do { /* not onto another record: that would be two damages */
        memcpy(other, key.data, key.len);
        other[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        bit = (bit + 1) % (8 * key.len);
    } while (r == 0 &&
             vj_txn_get(txn, x->r->space, vj_slice(other, key.len), &there) == 0);
    return r < 0 ? r : vj_txn_put(txn, x->r->space, vj_slice(other, key.len), value);
}

static int change_body(VjTxn *txn, void *opaque)
{
    const Change *x = opaque;
    gsize len, key_len;
    const void *data = g_bytes_get_data(x->r->value, &len);
    const void *key_data = g_bytes_get_data(x->r->key, &key_len);
    VjSlice key = vj_slice(key_data, key_len);
    g_autofree uint8_t *bytes = g_malloc0(len + 8);

    memcpy(bytes, data, len);
    switch (x->how) {
    case FLIP:
        bytes[x->at / 8] ^= (uint8_t)(1u << (x->at % 8));
        break;
    case SMEAR:
        for (size_t i = x->at; i < len && i < x->at + 8; i++) {
            bytes[i] ^= (uint8_t)(0x59 + i);
        }
        break;
    case GONE:
        return vj_txn_del(txn, x->r->space, key);
    case SHORT:
        len = MAX(x->at, 1);
        break;
    case LONG:
        len += 8;
        break;
    case MOVED:
    case EXTRA:
        return move(txn, x, key, vj_slice(data, len));
    case HOSTILE:
        mutate(x->rng, bytes, len, x->at);
        vj_put_right(x->r->space, key, bytes, len);
        break;
    }
    return vj_txn_put(txn, x->r->space, key, vj_slice(bytes, len));
}

static void hurt(Tree *t, const Class *c, uint64_t at, Hit *h)
{
    uint64_t place = at;
    const Record *r = find(t, c, &place);
    Change x = {.rng = &t->rng, .r = r, .how = (How)c->how, .at = place};

    gsize key_len;
    const uint8_t *key = g_bytes_get_data(r->key, &key_len);

    h->hostile = x.how == HOSTILE;
    /* One bit is put right; an object's record is made again from its bytes. */
    h->is_mended =
        !h->hostile && (x.how == FLIP || x.how == EXTRA || r->space == VJ_SPACE_OBJECT);
    if (x.how != EXTRA) {
        hit_record(t, r, x.how, h);
    }
    g_string_append(h->what, "record ");
    for (gsize i = 0; i < key_len; i++) {
        g_string_append_printf(h->what, g_ascii_isgraph(key[i]) ? "%c" : "%02x", key[i]);
    }
    g_string_append_printf(h->what, " place %" G_GUINT64_FORMAT, place);
    tree_run(t, change_body, &x);
}

void record_classes(GArray *classes)
{
    for (int space = 0; space < VJ_SPACE_COUNT; space++) {
        for (int how = FLIP; how <= HOSTILE && spaces[space] != NULL; how++) {
            Class c = {.name = g_strconcat(spaces[space], "-", hows[how], NULL),
                       .kind = space,
                       .how = how,
                       .positions = positions,
                       .hurt = hurt};

            g_array_append_val(classes, c);
        }
    }
}
