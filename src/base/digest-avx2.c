/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * digest-avx2.c - XXH3 for AVX2
 *
 * xxhash.h decides by what the compiler may use, so this file has other instructions than
 * the rest.  It includes nothing else that has code.
 */
#include "base/digest-private.h"

#ifdef VJ_CHECKSUM_AVX2
#pragma GCC target("avx2")

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t vj_checksum64_avx2(const void *src, size_t len)
{
    return XXH3_64bits(src, len);
}

void vj_checksum_add_avx2(void *state, const void *src, size_t len)
{
    (void)XXH3_64bits_update(state, src, len); /* fails for NULL alone */
}
#endif
