/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * access.c - who may do what: each call that asks for permission, with each combination
 * of bits, for the owner, a member of the group, others and root
 *
 * The other two classes always have the opposite bits, so that a right taken from the
 * wrong class shows.
 */
#include <dirent.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "posix.h"

#define R 4u
#define W 2u
#define X 1u
#define OWNER 8u /* the owner may, whatever the bits say */
#define ONLY 16u /* nobody but the owner, and the error is EPERM */

typedef struct Class {
    const char *name;
    const Who *who;
    uid_t uid; /* of the file */
    gid_t gid;
    unsigned shift; /* of the three bits that count */
} Class;

static const Class classes[] = {
    {"the owner", &BOB, 70002, GROUP_TEAM, 6},
    {"the owner, in the group", &ALICE, 70001, GROUP_TEAM, 6},
    {"a member of the group", &ALICE, 70009, GROUP_TEAM, 3},
    {"one whose main group it is", &DAVE, 70009, GROUP_TEAM, 3},
    {"others", &CAROL, 70009, GROUP_TEAM, 0},
};

#define EACH_CLASS(c)                                                                    \
    for (const Class *c = classes; c < classes + sizeof classes / sizeof classes[0];     \
         about("%s", ""), c++)

static mode_t mode_with(const Class *c, unsigned bits)
{
    return (mode_t)((bits << c->shift) |
                    ((0777u & ~(7u << c->shift)) & ((~bits & 7u) * 0111u)));
}

typedef struct Op {
    const char *name;
    int (*call)(const char *p);
    unsigned needs;
} Op;

static int closed(int fd)
{
    return fd < 0 ? -1 : close(fd);
}

#define CALL(name, expression)                                                           \
    static int name(const char *p)                                                       \
    {                                                                                    \
        return (int)(expression);                                                        \
    }

