/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object-id-block.c - ids, and what recovery does with what a crash left
 */
#include "object-fixture.h"

#include "object/object-private.h"
#include "store/posix-format.h"

static int setup_short_id_blocks(void **state)
{
    Fixture *f;

    assert_int_equal(fixture_setup(state), 0);
    f = *state;
    fixture_close_objects(f);
    f->block_ids = 4;
    fixture_open_objects(f);
    return 0;
}

static void test_ids_grow_and_never_repeat(void **state)
{
    Fixture *f = *state;
    uint64_t before = 0;

    for (uint64_t i = 0; i < 30; i++) {
        g_autofree uint8_t *bytes = content(i, 100);
        VjObject object;

        if (i % 7 == 3) {
            fixture_reopen_objects(f);
        }
        must_put(f, bytes, 100, &object);
        assert_true(object.id > before);
        before = object.id;
    }
    assert_consistent(f);
}

static void test_id_blocks_end_when_their_puts_are_committed_or_removed(void **state)
{
    Fixture *f = *state;
    const VjTransform want = {0};
    g_autofree uint8_t *first = content(99, 100);
    VjPendingObject *held;
    VjObject out;

    assert_int_equal(store_plain(f->objects, first, 100, &want, NULL, 0, &held), 0);
    for (uint64_t i = 0; i < 40; i++) {
        g_autofree uint8_t *bytes = content(i, 100);

        must_put(f, bytes, 100, &out);
    }
    /* Of ten id blocks used up the first has an open question; beside it the one in use
     * and perhaps the next, and what the thread has not come to. */
    while (key_count(f, VJ_SPACE_ID_BLOCK) > 3) {
        g_thread_yield();
    }
    assert_consistent(f);
    assert_int_equal(commit_pending(f, &held, 1, &out), 0);
    while (key_count(f, VJ_SPACE_ID_BLOCK) > 2) {
        g_thread_yield();
    }
    fixture_close_objects(f);
    assert_int_equal(key_count(f, VJ_SPACE_ID_BLOCK), 0);
    fixture_open_objects(f);
    assert_consistent(f);
}

static void test_no_id_block_no_put(void **state)
{
    Fixture *f = *state;
    int failures = 0;

    fixture_faults(f, NULL, "kinds=flush,every=1");
    for (uint64_t i = 0; i < 10; i++) {
        g_autofree uint8_t *bytes = content(i, 100);
        VjObject object;
        int rc = put_content(f, bytes, 100, &object);

        assert_true(rc == 0 || rc == -EIO);
        failures += rc < 0;
    }
    assert_true(failures >= 6); /* 4 ids were there, at most */
    fixture_faults(f, NULL, "");
    for (uint64_t i = 0; i < 10; i++) {
        g_autofree uint8_t *bytes = content(i, 100);
        VjObject object;

        must_put(f, bytes, 100, &object);
    }
    assert_consistent(f);
}

static int write_id_block_body(VjTxn *txn, void *opaque)
{
    const VjIdRange *range = opaque;
    uint8_t key[8], record[VJ_ID_BLOCK_BYTES];

    vj_be64_set(key, range->first_id);
    vj_id_block_encode(range, record);
    return vj_txn_put(txn, VJ_SPACE_ID_BLOCK, vj_slice(key, 8),
                      vj_slice(record, sizeof record));
}

static int damage_id_block_body(VjTxn *txn, void *opaque)
{
    const VjIdRange *range = opaque;
    uint8_t key[8];

    vj_be64_set(key, range->first_id);
    return vj_txn_put(txn, VJ_SPACE_ID_BLOCK, vj_slice(key, 8), vj_slice("damaged", 7));
}

static void put_unreferenced(Fixture *f, uint64_t id)
{
    struct iovec iov = {.iov_base = &id, .iov_len = sizeof id};
    VjPut put;

    assert_int_equal(vj_store_put(f->store, id, &iov, 1, &put), 0);
}

