/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-flush.c - what does it cost to make a small transaction durable?
 *
 * With the redo log and without it, in $TMPDIR, beside an append of 4 KiB and fdatasync
 * there; rounds are interleaved, figures are medians of 7.  A transaction is that of a
 * file's creation (bench-meta.c): four puts of 100 bytes, one at random.  Then: how long
 * creations take that nobody flushes, beside four threads that do; and how long it takes
 * to open what a crash left, by what was in the log.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "figure.h"
#include "meta/meta.h"

#define ROUNDS 7
#define ROUND_US (400 * 1000)
#define THREADS_MAX 16u
#define SAMPLES_MAX 200000u

typedef struct Place {
    char *path;
    int dir_fd;
    VjMeta *meta;
    gint number; /* atomic: of the next key */
} Place;

typedef struct Worker {
    Place *place;
    int fd; /* >= 0: appends instead */
    bool flushes;
    int64_t until_us;
    uint32_t *samples_us;
    uint32_t count;
} Worker;

static void must(int rc)
{
    if (rc < 0) {
        g_error("%s", g_strerror(-rc));
    }
}

static int put(VjTxn *txn, VjSpace space, uint64_t number)
{
    uint8_t key[16], value[100] = {0};

    vj_be64_set(key,
                number * (space == VJ_SPACE_DENTRY ? UINT64_C(0x9e3779b97f4a7c15) : 1));
    vj_be64_set(key + 8, number);
    vj_be64_set(value, number);
    return vj_txn_put(txn, space, vj_slice(key, sizeof key),
                      vj_slice(value, sizeof value));
}

static int create_body(VjTxn *txn, void *opaque)
{
    uint64_t number = *(uint64_t *)opaque;

    must(put(txn, VJ_SPACE_INODE, number));
    must(put(txn, VJ_SPACE_COOKIE, number));
    must(put(txn, VJ_SPACE_DENTRY, number));
    return put(txn, VJ_SPACE_INODE, 0);
}

static void one(Worker *w)
{
    uint64_t number = (uint64_t)g_atomic_int_add(&w->place->number, 1);

    if (w->fd >= 0) {
        static const uint8_t zeroes[4096];

        must(vj_fd_write_all(w->fd, zeroes, sizeof zeroes));
        must(fdatasync(w->fd));
        return;
    }
    must(vj_meta_run(w->place->meta, VJ_RUN_DEFAULT, create_body, &number));
    if (w->flushes) {
        must(vj_meta_flush(w->place->meta));
    }
}

