/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * client.c - a peer as its user sees it: connected when needed, again after a loss
 *
 *     IDLE ──> RESOLVING ──> CONNECTING ──> HELLO ──> CONNECTED ──> IDLE, after a loss
 *       ^           │             │           │
 *       └── PAUSE <─┴─────────────┴───────────┘   20 ms, twice as long each time, to 1 s
 *
 * The state changes in the loop's thread alone.  Calls are in a table of
 * VJ_RPC_IN_FLIGHT_MAX slots; a tag is a slot and a number that grows, so a reply that
 * comes too late is known for what it is, and one that nobody asked for too.  Whoever
 * takes a call out of the table, or out of the queue before it, with the lock held,
 * answers it: that is how each is answered once.
 */
#include "rpc/client-private.h"

#include <stdlib.h>
#include <unistd.h>

#include "rpc/address-private.h"
#include "rpc/credentials-private.h"
#include "rpc/messages.h"

#define SLOT_BITS 10
#define SLOTS (1u << SLOT_BITS)
G_STATIC_ASSERT(SLOTS == VJ_RPC_IN_FLIGHT_MAX);

/* Calls that wait in the client; one more is -EBUSY. */
#define WAITING_MAX 65536u
/* Tags of the room's own requests; those of calls are not below SLOTS. */
#define TAG_HELLO 1u
#define TAG_PING 2u
/* The reply of HELLO has no more. */
#define HELLO_REPLY_MAX 4096u

#define PAUSE_FIRST_US ((int64_t)20 * 1000)
#define PAUSE_LAST_US ((int64_t)1000 * 1000)
/* After so much silence the peer is asked for a sign of life. */
#define PING_AFTER_US ((int64_t)1000 * 1000)
#define TICK_MIN_US ((int64_t)5 * 1000)

typedef enum State {
    STATE_IDLE,
    STATE_PAUSE,
    STATE_RESOLVING,
    STATE_CONNECTING,
    STATE_HELLO,
    STATE_CONNECTED,
} State;

/* A thread that asks the resolver.  It may take long, so it does not belong to the
 * client, which may be freed meanwhile. */
typedef struct Resolver {
    VjLoopTask task;
    VjLoop *loop;
    VjAddress address;
    VjRpcClient *client; /* in the loop's thread; NULL: is gone */
    GArray *addresses;   /* the answer; NULL: none */
} Resolver;

struct VjRpcClient {
    char *text; /* of the address */
    VjAddress address;
    VjCredentials *credentials;
    GByteArray *hello;
    uint8_t id[VJ_WIRE_UUID_BYTES]; /* random */
    int64_t silence_us, tick_us;
    VjRpcClientConfig config;
    VjLoop *loop;
    VjLoopTask task, close_task;

    /* in the loop's thread: */
    struct event *tick_event, *deadline_event, *pause_event;
    GArray *addresses; /* of VjSocketAddress; NULL: there was none yet */
    guint address_index;
    bool asks_again; /* the resolver, before the next attempt: the name may have moved */
    int attempt_rc;  /* why the address before did not answer */
    Resolver *resolver; /* at work, NULL: none is */
    int64_t pause_us, attempt_us;
    uint64_t connection; /* the number of the last one */
    VjOut hello_out, ping_out;
    bool ping_is_out;
    bool hello_is_answered; /* by the peer of this connection, whatever it said */
    bool is_refused;        /* credentials were, in the last attempt */
    uint64_t receiving_tag; /* of the call whose reply comes in; 0: none */

    VjMutex lock; /* VJ_RANK_RPC */
    VjCond let_go;
    /* guarded by lock: */
    State state;  /* changed in the loop's thread */
    VjConn *conn; /* likewise */
    bool wants;   /* to be connected */
    bool is_closing, is_let_go;
    VjRpcCallState *slots[SLOTS];
    uint64_t numbers[SLOTS]; /* of the last call of each slot */
    uint16_t free_slots[SLOTS];
    unsigned free_count;
    unsigned calls_max; /* in flight, of this connection */
    uint64_t bytes_max; /* of their requests, and of replies whose length is known */
    uint64_t bytes;
    uint64_t features;            /* that both sides of this connection have */
    VjRpcCallState *first, *last; /* those that wait */
    unsigned waiting_count;
    char *why_text;      /* what the peer said to people when it refused hello; or NULL */
    int why_rc;          /* why the last attempt failed; 0: it did not */
    int64_t busy_us;     /* since when there have been calls in flight */
    int64_t deadline_us; /* when deadlines are looked at next */

    VjConnCounters counters;
    uint64_t calls, connects, losses; /* atomic */
};

/* ---- the table and the queue ------------------------------------------------------- */

static unsigned in_flight(const VjRpcClient *c)
{
    return SLOTS - c->free_count;
}

static void queue_add(VjRpcClient *c, VjRpcCallState *s)
{
    s->place = VJ_CALL_WAITING;
    s->next = NULL;
    s->before = c->last;
    *(c->last == NULL ? &c->first : &c->last->next) = s;
    c->last = s;
    c->waiting_count++;
}

static void queue_remove(VjRpcClient *c, VjRpcCallState *s)
{
    *(s->before == NULL ? &c->first : &s->before->next) = s->next;
    *(s->next == NULL ? &c->last : &s->next->before) = s->before;
    s->next = s->before = NULL;
    c->waiting_count--;
    s->place = VJ_CALL_ENDED;
}

