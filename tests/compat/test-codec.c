/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What each codec's encoded bytes mean, for ever: the files codec-NAME-v1.hex decode to
 * codec-plain-v1.hex.  The other direction is free: another version of a library may make
 * other bytes of the same content.
 */
#include "../lib/golden.h"

#include "codec/codec.h"

static const struct {
    const char *name;
    uint8_t id, param;
} codecs[] = {
    {"xor", 1, 0},    {"xor-5a", 1, 0xa5}, {"rle", 2, 0},     {"lz4", 3, 0},
    {"lz4-hc", 3, 0}, {"zstd", 4, 0},      {"zstd-19", 4, 0}, {"zstd-fast", 4, 0},
};

/* How the files were made; nothing compares these bytes. */
static void write_encoded(const char *name, const char *file, const GByteArray *plain)
{
    static const struct {
        const char *name, *text;
    } texts[] = {{"xor-5a", "xor:5a"},
                 {"lz4-hc", "lz4:12"},
                 {"zstd-19", "zstd:19"},
                 {"zstd-fast", "zstd:-5"}};
    const char *text = name, *dir = g_getenv("VARJFS_WRITE_GOLDEN");
    g_autofree uint8_t *encoded = g_malloc(2 * plain->len + 1024);
    VjCodecSpec spec;
    size_t len;

    if (dir == NULL) {
        return;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        text = strcmp(texts[i].name, name) == 0 ? texts[i].text : text;
    }
    assert_true(vj_codec_parse(text, &spec, NULL));
    assert_int_equal(vj_codec_encode(&spec, NULL, plain->data, plain->len, encoded,
                                     2 * plain->len + 1024, &len),
                     0);
    golden_write(dir, file, vj_slice(encoded, len));
}

static void encoded_bytes_keep_their_meaning(void **state)
{
    g_autoptr(GByteArray) plain = golden_load("codec-plain-v1.hex");
    g_autofree uint8_t *decoded = g_malloc(plain->len);

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(codecs); i++) {
        g_autofree char *file = g_strdup_printf("codec-%s-v1.hex", codecs[i].name);
        VjCodecSpec spec = {.ops = vj_codec_by_id(codecs[i].id),
                            .params = {.param = codecs[i].param}};
        g_autoptr(GByteArray) encoded = NULL;

        if (spec.ops == NULL) {
            print_message("# %s is not in this build\n", codecs[i].name);
            continue;
        }
        write_encoded(codecs[i].name, file, plain);
        encoded = golden_load(file);
        memset(decoded, 0, plain->len);
        assert_int_equal(vj_codec_decode(&spec, NULL, encoded->data, encoded->len,
                                         decoded, plain->len),
                         0);
        assert_memory_equal(decoded, plain->data, plain->len);
        assert_int_equal(vj_codec_decode(&spec, NULL, encoded->data, encoded->len - 1,
                                         decoded, plain->len),
                         -EBADMSG);
    }
}

/* The names that volumes and programs use for them. */
static void texts_keep_their_meaning(void **state)
{
    static const struct {
        const char *text;
        uint8_t id, param;
        int level;
    } rows[] = {
        {"none", 0, 0, 0},      {"xor", 1, 0, 0},       {"xor:ff", 1, 0, 0},
        {"xor:5A", 1, 0xa5, 0}, {"xor:00", 1, 0xff, 0}, {"rle", 2, 0, 0},
        {"lz4", 3, 0, 0},       {"lz4:9", 3, 0, 9},     {"lz4:-100", 3, 0, -100},
        {"zstd", 4, 0, 0},      {"zstd:22", 4, 0, 22},  {"zstd:-5", 4, 0, -5},
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        VjCodecSpec spec;

        if (vj_codec_by_id(rows[i].id) == NULL) {
            continue;
        }
        assert_true(vj_codec_parse(rows[i].text, &spec, NULL));
        assert_int_equal(spec.ops->id, rows[i].id);
        assert_int_equal(spec.params.param, rows[i].param);
        assert_int_equal(spec.params.level, rows[i].level);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(encoded_bytes_keep_their_meaning),
    cmocka_unit_test(texts_keep_their_meaning),
};

VJ_TEST_MAIN(tests)
