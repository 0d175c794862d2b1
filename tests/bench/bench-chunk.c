/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-chunk.c - how fast do the chunkers cut, how even, and what do they find again?
 *
 *   bench-chunk                  speed: 64 MiB of random bytes, each algorithm with each
 *                                code that this processor has, and memcpy.  Each round
 *                                runs every one once.
 *   bench-chunk lengths          of the chunks of such bytes, for 8 seeds
 *   bench-chunk inserts          4 KiB at random places of them: how many chunks did not
 *                                exist before, and what do they hold?
 *   bench-chunk twins FILE FILE  the part of their bytes that is in chunks which came
 *                                before
 *
 * The speed is that of the thread's processor time: other programs may run.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "figure.h"

#include "chunk/chunk-private.h"

#define DATA_BYTES ((size_t)64 << 20)
#define ROUNDS 9
#define SEEDS 8
#define INSERTS 201
#define INSERT_BYTES ((size_t)4096)
#define EDIT_BYTES (DATA_BYTES / 2) /* are cut again at most */

static const char *const means[] = {"64K", "256K", "1M"};

typedef struct Candidate {
    const VjChunkerOps *ops; /* NULL: memcpy */
    const char *mean;
    VjChunkCode code;
    VjChunker *chunker;
    double gigabytes_per_s[ROUNDS];
} Candidate;

static VjChunker *new_chunker(const VjChunkerOps *ops, const char *mean)
{
    VjChunkSizes sizes;
    VjChunker *c;

    if (!vj_chunk_sizes_parse(ops, mean, &sizes, NULL) ||
        vj_chunker_new(ops, sizes, 1, &c) != 0) {
        g_error("%s does not take %s", ops->name, mean);
    }
    return c;
}

static uint64_t next_cut(VjChunker *c, const uint8_t *bytes, size_t len)
{
    uint64_t cut;

    if (!vj_chunker_scan(c, bytes, len, true, &cut)) {
        g_error("a chunker did not end");
    }
    return cut;
}

/* ---- speed ------------------------------------------------------------------------- */

static double thread_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double gigabytes_per_s(Candidate *candidate, const uint8_t *source,
                              uint8_t *target)
{
    double begin = thread_seconds();

    if (candidate->ops == NULL) {
        memcpy(target, source, DATA_BYTES);
        __asm__ volatile("" : : "r"(target) : "memory"); /* somebody reads it */
    } else {
        for (size_t at = 0; at < DATA_BYTES;) {
            at += next_cut(candidate->chunker, source + at, DATA_BYTES - at);
        }
    }
    return (double)DATA_BYTES / 1e9 / (thread_seconds() - begin);
}

/* Has the algorithm a code of its own for these instructions? */
static bool differs(const VjChunkerOps *ops, VjChunkCode code)
{
    return code == VJ_CHUNK_CODE_PLAIN || ops->id != VJ_CHUNK_ID_RABIN;
}

static GArray *candidates(void)
{
    GArray *all = g_array_new(FALSE, TRUE, sizeof(Candidate));

    g_array_set_size(all, 1);
    for (size_t m = 0; m < G_N_ELEMENTS(means); m++) {
        for (size_t i = 0; vj_chunk_nth(i) != NULL; i++) {
            const VjChunkerOps *ops = vj_chunk_nth(i);

            for (VjChunkCode code = 0; code <= vj_chunk_code_best(); code++) {
                Candidate one = {.ops = ops, .mean = means[m], .code = code};

                if (differs(ops, code)) {
                    one.chunker = new_chunker(ops, means[m]);
                    vj_chunker_use(one.chunker, code);
                    g_array_append_val(all, one);
                }
            }
        }
    }
    return all;
}

/* "gear, mean 64 KiB", and @what about it. */
static char *name_of(const VjChunkerOps *ops, const char *mean, const char *what)
{
    g_autoptr(VjChunker) c = new_chunker(ops, mean);

    return g_strdup_printf("%s, mean %u KiB%s%s", ops->name,
                           vj_chunker_sizes(c).avg_bytes / 1024, what[0] != 0 ? ", " : "",
                           what);
}

static void print(const VjChunkerOps *ops, const char *mean, const char *what,
                  const char *unit, const double *values, int count)
{
    g_autofree char *name = name_of(ops, mean, what);

    figure_print(name, unit, values, count);
}

