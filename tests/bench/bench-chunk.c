/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-chunk.c - how fast do the chunkers cut, against memcpy in the same run?
 *
 * 64 MiB of random bytes, default sizes and a mean of 64 KiB.  Each round runs every
 * candidate once, so that a change of the machine's pace meets all of them; figures are
 * medians of 7 rounds.  One line for each: figure, baseline, ratio.
 */
#include <stdio.h>
#include <stdlib.h>

#include "chunk/chunk.h"

#define DATA_BYTES ((size_t)64 << 20)
#define ROUNDS 7

typedef struct Candidate {
    char label[64];
    VjChunker *chunker; /* NULL: memcpy */
    double gigabytes_per_s[ROUNDS];
} Candidate;

static uint8_t *source, *target;

static uint64_t cut_all(VjChunker *c)
{
    uint64_t chunk_count = 0, cut;

    for (size_t at = 0; at < DATA_BYTES; at += cut, chunk_count++) {
        if (!vj_chunker_scan(c, source + at, DATA_BYTES - at, true, &cut)) {
            g_error("a chunker did not end");
        }
    }
    return chunk_count;
}

static void run(Candidate *candidate, int round)
{
    int64_t begin_us = vj_clock_mono_us();

    if (candidate->chunker == NULL) {
        memcpy(target, source, DATA_BYTES);
        __asm__ volatile("" : : "r"(target) : "memory"); /* somebody reads it */
    } else {
        cut_all(candidate->chunker);
    }
    candidate->gigabytes_per_s[round] =
        (double)DATA_BYTES / 1000 / (double)MAX(vj_clock_mono_us() - begin_us, 1);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void add(GArray *all, const VjChunkerOps *ops, const char *avg)
{
    Candidate *candidate;
    VjChunkSizes sizes = vj_chunk_sizes_default(ops);

    g_array_set_size(all, all->len + 1);
    candidate = &g_array_index(all, Candidate, all->len - 1);
    if ((avg != NULL && !vj_chunk_sizes_parse(ops, avg, &sizes, NULL)) ||
        vj_chunker_new(ops, sizes, 1, &candidate->chunker) != 0) {
        g_error("%s does not take %s", ops->name, avg);
    }
    g_snprintf(candidate->label, sizeof candidate->label, "%s, mean %u KiB", ops->name,
               sizes.avg_bytes / 1024);
}

int main(void)
{
    g_autoptr(GArray) all = g_array_new(FALSE, TRUE, sizeof(Candidate));
    double baseline = 0;
    VjRng rng;

    source = g_malloc(DATA_BYTES);
    target = g_malloc(DATA_BYTES);
    vj_rng_init(&rng, 1);
    vj_rng_bytes(&rng, source, DATA_BYTES);
    memset(target, 1, DATA_BYTES);
    g_array_set_size(all, 1);
    for (size_t i = 0; vj_chunk_nth(i) != NULL; i++) {
        add(all, vj_chunk_nth(i), NULL);
        add(all, vj_chunk_nth(i), "64K");
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (guint i = 0; i < all->len; i++) {
            run(&g_array_index(all, Candidate, i), round);
        }
    }
    for (guint i = 0; i < all->len; i++) {
        Candidate *candidate = &g_array_index(all, Candidate, i);
        double median;

        qsort(candidate->gigabytes_per_s, ROUNDS, sizeof(double), compare);
        median = candidate->gigabytes_per_s[ROUNDS / 2];
        if (candidate->chunker == NULL) {
            baseline = median;
            continue;
        }
        printf("chunk %s: %.2f GB/s; memcpy %.2f GB/s; ratio %.3f\n", candidate->label,
               median, baseline, median / baseline);
        vj_chunker_free(candidate->chunker);
    }
    g_free(source);
    g_free(target);
    return 0;
}
