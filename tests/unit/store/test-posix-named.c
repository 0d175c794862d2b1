/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * put_as of the posix driver: what happens to an object of the same number that is there.
 */
#include "store-test.h"

#include <fcntl.h>
#include <unistd.h>

static VjPut put_as(VjStore *s, uint64_t id, uint64_t nonce, size_t len, int expected)
{
    g_autofree uint8_t *bytes = g_malloc(len + 1);
    struct iovec iov = {.iov_base = bytes, .iov_len = len};
    VjPut put = {0};

    vj_store_test_fill(bytes, len, id);
    assert_int_equal(vj_store_put_as(s, id, nonce, &iov, 1, &put), expected);
    return put;
}

/* A crash cut it short, and the descriptor that is kept of it shows the old bytes. */
static void test_damaged_is_replaced(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = put_as(t->s, 1, 7, 5000, 0);
    g_autofree char *name = vj_store_test_name(&put), *path = NULL;

    assert_true(vj_store_test_matches(t->s, &put));
    path = g_build_filename(t->path, name, NULL);
    assert_int_equal(truncate(path, 4000), 0);
    assert_false(vj_store_test_matches(t->s, &put));
    put_as(t->s, 1, 7, 5000, 0);
    assert_true(vj_store_test_matches(t->s, &put));
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(vj_store_test_object_count(t->s), 1);
}

/* While @fails is set no file can be synced. */
static gint fails;

static int sync_or_fail(int fd)
{
    if (g_atomic_int_get(&fails)) {
        errno = EIO;
        return -1;
    }
    return fdatasync(fd);
}

static const VjPosixSyncCalls failing_calls = {
    .sync_file = sync_or_fail, .sync_directory = fsync, .sync_all = sync_or_fail};

/* What a failed sync put in doubt ends when its bytes are put again. */
static void test_doubt_ends(void **state)
{
    VjStoreTest *t = *state;
    VjPut put;

    vj_store_posix_set_calls(t->s, &failing_calls);
    put = put_as(t->s, 1, 7, 5000, 0);
    g_atomic_int_set(&fails, 1);
    assert_int_equal(vj_store_flush(t->s), -EIO);
    g_atomic_int_set(&fails, 0);
    assert_int_equal(vj_store_flush(t->s), -EIO);
    put_as(t->s, 1, 7, 5000, 0);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_true(vj_store_test_matches(t->s, &put));
}

/* The old one stays where the new one cannot be made durable, and nothing else does. */
static void test_replacing_fails(void **state)
{
    VjStoreTest *t = *state;
    VjPut put;

    vj_store_posix_set_calls(t->s, &failing_calls);
    put = put_as(t->s, 1, 7, 5000, 0);
    assert_int_equal(vj_store_flush(t->s), 0);
    g_atomic_int_set(&fails, 1);
    put_as(t->s, 1, 7, 5000, -EIO);
    g_atomic_int_set(&fails, 0);
    assert_true(vj_store_test_matches(t->s, &put));
    assert_int_equal(vj_store_test_object_count(t->s), 1);
    assert_int_equal(vj_store_flush(t->s), 0);
}

enum { THREADS = 4, ROUNDS = 200 };

static gpointer put_many(gpointer opaque)
{
    VjStore *s = opaque;
    uint8_t bytes[3000];
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};
    VjPut put;

    for (uint64_t i = 0; i < ROUNDS; i++) {
        vj_store_test_fill(bytes, sizeof bytes, i % 5);
        if (vj_store_put_as(s, i % 5, 9, &iov, 1, &put) != 0 ||
            !vj_store_test_matches(s, &put)) {
            return GINT_TO_POINTER(1);
        }
    }
    return NULL;
}

/* At any time each of them is there and whole. */
static void test_threads(void **state)
{
    VjStoreTest *t = *state;
    GThread *threads[THREADS];

    for (size_t i = 0; i < THREADS; i++) {
        threads[i] = g_thread_new("put", put_many, t->s);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_null(g_thread_join(threads[i]));
    }
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(vj_store_test_object_count(t->s), 5);
}

#define STORE_TEST(name)                                                                 \
    cmocka_unit_test_setup_teardown(name, vj_store_test_setup, vj_store_test_teardown)

/* What use_file() is to do, and what it found. */
typedef struct Use {
    VjStore *store;
    const VjPut *removes; /* NULL: nothing */
    int result;
    unsigned calls;
    uint8_t bytes[5000];
} Use;

static int use_file(void *opaque, int fd, uint64_t offset, size_t len)
{
    Use *use = opaque;

    use->calls++;
    if (use->removes != NULL) {
        assert_int_equal(vj_store_remove(use->store, use->removes->id, use->removes->loc),
                         0);
    }
    assert_int_equal(vj_fd_pread_all(fd, use->bytes, len, offset), 0);
    return use->result;
}

static void test_with_file(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = put_as(t->s, 1, 7, 5000, 0);
    VjLoc other = vj_store_loc_of_nonce(t->s, 8), wrong;
    Use use = {.store = t->s};
    uint8_t whole[5000];

    vj_store_test_fill(whole, sizeof whole, 1);
    assert_int_equal(vj_store_with_file(t->s, 1, put.loc, 0, 5000, use_file, &use), 0);
    assert_memory_equal(use.bytes, whole, 5000);
    assert_int_equal(vj_store_with_file(t->s, 1, put.loc, 4001, 999, use_file, &use), 0);
    assert_memory_equal(use.bytes, whole + 4001, 999);
    /* What it says goes on. */
    use.result = -EOPNOTSUPP;
    assert_int_equal(vj_store_with_file(t->s, 1, put.loc, 0, 1, use_file, &use),
                     -EOPNOTSUPP);
    use.result = -EBADMSG;
    assert_int_equal(vj_store_with_file(t->s, 1, put.loc, 0, 1, use_file, &use),
                     -EBADMSG);
    use.result = -EIO;
    assert_int_equal(vj_store_with_file(t->s, 1, put.loc, 0, 1, use_file, &use), -EIO);
    assert_int_equal(use.calls, 5);
    /* The descriptor outlives the object's name. */
    use.result = 0;
    use.removes = &put;
    memset(use.bytes, 0, sizeof use.bytes);
    assert_int_equal(vj_store_with_file(t->s, 1, put.loc, 0, 5000, use_file, &use), 0);
    assert_memory_equal(use.bytes, whole, 5000);
    assert_int_equal(vj_store_with_file(t->s, 1, put.loc, 0, 5000, use_file, &use),
                     -ENOENT);
    assert_int_equal(vj_store_with_file(t->s, 1, other, 0, 5000, use_file, &use),
                     -ENOENT);
    memset(&wrong, 0xff, sizeof wrong);
    assert_int_equal(vj_store_with_file(t->s, 1, wrong, 0, 5000, use_file, &use),
                     -EBADMSG);
    assert_int_equal(use.calls, 6);
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(test_with_file),  STORE_TEST(test_damaged_is_replaced),
    STORE_TEST(test_doubt_ends), STORE_TEST(test_replacing_fails),
    STORE_TEST(test_threads),
};

VJ_TEST_MAIN(tests)
