/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-rwrite.c - what rwrite(2) says, on whatever file system is below
 *
 * In the build tree that is a plain one (the tail is moved); tests/mount/rwrite.sh runs
 * the same program on varjfs.  The seed is VARJFS_TEST_SEED or fixed, and printed.
 */
#include "rwrite-fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/xattr.h>

#define STEP ((size_t)8 << 20)

static volatile sig_atomic_t xfsz_count;

static void count_xfsz(int number)
{
    (void)number;
    xfsz_count++;
}

static uint64_t seed(void)
{
    const char *text = getenv("VARJFS_TEST_SEED");
    uint64_t value = text != NULL ? g_ascii_strtoull(text, NULL, 0) : 20261120;

    print_message("seed %" G_GUINT64_FORMAT "\n", value);
    return value;
}

/* Where the file system is slow, fewer calls will do. */
static unsigned calls(unsigned normal)
{
    const char *text = getenv("VARJFS_TEST_CALLS");

    return text != NULL ? (unsigned)atoi(text) : normal;
}

/* ---- the table of rwrite(2) -------------------------------------------------------- */

static void test_insert(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 1000000);
    fixture_rpwrite(f, "inserted", 8, 300001, 0);
    fixture_expect_model(f);
    fixture_rpwrite(f, "at the start", 12, 0, 0);
    fixture_expect_model(f);
    fixture_rpwrite(f, "at the end", 10, f->model->len, 0);
    fixture_expect_model(f);
}

static void test_delete(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 1000000);
    fixture_rpwrite(f, NULL, 0, 1234, 400321);
    fixture_expect_model(f);
    fixture_rpwrite(f, NULL, 0, 0, 1);
    fixture_expect_model(f);
    fixture_rpwrite(f, NULL, 0, f->model->len - 5, 5);
    fixture_expect_model(f);
    fixture_rpwrite(f, NULL, 0, 10, SIZE_MAX);
    fixture_expect_model(f);
    assert_int_equal(f->model->len, 10);
    fixture_rpwrite(f, NULL, 0, 0, SIZE_MAX);
    fixture_expect_model(f);
}

static void test_replace(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 600000);
    fixture_rpwrite(f, "abc", 3, 100, 10);
    fixture_rpwrite(f, "defghijklm", 10, 4095, 3);
    fixture_rpwrite(f, "same", 4, 70000, 4);
    fixture_expect_model(f);
}

static void test_clipped_at_the_end(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 100);
    fixture_rpwrite(f, "xyz", 3, 98, 50);
    fixture_expect_model(f);
    fixture_rpwrite(f, "longer than that", 16, 99, SIZE_MAX);
    fixture_expect_model(f);
}

static void test_beyond_the_end(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 100);
    fixture_rpwrite(f, "hole before", 11, 9000, 5);
    fixture_expect_model(f);
    fixture_rpwrite(f, NULL, 0, 20000, 5);
    fixture_expect_model(f);
    fixture_rpwrite(f, NULL, 0, f->model->len, 5);
    fixture_expect_model(f);
}

static void test_nothing_changes_no_times(void **state)
{
    Fixture *f = *state;
    struct stat before, after;

    fixture_fill(f, 100);
    assert_int_equal(fsync(f->fd), 0);
    assert_int_equal(fstat(f->fd, &before), 0);
    fixture_rpwrite(f, NULL, 0, 50, 0);
    fixture_rpwrite(f, NULL, 0, 500, 5);
    assert_int_equal(rwrite(f->fd, NULL, 0, 0), 0);
    assert_int_equal(fstat(f->fd, &after), 0);
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof after.st_mtim);
    assert_memory_equal(&before.st_ctim, &after.st_ctim, sizeof after.st_ctim);
}

