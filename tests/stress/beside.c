/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * beside.c - what a call that holds the lock of an inode does to others, on any file
 * system
 *
 *     beside DIR SECONDS fsync|read|store
 *
 * fsync: one thread writes 4 MiB and syncs them, again and again, another one changes the
 * size of the file by a byte when each fsync(2) has been under way for a millisecond.
 * Prints how many of the changes were done another millisecond before the fsync(2).
 * read: one thread deletes the file but for its first page and writes it anew, another
 * one reads behind that page.  Prints how many reads saw zeroes, which nobody has
 * written.  store: one thread stores into a mapping, another one makes the file shorter
 * and then longer.  Prints how many stores were made while it was being made shorter, and
 * how many of them are not there.
 *
 * The figures: doc/measured/front.md, "What the kernel loses on any FUSE file system".
 */
#include "base/base.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "varjfs/rwrite.h"

#define PAGE_BYTES ((size_t)4096)
#define SYNC_BYTES ((size_t)4 << 20)
#define FILE_BYTES ((size_t)65536)
#define AHEAD_US ((int64_t)1000)

typedef struct Beside {
    int fd;
    gint call;        /* atomic; odd: the call with this number is under way */
    gint stop;        /* atomic */
    GArray *ended_us; /* int64_t, of each fsync(2); of its thread until the end */
    uint8_t *map;
    GMutex lock;
    GCond changed;
    /* guarded by lock: */
    unsigned round; /* of stores that have begun */
} Beside;

G_NORETURN static void die(const char *what)
{
    fprintf(stderr, "beside: %s: %s\n", what, g_strerror(errno));
    exit(2);
}

static void fill(int fd, uint8_t letter, size_t from, size_t to)
{
    g_autofree uint8_t *src = g_malloc(to - from);

    memset(src, letter, to - from);
    if (pwrite(fd, src, to - from, (off_t)from) != (ssize_t)(to - from)) {
        die("write");
    }
}

/* ---- fsync ------------------------------------------------------------------------- */

static gpointer sync_on(gpointer data)
{
    Beside *b = data;

    for (uint8_t letter = 0; g_atomic_int_get(&b->stop) == 0; letter++) {
        int64_t now_us;

        fill(b->fd, letter, 0, SYNC_BYTES);
        g_atomic_int_inc(&b->call);
        if (fsync(b->fd) < 0) {
            die("fsync");
        }
        now_us = vj_clock_mono_us();
        g_array_append_val(b->ended_us, now_us);
        g_atomic_int_inc(&b->call);
    }
    return NULL;
}

/* The number of an fsync(2) that has been under way for a millisecond; -1 at the end. */
static int64_t next_sync(Beside *b, int64_t until_us, gint last)
{
    gint call = last, now = last;
    int64_t since_us = 0;

    while (now == last || now % 2 == 0 || vj_clock_mono_us() < since_us + AHEAD_US) {
        g_thread_yield();
        now = g_atomic_int_get(&b->call);
        if (now != call) {
            call = now;
            since_us = vj_clock_mono_us();
        }
        if (vj_clock_mono_us() > until_us) {
            return -1;
        }
    }
    return now;
}

/* One change of the size beside each fsync(2): whoever makes them without a pause takes
 * the lock first. */
static void beside_fsync(Beside *b, int64_t until_us)
{
    g_autoptr(GArray) ended_us = g_array_new(FALSE, FALSE, sizeof(int64_t));
    g_autoptr(GArray) changed_us = g_array_new(FALSE, FALSE, sizeof(int64_t));
    g_autoptr(GArray) calls = g_array_new(FALSE, FALSE, sizeof(int64_t));
    GThread *syncer;
    int64_t call = 0;
    guint before = 0;

    b->ended_us = ended_us;
    syncer = g_thread_new("sync", sync_on, b);
    while ((call = next_sync(b, until_us, (gint)call)) >= 0) {
        int64_t now_us;

        if (ftruncate(b->fd, (off_t)SYNC_BYTES + (off_t)(calls->len % 2)) < 0) {
            die("ftruncate");
        }
        now_us = vj_clock_mono_us();
        g_array_append_val(calls, call);
        g_array_append_val(changed_us, now_us);
    }
    g_atomic_int_set(&b->stop, 1);
    g_thread_join(syncer);
    for (guint i = 0; i < calls->len; i++) {
        before += g_array_index(changed_us, int64_t, i) + AHEAD_US <
                  g_array_index(ended_us, int64_t, g_array_index(calls, int64_t, i) / 2);
    }
    printf("%u changes of size began beside an fsync: %u were done before it\n",
           calls->len, before);
}

/* ---- read -------------------------------------------------------------------------- */

static gpointer shorten_on(gpointer data)
{
    Beside *b = data;

    while (g_atomic_int_get(&b->stop) == 0) {
        if (rpwrite(b->fd, NULL, 0, PAGE_BYTES, FILE_BYTES - PAGE_BYTES) < 0) {
            die("rpwrite");
        }
        g_atomic_int_inc(&b->call);
        fill(b->fd, 'x', PAGE_BYTES, FILE_BYTES);
    }
    return NULL;
}

