/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-tend.c - varjfsctl gc and scrub: looking after a volume that is in use
 *
 * The daemon does one step at a time (VARJFS_IOC_TEND); between the steps a scrub waits, so
 * that it reads no faster than it was told to.  Damaged objects become names of files by
 * walking the mount, and only when there are any.
 */
#include "cmd/ctl.h"

#include "varjfs/ioctl.h"

#include <fcntl.h>
#include <fts.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Damaged objects whose files are looked for; the others are counted. */
#define BAD_MOST 100000u
/* Between two lines of progress. */
#define PROGRESS_US ((int64_t)250 * 1000)

typedef struct Tend {
    const VjCtl *ctl;
    const char *path;
    bool is_terminal;
    int64_t begun_us, shown_us;
    uint64_t examined, examined_bytes, found, found_bytes;
    GHashTable *bad;    /* ids, as text of the map: 16 hexadecimal digits */
    uint64_t bad_files; /* that were shown */
    bool failed;
} Tend;

/* ---- steps ---------------------------------------------------------------------------- */

static void clear_progress(const Tend *t)
{
    if (t->is_terminal) {
        fprintf(stderr, "\r\033[K");
    }
}

static void show_progress(Tend *t, const struct varjfs_tend *io)
{
    int64_t now = vj_clock_mono_us();

    if (!t->is_terminal || now - t->shown_us < PROGRESS_US) {
        return;
    }
    t->shown_us = now;
    if (io->what == VARJFS_TEND_GC) {
        fprintf(stderr,
                "\r%" G_GUINT64_FORMAT " objects examined, %" G_GUINT64_FORMAT
                " removed\033[K",
                t->examined, t->found);
    } else {
        fprintf(stderr,
                "\r%" G_GUINT64_FORMAT " objects, %" G_GUINT64_FORMAT
                " MiB read, %" G_GUINT64_FORMAT " damaged\033[K",
                t->examined, t->examined_bytes >> 20, t->found);
    }
}

static void note_bad(Tend *t, const struct varjfs_tend *io)
{
    for (uint64_t i = 0; i < MIN(io->bad_count, VARJFS_TEND_BAD); i++) {
        if (g_hash_table_size(t->bad) < BAD_MOST) {
            g_hash_table_add(t->bad, g_strdup_printf("%016" G_GINT64_MODIFIER "x",
                                                     (guint64)io->bad[i]));
        }
    }
}

/* Reading took less time than the rate allows: the rest of it is waited for. */
static void keep_rate(const Tend *t)
{
    int64_t due, left;

    if (t->ctl->rate == 0) {
        return;
    }
    due = t->begun_us + (int64_t)((double)t->examined_bytes / (double)t->ctl->rate * 1e6);
    left = (due - vj_clock_mono_us()) / 1000;
    if (left > 0) { /* a signal ends the wait early: the next step makes up for it */
        (void)!poll(NULL, 0, (int)MIN(left, INT32_MAX));
    }
}

/* All steps; false after a message. */
static bool run_steps(Tend *t, int fd, uint32_t what)
{
    struct varjfs_tend io = {.cursor = 0};

    t->begun_us = vj_clock_mono_us();
    while (io.cursor != VARJFS_TEND_END) {
        uint64_t before = io.cursor;

        io.version = VARJFS_IOC_VERSION;
        io.what = what;
        if (ioctl(fd, VARJFS_IOC_TEND, &io) != 0) {
            clear_progress(t);
            vj_cmd_fail_errno(t->ctl->cmd, t->path, errno);
            return false;
        }
        if (io.cursor <= before) {
            fprintf(stderr, "%s: %s: the daemon's answer makes no sense\n",
                    t->ctl->cmd->name, t->path);
            return false;
        }
        t->examined += io.examined;
        t->examined_bytes += io.examined_bytes;
        t->found += io.found;
        t->found_bytes += io.found_bytes;
        if (what == VARJFS_TEND_SCRUB) {
            note_bad(t, &io);
            keep_rate(t);
        }
        show_progress(t, &io);
    }
    clear_progress(t);
    return true;
}

/* ---- gc ------------------------------------------------------------------------------- */

