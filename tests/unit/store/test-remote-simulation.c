/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The driver remote in a world of its own: one thread, a clock that jumps to the next
 * event, and nodes that are models.
 *
 * Requests and replies take a random time and so overtake each other; some are lost, and
 * some requests are done twice, or after their connection was lost.  Nodes crash, are cut
 * off, lose their disk, have bad blocks, fail to sync, run full.  Beside it objects are
 * put, read, removed, flushed, healed and listed, as the room object does.
 *
 * What has to hold, whatever happens:
 *
 * - after a good flush each object that was put before is durable at a node;
 * - an object that was flushed is never lost, as long as not all disks that have it are;
 *   the world takes no disk that has the last good copy of one that its record names;
 * - the record of such an object names a node where it is durable, also when a crash
 *   takes what a heal said of it;
 * - a get gives the bytes, or says that nodes are away;
 * - after some time without failures each object can be brought to its replicas, no
 *   replica is anywhere else, and a listing shows each object once.
 *
 * One step is one event.  VARJFS_TEST_SEED and VARJFS_TEST_STEPS set the seed and the
 * number; the seed is printed.
 */
#include "../../lib/node-model.h"
#include "../../lib/test.h"

#include "store/remote-private.h"

enum {
    NODES_MAX = 6,
    OBJECTS_MAX = 300,
    IN_FLIGHT_MAX = 48,
    STEPS_DEFAULT = 1000000,
};

#define MS ((int64_t)1000)
#define SECOND (1000 * MS)
#define SILENCE (5 * SECOND)

/* ---- events ------------------------------------------------------------------------ */

typedef struct Event {
    int64_t at_us;
    uint64_t number; /* those of one time in this order */
    void (*run)(void *opaque);
    void *opaque;
} Event;

/* A call of the driver's, or what the network still has of one. */
typedef struct Flight {
    VjRpcCall *call; /* a reference until it has ended; NULL: it has */
    GByteArray *message;
    VjBuf *bulk;
    uint32_t bulk_bytes;
    uint16_t op;
    unsigned node;
    uint64_t connection;
    unsigned refs; /* events and the list of the client */
    NodeReply reply;
    bool is_done; /* by the node, at least once */
    Event *deadline;
} Flight;

typedef struct FakeClient {
    VjRpcClientConfig config;
    GByteArray *hello;
    unsigned node;
    bool is_connected, wants, is_trying, is_freed;
    uint64_t connection;
    GPtrArray *flights; /* of Flight, a reference each: not ended */
    GPtrArray *late;    /* of Flight: to be done before the next connection, perhaps */
    GQueue waiting;     /* of VjRpcCall */
} FakeClient;

typedef struct Node {
    NodeModel *model;
    FakeClient *client;
    bool is_down;
    int64_t cut_until_us; /* nothing comes through before */
    bool is_slow;
} Node;

typedef enum ObjectState {
    OBJECT_NONE,
    OBJECT_PUTTING,
    OBJECT_PUT, /* returned, not flushed */
    OBJECT_FLUSHED,
    OBJECT_REMOVING,
} ObjectState;

typedef struct Object {
    uint64_t id;
    size_t len;
    VjLoc loc;
    ObjectState state;
    unsigned readers; /* gets and heals: it is not removed meanwhile */
    unsigned heals;   /* begun or ended; odd: one is at work */
} Object;

static struct World {
    VjRng rng;
    uint64_t seed;
    int64_t now_us;
    GSequence *events;
    uint64_t event_number, steps, steps_wanted;
    VjStore *s;
    VjRemote *r; /* the same, from before open() has returned */
    unsigned node_count, replicas;
    Node nodes[NODES_MAX];
    bool is_calm;    /* no failures */
    bool is_blocked; /* a thread waits: no other call that waits is begun */
    Object objects[OBJECTS_MAX];
    uint64_t next_id;
    unsigned in_flight;
    bool is_flushing;
    uint64_t short_puts; /* with fewer acknowledgements than replicas */
    uint64_t gets, failed_gets, puts, flushes, failed_flushes, heals, disks_lost, crashes;
    uint64_t trims, lost_records;
} w;

static uint64_t below(uint64_t bound)
{
    return vj_rng_below(&w.rng, bound);
}

static bool chance(unsigned per_mille)
{
    return below(1000) < per_mille;
}

static void set_clock(void)
{
    struct timespec real = {.tv_sec = 1000000 + w.now_us / SECOND};

    vj_clock_set_for_test(&real, w.now_us);
}

static gint compare_events(gconstpointer a, gconstpointer b, gpointer unused)
{
    const Event *x = a, *y = b;

    (void)unused;
    return x->at_us != y->at_us     ? (x->at_us < y->at_us ? -1 : 1)
           : x->number != y->number ? (x->number < y->number ? -1 : 1)
                                    : 0;
}

static Event *at(int64_t at_us, void (*run)(void *), void *opaque)
{
    Event *e = g_new(Event, 1);

    *e =
        (Event){.at_us = at_us, .number = ++w.event_number, .run = run, .opaque = opaque};
    g_sequence_insert_sorted(w.events, e, compare_events, NULL);
    return e;
}

/* ---- the network ------------------------------------------------------------------- */

static int64_t delay_us(unsigned node)
{
    int64_t us = 50 + (int64_t)below(500);

    if (chance(20)) {
        us += (int64_t)below(50 * MS);
    }
    if (w.nodes[node].is_slow) {
        us += (int64_t)below(200 * MS);
    }
    /* What is cut off comes through when it is no more. */
    return MAX(us, w.nodes[node].cut_until_us - w.now_us + us);
}

static void flight_unref(Flight *f)
{
    if (--f->refs > 0) {
        return;
    }
    g_assert(f->call == NULL);
    node_reply_clear(&f->reply);
    g_clear_pointer(&f->message, g_byte_array_unref);
    vj_buf_unref(f->bulk);
    g_free(f);
}

