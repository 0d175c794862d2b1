/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * posix.c - checks, identities, files and times for the topics
 *
 * A line is one write(2) to a file that was opened for appending, so that children of a
 * topic print theirs too and nothing is lost when one of them ends by a signal.
 */
#include "posix.h"

#include <dirent.h>
#include <grp.h>
#include <stdarg.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "suite.h"

#define LINE_BYTES 1024

const Who ROOT = {.name = "root"};
const Who ALICE = {.name = "alice",
                   .uid = 70001,
                   .gid = GROUP_ALICE,
                   .group_count = 2,
                   .groups = {GROUP_ALICE, GROUP_TEAM}};
const Who BOB = {.name = "bob",
                 .uid = 70002,
                 .gid = GROUP_BOB,
                 .group_count = 1,
                 .groups = {GROUP_BOB}};
const Who CAROL = {.name = "carol",
                   .uid = 70003,
                   .gid = GROUP_CAROL,
                   .group_count = 1,
                   .groups = {GROUP_CAROL}};
const Who DAVE = {.name = "dave",
                  .uid = 70004,
                  .gid = GROUP_TEAM,
                  .group_count = 1,
                  .groups = {GROUP_TEAM}};
Who ME;

static struct {
    const char *topic;
    int out;
    char about[256];
    const char *who; /* NULL: ME */
    unsigned names;
} suite;

void suite_begin(const char *topic, int out)
{
    suite.topic = topic;
    suite.out = out;
}

/* ---- lines ------------------------------------------------------------------------- */

static void line_out(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void line_out(const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    int len;

    va_start(args, format);
    len = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (len > (int)sizeof line - 2) {
        len = (int)sizeof line - 2;
    }
    for (int i = 0; i < len; i++) {
        if (line[i] == '\n' || line[i] == '#') {
            line[i] = line[i] == '\n' && i == len - 1 ? '\n' : line[i] == '#' ? '#' : ' ';
        }
    }
    line[len++] = '\n';
    if (write(suite.out, line, (size_t)len) != len) {
        abort();
    }
}

static const char *error_name(int error)
{
    const char *name = error == 0 ? "success" : strerrorname_np(error);

    return name == NULL ? "?" : name;
}

static void result(bool ok, const char *file, int line, const char *what)
{
    const char *slash = strrchr(file, '/');

    line_out("%s - %s: %s:%d: %s%s%s%s%s", ok ? "ok" : "not ok", suite.topic,
             slash == NULL ? file : slash + 1, line, suite.about,
             suite.about[0] == '\0' ? "" : ": ", what, suite.who == NULL ? "" : ", as ",
             suite.who == NULL ? "" : suite.who);
}

long check_call(const char *file, int line, const char *call, int wanted, int or_wanted,
                long got)
{
    const int error = errno;
    bool ok =
        wanted == 0 ? got >= 0 : got == -1 && (error == wanted || error == or_wanted);
    char what[512];

    snprintf(what, sizeof what, "%s: %s", call, error_name(wanted));
    result(ok, file, line, what);
    if (!ok) {
        line_out("# got %ld, %s", got, got < 0 ? error_name(error) : "success");
    }
    return got;
}

bool check_equal(const char *file, int line, const char *value, const char *wanted_text,
                 long long wanted, long long got)
{
    char what[512];

    snprintf(what, sizeof what, "%s = %s", value, wanted_text);
    result(wanted == got, file, line, what);
    if (wanted != got) {
        line_out("# got %lld (0%llo), wanted %lld (0%llo)", got, (unsigned long long)got,
                 wanted, (unsigned long long)wanted);
    }
    return wanted == got;
}

bool check_true(const char *file, int line, const char *condition, bool held)
{
    result(held, file, line, condition);
    return held;
}

long check_must(const char *file, int line, const char *call, long got)
{
    const int error = errno;

    if (got < 0) {
        result(false, file, line, call);
        line_out("# set-up failed: %s", error_name(error));
    }
    return got;
}

void about(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(suite.about, sizeof suite.about, format, args);
    va_end(args);
}

void skip(const char *format, ...)
{
    char why[256];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    line_out("ok - %s: %s # SKIP %s", suite.topic, suite.about, why);
}

/* ---- who --------------------------------------------------------------------------- */

bool am_root(void)
{
    return ME.uid == 0;
}

Who who_with_group(Who who, gid_t group)
{
    if (who.group_count == WHO_GROUPS_MAX) {
        abort();
    }
    who.groups[who.group_count++] = group;
    return who;
}

bool who_become(const Who *who)
{
    if (who->uid == ME.uid) {
        return true;
    }
    if (setgroups((size_t)who->group_count, who->groups) != 0 ||
        setresgid(who->gid, who->gid, 0) != 0 || setresuid(who->uid, who->uid, 0) != 0) {
        line_out("not ok - %s: becoming %s: %s", suite.topic, who->name,
                 error_name(errno));
        _exit(3);
    }
    suite.who = who->name;
    return true;
}

bool who_return(void)
{
    if (suite.who != NULL) {
        suite.who = NULL;
        if (setresuid(ME.uid, ME.uid, ME.uid) != 0 ||
            setresgid(ME.gid, ME.gid, ME.gid) != 0 ||
            setgroups((size_t)ME.group_count, ME.groups) != 0) {
            _exit(3);
        }
    }
    return false;
}

void who_become_wholly(const Who *who)
{
    if (setgroups((size_t)who->group_count, who->groups) != 0 ||
        setresgid(who->gid, who->gid, who->gid) != 0 ||
        setresuid(who->uid, who->uid, who->uid) != 0) {
        fprintf(stderr, "becoming %s: %s\n", who->name, strerror(errno));
        _exit(3);
    }
}

/* The parent skips the block; the child runs it and ends in child_end. */
int child_begin(void)
{
    int pid = (int)fork(), status;

    if (pid == 0) {
        return 0;
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        line_out("not ok - %s: %s: a child ended badly", suite.topic, suite.about);
    }
    return -1;
}

int child_end(int pid)
{
    (void)pid;
    _exit(0);
}

int wait_for_child(void)
{
    int status;

    return waitpid(-1, &status, 0) > 0 ? status : -1;
}

/* ---- files ------------------------------------------------------------------------- */

const char *const kind_names[KIND_COUNT] = {
    "regular file", "directory",        "symlink",      "fifo",
    "socket",       "character device", "block device",
};
const mode_t kind_modes[KIND_COUNT] = {S_IFREG,  S_IFDIR, S_IFLNK, S_IFIFO,
                                       S_IFSOCK, S_IFCHR, S_IFBLK};

const char *path(const char *format, ...)
{
    char *text;
    va_list args;
    int len;

    va_start(args, format);
    len = vasprintf(&text, format, args);
    va_end(args);
    if (len < 0) {
        abort();
    }
    return text;
}

const char *fresh(void)
{
    return path("n%u", ++suite.names);
}

int make(Kind kind, const char *name, mode_t mode)
{
    int r;

    switch (kind) {
    case DIRECTORY:
        r = mkdir(name, 0700);
        break;
    case SYMLINK:
        return symlink("nowhere", name);
    default:
        r = mknod(name, kind_modes[kind] | 0600, makedev(1, 3));
        break;
    }
    return r == 0 ? chmod(name, mode) : r;
}

int give(const char *name, uid_t uid, gid_t gid)
{
    return lchown(name, uid, gid);
}

int gone(Kind kind, const char *name)
{
    return kind == DIRECTORY ? rmdir(name) : unlink(name);
}

const char *made(Kind kind, mode_t mode)
{
    const char *name = fresh();

    MUST(make(kind, name, mode));
    return name;
}

const char *made_for(Kind kind, mode_t mode, uid_t uid, gid_t gid)
{
    const char *name = fresh();

    MUST(make(kind, name, mode));
    MUST(give(name, uid, gid));
    if (kind != SYMLINK) {
        MUST(chmod(name, mode)); /* chown has taken the set-id bits */
    }
    return name;
}

int spew(const char *name, const char *text)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ssize_t len = (ssize_t)strlen(text);
    bool ok;

    if (fd < 0) {
        return -1;
    }
    ok = write(fd, text, (size_t)len) == len;
    return close(fd) == 0 && ok ? 0 : -1;
}

