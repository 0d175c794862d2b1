/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-item-cache.c - what is kept of an engine's keys is what the engine has
 *
 * The engine is an array of numbers: key i has the value values[i], 0: there is no such
 * key.
 */
#include "../../lib/test.h"

#include "meta/item-cache-private.h"

enum { KEYS = 40 };
static const VjSpace SPACE = VJ_SPACE_DENTRY;

typedef struct World {
    VjItemCache *cache;
    uint32_t values[KEYS + 1]; /* from 1 on */
    uint8_t names[KEYS + 1];
    uint64_t known, unknown; /* answers */
} World;

static World *world_new(uint64_t limit)
{
    World *w = g_new0(World, 1);

    w->cache = vj_item_cache_new(limit, false);
    for (unsigned i = 0; i <= KEYS; i++) {
        w->names[i] = (uint8_t)i;
    }
    return w;
}

static void world_free(World *w)
{
    vj_item_cache_free(w->cache);
    g_free(w);
}

static VjSlice name(const World *w, unsigned i)
{
    return i == 0 ? vj_slice(NULL, 0) : vj_slice(&w->names[i], 1);
}

static VjItem item(const World *w, unsigned i)
{
    VjItem it = {.space = SPACE, .key = name(w, i)};

    if (w->values[i] != 0) {
        it.version = 7;
        it.value = vj_slice(&w->values[i], sizeof w->values[i]);
    }
    return it;
}

static void add(World *w, uint64_t ticket, unsigned i)
{
    VjKey key = {SPACE, name(w, i)};
    VjItem it = item(w, i);

    vj_item_cache_add(w->cache, ticket, &key, &it, 1);
}

/* A scan from @from on (0: the end), of at most @limit keys. */
static void add_run(World *w, uint64_t ticket, unsigned from, bool backward, size_t limit)
{
    VjRange range = {.space = SPACE, .backward = backward, .from = name(w, from)};
    int step = backward ? -1 : 1;
    int at = backward && from == 0 ? KEYS : (int)from + step;
    VjItem items[KEYS];
    size_t count = 0;

    for (; at >= 1 && at <= KEYS && count < limit; at += step) {
        if (w->values[at] != 0) {
            items[count++] = item(w, (unsigned)at);
        }
    }
    vj_item_cache_add_run(w->cache, ticket, &range, items, count, count == limit);
}

static void apply(World *w, const VjChange *changes, size_t count)
{
    VjChanges all = {changes, count};
    VjBatch batch = {.next = vj_changes_next, .changes = &all, .count = count};

    vj_item_cache_apply(w->cache, &batch);
}

static void set(World *w, unsigned i, uint32_t value)
{
    VjChange change = {.space = SPACE, .is_delete = value == 0, .key = name(w, i)};

    w->values[i] = value;
    change.value = vj_slice(&w->values[i], value == 0 ? 0 : sizeof value);
    apply(w, &change, 1);
}

static void expect_item(const VjItems *items, const World *w, unsigned i)
{
    assert_int_equal(items->count, 1);
    assert_int_equal(vj_slice_compare(items->at[0].key, name(w, i)), 0);
    assert_int_not_equal(items->at[0].version, 0);
    assert_int_equal(items->at[0].value.len, sizeof w->values[i]);
    assert_memory_equal(items->at[0].value.data, &w->values[i], sizeof w->values[i]);
}

static int get(World *w, unsigned i)
{
    VjItems items = {0};
    VjKey key = {SPACE, name(w, i)};
    int rc = vj_item_cache_get(w->cache, key, &items);

    assert_int_equal(vj_item_cache_knows(w->cache, key), rc != -EAGAIN);
    if (rc == 0) {
        expect_item(&items, w, i);
    } else {
        assert_true(rc == -EAGAIN || (rc == -ENOENT && w->values[i] == 0));
    }
    vj_items_clear(&items);
    w->known += rc != -EAGAIN;
    w->unknown += rc == -EAGAIN;
    return rc;
}

static int near(World *w, unsigned from, bool forward)
{
    VjItems items = {0};
    int rc = vj_item_cache_near(w->cache, SPACE, name(w, from), forward, &items);
    int step = forward ? 1 : -1;
    int at = !forward && from == 0 ? KEYS : (int)from + step;

    while (at >= 1 && at <= KEYS && w->values[at] == 0) {
        at += step;
    }
    if (forward) {
        assert_int_equal(vj_item_cache_knows_next(w->cache, SPACE, name(w, from)),
                         rc != -EAGAIN);
    }
    if (rc == 0) {
        assert_true(at >= 1 && at <= KEYS);
        expect_item(&items, w, (unsigned)at);
    } else {
        assert_true(rc == -EAGAIN || (rc == -ENOENT && (at < 1 || at > KEYS)));
    }
    vj_items_clear(&items);
    w->known += rc != -EAGAIN;
    w->unknown += rc == -EAGAIN;
    return rc;
}

