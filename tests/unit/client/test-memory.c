/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-memory.c - each allocation of libvarjfs, and each call that opens or starts
 * something, fails in turn
 *
 * All that the library does is done beside a daemon that answers.  What fails says so,
 * with the error that it was given; nothing is lost, and nothing ends the process.
 */
#include "fake-daemon.h"

#include <spawn.h>

int __real_socket(int domain, int type, int protocol);
int __real_pipe2(int ends[2], int flags);
int __real_open64(const char *path, int flags, ...);
int __real_posix_spawnp(pid_t *pid, const char *file,
                        const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const argv[],
                        char *const environment[]);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_pipe2(int ends[2], int flags);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_posix_spawnp(pid_t *pid, const char *file,
                        const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const argv[],
                        char *const environment[]);

/* Of the thread that calls the library, and not of the daemon's. */
static _Thread_local bool is_counting;
static _Thread_local unsigned calls, failing, failed;
static _Thread_local int live;

/* This call is the one that fails. */
static bool fails(void)
{
    if (!is_counting || ++calls != failing) {
        return false;
    }
    failed++;
    errno = ENOMEM;
    return true;
}

#include "../../lib/wrap-malloc.h"

int __wrap_socket(int domain, int type, int protocol)
{
    return fails() ? -1 : __real_socket(domain, type, protocol);
}

int __wrap_pipe2(int ends[2], int flags)
{
    return fails() ? -1 : __real_pipe2(ends, flags);
}

/* Without a mode: the library makes no file. */
int __wrap_open64(const char *path, int flags, ...)
{
    return fails() ? -1 : __real_open64(path, flags);
}

int __wrap_posix_spawnp(pid_t *pid, const char *file,
                        const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const argv[],
                        char *const environment[])
{
    return fails()
               ? ENOMEM
               : __real_posix_spawnp(pid, file, actions, attributes, argv, environment);
}

