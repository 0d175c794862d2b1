/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ring.c - requests that come by io_uring instead of /dev/fuse
 *
 * The kernel has a queue for each processor, and puts a request into that of the
 * processor that its caller runs on.  Here a ring serves each queue, and a thread that is
 * bound to the same processor: so a caller is answered without another processor having
 * to wake up.  An *entry* is memory for one request and its answer; the kernel has it
 * while it waits for a request, we have it from the request to the answer.
 *
 * A ring has a few threads, and one of them *owns* it: it alone submits and reaps.  It
 * handles short requests itself ("inline"), and before one of these waits (base/lock.h)
 * it leaves the ring to another thread, a *spare* one.  All other requests go to the
 * request threads; their answers come back by `done`, and the owner sends them.
 *
 * The kernel hands a request over in the task work of the thread that has sent the
 * entry's last answer, also when another one owns the ring by then.  It runs when that
 * thread comes from the kernel, or sleeps where a signal would wake it, but not while it
 * waits for a device, or for a page.  So no thread of a ring may wait in the kernel for
 * what needs a request: it sends no notifications; and no ring thread ends before all do.
 */
#include "front/ring-private.h"

#include "front/front-private.h"

#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What linux/fuse.h has since Linux 6.14. */
#define CMD_REGISTER 1u
#define CMD_COMMIT_AND_FETCH 2u

typedef struct EntryInOut {
    uint64_t flags, commit_id;
    uint32_t payload_bytes, padding;
    uint64_t reserved;
} EntryInOut;

typedef struct Headers {
    uint8_t in_out[128]; /* struct fuse_in_header; struct fuse_out_header */
    uint8_t op[128];
    EntryInOut entry;
} Headers;

typedef struct Command {
    uint64_t flags, commit_id;
    uint16_t queue_id;
    uint8_t padding[6];
} Command;

G_STATIC_ASSERT(sizeof(Headers) == 288 && sizeof(Command) == 24);

/* What linux/io_uring.h has since Linux 5.19. */
#define OP_URING_CMD 46
#define SETUP_COOP_TASKRUN (1u << 8)
#define SETUP_TASKRUN_FLAG (1u << 9)
#define SETUP_SQE128 (1u << 10)
#define SQ_TASKRUN (1u << 2)
#define SQE_BYTES 128u
#define SQE_COMMAND_AT 48u /* where Command stands in it */

#define ENABLE_FILE "/sys/module/fuse/parameters/enable_uring"
/* Of one ring. */
#define THREADS_MOST 8u
/* Processors that there may be; each has its entries. */
#define RINGS_MOST VJ_RINGS_ANY
/* Requests one soon after the other before an owner polls, and how long it takes to wake
 * a thread, at most. */
#define STREAK_LEAST 16u
#define WAKE_MOST_US ((int64_t)150)
/* A shorter poll is not worth the calls. */
#define POLL_LEAST_US ((int64_t)10)
/* An owner that yields the processor for longer has kept another thread from it. */
#define YIELD_MOST_US ((int64_t)30)
/* Looks in one poll at most, whatever the clock says. */
#define LOOKS_MOST 1000000u
/* Owners that poll at a time. */
#define POLLERS_MOST 2
/* Before what the kernel had no memory for is tried again. */
#define SHORT_OF_MEMORY_US 1000u

typedef struct Ring Ring;

struct VjRingEntry {
    Ring *ring;
    struct iovec parts[2];
    Headers *headers;
    uint8_t *payload; /* VJ_FRONT_IO_MAX */
    uint64_t unique;  /* of its request */
    bool was_begun;   /* that, by a ring's thread, which has left it */
    VjRingEntry *next_done;
};

typedef struct RingThread {
    Ring *ring;
    GThread *thread;
    bool is_first; /* it begins with the ring */
    pthread_t id;
    sigset_t asleep; /* signals that are blocked while it sleeps */
    /* Of this thread alone: */
    bool owns;
    VjRingEntry *entry; /* that it handles; NULL: none */
    bool is_answered;
} RingThread;

