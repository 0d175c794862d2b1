/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * drivers.c - the codecs of this build, one row each
 *
 * A codec that needs a library stands here between #ifdef HAVE_... and #endif; without
 * the library its name stands among those that are left out.
 */
#include "codec/codec-private.h"

static const VjCodecOps *const table[] = {
    &vj_codec_none, &vj_codec_xor, &vj_codec_rle,
#ifdef HAVE_LZ4
    &vj_codec_lz4,
#endif
#ifdef HAVE_ZSTD
    &vj_codec_zstd,
#endif
    NULL,
};

static const char *const absent[] = {
#ifndef HAVE_LZ4
    "lz4",
#endif
#ifndef HAVE_ZSTD
    "zstd",
#endif
    NULL,
};

const VjCodecOps *const *vj_codec_table(void)
{
    return table;
}

const char *const *vj_codec_absent(void)
{
    return absent;
}
