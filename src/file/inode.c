/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * inode.c - inode records between memory and VJ_SPACE_INODE
 *
 * A record is checked before any of its values is used: checksum, key, ranges.  What is
 * read is written back in the same transaction, so fs and file never carry each other's
 * older values.
 */
#include "file/file-private.h"
#include "file/inode-format.h"

#include <sys/stat.h>

/* Cookies are offsets of the C library, which are signed. */
#define COOKIE_MAX ((uint64_t)INT64_MAX)
#define FIXED_BYTES offsetof(VjInodeDisk, checksum)
#define BYTES_MAX (sizeof(VjInodeDisk) + VJ_FILE_INLINE_REST_MAX)
#define NEXT_INO_KEY vj_slice(VJ_NEXT_INO_KEY, strlen(VJ_NEXT_INO_KEY))

VjSlice vj_ino_key(uint64_t ino, uint8_t bytes[VJ_INO_KEY_BYTES])
{
    vj_be64_set(bytes, ino);
    return vj_slice(bytes, VJ_INO_KEY_BYTES);
}

static bool nsec_is_sane(uint32_t nsec)
{
    return nsec < 1000000000u;
}

static struct timespec time_get(int64_t sec, uint32_t nsec)
{
    return (struct timespec){.tv_sec = (int64_t)GINT64_FROM_LE(sec),
                             .tv_nsec = (long)GUINT32_FROM_LE(nsec)};
}

/* Directories have a parent and cookies behind those of "." and ".."; others have
 * neither. */
static bool directory_is_sane(const VjInodeDisk *d)
{
    uint64_t parent = GUINT64_FROM_LE(d->parent),
             cookie = GUINT64_FROM_LE(d->next_cookie);

    if (!S_ISDIR(GUINT32_FROM_LE(d->mode))) {
        return parent == 0 && d->entry_count == 0 && cookie == 0;
    }
    return parent != 0 && parent < VJ_INO_MAX && cookie >= 3 && cookie <= COOKIE_MAX;
}

static bool content_is_sane(const VjInodeDisk *d)
{
    const VjMapRoot root = {.node = GUINT32_FROM_LE(d->root_node),
                            .height = d->height,
                            .bytes = GUINT64_FROM_LE(d->root_bytes),
                            .stored_bytes = GUINT64_FROM_LE(d->stored_bytes)};

    if (d->inline_rest_bytes > VJ_FILE_INLINE_REST_MAX ||
        (d->inline_rest_bytes > 0 && d->content != VJ_CONTENT_INLINE)) {
        return false;
    }
    if (d->content != VJ_CONTENT_MAP) {
        return root.node == 0 && root.height == 0 && root.bytes == 0;
    }
    return root.node != 0 && root.node < GUINT32_FROM_LE(d->root_next_node) &&
           root.bytes == GUINT64_FROM_LE(d->size) && vj_map_root_check(&root) == 0;
}

/* Known bits alone, and nothing is inherited that is not there. */
static bool flags_are_sane(uint32_t flags, uint32_t mode)
{
    const uint32_t set = flags & VJ_INODE_SETTINGS;

    if ((flags & VJ_INODE_PROTECTED) && !S_ISREG(mode) && !S_ISDIR(mode)) {
        return false;
    }
    return (flags & ~(set | VJ_INODE_INHERITED(set) | VJ_INODE_CHATTR)) == 0;
}

/* One that was not set says nothing. */
static bool safety_is_sane(const VjInodeDisk *d)
{
    static const uint8_t zeros[sizeof d->reserved];
    bool is_set = (GUINT16_FROM_LE(d->flags) & VJ_INODE_SAFETY) != 0;

    return d->safety <= (is_set ? VJ_SAFETY_STORAGE : VJ_SAFETY_NONE) &&
           memcmp(d->reserved, zeros, sizeof zeros) == 0;
}

static bool disk_is_sane(const VjInodeDisk *d, uint64_t ino)
{
    return GUINT32_FROM_LE(d->magic) == VJ_INODE_MAGIC &&
           GUINT64_FROM_LE(d->ino) == ino && ino != 0 && ino < VJ_INO_MAX &&
           d->content <= VJ_CONTENT_MAP &&
           flags_are_sane(GUINT16_FROM_LE(d->flags), GUINT32_FROM_LE(d->mode)) &&
           safety_is_sane(d) && GUINT64_FROM_LE(d->size) <= VJ_MAP_BYTES_MAX &&
           nsec_is_sane(GUINT32_FROM_LE(d->atime_nsec)) &&
           nsec_is_sane(GUINT32_FROM_LE(d->mtime_nsec)) &&
           nsec_is_sane(GUINT32_FROM_LE(d->ctime_nsec)) &&
           nsec_is_sane(GUINT32_FROM_LE(d->btime_nsec)) && directory_is_sane(d) &&
           content_is_sane(d);
}

