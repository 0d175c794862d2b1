/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* truncate.c - truncate, ftruncate: sizes, content, times, limits */
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const off_t sizes[] = {
    0,    1,    4,     511,   4079,  4080,    4081,           4095,
    4096, 4097, 65535, 65536, 65537, 1048577, (off_t)1 << 32, ((off_t)1 << 40) + 5};

/* Every byte at the ends of what was and what is: old content, then zeroes. */
static void looks_cut(int fd, off_t old, off_t now)
{
    char byte;

    EQ(now, fstat_of(fd).st_size);
    for (int i = 0; i < 3; i++) {
        off_t spot = i == 0 ? 0 : i == 1 ? (old < now ? old : now) - 1 : now - 1;

        if (spot < 0 || spot >= now) {
            continue;
        }
        EQ(1, pread(fd, &byte, 1, spot));
        EQ(spot < old ? 'x' : 0, byte);
    }
    EQ(0, pread(fd, &byte, 1, now));
}

static void each_size(bool by_fd)
{
    for (size_t i = 0; i < COUNT(sizes); i++) {
        for (size_t j = 0; j < COUNT(sizes); j++) {
            const char *n = made(REGULAR, 0600);
            int fd = (int)MUST(open(n, O_RDWR));
            off_t old = sizes[i];
            struct stat then;

            if (old > 1048577) {
                close(fd);
                MUST(unlink(n));
                continue;
            }
            if (old > 0) {
                char *bytes = malloc((size_t)old);

                memset(bytes, 'x', (size_t)old);
                MUST(write(fd, bytes, (size_t)old) == old ? 0 : -1);
                free(bytes);
            }
            about("%s from %lld to %lld", by_fd ? "ftruncate" : "truncate",
                  (long long)old, (long long)sizes[j]);
            then = before(n);
            OK(by_fd ? ftruncate(fd, sizes[j]) : truncate(n, sizes[j]));
            looks_cut(fd, old, sizes[j]);
            if (sizes[j] != old || by_fd) {
                MC_TIMES(then, n, TIME_M | TIME_C);
            }
            close(fd);
            MUST(unlink(n));
        }
    }
}

/* What was cut off does not come back. */
static void down_and_up(void)
{
    static const off_t ends[] = {0, 1, 100, 4095, 4096, 5000, 69999};
    char bytes[70000];

    for (size_t i = 0; i < COUNT(ends); i++) {
        const char *n = made(REGULAR, 0600);
        int fd = (int)MUST(open(n, O_RDWR));
        bool zeroes = true;

        memset(bytes, 'x', sizeof bytes);
        MUST(write(fd, bytes, sizeof bytes));
        about("to %lld and back", (long long)ends[i]);
        OK(ftruncate(fd, ends[i]));
        OK(ftruncate(fd, sizeof bytes));
        EQ(sizeof bytes, pread(fd, bytes, sizeof bytes, 0));
        for (off_t at = 0; at < (off_t)sizeof bytes; at++) {
            zeroes = zeroes && bytes[at] == (at < ends[i] ? 'x' : 0);
        }
        IS_TRUE(zeroes);
        close(fd);
        MUST(unlink(n));
    }
}

static void types(void)
{
    EACH_KIND(k)
    {
        const char *n = made(k, 0600);

        about("a %s", kind_names[k]);
        if (k == REGULAR) {
            OK(truncate(n, 0));
        } else if (k == SYMLINK) {
            WANT(ENOENT, truncate(n, 0));
        } else {
            WANT(k == DIRECTORY ? EISDIR : EINVAL, truncate(n, 0));
        }
    }
}