static FakeClient *client_of(VjRpcClient *c)
{
    return (FakeClient *)(void *)c;
}

/* Answers the call, if that was not done. */
static void end_flight(Flight *f, int rc)
{
    VjRpcCall *call = g_steal_pointer(&f->call);

    if (call == NULL) {
        return;
    }
    g_ptr_array_remove_fast(w.nodes[f->node].client->flights, f);
    if (f->deadline != NULL) {
        f->deadline->opaque = NULL;
    }
    call->rc = rc;
    call->done(call);
    vj_rpc_call_unref(call);
    flight_unref(f); /* the client's */
}

static void on_deadline(void *opaque)
{
    Flight *f = opaque;

    if (f != NULL) { /* the client's reference is there */
        f->deadline = NULL;
        end_flight(f, -ETIMEDOUT);
    }
}

static void do_at_node(Flight *f)
{
    Node *node = &w.nodes[f->node];
    VjSlice bulk = {.data = NULL};

    if (f->bulk != NULL) {
        bulk = vj_slice(f->bulk->data, f->bulk_bytes);
    }
    node_reply_clear(&f->reply);
    f->reply = node_model_run(node->model, f->op,
                              vj_slice(f->message->data, f->message->len), bulk);
    f->is_done = true;
}

static void on_reply(void *opaque)
{
    Flight *f = opaque;
    FakeClient *c = w.nodes[f->node].client;
    VjRpcCall *call = f->call;

    if (call != NULL && c->is_connected && c->connection == f->connection) {
        call->is_answered = true;
        call->reply = g_byte_array_ref(f->reply.message);
        if (f->reply.bulk != NULL && f->reply.bulk_bytes > 0) {
            g_assert_cmpuint(f->reply.bulk_bytes, <=, call->bulk_max);
            call->reply_bulk =
                call->into != NULL ? vj_buf_ref(call->into) : vj_buf_ref(f->reply.bulk);
            memcpy(call->reply_bulk->data, f->reply.bulk->data, f->reply.bulk_bytes);
            call->reply_bulk_bytes = f->reply.bulk_bytes;
        }
        end_flight(f, f->reply.rc);
    }
    flight_unref(f);
}

/* Once more, before the answer to the first time is out. */
static void on_repeat(void *opaque)
{
    Flight *f = opaque;

    if (f->call != NULL && !w.nodes[f->node].is_down &&
        w.nodes[f->node].client->connection == f->connection &&
        w.nodes[f->node].client->is_connected) {
        NodeReply first = f->reply;

        f->reply = (NodeReply){.rc = 0};
        do_at_node(f);
        if (first.message != NULL) { /* whose answer counts */
            node_reply_clear(&f->reply);
            f->reply = first;
        }
    }
    flight_unref(f);
}

static void on_request(void *opaque)
{
    Flight *f = opaque;
    FakeClient *c = w.nodes[f->node].client;

    if (w.nodes[f->node].is_down || !c->is_connected || c->connection != f->connection ||
        (!w.is_calm && chance(1))) {
        flight_unref(f); /* lost */
        return;
    }
    do_at_node(f);
    if (!w.is_calm && chance(1)) {
        flight_unref(f); /* the reply is */
        return;
    }
    at(w.now_us + delay_us(f->node), on_reply, f);
}

/* ---- the client of rpc ------------------------------------------------------------- */

static void send_call(FakeClient *c, VjRpcCall *call)
{
    Flight *f = g_new0(Flight, 1);
    int64_t arrives_us = w.now_us + delay_us(c->node);

    f->call = call; /* a reference, the room's */
    f->message =
        call->message != NULL ? g_byte_array_ref(call->message) : g_byte_array_new();
    f->bulk = call->bulk != NULL ? vj_buf_ref(call->bulk) : NULL;
    f->bulk_bytes = call->bulk_bytes;
    g_assert_null(call->lead); /* nobody has a holder here */
    f->op = call->op;
    f->node = c->node;
    f->connection = c->connection;
    f->refs = 2;
    g_ptr_array_add(c->flights, f);
    if (call->deadline_us != INT64_MAX) {
        f->deadline = at(call->deadline_us, on_deadline, f);
    }
    at(arrives_us, on_request, f);
    if (!w.is_calm && chance(10)) {
        f->refs++;
        at(arrives_us + (int64_t)below(2 * MS), on_repeat, f);
    }
}

static void try_to_connect(void *opaque);

static void retry_later(FakeClient *c)
{
    if (c->wants && !c->is_trying && !c->is_freed) {
        c->is_trying = true;
        at(w.now_us + 20 * MS + (int64_t)below(500 * MS), try_to_connect, c);
    }
}

/* What an old connection had is done now, or never. */
static void do_late(FakeClient *c)
{
    for (guint i = 0; i < c->late->len; i++) {
        if (chance(500)) {
            do_at_node(c->late->pdata[i]);
        }
        flight_unref(c->late->pdata[i]);
    }
    g_ptr_array_set_size(c->late, 0);
}

static void forget_late(FakeClient *c)
{
    for (guint i = 0; i < c->late->len; i++) {
        flight_unref(c->late->pdata[i]);
    }
    g_ptr_array_set_size(c->late, 0);
}

static void client_destroy(FakeClient *c)
{
    forget_late(c);
    g_ptr_array_unref(c->flights);
    g_ptr_array_unref(c->late);
    g_byte_array_unref(c->hello);
    g_free(c);
}

