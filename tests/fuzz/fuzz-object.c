/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The records of objects and the trailer of stored bytes from any bytes: the first says
 * which.  Checksums are put right, so that what lies behind them is reached.  A record
 * that is accepted encodes to the same bytes; a trailer that is accepted has its blocks
 * in order.
 */
#include "fuzz.h"

#include "object/object-format.h"
#include "object/stored-form.h"

/* Where a record has its checksum. */
static void put_right(uint8_t *bytes, size_t len)
{
    uint64_t sum = GUINT64_TO_LE(vj_checksum64(bytes, len - 8));

    memcpy(bytes + len - 8, &sum, sizeof sum);
}

static void try_record(uint8_t *bytes, size_t len, VjSpace space)
{
    uint64_t id = len >= 16 ? vj_le64_get(bytes + 8) : 1;
    uint8_t again[VJ_OBJECT_RECORD_BYTES];
    VjObject object;
    int rc = vj_object_decode(vj_slice(bytes, len), space, id, &object);

    g_assert(rc == 0 || rc == -EBADMSG);
    if (rc == 0) {
        g_assert(object.id == id && object.plain_bytes > 0);
        vj_object_encode(&object, space, again);
        g_assert(len == sizeof again && memcmp(again, bytes, len) == 0);
        g_assert(vj_object_decode(vj_slice(bytes, len), space, id + 1, &object) ==
                 -EBADMSG);
    }
}

/* The key, and behind it the value; its checksum covers both. */
static void try_index(uint8_t *bytes, size_t len)
{
    uint8_t again[VJ_INDEX_VALUE_BYTES];
    VjSlice value;
    VjIndexKey key;
    uint64_t id;

    if (len < sizeof key) {
        return;
    }
    memcpy(&key, bytes, sizeof key);
    value = vj_slice(bytes + sizeof key, len - sizeof key);
    for (int right = 0; right < 2; right++) {
        if (vj_index_decode(&key, value, &id) == 0) {
            vj_index_encode(&key, id, again);
            g_assert(value.len == sizeof again);
            g_assert(memcmp(again, value.data, value.len) == 0);
        }
        if (value.len >= 16) {
            uint64_t sum = GUINT64_TO_LE(vj_checksum64(bytes, sizeof key + 16));

            memcpy(bytes + len - 8, &sum, sizeof sum);
        }
    }
}

static void try_id_block(uint8_t *bytes, size_t len)
{
    uint8_t key[VJ_OBJECT_KEY_BYTES] = {0}, again[VJ_ID_BLOCK_BYTES];
    VjIdRange range;

    if (len >= 16) {
        vj_be64_set(key, vj_le64_get(bytes + 8));
    }
    if (vj_id_block_decode(vj_slice(key, sizeof key), vj_slice(bytes, len), &range) ==
        0) {
        g_assert(range.first_id > 0 && range.first_id <= range.last_id);
        vj_id_block_encode(&range, again);
        g_assert(len == sizeof again && memcmp(again, bytes, len) == 0);
    }
}

static void try_next_id(const uint8_t *bytes, size_t len)
{
    uint8_t again[VJ_NEXT_ID_BYTES];
    uint64_t next;

    if (vj_next_id_decode(vj_slice(bytes, len), &next) == 0) {
        vj_next_id_encode(next, again);
        g_assert(len == sizeof again && memcmp(again, bytes, len) == 0);
    }
}

static void try_epoch(const uint8_t *bytes, size_t len)
{
    uint8_t again[VJ_EPOCH_BYTES];
    uint64_t epoch;

    if (vj_epoch_decode(vj_slice(bytes, len), &epoch) == 0) {
        vj_epoch_encode(epoch, again);
        g_assert(len == sizeof again && memcmp(again, bytes, len) == 0);
    }
}

static void try_trailer(const uint8_t *bytes, size_t len, bool varying)
{
    const uint8_t *footer = bytes + len - VJ_TRAILER_FOOTER_BYTES;
    g_autoptr(VjTrailer) t = NULL;
    uint32_t plain, data, at = 0;
    int rc;

    if (len < VJ_TRAILER_FOOTER_BYTES || len > VJ_MIB) {
        return;
    }
    plain = vj_le32_get(footer + 4);
    data = vj_le32_get(footer + 8);
    if (plain == 0 || plain > VJ_OBJECT_PLAIN_MAX || data > VJ_STORE_OBJECT_MAX) {
        return; /* the record has been looked at before */
    }
    rc = vj_trailer_parse(vj_slice(bytes, len), footer[12], varying, plain,
                          data + (uint32_t)len, vj_checksum64(bytes, len), &t);
    g_assert(rc == 0 || rc == -EBADMSG);
    for (uint32_t i = 0; rc == 0 && i < t->block_count; i++) {
        g_assert(vj_trailer_block_start(t, i) == at);
        g_assert(vj_trailer_block_end(t, i) > at);
        g_assert(vj_trailer_block_plain(t, i) > 0);
        at = vj_trailer_block_end(t, i);
    }
    g_assert(rc < 0 || at == t->data_bytes);
}

FUZZ_MUTATIONS(400);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    g_autofree uint8_t *bytes = NULL;

    if (len < 9) {
        return 0;
    }
    bytes = g_memdup2(data + 1, len - 1);
    len--;
    for (int right = 0; right < 2; right++) {
        switch (data[0] % 7) {
        case 0:
            try_record(bytes, len, VJ_SPACE_OBJECT);
            break;
        case 1:
            try_record(bytes, len, VJ_SPACE_DEAD);
            break;
        case 2:
            try_index(bytes, len);
            break;
        case 3:
            try_id_block(bytes, len);
            break;
        case 4:
            try_next_id(bytes, len);
            try_epoch(bytes, len);
            break;
        default:
            try_trailer(bytes, len, data[0] % 7 == 5);
            break;
        }
        put_right(bytes, len);
    }
    return 0;
}
