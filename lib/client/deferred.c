/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * deferred.c - requests that nobody waits for, and operations that wait for others
 *
 * With safety none a batch has returned before its request is answered: that is deferred,
 * unless one of its operations returns something.  Where others need not see it before
 * varjfs_sync either (consistency none and session), not even a request is made for it:
 * its operations are copied, and go out with those of other batches, in the order in
 * which they came.
 *
 * Names that deferred requests use are in a set of bits, and so are those of gathered
 * operations: a batch which uses one of them waits for their answers first.  Gathered
 * operations wait for requests in flight that use one of their names when they go out.
 */
#include "client-private.h"

#include <stdlib.h>

/* Of one request that is gathered. */
#define GATHER_OPS 512u
#define GATHER_MESSAGE ((size_t)64 << 10)
#define GATHER_BULK ((size_t)256 << 10)
/* Of a batch: a longer one is worth a request of its own. */
#define SHORT_MESSAGE ((size_t)8 << 10)
#define SHORT_BULK ((size_t)64 << 10)

#define MESSAGE_AT (VJC_HEAD_BYTES + VARJFS_WIRE_BATCH_HEAD_BYTES)
#define BULK_AT (MESSAGE_AT + GATHER_MESSAGE)

/* ---- names ------------------------------------------------------------------------- */

static bool is_key(const VjcOperation *op)
{
    return op->kind >= VARJFS_WIRE_KEY_PUT;
}

static uint32_t name_bit(const VjcOperation *op, const void *name, size_t len)
{
    uint64_t sum = XXH3_64bits(name, len) + is_key(op);

    return (uint32_t)(XXH3_64bits_withSeed(op->space, op->space_len, sum) %
                      VJC_NAMES_BITS);
}

/* The names that an operation uses: one, or two. */
static size_t name_bits(const VjcOperation *op, uint32_t bits[2])
{
    bits[0] = name_bit(op, op->name, op->name_len);
    if (op->kind != VARJFS_WIRE_OBJECT_RENAME) {
        return 1;
    }
    bits[1] = name_bit(op, op->second, op->second_len);
    return 2;
}

static void use_names(uint64_t *names, const VjcOperation *op)
{
    uint32_t bits[2];

    for (size_t i = name_bits(op, bits); i > 0; i--) {
        names[bits[i - 1] / 64] |= UINT64_C(1) << bits[i - 1] % 64;
    }
}

static bool is_in_use(const varjfs *v, uint32_t bit)
{
    return ((v->names[bit / 64] | v->gather.names[bit / 64]) >> bit % 64 & 1) != 0;
}

int vjc_wait_for_names(const varjfs_batch *b)
{
    varjfs *v = b->v;

    if (v->deferred_count == 0 && v->gather.request == NULL) {
        return 0;
    }
    for (size_t i = 0; i < b->count; i++) {
        uint32_t bits[2];

        for (size_t j = name_bits(&b->operations[i], bits); j > 0; j--) {
            if (is_in_use(v, bits[j - 1])) {
                return vjc_wait_deferred(v, 0);
            }
        }
    }
    return 0;
}

/* ---- replies ----------------------------------------------------------------------- */

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
        uint32_t status = vjc_get32(&reply);

        (void)vjc_get64(&reply);
        if (r->error == 0) {
            r->error = vjc_status_errno(status);
        }
    }
    return vjc_reader_is_done(&reply);
}

static const VjcReplyHandler deferred_handler = {.place = place_deferred,
                                                 .finish = finish_deferred};

/* ---- requests ---------------------------------------------------------------------- */

int vjc_deferred_begin(varjfs *v, VjcRequest **out)
{
    int rc = vjc_wait_in_flight(v, VJC_DEFERRED_MAX - 1);

    *out = rc == 0 ? vjc_deferred_new(v) : NULL;
    return rc == 0 && *out == NULL ? -ENOMEM : rc;
}

static int send_deferred(varjfs *v, VjcRequest *r, uint32_t operations, uint8_t *message,
                         size_t len, const struct iovec *bulk, size_t bulk_count)
{
    r->op = VARJFS_WIRE_BATCH;
    r->handler = &deferred_handler;
    r->operations = operations;
    return vjc_send(v, r, message, len, bulk, bulk_count);
}

int vjc_deferred_send(varjfs_batch *b, VjcRequest *r, VjcLane *lane, size_t len,
                      size_t bulk_count)
{
    int rc;

    for (size_t i = 0; i < lane->part_count; i++) {
        use_names(b->v->names, &b->operations[lane->parts[i].operation]);
    }
    rc = send_deferred(b->v, r, (uint32_t)lane->part_count, lane->buffer, len, lane->out,
                       bulk_count);
    for (size_t i = 0; rc == 0 && i < lane->part_count; i++) {
        b->operations[lane->parts[i].operation].is_done = true;
    }
    return rc;
}

/* ---- gathering --------------------------------------------------------------------- */