static unsigned open_files(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Who had no memory behind connect(2) comes again. */
static void serve(FakeDaemon *d)
{
    uint8_t byte;

    while (recv(d->fd, &byte, 1, MSG_PEEK) <= 0) {
        fake_close(d);
        fake_accept(d);
    }
    fake_hello(d, 0);
    fake_serve(d);
}

/* -ENOMEM where a call failed and no other error anywhere. */
static int expect(int rc)
{
    if (rc < 0 && rc != -ENOMEM) {
        fail_msg("%d where call %u failed", rc, failing);
    }
    return rc;
}

#define MANY 4200

static void add_all(varjfs_batch *b, struct varjfs_object_status *status, char *bytes)
{
    struct varjfs_object_options options = {.size = sizeof options, .transform = "lz4"};
    const struct varjfs_attribute given[] = {{"a", "1", 1}, {"b", NULL, 0}};
    int results[8];

    memset(results, 1, sizeof results);
    expect(varjfs_object_create(b, "s", "o", &options, &results[0]));
    expect(varjfs_object_write(b, "s", "o", "abc", 3, 0, 0, &results[1]));
    expect(varjfs_object_read(b, "s", "o", bytes, 8, 0, NULL, &results[2]));
    expect(varjfs_object_status(b, "s", "o", status, &results[3]));
    expect(varjfs_kv_get(b, "s", "k", 1, bytes, 8, NULL, &results[4]));
    expect(varjfs_item_create(b, "s", "i", &options, given, 2, &results[5]));
    expect(varjfs_attribute_get(b, "s", "i", "a", bytes, 8, NULL, &results[6]));
    expect(varjfs_object_rename(b, "s", "i", "j", 0, &results[7]));
    expect(varjfs_batch_execute(b));
    for (size_t i = 0; i < 8; i++) {
        if (results[i] != 1) { /* it was added */
            expect(results[i]);
        }
    }
}

static void use(varjfs *v)
{
    struct varjfs_semantics s = {.size = sizeof s};
    struct varjfs_object_status status = {.size = sizeof status};
    struct varjfs_entry entry = {.size = sizeof entry};
    const char *const names[] = {"a", "b"};
    varjfs_batch *b, *deferred;
    varjfs_iterator *i;
    char bytes[8];

    assert_int_equal(varjfs_semantics_template("temporary", &s), 0);
    if (expect(varjfs_batch_new(v, NULL, &b)) == 0) {
        add_all(b, &status, bytes);
        for (unsigned n = 0; n < MANY; n++) {
            expect(varjfs_kv_delete(b, "s", "k", 1, NULL));
        }
        if (expect(varjfs_batch_submit(b)) == 0) {
            expect(varjfs_batch_test(b));
            expect(varjfs_batch_wait(b));
        }
    }
    if (expect(varjfs_batch_new(v, &s, &deferred)) == 0) {
        for (unsigned n = 0; n < 3; n++) {
            expect(varjfs_kv_put(deferred, "s", n == 1 ? "j" : "k", 1, "v", 1, 0, NULL));
            expect(varjfs_batch_execute(deferred));
        }
        expect(varjfs_object_create(deferred, "s", "o", NULL, NULL));
    }
    if (expect(varjfs_kv_iterate(v, "s", NULL, 0, &i)) == 0) {
        while (expect(varjfs_iterator_next(i, &entry)) == 1) {
        }
    }
    if (expect(varjfs_item_iterate(v, "s", NULL, names, 2, &i)) == 0) {
        while (expect(varjfs_iterator_next(i, &entry)) == 1) {
        }
    }
    if (expect(varjfs_attribute_iterate(v, "s", "o", NULL, &i)) == 0) {
        while (expect(varjfs_iterator_next(i, &entry)) == 1) {
        }
    }
    expect(varjfs_namespace_delete(v, VARJFS_KEYS, "s", NULL, NULL));
    expect(varjfs_sync(v));
}

/* One round; true where a call has failed, so that there may be more. */
static bool try_address(void)
{
    unsigned files = open_files();
    FakeDaemon d = {0};
    varjfs *v;

    fake_start(&d, serve);
    is_counting = true;
    if (expect(fake_open(&d, 0, &v)) == 0) {
        use(v);
        expect(varjfs_close(v));
    } else {
        int fd;

        is_counting = false;
        assert_null(v);
        /* The script waits for somebody. */
        fd = fake_open(&d, 0, &v);
        assert_int_equal(fd, 0);
        assert_int_equal(varjfs_close(v), 0);
    }
    is_counting = false;
    fake_stop(&d);
    assert_int_equal(live, 0);
    assert_int_equal(open_files(), files);
    return failed > 0;
}

static void test_address(void **state)
{
    unsigned rounds = 0;

    (void)state;
    do {
        calls = failed = 0;
        failing = ++rounds;
    } while (try_address());
    assert_true(rounds > 15);
}

/* The daemon of a directory cannot be started, or its path is too long. */
static void test_directory(void **state)
{
    g_autofree char *top = vj_test_make_dir(), *name = g_strnfill(150, 'd');
    g_autofree char *directory = g_build_filename(top, name, NULL);
    g_autofree char *conf = g_build_filename(directory, "varjfs.conf", NULL);
    struct varjfs_options o = {.size = sizeof o, .daemon = "false", .timeout_ms = 5000};
    unsigned files = open_files(), rounds = 0;

    (void)state;
    assert_int_equal(mkdir(directory, 0700), 0);
    assert_true(g_file_set_contents(conf, "", -1, NULL));
    do {
        varjfs *v;
        int rc;

        calls = failed = 0;
        failing = ++rounds;
        is_counting = true;
        rc = varjfs_open(directory, &o, &v);
        is_counting = false;
        assert_int_equal(rc, failed > 0 ? -ENOMEM : -ECONNREFUSED);
        assert_null(v);
        assert_true(strlen(varjfs_open_error()) > 0);
        assert_int_equal(live, 0);
        assert_int_equal(open_files(), files);
    } while (failed > 0);
    assert_true(rounds > 5);
    vj_test_remove_dir(g_steal_pointer(&top));
}

static const struct CMUnitTest tests[] = {
    {"/memory/address", test_address, NULL, NULL, NULL},
    {"/memory/directory", test_directory, NULL, NULL, NULL},
};

VJ_TEST_MAIN(tests)
