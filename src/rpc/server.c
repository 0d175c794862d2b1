/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * server.c - connections that were accepted, their requests, threads that run handlers
 *
 *     loop thread: head ─ limits ─ body ─> request ─> queue ─> worker: handler ─> reply
 *                    │                        └── quick handlers, PING, CANCEL
 *                    └── no room: reading stops until some is given back
 *
 * What a request holds (its body, then its reply) is counted against its connection and
 * against the server from before the memory is taken until the reply is out.  A
 * connection that has no room is not read; requests that are read already but would make
 * replies that nobody takes wait in the server (`deferred`).
 *
 * Lifetimes: a peer's connection (Peer) has a reference for each request and one until
 * the socket is closed; with the last one a worker calls gone().
 */
#include "rpc/rpc.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rpc/address-private.h"
#include "rpc/connection-private.h"
#include "rpc/messages.h"

#define LOOPS_MAX 4u
/* What a request holds besides its body. */
#define REQUEST_BYTES ((uint64_t)512)
/* Of PING and refused requests, beside VJ_RPC_IN_FLIGHT_MAX. */
#define OWN_IN_FLIGHT_MAX 16u
#define HELLO_MESSAGE_MAX 4096u
#define BYTES_MAX_DEFAULT VJ_GIB
/* Of a request that is not served: it is read and answered; a longer one ends the
 * connection. */
#define REFUSED_BYTES_MAX ((uint64_t)64 << 10)
/* Clients that are not connected now, whose last connection is remembered. */
#define OLD_CLIENTS_MAX 65536u
#define SWEEP_US ((int64_t)250 * 1000)
/* Without descriptors nothing is accepted for so long. */
#define ACCEPT_PAUSE_US ((int64_t)100 * 1000)
/* Of one wake-up. */
#define ACCEPTS_MAX 64u
/* A connection that is not read says so often that its side is alive. */
#define LIFE_US ((int64_t)1000 * 1000)

typedef struct ServerLoop ServerLoop;
typedef struct Peer Peer;

typedef struct OpStats {
    uint64_t requests, failures, busy_us; /* atomic */
} OpStats;

/* What a worker does next. */
typedef struct Job Job;
struct Job {
    void (*run)(Job *job);
    Job *next;
};

typedef struct Listener {
    VjRpcServer *server;
    int fd;
    struct event *event; /* of loop 0; NULL: stopped */
    VjCredentials *credentials;
    unsigned index;
    char *path; /* of a socket file that is removed at the end */
    dev_t device;
    ino_t inode;
} Listener;

struct ServerLoop {
    VjRpcServer *server;
    VjLoop *loop;
    VjLoopTask begin_task, listen_task, end_task;
    struct event *sweep_event, *accept_event; /* in its thread */
    GQueue peers;                             /* of Peer; likewise */
};

struct VjRpcServer {
    VjRpcServerConfig config;
    unsigned handler_count;
    OpStats *op_stats;
    GPtrArray *listeners; /* of Listener; changes before start alone */
    unsigned listen_count;
    ServerLoop loops[LOOPS_MAX];
    unsigned loop_count;
    GPtrArray *workers; /* of GThread */
    bool is_started;
    unsigned next_loop; /* in the thread of loop 0 */

    gint is_draining; /* atomic */
    VjConnCounters counters;
    /* atomic: */
    uint64_t held_bytes, reply_bytes; /* all, and those of replies that are not out */
    uint64_t accepted, refused, protocol_errors, requests, failures;
    gint connections;
    gint active; /* requests whose reply is not out */
    gint thirsty_count, deferred_count;

    VjMutex lock; /* VJ_RANK_RPC */
    VjCond work;  /* for workers */
    VjCond quiet; /* no connection, or no request, or a loop has begun or ended */
    /* guarded by lock: */
    Job *first, *last;
    unsigned idle;
    bool stop;
    unsigned loops_changed;
    GQueue thirsty;  /* of Peer: not read, as the server has no room; a reference each */
    GQueue deferred; /* of VjRpcRequest: run when the server has room for replies */
    GHashTable *clients; /* of Client, by its id */
    GQueue old_clients;  /* of Client: those without a connection, the oldest one first */
};

/* A client that has said who it is, and what it is not to be mixed up with: what it sent
 * before it connected again. */
typedef struct Client {
    uint8_t id[VJ_WIRE_UUID_BYTES];
    uint64_t connection; /* its last one */
    Peer *peer;          /* of that one, until it is over; NULL */
    GList link;          /* in old_clients */
} Client;

struct Peer {
    gint refs;
    VjRpcServer *server;
    ServerLoop *loop;
    VjConn *conn;
    GList *link; /* in loop->peers; in the loop's thread, as what follows */
    int64_t accepted_us;
    bool is_open;           /* in loop->peers */
    bool said_hello;        /* it was read */
    bool has_superseded;    /* in the thread that runs hello */
    uint64_t reading_bytes; /* room that was taken for the frame that is coming in */
    const VjRpcHandler *reading_handler;
    int reading_rc;   /* not 0: it is refused with that */
    int64_t life_us;  /* when it was told last that this side is alive */
    gint life_is_out; /* atomic */
    VjOut life_out;   /* holds a reference while it is out */
    char identity[VJ_RPC_IDENTITY_MAX + 1];
    VjLoopTask start_task;
    VjCredentials *credentials; /* until it has started */

    Job gone_job;
    /* guarded by the server's lock: */
    Client *client;          /* NULL: it has not said who it is, or connected again */
    VjRpcRequest *successor; /* hello of that, to be answered when this one is over */
    VjMutex lock;            /* VJ_RANK_RPC */
    /* guarded by lock: */
    bool is_welcome; /* hello was answered well; role and user do not change any more */
    uint8_t role;
    void *user;
    GHashTable *by_tag; /* of requests that are not answered */
    GQueue unanswered;  /* the same, in the order in which they came */
    unsigned in_flight; /* requests whose reply is not out */
    uint64_t held_bytes, reply_bytes;
    bool wants_room; /* not read until something is given back */
    bool is_thirsty; /* in the server's queue */
    GQueue deferred; /* of VjRpcRequest: run when there is room for replies */
};