static uint64_t request_bytes(const VjRpcCall *call)
{
    return (call->message != NULL ? call->message->len : 0) + (uint64_t)call->lead_bytes +
           call->bulk_bytes + (call->into != NULL ? call->bulk_max : 0);
}

/* One may always be in flight. */
static bool has_slot(const VjRpcClient *c, const VjRpcCall *call)
{
    return in_flight(c) == 0 || (in_flight(c) < c->calls_max &&
                                 c->bytes + request_bytes(call) <= c->bytes_max);
}

/* Gives it a tag; there is a free slot.  The frame has a reference from now on. */
static void slot_add(VjRpcClient *c, VjRpcCallState *s, int64_t now_us)
{
    unsigned slot;

    g_assert(c->free_count > 0 && c->state == STATE_CONNECTED);
    if (in_flight(c) == 0) {
        c->busy_us = now_us;
    }
    slot = c->free_slots[--c->free_count];
    c->slots[slot] = s;
    c->bytes += request_bytes(s->call);
    s->tag = ++c->numbers[slot] << SLOT_BITS | slot;
    s->place = VJ_CALL_IN_FLIGHT;
    s->is_bare = s->call->may_be_bare && (c->features & VJ_FEATURE_BARE) != 0;
    vj_rpc_call_ref(s->call);
}

static void slot_remove(VjRpcClient *c, VjRpcCallState *s)
{
    unsigned slot = (unsigned)(s->tag & (SLOTS - 1));

    g_assert(c->slots[slot] == s);
    c->slots[slot] = NULL;
    c->bytes -= request_bytes(s->call);
    c->free_slots[c->free_count++] = (uint16_t)slot;
    s->place = VJ_CALL_ENDED;
}

static VjRpcCallState *slot_find(const VjRpcClient *c, uint64_t tag)
{
    VjRpcCallState *s = c->slots[tag & (SLOTS - 1)];

    return s != NULL && s->tag == tag ? s : NULL;
}

static bool was_asked(const VjRpcClient *c, uint64_t tag)
{
    uint64_t number = tag >> SLOT_BITS;

    return number > 0 && number <= c->numbers[tag & (SLOTS - 1)];
}

/* ---- requests ---------------------------------------------------------------------- */

static VjRpcCallState *state_of_out(VjOut *out)
{
    return (VjRpcCallState *)(void *)((uint8_t *)out - offsetof(VjRpcCallState, out));
}

static void call_released(VjOut *out, bool was_sent)
{
    (void)was_sent;
    vj_rpc_call_unref(state_of_out(out)->call);
}

static uint32_t timeout_ms(int64_t deadline_us, int64_t now_us)
{
    int64_t left_us;

    if (deadline_us == INT64_MAX) {
        return 0;
    }
    left_us = MAX(deadline_us - now_us, 1);
    return (uint32_t)MIN((left_us + 999) / 1000, UINT32_MAX);
}

/* It has a slot.  No lock is held: checksums and sockets take time. */
static void send_call(VjConn *conn, VjRpcCall *call, int64_t now_us)
{
    VjRpcCallState *s = call->state;
    VjFrame frame = {.flags = s->is_bare ? VJ_FRAME_BARE : 0,
                     .op = call->op,
                     .tag = s->tag,
                     .timeout_ms = timeout_ms(call->deadline_us, now_us)};

    s->out.message = call->message != NULL
                         ? vj_slice(call->message->data, call->message->len)
                         : vj_slice(NULL, 0);
    s->out.lead = vj_slice(call->lead_data, call->lead_bytes);
    s->out.bulk = call->bulk != NULL ? vj_slice(call->bulk->data, call->bulk_bytes)
                                     : vj_slice(NULL, 0);
    s->out.released = call_released;
    vj_out_encode(&s->out, &frame);
    vj_conn_send(conn, &s->out);
}

/* Sends what waits while there are slots. */
static void pump(VjRpcClient *c)
{
    for (;;) {
        VjConn *conn = NULL;
        VjRpcCallState *s = NULL;
        int64_t now_us = 0;

        vj_mutex_lock(&c->lock);
        if (c->first != NULL && c->state == STATE_CONNECTED &&
            has_slot(c, c->first->call)) {
            now_us = vj_clock_mono_us();
            s = c->first;
            conn = vj_conn_ref(c->conn);
            queue_remove(c, s);
            slot_add(c, s, now_us);
        }
        vj_mutex_unlock(&c->lock);
        if (s == NULL) {
            return;
        }
        send_call(conn, s->call, now_us);
        vj_conn_unref(conn);
    }
}

typedef struct CancelOut {
    VjOut out;
    uint64_t tag_le;
} CancelOut;

static void cancel_released(VjOut *out, bool was_sent)
{
    (void)was_sent;
    g_free(out);
}

/* The call is out of the table.  Nothing is written to its buffer any more; the peer need
 * not go on. */
