/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * node-model.h - an object node in memory, for tests of the store driver remote
 *
 * The model answers requests as a varjfsd with the role object does, and knows what is
 * durable: a crash takes what no FLUSH has covered, and brings back what was removed and
 * no FLUSH_REMOVES has covered.  A node server is a model behind a listening socket of
 * this process.
 */
#ifndef VJ_TEST_LIB_NODE_MODEL_H
#define VJ_TEST_LIB_NODE_MODEL_H

#include "rpc/messages.h"
#include "rpc/rpc.h"

typedef struct NodeModel NodeModel;

typedef struct NodeReply {
    int rc;
    GByteArray *message; /* owned; never NULL */
    VjBuf *bulk;         /* owned; NULL: none */
    uint32_t bulk_bytes;
} NodeReply;

NodeModel *node_model_new(uint64_t seed, uint64_t size_bytes);
void node_model_free(NodeModel *m);
/* As the server's hello: 0 or -errno, and the reply's message. */
int node_model_hello(NodeModel *m, VjSlice message, GByteArray *reply);
/* One request; never VJ_OP_HELLO. */
NodeReply node_model_run(NodeModel *m, uint16_t op, VjSlice message, VjSlice bulk);
void node_reply_clear(NodeReply *reply);

/* The process ends and another one starts. */
void node_model_crash(NodeModel *m);
/* And the disk is another one, empty. */
void node_model_lose_disk(NodeModel *m);
/* The next @count FLUSHes fail, as long as what they cover is there. */
void node_model_fail_flush(NodeModel *m, unsigned count);
/* Every request fails with this; 0: none. */
void node_model_fail_all(NodeModel *m, int rc);
/* Changes a byte of it, or cuts it; false: it is not there. */
bool node_model_damage(NodeModel *m, uint64_t id, uint64_t nonce, bool cut);
/* Its bytes; -1: it is not there. */
int64_t node_model_has(NodeModel *m, uint64_t id, uint64_t nonce);
/* It has exactly these bytes under that name. */
bool node_model_holds(NodeModel *m, uint64_t id, uint64_t nonce, VjSlice bytes,
                      bool *is_durable);
/* It has an object of that id, under whatever number. */
bool node_model_has_id(NodeModel *m, uint64_t id);
unsigned node_model_count(const NodeModel *m);
/* Requests of @op so far. */
uint64_t node_model_requests(const NodeModel *m, uint16_t op);

typedef struct NodeServer NodeServer;

/* Listens on the unix socket @path.  @model: one request at a time. */
NodeServer *node_server_start(NodeModel *model, const char *path);
void node_server_stop(NodeServer *s);
/* Requests of @op wait until they are let go; 0: none does, and those that wait go on. */
void node_server_hold(NodeServer *s, uint16_t op);
/* The same, but they are done, and their answers wait. */
void node_server_mute(NodeServer *s, uint16_t op);
/* With the lock held: how many wait. */
unsigned node_server_held(NodeServer *s);
/* The lock, under which the model may be used beside the server. */
void node_server_lock(NodeServer *s);
void node_server_unlock(NodeServer *s);

#endif
