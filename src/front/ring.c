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
#include "front/ring-inside-private.h"

#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ENABLE_FILE "/sys/module/fuse/parameters/enable_uring"
/* Processors that there may be; each has its entries. */
#define RINGS_MOST VJ_RINGS_ANY
/* Before what the kernel had no memory for is tried again. */
#define SHORT_OF_MEMORY_US 1000u

static _Thread_local VjRingThread *this_thread;

/* ---- answers ----------------------------------------------------------------------- */

/* An owner that sleeps looks at the ring again. */
static void wake_owner(VjRing *g)
{
    const VjRingThread *owner;

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
    VjRing *g = e->ring;

    e->next_done = g_atomic_pointer_get(&g->done);
    while (!g_atomic_pointer_compare_and_exchange(&g->done, e->next_done, e)) {
        e->next_done = g_atomic_pointer_get(&g->done);
    }
    wake_owner(g);
}

static void send_done(VjRing *g)
{
    VjRingEntry *e = __atomic_exchange_n(&g->done, NULL, __ATOMIC_SEQ_CST), *next;

    for (; e != NULL; e = next) {
        next = e->next_done;
        if (e->sending != NULL) {
            e->sending->next = g->sending;
            g->sending = g_steal_pointer(&e->sending);
        }
        vj_ring_add_command(g, e, VJ_RING_CMD_COMMIT_AND_FETCH);
    }
}

/* All that was to be submitted is. */
static void tell_sent(VjRing *g)
{
    VjRings *r = g->all;

    if (g->sending == NULL) {
        return;
    }
    vj_mutex_lock(&r->lock);
    for (VjRingSending *one = g_steal_pointer(&g->sending); one != NULL;) {
        VjRingSending *next = one->next;

        one->is_sent = true;
        one = next;
    }
    vj_cond_broadcast(&r->sent);
    vj_mutex_unlock(&r->lock);
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

/* Waits for @least completions, or a wake signal. */
static void submit(const VjRingThread *t, unsigned least)
{
    VjRing *g = t->ring;
    int submitted = vj_ring_enter(t, g->to_submit, least);

    if (submitted < 0) {
        bear_failure(errno);
    }
    g->to_submit -= submitted > 0 ? (unsigned)submitted : 0;
    if (g->to_submit == 0) {
        tell_sent(g);
    }
}

/*
 * As a write(2) to /dev/fuse: the kernel has the answer when it returns, before the
 * calling thread lets others go on.  Of another ring's request an owner does not wait for
 * that: two of them would wait for each other.
 */
static void send_answer(VjRingEntry *e)
{
    VjRing *g = e->ring;
    VjRings *r = g->all;
    VjRingSending sending = {.next = NULL};
    bool owns = this_thread != NULL && this_thread->owns;

    if (owns && this_thread->ring == g) {
        vj_ring_add_command(g, e, VJ_RING_CMD_COMMIT_AND_FETCH);
        while (g->to_submit > 0) {
            submit(this_thread, 0);
        }
        return;
    }
    e->sending = owns ? NULL : &sending;
    be_done(e);
    if (owns) {
        return;
    }
    vj_mutex_lock(&r->lock);
    while (!sending.is_sent) {
        vj_cond_wait(&r->sent, &r->lock);
    }
    vj_mutex_unlock(&r->lock);
}

/* The bytes are copied: a thread whose request was abandoned (interrupt.c) may still
 * write where it works, and by then the entry has another request. */
bool vj_rings_answer(VjRings *r, const struct iovec *iov, int count, size_t *bytes)
{
    VjRingInOut in_out = {.flags = 0};
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
    send_answer(e);
    return true;
}

/* ---- threads ----------------------------------------------------------------------- */

static bool take_spare(VjRing *g)
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

static void wake_spare(VjRing *g)
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
    VjRingThread *t = this_thread;

    (void)unused;
    if (t == NULL || !t->owns || t->entry == NULL || !take_spare(t->ring)) {
        return;
    }
    t->owns = false;
    g_atomic_pointer_set(&t->ring->owner, NULL);
    wake_spare(t->ring);
}

/* To a thread of its processor. */
static void hand_local(const VjRingThread *t, VjRingEntry *e)
{
    VjRing *g = t->ring;

    g->has_handed_local = g->has_handed_local || t->owns;
    vj_ring_hand_over(g->all, e, g->queue_id);
}

bool vj_ring_was_begun(const VjRingEntry *e)
{
    return e->was_begun;
}

