/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * stats.c - what a node has done, as JSON and as text for Prometheus
 *
 * Both are made of the same rows: a name, a help text, a kind and a value.  Figures of a
 * volume count from when its place was opened, those of the node from its start.
 */
#include "node/node-private.h"

/* What the message of STATS may ask for; an empty one: JSON. */
enum { AS_JSON = 0, AS_PROMETHEUS = 1 };

typedef struct Row {
    const char *name, *help;
    bool is_gauge; /* it may fall; else it counts */
    uint64_t value;
} Row;

/* ---- rows -------------------------------------------------------------------------- */

#define NODE_ROWS 10u

static void node_rows(VjNode *n, Row out[NODE_ROWS])
{
    VjRpcServer *server = vj_node_server(n);
    VjRpcServerStats s = {0};
    const int64_t up_us = vj_clock_mono_us() - vj_node_started_us(n);

    if (server != NULL) {
        vj_rpc_server_stats(server, &s);
    }
    out[0] = (Row){"uptime_seconds", "since the daemon started", true,
                   (uint64_t)up_us / G_USEC_PER_SEC};
    out[1] = (Row){"connections", "that are open", true, s.connections};
    out[2] = (Row){"accepted_total", "connections", false, s.accepted};
    out[3] = (Row){"refused_total", "connections", false, s.refused};
    out[4] =
        (Row){"protocol_errors_total", "connections that were ended for what they sent",
              false, s.protocol_errors};
    out[5] =
        (Row){"received_bytes_total", "of frames, before TLS", false, s.received_bytes};
    out[6] = (Row){"sent_bytes_total", "of frames, before TLS", false, s.sent_bytes};
    out[7] = (Row){"held_bytes", "of requests and replies in memory", true, s.held_bytes};
    out[8] = (Row){"requests_total", "of all operations", false, s.requests};
    out[9] = (Row){"failures_total", "requests that were answered with an error", false,
                   s.failures};
}

#define OP_ROWS 3u

static void op_rows(VjRpcServer *server, unsigned index, Row out[OP_ROWS])
{
    uint64_t requests = 0, failures = 0, busy_us = 0;

    if (server != NULL) {
        vj_rpc_server_op_stats(server, index, &requests, &failures, &busy_us);
    }
    out[0] = (Row){"op_requests_total", "of one operation", false, requests};
    out[1] = (Row){"op_failures_total", "of one operation", false, failures};
    out[2] =
        (Row){"op_busy_microseconds_total", "that threads spent on it", false, busy_us};
}

#define VOLUME_ROWS 24u

static void volume_rows(const VjNodeVolumeStats *v, Row out[VOLUME_ROWS])
{
    bool has_store = (v->roles & VJ_NODE_ROLE(VJ_ROLE_OBJECT)) != 0;
    bool has_meta = (v->roles & VJ_NODE_ROLE(VJ_ROLE_META)) != 0;

    out[0] = (Row){"volume_peers", "connections", true, v->peers};
    out[1] = (Row){"volume_store_open", "1: its objects are in use", true, has_store};
    out[2] = (Row){"volume_meta_open", "1: its keys are in use", true, has_meta};
    out[3] = (Row){"volume_puts_total", "objects", false, v->store.puts};
    out[4] = (Row){"volume_put_bytes_total", "of objects", false, v->store.put_bytes};
    out[5] =
        (Row){"volume_gets_total", "objects, or parts of them", false, v->store.gets};
    out[6] = (Row){"volume_get_bytes_total", "of objects", false, v->store.get_bytes};
    out[7] = (Row){"volume_removes_total", "objects", false, v->store.removes};
    out[8] = (Row){"volume_store_flushes_total", "of objects", false, v->store.flushes};
    out[9] = (Row){"volume_store_failures_total", "calls of the store", false,
                   v->store.failures};
    out[10] = (Row){"volume_commits_total", "batches of keys", false, v->meta.commits};
    out[11] = (Row){"volume_meta_flushes_total", "of keys", false, v->meta.flushes};
    out[12] = (Row){"volume_log_records_total", "of the log of keys", false,
                    v->meta.log.records};
    out[13] =
        (Row){"volume_log_bytes_total", "of the log of keys", false, v->meta.log.bytes};
    out[14] = (Row){"volume_log_failures_total", "of the log of keys", false,
                    v->meta.log.failures};
    out[15] = (Row){"volume_clients_open", "1: it is served to programs", true,
                    (v->roles & VJ_NODE_ROLE(VJ_ROLE_CLIENT)) != 0};
    out[16] = (Row){"volume_batches_total", "of programs", false, v->clients.batches};
    out[17] = (Row){"volume_atomic_batches_total", "of programs", false,
                    v->clients.atomic_batches};
    out[18] =
        (Row){"volume_brought_bytes_total", "by operations of programs that were done",
              false, v->clients.brought_bytes};
    out[19] = (Row){"volume_returned_bytes_total", "to operations of programs", false,
                    v->clients.returned_bytes};
    out[20] = (Row){"volume_meta_rewrites_total", "of the file of keys", false,
                    v->meta.log.rewrites};
    out[21] = (Row){"volume_meta_freed_bytes_total", "given back by that", false,
                    v->meta.log.freed_bytes};
    out[22] = (Row){"volume_erasures_waiting", "what cannot be overwritten yet", true,
                    v->erasures.waiting + v->meta.log.erasures_waiting};
    out[23] = (Row){"volume_erasures_given_up_total", "what went without that", false,
                    v->erasures.given_up + v->meta.log.erasures_given_up};
}

