/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Every decoder on any bytes, and every codec's text.  The input: which row of the table,
 * the parameters (2 bytes), the length to decode to (2 bytes), then the encoded bytes.
 * What decodes is encoded again and decodes to the same; where ranges can be decoded,
 * they are what the whole has there.
 */
#include "fuzz.h"

#include "codec/codec.h"

#define GUARD 0xc3

/* The codecs of the build look at none of it. */
static const VjCodecContext context = {
    .domain = VJ_CODEC_DOMAIN_OBJECT, .number = 1, .block = 2};

static const VjCodecOps *row_of(uint8_t n)
{
    const VjCodecOps *const *table = vj_codec_table();
    size_t count = 0;

    while (table[count] != NULL) {
        count++;
    }
    return table[n % count];
}

static void try_encode(const VjCodecSpec *spec, const uint8_t *src, size_t len)
{
    size_t cap = vj_codec_bound(spec->ops, len), encoded_len;
    g_autofree uint8_t *encoded = g_malloc(cap + 1);
    g_autofree uint8_t *again = g_malloc(len + 1);
    int failed = vj_codec_encode(spec, &context, src, len, encoded, cap, &encoded_len);

    g_assert(!failed);
    failed = vj_codec_decode(spec, &context, encoded, encoded_len, again, len);
    g_assert(!failed && (len == 0 || memcmp(again, src, len) == 0));
}

/* From each of a few places to each of a few others. */
static void try_ranges(const VjCodecSpec *spec, const uint8_t *src, const uint8_t *plain,
                       size_t len)
{
    g_autofree uint8_t *part = g_malloc(len + 1);

    for (size_t from = 0; from < len; from += 1 + len / 5) {
        for (size_t to = from; to <= len; to += 1 + len / 5) {
            int failed =
                vj_codec_decode(spec, NULL, src + from, to - from, part, to - from);

            g_assert(!failed && memcmp(part, plain + from, to - from) == 0);
        }
    }
}

static void try_decode(const VjCodecSpec *spec, const uint8_t *src, size_t len,
                       size_t dst_len)
{
    g_autofree uint8_t *dst = g_malloc(dst_len + 1);
    int failed;

    dst[dst_len] = GUARD;
    failed = vj_codec_decode(spec, &context, src, len, dst, dst_len);
    g_assert(dst[dst_len] == GUARD);
    g_assert(!(spec->ops->flags & VJ_CODEC_SAME_LENGTH) ||
             (failed == 0) == (len == dst_len));
    if (failed == 0) {
        try_encode(spec, dst, dst_len);
        if (spec->ops->flags & VJ_CODEC_RANDOM_ACCESS) {
            try_ranges(spec, src, dst, dst_len);
        }
    }
}

static void try_text(const uint8_t *data, size_t len)
{
    g_autofree char *text = g_strndup((const char *)data, len);
    g_autoptr(GError) error = NULL;
    VjCodecSpec spec, again;

    if (vj_codec_parse(text, &spec, &error)) {
        g_autofree char *canonical = vj_codec_format(&spec);
        bool taken = vj_codec_parse(canonical, &again, NULL);

        g_assert(taken && again.ops == spec.ops);
        g_assert(again.params.param == spec.params.param);
        g_assert(again.params.level == spec.params.level);
    } else {
        g_assert(g_error_matches(error, VJ_ERROR, EINVAL));
        g_assert(strchr(error->message, '\n') == NULL);
    }
}

FUZZ_MUTATIONS(400);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    VjReader r = vj_reader(vj_slice(data, len));
    VjCodecSpec spec = {.ops = row_of(vj_read_u8(&r))};
    size_t dst_len;

    spec.params.param = vj_read_u8(&r);
    spec.params.level = (int8_t)vj_read_u8(&r);
    dst_len = vj_read_u16(&r);
    try_text(data, len);
    if (!r.bad) {
        try_decode(&spec, r.at, r.left, dst_len);
        try_encode(&spec, r.at, r.left);
    }
    return 0;
}