static void test_times_change(void **state)
{
    Fixture *f = *state;
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct stat st;

    fixture_fill(f, 100);
    assert_int_equal(futimens(f->fd, old), 0);
    fixture_rpwrite(f, "x", 1, 50, 0);
    assert_int_equal(fstat(f->fd, &st), 0);
    assert_true(st.st_mtim.tv_sec > 1000);
    assert_int_equal(futimens(f->fd, old), 0);
    fixture_rpwrite(f, NULL, 0, 50, 1);
    assert_int_equal(fstat(f->fd, &st), 0);
    assert_true(st.st_mtim.tv_sec > 1000);
}

static void test_rwrite_moves_the_offset(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 10000);
    assert_int_equal(lseek(f->fd, 5000, SEEK_SET), 5000);
    assert_int_equal(rwrite(f->fd, "insert", 6, 0), 6);
    model_replace(f->model, (const uint8_t *)"insert", 6, 5000, 0);
    assert_int_equal(lseek(f->fd, 0, SEEK_CUR), 5006);
    assert_int_equal(rwrite(f->fd, NULL, 0, 100), 0);
    model_replace(f->model, NULL, 0, 5006, 100);
    assert_int_equal(lseek(f->fd, 0, SEEK_CUR), 5006);
    assert_int_equal(rwrite(f->fd, "same", 4, 4), 4);
    model_replace(f->model, (const uint8_t *)"same", 4, 5006, 4);
    assert_int_equal(lseek(f->fd, 0, SEEK_CUR), 5010);
    fixture_expect_model(f);
}

static void test_rpwrite_keeps_the_offset(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 10000);
    assert_int_equal(lseek(f->fd, 77, SEEK_SET), 77);
    fixture_rpwrite(f, "insert", 6, 5000, 0);
    fixture_rpwrite(f, NULL, 0, 5000, 3);
    fixture_rpwrite(f, "same", 4, 5000, 4);
    assert_int_equal(lseek(f->fd, 0, SEEK_CUR), 77);
    fixture_expect_model(f);
}

static void test_append_mode(void **state)
{
    Fixture *f = *state;
    VJ_AUTO_FD fd = -1;
    g_autofree uint8_t *data = g_malloc(100000);

    fixture_fill(f, 10000);
    fd = open(f->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(lseek(fd, 7, SEEK_SET), 7);
    assert_int_equal(rwrite(fd, "end", 3, 2), 3); /* nothing is there to replace */
    model_replace(f->model, (const uint8_t *)"end", 3, f->model->len, 0);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), f->model->len);
    vj_test_fill_pattern(data, 100000);
    assert_int_equal(rwrite(fd, data, 100000, 0), 100000);
    model_replace(f->model, data, 100000, f->model->len, 0);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), f->model->len);
    assert_int_equal(rwrite(fd, "same", 4, 4), 4);
    model_replace(f->model, (const uint8_t *)"same", 4, f->model->len, 0);
    assert_int_equal(rwrite(fd, NULL, 0, 5), 0);
    fixture_expect_model(f);
}

