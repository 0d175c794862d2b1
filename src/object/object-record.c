/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-record.c - encode, decode, get and put what object-format.h describes
 *
 * A decoder looks at the checksum first and at the sense of the values second: what it
 * returns satisfies every rule that a single record can state.
 */
#include "object/object-format.h"

#define VJ_MAGIC4(a, b, c, d)                                                            \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)
#define VJ_OBJECT_MAGIC VJ_MAGIC4('V', 'J', 'o', 'b')
#define VJ_DEAD_MAGIC VJ_MAGIC4('V', 'J', 'd', 'e')
#define VJ_INDEX_MAGIC VJ_MAGIC4('V', 'J', 'i', 'x')
#define VJ_ID_BLOCK_MAGIC VJ_MAGIC4('V', 'J', 'i', 'b')
#define VJ_NEXT_ID_MAGIC VJ_MAGIC4('V', 'J', 'n', 'o')
#define VJ_EPOCH_MAGIC VJ_MAGIC4('V', 'J', 'e', 'p')

#define VJ_OBJECT_FLAGS_ALL                                                              \
    ((uint32_t)(VJ_OBJECT_UNINDEXED | VJ_OBJECT_DAMAGED | VJ_OBJECT_BY_NODE |            \
                VJ_OBJECT_ON_WIRE))
#define VJ_DEAD_FLAGS_ALL (VJ_OBJECT_FLAGS_ALL | (uint32_t)VJ_OBJECT_REMOVING)

static const uint8_t zeroes[4];

static uint32_t record_magic(VjSpace space)
{
    g_assert(space == VJ_SPACE_OBJECT || space == VJ_SPACE_DEAD);
    return space == VJ_SPACE_OBJECT ? VJ_OBJECT_MAGIC : VJ_DEAD_MAGIC;
}

static uint8_t record_version(VjSpace space)
{
    return space == VJ_SPACE_OBJECT ? VJ_OBJECT_FORMAT_VERSION : VJ_DEAD_FORMAT_VERSION;
}

/* @flags may stand in a record of @space. */
static bool flags_fit(uint32_t flags, VjSpace space)
{
    uint32_t fit = space == VJ_SPACE_OBJECT ? VJ_OBJECT_FLAGS_ALL : VJ_DEAD_FLAGS_ALL;

    return (flags & ~fit) == 0;
}

/* The checksum in the last 8 bytes of @value covers all before it. */
static bool checksum_is_right(VjSlice value, size_t bytes)
{
    const uint8_t *data = value.data;

    return value.len == bytes &&
           vj_checksum64(data, bytes - 8) == vj_le64_get(data + bytes - 8);
}

static void write_head(VjWriter *w, uint32_t magic, uint8_t version)
{
    vj_write_u32(w, magic);
    vj_write_u8(w, version);
    vj_write_bytes(w, zeroes, 3);
}

static bool read_head(VjReader *r, uint32_t magic, uint8_t version)
{
    bool good = vj_read_u32(r) == magic;
    VjSlice rest;

    good = vj_read_u8(r) == version && good;
    rest = vj_read_bytes(r, 3);
    return rest.len == 3 && memcmp(rest.data, zeroes, 3) == 0 && good;
}

void vj_index_key(const VjDigest *digest, uint32_t plain_bytes, uint8_t requested_codec,
                  uint8_t param, uint32_t key_id, VjIndexKey *out)
{
    memcpy(out->bytes, digest->bytes, VJ_DIGEST_MAX_BYTES);
    out->bytes[32] = (uint8_t)(plain_bytes >> 24);
    out->bytes[33] = (uint8_t)(plain_bytes >> 16);
    out->bytes[34] = (uint8_t)(plain_bytes >> 8);
    out->bytes[35] = (uint8_t)plain_bytes;
    out->bytes[36] = requested_codec;
    out->bytes[37] = param;
    out->bytes[38] = (uint8_t)(key_id >> 24);
    out->bytes[39] = (uint8_t)(key_id >> 16);
    out->bytes[40] = (uint8_t)(key_id >> 8);
    out->bytes[41] = (uint8_t)key_id;
}

void vj_index_key_of(const VjObject *object, VjIndexKey *out)
{
    vj_index_key(&object->digest, object->plain_bytes, object->requested_codec,
                 object->param, object->key_id, out);
}

