/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Parameters of the codecs of this build: which texts they take, that a level makes a
 * difference in the right direction, and that a slow one does not search in vain.
 */
#include "../../lib/test.h"

#include "codec/codec-private.h"

#define LEN 65536u

static void expect_refused(const char *text, const char *part)
{
    g_autoptr(GError) error = NULL;
    VjCodecSpec spec;

    assert_false(vj_codec_parse(text, &spec, &error));
    vj_test_expect_error(&error, EINVAL, part);
}

static void expect_taken(const char *text, const char *canonical)
{
    g_autofree char *again = NULL;
    g_autoptr(GError) error = NULL;
    VjCodecSpec spec;

    if (!vj_codec_parse(text, &spec, &error)) {
        fail_msg("%s: %s", text, error->message);
    }
    again = vj_codec_format(&spec);
    assert_string_equal(again, canonical);
}

static void xor_takes_a_byte(void **state)
{
    static const char *const wrong[] = {"xor:5",  "xor:5a5", "xor:zz", "xor:-1",
                                        "xor:0x", "xor: 5",  "xor:5 "};

    (void)state;
    expect_taken("xor", "xor");
    expect_taken("xor:ff", "xor");
    expect_taken("xor:FF", "xor");
    expect_taken("xor:5A", "xor:5a");
    expect_taken("xor:00", "xor:00");
    expect_taken("xor:01", "xor:01");
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        expect_refused(wrong[i],
                       "transformation xor: the byte is two hexadecimal digits");
    }
    expect_refused("xor:", "nothing follows the colon");
    expect_refused("rle:1", "transformation rle takes no parameters");
}

static void expect_levels(const char *name, int least, int most)
{
    static const char *const wrong[] = {"x",
                                        "1x",
                                        "-",
                                        "--1",
                                        "+1",
                                        " 1",
                                        "1 ",
                                        "1000",
                                        "-1000",
                                        "1.5",
                                        "99999999999999999999"};
    g_autofree char *range = g_strdup_printf(
        "transformation %s: the level is a number from %d to %d", name, least, most);

    for (int level = least; level <= most; level++) {
        g_autofree char *text = g_strdup_printf("%s:%d", name, level);

        expect_taken(text, level == 0 ? name : text);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        g_autofree char *text = g_strdup_printf("%s:%s", name, wrong[i]);

        expect_refused(text, range);
    }
    for (int over = 0; over < 2; over++) {
        g_autofree char *text =
            g_strdup_printf("%s:%d", name, over ? most + 1 : least - 1);

        expect_refused(text, range);
    }
}

static void levels_have_a_range(void **state)
{
    (void)state;
    if (vj_codec_by_name("lz4") != NULL) {
        expect_levels("lz4", -100, 12);
    } else {
        expect_refused("lz4:3",
                       "transformation lz4 is left out of this build, which has none");
    }
    if (vj_codec_by_name("zstd") != NULL) {
        expect_levels("zstd", -100, 22);
    } else {
        expect_refused("zstd",
                       "transformation zstd is left out of this build, which has none");
    }
}

static void the_list_names_all(void **state)
{
    g_autofree char *list = vj_codec_list();
    static const char *const names[] = {"none", "xor[:HH]", "rle", "lz4", "zstd"};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        assert_non_null(strstr(list, names[i]));
    }
    assert_int_equal(strstr(list, "not in this build") != NULL,
                     *vj_codec_absent() != NULL);
}

static size_t encoded_bytes(const char *text, const uint8_t *plain)
{
    g_autofree uint8_t *encoded = NULL, *again = g_malloc(LEN);
    VjCodecSpec spec;
    size_t cap, len;

    assert_true(vj_codec_parse(text, &spec, NULL));
    cap = vj_codec_bound(spec.ops, LEN);
    encoded = g_malloc(cap);
    assert_int_equal(vj_codec_encode(&spec, NULL, plain, LEN, encoded, cap, &len), 0);
    assert_int_equal(vj_codec_decode(&spec, NULL, encoded, len, again, LEN), 0);
    assert_memory_equal(again, plain, LEN);
    return len;
}

/* Words in a random order: something to find, and more for those who search longer. */
static uint8_t *prose(void)
{
    static const char *const words[] = {"object ", "block ", "the ",   "store ",
                                        "keeps ",  "cut ",   "where ", "content\n"};
    g_autoptr(GString) text = g_string_new(NULL);
    VjRng r;

    vj_rng_init(&r, 20261120);
    while (text->len < LEN) {
        g_string_append(text, words[vj_rng_below(&r, G_N_ELEMENTS(words))]);
        if (vj_rng_below(&r, 9) == 0) {
            g_string_append_printf(text, "%x ", (unsigned)vj_rng_below(&r, 5000));
        }
    }
    return (uint8_t *)g_string_free(g_steal_pointer(&text), FALSE);
}

static void higher_levels_save_more(void **state)
{
    g_autofree uint8_t *text = prose();

    (void)state;
    if (vj_codec_by_name("lz4") != NULL) {
        assert_true(encoded_bytes("lz4:9", text) < encoded_bytes("lz4", text));
        assert_true(encoded_bytes("lz4", text) < encoded_bytes("lz4:-50", text));
        assert_int_equal(encoded_bytes("lz4", text), encoded_bytes("lz4:1", text));
    }
    if (vj_codec_by_name("zstd") != NULL) {
        assert_true(encoded_bytes("zstd:19", text) < encoded_bytes("zstd", text));
        assert_true(encoded_bytes("zstd", text) < encoded_bytes("zstd:-50", text));
        assert_int_equal(encoded_bytes("zstd", text), encoded_bytes("zstd:3", text));
    }
}

/* What cannot be made smaller grows by little, and by the same at every level: the slow
 * ones do not search it. */
static void noise_grows_by_little(void **state)
{
    static const char *const texts[] = {"rle",     "lz4",     "lz4:12", "zstd",
                                        "zstd:10", "zstd:22", "zstd:-7"};
    g_autofree uint8_t *noise = g_malloc(LEN);
    VjRng r;

    (void)state;
    vj_rng_init(&r, 20261120);
    vj_rng_bytes(&r, noise, LEN);
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        VjCodecSpec spec;

        if (vj_codec_parse(texts[i], &spec, NULL)) {
            assert_true(encoded_bytes(texts[i], noise) <= LEN + LEN / 128);
        }
    }
    if (vj_codec_by_name("lz4") != NULL) {
        assert_int_equal(encoded_bytes("lz4:12", noise), encoded_bytes("lz4", noise));
    }
    if (vj_codec_by_name("zstd") != NULL) {
        assert_int_equal(encoded_bytes("zstd:22", noise), encoded_bytes("zstd:1", noise));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(xor_takes_a_byte),      cmocka_unit_test(levels_have_a_range),
    cmocka_unit_test(the_list_names_all),    cmocka_unit_test(higher_levels_save_more),
    cmocka_unit_test(noise_grows_by_little),
};

VJ_TEST_MAIN(tests)
