/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote.c - the engine remote: keys at a node of varjfsd
 *
 * Each call is one request to the node and its answer.  Durability: an apply() that
 * returned 0 is durable at the node, by the engine that this has; one that only has to be
 * received is in the node's memory, and durable there after its commit interval.
 *
 * A call goes through the loss of its connection: it is sent again, until an answer has
 * come or its time is over (timeout=).  Reads may be repeated as they like.  An apply()
 * whose answer was lost may have been done: done again it changes nothing, because it has
 * the same fence and puts the same values; one with checks says that they fail, and its
 * caller knows its own values by what comes back.  That an apply() which was sent first
 * is not done after one that was sent later is the node's to see to (rpc/messages.h,
 * APPLY): it ends what came by an earlier connection of this client before it takes a new
 * one, and refuses a number that is smaller than one that it has applied under the same
 * fence.
 *
 * What the node answers is believed no further than this: items have sound keys and
 * values, are those that were asked for, and in order; else the call is -EPROTO.
 *
 * The place of a node has a number of its own.  One with another number is another disk,
 * and is refused as long as the engine is open: what was read and kept is not of that.
 */
#include "meta/remote-private.h"

/* A node that is busy, or goes down, is asked again after so long. */
#define BUSY_PAUSE_US ((int64_t)50 * 1000)
/* Reads of several calls that an apply() of this client came between begin anew so
 * often. */
#define READ_TRIES 100u
/* What is enough for the message of a small request, and for most changes. */
#define MESSAGE_BYTES 128u
#define CHANGE_BYTES 256u

G_STATIC_ASSERT(VJ_WIRE_KEY_MAX == VJ_META_KEY_MAX);
G_STATIC_ASSERT(VJ_WIRE_VALUE_MAX == VJ_META_VALUE_MAX);
G_STATIC_ASSERT(VJ_WIRE_ITEMS_MAX == VJ_SCAN_ITEMS_MAX);
G_STATIC_ASSERT(VJ_WIRE_SPACES == VJ_SPACE_COUNT);

/* ---- Calls ----------------------------------------------------------------------- */

/* A request that may have to be sent several times. */
typedef struct Request {
    uint16_t op;
    GByteArray *message; /* owned */
    VjBuf *bulk;         /* owned; NULL: none */
    uint32_t bulk_bytes;
    uint32_t reply_bulk_max;
} Request;