struct Ring {
    VjRings *all;
    unsigned queue_id;
    int fd, spare_fd;  /* an eventfd(2), a semaphore */
    gint spares;       /* atomic: threads that wait for it, or are about to */
    RingThread *owner; /* atomic; NULL: none for a moment */
    gint sleeps;       /* atomic: the owner is to be woken by a signal */
    VjRingEntry *done; /* atomic: a stack; the owner takes all of it */
    /* guarded by all->lock until vj_rings_stop: */
    RingThread threads[THREADS_MOST];
    unsigned thread_count;
    /* Of the owner: */
    unsigned to_submit;
    bool has_handed_local; /* since it slept: to a thread of this processor */
    unsigned streak; /* requests that came soon after the one before, at most LEAST */
    int64_t came_us; /* when the last one came */
    int64_t poll_us; /* how long it polls before it sleeps; 0: it does not */
    /* Shared with the kernel: */
    uint8_t *rings, *sqes;
    size_t rings_bytes, sqes_bytes;
    unsigned *sq_tail, *sq_array, *sq_flags, *cq_head, *cq_tail;
    unsigned sq_mask, cq_mask;
    struct io_uring_cqe *cqes;
    uint8_t *memory;
    size_t memory_bytes;
    VjRingEntry *entries;
};

/* Entries for vj_rings_take. */
typedef struct Handed {
    VjCond changed;
    GQueue entries;
    unsigned takers;
} Handed;

struct VjRings {
    unsigned count;
    cpu_set_t may; /* what the daemon may run on; threads inherit less from rings' */
    Ring *rings;
    /* Set by vj_rings_start: */
    int fuse_fd;
    int64_t poll_most_us; /* 0: nobody polls */
    const VjRingCalls *calls;
    void *opaque;
    int64_t came_us; /* atomic: when the last request of any of them came */
    gint polling;    /* atomic: owners that do */
    gint is_on, is_closed, is_stopping; /* atomic */
    gint handling;                      /* atomic: requests inline */
    VjMutex lock;                       /* VJ_RANK_FRONT */
    /* guarded by lock: */
    GHashTable *by_unique; /* of what has no answer */
    Handed handed[VJ_RINGS_ANY + 1];
    bool wakes;
};

static _Thread_local RingThread *this_thread;

/* ---- the kernel's side ------------------------------------------------------------- */

/* Waits for @least completions, or a wake signal. */
static int enter(const RingThread *t, unsigned submit, unsigned least)
{
    return (int)syscall(SYS_io_uring_enter, t->ring->fd, submit, least,
                        IORING_ENTER_GETEVENTS, &t->asleep, _NSIG / 8);
}

static void add_command(Ring *g, VjRingEntry *e, unsigned operation)
{
    unsigned tail = *g->sq_tail, at = tail & g->sq_mask;
    struct io_uring_sqe *sqe = (void *)(g->sqes + (size_t)at * SQE_BYTES);
    Command command = {.commit_id = e->unique, .queue_id = (uint16_t)g->queue_id};

    memset(sqe, 0, SQE_BYTES);
    sqe->opcode = OP_URING_CMD;
    sqe->fd = g->all->fuse_fd;
    sqe->off = operation;
    if (operation == CMD_REGISTER) {
        sqe->addr = (uintptr_t)e->parts;
        sqe->len = G_N_ELEMENTS(e->parts);
    }
    sqe->user_data = (uintptr_t)e;
    memcpy((uint8_t *)sqe + SQE_COMMAND_AT, &command, sizeof command);
    g->sq_array[at] = at;
    __atomic_store_n(g->sq_tail, tail + 1, __ATOMIC_RELEASE);
    g->to_submit++;
}

static bool map_ring(Ring *g, const struct io_uring_params *p, GError **error)
{
    g->rings_bytes = MAX(p->sq_off.array + p->sq_entries * sizeof(unsigned),
                         p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe));
    g->sqes_bytes = (size_t)p->sq_entries * SQE_BYTES;
    g->rings = mmap(NULL, g->rings_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->fd,
                    IORING_OFF_SQ_RING);
    g->sqes = mmap(NULL, g->sqes_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->fd,
                   IORING_OFF_SQES);
    g->memory = mmap(NULL, g->memory_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (g->rings == MAP_FAILED || g->sqes == MAP_FAILED || g->memory == MAP_FAILED) {
        return vj_error_set_errno(error, errno, "memory for io_uring");
    }
    g->sq_tail = (void *)(g->rings + p->sq_off.tail);
    g->sq_array = (void *)(g->rings + p->sq_off.array);
    g->sq_flags = (void *)(g->rings + p->sq_off.flags);
    g->cq_head = (void *)(g->rings + p->cq_off.head);
    g->cq_tail = (void *)(g->rings + p->cq_off.tail);
    memcpy(&g->sq_mask, g->rings + p->sq_off.ring_mask, sizeof g->sq_mask);
    memcpy(&g->cq_mask, g->rings + p->cq_off.ring_mask, sizeof g->cq_mask);
    g->cqes = (void *)(g->rings + p->cq_off.cqes);
    return true;
}