static void keys_and_gaps(void **state)
{
    World *w = world_new(VJ_MIB);

    (void)state;
    w->values[3] = 30;
    w->values[6] = 60;
    assert_int_equal(get(w, 3), -EAGAIN);
    add(w, 0, 3);
    add(w, 0, 4);
    assert_int_equal(get(w, 3), 0);
    assert_int_equal(get(w, 4), -ENOENT);
    assert_int_equal(near(w, 3, true), -EAGAIN); /* 5 may be there */
    add_run(w, 0, 2, false, 1);
    assert_int_equal(near(w, 2, true), 0);
    assert_int_equal(near(w, 3, true), -EAGAIN);
    add_run(w, 0, 3, false, 1);
    assert_int_equal(near(w, 3, true), 0);
    assert_int_equal(get(w, 5), -ENOENT);
    assert_int_equal(near(w, 6, false), 0);
    assert_int_equal(near(w, 6, true), -EAGAIN);
    add_run(w, 0, 0, true, KEYS);
    for (unsigned i = 1; i <= KEYS; i++) {
        assert_int_not_equal(get(w, i), -EAGAIN);
        assert_int_not_equal(near(w, i, true), -EAGAIN);
        assert_int_not_equal(near(w, i, false), -EAGAIN);
    }
    assert_int_equal(near(w, 6, true), -ENOENT);
    assert_int_equal(near(w, 3, false), -ENOENT);
    world_free(w);
}

static void changes_are_entered(void **state)
{
    World *w = world_new(VJ_MIB);

    (void)state;
    add_run(w, 0, 0, false, KEYS); /* nothing is there */
    set(w, 5, 50);
    assert_int_equal(get(w, 5), 0);
    assert_int_equal(near(w, 2, true), 0);
    assert_int_equal(near(w, 5, true), -ENOENT);
    set(w, 5, 51);
    assert_int_equal(get(w, 5), 0);
    set(w, 5, 0);
    assert_int_equal(get(w, 5), -ENOENT);
    assert_int_equal(near(w, 2, true), -ENOENT);
    world_free(w);
}

/* An answer that was asked for before a change may be older than it. */
static void a_late_answer_is_not_taken(void **state)
{
    World *w = world_new(VJ_MIB);
    uint64_t ticket = vj_item_cache_ticket(w->cache);

    (void)state;
    set(w, 5, 50);
    set(w, 5, 0);
    add(w, ticket, 6);
    assert_int_equal(get(w, 6), -EAGAIN);
    add_run(w, ticket, 0, false, KEYS);
    assert_int_equal(near(w, 5, true), -EAGAIN);
    add(w, vj_item_cache_ticket(w->cache), 6);
    assert_int_equal(get(w, 6), -ENOENT);
    world_free(w);
}

/* Every answer is right, with little room and with much. */
static void random_calls(void **state)
{
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, 20261124);
    for (unsigned round = 0; round < 200; round++) {
        World *w = world_new(round % 2 == 0 ? VJ_MIB : 1600);

        for (unsigned i = 0; i < 1000; i++) {
            unsigned k = 1 + (unsigned)vj_rng_below(&rng, KEYS);
            unsigned from = (unsigned)vj_rng_below(&rng, KEYS + 1);
            uint64_t now = vj_item_cache_ticket(w->cache);

            switch (vj_rng_below(&rng, 8)) {
            case 0:
                set(w, k, vj_rng_below(&rng, 2) == 0 ? 0 : 1 + i);
                break;
            case 1:
                add(w, now, k);
                break;
            case 2:
                add_run(w, now, from, vj_rng_below(&rng, 2) == 0,
                        1 + vj_rng_below(&rng, 10));
                break;
            case 3:
            case 4:
                (void)get(w, k);
                break;
            default:
                (void)near(w, from, vj_rng_below(&rng, 2) == 0);
                break;
            }
        }
        assert_true(w->known > 100);
        assert_true(round % 2 == 0 || w->unknown > 100); /* what was put out */
        world_free(w);
    }
}

/* ---- Of a shared session --------------------------------------------------------- */

static World *shared_new(uint64_t limit)
{
    World *w = world_new(limit);

    vj_item_cache_free(w->cache);
    w->cache = vj_item_cache_new(limit, true);
    return w;
}

