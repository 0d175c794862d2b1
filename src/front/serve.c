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

#include <fcntl.h>
#include <signal.h>

/* Smaller ones are copied: a buffer counts whole against dirty=. */
#define HAND_OVER_LEAST (VJ_FRONT_IO_MAX / 2)
/* Larger ones are worth another processor. */
#define LOCAL_BYTES ((size_t)64 << 10)
/* One processor has at most this part of the threads besides. */
#define LOCAL_SHARE 8u
/* How often waiting threads get the wake signal at the end, until all have seen it,
 * microseconds. */
#define WAKE_US ((int64_t)20000)
/* How often it is looked whether callers die without an INTERRUPT. */
#define LOOK_US ((int64_t)1000000)
/* How long requests may take when the mount ends, before they are cancelled. */
#define GRACE_US ((int64_t)2000000)

G_STATIC_ASSERT(VJ_FS_BLOCK_BYTES >= VJ_PAGE_BYTES + VJ_FRONT_IO_MAX);
G_STATIC_ASSERT(VJ_RING_HEAD_MOST <= VJ_PAGE_BYTES);
/* The block of a ring's thread is of another kind, and is never handed over. */
G_STATIC_ASSERT(LOCAL_BYTES < HAND_OVER_LEAST);

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

void vj_serve_fails(VjFront *f, int error)
{
    tell_over(f->server, error);
    fuse_session_exit(f->session);
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

/* Pages that the kernel writes back: on an error it would lose them.  @op: what follows
 * the header. */
static bool is_write_back(const void *op, size_t op_bytes)
{
    struct fuse_write_in in;

    if (op_bytes < sizeof in) {
        return false; /* libfuse refuses it */
    }
    memcpy(&in, op, sizeof in);
    return (in.write_flags & FUSE_WRITE_CACHE) != 0;
}

/* A request for whose answer no caller waits is carried through. */
static bool may_be_cancelled(uint32_t opcode, const void *op, size_t op_bytes)
{
    switch (opcode) {
    case FUSE_WRITE:
        return !is_write_back(op, op_bytes);
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
        memcpy(&interrupt, vj_worker_request(w) + sizeof(struct fuse_in_header),
               sizeof interrupt);
        vj_served_interrupt(f, interrupt.unique);
    }
}

/* Whether the kernel offers rings; the answer asks for them. */
static void note_init(VjFront *f, const VjWorker *w, size_t len)
{
    struct fuse_init_in in = {.flags = 0};

    memcpy(&in, vj_worker_request(w) + sizeof(struct fuse_in_header),
           MIN(len - sizeof(struct fuse_in_header), sizeof in));
    f->has_rings = f->rings != NULL && (in.flags & FUSE_INIT_EXT) != 0 &&
                   (in.flags2 & VJ_RINGS_INIT_FLAG2) != 0;
}

size_t vj_worker_copy(VjWorker *w)
{
    return vj_ring_copy(w->entry, w->block + VJ_PAGE_BYTES, &w->begin);
}

static void process(VjFront *f, VjWorker *w, size_t len)
{
    struct fuse_buf request = {.mem = vj_worker_request(w), .size = len};
    struct fuse_in_header head = vj_worker_head(w);
    bool is_cancellable = may_be_cancelled(
        head.opcode, vj_worker_request(w) + sizeof head, len - sizeof head);

    if (head.opcode == FUSE_INTERRUPT) {
        note_interrupt(f, w, len);
    } else if (head.opcode == FUSE_INIT) {
        note_init(f, w, len);
    }
    if (is_cancellable) {
        vj_served_begin(&w->served, f, head.unique, (pid_t)head.pid,
                        head.opcode == FUSE_READ || head.opcode == FUSE_WRITE);
    }
    if (w->entry != NULL && vj_ring_was_begun(w->entry)) {
        vj_count_begins_anew(f->count, request.mem, len);
    } else {
        vj_count_begins(f->count, request.mem, len);
    }
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

/* Those of one processor have places of their own: they end waits of the others. */
static bool may_start_locked(const VjServer *s, unsigned queue)
{
    unsigned left = MIN(s->front->threads_left, s->most), local = 0;

    if (s->over) {
        return false;
    }
    if (queue != VJ_RINGS_ANY) {
        return s->local[queue] < MAX(1, s->most / LOCAL_SHARE) + left;
    }
    for (unsigned i = 0; i < VJ_RINGS_ANY; i++) {
        local += s->local[i];
    }
    return s->count - local < s->most + left;
}

/* One more, if there may be one; -errno. */
static int start_worker(VjServer *s, unsigned queue)
{
    VjFront *f = s->front;
    GThread *thread = NULL;
    VjWorker *w;
    bool may;

    vj_mutex_lock(&f->lock);
    /* Those that stay behind in a store do not count, up to as many. */
    may = may_start_locked(s, queue);
    s->count += may;
    if (queue != VJ_RINGS_ANY) {
        s->local[queue] += may;
    }
    vj_mutex_unlock(&f->lock);
    if (!may) {
        return -EAGAIN;
    }
    join_ended(s);
    w = g_new0(VjWorker, 1);
    w->server = s;
    w->queue = queue;
    w->block = vj_fs_block_new(f->fs);
    if (w->block != NULL) {
        thread = g_thread_try_new("varjfs-serve", worker_main, w, NULL);
    }
    if (thread == NULL) {
        vj_fs_block_free(f->fs, w->block);
        g_free(w);
        vj_mutex_lock(&f->lock);
        s->count--;
        if (queue != VJ_RINGS_ANY) {
            s->local[queue]--;
        }
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
    if (!vj_receive_unpark(s) && start_worker(s, VJ_RINGS_ANY) == -ENOMEM) {
        are_too_few(s->front); /* those that there are do it all */
    }
}

/* As long as there are rings; not counted as idle. */
static void serve_local(VjServer *s, VjWorker *w)
{
    /* At the end what waits is answered. */
    while ((w->entry = vj_rings_take(s->front->rings, w->queue)) != NULL) {
        process(s->front, w, vj_worker_copy(w));
    }
}

static void serve(VjServer *s, VjWorker *w)
{
    size_t len;

    if (w->queue != VJ_RINGS_ANY) {
        serve_local(s, w);
        return;
    }

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
        w->entry = NULL;
        vj_receive_answered(s, w);
        if (!w->waits && !go_on(s)) {
            vj_receive_before_wait(w); /* as it comes no more */
            if (vj_rings_are_on(s->front->rings)) {
                vj_rings_wake(s->front->rings); /* it may have read /dev/fuse */
            }
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

    if (w != NULL && !w->is_ring && w->queue == VJ_RINGS_ANY) {
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
    if (vj_rings_are_on(f->rings)) {
        vj_rings_bind(f->rings, w->queue);
    }
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
    if (w->queue != VJ_RINGS_ANY) {
        s->local[w->queue]--;
    }
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

    while (s->count > 0 || vj_rings_are_busy(f->rings)) {
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

/* The caller of a request that has no thread yet dies, and nobody else waits for it. */
static bool is_in_vain(const VjRingHead *h)
{
    return may_be_cancelled(h->head.opcode, h->op, h->op_bytes) &&
           vj_thread_is_dying((pid_t)h->head.pid);
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
            vj_rings_look(f->rings, is_in_vain);
            if (g_atomic_int_get(&s->idle) == 0) {
                vj_receive_end_sole(s);
                one_more(s); /* all wait, and perhaps some of them for ever */
            }
            vj_mutex_lock(&f->lock);
            until_us = vj_clock_mono_us() + LOOK_US;
        }
    }
}

/* ---- rings ------------------------------------------------------------------------- */

static void ring_begin(void *opaque)
{
    VjServer *s = opaque;
    VjWorker *w = g_new0(VjWorker, 1);

    w->server = s;
    w->is_ring = true;
    w->queue = VJ_RINGS_ANY;
    w->block = g_malloc(VJ_PAGE_BYTES + LOCAL_BYTES + VJ_PAGE_BYTES);
    this_worker = w;
    vj_before_wait_set(vj_ring_before_wait, NULL);
    vj_served_init(&w->served, s->front);
}

static void ring_end(void *opaque)
{
    VjServer *s = opaque;
    VjWorker *w = g_steal_pointer(&this_worker);

    vj_before_wait_set(NULL, NULL);
    vj_served_clear(&w->served, s->front);
    g_free(w->block);
    g_free(w);
}

/* In a ring's thread. */
static bool ring_handle(void *opaque, VjRingEntry *e)
{
    VjServer *s = opaque;
    VjWorker *w = this_worker;

    w->entry = e;
    w->is_left = false;
    vj_quick_begin();
    process(s->front, w, vj_worker_copy(w));
    vj_quick_end();
    w->entry = NULL;
    return !w->is_left;
}

bool vj_serve_elsewhere(void)
{
    VjWorker *w = this_worker;

    if (w == NULL || !vj_quick_was_refused()) {
        return false;
    }
    w->is_left = true;
    return true;
}

static bool is_quick_read(const VjRingHead *h)
{
    struct fuse_read_in in;

    if (h->op_bytes < sizeof in) {
        return false;
    }
    memcpy(&in, h->op, sizeof in);
    return in.size <= LOCAL_BYTES;
}

/* Bytes that go to memory, and are answered then. */
static bool is_quick_write(const VjRingHead *h)
{
    struct fuse_write_in in;

    if (h->op_bytes < sizeof in || h->payload_bytes > LOCAL_BYTES) {
        return false;
    }
    memcpy(&in, h->op, sizeof in);
    return (in.write_flags & FUSE_WRITE_CACHE) == 0 &&
           (in.flags & (O_SYNC | O_DSYNC)) == 0;
}

/* Not an edit. */
static bool keeps_size(const VjRingHead *h)
{
    struct fuse_setattr_in in;

    if (h->op_bytes < sizeof in) {
        return false;
    }
    memcpy(&in, h->op, sizeof in);
    return (in.valid & FATTR_SIZE) == 0;
}

static bool is_quick_ioctl(const VjRingHead *h)
{
    struct fuse_ioctl_in in;

    if (h->op_bytes < sizeof in) {
        return false;
    }
    memcpy(&in, h->op, sizeof in);
    return _IOC_TYPE(in.cmd) == VARJFS_IOC_MAGIC &&
           (_IOC_NR(in.cmd) == _IOC_NR(VARJFS_IOC_PING) ||
            _IOC_NR(in.cmd) == _IOC_NR(VARJFS_IOC_EDIT(0)));
}

/*
 * Inline goes what is answered from memory, or changes memory: it sends no notification,
 * and if it waits it says so before (vj_before_wait).  What finds that it would have to
 * wait for a device is left to a thread of its processor: whoever waits for one holds up
 * the requests of its processor.  To those go metadata on another machine, and all where a
 * change is answered when it is safe.
 */
static VjRingWay ring_way(void *opaque, const VjRingHead *h)
{
    const VjServer *s = opaque;
    bool is_inline;

    if (h->payload_bytes > LOCAL_BYTES) {
        return VJ_RING_ANYWHERE;
    }
    switch (h->head.opcode) {
    case FUSE_LOOKUP:
    case FUSE_GETATTR:
    case FUSE_READLINK:
    case FUSE_GETXATTR:
    case FUSE_LISTXATTR:
    case FUSE_OPEN:
    case FUSE_OPENDIR:
    case FUSE_READDIR:
    case FUSE_READDIRPLUS:
    case FUSE_RELEASEDIR:
    case FUSE_RELEASE:
    case FUSE_FLUSH:
    case FUSE_CREATE:
    case FUSE_MKNOD:
    case FUSE_MKDIR:
    case FUSE_SYMLINK:
    case FUSE_LINK:
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_RENAME:
    case FUSE_RENAME2:
    case FUSE_COPY_FILE_RANGE: /* it shares what is stored */
    case VJ_OPCODE_COPY_FILE_RANGE_64:
        is_inline = true;
        break;
    case FUSE_READ:
        is_inline = is_quick_read(h);
        break;
    case FUSE_SETATTR:
        is_inline = keeps_size(h);
        break;
    case FUSE_IOCTL:
        is_inline = is_quick_ioctl(h);
        break;
    case FUSE_WRITE:
        is_inline = is_quick_write(h);
        break;
    case FUSE_STATFS: /* asks the store */
        return VJ_RING_LOCAL;
    default:
        return VJ_RING_ANYWHERE;
    }
    if (is_inline && (s->front->is_shared || vj_fs_is_far(s->front->fs) ||
                      vj_fs_waits_for_devices(s->front->fs))) {
        return VJ_RING_LOCAL;
    }
    return is_inline ? VJ_RING_INLINE : VJ_RING_ANYWHERE;
}

static bool ring_more(void *opaque, unsigned queue)
{
    VjServer *s = opaque;
    int r = start_worker(s, queue);

    if (r == -ENOMEM) {
        are_too_few(s->front);
    }
    return r == 0;
}

/* Its callers would wait for ever. */
static void ring_refused(void *opaque, int error)
{
    VjServer *s = opaque;

    vj_serve_fails(s->front, error);
}

static void ring_polled(void *opaque, uint64_t begun_ns, bool found)
{
    VjServer *s = opaque;

    vj_count_poll(s->front->count, begun_ns, found);
}

static const VjRingCalls ring_calls = {.begin = ring_begin,
                                       .polled = ring_polled,
                                       .refused = ring_refused,
                                       .end = ring_end,
                                       .handle = ring_handle,
                                       .way = ring_way,
                                       .more = ring_more};

void vj_serve_start_rings(VjFront *f)
{
    VjAttr root; /* the kernel knows it without having asked: vj_fs_waits_for_devices */
    int r = vj_fs_getattr(f->fs, FUSE_ROOT_ID, &root);

    if (r == 0) {
        r = vj_rings_start(f->rings, fuse_session_fd(f->session), f->busy_poll_us,
                           &ring_calls, f->server);
    }
    if (r < 0) {
        vj_serve_fails(f, r); /* the kernel sends nothing by /dev/fuse any more */
    }
}

int vj_serve(VjFront *f, unsigned most)
{
    VjServer *s = g_new0(VjServer, 1);
    int r;

    *s = (VjServer){.front = f,
                    .most = most,
                    .workers = g_ptr_array_new(),
                    .ended = g_ptr_array_new()};
    f->server = s;
    r = vj_receive_init(s, f->busy_poll_us) ? start_worker(s, VJ_RINGS_ANY) : -errno;

    vj_mutex_lock(&f->lock);
    if (r == 0) {
        look_on(s, f);
    }
    s->over = true;
    if (f->rings != NULL) {
        vj_mutex_unlock(&f->lock);
        vj_rings_close(f->rings);
        vj_mutex_lock(&f->lock);
    }
    end_workers(s, f);
    r = r < 0 ? r : s->error;
    vj_mutex_unlock(&f->lock);
    join_ended(s);
    vj_receive_clear(s);
    g_ptr_array_unref(s->workers);
    g_ptr_array_unref(s->ended);
    return r;
}
