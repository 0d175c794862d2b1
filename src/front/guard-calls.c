/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * guard-calls.c - the system calls that the guard makes once it has mounted
 *
 * Each stands here for a line of guard.c, mounter.c or utab.c.  Which of several calls
 * the C library takes depends on the machine and on its version; a machine that lacks one
 * has another.
 */
#include "front/front-private.h"

#include <sys/syscall.h>

static const unsigned calls[] = {
    /* orders, answers, the end of the child that syncs */
    SYS_read,
    SYS_write,
    SYS_ppoll,
    SYS_wait4,
    /* files: the connection's abort file, readahead, the mount point, utab */
    SYS_openat,
    SYS_close,
    SYS_fcntl,
    SYS_statx,
    SYS_dup3,
    /* the end of the mount */
    SYS_syncfs,
    SYS_umount2,
    /* the line in utab */
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_flock,
    SYS_mkdirat,
    SYS_fchmod,
    SYS_renameat2,
    SYS_unlinkat,
#ifdef SYS_fstat
    SYS_fstat,
#endif
#ifdef SYS_renameat
    SYS_renameat,
#endif
#ifdef SYS_poll
    SYS_poll,
#endif
#ifdef SYS_newfstatat
    SYS_newfstatat,
#endif
#ifdef SYS_dup2
    SYS_dup2,
#endif
#ifdef SYS_mkdir
    SYS_mkdir,
#endif
#ifdef SYS_rename
    SYS_rename,
#endif
#ifdef SYS_unlink
    SYS_unlink,
#endif
};

void vj_guard_confine(void)
{
    int r = vj_sandbox_allow_calls(calls, G_N_ELEMENTS(calls));

    /* The daemon tries the same and says in the log what the kernel lacks. */
    if (r < 0) {
        vj_trace(front, "the guard may make all system calls: %s", g_strerror(-r));
    }
}