static void print_speed(const Candidate *c)
{
    if (c->ops == NULL) {
        figure_print("memcpy", "GB/s", c->gigabytes_per_s, ROUNDS);
        return;
    }
    print(c->ops, c->mean, vj_chunk_code_name(c->code), "GB/s", c->gigabytes_per_s,
          ROUNDS);
}

static void measure_speed(const uint8_t *source)
{
    g_autoptr(GArray) all = candidates();
    g_autofree uint8_t *target = g_malloc(DATA_BYTES);

    memset(target, 1, DATA_BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        for (guint i = 0; i < all->len; i++) {
            Candidate *c = &g_array_index(all, Candidate, i);

            c->gigabytes_per_s[round] = gigabytes_per_s(c, source, target);
        }
    }
    for (guint i = 0; i < all->len; i++) {
        print_speed(&g_array_index(all, Candidate, i));
        vj_chunker_free(g_array_index(all, Candidate, i).chunker);
    }
}

/* ---- lengths ----------------------------------------------------------------------- */

/* Ends of all chunks. */
static GArray *cut_all(VjChunker *c, const uint8_t *bytes, size_t len)
{
    GArray *ends = g_array_new(FALSE, FALSE, sizeof(uint64_t));

    for (uint64_t end = 0; end < len;) {
        end += next_cut(c, bytes + end, len - end);
        g_array_append_val(ends, end);
    }
    return ends;
}

/* Of the chunks but the last, which ends with the file: mean, coefficient of variation,
 * shortest and longest. */
static void lengths_of(const GArray *ends, double of[4])
{
    double sum = 0, squares = 0, count = ends->len - 1;
    uint64_t from = 0;

    of[2] = INFINITY;
    of[3] = 0;
    for (guint i = 0; i + 1 < ends->len; i++) {
        double len = (double)(g_array_index(ends, uint64_t, i) - from) / 1024;

        from = g_array_index(ends, uint64_t, i);
        sum += len;
        squares += len * len;
        of[2] = MIN(of[2], len);
        of[3] = MAX(of[3], len);
    }
    of[0] = sum / count;
    of[1] = sqrt(squares / count - of[0] * of[0]) / of[0];
}

static void measure_lengths(const VjChunkerOps *ops, const char *mean, void *opaque)
{
    static const char *const what[] = {"mean length", "coefficient of variation",
                                       "shortest", "longest"};
    static const char *const units[] = {"KiB", "1", "KiB", "KiB"};
    const uint8_t *bytes = opaque;
    g_autoptr(VjChunker) c = new_chunker(ops, mean);
    double values[4][SEEDS];

    for (int seed = 0; seed < SEEDS; seed++) {
        g_autoptr(VjChunker) other = NULL;
        g_autoptr(GArray) ends = NULL;
        double of[4];

        if (vj_chunker_new(ops, vj_chunker_sizes(c), (uint64_t)seed, &other) != 0) {
            g_error("no chunker");
        }
        ends = cut_all(other, bytes, DATA_BYTES);
        lengths_of(ends, of);
        for (int k = 0; k < 4; k++) {
            values[k][seed] = of[k];
        }
    }
    for (int k = 0; k < 4; k++) {
        print(ops, mean, what[k], units[k], values[k], SEEDS);
    }
}

/* ---- inserts ----------------------------------------------------------------------- */

