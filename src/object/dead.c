/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * dead.c - guards, pins, and the thread that removes the dead
 *
 * An object may be read as long as somebody can name it: a snapshot that a guard covers,
 * or a pin.  What the reaper does of it is in reap.c.
 */
#include "object/object-private.h"

/* How long a kick waits for company: each pass forces metadata to the device. */
#define VJ_REAP_DELAY_US ((int64_t)200 * 1000)
/* How long after a pass that failed the next one is tried. */
#define VJ_REAP_RETRY_US ((int64_t)10 * 1000 * 1000)

typedef struct VjPin {
    guint64 id;
    uint64_t count;
    bool is_awaited; /* the reaper passed it over */
} VjPin;

void vj_dead_init(VjDead *d)
{
    vj_mutex_init(&d->lock, VJ_RANK_OBJECT_DEAD, "dead");
    vj_cond_init(&d->changed);
    d->pins = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    d->removing = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
}

void vj_dead_clear(VjDead *d)
{
    g_assert(g_hash_table_size(d->pins) == 0 && g_hash_table_size(d->removing) == 0);
    g_assert(d->guards[0] == 0 && d->guards[1] == 0);
    g_hash_table_destroy(d->pins);
    g_hash_table_destroy(d->removing);
    vj_cond_clear(&d->changed);
    vj_mutex_clear(&d->lock);
}

/* ---- guards and pins --------------------------------------------------------------- */

void vj_objects_guard_enter(VjObjects *o, VjReadGuard *g)
{
    VjDead *d = &o->dead;

    vj_mutex_lock(&d->lock);
    g->epoch = d->epoch;
    d->guards[g->epoch]++;
    vj_mutex_unlock(&d->lock);
}

void vj_objects_guard_leave(VjObjects *o, VjReadGuard *g)
{
    VjDead *d = &o->dead;

    vj_mutex_lock(&d->lock);
    g_assert(g->epoch < 2 && d->guards[g->epoch] > 0);
    d->guards[g->epoch]--;
    if (d->guards[g->epoch] == 0 && g->epoch != d->epoch) {
        vj_cond_broadcast(&d->changed);
    }
    vj_mutex_unlock(&d->lock);
}

void vj_object_pin(VjObjects *o, uint64_t id)
{
    VjDead *d = &o->dead;
    guint64 key = id;
    VjPin *pin;

    vj_mutex_lock(&d->lock);
    g_assert(!g_hash_table_contains(d->removing, &key));
    pin = g_hash_table_lookup(d->pins, &key);
    if (pin == NULL) {
        pin = g_new0(VjPin, 1);
        pin->id = id;
        g_hash_table_insert(d->pins, &pin->id, pin);
    }
    pin->count++;
    vj_mutex_unlock(&d->lock);
}

void vj_object_unpin(VjObjects *o, uint64_t id)
{
    VjDead *d = &o->dead;
    guint64 key = id;
    VjPin *pin;

    vj_mutex_lock(&d->lock);
    pin = g_hash_table_lookup(d->pins, &key);
    g_assert(pin != NULL && pin->count > 0);
    pin->count--;
    if (pin->count == 0) {
        if (pin->is_awaited) {
            d->kicks++;
            vj_cond_broadcast(&d->changed);
        }
        g_hash_table_remove(d->pins, &key);
    }
    vj_mutex_unlock(&d->lock);
}

void vj_dead_wait_for_older_guards(VjDead *d)
{
    unsigned old;

    vj_mutex_lock(&d->lock);
    old = d->epoch;
    g_assert(d->guards[1 - old] == 0);
    d->epoch = 1 - old;
    while (d->guards[old] > 0) {
        vj_cond_wait(&d->changed, &d->lock);
    }
    vj_mutex_unlock(&d->lock);
}

