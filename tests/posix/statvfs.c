/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* statvfs.c - statvfs, statfs: figures that fit together, and that follow what is made */
#include <limits.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "posix.h"

static struct statvfs space(void)
{
    struct statvfs s;

    memset(&s, 0, sizeof s);
    MUST(statvfs(".", &s));
    return s;
}

static void figures(void)
{
    struct statvfs s = space(), t;
    struct statfs u;
    const char *n = made(REGULAR, 0600);
    int fd = (int)MUST(open(n, O_RDONLY)), place = (int)MUST(open(n, O_PATH));

    about("figures");
    IS_TRUE(s.f_blocks > 0);
    IS_TRUE(s.f_bfree <= s.f_blocks);
    IS_TRUE(s.f_bavail <= s.f_bfree);
    IS_TRUE(s.f_bavail > 0);
    IS_TRUE(s.f_files > 0);
    IS_TRUE(s.f_ffree <= s.f_files);
    IS_TRUE(s.f_favail <= s.f_ffree);
    IS_TRUE(s.f_favail > 0);
    EQ(NAME_MAX, s.f_namemax);
    IS_TRUE(s.f_frsize >= 512 && (s.f_frsize & (s.f_frsize - 1)) == 0);
    IS_TRUE(s.f_bsize >= 512);
    OK(fstatvfs(fd, &t));
    EQ(s.f_blocks, t.f_blocks);
    EQ(s.f_frsize, t.f_frsize);
    EQ(s.f_namemax, t.f_namemax);
    EQ(s.f_flag, t.f_flag);
    OK(fstatfs(fd, &u));
    EQ(s.f_blocks, u.f_blocks);
    EQ(s.f_frsize, u.f_frsize);
    EQ(NAME_MAX, u.f_namelen);
    OK(fstatfs(place, &u));
    OK(statfs(n, &u));
    EQ(s.f_blocks, u.f_blocks);
    about("errors");
    WANT(ENOENT, statvfs("missing", &t));
    WANT(ENOENT, statvfs("", &t));
    WANT(ENOTDIR, statvfs(path("%s/x", n), &t));
    WANT(EBADF, fstatvfs(-1, &t));
    WANT(EFAULT, syscall(SYS_statfs, (void *)1, &u));
    WANT(EFAULT, syscall(SYS_statfs, ".", (void *)1));
    close(fd);
    close(place);
}

static long long inodes_used(const struct statvfs *s)
{
    return (long long)(s->f_files - s->f_ffree);
}

/* What @files files, and a directory for them, add to the inodes in use, and take away
 * again. */
static void count_inodes(int files, long long *added, long long *removed)
{
    struct statvfs then = space(), with, after;
    const char *dir = made(DIRECTORY, 0700);

    for (int i = 0; i < files; i++) {
        MUST(make(i % 4 == 0   ? DIRECTORY
                  : i % 4 == 1 ? SYMLINK
                               : REGULAR,
                  path("%s/%d", dir, i), 0600));
    }
    with = space();
    for (int i = 0; i < files; i++) {
        MUST(gone(i % 4 == 0 ? DIRECTORY : REGULAR, path("%s/%d", dir, i)));
    }
    MUST(rmdir(dir));
    after = space();
    *added = inodes_used(&with) - inodes_used(&then);
    *removed = inodes_used(&with) - inodes_used(&after);
}

/*
 * Each file takes one of the inodes, and gives it back.  close(2) returns before a FUSE
 * daemon hears of it, so a file of an earlier topic that was removed while it was open
 * may be given back in the middle: then it is counted once more.
 */
static void inodes(void)
{
    enum { FILES = 500, TRIES = 10 };
    long long added = 0, removed = 0;

    for (int i = 0; i < TRIES && (added != FILES + 1 || removed != FILES + 1); i++) {
        count_inodes(FILES, &added, &removed);
    }
    about("inodes of %d files", FILES);
    EQ(FILES + 1, added);
    EQ(FILES + 1, removed);
}

/* Appends @mibs MiB that nothing can make smaller to @fd; what is free less by then, in
 * bytes. */
static long long use_space(int fd, int mibs)
{
    enum { MIB = 1 << 20 };
    static uint64_t x;
    struct statvfs then, with;
    uint64_t *bytes = malloc(MIB);

    x |= (uint64_t)time(NULL) | 1u; /* other content in each run and each time */
    MUST(syncfs(fd));
    then = space();
    for (int i = 0; i < mibs; i++) {
        for (size_t k = 0; k < MIB / sizeof *bytes; k++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            bytes[k] = x;
        }
        MUST(write(fd, bytes, MIB) == MIB ? 0 : -1);
    }
    MUST(fsync(fd));
    with = space();
    free(bytes);
    EQ(then.f_blocks, with.f_blocks);
    return ((long long)then.f_bfree - (long long)with.f_bfree) * (long long)with.f_frsize;
}

/*
 * What is written is gone from what is free.  Only where nobody else uses the device
 * meanwhile: POSIX_OWN_DEVICE in the environment says so.  What was removed before may
 * become free in the middle, as file systems do that in the background: then it is tried
 * once more.
 */
static void content(void)
{
    enum { MIB = 1 << 20, MIBS = 8, TRIES = 10 };
    const char *n = made(REGULAR, 0600);
    int fd = (int)MUST(open(n, O_RDWR));
    long long used = 0;

    about("space of 8 MiB");
    if (getenv("POSIX_OWN_DEVICE") == NULL) {
        skip("others may use the device");
        close(fd);
        return;
    }
    for (int i = 0; i < TRIES && used < (MIBS - 1) * (long long)MIB; i++) {
        used = use_space(fd, MIBS);
    }
    about("space of 8 MiB, %lld bytes used", used);
    IS_TRUE(used >= (MIBS - 1) * (long long)MIB);
    IS_TRUE((long long)stat_of(n).st_blocks * 512 >= MIBS * (long long)MIB);
    close(fd);
}

TOPIC_ALONE(statvfs)
{
    figures();
    inodes();
    content();
}
