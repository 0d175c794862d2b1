/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-code.c - every algorithm with every vector code that this processor has, against
 * the naive formulas: any content, in one piece, in pieces, and between two guard pages
 */
#include <sys/mman.h>
#include <unistd.h>

#include "../../lib/test.h"

#include "chunk/chunk-private.h"
#include "naive.h"

#define SEED 0x636f6465

typedef enum Kind {
    KIND_RANDOM,
    KIND_CONSTANT,
    KIND_TWO_SYMBOLS,
    KIND_LETTERS,  /* four, as of DNA */
    KIND_PERIOD_3, /* equal hashes at places that no vector has in one lane */
    KIND_PERIOD_64,
    KIND_PERIOD_1000,
    KIND_COUNTER,
    KIND_RUNS,
    KIND_CUTS, /* what stood before a cut, over and over: all places are candidates */
    KIND_COUNT,
} Kind;

static VjChunker *new_chunker(const VjChunkerOps *ops, VjChunkSizes sizes, uint64_t seed,
                              VjChunkCode code)
{
    VjChunker *c;

    assert_int_equal(vj_chunker_new(ops, sizes, seed, &c), 0);
    vj_chunker_use(c, code);
    return c;
}

static VjChunkSizes sizes_of(const VjChunkerOps *ops, const char *avg)
{
    VjChunkSizes sizes;

    assert_true(vj_chunk_sizes_parse(ops, avg, &sizes, NULL));
    return sizes;
}

static void repeat(uint8_t *dst, size_t len, size_t period)
{
    for (size_t i = period; i < len; i++) {
        dst[i] = dst[i - period];
    }
}

static void fill(uint8_t *dst, size_t len, Kind kind, const VjChunkerOps *ops,
                 uint64_t seed, VjRng *rng)
{
    static const size_t periods[] = {3, 64, 1000};

    vj_rng_bytes(rng, dst, len);
    switch (kind) {
    case KIND_CONSTANT:
        repeat(dst, len, 1);
        break;
    case KIND_TWO_SYMBOLS:
    case KIND_LETTERS:
        for (size_t i = 0; i < len; i++) {
            dst[i] = (uint8_t) "ACGT"[dst[i] % (kind == KIND_LETTERS ? 4 : 2)];
        }
        break;
    case KIND_PERIOD_3:
    case KIND_PERIOD_64:
    case KIND_PERIOD_1000:
        repeat(dst, len, periods[kind - KIND_PERIOD_3]);
        break;
    case KIND_COUNTER:
        for (size_t i = 0; i < len; i++) {
            dst[i] = (uint8_t)(i / 4 >> 8 * (i % 4));
        }
        break;
    case KIND_RUNS:
        for (size_t i = 0; i < len; i += 1 + vj_rng_below(rng, 300)) {
            size_t run = vj_rng_below(rng, 500);

            memset(dst + i, 0, MIN(run, len - i));
            i += run;
        }
        break;
    case KIND_CUTS: {
        VjChunkSizes sizes = sizes_of(ops, "1K");
        size_t cut = naive_cut(ops, sizes, seed, dst, len);

        memmove(dst, dst + MAX(cut, 64) - 64, MIN(len, 64));
        repeat(dst, len, 64);
        break;
    }
    default:
        break;
    }
}

/* The bytes in pieces of at most @most. */
static size_t cut_in_pieces(VjChunker *c, const uint8_t *p, size_t len, size_t most,
                            VjRng *rng)
{
    size_t fed = 0;
    uint64_t cut;

    for (;;) {
        size_t piece = (size_t)vj_rng_below(rng, most + 1);
        bool at_end;

        piece = MIN(piece, len - fed);
        at_end = fed + piece == len;
        if (vj_chunker_scan(c, p + fed, piece, at_end, &cut)) {
            return (size_t)cut;
        }
        fed += piece;
    }
}

static void check_cuts(const VjChunkerOps *ops, VjChunkSizes sizes, uint64_t seed,
                       const uint8_t *p, size_t len, VjRng *rng)
{
    g_autoptr(VjChunker) c = new_chunker(ops, sizes, seed, VJ_CHUNK_CODE_PLAIN);

    while (len > 0) {
        size_t expected = naive_cut(ops, sizes, seed, p, len);

        for (VjChunkCode code = 0; code <= vj_chunk_code_best(); code++) {
            uint64_t cut;

            vj_chunker_use(c, code);
            assert_true(vj_chunker_scan(c, p, len, true, &cut));
            assert_int_equal(cut, expected);
            assert_int_equal(cut_in_pieces(c, p, len, 3000, rng), expected);
            assert_int_equal(cut_in_pieces(c, p, len, 100, rng), expected);
        }
        p += expected;
        len -= expected;
    }
}

