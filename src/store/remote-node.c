/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-node.c - one node of the driver remote: who it is, and whether it is live
 *
 * A node is live from the answer to a first PING on.  That is sent when it has said who
 * it is, and goes out as soon as the connection takes calls; what is sent before would
 * fail.
 *
 * A life of a node ends when its process or its disk is another one: what it has
 * acknowledged and no flush has covered may be lost with it.  A connection that was lost
 * and comes back to the same process has lost nothing.
 */
#include "store/remote-private.h"

/* ---- live and away ----------------------------------------------------------------- */

static void node_live(VjRemoteNode *node)
{
    VjRemote *r = node->r;

    vj_mutex_assert_held(&r->lock);
    node->state = VJ_REMOTE_LIVE;
    node->is_silent = false;
    r->live |= vj_node_bit(node->index);
    r->connects++;
    if (r->is_open) {
        r->changes++;
        vj_log_info("store remote: node %u, %s, is there; %u of %u are live", node->index,
                    node->address, vj_node_count(r->live), vj_node_count(r->places));
    }
    vj_cond_broadcast(&r->changed);
    vj_remote_resume_all(r);
}

/* The first call of a connection. */
typedef struct PingOp {
    VjRemoteOp op;
    uint64_t connects;
} PingOp;

static void send_ping(VjRemoteNode *node, uint64_t connects);

static void ping_answered(VjRemoteOp *op, VjRemoteNode *node, VjRpcCall *call,
                          int64_t at_us, uint64_t life)
{
    const PingOp *ping = (const PingOp *)op;
    bool is_mine, is_live, goes_on;

    (void)at_us, (void)life;
    vj_mutex_lock(&op->r->lock);
    op->in_flight--;
    is_mine = node->state == VJ_REMOTE_GREETED && node->connects == ping->connects &&
              !op->r->stop;
    is_live = is_mine && call->rc == 0;
    goes_on = is_mine && call->rc == -ETIMEDOUT;
    if (is_live) {
        node_live(node);
    }
    vj_mutex_unlock(&op->r->lock);
    if (is_live) {
        vj_remote_remove_orphans(node);
    } else if (goes_on) {
        send_ping(node, ping->connects);
    }
}

static void ping_resumed(VjRemoteOp *op)
{
    (void)op;
    g_assert_not_reached();
}

static const VjRemoteOpKind ping_kind = {
    .size = sizeof(PingOp), .answered = ping_answered, .resume = ping_resumed};

static void send_ping(VjRemoteNode *node, uint64_t connects)
{
    VjRemoteOp *op = vj_remote_op_new(&ping_kind, node->r, NULL);
    VjRpcCall *call = vj_rpc_call_new(VJ_OP_PING);

    ((PingOp *)op)->connects = connects;
    op->is_over = true;
    op->in_flight = 1;
    call->waits_for_connection = true;
    call->deadline_us = vj_remote_deadline_us(node->r);
    vj_remote_op_send(op, node, call);
    vj_remote_op_unref(op);
}

/* ---- hello ------------------------------------------------------------------------- */

static VjRemoteState state_of_hello(int status, VjSlice reply, VjHelloReply *hello)
{
    switch (status) {
    case 0:
        return vj_hello_reply_decode(reply, hello) == 0 ? VJ_REMOTE_GREETED
                                                        : VJ_REMOTE_REFUSING;
    case -ENXIO:
        return VJ_REMOTE_FOREIGN;
    case -ENODATA:
        return VJ_REMOTE_EMPTY;
    default:
        return VJ_REMOTE_REFUSING;
    }
}

/* For people, owned: what the node, or the connection, says to it. */
static char *why_of(int status, VjSlice reply)
{
    char *text = status < 0 ? vj_wire_text(reply) : NULL;

    return text != NULL ? text : g_strdup(g_strerror(status != 0 ? -status : EPROTO));
}

/* Another node of the list is at the same place.  Where that one is away, and this one
 * was at another place before, the place has moved: nodes may exchange their
 * addresses. */
