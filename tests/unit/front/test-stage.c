/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-stage.c - a call finds the edit that its thread has staged, and nobody else's
 */
#include "../../lib/test.h"

#include "front/front-private.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Handles are names here; nobody looks into them. */
static char places[16];
#define HANDLE(i) ((VjHandle *)(void *)&places[i])

static int setup(void **state)
{
    *state = vj_staged_edits_new();
    return 0;
}

static int teardown(void **state)
{
    vj_staged_edits_free(*state);
    return 0;
}

static int put_as(VjStagedEdits *e, uid_t uid, unsigned handle, pid_t tid, uint32_t call,
                  uint32_t mode, uint64_t size, struct varjfs_carry *out)
{
    VjStaged *s = vj_staged_new(NULL, 0);

    s->handle = HANDLE(handle);
    s->uid = uid;
    s->tid = tid;
    s->size = size;
    s->carry = (struct varjfs_carry){.call = call, .mode = mode};
    return vj_stage_put(e, s, out);
}

static int put(VjStagedEdits *e, unsigned handle, pid_t tid, uint32_t call, uint32_t mode,
               uint64_t size, struct varjfs_carry *out)
{
    return put_as(e, 0, handle, tid, call, mode, size, out);
}

/* The size of the staged edit that the call of @carry finds; 0: none. */
static uint64_t carry_out(VjStagedEdits *e, unsigned handle, pid_t tid,
                          const struct varjfs_carry *carry)
{
    VjStaged *s = carry->call == VARJFS_CARRY_FTRUNCATE
                      ? vj_stage_take_ftruncate(e, HANDLE(handle), tid, carry->len)
                      : vj_stage_take_fallocate(e, HANDLE(handle), tid, (int)carry->mode,
                                                carry->offset, carry->len);
    uint64_t size = s != NULL ? s->size : 0;

    vj_staged_free(s);
    return size;
}

static void test_each_call_finds_its_own(void **state)
{
    static const uint32_t calls[] = {VARJFS_CARRY_FALLOCATE, VARJFS_CARRY_FTRUNCATE,
                                     VARJFS_CARRY_FALLOCATE_SEEK};
    struct varjfs_carry carry, again;

    for (size_t i = 0; i < G_N_ELEMENTS(calls); i++) {
        assert_int_equal(put(*state, 0, 5, calls[i], FALLOC_FL_KEEP_SIZE, 100, &carry),
                         0);
        assert_int_equal(carry.call, calls[i]);
        assert_true(carry.len >= VJ_STAGED_BASE || carry.offset >= VJ_STAGED_BASE);
        assert_int_equal(carry_out(*state, 1, 5, &carry), 0);
        assert_int_equal(carry_out(*state, 0, 6, &carry), 0);
        assert_int_equal(carry_out(*state, 0, 5, &carry), 100);
        assert_int_equal(carry_out(*state, 0, 5, &carry), 0); /* once */
        assert_int_equal(put(*state, 0, 5, calls[i], FALLOC_FL_KEEP_SIZE, 100, &again),
                         0);
        assert_int_equal(carry_out(*state, 0, 5, &carry), 0); /* an older one's name */
        assert_int_equal(carry_out(*state, 0, 5, &again), 100);
    }
}

/* A delete that is its own name, and no other size is one. */
static void test_a_delete_by_its_size(void **state)
{
    static const struct {
        uint64_t offset, len;
    } deletes[] = {
        {0, 1},
        {4711, 4096},
        {(UINT64_C(1) << VARJFS_DELETE_SIZE_OFFSET_BITS) - 1, VARJFS_DELETE_SIZE_LEN}};
    static const uint64_t others[] = {
        VJ_STAGED_BASE,
        VJ_STAGED_BASE + 1,
        VARJFS_DELETE_SIZE_MARK - 1,
        VARJFS_DELETE_SIZE_MARK + (UINT64_C(1) << 53),
        INT64_MAX,
        0,
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(deletes); i++) {
        uint64_t size = VARJFS_DELETE_SIZE(deletes[i].offset, deletes[i].len);
        VjStaged *s = vj_staged_of_size(HANDLE(1), 5, size);

        assert_true(size >= VJ_STAGED_BASE && size <= INT64_MAX);
        assert_non_null(s);
        assert_int_equal(s->edit.offset, deletes[i].offset);
        assert_int_equal(s->edit.old_len, deletes[i].len);
        assert_int_equal(s->edit.len, 0);
        assert_true(s->is_single);
        vj_staged_free(s);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(others); i++) {
        assert_null(vj_staged_of_size(HANDLE(1), 5, others[i]));
    }
}

