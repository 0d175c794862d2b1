/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * varjfs/rwrite.h - replace bytes of a file by more or fewer bytes
 *
 * Link with -lrwrite (pkg-config rwrite).  On varjfs an edit costs what the edit is long;
 * on any other file system the library moves the tail of the file, so that a program can
 * call these functions anywhere.  See rwrite(2).
 *
 * The library allocates nothing that outlives a call, prints nothing, installs no signal
 * handler and changes errno only when a call fails.  Threads: any.  The two functions are
 * not cancellation points.
 */
#ifndef VARJFS_RWRITE_H
#define VARJFS_RWRITE_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library takes 64-bit offsets: on 32-bit machines compile with
 * -D_FILE_OFFSET_BITS=64. */
typedef char varjfs_off_t_has_64_bits[sizeof(off_t) == 8 ? 1 : -1];

/*
 * rwrite - at the descriptor's offset, which advances by what is returned
 *
 * As rpwrite below, at the descriptor's own offset.  On a descriptor with O_APPEND the
 * position is the end of the file, so that there is nothing to replace and the call
 * appends; afterwards the offset is behind the new bytes.  Reading the offset, the edit
 * and setting the offset are separate steps: threads and processes that share an open
 * file description lock each other out themselves.
 *
 * Errors as rpwrite.
 */
ssize_t rwrite(int fd, const void *buf, size_t nbyte, size_t mbyte);

/*
 * rpwrite - the mbyte bytes at offset become the nbyte bytes of buf
 *
 * @fd      open for writing (O_WRONLY or O_RDWR), a regular file; O_APPEND does not
 *          matter
 * @buf     nbyte bytes; not looked at when nbyte is 0
 * @nbyte   bytes that will be there
 * @offset  bytes from the start of the file
 * @mbyte   bytes that are there; clipped at the end of the file, so SIZE_MAX means "all"
 *
 *   mbyte = nbyte         as pwrite(2)
 *   mbyte = 0             an insert; at the end of the file: an append
 *   nbyte = 0             a delete; beyond the end nothing happens
 *   both 0                returns 0 after checking fd; no time stamp changes
 *   offset past the end   a hole up to offset, then the data; with nbyte = 0 nothing
 *
 * Returns nbyte, or -1 and errno.  A call with nbyte of at most 8 MiB happens on varjfs
 * entirely or not at all, between any two requests and across a crash.  A longer one is
 * done in steps of 8 MiB; if a step fails the call returns the number n of bytes of buf
 * that are in the file, and has replaced the first min(n, mbyte) old bytes.  To go on:
 *
 *     rpwrite(fd, buf + n, nbyte - n, offset + n, mbyte - min(n, mbyte))
 *
 * The descriptor's offset does not move.
 *
 * Errors (nothing has changed unless it says so)
 *   EBADF       fd is closed, or not open for writing
 *   EISDIR      fd is a directory
 *   EINVAL      not a regular file; negative offset; nbyte above SSIZE_MAX
 *   EFAULT      buf is not readable
 *   EFBIG       the file would pass the largest size or RLIMIT_FSIZE (then with SIGXFSZ)
 *   ENOSPC, EDQUOT, EROFS, EIO, EINTR   as write(2)
 *   ENOMEM      no memory for a buffer of at most 256 KiB
 *   EACCES      not varjfs, fd is write-only or O_DIRECT, and the file cannot be opened
 *               again
 *   EOPNOTSUPP  not varjfs, and RWRITE_STRICT=1 was in the environment when the library
 *               was loaded; or /proc is needed (as for EACCES) and not there
 *
 * On other file systems the call is neither atomic nor safe against crashes, no other
 * thread or process may use the file meanwhile, and after EIO, ENOSPC or the like the
 * bytes behind the edit are put back where that is possible.
 */
ssize_t rpwrite(int fd, const void *buf, size_t nbyte, off_t offset, size_t mbyte);

#ifdef __cplusplus
}
#endif

#endif