static void try_to_connect(void *opaque)
{
    FakeClient *c = opaque;
    Node *node = &w.nodes[c->node];
    g_autoptr(GByteArray) reply = g_byte_array_new();
    VjRpcCall *call;
    int status;

    c->is_trying = false;
    if (c->is_freed) {
        if (node->client != c) {
            client_destroy(c);
        } /* else what is on its way looks at it: close_world() */
        return;
    }
    if (c->is_connected || !c->wants) {
        return;
    }
    if (node->is_down || node->cut_until_us > w.now_us) {
        retry_later(c);
        return;
    }
    do_late(c);
    status =
        node_model_hello(node->model, vj_slice(c->hello->data, c->hello->len), reply);
    c->connection++;
    if (!c->config.connected(c->config.opaque, status,
                             vj_slice(reply->data, reply->len)) ||
        status != 0) {
        retry_later(c);
        return;
    }
    c->is_connected = true;
    c->wants = false;
    while ((call = g_queue_pop_head(&c->waiting)) != NULL) {
        send_call(c, call);
    }
}

static void lose_connection(FakeClient *c)
{
    if (!c->is_connected) {
        return;
    }
    c->is_connected = false;
    while (c->flights->len > 0) {
        Flight *f = c->flights->pdata[0];

        if (!f->is_done && !w.nodes[c->node].is_down) {
            f->refs++;
            g_ptr_array_add(c->late, f);
        }
        end_flight(f, -ECONNRESET);
    }
    c->config.lost(c->config.opaque);
}

static VjRpcClient *fake_new(const VjRpcClientConfig *config, GError **error)
{
    FakeClient *c = g_new0(FakeClient, 1);

    (void)error;
    c->config = *config;
    c->hello = g_byte_array_new();
    g_byte_array_append(c->hello, config->hello.data, (guint)config->hello.len);
    c->flights = g_ptr_array_new();
    c->late = g_ptr_array_new();
    c->node = (unsigned)(config->address[strlen(config->address) - 1] - '0');
    g_queue_init(&c->waiting);
    w.nodes[c->node].client = c;
    w.r = ((VjRemoteNode *)config->opaque)->r;
    return (VjRpcClient *)(void *)c;
}

static void fake_free(VjRpcClient *client)
{
    FakeClient *c = client_of(client);
    VjRpcCall *call;

    while (c->flights->len > 0) {
        end_flight(c->flights->pdata[0], -ECANCELED);
    }
    while ((call = g_queue_pop_head(&c->waiting)) != NULL) {
        call->rc = -ECANCELED;
        call->done(call);
        vj_rpc_call_unref(call);
    }
    c->is_connected = false;
    c->is_freed = true;
    if (!c->is_trying) {
        c->is_trying = true;
        at(w.now_us, try_to_connect, c); /* which frees it */
    }
}

static void fake_connect(VjRpcClient *client)
{
    FakeClient *c = client_of(client);

    c->wants = true;
    if (!c->is_connected) {
        retry_later(c);
    }
}

static void fake_traffic(VjRpcClient *client, VjRpcTraffic *out)
{
    (void)client;
    *out = (VjRpcTraffic){0};
}

static void end_call(VjRpcCall *call, int rc)
{
    call->rc = rc;
    call->done(call);
    vj_rpc_call_unref(call);
}

static void fake_submit(VjRpcClient *client, VjRpcCall *call)
{
    FakeClient *c = client_of(client);

    g_assert(!c->is_freed);
    vj_lock_assert_none();
    vj_rpc_call_ref(call);
    if (call->deadline_us <= w.now_us) {
        end_call(call, -ETIMEDOUT);
    } else if (c->is_connected) {
        send_call(c, call);
    } else if (call->waits_for_connection) {
        g_queue_push_tail(&c->waiting, call);
    } else {
        end_call(call, -ENOTCONN);
    }
}

static void fake_cancel(VjRpcClient *client, VjRpcCall *call)
{
    FakeClient *c = client_of(client);

    for (guint i = 0; i < c->flights->len; i++) {
        Flight *f = c->flights->pdata[i];

        if (f->call == call) {
            end_flight(f, -ECANCELED);
            return;
        }
    }
}

static uint64_t fake_random(void)
{
    return vj_rng_u64(&w.rng);
}

static void step(void);

static const VjRemoteSeam world_seam = {.client_new = fake_new,
                                        .client_free = fake_free,
                                        .client_connect = fake_connect,
                                        .traffic = fake_traffic,
                                        .submit = fake_submit,
                                        .cancel = fake_cancel,
                                        .step = step,
                                        .random_u64 = fake_random};

static void set_true(void *opaque)
{
    *(bool *)opaque = true;
}

/* ---- objects ----------------------------------------------------------------------- */

static void fill(uint8_t *dst, size_t len, uint64_t id)
{
    for (size_t i = 0; i < len; i++) {
        dst[i] = (uint8_t)(id * 131 + i * 7 + 3);
    }
}

static uint64_t nonce_of(VjLoc loc)
{
    uint64_t nonce;
    VjNodeSet nodes;

    g_assert(vj_remote_loc_decode(loc, &nonce, &nodes));
    return nonce;
}

static VjNodeSet nodes_of(VjLoc loc)
{
    uint64_t nonce;
    VjNodeSet nodes;

    g_assert(vj_remote_loc_decode(loc, &nonce, &nodes));
    return nodes;
}

/* Nodes that have it, right; with @durable: and would have it after a crash.  Also those
 * that its record does not name. */
static VjNodeSet good_copies(const Object *o, bool durable)
{
    uint8_t bytes[512];
    VjNodeSet set = 0;

    fill(bytes, o->len, o->id);
    for (unsigned i = 0; i < w.node_count; i++) {
        bool is_durable;

        if (node_model_holds(w.nodes[i].model, o->id, nonce_of(o->loc),
                             vj_slice(bytes, o->len), &is_durable) &&
            (is_durable || !durable)) {
            set |= vj_node_bit(i);
        }
    }
    return set;
}

static bool is_there(const Object *o)
{
    return o->state == OBJECT_PUT || o->state == OBJECT_FLUSHED;
}

static VjNodeSet named_copies(const Object *o)
{
    return good_copies(o, true) & nodes_of(o->loc);
}

