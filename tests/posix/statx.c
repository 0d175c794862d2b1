/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* statx.c - stat, lstat, fstat, fstatat and statx agree, and statx knows more */
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "posix.h"

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_mode == b->st_mode &&
           a->st_nlink == b->st_nlink && a->st_uid == b->st_uid &&
           a->st_gid == b->st_gid && a->st_rdev == b->st_rdev &&
           a->st_size == b->st_size && a->st_blksize == b->st_blksize &&
           a->st_blocks == b->st_blocks && same_time(a->st_atim, b->st_atim) &&
           same_time(a->st_mtim, b->st_mtim) && same_time(a->st_ctim, b->st_ctim);
}

static bool same_x(const struct statx_timestamp *x, struct timespec t)
{
    return x->tv_sec == t.tv_sec && x->tv_nsec == (unsigned)t.tv_nsec;
}

static void agree(Kind k)
{
    const char *n = made(k, 0640);
    struct stat st = stat_of(n), other;
    struct statx x;
    int fd = (int)MUST(open(n, O_PATH | O_NOFOLLOW));

    about("a %s", kind_names[k]);
    OK(fstatat(AT_FDCWD, n, &other, AT_SYMLINK_NOFOLLOW));
    IS_TRUE(same(&st, &other));
    OK(fstat(fd, &other));
    IS_TRUE(same(&st, &other));
    OK(fstatat(fd, "", &other, AT_EMPTY_PATH));
    IS_TRUE(same(&st, &other));
    OK(statx(AT_FDCWD, n, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &x));
    EQ(STATX_BASIC_STATS, x.stx_mask & STATX_BASIC_STATS);
    EQ(st.st_mode, x.stx_mode);
    EQ(st.st_ino, x.stx_ino);
    EQ(st.st_nlink, x.stx_nlink);
    EQ(st.st_uid, x.stx_uid);
    EQ(st.st_gid, x.stx_gid);
    EQ(st.st_size, x.stx_size);
    EQ(st.st_blocks, x.stx_blocks);
    EQ(st.st_blksize, x.stx_blksize);
    EQ(major(st.st_rdev), x.stx_rdev_major);
    EQ(minor(st.st_rdev), x.stx_rdev_minor);
    EQ(major(st.st_dev), x.stx_dev_major);
    EQ(minor(st.st_dev), x.stx_dev_minor);
    IS_TRUE(same_x(&x.stx_atime, st.st_atim));
    IS_TRUE(same_x(&x.stx_mtime, st.st_mtim));
    IS_TRUE(same_x(&x.stx_ctime, st.st_ctim));
    EQ(kind_modes[k], st.st_mode & S_IFMT);
    EQ(stat_of(".").st_dev, st.st_dev);
    OK(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &x));
    EQ(st.st_ino, x.stx_ino);
    close(fd);
}

/* When it was made; it does not move. */
static void birth(Kind k)
{
    const char *n = fresh();
    struct timespec start, end, btime;
    struct statx x;

    clock_gettime(CLOCK_REALTIME_COARSE, &start);
    MUST(make(k, n, 0600));
    clock_gettime(CLOCK_REALTIME, &end);
    about("btime of a %s", kind_names[k]);
    OK(statx(AT_FDCWD, n, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &x));
    if (!(x.stx_mask & STATX_BTIME)) {
        skip("no btime here");
        return;
    }
    btime = (struct timespec){x.stx_btime.tv_sec, x.stx_btime.tv_nsec};
    IS_TRUE(!later(start, btime) && !later(btime, end));
    tick(n);
    if (k != SYMLINK) {
        MUST(chmod(n, 0700));
    }
    MUST(lchown(n, ME.uid, ME.gid));
    MUST(rename(n, path("%s.moved", n)));
    if (k == REGULAR) {
        MUST(spew(path("%s.moved", n), "text"));
    }
    OK(statx(AT_FDCWD, path("%s.moved", n), AT_SYMLINK_NOFOLLOW, STATX_BTIME, &x));
    IS_TRUE(same_x(&x.stx_btime, btime));
    OK(statx(AT_FDCWD, path("%s.moved", n), AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC,
             STATX_ALL, &x));
    IS_TRUE(same_x(&x.stx_btime, btime));
}

static void errors(void)
{
    const char *n = made(REGULAR, 0600);
    struct statx x;
    int fd = (int)MUST(open(n, O_RDONLY));

    about("errors");
    WANT(EINVAL, statx(AT_FDCWD, n, 0x40000000, STATX_ALL, &x));
    WANT(EINVAL,
         statx(AT_FDCWD, n, AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_ALL, &x));
    WANT(EINVAL, statx(AT_FDCWD, n, 0, 0x80000000u, &x));
    WANT(EBADF, statx(-1, n, 0, STATX_ALL, &x));
    WANT(ENOTDIR, statx(fd, n, 0, STATX_ALL, &x));
    WANT(ENOENT, statx(AT_FDCWD, "", 0, STATX_ALL, &x));
    WANT(EFAULT, syscall(SYS_statx, AT_FDCWD, (void *)1, 0, STATX_ALL, &x));
    WANT(EFAULT, syscall(SYS_statx, AT_FDCWD, n, 0, STATX_ALL, (void *)1));
    OK(statx(AT_FDCWD, n, AT_STATX_DONT_SYNC, STATX_ALL, &x));
    OK(statx(AT_FDCWD, n, AT_NO_AUTOMOUNT, 0, &x));
    close(fd);
}

/* Blocks: content takes some, a hole and an empty file do not need any. */
static void blocks(void)
{
    const char *n = made(REGULAR, 0600), *hole = made(REGULAR, 0600);
    char *bytes = calloc(1, 1 << 20);
    int fd = (int)MUST(open(n, O_RDWR));

    about("blocks");
    EQ(0, stat_of(n).st_blocks);
    for (int i = 0; i < 1 << 20; i++) {
        bytes[i] = (char)((unsigned)i * 2654435761u >> 24);
    }
    EQ(1 << 20, write(fd, bytes, 1 << 20));
    OK(fsync(fd));
    IS_TRUE(stat_of(n).st_blocks >= (1 << 20) / 512);
    IS_TRUE(stat_of(n).st_blocks < 2 * (1 << 20) / 512);
    OK(ftruncate(fd, 0));
    OK(fsync(fd));
    EQ(0, stat_of(n).st_blocks);
    OK(truncate(hole, 1 << 30));
    IS_TRUE(stat_of(hole).st_blocks < 100);
    IS_TRUE(stat_of(n).st_blksize >= 512);
    close(fd);
    free(bytes);
}

TOPIC(statx)
{
    EACH_KIND(k)
    {
        agree(k);
        birth(k);
    }
    errors();
    blocks();
}
