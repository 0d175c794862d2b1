/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* link.c - link, linkat, unlink, rmdir: names come and go, counts and times follow */
#include <sys/syscall.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void counts_and_times(void)
{
    EACH_KIND(k)
    {
        const char *dir = made(DIRECTORY, 0777), *other = made(DIRECTORY, 0777);
        const char *a = path("%s/a", dir), *b = path("%s/b", other);
        struct stat then, then_other;

        if (k == DIRECTORY) {
            MUST(mkdir(a, 0777));
            then = before(a);
            about("a link to a directory");
            WANT(EPERM, link(a, b));
            WANT(EPERM, linkat(AT_FDCWD, a, AT_FDCWD, b, AT_SYMLINK_FOLLOW));
            EQ(2, stat_of(a).st_nlink);
            TIMES(then, a, 0);
            continue;
        }
        MUST(make(k, a, 0640));
        then = before(a);
        then_other = before(other);
        about("a link to a %s", kind_names[k]);
        OK(link(a, b));
        EQ(2, stat_of(a).st_nlink);
        EQ(2, stat_of(b).st_nlink);
        EQ(then.st_ino, stat_of(b).st_ino);
        EQ(then.st_mode, stat_of(b).st_mode);
        EQ(then.st_rdev, stat_of(b).st_rdev);
        MC_TIMES(then, b, TIME_C);
        MC_TIMES(then_other, other, TIME_M | TIME_C);
        if (k != SYMLINK) {
            OK(chmod(b, 0604));
            EQ(0604, mode_of(a));
        }
        then = before(a);
        then_other = before(other);
        about("unlink of one of two names of a %s", kind_names[k]);
        OK(unlink(b));
        EQ(1, stat_of(a).st_nlink);
        MC_TIMES(then, a, TIME_C);
        MC_TIMES(then_other, other, TIME_M | TIME_C);
        IS_TRUE(!exists(b));
        EQ(0, names_in(other));
        then = before(dir);
        about("unlink of the last name of a %s", kind_names[k]);
        OK(unlink(a));
        WANT(ENOENT, unlink(a));
        MC_TIMES(then, dir, TIME_M | TIME_C);
        OK(rmdir(dir));
        OK(rmdir(other));
    }
}

static void on_existing(void)
{
    EACH_KIND(a)
    {
        EACH_KIND(b)
        {
            const char *x = made(a, 0700), *y = made(b, 0700);
            struct stat then_x = before(x), then_y = before(y);

            about("a link to a %s where a %s is", kind_names[a], kind_names[b]);
            WANT_EITHER(EEXIST, a == DIRECTORY ? EPERM : EEXIST, link(x, y));
            EQ(then_x.st_nlink, stat_of(x).st_nlink);
            EQ(then_y.st_ino, stat_of(y).st_ino);
            MC_TIMES(then_x, x, 0);
            MC_TIMES(then_y, y, 0);
            MUST(gone(a, x));
            MUST(gone(b, y));
        }
    }
}

static void through_symlinks(void)
{
    const char *n = made(REGULAR, 0600), *s = fresh(), *dangling = fresh();

    MUST(symlink(n, s));
    MUST(symlink("missing", dangling));
    about("symlinks");
    OK(link(s, "to-symlink"));
    EQ(S_IFLNK, stat_of("to-symlink").st_mode & S_IFMT);
    EQ(2, stat_of(s).st_nlink);
    OK(linkat(AT_FDCWD, s, AT_FDCWD, "to-file", AT_SYMLINK_FOLLOW));
    EQ(stat_of(n).st_ino, stat_of("to-file").st_ino);
    OK(link(dangling, "to-dangling"));
    WANT(ENOENT, linkat(AT_FDCWD, dangling, AT_FDCWD, "x", AT_SYMLINK_FOLLOW));
    WANT(EEXIST, link(n, dangling));
    IS_TRUE(!exists("missing"));
}

