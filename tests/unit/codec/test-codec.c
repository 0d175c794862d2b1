/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Lookup, texts, and the wrappers' assertions.  A table of its own with a codec that
 * takes a parameter ("add": each byte plus a number, the length in front), and with
 * faults that the wrappers must not let pass.
 */
#include "../../lib/test.h"

#include "codec/codec-private.h"

static enum { SOUND, WRONG_ERROR, OVER_CAP } fault;

static bool add_parse(const char *text, VjCodecParams *out, GError **error)
{
    if (strlen(text) != 1 || !g_ascii_isdigit(*text)) {
        return vj_error_set(error, EINVAL, "one digit is wanted");
    }
    out->param = (uint8_t)(*text - '0');
    return true;
}

static char *add_format(const VjCodecParams *params)
{
    return params->param != 0 ? g_strdup_printf("%d", params->param) : NULL;
}

static size_t add_bound(size_t src_len)
{
    return src_len + 1;
}

static int add_encode(const VjCodecParams *params, const VjCodecContext *context,
                      const void *src, size_t src_len, void *dst, size_t cap,
                      size_t *dst_len)
{
    uint8_t *at = dst;

    (void)context;
    *dst_len = src_len + 1;
    if (fault == OVER_CAP) {
        return 0;
    }
    if (*dst_len > cap || fault == WRONG_ERROR) {
        return fault == WRONG_ERROR ? -EIO : -ENOSPC;
    }
    *at++ = (uint8_t)src_len;
    for (size_t i = 0; i < src_len; i++) {
        *at++ = (uint8_t)(((const uint8_t *)src)[i] + params->param);
    }
    return 0;
}

static int add_decode(const VjCodecParams *params, const VjCodecContext *context,
                      const void *src, size_t src_len, void *dst, size_t dst_len)
{
    const uint8_t *at = src;

    (void)context;
    if (fault == WRONG_ERROR) {
        return -EINVAL;
    }
    if (src_len != dst_len + 1 || *at++ != (uint8_t)dst_len) {
        return -EBADMSG;
    }
    for (size_t i = 0; i < dst_len; i++) {
        ((uint8_t *)dst)[i] = (uint8_t)(*at++ - params->param);
    }
    return 0;
}

static const VjCodecOps add = {
    .name = "add",
    .syntax = "DIGIT",
    .id = 200,
    .parse = add_parse,
    .format = add_format,
    .bound = add_bound,
    .encode = add_encode,
    .decode = add_decode,
};

static const VjCodecOps *const table[] = {&vj_codec_none, &add, NULL};
static const char *const absent[] = {"later", NULL};

static void expect_refused(const VjCodecOps *const *in, const char *text,
                           const char *part)
{
    g_autoptr(GError) error = NULL;
    VjCodecSpec spec;

    assert_false(vj_codec_parse_in(in, absent, text, &spec, &error));
    vj_test_expect_error(&error, EINVAL, part);
}

static void none_is_id_zero(void **state)
{
    (void)state;
    assert_ptr_equal(vj_codec_by_id(0), &vj_codec_none);
    assert_ptr_equal(vj_codec_by_name("none"), &vj_codec_none);
    assert_int_equal(vj_codec_none.id, VJ_CODEC_ID_NONE);
    assert_true(vj_codec_none.flags & VJ_CODEC_IDENTITY);
    assert_null(vj_codec_by_id(255));
    assert_null(vj_codec_by_name("nonesuch"));
    assert_null(vj_codec_by_name(""));
}

static void texts_have_a_meaning(void **state)
{
    g_autoptr(GError) error = NULL;
    VjCodecSpec spec;

    (void)state;
    assert_true(vj_codec_parse("none", &spec, &error));
    assert_ptr_equal(spec.ops, &vj_codec_none);
    assert_true(vj_codec_parse_in(table, absent, "add", &spec, &error));
    assert_ptr_equal(spec.ops, &add);
    assert_int_equal(spec.params.param, 0);
    assert_true(vj_codec_parse_in(table, absent, "add:7", &spec, &error));
    assert_int_equal(spec.params.param, 7);
    assert_int_equal(spec.params.level, 0);
}

static void texts_come_back(void **state)
{
    static const struct {
        const char *text, *canonical;
    } rows[] = {{"none", "none"}, {"add", "add"}, {"add:0", "add"}, {"add:9", "add:9"}};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *text = NULL;
        VjCodecSpec spec;

        assert_true(vj_codec_parse_in(table, absent, rows[i].text, &spec, NULL));
        text = vj_codec_format(&spec);
        assert_string_equal(text, rows[i].canonical);
    }
}

static void unknown_texts_are_one_clear_line(void **state)
{
    g_autofree char *longest = g_strnfill(VJ_CODEC_TEXT_MAX, 'n');
    g_autofree char *too_long = g_strnfill(VJ_CODEC_TEXT_MAX + 1, 'n');
    g_autoptr(GError) error = NULL;
    VjCodecSpec spec;

    (void)state;
    assert_false(vj_codec_parse("rot13:5", &spec, &error));
    vj_test_expect_error(&error, EINVAL,
                         "unknown transformation \"rot13\": this build has none");
    expect_refused(table, "zip", "this build has none, add[:DIGIT]");
    expect_refused(table, "later:5",
                   "transformation later is left out of this build, which has none, add");
    expect_refused(table, "", "unknown transformation \"\"");
    expect_refused(table, "None", "unknown transformation \"None\"");
    expect_refused(table, "none ", "unknown transformation \"none \"");
    expect_refused(table, "x\ny\"z\xff", "\"x\\ny\\\"z\\377\"");
    expect_refused(table, "none:", "transformation none takes no parameters");
    expect_refused(table, "none:1", "transformation none takes no parameters");
    expect_refused(table, "add:", "transformation add: nothing follows the colon");
    expect_refused(table, "add:x", "transformation add: one digit is wanted");
    expect_refused(table, "add:1:2", "transformation add: one digit is wanted");
    expect_refused(table, longest, "unknown transformation \"nnn");
    expect_refused(table, too_long, "longer than 64 bytes");
}