static void expect_safe(const Object *o)
{
    if (o->state == OBJECT_FLUSHED && named_copies(o) == 0) {
        fail_msg("seed %" G_GUINT64_FORMAT ", step %" G_GUINT64_FORMAT
                 ": object %" G_GUINT64_FORMAT
                 " was flushed and is lost: its record names "
                 "%" G_GINT64_MODIFIER "x, and %" G_GINT64_MODIFIER "x have it",
                 w.seed, w.steps, o->id, nodes_of(o->loc), good_copies(o, true));
    }
}

static Object *random_object(bool (*is_fit)(const Object *))
{
    for (int tries = 0; tries < 8; tries++) {
        Object *o = &w.objects[below(OBJECTS_MAX)];

        if (is_fit(o)) {
            return o;
        }
    }
    return NULL;
}

static bool is_none(const Object *o)
{
    return o->state == OBJECT_NONE;
}

static bool is_idle(const Object *o)
{
    return is_there(o) && o->readers == 0;
}

static void take_off(VjIo *io, void (*done)(VjIo *), void *opaque)
{
    io->done = done;
    io->opaque = opaque;
    w.in_flight++;
    assert_true(vj_store_submit(w.s, io));
}

/* ---- put, get, remove, flush ------------------------------------------------------- */

static void put_done(VjIo *io)
{
    Object *o = io->opaque;

    w.in_flight--;
    if (io->rc == 0) {
        o->loc = io->put.loc;
        o->state = OBJECT_PUT;
        w.short_puts += vj_node_count(nodes_of(o->loc)) < w.replicas;
    } else {
        if (io->rc != -ETIMEDOUT && io->rc != -ENOSPC && io->rc != -EIO) {
            fail_msg("seed %" G_GUINT64_FORMAT ": put: %d", w.seed, io->rc);
        }
        o->state = OBJECT_NONE;
    }
    vj_io_unref(io);
}

static void begin_put(void)
{
    Object *o = random_object(is_none);
    g_autoptr(VjBuf) buf = vj_buf_new(512);

    if (o == NULL) {
        return;
    }
    *o = (Object){.id = ++w.next_id * 3, .len = 1 + below(400), .state = OBJECT_PUTTING};
    fill(buf->data, o->len, o->id);
    w.puts++;
    take_off(vj_io_new_put(o->id, buf, o->len), put_done, o);
}

/* It began when it was calm: no node has a reason to fail. */
static void calm_get_done(VjIo *io)
{
    Object *o = io->opaque;

    w.in_flight--;
    o->readers--;
    if (io->rc != 0 && (good_copies(o, false) & nodes_of(o->loc)) != 0) {
        fail_msg("seed %" G_GUINT64_FORMAT ", step %" G_GUINT64_FORMAT
                 ": get of object %" G_GUINT64_FORMAT ": %d",
                 w.seed, w.steps, o->id, io->rc);
    }
    vj_io_unref(io);
}

typedef struct Get {
    Object *object;
    unsigned heals;
} Get;

/* Bad bytes are for the room object to see, which has them healed. */
static void get_done(VjIo *io)
{
    Get *g = io->opaque;
    Object *o = g->object;

    w.in_flight--;
    o->readers--;
    w.failed_gets += io->rc != 0;
    /* Who is away may have it; but where all say that they have it not, nobody has. */
    if (io->rc == -ENOENT && o->state == OBJECT_FLUSHED && o->heals == g->heals &&
        o->heals % 2 == 0 && (good_copies(o, true) & nodes_of(o->loc)) != 0) {
        fail_msg("seed %" G_GUINT64_FORMAT ", step %" G_GUINT64_FORMAT
                 ": object %" G_GUINT64_FORMAT " is there, and get says no",
                 w.seed, w.steps, o->id);
    }
    g_free(g);
    vj_io_unref(io);
}

static void begin_get(void)
{
    Object *o = random_object(is_there);
    Get *g;
    VjIo *io;

    if (o == NULL) {
        return;
    }
    g = g_new(Get, 1);
    *g = (Get){.object = o, .heals = o->heals};
    o->readers++;
    w.gets++;
    io = vj_io_new_get(o->id, o->loc, 0, o->len);
    take_off(io, get_done, g);
    if (chance(20)) {
        vj_io_ref(io);
        if (io->rc == 0) {
            vj_store_cancel(w.s, io);
        }
        vj_io_unref(io);
    }
}

static void remove_done(VjIo *io)
{
    Object *o = io->opaque;

    w.in_flight--;
    if (io->rc != 0 && io->rc != -ETIMEDOUT && io->rc != -EIO) {
        fail_msg("seed %" G_GUINT64_FORMAT ": remove: %d", w.seed, io->rc);
    }
    /* Whatever it was: nothing names it any more. */
    o->state = OBJECT_NONE;
    vj_io_unref(io);
}

static void begin_remove_of(Object *o, bool more)
{
    VjIo *io = vj_io_new_remove(o->id, o->loc);

    io->more = more;
    o->state = OBJECT_REMOVING;
    take_off(io, remove_done, o);
}

static void push(void *unused)
{
    (void)unused;
    vj_store_call_push(w.s);
}

/* One, or several that go together when the last one is there. */
static void begin_remove(void)
{
    unsigned count = chance(500) ? 1 : 2 + (unsigned)below(20);
    Object *o;

    for (unsigned i = 0; i < count && (o = random_object(is_idle)) != NULL; i++) {
        begin_remove_of(o, count > 1);
    }
    if (count > 1) {
        at(w.now_us + (int64_t)below(50 * MS), push, NULL);
    }
}

/* The ids of what had returned when a flush began. */
typedef struct Flush {
    uint64_t ids[OBJECTS_MAX];
    unsigned count;
} Flush;

