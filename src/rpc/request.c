/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * request.c - requests of a server: when they run, and their replies
 *
 *     peer.c: a frame ──> request ──> queue ──> worker: handler ──> vj_rpc_reply ──> out
 *                            │└── quick handlers, PING; one alone ──────┤
 *                            └── after_earlier: waits for those ────────┘
 *
 * A request that is cancelled or late before a thread takes it is not begun.  One whose
 * connection, or the server, has more replies than it may that nobody takes waits until
 * some are out (`deferred`), unless it is quick.  A hello waits until all that the same
 * client sent by an earlier connection is over.
 */
#include "rpc/server-private.h"

#include <stdlib.h>

/* Clients that are not connected now, whose last connection is remembered. */
#define OLD_CLIENTS_MAX 65536u
/* Of a server; who comes then does without. */
#define MAILBOXES_MAX 256

/* ---- answers ----------------------------------------------------------------------- */

static VjRpcRequest *request_of_out(VjOut *out)
{
    return (VjRpcRequest *)(void *)((uint8_t *)out - offsetof(VjRpcRequest, out));
}

/* Requests that waited for room for their replies; they look again. */
static void run_deferred(VjPeer *p)
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
            vj_server_push(s, r->peer, &r->job);
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
        vj_server_push(s, r->peer, &r->job);
    }
}

/* The reply is out, or cannot go out. */
static void reply_released(VjOut *out, bool was_sent)
{
    VjRpcRequest *r = request_of_out(out);
    VjPeer *p = r->peer;
    VjRpcServer *s = p->server;

    vj_fd_close(&r->reply_fd);
    if (r->out.pipe != NULL) {
        vj_pipes_return(&s->pipes, g_steal_pointer(&r->out.pipe), was_sent);
    }
    g_clear_pointer(&r->reply, g_byte_array_unref);
    vj_buf_unref(r->reply_bulk);
    vj_mutex_lock(&p->lock);
    p->reply_bytes -= r->held_bytes;
    vj_mutex_unlock(&p->lock);
    __atomic_fetch_sub(&s->reply_bytes, r->held_bytes, __ATOMIC_SEQ_CST);
    vj_peer_give_back(p, r->held_bytes);
    run_deferred(p);
    if (g_atomic_int_dec_and_test(&s->active) && g_atomic_int_get(&s->is_draining)) {
        vj_server_say_quiet(s);
    }
    g_free(r);
    vj_peer_unref(p);
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
        uint64_t us = (uint64_t)MAX(vj_clock_mono_us() - r->begin_us, 0);
        uint64_t recent_us = __atomic_load_n(&r->stats->recent_us, __ATOMIC_RELAXED);

        __atomic_fetch_add(&r->stats->busy_us, us, __ATOMIC_RELAXED);
        __atomic_store_n(&r->stats->recent_us, (recent_us * 7 + us) / 8,
                         __ATOMIC_RELAXED);
    }
}

/* What the request held becomes what its reply holds. */
static void exchange_room(VjRpcRequest *r, uint64_t bytes)
{
    VjPeer *p = r->peer;
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
    vj_server_exchange(s, before, bytes);
    if (next != NULL) {
        vj_server_push(s, p, &next->job);
    }
}

/* Ends @r; the bulk of its reply is in r->out. */
static void reply(VjRpcRequest *r, int rc, VjSlice message)
{
    VjFrame frame = {.flags = VJ_FRAME_REPLY,
                     .op = r->op,
                     .tag = r->tag,
                     .status = vj_wire_status(rc)};

    g_assert(message.len <= VJ_WIRE_REPLY_MESSAGE_MAX);
    count_answer(r, rc);
    if (message.len > 0 && message.len <= sizeof r->small_reply) {
        memcpy(r->small_reply, message.data, message.len);
        r->out.message = vj_slice(r->small_reply, message.len);
    } else if (message.len > 0) {
        r->reply = g_byte_array_sized_new((guint)message.len);
        g_byte_array_append(r->reply, message.data, (guint)message.len);
        r->out.message = vj_slice(r->reply->data, message.len);
    }
    g_clear_pointer(&r->message, g_byte_array_unref);
    vj_buf_unref(g_steal_pointer(&r->bulk));
    exchange_room(r, VJ_REQUEST_BYTES + vj_out_bytes(&r->out) - VJ_FRAME_HEAD_BYTES);
    r->out.released = reply_released;
    vj_out_encode(&r->out, &frame);
    if (r->by_mailbox && vj_mailbox_answer(r->peer->mailbox, &r->out)) {
        __atomic_fetch_add(&r->peer->server->counters.sent_bytes, vj_out_bytes(&r->out),
                           __ATOMIC_RELAXED);
        r->out.released(&r->out, true);
    } else if (r->goes_first) {
        vj_conn_send_first(r->peer->conn, &r->out);
    } else {
        vj_conn_send(r->peer->conn, &r->out);
    }
}