#define CLIENT_OP_ROWS 3u

static void client_op_rows(const VjNodeVolumeStats *v, unsigned kind,
                           Row out[CLIENT_OP_ROWS])
{
    out[0] = (Row){"volume_operations_total", "of programs, that were done", false,
                   v->clients.ops[kind].done};
    out[1] = (Row){"volume_operation_failures_total", "of programs, that failed", false,
                   v->clients.ops[kind].failed};
    out[2] =
        (Row){"volume_operations_canceled_total", "of programs, behind one that failed",
              false, v->clients.ops[kind].canceled};
}

/* ---- JSON -------------------------------------------------------------------------- */

/* Names of rows, operations and volumes have no character that JSON wants escaped. */
static void json_rows(GString *to, const Row *rows, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        g_string_append_printf(to, "%s\"%s\":%" G_GUINT64_FORMAT, i > 0 ? "," : "",
                               rows[i].name, rows[i].value);
    }
}

static void json_client_ops(GString *to, const VjNodeVolumeStats *v)
{
    Row rows[CLIENT_OP_ROWS];
    bool is_first = true;

    g_string_append(to, ",\"operations\":{");
    for (unsigned kind = 0; kind < VJ_CLIENTS_OPS_MAX; kind++) {
        if (vj_clients_op_name(kind) != NULL) {
            client_op_rows(v, kind, rows);
            g_string_append_printf(to, "%s\"%s\":{", is_first ? "" : ",",
                                   vj_clients_op_name(kind));
            json_rows(to, rows, CLIENT_OP_ROWS);
            g_string_append_c(to, '}');
            is_first = false;
        }
    }
    g_string_append_c(to, '}');
}

static void json_volume(void *opaque, const VjNodeVolumeStats *v)
{
    GString *to = opaque;
    Row rows[VOLUME_ROWS];

    volume_rows(v, rows);
    g_string_append_printf(to, "%s{\"volume\":\"%s\",",
                           to->str[to->len - 1] == '}' ? "," : "", v->name);
    json_rows(to, rows, VOLUME_ROWS);
    if ((v->roles & VJ_NODE_ROLE(VJ_ROLE_CLIENT)) != 0) {
        json_client_ops(to, v);
    }
    g_string_append_c(to, '}');
}

static void json(VjNode *n, const char *identity, GString *to)
{
    VjRpcServer *server = vj_node_server(n);
    Row node[NODE_ROWS], op[OP_ROWS];

    node_rows(n, node);
    g_string_append(to, "{\"node\":{");
    json_rows(to, node, NODE_ROWS);
    g_string_append(to, "},\"operations\":{");
    for (unsigned i = 0; vj_node_handlers[i].op != 0; i++) {
        op_rows(server, i, op);
        g_string_append_printf(to, "%s\"%s\":{", i > 0 ? "," : "",
                               vj_node_handlers[i].name);
        json_rows(to, op, OP_ROWS);
        g_string_append_c(to, '}');
    }
    g_string_append(to, "},\"volumes\":[");
    vj_node_each_volume(n, identity, json_volume, to);
    g_string_append(to, "]}\n");
}

/* ---- Prometheus -------------------------------------------------------------------- */

static void prometheus_head(GString *to, const Row *row)
{
    g_string_append_printf(to, "# HELP varjfsd_%s %s\n# TYPE varjfsd_%s %s\n", row->name,
                           row->help, row->name, row->is_gauge ? "gauge" : "counter");
}

static void copy_volume(void *opaque, const VjNodeVolumeStats *v)
{
    g_array_append_vals(opaque, v, 1);
}

