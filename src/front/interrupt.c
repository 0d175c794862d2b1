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
 * Any other request may wait as long: for a store or an engine that hangs, or for memory
 * for changes.  So each thread's request is listed here, and one whose caller dies is
 * cancelled.  A thread that waits in a system call does not see that.  When it stands in
 * a stall (base/cancel.h) the request is abandoned: it is answered here, in the thread's
 * place, whose own answer the kernel refuses later.  The handles that the thread may
 * still use stay meanwhile, closed or not.
 *
 * The kernel sends no INTERRUPT for what a caller does not wait for itself, as aio, and
 * with all threads in stalls none is received: so vj_serve looks at all requests once a
 * second.
 *
 * Where the daemon does not see the caller in /proc (another pid namespace, hidepid)
 * there is no knowing, and the caller waits.
 */
#include "front/front-private.h"

#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* How often the watcher looks whether an interrupted caller is to die. */
#define LOOK_US ((int64_t)100000)
/* Of the kernel's task flags, in proc(5). */
#define PF_EXITING 0x4u

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

/* What stands behind @name in decimal. */
static uint64_t status_number(const char *status, const char *name)
{
    const char *at = strstr(status, name);

    return at == NULL ? 0 : g_ascii_strtoull(at + strlen(name), NULL, 10);
}

/* The first process of a pid namespace: the last number of "NSpid:\t4711\t1". */
static bool is_init(const char *status)
{
    const char *at = strstr(status, "\nNSpid:");
    const char *end = at == NULL ? NULL : strchr(at + 1, '\n');

    return end != NULL && end - at > 3 && end[-1] == '1' && end[-2] == '\t';
}

/* The signals that do not end the thread of @status.  What is pending for a traced one
 * its tracer may take away, and for the first process of a namespace the kernel does; but
 * not SIGKILL. */
static uint64_t kept_signals(const char *status)
{
    if (is_init(status) || status_number(status, "\nTracerPid:") != 0) {
        return ~((uint64_t)1 << (SIGKILL - 1));
    }
    return signal_set(status, "\nSigBlk:") | signal_set(status, "\nSigIgn:") |
           signal_set(status, "\nSigCgt:") | harmless_signals();
}

/* It is in its exit(2), where it took the signal off.  PF_EXITING in the flags, which are
 * the seventh field behind the name of the program. */
static bool is_exiting(pid_t tid)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/stat", (int)tid);
    g_autofree char *stat = NULL;
    unsigned flags = 0;
    const char *at;

    if (!g_file_get_contents(path, &stat, NULL, NULL)) {
        return false;
    }
    at = strrchr(stat, ')');
    return at != NULL && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
           (flags & PF_EXITING) != 0;
}

/* Thread @tid has a signal pending that ends it, or has ended.  Of signals that leave no
 * core the kernel makes a SIGKILL for each thread. */
static bool is_dying(pid_t tid)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/status", (int)tid);
    g_autofree char *status = NULL;
    uint64_t pending;

    if (tid <= 0) {
        return false;
    }
    if (!g_file_get_contents(path, &status, NULL, NULL)) {
        return kill(tid, 0) < 0 && errno == ESRCH;
    }
    pending = signal_set(status, "\nSigPnd:") | signal_set(status, "\nShdPnd:");
    return (pending & ~kept_signals(status)) != 0 || is_exiting(tid);
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

/* The kernel does not use @h any more, and no wait does.  True: the caller releases it;
 * false: a request may use it that was abandoned.  Under f->lock. */
static bool may_release_locked(VjFront *f, VjHandle *h) VJ_REQUIRES(f->lock)
{
    VjParked one = {h, f->abandoned_last};

    if (f->abandoned_open > 0) {
        g_array_append_val(f->parked, one);
    }
    return f->abandoned_open == 0;
}

