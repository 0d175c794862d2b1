/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * batch.c - operations are gathered, and go out in as few requests as the wire allows
 *
 * A batch that is longer than a request may be is a chain of requests: each is sent when
 * the one before it was answered, because the daemon does requests beside each other and
 * operations of a batch are in order.  A write of more than a request's worth is a chain
 * too, of requests that have nothing but parts of it, and ends at the first part that
 * fails.  Requests that only return something are not told from each other by their
 * order: several are on their way at once, in lanes, and their results are taken in
 * order.
 *
 * With safety none the last request of the chain is deferred (deferred.c).
 */
#include "client-private.h"

#include <stdlib.h>

#define BULK_MAX VARJFS_WIRE_BATCH_BULK_MAX
#define RETURN_MAX VARJFS_WIRE_BATCH_RETURN_MAX
#define WRITE_MAX VARJFS_WIRE_WRITE_MAX
/* A longer read is several requests, unless it has to be a single step: the daemon reads
 * the next part while one is received. */
#define READ_STEP ((size_t)1 << 20)

int vjc_grow(void *array, size_t *capacity, size_t need, size_t size)
{
    void **at = array, *more;
    size_t want = *capacity < 8 ? 8 : *capacity;

    if (need <= *capacity) {
        return 0;
    }
    while (want < need) {
        if (want > SIZE_MAX / 2 / size) {
            return -ENOMEM;
        }
        want *= 2;
    }
    more = realloc(*at, want * size);
    if (more == NULL) {
        return -ENOMEM;
    }
    *at = more;
    *capacity = want;
    return 0;
}

/* ---- gathering --------------------------------------------------------------------- */

int varjfs_batch_new(varjfs *v, const struct varjfs_semantics *s, varjfs_batch **out)
{
    struct varjfs_semantics semantics;
    varjfs_batch *b;
    int rc;

    *out = NULL;
    rc = v == NULL ? -EINVAL : vjc_semantics_copy(s, &semantics);
    if (rc != 0) {
        return rc;
    }
    b = calloc(1, sizeof *b);
    if (b == NULL) {
        return -ENOMEM;
    }
    b->v = v;
    b->semantics = semantics;
    b->next = v->batches;
    b->link = &v->batches;
    if (b->next != NULL) {
        b->next->link = &b->next;
    }
    v->batches = b;
    *out = b;
    return 0;
}

static void empty(varjfs_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        if (b->operations[i].kind == VARJFS_WIRE_OBJECT_CREATE) {
            free((void *)(uintptr_t)b->operations[i].src);
        }
    }
    b->count = 0;
    b->next_operation = 0;
    b->next_at = 0;
    b->error = 0;
    b->is_submitted = b->is_canceled = false;
}

void varjfs_batch_free(varjfs_batch *b)
{
    if (b == NULL) {
        return;
    }
    if (b->is_submitted) {
        varjfs_batch_wait(b);
    }
    empty(b);
    *b->link = b->next;
    if (b->next != NULL) {
        b->next->link = b->link;
    }
    free(b->operations);
    for (unsigned i = 0; i < VJC_LANES; i++) {
        VjcLane *lane = &b->lanes[i];

        free(lane->parts);
        free(lane->buffer);
        free(lane->out);
        free(lane->request.in);
        free(lane->scratch);
    }
    free(b);
}

bool vjc_is_name(const void *name, size_t len)
{
    const char *text = name;

    if (len == 0 || memchr(text, '/', len) != NULL || memchr(text, '\0', len) != NULL) {
        return false;
    }
    return text[0] != '.' || (len != 1 && !(len == 2 && text[1] == '.'));
}

bool vjc_is_namespace(const char *space, size_t *len)
{
    *len = space == NULL ? 0 : strnlen(space, VARJFS_NAMESPACE_MAX + 1);
    return *len <= VARJFS_NAMESPACE_MAX && vjc_is_name(space, *len);
}

