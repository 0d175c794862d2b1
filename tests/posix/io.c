/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* io.c - copy_file_range, vectors, flags of preadv2 and pwritev2, splice, large
 * offsets */
#include <limits.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static int fd_of(const char *n, int flags)
{
    return (int)MUST(open(n, flags, 0600));
}

/* @len bytes that differ from place to place. */
static void fill(int fd, size_t len, unsigned seed)
{
    char *bytes = malloc(len);

    for (size_t i = 0; i < len; i++) {
        bytes[i] = (char)((i * 2654435761u + seed) >> 13);
    }
    MUST(pwrite(fd, bytes, len, 0) == (ssize_t)len ? 0 : -1);
    free(bytes);
}

static bool same_bytes(int a, off_t a_at, int b, off_t b_at, size_t len)
{
    char *x = malloc(len), *y = malloc(len);
    bool same = pread(a, x, len, a_at) == (ssize_t)len &&
                pread(b, y, len, b_at) == (ssize_t)len && memcmp(x, y, len) == 0;

    free(x);
    free(y);
    return same;
}

static void copy_ranges(void)
{
    static const struct {
        loff_t from, to;
        size_t len, wanted;
    } ranges[] = {
        {0, 0, 100, 100},     {1, 3, 5000, 5000},         {0, 200000, 300000, 300000},
        {299990, 0, 100, 10}, {300000, 0, 100, 0},        {400000, 0, 100, 0},
        {0, 1 << 20, 1, 1},   {4096, 8192, 65536, 65536}, {12345, 54321, 111111, 111111},
        {0, 0, 0, 0},
    };
    const char *a = made(REGULAR, 0600), *b = made(REGULAR, 0600);
    int in = fd_of(a, O_RDWR), out = fd_of(b, O_RDWR);

    fill(in, 300000, 1);
    for (size_t i = 0; i < COUNT(ranges); i++) {
        loff_t from = ranges[i].from, to = ranges[i].to;
        off_t size = fstat_of(out).st_size, end = to + (off_t)ranges[i].wanted;
        size_t done = 0;

        about("copy_file_range of %zu bytes from %lld to %lld", ranges[i].len,
              (long long)from, (long long)to);
        while (done < ranges[i].wanted) { /* it may be short */
            ssize_t got = copy_file_range(in, &from, out, &to, ranges[i].len - done, 0);

            if (got <= 0) {
                break;
            }
            done += (size_t)got;
        }
        EQ(ranges[i].wanted, done);
        EQ(ranges[i].from + (loff_t)done, from);
        EQ(ranges[i].to + (loff_t)done, to);
        EQ(0, copy_file_range(in, &(loff_t){300000}, out, &(loff_t){0}, 10, 0));
        EQ(ranges[i].wanted > 0 && end > size ? end : size, fstat_of(out).st_size);
        IS_TRUE(same_bytes(in, ranges[i].from, out, ranges[i].to, done));
    }
    about("copy_file_range with the positions");
    EQ(10, lseek(in, 10, SEEK_SET));
    EQ(20, lseek(out, 20, SEEK_SET));
    EQ(30, copy_file_range(in, NULL, out, NULL, 30, 0));
    EQ(40, lseek(in, 0, SEEK_CUR));
    EQ(50, lseek(out, 0, SEEK_CUR));
    about("copy_file_range within a file");
    EQ(1000, copy_file_range(in, &(loff_t){0}, in, &(loff_t){5000}, 1000, 0));
    IS_TRUE(same_bytes(in, 0, in, 5000, 1000));
    WANT(EINVAL, copy_file_range(in, &(loff_t){0}, in, &(loff_t){500}, 1000, 0));
    WANT(EINVAL, copy_file_range(in, &(loff_t){500}, in, &(loff_t){0}, 1000, 0));
    close(in);
    close(out);
}

static void copy_errors(void)
{
    const char *a = made(REGULAR, 0600), *b = made(REGULAR, 0600),
               *dir = made(DIRECTORY, 0700);
    int r = fd_of(a, O_RDONLY), w = fd_of(b, O_WRONLY),
        append = fd_of(b, O_RDWR | O_APPEND);
    int d = fd_of(dir, O_RDONLY), place = fd_of(a, O_PATH), pipe_fds[2];

    MUST(truncate(a, 100));
    MUST(pipe(pipe_fds));
    about("errors of copy_file_range");
    WANT(EBADF, copy_file_range(-1, NULL, w, NULL, 1, 0));
    WANT(EBADF, copy_file_range(r, NULL, -1, NULL, 1, 0));
    WANT(EBADF, copy_file_range(w, NULL, w, NULL, 1, 0));
    WANT(EBADF, copy_file_range(r, NULL, r, NULL, 1, 0));
    WANT(EBADF, copy_file_range(r, NULL, append, NULL, 1, 0));
    WANT(EBADF, copy_file_range(place, NULL, w, NULL, 1, 0));
    WANT(EISDIR, copy_file_range(d, NULL, w, NULL, 1, 0));
    WANT_EITHER(EISDIR, EBADF, copy_file_range(r, NULL, d, NULL, 1, 0));
    WANT(EINVAL, copy_file_range(pipe_fds[0], NULL, w, NULL, 1, 0));
    WANT(EINVAL, copy_file_range(r, NULL, pipe_fds[1], NULL, 1, 0));
    WANT(EINVAL, copy_file_range(r, NULL, w, NULL, 1, 1));
    WANT_EITHER(EFBIG, EOVERFLOW,
                copy_file_range(r, &(loff_t){0}, w, &(loff_t){LLONG_MAX}, 100, 0));
    EQ(0, fstat_of(w).st_size);
    for (int i = 0; i < 2; i++) {
        close(pipe_fds[i]);
    }
    close(r);
    close(w);
    close(append);
    close(d);
    close(place);
}

