/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* chown.c - chown, lchown, fchown, fchownat: who may give what to whom; what it clears */
#include <sys/syscall.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define SAME ((uid_t)-1)

static int by_lchown(const char *n, uid_t uid, gid_t gid)
{
    return lchown(n, uid, gid);
}

static int by_chown(const char *n, uid_t uid, gid_t gid)
{
    return chown(n, uid, gid);
}

static int by_at(const char *n, uid_t uid, gid_t gid)
{
    return fchownat(AT_FDCWD, n, uid, gid, AT_SYMLINK_NOFOLLOW);
}

static int by_place(const char *n, uid_t uid, gid_t gid)
{
    int fd = open(n, O_PATH | O_NOFOLLOW), r;

    if (fd < 0) {
        return -1;
    }
    r = fchownat(fd, "", uid, gid, AT_EMPTY_PATH);
    close(fd);
    return r;
}

static int by_fd(const char *n, uid_t uid, gid_t gid)
{
    int fd = open(n, O_RDONLY | O_NONBLOCK), r;

    if (fd < 0) {
        return -1;
    }
    r = fchown(fd, uid, gid);
    close(fd);
    return r;
}

static const struct {
    const char *name;
    int (*call)(const char *n, uid_t uid, gid_t gid);
} hows[] = {
    {"lchown", by_lchown},
    {"chown", by_chown},
    {"fchownat AT_SYMLINK_NOFOLLOW", by_at},
    {"fchownat AT_EMPTY_PATH", by_place},
    {"fchown", by_fd},
};

static bool fits(size_t h, Kind k)
{
    if (hows[h].call == by_chown) {
        return k != SYMLINK;
    }
    return hows[h].call != by_fd || k == REGULAR || k == DIRECTORY || k == FIFO;
}

static void by_root(void)
{
    static const struct {
        uid_t uid;
        gid_t gid;
    } to[] = {{0, 0},
              {70002, 70002},
              {SAME, 70003},
              {70004, SAME},
              {SAME, SAME},
              {0xfffffffe, 65533},
              {4294967293, 4294967294},
              {2000000000, 3000000000},
              {1, 1}};

    EACH_KIND(k)
    {
        for (size_t h = 0; h < COUNT(hows); h++) {
            for (size_t i = 0; fits(h, k) && i < COUNT(to); i++) {
                const char *n = made_for(k, 0644, 70001, GROUP_ALICE);
                struct stat then = before(n);

                about("%s of a %s to %u:%u", hows[h].name, kind_names[k], to[i].uid,
                      to[i].gid);
                OK(hows[h].call(n, to[i].uid, to[i].gid));
                EQ(to[i].uid == SAME ? 70001 : to[i].uid, stat_of(n).st_uid);
                EQ(to[i].gid == SAME ? GROUP_ALICE : to[i].gid, stat_of(n).st_gid);
                EQ(then.st_mode, stat_of(n).st_mode);
                if (to[i].uid != SAME || to[i].gid != SAME) {
                    TIMES(then, n, TIME_C);
                }
                MUST(gone(k, n));
            }
        }
    }
}

/* The owner may give the file to his groups; nobody else gives anything away. */
static void by_users(void)
{
    static const struct {
        const char *name;
        const Who *who;
        uid_t uid;
        gid_t gid;
        int error;
    } tries[] = {
        {"the owner, to his supplementary group", &ALICE, SAME, GROUP_TEAM, 0},
        {"the owner, to his main group", &ALICE, SAME, GROUP_ALICE, 0},
        {"the owner, himself and his group", &ALICE, 70001, GROUP_TEAM, 0},
        {"the owner, himself alone", &ALICE, 70001, SAME, 0},
        {"the owner, nothing", &ALICE, SAME, SAME, 0},
        {"the owner, to a foreign group", &ALICE, SAME, GROUP_BOB, EPERM},
        {"the owner, to somebody else", &ALICE, 70002, SAME, EPERM},
        {"the owner, to root", &ALICE, 0, SAME, EPERM},
        {"the owner, to somebody else and his group", &ALICE, 70002, GROUP_TEAM, EPERM},
        {"another, to himself", &BOB, 70002, SAME, EPERM},
        {"another, to his group", &BOB, SAME, GROUP_BOB, EPERM},
        {"another, the owner", &BOB, 70001, SAME, EPERM},
        {"another, the group", &BOB, SAME, GROUP_ALICE, EPERM},
        {"one of the group, the group", &DAVE, SAME, GROUP_TEAM, EPERM},
    };

    EACH_KIND(k)
    {
        for (size_t h = 0; h < COUNT(hows); h++) {
            for (size_t i = 0; fits(h, k) && i < COUNT(tries); i++) {
                const char *n = made_for(k, 0666, 70001, GROUP_ALICE);

                about("%s of a %s by %s", hows[h].name, kind_names[k], tries[i].name);
                AS(*tries[i].who)
                {
                    WANT(tries[i].error, hows[h].call(n, tries[i].uid, tries[i].gid));
                }
                EQ(70001, stat_of(n).st_uid);
                EQ(tries[i].error == 0 && tries[i].gid != SAME ? tries[i].gid
                                                               : GROUP_ALICE,
                   stat_of(n).st_gid);
                MUST(gone(k, n));
            }
        }
    }
}

