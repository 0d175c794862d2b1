/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-overlay.c - the ordered map in memory: order, versions, what is counted
 */
#include "meta-fixture.h"

#define SPACE VJ_SPACE_NODE

static VjSlice text(const char *s)
{
    return vj_slice(s, strlen(s));
}

static void set(VjOverlay *o, const char *key, const char *value)
{
    VjSlice bytes = value == NULL ? vj_slice(NULL, 0) : text(value);

    assert_int_equal(vj_overlay_set(o, SPACE, text(key), value == NULL ? NULL : &bytes),
                     0);
}

/* One commit of one key. */
static void commit(VjOverlay *o, uint64_t seq, const VjSnapshots *live, const char *key,
                   const char *value)
{
    VjOverlay changes;

    vj_overlay_init(&changes);
    set(&changes, key, value);
    vj_overlay_merge(o, &changes, seq, live);
    assert_int_equal(changes.entry_count, 0);
    assert_int_equal(changes.bytes, 0);
}

static size_t chain_length(const VjOverlay *o, const char *key)
{
    const VjOverlayEntry *e = vj_overlay_find(o, SPACE, text(key));
    size_t length = 0;

    for (const VjVersion *v = e->newest; v != NULL; v = v->older) {
        assert_true(v->older == NULL || v->older->seq < v->seq);
        length++;
    }
    return length;
}

static void assert_sees(const VjOverlay *o, const char *key, uint64_t seq,
                        const char *value)
{
    const VjOverlayEntry *e = vj_overlay_find(o, SPACE, text(key));
    const VjVersion *v = e == NULL ? NULL : vj_entry_visible(e, seq);

    if (value == NULL) {
        assert_null(v);
        return;
    }
    assert_non_null(v);
    assert_int_equal(vj_slice_compare(vj_version_value(v), text(value)), 0);
}

static void test_neighbours(void **state)
{
    VjOverlay o;

    (void)state;
    vj_overlay_init(&o);
    assert_null(vj_overlay_after(&o, SPACE, text("")));
    assert_null(vj_overlay_before(&o, SPACE, text("")));
    set(&o, "d", "4");
    set(&o, "b", "2");
    set(&o, "bb", "3");
    assert_int_equal(
        vj_slice_compare(vj_entry_key(vj_overlay_first(&o, SPACE)), text("b")), 0);
    assert_ptr_equal(vj_overlay_after(&o, SPACE, text("")), vj_overlay_first(&o, SPACE));
    assert_ptr_equal(vj_overlay_after(&o, SPACE, text("a")),
                     vj_overlay_find(&o, SPACE, text("b")));
    assert_ptr_equal(vj_overlay_after(&o, SPACE, text("b")),
                     vj_overlay_find(&o, SPACE, text("bb")));
    assert_null(vj_overlay_after(&o, SPACE, text("d")));
    assert_ptr_equal(vj_overlay_before(&o, SPACE, text("")),
                     vj_overlay_find(&o, SPACE, text("d")));
    assert_ptr_equal(vj_overlay_before(&o, SPACE, text("bb")),
                     vj_overlay_find(&o, SPACE, text("b")));
    assert_null(vj_overlay_before(&o, SPACE, text("b")));
    assert_null(vj_overlay_find(&o, VJ_SPACE_INODE, text("b")));
    vj_overlay_clear(&o);
    assert_int_equal(o.bytes, 0);
}

/* Ten thousand keys in random order come out sorted, forwards and backwards. */
static void test_order(void **state)
{
    VjOverlay o;
    VjSlice last = vj_slice(NULL, 0);
    uint64_t forward = 0, backward = 0;
    VjRng rng;

    (void)state;
    vj_overlay_init(&o);
    vj_rng_init(&rng, 3);
    for (int i = 0; i < 10000; i++) {
        uint8_t key[8];
        VjSlice value = vj_slice("v", 1);

        vj_be64_set(key, vj_rng_below(&rng, 1 << 16));
        assert_int_equal(vj_overlay_set(&o, SPACE, vj_slice(key, 8), &value), 0);
    }
    for (VjOverlayEntry *e = vj_overlay_first(&o, SPACE); e != NULL; e = e->forward[0]) {
        assert_true(vj_slice_compare(last, vj_entry_key(e)) < 0);
        assert_true(e->back == NULL || e->back->forward[0] == e);
        last = vj_entry_key(e);
        forward++;
    }
    for (VjOverlayEntry *e = vj_overlay_before(&o, SPACE, text("")); e != NULL;
         e = e->back) {
        backward++;
    }
    assert_int_equal(forward, backward);
    assert_int_equal(forward, o.entry_count);
    /* Levels are drawn: a list that is all on one level would be as slow as a chain. */
    assert_in_range(o.lists[SPACE].levels, 4, VJ_OVERLAY_LEVELS);
    vj_overlay_clear(&o);
}

