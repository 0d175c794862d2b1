/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-delay.c - libdelay.so: what it counts, slows down and leaves alone
 *
 * Each test runs this program again with the library, as "test-delay --do WORK FILE".
 * Only lower bounds of time are asserted: a slow machine is no failure.
 */
#include "test.h"

#include <sys/mman.h>

#define DELAY_MS 40

typedef struct Run {
    uint64_t words[11]; /* of the control file afterwards */
    int64_t took_us;
} Run;

/* ---- The child --------------------------------------------------------------------- */

static void must(bool is_true, const char *what)
{
    if (!is_true) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static void do_syncs(int fd, const char *path)
{
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    (void)path;
    must(map != MAP_FAILED, "mmap");
    must(fsync(fd) == 0, "fsync");
    must(fdatasync(fd) == 0, "fdatasync");
    must(fdatasync(fd) == 0, "fdatasync");
    must(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0, "sync_file_range");
    must(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) ==
             0,
         "sync_file_range");
    must(msync(map, 4096, MS_SYNC) == 0, "msync");
    must(msync(map, 4096, MS_ASYNC) == 0, "msync");
    munmap(map, 4096);
}

static void do_synced_writes(int fd, const char *path)
{
    struct iovec iov = {.iov_base = (char[]){"four"}, .iov_len = 4};
    int synced = open(path, O_WRONLY | O_DSYNC | O_CLOEXEC);

    must(synced >= 0, path);
    must(pwrite(synced, "x", 1, 0) == 1, "pwrite");
    must(write(synced, "x", 1) == 1, "write");
    must(pwritev2(fd, &iov, 1, 0, RWF_DSYNC) == 4, "pwritev2");
    must(pwrite(fd, "x", 1, 0) == 1, "pwrite");
    close(synced);
}

/* 60000 bytes by each call, and what is no write to a file. */
static void do_writes(int fd, const char *path)
{
    static char bytes[10000];
    struct iovec iov[2] = {{bytes, 5000}, {bytes + 5000, 5000}};
    int ends[2];

    (void)path;
    must(write(fd, bytes, 10000) == 10000, "write");
    must(writev(fd, iov, 2) == 10000, "writev");
    must(pwrite(fd, bytes, 10000, 0) == 10000, "pwrite");
    must(pwrite64(fd, bytes, 10000, 0) == 10000, "pwrite64");
    must(pwritev(fd, iov, 2, 0) == 10000, "pwritev");
    must(pwritev2(fd, iov, 2, 0, 0) == 10000, "pwritev2");
    must(pipe2(ends, O_CLOEXEC) == 0, "pipe");
    must(write(ends[1], bytes, 10000) == 10000, "write to a pipe");
    close(ends[0]);
    close(ends[1]);
}

/* Errors and errno come through. */
static void do_errors(int fd, const char *path)
{
    (void)fd;
    (void)path;
    must(fsync(-1) == -1 && errno == EBADF, "fsync");
    must(fdatasync(-1) == -1 && errno == EBADF, "fdatasync");
    must(write(-1, "x", 1) == -1 && errno == EBADF, "write");
    must(pwrite(-1, "x", 1, 0) == -1 && errno == EBADF, "pwrite");
    errno = ERANGE;
    must(write(fd, "x", 1) == 1 && errno == ERANGE, "write keeps errno");
}

static const struct {
    const char *name;
    void (*run)(int fd, const char *path);
} works[] = {
    {"syncs", do_syncs},
    {"synced-writes", do_synced_writes},
    {"writes", do_writes},
    {"errors", do_errors},
};

static int child_main(const char *name, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    must(fd >= 0 && ftruncate(fd, 4096) == 0, path);
    for (size_t i = 0; i < G_N_ELEMENTS(works); i++) {
        if (strcmp(works[i].name, name) == 0) {
            works[i].run(fd, path);
            close(fd);
            return 0;
        }
    }
    fprintf(stderr, "no work %s\n", name);
    return 2;
}