static Object *find(uint64_t id)
{
    for (unsigned i = 0; i < OBJECTS_MAX; i++) {
        if (w.objects[i].state != OBJECT_NONE && w.objects[i].id == id) {
            return &w.objects[i];
        }
    }
    return NULL;
}

static void flush_done(VjIo *io)
{
    Flush *f = io->opaque;

    w.in_flight--;
    w.is_flushing = false;
    for (unsigned i = 0; i < f->count; i++) {
        Object *o = find(f->ids[i]);

        if (o == NULL || o->state != OBJECT_PUT) {
            continue;
        }
        if (io->rc == 0) {
            o->state = OBJECT_FLUSHED;
            expect_safe(o);
        } else if (io->rc != -ETIMEDOUT && o->readers == 0) {
            begin_remove_of(o, false); /* and its bytes are put anew, as another one */
        }
    }
    if (io->rc != 0) {
        w.failed_flushes++;
        assert_true(io->rc == -ETIMEDOUT || io->rc == -EIO || io->rc == -ENOSPC);
    }
    g_free(f);
    vj_io_unref(io);
}

static void begin_flush(void)
{
    Flush *f;

    if (w.is_flushing) {
        return;
    }
    f = g_new0(Flush, 1);
    for (unsigned i = 0; i < OBJECTS_MAX; i++) {
        if (w.objects[i].state == OBJECT_PUT) {
            f->ids[f->count++] = w.objects[i].id;
        }
    }
    w.is_flushing = true;
    w.flushes++;
    take_off(vj_io_new_flush(), flush_done, f);
}

/* ---- calls that wait --------------------------------------------------------------- */

static bool verify(void *opaque, VjSlice stored)
{
    const Object *o = opaque;
    uint8_t bytes[512];

    fill(bytes, o->len, o->id);
    return stored.len == o->len && memcmp(stored.data, bytes, o->len) == 0;
}

/* Of the copies that its record names, those that count for the driver. */
static unsigned counted_copies(const Object *o)
{
    VjWireObject object = {.id = o->id, .nonce = nonce_of(o->loc)};
    VjNodeSet suspects;

    vj_mutex_lock(&w.r->lock);
    suspects = vj_remote_suspects(w.r, &object);
    vj_mutex_unlock(&w.r->lock);
    return vj_node_count(named_copies(o) & ~suspects);
}

/* The commit of the new record.  It may be lost, with all that was to follow: false. */
static bool set_record(Object *o, VjLoc loc, unsigned counted)
{
    expect_safe(o);
    if (w.is_calm) {
        assert_true(counted_copies(o) >= MIN(counted, w.replicas));
    }
    if (!w.is_calm && chance(100)) {
        w.lost_records++;
        return false;
    }
    o->loc = loc;
    expect_safe(o);
    if (w.is_calm) {
        assert_true(counted_copies(o) >= MIN(counted, w.replicas));
    }
    return true;
}

/* As a healer does it: the record says durably where the object is before trim. */
static int heal(Object *o)
{
    unsigned counted = counted_copies(o);
    VjPut put = {.id = o->id, .loc = o->loc, .stored_bytes = o->len};
    VjStoreHealed healed;
    int rc;

    o->readers++;
    o->heals++;
    w.heals++;
    rc = vj_store_heal(w.s, &put, verify, o, &healed);
    if (set_record(o, healed.loc, counted) && healed.can_trim) {
        assert_true(rc == 0 || rc == -EAGAIN);
        w.trims++;
        put.loc = o->loc;
        rc = vj_store_trim(w.s, &put, verify, o, &healed);
        (void)set_record(o, healed.loc, counted);
    }
    o->heals++;
    o->readers--;
    if (rc != 0 && rc != -EAGAIN) {
        /* Bad or absent at all nodes: then it was never flushed. */
        if (o->state != OBJECT_PUT && rc != -EIO) {
            fail_msg("seed %" G_GUINT64_FORMAT ": heal of object %" G_GUINT64_FORMAT
                     ": %d",
                     w.seed, o->id, rc);
        }
    }
    return rc;
}

static void heal_some(void)
{
    w.is_blocked = true;
    for (int i = 0; i < 5; i++) {
        Object *o = random_object(is_idle);

        if (o != NULL) {
            (void)heal(o);
        }
    }
    w.is_blocked = false;
}

/* ---- what befalls nodes ------------------------------------------------------------ */

static void come_back(void *opaque)
{
    ((Node *)opaque)->is_down = false;
}

static void crash(Node *node)
{
    w.crashes++;
    node->is_down = true;
    node_model_crash(node->model);
    forget_late(node->client);
    lose_connection(node->client);
    at(w.now_us + (int64_t)below(20 * SECOND), come_back, node);
}

/* No object has its last good copy there, or may have it when its put returns. */
static bool may_lose(unsigned node)
{
    for (unsigned i = 0; i < OBJECTS_MAX; i++) {
        const Object *o = &w.objects[i];
        VjNodeSet durable;

        if (o->state == OBJECT_PUTTING && node_model_has_id(w.nodes[node].model, o->id)) {
            return false;
        }
        if (!is_there(o)) {
            continue;
        }
        durable = named_copies(o);
        if (durable != 0 && (durable & ~vj_node_bit(node)) == 0) {
            return false;
        }
        /* What its record will name is not known. */
        if (o->heals % 2 == 1 && (good_copies(o, true) & vj_node_bit(node)) != 0) {
            return false;
        }
    }
    return true;
}

static void lose_disk(unsigned index)
{
    if (may_lose(index)) {
        w.disks_lost++;
        crash(&w.nodes[index]);
        node_model_lose_disk(w.nodes[index].model);
    }
}

static void end_of_silence(void *opaque)
{
    Node *node = opaque;

    if (node->cut_until_us > w.now_us) {
        lose_connection(node->client);
    }
}

static void cut_off(Node *node)
{
    node->cut_until_us = w.now_us + (int64_t)below(20 * SECOND);
    at(w.now_us + SILENCE, end_of_silence, node);
}

