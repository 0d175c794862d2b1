/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* append.c - O_APPEND of several processes, O_SYNC, limits of the size of a file */
#include <signal.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "posix.h"

#define WRITERS 4
#define RECORDS 400

/* "<writer number length xxxx…>", 20 to 1500 bytes, some longer than a page. */
static size_t record(char *out, int writer, int number)
{
    size_t len = 20 + (size_t)(number * 37 + writer * 101) % 1480;

    if (number % 50 == 0) {
        len += 9000;
    }
    memset(out, 'a' + writer, len);
    out[sprintf(out, "<%d %d %zu ", writer, number, len)] = (char)('a' + writer);
    out[len - 1] = '>';
    return len;
}

static void appender(const char *name, int writer, int flags)
{
    int fd = open(name, O_WRONLY | O_APPEND | flags);
    char bytes[12000];

    for (int i = 0; i < RECORDS; i++) {
        size_t len = record(bytes, writer, i);

        if (write(fd, bytes, len) != (ssize_t)len) {
            _exit(1);
        }
    }
    _exit(0);
}

/* Every record is there once, whole, and each writer's in its order. */
static bool all_there(const char *name)
{
    int next[WRITERS] = {0}, fd = (int)MUST(open(name, O_RDONLY));
    size_t size = (size_t)fstat_of(fd).st_size, at = 0;
    char *bytes = malloc(size + 1), wanted[12000];

    EQ((ssize_t)size, pread(fd, bytes, size, 0));
    bytes[size] = '\0';
    close(fd);
    while (at < size) {
        int writer, number;
        size_t len;

        if (sscanf(bytes + at, "<%d %d %zu ", &writer, &number, &len) != 3 ||
            writer < 0 || writer >= WRITERS || number != next[writer] ||
            len != record(wanted, writer, number) || at + len > size ||
            memcmp(bytes + at, wanted, len) != 0) {
            break;
        }
        next[writer]++;
        at += len;
    }
    free(bytes);
    for (int w = 0; w < WRITERS; w++) {
        EQ(RECORDS, next[w]);
    }
    return at == size;
}

static void writers_at_once(int flags, const char *what)
{
    const char *n = made(REGULAR, 0644);
    int pids[WRITERS];

    about("%s", what);
    for (int w = 0; w < WRITERS; w++) {
        pids[w] = (int)MUST(fork());
        if (pids[w] == 0) {
            appender(n, w, flags);
        }
    }
    for (int w = 0; w < WRITERS; w++) {
        int status = -1;

        MUST(waitpid(pids[w], &status, 0));
        EQ(0, status);
    }
    IS_TRUE(all_there(n));
    about("%s", "");
}

TOPIC(append)
{
    const char *n = made(REGULAR, 0644);
    int a = (int)MUST(open(n, O_RDWR | O_APPEND)), b = (int)MUST(open(n, O_RDWR));
    struct iovec parts[2] = {{.iov_base = "12", .iov_len = 2},
                             {.iov_base = "34", .iov_len = 2}};
    char bytes[20];

    EQ(3, write(a, "abc", 3));
    EQ(3, lseek(a, 0, SEEK_CUR));
    EQ(0, lseek(a, 0, SEEK_SET));
    EQ(1, read(a, bytes, 1));
    EQ('a', bytes[0]);
    EQ(2, write(a, "de", 2)); /* at the end, wherever it read */
    EQ(5, lseek(a, 0, SEEK_CUR));
    EQ(2, pwrite(a, "fg", 2, 0)); /* on Linux at the end too */
    EQ(5, lseek(a, 0, SEEK_CUR));
    EQ(1, pwrite(b, "X", 1, 20));
    EQ(4, writev(a, parts, 2));
    EQ(25, stat_of(n).st_size);
    MUST(ftruncate(b, 2));
    EQ(1, write(a, "z", 1));
    IS_TRUE(holds(n, "abz"));
    OK(fcntl(b, F_SETFL, O_APPEND));
    EQ(1, write(b, "y", 1));
    OK(fcntl(b, F_SETFL, 0));
    EQ(0, lseek(b, 0, SEEK_SET));
    EQ(1, write(b, "A", 1));
    IS_TRUE(holds(n, "Abzy"));
    close(a);
    close(b);
    writers_at_once(0, "plain");
}

