/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* erase.c - see erase.h */
#include "store/erase.h"

typedef struct Waiting {
    uint64_t id, nonce;
    unsigned tries;
    int64_t next_us; /* not before this */
} Waiting;

static guint waiting_hash(gconstpointer opaque)
{
    const Waiting *w = opaque;
    uint64_t mixed = (w->id ^ w->nonce) * UINT64_C(0x9e3779b97f4a7c15);

    return (guint)(mixed >> 32);
}

static gboolean waiting_equal(gconstpointer a, gconstpointer b)
{
    const Waiting *x = a, *y = b;

    return x->id == y->id && x->nonce == y->nonce;
}

void vj_erasures_init(VjErasures *e)
{
    e->waiting = g_hash_table_new_full(waiting_hash, waiting_equal, g_free, NULL);
    e->given_up = 0;
}

void vj_erasures_clear(VjErasures *e)
{
    g_hash_table_unref(e->waiting);
}

static Waiting *find(const VjErasures *e, uint64_t id, uint64_t nonce)
{
    Waiting key = {.id = id, .nonce = nonce};

    return g_hash_table_lookup(e->waiting, &key);
}

bool vj_erasures_is_due(const VjErasures *e, uint64_t id, uint64_t nonce)
{
    const Waiting *w = find(e, id, nonce);

    return w == NULL || vj_clock_mono_us() >= w->next_us;
}

unsigned vj_erasures_failed(VjErasures *e, uint64_t id, uint64_t nonce)
{
    Waiting *w = find(e, id, nonce);

    if (w == NULL && g_hash_table_size(e->waiting) >= VJ_ERASE_WAITING_MAX) {
        return VJ_ERASE_TRIES_MAX;
    }
    if (w == NULL) {
        w = g_new(Waiting, 1);
        *w = (Waiting){.id = id, .nonce = nonce};
        g_hash_table_add(e->waiting, w);
    }
    w->tries++;
    if (w->tries == VJ_ERASE_TRIES_MAX) {
        vj_erasures_give_up(e, id, nonce);
        return 0;
    }
    w->next_us = vj_clock_mono_us() + (VJ_ERASE_PAUSE_FIRST_US << (w->tries - 1));
    return w->tries;
}

void vj_erasures_give_up(VjErasures *e, uint64_t id, uint64_t nonce)
{
    vj_erasures_done(e, id, nonce);
    e->given_up++;
}

void vj_erasures_done(VjErasures *e, uint64_t id, uint64_t nonce)
{
    Waiting key = {.id = id, .nonce = nonce};

    g_hash_table_remove(e->waiting, &key);
}