/* One replica of an object that has another good one. */
static void damage(unsigned index)
{
    Object *o = random_object(is_there);
    VjNodeSet good = o != NULL && o->heals % 2 == 0 ? named_copies(o) : 0;

    if ((good & vj_node_bit(index)) != 0 && (good & ~vj_node_bit(index)) != 0) {
        (void)node_model_damage(w.nodes[index].model, o->id, nonce_of(o->loc),
                                chance(300));
    }
}

static void trouble(void)
{
    unsigned index = (unsigned)below(w.node_count);
    Node *node = &w.nodes[index];

    switch (below(12)) {
    case 0:
    case 1:
        if (!node->is_down) {
            crash(node);
        }
        break;
    case 2:
        lose_disk(index);
        break;
    case 3:
    case 4:
        cut_off(node);
        break;
    case 5:
        node->is_slow = !node->is_slow;
        break;
    case 6:
        node_model_fail_flush(node->model, 1);
        break;
    case 7:
        node_model_fail_all(node->model, chance(500) ? -EBUSY : -EIO);
        break;
    case 8:
    case 9:
        node_model_fail_all(node->model, 0);
        break;
    case 10:
        lose_connection(node->client);
        break;
    default:
        damage(index);
        break;
    }
}

/* ---- the world goes on ------------------------------------------------------------- */

static void one_event(void)
{
    int64_t timer_us = vj_remote_timers_run(w.r); /* which may add events */
    GSequenceIter *first = g_sequence_get_begin_iter(w.events);
    Event *e;

    if (g_sequence_iter_is_end(first)) {
        if (timer_us != INT64_MAX) {
            w.now_us = MAX(w.now_us, timer_us);
            set_clock();
        }
        return;
    }
    e = g_sequence_get(first);
    if (timer_us < e->at_us) {
        w.now_us = MAX(w.now_us, timer_us);
        set_clock();
        return;
    }
    g_sequence_remove(first);
    w.now_us = MAX(w.now_us, e->at_us);
    set_clock();
    e->run(e->opaque);
    g_free(e);
}

/* Requests begin as there is room for them. */
static void begin_something(void)
{
    if (w.in_flight >= IN_FLIGHT_MAX) {
        return;
    }
    switch (below(20)) {
    case 0:
        begin_flush();
        break;
    case 1:
    case 2:
    case 3:
        begin_remove();
        break;
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
        begin_get();
        break;
    case 9:
        if (!w.is_blocked && chance(50)) {
            heal_some();
        }
        break;
    default:
        begin_put();
        break;
    }
}

/* Also called by the driver where a thread waits. */
static void step(void)
{
    w.steps++;
    one_event();
    if (w.is_calm) {
        return;
    }
    if (chance(300)) {
        begin_something();
    }
    if (chance(2)) {
        trouble();
    }
}

/* ---- when it is calm --------------------------------------------------------------- */

static void run_until_idle(void)
{
    uint64_t until = w.steps + 200000;

    while (w.in_flight > 0) {
        assert_true(w.steps < until);
        step();
    }
}

static bool all_live(void)
{
    VjStoreHealth health;

    vj_store_health(w.s, &health);
    return health.live == w.node_count;
}

static void calm_down(void)
{
    uint64_t until = w.steps + 200000;

    w.is_calm = true;
    for (unsigned i = 0; i < w.node_count; i++) {
        w.nodes[i].is_down = false;
        w.nodes[i].is_slow = false;
        w.nodes[i].cut_until_us = 0;
        node_model_fail_all(w.nodes[i].model, 0);
        node_model_fail_flush(w.nodes[i].model, 0);
        lose_connection(w.nodes[i].client); /* what was lost on it is answered so */
    }
    run_until_idle();
    while (!all_live()) {
        assert_true(w.steps < until);
        step();
    }
}

/* Everything that was put and not flushed is removed when a flush fails: then one is
 * good. */
static void flush_all(void)
{
    for (int tries = 0; tries < 3; tries++) {
        uint64_t failed = w.failed_flushes;

        begin_flush();
        run_until_idle();
        if (w.failed_flushes == failed) {
            return;
        }
    }
    fail_msg("seed %" G_GUINT64_FORMAT ": no flush is good any more", w.seed);
}

static size_t list_there(VjPut *puts, Object **objects)
{
    size_t count = 0;

    for (unsigned i = 0; i < OBJECTS_MAX; i++) {
        Object *o = &w.objects[i];

        if (is_there(o)) {
            puts[count] = (VjPut){.id = o->id, .loc = o->loc, .stored_bytes = o->len};
            objects[count++] = o;
        }
    }
    return count;
}

/* A node whose sync has failed goes on failing until all that it may have lost is put
 * anew, which takes some passes.  Then no survey finds anything. */
static void heal_all(void)
{
    VjPut puts[OBJECTS_MAX];
    Object *objects[OBJECTS_MAX];
    bool wants[OBJECTS_MAX];
    size_t count = 0;

    bool again = true;

    for (int pass = 0; again; pass++) {
        again = false;
        count = list_there(puts, objects);
        for (size_t i = 0; i < count; i++) {
            int rc = heal(objects[i]);

            assert_true(rc == 0 || (pass < 2 && (rc == -EAGAIN || rc == -EIO)));
            again = again || rc != 0;
        }
    }
    count = list_there(puts, objects);
    assert_int_equal(vj_store_survey(w.s, puts, count, wants), 0);
    for (size_t i = 0; i < count; i++) {
        assert_false(wants[i]);
    }
}

typedef struct Listing {
    GArray *unnamed; /* of VjPut */
    unsigned named;
    uint64_t last_id;
    bool are_exact; /* locators say where the objects are */
} Listing;

