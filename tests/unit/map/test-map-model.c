/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-map-model.c - random replaces against an array of entries
 *
 * Small nodes make high trees of few entries.  After each step the entries that left are
 * exactly those that the model lost, however they left (one by one or in a subtree that
 * is then dropped); now and then the whole map is compared, and the number of nodes
 * stored is the number of nodes in the tree.
 */
#include "../../lib/test.h"

#include "../../lib/mem-meta.h"
#include "map/map-private.h"

#define SEED 20261120u
#define INO 77u

typedef struct World {
    VjMeta *mem;
    VjMeta *meta; /* mem, behind a wrapper that makes commits meet conflicts */
    VjMapRoot root;
    GArray *model; /* VjEntry */
    VjRng rng;
    uint64_t next_id;
    unsigned highest;
    uint64_t subtrees;
} World;

typedef struct Part {
    uint64_t offset, old_bytes;
    GArray *entries; /* what is put in */
} Part;

/* One transaction: a replace, or an edit of several. */
typedef struct Step {
    World *w;
    Part parts[4];
    unsigned part_count;
    GArray *removed;  /* VjEntry */
    GArray *detached; /* VjMapDetached */
    VjMapRoot root;
    bool give_up;
} Step;

static VjEntry random_entry(World *w)
{
    uint64_t roll = vj_rng_below(&w->rng, 10);

    if (roll < 3) {
        return (VjEntry){.kind = VJ_ENTRY_HOLE,
                         .length = 1 + vj_rng_below(&w->rng, 1u << 20)};
    }
    return (VjEntry){.kind = roll < 9 ? VJ_ENTRY_OBJECT : VJ_ENTRY_FRAGMENT,
                     .id = w->next_id++,
                     .start = (uint32_t)vj_rng_below(&w->rng, 5000),
                     .length = 1 + vj_rng_below(&w->rng, 300000),
                     .stored_bytes = (uint32_t)vj_rng_below(&w->rng, 300000)};
}

static uint64_t model_bytes(const GArray *model, unsigned from, unsigned to)
{
    uint64_t bytes = 0;

    for (unsigned i = from; i < to; i++) {
        bytes += g_array_index(model, VjEntry, i).length;
    }
    return bytes;
}

static bool is_hole(const GArray *a, unsigned i)
{
    return g_array_index(a, VjEntry, i).kind == VJ_ENTRY_HOLE;
}

static bool same_entry(const VjEntry *a, const VjEntry *b)
{
    return a->id == b->id && a->length == b->length && a->start == b->start &&
           a->stored_bytes == b->stored_bytes && a->kind == b->kind;
}

static int compare_entries(const void *a, const void *b)
{
    const VjEntry *x = a, *y = b;

    if (x->id != y->id) {
        return x->id < y->id ? -1 : 1;
    }
    return x->length < y->length ? -1 : x->length > y->length;
}

static void expect_same_entries(const GArray *a, const GArray *b)
{
    assert_int_equal(a->len, b->len);
    for (unsigned i = 0; i < a->len; i++) {
        assert_true(
            same_entry(&g_array_index(a, VjEntry, i), &g_array_index(b, VjEntry, i)));
    }
}

/* The model's own way of keeping holes apart.  What leaves is appended to @gone. */
static void model_replace(GArray *model, unsigned from, unsigned to, GArray *entries,
                          GArray *gone)
{
    GArray *fresh = g_array_new(FALSE, FALSE, sizeof(VjEntry));

    g_array_append_vals(fresh, entries->data, entries->len);
    if (from > 0 && is_hole(model, from - 1) &&
        (fresh->len > 0 ? is_hole(fresh, 0) : to < model->len && is_hole(model, to))) {
        from--;
        g_array_prepend_val(fresh, g_array_index(model, VjEntry, from));
    }
    if (to < model->len && is_hole(model, to) && fresh->len > 0 &&
        is_hole(fresh, fresh->len - 1)) {
        g_array_append_val(fresh, g_array_index(model, VjEntry, to));
        to++;
    }
    for (unsigned i = 1; i < fresh->len;) {
        if (is_hole(fresh, i - 1) && is_hole(fresh, i)) {
            g_array_index(fresh, VjEntry, i - 1).length +=
                g_array_index(fresh, VjEntry, i).length;
            g_array_remove_index(fresh, i);
        } else {
            i++;
        }
    }
    if (to > from) {
        g_array_append_vals(gone, &g_array_index(model, VjEntry, from), to - from);
        g_array_remove_range(model, from, to - from);
    }
    if (fresh->len > 0) {
        g_array_insert_vals(model, from, fresh->data, fresh->len);
    }
    g_array_unref(fresh);
}

