/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * dead.c - guards, pins, and the thread that removes the dead
 *
 * An object may be read as long as a snapshot that a guard covers, or a pin, can name it.
 * What the reaper does of it is in reap.c.
 */
#include "object/object-private.h"

/* How long a kick waits for company: each pass forces metadata to the device. */
#define VJ_REAP_DELAY_US ((int64_t)200 * 1000)
/* How long after a pass that failed, or left something that others hold, the next one is
 * tried. */
#define VJ_REAP_RETRY_US ((int64_t)10 * 1000 * 1000)
/* How often a shared session looks for changes that the engine perhaps did not report. */
#define VJ_REAP_LOOK_US ((int64_t)1000 * 1000)

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
    d->holds = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
}

void vj_dead_clear(VjDead *d)
{
    g_assert(g_hash_table_size(d->pins) == 0 && g_hash_table_size(d->removing) == 0);
    g_assert(d->guards[0] == 0 && d->guards[1] == 0);
    g_hash_table_destroy(d->pins);
    g_hash_table_destroy(d->removing);
    g_hash_table_destroy(d->holds);
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
        if (g_hash_table_contains(d->holds, &key)) {
            d->must_look = true;
            vj_cond_broadcast(&d->changed);
        }
    }
    vj_mutex_unlock(&d->lock);
}

bool vj_dead_wait_for_older_guards(VjDead *d)
{
    bool have_left;
    unsigned old;

    vj_mutex_lock(&d->lock);
    old = d->epoch;
    g_assert(d->guards[1 - old] == 0);
    d->epoch = 1 - old;
    while (d->guards[old] > 0 && !d->stop) {
        vj_cond_wait(&d->changed, &d->lock);
    }
    have_left = d->guards[old] == 0;
    vj_mutex_unlock(&d->lock);
    return have_left;
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

/* ---- holds ------------------------------------------------------------------------- */

bool vj_dead_is_pinned(VjDead *d, uint64_t id)
{
    guint64 key = id;
    bool is_pinned;

    vj_mutex_lock(&d->lock);
    is_pinned = g_hash_table_contains(d->pins, &key);
    vj_mutex_unlock(&d->lock);
    return is_pinned;
}

void vj_dead_note_holds(VjDead *d, const GArray *ids)
{
    vj_mutex_lock(&d->lock);
    for (guint i = 0; i < ids->len; i++) {
        guint64 id = g_array_index(ids, uint64_t, i);

        g_hash_table_add(d->holds, g_memdup2(&id, sizeof id));
    }
    vj_mutex_unlock(&d->lock);
}

void vj_dead_list_needless_holds(VjDead *d, GArray *ids)
{
    GHashTableIter iter;
    gpointer key;

    vj_mutex_lock(&d->lock);
    g_hash_table_iter_init(&iter, d->holds);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        uint64_t id = *(const guint64 *)key;

        if (!g_hash_table_contains(d->pins, key)) {
            g_array_append_val(ids, id);
        }
    }
    vj_mutex_unlock(&d->lock);
}

void vj_dead_forget_holds(VjDead *d, const GArray *ids)
{
    vj_mutex_lock(&d->lock);
    for (guint i = 0; i < ids->len; i++) {
        guint64 id = g_array_index(ids, uint64_t, i);

        g_hash_table_remove(d->holds, &id);
    }
    vj_mutex_unlock(&d->lock);
}

/* ---- waiting ----------------------------------------------------------------------- */

void vj_dead_note_change(VjDead *d, bool epoch)
{
    vj_mutex_lock(&d->lock);
    d->changes++;
    d->must_look = d->must_look || epoch;
    vj_cond_broadcast(&d->changed);
    vj_mutex_unlock(&d->lock);
}

uint64_t vj_dead_changes(VjDead *d)
{
    uint64_t changes;

    vj_mutex_lock(&d->lock);
    changes = d->changes;
    vj_mutex_unlock(&d->lock);
    return changes;
}

