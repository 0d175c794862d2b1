/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * setid.c - set-user-ID and set-group-ID: who may write takes them away, who is root does
 * not; and directories that hand their group down
 */
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Each gets a descriptor that is open for reading and writing, on a file of 8 KiB. */
static int write_one(const char *n, int fd)
{
    (void)n;
    return write(fd, "x", 1) == 1 ? 0 : -1;
}

static int write_at(const char *n, int fd)
{
    (void)n;
    return pwrite(fd, "x", 1, 5000) == 1 ? 0 : -1;
}

static int write_vector(const char *n, int fd)
{
    struct iovec iov[2] = {{"ab", 2}, {"cd", 2}};

    (void)n;
    return pwritev(fd, iov, 2, 8190) == 4 ? 0 : -1;
}

static int write_append(const char *n, int fd)
{
    int other = open(n, O_WRONLY | O_APPEND);
    int r = other >= 0 && write(other, "x", 1) == 1 ? 0 : -1;

    (void)fd;
    close(other);
    return r;
}

static int write_direct(const char *n, int fd)
{
    static char page[4096] __attribute__((aligned(4096)));
    int other = open(n, O_WRONLY | O_DIRECT), r;

    (void)fd;
    if (other < 0 && errno == EINVAL) {
        return write_one(n, fd); /* no O_DIRECT here */
    }
    r = other >= 0 && pwrite(other, page, sizeof page, 0) == sizeof page ? 0 : -1;
    close(other);
    return r;
}

static int shorten(const char *n, int fd)
{
    (void)n;
    return ftruncate(fd, 100);
}

static int lengthen(const char *n, int fd)
{
    (void)n;
    return ftruncate(fd, 10000);
}

static int truncate_path(const char *n, int fd)
{
    (void)fd;
    return truncate(n, 50);
}

static int open_truncate(const char *n, int fd)
{
    int other = open(n, O_WRONLY | O_TRUNC);

    (void)fd;
    return other < 0 ? -1 : close(other);
}

static int allocate(const char *n, int fd)
{
    (void)n;
    return fallocate(fd, 0, 0, 20000);
}

static int punch(const char *n, int fd)
{
    (void)n;
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
}

static int copy_into(const char *n, int fd)
{
    off_t from = 4096, to = 0;

    (void)n;
    return copy_file_range(fd, &from, fd, &to, 100, 0) == 100 ? 0 : -1;
}

static int send_into(const char *n, int fd)
{
    int source = open(n, O_RDONLY);
    int r = source >= 0 && sendfile(fd, source, NULL, 10) == 10 ? 0 : -1;

    close(source);
    return r;
}

static const struct {
    const char *name;
    int (*call)(const char *n, int fd);
} changes[] = {
    {"write", write_one},
    {"pwrite", write_at},
    {"pwritev", write_vector},
    {"write O_APPEND", write_append},
    {"pwrite O_DIRECT", write_direct},
    {"ftruncate to less", shorten},
    {"ftruncate to more", lengthen},
    {"truncate", truncate_path},
    {"open O_TRUNC", open_truncate},
    {"fallocate", allocate},
    {"fallocate PUNCH_HOLE", punch},
    {"copy_file_range", copy_into},
    {"sendfile", send_into},
};

static const mode_t modes[] = {04777, 02777, 06777, 06755, 06666,
                               02666, 02767, 04711, 07777, 04755};

static mode_t cleared(mode_t mode)
{
    return mode & ~(04000u | ((mode & 0010) ? 02000u : 0));
}

static void change(size_t c, mode_t mode, const Who *who, bool clears)
{
    const char *n = fresh();
    int fd;

    MUST(spew(n, ""));
    MUST(truncate(n, 8192));
    MUST(give(n, am_root() ? 70001 : ME.uid, am_root() ? GROUP_TEAM : ME.gid));
    fd = (int)MUST(open(n, O_RDWR));
    MUST(chmod(n, mode));
    about("%s to a file with 0%o", changes[c].name, mode);
    AS(*who)
    {
        OK(changes[c].call(n, fd));
    }
    EQ(clears ? cleared(mode) : mode, mode_of(n));
    EQ(clears ? cleared(mode) : mode, fstat_of(fd).st_mode & 07777);
    close(fd);
    MUST(unlink(n));
}

static void by_writers(void)
{
    static const Who *const writers[] = {&ALICE, &DAVE};

    for (size_t c = 0; c < COUNT(changes); c++) {
        for (size_t m = 0; m < COUNT(modes); m++) {
            if (!am_root()) {
                change(c, modes[m] | 0600, &ME, true);
                continue;
            }
            for (size_t w = 0; w < COUNT(writers); w++) {
                if (writers[w] == &DAVE && !(modes[m] & 0020)) {
                    continue;
                }
                change(c, modes[m] | (writers[w] == &ALICE ? 0600 : 0660), writers[w],
                       true);
            }
            change(c, modes[m], &ROOT, false);
        }
    }
}

