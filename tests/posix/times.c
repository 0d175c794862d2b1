/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * times.c - which call moves which time of the file and of the directories around it
 *
 * For each call: the marks that POSIX wants on the file, its directory and a second
 * directory; whatever is not marked stays. atime by reading is left out: relatime and the
 * cache decide.
 */
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#define MC (TIME_M | TIME_C)
#define C TIME_C

/* In the directory "d": "f" of the type, opened as fd where it can be; "e": another
 * directory. */
typedef struct Change {
    const char *name;
    int (*call)(int fd);
    int file, dir, other;
    const char *after; /* where the file is then; NULL: it is still d/f */
    bool regular;      /* regular files alone */
} Change;

#define CALL(name, expression)                                                           \
    static int name(int fd)                                                              \
    {                                                                                    \
        (void)fd;                                                                        \
        return (int)(expression);                                                        \
    }

static char text[64];
static struct stat ignored;

CALL(do_chmod, chmod("d/f", 0601))
CALL(do_chmod_same, chmod("d/f", 0644))
CALL(do_chown, lchown("d/f", ME.uid, ME.gid))
CALL(do_link, link("d/f", "e/f"))
CALL(do_rename, rename("d/f", "d/g"))
CALL(do_move, rename("d/f", "e/f"))
CALL(do_rename_same, rename("d/f", "d/f"))
CALL(do_stat, lstat("d/f", &ignored))
CALL(do_access, access("d/f", R_OK))
CALL(do_open, close(open("d/f", O_RDWR)))
CALL(do_open_path, close(open("d/f", O_PATH | O_NOFOLLOW)))
CALL(do_setxattr, lsetxattr("d/f", "user.a", "1", 1, 0))
CALL(do_getxattr, lgetxattr("d/f", "user.none", text, 8) == -1 ? 0 : -1)
CALL(do_write, write(fd, "text", 4))
CALL(do_write_nothing, write(fd, "", 0))
CALL(do_truncate, truncate("d/f", 100))
CALL(do_ftruncate, ftruncate(fd, 100))
CALL(do_ftruncate_same, ftruncate(fd, fstat_of(fd).st_size))
CALL(do_open_trunc, close(open("d/f", O_WRONLY | O_TRUNC)))
CALL(do_fallocate, fallocate(fd, 0, 0, 10000))
CALL(do_fallocate_keep, fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 10000))
CALL(do_punch, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 10))
CALL(do_zero, fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 10))
CALL(do_fsync, fsync(fd))
CALL(do_lseek, lseek(fd, 0, SEEK_END))
CALL(do_create_beside, close(open("d/new", O_CREAT | O_WRONLY, 0600)))
CALL(do_mkdir_beside, mkdir("d/new", 0700))
CALL(do_rmdir_beside, rmdir("d/sub"))
CALL(do_unlink_beside, unlink("d/beside"))
CALL(do_create_over, close(open("d/f", O_CREAT | O_WRONLY, 0600)))
CALL(do_failed_mkdir, mkdir("d/f", 0700) == -1 ? 0 : -1)
CALL(do_failed_link, link("d/beside", "d/f") == -1 ? 0 : -1)
CALL(do_failed_unlink, unlink("d/missing") == -1 ? 0 : -1)
CALL(do_failed_rmdir, rmdir("d") == -1 ? 0 : -1)

