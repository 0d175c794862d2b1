/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * store-test.h - what the unit tests of the room share: a directory with a store on it
 */
#ifndef VJ_TEST_STORE_H
#define VJ_TEST_STORE_H

#include "../../lib/test.h"

#include "store/erase.h"
#include "store/posix-format.h"
#include "store/posix-private.h"
#include "store/store-private.h"

#include <pthread.h>
#include <sys/stat.h>

typedef struct VjStoreTest {
    char *path;
    int dir_fd;
    VjStore *s;
    const char *spec;
} VjStoreTest;

static inline void vj_store_test_open(VjStoreTest *t, bool create)
{
    VjStorePlace place = {.dir_fd = t->dir_fd, .path = t->path, .create = create};
    g_autoptr(GError) error = NULL;

    if (!vj_store_open(t->spec, &place, &t->s, &error)) {
        fail_msg("%s", error->message);
    }
}

static inline void vj_store_test_reopen(VjStoreTest *t)
{
    vj_store_close(t->s);
    vj_store_test_open(t, false);
}

/* cmocka fixture; the initial state is the spec, NULL for "posix". */
static inline int vj_store_test_setup(void **state)
{
    VjStoreTest *t = g_new0(VjStoreTest, 1);

    t->spec = *state != NULL ? *state : "posix";
    t->path = vj_test_make_dir();
    t->dir_fd = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(t->dir_fd >= 0);
    vj_store_test_open(t, true);
    *state = t;
    return 0;
}

static inline int vj_store_test_teardown(void **state)
{
    VjStoreTest *t = *state;

    vj_store_close(t->s);
    vj_fd_close(&t->dir_fd);
    vj_test_remove_dir(t->path);
    g_free(t);
    return 0;
}

/* Bytes that differ for every id and place. */
static inline void vj_store_test_fill(uint8_t *dst, size_t len, uint64_t id)
{
    for (size_t i = 0; i < len; i++) {
        dst[i] = (uint8_t)(id * 131 + i * 7 + (i >> 8));
    }
}

static inline int vj_store_test_try_put(VjStore *s, uint64_t id, size_t len, VjPut *put)
{
    g_autofree uint8_t *bytes = g_malloc(len + 1);
    struct iovec iov = {.iov_base = bytes, .iov_len = len};

    vj_store_test_fill(bytes, len, id);
    return vj_store_put(s, id, &iov, 1, put);
}

static inline VjPut vj_store_test_put(VjStore *s, uint64_t id, size_t len)
{
    VjPut put;

    assert_int_equal(vj_store_test_try_put(s, id, len, &put), 0);
    return put;
}

static inline bool vj_store_test_matches(VjStore *s, const VjPut *put)
{
    g_autofree uint8_t *want = g_malloc(put->stored_bytes + 1);
    g_autofree uint8_t *got = g_malloc(put->stored_bytes + 1);

    vj_store_test_fill(want, put->stored_bytes, put->id);
    return vj_store_get(s, put->id, put->loc, 0, got, put->stored_bytes) == 0 &&
           memcmp(want, got, put->stored_bytes) == 0;
}

static inline int vj_store_test_get_byte(VjStore *s, const VjPut *put)
{
    uint8_t byte;

    return vj_store_get(s, put->id, put->loc, 0, &byte, 1);
}

/* cmocka's visitor that counts. */
static inline bool vj_store_test_count(void *opaque, const VjPut *object,
                                       int64_t mtime_us)
{
    (void)object;
    (void)mtime_us;
    (*(uint64_t *)opaque)++;
    return true;
}

static inline uint64_t vj_store_test_object_count(VjStore *s)
{
    uint64_t count = 0;

    assert_int_equal(vj_store_each(s, 0, UINT64_MAX, vj_store_test_count, &count), 0);
    return count;
}

/* Path of an object of the posix driver below its directory; owned. */
static inline char *vj_store_test_name(const VjPut *put)
{
    char top[VJ_POSIX_TOP_NAME_BYTES], middle[VJ_POSIX_MIDDLE_NAME_BYTES];
    char object[VJ_POSIX_OBJECT_NAME_BYTES];
    uint64_t nonce = 0;

    assert_true(vj_posix_loc_decode(put->loc, &nonce));
    vj_posix_top_name(put->id, top);
    vj_posix_middle_name(put->id, middle);
    vj_posix_object_name(put->id, nonce, object);
    return g_strdup_printf("%s/%s/%s", top, middle, object);
}

/* Removed objects that could not be overwritten. */
static inline void vj_store_test_expect_erasures(VjStore *s, uint64_t waiting,
                                                 uint64_t given_up)
{
    VjStoreErasures erasures;

    vj_store_erasures(s, &erasures);
    assert_int_equal(erasures.waiting, waiting);
    assert_int_equal(erasures.given_up, given_up);
}

/* The clock stands, and is as much later as the pause after try @tries of overwriting. */
static inline void vj_store_test_pass_pause(unsigned tries)
{
    struct timespec real = vj_clock_real();

    vj_clock_set_for_test(&real,
                          vj_clock_mono_us() + (VJ_ERASE_PAUSE_FIRST_US << (tries - 1)));
}

#endif
