/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * checkpoint-file.c - the files in SOURCE/checkpoints
 *
 * Their names are the times at which they were made, so that they sort by age; what else
 * lies there is not looked at.  The record at the end says whose they are, and the
 * checksum of all.
 */
#include "volume/checkpoint-private.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* More files than this in the directory are not ours. */
#define LIST_MOST 1000u

static void set_le64(uint8_t *to, uint64_t n)
{
    n = GUINT64_TO_LE(n);
    memcpy(to, &n, sizeof n);
}

static void set_le32(uint8_t *to, uint32_t n)
{
    n = GUINT32_TO_LE(n);
    memcpy(to, &n, sizeof n);
}

void vj_checkpoint_encode(const VjCheckpointEnd *end, VjCheckpointDisk *out)
{
    g_assert(end->conf_bytes > 0);
    memset(out, 0, sizeof *out);
    memcpy(out->magic, VJ_CHECKPOINT_MAGIC, sizeof out->magic);
    set_le32(out->version, VJ_CHECKPOINT_VERSION);
    set_le32(out->conf_bytes, end->conf_bytes);
    memcpy(out->uuid, end->uuid, sizeof out->uuid);
    set_le64(out->made_s, (uint64_t)end->made_s);
    set_le64(out->commit, end->commit);
    set_le64(out->image_bytes, end->image_bytes);
    set_le64(out->image_checksum, end->image_checksum);
    set_le64(out->checksum, vj_checksum64(out, offsetof(VjCheckpointDisk, checksum)));
}

int vj_checkpoint_decode(const VjCheckpointDisk *d, VjCheckpointEnd *out)
{
    uint32_t version = vj_le32_get(d->version), conf_bytes = vj_le32_get(d->conf_bytes);

    if (memcmp(d->magic, VJ_CHECKPOINT_MAGIC, sizeof d->magic) != 0 ||
        vj_le64_get(d->checksum) !=
            vj_checksum64(d, offsetof(VjCheckpointDisk, checksum)) ||
        version != VJ_CHECKPOINT_VERSION || conf_bytes == 0 ||
        conf_bytes > VJ_SUPERBLOCK_MAX) {
        return -EBADMSG;
    }
    out->conf_bytes = conf_bytes;
    memcpy(out->uuid, d->uuid, sizeof out->uuid);
    out->made_s = (int64_t)vj_le64_get(d->made_s);
    out->commit = vj_le64_get(d->commit);
    out->image_bytes = vj_le64_get(d->image_bytes);
    out->image_checksum = vj_le64_get(d->image_checksum);
    return 0;
}

int vj_checkpoint_sum(int fd, uint64_t bytes, uint64_t *out)
{
    enum { BEFORE = 8 };
    g_autofree uint8_t *piece = g_try_malloc(BEFORE + VJ_CHECKPOINT_PIECE_BYTES);
    int r = piece == NULL ? -ENOMEM : 0;

    *out = 0;
    for (uint64_t at = 0; r == 0 && at < bytes; at += VJ_CHECKPOINT_PIECE_BYTES) {
        size_t len = (size_t)MIN(VJ_CHECKPOINT_PIECE_BYTES, bytes - at);

        set_le64(piece, *out);
        r = vj_fd_pread_all(fd, piece + BEFORE, len, at);
        *out = vj_checksum64(piece, BEFORE + len);
    }
    return r;
}

int vj_checkpoint_read_end(int fd, VjCheckpointEnd *out)
{
    VjCheckpointDisk d;
    struct stat st;
    uint64_t before;
    int r;

    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof d) {
        return -EBADMSG;
    }
    before = (uint64_t)st.st_size - sizeof d;
    r = vj_fd_pread_all(fd, &d, sizeof d, before);
    r = r < 0 ? r : vj_checkpoint_decode(&d, out);
    return r == 0 && (out->conf_bytes > before ||
                      out->image_bytes != before - out->conf_bytes)
               ? -EBADMSG
               : r;
}