static void cuts_are_the_formulas(void **state)
{
    static const char *const avgs[] = {"1K", "8K"};
    const size_t most = 30000;
    g_autofree uint8_t *bytes = g_malloc(most);
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, SEED);
    for (size_t i = 0; vj_chunk_nth(i) != NULL; i++) {
        const VjChunkerOps *ops = vj_chunk_nth(i);

        for (Kind kind = 0; kind < KIND_COUNT; kind++) {
            for (size_t a = 0; a < G_N_ELEMENTS(avgs); a++) {
                size_t skip = vj_rng_below(&rng, 64);
                uint64_t seed = vj_rng_u64(&rng);

                fill(bytes, most, kind, ops, seed, &rng);
                check_cuts(ops, sizes_of(ops, avgs[a]), seed, bytes + skip, most - skip,
                           &rng);
            }
        }
    }
}

/* A chunk in two calls, split at every place. */
static void check_splits(const VjChunkerOps *ops, uint64_t seed, const uint8_t *p,
                         size_t len)
{
    VjChunkSizes sizes = sizes_of(ops, "1K");
    uint64_t expected = naive_cut(ops, sizes, seed, p, len);

    for (VjChunkCode code = 0; code <= vj_chunk_code_best(); code++) {
        g_autoptr(VjChunker) c = new_chunker(ops, sizes, seed, code);

        for (size_t split = 0; split <= len; split++) {
            uint64_t cut;

            if (!vj_chunker_scan(c, p, split, false, &cut)) {
                assert_true(vj_chunker_scan(c, p + split, len - split, true, &cut));
            }
            assert_int_equal(cut, expected);
        }
    }
}

static void splits_at_every_place(void **state)
{
    uint8_t bytes[1700];
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, SEED);
    for (size_t i = 0; vj_chunk_nth(i) != NULL; i++) {
        for (Kind kind = 0; kind < KIND_COUNT; kind++) {
            uint64_t seed = vj_rng_u64(&rng);

            fill(bytes, sizeof bytes, kind, vj_chunk_nth(i), seed, &rng);
            check_splits(vj_chunk_nth(i), seed, bytes, sizeof bytes);
        }
    }
}

/* No code reads a byte before or behind those that it is given. */
static void only_the_bytes_given_are_read(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), len = page;
    uint8_t *map = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *bytes = map + page;
    VjRng rng;

    (void)state;
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(bytes, len, PROT_READ | PROT_WRITE), 0);
    vj_rng_init(&rng, SEED);
    vj_rng_bytes(&rng, bytes, len);
    for (size_t i = 0; vj_chunk_nth(i) != NULL; i++) {
        for (VjChunkCode code = 0; code <= vj_chunk_code_best(); code++) {
            g_autoptr(VjChunker) c =
                new_chunker(vj_chunk_nth(i), sizes_of(vj_chunk_nth(i), "1K"), SEED, code);

            for (size_t n = 1; n <= 1600; n++) {
                uint64_t at_begin, at_end;

                assert_true(vj_chunker_scan(c, bytes, n, true, &at_begin));
                assert_true(vj_chunker_scan(c, bytes + len - n, n, true, &at_end));
                assert_in_range(at_begin, 1, n);
                assert_in_range(at_end, 1, n);
            }
        }
    }
    munmap(map, 3 * page);
}

/* Each window's hash is smaller than all before it, as far as may be: every block holds a
 * better one, and all of them are tried one by one. */
static void ever_smaller_hashes(void **state)
{
    VjChunkSizes sizes = {512, 1024, 1536};
    const size_t pool_len = 200000;
    g_autofree uint8_t *pool = g_malloc(pool_len);
    const VjChunkerOps *ops = vj_chunk_by_name("mincdc");
    uint32_t below = UINT32_MAX;
    uint8_t bytes[1600];
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, SEED);
    vj_rng_bytes(&rng, pool, pool_len);
    memset(bytes, 0, sizeof bytes);
    for (size_t at = 496; at + 16 <= sizeof bytes; at += 16) {
        /* The largest hash below the last one. */
        size_t best = 0;
        uint32_t best_hash = 0;

        for (size_t i = 0; i + 16 <= pool_len; i += 16) {
            uint32_t hash = naive_mincdc_hash(pool + i, SEED);

            if (hash < below && hash >= best_hash) {
                best_hash = hash;
                best = i;
            }
        }
        memcpy(bytes + at, pool + best, 16);
        below = best_hash;
    }
    check_cuts(ops, sizes, SEED, bytes, sizeof bytes, &rng);
}

static void codes_have_names(void **state)
{
    (void)state;
    for (VjChunkCode code = 0; code < VJ_CHUNK_CODE_COUNT; code++) {
        assert_non_null(vj_chunk_code_name(code));
    }
    print_message("# this processor: %s\n", vj_chunk_code_name(vj_chunk_code_best()));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(cuts_are_the_formulas),
    cmocka_unit_test(splits_at_every_place),
    cmocka_unit_test(only_the_bytes_given_are_read),
    cmocka_unit_test(ever_smaller_hashes),
    cmocka_unit_test(codes_have_names),
};

VJ_TEST_MAIN(tests)
