/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-chunk.c - what chunk.h promises, for every algorithm of this build
 *
 * Nothing here knows where an algorithm should cut; tests/unit/chunk does.
 */
#include "../lib/test.h"

#include "chunk/chunk.h"

#define SEED 20261120
#define DATA_BYTES ((size_t)400000)

/* ---- Data ------------------------------------------------------------------------- */

typedef enum Kind {
    KIND_RANDOM,
    KIND_ZERO,
    KIND_TWO_SYMBOLS,
    KIND_PERIOD,    /* of odd length, longer than a window */
    KIND_COUNTER,   /* 32-bit integers 0, 1, 2, … */
    KIND_MIXED,     /* runs of zeroes between random bytes */
    KIND_ADVERSARY, /* what stands before a cut, over and over: candidates everywhere */
    KIND_COUNT,
} Kind;

static VjChunker *new_chunker(const VjChunkerOps *ops, VjChunkSizes sizes, uint64_t seed)
{
    VjChunker *c;

    assert_int_equal(vj_chunker_new(ops, sizes, seed, &c), 0);
    return c;
}

/* Sizes that every algorithm can keep. */
static VjChunkSizes sizes_of(const VjChunkerOps *ops, const char *avg)
{
    VjChunkSizes sizes;

    assert_true(vj_chunk_sizes_parse(ops, avg, &sizes, NULL));
    return sizes;
}

static void fill(uint8_t *dst, size_t len, Kind kind, const VjChunkerOps *ops, VjRng *rng)
{
    g_autoptr(VjChunker) c = NULL;
    uint64_t cut;
    uint8_t unit[64];
    size_t i;

    vj_rng_bytes(rng, dst, len);
    switch (kind) {
    case KIND_ZERO:
        memset(dst, 0, len);
        break;
    case KIND_TWO_SYMBOLS:
        for (i = 0; i < len; i++) {
            dst[i] = '0' + (dst[i] & 1);
        }
        break;
    case KIND_PERIOD:
        for (i = 101; i < len; i++) {
            dst[i] = dst[i - 101];
        }
        break;
    case KIND_COUNTER:
        for (i = 0; i < len; i++) {
            dst[i] = (uint8_t)(i / 4 >> 8 * (i % 4));
        }
        break;
    case KIND_MIXED:
        for (i = 0; i < len; i += 1 + vj_rng_below(rng, 3000)) {
            size_t run = vj_rng_below(rng, 5000);

            memset(dst + i, 0, MIN(run, len - i));
            i += run;
        }
        break;
    case KIND_ADVERSARY:
        c = new_chunker(ops, sizes_of(ops, "1K"), SEED);
        assert_true(vj_chunker_scan(c, dst, len, false, &cut));
        memcpy(unit, dst + cut - sizeof unit, sizeof unit);
        for (i = 0; i < len; i++) {
            dst[i] = unit[i % sizeof unit];
        }
        break;
    default:
        break;
    }
}

/* ---- Callers ----------------------------------------------------------------------- */

/* Offsets of all chunk ends, with the bytes in one piece. */
static GArray *cut_whole(VjChunker *c, const uint8_t *src, size_t len)
{
    GArray *ends = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    uint64_t end = 0, cut;

    while (end < len) {
        assert_true(vj_chunker_scan(c, src + end, len - end, true, &cut));
        end += cut;
        g_array_append_val(ends, end);
    }
    assert_int_equal(end, len);
    return ends;
}

/* The same with pieces of 0 … @piece_most bytes; the end comes with the last one or
 * alone. */
static GArray *cut_in_pieces(VjChunker *c, const uint8_t *src, size_t len,
                             size_t piece_most, VjRng *rng)
{
    GArray *ends = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    uint64_t start = 0, next = 0, cut;

    while (start < len) {
        size_t wanted = vj_rng_below(rng, piece_most + 1);
        size_t piece = MIN(wanted, len - next);
        bool at_end = next + piece == len && vj_rng_below(rng, 2) == 0;

        if (vj_chunker_scan(c, piece > 0 ? src + next : NULL, piece, at_end, &cut)) {
            start += cut;
            next = start;
            g_array_append_val(ends, start);
        } else {
            assert_false(at_end);
            next += piece;
        }
    }
    return ends;
}

