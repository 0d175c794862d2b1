/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * source-lock-private.h - one process at a time uses a SOURCE
 */
#ifndef VJ_FILE_SOURCE_LOCK_PRIVATE_H
#define VJ_FILE_SOURCE_LOCK_PRIVATE_H

#include "file/file.h"

/*
 * vj_source_lock - take the lock of the directory @dir_fd
 *
 * @wait_us   how long to wait for another process
 * @lock_fd   owned; closing it lets go
 * Returns    true; false with EBUSY while somebody else has it
 */
bool vj_source_lock(int dir_fd, const char *source, bool read_only, int64_t wait_us,
                    int *lock_fd, GError **error);

#endif
