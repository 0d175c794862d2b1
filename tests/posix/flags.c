/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * flags.c - what chattr(1) sets: immutable, append only, nodump, noatime
 *
 * What is open already may write on to a file that becomes append only, but not to one
 * that becomes immutable.
 */
#include <linux/capability.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "posix.h"

#define KNOWN (FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NODUMP_FL | FS_NOATIME_FL)

static int flags_of(const char *name)
{
    int fd = open(name, O_RDONLY | O_NONBLOCK), flags = -1, r;

    r = fd < 0 ? -1 : ioctl(fd, FS_IOC_GETFLAGS, &flags);
    if (close(fd) < 0 || r < 0) {
        return -1;
    }
    return flags & KNOWN;
}

/* Those of KNOWN; what else the file system shows stays.  0 or -1. */
static int set_flags(const char *name, int wanted)
{
    int fd = open(name, O_RDONLY | O_NONBLOCK), flags = 0, r, error;

    r = fd < 0 ? -1 : ioctl(fd, FS_IOC_GETFLAGS, &flags);
    flags = (flags & ~KNOWN) | wanted;
    r = r < 0 ? -1 : ioctl(fd, FS_IOC_SETFLAGS, &flags);
    error = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = error;
    return r;
}

static int get_xattr_flags(const char *name, struct fsxattr *out)
{
    int fd = open(name, O_RDONLY), r = fd < 0 ? -1 : ioctl(fd, FS_IOC_FSGETXATTR, out);

    return close(fd) < 0 ? -1 : r;
}

static int set_xattr_flags(const char *name, const struct fsxattr *in)
{
    int fd = open(name, O_RDONLY), r = fd < 0 ? -1 : ioctl(fd, FS_IOC_FSSETXATTR, in);
    int error = errno;

    if (fd >= 0) {
        close(fd);
    }
    errno = error;
    return r;
}

/* False, and a skipped check: not on this file system. */
static bool has_flags(void)
{
    const char *n = made(REGULAR, 0600);
    bool has = flags_of(n) >= 0;

    if (!has) {
        skip("flags: not on this file system");
    }
    MUST(unlink(n));
    return has;
}

static const char *file_with(const char *text, mode_t mode)
{
    const char *n = made(REGULAR, mode);

    MUST(spew(n, text));
    return n;
}

/* ---- who sees and sets what -------------------------------------------------------- */

static void kinds_of_flags(Kind k)
{
    static const struct {
        int flag;
        unsigned xflag;
    } both[] = {
        {FS_IMMUTABLE_FL, FS_XFLAG_IMMUTABLE},
        {FS_APPEND_FL, FS_XFLAG_APPEND},
        {FS_NODUMP_FL, FS_XFLAG_NODUMP},
        {FS_NOATIME_FL, FS_XFLAG_NOATIME},
    };
    const char *n = made(k, 0700);
    struct fsxattr x = {0};
    struct stat then;
    int fd, flags;

    about("a %s", kind_names[k]);
    EQ(0, flags_of(n));
    for (size_t i = am_root() ? 0 : 2; i < sizeof both / sizeof both[0]; i++) {
        about("a %s, flag %#x", kind_names[k], (unsigned)both[i].flag);
        then = before(n);
        OK(set_flags(n, both[i].flag));
        MC_TIMES(then, n, TIME_C);
        EQ(both[i].flag, flags_of(n));
        OK(get_xattr_flags(n, &x));
        EQ(both[i].xflag, x.fsx_xflags & ~(unsigned)FS_XFLAG_HASATTR);
        x.fsx_xflags = 0;
        OK(set_xattr_flags(n, &x));
        EQ(0, flags_of(n));
        x.fsx_xflags = both[i].xflag;
        OK(set_xattr_flags(n, &x));
        EQ(both[i].flag, flags_of(n));
        OK(set_flags(n, 0));
        EQ(0, flags_of(n));
    }
    about("a %s, what nobody knows", kind_names[k]);
    fd = (int)MUST(open(n, O_RDONLY));
    flags = FS_NODUMP_FL | FS_NOCOW_FL;
    WANT(EOPNOTSUPP, ioctl(fd, FS_IOC_SETFLAGS, &flags));
    flags = 1 << 30;
    WANT(EOPNOTSUPP, ioctl(fd, FS_IOC_SETFLAGS, &flags));
    EQ(0, flags_of(n));
    WANT(EFAULT, ioctl(fd, FS_IOC_SETFLAGS, (int *)1));
    WANT(EFAULT, ioctl(fd, FS_IOC_GETFLAGS, (int *)1));
    close(fd);
    MUST(gone(k, n));
}

