/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-recode.c - varjfsctl recode: files stored anew under what their attributes say
 *
 * The daemon does one step at a time (VARJFS_IOC_RECODE), so the command may be
 * interrupted and run again at any time.  A file that others change meanwhile is gone
 * through once more, because content may have moved to where the steps had been already.
 */
#include "cmd/ctl.h"

#include "varjfs/ioctl.h"

#include <fcntl.h>
#include <fts.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Passes over one file that others keep changing. */
#define PASSES_MOST 8

typedef struct Recode {
    const VjCtl *ctl;
    bool is_terminal;
    bool failed;
    uint64_t files, rewritten_bytes;
    uint64_t shown; /* JSON: files that were printed */
} Recode;

typedef struct Figures {
    uint64_t size, rewritten_bytes, unreadable_bytes;
    bool is_complete; /* no program changed it during the last pass */
} Figures;

/* ---- one file ---------------------------------------------------------------------- */

static void show_progress(const Recode *r, const char *path,
                          const struct varjfs_recode *io)
{
    if (r->is_terminal && io->cursor != VARJFS_RECODE_END && io->size > 0) {
        fprintf(stderr, "\r%3.0f %% %.60s\033[K",
                100.0 * (double)io->cursor / (double)io->size, path);
    }
}

static void clear_progress(const Recode *r)
{
    if (r->is_terminal) {
        fprintf(stderr, "\r\033[K");
    }
}

/*
 * Reading is enough for the owner, and keeps no process from executing the file; others
 * open it for writing.  -1 after a message.
 */
static int open_file(const Recode *r, const char *path)
{
    struct varjfs_recode probe = {.version = VARJFS_IOC_VERSION,
                                  .cursor = INT64_MAX / 2}; /* behind the end */
    VJ_AUTO_FD fd = vj_ctl_open(r->ctl, path, O_RDONLY);

    if (fd >= 0 && ioctl(fd, VARJFS_IOC_RECODE, &probe) != 0 && errno == EBADF) {
        vj_fd_close(&fd);
        fd = vj_ctl_open(r->ctl, path, O_WRONLY);
    }
    return vj_fd_steal(&fd);
}

static bool run_pass(const Recode *r, const char *path, int fd, Figures *sum)
{
    struct varjfs_recode io = {.version = VARJFS_IOC_VERSION};

    sum->is_complete = true;
    sum->unreadable_bytes = 0;
    while (io.cursor != VARJFS_RECODE_END) {
        io.flags = 0;
        if (ioctl(fd, VARJFS_IOC_RECODE, &io) != 0) {
            int why = errno;

            clear_progress(r);
            vj_cmd_fail_errno(r->ctl->cmd, path, why);
            return false;
        }
        sum->size = io.size;
        sum->rewritten_bytes += io.rewritten;
        sum->unreadable_bytes += io.unreadable;
        sum->is_complete = sum->is_complete && !(io.flags & VARJFS_RECODE_CHANGED);
        show_progress(r, path, &io);
    }
    return true;
}

static void print_figures(Recode *r, const char *path, const Figures *f)
{
    g_autofree char *name = vj_ctl_json_string(path);

    if (r->ctl->format == VJ_CTL_JSON) {
        printf("%s\n  {\"file\": %s, \"size\": %" G_GUINT64_FORMAT
               ", \"rewritten_bytes\": %" G_GUINT64_FORMAT
               ", \"unreadable_bytes\": %" G_GUINT64_FORMAT ", \"complete\": %s}",
               r->shown == 0 ? "[" : ",", name, f->size, f->rewritten_bytes,
               f->unreadable_bytes, f->is_complete ? "true" : "false");
    } else {
        printf("%s: %" G_GUINT64_FORMAT " bytes stored anew, size %" G_GUINT64_FORMAT
               "\n",
               path, f->rewritten_bytes, f->size);
    }
    r->shown++;
}

static bool recode_file(Recode *r, const char *path)
{
    VJ_AUTO_FD fd = open_file(r, path);
    Figures sum = {.is_complete = false};

    if (fd < 0) {
        return false;
    }
    for (int pass = 0; pass < PASSES_MOST && !sum.is_complete; pass++) {
        if (!run_pass(r, path, fd, &sum)) {
            return false;
        }
    }
    clear_progress(r);
    if (fsync(fd) != 0) {
        vj_cmd_fail_errno(r->ctl->cmd, path, errno);
        return false;
    }
    r->files++;
    r->rewritten_bytes += sum.rewritten_bytes;
    print_figures(r, path, &sum);
    if (!sum.is_complete) {
        fprintf(stderr, "%s: %s: it kept changing; run this again\n", r->ctl->cmd->name,
                path);
    }
    if (sum.unreadable_bytes > 0) {
        fprintf(stderr,
                "%s: %s: %" G_GUINT64_FORMAT
                " bytes cannot be read and stay as they are\n",
                r->ctl->cmd->name, path, sum.unreadable_bytes);
    }
    return sum.is_complete && sum.unreadable_bytes == 0;
}

/* ---- operands ---------------------------------------------------------------------- */

/* Every regular file below @path on its file system; links are not followed. */
static bool recode_tree(Recode *r, char *path)
{
    char *const paths[] = {path, NULL};
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    FTSENT *e;
    bool ok = true;

    if (tree == NULL) {
        vj_cmd_fail_errno(r->ctl->cmd, path, errno);
        return false;
    }
    while ((errno = 0, e = fts_read(tree)) != NULL) {
        switch (e->fts_info) {
        case FTS_F:
            ok = recode_file(r, e->fts_path) && ok;
            break;
        case FTS_DNR:
        case FTS_ERR:
        case FTS_NS:
            vj_cmd_fail_errno(r->ctl->cmd, e->fts_path, e->fts_errno);
            ok = false;
            break;
        default:
            break; /* directories, links, devices */
        }
    }
    if (errno != 0) {
        vj_cmd_fail_errno(r->ctl->cmd, path, errno);
        ok = false;
    }
    fts_close(tree);
    return ok;
}

static bool recode_operand(Recode *r, char *path)
{
    struct stat st;

    if (lstat(path, &st) != 0) {
        vj_cmd_fail_errno(r->ctl->cmd, path, errno);
        return false;
    }
    if (S_ISDIR(st.st_mode) && r->ctl->recursive) {
        return recode_tree(r, path);
    }
    if (S_ISDIR(st.st_mode)) {
        fprintf(stderr, "%s: %s: a directory; -r recodes what is in it\n",
                r->ctl->cmd->name, path);
        return false;
    }
    return recode_file(r, path);
}

int vj_ctl_recode(const VjCtl *ctl)
{
    Recode r = {.ctl = ctl, .is_terminal = isatty(STDERR_FILENO)};

    for (char **path = ctl->operands; *path != NULL; path++) {
        r.failed = !recode_operand(&r, *path) || r.failed;
    }
    if (ctl->format == VJ_CTL_JSON) {
        printf("%s\n", r.shown == 0 ? "[]" : "\n]");
    } else if (r.files > 1) {
        printf("%" G_GUINT64_FORMAT " files, %" G_GUINT64_FORMAT " bytes stored anew\n",
               r.files, r.rewritten_bytes);
    }
    return r.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
