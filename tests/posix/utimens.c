/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * utimens.c - utimensat, futimens, utimes, utime: what is set, by whom, and what errors
 * come
 */
#include <limits.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <utime.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static int by_path(const char *n, const struct timespec t[2])
{
    return utimensat(AT_FDCWD, n, t, AT_SYMLINK_NOFOLLOW);
}

static int by_fd(const char *n, const struct timespec t[2])
{
    int fd = open(n, O_RDONLY | O_NONBLOCK | O_NOFOLLOW), r;

    if (fd < 0) {
        return -1;
    }
    r = futimens(fd, t);
    close(fd);
    return r;
}

static int by_place(const char *n, const struct timespec t[2])
{
    int fd = open(n, O_PATH | O_NOFOLLOW), r;

    if (fd < 0) {
        return -1;
    }
    r = utimensat(fd, "", t, AT_EMPTY_PATH);
    close(fd);
    return r;
}

static const struct {
    const char *name;
    int (*call)(const char *n, const struct timespec t[2]);
} hows[] = {{"utimensat", by_path}, {"futimens", by_fd}, {"utimensat O_PATH", by_place}};

static bool fits(size_t h, Kind k)
{
    return hows[h].call != by_fd || k == REGULAR || k == DIRECTORY || k == FIFO;
}

/* Seconds that every file system of today holds; nanoseconds to the last one. */
static const struct timespec stamps[] = {
    {0, 0},          {0, 1},           {1, 999999999},         {1000000000, 123456789},
    {-1, 0},         {-1, 999999999},  {-1000000, 5},          {2147483647, 999999999},
    {2147483648, 1}, {4294967295, 12}, {4294967296, 34567890}, {10000000000, 999999999},
};

static void exact(void)
{
    EACH_KIND(k)
    {
        const char *n = made(k, 0644);

        for (size_t h = 0; h < COUNT(hows); h++) {
            for (size_t i = 0; fits(h, k) && i < COUNT(stamps); i++) {
                const struct timespec t[2] = {stamps[i], stamps[COUNT(stamps) - 1 - i]};
                struct timespec start;
                struct stat st;

                about("%s of a %s to %lld.%09ld and %lld.%09ld", hows[h].name,
                      kind_names[k], (long long)t[0].tv_sec, t[0].tv_nsec,
                      (long long)t[1].tv_sec, t[1].tv_nsec);
                clock_gettime(CLOCK_REALTIME_COARSE, &start);
                OK(hows[h].call(n, t));
                st = stat_of(n);
                IS_TRUE(same_time(st.st_atim, t[0]));
                IS_TRUE(same_time(st.st_mtim, t[1]));
                IS_TRUE(!later(start, st.st_ctim));
            }
        }
    }
}

/* All pairs of: a time, UTIME_NOW, UTIME_OMIT; and NULL. */
static void now_and_omit(void)
{
    static const struct timespec what[] = {
        {1234, 5678}, {0, UTIME_NOW}, {0, UTIME_OMIT}, {99, UTIME_NOW}, {-7, UTIME_OMIT}};
    static const char *const names[] = {"a time", "UTIME_NOW", "UTIME_OMIT",
                                        "UTIME_NOW with seconds",
                                        "UTIME_OMIT with seconds"};

    EACH_KIND(k)
    {
        for (size_t h = 0; h < COUNT(hows); h++) {
            for (size_t i = 0; fits(h, k) && i <= COUNT(what) * COUNT(what); i++) {
                const char *n = made(k, 0644);
                bool null = i == COUNT(what) * COUNT(what);
                size_t a = null ? 1 : i / COUNT(what), m = null ? 1 : i % COUNT(what);
                const struct timespec old[2] = {{100, 1}, {200, 2}},
                                      t[2] = {what[a], what[m]};
                bool nothing = t[0].tv_nsec == UTIME_OMIT && t[1].tv_nsec == UTIME_OMIT;
                struct stat then, now;

                MUST(by_path(n, old));
                then = before(n);
                about("%s of a %s: %s and %s", hows[h].name, kind_names[k],
                      null ? "NULL" : names[a], null ? "NULL" : names[m]);
                OK(hows[h].call(n, null ? NULL : t));
                now = stat_of(n);
                if (t[0].tv_nsec == UTIME_NOW) {
                    IS_TRUE(!later(then.st_ctim, now.st_atim));
                } else {
                    EQ(t[0].tv_nsec == UTIME_OMIT ? 100 : 1234, now.st_atim.tv_sec);
                }
                if (t[1].tv_nsec == UTIME_NOW) {
                    IS_TRUE(!later(then.st_ctim, now.st_mtim));
                } else {
                    EQ(t[1].tv_nsec == UTIME_OMIT ? 200 : 1234, now.st_mtim.tv_sec);
                }
                if (t[0].tv_nsec == UTIME_NOW && t[1].tv_nsec == UTIME_NOW) {
                    IS_TRUE(same_time(now.st_atim, now.st_mtim));
                }
                if (!nothing) {
                    IS_TRUE(later(now.st_ctim, then.st_ctim));
                } else {
                    IS_TRUE(same_time(now.st_ctim, then.st_ctim));
                }
                MUST(gone(k, n));
            }
        }
    }
}

