/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* privileges.c - what a change of content takes from a file: set-id bits, file
 * capabilities */
#include <linux/capability.h>
#include <linux/falloc.h>
#include <sys/xattr.h>

#include "posix.h"

#define CAPABILITY "security.capability"

static int give_capability(const char *name)
{
    struct vfs_cap_data cap = {
        .magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
        .data = {{.permitted = 1u << CAP_NET_RAW}},
    };

    return setxattr(name, CAPABILITY, &cap, sizeof cap, 0);
}

static bool has_capability(const char *name)
{
    char bytes[64];

    return getxattr(name, CAPABILITY, bytes, sizeof bytes) > 0;
}

/* ---- ways to change a file --------------------------------------------------------- */

static int by_write(const char *name)
{
    int fd = open(name, O_WRONLY), r = fd < 0 ? -1 : (int)write(fd, "x", 1);

    return close(fd) < 0 ? -1 : r;
}

static int by_append(const char *name)
{
    int fd = open(name, O_WRONLY | O_APPEND), r = fd < 0 ? -1 : (int)write(fd, "x", 1);

    return close(fd) < 0 ? -1 : r;
}

static int by_direct_write(const char *name)
{
    static char page[4096] __attribute__((aligned(4096)));
    int fd = open(name, O_WRONLY | O_DIRECT);
    int r = fd < 0 ? -1 : (int)pwrite(fd, page, sizeof page, 0);

    return close(fd) < 0 ? -1 : r;
}

static int by_truncate(const char *name)
{
    return truncate(name, 10);
}

static int by_growing(const char *name)
{
    return truncate(name, 100000);
}

static int by_ftruncate(const char *name)
{
    int fd = open(name, O_WRONLY), r = fd < 0 ? -1 : ftruncate(fd, 5);

    return close(fd) < 0 ? -1 : r;
}

static int by_o_trunc(const char *name)
{
    return close(open(name, O_WRONLY | O_TRUNC));
}

static int by_fallocate(const char *name)
{
    int fd = open(name, O_WRONLY), r = fd < 0 ? -1 : fallocate(fd, 0, 0, 20000);

    return close(fd) < 0 ? -1 : r;
}

static int by_punch(const char *name)
{
    int fd = open(name, O_WRONLY), r;

    r = fd < 0 ? -1 : fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
    return close(fd) < 0 ? -1 : r;
}

static int by_copy(const char *name)
{
    int from = open("source", O_RDONLY), fd = open(name, O_WRONLY);
    int r = fd < 0 ? -1 : (int)copy_file_range(from, NULL, fd, NULL, 100, 0);

    close(from);
    return close(fd) < 0 ? -1 : r;
}

static const struct {
    const char *name;
    int (*change)(const char *name);
} ways[] = {
    {"write", by_write},
    {"append", by_append},
    {"direct write", by_direct_write},
    {"truncate", by_truncate},
    {"growing", by_growing},
    {"ftruncate", by_ftruncate},
    {"O_TRUNC", by_o_trunc},
    {"fallocate", by_fallocate},
    {"punch", by_punch},
    {"copy_file_range", by_copy},
};

#define WAYS (sizeof ways / sizeof ways[0])

static const char *changed_file(mode_t mode)
{
    const char *n = made_for(REGULAR, 0666, ALICE.uid, GROUP_TEAM);

    MUST(truncate(n, 5000));
    MUST(chmod(n, mode));
    return n;
}

TOPIC(set_id_bits)
{
    static const struct {
        mode_t mode, by_owner, by_other;
    } cases[] = {
        {06777, 0777, 0777}, {06767, 02767, 0767}, {04666, 0666, 0666},
        {02677, 0677, 0677}, {02666, 02666, 0666}, {01777, 01777, 01777},
        {0666, 0666, 0666},
    };

    NEEDS_ROOT("several users");
    MUST(make(REGULAR, "source", 0644));
    MUST(truncate("source", 1000));
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (size_t i = 0; i < WAYS; i++) {
            const char *n;
            mode_t mode = cases[c].mode;

            n = changed_file(mode);
            about("%s of 0%o", ways[i].name, mode);
            AS(ALICE)
            {
                OK(ways[i].change(n));
                EQ(cases[c].by_owner, mode_of(n));
            }
            MUST(chmod(n, mode));
            AS(BOB)
            {
                OK(ways[i].change(n));
                EQ(cases[c].by_other, mode_of(n));
            }
            MUST(chmod(n, mode));
            OK(ways[i].change(n)); /* root keeps them */
            EQ(mode, mode_of(n));
        }
    }
}

/* The kernel itself has the right mode: exec looks at no answer of stat(2). */
TOPIC(set_id_exec)
{
    const char *n = "show";

    NEEDS_ROOT("several users");
    MUST(system("cp \"$(command -v id)\" show"));
    MUST(chown(n, ALICE.uid, ALICE.gid));
    MUST(chmod(n, 06777));
    AS(BOB)
    {
        OK(by_append(n));
    }
    CHILD
    {
        int said = (int)MUST(open("said", O_CREAT | O_WRONLY, 0666));

        who_become_wholly(&BOB);
        MUST(dup2(said, STDOUT_FILENO));
        execl("./show", "show", "-u", NULL);
        MUST(-1);
    }
    IS_TRUE(holds("said", "70002\n"));
}

TOPIC(file_capability)
{
    NEEDS_ROOT("capabilities");
    MUST(make(REGULAR, "source", 0644));
    MUST(truncate("source", 1000));
    for (size_t i = 0; i < WAYS; i++) {
        const char *n = changed_file(0777);

        about("%s", ways[i].name);
        MUST(give_capability(n));
        IS_TRUE(has_capability(n));
        OK(ways[i].change(n)); /* by root as well */
        IS_TRUE(!has_capability(n));
        MUST(give_capability(n));
        AS(BOB)
        {
            OK(ways[i].change(n));
            IS_TRUE(!has_capability(n));
        }
        MUST(give_capability(n));
        OK(ways[i].change(n)); /* again, when the kernel has looked before */
        IS_TRUE(!has_capability(n));
    }
    {
        const char *n = changed_file(0755), *moved = fresh();
        struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 2}};

        about("%s", "");
        MUST(give_capability(n));
        OK(chmod(n, 0700));
        OK(utimensat(AT_FDCWD, n, times, 0));
        OK(rename(n, moved));
        OK(link(moved, n));
        IS_TRUE(has_capability(n)); /* none of these changes the content */
        OK(chown(n, BOB.uid, (gid_t)-1));
        IS_TRUE(!has_capability(n));
        MUST(give_capability(n));
        OK(chown(n, (uid_t)-1, GROUP_BOB));
        IS_TRUE(!has_capability(n));
        MUST(give_capability(n));
        OK(removexattr(n, CAPABILITY));
        WANT(EINVAL, setxattr(n, CAPABILITY, "rubbish", 7, 0));
        AS(BOB)
        {
            WANT(EPERM, give_capability(n));
        }
    }
}
