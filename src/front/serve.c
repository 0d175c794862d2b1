/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * serve.c - request threads: receive, handle, receive again
 *
 * As libfuse's own loop, but the buffers are ours: one that a WRITE arrived in is handed
 * over to the file with its bytes, which stand at the beginning of a page there, and the
 * thread takes another one.  To copy a MiB costs as much as half of the rest of such a
 * request.
 *
 * A thread is started when the last one that waited has got a request, and ends when
 * enough others wait.  One that has nothing left to do but to answer counts as one that
 * waits, and up to as many again may stand beside those whose requests were abandoned.
 *
 * The thread that calls vj_serve serves nothing: it waits for the end, joins threads, and
 * looks once a second for callers that die without an INTERRUPT.
 */
#include "front/serve-private.h"

#include <signal.h>

/* Smaller ones are copied: a buffer counts whole against dirty=. */
#define HAND_OVER_LEAST (VJ_FRONT_IO_MAX / 2)
/* How often waiting threads get the wake signal at the end, until all have seen it,
 * microseconds. */
#define WAKE_US ((int64_t)20000)
/* How often it is looked whether callers die without an INTERRUPT. */
#define LOOK_US ((int64_t)1000000)
/* How long requests may take when the mount ends, before they are cancelled. */
#define GRACE_US ((int64_t)2000000)

G_STATIC_ASSERT(VJ_FS_BLOCK_BYTES >= VJ_PAGE_BYTES + VJ_FRONT_IO_MAX);

static _Thread_local VjWorker *this_worker;

static gpointer worker_main(gpointer opaque);

/* ---- one thread -------------------------------------------------------------------- */

static void tell_over(VjServer *s, int error)
{
    VjFront *f = s->front;

    vj_mutex_lock(&f->lock);
    s->over = true;
    if (s->error == 0) {
        s->error = error;
    }
    vj_cond_broadcast(&f->changed);
    vj_mutex_unlock(&f->lock);
}

/* The bytes of the next request; 0: it is over. */
static size_t receive(VjServer *s, VjWorker *w)
{
    ssize_t got = vj_receive(s, w);

    if (got > 0) {
        return (size_t)got;
    }
    tell_over(s, (int)got);
    fuse_session_exit(s->front->session);
    return 0;
}

static bool is_forget(const VjWorker *w)
{
    uint32_t opcode = vj_worker_head(w).opcode;

    return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET;
}

/* Pages that the kernel writes back: on an error it would lose them. */
static bool is_write_back(const VjWorker *w, size_t len)
{
    struct fuse_write_in in;

    if (len < sizeof(struct fuse_in_header) + sizeof in) {
        return false; /* libfuse refuses it */
    }
    memcpy(&in, w->block + VJ_HEAD_SKIP + sizeof(struct fuse_in_header), sizeof in);
    return (in.write_flags & FUSE_WRITE_CACHE) != 0;
}

/* A request for whose answer no caller waits is carried through. */
static bool may_be_cancelled(const VjWorker *w, size_t len)
{
    switch (vj_worker_head(w).opcode) {
    case FUSE_WRITE:
        return !is_write_back(w, len);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_INTERRUPT:
    case FUSE_INIT:
    case FUSE_DESTROY:
        return false;
    default:
        return true;
    }
}

static void note_interrupt(VjFront *f, const VjWorker *w, size_t len)
{
    struct fuse_interrupt_in interrupt;

    if (len >= sizeof(struct fuse_in_header) + sizeof interrupt) {
        memcpy(&interrupt, w->block + VJ_HEAD_SKIP + sizeof(struct fuse_in_header),
               sizeof interrupt);
        vj_served_interrupt(f, interrupt.unique);
    }
}

static void process(VjFront *f, VjWorker *w, size_t len)
{
    struct fuse_buf request = {.mem = w->block + VJ_HEAD_SKIP, .size = len};
    struct fuse_in_header head = vj_worker_head(w);
    bool is_cancellable = may_be_cancelled(w, len);

    if (head.opcode == FUSE_INTERRUPT) {
        note_interrupt(f, w, len);
    }
    if (is_cancellable) {
        vj_served_begin(&w->served, f, head.unique, (pid_t)head.pid,
                        head.opcode == FUSE_READ || head.opcode == FUSE_WRITE);
    }
    vj_count_begins(f->count, request.mem, len);
    fuse_session_process_buf(f->session, &request);
    vj_count_ends();
    if (is_cancellable) {
        vj_served_end(&w->served, f);
    }
}

