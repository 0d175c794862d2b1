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
 * place, whose own answer the kernel refuses later.  The handles that the thread uses
 * stay meanwhile, closed or not.
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
#include <unistd.h>

/* How often the watcher looks whether an interrupted caller is to die. */
#define LOOK_US ((int64_t)100000)

/* ---- handles ----------------------------------------------------------------------- */

/* One wait or abandoned request more, or less, that needs @h.  Under f->lock; returns how
 * many there are. */
static unsigned count_locked(VjFront *f, VjHandle *h, int change) VJ_REQUIRES(f->lock)
{
    unsigned before = GPOINTER_TO_UINT(g_hash_table_lookup(f->awaited, h));
    unsigned count = before + (unsigned)change;

    g_assert(change > 0 || before > 0);
    if (count == 0) {
        g_hash_table_remove(f->awaited, h);
    } else {
        g_hash_table_insert(f->awaited, h, GUINT_TO_POINTER(count));
    }
    return count;
}

/* One need less.  True: it was the last one, the kernel uses @h no more, and the caller
 * releases it.  Under f->lock. */
static bool is_left_locked(VjFront *f, VjHandle *h) VJ_REQUIRES(f->lock)
{
    return count_locked(f, h, -1) == 0 && g_hash_table_remove(f->left, h);
}

void vj_front_handle_add(VjFront *f, VjHandle *h)
{
    vj_mutex_lock(&f->lock);
    g_hash_table_add(f->handles, h);
    vj_mutex_unlock(&f->lock);
}

