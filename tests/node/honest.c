/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* honest.c - a client that does its work beside the attacks, and counts */
#include "honest.h"

#include <stdio.h>

#include "raw.h"

#define OBJECT_BYTES 4096u
#define TRIES_MAX 10u
#define WAIT_US ((int64_t)RAW_WAIT_MS * 1000)

struct Honest {
    VjRpcClient *object, *meta;
    VjBuf *content, *into;
    VjRng rng;
    GThread *thread;
    VjMutex lock; /* outermost */
    VjCond changed;
    /* guarded by lock: */
    uint64_t answers, failures, losses;
    int64_t slowest_us;
    bool stop;
};

static VjRpcClient *client_new(const char *address, VjCredentials *credentials,
                               const char *volume, uint8_t role)
{
    g_autoptr(GByteArray) hello = g_byte_array_new();
    g_autoptr(GError) error = NULL;
    VjHello m = raw_hello(role);
    VjRpcClientConfig config = {.address = address, .credentials = credentials};
    VjRpcClient *c;

    m.flags = VJ_HELLO_CREATE;
    m.volume = vj_slice(volume, strlen(volume));
    m.name = vj_slice("honest", 6);
    vj_hello_encode(hello, &m);
    config.hello = vj_slice(hello->data, hello->len);
    c = vj_rpc_client_new(&config, &error);
    g_assert_no_error(error);
    return c;
}

static void count(Honest *h, int64_t begin_us, const char *what, int rc)
{
    int64_t took_us = vj_clock_mono_us() - begin_us;

    vj_mutex_lock(&h->lock);
    if (rc < 0) {
        printf("# honest client: %s: %s\n", what, g_strerror(-rc));
        h->failures++;
    } else {
        h->answers++;
    }
    h->slowest_us = MAX(h->slowest_us, took_us);
    vj_cond_broadcast(&h->changed);
    vj_mutex_unlock(&h->lock);
}

/* As users of the room do: a connection that was lost is another try. */
static int run_call(Honest *h, VjRpcClient *c, VjRpcCall **call)
{
    VjRpcCall *again;
    int rc = vj_rpc_run(c, *call);

    for (unsigned tries = 0; rc == -ECONNRESET && tries < TRIES_MAX; tries++) {
        again = vj_rpc_call_new((*call)->op);
        again->waits_for_connection = true;
        again->deadline_us = (*call)->deadline_us;
        again->message = g_byte_array_ref((*call)->message);
        again->bulk = (*call)->bulk != NULL ? vj_buf_ref((*call)->bulk) : NULL;
        again->bulk_bytes = (*call)->bulk_bytes;
        again->into = (*call)->into != NULL ? vj_buf_ref((*call)->into) : NULL;
        again->bulk_max = (*call)->bulk_max;
        vj_rpc_call_unref(*call);
        *call = again;
        rc = vj_rpc_run(c, again);
        vj_mutex_lock(&h->lock);
        h->losses++;
        vj_mutex_unlock(&h->lock);
    }
    return rc;
}

static VjRpcCall *call_new(uint16_t op)
{
    VjRpcCall *call = vj_rpc_call_new(op);

    call->message = g_byte_array_new();
    call->waits_for_connection = true;
    call->deadline_us = vj_clock_mono_us() + WAIT_US;
    return call;
}

static void run(Honest *h, VjRpcClient *c, VjRpcCall **call, const char *what)
{
    int64_t begin_us = vj_clock_mono_us();

    count(h, begin_us, what, run_call(h, c, call));
}

static void put(Honest *h, VjWireObject object)
{
    g_autoptr(VjRpcCall) call = call_new(VJ_OP_PUT);
    VjWirePut m = {.object = object};

    vj_wire_put_encode(call->message, &m);
    call->bulk = vj_buf_ref(h->content);
    call->bulk_bytes = OBJECT_BYTES;
    run(h, h->object, &call, "put");
}