static void report(World *w, unsigned i, bool own)
{
    VjKey key = {SPACE, name(w, i)};

    vj_item_cache_report(w->cache, &key, own);
}

/* Another session changes it. */
static void set_elsewhere(World *w, unsigned i, uint32_t value)
{
    w->values[i] = value;
    report(w, i, false);
}

/* What was asked for with @ticket has been committed. */
static void enter(World *w, uint64_t ticket, unsigned i, uint32_t value)
{
    VjChange change = {.space = SPACE, .is_delete = value == 0, .key = name(w, i)};
    VjChanges all = {&change, 1};
    VjBatch batch = {.next = vj_changes_next, .changes = &all, .count = 1};

    change.value = vj_slice(&value, value == 0 ? 0 : sizeof value);
    vj_item_cache_commit(w->cache, ticket, &batch, 8);
}

/* This one does; with @meddled another one after it, before that is entered. */
static void commit(World *w, unsigned i, uint32_t value, unsigned meddled)
{
    uint64_t ticket = vj_item_cache_ticket(w->cache);

    report(w, i, true);
    w->values[i] = value;
    if (meddled != 0) {
        set_elsewhere(w, meddled, value + 1);
    }
    enter(w, ticket, i, value);
}

static void reports_are_heard(void **state)
{
    World *w = shared_new(VJ_MIB);
    uint64_t ticket, last;
    VjItems items = {0};
    VjKey key = {SPACE, name(w, 3)};

    (void)state;
    w->values[3] = 30;
    w->values[6] = 60;
    add_run(w, vj_item_cache_ticket(w->cache), 0, false, KEYS);
    assert_int_equal(near(w, 3, true), 0);
    assert_int_equal(vj_item_cache_get(w->cache, key, &items), 0);
    assert_int_equal(items.at[0].version, 7);
    vj_items_clear(&items);
    last = vj_item_cache_last_report(w->cache);
    set_elsewhere(w, 5, 50);
    assert_int_equal(vj_item_cache_last_report(w->cache), last + 1);
    assert_int_equal(get(w, 5), -EAGAIN);
    assert_int_equal(near(w, 3, true), -EAGAIN);
    assert_int_equal(get(w, 3), 0);
    set_elsewhere(w, 3, 0);
    assert_int_equal(get(w, 3), -EAGAIN);
    /* An answer that is older than a report is taken but for what was reported. */
    ticket = vj_item_cache_ticket(w->cache);
    set_elsewhere(w, 9, 90);
    add(w, ticket, 3);
    assert_int_equal(get(w, 3), -ENOENT);
    add(w, ticket, 9);
    assert_int_equal(get(w, 9), -EAGAIN);
    /* What it has committed it knows, with what is beside it. */
    add_run(w, vj_item_cache_ticket(w->cache), 0, false, KEYS);
    commit(w, 4, 40, 0);
    assert_int_equal(near(w, 2, true), 0);
    assert_int_equal(near(w, 4, true), 0);
    key.key = name(w, 4);
    assert_int_equal(vj_item_cache_get(w->cache, key, &items), 0);
    assert_int_equal(items.at[0].version, 8);
    vj_items_clear(&items);
    commit(w, 4, 0, 0);
    assert_int_equal(near(w, 2, true), 0);
    /* But for what was changed again. */
    commit(w, 4, 41, 4);
    assert_int_equal(get(w, 4), -EAGAIN);
    vj_item_cache_report(w->cache, NULL, false);
    for (unsigned i = 1; i <= KEYS; i++) {
        assert_int_equal(get(w, i), -EAGAIN);
        assert_int_equal(near(w, i, true), -EAGAIN);
    }
    world_free(w);
}

static bool count_one(void *opaque, const VjKey *key)
{
    (void)key;
    (*(unsigned *)opaque)++;
    return false;
}

/* What came long ago is not remembered. */
static void many_reports(void **state)
{
    World *w = shared_new(VJ_MIB);
    uint64_t first = vj_item_cache_ticket(w->cache), number = first;
    unsigned count = 0;

    (void)state;
    for (unsigned i = 0; i < VJ_RECENT_CHANGES_MAX; i++) {
        report(w, 1 + i % KEYS, false);
    }
    assert_int_equal(vj_item_cache_each_reported(w->cache, &number, count_one, &count),
                     0);
    assert_int_equal(count, VJ_RECENT_CHANGES_MAX);
    assert_int_equal(number, first + VJ_RECENT_CHANGES_MAX);
    report(w, 1, false);
    number = first;
    assert_int_equal(vj_item_cache_each_reported(w->cache, &number, count_one, &count),
                     -EAGAIN);
    add(w, first, 7);
    assert_int_equal(get(w, 7), -EAGAIN);
    add(w, first + 1, 7); /* which was reported since */
    assert_int_equal(get(w, 7), -EAGAIN);
    add(w, vj_item_cache_ticket(w->cache), 7);
    assert_int_equal(get(w, 7), -ENOENT);
    world_free(w);
}

