/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* programs.c - operations of the role client: each is one call of the room clients */
#include "node/node-private.h"

static VjClients *clients_of(const VjRpcRequest *r)
{
    return vj_node_peer(r)->place->clients;
}

static void reply(VjRpcRequest *r, int rc, VjClientsReply *m)
{
    VjSlice message = m->message != NULL ? vj_slice(m->message->data, m->message->len)
                                         : vj_slice(NULL, 0);

    if (rc < 0) {
        vj_node_reply_rc(r, rc);
    } else {
        vj_rpc_reply(r, 0, message, m->bulk, m->bulk_bytes);
    }
    vj_clients_reply_clear(m);
}

static bool is_canceled(void *opaque)
{
    return vj_rpc_request_is_canceled(opaque);
}

/* A volume whose session was shut out is opened anew when its programs are gone. */
static void note_shut_out(const VjRpcRequest *r)
{
    VjNodePlace *place = vj_node_peer(r)->place;

    if (vj_clients_is_shut_out(place->clients)) {
        g_atomic_int_set(&place->has_failed, 1);
    }
}

void vj_node_batch(VjRpcRequest *r)
{
    const VjClientsStop stop = {.is_wanted = is_canceled, .opaque = r};
    VjClientsReply m;
    uint32_t bytes;
    VjBuf *bulk = vj_rpc_request_bulk(r, &bytes);
    VjSlice brings = bytes > 0 ? vj_slice(bulk->data, bytes) : vj_slice(NULL, 0);
    int rc = vj_clients_batch(clients_of(r), vj_rpc_request_message(r), brings,
                              vj_node_peer(r)->read_only, &stop,
                              vj_node_area(vj_node_peer(r)), &m);

    note_shut_out(r);
    reply(r, rc, &m);
}

void vj_node_iterate(VjRpcRequest *r)
{
    VjClientsReply m;
    int rc = vj_clients_iterate(clients_of(r), vj_rpc_request_message(r), &m);

    reply(r, rc, &m);
}

/* As is_canceled, or its deadline is over. */
static bool is_over(void *opaque)
{
    return is_canceled(opaque) ||
           vj_clock_mono_us() >= vj_rpc_request_deadline_us(opaque);
}

void vj_node_empty(VjRpcRequest *r)
{
    const VjClientsStop stop = {.is_wanted = is_over, .opaque = r};
    VjClientsReply m;
    int rc = vj_clients_empty(clients_of(r), vj_rpc_request_message(r),
                              vj_node_peer(r)->read_only, &stop, &m);

    reply(r, rc, &m);
}

void vj_node_sync(VjRpcRequest *r)
{
    int rc = vj_clients_sync(clients_of(r));

    note_shut_out(r);
    vj_node_reply_rc(r, rc);
}

void vj_node_mailbox(VjRpcRequest *r)
{
    vj_rpc_reply_mailbox(r);
}

void vj_node_bell(VjRpcRequest *r)
{
    vj_rpc_reply_bell(r);
}