static void descriptors(void)
{
    const char *n = made(REGULAR, 0600), *dir = made(DIRECTORY, 0777);
    int fd = (int)MUST(open(n, O_RDONLY)), in = (int)MUST(open(dir, O_RDONLY));

    about("descriptors and flags");
    OK(linkat(AT_FDCWD, n, in, "x", 0));
    OK(linkat(in, "x", AT_FDCWD, "y", 0));
    EQ(3, stat_of(n).st_nlink);
    OK(linkat(AT_FDCWD, path("/proc/self/fd/%d", fd), in, "z", AT_SYMLINK_FOLLOW));
    EQ(4, fstat_of(fd).st_nlink);
    WANT(EXDEV, link("/proc/version", "x"));
    WANT(EINVAL, linkat(AT_FDCWD, n, AT_FDCWD, "v", 0x4000000));
    WANT(EBADF, linkat(-1, n, AT_FDCWD, "v", 0));
    WANT(EBADF, linkat(AT_FDCWD, n, -1, "v", 0));
    WANT(ENOTDIR, linkat(fd, n, AT_FDCWD, "v", 0));
    WANT(ENOENT, linkat(AT_FDCWD, "", AT_FDCWD, "v", 0));
    WANT(EFAULT, syscall(SYS_link, (void *)1, "v"));
    WANT(EINVAL, unlinkat(in, "x", 0x4000000));
    WANT(ENOTDIR, unlinkat(in, "x", AT_REMOVEDIR));
    OK(unlinkat(in, "x", 0));
    OK(unlinkat(in, "z", 0));
    WANT(EISDIR, unlinkat(AT_FDCWD, dir, 0));
    OK(unlinkat(AT_FDCWD, dir, AT_REMOVEDIR));
    WANT(ENOENT, linkat(AT_FDCWD, n, in, "v", 0));
    close(fd);
    close(in);
}

/* A file that has lost its last name does not get another by a path to its descriptor. */
static void no_name_left(void)
{
    const char *n = made(REGULAR, 0600);
    int fd = (int)MUST(open(n, O_RDWR));
    char text[8];

    MUST(unlink(n));
    about("a file without a name");
    WANT(ENOENT, linkat(AT_FDCWD, path("/proc/self/fd/%d", fd), AT_FDCWD, "again",
                        AT_SYMLINK_FOLLOW));
    EQ(0, fstat_of(fd).st_nlink);
    EQ(4, write(fd, "text", 4));
    EQ(4, pread(fd, text, 8, 0));
    EQ(4, fstat_of(fd).st_size);
    OK(ftruncate(fd, 2));
    OK(fchmod(fd, 0400));
    OK(fsync(fd));
    EQ(2, fstat_of(fd).st_size);
    WANT(ENOENT, open(n, O_RDONLY));
    MUST(spew(n, "another"));
    EQ(2, fstat_of(fd).st_size);
    close(fd);
    IS_TRUE(holds(n, "another"));
}

static void unlink_errors(void)
{
    EACH_KIND(k)
    {
        const char *n = made(k, 0700);

        about("unlink and rmdir of a %s", kind_names[k]);
        if (k == DIRECTORY) {
            WANT(EISDIR, unlink(n));
            WANT(EISDIR, unlink(path("%s/", n)));
            WANT(EISDIR, unlink(path("%s/.", n)));
            WANT(EISDIR, unlink(path("%s/..", n)));
            OK(rmdir(n));
        } else {
            WANT(ENOTDIR, rmdir(n));
            WANT(k == SYMLINK ? ENOENT : ENOTDIR, rmdir(path("%s/.", n)));
            OK(unlink(n));
        }
        WANT(ENOENT, unlink(n));
        WANT(ENOENT, rmdir(n));
    }
    about("the root");
    WANT(EISDIR, unlink("/"));
    WANT(EBUSY, rmdir("/"));
}

static void rmdir_errors(void)
{
    const char *dir = made(DIRECTORY, 0777), *s = fresh();
    struct stat then;

    MUST(symlink(dir, s));
    about("rmdir");
    WANT(EINVAL, rmdir(path("%s/.", dir)));
    WANT(ENOTEMPTY, rmdir(path("%s/..", dir)));
    WANT(ENOTDIR, rmdir(s));
    WANT(ENOTDIR, rmdir(path("%s/", s)));
    IS_TRUE(exists(dir));
    EACH_KIND(k)
    {
        const char *in = path("%s/x", dir);

        MUST(make(k, in, 0));
        then = before(dir);
        about("rmdir of a directory with a %s", kind_names[k]);
        WANT(ENOTEMPTY, rmdir(dir));
        MC_TIMES(then, dir, 0);
        EQ(1, names_in(dir));
        MUST(gone(k, in));
    }
    about("rmdir");
    EQ(2, stat_of(dir).st_nlink);
    OK(rmdir(dir));
    WANT_EITHER(ENOENT, ENOTDIR, rmdir(path("%s/", s)));
}

