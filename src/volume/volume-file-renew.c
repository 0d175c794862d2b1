/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * volume-file-renew.c - a volume file, or varjfs.conf, says what the volume says
 *
 * While the volume is mounted its list of nodes may change; the daemon writes it into the
 * metadata, and its sandbox keeps it from the file.  So another process renews that: it
 * writes beside it and renames.
 *
 * The daemon has locked the file that it was given.  That one keeps a second name, so
 * that umount and the next mount find the lock (source-lock.c).
 */
#include "volume/volume-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEW_SUFFIX ".new"

typedef struct Renewal {
    char *dir, *name, *new_name, *replaced;
    bool is_file; /* else in a directory, which is what is locked */
    int dir_fd, old_fd, new_fd;
} Renewal;

static void renewal_clear(Renewal *w)
{
    g_free(w->dir);
    g_free(w->name);
    g_free(w->new_name);
    g_free(w->replaced);
    vj_fd_close(&w->dir_fd);
    vj_fd_close(&w->old_fd);
    vj_fd_close(&w->new_fd);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Renewal, renewal_clear)

static bool renewal_open(Renewal *w, const char *source, GError **error)
{
    char *real = realpath(source, NULL);
    struct stat st;

    if (real == NULL || stat(real, &st) < 0) {
        int failed = errno;

        free(real);
        return vj_error_set_errno(error, failed, "%s", source);
    }
    w->is_file = !S_ISDIR(st.st_mode);
    w->dir = w->is_file ? g_path_get_dirname(real) : g_strdup(real);
    w->name = w->is_file ? g_path_get_basename(real) : g_strdup(VJ_SUPERBLOCK_NAME);
    w->new_name = g_strconcat(w->name, NEW_SUFFIX, NULL);
    w->replaced = g_strconcat(w->name, VJ_REPLACED_SUFFIX, NULL);
    free(real);
    w->dir_fd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->dir_fd < 0) {
        return vj_error_set_errno(error, errno, "%s", w->dir);
    }
    w->old_fd = openat(w->dir_fd, w->name,
                       O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    return w->old_fd >= 0 || vj_error_set_errno(error, errno, "%s/%s", w->dir, w->name);
}

/* What a user has mounted says nothing about a file of another one. */
static bool is_owned_by(const Renewal *w, uid_t owner, GError **error)
{
    struct stat st;

    if (fstat(w->old_fd, &st) < 0) {
        return vj_error_set_errno(error, errno, "%s/%s", w->dir, w->name);
    }
    return owner == 0 || st.st_uid == owner ||
           vj_error_set(error, EPERM, "%s/%s is of another user than the mount", w->dir,
                        w->name);
}

/* *is_older: than @text. */
static bool compare(const Renewal *w, const char *text, bool *is_older, GError **error)
{
    g_autofree char *old = NULL;
    VjSuperblock before, now;
    size_t len;
    bool ok;

    *is_older = false;
    if (!vj_superblock_parse(text, strlen(text), &now, error)) {
        return vj_error_prefix(error, "what the mount says");
    }
    old = vj_volume_file_read(w->old_fd, &len, error);
    if (old == NULL || !vj_superblock_parse(old, len, &before, error)) {
        vj_superblock_clear(&now);
        return vj_error_prefix(error, "%s/%s", w->dir, w->name);
    }
    *is_older = before.sequence < now.sequence;
    ok = strcmp(before.uuid, now.uuid) != 0
             ? vj_error_set(error, EBADMSG, "%s/%s is of another volume", w->dir, w->name)
         : before.sequence > now.sequence
             ? vj_error_set(error, EEXIST, "%s/%s is newer than what the mount says",
                            w->dir, w->name)
             : true;
    vj_superblock_clear(&before);
    vj_superblock_clear(&now);
    return ok;
}

/* -errno */
static int write_new(const Renewal *w, const char *text)
{
    struct stat st;
    int r;

    if (fstat(w->old_fd, &st) < 0 || ftruncate(w->new_fd, 0) < 0) {
        return -errno;
    }
    r = vj_fd_write_all(w->new_fd, text, strlen(text));
    if (r < 0) {
        return r;
    }
    if ((st.st_uid != geteuid() || st.st_gid != getegid()) &&
        fchown(w->new_fd, st.st_uid, st.st_gid) < 0) {
        return -errno;
    }
    return fchmod(w->new_fd, st.st_mode & 07777) < 0 || fsync(w->new_fd) < 0 ? -errno : 0;
}

static bool is_locked(int fd)
{
    bool locked = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;

    if (!locked) {
        (void)flock(fd, LOCK_UN);
    }
    return locked;
}

/* A daemon that has locked it keeps a name for it; one that has an earlier one has that
 * already.  -errno. */
static int keep_locked(const Renewal *w)
{
    VJ_AUTO_FD fd = -1;

    if (!w->is_file || !is_locked(w->old_fd)) {
        return 0;
    }
    fd = openat(w->dir_fd, w->replaced,
                O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && is_locked(fd)) {
        return 0;
    }
    if ((fd >= 0 && unlinkat(w->dir_fd, w->replaced, 0) < 0) ||
        linkat(w->dir_fd, w->name, w->dir_fd, w->replaced, 0) < 0) {
        return -errno;
    }
    return 0;
}

static bool renew_it(Renewal *w, const char *text, GError **error)
{
    int r;

    w->new_fd = vj_volume_file_open_beside(w->dir_fd, w->dir, w->new_name, error);
    if (w->new_fd < 0) {
        return false;
    }
    r = write_new(w, text);
    if (r == 0) {
        r = keep_locked(w);
    }
    if (r == 0 && renameat(w->dir_fd, w->new_name, w->dir_fd, w->name) < 0) {
        r = -errno;
    }
    if (r < 0) {
        (void)unlinkat(w->dir_fd, w->new_name, 0);
    } else if (fsync(w->dir_fd) < 0) {
        r = -errno;
    }
    return r == 0 || vj_error_set_errno(error, -r, "%s/%s", w->dir, w->name);
}

bool vj_volume_renew_conf(const char *source, const char *text, uid_t owner, bool renew,
                          VjConfState *out, GError **error)
{
    g_auto(Renewal) w = {.dir_fd = -1, .old_fd = -1, .new_fd = -1};
    bool is_older;

    *out = VJ_CONF_SAME;
    if (!renewal_open(&w, source, error) || !is_owned_by(&w, owner, error) ||
        !compare(&w, text, &is_older, error)) {
        return false;
    }
    if (!is_older) {
        return true;
    }
    *out = VJ_CONF_OLDER;
    if (renew && !renew_it(&w, text, error)) {
        return false;
    }
    *out = renew ? VJ_CONF_RENEWED : VJ_CONF_OLDER;
    return true;
}