void vj_front_handle_drop(VjFront *f, VjHandle *h)
{
    bool release = false;

    vj_stage_forget_handle(f->staged, h);
    vj_mutex_lock(&f->lock);
    g_hash_table_remove(f->handles, h);
    if (g_hash_table_contains(f->awaited, h)) {
        g_hash_table_add(f->left, h);
    } else {
        release = may_release_locked(f, h);
    }
    vj_mutex_unlock(&f->lock);
    if (release) {
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
        release =
            g_hash_table_remove(f->left, w->handle) && may_release_locked(f, w->handle);
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

/* ---- requests that threads work on ------------------------------------------------- */

static uint64_t unique_of(const VjServed *s)
{
    return __atomic_load_n(&s->unique, __ATOMIC_SEQ_CST);
}

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

static void early_drop_locked(VjFront *f, VjEarly *e) VJ_REQUIRES(f->lock)
{
    e->unique = 0;
    (void)g_atomic_int_dec_and_test(&f->early_count);
}

/* Its INTERRUPT has come already. */
static bool take_early_locked(VjFront *f, uint64_t unique) VJ_REQUIRES(f->lock)
{
    int64_t old_us = vj_clock_mono_us() - VJ_FRONT_EARLY_US;
    bool found = false;

    for (unsigned i = 0; i < VJ_FRONT_EARLY_MAX; i++) {
        VjEarly *e = &f->early[i];

        if (e->unique != 0 && (e->unique == unique || e->at_us < old_us)) {
            found = found || e->unique == unique;
            early_drop_locked(f, e);
        }
    }
    return found;
}

static void put_early_locked(VjFront *f, uint64_t unique) VJ_REQUIRES(f->lock)
{
    VjEarly *e = &f->early[f->early_next++ % VJ_FRONT_EARLY_MAX];

    if (e->unique == 0) {
        g_atomic_int_inc(&f->early_count);
    }
    *e = (VjEarly){unique, vj_clock_mono_us()};
}

static void begin_early(VjServed *s, VjFront *f, uint64_t unique)
{
    bool found;

    vj_mutex_lock(&f->lock);
    found = take_early_locked(f, unique);
    vj_mutex_unlock(&f->lock);
    if (found) {
        g_atomic_int_set(&s->is_interrupted, 1);
        watch_push(f);
    }
}

static void begin_looking(VjFront *f)
{
    vj_mutex_lock(&f->lock);
    g_atomic_int_set(&f->is_looking, 1);
    vj_cond_broadcast(&f->changed);
    vj_mutex_unlock(&f->lock);
}

/* No lock is taken where nothing has happened.  Who gives an INTERRUPT, or looks, writes
 * that down first and looks for the request then; here it is the other way round.  What
 * stands before the number is seen with it. */
void vj_served_begin(VjServed *s, VjFront *f, uint64_t unique, pid_t tid)
{
    vj_cancel_reset(&s->cancel, unique, f->wait_us);
    __atomic_store_n(&s->tid, (gint)tid, __ATOMIC_RELAXED);
    __atomic_store_n(&s->is_interrupted, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&s->changed_ino, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&s->unique, unique, __ATOMIC_SEQ_CST);
    if (g_atomic_int_get(&f->early_count) > 0) {
        begin_early(s, f, unique);
    }
    if (!g_atomic_int_get(&f->is_looking)) {
        begin_looking(f);
    }
    vj_cancel_enter(&s->cancel);
}

/* The place of the oldest request that was abandoned and is still worked on. */
static uint64_t oldest_locked(VjFront *f) VJ_REQUIRES(f->lock)
{
    uint64_t oldest = UINT64_MAX;

    for (guint i = 0; i < f->served->len; i++) {
        const VjServed *s = f->served->pdata[i];

        if (s->abandoned != 0) {
            oldest = MIN(oldest, s->abandoned);
        }
    }
    return oldest;
}

/* The thread has come back from a request that was abandoned. */
static void end_abandoned(VjServed *s, VjFront *f)
{
    g_autoptr(GPtrArray) release = g_ptr_array_new();
    uint64_t oldest;

    vj_mutex_lock(&f->lock);
    s->abandoned = 0;
    f->abandoned_open--;
    oldest = oldest_locked(f);
    for (guint i = f->parked->len; i-- > 0;) {
        const VjParked *p = &g_array_index(f->parked, VjParked, i);

        if (p->behind < oldest) {
            g_ptr_array_add(release, p->handle);
            g_array_remove_index_fast(f->parked, i);
        }
    }
    vj_mutex_unlock(&f->lock);
    for (guint i = 0; i < release->len; i++) {
        vj_fs_release(f->fs, release->pdata[i]);
    }
}

void vj_served_end(VjServed *s, VjFront *f)
{
    (void)vj_cancel_leave();
    __atomic_store_n(&s->unique, 0, __ATOMIC_RELEASE);
    if (vj_cancel_was_abandoned(&s->cancel)) {
        end_abandoned(s, f);
    }
}

/* NULL: it cannot be cancelled.  Its VjCancel is entered anew. */
static VjServed *of_this_thread(void)
{
    VjCancel *c = vj_cancel_leave();

    vj_cancel_enter(c);
    return (VjServed *)c;
}

VjServed *vj_served_hand_over(VjFront *f)
{
    VjServed *own = of_this_thread(), *s;

    if (own == NULL) {
        return NULL;
    }
    s = g_new(VjServed, 1);
    vj_served_init(s, f);
    (void)vj_cancel_leave();
    vj_served_begin(s, f, unique_of(own), (pid_t)g_atomic_int_get(&own->tid));
    vj_stall_begin();
    (void)vj_cancel_leave();
    vj_cancel_enter(&own->cancel);
    /* It may have been told to this thread's alone. */
    if (g_atomic_int_get(&own->is_interrupted)) {
        g_atomic_int_set(&s->is_interrupted, 1);
        watch_push(f);
    }
    return s;
}

void vj_served_last(VjServed *s, VjFront *f)
{
    VjCancel *own;

    if (s == NULL) {
        return;
    }
    own = vj_cancel_leave();
    vj_cancel_enter(&s->cancel);
    if (own != &s->cancel) {
        (void)!vj_stall_end(0); /* no other thread took it up */
    }
    vj_served_end(s, f);
    vj_served_clear(s, f);
    g_free(s);
    vj_cancel_enter(own != &s->cancel ? own : NULL);
}

void vj_served_changed(uint64_t ino)
{
    VjServed *s = of_this_thread();

    if (s != NULL) {
        __atomic_store_n(&s->changed_ino, ino, __ATOMIC_SEQ_CST);
    }
}

void vj_served_interrupt(VjFront *f, uint64_t unique)
{
    bool found = false;

    vj_mutex_lock(&f->lock);
    put_early_locked(f, unique);
    for (guint i = 0; i < f->served->len; i++) {
        VjServed *s = f->served->pdata[i];

        if (unique_of(s) == unique) {
            g_atomic_int_set(&s->is_interrupted, 1);
            found = true;
        }
    }
    if (found) {
        (void)take_early_locked(f, unique);
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
        uint64_t unique = unique_of(s);

        if (unique != 0) {
            vj_cancel_fire(&s->cancel, unique);
        }
    }
}

/* A request that was worked on when it was listed. */
typedef struct Listed {
    uint64_t unique;
    pid_t tid;
} Listed;

static void list_add(GArray *list, const VjServed *s, uint64_t unique)
{
    Listed one = {unique, (pid_t)g_atomic_int_get(&s->tid)};

    g_array_append_val(list, one);
}

/* Those that were interrupted and have no answer.  Under f->lock. */
static GArray *interrupted_locked(VjFront *f) VJ_REQUIRES(f->lock)
{
    GArray *found = g_array_new(FALSE, FALSE, sizeof(Listed));

    for (guint i = 0; i < f->served->len; i++) {
        const VjServed *s = f->served->pdata[i];
        uint64_t unique = unique_of(s);

        if (unique != 0 && s->abandoned == 0 && g_atomic_int_get(&s->is_interrupted)) {
            list_add(found, s, unique);
        }
    }
    return found;
}

/* True: it is the caller's, who may get the answer.  Under f->lock. */
static bool abandon_locked(VjFront *f, VjServed *s, uint64_t unique) VJ_REQUIRES(f->lock)
{
    if (!vj_cancel_abandon(&s->cancel, unique)) {
        return false;
    }
    s->abandoned = ++f->abandoned_last;
    f->abandoned_open++;
    return true;
}

/* Past libfuse, which has one answer for each request, and leaves that to the thread. */
static void answer_abandoned(VjFront *f, uint64_t unique, uint64_t changed_ino)
{
    struct fuse_out_header out = {.len = sizeof out, .error = -EINTR, .unique = unique};
    ssize_t written = write(fuse_session_fd(f->session), &out, sizeof out);

    /* ENOENT: the thread was faster.  ENODEV: unmounted. */
    if (written < 0 && errno != ENOENT && errno != ENODEV) {
        vj_log_warn("%s: the request of a caller that is killed cannot be answered: %s",
                    f->mountpoint, g_strerror(errno));
    }
    if (changed_ino != 0) {
        vj_editor_stale(f->editor, changed_ino, 0, VJ_FILE_SIZE_MAX);
    }
}

/* First it is cancelled; if that does not end it until the next look it is abandoned. */
static void cancel_dying(VjFront *f, const Listed *one)
{
    uint64_t changed_ino = 0;
    bool is_abandoned = false;

    if (!is_dying(one->tid)) {
        return;
    }
    vj_mutex_lock(&f->lock);
    for (guint i = 0; i < f->served->len; i++) {
        VjServed *s = f->served->pdata[i];

        if (unique_of(s) == one->unique && s->fired != one->unique) {
            s->fired = one->unique;
            vj_cancel_fire(&s->cancel, one->unique);
        } else if (unique_of(s) == one->unique && abandon_locked(f, s, one->unique)) {
            changed_ino = __atomic_load_n(&s->changed_ino, __ATOMIC_SEQ_CST);
            is_abandoned = true;
        }
    }
    vj_mutex_unlock(&f->lock);
    vj_trace(front, "a caller is killed: %d%s", (int)one->tid,
             is_abandoned ? ": it is answered" : "");
    if (is_abandoned) {
        answer_abandoned(f, one->unique, changed_ino);
    }
}

/* Those that were there at the last look.  False: none is served.  Under f->lock. */
static bool list_old_locked(VjFront *f, GArray *old) VJ_REQUIRES(f->lock)
{
    bool any = false;

    for (guint i = 0; i < f->served->len; i++) {
        VjServed *s = f->served->pdata[i];
        uint64_t unique = unique_of(s);

        if (unique != 0 && unique == s->looked_at && s->abandoned == 0) {
            list_add(old, s, unique);
        }
        any = any || unique != 0;
        s->looked_at = unique;
    }
    return any;
}

void vj_served_look(VjFront *f)
{
    g_autoptr(GArray) old = g_array_new(FALSE, FALSE, sizeof(Listed));

    vj_mutex_lock(&f->lock);
    if (!list_old_locked(f, old)) {
        /* One that has begun meanwhile may not have seen that. */
        g_atomic_int_set(&f->is_looking, 0);
        g_atomic_int_set(&f->is_looking, list_old_locked(f, old) ? 1 : 0);
    }
    vj_mutex_unlock(&f->lock);
    for (guint i = 0; i < old->len; i++) {
        const Listed *one = &g_array_index(old, Listed, i);

        if (is_dying(one->tid)) {
            vj_served_interrupt(f, one->unique);
        }
    }
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
            cancel_dying(f, &g_array_index(served, Listed, i));
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
