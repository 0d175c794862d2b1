/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rename.c - rename and renameat2: every type over every type, what moves with it, what
 * else changes, and what may not be
 */
#include <limits.h>
#include <sys/syscall.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static int rename2(const char *from, const char *to, unsigned flags)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

/* What the name says is what it was, with these differences. */
static void same_file(struct stat then, const char *n)
{
    struct stat now = stat_of(n);

    EQ(then.st_ino, now.st_ino);
    EQ(then.st_mode, now.st_mode);
    EQ(then.st_nlink, now.st_nlink);
    EQ(then.st_uid, now.st_uid);
    EQ(then.st_gid, now.st_gid);
    EQ(then.st_size, now.st_size);
    EQ(then.st_rdev, now.st_rdev);
}

/* To a new name, in the same directory or in another. */
static void to_new(Kind k, bool other_dir)
{
    const char *from = made(DIRECTORY, 0777),
               *to = other_dir ? made(DIRECTORY, 0777) : from;
    const char *a = path("%s/a", from), *b = path("%s/b", to);
    struct stat then, then_from, then_to;
    bool moves_dir = k == DIRECTORY && other_dir;

    MUST(make(k, a, 0741));
    then = before(a);
    then_from = before(from);
    then_to = before(to);
    about("a %s to a new name in %s directory", kind_names[k],
          other_dir ? "another" : "its");
    OK(rename(a, b));
    IS_TRUE(!exists(a));
    same_file(then, b);
    EQ(then.st_atim.tv_nsec, stat_of(b).st_atim.tv_nsec);
    if (!moves_dir) {
        MC_TIMES(then, b, TIME_C); /* Linux file systems all do; POSIX leaves it open */
    }
    MC_TIMES(then_from, from, TIME_M | TIME_C);
    MC_TIMES(then_to, to, TIME_M | TIME_C);
    EQ(then_from.st_nlink - moves_dir, stat_of(from).st_nlink);
    EQ(then_to.st_nlink + moves_dir, stat_of(to).st_nlink);
    EQ(other_dir ? 0 : 1, names_in(from));
    EQ(1, names_in(to));
    if (k == DIRECTORY) {
        EQ(stat_of(to).st_ino, stat_of(path("%s/..", b)).st_ino);
    }
    OK(rename(b, a));
    same_file(then, a);
    MUST(gone(k, a));
    MUST(rmdir(from));
    MUST(other_dir ? rmdir(to) : 0);
}

static int over_error(Kind a, Kind b)
{
    if (a == DIRECTORY) {
        return b == DIRECTORY ? 0 : ENOTDIR;
    }
    return b == DIRECTORY ? EISDIR : 0;
}

static void over(Kind ka, Kind kb)
{
    const char *dir = made(DIRECTORY, 0777), *a = path("%s/a", dir),
               *b = path("%s/b", dir);
    const char *second = path("%s/second", dir);
    int error = over_error(ka, kb);
    struct stat then_a, then_b, then_dir;

    MUST(make(ka, a, 0711));
    MUST(make(kb, b, 0722));
    if (kb != DIRECTORY) {
        MUST(link(b, second));
    }
    then_a = before(a);
    then_b = before(b);
    then_dir = before(dir);
    about("a %s over a %s", kind_names[ka], kind_names[kb]);
    WANT(error, rename(a, b));
    if (error != 0) {
        same_file(then_a, a);
        same_file(then_b, b);
        MC_TIMES(then_a, a, 0);
        MC_TIMES(then_b, b, 0);
        MC_TIMES(then_dir, dir, 0);
        MUST(gone(ka, a));
    } else {
        IS_TRUE(!exists(a));
        same_file(then_a, b);
        MC_TIMES(then_dir, dir, TIME_M | TIME_C);
        if (kb != DIRECTORY) {
            EQ(1, stat_of(second).st_nlink);
            MC_TIMES(then_b, second, TIME_C);
        }
        EQ(2 + (ka == DIRECTORY), stat_of(dir).st_nlink);
    }
    MUST(gone(error != 0 ? kb : ka, b));
    if (kb != DIRECTORY) {
        MUST(unlink(second));
    }
    MUST(rmdir(dir));
}