int vjc_batch_add(varjfs_batch *b, uint8_t kind, const char *space, const void *name,
                  size_t name_len, int *result, VjcOperation **out)
{
    size_t space_len;
    VjcOperation *op;

    if (b->is_submitted) {
        return -EBUSY;
    }
    if (!vjc_is_namespace(space, &space_len) || name == NULL || name_len == 0 ||
        name_len > VARJFS_NAME_MAX) {
        return -EINVAL;
    }
    if (vjc_grow(&b->operations, &b->capacity, b->count + 1, sizeof *op) != 0) {
        return -ENOMEM;
    }
    op = &b->operations[b->count];
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->space = space;
    op->space_len = (uint16_t)space_len;
    op->name = name;
    op->name_len = (uint16_t)name_len;
    op->result = result;
    *out = op;
    return 0;
}

void vjc_batch_added(varjfs_batch *b)
{
    b->count++;
}

/* ---- the next request -------------------------------------------------------------- */

typedef struct Sizes {
    size_t message, brings, returns, bulk_parts, in_parts, statuses;
    size_t contents;   /* of @returns, of objects: these are mostly as long as asked */
    bool is_one;       /* parts of one long operation */
    bool is_returning; /* one of them says more than that it was done */
    bool is_changing;  /* one of them says no more */
} Sizes;

static bool is_write(const VjcOperation *op)
{
    return op->kind == VARJFS_WIRE_OBJECT_WRITE || op->kind == VARJFS_WIRE_OBJECT_RWRITE;
}

/* A value that is returned as a whole or not at all. */
static bool is_get(const VjcOperation *op)
{
    return op->kind == VARJFS_WIRE_KEY_GET || op->kind == VARJFS_WIRE_ATTRIBUTE_GET;
}

bool vjc_is_returning(const VjcOperation *op)
{
    return op->kind == VARJFS_WIRE_OBJECT_READ || op->kind == VARJFS_WIRE_OBJECT_STATUS ||
           is_get(op);
}

size_t vjc_operation_bytes(const VjcOperation *op)
{
    return VARJFS_WIRE_OP_HEAD_BYTES + op->space_len + op->name_len + op->second_len;
}

/* Bytes of a read that go in one step. */
static size_t read_most(const varjfs_batch *b)
{
    return b->semantics.atomicity == VARJFS_ATOMICITY_NONE ? READ_STEP : RETURN_MAX;
}

/* It is more than one operation of the wire. */
static bool is_long(const varjfs_batch *b, const VjcOperation *op)
{
    return is_write(op) ? op->len > WRITE_MAX
                        : op->kind == VARJFS_WIRE_OBJECT_READ && op->len > read_most(b);
}

/* What the next part of an operation brings and returns; how far it gets. */
static VjcPart next_part(const varjfs_batch *b)
{
    const VjcOperation *op = &b->operations[b->next_operation];
    VjcPart part = {.operation = b->next_operation, .at = b->next_at};
    size_t left = op->len - (size_t)b->next_at;

    if (vjc_is_returning(op)) {
        part.returns = (uint32_t)(left < read_most(b) ? left : read_most(b));
    } else if (is_write(op)) {
        part.brings = (uint32_t)(left < WRITE_MAX ? left : WRITE_MAX);
    } else {
        part.brings = (uint32_t)op->len;
    }
    return part;
}

static bool fits(const Sizes *sizes, const VjcPart *part, size_t message)
{
    return sizes->message + message <= VARJFS_WIRE_BATCH_MESSAGE_MAX &&
           sizes->brings + part->brings <= BULK_MAX &&
           sizes->returns + part->returns <= RETURN_MAX;
}

/* What the request returns is a step of reading already. */
static bool ends_at_read(const Sizes *sizes, const VjcPart *part)
{
    return !sizes->is_changing && part->returns > 0 &&
           sizes->returns + part->returns > READ_STEP;
}

