/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * io.c - requests in flight of one store: threads that run them, deadlines, answers
 *
 *     vj_store_submit ──> driver's submit ──────────────> vj_io_complete
 *                    └──> waiting ──> worker: put, get … ──┘     │
 *                                                                v
 *     deadline passed, vj_store_cancel ─────────────────────> answer: done(), once
 *
 * A request is in flight from submit until the driver lets go of it (vj_io_complete); it
 * is answered at most once, by the first of these three.  One that comes later finds it
 * answered and only drops the driver's reference.  So a driver that hangs keeps its
 * buffers and its place among VJ_STORE_IN_FLIGHT_MAX, but holds up no caller.
 *
 * Threads start when they are needed.  Where none can be started, submit runs the request
 * itself, and a deadline may pass unseen (logged).
 */
#include "store/store-private.h"

struct VjIoQueue {
    VjStore *store;
    VjMutex lock; /* VJ_RANK_STORE_IO */
    VjCond work;  /* for workers */
    VjCond timer_work;
    VjCond let_go; /* one is not in flight any more */
    /* guarded by lock: */
    GQueue waiting;                       /* of VjIo, for workers */
    VjIo *first_deadline, *last_deadline; /* the next one first; not answered */
    int64_t timer_us; /* until then the thread for deadlines sleeps; may be too early */
    unsigned in_flight;
    unsigned idle; /* workers that wait */
    GPtrArray *threads;
    unsigned workers;
    bool has_timer;
    bool stop;
};

/* ---- requests ---------------------------------------------------------------------- */

static VjIo *io_new(VjIoOp op, uint64_t id)
{
    VjIo *io = vj_malloc0(sizeof *io);

    io->op = op;
    io->id = id;
    io->refs = 1;
    return io;
}

VjIo *vj_io_new_put(uint64_t id, VjBuf *buf, size_t len)
{
    VjIo *io = io_new(VJ_IO_PUT, id);

    g_assert(buf != NULL && len <= buf->cap && len <= VJ_STORE_OBJECT_MAX);
    io->buf = vj_buf_ref(buf);
    io->len = len;
    return io;
}

VjIo *vj_io_new_get(uint64_t id, VjLoc loc, uint64_t offset, size_t len)
{
    VjBuf *buf;
    VjIo *io;

    g_assert(offset <= VJ_STORE_OBJECT_MAX && len <= VJ_STORE_OBJECT_MAX - offset);
    buf = vj_buf_new(vj_store_room_bytes(len));
    if (buf == NULL) {
        return NULL;
    }
    io = io_new(VJ_IO_GET, id);
    io->loc = loc;
    io->offset = offset;
    io->len = len;
    io->buf = buf;
    return io;
}

VjIo *vj_io_new_remove(uint64_t id, VjLoc loc)
{
    VjIo *io = io_new(VJ_IO_REMOVE, id);

    io->loc = loc;
    return io;
}

VjIo *vj_io_new_flush(void)
{
    return io_new(VJ_IO_FLUSH, 0);
}

VjIo *vj_io_new_call(VjIoOp op)
{
    g_assert(op == VJ_IO_FLUSH_REMOVES || op == VJ_IO_SPACE);
    return io_new(op, 0);
}

VjIo *vj_io_ref(VjIo *io)
{
    g_atomic_int_inc(&io->refs);
    return io;
}

void vj_io_unref(VjIo *io)
{
    if (io != NULL && g_atomic_int_dec_and_test(&io->refs)) {
        vj_io_unref(io->child);
        vj_buf_unref(io->lead);
        vj_buf_unref(io->buf);
        g_free(io);
    }
}

/* It makes a locator. */
static bool is_put(const VjIo *io)
{
    return io->op == VJ_IO_PUT || io->op == VJ_IO_PUT_AS;
}

/* ---- answers ----------------------------------------------------------------------- */

/* Deadlines mostly come in the order of time: it is looked for from the end. */
static void deadline_add(VjIoQueue *q, VjIo *io) VJ_REQUIRES(q->lock)
{
    VjIo *before = q->last_deadline;

    while (before != NULL && before->deadline_us > io->deadline_us) {
        before = before->deadline_before;
    }
    io->is_watched = true;
    io->deadline_before = before;
    io->deadline_next = before == NULL ? q->first_deadline : before->deadline_next;
    *(before == NULL ? &q->first_deadline : &before->deadline_next) = io;
    *(io->deadline_next == NULL ? &q->last_deadline
                                : &io->deadline_next->deadline_before) = io;
}

