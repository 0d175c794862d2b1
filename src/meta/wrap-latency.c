/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wrap-latency.c - an engine that is far away
 *
 * For tests.  Each call that would be a round trip takes a set time and is counted.  A
 * thread that makes one with a lock held ends the process: every thread that wants that
 * lock would wait for the other machine.  With hold=FILE it is an engine that hangs as
 * long as another process has that file locked (flock).
 *
 * It has no snapshots, as an engine on another machine has none.  What a session asks
 * without a round trip (reserve, apply_bytes, the log, copies) is passed on.  So is what
 * others change: at once, or by a thread some time later, or not at all (watch=).
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/file.h>

#include "meta/meta-private.h"

typedef enum LatencyCall {
    CALL_GET_MANY,
    CALL_SCAN,
    CALL_APPLY,
    CALL_CLOCK,
    CALL_COUNT,
    CALL_KINDS,
} LatencyCall;

/* Changes that wait to be reported late; of more it is reported only that anything may
 * have changed. */
#define LATE_KEYS_MAX 1024u

/* A change that is reported late. */
typedef struct LateKey {
    VjKey key; /* its bytes behind it */
    bool own;
    uint8_t bytes[];
} LateKey;

static const char *const call_names[] = {"get_many", "scan", "apply", "clock", "count"};

typedef struct Latency {
    VjEngine engine;
    int64_t cost_us; /* never changes after open */
    _Atomic uint64_t calls[CALL_KINDS];
    char *hold; /* owned; NULL: it never hangs */
    VjMutex lock;
    VjCond unheld, late_wake;
    /* guarded by lock: */
    bool is_held;   /* the file was locked when a thread looked, */
    GThread *waits; /* and this thread waits until it is not; NULL: never yet */
    GQueue late;    /* of LateKey, owned: what is to be reported */
    bool late_is_full, late_ends;
    /* never change while a session watches: */
    enum { WATCH_PROMPT, WATCH_LATE, WATCH_NONE } how_to_watch;
    VjEngineWatch *changed; /* NULL: no session watches, or it is passed on at once */
    void *opaque;
    GThread *tells; /* what is late */
} Latency;

/* Calls that this thread has made. */
static _Thread_local uint64_t own_calls;

static const VjOptSpec latency_options[] = {
    {.name = "us",
     .type = VJ_OPT_NUMBER,
     .fallback = "1000",
     .max = 10 * 1000 * 1000,
     .help = "microseconds that each call of the engine takes"},
    {.name = "watch",
     .type = VJ_OPT_CHOICE,
     .fallback = "prompt",
     .choices = "prompt|late|none",
     .help = "when a session hears what others change: at once, some time later, never"},
    {.name = "hold",
     .type = VJ_OPT_STRING,
     .help = "no call is made as long as this file is locked; default: none"},
    {.name = NULL},
};

static bool latency_open(VjEngine *e, const VjMetaPlace *place, const VjOpts *opts,
                         GError **error)
{
    Latency *l = (Latency *)e;
    const char *hold = vj_opts_string(opts, "hold");
    const char *watch = vj_opts_string(opts, "watch");

    (void)place;
    (void)error;
    g_assert(e->next != NULL);
    l->cost_us = (int64_t)vj_opts_number(opts, "us");
    l->hold = hold != NULL && hold[0] != '\0' ? g_strdup(hold) : NULL;
    l->how_to_watch = strcmp(watch, "none") == 0   ? WATCH_NONE
                      : strcmp(watch, "late") == 0 ? WATCH_LATE
                                                   : WATCH_PROMPT;
    g_queue_init(&l->late);
    vj_mutex_init(&l->lock, VJ_RANK_META_WRAPPER, "meta latency");
    vj_cond_init(&l->unheld);
    vj_cond_init(&l->late_wake);
    return true;
}

static int latency_close(VjEngine *e, bool in_order)
{
    Latency *l = (Latency *)e;

    (void)in_order;
    if (l->waits != NULL) {
        g_thread_join(l->waits);
    }
    g_assert(l->tells == NULL);
    vj_cond_clear(&l->late_wake);
    vj_cond_clear(&l->unheld);
    vj_mutex_clear(&l->lock);
    g_free(l->hold);
    return 0;
}

/* ---- An engine that hangs ---------------------------------------------------------- */

