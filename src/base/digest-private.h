/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * digest-private.h - XXH3 made for AVX2, beside the one for every CPU of this kind
 *
 * Both give the same sums, and go on with each other's states (VjChecksum).
 */
#ifndef VJ_BASE_DIGEST_PRIVATE_H
#define VJ_BASE_DIGEST_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

/* GCC alone makes one file for other instructions than the rest. */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__
#define VJ_CHECKSUM_AVX2 1

uint64_t vj_checksum64_avx2(const void *src, size_t len);
/* @state: an XXH3_state_t. */
void vj_checksum_add_avx2(void *state, const void *src, size_t len);
#endif

uint64_t vj_checksum64_plain(const void *src, size_t len);
void vj_checksum_add_plain(void *state, const void *src, size_t len);

#endif