void vj_rpc_reply(VjRpcRequest *r, int rc, VjSlice message, VjBuf *bulk,
                  uint32_t bulk_bytes)
{
    g_assert(bulk_bytes <= VJ_RPC_BULK_MAX);
    g_assert(bulk == NULL ? bulk_bytes == 0 : bulk_bytes <= bulk->cap);
    if (bulk_bytes > 0) {
        r->reply_bulk = vj_buf_ref(bulk);
        r->out.is_bare = r->takes_bare && r->op == VJ_OP_BATCH;
        r->out.bulk = vj_slice(bulk->data, bulk_bytes);
    }
    reply(r, rc, message);
}

int vj_rpc_reply_file(VjRpcRequest *r, int fd, uint64_t offset, uint32_t bytes)
{
    VjPipe *pipe;
    int rc;

    g_assert(fd >= 0 && bytes <= VJ_RPC_BULK_MAX);
    g_assert(offset <= (uint64_t)INT64_MAX - bytes);
    if (!r->takes_bare || !vj_conn_takes_pipe(r->peer->conn)) {
        return -EOPNOTSUPP;
    }
    rc = vj_pipes_fill(&r->peer->server->pipes, fd, offset, bytes, &pipe);
    if (rc < 0) {
        return rc;
    }
    r->out.pipe = pipe;
    r->out.pipe_bytes = bytes;
    reply(r, 0, vj_slice(NULL, 0));
    return 0;
}

bool vj_rpc_request_has_feature(const VjRpcRequest *r, uint64_t feature)
{
    VjPeer *p = r->peer;
    bool has;

    vj_mutex_lock(&p->lock);
    has = (p->features & feature) == feature;
    vj_mutex_unlock(&p->lock);
    return has;
}

void vj_rpc_reply_fd(VjRpcRequest *r, VjSlice message, int fd)
{
    g_assert(fd >= 0 && vj_conn_takes_fd(r->peer->conn));
    r->reply_fd = fd;
    r->out.fd = &r->reply_fd;
    reply(r, 0, message);
}

void vj_request_refuse(VjRpcRequest *r, int rc)
{
    vj_rpc_reply(r, rc, vj_slice(NULL, 0), NULL, 0);
}

static int mailbox_new(VjPeer *p, int *fd)
{
    gint *count = &p->server->mailboxes;
    int rc;

    if (p->mailbox != NULL) {
        return -EBUSY;
    }
    rc = g_atomic_int_add(count, 1) < MAILBOXES_MAX
             ? vj_mailbox_new(p->loop->loop, &vj_peer_mailbox_callbacks, p, &p->mailbox,
                              fd)
             : -EBUSY;
    if (rc < 0) {
        g_atomic_int_add(count, -1);
    }
    return rc;
}

/* @fd goes to the peer, if @rc is 0; the connection is a unix socket. */
static void reply_fd_or_rc(VjRpcRequest *r, int rc, int fd)
{
    if (rc == 0) {
        vj_rpc_reply_fd(r, vj_slice(NULL, 0), fd);
    } else {
        vj_request_refuse(r, rc);
    }
}

void vj_rpc_reply_mailbox(VjRpcRequest *r)
{
    VjPeer *p = r->peer;
    int rc, fd = -1;

    g_assert(vj_loop_is_current(p->loop->loop));
    rc = vj_rpc_request_has_feature(r, VJ_FEATURE_MAILBOX) ? mailbox_new(p, &fd)
                                                           : -EOPNOTSUPP;
    reply_fd_or_rc(r, rc, fd);
}

void vj_rpc_reply_bell(VjRpcRequest *r)
{
    VjMailbox *m = r->peer->mailbox;
    int rc, fd = -1;

    g_assert(vj_loop_is_current(r->peer->loop->loop));
    rc = m != NULL ? vj_mailbox_add_bell(m, &fd) : -EOPNOTSUPP;
    reply_fd_or_rc(r, rc, fd);
}

/* ---- requests ---------------------------------------------------------------------- */

/* True: there are so many replies that nobody has taken that it waits.  Then a worker
 * runs it, so a quick one does not: its reply is as short as it is. */
