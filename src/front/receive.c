/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * receive.c - how request threads wait for the next request
 *
 * To wake a thread that sleeps takes longer than most requests.  So where requests come
 * one at a time, and each soon after the answer to the one before, one thread becomes the
 * *sole* one: it polls for the next request for a while before it sleeps, and goes on to
 * receive while it handles one.  The others are *parked*: the kernel would wake one of
 * those that wait for it with each request, though the one that polls takes it.
 *
 * The sole one lets another thread receive before it does what may wait for long
 * (vj_before_wait), before requests that take long, and when it sees that requests come
 * beside each other.  While it handles one that takes long all the same, the others
 * wait for it; after a second look_on() of serve.c unparks one.
 *
 * How long it polls is halved each time that nothing came, and doubled when something
 * did, up to busy_poll=; it ends early when another thread wanted the processor.
 */
#include "front/serve-private.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Requests one at a time before a thread is the sole one. */
#define STREAK_LEAST 16
/* How long it takes to wake a thread, at most, beside what it polls. */
#define WAKE_MOST_US ((int64_t)150)
/* A shorter one is not worth the calls. */
#define POLL_LEAST_US ((int64_t)10)
/* A thread that yields the processor for longer has kept another one from it. */
#define YIELD_MOST_US ((int64_t)30)
/* Looks in one poll at most, whatever the clock says. */
#define LOOKS_MOST 100000u
/* How long all threads receive after the sole one had to let others do so. */
#define SHARED_US ((int64_t)10000)
/* How often a thread that has one processor alone looks whether it has more. */
#define ALONE_US ((int64_t)1000000)
/* READs and WRITEs of more bytes take long. */
#define SHORT_BYTES ((size_t)64 << 10)

bool vj_receive_init(VjServer *s, unsigned poll_most_us)
{
    s->poll_most_us = poll_most_us;
    s->unpark_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    return s->unpark_fd >= 0;
}

void vj_receive_clear(VjServer *s)
{
    vj_fd_close(&s->unpark_fd);
}

/* ---- parking ----------------------------------------------------------------------- */

static VjWorker *sole(VjServer *s)
{
    return g_atomic_pointer_get(&s->sole);
}

/* One of those that are parked; what it waits for is to be written by the caller. */
static bool take_parked(VjServer *s)
{
    gint parked;

    do {
        parked = g_atomic_int_get(&s->parked);
        if (parked == 0) {
            return false;
        }
    } while (!g_atomic_int_compare_and_exchange(&s->parked, parked, parked - 1));
    return true;
}

bool vj_receive_unpark(VjServer *s)
{
    uint64_t one = 1;

    if (!take_parked(s)) {
        return false;
    }
    g_atomic_int_inc(&s->idle);
    if (write(s->unpark_fd, &one, sizeof one) != (ssize_t)sizeof one) {
        g_error("eventfd: %s", g_strerror(errno)); /* of 2^64 at most 512 are used */
    }
    return true;
}

/* Until another thread unparks it, or the session is over. */
static void park(VjServer *s, VjWorker *w)
{
    uint64_t one;
    ssize_t got;

    g_atomic_int_inc(&s->parked);
    g_atomic_int_add(&s->idle, -1);
    /* The sole one has left meanwhile, and perhaps counted on this thread. */
    if (sole(s) == NULL && take_parked(s)) {
        g_atomic_int_inc(&s->idle);
        return;
    }
    g_atomic_int_set(&w->stands, VJ_STANDS_PARKED);
    do {
        if (fuse_session_exited(s->front->session)) {
            break;
        }
        got = read(s->unpark_fd, &one, sizeof one);
        if (got < 0 && errno != EINTR) {
            g_error("eventfd: %s", g_strerror(errno));
        }
    } while (got < 0);
    g_atomic_int_set(&w->stands, VJ_STANDS_ELSEWHERE);
}

/* ---- the sole one ------------------------------------------------------------------ */

/* Those that wait for a request leave the kernel. */
static void fetch_others(VjServer *s, const VjWorker *me)
{
    VjFront *f = s->front;

    vj_mutex_lock(&f->lock);
    for (guint i = 0; i < s->workers->len; i++) {
        const VjWorker *w = s->workers->pdata[i];

        if (w != me && g_atomic_int_get(&w->stands) == VJ_STANDS_RECEIVING) {
            pthread_kill(w->thread, VJ_FRONT_WAKE_SIGNAL);
        }
    }
    vj_mutex_unlock(&f->lock);
}

