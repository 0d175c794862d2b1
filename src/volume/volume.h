/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * volume.h - one file system: the face of the room volume
 *
 * A volume is what mkfs made: its metadata engine, its store, its chunker and digest, and
 * the files that are open.  It is opened and closed here; its background threads write
 * back, drop orphans, copy the metadata.
 */
#ifndef VJ_VOLUME_VOLUME_H
#define VJ_VOLUME_VOLUME_H

#include "file/file.h"

/* ---- volume ------------------------------------------------------------------------ */

#define VJ_SUPERBLOCK_NAME "varjfs.conf"

typedef struct VjVolume VjVolume;

/*
 * VjPlace - where a volume is (place.c)
 *
 * SOURCE: a directory with varjfs.conf, a lock, a mark of use, checkpoints, and
 * directories for drivers that keep files.  Or, for drivers that keep none, a volume
 * file: the text of varjfs.conf, and the directory in which it stands for files with
 * credentials that it names.  Or that text alone.  Threads: setup only, one at a time.
 */
typedef struct VjPlace VjPlace;

/*
 * vj_place_open - the directory or the volume file @source
 *
 * Nothing in it is read, locked or changed.
 * Returns   true, *out owned (vj_place_close); false: ENOENT; ENOTDIR it is neither;
 *           EACCES, EFBIG: a file that others may write, that is too large
 */
bool vj_place_open(const char *source, VjPlace **out, GError **error);
/* Of the directory, or of the volume file; borrowed.  -1: it is a text. */
int vj_place_fd(const VjPlace *p);
bool vj_place_is_file(const VjPlace *p);
/* What names of credential files are relative to; borrowed.  -1: there is none. */
int vj_place_credentials_dir_fd(const VjPlace *p);
/* A text alone.  @name: for messages; @conf: as mkfs gave it (VjVolumeMake.conf).
 * Returns owned. */
VjPlace *vj_place_of_text(const char *name, const char *conf);
/*
 * Every volume that used it is closed: lets go of the lock, after the mark of use if all
 * of them were closed in order.  NULL is fine.  0; -errno: the mark stays; frees @p all
 * the same.
 */
int vj_place_close(VjPlace *p) G_GNUC_WARN_UNUSED_RESULT;

/* What the two drivers of a volume say: VJ_NEEDS_…. */
typedef struct VjDriverNeeds {
    uint32_t meta, store;
} VjDriverNeeds;

#define VJ_VOLUME_DIRS_MAX 3u

/* What a process takes that serves the volume; for a sandbox. */
typedef struct VjVolumeNeeds {
    uint32_t drivers; /* VJ_NEEDS_… of both drivers together */
    /* Files and directories in SOURCE itself are made and written; else only the mark of
     * use is made and renamed. */
    bool writes_source;
    /* Directories in SOURCE whose files are made and written: those of drivers, and of
     * checkpoints.  They may be mounts of their own. */
    const char *dirs[VJ_VOLUME_DIRS_MAX];
    unsigned dir_count;
} VjVolumeNeeds;

VjVolumeNeeds vj_volume_needs(VjDriverNeeds drivers);

/*
 * vj_volume_driver_needs - which drivers a volume has, by its varjfs.conf
 *
 * Reads that file, or the volume file, which others may have written, and nothing else.
 * @files    gets the names of credential files and devices that the drivers' specs have
 * Returns   false: there is none, or it is damaged
 */
bool vj_volume_driver_needs(const VjPlace *p, VjDriverNeeds *out, VjOptFiles *files,
                            GError **error);

/* What mkfs is about to do.  Borrowed. */
typedef struct VjVolumeMaking {
    int dir_fd;            /* SOURCE, or where the volume file is to be */
    bool is_file;          /* a volume file: names change in that directory, no more */
    bool is_new;           /* SOURCE was made */
    VjDriverNeeds drivers; /* those that were chosen */
    /* Names of credential files, relative to dir_fd, and of devices. */
    const VjOptFiles *files;
} VjVolumeMaking;