static void give_up(VjConn *conn, VjRpcCallState *s)
{
    CancelOut *cancel;
    VjFrame frame = {.op = VJ_OP_CANCEL};

    vj_conn_ignore(conn, s->tag);
    if (vj_conn_take_back(conn, &s->out)) {
        vj_rpc_call_unref(s->call); /* the frame's */
        return;
    }
    cancel = g_new0(CancelOut, 1);
    cancel->tag_le = GUINT64_TO_LE(s->tag);
    cancel->out.message = vj_slice(&cancel->tag_le, sizeof cancel->tag_le);
    cancel->out.released = cancel_released;
    vj_out_encode(&cancel->out, &frame);
    vj_conn_send(conn, &cancel->out);
}

/* ---- calls of users ---------------------------------------------------------------- */

/* 0: *conn: send it; NULL: it waits.  Else its answer. */
static int begin(VjRpcClient *c, VjRpcCall *call, int64_t now_us, VjConn **conn,
                 bool *wake)
{
    VjRpcCallState *s = call->state;
    bool is_connected = c->state == STATE_CONNECTED;

    vj_mutex_assert_held(&c->lock);
    if (c->is_closing) {
        return -ECANCELED;
    }
    if (!is_connected && !c->wants) {
        c->wants = *wake = true;
    }
    if (!is_connected && !call->waits_for_connection) {
        return -ENOTCONN;
    }
    if (is_connected && c->first == NULL && has_slot(c, call)) {
        slot_add(c, s, now_us);
        *conn = vj_conn_ref(c->conn);
    } else if (c->waiting_count < WAITING_MAX) {
        queue_add(c, s);
    } else {
        return -EBUSY;
    }
    if (call->deadline_us < c->deadline_us) {
        c->deadline_us = call->deadline_us;
        *wake = true;
    }
    return 0;
}

void vj_rpc_submit(VjRpcClient *c, VjRpcCall *call)
{
    int64_t now_us = vj_clock_mono_us();
    VjConn *conn = NULL;
    bool wake = false;
    int rc;

    g_assert(call->state->place == VJ_CALL_NEW);
    g_assert((call->done != NULL) != (call->state->waiter != NULL));
    g_assert(call->message == NULL || call->message->len <= VJ_RPC_MESSAGE_MAX);
    g_assert(call->bulk_bytes <= VJ_RPC_BULK_MAX && call->bulk_max <= VJ_RPC_BULK_MAX);
    g_assert(call->lead_bytes <= VJ_RPC_BULK_MAX - call->bulk_bytes);
    g_assert((call->lead != NULL) == (call->lead_bytes > 0));
    g_assert(call->bulk == NULL ? call->bulk_bytes == 0
                                : call->bulk_bytes <= call->bulk->cap);
    g_assert(!call->may_be_bare || call->op == VJ_OP_GET);
    g_assert(call->into == NULL || call->bulk_max <= call->into->cap);
    vj_rpc_call_ref(call);
    __atomic_fetch_add(&c->calls, 1, __ATOMIC_RELAXED);
    call->state->loop = c->loop;
    vj_loop_call_begins(c->loop);
    if (call->done != NULL && !call->has_helper) {
        vj_loop_call_waits_elsewhere(c->loop);
    }
    if (call->deadline_us <= now_us) {
        call->state->place = VJ_CALL_ENDED;
        vj_call_end(call, -ETIMEDOUT);
        return;
    }
    vj_mutex_lock(&c->lock);
    rc = begin(c, call, now_us, &conn, &wake);
    if (rc < 0) {
        call->state->place = VJ_CALL_ENDED;
    }
    if (wake) {
        vj_loop_post(c->loop, &c->task);
    }
    vj_mutex_unlock(&c->lock);
    if (conn != NULL) {
        send_call(conn, call, now_us);
        vj_conn_unref(conn);
    }
    if (rc < 0) {
        vj_call_end(call, rc);
    }
}

void vj_rpc_help(VjRpcClient *c, bool (*is_over)(void *opaque), void *opaque,
                 int64_t until_us)
{
    vj_loop_help(c->loop, is_over, opaque, until_us);
}

void vj_rpc_cancel(VjRpcClient *c, VjRpcCall *call)
{
    VjRpcCallState *s = call->state;
    VjConn *conn = NULL;
    bool is_ours = true;

    vj_mutex_lock(&c->lock);
    if (s->place == VJ_CALL_WAITING) {
        queue_remove(c, s);
    } else if (s->place == VJ_CALL_IN_FLIGHT) {
        slot_remove(c, s);
        conn = vj_conn_ref(c->conn);
    } else {
        is_ours = false;
    }
    vj_mutex_unlock(&c->lock);
    if (!is_ours) {
        return;
    }
    if (conn != NULL) {
        give_up(conn, s);
        vj_conn_unref(conn);
    }
    vj_call_end(call, -ECANCELED);
    pump(c);
}

/* ---- deadlines --------------------------------------------------------------------- */

static void arm(struct event *e, int64_t after_us)
{
    struct timeval after = {.tv_sec = after_us / G_USEC_PER_SEC,
                            .tv_usec = after_us % G_USEC_PER_SEC};
    int rc = event_add(e, &after);

    g_assert(rc == 0);
}

static void arm_deadline(VjRpcClient *c)
{
    int64_t at_us;

    vj_mutex_lock(&c->lock);
    at_us = c->deadline_us;
    vj_mutex_unlock(&c->lock);
    if (at_us != INT64_MAX) {
        arm(c->deadline_event, MAX(at_us - vj_clock_mono_us(), 1000));
    }
}