bool holds(const char *name, const char *text)
{
    char got[4096];
    int fd = open(name, O_RDONLY);
    ssize_t len;

    if (fd < 0) {
        return false;
    }
    len = read(fd, got, sizeof got);
    close(fd);
    return len == (ssize_t)strlen(text) && memcmp(got, text, (size_t)len) == 0;
}

struct stat stat_of(const char *name)
{
    struct stat st;

    memset(&st, 0xff, sizeof st);
    MUST(lstat(name, &st));
    return st;
}

struct stat fstat_of(int fd)
{
    struct stat st;

    memset(&st, 0xff, sizeof st);
    MUST(fstat(fd, &st));
    return st;
}

mode_t mode_of(const char *name)
{
    return stat_of(name).st_mode & 07777;
}

bool exists(const char *name)
{
    struct stat st;

    return lstat(name, &st) == 0;
}

int names_in(const char *dir)
{
    DIR *d = opendir(dir);
    int count = 0;

    if (d == NULL) {
        return -1;
    }
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    }
    closedir(d);
    return count;
}

/* ---- time -------------------------------------------------------------------------- */

bool later(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Most file systems take the time of the last clock tick, a few milliseconds ago. */
static void tick_after(const struct stat *st)
{
    const struct timespec nap = {.tv_nsec = 500000};
    struct timespec now;

    for (;;) {
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        /* Times in the future, set by utimensat, are nobody's clock. */
        if (later(now, st->st_ctim) &&
            (later(now, st->st_mtim) || st->st_mtim.tv_sec > now.tv_sec + 1) &&
            (later(now, st->st_atim) || st->st_atim.tv_sec > now.tv_sec + 1)) {
            return;
        }
        nanosleep(&nap, NULL);
    }
}

void tick(const char *name)
{
    (void)before(name);
}

struct stat before(const char *name)
{
    struct stat st = stat_of(name);

    if (st.st_nlink != (nlink_t)-1) {
        tick_after(&st);
    }
    return st;
}

static void check_time(const char *file, int line, const char *name, struct timespec then,
                       struct timespec now, bool grew)
{
    char what[128];
    bool ok = grew ? later(now, then) : same_time(now, then);

    snprintf(what, sizeof what, "%s %s", name, grew ? "grew" : "stayed");
    result(ok, file, line, what);
    if (!ok) {
        line_out("# from %lld.%09ld to %lld.%09ld", (long long)then.tv_sec, then.tv_nsec,
                 (long long)now.tv_sec, now.tv_nsec);
    }
}

void check_mc_times(const char *file, int line, struct stat then, const char *name,
                    int which)
{
    struct stat now = stat_of(name);

    check_time(file, line, "mtime", then.st_mtim, now.st_mtim, (which & TIME_M) != 0);
    check_time(file, line, "ctime", then.st_ctim, now.st_ctim, (which & TIME_C) != 0);
}

void check_times(const char *file, int line, struct stat then, const char *name,
                 int which)
{
    struct stat now = stat_of(name);

    check_time(file, line, "atime", then.st_atim, now.st_atim, (which & TIME_A) != 0);
    check_mc_times(file, line, then, name, which);
}