/* As a crash leaves it: an open id block, some of its ids named by records, others
 * not. */
static void leave_open_id_block(Fixture *f, VjObject named[2])
{
    VjIdRange range;

    /* The pass that open starts is over: it does not come when one is dead. */
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    for (uint64_t i = 0; i < 2; i++) {
        g_autofree uint8_t *bytes = content(i, 5000);

        must_put(f, bytes, 5000, &named[i]);
    }
    assert_int_equal(drop_ref(f, named[1].id), 0); /* dead, but known */
    fixture_close_objects(f);
    range = (VjIdRange){.first_id = named[0].id, .last_id = named[0].id + 3};
    assert_true(named[1].id < range.last_id);
    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, write_id_block_body, &range),
                     0);
    put_unreferenced(f, range.last_id);
}

static void test_recovery_removes_what_no_record_names(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(0, 5000);
    VjObject named[2];

    leave_open_id_block(f, named);
    assert_int_equal(stored_count(f), 3);
    fixture_open_objects(f);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_int_equal(stored_count(f), 1);
    assert_content(f, &named[0], bytes);
    assert_consistent(f);
    fixture_close_objects(f);
    assert_int_equal(key_count(f, VJ_SPACE_ID_BLOCK), 0);
    fixture_open_objects(f);
}

static void
test_a_check_calls_open_id_blocks_pending_and_unreferenced_puts_leaks(void **state)
{
    Fixture *f = *state;
    VjObject named[2];
    VjCheckReport report = {.tick = NULL};
    g_autofree char *said = NULL;

    leave_open_id_block(f, named);
    f->block_ids = 0;
    {
        VjObjectsConfig config = {.meta = f->meta,
                                  .store = f->store,
                                  .digest = vj_digest_default(),
                                  .read_only = true};

        assert_true(vj_objects_open(&config, &f->objects, NULL));
    }
    put_unreferenced(f, 1000000);
    report = check_objects(f, &said);
    assert_int_equal(report.problems, 0);
    assert_int_equal(report.leaks, 1);
    assert_int_equal(report.pending, 2); /* the id block, the dead one */
    assert_int_equal(report.stored_objects, 4);
    assert_non_null(strstr(said, "object 1000000:"));
    assert_int_equal(vj_objects_reap_now(f->objects), -EROFS);
    fixture_close_objects(f);
    assert_int_equal(stored_count(f), 4);
    fixture_open_objects(f);
}

static void test_failed_recovery_is_done_by_the_next_mount(void **state)
{
    Fixture *f = *state;
    VjObject named[2];

    leave_open_id_block(f, named);
    fixture_faults(f, "kinds=remove,every=1", NULL);
    fixture_open_objects(f);
    fixture_close_objects(f);
    fixture_faults(f, "kinds=each,every=1", NULL);
    fixture_open_objects(f);
    fixture_close_objects(f);
    fixture_faults(f, "", NULL);
    assert_int_equal(key_count(f, VJ_SPACE_ID_BLOCK), 1);
    fixture_open_objects(f);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_int_equal(stored_count(f), 1);
}

/* What session @owner left: an id block of four, and bytes under its last id. */
static VjIdRange leave_block_of(Fixture *f, uint64_t first_id, uint64_t owner)
{
    VjIdRange range = {.first_id = first_id, .last_id = first_id + 3, .owner = owner};

    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, write_id_block_body, &range),
                     0);
    put_unreferenced(f, range.last_id);
    return range;
}

static void test_what_an_ended_session_left_is_released(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, 5000);
    uint64_t blocks = key_count(f, VJ_SPACE_ID_BLOCK);
    VjObject object;

    must_put(f, bytes, 5000, &object);
    (void)leave_block_of(f, 2000000, 77);
    (void)leave_block_of(f, 2000004, 77);
    (void)leave_block_of(f, 3000000, 78);
    assert_int_equal(vj_objects_release_session(f->objects, 77), 0);
    assert_int_equal(stored_count(f), 2);
    assert_int_equal(key_count(f, VJ_SPACE_ID_BLOCK), blocks + 1);
    assert_int_equal(vj_objects_release_session(f->objects, 77), 0);
    assert_int_equal(stored_count(f), 2);
    assert_int_equal(vj_objects_release_session(f->objects, 78), 0);
    assert_int_equal(stored_count(f), 1);
    assert_content(f, &object, bytes);
}