static void deadline_remove(VjIoQueue *q, VjIo *io) VJ_REQUIRES(q->lock)
{
    VjIo *before = io->deadline_before, *next = io->deadline_next;

    *(before == NULL ? &q->first_deadline : &before->deadline_next) = next;
    *(next == NULL ? &q->last_deadline : &next->deadline_before) = before;
    io->is_watched = false;
}

/* False: another thread has answered it, or is about to. */
static bool claim(VjIoQueue *q, VjIo *io) VJ_REQUIRES(q->lock)
{
    vj_mutex_assert_held(&q->lock);
    if (io->is_answered) {
        return false;
    }
    io->is_answered = true;
    if (io->is_watched) {
        deadline_remove(q, io);
    }
    return true;
}

/* By the thread that claimed it. */
static void answer(VjIo *io, int rc, const VjPut *put)
{
    io->rc = rc;
    if (rc == 0 && is_put(io)) {
        io->put = *put;
    }
    vj_trace(store, "io op=%d id=%" G_GUINT64_FORMAT " rc=%d", io->op, io->id, rc);
    io->done(io);
}

/* The driver has done with it. */
static void let_go(VjIoQueue *q, VjIo *io)
{
    vj_io_unref(io);
    vj_mutex_lock(&q->lock);
    g_assert(q->in_flight > 0);
    q->in_flight--;
    vj_cond_broadcast(&q->let_go);
    vj_mutex_unlock(&q->lock);
}

static void forget(VjIo *io)
{
    vj_io_unref(io);
}

/* Put after all, too late: no caller has the locator.  What stays is for recovery or
 * gc, and what was put under a caller's number is that caller's. */
static void take_back(const VjIo *late, const VjPut *put)
{
    VjIo *io = vj_io_new_remove(put->id, put->loc);

    vj_log_info("store %s: object %" G_GUINT64_FORMAT " was put when its writer had gone",
                late->store->ops->name, put->id);
    io->done = forget;
    if (!vj_store_submit(late->store, io)) {
        vj_io_unref(io);
    }
}

void vj_io_complete(VjIo *io, int rc, const VjPut *put)
{
    VjIoQueue *q = io->store->queue;
    bool is_mine;

    g_assert(vj_store_result_is_sound(rc));
    if (rc == 0 && is_put(io)) {
        g_assert(put->id == io->id && put->stored_bytes == io->len);
        vj_store_count_put(io->store, io->len);
    }
    vj_mutex_lock(&q->lock);
    is_mine = claim(q, io);
    vj_mutex_unlock(&q->lock);
    if (is_mine) {
        answer(io, rc, put);
    } else if (rc == 0 && io->op == VJ_IO_PUT) {
        take_back(io, put);
    }
    let_go(q, io);
}

/* As the deadline and cancel do; the caller holds a reference.  False: it was answered.
 */
static bool answer_early(VjIoQueue *q, VjIo *io, int rc)
{
    bool is_mine, was_waiting = false;

    vj_mutex_lock(&q->lock);
    is_mine = claim(q, io);
    if (is_mine && io->is_waiting) {
        was_waiting = g_queue_remove(&q->waiting, io);
        io->is_waiting = false;
    }
    vj_mutex_unlock(&q->lock);
    if (!is_mine) {
        return false;
    }
    answer(io, rc, NULL);
    if (was_waiting) {
        let_go(q, io);
    }
    return true;
}

/* ---- threads ----------------------------------------------------------------------- */

static void run(VjStore *s, VjIo *io)
{
    VjPut put = {0};
    int rc = vj_store_call(s, io, &put);

    vj_io_complete(io, rc, &put);
}

static gpointer work(gpointer opaque)
{
    VjIoQueue *q = opaque;

    vj_mutex_lock(&q->lock);
    while (!q->stop) {
        VjIo *io = g_queue_pop_head(&q->waiting);

        if (io == NULL) {
            q->idle++;
            vj_cond_wait(&q->work, &q->lock);
            q->idle--;
            continue;
        }
        io->is_waiting = false;
        vj_mutex_unlock(&q->lock);
        run(q->store, io);
        vj_mutex_lock(&q->lock);
    }
    vj_mutex_unlock(&q->lock);
    return NULL;
}