/* Short private overlays, too, must not all draw the same level. */
static void test_levels_of_short_overlays(void **state)
{
    VjSnapshots none = {NULL, NULL};
    VjOverlay o, changes;

    (void)state;
    vj_overlay_init(&o);
    vj_overlay_init(&changes);
    for (uint64_t i = 1; i <= 5000; i++) {
        uint8_t key[8];
        VjSlice value = vj_slice("v", 1);

        vj_be64_set(key, i);
        assert_int_equal(vj_overlay_set(&changes, SPACE, vj_slice(key, 8), &value), 0);
        vj_overlay_merge(&o, &changes, i, &none);
    }
    assert_in_range(o.lists[SPACE].levels, 4, VJ_OVERLAY_LEVELS);
    vj_overlay_clear(&o);
}

static void test_versions(void **state)
{
    VjSnapshots live = {NULL, NULL};
    VjSnapshot at2 = {.seq = 2}, at4 = {.seq = 4}, again4 = {.seq = 4};
    VjOverlay o;

    (void)state;
    vj_overlay_init(&o);
    commit(&o, 1, &live, "k", "one");
    commit(&o, 2, &live, "k", "two");
    assert_int_equal(chain_length(&o, "k"), 1);
    vj_snapshots_add(&live, &at2);
    commit(&o, 3, &live, "k", "three");
    commit(&o, 4, &live, "k", NULL);
    assert_int_equal(chain_length(&o, "k"), 2);
    vj_snapshots_add(&live, &at4);
    vj_snapshots_add(&live, &again4);
    for (uint64_t seq = 5; seq < 50; seq++) {
        commit(&o, seq, &live, "k", "later");
        assert_int_equal(chain_length(&o, "k"), 3);
    }
    assert_sees(&o, "k", 1, NULL);
    assert_sees(&o, "k", 2, "two");
    assert_sees(&o, "k", 49, "later");
    assert_true(vj_entry_visible(vj_overlay_find(&o, SPACE, text("k")), 4)->tombstone);
    vj_snapshots_remove(&live, &at4);
    commit(&o, 50, &live, "k", "later");
    assert_int_equal(chain_length(&o, "k"), 3);
    vj_snapshots_remove(&live, &at2);
    vj_snapshots_remove(&live, &again4);
    commit(&o, 51, &live, "k", "last");
    assert_int_equal(chain_length(&o, "k"), 1);
    assert_null(live.newest);
    vj_overlay_clear(&o);
}

/* bytes and tally are what they would be if only the last state had ever been written. */
static void test_accounts(void **state)
{
    VjSnapshots none = {NULL, NULL};
    g_autofree char *page = g_strnfill(4080, 'p'), *two = g_strnfill(4081, 'p');
    VjOverlay o;
    const VjTally *t;
    uint64_t bytes;

    (void)state;
    vj_overlay_init(&o);
    t = &o.tally[SPACE];
    commit(&o, 1, &none, "k", "some value");
    assert_int_equal(t->puts, 1);
    assert_int_equal(t->bytes, 8 + 1 + 10 + 1 + 2);
    bytes = o.bytes;
    commit(&o, 2, &none, "k", page);
    assert_int_equal(o.bytes, bytes + 4070);
    assert_int_equal(t->pages, 1);
    commit(&o, 3, &none, "k", two);
    assert_int_equal(t->pages, 0);
    assert_int_equal(t->run_pages, 2);
    commit(&o, 4, &none, "k", NULL);
    assert_int_equal(t->puts, 0);
    assert_int_equal(t->dels, 1);
    assert_int_equal(t->bytes + t->pages + t->run_pages, 0);
    commit(&o, 5, &none, "k", "same bytes");
    assert_int_equal(o.bytes, bytes);
    assert_int_equal(t->dels, 0);
    assert_int_equal(o.entry_count, 1);
    vj_overlay_clear(&o);
    assert_int_equal(o.bytes, 0);
    assert_int_equal(t->puts, 0);
}

/* ---- Keys that differ behind their heads ------------------------------------------- */

/* Keys of 13 to 19 bytes, all with the same head: what is behind the zeros of a short one
 * decides. */
#define MODEL_KEY_MIN 13u
#define MODEL_KEY_MAX 19u
#define MODEL_STEPS 20000u

typedef struct ModelEntry {
    uint8_t key[MODEL_KEY_MAX];
    size_t key_bytes;
    uint8_t value;
    bool is_tombstone;
} ModelEntry;

/* Sorted by key.  Does not use what the overlay compares with. */
typedef struct Model {
    GArray *entries; /* of ModelEntry */
} Model;

static int model_compare(const ModelEntry *a, const ModelEntry *b)
{
    int order = memcmp(a->key, b->key, MIN(a->key_bytes, b->key_bytes));

    return order != 0 ? order
                      : (a->key_bytes > b->key_bytes) - (a->key_bytes < b->key_bytes);
}