static void who_may(void)
{
    const char *n = made_for(REGULAR, 0666, ALICE.uid, ALICE.gid);

    about("others");
    AS(ALICE)
    {
        OK(set_flags(n, FS_NODUMP_FL | FS_NOATIME_FL));
        WANT(EPERM, set_flags(n, FS_NODUMP_FL | FS_NOATIME_FL | FS_IMMUTABLE_FL));
        WANT(EPERM, set_flags(n, FS_APPEND_FL));
        EQ(FS_NODUMP_FL | FS_NOATIME_FL, flags_of(n));
    }
    AS(BOB)
    {
        WANT(EPERM, set_flags(n, 0));
        EQ(FS_NODUMP_FL | FS_NOATIME_FL, flags_of(n));
    }
    MUST(set_flags(n, FS_APPEND_FL));
    AS(ALICE)
    {
        WANT(EPERM, set_flags(n, 0));
        EQ(FS_APPEND_FL, flags_of(n));
    }
    MUST(set_flags(n, FS_IMMUTABLE_FL));
    AS(ALICE)
    {
        WANT(EPERM, set_flags(n, 0));
        EQ(FS_IMMUTABLE_FL, flags_of(n));
    }
    MUST(set_flags(n, 0));
    MUST(unlink(n));
}

/* Root has no more rights than its capabilities. */
static void without_capability(void)
{
    const char *n = made(REGULAR, 0600);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2];

    about("without CAP_LINUX_IMMUTABLE");
    MUST(syscall(SYS_capget, &head, caps));
    CHILD
    {
        caps[0].effective &= ~(1u << CAP_LINUX_IMMUTABLE);
        caps[0].permitted &= ~(1u << CAP_LINUX_IMMUTABLE);
        MUST(syscall(SYS_capset, &head, caps));
        WANT(EPERM, set_flags(n, FS_IMMUTABLE_FL));
        WANT(EPERM, set_flags(n, FS_APPEND_FL));
        OK(set_flags(n, FS_NODUMP_FL));
    }
    EQ(FS_NODUMP_FL, flags_of(n));
    MUST(unlink(n));
}

/* ---- immutable files --------------------------------------------------------------- */

