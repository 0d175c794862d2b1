/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * volume-private.h - what the files of this room share
 */
#ifndef VJ_VOLUME_VOLUME_PRIVATE_H
#define VJ_VOLUME_VOLUME_PRIVATE_H

#include "base/uuid.h"
#include "chunk/chunk.h"
#include "file/records.h"
#include "file/table.h"
#include "map/map.h"
#include "object/object.h"
#include "volume/place-private.h"
#include "volume/volume.h"

/* Defaults of the mount options, bytes and seconds. */
#define VJ_CACHE_DEFAULT (256 * VJ_MIB)
#define VJ_DIRTY_DEFAULT (256 * VJ_MIB)
#define VJ_DIRTY_LEAST (32 * VJ_MIB)
#define VJ_COMMIT_SECONDS_DEFAULT 1u

/* ---- superblock (superblock.c) ----------------------------------------------------- */

/* varjfs.conf in memory.  Strings are owned. */
typedef struct VjSuperblock {
    char *uuid, *label;
    char *store, *meta; /* driver specs */
    const VjDigestOps *digest;
    const VjChunkerOps *chunker;
    VjChunkSizes sizes;
    uint64_t chunk_seed;
    VjTransform transform;
    uint64_t sequence; /* rises with each change since mkfs: the newer one counts */
    char *text;        /* of the file that it was read from; NULL: it is new */
} VjSuperblock;

#define VJ_SUPERBLOCK_MAX ((size_t)16 << 10)
#define VJ_FORMAT_VERSION 2u

void vj_superblock_clear(VjSuperblock *s);
/* Owned text that ends with the checksum line. */
char *vj_superblock_format(const VjSuperblock *s);
/* @text, which is sound, with another store and sequence number.  Owned. */
char *vj_superblock_text_with(const char *text, const char *store, uint64_t sequence);
bool vj_superblock_parse(const char *text, size_t len, VjSuperblock *out, GError **error);
/* varjfs.conf of the place and what it says.  @text: as far as it could be read; owned.
 * On failure the line begins with "varjfs.conf". */
bool vj_superblock_read(const VjPlace *p, char **text, VjSuperblock *out, GError **error);
/* The same; the line says what to do about it. */
bool vj_place_read_superblock(const VjPlace *p, VjSuperblock *out, GError **error);
/* Whether @error of vj_superblock_read is damage of a file system that was there. */
bool vj_superblock_is_lost(const VjPlace *p, const GError *error);

/* What the drivers that it names say (needs.c), and which files their specs name. */
VjDriverNeeds vj_driver_needs(const VjSuperblock *super);
void vj_driver_files(const VjSuperblock *super, VjOptFiles *files);

/* ---- volume files (volume-file.c) -------------------------------------------------- */

/* A regular file that nobody but its owner may write, or -1 and one line. */
int vj_volume_file_open(const char *path, GError **error);
/* Owned, ends with a NUL behind its *len bytes; NULL: the line does not name the file. */
char *vj_volume_file_read(int fd, size_t *len, GError **error);
/* Of the file that is to take its place: @name in the directory, made where it is not
 * there, which no other process writes while the descriptor is open.  -1 and one line. */
int vj_volume_file_open_beside(int dir_fd, const char *dir, const char *name,
                               GError **error);

/* One that mkfs makes. */
typedef struct VjVolumeFileMake {
    char *dir, *name, *making; /* its directory, and its names in it */
    int dir_fd;
    int old_fd; /* what is to be replaced; -1: nothing */
    int making_fd;
    char *uuid; /* that an earlier mkfs of the name began with; NULL: none did */
} VjVolumeFileMake;

#define VJ_VOLUME_FILE_MAKE_NONE                                                         \
    {                                                                                    \
        .dir_fd = -1, .old_fd = -1, .making_fd = -1                                      \
    }

/* It may be made; the file that is to get the name is there. */
bool vj_volume_file_make_begin(VjVolumeFileMake *m, const char *source, bool force,
                               GError **error);
