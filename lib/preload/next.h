/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * next.h - the functions that ours stand in front of
 *
 * Names that the library exports so that they come before those of the C library (or of
 * the next preloaded library).  They carry no symbol version: a reference to any version
 * of the name finds them, on every machine.
 */
#ifndef VARJFS_RWRITE_NEXT_H
#define VARJFS_RWRITE_NEXT_H

#include <stdint.h>
#include <sys/types.h>

#define VJ_PUBLIC __attribute__((visibility("default")))

typedef int VjFallocate(int fd, int mode, long offset, long len);
typedef int VjFallocate64(int fd, int mode, int64_t offset, int64_t len);

typedef ssize_t VjRead(int fd, void *dst, size_t len);
typedef ssize_t VjWrite(int fd, const void *src, size_t len);
typedef ssize_t VjPread(int fd, void *dst, size_t len, long offset);
typedef ssize_t VjPread64(int fd, void *dst, size_t len, int64_t offset);
typedef ssize_t VjPwrite(int fd, const void *src, size_t len, long offset);
typedef ssize_t VjPwrite64(int fd, const void *src, size_t len, int64_t offset);

/*
 * Looked up once, when the library is loaded; a caller that is earlier (another library's
 * constructor) looks it up itself.  Never NULL: a name that is nowhere is the system
 * call.  Threads: any.  Safe in a signal handler after the library was loaded.
 */
VjFallocate *vj_next_fallocate(void);
VjFallocate64 *vj_next_fallocate64(void);
VjRead *vj_next_read(void);
VjWrite *vj_next_write(void);
VjPread *vj_next_pread(void);
VjPread64 *vj_next_pread64(void);
VjPwrite *vj_next_pwrite(void);
VjPwrite64 *vj_next_pwrite64(void);

#endif