static const Change changes[] = {
    {"chmod", do_chmod, C, 0, 0, NULL, false},
    {"chmod to the same", do_chmod_same, C, 0, 0, NULL, false},
    {"chown", do_chown, C, 0, 0, NULL, false},
    {"link", do_link, C, 0, MC, NULL, false},
    {"rename", do_rename, C, MC, 0, "d/g", false},
    {"rename to another directory", do_move, C, MC, MC, "e/f", false},
    {"rename to the same", do_rename_same, 0, 0, 0, NULL, false},
    {"stat", do_stat, 0, 0, 0, NULL, false},
    {"access", do_access, 0, 0, 0, NULL, false},
    {"open", do_open, 0, 0, 0, NULL, true},
    {"open O_PATH", do_open_path, 0, 0, 0, NULL, false},
    {"setxattr", do_setxattr, C, 0, 0, NULL, true},
    {"getxattr of nothing", do_getxattr, 0, 0, 0, NULL, false},
    {"write", do_write, MC, 0, 0, NULL, true},
    {"write of nothing", do_write_nothing, 0, 0, 0, NULL, true},
    {"truncate", do_truncate, MC, 0, 0, NULL, true},
    {"ftruncate", do_ftruncate, MC, 0, 0, NULL, true},
    {"ftruncate to the same", do_ftruncate_same, MC, 0, 0, NULL, true},
    {"open O_TRUNC", do_open_trunc, MC, 0, 0, NULL, true},
    {"fallocate", do_fallocate, MC, 0, 0, NULL, true},
    {"fallocate KEEP_SIZE", do_fallocate_keep, C, 0, 0, NULL, true},
    {"fallocate PUNCH_HOLE", do_punch, MC, 0, 0, NULL, true},
    {"fallocate ZERO_RANGE", do_zero, MC, 0, 0, NULL, true},
    {"fsync", do_fsync, 0, 0, 0, NULL, true},
    {"lseek", do_lseek, 0, 0, 0, NULL, true},
    {"create beside", do_create_beside, 0, MC, 0, NULL, false},
    {"mkdir beside", do_mkdir_beside, 0, MC, 0, NULL, false},
    {"rmdir beside", do_rmdir_beside, 0, MC, 0, NULL, false},
    {"unlink beside", do_unlink_beside, 0, MC, 0, NULL, false},
    {"open O_CREAT of what is there", do_create_over, 0, 0, 0, NULL, true},
    {"mkdir that fails", do_failed_mkdir, 0, 0, 0, NULL, false},
    {"link that fails", do_failed_link, 0, 0, 0, NULL, false},
    {"unlink that fails", do_failed_unlink, 0, 0, 0, NULL, false},
    {"rmdir that fails", do_failed_rmdir, 0, 0, 0, NULL, false},
};

static bool fits(const Change *c, Kind k)
{
    if (c->regular && k != REGULAR) {
        return false;
    }
    if (k == SYMLINK &&
        (c->call == do_chmod || c->call == do_chmod_same || c->call == do_access)) {
        return false;
    }
    /* Directories have no second name; moving one changes "..". */
    return k != DIRECTORY || (c->call != do_link && c->call != do_move);
}

static void one(const Change *c, Kind k)
{
    const char *n = c->after == NULL ? "d/f" : c->after;
    struct stat file, dir, other;
    int fd = -1;

    MUST(mkdir("d", 0777));
    MUST(mkdir("e", 0777));
    MUST(make(k, "d/f", 0644));
    MUST(make(REGULAR, "d/beside", 0644));
    MUST(mkdir("d/sub", 0777));
    if (k == REGULAR) {
        MUST(spew("d/f", "some content"));
        fd = (int)MUST(open("d/f", O_RDWR));
    }
    file = before("d/f");
    dir = before("d");
    other = before("e");
    about("%s of a %s", c->name, kind_names[k]);
    OK(c->call(fd));
    if (c->call != do_fallocate_keep) { /* whether mtime grows, differs */
        TIMES(file, n, c->file);
    }
    about("%s of a %s: its directory", c->name, kind_names[k]);
    TIMES(dir, "d", c->dir);
    about("%s of a %s: another directory", c->name, kind_names[k]);
    TIMES(other, "e", c->other);
    if (fd >= 0) {
        about("%s of a %s: later", c->name, kind_names[k]);
        file = before(n);
        MUST(fsync(fd));
        close(fd);
        TIMES(file, n, 0);
    }
    (void)unlink("e/f");
    MUST(!exists(n) || gone(k, n) == 0 ? 0 : -1);
    (void)unlink("d/new");
    (void)rmdir("d/new");
    (void)rmdir("d/sub");
    (void)unlink("d/beside");
    MUST(rmdir("d"));
    MUST(rmdir("e"));
}

/* What has been written but may still be in memory somewhere is no reason to forget. */
static void while_dirty(void)
{
    static const struct {
        const char *name;
        int (*call)(int fd);
    } calls[] = {
        {"chmod", do_chmod},           {"chown", do_chown}, {"link", do_link},
        {"rename", do_rename},         {"move", do_move},   {"setxattr", do_setxattr},
        {"nothing", do_write_nothing}, {"stat", do_stat}};

    for (size_t i = 0; i < COUNT(calls); i++) {
        struct stat then, now;
        int fd,
            changes_it = calls[i].call != do_write_nothing && calls[i].call != do_stat;

        MUST(mkdir("d", 0777));
        MUST(mkdir("e", 0777));
        fd = (int)MUST(open("d/f", O_CREAT | O_RDWR, 0600));
        MUST(write(fd, "content", 7));
        then = before("d/f");
        MUST(write(fd, "more", 4));
        then = before("d/f");
        about("%s of a file just written", calls[i].name);
        OK(calls[i].call(fd));
        now = fstat_of(fd);
        EQ(changes_it, later(now.st_ctim, then.st_ctim));
        IS_TRUE(same_time(now.st_mtim, then.st_mtim));
        then = now;
        OK(fsync(fd));
        now = fstat_of(fd);
        IS_TRUE(same_time(now.st_ctim, then.st_ctim));
        IS_TRUE(same_time(now.st_mtim, then.st_mtim));
        close(fd);
        (void)unlink("d/f");
        (void)unlink("d/g");
        (void)unlink("e/f");
        MUST(rmdir("d"));
        MUST(rmdir("e"));
    }
}

