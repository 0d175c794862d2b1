/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* mmap.c - mapped files: what stores, write(2), truncation and fork show each other */
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "posix.h"

#define PAGE 4096

static sigjmp_buf out_of_fault;
static int fault_code;

static void fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    fault_code = info->si_code;
    siglongjmp(out_of_fault, number);
}

/* The signal that touching a byte gives; 0: none. */
static int touch(volatile char *at, bool store)
{
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
    int number;

    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    number = sigsetjmp(out_of_fault, 1);
    if (number == 0) {
        char c = *at;

        if (store) {
            *at = (char)(c + 1);
        }
    }
    signal(SIGBUS, SIG_DFL);
    signal(SIGSEGV, SIG_DFL);
    return number;
}

static char *map(int fd, size_t len, int prot, int flags)
{
    void *at = mmap(NULL, len, prot, flags, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

/* All @len bytes at @at are @byte. */
static bool all(const char *at, size_t len, char byte)
{
    for (size_t i = 0; i < len; i++) {
        if (at[i] != byte) {
            return false;
        }
    }
    return true;
}

static bool file_has(const char *n, off_t offset, size_t len, char byte)
{
    int fd = (int)MUST(open(n, O_RDONLY));
    char *bytes = malloc(len);
    bool right = pread(fd, bytes, len, offset) == (ssize_t)len && all(bytes, len, byte);

    free(bytes);
    close(fd);
    return right;
}

static int fill(int fd, off_t offset, size_t len, char byte)
{
    char *bytes = malloc(len);
    ssize_t n;

    memset(bytes, byte, len);
    n = pwrite(fd, bytes, len, offset);
    free(bytes);
    return n == (ssize_t)len ? 0 : -1;
}

TOPIC(mmap_shared)
{
    const char *n = made(REGULAR, 0644);
    int fd = (int)MUST(open(n, O_RDWR)), other = (int)MUST(open(n, O_RDWR));
    struct stat then;
    char *m, *p, *again;

    MUST(fill(fd, 0, 10 * PAGE, 'a'));
    m = map(fd, 10 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);
    p = map(fd, 10 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    again = map(other, 10 * PAGE, PROT_READ, MAP_SHARED);
    IS_TRUE(m != NULL && p != NULL && again != NULL);
    IS_TRUE(all(m, 10 * PAGE, 'a'));
    memset(m + PAGE + 10, 'b', PAGE);
    IS_TRUE(all(again + PAGE + 10, PAGE, 'b'));
    IS_TRUE(file_has(n, PAGE + 10, PAGE, 'b'));
    MUST(fill(other, 3 * PAGE - 5, 10, 'c'));
    IS_TRUE(all(m + 3 * PAGE - 5, 10, 'c'));
    IS_TRUE(all(p + 3 * PAGE - 5, 10, 'c')); /* pages that were not stored to */
    memset(p + 5 * PAGE, 'p', PAGE);
    IS_TRUE(file_has(n, 5 * PAGE, PAGE, 'a'));
    MUST(fill(fd, 5 * PAGE, PAGE, 'd'));
    IS_TRUE(all(p + 5 * PAGE, PAGE, 'p'));
    IS_TRUE(all(m + 5 * PAGE, PAGE, 'd'));
    then = before(n);
    m[7 * PAGE] = 'e';
    OK(msync(m + 7 * PAGE, PAGE, MS_SYNC));
    MC_TIMES(then, n, TIME_M | TIME_C);
    IS_TRUE(file_has(n, 7 * PAGE, 1, 'e'));
    OK(msync(m, 10 * PAGE, MS_ASYNC));
    OK(msync(m, 10 * PAGE, MS_INVALIDATE));
    WANT(EINVAL, msync(m, PAGE, MS_SYNC | MS_ASYNC));
    WANT(EINVAL, msync(m + 1, PAGE, MS_SYNC));
    CHILD
    {
        memset(m + 8 * PAGE, 'f', PAGE);
        memset(p + 8 * PAGE, 'f', PAGE);
    }
    IS_TRUE(all(again + 8 * PAGE, PAGE, 'f'));
    IS_TRUE(all(p + 8 * PAGE, PAGE, 'a') || all(p + 8 * PAGE, PAGE, 'f'));
    /* A buffer that is the file itself. */
    EQ(2 * PAGE, pwrite(fd, m + 8 * PAGE, 2 * PAGE, PAGE));
    IS_TRUE(all(m + PAGE, PAGE, 'f') && all(m + 2 * PAGE, PAGE, 'a'));
    EQ(PAGE, pread(fd, m, PAGE, 8 * PAGE));
    IS_TRUE(file_has(n, 0, PAGE, 'f'));
    /* The mapping lives on without descriptor and name. */
    close(fd);
    close(other);
    MUST(unlink(n));
    m[9 * PAGE] = 'g';
    EQ('g', again[9 * PAGE]);
    OK(munmap(m, 10 * PAGE));
    EQ('g', again[9 * PAGE]);
    OK(munmap(again, 10 * PAGE));
    OK(munmap(p, 10 * PAGE));
}

TOPIC(mmap_size)
{
    const char *n = made(REGULAR, 0644);
    int fd = (int)MUST(open(n, O_RDWR));
    char *m;

    MUST(fill(fd, 0, PAGE + 100, 'a'));
    m = map(fd, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);
    IS_TRUE(m != NULL);
    /* Behind the end of the file: zeroes in its last page, nothing in the next. */
    IS_TRUE(all(m + PAGE + 100, PAGE - 100, 0));
    EQ(SIGBUS, touch(m + 2 * PAGE, false));
    EQ(BUS_ADRERR, fault_code);
    EQ(SIGBUS, touch(m + 2 * PAGE, true));
    memset(m + PAGE, 'b', PAGE);
    OK(msync(m, 2 * PAGE, MS_SYNC));
    EQ(PAGE + 100, stat_of(n).st_size);
    /* Growth: what was stored behind the end does not come back. */
    MUST(ftruncate(fd, 4 * PAGE));
    EQ(0, touch(m + 2 * PAGE, false));
    IS_TRUE(all(m + PAGE, 100, 'b'));
    IS_TRUE(file_has(n, PAGE + 100, PAGE - 100, 0));
    IS_TRUE(all(m + PAGE + 100, 3 * PAGE - 100, 0));
    EQ(SIGBUS, touch(m + 4 * PAGE, false));
    MUST(fill(fd, 5 * PAGE, 10, 'c')); /* by write(2), beyond the end */
    EQ(0, touch(m + 4 * PAGE, true));
    EQ('c', m[5 * PAGE]);
    EQ(SIGBUS, touch(m + 6 * PAGE, false));
    memset(m + 4 * PAGE, 'd', PAGE);
    MUST(ftruncate(fd, PAGE + 5));
    EQ(SIGBUS, touch(m + 4 * PAGE, false));
    EQ(SIGBUS, touch(m + 2 * PAGE, true));
    EQ(0, touch(m + PAGE, false));
    IS_TRUE(all(m + PAGE + 5, PAGE - 5, 0));
    MUST(ftruncate(fd, 6 * PAGE));
    IS_TRUE(all(m + PAGE + 5, 5 * PAGE - 5, 0));
    MUST(ftruncate(fd, 0));
    EQ(SIGBUS, touch(m, false));
    OK(munmap(m, 8 * PAGE));
    close(fd);
}

TOPIC(mmap_rights)
{
    const char *n = made(REGULAR, 0644), *d = made(DIRECTORY, 0755),
               *f = made(FIFO, 0644);
    int r = (int)MUST(open(n, O_RDONLY)), w = (int)MUST(open(n, O_WRONLY)),
        p = (int)MUST(open(n, O_PATH)), dir = (int)MUST(open(d, O_RDONLY)),
        fifo = (int)MUST(open(f, O_RDWR));
    char *m;

    MUST(truncate(n, PAGE));
#define MAP(fd, len, prot, flags) (map(fd, len, prot, flags) == NULL ? -1 : 0)
    WANT(EACCES, MAP(r, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED));
    WANT(EACCES, MAP(r, PAGE, PROT_WRITE, MAP_SHARED));
    OK(MAP(r, PAGE, PROT_READ, MAP_SHARED));
    OK(MAP(r, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE));
    WANT(EACCES, MAP(w, PAGE, PROT_WRITE, MAP_SHARED));
    WANT(EACCES, MAP(w, PAGE, PROT_READ, MAP_PRIVATE));
    WANT(EBADF, MAP(p, PAGE, PROT_READ, MAP_SHARED));
    WANT(EBADF, MAP(-1, PAGE, PROT_READ, MAP_SHARED));
    WANT(ENODEV, MAP(dir, PAGE, PROT_READ, MAP_SHARED));
    WANT(ENODEV, MAP(fifo, PAGE, PROT_READ, MAP_SHARED));
    WANT(EINVAL, MAP(r, 0, PROT_READ, MAP_SHARED));
    WANT(EINVAL, MAP(r, PAGE, PROT_READ, 0));
    m = map(r, PAGE, PROT_READ, MAP_SHARED);
    WANT(EACCES, mprotect(m, PAGE, PROT_READ | PROT_WRITE));
    EQ(SIGSEGV, touch(m, true));
    EQ(0, touch(m, false));
    WANT(EINVAL, (long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, r, 1)); /* no page */
    close(r);
    close(w);
    close(p);
    close(dir);
    close(fifo);
}

/* Many small stores from two processes, each its own bytes of the same pages. */
TOPIC(mmap_processes)
{
    const char *n = made(REGULAR, 0644);
    const size_t len = 64 * PAGE;
    int fd = (int)MUST(open(n, O_RDWR)), written[2];
    char *m, *bytes = malloc(len);
    bool right = true;

    MUST(ftruncate(fd, (off_t)len));
    MUST(pipe(written));
    m = map(fd, len, PROT_READ | PROT_WRITE, MAP_SHARED);
    for (int round = 1; round <= 5; round++) {
        int pid = (int)MUST(fork());

        for (size_t i = pid == 0; i < len; i += 2) {
            m[i] = (char)(round + (pid == 0));
        }
        if (pid == 0) {
            _exit(msync(m, len, MS_SYNC) == 0 && write(written[1], "x", 1) == 1 ? 0 : 1);
        }
        MUST(msync(m, len, MS_ASYNC));
        EQ(1, read(written[0], bytes, 1));
        EQ((ssize_t)len, pread(fd, bytes, len, 0));
        for (size_t i = 0; i < len; i++) {
            right &= bytes[i] == round + (int)(i % 2);
        }
        IS_TRUE(right);
    }
    free(bytes);
    MUST(munmap(m, len));
    close(fd);
}