/* ---- The tests --------------------------------------------------------------------- */

static char *test_dir;

static int make_dir(void **state)
{
    (void)state;
    test_dir = vj_test_make_dir();
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    vj_test_remove_dir(test_dir);
    return 0;
}

/* The sanitizer that this program is linked with, to be loaded before all others; or "".
 */
static char *loaded_sanitizer(void)
{
    g_autofree char *maps = NULL;
    g_auto(GStrv) lines = NULL;

    assert_true(g_file_get_contents("/proc/self/maps", &maps, NULL, NULL));
    lines = g_strsplit(maps, "\n", -1);
    for (size_t i = 0; lines[i] != NULL; i++) {
        if (strstr(lines[i], "/libasan.so") != NULL ||
            strstr(lines[i], "/libtsan.so") != NULL) {
            return g_strdup(strchr(lines[i], '/'));
        }
    }
    return g_strdup("");
}

/*
 * Run @work on a file of that name under test_dir, with @settings, pairs NAME, VALUE and
 * a NULL, and the control file "control".  Returns the exit status as of waitpid().
 */
static int run(const char *work, const char *const *settings, Run *result)
{
    g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);
    g_autofree char *home = g_path_get_dirname(self);
    g_autofree char *sanitizer = loaded_sanitizer();
    g_autofree char *preload =
        g_strdup_printf("%s %s/.libs/libdelay.so", sanitizer, home);
    g_autofree char *file = g_build_filename(test_dir, work, NULL);
    g_autofree char *control = g_build_filename(test_dir, "control", NULL);
    g_autofree char *content = NULL;
    int64_t begin_us = vj_clock_mono_us();
    int status;
    gsize len;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit no_core = {0, 0};

        setrlimit(RLIMIT_CORE, &no_core);
        setenv("LD_PRELOAD", preload, 1);
        setenv("VJ_TEST_SYNC_COUNT", control, 1);
        for (size_t i = 0; settings[i] != NULL; i += 2) {
            setenv(settings[i], settings[i + 1], 1);
        }
        execl(self, self, "--do", work, file, (char *)NULL);
        _exit(126);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    result->took_us = vj_clock_mono_us() - begin_us;
    memset(result->words, 0xff, sizeof result->words);
    if (g_file_get_contents(control, &content, &len, NULL)) {
        assert_int_equal(len, 4096);
        for (size_t i = 0; i < G_N_ELEMENTS(result->words); i++) {
            result->words[i] = vj_le64_get(content + 8 * i);
        }
    }
    return status;
}

static void expect_words(const Run *r, const uint64_t *expected)
{
    for (size_t i = 0; i < G_N_ELEMENTS(r->words); i++) {
        if (r->words[i] != expected[i]) {
            fail_msg("word %zu is %llu, not %llu", i, (unsigned long long)r->words[i],
                     (unsigned long long)expected[i]);
        }
    }
}

static void syncs_are_counted_and_delayed(void **state)
{
    static const char *const settings[] = {"VJ_TEST_SYNC_DELAY_MS", G_STRINGIFY(DELAY_MS),
                                           NULL};
    static const uint64_t expected[] = {5, 1, 2, 1, 0, 1, 0, 0, DELAY_MS, 0, 0};
    Run r;

    (void)state;
    assert_int_equal(run("syncs", settings, &r), 0);
    expect_words(&r, expected);
    assert_true(r.took_us >= 5 * DELAY_MS * 1000);
}

static void synced_writes_are_syncs(void **state)
{
    static const char *const settings[] = {"VJ_TEST_SYNC_DELAY_MS", G_STRINGIFY(DELAY_MS),
                                           NULL};
    static const uint64_t expected[] = {3, 0, 0, 0, 0, 0, 3, 0, DELAY_MS, 0, 0};
    Run r;

    (void)state;
    assert_int_equal(run("synced-writes", settings, &r), 0);
    expect_words(&r, expected);
    assert_true(r.took_us >= 3 * DELAY_MS * 1000);
}

