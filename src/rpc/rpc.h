/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rpc.h - requests to another process and their answers: the face of the room rpc
 *
 * A *client* is a peer as its user sees it: it connects when there is something to ask,
 * connects again after a loss, and has any number of calls in flight, up to a limit,
 * which are answered in any order.  A *server* listens, and runs a handler for each
 * request, in threads of its own.  Between the two are frames (frame-format.h) over a
 * transport: unix, tcp, or tcp with TLS 1.3.
 *
 * Sockets are served by one loop thread for all clients of the process, and by those of a
 * server.  That of clients runs no user's code but connected(), lost(), and done() of
 * calls; one of a server runs handlers that say is_quick, and that of a request which the
 * server has alone (loop-private.h).
 */
#ifndef VJ_RPC_RPC_H
#define VJ_RPC_RPC_H

#include "base/base.h"
#include "rpc/frame-format.h"

/* ---- limits ------------------------------------------------------------------------ */

/* Of one frame, bytes; an operation has smaller ones.  The largest bulk is that of an
 * APPLY, which has to take whatever a transaction may change. */
#define VJ_RPC_MESSAGE_MAX ((uint32_t)4 << 20)
#define VJ_RPC_BULK_MAX ((uint32_t)80 << 20)
/* Requests of one connection that are not answered yet. */
#define VJ_RPC_IN_FLIGHT_MAX 1024u
/* Bytes of one connection's requests and replies in memory of a server; further requests
 * are not read meanwhile.  One request may always be read. */
#define VJ_RPC_CONNECTION_BYTES_MAX ((uint64_t)128 << 20)
#define VJ_RPC_CONNECTIONS_MAX 16384u
/* How long a peer that has not said hello, or has sent a part of a frame and then
 * nothing, keeps its connection. */
#define VJ_RPC_HELLO_TIMEOUT_US ((int64_t)10 * 1000 * 1000)
#define VJ_RPC_FRAME_TIMEOUT_US ((int64_t)30 * 1000 * 1000)
/* Beside that, a frame has to come in, or to be taken, at so many bytes a second. */
#define VJ_RPC_FRAME_BYTES_PER_SECOND_MIN ((int64_t)64 << 10)
/* A client with calls in flight asks PING after a second of silence; after so much
 * silence the peer is lost. */
#define VJ_RPC_SILENCE_DEFAULT_US ((int64_t)5 * 1000 * 1000)
#define VJ_RPC_PORT 7843u

/* ---- addresses and credentials ----------------------------------------------------- */

/* "unix:PATH", or "HOST", "HOST:PORT", "[V6]:PORT".  Touches nothing. */
bool vj_rpc_address_check(const char *address, GError **error);
/* VJ_NEEDS_UNIX or VJ_NEEDS_TCP. */
uint32_t vj_rpc_address_needs(const char *address);

/*
 * VjCredentials - by what two peers believe each other; counted, never changes
 *
 * Files are refused which others than their owner may read or write (keys), or write (all
 * others), and which are no regular files.  Paths are below @dir_fd unless they are
 * absolute.  Threads: any once loaded.
 */
typedef struct VjCredentials VjCredentials;

typedef struct VjCredentialsFiles {
    const char *key;      /* a pre-shared key, as varjfsctl keygen writes it; or NULL */
    const char *identity; /* with key: the name under which the other side knows it */
    const char *certificate; /* PEM, with ca and certificate_key; or NULL */
    const char *certificate_key;
    const char *ca;
    /* No TLS: over unix sockets, and over tcp to addresses of the own machine alone. */
    bool insecure;
} VjCredentialsFiles;

/*
 * vj_credentials_load - those of a client: a key, certificates, or insecure, one of them
 *
 * Returns   false with *out NULL and @error: EINVAL none or several of them are given, or
 *           what a file has is no key or certificate; EACCES others may read or write a
 *           file; EFBIG; what open(2) says
 * Threads   any; reads files      Locks   none
 */
bool vj_credentials_load(int dir_fd, const VjCredentialsFiles *files, VjCredentials **out,
                         GError **error);
/*
 * Of a server: certificates, keys by @find, both, or insecure; files->key is NULL.  @find
 * is asked, in the server's loop threads, for the key of @identity, which may hold any
 * bytes but NUL; false: there is none, which a peer cannot distinguish from a wrong key.
 * @find and @opaque stay valid until the last reference is gone; must not block.  NULL:
 * certificates alone.  With insecure @find is not asked.
 */
