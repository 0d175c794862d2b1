/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wait-private.h - requests whose callers may be killed while they wait (interrupt.c)
 */
#ifndef VJ_FRONT_WAIT_PRIVATE_H
#define VJ_FRONT_WAIT_PRIVATE_H

#include "front/front.h"

#include <fuse_lowlevel.h>

typedef struct VjFront VjFront;
typedef struct VjFlagsJob VjFlagsJob;

/* ---- callers (dying.c) ------------------------------------------------------------- */

/* All read /proc, and take no lock. */
/* A signal is pending that ends thread @tid.  Of those that leave no core the kernel
 * makes a SIGKILL for each thread.  False also where it is not seen. */
bool vj_thread_is_dying(pid_t tid);
/* The process of a thread; 0: that is not known. */
pid_t vj_thread_group(pid_t tid);
/* A signal has ended the process, and all its threads are in exit(2), where one waits for
 * its aio.  False where it ends by itself: what it wrote is not given up.  False also
 * where that is not seen: it takes the right to trace it. */
bool vj_thread_group_is_killed(pid_t group);

/* ---- waits that a killed caller leaves (interrupt.c) ------------------------------- */

/* First member of what g_new made for a request that waits for durability. */
typedef struct VjWait {
    VjFront *front;
    fuse_req_t req;
    VjHandle *handle; /* stays valid until the last reference goes; NULL: none */
    pid_t tid;        /* of the caller; 0: /proc does not show it here */

    /* guarded by front->lock: */
    unsigned refs;
    bool is_answered, is_interrupted;
    bool was_looked_at;
} VjWait;

/* Flags that chattr(1) sets, behind an invalidation. */
struct VjFlagsJob {
    VjWait wait;
    /* On an edit thread, with no lock held; gives the reference back. */
    void (*run)(VjFront *f, VjFlagsJob *job);
    uint64_t ino;
    uint32_t flags; /* VJ_INODE_CHATTR */
    VjCaller who;
};

/* With one reference; from now on another thread may answer.  No locks held. */
void vj_wait_begin(VjWait *w, VjFront *f, fuse_req_t req, VjHandle *h);
/* True: the request has no answer yet, and this thread gives it.  No locks held. */
bool vj_wait_claim(VjWait *w);
/* The last reference frees it, and the handle if that was dropped meanwhile. */
void vj_wait_unref(VjWait *w);
/* At the end, until none is left: a thread of the rooms below may still have one to
 * answer.  No locks held. */
void vj_front_await_waits(VjFront *f);
/* ---- requests that wait for metadata or store (interrupt.c) ------------------------ */

/* The most open files that one request names: copy_file_range(2). */
#define VJ_SERVED_HANDLES 2u

/* What one request thread works on, or a job of an edit thread. */
typedef struct VjServed {
    VjCancel cancel; /* the first member */
    /* atomic: */
    guint64 unique;      /* of the request; 0: none */
    guint64 changed_ino; /* vj_served_changed; 0: none */
    gint tid;            /* of the caller; 0: /proc does not show it here */
    gint is_interrupted;
    gint may_be_aio; /* its caller need not be in a call of the kernel's meanwhile */
    bool is_job;     /* set before it can be abandoned */
    /* Written by its thread, before a stall; read by whoever abandons it there. */
    VjHandle *handles[VJ_SERVED_HANDLES];
    /* guarded by front->lock: */
    uint64_t fired;     /* the last request that was */
    uint64_t looked_at; /* by the last look at all requests */
    pid_t group;        /* the process of the caller, of the first look; 0: unknown */
    bool is_abandoned;  /* and its thread still works on it */
} VjServed;

void vj_served_init(VjServed *s, VjFront *f);
void vj_served_clear(VjServed *s, VjFront *f);
/* The thread works on request @unique of @tid from now on, and not any more. */
void vj_served_begin(VjServed *s, VjFront *f, uint64_t unique, pid_t tid,
                     bool may_be_aio);
void vj_served_end(VjServed *s, VjFront *f);
/*
 * The calling thread's request goes on in another thread, which enters the VjCancel of
 * the result and calls vj_served_last.  Until then, and until it ends that, the request
 * stands in a stall.  NULL: the calling thread's cannot be cancelled, nor can this.
 */
VjServed *vj_served_hand_over(VjFront *f);
void vj_served_last(VjServed *s, VjFront *f); /* frees it; NULL is fine */
/* The calling thread's request uses @h: it stays until its thread has come back. */
void vj_served_uses(VjHandle *h);
/* The calling thread's request has changed what the kernel believes of @ino, and stands
 * in a stall before it tells: whoever abandons it tells. */
void vj_served_changed(uint64_t ino);
/* INTERRUPT of the request @unique, which may not have begun yet. */
void vj_served_interrupt(VjFront *f, uint64_t unique);
/* At the end: none is to be waited for.  Under f->lock. */
void vj_served_cancel_all(VjFront *f);
/* Looks for requests that are served since the last look, and whose callers die without
 * an INTERRUPT.  Where none is served f->is_looking ends, and vj_served_begin sets it
 * again and broadcasts f->changed.  Takes f->lock. */
void vj_served_look(VjFront *f);
/* There is a look within a second, also where no request is served that can be cancelled.
 * Takes f->lock. */
void vj_served_be_seen(VjFront *f);

/* The releaser: one of f->let_go. */
void vj_front_release_left(gpointer data, gpointer user_data);
/* A thread of its own while there are interrupted requests. */
void vj_front_watch(gpointer data, gpointer user_data);
/* The kernel does not use @h any more: forgets and releases it, now or when the last wait
 * for it is over. */
void vj_front_handle_drop(VjFront *f, VjHandle *h);

#endif
