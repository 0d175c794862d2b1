/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wrap-stats.c - the wrapper that counts
 *
 * Successful calls count in their kind, and their bytes; failed ones in failures alone.
 * Counters are relaxed atomics: a reader sees each of them right, not all of one instant.
 */
#include "store/store-private.h"

typedef struct StatsStore {
    VjStore base;
    VjStoreStats counts; /* atomic, field by field */
} StatsStore;

static void count(uint64_t *counter, uint64_t amount)
{
    __atomic_add_fetch(counter, amount, __ATOMIC_RELAXED);
}

/* Passes @result on. */
static int count_call(StatsStore *w, int result, uint64_t *calls, uint64_t *sum_bytes,
                      uint64_t amount_bytes)
{
    if (result < 0) {
        count(&w->counts.failures, 1);
        return result;
    }
    if (calls != NULL) {
        count(calls, 1);
    }
    if (sum_bytes != NULL) {
        count(sum_bytes, amount_bytes);
    }
    return result;
}

static bool stats_open(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                       GError **error)
{
    (void)place, (void)opts, (void)error;
    g_assert(s->next != NULL);
    return true;
}

static void stats_close(VjStore *s)
{
    (void)s;
}

static int stats_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                     VjPut *out)
{
    StatsStore *w = (StatsStore *)s;
    int result = vj_store_put(s->next, id, iov, iov_count, out);

    return count_call(w, result, &w->counts.puts, &w->counts.put_bytes,
                      result == 0 ? out->stored_bytes : 0);
}

static int stats_put_held(VjStore *s, uint64_t id, VjBuf *holder, const struct iovec *iov,
                          int iov_count, VjPut *out)
{
    StatsStore *w = (StatsStore *)s;
    int result = vj_store_put_held(s->next, id, holder, iov, iov_count, out);

    return count_call(w, result, &w->counts.puts, &w->counts.put_bytes,
                      result == 0 ? out->stored_bytes : 0);
}

static int stats_put_as(VjStore *s, uint64_t id, uint64_t nonce, const struct iovec *iov,
                        int iov_count, VjPut *out)
{
    StatsStore *w = (StatsStore *)s;
    int result = vj_store_put_as(s->next, id, nonce, iov, iov_count, out);

    return count_call(w, result, &w->counts.puts, &w->counts.put_bytes,
                      result == 0 ? out->stored_bytes : 0);
}

static VjLoc stats_loc_of_nonce(VjStore *s, uint64_t nonce)
{
    return vj_store_loc_of_nonce(s->next, nonce);
}

static int stats_length(VjStore *s, uint64_t id, VjLoc loc, uint64_t *stored_bytes)
{
    return vj_store_length(s->next, id, loc, stored_bytes);
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
    StatsStore *w = (StatsStore *)s;

    return count_call(w, vj_store_heal(s->next, object, verify, opaque, out), NULL, NULL,
                      0);
}

static int stats_trim(VjStore *s, const VjPut *object, VjStoreVerify *verify,
                      void *opaque, VjStoreHealed *out)
{
    StatsStore *w = (StatsStore *)s;

    return count_call(w, vj_store_trim(s->next, object, verify, opaque, out), NULL, NULL,
                      0);
}

static int stats_survey(VjStore *s, const VjPut *puts, size_t count, bool *wants)
{
    return vj_store_survey(s->next, puts, count, wants);
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
    StatsStore *w = (StatsStore *)s;

    return count_call(w, vj_store_get(s->next, id, loc, offset, dst, len),
                      &w->counts.gets, &w->counts.get_bytes, len);
}

static int stats_get_checked(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset,
                             void *dst, size_t len)
{
    StatsStore *w = (StatsStore *)s;

    return count_call(w, vj_store_get_checked(s->next, id, loc, offset, dst, len),
                      &w->counts.gets, &w->counts.get_bytes, len);
}

/* What is not offered is no get: the one that follows is counted. */
static int stats_with_file(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset,
                           size_t len, VjStoreUseFile *use, void *opaque)
{
    StatsStore *w = (StatsStore *)s;
    int result = vj_store_with_file(s->next, id, loc, offset, len, use, opaque);

    return result == -EOPNOTSUPP
               ? result
               : count_call(w, result, &w->counts.gets, &w->counts.get_bytes, len);
}