/* Two changes one after the other: the clock of a file never goes back. */
static void in_order(void)
{
    const char *n = made(REGULAR, 0600);
    struct timespec last = {0, 0};
    bool forward = true;

    about("in order");
    for (int i = 0; i < 200; i++) {
        struct timespec now;

        MUST(i % 3 == 0   ? chmod(n, 0600)
             : i % 3 == 1 ? truncate(n, i)
                          : utimensat(AT_FDCWD, n, NULL, 0));
        now = stat_of(n).st_ctim;
        forward = forward && !later(last, now);
        last = now;
    }
    IS_TRUE(forward);
}

/* A file made after another one is not older. */
static void file_after_file(void)
{
    bool forward = true;

    about("one file after the other");
    for (int i = 0; i < 200; i++) {
        const char *a = fresh(), *b = fresh();

        MUST(spew(a, "text"));
        MUST(spew(b, "text"));
        forward = forward && !later(stat_of(a).st_mtim, stat_of(b).st_mtim);
        MUST(unlink(a));
        MUST(unlink(b));
    }
    IS_TRUE(forward);
}

/* Reading says so at least where it has not been said for a day (relatime). */
static void reading(void)
{
    static const struct timespec old[2] = {{1000, 0}, {1000, 0}};
    const char *n = made(REGULAR, 0600), *dir = made(DIRECTORY, 0700), *s = fresh();
    struct stat then;
    char c;
    int fd;

    MUST(spew(n, "text"));
    fd = (int)MUST(open(n, O_RDWR));
    MUST(futimens(fd, old));
    then = before(n);
    about("reading");
    EQ(1, pread(fd, &c, 1, 0));
    MC_TIMES(then, n, 0);
    then = before(dir);
    about("listing");
    EQ(0, names_in(dir));
    MC_TIMES(then, dir, 0);
    MUST(symlink("x", s));
    then = before(s);
    about("reading a symlink");
    EQ(1, readlink(s, text, sizeof text));
    MC_TIMES(then, s, 0);
    close(fd);
}

/* One page past all caches, so that whoever keeps the file hears of it. */
static ssize_t read_past_caches(int fd)
{
    static char page[4096] __attribute__((aligned(4096)));

    return pread(fd, page, sizeof page, 0);
}

/* relatime: the first read after a change, and the first in a day. */
static void relatime(void)
{
    static const struct timespec old[2] = {{1000, 5}, {1000, 5}};
    const char *n = made(REGULAR, 0600);
    struct statvfs s;
    struct stat then, now;
    int fd = open(n, O_RDWR | O_DIRECT), quiet;

    MUST(statvfs(".", &s));
    about("relatime");
    if (fd < 0 || !(s.f_flag & ST_RELATIME) || (s.f_flag & ST_NOATIME)) {
        skip("needs relatime and O_DIRECT");
        return;
    }
    MUST(spew(n, "text"));
    MUST(truncate(n, 8192));
    MUST(futimens(fd, old));
    quiet = (int)MUST(open(n, O_RDONLY | O_DIRECT | O_NOATIME));
    then = before(n);
    EQ(4096, read_past_caches(quiet));
    TIMES(then, n, 0);
    EQ(4096, read_past_caches(fd));
    TIMES(then, n, TIME_A);
    now = before(n);
    EQ(4096, read_past_caches(fd));
    TIMES(now, n, 0);
    MUST(truncate(n, 8000));
    then = before(n);
    close(fd);
    fd = (int)MUST(open(n, O_RDWR | O_DIRECT));
    EQ(4096, read_past_caches(fd));
    TIMES(then, n, TIME_A);
    then = before(n);
    close(fd);
    close(quiet);
    TIMES(then, n, 0);
    about("a set atime");
    fd = (int)MUST(open(n, O_RDWR | O_DIRECT));
    MUST(truncate(n, 7000));
    EQ(4096, read_past_caches(fd));
    MUST(futimens(fd, old));
    EQ(1000, stat_of(n).st_atim.tv_sec);
    close(fd);
    EQ(1000, stat_of(n).st_atim.tv_sec);
}

TOPIC(times)
{
    EACH_KIND(k)
    {
        for (size_t i = 0; i < COUNT(changes); i++) {
            if (fits(&changes[i], k)) {
                one(&changes[i], k);
            }
        }
    }
    while_dirty();
    in_order();
    file_after_file();
    reading();
    relatime();
}