static void assert_same_ends(const GArray *a, const GArray *b)
{
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->data, b->data, a->len * sizeof(uint64_t));
}

static bool has_end(const GArray *ends, uint64_t end)
{
    for (guint i = 0; i < ends->len; i++) {
        if (g_array_index(ends, uint64_t, i) == end) {
            return true;
        }
    }
    return false;
}

/* ---- Tests ------------------------------------------------------------------------- */

static void splits_do_not_matter(void **state)
{
    static const size_t pieces[] = {1, 2, 17, 100, 1000, 5000};
    const VjChunkerOps *ops = *state;
    g_autofree uint8_t *bytes = g_malloc(DATA_BYTES);
    VjRng rng;

    vj_rng_init(&rng, SEED);
    for (Kind kind = 0; kind < KIND_COUNT; kind++) {
        size_t len = 60000 + vj_rng_below(&rng, 10000);
        g_autoptr(VjChunker) c = new_chunker(ops, sizes_of(ops, "1K"), SEED);
        g_autoptr(GArray) whole = NULL;

        fill(bytes, len, kind, ops, &rng);
        whole = cut_whole(c, bytes, len);
        for (size_t i = 0; i < G_N_ELEMENTS(pieces); i++) {
            g_autoptr(GArray) split = cut_in_pieces(c, bytes, len, pieces[i], &rng);

            assert_same_ends(split, whole);
        }
    }
}

static void sizes_stay_within_bounds(void **state)
{
    static const char *const avgs[] = {"1K", "4K", "64K"};
    const VjChunkerOps *ops = *state;
    g_autofree uint8_t *bytes = g_malloc(DATA_BYTES);
    VjRng rng;

    vj_rng_init(&rng, SEED);
    for (Kind kind = 0; kind < KIND_COUNT; kind++) {
        fill(bytes, DATA_BYTES, kind, ops, &rng);
        for (size_t i = 0; i < G_N_ELEMENTS(avgs); i++) {
            VjChunkSizes sizes = sizes_of(ops, avgs[i]);
            g_autoptr(VjChunker) c = new_chunker(ops, sizes, SEED);
            g_autoptr(GArray) ends = cut_whole(c, bytes, DATA_BYTES);
            uint64_t start = 0;

            for (guint k = 0; k < ends->len; k++) {
                uint64_t end = g_array_index(ends, uint64_t, k);

                assert_true(end - start <= sizes.max_bytes);
                assert_true(end - start >= sizes.min_bytes || k == ends->len - 1);
                start = end;
            }
        }
    }
}

/* The mean of random content: near avg for mincdc and gear, min + avg for rabin. */
static void random_content_comes_to_the_mean(void **state)
{
    const VjChunkerOps *ops = *state;
    g_autofree uint8_t *bytes = g_malloc(DATA_BYTES);
    uint64_t chunk_count = 0;
    VjRng rng;

    vj_rng_init(&rng, SEED);
    for (uint64_t seed = 0; seed < 10; seed++) {
        g_autoptr(VjChunker) c = new_chunker(ops, sizes_of(ops, "1K"), seed);
        g_autoptr(GArray) ends = NULL;

        vj_rng_bytes(&rng, bytes, DATA_BYTES);
        ends = cut_whole(c, bytes, DATA_BYTES);
        chunk_count += ends->len;
    }
    assert_in_range(10 * DATA_BYTES / chunk_count, 950, 1350);
}