static void beside_read(Beside *b, int64_t until_us)
{
    g_autofree uint8_t *got = g_malloc(FILE_BYTES);
    GThread *shortener = g_thread_new("shorten", shorten_on, b);
    uint64_t reads = 0, zeroes = 0;

    while (vj_clock_mono_us() < until_us) {
        ssize_t n = pread(b->fd, got, FILE_BYTES - PAGE_BYTES, (off_t)PAGE_BYTES);

        if (n < 0) {
            die("read");
        }
        reads++;
        zeroes += memchr(got, 0, (size_t)n) != NULL;
    }
    g_atomic_int_set(&b->stop, 1);
    g_thread_join(shortener);
    printf("%" G_GUINT64_FORMAT " reads beside %d deletes: %" G_GUINT64_FORMAT
           " saw zeroes\n",
           reads, b->call, zeroes);
}

/* ---- store ------------------------------------------------------------------------- */

static sigjmp_buf behind_the_end;

static void on_bus(int number)
{
    (void)number;
    siglongjmp(behind_the_end, 1);
}

static void begin_round(Beside *b)
{
    g_mutex_lock(&b->lock);
    b->round++;
    g_cond_broadcast(&b->changed);
    g_mutex_unlock(&b->lock);
}

static void await_round(Beside *b, unsigned round)
{
    g_mutex_lock(&b->lock);
    while (b->round < round) {
        g_cond_wait(&b->changed, &b->lock);
    }
    g_mutex_unlock(&b->lock);
}

/* Until the call that makes the file shorter is over; true: a store began and ended while
 * it was under way. */
static bool store_during(Beside *b, volatile uint8_t *at)
{
    volatile bool during = false;
    gint idle = g_atomic_int_get(&b->call);

    if (sigsetjmp(behind_the_end, 1) == 0) {
        begin_round(b);
        for (gint call = idle; call <= idle + 1; call = g_atomic_int_get(&b->call)) {
            *at = 'y';
            during = during || (call == idle + 1 && g_atomic_int_get(&b->call) == call);
        }
    }
    return during;
}

static gpointer shorten_and_lengthen(gpointer data)
{
    Beside *b = data;

    for (unsigned round = 1;; round++) {
        await_round(b, round);
        if (g_atomic_int_get(&b->stop) != 0) {
            return NULL;
        }
        g_atomic_int_inc(&b->call);
        if (ftruncate(b->fd, (off_t)PAGE_BYTES) < 0) {
            die("ftruncate");
        }
        g_atomic_int_inc(&b->call);
    }
}

static void beside_store(Beside *b, int64_t until_us)
{
    struct sigaction bus = {.sa_handler = on_bus};
    uint64_t stores = 0, lost = 0;
    volatile uint8_t *at;
    GThread *shortener;

    b->map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
    if (b->map == MAP_FAILED || sigaction(SIGBUS, &bus, NULL) < 0) {
        die("mmap");
    }
    at = b->map + FILE_BYTES / 2;
    shortener = g_thread_new("shorten", shorten_and_lengthen, b);
    while (vj_clock_mono_us() < until_us) {
        gint next = g_atomic_int_get(&b->call) + 2;
        bool during = store_during(b, at);

        while (g_atomic_int_get(&b->call) != next) {
            g_thread_yield();
        }
        if (ftruncate(b->fd, (off_t)FILE_BYTES) < 0) {
            die("ftruncate");
        }
        stores += during;
        lost += during && *at != 'y';
    }
    g_atomic_int_set(&b->stop, 1);
    begin_round(b);
    g_thread_join(shortener);
    munmap(b->map, FILE_BYTES);
    printf("%d times shorter, %" G_GUINT64_FORMAT
           " with stores meanwhile: %" G_GUINT64_FORMAT " lost\n",
           b->call / 2, stores, lost);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(Beside *b, int64_t until_us);
    } ways[] = {
        {"fsync", beside_fsync},
        {"read", beside_read},
        {"store", beside_store},
    };
    g_autofree char *path = NULL;
    Beside b = {.call = 0};
    size_t i = 0;

    while (argc == 4 && i < G_N_ELEMENTS(ways) && strcmp(ways[i].name, argv[3]) != 0) {
        i++;
    }
    if (argc != 4 || atoi(argv[2]) <= 0 || i == G_N_ELEMENTS(ways)) {
        fprintf(stderr, "usage: beside DIR SECONDS fsync|read|store\n");
        return 2;
    }
    path = g_strdup_printf("%s/beside.%d", argv[1], (int)getpid());
    b.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (b.fd < 0) {
        die(path);
    }
    fill(b.fd, 'x', 0, FILE_BYTES);
    ways[i].run(&b, vj_clock_mono_us() + atoll(argv[2]) * 1000000);
    vj_fd_close(&b.fd);
    if (unlink(path) < 0) {
        die("unlink");
    }
    return 0;
}
