/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-tend.c - varjfsctl gc and checkpoint: looking after a volume that is in use
 *
 * The daemon does one step at a time (VARJFS_IOC_TEND); so does a scrub (ctl-scrub.c).
 */
#include "cmd/ctl.h"

#include "varjfs/ioctl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Between two lines of progress. */
#define PROGRESS_US ((int64_t)250 * 1000)

bool vj_ctl_tend_step(const VjCtl *ctl, const char *path, int fd, uint32_t what,
                      struct varjfs_tend *io)
{
    uint64_t before = io->cursor;

    io->version = VARJFS_IOC_VERSION;
    io->what = what;
    if (ioctl(fd, VARJFS_IOC_TEND, io) != 0) {
        vj_cmd_fail_errno(ctl->cmd, path, errno);
        return false;
    }
    if (io->cursor <= before) {
        fprintf(stderr, "%s: %s: the daemon's answer makes no sense\n", ctl->cmd->name,
                path);
        return false;
    }
    return true;
}

/* ---- gc ---------------------------------------------------------------------------- */

typedef struct Gc {
    uint64_t examined, removed, removed_bytes;
    int64_t shown_us; /* progress; 0: stderr is no terminal */
} Gc;

static void show_progress(Gc *gc)
{
    int64_t now = vj_clock_mono_us();

    if (gc->shown_us != 0 && now - gc->shown_us >= PROGRESS_US) {
        gc->shown_us = now;
        fprintf(stderr,
                "\r%" G_GUINT64_FORMAT " objects examined, %" G_GUINT64_FORMAT
                " removed\033[K",
                gc->examined, gc->removed);
    }
}

static bool run_steps(const VjCtl *ctl, const char *path, int fd, Gc *gc)
{
    struct varjfs_tend io = {.cursor = 0};
    bool ok = true;

    while (ok && io.cursor != VARJFS_TEND_END) {
        ok = vj_ctl_tend_step(ctl, path, fd, VARJFS_TEND_GC, &io);
        if (ok) {
            gc->examined += io.examined;
            gc->removed += io.found;
            gc->removed_bytes += io.found_bytes;
            show_progress(gc);
        }
    }
    if (gc->shown_us != 0) {
        fprintf(stderr, "\r\033[K");
    }
    return ok;
}

int vj_ctl_gc(const VjCtl *ctl)
{
    Gc gc = {.shown_us = isatty(STDERR_FILENO) != 0 ? vj_clock_mono_us() : 0};
    const char *path = ctl->operands[0];
    VJ_AUTO_FD fd = vj_ctl_open(ctl, path, O_RDONLY);

    if (fd < 0 || !run_steps(ctl, path, fd, &gc)) {
        return EXIT_FAILURE;
    }
    if (ctl->format == VJ_CTL_JSON) {
        printf("{\"examined_objects\": %" G_GUINT64_FORMAT
               ", \"removed_objects\": %" G_GUINT64_FORMAT
               ", \"removed_bytes\": %" G_GUINT64_FORMAT "}\n",
               gc.examined, gc.removed, gc.removed_bytes);
    } else {
        g_autofree char *size =
            g_format_size_full(gc.removed_bytes, G_FORMAT_SIZE_IEC_UNITS);

        printf("%s: removed %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT
               " objects, %" G_GUINT64_FORMAT " bytes (%s)\n",
               path, gc.removed, gc.examined + gc.removed, gc.removed_bytes, size);
    }
    return EXIT_SUCCESS;
}

/* ---- checkpoint -------------------------------------------------------------------- */

int vj_ctl_checkpoint(const VjCtl *ctl)
{
    struct varjfs_tend io = {.version = VARJFS_IOC_VERSION,
                             .what = VARJFS_TEND_CHECKPOINT};
    const char *path = ctl->operands[0];
    VJ_AUTO_FD fd = vj_ctl_open(ctl, path, O_RDONLY);

    if (fd < 0) {
        return EXIT_FAILURE;
    }
    if (ioctl(fd, VARJFS_IOC_TEND, &io) != 0) {
        vj_cmd_fail_errno(ctl->cmd, path, errno);
        return EXIT_FAILURE;
    }
    if (ctl->format == VJ_CTL_JSON) {
        printf("{\"bytes\": %" G_GUINT64_FORMAT "}\n", (guint64)io.found_bytes);
    } else {
        g_autofree char *size =
            g_format_size_full(io.found_bytes, G_FORMAT_SIZE_IEC_UNITS);

        printf("%s: %s of metadata were copied\n", path, size);
    }
    return EXIT_SUCCESS;
}
