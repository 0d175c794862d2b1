/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-gear.c - what is particular to gear: where candidates begin and end, its table,
 * few symbols, its sizes.  That it cuts as its formula says is in test-code.c
 */
#include "../../lib/test.h"

#include "chunk/chunk-private.h"
#include "naive.h"

#define SEED 0x67656172

static VjChunker *new_chunker(VjChunkSizes sizes, uint64_t seed)
{
    VjChunker *c;

    assert_int_equal(vj_chunker_new(vj_chunk_by_name("gear"), sizes, seed, &c), 0);
    return c;
}

/* 64 bytes whose hash is a candidate where @bits are asked for, and fewer than
 * @not_bits. */
static void find_window(uint8_t window[64], int bits, int not_bits, VjRng *rng)
{
    uint64_t table[256], hash;

    naive_gear_table(SEED, table);
    do {
        vj_rng_bytes(rng, window, 64);
        hash = 0;
        for (int i = 0; i < 64; i++) {
            hash = 2 * hash + table[window[i]];
        }
    } while (!naive_gear_asks(hash, bits) || naive_gear_asks(hash, not_bits));
}

/* A window is put where it is the first that may be a candidate, and beside that
 * place. */
static void limits_of_candidates(void **state)
{
    VjChunkSizes sizes = {512, 1024, 1536};
    static const struct {
        size_t end;
        bool is_early, is_cut; /* as strict as before 768; cut there */
    } rows[] = {
        {511, true, false},  {512, true, true},  {512, false, false}, {767, true, true},
        {767, false, false}, {768, false, true}, {1535, false, true},
    };
    uint8_t bytes[1600], early[64], late[64];
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, SEED);
    find_window(early, 12, 99, &rng);
    find_window(late, 8, 12, &rng);
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        /* Constant bytes that are no candidates around it. */
        memset(bytes, 7, sizeof bytes);
        assert_int_equal(
            naive_cut(vj_chunk_by_name("gear"), sizes, SEED, bytes, sizeof bytes), 1536);
        memcpy(bytes + rows[i].end - 64, rows[i].is_early ? early : late, 64);
        for (VjChunkCode code = 0; code <= vj_chunk_code_best(); code++) {
            g_autoptr(VjChunker) c = new_chunker(sizes, SEED);
            uint64_t cut;

            vj_chunker_use(c, code);
            assert_true(vj_chunker_scan(c, bytes, sizeof bytes, false, &cut));
            assert_int_equal(
                cut, naive_cut(vj_chunk_by_name("gear"), sizes, SEED, bytes, 1600));
            assert_int_equal(cut == rows[i].end, rows[i].is_cut);
        }
    }
}

static void looks_at_nothing_behind_a_cut(void **state)
{
    g_autoptr(VjChunker) c = new_chunker((VjChunkSizes){256, 1024, 4096}, 0);

    (void)state;
    assert_int_equal(vj_chunker_lookahead_bytes(c), 0);
    assert_int_equal(vj_chunker_decision_bytes(c, 256), 256);
    assert_int_equal(vj_chunker_decision_bytes(c, 4096), 4096);
}

static void keeps_powers_of_two_alone(void **state)
{
    VjChunkSizes wrong[] = {{256, 1025, 4096}, {256, 3 << 10, 16 << 10}};
    VjChunker *c;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        assert_int_equal(vj_chunker_new(vj_chunk_by_name("gear"), wrong[i], 0, &c),
                         -EINVAL);
        assert_null(c);
    }
}

/* Constant content is cut at one length, and at no seed slowly or wrongly; content of two
 * symbols has chunks of all lengths at most seeds. */
static void few_symbols(void **state)
{
    VjChunkSizes sizes = {256, 1024, 4096};
    const size_t len = 200000;
    g_autofree uint8_t *bytes = g_malloc(len);
    unsigned most_count = 0;
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, SEED);
    for (uint64_t seed = 0; seed < 64; seed++) {
        g_autoptr(VjChunker) c = new_chunker(sizes, seed);
        size_t left = len;
        uint64_t cut, first = 0;
        unsigned count = 0;

        memset(bytes, (int)vj_rng_below(&rng, 256), len);
        for (; left > sizes.max_bytes; left -= cut) {
            assert_true(vj_chunker_scan(c, bytes, left, true, &cut));
            first = first == 0 ? cut : first;
            assert_int_equal(cut, first);
        }
        vj_rng_bytes(&rng, bytes, len);
        for (size_t i = 0; i < len; i++) {
            bytes[i] = '0' + (bytes[i] & 1);
        }
        for (left = len; left > 0; left -= cut) {
            assert_true(vj_chunker_scan(c, bytes + len - left, left, true, &cut));
            count++;
        }
        assert_in_range(count, len / 1300, len / 700);
        most_count = MAX(most_count, count);
    }
    assert_true(most_count > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(limits_of_candidates),
    cmocka_unit_test(looks_at_nothing_behind_a_cut),
    cmocka_unit_test(keeps_powers_of_two_alone),
    cmocka_unit_test(few_symbols),
};

VJ_TEST_MAIN(tests)
