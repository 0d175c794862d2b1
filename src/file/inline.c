/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * inline.c - contents small enough to live beside their inode
 *
 * The value is a head, the bytes under the file's transformation and a checksum of both.
 * With head and checksum a page of the engine has room for 4048 bytes: the rest stands in
 * the record of the inode, which every commit of content writes anyway.  A symlink's
 * target is such a content too, as it is.
 */
#include "file/file-private.h"
#include "file/inode-format.h"

#include <sys/stat.h>

#define OVERHEAD (sizeof(VjInlineHead) + VJ_INLINE_CHECKSUM_BYTES)
#define BYTES_MAX (VJ_META_VALUE_CHEAP - OVERHEAD) /* without the rest */
G_STATIC_ASSERT(BYTES_MAX + VJ_FILE_INLINE_REST_MAX == VJ_FILE_INLINE_MAX);
G_STATIC_ASSERT(VJ_SYMLINK_MAX <= VJ_FILE_INLINE_MAX);

static int decode(const VjInode *inode, VjSlice value, VjInlineHead *head, void *dst)
{
    const VjRecordPlace place = {.kind = VJ_RECORD_INLINE, .ino = inode->ino};
    const uint8_t *bytes = value.data, *src = bytes + sizeof *head;
    size_t len = value.len - OVERHEAD;
    uint8_t whole[VJ_FILE_INLINE_MAX];
    VjRecordCodec how;

    if (value.len <= OVERHEAD || len > BYTES_MAX ||
        (inode->inline_rest_bytes > 0 && len != BYTES_MAX)) {
        return -EBADMSG;
    }
    memcpy(head, value.data, sizeof *head);
    if (vj_checksum64(bytes, value.len - VJ_INLINE_CHECKSUM_BYTES) !=
            vj_le64_get(bytes + value.len - VJ_INLINE_CHECKSUM_BYTES) ||
        GUINT32_FROM_LE(head->magic) != VJ_INLINE_MAGIC ||
        GUINT64_FROM_LE(head->ino) != inode->ino || head->reserved != 0 ||
        GUINT16_FROM_LE(head->plain_bytes) != inode->size) {
        return -EBADMSG;
    }
    how = (VjRecordCodec){.codec = head->codec,
                          .param = head->param,
                          .key_id = GUINT32_FROM_LE(head->key_id)};
    if (inode->inline_rest_bytes > 0) {
        memcpy(whole, src, len);
        memcpy(whole + len, inode->inline_rest, inode->inline_rest_bytes);
        src = whole;
        len += inode->inline_rest_bytes;
    }
    return vj_record_decode(how, &place, src, len, dst, inode->size);
}

int vj_inline_get(VjTxn *txn, const VjInode *inode, void *dst, size_t cap,
                  uint64_t *stored_bytes)
{
    uint8_t key[8];
    VjInlineHead head;
    VjSlice value;
    int r = vj_txn_get(txn, VJ_SPACE_INLINE, vj_ino_key(inode->ino, key), &value);

    if (r < 0) {
        return r == -ENOENT ? -EBADMSG : r;
    }
    r = inode->size > cap ? -EBADMSG : decode(inode, value, &head, dst);
    if (r == -EOPNOTSUPP) {
        vj_log_error(
            "inode %" G_GUINT64_FORMAT
            ": its inline content has transformation %u, which is not in this build",
            inode->ino, head.codec);
    } else if (r < 0) {
        vj_log_error("inode %" G_GUINT64_FORMAT ": its inline content is damaged",
                     inode->ino);
    } else if (stored_bytes != NULL) {
        *stored_bytes = value.len - OVERHEAD + inode->inline_rest_bytes;
    }
    return r;
}

