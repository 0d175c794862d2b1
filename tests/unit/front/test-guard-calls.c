/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What the guard can still call once it has mounted: what it does goes on, and nothing
 * else works.  Each test is a child of its own, as there is no way back.
 */
#include "../../lib/test.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "front/front-private.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_FILTER false
#elif defined(__x86_64__) || defined(__aarch64__)
#define HAS_FILTER true
#else
#define HAS_FILTER false
#endif

/* valgrind makes calls of its own in the child. */
static bool can_be_confined(void)
{
    return HAS_FILTER && getenv("VARJFS_TEST_WRAPPER") == NULL;
}

/* The status of a child that is confined and runs @body. */
static int status_confined(void (*body)(void))
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        vj_guard_confine();
        body();
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

#define MUST(what)                                                                       \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "# %s: %s\n", #what, g_strerror(errno));                     \
            _exit(1);                                                                    \
        }                                                                                \
    } while (0)

/* ---- what is refused --------------------------------------------------------------- */

/* With arguments by which each fails otherwise where there is no filter, or does
 * nothing. */
static void others_are_refused_body(void)
{
    static const struct {
        const char *name;
        long number, first;
        int error;
    } refused[] = {
        {"execve", SYS_execve, 0, EPERM},
        {"execveat", SYS_execveat, -1, EPERM},
        {"mount", SYS_mount, 0, EPERM},
        {"pivot_root", SYS_pivot_root, 0, EPERM},
        {"chroot", SYS_chroot, 0, EPERM},
        {"chdir", SYS_chdir, 0, EPERM},
        {"setns", SYS_setns, -1, EPERM},
        {"unshare", SYS_unshare, 0, EPERM},
        {"clone of a namespace", SYS_clone, CLONE_NEWUTS | SIGCHLD, EPERM},
        {"ptrace", SYS_ptrace, -1, EPERM},
        {"process_vm_readv", SYS_process_vm_readv, -1, EPERM},
        {"kill", SYS_kill, INT32_MAX, EPERM},
        {"socket", SYS_socket, -1, EPERM},
        {"connect", SYS_connect, -1, EPERM},
        {"ioctl", SYS_ioctl, -1, EPERM},
        {"open_by_handle_at", SYS_open_by_handle_at, -1, EPERM},
        {"getdents64", SYS_getdents64, -1, EPERM},
        {"linkat", SYS_linkat, -1, EPERM},
        {"symlinkat", SYS_symlinkat, 0, EPERM},
        {"mknodat", SYS_mknodat, -1, EPERM},
        {"fchmodat", SYS_fchmodat, -1, EPERM},
        {"fchown", SYS_fchown, -1, EPERM},
        {"fchownat", SYS_fchownat, -1, EPERM},
        {"ftruncate", SYS_ftruncate, -1, EPERM},
        {"fsetxattr", SYS_fsetxattr, -1, EPERM},
        {"setuid", SYS_setuid, -1, EPERM},
        {"capset", SYS_capset, 0, EPERM},
        {"prctl", SYS_prctl, -1, EPERM},
        {"seccomp", SYS_seccomp, -1, EPERM},
        {"keyctl", SYS_keyctl, -1, EPERM},
        {"bpf", SYS_bpf, -1, EPERM},
        {"init_module", SYS_init_module, 0, EPERM},
        {"perf_event_open", SYS_perf_event_open, 0, EPERM},
        {"userfaultfd", SYS_userfaultfd, -1, EPERM},
        {"memfd_create", SYS_memfd_create, 0, EPERM},
        {"io_uring_setup", 425, 0, ENOSYS},
        {"open_tree", 428, -1, ENOSYS},
        {"move_mount", 429, -1, ENOSYS},
        {"fsopen", 430, 0, ENOSYS},
        {"pidfd_open", 434, -1, ENOSYS},
        {"clone3", 435, 0, ENOSYS},
        {"openat2", 437, -1, ENOSYS},
        {"pidfd_getfd", 438, -1, ENOSYS},
        {"mount_setattr", 442, -1, ENOSYS},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(refused); i++) {
        errno = 0;
        if (syscall(refused[i].number, refused[i].first, 0, 0, 0, 0) != -1 ||
            errno != refused[i].error) {
            fprintf(stderr, "# %s: %s\n", refused[i].name, g_strerror(errno));
            _exit(1);
        }
    }
}

static void others_are_refused(void **state)
{
    (void)state;
    if (!can_be_confined()) {
        skip();
    }
    assert_int_equal(status_confined(others_are_refused_body), 0);
}

