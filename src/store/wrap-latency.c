/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wrap-latency.c - the wrapper that makes each call cost a round trip, for tests and
 * measurements
 *
 * A call waits us= microseconds and is passed on then.  Synchronous ones wait in their
 * thread. Requests in flight wait beside each other, in one queue and for one thread: as
 * all wait equally long, the one that came first is due first.  Each is counted by its
 * kind when it comes.
 *
 * What a network would not be asked for costs nothing: stage, removes_committed, prefer.
 * There is no expect: nothing can be brought nearer but by getting it.
 *
 * A caller that holds a mutex aborts (debug builds, which keep track of locks): the round
 * trip would keep every thread that wants that mutex.
 */
#include "store/store-private.h"

typedef struct Due {
    int64_t at_us;
    VjIo *io; /* the driver's reference */
} Due;

typedef struct LatencyStore {
    VjStore base;
    int64_t latency_us;
    VjStoreLatencyCalls calls; /* atomic, field by field */

    VjMutex lock; /* VJ_RANK_STORE_WRAPPER */
    VjCond changed;
    /* guarded by lock: */
    GQueue due;      /* of Due, the first one first */
    GThread *thread; /* NULL: nothing was submitted yet, or it could not be started */
    bool stop;
} LatencyStore;

static void count_call(uint64_t *counter, const char *what)
{
    const char *held = vj_lock_held();

    if (held != NULL) {
        vj_log_error("store latency: %s while holding the mutex \"%s\"", what, held);
        abort();
    }
    __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

/* The wait is what is simulated here: it stands for nothing that could be waited for. */
static void wait_until(int64_t until_us)
{
    int64_t left_us = until_us - vj_clock_mono_us();

    if (left_us > 0) {
        g_usleep((gulong)left_us);
    }
}

/* A synchronous call. */
static void round_trip(VjStore *s, uint64_t *counter, const char *what)
{
    LatencyStore *w = (LatencyStore *)s;

    count_call(counter, what);
    wait_until(vj_clock_mono_us() + w->latency_us);
}

#define CALL(s, field) round_trip(s, &((LatencyStore *)(s))->calls.field, #field)

static bool latency_open(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                         GError **error)
{
    LatencyStore *w = (LatencyStore *)s;

    (void)place, (void)error;
    w->latency_us = (int64_t)vj_opts_number(opts, "us");
    vj_mutex_init(&w->lock, VJ_RANK_STORE_WRAPPER, "store.latency");
    vj_cond_init(&w->changed);
    g_queue_init(&w->due);
    return true;
}

static void latency_close(VjStore *s)
{
    LatencyStore *w = (LatencyStore *)s;

    vj_mutex_lock(&w->lock);
    g_assert(w->due.length == 0);
    w->stop = true;
    vj_cond_signal(&w->changed);
    vj_mutex_unlock(&w->lock);
    if (w->thread != NULL) {
        g_thread_join(w->thread);
    }
    vj_cond_clear(&w->changed);
    vj_mutex_clear(&w->lock);
}

/* ---- synchronous calls ------------------------------------------------------------- */

static int latency_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                       VjPut *out)
{
    CALL(s, puts);
    return vj_store_put(s->next, id, iov, iov_count, out);
}

static int latency_put_as(VjStore *s, uint64_t id, uint64_t nonce,
                          const struct iovec *iov, int iov_count, VjPut *out)
{
    CALL(s, puts);
    return vj_store_put_as(s->next, id, nonce, iov, iov_count, out);
}

static int latency_get(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                       size_t len)
{
    CALL(s, gets);
    return vj_store_get(s->next, id, loc, offset, dst, len);
}

static int latency_remove(VjStore *s, uint64_t id, VjLoc loc)
{
    CALL(s, removes);
    return vj_store_remove(s->next, id, loc);
}

static int latency_flush(VjStore *s)
{
    CALL(s, flushes);
    return vj_store_flush(s->next);
}

static int latency_flush_removes(VjStore *s)
{
    CALL(s, flush_removes);
    return vj_store_flush_removes(s->next);
}

static int latency_each(VjStore *s, uint64_t first_id, uint64_t last_id,
                        VjStoreVisit *visit, void *opaque)
{
    CALL(s, eaches);
    return vj_store_each(s->next, first_id, last_id, visit, opaque);
}

static int latency_space(VjStore *s, VjStoreSpace *out)
{
    CALL(s, spaces);
    return vj_store_space(s->next, out);
}

/* ---- what costs nothing ------------------------------------------------------------ */

static VjLoc latency_loc_of_nonce(VjStore *s, uint64_t nonce)
{
    return vj_store_loc_of_nonce(s->next, nonce);
}

static int latency_length(VjStore *s, uint64_t id, VjLoc loc, uint64_t *stored_bytes)
{
    CALL(s, gets);
    return vj_store_length(s->next, id, loc, stored_bytes);
}

static bool latency_nonce_of_loc(VjStore *s, VjLoc loc, uint64_t *nonce)
{
    return vj_store_nonce_of_loc(s->next, loc, nonce);
}

static bool latency_same_loc(VjStore *s, VjLoc a, VjLoc b)
{
    return vj_store_same_loc(s->next, a, b);
}

/* What it asks the driver for is not asked by way of this wrapper. */
static int latency_heal(VjStore *s, const VjPut *object, VjStoreVerify *verify,
                        void *opaque, VjStoreHealed *out)
{
    return vj_store_heal(s->next, object, verify, opaque, out);
}