static void vectors(void)
{
    const char *n = made(REGULAR, 0600);
    int fd = fd_of(n, O_RDWR), flags;
    char a[4] = "abcd", b[8] = "efghijk", x[3], y[20];
    struct iovec out[3] = {{a, 4}, {NULL, 0}, {b, 7}}, in[2] = {{x, 3}, {y, 20}};
    static struct iovec many[IOV_MAX + 1];

    about("vectors");
    EQ(11, writev(fd, out, 3));
    EQ(11, fstat_of(fd).st_size);
    EQ(0, lseek(fd, 0, SEEK_SET));
    EQ(11, readv(fd, in, 2));
    EQ(0, memcmp(x, "abc", 3) != 0 || memcmp(y, "defghijk", 8) != 0);
    EQ(11, pwritev(fd, out, 3, 100));
    EQ(111, fstat_of(fd).st_size);
    EQ(11, preadv(fd, in, 2, 100));
    EQ(0, writev(fd, out, 0));
    WANT(EINVAL, syscall(SYS_writev, fd, out, -1L));
    WANT(EINVAL, syscall(SYS_readv, fd, in, -1L));
    WANT(EINVAL, writev(fd, many, IOV_MAX + 1));
    EQ(0, writev(fd, many, IOV_MAX));
    WANT(EINVAL, pwritev(fd, out, 3, -1));
    about("flags of pwritev2");
    EQ(11, pwritev2(fd, out, 3, 0, RWF_DSYNC));
    EQ(11, pwritev2(fd, out, 3, 0, RWF_SYNC));
    EQ(11, pwritev2(fd, out, 3, 0, RWF_APPEND));
    EQ(122, fstat_of(fd).st_size);
    EQ(0, lseek(fd, 0, SEEK_SET));
    EQ(11, pwritev2(fd, out, 3, -1, 0));
    EQ(11, lseek(fd, 0, SEEK_CUR));
    WANT(EOPNOTSUPP, pwritev2(fd, out, 3, 0, 0x4000));
    flags = (int)preadv2(fd, in, 2, 0, RWF_NOWAIT);
    IS_TRUE(flags > 0 || errno == EAGAIN || errno == EOPNOTSUPP);
    close(fd);
}

static void through_pipes(void)
{
    const char *a = made(REGULAR, 0600), *b = made(REGULAR, 0600);
    int in = fd_of(a, O_RDWR), out = fd_of(b, O_RDWR), pipe_fds[2];
    loff_t from = 1000, to = 500;
    off_t at = 70000;

    fill(in, 100000, 7);
    MUST(pipe(pipe_fds));
    about("splice");
    EQ(4000, splice(in, &from, pipe_fds[1], NULL, 4000, 0));
    EQ(5000, from);
    EQ(4000, splice(pipe_fds[0], NULL, out, &to, 4000, 0));
    EQ(4500, to);
    IS_TRUE(same_bytes(in, 1000, out, 500, 4000));
    EQ(4500, fstat_of(out).st_size);
    WANT(EINVAL, splice(in, NULL, out, NULL, 10, 0));
    about("sendfile");
    EQ(0, lseek(out, 0, SEEK_SET));
    EQ(30000, sendfile(out, in, &at, 100000));
    EQ(100000, at);
    IS_TRUE(same_bytes(in, 70000, out, 0, 30000));
    EQ(0, sendfile(out, in, &at, 10));
    close(in);
    close(out);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

/* Offsets that a 32-bit variable would not hold. */
static void far_away(void)
{
    static const off_t spots[] = {((off_t)1 << 31) - 4, ((off_t)1 << 31) + 9,
                                  ((off_t)1 << 32) - 3, ((off_t)1 << 32) + 9,
                                  ((off_t)1 << 40) + 7};
    const char *n = made(REGULAR, 0600);
    int fd = fd_of(n, O_RDWR);
    char got[16];

    for (size_t i = 0; i < COUNT(spots); i++) {
        about("at offset %lld", (long long)spots[i]);
        EQ(8, pwrite(fd, "far away", 8, spots[i]));
        EQ(spots[i] + 8, fstat_of(fd).st_size);
        EQ(8, pread(fd, got, 16, spots[i]));
        EQ(0, memcmp(got, "far away", 8));
        EQ(4, pread(fd, got, 4, spots[i] - 4));
        EQ(spots[i] + 8, lseek(fd, 0, SEEK_END));
    }
    IS_TRUE(fstat_of(fd).st_blocks < 4096);
    OK(fsync(fd));
    for (size_t i = 0; i < COUNT(spots); i++) {
        about("at offset %lld, later", (long long)spots[i]);
        EQ(8, pread(fd, got, 8, spots[i]));
        EQ(0, memcmp(got, "far away", 8));
    }
    close(fd);
}

TOPIC(io)
{
    copy_ranges();
    copy_errors();
    vectors();
    through_pipes();
    far_away();
}
