/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * interrupt.c - a caller that is killed need not wait for durability to the end
 *
 * A thread that waits for an answer of ours cannot even be killed: on the first signal
 * the kernel sends INTERRUPT, and then it waits, whatever else comes, until the request
 * is answered.  With a store that hangs that would be for ever.  But a signal that is
 * caught must not end an fsync(2): on other local file systems none does, and databases
 * take any error of it for lost data.  So the request is answered, with EINTR, which the
 * caller does not live to see, as soon as it has a signal pending that ends it.  The
 * kernel does not say which signal came, and reports the first one alone; hence a watcher
 * thread looks at /proc as long as there are interrupted requests.
 *
 * The wait itself goes on: what was asked for becomes durable.  It keeps the handle,
 * which the dying caller closes, and leaves an error for other processes that have the
 * same descriptor.
 *
 * Where metadata are on another machine any request may wait for long, and where a store
 * has a timeout what reads does, or waits for memory for changes: then each thread's
 * request is listed here, and one whose caller dies is cancelled, so that the thread is
 * free too.
 *
 * Where the daemon does not see the caller in /proc (another pid namespace, hidepid)
 * there is no knowing, and the caller waits.
 */
#include "front/front-private.h"

#include <signal.h>
#include <stdio.h>

/* How often the watcher looks whether an interrupted caller is to die. */
#define LOOK_US ((int64_t)100000)

/* ---- the caller -------------------------------------------------------------------- */

/* Signals that do not end a process which has said nothing about them. */
static uint64_t harmless_signals(void)
{
    static const int harmless[] = {SIGCHLD, SIGCONT, SIGURG,  SIGWINCH,
                                   SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    uint64_t set = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(harmless); i++) {
        set |= (uint64_t)1 << (harmless[i] - 1);
    }
    return set;
}

/* The set of signals in the line "NAME:\t0123456789abcdef"; 0: there is none. */
static uint64_t signal_set(const char *status, const char *name)
{
    const char *at = strstr(status, name);

    return at == NULL ? 0 : g_ascii_strtoull(at + strlen(name), NULL, 16);
}

/* Thread @tid has a signal pending that ends it.  Of those that leave no core the kernel
 * makes a SIGKILL for each thread. */
static bool is_dying(pid_t tid)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/status", (int)tid);
    g_autofree char *status = NULL;
    uint64_t pending, kept;

    if (tid <= 0 || !g_file_get_contents(path, &status, NULL, NULL)) {
        return false;
    }
    pending = signal_set(status, "\nSigPnd:") | signal_set(status, "\nShdPnd:");
    kept = signal_set(status, "\nSigBlk:") | signal_set(status, "\nSigIgn:") |
           signal_set(status, "\nSigCgt:") | harmless_signals();
    return (pending & ~kept) != 0;
}

/* ---- handles ----------------------------------------------------------------------- */

/* One wait more, or less, that needs @h.  Under f->lock; returns how many there are. */
static unsigned count_locked(VjFront *f, VjHandle *h, int change) VJ_REQUIRES(f->lock)
{
    unsigned count =
        GPOINTER_TO_UINT(g_hash_table_lookup(f->awaited, h)) + (unsigned)change;

    if (count == 0) {
        g_hash_table_remove(f->awaited, h);
    } else {
        g_hash_table_insert(f->awaited, h, GUINT_TO_POINTER(count));
    }
    return count;
}

void vj_front_handle_add(VjFront *f, VjHandle *h)
{
    vj_mutex_lock(&f->lock);
    g_hash_table_add(f->handles, h);
    vj_mutex_unlock(&f->lock);
}

void vj_front_handle_drop(VjFront *f, VjHandle *h)
{
    bool is_awaited;

    vj_stage_forget_handle(f->staged, h);
    vj_mutex_lock(&f->lock);
    g_hash_table_remove(f->handles, h);
    is_awaited = g_hash_table_contains(f->awaited, h);
    if (is_awaited) {
        g_hash_table_add(f->left, h);
    }
    vj_mutex_unlock(&f->lock);
    if (!is_awaited) {
        vj_fs_release(f->fs, h);
    }
}

/* ---- waits ------------------------------------------------------------------------- */

static void watch_push(VjFront *f)
{
    g_thread_pool_push(f->watchers, f, NULL);
}

