/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * server-private.h - a server as its files see it
 *
 * server.c has sockets that listen and threads, peer.c connections and what may come in,
 * request.c requests, their order and their replies.
 */
#ifndef VJ_RPC_SERVER_PRIVATE_H
#define VJ_RPC_SERVER_PRIVATE_H

#include "base/base.h"
#include "rpc/connection-private.h"
#include "rpc/mailbox-private.h"
#include "rpc/messages.h"
#include "rpc/rpc.h"

#define VJ_SERVER_LOOPS_MAX 4u
/* What a request holds besides its body. */
#define VJ_REQUEST_BYTES ((uint64_t)512)
/* A request that comes alone runs in the loop's thread where it holds no more, and those
 * of its operation take no longer. */
#define VJ_SERVER_ASIDE_BYTES ((uint64_t)64 << 10)
#define VJ_SERVER_ASIDE_US ((uint64_t)200)

/* A message of a reply that is not longer needs no memory of its own. */
#define VJ_SERVER_SMALL_REPLY 64u

typedef struct VjServerLoop VjServerLoop;
typedef struct VjPeer VjPeer;
typedef struct VjListener VjListener;

typedef struct VjOpStats {
    uint64_t requests, failures, busy_us; /* atomic */
    uint64_t recent_us;                   /* atomic: what one takes, of the last ones */
} VjOpStats;

/* What a worker does next. */
typedef struct VjJob VjJob;
struct VjJob {
    void (*run)(VjJob *job);
    VjJob *next;
};

struct VjServerLoop {
    VjRpcServer *server;
    VjLoop *loop;
    VjLoopTask begin_task, listen_task, end_task;
    struct event *sweep_event, *accept_event; /* in its thread */
    /* likewise, of VjPeer, the oldest one first: all; those that have not said hello */
    GQueue peers, unknown;
    int64_t full_us; /* since when connections have waited for room; 0: none does */
};

struct VjRpcServer {
    VjRpcServerConfig config;
    unsigned handler_count;
    VjOpStats *op_stats;
    GPtrArray *listeners; /* of Listener; changes before start alone */
    unsigned listen_count;
    VjServerLoop loops[VJ_SERVER_LOOPS_MAX];
    unsigned loop_count;
    GPtrArray *workers; /* of GThread */
    bool is_started;
    unsigned next_loop; /* in the thread of loop 0 */

    gint is_draining; /* atomic */
    VjConnCounters counters;
    VjPipes pipes;
    /* atomic: */
    uint64_t held_bytes, reply_bytes; /* all, and those of replies that are not out */
    uint64_t accepted, refused, protocol_errors, requests, failures;
    gint connections, mailboxes;
    gint active; /* requests whose reply is not out */
    gint stalled_count, deferred_count;

    VjMutex lock; /* VJ_RANK_RPC */
    VjCond work;  /* for workers */
    VjCond quiet; /* no connection, or no request, or a loop has begun or ended */
    /* guarded by lock: */
    VjJob *first, *last; /* of the server's own, run before those of peers */
    GQueue ring;         /* of VjPeer that have jobs: one of each in turn */
    unsigned idle;
    bool is_waking; /* one of these has been signalled */
    bool stop;
    unsigned loops_changed;
    GQueue bulks;   /* of VjPeer whose bulk comes in, without room for all of it */
    GQueue stalled; /* of VjPeer: not read, as the server has no room; a reference each */
    GQueue deferred;     /* of VjRpcRequest: run when the server has room for replies */
    GHashTable *clients; /* of VjServerClient, by its id */
    GQueue old_clients;  /* of those without a connection, the oldest one first */
};

/* A client that has said who it is, and what it is not to be mixed up with: what it sent
 * before it connected again.  Who is not the same, or says hello to another volume, is
 * another client, whatever number it says. */
typedef struct VjServerClient {
    uint8_t id[VJ_WIRE_UUID_BYTES];
    char *identity, *volume;
    uint64_t connection; /* its last one */
    VjPeer *peer;        /* of that one, until it is over; NULL */
    GList link;          /* in old_clients */
} VjServerClient;

struct VjPeer {
    gint refs;
    VjRpcServer *server;
    VjServerLoop *loop;
    VjConn *conn;
    /* in the loop's thread: */
    GList link, unknown_link; /* in loop->peers and loop->unknown */
    bool is_in_bulks;
    int64_t accepted_us;
    bool said_hello;        /* it was read */
    bool has_superseded;    /* in the thread that runs hello */
    uint64_t reading_bytes; /* room that was taken for the frame that is coming in */
    const VjRpcHandler *reading_handler;
    int64_t reading_us; /* when its head was read; 0: none is coming in */
    int reading_rc;     /* not 0: it is refused with that */
    bool reading_by_mailbox;
    int64_t life_us;  /* when it was told last that this side is alive */
    gint life_is_out; /* atomic */
    VjOut life_out;   /* holds a reference while it is out */
    char identity[VJ_RPC_IDENTITY_MAX + 1];
    VjLoopTask start_task;
    VjCredentials *credentials; /* until it has started */
    VjMailbox *mailbox;         /* NULL: none; once it has one, until it is gone */