static const struct timespec some_times[2] = {{1000, 1}, {2000, 2}};
static const struct timespec now_times[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
static const struct timespec omit_times[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
static const struct timespec one_now[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
static struct stat ignored_stat;
static char ignored_text[64];

CALL(do_read, closed(open(p, O_RDONLY | O_NONBLOCK)))
CALL(do_write, closed(open(p, O_WRONLY)))
CALL(do_rw, closed(open(p, O_RDWR | O_NONBLOCK)))
CALL(do_append, closed(open(p, O_WRONLY | O_APPEND)))
CALL(do_read_trunc, closed(open(p, O_RDONLY | O_TRUNC)))
CALL(do_write_trunc, closed(open(p, O_WRONLY | O_TRUNC)))
CALL(do_create, closed(open(p, O_RDWR | O_CREAT, 0)))
CALL(do_open_path, closed(open(p, O_PATH)))
CALL(do_noatime,
     closed(open(p, O_PATH)) == 0 ? closed(open(p, O_RDONLY | O_NOATIME)) : -1)
CALL(do_truncate, truncate(p, 3))
CALL(do_stat, stat(p, &ignored_stat))
CALL(do_chmod, chmod(p, ignored_stat.st_mode & 07777))
CALL(do_times, utimensat(AT_FDCWD, p, some_times, 0))
CALL(do_null_times, utimensat(AT_FDCWD, p, NULL, 0))
CALL(do_now_times, utimensat(AT_FDCWD, p, now_times, 0))
CALL(do_omit_times, utimensat(AT_FDCWD, p, omit_times, 0))
CALL(do_one_now, utimensat(AT_FDCWD, p, one_now, 0))
CALL(do_getxattr, getxattr(p, "user.x", ignored_text, sizeof ignored_text))
CALL(do_setxattr, setxattr(p, "user.x", "z", 1, 0))
CALL(access_f, access(p, F_OK))
CALL(access_r, access(p, R_OK))
CALL(access_w, access(p, W_OK))
CALL(access_x, access(p, X_OK))
CALL(access_rw, access(p, R_OK | W_OK))
CALL(access_rx, access(p, R_OK | X_OK))
CALL(access_wx, access(p, W_OK | X_OK))
CALL(access_rwx, access(p, R_OK | W_OK | X_OK))
CALL(eaccess_rwx, faccessat(AT_FDCWD, p, R_OK | W_OK | X_OK, AT_EACCESS))
CALL(do_link, link(p, "second") == 0 ? unlink("second") : -1)

static const Op file_ops[] = {
    {"open O_RDONLY", do_read, R},
    {"open O_WRONLY", do_write, W},
    {"open O_RDWR", do_rw, R | W},
    {"open O_WRONLY|O_APPEND", do_append, W},
    {"open O_RDONLY|O_TRUNC", do_read_trunc, R | W},
    {"open O_WRONLY|O_TRUNC", do_write_trunc, W},
    {"open O_RDWR|O_CREAT", do_create, R | W},
    {"open O_PATH", do_open_path, 0},
    {"open O_NOATIME", do_noatime, R | ONLY},
    {"truncate", do_truncate, W},
    {"stat", do_stat, 0},
    {"chmod", do_chmod, ONLY},
    {"utimensat with times", do_times, ONLY},
    {"utimensat NULL", do_null_times, W | OWNER},
    {"utimensat UTIME_NOW", do_now_times, W | OWNER},
    {"utimensat UTIME_OMIT", do_omit_times, 0},
    {"utimensat UTIME_NOW and UTIME_OMIT", do_one_now, ONLY},
    {"getxattr user.", do_getxattr, R},
    {"setxattr user.", do_setxattr, W},
    {"access F_OK", access_f, 0},
    {"access R_OK", access_r, R},
    {"access W_OK", access_w, W},
    {"access X_OK", access_x, X},
    {"access R_OK|W_OK", access_rw, R | W},
    {"access R_OK|X_OK", access_rx, R | X},
    {"access W_OK|X_OK", access_wx, W | X},
    {"access R_OK|W_OK|X_OK", access_rwx, R | W | X},
    {"faccessat AT_EACCESS", eaccess_rwx, R | W | X},
    {"link", do_link, 0},
};

static int wanted_error(const Op *op, unsigned bits, bool owner)
{
    if ((op->needs & OWNER) && owner) {
        return 0;
    }
    if ((op->needs & 7u & ~bits) != 0) {
        return EACCES;
    }
    return (op->needs & ONLY) && !owner ? EPERM : 0;
}

/* fs.protected_hardlinks lets others link only what they may read and write. */
static bool hard_links_are_protected(void)
{
    char c = '0';
    int fd = open("/proc/sys/fs/protected_hardlinks", O_RDONLY);

    if (fd >= 0) {
        if (read(fd, &c, 1) != 1) {
            c = '0';
        }
        close(fd);
    }
    return c != '0';
}

static void files(const Class *c, unsigned bits)
{
    bool owner = c->shift == 6, fits = bits == 7 || bits == 6;
    mode_t mode = mode_with(c, bits);
    const char *n = fresh();

    MUST(spew(n, "text"));
    MUST(setxattr(n, "user.x", "y", 1, 0));
    MUST(give(n, c->uid, c->gid));
    MUST(chmod(n, mode));
    for (size_t i = 0; i < sizeof file_ops / sizeof file_ops[0]; i++) {
        const Op *op = &file_ops[i];
        int error = wanted_error(op, bits, owner);

        if (op->call == do_link && !owner && !fits && hard_links_are_protected()) {
            error = EPERM;
        }
        ignored_stat.st_mode = mode;
        about("%s of a file with 0%03o, %s", op->name, mode, c->name);
        AS(*c->who)
        {
            WANT(error, op->call(n));
        }
    }
    MUST(unlink(n));
}

/* The bits of other types count too: nothing is opened, access(2) says what would be. */
static void special_files(const Class *c, unsigned bits)
{
    EACH_KIND(k)
    {
        const char *n;

        if (k == REGULAR || k == DIRECTORY || k == SYMLINK) {
            continue;
        }
        n = made_for(k, mode_with(c, bits), c->uid, c->gid);
        for (unsigned asked = 0; asked < 8; asked++) {
            about("access %o of a %s with 0%03o, %s", asked, kind_names[k],
                  mode_with(c, bits), c->name);
            AS(*c->who)
            {
                WANT((asked & ~bits) != 0 ? EACCES : 0, access(n, (int)asked));
            }
        }
        MUST(unlink(n));
    }
}

/* ---- directories ------------------------------------------------------------------- */

static int do_opendir(const char *p)
{
    DIR *d = opendir(p);

    return d == NULL ? -1 : closedir(d);
}

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

/* The names there: file, sub, and what is made and removed again. */
CALL(in_stat, stat(path("%s/file", p), &ignored_stat))
CALL(in_open, closed(open(path("%s/file", p), O_RDONLY)))
CALL(in_access, access(path("%s/file", p), R_OK | W_OK))
CALL(in_dot_dot, stat(path("%s/sub/..", p), &ignored_stat))
CALL(in_create, closed(open(path("%s/new", p), O_WRONLY | O_CREAT | O_EXCL, 0600)))
CALL(in_mkdir, mkdir(path("%s/new", p), 0700))
CALL(in_mkfifo, mkfifo(path("%s/new", p), 0700))
CALL(in_mknod, mknod(path("%s/new", p), S_IFSOCK | 0700, 0))
CALL(in_symlink, symlink("x", path("%s/new", p)))
CALL(in_link, link("mine", path("%s/new", p)))
CALL(in_rename_to, rename("mine2", path("%s/new", p)))
CALL(in_rename_over, rename("mine2", path("%s/file", p)))
CALL(in_unlink, unlink(path("%s/file", p)))
CALL(in_rmdir, rmdir(path("%s/sub", p)))
CALL(in_rename_from, rename(path("%s/file", p), "moved"))
CALL(in_rename_dir, rename(path("%s/sub", p), path("%s/new", p)))
CALL(in_rename, rename(path("%s/file", p), path("%s/new", p)))
/* What has no O_TMPFILE says so after it has looked who may. */
CALL(in_tmpfile,
     closed(open(p, O_TMPFILE | O_RDWR, 0600)) == 0 || errno == EOPNOTSUPP ? 0 : -1)
CALL(in_existing, closed(open(path("%s/file", p), O_RDONLY | O_CREAT, 0600)))

static const Op directory_ops[] = {
    {"opendir", do_opendir, R},
    {"chdir", do_chdir, X},
    {"stat in", in_stat, X},
    {"open in", in_open, X},
    {"open O_CREAT of what is there in", in_existing, X},
    {"access in", in_access, X},
    {"stat .. in", in_dot_dot, X},
    {"create in", in_create, W | X},
    {"mkdir in", in_mkdir, W | X},
    {"mkfifo in", in_mkfifo, W | X},
    {"mknod in", in_mknod, W | X},
    {"symlink in", in_symlink, W | X},
    {"link in", in_link, W | X},
    {"rename to", in_rename_to, W | X},
    {"rename over a name in", in_rename_over, W | X},
    {"rename from", in_rename_from, W | X},
    {"rename within", in_rename, W | X},
    {"rename of a directory within", in_rename_dir, W | X},
    {"unlink in", in_unlink, W | X},
    {"rmdir in", in_rmdir, W | X},
    {"O_TMPFILE in", in_tmpfile, W | X},
    {"stat", do_stat, 0},
    {"chmod", do_chmod, ONLY},
    {"utimensat with times", do_times, ONLY},
    {"utimensat NULL", do_null_times, W | OWNER},
    {"access R_OK", access_r, R},
    {"access W_OK", access_w, W},
    {"access X_OK", access_x, X},
    {"access R_OK|W_OK|X_OK", access_rwx, R | W | X},
};

static void directory_fill(const char *dir, mode_t mode, const Who *who)
{
    MUST(chmod(dir, 0777));
    (void)unlink("mine");
    (void)unlink("mine2");
    (void)unlink("moved");
    (void)rmdir(path("%s/new", dir));
    (void)unlink(path("%s/new", dir));
    MUST(spew(path("%s/file", dir), ""));
    MUST(chmod(path("%s/file", dir), 0666));
    MUST(mkdir(path("%s/sub", dir), 0777) == 0 || errno == EEXIST ? 0 : -1);
    MUST(chmod(path("%s/sub", dir), 0777));
    MUST(spew("mine", ""));
    MUST(spew("mine2", ""));
    MUST(give("mine", who->uid, who->gid));
    MUST(chmod(dir, mode));
}

static void directory_clear(const char *dir)
{
    MUST(chmod(dir, 0777));
    (void)rmdir(path("%s/new", dir));
    (void)unlink(path("%s/new", dir));
    (void)rmdir(path("%s/sub", dir));
    (void)unlink(path("%s/file", dir));
    MUST(rmdir(dir));
}

static void directories(const Class *c, unsigned bits)
{
    mode_t mode = mode_with(c, bits);
    const char *dir = made_for(DIRECTORY, mode, c->uid, c->gid);

    for (size_t i = 0; i < sizeof directory_ops / sizeof directory_ops[0]; i++) {
        const Op *op = &directory_ops[i];

        directory_fill(dir, mode, c->who);
        ignored_stat.st_mode = mode;
        about("%s a directory with 0%03o, %s", op->name, mode, c->name);
        AS(*c->who)
        {
            WANT(wanted_error(op, bits, c->shift == 6), op->call(dir));
        }
    }
    directory_clear(dir);
}

/* ---- root, and the ordinary user alone --------------------------------------------- */

/* Root reads and writes all; executes what anybody may execute; searches everything. */
static void root_may(void)
{
    static const mode_t modes[] = {0,    0001, 0010, 0100, 0111,
                                   0222, 0444, 0666, 0700, 0777};

    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        EACH_KIND(k)
        {
            const char *n;

            if (k == SYMLINK) {
                continue;
            }
            n = made_for(k, modes[i], 70001, GROUP_ALICE);
            about("root, %s with 0%03o", kind_names[k], modes[i]);
            OK(access(n, R_OK | W_OK));
            WANT(k == DIRECTORY || (modes[i] & 0111) ? 0 : EACCES, access(n, X_OK));
            if (k == REGULAR) {
                OK(closed(open(n, O_RDWR | O_TRUNC)));
                OK(truncate(n, 1));
                OK(closed(open(n, O_RDONLY | O_NOATIME)));
            }
            if (k == DIRECTORY) {
                OK(do_opendir(n));
                OK(in_mkdir(n));
                OK(rmdir(path("%s/new", n)));
            }
            OK(chmod(n, modes[i]));
            OK(do_times(n));
            OK(chown(n, 70002, GROUP_BOB));
            MUST(gone(k, n));
        }
    }
}

static void own_bits(void)
{
    const Class me = {"the owner", &ME, ME.uid, ME.gid, 6};

    for (unsigned bits = 0; bits < 8; bits++) {
        files(&me, bits);
        special_files(&me, bits);
        directories(&me, bits);
    }
}

TOPIC(access)
{
    if (!am_root()) {
        own_bits();
        return;
    }
    EACH_CLASS(c)
    {
        for (unsigned bits = 0; bits < 8; bits++) {
            files(c, bits);
            special_files(c, bits);
            directories(c, bits);
        }
    }
    about("%s", "");
    root_may();
}

/* access(2) asks for the real user, faccessat AT_EACCESS for the effective one. */
TOPIC(access_real)
{
    const char *n;

    NEEDS_ROOT("another real user");
    n = made_for(REGULAR, 0600, 70001, GROUP_ALICE);
    for (int real = 0; real < 2; real++) {
        about("real user %s", real ? "bob" : "alice");
        CHILD
        {
            MUST(setresuid(real ? 70002 : 70001, 70001, 0));
            WANT(real ? EACCES : 0, access(n, R_OK));
            OK(faccessat(AT_FDCWD, n, R_OK, AT_EACCESS));
            OK(closed(open(n, O_RDONLY)));
        }
        CHILD
        {
            MUST(setresuid(real ? 70002 : 70001, 70002, 0));
            WANT(real ? EACCES : 0, access(n, R_OK));
            WANT(EACCES, faccessat(AT_FDCWD, n, R_OK, AT_EACCESS));
            WANT(EACCES, closed(open(n, O_RDONLY)));
        }
    }
    about("flags of faccessat");
    WANT(EINVAL, faccessat(AT_FDCWD, n, 8, 0));
    WANT(EINVAL, access(n, 0777));
    WANT(EBADF, faccessat(-1, n, R_OK, 0));
}
