/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* block-super.c - the device or file of the driver block, and its two superblocks */
#include "store/block-private.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* In SOURCE/objects, where no device is named. */
#define FILE_NAME "blocks"

/* Who looks what there is on a device that was written just now (udev) has it locked
 * meanwhile. */
#define LOOKED_AT_US ((int64_t)5 * G_USEC_PER_SEC)

/* ---- the device -------------------------------------------------------------------- */

static int open_flags(const VjStorePlace *place)
{
    return (place->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC;
}

/* The file in SOURCE, which is nobody else's. */
static bool open_own(VjBlockStore *b, const VjStorePlace *place, GError **error)
{
    b->fd = openat(place->dir_fd, FILE_NAME,
                   open_flags(place) | O_NOFOLLOW | O_NONBLOCK |
                       (place->create ? O_CREAT | O_EXCL : 0),
                   0600);
    return b->fd >= 0 || vj_error_set_errno(error, errno, "%s", b->path);
}

static bool is_usable(const struct stat *st, const char *path, GError **error)
{
    return S_ISREG(st->st_mode) || S_ISBLK(st->st_mode) ||
           vj_error_set(error, EINVAL, "%s is neither a device nor a file", path);
}

/* A device is ours alone: not mounted, and no part of another one (O_EXCL, which means
 * nothing for a file).  Nothing is made: what is misspelt is no file of /dev; and nothing
 * is opened that might wait or be set going. */
static bool open_named(VjBlockStore *b, const VjStorePlace *place, GError **error)
{
    struct stat st;

    if (stat(b->path, &st) != 0) {
        return vj_error_set_errno(error, errno, "%s", b->path);
    }
    if (!is_usable(&st, b->path, error)) {
        return false;
    }
    b->fd = open(b->path, open_flags(place) | O_NOCTTY | (place->read_only ? 0 : O_EXCL));
    return b->fd >= 0 || vj_error_set_errno(error, errno, "%s", b->path);
}

static bool lock_named(const VjBlockStore *b, bool read_only, GError **error)
{
    int64_t until_us = b->is_file ? 0 : vj_clock_mono_us() + LOOKED_AT_US;
    int rc = !read_only                             ? vj_fd_lock(b->fd, NULL, until_us)
             : flock(b->fd, LOCK_SH | LOCK_NB) != 0 ? -errno
                                                    : 0;

    return rc == 0 ||
           (rc == -EWOULDBLOCK
                ? vj_error_set(error, EBUSY, "%s is in use by another program", b->path)
                : vj_error_set_errno(error, -rc, "%s: its lock", b->path));
}

static bool look_at(VjBlockStore *b, const char *direct, bool is_named,
                    const VjStorePlace *place, GError **error)
{
    struct stat st;
    int flags;

    if (fstat(b->fd, &st) != 0) {
        return vj_error_set_errno(error, errno, "%s", b->path);
    }
    if (!is_usable(&st, b->path, error)) {
        return false;
    }
    b->is_file = S_ISREG(st.st_mode);
    b->is_direct = strcmp(direct, "yes") == 0 ||
                   (strcmp(direct, "auto") == 0 && S_ISBLK(st.st_mode));
    flags = fcntl(b->fd, F_GETFL);
    if (b->is_direct && (flags < 0 || fcntl(b->fd, F_SETFL, flags | O_DIRECT) != 0)) {
        vj_log_warn(
            "store block %s: what is below cannot be written past the page cache: "
            "%s",
            b->path, g_strerror(errno));
    }
    return !is_named || lock_named(b, place->read_only, error);
}

bool vj_block_device_open(VjBlockStore *b, const VjStorePlace *place, const VjOpts *opts,
                          GError **error)
{
    const char *path = vj_opts_string(opts, "path");
    const char *direct = vj_opts_string(opts, "direct");

    if (path != NULL && path[0] != '/') {
        return vj_error_set(error, EINVAL, "%s: the device's name does not begin with /",
                            path);
    }
    b->is_named = path != NULL;
    b->path =
        path != NULL ? g_strdup(path) : g_build_filename(place->path, FILE_NAME, NULL);
    return (path != NULL ? open_named(b, place, error) : open_own(b, place, error)) &&
           look_at(b, direct, path != NULL, place, error);
}

static off_t end_of(const VjBlockStore *b)
{
    return lseek(b->fd, 0, SEEK_END);
}

int vj_block_count_blocks(const VjBlockStore *b, uint64_t *out)
{
    off_t end = end_of(b);

    if (end < 0) {
        return -errno;
    }
    *out = MIN((uint64_t)end / VJ_BLOCK_BYTES, VJ_BLOCK_COUNT_MAX);
    return 0;
}

/* ---- superblocks ------------------------------------------------------------------- */

static int write_block(const VjBlockStore *b, const VjBuf *block, uint64_t number)
{
    struct iovec iov = {.iov_base = block->data, .iov_len = VJ_BLOCK_BYTES};
    int rc = vj_fd_pwritev_all(b->fd, &iov, 1, number * VJ_BLOCK_BYTES);

    return rc == 0 && fdatasync(b->fd) != 0 ? -errno : rc;
}

/* One after the other, each durable before the next: one of them is whole. */
static int write_both(const VjBlockStore *b, const VjBlockSuper *super)
{
    g_autoptr(VjBuf) block = vj_buf_new(VJ_BLOCK_BYTES);
    int rc;

    if (block == NULL) {
        return -ENOMEM;
    }
    vj_block_super_encode(super, block->data);
    rc = write_block(b, block, VJ_BLOCK_SECOND_SUPER);
    return rc < 0 ? rc : write_block(b, block, VJ_BLOCK_FIRST_SUPER);
}

static bool write_supers(const VjBlockStore *b, const VjBlockSuper *super, GError **error)
{
    int rc = write_both(b, super);

    return rc == 0 || vj_error_set_errno(error, -rc, "%s", b->path);
}

int vj_block_super_claim(VjBlockStore *b, uint64_t mount)
{
    VjBlockSuper super;
    int rc;

    vj_mutex_lock(&b->lock);
    super = b->super;
    vj_mutex_unlock(&b->lock);
    super.sequence++;
    super.mount = mount;
    rc = write_both(b, &super);
    if (rc == 0) {
        vj_mutex_lock(&b->lock);
        b->super = super;
        vj_mutex_unlock(&b->lock);
    }
    return rc;
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

uint64_t vj_block_data_from(const VjBlockStore *b, uint64_t from, uint64_t end)
{
    off_t at = lseek(b->fd, (off_t)from, SEEK_DATA);

    if (at < 0) {
        return errno == ENXIO ? end : from; /* it has no holes that are known */
    }
    return MIN((uint64_t)at / VJ_BLOCK_BYTES * VJ_BLOCK_BYTES, end);
}

/* Behind the head of a file.  @buf: of the size of the head. */
static int is_zero_behind(const VjBlockStore *b, VjBuf *buf, uint64_t end, bool *out)
{
    uint64_t at = buf->cap;
    int rc = 0;

    *out = true;
    while (rc == 0 && *out && at < end && (at = vj_block_data_from(b, at, end)) < end) {
        size_t len = (size_t)MIN(buf->cap, end - at);

        rc = vj_fd_pread_all(b->fd, buf->data, len, at);
        *out = rc == 0 && is_zero(buf->data, len);
        at += len;
    }
    return rc;
}

/* Nobody has written anything into the head of the device, or into the file, whose length
 * is a number of blocks. */
static bool check_is_empty(const VjBlockStore *b, uint64_t block_count, GError **error)
{
    size_t bytes = (size_t)MIN(block_count, VJ_BLOCK_HEAD_BLOCKS) * VJ_BLOCK_BYTES;
    g_autoptr(VjBuf) head = vj_buf_new(VJ_BLOCK_HEAD_BLOCKS * VJ_BLOCK_BYTES);
    bool is_empty = true;
    VjBlockSuper super;
    int rc;

    if (head == NULL) {
        return vj_error_set_errno(error, ENOMEM, "%s", b->path);
    }
    rc = bytes > 0 ? vj_fd_pread_all(b->fd, head->data, bytes, 0) : 0;
    if (rc < 0) {
        return vj_error_set_errno(error, -rc, "%s", b->path);
    }
    if (bytes > 0 && vj_block_super_decode(head->data, &super) == 0) {
        return vj_error_set(error, EEXIST, "%s holds objects of the volume %s", b->path,
                            super.volume);
    }
    is_empty = (!b->is_file || end_of(b) == (off_t)(block_count * VJ_BLOCK_BYTES)) &&
               (bytes == 0 || is_zero(head->data, bytes));
    if (is_empty && b->is_file) {
        rc = is_zero_behind(b, head, block_count * VJ_BLOCK_BYTES, &is_empty);
    }
    if (rc < 0) {
        return vj_error_set_errno(error, -rc, "%s", b->path);
    }
    return is_empty || vj_error_set(error, EEXIST, "%s is not empty", b->path);
}

/* Of a device its size, of a file what it may grow to. */
static bool find_size(const VjBlockStore *b, uint64_t block_count, uint64_t *most,
                      GError **error)
{
    *most = b->most_bytes > 0 ? b->most_bytes / VJ_BLOCK_BYTES
            : b->is_file      ? VJ_BLOCK_COUNT_MAX
                              : block_count;
    if (!b->is_file && *most > block_count) {
        return vj_error_set(error, EINVAL, "%s has fewer bytes than size= says", b->path);
    }
    return *most >= VJ_BLOCK_COUNT_MIN ||
           vj_error_set(error, EINVAL, "%s: %" G_GUINT64_FORMAT " bytes at least",
                        b->path, VJ_BLOCK_COUNT_MIN * VJ_BLOCK_BYTES);
}

/* Nothing of what was there is left in the head of it, nor behind that in a file. */
static bool clear(const VjBlockStore *b, GError **error)
{
    g_autoptr(VjBuf) head = vj_buf_new(VJ_BLOCK_HEAD_BLOCKS * VJ_BLOCK_BYTES);
    struct iovec iov = {.iov_len = VJ_BLOCK_HEAD_BLOCKS * VJ_BLOCK_BYTES};
    int rc;

    if (head == NULL) {
        return vj_error_set_errno(error, ENOMEM, "%s", b->path);
    }
    if (b->is_file && ftruncate(b->fd, 0) != 0) {
        return vj_error_set_errno(error, errno, "%s", b->path);
    }
    memset(head->data, 0, iov.iov_len);
    iov.iov_base = head->data;
    rc = vj_fd_pwritev_all(b->fd, &iov, 1, 0);
    return rc == 0 || vj_error_set_errno(error, -rc, "%s", b->path);
}

bool vj_block_super_make(VjBlockStore *b, const VjStorePlace *place, GError **error)
{
    VjBlockSuper super = {.sequence = 1};
    uint64_t block_count = 0;
    int rc = vj_block_count_blocks(b, &block_count);

    if (rc < 0) {
        return vj_error_set_errno(error, -rc, "%s", b->path);
    }
    if (!find_size(b, block_count, &super.block_count, error) ||
        (!place->destroy && !check_is_empty(b, block_count, error)) || !clear(b, error)) {
        return false;
    }
    if (place->volume != NULL) {
        g_strlcpy(super.volume, place->volume, sizeof super.volume);
    }
    b->super = super;
    if (!write_supers(b, &super, error)) {
        return false;
    }
    return place->dir_fd < 0 || fsync(place->dir_fd) == 0 ||
           vj_error_set_errno(error, errno, "%s", place->path);
}

static int read_super(const VjBlockStore *b, uint64_t number, VjBlockSuper *out)
{
    g_autoptr(VjBuf) block = vj_buf_new(VJ_BLOCK_BYTES);
    int rc;

    if (block == NULL) {
        return -ENOMEM;
    }
    rc = vj_fd_pread_all(b->fd, block->data, VJ_BLOCK_BYTES, number * VJ_BLOCK_BYTES);
    return rc < 0 ? rc : vj_block_super_decode(block->data, out);
}

/* The newer one of those that can be read; *mend: the other one is not the same. */
static bool choose(VjBlockStore *b, bool *mend, GError **error)
{
    VjBlockSuper first, second;
    int first_rc = read_super(b, VJ_BLOCK_FIRST_SUPER, &first);
    int second_rc = read_super(b, VJ_BLOCK_SECOND_SUPER, &second);

    if (first_rc < 0 && second_rc < 0) {
        int rc = first_rc == -ENODATA ? second_rc : first_rc;

        return rc == -ENODATA || rc == -EBADMSG
                   ? vj_error_set(error, EBADMSG, "%s: %s", b->path,
                                  rc == -ENODATA ? "no store of this driver"
                                                 : "both superblocks are damaged")
                   : vj_error_set_errno(error, -rc, "%s: its superblock", b->path);
    }
    b->super = first_rc < 0                       ? second
               : second_rc < 0                    ? first
               : second.sequence > first.sequence ? second
                                                  : first;
    *mend = first_rc < 0 || second_rc < 0 || first.sequence != second.sequence;
    return true;
}

int vj_block_super_grow(VjBlockStore *b, uint64_t *gained)
{
    uint64_t block_count;
    VjBlockSuper super;
    int rc = vj_block_count_blocks(b, &block_count);

    *gained = 0;
    if (rc < 0 || b->is_file) {
        return rc;
    }
    vj_mutex_lock(&b->lock);
    super = b->super;
    vj_mutex_unlock(&b->lock);
    if (b->most_bytes > 0) {
        block_count = MIN(b->most_bytes / VJ_BLOCK_BYTES, block_count);
    }
    if (block_count <= super.block_count) {
        return 0;
    }
    *gained = (block_count - super.block_count) * VJ_BLOCK_BYTES;
    super.block_count = block_count;
    super.sequence++;
    rc = write_both(b, &super);
    if (rc < 0) {
        return rc;
    }
    vj_log_info("store block %s: %" G_GUINT64_FORMAT
                " blocks of 4 KiB are used from now on, %" G_GUINT64_FORMAT
                " bytes more than before",
                b->path, block_count, *gained);
    vj_mutex_lock(&b->lock);
    b->super = super;
    vj_mutex_unlock(&b->lock);
    return 0;
}

bool vj_block_super_load(VjBlockStore *b, const VjStorePlace *place, GError **error)
{
    uint64_t block_count = 0, gained;
    bool mend = false;
    int rc;

    if (!choose(b, &mend, error)) {
        return false;
    }
    if (place->volume != NULL && strcmp(place->volume, b->super.volume) != 0) {
        return b->super.volume[0] == '\0'
                   ? vj_error_set(error, EBADMSG, "%s: its objects belong to no volume",
                                  b->path)
                   : vj_error_set(error, EBADMSG,
                                  "%s: its objects belong to the volume %s, not to %s",
                                  b->path, b->super.volume, place->volume);
    }
    rc = vj_block_count_blocks(b, &block_count);
    if (rc < 0) {
        return vj_error_set_errno(error, -rc, "%s", b->path);
    }
    if (!b->is_file && block_count < b->super.block_count) {
        return vj_error_set(error, EBADMSG,
                            "%s: the device is shorter than it was: %" G_GUINT64_FORMAT
                            " blocks of 4 KiB, not %" G_GUINT64_FORMAT,
                            b->path, block_count, b->super.block_count);
    }
    if (b->read_only) {
        return true;
    }
    if (mend) {
        vj_log_warn("store block %s: one of its superblocks is damaged or old, and is "
                    "written anew",
                    b->path);
        if (!write_supers(b, &b->super, error)) {
            return false;
        }
    }
    rc = vj_block_super_grow(b, &gained);
    return rc == 0 || vj_error_set_errno(error, -rc, "%s", b->path);
}
