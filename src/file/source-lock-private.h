/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * source-lock-private.h - one process at a time uses a SOURCE
 */
#ifndef VJ_FILE_SOURCE_LOCK_PRIVATE_H
#define VJ_FILE_SOURCE_LOCK_PRIVATE_H

#include "file/file.h"

/* The lock of programs before this one, which nobody makes any more. */
#define VJ_OLD_LOCK_NAME "varjfs.lock"

/*
 * vj_source_lock - take the lock of the directory @dir_fd
 *
 * @source    by which name it was opened
 * @wait_us   how long to wait for another process
 * @lock_fd   owned; closing it lets go
 * Returns    true; false with EBUSY while somebody else has it, or where @source is another
 *            directory by now
 */
bool vj_source_lock(int dir_fd, const char *source, int64_t wait_us, int *lock_fd,
                    GError **error);

/* From now on only the owner of the directory opens it, and so locks it.  Logs. */
void vj_source_close_to_others(int dir_fd, const char *source);

#endif