/* libfuse calls it with a lock of its own held. */
static void on_interrupt(fuse_req_t req, void *data)
{
    VjWait *w = data;
    VjFront *f = w->front;
    bool begin = false;

    (void)req;
    vj_mutex_lock(&f->lock);
    if (!w->is_answered && !w->is_interrupted) {
        w->is_interrupted = true;
        w->refs++;
        g_ptr_array_add(f->interrupted, w);
        begin = f->interrupted->len == 1;
    }
    vj_mutex_unlock(&f->lock);
    if (begin) {
        watch_push(f);
    }
}

void vj_wait_begin(VjWait *w, VjFront *f, fuse_req_t req, VjHandle *h)
{
    *w = (VjWait){
        .front = f, .req = req, .handle = h, .tid = fuse_req_ctx(req)->pid, .refs = 1};
    vj_mutex_lock(&f->lock);
    f->waits++;
    if (h != NULL) {
        (void)count_locked(f, h, 1);
    }
    vj_mutex_unlock(&f->lock);
    fuse_req_interrupt_func(req, on_interrupt, w);
}

bool vj_wait_claim(VjWait *w)
{
    bool is_ours;

    vj_mutex_lock(&w->front->lock);
    is_ours = !w->is_answered;
    w->is_answered = true;
    vj_mutex_unlock(&w->front->lock);
    if (is_ours) {
        /* Returns when on_interrupt is not running, and will not. */
        fuse_req_interrupt_func(w->req, NULL, NULL);
    }
    return is_ours;
}

/* The calling thread touches the front no more after this: at the end it may be freed
 * then.  Under f->lock. */
static void count_over_locked(VjFront *f) VJ_REQUIRES(f->lock)
{
    g_assert(f->waits > 0);
    f->waits--;
    if (f->waits == 0 && f->ended) {
        vj_cond_broadcast(&f->changed);
    }
}

void vj_wait_unref(VjWait *w)
{
    VjFront *f = w->front;
    bool is_last, release = false;

    vj_mutex_lock(&f->lock);
    is_last = --w->refs == 0;
    if (is_last && w->handle != NULL && count_locked(f, w->handle, -1) == 0) {
        release = g_hash_table_remove(f->left, w->handle);
    }
    if (is_last && !release) {
        count_over_locked(f);
    }
    vj_mutex_unlock(&f->lock);
    if (release) {
        vj_fs_release(f->fs, w->handle);
        vj_mutex_lock(&f->lock);
        count_over_locked(f);
        vj_mutex_unlock(&f->lock);
    }
    if (is_last) {
        g_free(w);
    }
}

void vj_front_await_waits(VjFront *f)
{
    vj_mutex_lock(&f->lock);
    g_assert(f->ended);
    while (f->waits > 0) {
        vj_cond_wait(&f->changed, &f->lock);
    }
    vj_mutex_unlock(&f->lock);
}

/* What still stands in the queue is not begun. */
static void answer_dying(VjFront *f, VjWait *w)
{
    bool was_queued;

    if (!vj_wait_claim(w)) {
        return;
    }
    vj_trace(front, "a caller that is killed waits no more: %d", (int)w->tid);
    fuse_reply_err(w->req, EINTR);
    vj_mutex_lock(&f->lock);
    was_queued = g_queue_remove(&f->sync_jobs, w);
    vj_mutex_unlock(&f->lock);
    if (was_queued) {
        vj_wait_unref(w);
    }
}

/* Those that are answered leave the list, others are copied with a reference.  Under
 * f->lock. */
static void sort_locked(VjFront *f, GPtrArray *open, GPtrArray *answered)
    VJ_REQUIRES(f->lock)
{
    for (guint i = f->interrupted->len; i-- > 0;) {
        VjWait *w = g_ptr_array_index(f->interrupted, i);

        if (w->is_answered) {
            g_ptr_array_add(answered, g_ptr_array_remove_index_fast(f->interrupted, i));
        } else {
            w->refs++;
            g_ptr_array_add(open, w);
        }
    }
}

/* ---- requests that wait for another machine ---------------------------------------- */

void vj_served_init(VjServed *s, VjFront *f)
{
    *s = (VjServed){.unique = 0};
    vj_cancel_init(&s->cancel);
    vj_mutex_lock(&f->lock);
    g_ptr_array_add(f->served, s);
    vj_mutex_unlock(&f->lock);
}

void vj_served_clear(VjServed *s, VjFront *f)
{
    vj_mutex_lock(&f->lock);
    g_ptr_array_remove_fast(f->served, s);
    vj_mutex_unlock(&f->lock);
    vj_cancel_clear(&s->cancel);
}

