/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* tmpfile.c - O_TMPFILE: files without a name, and how they get one */
#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static int name_it(int fd, const char *n)
{
    return linkat(AT_FDCWD, path("/proc/self/fd/%d", fd), AT_FDCWD, n, AT_SYMLINK_FOLLOW);
}

static void modes_and_masks(void)
{
    static const mode_t modes[] = {0, 0400, 0600, 0644, 0777, 04755, 02755, 07777};
    static const mode_t masks[] = {0, 0022, 0077, 0777};

    for (size_t i = 0; i < COUNT(modes); i++) {
        for (size_t u = 0; u < COUNT(masks); u++) {
            const char *n = fresh();
            struct stat st;
            int fd;

            about("O_TMPFILE 0%o with umask 0%o", modes[i], masks[u]);
            umask(masks[u]);
            fd = (int)OK(open(".", O_TMPFILE | O_RDWR, modes[i]));
            umask(0);
            st = fstat_of(fd);
            EQ(S_IFREG | (modes[i] & ~masks[u]), st.st_mode);
            EQ(0, st.st_nlink);
            EQ(0, st.st_size);
            EQ(ME.uid, st.st_uid);
            EQ(ME.gid, st.st_gid);
            OK(name_it(fd, n));
            EQ(1, fstat_of(fd).st_nlink);
            EQ(S_IFREG | (modes[i] & ~masks[u]), stat_of(n).st_mode);
            close(fd);
            MUST(unlink(n));
        }
    }
}

static void content(void)
{
    const char *dir = made(DIRECTORY, 0777);
    struct stat then = before(dir);
    char text[8];
    int fd;

    about("content");
    fd = (int)OK(open(dir, O_TMPFILE | O_RDWR, 0600));
    EQ(0, names_in(dir));
    MC_TIMES(then, dir, 0);
    EQ(4, write(fd, "text", 4));
    EQ(4, pread(fd, text, 8, 0));
    OK(ftruncate(fd, 3));
    OK(fsync(fd));
    OK(fchmod(fd, 0640));
    EQ(3, fstat_of(fd).st_size);
    OK(name_it(fd, path("%s/named", dir)));
    MC_TIMES(then, dir, TIME_M | TIME_C);
    IS_TRUE(holds(path("%s/named", dir), "tex"));
    EQ(0640, mode_of(path("%s/named", dir)));
    EQ(4, pwrite(fd, "more", 4, 0));
    IS_TRUE(holds(path("%s/named", dir), "more"));
    OK(name_it(fd, path("%s/second", dir)));
    EQ(2, fstat_of(fd).st_nlink);
    OK(unlink(path("%s/named", dir)));
    OK(unlink(path("%s/second", dir)));
    EQ(0, fstat_of(fd).st_nlink);
    close(fd);
    OK(rmdir(dir));
}

static void errors(void)
{
    const char *dir = made(DIRECTORY, 0555), *file = made(REGULAR, 0600), *s = fresh();
    int fd;

    about("errors");
    WANT(EINVAL, open(".", O_TMPFILE | O_RDONLY, 0600));
    WANT(ENOTDIR, open(file, O_TMPFILE | O_RDWR, 0600));
    WANT(ENOENT, open("missing", O_TMPFILE | O_RDWR, 0600));
    WANT(EINVAL, open(".", O_TMPFILE | O_CREAT | O_RDWR, 0600));
    if (!am_root()) {
        WANT(EACCES, open(dir, O_TMPFILE | O_RDWR, 0600));
    }
    MUST(symlink(".", s));
    fd = (int)OK(open(s, O_TMPFILE | O_WRONLY, 0600));
    WANT(EEXIST, name_it(fd, file));
    WANT(ENOENT, name_it(fd, "missing/x"));
    close(fd);
    about("O_EXCL: never a name");
    fd = (int)OK(open(".", O_TMPFILE | O_EXCL | O_RDWR, 0600));
    WANT(ENOENT, name_it(fd, fresh()));
    EQ(4, write(fd, "text", 4));
    close(fd);
}

static void owners(void)
{
    const char *dir = made_for(DIRECTORY, 02777, 70009, GROUP_TEAM), *n = fresh();
    int fd = -1;

    about("in a set-group-ID directory");
    AS(BOB)
    {
        fd = (int)OK(open(dir, O_TMPFILE | O_RDWR, 02775));
    }
    EQ(70002, fstat_of(fd).st_uid);
    EQ(GROUP_TEAM, fstat_of(fd).st_gid);
    EQ(0775, fstat_of(fd).st_mode & 07777);
    OK(name_it(fd, n));
    EQ(GROUP_TEAM, stat_of(n).st_gid);
    close(fd);
    about("in a directory without permission");
    MUST(chmod(dir, 0755));
    AS(BOB)
    {
        WANT(EACCES, open(dir, O_TMPFILE | O_RDWR, 0600));
    }
}

static void many(void)
{
    enum { FILES = 100 };
    int fds[FILES];

    about("many at once");
    for (int i = 0; i < FILES; i++) {
        fds[i] = (int)MUST(open(".", O_TMPFILE | O_RDWR, 0600));
        MUST(write(fds[i], &i, sizeof i) == sizeof i ? 0 : -1);
    }
    for (int i = 0; i < FILES; i++) {
        int got = -1;

        MUST(pread(fds[i], &got, sizeof got, 0) == sizeof got ? 0 : -1);
        if (got != i) {
            EQ(i, got);
        }
        close(fds[i]);
    }
    EQ(0, names_in("."));
}

TOPIC(tmpfile)
{
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);

    if (fd < 0 && errno == EOPNOTSUPP) {
        skip("no O_TMPFILE here");
        return;
    }
    close(fd);
    many();
    modes_and_masks();
    content();
    errors();
    about("%s", "");
    NEEDS_ROOT("several users");
    owners();
}