void vj_object_encode(const VjObject *object, VjSpace space,
                      uint8_t out[VJ_OBJECT_RECORD_BYTES])
{
    VjWriter w = vj_writer(out, VJ_OBJECT_RECORD_BYTES);

    g_assert(object->id != 0 && object->plain_bytes != 0);
    g_assert((space == VJ_SPACE_OBJECT) == (object->refs > 0));
    g_assert(flags_fit(object->flags, space));
    vj_write_u32(&w, record_magic(space));
    vj_write_u8(&w, record_version(space));
    vj_write_u8(&w, object->codec);
    vj_write_u8(&w, object->requested_codec);
    vj_write_u8(&w, object->param);
    vj_write_u64(&w, object->id);
    vj_write_u32(&w, object->plain_bytes);
    vj_write_u32(&w, object->stored_bytes);
    vj_write_u32(&w, object->key_id);
    vj_write_u32(&w, object->flags);
    vj_write_u32(&w, object->deaths);
    vj_write_u32(&w, 0);
    vj_write_u64(&w, object->refs);
    vj_write_u64(&w, object->trailer_checksum);
    vj_write_bytes(&w, object->loc.bytes, VJ_LOC_BYTES);
    vj_write_bytes(&w, object->digest.bytes, VJ_DIGEST_MAX_BYTES);
    vj_write_u64(&w, vj_checksum64(out, VJ_OBJECT_RECORD_BYTES - 8));
    g_assert(!w.bad && w.used == VJ_OBJECT_RECORD_BYTES);
}

int vj_object_decode(VjSlice value, VjSpace space, uint64_t id, VjObject *out)
{
    VjReader r = vj_reader(value);
    uint32_t magic, zero;
    uint8_t version;
    VjSlice loc, digest;

    if (!checksum_is_right(value, VJ_OBJECT_RECORD_BYTES)) {
        return -EBADMSG;
    }
    out->fault = NULL;
    magic = vj_read_u32(&r);
    version = vj_read_u8(&r);
    out->codec = vj_read_u8(&r);
    out->requested_codec = vj_read_u8(&r);
    out->param = vj_read_u8(&r);
    out->id = vj_read_u64(&r);
    out->plain_bytes = vj_read_u32(&r);
    out->stored_bytes = vj_read_u32(&r);
    out->key_id = vj_read_u32(&r);
    out->flags = vj_read_u32(&r);
    out->deaths = vj_read_u32(&r);
    zero = vj_read_u32(&r);
    out->refs = vj_read_u64(&r);
    out->trailer_checksum = vj_read_u64(&r);
    loc = vj_read_bytes(&r, VJ_LOC_BYTES);
    digest = vj_read_bytes(&r, VJ_DIGEST_MAX_BYTES);
    (void)vj_read_u64(&r); /* the checksum, compared above */
    if (!vj_reader_done(&r) || magic != record_magic(space) ||
        version != record_version(space) || zero != 0 || id == 0 || out->id != id ||
        (space == VJ_SPACE_OBJECT) != (out->refs > 0) || !flags_fit(out->flags, space) ||
        out->plain_bytes == 0 || out->plain_bytes > VJ_OBJECT_PLAIN_MAX ||
        out->stored_bytes == 0 || out->stored_bytes > VJ_STORE_OBJECT_MAX) {
        return -EBADMSG;
    }
    memcpy(out->loc.bytes, loc.data, VJ_LOC_BYTES);
    memcpy(out->digest.bytes, digest.data, VJ_DIGEST_MAX_BYTES);
    return 0;
}

static uint64_t index_checksum(const VjIndexKey *key, const uint8_t value[16])
{
    uint8_t both[VJ_INDEX_KEY_BYTES + 16];

    memcpy(both, key->bytes, VJ_INDEX_KEY_BYTES);
    memcpy(both + VJ_INDEX_KEY_BYTES, value, 16);
    return vj_checksum64(both, sizeof both);
}

void vj_index_encode(const VjIndexKey *key, uint64_t id,
                     uint8_t out[VJ_INDEX_VALUE_BYTES])
{
    VjWriter w = vj_writer(out, VJ_INDEX_VALUE_BYTES);

    write_head(&w, VJ_INDEX_MAGIC, VJ_OBJECT_FORMAT_VERSION);
    vj_write_u64(&w, id);
    vj_write_u64(&w, index_checksum(key, out));
    g_assert(!w.bad && w.used == VJ_INDEX_VALUE_BYTES);
}