static int edit_parts(VjTxn *txn, Step *s)
{
    g_autoptr(VjMapEdit) e = NULL;
    int rc = vj_map_edit_new(txn, INO, &s->root, s->removed, s->detached, &e);

    for (unsigned i = 0; rc == 0 && i < s->part_count; i++) {
        const Part *p = &s->parts[i];

        rc = vj_map_edit_replace(e, p->offset, p->old_bytes,
                                 (const VjEntry *)(void *)p->entries->data,
                                 p->entries->len);
    }
    return rc < 0 ? rc : vj_map_edit_commit(e, &s->root);
}

static int step_body(VjTxn *txn, void *opaque)
{
    Step *s = opaque;
    const Part *p = &s->parts[0];
    int rc;

    s->root = s->w->root;
    g_array_set_size(s->removed, 0);
    g_array_set_size(s->detached, 0);
    rc = s->part_count > 1 ? edit_parts(txn, s)
                           : vj_map_replace(txn, INO, &s->root, p->offset, p->old_bytes,
                                            (const VjEntry *)(void *)p->entries->data,
                                            p->entries->len, s->removed, s->detached);
    assert_int_equal(rc, 0);
    return s->give_up ? -ECANCELED : 0;
}

typedef struct Drop {
    VjMapRoot before, root;
    size_t most;
    unsigned removed_before;
    GArray *removed;
} Drop;

static int drop_body(VjTxn *txn, void *opaque)
{
    Drop *d = opaque;

    d->root = d->before;
    g_array_set_size(d->removed, d->removed_before);
    return vj_map_drop(txn, INO, &d->root, d->most, d->removed);
}

static void say(void *opaque, const char *text)
{
    (void)opaque;
    print_message("# %s\n", text);
}

typedef struct Checked {
    const VjMapRoot *root;
    GArray *found; /* VjEntry; NULL: not wanted */
    uint64_t nodes, problems;
} Checked;

static bool collect(void *opaque, const VjEntry *entry, uint64_t at)
{
    GArray *found = opaque;
    (void)at;
    g_array_append_val(found, *entry);
    return true;
}

static int checked_body(VjTxn *txn, void *opaque)
{
    Checked *c = opaque;

    if (c->found != NULL) {
        g_array_set_size(c->found, 0);
    }
    return vj_map_check(txn, INO, c->root, c->found != NULL ? collect : NULL, say,
                        c->found, &c->nodes, &c->problems);
}

/* Check and drop a detached subtree piece by piece; its entries are appended to @removed.
 */
static void drain(World *w, const VjMapRoot *root, GArray *removed)
{
    Drop d = {.root = *root, .removed = removed};

    w->subtrees++;
    while (d.root.node != 0) {
        Checked c = {.root = &d.root};

        assert_int_equal(vj_meta_view(w->mem, checked_body, &c), 0);
        assert_int_equal(c.problems, 0);
        d.most = 1 + vj_rng_below(&w->rng, 100);
        d.before = d.root;
        d.removed_before = removed->len;
        assert_int_equal(vj_meta_run(w->meta, VJ_RUN_RELEASE, drop_body, &d), 0);
        assert_in_range(removed->len - d.removed_before, 1, d.most);
        assert_true(removed->len - d.removed_before == d.most || d.root.node == 0);
    }
    assert_int_equal(d.root.bytes, 0);
    assert_int_equal(d.root.stored_bytes, 0);
}

