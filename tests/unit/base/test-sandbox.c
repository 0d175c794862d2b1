/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-sandbox.c - what is left of files and sockets
 *
 * There is no way back, so each test is a child that tries and tells by its status.
 */
#include "../../lib/test.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_FILTER false
#elif defined(__x86_64__) || defined(__aarch64__)
#define HAS_FILTER true
#else
#define HAS_FILTER false
#endif

/* A sanitizer's reports want calls, and files to read. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIMITS_READING false
#else
#define LIMITS_READING true
#endif

#define LANDLOCK_CREATE_RULESET 444
#define LANDLOCK_VERSION 1u
#define LANDLOCK_WITH_TCP 4

/* What the child found. */
enum { AS_EXPECTED = 0, DIFFERENT = 1 };

static bool is_wrapped(void)
{
    return getenv("VARJFS_TEST_WRAPPER") != NULL; /* valgrind makes calls of its own */
}

static long landlock_version(void)
{
    return is_wrapped() ? -1
                        : syscall(LANDLOCK_CREATE_RULESET, NULL, 0, LANDLOCK_VERSION);
}

/* @got: 0 or -1 with errno.  @wanted: 0 or an errno. */
static bool is_so(const char *what, int got, int wanted)
{
    int failed = got < 0 ? errno : 0;

    if (failed != wanted) {
        fprintf(stderr, "# %s: %s, not %s\n", what, g_strerror(failed),
                g_strerror(wanted));
    }
    return failed == wanted;
}

static void expect_child(pid_t child)
{
    int status;

    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), AS_EXPECTED);
}

/* ---- sockets ----------------------------------------------------------------------- */

typedef struct Kind {
    const char *name;
    int family, type;
    uint32_t needs; /* of it one is enough; 0: never */
    bool is_syslog;
} Kind;

static const Kind kinds[] = {
    {"unix stream", AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, VJ_NEEDS_UNIX, false},
    {"unix datagram", AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, true},
    {"TCP", AF_INET, SOCK_STREAM | SOCK_NONBLOCK, VJ_NEEDS_TCP, false},
    {"TCP over IPv6", AF_INET6, SOCK_STREAM, VJ_NEEDS_TCP, false},
    {"UDP", AF_INET, SOCK_DGRAM, VJ_NEEDS_TCP, false}, /* asks for addresses */
    {"UDP over IPv6", AF_INET6, SOCK_DGRAM, VJ_NEEDS_TCP, false},
    {"raw", AF_INET, SOCK_RAW, 0, false},
    {"netlink", AF_NETLINK, SOCK_RAW, 0, false},
    {"vsock", AF_VSOCK, SOCK_STREAM, 0, false},
};

static bool try_sockets(const VjSandbox *plan)
{
    bool ok = true;

    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
        const Kind *k = &kinds[i];
        bool may = (plan->sockets & k->needs) != 0 || (plan->has_syslog && k->is_syslog);
        int fd = socket(k->family, k->type, 0);

        /* What may be made can be missing in this kernel. */
        if (may ? fd < 0 && errno == EACCES : !is_so(k->name, fd, EACCES)) {
            fprintf(stderr, "# with needs %u: %s\n", plan->sockets, k->name);
            ok = false;
        }
        vj_fd_close(&fd);
    }
    return ok;
}

static void sockets_as_needed(void **state)
{
    (void)state;
    if (!HAS_FILTER || is_wrapped()) {
        skip();
    }
    for (uint32_t needs = 0; needs <= VJ_NEEDS_ALL; needs++) {
        for (unsigned log = 0; log < 2; log++) {
            pid_t child = fork();

            if (child == 0) {
                VjSandbox plan = {.sockets = needs, .has_syslog = log == 1};

                vj_sandbox_enter(&plan);
                _exit(try_sockets(&plan) ? AS_EXPECTED : DIFFERENT);
            }
            expect_child(child);
        }
    }
}

/* What syslog(3) does, to a socket of our own. */
static void log_goes_out(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char *dir = vj_test_make_dir(), got[8] = "";
    VJ_AUTO_FD listener = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const struct sockaddr *to = (const struct sockaddr *)&address;
    pid_t child;

    (void)state;
    g_snprintf(address.sun_path, sizeof address.sun_path, "%s/log", dir);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, to, sizeof address), 0);
    child = fork();
    if (child == 0) {
        VjSandbox plan = {.has_syslog = true};
        int fd;

        vj_sandbox_enter(&plan);
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        _exit(is_so("connect", connect(fd, to, sizeof address), 0) &&
                      send(fd, "line", 4, 0) == 4
                  ? AS_EXPECTED
                  : DIFFERENT);
    }
    expect_child(child);
    assert_int_equal(recv(listener, got, sizeof got, MSG_DONTWAIT), 4);
    assert_string_equal(got, "line");
    vj_test_remove_dir(dir);
}