/* Which parts the next request has.  The cursor of the batch is behind them. */
static int plan(varjfs_batch *b, VjcLane *lane, Sizes *sizes)
{
    *sizes = (Sizes){.message = VARJFS_WIRE_BATCH_HEAD_BYTES};
    lane->part_count = 0;
    while (b->next_operation < b->count && lane->part_count < VARJFS_WIRE_OPS_MAX) {
        const VjcOperation *op = &b->operations[b->next_operation];
        size_t message = vjc_operation_bytes(op);
        VjcPart part = next_part(b);

        if (op->is_done) {
            b->next_operation++; /* a part of it has failed */
            b->next_at = 0;
            continue;
        }
        if (lane->part_count > 0 &&
            (!fits(sizes, &part, message) || ends_at_read(sizes, &part) ||
             (is_long(b, op) && (part.at == 0 || !sizes->is_one)))) {
            return 0;
        }
        if (vjc_grow(&lane->parts, &lane->part_capacity, lane->part_count + 1,
                     sizeof part) != 0) {
            return -ENOMEM;
        }
        lane->parts[lane->part_count++] = part;
        sizes->message += message;
        sizes->brings += part.brings;
        sizes->returns += part.returns;
        sizes->contents += op->kind == VARJFS_WIRE_OBJECT_READ ? part.returns : 0;
        sizes->bulk_parts += part.brings > 0;
        sizes->in_parts += part.returns > 0;
        sizes->statuses += op->kind == VARJFS_WIRE_OBJECT_STATUS;
        sizes->is_one = is_long(b, op);
        sizes->is_returning = sizes->is_returning || vjc_is_returning(op);
        sizes->is_changing = sizes->is_changing || !vjc_is_returning(op);
        b->next_at += part.brings + part.returns;
        if (!is_long(b, op) || b->next_at == op->len) {
            b->next_operation++;
            b->next_at = 0;
            if (sizes->is_one) {
                return 0;
            }
        }
    }
    return 0;
}

static uint8_t wire_safety(const struct varjfs_semantics *s)
{
    if (s->persistency == VARJFS_PERSISTENCY_IMMEDIATE ||
        s->safety == VARJFS_SAFETY_STORAGE) {
        return VARJFS_WIRE_SAFETY_STORAGE;
    }
    return s->safety == VARJFS_SAFETY_NETWORK ? VARJFS_WIRE_SAFETY_NETWORK
                                              : VARJFS_WIRE_SAFETY_NONE;
}

static uint8_t wire_flags(const varjfs_batch *b, const VjcLane *lane, const Sizes *sizes)
{
    uint8_t flags = 0;

    if (b->semantics.atomicity == VARJFS_ATOMICITY_BATCH) {
        flags |= VARJFS_WIRE_ATOMIC;
    }
    if (b->semantics.ordering == VARJFS_ORDERING_STRICT ||
        (sizes->is_one && lane->part_count > 1)) {
        flags |= VARJFS_WIRE_STOP;
    }
    return flags;
}

void vjc_encode_part(VjcWriter *w, const VjcOperation *op, const VjcPart *part)
{
    /* The first part of a replacement takes all that goes; the others are inserted. */
    uint64_t old_len = part->at == 0 ? op->old_len : 0;
    bool is_append = is_write(op) && (op->flags & VARJFS_WIRE_APPEND) != 0;

    vjc_put_number(w, op->kind, 1);
    vjc_put_number(w, op->flags, 1);
    vjc_put_number(w, op->space_len, 2);
    vjc_put_number(w, op->name_len, 2);
    vjc_put_number(w, op->second_len, 2);
    vjc_put_number(w, is_append ? 0 : op->offset + part->at, 8);
    vjc_put_number(w, old_len, 8);
    vjc_put_number(w, part->brings, 4);
    vjc_put_number(w, part->returns, 4);
    vjc_put_bytes(w, op->space, op->space_len);
    vjc_put_bytes(w, op->name, op->name_len);
    vjc_put_bytes(w, op->second, op->second_len);
}