/* pwrite(2) on Linux appends there; rpwrite does not. */
static void test_rpwrite_ignores_append_mode(void **state)
{
    Fixture *f = *state;
    VJ_AUTO_FD fd = -1;

    fixture_fill(f, 10000);
    fd = open(f->path, O_RDWR | O_APPEND | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(rpwrite(fd, "same", 4, 500, 4), 4);
    model_replace(f->model, (const uint8_t *)"same", 4, 500, 4);
    fixture_expect_model(f);
    assert_int_equal(rpwrite(fd, "insert", 6, 600, 0), 6);
    model_replace(f->model, (const uint8_t *)"insert", 6, 600, 0);
    assert_int_equal(rpwrite(fd, "x", 1, 700, 20), 1);
    model_replace(f->model, (const uint8_t *)"x", 1, 700, 20);
    assert_int_equal(rpwrite(fd, "beyond", 6, 12000, 0), 6);
    model_replace(f->model, (const uint8_t *)"beyond", 6, 12000, 0);
    fixture_expect_model(f);
}

static void test_write_only(void **state)
{
    Fixture *f = *state;
    VJ_AUTO_FD fd = -1;

    fixture_fill(f, 700000);
    fd = open(f->path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(rpwrite(fd, "insert", 6, 600, 0), 6);
    model_replace(f->model, (const uint8_t *)"insert", 6, 600, 0);
    assert_int_equal(rpwrite(fd, NULL, 0, 100, 300000), 0);
    model_replace(f->model, NULL, 0, 100, 300000);
    fixture_expect_model(f);
}

/* Bytes move, whatever the alignment of the descriptor's own reads and writes. */
static void test_direct(void **state)
{
    Fixture *f = *state;
    VJ_AUTO_FD fd = -1;

    fixture_fill(f, 700000);
    fd = open(f->path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0) {
        assert_int_equal(errno, EINVAL);
        skip(); /* this file system has no O_DIRECT */
    }
    assert_int_equal(rpwrite(fd, "insert", 6, 601, 0), 6);
    model_replace(f->model, (const uint8_t *)"insert", 6, 601, 0);
    assert_int_equal(rpwrite(fd, "x", 1, 77, 300000), 1);
    model_replace(f->model, (const uint8_t *)"x", 1, 77, 300000);
    assert_int_equal(rpwrite(fd, "at the end", 10, f->model->len - 1, 5), 10);
    model_replace(f->model, (const uint8_t *)"at the end", 10, f->model->len - 1, 5);
    fixture_expect_model(f);
}

/* Each length at which the library changes its way. */
static void test_lengths(void **state)
{
    static const size_t lengths[] = {
        1,        4095,  4096,     4097,         16335,       16336,
        16383,    16384, 65536,    262144,       262145,      1000000,
        STEP - 1, STEP,  STEP + 1, STEP + 16336, 2 * STEP + 5};
    Fixture *f = *state;
    g_autofree uint8_t *data = g_malloc(3 * STEP);
    VjRng rng;

    vj_rng_init(&rng, 1);
    vj_rng_bytes(&rng, data, 3 * STEP);
    fixture_fill(f, 50000);
    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        fixture_rpwrite(f, data, lengths[i], 20000, i % 3 * 7);
        fixture_expect_model(f);
        fixture_rpwrite(f, data + 1, 11, 20003, lengths[i] - 1);
        fixture_expect_model(f);
    }
}

/* More than one step with old bytes on both sides of its border. */
static void test_long_replacements(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *data = g_malloc(3 * STEP);
    VjRng rng;

    vj_rng_init(&rng, 2);
    vj_rng_bytes(&rng, data, 3 * STEP);
    fixture_fill(f, 3 * STEP);
    fixture_rpwrite(f, data, 2 * STEP + 99, 1000, STEP + 77);
    fixture_expect_model(f);
    fixture_rpwrite(f, data + 5, STEP + 1, 2000, 2 * STEP + 50);
    fixture_expect_model(f);
    fixture_rpwrite(f, data + 9, STEP + 1, 3000, SIZE_MAX);
    fixture_expect_model(f);
}

static void test_random_calls(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *data = g_malloc(300000);
    unsigned count = calls(10000);
    VjRng rng;

    vj_rng_init(&rng, seed());
    fixture_fill(f, 30000);
    for (unsigned i = 0; i < count; i++) {
        /* Mostly short, now and then past a buffer of the library. */
        uint64_t scale = (uint64_t)1 << (vj_rng_below(&rng, i % 200 == 0 ? 17 : 11) + 1);
        size_t len = (size_t)vj_rng_below(&rng, scale);
        uint64_t old_len = vj_rng_below(&rng, 4) == 0 ? len : vj_rng_below(&rng, scale);
        uint64_t offset = vj_rng_below(&rng, f->model->len + 2000);

        if (f->model->len > 60000) {
            old_len = vj_rng_below(&rng, 50000);
        }
        vj_rng_bytes(&rng, data, len);
        if (vj_rng_below(&rng, 2) == 0) {
            fixture_rpwrite(f, data, len, offset, old_len);
        } else {
            assert_int_equal(lseek(f->fd, (off_t)offset, SEEK_SET), offset);
            assert_int_equal(rwrite(f->fd, data, len, old_len), len);
            assert_int_equal(lseek(f->fd, 0, SEEK_CUR), offset + len);
            model_replace(f->model, data, len, offset, old_len);
        }
        if (i % 200 == 0) {
            fixture_expect_model(f);
        }
    }
    fixture_expect_model(f);
}

/* ---- what others see --------------------------------------------------------------- */

static void test_other_descriptors_see_it(void **state)
{
    Fixture *f = *state;
    VJ_AUTO_FD other = -1;
    char got[16];
    struct stat st;

    fixture_fill(f, 10000);
    other = open(f->path, O_RDWR | O_CLOEXEC);
    assert_true(other >= 0);
    assert_int_equal(pread(other, got, 6, 5000), 6); /* cached now */
    fixture_rpwrite(f, "insert", 6, 5000, 0);
    assert_int_equal(pread(other, got, 6, 5000), 6);
    assert_memory_equal(got, "insert", 6);
    assert_int_equal(fstat(other, &st), 0);
    assert_int_equal(st.st_size, 10006);
    assert_int_equal(lseek(other, 0, SEEK_END), 10006);
    fixture_rpwrite(f, NULL, 0, 0, 9000);
    assert_int_equal(pread(other, got, 16, 1000), 6);
    assert_memory_equal(got, f->model->data + 1000, 6);
}

static void test_mapping_sees_it(void **state)
{
    Fixture *f = *state;
    char *map;

    fixture_fill(f, 8192);
    map = mmap(NULL, 65536, PROT_READ, MAP_SHARED, f->fd, 0);
    assert_true(map != MAP_FAILED);
    assert_memory_equal(map, f->model->data, 8192);
    fixture_rpwrite(f, "into the middle", 15, 100, 0);
    assert_memory_equal(map, f->model->data, f->model->len);
    g_autofree uint8_t *data = g_malloc0(20000);
    memset(data, 'y', 20000);
    fixture_rpwrite(f, data, 20000, 4000, 0);
    assert_memory_equal(map, f->model->data,
                        f->model->len); /* bytes that it added, too */
    fixture_rpwrite(f, NULL, 0, 50, 10000);
    assert_memory_equal(map, f->model->data, f->model->len);
    assert_int_equal(munmap(map, 65536), 0);
}

/* The kernel has learned the smaller size: behind it a mapping has no bytes any more. */
static void test_mapping_ends_with_the_file(void **state)
{
    Fixture *f = *state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct rlimit no_core = {0, 0};
    volatile uint8_t *map;
    pid_t child;
    int status;

    fixture_fill(f, 4 * page);
    map = mmap(NULL, 4 * page, PROT_READ, MAP_SHARED, f->fd, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(map[3 * page], f->model->data[3 * page]);
    assert_int_equal(rpwrite(f->fd, NULL, 0, 10, 2 * page), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGBUS, SIG_DFL);
        _exit(map[3 * page]);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
    assert_int_equal(munmap((void *)map, 4 * page), 0);
}

static void test_set_id_bits(void **state)
{
    Fixture *f = *state;
    struct stat st;
    pid_t child;
    int status;

    if (geteuid() == 0 && getenv("VARJFS_TEST_DIR") != NULL) {
        /* As somebody whose writes clear them: root's do not. */
        assert_int_equal(fchown(f->fd, 65534, 65534), 0);
    }
    fixture_fill(f, 100);
    assert_int_equal(fchmod(f->fd, 06755), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) {
            _exit(2);
        }
        _exit(rpwrite(f->fd, "x", 1, 50, 0) == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(fstat(f->fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
}

typedef struct Worker {
    const char *path;
    unsigned number;
    bool ok;
} Worker;

static void *work_on_own_file(void *opaque)
{
    Worker *w = opaque;
    g_autofree char *path = g_strdup_printf("%s-%u", w->path, w->number);
    VJ_AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char text[64];
    ssize_t got;

    w->ok = fd >= 0;
    for (unsigned i = 0; i < 200 && w->ok; i++) {
        char byte = (char)('a' + i % 26);

        w->ok = rpwrite(fd, &byte, 1, 0, i >= 26 ? 2 : 0) == 1 &&
                rpwrite(fd, "-", 1, 1, 0) == 1;
    }
    got = w->ok ? pread(fd, text, sizeof text, 0) : -1;
    w->ok = got > 2 && text[0] == 'a' + 199 % 26 && text[1] == '-';
    return NULL;
}

static void test_threads(void **state)
{
    Fixture *f = *state;
    Worker workers[4];
    pthread_t threads[4];

    for (unsigned i = 0; i < 4; i++) {
        workers[i] = (Worker){f->path, i, false};
        assert_int_equal(pthread_create(&threads[i], NULL, work_on_own_file, &workers[i]),
                         0);
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(workers[i].ok);
    }
}

static void *insert_on_small_stack(void *opaque)
{
    Fixture *f = opaque;
    static uint8_t data[20000];

    fixture_rpwrite(f, data, 4096, 100, 0);
    fixture_rpwrite(f, data, 16000, 100, 0);
    fixture_rpwrite(f, data, 20000, 100, 30);
    return NULL;
}

/* Programs with thousands of threads give each 16 KiB more than the system's minimum. */
static void test_small_stack(void **state)
{
    Fixture *f = *state;
    pthread_attr_t attr;
    pthread_t thread;

    fixture_fill(f, 1000);
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, (size_t)64 << 10), 0);
    assert_int_equal(pthread_create(&thread, &attr, insert_on_small_stack, f), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    fixture_expect_model(f);
}

/* ---- errors ------------------------------------------------------------------------ */

static void test_bad_descriptors(void **state)
{
    Fixture *f = *state;
    VJ_AUTO_FD read_only = -1;
    VJ_AUTO_FD directory = -1;
    VJ_AUTO_FD path_only = -1;
    int ends[2];

    fixture_fill(f, 100);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(-1, "x", 1, 0, 0), EBADF);
    FIXTURE_EXPECT_ERRNO(f, rwrite(1000000, "x", 1, 0), EBADF);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(-1, NULL, 0, 0, 0), EBADF);
    read_only = open(f->path, O_RDONLY | O_CLOEXEC);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(read_only, "x", 1, 0, 0), EBADF);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(read_only, "x", 1, 0, 1), EBADF);
    FIXTURE_EXPECT_ERRNO(f, rwrite(read_only, NULL, 0, 5), EBADF);
    FIXTURE_EXPECT_ERRNO(f, rwrite(read_only, NULL, 0, 0), EBADF);
    path_only = open(f->path, O_PATH | O_CLOEXEC);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(path_only, "x", 1, 0, 0), EBADF);
    directory = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(directory, "x", 1, 0, 0), EISDIR);
    FIXTURE_EXPECT_ERRNO(f, rwrite(directory, "x", 1, 1), EISDIR);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(ends[1], "x", 1, 0, 0), EINVAL);
    FIXTURE_EXPECT_ERRNO(f, rwrite(ends[1], "x", 1, 1), EINVAL);
    close(ends[0]);
    close(ends[1]);
}

