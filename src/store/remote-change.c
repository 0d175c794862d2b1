/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-change.c - the list of nodes changes while the store is open
 *
 * In two steps, between which the caller makes the new list durable: what is to be added
 * becomes this volume's, or what is to be removed gets nothing any more; then the store
 * goes by the new list.  A locator may name a node as soon as the list has it, and never
 * before.
 *
 * What was removed keeps its place in memory, and its client until the store is closed:
 * requests of other threads may still be on their way to it.
 */
#include "store/remote-private.h"

/* How long a node that is to be added may take to answer. */
#define PROBE_US ((int64_t)10 * 1000 * 1000)

/* ---- the place at the node --------------------------------------------------------- */

/* A node that is asked to take the volume. */
typedef struct Probe {
    VjRemote *r;
    /* guarded by the store's lock: */
    bool is_over;
    int status; /* its answer, or -EPROTO */
    VjHelloReply reply;
} Probe;

static bool probe_connected(void *opaque, int status, VjSlice reply)
{
    Probe *p = opaque;
    VjHelloReply hello = {0};

    if (status == 0 && vj_hello_reply_decode(reply, &hello) < 0) {
        status = -EPROTO;
    }
    vj_mutex_lock(&p->r->lock);
    p->is_over = true;
    p->status = status;
    p->reply = hello;
    vj_cond_broadcast(&p->r->changed);
    vj_mutex_unlock(&p->r->lock);
    return status == 0;
}

static const char *reason_of(int status)
{
    switch (status) {
    case -ENXIO:
        return "it keeps another volume, or something else, at that place";
    case -EACCES:
        return "it does not admit the credentials of this volume to one of that name";
    case -EOPNOTSUPP:
        return "it has no role object for this volume";
    default:
        return g_strerror(-status);
    }
}

static bool wait_for_answer(Probe *p, VjRpcClient *client, const char *address,
                            GError **error)
{
    VjRemote *r = p->r;
    int64_t until_us = vj_clock_mono_us() + MIN(PROBE_US, r->timeout_us);
    g_autofree char *why = NULL;
    bool is_over;

    vj_mutex_lock(&r->lock);
    while (!p->is_over && vj_clock_mono_us() < until_us) {
        vj_remote_wait_until(r, until_us);
    }
    is_over = p->is_over;
    vj_mutex_unlock(&r->lock);
    if (is_over) {
        return p->status == 0 || vj_error_set(error, -p->status, "node %s: %s", address,
                                              reason_of(p->status));
    }
    why = vj_remote_seam->client_why != NULL ? vj_remote_seam->client_why(client) : NULL;
    return vj_error_set(error, ETIMEDOUT, "node %s does not answer%s%s", address,
                        why != NULL ? ": " : "", why != NULL ? why : "");
}

/* The same disk under another name would be taken for a second replica. */
static bool is_new_place(VjRemote *r, const Probe *p, const char *address, GError **error)
{
    unsigned same = UINT_MAX;

    vj_mutex_lock(&r->lock);
    VJ_NODE_EACH(i, r->places)
    {
        if (r->nodes[i].connects > 0 &&
            memcmp(r->nodes[i].place, p->reply.node, sizeof p->reply.node) == 0) {
            same = i;
        }
    }
    vj_mutex_unlock(&r->lock);
    return same == UINT_MAX ||
           vj_error_set(error, EEXIST, "node %s is node %u of the list, %s", address,
                        same, r->nodes[same].address);
}

static bool take_place(VjRemote *r, const char *address, GError **error)
{
    Probe p = {.r = r};
    VjRpcClientConfig config = {.address = address,
                                .credentials = r->credentials,
                                .hello =
                                    vj_slice(r->create_hello->data, r->create_hello->len),
                                .silence_us = r->silence_us,
                                .connected = probe_connected,
                                .opaque = &p};
    VjRpcClient *client = vj_remote_seam->client_new(&config, error);
    bool ok;

    if (client == NULL) {
        return vj_error_prefix(error, "node %s", address);
    }
    vj_remote_seam->client_connect(client);
    ok = wait_for_answer(&p, client, address, error);
    vj_remote_seam->client_free(client);
    return ok && is_new_place(r, &p, address, error);
}

/* ---- one step, and the other ------------------------------------------------------- */

/* In the list; UINT_MAX: it is not. */
static unsigned find(VjRemote *r, const char *address)
{
    unsigned found = UINT_MAX;

    vj_mutex_lock(&r->lock);
    VJ_NODE_EACH(i, r->places)
    {
        if (strcmp(r->nodes[i].address, address) == 0) {
            found = i;
        }
    }
    vj_mutex_unlock(&r->lock);
    return found;
}

