/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fd.h - descriptors that close themselves, and I/O that is whole or an error
 *
 * All return 0 or -errno and retry EINTR and short transfers.  Threads: any; they block.
 * Locks: none may be held (they are I/O).
 */
#ifndef VJ_BASE_FD_H
#define VJ_BASE_FD_H

void vj_fd_close(int *fd); /* closes when >= 0, sets -1, keeps errno */

#define VJ_AUTO_FD __attribute__((cleanup(vj_fd_close))) int

static inline int vj_fd_steal(int *fd)
{
    int stolen = *fd;

    *fd = -1;
    return stolen;
}

/* Exactly @len bytes; -EBADMSG when the file ends before. */
int vj_fd_pread_all(int fd, void *dst, size_t len,
                    uint64_t offset) G_GNUC_WARN_UNUSED_RESULT;
int vj_fd_pwritev_all(int fd, const struct iovec *iov, int iov_count,
                      uint64_t offset) G_GNUC_WARN_UNUSED_RESULT;
int vj_fd_write_all(int fd, const void *src, size_t len) G_GNUC_WARN_UNUSED_RESULT;

/* Whether the directory @dir_fd is @root_fd or lies somewhere below it, whatever names led there, also
 * through another mount of @root_fd; not through one of a directory below it alone.  -errno. */
int vj_fd_is_inside(int dir_fd, int root_fd, bool *out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_file_replace_contents - write-to-temporary, fsync, rename, fsync of the directory
 *
 * @dir_fd   the directory; @name has no '/'
 * Crash     the old or the new contents, never a mix
 */
bool vj_file_replace_contents(int dir_fd, const char *name, const void *src, size_t len,
                              mode_t mode, GError **error);

/* Whole small file, NUL-terminated, owned; -EFBIG in the error above @max_bytes. */
char *vj_file_read_small(int dir_fd, const char *name, size_t max_bytes, size_t *len,
                         GError **error);

#endif
