/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-start.c - the daemon of a directory: programs that stand in for it, and varjfsd
 */
#include "../../../lib/client/client-private.h"
#include "fake-daemon.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>

typedef struct Start {
    char *directory, *program;
} Start;

static void setup(Start *s, bool has_volume, const char *script)
{
    g_autofree char *conf = NULL, *text = g_strdup_printf("#!/bin/sh\n%s\n", script);

    s->directory = vj_test_make_dir();
    s->program = g_build_filename(s->directory, "program", NULL);
    conf = g_build_filename(s->directory, "varjfs.conf", NULL);
    assert_true(g_file_set_contents(s->program, text, -1, NULL));
    assert_int_equal(chmod(s->program, 0700), 0);
    if (has_volume) {
        assert_true(g_file_set_contents(conf, "", -1, NULL));
    }
}

static void teardown(Start *s)
{
    vj_test_remove_dir(s->directory);
    g_free(s->program);
}

static int open_with(const Start *s, int timeout_ms)
{
    struct varjfs_options o = {
        .size = sizeof o, .daemon = s->program, .timeout_ms = timeout_ms};
    varjfs *v;
    int rc = varjfs_open(s->directory, &o, &v);

    assert_true(rc != 0);
    assert_null(v);
    return rc;
}

static void expect(const char *script, int timeout_ms, int error, const char *text)
{
    Start s;
    int rc;

    setup(&s, true, script);
    rc = open_with(&s, timeout_ms);
    if (rc != error || strstr(varjfs_open_error(), text) == NULL) {
        fail_msg("%s: %d, %s", script, rc, varjfs_open_error());
    }
    teardown(&s);
}

static void test_start_fails(void **state)
{
    Start s;

    (void)state;
    expect("echo first >&2; printf 'the \\033 cause' >&2; exit 1", 0, -ECONNREFUSED,
           "the ? cause");
    expect("i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i + 1)); done; exit 3",
           0, -ECONNREFUSED, "line 2999");
    expect("kill -9 $$", 0, -ECONNREFUSED, "");
    /* It ends, and nobody serves. */
    expect("exit 0", 100, -ETIMEDOUT, "");
    /* It does not end. */
    expect("exec sleep 1000", 100, -ETIMEDOUT, "");
    setup(&s, true, "exit 0");
    assert_int_equal(unlink(s.program), 0);
    assert_int_equal(open_with(&s, 0), -ECONNREFUSED);
    assert_non_null(strstr(varjfs_open_error(), "program"));
    teardown(&s);
}

/* Another program has the volume; it might be about to end. */
static void test_in_use(void **state)
{
    static const char *const scripts[] = {
        "echo x >>$3/runs; exit 16",
        "echo x >>$3/runs; echo 'it is in use by another varjfs process' >&2; exit 1"};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(scripts); i++) {
        g_autofree char *path = NULL, *runs = NULL;
        struct varjfs_options o = {.size = sizeof o, .timeout_ms = 30000};
        varjfs *v = NULL;
        Start s;

        setup(&s, true, scripts[i]);
        o.daemon = s.program;
        path = g_build_filename(s.directory, "runs", NULL);
        assert_int_equal(vjc_open_directory(s.directory, &o, 30, &v), -EBUSY);
        assert_true(g_file_get_contents(path, &runs, NULL, NULL));
        assert_true(strlen(runs) >= 2); /* it was tried at least once */
        teardown(&s);
    }
}

static void test_words(void **state)
{
    Start s;
    g_autofree char *path = NULL, *expected = NULL, *found = NULL;
    int inherited;

    (void)state;
    setup(&s, true,
          "{ echo \"$*\"; ls -l /proc/self/fd | grep -c ' [3-9] ->'; cat; } "
          ">\"$3/words\"; exit 1");
    path = g_build_filename(s.directory, "words", NULL);
    /* The only one is that of ls itself. */
    expected = g_strdup_printf("-d --source %s\n1\n", s.directory);
    inherited = dup(STDOUT_FILENO);
    assert_true(inherited >= 0);
    assert_int_equal(open_with(&s, 0), -ECONNREFUSED);
    assert_true(g_file_get_contents(path, &found, NULL, NULL));
    assert_string_equal(found, expected);
    close(inherited);
    teardown(&s);
}

