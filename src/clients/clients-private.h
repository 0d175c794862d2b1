/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * clients-private.h - what the files of this room share
 *
 *   clients.c        opening and closing, namespaces
 *   fields.c   requests and replies as bytes
 *   batch.c          a batch: its operations in order, and how safe they are
 *   objects.c        operations on objects
 *   keys.c           operations on keys
 *   iterate.c        names in order
 */
#ifndef VJ_CLIENTS_CLIENTS_PRIVATE_H
#define VJ_CLIENTS_CLIENTS_PRIVATE_H

#include "clients/clients.h"
#include "clients/fields.h"

typedef enum VjClientKind {
    VJ_CLIENT_OBJECTS,
    VJ_CLIENT_KEYS,
    VJ_CLIENT_KINDS
} VjClientKind;

/* Namespaces whose directories are remembered. */
#define VJ_CLIENT_SPACES_KEPT 4096u

struct VjClients {
    /* never change: */
    VjVolume *volume;
    VjFs *fs;
    VjMeta *meta;
    VjCaller who; /* what is made belongs to it */
    /* Bytes or keys are at other machines: what these have is what a flush has sent. */
    bool is_far;
    VjMutex lock; /* VJ_RANK_CLIENTS */
    /* guarded by lock: */
    uint64_t roots[VJ_CLIENT_KINDS];     /* inodes; 0: not known */
    GHashTable *spaces[VJ_CLIENT_KINDS]; /* name → inode, as uint64_t */
};

/* ---- clients.c --------------------------------------------------------------------- */

/* A name as files have them, with its NUL.  -EINVAL: it is none. */
int vj_client_name(VjSlice name,
                   char out[VARJFS_WIRE_NAME_MAX + 1]) G_GNUC_WARN_UNUSED_RESULT;
/*
 * The directory of all namespaces of a kind, and of one.  The volume is this process's,
 * and nothing here removes a directory: so what was found stays right.
 * @make     else -ENOENT where it is not there
 */
int vj_client_root(VjClients *c, VjClientKind kind, bool make,
                   uint64_t *ino) G_GNUC_WARN_UNUSED_RESULT;
int vj_client_space(VjClients *c, VjClientKind kind, VjSlice space, bool make,
                    uint64_t *ino) G_GNUC_WARN_UNUSED_RESULT;

/* ---- batch.c ----------------------------------------------------------------------- */

typedef struct VjClientResult {
    int rc; /* 0 or -errno */
    uint64_t value;
} VjClientResult;

/* One batch that is being carried out. */
typedef struct VjClientRun {
    VjClients *clients;
    VjClientBatch batch; /* stands before the next operation */
    bool read_only;
    uint32_t at; /* of the next operation */
    VjClientResult *results;
    VjBuf *out;          /* of what operations return; len is used; NULL: nothing is */
    GHashTable *handles; /* inode → VjHandle: objects of this batch that are open */
    GHashTable *written; /* a subset: handles alone */
    bool changes_meta;   /* a name, or a key */
} VjClientRun;

/* ---- objects.c --------------------------------------------------------------------- */

/* One operation; its result is what it returns, and *value. */
int vj_client_object(VjClientRun *run, const VjClientOp *op,
                     uint64_t *value) G_GNUC_WARN_UNUSED_RESULT;

/* ---- keys.c ------------------------------------------------------------------------ */

/*
 * A run of operations on keys, in one transaction: from run->at on, as many as follow one
 * another and may be together; run->at is behind them then.  Sets their results.
 */
void vj_client_keys(VjClientRun *run);
/* All of the batch, or nothing of it: 0, or what kept it from being done. */
int vj_client_keys_atomic(VjClientRun *run) G_GNUC_WARN_UNUSED_RESULT;

#endif
