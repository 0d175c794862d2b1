/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * clients-private.h - what the files of this room share
 *
 *   clients.c        opening and closing, namespaces
 *   fields.c         requests and replies as bytes
 *   batch.c          a batch: its operations in order, and how safe they are
 *   objects.c        operations on contents
 *   open.c           objects that are open
 *   transaction.c    operations that are one transaction of the metadata
 *   items.c, keys.c  of these: on names of objects and attributes; on keys
 *   iterate.c        names in order
 *   empty.c          a namespace that goes
 */
#ifndef VJ_CLIENTS_CLIENTS_PRIVATE_H
#define VJ_CLIENTS_CLIENTS_PRIVATE_H

#include "clients/clients.h"
#include "clients/fields.h"

#include "fs/fs-format.h"

typedef enum VjClientKind {
    VJ_CLIENT_OBJECTS,
    VJ_CLIENT_KEYS,
    VJ_CLIENT_KINDS
} VjClientKind;

/* Namespaces whose directories are remembered. */
#define VJ_CLIENT_SPACES_KEPT 4096u
/* Objects that stay open though no batch uses them. */
#define VJ_CLIENT_OPEN_KEPT 64u

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
    uint64_t forgotten;                  /* how often all of these were forgotten */
    GHashTable *open;                    /* inode → VjClientOpen */
    GQueue unused;                       /* of these, by their links; the oldest first */
    gint is_shut_out;                    /* atomic */
    VjMutex stats_lock;                  /* VJ_RANK_CLIENTS_STATS */
    VjClientsStats stats;                /* guarded by stats_lock */
};

/* ---- clients.c --------------------------------------------------------------------- */

/* A name as files have them, with its NUL.  -EINVAL: it is none. */
int vj_client_name(VjSlice name,
                   char out[VARJFS_WIRE_NAME_MAX + 1]) G_GNUC_WARN_UNUSED_RESULT;
/*
 * The directory of all namespaces of a kind, and of one.  The volume is this process's,
 * so what was found stays right, unless the namespace is deleted (empty.c): the
 * transaction that puts something into it looks.
 * @make     else -ENOENT where it is not there
 */
int vj_client_root(VjClients *c, VjClientKind kind, bool make,
                   uint64_t *ino) G_GNUC_WARN_UNUSED_RESULT;
int vj_client_space(VjClients *c, VjClientKind kind, VjSlice space, bool make,
                    uint64_t *ino) G_GNUC_WARN_UNUSED_RESULT;

/* One was deleted: they are looked for again. */
void vj_client_forget_spaces(VjClients *c);

/* Names that one transaction of a deletion looks at (empty.c). */
#define VJ_CLIENT_EMPTY_LOOK_MAX 1024u

/* ---- batch.c ----------------------------------------------------------------------- */

typedef struct VjClientResult {
    int rc; /* 0 or -errno */
    uint64_t value;
} VjClientResult;

typedef struct VjClientOpen VjClientOpen;

/* One batch that is being carried out. */
typedef struct VjClientRun {
    VjClients *clients;
    VjClientBatch batch; /* stands before the next operation */
    bool read_only;
    const VjClientsStop *stop; /* NULL: never */
    uint32_t at;               /* of the next operation */
    VjClientResult *results;
    /* Of what operations return: in the area, or in a buffer of its own, which is
     * out_buf. */
    uint8_t *out;
    size_t out_len;
    VjBuf *out_buf;
    guint *busy; /* of the area, with the bit of its slot; NULL: it is in none */
    /* Objects that this batch uses; NULL: none so far. */
    GHashTable *open;    /* inode → VjClientOpen */
    GHashTable *written; /* a subset: VjClientOpen */
    bool changes_meta;   /* a name, an attribute or a key */
    /* Operations before that one are transactions of their own. */
    uint32_t singly_until;
    int unsafe; /* 0, or why what was committed may be less safe than it is to be */
} VjClientRun;

static inline bool vj_client_is_key(uint8_t kind)
{
    return kind >= VARJFS_WIRE_KEY_PUT;
}

/* ---- open.c ------------------------------------------------------------------------ */

/* An object that is open. */
struct VjClientOpen {
    /* never change: */
    uint64_t ino;
    VjHandle *handle;
    bool is_writable;
    /* guarded by the lock of VjClients: */
    bool is_forgotten; /* not in the table: closed by its last user */
    unsigned users;
    GList link; /* in the queue of those that nobody uses */
};