/* A directory that is gone, for those who stand in it or have it open. */
static void removed_directory(void)
{
    const char *dir = made(DIRECTORY, 0777);
    int here = (int)MUST(open(".", O_PATH | O_DIRECTORY));
    int fd = (int)MUST(open(dir, O_RDONLY | O_DIRECTORY));
    char buffer[64];

    MUST(chdir(dir));
    about("in a removed directory");
    OK(rmdir(path("../%s", dir)));
    EQ(0, fstat_of(fd).st_nlink);
    EQ(0, stat_of(".").st_nlink);
    EQ(0, names_in("."));
    WANT(ENOENT, open("x", O_CREAT | O_RDWR, 0600));
    WANT(ENOENT, mkdir("x", 0700));
    WANT(ENOENT, symlink("y", "x"));
    WANT(ENOENT, mknod("x", S_IFIFO | 0600, 0));
    WANT(ENOENT, stat("x", &(struct stat){.st_ino = 0}));
    WANT(ENOENT, unlink("x"));
    WANT(EINVAL, rmdir("."));
    WANT(ENOENT, open("x", O_RDONLY));
    WANT(ENOENT, (long)getcwd(buffer, sizeof buffer) == 0 ? -1 : 0);
    OK(stat("..", &(struct stat){.st_ino = 0}));
    OK(fchmod(fd, 0700));
    OK(fsync(fd));
    MUST(fchdir(here));
    close(fd);
    close(here);
}

static void many(void)
{
    enum { LINKS = 1000 };
    const char *n = made(REGULAR, 0600);

    about("%d names", LINKS);
    for (int i = 0; i < LINKS; i++) {
        MUST(link(n, path("many%d", i)));
    }
    EQ(LINKS + 1, stat_of(n).st_nlink);
    EQ(LINKS + 1, stat_of("many999").st_nlink);
    for (int i = 0; i < LINKS; i++) {
        MUST(unlink(path("many%d", i)));
    }
    EQ(1, stat_of(n).st_nlink);
    MUST(mkdir("subs", 0777));
    about("%d subdirectories", LINKS);
    for (int i = 0; i < LINKS; i++) {
        MUST(mkdir(path("subs/%d", i), 0777));
    }
    EQ(LINKS + 2, stat_of("subs").st_nlink);
    for (int i = 0; i < LINKS; i++) {
        MUST(rmdir(path("subs/%d", i)));
    }
    EQ(2, stat_of("subs").st_nlink);
    OK(rmdir("subs"));
}

/* What fs.protected_hardlinks allows everybody: his own, and what he may read and
 * write. */
static void by_others(void)
{
    const char *mine = made_for(REGULAR, 0600, 70002, GROUP_BOB);
    const char *open_to_all = made_for(REGULAR, 0666, 70001, GROUP_ALICE);

    about("links by users");
    AS(BOB)
    {
        OK(link(mine, "l1"));
        OK(link(open_to_all, "l2"));
    }
    EQ(70001, stat_of("l2").st_uid);
    MUST(mkdir("shut", 0755));
    AS(BOB)
    {
        WANT(EACCES, link(mine, "shut/l"));
        WANT(ENOENT, unlink("shut/l"));
        OK(unlink("l1"));
        OK(unlink("l2"));
    }
    MUST(make(REGULAR, "shut/f", 0666));
    MUST(make(DIRECTORY, "shut/d", 0777));
    AS(BOB)
    {
        WANT(EACCES, unlink("shut/f"));
        WANT(EACCES, rmdir("shut/d"));
        WANT(EACCES, link("shut/f", "shut/g"));
    }
}

TOPIC(link)
{
    counts_and_times();
    on_existing();
    through_symlinks();
    descriptors();
    no_name_left();
    many();
    about("%s", "");
    NEEDS_ROOT("others' files");
    by_others();
}

TOPIC(unlink)
{
    unlink_errors();
    rmdir_errors();
    removed_directory();
}
