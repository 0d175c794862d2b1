/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-map.c - the cost of what is done to a map of 10^6 entries, and its limits
 */
#include "../../lib/test.h"

#include "../../lib/mem-meta.h"
#include "map/map-private.h"

#define INO 5u
#define MILLION 1000000u
#define SOME 200000u /* enough for three levels */
#define MEAN 262144u

typedef struct Op {
    VjMapRoot root;
    uint64_t offset, old_bytes;
    const VjEntry *entries;
    size_t count;
    GArray *removed;
    GArray *detached;
} Op;

static int replace_body(VjTxn *txn, void *opaque)
{
    Op *op = opaque;

    return vj_map_replace(txn, INO, &op->root, op->offset, op->old_bytes, op->entries,
                          op->count, op->removed, op->detached);
}

static int drop_body(VjTxn *txn, void *opaque)
{
    Op *op = opaque;

    return vj_map_drop(txn, INO, &op->root, op->count, op->removed);
}

typedef struct Fixture {
    VjMeta *meta;
    Op op;
    VjMetaStats counts; /* of the last run */
} Fixture;

static void fixture_init(Fixture *f)
{
    *f = (Fixture){.meta = mem_meta_new()};
    f->op.removed = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    f->op.detached = g_array_new(FALSE, FALSE, sizeof(VjMapDetached));
}

static void fixture_clear(Fixture *f)
{
    g_array_unref(f->op.removed);
    g_array_unref(f->op.detached);
    assert_int_equal(vj_meta_close(f->meta), 0);
}

static int replace(Fixture *f, uint64_t offset, uint64_t old_bytes,
                   const VjEntry *entries, size_t count)
{
    int rc;

    f->op.offset = offset;
    f->op.old_bytes = old_bytes;
    f->op.entries = entries;
    f->op.count = count;
    g_array_set_size(f->op.removed, 0);
    g_array_set_size(f->op.detached, 0);
    mem_meta_reset_counts(f->meta);
    rc = vj_meta_run(f->meta, VJ_RUN_DEFAULT, replace_body, &f->op);
    mem_meta_counts(f->meta, &f->counts);
    return rc;
}

static VjEntry *make_entries(size_t count, uint64_t first_id)
{
    VjEntry *entries = g_new(VjEntry, count);

    for (size_t i = 0; i < count; i++) {
        entries[i] = (VjEntry){.kind = VJ_ENTRY_OBJECT,
                               .id = first_id + i,
                               .length = MEAN,
                               .stored_bytes = MEAN + 512};
    }
    return entries;
}

static void say(void *opaque, const char *text)
{
    (void)opaque;
    print_message("# %s\n", text);
}

static bool count_entry(void *opaque, const VjEntry *entry, uint64_t at)
{
    (void)entry;
    (void)at;
    ++*(uint64_t *)opaque;
    return true;
}

typedef struct Sound {
    const VjMapRoot *root;
    uint64_t entries, problems; /* out */
} Sound;

static int sound_body(VjTxn *txn, void *opaque)
{
    Sound *s = opaque;
    uint64_t nodes;

    s->entries = 0;
    return vj_map_check(txn, INO, s->root, count_entry, say, &s->entries, &nodes,
                        &s->problems);
}

static void expect_sound(Fixture *f, uint64_t entries)
{
    Sound s = {.root = &f->op.root};

    assert_int_equal(vj_meta_view(f->meta, sound_body, &s), 0);
    assert_int_equal(s.problems, 0);
    assert_int_equal(s.entries, entries);
}

/* A map of three levels made by one replace. */
static void fixture_bulk(Fixture *f, size_t count)
{
    g_autofree VjEntry *entries = make_entries(count, 1);

    fixture_init(f);
    assert_int_equal(replace(f, 0, 0, entries, count), 0);
    assert_int_equal(f->op.root.height, 3);
}

static void fixture_million(Fixture *f)
{
    fixture_bulk(f, MILLION);
}

static void bulk_build(void **state)
{
    unsigned leaves = (MILLION + vj_map_fill(0) - 1) / vj_map_fill(0);
    Fixture f;

    (void)state;
    fixture_million(&f);
    assert_int_equal(f.op.root.height, 3);
    assert_int_equal(f.op.root.bytes, (uint64_t)MILLION * MEAN);
    assert_int_equal(f.op.root.stored_bytes, (uint64_t)MILLION * (MEAN + 512));
    /* Each node is written once, and leaves are nine tenths full. */
    assert_int_equal(f.counts.puts[VJ_SPACE_NODE], mem_meta_size(f.meta, VJ_SPACE_NODE));
    assert_in_range(f.counts.puts[VJ_SPACE_NODE], leaves, leaves + leaves / 100);
    expect_sound(&f, MILLION);
    fixture_clear(&f);
}