static int latency_trim(VjStore *s, const VjPut *object, VjStoreVerify *verify,
                        void *opaque, VjStoreHealed *out)
{
    return vj_store_trim(s->next, object, verify, opaque, out);
}

static int latency_survey(VjStore *s, const VjPut *puts, size_t count, bool *wants)
{
    return vj_store_survey(s->next, puts, count, wants);
}

static void latency_health(VjStore *s, VjStoreHealth *out)
{
    vj_store_health(s->next, out);
}

static bool latency_node(VjStore *s, unsigned index, VjStoreNode *out)
{
    return vj_store_node(s->next, index, out);
}

static bool latency_drain(VjStore *s, unsigned index, bool drained)
{
    return vj_store_drain(s->next, index, drained);
}

static uint64_t latency_prefer(VjStore *s, uint64_t id)
{
    return vj_store_prefer(s->next, id);
}

static int latency_stage(VjStore *s, const VjPut *added, size_t added_count,
                         const VjPut *removed, size_t removed_count, GArray *changes)
{
    return vj_store_stage(s->next, added, added_count, removed, removed_count, changes);
}

static void latency_removes_committed(VjStore *s, const VjPut *removed,
                                      size_t removed_count)
{
    vj_store_removes_committed(s->next, removed, removed_count);
}

/* ---- requests in flight ------------------------------------------------------------ */

static void complete(VjIo *child)
{
    vj_io_complete(child->opaque, child->rc, &child->put);
}

static gpointer pass_on_when_due(gpointer opaque)
{
    LatencyStore *w = opaque;

    vj_mutex_lock(&w->lock);
    while (!w->stop) {
        Due *first = g_queue_peek_head(&w->due);

        if (first == NULL) {
            vj_cond_wait(&w->changed, &w->lock);
        } else if (vj_clock_mono_us() < first->at_us) {
            (void)!vj_cond_wait_until(&w->changed, &w->lock, first->at_us);
        } else {
            g_queue_pop_head(&w->due);
            vj_mutex_unlock(&w->lock);
            vj_io_forward(&w->base, first->io, complete);
            g_free(first);
            vj_mutex_lock(&w->lock);
        }
    }
    vj_mutex_unlock(&w->lock);
    return NULL;
}

static void latency_submit(VjStore *s, VjIo *io)
{
    LatencyStore *w = (LatencyStore *)s;
    uint64_t *const counters[] = {
        [VJ_IO_PUT] = &w->calls.puts,
        [VJ_IO_GET] = &w->calls.gets,
        [VJ_IO_REMOVE] = &w->calls.removes,
        [VJ_IO_FLUSH] = &w->calls.flushes,
    };
    Due *due = g_new(Due, 1);
    bool has_thread;

    count_call(counters[io->op], "submit");
    vj_mutex_lock(&w->lock);
    if (w->thread == NULL) {
        w->thread = g_thread_try_new("store-latency", pass_on_when_due, w, NULL);
    }
    has_thread = w->thread != NULL;
    *due = (Due){.at_us = vj_clock_mono_us() + w->latency_us, .io = io};
    if (has_thread) {
        g_queue_push_tail(&w->due, due);
        vj_cond_signal(&w->changed);
    }
    vj_mutex_unlock(&w->lock);
    if (!has_thread) {
        wait_until(due->at_us);
        g_free(due);
        vj_io_forward(s, io, complete);
    }
}

static const VjOptSpec latency_options[] = {
    {.name = "us",
     .type = VJ_OPT_NUMBER,
     .fallback = "1000",
     .min = 0,
     .max = 60 * G_USEC_PER_SEC,
     .help = "microseconds that each call takes longer"},
    {.name = NULL},
};

const VjStoreOps vj_store_latency_ops = {
    .name = "latency",
    .options = latency_options,
    .instance_size = sizeof(LatencyStore),
    .align_bytes = 1,
    .open = latency_open,
    .close = latency_close,
    .put = latency_put,
    .put_as = latency_put_as,
    .loc_of_nonce = latency_loc_of_nonce,
    .nonce_of_loc = latency_nonce_of_loc,
    .length = latency_length,
    .same_loc = latency_same_loc,
    .get = latency_get,
    .prefer = latency_prefer,
    .remove = latency_remove,
    .flush = latency_flush,
    .flush_removes = latency_flush_removes,
    .stage = latency_stage,
    .removes_committed = latency_removes_committed,
    .each = latency_each,
    .heal = latency_heal,
    .trim = latency_trim,
    .survey = latency_survey,
    .health = latency_health,
    .node = latency_node,
    .drain = latency_drain,
    .space = latency_space,
    .submit = latency_submit,
};

static uint64_t read_count(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

void vj_store_latency_calls(VjStore *s, VjStoreLatencyCalls *out)
{
    const LatencyStore *w = (LatencyStore *)vj_store_find(s, &vj_store_latency_ops);

    g_assert(w != NULL);
    *out = (VjStoreLatencyCalls){
        .puts = read_count(&w->calls.puts),
        .gets = read_count(&w->calls.gets),
        .removes = read_count(&w->calls.removes),
        .flushes = read_count(&w->calls.flushes),
        .flush_removes = read_count(&w->calls.flush_removes),
        .eaches = read_count(&w->calls.eaches),
        .spaces = read_count(&w->calls.spaces),
    };
}