/* Is @end among the sorted @ends? */
static bool is_end(const GArray *ends, uint64_t end)
{
    guint low = 0, high = ends->len;

    while (low < high) {
        guint middle = (low + high) / 2;

        if (g_array_index(ends, uint64_t, middle) < end) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < ends->len && g_array_index(ends, uint64_t, low) == end;
}

/* The last of @ends that stands whatever changes at or behind @at. */
static uint64_t last_that_stands(const GArray *ends, const VjChunker *c, uint64_t at)
{
    uint64_t stands = 0;

    for (guint i = 0; i < ends->len; i++) {
        uint64_t end = g_array_index(ends, uint64_t, i);

        if (stands + vj_chunker_decision_bytes(c, end - stands) > at) {
            break;
        }
        stands = end;
    }
    return stands;
}

/* Cuts again until a cut is an old one.  @room: EDIT_BYTES. */
static void insert_once(VjChunker *c, const uint8_t *bytes, const GArray *ends,
                        uint64_t at, uint8_t *room, VjRng *rng, double *count,
                        double *held_bytes)
{
    uint64_t from = last_that_stands(ends, c, at), head = at - from, end = 0,
             new_from = 0;
    bool is_old;

    memcpy(room, bytes + from, head);
    vj_rng_bytes(rng, room + head, INSERT_BYTES);
    memcpy(room + head + INSERT_BYTES, bytes + at, EDIT_BYTES - head - INSERT_BYTES);
    *count = 0;
    do {
        end += next_cut(c, room + end, EDIT_BYTES - end);
        if (end <= head && is_end(ends, from + end)) {
            new_from = end;
            is_old = false;
        } else {
            *count += 1;
            is_old =
                end >= head + INSERT_BYTES && is_end(ends, from + end - INSERT_BYTES);
        }
    } while (!is_old);
    *held_bytes = (double)(end - new_from);
}

static void measure_inserts(const VjChunkerOps *ops, const char *mean, void *opaque)
{
    const uint8_t *bytes = opaque;
    g_autoptr(VjChunker) c = new_chunker(ops, mean);
    g_autoptr(GArray) ends = cut_all(c, bytes, DATA_BYTES);
    g_autofree uint8_t *room = g_malloc(EDIT_BYTES);
    double counts[INSERTS], held[INSERTS];
    VjRng rng;

    vj_rng_init(&rng, 2);
    for (int i = 0; i < INSERTS; i++) {
        uint64_t at = DATA_BYTES / 4 + vj_rng_below(&rng, DATA_BYTES / 4);

        insert_once(c, bytes, ends, at, room, &rng, &counts[i], &held[i]);
        held[i] /= 1024;
    }
    print(ops, mean, "new chunks", "1", counts, INSERTS);
    print(ops, mean, "in new chunks", "KiB", held, INSERTS);
}

/* ---- twins ------------------------------------------------------------------------- */

static const uint8_t *map_file(const char *path, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *bytes;

    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0) {
        fprintf(stderr, "bench-chunk: %s: cannot be read\n", path);
        exit(1);
    }
    *len = (size_t)st.st_size;
    bytes = mmap(NULL, *len, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED) {
        fprintf(stderr, "bench-chunk: %s: %s\n", path, g_strerror(errno));
        exit(1);
    }
    return bytes;
}

static void measure_twins(const VjChunkerOps *ops, const char *mean, void *opaque)
{
    char **paths = opaque;
    g_autoptr(GHashTable) seen =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    g_autoptr(VjChunker) c = new_chunker(ops, mean);
    double all_bytes = 0, found_bytes = 0, count = 0;

    for (int i = 0; i < 2; i++) {
        size_t len, left;
        const uint8_t *bytes = map_file(paths[i], &len), *p = bytes;
        uint64_t cut;

        g_assert(len > 0);

        for (left = len; left > 0; left -= cut, p += cut) {
            uint64_t *sum = g_new(uint64_t, 1);

            cut = next_cut(c, p, left);
            *sum = vj_checksum64(p, cut);
            if (!g_hash_table_add(seen, sum)) {
                found_bytes += (double)cut;
            }
            count++;
        }
        all_bytes += (double)len;
        munmap((void *)bytes, len);
    }
    found_bytes *= 100 / all_bytes;
    print(ops, mean, "found", "%", &found_bytes, 1);
    all_bytes /= count * 1024;
    print(ops, mean, "mean length", "KiB", &all_bytes, 1);
}

static void for_each(void (*measure)(const VjChunkerOps *, const char *, void *),
                     void *opaque)
{
    for (size_t i = 0; vj_chunk_nth(i) != NULL; i++) {
        for (size_t m = 0; m < G_N_ELEMENTS(means); m++) {
            measure(vj_chunk_nth(i), means[m], opaque);
        }
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    g_autofree uint8_t *source = NULL;
    VjRng rng;

    if (argc == 4 && strcmp(what, "twins") == 0) {
        for_each(measure_twins, argv + 2);
        return 0;
    }
    if (argc > 2 ||
        (argc == 2 && strcmp(what, "lengths") != 0 && strcmp(what, "inserts") != 0)) {
        fprintf(stderr, "usage: bench-chunk [lengths | inserts | twins FILE FILE]\n");
        return 2;
    }
    source = g_malloc(DATA_BYTES);
    vj_rng_init(&rng, 1);
    vj_rng_bytes(&rng, source, DATA_BYTES);
    if (argc == 1) {
        measure_speed(source);
    } else {
        for_each(strcmp(what, "lengths") == 0 ? measure_lengths : measure_inserts,
                 source);
    }
    return 0;
}