/* Durable under the name that says that the rest is not there yet. */
bool vj_volume_file_make_text(VjVolumeFileMake *m, const char *text, GError **error);
/* All that it describes is there and durable. */
bool vj_volume_file_make_end(VjVolumeFileMake *m, GError **error);
/* After a failure.  @is_begun: something may have been made elsewhere. */
void vj_volume_file_make_undo(VjVolumeFileMake *m, bool is_begun);
void vj_volume_file_make_clear(VjVolumeFileMake *m);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(VjVolumeFileMake, vj_volume_file_make_clear)

/* ---- copies of varjfs.conf (superblock-copy.c) ------------------------------------- */

/* In the transaction that makes the root directory. */
int vj_superblock_record_put(VjTxn *txn, const char *text) G_GNUC_WARN_UNUSED_RESULT;
/* @text owned.  -ENOENT, -EBADMSG. */
int vj_superblock_record_get(VjTxn *txn, char **text) G_GNUC_WARN_UNUSED_RESULT;
/* The record says what varjfs.conf says.  What fails is logged: no volume is refused for
 * a copy. */
void vj_superblock_record_update(VjVolume *v);
/* The record is newer than what the place says: from now on it counts, and a line in the
 * log says so.  Before anything but the metadata is open. */
void vj_superblock_record_take_newer(VjVolume *v);
/* Durable on 0. */
int vj_superblock_record_change(VjVolume *v, const char *text) G_GNUC_WARN_UNUSED_RESULT;

/* ---- whose metadata this is (volume-record.c) -------------------------------------- */

/* In the transaction that makes the root directory. */
int vj_volume_record_put(VjTxn *txn, const char *uuid) G_GNUC_WARN_UNUSED_RESULT;
/* -ENOENT, -EBADMSG */
int vj_volume_record_get(VjMeta *m, uint8_t uuid[16]) G_GNUC_WARN_UNUSED_RESULT;
/* The metadata at @path belong to the volume @uuid; else one line that says whose they
 * are. */
bool vj_volume_record_check(VjMeta *m, const char *uuid, const char *path,
                            GError **error);
/* A record that is missing or damaged is written anew; the store has agreed with
 * @uuid. */
bool vj_volume_record_mend(VjMeta *m, const char *uuid, bool *mended, GError **error);

/* ---- whether the engine could read its file (examine.c) ---------------------------- */

/* Under the lock of the place, before vj_place_mark.  When it is due: EBADMSG and one
 * line if the engine could not; the rest goes into the log. */
bool vj_examine_before_open(const VjPlace *p, const VjSuperblock *super, VjExamine when,
                            const VjMetaPlace *place, GError **error);

/* ---- checkpoints (checkpoint.c) ---------------------------------------------------- */

typedef struct VjCheckpointer VjCheckpointer;
/* @interval_s 0: none is made but on demand. */
VjCheckpointer *vj_checkpointer_open(VjVolume *v, unsigned interval_s);
/* In this order; NULL is fine.  last: makes one if it is due, when all is written
 * back. */
void vj_checkpointer_stop(VjCheckpointer *c);
void vj_checkpointer_last(VjCheckpointer *c);
void vj_checkpointer_free(VjCheckpointer *c);

/* ---- orphans (orphan.c) ------------------------------------------------------------ */

/* How long after a failure an orphan is dropped again. */
#define VJ_DROP_RETRY_US ((int64_t)5 * 1000 * 1000)

typedef struct VjOrphanPurge VjOrphanPurge;
/* Lists the orphans of earlier mounts, which start() hands to the thread.  A thread uses
 * what the volume has of both, so both are opened before either is started. */
bool vj_orphan_purge_open(VjVolume *v, VjOrphanPurge **out, GError **error);
void vj_orphan_purge_start(VjOrphanPurge *d);
void vj_orphan_purge_close(VjOrphanPurge *d);
/* @node 0: an inode. */
void vj_orphan_purge_add(VjOrphanPurge *d, uint64_t ino, uint32_t node);
/* Waits until everything that was added is dropped or has failed once. */
void vj_orphan_purge_drain(VjOrphanPurge *d);
/* Drops, in the caller's thread, all of a session that has ended, or of this one, which
 * has none of them open any more.  The first error.  Blocks. */
