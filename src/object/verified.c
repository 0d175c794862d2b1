/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * verified.c - objects whose bytes were written or compared since open
 *
 * A table of fixed size that forgets: an object that is not in it is verified once more.
 */
#include "object/object-private.h"

void vj_verified_init(VjVerified *v)
{
    vj_mutex_init(&v->lock, VJ_RANK_OBJECT_VERIFIED, "object-verified");
    v->ids = g_new0(uint64_t, VJ_VERIFIED_SLOTS);
}

void vj_verified_clear(VjVerified *v)
{
    g_free(v->ids);
    vj_mutex_clear(&v->lock);
}

void vj_verified_add(VjVerified *v, uint64_t id)
{
    vj_mutex_lock(&v->lock);
    v->ids[id % VJ_VERIFIED_SLOTS] = id;
    vj_mutex_unlock(&v->lock);
}

void vj_verified_drop(VjVerified *v, uint64_t id)
{
    uint64_t *slot = &v->ids[id % VJ_VERIFIED_SLOTS];

    vj_mutex_lock(&v->lock);
    if (*slot == id) {
        *slot = 0;
    }
    vj_mutex_unlock(&v->lock);
}

bool vj_verified_has(VjVerified *v, uint64_t id)
{
    bool has;

    vj_mutex_lock(&v->lock);
    has = v->ids[id % VJ_VERIFIED_SLOTS] == id;
    vj_mutex_unlock(&v->lock);
    return has;
}
