/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The contract of VjCodecOps, for every codec of the build.
 *
 * A new codec adds the texts it is to be tried with to `texts`; the suite fails while a
 * row of the table has none.  The table has two codecs more here, which use the context
 * (context-codec.h): none of the build does yet.  Runs lie in memory of their exact
 * length, so sanitizers and valgrind see a step outside; without them the guard bytes
 * behind the output do.
 */
#include "../lib/context-codec.h"
#include "../lib/test.h"

static const char *const texts[] = {
    "none", "xor",     "xor:5a", "rle",     "placed",  "sealed",
#ifdef HAVE_LZ4
    "lz4",  "lz4:-7",  "lz4:3",  "lz4:12",
#endif
#ifdef HAVE_ZSTD
    "zstd", "zstd:-5", "zstd:1", "zstd:19", "zstd:22",
#endif
};

#define SEED UINT64_C(20261120)
#define GUARD_BYTES 64u
#define GUARD 0xc3

typedef struct Run {
    uint8_t *bytes; /* owned */
    size_t len;
} Run;

static void run_clear(Run *run)
{
    g_free(run->bytes);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Run, run_clear)

typedef enum Kind { ZEROES, ONE_BYTE, ALTERNATING, TEXT, RANDOM, MIXED, KINDS } Kind;

static void fill(Kind kind, uint8_t *dst, size_t len, VjRng *r)
{
    static const char words[] = "the file system keeps what was written to it; ";

    for (size_t i = 0; i < len; i++) {
        switch (kind) {
        case ZEROES:
            dst[i] = 0;
            break;
        case ONE_BYTE:
            dst[i] = 0xff;
            break;
        case ALTERNATING:
            dst[i] = i % 2 ? 0xaa : 0x55;
            break;
        case TEXT:
            dst[i] = (uint8_t)words[i % (sizeof words - 1)];
            break;
        case RANDOM:
            dst[i] = (uint8_t)vj_rng_u64(r);
            break;
        default: /* runs of all lengths between noise */
            dst[i] = (i >> 9) % 2 ? (uint8_t)(i >> 10) : (uint8_t)vj_rng_u64(r);
            break;
        }
    }
}

static Run make_run(Kind kind, size_t len)
{
    Run run = {.bytes = g_malloc(MAX(len, 1)), .len = len};
    VjRng r;

    vj_rng_init(&r, SEED + len);
    fill(kind, run.bytes, len, &r);
    return run;
}

static const size_t lengths[] = {0,   1,   2,    3,    15,    16,   255,
                                 256, 257, 4095, 4096, 65535, 65536};

static const uint8_t a_key[] = "a key that is not secret";

/* Where a run may stand, each different from the first in one way. */
static const VjCodecContext contexts[] = {
    {.domain = VJ_CODEC_DOMAIN_OBJECT, .number = 7, .block = 9},
    {.domain = VJ_CODEC_DOMAIN_INLINE, .number = 7, .block = 9},
    {.domain = VJ_CODEC_DOMAIN_FRAGMENT, .number = 7, .block = 9},
    {.domain = VJ_CODEC_DOMAIN_OBJECT, .number = UINT64_MAX, .block = 9},
    {.domain = VJ_CODEC_DOMAIN_OBJECT, .number = 7, .block = 0},
    {.domain = VJ_CODEC_DOMAIN_OBJECT, .number = 7, .block = UINT64_MAX},
    {.domain = VJ_CODEC_DOMAIN_OBJECT, .number = 7, .block = 9, .key_id = 1},
    {.domain = VJ_CODEC_DOMAIN_OBJECT,
     .number = 7,
     .block = 9,
     .key_id = 1,
     .key = {.data = a_key, .len = sizeof a_key}},
};

static VjCodecSpec spec_of(void **state)
{
    VjCodecSpec spec;

    assert_true(vj_codec_parse(*state, &spec, NULL));
    return spec;
}

/* Encodes with @cap, checks that nothing behind it was touched. */
static int encode_at(const VjCodecSpec *spec, const VjCodecContext *context,
                     const Run *plain, size_t cap, Run *out)
{
    int failed;

    out->bytes = g_malloc(cap + GUARD_BYTES);
    memset(out->bytes + cap, GUARD, GUARD_BYTES);
    failed = vj_codec_encode(spec, context, plain->bytes, plain->len, out->bytes, cap,
                             &out->len);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(out->bytes[cap + i], GUARD);
    }
    if (!failed) {
        out->bytes = g_realloc(out->bytes, MAX(out->len, 1)); /* reads beyond are seen */
    }
    return failed;
}

