/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The bounded descriptor cache: order of eviction, and what is open when.
 */
#include "../../lib/test.h"

#include "store/fd-cache.h"

static int new_fd(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static VjFdKey key(uint64_t id)
{
    return (VjFdKey){.id = id, .nonce = id * 3};
}

static int add(VjFdCache *c, uint64_t id)
{
    VjFdUse use;
    int fd = new_fd();

    vj_fd_cache_add(c, key(id), fd, vj_fd_cache_drops(c), &use);
    assert_int_equal(use.fd, fd);
    vj_fd_cache_release(c, &use);
    assert_int_equal(use.fd, -1);
    return fd;
}

static void test_least_recent_goes(void **state)
{
    VjFdCache c;
    VjFdUse use;
    int fds[4];

    (void)state;
    vj_fd_cache_init(&c, 3, "test");
    for (uint64_t i = 0; i < 3; i++) {
        fds[i] = add(&c, i);
    }
    assert_true(vj_fd_cache_get(&c, key(0), &use));
    assert_int_equal(use.fd, fds[0]);
    vj_fd_cache_release(&c, &use);
    fds[3] = add(&c, 3);
    assert_false(vj_fd_cache_get(&c, key(1), &use));
    assert_true(is_open(fds[0]) && is_open(fds[2]) && is_open(fds[3]));
    vj_fd_cache_clear(&c);
    assert_false(is_open(fds[0]) || is_open(fds[2]) || is_open(fds[3]));
}

static void test_in_use_stays(void **state)
{
    VjFdCache c;
    VjFdUse uses[2], more;
    int extra;

    (void)state;
    vj_fd_cache_init(&c, 2, "test");
    for (uint64_t i = 0; i < 2; i++) {
        vj_fd_cache_add(&c, key(i), new_fd(), 0, &uses[i]);
    }
    extra = new_fd();
    vj_fd_cache_add(&c, key(9), extra, 0, &more);
    assert_int_equal(more.slot, -1);
    assert_true(is_open(extra));
    vj_fd_cache_release(&c, &more);
    assert_false(is_open(extra));
    for (uint64_t i = 0; i < 2; i++) {
        assert_true(is_open(uses[i].fd));
        vj_fd_cache_release(&c, &uses[i]);
    }
    vj_fd_cache_clear(&c);
}

static void test_drop(void **state)
{
    VjFdCache c;
    VjFdUse first, second, use;
    int fd = new_fd(), other = new_fd(), idle;

    (void)state;
    vj_fd_cache_init(&c, 4, "test");
    idle = add(&c, 5);
    vj_fd_cache_drop(&c, key(5));
    assert_false(is_open(idle));

    vj_fd_cache_add(&c, key(1), fd, vj_fd_cache_drops(&c), &first);
    assert_true(vj_fd_cache_get(&c, key(1), &second));
    vj_fd_cache_drop(&c, key(1));
    assert_false(vj_fd_cache_get(&c, key(1), &use));
    /* The same key again, while the dropped one is still in use. */
    vj_fd_cache_add(&c, key(1), other, vj_fd_cache_drops(&c), &use);
    assert_int_equal(use.fd, other);
    vj_fd_cache_release(&c, &first);
    assert_true(is_open(fd));
    vj_fd_cache_release(&c, &second);
    assert_false(is_open(fd));
    vj_fd_cache_release(&c, &use);
    assert_true(vj_fd_cache_get(&c, key(1), &use));
    assert_int_equal(use.fd, other);
    vj_fd_cache_release(&c, &use);
    vj_fd_cache_clear(&c);
}

/* Opened before a drop, added after it: it could be the thing that is gone. */
static void test_stale_add_is_not_kept(void **state)
{
    VjFdCache c;
    VjFdUse use;
    uint64_t drops;
    int fd = new_fd();

    (void)state;
    vj_fd_cache_init(&c, 4, "test");
    drops = vj_fd_cache_drops(&c);
    vj_fd_cache_drop(&c, key(1));
    vj_fd_cache_add(&c, key(1), fd, drops, &use);
    assert_int_equal(use.fd, fd);
    vj_fd_cache_release(&c, &use);
    assert_false(is_open(fd));
    assert_false(vj_fd_cache_get(&c, key(1), &use));
    vj_fd_cache_clear(&c);
}

/* Two threads missed at once: one descriptor is kept, both can be used. */
static void test_double_add(void **state)
{
    VjFdCache c;
    VjFdUse first, second;
    int fd = new_fd(), other = new_fd();

    (void)state;
    vj_fd_cache_init(&c, 4, "test");
    vj_fd_cache_add(&c, key(1), fd, 0, &first);
    vj_fd_cache_add(&c, key(1), other, 0, &second);
    assert_int_equal(second.fd, other);
    vj_fd_cache_release(&c, &second);
    assert_false(is_open(other));
    vj_fd_cache_release(&c, &first);
    assert_true(is_open(fd));
    vj_fd_cache_clear(&c);
}

static void test_shrink(void **state)
{
    VjFdCache c;
    VjFdUse use;
    int idle, used = new_fd();

    (void)state;
    vj_fd_cache_init(&c, 4, "test");
    assert_false(vj_fd_cache_shrink(&c));
    idle = add(&c, 1);
    vj_fd_cache_add(&c, key(2), used, 0, &use);
    assert_true(vj_fd_cache_shrink(&c));
    assert_false(is_open(idle));
    assert_true(is_open(used));
    assert_false(vj_fd_cache_shrink(&c));
    vj_fd_cache_release(&c, &use);
    vj_fd_cache_clear(&c);
}

static void test_no_slots(void **state)
{
    VjFdCache c;
    int fd;

    (void)state;
    vj_fd_cache_init(&c, 0, "test");
    fd = add(&c, 1);
    assert_false(is_open(fd));
    vj_fd_cache_clear(&c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_least_recent_goes),
    cmocka_unit_test(test_in_use_stays),
    cmocka_unit_test(test_drop),
    cmocka_unit_test(test_stale_add_is_not_kept),
    cmocka_unit_test(test_double_add),
    cmocka_unit_test(test_shrink),
    cmocka_unit_test(test_no_slots),
};

VJ_TEST_MAIN(tests)