static void bad_nanoseconds(void)
{
    static const long bad[] = {-1,       1000000000,     LONG_MAX,
                               LONG_MIN, UTIME_OMIT - 1, UTIME_NOW + 1};
    const char *n = made(REGULAR, 0644);
    struct stat then = before(n);

    for (size_t i = 0; i < COUNT(bad); i++) {
        const struct timespec a[2] = {{1, bad[i]}, {1, 0}}, m[2] = {{1, 0}, {1, bad[i]}};
        const struct timespec o[2] = {{1, bad[i]}, {1, UTIME_OMIT}};

        about("%ld nanoseconds", bad[i]);
        WANT(EINVAL, utimensat(AT_FDCWD, n, a, 0));
        WANT(EINVAL, utimensat(AT_FDCWD, n, m, 0));
        WANT(EINVAL, utimensat(AT_FDCWD, n, o, 0));
        WANT(EINVAL, by_fd(n, a));
        TIMES(then, n, 0);
    }
}

static void errors(void)
{
    static const struct timespec t[2] = {{1, 0}, {1, 0}};
    static const struct timespec omit[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    const char *n = made(REGULAR, 0644), *s = fresh();
    int fd = (int)MUST(open(n, O_RDONLY)), place = (int)MUST(open(n, O_PATH));

    about("errors");
    WANT(EBADF, futimens(-1, t));
    WANT(EBADF, futimens(place, t));
    WANT(EBADF, utimensat(-1, n, t, 0));
    WANT(ENOTDIR, utimensat(fd, n, t, 0));
    WANT(EINVAL, utimensat(AT_FDCWD, n, t, 0x4000000));
    WANT(ENOENT, utimensat(AT_FDCWD, "missing", t, 0));
    WANT(ENOENT, utimensat(AT_FDCWD, "", t, 0));
    WANT(EFAULT, syscall(SYS_utimensat, AT_FDCWD, (void *)1, t, 0));
    WANT(EFAULT, syscall(SYS_utimensat, AT_FDCWD, n, (void *)1, 0));
    MUST(symlink("missing", s));
    WANT(ENOENT, utimensat(AT_FDCWD, s, t, 0));
    OK(utimensat(AT_FDCWD, s, t, AT_SYMLINK_NOFOLLOW));
    EQ(1, stat_of(s).st_mtim.tv_sec);
    /* Nothing is asked, so nothing is looked at (utimensat(2), NOTES). */
    OK(utimensat(AT_FDCWD, n, omit, 0));
    close(fd);
    close(place);
}

static void older_calls(void)
{
    const char *n = made(REGULAR, 0644), *s = fresh();
    const struct timeval tv[2] = {{11, 500000}, {22, 999999}},
                         bad[2] = {{1, 1000000}, {1, 0}};
    const struct utimbuf ub = {33, 44};
    struct stat st;
    int fd = (int)MUST(open(n, O_RDONLY));

    about("older calls");
    MUST(symlink(n, s));
    OK(utimes(n, tv));
    st = stat_of(n);
    EQ(11, st.st_atim.tv_sec);
    EQ(500000000, st.st_atim.tv_nsec);
    EQ(999999000, st.st_mtim.tv_nsec);
    OK(utime(s, &ub));
    st = stat_of(n);
    EQ(33, st.st_atim.tv_sec);
    EQ(44, st.st_mtim.tv_sec);
    EQ(0, st.st_mtim.tv_nsec);
    OK(lutimes(s, tv));
    EQ(11, stat_of(s).st_atim.tv_sec);
    EQ(33, stat_of(n).st_atim.tv_sec);
    OK(futimes(fd, tv));
    EQ(22, stat_of(n).st_mtim.tv_sec);
    WANT(EINVAL, utimes(n, bad));
    OK(utime(n, NULL));
    IS_TRUE(stat_of(n).st_mtim.tv_sec > 1000000000);
    close(fd);
}

/* utimensat(2), "Permissions requirements", row by row. */
static void who_may(void)
{
    static const struct timespec both_now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    static const struct timespec both_omit[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    static const struct timespec one_now[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    static const struct timespec other_now[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    static const struct timespec some[2] = {{1, 1}, {2, 2}},
                                 now_and[2] = {{0, UTIME_NOW}, {2, 2}};
    static const struct {
        const char *name;
        const struct timespec *t;
        int by_writer, by_other; /* the owner and root may do all */
    } asked[] = {
        {"NULL", NULL, 0, EACCES},
        {"both UTIME_NOW", both_now, 0, EACCES},
        {"both UTIME_OMIT", both_omit, 0, 0},
        {"UTIME_NOW and UTIME_OMIT", one_now, EPERM, EPERM},
        {"UTIME_OMIT and UTIME_NOW", other_now, EPERM, EPERM},
        {"times", some, EPERM, EPERM},
        {"UTIME_NOW and a time", now_and, EPERM, EPERM},
    };

    EACH_KIND(k)
    {
        for (size_t i = 0; k != SYMLINK && i < COUNT(asked); i++) {
            const char *n = made_for(k, 0464, 70001, GROUP_TEAM);

            about("%s of a %s", asked[i].name, kind_names[k]);
            AS(ALICE)
            {
                OK(utimensat(AT_FDCWD, n, asked[i].t,
                             0)); /* who has no write permission */
            }
            AS(DAVE)
            {
                WANT(asked[i].by_writer, utimensat(AT_FDCWD, n, asked[i].t, 0));
            }
            AS(BOB)
            {
                WANT(asked[i].by_other, utimensat(AT_FDCWD, n, asked[i].t, 0));
            }
            OK(utimensat(AT_FDCWD, n, asked[i].t, 0));
            MUST(gone(k, n));
        }
    }
}

/* An open descriptor gives no right that its owner has not. */
static void who_may_by_descriptor(void)
{
    static const struct timespec some[2] = {{1, 1}, {2, 2}};
    const char *n = made_for(REGULAR, 0666, 70001, GROUP_ALICE);
    int fd = -1;

    about("by a descriptor");
    AS(BOB)
    {
        fd = (int)OK(open(n, O_RDWR));
        OK(futimens(fd, NULL));
        WANT(EPERM, futimens(fd, some));
    }
    MUST(chmod(n, 0600));
    AS(BOB)
    {
        WANT(EACCES, futimens(fd, NULL));
    }
    AS(ALICE)
    {
        OK(futimens(fd, some));
    }
    close(fd);
}

/* What was set stays, also when content follows that was written before. */
static void after_writes(void)
{
    static const struct timespec some[2] = {{1, 1}, {2, 2}};
    const char *n = made(REGULAR, 0600);
    char bytes[20000] = "x";
    int fd = (int)MUST(open(n, O_RDWR));

    about("after a write");
    for (int i = 0; i < 5; i++) {
        MUST(pwrite(fd, bytes, sizeof bytes, i * 100));
        OK(futimens(fd, some));
        EQ(2, fstat_of(fd).st_mtim.tv_sec);
        OK(i % 2 ? fsync(fd) : 0);
        EQ(2, fstat_of(fd).st_mtim.tv_sec);
        EQ(2, stat_of(n).st_mtim.tv_sec);
    }
    close(fd);
    EQ(2, stat_of(n).st_mtim.tv_sec);
    OK(truncate(n, 5));
    IS_TRUE(stat_of(n).st_mtim.tv_sec > 1000000000);
}

TOPIC(utimens)
{
    exact();
    now_and_omit();
    bad_nanoseconds();
    errors();
    older_calls();
    after_writes();
    about("%s", "");
    NEEDS_ROOT("others' files");
    who_may();
    who_may_by_descriptor();
}