static void parameters_reach_the_codec(void **state)
{
    VjCodecSpec spec = {.ops = &add, .params = {.param = 3}};
    uint8_t encoded[8];
    char plain[3];
    size_t len;

    (void)state;
    fault = SOUND;
    assert_int_equal(vj_codec_bound(&add, 3), 4);
    assert_int_equal(vj_codec_encode(&spec, NULL, "abc", 3, encoded, 3, &len), -ENOSPC);
    assert_int_equal(
        vj_codec_encode(&spec, NULL, "abc", 3, encoded, sizeof encoded, &len), 0);
    assert_int_equal(len, 4);
    assert_memory_equal(encoded, "\3def", 4);
    assert_int_equal(vj_codec_decode(&spec, NULL, encoded, 4, plain, 3), 0);
    assert_memory_equal(plain, "abc", 3);
    assert_int_equal(vj_codec_decode(&spec, NULL, encoded, 3, plain, 3), -EBADMSG);
}

static const VjCodecSpec sound = {.ops = &add};
static const VjCodecOps bound_to_its_place = {
    .name = "place",
    .id = 201,
    .flags = VJ_CODEC_USES_CONTEXT,
    .bound = add_bound,
    .encode = add_encode,
    .decode = add_decode,
};
static const VjCodecSpec placed = {.ops = &bound_to_its_place};
static char room[64];

static void encode_overlap(void)
{
    size_t len;

    (void)!vj_codec_encode(&sound, NULL, room, 10, room + 9, 20, &len);
}

static void decode_overlap(void)
{
    (void)!vj_codec_decode(&sound, NULL, room + 5, 10, room, 6);
}

static void encode_too_long(void)
{
    size_t len;

    (void)!vj_codec_encode(&sound, NULL, room, VJ_CODEC_RUN_MAX + 1, room, 0, &len);
}

static void encode_over_cap(void)
{
    size_t len;

    fault = OVER_CAP;
    (void)!vj_codec_encode(&sound, NULL, room, 10, room + 20, 5, &len);
}

static void encode_wrong_error(void)
{
    size_t len;

    fault = WRONG_ERROR;
    (void)!vj_codec_encode(&sound, NULL, room, 10, room + 20, 20, &len);
}

static void decode_wrong_error(void)
{
    fault = WRONG_ERROR;
    (void)!vj_codec_decode(&sound, NULL, room, 10, room + 20, 9);
}

static void encode_nowhere(void)
{
    size_t len;

    (void)!vj_codec_encode(&placed, NULL, room, 10, room + 20, 20, &len);
}

static void decode_nowhere(void)
{
    (void)!vj_codec_decode(&placed, NULL, room, 11, room + 20, 10);
}

static void decode_without_number(void)
{
    const VjCodecContext context = {.domain = VJ_CODEC_DOMAIN_INLINE};

    (void)!vj_codec_decode(&sound, &context, room, 11, room + 20, 10);
}

static void decode_with_a_key_of_no_number(void)
{
    const VjCodecContext context = {
        .domain = VJ_CODEC_DOMAIN_INLINE, .number = 1, .key = {.data = "key", .len = 3}};

    (void)!vj_codec_decode(&sound, &context, room, 11, room + 20, 10);
}

static void wrappers_hold_both_sides_to_the_contract(void **state)
{
    (void)state;
    fault = SOUND;
    vj_test_expect_abort(encode_overlap, "runs_are_apart", "codec.c");
    vj_test_expect_abort(decode_overlap, "runs_are_apart", "codec.c");
    vj_test_expect_abort(encode_too_long, "VJ_CODEC_RUN_MAX", "codec.c");
    vj_test_expect_abort(encode_over_cap, "*dst_len <= cap", "codec.c");
    vj_test_expect_abort(encode_wrong_error, "failed == -ENOSPC", "codec.c");
    vj_test_expect_abort(decode_wrong_error, "failed == -EBADMSG", "codec.c");
    fault = SOUND;
    vj_test_expect_abort(encode_nowhere, "context_is_sound", "codec.c");
    vj_test_expect_abort(decode_nowhere, "context_is_sound", "codec.c");
    vj_test_expect_abort(decode_without_number, "context_is_sound", "codec.c");
    vj_test_expect_abort(decode_with_a_key_of_no_number, "context_is_sound", "codec.c");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(none_is_id_zero),
    cmocka_unit_test(texts_have_a_meaning),
    cmocka_unit_test(texts_come_back),
    cmocka_unit_test(unknown_texts_are_one_clear_line),
    cmocka_unit_test(parameters_reach_the_codec),
    cmocka_unit_test(wrappers_hold_both_sides_to_the_contract),
};

VJ_TEST_MAIN(tests)