/* Its INTERRUPT has come already. */
static bool take_early_locked(VjFront *f, uint64_t unique) VJ_REQUIRES(f->lock)
{
    for (unsigned i = 0; i < VJ_FRONT_EARLY_MAX; i++) {
        if (f->early[i] == unique) {
            f->early[i] = 0;
            return true;
        }
    }
    return false;
}

void vj_served_begin(VjServed *s, VjFront *f, uint64_t unique, pid_t tid)
{
    bool watch;

    vj_cancel_reset(&s->cancel, f->wait_us);
    vj_mutex_lock(&f->lock);
    s->unique = unique;
    s->tid = tid;
    s->is_interrupted = watch = take_early_locked(f, unique);
    vj_mutex_unlock(&f->lock);
    if (watch) {
        watch_push(f);
    }
    vj_cancel_enter(&s->cancel);
}

void vj_served_end(VjServed *s, VjFront *f)
{
    (void)vj_cancel_leave();
    vj_mutex_lock(&f->lock);
    s->unique = 0;
    vj_mutex_unlock(&f->lock);
}

void vj_served_interrupt(VjFront *f, uint64_t unique)
{
    bool found = false;

    vj_mutex_lock(&f->lock);
    for (guint i = 0; i < f->served->len; i++) {
        VjServed *s = f->served->pdata[i];

        if (s->unique == unique) {
            s->is_interrupted = found = true;
        }
    }
    if (!found) {
        f->early[f->early_next++ % VJ_FRONT_EARLY_MAX] = unique;
    }
    vj_mutex_unlock(&f->lock);
    if (found) {
        watch_push(f);
    }
}

void vj_served_cancel_all(VjFront *f)
{
    for (guint i = 0; i < f->served->len; i++) {
        VjServed *s = f->served->pdata[i];

        if (s->unique != 0) {
            vj_cancel_fire(&s->cancel);
        }
    }
}

typedef struct Interrupted {
    uint64_t unique;
    pid_t tid;
} Interrupted;

/* The requests that were interrupted and still are worked on.  Under f->lock. */
static GArray *interrupted_locked(VjFront *f) VJ_REQUIRES(f->lock)
{
    GArray *found = g_array_new(FALSE, FALSE, sizeof(Interrupted));

    for (guint i = 0; i < f->served->len; i++) {
        const VjServed *s = f->served->pdata[i];
        Interrupted one = {s->unique, s->tid};

        if (s->unique != 0 && s->is_interrupted) {
            g_array_append_val(found, one);
        }
    }
    return found;
}

static void cancel_dying(VjFront *f, const Interrupted *one)
{
    if (!is_dying(one->tid)) {
        return;
    }
    vj_trace(front, "a caller is killed: %d", (int)one->tid);
    vj_mutex_lock(&f->lock);
    for (guint i = 0; i < f->served->len; i++) {
        VjServed *s = f->served->pdata[i];

        if (s->unique == one->unique) {
            vj_cancel_fire(&s->cancel);
        }
    }
    vj_mutex_unlock(&f->lock);
}

/* ---- the thread that looks --------------------------------------------------------- */

void vj_front_watch(gpointer data, gpointer user_data)
{
    VjFront *f = user_data;
    bool is_over = false;

    (void)data;
    while (!is_over) {
        g_autoptr(GPtrArray) open = g_ptr_array_new();
        g_autoptr(GPtrArray) answered = g_ptr_array_new();
        g_autoptr(GArray) served = NULL;
        int64_t until_us = vj_clock_mono_us() + LOOK_US;

        vj_mutex_lock(&f->lock);
        sort_locked(f, open, answered);
        served = interrupted_locked(f);
        is_over = f->interrupted->len == 0 && served->len == 0;
        vj_mutex_unlock(&f->lock);
        for (guint i = 0; i < served->len; i++) {
            cancel_dying(f, &g_array_index(served, Interrupted, i));
        }
        for (guint i = 0; i < open->len; i++) {
            VjWait *w = g_ptr_array_index(open, i);

            if (is_dying(w->tid)) {
                answer_dying(f, w);
            }
            vj_wait_unref(w);
        }
        for (guint i = 0; i < answered->len; i++) {
            vj_wait_unref(g_ptr_array_index(answered, i));
        }
        /* The next signal is not reported: it is looked for. */
        vj_mutex_lock(&f->lock);
        while (!is_over && vj_cond_wait_until(&f->changed, &f->lock, until_us)) {
        }
        vj_mutex_unlock(&f->lock);
    }
}