static bool restrict_ring(const Ring *g, GError **error)
{
    struct io_uring_restriction may[] = {
        {.opcode = IORING_RESTRICTION_REGISTER_OP,
         .register_op = IORING_REGISTER_ENABLE_RINGS},
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = OP_URING_CMD},
    };

    return syscall(SYS_io_uring_register, g->fd, IORING_REGISTER_RESTRICTIONS, may,
                   G_N_ELEMENTS(may)) == 0 ||
           vj_error_set_errno(error, errno, "io_uring cannot be restricted");
}

static bool ring_init(Ring *g, VjRings *all, unsigned queue_id, GError **error)
{
    struct io_uring_params p = {.flags = SETUP_SQE128 | SETUP_COOP_TASKRUN |
                                         SETUP_TASKRUN_FLAG | IORING_SETUP_R_DISABLED};
    const size_t entry_bytes = VJ_PAGE_BYTES + VJ_FRONT_IO_MAX;

    g->all = all;
    g->queue_id = queue_id;
    g->memory_bytes = entry_bytes * VJ_RING_ENTRIES;
    g->spare_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    g->fd = (int)syscall(SYS_io_uring_setup, VJ_RING_ENTRIES, &p);
    if (g->spare_fd < 0 || g->fd < 0) {
        return vj_error_set_errno(error, errno, "io_uring");
    }
    if (!map_ring(g, &p, error) || !restrict_ring(g, error)) {
        return false;
    }
    g->entries = g_new0(VjRingEntry, VJ_RING_ENTRIES);
    for (unsigned i = 0; i < VJ_RING_ENTRIES; i++) {
        VjRingEntry *e = &g->entries[i];

        e->ring = g;
        e->headers = (void *)(g->memory + entry_bytes * i);
        e->payload = g->memory + entry_bytes * i + VJ_PAGE_BYTES;
        e->parts[0] = (struct iovec){e->headers, sizeof *e->headers};
        e->parts[1] = (struct iovec){e->payload, VJ_FRONT_IO_MAX};
    }
    return true;
}

/* ---- answers ----------------------------------------------------------------------- */

/* An owner that sleeps looks at the ring again. */
static void wake_owner(Ring *g)
{
    const RingThread *owner;

    if (g_atomic_int_compare_and_exchange(&g->sleeps, 1, 0)) {
        owner = g_atomic_pointer_get(&g->owner);
        /* NULL: it has woken by itself and left the ring; the next one looks before it
         * sleeps. */
        if (owner != NULL) {
            pthread_kill(owner->id, VJ_FRONT_WAKE_SIGNAL);
        }
    }
}

static void be_done(VjRingEntry *e)
{
    Ring *g = e->ring;

    e->next_done = g_atomic_pointer_get(&g->done);
    while (!g_atomic_pointer_compare_and_exchange(&g->done, e->next_done, e)) {
        e->next_done = g_atomic_pointer_get(&g->done);
    }
    wake_owner(g);
}

static void send_done(Ring *g)
{
    VjRingEntry *e = __atomic_exchange_n(&g->done, NULL, __ATOMIC_SEQ_CST), *next;

    for (; e != NULL; e = next) {
        next = e->next_done;
        add_command(g, e, CMD_COMMIT_AND_FETCH);
    }
}

/* The bytes are copied: a thread whose request was abandoned (interrupt.c) may still
 * write where it works, and by then the entry has another request. */
bool vj_rings_answer(VjRings *r, const struct iovec *iov, int count, size_t *bytes)
{
    EntryInOut in_out = {.flags = 0};
    struct fuse_out_header head;
    VjRingEntry *e;

    if (!vj_rings_are_on(r)) {
        return false;
    }
    g_assert(iov[0].iov_len == sizeof head);
    memcpy(&head, iov[0].iov_base, sizeof head);
    vj_mutex_lock(&r->lock);
    e = g_hash_table_lookup(r->by_unique, &head.unique);
    if (e != NULL) {
        g_hash_table_remove(r->by_unique, &head.unique);
    }
    vj_mutex_unlock(&r->lock);
    if (e == NULL) {
        return false;
    }
    memcpy(e->headers->in_out, &head, sizeof head);
    *bytes = 0;
    for (int i = 1; i < count; i++) {
        g_assert(iov[i].iov_len <= VJ_FRONT_IO_MAX - *bytes);
        memcpy(e->payload + *bytes, iov[i].iov_base, iov[i].iov_len);
        *bytes += iov[i].iov_len;
    }
    in_out.commit_id = head.unique;
    in_out.payload_bytes = (uint32_t)*bytes;
    e->headers->entry = in_out;
    *bytes += sizeof head;
    if (this_thread != NULL && this_thread->entry == e && this_thread->owns) {
        this_thread->is_answered = true;
    } else {
        be_done(e);
    }
    return true;
}