static void test_bad_numbers(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 100);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "x", 1, -1, 0), EINVAL);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, NULL, 0, -1, 0), EINVAL);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "x", 1, -1, 1), EINVAL);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "x", SIZE_MAX, 0, 0), EINVAL);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "x", 1, INT64_MAX, 0), EFBIG);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "x", SSIZE_MAX, 10, 0), EFBIG);
    fixture_rpwrite(f, NULL, 0, INT64_MAX, SIZE_MAX);
    fixture_expect_model(f);
}

/* A buffer whose last pages are not there. */
static char *buffer_with_a_cliff(size_t readable)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t whole = (readable + page - 1) / page * page;
    char *map = mmap(NULL, whole + page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + whole, page, PROT_NONE), 0);
    return map + whole - readable;
}

static void test_bad_buffers(void **state)
{
    Fixture *f = *state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *data = buffer_with_a_cliff(page);

    fixture_fill(f, 700000);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, NULL, 10, 500, 0), EFAULT);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, NULL, 10, 500, 10), EFAULT);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, data + page, 10, 500, 0), EFAULT);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, data + page, 10, 500, 20), EFAULT);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, data + page, 20000, 500, 0), EFAULT);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, data + page, 10, 900000, 0), EFAULT);
}

/* Only the first bytes are readable: none or just those may be there afterwards. */
static void test_buffer_ends_early(void **state)
{
    Fixture *f = *state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    static const size_t old_lens[] = {0, 10, 5000, 300000};

    for (size_t i = 0; i < G_N_ELEMENTS(old_lens); i++) {
        size_t readable = 5 * page + 17;
        char *data = buffer_with_a_cliff(readable);
        ssize_t done;

        memset(data, 'n', readable);
        fixture_fill(f, 700000);
        errno = 0;
        done = rpwrite(f->fd, data, readable + 3000, 1000, old_lens[i]);
        if (done < 0) {
            assert_int_equal(errno, EFAULT);
        } else {
            assert_in_range(done, 1, readable);
            model_replace(f->model, (uint8_t *)data, (size_t)done, 1000,
                          MIN((size_t)done, old_lens[i]));
        }
        fixture_expect_model(f);
    }
}