static void every_short_length_ends(void **state)
{
    const VjChunkerOps *ops = *state;
    VjChunkSizes sizes = sizes_of(ops, "1K");
    g_autoptr(VjChunker) c = new_chunker(ops, sizes, SEED);
    g_autofree uint8_t *bytes = g_malloc(DATA_BYTES);
    VjRng rng;

    vj_rng_init(&rng, SEED);
    fill(bytes, DATA_BYTES, KIND_MIXED, ops, &rng);
    for (size_t len = 1; len <= sizes.min_bytes + 100; len++) {
        uint64_t cut;

        assert_true(vj_chunker_scan(c, bytes, len, true, &cut));
        assert_true(cut == len || (cut >= sizes.min_bytes && cut < len));
        /* Up to the minimum nothing can have been decided before the end was known. */
        if (len < sizes.min_bytes) {
            assert_false(vj_chunker_scan(c, bytes, len, false, &cut));
            assert_true(vj_chunker_scan(c, NULL, 0, true, &cut));
            assert_int_equal(cut, len);
        }
    }
}

static void nothing_is_no_chunk(void **state)
{
    g_autoptr(VjChunker) c = new_chunker(*state, sizes_of(*state, "1K"), SEED);
    uint64_t cut;

    assert_false(vj_chunker_scan(c, NULL, 0, false, &cut));
    assert_false(vj_chunker_scan(c, NULL, 0, true, &cut));
    assert_false(vj_chunker_scan(c, "x", 1, false, &cut));
    assert_false(vj_chunker_scan(c, NULL, 0, false, &cut));
    assert_true(vj_chunker_scan(c, NULL, 0, true, &cut));
    assert_int_equal(cut, 1);
    assert_false(vj_chunker_scan(c, NULL, 0, true, &cut));
}

static void reset_forgets(void **state)
{
    const VjChunkerOps *ops = *state;
    g_autoptr(VjChunker) c = new_chunker(ops, sizes_of(ops, "1K"), SEED);
    g_autofree uint8_t *bytes = g_malloc(DATA_BYTES);
    uint64_t first_cut, cut;
    VjRng rng;

    vj_rng_init(&rng, SEED);
    fill(bytes, DATA_BYTES, KIND_RANDOM, ops, &rng);
    assert_true(vj_chunker_scan(c, bytes, DATA_BYTES, false, &first_cut));
    for (size_t len = 0; len < first_cut; len += 31) {
        assert_false(vj_chunker_scan(c, bytes + 5000, MIN(len, 255), false, &cut));
        vj_chunker_reset(c);
        assert_true(vj_chunker_scan(c, bytes, DATA_BYTES, false, &cut));
        assert_int_equal(cut, first_cut);
    }
}

/* The first D bytes of a chunk are enough to cut it, and one less is not. */
static void decisions_take_the_bytes_that_they_say(void **state)
{
    const VjChunkerOps *ops = *state;
    VjChunkSizes sizes = sizes_of(ops, "1K");
    g_autoptr(VjChunker) c = new_chunker(ops, sizes, SEED);
    g_autofree uint8_t *bytes = g_malloc(DATA_BYTES);
    g_autoptr(GArray) ends = NULL;
    uint64_t start = 0, end = 0, cut;
    VjRng rng;

    vj_rng_init(&rng, SEED);
    fill(bytes, DATA_BYTES, KIND_RANDOM, ops, &rng);
    ends = cut_whole(c, bytes, DATA_BYTES);
    for (guint i = 0; i + 1 < ends->len; i++, start = end) {
        uint64_t decided;

        end = g_array_index(ends, uint64_t, i);
        decided = vj_chunker_decision_bytes(c, end - start);
        assert_in_range(decided, end - start, sizes.max_bytes);
        assert_true(decided <= end - start + vj_chunker_lookahead_bytes(c));
        assert_true(start + decided <= DATA_BYTES);
        assert_true(vj_chunker_scan(c, bytes + start, decided, false, &cut));
        assert_int_equal(cut, end - start);
        assert_false(vj_chunker_scan(c, bytes + start, decided - 1, false, &cut));
        vj_chunker_reset(c);
    }
}