int vj_inode_decode(VjSlice value, uint64_t ino, VjInode *out)
{
    const uint8_t *bytes = value.data;
    VjInodeDisk d;

    if (value.len < sizeof d || value.len > BYTES_MAX) {
        return -EBADMSG;
    }
    memcpy(&d, bytes, FIXED_BYTES);
    if (vj_checksum64(bytes, value.len - sizeof d.checksum) !=
            vj_le64_get(bytes + value.len - sizeof d.checksum) ||
        !disk_is_sane(&d, ino) || value.len != sizeof d + d.inline_rest_bytes) {
        return -EBADMSG;
    }
    *out = (VjInode){
        .ino = ino,
        .generation = GUINT64_FROM_LE(d.generation),
        .mode = GUINT32_FROM_LE(d.mode),
        .uid = GUINT32_FROM_LE(d.uid),
        .gid = GUINT32_FROM_LE(d.gid),
        .nlink = GUINT32_FROM_LE(d.nlink),
        .rdev = GUINT64_FROM_LE(d.rdev),
        .atime = time_get(d.atime_sec, d.atime_nsec),
        .mtime = time_get(d.mtime_sec, d.mtime_nsec),
        .ctime = time_get(d.ctime_sec, d.ctime_nsec),
        .btime = time_get(d.btime_sec, d.btime_nsec),
        .parent = GUINT64_FROM_LE(d.parent),
        .entry_count = GUINT64_FROM_LE(d.entry_count),
        .next_cookie = GUINT64_FROM_LE(d.next_cookie),
        .flags = GUINT16_FROM_LE(d.flags),
        .transform = {.codec = d.codec,
                      .param = d.param,
                      .level = d.level,
                      .mode = d.transform_mode,
                      .key_id = GUINT32_FROM_LE(d.key_id)},
        .object_min = GUINT32_FROM_LE(d.object_min),
        .object_avg = GUINT32_FROM_LE(d.object_avg),
        .object_max = GUINT32_FROM_LE(d.object_max),
        .safety = (VjSafety)d.safety,
        .size = GUINT64_FROM_LE(d.size),
        .stored_bytes = GUINT64_FROM_LE(d.stored_bytes),
        .content = (VjContent)d.content,
        .inline_rest_bytes = d.inline_rest_bytes,
        .map_version = GUINT64_FROM_LE(d.map_version),
        .root = {.node = GUINT32_FROM_LE(d.root_node),
                 .next_node = GUINT32_FROM_LE(d.root_next_node),
                 .height = d.height,
                 .bytes = GUINT64_FROM_LE(d.root_bytes),
                 .stored_bytes = GUINT64_FROM_LE(d.stored_bytes)},
    };
    if (out->content != VJ_CONTENT_MAP) {
        out->root.stored_bytes = 0;
    }
    memcpy(out->inline_rest, bytes + FIXED_BYTES, d.inline_rest_bytes);
    return 0;
}