static bool is_late(VjRpcClient *c, const VjRpcCallState *s, int64_t now_us)
{
    if (s->call->deadline_us <= now_us) {
        return true;
    }
    c->deadline_us = MIN(c->deadline_us, s->call->deadline_us);
    return false;
}

/* Calls that are late leave table and queue. */
static void take_late(VjRpcClient *c, GPtrArray *sent, GPtrArray *waiting)
{
    int64_t now_us = vj_clock_mono_us();

    vj_mutex_assert_held(&c->lock);
    c->deadline_us = INT64_MAX;
    for (unsigned slot = 0; slot < SLOTS && in_flight(c) > 0; slot++) {
        VjRpcCallState *s = c->slots[slot];

        if (s != NULL && is_late(c, s, now_us)) {
            slot_remove(c, s);
            g_ptr_array_add(sent, s);
        }
    }
    for (VjRpcCallState *s = c->first, *next; s != NULL; s = next) {
        next = s->next;
        if (is_late(c, s, now_us)) {
            queue_remove(c, s);
            g_ptr_array_add(waiting, s);
        }
    }
}

static void end_all(GPtrArray *states, int rc)
{
    for (guint i = 0; i < states->len; i++) {
        vj_call_end(((VjRpcCallState *)states->pdata[i])->call, rc);
    }
}

static void on_deadline(evutil_socket_t fd, short what, void *opaque)
{
    VjRpcClient *c = opaque;
    g_autoptr(GPtrArray) sent = g_ptr_array_new();
    g_autoptr(GPtrArray) waiting = g_ptr_array_new();

    (void)fd;
    (void)what;
    vj_mutex_lock(&c->lock);
    take_late(c, sent, waiting);
    vj_mutex_unlock(&c->lock);
    for (guint i = 0; i < sent->len; i++) {
        give_up(c->conn, sent->pdata[i]); /* the loop's thread is the one to change it */
    }
    end_all(sent, -ETIMEDOUT);
    end_all(waiting, -ETIMEDOUT);
    pump(c);
    arm_deadline(c);
}

/* ---- connecting -------------------------------------------------------------------- */

static const VjConnCallbacks conn_callbacks;
static void begin_attempt(VjRpcClient *c);

static void set_state(VjRpcClient *c, State state)
{
    vj_mutex_lock(&c->lock);
    c->state = state;
    vj_mutex_unlock(&c->lock);
}

/* Takes @text, what the peer says to people; NULL: nothing. */
static void set_why_text(VjRpcClient *c, char *text)
{
    vj_mutex_lock(&c->lock);
    g_free(c->why_text);
    c->why_text = text;
    vj_mutex_unlock(&c->lock);
}

static const char *text_of(int rc)
{
    switch (rc) {
    case -EPROTO:
        return "what listens there speaks another protocol";
    case -EACCES:
        return "one side refuses the other's credentials";
    case -ECONNRESET:
        return "the connection was closed before there was an answer";
    case -ETIMEDOUT:
        return "no answer";
    case -EHOSTUNREACH:
        return "no address of that name, or no way to it";
    default:
        return g_strerror(-rc);
    }
}

/* Credentials that were refused are an answer: there is none to hello, and waiting for
 * one does not help. */
static void tell_refusal(VjRpcClient *c)
{
    const char *why = c->credentials->identity != NULL
                          ? "it does not know this key by this name"
                          : text_of(-EACCES);

    set_why_text(c, g_strdup(why));
    if (c->config.connected != NULL) {
        (void)c->config.connected(c->config.opaque, -EACCES, vj_slice(why, strlen(why)));
    }
}

static void attempt_failed(VjRpcClient *c, int rc)
{
    if (c->is_refused) {
        tell_refusal(c);
    }
    vj_trace(rpc, "%s: not connected: %s", c->text, g_strerror(-rc));
    vj_mutex_lock(&c->lock);
    c->why_rc = rc;
    vj_mutex_unlock(&c->lock);
    c->asks_again = c->address.path == NULL && !c->address.is_numeric;
    set_state(c, STATE_PAUSE);
    arm(c->pause_event, c->pause_us);
    c->pause_us = MIN(c->pause_us * 2, PAUSE_LAST_US);
}

static gpointer resolver_main(gpointer opaque)
{
    Resolver *r = opaque;

    r->addresses = vj_address_resolve(&r->address, false, NULL);
    vj_loop_post(r->loop, &r->task);
    vj_loop_client_unref();
    return NULL;
}

static void resolver_free(Resolver *r)
{
    vj_address_clear(&r->address);
    g_clear_pointer(&r->addresses, g_array_unref);
    g_free(r);
}

static void on_resolved(VjLoopTask *task)
{
    Resolver *r = (Resolver *)(void *)((uint8_t *)task - offsetof(Resolver, task));
    VjRpcClient *c = r->client;

    if (c != NULL) {
        c->resolver = NULL;
        if (r->addresses != NULL) {
            g_clear_pointer(&c->addresses, g_array_unref);
            c->addresses = g_steal_pointer(&r->addresses);
        }
        c->asks_again = false;
        begin_attempt(c);
    }
    resolver_free(r);
}