typedef struct VjKey256 {
    uint8_t bytes[32];
} VjKey256;
typedef bool VjCredentialsFind(void *opaque, const char *identity, VjKey256 *out);
bool vj_credentials_load_server(int dir_fd, const VjCredentialsFiles *files,
                                VjCredentialsFind *find, void *opaque,
                                VjCredentials **out, GError **error);
VjCredentials *vj_credentials_ref(VjCredentials *c);
void vj_credentials_unref(VjCredentials *c); /* NULL is fine */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjCredentials, vj_credentials_unref)
/* Of the name that a key is known by, bytes. */
#define VJ_RPC_KEY_IDENTITY_MAX 250u
/* A new key as one line of text with its end, owned. */
char *vj_key_new_text(void);
/* The same as a new file of mode 0600; its directory is not synced. */
bool vj_key_write_new(int dir_fd, const char *path, GError **error);
/* The file of one line, read. */
bool vj_key_load(int dir_fd, const char *path, VjKey256 *out, GError **error);
/* Overwrites what is of no use any more. */
void vj_key_forget(void *key, size_t len);

/* ---- client ------------------------------------------------------------------------ */

typedef struct VjRpcClient VjRpcClient;
typedef struct VjRpcCall VjRpcCall;

/* What the other side said in its answer to hello (messages.h). */
struct VjHelloReply;

typedef struct VjRpcClientConfig {
    const char *address;
    VjCredentials *credentials; /* a reference is taken */
    VjSlice hello;      /* vj_hello_encode made it; copied, its client is filled in */
    int64_t silence_us; /* 0: VJ_RPC_SILENCE_DEFAULT_US */
    /*
     * The peer is there: it has answered hello with @status (0 or -errno; not 0: the
     * connection is closed again), and @reply, borrowed.  In the loop thread, before any
     * call goes out on that connection; must not block.  Returns false: the
     * connection is of no use, is closed, and is tried again later.  NULL: any with
     * status 0 is taken.  -EACCES without an answer: one side refused the other's
     * credentials, of which @reply is the text.
     */
    bool (*connected)(void *opaque, int status, VjSlice reply);
    /* A connection of which connected() returned true is over; all calls on it have been
     * answered.  In the loop thread; must not block.  NULL: not asked. */
    void (*lost)(void *opaque);
    void *opaque;
} VjRpcClientConfig;

/* Connects to nothing yet, but asks the resolver for the host's addresses, and may block
 * for as long as that does: a sandbox may not let it ask later.  Returns owned; NULL with
 * @error: an address that is none. */
VjRpcClient *vj_rpc_client_new(const VjRpcClientConfig *config, GError **error);
/* Answers what is in flight with -ECANCELED, waits for the loop to let go.  Threads: any
 * but the loop's. */
void vj_rpc_client_free(VjRpcClient *c);
/* Begins to connect, without a call, and goes on trying until it is connected. */
void vj_rpc_client_connect(VjRpcClient *c);
bool vj_rpc_client_is_connected(VjRpcClient *c);
/* Why the last attempt to connect failed, "ADDRESS: reason" for people, owned; NULL: none
 * has since it was last connected.  Threads: any. */
char *vj_rpc_client_why(VjRpcClient *c);

typedef struct VjRpcTraffic {
    uint64_t sent_bytes, received_bytes; /* frames, before TLS */
    uint64_t calls, connects, losses;
} VjRpcTraffic;
void vj_rpc_client_traffic(VjRpcClient *c, VjRpcTraffic *out);

/*
 * VjRpcCall - one request and its answer
 *
 * Counted.  The caller has one reference, the room one from submit until done() has
 * returned.
 */
