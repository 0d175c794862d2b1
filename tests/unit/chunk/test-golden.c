/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-golden.c - cuts that were made once and must be made for ever
 *
 * Every file on disk depends on them: a chunker that cuts elsewhere still reads all
 * files, but finds no duplicate and re-cuts everything that is edited.  So golden-cuts.h
 * only grows: add a row with checksum 0 and lengths {0}, and put there what --print says.
 */
#include <inttypes.h>

#include "../../lib/test.h"

#include "chunk/chunk-private.h"

typedef struct Golden {
    const char *name;    /* of the algorithm */
    const char *objects; /* sizes as the user writes them */
    uint64_t seed;       /* of the file system */
    const char *data;    /* "random", or "digits": random ones of 0 … 9 */
    uint64_t data_seed;  /* of VjRng */
    uint64_t len;        /* bytes of data */
    /* vj_checksum64() of the data: is it the generator that changed?. */
    uint64_t checksum;
    uint32_t lengths[80]; /* of all chunks; 0 ends the list */
} Golden;

static const Golden golden[] = {
#include "golden-cuts.h"
};

static uint8_t *make_data(const Golden *g)
{
    uint8_t *bytes = g_malloc(g->len);
    VjRng rng;

    vj_rng_init(&rng, g->data_seed);
    vj_rng_bytes(&rng, bytes, g->len);
    if (strcmp(g->data, "digits") == 0) {
        for (uint64_t i = 0; i < g->len; i++) {
            bytes[i] = '0' + bytes[i] % 10;
        }
    }
    return bytes;
}

static VjChunker *make_chunker(const Golden *g)
{
    const VjChunkerOps *ops = vj_chunk_by_name(g->name);
    VjChunkSizes sizes;
    VjChunker *c;

    g_assert(ops != NULL);
    g_assert(vj_chunk_sizes_parse(ops, g->objects, &sizes, NULL));
    g_assert(vj_chunker_new(ops, sizes, g->seed, &c) == 0);
    return c;
}

static void print_row(const Golden *g)
{
    g_autofree uint8_t *bytes = make_data(g);
    g_autoptr(VjChunker) c = make_chunker(g);
    int column = 5;
    uint64_t cut;

    printf("{\"%s\", \"%s\", 0x%" PRIx64 ", \"%s\", %" PRIu64 ", %" PRIu64 ", 0x%" PRIx64
           ",\n    {",
           g->name, g->objects, g->seed, g->data, g->data_seed, g->len,
           vj_checksum64(bytes, g->len));
    for (uint64_t at = 0; at < g->len; at += cut) {
        g_assert(vj_chunker_scan(c, bytes + at, g->len - at, true, &cut));
        if (column > 76) {
            printf(",\n     ");
            column = 5;
        } else if (at > 0) {
            column += printf(", ");
        }
        column += printf("%" PRIu64, cut);
    }
    printf("}},\n");
}

static void check_row(const Golden *g)
{
    g_autofree uint8_t *bytes = make_data(g);
    g_autoptr(VjChunker) c = make_chunker(g);

    assert_int_equal(vj_checksum64(bytes, g->len), g->checksum);
    for (VjChunkCode code = 0; code <= vj_chunk_code_best(); code++) {
        uint64_t at = 0, cut;

        vj_chunker_use(c, code);
        for (size_t i = 0; g->lengths[i] != 0; i++, at += cut) {
            assert_true(vj_chunker_scan(c, bytes + at, g->len - at, true, &cut));
            assert_int_equal(cut, g->lengths[i]);
        }
        assert_int_equal(at, g->len);
    }
}

static void cuts_are_as_ever(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(golden); i++) {
        check_row(&golden[i]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(cuts_are_as_ever),
};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        for (size_t i = 0; i < G_N_ELEMENTS(golden); i++) {
            print_row(&golden[i]);
        }
        return 0;
    }
    if (argc != 1) {
        fprintf(stderr, "usage: %s [--print]\n", argv[0]);
        return 2;
    }
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