static void begin_resolve(VjRpcClient *c)
{
    Resolver *r = g_new0(Resolver, 1);
    VjLoop *same = vj_loop_client_ref(NULL);
    GThread *thread;

    g_assert(same == c->loop);
    r->task.run = on_resolved;
    r->loop = c->loop;
    r->client = c;
    r->address = (VjAddress){.host = g_strdup(c->address.host), .port = c->address.port};
    set_state(c, STATE_RESOLVING);
    thread = g_thread_try_new("vj-rpc-name", resolver_main, r, NULL);
    if (thread == NULL) {
        vj_loop_client_unref(); /* not the last one: the client has one */
        resolver_free(r);
        attempt_failed(c, -EAGAIN);
        return;
    }
    c->resolver = r;
    g_thread_unref(thread);
}

static void try_next_address(VjRpcClient *c)
{
    int rc = c->attempt_rc;

    set_state(c, STATE_CONNECTING);
    while (c->addresses != NULL && c->address_index < c->addresses->len) {
        const VjSocketAddress *to =
            &g_array_index(c->addresses, VjSocketAddress, c->address_index++);
        int fd = -1;
        VjConn *conn;

        rc = vj_socket_connect(to, &fd);
        if (rc < 0 && rc != -EINPROGRESS) {
            continue;
        }
        conn = vj_conn_new(c->loop, fd, &conn_callbacks, c, &c->counters);
        if (conn == NULL) {
            rc = -ENOMEM;
            continue;
        }
        vj_mutex_lock(&c->lock);
        c->conn = conn;
        vj_mutex_unlock(&c->lock);
        c->attempt_us = vj_clock_mono_us();
        c->hello_is_answered = false;
        vj_conn_start(conn, false, c->credentials,
                      c->address.path == NULL ? c->address.host : NULL);
        return;
    }
    set_why_text(c, NULL);
    attempt_failed(c, rc);
}

static void begin_attempt(VjRpcClient *c)
{
    if (c->asks_again) {
        begin_resolve(c);
        return;
    }
    c->address_index = 0;
    c->is_refused = false;
    c->attempt_rc = -EHOSTUNREACH;
    try_next_address(c);
}

static void on_pause_over(evutil_socket_t fd, short what, void *opaque)
{
    VjRpcClient *c = opaque;

    (void)fd;
    (void)what;
    begin_attempt(c);
}

/* ---- a connection ------------------------------------------------------------------ */

static void own_released(VjOut *out, bool was_sent)
{
    (void)out; /* a member of the client */
    (void)was_sent;
}

static void ping_released(VjOut *out, bool was_sent)
{
    VjRpcClient *c =
        (VjRpcClient *)(void *)((uint8_t *)out - offsetof(VjRpcClient, ping_out));

    (void)was_sent;
    /* In the loop's thread or, with output of a caller, in that one's. */
    __atomic_store_n(&c->ping_is_out, false, __ATOMIC_RELEASE);
}

static void conn_ready(VjConn *conn)
{
    VjRpcClient *c = vj_conn_owner(conn);
    VjFrame frame = {.op = VJ_OP_HELLO, .tag = TAG_HELLO};

    set_state(c, STATE_HELLO);
    c->hello_is_answered = false;
    vj_hello_add_features(c->hello, VJ_FEATURE_BARE);
    vj_hello_set_client(c->hello, c->id, ++c->connection);
    c->hello_out = (VjOut){.message = vj_slice(c->hello->data, c->hello->len),
                           .released = own_released};
    vj_out_encode(&c->hello_out, &frame);
    vj_conn_send(conn, &c->hello_out);
}

/* Where the reply of a call goes. */
static int into_of_call(VjRpcClient *c, const VjFrame *frame, VjInto *into)
{
    VjRpcCallState *s;
    uint32_t bulk_max = 0;
    int rc = 0;

    vj_mutex_lock(&c->lock);
    s = slot_find(c, frame->tag);
    if (s == NULL) {
        rc = was_asked(c, frame->tag) ? 0 : -EPROTO;
        into->is_ignored = true;
    } else if (s->call->op != frame->op) {
        rc = -EPROTO;
    } else {
        bulk_max = s->call->bulk_max;
        c->receiving_tag = frame->tag;
        if (frame->bulk_bytes > bulk_max || (vj_frame_is_bare(frame) && !s->is_bare)) {
            rc = -EPROTO;
        } else if (frame->bulk_bytes > 0 && s->call->into != NULL) {
            into->bulk = vj_buf_ref(s->call->into);
        }
    }
    vj_mutex_unlock(&c->lock);
    if (rc == 0 && !into->is_ignored && into->bulk == NULL && frame->bulk_bytes > 0) {
        into->bulk = vj_buf_new(vj_bulk_room(frame->bulk_bytes));
        rc = into->bulk == NULL ? -ENOMEM : 0;
    }
    return rc;
}

static int conn_head(VjConn *conn, const VjFrame *frame, VjInto *into)
{
    VjRpcClient *c = vj_conn_owner(conn);

    if ((frame->flags & VJ_FRAME_REPLY) == 0) {
        return -EPROTO;
    }
    if (frame->message_bytes > VJ_WIRE_REPLY_MESSAGE_MAX ||
        (vj_frame_is_bare(frame) && frame->op != VJ_OP_GET)) {
        return -EPROTO;
    }
    if (frame->op == VJ_OP_PING && frame->tag == 0) {
        /* The peer reads nothing just now, but is alive. */
        c->attempt_us = vj_clock_mono_us();
        return frame->message_bytes == 0 && frame->bulk_bytes == 0 ? 0 : -EPROTO;
    }
    if (c->state == STATE_HELLO) {
        return frame->tag == TAG_HELLO && frame->op == VJ_OP_HELLO &&
                       frame->bulk_bytes == 0 && frame->message_bytes <= HELLO_REPLY_MAX
                   ? 0
                   : -EPROTO;
    }
    if (frame->op == VJ_OP_PING && frame->tag == TAG_PING) {
        return frame->message_bytes == 0 && frame->bulk_bytes == 0 ? 0 : -EPROTO;
    }
    return into_of_call(c, frame, into);
}