static void get(Honest *h, VjWireObject object)
{
    g_autoptr(VjRpcCall) call = call_new(VJ_OP_GET);
    VjWireGet m = {.object = object, .len = OBJECT_BYTES};
    int64_t begin_us = vj_clock_mono_us();
    int rc;

    vj_wire_get_encode(call->message, &m);
    call->into = vj_buf_ref(h->into);
    call->bulk_max = OBJECT_BYTES;
    rc = run_call(h, h->object, &call);
    if (rc == 0 && (call->reply_bulk_bytes != OBJECT_BYTES ||
                    memcmp(h->into->data, h->content->data, OBJECT_BYTES) != 0)) {
        rc = -EBADMSG;
    }
    count(h, begin_us, "get", rc);
}

static void remove_object(Honest *h, VjWireObject object)
{
    g_autoptr(VjRpcCall) call = call_new(VJ_OP_REMOVE);

    vj_wire_objects_encode(call->message, &object, 1);
    run(h, h->object, &call, "remove");
}

static void ask_clock(Honest *h)
{
    g_autoptr(VjRpcCall) call = call_new(VJ_OP_CLOCK);

    run(h, h->meta, &call, "clock");
}

static bool stops(Honest *h)
{
    bool stop;

    vj_mutex_lock(&h->lock);
    stop = h->stop;
    vj_mutex_unlock(&h->lock);
    return stop;
}

static gpointer work(gpointer opaque)
{
    Honest *h = opaque;

    for (uint64_t id = 1; !stops(h); id++) {
        VjWireObject object = {.id = id, .nonce = vj_rng_u64(&h->rng)};

        vj_rng_bytes(&h->rng, h->content->data, OBJECT_BYTES);
        put(h, object);
        get(h, object);
        ask_clock(h);
        remove_object(h, object);
    }
    return NULL;
}

Honest *honest_start(const char *address, VjCredentials *credentials, const char *volume)
{
    Honest *h = g_new0(Honest, 1);

    h->object = client_new(address, credentials, volume, VJ_ROLE_OBJECT);
    h->meta = client_new(address, credentials, volume, VJ_ROLE_META);
    h->content = vj_buf_new(OBJECT_BYTES);
    h->into = vj_buf_new(OBJECT_BYTES);
    g_assert(h->content != NULL && h->into != NULL);
    vj_rng_init(&h->rng, 1);
    vj_mutex_init(&h->lock, VJ_RANK_FRONT, "honest");
    vj_cond_init(&h->changed);
    h->thread = g_thread_new("honest", work, h);
    return h;
}

bool honest_wait(Honest *h, uint64_t more)
{
    int64_t until_us = vj_clock_mono_us() + WAIT_US;
    uint64_t wanted;
    bool came = true;

    vj_mutex_lock(&h->lock);
    wanted = h->answers + more;
    while (h->answers < wanted && came) {
        uint64_t before = h->answers;

        came = vj_cond_wait_until(&h->changed, &h->lock, until_us) || h->answers > before;
        if (h->answers > before) {
            until_us = vj_clock_mono_us() + WAIT_US;
        }
    }
    vj_mutex_unlock(&h->lock);
    return came;
}

uint64_t honest_answers(Honest *h)
{
    uint64_t answers;

    vj_mutex_lock(&h->lock);
    answers = h->answers;
    vj_mutex_unlock(&h->lock);
    return answers;
}

uint64_t honest_failures(Honest *h)
{
    uint64_t failures;

    vj_mutex_lock(&h->lock);
    failures = h->failures;
    vj_mutex_unlock(&h->lock);
    return failures;
}

uint64_t honest_losses(Honest *h)
{
    uint64_t losses;

    vj_mutex_lock(&h->lock);
    losses = h->losses;
    vj_mutex_unlock(&h->lock);
    return losses;
}

int64_t honest_slowest_us(Honest *h)
{
    int64_t slowest_us;

    vj_mutex_lock(&h->lock);
    slowest_us = h->slowest_us;
    h->slowest_us = 0;
    vj_mutex_unlock(&h->lock);
    return slowest_us;
}

void honest_stop(Honest *h)
{
    vj_mutex_lock(&h->lock);
    h->stop = true;
    vj_mutex_unlock(&h->lock);
    g_thread_join(h->thread);
    vj_rpc_client_free(h->object);
    vj_rpc_client_free(h->meta);
    vj_buf_unref(h->content);
    vj_buf_unref(h->into);
    vj_cond_clear(&h->changed);
    vj_mutex_clear(&h->lock);
    g_free(h);
}
