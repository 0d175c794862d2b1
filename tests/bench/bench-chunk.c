/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-chunk.c - how fast do the chunkers cut, how even, and what do they find again?
 *
 *   chunk    64 MiB of random bytes; each algorithm with each code that this processor has, and
 *            memcpy. Each round runs every one once, so that a change of the machine's pace
 *            meets all of them; figures are medians of the rounds.
 *   lengths  of the chunks of the same bytes
 *   inserts  4 KiB at random places of the same bytes: how many chunks did not exist before,
 *            and what do they hold?
 *
 * With two FILEs: the part of their bytes that is in chunks which came before, and no more.
 *
 * The speed is that of the thread's processor time: other programs may run.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "chunk/chunk-private.h"

#define DATA_BYTES ((size_t)64 << 20)
#define ROUNDS 9
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

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

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

/* ---- speed ----------------------------------------------------------------------------- */

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

/* Of the ratios to another candidate, round by round. */
static double median_ratio(const Candidate *a, const Candidate *b)
{
    double ratios[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        ratios[i] = a->gigabytes_per_s[i] / b->gigabytes_per_s[i];
    }
    qsort(ratios, ROUNDS, sizeof ratios[0], compare_doubles);
    return ratios[ROUNDS / 2];
}

static const Candidate *rabin_of(const GArray *all, const char *mean)
{
    for (guint i = 0; i < all->len; i++) {
        const Candidate *c = &g_array_index(all, Candidate, i);

        if (c->ops != NULL && c->ops->id == VJ_CHUNK_ID_RABIN && c->mean == mean) {
            return c;
        }
    }
    g_error("this build has no rabin");
}

static void print_against(const Candidate *c, const Candidate *baseline, const char *name)
{
    double sorted[ROUNDS];

    memcpy(sorted, baseline->gigabytes_per_s, sizeof sorted);
    qsort(sorted, ROUNDS, sizeof sorted[0], compare_doubles);
    printf("%s %.2f GB/s; ratio %.2f", name, sorted[ROUNDS / 2],
           median_ratio(c, baseline));
}

static void print_speed(const GArray *all, guint i)
{
    const Candidate *c = &g_array_index(all, Candidate, i);
    double sorted[ROUNDS];

    memcpy(sorted, c->gigabytes_per_s, sizeof sorted);
    qsort(sorted, ROUNDS, sizeof sorted[0], compare_doubles);
    if (c->ops == NULL) {
        return;
    }
    printf("chunk %s, mean %s, %s: %.2f GB/s (%.2f-%.2f); ", c->ops->name, c->mean,
           vj_chunk_code_name(c->code), sorted[ROUNDS / 2], sorted[0],
           sorted[ROUNDS - 1]);
    print_against(c, &g_array_index(all, Candidate, 0), "memcpy");
    printf("; ");
    print_against(c, rabin_of(all, c->mean), "rabin");
    printf("\n");
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
        print_speed(all, i);
        vj_chunker_free(g_array_index(all, Candidate, i).chunker);
    }
}

/* ---- lengths --------------------------------------------------------------------------- */

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

static void measure_sizes(const VjChunkerOps *ops, const char *mean, void *opaque)
{
    const uint8_t *bytes = opaque;
    g_autoptr(VjChunker) c = new_chunker(ops, mean);
    double sum = 0, squares = 0, least = INFINITY, most = 0, count = 0, average;

    for (int seed = 0; seed < 8; seed++) {
        g_autoptr(VjChunker) other = NULL;
        g_autoptr(GArray) ends = NULL;
        uint64_t from = 0;

        if (vj_chunker_new(ops, vj_chunker_sizes(c), (uint64_t)seed, &other) != 0) {
            g_error("no chunker");
        }
        ends = cut_all(other, bytes, DATA_BYTES);
        for (guint i = 0; i + 1 < ends->len; i++) { /* the last one ends with the file */
            double len = (double)(g_array_index(ends, uint64_t, i) - from);

            from = g_array_index(ends, uint64_t, i);
            sum += len;
            squares += len * len;
            count++;
            least = MIN(least, len);
            most = MAX(most, len);
        }
    }
    average = sum / count;
    printf("lengths %s, mean %s: mean %.0f KiB, CV %.2f, %.0f-%.0f KiB, %.0f chunks\n",
           ops->name, mean, average / 1024,
           sqrt(squares / count - average * average) / average, least / 1024, most / 1024,
           count);
}

/* ---- inserts --------------------------------------------------------------------------- */

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
    double counts[INSERTS], held[INSERTS], sum = 0, held_sum = 0;
    VjRng rng;

    vj_rng_init(&rng, 2);
    for (int i = 0; i < INSERTS; i++) {
        uint64_t at = DATA_BYTES / 4 + vj_rng_below(&rng, DATA_BYTES / 4);

        insert_once(c, bytes, ends, at, room, &rng, &counts[i], &held[i]);
        sum += counts[i];
        held_sum += held[i];
    }
    qsort(counts, INSERTS, sizeof counts[0], compare_doubles);
    qsort(held, INSERTS, sizeof held[0], compare_doubles);
    printf("inserts %s, mean %s: new chunks %.2f (at most %.0f); KiB in them: "
           "mean %.0f, median %.0f, 90 %% %.0f, most %.0f\n",
           ops->name, mean, sum / INSERTS, counts[INSERTS - 1], held_sum / INSERTS / 1024,
           held[INSERTS / 2] / 1024, held[INSERTS * 9 / 10] / 1024,
           held[INSERTS - 1] / 1024);
}

/* ---- twins ----------------------------------------------------------------------------- */

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
    printf("twins %s, mean %s: %.1f %% of the bytes came before; chunks of %.0f KiB\n",
           ops->name, mean, 100 * found_bytes / all_bytes, all_bytes / count / 1024);
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
    g_autofree uint8_t *source = NULL;
    VjRng rng;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 3) {
        for_each(measure_twins, argv + 1);
        return 0;
    }
    if (argc != 1) {
        fprintf(stderr, "usage: bench-chunk [FILE FILE]\n");
        return 2;
    }
    source = g_malloc(DATA_BYTES);
    vj_rng_init(&rng, 1);
    vj_rng_bytes(&rng, source, DATA_BYTES);
    measure_speed(source);
    for_each(measure_sizes, source);
    for_each(measure_inserts, source);
    return 0;
}
