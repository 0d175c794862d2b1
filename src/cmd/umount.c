/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * umount.c - umount.fuse.varjfs: unmount, and return when the daemon has let go of SOURCE
 *
 * umount(8) runs it as: umount.fuse.varjfs MOUNTPOINT [-flnrv] [-N NAMESPACE] [-t TYPE].
 * The kernel's umount returns while the daemon still writes back; a user who unplugs the
 * disk or copies SOURCE next needs it to have ended.
 */
#include "base/base.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include "cmd/mount-table.h"
#include "volume/volume.h"

/* How often to look whether another daemon has SOURCE by now, microseconds. */
#define LOOK_US ((int64_t)1000000)
/* Another user's lock is waited for so long: he could hold it for ever. */
#define FOREIGN_US ((int64_t)60 * 1000000)
/* A process in another mount namespace that has it mounted may be on its way out. */
#define ELSEWHERE_US ((int64_t)5 * 1000000)
/* A user who gives -f has a store that hangs. */
#define FORCE_US ((int64_t)10 * 1000000)
#define EXIT_USAGE 2

static void usage(void)
{
    printf(
        "usage: umount.fuse.varjfs MOUNTPOINT [-flnrv]\n"
        "\n"
        "Unmounts a varjfs and waits until its daemon has written everything.\n"
        "\n"
        "  -f         by force: requests that wait are given up; waits for 10 s at most\n"
        "  -l         lazily: detach, do not wait\n"
        "  -n -r -v   as mount(8) passes them; nothing to do\n"
        "  --help     this text\n"
        "  --version  the version\n");
}

/* As an ordinary user only fusermount3 may.  What it says is why. */
static bool unmount_by_helper(const char *mountpoint, bool lazy, GError **error)
{
    const char *argv[] = {"fusermount3",
                          "-u",
                          lazy ? "-z" : "--",
                          lazy ? "--" : mountpoint,
                          lazy ? mountpoint : NULL,
                          NULL};
    g_autofree char *said = NULL;
    const char *why;
    int status;

    if (!g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_SEARCH_PATH, NULL,
                      NULL, NULL, &said, &status, error)) {
        return vj_error_prefix(error, "%s", mountpoint);
    }
    if (g_spawn_check_wait_status(status, NULL)) {
        return true;
    }
    g_strchomp(said);
    why = g_str_has_prefix(said, "fusermount3: ") ? said + strlen("fusermount3: ") : said;
    return vj_error_set(error, EPERM, "%s: %s", mountpoint,
                        why[0] != '\0' ? why : "fusermount3 failed");
}

static bool unmount(const char *mountpoint, int flags, GError **error)
{
    if (geteuid() != 0) {
        return unmount_by_helper(mountpoint, (flags & MNT_DETACH) != 0, error);
    }
    if (umount2(mountpoint, flags) < 0) {
        return vj_error_set_errno(error, errno, "%s", mountpoint);
    }
    return true;
}

/*
 * Why there is no sense in waiting for @was any longer; NULL: there is.  Owned.
 * @waited_us: so far; @foreign: another user holds the lock.
 */
static char *why_give_up(const VjMountEntry *was, int64_t waited_us, bool foreign,
                         int flags)
{
    g_autofree char *holder = NULL;

    if (foreign && waited_us >= FOREIGN_US) {
        return g_strdup_printf("%s is locked by another user", was->source);
    }
    if ((flags & MNT_FORCE) && waited_us >= FORCE_US) {
        return g_strdup_printf("its daemon is still at work in %s", was->source);
    }
    holder = waited_us >= ELSEWHERE_US ? vj_mount_table_holder(was) : NULL;
    return holder == NULL
               ? NULL
               : g_strdup_printf("it stays mounted in another mount namespace, "
                                 "which process %s has, and %s in use",
                                 holder, was->source);
}

/* Until the lock is free, or the next daemon has it: then ours let go before. */
static bool wait_released(const VjMountEntry *was, int flags, GError **error)
{
    int64_t since_us = vj_clock_mono_us();

    while (!vj_mount_table_has(was->source)) {
        g_autoptr(GError) local = NULL;
        g_autofree char *why = NULL;
        bool foreign;

        if (vj_volume_wait_released(was->source, LOOK_US, &foreign, &local)) {
            return true;
        }
        if (local->code != ETIMEDOUT) {
            g_propagate_error(error, g_steal_pointer(&local));
            return false;
        }
        why = why_give_up(was, vj_clock_mono_us() - since_us, foreign, flags);
        if (why != NULL) {
            return vj_error_set(error, EBUSY, "%s: unmounted, but %s", was->mountpoint,
                                why);
        }
    }
    return true;
}

static int usage_error(const char *why)
{
    vj_complain("umount.fuse.varjfs", "%s (umount.fuse.varjfs --help shows the usage)",
                why);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    g_auto(VjMountEntry) was = {.source = NULL};
    char mountpoint[PATH_MAX];
    int flags = 0, option;

    vj_sandbox_refuse("umount.fuse.varjfs");
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        usage();
        return EXIT_SUCCESS;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("umount.fuse.varjfs " VARJFS_VERSION "\n");
        return EXIT_SUCCESS;
    }
    opterr = 0;
    while ((option = getopt(argc, argv, "flnrvN:t:")) != -1) {
        switch (option) {
        case 'f':
            flags |= MNT_FORCE;
            break;
        case 'l':
            flags |= MNT_DETACH;
            break;
        case '?':
            return usage_error("unknown option, or one without its value");
        default:
            break;
        }
    }
    if (optind + 1 != argc) {
        return usage_error(optind == argc ? "MOUNTPOINT is missing"
                                          : "one argument too many");
    }
    if (realpath(argv[optind], mountpoint) == NULL) {
        /* The daemon may be dead: its mount point cannot be looked at. */
        g_strlcpy(mountpoint, argv[optind], sizeof mountpoint);
    }
    (void)vj_mount_table_find(mountpoint, &was);
    if (!unmount(mountpoint, flags, &error) ||
        (was.source != NULL && !(flags & MNT_DETACH) &&
         !wait_released(&was, flags, &error))) {
        vj_complain("umount.fuse.varjfs", "%s", error->message);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