static void no_replace(Kind ka, Kind kb)
{
    const char *a = made(ka, 0711), *b = made(kb, 0722), *c = fresh();
    struct stat then_a = before(a), then_b = before(b);

    about("RENAME_NOREPLACE of a %s, a %s is there", kind_names[ka], kind_names[kb]);
    WANT(EEXIST, rename2(a, b, RENAME_NOREPLACE));
    same_file(then_a, a);
    same_file(then_b, b);
    OK(rename2(a, c, RENAME_NOREPLACE));
    IS_TRUE(!exists(a));
    same_file(then_a, c);
    MUST(gone(ka, c));
    MUST(gone(kb, b));
}

static void exchange(Kind ka, Kind kb, bool other_dir)
{
    const char *da = made(DIRECTORY, 0777), *db = other_dir ? made(DIRECTORY, 0777) : da;
    const char *a = path("%s/a", da), *b = path("%s/b", db);
    struct stat then_a, then_b, then_da, then_db;
    int more = other_dir ? (kb == DIRECTORY) - (ka == DIRECTORY) : 0;

    MUST(make(ka, a, 0711));
    MUST(make(kb, b, 0722));
    then_a = before(a);
    then_b = before(b);
    then_da = before(da);
    then_db = before(db);
    about("RENAME_EXCHANGE of a %s and a %s in %s", kind_names[ka], kind_names[kb],
          other_dir ? "two directories" : "one directory");
    OK(rename2(a, b, RENAME_EXCHANGE));
    same_file(then_a, b);
    same_file(then_b, a);
    MC_TIMES(then_a, b, TIME_C);
    MC_TIMES(then_b, a, TIME_C);
    MC_TIMES(then_da, da, TIME_M | TIME_C);
    MC_TIMES(then_db, db, TIME_M | TIME_C);
    EQ(then_da.st_nlink + (nlink_t)more, stat_of(da).st_nlink);
    EQ(then_db.st_nlink - (nlink_t)more, stat_of(db).st_nlink);
    if (kb == DIRECTORY) {
        EQ(stat_of(da).st_ino, stat_of(path("%s/..", a)).st_ino);
    }
    if (ka == DIRECTORY) {
        EQ(stat_of(db).st_ino, stat_of(path("%s/..", b)).st_ino);
    }
    MUST(gone(kb, a));
    MUST(gone(ka, b));
    MUST(rmdir(da));
    MUST(other_dir ? rmdir(db) : 0);
}

/* A device that no driver has, which overlayfs takes for a name that is not there. */
static void is_whiteout(const char *n, const char *dir)
{
    struct stat now = stat_of(n);

    EQ(S_IFCHR, now.st_mode);
    EQ(0, now.st_rdev);
    EQ(1, now.st_nlink);
    EQ(0, now.st_size);
    EQ(ME.uid, now.st_uid);
    EQ((stat_of(dir).st_mode & S_ISGID) ? stat_of(dir).st_gid : ME.gid, now.st_gid);
}

/* @kb: what is replaced; SOCKET: nothing is there. */
static void whiteout(Kind ka, Kind kb, bool other_dir)
{
    const char *from = made(DIRECTORY, 0777),
               *to = other_dir ? made(DIRECTORY, 0777) : from;
    const char *a = path("%s/a", from), *b = path("%s/b", to);
    bool moves_dir = ka == DIRECTORY && other_dir, replaces = kb != SOCKET;
    struct stat then, then_from, then_to;

    MUST(am_root() ? chown(from, ROOT.uid, GROUP_TEAM) : 0);
    MUST(am_root() && other_dir ? chmod(from, 02777) : 0);
    MUST(make(ka, a, 0711));
    MUST(replaces ? make(kb, b, 0722) : 0);
    then = before(a);
    then_from = before(from);
    then_to = before(to);
    about("RENAME_WHITEOUT of a %s %s %s in %s directory", kind_names[ka],
          replaces ? "over a" : "to", replaces ? kind_names[kb] : "a new name",
          other_dir ? "another" : "its");
    if (replaces) {
        WANT(EEXIST, rename2(a, b, RENAME_WHITEOUT | RENAME_NOREPLACE));
        same_file(then, a);
        OK(rename2(a, b, RENAME_WHITEOUT));
    } else {
        OK(rename2(a, b, RENAME_WHITEOUT | RENAME_NOREPLACE));
    }
    is_whiteout(a, from);
    same_file(then, b);
    if (!moves_dir) {
        MC_TIMES(then, b, TIME_C);
    }
    MC_TIMES(then_from, from, TIME_M | TIME_C);
    MC_TIMES(then_to, to, TIME_M | TIME_C);
    EQ(then_from.st_nlink - moves_dir - (!other_dir && replaces && kb == DIRECTORY),
       stat_of(from).st_nlink);
    EQ(other_dir ? 1 : 2, names_in(from));
    WANT_EITHER(ENXIO, EACCES, open(a, O_RDONLY));
    if (ka == DIRECTORY) {
        WANT(ENOTDIR, rename(b, a));
        OK(unlink(a));
    }
    OK(rename(b, a)); /* a whiteout is replaced as any other file */
    same_file(then, a);
    EQ(other_dir ? 0 : 1, names_in(to));
    MUST(gone(ka, a));
    MUST(rmdir(from));
    MUST(other_dir ? rmdir(to) : 0);
}