/* One row of all operations of all volumes that are served to programs. */
static void prometheus_client_ops(GString *to, const GArray *all, unsigned row)
{
    Row rows[CLIENT_OP_ROWS];
    bool is_first = true;

    for (guint i = 0; i < all->len; i++) {
        const VjNodeVolumeStats *v = &g_array_index(all, VjNodeVolumeStats, i);

        for (unsigned kind = 0; kind < VJ_CLIENTS_OPS_MAX; kind++) {
            if ((v->roles & VJ_NODE_ROLE(VJ_ROLE_CLIENT)) == 0 ||
                vj_clients_op_name(kind) == NULL) {
                continue;
            }
            client_op_rows(v, kind, rows);
            if (is_first) {
                prometheus_head(to, &rows[row]);
                is_first = false;
            }
            g_string_append_printf(
                to, "varjfsd_%s{volume=\"%s\",op=\"%s\"} %" G_GUINT64_FORMAT "\n",
                rows[row].name, v->name, vj_clients_op_name(kind), rows[row].value);
        }
    }
}

/* All lines of one name stand together, as the format wants it. */
static void prometheus_volumes(VjNode *n, const char *identity, GString *to)
{
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(VjNodeVolumeStats));
    Row rows[VOLUME_ROWS];

    vj_node_each_volume(n, identity, copy_volume, all);
    for (unsigned row = 0; all->len > 0 && row < VOLUME_ROWS; row++) {
        for (guint i = 0; i < all->len; i++) {
            const VjNodeVolumeStats *v = &g_array_index(all, VjNodeVolumeStats, i);

            volume_rows(v, rows);
            if (i == 0) {
                prometheus_head(to, &rows[row]);
            }
            g_string_append_printf(to,
                                   "varjfsd_%s{volume=\"%s\"} %" G_GUINT64_FORMAT "\n",
                                   rows[row].name, v->name, rows[row].value);
        }
    }
    for (unsigned row = 0; row < CLIENT_OP_ROWS; row++) {
        prometheus_client_ops(to, all, row);
    }
}

static void prometheus(VjNode *n, const char *identity, GString *to)
{
    VjRpcServer *server = vj_node_server(n);
    Row node[NODE_ROWS], op[OP_ROWS];

    node_rows(n, node);
    for (unsigned i = 0; i < NODE_ROWS; i++) {
        prometheus_head(to, &node[i]);
        g_string_append_printf(to, "varjfsd_%s %" G_GUINT64_FORMAT "\n", node[i].name,
                               node[i].value);
    }
    for (unsigned row = 0; row < OP_ROWS; row++) {
        for (unsigned i = 0; vj_node_handlers[i].op != 0; i++) {
            op_rows(server, i, op);
            if (i == 0) {
                prometheus_head(to, &op[row]);
            }
            g_string_append_printf(to, "varjfsd_%s{op=\"%s\"} %" G_GUINT64_FORMAT "\n",
                                   op[row].name, vj_node_handlers[i].name, op[row].value);
        }
    }
    prometheus_volumes(n, identity, to);
}

/* ---- the operation ----------------------------------------------------------------- */

GString *vj_node_stats_text(VjNode *n, const char *identity, bool for_prometheus)
{
    GString *text = g_string_new(NULL);

    (for_prometheus ? prometheus : json)(n, identity, text);
    return text;
}

static int read_format(VjSlice message, uint8_t *format)
{
    int rc;

    *format = AS_JSON;
    if (message.len == 0) {
        return 0;
    }
    rc = vj_wire_u8_decode(message, format);
    return rc == 0 && *format > AS_PROMETHEUS ? -EPROTO : rc;
}

void vj_node_stats(VjRpcRequest *r)
{
    const VjNodePeer *peer = vj_node_peer(r);
    GString *text;
    g_autoptr(VjBuf) bulk = NULL;
    uint8_t format;
    int rc = read_format(vj_rpc_request_message(r), &format);

    if (rc < 0) {
        vj_node_reply_rc(r, rc);
        return;
    }
    text = vj_node_stats_text(peer->node, peer->identity, format == AS_PROMETHEUS);
    bulk = text->len > VJ_WIRE_STATS_MAX ? NULL : vj_buf_new_copy(text->str, text->len);
    rc = text->len > VJ_WIRE_STATS_MAX ? -EFBIG : bulk == NULL ? -ENOMEM : 0;
    vj_rpc_reply(r, rc, vj_slice(NULL, 0), bulk, bulk != NULL ? (uint32_t)text->len : 0);
    g_string_free(text, TRUE);
}