/* Opened for itself each time: locks of flock(2) belong to what was opened. */
static bool try_hold(const char *path, int how)
{
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc;

    do {
        rc = fd < 0 ? 0 : flock(fd, how);
    } while (rc < 0 && errno == EINTR);
    return rc == 0;
}

static gpointer wait_for_holder(gpointer opaque)
{
    Latency *l = opaque;

    (void)try_hold(l->hold, LOCK_SH);
    vj_mutex_lock(&l->lock);
    l->is_held = false;
    vj_cond_broadcast(&l->unheld);
    vj_mutex_unlock(&l->lock);
    return NULL;
}

/* Waits until no process has the file locked.  -ETIMEDOUT, -ECANCELED. */
static int wait_while_held(Latency *l, int64_t deadline_us)
{
    int rc = 0;

    if (l->hold == NULL) {
        return 0;
    }
    vj_mutex_lock(&l->lock);
    if (!l->is_held && !try_hold(l->hold, LOCK_SH | LOCK_NB)) {
        if (l->waits != NULL) {
            g_thread_join(l->waits); /* it has ended, but for its last steps */
        }
        l->is_held = true;
        l->waits = g_thread_new("vj-meta-hold", wait_for_holder, l);
    }
    while (rc == 0 && l->is_held) {
        rc = vj_cond_wait_or_cancel(&l->unheld, &l->lock, deadline_us);
    }
    vj_mutex_unlock(&l->lock);
    return rc;
}

/* The way there and back.  -ETIMEDOUT: it is too long, and nothing is asked;
 * -ECANCELED. */
static int travel(VjEngine *e, LatencyCall call, int64_t deadline_us)
{
    Latency *l = (Latency *)e;
    const char *held = vj_lock_held();
    int64_t left_us;
    int rc;

    if (held != NULL) {
        vj_log_error("meta latency: %s is called with lock \"%s\" held", call_names[call],
                     held);
        abort();
    }
    atomic_fetch_add_explicit(&l->calls[call], 1, memory_order_relaxed);
    own_calls++;
    rc = vj_cancel_is_fired() ? -ECANCELED : wait_while_held(l, deadline_us);
    if (rc < 0 || l->cost_us == 0) {
        return rc;
    }
    left_us =
        deadline_us == VJ_NO_DEADLINE ? VJ_NO_DEADLINE : deadline_us - vj_clock_mono_us();
    g_usleep((gulong)CLAMP(left_us, 0, l->cost_us));
    return left_us < l->cost_us ? -ETIMEDOUT : 0;
}

static int latency_get_many(VjEngine *e, const VjKey *keys, size_t count, VjItems *out,
                            int64_t deadline_us)
{
    int rc = travel(e, CALL_GET_MANY, deadline_us);

    return rc < 0 ? rc : vj_engine_get_many(e->next, keys, count, out, deadline_us);
}

static int latency_scan(VjEngine *e, const VjRange *range, size_t limit, VjItems *out,
                        bool *more, int64_t deadline_us)
{
    int rc = travel(e, CALL_SCAN, deadline_us);

    return rc < 0 ? rc : vj_engine_scan(e->next, range, limit, out, more, deadline_us);
}

static int latency_apply(VjEngine *e, const VjBatch *batch, VjItems *fresh,
                         int64_t deadline_us)
{
    int rc = travel(e, CALL_APPLY, deadline_us);

    return rc < 0 ? rc : vj_engine_apply(e->next, batch, fresh, deadline_us);
}

static int64_t latency_clock_us(VjEngine *e, int64_t deadline_us)
{
    int rc = travel(e, CALL_CLOCK, deadline_us);

    return rc < 0 ? rc : vj_engine_clock_us(e->next, deadline_us);
}

static int latency_count(VjEngine *e, VjSpace space, uint64_t *out)
{
    int rc = travel(e, CALL_COUNT, VJ_NO_DEADLINE);

    return rc < 0 ? rc : vj_engine_count(e->next, space, out);
}

/* ---- What others change ------------------------------------------------------------ */

