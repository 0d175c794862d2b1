/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rle's tokens, byte for byte, and what hostile ones may not do.  JULEA's run-length
 * encoder wrote behind its output when bytes alternated (its report, T-10): here the
 * growth is bounded for every content.
 */
#include "../../lib/test.h"

#include "codec/codec-private.h"

static const VjCodecSpec rle = {.ops = &vj_codec_rle};

/* @text is hexadecimal with blanks; owned. */
static GByteArray *bytes_of(const char *text)
{
    GByteArray *bytes = g_byte_array_new();

    for (const char *at = text; *at != '\0'; at++) {
        if (*at != ' ') {
            uint8_t byte =
                (uint8_t)(g_ascii_xdigit_value(at[0]) << 4 | g_ascii_xdigit_value(at[1]));

            g_byte_array_append(bytes, &byte, 1);
            at++;
        }
    }
    return bytes;
}

static void expect_decoded(const char *tokens, const void *plain, size_t len)
{
    g_autoptr(GByteArray) encoded = bytes_of(tokens);
    g_autofree uint8_t *got = g_malloc(len + 1);

    assert_int_equal(vj_codec_decode(&rle, NULL, encoded->data, encoded->len, got, len),
                     0);
    assert_memory_equal(got, plain, len);
}

static void expect_refused(const char *tokens, size_t len)
{
    g_autoptr(GByteArray) encoded = bytes_of(tokens);
    g_autofree uint8_t *got = g_malloc(len + 1);

    assert_int_equal(vj_codec_decode(&rle, NULL, encoded->data, encoded->len, got, len),
                     -EBADMSG);
}

static void expect_encoded(const void *plain, size_t len, const char *tokens)
{
    g_autoptr(GByteArray) want = bytes_of(tokens);
    size_t cap = vj_codec_bound(rle.ops, len), got_len;
    g_autofree uint8_t *got = g_malloc(cap + 1);

    assert_int_equal(vj_codec_encode(&rle, NULL, plain, len, got, cap, &got_len), 0);
    assert_int_equal(got_len, want->len);
    assert_memory_equal(got, want->data, want->len);
}

static void tokens_are_what_the_page_says(void **state)
{
    g_autofree uint8_t *a = g_malloc(16451);

    (void)state;
    memset(a, 'a', 16451);
    expect_encoded("", 0, "");
    expect_encoded("x", 1, "00 78");
    expect_encoded("xyxy", 4, "03 78797879");
    expect_encoded("aa", 2, "01 6161");
    expect_encoded(a, 3, "80 61");
    expect_encoded(a, 66, "bf 61");
    expect_encoded(a, 67, "c0 00 61");
    expect_encoded(a, 323, "c1 00 61");
    expect_encoded(a, 16450, "ff ff 61");
    expect_encoded(a, 16451, "ff ff 61 00 61");
    expect_encoded("xaaay", 5, "00 78 80 61 00 79");
    expect_encoded("aabbb", 5, "01 6161 80 62");
    expect_encoded("aaabb", 5, "80 61 01 6262");

    expect_decoded("bf 61", a, 66);
    expect_decoded("ff ff 61", a, 16450);
    expect_decoded("80 61 80 61 c0 00 61", a, 73); /* other encoders may part runs */
    expect_decoded("02 616161", a, 3);
    expect_decoded("", "", 0);
}

static void what_is_not_a_sequence_of_tokens_is_refused(void **state)
{
    (void)state;
    expect_refused("", 1);
    expect_refused("00", 1);      /* the byte is missing */
    expect_refused("7f 61", 128); /* 127 bytes are missing */
    expect_refused("80", 3);
    expect_refused("c0", 67);
    expect_refused("c0 00", 67);
    expect_refused("80 61", 2); /* more than was asked for */
    expect_refused("80 61", 4); /* less */
    expect_refused("ff ff 61", 16449);
    expect_refused("00 61 80 61", 3);
    expect_refused("80 61 00", 3); /* something is left */
    expect_refused("80 61 80", 3);
    expect_refused("00 61", 0);
}

/* n bytes become at most n + n / 128 rounded up, whatever they are. */
static void expect_bounded(const uint8_t *plain, size_t len)
{
    size_t most = len + (len + 127) / 128, got_len;
    g_autofree uint8_t *encoded = g_malloc(most + 1), *again = g_malloc(len + 1);

    assert_true(vj_codec_bound(rle.ops, len) <= most);
    assert_int_equal(vj_codec_encode(&rle, NULL, plain, len, encoded, most, &got_len), 0);
    assert_int_equal(vj_codec_decode(&rle, NULL, encoded, got_len, again, len), 0);
    assert_memory_equal(again, plain, len);
}

static void growth_is_bounded(void **state)
{
    g_autofree uint8_t *plain = g_malloc(65536);
    VjRng r;

    (void)state;
    for (size_t period = 2; period < 140; period++) { /* alternating, and worse */
        for (size_t i = 0; i < 65536; i++) {
            plain[i] = (uint8_t)(i % period);
        }
        expect_bounded(plain, 65536);
        expect_bounded(plain, 1000 + period);
    }
    /* Groups of every length between runs of every short length. */
    for (size_t group = 1; group < 260; group++) {
        for (size_t run = 1; run < 6; run++) {
            for (size_t i = 0; i < 5000; i++) {
                size_t at = i % (group + run);

                plain[i] = at < group ? (uint8_t)(at * 7 + i) : 0xee;
            }
            expect_bounded(plain, 5000);
        }
    }
    vj_rng_init(&r, 20261120);
    for (int n = 0; n < 2000; n++) { /* few values: runs of 1, 2, 3 in any order */
        size_t len = vj_rng_below(&r, 700);

        for (size_t i = 0; i < len; i++) {
            plain[i] = (uint8_t)vj_rng_below(&r, 2 + (uint64_t)n % 3);
        }
        expect_bounded(plain, len);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tokens_are_what_the_page_says),
    cmocka_unit_test(what_is_not_a_sequence_of_tokens_is_refused),
    cmocka_unit_test(growth_is_bounded),
};

VJ_TEST_MAIN(tests)
