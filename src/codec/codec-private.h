/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * codec-private.h - the codecs by name, and the parser over any table of them
 */
#ifndef VJ_CODEC_CODEC_PRIVATE_H
#define VJ_CODEC_CODEC_PRIVATE_H

#include "codec/codec.h"

extern const VjCodecOps vj_codec_none;
extern const VjCodecOps vj_codec_xor;
extern const VjCodecOps vj_codec_rle;
#ifdef HAVE_LZ4
extern const VjCodecOps vj_codec_lz4;
#endif
#ifdef HAVE_ZSTD
extern const VjCodecOps vj_codec_zstd;
#endif

/*
 * A level: a decimal number from @least to @most, 0 the default, into out->level.
 * False: EINVAL with one line.
 */
bool vj_codec_parse_level(const char *text, int least, int most, VjCodecParams *out,
                          GError **error);
/* The text of a level; NULL: 0.  Owned. */
char *vj_codec_format_level(const VjCodecParams *params);

/* vj_codec_parse over @table, and names that are known to be @absent from it; both end
 * with NULL: tests have tables of their own. */
bool vj_codec_parse_in(const VjCodecOps *const *table, const char *const *absent,
                       const char *text, VjCodecSpec *out, GError **error);

#endif