static void count_done(VjIo *child)
{
    VjIo *io = child->opaque;
    StatsStore *w = (StatsStore *)io->store;
    uint64_t *const calls[] = {
        [VJ_IO_PUT] = &w->counts.puts,
        [VJ_IO_GET] = &w->counts.gets,
        [VJ_IO_REMOVE] = &w->counts.removes,
        [VJ_IO_FLUSH] = &w->counts.flushes,
    };
    uint64_t *const sums[] = {
        [VJ_IO_PUT] = &w->counts.put_bytes,
        [VJ_IO_GET] = &w->counts.get_bytes,
        [VJ_IO_REMOVE] = NULL,
        [VJ_IO_FLUSH] = NULL,
    };

    count_call(w, child->rc, calls[io->op], sums[io->op], io->len);
    vj_io_complete(io, child->rc, &child->put);
}

static void stats_submit(VjStore *s, VjIo *io)
{
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
    return vj_store_digest(s->next, id, loc, form, algorithm, out);
}

static int stats_put_plain(VjStore *s, uint64_t id, const VjStoreWant *want,
                           const void *bytes, size_t len, VjPut *out, VjStoreForm *form)
{
    StatsStore *w = (StatsStore *)s;
    int result = vj_store_put_plain(s->next, id, want, bytes, len, out, form);

    return count_call(w, result, &w->counts.puts, &w->counts.put_bytes,
                      result == 0 ? out->stored_bytes : 0);
}

static int stats_get_plain(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                           uint32_t offset, uint32_t len, const VjStoreWant *wire,
                           VjBuf **bytes, bool *is_encoded)
{
    StatsStore *w = (StatsStore *)s;
    int result =
        vj_store_get_plain(s->next, id, loc, form, offset, len, wire, bytes, is_encoded);

    return count_call(w, result, &w->counts.gets, &w->counts.get_bytes,
                      result == 0 ? len : 0);
}

static void stats_expect(VjStore *s, uint64_t id, VjLoc loc)
{
    count(&((StatsStore *)s)->counts.expects, 1);
    vj_store_expect(s->next, id, loc);
}

static uint64_t stats_prefer(VjStore *s, uint64_t id)
{
    return vj_store_prefer(s->next, id);
}

static int stats_remove(VjStore *s, uint64_t id, VjLoc loc)
{
    StatsStore *w = (StatsStore *)s;

    return count_call(w, vj_store_remove(s->next, id, loc), &w->counts.removes, NULL, 0);
}

static int stats_flush(VjStore *s)
{
    StatsStore *w = (StatsStore *)s;

    return count_call(w, vj_store_flush(s->next), &w->counts.flushes, NULL, 0);
}

static int stats_flush_removes(VjStore *s)
{
    StatsStore *w = (StatsStore *)s;

    return count_call(w, vj_store_flush_removes(s->next), NULL, NULL, 0);
}

static int stats_stage(VjStore *s, const VjPut *added, size_t added_count,
                       const VjPut *removed, size_t removed_count, GArray *changes)
{
    StatsStore *w = (StatsStore *)s;

    return count_call(
        w, vj_store_stage(s->next, added, added_count, removed, removed_count, changes),
        NULL, NULL, 0);
}

static void stats_removes_committed(VjStore *s, const VjPut *removed,
                                    size_t removed_count)
{
    vj_store_removes_committed(s->next, removed, removed_count);
}

static int stats_each(VjStore *s, uint64_t first_id, uint64_t last_id,
                      VjStoreVisit *visit, void *opaque)
{
    StatsStore *w = (StatsStore *)s;

    return count_call(w, vj_store_each(s->next, first_id, last_id, visit, opaque), NULL,
                      NULL, 0);
}

static int stats_space(VjStore *s, VjStoreSpace *out)
{
    StatsStore *w = (StatsStore *)s;

    return count_call(w, vj_store_space(s->next, out), NULL, NULL, 0);
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

static uint64_t read_count(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

void vj_store_stats(VjStore *s, VjStoreStats *out)
{
    StatsStore *w = (StatsStore *)vj_store_find(s, &vj_store_stats_ops);

    *out = (VjStoreStats){0};
    if (w == NULL) {
        return;
    }
    out->puts = read_count(&w->counts.puts);
    out->put_bytes = read_count(&w->counts.put_bytes);
    out->gets = read_count(&w->counts.gets);
    out->get_bytes = read_count(&w->counts.get_bytes);
    out->expects = read_count(&w->counts.expects);
    out->removes = read_count(&w->counts.removes);
    out->flushes = read_count(&w->counts.flushes);
    out->failures = read_count(&w->counts.failures);
}
