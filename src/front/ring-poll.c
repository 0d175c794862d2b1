/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ring-poll.c - how long an owner looks for requests before it sleeps
 *
 * As receive.c has it for /dev/fuse; but an owner also polls where requests come to other
 * rings.
 */
#include "front/ring-inside-private.h"

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
/* What linux/io_uring.h has since Linux 5.19. */
#define SQ_TASKRUN (1u << 2)

/* Whether requests come one soon after the other. */
void vj_ring_note_request(VjRing *g)
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
static bool has_come(const VjRing *g)
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
static bool poll_for_request(const VjRing *g)
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
static bool expect_request(VjRing *g)
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
bool vj_ring_is_to_sleep(VjRing *g)
{
    return g->poll_us == 0 || (g->to_submit == 0 && !has_come(g) && !expect_request(g));
}