/* What mkfs decides for ever; text of varjfs.conf.  Strings are borrowed. */
typedef struct VjVolumeMake {
    /* A directory; a volume file, where that is what is there, or where nothing is there
     * and the drivers need no files.  Created if missing. */
    const char *source;
    const char *options; /* "K=V,…" of mkfs.varjfs -o; NULL: defaults */
    bool force;          /* overwrite a file system that is there */
    bool may_forget;     /* the process goes on: metadata in its memory will do */
    /* Not NULL: no directory is made or looked for, and @source is for messages alone;
     * *conf gets the text for vj_place_of_text, owned.  EINVAL: a driver needs files. */
    char **conf;
    /* SOURCE is there and has not been looked into; or NAME.making is, where a volume
     * file is made.  NULL: nothing to do. */
    void (*opened)(void *opaque, const VjVolumeMaking *making);
    /* Asked now and then; true ends it as a failure does.  NULL: it goes on to the
     * end. */
    bool (*cancelled)(void *opaque);
    void *opaque;
} VjVolumeMake;

/* When the metadata are examined before they are believed. */
typedef enum VjExamine {
    VJ_EXAMINE_AUTO, /* after a crash, and when they are few */
    VJ_EXAMINE_ALWAYS,
    VJ_EXAMINE_NEVER,
} VjExamine;

typedef struct VjVolumeOpen {
    /* Borrowed until the volume is closed, and perhaps used by other volumes of this
     * process; source does not count then.  NULL: the volume has one of its own. */
    VjPlace *place;
    const char *source;
    VjExamine examine;
    bool read_only;
    bool check;              /* fsck: do not start background work, do not recover */
    bool repair;             /* with check: the volume may be changed (repair.h) */
    uint64_t cache_bytes;    /* 0: default */
    uint64_t dirty_bytes;    /* 0: default */
    uint64_t fragment_bytes; /* 0: default */
    bool no_fragments; /* small changes that a caller waits for become objects too */
    unsigned workers;  /* 0: from the CPU count */
    unsigned commit_seconds; /* 0: default (1) */
    /* Of new files whose directory says nothing; as vj_transform_parse.  NULL: the
     * volume's. */
    const char *transform;
    const char
        *wrap_store; /* wrapper specs separated by ';', innermost first; NULL: none */
    const char *wrap_meta;
    unsigned checkpoint_seconds; /* age at which the metadata are copied; 0: never */
    bool restoring;              /* with repair: vj_volume_restore has just been */
    int64_t close_retry_us; /* how long close tries when the device is full or fails */
    int64_t lock_wait_us;   /* how long to wait for another daemon to let go of SOURCE */
    /* The session (meta/session.h), which has a record when it has a name: for people, as
     * "mount /mnt, pid 7 on host". */
    const char *session_name;
    bool shared;      /* others may have sessions at the same time, and say so too */
    int64_t lease_us; /* of a shared one; 0: VJ_LEASE_DEFAULT_US */
} VjVolumeOpen;

extern const VjOptSpec vj_volume_make_options[];

/*
 * vj_volume_make - a file system with an empty root directory owned by the caller
 *
 * Returns   false: of what it made nothing is left but, where it was made, SOURCE itself,
 *           for the caller to remove.  What of an older file system was destroyed by then
 *           is gone.
 * Crash     the next one takes what is left for what it is, without force
 * Threads   setup only
 */
bool vj_volume_make(const VjVolumeMake *how, GError **error);

/*
 * vj_volume_open - lock the place, read its superblock, recover, start background work
 *
 * Crash     safe at any point; recovery is idempotent
 * Threads   setup only; may wait lock_wait_us for the lock
 */
bool vj_volume_open(const VjVolumeOpen *how, VjVolume **out, GError **error);

/* What one hears of other sessions. */
typedef struct VjVolumeEvents {
    /* As of VjMetaEvents: another session changed @key; NULL: anything may have been
     * changed.  Neither blocks nor runs transactions. */
    void (*changed)(void *opaque, const VjKey *key);
} VjVolumeEvents;

/* Setup only.  Both borrowed until the next call; @events NULL ends it, and waits for a
 * call that runs. */
void vj_volume_listen(VjVolume *v, const VjVolumeEvents *events, void *opaque);
/* Another session has shut this one out: all its transactions fail, with -ESTALE. */
bool vj_volume_is_shut_out(VjVolume *v);
bool vj_volume_is_shared(const VjVolume *v);

/* Writes everything back and makes it durable.  0 or the first error; frees @v all the
 * same. */
