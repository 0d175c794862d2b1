/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wrap-stats.c - the wrapper that counts and times
 *
 * It stands outermost around each store that is in use.  Calls count in their kind, with
 * the time until they return or, of one that was submitted, until its answer comes; bytes
 * are those of successful calls.
 */
#include "store/store-private.h"

/* put: also put_held, put_as and put_plain; get: also get_checked, get_plain and
 * with_file. */
typedef enum Call {
    CALL_PUT,
    CALL_GET,
    CALL_REMOVE,
    CALL_FLUSH,
    CALL_FLUSH_REMOVES,
    CALL_STAGE,
    CALL_EACH,
    CALL_LENGTH,
    CALL_EXPECT,
    CALL_DIGEST,
    CALL_HEAL,
    CALL_TRIM,
    CALL_SURVEY,
    CALL_SPACE,
    CALLS,
} Call;

static const char *const call_names[CALLS] = {
    [CALL_PUT] = "put",
    [CALL_GET] = "get",
    [CALL_REMOVE] = "remove",
    [CALL_FLUSH] = "flush",
    [CALL_FLUSH_REMOVES] = "flush_removes",
    [CALL_STAGE] = "stage",
    [CALL_EACH] = "each",
    [CALL_LENGTH] = "length",
    [CALL_EXPECT] = "expect",
    [CALL_DIGEST] = "digest",
    [CALL_HEAL] = "heal",
    [CALL_TRIM] = "trim",
    [CALL_SURVEY] = "survey",
    [CALL_SPACE] = "space",
};

typedef struct StatsStore {
    VjStore base;
    VjCallStats *calls;
} StatsStore;

/* A store may be slow, or hang. */
static uint64_t begin(void)
{
    vj_before_wait();
    return vj_clock_mono_ns();
}

/* The call is over.  Passes @result on. */
static int count(VjStore *s, Call call, uint64_t begun_ns, int result, uint64_t bytes)
{
    vj_call_done(((StatsStore *)s)->calls, call, begun_ns, result < 0 ? 0 : bytes,
                 result < 0);
    return result;
}

static bool stats_open(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                       GError **error)
{
    (void)place, (void)opts, (void)error;
    g_assert(s->next != NULL);
    ((StatsStore *)s)->calls = vj_call_stats_new(CALLS);
    return true;
}

static void stats_close(VjStore *s)
{
    vj_call_stats_free(((StatsStore *)s)->calls);
}

static int stats_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                     VjPut *out)
{
    uint64_t begun_ns = begin();
    int result = vj_store_put(s->next, id, iov, iov_count, out);

    return count(s, CALL_PUT, begun_ns, result, result == 0 ? out->stored_bytes : 0);
}

static int stats_put_held(VjStore *s, uint64_t id, VjBuf *holder, const struct iovec *iov,
                          int iov_count, VjPut *out)
{
    uint64_t begun_ns = begin();
    int result = vj_store_put_held(s->next, id, holder, iov, iov_count, out);

    return count(s, CALL_PUT, begun_ns, result, result == 0 ? out->stored_bytes : 0);
}

static int stats_put_as(VjStore *s, uint64_t id, uint64_t nonce, const struct iovec *iov,
                        int iov_count, VjPut *out)
{
    uint64_t begun_ns = begin();
    int result = vj_store_put_as(s->next, id, nonce, iov, iov_count, out);

    return count(s, CALL_PUT, begun_ns, result, result == 0 ? out->stored_bytes : 0);
}

static VjLoc stats_loc_of_nonce(VjStore *s, uint64_t nonce)
{
    return vj_store_loc_of_nonce(s->next, nonce);
}

static int stats_length(VjStore *s, uint64_t id, VjLoc loc, uint64_t *stored_bytes)
{
    uint64_t begun_ns = begin();

    return count(s, CALL_LENGTH, begun_ns,
                 vj_store_length(s->next, id, loc, stored_bytes), 0);
}

static bool stats_nonce_of_loc(VjStore *s, VjLoc loc, uint64_t *nonce)
{
    return vj_store_nonce_of_loc(s->next, loc, nonce);
}

static bool stats_same_loc(VjStore *s, VjLoc a, VjLoc b)
{
    return vj_store_same_loc(s->next, a, b);
}

static int stats_heal(VjStore *s, const VjPut *object, VjStoreVerify *verify,
                      void *opaque, VjStoreHealed *out)
{
    uint64_t begun_ns = begin();

    return count(s, CALL_HEAL, begun_ns,
                 vj_store_heal(s->next, object, verify, opaque, out), 0);
}

