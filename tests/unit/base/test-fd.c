/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Whole transfers and atomic replacement.  The linker hands the system calls of the code
 * under test to the __wrap_ functions below, which can cut transfers short, interrupt
 * them, or fail the N-th call.
 */
#include "../../lib/test.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/stat.h>

static size_t most_bytes;          /* of one transfer; 0: no limit */
static bool calls_are_interrupted; /* every third */
static atomic_uint call_count;     /* of the wrapped calls */
static unsigned fail_at;           /* which of them fails with EIO; 0: none */

/* True when this call is to fail; errno is set. */
static bool call_fails(void)
{
    unsigned call = atomic_fetch_add(&call_count, 1) + 1;

    if (fail_at != 0 && call == fail_at) {
        errno = EIO;
        return true;
    }
    if (calls_are_interrupted && call % 3 == 0) {
        errno = EINTR;
        return true;
    }
    return false;
}

static size_t cut(size_t len)
{
    return most_bytes != 0 ? MIN(len, most_bytes) : len;
}

ssize_t __real_pread64(int fd, void *dst, size_t len, off_t offset);
ssize_t __wrap_pread64(int fd, void *dst, size_t len, off_t offset);
ssize_t __wrap_pread64(int fd, void *dst, size_t len, off_t offset)
{
    return call_fails() ? -1 : __real_pread64(fd, dst, cut(len), offset);
}

/* Short transfers stop inside the first element that has bytes. */
ssize_t __real_pwritev64(int fd, const struct iovec *iov, int iov_count, off_t offset);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int iov_count, off_t offset);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int iov_count, off_t offset)
{
    if (call_fails()) {
        return -1;
    }
    if (most_bytes != 0) {
        struct iovec part;

        while (iov_count > 1 && iov->iov_len == 0) {
            iov++;
            iov_count--;
        }
        part = (struct iovec){.iov_base = iov->iov_base, .iov_len = cut(iov->iov_len)};
        return __real_pwritev64(fd, &part, 1, offset);
    }
    return __real_pwritev64(fd, iov, iov_count, offset);
}

ssize_t __real_write(int fd, const void *src, size_t len);
ssize_t __wrap_write(int fd, const void *src, size_t len);
ssize_t __wrap_write(int fd, const void *src, size_t len)
{
    return call_fails() ? -1 : __real_write(fd, src, cut(len));
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return call_fails() ? -1 : __real_fsync(fd);
}

int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return call_fails() ? -1 : __real_renameat(from_dir, from, to_dir, to);
}

typedef struct Place {
    char *path;
    int dir_fd;
} Place;

static int make_place(void **state)
{
    Place *place = g_new0(Place, 1);

    place->path = vj_test_make_dir();
    place->dir_fd = open(place->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    most_bytes = 0;
    calls_are_interrupted = false;
    fail_at = 0;
    call_count = 0;
    *state = place;
    return place->dir_fd >= 0 ? 0 : -1;
}

static int remove_place(void **state)
{
    Place *place = *state;

    vj_fd_close(&place->dir_fd);
    vj_test_remove_dir(place->path);
    g_free(place);
    return 0;
}

static void closing_keeps_errno_and_happens_once(void **state)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int copy = fd;

    (void)state;
    assert_true(fd >= 0);
    errno = ENOTDIR;
    vj_fd_close(&fd);
    assert_int_equal(fd, -1);
    vj_fd_close(&fd);
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(fcntl(copy, F_GETFD), -1);
    {
        VJ_AUTO_FD scoped = open("/dev/null", O_RDONLY | O_CLOEXEC);
        int stolen = vj_fd_steal(&scoped);

        assert_int_equal(scoped, -1);
        copy = stolen;
    }
    assert_int_not_equal(fcntl(copy, F_GETFD), -1);
    vj_fd_close(&copy);
}