static void hello_answered(VjRpcClient *c, const VjFrame *frame, GByteArray *message)
{
    int status = vj_wire_errno(frame->status);
    VjSlice reply =
        message != NULL ? vj_slice(message->data, message->len) : vj_slice(NULL, 0);
    VjHelloReply limits = {0};
    bool is_good = status != 0 || vj_hello_reply_decode(reply, &limits) == 0;

    c->hello_is_answered = true;
    set_why_text(c, status != 0 ? vj_wire_text(reply) : NULL);
    if (is_good && c->config.connected != NULL) {
        is_good = c->config.connected(c->config.opaque, status, reply);
    }
    if (!is_good || status != 0) {
        vj_conn_close(c->conn, status != 0 ? status : -EPROTO);
        return;
    }
    vj_mutex_lock(&c->lock);
    c->state = STATE_CONNECTED;
    c->wants = false;
    c->why_rc = 0;
    c->features = limits.features & VJ_FEATURE_BARE;
    c->calls_max = limits.requests_max == 0 ? SLOTS : MIN(limits.requests_max, SLOTS);
    c->bytes_max = limits.bytes_max == 0 ? VJ_RPC_CONNECTION_BYTES_MAX : limits.bytes_max;
    vj_mutex_unlock(&c->lock);
    c->pause_us = PAUSE_FIRST_US;
    __atomic_fetch_add(&c->connects, 1, __ATOMIC_RELAXED);
    vj_trace(rpc, "%s: connected", c->text);
    pump(c);
}

static void call_answered(VjRpcClient *c, const VjFrame *frame, GByteArray *message,
                          VjBuf *bulk)
{
    VjRpcCallState *s;
    VjRpcCall *call;

    vj_mutex_lock(&c->lock);
    s = slot_find(c, frame->tag);
    if (s != NULL) {
        slot_remove(c, s);
    }
    vj_mutex_unlock(&c->lock);
    if (s == NULL) { /* given up meanwhile */
        g_clear_pointer(&message, g_byte_array_unref);
        vj_buf_unref(bulk);
        return;
    }
    call = s->call;
    call->is_answered = true;
    call->reply = message != NULL ? message : g_byte_array_new();
    call->reply_bulk = bulk;
    call->reply_bulk_bytes = bulk != NULL ? frame->bulk_bytes : 0;
    vj_call_end(call, vj_wire_errno(frame->status));
    pump(c);
}

static void conn_frame(VjConn *conn, const VjFrame *frame, GByteArray *message,
                       VjBuf *bulk, bool is_ignored)
{
    VjRpcClient *c = vj_conn_owner(conn);

    c->receiving_tag = 0;
    if (c->state == STATE_HELLO && frame->tag == TAG_HELLO) {
        hello_answered(c, frame, message);
        g_clear_pointer(&message, g_byte_array_unref);
    } else if (frame->tag >= SLOTS && !is_ignored) {
        call_answered(c, frame, message, bulk);
    } else {
        g_assert(message == NULL);
        vj_buf_unref(bulk);
    }
}

/* All calls that the end of a connection answers leave table and queue. */
static void take_lost(VjRpcClient *c, GPtrArray *sent, GPtrArray *waiting)
{
    vj_mutex_assert_held(&c->lock);
    for (unsigned slot = 0; slot < SLOTS && in_flight(c) > 0; slot++) {
        if (c->slots[slot] != NULL) {
            g_ptr_array_add(sent, c->slots[slot]);
            slot_remove(c, c->slots[slot]);
        }
    }
    for (VjRpcCallState *s = c->first, *next; s != NULL; s = next) {
        next = s->next;
        if (!s->call->waits_for_connection || c->is_closing) {
            queue_remove(c, s);
            g_ptr_array_add(waiting, s);
        }
    }
}

static void end_lost(VjRpcClient *c, GPtrArray *sent, int rc)
{
    for (guint i = 0; i < sent->len; i++) {
        VjRpcCallState *s = sent->pdata[i];
        bool broke_it = rc == -EPROTO && s->tag == c->receiving_tag;

        vj_call_end(s->call, broke_it ? -EPROTO : -ECONNRESET);
    }
    c->receiving_tag = 0;
}