typedef struct Lookup {
    Fixture *f;
    uint64_t offset;
} Lookup;

static int lookup_body(VjTxn *txn, void *opaque)
{
    const Lookup *l = opaque;
    g_autoptr(VjMapCursor) c = vj_map_cursor_new(txn, INO, &l->f->op.root);
    uint64_t offset = l->offset, at;
    VjEntry entry;
    VjMetaStats counts;

    mem_meta_reset_counts(l->f->meta);
    assert_int_equal(vj_map_cursor_seek(c, offset, &entry, &at), 0);
    assert_int_equal(at, offset / MEAN * MEAN);
    assert_int_equal(entry.id, 1 + offset / MEAN);
    mem_meta_counts(l->f->meta, &counts);
    assert_in_range(counts.gets[VJ_SPACE_NODE], 1, 3);
    /* The same place again is free, and so are most steps. */
    assert_int_equal(vj_map_cursor_seek(c, offset / MEAN * MEAN, &entry, &at), 0);
    assert_int_equal(entry.id, 1 + offset / MEAN);
    mem_meta_counts(l->f->meta, &counts);
    assert_in_range(counts.gets[VJ_SPACE_NODE], 1, 3);
    return 0;
}

static void lookup_reads_three_nodes(void **state)
{
    Fixture f;
    VjRng rng;

    (void)state;
    fixture_million(&f);
    vj_rng_init(&rng, 3);
    for (unsigned i = 0; i < 300; i++) {
        Lookup l = {.f = &f, .offset = vj_rng_below(&rng, f.op.root.bytes)};

        assert_int_equal(vj_meta_view(f.meta, lookup_body, &l), 0);
    }
    fixture_clear(&f);
}

static int near_body(VjTxn *txn, void *opaque)
{
    Fixture *f = opaque;
    g_autoptr(VjMapCursor) c = vj_map_cursor_new(txn, INO, &f->op.root);
    unsigned leaf = vj_map_fill(0);
    VjMetaStats counts;
    VjEntry entry;
    uint64_t at;

    mem_meta_reset_counts(f->meta);
    for (unsigned i = 0; i < 3 * leaf; i++) {
        uint64_t offset = (1000ull * leaf + (i * 7) % leaf) * MEAN;

        assert_int_equal(vj_map_cursor_seek(c, offset + i, &entry, &at), 0);
        assert_int_equal(at, offset);
        assert_int_equal(entry.id, 1 + offset / MEAN);
    }
    mem_meta_counts(f->meta, &counts);
    assert_int_equal(counts.gets[VJ_SPACE_NODE], 3);
    /* The leaf before is read, the nodes above it are not. */
    assert_int_equal(vj_map_cursor_seek(c, 999ull * leaf * MEAN, &entry, &at), 0);
    assert_int_equal(entry.id, 1 + 999ull * leaf);
    mem_meta_counts(f->meta, &counts);
    assert_in_range(counts.gets[VJ_SPACE_NODE], 4, 5);
    return 0;
}

/* Seeks to and fro within one leaf read it once. */
static void near_seeks_are_free(void **state)
{
    Fixture f;

    (void)state;
    fixture_bulk(&f, SOME);
    assert_int_equal(vj_meta_view(f.meta, near_body, &f), 0);
    fixture_clear(&f);
}

static int walk_body(VjTxn *txn, void *opaque)
{
    Fixture *f = opaque;
    g_autoptr(VjMapCursor) c = vj_map_cursor_new(txn, INO, &f->op.root);
    VjEntry entry;
    uint64_t at, expected = 0;
    VjMetaStats counts;

    mem_meta_reset_counts(f->meta);
    while (vj_map_cursor_next(c, &entry, &at) == 0) {
        g_assert(at == expected && entry.id == 1 + at / MEAN);
        expected += entry.length;
    }
    assert_int_equal(expected, f->op.root.bytes);
    mem_meta_counts(f->meta, &counts);
    assert_int_equal(counts.gets[VJ_SPACE_NODE], mem_meta_size(f->meta, VJ_SPACE_NODE));
    while (vj_map_cursor_prev(c, &entry, &at) == 0) {
        expected -= entry.length;
        g_assert(at == expected);
    }
    assert_int_equal(expected, 0);
    return 0;
}