static int encode(const VjCodecSpec *spec, const Run *plain, size_t cap, Run *out)
{
    return encode_at(spec, &contexts[0], plain, cap, out);
}

/* Decodes from memory of the exact length; checks that nothing behind @dst_len was
 * touched. */
static int decode_at(const VjCodecSpec *spec, const VjCodecContext *context,
                     const uint8_t *src, size_t src_len, size_t dst_len, Run *out)
{
    g_autofree uint8_t *exact = g_malloc(MAX(src_len, 1));
    int failed;

    if (src_len > 0) {
        memcpy(exact, src, src_len);
    }
    out->len = dst_len;
    out->bytes = g_malloc(dst_len + GUARD_BYTES);
    memset(out->bytes + dst_len, GUARD, GUARD_BYTES);
    failed = vj_codec_decode(spec, context, exact, src_len, out->bytes, dst_len);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(out->bytes[dst_len + i], GUARD);
    }
    if (src_len > 0) {
        assert_memory_equal(exact, src, src_len);
    }
    assert_true(failed == 0 || failed == -EBADMSG);
    return failed;
}

static int decode(const VjCodecSpec *spec, const uint8_t *src, size_t src_len,
                  size_t dst_len, Run *out)
{
    return decode_at(spec, &contexts[0], src, src_len, dst_len, out);
}

static void expect_round_trip(const VjCodecSpec *spec, Kind kind, size_t len)
{
    g_auto(Run) plain = make_run(kind, len);
    g_auto(Run) encoded = {0};
    g_auto(Run) decoded = {0};
    uint64_t sum = vj_checksum64(plain.bytes, len);

    assert_int_equal(encode(spec, &plain, vj_codec_bound(spec->ops, len), &encoded), 0);
    assert_true(vj_checksum64(plain.bytes, len) == sum);
    assert_int_equal(decode(spec, encoded.bytes, encoded.len, len, &decoded), 0);
    assert_true(vj_checksum64(decoded.bytes, len) == sum);
    if (spec->ops->flags & VJ_CODEC_SAME_LENGTH) {
        assert_int_equal(encoded.len, len);
    }
    if (spec->ops->flags & VJ_CODEC_IDENTITY) {
        assert_memory_equal(encoded.bytes, plain.bytes, len);
    }
}

static void what_goes_in_comes_out(void **state)
{
    VjCodecSpec spec = spec_of(state);

    for (Kind kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
            expect_round_trip(&spec, kind, lengths[i]);
        }
    }
    expect_round_trip(&spec, MIXED, (1 << 20) + 1);
    expect_round_trip(&spec, ZEROES, VJ_CODEC_RUN_MAX);
}

static void the_bound_grows_with_the_length(void **state)
{
    VjCodecSpec spec = spec_of(state);
    size_t last = 0;

    for (size_t len = 0; len <= 70000; len++) {
        size_t bound = vj_codec_bound(spec.ops, len);

        assert_true(bound >= last);
        last = bound;
    }
    assert_true(vj_codec_bound(spec.ops, VJ_CODEC_RUN_MAX) >= last);
}

static void too_little_room_is_enospc(void **state)
{
    VjCodecSpec spec = spec_of(state);

    for (Kind kind = 0; kind < KINDS; kind++) {
        g_auto(Run) plain = make_run(kind, 5000);
        g_auto(Run) whole = {0};
        size_t bound = vj_codec_bound(spec.ops, plain.len);

        assert_int_equal(encode(&spec, &plain, bound, &whole), 0);
        for (size_t cap = 0; cap < whole.len; cap += cap < 40 ? 1 : 37) {
            g_auto(Run) part = {0};

            assert_int_equal(encode(&spec, &plain, cap, &part), -ENOSPC);
        }
        if (whole.len > 0) {
            g_auto(Run) part = {0};

            assert_int_equal(encode(&spec, &plain, whole.len - 1, &part), -ENOSPC);
        }
    }
}