static void a_restart_at_a_cut_finds_the_rest(void **state)
{
    const VjChunkerOps *ops = *state;
    g_autoptr(VjChunker) c = new_chunker(ops, sizes_of(ops, "4K"), SEED);
    g_autofree uint8_t *bytes = g_malloc(DATA_BYTES);
    VjRng rng;

    vj_rng_init(&rng, SEED);
    for (Kind kind = 0; kind < KIND_COUNT; kind++) {
        g_autoptr(GArray) ends = NULL;

        fill(bytes, DATA_BYTES, kind, ops, &rng);
        ends = cut_whole(c, bytes, DATA_BYTES);
        for (guint i = 0; i < ends->len; i += 1 + ends->len / 7) {
            uint64_t start = g_array_index(ends, uint64_t, i);
            g_autoptr(GArray) rest = cut_whole(c, bytes + start, DATA_BYTES - start);

            assert_int_equal(rest->len, ends->len - i - 1);
            for (guint k = 0; k < rest->len; k++) {
                assert_int_equal(g_array_index(rest, uint64_t, k) + start,
                                 g_array_index(ends, uint64_t, i + 1 + k));
            }
        }
    }
}

static void an_append_moves_the_last_end_alone(void **state)
{
    const VjChunkerOps *ops = *state;
    g_autoptr(VjChunker) c = new_chunker(ops, sizes_of(ops, "1K"), SEED);
    g_autofree uint8_t *bytes = g_malloc(DATA_BYTES);
    VjRng rng;

    vj_rng_init(&rng, SEED);
    for (Kind kind = 0; kind < KIND_COUNT; kind++) {
        fill(bytes, DATA_BYTES, kind, ops, &rng);
        for (int round = 0; round < 10; round++) {
            size_t len = 1 + vj_rng_below(&rng, 20000);
            size_t more = 1 + vj_rng_below(&rng, 3000);
            g_autoptr(GArray) before = cut_whole(c, bytes, len);
            g_autoptr(GArray) after = cut_whole(c, bytes, len + more);

            assert_true(after->len >= before->len);
            assert_memory_equal(after->data, before->data,
                                (before->len - 1) * sizeof(uint64_t));
        }
    }
}

static void the_seed_chooses_the_cuts(void **state)
{
    const VjChunkerOps *ops = *state;
    VjChunkSizes sizes = sizes_of(ops, "4K");
    g_autofree uint8_t *bytes = g_malloc(DATA_BYTES);
    g_autoptr(GArray) first = NULL;
    VjRng rng;

    vj_rng_init(&rng, SEED);
    fill(bytes, DATA_BYTES, KIND_RANDOM, ops, &rng);
    for (uint64_t seed = 0; seed < 20; seed++) {
        g_autoptr(VjChunker) a = new_chunker(ops, sizes, seed << 40 | seed);
        g_autoptr(VjChunker) b = new_chunker(ops, sizes, seed << 40 | seed);
        g_autoptr(GArray) ends = cut_whole(a, bytes, DATA_BYTES);
        g_autoptr(GArray) again = cut_whole(b, bytes, DATA_BYTES);
        guint common = 0;

        assert_same_ends(ends, again);
        if (first == NULL) {
            first = g_steal_pointer(&ends);
            continue;
        }
        for (guint i = 0; i + 1 < ends->len; i++) {
            common += has_end(first, g_array_index(ends, uint64_t, i));
        }
        assert_true(common < ends->len / 4);
    }
}

