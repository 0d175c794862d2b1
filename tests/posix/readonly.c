/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * readonly.c - file systems that may only be read: EROFS for each change, and what must
 * work all the same
 *
 * "suite -p DIR" makes the tree, "suite -R DIR" checks it once DIR is read-only; the
 * topic does both with a remount of its own where POSIX_OWN_DEVICE says that nobody else
 * is there.
 */
#include <dirent.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "posix.h"
#include "suite.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define TREE "read-only tree"

static const char *const names[KIND_COUNT] = {"file",   "dir",  "symlink", "fifo",
                                              "socket", "char", "block"};

void readonly_prepare(void)
{
    MUST(mkdir(TREE, 0777));
    MUST(chmod(TREE, 0777));
    EACH_KIND(k)
    {
        const char *n = path(TREE "/%s", names[k]);

        MUST(make(k, n, 0777));
        MUST(give(n, am_root() ? 70002 : ME.uid, am_root() ? GROUP_BOB : ME.gid));
    }
    MUST(spew(TREE "/file", "#!/bin/sh\nexit 5\n"));
    MUST(setxattr(TREE "/file", "user.x", "y", 1, 0));
    MUST(make(REGULAR, TREE "/dir/in", 0666));
    MUST(make(DIRECTORY, TREE "/dir/sub", 0777));
}

void readonly_clear(void)
{
    MUST(rmdir(TREE "/dir/sub"));
    MUST(unlink(TREE "/dir/in"));
    EACH_KIND(k)
    {
        MUST(gone(k, path(TREE "/%s", names[k])));
    }
    MUST(rmdir(TREE));
}

static int closed(int fd)
{
    return fd < 0 ? -1 : close(fd);
}

static void of_each_kind(Kind k)
{
    static const struct timespec some[2] = {{1, 0}, {1, 0}};
    const char *n = names[k];
    bool data = k == REGULAR || k == DIRECTORY;

    about("a %s", kind_names[k]);
    OK(lstat(n, &(struct stat){.st_ino = 0}));
    WANT(EROFS, lchown(n, (uid_t)-1, ME.gid));
    WANT(EROFS, utimensat(AT_FDCWD, n, NULL, AT_SYMLINK_NOFOLLOW));
    WANT(EROFS, utimensat(AT_FDCWD, n, some, AT_SYMLINK_NOFOLLOW));
    WANT(EROFS, rename(n, "other"));
    WANT(EROFS, k == DIRECTORY ? rmdir(n) : unlink(n));
    WANT_EITHER(EROFS, EPERM, link(n, "other"));
    WANT(EEXIST, mkdir(n, 0700));
    WANT(EEXIST, symlink("x", n));
    WANT(EEXIST, mknod(n, S_IFREG | 0600, 0));
    if (k != SYMLINK) {
        WANT(EROFS, chmod(n, 0700));
        OK(access(n, F_OK));
        OK(access(n, R_OK));
        WANT(data ? EROFS : 0, access(n, W_OK));
        OK(closed(open(n, O_PATH)));
    }
}

static void changes(void)
{
    about("changes");
    WANT(EROFS, open("file", O_WRONLY));
    WANT(EROFS, open("file", O_RDWR));
    WANT(EROFS, open("file", O_RDONLY | O_TRUNC));
    WANT(EROFS, open("file", O_WRONLY | O_APPEND));
    WANT(EROFS, open("new", O_CREAT | O_WRONLY, 0600));
    WANT(EROFS, open("new", O_CREAT | O_RDONLY, 0600));
    WANT(EROFS, open("new", O_CREAT | O_EXCL | O_RDWR, 0600));
    WANT(EROFS, open("dir/new", O_CREAT | O_RDWR, 0600));
    WANT(EEXIST, open("file", O_CREAT | O_EXCL | O_RDWR, 0600));
    WANT_EITHER(EROFS, EOPNOTSUPP, open("dir", O_TMPFILE | O_RDWR, 0600));
    WANT(EROFS, truncate("file", 0));
    WANT(EROFS, mkdir("new", 0700));
    WANT(EROFS, mkfifo("new", 0600));
    WANT(EROFS, mknod("new", S_IFREG | 0600, 0));
    WANT(EROFS, symlink("x", "new"));
    WANT(EROFS, link("file", "new"));
    WANT(EROFS, rename("file", "dir/in"));
    WANT(EROFS, rename("dir", "other"));
    WANT(EROFS, renameat2(AT_FDCWD, "file", AT_FDCWD, "dir", RENAME_EXCHANGE));
    WANT(EROFS, rmdir("dir/sub"));
    WANT(EROFS, unlink("dir/in"));
    WANT(EROFS, setxattr("file", "user.x", "z", 1, 0));
    WANT(EROFS, setxattr("file", "user.new", "z", 1, 0));
    WANT(EROFS, removexattr("file", "user.x"));
    WANT(ENOENT, open("missing", O_RDONLY));
    WANT(ENOENT, open("missing", O_WRONLY));
    WANT(EISDIR, open("dir", O_WRONLY));
}

