/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * source-lock-private.h - the directory SOURCE: opened, locked, looked into
 */
#ifndef VJ_VOLUME_SOURCE_LOCK_PRIVATE_H
#define VJ_VOLUME_SOURCE_LOCK_PRIVATE_H

#include "volume/volume.h"

/* The lock of programs before this one, which nobody makes any more. */
#define VJ_OLD_LOCK_NAME "varjfs.lock"

/*
 * vj_source_lock - take the lock of the directory @dir_fd
 *
 * @source    by which name it was opened
 * @wait_us   how long to wait for another process
 * @lock_fd   owned; closing it lets go
 * Returns    true; false with EBUSY while somebody else has it, or where @source is
 *            another directory by now
 */
bool vj_source_lock(int dir_fd, const char *source, int64_t wait_us, int *lock_fd,
                    GError **error);

/* From now on only the owner of the directory opens it, and so locks it.  Logs. */
void vj_source_close_to_others(int dir_fd, const char *source);

/* A directory in SOURCE: a descriptor, -1 with @error. */
int vj_volume_open_sub_dir(int dir_fd, const char *source, const char *name, bool create,
                           GError **error);

#endif
