/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* chmod.c - chmod, fchmod, fchmodat: who may, which bits stay, what else changes */
#include <limits.h>
#include <sys/syscall.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const mode_t modes[] = {0,     0001,  0010,  0100,  0111,  0222,  0444,  0640,
                               0644,  0666,  0700,  0755,  0777,  01777, 02750, 02755,
                               04711, 04755, 06555, 06777, 07000, 07777};

static int by_path(const char *n, mode_t mode)
{
    return chmod(n, mode);
}

static int by_at(const char *n, mode_t mode)
{
    return fchmodat(AT_FDCWD, n, mode, 0);
}

static int by_fd(const char *n, mode_t mode)
{
    int fd = open(n, O_RDONLY | O_NONBLOCK), r;

    if (fd < 0) {
        return -1;
    }
    r = fchmod(fd, mode);
    close(fd);
    return r;
}

/* A descriptor that is only a place: through /proc, as the C library does it. */
static int by_place(const char *n, mode_t mode)
{
    int fd = open(n, O_PATH), r;

    if (fd < 0) {
        return -1;
    }
    r = chmod(path("/proc/self/fd/%d", fd), mode);
    close(fd);
    return r;
}

static const struct {
    const char *name;
    int (*call)(const char *n, mode_t mode);
} hows[] = {{"chmod", by_path},
            {"fchmodat", by_at},
            {"fchmod", by_fd},
            {"chmod of O_PATH", by_place}};

static void every_mode(void)
{
    EACH_KIND(k)
    {
        const char *n = made(k, 0644);

        for (size_t i = 0; k != SYMLINK && i < COUNT(modes); i++) {
            for (size_t h = 0; h < COUNT(hows); h++) {
                struct stat then;

                if (hows[h].call == by_fd && k != REGULAR && k != DIRECTORY &&
                    k != FIFO) {
                    continue;
                }
                MUST(chmod(n, 0644));
                then = before(n);
                about("%s of a %s to 0%o", hows[h].name, kind_names[k], modes[i]);
                OK(hows[h].call(n, modes[i]));
                EQ(kind_modes[k] | modes[i], stat_of(n).st_mode);
                TIMES(then, n, TIME_C);
            }
        }
    }
}

static void not_the_owner(void)
{
    static const Who *const others[] = {&ALICE, &CAROL, &DAVE};

    EACH_KIND(k)
    {
        const char *n = made_for(k, 0777, 70002, GROUP_TEAM);

        if (k == SYMLINK) {
            continue;
        }
        for (size_t w = 0; w < COUNT(others); w++) {
            for (size_t h = 0; h < COUNT(hows); h++) {
                struct stat then = before(n);

                if (hows[h].call == by_fd && k != REGULAR && k != DIRECTORY &&
                    k != FIFO) {
                    continue;
                }
                about("%s of another's %s", hows[h].name, kind_names[k]);
                AS(*others[w])
                {
                    WANT(EPERM, hows[h].call(n, 0700));
                    WANT(EPERM, hows[h].call(n, 0777));
                }
                EQ(0777, mode_of(n));
                TIMES(then, n, 0);
            }
        }
        about("the owner's %s", kind_names[k]);
        AS(BOB)
        {
            OK(chmod(n, 0));
            OK(chmod(n, 0640));
        }
        EQ(0640, mode_of(n));
    }
}

/* Somebody outside the file's group does not get set-group-ID, but no error either. */
static void outside_the_group(void)
{
    static const mode_t asked[] = {02755, 02644, 02000, 06777, 07777, 04755};

    EACH_KIND(k)
    {
        for (size_t i = 0; k != SYMLINK && i < COUNT(asked); i++) {
            const char *n = made_for(k, 0755, 70001, GROUP_CAROL);

            about("0%o of a %s of a foreign group", asked[i], kind_names[k]);
            AS(ALICE)
            {
                OK(chmod(n, asked[i]));
            }
            EQ(asked[i] & ~02000u, mode_of(n));
            MUST(give(n, 70001, GROUP_TEAM));
            about("0%o of a %s of a supplementary group", asked[i], kind_names[k]);
            AS(ALICE)
            {
                OK(chmod(n, asked[i]));
            }
            EQ(asked[i], mode_of(n));
            MUST(give(n, 70001, GROUP_ALICE));
            about("0%o of a %s of the main group", asked[i], kind_names[k]);
            AS(ALICE)
            {
                OK(chmod(n, asked[i]));
            }
            EQ(asked[i], mode_of(n));
            MUST(give(n, 70001, GROUP_CAROL));
            about("0%o of a %s of a foreign group, by root", asked[i], kind_names[k]);
            OK(chmod(n, asked[i]));
            EQ(asked[i], mode_of(n));
            MUST(gone(k, n));
        }
    }
}

static void through_a_symlink(void)
{
    const char *n = made(REGULAR, 0600), *link = fresh();
    struct stat then;

    MUST(symlink(n, link));
    then = before(link);
    about("through a symlink");
    OK(chmod(link, 0640));
    EQ(0640, mode_of(n));
    EQ(0777, mode_of(link));
    MC_TIMES(then, link, 0);
    WANT(EOPNOTSUPP, fchmodat(AT_FDCWD, link, 0600, AT_SYMLINK_NOFOLLOW));
    EQ(0777, mode_of(link));
}

static void descriptors(void)
{
    const char *n = made(REGULAR, 0600), *dir = made(DIRECTORY, 0700);
    int fd = (int)MUST(open(n, O_RDONLY)), place = (int)MUST(open(n, O_PATH));
    int in = (int)MUST(open(dir, O_RDONLY | O_DIRECTORY));

    about("descriptors");
    WANT(EBADF, fchmod(-1, 0600));
    WANT(EBADF, fchmod(9999, 0600));
    WANT(EBADF, fchmod(place, 0640));
    MUST(make(REGULAR, path("%s/f", dir), 0600));
    OK(fchmodat(in, "f", 0604, 0));
    EQ(0604, mode_of(path("%s/f", dir)));
    WANT(EBADF, fchmodat(-1, "f", 0600, 0));
    WANT(ENOTDIR, fchmodat(fd, "f", 0600, 0));
    WANT(EINVAL, fchmodat(in, "f", 0600, 0x4000000));
    WANT(EFAULT, syscall(SYS_chmod, (void *)1, 0600));
    MUST(unlink(n));
    about("an open file without a name");
    OK(fchmod(fd, 0622));
    EQ(0622, fstat_of(fd).st_mode & 07777);
    EQ(0, fstat_of(fd).st_nlink);
    close(fd);
    close(place);
    close(in);
}

/* What is open stays open, whatever the mode becomes. */
static void after_open(void)
{
    const char *n = made(REGULAR, 0600);
    char c;
    int fd = (int)MUST(open(n, O_RDWR));

    about("an open descriptor after chmod 0");
    MUST(chmod(n, 0));
    EQ(1, write(fd, "x", 1));
    EQ(1, pread(fd, &c, 1, 0));
    OK(ftruncate(fd, 10));
    OK(fchmod(fd, 0600));
    close(fd);
}

TOPIC(chmod)
{
    every_mode();
    through_a_symlink();
    descriptors();
    after_open();
    about("%s", "");
    NEEDS_ROOT("others' files");
    not_the_owner();
    outside_the_group();
}