static void test_a_release_that_failed_is_done_again(void **state)
{
    static const char *const faults[] = {"kinds=each,every=1", "kinds=remove,every=1"};
    Fixture *f = *state;
    uint64_t blocks = key_count(f, VJ_SPACE_ID_BLOCK);

    (void)leave_block_of(f, 2000000, 77);
    for (size_t i = 0; i < G_N_ELEMENTS(faults); i++) {
        fixture_faults(f, faults[i], NULL);
        assert_int_equal(vj_objects_release_session(f->objects, 77), -EIO);
        assert_int_equal(key_count(f, VJ_SPACE_ID_BLOCK), blocks + 1);
    }
    fixture_faults(f, "", "kinds=commit,fail=1");
    assert_int_equal(vj_objects_release_session(f->objects, 77), -EIO);
    fixture_faults(f, "", "");
    assert_int_equal(key_count(f, VJ_SPACE_ID_BLOCK), blocks + 1);
    assert_int_equal(vj_objects_release_session(f->objects, 77), 0);
    assert_int_equal(stored_count(f), 0);
    assert_int_equal(key_count(f, VJ_SPACE_ID_BLOCK), blocks);
}

static bool collect(void *opaque, const VjPut *object, int64_t mtime_us)
{
    (void)mtime_us;
    g_array_append_vals(opaque, object, 1);
    return true;
}

/* What gc would remove: id and number of puts. */
static guint garbage(Fixture *f, uint64_t *id)
{
    g_autoptr(GArray) puts = g_array_new(FALSE, FALSE, sizeof(VjPut));

    assert_int_equal(vj_store_each(f->store, 1, UINT64_MAX, collect, puts), 0);
    assert_int_equal(vj_objects_keep_garbage(f->objects, puts), 0);
    *id = puts->len > 0 ? g_array_index(puts, VjPut, 0).id : 0;
    return puts->len;
}

/* It goes by the records, where the id blocks of all sessions are. */
static void test_garbage_lies_in_no_id_block_of_a_live_session(void **state)
{
    const VjTransform want = {0};
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, 5000), *others = content(2, 5000);
    VjPendingObject *pending;
    VjObject object;
    uint64_t id;

    must_put(f, bytes, 5000, &object);
    assert_int_equal(store_plain(f->objects, others, 5000, &want, NULL, 0, &pending), 0);
    (void)leave_block_of(f, 2000000, vj_meta_session(f->meta));
    assert_int_equal(garbage(f, &id), 0);
    (void)leave_block_of(f, 3000000, 77); /* it has ended: this one is alone */
    assert_int_equal(garbage(f, &id), 1);
    assert_int_equal(id, 3000003);
    put_unreferenced(f, 5);
    put_unreferenced(f, 4000000);
    assert_int_equal(garbage(f, &id), 2); /* 5 is of the block in use */
    vj_pending_free(f->objects, pending, false);
    assert_int_equal(vj_objects_release_session(f->objects, 77), 0);
}

static void test_a_damaged_id_block_leaves_all_garbage(void **state)
{
    Fixture *f = *state;
    g_autoptr(GArray) puts = g_array_new(FALSE, FALSE, sizeof(VjPut));
    VjIdRange range = leave_block_of(f, 2000000, 77);

    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, damage_id_block_body, &range),
                     0);
    put_unreferenced(f, 4000000);
    assert_int_equal(vj_store_each(f->store, 1, UINT64_MAX, collect, puts), 0);
    assert_int_equal(vj_objects_keep_garbage(f->objects, puts), -EBADMSG);
}