static void choose_range(World *w, unsigned len, unsigned *from, unsigned *to,
                         unsigned target)
{
    uint64_t roll = vj_rng_below(&w->rng, 100);
    uint64_t span = roll < 60   ? vj_rng_below(&w->rng, 4)
                    : roll < 92 ? vj_rng_below(&w->rng, 20)
                    : roll < 99 ? vj_rng_below(&w->rng, len / 8 + 1)
                                : len;

    if (len > 2 * target) {
        span += target;
    }
    *from = roll % 7 == 0 ? len : (unsigned)vj_rng_below(&w->rng, len + 1);
    if (roll % 11 == 0) {
        *from = 0;
    }
    *to = (unsigned)MIN(len, *from + span);
}

static void random_part(World *w, Part *p, unsigned target, GArray *model, GArray *gone)
{
    uint64_t roll = vj_rng_below(&w->rng, 100);
    uint64_t count = roll < 70   ? vj_rng_below(&w->rng, 6)
                     : roll < 97 ? vj_rng_below(&w->rng, 24)
                                 : vj_rng_below(&w->rng, target / 2);
    unsigned from, to;

    choose_range(w, model->len, &from, &to, target);
    p->entries = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    for (uint64_t i = 0; i < count; i++) {
        VjEntry entry = random_entry(w);

        g_array_append_val(p->entries, entry);
    }
    p->offset = model_bytes(model, 0, from);
    p->old_bytes = model_bytes(model, from, to);
    model_replace(model, from, to, p->entries, gone);
}

static void random_step(World *w, unsigned target)
{
    Step s = {.w = w,
              .removed = g_array_new(FALSE, FALSE, sizeof(VjEntry)),
              .detached = g_array_new(FALSE, FALSE, sizeof(VjMapDetached)),
              .part_count = vj_rng_below(&w->rng, 4) > 0
                                ? 1
                                : 2 + (unsigned)vj_rng_below(&w->rng, 3),
              .give_up = vj_rng_below(&w->rng, 50) == 0};
    uint64_t print = s.give_up ? mem_meta_fingerprint(w->mem, VJ_SPACE_NODE) : 0;
    g_autoptr(GArray) gone = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    g_autoptr(GArray) model = g_array_ref(w->model);

    if (s.give_up) {
        g_array_unref(model);
        model = g_array_copy(w->model);
    }
    for (unsigned i = 0; i < s.part_count; i++) {
        random_part(w, &s.parts[i], target, model, gone);
    }
    if (s.give_up) {
        assert_int_equal(vj_meta_run(w->meta, VJ_RUN_DEFAULT, step_body, &s), -ECANCELED);
        assert_true(mem_meta_fingerprint(w->mem, VJ_SPACE_NODE) == print);
    } else {
        assert_int_equal(vj_meta_run(w->meta, VJ_RUN_DEFAULT, step_body, &s), 0);
        assert_true(s.part_count > 1 || s.detached->len <= MAX(1, 2u * w->root.height));
        w->root = s.root;
        w->highest = MAX(w->highest, w->root.height);
        for (unsigned i = 0; i < s.detached->len; i++) {
            drain(w, &g_array_index(s.detached, VjMapDetached, i).root, s.removed);
        }
        g_array_sort(gone, compare_entries);
        g_array_sort(s.removed, compare_entries);
        expect_same_entries(gone, s.removed);
    }
    for (unsigned i = 0; i < s.part_count; i++) {
        g_array_unref(s.parts[i].entries);
    }
    g_array_unref(s.removed);
    g_array_unref(s.detached);
}

static void check_all(World *w)
{
    g_autoptr(GArray) found = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    Checked c = {.root = &w->root, .found = found};

    assert_int_equal(vj_meta_view(w->mem, checked_body, &c), 0);
    assert_int_equal(c.problems, 0);
    assert_int_equal(c.nodes, mem_meta_size(w->mem, VJ_SPACE_NODE));
    expect_same_entries(w->model, found);
    assert_int_equal(w->root.bytes, model_bytes(w->model, 0, w->model->len));
}