static void tell_later(void *opaque, const VjKey *key, bool own)
{
    Latency *l = opaque;
    LateKey *late = key != NULL ? g_try_malloc(sizeof *late + key->key.len) : NULL;

    if (late != NULL) {
        memcpy(late->bytes, key->key.data, key->key.len);
        late->own = own;
        late->key = (VjKey){key->space, vj_slice(late->bytes, key->key.len)};
    }
    vj_mutex_lock(&l->lock);
    if (late == NULL || l->late.length == LATE_KEYS_MAX) {
        l->late_is_full = true;
        g_free(late);
    } else {
        g_queue_push_tail(&l->late, late);
    }
    vj_cond_broadcast(&l->late_wake);
    vj_mutex_unlock(&l->lock);
}

static gpointer tell_late(gpointer opaque)
{
    Latency *l = opaque;

    vj_mutex_lock(&l->lock);
    while (!l->late_ends) {
        LateKey *late = g_queue_pop_head(&l->late);
        bool all = late == NULL && l->late_is_full;

        if (late == NULL && !all) {
            vj_cond_wait(&l->late_wake, &l->lock);
            continue;
        }
        l->late_is_full = l->late_is_full && !all;
        vj_mutex_unlock(&l->lock);
        if (all || !late->own) {
            l->changed(l->opaque, all ? NULL : &late->key, false);
        }
        g_free(late);
        vj_mutex_lock(&l->lock);
    }
    vj_mutex_unlock(&l->lock);
    return NULL;
}

static void end_late(Latency *l)
{
    if (l->tells == NULL) {
        return;
    }
    vj_mutex_lock(&l->lock);
    l->late_ends = true;
    vj_cond_broadcast(&l->late_wake);
    vj_mutex_unlock(&l->lock);
    g_thread_join(g_steal_pointer(&l->tells));
    g_queue_clear_full(&l->late, g_free);
    l->late_is_full = l->late_ends = false;
    l->changed = NULL;
}

static int latency_watch(VjEngine *e, VjEngineWatch *changed, void *opaque,
                         bool *is_prompt)
{
    Latency *l = (Latency *)e;
    bool is_late = l->how_to_watch == WATCH_LATE;
    int rc;

    if (l->how_to_watch == WATCH_NONE) {
        return -EOPNOTSUPP;
    }
    rc = vj_engine_watch(e->next, is_late && changed != NULL ? tell_later : changed,
                         is_late ? l : opaque, is_prompt);
    end_late(l);
    if (rc == 0 && is_late && changed != NULL) {
        *is_prompt = false;
        l->changed = changed;
        l->opaque = opaque;
        l->tells = g_thread_new("vj-meta-late", tell_late, l);
    }
    return rc;
}

static int latency_reserve(VjEngine *e, const VjLoad *load, bool release)
{
    return vj_engine_reserve(e->next, load, release);
}

static bool latency_empty_apply_helps(VjEngine *e)
{
    return vj_engine_empty_apply_helps(e->next);
}

static uint64_t latency_apply_bytes(VjEngine *e, const VjTally tally[VJ_SPACE_COUNT])
{
    return vj_engine_apply_bytes(e->next, tally);
}

static int latency_save(VjEngine *e, int fd, VjMetaSaved *out)
{
    return vj_engine_save(e->next, fd, out);
}

static uint64_t counted(const Latency *l, LatencyCall call)
{
    return atomic_load_explicit(&l->calls[call], memory_order_relaxed);
}

void vj_engine_latency_calls(const VjEngine *e, VjMetaCalls *out)
{
    const Latency *l = (const Latency *)e;

    *out = (VjMetaCalls){0};
    if (e->ops == &vj_engine_latency_ops) {
        out->get_many = counted(l, CALL_GET_MANY);
        out->scan = counted(l, CALL_SCAN);
        out->apply = counted(l, CALL_APPLY);
        out->clock = counted(l, CALL_CLOCK);
        out->count = counted(l, CALL_COUNT);
        out->own = own_calls;
    }
}

const VjEngineOps vj_engine_latency_ops = {
    .name = "latency",
    .options = latency_options,
    .instance_size = sizeof(Latency),
    .open = latency_open,
    .close = latency_close,
    .get_many = latency_get_many,
    .scan = latency_scan,
    .apply = latency_apply,
    .watch = latency_watch,
    .clock_us = latency_clock_us,
    .count = latency_count,
    .reserve = latency_reserve,
    .empty_apply_helps = latency_empty_apply_helps,
    .apply_bytes = latency_apply_bytes,
    .save = latency_save,
};
