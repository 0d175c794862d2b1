/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * xor.c - each byte changed by one byte, ff unless another is chosen: "xor", "xor:5a"
 *
 * It hides nothing and saves nothing; it is the cheapest transformation that changes
 * bytes, keeps their number and lets any range be read, and shows what the way through a
 * transformation costs.
 *
 * What the records keep as param is the chosen byte exclusive-or ff, so that 0 there is
 * the default as for every codec.  "xor:00" changes nothing and is allowed.
 */
#include "codec/codec-private.h"

#define VJ_XOR_DEFAULT 0xffu

static bool xor_parse(const char *text, VjCodecParams *out, GError **error)
{
    if (strlen(text) != 2 || !g_ascii_isxdigit(text[0]) || !g_ascii_isxdigit(text[1])) {
        return vj_error_set(error, EINVAL, "the byte is two hexadecimal digits");
    }
    out->param = (uint8_t)((unsigned)g_ascii_xdigit_value(text[0]) << 4 |
                           (unsigned)g_ascii_xdigit_value(text[1])) ^
                 VJ_XOR_DEFAULT;
    return true;
}

static char *xor_format(const VjCodecParams *params)
{
    return params->param == 0
               ? NULL
               : g_strdup_printf("%02x", (unsigned)params->param ^ VJ_XOR_DEFAULT);
}

static size_t xor_bound(size_t src_len)
{
    return src_len;
}

/* Both directions; eight bytes at a time, wherever they lie. */
static void xor_bytes(const VjCodecParams *params, const uint8_t *src, uint8_t *dst,
                      size_t len)
{
    uint8_t byte = params->param ^ VJ_XOR_DEFAULT;
    uint64_t bytes = byte * UINT64_C(0x0101010101010101), word;
    size_t i = 0;

    for (; i + sizeof word <= len; i += sizeof word) {
        memcpy(&word, src + i, sizeof word);
        word ^= bytes;
        memcpy(dst + i, &word, sizeof word);
    }
    for (; i < len; i++) {
        dst[i] = src[i] ^ byte;
    }
}

static int xor_encode(const VjCodecParams *params, const VjCodecContext *context,
                      const void *src, size_t src_len, void *dst, size_t cap,
                      size_t *dst_len)
{
    (void)context;
    if (src_len > cap) {
        return -ENOSPC;
    }
    xor_bytes(params, src, dst, src_len);
    *dst_len = src_len;
    return 0;
}

static int xor_decode(const VjCodecParams *params, const VjCodecContext *context,
                      const void *src, size_t src_len, void *dst, size_t dst_len)
{
    (void)context;
    if (src_len != dst_len) {
        return -EBADMSG;
    }
    xor_bytes(params, src, dst, dst_len);
    return 0;
}

const VjCodecOps vj_codec_xor = {
    .name = "xor",
    .syntax = "HH",
    .id = VJ_CODEC_ID_XOR,
    .flags = VJ_CODEC_SAME_LENGTH | VJ_CODEC_RANDOM_ACCESS,
    .parse = xor_parse,
    .format = xor_format,
    .bound = xor_bound,
    .encode = xor_encode,
    .decode = xor_decode,
};