struct VjRpcCall {
    /* The request; does not change after submit. */
    uint16_t op;
    GByteArray *message; /* owned; NULL: empty */
    VjBuf *bulk;         /* the first bulk_bytes of it; a reference; NULL: none */
    uint32_t bulk_bytes;
    /* What the bulk begins with, before those of bulk: lead_bytes at lead_data, which are
     * in this buffer; a reference.  NULL: nothing. */
    VjBuf *lead;
    const uint8_t *lead_data;
    uint32_t lead_bytes;
    /* Where the bulk of the answer goes: at most bulk_max bytes; a reference.  NULL: an
     * answer with a bulk gets a buffer of its own, of at most bulk_max bytes. */
    VjBuf *into;
    uint32_t bulk_max;   /* a longer bulk is -EPROTO */
    int64_t deadline_us; /* of vj_clock_mono_us(); INT64_MAX: none */
    /* Where there is no connection: wait for one until the deadline; else -ENOTCONN at
     * once, and a connection is begun. */
    bool waits_for_connection;
    /* Whoever submits it, or the call that it is for, waits by vj_rpc_help at once. */
    bool has_helper;
    /* Of a GET: who gets the bulk compares it with checksums that do not come from the
     * peer, so it may come without one. */
    bool may_be_bare;
    /* Called once, perhaps before submit returns, by any thread.  Must not block.  Where
     * a call has no done it is waited for by vj_rpc_run. */
    void (*done)(VjRpcCall *call);
    void *opaque;
    /*
     * The answer: 0 or -errno of the peer's status; or -ENOTCONN, nothing was sent;
     * -ECONNRESET, the connection was lost, and it may have been done; -ETIMEDOUT,
     * -ECANCELED, likewise; -EPROTO, the answer was none (the connection is closed).
     */
    int rc;
    bool is_answered;  /* rc is the peer's */
    GByteArray *reply; /* its message, owned; never NULL when is_answered */
    VjBuf *reply_bulk; /* into, or a buffer of its own; NULL: none came */
    uint32_t reply_bulk_bytes;
    /* the room's: */
    gint refs;
    struct VjRpcCallState *state;
};

VjRpcCall *vj_rpc_call_new(uint16_t op); /* deadline: none */
VjRpcCall *vj_rpc_call_ref(VjRpcCall *call);
void vj_rpc_call_unref(VjRpcCall *call); /* NULL is fine */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjRpcCall, vj_rpc_call_unref)

/* Begins it.  Never blocks.  More than VJ_RPC_IN_FLIGHT_MAX wait in the client, in order.
 * Threads: any.  Locks: none, or those that done() may be called with. */
void vj_rpc_submit(VjRpcClient *c, VjRpcCall *call);
/* Unless it was answered, answers it with -ECANCELED before it returns, and tells the
 * peer.  A hint to the peer alone. */
void vj_rpc_cancel(VjRpcClient *c, VjRpcCall *call);
/* Submits and waits; returns call->rc.  A thread whose VjCancel is fired (base/cancel.h)
 * cancels it. */
int vj_rpc_run(VjRpcClient *c, VjRpcCall *call) G_GNUC_WARN_UNUSED_RESULT;
/*
 * vj_rpc_help - receive answers in a thread that waits for one
 *
 * Saves the way by another thread.  Until @is_over, which is called without a lock; or as
 * long as it may (another call is in flight, the thread's VjCancel was fired, @until_us):
 * then the caller waits in its own way.
 */
void vj_rpc_help(VjRpcClient *c, bool (*is_over)(void *opaque), void *opaque,
                 int64_t until_us);

/* ---- server ------------------------------------------------------------------------ */

typedef struct VjRpcServer VjRpcServer;
/* A request that is being served.  The handler's until it is answered. */
typedef struct VjRpcRequest VjRpcRequest;

typedef struct VjRpcHandler {
    uint16_t op;      /* 0 ends a table */
    uint8_t role;     /* VJ_ROLE_… of messages.h; requests of other roles are refused */
    const char *name; /* for statistics and traces */
    uint32_t message_max, bulk_max; /* longer ones are -EFBIG, and the connection ends */
    /* In a thread of the server's, and may block; answers once, by vj_rpc_reply, now or
     * later by any thread. */
    void (*run)(VjRpcRequest *r);
    /* It does not block, only touches memory or the page cache, and its reply is no
     * longer than what it got: runs in the loop thread, always, which saves a hand-over
     * to another thread. */
    bool is_quick;
    /* Run when each request that came before it on its connection is answered; no thread
     * waits meanwhile.  For FLUSH and FLUSH_REMOVES. */
    bool after_earlier;
} VjRpcHandler;

typedef struct VjRpcServerConfig {
    const VjRpcHandler *handlers;
    /*
     * A peer has said hello: @identity is the one that its credentials proved ("" without
     * TLS).  0, with its @role, what requests of it find by vj_rpc_request_peer, and the
     * message of the reply; -errno, and the connection ends after the reply.  In a thread
     * of the server's; may block.
     */
    int (*hello)(void *opaque, const char *identity, VjSlice message, uint8_t *role,
                 void **peer, GByteArray *reply);
    /* The connection is over; no request of it is left. */
    void (*gone)(void *opaque, void *peer);
    void *opaque;
    unsigned workers;         /* threads that run handlers, beside loops; at least 1 */
    unsigned connections_max; /* 0: VJ_RPC_CONNECTIONS_MAX */
    uint64_t connection_bytes_max; /* 0: the default above */
    uint64_t bytes_max;            /* of all connections together; 0: 1 GiB */
} VjRpcServerConfig;