static int compare_counts(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/*
 * Replace @old_len bytes at @at by @new_len random ones and scan all of it again: how
 * many chunks did not exist before?  @edited has room.
 */
static int new_chunks(VjChunker *c, const uint8_t *bytes, const GArray *ends,
                      uint8_t *edited, size_t at, size_t old_len, size_t new_len,
                      VjRng *rng)
{
    size_t len = DATA_BYTES - old_len + new_len;
    g_autoptr(GArray) after = NULL;
    guint i, count = 0;

    memcpy(edited, bytes, at);
    vj_rng_bytes(rng, edited + at, new_len);
    memcpy(edited + at + new_len, bytes + at + old_len, DATA_BYTES - at - old_len);
    after = cut_whole(c, edited, len);
    for (i = 0; g_array_index(after, uint64_t, i) == g_array_index(ends, uint64_t, i);
         i++) {
    }
    for (; i < after->len; i++) {
        uint64_t end = g_array_index(after, uint64_t, i);

        count++;
        if (end >= at + new_len && has_end(ends, end - new_len + old_len)) {
            return (int)count;
        }
    }
    fail_msg("the end of the file is an end of both");
    return 0;
}

/* Data that holds few different windows is the hard case: with a short window, every one
 * occurs many times in each chunk. */
static void edits_resynchronise(void **state)
{
    enum { ROUNDS = 41 };
    const VjChunkerOps *ops = *state;
    g_autofree uint8_t *bytes = g_malloc(DATA_BYTES);
    g_autofree uint8_t *edited = g_malloc(DATA_BYTES + 5000);
    VjRng rng;

    vj_rng_init(&rng, SEED);
    for (int alphabet = 256; alphabet >= 4; alphabet /= 8) {
        g_autoptr(VjChunker) c = new_chunker(ops, sizes_of(ops, "4K"), SEED);
        g_autoptr(GArray) ends = NULL;
        int counts[ROUNDS];

        vj_rng_bytes(&rng, bytes, DATA_BYTES);
        for (size_t i = 0; i < DATA_BYTES; i++) {
            bytes[i] %= alphabet;
        }
        ends = cut_whole(c, bytes, DATA_BYTES);
        for (int round = 0; round < ROUNDS; round++) {
            size_t at = vj_rng_below(&rng, DATA_BYTES - 100000);
            size_t old_len = round % 3 == 0 ? 0 : vj_rng_below(&rng, 5000);
            size_t new_len = round % 3 == 1 ? 0 : vj_rng_below(&rng, 5000);

            counts[round] =
                new_chunks(c, bytes, ends, edited, at, old_len, new_len, &rng);
        }
        qsort(counts, ROUNDS, sizeof counts[0], compare_counts);
        assert_in_range(counts[ROUNDS / 2], 0, 3);
        assert_in_range(counts[ROUNDS - 1], 1, 15);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_do_not_matter),
        cmocka_unit_test(sizes_stay_within_bounds),
        cmocka_unit_test(random_content_comes_to_the_mean),
        cmocka_unit_test(every_short_length_ends),
        cmocka_unit_test(nothing_is_no_chunk),
        cmocka_unit_test(reset_forgets),
        cmocka_unit_test(decisions_take_the_bytes_that_they_say),
        cmocka_unit_test(a_restart_at_a_cut_finds_the_rest),
        cmocka_unit_test(an_append_moves_the_last_end_alone),
        cmocka_unit_test(the_seed_chooses_the_cuts),
        cmocka_unit_test(edits_resynchronise),
    };
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct CMUnitTest));

    if (argc == 3 && strcmp(argv[1], "-p") == 0) {
        cmocka_set_test_filter(argv[2]); /* as VJ_TEST_MAIN, whose table is a constant */
    } else if (argc != 1) {
        fprintf(stderr, "usage: %s [-p PATTERN]\n", argv[0]);
        return 2;
    }
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    for (size_t i = 0; vj_chunk_nth(i) != NULL; i++) {
        for (size_t k = 0; k < G_N_ELEMENTS(tests); k++) {
            struct CMUnitTest test = tests[k];

            test.name = g_strdup_printf("%s/%s", vj_chunk_nth(i)->name, tests[k].name);
            test.initial_state = (void *)vj_chunk_nth(i);
            g_ptr_array_add(names, (char *)test.name);
            g_array_append_val(all, test);
        }
    }
    return _cmocka_run_group_tests("chunk", (struct CMUnitTest *)(void *)all->data,
                                   all->len, NULL, NULL);
}