/* Opens @ino, or uses what is open, until vj_client_close.  -ENOENT also where it has
 * lost its name; -EPERM and what else a file's open returns. */
int vj_client_open(VjClients *c, uint64_t ino, bool to_write,
                   VjClientOpen **out) G_GNUC_WARN_UNUSED_RESULT;
void vj_client_close(VjClients *c, VjClientOpen *o);
/* After the commit that took its name away: it does not stay open. */
void vj_client_forget(VjClients *c, uint64_t ino);
/* All of them: what no batch uses is closed now. */
void vj_client_forget_all(VjClients *c);

/* ---- objects.c --------------------------------------------------------------------- */

#define VJ_CLIENT_OBJECT_MODE (S_IFREG | 0600)

/* The object has lost its name: what was written to it in this batch need not be safe any
 * more, unless it has another name, of a program of a mount. */
void vj_client_forget_open(VjClientRun *run, uint64_t ino);
/* One operation; its result is what it returns, and *value. */
int vj_client_object(VjClientRun *run, const VjClientOp *op,
                     uint64_t *value) G_GNUC_WARN_UNUSED_RESULT;

/* ---- transaction.c ----------------------------------------------------------------- */

/* Operations of this kind are part of a transaction; with them the first write to an
 * object that an atomic batch creates. */
bool vj_client_is_in_transaction(uint8_t kind);
/*
 * A run of them, in one transaction: from run->at on, as many as follow one another and
 * may be together; run->at is behind them then.  Sets their results.  Where run->at stays
 * it is to be called again, for each by itself.
 */
void vj_client_transaction(VjClientRun *run);
/* All of the batch, or nothing of it: 0, or what kept it from being done. */
int vj_client_transaction_atomic(VjClientRun *run) G_GNUC_WARN_UNUSED_RESULT;

/* Settings that an object may be given. */
#define VJ_CLIENT_SETTINGS_MAX 3u

/* What is known of an operation before its transaction. */
typedef struct VjClientStep {
    int refused;  /* 0, or why it is not begun: its own result */
    uint64_t dir; /* of its namespace; 0: not there */
    uint64_t ino; /* of what it makes; of what it has deleted */
    bool is_creation;
    VjFsSetting *settings; /* owned; room for VJ_CLIENT_SETTINGS_MAX */
    size_t setting_count;
} VjClientStep;

/* A transaction that is being carried out. */
typedef struct VjClientTxn {
    VjClientRun *run;
    bool atomic;
    uint32_t count; /* operations of it, from run->at on */
    VjClientStep *steps;
    VjFsAfter *after;
    uint8_t *record; /* room for the value of a key; NULL until the first */
    bool writes, is_only_deletes;
    /* out: */
    bool is_stale; /* a namespace is not there any more */
    uint64_t checked_dir;
    uint32_t done;
    VjClientBatch batch; /* behind them */
    size_t out_len;
} VjClientTxn;

/* ---- keys.c ------------------------------------------------------------------------ */

/* In the transaction: the value under @key, which goes out; -ENOENT, -ERANGE. */
int vj_client_value_get(VjTxn *txn, VjClientTxn *t, const VjFsKey *key, uint32_t most,
                        VjClientResult *result) G_GNUC_WARN_UNUSED_RESULT;
int vj_client_key(VjTxn *txn, VjClientTxn *t, const VjClientStep *step,
                  const VjClientOp *op, VjClientResult *result) G_GNUC_WARN_UNUSED_RESULT;

/* ---- items.c ----------------------------------------------------------------------- */

/* An attribute that is the daemon's own: VARJFS_WIRE_RESERVED. */
#define VJ_CLIENT_RESERVED (-EKEYREJECTED)
#define VJ_CLIENT_XATTR_NAME_MAX VJ_NAME_MAX
/* As the name of an extended attribute, with its NUL.  -EINVAL, VJ_CLIENT_RESERVED. */
int vj_client_attribute_name(VjSlice name, char out[VJ_CLIENT_XATTR_NAME_MAX + 1])
    G_GNUC_WARN_UNUSED_RESULT;
/* Before the transaction: 0, or its own result; @step is cleared in any case. */
int vj_client_item_prepare(VjClientRun *run, const VjClientOp *op,
                           VjClientStep *step) G_GNUC_WARN_UNUSED_RESULT;
void vj_client_step_clear(VjClientStep *step);
int vj_client_item(VjTxn *txn, VjClientTxn *t, VjClientStep *step, const VjClientOp *op,
                   VjClientResult *result) G_GNUC_WARN_UNUSED_RESULT;

#endif