static void request_clear(Request *q)
{
    g_clear_pointer(&q->message, g_byte_array_unref);
    g_clear_pointer(&q->bulk, vj_buf_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Request, request_clear)

static VjRpcCall *call_of(const Request *q, int64_t until_us)
{
    VjRpcCall *call = vj_rpc_call_new(q->op);

    call->message = g_byte_array_ref(q->message);
    call->bulk = q->bulk != NULL ? vj_buf_ref(q->bulk) : NULL;
    call->bulk_bytes = q->bulk_bytes;
    call->bulk_max = q->reply_bulk_max;
    call->deadline_us = until_us;
    call->waits_for_connection = true;
    return call;
}

/* 0; -ETIMEDOUT, -ECANCELED. */
static int pause_until(VjRemoteEngine *r, int64_t end_us, int64_t until_us)
{
    int rc = 0;

    if (end_us >= until_us) {
        return -ETIMEDOUT;
    }
    vj_mutex_lock(&r->lock);
    while (rc == 0) {
        rc = vj_cond_wait_or_cancel(&r->pause, &r->lock, end_us);
    }
    vj_mutex_unlock(&r->lock);
    return rc == -ETIMEDOUT ? 0 : rc;
}

/* The call is to be made again. */
static bool was_lost(const VjRpcCall *call)
{
    return call->is_answered ? call->rc == -EBUSY || call->rc == -ESHUTDOWN
                             : call->rc == -ENOTCONN || call->rc == -ECONNRESET;
}

/* Of an answer that is none of the operation's own. */
static int error_of(const VjRemoteEngine *r, const VjRpcCall *call)
{
    switch (call->rc) {
    case 0:
    case -EIO:
    case -EBADMSG:
    case -ENOMEM:
    case -ETIMEDOUT:
    case -ECANCELED:
    case -EPROTO:
    case -ENOSPC:
    case -EDQUOT:
    case -EROFS:
        return call->rc;
    case -ENOENT:
    case -EAGAIN:
    case -ESTALE:
        return -EPROTO;
    default:
        vj_log_error("meta remote: node %s answers: %s", r->node, g_strerror(-call->rc));
        return -EIO;
    }
}

/* *out: the last try, owned; its rc is returned, as it is. */
static int run(VjRemoteEngine *r, const Request *q, int64_t deadline_us, VjRpcCall **out)
{
    int64_t until_us = MIN(deadline_us, vj_clock_mono_us() + r->timeout_us);
    int paused = 0;

    *out = NULL;
    do {
        if (*out != NULL && (*out)->is_answered) {
            paused = pause_until(r, vj_clock_mono_us() + BUSY_PAUSE_US, until_us);
        }
        if (paused == 0) {
            vj_rpc_call_unref(*out);
            *out = call_of(q, until_us);
            (void)!vj_rpc_run(r->client, *out);
        }
    } while (paused == 0 && was_lost(*out));
    return paused < 0 ? paused : (*out)->rc;
}

/* The same where nothing but the answer to a read is of interest. */
static int ask(VjRemoteEngine *r, const Request *q, int64_t deadline_us, VjRpcCall **out)
{
    int rc = run(r, q, deadline_us, out);

    return rc < 0 && (*out)->rc == rc ? error_of(r, *out) : rc;
}

static VjSlice message_of(const VjRpcCall *call)
{
    return call->reply != NULL ? vj_slice(call->reply->data, call->reply->len)
                               : vj_slice(NULL, 0);
}

/* ---- Items ----------------------------------------------------------------------- */

static VjWireKey wire_key(VjSpace space, VjSlice key)
{
    return (VjWireKey){.space = (uint8_t)space, .key = key};
}

/* Appends those of the answer, at most @most; *more as it says. */
static int take_items(const VjRpcCall *call, size_t most, VjItems *out, bool *more)
{
    VjSlice bulk = call->reply_bulk != NULL
                       ? vj_slice(call->reply_bulk->data, call->reply_bulk_bytes)
                       : vj_slice(NULL, 0);
    VjReader reader = vj_reader(bulk);
    VjWireItemsReply head;
    int rc = vj_wire_items_reply_decode(message_of(call), &head);

    *more = false;
    if (rc < 0 || head.count > most || (head.more && head.count == 0)) {
        return -EPROTO;
    }
    for (uint32_t i = 0; rc == 0 && i < head.count; i++) {
        VjWireItem wire;
        VjItem item;

        rc = vj_wire_item_decode(&reader, &wire);
        if (rc == 0) {
            item = (VjItem){.space = (VjSpace)wire.key.space,
                            .key = wire.key.key,
                            .value = wire.value,
                            .version = wire.version};
            rc = vj_items_add(out, &item);
        }
    }
    *more = head.more;
    return rc == 0 && !vj_reader_done(&reader) ? -EPROTO : rc;
}

/* Those of @keys, from the first on; *got: how many. */
static int take_of_keys(const VjRpcCall *call, const VjKey *keys, size_t count,
                        VjItems *out, size_t *got)
{
    size_t before = out->count;
    bool more;
    int rc = take_items(call, count, out, &more);

    *got = rc == 0 ? out->count - before : 0;
    for (size_t i = 0; rc == 0 && i < *got; i++) {
        const VjItem *item = &out->at[before + i];

        if (item->space != keys[i].space ||
            vj_slice_compare(item->key, keys[i].key) != 0) {
            rc = -EPROTO;
        }
    }
    return rc == 0 && more != (*got < count) ? -EPROTO : rc;
}

static int ask_for_keys(VjRemoteEngine *r, const VjKey *keys, size_t count, VjItems *out,
                        size_t *got, int64_t deadline_us)
{
    g_auto(Request) q = {.op = VJ_OP_GET_MANY,
                         .message = g_byte_array_sized_new(MESSAGE_BYTES),
                         .reply_bulk_max = VJ_WIRE_ITEMS_BYTES_MAX};
    g_autofree VjWireKey *wire = g_try_new(VjWireKey, MAX(count, 1));
    g_autoptr(VjRpcCall) call = NULL;
    int rc;

    *got = 0;
    if (wire == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        wire[i] = wire_key(keys[i].space, keys[i].key);
    }
    vj_wire_keys_encode(q.message, wire, (uint32_t)count);
    rc = ask(r, &q, deadline_us, &call);
    return rc < 0 ? rc : take_of_keys(call, keys, count, out, got);
}

/* Of the applies: whether one has come between. */
typedef struct Moment {
    uint64_t begun, over;
} Moment;

static Moment moment_of(VjRemoteEngine *r)
{
    Moment m;

    vj_mutex_lock(&r->lock);
    m = (Moment){r->applies_begun, r->applies_over};
    vj_mutex_unlock(&r->lock);
    return m;
}

/* *is_torn: it took several calls, and an apply() may have come between. */
static int get_all(VjRemoteEngine *r, const VjKey *keys, size_t count, VjItems *out,
                   bool *is_torn, int64_t deadline_us)
{
    Moment before = moment_of(r), after;
    size_t done = 0, got;
    unsigned calls = 0;
    int rc = 0;

    do {
        rc = ask_for_keys(r, keys + done, MIN(count - done, VJ_WIRE_KEYS_MAX), out, &got,
                          deadline_us);
        done += got;
        calls++;
    } while (rc == 0 && done < count);
    after = moment_of(r);
    *is_torn = calls > 1 && (before.begun != before.over || after.begun != before.begun);
    return rc;
}

static int remote_get_many(VjEngine *e, const VjKey *keys, size_t count, VjItems *out,
                           int64_t deadline_us)
{
    VjRemoteEngine *r = (VjRemoteEngine *)e;
    bool is_torn = true;
    int rc = 0;

    for (unsigned tries = 0; rc == 0 && is_torn; tries++) {
        VjItems items = {0};

        rc = get_all(r, keys, count, &items, &is_torn, deadline_us);
        for (size_t i = 0; rc == 0 && !is_torn && i < items.count; i++) {
            rc = vj_items_add(out, &items.at[i]);
        }
        vj_items_clear(&items);
        if (rc == 0 && is_torn && tries == READ_TRIES) {
            rc = -EIO;
        }
    }
    return rc;
}

/* Those behind @range's begin, in order, and before its end. */
static bool are_of_range(const VjRange *range, const VjItem *items, size_t count)
{
    VjSlice last = range->from;

    for (size_t i = 0; i < count; i++) {
        int order = last.len == 0 ? 0 : vj_slice_compare(items[i].key, last);

        if (items[i].space != range->space || items[i].version == 0 ||
            (last.len > 0 && (range->backward ? order >= 0 : order <= 0)) ||
            vj_range_ends(range, items[i].key)) {
            return false;
        }
        last = items[i].key;
    }
    return true;
}

static int remote_scan(VjEngine *e, const VjRange *range, size_t limit, VjItems *out,
                       bool *more, int64_t deadline_us)
{
    VjRemoteEngine *r = (VjRemoteEngine *)e;
    VjWireScan scan = {.space = (uint8_t)range->space,
                       .backward = range->backward,
                       .limit = (uint32_t)limit,
                       .from = range->from,
                       .to = range->to};
    g_auto(Request) q = {.op = VJ_OP_SCAN,
                         .message = g_byte_array_sized_new(MESSAGE_BYTES),
                         .reply_bulk_max = VJ_WIRE_ITEMS_BYTES_MAX};
    g_autoptr(VjRpcCall) call = NULL;
    size_t before = out->count;
    int rc;

    vj_wire_scan_encode(q.message, &scan);
    rc = ask(r, &q, deadline_us, &call);
    if (rc == 0) {
        rc = take_items(call, limit, out, more);
    }
    if (rc == 0 && !are_of_range(range, out->at + before, out->count - before)) {
        rc = -EPROTO;
    }
    *more = *more && rc == 0;
    return rc;
}

/* ---- Changes --------------------------------------------------------------------- */

static VjWireChange wire_change(const VjChange *change)
{
    return (VjWireChange){.key = wire_key(change->space, change->key),
                          .is_delete = change->is_delete,
                          .value = change->is_delete ? vj_slice(NULL, 0) : change->value};
}

/* Of all changes of @batch. */
static uint64_t bulk_bytes_of(const VjBatch *batch, uint64_t *count)
{
    const void *at = NULL;
    uint64_t bytes = 0;
    VjChange change;

    *count = 0;
    while (batch->next(batch, &at, &change)) {
        VjWireChange wire = wire_change(&change);

        bytes += vj_wire_change_bytes(&wire);
        (*count)++;
    }
    return bytes;
}

/* -EFBIG: the caller does not keep to apply_max_bytes. */
static int fill_bulk(const VjBatch *batch, Request *q, uint64_t *count)
{
    g_autoptr(GByteArray) one = g_byte_array_sized_new(CHANGE_BYTES);
    uint64_t bytes = bulk_bytes_of(batch, count), used = 0;
    const void *at = NULL;
    VjChange change;

    if (bytes > VJ_RPC_BULK_MAX) {
        return -EFBIG;
    }
    q->bulk = bytes > 0 ? vj_buf_new(bytes) : NULL;
    if (bytes > 0 && q->bulk == NULL) {
        return -ENOMEM;
    }
    while (batch->next(batch, &at, &change)) {
        VjWireChange wire = wire_change(&change);

        g_byte_array_set_size(one, 0);
        vj_wire_change_encode(one, &wire);
        g_assert(one->len <= bytes - used);
        memcpy(q->bulk->data + used, one->data, one->len);
        used += one->len;
    }
    g_assert(used == bytes);
    q->bulk_bytes = (uint32_t)bytes;
    return 0;
}

static VjWireCheck wire_check(const VjCheck *check)
{
    return (VjWireCheck){.key = wire_key(check->key.space, check->key.key),
                         .version = check->version};
}

static int fill_apply(const VjBatch *batch, Request *q)
{
    VjWireApply apply = {.has_fence = batch->fence != NULL,
                         .is_received = batch->is_received,
                         .number = batch->number,
                         .after = batch->after};
    int rc = fill_bulk(batch, q, &apply.change_count);

    if (rc < 0) {
        return rc;
    }
    if (batch->fence != NULL) {
        apply.fence = wire_check(batch->fence);
    }
    apply.checks = g_array_new(FALSE, FALSE, sizeof(VjWireCheck));
    for (size_t i = 0; i < batch->check_count; i++) {
        VjWireCheck check = wire_check(&batch->checks[i]);

        g_array_append_val(apply.checks, check);
    }
    vj_wire_apply_encode(q->message, &apply);
    g_array_unref(apply.checks);
    return 0;
}

/* What a check met comes with the answer, or, where it is too long for one, is asked
 * for. */
static int take_fresh(VjRemoteEngine *r, const VjRpcCall *call, const VjBatch *batch,
                      VjItems *fresh, int64_t deadline_us)
{
    g_autofree VjKey *keys = g_try_new(VjKey, batch->check_count);
    VjItems items = {0};
    size_t got;
    int rc = keys != NULL ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < batch->check_count; i++) {
        keys[i] = batch->checks[i].key;
    }
    if (rc == 0) {
        rc = take_of_keys(call, keys, batch->check_count, &items, &got);
    }
    if (rc == 0 && got < batch->check_count) {
        rc = remote_get_many(&r->engine, keys, batch->check_count, fresh, deadline_us);
    } else {
        for (size_t i = 0; rc == 0 && i < items.count; i++) {
            rc = vj_items_add(fresh, &items.at[i]);
        }
    }
    vj_items_clear(&items);
    return rc == 0 ? -EAGAIN : rc;
}