static bool is_double(const VjRemoteNode *node, const VjHelloReply *hello)
{
    bool has_moved =
        node->connects > 0 && memcmp(node->place, hello->node, sizeof node->place) != 0;

    vj_mutex_assert_held(&node->r->lock);
    for (unsigned i = 0; i < vj_remote_count(node->r); i++) {
        const VjRemoteNode *other = &node->r->nodes[i];

        bool is_used =
            other->state == VJ_REMOTE_LIVE || other->state == VJ_REMOTE_GREETED;

        if (other != node && other->connects > 0 && other->state != VJ_REMOTE_HOLE &&
            (is_used || !has_moved) &&
            memcmp(other->place, hello->node, sizeof other->place) == 0) {
            return true;
        }
    }
    return false;
}

/* It may have lost what it had. */
static void note_life(VjRemoteNode *node, const VjHelloReply *hello)
{
    bool other_disk =
        hello->was_empty || memcmp(node->place, hello->node, sizeof node->place) != 0;
    bool other_process =
        memcmp(node->instance, hello->instance, sizeof node->instance) != 0;

    vj_mutex_assert_held(&node->r->lock);
    if (node->connects > 0 && (other_disk || other_process)) {
        node->life++;
        vj_remote_node_lose(node, other_disk);
    }
    if (hello->was_empty && !node->r->is_new) {
        node->r->changes++;
        vj_log_warn("store remote: node %u, %s, had no objects and was taken into use",
                    node->index, node->address);
    }
    node->connects++;
    memcpy(node->place, hello->node, sizeof node->place);
    memcpy(node->instance, hello->instance, sizeof node->instance);
}

static bool node_connected(void *opaque, int status, VjSlice reply)
{
    VjRemoteNode *node = opaque;
    VjRemote *r = node->r;
    VjHelloReply hello = {0};
    VjRemoteState state = state_of_hello(status, reply, &hello);
    g_autofree char *why = NULL;
    uint64_t connects;
    bool is_other;

    vj_mutex_lock(&r->lock);
    if (node->state == VJ_REMOTE_HOLE) {
        vj_mutex_unlock(&r->lock);
        return false; /* it was removed from the list */
    }
    if (state == VJ_REMOTE_GREETED && is_double(node, &hello)) {
        state = VJ_REMOTE_DOUBLE;
    }
    if (state == VJ_REMOTE_GREETED) {
        note_life(node, &hello);
    }
    is_other = node->state != state;
    node->state = state;
    if (state == VJ_REMOTE_REFUSING) {
        why = why_of(status, reply);
        g_free(node->refusal);
        node->refusal = g_strdup(why);
        node->refusal_rc = status;
    }
    connects = node->connects;
    vj_cond_broadcast(&r->changed);
    vj_mutex_unlock(&r->lock);
    if (state == VJ_REMOTE_GREETED) {
        send_ping(node, connects);
    } else if (is_other) {
        vj_log_error("store remote: node %u, %s, is not used: it is %s%s%s", node->index,
                     node->address, vj_remote_state_text(state), why != NULL ? ": " : "",
                     why != NULL ? why : "");
    }
    return state == VJ_REMOTE_GREETED;
}

static void node_lost(void *opaque)
{
    VjRemoteNode *node = opaque;
    bool was_removed;

    vj_mutex_lock(&node->r->lock);
    was_removed = node->state == VJ_REMOTE_HOLE;
    vj_remote_node_away(node);
    vj_mutex_unlock(&node->r->lock);
    if (!was_removed) {
        vj_remote_seam->client_connect(node->client);
    }
}

/* ---- open and close ---------------------------------------------------------------- */

bool vj_remote_node_open(VjRemoteNode *node, VjSlice hello, int64_t silence_us,
                         GError **error)
{
    VjRpcClientConfig config = {.address = node->address,
                                .credentials = node->r->credentials,
                                .hello = hello,
                                .silence_us = silence_us,
                                .connected = node_connected,
                                .lost = node_lost,
                                .opaque = node};

    node->state = VJ_REMOTE_AWAY;
    node->orphans = g_array_new(FALSE, FALSE, sizeof(VjWireObject));
    node->hedge_us = VJ_REMOTE_HEDGE_FIRST_US;
    node->client = vj_remote_seam->client_new(&config, error);
    if (node->client == NULL) {
        return vj_error_prefix(error, "node %s", node->address);
    }
    return true;
}

void vj_remote_node_close(VjRemoteNode *node)
{
    if (node->client != NULL) {
        vj_remote_seam->client_free(node->client);
        node->client = NULL;
    }
    g_clear_pointer(&node->orphans, g_array_unref);
    g_clear_pointer(&node->address, g_free);
    g_clear_pointer(&node->refusal, g_free);
}
