/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * front.h - a file system behind the kernel's FUSE client: the face of the room front
 *
 * Decodes requests, calls the room fs, replies; keeps the kernel's page cache right when
 * edits change a file behind its back (README.md of this room).
 */
#ifndef VJ_FRONT_FRONT_H
#define VJ_FRONT_FRONT_H

#include "fs/fs.h"

/* Called once, from a thread of front, when the mount can be used. */
typedef void VjFrontReady(void *opaque);

/* The process that ends the kernel's connection should the daemon be killed. */
typedef struct VjGuard VjGuard;

/* What is to be mounted where. */
typedef struct VjMountPlan {
    const char *source;     /* shown as the device; absolute */
    const char *mountpoint; /* absolute, or /dev/fd/N: another process has mounted */
    const char *options; /* "a,b,…" as mount(8) has them, allow_other, auto_unmount */
    bool is_confined;    /* the guard makes few system calls once it has mounted */
} VjMountPlan;

typedef struct VjFrontConfig {
    VjFs *fs;               /* borrowed */
    const char *mountpoint; /* that of the plan */
    bool debug;             /* print every request on stderr */
    /* How long a thread polls for a request before it sleeps, at most; 0: never. */
    unsigned busy_poll_us;
    VjGuard *guard; /* borrowed */
    VjFrontReady *ready;
    void *opaque;
} VjFrontConfig;

/*
 * vj_front_block_signals - SIGTERM, SIGINT and SIGHUP are for vj_front_run alone
 *
 * Called before the process starts its first thread: threads inherit it, and one that had
 * them unblocked would die of them.
 */
void vj_front_block_signals(void);

/*
 * vj_guard_start - fork the guard, which mounts, detaches, and outlives a killed daemon
 *
 * It keeps the privileges that this takes; the caller may give up its own.  @plan is
 * borrowed for the call.  False also where /dev/fuse cannot be opened.
 * Threads   the main thread, before the process starts another one and after
 *           vj_front_block_signals
 */
VjGuard *vj_guard_start(const VjMountPlan *plan, GError **error);
/* Ends it; after vj_front_run.  NULL is fine. */
void vj_guard_end(VjGuard *g);

/* Flags of mount(2) by the words in @options, the last one of a kind; others stay as in
 * @flags. */
unsigned long vj_mount_flags(const char *options, unsigned long flags);

/* The directory that VARJFS_TEST_DELAY says requests are held up by; NULL: none.
 * Owned. */
char *vj_front_test_directory(void);

/*
 * vj_front_run - mount, serve until unmounted or stopped by SIGTERM, SIGINT or
 * SIGHUP
 *
 * On a signal dirty mapped pages are synced and the mount is detached first.  When it
 * returns no request is being served and every handle has been released.
 * Returns   true after an orderly end; false and why it could not begin or go on
 * Threads   the main thread, after vj_front_block_signals
 */
bool vj_front_run(const VjFrontConfig *config, GError **error);

#endif