/* Referenced: the first one whose deadline has passed.  NULL: none has, wait until
 * *next_us. */
static VjIo *overdue(VjIoQueue *q, int64_t *next_us) VJ_REQUIRES(q->lock)
{
    VjIo *io = q->first_deadline;

    *next_us = INT64_MAX;
    if (io == NULL) {
        return NULL;
    }
    *next_us = io->deadline_us;
    return vj_clock_mono_us() >= io->deadline_us ? vj_io_ref(io) : NULL;
}

static gpointer watch_deadlines(gpointer opaque)
{
    VjIoQueue *q = opaque;

    vj_mutex_lock(&q->lock);
    while (!q->stop) {
        int64_t next_us;
        VjIo *io = overdue(q, &next_us);

        if (io != NULL) {
            vj_mutex_unlock(&q->lock);
            (void)!answer_early(q, io, -ETIMEDOUT);
            vj_io_unref(io);
            vj_mutex_lock(&q->lock);
        } else if (next_us == INT64_MAX && q->timer_us == INT64_MAX) {
            vj_cond_wait(&q->timer_work, &q->lock);
        } else {
            /* Not without end at once: the next deadline mostly is a later one. */
            q->timer_us = MIN(next_us, q->timer_us);
            if (!vj_cond_wait_until(&q->timer_work, &q->lock, q->timer_us)) {
                q->timer_us = INT64_MAX;
            }
        }
    }
    vj_mutex_unlock(&q->lock);
    return NULL;
}

static bool start_thread(VjIoQueue *q, const char *name, GThreadFunc body)
    VJ_REQUIRES(q->lock)
{
    GThread *thread = g_thread_try_new(name, body, q, NULL);

    if (thread != NULL) {
        g_ptr_array_add(q->threads, thread);
    }
    return thread != NULL;
}

/* ---- submit and cancel ------------------------------------------------------------- */

static void watch(VjIoQueue *q, VjIo *io) VJ_REQUIRES(q->lock)
{
    if (io->deadline_us == 0 && q->store->timeout_us > 0) {
        io->deadline_us = vj_clock_mono_us() + q->store->timeout_us;
    }
    if (io->deadline_us == 0) {
        return;
    }
    if (!q->has_timer) {
        q->has_timer = start_thread(q, "store-deadlines", watch_deadlines);
        if (!q->has_timer) {
            vj_log_warn("store %s: no thread for deadlines: a request may take longer",
                        q->store->ops->name);
            return;
        }
    }
    deadline_add(q, io);
    if (io->deadline_us < q->timer_us) {
        q->timer_us = io->deadline_us;
        vj_cond_signal(&q->timer_work);
    }
}

/* Others are calls of the driver's, made by threads of the room. */
static bool is_for_submit(const VjStore *s, const VjIo *io)
{
    return s->ops->submit != NULL && io->op <= VJ_IO_FLUSH;
}

/* False: no thread will come to it. */
static bool leave_to_workers(VjIoQueue *q, VjIo *io) VJ_REQUIRES(q->lock)
{
    if (q->idle <= g_queue_get_length(&q->waiting) && q->workers < VJ_STORE_WORKERS_MAX &&
        start_thread(q, "store-worker", work)) {
        q->workers++;
    }
    if (q->workers == 0) {
        return false;
    }
    io->is_waiting = true;
    g_queue_push_tail(&q->waiting, io);
    vj_cond_signal(&q->work);
    return true;
}