/* Memory for all of a request, so that nothing can fail once it has been sent. */
static int reserve(VjcLane *lane, const Sizes *sizes)
{
    int rc = vjc_grow(&lane->buffer, &lane->buffer_capacity,
                      VJC_HEAD_BYTES + sizes->message, 1);

    if (rc == 0) {
        rc = vjc_grow(&lane->out, &lane->out_capacity, sizes->bulk_parts,
                      sizeof *lane->out);
    }
    if (rc == 0) {
        rc = vjc_grow(&lane->request.in, &lane->in_capacity, sizes->in_parts,
                      sizeof *lane->request.in);
    }
    if (rc == 0) {
        rc = vjc_grow(&lane->scratch, &lane->scratch_capacity,
                      sizes->statuses * VARJFS_WIRE_STATUS_MAX, 1);
    }
    return rc;
}

static size_t encode(const varjfs_batch *b, VjcLane *lane, const Sizes *sizes)
{
    VjcWriter w = vjc_writer(lane->buffer + VJC_HEAD_BYTES, sizes->message);
    size_t bulk_count = 0, statuses = 0;

    vjc_put_number(&w, wire_flags(b, lane, sizes), 1);
    vjc_put_number(&w, wire_safety(&b->semantics), 1);
    vjc_put_number(&w, lane->slot, 2);
    vjc_put_number(&w, lane->part_count, 4);
    for (size_t i = 0; i < lane->part_count; i++) {
        const VjcPart *part = &lane->parts[i];
        VjcOperation *op = &b->operations[part->operation];

        vjc_encode_part(&w, op, part);
        if (part->brings > 0) {
            /* An iovec has no const; it is only read. */
            lane->out[bulk_count++] =
                (struct iovec){.iov_base = (void *)(uintptr_t)(op->src + part->at),
                               .iov_len = part->brings};
        }
        if (op->kind == VARJFS_WIRE_OBJECT_STATUS) {
            op->dst = lane->scratch + VARJFS_WIRE_STATUS_MAX * statuses++;
        }
    }
    return bulk_count;
}

/* ---- replies ----------------------------------------------------------------------- */

static void get_result(VjcReader *r, VjcPart *part)
{
    part->status = vjc_get32(r);
    part->bytes = vjc_get64(r);
}

/* Bytes of the bulk that belong to a result; more than it may return: none is valid. */
static bool returned_bytes(const VjcOperation *op, const VjcPart *part, uint32_t *bytes)
{
    *bytes = 0;
    if (!vjc_is_returning(op) || part->status != VJC_STATUS_OK) {
        return true;
    }
    if (part->bytes > part->returns || (op->kind == VARJFS_WIRE_OBJECT_STATUS &&
                                        part->bytes < VARJFS_WIRE_STATUS_BYTES)) {
        return false;
    }
    *bytes = (uint32_t)part->bytes;
    return true;
}

static bool place_batch(VjcRequest *r, const uint8_t *message, uint32_t len,
                        uint32_t bulk)
{
    VjcLane *lane = r->owner;
    VjcReader reply = vjc_reader(message, len);
    uint64_t sum = 0;

    if (len != lane->part_count * VARJFS_WIRE_RESULT_BYTES) {
        return false;
    }
    for (size_t i = 0; i < lane->part_count; i++) {
        VjcPart *part = &lane->parts[i];
        const VjcOperation *op = &lane->batch->operations[part->operation];
        uint32_t bytes;

        get_result(&reply, part);
        if (!returned_bytes(op, part, &bytes)) {
            return false;
        }
        sum += bytes;
        if (bytes > 0) {
            r->in[r->in_count++] =
                (struct iovec){.iov_base = op->dst + part->at, .iov_len = bytes};
        }
    }
    return lane->slot == 0 ? sum == bulk : bulk == 0;
}