static bool is_deferred(VjRpcRequest *r)
{
    VjPeer *p = r->peer;
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
    vj_peer_ref(p); /* @r may be gone below */
    vj_mutex_lock(&s->lock);
    g_queue_push_tail(&s->deferred, r);
    vj_mutex_unlock(&s->lock);
    g_atomic_int_inc(&s->deferred_count);
    run_deferred(p); /* the last reply may have gone out before that */
    vj_peer_unref(p);
    return true;
}

static void run_request(VjJob *job)
{
    VjRpcRequest *r =
        (VjRpcRequest *)(void *)((uint8_t *)job - offsetof(VjRpcRequest, job));
    /* What its handler uses stays until that has returned, also when the request is over:
     * gone() comes behind it. */
    VjPeer *p = vj_peer_ref(r->peer);
    int64_t now_us = vj_clock_mono_us();

    if (vj_rpc_request_is_canceled(r)) {
        vj_request_refuse(r, -ECANCELED);
    } else if (now_us >= r->deadline_us) {
        vj_request_refuse(r, -ETIMEDOUT);
    } else if (r->handler->is_quick || !is_deferred(r)) {
        r->begin_us = now_us;
        r->handler->run(r);
    }
    vj_peer_unref(p);
}

/* It is over: whoever is the same client's next connection may be answered. */
void vj_server_client_left(VjPeer *p)
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
        vj_server_push(s, successor->peer, &successor->job);
    }
}

static void client_free(gpointer opaque)
{
    VjServerClient *client = opaque;

    g_free(client->identity);
    g_free(client->volume);
    g_free(client);
}

static guint client_hash(gconstpointer opaque)
{
    return (guint)vj_le32_get(((const VjServerClient *)opaque)->id); /* random */
}

static gboolean client_equal(gconstpointer a, gconstpointer b)
{
    const VjServerClient *one = a, *other = b;

    return memcmp(one->id, other->id, sizeof one->id) == 0 &&
           strcmp(one->identity, other->identity) == 0 &&
           strcmp(one->volume, other->volume) == 0;
}

GHashTable *vj_server_clients_new(void)
{
    return g_hash_table_new_full(client_hash, client_equal, client_free, NULL);
}