/* Those that have ended are gone when it returns. */
static void join_ended(VjServer *s)
{
    VjFront *f = s->front;
    GThread *thread;

    do {
        vj_mutex_lock(&f->lock);
        thread = s->ended->len > 0 ? g_ptr_array_remove_index_fast(s->ended, 0) : NULL;
        vj_mutex_unlock(&f->lock);
        if (thread != NULL) {
            g_thread_join(thread);
        }
    } while (thread != NULL);
}

/* One more, if there may be one; -errno. */
static int start_worker(VjServer *s)
{
    VjFront *f = s->front;
    GThread *thread = NULL;
    VjWorker *w;
    bool may;

    vj_mutex_lock(&f->lock);
    /* Those that stay behind in a store do not count, up to as many. */
    may = s->count < s->most + MIN(f->threads_left, s->most) && !s->over;
    s->count += may;
    vj_mutex_unlock(&f->lock);
    if (!may) {
        return -EAGAIN;
    }
    join_ended(s);
    w = g_new0(VjWorker, 1);
    w->server = s;
    w->block = vj_fs_block_new(f->fs);
    if (w->block != NULL) {
        thread = g_thread_try_new("varjfs-serve", worker_main, w, NULL);
    }
    if (thread == NULL) {
        vj_fs_block_free(f->fs, w->block);
        g_free(w);
        vj_mutex_lock(&f->lock);
        s->count--;
        vj_mutex_unlock(&f->lock);
        return -ENOMEM;
    }
    vj_mutex_lock(&f->lock);
    w->handle = thread;
    vj_cond_broadcast(&f->changed);
    vj_mutex_unlock(&f->lock);
    return 0;
}

bool vj_front_has_threads(VjFront *f, unsigned busy)
{
    return f->delays.threads >= 4 * busy && g_atomic_int_get(&f->short_of_threads) == 0;
}

static void are_too_few(VjFront *f)
{
    if (g_atomic_int_compare_and_exchange(&f->short_of_threads, 0, 1)) {
        vj_log_warn(
            "%s: a request thread cannot be started; fsync takes longer from now on",
            f->mountpoint);
    }
}

/*
 * After a request: true: the thread waits for another one, and is counted; false: enough
 * others do.  One that ends is not counted for a moment either: others would believe that
 * it waits, and start no new one.
 */
static bool go_on(VjServer *s)
{
    gint idle;

    do {
        idle = g_atomic_int_get(&s->idle);
        if (idle > 0 &&
            idle + g_atomic_int_get(&s->parked) >= (gint)s->front->delays.idle) {
            return false;
        }
    } while (!g_atomic_int_compare_and_exchange(&s->idle, idle, idle + 1));
    return true;
}

/* Nobody waits for a request. */
static void one_more(VjServer *s)
{
    if (!vj_receive_unpark(s) && start_worker(s) == -ENOMEM) {
        are_too_few(s->front); /* those that there are do it all */
    }
}

static void serve(VjServer *s, VjWorker *w)
{
    size_t len;

    g_atomic_int_inc(&s->idle);
    while ((len = receive(s, w)) > 0) {
        bool stays_sole = vj_receive_stays_sole(s, w, len);

        if (g_atomic_int_dec_and_test(&s->idle) && !stays_sole && !is_forget(w)) {
            one_more(s);
        }
        if (stays_sole) {
            vj_served_be_seen(s->front); /* nobody receives, if it takes long */
        }
        process(s->front, w, len);
        vj_receive_answered(s, w);
        if (!w->waits && !go_on(s)) {
            vj_receive_before_wait(w); /* as it comes no more */
            return;
        }
        w->waits = false;
    }
}

/*
 * The caller that an answer wakes often sends its next request before the thread that
 * answered has come back to receive it.  That thread counts as one that waits from here
 * on: else another one would be started, and end, for nothing.
 */
void vj_serve_answers(void)
{
    VjWorker *w = this_worker;

    if (w != NULL) {
        vj_receive_answered(w->server, w);
        w->waits = w->waits || go_on(w->server);
    }
}

static gpointer worker_main(gpointer opaque)
{
    VjWorker *w = opaque;
    VjServer *s = w->server;
    VjFront *f = s->front;

    w->thread = pthread_self();
    vj_mutex_lock(&f->lock);
    g_ptr_array_add(s->workers, w);
    vj_mutex_unlock(&f->lock);
    this_worker = w;
    vj_before_wait_set(vj_receive_before_wait, w);
    vj_served_init(&w->served, f);
    serve(s, w);
    vj_before_wait_set(NULL, NULL);
    vj_served_clear(&w->served, f);
    vj_fs_block_free(f->fs, w->block);
    vj_mutex_lock(&f->lock);
    /* GLib makes the lock of a thread when that runs already: a thread that joins it
     * earlier breaks it. */
    while (w->handle == NULL) {
        vj_cond_wait(&f->changed, &f->lock);
    }
    g_ptr_array_remove_fast(s->workers, w);
    g_ptr_array_add(s->ended, w->handle);
    s->count--;
    vj_cond_broadcast(&f->changed);
    vj_mutex_unlock(&f->lock);
    g_free(w);
    return NULL;
}

