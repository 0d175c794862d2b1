/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * path.c - what every call that takes a path makes of paths: each call, each kind of
 * fault
 *
 * The table says of each call what its last component has to be, and what it answers
 * where calls differ; the functions below it are one fault each.
 */
#include <dirent.h>
#include <limits.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

#include "posix.h"

#define CREATES (1u << 0)  /* the last component is made */
#define FOLLOWS (1u << 1)  /* a symlink as the last component leads on */
#define CONSUMES (1u << 2) /* the last component goes away */
#define OF_USER (1u << 3)  /* needs user.* attributes: not on FIFOs or symlinks */

typedef struct PathCall {
    const char *name;
    int (*call)(const char *p);
    unsigned is;
    Kind target;       /* what has to be there, or what CREATES makes */
    int slash_on_new;  /* CREATES: "new/" */
    int slash_on_file; /* "file/" where a file is there */
    int on_existing;   /* CREATES: the name is there */
} PathCall;

static int closed(int fd)
{
    return fd < 0 ? -1 : close(fd);
}

static const char *spare(Kind kind)
{
    static unsigned count;
    const char *n = path("spare%u", ++count);

    return make(kind, n, 0777) == 0 ? n : "spare";
}

#define CALL(name, expression)                                                           \
    static int name(const char *p)                                                       \
    {                                                                                    \
        return (int)(expression);                                                        \
    }

static struct stat ignored_stat;
static struct statx ignored_statx;
static struct statfs ignored_statfs;
static char ignored_text[PATH_MAX];

CALL(do_stat, stat(p, &ignored_stat))
CALL(do_lstat, lstat(p, &ignored_stat))
CALL(do_statx, statx(AT_FDCWD, p, 0, STATX_ALL, &ignored_statx))
CALL(do_access, access(p, F_OK))
CALL(do_access_read, access(p, R_OK))
CALL(do_open, closed(open(p, O_RDONLY)))
CALL(do_open_path, closed(open(p, O_PATH)))
CALL(do_open_path_nofollow, closed(open(p, O_PATH | O_NOFOLLOW)))
CALL(do_open_write, closed(open(p, O_WRONLY)))
CALL(do_open_trunc, closed(open(p, O_WRONLY | O_TRUNC)))
CALL(do_open_directory, closed(open(p, O_RDONLY | O_DIRECTORY)))
CALL(do_open_create, closed(open(p, O_WRONLY | O_CREAT, 0600)))
CALL(do_open_excl, closed(open(p, O_WRONLY | O_CREAT | O_EXCL, 0600)))
CALL(do_creat, closed(creat(p, 0600)))
CALL(do_chmod, chmod(p, 0700))
CALL(do_chown, chown(p, (uid_t)-1, (gid_t)-1))
CALL(do_lchown, lchown(p, (uid_t)-1, (gid_t)-1))
CALL(do_utimens, utimensat(AT_FDCWD, p, NULL, 0))
CALL(do_lutimens, utimensat(AT_FDCWD, p, NULL, AT_SYMLINK_NOFOLLOW))
CALL(do_truncate, truncate(p, 10))
CALL(do_mkdir, mkdir(p, 0700))
CALL(do_rmdir, rmdir(p))
CALL(do_unlink, unlink(p))
CALL(do_mkfifo, mkfifo(p, 0600))
CALL(do_mknod, mknod(p, S_IFREG | 0600, 0))
CALL(do_mknod_socket, mknod(p, S_IFSOCK | 0600, 0))
CALL(do_symlink, symlink("target", p))
CALL(do_readlink, readlink(p, ignored_text, sizeof ignored_text))
CALL(do_link_from, link(p, path("%s", fresh())))
CALL(do_link_to, link(spare(REGULAR), p))
CALL(do_rename_from, rename(p, path("%s", fresh())))
CALL(do_rename_to, rename(spare(REGULAR), p))
CALL(do_rename_dir_from, rename(p, path("%s", fresh())))
CALL(do_rename_dir_to, rename(spare(DIRECTORY), p))
CALL(do_statfs, statfs(p, &ignored_statfs))
CALL(do_getxattr,
     getxattr(p, "user.none", ignored_text, 10) >= -1 && errno == ENODATA ? 0 : -1)