static void bad_sizes(void)
{
    const char *n = made(REGULAR, 0600);
    int fd = (int)MUST(open(n, O_RDWR)), pipe_fds[2];

    about("sizes that cannot be");
    WANT(EINVAL, truncate(n, -1));
    WANT(EINVAL, ftruncate(fd, -1));
    WANT(EINVAL, ftruncate(fd, LLONG_MIN));
    WANT(EINVAL, truncate(n, LLONG_MIN));
    WANT(EBADF, ftruncate(-1, 0));
    MUST(pipe(pipe_fds));
    WANT(EINVAL, ftruncate(pipe_fds[1], 0));
    EQ(0, fstat_of(fd).st_size);
    close(fd);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

/* The largest offset is 2^63 - 1, so a file that can be so large holds it, or says
 * EFBIG. */
static void largest(void)
{
    const char *n = made(REGULAR, 0600);
    int fd = (int)MUST(open(n, O_RDWR)), r;

    about("the largest size");
    r = ftruncate(fd, LLONG_MAX);
    IS_TRUE(r == 0 || errno == EFBIG || errno == EINVAL);
    r = (int)pwrite(fd, "x", 1, LLONG_MAX - 1);
    IS_TRUE(r == 1 || (r == -1 && (errno == EFBIG || errno == EINVAL)));
    WANT_EITHER(EFBIG, EINVAL, pwrite(fd, "xx", 2, LLONG_MAX));
    OK(ftruncate(fd, 0));
    EQ(0, fstat_of(fd).st_size);
    close(fd);
}

static void limit_size(rlim_t bytes)
{
    struct rlimit limit;
    const int error = errno;

    MUST(getrlimit(RLIMIT_FSIZE, &limit));
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    MUST(setrlimit(RLIMIT_FSIZE, &limit));
    errno = error;
}

/* The lines of the checks are written without the limit. */
#define LIMITED(call)                                                                    \
    ({                                                                                   \
        limit_size(1000);                                                                \
        errno = 0;                                                                       \
        const long limited_got_ = (long)(call);                                          \
        limit_size(RLIM_INFINITY);                                                       \
        limited_got_;                                                                    \
    })

/* setrlimit(2): SIGXFSZ, and EFBIG where it is ignored. */
static void file_size_limit(void)
{
    const char *n = made(REGULAR, 0600);
    int fd = (int)MUST(open(n, O_RDWR));
    char bytes[600] = "";

    about("RLIMIT_FSIZE");
    signal(SIGXFSZ, SIG_IGN);
    OK(LIMITED(ftruncate(fd, 1000)));
    WANT(EFBIG, LIMITED(ftruncate(fd, 1001)));
    WANT(EFBIG, LIMITED(truncate(n, 1001)));
    OK(LIMITED(ftruncate(fd, 0)));
    EQ(600, LIMITED(write(fd, bytes, 600)));
    EQ(400, LIMITED(write(fd, bytes, 600)));
    WANT(EFBIG, LIMITED(write(fd, bytes, 600)));
    EQ(1000, fstat_of(fd).st_size);
    EQ(600, write(fd, bytes, 600));
    OK(LIMITED(ftruncate(fd, 1200))); /* less than it was */
    close(fd);
    EQ(1200, stat_of(n).st_size);
}

static void while_mapped_and_open(void)
{
    const char *n = made(REGULAR, 0600);
    int a = (int)MUST(open(n, O_RDWR)), b = (int)MUST(open(n, O_RDWR));
    char text[16];

    about("several descriptors");
    EQ(8, write(a, "abcdefgh", 8));
    OK(ftruncate(b, 4));
    EQ(4, pread(a, text, 16, 0));
    EQ(8, lseek(a, 0, SEEK_CUR));
    EQ(2, write(a, "XY", 2)); /* at 8: a hole in between */
    EQ(10, pread(b, text, 16, 0));
    EQ(0, memcmp(text, "abcd\0\0\0\0XY", 10));
    OK(truncate(n, 0));
    EQ(0, pread(b, text, 16, 0));
    close(a);
    close(b);
}

TOPIC(truncate)
{
    each_size(false);
    each_size(true);
    down_and_up();
    types();
    bad_sizes();
    largest();
    file_size_limit();
    while_mapped_and_open();
}