/* ---- requests ---------------------------------------------------------------------- */

static VjRingHead head_of(const VjRingEntry *e)
{
    VjRingHead out;

    memcpy(&out.head, e->headers->in_out, sizeof out.head);
    out.payload_bytes = e->headers->entry.payload_bytes;
    out.op = e->headers->op;
    out.op_bytes = out.head.len - sizeof out.head - out.payload_bytes;
    g_assert(out.head.len >= sizeof out.head + out.payload_bytes);
    g_assert(out.op_bytes <= sizeof e->headers->op &&
             out.payload_bytes <= VJ_FRONT_IO_MAX);
    return out;
}

size_t vj_ring_copy(const VjRingEntry *e, uint8_t *payload, uint8_t **begin)
{
    VjRingHead h = head_of(e);

    *begin = payload - h.op_bytes - sizeof h.head;
    memcpy(*begin, &h.head, sizeof h.head);
    memcpy(*begin + sizeof h.head, h.op, h.op_bytes);
    memcpy(payload, e->payload, h.payload_bytes);
    return h.head.len;
}

/* True: there are more than threads that wait for them. */
static bool queue_push(VjRings *r, VjRingEntry *e, unsigned queue)
{
    Handed *h = &r->handed[queue];
    bool are_too_few;

    vj_mutex_lock(&r->lock);
    g_queue_push_tail(&h->entries, e);
    are_too_few = h->takers < h->entries.length;
    vj_cond_signal(&h->changed);
    vj_mutex_unlock(&r->lock);
    return are_too_few;
}

/* False: a thread has it already. */
static bool queue_remove(VjRings *r, VjRingEntry *e, unsigned queue)
{
    bool found;

    vj_mutex_lock(&r->lock);
    found = g_queue_remove(&r->handed[queue].entries, e);
    vj_mutex_unlock(&r->lock);
    return found;
}

static void hand_over(VjRings *r, VjRingEntry *e, unsigned queue)
{
    if (!queue_push(r, e, queue) || r->calls->more(r->opaque, queue) ||
        queue == VJ_RINGS_ANY || !queue_remove(r, e, queue)) {
        return;
    }
    if (queue_push(r, e, VJ_RINGS_ANY)) {
        (void)r->calls->more(r->opaque, VJ_RINGS_ANY);
    }
}

/* A request that waits for a thread. */
typedef struct Queued {
    VjRingEntry *entry;
    uint64_t unique;
    unsigned queue;
    VjRingHead head; /* its bytes are the entry's: they stay until the answer */
} Queued;

static GArray *list_queued(VjRings *r, bool are_too_few[VJ_RINGS_ANY + 1])
{
    GArray *list = g_array_new(FALSE, FALSE, sizeof(Queued));

    vj_mutex_lock(&r->lock);
    for (unsigned i = 0; i <= VJ_RINGS_ANY; i++) {
        const Handed *h = &r->handed[i];

        are_too_few[i] = h->takers < h->entries.length;
        for (const GList *l = h->entries.head; l != NULL; l = l->next) {
            VjRingEntry *e = l->data;
            Queued one = {e, e->unique, i, head_of(e)};

            g_array_append_val(list, one);
        }
    }
    vj_mutex_unlock(&r->lock);
    return list;
}

/* The entry may have another request by now. */
static bool take_queued(VjRings *r, const Queued *one)
{
    GQueue *entries = &r->handed[one->queue].entries;
    bool found;

    vj_mutex_lock(&r->lock);
    found =
        g_queue_find(entries, one->entry) != NULL && one->entry->unique == one->unique;
    if (found) {
        g_queue_remove(entries, one->entry);
    }
    vj_mutex_unlock(&r->lock);
    return found;
}

void vj_rings_look(VjRings *r, bool (*in_vain)(const VjRingHead *head))
{
    bool are_too_few[VJ_RINGS_ANY + 1];
    g_autoptr(GArray) list = NULL;

    if (!vj_rings_are_on(r) || g_atomic_int_get(&r->is_closed)) {
        return;
    }
    list = list_queued(r, are_too_few);
    for (guint i = 0; i < list->len; i++) {
        const Queued *one = &g_array_index(list, Queued, i);

        if (in_vain(&one->head) && take_queued(r, one)) {
            struct fuse_out_header out = {
                .len = sizeof out, .error = -EINTR, .unique = one->unique};
            struct iovec iov = {&out, sizeof out};
            size_t bytes;
            bool is_answered = vj_rings_answer(r, &iov, 1, &bytes);

            g_assert(is_answered);
            vj_trace(front, "a caller is killed: %d: it had no thread",
                     (int)one->head.head.pid);
        }
    }
    for (unsigned i = 0; i <= VJ_RINGS_ANY; i++) {
        if (are_too_few[i]) {
            (void)r->calls->more(r->opaque, i);
        }
    }
}