struct VjRpcRequest {
    Job job;
    VjOut out;
    Peer *peer;
    const VjRpcHandler *handler; /* NULL: of the room's own */
    OpStats *stats;
    uint16_t op;
    uint64_t tag;
    int64_t begin_us, deadline_us;
    GByteArray *message;
    VjBuf *bulk;
    uint32_t bulk_bytes;
    uint64_t held_bytes;
    gint is_canceled; /* atomic */
    GList link;       /* in unanswered; guarded by the peer's lock, as what follows */
    bool waits_for_earlier;
    GByteArray *reply;
    VjBuf *reply_bulk;
};

/* ---- jobs -------------------------------------------------------------------------- */

static void push_job(VjRpcServer *s, Job *job)
{
    vj_mutex_lock(&s->lock);
    job->next = NULL;
    *(s->last == NULL ? &s->first : &s->last->next) = job;
    s->last = job;
    if (s->idle > 0) {
        vj_cond_signal(&s->work);
    }
    vj_mutex_unlock(&s->lock);
}

static gpointer worker_main(gpointer opaque)
{
    VjRpcServer *s = opaque;

    for (;;) {
        Job *job;

        vj_mutex_lock(&s->lock);
        while (s->first == NULL && !s->stop) {
            s->idle++;
            vj_cond_wait(&s->work, &s->lock);
            s->idle--;
        }
        job = s->first;
        if (job != NULL) {
            s->first = job->next;
            s->last = s->first == NULL ? NULL : s->last;
        }
        vj_mutex_unlock(&s->lock);
        if (job == NULL) {
            return NULL;
        }
        job->run(job);
    }
}

static void say_quiet(VjRpcServer *s)
{
    vj_mutex_lock(&s->lock);
    vj_cond_broadcast(&s->quiet);
    vj_mutex_unlock(&s->lock);
}

/* ---- peers ------------------------------------------------------------------------- */

static Peer *peer_ref(Peer *p)
{
    g_atomic_int_inc(&p->refs);
    return p;
}

/* It is over: whoever is the same client's next connection may be answered. */
static void client_left(Peer *p)
{
    VjRpcServer *s = p->server;
    VjRpcRequest *successor;

    vj_mutex_lock(&s->lock);
    if (p->client != NULL) {
        g_assert(p->client->peer == p);
        p->client->peer = NULL;
        g_queue_push_tail_link(&s->old_clients, &p->client->link);
    }
    successor = p->successor;
    vj_mutex_unlock(&s->lock);
    if (successor != NULL) {
        push_job(s, &successor->job);
    }
}

static void run_gone(Job *job)
{
    Peer *p = (Peer *)(void *)((uint8_t *)job - offsetof(Peer, gone_job));
    VjRpcServer *s = p->server;

    g_assert(p->in_flight == 0 && p->held_bytes == 0 && p->unanswered.length == 0);
    if (p->is_welcome && s->config.gone != NULL) {
        s->config.gone(s->config.opaque, p->user);
    }
    client_left(p);
    vj_conn_unref(p->conn);
    vj_credentials_unref(p->credentials);
    g_hash_table_unref(p->by_tag);
    vj_mutex_clear(&p->lock);
    g_free(p);
    if (g_atomic_int_dec_and_test(&s->connections)) {
        say_quiet(s);
    }
}

static void peer_unref(Peer *p)
{
    if (g_atomic_int_dec_and_test(&p->refs)) {
        push_job(p->server, &p->gone_job);
    }
}

/* ---- room -------------------------------------------------------------------------- */