static bool decode_status(const VjcOperation *op, uint64_t len)
{
    VjcReader r = vjc_reader(op->dst, (size_t)len);
    struct varjfs_object_status status = {.size = op->status_size};
    const uint8_t *text;

    status.bytes = vjc_get64(&r);
    status.stored_bytes = vjc_get64(&r);
    status.modified_us = (int64_t)vjc_get64(&r);
    status.created_us = (int64_t)vjc_get64(&r);
    len = r.left;
    text = vjc_get_bytes(&r, (size_t)len);
    /* With the NUL that is not on the wire. */
    if (text == NULL || len >= sizeof status.transform ||
        memchr(text, '\0', (size_t)len) != NULL) {
        return false;
    }
    memcpy(status.transform, text, (size_t)len);
    /* Members of a later version are zero. */
    memset(op->status, 0, op->status_size);
    memcpy(op->status, &status, sizeof status);
    return true;
}

/* Of a result whose bytes have come.  False: it has no meaning. */
static bool has_meaning(const VjcOperation *op, const VjcPart *part)
{
    if (is_get(op) && part->status == VARJFS_WIRE_RANGE) {
        return part->bytes > op->len && part->bytes <= VARJFS_WIRE_VALUE_MAX;
    }
    return op->kind != VARJFS_WIRE_OBJECT_STATUS || part->status != VJC_STATUS_OK ||
           decode_status(op, part->bytes);
}

/* The message is the one that place_batch had, and its checksum is right. */
static bool finish_batch(VjcRequest *r, const uint8_t *message, uint32_t len)
{
    VjcLane *lane = r->owner;

    (void)message;
    (void)len;
    if (lane->slot != 0) {
        vjc_area_copy(lane->batch->v, lane->slot, r->in, r->in_count);
    }
    for (size_t i = 0; i < lane->part_count; i++) {
        const VjcPart *part = &lane->parts[i];

        if (!has_meaning(&lane->batch->operations[part->operation], part)) {
            return false;
        }
    }
    return true;
}

static void take_result(VjcOperation *op, const VjcPart *part)
{
    bool is_last_part = part->at + part->brings + part->returns >= op->len;

    if (op->is_done) {
        return; /* a part before it ended the operation */
    }
    op->error = vjc_status_errno(part->status);
    op->is_done = op->error != 0 || is_last_part;
    if (is_get(op) && part->status == VARJFS_WIRE_RANGE) {
        op->returned = part->bytes;
    } else if (op->error == 0 && vjc_is_returning(op)) {
        op->returned += part->bytes;
        op->is_done = op->is_done || part->bytes < part->returns;
    }
}

/* After each request before it: a read ends where a part of it is short. */
static void take_results(varjfs_batch *b, const VjcLane *lane)
{
    for (size_t i = 0; i < lane->part_count; i++) {
        const VjcPart *part = &lane->parts[i];

        take_result(&b->operations[part->operation], part);
    }
}

static const VjcReplyHandler batch_handler = {.place = place_batch,
                                              .finish = finish_batch};

/* ---- sending ----------------------------------------------------------------------- */

/* Nobody waits for the request that was planned. */
static bool is_deferrable(const varjfs_batch *b, const Sizes *sizes)
{
    return b->semantics.safety == VARJFS_SAFETY_NONE && !sizes->is_returning &&
           b->next_operation == b->count;
}

static int send_deferred(varjfs_batch *b, VjcLane *lane, const Sizes *sizes)
{
    VjcRequest *r;
    int rc = vjc_deferred_begin(b->v, &r);

    if (rc != 0) {
        return rc;
    }
    return vjc_deferred_send(b, r, lane, VJC_HEAD_BYTES + sizes->message,
                             encode(b, lane, sizes));
}

static VjcLane *lane_at(varjfs_batch *b, unsigned at)
{
    return &b->lanes[(b->first_lane + at) % VJC_LANES];
}

/* May the request that was planned go out beside those that are on their way? */
static bool may_go(const varjfs_batch *b, const Sizes *sizes)
{
    return b->lanes_in_flight == 0 || (b->lanes_only_return && !sizes->is_changing);
}

