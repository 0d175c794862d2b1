/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-block.c - what do objects cost in one file, against a file each?
 *
 * The driver block, through the page cache and past it, and the driver posix in the same
 * directory and the same rounds.  For each size: a batch of puts with a flush behind
 * them, gets when the page cache has been emptied (root) and when it has not, and the
 * removes, with what makes them final.  Microseconds for one object; medians.  What the
 * keys of block cost where they are committed is not in it: they go with the objects'
 * records.
 *
 * usage: bench-block [DIRECTORY [OPTIONS-OF-BLOCK]]
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directory.h"
#include "figure.h"
#include "store/store.h"

#define ROUNDS 7u
/* Of a batch. */
#define BATCH_BYTES ((size_t)16 << 20)
#define BATCH_MAX 512u
#define STORES 3u

typedef enum Step { PUT, PUT_ALONE, GET_COLD, GET_WARM, REMOVE, STEPS } Step;
static const char *const steps[] = {"put a batch + flush", "put one + flush", "get cold",
                                    "get again", "remove a batch"};

typedef struct Bench {
    const char *names[STORES];
    char *paths[STORES];
    int dirs[STORES];
    VjStore *s[STORES];
    VjBuf *bytes, *got;
    uint64_t next_id;
    bool can_drop; /* the page cache */
} Bench;

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "bench-block: %s: %s\n", what, g_strerror(errno));
        exit(1);
    }
}

static void open_store(Bench *b, unsigned i, const char *parent, const char *spec)
{
    VjStorePlace place = {.create = true};
    g_autoptr(GError) error = NULL;

    b->names[i] = spec;
    b->paths[i] = g_strdup_printf("%s/varjfs-bench-XXXXXX", parent);
    check(g_mkdtemp(b->paths[i]) != NULL, b->paths[i]);
    b->dirs[i] = open(b->paths[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    place.dir_fd = b->dirs[i];
    place.path = b->paths[i];
    if (!vj_store_open(spec, &place, &b->s[i], &error)) {
        fprintf(stderr, "bench-block: %s\n", error->message);
        exit(1);
    }
}

static bool drop_caches(void)
{
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, "1", 1) == 1;

    if (fd >= 0) {
        close(fd);
    }
    return done;
}

static void put_some(Bench *b, VjStore *s, size_t len, VjPut *puts, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct iovec iov = {.iov_base = b->bytes->data, .iov_len = len};

        /* No two are the same, as no two objects are. */
        memcpy(b->bytes->data, &b->next_id, sizeof b->next_id);
        check(vj_store_put_held(s, b->next_id++, b->bytes, &iov, 1, &puts[i]) == 0,
              "put");
    }
    check(vj_store_flush(s) == 0, "flush");
}

static void stage(VjStore *s, const VjPut *puts, unsigned count, bool removed)
{
    g_autoptr(GArray) changes = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));

    check(vj_store_stage(s, puts, removed ? 0 : count, puts, removed ? count : 0,
                         changes) == 0,
          "stage");
}

static void get_all(Bench *b, VjStore *s, size_t len, const VjPut *puts, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        check(vj_store_get_unaligned(s, puts[i].id, puts[i].loc, 0, b->got->data, len) ==
                  0,
              "get");
    }
}

static void remove_all(VjStore *s, const VjPut *puts, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        check(vj_store_remove(s, puts[i].id, puts[i].loc) == 0, "remove");
    }
    check(vj_store_flush_removes(s) == 0, "flush_removes");
    stage(s, puts, count, true);
    vj_store_removes_committed(s, puts, count);
}

static double since(int64_t begin_us, unsigned count)
{
    return (double)MAX(vj_clock_mono_us() - begin_us, 1) / count;
}

/* All steps once. */
static void run_round(Bench *b, unsigned store, size_t len, unsigned count,
                      double us[STEPS])
{
    VjStore *s = b->s[store];
    VjPut puts[BATCH_MAX], alone[8];
    int64_t begin_us = vj_clock_mono_us();

    put_some(b, s, len, puts, count);
    us[PUT] = since(begin_us, count);
    begin_us = vj_clock_mono_us();
    for (unsigned i = 0; i < G_N_ELEMENTS(alone); i++) {
        put_some(b, s, len, &alone[i], 1);
    }
    us[PUT_ALONE] = since(begin_us, G_N_ELEMENTS(alone));
    stage(s, puts, count, false);
    stage(s, alone, G_N_ELEMENTS(alone), false);
    check(!b->can_drop || drop_caches(), "drop_caches");
    begin_us = vj_clock_mono_us();
    get_all(b, s, len, puts, count);
    us[GET_COLD] = since(begin_us, count);
    begin_us = vj_clock_mono_us();
    get_all(b, s, len, puts, count);
    us[GET_WARM] = since(begin_us, count);
    begin_us = vj_clock_mono_us();
    remove_all(s, puts, count);
    us[REMOVE] = since(begin_us, count);
    remove_all(s, alone, G_N_ELEMENTS(alone));
}

static void bench_size(Bench *b, size_t len)
{
    static double us[STORES][STEPS][ROUNDS];
    unsigned count = (unsigned)MIN(BATCH_BYTES / len, BATCH_MAX);

    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned store = 0; store < STORES; store++) {
            double of_round[STEPS];

            run_round(b, store, len, count, of_round);
            for (unsigned step = 0; step < STEPS; step++) {
                us[store][step][round] = of_round[step];
            }
        }
    }
    for (unsigned step = 0; step < STEPS; step++) {
        g_autofree char *base = NULL;

        if (step == GET_COLD && !b->can_drop) {
            continue;
        }
        for (unsigned store = 0; store < STORES; store++) {
            g_autofree char *name = g_strdup_printf("%zu KiB, %s: %s", len >> 10,
                                                    steps[step], b->names[store]);

            if (store == 0) {
                base = g_strdup(name);
                figure_print(name, "us each", us[store][step], ROUNDS);
            } else {
                figure_against(name, "us each", us[store][step], ROUNDS, "lower", base,
                               NULL);
            }
        }
    }
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {4 << 10,   16 << 10, 64 << 10,
                                   256 << 10, 1 << 20,  4 << 20};
    const char *parent = argc > 1 ? argv[1] : g_get_tmp_dir();
    const char *options = argc > 2 ? argv[2] : "";
    g_autofree char *cached =
        g_strdup_printf("block:direct=no%s%s", options[0] != '\0' ? "," : "", options);
    g_autofree char *direct =
        g_strdup_printf("block:direct=yes%s%s", options[0] != '\0' ? "," : "", options);
    Bench b = {.next_id = 1,
               .bytes = vj_buf_new(sizes[G_N_ELEMENTS(sizes) - 1]),
               .got = vj_buf_new(sizes[G_N_ELEMENTS(sizes) - 1])};
    VjRng rng;

    check(b.bytes != NULL && b.got != NULL, "memory");
    vj_rng_init(&rng, 2);
    vj_rng_bytes(&rng, b.bytes->data, b.bytes->cap);
    b.can_drop = drop_caches();
    open_store(&b, 0, parent, "posix");
    open_store(&b, 1, parent, cached);
    open_store(&b, 2, parent, direct);
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        bench_size(&b, sizes[i]);
    }
    for (unsigned i = 0; i < STORES; i++) {
        vj_store_close(b.s[i]);
        close(b.dirs[i]);
        remove_directory(b.paths[i]);
        g_free(b.paths[i]);
    }
    vj_buf_unref(b.bytes);
    vj_buf_unref(b.got);
    return 0;
}