static bool server_takes(VjRpcServer *s, uint64_t bytes)
{
    uint64_t held = __atomic_load_n(&s->held_bytes, __ATOMIC_SEQ_CST);

    do {
        if (held > 0 && held + bytes > s->config.bytes_max) {
            return false;
        }
    } while (!__atomic_compare_exchange_n(&s->held_bytes, &held, held + bytes, true,
                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return true;
}

/* The server has no room for a request of @p, which is read on when some comes back. */
static void become_thirsty(Peer *p)
{
    VjRpcServer *s = p->server;
    bool is_new;

    vj_mutex_lock(&p->lock);
    is_new = !p->is_thirsty;
    p->is_thirsty = true;
    vj_mutex_unlock(&p->lock);
    if (is_new) {
        vj_mutex_lock(&s->lock);
        g_queue_push_tail(&s->thirsty, peer_ref(p));
        vj_mutex_unlock(&s->lock);
        g_atomic_int_inc(&s->thirsty_count);
    }
}

static void resume_thirsty(VjRpcServer *s)
{
    while (g_atomic_int_get(&s->thirsty_count) > 0) {
        Peer *p;

        vj_mutex_lock(&s->lock);
        p = g_queue_pop_head(&s->thirsty);
        vj_mutex_unlock(&s->lock);
        if (p == NULL) {
            return;
        }
        g_atomic_int_add(&s->thirsty_count, -1);
        vj_mutex_lock(&p->lock);
        p->is_thirsty = false;
        vj_mutex_unlock(&p->lock);
        vj_conn_resume(p->conn);
        peer_unref(p);
    }
}

static void server_gives_back(VjRpcServer *s, uint64_t bytes)
{
    __atomic_fetch_sub(&s->held_bytes, bytes, __ATOMIC_SEQ_CST);
    resume_thirsty(s);
}

static void peer_gives_back(Peer *p, uint64_t bytes)
{
    bool resumes;

    vj_mutex_lock(&p->lock);
    g_assert(p->held_bytes >= bytes && p->in_flight > 0);
    p->held_bytes -= bytes;
    p->in_flight--;
    resumes = p->wants_room;
    p->wants_room = false;
    vj_mutex_unlock(&p->lock);
    server_gives_back(p->server, bytes);
    if (resumes) {
        vj_conn_resume(p->conn);
    }
}

/* For one more request of @p.  0; -EAGAIN: later. */
static int take_room(Peer *p, uint64_t bytes)
{
    VjRpcServer *s = p->server;
    bool fits;

    vj_mutex_lock(&p->lock);
    fits =
        p->in_flight < VJ_RPC_IN_FLIGHT_MAX + OWN_IN_FLIGHT_MAX &&
        (p->held_bytes == 0 || p->held_bytes + bytes <= s->config.connection_bytes_max);
    p->wants_room = !fits;
    if (fits) {
        p->held_bytes += bytes;
        p->in_flight++;
    }
    vj_mutex_unlock(&p->lock);
    if (!fits) {
        return -EAGAIN;
    }
    if (!server_takes(s, bytes)) {
        become_thirsty(p);
        /* Once more: the last one to give back may have looked before that. */
        if (!server_takes(s, bytes)) {
            vj_mutex_lock(&p->lock);
            p->held_bytes -= bytes;
            p->in_flight--;
            vj_mutex_unlock(&p->lock);
            return -EAGAIN;
        }
    }
    p->reading_bytes = bytes;
    return 0;
}

/* ---- answers ----------------------------------------------------------------------- */

static VjRpcRequest *request_of_out(VjOut *out)
{
    return (VjRpcRequest *)(void *)((uint8_t *)out - offsetof(VjRpcRequest, out));
}

/* Requests that waited for room for their replies; they look again. */
static void run_deferred(Peer *p)
{
    VjRpcServer *s = p->server;
    VjRpcRequest *r;

    do {
        vj_mutex_lock(&p->lock);
        r = p->reply_bytes < s->config.connection_bytes_max
                ? g_queue_pop_head(&p->deferred)
                : NULL;
        vj_mutex_unlock(&p->lock);
        if (r != NULL) {
            push_job(s, &r->job);
        }
    } while (r != NULL);
    while (g_atomic_int_get(&s->deferred_count) > 0 &&
           __atomic_load_n(&s->reply_bytes, __ATOMIC_SEQ_CST) < s->config.bytes_max) {
        vj_mutex_lock(&s->lock);
        r = g_queue_pop_head(&s->deferred);
        vj_mutex_unlock(&s->lock);
        if (r == NULL) {
            return;
        }
        g_atomic_int_add(&s->deferred_count, -1);
        push_job(s, &r->job);
    }
}

/* The reply is out, or cannot go out. */
static void reply_released(VjOut *out, bool was_sent)
{
    VjRpcRequest *r = request_of_out(out);
    Peer *p = r->peer;
    VjRpcServer *s = p->server;

    (void)was_sent;
    g_clear_pointer(&r->reply, g_byte_array_unref);
    vj_buf_unref(r->reply_bulk);
    vj_mutex_lock(&p->lock);
    p->reply_bytes -= r->held_bytes;
    vj_mutex_unlock(&p->lock);
    __atomic_fetch_sub(&s->reply_bytes, r->held_bytes, __ATOMIC_SEQ_CST);
    peer_gives_back(p, r->held_bytes);
    run_deferred(p);
    if (g_atomic_int_dec_and_test(&s->active) && g_atomic_int_get(&s->is_draining)) {
        say_quiet(s);
    }
    g_free(r);
    peer_unref(p);
}

static void count_answer(VjRpcRequest *r, int rc)
{
    VjRpcServer *s = r->peer->server;

    if (r->stats == NULL) {
        return;
    }
    __atomic_fetch_add(&s->requests, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&r->stats->requests, 1, __ATOMIC_RELAXED);
    if (rc < 0) {
        __atomic_fetch_add(&s->failures, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&r->stats->failures, 1, __ATOMIC_RELAXED);
    }
    if (r->begin_us != 0) {
        __atomic_fetch_add(&r->stats->busy_us,
                           (uint64_t)MAX(vj_clock_mono_us() - r->begin_us, 0),
                           __ATOMIC_RELAXED);
    }
}

/* What the request held becomes what its reply holds. */
static void exchange_room(VjRpcRequest *r, uint64_t bytes)
{
    Peer *p = r->peer;
    VjRpcServer *s = p->server;
    uint64_t before = r->held_bytes;
    VjRpcRequest *next;

    r->held_bytes = bytes;
    vj_mutex_lock(&p->lock);
    g_hash_table_remove(p->by_tag, &r->tag);
    g_queue_unlink(&p->unanswered, &r->link);
    next = g_queue_peek_head(&p->unanswered);
    if (next != NULL && next->waits_for_earlier) {
        next->waits_for_earlier = false;
    } else {
        next = NULL;
    }
    p->held_bytes += bytes - before;
    p->reply_bytes += bytes;
    vj_mutex_unlock(&p->lock);
    __atomic_fetch_add(&s->reply_bytes, bytes, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&s->held_bytes, bytes, __ATOMIC_SEQ_CST);
    server_gives_back(s, before);
    if (next != NULL) {
        push_job(s, &next->job);
    }
}

void vj_rpc_reply(VjRpcRequest *r, int rc, VjSlice message, VjBuf *bulk,
                  uint32_t bulk_bytes)
{
    VjFrame frame = {.flags = VJ_FRAME_REPLY,
                     .op = r->op,
                     .tag = r->tag,
                     .status = vj_wire_status(rc)};

    g_assert(message.len <= VJ_RPC_MESSAGE_MAX && bulk_bytes <= VJ_RPC_BULK_MAX);
    g_assert(bulk == NULL ? bulk_bytes == 0 : bulk_bytes <= bulk->cap);
    count_answer(r, rc);
    if (message.len > 0) {
        r->reply = g_byte_array_sized_new((guint)message.len);
        g_byte_array_append(r->reply, message.data, (guint)message.len);
        r->out.message = vj_slice(r->reply->data, message.len);
    }
    if (bulk_bytes > 0) {
        r->reply_bulk = vj_buf_ref(bulk);
        r->out.bulk = vj_slice(bulk->data, bulk_bytes);
    }
    g_clear_pointer(&r->message, g_byte_array_unref);
    vj_buf_unref(g_steal_pointer(&r->bulk));
    exchange_room(r, REQUEST_BYTES + message.len + bulk_bytes);
    r->out.released = reply_released;
    vj_out_encode(&r->out, &frame);
    vj_conn_send(r->peer->conn, &r->out);
}

static void refuse(VjRpcRequest *r, int rc)
{
    vj_rpc_reply(r, rc, vj_slice(NULL, 0), NULL, 0);
}

/* ---- requests ---------------------------------------------------------------------- */

/* True: there are so many replies that nobody has taken that it waits. */
static bool is_deferred(VjRpcRequest *r)
{
    Peer *p = r->peer;
    VjRpcServer *s = p->server;
    bool waits;

    vj_mutex_lock(&p->lock);
    waits = p->reply_bytes >= s->config.connection_bytes_max;
    if (waits) {
        g_queue_push_tail(&p->deferred, r);
    }
    vj_mutex_unlock(&p->lock);
    if (waits ||
        __atomic_load_n(&s->reply_bytes, __ATOMIC_SEQ_CST) < s->config.bytes_max) {
        return waits;
    }
    peer_ref(p); /* @r may be gone below */
    vj_mutex_lock(&s->lock);
    g_queue_push_tail(&s->deferred, r);
    vj_mutex_unlock(&s->lock);
    g_atomic_int_inc(&s->deferred_count);
    run_deferred(p); /* the last reply may have gone out before that */
    peer_unref(p);
    return true;
}

static void run_request(Job *job)
{
    VjRpcRequest *r =
        (VjRpcRequest *)(void *)((uint8_t *)job - offsetof(VjRpcRequest, job));
    int64_t now_us = vj_clock_mono_us();

    if (vj_rpc_request_is_canceled(r)) {
        refuse(r, -ECANCELED);
    } else if (now_us >= r->deadline_us) {
        refuse(r, -ETIMEDOUT);
    } else if (!is_deferred(r)) {
        r->begin_us = now_us;
        r->handler->run(r);
    }
}

/* The client's entry, new where it is not known yet. */
static Client *client_find(VjRpcServer *s, const VjHello *hello)
{
    Client *client;

    vj_mutex_assert_held(&s->lock);
    client = g_hash_table_lookup(s->clients, hello->client);
    if (client != NULL) {
        return client;
    }
    while (s->old_clients.length >= OLD_CLIENTS_MAX) {
        client = g_queue_peek_head(&s->old_clients);
        g_queue_unlink(&s->old_clients, &client->link);
        g_hash_table_remove(s->clients, client->id);
    }
    client = g_new0(Client, 1);
    memcpy(client->id, hello->client, sizeof client->id);
    client->link.data = client;
    g_queue_push_tail_link(&s->old_clients, &client->link);
    g_hash_table_add(s->clients, client);
    return client;
}

/*
 * What a client sent by an earlier connection must not be done after what it sends by a
 * newer one.  0; -EAGAIN: the earlier one is ended, and @r is run again when it is over;
 * -ESTALE: there is a newer one.
 */
static int supersede(VjRpcRequest *r, const VjHello *hello)
{
    static const uint8_t none[VJ_WIRE_UUID_BYTES];
    Peer *p = r->peer;
    VjRpcServer *s = p->server;
    Client *client;
    int rc = 0;

    if (memcmp(hello->client, none, sizeof none) == 0 || p->has_superseded) {
        return 0;
    }
    p->has_superseded = true;
    vj_mutex_lock(&s->lock);
    client = client_find(s, hello);
    if (hello->connection <= client->connection) {
        rc = -ESTALE;
    } else {
        Peer *before = client->peer;

        if (before == NULL) {
            g_queue_unlink(&s->old_clients, &client->link);
        } else {
            before->client = NULL;
            before->successor = r;
            rc = -EAGAIN;
            vj_conn_close_soon(before->conn, -ESTALE);
        }
        client->connection = hello->connection;
        client->peer = p;
        p->client = client;
    }
    vj_mutex_unlock(&s->lock);
    return rc;
}

static int greet(VjRpcRequest *r, uint8_t *role, void **user, GByteArray *reply)
{
    Peer *p = r->peer;
    VjRpcServer *s = p->server;
    VjSlice message = vj_rpc_request_message(r);
    VjHello hello;
    int rc = vj_hello_decode(message, &hello);

    rc = rc == 0 ? supersede(r, &hello) : rc;
    if (rc == 0 && g_atomic_int_get(&s->is_draining)) {
        rc = -ESHUTDOWN;
    }
    return rc == 0 ? s->config.hello(s->config.opaque, p->identity, message, role, user,
                                     reply)
                   : rc;
}

static void run_hello(Job *job)
{
    VjRpcRequest *r =
        (VjRpcRequest *)(void *)((uint8_t *)job - offsetof(VjRpcRequest, job));
    Peer *p = peer_ref(r->peer);
    g_autoptr(GByteArray) reply = g_byte_array_new();
    uint8_t role = VJ_ROLE_ANY;
    void *user = NULL;
    int rc = -ECANCELED;

    if (!vj_rpc_request_is_canceled(r)) {
        rc = greet(r, &role, &user, reply);
    }
    if (rc == -EAGAIN) {
        peer_unref(p);
        return; /* the successor of another one */
    }
    if (rc == 0) {
        vj_mutex_lock(&p->lock);
        p->is_welcome = true;
        p->role = role;
        p->user = user;
        vj_mutex_unlock(&p->lock);
    }
    vj_rpc_reply(r, rc, vj_slice(reply->data, reply->len), NULL, 0);
    if (rc == 0) {
        vj_conn_resume(p->conn);
    } else {
        vj_conn_finish_soon(p->conn);
    }
    peer_unref(p);
}

VjSlice vj_rpc_request_message(const VjRpcRequest *r)
{
    return r->message != NULL ? vj_slice(r->message->data, r->message->len)
                              : vj_slice(NULL, 0);
}

VjBuf *vj_rpc_request_bulk(const VjRpcRequest *r, uint32_t *bytes)
{
    *bytes = r->bulk_bytes;
    return r->bulk;
}

void *vj_rpc_request_peer(const VjRpcRequest *r)
{
    return r->peer->user;
}

int64_t vj_rpc_request_deadline_us(const VjRpcRequest *r)
{
    return r->deadline_us;
}

bool vj_rpc_request_is_canceled(const VjRpcRequest *r)
{
    return g_atomic_int_get(&r->is_canceled) != 0;
}

/* ---- frames that come in ----------------------------------------------------------- */

static int protocol_error(const char *why)
{
    vj_trace(rpc, "a peer broke the protocol: %s", why);
    return -EPROTO;
}

static const VjRpcHandler *find_handler(const Peer *p, uint16_t op)
{
    for (const VjRpcHandler *h = p->server->config.handlers; h->op != 0; h++) {
        if (h->op == op && (h->role == VJ_ROLE_ANY || h->role == p->role)) {
            return h;
        }
    }
    return NULL;
}

/* Makes a request of the frame whose room was taken.  NULL: its tag is in use. */
static VjRpcRequest *request_new(Peer *p, const VjFrame *frame, GByteArray *message,
                                 VjBuf *bulk)
{
    VjRpcServer *s = p->server;
    VjRpcRequest *r = g_new0(VjRpcRequest, 1);
    bool is_new;

    r->peer = peer_ref(p);
    r->handler = p->reading_handler;
    if (r->handler != NULL) {
        r->stats = &s->op_stats[r->handler - s->config.handlers];
    }
    r->op = frame->op;
    r->tag = frame->tag;
    r->deadline_us = frame->timeout_ms == 0
                         ? INT64_MAX
                         : vj_clock_mono_us() + (int64_t)frame->timeout_ms * 1000;
    r->message = message;
    r->bulk = bulk;
    r->bulk_bytes = bulk != NULL ? frame->bulk_bytes : 0;
    r->held_bytes = p->reading_bytes;
    p->reading_bytes = 0;
    g_atomic_int_inc(&s->active);
    vj_mutex_lock(&p->lock);
    is_new = !g_hash_table_contains(p->by_tag, &r->tag);
    if (is_new) {
        g_hash_table_add(p->by_tag, &r->tag);
        r->link.data = r;
        g_queue_push_tail_link(&p->unanswered, &r->link);
    }
    vj_mutex_unlock(&p->lock);
    if (!is_new) {
        p->reading_bytes = r->held_bytes;
        g_clear_pointer(&r->message, g_byte_array_unref);
        vj_buf_unref(r->bulk);
        g_free(r);
        g_atomic_int_add(&s->active, -1);
        peer_unref(p); /* not the last one: it is open */
        vj_conn_close(p->conn, protocol_error("a tag twice"));
        return NULL;
    }
    return r;
}

/* A request that is not served, and whose body is not read: the answer, and the end. */
static int refuse_head(Peer *p, const VjFrame *frame, int rc)
{
    VjFrame without_body = *frame;
    VjRpcRequest *r;

    if (take_room(p, REQUEST_BYTES) < 0) {
        return -EAGAIN;
    }
    p->reading_handler = NULL;
    r = request_new(p, &without_body, NULL, NULL);
    if (r != NULL) {
        refuse(r, rc);
        vj_conn_finish(p->conn);
    }
    return rc;
}

static int hello_head(Peer *p, const VjFrame *frame)
{
    if (frame->op != VJ_OP_HELLO || frame->bulk_bytes > 0 ||
        frame->message_bytes > HELLO_MESSAGE_MAX) {
        return protocol_error("no hello");
    }
    return take_room(p, REQUEST_BYTES + frame->message_bytes);
}

/* Of the requests that handlers serve. */
static int request_head(Peer *p, const VjFrame *frame, VjInto *into)
{
    const VjRpcHandler *h = find_handler(p, frame->op);
    uint64_t body_bytes = (uint64_t)frame->message_bytes + frame->bulk_bytes;
    uint64_t bytes = REQUEST_BYTES;
    int rc;

    p->reading_handler = h;
    p->reading_rc = 0;
    if (h == NULL) {
        if (body_bytes > REFUSED_BYTES_MAX) {
            return refuse_head(p, frame, -EOPNOTSUPP);
        }
        p->reading_rc = -EOPNOTSUPP;
    } else if (frame->message_bytes > h->message_max || frame->bulk_bytes > h->bulk_max) {
        return refuse_head(p, frame, -EFBIG);
    } else if (g_atomic_int_get(&p->server->is_draining)) {
        p->reading_rc = -ESHUTDOWN;
    }
    into->is_ignored = p->reading_rc != 0;
    if (!into->is_ignored) {
        bytes += frame->message_bytes + vj_bulk_room(frame->bulk_bytes);
    }
    rc = take_room(p, bytes);
    if (rc < 0 || into->is_ignored || frame->bulk_bytes == 0) {
        return rc;
    }
    into->bulk = vj_buf_new(vj_bulk_room(frame->bulk_bytes));
    return into->bulk == NULL ? -ENOMEM : 0;
}

static int peer_head(VjConn *conn, const VjFrame *frame, VjInto *into)
{
    Peer *p = vj_conn_owner(conn);
    bool is_welcome;

    if ((frame->flags & VJ_FRAME_REPLY) != 0) {
        return protocol_error("a reply");
    }
    if (!p->said_hello) {
        return hello_head(p, frame);
    }
    vj_mutex_lock(&p->lock);
    is_welcome = p->is_welcome;
    vj_mutex_unlock(&p->lock);
    if (!is_welcome) {
        return -EAGAIN;
    }
    switch (frame->op) {
    case VJ_OP_HELLO:
        return protocol_error("a second hello");
    case VJ_OP_PING:
        p->reading_handler = NULL;
        p->reading_rc = 0;
        return frame->message_bytes == 0 && frame->bulk_bytes == 0
                   ? take_room(p, REQUEST_BYTES)
                   : protocol_error("a ping with a body");
    case VJ_OP_CANCEL:
        return frame->message_bytes == sizeof(uint64_t) && frame->bulk_bytes == 0
                   ? 0
                   : protocol_error("no tag to cancel");
    default:
        return request_head(p, frame, into);
    }
}

static VjRpcRequest *request_of_key(gpointer tag)
{
    return (VjRpcRequest *)(void *)((uint8_t *)tag - offsetof(VjRpcRequest, tag));
}

static void cancel_tag(Peer *p, const GByteArray *message)
{
    uint64_t tag = vj_le64_get(message->data);
    gpointer key;

    vj_mutex_lock(&p->lock);
    key = g_hash_table_lookup(p->by_tag, &tag);
    if (key != NULL) {
        g_atomic_int_set(&request_of_key(key)->is_canceled, 1);
    }
    vj_mutex_unlock(&p->lock);
}

static bool waits_for_earlier(VjRpcRequest *r)
{
    Peer *p = r->peer;
    bool waits;

    vj_mutex_lock(&p->lock);
    waits = r->waits_for_earlier = g_queue_peek_head(&p->unanswered) != r;
    vj_mutex_unlock(&p->lock);
    return waits;
}

static void peer_frame(VjConn *conn, const VjFrame *frame, GByteArray *message,
                       VjBuf *bulk, bool is_ignored)
{
    Peer *p = vj_conn_owner(conn);
    VjRpcRequest *r;

    if (p->said_hello && frame->op == VJ_OP_CANCEL) {
        cancel_tag(p, message);
        g_byte_array_unref(message);
        return;
    }
    if (bulk != NULL) {
        bulk->len = frame->bulk_bytes;
    }
    r = request_new(p, frame, message, bulk);
    if (r == NULL) {
        return;
    }
    if (!p->said_hello) {
        p->said_hello = true;
        r->job.run = run_hello;
        push_job(p->server, &r->job);
    } else if (r->handler == NULL || is_ignored) {
        refuse(r, p->reading_rc); /* 0: it was PING */
    } else {
        r->job.run = run_request;
        if (r->handler->after_earlier && waits_for_earlier(r)) {
            return;
        }
        if (r->handler->is_quick) {
            run_request(&r->job);
        } else {
            push_job(p->server, &r->job);
        }
    }
}

static void peer_ready(VjConn *conn)
{
    Peer *p = vj_conn_owner(conn);

    g_strlcpy(p->identity, vj_conn_identity(conn), sizeof p->identity);
}

static void peer_closed(VjConn *conn, int rc)
{
    Peer *p = vj_conn_owner(conn);
    VjRpcServer *s = p->server;
    GHashTableIter iter;
    gpointer key;

    if (rc == -EPROTO) {
        __atomic_fetch_add(&s->protocol_errors, 1, __ATOMIC_RELAXED);
    }
    vj_mutex_lock(&p->lock);
    g_hash_table_iter_init(&iter, p->by_tag);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        g_atomic_int_set(&request_of_key(key)->is_canceled, 1);
    }
    vj_mutex_unlock(&p->lock);
    if (p->reading_bytes > 0) {
        uint64_t bytes = p->reading_bytes;

        p->reading_bytes = 0;
        peer_gives_back(p, bytes);
    }
    g_queue_delete_link(&p->loop->peers, p->link);
    peer_unref(p);
}

static const VjConnCallbacks peer_callbacks = {
    .ready = peer_ready,
    .head = peer_head,
    .frame = peer_frame,
    .closed = peer_closed,
};

/* ---- peers that come, and that are too slow ---------------------------------------- */

static void start_peer(VjLoopTask *task)
{
    Peer *p = (Peer *)(void *)((uint8_t *)task - offsetof(Peer, start_task));

    /* The reference that it was accepted with is dropped when it is closed. */
    g_queue_push_tail(&p->loop->peers, p);
    p->link = p->loop->peers.tail;
    p->accepted_us = vj_clock_mono_us();
    vj_conn_start(p->conn, true, p->credentials, NULL);
}

static void accept_peer(VjRpcServer *s, Listener *l, int fd)
{
    Peer *p;

    if ((unsigned)g_atomic_int_get(&s->connections) >= s->config.connections_max) {
        __atomic_fetch_add(&s->refused, 1, __ATOMIC_RELAXED);
        close(fd);
        return;
    }
    vj_socket_tune(fd);
    p = g_new0(Peer, 1);
    p->refs = 1;
    p->server = s;
    p->loop = &s->loops[s->next_loop++ % s->loop_count];
    p->conn = vj_conn_new(p->loop->loop, fd, &peer_callbacks, p, &s->counters);
    if (p->conn == NULL) {
        g_free(p);
        __atomic_fetch_add(&s->refused, 1, __ATOMIC_RELAXED);
        return;
    }
    p->credentials = vj_credentials_ref(l->credentials);
    p->start_task.run = start_peer;
    p->gone_job.run = run_gone;
    p->by_tag = g_hash_table_new(g_int64_hash, g_int64_equal);
    vj_mutex_init(&p->lock, VJ_RANK_RPC, "rpc.peer");
    __atomic_fetch_add(&s->accepted, 1, __ATOMIC_RELAXED);
    g_atomic_int_inc(&s->connections);
    vj_loop_post(p->loop->loop, &p->start_task);
}

static void set_listening(VjRpcServer *s, bool is_on)
{
    for (guint i = 0; i < s->listeners->len; i++) {
        Listener *l = s->listeners->pdata[i];

        if (l->event != NULL) {
            int rc = is_on ? event_add(l->event, NULL) : event_del(l->event);

            g_assert(rc == 0);
        }
    }
}

static void on_accept_pause_over(evutil_socket_t fd, short what, void *opaque)
{
    (void)fd;
    (void)what;
    set_listening(((ServerLoop *)opaque)->server, true);
}

static void on_connection(evutil_socket_t listener, short what, void *opaque)
{
    Listener *l = opaque;
    VjRpcServer *s = l->server;
    struct timeval pause = {.tv_usec = ACCEPT_PAUSE_US};

    (void)what;
    for (unsigned i = 0; i < ACCEPTS_MAX; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            accept_peer(s, l, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
                   errno == ENOBUFS) {
            vj_log_warn("rpc: cannot accept connections: %s", g_strerror(errno));
            set_listening(s, false);
            evtimer_add(s->loops[0].accept_event, &pause);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return; /* no more, or one that failed before it was taken */
        }
    }
}

static void life_released(VjOut *out, bool was_sent)
{
    Peer *p = (Peer *)(void *)((uint8_t *)out - offsetof(Peer, life_out));

    (void)was_sent;
    g_atomic_int_set(&p->life_is_out, 0);
    peer_unref(p);
}

/* A peer whose requests are not read cannot get a PING through: it is told unasked. */
static void send_life(Peer *p, int64_t now_us)
{
    VjFrame frame = {.flags = VJ_FRAME_REPLY, .op = VJ_OP_PING};

    if (!vj_conn_is_paused(p->conn) || now_us - p->life_us < LIFE_US ||
        g_atomic_int_get(&p->life_is_out)) {
        return;
    }
    p->life_us = now_us;
    g_atomic_int_set(&p->life_is_out, 1);
    peer_ref(p);
    p->life_out = (VjOut){.released = life_released};
    vj_out_encode(&p->life_out, &frame);
    vj_conn_send(p->conn, &p->life_out);
}

static void on_sweep(evutil_socket_t fd, short what, void *opaque)
{
    ServerLoop *l = opaque;
    int64_t now_us = vj_clock_mono_us();

    (void)fd;
    (void)what;
    for (GList *i = l->peers.head, *next; i != NULL; i = next) {
        Peer *p = i->data;

        next = i->next; /* closing removes @i alone */
        if (!p->said_hello && now_us - p->accepted_us > VJ_RPC_HELLO_TIMEOUT_US) {
            vj_conn_close(p->conn, -ETIMEDOUT);
            continue;
        }
        send_life(p, now_us);
        vj_conn_check(p->conn, now_us);
    }
}

/* ---- loops ------------------------------------------------------------------------- */

static ServerLoop *loop_of(VjLoopTask *task, size_t offset)
{
    return (ServerLoop *)(void *)((uint8_t *)task - offset);
}

static void loop_changed(VjRpcServer *s)
{
    vj_mutex_lock(&s->lock);
    s->loops_changed++;
    vj_cond_broadcast(&s->quiet);
    vj_mutex_unlock(&s->lock);
}

/* Has @task run in the loop's thread. */
static void run_in_loop(ServerLoop *l, VjLoopTask *task)
{
    VjRpcServer *s = l->server;
    unsigned before;

    vj_mutex_lock(&s->lock);
    before = s->loops_changed;
    vj_loop_post(l->loop, task);
    while (s->loops_changed == before) {
        vj_cond_wait(&s->quiet, &s->lock);
    }
    vj_mutex_unlock(&s->lock);
}

static void begin_loop(VjLoopTask *task)
{
    ServerLoop *l = loop_of(task, offsetof(ServerLoop, begin_task));
    VjRpcServer *s = l->server;
    struct event_base *base = vj_loop_base(l->loop);
    struct timeval period = {.tv_usec = SWEEP_US};
    bool good;

    l->sweep_event = event_new(base, -1, EV_PERSIST, on_sweep, l);
    l->accept_event = evtimer_new(base, on_accept_pause_over, l);
    good = l->sweep_event != NULL && l->accept_event != NULL &&
           event_add(l->sweep_event, &period) == 0;
    for (guint i = 0; good && l == &s->loops[0] && i < s->listeners->len; i++) {
        Listener *listener = s->listeners->pdata[i];

        listener->event =
            event_new(base, listener->fd, EV_READ | EV_PERSIST, on_connection, listener);
        good = listener->event != NULL && event_add(listener->event, NULL) == 0;
    }
    if (!good) {
        g_error("rpc: no memory for events"); /* as small allocations of GLib's end */
    }
    loop_changed(s);
}

static void close_listener(Listener *l)
{
    struct stat st;

    if (l->event != NULL) {
        event_free(l->event);
        l->event = NULL;
    }
    vj_fd_close(&l->fd);
    if (l->path != NULL && lstat(l->path, &st) == 0 && st.st_dev == l->device &&
        st.st_ino == l->inode) {
        (void)unlink(l->path); /* one that stays is replaced by the next server */
    }
    g_clear_pointer(&l->path, g_free);
}

static void close_listeners(VjRpcServer *s)
{
    for (guint i = 0; i < s->listeners->len; i++) {
        close_listener(s->listeners->pdata[i]);
    }
}

static void stop_listening(VjLoopTask *task)
{
    ServerLoop *l = loop_of(task, offsetof(ServerLoop, listen_task));

    event_del(l->accept_event);
    close_listeners(l->server);
    loop_changed(l->server);
}

static void end_loop(VjLoopTask *task)
{
    ServerLoop *l = loop_of(task, offsetof(ServerLoop, end_task));

    while (!g_queue_is_empty(&l->peers)) {
        vj_conn_close(((Peer *)l->peers.head->data)->conn, -ECANCELED);
    }
    event_free(l->sweep_event);
    event_free(l->accept_event);
    loop_changed(l->server);
}

/* ---- the server -------------------------------------------------------------------- */

static void listener_free(gpointer opaque)
{
    Listener *l = opaque;

    close_listener(l);
    vj_credentials_unref(l->credentials);
    g_free(l);
}

/* A client's number is random, and the first member. */
static guint client_hash(gconstpointer id)
{
    return (guint)vj_le32_get(id);
}

static gboolean client_equal(gconstpointer a, gconstpointer b)
{
    return memcmp(a, b, VJ_WIRE_UUID_BYTES) == 0;
}

VjRpcServer *vj_rpc_server_new(const VjRpcServerConfig *config)
{
    VjRpcServer *s = g_new0(VjRpcServer, 1);

    g_assert(config->handlers != NULL && config->hello != NULL && config->workers > 0);
    s->config = *config;
    if (s->config.connections_max == 0) {
        s->config.connections_max = VJ_RPC_CONNECTIONS_MAX;
    }
    if (s->config.connection_bytes_max == 0) {
        s->config.connection_bytes_max = VJ_RPC_CONNECTION_BYTES_MAX;
    }
    if (s->config.bytes_max == 0) {
        s->config.bytes_max = BYTES_MAX_DEFAULT;
    }
    while (config->handlers[s->handler_count].op != 0) {
        s->handler_count++;
    }
    s->op_stats = g_new0(OpStats, s->handler_count);
    s->listeners = g_ptr_array_new_with_free_func(listener_free);
    s->workers = g_ptr_array_new();
    s->clients = g_hash_table_new_full(client_hash, client_equal, g_free, NULL);
    s->loop_count = CLAMP(g_get_num_processors() / 2, 1, LOOPS_MAX);
    vj_mutex_init(&s->lock, VJ_RANK_RPC, "rpc.server");
    vj_cond_init(&s->work);
    vj_cond_init(&s->quiet);
    return s;
}

static bool may_listen(const VjAddress *a, int fd, VjCredentials *credentials,
                       GError **error)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;

    if (a->path != NULL || !vj_credentials_is_insecure(credentials)) {
        return true;
    }
    if (getsockname(fd, (struct sockaddr *)&at, &len) < 0) {
        return vj_error_set_errno(error, errno, "getsockname");
    }
    return vj_socket_address_is_local((const struct sockaddr *)&at) ||
           vj_error_set(error, EACCES,
                        "without TLS only the machine's own loopback addresses");
}