static VjSlice inode_encode(const VjInode *inode, uint8_t bytes[BYTES_MAX])
{
    const bool is_inline = inode->content == VJ_CONTENT_INLINE;
    const VjInodeDisk d = {
        .magic = GUINT32_TO_LE(VJ_INODE_MAGIC),
        .content = (uint8_t)inode->content,
        .height = inode->root.height,
        .flags = GUINT16_TO_LE((uint16_t)inode->flags),
        .ino = GUINT64_TO_LE(inode->ino),
        .generation = GUINT64_TO_LE(inode->generation),
        .mode = GUINT32_TO_LE(inode->mode),
        .uid = GUINT32_TO_LE(inode->uid),
        .gid = GUINT32_TO_LE(inode->gid),
        .nlink = GUINT32_TO_LE(inode->nlink),
        .rdev = GUINT64_TO_LE(inode->rdev),
        .atime_sec = GINT64_TO_LE((int64_t)inode->atime.tv_sec),
        .mtime_sec = GINT64_TO_LE((int64_t)inode->mtime.tv_sec),
        .ctime_sec = GINT64_TO_LE((int64_t)inode->ctime.tv_sec),
        .btime_sec = GINT64_TO_LE((int64_t)inode->btime.tv_sec),
        .atime_nsec = GUINT32_TO_LE((uint32_t)inode->atime.tv_nsec),
        .mtime_nsec = GUINT32_TO_LE((uint32_t)inode->mtime.tv_nsec),
        .ctime_nsec = GUINT32_TO_LE((uint32_t)inode->ctime.tv_nsec),
        .btime_nsec = GUINT32_TO_LE((uint32_t)inode->btime.tv_nsec),
        .parent = GUINT64_TO_LE(inode->parent),
        .entry_count = GUINT64_TO_LE(inode->entry_count),
        .next_cookie = GUINT64_TO_LE(inode->next_cookie),
        .codec = inode->transform.codec,
        .param = inode->transform.param,
        .level = inode->transform.level,
        .transform_mode = inode->transform.mode,
        .key_id = GUINT32_TO_LE(inode->transform.key_id),
        .object_min = GUINT32_TO_LE(inode->object_min),
        .object_avg = GUINT32_TO_LE(inode->object_avg),
        .object_max = GUINT32_TO_LE(inode->object_max),
        .root_node = GUINT32_TO_LE(inode->root.node),
        .size = GUINT64_TO_LE(inode->size),
        .stored_bytes = GUINT64_TO_LE(inode->stored_bytes),
        .map_version = GUINT64_TO_LE(inode->map_version),
        .root_next_node = GUINT32_TO_LE(inode->root.next_node),
        .safety = (uint8_t)inode->safety,
        .inline_rest_bytes = is_inline ? inode->inline_rest_bytes : 0,
        .root_bytes = GUINT64_TO_LE(inode->root.bytes),
    };
    VjWriter w = vj_writer(bytes, BYTES_MAX);

    g_assert(inode->inline_rest_bytes <= VJ_FILE_INLINE_REST_MAX);
    vj_write_bytes(&w, &d, FIXED_BYTES);
    vj_write_bytes(&w, inode->inline_rest, d.inline_rest_bytes);
    vj_write_u64(&w, vj_checksum64(bytes, w.used));
    g_assert(!w.bad);
    return vj_slice(bytes, w.used);
}

int vj_inode_get(VjTxn *txn, uint64_t ino, VjInode *out)
{
    uint8_t key[8];
    VjSlice value;
    int r = vj_txn_get(txn, VJ_SPACE_INODE, vj_ino_key(ino, key), &value);

    if (r < 0) {
        return r;
    }
    r = vj_inode_decode(value, ino, out);
    if (r < 0) {
        vj_log_error("inode %" G_GUINT64_FORMAT ": its record is damaged", ino);
    }
    return r;
}

int vj_inode_put(VjTxn *txn, const VjInode *inode)
{
    uint8_t key[8], bytes[BYTES_MAX];

    g_assert(inode->ino != 0 && inode->size <= VJ_MAP_BYTES_MAX);
    g_assert(flags_are_sane(inode->flags, inode->mode));
    g_assert(inode->safety == VJ_SAFETY_NONE || (inode->flags & VJ_INODE_SAFETY));
    g_assert((inode->content == VJ_CONTENT_MAP) == (inode->root.node != 0));
    g_assert(inode->content != VJ_CONTENT_MAP || inode->root.bytes == inode->size);
    return vj_txn_put(txn, VJ_SPACE_INODE, vj_ino_key(inode->ino, key),
                      inode_encode(inode, bytes));
}

int vj_inode_del(VjTxn *txn, uint64_t ino)
{
    uint8_t key[8];

    return vj_txn_del(txn, VJ_SPACE_INODE, vj_ino_key(ino, key));
}

int vj_ino_next(VjTxn *txn, uint64_t *next)
{
    VjNextInoDisk d;
    VjSlice value;
    int r = vj_txn_get(txn, VJ_SPACE_SYSTEM, NEXT_INO_KEY, &value);

    *next = VJ_INO_ROOT + 1;
    if (r < 0) {
        return r == -ENOENT ? 0 : r;
    }
    if (value.len != sizeof d) {
        return -EBADMSG;
    }
    memcpy(&d, value.data, sizeof d);
    *next = GUINT64_FROM_LE(d.next);
    return GUINT32_FROM_LE(d.magic) == VJ_NEXT_INO_MAGIC && d.reserved == 0 &&
                   GUINT64_FROM_LE(d.checksum) ==
                       vj_checksum64(&d, offsetof(VjNextInoDisk, checksum)) &&
                   *next > VJ_INO_ROOT && *next <= VJ_INO_MAX
               ? 0
               : -EBADMSG;
}

void vj_ino_next_encode(uint64_t next, uint8_t out[VJ_NEXT_INO_BYTES])
{
    VjNextInoDisk d = {.magic = GUINT32_TO_LE(VJ_NEXT_INO_MAGIC),
                       .next = GUINT64_TO_LE(next)};

    g_assert(next > VJ_INO_ROOT && next <= VJ_INO_MAX);
    d.checksum = GUINT64_TO_LE(vj_checksum64(&d, offsetof(VjNextInoDisk, checksum)));
    memcpy(out, &d, sizeof d);
}