static void walk_reads_each_node_once(void **state)
{
    Fixture f;

    (void)state;
    fixture_million(&f);
    assert_int_equal(vj_meta_view(f.meta, walk_body, &f), 0);
    fixture_clear(&f);
}

/* Inserts and small replaces all over the map: one path, and what splits on it. */
static void small_edit_writes_five_nodes(void **state)
{
    uint64_t worst = 0, sum = 0, count = MILLION;
    Fixture f;
    VjRng rng;

    (void)state;
    fixture_million(&f);
    vj_rng_init(&rng, 4);
    for (unsigned i = 0; i < 5000; i++) {
        uint64_t add = vj_rng_below(&rng, 4), old = vj_rng_below(&rng, add == 0 ? 2 : 4);
        uint64_t first = vj_rng_below(&rng, count - old);
        g_autofree VjEntry *entries = make_entries(add, 2 * MILLION + i * 8);

        assert_int_equal(replace(&f, first * MEAN, old * MEAN, entries, add), 0);
        assert_int_equal(f.op.removed->len, old);
        assert_int_equal(f.op.detached->len, 0);
        count += add - old;
        sum += f.counts.puts[VJ_SPACE_NODE];
        worst = MAX(worst, f.counts.puts[VJ_SPACE_NODE]);
    }
    print_message("# nodes written: %.2f on average, %u at most\n", (double)sum / 5000,
                  (unsigned)worst);
    assert_in_range(worst, 1, 5);
    assert_int_equal(f.op.root.height, 3);
    expect_sound(&f, count);
    fixture_clear(&f);
}

/* An entry that gives way to one of the same length and stored size: the leaf alone. */
static void same_size_writes_one_node(void **state)
{
    VjEntry *entry = make_entries(1, 3 * MILLION);
    Fixture f;

    (void)state;
    fixture_bulk(&f, SOME);
    assert_int_equal(replace(&f, 50000ull * MEAN, MEAN, entry, 1), 0);
    assert_int_equal(f.counts.puts[VJ_SPACE_NODE], 1);
    assert_int_equal(f.counts.gets[VJ_SPACE_NODE], 3);
    expect_sound(&f, SOME);
    g_free(entry);
    fixture_clear(&f);
}

static int scatter_body(VjTxn *txn, void *opaque)
{
    Op *op = opaque;
    g_autoptr(VjMapEdit) e = NULL;
    int rc = vj_map_edit_new(txn, INO, &op->root, op->removed, op->detached, &e);

    for (uint64_t i = op->count; rc == 0 && i > 0; i--) {
        VjEntry two[2] = {op->entries[0], op->entries[0]};

        two[0].length = 1000 + i;
        rc = vj_map_edit_replace(e, (i - 1) * 1000 * MEAN, MEAN, two, 2);
    }
    return rc < 0 ? rc : vj_map_edit_commit(e, &op->root);
}

/* Many replaces in one edit: each node on their paths is read and written once. */
static void scattered_edit_writes_each_node_once(void **state)
{
    g_autofree VjEntry *entry = make_entries(1, 3 * MILLION);
    size_t nodes;
    Fixture f;

    (void)state;
    fixture_bulk(&f, SOME);
    nodes = mem_meta_size(f.meta, VJ_SPACE_NODE);
    f.op.count = SOME / 1000;
    f.op.entries = entry;
    mem_meta_reset_counts(f.meta);
    assert_int_equal(vj_meta_run(f.meta, VJ_RUN_DEFAULT, scatter_body, &f.op), 0);
    mem_meta_counts(f.meta, &f.counts);
    assert_int_equal(f.op.removed->len, f.op.count);
    assert_in_range(f.counts.gets[VJ_SPACE_NODE], f.op.count,
                    f.op.count + 1 + nodes / 100);
    assert_int_equal(f.counts.puts[VJ_SPACE_NODE], f.counts.gets[VJ_SPACE_NODE]);
    expect_sound(&f, SOME + SOME / 1000);
    fixture_clear(&f);
}