VjRingEntry *vj_rings_take(VjRings *r, unsigned queue)
{
    Handed *h = &r->handed[queue];
    VjRingEntry *e = NULL;

    vj_mutex_lock(&r->lock);
    h->takers++;
    while (h->entries.length == 0 && !(queue == VJ_RINGS_ANY && r->wakes) &&
           g_atomic_int_get(&r->is_closed) == 0) {
        vj_cond_wait(&h->changed, &r->lock);
    }
    h->takers--;
    if (queue == VJ_RINGS_ANY && r->wakes) {
        r->wakes = false;
    } else {
        e = g_queue_pop_head(&h->entries);
    }
    vj_mutex_unlock(&r->lock);
    return e;
}

void vj_rings_wake(VjRings *r)
{
    vj_mutex_lock(&r->lock);
    r->wakes = true;
    vj_cond_signal(&r->handed[VJ_RINGS_ANY].changed);
    vj_mutex_unlock(&r->lock);
}

/* ---- threads ----------------------------------------------------------------------- */

static bool take_spare(Ring *g)
{
    gint spares;

    do {
        spares = g_atomic_int_get(&g->spares);
        if (spares == 0) {
            return false;
        }
    } while (!g_atomic_int_compare_and_exchange(&g->spares, spares, spares - 1));
    return true;
}

static void wake_spare(Ring *g)
{
    uint64_t one = 1;

    if (write(g->spare_fd, &one, sizeof one) != (ssize_t)sizeof one) {
        g_error("eventfd: %s", g_strerror(errno)); /* it counts threads */
    }
}

bool vj_ring_is_this_thread(void)
{
    return this_thread != NULL;
}

void vj_ring_before_wait(void *unused)
{
    RingThread *t = this_thread;

    (void)unused;
    if (t == NULL || !t->owns || t->entry == NULL || !take_spare(t->ring)) {
        return;
    }
    t->owns = false;
    g_atomic_pointer_set(&t->ring->owner, NULL);
    if (t->is_answered) {
        t->is_answered = false;
        be_done(t->entry);
    }
    wake_spare(t->ring);
}

/* To a thread of its processor. */
static void hand_local(const RingThread *t, VjRingEntry *e)
{
    Ring *g = t->ring;

    g->has_handed_local = g->has_handed_local || t->owns;
    hand_over(g->all, e, g->queue_id);
}

bool vj_ring_was_begun(const VjRingEntry *e)
{
    return e->was_begun;
}

static void on_request(RingThread *t, VjRingEntry *e)
{
    VjRings *r = t->ring->all;
    VjRingHead h = head_of(e);
    VjRingWay way;
    bool is_left;

    e->unique = h.head.unique;
    e->was_begun = false;
    vj_mutex_lock(&r->lock);
    g_hash_table_insert(r->by_unique, &e->unique, e);
    vj_mutex_unlock(&r->lock);
    g_atomic_int_inc(&r->handling);
    if (g_atomic_int_get(&r->is_closed)) {
        (void)g_atomic_int_dec_and_test(&r->handling);
        return; /* the connection is about to end */
    }
    way = r->calls->way(r->opaque, &h);
    /* Without a spare thread nobody could take the ring over. */
    if (way == VJ_RING_INLINE && g_atomic_int_get(&t->ring->spares) == 0) {
        way = VJ_RING_LOCAL;
    }
    if (way != VJ_RING_INLINE) {
        if (way == VJ_RING_LOCAL) {
            hand_local(t, e);
        } else {
            hand_over(r, e, VJ_RINGS_ANY);
        }
        (void)g_atomic_int_dec_and_test(&r->handling);
        return;
    }
    t->entry = e;
    t->is_answered = false;
    is_left = !r->calls->handle(r->opaque, e);
    t->entry = NULL;
    if (is_left) {
        e->was_begun = true;
        hand_local(t, e);
    }
    (void)g_atomic_int_dec_and_test(&r->handling);
    if (t->is_answered) {
        g_assert(t->owns);
        add_command(t->ring, e, CMD_COMMIT_AND_FETCH);
    }
}

bool vj_rings_are_busy(VjRings *r)
{
    return r != NULL && g_atomic_int_get(&r->handling) > 0;
}

static gpointer thread_main(gpointer opaque);