/* ---- what goes on ------------------------------------------------------------------ */

static char directory[] = "/tmp/test-guard-calls.XXXXXX";

/* What utab.c does, in another directory. */
static void a_table_is_changed_body(void)
{
    g_autofree char *below = g_strdup_printf("%s/below", directory);
    g_autofree char *file = g_strdup_printf("%s/file", below);
    g_autofree char *other = g_strdup_printf("%s/file.XXXXXX", below);
    g_autofree char *text = NULL;
    char events[4096];
    struct pollfd p = {.events = POLLIN};
    int lock, fd;

    MUST(mkdir(below, 0755) == 0);
    lock = open(file, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    MUST(lock >= 0);
    p.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    MUST(p.fd >= 0 && inotify_add_watch(p.fd, file, IN_CLOSE) >= 0);
    MUST(flock(lock, LOCK_EX | LOCK_NB) == 0);
    MUST(poll(&p, 1, 1) == 0 && read(p.fd, events, sizeof events) < 0 && errno == EAGAIN);
    fd = g_mkstemp_full(other, O_RDWR | O_CLOEXEC, 0600);
    MUST(fd >= 0 && vj_fd_write_all(fd, "text", 4) == 0 && fchmod(fd, 0644) == 0);
    MUST(rename(other, file) == 0);
    MUST(g_file_get_contents(file, &text, NULL, NULL) && strcmp(text, "text") == 0);
    MUST(vj_clock_mono_us() > 0);
    MUST(unlink(file) == 0 && close(fd) == 0 && close(p.fd) == 0 && close(lock) == 0);
}

static void a_table_is_changed(void **state)
{
    g_autofree char *below = NULL;

    (void)state;
    if (!can_be_confined()) {
        skip();
    }
    assert_non_null(g_mkdtemp(directory));
    below = g_strdup_printf("%s/below", directory);
    assert_int_equal(status_confined(a_table_is_changed_body), 0);
    assert_int_equal(rmdir(below), 0);
    assert_int_equal(rmdir(directory), 0);
}

static int umount_errno; /* for what is not there; only root is told */

/* What the guard does with a mount. */
static void a_child_syncs_body(void)
{
    struct stat st;
    int status, fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pid_t child;

    MUST(fd >= 0 && dup2(fd, 77) == 77 && stat("/", &st) == 0);
    child = fork();
    if (child == 0) {
        struct statx known;
        int own = open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC);

        MUST(statx(own, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &known) == 0);
        MUST(syncfs(-1) < 0 && errno == EBADF);
        MUST(umount2("/proc/self/fd/12345", MNT_DETACH) < 0 && errno == umount_errno);
        _exit(7);
    }
    MUST(child > 0 && waitpid(child, &status, 0) == child);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void a_child_syncs(void **state)
{
    (void)state;
    if (!can_be_confined()) {
        skip();
    }
    umount_errno = umount2("/proc/self/fd/12345", MNT_DETACH) < 0 ? errno : 0;
    assert_int_not_equal(umount_errno, 0);
    assert_int_equal(status_confined(a_child_syncs_body), 0);
}

/* Small blocks, and one that is a mapping and grows. */
static void memory_comes_and_goes_body(void)
{
    GPtrArray *blocks = g_ptr_array_new_with_free_func(g_free);
    char *large = g_malloc0(1 << 20);

    for (unsigned i = 0; i < 10000; i++) {
        g_ptr_array_add(blocks, g_strdup_printf("block %u", i));
    }
    large = g_realloc(large, 8 << 20);
    memset(large, 1, 8 << 20);
    MUST(large[(8 << 20) - 1] == 1 && strcmp(blocks->pdata[9999], "block 9999") == 0);
    g_free(large);
    g_ptr_array_free(blocks, TRUE);
}

static void memory_comes_and_goes(void **state)
{
    (void)state;
    if (!can_be_confined()) {
        skip();
    }
    assert_int_equal(status_confined(memory_comes_and_goes_body), 0);
}

/* A failed assertion ends the guard, rather than going round in refused calls. */
static void it_can_abort(void **state)
{
    int status;

    (void)state;
    if (!can_be_confined()) {
        skip();
    }
    status = status_confined(abort);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(others_are_refused), cmocka_unit_test(a_table_is_changed),
    cmocka_unit_test(a_child_syncs),      cmocka_unit_test(memory_comes_and_goes),
    cmocka_unit_test(it_can_abort),
};

VJ_TEST_MAIN(tests)