static int stats_trim(VjStore *s, const VjPut *object, VjStoreVerify *verify,
                      void *opaque, VjStoreHealed *out)
{
    uint64_t begun_ns = begin();

    return count(s, CALL_TRIM, begun_ns,
                 vj_store_trim(s->next, object, verify, opaque, out), 0);
}

static int stats_survey(VjStore *s, const VjPut *puts, size_t put_count, bool *wants)
{
    uint64_t begun_ns = begin();

    return count(s, CALL_SURVEY, begun_ns,
                 vj_store_survey(s->next, puts, put_count, wants), 0);
}

static void stats_health(VjStore *s, VjStoreHealth *out)
{
    vj_store_health(s->next, out);
}

static bool stats_node(VjStore *s, unsigned index, VjStoreNode *out)
{
    return vj_store_node(s->next, index, out);
}

static bool stats_drain(VjStore *s, unsigned index, bool drained)
{
    return vj_store_drain(s->next, index, drained);
}

static int stats_get(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                     size_t len)
{
    uint64_t begun_ns = begin();

    return count(s, CALL_GET, begun_ns, vj_store_get(s->next, id, loc, offset, dst, len),
                 len);
}

static int stats_get_checked(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset,
                             void *dst, size_t len)
{
    uint64_t begun_ns = begin();

    return count(s, CALL_GET, begun_ns,
                 vj_store_get_checked(s->next, id, loc, offset, dst, len), len);
}

/* What is not offered is no get, and no failure: the one that follows is counted. */
static int stats_with_file(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset,
                           size_t len, VjStoreUseFile *use, void *opaque)
{
    uint64_t begun_ns = begin();
    int result = vj_store_with_file(s->next, id, loc, offset, len, use, opaque);

    return result == -EOPNOTSUPP ? result : count(s, CALL_GET, begun_ns, result, len);
}

static void count_done(VjIo *child)
{
    static const Call calls[] = {
        [VJ_IO_PUT] = CALL_PUT,
        [VJ_IO_GET] = CALL_GET,
        [VJ_IO_REMOVE] = CALL_REMOVE,
        [VJ_IO_FLUSH] = CALL_FLUSH,
    };
    VjIo *io = child->opaque;
    bool has_bytes = io->op == VJ_IO_PUT || io->op == VJ_IO_GET;

    g_assert(io->op < G_N_ELEMENTS(calls));
    count(io->store, calls[io->op], io->begun_ns, child->rc, has_bytes ? io->len : 0);
    vj_io_complete(io, child->rc, &child->put);
}

static void stats_submit(VjStore *s, VjIo *io)
{
    io->begun_ns = vj_clock_mono_ns();
    vj_io_forward(s, io, count_done);
}

static void stats_cancel(VjStore *s, VjIo *io)
{
    vj_store_cancel(s->next, io->child);
}

static void stats_push(VjStore *s)
{
    vj_store_call_push(s->next);
}

static int stats_digest(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                        uint8_t algorithm, VjDigest *out)
{
    uint64_t begun_ns = begin();
    int result = vj_store_digest(s->next, id, loc, form, algorithm, out);

    return result == -EOPNOTSUPP ? result : count(s, CALL_DIGEST, begun_ns, result, 0);
}

static int stats_put_plain(VjStore *s, uint64_t id, const VjStoreWant *want,
                           const void *bytes, size_t len, VjPut *out, VjStoreForm *form)
{
    uint64_t begun_ns = begin();
    int result = vj_store_put_plain(s->next, id, want, bytes, len, out, form);

    return count(s, CALL_PUT, begun_ns, result, result == 0 ? out->stored_bytes : 0);
}

static int stats_get_plain(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                           uint32_t offset, uint32_t len, const VjStoreWant *wire,
                           VjBuf **bytes, bool *is_encoded)
{
    uint64_t begun_ns = begin();
    int result =
        vj_store_get_plain(s->next, id, loc, form, offset, len, wire, bytes, is_encoded);

    return count(s, CALL_GET, begun_ns, result, len);
}

static void stats_expect(VjStore *s, uint64_t id, VjLoc loc)
{
    uint64_t begun_ns = begin();

    vj_store_expect(s->next, id, loc);
    count(s, CALL_EXPECT, begun_ns, 0, 0);
}

static uint64_t stats_prefer(VjStore *s, uint64_t id)
{
    return vj_store_prefer(s->next, id);
}

