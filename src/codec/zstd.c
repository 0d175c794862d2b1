/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * zstd.c - Zstandard frames by libzstd: "zstd", "zstd:19", "zstd:-3"
 *
 * One frame for each run, without its own checksum (the object's trailer has one) and
 * without a dictionary.  Levels as zstd(1) counts them:
 *
 *     -100..-1   faster and larger: as its --fast=N
 *     0          the default, level 3
 *     1..22      smaller and slower to encode; those above 19 hardly differ from it here
 *
 * The slow levels search bytes that cannot be made smaller as long as any.  So from level
 * VJ_ZSTD_PROBE_FROM on level 1 goes first, and where it saves nothing its result is
 * taken.
 *
 * The window is never longer than VJ_ZSTD_WINDOW_LOG says, which bounds what a thread
 * needs and keeps for encoding; decoding needs the same for every level.  Decoding takes
 * exactly one frame of today's format: frames of older versions, frames to be skipped and
 * what follows the first are refused before libzstd looks into them.
 */
#include "codec/codec-private.h"

#include <zstd.h>
#include <zstd_errors.h>

#define VJ_ZSTD_WINDOW_LOG 17
#define VJ_ZSTD_PROBE_FROM 10

enum { LEVEL_LEAST = -100, LEVEL_MOST = 22 };

static void encoder_free(gpointer context)
{
    ZSTD_freeCCtx(context);
}

static void decoder_free(gpointer context)
{
    ZSTD_freeDCtx(context);
}

/* The calling thread's contexts: NULL until it first needs one. */
static GPrivate encoder = G_PRIVATE_INIT(encoder_free);
static GPrivate decoder = G_PRIVATE_INIT(decoder_free);

static ZSTD_CCtx *encoder_of_thread(void)
{
    ZSTD_CCtx *context = g_private_get(&encoder);

    if (context == NULL) {
        context = ZSTD_createCCtx();
        g_private_set(&encoder, context);
    }
    return context;
}

static ZSTD_DCtx *decoder_of_thread(void)
{
    ZSTD_DCtx *context = g_private_get(&decoder);

    if (context == NULL) {
        context = ZSTD_createDCtx();
        g_private_set(&decoder, context);
    }
    return context;
}

static bool zstd_parse(const char *text, VjCodecParams *out, GError **error)
{
    return vj_codec_parse_level(text, LEVEL_LEAST, LEVEL_MOST, out, error);
}

static size_t zstd_bound(size_t src_len)
{
    return ZSTD_compressBound(src_len);
}

static void set(ZSTD_CCtx *context, ZSTD_cParameter what, int value)
{
    size_t rc = ZSTD_CCtx_setParameter(context, what, value);

    g_assert(!ZSTD_isError(rc));
}

static size_t encode_level(ZSTD_CCtx *context, int level, VjSlice src, void *dst,
                           size_t cap)
{
    /* The last call's frame may have been given up for want of room. */
    size_t rc = ZSTD_CCtx_reset(context, ZSTD_reset_session_only);

    g_assert(!ZSTD_isError(rc));
    set(context, ZSTD_c_compressionLevel, level);
    set(context, ZSTD_c_windowLog, VJ_ZSTD_WINDOW_LOG);
    return ZSTD_compress2(context, dst, cap, src.data, src.len);
}

/* Level 1 has said all that there is to say about these bytes. */
static bool is_decided(size_t got, size_t src_len, size_t cap)
{
    return ZSTD_isError(got) ? cap >= src_len : got >= src_len;
}

static int zstd_encode(const VjCodecParams *params, const VjCodecContext *context,
                       const void *src, size_t src_len, void *dst, size_t cap,
                       size_t *dst_len)
{
    ZSTD_CCtx *state = encoder_of_thread();
    bool probe = params->level >= VJ_ZSTD_PROBE_FROM;
    VjSlice bytes = vj_slice(src, src_len);
    size_t got;

    (void)context;
    if (state == NULL) {
        return -ENOMEM;
    }
    got = encode_level(state, probe ? 1 : params->level, bytes, dst, cap);
    if (probe && !is_decided(got, src_len, cap)) {
        got = encode_level(state, params->level, bytes, dst, cap);
    }
    if (ZSTD_sizeof_CCtx(state) > VJ_CODEC_KEPT_MAX) {
        g_private_replace(&encoder, NULL);
    }
    if (ZSTD_isError(got)) {
        return ZSTD_getErrorCode(got) == ZSTD_error_dstSize_tooSmall ? -ENOSPC : -ENOMEM;
    }
    *dst_len = got;
    return 0;
}

/* One frame that libzstd's decoder of today's format reads, and nothing else. */
static bool is_one_frame(const void *src, size_t src_len)
{
    return src_len >= 4 && vj_le32_get(src) == ZSTD_MAGICNUMBER &&
           ZSTD_findFrameCompressedSize(src, src_len) == src_len;
}

static int zstd_decode(const VjCodecParams *params, const VjCodecContext *context,
                       const void *src, size_t src_len, void *dst, size_t dst_len)
{
    ZSTD_DCtx *state;
    size_t got;

    (void)params, (void)context;
    if (!is_one_frame(src, src_len)) {
        return -EBADMSG;
    }
    state = decoder_of_thread();
    if (state == NULL) {
        return -ENOMEM;
    }
    got = ZSTD_decompressDCtx(state, dst, dst_len, src, src_len);
    if (ZSTD_isError(got)) {
        return ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation ? -ENOMEM
                                                                      : -EBADMSG;
    }
    return got == dst_len ? 0 : -EBADMSG;
}

const VjCodecOps vj_codec_zstd = {
    .name = "zstd",
    .syntax = "LEVEL",
    .id = VJ_CODEC_ID_ZSTD,
    .parse = zstd_parse,
    .format = vj_codec_format_level,
    .bound = zstd_bound,
    .encode = zstd_encode,
    .decode = zstd_decode,
};
