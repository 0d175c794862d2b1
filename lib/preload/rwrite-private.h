/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rwrite-private.h - one call, between its checks (rwrite.c) and the two ways to do it
 *
 * This library lives in other people's processes: no GLib, no abort, no output, memory by
 * mmap alone (so that a signal handler may call it), results as -errno.
 */
#ifndef VARJFS_RWRITE_PRIVATE_H
#define VARJFS_RWRITE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct VjEdit {
    int fd;
    int flags;       /* as F_GETFL: never O_RDONLY, never O_PATH */
    const char *src; /* the caller's: only the kernel may look at it, it knows EFAULT */
    uint64_t len;    /* offset + len and offset + old_len fit an off_t */
    uint64_t offset;
    uint64_t old_len; /* not yet clipped at the end of the file */
    bool append;      /* at the end, whatever offset says; then old_len is 0 */
    bool hole;   /* len bytes of hole, no src: what fallocate(2) asks for, by its rules */
    uint64_t at; /* out: where it happened */
    uint64_t mount; /* a number that no other mount ever has; 0: the kernel has none */
    uint64_t ino;
    bool over_limit; /* out: with -EFBIG, the limit was the process's: SIGXFSZ is due */
} VjEdit;

/* Device number as one word; never 0 for a mounted file system. */
typedef uint32_t VjDevice;

/*
 * Fills e->flags, e->mount, e->ino and @device.  -EBADF not open for writing, -EISDIR,
 * -EINVAL not a regular file, or why it cannot be found out.
 */
int vj_edit_check_descriptor(VjEdit *e, VjDevice *device);

/* False also when it cannot be found out. */
bool vj_is_varjfs(int fd, VjDevice device);

/*
 * The edit through the ioctls of varjfs.  Bytes of src that are in the file (all, or
 * fewer after an error; 0 for a hole), -errno when nothing happened, or -EOPNOTSUPP when
 * this is not varjfs, or one that is too old for holes.
 */
int64_t vj_edit_by_ioctl(VjEdit *e, VjDevice device);

/* The same by moving the tail of the file. */
int64_t vj_edit_by_tail(VjEdit *e);

/* One ioctl argument: the header, then data. */
typedef struct VjMessage {
    char *bytes;
    size_t size;
} VjMessage;

struct varjfs_carry;
/* The call that the answer to a staged edit names.  0 or -errno. */
int vj_carry_out(int fd, const struct varjfs_carry *carry);

/* Stages @len bytes of the caller's; @id is 0 when there is no stage to drop.  0 or
 * -errno. */
int vj_stage_data(int fd, VjMessage *message, const char *src, size_t len, uint64_t *id);
void vj_stage_drop(int fd, uint64_t id);

/* copy-in.c: as the kernel's copy_from_user.  0, -EFAULT, or why there is no way to find
 * out. */
int vj_copy_from_caller(void *dst, const char *src, size_t len);

/*
 * -EFBIG and over_limit when the process may not write up to @reach, bytes from the start
 * of the file; 0 when it may.
 */
int vj_edit_check_limit(VjEdit *e, uint64_t reach);

#endif