/* A program that waits for each of its children, or for none. */
static void test_foreign_wait(void **state)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;

    (void)state;
    assert_int_equal(sigaction(SIGCHLD, &ignore, &before), 0);
    expect("exit 1", 100, -ETIMEDOUT, "");
    assert_int_equal(sigaction(SIGCHLD, &before, NULL), 0);
}

/* ---- varjfsd ----------------------------------------------------------------------- */

static char *built(const char *name)
{
    const char *top = g_getenv("VARJFS_BUILDDIR");

    return g_build_filename(top != NULL ? top : ".", name, NULL);
}

static void run(const char *program, const char *word)
{
    g_autofree char *path = built(program);
    const char *argv[] = {path, word, NULL};
    g_autoptr(GError) error = NULL;
    int status;

    if (!g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_STDOUT_TO_DEV_NULL,
                      NULL, NULL, NULL, NULL, &status, &error)) {
        fail_msg("%s: %s", path, error->message);
    }
    assert_int_equal(status, 0);
}

typedef struct Volume {
    char *directory, *program;
} Volume;

static void make_volume(Volume *volume)
{
    volume->directory = vj_test_make_dir();
    volume->program = built("varjfsd");
    run("mkfs.varjfs", volume->directory);
}

static int open_volume(const Volume *volume, varjfs **v)
{
    struct varjfs_options o = {.size = sizeof o, .daemon = volume->program};

    return varjfs_open(volume->directory, &o, v);
}

/* The daemon ends by itself, some seconds after its last connection; here at once. */
static void remove_volume(Volume *volume)
{
    g_autofree char *path = g_build_filename(volume->directory, "varjfsd.sock", NULL);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct ucred peer;
    socklen_t len = sizeof peer;

    g_strlcpy(at.sun_path, path, sizeof at.sun_path);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0) {
        struct pollfd end = {.events = POLLIN};

        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len), 0);
        end.fd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
        assert_true(end.fd >= 0);
        assert_int_equal(kill(peer.pid, SIGTERM), 0);
        assert_int_equal(poll(&end, 1, 30000), 1);
        close(end.fd);
    }
    close(fd);
    g_free(volume->program);
    vj_test_remove_dir(volume->directory);
}

