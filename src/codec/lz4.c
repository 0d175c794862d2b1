/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lz4.c - LZ4 blocks by liblz4: "lz4", "lz4:9", "lz4:-5"
 *
 * One raw block for each run: no frame, no checksum, no length, all of which the object's
 * trailer has.  Levels as lz4(1) counts them:
 *
 *     -100..-1   faster and larger: as its --fast=N
 *     0, 1, 2    LZ4 as it is; 0 is the default
 *     3..12      LZ4-HC: smaller, slower to encode, decoded as fast
 *
 * LZ4-HC searches bytes that cannot be made smaller for a hundred times as long as LZ4
 * does.  So LZ4 goes first, and where it saves nothing its result is taken.
 *
 * Decoding needs no level and no memory.  Encoding needs 16 KiB, and 256 KiB more from
 * level 3 on, which each thread keeps.
 */
#include "codec/codec-private.h"

#include <lz4.h>
#include <lz4hc.h>

enum { LEVEL_LEAST = -100, LEVEL_HC = 3, LEVEL_MOST = LZ4HC_CLEVEL_MAX };

G_STATIC_ASSERT(VJ_CODEC_RUN_MAX <= LZ4_MAX_INPUT_SIZE);

/* The calling thread's working memory: NULL until it first encodes. */
static GPrivate fast_state = G_PRIVATE_INIT(g_free);
static GPrivate high_state = G_PRIVATE_INIT(g_free);

static void *state_of(GPrivate *kept, size_t bytes)
{
    void *state = g_private_get(kept);

    g_assert(bytes <= VJ_CODEC_KEPT_MAX);
    if (state == NULL) {
        state = g_try_malloc(bytes);
        g_private_set(kept, state);
    }
    return state;
}

static bool lz4_parse(const char *text, VjCodecParams *out, GError **error)
{
    return vj_codec_parse_level(text, LEVEL_LEAST, LEVEL_MOST, out, error);
}

static size_t lz4_bound(size_t src_len)
{
    return (size_t)LZ4_compressBound((int)src_len);
}

/* 0: does not fit. */
static int encode_fast(int level, const void *src, int src_len, void *dst, int room)
{
    void *state = state_of(&fast_state, (size_t)LZ4_sizeofState());

    return state == NULL ? -ENOMEM
                         : LZ4_compress_fast_extState(state, src, dst, src_len, room,
                                                      level < 0 ? 1 - level : 1);
}

static int encode_high(int level, const void *src, int src_len, void *dst, int room)
{
    int got = encode_fast(0, src, src_len, dst, room);
    void *state;

    if (got < 0 || got >= src_len || (got == 0 && room >= src_len)) {
        return got;
    }
    state = state_of(&high_state, (size_t)LZ4_sizeofStateHC());
    return state == NULL
               ? -ENOMEM
               : LZ4_compress_HC_extStateHC(state, src, dst, src_len, room, level);
}

static int lz4_encode(const VjCodecParams *params, const VjCodecContext *context,
                      const void *src, size_t src_len, void *dst, size_t cap,
                      size_t *dst_len)
{
    int room = (int)MIN(cap, lz4_bound(src_len));
    int got;

    (void)context;
    if (room == 0) {
        return -ENOSPC; /* even no bytes at all are one */
    }
    got = params->level >= LEVEL_HC
              ? encode_high(params->level, src, (int)src_len, dst, room)
              : encode_fast(params->level, src, (int)src_len, dst, room);
    if (got <= 0) {
        return got < 0 ? got : -ENOSPC;
    }
    *dst_len = (size_t)got;
    return 0;
}

static int lz4_decode(const VjCodecParams *params, const VjCodecContext *context,
                      const void *src, size_t src_len, void *dst, size_t dst_len)
{
    int got;

    (void)params, (void)context;
    if (src_len == 0 || src_len > lz4_bound(VJ_CODEC_RUN_MAX)) {
        return -EBADMSG;
    }
    got = LZ4_decompress_safe(src, dst, (int)src_len, (int)dst_len);
    return got >= 0 && (size_t)got == dst_len ? 0 : -EBADMSG;
}

const VjCodecOps vj_codec_lz4 = {
    .name = "lz4",
    .syntax = "LEVEL",
    .id = VJ_CODEC_ID_LZ4,
    .parse = lz4_parse,
    .format = vj_codec_format_level,
    .bound = lz4_bound,
    .encode = lz4_encode,
    .decode = lz4_decode,
};
