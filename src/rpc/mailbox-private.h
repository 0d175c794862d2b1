/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mailbox-private.h - memory where a small request of a connection stands
 *
 * And then its reply; messages.h has what stands where.  All but vj_mailbox_answer and
 * vj_mailbox_free is called in the loop's thread.
 */
#ifndef VJ_RPC_MAILBOX_PRIVATE_H
#define VJ_RPC_MAILBOX_PRIVATE_H

#include "base/base.h"
#include "rpc/connection-private.h"
#include "rpc/loop-private.h"
#include "rpc/messages.h"

typedef struct VjMailbox VjMailbox;

typedef struct VjMailboxCallbacks {
    /* A frame would be taken now. */
    bool (*is_ready)(void *owner);
    /* It is in the loop's scratch; @len 0: what stood there was none.  May free the
     * mailbox. */
    void (*frame)(void *owner, const uint8_t *bytes, size_t len);
} VjMailboxCallbacks;

/* @fd: of the memory, to be passed on, owned.  0 or -errno. */
int vj_mailbox_new(VjLoop *loop, const VjMailboxCallbacks *callbacks, void *owner,
                   VjMailbox **out, int *fd);
/* @fd: an eventfd, to be passed on, owned.  0, -EBUSY: it has one; or -errno. */
int vj_mailbox_add_bell(VjMailbox *m, int *fd);
/* Something of the peer has come: if that waits for each request, the next one is looked
 * for in the mailbox for a while.  NULL is fine, as below. */
void vj_mailbox_expect(VjMailbox *m);
/* A frame of the peer is whole: what it has rung for meanwhile is taken soon. */
void vj_mailbox_look_again(VjMailbox *m);
/* Nothing is taken from it any more. */
void vj_mailbox_close(VjMailbox *m);
/* It was closed.  Any thread. */
void vj_mailbox_free(VjMailbox *m);
/* Of a request that stood there.  Any thread.  False: the reply goes by the socket. */
bool vj_mailbox_answer(VjMailbox *m, const VjOut *out);

#endif