/* What changes nothing takes nothing. */
static void without_change(void)
{
    const char *n = made(REGULAR, 06777);
    int fd = (int)MUST(open(n, O_RDWR));
    char c;

    about("without a change");
    EQ(0, read(fd, &c, 1));
    EQ(06777, mode_of(n));
    EQ(0, write(fd, "", 0));
    EQ(06777, mode_of(n));
    OK(utimensat(AT_FDCWD, n, NULL, 0));
    EQ(06777, mode_of(n));
    OK(rename(n, "moved"));
    OK(link("moved", n));
    OK(fsync(fd));
    EQ(06777, mode_of(n));
    close(fd);
}

/* ---- directories ------------------------------------------------------------------- */

static void make_in(Kind k, const char *n, mode_t mode)
{
    switch (k) {
    case REGULAR: {
        int fd = (int)OK(open(n, O_CREAT | O_EXCL | O_WRONLY, mode));

        close(fd);
        break;
    }
    case DIRECTORY:
        OK(mkdir(n, mode));
        break;
    case SYMLINK:
        OK(symlink("x", n));
        break;
    default:
        OK(mknod(n, kind_modes[k] | mode, 0));
        break;
    }
}

/* What is made in a set-group-ID directory has its group; directories hand the bit on. */
static void inherit(Kind k, mode_t dir_mode, gid_t gid, mode_t mode, const Who *who)
{
    const char *dir = made_for(DIRECTORY, dir_mode, 70009, gid), *n = path("%s/x", dir);
    bool member = who->uid == 0 || gid == who->gid;
    mode_t wanted = mode;
    gid_t wanted_gid = (dir_mode & 02000) || who->uid == 70009 ? gid : who->gid;

    for (int i = 0; i < who->group_count; i++) {
        member = member || who->groups[i] == gid;
    }
    if (dir_mode & 02000) {
        wanted_gid = gid;
        if (k == DIRECTORY) {
            wanted |= 02000;
        } else if (!member && (mode & 0010)) {
            wanted &= ~02000u;
        }
    } else if (k == DIRECTORY) {
        wanted &= ~02000u | (mode & 02000);
    }
    about("a %s with 0%o in a directory with 0%o and %s group", kind_names[k], mode,
          dir_mode, member ? "one's own" : "a foreign");
    AS(*who)
    {
        make_in(k, n, mode);
    }
    EQ(who->uid, stat_of(n).st_uid);
    EQ(wanted_gid, stat_of(n).st_gid);
    if (k != SYMLINK) {
        EQ(wanted, mode_of(n));
    }
    MUST(gone(k, n));
    MUST(rmdir(dir));
}

static void inheritance(void)
{
    static const mode_t dir_modes[] = {0777, 02777, 03777},
                        made_modes[] = {0755, 0644, 02755, 02644, 0};
    static const gid_t gids[] = {GROUP_TEAM, GROUP_CAROL};
    static const Who *const makers[] = {&ROOT, &ALICE, &BOB, &DAVE};

    EACH_KIND(k)
    {
        for (size_t d = 0; d < COUNT(dir_modes); d++) {
            for (size_t m = 0; m < COUNT(made_modes); m++) {
                for (size_t g = 0; g < COUNT(gids); g++) {
                    for (size_t w = 0; w < COUNT(makers); w++) {
                        if ((k == CHARDEV || k == BLOCKDEV) && w > 0) {
                            continue;
                        }
                        if (k == DIRECTORY && (made_modes[m] & 02000)) {
                            continue; /* mkdir(2) leaves it open */
                        }
                        inherit(k, dir_modes[d], gids[g], made_modes[m], makers[w]);
                    }
                }
            }
        }
    }
}

/* The bit comes from where it is made, not from where it is moved or linked to. */
static void moved_in(void)
{
    const char *dir = made_for(DIRECTORY, 02777, 70009, GROUP_TEAM);

    EACH_KIND(k)
    {
        const char *n = made_for(k, 0755, 70001, GROUP_ALICE);

        about("a %s moved into a set-group-ID directory", kind_names[k]);
        OK(rename(n, path("%s/x", dir)));
        EQ(GROUP_ALICE, stat_of(path("%s/x", dir)).st_gid);
        if (k != SYMLINK) {
            EQ(0755, mode_of(path("%s/x", dir)));
        }
        MUST(gone(k, path("%s/x", dir)));
    }
    about("a chain of directories");
    AS(BOB)
    {
        OK(mkdir(path("%s/a", dir), 0700));
        OK(mkdir(path("%s/a/b", dir), 0700));
        OK(mkdir(path("%s/a/b/c", dir), 0700));
    }
    EQ(GROUP_TEAM, stat_of(path("%s/a/b/c", dir)).st_gid);
    EQ(02700, mode_of(path("%s/a/b/c", dir)));
    OK(chmod(path("%s/a/b", dir), 0777));
    AS(CAROL)
    {
        EQ(-1, access(path("%s/a/b", dir), F_OK));
    }
    OK(chmod(path("%s/a", dir), 0777));
    AS(CAROL)
    {
        OK(mkdir(path("%s/a/b/d", dir), 0700));
    }
    EQ(GROUP_CAROL, stat_of(path("%s/a/b/d", dir)).st_gid);
    EQ(0700, mode_of(path("%s/a/b/d", dir)));
}

TOPIC(setid_writes)
{
    by_writers();
    without_change();
}

TOPIC(setgid_directories)
{
    NEEDS_ROOT("several groups");
    inheritance();
    moved_in();
}