/* One cursor seeks and steps about; the model says where it must be. */
static int cursor_body(VjTxn *txn, void *opaque)
{
    World *w = opaque;
    g_autoptr(VjMapCursor) c = vj_map_cursor_new(txn, INO, &w->root);
    VjEntry entry;
    uint64_t at;

    if (w->model->len == 0) {
        assert_int_equal(vj_map_cursor_seek(c, 0, &entry, &at), -ENOENT);
        assert_int_equal(vj_map_cursor_prev(c, &entry, &at), -ENOENT);
        assert_int_equal(vj_map_cursor_next(c, &entry, &at), -ENOENT);
        return 0;
    }
    for (unsigned k = 0; k < 4; k++) {
        int i = (int)vj_rng_below(&w->rng, w->model->len);
        VjEntry *expected = &g_array_index(w->model, VjEntry, i);
        uint64_t start = model_bytes(w->model, 0, (unsigned)i);

        assert_int_equal(
            vj_map_cursor_seek(c, start + vj_rng_below(&w->rng, expected->length), &entry,
                               &at),
            0);
        for (unsigned steps = 0;; steps++) {
            int rc;

            if (i < 0 || i == (int)w->model->len) {
                break;
            }
            expected = &g_array_index(w->model, VjEntry, i);
            assert_true(same_entry(expected, &entry));
            assert_int_equal(at, start);
            if (steps == 12) {
                break;
            }
            if (vj_rng_below(&w->rng, 5) < (k % 2 ? 4 : 1)) {
                start += expected->length;
                i++;
                rc = vj_map_cursor_next(c, &entry, &at);
            } else {
                i--;
                start -= i < 0 ? 0 : g_array_index(w->model, VjEntry, i).length;
                rc = vj_map_cursor_prev(c, &entry, &at);
            }
            assert_int_equal(rc, i < 0 || i == (int)w->model->len ? -ENOENT : 0);
        }
    }
    return 0;
}

static void run(unsigned most, unsigned steps, unsigned target, unsigned height)
{
    World w = {.mem = mem_meta_new(),
               .model = g_array_new(FALSE, FALSE, sizeof(VjEntry)),
               .next_id = 1};

    assert_true(vj_meta_wrap("fault:conflicts=50", w.mem, &w.meta, NULL));
    vj_rng_init(&w.rng, SEED + most);
    vj_map_set_most_for_test(most);
    for (unsigned i = 0; i < steps; i++) {
        random_step(&w, target);
        if (i % 10 == 0) {
            assert_int_equal(vj_meta_view(w.mem, cursor_body, &w), 0);
        }
        if (i % 50 == 0) {
            check_all(&w);
        }
    }
    check_all(&w);
    print_message("# most %u: highest tree %u levels, %" G_GUINT64_FORMAT
                  " subtrees cut off, seed %u\n",
                  most, w.highest, w.subtrees, SEED + most);
    assert_true(w.highest >= height);
    assert_true(w.subtrees > 0);
    vj_map_set_most_for_test(0);
    g_array_unref(w.model);
    assert_int_equal(vj_meta_close(w.meta), 0);
}

static void nodes_of_four(void **state)
{
    (void)state;
    run(4, 14000, 800, 7);
}

static void nodes_of_five(void **state)
{
    (void)state;
    run(5, 14000, 300, 5);
}

static void nodes_of_eight(void **state)
{
    (void)state;
    run(8, 14000, 600, 4);
}

static void nodes_of_twenty(void **state)
{
    (void)state;
    run(20, 14000, 400, 2);
}

static void whole_nodes(void **state)
{
    (void)state;
    run(0, 14000, 1500, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nodes_of_four),  cmocka_unit_test(nodes_of_five),
    cmocka_unit_test(nodes_of_eight), cmocka_unit_test(nodes_of_twenty),
    cmocka_unit_test(whole_nodes),
};

VJ_TEST_MAIN(tests)