static void any_range_decodes_where_that_is_promised(void **state)
{
    VjCodecSpec spec = spec_of(state);
    g_auto(Run) plain = make_run(MIXED, 10000);
    g_auto(Run) encoded = {0};
    VjRng r;

    if (!(spec.ops->flags & VJ_CODEC_RANDOM_ACCESS) ||
        (spec.ops->flags & VJ_CODEC_USES_CONTEXT)) {
        return; /* no such promise */
    }
    assert_true(spec.ops->flags & VJ_CODEC_SAME_LENGTH);
    assert_int_equal(encode(&spec, &plain, plain.len, &encoded), 0);
    vj_rng_init(&r, SEED);
    for (int n = 0; n < 500; n++) {
        size_t start = vj_rng_below(&r, plain.len);
        size_t len = vj_rng_below(&r, plain.len - start + 1);
        g_auto(Run) part = {0};

        assert_int_equal(decode(&spec, encoded.bytes + start, len, len, &part), 0);
        assert_true(len == 0 || memcmp(part.bytes, plain.bytes + start, len) == 0);
    }
}

static void a_wrong_length_is_ebadmsg(void **state)
{
    VjCodecSpec spec = spec_of(state);

    for (Kind kind = 0; kind < KINDS; kind++) {
        g_auto(Run) plain = make_run(kind, 3000);
        g_auto(Run) encoded = {0};
        const size_t wrong[] = {0, 1, 2999, 3001, 6000, 65536};
        size_t bound = vj_codec_bound(spec.ops, plain.len);

        assert_int_equal(encode(&spec, &plain, bound, &encoded), 0);
        for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
            g_auto(Run) out = {0};

            assert_int_equal(decode(&spec, encoded.bytes, encoded.len, wrong[i], &out),
                             -EBADMSG);
        }
        for (size_t len = 0; len < encoded.len; len += len < 40 ? 1 : 61) {
            g_auto(Run) out = {0};

            assert_int_equal(decode(&spec, encoded.bytes, len, plain.len, &out),
                             -EBADMSG);
        }
    }
}

/* Damage that may go unseen here (file has checksums) but never leaves its two runs. */
static void hostile_bytes_stay_in_their_runs(void **state)
{
    VjCodecSpec spec = spec_of(state);
    VjRng r;

    vj_rng_init(&r, SEED);
    for (int n = 0; n < 3000; n++) {
        g_auto(Run) plain =
            make_run((Kind)vj_rng_below(&r, KINDS), vj_rng_below(&r, 600));
        size_t bound = vj_codec_bound(spec.ops, plain.len);
        g_auto(Run) encoded = {0};
        g_auto(Run) out = {0};
        size_t dst_len = n % 4 == 0 ? vj_rng_below(&r, 2000) : plain.len;

        assert_int_equal(encode(&spec, &plain, bound, &encoded), 0);
        if (n % 3 == 0) {
            vj_rng_bytes(&r, encoded.bytes, encoded.len);
        }
        for (int flips = (int)vj_rng_below(&r, 8); flips > 0 && encoded.len > 0;
             flips--) {
            encoded.bytes[vj_rng_below(&r, encoded.len)] ^= 1u << vj_rng_below(&r, 8);
        }
        (void)!decode(&spec, encoded.bytes, encoded.len, dst_len, &out);
    }
}

/* What was encoded under contexts[@i] under each context; decoded by its own it is
 * @plain. */
static void expect_decoded(const VjCodecSpec *spec, size_t i, const Run *encoded,
                           const Run *plain)
{
    bool matters = (spec->ops->flags & VJ_CODEC_USES_CONTEXT) != 0;

    for (size_t k = 0; k < G_N_ELEMENTS(contexts); k++) {
        g_auto(Run) out = {0};
        int failed =
            decode_at(spec, &contexts[k], encoded->bytes, encoded->len, plain->len, &out);
        bool is_plain = failed == 0 && memcmp(out.bytes, plain->bytes, plain->len) == 0;

        assert_int_equal(is_plain, !matters || k == i);
    }
}

/* The encryptions rely on it, and so do those that look at nothing: they are encoded
 * before it is known where they will stand. */
static void the_context_matters_where_that_is_said(void **state)
{
    VjCodecSpec spec = spec_of(state);
    bool matters = (spec.ops->flags & VJ_CODEC_USES_CONTEXT) != 0;

    for (Kind kind = 0; kind < KINDS; kind++) {
        g_auto(Run) plain = make_run(kind, 4096);
        size_t bound = vj_codec_bound(spec.ops, plain.len);
        Run encoded[G_N_ELEMENTS(contexts)] = {{NULL, 0}};

        for (size_t i = 0; i < G_N_ELEMENTS(contexts); i++) {
            assert_int_equal(encode_at(&spec, &contexts[i], &plain, bound, &encoded[i]),
                             0);
            for (size_t k = 0; k < i; k++) {
                bool is_equal =
                    encoded[k].len == encoded[i].len &&
                    memcmp(encoded[k].bytes, encoded[i].bytes, encoded[i].len) == 0;

                assert_int_equal(is_equal, !matters);
            }
            expect_decoded(&spec, i, &encoded[i], &plain);
        }
        if (!matters) {
            g_auto(Run) nowhere = {0};

            assert_int_equal(encode_at(&spec, NULL, &plain, bound, &nowhere), 0);
            assert_int_equal(nowhere.len, encoded[0].len);
            assert_memory_equal(nowhere.bytes, encoded[0].bytes, nowhere.len);
        }
        for (size_t i = 0; i < G_N_ELEMENTS(contexts); i++) {
            run_clear(&encoded[i]);
        }
    }
}