static void test_file_size_limit(void **state)
{
    Fixture *f = *state;
    struct sigaction count = {.sa_handler = count_xfsz}, before;
    struct rlimit limit, original;

    fixture_fill(f, 5000);
    assert_int_equal(sigaction(SIGXFSZ, &count, &before), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &original), 0);
    limit = original;
    limit.rlim_cur = 6000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    g_autofree uint8_t *data = g_malloc0(2000);
    int result[4], error[4];
    xfsz_count = 0;
    fixture_rpwrite(f, data, 1000, 10, 0); /* up to the limit */
    error[0] = (errno = 0, result[0] = (int)rpwrite(f->fd, data, 1, 10, 0), errno);
    error[1] = (errno = 0, result[1] = (int)rpwrite(f->fd, data, 2000, 10, 1999), errno);
    error[2] = (errno = 0, result[2] = (int)rpwrite(f->fd, data, 1, 6000, 0), errno);
    assert_int_equal(lseek(f->fd, 0, SEEK_END), 6000);
    error[3] = (errno = 0, result[3] = (int)rwrite(f->fd, data, 1, 0), errno);
    fixture_rpwrite(f, data, 5, 10, 6);
    fixture_rpwrite(f, NULL, 0, 10, 100);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &original), 0);
    assert_int_equal(sigaction(SIGXFSZ, &before, NULL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(result[i], -1);
        assert_int_equal(error[i], EFBIG);
    }
    assert_int_equal(xfsz_count, 4);
    fixture_expect_model(f);
}

static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    TEST(test_insert),
    TEST(test_delete),
    TEST(test_replace),
    TEST(test_clipped_at_the_end),
    TEST(test_beyond_the_end),
    TEST(test_nothing_changes_no_times),
    TEST(test_times_change),
    TEST(test_rwrite_moves_the_offset),
    TEST(test_rpwrite_keeps_the_offset),
    TEST(test_append_mode),
    TEST(test_rpwrite_ignores_append_mode),
    TEST(test_write_only),
    TEST(test_direct),
    TEST(test_lengths),
    TEST(test_long_replacements),
    TEST(test_random_calls),
    TEST(test_other_descriptors_see_it),
    TEST(test_mapping_sees_it),
    TEST(test_mapping_ends_with_the_file),
    TEST(test_set_id_bits),
    TEST(test_threads),
    TEST(test_small_stack),
    TEST(test_bad_descriptors),
    TEST(test_bad_numbers),
    TEST(test_bad_buffers),
    TEST(test_buffer_ends_early),
    TEST(test_file_size_limit),
};

VJ_TEST_MAIN(tests)