static void conn_closed(VjConn *conn, int rc)
{
    VjRpcClient *c = vj_conn_owner(conn);
    g_autoptr(GPtrArray) sent = g_ptr_array_new();
    g_autoptr(GPtrArray) waiting = g_ptr_array_new();
    State before;
    bool again, is_closing;

    vj_mutex_lock(&c->lock);
    before = c->state;
    is_closing = c->is_closing;
    c->conn = NULL;
    take_lost(c, sent, waiting);
    if (before == STATE_CONNECTED) {
        c->wants = c->wants || c->first != NULL;
    }
    c->state = STATE_IDLE;
    again = c->wants && !is_closing;
    vj_mutex_unlock(&c->lock);
    vj_conn_unref(conn);
    end_lost(c, sent, rc);
    c->is_refused = rc == -EACCES && before != STATE_CONNECTED && !c->hello_is_answered;
    end_all(waiting, is_closing ? -ECANCELED : -ENOTCONN);
    if (before == STATE_CONNECTED) {
        vj_trace(rpc, "%s: lost: %s", c->text, g_strerror(-rc));
        __atomic_fetch_add(&c->losses, 1, __ATOMIC_RELAXED);
        if (c->config.lost != NULL) {
            c->config.lost(c->config.opaque);
        }
        if (again) {
            vj_loop_post(c->loop, &c->task);
        }
    } else if (!again) {
        return;
    } else if (before == STATE_CONNECTING) {
        c->attempt_rc = rc;
        try_next_address(c);
    } else {
        attempt_failed(c, rc);
    }
}

static const VjConnCallbacks conn_callbacks = {
    .ready = conn_ready,
    .head = conn_head,
    .frame = conn_frame,
    .closed = conn_closed,
};

/* ---- signs of life ----------------------------------------------------------------- */

static void send_ping(VjRpcClient *c)
{
    VjFrame frame = {.op = VJ_OP_PING, .tag = TAG_PING};

    if (__atomic_load_n(&c->ping_is_out, __ATOMIC_ACQUIRE)) {
        return;
    }
    __atomic_store_n(&c->ping_is_out, true, __ATOMIC_RELAXED);
    c->ping_out = (VjOut){.released = ping_released};
    vj_out_encode(&c->ping_out, &frame);
    vj_conn_send_first(c->conn, &c->ping_out);
}

static void look_for_life(VjRpcClient *c, int64_t now_us)
{
    int64_t since_us = vj_conn_alive_us(c->conn);
    bool is_busy;

    vj_mutex_lock(&c->lock);
    is_busy = in_flight(c) > 0;
    since_us = MAX(since_us, c->busy_us);
    vj_mutex_unlock(&c->lock);
    if (!is_busy) {
        return;
    }
    if (now_us - since_us > c->silence_us) {
        vj_conn_close(c->conn, -ETIMEDOUT);
    } else if (now_us - since_us >= MIN(PING_AFTER_US, c->silence_us / 4)) {
        send_ping(c);
    }
}

static void on_tick(evutil_socket_t fd, short what, void *opaque)
{
    VjRpcClient *c = opaque;
    int64_t now_us = vj_clock_mono_us();

    (void)fd;
    (void)what;
    if (c->conn == NULL) {
        return;
    }
    if (c->state == STATE_CONNECTED) {
        look_for_life(c, now_us);
        if (c->conn != NULL) {
            vj_conn_check(c->conn, now_us);
        }
    } else if (now_us - c->attempt_us > c->silence_us) {
        vj_conn_close(c->conn, -ETIMEDOUT);
    }
}

/* ---- the client -------------------------------------------------------------------- */

static void free_event(struct event **e)
{
    if (*e != NULL) {
        event_free(*e);
        *e = NULL;
    }
}

/* All calls have been answered. */
static void let_go(VjRpcClient *c)
{
    if (c->resolver != NULL) {
        c->resolver->client = NULL;
        c->resolver = NULL;
    }
    if (c->conn != NULL) {
        vj_conn_close(c->conn, -ECANCELED);
    }
    free_event(&c->tick_event);
    free_event(&c->deadline_event);
    free_event(&c->pause_event);
    vj_loop_unpost(c->loop, &c->task);
    vj_mutex_lock(&c->lock);
    c->is_let_go = true;
    vj_cond_signal(&c->let_go);
    vj_mutex_unlock(&c->lock);
}

static bool make_events(VjRpcClient *c)
{
    struct event_base *base = vj_loop_base(c->loop);
    struct timeval tick = {.tv_sec = c->tick_us / G_USEC_PER_SEC,
                           .tv_usec = c->tick_us % G_USEC_PER_SEC};

    c->tick_event = event_new(base, -1, EV_PERSIST, on_tick, c);
    c->deadline_event = evtimer_new(base, on_deadline, c);
    c->pause_event = evtimer_new(base, on_pause_over, c);
    return c->tick_event != NULL && c->deadline_event != NULL && c->pause_event != NULL &&
           event_add(c->tick_event, &tick) == 0;
}

static void on_task(VjLoopTask *task)
{
    VjRpcClient *c =
        (VjRpcClient *)(void *)((uint8_t *)task - offsetof(VjRpcClient, task));
    bool is_closing, wants;

    vj_mutex_lock(&c->lock);
    is_closing = c->is_closing;
    wants = c->wants;
    vj_mutex_unlock(&c->lock);
    if (is_closing) {
        return; /* on_close_task comes */
    }
    if (c->tick_event == NULL && !make_events(c)) {
        g_error("rpc: no memory for timers"); /* as small allocations of GLib's end */
    }
    arm_deadline(c);
    if (wants && c->state == STATE_IDLE) {
        begin_attempt(c);
    }
}