VjRpcServer *vj_rpc_server_new(const VjRpcServerConfig *config);
/* Before vj_rpc_server_start.  @credentials: a reference is taken.  A socket file that no
 * process listens on is replaced. */
bool vj_rpc_server_listen(VjRpcServer *s, const char *address, VjCredentials *credentials,
                          GError **error);
/* The port that an address with port 0 got; of listen number @index. */
unsigned vj_rpc_server_port(const VjRpcServer *s, unsigned index);
/* Its threads begin. */
bool vj_rpc_server_start(VjRpcServer *s, GError **error);
/* No new connections, no new requests (VJ_WIRE_LEAVING); waits until those that are
 * running are answered and sent, or the time is over.  False: some were left. */
bool vj_rpc_server_drain(VjRpcServer *s, int64_t deadline_us);
/* Closes all connections, waits for handlers. */
void vj_rpc_server_free(VjRpcServer *s);

typedef struct VjRpcServerStats {
    uint64_t connections, accepted, refused, protocol_errors;
    uint64_t received_bytes, sent_bytes; /* frames, before TLS */
    uint64_t held_bytes;                 /* of requests and replies, now */
    uint64_t requests, failures;
} VjRpcServerStats;
void vj_rpc_server_stats(VjRpcServer *s, VjRpcServerStats *out);
/* Requests, those that failed, and microseconds of handler @index of the table. */
void vj_rpc_server_op_stats(VjRpcServer *s, unsigned index, uint64_t *requests,
                            uint64_t *failures, uint64_t *busy_us);

VjSlice vj_rpc_request_message(const VjRpcRequest *r); /* borrowed */
/* Borrowed; aligned as VjBuf, with room for its length rounded up to VJ_BUF_ALIGN.  NULL:
 * the request has none. */
VjBuf *vj_rpc_request_bulk(const VjRpcRequest *r, uint32_t *bytes);
void *vj_rpc_request_peer(const VjRpcRequest *r);
/* When its sender gives it up; INT64_MAX: never. */
int64_t vj_rpc_request_deadline_us(const VjRpcRequest *r);
/* Its sender has, or is gone. */
bool vj_rpc_request_is_canceled(const VjRpcRequest *r);
/* @rc 0 or -errno; @message, of at most VJ_WIRE_REPLY_MESSAGE_MAX bytes, copied; @bulk
 * NULL, or a buffer whose first @bulk_bytes go out, of which a reference is taken.  Ends
 * @r.  Threads: any.  Does not block. */
void vj_rpc_reply(VjRpcRequest *r, int rc, VjSlice message, VjBuf *bulk,
                  uint32_t bulk_bytes);
/*
 * vj_rpc_reply_file - the bulk of a good reply is a part of a file
 *
 * The bytes are not copied, and have no checksum on the way: who asked has said that it
 * needs none (VjRpcCall.may_be_bare).
 *
 * @fd       a regular file, borrowed; its bytes do not change any more
 * Returns   0: @r is answered; else it is not: -EOPNOTSUPP a reply by vj_rpc_reply is
 *           called for; -EBADMSG the file is shorter; -EIO
 * Threads   those that run handlers; may block      Locks   none
 */
int vj_rpc_reply_file(VjRpcRequest *r, int fd, uint64_t offset,
                      uint32_t bytes) G_GNUC_WARN_UNUSED_RESULT;
/* Both sides of its connection have it (VJ_FEATURE_... of messages.h). */
bool vj_rpc_request_has_feature(const VjRpcRequest *r, uint64_t feature);
/* A good reply of @message, with which @fd goes to the peer, where that has one of
 * VJ_FEATURES_OF_FDS: closed when it has gone out.  Threads: any.  Does not block. */
void vj_rpc_reply_fd(VjRpcRequest *r, VjSlice message, int fd);
/*
 * vj_rpc_reply_mailbox - a reply with which a mailbox goes to the peer: memory where
 * small requests and their replies stand from then on
 *
 * The server looks at it as long as requests come one soon after the other, so that
 * nobody has to be woken for them.  A connection has one (-EBUSY), a server as many as it
 * likes.
 *
 * Threads   of a quick handler: the loop's; does not block
 */
void vj_rpc_reply_mailbox(VjRpcRequest *r);
/* The same with a bell (eventfd(2)) for the mailbox, by which its peer says that
 * something stands there: where both may use one processor alone, looking keeps it from
 * who is looked for. */
void vj_rpc_reply_bell(VjRpcRequest *r);

#endif