/* Plans, encodes and sends the next request of the chain, in a lane that is free. */
static int send_next(varjfs_batch *b, bool *was_sent)
{
    VjcLane *lane = lane_at(b, b->lanes_in_flight);
    size_t next_operation = b->next_operation, bulk_count;
    uint64_t next_at = b->next_at;
    Sizes sizes;
    int rc = plan(b, lane, &sizes);

    *was_sent = false;
    if (rc != 0 || lane->part_count == 0) {
        return rc;
    }
    if (!may_go(b, &sizes)) { /* planned again when those before it are answered */
        b->next_operation = next_operation;
        b->next_at = next_at;
        return 0;
    }
    rc = reserve(lane, &sizes);
    if (rc != 0) {
        return rc;
    }
    *was_sent = true;
    if (is_deferrable(b, &sizes)) {
        return send_deferred(b, lane, &sizes);
    }
    lane->batch = b;
    lane->request.op = VARJFS_WIRE_BATCH;
    lane->request.handler = &batch_handler;
    lane->request.owner = lane;
    lane->request.in_max = sizes.in_parts;
    lane->request.at_once = b->is_waited_for && b->lanes_in_flight == 0;
    lane->slot = vjc_area_take(b->v, sizes.contents, sizes.returns);
    bulk_count = encode(b, lane, &sizes);
    /* Of a failure varjfs_batch_wait hears, or of the reply that came before it. */
    vjc_send(b->v, &lane->request, lane->buffer, VJC_HEAD_BYTES + sizes.message,
             lane->out, bulk_count);
    b->lanes_only_return = !sizes.is_changing;
    b->lanes_in_flight++;
    return 0;
}

/* As many requests as may be on their way.  0 also where nothing is left. */
static int send_some(varjfs_batch *b)
{
    unsigned most = b->semantics.ordering == VARJFS_ORDERING_STRICT ? 1 : VJC_LANES;
    bool was_sent = true;
    int rc = 0;

    while (rc == 0 && was_sent && b->lanes_in_flight < most) {
        rc = send_next(b, &was_sent);
    }
    return rc;
}

/* It cannot be one request, which it would have to be. */
static bool is_too_long(const varjfs_batch *b)
{
    size_t message = VARJFS_WIRE_BATCH_HEAD_BYTES;
    uint64_t bulk = 0, in = 0;

    if (b->semantics.atomicity != VARJFS_ATOMICITY_BATCH) {
        return false;
    }
    for (size_t i = 0; i < b->count; i++) {
        const VjcOperation *op = &b->operations[i];

        message += vjc_operation_bytes(op);
        *(vjc_is_returning(op) ? &in : &bulk) += op->len;
    }
    return b->count > VARJFS_ATOMIC_MAX || message > VARJFS_WIRE_BATCH_MESSAGE_MAX ||
           bulk > VARJFS_WIRE_ATOMIC_BULK_MAX || in > RETURN_MAX;
}

static int start(varjfs_batch *b)
{
    varjfs *v = b->v;
    int rc;

    if (is_too_long(b)) {
        return -E2BIG;
    }
    if (vjc_gather(b)) {
        b->is_submitted = true;
        v->submitted_count++;
        return 0;
    }
    rc = vjc_wait_for_names(b);
    if (rc == 0) {
        rc = v->fd < 0 ? v->failure : send_some(b);
    }
    if (rc != 0 && b->lanes_in_flight == 0) {
        b->next_operation = 0;
        b->next_at = 0;
        return rc;
    }
    b->error = rc; /* some of it is on its way: varjfs_batch_wait returns it */
    b->is_submitted = true;
    v->submitted_count++;
    return 0;
}

/* ---- results ----------------------------------------------------------------------- */

