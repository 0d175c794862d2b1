/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * none.c - bytes as they are
 *
 * Callers see VJ_CODEC_IDENTITY and use the bytes where they are.  A caller of the
 * functions all the same gets a copy, so that code over any codec needs no special case
 * to be right.
 */
#include "codec/codec-private.h"

static size_t none_bound(size_t src_len)
{
    return src_len;
}

static int none_encode(const VjCodecParams *params, const VjCodecContext *context,
                       const void *src, size_t src_len, void *dst, size_t cap,
                       size_t *dst_len)
{
    (void)params, (void)context;
    if (src_len > cap) {
        return -ENOSPC;
    }
    if (src_len > 0) {
        memcpy(dst, src, src_len);
    }
    *dst_len = src_len;
    return 0;
}

static int none_decode(const VjCodecParams *params, const VjCodecContext *context,
                       const void *src, size_t src_len, void *dst, size_t dst_len)
{
    (void)params, (void)context;
    if (src_len != dst_len) {
        return -EBADMSG;
    }
    if (src_len > 0) {
        memcpy(dst, src, src_len);
    }
    return 0;
}

const VjCodecOps vj_codec_none = {
    .name = "none",
    .id = VJ_CODEC_ID_NONE,
    .flags = VJ_CODEC_SAME_LENGTH | VJ_CODEC_RANDOM_ACCESS | VJ_CODEC_IDENTITY,
    .bound = none_bound,
    .encode = none_encode,
    .decode = none_decode,
};
