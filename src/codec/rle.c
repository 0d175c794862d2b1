/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rle.c - runs of equal bytes as a count and the byte
 *
 * The encoded bytes are tokens one after another.  c is a token's first byte:
 *
 *     00..7f   c + 1 bytes follow as they are                            1 to 128 bytes
 *     80..bf   the next byte, (c - 80) + 3 times                         3 to 66
 *     c0..ff   the byte after the next, (c - c0) * 256 + next + 67 times 67 to 16450
 *
 * A decoder takes any sequence of tokens that gives exactly the bytes asked for and ends
 * where the input does.  That is frozen (tests/compat/codec-rle-v1.hex).
 *
 * Growth is bounded: the encoder makes a run only of 3 equal bytes or more, so a run
 * saves at least the byte that the next group of unequal ones costs, and only the first
 * of each 128 unequal bytes costs one: n bytes become at most n + (n + 127) / 128.  Bytes
 * that alternate are one group of unequal ones after another.
 */
#include "codec/codec-private.h"

enum {
    PLAIN_MAX = 128,         /* bytes of one group */
    SHORT_TOKEN = 0x80,      /* c of the first short run */
    LONG_TOKEN = 0xc0,       /* c of the first long run */
    RUN_LEAST = 3,           /* bytes of the first short run */
    LONG_LEAST = 3 + 64,     /* bytes of the first long run */
    LONG_MOST = 67 + 0x3fff, /* bytes of the last */
};

static size_t rle_bound(size_t src_len)
{
    return src_len + (src_len + PLAIN_MAX - 1) / PLAIN_MAX;
}

/* How many of @len bytes from @src on are equal, at most one token's. */
static size_t run_length(const uint8_t *src, size_t len)
{
    size_t most = MIN(len, (size_t)LONG_MOST), n = 1;

    while (n < most && src[n] == src[0]) {
        n++;
    }
    return n;
}

/* How many bytes from @src on belong to no run. */
static size_t plain_length(const uint8_t *src, size_t len)
{
    size_t n = 0;

    while (n + RUN_LEAST <= len && !(src[n] == src[n + 1] && src[n] == src[n + 2])) {
        n++;
    }
    return n + RUN_LEAST <= len ? n : len;
}

static bool put_plain(VjWriter *w, const uint8_t *src, size_t len)
{
    while (len > 0 && !w->bad) {
        size_t part = MIN(len, (size_t)PLAIN_MAX);

        vj_write_u8(w, (uint8_t)(part - 1));
        vj_write_bytes(w, src, part);
        src += part;
        len -= part;
    }
    return !w->bad;
}

static bool put_run(VjWriter *w, uint8_t byte, size_t len)
{
    g_assert(len >= RUN_LEAST && len <= LONG_MOST);
    if (len < LONG_LEAST) {
        vj_write_u8(w, (uint8_t)(SHORT_TOKEN + (len - RUN_LEAST)));
    } else {
        vj_write_u8(w, (uint8_t)(LONG_TOKEN + ((len - LONG_LEAST) >> 8)));
        vj_write_u8(w, (uint8_t)(len - LONG_LEAST));
    }
    vj_write_u8(w, byte);
    return !w->bad;
}

static int rle_encode(const VjCodecParams *params, const VjCodecContext *context,
                      const void *src, size_t src_len, void *dst, size_t cap,
                      size_t *dst_len)
{
    VjWriter w = vj_writer(dst, cap);
    const uint8_t *at = src;

    (void)params, (void)context;
    while (src_len > 0) {
        size_t plain = plain_length(at, src_len);

        if (!put_plain(&w, at, plain)) {
            return -ENOSPC;
        }
        at += plain;
        src_len -= plain;
        if (src_len > 0) {
            size_t run = run_length(at, src_len);

            if (!put_run(&w, *at, run)) {
                return -ENOSPC;
            }
            at += run;
            src_len -= run;
        }
    }
    *dst_len = w.used;
    return 0;
}

/* The bytes that a run's token @c stands for; reads the rest of its count. */
static size_t run_of(VjReader *r, uint8_t c)
{
    if (c < LONG_TOKEN) {
        return (size_t)(c - SHORT_TOKEN) + RUN_LEAST;
    }
    return ((size_t)(c - LONG_TOKEN) << 8 | vj_read_u8(r)) + LONG_LEAST;
}

static int rle_decode(const VjCodecParams *params, const VjCodecContext *context,
                      const void *src, size_t src_len, void *dst, size_t dst_len)
{
    VjReader r = vj_reader(vj_slice(src, src_len));
    uint8_t *at = dst;

    (void)params, (void)context;
    while (r.left > 0) {
        uint8_t c = vj_read_u8(&r);

        if (c < SHORT_TOKEN) {
            VjSlice plain = vj_read_bytes(&r, (size_t)c + 1);

            if (r.bad || plain.len > dst_len) {
                return -EBADMSG;
            }
            memcpy(at, plain.data, plain.len);
            at += plain.len;
            dst_len -= plain.len;
        } else {
            size_t run = run_of(&r, c);
            uint8_t byte = vj_read_u8(&r);

            if (r.bad || run > dst_len) {
                return -EBADMSG;
            }
            memset(at, byte, run);
            at += run;
            dst_len -= run;
        }
    }
    return dst_len == 0 ? 0 : -EBADMSG;
}

const VjCodecOps vj_codec_rle = {
    .name = "rle",
    .id = VJ_CODEC_ID_RLE,
    .bound = rle_bound,
    .encode = rle_encode,
    .decode = rle_decode,
};