static bool see(void *opaque, const VjPut *put, int64_t mtime_us)
{
    Listing *l = opaque;
    const Object *o = find(put->id);

    (void)mtime_us;
    assert_true(put->id >= l->last_id);
    l->last_id = put->id;
    if (o != NULL && is_there(o) && vj_store_same_loc(w.s, o->loc, put->loc)) {
        assert_true(!l->are_exact || nodes_of(o->loc) == nodes_of(put->loc));
        assert_true(!l->are_exact || put->stored_bytes == o->len);
        l->named++;
    } else {
        g_array_append_vals(l->unnamed, put, 1);
    }
    return true;
}

static void removed(VjIo *io)
{
    w.in_flight--;
    assert_int_equal(io->rc, 0);
    vj_io_unref(io);
}

/* As gc does it. */
static void collect_garbage(bool are_exact)
{
    Listing l = {.unnamed = g_array_new(FALSE, FALSE, sizeof(VjPut)),
                 .are_exact = are_exact};
    unsigned there = 0;

    assert_int_equal(vj_store_each(w.s, 0, UINT64_MAX, see, &l), 0);
    for (unsigned i = 0; i < OBJECTS_MAX; i++) {
        there += is_there(&w.objects[i]);
    }
    if (l.named != there) {
        for (unsigned i = 0; i < OBJECTS_MAX; i++) {
            if (is_there(&w.objects[i]) && good_copies(&w.objects[i], false) == 0) {
                print_message("object %" G_GUINT64_FORMAT " is nowhere\n",
                              w.objects[i].id);
            }
        }
        fail_msg("seed %" G_GUINT64_FORMAT ": %u objects are listed of %u", w.seed,
                 l.named, there);
    }
    for (guint i = 0; i < l.unnamed->len; i++) {
        const VjPut *put = &g_array_index(l.unnamed, VjPut, i);

        take_off(vj_io_new_remove(put->id, put->loc), removed, NULL);
        run_until_idle();
    }
    assert_int_equal(vj_store_flush_removes(w.s), 0);
    g_array_unref(l.unnamed);
}

static void expect_replicas(void)
{
    unsigned there = 0, stored = 0;
    VjStoreHealth health;

    for (unsigned i = 0; i < OBJECTS_MAX; i++) {
        const Object *o = &w.objects[i];

        if (!is_there(o)) {
            continue;
        }
        there++;
        assert_int_equal(vj_node_count(nodes_of(o->loc)), w.replicas);
        assert_true(good_copies(o, true) == nodes_of(o->loc));
    }
    for (unsigned i = 0; i < w.node_count; i++) {
        stored += node_model_count(w.nodes[i].model);
    }
    assert_int_equal(stored, there * w.replicas);
    vj_store_health(w.s, &health);
    assert_true(health.degraded_puts >= w.short_puts);
}

static void read_all(void)
{
    for (unsigned i = 0; i < OBJECTS_MAX; i++) {
        if (is_there(&w.objects[i])) {
            w.objects[i].readers++;
            take_off(
                vj_io_new_get(w.objects[i].id, w.objects[i].loc, 0, w.objects[i].len),
                calm_get_done, &w.objects[i]);
            run_until_idle();
        }
    }
}

static void take_stock(void)
{
    calm_down();
    flush_all();
    read_all();
    collect_garbage(false);
    heal_all();
    collect_garbage(true);
    expect_replicas();
    w.is_calm = false;
}

/* ---- one world --------------------------------------------------------------------- */

static void open_world(uint64_t seed, unsigned node_count, unsigned replicas)
{
    g_autofree char *spec = NULL;
    GString *nodes = g_string_new(NULL);
    VjStorePlace place = {.dir_fd = -1, .create = true};
    g_autoptr(GError) error = NULL;

    w = (struct World){.seed = seed,
                       .now_us = SECOND,
                       .node_count = node_count,
                       .replicas = replicas,
                       .is_calm = true};
    vj_rng_init(&w.rng, seed);
    w.events = g_sequence_new(NULL);
    set_clock();
    for (unsigned i = 0; i < node_count; i++) {
        w.nodes[i].model = node_model_new(vj_rng_u64(&w.rng), 90000);
        g_string_append_printf(nodes, "%sunix:/node%u", i > 0 ? "," : "", i);
    }
    spec = g_strdup_printf("remote:%s:insecure,replicas=%u", nodes->str, replicas);
    g_string_free(nodes, TRUE);
    vj_remote_seam = &world_seam;
    assert_true(vj_store_open(spec, &place, &w.s, &error));
    vj_store_close(w.s);
    place.create = false;
    assert_true(vj_store_open(spec, &place, &w.s, &error));
    w.is_calm = false;
}

static void close_world(void)
{
    VjStore *s = w.s;

    w.is_calm = true;
    vj_store_close(s);
    w.s = NULL;
    while (!g_sequence_is_empty(w.events)) {
        GSequenceIter *first = g_sequence_get_begin_iter(w.events);
        Event *e = g_sequence_get(first);

        g_sequence_remove(first);
        e->run(e->opaque);
        g_free(e);
    }
    g_sequence_free(w.events);
    for (unsigned i = 0; i < w.node_count; i++) {
        client_destroy(w.nodes[i].client);
        node_model_free(w.nodes[i].model);
    }
    vj_clock_set_for_test(NULL, 0);
}

static uint64_t number_of(const char *variable, uint64_t fallback)
{
    const char *text = g_getenv(variable);

    return text != NULL ? g_ascii_strtoull(text, NULL, 10) : fallback;
}