static bool prepare_new(VjRemote *r, const char *address, GError **error)
{
    unsigned index = vj_remote_count(r);
    VjRemoteNode *node = &r->nodes[index];

    g_assert(index < VJ_PLACEMENT_NODES_MAX && node->client == NULL);
    if (!take_place(r, address, error)) {
        return false;
    }
    *node = (VjRemoteNode){.r = r, .index = index, .address = g_strdup(address)};
    if (!vj_remote_node_open(node, vj_slice(r->hello->data, r->hello->len), r->silence_us,
                             error)) {
        vj_remote_node_close(node);
        return false;
    }
    return true;
}

bool vj_remote_change_begin(VjStore *s, const VjNodeChange *change, GError **error)
{
    VjRemote *r = (VjRemote *)s;
    unsigned index = find(r, change->address);

    if (r->read_only) {
        return vj_error_set(error, EROFS, "the store is read-only");
    }
    if (change->kind == VJ_NODE_ADD) {
        return index != UINT_MAX || prepare_new(r, change->address, error);
    }
    g_assert(index != UINT_MAX); /* the list as text has it */
    if (change->kind == VJ_NODE_REMOVE) {
        vj_mutex_lock(&r->lock);
        r->leaving |= vj_node_bit(index);
        r->changes++;
        vj_mutex_unlock(&r->lock);
    }
    return true;
}

/* From now on it is one of the list. */
static void enter_list(VjRemote *r, uint32_t weight)
{
    unsigned index = vj_remote_count(r);
    VjRemoteNode *node = &r->nodes[index];

    vj_mutex_lock(&r->lock);
    r->weights[index] = r->own_weights[index] = weight;
    r->places |= vj_node_bit(index);
    g_atomic_int_inc(&r->node_count);
    vj_mutex_unlock(&r->lock);
    vj_remote_seam->client_connect(node->client);
    vj_log_info("store remote: node %u, %s, was added", index, node->address);
}

static void set_weight(VjRemote *r, unsigned index, uint32_t weight)
{
    vj_mutex_lock(&r->lock);
    r->weights[index] = r->own_weights[index] = weight;
    r->changes++;
    vj_mutex_unlock(&r->lock);
    vj_log_info("store remote: node %u, %s, has the weight %u", index,
                r->nodes[index].address, weight);
}

/* What it held of puts that no flush has covered is not counted on, and what was to be
 * removed there stays. */
static void leave_list(VjRemote *r, unsigned index)
{
    VjRemoteNode *node = &r->nodes[index];

    vj_mutex_lock(&r->lock);
    node->state = VJ_REMOTE_HOLE;
    node->life++; /* what it acknowledges from now on counts for nothing */
    r->live &= ~vj_node_bit(index);
    r->places &= ~vj_node_bit(index);
    r->leaving &= ~vj_node_bit(index);
    r->weights[index] = r->own_weights[index] = 0;
    vj_remote_node_lose(node, true);
    vj_remote_suspect_forget(r, node);
    g_array_set_size(node->orphans, 0);
    r->changes++;
    vj_remote_resume_all(r); /* those that wait for it */
    vj_cond_broadcast(&r->changed);
    vj_mutex_unlock(&r->lock);
    vj_log_info("store remote: node %u, %s, was removed", index, node->address);
}

void vj_remote_change_end(VjStore *s, const VjNodeChange *change, bool is_listed)
{
    VjRemote *r = (VjRemote *)s;
    unsigned index = find(r, change->address);

    switch (change->kind) {
    case VJ_NODE_ADD:
        if (index != UINT_MAX && is_listed) {
            set_weight(r, index, change->weight);
        } else if (index == UINT_MAX && is_listed) {
            enter_list(r, change->weight);
        } else if (index == UINT_MAX) {
            vj_remote_node_close(&r->nodes[vj_remote_count(r)]);
        }
        break;
    case VJ_NODE_DRAIN:
        if (is_listed) {
            set_weight(r, index, 0);
        }
        break;
    case VJ_NODE_REMOVE:
        if (is_listed) {
            leave_list(r, index);
        } else {
            vj_mutex_lock(&r->lock);
            r->leaving &= ~vj_node_bit(index);
            vj_mutex_unlock(&r->lock);
        }
        break;
    }
}

bool vj_remote_loc_names(VjStore *s, VjLoc loc, unsigned index)
{
    VjNodeSet nodes;
    uint64_t nonce;

    (void)s;
    return vj_remote_loc_decode(loc, &nonce, &nodes) && (nodes & vj_node_bit(index)) != 0;
}

bool vj_remote_loc_at(VjStore *s, VjLoc loc, unsigned index, VjLoc *out)
{
    VjRemote *r = (VjRemote *)s;
    VjNodeSet nodes;
    uint64_t nonce;

    if (index >= vj_remote_count(r) || !vj_remote_loc_decode(loc, &nonce, &nodes)) {
        return false;
    }
    *out = vj_remote_loc_encode(nonce, vj_node_bit(index));
    return true;
}
