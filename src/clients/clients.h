/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * clients.h - objects and keys of a volume for programs: the face of the room clients
 *
 * What the role client of varjfs-protocol(7) asks for, carried out on a volume that is
 * open here as a mount opens it.  An object is a file, /.varjfs/objects/SPACE/NAME; a key
 * is a record of the directory /.varjfs/keys/SPACE; attributes of an object are extended
 * attributes of its file.  So all that holds for files holds for objects, and fsck knows
 * them.
 *
 * Messages are hostile bytes: they are decoded as a whole before anything is done.
 */
#ifndef VJ_CLIENTS_CLIENTS_H
#define VJ_CLIENTS_CLIENTS_H

#include "fs/fs.h"
#include "varjfs/client-protocol.h"
#include "volume/volume.h"

typedef struct VjClients VjClients;

/* Borrowed for the call; the wrappers for as long as it is open. */
typedef struct VjClientsOpen {
    const char *source; /* a directory that mkfs.varjfs has made */
    const char *name;   /* of the daemon, for whoever is refused meanwhile */
    const char *wrap_store, *wrap_meta; /* for tests; NULL: none */
    int64_t lock_wait_us;               /* how long another process may have it */
} VjClientsOpen;

/*
 * vj_clients_open - the volume is this process's until it is closed
 *
 * Returns   false: what vj_volume_open says
 * Threads   setup only; blocks
 */
bool vj_clients_open(const VjClientsOpen *how, VjClients **out, GError **error);
/* All is durable; 0, or the first error; frees @c all the same.  NULL is fine.  No call
 * is running. */
int vj_clients_close(VjClients *c) G_GNUC_WARN_UNUSED_RESULT;
VjVolume *vj_clients_volume(VjClients *c); /* borrowed */

/* What goes back. */
typedef struct VjClientsReply {
    GByteArray *message; /* owned; NULL: empty */
    VjBuf *bulk;         /* owned; NULL: none */
    uint32_t bulk_bytes;
} VjClientsReply;
void vj_clients_reply_clear(VjClientsReply *reply);

/*
 * vj_clients_batch - VARJFS_WIRE_BATCH
 *
 * @message    of the request
 * @bulk       of it
 * @read_only  what changes something is -EROFS
 * @stop       asked between operations, and runs of those on keys: true: the others are
 *             -ECANCELED.  NULL: never
 * @area       where what is returned goes if the request names a slot of it, which no
 *             other one may name meanwhile (-EPROTO); else into the bulk of @reply
 * Returns     0, with the result of each operation in @reply; -EPROTO the request is
 *             none, -ENOMEM: nothing was done.  Of an atomic batch also what kept all of
 *             it from being done, and of any what kept it from being as safe as it asks:
 *             then it may have been done
 * Threads     any; blocks      Locks     none
 */
typedef struct VjClientsStop {
    bool (*is_wanted)(void *opaque);
    void *opaque;
} VjClientsStop;
/* Memory that the program reads too; data NULL: there is none. */
typedef struct VjClientsArea {
    uint8_t *data;
    size_t bytes;
    guint *busy; /* atomic: slots that batches are using, a bit each */
} VjClientsArea;
int vj_clients_batch(VjClients *c, VjSlice message, VjSlice bulk, bool read_only,
                     const VjClientsStop *stop, VjClientsArea area,
                     VjClientsReply *reply) G_GNUC_WARN_UNUSED_RESULT;
/* The session of the volume was shut out: nothing can be changed any more until it is
 * closed and opened anew.  Any thread. */
bool vj_clients_is_shut_out(VjClients *c);
/* VARJFS_WIRE_ITERATE: 0; -EPROTO (also a namespace that is none), -ENOMEM, -EBADMSG,
 * -EIO.  A namespace without anything is empty. */
int vj_clients_iterate(VjClients *c, VjSlice message,
                       VjClientsReply *reply) G_GNUC_WARN_UNUSED_RESULT;
/*
 * VARJFS_WIRE_EMPTY: 0; -ENOENT there is no such namespace; -EACCES a program of a mount
 * has protected it; -EBUSY it is made anew again and again; -EROFS; -EPROTO, -EIO,
 * -ENOSPC.  It is one transaction, or several where programs of a mount have made
 * directories among many objects, and what they did stays.  @stop, as of a batch, is
 * asked between these: -ECANCELED, unless something has gone.
 */
int vj_clients_empty(VjClients *c, VjSlice message, bool read_only,
                     const VjClientsStop *stop,
                     VjClientsReply *reply) G_GNUC_WARN_UNUSED_RESULT;

/* What was asked for since it was opened. */
#define VJ_CLIENTS_OPS_MAX 32u
typedef struct VjClientsStats {
    uint64_t batches, atomic_batches;
    uint64_t brought_bytes, returned_bytes; /* of operations that were done */
    struct {
        uint64_t done, failed, canceled;
    } ops[VJ_CLIENTS_OPS_MAX]; /* by VARJFS_WIRE_OBJECT_CREATE, ... */
} VjClientsStats;
void vj_clients_stats(VjClients *c, VjClientsStats *out);
/* "object_create"; NULL: there is no such operation. */
const char *vj_clients_op_name(unsigned kind);

/* VARJFS_WIRE_SYNC */
int vj_clients_sync(VjClients *c) G_GNUC_WARN_UNUSED_RESULT;

#endif
