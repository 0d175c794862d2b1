/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* symlink.c - symlink, readlink: targets of any bytes and lengths, who follows and who
 * does not */
#include <limits.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void lengths(void)
{
    static const size_t some[] = {1,   2,   59,   60,   61,   127,  128,
                                  255, 256, 1000, 4000, 4080, 4094, 4095};
    char target[PATH_MAX + 10], got[PATH_MAX + 10];

    for (size_t i = 0; i < COUNT(some); i++) {
        const char *n = fresh();

        memset(target, 't', some[i]);
        target[some[i]] = '\0';
        about("a target of %zu bytes", some[i]);
        /* Some file systems keep a NUL or a header in the same block. */
        if (symlink(target, n) == -1 && errno == ENAMETOOLONG && some[i] > 1000) {
            skip("targets of %zu bytes do not fit here", some[i]);
            continue;
        }
        EQ(some[i], stat_of(n).st_size);
        EQ(some[i], readlink(n, got, sizeof got));
        EQ(0, memcmp(target, got, some[i]));
        EQ(1, readlink(n, got, 1));
        WANT(EINVAL, readlink(n, got, 0));
        MUST(unlink(n));
    }
    memset(target, 't', PATH_MAX);
    target[PATH_MAX] = '\0';
    about("a target of 4096 bytes");
    WANT(ENAMETOOLONG, symlink(target, fresh()));
    about("an empty target");
    WANT(ENOENT, symlink("", fresh()));
}

static void bytes(void)
{
    char target[256], got[300];

    for (int i = 0; i < 255; i++) {
        target[i] = (char)(i + 1);
    }
    target[255] = '\0';
    about("a target of all bytes");
    OK(symlink(target, "all"));
    EQ(255, readlink("all", got, sizeof got));
    EQ(0, memcmp(target, got, 255));
}

static void not_symlinks(void)
{
    char got[16];

    EACH_KIND(k)
    {
        const char *n = made(k, 0600);

        about("readlink of a %s", kind_names[k]);
        if (k == SYMLINK) {
            EQ(7, readlink(n, got, sizeof got));
        } else {
            WANT(EINVAL, readlink(n, got, sizeof got));
        }
    }
}

static void follow(void)
{
    const char *n = made(REGULAR, 0600), *dir = made(DIRECTORY, 0700), *s = fresh(),
               *d = fresh();
    char got[16];
    int fd;

    MUST(symlink(n, s));
    MUST(symlink(dir, d));
    about("following");
    EQ(S_IFLNK, stat_of(s).st_mode & S_IFMT);
    OK(close((int)OK(open(s, O_RDONLY))));
    WANT(ELOOP, open(s, O_RDONLY | O_NOFOLLOW));
    WANT(ENOTDIR, open(d, O_RDONLY | O_NOFOLLOW | O_DIRECTORY));
    OK(close((int)OK(open(path("%s/", d), O_RDONLY | O_NOFOLLOW | O_DIRECTORY))));
    OK(mkdir(path("%s/sub", d), 0700));
    OK(rmdir(path("%s/sub", dir)));
    WANT(ENOTDIR, rmdir(d));
    WANT(EEXIST, mkdir(s, 0700));
    WANT(EEXIST, mkdir(d, 0700));
    fd = (int)OK(open(s, O_PATH | O_NOFOLLOW));
    EQ(strlen(n), readlinkat(fd, "", got, sizeof got));
    close(fd);
    fd = (int)OK(open(n, O_PATH));
    WANT(ENOENT, readlinkat(fd, "", got, sizeof got));
    close(fd);
    WANT(EBADF, readlinkat(-1, s, got, sizeof got));
    WANT(EBADF, symlinkat("x", -1, "y"));
    WANT(EFAULT, syscall(SYS_symlink, (void *)1, "y"));
    WANT(EFAULT, syscall(SYS_readlink, (void *)1, got, 5));
    WANT(EFAULT, syscall(SYS_readlink, s, (void *)1, 5));
    WANT(EPERM, lsetxattr(s, "user.x", "1", 1, 0));
    OK(unlink(s));
    OK(unlink(d));
    IS_TRUE(exists(n) && exists(dir));
}

/* Neither mode nor owner of a symlink limits who follows it. */
static void anybody_follows(void)
{
    const char *n = made_for(REGULAR, 0644, 70001, GROUP_ALICE),
               *dir = made(DIRECTORY, 0777);
    const char *s = path("%s/s", dir);
    char got[64];

    MUST(symlink(path("../%s", n), s));
    MUST(give(s, 70002, GROUP_BOB));
    about("a symlink of somebody else");
    AS(CAROL)
    {
        OK(close((int)OK(open(s, O_RDONLY))));
        OK(readlink(s, got, sizeof got));
        WANT(EACCES, open(s, O_WRONLY));
    }
    EQ(0777, mode_of(s));
}

TOPIC(symlink)
{
    lengths();
    bytes();
    not_symlinks();
    follow();
    about("%s", "");
    NEEDS_ROOT("others' symlinks");
    anybody_follows();
}