static ModelEntry *model_at(const Model *m, guint i)
{
    return i < m->entries->len ? &g_array_index(m->entries, ModelEntry, i) : NULL;
}

/* The first that is not before @e. */
static guint model_place(const Model *m, const ModelEntry *e)
{
    guint i = 0;

    while (i < m->entries->len && model_compare(model_at(m, i), e) < 0) {
        i++;
    }
    return i;
}

static void model_set(Model *m, const ModelEntry *e)
{
    guint i = model_place(m, e);
    ModelEntry *there = model_at(m, i);

    if (there != NULL && model_compare(there, e) == 0) {
        *there = *e;
    } else {
        g_array_insert_val(m->entries, i, *e);
    }
}

static ModelEntry draw_entry(VjRng *rng)
{
    static const uint8_t tail[] = {0x00, 0x01, 0xff};
    ModelEntry e = {.key = "same head...",
                    .value = (uint8_t)vj_rng_below(rng, 256),
                    .is_tombstone = vj_rng_below(rng, 3) == 0};

    e.key_bytes = MODEL_KEY_MIN + vj_rng_below(rng, MODEL_KEY_MAX - MODEL_KEY_MIN + 1);
    for (size_t i = sizeof(VjKeyHead); i < e.key_bytes; i++) {
        e.key[i] = tail[vj_rng_below(rng, G_N_ELEMENTS(tail))];
    }
    return e;
}

static VjSlice model_key(const ModelEntry *e)
{
    return vj_slice(e->key, e->key_bytes);
}

static void assert_is(const VjOverlayEntry *found, const ModelEntry *e)
{
    if (e == NULL) {
        assert_null(found);
        return;
    }
    assert_non_null(found);
    assert_int_equal(found->key_bytes, e->key_bytes);
    assert_memory_equal(vj_entry_key(found).data, e->key, e->key_bytes);
    assert_int_equal(found->newest->tombstone, e->is_tombstone);
    if (!e->is_tombstone) {
        assert_int_equal(found->newest->value_bytes, 1);
        assert_int_equal(found->newest->value[0], e->value);
    }
}

/* What is at @e's key, and at either side of it. */
static void assert_around(const VjOverlay *o, const Model *m, const ModelEntry *e)
{
    guint i = model_place(m, e);
    const ModelEntry *there = model_at(m, i);
    bool is_there = there != NULL && model_compare(there, e) == 0;

    assert_is(vj_overlay_find(o, SPACE, model_key(e)), is_there ? there : NULL);
    assert_is(vj_overlay_after(o, SPACE, model_key(e)), model_at(m, i + is_there));
    assert_is(vj_overlay_before(o, SPACE, model_key(e)),
              i > 0 ? model_at(m, i - 1) : NULL);
}

static void assert_walks(const VjOverlay *o, const Model *m)
{
    const VjOverlayEntry *e = vj_overlay_first(o, SPACE);

    for (guint i = 0; i < m->entries->len; i++, e = e->forward[0]) {
        assert_is(e, model_at(m, i));
    }
    assert_null(e);
    e = vj_overlay_before(o, SPACE, text(""));
    for (guint i = m->entries->len; i-- > 0; e = e->back) {
        assert_is(e, model_at(m, i));
    }
    assert_null(e);
    assert_int_equal(o->entry_count, m->entries->len);
}

/* Puts, deletes and searches; every other one of the changes comes by a commit. */
static void test_equal_heads(void **state)
{
    VjSnapshots none = {NULL, NULL};
    VjOverlay all, changes;
    Model m = {.entries = g_array_new(FALSE, FALSE, sizeof(ModelEntry))};
    VjRng rng;

    (void)state;
    vj_overlay_init(&all);
    vj_overlay_init(&changes);
    vj_rng_init(&rng, 16);
    for (uint64_t step = 1; step <= MODEL_STEPS; step++) {
        ModelEntry e = draw_entry(&rng), other = draw_entry(&rng);
        VjSlice value = vj_slice(&e.value, 1);

        assert_int_equal(vj_overlay_set(&changes, SPACE, model_key(&e),
                                        e.is_tombstone ? NULL : &value),
                         0);
        assert_is(vj_overlay_find(&changes, SPACE, model_key(&e)), &e);
        model_set(&m, &e);
        if (vj_rng_below(&rng, 4) == 0) {
            vj_overlay_merge(&all, &changes, step, &none);
            assert_around(&all, &m, &e);
            assert_around(&all, &m, &other);
        }
    }
    vj_overlay_merge(&all, &changes, MODEL_STEPS + 1, &none);
    assert_walks(&all, &m);
    vj_overlay_clear(&all);
    g_array_unref(m.entries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_levels_of_short_overlays),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_accounts),
        cmocka_unit_test(test_equal_heads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