static void immutable_file(void)
{
    static const struct timespec times[2] = {{1, 0}, {2, 0}};
    const char *n = file_with("content", 0666), *other = made(REGULAR, 0600);
    const char *name = fresh(), *from = file_with("from", 0600);
    struct stat then;
    char value[8];
    int fd, in;

    MUST(setxattr(n, "user.old", "1", 1, 0));
    MUST(chmod(n, 04777));
    fd = (int)MUST(open(n, O_RDWR));
    in = (int)MUST(open(from, O_RDONLY));
    MUST(set_flags(n, FS_IMMUTABLE_FL));
    then = before(n);
    about("an immutable file");
    WANT(EPERM, open(n, O_WRONLY));
    WANT(EPERM, open(n, O_RDWR));
    WANT(EPERM, open(n, O_WRONLY | O_APPEND));
    WANT(EPERM, open(n, O_WRONLY | O_CREAT, 0600));
    WANT(EPERM, open(n, O_WRONLY | O_TRUNC));
    WANT(EPERM, open(n, O_RDONLY | O_TRUNC));
    WANT(EPERM, truncate(n, 3));
    WANT(EPERM, truncate(n, 100));
    WANT(EPERM, truncate(n, 7));
    WANT(EPERM, chmod(n, 0600));
    WANT(EPERM, chown(n, ALICE.uid, ALICE.gid));
    WANT(EPERM, utimensat(AT_FDCWD, n, times, 0));
    WANT(EPERM, utimensat(AT_FDCWD, n, NULL, 0));
    WANT(EPERM, link(n, name));
    WANT(EPERM, rename(n, name));
    WANT(EPERM, rename(n, other));
    WANT(EPERM, rename(other, n));
    WANT(EPERM, renameat2(AT_FDCWD, n, AT_FDCWD, other, RENAME_EXCHANGE));
    WANT(EPERM, renameat2(AT_FDCWD, other, AT_FDCWD, n, RENAME_EXCHANGE));
    WANT(EPERM, renameat2(AT_FDCWD, n, AT_FDCWD, name, RENAME_WHITEOUT));
    WANT(EPERM, unlink(n));
    WANT(EPERM, setxattr(n, "user.new", "1", 1, 0));
    WANT(EPERM, setxattr(n, "trusted.new", "1", 1, 0));
    WANT(EPERM, setxattr(n, "security.new", "1", 1, 0));
    WANT(EPERM, removexattr(n, "user.old"));
    about("an immutable file that was open");
    WANT(EPERM, write(fd, "x", 1));
    WANT(EPERM, pwrite(fd, "x", 1, 100));
    WANT(EPERM, ftruncate(fd, 3));
    WANT(EPERM, fallocate(fd, 0, 0, 100));
    WANT(EPERM, fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100));
    WANT(EPERM, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4));
    WANT(EPERM, copy_file_range(in, NULL, fd, NULL, 4, 0));
    WANT(EPERM, fchmod(fd, 0600));
    WANT(EPERM, futimens(fd, times));
    WANT(EPERM, fsetxattr(fd, "user.new", "1", 1, 0));
    OK(fsync(fd));
    MC_TIMES(then, n, 0);
    EQ(04777, mode_of(n));
    EQ(1, stat_of(n).st_nlink);
    IS_TRUE(holds(n, "content"));
    EQ(1, getxattr(n, "user.old", value, sizeof value));
    about("an immutable file: other flags");
    WANT(EPERM, set_flags(n, FS_IMMUTABLE_FL | FS_NODUMP_FL));
    OK(set_flags(n, FS_IMMUTABLE_FL));
    OK(set_flags(n, FS_NODUMP_FL));
    OK(set_flags(n, FS_IMMUTABLE_FL | FS_NODUMP_FL));
    WANT(EPERM, set_flags(n, FS_IMMUTABLE_FL));
    OK(set_flags(n, 0));
    about("a file that was immutable");
    EQ(1, pwrite(fd, "C", 1, 0));
    IS_TRUE(holds(n, "Content"));
    OK(unlink(n));
    close(fd);
    close(in);
    MUST(unlink(other));
    MUST(unlink(from));
}

/* ---- files that can only grow ------------------------------------------------------ */

