/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * area.c - memory that a program reads and this process alone can write
 *
 * What a batch returns goes into a slot of it instead of through the socket.  The memory
 * is sealed before it is passed on: nobody can make it shorter, and who gets it can map
 * it for reading alone.  So what has been read from the store can be compared with its
 * checksums where it stands.
 */
#include "node/node-private.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of one connection, and how many of them a node has; who comes then does without. */
#define AREA_BYTES ((size_t)VARJFS_WIRE_AREA_SLOTS * VARJFS_WIRE_AREA_SLOT_BYTES)
#define AREAS_MAX 64

G_STATIC_ASSERT(VARJFS_WIRE_AREA_SLOTS < 32);

struct VjNodeArea {
    uint8_t *data;
    guint busy;   /* atomic: slots that batches are using, a bit each */
    VjNode *node; /* whose count has it */
};

/* *fd: to be passed on, owned. */
static int area_new(VjNode *n, VjNodeArea **out, int *fd)
{
    uint8_t *data;
    int rc;

    if (g_atomic_int_add(vj_node_areas(n), 1) >= AREAS_MAX) {
        g_atomic_int_add(vj_node_areas(n), -1);
        return -EBUSY;
    }
    rc = vj_shared_new("varjfs-area", AREA_BYTES, F_SEAL_FUTURE_WRITE, fd, &data);
    if (rc < 0) {
        g_atomic_int_add(vj_node_areas(n), -1);
        return rc;
    }
    *out = g_new(VjNodeArea, 1);
    **out = (VjNodeArea){.data = data, .node = n};
    return 0;
}

void vj_node_area_free(VjNodeArea *a)
{
    if (a != NULL) {
        munmap(a->data, AREA_BYTES);
        g_atomic_int_add(vj_node_areas(a->node), -1);
        g_free(a);
    }
}

VjClientsArea vj_node_area(VjNodePeer *peer)
{
    VjNodeArea *a = g_atomic_pointer_get(&peer->area);

    return a != NULL
               ? (VjClientsArea){.data = a->data, .bytes = AREA_BYTES, .busy = &a->busy}
               : (VjClientsArea){0};
}

/* In the loop's thread, as it is quick: of a connection one at a time. */
void vj_node_share(VjRpcRequest *r)
{
    VjNodePeer *peer = vj_node_peer(r);
    VjNodeArea *area;
    int fd, rc;

    if (!vj_rpc_request_has_feature(r, VJ_FEATURE_SHARE)) {
        rc = -EOPNOTSUPP;
    } else if (g_atomic_pointer_get(&peer->area) != NULL) {
        rc = -EBUSY;
    } else {
        rc = area_new(peer->node, &area, &fd);
    }
    if (rc < 0) {
        vj_node_reply_rc(r, rc);
        return;
    }
    g_atomic_pointer_set(&peer->area, area); /* before the peer knows of it; it stays */
    vj_rpc_reply_fd(r, vj_slice(NULL, 0), fd);
}
