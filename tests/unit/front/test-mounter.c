/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What the guard mounts and detaches, when the device of what is mounted cannot be told.
 * The linker hands mount(2), umount2(2) and statx(2) of the code under test to the
 * functions below.
 */
#include "../../lib/test.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "front/front-private.h"

static int statx_errno;       /* 0: it answers */
static unsigned device_minor; /* what it answers then */
static int mount_errno;
static unsigned mounts, unmounts;

int __wrap_statx(int fd, const char *path, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int fd, const char *path, int flags, unsigned mask, struct statx *st)
{
    (void)fd, (void)path, (void)flags, (void)mask;
    memset(st, 0, sizeof *st);
    st->stx_dev_minor = device_minor;
    errno = statx_errno;
    return statx_errno == 0 ? 0 : -1;
}

int __wrap_mount(const char *source, const char *target, const char *type,
                 unsigned long flags, const void *data);
int __wrap_mount(const char *source, const char *target, const char *type,
                 unsigned long flags, const void *data)
{
    (void)source, (void)target, (void)type, (void)flags, (void)data;
    mounts++;
    errno = mount_errno;
    return mount_errno == 0 ? 0 : -1;
}

int __wrap_umount2(const char *target, int flags);
int __wrap_umount2(const char *target, int flags)
{
    (void)target, (void)flags;
    unmounts++;
    return 0;
}

static const VjMountPlan plan = {.source = "/", .mountpoint = "/", .options = "rw"};

static int reset(void **state)
{
    (void)state;
    statx_errno = mount_errno = 0;
    device_minor = 77;
    mounts = unmounts = 0;
    return 0;
}

static void a_mount_has_a_device(void **state)
{
    VjMounted out = {0};

    (void)state;
    vj_mounter_mount(&plan, 4, -1, &out);
    assert_int_equal(out.error, 0);
    assert_int_equal(mounts, 1);
    assert_true(out.dev == makedev(0, 77));
}

static void one_without_a_device_is_an_error(void **state)
{
    VjMounted out = {0};

    (void)state;
    statx_errno = ENOSYS;
    vj_mounter_mount(&plan, 4, -1, &out);
    assert_int_not_equal(out.error, 0);
    assert_true(out.dev == 0);
    assert_non_null(strstr(out.text, "has to be unmounted"));
}

static void a_refused_mount_keeps_its_error(void **state)
{
    VjMounted out = {0};

    (void)state;
    statx_errno = ENOSYS;
    mount_errno = EACCES;
    vj_mounter_mount(&plan, 4, -1, &out);
    assert_int_equal(out.error, EACCES);
}

static void only_the_own_mount_is_detached(void **state)
{
    VjMounted out = {0};

    (void)state;
    vj_mounter_detach(&plan, makedev(0, 78), false, &out);
    assert_int_equal(unmounts, 0);
    vj_mounter_detach(&plan, makedev(0, 77), false, &out);
    assert_int_equal(unmounts, 1);
    assert_int_equal(out.error, 0);
}

static void what_is_not_known_is_not_detached(void **state)
{
    VjMounted out = {0};

    (void)state;
    /* No mount of ours, and no answer what is there. */
    statx_errno = EIO;
    vj_mounter_detach(&plan, 0, false, &out);
    assert_int_equal(unmounts, 0);
    statx_errno = 0;
    device_minor = 0;
    vj_mounter_detach(&plan, 0, false, &out);
    assert_int_equal(unmounts, 0);
    assert_int_equal(vj_mounter_sync(&plan, 0), 0);
}

/* What the kernel does first when it ends a daemon: its files are closed, no word is
 * said. */
static void a_pipe_that_ends_is_a_death(void **state)
{
    const VjMountPlan taken = {
        .source = "/", .mountpoint = "/dev/fd/9", .options = "auto_unmount"};
    pid_t child;
    int status;

    (void)state;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (vj_guard_start(&taken, NULL) == NULL || close_range(3, ~0u, 0) != 0 ||
            waitpid(-1, &status, 0) < 0) {
            _exit(99);
        }
        /* 1: it tried to end a connection, and there was none. */
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
}

static void an_orderly_end_is_none(void **state)
{
    const VjMountPlan taken = {.source = "/", .mountpoint = "/dev/fd/9", .options = "rw"};
    VjGuard *g = vj_guard_start(&taken, NULL);

    (void)state;
    assert_non_null(g);
    vj_guard_end(g); /* waits for it */
}

#define FROM_START(test) cmocka_unit_test_setup(test, reset)

static const struct CMUnitTest tests[] = {
    FROM_START(a_mount_has_a_device),
    FROM_START(one_without_a_device_is_an_error),
    FROM_START(a_refused_mount_keeps_its_error),
    FROM_START(only_the_own_mount_is_detached),
    FROM_START(what_is_not_known_is_not_detached),
    FROM_START(a_pipe_that_ends_is_a_death),
    FROM_START(an_orderly_end_is_none),
};

VJ_TEST_MAIN(tests)