void vj_inline_make(uint64_t ino, const VjTransform *want, const void *src, size_t len,
                    VjInlineRecord *out)
{
    const VjRecordPlace place = {.kind = VJ_RECORD_INLINE, .ino = ino};
    uint8_t encoded[VJ_FILE_INLINE_MAX];
    VjWriter w = vj_writer(out->bytes, sizeof out->bytes);
    VjInlineHead head = {
        .magic = GUINT32_TO_LE(VJ_INLINE_MAGIC),
        .plain_bytes = GUINT16_TO_LE((uint16_t)len),
        .ino = GUINT64_TO_LE(ino),
    };
    VjRecordCodec how;

    g_assert(len > 0 && len <= VJ_FILE_INLINE_MAX);
    how = vj_record_encode(want, &place, src, len, encoded, &len);
    head.codec = how.codec;
    head.param = how.param;
    out->stored_bytes = len;
    out->rest_bytes = (uint8_t)(len - MIN(len, BYTES_MAX));
    len -= out->rest_bytes;
    memcpy(out->rest, encoded + len, out->rest_bytes);
    vj_write_bytes(&w, &head, sizeof head);
    vj_write_bytes(&w, encoded, len);
    vj_write_u64(&w, vj_checksum64(out->bytes, w.used));
    g_assert(!w.bad);
    out->len = w.used;
}

int vj_inline_put(VjTxn *txn, VjInode *inode, const VjInlineRecord *record)
{
    uint8_t key[8];

    inode->content = VJ_CONTENT_INLINE;
    inode->stored_bytes = record->stored_bytes;
    inode->inline_rest_bytes = record->rest_bytes;
    memcpy(inode->inline_rest, record->rest, record->rest_bytes);
    return vj_txn_put(txn, VJ_SPACE_INLINE, vj_ino_key(inode->ino, key),
                      vj_slice(record->bytes, record->len));
}

int vj_inline_is(VjTxn *txn, const VjInode *inode, const VjInlineRecord *record,
                 bool *is_same)
{
    uint8_t key[8];
    VjSlice value;
    int r = vj_txn_get(txn, VJ_SPACE_INLINE, vj_ino_key(inode->ino, key), &value);

    *is_same = r == 0 && value.len == record->len &&
               memcmp(value.data, record->bytes, record->len) == 0 &&
               inode->inline_rest_bytes == record->rest_bytes &&
               memcmp(inode->inline_rest, record->rest, record->rest_bytes) == 0;
    return r == -ENOENT ? -EBADMSG : r;
}

int vj_inline_del(VjTxn *txn, uint64_t ino)
{
    uint8_t key[8];

    return vj_txn_del(txn, VJ_SPACE_INLINE, vj_ino_key(ino, key));
}

int vj_symlink_put(VjTxn *txn, VjInode *inode, const char *target, size_t len)
{
    VjInlineRecord record;

    g_assert(len > 0 && len <= VJ_SYMLINK_MAX);
    inode->size = len;
    vj_inline_make(inode->ino, NULL, target, len, &record);
    return vj_inline_put(txn, inode, &record);
}

int vj_symlink_get(VjTxn *txn, const VjInode *inode, char *dst, size_t *len)
{
    if (inode->content != VJ_CONTENT_INLINE) {
        return -EBADMSG;
    }
    *len = inode->size;
    return vj_inline_get(txn, inode, dst, VJ_SYMLINK_MAX, NULL);
}

int vj_file_fill(VjTxn *txn, VjFileTable *table, uint64_t ino, const void *src,
                 size_t len)
{
    VjInlineRecord record;
    VjTransform want;
    VjInode inode;
    int r = vj_inode_get(txn, ino, &inode);

    g_assert(len <= VJ_FILE_INLINE_MAX);
    if (r < 0 || len == 0) {
        return r;
    }
    if (!S_ISREG(inode.mode) || inode.content != VJ_CONTENT_EMPTY || inode.size > 0) {
        return -EBUSY;
    }
    want = vj_file_transform(table, &inode);
    vj_inline_make(ino, &want, src, len, &record);
    inode.size = len;
    r = vj_inline_put(txn, &inode, &record);
    return r < 0 ? r : vj_inode_put(txn, &inode);
}