/* Set-id bits go from what is no directory; set-group-ID stays where it means no
 * execution. */
static void set_id(void)
{
    static const mode_t modes[] = {04755, 02755, 06755, 06777, 04644, 02644,
                                   06666, 02745, 06711, 07777, 01777, 02654};

    EACH_KIND(k)
    {
        for (size_t i = 0; k != SYMLINK && i < COUNT(modes); i++) {
            for (int by = 0; by < 4; by++) {
                const char *n = made_for(k, modes[i], 70001, GROUP_ALICE);
                mode_t left = modes[i];

                if (k != DIRECTORY) {
                    left &= ~(04000u | ((left & 0010) ? 02000u : 0));
                }
                about("chown %d of a %s with 0%o", by, kind_names[k], modes[i]);
                if (by == 0) {
                    OK(chown(n, 70002, SAME));
                } else if (by == 1) {
                    OK(chown(n, SAME, GROUP_TEAM));
                } else {
                    AS(ALICE)
                    {
                        OK(chown(n, by == 2 ? SAME : 70001, GROUP_TEAM));
                    }
                }
                EQ(left, mode_of(n));
                MUST(gone(k, n));
            }
        }
    }
}

static void own_file(void)
{
    gid_t groups[64];
    int count = getgroups(64, groups);

    EACH_KIND(k)
    {
        const char *n = made(k, 0644);

        about("one's own %s", kind_names[k]);
        for (int i = 0; i < count; i++) {
            OK(lchown(n, SAME, groups[i]));
            EQ(groups[i], stat_of(n).st_gid);
        }
        WANT(EPERM, lchown(n, 0, SAME));
        WANT(EPERM, lchown(n, SAME, 70099));
        WANT(EPERM, lchown(n, 70099, 70099));
        OK(lchown(n, ME.uid, ME.gid));
        OK(lchown(n, SAME, SAME));
    }
}

static void symlinks(void)
{
    const char *n = made(REGULAR, 0644), *link = fresh();

    MUST(symlink(n, link));
    about("through a symlink");
    OK(chown(link, 70002, 70003));
    EQ(70002, stat_of(n).st_uid);
    EQ(0, stat_of(link).st_uid);
    about("the symlink itself");
    OK(lchown(link, 70004, 70005));
    EQ(70004, stat_of(link).st_uid);
    EQ(70005, stat_of(link).st_gid);
    EQ(0777, mode_of(link));
    EQ(70002, stat_of(n).st_uid);
    OK(fchownat(AT_FDCWD, link, 70006, 70006, 0));
    EQ(70006, stat_of(n).st_uid);
    EQ(70004, stat_of(link).st_uid);
}

static void descriptors(void)
{
    const char *n = made(REGULAR, 0644);
    int fd = (int)MUST(open(n, O_RDONLY)), place = (int)MUST(open(n, O_PATH));

    about("descriptors");
    WANT(EBADF, fchown(-1, SAME, SAME));
    WANT(EBADF, fchown(place, SAME, SAME));
    OK(fchown(fd, ME.uid, ME.gid));
    WANT(EBADF, fchownat(-1, "x", SAME, SAME, 0));
    WANT(ENOTDIR, fchownat(fd, "x", SAME, SAME, 0));
    WANT(ENOENT, fchownat(AT_FDCWD, "", SAME, SAME, 0));
    WANT(EINVAL, fchownat(AT_FDCWD, n, SAME, SAME, 0x4000000));
    WANT(EFAULT, syscall(SYS_chown, (void *)1, 0, 0));
    close(fd);
    close(place);
}

/* Who owned a file when he opened it keeps what he opened. */
static void given_while_open(void)
{
    const char *n = made_for(REGULAR, 0600, 70001, GROUP_ALICE);
    int fd = -1;

    about("given away while open");
    AS(ALICE)
    {
        fd = (int)OK(open(n, O_RDWR));
    }
    MUST(chown(n, 70002, GROUP_BOB));
    AS(ALICE)
    {
        EQ(4, write(fd, "more", 4));
        OK(ftruncate(fd, 2));
        WANT(EPERM, fchmod(fd, 0666));
        WANT(EPERM, fchown(fd, SAME, GROUP_TEAM));
        WANT(EACCES, open(n, O_RDONLY));
    }
    AS(BOB)
    {
        OK(fchmod(fd, 0640));
    }
    EQ(0640, mode_of(n));
    close(fd);
}

TOPIC(chown)
{
    descriptors();
    if (!am_root()) {
        own_file();
        return;
    }
    by_root();
    by_users();
    set_id();
    symlinks();
    given_while_open();
}