/* A listener on 127.0.0.1; *address is its own. */
static int listen_tcp(struct sockaddr_in *address)
{
    socklen_t len = sizeof *address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *address = (struct sockaddr_in){.sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)address, sizeof *address), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)address, &len), 0);
    return fd;
}

/* With a socket from before, which no filter of socket(2) stops. */
static void connects_as_needed(void **state)
{
    struct sockaddr_in address;
    VJ_AUTO_FD listener = listen_tcp(&address);

    (void)state;
    if (landlock_version() < LANDLOCK_WITH_TCP && (!HAS_FILTER || is_wrapped())) {
        skip();
    }
    for (uint32_t needs = 0; needs <= VJ_NEEDS_ALL; needs++) {
        bool may = (needs & VJ_NEEDS_TCP) != 0;
        pid_t child;

        /* The filter knows no address: Landlock alone keeps a TCP socket from it then. */
        if (!may && (needs & VJ_NEEDS_UNIX) != 0 &&
            landlock_version() < LANDLOCK_WITH_TCP) {
            continue;
        }
        child = fork();
        if (child == 0) {
            VjSandbox plan = {.sockets = needs};
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            bool ok;

            vj_sandbox_enter(&plan);
            ok =
                is_so("connect", connect(fd, (struct sockaddr *)&address, sizeof address),
                      may ? 0 : EACCES);
            _exit(ok ? AS_EXPECTED : DIFFERENT);
        }
        expect_child(child);
    }
}

static void nobody_listens(void **state)
{
    pid_t child;

    (void)state;
    if (!HAS_FILTER || is_wrapped()) {
        skip();
    }
    child = fork();
    if (child == 0) {
        VjSandbox plan = {.sockets = VJ_NEEDS_ALL, .has_syslog = true};
        struct sockaddr_in address = {.sin_family = AF_INET};
        int fd = socket(AF_INET, SOCK_STREAM, 0), pair[2];
        bool ok;

        vj_sandbox_enter(&plan);
        ok = is_so("bind", bind(fd, (struct sockaddr *)&address, sizeof address), EPERM);
        ok &= is_so("listen", listen(fd, 1), EPERM);
        ok &= is_so("accept", accept(fd, NULL, NULL), EPERM);
        ok &= is_so("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair), EPERM);
        _exit(ok ? AS_EXPECTED : DIFFERENT);
    }
    expect_child(child);
}

/* A socket that has a name in a directory which the process may not read. */
static void connects_by_path(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char *dir = vj_test_make_dir();
    VJ_AUTO_FD listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr *to = (const struct sockaddr *)&address;
    pid_t child;

    (void)state;
    g_snprintf(address.sun_path, sizeof address.sun_path, "%s/peer", dir);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, to, sizeof address), 0);
    assert_int_equal(listen(listener, 8), 0);
    child = fork();
    if (child == 0) {
        VjSandbox plan = {.sockets = VJ_NEEDS_UNIX};
        int fd;

        vj_sandbox_enter(&plan);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        _exit(is_so("connect", connect(fd, to, sizeof address), 0) ? AS_EXPECTED
                                                                   : DIFFERENT);
    }
    expect_child(child);
    vj_test_remove_dir(dir);
}

/* 0, or a number of getaddrinfo(3). */
static int find_address(const char *name)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int r = getaddrinfo(name, "7843", &hints, &found);

    if (r == 0) {
        freeaddrinfo(found);
    }
    return r;
}

/* The name of this machine that /etc/hosts has, which the resolver reads. */
static void names_are_found(void **state)
{
    (void)state;
    if (landlock_version() < 2 || !LIMITS_READING || access("/etc/hosts", R_OK) != 0) {
        skip();
    }
    for (unsigned tcp = 0; tcp < 2; tcp++) {
        pid_t child = fork();

        if (child == 0) {
            VjSandbox plan = {.sockets = tcp == 1 ? VJ_NEEDS_TCP : VJ_NEEDS_UNIX};
            VJ_AUTO_FD fd = -1;
            bool ok;

            vj_sandbox_enter(&plan);
            fd = open("/etc/hosts", O_RDONLY | O_CLOEXEC);
            ok = is_so("read the hosts", fd < 0 ? -1 : 0, tcp == 1 ? 0 : EACCES);
            if (tcp == 1 && find_address("localhost") != 0) {
                fprintf(stderr, "# no address of localhost\n");
                ok = false;
            }
            _exit(ok ? AS_EXPECTED : DIFFERENT);
        }
        expect_child(child);
    }
}

/* ---- files ------------------------------------------------------------------------- */

typedef struct Rights {
    bool names, write;
} Rights;