    VjJob gone_job;
    /* guarded by the server's lock: */
    VjJob *first, *last; /* requests to be run */
    GList ring_link, bulk_link;
    VjServerClient *client;  /* NULL: it has not said who it is, or connected again */
    VjRpcRequest *successor; /* hello of that, to be answered when this one is over */
    VjMutex lock;            /* VJ_RANK_RPC */
    /* guarded by lock: */
    bool is_welcome; /* hello was answered well; role and user do not change any more */
    uint8_t role;
    void *user;
    uint64_t features;  /* that both sides have; before is_welcome: 0 */
    GHashTable *by_tag; /* of requests that are not answered */
    GQueue unanswered;  /* the same, in the order in which they came */
    unsigned in_flight; /* requests whose reply is not out */
    uint64_t held_bytes, reply_bytes;
    bool wants_room; /* not read until something is given back */
    bool is_stalled; /* in the server's queue */
    GQueue deferred; /* of VjRpcRequest: run when there is room for replies */
};

struct VjRpcRequest {
    VjJob job;
    VjOut out;
    VjPeer *peer;
    const VjRpcHandler *handler; /* NULL: of the room's own */
    VjOpStats *stats;
    uint16_t op;
    uint64_t tag;
    int64_t begin_us, deadline_us;
    GByteArray *message;
    VjBuf *bulk;
    uint32_t bulk_bytes;
    uint64_t held_bytes;
    bool takes_bare;  /* the bulk of its reply may have no checksum */
    bool goes_first;  /* the reply, before others that wait: of PING */
    bool by_mailbox;  /* it stood there, and its reply may */
    gint is_canceled; /* atomic */
    GList link;       /* in unanswered; guarded by the peer's lock, as what follows */
    bool waits_for_earlier;
    uint8_t small_reply[VJ_SERVER_SMALL_REPLY]; /* its message, or: */
    GByteArray *reply;
    VjBuf *reply_bulk;
    int reply_fd; /* -1: none */
};

/* ---- server.c: any thread ---------------------------------------------------------- */

/* A worker runs @job; of @p's one after the other, beside those of other peers.  NULL:
 * the server's own. */
void vj_server_push(VjRpcServer *s, VjPeer *p, VjJob *job);
/* Who waits for the end of something looks again. */
void vj_server_say_quiet(VjRpcServer *s);

/* ---- peer.c ------------------------------------------------------------------------ */

/* Takes @fd, which was accepted.  False: no memory. */
bool vj_peer_new(VjRpcServer *s, VjServerLoop *l, int fd, VjCredentials *credentials);
/* Any thread. */
VjPeer *vj_peer_ref(VjPeer *p);
void vj_peer_unref(VjPeer *p);
/* Of the server's room, @bytes are held instead of @before. */
void vj_server_exchange(VjRpcServer *s, uint64_t before, uint64_t bytes);
/* Room that was taken for a request, of its connection and of the server. */
void vj_peer_give_back(VjPeer *p, uint64_t bytes);
/* Of a mailbox whose owner is a peer. */
extern const VjMailboxCallbacks vj_peer_mailbox_callbacks;
/* In the loop's thread: ends connections that are too slow, tells others that this side
 * is alive. */
void vj_peers_sweep(VjServerLoop *l);
void vj_peers_close_all(VjServerLoop *l);

/* ---- request.c --------------------------------------------------------------------- */

/* Of the frame for which room was taken.  NULL: its tag is in use; message and bulk,
 * which are handed over, are freed.  In the loop's thread. */
VjRpcRequest *vj_request_new(VjPeer *p, const VjFrame *frame, GByteArray *message,
                             VjBuf *bulk);
/* Runs it, or has it run: hello; what a handler serves. */
void vj_request_begin_hello(VjRpcRequest *r);
void vj_request_begin(VjRpcRequest *r);
/* Any thread.  A reply without a message. */
void vj_request_refuse(VjRpcRequest *r, int rc);
/* Its sender does not want it any more.  The peer's lock is held. */
void vj_request_cancel(VjPeer *p, uint64_t tag);
void vj_request_cancel_all(VjPeer *p);
/* Whoever is @p's client on its next connection may be answered. */
void vj_server_client_left(VjPeer *p);
GHashTable *vj_server_clients_new(void);

#endif
