/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-store.c - what do puts, flushes and gets of the posix driver cost, against plain
 * files that do the same in the same run?
 *
 * Objects of 256 KiB.  For each batch size: put so many and flush, against create, write
 * and fsync of so many files (each made durable) and against the same with one syncfs at
 * the end.  Rounds alternate the candidates, so that a change of the machine's pace meets
 * all of them; figures are medians.  Gets: 4 KiB at random places of what was put, in the
 * page cache, against pread of one open file.
 *
 * usage: bench-store [DIRECTORY [STORE-OPTIONS]]
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directory.h"
#include "figure.h"
#include "store/store.h"

#define OBJECT_BYTES ((size_t)256 << 10)
#define ROUNDS 7
#define GETS 20000u

typedef struct Bench {
    int dir_fd, plain_fd;
    VjStore *s;
    uint8_t *bytes;
    uint64_t next_id;
    GArray *puts; /* VjPut */
} Bench;

typedef enum Way { BY_STORE, BY_FSYNC, BY_SYNCFS, WAY_COUNT } Way;

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "bench-store: %s: %s\n", what, g_strerror(errno));
        exit(1);
    }
}

static void put_objects(Bench *b, unsigned count)
{
    struct iovec iov = {.iov_base = b->bytes, .iov_len = OBJECT_BYTES};

    for (unsigned i = 0; i < count; i++) {
        VjPut put;

        check(vj_store_put(b->s, b->next_id++, &iov, 1, &put) == 0, "put");
        g_array_append_val(b->puts, put);
    }
    check(vj_store_flush(b->s) == 0, "flush");
}

static void write_files(Bench *b, unsigned count, bool fsync_each)
{
    for (unsigned i = 0; i < count; i++) {
        char name[32];
        int fd;

        g_snprintf(name, sizeof name, "%016" G_GINT64_MODIFIER "x", b->next_id++);
        fd = openat(b->plain_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        check(fd >= 0, name);
        check(write(fd, b->bytes, OBJECT_BYTES) == (ssize_t)OBJECT_BYTES, "write");
        check(!fsync_each || fsync(fd) == 0, "fsync");
        close(fd);
    }
    check(fsync_each ? fsync(b->plain_fd) == 0 : syncfs(b->plain_fd) == 0, "sync");
}

static void bench_batch(Bench *b, unsigned count)
{
    static const char *const ways[] = {"store", "files, fsync each", "files, syncfs"};
    double us[WAY_COUNT][ROUNDS];
    char *names[WAY_COUNT];

    for (size_t round = 0; round < ROUNDS; round++) {
        for (int way = 0; way < WAY_COUNT; way++) {
            int64_t begin_us = vj_clock_mono_us();

            if (way == BY_STORE) {
                put_objects(b, count);
            } else {
                write_files(b, count, way == BY_FSYNC);
            }
            us[way][round] = (double)MAX(vj_clock_mono_us() - begin_us, 1) / count;
        }
    }
    for (int way = WAY_COUNT - 1; way >= 0; way--) {
        names[way] = g_strdup_printf("%u objects + flush: %s", count, ways[way]);
        if (way != BY_STORE) {
            figure_print(names[way], "us each", us[way], ROUNDS);
        }
    }
    figure_against(names[BY_STORE], "us each", us[BY_STORE], ROUNDS, "lower",
                   names[BY_FSYNC], NULL);
    figure_against(names[BY_STORE], "us each", us[BY_STORE], ROUNDS, "lower",
                   names[BY_SYNCFS], NULL);
    for (int way = 0; way < WAY_COUNT; way++) {
        g_free(names[way]);
    }
}

static void bench_gets(Bench *b)
{
    static uint8_t dst[4096];
    double store_us[ROUNDS], file_us[ROUNDS];
    VjRng rng;
    int fd = openat(b->plain_fd, "one", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    check(fd >= 0 && write(fd, b->bytes, OBJECT_BYTES) == (ssize_t)OBJECT_BYTES, "one");
    vj_rng_init(&rng, 1);
    for (size_t round = 0; round < ROUNDS; round++) {
        int64_t begin_us = vj_clock_mono_us();

        for (unsigned i = 0; i < GETS; i++) {
            const VjPut *put =
                &g_array_index(b->puts, VjPut, vj_rng_below(&rng, MIN(b->puts->len, 48)));

            check(vj_store_get(b->s, put->id, put->loc,
                               vj_rng_below(&rng, 64) * sizeof dst, dst, sizeof dst) == 0,
                  "get");
        }
        store_us[round] = (double)(vj_clock_mono_us() - begin_us) / GETS;
        begin_us = vj_clock_mono_us();
        for (unsigned i = 0; i < GETS; i++) {
            check(pread(fd, dst, sizeof dst,
                        (off_t)(vj_rng_below(&rng, 64) * sizeof dst)) ==
                      (ssize_t)sizeof dst,
                  "pread");
        }
        file_us[round] = (double)(vj_clock_mono_us() - begin_us) / GETS;
    }
    close(fd);
    figure_print("4 KiB pread of one file", "us", file_us, ROUNDS);
    figure_against("4 KiB gets, 48 objects", "us", store_us, ROUNDS, "lower",
                   "4 KiB pread of one file", NULL);
}

int main(int argc, char **argv)
{
    static const unsigned batches[] = {1, 2, 4, 8, 16, 64};
    const char *parent = argc > 1 ? argv[1] : g_get_tmp_dir();
    g_autofree char *path = g_strdup_printf("%s/varjfs-bench-XXXXXX", parent);
    g_autofree char *spec = g_strdup_printf("posix:%s", argc > 2 ? argv[2] : "");
    g_autoptr(GError) error = NULL;
    Bench b = {.next_id = 1, .puts = g_array_new(FALSE, FALSE, sizeof(VjPut))};
    VjStorePlace place = {.path = path, .create = true};
    VjRng rng;

    check(g_mkdtemp(path) != NULL, path);
    b.dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(b.dir_fd >= 0 && mkdirat(b.dir_fd, "plain", 0700) == 0, path);
    b.plain_fd = openat(b.dir_fd, "plain", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    place.dir_fd = b.dir_fd;
    if (!vj_store_open(spec, &place, &b.s, &error)) {
        fprintf(stderr, "bench-store: %s\n", error->message);
        return 1;
    }
    b.bytes = g_malloc(OBJECT_BYTES);
    vj_rng_init(&rng, 2);
    vj_rng_bytes(&rng, b.bytes, OBJECT_BYTES);
    for (size_t i = 0; i < G_N_ELEMENTS(batches); i++) {
        bench_batch(&b, batches[i]);
    }
    bench_gets(&b);
    vj_store_close(b.s);
    remove_directory(path);
    close(b.plain_fd);
    close(b.dir_fd);
    g_array_unref(b.puts);
    g_free(b.bytes);
    return 0;
}