/* Where two leaves meet, the one that changes anyway takes what is put in. */
static void edits_at_a_border_write_one_path(void **state)
{
    g_autofree VjEntry *two = make_entries(2, 3 * MILLION);
    uint64_t border = 500ull * vj_map_fill(0) * MEAN;
    Fixture f;

    (void)state;
    fixture_bulk(&f, SOME);
    assert_int_equal(replace(&f, border, MEAN, two, 2), 0);
    assert_int_equal(f.counts.puts[VJ_SPACE_NODE], 3);
    assert_int_equal(replace(&f, border - MEAN, MEAN, two, 2), 0);
    assert_int_equal(f.counts.puts[VJ_SPACE_NODE], 3);
    expect_sound(&f, SOME + 2);
    fixture_clear(&f);
}

/* A replace over two leaves: the one with room takes the other's surplus, none splits. */
static void neighbours_share(void **state)
{
    g_autofree VjEntry *many = make_entries(30, 3 * MILLION);
    uint64_t border = 500ull * vj_map_fill(0) * MEAN;
    size_t nodes;
    Fixture f;

    (void)state;
    fixture_bulk(&f, SOME);
    assert_int_equal(replace(&f, border + 20 * MEAN, 60 * MEAN, NULL, 0), 0);
    nodes = mem_meta_size(f.meta, VJ_SPACE_NODE);
    assert_int_equal(replace(&f, border - MEAN, 2 * MEAN, many, 30), 0);
    assert_int_equal(f.counts.puts[VJ_SPACE_NODE], 4);
    assert_int_equal(mem_meta_size(f.meta, VJ_SPACE_NODE), nodes);
    expect_sound(&f, SOME - 60 - 2 + 30);
    fixture_clear(&f);
}

/* A file that is written from front to back, a few objects a time, leaves full nodes. */
static void appends_fill_nodes(void **state)
{
    uint64_t total = 0;
    size_t bound;
    Fixture f;

    (void)state;
    fixture_init(&f);
    while (total < 100000) {
        g_autofree VjEntry *entries = make_entries(8, 1 + total);

        assert_int_equal(replace(&f, f.op.root.bytes, 0, entries, 8), 0);
        assert_in_range(f.counts.puts[VJ_SPACE_NODE], 1, 5);
        total += 8;
    }
    expect_sound(&f, total);
    bound = (size_t)(total / (vj_map_most(0) * 0.89)) * 101 / 100 + 2;
    assert_in_range(mem_meta_size(f.meta, VJ_SPACE_NODE), 1, bound);
    fixture_clear(&f);
}

/* The same in front of a trailing hole, as in a file that was truncated to its size. */
static void filling_a_hole_fills_nodes(void **state)
{
    VjEntry hole = {.kind = VJ_ENTRY_HOLE, .length = (uint64_t)1 << 50};
    uint64_t at = 0;
    Fixture f;

    (void)state;
    fixture_init(&f);
    assert_int_equal(replace(&f, 0, 0, &hole, 1), 0);
    for (unsigned i = 0; i < 20000; i++) {
        VjEntry pair[2];
        g_autofree VjEntry *one = make_entries(1, i + 1);

        pair[0] = *one;
        pair[1] = hole;
        pair[1].length -= at + MEAN;
        assert_int_equal(replace(&f, at, hole.length - at, pair, 2), 0);
        at += MEAN;
    }
    expect_sound(&f, 20001);
    assert_int_equal(f.op.root.bytes, hole.length);
    assert_in_range(mem_meta_size(f.meta, VJ_SPACE_NODE), 1, 20001 / 144 + 4);
    fixture_clear(&f);
}

static uint64_t drain(Fixture *f, VjMapRoot root)
{
    Op drop = {.root = root, .count = 1000, .removed = f->op.removed};
    uint64_t entries = 0;

    while (drop.root.node != 0) {
        VjMetaStats counts;

        g_array_set_size(f->op.removed, 0);
        mem_meta_reset_counts(f->meta);
        assert_int_equal(vj_meta_run(f->meta, VJ_RUN_RELEASE, drop_body, &drop), 0);
        mem_meta_counts(f->meta, &counts);
        assert_in_range(counts.gets[VJ_SPACE_NODE], 1, 20);
        assert_in_range(counts.puts[VJ_SPACE_NODE], 0, 3);
        assert_in_range(f->op.removed->len, 1, 1000);
        entries += f->op.removed->len;
    }
    return entries;
}