/* 0, or -1 with errno. */
static int try_open(int dir_fd, const char *name, int flags)
{
    VJ_AUTO_FD fd = openat(dir_fd, name, flags | O_CLOEXEC, 0600);

    return fd < 0 ? -1 : 0;
}

static bool try_files(int dir_fd, Rights may)
{
    int names = may.names ? 0 : EACCES, write = may.write ? 0 : EACCES;
    bool ok = true;

    ok &= is_so("read", try_open(dir_fd, "old", O_RDONLY), 0);
    ok &= is_so("list", try_open(dir_fd, ".", O_RDONLY | O_DIRECTORY), 0);
    ok &= is_so("make", try_open(dir_fd, "new", O_RDONLY | O_CREAT | O_EXCL), names);
    ok &= is_so("write", try_open(dir_fd, "old", O_WRONLY), write);
    ok &= is_so("write below", try_open(dir_fd, "sub/old", O_WRONLY), write);
    ok &= is_so("truncate", try_open(dir_fd, "old", O_WRONLY | O_TRUNC), write);
    ok &= is_so("rename", renameat(dir_fd, "mark", dir_fd, "other"), names);
    ok &= is_so("remove", unlinkat(dir_fd, "gone", 0), names);
    ok &= is_so("make a directory", mkdirat(dir_fd, "dir", 0700), write);
    ok &= is_so("remove a directory", unlinkat(dir_fd, "empty", AT_REMOVEDIR), write);
    ok &= is_so("make a link", symlinkat("old", dir_fd, "link"), write);
    return ok;
}

static void make_file(int dir_fd, const char *name)
{
    VJ_AUTO_FD fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
}

static int make_tree(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_true(fd >= 0);
    make_file(fd, "old");
    make_file(fd, "mark");
    make_file(fd, "gone");
    assert_int_equal(mkdirat(fd, "sub", 0700), 0);
    assert_int_equal(mkdirat(fd, "empty", 0700), 0);
    make_file(fd, "sub/old");
    return fd;
}

static void files_as_allowed(void **state)
{
    static const Rights rights[] = {
        [VJ_SANDBOX_READ] = {false, false},
        [VJ_SANDBOX_NAMES] = {true, false},
        [VJ_SANDBOX_WRITE] = {true, true},
    };

    (void)state;
    if (landlock_version() < 2) {
        skip();
    }
    for (size_t i = 0; i < G_N_ELEMENTS(rights); i++) {
        char *path = vj_test_make_dir(), *other = vj_test_make_dir();
        VJ_AUTO_FD fd = make_tree(path);
        VJ_AUTO_FD other_fd = make_tree(other);
        pid_t child = fork();

        if (child == 0) {
            VjSandbox plan = {.dirs = {{fd, (VjSandboxAccess)i}}, .dir_count = 1};
            bool ok;

            vj_sandbox_enter(&plan);
            ok = try_files(fd, rights[i]);
            ok &= is_so("write elsewhere", try_open(other_fd, "old", O_WRONLY), EACCES);
            ok &= is_so("remove elsewhere", unlinkat(other_fd, "gone", 0), EACCES);
            _exit(ok ? AS_EXPECTED : DIFFERENT);
        }
        expect_child(child);
        vj_test_remove_dir(path);
        vj_test_remove_dir(other);
    }
}

/* One file, and not what is beside it. */
static void single_file(void **state)
{
    char *path;
    pid_t child;

    (void)state;
    if (landlock_version() < 2 || !LIMITS_READING) {
        skip();
    }
    path = vj_test_make_dir();
    {
        VJ_AUTO_FD fd = make_tree(path);
        VJ_AUTO_FD file = openat(fd, "old", O_PATH | O_CLOEXEC);

        child = fork();
        if (child == 0) {
            VjSandbox plan = {.dirs = {{file, VJ_SANDBOX_READ}}, .dir_count = 1};
            bool ok;

            vj_sandbox_enter(&plan);
            ok = is_so("read", try_open(fd, "old", O_RDONLY), 0);
            ok &= is_so("write", try_open(fd, "old", O_WRONLY), EACCES);
            ok &= is_so("read another", try_open(fd, "mark", O_RDONLY), EACCES);
            ok &= is_so("list", try_open(fd, ".", O_RDONLY | O_DIRECTORY), EACCES);
            _exit(ok ? AS_EXPECTED : DIFFERENT);
        }
    }
    expect_child(child);
    vj_test_remove_dir(path);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sockets_as_needed),  cmocka_unit_test(log_goes_out),
    cmocka_unit_test(connects_as_needed), cmocka_unit_test(nobody_listens),
    cmocka_unit_test(connects_by_path),   cmocka_unit_test(names_are_found),
    cmocka_unit_test(files_as_allowed),   cmocka_unit_test(single_file),
};

VJ_TEST_MAIN(tests)
