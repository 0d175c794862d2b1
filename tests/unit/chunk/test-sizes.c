/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-sizes.c - the value of "objects=", and finding an algorithm
 */
#include "../../lib/test.h"

#include "chunk/chunk.h"

static void algorithms_are_found(void **state)
{
    (void)state;
    assert_non_null(vj_chunk_nth(0));
    for (size_t i = 0; vj_chunk_nth(i) != NULL; i++) {
        const VjChunkerOps *ops = vj_chunk_nth(i);

        assert_ptr_equal(vj_chunk_by_name(ops->name), ops);
        assert_ptr_equal(vj_chunk_by_id(ops->id), ops);
    }
    assert_int_equal(vj_chunk_by_name("mincdc")->id, 1);
    assert_int_equal(vj_chunk_by_name("rabin")->id, 3);
    assert_int_equal(vj_chunk_by_name("gear")->id, 2);
    assert_null(vj_chunk_by_name(""));
    assert_null(vj_chunk_by_name("minc"));
    assert_null(vj_chunk_by_id(0));
    assert_null(vj_chunk_by_id(4));
    assert_null(vj_chunk_by_id(255));
}

static void check_sizes(VjChunkSizes sizes, uint64_t min_bytes, uint64_t avg_bytes,
                        uint64_t max_bytes)
{
    assert_int_equal(sizes.min_bytes, min_bytes);
    assert_int_equal(sizes.avg_bytes, avg_bytes);
    assert_int_equal(sizes.max_bytes, max_bytes);
}

static void good_values(void **state)
{
    static const struct {
        const char *name, *text;
        uint64_t min_bytes, avg_bytes, max_bytes;
    } rows[] = {
        {"mincdc", "256K", 128 * VJ_KIB, 256 * VJ_KIB, 384 * VJ_KIB},
        {"mincdc", "1025", 512, 1025, 1537},
        {"mincdc", "1K", 512, 1024, 1536},
        {"mincdc", "8M", 4 * VJ_MIB, 8 * VJ_MIB, 12 * VJ_MIB},
        {"gear", "256K", 64 * VJ_KIB, 256 * VJ_KIB, VJ_MIB},
        {"gear", "1K", 256, VJ_KIB, 4 * VJ_KIB},
        {"gear", "8M", 2 * VJ_MIB, 8 * VJ_MIB, 16 * VJ_MIB},
        {"gear", "2K:1M:8M", 2 * VJ_KIB, VJ_MIB, 8 * VJ_MIB},
        {"gear", "1M:1M:1M", VJ_MIB, VJ_MIB, VJ_MIB},
        {"rabin", "1M", 2 * VJ_KIB, VJ_MIB, 8 * VJ_MIB},
        {"rabin", "2K:1M:8M", 2 * VJ_KIB, VJ_MIB, 8 * VJ_MIB},
        {"rabin", "1K", 256, VJ_KIB, 8 * VJ_KIB},
        {"rabin", "4M", 8 * VJ_KIB, 4 * VJ_MIB, 16 * VJ_MIB},
        {"rabin", "256:1K:1K", 256, VJ_KIB, VJ_KIB},
        {"rabin", "8M:8M:16M", 8 * VJ_MIB, 8 * VJ_MIB, 16 * VJ_MIB},
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        const VjChunkerOps *ops = vj_chunk_by_name(rows[i].name);
        g_autoptr(VjChunker) c = NULL;
        g_autoptr(GError) error = NULL;
        VjChunkSizes sizes;

        assert_true(vj_chunk_sizes_parse(ops, rows[i].text, &sizes, &error));
        assert_null(error);
        check_sizes(sizes, rows[i].min_bytes, rows[i].avg_bytes, rows[i].max_bytes);
        assert_int_equal(vj_chunker_new(ops, sizes, 1, &c), 0);
        sizes = vj_chunker_sizes(c);
        check_sizes(sizes, rows[i].min_bytes, rows[i].avg_bytes, rows[i].max_bytes);
    }
}