static void simulate(unsigned node_count, unsigned replicas)
{
    uint64_t seed = number_of("VARJFS_TEST_SEED", vj_random_u64() % 1000000);
    uint64_t steps = number_of("VARJFS_TEST_STEPS", STEPS_DEFAULT) / 4;

    print_message("seed %" G_GUINT64_FORMAT ", %u nodes, %u replicas\n", seed, node_count,
                  replicas);
    /* What happens to nodes is said to operators, many times. */
    assert_true(vj_log_open("test-remote-simulation", "/dev/null", VJ_LOG_ERROR, NULL));
    open_world(seed + node_count * 10 + replicas, node_count, replicas);
    while (w.steps < steps) {
        uint64_t until = MIN(w.steps + 15000, steps);

        while (w.steps < until) {
            step();
        }
        take_stock();
    }
    print_message("%" G_GUINT64_FORMAT " steps, %" G_GUINT64_FORMAT
                  " puts, %" G_GUINT64_FORMAT " gets of which %" G_GUINT64_FORMAT
                  " failed, %" G_GUINT64_FORMAT " flushes of which %" G_GUINT64_FORMAT
                  " failed, %" G_GUINT64_FORMAT " heals, %" G_GUINT64_FORMAT
                  " trims, %" G_GUINT64_FORMAT " records lost, %" G_GUINT64_FORMAT
                  " crashes, %" G_GUINT64_FORMAT " disks lost, %" G_GINT64_FORMAT " s\n",
                  w.steps, w.puts, w.gets, w.failed_gets, w.flushes, w.failed_flushes,
                  w.heals, w.trims, w.lost_records, w.crashes, w.disks_lost,
                  w.now_us / SECOND);
    close_world();
    vj_log_close();
}

static void test_one_replica(void **state)
{
    (void)state;
    simulate(3, 1);
}

static void test_three_nodes(void **state)
{
    (void)state;
    simulate(3, 2);
}

static void test_three_replicas(void **state)
{
    (void)state;
    simulate(5, 3);
}

static void test_two_nodes(void **state)
{
    (void)state;
    simulate(2, 2);
}

/* ---- no room for puts that no flush has covered ------------------------------------ */

/* As if there were too many, or no more. */
static void set_room(bool is_there)
{
    uint64_t many = (uint64_t)VJ_REMOTE_UNFLUSHED_MAX * w.replicas;

    vj_mutex_lock(&w.r->lock);
    w.r->held_count = is_there ? w.r->held_count - many : w.r->held_count + many;
    vj_mutex_unlock(&w.r->lock);
}

static void on_answer(VjIo *io)
{
    int *rc = io->opaque;

    *rc = io->rc;
    vj_io_unref(io);
}

/* *rc is its answer, and 1 until then. */
static void put_until(int64_t deadline_us, int *rc)
{
    g_autoptr(VjBuf) buf = vj_buf_new(512);
    VjIo *io = vj_io_new_put(++w.next_id, buf, 100);

    *rc = 1;
    io->done = on_answer;
    io->opaque = rc;
    io->deadline_us = deadline_us;
    assert_true(vj_store_submit(w.s, io));
}

static void run_until(int64_t at_us)
{
    bool is_over = false;

    at(at_us, set_true, &is_over);
    while (!is_over) {
        step();
    }
}

/* A put that has joined the flush of another one, which gets no answer in time, flushes
 * itself. */
static void test_flush_of_another(void **state)
{
    int first, second;
    int64_t begin_us;

    (void)state;
    open_world(1, 2, 1);
    w.is_calm = true;
    begin_us = w.now_us;
    put_until(begin_us + 90 * SECOND, &first);
    run_until(begin_us + 1 * SECOND);
    assert_int_equal(first, 0);
    w.nodes[0].cut_until_us = w.nodes[1].cut_until_us = begin_us + 45 * SECOND;
    set_room(false);
    put_until(begin_us + 20 * SECOND, &first);
    run_until(begin_us + 10 * SECOND);
    assert_true(w.r->is_flushing);
    put_until(begin_us + 90 * SECOND, &second);
    run_until(begin_us + 40 * SECOND);
    assert_int_equal(first, -ETIMEDOUT);
    assert_int_equal(second, 1);
    assert_int_equal(w.r->own_flushes, 2);
    set_room(true);
    run_until(begin_us + 60 * SECOND);
    assert_int_equal(second, 0);
    close_world();
}

/* Without an end of the lack of room it waits until its own deadline. */
static void test_no_room(void **state)
{
    int rc;
    int64_t begin_us;

    (void)state;
    open_world(1, 2, 1);
    w.is_calm = true;
    begin_us = w.now_us;
    set_room(false);
    put_until(begin_us + 20 * SECOND, &rc);
    run_until(begin_us + 19 * SECOND);
    assert_int_equal(rc, 1);
    /* It flushes again, and not at once. */
    assert_true(w.r->own_flushes > 2);
    assert_true(w.r->own_flushes <= 20 * SECOND / VJ_REMOTE_BUSY_US);
    run_until(begin_us + 21 * SECOND);
    assert_int_equal(rc, -ETIMEDOUT);
    set_room(true);
    close_world();
}

/* Puts that are lost, and that nobody has removed, make room for no others. */
static void test_no_room_for_lost(void **state)
{
    int lost, rc;
    int64_t begin_us;

    (void)state;
    open_world(1, 2, 1);
    w.is_calm = true;
    begin_us = w.now_us;
    put_until(begin_us + 90 * SECOND, &lost);
    run_until(begin_us + 1 * SECOND);
    assert_int_equal(lost, 0);
    crash(&w.nodes[0]);
    crash(&w.nodes[1]);
    run_until(begin_us + 30 * SECOND);
    set_room(false);
    put_until(begin_us + 90 * SECOND, &rc);
    run_until(begin_us + 40 * SECOND);
    assert_int_equal(rc, -EIO);
    set_room(true);
    close_world();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_flush_of_another), cmocka_unit_test(test_no_room),
    cmocka_unit_test(test_no_room_for_lost), cmocka_unit_test(test_one_replica),
    cmocka_unit_test(test_three_nodes),      cmocka_unit_test(test_three_replicas),
    cmocka_unit_test(test_two_nodes),
};

VJ_TEST_MAIN(tests)