static void report(VjcOperation *op)
{
    if (op->result != NULL) {
        *op->result = op->error;
    }
    if (op->got != NULL && (op->error == 0 || op->error == -ERANGE)) {
        *op->got = (size_t)op->returned;
    }
}

/* Operations that were not done have @error.  The first error; the batch is empty. */
static int finish(varjfs_batch *b, int error)
{
    int first = 0;

    for (size_t i = 0; i < b->count; i++) {
        VjcOperation *op = &b->operations[i];

        if (!op->is_done) {
            op->error = error;
        }
        if (first == 0) {
            first = op->error;
        }
        report(op);
    }
    empty(b);
    return first;
}

/* What the request as a whole failed with is the error of each operation in it. */
static void fail_parts(varjfs_batch *b, const VjcLane *lane, int error)
{
    for (size_t i = 0; i < lane->part_count; i++) {
        VjcOperation *op = &b->operations[lane->parts[i].operation];

        if (!op->is_done) {
            op->error = error;
            op->is_done = true;
        }
    }
}

/* No later request of the chain is to be sent; @lane was answered last. */
static bool is_stopped(const varjfs_batch *b, const VjcLane *lane)
{
    if (b->is_canceled) {
        return true;
    }
    for (size_t i = 0;
         b->semantics.ordering == VARJFS_ORDERING_STRICT && i < lane->part_count; i++) {
        if (b->operations[lane->parts[i].operation].error != 0) {
            return true;
        }
    }
    return false;
}

/* The first request that is on its way was answered: more follow, unless b->error says
 * why not. */
static void go_on(varjfs_batch *b)
{
    VjcLane *lane = lane_at(b, 0);
    int rc = lane->request.error;

    b->first_lane = (b->first_lane + 1) % VJC_LANES;
    b->lanes_in_flight--;
    vjc_area_give_back(b->v, lane->slot);
    lane->slot = 0;
    if (rc == 0) {
        take_results(b, lane);
    } else {
        fail_parts(b, lane, rc);
        rc = b->v->fd < 0 ? rc : 0;
    }
    if (rc == 0 && is_stopped(b, lane)) {
        rc = -ECANCELED;
    }
    if (b->error == 0) {
        b->error = rc != 0 ? rc : send_some(b);
    }
}

int varjfs_batch_wait(varjfs_batch *b)
{
    if (!b->is_submitted) {
        return -EINVAL;
    }
    while (b->lanes_in_flight > 0) {
        vjc_wait(b->v, &lane_at(b, 0)->request);
        go_on(b);
    }
    b->v->submitted_count--;
    return finish(b, b->error);
}

int varjfs_batch_test(varjfs_batch *b)
{
    if (!b->is_submitted) {
        return -EINVAL;
    }
    while (b->lanes_in_flight > 0) {
        if (!vjc_try(b->v, &lane_at(b, 0)->request)) {
            return 0;
        }
        go_on(b);
    }
    return 1;
}

int varjfs_descriptor(varjfs *v)
{
    return v->fd >= 0 ? v->fd : v->failure;
}

int varjfs_batch_submit(varjfs_batch *b)
{
    if (b->is_submitted || b->v->submitted_count >= VARJFS_IN_FLIGHT_MAX) {
        return -EBUSY;
    }
    b->is_waited_for = false;
    return start(b);
}

int varjfs_batch_execute(varjfs_batch *b)
{
    int rc;

    if (b->is_submitted) {
        return -EBUSY;
    }
    b->is_waited_for = true;
    rc = start(b);
    return rc != 0 ? finish(b, rc) : varjfs_batch_wait(b);
}

int varjfs_batch_cancel(varjfs_batch *b)
{
    int rc = 0;

    if (!b->is_submitted) {
        return -EINVAL;
    }
    b->is_canceled = true;
    for (unsigned i = 0; i < b->lanes_in_flight && rc == 0; i++) {
        const VjcRequest *r = &lane_at(b, i)->request;

        rc = r->done ? 0 : vjc_cancel(b->v, r);
    }
    return rc;
}
