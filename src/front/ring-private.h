/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ring-private.h - requests that come by io_uring (ring.c)
 */
#ifndef VJ_FRONT_RING_PRIVATE_H
#define VJ_FRONT_RING_PRIVATE_H

#include "front/front.h"

#include <linux/fuse.h>
#include <sys/uio.h>

/* The kernel's word for them in INIT: bit 41 of the flags. */
#define VJ_RINGS_INIT_FLAG2 (UINT32_C(1) << (41 - 32))
/* Bytes that a request has besides its payload, at most. */
#define VJ_RING_HEAD_MOST (sizeof(struct fuse_in_header) + 128)

/* Requests of one processor that have no answer yet, beyond which its callers wait. */
#define VJ_RING_ENTRIES 512u

typedef struct VjRingEntry VjRingEntry;

/* The beginning of a request: its header, and what its kind begins with. */
typedef struct VjRingHead {
    struct fuse_in_header head;
    const void *op;
    size_t op_bytes, payload_bytes;
} VjRingHead;

typedef enum VjRingWay {
    VJ_RING_INLINE,   /* by the ring's thread, which calls `handle` */
    VJ_RING_LOCAL,    /* by vj_rings_take, on the processor of the caller */
    VJ_RING_ANYWHERE, /* by vj_rings_take, on any processor */
} VjRingWay;

/* The queue of requests for any processor; others have the number of theirs. */
#define VJ_RINGS_ANY 64u

/* What rings do with requests.  All but `more` are called by threads of rings. */
typedef struct VjRingCalls {
    /* The thread begins, and ends. */
    void (*begin)(void *opaque);
    void (*end)(void *opaque);
    /* How the request is handled. */
    VjRingWay (*way)(void *opaque, const VjRingHead *head);
    /* Handles the request in @e; it is answered by vj_rings_answer, now or later, by any
     * thread.  False: it would have to wait for a device: it is for vj_rings_take. */
    bool (*handle)(void *opaque, VjRingEntry *e);
    /* A thread has polled since vj_clock_mono_ns() was @begun_ns. */
    void (*polled)(void *opaque, uint64_t begun_ns, bool found);
    /* The kernel has not taken an entry, -errno, and sends no requests. */
    void (*refused)(void *opaque, int error);
    /* There are more requests than threads that wait in vj_rings_take for @queue.  False:
     * there is no other one. */
    bool (*more)(void *opaque, unsigned queue);
} VjRingCalls;

/* After the answer to INIT that has asked for them: requests come by rings now.  Their
 * owners poll for @poll_most_us before they sleep (0: do not).  -errno: a thread cannot
 * be started, and the connection is of no use. */
int vj_rings_start(VjRings *r, int fuse_fd, unsigned poll_most_us,
                   const VjRingCalls *calls, void *opaque) G_GNUC_WARN_UNUSED_RESULT;
bool vj_rings_are_on(VjRings *r); /* NULL: false */
/* No request is begun any more that has not come yet, and vj_rings_take does not wait. */
void vj_rings_close(VjRings *r);
/* The answers are with the kernel, and the threads have ended.  After vj_rings_close. */
void vj_rings_stop(VjRings *r);

/* A thread handles a request inline.  After vj_rings_close: none begins to. */
bool vj_rings_are_busy(VjRings *r);

/* Waits for a request that is not handled inline.  NULL: vj_rings_wake; or closed, and
 * there is none. */
VjRingEntry *vj_rings_take(VjRings *r, unsigned queue);
/* The calling thread runs where the callers of @queue do from now on, if the daemon may;
 * else, and of VJ_RINGS_ANY, wherever the daemon may. */
void vj_rings_bind(const VjRings *r, unsigned queue);
/*
 * Once a second, while there are requests: threads for those that wait for one, which may
 * be there by now, and an answer, EINTR, to those that are @in_vain.
 */
void vj_rings_look(VjRings *r, bool (*in_vain)(const VjRingHead *head));
/* One thread leaves vj_rings_take of VJ_RINGS_ANY. */
void vj_rings_wake(VjRings *r);

/* Copies the request, as it would come from /dev/fuse: its payload to @payload, which
 * has room for it, the rest before that, where VJ_RING_HEAD_MOST are free.  Where it
 * begins is *@begin; returns its length. */
size_t vj_ring_copy(const VjRingEntry *e, uint8_t *payload, uint8_t **begin);
/* A ring's thread has begun it, and left it. */
bool vj_ring_was_begun(const VjRingEntry *e);
/* False: @iov answers no request of a ring.  Any thread. */
bool vj_rings_answer(VjRings *r, const struct iovec *iov, int count, size_t *bytes);

/* The calling thread is a ring's: it may not notify the kernel. */
bool vj_ring_is_this_thread(void);
/* For vj_before_wait_set in a ring's thread: another one goes on with its ring. */
void vj_ring_before_wait(void *unused);

#endif