static void count_apply(VjRemoteEngine *r, bool is_over)
{
    vj_mutex_lock(&r->lock);
    r->applies_begun += !is_over;
    r->applies_over += is_over;
    vj_mutex_unlock(&r->lock);
}

static int send_apply(VjRemoteEngine *r, const Request *q, const VjBatch *batch,
                      VjItems *fresh, int64_t deadline_us)
{
    g_autoptr(VjRpcCall) call = NULL;
    int rc;

    count_apply(r, false);
    rc = run(r, q, deadline_us, &call);
    count_apply(r, true);
    if (rc == 0) {
        return message_of(call).len == 0 ? 0 : -EPROTO;
    }
    if (rc != call->rc) {
        return rc;
    }
    if (rc == -EAGAIN && call->is_answered && batch->after > 0) {
        return rc; /* the node has begun anew */
    }
    if (rc == -EAGAIN && call->is_answered && batch->check_count > 0) {
        return take_fresh(r, call, batch, fresh, deadline_us);
    }
    return rc == -ESTALE && call->is_answered && batch->fence != NULL ? rc
                                                                      : error_of(r, call);
}

static int remote_apply(VjEngine *e, const VjBatch *batch, VjItems *fresh,
                        int64_t deadline_us)
{
    VjRemoteEngine *r = (VjRemoteEngine *)e;
    g_auto(Request) q = {.op = VJ_OP_APPLY,
                         .message = g_byte_array_sized_new(MESSAGE_BYTES),
                         .reply_bulk_max = VJ_WIRE_ITEMS_BYTES_MAX};
    int rc;

    if (r->read_only) {
        return -EROFS;
    }
    g_assert(batch->check_count <= VJ_WIRE_KEYS_MAX);
    rc = fill_apply(batch, &q);
    return rc < 0 ? rc : send_apply(r, &q, batch, fresh, deadline_us);
}