static void nobody_before(VjServer *s, int64_t from_us)
{
    __atomic_store_n(&s->sole_from_us, from_us, __ATOMIC_SEQ_CST);
}

/* Where there is one processor no request comes while a thread polls. */
static bool has_one_processor(void)
{
    cpu_set_t all;

    /* It fails where there are more than fit. */
    return sched_getaffinity(0, sizeof all, &all) == 0 && CPU_COUNT(&all) == 1;
}

static bool may_be_sole(VjServer *s)
{
    int64_t now_us;

    if (s->poll_most_us == 0 || g_atomic_int_get(&s->streak) < STREAK_LEAST ||
        sole(s) != NULL) {
        return false;
    }
    now_us = vj_clock_mono_us();
    if (now_us < __atomic_load_n(&s->sole_from_us, __ATOMIC_SEQ_CST)) {
        return false;
    }
    if (has_one_processor()) {
        nobody_before(s, now_us + ALONE_US);
        return false;
    }
    return true;
}

static void try_to_be_sole(VjServer *s, VjWorker *w)
{
    if (may_be_sole(s) && g_atomic_pointer_compare_and_exchange(&s->sole, NULL, w)) {
        w->poll_us = s->poll_most_us;
        w->last_tid = 0;
        fetch_others(s, w);
    }
}

/* True: it was. */
static bool leave_sole(VjServer *s, VjWorker *w)
{
    if (sole(s) != w) {
        return false;
    }
    g_atomic_int_set(&s->streak, 0);
    nobody_before(s, vj_clock_mono_us() + SHARED_US);
    return g_atomic_pointer_compare_and_exchange(&s->sole, w, NULL);
}

void vj_receive_end_sole(VjServer *s)
{
    g_atomic_pointer_set(&s->sole, NULL);
}

void vj_receive_before_wait(void *opaque)
{
    VjWorker *w = opaque;
    VjServer *s = w->server;

    /* Itself it may count as idle already. */
    if (leave_sole(s, w) && g_atomic_int_get(&s->idle) <= (gint)w->waits) {
        (void)vj_receive_unpark(s);
    }
}

static bool is_readable(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};

    return poll(&look, 1, 0) != 0; /* an error, too, is for read(2) to report */
}

/* True: there is something to read; the sole one, without sleeping. */
static bool poll_for_request(int fd, int64_t poll_us)
{
    int64_t begun_us = vj_clock_mono_us(), before_us = begun_us, now_us;

    for (unsigned looks = 0; looks < LOOKS_MOST; looks++) {
        if (is_readable(fd)) {
            return true;
        }
        sched_yield();
        now_us = vj_clock_mono_us();
        if (now_us - begun_us >= poll_us || now_us - before_us > YIELD_MOST_US) {
            break;
        }
        before_us = now_us;
    }
    return is_readable(fd);
}

/* The sole one waits for the next request, as long as it polls. */
static void expect_request(VjServer *s, VjWorker *w, int fd)
{
    uint64_t begun_ns;
    bool found;

    w->was_at_once = is_readable(fd);
    if (w->was_at_once) {
        return;
    }
    begun_ns = vj_clock_mono_ns();
    found = poll_for_request(fd, w->poll_us);
    vj_count_poll(s->front->count, begun_ns, found);
    if (found) {
        w->poll_us = MIN(2 * w->poll_us, s->poll_most_us);
        return;
    }
    w->poll_us /= 2;
    if (w->poll_us < POLL_LEAST_US) {
        (void)leave_sole(s, w); /* it counts as idle, and goes on as one of many */
    }
}

/* No caller waits for it. */
static bool has_no_caller(uint32_t opcode)
{
    return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET ||
           opcode == FUSE_RELEASE || opcode == FUSE_RELEASEDIR ||
           opcode == FUSE_INTERRUPT;
}

static bool takes_long(uint32_t opcode, size_t bytes)
{
    switch (opcode) {
    case FUSE_READ:
    case FUSE_WRITE:
        return bytes > SHORT_BYTES;
    case FUSE_INIT:
    case FUSE_DESTROY:
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
    case FUSE_SYNCFS:
    case FUSE_COPY_FILE_RANGE:
        return true;
    default:
        return false;
    }
}