static bool add_thread(Ring *g)
{
    VjRings *r = g->all;
    RingThread *t;
    bool added = false;

    vj_mutex_lock(&r->lock);
    if (!g_atomic_int_get(&r->is_stopping) && g->thread_count < THREADS_MOST) {
        t = &g->threads[g->thread_count];
        *t = (RingThread){.ring = g, .is_first = g->thread_count == 0};
        t->thread = g_thread_try_new("varjfs-ring", thread_main, t, NULL);
        added = t->thread != NULL;
        g->thread_count += added;
    }
    vj_mutex_unlock(&r->lock);
    return added;
}

/* The kernel has no use for an entry any more: the connection ends, else it is wrong. */
static void entry_is_over(const Ring *g, const VjRingEntry *e, int error)
{
    if (error == -ENOTCONN || error == -ECONNABORTED || error == -ECANCELED) {
        vj_trace(front, "ring %u: an entry is over: %d", g->queue_id, error);
        return;
    }
    vj_log_error("io_uring: processor %u has an entry less: %s", g->queue_id,
                 g_strerror(-error));
    if (e->unique == 0) { /* it has had no request: it was not registered */
        g->all->calls->refused(g->all->opaque, error);
    }
}

/* ---- polling ----------------------------------------------------------------------- */

/* Whether requests come one soon after the other. */
static void note_request(Ring *g)
{
    VjRings *r = g->all;
    int64_t now_us;

    if (r->poll_most_us == 0) {
        return;
    }
    now_us = vj_clock_mono_us();
    if (now_us - g->came_us > r->poll_most_us + WAKE_MOST_US) {
        g->streak = 0;
    } else if (g->streak < STREAK_LEAST) {
        g->streak++;
        g->poll_us = g->streak == STREAK_LEAST ? r->poll_most_us : g->poll_us;
    }
    g->came_us = now_us;
    __atomic_store_n(&r->came_us, now_us, __ATOMIC_RELAXED);
}

/* There is a completion, task work that makes one, or an answer to be sent. */
static bool has_come(const Ring *g)
{
    return *g->cq_head != __atomic_load_n(g->cq_tail, __ATOMIC_ACQUIRE) ||
           (__atomic_load_n(g->sq_flags, __ATOMIC_RELAXED) & SQ_TASKRUN) != 0 ||
           __atomic_load_n(&g->done, __ATOMIC_SEQ_CST) != NULL;
}

/*
 * Until something has come, or all rings were idle for as long as this one polls.  A
 * caller that an answer wakes is moved to a processor that has nothing to do, which takes
 * long to wake: one that polls has.
 */
static bool poll_for_request(const Ring *g)
{
    VjRings *r = g->all;
    int64_t before_us = vj_clock_mono_us(), busy_us = before_us;

    for (unsigned looks = 0; looks < LOOKS_MOST && !has_come(g); looks++) {
        int64_t now_us;

        sched_yield();
        now_us = vj_clock_mono_us();
        busy_us = g_atomic_int_get(&r->handling) > 0
                      ? now_us
                      : MAX(busy_us, __atomic_load_n(&r->came_us, __ATOMIC_RELAXED));
        if (now_us - busy_us >= g->poll_us || now_us - before_us > YIELD_MOST_US) {
            break;
        }
        before_us = now_us;
    }
    return has_come(g);
}

/* As long as its owner polls; false: nothing has come. */
static bool expect_request(Ring *g)
{
    VjRings *r = g->all;
    int64_t came_us = __atomic_load_n(&r->came_us, __ATOMIC_RELAXED);
    bool found = false, is_busy;

    if (g_atomic_int_add(&r->polling, 1) < POLLERS_MOST) {
        uint64_t begun_ns = vj_clock_mono_ns();

        found = poll_for_request(g);
        r->calls->polled(r->opaque, begun_ns, found);
    }
    g_atomic_int_add(&r->polling, -1);
    is_busy = found || came_us != __atomic_load_n(&r->came_us, __ATOMIC_RELAXED);
    g->poll_us = is_busy ? MIN(2 * g->poll_us, r->poll_most_us) : g->poll_us / 2;
    if (g->poll_us < POLL_LEAST_US) {
        g->poll_us = 0;
        g->streak = 0;
    }
    return found;
}

/* An owner that polls sends its answers before. */
static bool is_to_sleep(Ring *g)
{
    return g->poll_us == 0 || (g->to_submit == 0 && !has_come(g) && !expect_request(g));
}

/* ---- threads that own a ring ------------------------------------------------------- */