static void add_listener(VjRpcServer *s, const VjAddress *a, int fd,
                         VjCredentials *credentials)
{
    Listener *l = g_new0(Listener, 1);
    struct stat st;

    l->server = s;
    l->fd = fd;
    l->credentials = vj_credentials_ref(credentials);
    l->index = s->listen_count;
    if (a->path != NULL && lstat(a->path, &st) == 0) {
        l->path = g_strdup(a->path);
        l->device = st.st_dev;
        l->inode = st.st_ino;
    }
    g_ptr_array_add(s->listeners, l);
}

bool vj_rpc_server_listen(VjRpcServer *s, const char *address, VjCredentials *credentials,
                          GError **error)
{
    g_autoptr(GArray) fds = g_array_new(FALSE, FALSE, sizeof(int));
    VjAddress a;
    bool good;

    g_assert(!s->is_started);
    good = vj_address_parse(address, &a, error) && vj_socket_listen(&a, fds, error);
    for (guint i = 0; good && i < fds->len; i++) {
        good = may_listen(&a, g_array_index(fds, int, i), credentials, error);
    }
    for (guint i = 0; i < fds->len; i++) {
        int *fd = &g_array_index(fds, int, i);

        if (good) {
            add_listener(s, &a, *fd, credentials);
        } else {
            vj_fd_close(fd);
        }
    }
    s->listen_count += good;
    vj_address_clear(&a);
    return good || vj_error_prefix(error, "%s", address);
}