static void bad_values(void **state)
{
    static const struct {
        const char *name, *text;
    } rows[] = {
        {"mincdc", ""},
        {"mincdc", "1023"},
        {"mincdc", "8193K"},
        {"mincdc", "16M"},
        {"mincdc", "2K:1M:8M"},
        {"mincdc", "256K:"},
        {"mincdc", ":256K"},
        {"mincdc", "-4K"},
        {"mincdc", "4Q"},
        {"mincdc", "4 K"},
        {"mincdc", "4294967552"},
        {"mincdc", "18446744073709551616"},
        {"gear", "300K"},
        {"gear", "512"},
        {"gear", "16M"},
        {"gear", "64K:256K"},
        {"gear", "255:1K:4K"},
        {"gear", "1M:256K:4M"},
        {"rabin", "3M"},
        {"rabin", "2K:1000K:8M"},
        {"rabin", "2K:1M"},
        {"rabin", "2K:1M:8M:9M"},
        {"rabin", "255:1M:8M"},
        {"rabin", "2K:1M:17M"},
        {"rabin", "2M:1M:8M"},
        {"rabin", "2K:1M:512K"},
        {"rabin", "::"},
        {"rabin", "2K::8M"},
        {"rabin", "2K:1M:8M:9M:1"},
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;
        VjChunkSizes sizes;

        if (vj_chunk_sizes_parse(vj_chunk_by_name(rows[i].name), rows[i].text, &sizes,
                                 &error)) {
            fail_msg("%s took \"%s\"", rows[i].name, rows[i].text);
        }
        assert_non_null(error);
        assert_int_equal(error->code, EINVAL);
        assert_true(g_str_has_prefix(error->message, "objects: "));
        assert_null(strchr(error->message, '\n'));
        assert_false(vj_chunk_sizes_parse(vj_chunk_by_name(rows[i].name), rows[i].text,
                                          &sizes, NULL));
    }
}

/* What a damaged superblock might say. */
static void new_checks_the_limits(void **state)
{
    static const VjChunkSizes wrong[] = {
        {0, 0, 0},
        {255, 1024, 4096},
        {256, 512, 4096},
        {2048, 1024, 4096},
        {256, 4096, 2048},
        {256, 16 << 20, 16 << 20},
        {256, 1 << 20, (16 << 20) + 1},
        {UINT32_MAX, UINT32_MAX, UINT32_MAX},
        {256, 1024, UINT32_MAX},
    };

    (void)state;
    for (size_t i = 0; vj_chunk_nth(i) != NULL; i++) {
        for (size_t k = 0; k < G_N_ELEMENTS(wrong); k++) {
            VjChunker *c;

            assert_int_equal(vj_chunker_new(vj_chunk_nth(i), wrong[k], 0, &c), -EINVAL);
            assert_null(c);
        }
    }
}

static void defaults(void **state)
{
    (void)state;
    check_sizes(vj_chunk_sizes_default(vj_chunk_by_name("mincdc")), 128 * VJ_KIB,
                256 * VJ_KIB, 384 * VJ_KIB);
    check_sizes(vj_chunk_sizes_default(vj_chunk_by_name("gear")), 64 * VJ_KIB,
                256 * VJ_KIB, VJ_MIB);
    check_sizes(vj_chunk_sizes_default(vj_chunk_by_name("rabin")), 2 * VJ_KIB, VJ_MIB,
                8 * VJ_MIB);
    for (size_t i = 0; vj_chunk_nth(i) != NULL; i++) {
        g_autoptr(VjChunker) c = NULL;

        assert_int_equal(vj_chunker_new(vj_chunk_nth(i),
                                        vj_chunk_sizes_default(vj_chunk_nth(i)), 0, &c),
                         0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(algorithms_are_found),
    cmocka_unit_test(good_values),
    cmocka_unit_test(bad_values),
    cmocka_unit_test(new_checks_the_limits),
    cmocka_unit_test(defaults),
};

VJ_TEST_MAIN(tests)