/* What has come is handled until the ring is another thread's. */
static void reap(RingThread *t)
{
    Ring *g = t->ring;

    while (t->owns) {
        unsigned head = *g->cq_head;
        struct io_uring_cqe done;

        if (head == __atomic_load_n(g->cq_tail, __ATOMIC_ACQUIRE)) {
            return;
        }
        done = g->cqes[head & g->cq_mask];
        __atomic_store_n(g->cq_head, head + 1, __ATOMIC_RELEASE);
        if (done.res == 0) {
            note_request(g);
            on_request(t, (void *)(uintptr_t)done.user_data);
        } else {
            entry_is_over(g, (void *)(uintptr_t)done.user_data, done.res);
        }
    }
}

/* What was not submitted is submitted again. */
static void bear_failure(int error)
{
    switch (error) {
    case EINTR:
    case EBUSY: /* completions have no room until some are reaped */
        break;
    case EAGAIN:
    case ENOMEM:
        g_usleep(SHORT_OF_MEMORY_US);
        break;
    default:
        g_error("io_uring: %s", g_strerror(error));
    }
}

static void own(RingThread *t)
{
    Ring *g = t->ring;
    bool may_add = true;

    t->owns = true;
    g_atomic_pointer_set(&g->owner, t);
    while (t->owns) {
        bool is_stopping = g_atomic_int_get(&g->all->is_stopping) != 0, sleeps;
        int submitted;

        if (may_add && g_atomic_int_get(&g->spares) == 0) {
            may_add = add_thread(g);
        }
        if (g->has_handed_local) {
            g->has_handed_local = false;
            sched_yield(); /* it may be done without a signal then */
        }
        sleeps = !is_stopping && is_to_sleep(g);
        g_atomic_int_set(&g->sleeps, sleeps);
        send_done(g);
        submitted = enter(t, g->to_submit,
                          sleeps && !g_atomic_int_get(&g->all->is_stopping) ? 1 : 0);
        g_atomic_int_set(&g->sleeps, 0);
        if (submitted < 0) {
            bear_failure(errno);
        }
        g->to_submit -= submitted > 0 ? (unsigned)submitted : 0;
        if (g_atomic_int_get(&g->all->is_stopping)) {
            if (g->to_submit == 0 && g_atomic_pointer_get(&g->done) == NULL) {
                return;
            }
        } else {
            reap(t);
        }
    }
}

void vj_rings_bind(const VjRings *r, unsigned queue)
{
    cpu_set_t set = r->may;

    if (queue != VJ_RINGS_ANY && CPU_ISSET(queue, &r->may)) {
        CPU_ZERO(&set);
        CPU_SET(queue, &set);
    }
    /* It fails where a cpuset has changed meanwhile, which is obeyed. */
    (void)sched_setaffinity(0, sizeof set, &set);
}

/* True: another thread has left the ring to this one. */
static bool await_ring(RingThread *t)
{
    Ring *g = t->ring;
    uint64_t one;
    ssize_t got;

    g_atomic_int_inc(&g->spares);
    do {
        got = read(g->spare_fd, &one, sizeof one);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        g_error("eventfd: %s", g_strerror(errno));
    }
    return !g_atomic_int_get(&g->all->is_stopping) ||
           g_atomic_pointer_compare_and_exchange(&g->owner, NULL, t);
}

static void register_entries(Ring *g)
{
    if (syscall(SYS_io_uring_register, g->fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) <
        0) {
        g_error("io_uring: %s", g_strerror(errno));
    }
    for (unsigned i = 0; i < VJ_RING_ENTRIES; i++) {
        add_command(g, &g->entries[i], CMD_REGISTER);
    }
}

static gpointer thread_main(gpointer opaque)
{
    RingThread *t = opaque;
    Ring *g = t->ring;
    VjRings *r = g->all;
    sigset_t wake;

    sigemptyset(&wake);
    sigaddset(&wake, VJ_FRONT_WAKE_SIGNAL);
    pthread_sigmask(SIG_BLOCK, &wake, &t->asleep);
    sigdelset(&t->asleep, VJ_FRONT_WAKE_SIGNAL);
    vj_rings_bind(r, g->queue_id);
    t->id = pthread_self();
    this_thread = t;
    r->calls->begin(r->opaque);
    if (t->is_first) {
        register_entries(g);
        own(t);
    }
    while (await_ring(t)) {
        own(t);
    }
    r->calls->end(r->opaque);
    return NULL;
}

/* ---- all of them ------------------------------------------------------------------- */

/* 0: not a row of them from 0 on. */
static unsigned possible_processors(void)
{
    g_autofree char *text = NULL;
    unsigned last = 0;

    if (!g_file_get_contents("/sys/devices/system/cpu/possible", &text, NULL, NULL)) {
        return 0;
    }
    if (strcmp(g_strchomp(text), "0") != 0 && sscanf(text, "0-%u", &last) != 1) {
        return 0;
    }
    return last < RINGS_MOST && strchr(text, ',') == NULL ? last + 1 : 0;
}