static void check_key(varjfs *v, bool put)
{
    char value[8] = "";
    varjfs_batch *b;

    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    if (put) {
        assert_int_equal(varjfs_kv_put(b, "s", "k", 1, "value", 5, 0, NULL), 0);
    }
    assert_int_equal(varjfs_kv_get(b, "s", "k", 1, value, sizeof value, NULL, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_string_equal(value, "value");
    varjfs_batch_free(b);
}

static gpointer open_and_put(gpointer opaque)
{
    varjfs *v = NULL;
    int rc = open_volume(opaque, &v);

    g_assert(rc == 0);
    return v;
}

/* Several begin at once: one daemon comes of it, and serves them all. */
static void test_together(void **state)
{
    GThread *threads[4];
    Volume volume;
    varjfs *v[4];

    (void)state;
    make_volume(&volume);
    for (size_t i = 0; i < 4; i++) {
        threads[i] = g_thread_new("opens", open_and_put, &volume);
    }
    for (size_t i = 0; i < 4; i++) {
        v[i] = g_thread_join(threads[i]);
        check_key(v[i], i == 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(varjfs_close(v[i]), 0);
    }
    assert_int_equal(open_volume(&volume, &v[0]), 0);
    check_key(v[0], false);
    assert_int_equal(varjfs_close(v[0]), 0);
    remove_volume(&volume);
}

/* Objects as byte arrays have them: edits of any place, beside a model. */
static void test_edits(void **state)
{
    g_autoptr(GByteArray) model = g_byte_array_new();
    g_autoptr(GRand) random = g_rand_new_with_seed(14);
    uint8_t bytes[3000], back[3000 * 60];
    struct varjfs_object_status status = {.size = sizeof status};
    Volume volume;
    size_t got = 0;
    varjfs_batch *b;
    varjfs *v;

    (void)state;
    make_volume(&volume);
    assert_int_equal(open_volume(&volume, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_object_create(b, "s", "o", NULL, NULL), 0);
    for (unsigned i = 0; i < 50; i++) {
        uint32_t at = (uint32_t)g_rand_int_range(random, 0, (gint32)model->len + 1);
        uint32_t len = (uint32_t)g_rand_int_range(random, 0, sizeof bytes);
        uint32_t old =
            (uint32_t)g_rand_int_range(random, 0, (gint32)(model->len - at) + 1);
        g_autoptr(GByteArray) next = g_byte_array_new();

        for (uint32_t n = 0; n < len; n++) {
            bytes[n] = (uint8_t)g_rand_int(random);
        }
        assert_int_equal(varjfs_object_rwrite(b, "s", "o", bytes, len, at, old, 0, NULL),
                         0);
        assert_int_equal(varjfs_batch_execute(b), 0);
        g_byte_array_append(next, model->data, at);
        g_byte_array_append(next, bytes, len);
        g_byte_array_append(next, model->data + at + old, model->len - at - old);
        g_byte_array_set_size(model, 0);
        g_byte_array_append(model, next->data, next->len);
    }
    assert_int_equal(varjfs_object_read(b, "s", "o", back, sizeof back, 0, &got, NULL),
                     0);
    assert_int_equal(varjfs_object_status(b, "s", "o", &status, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(got, model->len);
    assert_int_equal(status.bytes, model->len);
    assert_memory_equal(back, model->data, model->len);
    /* All that is there, from any place. */
    assert_int_equal(varjfs_object_rwrite(b, "s", "o", "abc", 3, 10, UINT64_MAX, 0, NULL),
                     0);
    assert_int_equal(varjfs_object_rwrite(b, "s", "o", "X", 1, 12, SIZE_MAX / 2, 0, NULL),
                     0);
    assert_int_equal(varjfs_object_read(b, "s", "o", back, sizeof back, 0, &got, NULL),
                     0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(got, 13);
    assert_memory_equal(back, model->data, 10);
    assert_memory_equal(back + 10, "abX", 3);
    assert_int_equal(varjfs_object_create(b, "s", "o", NULL, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), -EEXIST);
    assert_int_equal(varjfs_object_delete(b, "s", "o", NULL), 0);
    assert_int_equal(varjfs_object_delete(b, "s", "o", NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), -ENOENT);
    assert_int_equal(varjfs_close(v), 0);
    remove_volume(&volume);
}

/* More keys than a page has, in order, with a prefix, and while some are removed. */
static void test_many_keys(void **state)
{
    enum { COUNT = 3000 };
    static char names[COUNT][8];
    struct varjfs_semantics s = {.size = sizeof s};
    struct varjfs_entry entry = {.size = sizeof entry};
    unsigned found = 0;
    varjfs_iterator *i;
    Volume volume;
    varjfs_batch *b;
    varjfs *v;
    int rc;

    (void)state;
    make_volume(&volume);
    assert_int_equal(open_volume(&volume, &v), 0);
    assert_int_equal(varjfs_semantics_template("temporary", &s), 0);
    assert_int_equal(varjfs_batch_new(v, &s, &b), 0);
    for (unsigned n = 0; n < COUNT; n++) {
        g_snprintf(names[n], sizeof names[n], "n%05u", n);
        assert_int_equal(varjfs_kv_put(b, "s", names[n], 6, names[n], 6, 0, NULL), 0);
        if (n % 100 == 99) {
            assert_int_equal(varjfs_batch_execute(b), 0);
        }
    }
    assert_int_equal(varjfs_kv_iterate(v, "s", NULL, 0, &i), 0);
    while ((rc = varjfs_iterator_next(i, &entry)) == 1) {
        assert_string_equal(entry.name, names[found]);
        assert_int_equal(entry.len, 6);
        assert_memory_equal(entry.value, names[found], 6);
        found++;
    }
    assert_int_equal(rc, 0);
    assert_int_equal(found, COUNT);
    varjfs_iterator_free(i);
    assert_int_equal(varjfs_kv_iterate(v, "s", "n012", 4, &i), 0);
    for (found = 0; (rc = varjfs_iterator_next(i, &entry)) == 1; found++) {
        assert_string_equal(entry.name, names[1200 + found]);
    }
    assert_int_equal(found, 100);
    assert_int_equal(varjfs_close(v), 0);
    remove_volume(&volume);
}

/* What flags ask for, of the real daemon. */
static void test_flags(void **state)
{
    int results[4];
    char back[16] = "";
    struct varjfs_options o = {.size = sizeof o, .flags = VARJFS_READ_ONLY};
    Volume volume;
    size_t got = 0;
    varjfs_batch *b;
    varjfs *v;

    (void)state;
    make_volume(&volume);
    assert_int_equal(open_volume(&volume, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_kv_put(b, "s", "k", 1, "a", 1, VARJFS_EXCLUSIVE, &results[0]),
                     0);
    assert_int_equal(varjfs_kv_put(b, "s", "k", 1, "b", 1, VARJFS_EXCLUSIVE, &results[1]),
                     0);
    assert_int_equal(varjfs_object_write(b, "s", "o", "ab", 2, 0,
                                         VARJFS_CREATE | VARJFS_APPEND, &results[2]),
                     0);
    assert_int_equal(
        varjfs_object_rwrite(b, "s", "o", "cd", 2, 0, 0, VARJFS_APPEND, NULL), 0);
    assert_int_equal(varjfs_object_read(b, "s", "o", back, sizeof back, 0, &got, NULL),
                     0);
    assert_int_equal(varjfs_batch_execute(b), -EEXIST);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], -EEXIST);
    assert_int_equal(results[2], 0);
    assert_int_equal(got, 4);
    assert_memory_equal(back, "abcd", 4);
    assert_int_equal(varjfs_close(v), 0);

    o.daemon = volume.program;
    assert_int_equal(varjfs_open(volume.directory, &o, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_kv_delete(b, "s", "k", 1, &results[0]), 0);
    assert_int_equal(varjfs_kv_get(b, "s", "k", 1, back, 16, NULL, &results[1]), 0);
    assert_int_equal(varjfs_batch_execute(b), -EROFS);
    assert_int_equal(results[0], -EROFS);
    assert_int_equal(results[1], 0);
    assert_int_equal(varjfs_close(v), 0);
    remove_volume(&volume);
}

/* Without a name the program is that of PATH, else the one that was installed; this test
 * is compiled with the directory of the build for it. */
static void test_installed(void **state)
{
    g_autofree char *path = g_strdup(g_getenv("PATH")), *other = NULL, *text = NULL;
    Volume volume;
    varjfs *v;

    (void)state;
    make_volume(&volume);
    g_free(volume.program);
    volume.program = NULL;
    assert_true(g_setenv("PATH", "/nowhere", true));
    assert_int_equal(open_volume(&volume, &v), 0);
    assert_int_equal(varjfs_close(v), 0);
    assert_true(g_setenv("PATH", path, true));
    remove_volume(&volume);
    /* The one of PATH comes first. */
    make_volume(&volume);
    other = g_build_filename(volume.directory, "varjfsd", NULL);
    text = g_strdup("#!/bin/sh\necho of PATH >&2; exit 1\n");
    assert_true(g_file_set_contents(other, text, -1, NULL));
    assert_int_equal(chmod(other, 0700), 0);
    g_free(volume.program);
    volume.program = NULL;
    assert_true(g_setenv("PATH", volume.directory, true));
    assert_int_equal(open_volume(&volume, &v), -ECONNREFUSED);
    assert_non_null(strstr(varjfs_open_error(), "of PATH"));
    assert_true(g_setenv("PATH", path, true));
    remove_volume(&volume);
}

static const struct CMUnitTest tests[] = {
    {"/start/fails", test_start_fails, NULL, NULL, NULL},
    {"/start/in-use", test_in_use, NULL, NULL, NULL},
    {"/start/words", test_words, NULL, NULL, NULL},
    {"/start/foreign-wait", test_foreign_wait, NULL, NULL, NULL},
    {"/varjfsd/together", test_together, NULL, NULL, NULL},
    {"/varjfsd/edits", test_edits, NULL, NULL, NULL},
    {"/varjfsd/flags", test_flags, NULL, NULL, NULL},
    {"/varjfsd/installed", test_installed, NULL, NULL, NULL},
    {"/varjfsd/many-keys", test_many_keys, NULL, NULL, NULL},
};

VJ_TEST_MAIN(tests)