/* fallocate(0) ends at the size that the kernel takes, however small. */
static void test_growing(void **state)
{
    struct varjfs_carry carry;

    for (uint64_t size = 1; size < 300; size++) {
        assert_int_equal(put(*state, 0, 5, VARJFS_CARRY_FALLOCATE, 0, size, &carry), 0);
        assert_int_equal(carry.mode, 0);
        assert_int_equal(carry.offset + carry.len, size);
        assert_true(carry.len > 0);
        assert_int_equal(carry_out(*state, 0, 5, &carry), size);
    }
}

static void test_one_for_each_thread(void **state)
{
    struct varjfs_carry first, second, other;

    assert_int_equal(put(*state, 0, 5, VARJFS_CARRY_FTRUNCATE, 0, 1, &first), 0);
    assert_int_equal(put(*state, 0, 6, VARJFS_CARRY_FTRUNCATE, 0, 2, &other), 0);
    assert_int_equal(put(*state, 0, 5, VARJFS_CARRY_FTRUNCATE, 0, 3, &second), 0);
    assert_int_equal(carry_out(*state, 0, 5, &first), 0);
    assert_int_equal(carry_out(*state, 0, 6, &other), 2);
    assert_int_equal(carry_out(*state, 0, 5, &second), 3);
    /* Threads without a number keep what they have. */
    assert_int_equal(put(*state, 0, 0, VARJFS_CARRY_FTRUNCATE, 0, 4, &first), 0);
    assert_int_equal(put(*state, 0, 0, VARJFS_CARRY_FTRUNCATE, 0, 5, &second), 0);
    assert_int_equal(carry_out(*state, 0, 0, &first), 4);
    assert_int_equal(carry_out(*state, 0, 0, &second), 5);
}

/* So many as there is room for.  Nobody knows whether a thread without a number is
 * alive. */
static unsigned fill(VjStagedEdits *e, uid_t uid, unsigned handle)
{
    struct varjfs_carry carry;
    unsigned count = 0;

    while (put_as(e, uid, handle, 0, VARJFS_CARRY_FTRUNCATE, 0, 1, &carry) == 0) {
        count++;
        assert_true(count < 100000);
    }
    return count;
}

