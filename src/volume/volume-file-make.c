/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * volume-file-make.c - a volume file for a new volume
 *
 * mkfs writes it beside its name, as NAME.making, before anything is made elsewhere, and
 * renames it last.  What was made elsewhere by a mkfs that failed or was killed belongs
 * to a volume that nobody has; its uuid stands in the file that is left, and the next
 * mkfs of that name takes it again: so it finds the same places to be its own.
 */
#include "volume/volume-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAKING_SUFFIX ".making"
/* Each volume file begins with it, as each varjfs.conf that mkfs writes. */
#define FIRST_WORDS "# A varjfs volume"

void vj_volume_file_make_clear(VjVolumeFileMake *m)
{
    g_clear_pointer(&m->dir, g_free);
    g_clear_pointer(&m->name, g_free);
    g_clear_pointer(&m->making, g_free);
    g_clear_pointer(&m->uuid, g_free);
    vj_fd_close(&m->dir_fd);
    vj_fd_close(&m->old_fd);
    vj_fd_close(&m->making_fd);
}

/* Where the file is, or is to be; through a link to one that is there. */
static bool open_directory(VjVolumeFileMake *m, const char *source, GError **error)
{
    char *real = realpath(source, NULL);
    const char *path = real != NULL ? real : source;

    m->dir = g_path_get_dirname(path);
    m->name = g_path_get_basename(path);
    m->making = g_strconcat(m->name, MAKING_SUFFIX, NULL);
    free(real);
    m->dir_fd = open(m->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return m->dir_fd >= 0 || vj_error_set_errno(error, errno, "%s", m->dir);
}

/* What is there is a volume file, which may go, and no process uses it. */
static bool may_replace(VjVolumeFileMake *m, const char *source, bool force,
                        GError **error)
{
    g_autofree char *text = NULL;
    size_t len;

    m->old_fd = openat(m->dir_fd, m->name,
                       O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (m->old_fd < 0) {
        return errno == ENOENT || vj_error_set_errno(error, errno, "%s", source);
    }
    text = vj_volume_file_read(m->old_fd, &len, NULL);
    if (text == NULL || !g_str_has_prefix(text, FIRST_WORDS)) {
        return vj_error_set(error, EEXIST, "%s is there, and is no volume file", source);
    }
    if (!force) {
        return vj_error_set(error, EEXIST,
                            "%s is a volume file already; -f replaces it, and destroys "
                            "the volume that has the places which are to be taken",
                            source);
    }
    /* Where files cannot be locked, it will do without (source-lock.c). */
    return vj_fd_lock(m->old_fd, NULL, 0) != -EWOULDBLOCK ||
           vj_error_set(error, EBUSY, "%s is in use by another varjfs process", source);
}

/* Of a mkfs of the same name that did not come to its end. */
static char *uuid_of_rest(int fd)
{
    g_autofree char *text = NULL;
    VjSuperblock super;
    size_t len;
    char *uuid;

    text = vj_volume_file_read(fd, &len, NULL);
    if (text == NULL || !vj_superblock_parse(text, len, &super, NULL)) {
        return NULL;
    }
    uuid = g_steal_pointer(&super.uuid);
    vj_superblock_clear(&super);
    return uuid;
}

static bool open_making(VjVolumeFileMake *m, GError **error)
{
    m->making_fd = vj_volume_file_open_beside(m->dir_fd, m->dir, m->making, error);
    if (m->making_fd < 0) {
        return false;
    }
    m->uuid = uuid_of_rest(m->making_fd);
    return true;
}

bool vj_volume_file_make_begin(VjVolumeFileMake *m, const char *source, bool force,
                               GError **error)
{
    return open_directory(m, source, error) && may_replace(m, source, force, error) &&
           open_making(m, error);
}

bool vj_volume_file_make_text(VjVolumeFileMake *m, const char *text, GError **error)
{
    const mode_t mode = S_IRUSR | S_IWUSR;
    int r = ftruncate(m->making_fd, 0) < 0 || lseek(m->making_fd, 0, SEEK_SET) < 0 ||
                    fchmod(m->making_fd, mode) < 0
                ? -errno
                : vj_fd_write_all(m->making_fd, text, strlen(text));

    if (r == 0 && (fsync(m->making_fd) < 0 || fsync(m->dir_fd) < 0)) {
        r = -errno;
    }
    return r == 0 || vj_error_set_errno(error, -r, "%s/%s", m->dir, m->making);
}

/* One that came meanwhile stays. */
static int give_name(const VjVolumeFileMake *m)
{
    if (m->old_fd >= 0) {
        return renameat(m->dir_fd, m->making, m->dir_fd, m->name);
    }
    if (renameat2(m->dir_fd, m->making, m->dir_fd, m->name, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    return errno == EINVAL && !vj_fd_has(m->dir_fd, m->name)
               ? renameat(m->dir_fd, m->making, m->dir_fd, m->name)
               : -1;
}

bool vj_volume_file_make_end(VjVolumeFileMake *m, GError **error)
{
    int failed;

    if (give_name(m) < 0) {
        return vj_error_set_errno(error, errno, "%s/%s", m->dir, m->name);
    }
    if (fsync(m->dir_fd) == 0) {
        return true;
    }
    failed = errno;
    (void)renameat(m->dir_fd, m->name, m->dir_fd, m->making);
    return vj_error_set_errno(error, failed, "%s/%s", m->dir, m->name);
}

void vj_volume_file_make_undo(VjVolumeFileMake *m, bool is_begun)
{
    if (is_begun) {
        vj_log_warn("%s/%s stays: with it the next mkfs.varjfs of that name takes again "
                    "what this one may have taken elsewhere",
                    m->dir, m->making);
    } else if (m->making_fd >= 0 && unlinkat(m->dir_fd, m->making, 0) < 0) {
        vj_log_warn("%s/%s cannot be removed: %s", m->dir, m->making, g_strerror(errno));
    }
}
