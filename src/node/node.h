/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * node.h - volumes served to other machines: the face of the room node
 *
 * A node has volumes by name, each in a directory of its own: objects in a local store,
 * keys in a local engine, or one of the two.  Its handlers are given to a server of room
 * rpc, whose hello decides which volume a connection is for.  It knows no files.
 */
#ifndef VJ_NODE_NODE_H
#define VJ_NODE_NODE_H

#include "node/conf.h"
#include "rpc/rpc.h"
#include "store/store.h"

typedef struct VjNode VjNode;

/* Opens nothing yet: a volume is opened by the first hello for it.  @conf is borrowed for
 * the call.  Setup only. */
VjNode *vj_node_new(const VjNodeConf *conf);
/*
 * vj_node_reload - volumes and who may use them as @conf says
 *
 * A volume that is not there any more takes no new connections, and is closed when its
 * last one ends; so is one whose place is another now.  Any thread.
 */
void vj_node_reload(VjNode *n, const VjNodeConf *conf);
/* The server is gone.  Closes all volumes; 0, or the first error. */
int vj_node_free(VjNode *n) G_GNUC_WARN_UNUSED_RESULT;

/* For VjRpcServerConfig; opaque is the VjNode. */
extern const VjRpcHandler vj_node_handlers[];
int vj_node_hello(void *opaque, const char *identity, VjSlice message, uint8_t *role,
                  void **peer, GByteArray *reply);
void vj_node_gone(void *opaque, void *peer);

/* For VjCredentialsFind: the key of the volume @identity. */
bool vj_node_find_key(void *opaque, const char *identity, VjKey256 *out);

/* What is known of one volume, for statistics. */
typedef struct VjNodeVolumeStats {
    const char *name; /* borrowed for the call */
    bool is_open;
    unsigned peers;
    VjStoreStats store;
} VjNodeVolumeStats;
typedef void VjNodeVolumeVisit(void *opaque, const VjNodeVolumeStats *stats);
void vj_node_each_volume(VjNode *n, VjNodeVolumeVisit *visit, void *opaque);

#endif
