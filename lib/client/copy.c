/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * copy.c - long copies that processors do not slow down
 *
 * Memory of the daemon's begins with a page, and what malloc(3) returns for a long buffer
 * 16 bytes behind one.  Where the destination lies 1 to 31 bytes behind the source, each
 * seen within its page, the instruction by which libc copies 4 KiB and more (rep movsb)
 * takes ten times as long on processors of AMD that have it fast else (Zen 3 and later).
 * Shorter pieces go by vectors there, as quickly as ever.
 */
#include "client-private.h"

#define PAGE_BYTES 4096u
#define SLOW_BEHIND 31u
/* libc takes the instruction from twice as much on where vectors have 32 bytes, and from
 * more where they are longer. */
#define PIECE_BYTES ((size_t)2048)
/* And no more from the size of a second-level cache on: it knows a better way then. */
#define LONGEST_BYTES ((size_t)1 << 20)

void vjc_copy(uint8_t *dst, const uint8_t *src, size_t len)
{
    uintptr_t behind = ((uintptr_t)dst - (uintptr_t)src) % PAGE_BYTES;

    if (behind > 0 && behind <= SLOW_BEHIND && len < LONGEST_BYTES) {
        while (len > PIECE_BYTES) {
            memcpy(dst, src, PIECE_BYTES);
            dst += PIECE_BYTES;
            src += PIECE_BYTES;
            len -= PIECE_BYTES;
        }
    }
    memcpy(dst, src, len);
}