/* What a READ asks for, or else how long the request is. */
static size_t bytes_of(const VjWorker *w, uint32_t opcode, size_t len)
{
    struct fuse_read_in in;

    if (opcode != FUSE_READ || len < sizeof(struct fuse_in_header) + sizeof in) {
        return len;
    }
    memcpy(&in, w->block + VJ_HEAD_SKIP + sizeof(struct fuse_in_header), sizeof in);
    return in.size;
}

/* There are several at a time. */
static bool is_beside_others(const VjServer *s, const VjWorker *w,
                             const struct fuse_in_header *head)
{
    if (!w->was_at_once || has_no_caller(head->opcode)) {
        return false;
    }
    if (head->pid != 0 && w->last_tid != 0 && head->pid != w->last_tid) {
        return true;
    }
    /* Others that are there may be FORGETs. */
    return (head->opcode == FUSE_READ || head->opcode == FUSE_WRITE) &&
           is_readable(fuse_session_fd(s->front->session));
}

bool vj_receive_stays_sole(VjServer *s, VjWorker *w, size_t len)
{
    struct fuse_in_header head = vj_worker_head(w);

    if (sole(s) != w) {
        return false;
    }
    if (takes_long(head.opcode, bytes_of(w, head.opcode, len)) ||
        is_beside_others(s, w, &head)) {
        (void)leave_sole(s, w);
        return false;
    }
    if (!has_no_caller(head.opcode)) {
        w->last_tid = head.pid;
    }
    return g_atomic_int_get(&s->parked) > 0;
}

/* ---- receiving --------------------------------------------------------------------- */

/* Whether requests come one at a time. */
static void note_request(VjServer *s, VjWorker *w)
{
    int64_t since_us;

    if (has_no_caller(vj_worker_head(w).opcode)) {
        return;
    }
    since_us = vj_clock_mono_us() - __atomic_load_n(&s->answered_us, __ATOMIC_SEQ_CST);
    w->is_under_way = true;
    if (g_atomic_int_add(&s->under_way, 1) > 0 ||
        since_us > s->poll_most_us + WAKE_MOST_US) {
        g_atomic_int_set(&s->streak, 0);
    } else if (g_atomic_int_get(&s->streak) < STREAK_LEAST) {
        g_atomic_int_inc(&s->streak);
    }
}

void vj_receive_answered(VjServer *s, VjWorker *w)
{
    if (w->is_under_way) {
        w->is_under_way = false;
        __atomic_store_n(&s->answered_us, vj_clock_mono_us(), __ATOMIC_SEQ_CST);
        g_atomic_int_add(&s->under_way, -1);
    }
}

ssize_t vj_receive(VjServer *s, VjWorker *w)
{
    struct fuse_session *session = s->front->session;
    int fd = fuse_session_fd(session);

    for (;;) {
        const VjWorker *alone;
        ssize_t got;
        int error;

        if (fuse_session_exited(session)) {
            return 0;
        }
        try_to_be_sole(s, w);
        alone = sole(s);
        if (alone == w) {
            expect_request(s, w, fd);
        } else if (alone != NULL) {
            park(s, w);
            continue;
        }
        g_atomic_int_set(&w->stands, VJ_STANDS_RECEIVING);
        /* Another thread has become the sole one, and did not see that this one stands
         * here. */
        if (alone == NULL && sole(s) != NULL) {
            g_atomic_int_set(&w->stands, VJ_STANDS_ELSEWHERE);
            continue;
        }
        got = read(fd, w->block + VJ_HEAD_SKIP, VJ_FS_BLOCK_BYTES - VJ_HEAD_SKIP);
        error = errno;
        g_atomic_int_set(&w->stands, VJ_STANDS_ELSEWHERE);
        if (got >= (ssize_t)sizeof(struct fuse_in_header)) {
            note_request(s, w);
            return got;
        }
        /* ENOENT: it was taken back before it was read. */
        if (got >= 0 || (error != EINTR && error != EAGAIN && error != ENOENT)) {
            return got >= 0 ? -EIO : error == ENODEV ? 0 : -error; /* it is unmounted */
        }
    }
}
