/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * batch.c - a batch: its operations in order, and how safe they are when it is answered
 *
 * An object that several operations of a batch use is opened once.  Operations on names,
 * attributes and keys that follow one another are one transaction (transaction.c).
 */
#include "clients/clients-private.h"

#include "rpc/frame-format.h"

/* A reply's buffer of up to this many bytes may be longer than what it has. */
#define SHORT_BYTES ((size_t)64 << 10)

static uint32_t status_of(int rc)
{
    switch (rc) {
    case -EEXIST:
        return VARJFS_WIRE_EXISTS;
    case -EINVAL:
    case -ENOTDIR: /* programs of a mount have made something else of it */
    case -EISDIR:
        return VARJFS_WIRE_NAMESPACE;
    case -EPERM:
        return VJ_WIRE_REFUSED;
    case -EDOM:
        return VARJFS_WIRE_SETTING;
    case -ERANGE:
        return VARJFS_WIRE_RANGE;
    case -EOPNOTSUPP:
        return VARJFS_WIRE_NOT_ATOMIC;
    case VJ_CLIENT_RESERVED:
        return VARJFS_WIRE_RESERVED;
    case -ENODATA:
        return VARJFS_WIRE_NO_ATTRIBUTE;
    default:
        return vj_wire_status(rc);
    }
}

static void close_one(gpointer key, gpointer value, gpointer opaque)
{
    (void)key;
    vj_client_close(opaque, value);
}

static void leave_room(VjClientRun *run)
{
    vj_buf_unref(run->out_buf);
    if (run->busy != NULL) {
        g_atomic_int_and(run->busy, ~(1u << run->batch.slot));
    }
}

static void run_clear(VjClientRun *run)
{
    if (run->open != NULL) {
        g_hash_table_foreach(run->open, close_one, run->clients);
        g_hash_table_unref(run->open);
        g_hash_table_unref(run->written);
    }
    g_free(run->results);
    leave_room(run);
}

static bool next_is_in_transaction(const VjClientRun *run)
{
    return run->batch.ops.left > 0 && vj_client_is_in_transaction(run->batch.ops.at[0]);
}

static void run_one(VjClientRun *run)
{
    VjClientResult *result = &run->results[run->at];
    VjClientOp op;

    result->rc = vj_client_op_decode(&run->batch, &op);
    g_assert(result->rc == 0); /* all of them were decoded once */
    result->rc = vj_client_object(run, &op, &result->value);
    run->at++;
}

/* Behind what failed nothing is done. */
static bool stops_before(const VjClientRun *run)
{
    return (run->batch.flags & VARJFS_WIRE_STOP) != 0 && run->at > 0 &&
           run->results[run->at - 1].rc < 0;
}

/* Nobody waits for the rest. */
static bool is_stopped(const VjClientRun *run)
{
    return run->stop != NULL && run->stop->is_wanted(run->stop->opaque);
}

static void run_all(VjClientRun *run)
{
    while (run->at < run->batch.count && !stops_before(run) && !is_stopped(run)) {
        if (next_is_in_transaction(run)) {
            vj_client_transaction(run);
        } else {
            run_one(run);
        }
    }
    for (uint32_t i = run->at; i < run->batch.count; i++) {
        run->results[i] = (VjClientResult){.rc = -ECANCELED};
    }
}

/* *any: there was something to commit. */
static int commit_written(VjClientRun *run, bool *any)
{
    VjFileTable *files = vj_volume_files(run->clients->volume);
    GHashTableIter iter;
    gpointer written;
    int rc = 0;

    *any = run->written != NULL && g_hash_table_size(run->written) > 0;
    if (!*any) {
        return 0;
    }
    g_hash_table_iter_init(&iter, run->written);
    while (rc == 0 && g_hash_table_iter_next(&iter, &written, NULL)) {
        g_autoptr(VjFile) file = NULL;

        rc = vj_file_open(files, ((const VjClientOpen *)written)->ino, &file);
        rc = rc == 0 ? vj_file_commit(file) : rc;
    }
    return rc;
}

/* The reply says that it is done: each object's content is committed, then all commits
 * are durable. */
static int make_safe(VjClientRun *run)
{
    VjClients *c = run->clients;
    uint8_t safety = run->batch.safety;
    bool any;
    int rc = run->unsafe;

    if (rc < 0 || safety == VARJFS_WIRE_SAFETY_NONE ||
        (safety == VARJFS_WIRE_SAFETY_NETWORK && !c->is_far)) {
        return rc;
    }
    rc = commit_written(run, &any);
    return rc == 0 && (run->changes_meta || any) ? vj_meta_flush(c->meta) : rc;
}

/* Replies wait for whoever is slow to take them, and their bytes alone are counted: what
 * was asked for and is not there does not stay. */
static int shorten(VjBuf **buf)
{
    VjBuf *copy;

    if ((*buf)->cap <= SHORT_BYTES || (*buf)->len > (*buf)->cap / 2) {
        return 0;
    }
    copy = vj_buf_new_copy((*buf)->data, (*buf)->len);
    if (copy == NULL) {
        return -ENOMEM;
    }
    vj_buf_unref(*buf);
    *buf = copy;
    return 0;
}

static int fill_reply(VjClientRun *run, VjClientsReply *reply)
{
    int rc = 0;

    if (run->out_buf != NULL && run->out_len > 0) {
        run->out_buf->len = run->out_len;
        rc = shorten(&run->out_buf);
    }
    if (rc < 0) {
        return rc;
    }
    reply->message = g_byte_array_sized_new(run->batch.count * VARJFS_WIRE_RESULT_BYTES);
    for (uint32_t i = 0; i < run->batch.count; i++) {
        vj_client_result_encode(reply->message, status_of(run->results[i].rc),
                                run->results[i].value);
    }
    if (run->out_buf != NULL && run->out_len > 0) {
        reply->bulk_bytes = (uint32_t)run->out_len;
        reply->bulk = g_steal_pointer(&run->out_buf);
    }
    return 0;
}

