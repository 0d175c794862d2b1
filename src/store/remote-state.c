/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-state.c - what the driver remote knows of its nodes
 *
 * A node is live no more when a call says that the connection is lost, or rpc does.
 */
#include "store/remote-private.h"

static uint64_t random_number(void)
{
    return vj_random_u64();
}

static const VjRemoteSeam rpc_seam = {
    .client_new = vj_rpc_client_new,
    .client_free = vj_rpc_client_free,
    .client_connect = vj_rpc_client_connect,
    .client_why = vj_rpc_client_why,
    .traffic = vj_rpc_client_traffic,
    .submit = vj_rpc_submit,
    .cancel = vj_rpc_cancel,
    .random_u64 = random_number,
};

const VjRemoteSeam *vj_remote_seam = &rpc_seam;

/* ---- live and away ----------------------------------------------------------------- */

const char *vj_remote_state_word(VjRemoteState state)
{
    static const char *const words[] = {
        [VJ_REMOTE_HOLE] = "removed",    [VJ_REMOTE_AWAY] = "away",
        [VJ_REMOTE_GREETED] = "greeted", [VJ_REMOTE_LIVE] = "live",
        [VJ_REMOTE_FOREIGN] = "foreign", [VJ_REMOTE_EMPTY] = "empty",
        [VJ_REMOTE_DOUBLE] = "double",   [VJ_REMOTE_REFUSING] = "refusing",
    };

    return words[state];
}

const char *vj_remote_state_text(VjRemoteState state)
{
    return state == VJ_REMOTE_FOREIGN  ? "of another volume"
           : state == VJ_REMOTE_DOUBLE ? "the same as another one"
                                       : vj_remote_state_word(state);
}

bool vj_remote_is_lost(const VjRpcCall *call)
{
    static const int said[] = {0,       -ENOENT, -EBADMSG, -EIO,
                               -ENOSPC, -EDQUOT, -EROFS,   -EFBIG};

    for (size_t i = 0; i < G_N_ELEMENTS(said); i++) {
        if (call->is_answered && call->rc == said[i]) {
            return false;
        }
    }
    return true;
}

void vj_remote_node_away(VjRemoteNode *node)
{
    VjRemote *r = node->r;

    vj_mutex_assert_held(&r->lock);
    if (node->state == VJ_REMOTE_LIVE) {
        r->live &= ~vj_node_bit(node->index);
        r->changes++;
    }
    if (node->state == VJ_REMOTE_LIVE && !r->stop) {
        vj_log_warn("store remote: node %u, %s, is lost; %u of %u are live", node->index,
                    node->address, vj_node_count(r->live), vj_node_count(r->places));
        vj_cond_broadcast(&r->changed);
    }
    if (node->state == VJ_REMOTE_LIVE || node->state == VJ_REMOTE_GREETED) {
        node->state = VJ_REMOTE_AWAY;
    }
}

void vj_remote_node_answered(VjRemoteNode *node, const VjRpcCall *call, uint64_t connects)
{
    vj_mutex_assert_held(&node->r->lock);
    if (call->is_answered) {
        node->answered_us = vj_clock_mono_us();
        node->is_silent = false;
    } else if ((call->rc == -ENOTCONN || call->rc == -ECONNRESET ||
                call->rc == -EPROTO) &&
               node->connects == connects && node->state == VJ_REMOTE_LIVE) {
        vj_remote_node_away(node); /* a little before lost() says so */
    }
}

/* ---- sets of nodes ----------------------------------------------------------------- */

int64_t vj_remote_deadline_us(const VjRemote *r)
{
    return vj_clock_mono_us() + r->timeout_us;
}

VjNodeSet vj_remote_live(VjRemote *r)
{
    VjNodeSet live;

    vj_mutex_lock(&r->lock);
    live = r->live;
    vj_mutex_unlock(&r->lock);
    return live;
}

VjNodeSet vj_remote_draining(VjRemote *r)
{
    VjNodeSet set = 0;

    vj_mutex_lock(&r->lock);
    VJ_NODE_EACH(i, r->places)
    {
        set |= r->weights[i] == 0 ? vj_node_bit(i) : 0;
    }
    set |= r->leaving;
    vj_mutex_unlock(&r->lock);
    return set;
}

VjNodeSet vj_remote_places(VjRemote *r)
{
    VjNodeSet places;

    vj_mutex_lock(&r->lock);
    places = r->places;
    vj_mutex_unlock(&r->lock);
    return places;
}

void vj_remote_rank(VjRemote *r, uint64_t id, uint8_t *order)
{
    uint32_t weights[VJ_PLACEMENT_NODES_MAX];
    unsigned count;

    vj_mutex_lock(&r->lock);
    count = vj_remote_count(r);
    memcpy(weights, r->weights, count * sizeof weights[0]);
    vj_mutex_unlock(&r->lock);
    if (count > 1) {
        vj_placement_rank(id, weights, count, order);
    }
    for (unsigned i = count > 1 ? count : 0; i < VJ_PLACEMENT_NODES_MAX; i++) {
        order[i] = (uint8_t)i;
    }
}

/* ---- how long gets take ------------------------------------------------------------ */

#define GET_UNIT ((int64_t)64 * 1024)

static int64_t units_of(size_t len)
{
    return MAX(((int64_t)len + GET_UNIT - 1) / GET_UNIT, 1);
}

static gint ascending(gconstpointer a, gconstpointer b, gpointer unused)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    (void)unused;
    return x < y ? -1 : x > y;
}

void vj_remote_node_note_get(VjRemoteNode *node, size_t len, int64_t us)
{
    uint32_t sorted[VJ_REMOTE_GETS_KEPT];

    vj_mutex_assert_held(&node->r->lock);
    node->gets_us[node->gets_count++ % VJ_REMOTE_GETS_KEPT] =
        (uint32_t)CLAMP(us / units_of(len), 1, UINT32_MAX);
    if (node->gets_count % (VJ_REMOTE_GETS_KEPT / 4) == 0) {
        unsigned count = MIN(node->gets_count, VJ_REMOTE_GETS_KEPT);

        memcpy(sorted, node->gets_us, sizeof sorted);
        g_qsort_with_data(sorted, (gint)count, sizeof sorted[0], ascending, NULL);
        node->hedge_us = (int64_t)sorted[count / 2] * VJ_REMOTE_HEDGE_FACTOR;
    }
}

int64_t vj_remote_node_hedge_us(const VjRemoteNode *node, size_t len)
{
    return CLAMP(node->hedge_us * units_of(len), VJ_REMOTE_HEDGE_MIN_US,
                 VJ_REMOTE_HEDGE_MAX_US);
}
