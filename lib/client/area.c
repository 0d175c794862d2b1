/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * area.c - memory of the daemon's, where long replies to batches stand
 *
 * Over a unix socket, from the first long reply on.  The memory is mapped for reading
 * alone.  What stands there may change under the hands of who reads it, so it is copied
 * once and looked at then.
 *
 * Where there is no area, or no slot of it is free, replies come by the socket.
 */
#include "client-private.h"

#include <sys/mman.h>

#define SLOT_BYTES ((size_t)VARJFS_WIRE_AREA_SLOT_BYTES)
#define AREA_BYTES (VARJFS_WIRE_AREA_SLOTS * SLOT_BYTES)
/* A shorter reply is one call of the kernel for each side. */
#define LONG_BYTES ((size_t)32 << 10)

unsigned vjc_area_take(varjfs *v, size_t contents, size_t bytes)
{
    if (contents < LONG_BYTES || bytes > SLOT_BYTES) {
        return 0;
    }
    if (v->may_share) { /* asked for once: what is refused costs speed alone */
        v->may_share = false;
        v->area = vjc_shared_ask(v, VARJFS_WIRE_SHARE, AREA_BYTES, PROT_READ);
    }
    for (unsigned slot = 1; v->area != NULL && slot <= VARJFS_WIRE_AREA_SLOTS; slot++) {
        if ((v->slots_taken >> slot & 1) == 0) {
            v->slots_taken |= 1u << slot;
            return slot;
        }
    }
    return 0;
}

void vjc_area_give_back(varjfs *v, unsigned slot)
{
    v->slots_taken &= ~(1u << slot);
}

void vjc_area_copy(const varjfs *v, unsigned slot, const struct iovec *into, size_t count)
{
    const uint8_t *at = v->area + (slot - 1) * SLOT_BYTES;

    for (size_t i = 0; i < count; i++) {
        vjc_copy(into[i].iov_base, at, into[i].iov_len);
        at += into[i].iov_len;
    }
}

void vjc_area_free(varjfs *v)
{
    if (v->area != NULL) {
        munmap((void *)(uintptr_t)v->area, AREA_BYTES);
        v->area = NULL;
    }
}