int vj_index_decode(const VjIndexKey *key, VjSlice value, uint64_t *id)
{
    VjReader r = vj_reader(value);
    bool good = value.len == VJ_INDEX_VALUE_BYTES &&
                read_head(&r, VJ_INDEX_MAGIC, VJ_OBJECT_FORMAT_VERSION);

    *id = vj_read_u64(&r);
    if (!good || *id == 0 || vj_read_u64(&r) != index_checksum(key, value.data)) {
        return -EBADMSG;
    }
    return 0;
}

void vj_id_block_encode(const VjIdRange *range, uint8_t out[VJ_ID_BLOCK_BYTES])
{
    VjWriter w = vj_writer(out, VJ_ID_BLOCK_BYTES);

    g_assert(range->first_id > 0 && range->first_id <= range->last_id);
    write_head(&w, VJ_ID_BLOCK_MAGIC, VJ_ID_BLOCK_FORMAT_VERSION);
    vj_write_u64(&w, range->first_id);
    vj_write_u64(&w, range->last_id);
    vj_write_u64(&w, range->owner);
    vj_write_u64(&w, vj_checksum64(out, VJ_ID_BLOCK_BYTES - 8));
    g_assert(!w.bad && w.used == VJ_ID_BLOCK_BYTES);
}

int vj_id_block_decode(VjSlice key, VjSlice value, VjIdRange *range)
{
    VjReader r = vj_reader(value);

    if (key.len != VJ_OBJECT_KEY_BYTES || !checksum_is_right(value, VJ_ID_BLOCK_BYTES) ||
        !read_head(&r, VJ_ID_BLOCK_MAGIC, VJ_ID_BLOCK_FORMAT_VERSION)) {
        return -EBADMSG;
    }
    range->first_id = vj_read_u64(&r);
    range->last_id = vj_read_u64(&r);
    range->owner = vj_read_u64(&r);
    if (range->first_id == 0 || range->first_id != vj_be64_get(key.data) ||
        range->last_id < range->first_id) {
        return -EBADMSG;
    }
    return 0;
}

/* ---- counters ---------------------------------------------------------------------- */

#define COUNTER_BYTES 24u
G_STATIC_ASSERT(VJ_NEXT_ID_BYTES == COUNTER_BYTES && VJ_EPOCH_BYTES == COUNTER_BYTES);

static void counter_encode(uint32_t magic, uint64_t number, uint8_t out[COUNTER_BYTES])
{
    VjWriter w = vj_writer(out, COUNTER_BYTES);

    write_head(&w, magic, VJ_OBJECT_FORMAT_VERSION);
    vj_write_u64(&w, number);
    vj_write_u64(&w, vj_checksum64(out, COUNTER_BYTES - 8));
    g_assert(!w.bad && w.used == COUNTER_BYTES);
}

static int counter_decode(uint32_t magic, VjSlice value, uint64_t *number)
{
    VjReader r = vj_reader(value);

    if (!checksum_is_right(value, COUNTER_BYTES) ||
        !read_head(&r, magic, VJ_OBJECT_FORMAT_VERSION)) {
        return -EBADMSG;
    }
    *number = vj_read_u64(&r);
    return *number == 0 ? -EBADMSG : 0;
}

void vj_next_id_encode(uint64_t next_id, uint8_t out[VJ_NEXT_ID_BYTES])
{
    counter_encode(VJ_NEXT_ID_MAGIC, next_id, out);
}

int vj_next_id_decode(VjSlice value, uint64_t *next_id)
{
    return counter_decode(VJ_NEXT_ID_MAGIC, value, next_id);
}

void vj_epoch_encode(uint64_t epoch, uint8_t out[VJ_EPOCH_BYTES])
{
    counter_encode(VJ_EPOCH_MAGIC, epoch, out);
}

int vj_epoch_decode(VjSlice value, uint64_t *epoch)
{
    return counter_decode(VJ_EPOCH_MAGIC, value, epoch);
}

/* ---- in transactions --------------------------------------------------------------- */