/* The number of a thread that has ended. */
static pid_t gone(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

static void test_too_many_of_a_handle(void **state)
{
    struct varjfs_carry carry;
    unsigned count;

    assert_int_equal(put(*state, 0, getpid(), VARJFS_CARRY_FTRUNCATE, 0, 1, &carry), 0);
    count = fill(*state, 0, 0);
    assert_true(count > 100);
    assert_int_equal(put(*state, 0, getpid(), VARJFS_CARRY_FTRUNCATE, 0, 1, &carry), 0);
    assert_int_equal(put(*state, 1, 0, VARJFS_CARRY_FTRUNCATE, 0, 1, &carry), 0);
    vj_stage_forget_handle(*state, HANDLE(0));
    assert_int_equal(fill(*state, 0, 0), count + 1);
}

static unsigned fill_handles(VjStagedEdits *e, uid_t uid, unsigned first, unsigned most)
{
    unsigned count = 0;

    for (unsigned i = 0; i < most; i++) {
        count += fill(e, uid, first + i);
    }
    return count;
}

/* A user takes a quarter of all, with any number of descriptors. */
static void test_share_of_a_user(void **state)
{
    struct varjfs_carry carry;
    unsigned share = fill_handles(*state, 1, 0, 8);

    assert_true(share > 0);
    assert_int_equal(fill(*state, 1, 8), 0);
    /* Its own place is free for it. */
    vj_staged_free(vj_stage_take_ftruncate(*state, HANDLE(0), 0, VJ_STAGED_BASE + 1));
    assert_int_equal(fill(*state, 1, 8), 1);
    assert_int_equal(fill_handles(*state, 2, 0, 16), share);
    assert_int_equal(fill_handles(*state, 3, 0, 16), share);
    assert_int_equal(fill_handles(*state, 4, 0, 16), share);
    assert_int_equal(put_as(*state, 5, 15, 0, VARJFS_CARRY_FTRUNCATE, 0, 1, &carry),
                     -ENOMEM);
    for (unsigned i = 0; i < 16; i++) {
        vj_stage_forget_handle(*state, HANDLE(i));
    }
    assert_int_equal(fill_handles(*state, 1, 0, 16), share);
}

/* What nobody can carry out any more makes room, of whomever it is. */
static void test_threads_that_are_gone(void **state)
{
    const pid_t dead = gone(), alive = getpid();
    struct varjfs_carry carry;
    VjStaged *s;

    for (uid_t uid = 1; uid <= 4; uid++) {
        assert_int_equal(
            put_as(*state, uid, 8 + uid, dead, VARJFS_CARRY_FTRUNCATE, 0, 1, &carry), 0);
        assert_int_equal(
            put_as(*state, uid, uid, alive, VARJFS_CARRY_FTRUNCATE, 0, uid, &carry), 0);
    }
    s = vj_stage_take_ftruncate(*state, HANDLE(12), dead, VJ_STAGED_BASE + 7);
    assert_non_null(s);
    vj_stage_keep_result(*state, s, 4711); /* nobody will ask */
    (void)fill_handles(*state, 1, 1, 8);
    assert_int_equal(put_as(*state, 1, 15, 0, VARJFS_CARRY_FTRUNCATE, 0, 1, &carry),
                     -ENOMEM);
    for (uid_t uid = 2; uid <= 4; uid++) {
        (void)fill_handles(*state, uid, 0, 16);
    }
    assert_int_equal(put_as(*state, 5, 15, 0, VARJFS_CARRY_FTRUNCATE, 0, 1, &carry),
                     -ENOMEM);
    for (uid_t uid = 1; uid <= 4; uid++) {
        assert_null(vj_stage_take_any(*state, HANDLE(8 + uid), dead));
        s = vj_stage_take_any(*state, HANDLE(uid), alive);
        assert_non_null(s);
        assert_int_equal(s->size, uid);
        vj_staged_free(s);
    }
}

static void test_where_an_append_went(void **state)
{
    struct varjfs_carry carry;
    VjStaged *s;

    assert_null(vj_stage_take_any(*state, HANDLE(0), 5));
    assert_int_equal(put(*state, 0, 5, VARJFS_CARRY_FTRUNCATE, 0, 1, &carry), 0);
    s = vj_stage_take_ftruncate(*state, HANDLE(0), 5, carry.len);
    assert_non_null(s);
    vj_stage_keep_result(*state, s, 4711);
    assert_int_equal(carry_out(*state, 0, 5, &carry), 0); /* it has happened */
    s = vj_stage_take_any(*state, HANDLE(0), 5);
    assert_non_null(s);
    assert_int_equal(s->edit.offset, 4711);
    vj_staged_free(s);
    assert_null(vj_stage_take_any(*state, HANDLE(0), 5));
}

/* Threads that the daemon cannot see: were two edits named alike, each would carry out
 * the other's. */
static void test_threads_without_a_number_have_names_of_their_own(void **state)
{
    struct varjfs_carry carry[3], again;

    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(put(*state, 0, 0, VARJFS_CARRY_FALLOCATE, 0, 3, &carry[i]), 0);
        assert_int_equal(carry[i].offset + carry[i].len, 3);
        for (unsigned j = 0; j < i; j++) {
            assert_int_not_equal(carry[i].len, carry[j].len);
        }
    }
    assert_int_equal(put(*state, 0, 0, VARJFS_CARRY_FALLOCATE, 0, 3, &again), -EAGAIN);
    assert_int_equal(put(*state, 0, 0, VARJFS_CARRY_FTRUNCATE, 0, 3, &again), 0);
    assert_int_equal(put(*state, 1, 0, VARJFS_CARRY_FALLOCATE, 0, 3, &again), 0);
    assert_int_equal(carry_out(*state, 0, 0, &carry[1]), 3);
    assert_int_equal(put(*state, 0, 0, VARJFS_CARRY_FALLOCATE, 0, 3, &again), 0);
    assert_int_equal(again.len, carry[1].len);
}

static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    TEST(test_each_call_finds_its_own),
    TEST(test_a_delete_by_its_size),
    TEST(test_growing),
    TEST(test_one_for_each_thread),
    TEST(test_too_many_of_a_handle),
    TEST(test_share_of_a_user),
    TEST(test_threads_that_are_gone),
    TEST(test_threads_without_a_number_have_names_of_their_own),
    TEST(test_where_an_append_went),
};

VJ_TEST_MAIN(tests)