bool vj_store_submit(VjStore *s, VjIo *io)
{
    VjIoQueue *q = s->queue;
    bool is_waiting = false;

    g_assert(io->done != NULL && io->store == NULL && io->deadline_us >= 0);
    g_assert(io->lead_len <= io->len && (io->lead != NULL) == (io->lead_len > 0));
    g_assert(io->buf == NULL || io->len - io->lead_len <= io->buf->cap);
    g_assert((io->offset & (vj_store_align_bytes(s) - 1)) == 0);
    vj_lock_assert_none();

    vj_mutex_lock(&q->lock);
    g_assert(!q->stop);
    if (q->in_flight >= VJ_STORE_IN_FLIGHT_MAX) {
        vj_mutex_unlock(&q->lock);
        return false;
    }
    q->in_flight++;
    io->store = s;
    vj_io_ref(io); /* the driver's */
    watch(q, io);
    if (!is_for_submit(s, io)) {
        is_waiting = leave_to_workers(q, io);
    }
    vj_mutex_unlock(&q->lock);
    if (is_for_submit(s, io)) {
        vj_store_call_submit(s, io);
    } else if (!is_waiting) {
        run(s, io);
    }
    return true;
}

void vj_store_cancel(VjStore *s, VjIo *io)
{
    g_assert(io->store == s);
    vj_lock_assert_none();
    vj_io_ref(io); /* done() may drop the caller's */
    if (answer_early(s->queue, io, -ECANCELED) && is_for_submit(s, io)) {
        vj_store_call_cancel(s, io);
    }
    vj_io_unref(io);
}

void vj_io_forward(VjStore *s, VjIo *io, void (*done)(VjIo *child))
{
    VjIo *child = io_new(io->op, io->id);

    child->loc = io->loc;
    child->offset = io->offset;
    child->len = io->len;
    child->buf = io->buf != NULL ? vj_buf_ref(io->buf) : NULL;
    child->lead = io->lead != NULL ? vj_buf_ref(io->lead) : NULL;
    child->lead_data = io->lead_data;
    child->lead_len = io->lead_len;
    child->deadline_us = io->deadline_us;
    child->is_checked = io->is_checked;
    child->more = io->more && s->ops->push != NULL;
    child->done = done;
    child->opaque = io;
    io->child = child;
    if (!vj_store_submit(s->next, child)) {
        /* Others use s->next beside @s. */
        vj_io_complete(io, -ENOMEM, NULL);
    }
}

/* ---- synchronous calls ------------------------------------------------------------- */

/* Where a thread waits, as long as it lives: the one that cancels it may come late. */
typedef struct Waiter {
    VjMutex lock; /* VJ_RANK_STORE_IO */
    VjCond changed;
} Waiter;

/* One request that it waits for. */
typedef struct Wait {
    Waiter *at;
    bool is_done; /* guarded by at->lock */
} Wait;

static void waiter_free(gpointer opaque)
{
    Waiter *w = opaque;

    vj_cond_clear(&w->changed);
    vj_mutex_clear(&w->lock);
    g_free(w);
}

static Waiter *waiter_of_thread(void)
{
    static GPrivate waiters = G_PRIVATE_INIT(waiter_free);
    Waiter *w = g_private_get(&waiters);

    if (w == NULL) {
        w = g_new0(Waiter, 1);
        vj_mutex_init(&w->lock, VJ_RANK_STORE_IO, "store.io.waiter");
        vj_cond_init(&w->changed);
        g_private_set(&waiters, w);
    }
    return w;
}

static void wake(VjIo *io)
{
    Wait *wait = io->opaque;
    Waiter *at = wait->at;

    vj_mutex_lock(&at->lock);
    wait->is_done = true;
    vj_cond_broadcast(&at->changed);
    vj_mutex_unlock(&at->lock);
}

/* 0: perhaps there is room; -ETIMEDOUT, -ECANCELED. */
static int wait_for_room(VjIoQueue *q, int64_t until_us)
{
    int rc = 0;

    vj_mutex_lock(&q->lock);
    while (rc == 0 && q->in_flight >= VJ_STORE_IN_FLIGHT_MAX) {
        rc = vj_cond_wait_or_cancel(&q->let_go, &q->lock, until_us);
    }
    vj_mutex_unlock(&q->lock);
    return rc;
}

/* Until the request is answered, or is not waited for any more: -ETIMEDOUT,
 * -ECANCELED. */
static int wait_for_answer(Wait *wait, int64_t until_us)
{
    Waiter *at = wait->at;
    int rc = 0;

    vj_mutex_lock(&at->lock);
    while (rc == 0 && !wait->is_done) {
        rc = vj_cond_wait_or_cancel(&at->changed, &at->lock, until_us);
    }
    vj_mutex_unlock(&at->lock);
    return rc;
}