static void transfers_are_whole_however_they_are_cut(void **state)
{
    Place *place = *state;
    VJ_AUTO_FD fd = openat(place->dir_fd, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint8_t src[1000], dst[1000];
    struct iovec iov[200];
    size_t at = 0;

    assert_true(fd >= 0);
    vj_test_fill_pattern(src, sizeof src);
    for (int i = 0; i < 199; i++) { /* lengths 0 to 9, many elements empty */
        size_t part = MIN((size_t)i % 10, sizeof src - at);

        iov[i] = (struct iovec){.iov_base = src + at, .iov_len = part};
        at += part;
    }
    iov[199] = (struct iovec){.iov_base = src + at, .iov_len = sizeof src - at};
    for (most_bytes = 0; most_bytes < 12; most_bytes++) {
        calls_are_interrupted = most_bytes % 2 == 1;
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(vj_fd_pwritev_all(fd, iov, G_N_ELEMENTS(iov), 50), 0);
        memset(dst, 0, sizeof dst);
        assert_int_equal(vj_fd_pread_all(fd, dst, sizeof dst, 50), 0);
        assert_memory_equal(dst, src, sizeof src);
        assert_int_equal(lseek(fd, 0, SEEK_END), 1050);
    }
    most_bytes = 0;
    assert_int_equal(vj_fd_pwritev_all(fd, iov, 0, 0), 0);
    assert_int_equal(vj_fd_pwritev_all(fd, iov, 1, 0), 0); /* one element of no bytes */
}

static void sequential_writes_are_whole(void **state)
{
    Place *place = *state;
    VJ_AUTO_FD fd = openat(place->dir_fd, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint8_t src[100], dst[100];

    vj_test_fill_pattern(src, sizeof src);
    most_bytes = 7;
    calls_are_interrupted = true;
    assert_int_equal(vj_fd_write_all(fd, src, sizeof src), 0);
    assert_int_equal(vj_fd_pread_all(fd, dst, sizeof dst, 0), 0);
    assert_memory_equal(dst, src, sizeof src);
}

static void a_short_file_is_ebadmsg(void **state)
{
    Place *place = *state;
    VJ_AUTO_FD fd = openat(place->dir_fd, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char dst[8];

    assert_int_equal(vj_fd_write_all(fd, "abcd", 4), 0);
    assert_int_equal(vj_fd_pread_all(fd, dst, 4, 0), 0);
    assert_int_equal(vj_fd_pread_all(fd, dst, 5, 0), -EBADMSG);
    assert_int_equal(vj_fd_pread_all(fd, dst, 1, 4), -EBADMSG);
    assert_int_equal(vj_fd_pread_all(fd, dst, 0, 4), 0);
}

static void errors_are_told(void **state)
{
    struct iovec one = {.iov_base = (char[]){"x"}, .iov_len = 1};
    VJ_AUTO_FD full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    char dst[8];

    (void)state;
    assert_int_equal(vj_fd_write_all(full, "x", 1), -ENOSPC);
    assert_int_equal(vj_fd_pwritev_all(full, &one, 1, 0), -ENOSPC);
    assert_int_equal(vj_fd_pread_all(full, dst, 1, 0), -EBADF);
    assert_int_equal(vj_fd_pread_all(full, dst, 1, UINT64_MAX), -EFBIG);
    assert_int_equal(vj_fd_pread_all(full, dst, 2, INT64_MAX - 1), -EFBIG);
    assert_int_equal(vj_fd_pwritev_all(full, &one, 1, INT64_MAX), -EFBIG);
}

static int count_entries(const Place *place)
{
    DIR *dir = opendir(place->path);
    int n = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n - 2;
}

static void replacing_makes_and_changes_a_file(void **state)
{
    Place *place = *state;
    g_autoptr(GError) error = NULL;
    g_autofree char *text = NULL;
    struct stat st;
    size_t len;

    umask(022);
    assert_true(vj_file_replace_contents(place->dir_fd, "conf", "one", 3, 0640, &error));
    assert_true(vj_file_replace_contents(place->dir_fd, "conf", "", 0, 0640, &error));
    assert_true(vj_file_replace_contents(place->dir_fd, "conf", "t\0o", 3, 0640, &error));
    text = vj_file_read_small(place->dir_fd, "conf", 3, &len, &error);
    assert_non_null(text);
    assert_int_equal(len, 3);
    assert_memory_equal(text, "t\0o", 4); /* and the NUL behind it */
    assert_int_equal(fstatat(place->dir_fd, "conf", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(count_entries(place), 1);
}

/* Fail the first call, the second, … until none fails: old or new, whole, nothing else.
 */
static void a_failed_replacement_leaves_old_or_new(void **state)
{
    Place *place = *state;
    g_autofree char *old_text = g_strnfill(5000, 'o');
    g_autofree char *new_text = g_strnfill(7000, 'n');
    bool done = false;
    unsigned failures = 0;

    while (!done) {
        g_autoptr(GError) error = NULL;
        g_autofree char *text = NULL;
        size_t len;

        most_bytes = 0;
        fail_at = 0;
        assert_true(vj_file_replace_contents(place->dir_fd, "conf", old_text, 5000, 0600,
                                             &error));
        most_bytes = 2500;
        call_count = 0;
        fail_at = ++failures;
        done =
            vj_file_replace_contents(place->dir_fd, "conf", new_text, 7000, 0600, &error);
        if (!done) {
            vj_test_expect_error(&error, EIO, "conf: cannot");
        }
        text = vj_file_read_small(place->dir_fd, "conf", 10000, &len, NULL);
        assert_non_null(text);
        assert_true((len == 5000 && memcmp(text, old_text, len) == 0) ||
                    (len == 7000 && memcmp(text, new_text, len) == 0));
        assert_true(!done || len == 7000);
        assert_int_equal(count_entries(place), 1);
    }
    assert_int_equal(failures,
                     3 + 1 + 1 + 1 + 1); /* writes, fsync, rename, fsync, pass */
}

static gpointer replace_often(gpointer data)
{
    Place *place = data;
    char text[300];

    for (int i = 0; i < 40; i++) {
        memset(text, 'a' + i % 26, sizeof text);
        if (!vj_file_replace_contents(place->dir_fd, "conf", text, sizeof text, 0600,
                                      NULL)) {
            return GINT_TO_POINTER(1);
        }
    }
    return NULL;
}

static void a_reader_never_sees_a_mix(void **state)
{
    Place *place = *state;
    GThread *threads[2];

    replace_often(place);
    for (int i = 0; i < 2; i++) {
        threads[i] = g_thread_new("replace", replace_often, place);
    }
    for (int i = 0; i < 500; i++) {
        size_t len;
        g_autofree char *text =
            vj_file_read_small(place->dir_fd, "conf", 1000, &len, NULL);

        assert_non_null(text);
        assert_int_equal(len, 300);
        for (size_t j = 1; j < len; j++) {
            assert_int_equal(text[j], text[0]);
        }
    }
    for (int i = 0; i < 2; i++) {
        assert_null(g_thread_join(threads[i]));
    }
}

static void reading_small_files_has_limits(void **state)
{
    Place *place = *state;
    g_autoptr(GError) error = NULL;
    g_autofree char *exact = NULL;

    assert_true(vj_file_replace_contents(place->dir_fd, "f", "12345", 5, 0600, &error));
    exact = vj_file_read_small(place->dir_fd, "f", 5, NULL, &error);
    assert_string_equal(exact, "12345");
    assert_null(vj_file_read_small(place->dir_fd, "f", 4, NULL, &error));
    vj_test_expect_error(&error, EFBIG, "f: longer than 4 bytes");
    assert_null(vj_file_read_small(place->dir_fd, "none", 4, NULL, &error));
    vj_test_expect_error(&error, ENOENT, "none: cannot open");
    assert_null(vj_file_read_small(place->dir_fd, ".", 4, NULL, &error));
    vj_test_expect_error(&error, EISDIR, "not a regular file");
    assert_int_equal(mkfifoat(place->dir_fd, "fifo", 0600), 0);
    assert_null(vj_file_read_small(place->dir_fd, "fifo", 4, NULL, &error));
    vj_test_expect_error(&error, EINVAL, "fifo: not a regular file");
    assert_null(vj_file_read_small(place->dir_fd, "f", SIZE_MAX, NULL, &error));
    vj_test_expect_error(&error, ENOMEM, "f: cannot read");
}

static int open_below(const Place *place, const char *name)
{
    int fd = openat(place->dir_fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static void a_directory_knows_what_it_is_in(void **state)
{
    Place *place = *state;
    bool inside;

    assert_int_equal(mkdirat(place->dir_fd, "a", 0700), 0);
    assert_int_equal(mkdirat(place->dir_fd, "a/b", 0700), 0);
    assert_int_equal(mkdirat(place->dir_fd, "c", 0700), 0);
    assert_int_equal(symlinkat("../a/b", place->dir_fd, "c/link"), 0);
    {
        VJ_AUTO_FD a = open_below(place, "a");
        VJ_AUTO_FD c = open_below(place, "c");
        VJ_AUTO_FD link = open_below(place, "c/link");
        VJ_AUTO_FD back = open_below(place, "c/link/../../c");

        assert_int_equal(vj_fd_is_inside(a, a, &inside), 0);
        assert_true(inside);
        assert_int_equal(vj_fd_is_inside(link, a, &inside), 0);
        assert_true(inside);
        assert_int_equal(vj_fd_is_inside(link, place->dir_fd, &inside), 0);
        assert_true(inside);
        assert_int_equal(vj_fd_is_inside(c, a, &inside), 0);
        assert_false(inside);
        assert_int_equal(vj_fd_is_inside(place->dir_fd, a, &inside), 0);
        assert_false(inside);
        assert_int_equal(vj_fd_is_inside(back, a, &inside), 0);
        assert_false(inside);
        assert_int_equal(vj_fd_is_inside(a, -1, &inside), -EBADF);
    }
    assert_int_equal(unlinkat(place->dir_fd, "c/link", 0), 0);
    assert_int_equal(unlinkat(place->dir_fd, "c", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(place->dir_fd, "a/b", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(place->dir_fd, "a", AT_REMOVEDIR), 0);
}

static bool is_taken_otherwise;

static bool is_taken(int fd)
{
    assert_true(fd >= 0);
    return is_taken_otherwise;
}

/* Closes it, some time after the other one has begun to wait. */
static gpointer close_soon(gpointer fd)
{
    g_usleep(1000);
    close(GPOINTER_TO_INT(fd));
    return NULL;
}

static void a_lock_is_waited_for(void **state)
{
    Place *place = *state;
    const int64_t minute_us = (int64_t)60 * 1000 * 1000;
    int first = openat(place->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    VJ_AUTO_FD second = openat(place->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    GThread *thread;

    assert_int_equal(vj_fd_lock(first, NULL, 0), 0);
    assert_int_equal(vj_fd_lock(second, NULL, 0), -EWOULDBLOCK);
    assert_int_equal(vj_fd_lock(second, NULL, vj_clock_mono_us() + 30000), -EWOULDBLOCK);
    thread = g_thread_new("close", close_soon, GINT_TO_POINTER(first));
    assert_int_equal(vj_fd_lock(second, NULL, vj_clock_mono_us() + minute_us), 0);
    g_thread_join(thread);
    first = openat(place->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    is_taken_otherwise = true;
    assert_int_equal(vj_fd_lock(second, is_taken, 0), -EWOULDBLOCK);
    /* It has let go of it. */
    is_taken_otherwise = false;
    assert_int_equal(vj_fd_lock(first, is_taken, 0), 0);
    close(first);
    assert_int_equal(vj_fd_lock(-1, NULL, 0), -EBADF);
}

static void a_lock_is_shared(void **state)
{
    Place *place = *state;
    const int64_t minute_us = (int64_t)60 * 1000 * 1000;
    int first = openat(place->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    VJ_AUTO_FD second = openat(place->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    VJ_AUTO_FD third = openat(place->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    GThread *thread;
    bool alone;

    assert_int_equal(vj_fd_lock_shared(first, NULL, 0, &alone), 0);
    assert_true(alone);
    assert_int_equal(vj_fd_lock_shared(second, NULL, 0, &alone), 0);
    assert_false(alone);
    assert_int_equal(vj_fd_lock(third, NULL, 0), -EWOULDBLOCK);
    /* Who wants it alone waits for all others; who asks in vain has none any more. */
    assert_int_equal(vj_fd_lock(second, NULL, 0), -EWOULDBLOCK);
    thread = g_thread_new("close", close_soon, GINT_TO_POINTER(first));
    assert_int_equal(vj_fd_lock(third, NULL, vj_clock_mono_us() + minute_us), 0);
    g_thread_join(thread);
    assert_int_equal(vj_fd_lock_shared(second, NULL, 0, &alone), -EWOULDBLOCK);
    assert_int_equal(vj_fd_lock_shared(third, NULL, 0, &alone), 0);
    assert_true(alone);
    is_taken_otherwise = true;
    assert_int_equal(vj_fd_lock_shared(second, is_taken, 0, &alone), -EWOULDBLOCK);
    is_taken_otherwise = false;
    assert_int_equal(vj_fd_lock(third, NULL, 0), 0);
}

/* By this process, from a device. */
static uint64_t bytes_read(void)
{
    g_autofree char *text = NULL;
    const char *at;

    if (!g_file_get_contents("/proc/self/io", &text, NULL, NULL)) {
        return 0;
    }
    at = strstr(text, "\nread_bytes: ");
    return at != NULL ? g_ascii_strtoull(at + strlen("\nread_bytes: "), NULL, 10) : 0;
}

/* All that is asked for, however long it is: of one call the kernel takes the start. */
static void all_is_read_ahead(void **state)
{
    enum { LEN = 24 << 20 };
    g_autofree uint8_t *some = g_malloc0(LEN);
    Place *place = *state;
    VJ_AUTO_FD fd = openat(place->dir_fd, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint64_t before;

    assert_int_equal(vj_fd_write_all(fd, some, LEN), 0);
    vj_fd_drop_pages(fd);
    before = bytes_read();
    assert_int_equal(vj_fd_pread_all(fd, some, 4096, LEN / 2), 0);
    if (bytes_read() == before) {
        skip(); /* it is in memory alone, or nobody counts */
    }
    vj_fd_drop_pages(fd);
    before = bytes_read();
    vj_fd_read_ahead(fd, 0, LEN);
    assert_true(bytes_read() - before >= LEN - LEN / 8);
}

#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(closing_keeps_errno_and_happens_once),
    IN_PLACE(transfers_are_whole_however_they_are_cut),
    IN_PLACE(sequential_writes_are_whole),
    IN_PLACE(a_short_file_is_ebadmsg),
    IN_PLACE(all_is_read_ahead),
    IN_PLACE(errors_are_told),
    IN_PLACE(replacing_makes_and_changes_a_file),
    IN_PLACE(a_failed_replacement_leaves_old_or_new),
    IN_PLACE(a_reader_never_sees_a_mix),
    IN_PLACE(reading_small_files_has_limits),
    IN_PLACE(a_directory_knows_what_it_is_in),
    IN_PLACE(a_lock_is_waited_for),
    IN_PLACE(a_lock_is_shared),
};

VJ_TEST_MAIN(tests)