int vj_volume_close(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;

/* Its last user closed it in order, and since then no program has used it. */
bool vj_volume_is_clean(const char *source);

/*
 * vj_volume_wait_released - until no process holds SOURCE (umount.fuse.varjfs)
 *
 * True when it was free; false with ETIMEDOUT after wait_us, or what kept it from
 * looking.
 * @source may belong to any user.  @foreign: another user may open it, and so hold it as
 * long as he likes.
 */
bool vj_volume_wait_released(const char *source, int64_t wait_us, bool *foreign,
                             GError **error);

/*
 * vj_volume_examine - whether the metadata engine can read what is in SOURCE
 *
 * Reads all of its pages without believing any; @say gets a line for each flaw.
 * Returns   true, with out->flaws; false: it could not look
 * Threads   setup only; may wait lock_wait_us for the lock, which it lets go of again
 */
bool vj_volume_examine(const char *source, int64_t lock_wait_us, VjMetaFlaw *say,
                       void *opaque, VjMetaExam *out, GError **error);

typedef enum VjSuperblockState {
    VJ_SUPERBLOCK_WHOLE, /* or no copy can mend what is wrong: opening it reports that */
    VJ_SUPERBLOCK_RESTORED,
    VJ_SUPERBLOCK_DAMAGED, /* or missing, and it still is */
} VjSuperblockState;

/*
 * vj_volume_mend_superblock - is varjfs.conf there and whole, and what could replace it
 *
 * @say gets a line for each thing that is wrong.  With @repair the copy in the metadata,
 * else the one in the newest checkpoint that has one, takes its place; what was there is
 * kept beside it.
 * Returns   true, with *out; false: it could not look, or write
 * Crash     the one or the other
 * Threads   setup only; may wait lock_wait_us for the lock, which it lets go of again
 */
bool vj_volume_mend_superblock(const char *source, bool repair, int64_t lock_wait_us,
                               VjMetaFlaw *say, void *opaque, VjSuperblockState *out,
                               GError **error);

/* ---- checkpoints (checkpoint.c, restore.c) ----------------------------------------- */

/* Copies of the metadata that stay; older ones go when a new one is made. */
#define VJ_CHECKPOINTS_KEPT 2u
/* "20261120T201903Z" */
#define VJ_CHECKPOINT_NAME_BYTES 17u

typedef struct VjCheckpoint {
    char name[VJ_CHECKPOINT_NAME_BYTES];
    int64_t made_s; /* seconds since 1970 */
    uint64_t commit;
    uint64_t stored_bytes;
} VjCheckpoint;

/*
 * vj_volume_checkpoint - copy the metadata as they are now
 *
 * Everything accepted before is in it.  Others go on meanwhile.
 * Returns   0; -EROFS; -EOPNOTSUPP: its engine keeps no file here; -ENOSPC: too little
 *           would be left; -EBADMSG, -EIO
 * Threads   any; blocks      Locks   none
 */
int vj_volume_checkpoint(VjVolume *v, uint64_t *stored_bytes) G_GNUC_WARN_UNUSED_RESULT;

/* Those of @source, newest first; GArray of VjCheckpoint, owned; NULL with @error. */
GArray *vj_volume_checkpoints(const char *source, GError **error);

/*
 * vj_volume_restore - put a checkpoint in the place of the metadata
 *
 * What was there is kept beside it.  Afterwards the volume is refused until it has been
 * opened with restoring and closed (vj_volume_restored): the store is newer than the
 * metadata then.
 * @name     NULL: the newest that is whole
 * @out      which one it was
 * @kept     what the metadata are called now; owned
 * Crash     the one or the other; the restore is begun again
 */
bool vj_volume_restore(const char *source, const char *name, int64_t lock_wait_us,
                       VjCheckpoint *out, char **kept, GError **error);

/*
 * vj_volume_restored - nothing that is made from now on has a number that the store or a
 * client has seen
 *
 * @v is open with restoring.  The next close without an error makes the volume usable.
 */
int vj_volume_restored(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;

/* Borrowed, until close. */
VjFileTable *vj_volume_files(VjVolume *v);
VjObjects *vj_volume_objects(VjVolume *v);
VjMeta *vj_volume_meta(VjVolume *v);
VjStore *vj_volume_store(VjVolume *v);
const VjDigestOps *vj_volume_digest(VjVolume *v);
bool vj_volume_read_only(const VjVolume *v);
/* It was opened with check. */
bool vj_volume_is_checked(const VjVolume *v);
/* Repair: how much was mended so that the volume could be opened. */
uint64_t vj_volume_mended_at_open(const VjVolume *v);
/* What the last check found of bytes in the store (vj_objects_check), for a repair. */
GHashTable *vj_volume_bytes_found(VjVolume *v);
/* Of the superblock, borrowed; the label may be empty. */
const char *vj_volume_uuid(const VjVolume *v);
const char *vj_volume_label(const VjVolume *v);
/* Inodes with a name when the volume was opened. */
uint64_t vj_volume_inodes_at_open(const VjVolume *v);
void vj_volume_set_read_only(VjVolume *v, bool read_only); /* remount */

/* Everything accepted before the call is durable on 0.  Any thread; blocks. */
int vj_volume_sync(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_volume_purge - nothing waits to be removed any more
 *
 * Orphans that no program has open are dropped, dead objects that are not pinned are
 * removed.  What fails is logged and tried again later; the error is returned.  Any
 * thread; blocks.
 */
int vj_volume_purge(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;

/* Damaged objects that one step of a scrub can name. */
#define VJ_TEND_BAD_MOST 16u

/* One step of gc or scrub: the caller begins with zeroes and goes on until the end. */
typedef struct VjTend {
    uint64_t cursor;         /* in/out; UINT64_MAX: that was the last step */
    uint64_t total;          /* out, gc: the cursor grows to about this */
    uint64_t examined;       /* added to: objects that were looked at */
    uint64_t examined_bytes; /* added to, scrub: bytes that were read */
    uint64_t found;          /* added to: objects that were removed, or are damaged */
    uint64_t found_bytes;    /* added to */
    unsigned bad_count;      /* added to, scrub: ids in bad, and more that had no place */
    uint64_t bad[VJ_TEND_BAD_MOST];
} VjTend;

/*
 * vj_volume_gc - remove what the store has and no record names
 *
 * The first step also waits until orphans are dropped and the dead removed.  Beside
 * anything else that happens; never touches what is, or is about to be, referenced.
 * Returns   0; -EROFS; what the store says: then nothing of that step was removed unseen
 * Threads   any; blocks      Locks   none
 */
int vj_volume_gc(VjVolume *v, VjTend *t) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_volume_scrub - read and verify some objects, past all caches
 *
 * What is damaged is put into the log, into @t, and out of the index.  -ENOMEM, errors of
 * meta.  Unless the volume is read only, the place is kept with the metadata: a pass that
 * was cut off goes on when the caller begins with it (vj_volume_scrub_status).  With
 * cursor 0 a new one begins.
 * Threads   any; blocks      Locks   none
 */
int vj_volume_scrub(VjVolume *v, VjTend *t) G_GNUC_WARN_UNUSED_RESULT;

/* As vj_store_describe and vj_store_grow; -EROFS. */
void vj_volume_describe_store(VjVolume *v, VjStoreTell *tell, void *opaque);
int vj_volume_grow_store(VjVolume *v, uint64_t *gained) G_GNUC_WARN_UNUSED_RESULT;
/* user.varjfs.mode has an effect. */
bool vj_volume_has_modes(const VjVolume *v);
/* Storage node @index of the volume, from 0.  False: there is none.  Any thread. */
bool vj_volume_node(VjVolume *v, unsigned index, VjStoreNode *out);
/* It gets no new objects, and a heal empties it; or does so no more.  False: as above. */
bool vj_volume_drain(VjVolume *v, unsigned index, bool drained);

/*
 * vj_volume_change_nodes - a node is added, drained or removed
 *
 * The new list is durable in the metadata before it is used; the volume file, or
 * varjfs.conf, is the caller's to renew (vj_volume_renew_conf).  ADD takes the place at
 * the node; REMOVE waits until what refers to the node is written back, and is refused
 * while it has an object that would have no replica left.
 * Returns   false: nothing is changed; EROFS, EOPNOTSUPP, EBUSY another change is under
 *           way or it has not been drained, EINVAL, ENOENT, ENOSPC, ENOTEMPTY,
 *           ETIMEDOUT.  EIO: the list may have become durable, and is used after the next
 *           open if it has
 * Threads   any; blocks      Locks   none
 */
bool vj_volume_change_nodes(VjVolume *v, const VjNodeChange *change, GError **error);
/* Objects that may have a replica at that node of the list; looks at all records. */
int vj_volume_count_at_node(VjVolume *v, const char *address,
                            uint64_t *out) G_GNUC_WARN_UNUSED_RESULT;
/* Whether @text could be varjfs.conf, or a volume file; no place is looked at. */
bool vj_volume_text_check(const char *text, size_t len, GError **error);
/* The text of the superblock as it is now; owned.  Any thread. */
char *vj_volume_conf(VjVolume *v);

typedef enum VjConfState {
    VJ_CONF_SAME,
    VJ_CONF_OLDER, /* than @text */
    VJ_CONF_RENEWED,
} VjConfState;

/*
 * vj_volume_renew_conf - the volume file, or varjfs.conf in the directory, says @text
 *
 * @text     of vj_volume_conf
 * @owner    of the mount that said it: root, or who the file belongs to
 * @renew    else it is only looked at
 * Returns   true with *out; false: EBADMSG it is of another volume, EEXIST it is newer
 *           than @text, or what kept it from being written
 * Crash     the old text or the new one; mode and owner stay
 * Threads   any; no volume need be open
 */
bool vj_volume_renew_conf(const char *source, const char *text, uid_t owner, bool renew,
                          VjConfState *out, GError **error);

/* What has been done for replicas since the volume was opened. */
typedef struct VjHealed {
    uint64_t passes;   /* over all objects */
    uint64_t examined; /* objects, in the last pass */
    uint64_t healed;   /* in all passes; and in the last one: */
    uint64_t healed_last;
    uint64_t failed; /* in the last pass; of them, without any good replica: */
    uint64_t lost;
    int error; /* of the last pass */
} VjHealed;

/*
 * vj_volume_heal - look at all objects now, and heal those that want it
 *
 * Returns   0 all have their full number of replicas; -EOPNOTSUPP the store has none;
 *           -EROFS; what the pass said: -EAGAIN too few nodes are there
 * Threads   any; blocks until a pass that began after the call is over      Locks   none
 */
int vj_volume_heal(VjVolume *v, VjHealed *out) G_GNUC_WARN_UNUSED_RESULT;

/* What one pass of scrub over all objects has read, or a part of it. */
typedef struct VjScrubPass {
    uint64_t begun_s; /* seconds since 1970 */
    uint64_t objects, bytes, damaged;
} VjScrubPass;

typedef struct VjScrubStatus {
    uint64_t place;   /* cursor with which the pass under way goes on; 0: there is none */
    VjScrubPass pass; /* the one under way; zeroes without */
    uint64_t finished_s; /* when the last complete pass ended; 0: never */
    VjScrubPass last;    /* that one; zeroes without */
} VjScrubStatus;

/* 0; -EBADMSG: the record of it is damaged; errors of meta.  Any thread; blocks. */
int vj_volume_scrub_status(VjVolume *v, VjScrubStatus *out) G_GNUC_WARN_UNUSED_RESULT;

typedef struct VjVolumeUsage {
    VjStoreSpace space;
    uint64_t reserved_bytes; /* promised to dirty data */
    uint64_t objects;        /* object records */
    uint64_t object_plain_bytes, object_stored_bytes;
    uint64_t inodes;
    uint64_t dirty_bytes, cache_bytes;
} VjVolumeUsage;

/* Walks all records, on a large volume now and then alone: for varjfsctl df, not for
 * statfs. */
int vj_volume_usage(VjVolume *v, VjVolumeUsage *out) G_GNUC_WARN_UNUSED_RESULT;
/* The store's space, and what is promised to dirty data: cheap, for statfs.  What is
 * available is without the margin that no data may take. */
int vj_volume_space(VjVolume *v, VjStoreSpace *out,
                    uint64_t *reserved_bytes) G_GNUC_WARN_UNUSED_RESULT;

/* Name → value counters since mount, for varjfsctl stats and tests; visits in fixed
 * order. */
typedef void VjCounterVisit(void *opaque, const char *name, uint64_t value);
void vj_volume_counters(VjVolume *v, VjCounterVisit *visit, void *opaque);
/* Calls of store and meta since mount, by kind; visits in fixed order. */
void vj_volume_calls(VjVolume *v, VjCallVisit *visit, void *opaque);

/*
 * vj_volume_reap - no program can reach the orphan @ino any more
 *
 * Its content, xattrs and record are dropped in the background, VJ_FILE_DROP_BATCH
 * entries a transaction.  Does nothing when there is no orphan record.  Any thread; waits
 * only while 65536 others wait to be dropped.
 */
void vj_volume_reap(VjVolume *v, uint64_t ino);

#endif
