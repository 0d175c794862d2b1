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

/*
 * vj_fd_check_alive - after a sync that returned 0: had the file system given up before?
 *
 * An ext4 whose journal was aborted by a commit in the background returns 0 to an fsync
 * of what that commit should have brought, until something begins a new transaction and
 * finds out.  So this does: it sets the mode of @fd, ours, to what it is.  What does not
 * show that the file system is dead is no error.
 *
 * Returns   0; -EIO, -EROFS: what was synced before may not be durable
 * Threads   any; blocks      Locks   none
 */
int vj_fd_check_alive(int fd) G_GNUC_WARN_UNUSED_RESULT;

/* Exactly @len bytes; -EBADMSG when the file ends before. */
int vj_fd_pread_all(int fd, void *dst, size_t len,
                    uint64_t offset) G_GNUC_WARN_UNUSED_RESULT;
int vj_fd_pwritev_all(int fd, const struct iovec *iov, int iov_count,
                      uint64_t offset) G_GNUC_WARN_UNUSED_RESULT;
/*
 * Zeroes over the first @bytes, synced, in parts too, so that a sync by others does not
 * have to write all of it.
 */
int vj_fd_overwrite(int fd, uint64_t bytes) G_GNUC_WARN_UNUSED_RESULT;
int vj_fd_write_all(int fd, const void *src, size_t len) G_GNUC_WARN_UNUSED_RESULT;

/* Whether the directory @dir_fd is @root_fd or lies somewhere below it, whatever names
 * led there, also through another mount of @root_fd; not through one of a directory below
 * it alone.  -errno. */
int vj_fd_is_inside(int dir_fd, int root_fd, bool *out) G_GNUC_WARN_UNUSED_RESULT;

/* Files that are made below @dir_fd from now on are written in place, where a file system
 * that copies on write has a flag for it (NOCOW of btrfs); what is there already stays as
 * it is. */
void vj_fd_ask_in_place(int dir_fd);
/* A file that is so, or a directory that was asked. */
bool vj_fd_is_in_place(int fd);

/* The directory @dir_fd has that name, of whatever it is. */
bool vj_fd_has(int dir_fd, const char *name);

/*
 * vj_fd_drop_pages - read the file from the device from now on
 *
 * After a program that was killed right behind a failed write the page cache may hold
 * pages that the device does not, and ext4 would take the next write to them for one to a
 * block that is written already.  So what is examined, and used after that, is what the
 * device has.  Of a file that no process has open for writing.
 */
void vj_fd_drop_pages(int fd);

/*
 * vj_fd_read_ahead - have @len bytes from @offset on read into the page cache
 *
 * Waits for none of them, but for room in the queue of the device.  A hint: errors are
 * left to those who read.
 */
void vj_fd_read_ahead(int fd, uint64_t offset, uint64_t len);

/* Whether another process has @fd locked in a way that flock(2) does not show. */
typedef bool VjFdTaken(int fd);

/*
 * vj_fd_lock - flock(2) for this open file description alone, waited for until @until_us
 *
 * A thread that waits is woken by inotify when a process closes the file.
 * @until_us  of vj_clock_mono_us; a time that has passed: does not wait
 * @is_taken  NULL: there is no other way
 * Returns    0; -EWOULDBLOCK another process has it; -errno
 * Threads    any; blocks      Locks   none
 */
int vj_fd_lock(int fd, VjFdTaken *is_taken, int64_t until_us) G_GNUC_WARN_UNUSED_RESULT;
/*
 * The same, shared with other processes that do so.  *alone: no other process had it.  To
 * find that out it is locked exclusively for a moment, so a process that shares it waits
 * for at least some milliseconds.  vj_fd_lock makes it exclusive, or lets go of it.
 */
int vj_fd_lock_shared(int fd, VjFdTaken *is_taken, int64_t until_us,
                      bool *alone) G_GNUC_WARN_UNUSED_RESULT;

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
