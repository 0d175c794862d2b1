/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * batch.c - operations are gathered, and go out in as few requests as the wire allows
 *
 * A batch that is longer than a request may be is a chain of requests: each is sent when
 * the one before it was answered, because the daemon does requests beside each other and
 * operations of a batch are in order.  A write of more than a request's worth is a chain
 * too, of requests that have nothing but parts of it, and ends at the first part that
 * fails.
 *
 * With safety none the last request of the chain is deferred (client-private.h), unless
 * one of its operations returns something.  Names that deferred requests use are in a set
 * of bits, so that a batch which uses one of them waits for their answers first.
 */
#include "client-private.h"

#include <stdlib.h>

#define BULK_MAX VARJFS_WIRE_BATCH_BULK_MAX
#define RETURN_MAX VARJFS_WIRE_BATCH_RETURN_MAX
#define WRITE_MAX VARJFS_WIRE_WRITE_MAX

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
    b->part_count = 0;
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
    free(b->parts);
    free(b->buffer);
    free(b->out);
    free(b->request.in);
    free(b->scratch);
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

/* ---- names of deferred requests ---------------------------------------------------- */

static bool is_key(const VjcOperation *op)
{
    return op->kind >= VARJFS_WIRE_KEY_PUT;
}

static uint32_t name_bit(const VjcOperation *op)
{
    uint64_t sum = XXH3_64bits(op->name, op->name_len) + is_key(op);

    return (uint32_t)(XXH3_64bits_withSeed(op->space, op->space_len, sum) %
                      VJC_NAMES_BITS);
}

static bool is_in_use(const varjfs_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        uint32_t bit = name_bit(&b->operations[i]);

        if ((b->v->names[bit / 64] >> bit % 64 & 1) != 0) {
            return true;
        }
    }
    return false;
}

static void use_names(varjfs_batch *b)
{
    for (size_t i = 0; i < b->part_count; i++) {
        uint32_t bit = name_bit(&b->operations[b->parts[i].operation]);

        b->v->names[bit / 64] |= UINT64_C(1) << bit % 64;
    }
}

/* ---- the next request -------------------------------------------------------------- */

typedef struct Sizes {
    size_t message, brings, returns, bulk_parts, in_parts, statuses;
    bool is_one;       /* parts of one long operation */
    bool is_returning; /* one of them says more than that it was done */
} Sizes;

static bool is_write(const VjcOperation *op)
{
    return op->kind == VARJFS_WIRE_OBJECT_WRITE || op->kind == VARJFS_WIRE_OBJECT_RWRITE;
}

static bool is_returning(const VjcOperation *op)
{
    return op->kind == VARJFS_WIRE_OBJECT_READ || op->kind == VARJFS_WIRE_OBJECT_STATUS ||
           op->kind == VARJFS_WIRE_KEY_GET;
}

/* It does not fit one operation of the wire. */
static bool is_long(const VjcOperation *op)
{
    return is_write(op) ? op->len > WRITE_MAX
                        : op->kind == VARJFS_WIRE_OBJECT_READ && op->len > RETURN_MAX;
}