static void whiteouts(void)
{
    const char *a = made(REGULAR, 0600), *b = fresh(), *c = fresh();

    about("RENAME_WHITEOUT");
    if (rename2(a, b, RENAME_WHITEOUT) < 0 && (errno == EINVAL || errno == EPERM)) {
        skip("RENAME_WHITEOUT: not on this file system, or not for this user");
        MUST(unlink(a));
        return;
    }
    IS_TRUE(exists(a) && exists(b));
    is_whiteout(a, ".");
    WANT(ENOENT, rename2(c, b, RENAME_WHITEOUT));
    OK(rename2(a, c, RENAME_WHITEOUT)); /* one of a whiteout */
    is_whiteout(a, ".");
    is_whiteout(c, ".");
    OK(link(a, path("%s-linked", a)));
    OK(unlink(path("%s-linked", a)));
    OK(unlink(a));
    OK(unlink(b));
    OK(unlink(c));
    EACH_KIND(k)
    {
        if (k == SOCKET) {
            continue;
        }
        whiteout(k, SOCKET, false);
        whiteout(k, SOCKET, true);
        whiteout(k, k, false);
        whiteout(k, k, true);
    }
}

/* Two names of one file: nothing happens, and that is a success. */
static void two_names(void)
{
    EACH_KIND(k)
    {
        const char *a = made(k, 0700), *b = fresh();
        struct stat then;

        if (k == DIRECTORY) {
            about("a directory to itself");
            OK(rename(a, a));
            OK(rename(a, path("./%s", a)));
            OK(rename2(a, a, RENAME_EXCHANGE));
            WANT(EEXIST, rename2(a, a, RENAME_NOREPLACE));
            continue;
        }
        MUST(link(a, b));
        then = before(a);
        about("two names of a %s", kind_names[k]);
        OK(rename(a, b));
        IS_TRUE(exists(a) && exists(b));
        same_file(then, a);
        MC_TIMES(then, a, 0);
        OK(rename(a, a));
        WANT(EEXIST, rename2(a, b, RENAME_NOREPLACE));
        OK(rename2(a, b, RENAME_EXCHANGE));
        IS_TRUE(exists(a) && exists(b));
        MUST(unlink(a));
        MUST(unlink(b));
    }
}

static void not_empty(void)
{
    EACH_KIND(k)
    {
        const char *a = made(DIRECTORY, 0777), *b = made(DIRECTORY, 0777);

        MUST(make(k, path("%s/inside", b), 0700));
        about("over a directory with a %s", kind_names[k]);
        WANT_EITHER(ENOTEMPTY, EEXIST, rename(a, b));
        IS_TRUE(exists(a) && exists(path("%s/inside", b)));
        about("a directory with a %s over an empty one", kind_names[k]);
        OK(rename(b, a));
        IS_TRUE(!exists(b) && exists(path("%s/inside", a)));
        EQ(k == DIRECTORY ? 3 : 2, stat_of(a).st_nlink);
        MUST(gone(k, path("%s/inside", a)));
        MUST(rmdir(a));
    }
}

