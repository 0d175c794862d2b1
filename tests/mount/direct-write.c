/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * direct-write.c - asynchronous direct writes beside readers of the page cache
 *
 *   direct-write rounds DIR ROUNDS        writes the same bytes of a file in DIR by
 *       io_submit(2) with O_DIRECT, beside two threads that read them through the page
 *       cache; reads them itself when each write is complete.  Prints how often it got
 *       others than were written, and fails then
 *   direct-write one FILE LETTER          one such write, of the first block of FILE,
 *       until it is complete
 *   direct-write rate DIR SECONDS DEPTH   writes blocks of 4 KiB anywhere in a file of 64
 *       MiB, DEPTH at a time, with nobody else; prints how many there were in a second
 *
 * src/front/README.md, "The page cache", rule 8.
 */
#include "base/base.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)65536)
#define SMALL_BYTES ((size_t)4096)
#define FILE_BYTES ((uint64_t)64 << 20)
#define READERS 2u
#define DEPTH_MAX 64u

G_NORETURN static void die(const char *what)
{
    fprintf(stderr, "direct-write: %s: %s\n", what, g_strerror(errno));
    exit(2);
}

static void *aligned(size_t len)
{
    void *block = NULL;

    errno = posix_memalign(&block, SMALL_BYTES, len);
    if (errno != 0) {
        die("memory");
    }
    memset(block, 'a', len);
    return block;
}

static int opened(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);

    if (fd < 0) {
        die(path);
    }
    return fd;
}

/* ---- the kernel's own calls -------------------------------------------------------- */

static aio_context_t aio_begin(void)
{
    aio_context_t aio = 0;

    if (syscall(SYS_io_setup, DEPTH_MAX, &aio) < 0) {
        die("io_setup");
    }
    return aio;
}

static void aio_write(aio_context_t aio, struct iocb *io, int fd, const void *src,
                      size_t len, uint64_t offset)
{
    *io = (struct iocb){.aio_data = (uintptr_t)io,
                        .aio_lio_opcode = IOCB_CMD_PWRITE,
                        .aio_fildes = (uint32_t)fd,
                        .aio_buf = (uintptr_t)src,
                        .aio_nbytes = len,
                        .aio_offset = (int64_t)offset};
    if (syscall(SYS_io_submit, aio, 1, &io) != 1) {
        die("io_submit");
    }
}

/* Waits for one to be complete. */
static struct iocb *aio_done(aio_context_t aio)
{
    struct io_event event = {.res = 0};
    struct iocb *io;

    if (syscall(SYS_io_getevents, aio, 1, 1, &event, NULL) != 1) {
        die("io_getevents");
    }
    io = (struct iocb *)(uintptr_t)event.data;
    errno = event.res < 0 ? (int)-event.res : EIO;
    if (event.res != (int64_t)io->aio_nbytes) {
        die("an asynchronous write");
    }
    return io;
}

/* ---- readers beside ---------------------------------------------------------------- */

typedef struct Reader {
    const char *path;
    gint stop; /* atomic */
} Reader;

static gpointer read_on(gpointer data)
{
    Reader *r = data;
    g_autofree uint8_t *got = g_malloc(BLOCK_BYTES);
    int fd = opened(r->path, O_RDONLY);

    while (g_atomic_int_get(&r->stop) == 0) {
        if (pread(fd, got, BLOCK_BYTES, 0) != (ssize_t)BLOCK_BYTES) {
            die("a reader");
        }
    }
    vj_fd_close(&fd);
    return NULL;
}

static bool reads_as_written(int fd, const uint8_t *written, uint8_t *got)
{
    if (pread(fd, got, BLOCK_BYTES, 0) != (ssize_t)BLOCK_BYTES) {
        die("pread");
    }
    return memcmp(got, written, BLOCK_BYTES) == 0;
}

static uint64_t write_rounds(const char *path, uint64_t rounds)
{
    int fd = opened(path, O_RDWR | O_DIRECT), through = opened(path, O_RDONLY);
    uint8_t *src = aligned(BLOCK_BYTES), *got = aligned(BLOCK_BYTES);
    aio_context_t aio = aio_begin();
    uint64_t stale = 0;
    struct iocb io;

    for (uint64_t i = 0; i < rounds; i++) {
        memset(src, 'a' + (int)(i % 26), BLOCK_BYTES);
        aio_write(aio, &io, fd, src, BLOCK_BYTES, 0);
        (void)aio_done(aio);
        stale += !reads_as_written(through, src, got);
    }
    (void)syscall(SYS_io_destroy, aio);
    vj_fd_close(&fd);
    vj_fd_close(&through);
    free(src);
    free(got);
    return stale;
}