CALL(do_listxattr, listxattr(p, ignored_text, sizeof ignored_text))
CALL(do_llistxattr, llistxattr(p, ignored_text, sizeof ignored_text))
CALL(do_setxattr, setxattr(p, "user.x", "y", 1, 0))
CALL(do_removexattr, removexattr(p, "user.none") == -1 && errno == ENODATA ? 0 : -1)

static int do_opendir(const char *p)
{
    DIR *d = opendir(p);

    return d == NULL ? -1 : closedir(d);
}

/* Back again: the names of the checks that follow are relative. */
static int do_chdir(const char *p)
{
    int here = open(".", O_PATH | O_DIRECTORY), r = chdir(p), error = errno;

    if (r == 0 && fchdir(here) != 0) {
        abort();
    }
    close(here);
    errno = error;
    return r;
}

static int do_name_to_handle(const char *p)
{
    union {
        struct file_handle head;
        char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } h = {.head = {.handle_bytes = MAX_HANDLE_SZ}};
    int mount;

    return name_to_handle_at(AT_FDCWD, p, &h.head, &mount, AT_SYMLINK_FOLLOW);
}

static const PathCall calls[] = {
    {"stat", do_stat, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"lstat", do_lstat, 0, REGULAR, 0, ENOTDIR, 0},
    {"statx", do_statx, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"access F_OK", do_access, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"access R_OK", do_access_read, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"open", do_open, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"open O_PATH", do_open_path, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"open O_PATH|O_NOFOLLOW", do_open_path_nofollow, 0, REGULAR, 0, ENOTDIR, 0},
    {"open O_WRONLY", do_open_write, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"open O_TRUNC", do_open_trunc, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"open O_DIRECTORY", do_open_directory, FOLLOWS, DIRECTORY, 0, ENOTDIR, 0},
    {"open O_CREAT", do_open_create, CREATES | FOLLOWS, REGULAR, EISDIR, EISDIR, 0},
    {"open O_CREAT|O_EXCL", do_open_excl, CREATES, REGULAR, EISDIR, EISDIR, EEXIST},
    {"creat", do_creat, CREATES | FOLLOWS, REGULAR, EISDIR, EISDIR, 0},
    {"chmod", do_chmod, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"chown", do_chown, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"lchown", do_lchown, 0, REGULAR, 0, ENOTDIR, 0},
    {"utimensat", do_utimens, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"utimensat AT_SYMLINK_NOFOLLOW", do_lutimens, 0, REGULAR, 0, ENOTDIR, 0},
    {"truncate", do_truncate, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"mkdir", do_mkdir, CREATES, DIRECTORY, 0, EEXIST, EEXIST},
    {"rmdir", do_rmdir, CONSUMES, DIRECTORY, 0, ENOTDIR, 0},
    {"unlink", do_unlink, CONSUMES, REGULAR, 0, ENOTDIR, 0},
    {"mkfifo", do_mkfifo, CREATES, FIFO, ENOENT, EEXIST, EEXIST},
    {"mknod", do_mknod, CREATES, REGULAR, ENOENT, EEXIST, EEXIST},
    {"mknod S_IFSOCK", do_mknod_socket, CREATES, SOCKET, ENOENT, EEXIST, EEXIST},
    {"symlink", do_symlink, CREATES, SYMLINK, ENOENT, EEXIST, EEXIST},
    {"readlink", do_readlink, 0, SYMLINK, 0, ENOTDIR, 0},
    {"link from", do_link_from, 0, REGULAR, 0, ENOTDIR, 0},
    {"link to", do_link_to, CREATES, REGULAR, ENOENT, EEXIST, EEXIST},
    {"rename from", do_rename_from, CONSUMES, REGULAR, 0, ENOTDIR, 0},
    {"rename to", do_rename_to, CREATES, REGULAR, ENOTDIR, ENOTDIR, 0},
    {"rename of a directory from", do_rename_dir_from, CONSUMES, DIRECTORY, 0, ENOTDIR,
     0},
    {"rename of a directory to", do_rename_dir_to, CREATES, DIRECTORY, 0, ENOTDIR, 0},
    {"statfs", do_statfs, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"getxattr", do_getxattr, FOLLOWS | OF_USER, REGULAR, 0, ENOTDIR, 0},
    {"setxattr", do_setxattr, FOLLOWS | OF_USER, REGULAR, 0, ENOTDIR, 0},
    {"removexattr", do_removexattr, FOLLOWS | OF_USER, REGULAR, 0, ENOTDIR, 0},
    {"listxattr", do_listxattr, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
    {"llistxattr", do_llistxattr, 0, REGULAR, 0, ENOTDIR, 0},
    {"opendir", do_opendir, FOLLOWS, DIRECTORY, 0, ENOTDIR, 0},
    {"chdir", do_chdir, FOLLOWS, DIRECTORY, 0, ENOTDIR, 0},
    {"name_to_handle_at", do_name_to_handle, FOLLOWS, REGULAR, 0, ENOTDIR, 0},
};

#define EACH_CALL(c)                                                                     \
    for (const PathCall *c = calls; c < calls + sizeof calls / sizeof calls[0];          \
         about("%s", ""), c++)

/* Something for @c at @p: there for most, not there for those that make it. */
static const char *ready(const PathCall *c, const char *p)
{
    if (!(c->is & CREATES)) {
        MUST(make(c->target, p, 0700));
    }
    return p;
}

static void done(const PathCall *c, const char *p)
{
    if (!(c->is & CONSUMES)) {
        MUST(gone(c->target, p));
    }
}

static void no_path(const PathCall *c)
{
    about("%s of an empty path", c->name);
    WANT(ENOENT, c->call(""));
    about("%s below nothing", c->name);
    WANT(ENOENT, c->call("missing/x"));
    WANT(ENOENT, c->call("./missing/../x"));
    if (!(c->is & CREATES)) {
        about("%s of nothing", c->name);
        WANT(ENOENT, c->call("missing"));
        WANT(ENOENT, c->call("./missing"));
        WANT(ENOENT, c->call("missing/"));
        WANT(ENOENT, c->call("missing/."));
    }
}

/* A component that is no directory. */
static void not_a_directory(const PathCall *c)
{
    EACH_KIND(k)
    {
        const char *n = made(k, 0777);

        if (k != DIRECTORY) {
            about("%s below a %s", c->name, kind_names[k]);
            WANT(k == SYMLINK ? ENOENT : ENOTDIR, c->call(path("%s/x", n)));
            WANT(k == SYMLINK ? ENOENT : ENOTDIR, c->call(path("%s/../x", n)));
            MUST(unlink(n));
        } else {
            MUST(rmdir(n));
        }
    }
}

static void slashes(const PathCall *c)
{
    const char *file = made(REGULAR, 0700), *dir = made(DIRECTORY, 0700), *p;

    about("%s with slashes", c->name);
    WANT(c->slash_on_file, c->call(path("%s/", file)));
    p = ready(c, path("%s/in", dir));
    OK(c->call(path(".//%s//./in", dir)));
    done(c, p);
    if (c->target == DIRECTORY) {
        p = ready(c, path("%s/in", dir));
        OK(c->call(path("%s/in///", dir)));
        done(c, p);
    } else if (c->is & CREATES) {
        WANT(c->slash_on_new, c->call(path("%s/in/", dir)));
        IS_TRUE(!exists(path("%s/in", dir)));
    }
    MUST(unlink(file));
    MUST(rmdir(dir));
}

static const char *long_name(char letter, size_t len)
{
    char *n = calloc(1, len + 1);

    memset(n, letter, len);
    return n;
}

/* "./././…/name" with @len bytes. */
static const char *long_path(size_t len, const char *name)
{
    char *p = calloc(1, len + 1);
    size_t at = 0, rest = len - strlen(name);

    for (; at + 1 < rest; at += 2) {
        memcpy(p + at, "./", 2);
    }
    if (at < rest) {
        p[at++] = '/'; /* after a slash */
    }
    strcpy(p + at, name);
    return p;
}

static void too_long(const PathCall *c)
{
    const char *longest = long_name('a', NAME_MAX), *more = long_name('b', NAME_MAX + 1);

    about("%s: a name of 255 bytes", c->name);
    OK(c->call(ready(c, longest)));
    done(c, longest);
    about("%s: a name of 256 bytes", c->name);
    WANT(ENAMETOOLONG, c->call(more));
    WANT(ENAMETOOLONG, c->call(path("%s/x", more)));
    about("%s: a path of 4095 bytes", c->name);
    ready(c, "last");
    OK(c->call(long_path(PATH_MAX - 1, "last")));
    done(c, "last");
    about("%s: a path of 4096 bytes", c->name);
    ready(c, "last");
    WANT(ENAMETOOLONG, c->call(long_path(PATH_MAX, "last")));
    WANT(ENAMETOOLONG, c->call(long_path(PATH_MAX + 1, "last")));
    if (!(c->is & CREATES)) {
        MUST(gone(c->target, "last"));
    }
}

/* The same length made of real directories, 127 bytes each. */
static void long_real_path(const PathCall *c)
{
    char *p = calloc(1, PATH_MAX + 1);
    size_t len = 0;

    while (len + 128 < PATH_MAX - 1) {
        memset(p + len, 'd', 127);
        MUST(mkdir(p, 0700));
        p[len + 127] = '/';
        len += 128;
    }
    memset(p + len, 'e', PATH_MAX - 1 - len);
    about("%s: a path of 4095 bytes, all of names", c->name);
    OK(c->call(ready(c, p)));
    done(c, p);
    while (len > 0) {
        p[len - 1] = '\0';
        MUST(rmdir(p));
        len -= 128;
    }
    free(p);
}

static void loops(const PathCall *c)
{
    const char *a = fresh(), *b = fresh();

    MUST(symlink(a, b));
    MUST(symlink(b, a));
    about("%s below symlinks in a ring", c->name);
    WANT(ELOOP, c->call(path("%s/x", a)));
    if (c->is & FOLLOWS) {
        about("%s of symlinks in a ring", c->name);
        WANT(ELOOP, c->call(a));
    }
    MUST(unlink(a));
    MUST(unlink(b));
}

/* Linux follows 40 symlinks, and not one more. */
static void chains(const PathCall *c)
{
    const char *dir = made(DIRECTORY, 0700), *p;
    char last[64];

    snprintf(last, sizeof last, "%s", dir);
    for (int i = 1; i <= 41; i++) {
        char next[64];

        snprintf(next, sizeof next, "chain%d", i);
        MUST(symlink(last, next));
        strcpy(last, next);
    }
    p = ready(c, path("%s/x", dir));
    about("%s behind 40 symlinks", c->name);
    OK(c->call("chain40/x"));
    done(c, p);
    p = ready(c, path("%s/x", dir));
    about("%s behind 41 symlinks", c->name);
    WANT(ELOOP, c->call("chain41/x"));
    if (!(c->is & CREATES)) {
        MUST(gone(c->target, p));
    }
    for (int i = 1; i <= 41; i++) {
        MUST(unlink(path("chain%d", i)));
    }
    MUST(rmdir(dir));
}

static void through_symlinks(const PathCall *c)
{
    const char *dir = made(DIRECTORY, 0700), *to_dir = fresh(), *to_it = fresh(), *p;

    MUST(symlink(dir, to_dir));
    about("%s through a symlink to a directory", c->name);
    p = ready(c, path("%s/x", dir));
    OK(c->call(path("%s/x", to_dir)));
    done(c, p);
    if ((c->is & FOLLOWS) && c->target != SYMLINK) {
        about("%s of a symlink", c->name);
        p = ready(c, path("%s/x", dir));
        MUST(symlink(p, to_it));
        OK(c->call(to_it));
        done(c, p);
        if (!(c->is & CREATES)) {
            about("%s of a symlink to nothing", c->name);
            WANT(ENOENT, c->call(to_it));
        }
        MUST(unlink(to_it));
    }
    MUST(unlink(to_dir));
    MUST(rmdir(dir));
}

static void on_existing(const PathCall *c)
{
    if (c->is & CREATES) {
        EACH_KIND(k)
        {
            int error = c->on_existing;
            const char *n = made(k, 0700);

            about("%s on a %s", c->name, kind_names[k]);
            if (c->call == do_open_create || c->call == do_creat) {
                /* A FIFO would wait, a device answers for itself. */
                error = k == REGULAR     ? 0
                        : k == DIRECTORY ? EISDIR
                        : k == SOCKET    ? ENXIO
                                         : -1;
            } else if (c->call == do_rename_to) {
                error = k == DIRECTORY ? EISDIR : 0;
            } else if (c->call == do_rename_dir_to) {
                error = k == DIRECTORY ? 0 : ENOTDIR;
            }
            if (error >= 0) {
                WANT(error, c->call(n));
            }
            MUST(unlink(n) == 0 || rmdir(n) == 0 ? 0 : -1);
        }
        (void)unlink("nowhere"); /* made through the symlink */
    }
}

/* No search permission on a component. */
static void no_search(const PathCall *c)
{
    static const struct {
        const Who *who;
        uid_t uid;
        gid_t gid;
        mode_t open, shut;
        const char *text;
    } ways[] = {
        {&BOB, 70002, GROUP_BOB, 0700, 0677, "the owner"},
        {&ALICE, 70009, GROUP_TEAM, 0070, 0767, "a member of the group"},
        {&DAVE, 70009, GROUP_TEAM, 0070, 0767, "one whose group it is"},
        {&CAROL, 70009, GROUP_TEAM, 0007, 0776, "others"},
    };

    if (!am_root()) {
        const char *dir = made(DIRECTORY, 0600);

        about("%s without search permission", c->name);
        WANT(EACCES, c->call(path("%s/x", dir)));
        WANT(EACCES, c->call(path("%s/missing/x", dir)));
        MUST(chmod(dir, 0700));
        MUST(rmdir(dir));
        return;
    }
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const char *dir = made_for(DIRECTORY, ways[i].open, ways[i].uid, ways[i].gid), *p;

        p = ready(c, path("%s/x", dir));
        if (!(c->is & CREATES)) {
            MUST(give(p, ways[i].who->uid, ways[i].who->gid));
        }
        MUST(chmod(dir, ways[i].shut));
        AS(*ways[i].who)
        {
            about("%s without search permission for %s", c->name, ways[i].text);
            WANT(EACCES, c->call(p));
            WANT(EACCES, c->call(path("%s/missing/x", dir)));
        }
        MUST(chmod(dir, ways[i].open));
        AS(*ways[i].who)
        {
            about("%s with search permission for %s", c->name, ways[i].text);
            OK(c->call(p));
        }
        if ((c->is & CREATES) || !(c->is & CONSUMES)) {
            MUST(gone(c->target, p));
        }
        MUST(rmdir(dir));
    }
}

TOPIC(path)
{
    EACH_CALL(c)
    {
        no_path(c);
        not_a_directory(c);
        slashes(c);
        too_long(c);
        long_real_path(c);
        loops(c);
        chains(c);
        through_symlinks(c);
        on_existing(c);
        no_search(c);
    }
}
