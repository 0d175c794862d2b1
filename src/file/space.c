/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * space.c - what was accepted finds space in the store
 *
 * write(2) reserves the worst case that write-back may put for it; write-back measures
 * the store again before it gives the reserve back, so the sum never promises a byte
 * twice.
 */
#include "file/file-private.h"

/*
 * The bytes that may be promised.  A promise of some bytes covers a number of objects, as
 * each is counted with its overhead: where the store can hold few more objects, fewer
 * bytes are promised.
 */
static int measure(VjObjects *o, uint64_t *available_bytes)
{
    VjStoreSpace now;
    int r = vj_objects_space(o, &now);
    uint64_t objects, by_objects;

    if (r < 0) {
        return r;
    }
    objects = now.available_objects - MIN(now.available_objects, VJ_SPACE_OBJECTS_MARGIN);
    *available_bytes = now.available_bytes;
    if (vj_mul_u64(objects, VJ_SPACE_OBJECT_OVERHEAD, &by_objects) &&
        vj_add_u64(by_objects, VJ_SPACE_MARGIN, &by_objects)) {
        *available_bytes = MIN(*available_bytes, by_objects);
    }
    return 0;
}

int vj_space_init(VjSpaceKeeper *k, VjObjects *objects)
{
    *k = (VjSpaceKeeper){.objects = objects};
    vj_mutex_init(&k->lock, VJ_RANK_FILE_BUDGET, "file.space");
    return measure(objects, &k->available_bytes);
}

void vj_space_clear(VjSpaceKeeper *k)
{
    g_assert(k->reserved_bytes == 0);
    vj_mutex_clear(&k->lock);
}

int vj_space_try(VjSpaceKeeper *k, uint64_t bytes)
{
    uint64_t want;
    int r = 0;

    vj_mutex_lock(&k->lock);
    if (!vj_add_u64(k->reserved_bytes + VJ_SPACE_MARGIN, bytes, &want) ||
        want > k->available_bytes) {
        r = -ENOSPC;
    } else {
        k->reserved_bytes += bytes;
    }
    vj_mutex_unlock(&k->lock);
    return r;
}

void vj_space_release_measured(VjSpaceKeeper *k, uint64_t bytes)
{
    uint64_t available_bytes = 0;
    int r = measure(k->objects, &available_bytes);

    if (r < 0) {
        vj_log_warn("store: cannot tell its free space: %s", g_strerror(-r));
    }
    vj_mutex_lock(&k->lock);
    if (r == 0) {
        k->available_bytes = available_bytes;
    }
    g_assert(k->reserved_bytes >= bytes);
    k->reserved_bytes -= bytes;
    vj_mutex_unlock(&k->lock);
}

void vj_space_release(VjSpaceKeeper *k, uint64_t bytes)
{
    vj_mutex_lock(&k->lock);
    g_assert(k->reserved_bytes >= bytes);
    k->reserved_bytes -= bytes;
    vj_mutex_unlock(&k->lock);
}

uint64_t vj_space_available(VjSpaceKeeper *k)
{
    uint64_t bytes;

    vj_mutex_lock(&k->lock);
    bytes = k->available_bytes - MIN(k->available_bytes, k->reserved_bytes);
    vj_mutex_unlock(&k->lock);
    return bytes;
}

uint64_t vj_space_reserved(VjSpaceKeeper *k)
{
    uint64_t bytes;

    vj_mutex_lock(&k->lock);
    bytes = k->reserved_bytes;
    vj_mutex_unlock(&k->lock);
    return bytes;
}