/* What the next part of an operation brings and returns; how far it gets. */
static VjcPart next_part(const varjfs_batch *b)
{
    const VjcOperation *op = &b->operations[b->next_operation];
    VjcPart part = {.operation = b->next_operation, .at = b->next_at};
    size_t left = op->len - (size_t)b->next_at;

    if (is_returning(op)) {
        part.returns = (uint32_t)(left < RETURN_MAX ? left : RETURN_MAX);
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

/* Which parts the next request has.  The cursor of the batch is behind them. */
static int plan(varjfs_batch *b, Sizes *sizes)
{
    *sizes = (Sizes){.message = VARJFS_WIRE_BATCH_HEAD_BYTES};
    b->part_count = 0;
    while (b->next_operation < b->count && b->part_count < VARJFS_WIRE_OPS_MAX) {
        const VjcOperation *op = &b->operations[b->next_operation];
        size_t message = VARJFS_WIRE_OP_HEAD_BYTES + op->space_len + op->name_len;
        VjcPart part = next_part(b);

        if (op->is_done) {
            b->next_operation++; /* a part of it has failed */
            b->next_at = 0;
            continue;
        }
        if (b->part_count > 0 && (!fits(sizes, &part, message) ||
                                  (is_long(op) && (part.at == 0 || !sizes->is_one)))) {
            return 0;
        }
        if (vjc_grow(&b->parts, &b->part_capacity, b->part_count + 1, sizeof part) != 0) {
            return -ENOMEM;
        }
        b->parts[b->part_count++] = part;
        sizes->message += message;
        sizes->brings += part.brings;
        sizes->returns += part.returns;
        sizes->bulk_parts += part.brings > 0;
        sizes->in_parts += part.returns > 0;
        sizes->statuses += op->kind == VARJFS_WIRE_OBJECT_STATUS;
        sizes->is_one = is_long(op);
        sizes->is_returning = sizes->is_returning || is_returning(op);
        b->next_at += part.brings + part.returns;
        if (!is_long(op) || b->next_at == op->len) {
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

static uint8_t wire_flags(const varjfs_batch *b, const Sizes *sizes)
{
    uint8_t flags = 0;

    if (b->semantics.atomicity == VARJFS_ATOMICITY_BATCH) {
        flags |= VARJFS_WIRE_ATOMIC;
    }
    if (b->semantics.ordering == VARJFS_ORDERING_STRICT ||
        (sizes->is_one && b->part_count > 1)) {
        flags |= VARJFS_WIRE_STOP;
    }
    return flags;
}

static void encode_part(VjcWriter *w, const VjcOperation *op, const VjcPart *part)
{
    /* The first part of a replacement takes all that goes; the others are inserted. */
    uint64_t old_len = part->at == 0 ? op->old_len : 0;
    bool is_append = is_write(op) && (op->flags & VARJFS_WIRE_APPEND) != 0;

    vjc_put_number(w, op->kind, 1);
    vjc_put_number(w, op->flags, 1);
    vjc_put_number(w, op->space_len, 2);
    vjc_put_number(w, op->name_len, 2);
    vjc_put_number(w, 0, 2);
    vjc_put_number(w, is_append ? 0 : op->offset + part->at, 8);
    vjc_put_number(w, old_len, 8);
    vjc_put_number(w, part->brings, 4);
    vjc_put_number(w, part->returns, 4);
    vjc_put_bytes(w, op->space, op->space_len);
    vjc_put_bytes(w, op->name, op->name_len);
}

/* Memory for all of a request, so that nothing can fail once it has been sent. */
static int reserve(varjfs_batch *b, const Sizes *sizes)
{
    int rc =
        vjc_grow(&b->buffer, &b->buffer_capacity, VJC_HEAD_BYTES + sizes->message, 1);

    if (rc == 0) {
        rc = vjc_grow(&b->out, &b->out_capacity, sizes->bulk_parts, sizeof *b->out);
    }
    if (rc == 0) {
        rc = vjc_grow(&b->request.in, &b->in_capacity, sizes->in_parts,
                      sizeof *b->request.in);
    }
    if (rc == 0) {
        rc = vjc_grow(&b->scratch, &b->scratch_capacity,
                      sizes->statuses * VARJFS_WIRE_STATUS_MAX, 1);
    }
    return rc;
}

static size_t encode(varjfs_batch *b, const Sizes *sizes)
{
    VjcWriter w = vjc_writer(b->buffer + VJC_HEAD_BYTES, sizes->message);
    size_t bulk_count = 0, statuses = 0;

    vjc_put_number(&w, wire_flags(b, sizes), 1);
    vjc_put_number(&w, wire_safety(&b->semantics), 1);
    vjc_put_number(&w, 0, 2);
    vjc_put_number(&w, b->part_count, 4);
    for (size_t i = 0; i < b->part_count; i++) {
        const VjcPart *part = &b->parts[i];
        VjcOperation *op = &b->operations[part->operation];

        encode_part(&w, op, part);
        if (part->brings > 0) {
            /* An iovec has no const; it is only read. */
            b->out[bulk_count++] =
                (struct iovec){.iov_base = (void *)(uintptr_t)(op->src + part->at),
                               .iov_len = part->brings};
        }
        if (op->kind == VARJFS_WIRE_OBJECT_STATUS) {
            op->dst = b->scratch + VARJFS_WIRE_STATUS_MAX * statuses++;
        }
    }
    return bulk_count;
}

/* ---- replies ----------------------------------------------------------------------- */

typedef struct Result {
    uint32_t status;
    uint64_t bytes;
} Result;

static Result get_result(VjcReader *r)
{
    Result result;

    result.status = vjc_get32(r);
    result.bytes = vjc_get64(r);
    return result;
}

/* Bytes of the bulk that belong to a result; more than it may return: none is valid. */
static bool returned_bytes(const VjcOperation *op, const VjcPart *part,
                           const Result *result, uint32_t *bytes)
{
    *bytes = 0;
    if (!is_returning(op) || result->status != VJC_STATUS_OK) {
        return true;
    }
    if (result->bytes > part->returns || (op->kind == VARJFS_WIRE_OBJECT_STATUS &&
                                          result->bytes < VARJFS_WIRE_STATUS_BYTES)) {
        return false;
    }
    *bytes = (uint32_t)result->bytes;
    return true;
}

static bool place_batch(VjcRequest *r, const uint8_t *message, uint32_t len,
                        uint32_t bulk)
{
    const varjfs_batch *b = r->owner;
    VjcReader reply = vjc_reader(message, len);
    uint64_t sum = 0;

    if (len != b->part_count * VARJFS_WIRE_RESULT_BYTES) {
        return false;
    }
    for (size_t i = 0; i < b->part_count; i++) {
        const VjcPart *part = &b->parts[i];
        const VjcOperation *op = &b->operations[part->operation];
        Result result = get_result(&reply);
        uint32_t bytes;

        if (!returned_bytes(op, part, &result, &bytes)) {
            return false;
        }
        sum += bytes;
        if (bytes > 0) {
            r->in[r->in_count++] =
                (struct iovec){.iov_base = op->dst + part->at, .iov_len = bytes};
        }
    }
    return sum == bulk;
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

/* False: the result has no meaning. */
static bool take_result(VjcOperation *op, const VjcPart *part, const Result *result)
{
    bool is_last_part = part->at + part->brings + part->returns >= op->len;

    if (op->is_done) {
        return true; /* a part before it ended the operation */
    }
    op->error = vjc_status_errno(result->status);
    op->is_done = op->error != 0 || is_last_part;
    if (op->kind == VARJFS_WIRE_KEY_GET && result->status == VARJFS_WIRE_RANGE) {
        op->returned = result->bytes;
        return result->bytes > op->len && result->bytes <= VARJFS_WIRE_VALUE_MAX;
    }
    if (op->error != 0) {
        return true;
    }
    if (op->kind == VARJFS_WIRE_OBJECT_STATUS) {
        return decode_status(op, result->bytes);
    }
    if (is_returning(op)) {
        op->returned += result->bytes;
        op->is_done = op->is_done || result->bytes < part->returns;
    }
    return true;
}

/* One of the reply has no meaning: none of it is believed. */
static void forget_results(varjfs_batch *b)
{
    for (size_t i = 0; i < b->part_count; i++) {
        VjcOperation *op = &b->operations[b->parts[i].operation];

        op->is_done = false;
        op->error = 0;
    }
}

static bool finish_batch(VjcRequest *r, const uint8_t *message, uint32_t len)
{
    varjfs_batch *b = r->owner;
    VjcReader reply = vjc_reader(message, len);

    for (size_t i = 0; i < b->part_count; i++) {
        const VjcPart *part = &b->parts[i];
        Result result = get_result(&reply);

        if (!take_result(&b->operations[part->operation], part, &result)) {
            forget_results(b);
            return false;
        }
    }
    return vjc_reader_is_done(&reply);
}

static const VjcReplyHandler batch_handler = {.place = place_batch,
                                              .finish = finish_batch};

static bool place_deferred(VjcRequest *r, const uint8_t *message, uint32_t len,
                           uint32_t bulk)
{
    (void)message;
    return len == r->operations * VARJFS_WIRE_RESULT_BYTES && bulk == 0;
}

static bool finish_deferred(VjcRequest *r, const uint8_t *message, uint32_t len)
{
    VjcReader reply = vjc_reader(message, len);

    for (uint32_t i = 0; i < r->operations; i++) {
        Result result = get_result(&reply);

        if (r->error == 0) {
            r->error = vjc_status_errno(result.status);
        }
    }
    return vjc_reader_is_done(&reply);
}

static const VjcReplyHandler deferred_handler = {.place = place_deferred,
                                                 .finish = finish_deferred};

/* ---- sending ----------------------------------------------------------------------- */

/* Nobody waits for the request that was planned. */
static bool is_deferrable(const varjfs_batch *b, const Sizes *sizes)
{
    return b->semantics.safety == VARJFS_SAFETY_NONE && !sizes->is_returning &&
           b->next_operation == b->count;
}

static int send_deferred(varjfs_batch *b, const Sizes *sizes)
{
    varjfs *v = b->v;
    int rc = vjc_wait_deferred(v, VJC_DEFERRED_MAX - 1);
    VjcRequest *r = rc == 0 ? vjc_deferred_new(v) : NULL;
    size_t bulk_count;

    if (r == NULL) {
        return rc != 0 ? rc : -ENOMEM;
    }
    r->op = VARJFS_WIRE_BATCH;
    r->handler = &deferred_handler;
    r->operations = (uint32_t)b->part_count;
    bulk_count = encode(b, sizes);
    use_names(b);
    rc = vjc_send(v, r, b->buffer, VJC_HEAD_BYTES + sizes->message, b->out, bulk_count);
    for (size_t i = 0; rc == 0 && i < b->part_count; i++) {
        b->operations[b->parts[i].operation].is_done = true;
    }
    return rc;
}

/* Plans, encodes and sends the next request of the chain.  0 also where nothing is left:
 * then none is in flight. */
static int send_next(varjfs_batch *b)
{
    Sizes sizes;
    size_t bulk_count;
    int rc = plan(b, &sizes);

    if (rc == 0) {
        rc = reserve(b, &sizes);
    }
    if (rc != 0 || b->part_count == 0) {
        return rc;
    }
    if (is_deferrable(b, &sizes)) {
        return send_deferred(b, &sizes);
    }
    b->request.op = VARJFS_WIRE_BATCH;
    b->request.handler = &batch_handler;
    b->request.owner = b;
    b->request.in_max = sizes.in_parts;
    bulk_count = encode(b, &sizes);
    /* Of a failure varjfs_batch_wait hears, or of the reply that came before it. */
    vjc_send(b->v, &b->request, b->buffer, VJC_HEAD_BYTES + sizes.message, b->out,
             bulk_count);
    b->in_flight = true;
    return 0;
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

        message += VARJFS_WIRE_OP_HEAD_BYTES + op->space_len + op->name_len;
        *(is_returning(op) ? &in : &bulk) += op->len;
    }
    return b->count > VARJFS_ATOMIC_MAX || message > VARJFS_WIRE_BATCH_MESSAGE_MAX ||
           bulk > VARJFS_WIRE_ATOMIC_BULK_MAX || in > RETURN_MAX;
}

static int start(varjfs_batch *b)
{
    varjfs *v = b->v;
    int rc = 0;

    if (is_too_long(b)) {
        return -E2BIG;
    }
    if (v->deferred_count > 0 && is_in_use(b)) {
        rc = vjc_wait_deferred(v, 0);
    }
    if (rc == 0) {
        rc = v->fd < 0 ? v->failure : send_next(b);
    }
    if (rc != 0) {
        b->next_operation = 0;
        b->next_at = 0;
        return rc;
    }
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
static void fail_parts(varjfs_batch *b, int error)
{
    for (size_t i = 0; i < b->part_count; i++) {
        VjcOperation *op = &b->operations[b->parts[i].operation];

        if (!op->is_done) {
            op->error = error;
            op->is_done = true;
        }
    }
}

/* No later request of the chain is to be sent. */
static bool is_stopped(const varjfs_batch *b)
{
    if (b->is_canceled) {
        return true;
    }
    for (size_t i = 0;
         b->semantics.ordering == VARJFS_ORDERING_STRICT && i < b->part_count; i++) {
        if (b->operations[b->parts[i].operation].error != 0) {
            return true;
        }
    }
    return false;
}

int varjfs_batch_wait(varjfs_batch *b)
{
    int rc = 0;

    if (!b->is_submitted) {
        return -EINVAL;
    }
    while (b->in_flight && rc == 0) {
        rc = vjc_wait(b->v, &b->request);
        b->in_flight = false;
        if (rc != 0) {
            fail_parts(b, rc);
            rc = b->v->fd < 0 ? rc : 0;
        }
        if (is_stopped(b)) {
            rc = -ECANCELED;
        }
        if (rc == 0) {
            rc = send_next(b);
        }
    }
    b->v->submitted_count--;
    return finish(b, rc);
}

int varjfs_batch_submit(varjfs_batch *b)
{
    if (b->is_submitted || b->v->submitted_count >= VARJFS_IN_FLIGHT_MAX) {
        return -EBUSY;
    }
    return start(b);
}

int varjfs_batch_execute(varjfs_batch *b)
{
    int rc;

    if (b->is_submitted) {
        return -EBUSY;
    }
    rc = start(b);
    return rc != 0 ? finish(b, rc) : varjfs_batch_wait(b);
}

int varjfs_batch_cancel(varjfs_batch *b)
{
    if (!b->is_submitted) {
        return -EINVAL;
    }
    b->is_canceled = true;
    return b->in_flight && !b->request.done ? vjc_cancel(b->v, &b->request) : 0;
}