int vj_object_record_get(VjTxn *txn, VjSpace space, uint64_t id, VjObject *out)
{
    uint8_t key[VJ_OBJECT_KEY_BYTES];
    VjSlice value;
    int rc;

    vj_be64_set(key, id);
    rc = vj_txn_get(txn, space, vj_slice(key, sizeof key), &value);
    return rc < 0 ? rc : vj_object_decode(value, space, id, out);
}

int vj_object_record_put(VjTxn *txn, VjSpace space, const VjObject *object)
{
    uint8_t key[VJ_OBJECT_KEY_BYTES];
    uint8_t value[VJ_OBJECT_RECORD_BYTES];

    vj_be64_set(key, object->id);
    vj_object_encode(object, space, value);
    return vj_txn_put(txn, space, vj_slice(key, sizeof key),
                      vj_slice(value, sizeof value));
}

int vj_object_record_del(VjTxn *txn, VjSpace space, uint64_t id)
{
    uint8_t key[VJ_OBJECT_KEY_BYTES];

    g_assert(space == VJ_SPACE_OBJECT || space == VJ_SPACE_DEAD);
    vj_be64_set(key, id);
    return vj_txn_del(txn, space, vj_slice(key, sizeof key));
}

int vj_index_get(VjTxn *txn, const VjIndexKey *key, uint64_t *id)
{
    VjSlice value;
    int rc =
        vj_txn_get(txn, VJ_SPACE_INDEX, vj_slice(key->bytes, sizeof key->bytes), &value);

    return rc < 0 ? rc : vj_index_decode(key, value, id);
}

int vj_index_put(VjTxn *txn, const VjIndexKey *key, uint64_t id)
{
    uint8_t value[VJ_INDEX_VALUE_BYTES];

    vj_index_encode(key, id, value);
    return vj_txn_put(txn, VJ_SPACE_INDEX, vj_slice(key->bytes, sizeof key->bytes),
                      vj_slice(value, sizeof value));
}

int vj_index_del(VjTxn *txn, const VjIndexKey *key)
{
    return vj_txn_del(txn, VJ_SPACE_INDEX, vj_slice(key->bytes, sizeof key->bytes));
}

/* Records that are asked for at a time. */
#define EXPECT_MOST 64u

void vj_object_expect_records(VjTxn *txn, const uint64_t *ids, size_t count)
{
    uint8_t bytes[EXPECT_MOST][VJ_OBJECT_KEY_BYTES];
    VjKey keys[EXPECT_MOST];

    for (size_t done = 0; done < count;) {
        size_t n = 0;

        for (; n < EXPECT_MOST && done < count; n++, done++) {
            vj_be64_set(bytes[n], ids[done]);
            keys[n] = (VjKey){.space = VJ_SPACE_OBJECT,
                              .key = vj_slice(bytes[n], VJ_OBJECT_KEY_BYTES)};
        }
        vj_txn_expect(txn, keys, n);
    }
}

void vj_index_expect(VjTxn *txn, const VjIndexKey *keys, size_t count)
{
    VjKey expected[EXPECT_MOST];

    for (size_t done = 0; done < count;) {
        size_t n = 0;

        for (; n < EXPECT_MOST && done < count; n++, done++) {
            expected[n] =
                (VjKey){.space = VJ_SPACE_INDEX,
                        .key = vj_slice(keys[done].bytes, sizeof keys[done].bytes)};
        }
        vj_txn_expect(txn, expected, n);
    }
}

typedef struct VjRecordView {
    VjSpace space;
    uint64_t id;
    VjObject *out;
} VjRecordView;

static int record_body(VjTxn *txn, void *opaque)
{
    const VjRecordView *v = opaque;

    return vj_object_record_get(txn, v->space, v->id, v->out);
}

int vj_object_record_view(VjMeta *m, VjSpace space, uint64_t id, VjObject *out)
{
    return vj_meta_view(m, record_body,
                        &(VjRecordView){.space = space, .id = id, .out = out});
}

typedef struct VjIndexView {
    const VjIndexKey *key;
    uint64_t *id;
} VjIndexView;

static int index_body(VjTxn *txn, void *opaque)
{
    const VjIndexView *v = opaque;

    return vj_index_get(txn, v->key, v->id);
}

int vj_index_view(VjMeta *m, const VjIndexKey *key, uint64_t *id)
{
    return vj_meta_view(m, index_body, &(VjIndexView){.key = key, .id = id});
}