int vj_orphan_purge_session(VjOrphanPurge *d, uint64_t session) G_GNUC_WARN_UNUSED_RESULT;

/* ---- other sessions (sessions.c) --------------------------------------------------- */

/* What cannot be shared yet is refused by name. */
bool vj_sessions_may_share(const VjVolume *v, const VjVolumeOpen *how, GError **error);
/* Releases what sessions that have ended left, and listens from now on.  What cannot be
 * released is logged. */
int vj_sessions_open(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;
/* No file is open any more.  Listens no longer; a shared session gives up what it has,
 * and where that fails leaves it to others. */
int vj_sessions_close(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;

/* ---- background write-back (flusher.c) --------------------------------------------- */

typedef struct VjFlusher VjFlusher;
VjFlusher *vj_flusher_open(VjFileTable *files, int64_t age_us);
void vj_flusher_close(VjFlusher *x);
/* The file has changes. */
void vj_flusher_add(VjFlusher *x, VjFile *f, VjFlushWhen when);
/* What was changed by @since_us is committed: what is not has no more than age_us from
 * then on. */
void vj_flusher_committed(VjFlusher *x, VjFile *f, int64_t since_us);
/* It has no changes any more, and need not wait until it would be due: so others may open
 * it when its last user closes it. */
void vj_flusher_clean(VjFlusher *x, VjFile *f);
/* Memory is short: write back without waiting for age.  @any: else what holds little of
 * it waits while a file that holds much is written back. */
void vj_flusher_pressure(VjFlusher *x, bool any);
/* Memory was freed elsewhere: what the allocator keeps of it is given back within
 * seconds. */
void vj_flusher_trim_soon(VjFlusher *x);

/* ---- replicas (healer.c) ----------------------------------------------------------- */

typedef struct VjHealer VjHealer;
/* Of a store with replicas.  Its thread begins with a pass over all objects. */
VjHealer *vj_healer_open(VjVolume *v);
void vj_healer_close(VjHealer *h); /* NULL is fine */

/* ---- volume (volume.c) ------------------------------------------------------------- */

/* Sums over all records, which take a walk. */
typedef struct VjUsageSums {
    uint64_t inodes, objects, plain_bytes, stored_bytes;
} VjUsageSums;

/* A walk that took longer than CHEAP is not repeated before REST times as long is
 * over. */
#define VJ_USAGE_CHEAP_US ((int64_t)50 * 1000)
#define VJ_USAGE_REST 20

struct VjVolume {
    /* never change after open: */
    VjSuperblock super;
    VjMeta *meta;
    VjStore *store;
    VjObjects *objects;
    VjFlusher *flusher;
    VjOrphanPurge *purge;
    VjFileTable *files;
    VjPlace *place;
    bool owns_place;              /* it is closed with the volume */
    VjHealer *healer;             /* NULL: read-only, a check, or no replicas */
    VjCheckpointer *checkpointer; /* NULL: read-only, a check, or no file to be copied */
    bool check;
    bool is_shared;          /* other sessions may be there */
    bool record_mended;      /* repair: that of volume-record.c */
    bool copy_mended;        /* likewise of superblock-copy.c */
    GHashTable *bytes_found; /* check: of vj_objects_check; kept for a repair */
    /* the listener for what other sessions do; set between two calls of vj_meta_listen */
    const VjVolumeEvents *events;
    void *events_opaque;
    gint is_shut_out; /* atomic */
    int64_t close_retry_us;
    int64_t drop_retry_us;   /* VJ_DROP_RETRY_US; tests make it short */
    uint64_t inodes_at_open; /* but for those that the last mount left without a name */

    VjMutex usage_lock; /* VJ_RANK_VOLUME */
    /* guarded by usage_lock: */
    VjUsageSums usage; /* of the last walk */
    int64_t usage_at_us, usage_cost_us;
    bool usage_walking;

    VjMutex super_lock; /* VJ_RANK_VOLUME */
    /* guarded by super_lock, but for one thread that changes them: super.store, .sequence
     * and .text; and */
    bool is_changing; /* the list of nodes */
};

#endif