static void removing_most_costs_a_few_nodes(void **state)
{
    uint64_t from = 1234567, to = (uint64_t)(MILLION - 3333) * MEAN, entries;
    Fixture f;

    (void)state;
    fixture_million(&f);
    from = from / 100 * MEAN;
    assert_int_equal(replace(&f, from, to - from, NULL, 0), 0);
    assert_in_range(f.counts.puts[VJ_SPACE_NODE], 1, 10);
    assert_in_range(f.counts.gets[VJ_SPACE_NODE], 1, 10);
    assert_in_range(f.op.detached->len, 1, 6);
    assert_in_range(f.op.removed->len, 0, 4 * VJ_MAP_LEAF_MAX);
    entries = f.op.removed->len;
    for (unsigned i = 0; i < f.op.detached->len; i++) {
        entries += drain(&f, g_array_index(f.op.detached, VjMapDetached, i).root);
    }
    assert_int_equal(entries, (to - from) / MEAN);
    expect_sound(&f, MILLION - entries);
    fixture_clear(&f);
}

/* Leaves that go whole go as one subtree, without being read. */
static void whole_leaves_are_one_subtree(void **state)
{
    unsigned leaf = vj_map_fill(0);
    Fixture f;

    (void)state;
    fixture_bulk(&f, SOME);
    assert_int_equal(replace(&f, 300ull * leaf * MEAN, 40ull * leaf * MEAN, NULL, 0), 0);
    assert_int_equal(f.op.removed->len, 0);
    assert_int_equal(f.op.detached->len, 1);
    assert_int_equal(f.counts.gets[VJ_SPACE_NODE], 3); /* and a look for a hole before */
    assert_int_equal(f.counts.puts[VJ_SPACE_NODE], 3);
    assert_int_equal(drain(&f, g_array_index(f.op.detached, VjMapDetached, 0).root),
                     40 * leaf);
    /* A single one goes entry by entry. */
    assert_int_equal(replace(&f, 300ull * leaf * MEAN, (uint64_t)leaf * MEAN, NULL, 0),
                     0);
    assert_int_equal(f.op.removed->len, leaf);
    assert_int_equal(f.op.detached->len, 0);
    expect_sound(&f, SOME - 41 * leaf);
    fixture_clear(&f);
}

static void removing_all_detaches_the_root(void **state)
{
    Fixture f;

    (void)state;
    fixture_million(&f);
    assert_int_equal(replace(&f, 0, f.op.root.bytes, NULL, 0), 0);
    assert_int_equal(f.counts.puts[VJ_SPACE_NODE], 0);
    assert_int_equal(f.counts.gets[VJ_SPACE_NODE], 1);
    assert_int_equal(f.op.root.node, 0);
    assert_int_equal(f.op.root.height, 0);
    assert_int_equal(f.op.root.bytes, 0);
    assert_int_equal(f.op.detached->len, 1);
    assert_int_equal(drain(&f, g_array_index(f.op.detached, VjMapDetached, 0).root),
                     MILLION);
    assert_int_equal(mem_meta_size(f.meta, VJ_SPACE_NODE), 0);
    fixture_clear(&f);
}

/* Node numbers are not used again, so a detached subtree cannot be overwritten. */
static void numbers_are_fresh(void **state)
{
    g_autofree VjEntry *entries = make_entries(1000, 1);
    uint32_t next;
    Fixture f;

    (void)state;
    fixture_init(&f);
    assert_int_equal(replace(&f, 0, 0, entries, 1000), 0);
    next = f.op.root.next_node;
    assert_int_equal(replace(&f, 0, f.op.root.bytes, entries, 1), 0);
    assert_int_equal(f.op.root.node, next);
    assert_int_equal(f.op.root.next_node, next + 1);
    f.op.root.next_node = UINT32_MAX;
    assert_int_equal(replace(&f, 0, 0, entries, 1000), -EFBIG);
    fixture_clear(&f);
}

static void holes_meet(void **state)
{
    VjEntry hole = {.kind = VJ_ENTRY_HOLE, .length = 1000};
    g_autofree VjEntry *object = make_entries(1, 9);
    VjEntry holes[3] = {hole, hole, hole};
    Fixture f;

    (void)state;
    fixture_init(&f);
    assert_int_equal(replace(&f, 0, 0, holes, 3), 0);
    expect_sound(&f, 1);
    assert_int_equal(replace(&f, 3000, 0, object, 1), 0);
    assert_int_equal(replace(&f, 3000 + MEAN, 0, holes, 2), 0);
    expect_sound(&f, 3);
    /* The object goes: two holes become one, and both are reported. */
    assert_int_equal(replace(&f, 3000, MEAN, NULL, 0), 0);
    expect_sound(&f, 1);
    assert_int_equal(f.op.removed->len, 3);
    assert_int_equal(f.op.root.bytes, 5000);
    fixture_clear(&f);
}

