/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fragment.c - bytes of a file that are not yet an object, beside its map
 *
 * A fragment is named by exactly one map entry of its inode, which may use a part of it,
 * and goes with that entry.  Its number is one that no other fragment of the inode has.
 * The value is a head, the bytes and a checksum of both.
 */
#include "file/file-private.h"
#include "file/inode-format.h"

#define CHECKSUM_BYTES sizeof(uint64_t)
#define OVERHEAD (sizeof(VjFragmentHead) + CHECKSUM_BYTES)

G_STATIC_ASSERT(VJ_FRAGMENT_MOST + OVERHEAD == VJ_META_VALUE_CHEAP);

static VjSlice fragment_key(uint64_t ino, uint64_t number, uint8_t bytes[12])
{
    vj_be64_set(bytes, ino);
    vj_be32_set(bytes + 8, (uint32_t)number);
    return vj_slice(bytes, 12);
}

static int decode(VjSlice value, uint64_t ino, uint64_t number, VjFragmentHead *head)
{
    const uint8_t *bytes = value.data;

    if (value.len <= OVERHEAD) {
        return -EBADMSG;
    }
    memcpy(head, value.data, sizeof *head);
    if (vj_checksum64(bytes, value.len - CHECKSUM_BYTES) !=
            vj_le64_get(bytes + value.len - CHECKSUM_BYTES) ||
        GUINT32_FROM_LE(head->magic) != VJ_FRAGMENT_MAGIC ||
        GUINT64_FROM_LE(head->ino) != ino || GUINT32_FROM_LE(head->number) != number) {
        return -EBADMSG;
    }
    return value.len - OVERHEAD > VJ_FILE_INLINE_MAX ||
                   GUINT16_FROM_LE(head->plain_bytes) > VJ_FILE_INLINE_MAX
               ? -EBADMSG
               : 0;
}

/* All of it: what is read as a part is what a checksum covers as a whole. */
static int plain(VjSlice value, const VjFragmentHead *head,
                 uint8_t dst[VJ_FILE_INLINE_MAX])
{
    const VjRecordCodec how = {.codec = head->codec,
                               .param = head->param,
                               .key_id = GUINT32_FROM_LE(head->key_id)};
    const VjRecordPlace place = {.kind = VJ_RECORD_FRAGMENT,
                                 .ino = GUINT64_FROM_LE(head->ino),
                                 .number = GUINT32_FROM_LE(head->number)};

    return vj_record_decode(how, &place, (const uint8_t *)value.data + sizeof *head,
                            value.len - OVERHEAD, dst,
                            GUINT16_FROM_LE(head->plain_bytes));
}

int vj_fragment_get(VjTxn *txn, uint64_t ino, const VjEntry *entry, uint64_t skip,
                    void *dst, size_t len)
{
    uint8_t key[12], bytes[VJ_FILE_INLINE_MAX];
    VjFragmentHead head;
    VjSlice value;
    uint64_t from;
    int r;

    g_assert(entry->kind == VJ_ENTRY_FRAGMENT);
    r = entry->id > UINT32_MAX || !vj_add_u64(entry->start, skip, &from)
            ? -EBADMSG
            : vj_txn_get(txn, VJ_SPACE_FRAGMENT, fragment_key(ino, entry->id, key),
                         &value);
    if (r == 0) {
        r = decode(value, ino, entry->id, &head);
    }
    if (r == 0 && (from > GUINT16_FROM_LE(head.plain_bytes) ||
                   len > GUINT16_FROM_LE(head.plain_bytes) - from)) {
        r = -EBADMSG;
    }
    if (r == 0) {
        r = plain(value, &head, bytes);
    }
    if (r == -EAGAIN) {
        return r; /* the caller's transaction begins anew */
    }
    if (r < 0) {
        vj_log_error("inode %" G_GUINT64_FORMAT ": fragment %" G_GUINT64_FORMAT
                     " cannot be read: %s",
                     ino, entry->id, g_strerror(-r));
        return r == -ENOENT ? -EBADMSG : r;
    }
    memcpy(dst, bytes + from, len);
    return 0;
}

VjFragment *vj_fragment_new(const VjTransform *want, const void *src, size_t len)
{
    VjFragment *fragment;

    g_assert(len > 0 && len <= VJ_FILE_INLINE_MAX);
    fragment = g_malloc(sizeof *fragment + len);
    *fragment = (VjFragment){.is_plain = vj_record_needs_place(want),
                             .plain_bytes = (uint16_t)len};
    if (fragment->is_plain) {
        fragment->want = *want;
        memcpy(fragment->bytes, src, len);
    } else {
        fragment->how = vj_record_encode(want, NULL, src, len, fragment->bytes, &len);
    }
    fragment->len = (uint16_t)len;
    return fragment;
}

