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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_levels_of_short_overlays),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_accounts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