void vj_dead_keep_unpinned(VjDead *d, GArray *dead)
{
    guint kept = 0;

    vj_mutex_lock(&d->lock);
    for (guint i = 0; i < dead->len; i++) {
        VjObject object = g_array_index(dead, VjObject, i);
        guint64 id = object.id;
        VjPin *pin = g_hash_table_lookup(d->pins, &id);

        if (pin != NULL) {
            pin->is_awaited = true;
        } else {
            g_array_index(dead, VjObject, kept++) = object;
        }
    }
    g_array_set_size(dead, kept);
    vj_mutex_unlock(&d->lock);
}

bool vj_dead_must_stop(VjDead *d)
{
    bool stop;

    vj_mutex_lock(&d->lock);
    stop = d->stop;
    vj_mutex_unlock(&d->lock);
    return stop;
}

/* ---- the thread -------------------------------------------------------------------- */

/* With the lock held: waits for a reason to work; false: stop. */
static bool wait_for_work(VjDead *d) VJ_REQUIRES(d->lock)
{
    int64_t due = INT64_MAX;

    if (d->error < 0) {
        due = vj_clock_mono_us() + VJ_REAP_RETRY_US;
    }
    while (!d->stop && d->kicks == d->passes_begun) {
        if (due == INT64_MAX) {
            vj_cond_wait(&d->changed, &d->lock);
        } else if (!vj_cond_wait_until(&d->changed, &d->lock, due)) {
            d->kicks++;
        }
    }
    due = vj_clock_mono_us() + VJ_REAP_DELAY_US;
    while (!d->stop && !d->hurry && vj_cond_wait_until(&d->changed, &d->lock, due)) {
    }
    return !d->stop;
}

static gpointer reaper_thread(gpointer opaque)
{
    VjObjects *o = opaque;
    VjDead *d = &o->dead;

    vj_mutex_lock(&d->lock);
    while (wait_for_work(d)) {
        uint64_t answers = d->kicks;
        int rc;

        d->passes_begun = answers;
        d->hurry = false;
        vj_mutex_unlock(&d->lock);
        rc = vj_reap(o);
        vj_mutex_lock(&d->lock);
        if (rc < 0 && d->error == 0) {
            vj_log_warn("removing dead objects: %s; tried again later", g_strerror(-rc));
        }
        d->error = rc;
        d->passes_done = answers;
        vj_cond_broadcast(&d->changed);
    }
    vj_mutex_unlock(&d->lock);
    return NULL;
}

void vj_objects_kick(VjObjects *o)
{
    VjDead *d = &o->dead;

    vj_mutex_lock(&d->lock);
    /* Behind the first one the reaper is awake, or waits for company and looks then. */
    if (d->kicks++ == d->passes_begun) {
        vj_cond_broadcast(&d->changed);
    }
    vj_mutex_unlock(&d->lock);
}

int vj_objects_reap_now(VjObjects *o)
{
    VjDead *d = &o->dead;
    uint64_t mine;
    int rc;

    if (o->read_only) {
        return -EROFS;
    }
    vj_mutex_lock(&d->lock);
    mine = ++d->kicks;
    d->hurry = true;
    vj_cond_broadcast(&d->changed);
    while (d->passes_done < mine) {
        vj_cond_wait(&d->changed, &d->lock);
    }
    rc = d->error;
    vj_mutex_unlock(&d->lock);
    return rc;
}

bool vj_dead_start(VjObjects *o, GError **error)
{
    VjDead *d = &o->dead;

    g_assert(!o->read_only);
    d->kicks = 1; /* what the last mount left */
    d->thread = g_thread_try_new("vj-reaper", reaper_thread, o, error);
    return d->thread != NULL;
}

void vj_dead_stop(VjObjects *o)
{
    VjDead *d = &o->dead;

    vj_mutex_lock(&d->lock);
    d->stop = true;
    vj_cond_broadcast(&d->changed);
    vj_mutex_unlock(&d->lock);
    if (d->thread != NULL) {
        g_thread_join(d->thread);
        d->thread = NULL;
    }
}
