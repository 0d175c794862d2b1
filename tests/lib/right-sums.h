/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * right-sums.h - the checksum of a record that a test has changed, made right
 *
 * Such a record no device makes, but somebody who wants to harm.
 */
#ifndef VJ_TEST_LIB_RIGHT_SUMS_H
#define VJ_TEST_LIB_RIGHT_SUMS_H

#include "fs/fs-format.h"
#include "meta/meta.h"
#include "object/object-format.h"

/* Names and attributes: of the key, of the head before the sum, of what follows it. */
static inline uint64_t vj_right_sum_of_parts(VjSlice key, const uint8_t *bytes,
                                             size_t len, size_t at)
{
    uint64_t parts[3] = {GUINT64_TO_LE(vj_checksum64(key.data, key.len)),
                         GUINT64_TO_LE(vj_checksum64(bytes, at)),
                         GUINT64_TO_LE(vj_checksum64(bytes + at + 8, len - at - 8))};

    return vj_checksum64(parts, sizeof parts);
}

/* Where the checksum stands in a record of @len bytes. */
static inline size_t vj_right_sum_offset(VjSpace space, size_t len)
{
    switch (space) {
    case VJ_SPACE_DENTRY:
        return offsetof(VjDentryDisk, checksum);
    case VJ_SPACE_COOKIE:
        return offsetof(VjCookieDisk, checksum);
    case VJ_SPACE_XATTR:
        return offsetof(VjXattrDisk, checksum);
    default:
        return len >= 8 ? len - 8 : 0;
    }
}

/* A record that is too short for a checksum stays as it is. */
static inline void vj_put_right(VjSpace space, VjSlice key, uint8_t *bytes, size_t len)
{
    size_t at = vj_right_sum_offset(space, len);
    uint64_t sum;

    if (len < at + 8) {
        return;
    }
    if (space == VJ_SPACE_DENTRY || space == VJ_SPACE_COOKIE || space == VJ_SPACE_XATTR) {
        sum = vj_right_sum_of_parts(key, bytes, len, at);
    } else if (space == VJ_SPACE_INDEX && len == VJ_INDEX_VALUE_BYTES) {
        g_autoptr(GByteArray) both = g_byte_array_new();

        g_byte_array_append(both, key.data, (guint)key.len);
        g_byte_array_append(both, bytes, (guint)at);
        sum = vj_checksum64(both->data, both->len);
    } else {
        sum = vj_checksum64(bytes, at);
    }
    sum = GUINT64_TO_LE(sum);
    memcpy(bytes + at, &sum, sizeof sum);
}

#endif
