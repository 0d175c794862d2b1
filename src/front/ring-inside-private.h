/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ring-inside-private.h - what the files of rings share: ring.c says what they are
 *
 *   ring.c         threads, who owns a ring, answers
 *   ring-kernel.c  the memory that the kernel shares, what is submitted
 *   ring-poll.c    how long an owner looks for requests before it sleeps
 *   ring-queue.c   requests that wait for a thread of vj_rings_take
 */
#ifndef VJ_FRONT_RING_INSIDE_PRIVATE_H
#define VJ_FRONT_RING_INSIDE_PRIVATE_H

#include "front/ring-private.h"

#include "front/front-private.h"

#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>

/* What linux/fuse.h has since Linux 6.14. */
#define VJ_RING_CMD_REGISTER 1u
#define VJ_RING_CMD_COMMIT_AND_FETCH 2u

typedef struct VjRingInOut {
    uint64_t flags, commit_id;
    uint32_t payload_bytes, padding;
    uint64_t reserved;
} VjRingInOut;

typedef struct VjRingHeaders {
    uint8_t in_out[128]; /* struct fuse_in_header; struct fuse_out_header */
    uint8_t op[128];
    VjRingInOut entry;
} VjRingHeaders;

G_STATIC_ASSERT(sizeof(VjRingHeaders) == 288);

/* Of one ring. */
#define VJ_RING_THREADS_MOST 8u
typedef struct VjRing VjRing;

/* A thread waits until its answer is with the kernel. */
typedef struct VjRingSending {
    struct VjRingSending *next;
    bool is_sent; /* guarded by lock of VjRings */
} VjRingSending;

struct VjRingEntry {
    VjRing *ring;
    struct iovec parts[2];
    VjRingHeaders *headers;
    uint8_t *payload; /* VJ_FRONT_IO_MAX */
    uint64_t unique;  /* of its request */
    bool was_begun;   /* that, by a ring's thread, which has left it */
    VjRingEntry *next_done;
    VjRingSending *sending; /* of its answer, until the owner takes it */
};

typedef struct VjRingThread {
    VjRing *ring;
    GThread *thread;
    bool is_first; /* it begins with the ring */
    pthread_t id;
    sigset_t asleep; /* signals that are blocked while it sleeps */
    /* Of this thread alone: */
    bool owns;
    VjRingEntry *entry; /* that it handles; NULL: none */
} VjRingThread;

struct VjRing {
    VjRings *all;
    unsigned queue_id;
    int fd, spare_fd;    /* an eventfd(2), a semaphore */
    gint spares;         /* atomic: threads that wait for it, or are about to */
    VjRingThread *owner; /* atomic; NULL: none for a moment */
    gint sleeps;         /* atomic: the owner is to be woken by a signal */
    VjRingEntry *done;   /* atomic: a stack; the owner takes all of it */
    /* guarded by all->lock until vj_rings_stop: */
    VjRingThread threads[VJ_RING_THREADS_MOST];
    unsigned thread_count;
    /* Of the owner: */
    unsigned to_submit;
    VjRingSending *sending; /* of what is to be submitted */
    bool has_handed_local;  /* since it slept: to a thread of this processor */
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
typedef struct VjRingHanded {
    VjCond changed;
    GQueue entries;
    unsigned takers;
} VjRingHanded;

struct VjRings {
    unsigned count;
    cpu_set_t may; /* what the daemon may run on; threads inherit less from rings' */
    VjRing *rings;
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
    VjRingHanded handed[VJ_RINGS_ANY + 1];
    bool wakes;
    VjCond sent;
};

/* ---- ring-kernel.c: in the ring's owner, but init and clear ------------------------ */

/* @g is all zero; vj_ring_clear in any case. */
bool vj_ring_init(VjRing *g, VjRings *all, unsigned queue_id, GError **error);
void vj_ring_clear(VjRing *g);
/* Requests may come: all entries, to be submitted. */
void vj_ring_register(VjRing *g);
/* To be submitted. */
void vj_ring_add_command(VjRing *g, VjRingEntry *e, unsigned operation);
/* Submits, and waits for @least completions, or a wake signal.  How many were submitted;
 * -1: errno. */
int vj_ring_enter(const VjRingThread *t, unsigned submit, unsigned least);

/* ---- ring-poll.c: in the ring's owner ---------------------------------------------- */

/* A request has come. */
void vj_ring_note_request(VjRing *g);
/* Polls, if it is worth it.  False: there is something to do. */
bool vj_ring_is_to_sleep(VjRing *g);

/* ---- ring-queue.c ------------------------------------------------------------------ */

/* Of the request in @e. */
VjRingHead vj_ring_head(const VjRingEntry *e);
/* To vj_rings_take of @queue, or of VJ_RINGS_ANY. */
void vj_ring_hand_over(VjRings *r, VjRingEntry *e, unsigned queue);

#endif