static int put_encoded(VjTxn *txn, const VjRecordPlace *place, uint16_t plain_bytes,
                       VjRecordCodec how, VjSlice encoded)
{
    uint8_t key[12], value[OVERHEAD + VJ_FILE_INLINE_MAX];
    VjWriter w = vj_writer(value, sizeof value);
    VjFragmentHead head = {
        .magic = GUINT32_TO_LE(VJ_FRAGMENT_MAGIC),
        .codec = how.codec,
        .param = how.param,
        .plain_bytes = GUINT16_TO_LE(plain_bytes),
        .ino = GUINT64_TO_LE(place->ino),
        .number = GUINT32_TO_LE(place->number),
    };

    vj_write_bytes(&w, &head, sizeof head);
    vj_write_bytes(&w, encoded.data, encoded.len);
    vj_write_u64(&w, vj_checksum64(value, w.used));
    g_assert(!w.bad);
    return vj_txn_put(txn, VJ_SPACE_FRAGMENT,
                      fragment_key(place->ino, place->number, key),
                      vj_slice(value, w.used));
}

static int put(VjTxn *txn, uint64_t ino, uint32_t number, const VjFragment *fragment)
{
    const VjRecordPlace place = {
        .kind = VJ_RECORD_FRAGMENT, .ino = ino, .number = number};
    VjSlice encoded = vj_slice(fragment->bytes, fragment->len);
    uint8_t bytes[VJ_FILE_INLINE_MAX];
    VjRecordCodec how = fragment->how;

    if (fragment->is_plain) {
        size_t len;

        how = vj_record_encode(&fragment->want, &place, fragment->bytes, fragment->len,
                               bytes, &len);
        encoded = vj_slice(bytes, len);
    }
    return put_encoded(txn, &place, fragment->plain_bytes, how, encoded);
}

int vj_fragment_put(VjTxn *txn, uint64_t ino, uint32_t number, const VjTransform *want,
                    const void *src, size_t len)
{
    g_autofree VjFragment *fragment = vj_fragment_new(want, src, len);

    return put(txn, ino, number, fragment);
}

/* The lowest number from 1 on that is not used: the highest number is. */
static int find_gap(VjTxn *txn, uint64_t ino, uint32_t *number)
{
    uint8_t zero[12];
    uint32_t expected = 1;
    VjScan scan;

    vj_scan_begin(&scan, txn, VJ_SPACE_FRAGMENT, VJ_SCAN_ALL);
    vj_scan_behind(&scan, fragment_key(ino, 0, zero));
    while (vj_scan_next(&scan) && scan.key.len == sizeof zero &&
           vj_be64_get(scan.key.data) == ino &&
           vj_be32_get((const uint8_t *)scan.key.data + 8) == expected) {
        expected++;
    }
    *number = expected;
    return scan.error < 0 ? scan.error : expected == 0 ? -EFBIG : 0;
}

/*
 * One above the highest that is there.  As fragments become objects sooner or later,
 * numbers begin at 1 again and again: a file that is changed for years does not use them
 * up.
 */
static int free_number(VjTxn *txn, uint64_t ino, uint32_t *number)
{
    uint8_t before[12];
    VjSlice key, value;
    int r;

    *number = 1;
    r = vj_txn_prev(txn, VJ_SPACE_FRAGMENT, fragment_key(ino + 1, 0, before), &key,
                    &value);
    if (r == -ENOENT) {
        return 0;
    }
    if (r == 0 && key.len == sizeof before && vj_be64_get(key.data) == ino) {
        *number = vj_be32_get((const uint8_t *)key.data + 8) + 1;
        return *number != 0 ? 0 : find_gap(txn, ino, number);
    }
    return r;
}

int vj_fragment_add(VjTxn *txn, uint64_t ino, const VjFragment *fragment,
                    uint32_t *number)
{
    int r = free_number(txn, ino, number);

    return r < 0 ? r : put(txn, ino, *number, fragment);
}

/* What an entry named and now gives up: logged and passed over when it is damaged or
 * gone, so that the rest of the file can still be written and dropped. */
int vj_entry_drop(VjTxn *txn, uint64_t ino, const VjEntry *entry)
{
    const char *what = "object";
    uint8_t key[12];
    VjObject object;
    int r = 0;

    if (entry->kind == VJ_ENTRY_OBJECT) {
        r = vj_object_unref(txn, entry->id, &object);
    } else if (entry->kind == VJ_ENTRY_FRAGMENT) {
        what = "fragment";
        r = vj_txn_del(txn, VJ_SPACE_FRAGMENT, fragment_key(ino, entry->id, key));
    }
    if (r == -ENOENT || r == -EBADMSG) {
        vj_log_error("inode %" G_GUINT64_FORMAT ": %s %" G_GUINT64_FORMAT
                     ", which it gives up, has no usable record",
                     ino, what, entry->id);
        r = 0;
    }
    return r;
}