/* A second process adds to the file's counts, and takes the delay that stands there. */
static void the_control_file_is_shared(void **state)
{
    static const char *const settings[] = {NULL};
    static const uint64_t delay_ms = GUINT64_TO_LE(DELAY_MS);
    static const uint64_t expected[] = {10, 2, 4, 2, 0, 2, 0, 0, DELAY_MS, 0, 0};
    g_autofree char *control = g_build_filename(test_dir, "control", NULL);
    int fd;
    Run r;

    (void)state;
    assert_int_equal(run("syncs", settings, &r), 0);
    assert_int_equal(r.words[0], 5);
    assert_int_equal(r.words[8], 0);
    fd = open(control, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &delay_ms, 8, 8 * 8), 8);
    close(fd);
    assert_int_equal(run("syncs", settings, &r), 0);
    expect_words(&r, expected);
    assert_true(r.took_us >= 5 * DELAY_MS * 1000);
}

static void writes_below_the_prefix_are_slow(void **state)
{
    const char *settings[] = {"VJ_TEST_WRITE_BPS", "600000", "VJ_TEST_WRITE_PREFIX",
                              test_dir, NULL};
    static const uint64_t expected[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 600000, 60000};
    Run r;

    (void)state;
    assert_int_equal(run("writes", settings, &r), 0);
    expect_words(&r, expected);
    assert_true(r.took_us >= 100000);
}

static void writes_elsewhere_are_not(void **state)
{
    g_autofree char *below = g_build_filename(test_dir, "sub", NULL);
    g_autofree char *beside = g_build_filename(test_dir, "writ", NULL);
    const char *settings[] = {"VJ_TEST_WRITE_BPS", "1", "VJ_TEST_WRITE_PREFIX", below,
                              NULL};
    Run r;

    (void)state;
    assert_int_equal(mkdir(below, 0700), 0);
    assert_int_equal(mkdir(beside, 0700), 0);
    assert_int_equal(run("writes", settings, &r), 0);
    assert_int_equal(r.words[10], 0);
    /* A prefix of the name is not the directory. */
    settings[3] = beside;
    assert_int_equal(run("writes", settings, &r), 0);
    assert_int_equal(r.words[10], 0);
}

static void errors_come_through(void **state)
{
    const char *settings[] = {"VJ_TEST_WRITE_BPS", "100000000", "VJ_TEST_SYNC_DELAY_MS",
                              "1", NULL};
    Run r;

    (void)state;
    assert_int_equal(run("errors", settings, &r), 0);
    assert_int_equal(r.words[10], 1);
}

static void a_wrong_setting_aborts(void **state)
{
    static const char *const wrong[][3] = {
        {"VJ_TEST_SYNC_DELAY_MS", "soon", NULL},
        {"VJ_TEST_SYNC_DELAY_MS", "-1", NULL},
        {"VJ_TEST_WRITE_BPS", "10M", NULL},
        {"VJ_TEST_WRITE_PREFIX", "relative", NULL},
        {"VJ_TEST_WRITE_PREFIX", "/nowhere/at/all", NULL},
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        Run r;
        int status = run("errors", wrong[i], &r);

        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGABRT);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

static const struct CMUnitTest tests[] = {
    TEST(syncs_are_counted_and_delayed), TEST(synced_writes_are_syncs),
    TEST(the_control_file_is_shared),    TEST(writes_below_the_prefix_are_slow),
    TEST(writes_elsewhere_are_not),      TEST(errors_come_through),
    TEST(a_wrong_setting_aborts),
};

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--do") == 0) {
        return child_main(argv[2], argv[3]);
    }
    if (argc == 3 && strcmp(argv[1], "-p") == 0) {
        cmocka_set_test_filter(argv[2]);
    } else if (argc != 1) {
        fprintf(stderr, "usage: %s [-p PATTERN]\n", argv[0]);
        return 2;
    }
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
