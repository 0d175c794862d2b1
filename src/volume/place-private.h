/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * place-private.h - where a volume is: a directory, a volume file, or a text alone
 *
 * Of a place without a directory every question is answered as for one that is in order:
 * there is nothing to mark, and no checkpoint.  A volume file is locked, against other
 * processes of this machine; a text alone is not.
 */
#ifndef VJ_VOLUME_PLACE_PRIVATE_H
#define VJ_VOLUME_PLACE_PRIVATE_H

#include "meta/meta.h"
#include "store/store.h"
#include "volume/volume.h"

/* ---- what is in the directory ------------------------------------------------------ */

/* The drivers' own. */
#define VJ_META_DIR "meta"
#define VJ_OBJECTS_DIR "objects"
#define VJ_CHECKPOINTS_NAME "checkpoints"
/* The superblock is called so until all that it describes is there (place-make.c). */
#define VJ_MAKING_NAME "varjfs.making"
/* One file under one of two names: the mark of use (in-use.c). */
#define VJ_IN_USE_NAME "varjfs.inuse"
#define VJ_CLEAN_NAME "varjfs.clean"
/* There from before a restore changes anything until the volume is usable again. */
#define VJ_RESTORING_NAME "varjfs.restoring"
/* The lock file of earlier versions, which no program makes any more. */
#define VJ_OLD_LOCK_NAME "varjfs.lock"

/* Where varjfs.conf is lost nothing says which engine the metadata have: of those that
 * keep them in SOURCE there is one. */
#define VJ_ENGINE_IN_SOURCE "lmdb"

/* What a volume file was while it was locked, and now has another inode. */
#define VJ_REPLACED_SUFFIX ".replaced"

/* ---- the place (place.c) ----------------------------------------------------------- */

struct VjPlace {
    /* never change after open: */
    char *name;  /* by which it was opened; for messages */
    int dir_fd;  /* -1: it has no directory */
    int file_fd; /* of a volume file; -1: it is none */
    /* What relative names of credential files are relative to, and its path. */
    /* Of a volume file that was renewed since it was mounted: what it was, which the
     * daemon of that mount has locked; -1: there is none. */
    int replaced_fd;
    int credentials_dir_fd; /* -1: there is none; may be dir_fd */
    char *credentials_dir;  /* NULL without */
    char *conf;             /* without one: the text of varjfs.conf; else NULL */
    /* one thread at a time, as volumes are opened and closed: */
    int lock_fd;      /* -1: it is not locked by us */
    bool is_shared;   /* other processes may use it too, in sessions that are shared */
    bool has_others;  /* they did when we came */
    unsigned users;   /* volumes that are open */
    bool is_marked;   /* the mark of use is ours, and durable */
    bool has_failed;  /* a volume was not closed in order: the mark stays */
    bool is_restored; /* the mark of a restore goes with the mark of use */
};

/* The directory @dir_fd, which is borrowed. */
bool vj_place_open_at(int dir_fd, const char *source, VjPlace **out, GError **error);
/* As vj_place_close, for callers that have not marked it. */
void vj_place_drop(VjPlace *p);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjPlace, vj_place_drop)
/* A volume begins, and ends, to use it; @in_order: all of it is durable. */
void vj_place_enter(VjPlace *p);
void vj_place_leave(VjPlace *p, bool in_order);

/* A directory of the place, for a driver. */
typedef struct VjPlaceDir {
    char *path; /* for messages, of a driver without files too; owned */
    int fd;     /* -1: the driver needs no files; owned */
} VjPlaceDir;

#define VJ_PLACE_DIR_NONE                                                                \
    {                                                                                    \
        NULL, -1                                                                         \
    }

/*
 * vj_place_dir_open - the directory @name of @p for a driver
 *
 * @needs    of the driver: without VJ_NEEDS_FILES no directory is looked for
 * @create   it may be missing
 * Returns   false: @out->fd is -1, the path is there all the same; ENOENT; EINVAL where
 *           the place has no directory
 */
bool vj_place_dir_open(const VjPlace *p, const char *name, uint32_t needs, bool create,
                       VjPlaceDir *out, GError **error);
void vj_place_dir_close(VjPlaceDir *d);
/* Where the driver is: what @dir and @p say; both stay in use.  Other members of @out
 * stay. */
void vj_place_meta_at(const VjPlace *p, const VjPlaceDir *dir, VjMetaPlace *out);
void vj_place_store_at(const VjPlace *p, const VjPlaceDir *dir, VjStorePlace *out);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(VjPlaceDir, vj_place_dir_close)

/* ---- its lock (source-lock.c) ------------------------------------------------------ */

/*
 * vj_place_lock - which processes may use the place until it is closed
 *
 * @shared    other processes may that say so too; else none may
 * @wait_us   how long to wait for another process
 * Returns    true, also where we have the lock; false with EBUSY while another process
 *            has it, where another volume of ours has it the other way, or where the name
 *            leads to another directory by now
 */
bool vj_place_lock(VjPlace *p, bool shared, int64_t wait_us, GError **error);
/* No other process uses it.  Ends a lock that is shared. */
bool vj_place_is_last(VjPlace *p);

/* From now on only the owner of the directory opens it, and so locks it.  Logs. */
void vj_place_close_to_others(const VjPlace *p);

/* ---- whether the last user ended in order (in-use.c) ------------------------------- */

/* By a process that crashed, or by a volume of ours that was not closed in order.  Under
 * the lock. */
bool vj_place_was_left_in_use(const VjPlace *p);
/* False with EBADMSG: a restore was cut off. */
bool vj_place_check_restore(const VjPlace *p, GError **error);
/* Durable before anything else in the directory is changed.  On a full device it may not
 * be there although this returns true: p->is_marked says whether it is. */
bool vj_place_mark(VjPlace *p, GError **error);
/* After the last change is durable.  -errno. */
int vj_place_unmark(VjPlace *p) G_GNUC_WARN_UNUSED_RESULT;

/* ---- a directory for a new file system (place-make.c) ------------------------------ */

typedef struct VjPlaceMake {
    bool force; /* what is there may be destroyed */
    bool (*cancelled)(void *opaque);
    void *opaque;
} VjPlaceMake;

/* Under the lock: it may be made there, is marked as being made, and what was there is
 * gone. */
bool vj_place_make_begin(const VjPlace *p, const VjPlaceMake *how, GError **error);
/* False with ECANCELED: the caller does not want it any more. */
bool vj_place_make_go_on(const VjPlace *p, const VjPlaceMake *how, GError **error);
/* The text of varjfs.conf under the name that says that the rest is not there yet. */
bool vj_place_make_superblock(const VjPlace *p, const char *text, GError **error);
/* All is there and durable. */
bool vj_place_make_end(const VjPlace *p, GError **error);
/* After a failure.  What cannot be removed stays under the mark, as after a crash. */
void vj_place_make_undo(const VjPlace *p);

#endif