static int stats_remove(VjStore *s, uint64_t id, VjLoc loc)
{
    uint64_t begun_ns = begin();

    return count(s, CALL_REMOVE, begun_ns, vj_store_remove(s->next, id, loc), 0);
}

static int stats_flush(VjStore *s)
{
    uint64_t begun_ns = begin();

    return count(s, CALL_FLUSH, begun_ns, vj_store_flush(s->next), 0);
}

static int stats_flush_removes(VjStore *s)
{
    uint64_t begun_ns = begin();

    return count(s, CALL_FLUSH_REMOVES, begun_ns, vj_store_flush_removes(s->next), 0);
}

static int stats_stage(VjStore *s, const VjPut *added, size_t added_count,
                       const VjPut *removed, size_t removed_count, GArray *changes)
{
    uint64_t begun_ns = begin();

    return count(
        s, CALL_STAGE, begun_ns,
        vj_store_stage(s->next, added, added_count, removed, removed_count, changes), 0);
}

static void stats_removes_committed(VjStore *s, const VjPut *removed,
                                    size_t removed_count)
{
    vj_store_removes_committed(s->next, removed, removed_count);
}

static int stats_each(VjStore *s, uint64_t first_id, uint64_t last_id,
                      VjStoreVisit *visit, void *opaque)
{
    uint64_t begun_ns = begin();

    return count(s, CALL_EACH, begun_ns,
                 vj_store_each(s->next, first_id, last_id, visit, opaque), 0);
}

static int stats_space(VjStore *s, VjStoreSpace *out)
{
    uint64_t begun_ns = begin();

    return count(s, CALL_SPACE, begun_ns, vj_store_space(s->next, out), 0);
}

static const VjOptSpec stats_options[] = {
    {.name = NULL},
};

const VjStoreOps vj_store_stats_ops = {
    .name = "stats",
    .options = stats_options,
    .instance_size = sizeof(StatsStore),
    .align_bytes = 1,
    .open = stats_open,
    .close = stats_close,
    .put = stats_put,
    .put_held = stats_put_held,
    .put_as = stats_put_as,
    .loc_of_nonce = stats_loc_of_nonce,
    .nonce_of_loc = stats_nonce_of_loc,
    .length = stats_length,
    .same_loc = stats_same_loc,
    .get = stats_get,
    .get_checked = stats_get_checked,
    .with_file = stats_with_file,
    .expect = stats_expect,
    .digest = stats_digest,
    .put_plain = stats_put_plain,
    .get_plain = stats_get_plain,
    .prefer = stats_prefer,
    .remove = stats_remove,
    .flush = stats_flush,
    .flush_removes = stats_flush_removes,
    .stage = stats_stage,
    .removes_committed = stats_removes_committed,
    .each = stats_each,
    .heal = stats_heal,
    .trim = stats_trim,
    .survey = stats_survey,
    .health = stats_health,
    .node = stats_node,
    .drain = stats_drain,
    .space = stats_space,
    .submit = stats_submit,
    .cancel = stats_cancel,
    .push = stats_push,
};

static StatsStore *find(VjStore *s)
{
    return (StatsStore *)vj_store_find(s, &vj_store_stats_ops);
}

static void read_well(const StatsStore *w, Call call, uint64_t *calls, uint64_t *bytes)
{
    VjCallSums sums;

    vj_call_stats_read(w->calls, call, &sums);
    *calls = sums.calls - MIN(sums.calls, sums.failures);
    *bytes = sums.bytes;
}

void vj_store_stats(VjStore *s, VjStoreStats *out)
{
    const StatsStore *w = find(s);
    uint64_t none;

    *out = (VjStoreStats){0};
    if (w == NULL) {
        return;
    }
    read_well(w, CALL_PUT, &out->puts, &out->put_bytes);
    read_well(w, CALL_GET, &out->gets, &out->get_bytes);
    read_well(w, CALL_EXPECT, &out->expects, &none);
    read_well(w, CALL_REMOVE, &out->removes, &none);
    read_well(w, CALL_FLUSH, &out->flushes, &none);
    for (unsigned i = 0; i < CALLS; i++) {
        VjCallSums sums;

        vj_call_stats_read(w->calls, i, &sums);
        out->failures += sums.failures;
    }
}

void vj_store_calls(VjStore *s, VjCallVisit *visit, void *opaque)
{
    const StatsStore *w = find(s);

    for (unsigned i = 0; w != NULL && i < CALLS; i++) {
        VjCallSums sums;

        vj_call_stats_read(w->calls, i, &sums);
        visit(opaque, "store", call_names[i], &sums);
    }
}
