/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * node-private.h - what the files of this room share
 *
 *   node.c      volumes by name, hello, the table of handlers
 *   place.c     the directory of a volume: whose it is, opening and closing
 *   objects.c   operations of the role object
 *   keys.c      operations of the role meta
 *   programs.c  operations of the role client
 *   area.c      memory that a program reads what it has asked for from
 *   form.c      content in and out, digests
 *   stats.c     what it has done, as text
 */
#ifndef VJ_NODE_NODE_PRIVATE_H
#define VJ_NODE_NODE_PRIVATE_H

#include "clients/clients.h"
#include "meta/meta.h"
#include "node/node.h"
#include "rpc/messages.h"
#include "store/store.h"

/* ---- place.c ----------------------------------------------------------------------- */

#define VJ_NODE_CONF_NAME "node.conf"
/* Changes of one transaction, bytes of memory: of an APPLY, which has what a client has
 * gathered; VJ_RPC_BULK_MAX there, and as much memory at most. */
#define VJ_NODE_TXN_BYTES_MAX ((uint64_t)VJ_RPC_BULK_MAX + 16 * VJ_MIB)

/* A directory that is open for its volume. */
typedef struct VjNodePlace {
    /* never change: */
    int dir_fd; /* and its lock; -1: of the role client, whose volume has it */
    char *path;
    uint8_t node[VJ_WIRE_UUID_BYTES];   /* of this place: as long as its disk lives */
    uint8_t volume[VJ_WIRE_UUID_BYTES]; /* whose it is */
    const char *wrap_store, *wrap_meta; /* borrowed from the node; NULL: none */
    /* one thread at a time, as roles are made and opened: */
    uint32_t made;           /* VJ_NODE_ROLE: roles that have been made for the volume */
    VjStore *store;          /* NULL: that role is not open */
    VjMeta *meta;            /* likewise */
    struct VjNodeKeys *keys; /* with meta */
    VjClients *clients;      /* of the role client; NULL: not open */
    /* atomic: a flush of the store failed, and will go on to fail while puts in doubt are
     * there, whose clients may be gone */
    gint has_failed;
} VjNodePlace;

typedef struct VjNodePlaceOpen {
    const VjNodeVolumeConf *conf;
    uint8_t volume[VJ_WIRE_UUID_BYTES];
    uint8_t role;
    uint8_t flags;                      /* VJ_HELLO_… */
    const char *wrap_store, *wrap_meta; /* borrowed as long as the place is open */
} VjNodePlaceOpen;

/*
 * vj_node_place_open - lock the directory, look whose it is, open @how->role of it
 *
 * With CREATE or ADOPT a place of no volume becomes @how->volume's: *was_empty.
 * Returns   0 and *out owned; -ENODATA it is empty; -ENXIO it is another's; -EBUSY
 *           another process uses it; else what failed, logged
 */
int vj_node_place_open(const VjNodePlaceOpen *how, VjNodePlace **out, bool *was_empty);
/* The same for a role more, of a place that is open for @how->volume. */
int vj_node_place_add(VjNodePlace *p, const VjNodePlaceOpen *how, bool *was_empty);
/* 0, or what kept the last changes from becoming durable; frees @p all the same.  NULL is
 * fine. */
int vj_node_place_close(VjNodePlace *p);

/* ---- node.c ------------------------------------------------------------------------ */

typedef struct VjNodeVolume VjNodeVolume;
typedef struct VjNodeArea VjNodeArea;

/* One connection: what requests of it find. */
typedef struct VjNodePeer {
    VjNode *node;
    char *identity;       /* as of VjRpcServerConfig.hello */
    VjNodeVolume *volume; /* NULL: of a peer without a role, with the next two */
    VjNodePlace *place;
    gint *is_gone; /* atomic: its volume is not served any more */
    uint8_t role;
    bool read_only;
    VjNodeArea *area; /* atomic; NULL: none */
} VjNodePeer;

int64_t vj_node_started_us(const VjNode *n);
/* NULL: none.  In a handler it stays. */
VjRpcServer *vj_node_server(VjNode *n);
/* How many areas there are; atomic. */
gint *vj_node_areas(VjNode *n);

static inline VjNodePeer *vj_node_peer(const VjRpcRequest *r)
{
    return vj_rpc_request_peer(r);
}

/* No message and no bulk. */
static inline void vj_node_reply_rc(VjRpcRequest *r, int rc)
{
    vj_rpc_reply(r, rc, vj_slice(NULL, 0), NULL, 0);
}

/* @message is freed. */
static inline void vj_node_reply_message(VjRpcRequest *r, GByteArray *message)
{
    vj_rpc_reply(r, 0, vj_slice(message->data, message->len), NULL, 0);
    g_byte_array_unref(message);
}

/* ---- stats.c ----------------------------------------------------------------------- */

void vj_node_stats(VjRpcRequest *r);

/* ---- objects.c --------------------------------------------------------------------- */

void vj_node_put(VjRpcRequest *r);
void vj_node_get(VjRpcRequest *r);
void vj_node_remove(VjRpcRequest *r);
void vj_node_have(VjRpcRequest *r);
void vj_node_flush(VjRpcRequest *r);
void vj_node_flush_removes(VjRpcRequest *r);
void vj_node_list(VjRpcRequest *r);
void vj_node_space(VjRpcRequest *r);
void vj_node_run_digest(VjRpcRequest *r);
void vj_node_run_put_plain(VjRpcRequest *r);
void vj_node_run_get_plain(VjRpcRequest *r);

/* ---- programs.c -------------------------------------------------------------------- */

void vj_node_batch(VjRpcRequest *r);
void vj_node_iterate(VjRpcRequest *r);
void vj_node_empty(VjRpcRequest *r);
void vj_node_sync(VjRpcRequest *r);
void vj_node_mailbox(VjRpcRequest *r);
void vj_node_bell(VjRpcRequest *r);

/* ---- area.c ------------------------------------------------------------------------ */

void vj_node_share(VjRpcRequest *r);
/* Empty: it has none. */
VjClientsArea vj_node_area(VjNodePeer *peer);
void vj_node_area_free(VjNodeArea *a); /* NULL is fine */

/* ---- keys.c ------------------------------------------------------------------------ */

typedef struct VjNodeKeys VjNodeKeys;
/* What APPLY and COUNT need to remember of the keys in @meta.  -errno. */
int vj_node_keys_new(VjMeta *meta, VjNodeKeys **out);
void vj_node_keys_free(VjNodeKeys *k); /* NULL is fine */

void vj_node_get_many(VjRpcRequest *r);
void vj_node_scan(VjRpcRequest *r);
void vj_node_apply(VjRpcRequest *r);
void vj_node_clock(VjRpcRequest *r);
void vj_node_count(VjRpcRequest *r);

#endif