static void append_only_file(void)
{
    static const struct timespec times[2] = {{1, 0}, {2, 0}};
    static const struct timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    static const struct timespec half[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    const char *n = file_with("log\n", 0666), *other = made(REGULAR, 0600);
    const char *name = fresh();
    struct stat then;
    int old, fd;

    MUST(setxattr(n, "user.old", "1", 1, 0));
    old = (int)MUST(open(n, O_RDWR));
    MUST(set_flags(n, FS_APPEND_FL));
    about("an append-only file");
    WANT(EPERM, open(n, O_WRONLY));
    WANT(EPERM, open(n, O_RDWR));
    WANT(EPERM, open(n, O_WRONLY | O_CREAT, 0600));
    WANT(EPERM, open(n, O_WRONLY | O_TRUNC));
    WANT(EPERM, open(n, O_WRONLY | O_APPEND | O_TRUNC));
    WANT(EPERM, truncate(n, 3));
    WANT(EPERM, truncate(n, 100));
    WANT(EPERM, chmod(n, 0600));
    WANT(EPERM, chown(n, ALICE.uid, ALICE.gid));
    WANT(EPERM, utimensat(AT_FDCWD, n, times, 0));
    WANT(EPERM, utimensat(AT_FDCWD, n, half, 0));
    WANT(EPERM, link(n, name));
    WANT(EPERM, rename(n, name));
    WANT(EPERM, rename(other, n));
    WANT(EPERM, renameat2(AT_FDCWD, other, AT_FDCWD, n, RENAME_EXCHANGE));
    WANT(EPERM, unlink(n));
    WANT(EPERM, setxattr(n, "user.new", "1", 1, 0));
    WANT(EPERM, removexattr(n, "user.old"));
    IS_TRUE(holds(n, "log\n"));
    EQ(1, stat_of(n).st_nlink);
    then = before(n);
    OK(utimensat(AT_FDCWD, n, NULL, 0));
    OK(utimensat(AT_FDCWD, n, now, 0));
    TIMES(then, n, TIME_A | TIME_M | TIME_C);
    about("an append-only file, appended to");
    then = before(n);
    fd = (int)OK(open(n, O_WRONLY | O_APPEND));
    EQ(4, write(fd, "one\n", 4));
    EQ(4, pwrite(fd, "two\n", 4, 0));
    MC_TIMES(then, n, TIME_M | TIME_C);
    IS_TRUE(holds(n, "log\none\ntwo\n"));
    WANT(EPERM, ftruncate(fd, 3));
    WANT(EPERM, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4));
    WANT(EPERM, fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4));
    OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 8));
    OK(fallocate(fd, 0, 0, 8));
    EQ(12, stat_of(n).st_size);
    OK(fallocate(fd, 0, 0, 13));
    EQ(13, stat_of(n).st_size);
    (void)fcntl(fd, F_SETFL,
                0); /* may succeed where the kernel does not know of the flag */
    (void)!pwrite(fd, "L", 1, 0);
    IS_TRUE(!holds(n, ""));
    {
        char first = 0;

        EQ(1, pread(old, &first, 1, 0));
        EQ('l', first);
    }
    close(fd);
    about("an append-only file that was open");
    EQ(1, pwrite(old, "L", 1, 0));
    WANT(EPERM, ftruncate(old, 3));
    WANT(EPERM, fchmod(old, 0600));
    close(old);
    about("an append-only file: other flags");
    OK(set_flags(n, FS_APPEND_FL | FS_NODUMP_FL));
    OK(set_flags(n, FS_APPEND_FL | FS_IMMUTABLE_FL));
    WANT(EPERM, open(n, O_WRONLY | O_APPEND));
    OK(set_flags(n, 0));
    OK(truncate(n, 3));
    IS_TRUE(holds(n, "Log"));
    OK(unlink(n));
    MUST(unlink(other));
}

/* ---- directories ------------------------------------------------------------------- */

/* What needs a directory whose names may neither come nor go. */
static void names_stay(const char *d, const char *other, bool may_come)
{
    const int come = may_come ? 0 : EPERM;
    int fd = open(d, O_TMPFILE | O_WRONLY, 0600);

    if (fd >= 0 || errno != EOPNOTSUPP) {
        EQ(may_come, fd >= 0);
        close(fd);
    }
    WANT(EPERM, unlink(path("%s/file", d)));
    WANT(EPERM, rmdir(path("%s/sub", d)));
    WANT(EPERM, rename(path("%s/file", d), path("%s/other", d)));
    WANT(EPERM, rename(path("%s/file", d), path("%s/file", other)));
    WANT(EPERM, rename(path("%s/sub", d), path("%s/sub", other)));
    WANT(EPERM, rename(path("%s/over", other), path("%s/file", d)));
    WANT(EPERM, renameat2(AT_FDCWD, path("%s/file", d), AT_FDCWD, path("%s/over", other),
                          RENAME_EXCHANGE));
    WANT(EPERM, renameat2(AT_FDCWD, path("%s/over", other), AT_FDCWD, path("%s/file", d),
                          RENAME_EXCHANGE));
    WANT(EPERM, renameat2(AT_FDCWD, path("%s/file", d), AT_FDCWD, path("%s/file", other),
                          RENAME_WHITEOUT));
    WANT(EEXIST, mkdir(path("%s/sub", d), 0700));
    fd = (int)WANT(come, open(path("%s/new", d), O_CREAT | O_WRONLY, 0600));
    if (fd >= 0) {
        close(fd);
    }
    WANT(come, mkdir(path("%s/newdir", d), 0700));
    WANT(come, symlink("x", path("%s/newlink", d)));
    WANT(come, mkfifo(path("%s/newfifo", d), 0600));
    WANT(come, link(path("%s/over", other), path("%s/newname", d)));
    WANT(come, rename(path("%s/over", other), path("%s/moved", d)));
    if (!may_come) {
        WANT(EPERM, renameat2(AT_FDCWD, path("%s/over", other), AT_FDCWD,
                              path("%s/moved", d), RENAME_WHITEOUT));
    }
    WANT(EPERM, chmod(d, 0700));
    WANT(EPERM, setxattr(d, "user.new", "1", 1, 0));
    WANT(EPERM, rename(d, fresh()));
    WANT(EPERM, rmdir(d));
    /* What is in it is another matter. */
    OK(chmod(path("%s/file", d), 0640));
    OK(spew(path("%s/file", d), "text"));
    OK(mkdir(path("%s/sub/below", d), 0700));
    OK(rmdir(path("%s/sub/below", d)));
    EQ(0, flags_of(path("%s/sub", d)) & ~FS_NODUMP_FL);
}