static bool are_enabled(void)
{
    g_autofree char *text = NULL;

    return g_file_get_contents(ENABLE_FILE, &text, NULL, NULL) && text[0] == 'Y';
}

VjRings *vj_rings_new(GError **error)
{
    g_autoptr(VjRings) r = g_new0(VjRings, 1);
    unsigned count = possible_processors();

    vj_mutex_init(&r->lock, VJ_RANK_FRONT, "front rings");
    for (unsigned i = 0; i < G_N_ELEMENTS(r->handed); i++) {
        vj_cond_init(&r->handed[i].changed);
        g_queue_init(&r->handed[i].entries);
    }
    r->by_unique = g_hash_table_new(g_int64_hash, g_int64_equal);
    r->rings = g_new0(Ring, RINGS_MOST);
    if (!are_enabled()) {
        (void)vj_error_set(error, ENOTSUP, "the kernel offers none (" ENABLE_FILE ")");
        return NULL;
    }
    if (count == 0) {
        (void)vj_error_set(error, ENOTSUP,
                           "the processors are more than %u, or not numbered from 0 on",
                           RINGS_MOST);
        return NULL;
    }
    if (sched_getaffinity(0, sizeof r->may, &r->may) != 0) {
        (void)vj_error_set_errno(error, errno, "the processors of this process");
        return NULL;
    }
    while (r->count < count) {
        Ring *g = &r->rings[r->count];

        g->fd = g->spare_fd = -1;
        g->rings = g->sqes = g->memory = MAP_FAILED;
        r->count++;
        if (!ring_init(g, r, r->count - 1, error)) {
            return NULL;
        }
    }
    return g_steal_pointer(&r);
}

static void unmap(void *memory, size_t len)
{
    if (memory != MAP_FAILED) {
        munmap(memory, len);
    }
}

void vj_rings_free(VjRings *r)
{
    if (r == NULL) {
        return;
    }
    for (unsigned i = 0; i < r->count; i++) {
        Ring *g = &r->rings[i];

        unmap(g->rings, g->rings_bytes);
        unmap(g->sqes, g->sqes_bytes);
        vj_fd_close(&g->fd);
        vj_fd_close(&g->spare_fd);
        unmap(g->memory, g->memory_bytes);
        g_free(g->entries);
    }
    g_free(r->rings);
    g_hash_table_unref(r->by_unique);
    for (unsigned i = 0; i < G_N_ELEMENTS(r->handed); i++) {
        vj_cond_clear(&r->handed[i].changed);
        g_queue_clear(&r->handed[i].entries);
    }
    vj_mutex_clear(&r->lock);
    g_free(r);
}

bool vj_rings_are_on(VjRings *r)
{
    return r != NULL && g_atomic_int_get(&r->is_on) != 0;
}

int vj_rings_start(VjRings *r, int fuse_fd, unsigned poll_most_us,
                   const VjRingCalls *calls, void *opaque)
{
    r->fuse_fd = fuse_fd;
    r->poll_most_us = CPU_COUNT(&r->may) > 1 ? poll_most_us : 0;
    r->calls = calls;
    r->opaque = opaque;
    g_atomic_int_set(&r->is_on, 1);
    for (unsigned i = 0; i < r->count; i++) {
        if (!add_thread(&r->rings[i])) {
            return -EAGAIN;
        }
    }
    return 0;
}

void vj_rings_close(VjRings *r)
{
    g_atomic_int_set(&r->is_closed, 1);
    vj_mutex_lock(&r->lock);
    for (unsigned i = 0; i < G_N_ELEMENTS(r->handed); i++) {
        vj_cond_broadcast(&r->handed[i].changed);
    }
    vj_mutex_unlock(&r->lock);
}

/* Its owner sends what is answered, and ends; a spare one ends. */
static void stop_ring(Ring *g)
{
    unsigned count = g->thread_count;

    if (count == 0) {
        return;
    }
    wake_owner(g);
    for (unsigned i = 0; i < count; i++) {
        wake_spare(g);
    }
    for (unsigned i = 0; i < count; i++) {
        g_thread_join(g->threads[i].thread);
    }
}

void vj_rings_stop(VjRings *r)
{
    vj_mutex_lock(&r->lock);
    g_atomic_int_set(&r->is_stopping, 1);
    vj_mutex_unlock(&r->lock);
    for (unsigned i = 0; i < r->count; i++) {
        stop_ring(&r->rings[i]);
    }
}