static int carry_out(VjClientRun *run, VjClientsReply *reply)
{
    int rc = 0;

    if ((run->batch.flags & VARJFS_WIRE_ATOMIC) != 0) {
        rc = vj_client_transaction_atomic(run);
    } else {
        run_all(run);
    }
    rc = rc == 0 ? make_safe(run) : rc;
    return rc == 0 ? fill_reply(run, reply) : rc;
}

/* ---- statistics -------------------------------------------------------------------- */

static const char *const op_names[VJ_CLIENTS_OPS_MAX] = {
    [VARJFS_WIRE_OBJECT_CREATE] = "object_create",
    [VARJFS_WIRE_OBJECT_DELETE] = "object_delete",
    [VARJFS_WIRE_OBJECT_STATUS] = "object_status",
    [VARJFS_WIRE_OBJECT_READ] = "object_read",
    [VARJFS_WIRE_OBJECT_WRITE] = "object_write",
    [VARJFS_WIRE_OBJECT_RWRITE] = "object_rwrite",
    [VARJFS_WIRE_OBJECT_RESIZE] = "object_resize",
    [VARJFS_WIRE_OBJECT_RENAME] = "object_rename",
    [VARJFS_WIRE_ATTRIBUTE_PUT] = "attribute_put",
    [VARJFS_WIRE_ATTRIBUTE_GET] = "attribute_get",
    [VARJFS_WIRE_ATTRIBUTE_DELETE] = "attribute_delete",
    [VARJFS_WIRE_KEY_PUT] = "key_put",
    [VARJFS_WIRE_KEY_GET] = "key_get",
    [VARJFS_WIRE_KEY_DELETE] = "key_delete",
};

const char *vj_clients_op_name(unsigned kind)
{
    return kind < VJ_CLIENTS_OPS_MAX ? op_names[kind] : NULL;
}

void vj_clients_stats(VjClients *c, VjClientsStats *out)
{
    vj_mutex_lock(&c->stats_lock);
    *out = c->stats;
    vj_mutex_unlock(&c->stats_lock);
}

/* @batch stands before the first operation; @rc: of all of it. */
static void count(VjClients *c, VjClientBatch batch, const VjClientResult *results,
                  size_t returned, int rc)
{
    VjClientOp op;

    vj_mutex_lock(&c->stats_lock);
    c->stats.batches++;
    c->stats.atomic_batches += (batch.flags & VARJFS_WIRE_ATOMIC) != 0 ? 1 : 0;
    c->stats.returned_bytes += rc == 0 ? returned : 0;
    for (uint32_t i = 0; i < batch.count && vj_client_op_decode(&batch, &op) == 0; i++) {
        int one = rc < 0 ? rc : results[i].rc;

        if (op.kind >= VJ_CLIENTS_OPS_MAX) {
            continue; /* of none that is done here */
        }
        if (one == -ESTALE) {
            g_atomic_int_set(&c->is_shut_out, 1);
        }
        if (one == 0) {
            c->stats.ops[op.kind].done++;
            c->stats.brought_bytes += op.brings.len;
        } else if (one == -ECANCELED) {
            c->stats.ops[op.kind].canceled++;
        } else {
            c->stats.ops[op.kind].failed++;
        }
    }
    vj_mutex_unlock(&c->stats_lock);
}

/*
 * Where all that operations return, @most bytes, goes.  Two batches in one slot would
 * find each other's bytes where those of the store should be, and take good objects for
 * damaged ones.
 */
static int find_room(VjClientRun *run, uint64_t most, VjClientsArea area)
{
    size_t at;

    if (run->batch.slot == 0) {
        run->out_buf = most > 0 ? vj_buf_new(most) : NULL;
        run->out = run->out_buf != NULL ? run->out_buf->data : NULL;
        return most > 0 && run->out == NULL ? -ENOMEM : 0;
    }
    at = (size_t)(run->batch.slot - 1) * VARJFS_WIRE_AREA_SLOT_BYTES;
    if (area.data == NULL || at + VARJFS_WIRE_AREA_SLOT_BYTES > area.bytes ||
        (g_atomic_int_or(area.busy, 1u << run->batch.slot) & 1u << run->batch.slot) !=
            0) {
        return -EPROTO;
    }
    run->busy = area.busy;
    run->out = area.data + at;
    return 0;
}

int vj_clients_batch(VjClients *c, VjSlice message, VjSlice bulk, bool read_only,
                     const VjClientsStop *stop, VjClientsArea area, VjClientsReply *reply)
{
    VjClientRun run = {.clients = c, .read_only = read_only, .stop = stop};
    VjClientBatch whole;
    uint64_t most;
    int rc = vj_client_batch_decode(message, bulk, &run.batch, &most);

    *reply = (VjClientsReply){0};
    if (rc < 0) {
        return rc;
    }
    whole = run.batch;
    rc = find_room(&run, most, area);
    if (rc < 0) {
        return rc;
    }
    run.results = g_try_new0(VjClientResult, run.batch.count);
    if (run.results == NULL) {
        leave_room(&run);
        return -ENOMEM;
    }
    rc = carry_out(&run, reply);
    count(c, whole, run.results, run.out_len, rc);
    run_clear(&run);
    return rc;
}