TOPIC(append_sync)
{
    static const int flags[] = {O_SYNC, O_DSYNC};

    for (int i = 0; i < 2; i++) {
        const char *n = made(REGULAR, 0644);
        int fd = (int)MUST(open(n, O_RDWR | flags[i]));

        about("%s", i == 0 ? "O_SYNC" : "O_DSYNC");
        EQ(flags[i], fcntl(fd, F_GETFL) & O_SYNC);
        for (int k = 0; k < 20; k++) {
            EQ(3, pwrite(fd, "abc", 3, k * 1000));
        }
        EQ(19003, stat_of(n).st_size);
        OK(fdatasync(fd));
        OK(fsync(fd));
        close(fd);
    }
    about("%s", "");
    {
        int dir = (int)MUST(open(".", O_RDONLY | O_DIRECTORY)), p[2];
        const char *n = made(REGULAR, 0644);
        int r = (int)MUST(open(n, O_RDONLY)), o = (int)MUST(open(n, O_PATH));

        MUST(pipe(p));
        OK(fsync(dir));
        OK(fdatasync(dir));
        OK(fsync(r)); /* needs no descriptor for writing */
        OK(syncfs(r));
        WANT(EBADF, fsync(o));
        WANT(EINVAL, fsync(p[0]));
        WANT(EBADF, fsync(-1));
        close(dir);
        close(r);
        close(o);
    }
}

/* ---- RLIMIT_FSIZE ------------------------------------------------------------------ */

static volatile sig_atomic_t signals;

static void count(int number)
{
    (void)number;
    signals++;
}

static int signals_of(void)
{
    int n = signals;

    signals = 0;
    return n;
}

/* Above what the lines of this program need. */
#define LIMIT ((off_t)64 << 20)

static void beyond_limit(void)
{
    const char *n = made(REGULAR, 0644);
    int fd = (int)MUST(open(n, O_RDWR)), app = (int)MUST(open(n, O_WRONLY | O_APPEND));
    char bytes[4096];

    memset(bytes, 'x', sizeof bytes);
    EQ(4096, pwrite(fd, bytes, 4096, LIMIT - 10000));
    EQ(4096, pwrite(fd, bytes, 4096, LIMIT - 5904));
    EQ(1808, pwrite(fd, bytes, 4096, LIMIT - 1808)); /* up to the limit */
    EQ(0, signals_of());
    WANT(EFBIG, pwrite(fd, bytes, 1, LIMIT));
    EQ(1, signals_of());
    WANT(EFBIG, write(app, bytes, 1));
    EQ(1, signals_of());
    WANT(EFBIG, pwrite(fd, bytes, 1, LIMIT * 2));
    EQ(1, signals_of());
    EQ(0, pwrite(fd, bytes, 0, LIMIT * 2));
    EQ(0, signals_of());
    WANT(EFBIG, ftruncate(fd, LIMIT + 1));
    EQ(1, signals_of());
    WANT(EFBIG, truncate(n, LIMIT + 1));
    EQ(1, signals_of());
    WANT(EFBIG, fallocate(fd, 0, 0, LIMIT + 1));
    EQ(1, signals_of());
    EQ(LIMIT, stat_of(n).st_size);
    EQ(100, pwrite(fd, bytes, 100, LIMIT - 100)); /* what is below may change */
    OK(ftruncate(fd, LIMIT));
    OK(ftruncate(fd, LIMIT - 1000));
    OK(fallocate(fd, 0, LIMIT - 2000, 2000));
    EQ(LIMIT, stat_of(n).st_size);
    EQ(0, signals_of());
    close(fd);
    close(app);
}

TOPIC(file_size_limit)
{
    CHILD
    {
        struct rlimit limit;

        MUST(getrlimit(RLIMIT_FSIZE, &limit));
        limit.rlim_cur = (rlim_t)LIMIT;
        signal(SIGXFSZ, count);
        MUST(setrlimit(RLIMIT_FSIZE, &limit));
        beyond_limit();
    }
}