int vj_checkpoint_read_conf(int fd, const VjCheckpointEnd *end, char **text)
{
    g_autofree char *bytes = NULL;
    int r;

    *text = NULL;
    g_assert(end->conf_bytes > 0 && end->conf_bytes <= VJ_SUPERBLOCK_MAX);
    bytes = g_malloc0(end->conf_bytes + 1);
    r = vj_fd_pread_all(fd, bytes, end->conf_bytes, end->image_bytes);
    if (r == 0) {
        *text = g_steal_pointer(&bytes);
    }
    return r;
}

bool vj_checkpoint_open_whole(int dir, const char *name, const VjSuperblock *super,
                              int *out_fd, VjCheckpointEnd *out, GError **error)
{
    VJ_AUTO_FD fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    uint8_t uuid[16];
    uint64_t sum;
    int r = fd < 0 ? -errno : vj_checkpoint_read_end(fd, out);

    if (r == 0) {
        r = vj_checkpoint_sum(fd, out->image_bytes, &sum);
    }
    if (r < 0) {
        return vj_error_set_errno(error, -r, "checkpoint %s", name);
    }
    if (sum != out->image_checksum) {
        return vj_error_set(error, EBADMSG, "checkpoint %s: it is damaged", name);
    }
    if (super != NULL && (!vj_uuid_parse(super->uuid, uuid) ||
                          memcmp(uuid, out->uuid, sizeof uuid) != 0)) {
        return vj_error_set(error, EBADMSG, "checkpoint %s: it is of another volume",
                            name);
    }
    *out_fd = vj_fd_steal(&fd);
    return true;
}

int vj_checkpoint_open_dir(const VjPlace *p, bool create)
{
    int fd;

    if (p->dir_fd < 0) {
        return -ENOENT;
    }
    if (create && mkdirat(p->dir_fd, VJ_CHECKPOINTS_NAME, 0700) != 0 && errno != EEXIST) {
        return -errno;
    }
    fd = openat(p->dir_fd, VJ_CHECKPOINTS_NAME,
                O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

/* "20261120T201903Z" */
static bool is_name(const char *name)
{
    return strlen(name) == VJ_CHECKPOINT_NAME_BYTES - 1 &&
           strspn(name, "0123456789") == 8 && name[8] == 'T' &&
           strspn(name + 9, "0123456789") == 6 && name[15] == 'Z';
}

static void look_at(int dir, const char *name, GArray *found)
{
    VJ_AUTO_FD fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    VjCheckpointEnd end;
    VjCheckpoint c = {.made_s = 0};
    struct stat st;

    if (fd < 0 || vj_checkpoint_read_end(fd, &end) < 0 || fstat(fd, &st) != 0) {
        return;
    }
    g_strlcpy(c.name, name, sizeof c.name);
    c.made_s = end.made_s;
    c.commit = end.commit;
    c.stored_bytes = (uint64_t)st.st_blocks * 512;
    g_array_append_val(found, c);
}

static gint newest_first(gconstpointer a, gconstpointer b)
{
    return strcmp(((const VjCheckpoint *)b)->name, ((const VjCheckpoint *)a)->name);
}

int vj_checkpoint_list(int checkpoints_fd, GArray **out)
{
    int copy = openat(checkpoints_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;
    int r;

    *out = NULL;
    if (dir == NULL) {
        r = -errno;
        vj_fd_close(&copy);
        return r;
    }
    *out = g_array_new(FALSE, FALSE, sizeof(VjCheckpoint));
    while ((errno = 0, entry = readdir(dir)) != NULL && (*out)->len < LIST_MOST) {
        if (is_name(entry->d_name)) {
            look_at(checkpoints_fd, entry->d_name, *out);
        }
    }
    closedir(dir);
    g_array_sort(*out, newest_first);
    return 0;
}