/* Posted once, when nobody posts the other task any more but the loop's thread. */
static void on_close_task(VjLoopTask *task)
{
    let_go((VjRpcClient *)(void *)((uint8_t *)task - offsetof(VjRpcClient, close_task)));
}

VjRpcClient *vj_rpc_client_new(const VjRpcClientConfig *config, GError **error)
{
    VjRpcClient *c = g_new0(VjRpcClient, 1);

    c->loop = vj_address_parse(config->address, &c->address, error)
                  ? vj_loop_client_ref(error)
                  : NULL;
    if (c->loop == NULL) {
        vj_address_clear(&c->address);
        g_free(c);
        return NULL;
    }
    c->text = g_strdup(config->address);
    /* Now, as a sandbox may not let a resolver work later; a name without an address is
     * asked for again when there is something to send. */
    c->addresses = vj_address_resolve(&c->address, false, NULL);
    c->asks_again = c->addresses == NULL && c->address.path == NULL;
    c->credentials = vj_credentials_ref(config->credentials);
    c->hello = g_byte_array_new();
    g_byte_array_append(c->hello, config->hello.data, (guint)config->hello.len);
    vj_random_bytes(c->id, sizeof c->id);
    c->silence_us =
        config->silence_us > 0 ? config->silence_us : VJ_RPC_SILENCE_DEFAULT_US;
    c->tick_us = CLAMP(c->silence_us / 8, TICK_MIN_US, PING_AFTER_US / 2);
    c->config = *config;
    c->config.address = NULL; /* the caller's */
    c->config.hello = vj_slice(NULL, 0);
    c->config.credentials = NULL;
    c->task.run = on_task;
    c->close_task.run = on_close_task;
    c->pause_us = PAUSE_FIRST_US;
    vj_mutex_init(&c->lock, VJ_RANK_RPC, "rpc.client");
    vj_cond_init(&c->let_go);
    c->deadline_us = INT64_MAX;
    c->free_count = SLOTS;
    for (unsigned i = 0; i < SLOTS; i++) {
        c->free_slots[i] = (uint16_t)(SLOTS - 1 - i);
    }
    return c;
}

/* Answers all that is in flight or waits, and lets no more in. */
static void cancel_all(VjRpcClient *c)
{
    g_autoptr(GPtrArray) sent = g_ptr_array_new();
    g_autoptr(GPtrArray) waiting = g_ptr_array_new();
    VjConn *conn;

    vj_mutex_lock(&c->lock);
    g_assert(!c->is_closing);
    c->is_closing = true;
    take_lost(c, sent, waiting);
    conn = c->conn != NULL ? vj_conn_ref(c->conn) : NULL;
    vj_mutex_unlock(&c->lock);
    for (guint i = 0; i < sent->len; i++) {
        give_up(conn, sent->pdata[i]);
    }
    end_all(sent, -ECANCELED);
    end_all(waiting, -ECANCELED);
    vj_conn_unref(conn);
}

void vj_rpc_client_free(VjRpcClient *c)
{
    g_assert(!vj_loop_is_current(c->loop));
    cancel_all(c);
    vj_mutex_lock(&c->lock);
    vj_loop_post(c->loop, &c->close_task);
    while (!c->is_let_go) {
        vj_cond_wait(&c->let_go, &c->lock);
    }
    vj_mutex_unlock(&c->lock);
    vj_loop_client_unref();
    g_assert(in_flight(c) == 0 && c->first == NULL);
    vj_mutex_clear(&c->lock);
    vj_cond_clear(&c->let_go);
    vj_credentials_unref(c->credentials);
    g_byte_array_unref(c->hello);
    g_free(c->why_text);
    g_clear_pointer(&c->addresses, g_array_unref);
    vj_address_clear(&c->address);
    g_free(c->text);
    g_free(c);
}

void vj_rpc_client_connect(VjRpcClient *c)
{
    vj_mutex_lock(&c->lock);
    if (c->state != STATE_CONNECTED && !c->wants && !c->is_closing) {
        c->wants = true;
        vj_loop_post(c->loop, &c->task);
    }
    vj_mutex_unlock(&c->lock);
}

char *vj_rpc_client_why(VjRpcClient *c)
{
    char *why = NULL;

    vj_mutex_lock(&c->lock);
    if (c->why_rc != 0) {
        why = g_strdup_printf("%s: %s", c->text,
                              c->why_text != NULL ? c->why_text : text_of(c->why_rc));
    }
    vj_mutex_unlock(&c->lock);
    return why;
}

bool vj_rpc_client_is_connected(VjRpcClient *c)
{
    bool is_connected;

    vj_mutex_lock(&c->lock);
    is_connected = c->state == STATE_CONNECTED;
    vj_mutex_unlock(&c->lock);
    return is_connected;
}

void vj_rpc_client_traffic(VjRpcClient *c, VjRpcTraffic *out)
{
    *out = (VjRpcTraffic){
        .sent_bytes = __atomic_load_n(&c->counters.sent_bytes, __ATOMIC_RELAXED),
        .received_bytes = __atomic_load_n(&c->counters.received_bytes, __ATOMIC_RELAXED),
        .calls = __atomic_load_n(&c->calls, __ATOMIC_RELAXED),
        .connects = __atomic_load_n(&c->connects, __ATOMIC_RELAXED),
        .losses = __atomic_load_n(&c->losses, __ATOMIC_RELAXED),
    };
}