/* ---- Numbers --------------------------------------------------------------------- */

static int ask_number(VjRemoteEngine *r, uint16_t op, GByteArray *message, uint64_t *out,
                      int64_t deadline_us)
{
    g_auto(Request) q = {.op = op, .message = message};
    g_autoptr(VjRpcCall) call = NULL;
    int rc = ask(r, &q, deadline_us, &call);

    return rc < 0 ? rc : vj_wire_u64_decode(message_of(call), out);
}

static int64_t remote_clock_us(VjEngine *e, int64_t deadline_us)
{
    uint64_t us;
    int rc = ask_number((VjRemoteEngine *)e, VJ_OP_CLOCK, g_byte_array_new(), &us,
                        deadline_us);

    return rc < 0 ? rc : us > INT64_MAX ? -EPROTO : (int64_t)us;
}

static int remote_count(VjEngine *e, VjSpace space, uint64_t *out)
{
    GByteArray *message = g_byte_array_new();

    vj_wire_u8_encode(message, (uint8_t)space);
    return ask_number((VjRemoteEngine *)e, VJ_OP_COUNT, message, out, VJ_NO_DEADLINE);
}

static void remote_traffic(VjEngine *e, VjMetaTraffic *out)
{
    VjRpcTraffic all;

    vj_rpc_client_traffic(((VjRemoteEngine *)e)->client, &all);
    *out = (VjMetaTraffic){.requests = all.calls,
                           .sent_bytes = all.sent_bytes,
                           .received_bytes = all.received_bytes};
}

const VjEngineOps vj_engine_remote_ops = {
    .name = "remote",
    .options = vj_remote_engine_options,
    .flags = VJ_ENGINE_IS_LEASED | VJ_ENGINE_RECEIVES,
    .needs_of = vj_remote_engine_needs_of,
    .check = vj_remote_engine_check,
    .apply_max_bytes = VJ_RPC_BULK_MAX,
    .instance_size = sizeof(VjRemoteEngine),
    .open = vj_remote_engine_open,
    .close = vj_remote_engine_close,
    .get_many = remote_get_many,
    .scan = remote_scan,
    .apply = remote_apply,
    .clock_us = remote_clock_us,
    .count = remote_count,
    .traffic = remote_traffic,
};
