/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * peer.c - connections of a server, and what may come in on them
 *
 * What a request holds (its body, then its reply) is counted against its connection and
 * against the server until the reply is out: from before it comes in, a long bulk while
 * it comes.  A connection that has no room is not read until some is given back.  Where
 * that takes long, bodies that come in slowly are given up.
 *
 * Lifetimes: a peer has a reference for each request and one until its socket is closed;
 * with the last one a worker calls gone().
 */
#include "rpc/server-private.h"

#include <stdlib.h>

/* Connections that have not said hello; of more, the oldest one is closed. */
#define UNKNOWN_MAX 1024u
/* Of PING and refused requests, beside VJ_RPC_IN_FLIGHT_MAX. */
#define OWN_IN_FLIGHT_MAX 16u
#define HELLO_MESSAGE_MAX 4096u
/* Of a request that is not served: it is read and answered; a longer one ends the
 * connection. */
#define REFUSED_BYTES_MAX ((uint64_t)64 << 10)
/* Of a small request, with its body. */
#define SMALL_BYTES ((uint64_t)64 << 10)
/* A connection that is not read says so often that its side is alive. */
#define LIFE_US ((int64_t)1000 * 1000)
/* A server that has had no room for so long gives up who holds others up. */
#define FULL_US ((int64_t)1000 * 1000)
/* Of a bulk: room for so many bytes is taken at its head, for more as they come in. */
#define FIRST_ROOM ((uint32_t)256 << 10)

static const VjConnCallbacks callbacks;

/* ---- peers ------------------------------------------------------------------------- */

VjPeer *vj_peer_ref(VjPeer *p)
{
    g_atomic_int_inc(&p->refs);
    return p;
}

static void run_gone(VjJob *job)
{
    VjPeer *p = (VjPeer *)(void *)((uint8_t *)job - offsetof(VjPeer, gone_job));
    VjRpcServer *s = p->server;

    g_assert(p->in_flight == 0 && p->held_bytes == 0 && p->unanswered.length == 0);
    if (p->is_welcome && s->config.gone != NULL) {
        s->config.gone(s->config.opaque, p->user);
    }
    vj_server_client_left(p);
    vj_conn_unref(p->conn);
    vj_credentials_unref(p->credentials);
    if (p->mailbox != NULL) {
        vj_mailbox_free(p->mailbox);
        g_atomic_int_add(&s->mailboxes, -1);
    }
    g_hash_table_unref(p->by_tag);
    vj_mutex_clear(&p->lock);
    g_free(p);
    if (g_atomic_int_dec_and_test(&s->connections)) {
        vj_server_say_quiet(s);
    }
}

void vj_peer_unref(VjPeer *p)
{
    if (g_atomic_int_dec_and_test(&p->refs)) {
        vj_server_push(p->server, NULL, &p->gone_job);
    }
}

/* ---- room -------------------------------------------------------------------------- */

/* An eighth is for small requests, which else would stand behind announced objects. */
static uint64_t room_for(const VjRpcServer *s, uint64_t bytes)
{
    return bytes <= SMALL_BYTES ? s->config.bytes_max
                                : s->config.bytes_max - s->config.bytes_max / 8;
}

