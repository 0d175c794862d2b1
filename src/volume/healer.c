/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * healer.c - the thread that brings objects back to their full number of replicas
 *
 * Where the store has replicas, a pass over all records goes with each open, as what a
 * crash or a lost node has left undone is written down nowhere else, and another one
 * when a node was lost, came back, or objects were put to fewer nodes than they ought
 * to be on.  A pass asks the nodes for what they have, a thousand objects at a time, and
 * moves bytes only of those that want it.  What fails is tried again, later each time.
 *
 * A node that was away has kept what was removed meanwhile, and no record names it: so a
 * pass that has found all nodes ends with a collection of garbage.
 */
#include "volume/volume-private.h"

/* How often the store is asked whether something has changed. */
#define LOOK_US ((int64_t)1000 * 1000)
/* After a pass that could not do all, the next one. */
#define RETRY_LEAST_US ((int64_t)2 * 1000 * 1000)
#define RETRY_MOST_US ((int64_t)60 * 1000 * 1000)

struct VjHealer {
    VjVolume *volume;
    VjObjects *objects;
    GThread *thread;
    VjMutex lock; /* VJ_RANK_VOLUME */
    VjCond changed;
    /* guarded by lock: */
    bool stop;
    uint64_t wanted, done; /* passes that were asked for, and that are over */
    VjHealed last;
};

static bool must_stop(void *opaque)
{
    VjHealer *h = opaque;
    bool stop;

    vj_mutex_lock(&h->lock);
    stop = h->stop;
    vj_mutex_unlock(&h->lock);
    return stop;
}

/* What may have left objects without a replica. */
static uint64_t troubles(const VjHealer *h)
{
    VjStoreHealth health;

    vj_objects_health(h->objects, &health);
    return health.changes + health.degraded_puts;
}

/* One pass.  The first error. */
static int pass(VjHealer *h, VjHealStep *step)
{
    int first = 0;

    *step = (VjHealStep){.stop = must_stop, .opaque = h};
    while (step->cursor != UINT64_MAX) {
        uint64_t before = step->cursor;
        int rc = vj_objects_heal_step(h->objects, step);

        first = first < 0 ? first : rc;
        if (rc == -ECANCELED || (rc < 0 && step->cursor == before)) {
            break;
        }
    }
    return first;
}

/* All of the store, unless something fails; it is logged, and the next pass does it. */
static int collect_garbage(VjHealer *h)
{
    VjTend tend = {.cursor = 0};
    int rc = 0;

    while (rc == 0 && tend.cursor != UINT64_MAX && !must_stop(h)) {
        rc = vj_volume_gc(h->volume, &tend);
    }
    if (rc < 0) {
        vj_log_warn("replicas: what nodes have kept of removed objects: %s",
                    g_strerror(-rc));
    }
    return rc;
}

/* A node may have come back with more than it ought to have. */
static bool may_have_garbage(const VjHealer *h, const VjHealStep *step, bool is_first)
{
    VjStoreHealth health;

    vj_objects_health(h->objects, &health);
    return health.dead == 0 && (health.nodes > 1 || step->healed > 0) && !is_first;
}

static void note(VjHealer *h, const VjHealStep *step, int rc, uint64_t answers)
{
    if (step->healed > 0 || step->failed > 0) {
        vj_log_info("replicas: %" G_GUINT64_FORMAT
                    " objects looked at, %" G_GUINT64_FORMAT " healed, %" G_GUINT64_FORMAT
                    " not yet",
                    step->examined, step->healed, step->failed);
    }
    vj_mutex_lock(&h->lock);
    h->done = answers;
    h->last = (VjHealed){.passes = h->last.passes + 1,
                         .examined = step->examined,
                         .healed = h->last.healed + step->healed,
                         .healed_last = step->healed,
                         .failed = step->failed,
                         .lost = step->lost,
                         .error = rc};
    vj_cond_broadcast(&h->changed);
    vj_mutex_unlock(&h->lock);
}

/* Until something has changed, a pass is asked for, or @until_us.  False: stop. */
static bool wait_for_trouble(VjHealer *h, uint64_t seen, int64_t until_us)
{
    bool stop, is_due = false;

    while (!is_due) {
        is_due = troubles(h) != seen || vj_clock_mono_us() >= until_us;
        vj_mutex_lock(&h->lock);
        is_due = is_due || h->stop || h->wanted != h->done;
        if (!is_due) {
            (void)vj_cond_wait_until(&h->changed, &h->lock, vj_clock_mono_us() + LOOK_US);
        }
        vj_mutex_unlock(&h->lock);
    }
    stop = must_stop(h);
    return !stop;
}

static gpointer healer_main(gpointer opaque)
{
    VjHealer *h = opaque;
    int64_t pause_us = RETRY_LEAST_US;
    bool is_first = true;
    int rc = 0;

    for (;;) {
        uint64_t seen = troubles(h), answers;
        VjHealStep step;

        vj_mutex_lock(&h->lock);
        answers = h->wanted;
        vj_mutex_unlock(&h->lock);
        rc = pass(h, &step);
        if (must_stop(h)) {
            break;
        }
        if (rc == 0 && may_have_garbage(h, &step, is_first)) {
            rc = collect_garbage(h);
        }
        is_first = false;
        note(h, &step, rc, answers);
        pause_us = rc == 0 ? RETRY_LEAST_US : MIN(pause_us * 2, RETRY_MOST_US);
        if (!wait_for_trouble(h, seen,
                              rc == 0 ? INT64_MAX : vj_clock_mono_us() + pause_us)) {
            break;
        }
    }
    return NULL;
}

VjHealer *vj_healer_open(VjVolume *v)
{
    VjHealer *h = g_new0(VjHealer, 1);

    h->volume = v;
    h->objects = v->objects;
    vj_mutex_init(&h->lock, VJ_RANK_VOLUME, "volume-healer");
    vj_cond_init(&h->changed);
    h->wanted = 1;
    h->thread = g_thread_new("vj-healer", healer_main, h);
    return h;
}

void vj_healer_close(VjHealer *h)
{
    if (h == NULL) {
        return;
    }
    vj_mutex_lock(&h->lock);
    h->stop = true;
    vj_cond_broadcast(&h->changed);
    vj_mutex_unlock(&h->lock);
    g_thread_join(h->thread);
    vj_cond_clear(&h->changed);
    vj_mutex_clear(&h->lock);
    g_free(h);
}

int vj_volume_heal(VjVolume *v, VjHealed *out)
{
    VjHealer *h = v->healer;
    int64_t until_us = vj_cancel_deadline_us();
    uint64_t wanted;
    int rc = 0;

    if (h == NULL) {
        return vj_objects_have_replicas(v->objects) ? -EROFS : -EOPNOTSUPP;
    }
    vj_mutex_lock(&h->lock);
    wanted = ++h->wanted;
    vj_cond_broadcast(&h->changed);
    while (rc == 0 && h->done < wanted && !h->stop) {
        rc = vj_cond_wait_or_cancel(&h->changed, &h->lock, until_us);
    }
    *out = h->last;
    vj_mutex_unlock(&h->lock);
    return rc < 0 ? rc : out->error;
}
