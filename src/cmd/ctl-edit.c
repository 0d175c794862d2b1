/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-edit.c - varjfsctl insert, delete, replace
 *
 * Standard input of any length goes through two buffers, because the last piece must be
 * known as the last: it takes what is left of the old bytes.
 */
#include "cmd/ctl.h"

#include "varjfs/ioctl.h"
#include "varjfs/rwrite.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)VARJFS_EDIT_MAX)
/* A terminal hears of the progress each time that so many bytes were done. */
#define PROGRESS_BYTES (8 * (uint64_t)PIECE_BYTES)

typedef struct Edit {
    const VjCtl *ctl;
    const char *path;
    int fd;
    uint64_t offset;   /* of the next piece */
    uint64_t old_left; /* bytes that are still to be replaced */
    uint64_t done;     /* bytes of input */
} Edit;

static bool parse_position(const VjCtl *ctl, const char *name, const char *text,
                           uint64_t *out)
{
    g_autoptr(GError) error = NULL;

    if (!vj_parse_size(text, out, &error)) {
        vj_cmd_usage_error(ctl->cmd, name, error->message);
        return false;
    }
    if (*out > INT64_MAX) {
        vj_cmd_usage_error(ctl->cmd, name, "larger than any file");
        return false;
    }
    return true;
}

/* Until the piece is full or the input ends; -1 after a message. */
static ssize_t read_piece(const VjCtl *ctl, char *dst)
{
    size_t used = 0;

    while (used < PIECE_BYTES) {
        ssize_t got = read(STDIN_FILENO, dst + used, PIECE_BYTES - used);

        if (got == 0) {
            break;
        }
        if (got < 0 && errno != EINTR) {
            vj_cmd_fail_errno(ctl->cmd, "standard input", errno);
            return -1;
        }
        used += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)used;
}

/* A piece of at most PIECE_BYTES is whole or not at all. */
static bool put_piece(Edit *e, const char *src, size_t len, bool is_last)
{
    uint64_t old_len = is_last ? e->old_left : MIN(e->old_left, len);

    if (rpwrite(e->fd, src, len, (off_t)e->offset, old_len) != (ssize_t)len) {
        int why = errno;

        vj_cmd_fail_errno(e->ctl->cmd, e->path, why);
        if (e->done > 0) {
            fprintf(stderr,
                    "%s: %s: the first %" G_GUINT64_FORMAT " bytes are in the file\n",
                    e->ctl->cmd->name, e->path, e->done);
        }
        return false;
    }
    e->offset += len;
    e->old_left -= old_len;
    e->done += len;
    return true;
}

static void show_progress(const Edit *e, bool is_last)
{
    if (!isatty(STDERR_FILENO) || e->done < PROGRESS_BYTES) {
        return;
    }
    if (is_last) {
        fprintf(stderr, "\r%40s\r", "");
    } else if (e->done % PROGRESS_BYTES == 0) {
        fprintf(stderr, "\r%" G_GUINT64_FORMAT " MiB ", e->done / VJ_MIB);
    }
}

static bool put_input(Edit *e)
{
    g_autofree char *now = g_malloc(PIECE_BYTES);
    g_autofree char *next = g_malloc(PIECE_BYTES);
    ssize_t len = read_piece(e->ctl, now);

    while (len >= 0) {
        bool is_full = (size_t)len == PIECE_BYTES;
        ssize_t next_len = is_full ? read_piece(e->ctl, next) : 0;
        char *swap = now;

        if (next_len < 0 || !put_piece(e, now, (size_t)len, next_len == 0)) {
            return false;
        }
        show_progress(e, next_len == 0);
        if (next_len == 0) {
            return true;
        }
        now = next;
        next = swap;
        len = next_len;
    }
    return false;
}

/* @length is NULL where nothing is replaced; @from_input: else there is no new data. */
static int edit(const VjCtl *ctl, const char *length, bool from_input)
{
    Edit e = {.ctl = ctl, .path = ctl->operands[0]};
    VJ_AUTO_FD fd = -1;
    bool ok;

    if (!parse_position(ctl, "OFFSET", ctl->operands[1], &e.offset) ||
        (length != NULL && !parse_position(ctl, "LENGTH", length, &e.old_left))) {
        return VJ_EXIT_USAGE;
    }
    fd = vj_ctl_open(ctl, e.path, O_WRONLY);
    if (fd < 0) {
        return EXIT_FAILURE;
    }
    e.fd = fd;
    ok = from_input ? put_input(&e) : put_piece(&e, NULL, 0, true);
    if (close(vj_fd_steal(&fd)) != 0 && ok) {
        return vj_cmd_fail_errno(ctl->cmd, e.path, errno);
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

int vj_ctl_insert(const VjCtl *ctl)
{
    return edit(ctl, NULL, true);
}

int vj_ctl_delete(const VjCtl *ctl)
{
    return edit(ctl, ctl->operands[2], false);
}

int vj_ctl_replace(const VjCtl *ctl)
{
    return edit(ctl, ctl->operands[2], true);
}
