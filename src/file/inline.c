/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * inline.c - contents small enough to live beside their inode
 *
 * The value is a head, the bytes under the file's transformation and a checksum of both.
 * With head and checksum a page of the engine has room for 4048 bytes: the rest stands in
 * the record of the inode, which every commit of content writes anyway.  The head says
 * what that is, so that each of the two records can be read without the other: what does
 * not stay as long as it is under its transformation leaves no rest, because a part of
 * what a compressor made is nothing.  A symlink's target is such a content too, as it is.
 */
#include "file/file-private.h"
#include "file/inode-format.h"

#include <sys/stat.h>

#define OVERHEAD (sizeof(VjInlineHead) + VJ_INLINE_CHECKSUM_BYTES)
#define BYTES_MAX (VJ_META_VALUE_CHEAP - OVERHEAD) /* without the rest */
G_STATIC_ASSERT(BYTES_MAX + VJ_FILE_INLINE_REST_MAX == VJ_FILE_INLINE_MAX);
G_STATIC_ASSERT(VJ_SYMLINK_MAX <= VJ_FILE_INLINE_MAX);

static uint32_t rest_checksum(const uint8_t *rest, size_t len)
{
    uint32_t sum = (uint32_t)vj_checksum64(rest, len);

    return len == 0 ? 0 : sum != 0 ? sum : 1;
}

/* Bytes of the content that the record leaves to that of the inode. */
static size_t rest_bytes(const VjInlineHead *head)
{
    return head->rest_checksum != 0 ? GUINT16_FROM_LE(head->plain_bytes) - BYTES_MAX : 0;
}

static int head_get(VjSlice value, uint64_t ino, VjInlineHead *head)
{
    const uint8_t *bytes = value.data;
    size_t plain_bytes;

    if (value.len <= OVERHEAD || value.len > VJ_META_VALUE_CHEAP) {
        return -EBADMSG;
    }
    memcpy(head, value.data, sizeof *head);
    plain_bytes = GUINT16_FROM_LE(head->plain_bytes);
    if (vj_checksum64(bytes, value.len - VJ_INLINE_CHECKSUM_BYTES) !=
            vj_le64_get(bytes + value.len - VJ_INLINE_CHECKSUM_BYTES) ||
        GUINT32_FROM_LE(head->magic) != VJ_INLINE_MAGIC ||
        GUINT64_FROM_LE(head->ino) != ino || plain_bytes == 0 ||
        plain_bytes > VJ_FILE_INLINE_MAX) {
        return -EBADMSG;
    }
    return head->rest_checksum != 0 &&
                   (value.len != VJ_META_VALUE_CHEAP || plain_bytes <= BYTES_MAX)
               ? -EBADMSG
               : 0;
}

static VjRecordCodec codec_of(const VjInlineHead *head)
{
    return (VjRecordCodec){.codec = head->codec,
                           .param = head->param,
                           .key_id = GUINT32_FROM_LE(head->key_id)};
}

static int decode(const VjInode *inode, VjSlice value, VjInlineHead *head, void *dst)
{
    const VjRecordPlace place = {.kind = VJ_RECORD_INLINE, .ino = inode->ino};
    const uint8_t *src = (const uint8_t *)value.data + sizeof *head;
    uint8_t whole[VJ_FILE_INLINE_MAX];
    int r = head_get(value, inode->ino, head);
    size_t len = value.len - OVERHEAD;

    if (r < 0) {
        return r;
    }
    if (GUINT16_FROM_LE(head->plain_bytes) != inode->size ||
        inode->inline_rest_bytes != rest_bytes(head) ||
        rest_checksum(inode->inline_rest, inode->inline_rest_bytes) !=
            GUINT32_FROM_LE(head->rest_checksum)) {
        return -EBADMSG;
    }
    if (inode->inline_rest_bytes > 0) {
        memcpy(whole, src, len);
        memcpy(whole + len, inode->inline_rest, inode->inline_rest_bytes);
        src = whole;
        len += inode->inline_rest_bytes;
    }
    return vj_record_decode(codec_of(head), &place, src, len, dst, inode->size);
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

int vj_inline_parts(VjTxn *txn, uint64_t ino, VjInlineParts *out)
{
    const VjRecordPlace place = {.kind = VJ_RECORD_INLINE, .ino = ino};
    uint8_t key[8];
    VjInlineHead head;
    VjSlice value;
    int r = vj_txn_get(txn, VJ_SPACE_INLINE, vj_ino_key(ino, key), &value);

    out->plain_bytes = out->rest_bytes = 0;
    if (r == 0) {
        r = head_get(value, ino, &head);
    }
    if (r < 0) {
        return r;
    }
    out->plain_bytes = GUINT16_FROM_LE(head.plain_bytes);
    out->rest_bytes = (uint16_t)rest_bytes(&head);
    out->rest_checksum = GUINT32_FROM_LE(head.rest_checksum);
    out->stored_bytes = value.len - OVERHEAD;
    return vj_record_decode(
        codec_of(&head), &place, (const uint8_t *)value.data + sizeof head,
        value.len - OVERHEAD, out->first, (size_t)out->plain_bytes - out->rest_bytes);
}

bool vj_inline_is_rest(const VjInlineParts *parts, const void *bytes, size_t len)
{
    return len == parts->rest_bytes && rest_checksum(bytes, len) == parts->rest_checksum;
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
    size_t encoded_len;

    g_assert(len > 0 && len <= VJ_FILE_INLINE_MAX);
    how = vj_record_encode(want, &place, src, len, encoded, &encoded_len);
    if (encoded_len > BYTES_MAX && encoded_len < len) {
        how = vj_record_encode(NULL, &place, src, len, encoded, &encoded_len);
    }
    head.codec = how.codec;
    head.param = how.param;
    out->stored_bytes = encoded_len;
    out->rest_bytes = (uint8_t)(encoded_len - MIN(encoded_len, BYTES_MAX));
    encoded_len -= out->rest_bytes;
    memcpy(out->rest, encoded + encoded_len, out->rest_bytes);
    head.rest_checksum = GUINT32_TO_LE(rest_checksum(out->rest, out->rest_bytes));
    vj_write_bytes(&w, &head, sizeof head);
    vj_write_bytes(&w, encoded, encoded_len);
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
