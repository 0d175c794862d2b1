/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-private.h - what the files of the engine remote share
 *
 *   remote.c       calls, and what comes back
 *   remote-open.c  options; open and close; whether the node is there
 */
#ifndef VJ_META_REMOTE_PRIVATE_H
#define VJ_META_REMOTE_PRIVATE_H

#include "meta/meta-private.h"
#include "rpc/messages.h"
#include "rpc/rpc.h"

typedef struct VjRemoteEngine {
    VjEngine engine;
    /* never change after open: */
    char *node; /* its address; owned */
    VjRpcClient *client;
    int64_t timeout_us;
    bool read_only;
    VjMutex lock;
    VjCond greeted; /* the node has answered a hello */
    VjCond pause;   /* nothing wakes it but a VjCancel */
    /* guarded by lock: */
    bool is_open;
    bool is_away;                         /* the connection was lost, and is not back */
    bool has_place;                       /* it has let this client in, */
    uint8_t place[VJ_WIRE_UUID_BYTES];    /* and this is its place */
    int refusal;                          /* what it said to the last hello; 0: come in */
    char *refusal_text;                   /* for people; owned, may be NULL */
    uint64_t applies_begun, applies_over; /* of this engine */
} VjRemoteEngine;

/* Members of the ops table, contracts there. */
extern const VjOptSpec vj_remote_engine_options[];
bool vj_remote_engine_check(const VjOpts *opts, GError **error);
uint32_t vj_remote_engine_needs_of(const VjOpts *opts);
bool vj_remote_engine_open(VjEngine *e, const VjMetaPlace *place, const VjOpts *opts,
                           GError **error);
int vj_remote_engine_close(VjEngine *e, bool in_order);

#endif