static gpointer round_trips(gpointer spec)
{
    for (int n = 0; n < 20; n++) {
        expect_round_trip(spec, MIXED, 20000 + (size_t)n);
    }
    return NULL;
}

static void threads_do_not_meet(void **state)
{
    VjCodecSpec spec = spec_of(state);
    GThread *threads[4];

    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++) {
        threads[i] = g_thread_new("codec", round_trips, &spec);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++) {
        g_thread_join(threads[i]);
    }
}

static void the_text_comes_back(void **state)
{
    VjCodecSpec spec = spec_of(state), again;
    g_autofree char *text = vj_codec_format(&spec);

    assert_true(strlen(text) <= VJ_CODEC_TEXT_MAX);
    assert_true(vj_codec_parse(text, &again, NULL));
    assert_ptr_equal(again.ops, spec.ops);
    assert_int_equal(again.params.param, spec.params.param);
    assert_int_equal(again.params.level, spec.params.level);
}

/* ---- the table as a whole ---------------------------------------------------------- */

static void every_row_is_tried(void **state)
{
    (void)state;
    for (const VjCodecOps *const *row = vj_codec_table(); *row != NULL; row++) {
        bool is_tried = false;

        for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
            VjCodecSpec spec;

            assert_true(vj_codec_parse(texts[i], &spec, NULL));
            is_tried = is_tried || spec.ops == *row;
        }
        if (!is_tried) {
            fail_msg("codec %s: add a text to test-codec.c", (*row)->name);
        }
    }
}

static void names_and_ids_are_unique_and_sound(void **state)
{
    (void)state;
    for (const VjCodecOps *const *row = vj_codec_table(); *row != NULL; row++) {
        assert_ptr_equal(vj_codec_by_id((*row)->id), *row);
        assert_ptr_equal(vj_codec_by_name((*row)->name), *row);
        assert_int_equal(strspn((*row)->name, "abcdefghijklmnopqrstuvwxyz0123456789-"),
                         strlen((*row)->name));
        assert_true(((*row)->syntax == NULL) == ((*row)->parse == NULL));
        assert_true(((*row)->syntax == NULL) == ((*row)->format == NULL));
    }
}

static const struct {
    const char *name;
    CMUnitTestFunction run;
} contract[] = {
    {"what_goes_in_comes_out", what_goes_in_comes_out},
    {"the_bound_grows_with_the_length", the_bound_grows_with_the_length},
    {"too_little_room_is_enospc", too_little_room_is_enospc},
    {"any_range_decodes_where_that_is_promised",
     any_range_decodes_where_that_is_promised},
    {"a_wrong_length_is_ebadmsg", a_wrong_length_is_ebadmsg},
    {"hostile_bytes_stay_in_their_runs", hostile_bytes_stay_in_their_runs},
    {"the_context_matters_where_that_is_said", the_context_matters_where_that_is_said},
    {"threads_do_not_meet", threads_do_not_meet},
    {"the_text_comes_back", the_text_comes_back},
};

#define TEST_COUNT (G_N_ELEMENTS(texts) * G_N_ELEMENTS(contract) + 2)

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[TEST_COUNT] = {
        cmocka_unit_test(every_row_is_tried),
        cmocka_unit_test(names_and_ids_are_unique_and_sound),
    };
    size_t n = 2;

    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        for (size_t j = 0; j < G_N_ELEMENTS(contract); j++) {
            tests[n++] = (struct CMUnitTest){
                .name = g_strdup_printf("%s/%s", texts[i], contract[j].name),
                .test_func = contract[j].run,
                .initial_state = (void *)texts[i],
            };
        }
    }
    if (argc == 3 && strcmp(argv[1], "-p") == 0) {
        cmocka_set_test_filter(argv[2]);
    }
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    print_message("# seed %" G_GUINT64_FORMAT "\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
