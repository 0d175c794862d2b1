/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * in-use.c - is what the last user of SOURCE left whole?
 *
 * An empty file in SOURCE says whether its last user closed it in order: it is called
 * varjfs.inuse from before the first change until after the last one is durable, and
 * varjfs.clean otherwise.  Only its name changes, which takes no space: a full device can
 * be mounted.  Whoever finds the first name while he holds the lock comes after a crash,
 * and has the metadata examined before the engine, which believes what it reads, opens
 * them.
 */
#include "volume/volume-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files up to this size are examined at each mount: it takes about 0.1 s. */
#define EXAMINE_ALWAYS_BYTES (256 * VJ_MIB)

/* ---- the mark ---------------------------------------------------------------------- */

static int make_mark(int dir_fd)
{
    VJ_AUTO_FD fd = -1;

    if (renameat(dir_fd, VJ_CLEAN_NAME, dir_fd, VJ_IN_USE_NAME) == 0) {
        return 0;
    }
    if (errno != ENOENT) {
        return -errno;
    }
    fd =
        openat(dir_fd, VJ_IN_USE_NAME, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : 0;
}

bool vj_in_use_begin(VjVolume *v, int dir_fd, const char *source, GError **error)
{
    int r = make_mark(dir_fd);

    if (r == -ENOSPC || r == -EDQUOT) {
        vj_log_warn("%s/" VJ_IN_USE_NAME ": %s; after a crash nobody will know of it",
                    source, g_strerror(-r));
        return true;
    }
    if (r == 0 && fsync(dir_fd) != 0) {
        r = -errno;
    }
    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s/" VJ_IN_USE_NAME, source);
    }
    v->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    return v->dir_fd >= 0 || vj_error_set_errno(error, errno, "%s", source);
}

int vj_in_use_end(VjVolume *v)
{
    if (v->dir_fd < 0) {
        return 0;
    }
    if (renameat(v->dir_fd, VJ_IN_USE_NAME, v->dir_fd, VJ_CLEAN_NAME) != 0 ||
        (v->restored && unlinkat(v->dir_fd, VJ_RESTORING_NAME, 0) != 0 &&
         errno != ENOENT) ||
        fsync(v->dir_fd) != 0) {
        return -errno;
    }
    return 0;
}

bool vj_volume_is_clean(const char *source)
{
    VJ_AUTO_FD dir_fd = vj_source_open(source, NULL);
    VjSuperblock super;

    if (dir_fd < 0 || !vj_fd_has(dir_fd, VJ_CLEAN_NAME) ||
        vj_fd_has(dir_fd, VJ_IN_USE_NAME) || vj_fd_has(dir_fd, VJ_RESTORING_NAME) ||
        !vj_fd_has(dir_fd, "meta/data.mdb") ||
        !vj_volume_read_superblock(dir_fd, source, &super, NULL)) {
        return false;
    }
    vj_superblock_clear(&super);
    return true;
}

bool vj_in_use_check_restore(const VjVolumeOpen *how, int dir_fd, GError **error)
{
    return how->restoring || !vj_fd_has(dir_fd, VJ_RESTORING_NAME) ||
           vj_error_set(error, EBADMSG,
                        "%s: a restore of its metadata was cut off: begin it again with "
                        "fsck.varjfs --restore",
                        how->source);
}

/* ---- examining --------------------------------------------------------------------- */

typedef struct Flaws {
    const char *source;
    char *first; /* owned; NULL: none so far */
} Flaws;

static void note_flaw(void *opaque, const char *text)
{
    Flaws *f = opaque;

    vj_log_error("%s: the metadata are damaged: %s", f->source, text);
    if (f->first == NULL) {
        f->first = g_strdup(text);
    }
}

static bool is_small(int meta_fd)
{
    struct stat st;

    /* What is no such file is not large either. */
    return fstatat(meta_fd, "data.mdb", &st, AT_SYMLINK_NOFOLLOW) != 0 ||
           (uint64_t)st.st_size <= EXAMINE_ALWAYS_BYTES;
}

static bool is_missing(int meta_fd)
{
    return !vj_fd_has(meta_fd, "data.mdb");
}

static bool is_due(VjExamine when, int dir_fd, int meta_fd)
{
    return when == VJ_EXAMINE_ALWAYS ||
           (when == VJ_EXAMINE_AUTO &&
            (vj_fd_has(dir_fd, VJ_IN_USE_NAME) || is_small(meta_fd)));
}

bool vj_in_use_examine(const VjSuperblock *super, VjExamine when, int dir_fd,
                       const char *source, const VjMetaPlace *place, GError **error)
{
    Flaws flaws = {.source = source};
    g_autofree char *first = NULL;
    VjMetaExam exam;
    int r;

    /* What is missing is told whether anybody wants to examine it or not. */
    if (!is_due(when, dir_fd, place->dir_fd) && !is_missing(place->dir_fd)) {
        return true;
    }
    r = vj_meta_examine(super->meta, place, -1, note_flaw, &flaws, &exam);
    first = flaws.first;
    if (r == -EOPNOTSUPP) {
        return true;
    }
    if (r == -ENOENT) {
        return vj_error_set(error, EBADMSG,
                            "%s/meta/data.mdb is missing: fsck.varjfs --restore puts the "
                            "newest checkpoint in its place",
                            source);
    }
    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s/meta: the metadata cannot be examined",
                                  source);
    }
    if (exam.flaws + exam.log_flaws > 0) {
        return vj_error_set(error, EBADMSG,
                            "%s: the metadata are damaged (%s); see fsck.varjfs(8)",
                            source, first);
    }
    return true;
}