/* A file of @len bytes that are there: asynchronous writes cannot make one longer. */
static char *make_file(const char *dir, uint64_t len)
{
    char *path = g_strdup_printf("%s/direct-write.%d", dir, (int)getpid());
    int fd = opened(path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT);
    void *src = aligned(BLOCK_BYTES);

    for (uint64_t at = 0; at < len; at += BLOCK_BYTES) {
        if (pwrite(fd, src, BLOCK_BYTES, (off_t)at) != (ssize_t)BLOCK_BYTES) {
            die("pwrite");
        }
    }
    free(src);
    vj_fd_close(&fd);
    return path;
}

static int run_rounds(const char *dir, uint64_t rounds)
{
    g_autofree char *path = make_file(dir, BLOCK_BYTES);
    Reader reader = {.path = path};
    GThread *threads[READERS];
    uint64_t stale;

    for (unsigned i = 0; i < READERS; i++) {
        threads[i] = g_thread_new("reader", read_on, &reader);
    }
    stale = write_rounds(path, rounds);
    g_atomic_int_set(&reader.stop, 1);
    for (unsigned i = 0; i < READERS; i++) {
        g_thread_join(threads[i]);
    }
    if (unlink(path) < 0) {
        die("unlink");
    }
    printf("%" G_GUINT64_FORMAT " writes, old pages after %" G_GUINT64_FORMAT "\n",
           rounds, stale);
    return stale > 0;
}

/* ---- one write, and many ----------------------------------------------------------- */

static int run_one(const char *path, char letter)
{
    int fd = opened(path, O_RDWR | O_DIRECT);
    uint8_t *src = aligned(BLOCK_BYTES);
    aio_context_t aio = aio_begin();
    struct iocb io;

    memset(src, letter, BLOCK_BYTES);
    aio_write(aio, &io, fd, src, BLOCK_BYTES, 0);
    (void)aio_done(aio);
    (void)syscall(SYS_io_destroy, aio);
    vj_fd_close(&fd);
    free(src);
    return 0;
}

static int run_rate(const char *dir, int64_t seconds, unsigned depth)
{
    g_autofree char *path = make_file(dir, FILE_BYTES);
    int fd = opened(path, O_RDWR | O_DIRECT);
    int64_t begin_us = vj_clock_mono_us(), end_us = begin_us + seconds * 1000000;
    aio_context_t aio = aio_begin();
    void *src = aligned(SMALL_BYTES);
    struct iocb io[DEPTH_MAX];
    uint64_t count = 0;
    VjRng rng;

    vj_rng_init(&rng, 1);
    for (unsigned i = 0; i < depth; i++) {
        aio_write(aio, &io[i], fd, src, SMALL_BYTES, 0);
    }
    while (vj_clock_mono_us() < end_us) {
        uint64_t block = vj_rng_below(&rng, FILE_BYTES / SMALL_BYTES);

        aio_write(aio, aio_done(aio), fd, src, SMALL_BYTES, block * SMALL_BYTES);
        count++;
    }
    printf("%.0f\n", (double)count * 1e6 / (double)(vj_clock_mono_us() - begin_us));
    for (unsigned i = 0; i < depth; i++) {
        (void)aio_done(aio);
    }
    (void)syscall(SYS_io_destroy, aio);
    vj_fd_close(&fd);
    free(src);
    if (unlink(path) < 0) {
        die("unlink");
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "rounds") == 0 && atoll(argv[3]) > 0) {
        return run_rounds(argv[2], (uint64_t)atoll(argv[3]));
    }
    if (argc == 4 && strcmp(argv[1], "one") == 0) {
        return run_one(argv[2], argv[3][0]);
    }
    if (argc == 5 && strcmp(argv[1], "rate") == 0 && atoll(argv[3]) > 0 &&
        atoi(argv[4]) > 0 && atoi(argv[4]) <= (int)DEPTH_MAX) {
        return run_rate(argv[2], atoll(argv[3]), (unsigned)atoi(argv[4]));
    }
    fprintf(stderr, "usage: direct-write rounds DIR ROUNDS | one FILE LETTER | "
                    "rate DIR SECONDS DEPTH\n");
    return 2;
}