static void on_request(VjRingThread *t, VjRingEntry *e)
{
    VjRings *r = t->ring->all;
    VjRingHead h = vj_ring_head(e);
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
            vj_ring_hand_over(r, e, VJ_RINGS_ANY);
        }
        (void)g_atomic_int_dec_and_test(&r->handling);
        return;
    }
    t->entry = e;
    is_left = !r->calls->handle(r->opaque, e);
    t->entry = NULL;
    if (is_left) {
        e->was_begun = true;
        hand_local(t, e);
    }
    (void)g_atomic_int_dec_and_test(&r->handling);
}

bool vj_rings_are_busy(VjRings *r)
{
    return r != NULL && g_atomic_int_get(&r->handling) > 0;
}

static gpointer thread_main(gpointer opaque);

static bool add_thread(VjRing *g)
{
    VjRings *r = g->all;
    VjRingThread *t;
    bool added = false;

    vj_mutex_lock(&r->lock);
    if (!g_atomic_int_get(&r->is_stopping) && g->thread_count < VJ_RING_THREADS_MOST) {
        t = &g->threads[g->thread_count];
        *t = (VjRingThread){.ring = g, .is_first = g->thread_count == 0};
        t->thread = g_thread_try_new("varjfs-ring", thread_main, t, NULL);
        added = t->thread != NULL;
        g->thread_count += added;
    }
    vj_mutex_unlock(&r->lock);
    return added;
}

/* The kernel has no use for an entry any more: the connection ends, else it is wrong. */
static void entry_is_over(const VjRing *g, const VjRingEntry *e, int error)
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

/* ---- threads that own a ring ------------------------------------------------------- */

/* What has come is handled until the ring is another thread's. */
static void reap(VjRingThread *t)
{
    VjRing *g = t->ring;

    while (t->owns) {
        unsigned head = *g->cq_head;
        struct io_uring_cqe done;

        if (head == __atomic_load_n(g->cq_tail, __ATOMIC_ACQUIRE)) {
            return;
        }
        done = g->cqes[head & g->cq_mask];
        __atomic_store_n(g->cq_head, head + 1, __ATOMIC_RELEASE);
        if (done.res == 0) {
            vj_ring_note_request(g);
            on_request(t, (void *)(uintptr_t)done.user_data);
        } else {
            entry_is_over(g, (void *)(uintptr_t)done.user_data, done.res);
        }
    }
}

static void own(VjRingThread *t)
{
    VjRing *g = t->ring;
    bool may_add = true;

    t->owns = true;
    g_atomic_pointer_set(&g->owner, t);
    while (t->owns) {
        bool is_stopping = g_atomic_int_get(&g->all->is_stopping) != 0, sleeps;

        if (may_add && g_atomic_int_get(&g->spares) == 0) {
            may_add = add_thread(g);
        }
        if (g->has_handed_local) {
            g->has_handed_local = false;
            sched_yield(); /* it may be done without a signal then */
        }
        sleeps = !is_stopping && vj_ring_is_to_sleep(g);
        g_atomic_int_set(&g->sleeps, sleeps);
        send_done(g);
        /* Whoever waits until an answer is submitted is told before it sleeps. */
        sleeps = sleeps && g->sending == NULL && !g_atomic_int_get(&g->all->is_stopping);
        submit(t, sleeps ? 1 : 0);
        g_atomic_int_set(&g->sleeps, 0);
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
static bool await_ring(VjRingThread *t)
{
    VjRing *g = t->ring;
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

static gpointer thread_main(gpointer opaque)
{
    VjRingThread *t = opaque;
    VjRing *g = t->ring;
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
        vj_ring_register(g);
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
    vj_cond_init(&r->sent);
    r->by_unique = g_hash_table_new(g_int64_hash, g_int64_equal);
    r->rings = g_new0(VjRing, RINGS_MOST);
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
        VjRing *g = &r->rings[r->count];

        r->count++;
        if (!vj_ring_init(g, r, r->count - 1, error)) {
            return NULL;
        }
    }
    return g_steal_pointer(&r);
}

void vj_rings_free(VjRings *r)
{
    if (r == NULL) {
        return;
    }
    for (unsigned i = 0; i < r->count; i++) {
        vj_ring_clear(&r->rings[i]);
    }
    g_free(r->rings);
    g_hash_table_unref(r->by_unique);
    for (unsigned i = 0; i < G_N_ELEMENTS(r->handed); i++) {
        vj_cond_clear(&r->handed[i].changed);
        g_queue_clear(&r->handed[i].entries);
    }
    vj_cond_clear(&r->sent);
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
static void stop_ring(VjRing *g)
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
