/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * serve-private.h - what serve.c and receive.c know of the request threads
 */
#ifndef VJ_FRONT_SERVE_PRIVATE_H
#define VJ_FRONT_SERVE_PRIVATE_H

#include "front/front-private.h"

#include <linux/fuse.h>

/* What stands before the bytes of a WRITE; they begin a page. */
#define VJ_HEAD_BYTES (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))
#define VJ_HEAD_SKIP (VJ_PAGE_BYTES - VJ_HEAD_BYTES)

typedef struct VjServer VjServer;

typedef struct VjWorker {
    VjServer *server;
    pthread_t thread;
    /* Guarded by front->lock: to be joined; NULL: its maker has not got it yet. */
    GThread *handle;
    uint8_t *block; /* of VJ_FS_BLOCK_BYTES; the request stands from VJ_HEAD_SKIP on */
    VjServed served;
    bool waits; /* counted as idle already: it has nothing left to do but to answer */
    /* receive.c: */
    gint stands;       /* atomic: VjStands */
    bool is_under_way; /* its request counts in server->under_way */
    bool was_at_once;  /* the request was there when the thread came for it */
    uint32_t last_tid; /* the thread that sent its last request; 0: there was none */
    int64_t poll_us;   /* while it is the sole one: how long it polls */
} VjWorker;

/* Where a signal has to fetch a thread from. */
typedef enum VjStands {
    VJ_STANDS_ELSEWHERE,
    VJ_STANDS_RECEIVING, /* waits for a request, or is about to */
    VJ_STANDS_PARKED,
} VjStands;

struct VjServer {
    VjFront *front;
    unsigned most; /* threads */
    gint idle;     /* of them, those that wait for a request, or are about to; atomic */
    /* receive.c: */
    int64_t poll_most_us; /* never changes; 0: nobody polls */
    int unpark_fd;        /* eventfd(2), a semaphore */
    gint parked;          /* atomic: threads that wait for unpark_fd, or are about to */
    VjWorker *sole;       /* atomic: it alone receives; NULL: each idle thread does */
    int64_t sole_from_us; /* atomic: nobody becomes the sole one before */
    int64_t answered_us;  /* atomic: when a request was answered last */
    gint under_way;       /* atomic: requests with a caller that waits */
    gint streak;          /* atomic: requests that came soon, and none beside another */
    /* guarded by front->lock: */
    GPtrArray *workers; /* VjWorker, of the threads that run */
    GPtrArray *ended;   /* GThread, to be joined */
    unsigned count;     /* threads, also those that are being started */
    bool over;
    int error; /* why it ended, -errno */
};

/* False: no descriptor is left; why is in errno. */
bool vj_receive_init(VjServer *s, unsigned poll_most_us);
void vj_receive_clear(VjServer *s);

/* The bytes of the next request, or why there is none: 0, it is over; -errno. */
ssize_t vj_receive(VjServer *s, VjWorker *w);
/* After vj_receive: true: the thread receives the next one, too, and nobody does while it
 * handles this one, of @len bytes. */
bool vj_receive_stays_sole(VjServer *s, VjWorker *w, size_t len);
/* The request is answered, or about to be; a second call does nothing. */
void vj_receive_answered(VjServer *s, VjWorker *w);
/* Another thread that was parked receives, too, and counts as idle.  False: none is. */
bool vj_receive_unpark(VjServer *s);
/* For vj_before_wait_set: VjWorker @opaque may wait for long.  Takes no locks. */
void vj_receive_before_wait(void *opaque);
/* Nobody is the sole one any more. */
void vj_receive_end_sole(VjServer *s);

static inline struct fuse_in_header vj_worker_head(const VjWorker *w)
{
    struct fuse_in_header head;

    memcpy(&head, w->block + VJ_HEAD_SKIP, sizeof head);
    return head;
}

#endif