static void wait_for_done(Wait *wait)
{
    Waiter *at = wait->at;

    vj_mutex_lock(&at->lock);
    while (!wait->is_done) {
        vj_cond_wait(&at->changed, &at->lock);
    }
    vj_mutex_unlock(&at->lock);
}

static bool is_answered(void *opaque)
{
    const Wait *wait = opaque;
    bool is_done;

    vj_mutex_lock(&wait->at->lock);
    is_done = wait->is_done;
    vj_mutex_unlock(&wait->at->lock);
    return is_done;
}

int vj_io_run(VjStore *s, VjIo *io)
{
    Wait wait = {.at = waiter_of_thread()};
    int64_t until_us = INT64_MAX;
    int rc = 0;

    if (s->timeout_us > 0) {
        io->deadline_us = vj_clock_mono_us() + s->timeout_us;
    } else {
        until_us = vj_cancel_deadline_us();
    }
    io->done = wake;
    io->opaque = &wait;
    io->has_helper = vj_store_call_can_help(s);
    while (rc == 0 && !vj_store_submit(s, io)) {
        rc = wait_for_room(s->queue, io->deadline_us > 0 ? io->deadline_us : until_us);
    }
    if (rc == 0) {
        vj_store_call_help(s, is_answered, &wait, until_us);
        rc = wait_for_answer(&wait, until_us);
        if (rc < 0) {
            vj_store_cancel(s, io);
        }
        wait_for_done(&wait);
        rc = rc < 0 && io->rc == -ECANCELED ? rc : io->rc;
    }
    io->opaque = NULL; /* done() was called, or will not be */
    return rc;
}

/* One of several that are waited for. */
typedef struct Removal {
    Wait wait;
    VjIo *io; /* NULL: it was not begun */
} Removal;

void vj_io_remove_all(VjStore *s, const VjPut *puts, size_t count, int *results)
{
    g_autofree Removal *removals = g_new0(Removal, count);

    for (size_t i = 0; i < count; i++) {
        VjIo *io = vj_io_new_remove(puts[i].id, puts[i].loc);

        removals[i].wait.at = waiter_of_thread();
        io->done = wake;
        io->opaque = &removals[i].wait;
        io->more = true;
        if (vj_store_submit(s, io)) {
            removals[i].io = io;
        } else {
            vj_io_unref(io);
        }
    }
    vj_store_call_push(s);
    for (size_t i = 0; i < count; i++) {
        if (removals[i].io == NULL) {
            results[i] = vj_store_remove(s, puts[i].id, puts[i].loc); /* waits for room */
            continue;
        }
        wait_for_done(&removals[i].wait);
        results[i] = removals[i].io->rc;
        g_assert(vj_store_result_is_sound(results[i]) && results[i] != -ENOENT);
        vj_io_unref(removals[i].io);
    }
}

/* ---- setup ------------------------------------------------------------------------- */

VjIoQueue *vj_io_queue_new(VjStore *s)
{
    VjIoQueue *q = g_new0(VjIoQueue, 1);

    q->store = s;
    vj_mutex_init(&q->lock, VJ_RANK_STORE_IO, "store.io");
    vj_cond_init(&q->work);
    vj_cond_init(&q->timer_work);
    vj_cond_init(&q->let_go);
    g_queue_init(&q->waiting);
    q->timer_us = INT64_MAX;
    q->threads = g_ptr_array_new();
    return q;
}

void vj_io_queue_free(VjIoQueue *q)
{
    if (q == NULL) {
        return;
    }
    vj_mutex_lock(&q->lock);
    while (q->in_flight > 0) {
        vj_cond_wait(&q->let_go, &q->lock);
    }
    q->stop = true;
    vj_cond_broadcast(&q->work);
    vj_cond_broadcast(&q->timer_work);
    vj_mutex_unlock(&q->lock);
    for (guint i = 0; i < q->threads->len; i++) {
        g_thread_join(g_ptr_array_index(q->threads, i));
    }
    g_ptr_array_unref(q->threads);
    vj_cond_clear(&q->let_go);
    vj_cond_clear(&q->timer_work);
    vj_cond_clear(&q->work);
    vj_mutex_clear(&q->lock);
    g_free(q);
}