static int setup_posix_short_id_blocks(void **state)
{
    Fixture *f;

    assert_int_equal(fixture_setup_posix(state), 0);
    f = *state;
    fixture_close_objects(f);
    f->block_ids = 4;
    fixture_open_objects(f);
    return 0;
}

/* Many objects of the directory that @id lies in are removed. */
static void crowd(Fixture *f, uint64_t id)
{
    uint64_t first_id = id / VJ_POSIX_DIR_IDS * VJ_POSIX_DIR_IDS + 1000;
    struct iovec iov = {.iov_base = &id, .iov_len = sizeof id};

    for (uint64_t i = 0; i < 600; i++) {
        VjPut put;

        assert_int_equal(vj_store_put(f->store, first_id + i, &iov, 1, &put), 0);
        assert_int_equal(vj_store_remove(f->store, put.id, put.loc), 0);
    }
}

static uint64_t put_next(Fixture *f, uint64_t seed)
{
    g_autofree uint8_t *bytes = content(seed, 100);
    VjObject object;

    must_put(f, bytes, 100, &object);
    return object.id;
}

/* Id blocks are over although ids of theirs were passed over. */
static void assert_id_blocks_end(Fixture *f)
{
    assert_consistent(f);
    fixture_close_objects(f);
    assert_int_equal(key_count(f, VJ_SPACE_ID_BLOCK), 0);
    fixture_open_objects(f);
    assert_consistent(f);
}

static void test_ids_of_a_crowded_directory_are_passed_over(void **state)
{
    Fixture *f = *state;
    uint64_t first = put_next(f, 0), next;

    assert_int_equal(put_next(f, 1), first + 1);
    crowd(f, first);
    assert_int_equal(put_next(f, 2), first + 2); /* it is told */
    next = (first / VJ_POSIX_DIR_IDS + 1) * VJ_POSIX_DIR_IDS;
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(put_next(f, 3 + i), next + i);
    }
    assert_id_blocks_end(f);
}

/* One id block at a time is passed over: the next one begins before the other
 * directory. */
static void test_short_id_blocks_of_a_crowded_directory(void **state)
{
    Fixture *f = *state;
    uint64_t before = put_next(f, 0);

    crowd(f, before);
    before = put_next(f, 1);
    for (uint64_t i = 0; i < 10; i++) {
        uint64_t id = put_next(f, 2 + i);

        assert_int_equal(id / f->block_ids, before / f->block_ids + 1);
        before = id;
    }
    assert_id_blocks_end(f);
}

#define TEST(name)                                                                       \
    cmocka_unit_test_setup_teardown(name, setup_short_id_blocks, fixture_teardown)
static const struct CMUnitTest tests[] = {
    TEST(test_ids_grow_and_never_repeat),
    TEST(test_id_blocks_end_when_their_puts_are_committed_or_removed),
    TEST(test_no_id_block_no_put),
    TEST(test_recovery_removes_what_no_record_names),
    TEST(test_a_check_calls_open_id_blocks_pending_and_unreferenced_puts_leaks),
    TEST(test_failed_recovery_is_done_by_the_next_mount),
    TEST(test_what_an_ended_session_left_is_released),
    TEST(test_a_release_that_failed_is_done_again),
    cmocka_unit_test_setup_teardown(test_garbage_lies_in_no_id_block_of_a_live_session,
                                    fixture_setup, fixture_teardown),
    TEST(test_a_damaged_id_block_leaves_all_garbage),
    cmocka_unit_test_setup_teardown(test_ids_of_a_crowded_directory_are_passed_over,
                                    fixture_setup_posix, fixture_teardown),
    cmocka_unit_test_setup_teardown(test_short_id_blocks_of_a_crowded_directory,
                                    setup_posix_short_id_blocks, fixture_teardown),
};

VJ_TEST_MAIN(tests)