bool vj_dead_wait_for_change(VjDead *d, uint64_t seen, int64_t until_us)
{
    bool stop;

    vj_mutex_lock(&d->lock);
    while (!d->stop && d->changes == seen &&
           vj_cond_wait_until(&d->changed, &d->lock, until_us)) {
    }
    stop = d->stop;
    vj_mutex_unlock(&d->lock);
    return !stop;
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

/* What the thread does next. */
typedef enum VjDeadWork { VJ_DEAD_STOP, VJ_DEAD_LOOK, VJ_DEAD_PASS } VjDeadWork;

/* When each is due, on the clock of vj_clock_mono_us; INT64_MAX: not at all. */
typedef struct VjDeadPlan {
    int64_t look_us;  /* for what others did */
    int64_t pass_us;  /* a pass that was asked for: a while after the first kick */
    int64_t retry_us; /* one that was not asked for */
    uint64_t changes; /* a pass waits for the claim of another session until more are */
    bool is_waiting;  /* for such a change, or until retry_us */
} VjDeadPlan;

/* Something else that is due now. */
static bool is_pass_due(VjDead *d, VjDeadPlan *p, int64_t now_us) VJ_REQUIRES(d->lock)
{
    bool is_retry = now_us >= p->retry_us;

    if (p->is_waiting && d->changes == p->changes && !is_retry) {
        return false;
    }
    if (d->kicks == d->passes_begun) {
        d->kicks += is_retry;
        return is_retry;
    }
    if (p->pass_us == INT64_MAX) {
        p->pass_us = now_us + VJ_REAP_DELAY_US;
    }
    return d->hurry || p->is_waiting || now_us >= p->pass_us;
}

/* With the lock held: waits for a reason to work. */
static VjDeadWork wait_for_work(VjDead *d, VjDeadPlan *p) VJ_REQUIRES(d->lock)
{
    while (!d->stop) {
        int64_t now_us = vj_clock_mono_us(), due_us;

        if (d->must_look || now_us >= p->look_us) {
            return VJ_DEAD_LOOK;
        }
        if (is_pass_due(d, p, now_us)) {
            return VJ_DEAD_PASS;
        }
        due_us = MIN(p->look_us, MIN(p->pass_us, p->retry_us));
        if (due_us == INT64_MAX) {
            vj_cond_wait(&d->changed, &d->lock);
        } else {
            (void)vj_cond_wait_until(&d->changed, &d->lock, due_us);
        }
    }
    return VJ_DEAD_STOP;
}

/* Publishes and drops holds, with the lock held on entry and return. */
static void look(VjObjects *o, VjDead *d, VjDeadPlan *p) VJ_REQUIRES(d->lock)
{
    int rc;

    d->must_look = false;
    vj_mutex_unlock(&d->lock);
    rc = vj_epoch_attend(o);
    vj_mutex_lock(&d->lock);
    if (rc < 0 && d->look_error == 0) {
        vj_log_warn("publishing that the dead are not read any more: %s; tried again",
                    g_strerror(-rc));
    }
    d->look_error = rc;
    p->look_us = vj_clock_mono_us() + VJ_REAP_LOOK_US;
}

/* As look(). */
static void pass(VjObjects *o, VjDead *d, VjDeadPlan *p) VJ_REQUIRES(d->lock)
{
    uint64_t answers = d->kicks;
    bool is_left = false;
    int rc;

    *p = (VjDeadPlan){.look_us = p->look_us,
                      .pass_us = INT64_MAX,
                      .retry_us = INT64_MAX,
                      .changes = d->changes};
    d->passes_begun = answers;
    d->hurry = false;
    vj_mutex_unlock(&d->lock);
    rc = vj_reap(o, &is_left);
    vj_mutex_lock(&d->lock);
    if (rc == -EBUSY) { /* another session does it: this one looks what it left */
        d->passes_begun = d->passes_done;
        p->is_waiting = true;
        p->retry_us = vj_clock_mono_us() + VJ_REAP_LOOK_US;
        return;
    }
    if (rc < 0 && rc != -ECANCELED && d->error == 0) {
        vj_log_warn("removing dead objects: %s; tried again later", g_strerror(-rc));
    }
    if (rc < 0 || is_left) {
        p->retry_us = vj_clock_mono_us() + VJ_REAP_RETRY_US;
    }
    d->error = rc;
    d->passes_done = answers;
    vj_cond_broadcast(&d->changed);
}

static gpointer reaper_thread(gpointer opaque)
{
    VjObjects *o = opaque;
    VjDead *d = &o->dead;
    VjDeadPlan plan = {.look_us = o->is_shared ? vj_clock_mono_us() : INT64_MAX,
                       .pass_us = INT64_MAX,
                       .retry_us = INT64_MAX};
    VjDeadWork work;

    vj_mutex_lock(&d->lock);
    while ((work = wait_for_work(d, &plan)) != VJ_DEAD_STOP) {
        if (work == VJ_DEAD_LOOK) {
            look(o, d, &plan);
        } else {
            pass(o, d, &plan);
        }
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
    if (o->is_shared && !vj_epoch_open(o, error)) {
        return false;
    }
    d->kicks = 1; /* what the last mount left */
    d->thread = g_thread_try_new("vj-reaper", reaper_thread, o, error);
    return d->thread != NULL;
}

int vj_dead_stop(VjObjects *o)
{
    VjDead *d = &o->dead;
    int rc;

    vj_mutex_lock(&d->lock);
    d->stop = true;
    vj_cond_broadcast(&d->changed);
    vj_mutex_unlock(&d->lock);
    if (d->thread != NULL) {
        g_thread_join(d->thread);
        d->thread = NULL;
    }
    rc = o->is_shared ? vj_epoch_close(o) : 0;
    if (rc < 0) { /* its holds end with the session */
        vj_meta_leave_record(o->meta);
    }
    return rc;
}