/* Unless it would have more than @most then; something may always be taken. */
static bool server_takes(VjRpcServer *s, uint64_t bytes, uint64_t most)
{
    uint64_t held = __atomic_load_n(&s->held_bytes, __ATOMIC_SEQ_CST);

    do {
        if (held > 0 && held + bytes > most) {
            return false;
        }
    } while (!__atomic_compare_exchange_n(&s->held_bytes, &held, held + bytes, true,
                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return true;
}

/* The server has no room for a request of @p, which is read on when some comes back. */
static void become_stalled(VjPeer *p)
{
    VjRpcServer *s = p->server;
    bool is_new;

    vj_mutex_lock(&p->lock);
    is_new = !p->is_stalled;
    p->is_stalled = true;
    vj_mutex_unlock(&p->lock);
    if (is_new) {
        vj_mutex_lock(&s->lock);
        g_queue_push_tail(&s->stalled, vj_peer_ref(p));
        vj_mutex_unlock(&s->lock);
        g_atomic_int_inc(&s->stalled_count);
    }
}

static void resume_stalled(VjRpcServer *s)
{
    while (g_atomic_int_get(&s->stalled_count) > 0 &&
           __atomic_load_n(&s->held_bytes, __ATOMIC_SEQ_CST) < s->config.bytes_max) {
        VjPeer *p;

        vj_mutex_lock(&s->lock);
        p = g_queue_pop_head(&s->stalled);
        vj_mutex_unlock(&s->lock);
        if (p == NULL) {
            return;
        }
        g_atomic_int_add(&s->stalled_count, -1);
        vj_mutex_lock(&p->lock);
        p->is_stalled = false;
        vj_mutex_unlock(&p->lock);
        vj_conn_resume(p->conn);
        vj_peer_unref(p);
    }
}

static void resume_first_bulk(VjRpcServer *s)
{
    vj_mutex_lock(&s->lock);
    if (s->bulks.head != NULL) {
        vj_conn_resume(((VjPeer *)s->bulks.head->data)->conn);
    }
    vj_mutex_unlock(&s->lock);
}

void vj_server_exchange(VjRpcServer *s, uint64_t before, uint64_t bytes)
{
    __atomic_fetch_add(&s->held_bytes, bytes - before, __ATOMIC_SEQ_CST);
    if (bytes < before && g_atomic_int_get(&s->stalled_count) > 0) {
        resume_first_bulk(s);
        resume_stalled(s);
    }
}

void vj_peer_give_back(VjPeer *p, uint64_t bytes)
{
    bool resumes;

    vj_mutex_lock(&p->lock);
    g_assert(p->held_bytes >= bytes && p->in_flight > 0);
    p->held_bytes -= bytes;
    p->in_flight--;
    resumes = p->wants_room;
    p->wants_room = false;
    vj_mutex_unlock(&p->lock);
    vj_server_exchange(p->server, bytes, 0);
    if (resumes) {
        vj_conn_resume(p->conn);
    }
}

/* As server_takes; if it does not, @p is read on when there is room again. */
static bool server_takes_or_stalls(VjPeer *p, uint64_t bytes, uint64_t most)
{
    if (server_takes(p->server, bytes, most)) {
        return true;
    }
    become_stalled(p);
    /* Once more: the last one to give back may have looked before that. */
    return server_takes(p->server, bytes, most);
}

/* For one more request of @p, of which @later bytes are taken when they come.  0;
 * -EAGAIN: not now. */
static int take_room(VjPeer *p, uint64_t bytes, uint64_t later)
{
    VjRpcServer *s = p->server;
    uint64_t all = bytes + later;
    bool fits;

    vj_mutex_lock(&p->lock);
    fits = p->in_flight < VJ_RPC_IN_FLIGHT_MAX + OWN_IN_FLIGHT_MAX &&
           (p->held_bytes == 0 || p->held_bytes + all <= s->config.connection_bytes_max);
    p->wants_room = !fits;
    if (fits) {
        p->held_bytes += bytes;
        p->in_flight++;
    }
    vj_mutex_unlock(&p->lock);
    if (!fits) {
        return -EAGAIN;
    }
    if (!server_takes_or_stalls(p, bytes, room_for(s, bytes))) {
        vj_mutex_lock(&p->lock);
        p->held_bytes -= bytes;
        p->in_flight--;
        vj_mutex_unlock(&p->lock);
        return -EAGAIN;
    }
    p->reading_bytes = bytes;
    return 0;
}

/*
 * Bulks for which there is not all the room yet, in the order in which they began.  For
 * the first one there is as much room more as it is long: else those that have a part of
 * the room each could wait for one another.
 */
static void enter_bulks(VjPeer *p)
{
    VjRpcServer *s = p->server;

    vj_mutex_lock(&s->lock);
    g_queue_push_tail_link(&s->bulks, &p->bulk_link);
    vj_mutex_unlock(&s->lock);
    p->is_in_bulks = true;
}

static bool is_first_bulk(VjPeer *p)
{
    VjRpcServer *s = p->server;
    bool is_first;

    vj_mutex_lock(&s->lock);
    is_first = s->bulks.head == &p->bulk_link;
    vj_mutex_unlock(&s->lock);
    return is_first;
}

static void leave_bulks(VjPeer *p)
{
    VjRpcServer *s = p->server;

    if (!p->is_in_bulks) {
        return;
    }
    p->is_in_bulks = false;
    vj_mutex_lock(&s->lock);
    g_queue_unlink(&s->bulks, &p->bulk_link);
    vj_mutex_unlock(&s->lock);
    resume_first_bulk(s);
}

/* Room for as much again as has come in of the bulk. */
static int peer_more(VjConn *conn, const VjFrame *frame, uint32_t used,
                     uint32_t *bulk_room)
{
    VjPeer *p = vj_conn_owner(conn);
    VjRpcServer *s = p->server;
    uint32_t more = MIN(used, frame->bulk_bytes - used);
    uint64_t most =
        is_first_bulk(p) ? s->config.bytes_max + frame->bulk_bytes : room_for(s, more);

    if (!server_takes_or_stalls(p, more, most)) {
        return -EAGAIN;
    }
    vj_mutex_lock(&p->lock);
    p->held_bytes += more;
    vj_mutex_unlock(&p->lock);
    p->reading_bytes += more;
    *bulk_room = used + more;
    return 0;
}

/* ---- frames that come in ----------------------------------------------------------- */

static int protocol_error(const char *why)
{
    vj_trace(rpc, "a peer broke the protocol: %s", why);
    return -EPROTO;
}

static const VjRpcHandler *find_handler(const VjPeer *p, uint16_t op)
{
    for (const VjRpcHandler *h = p->server->config.handlers; h->op != 0; h++) {
        if (h->op == op && (h->role == VJ_ROLE_ANY || h->role == p->role)) {
            return h;
        }
    }
    return NULL;
}

/* A request that is not served, and whose body is not read: the answer, and the end. */
static int refuse_head(VjPeer *p, const VjFrame *frame, int rc)
{
    VjRpcRequest *r;

    if (take_room(p, VJ_REQUEST_BYTES, 0) < 0) {
        return -EAGAIN;
    }
    p->reading_handler = NULL;
    r = vj_request_new(p, frame, NULL, NULL);
    if (r != NULL) {
        vj_request_refuse(r, rc);
        vj_conn_finish(p->conn);
    }
    return rc;
}

static int hello_head(VjPeer *p, const VjFrame *frame)
{
    if (frame->op != VJ_OP_HELLO || frame->bulk_bytes > 0 ||
        frame->message_bytes > HELLO_MESSAGE_MAX) {
        return protocol_error("no hello");
    }
    return take_room(p, VJ_REQUEST_BYTES + frame->message_bytes, 0);
}

/* Of the requests that handlers serve. */
static int request_head(VjPeer *p, const VjFrame *frame, VjInto *into)
{
    const VjRpcHandler *h = find_handler(p, frame->op);
    uint64_t body_bytes = (uint64_t)frame->message_bytes + frame->bulk_bytes;
    uint64_t bytes = VJ_REQUEST_BYTES;
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
    into->bulk_room = MIN(frame->bulk_bytes, FIRST_ROOM);
    if (!into->is_ignored) {
        bytes += frame->message_bytes + into->bulk_room;
    }
    rc = take_room(p, bytes, frame->bulk_bytes - into->bulk_room);
    if (rc < 0 || into->is_ignored || frame->bulk_bytes == 0) {
        return rc;
    }
    if (into->bulk_room < frame->bulk_bytes) {
        enter_bulks(p);
    }
    into->bulk = vj_buf_new(vj_bulk_room(frame->bulk_bytes));
    return into->bulk == NULL ? -ENOMEM : 0;
}

static int peer_head(VjConn *conn, const VjFrame *frame, VjInto *into)
{
    VjPeer *p = vj_conn_owner(conn);
    uint64_t bare = frame->op == VJ_OP_GET     ? VJ_FEATURE_BARE
                    : frame->op == VJ_OP_BATCH ? VJ_FEATURE_BARE_BATCH
                                               : 0;
    bool is_welcome, may_be_bare;

    if ((frame->flags & VJ_FRAME_REPLY) != 0) {
        return protocol_error("a reply");
    }
    if (frame->tag == 0 && frame->op != VJ_OP_CANCEL) {
        return protocol_error("no tag");
    }
    if (p->reading_us == 0) { /* else it has waited for room */
        p->reading_us = vj_clock_mono_us();
    }
    vj_mutex_lock(&p->lock);
    is_welcome = p->is_welcome;
    may_be_bare = (p->features & bare) != 0;
    vj_mutex_unlock(&p->lock);
    if (p->said_hello && !is_welcome) {
        return -EAGAIN;
    }
    if ((frame->flags & VJ_FRAME_BARE) != 0 && !may_be_bare) {
        return protocol_error("a flag that was not agreed on");
    }
    if (!p->said_hello) {
        return hello_head(p, frame);
    }
    switch (frame->op) {
    case VJ_OP_HELLO:
        return protocol_error("a second hello");
    case VJ_OP_PING:
        p->reading_handler = NULL;
        p->reading_rc = 0;
        return frame->message_bytes == 0 && frame->bulk_bytes == 0
                   ? take_room(p, VJ_REQUEST_BYTES, 0)
                   : protocol_error("a ping with a body");
    case VJ_OP_CANCEL:
        return frame->message_bytes == sizeof(uint64_t) && frame->bulk_bytes == 0 &&
                       !p->reading_by_mailbox /* it would never be answered there */
                   ? 0
                   : protocol_error("no tag to cancel");
    default:
        return request_head(p, frame, into);
    }
}

static void cancel_tag(VjPeer *p, const GByteArray *message)
{
    vj_mutex_lock(&p->lock);
    vj_request_cancel(p, vj_le64_get(message->data));
    vj_mutex_unlock(&p->lock);
}

static void peer_frame(VjConn *conn, const VjFrame *frame, GByteArray *message,
                       VjBuf *bulk, bool is_ignored)
{
    VjPeer *p = vj_conn_owner(conn);
    VjRpcRequest *r;

    if (!p->reading_by_mailbox) { /* else it could keep this thread for itself */
        vj_mailbox_look_again(p->mailbox);
    }
    if (p->said_hello && frame->op == VJ_OP_CANCEL) {
        cancel_tag(p, message);
        g_byte_array_unref(message);
        p->reading_us = 0;
        return;
    }
    leave_bulks(p);
    if (bulk != NULL) {
        bulk->len = frame->bulk_bytes;
    }
    r = vj_request_new(p, frame, message, bulk);
    p->reading_by_mailbox = false;
    p->reading_us = 0;
    if (r == NULL) {
        return;
    }
    if (!p->said_hello) {
        p->said_hello = true;
        g_queue_unlink(&p->loop->unknown, &p->unknown_link);
        vj_request_begin_hello(r);
    } else if (r->handler == NULL || is_ignored) {
        r->goes_first = frame->op == VJ_OP_PING;
        vj_request_refuse(r, p->reading_rc); /* 0: it was PING */
    } else {
        vj_mailbox_expect(p->mailbox);
        vj_request_begin(r);
    }
}

static bool is_ready_for_mailbox(void *owner)
{
    return vj_conn_is_between_frames(((VjPeer *)owner)->conn);
}

static void mailbox_frame(void *owner, const uint8_t *bytes, size_t len)
{
    VjPeer *p = vj_peer_ref(owner);

    if (len == 0) {
        vj_conn_close(p->conn, protocol_error("no frame in the mailbox"));
    } else {
        p->reading_by_mailbox = true; /* until it is whole, which may be later */
        vj_conn_feed(p->conn, bytes, len);
    }
    vj_peer_unref(p);
}

const VjMailboxCallbacks vj_peer_mailbox_callbacks = {.is_ready = is_ready_for_mailbox,
                                                      .frame = mailbox_frame};

static void peer_ready(VjConn *conn)
{
    VjPeer *p = vj_conn_owner(conn);

    g_strlcpy(p->identity, vj_conn_identity(conn), sizeof p->identity);
}

static void peer_closed(VjConn *conn, int rc)
{
    VjPeer *p = vj_conn_owner(conn);
    VjRpcServer *s = p->server;

    if (rc == -EPROTO) {
        __atomic_fetch_add(&s->protocol_errors, 1, __ATOMIC_RELAXED);
    }
    vj_mutex_lock(&p->lock);
    vj_request_cancel_all(p);
    vj_mutex_unlock(&p->lock);
    vj_mailbox_close(p->mailbox);
    leave_bulks(p);
    if (p->reading_bytes > 0) {
        uint64_t bytes = p->reading_bytes;

        p->reading_bytes = 0;
        vj_peer_give_back(p, bytes);
    }
    if (!p->said_hello) {
        g_queue_unlink(&p->loop->unknown, &p->unknown_link);
    }
    g_queue_unlink(&p->loop->peers, &p->link);
    vj_peer_unref(p);
}

static const VjConnCallbacks callbacks = {
    .ready = peer_ready,
    .head = peer_head,
    .more = peer_more,
    .frame = peer_frame,
    .closed = peer_closed,
};

/* ---- peers that come, and that are too slow ---------------------------------------- */

static void start_peer(VjLoopTask *task)
{
    VjPeer *p = (VjPeer *)(void *)((uint8_t *)task - offsetof(VjPeer, start_task));
    VjServerLoop *l = p->loop;

    /* The reference that it was accepted with is dropped when it is closed. */
    g_queue_push_tail_link(&l->peers, &p->link);
    g_queue_push_tail_link(&l->unknown, &p->unknown_link);
    if (l->unknown.length > UNKNOWN_MAX / p->server->loop_count) {
        __atomic_fetch_add(&p->server->refused, 1, __ATOMIC_RELAXED);
        vj_conn_close(((VjPeer *)l->unknown.head->data)->conn, -EBUSY);
    }
    p->accepted_us = vj_clock_mono_us();
    vj_conn_start(p->conn, true, p->credentials, NULL);
}

bool vj_peer_new(VjRpcServer *s, VjServerLoop *l, int fd, VjCredentials *credentials)
{
    VjPeer *p = g_new0(VjPeer, 1);

    p->conn = vj_conn_new(l->loop, fd, &callbacks, p, &s->counters);
    if (p->conn == NULL) {
        g_free(p);
        return false;
    }
    p->refs = 1;
    p->server = s;
    p->loop = l;
    p->link.data = p->unknown_link.data = p->ring_link.data = p->bulk_link.data = p;
    p->credentials = vj_credentials_ref(credentials);
    p->start_task.run = start_peer;
    p->gone_job.run = run_gone;
    p->by_tag = g_hash_table_new(g_int64_hash, g_int64_equal);
    vj_mutex_init(&p->lock, VJ_RANK_RPC, "rpc.peer");
    __atomic_fetch_add(&s->accepted, 1, __ATOMIC_RELAXED);
    g_atomic_int_inc(&s->connections);
    vj_loop_post(l->loop, &p->start_task);
    return true;
}

static void life_released(VjOut *out, bool was_sent)
{
    VjPeer *p = (VjPeer *)(void *)((uint8_t *)out - offsetof(VjPeer, life_out));

    (void)was_sent;
    g_atomic_int_set(&p->life_is_out, 0);
    vj_peer_unref(p);
}

/* A peer whose requests are not read cannot get a PING through, and one that waits for
 * the answer to its hello sends none: they get signs of life unasked. */
static void send_life(VjPeer *p, int64_t now_us)
{
    VjFrame frame = {.flags = VJ_FRAME_REPLY, .op = VJ_OP_PING};

    bool is_waiting;

    vj_mutex_lock(&p->lock);
    is_waiting = p->said_hello && !p->is_welcome;
    vj_mutex_unlock(&p->lock);
    if ((!is_waiting && !vj_conn_is_paused(p->conn)) || now_us - p->life_us < LIFE_US ||
        g_atomic_int_get(&p->life_is_out)) {
        return;
    }
    p->life_us = now_us;
    g_atomic_int_set(&p->life_is_out, 1);
    vj_peer_ref(p);
    p->life_out = (VjOut){.released = life_released};
    vj_out_encode(&p->life_out, &frame);
    vj_conn_send(p->conn, &p->life_out);
}

/*
 * Where the server has had no room for a while, all that have announced much and send
 * little, or have asked for much and do not take it, are given up: they hold up others.
 */
static void give_up_slow(VjServerLoop *l, int64_t now_us)
{
    VjRpcServer *s = l->server;

    if (g_atomic_int_get(&s->stalled_count) == 0 &&
        g_atomic_int_get(&s->deferred_count) == 0) {
        l->full_us = 0;
        return;
    }
    l->full_us = l->full_us == 0 ? now_us : l->full_us;
    if (now_us - l->full_us < FULL_US) {
        return;
    }
    for (GList *i = l->peers.head, *next; i != NULL; i = next) {
        VjPeer *p = i->data;

        next = i->next; /* closing removes @i alone */
        if (vj_conn_holds_up(p->conn, now_us)) {
            vj_conn_close(p->conn, -ETIMEDOUT);
        }
    }
}

void vj_peers_sweep(VjServerLoop *l)
{
    int64_t now_us = vj_clock_mono_us();

    for (GList *i = l->peers.head, *next; i != NULL; i = next) {
        VjPeer *p = i->data;

        next = i->next; /* closing removes @i alone */
        if (!p->said_hello && now_us - p->accepted_us > VJ_RPC_HELLO_TIMEOUT_US) {
            vj_conn_close(p->conn, -ETIMEDOUT);
            continue;
        }
        send_life(p, now_us);
        vj_conn_check(p->conn, now_us);
    }
    give_up_slow(l, now_us);
}

void vj_peers_close_all(VjServerLoop *l)
{
    while (!g_queue_is_empty(&l->peers)) {
        vj_conn_close(((VjPeer *)l->peers.head->data)->conn, -ECANCELED);
    }
}