static void directory(int flag)
{
    const char *d = made(DIRECTORY, 0777), *other = made(DIRECTORY, 0777);
    bool may_come = flag == FS_APPEND_FL;

    MUST(make(REGULAR, path("%s/file", d), 0600));
    MUST(make(DIRECTORY, path("%s/sub", d), 0700));
    MUST(make(REGULAR, path("%s/over", other), 0600));
    MUST(set_flags(d, flag));
    about("%s directory", may_come ? "an append-only" : "an immutable");
    names_stay(d, other, may_come);
    EQ(may_come ? 8 : 2, names_in(d));
    EQ(may_come ? 0 : flags_of(d) & flag, flags_of(may_come ? path("%s/newdir", d) : d));
    MUST(set_flags(d, 0));
    about("%s", "");
}

/* ---- what new files get ------------------------------------------------------------ */

static void inherited(void)
{
    const char *d = made(DIRECTORY, 0777);
    const int flags = FS_NODUMP_FL | FS_NOATIME_FL;
    int fd, got = 0;

    MUST(set_flags(d, flags));
    about("what is made in a directory with flags");
    MUST(make(REGULAR, path("%s/file", d), 0600));
    MUST(make(DIRECTORY, path("%s/sub", d), 0700));
    MUST(make(DIRECTORY, path("%s/sub/deeper", d), 0700));
    MUST(make(SYMLINK, path("%s/link", d), 0));
    EQ(flags, flags_of(path("%s/file", d)));
    EQ(flags, flags_of(path("%s/sub", d)));
    EQ(flags, flags_of(path("%s/sub/deeper", d)));
    fd = open(d, O_TMPFILE | O_WRONLY, 0600);
    if (fd >= 0) {
        OK(ioctl(fd, FS_IOC_GETFLAGS, &got));
        EQ(flags, got & KNOWN);
        close(fd);
    }
    OK(set_flags(path("%s/file", d), 0));
    EQ(0, flags_of(path("%s/file", d)));
    OK(rename(path("%s/file", d), path("%s/sub/file", d)));
    EQ(0, flags_of(path("%s/sub/file", d)));
}

static void noatime(void)
{
    static const struct timespec old[2] = {{1000, 0}, {1000, 0}};
    static char page[4096] __attribute__((aligned(4096)));
    const char *n = made(REGULAR, 0600);
    int fd = open(n, O_RDWR | O_DIRECT);

    about("noatime");
    if (fd < 0) {
        skip("needs O_DIRECT");
        return;
    }
    MUST(truncate(n, 8192));
    MUST(set_flags(n, FS_NOATIME_FL));
    MUST(futimens(fd, old));
    EQ(4096, pread(fd, page, sizeof page, 0));
    close(fd);
    EQ(1000, stat_of(n).st_atim.tv_sec);
    MUST(set_flags(n, 0));
    fd = (int)MUST(open(n, O_RDONLY | O_DIRECT));
    EQ(4096, pread(fd, page, sizeof page, 0));
    close(fd);
    IS_TRUE(stat_of(n).st_atim.tv_sec > 1000);
}

TOPIC(flags)
{
    if (!has_flags()) {
        return;
    }
    kinds_of_flags(REGULAR);
    kinds_of_flags(DIRECTORY);
    inherited();
    noatime();
    about("%s", "");
    NEEDS_ROOT("immutable files");
    who_may();
    without_capability();
    immutable_file();
    append_only_file();
    directory(FS_IMMUTABLE_FL);
    directory(FS_APPEND_FL);
}
