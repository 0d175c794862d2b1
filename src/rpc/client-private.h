/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* client-private.h - calls as client.c and call.c see them */
#ifndef VJ_RPC_CLIENT_PRIVATE_H
#define VJ_RPC_CLIENT_PRIVATE_H

#include "rpc/connection-private.h"

typedef enum VjCallPlace {
    VJ_CALL_NEW,
    VJ_CALL_WAITING,   /* for a connection, or for one that is in flight to end */
    VJ_CALL_IN_FLIGHT, /* has a tag */
    VJ_CALL_ENDED,     /* is being answered, or was */
} VjCallPlace;

/* A thread that waits for a call.  Never freed, as a thread that fires its VjCancel may
 * look at it late; used again and again. */
typedef struct VjCallWaiter VjCallWaiter;

typedef struct VjRpcCallState {
    VjOut out; /* holds a reference of the call until it is released */
    VjRpcCall *call;
    VjCallWaiter *waiter; /* before submit; NULL: done() is called */
    VjLoop *loop;         /* from submit on */
    bool is_done;         /* guarded by the waiter's lock */
    /* guarded by the client's lock: */
    VjCallPlace place;
    uint64_t tag;
    bool is_bare;                         /* from when it has a tag: its reply may be */
    struct VjRpcCallState *next, *before; /* those that wait */
} VjRpcCallState;

/* The answer: done() is called, or who waits is woken; the room's reference is dropped.
 * Once, with no lock held. */
void vj_call_end(VjRpcCall *call, int rc);

/* As vj_rpc_help. */
void vj_loop_help(VjLoop *loop, bool (*is_over)(void *), void *opaque, int64_t until_us);

#endif