static void reads(void)
{
    char bytes[32];
    struct statvfs s;
    const char *map;
    int fd, status;

    about("reads");
    fd = (int)OK(open("file", O_RDONLY));
    EQ(17, read(fd, bytes, sizeof bytes));
    WANT(EBADF, write(fd, "x", 1));
    WANT(EROFS, fchmod(fd, 0700));
    WANT(EROFS, futimens(fd, NULL));
    WANT_EITHER(EINVAL, EROFS, ftruncate(fd, 0));
    OK(fsync(fd));
    OK(flock(fd, LOCK_SH | LOCK_NB));
    map = mmap(NULL, 17, PROT_READ, MAP_SHARED, fd, 0);
    IS_TRUE(map != MAP_FAILED && map[1] == '!');
    map = mmap(NULL, 17, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    IS_TRUE(map != MAP_FAILED && (*(char *)map = 'x') == 'x');
    close(fd);
    OK(closed(open("file", O_RDONLY | O_CREAT, 0600)));
    EQ(1, getxattr("file", "user.x", bytes, sizeof bytes));
    OK(listxattr("file", bytes, sizeof bytes));
    EQ(7, readlink("symlink", bytes, sizeof bytes));
    EQ(am_root() ? KIND_COUNT : CHARDEV, names_in("."));
    EQ(2, names_in("dir"));
    fd = (int)OK(open("fifo", O_RDWR | O_NONBLOCK));
    EQ(1, write(fd, "x", 1));
    EQ(1, read(fd, bytes, 1));
    close(fd);
    OK(statvfs(".", &s));
    IS_TRUE((s.f_flag & ST_RDONLY) != 0);
    status = fork();
    if (status == 0) {
        execl("./file", "file", (char *)NULL);
        _exit(1);
    }
    EQ(5, WEXITSTATUS(wait_for_child()));
}

static void checks(void)
{
    EACH_KIND(k)
    {
        of_each_kind(k);
    }
    changes();
    reads();
}

void readonly_check(void)
{
    MUST(chdir(TREE));
    checks();
    if (am_root()) {
        AS(BOB)
        {
            checks();
        }
    }
    MUST(chdir(".."));
}

/* The directory that the topic's file system is mounted on. */
static const char *mount_point(void)
{
    const char *top = "..";
    dev_t dev = stat_of(".").st_dev;

    while (stat_of(path("%s/..", top)).st_dev == dev) {
        top = path("%s/..", top);
    }
    return realpath(top, NULL);
}

TOPIC_ALONE(readonly)
{
    const char *top;
    void *map;
    int fd;

    if (!am_root() || getenv("POSIX_OWN_DEVICE") == NULL) {
        skip("remounting: needs root and a device of its own");
        return;
    }
    top = mount_point();
    readonly_prepare();
    fd = (int)MUST(open(TREE "/file", O_WRONLY));
    about("remount,ro with a file open for writing");
    WANT(EBUSY, mount(NULL, top, NULL, MS_REMOUNT | MS_RDONLY, NULL));
    close(fd);
    fd = (int)MUST(open(TREE "/dir/in", O_RDWR));
    MUST(ftruncate(fd, 4096));
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    about("remount,ro with a file mapped for writing");
    WANT(EBUSY, mount(NULL, top, NULL, MS_REMOUNT | MS_RDONLY, NULL));
    MUST(munmap(map, 4096));
    about("remount,ro");
    OK(mount(NULL, top, NULL, MS_REMOUNT | MS_RDONLY, NULL));
    readonly_check();
    about("remount,rw");
    OK(mount(NULL, top, NULL, MS_REMOUNT, NULL));
    OK(close((int)OK(open(TREE "/dir/in", O_WRONLY))));
    OK(close((int)OK(open(TREE "/new", O_CREAT | O_WRONLY, 0600))));
    OK(unlink(TREE "/new"));
    readonly_clear();
}