unsigned vj_rpc_server_port(const VjRpcServer *s, unsigned index)
{
    for (guint i = 0; i < s->listeners->len; i++) {
        const Listener *l = s->listeners->pdata[i];

        if (l->index == index && l->fd >= 0) {
            return vj_socket_port(l->fd);
        }
    }
    return 0;
}

/* All signals blocked: they are for the program's other threads. */
static GThread *start_worker(VjRpcServer *s, GError **error)
{
    sigset_t all, before;
    GThread *thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread = g_thread_try_new("vj-rpc-work", worker_main, s, error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return thread;
}

bool vj_rpc_server_start(VjRpcServer *s, GError **error)
{
    g_assert(!s->is_started);
    for (unsigned i = 0; i < s->loop_count; i++) {
        ServerLoop *l = &s->loops[i];

        l->server = s;
        l->begin_task.run = begin_loop;
        l->listen_task.run = stop_listening;
        l->end_task.run = end_loop;
        l->loop = vj_loop_new("vj-rpc-server", error);
        if (l->loop == NULL) {
            return false; /* vj_rpc_server_free ends those that began */
        }
    }
    for (unsigned i = 0; i < s->config.workers; i++) {
        GThread *thread = start_worker(s, error);

        if (thread == NULL) {
            return false;
        }
        g_ptr_array_add(s->workers, thread);
    }
    s->is_started = true;
    for (unsigned i = s->loop_count; i-- > 0;) {
        run_in_loop(&s->loops[i], &s->loops[i].begin_task); /* 0, which accepts, last */
    }
    return true;
}

bool vj_rpc_server_drain(VjRpcServer *s, int64_t deadline_us)
{
    bool is_quiet;

    g_atomic_int_set(&s->is_draining, 1);
    if (!s->is_started) {
        return true;
    }
    run_in_loop(&s->loops[0], &s->loops[0].listen_task);
    vj_mutex_lock(&s->lock);
    while (g_atomic_int_get(&s->active) > 0 &&
           vj_cond_wait_until(&s->quiet, &s->lock, deadline_us)) {
    }
    is_quiet = g_atomic_int_get(&s->active) == 0;
    vj_mutex_unlock(&s->lock);
    return is_quiet;
}

static void stop_workers(VjRpcServer *s)
{
    vj_mutex_lock(&s->lock);
    s->stop = true;
    vj_cond_broadcast(&s->work);
    vj_mutex_unlock(&s->lock);
    for (guint i = 0; i < s->workers->len; i++) {
        g_thread_join(s->workers->pdata[i]);
    }
}

void vj_rpc_server_free(VjRpcServer *s)
{
    if (s->is_started) {
        run_in_loop(&s->loops[0], &s->loops[0].listen_task);
        for (unsigned i = 0; i < s->loop_count; i++) {
            run_in_loop(&s->loops[i], &s->loops[i].end_task);
        }
        vj_mutex_lock(&s->lock);
        while (g_atomic_int_get(&s->connections) > 0) {
            vj_cond_wait(&s->quiet, &s->lock);
        }
        vj_mutex_unlock(&s->lock);
    }
    stop_workers(s);
    for (unsigned i = 0; i < s->loop_count; i++) {
        if (s->loops[i].loop != NULL) {
            vj_loop_free(s->loops[i].loop);
        }
    }
    g_ptr_array_unref(s->listeners);
    g_assert(s->first == NULL && s->active == 0 && s->held_bytes == 0);
    g_assert(s->thirsty.length == 0 && s->deferred.length == 0);
    g_hash_table_unref(s->clients);
    g_ptr_array_unref(s->workers);
    vj_mutex_clear(&s->lock);
    vj_cond_clear(&s->work);
    vj_cond_clear(&s->quiet);
    g_free(s->op_stats);
    g_free(s);
}

void vj_rpc_server_stats(VjRpcServer *s, VjRpcServerStats *out)
{
    *out = (VjRpcServerStats){
        .connections = (uint64_t)g_atomic_int_get(&s->connections),
        .accepted = __atomic_load_n(&s->accepted, __ATOMIC_RELAXED),
        .refused = __atomic_load_n(&s->refused, __ATOMIC_RELAXED),
        .protocol_errors = __atomic_load_n(&s->protocol_errors, __ATOMIC_RELAXED),
        .received_bytes = __atomic_load_n(&s->counters.received_bytes, __ATOMIC_RELAXED),
        .sent_bytes = __atomic_load_n(&s->counters.sent_bytes, __ATOMIC_RELAXED),
        .held_bytes = __atomic_load_n(&s->held_bytes, __ATOMIC_RELAXED),
        .requests = __atomic_load_n(&s->requests, __ATOMIC_RELAXED),
        .failures = __atomic_load_n(&s->failures, __ATOMIC_RELAXED),
    };
}

void vj_rpc_server_op_stats(VjRpcServer *s, unsigned index, uint64_t *requests,
                            uint64_t *failures, uint64_t *busy_us)
{
    const OpStats *o = &s->op_stats[index];

    g_assert(index < s->handler_count);
    *requests = __atomic_load_n(&o->requests, __ATOMIC_RELAXED);
    *failures = __atomic_load_n(&o->failures, __ATOMIC_RELAXED);
    *busy_us = __atomic_load_n(&o->busy_us, __ATOMIC_RELAXED);
}
