/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-map-damage.c - every operation over a tree with damaged, forged or missing nodes
 *
 * A damaged node is -EBADMSG wherever it is met and a problem for the check; a forged one
 * (its checksum is right) may pass for what it says, but nothing crashes, hangs or writes
 * outside of the tree's keys.
 */
#include "../../lib/test.h"

#include "../../lib/mem-meta.h"
#include "map/map-private.h"

#define INO 12u
#define ENTRIES 60u
#define LENGTH 1000u

typedef struct Tree {
    VjMeta *meta;
    VjMapRoot root;
    uint32_t number; /* of the node that is damaged */
    GBytes *value;   /* what it was; NULL: leave the node out */
} Tree;

static int build_body(VjTxn *txn, void *opaque)
{
    Tree *t = opaque;
    g_autoptr(GArray) removed = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    g_autoptr(GArray) detached = g_array_new(FALSE, FALSE, sizeof(VjMapDetached));
    VjEntry entries[ENTRIES];

    for (unsigned i = 0; i < ENTRIES; i++) {
        entries[i] = (VjEntry){.kind = i % 7 == 3 ? VJ_ENTRY_HOLE : VJ_ENTRY_OBJECT,
                               .id = i % 7 == 3 ? 0 : i + 1,
                               .length = LENGTH};
    }
    t->root = (VjMapRoot){.next_node = 1};
    return vj_map_replace(txn, INO, &t->root, 0, 0, entries, ENTRIES, removed, detached);
}

static void tree_init(Tree *t)
{
    *t = (Tree){.meta = mem_meta_new()};
    vj_map_set_most_for_test(4);
    assert_int_equal(vj_meta_run(t->meta, VJ_RUN_DEFAULT, build_body, t), 0);
    assert_true(t->root.height >= 3);
}

static void tree_clear(Tree *t)
{
    vj_map_set_most_for_test(0);
    assert_int_equal(vj_meta_close(t->meta), 0);
}

static int put_body(VjTxn *txn, void *opaque)
{
    Tree *t = opaque;
    uint8_t key[VJ_MAP_KEY_BYTES];
    gsize len;
    const void *data;

    vj_map_key_encode(INO, t->number, key);
    if (t->value == NULL) {
        return vj_txn_del(txn, VJ_SPACE_NODE, vj_slice(key, sizeof key));
    }
    data = g_bytes_get_data(t->value, &len);
    return vj_txn_put(txn, VJ_SPACE_NODE, vj_slice(key, sizeof key), vj_slice(data, len));
}

static void put_node(Tree *t, uint32_t number, GBytes *value)
{
    t->number = number;
    t->value = value;
    assert_int_equal(vj_meta_run(t->meta, VJ_RUN_DEFAULT, put_body, t), 0);
}

typedef struct GetNode {
    uint32_t number;
    GBytes *value; /* out */
} GetNode;

static int get_body(VjTxn *txn, void *opaque)
{
    GetNode *g = opaque;
    uint8_t key[VJ_MAP_KEY_BYTES];
    VjSlice value;
    int rc;

    g_clear_pointer(&g->value, g_bytes_unref);
    vj_map_key_encode(INO, g->number, key);
    rc = vj_txn_get(txn, VJ_SPACE_NODE, vj_slice(key, sizeof key), &value);
    if (rc == 0) {
        g->value = g_bytes_new(value.data, value.len);
    }
    return rc;
}

/* NULL when there is no such node. */
static GBytes *get_node(Tree *t, uint32_t number)
{
    GetNode g = {.number = number};
    int rc = vj_meta_view(t->meta, get_body, &g);

    assert_true(rc == 0 || rc == -ENOENT);
    return g.value;
}

/* Walks forward and back; the first error. */
static int walk_body(VjTxn *txn, void *opaque)
{
    const Tree *t = opaque;
    g_autoptr(VjMapCursor) c = vj_map_cursor_new(txn, INO, &t->root);
    VjEntry entry;
    uint64_t at;
    unsigned steps = 0;
    int rc;

    while ((rc = vj_map_cursor_next(c, &entry, &at)) == 0) {
        assert_true(++steps < 100000);
    }
    if (rc == -ENOENT) {
        while ((rc = vj_map_cursor_prev(c, &entry, &at)) == 0) {
            assert_true(++steps < 100000);
        }
    }
    return rc == -ENOENT ? 0 : rc;
}

static int walk(Tree *t)
{
    return vj_meta_view(t->meta, walk_body, t);
}