int vj_ctl_gc(const VjCtl *ctl)
{
    Tend t = {
        .ctl = ctl, .path = ctl->operands[0], .is_terminal = isatty(STDERR_FILENO) != 0};
    VJ_AUTO_FD fd = vj_ctl_open(ctl, t.path, O_RDONLY);

    if (fd < 0 || !run_steps(&t, fd, VARJFS_TEND_GC)) {
        return EXIT_FAILURE;
    }
    if (ctl->format == VJ_CTL_JSON) {
        printf("{\"examined_objects\": %" G_GUINT64_FORMAT
               ", \"removed_objects\": %" G_GUINT64_FORMAT
               ", \"removed_bytes\": %" G_GUINT64_FORMAT "}\n",
               t.examined, t.found, t.found_bytes);
    } else {
        g_autofree char *size =
            g_format_size_full(t.found_bytes, G_FORMAT_SIZE_IEC_UNITS);

        printf("%s: removed %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT
               " objects, %" G_GUINT64_FORMAT " bytes (%s)\n",
               t.path, t.found, t.examined + t.found, t.found_bytes, size);
    }
    return EXIT_SUCCESS;
}

/* ---- checkpoint ----------------------------------------------------------------------- */

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

/* ---- the files of damaged objects ----------------------------------------------------- */

typedef struct BadFile {
    Tend *t;
    const char *path;
} BadFile;

static bool bad_extent(void *opaque, char *line)
{
    BadFile *f = opaque;
    Tend *t = f->t;
    g_auto(GStrv) fields = g_strsplit(line, " ", 5);
    uint64_t offset, length;

    if (g_strv_length(fields) < 5 || !g_hash_table_contains(t->bad, fields[3])) {
        return g_strv_length(fields) >= 5;
    }
    offset = g_ascii_strtoull(fields[0], NULL, 10);
    length = g_ascii_strtoull(fields[1], NULL, 10);
    if (t->ctl->format == VJ_CTL_JSON) {
        g_autofree char *name = vj_ctl_json_string(f->path);

        printf("%s\n    {\"file\": %s, \"offset\": %" G_GUINT64_FORMAT
               ", \"length\": %" G_GUINT64_FORMAT ", \"object_id\": \"%s\"}",
               t->bad_files == 0 ? "" : ",", name, offset, length, fields[3]);
    } else {
        printf("%s: bytes %" G_GUINT64_FORMAT " to %" G_GUINT64_FORMAT
               " are in object %s, which is damaged\n",
               f->path, offset, offset + length - 1, fields[3]);
    }
    t->bad_files++;
    return true;
}

static void look_at_file(Tend *t, const char *path)
{
    BadFile f = {.t = t, .path = path};
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0) {
        if (errno != ENOENT) { /* gone meanwhile is fine */
            vj_cmd_fail_errno(t->ctl->cmd, path, errno);
            t->failed = true;
        }
        return;
    }
    if (!vj_ctl_text(t->ctl, path, fd, VARJFS_TEXT_MAP, bad_extent, &f)) {
        t->failed = true;
    }
}

/* Each file of the mount that has a damaged object. */
static void name_files(Tend *t)
{
    char *roots[] = {(char *)(uintptr_t)t->path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL);
    FTSENT *e;

    if (walk == NULL) {
        vj_cmd_fail_errno(t->ctl->cmd, t->path, errno);
        t->failed = true;
        return;
    }
    while ((e = fts_read(walk)) != NULL) {
        if (e->fts_info == FTS_F && S_ISREG(e->fts_statp->st_mode)) {
            look_at_file(t, e->fts_path);
        } else if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR) {
            vj_cmd_fail_errno(t->ctl->cmd, e->fts_path, e->fts_errno);
            t->failed = true;
        }
    }
    fts_close(walk);
}

/* ---- scrub ---------------------------------------------------------------------------- */

int vj_ctl_scrub(const VjCtl *ctl)
{
    g_autoptr(GHashTable) bad =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    Tend t = {.ctl = ctl,
              .path = ctl->operands[0],
              .is_terminal = isatty(STDERR_FILENO) != 0,
              .bad = bad};
    VJ_AUTO_FD fd = vj_ctl_open(ctl, t.path, O_RDONLY);
    bool json = ctl->format == VJ_CTL_JSON;

    if (fd < 0 || !run_steps(&t, fd, VARJFS_TEND_SCRUB)) {
        return EXIT_FAILURE;
    }
    if (json) {
        printf("{\n  \"objects\": %" G_GUINT64_FORMAT ", \"bytes\": %" G_GUINT64_FORMAT
               ", \"damaged_objects\": %" G_GUINT64_FORMAT ",\n  \"damaged\": [",
               t.examined, t.examined_bytes, t.found);
    }
    if (g_hash_table_size(bad) > 0) {
        name_files(&t);
    }
    if (json) {
        printf("%s]\n}\n", t.bad_files > 0 ? "\n  " : "");
    } else {
        printf("%s: %" G_GUINT64_FORMAT " objects, %" G_GUINT64_FORMAT
               " bytes read, %" G_GUINT64_FORMAT " objects damaged\n",
               t.path, t.examined, t.examined_bytes, t.found);
    }
    return t.failed || t.found > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