/* ---- the bytes of a WRITE ---------------------------------------------------------- */

bool vj_serve_hand_off(const char *src, size_t len, VjHandOff *hand_off)
{
    VjWorker *w = this_worker;

    *hand_off = (VjHandOff){.block = NULL};
    if (w == NULL || len < HAND_OVER_LEAST ||
        (const uint8_t *)src != w->block + VJ_PAGE_BYTES) {
        return false;
    }
    /* First of all the next one: without memory the thread keeps what it has. */
    hand_off->next = vj_fs_block_new(w->server->front->fs);
    hand_off->block = hand_off->next != NULL ? w->block : NULL;
    return hand_off->block != NULL;
}

void vj_serve_handed_off(VjHandOff *hand_off)
{
    VjWorker *w = this_worker;

    if (hand_off->next == NULL) {
        return;
    }
    if (hand_off->block == NULL) {
        w->block = hand_off->next;
    } else {
        vj_fs_block_free(w->server->front->fs, hand_off->next);
    }
}

/* ---- all of them ------------------------------------------------------------------- */

/* Until all have ended.  A thread that waits for a request does not see the end by
 * itself: a signal wakes it.  The signal may meet a thread that has just got a request:
 * what is done for that bears EINTR. */
static void end_workers(VjServer *s, VjFront *f) VJ_REQUIRES(f->lock)
{
    /* Where the connection lives on, callers that live too may get their answers. */
    int64_t cancel_us = vj_clock_mono_us() + (f->ending ? GRACE_US : 0);
    int64_t look_us = vj_clock_mono_us() + LOOK_US;

    while (s->count > 0) {
        if (vj_clock_mono_us() >= cancel_us) {
            vj_served_cancel_all(f);
        }
        if (vj_clock_mono_us() >= look_us) {
            vj_mutex_unlock(&f->lock);
            vj_served_look(f);
            vj_mutex_lock(&f->lock);
            look_us = vj_clock_mono_us() + LOOK_US;
        }
        for (guint i = 0; i < s->workers->len; i++) {
            const VjWorker *w = s->workers->pdata[i];

            if (g_atomic_int_get(&w->stands) != VJ_STANDS_ELSEWHERE) {
                pthread_kill(w->thread, VJ_FRONT_WAKE_SIGNAL);
            }
        }
        (void)vj_cond_wait_until(&f->changed, &f->lock, vj_clock_mono_us() + WAKE_US);
    }
}

/* Until it is over; meanwhile it looks at the requests once a second, if there are any.
 */
static void look_on(VjServer *s, VjFront *f) VJ_REQUIRES(f->lock)
{
    int64_t until_us = vj_clock_mono_us() + LOOK_US;

    while (!s->over && !f->ending) {
        if (!g_atomic_int_get(&f->is_looking)) {
            vj_cond_wait(&f->changed, &f->lock);
            until_us = vj_clock_mono_us() + LOOK_US;
        } else if (!vj_cond_wait_until(&f->changed, &f->lock, until_us)) {
            vj_mutex_unlock(&f->lock);
            vj_served_look(f);
            if (g_atomic_int_get(&s->idle) == 0) {
                vj_receive_end_sole(s);
                one_more(s); /* all wait, and perhaps some of them for ever */
            }
            vj_mutex_lock(&f->lock);
            until_us = vj_clock_mono_us() + LOOK_US;
        }
    }
}

int vj_serve(VjFront *f, unsigned most)
{
    VjServer s = {.front = f,
                  .most = most,
                  .workers = g_ptr_array_new(),
                  .ended = g_ptr_array_new()};
    int r = vj_receive_init(&s, f->busy_poll_us) ? start_worker(&s) : -errno;

    vj_mutex_lock(&f->lock);
    if (r == 0) {
        look_on(&s, f);
    }
    s.over = true;
    end_workers(&s, f);
    r = r < 0 ? r : s.error;
    vj_mutex_unlock(&f->lock);
    join_ended(&s);
    vj_receive_clear(&s);
    g_ptr_array_unref(s.workers);
    g_ptr_array_unref(s.ended);
    return r;
}
