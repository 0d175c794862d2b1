/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * busiest.c - which numbers come most often, in a bounded memory
 *
 * A sketch of the kind "space saving", in sets: a number belongs to one of SETS sets,
 * which has room for WAYS.  One that is not in its set takes the place of the one that
 * has come least often, and goes on from that one's count, which is kept as `over`.  So
 * its count is never too low, and too high by `over` at most; and whatever has come more
 * often than one in WAYS of what its set has got is there.
 *
 * What is there is counted without a lock: of what comes at the moment at which a place
 * is given away a count may go to the number that takes it, or be lost.
 */
#include "front/front-private.h"

#include <stdatomic.h>

#define SETS 64u
#define WAYS 4u

G_STATIC_ASSERT(SETS *WAYS == VJ_BUSIEST_MAX);

typedef struct Entry {
    _Atomic uint64_t id; /* 0: none */
    _Atomic uint64_t requests, over, bytes;
} Entry;

typedef struct Set {
    VjMutex lock; /* VJ_RANK_FRONT: whoever gives a place to another number */
    Entry entries[WAYS];
} Set;

struct VjBusiest {
    Set sets[SETS];
};

VjBusiest *vj_busiest_new(void)
{
    VjBusiest *b = g_new0(VjBusiest, 1);

    for (unsigned i = 0; i < SETS; i++) {
        vj_mutex_init(&b->sets[i].lock, VJ_RANK_FRONT, "front busiest");
    }
    return b;
}

void vj_busiest_free(VjBusiest *b)
{
    for (unsigned i = 0; i < SETS; i++) {
        vj_mutex_clear(&b->sets[i].lock);
    }
    g_free(b);
}

static uint64_t load(const _Atomic uint64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

static void store(_Atomic uint64_t *to, uint64_t value)
{
    atomic_store_explicit(to, value, memory_order_relaxed);
}

/* Numbers of inodes and threads follow each other: the upper bits of a product spread
 * them. */
static Set *set_of(VjBusiest *b, uint64_t id)
{
    return &b->sets[(id * UINT64_C(0x9E3779B97F4A7C15)) >> 58];
}

G_STATIC_ASSERT(SETS == 1u << (64 - 58));

static bool add(Set *set, uint64_t id, uint64_t bytes)
{
    for (unsigned i = 0; i < WAYS; i++) {
        Entry *e = &set->entries[i];

        if (load(&e->id) == id) {
            atomic_fetch_add_explicit(&e->requests, 1, memory_order_relaxed);
            if (bytes > 0) {
                atomic_fetch_add_explicit(&e->bytes, bytes, memory_order_relaxed);
            }
            return true;
        }
    }
    return false;
}

static void replace(Set *set, uint64_t id, uint64_t bytes)
{
    Entry *least = &set->entries[0];
    uint64_t requests;

    for (unsigned i = 1; i < WAYS; i++) {
        if (load(&set->entries[i].requests) < load(&least->requests)) {
            least = &set->entries[i];
        }
    }
    requests = load(&least->requests);
    store(&least->id, id);
    store(&least->over, requests);
    store(&least->requests, requests + 1);
    store(&least->bytes, bytes);
}

void vj_busiest_add(VjBusiest *b, uint64_t id, uint64_t bytes)
{
    Set *set = set_of(b, id);

    g_assert(id != 0);
    if (add(set, id, bytes)) {
        return;
    }
    vj_mutex_lock(&set->lock);
    if (!add(set, id, bytes)) { /* another thread may have been faster */
        replace(set, id, bytes);
    }
    vj_mutex_unlock(&set->lock);
}

unsigned vj_busiest_list(VjBusiest *b, VjFsBusy out[VJ_BUSIEST_MAX])
{
    unsigned count = 0;

    for (unsigned i = 0; i < SETS; i++) {
        Set *set = &b->sets[i];

        vj_mutex_lock(&set->lock);
        for (unsigned j = 0; j < WAYS; j++) {
            const Entry *e = &set->entries[j];

            if (load(&e->id) != 0) {
                out[count++] = (VjFsBusy){.id = load(&e->id),
                                          .requests = load(&e->requests),
                                          .over = load(&e->over),
                                          .bytes = load(&e->bytes)};
            }
        }
        vj_mutex_unlock(&set->lock);
    }
    return count;
}