static void empty(VjcGather *g)
{
    g->request = NULL;
    g->count = 0;
    g->message_len = g->bulk_len = 0;
    memset(g->names, 0, sizeof g->names);
}

void vjc_gather_drop(varjfs *v)
{
    VjcGather *g = &v->gather;

    if (g->request == NULL) {
        return;
    }
    if (v->late_error == 0) {
        v->late_error = v->failure;
    }
    free(g->request);
    empty(g);
}

void vjc_gather_free(varjfs *v)
{
    vjc_gather_drop(v);
    free(v->gather.bytes);
    v->gather.bytes = NULL;
}

static bool overlaps_in_flight(const varjfs *v)
{
    uint64_t both = 0;

    for (size_t i = 0; i < VJC_NAMES_BITS / 64; i++) {
        both |= v->names[i] & v->gather.names[i];
    }
    return v->deferred_count > 0 && both != 0;
}

int vjc_gather_flush(varjfs *v)
{
    VjcGather *g = &v->gather;
    VjcRequest *r = g->request;
    struct iovec bulk;
    size_t len = MESSAGE_AT + g->message_len;
    uint32_t count = g->count;
    VjcWriter w;
    int rc;

    if (r == NULL) {
        return 0;
    }
    rc = vjc_wait_in_flight(v, overlaps_in_flight(v) ? 0 : VJC_DEFERRED_MAX - 1);
    if (rc != 0) {
        return rc; /* the connection has failed, and what was gathered is dropped */
    }
    bulk = (struct iovec){.iov_base = g->bytes + BULK_AT, .iov_len = g->bulk_len};
    w = vjc_writer(g->bytes + VJC_HEAD_BYTES, VARJFS_WIRE_BATCH_HEAD_BYTES);
    vjc_put_number(&w, 0, 1);
    vjc_put_number(&w, VARJFS_WIRE_SAFETY_NONE, 1);
    vjc_put_number(&w, 0, 2);
    vjc_put_number(&w, count, 4);
    for (size_t i = 0; i < VJC_NAMES_BITS / 64; i++) {
        v->names[i] |= g->names[i];
    }
    empty(g);
    return send_deferred(v, r, count, g->bytes, len, &bulk, bulk.iov_len > 0 ? 1 : 0);
}

/* Its operations may go out with others, later. */
static bool may_wait(const varjfs_batch *b, size_t *message, size_t *bulk)
{
    const struct varjfs_semantics *s = &b->semantics;

    *message = *bulk = 0;
    if (s->safety != VARJFS_SAFETY_NONE || s->consistency > VARJFS_CONSISTENCY_SESSION ||
        s->atomicity == VARJFS_ATOMICITY_BATCH || b->count == 0 ||
        (s->ordering == VARJFS_ORDERING_STRICT && b->count > 1)) {
        return false;
    }
    for (size_t i = 0; i < b->count; i++) {
        const VjcOperation *op = &b->operations[i];

        *message += vjc_operation_bytes(op);
        *bulk += op->len; /* of what returns something, what it returns */
        if (vjc_is_returning(op) || *message > SHORT_MESSAGE || *bulk > SHORT_BULK) {
            return false;
        }
    }
    return true;
}

/* There is room for them; else what was gathered goes out first. */
static bool make_room(varjfs *v, size_t count, size_t message, size_t bulk)
{
    VjcGather *g = &v->gather;

    if (g->count + count > GATHER_OPS || g->message_len + message > GATHER_MESSAGE ||
        g->bulk_len + bulk > GATHER_BULK) {
        if (vjc_gather_flush(v) != 0) {
            return false;
        }
    }
    if (g->bytes == NULL) {
        g->bytes = malloc(BULK_AT + GATHER_BULK);
    }
    if (g->bytes != NULL && g->request == NULL) {
        g->request = vjc_deferred_new(v); /* so that sending needs no memory */
    }
    return g->request != NULL;
}

bool vjc_gather(varjfs_batch *b)
{
    VjcGather *g = &b->v->gather;
    size_t message, bulk;
    VjcWriter w;

    if (b->v->fd < 0 || !may_wait(b, &message, &bulk) ||
        !make_room(b->v, b->count, message, bulk)) {
        return false;
    }
    w = vjc_writer(g->bytes + MESSAGE_AT + g->message_len, message);
    for (size_t i = 0; i < b->count; i++) {
        VjcOperation *op = &b->operations[i];
        VjcPart whole = {.operation = i, .brings = (uint32_t)op->len};

        vjc_encode_part(&w, op, &whole);
        if (op->len > 0) {
            memcpy(g->bytes + BULK_AT + g->bulk_len, op->src, op->len);
            g->bulk_len += op->len;
        }
        use_names(g->names, op);
        op->is_done = true;
    }
    g->message_len += message;
    g->count += (uint32_t)b->count;
    return true;
}

int vjc_wait_deferred(varjfs *v, uint32_t most)
{
    int rc = vjc_gather_flush(v);

    return rc == 0 ? vjc_wait_in_flight(v, most) : rc;
}
