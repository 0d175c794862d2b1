/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* call.c - one request and its answer, and threads that wait for it */
#include "rpc/client-private.h"

#include <stdlib.h>

typedef struct CallAndState {
    VjRpcCall call;
    VjRpcCallState state;
} CallAndState;

VjRpcCall *vj_rpc_call_new(uint16_t op)
{
    CallAndState *both = vj_malloc0(sizeof *both);

    both->call.op = op;
    both->call.deadline_us = INT64_MAX;
    both->call.refs = 1;
    both->call.state = &both->state;
    both->state.call = &both->call;
    return &both->call;
}

VjRpcCall *vj_rpc_call_ref(VjRpcCall *call)
{
    g_atomic_int_inc(&call->refs);
    return call;
}

void vj_rpc_call_unref(VjRpcCall *call)
{
    if (call == NULL || !g_atomic_int_dec_and_test(&call->refs)) {
        return;
    }
    g_assert(call->state->place == VJ_CALL_NEW || call->state->place == VJ_CALL_ENDED);
    g_clear_pointer(&call->message, g_byte_array_unref);
    g_clear_pointer(&call->reply, g_byte_array_unref);
    vj_buf_unref(call->lead);
    vj_buf_unref(call->bulk);
    vj_buf_unref(call->into);
    vj_buf_unref(call->reply_bulk);
    g_free(call); /* the first member of both */
}

/* ---- waiting ----------------------------------------------------------------------- */

struct VjCallWaiter {
    VjMutex lock; /* VJ_RANK_RPC */
    VjCond ended;
    VjCallWaiter *next; /* of those that no thread uses */
};

static VjMutex unused_lock = VJ_MUTEX_INIT(VJ_RANK_RPC, "rpc.waiters");
static VjCallWaiter *unused; /* guarded by unused_lock */

static VjCallWaiter *waiter_take(void)
{
    VjCallWaiter *w;

    vj_mutex_lock(&unused_lock);
    w = unused;
    if (w != NULL) {
        unused = w->next;
    }
    vj_mutex_unlock(&unused_lock);
    if (w == NULL) {
        w = g_new0(VjCallWaiter, 1);
        vj_mutex_init(&w->lock, VJ_RANK_RPC, "rpc.waiter");
        vj_cond_init(&w->ended);
    }
    return w;
}

static void waiter_give_back(VjCallWaiter *w)
{
    vj_mutex_lock(&unused_lock);
    w->next = unused;
    unused = w;
    vj_mutex_unlock(&unused_lock);
}

void vj_call_end(VjRpcCall *call, int rc)
{
    VjCallWaiter *w = call->state->waiter;

    g_assert(rc <= 0);
    vj_loop_call_ends(call->state->loop); /* the loop may go with the last answer */
    call->rc = rc;
    if (w != NULL) {
        vj_mutex_lock(&w->lock);
        call->state->is_done = true;
        vj_cond_signal(&w->ended);
        vj_mutex_unlock(&w->lock);
    } else {
        call->done(call);
    }
    vj_rpc_call_unref(call);
}

typedef struct Waited {
    const VjRpcCall *call;
    VjCallWaiter *waiter;
} Waited;

static bool is_done(void *opaque)
{
    const Waited *w = opaque;
    bool done;

    vj_mutex_lock(&w->waiter->lock);
    done = w->call->state->is_done;
    vj_mutex_unlock(&w->waiter->lock);
    return done;
}

/* Nobody wakes a thread that runs the loop when its request is cancelled: it looks. */
#define LOOK_US (20 * 1000)

void vj_loop_help(VjLoop *loop, bool (*is_over)(void *), void *opaque, int64_t until_us)
{
    bool may_go_on = true;

    vj_lock_assert_none();
    if (is_over(opaque) || !vj_loop_borrow(loop)) {
        return;
    }
    while (may_go_on && !is_over(opaque)) {
        int64_t now_us = vj_clock_mono_us();
        VjCancel *own = vj_cancel_leave(); /* what the loop runs is for others */

        may_go_on = vj_loop_borrowed_run(loop, MIN(until_us, now_us + LOOK_US)) &&
                    now_us < until_us;
        if (own != NULL) {
            vj_cancel_enter(own);
        }
        may_go_on = may_go_on && !vj_cancel_is_fired();
    }
    vj_loop_give_back(loop);
}

/* 0; -ECANCELED, -ETIMEDOUT: the calling thread is not to wait any longer. */
static int wait_for(VjRpcCall *call, VjCallWaiter *w)
{
    int64_t until_us = vj_cancel_deadline_us();
    int rc = 0;

    vj_loop_help(call->state->loop, is_done, &(Waited){.call = call, .waiter = w},
                 until_us);
    vj_mutex_lock(&w->lock);
    while (!call->state->is_done && rc == 0) {
        rc = vj_cond_wait_or_cancel(&w->ended, &w->lock, until_us);
    }
    if (call->state->is_done) {
        rc = 0;
    }
    vj_mutex_unlock(&w->lock);
    return rc;
}

int vj_rpc_run(VjRpcClient *c, VjRpcCall *call)
{
    VjCallWaiter *w = waiter_take();
    int gave_up;

    g_assert(call->done == NULL && call->state->place == VJ_CALL_NEW);
    call->state->waiter = w;
    vj_rpc_submit(c, call);
    gave_up = wait_for(call, w);
    if (gave_up < 0) {
        vj_rpc_cancel(c, call);
        vj_mutex_lock(&w->lock);
        while (!call->state->is_done) {
            vj_cond_wait(&w->ended, &w->lock); /* another thread is answering it */
        }
        vj_mutex_unlock(&w->lock);
        if (call->rc == -ECANCELED && !call->is_answered) {
            call->rc = gave_up;
        }
    }
    waiter_give_back(w);
    return call->rc;
}