/* The client's entry, made where there is none. */
static VjServerClient *client_find(VjPeer *p, const VjHello *hello)
{
    VjRpcServer *s = p->server;
    g_autofree char *volume = g_strndup(hello->volume.data, hello->volume.len);
    VjServerClient wanted = {.identity = p->identity, .volume = volume};
    VjServerClient *client;

    vj_mutex_assert_held(&s->lock);
    memcpy(wanted.id, hello->client, sizeof wanted.id);
    client = g_hash_table_lookup(s->clients, &wanted);
    if (client != NULL) {
        return client;
    }
    while (s->old_clients.length >= OLD_CLIENTS_MAX) {
        client = g_queue_peek_head(&s->old_clients);
        g_queue_unlink(&s->old_clients, &client->link);
        g_hash_table_remove(s->clients, client);
    }
    client = g_new0(VjServerClient, 1);
    memcpy(client->id, hello->client, sizeof client->id);
    client->identity = g_strdup(p->identity);
    client->volume = g_steal_pointer(&volume);
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
    VjPeer *p = r->peer;
    VjRpcServer *s = p->server;
    VjServerClient *client;
    int rc = 0;

    if (memcmp(hello->client, none, sizeof none) == 0 || p->has_superseded) {
        return 0;
    }
    p->has_superseded = true;
    vj_mutex_lock(&s->lock);
    client = client_find(p, hello);
    if (hello->connection <= client->connection) {
        rc = -ESTALE;
    } else {
        VjPeer *before = client->peer;

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

/* What the user of the server says to it; whatever it is, the request is answered. */
static int greet(VjRpcRequest *r, uint8_t *role, void **user, GByteArray *reply)
{
    VjPeer *p = r->peer;
    VjRpcServer *s = p->server;
    int rc;

    if (g_atomic_int_get(&s->is_draining)) {
        return -ESHUTDOWN;
    }
    rc = s->config.hello(s->config.opaque, p->identity, vj_rpc_request_message(r), role,
                         user, reply);
    if (rc == 0 && s->config.connection_bytes_max != VJ_RPC_CONNECTION_BYTES_MAX) {
        vj_hello_reply_set_bytes_max(reply, s->config.connection_bytes_max);
    }
    return rc == -EAGAIN ? -EIO : rc;
}

static void run_hello(VjJob *job)
{
    VjRpcRequest *r =
        (VjRpcRequest *)(void *)((uint8_t *)job - offsetof(VjRpcRequest, job));
    VjPeer *p = r->peer;
    g_autoptr(GByteArray) reply = g_byte_array_new();
    uint8_t role = VJ_ROLE_ANY;
    void *user = NULL;
    VjHello hello;
    int rc = vj_hello_decode(vj_rpc_request_message(r), &hello);

    if (rc == 0 && vj_rpc_request_is_canceled(r)) {
        rc = -ECANCELED;
    }
    rc = rc == 0 ? supersede(r, &hello) : rc;
    if (rc == -EAGAIN) {
        return; /* it is run again when another connection is over */
    }
    rc = rc == 0 ? greet(r, &role, &user, reply) : rc;
    vj_peer_ref(p);
    if (rc == 0) {
        uint64_t features = hello.features & VJ_WIRE_FEATURES;

        if (!vj_conn_takes_fd(p->conn)) {
            features &= ~VJ_FEATURES_OF_FDS;
        }
        vj_hello_reply_add_features(reply, features);
        vj_mutex_lock(&p->lock);
        p->features = features;
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
    vj_peer_unref(p);
}

void vj_request_begin_hello(VjRpcRequest *r)
{
    r->job.run = run_hello;
    vj_server_push(r->peer->server, r->peer, &r->job);
}

static bool waits_for_earlier(VjRpcRequest *r)
{
    VjPeer *p = r->peer;
    bool waits;

    vj_mutex_lock(&p->lock);
    waits = r->waits_for_earlier = g_queue_peek_head(&p->unanswered) != r;
    vj_mutex_unlock(&p->lock);
    return waits;
}

static void run_aside(void *opaque)
{
    VjRpcRequest *r = opaque;

    run_request(&r->job);
}

/* Nothing else is to be done, and it does not take long: no worker is woken for it. */
static bool runs_aside(VjRpcRequest *r)
{
    VjPeer *p = r->peer;

    return g_atomic_int_get(&p->server->active) == 1 &&
           r->held_bytes <= VJ_SERVER_ASIDE_BYTES &&
           __atomic_load_n(&r->stats->recent_us, __ATOMIC_RELAXED) <=
               VJ_SERVER_ASIDE_US &&
           vj_loop_run_aside(p->loop->loop, run_aside, r);
}

void vj_request_begin(VjRpcRequest *r)
{
    r->job.run = run_request;
    if (r->handler->after_earlier && waits_for_earlier(r)) {
        return; /* with the last one that came before it */
    }
    if (r->handler->is_quick) {
        run_request(&r->job);
    } else if (!runs_aside(r)) {
        vj_server_push(r->peer->server, r->peer, &r->job);
    }
}

static VjRpcRequest *request_of_key(gpointer tag)
{
    return (VjRpcRequest *)(void *)((uint8_t *)tag - offsetof(VjRpcRequest, tag));
}

void vj_request_cancel(VjPeer *p, uint64_t tag)
{
    gpointer key = g_hash_table_lookup(p->by_tag, &tag);

    vj_mutex_assert_held(&p->lock);
    if (key != NULL) {
        g_atomic_int_set(&request_of_key(key)->is_canceled, 1);
    }
}

void vj_request_cancel_all(VjPeer *p)
{
    vj_mutex_assert_held(&p->lock);
    for (GList *i = p->unanswered.head; i != NULL; i = i->next) {
        g_atomic_int_set(&((VjRpcRequest *)i->data)->is_canceled, 1);
    }
}

VjRpcRequest *vj_request_new(VjPeer *p, const VjFrame *frame, GByteArray *message,
                             VjBuf *bulk)
{
    VjRpcServer *s = p->server;
    VjRpcRequest *r = vj_malloc0(sizeof *r);
    bool is_new;

    r->peer = vj_peer_ref(p);
    r->handler = p->reading_handler;
    if (r->handler != NULL) {
        r->stats = &s->op_stats[r->handler - s->config.handlers];
    }
    r->reply_fd = -1;
    r->op = frame->op;
    r->tag = frame->tag;
    r->takes_bare = (frame->flags & VJ_FRAME_BARE) != 0;
    r->by_mailbox = p->reading_by_mailbox;
    r->deadline_us = frame->timeout_ms == 0
                         ? INT64_MAX
                         : p->reading_us + (int64_t)frame->timeout_ms * 1000;
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
        vj_peer_unref(p); /* not the last one: it is open */
        vj_trace(rpc, "a peer broke the protocol: a tag twice");
        vj_conn_close(p->conn, -EPROTO);
        return NULL;
    }
    return r;
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
