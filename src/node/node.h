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

#include "clients/clients.h"
#include "meta/meta.h"
#include "node/conf.h"
#include "rpc/rpc.h"
#include "store/store.h"

typedef struct VjNode VjNode;

/*
 * vj_node_new - a node that serves what @conf says, which is borrowed for the call
 *
 * Opens nothing yet: a volume is opened by the first hello for it.
 * @wrap_store, @wrap_meta   for tests: wrappers around each store, and each engine, that
 *                           is opened; NULL: none
 * Threads   setup only
 */
VjNode *vj_node_new(const VjNodeConf *conf, const char *wrap_store,
                    const char *wrap_meta);
/*
 * vj_node_reload - volumes and who may use them as @conf says
 *
 * A volume that is not there any more is refused to the connections that it has, and is
 * closed when the last of them ends; so is one whose place is another now.  Connections
 * outlive a change of who may use their volume.  Any thread.
 */
void vj_node_reload(VjNode *n, const VjNodeConf *conf);
/*
 * vj_node_open - the place of a volume of the role client, before a peer asks for it
 *
 * It stays open as if a peer had opened it.
 * Returns   false: what kept it from being opened; EBUSY another process has it
 * Threads   setup only; blocks
 */
bool vj_node_open(VjNode *n, const char *volume, GError **error);
/* The server is gone.  Closes all volumes; 0, or the first error. */
int vj_node_free(VjNode *n) G_GNUC_WARN_UNUSED_RESULT;

/* For VjRpcServerConfig; opaque is the VjNode. */
extern const VjRpcHandler vj_node_handlers[];
int vj_node_hello(void *opaque, const char *identity, VjSlice message, uint8_t *role,
                  void **peer, GByteArray *reply);
void vj_node_gone(void *opaque, void *peer);

/* For VjCredentialsFind: the key of the volume @identity. */
bool vj_node_find_key(void *opaque, const char *identity, VjKey256 *out);

/* The identity of who has the key of [node]: statistics of all volumes are for it.  No
 * volume is called so. */
#define VJ_NODE_OPERATOR ".node"

/* What is known of one volume since its place was opened, for statistics. */
typedef struct VjNodeVolumeStats {
    const char *name;
    uint32_t roles; /* VJ_NODE_ROLE: that are open */
    unsigned peers;
    VjStoreStats store;
    VjStoreErasures erasures;
    VjMetaStats meta;
    VjClientsStats clients; /* of the role client; else zero */
} VjNodeVolumeStats;
typedef void VjNodeVolumeVisit(void *opaque, const VjNodeVolumeStats *stats);
/* Those that @identity may use.  Any thread; @visit may block. */
void vj_node_each_volume(VjNode *n, const char *identity, VjNodeVolumeVisit *visit,
                         void *opaque);
/*
 * vj_node_stats_text - the figures of the node, and of the volumes for @identity
 *
 * @for_prometheus   its text format; else one JSON object
 * Returns   owned; at most VJ_WIRE_STATS_MAX bytes, as there are so few volumes
 */
GString *vj_node_stats_text(VjNode *n, const char *identity, bool for_prometheus);
/* The server whose figures the statistics have; borrowed until another is set.  NULL
 * when its handlers have ended. */
void vj_node_set_server(VjNode *n, VjRpcServer *server);

#endif