void vj_front_handle_drop(VjFront *f, VjHandle *h)
{
    bool release = true;

    vj_stage_forget_handle(f->staged, h);
    vj_mutex_lock(&f->lock);
    g_hash_table_remove(f->handles, h);
    if (g_hash_table_contains(f->awaited, h)) {
        g_hash_table_add(f->left, h);
        release = false;
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

/* True: the watcher is to look.  Under f->lock. */
static bool interrupt_locked(VjFront *f, VjWait *w) VJ_REQUIRES(f->lock)
{
    if (w->is_answered || w->is_interrupted) {
        return false;
    }
    w->is_interrupted = true;
    w->refs++;
    g_ptr_array_add(f->interrupted, w);
    return f->interrupted->len == 1;
}

/* libfuse calls it with a lock of its own held. */
static void on_interrupt(fuse_req_t req, void *data)
{
    VjWait *w = data;
    VjFront *f = w->front;
    bool begin;

    (void)req;
    vj_mutex_lock(&f->lock);
    begin = interrupt_locked(f, w);
    vj_mutex_unlock(&f->lock);
    if (begin) {
        watch_push(f);
    }
}

void vj_wait_begin(VjWait *w, VjFront *f, fuse_req_t req, VjHandle *h)
{
    *w = (VjWait){
        .front = f, .req = req, .handle = h, .tid = fuse_req_ctx(req)->pid, .refs = 1};
    vj_count_hand_over(f->count, req);
    vj_mutex_lock(&f->lock);
    f->waits++;
    if (h != NULL) {
        (void)count_locked(f, h, 1);
    }
    vj_mutex_unlock(&f->lock);
    fuse_req_interrupt_func(req, on_interrupt, w);
    /* Only now: who looks at it may answer @req. */
    vj_mutex_lock(&f->lock);
    g_hash_table_add(f->waiting, w);
    vj_mutex_unlock(&f->lock);
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

/* True: it was the last one, and f->waits is the caller's to count down, when *release is
 * released.  NULL: nothing is. */
static bool unref(VjWait *w, VjHandle **release)
{
    VjFront *f = w->front;
    bool is_last;

    *release = NULL;
    vj_mutex_lock(&f->lock);
    is_last = --w->refs == 0;
    if (is_last) {
        g_hash_table_remove(f->waiting, w);
    }
    if (is_last && w->handle != NULL && is_left_locked(f, w->handle)) {
        *release = w->handle;
    }
    vj_mutex_unlock(&f->lock);
    if (is_last) {
        g_free(w);
    }
    return is_last;
}

static void count_over(VjFront *f)
{
    vj_mutex_lock(&f->lock);
    count_over_locked(f);
    vj_mutex_unlock(&f->lock);
}

void vj_wait_unref(VjWait *w)
{
    VjFront *f = w->front;
    VjHandle *release;

    if (unref(w, &release)) {
        if (release != NULL) {
            /* It may be another caller's than the one that this thread serves. */
            VjCancel *own = vj_cancel_leave();

            vj_fs_release(f->fs, release);
            vj_cancel_enter(own);
        }
        count_over(f);
    }
}

/* By a queue of ours, under a lock that race checkers see; the pool's counts them. */
static void let_go(VjFront *f, VjHandle *h)
{
    vj_mutex_lock(&f->lock);
    g_queue_push_tail(&f->let_go, h);
    (void)g_thread_pool_push(f->releaser, f, NULL); /* its thread is there */
    vj_mutex_unlock(&f->lock);
}

/* The same in the watcher, which nothing may hold up. */
static void unref_in_watcher(VjWait *w)
{
    VjFront *f = w->front;
    VjHandle *release;

    if (unref(w, &release)) {
        if (release != NULL) {
            let_go(f, release);
        } else {
            count_over(f);
        }
    }
}

void vj_front_release_left(gpointer data, gpointer user_data)
{
    VjFront *f = user_data;
    VjHandle *h;

    (void)data;
    vj_mutex_lock(&f->lock);
    h = g_queue_pop_head(&f->let_go);
    vj_mutex_unlock(&f->lock);
    vj_fs_release(f->fs, h);
    count_over(f);
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
        unref_in_watcher(w);
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

void vj_served_be_seen(VjFront *f)
{
    if (!g_atomic_int_get(&f->is_looking)) {
        begin_looking(f);
    }
}

/* Without a lock, unless an INTERRUPT came before its request.  The fields are stored
 * before the request's number, so whoever reads the number sees them.  Then the counter
 * of early INTERRUPTs is read; who receives one raises the counter and then reads the
 * numbers: one of the two sees the other. */
void vj_served_begin(VjServed *s, VjFront *f, uint64_t unique, pid_t tid, bool may_be_aio)
{
    vj_cancel_reset(&s->cancel, unique, f->wait_us);
    __atomic_store_n(&s->tid, (gint)tid, __ATOMIC_RELAXED);
    __atomic_store_n(&s->is_interrupted, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&s->may_be_aio, may_be_aio, __ATOMIC_RELAXED);
    __atomic_store_n(&s->changed_ino, 0, __ATOMIC_RELAXED);
    memset(s->handles, 0, sizeof s->handles);
    __atomic_store_n(&s->unique, unique, __ATOMIC_SEQ_CST);
    if (g_atomic_int_get(&f->early_count) > 0) {
        begin_early(s, f, unique);
    }
    vj_served_be_seen(f);
    vj_cancel_enter(&s->cancel);
}

/* The thread has come back from a request that was abandoned. */
static void end_abandoned(VjServed *s, VjFront *f)
{
    VjHandle *release[VJ_SERVED_HANDLES] = {NULL};

    vj_mutex_lock(&f->lock);
    s->is_abandoned = false;
    f->threads_left -= !s->is_job;
    for (unsigned i = 0; i < VJ_SERVED_HANDLES; i++) {
        if (s->handles[i] != NULL && is_left_locked(f, s->handles[i])) {
            release[i] = s->handles[i];
        }
    }
    vj_mutex_unlock(&f->lock);
    for (unsigned i = 0; i < VJ_SERVED_HANDLES; i++) {
        if (release[i] != NULL) {
            vj_fs_release(f->fs, release[i]);
        }
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

/* NULL: it cannot be cancelled.  The threads of this room enter no other VjCancel. */
static VjServed *of_this_thread(void)
{
    return (VjServed *)vj_cancel_current();
}

void vj_served_uses(VjHandle *h)
{
    VjServed *s = of_this_thread();

    /* Whoever abandons a request counts what it has named by then. */
    g_assert(s == NULL || (s->cancel.depth == 0 && !vj_cancel_was_abandoned(&s->cancel)));
    for (unsigned i = 0; s != NULL && i < VJ_SERVED_HANDLES; i++) {
        if (s->handles[i] == NULL || s->handles[i] == h) {
            s->handles[i] = h;
            return;
        }
    }
    g_assert(s == NULL);
}

VjServed *vj_served_hand_over(VjFront *f)
{
    VjServed *own = of_this_thread(), *s;

    if (own == NULL) {
        return NULL;
    }
    s = g_new(VjServed, 1);
    vj_served_init(s, f);
    s->is_job = true;
    (void)vj_cancel_leave();
    vj_served_begin(s, f, unique_of(own), (pid_t)g_atomic_int_get(&own->tid),
                    g_atomic_int_get(&own->may_be_aio) != 0);
    memcpy(s->handles, own->handles, sizeof s->handles);
    __atomic_store_n(&s->changed_ino, own->changed_ino, __ATOMIC_SEQ_CST);
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
    bool is_its;

    if (s == NULL) {
        return;
    }
    own = vj_cancel_leave();
    is_its = own == &s->cancel;
    vj_cancel_enter(&s->cancel);
    if (!is_its) {
        (void)!vj_stall_end(0); /* no other thread took it up */
    }
    vj_served_end(s, f);
    vj_served_clear(s, f);
    g_free(s);
    vj_cancel_enter(is_its ? NULL : own);
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
    bool found = false, begin = false;

    vj_mutex_lock(&f->lock);
    put_early_locked(f, unique);
    for (guint i = 0; i < f->served->len; i++) {
        VjServed *s = f->served->pdata[i];

        if (unique_of(s) == unique) {
            found = true;
            begin = g_atomic_int_compare_and_exchange(&s->is_interrupted, 0, 1) || begin;
        }
    }
    if (found) {
        (void)take_early_locked(f, unique);
    }
    vj_mutex_unlock(&f->lock);
    if (begin) {
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
    pid_t group; /* of aio; 0: it is none, or that is not known */
} Listed;

static void list_add(GArray *list, const VjServed *s, uint64_t unique)
{
    Listed one = {unique, (pid_t)g_atomic_int_get(&s->tid),
                  unique == s->looked_at ? s->group : 0};

    g_array_append_val(list, one);
}

/* The thread that has sent aio may end, and its process lives. */
static bool is_dying(const Listed *one)
{
    return vj_thread_is_dying(one->tid) || vj_thread_group_is_killed(one->group);
}

/* Those that were interrupted and have no answer.  Under f->lock. */
static GArray *interrupted_locked(VjFront *f) VJ_REQUIRES(f->lock)
{
    GArray *found = g_array_new(FALSE, FALSE, sizeof(Listed));

    for (guint i = 0; i < f->served->len; i++) {
        const VjServed *s = f->served->pdata[i];
        uint64_t unique = unique_of(s);

        if (unique != 0 && !s->is_abandoned && g_atomic_int_get(&s->is_interrupted)) {
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
    s->is_abandoned = true;
    f->threads_left += !s->is_job;
    for (unsigned i = 0; i < VJ_SERVED_HANDLES; i++) {
        if (s->handles[i] != NULL) {
            (void)count_locked(f, s->handles[i], 1);
        }
    }
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
        f->tell_changed(f, changed_ino);
    }
}

/* First it is cancelled; if that does not end it until the next look it is abandoned. */
static void cancel_dying(VjFront *f, const Listed *one)
{
    uint64_t changed_ino = 0;
    bool is_abandoned = false;

    if (!is_dying(one)) {
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

/* Those that were there at the last look, and those that were not.  Under f->lock. */
static bool list_served_locked(VjFront *f, GArray *old, GArray *unseen)
    VJ_REQUIRES(f->lock)
{
    bool any = false;

    for (guint i = 0; i < f->served->len; i++) {
        VjServed *s = f->served->pdata[i];
        uint64_t unique = unique_of(s);
        bool is_old = unique == s->looked_at;

        if (!is_old) {
            s->looked_at = unique;
            s->group = 0;
        }
        if (unique != 0 && !s->is_abandoned) {
            list_add(is_old ? old : unseen, s, unique);
        }
        any = any || unique != 0;
    }
    return any;
}

static void set_group(VjFront *f, uint64_t unique, pid_t group)
{
    vj_mutex_lock(&f->lock);
    for (guint i = 0; i < f->served->len; i++) {
        VjServed *s = f->served->pdata[i];

        if (s->looked_at == unique && g_atomic_int_get(&s->may_be_aio)) {
            s->group = group;
        }
    }
    vj_mutex_unlock(&f->lock);
}

/* With a reference each.  Under f->lock. */
static void list_waits_locked(VjFront *f, GPtrArray *old) VJ_REQUIRES(f->lock)
{
    GHashTableIter iter;
    gpointer key;

    g_hash_table_iter_init(&iter, f->waiting);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        VjWait *w = key;

        if (w->was_looked_at && !w->is_answered && !w->is_interrupted) {
            w->refs++;
            g_ptr_array_add(old, w);
        }
        w->was_looked_at = true;
    }
}

static void look_at_waits(VjFront *f, GPtrArray *old)
{
    for (guint i = 0; i < old->len; i++) {
        VjWait *w = old->pdata[i];
        bool begin = false;

        if (vj_thread_is_dying(w->tid)) {
            vj_mutex_lock(&f->lock);
            begin = interrupt_locked(f, w);
            vj_mutex_unlock(&f->lock);
        }
        if (begin) {
            watch_push(f);
        }
        unref_in_watcher(w);
    }
}

void vj_served_look(VjFront *f)
{
    g_autoptr(GArray) old = g_array_new(FALSE, FALSE, sizeof(Listed));
    g_autoptr(GArray) unseen = g_array_new(FALSE, FALSE, sizeof(Listed));
    g_autoptr(GPtrArray) waits = g_ptr_array_new();

    vj_mutex_lock(&f->lock);
    list_waits_locked(f, waits);
    if (!list_served_locked(f, old, unseen) && g_hash_table_size(f->waiting) == 0) {
        /* One that has begun meanwhile may not have seen that. */
        g_atomic_int_set(&f->is_looking, 0);
        g_atomic_int_set(&f->is_looking, list_served_locked(f, old, unseen) ? 1 : 0);
    }
    vj_mutex_unlock(&f->lock);
    for (guint i = 0; i < unseen->len; i++) {
        const Listed *one = &g_array_index(unseen, Listed, i);

        set_group(f, one->unique, vj_thread_group(one->tid));
    }
    vj_trace(front, "look: %u requests and %u waits since the last one", old->len,
             waits->len);
    for (guint i = 0; i < old->len; i++) {
        const Listed *one = &g_array_index(old, Listed, i);

        if (is_dying(one)) {
            vj_served_interrupt(f, one->unique);
        }
    }
    look_at_waits(f, waits);
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

            if (vj_thread_is_dying(w->tid)) {
                answer_dying(f, w);
            }
            unref_in_watcher(w);
        }
        for (guint i = 0; i < answered->len; i++) {
            unref_in_watcher(g_ptr_array_index(answered, i));
        }
        /* The next signal is not reported: it is looked for. */
        vj_mutex_lock(&f->lock);
        while (!is_over && vj_cond_wait_until(&f->changed, &f->lock, until_us)) {
        }
        vj_mutex_unlock(&f->lock);
    }
}
