/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * guard-private.h - the process that outlives the daemon, and what it does
 */
#ifndef VJ_FRONT_GUARD_PRIVATE_H
#define VJ_FRONT_GUARD_PRIVATE_H

#include "front/front.h"

typedef struct VjFront VjFront;

/* ---- the guard (guard.c), and what it does (mounter.c) ----------------------------- */

#define VJ_MOUNTED_TEXT_MAX 400

/* What came of an order to the guard. */
typedef struct VjMounted {
    int error;                      /* a positive errno; 0: it is done */
    bool by_helper;                 /* fusermount3 did it */
    dev_t dev;                      /* of the mount */
    char text[VJ_MOUNTED_TEXT_MAX]; /* why not; or what fusermount3 said all the same */
} VjMounted;

/* In the guard's process alone. */
void vj_mounter_mount(const VjMountPlan *plan, int fuse_fd, int comm_fd, VjMounted *out);
/* The mount answers: its device.  Waits for the daemon. */
void vj_mounter_look(const VjMountPlan *plan, VjMounted *out);
/* Has the kernel write dirty mapped pages of our mount back; a positive errno, or 0. */
int vj_mounter_sync(const VjMountPlan *plan, dev_t dev);
/* @by_helper: fusermount3 has mounted it.  Nothing to do where something else is mounted
 * by now. */
void vj_mounter_detach(const VjMountPlan *plan, dev_t dev, bool by_helper,
                       VjMounted *out);
/* From here on the system calls alone that the guard makes behind vj_mounter_mount. */
void vj_guard_confine(void);

/*
 * What makes umount(8) wait for the daemon (utab.c): a line for @mountpoint, named after
 * the calling process.  0 or -errno; -EWOULDBLOCK: another process keeps the table
 * locked.
 */
int vj_utab_add(const char *mountpoint);
int vj_utab_remove(const char *mountpoint);
bool vj_mount_has_word(const char *options, const char *word);

/* Mounts.  The connection, which the caller owns; -1 and why not.  Once. */
int vj_guard_mount(VjGuard *g, GError **error);
/* The connection is there and served: waits until the mount answers, has the guard watch
 * over it, or says in the log why it cannot.  False and @why, owned: the mount does not
 * answer. */
bool vj_guard_watch(const VjGuard *g, const VjFront *f, char **why);
/* The end on a signal; each says in the log what it could not do. */
void vj_guard_sync(const VjGuard *g);
void vj_guard_detach(const VjGuard *g);

#endif