static void into_itself(void)
{
    MUST(mkdir("top", 0777));
    MUST(mkdir("top/a", 0777));
    MUST(mkdir("top/a/b", 0777));
    MUST(mkdir("top/a/b/c", 0777));
    MUST(mkdir("top/a/e", 0777));
    about("into itself");
    WANT(EINVAL, rename("top", "top/x"));
    WANT(EINVAL, rename("top/a", "top/a/x"));
    WANT(EINVAL, rename("top/a", "top/a/b"));
    WANT(EINVAL, rename("top/a", "top/a/e"));
    WANT(EINVAL, rename("top/a", "top/a/b/x"));
    WANT(EINVAL, rename("top/a", "top/a/b/c"));
    WANT(EINVAL, rename("top/a", "top/a/b/c/x"));
    WANT(EINVAL, rename("top", "top/a/b/c/x"));
    WANT(EINVAL, rename2("top/a", "top/a/b", RENAME_EXCHANGE));
    WANT(EINVAL, rename2("top/a/b", "top/a", RENAME_EXCHANGE));
    WANT(EINVAL, rename2("top/a/b/c", "top", RENAME_EXCHANGE));
    about("over what one stands below");
    WANT(ENOTEMPTY, rename("top/a/b", "top/a"));
    WANT(ENOTEMPTY, rename("top/a/b/c", "top"));
    WANT(ENOTEMPTY, rename("top/a/b/c", "top/a/b"));
    MUST(make(REGULAR, "top/a/f", 0600));
    WANT_EITHER(ENOTEMPTY, EISDIR, rename("top/a/f", "top/a"));
    about("a name that only begins the same");
    OK(rename("top/a", "top/ab"));
    OK(rename("top/ab", "top/a"));
    about("up and down");
    OK(rename("top/a/b/c", "top/c"));
    OK(rename("top/a", "top/c/a"));
    EQ(stat_of("top/c").st_ino, stat_of("top/c/a/..").st_ino);
    WANT(EINVAL, rename("top/c", "top/c/a/b/c"));
}

static void dots(void)
{
    const char *dir = made(DIRECTORY, 0777), *file = made(REGULAR, 0600);

    MUST(mkdir(path("%s/sub", dir), 0777));
    about("dots");
    WANT(EBUSY, rename(path("%s/.", dir), "other"));
    WANT(EBUSY, rename(path("%s/sub/..", dir), "other"));
    WANT(EBUSY, rename(dir, path("%s/.", dir)));
    WANT(EBUSY, rename(path("%s/sub", dir), path("%s/sub/..", dir)));
    WANT(EBUSY, rename(file, path("%s/.", dir)));
    IS_TRUE(exists(path("%s/sub", dir)));
}

static void flags(void)
{
    const char *a = made(REGULAR, 0600), *b = made(REGULAR, 0600);
    int fd = (int)MUST(open(a, O_RDONLY));

    about("flags");
    WANT(EINVAL, rename2(a, b, RENAME_NOREPLACE | RENAME_EXCHANGE));
    WANT(EINVAL, rename2(a, b, RENAME_EXCHANGE | RENAME_WHITEOUT));
    WANT(EINVAL, rename2(a, b, 8));
    WANT(EINVAL, rename2(a, b, 0x80000000u));
    WANT(ENOENT, rename2(a, "missing", RENAME_EXCHANGE));
    WANT(ENOENT, rename2("missing", b, RENAME_EXCHANGE));
    WANT(ENOENT, rename2("missing", b, RENAME_NOREPLACE));
    WANT(EBADF, renameat2(-1, a, AT_FDCWD, b, 0));
    WANT(EBADF, renameat2(AT_FDCWD, a, -1, b, 0));
    WANT(ENOTDIR, renameat2(fd, a, AT_FDCWD, b, 0));
    WANT(ENOTDIR, renameat2(AT_FDCWD, a, fd, b, 0));
    WANT(EFAULT, syscall(SYS_rename, (void *)1, b));
    WANT(EFAULT, syscall(SYS_rename, a, (void *)1));
    WANT(EXDEV, rename(a, "/proc/x"));
    IS_TRUE(exists(a) && exists(b));
    close(fd);
}