static int seek_body(VjTxn *txn, void *opaque)
{
    const Tree *t = opaque;
    g_autoptr(VjMapCursor) c = vj_map_cursor_new(txn, INO, &t->root);
    int first = 0;

    for (uint64_t offset = 0; offset < t->root.bytes; offset += LENGTH) {
        VjEntry entry;
        uint64_t at;
        int rc = vj_map_cursor_seek(c, offset, &entry, &at);

        if (rc == 0) {
            assert_true(at <= offset && offset - at < entry.length);
        }
        first = first != 0 ? first : rc;
    }
    return first;
}

static int seek_everywhere(Tree *t)
{
    return vj_meta_view(t->meta, seek_body, t);
}

typedef struct Problems {
    const Tree *t;
    char *line; /* of the last one, owned */
    uint64_t count;
} Problems;

static void last_line(void *opaque, const char *text)
{
    Problems *p = opaque;

    g_free(p->line);
    p->line = g_strdup(text);
}

static int problems_body(VjTxn *txn, void *opaque)
{
    Problems *p = opaque;
    uint64_t nodes;

    g_clear_pointer(&p->line, g_free);
    return vj_map_check(txn, INO, &p->t->root, NULL, last_line, p, &nodes, &p->count);
}

static uint64_t problems(Tree *t)
{
    Problems p = {.t = t};

    assert_int_equal(vj_meta_view(t->meta, problems_body, &p), 0);
    g_free(p.line);
    return p.count;
}

typedef struct Change {
    Tree *t;
    uint64_t from, to;
    bool drop;
    int rc;
} Change;

static int change_body(VjTxn *txn, void *opaque)
{
    Change *c = opaque;
    g_autoptr(GArray) removed = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    g_autoptr(GArray) detached = g_array_new(FALSE, FALSE, sizeof(VjMapDetached));
    VjEntry entries[2] = {{.kind = VJ_ENTRY_OBJECT, .id = 900, .length = 10},
                          {.kind = VJ_ENTRY_HOLE, .length = 99}};
    VjMapRoot root = c->t->root;

    c->rc = c->drop ? vj_map_drop(txn, INO, &root, c->to, removed)
                    : vj_map_replace(txn, INO, &root, c->from, c->to - c->from, entries,
                                     2, removed, detached);
    if (c->rc != 0) {
        assert_int_equal(removed->len + detached->len, 0);
    }
    return -ECANCELED; /* the tree stays as it was */
}

static int change(Tree *t, bool drop, uint64_t from, uint64_t to)
{
    Change c = {.t = t, .drop = drop, .from = from, .to = to};

    assert_int_equal(vj_meta_run(t->meta, VJ_RUN_DEFAULT, change_body, &c), -ECANCELED);
    assert_true(c.rc == 0 || c.rc == -EBADMSG || c.rc == -EINVAL || c.rc == -EFBIG);
    return c.rc;
}

static void change_everywhere(Tree *t)
{
    for (uint64_t from = 0; from <= t->root.bytes; from += 7 * LENGTH) {
        for (uint64_t to = from; to <= t->root.bytes; to += 13 * LENGTH) {
            (void)change(t, false, from, to);
        }
    }
    (void)change(t, true, 0, 7);
    (void)change(t, true, 0, 1000);
}

static void each_flipped_byte_is_found(void **state)
{
    Tree t;

    (void)state;
    tree_init(&t);
    assert_int_equal(walk(&t), 0);
    assert_int_equal(problems(&t), 0);
    for (uint32_t number = 1; number < t.root.next_node; number++) {
        g_autoptr(GBytes) good = get_node(&t, number);
        gsize len = good != NULL ? g_bytes_get_size(good) : 0;

        for (gsize i = 0; i < len; i++) {
            uint8_t *bytes = g_memdup2(g_bytes_get_data(good, NULL), len);
            g_autoptr(GBytes) bad = NULL;

            bytes[i] ^= (uint8_t)(1u << i % 8);
            bad = g_bytes_new_take(bytes, len);
            put_node(&t, number, bad);
            assert_int_equal(walk(&t), -EBADMSG);
            assert_int_equal(seek_everywhere(&t), -EBADMSG);
            assert_int_equal(problems(&t), 1);
            assert_int_equal(change(&t, true, 0, 1000), -EBADMSG);
            if (i % 16 == 0) {
                change_everywhere(&t);
            }
        }
        if (good != NULL) {
            put_node(&t, number, good);
        }
    }
    assert_int_equal(problems(&t), 0);
    tree_clear(&t);
}

