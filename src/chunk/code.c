/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * code.c - which vector instructions there are
 */
#include "chunk/chunk-private.h"

VjChunkCode vj_chunk_code_best(void)
{
#ifdef VJ_CHUNK_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) {
        return VJ_CHUNK_CODE_AVX512;
    }
    if (__builtin_cpu_supports("avx2")) {
        return VJ_CHUNK_CODE_AVX2;
    }
#endif
    return VJ_CHUNK_CODE_PLAIN;
}

const char *vj_chunk_code_name(VjChunkCode code)
{
    static const char *const names[] = {
        [VJ_CHUNK_CODE_PLAIN] = "plain",
        [VJ_CHUNK_CODE_AVX2] = "AVX2",
        [VJ_CHUNK_CODE_AVX512] = "AVX-512",
    };

    g_assert(code < G_N_ELEMENTS(names));
    return names[code];
}

void vj_chunker_use(VjChunker *c, VjChunkCode code)
{
    g_assert(code <= vj_chunk_code_best());
    g_assert(c->fed_bytes == 0);
    c->code = code;
}