/* Where nothing is reported, what is kept is good for a time. */
static void for_a_time(void **state)
{
    const struct timespec now = {.tv_sec = 1};
    World *w = shared_new(VJ_MIB);

    (void)state;
    vj_item_cache_set_good(w->cache, 1000);
    w->values[3] = 30;
    vj_clock_set_for_test(&now, 5000);
    add_run(w, vj_item_cache_ticket(w->cache), 0, false, KEYS);
    vj_clock_set_for_test(&now, 5900);
    assert_int_equal(near(w, 0, true), 0);
    add(w, vj_item_cache_ticket(w->cache), 4);
    vj_clock_set_for_test(&now, 6000);
    assert_int_equal(get(w, 3), -EAGAIN);
    assert_int_equal(get(w, 5), -EAGAIN);
    assert_int_equal(near(w, 0, true), -EAGAIN);
    assert_int_equal(get(w, 4), -ENOENT);
    vj_clock_set_for_test(&now, 6900);
    assert_int_equal(get(w, 4), -EAGAIN);
    vj_clock_set_for_test(NULL, 0);
    world_free(w);
}

/* Where own changes are not reported an answer may be older than one, too. */
static void an_answer_of_before_a_commit(void **state)
{
    World *w = shared_new(VJ_MIB);
    uint64_t ticket = vj_item_cache_ticket(w->cache);

    (void)state;
    w->values[3] = 31;
    enter(w, ticket, 3, 31);
    assert_int_equal(get(w, 3), 0);
    w->values[3] = 30; /* as another thread was told before that */
    add(w, ticket, 3);
    w->values[3] = 31;
    assert_int_equal(get(w, 3), 0);
    add(w, vj_item_cache_ticket(w->cache), 3);
    assert_int_equal(get(w, 3), 0);
    world_free(w);
}

/* Answers of the engine arrive when others have changed what was asked for. */
static void random_reports(void **state)
{
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, 20261201);
    for (unsigned round = 0; round < 200; round++) {
        World *w = shared_new(round % 2 == 0 ? VJ_MIB : 1600);
        uint32_t asked[KEYS + 1]; /* what the engine had when it was asked */
        uint64_t ticket = 0;

        memcpy(asked, w->values, sizeof asked);
        for (unsigned i = 0; i < 1000; i++) {
            unsigned k = 1 + (unsigned)vj_rng_below(&rng, KEYS);
            unsigned from = (unsigned)vj_rng_below(&rng, KEYS + 1);
            uint32_t value = vj_rng_below(&rng, 2) == 0 ? 0 : 1 + i;
            uint32_t now[KEYS + 1];

            switch (vj_rng_below(&rng, 10)) {
            case 0:
                set_elsewhere(w, k, value);
                break;
            case 1:
                commit(w, k, value, from);
                break;
            case 2:
                ticket = vj_item_cache_ticket(w->cache);
                memcpy(asked, w->values, sizeof asked);
                break;
            case 3:
            case 4:
                memcpy(now, w->values, sizeof now);
                memcpy(w->values, asked, sizeof asked);
                if (vj_rng_below(&rng, 2) == 0) {
                    add(w, ticket, k);
                } else {
                    add_run(w, ticket, from, vj_rng_below(&rng, 2) == 0,
                            1 + vj_rng_below(&rng, 10));
                }
                memcpy(w->values, now, sizeof now);
                break;
            case 5:
            case 6:
                (void)get(w, k);
                break;
            default:
                (void)near(w, from, vj_rng_below(&rng, 2) == 0);
                break;
            }
        }
        assert_true(w->known > 20 && w->unknown > 20);
        world_free(w);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(reports_are_heard),   cmocka_unit_test(many_reports),
    cmocka_unit_test(for_a_time),          cmocka_unit_test(an_answer_of_before_a_commit),
    cmocka_unit_test(random_reports),      cmocka_unit_test(keys_and_gaps),
    cmocka_unit_test(changes_are_entered), cmocka_unit_test(a_late_answer_is_not_taken),
    cmocka_unit_test(random_calls),
};

VJ_TEST_MAIN(tests)