static void missing_and_exchanged_nodes(void **state)
{
    Tree t;

    (void)state;
    tree_init(&t);
    for (uint32_t number = 1; number < t.root.next_node; number++) {
        g_autoptr(GBytes) good = get_node(&t, number);
        g_autoptr(GBytes) other = get_node(&t, number == 1 ? 2 : 1);

        if (good == NULL || other == NULL) {
            continue;
        }
        put_node(&t, number, other);
        assert_int_equal(walk(&t), -EBADMSG);
        assert_int_equal(problems(&t), 1);
        change_everywhere(&t);
        put_node(&t, number, NULL);
        assert_int_equal(walk(&t), -EBADMSG);
        assert_int_equal(problems(&t), 1);
        change_everywhere(&t);
        put_node(&t, number, good);
    }
    assert_int_equal(problems(&t), 0);
    tree_clear(&t);
}

/* Bytes changed at random under a right checksum, mostly in fields that link nodes. */
static void forged_nodes(void **state)
{
    unsigned passed = 0, refused = 0;
    VjRng rng;
    Tree t;

    (void)state;
    vj_rng_init(&rng, 21);
    tree_init(&t);
    for (unsigned round = 0; round < 4000; round++) {
        uint32_t number = 1 + (uint32_t)vj_rng_below(&rng, t.root.next_node - 1);
        g_autoptr(GBytes) good = get_node(&t, number);
        g_autoptr(GBytes) bad = NULL;
        uint8_t *bytes;
        uint64_t sum;
        gsize len;

        if (good == NULL) {
            continue;
        }
        len = g_bytes_get_size(good);
        bytes = g_memdup2(g_bytes_get_data(good, NULL), len);
        bytes[20 + vj_rng_below(&rng, len - 28)] = (uint8_t)vj_rng_below(&rng, 8);
        sum = GUINT64_TO_LE(vj_checksum64(bytes, len - 8));
        memcpy(bytes + len - 8, &sum, 8);
        bad = g_bytes_new_take(bytes, len);
        put_node(&t, number, bad);
        if (walk(&t) == 0) {
            passed++;
        } else {
            refused++;
        }
        (void)seek_everywhere(&t);
        (void)problems(&t);
        if (round % 4 == 0) {
            change_everywhere(&t);
        }
        put_node(&t, number, good);
    }
    assert_true(passed > 100 && refused > 100);
    assert_int_equal(problems(&t), 0);
    tree_clear(&t);
}

/* Two parents that name one child: found by the check, and a drop does not drop twice. */
static void shared_child(void **state)
{
    g_autofree VjMapImage *image = g_new0(VjMapImage, 1);
    g_autoptr(GBytes) root_bytes = NULL, bad = NULL;
    uint8_t bytes[VJ_META_VALUE_CHEAP];
    gsize len;
    const void *data;
    Tree t;

    (void)state;
    tree_init(&t);
    root_bytes = get_node(&t, t.root.node);
    data = g_bytes_get_data(root_bytes, &len);
    assert_int_equal(vj_map_image_decode(vj_slice(data, len), INO, t.root.node, image),
                     0);
    t.root.bytes += image->children[0].sums.bytes - image->children[1].sums.bytes;
    image->children[1] = image->children[0];
    bad = g_bytes_new(bytes, vj_map_image_encode(image, bytes));
    put_node(&t, t.root.node, bad);
    assert_int_equal(walk(&t), 0);
    assert_int_equal(problems(&t), 1);
    assert_int_equal(change(&t, true, 0, 1000), -EBADMSG);
    change_everywhere(&t);
    tree_clear(&t);
}

/* A tree of one node, made by hand. */
static void put_image(Tree *t, const VjMapImage *image)
{
    uint8_t bytes[VJ_META_VALUE_CHEAP];
    g_autoptr(GBytes) value = g_bytes_new(bytes, vj_map_image_encode(image, bytes));

    put_node(t, image->node, value);
}

/* A node that is its own child: its level gives it away. */
static void cycle(void **state)
{
    g_autofree VjMapImage *image = g_new0(VjMapImage, 1);
    Tree t = {.meta = mem_meta_new()};

    (void)state;
    *image = (VjMapImage){.ino = INO, .node = 1, .level = 1, .count = 1};
    image->children[0] = (VjMapChild){.node = 1, .sums = {.bytes = 5000}};
    put_image(&t, image);
    t.root = (VjMapRoot){.node = 1, .height = 2, .bytes = 5000};
    assert_int_equal(walk(&t), -EBADMSG);
    assert_int_equal(seek_everywhere(&t), -EBADMSG);
    assert_int_equal(problems(&t), 1);
    change_everywhere(&t);
    tree_clear(&t);
}