static void limits(void **state)
{
    VjEntry hole = {.kind = VJ_ENTRY_HOLE, .length = VJ_MAP_BYTES_MAX};
    VjEntry holes[2] = {hole, hole};
    g_autofree VjEntry *object = make_entries(1, 9);
    VjMapRoot before;
    Fixture f;

    (void)state;
    fixture_init(&f);
    assert_int_equal(replace(&f, 0, 0, holes, 2), -EFBIG);
    assert_int_equal(replace(&f, 1, 0, object, 1), -EINVAL);
    assert_int_equal(replace(&f, 0, 0, &hole, 1), 0);
    before = f.op.root;
    assert_int_equal(replace(&f, 0, 0, object, 1), -EFBIG);
    assert_int_equal(replace(&f, 0, UINT64_MAX, object, 1), -EINVAL);
    assert_int_equal(replace(&f, VJ_MAP_BYTES_MAX, 1, NULL, 0), -EINVAL);
    assert_int_equal(replace(&f, 0, 0, NULL, 0), 0);
    assert_int_equal(f.counts.puts[VJ_SPACE_NODE], 0);
    assert_int_equal(replace(&f, 5, 0, NULL, 0), -EINVAL);
    assert_int_equal(replace(&f, 0, 5, NULL, 0), -EINVAL);
    assert_int_equal(replace(&f, 5, 2 * MEAN, object, 1), -EINVAL);
    assert_memory_equal(&before, &f.op.root, sizeof before);
    assert_int_equal(replace(&f, 0, VJ_MAP_BYTES_MAX, object, 1), 0);
    assert_int_equal(f.op.removed->len, 1);
    expect_sound(&f, 1);
    fixture_clear(&f);
}

/* The engine fails at each call in turn: nothing is changed, nothing leaks. */
static void each_call_may_fail(void **state)
{
    g_autofree VjEntry *entries = make_entries(40, 1);
    g_autofree VjEntry *more = make_entries(9, 100);
    Fixture f;
    uint64_t nth = 0;
    int rc;

    (void)state;
    fixture_init(&f);
    vj_map_set_most_for_test(4);
    assert_int_equal(replace(&f, 0, 0, entries, 40), 0);
    do {
        uint64_t print = mem_meta_fingerprint(f.meta, VJ_SPACE_NODE);
        VjMapRoot before = f.op.root;

        mem_meta_fail(f.meta, ++nth, -EIO);
        rc = replace(&f, 3 * MEAN, 30ull * MEAN, more, 9);
        if (rc != 0) {
            assert_int_equal(rc, -EIO);
            assert_true(mem_meta_fingerprint(f.meta, VJ_SPACE_NODE) == print);
            assert_memory_equal(&before, &f.op.root, sizeof before);
            assert_int_equal(f.op.removed->len, 0);
            assert_int_equal(f.op.detached->len, 0);
        }
    } while (rc != 0);
    assert_true(nth > 10);
    mem_meta_fail(f.meta, 0, 0);
    expect_sound(&f, 19);
    vj_map_set_most_for_test(0);
    fixture_clear(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bulk_build),
    cmocka_unit_test(lookup_reads_three_nodes),
    cmocka_unit_test(near_seeks_are_free),
    cmocka_unit_test(walk_reads_each_node_once),
    cmocka_unit_test(small_edit_writes_five_nodes),
    cmocka_unit_test(same_size_writes_one_node),
    cmocka_unit_test(scattered_edit_writes_each_node_once),
    cmocka_unit_test(edits_at_a_border_write_one_path),
    cmocka_unit_test(neighbours_share),
    cmocka_unit_test(appends_fill_nodes),
    cmocka_unit_test(filling_a_hole_fills_nodes),
    cmocka_unit_test(removing_most_costs_a_few_nodes),
    cmocka_unit_test(whole_leaves_are_one_subtree),
    cmocka_unit_test(removing_all_detaches_the_root),
    cmocka_unit_test(numbers_are_fresh),
    cmocka_unit_test(holes_meet),
    cmocka_unit_test(limits),
    cmocka_unit_test(each_call_may_fail),
};

VJ_TEST_MAIN(tests)
