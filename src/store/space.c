/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * space.c - the free space of a store, asked of the driver once a second
 *
 * Between two answers what was put since is taken off the last one.  So it is never too
 * much for a caller's own puts, and what removes give back is seen with the next answer.
 * What other programs put on the same device is not seen meanwhile: where little is left,
 * the driver is asked each time.
 */
#include "store/store-private.h"

/* An answer is as good for so long. */
#define GOOD_US G_USEC_PER_SEC
/* With less left than that an answer is not kept. */
#define LITTLE_BYTES ((uint64_t)1 << 30)
#define LITTLE_OBJECTS 65536u
/* What a put takes beside its bytes, rounded up: a name, and its part of an inode table.
 */
#define PUT_OVERHEAD_BYTES 4096u

struct VjSpaceCache {
    VjMutex lock; /* VJ_RANK_STORE_IO */
    /* guarded by lock: */
    VjStoreSpace last;
    int64_t asked_at_us;      /* INT64_MIN: never, or the last answer is not kept */
    uint64_t put_bytes, puts; /* since open */
    uint64_t last_put_bytes, last_puts; /* when the last answer was asked for */
    bool is_asking;                     /* a thread asks the driver */
};

VjSpaceCache *vj_space_cache_new(void)
{
    VjSpaceCache *c = g_new0(VjSpaceCache, 1);

    vj_mutex_init(&c->lock, VJ_RANK_STORE_IO, "store.space");
    c->asked_at_us = INT64_MIN;
    return c;
}

void vj_space_cache_free(VjSpaceCache *c)
{
    if (c != NULL) {
        vj_mutex_clear(&c->lock);
        g_free(c);
    }
}

void vj_space_cache_put(VjSpaceCache *c, uint64_t bytes)
{
    vj_mutex_lock(&c->lock);
    c->puts++;
    c->put_bytes += vj_store_room_bytes(bytes) + PUT_OVERHEAD_BYTES;
    vj_mutex_unlock(&c->lock);
}

static bool is_little(const VjStoreSpace *space)
{
    return space->available_bytes < LITTLE_BYTES ||
           space->available_objects < LITTLE_OBJECTS;
}

/* @last without what was put since. */
static VjStoreSpace estimate(const VjSpaceCache *c, const VjStoreSpace *last,
                             uint64_t put_bytes, uint64_t puts) VJ_REQUIRES(c->lock)
{
    uint64_t since_bytes = c->put_bytes - put_bytes, since = c->puts - puts;
    VjStoreSpace now = *last;

    now.free_bytes -= MIN(now.free_bytes, since_bytes);
    now.available_bytes -= MIN(now.available_bytes, since_bytes);
    if (now.available_objects != UINT64_MAX) {
        now.available_objects -= MIN(now.available_objects, since);
    }
    return now;
}

bool vj_space_cache_get(VjSpaceCache *c, VjStoreSpace *out, VjSpaceAsk *ask)
{
    int64_t now_us = vj_clock_mono_us();
    bool good;

    vj_mutex_lock(&c->lock);
    good = c->asked_at_us != INT64_MIN &&
           (c->is_asking || now_us - c->asked_at_us < GOOD_US);
    if (good) {
        *out = estimate(c, &c->last, c->last_put_bytes, c->last_puts);
        good = !is_little(out);
    }
    if (!good) {
        *ask = (VjSpaceAsk){.at_us = now_us, .put_bytes = c->put_bytes, .puts = c->puts};
        c->is_asking = true;
    }
    vj_mutex_unlock(&c->lock);
    return good;
}

void vj_space_cache_set(VjSpaceCache *c, const VjSpaceAsk *ask, int result,
                        VjStoreSpace *space)
{
    vj_mutex_lock(&c->lock);
    c->is_asking = false;
    if (result < 0) {
        c->asked_at_us = INT64_MIN;
    } else if (ask->at_us >= c->asked_at_us) {
        c->last = *space;
        c->asked_at_us = ask->at_us;
        c->last_put_bytes = ask->put_bytes;
        c->last_puts = ask->puts;
        *space = estimate(c, space, ask->put_bytes, ask->puts);
    }
    vj_mutex_unlock(&c->lock);
}