/* What is replaced stays for those who have it open, without a name. */
static void replaced_while_open(void)
{
    const char *a = made(REGULAR, 0600), *b = made(REGULAR, 0600);
    char text[8] = "";
    int fd_a, fd_b;

    MUST(spew(a, "new"));
    MUST(spew(b, "old"));
    fd_a = (int)MUST(open(a, O_RDWR));
    fd_b = (int)MUST(open(b, O_RDWR));
    about("over an open file");
    OK(rename(a, b));
    EQ(0, fstat_of(fd_b).st_nlink);
    EQ(1, fstat_of(fd_a).st_nlink);
    EQ(3, pread(fd_b, text, 8, 0));
    EQ(0, memcmp(text, "old", 3));
    EQ(4, pwrite(fd_b, "more", 4, 0));
    EQ(4, fstat_of(fd_b).st_size);
    OK(fchmod(fd_b, 0640));
    OK(fsync(fd_b));
    EQ(3, pread(fd_a, text, 8, 0));
    EQ(0, memcmp(text, "new", 3));
    EQ(3, pwrite(fd_a, "NEW", 3, 0));
    IS_TRUE(holds(b, "NEW"));
    close(fd_a);
    close(fd_b);
    IS_TRUE(holds(b, "NEW"));
    MUST(unlink(b));
}

static void directories_in_use(void)
{
    int here = (int)MUST(open(".", O_PATH | O_DIRECTORY)), fd;

    about("directories in use");
    MUST(mkdir("work", 0777));
    MUST(mkdir("work/in", 0777));
    MUST(chdir("work/in"));
    OK(renameat(here, "work", here, "moved"));
    OK(close((int)OK(open("made-after", O_CREAT | O_WRONLY, 0600))));
    MUST(fchdir(here));
    IS_TRUE(exists("moved/in/made-after"));
    MUST(unlink("moved/in/made-after"));
    MUST(mkdir("empty", 0777));
    fd = (int)MUST(open("empty", O_RDONLY | O_DIRECTORY));
    OK(rename("moved/in", "empty"));
    WANT(ENOENT, openat(fd, "x", O_CREAT | O_WRONLY, 0600));
    EQ(0, fstat_of(fd).st_nlink);
    close(fd);
    close(here);
}

/* The parents need not be writable by a caller who may write to neither: EACCES before
 * all. */
static void permissions(void)
{
    const char *from = made_for(DIRECTORY, 0755, 70001, GROUP_ALICE);
    const char *to = made_for(DIRECTORY, 0777, 70001, GROUP_ALICE);

    MUST(make(REGULAR, path("%s/f", from), 0666));
    MUST(make(DIRECTORY, path("%s/d", from), 0777));
    MUST(make(DIRECTORY, path("%s/mine", to), 0555));
    MUST(give(path("%s/mine", to), 70002, GROUP_BOB));
    about("without write permission on a parent");
    AS(BOB)
    {
        WANT(EACCES, rename(path("%s/f", from), path("%s/f", to)));
        WANT(EACCES, rename(path("%s/mine", to), path("%s/mine", from)));
        WANT(EACCES, rename2(path("%s/mine", to), path("%s/d", from), RENAME_EXCHANGE));
        WANT(EACCES, rename2(path("%s/d", from), path("%s/mine", to), RENAME_EXCHANGE));
        WANT(EACCES, rename(path("%s/d", from), path("%s/d", to)));
    }
    about("a directory that the caller may not write to, within its parent");
    AS(BOB)
    {
        OK(rename(path("%s/mine", to), path("%s/mine2", to)));
    }
    MUST(mkdir(path("%s/sub", to), 0777));
    about("a directory that the caller may not write to, to another parent");
    AS(BOB)
    {
        /* ".." would change, so the directory itself has to be writable. */
        WANT(EACCES, rename(path("%s/mine2", to), path("%s/sub/mine", to)));
        MUST(chmod(path("%s/mine2", to), 0700));
        OK(rename(path("%s/mine2", to), path("%s/sub/mine", to)));
    }
}

TOPIC(rename)
{
    EACH_KIND(a)
    {
        to_new(a, false);
        to_new(a, true);
        EACH_KIND(b)
        {
            over(a, b);
            no_replace(a, b);
            exchange(a, b, false);
            exchange(a, b, true);
        }
    }
    whiteouts();
    two_names();
    not_empty();
    into_itself();
    dots();
    flags();
    replaced_while_open();
    directories_in_use();
    about("%s", "");
    NEEDS_ROOT("others' directories");
    permissions();
}
