/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * budget.c - see budget-private.h
 */
#include "file/budget-private.h"

void vj_budget_init(VjBudget *b, uint64_t limit_bytes, void (*pressure)(void *opaque),
                    void *opaque)
{
    g_assert(limit_bytes > 0);
    *b = (VjBudget){.limit_bytes = limit_bytes, .pressure = pressure, .opaque = opaque};
    vj_mutex_init(&b->lock, VJ_RANK_FILE_BUDGET, "file.budget");
    vj_cond_init(&b->freed);
}

void vj_budget_clear(VjBudget *b)
{
    g_assert(b->used_bytes == 0);
    vj_cond_clear(&b->freed);
    vj_mutex_clear(&b->lock);
}

/* A request larger than the whole limit may run when it is alone. */
static bool fits(const VjBudget *b, size_t bytes)
{
    uint64_t limit = b->limit_bytes;

    if (bytes <= VJ_BUDGET_SMALL) {
        limit += limit / 8;
    }
    return b->used_bytes == 0 || b->used_bytes + bytes <= limit;
}

int vj_budget_wait(VjBudget *b, size_t bytes)
{
    int r = 0;

    vj_mutex_lock(&b->lock);
    while (!fits(b, bytes)) {
        if (b->failing != 0) {
            r = b->failing;
            break;
        }
        vj_mutex_unlock(&b->lock);
        b->pressure(b->opaque);
        vj_mutex_lock(&b->lock);
        if (!fits(b, bytes) && b->failing == 0) {
            vj_cond_wait(&b->freed, &b->lock);
        }
    }
    vj_mutex_unlock(&b->lock);
    return r;
}

void vj_budget_charge(VjBudget *b, size_t bytes)
{
    vj_mutex_lock(&b->lock);
    b->used_bytes += bytes;
    vj_mutex_unlock(&b->lock);
}

void vj_budget_release(VjBudget *b, size_t bytes)
{
    vj_mutex_lock(&b->lock);
    g_assert(b->used_bytes >= bytes);
    b->used_bytes -= bytes;
    vj_cond_broadcast(&b->freed);
    vj_mutex_unlock(&b->lock);
}

void vj_budget_set_failing(VjBudget *b, int error)
{
    vj_mutex_lock(&b->lock);
    if (b->failing != error) {
        b->failing = error;
        vj_cond_broadcast(&b->freed);
    }
    vj_mutex_unlock(&b->lock);
}

uint64_t vj_budget_used(VjBudget *b)
{
    uint64_t used;

    vj_mutex_lock(&b->lock);
    used = b->used_bytes;
    vj_mutex_unlock(&b->lock);
    return used;
}

bool vj_budget_is_tight(VjBudget *b)
{
    return vj_budget_used(b) > b->limit_bytes / 2;
}