static gpointer worker_main(gpointer opaque)
{
    Worker *w = opaque;
    int64_t begin_us = vj_clock_mono_us();

    for (w->count = 0; begin_us < w->until_us && w->count < SAMPLES_MAX; w->count++) {
        int64_t end_us;

        one(w);
        end_us = vj_clock_mono_us();
        w->samples_us[w->count] = (uint32_t)(end_us - begin_us);
        begin_us = end_us;
        if (!w->flushes && w->fd < 0) {
            g_usleep(200); /* some thousand a second, as a mount does */
            begin_us = vj_clock_mono_us();
        }
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

typedef struct Result {
    double median_us, p99_us;
} Result;

static Result result_of(uint32_t *samples, size_t count)
{
    qsort(samples, count, sizeof *samples, compare);
    return (Result){.median_us = samples[count / 2],
                    .p99_us = samples[count - 1 - count / 100]};
}

/* @flushers threads flush; with @beside one more creates without, and is who counts. */
static Result run(Place *p, unsigned flushers, bool beside, int fd)
{
    static uint32_t samples[THREADS_MAX + 1][SAMPLES_MAX];
    Worker workers[THREADS_MAX + 1];
    GThread *threads[THREADS_MAX + 1];
    unsigned all = flushers + (beside ? 1 : 0);
    int64_t begin_us = vj_clock_mono_us();
    g_autofree uint32_t *merged = g_new(uint32_t, (size_t)SAMPLES_MAX * all);
    size_t count = 0;

    for (unsigned i = 0; i < all; i++) {
        workers[i] = (Worker){.place = p,
                              .fd = fd,
                              .flushes = i < flushers,
                              .until_us = begin_us + ROUND_US * (beside ? 4 : 1),
                              .samples_us = samples[i]};
        threads[i] = g_thread_new("bench", worker_main, &workers[i]);
    }
    for (unsigned i = 0; i < all; i++) {
        g_thread_join(threads[i]);
        if (!beside || i == flushers) {
            memcpy(merged + count, samples[i], workers[i].count * sizeof *merged);
            count += workers[i].count;
        }
    }
    return result_of(merged, count);
}

static void place_open(Place *p, const char *spec, bool create)
{
    VjMetaPlace place = {.dir_fd = p->dir_fd, .path = p->path, .create = create};
    GError *error = NULL;

    if (!vj_meta_open(spec, &place, &p->meta, &error)) {
        g_error("%s", error->message);
    }
}

static Place place_new(const char *spec)
{
    g_autofree char *path = g_build_filename(g_get_tmp_dir(), "bench-flush-XXXXXX", NULL);
    Place p = {.path = g_strdup(g_mkdtemp(path)), .number = 1};

    p.dir_fd = open(p.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (spec != NULL) {
        place_open(&p, spec, true);
    }
    return p;
}

static void place_free(Place *p)
{
    if (p->meta != NULL) {
        must(vj_meta_close(p->meta));
    }
    (void)unlinkat(p->dir_fd, "data.mdb", 0);
    (void)unlinkat(p->dir_fd, "lmdb/data.mdb", 0);
    (void)unlinkat(p->dir_fd, "lmdb/lock.mdb", 0);
    (void)unlinkat(p->dir_fd, "lmdb", AT_REMOVEDIR);
    (void)unlinkat(p->dir_fd, "redo.log", 0);
    close(p->dir_fd);
    (void)rmdir(p->path);
    g_free(p->path);
}

/* @baseline: the name of what was reported before; NULL: there is none. */
static void report(const char *name, const Result *r, const char *baseline)
{
    g_autofree char *tail = g_strdup_printf("%s, p99", name);
    double median[ROUNDS], p99[ROUNDS];

    for (unsigned i = 0; i < ROUNDS; i++) {
        median[i] = r[i].median_us;
        p99[i] = r[i].p99_us;
    }
    if (baseline == NULL) {
        figure_print(name, "us", median, ROUNDS);
    } else {
        figure_against(name, "us", median, ROUNDS, "lower", baseline, NULL);
    }
    figure_print(tail, "us", p99, ROUNDS);
}

static void bench_flushes(void)
{
    static const unsigned counts[] = {1, 4, 16};
    Place on = place_new("lmdb"), off = place_new("lmdb:redo=0");
    g_autofree char *name = g_build_filename(on.path, "append", NULL);
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    for (size_t i = 0; i < G_N_ELEMENTS(counts); i++) {
        Result results[5][ROUNDS];
        g_autofree char *with = g_strdup_printf("flush, log, %u waiters", counts[i]);
        g_autofree char *without =
            g_strdup_printf("flush, no log, %u waiters", counts[i]);
        g_autofree char *append = g_strdup_printf("append + fdatasync, %u", counts[i]);

        for (unsigned round = 0; round < ROUNDS; round++) {
            results[0][round] = run(&on, counts[i], false, fd);
            results[1][round] = run(&on, counts[i], false, -1);
            results[2][round] = run(&off, counts[i], false, -1);
            if (counts[i] == 4) {
                results[3][round] = run(&on, 4, true, -1);
                results[4][round] = run(&off, 4, true, -1);
            }
        }
        report(append, results[0], NULL);
        report(without, results[2], append);
        report(with, results[1], append);
        if (counts[i] == 4) {
            report("create beside 4 who flush, no log", results[4], NULL);
            report("create beside 4 who flush, log", results[3],
                   "create beside 4 who flush, no log");
        }
    }
    close(fd);
    (void)unlink(name);
    place_free(&on);
    place_free(&off);
}

static void copy_file(const Place *from, const Place *to, const char *name)
{
    g_autofree char *a = g_build_filename(from->path, name, NULL);
    g_autofree char *b = g_build_filename(to->path, name, NULL);
    g_autofree char *bytes = NULL;
    gsize len;

    g_assert(g_file_get_contents(a, &bytes, &len, NULL) &&
             g_file_set_contents(b, bytes, (gssize)len, NULL));
}

/* So many flushes behind the last move, and the power goes. */
static void bench_recovery(unsigned flushes, unsigned commits)
{
    Place from = place_new("lmdb:commit=3600"), to = place_new(NULL);
    g_autofree char *name = NULL;
    VjMetaStats stats;
    int64_t begin_us;
    double took_ms;

    for (unsigned i = 0; i < flushes; i++) {
        for (unsigned n = 0; n < commits; n++) {
            uint64_t number = (uint64_t)g_atomic_int_add(&from.number, 1);

            must(vj_meta_run(from.meta, VJ_RUN_DEFAULT, create_body, &number));
        }
        must(vj_meta_flush(from.meta));
    }
    copy_file(&from, &to, "data.mdb");
    copy_file(&from, &to, "redo.log");
    begin_us = vj_clock_mono_us();
    place_open(&to, "lmdb", false);
    vj_meta_stats(to.meta, &stats);
    took_ms = (double)(vj_clock_mono_us() - begin_us) / 1000;
    name = g_strdup_printf("recovery of %" G_GUINT64_FORMAT " records of %u creations",
                           stats.log.replayed, commits);
    figure_print(name, "ms", &took_ms, 1);
    place_free(&to);
    place_free(&from);
}

int main(void)
{
    bench_flushes();
    bench_recovery(2, 1);
    bench_recovery(100, 1);
    bench_recovery(1000, 1);
    bench_recovery(1500, 1);
    bench_recovery(1000, 10);
    bench_recovery(60, 300);
    return 0;
}