/* Exactly one problem, and its line says @part. */
static void expect_said(Tree *t, const char *part)
{
    Problems p = {.t = t};

    assert_int_equal(vj_meta_view(t->meta, problems_body, &p), 0);
    assert_int_equal(p.count, 1);
    if (strstr(p.line, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", p.line, part);
    }
    g_free(p.line);
}

/* What only the check can see: each node is well-formed, the tree is not. */
static void check_tells_what_is_wrong(void **state)
{
    g_autofree VjMapImage *inner = g_new0(VjMapImage, 1);
    g_autofree VjMapImage *leaf = g_new0(VjMapImage, 1);
    Tree t = {.meta = mem_meta_new()};

    (void)state;
    *inner = (VjMapImage){.ino = INO, .node = 1, .level = 1, .count = 2};
    inner->children[0] = (VjMapChild){.node = 2, .sums = {.bytes = 100}};
    inner->children[1] = (VjMapChild){.node = 3, .sums = {.bytes = 100}};
    put_image(&t, inner);
    for (uint32_t node = 2; node <= 3; node++) {
        *leaf = (VjMapImage){.ino = INO, .node = node, .level = 0, .count = 100};
        for (unsigned i = 0; i < 100; i++) {
            leaf->entries[i] = (VjEntry){.kind = VJ_ENTRY_OBJECT, .id = 1, .length = 1};
        }
        put_image(&t, leaf);
    }
    t.root = (VjMapRoot){.node = 1, .next_node = 4, .height = 2, .bytes = 200};
    assert_int_equal(problems(&t), 0);

    t.root.next_node = 3;
    expect_said(&t, "map node 3: its number was never given out");
    t.root.next_node = 4;
    leaf->entries[6] = leaf->entries[7] = (VjEntry){.kind = VJ_ENTRY_HOLE, .length = 1};
    put_image(&t, leaf);
    expect_said(&t, "map node 3: entry 7 is a hole behind a hole");
    leaf->entries[6] = leaf->entries[8];
    leaf->entries[6].length = 2;
    put_image(&t, leaf);
    expect_said(&t, "map node 3: holds 101 bytes, its parent says 100");
    leaf->entries[6].length = 1;
    leaf->entries[6].stored_bytes = 9;
    put_image(&t, leaf);
    expect_said(&t, "map node 3: holds 9 stored bytes, its parent says 0");
    leaf->entries[6].stored_bytes = 0;
    put_image(&t, leaf);
    assert_int_equal(problems(&t), 0);

    leaf->node = 2;
    leaf->count = 30;
    leaf->entries[0].length = 71;
    put_image(&t, leaf);
    expect_said(&t, "map node 2: has 30 items, fewer than 40");
    inner->count = 1;
    put_image(&t, inner);
    t.root.bytes = 100;
    expect_said(&t, "map node 1: is a root with a single child");
    tree_clear(&t);
}

static void expect_bad_root(Tree *t, VjMapRoot root)
{
    VjMapRoot good = t->root;

    t->root = root;
    assert_int_equal(walk(t), -EBADMSG);
    assert_true(problems(t) >= 1);
    assert_int_equal(change(t, false, 0, 0), -EBADMSG);
    assert_int_equal(change(t, true, 0, 1), -EBADMSG);
    t->root = good;
}

static void roots_that_cannot_be(void **state)
{
    VjMapRoot root;
    Tree t;

    (void)state;
    tree_init(&t);
    root = t.root, root.node = 0, expect_bad_root(&t, root);
    root = t.root, root.node++, expect_bad_root(&t, root);
    root = t.root, root.height = 0, expect_bad_root(&t, root);
    root = t.root, root.height++, expect_bad_root(&t, root);
    root = t.root, root.height = VJ_MAP_HEIGHT_MAX + 1, expect_bad_root(&t, root);
    root = t.root, root.height = 255, expect_bad_root(&t, root);
    root = t.root, root.bytes = 0, expect_bad_root(&t, root);
    root = t.root, root.bytes++, expect_bad_root(&t, root);
    root = t.root, root.bytes = UINT64_MAX, expect_bad_root(&t, root);
    root = t.root, root.stored_bytes++, expect_bad_root(&t, root);
    root = t.root, root.stored_bytes = UINT64_MAX, expect_bad_root(&t, root);
    assert_int_equal(problems(&t), 0);
    tree_clear(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_flipped_byte_is_found),
    cmocka_unit_test(missing_and_exchanged_nodes),
    cmocka_unit_test(forged_nodes),
    cmocka_unit_test(shared_child),
    cmocka_unit_test(cycle),
    cmocka_unit_test(check_tells_what_is_wrong),
    cmocka_unit_test(roots_that_cannot_be),
};

VJ_TEST_MAIN(tests)
