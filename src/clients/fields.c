/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* fields.c - see fields.h */
#include "clients/fields.h"

static VjSlice take(VjSlice *from, size_t len)
{
    VjSlice taken = vj_slice(from->data, len);

    *from = vj_slice((const uint8_t *)from->data + len, from->len - len);
    return taken;
}

/* What a kind may say in its head. */
typedef struct Kind {
    uint8_t flags;
    bool has_offset, has_old_len, has_second;
    uint32_t brings_max, most_max;
} Kind;

static const Kind *kind_of(uint8_t kind)
{
    static const Kind kinds[] = {
        [VARJFS_WIRE_OBJECT_CREATE] = {.flags = VARJFS_WIRE_EXCLUSIVE,
                                       .has_old_len = true,
                                       .brings_max = VARJFS_WIRE_CREATE_MAX},
        [VARJFS_WIRE_OBJECT_DELETE] = {0},
        [VARJFS_WIRE_OBJECT_STATUS] = {.most_max = VARJFS_WIRE_STATUS_MAX},
        [VARJFS_WIRE_OBJECT_READ] = {.has_offset = true,
                                     .most_max = VARJFS_WIRE_BATCH_RETURN_MAX},
        [VARJFS_WIRE_OBJECT_WRITE] = {.flags = VARJFS_WIRE_APPEND | VARJFS_WIRE_MAKE,
                                      .has_offset = true,
                                      .brings_max = VARJFS_WIRE_WRITE_MAX},
        [VARJFS_WIRE_OBJECT_RWRITE] = {.flags = VARJFS_WIRE_APPEND,
                                       .has_offset = true,
                                       .has_old_len = true,
                                       .brings_max = VARJFS_WIRE_WRITE_MAX},
        [VARJFS_WIRE_OBJECT_RESIZE] = {.has_offset = true},
        [VARJFS_WIRE_OBJECT_RENAME] = {.flags = VARJFS_WIRE_EXCLUSIVE,
                                       .has_second = true},
        [VARJFS_WIRE_ATTRIBUTE_PUT] = {.flags = VARJFS_WIRE_EXCLUSIVE,
                                       .has_second = true,
                                       .brings_max = VARJFS_WIRE_VALUE_MAX},
        [VARJFS_WIRE_ATTRIBUTE_GET] = {.has_second = true,
                                       .most_max = VARJFS_WIRE_VALUE_MAX},
        [VARJFS_WIRE_ATTRIBUTE_DELETE] = {.has_second = true},
        [VARJFS_WIRE_KEY_PUT] = {.flags = VARJFS_WIRE_EXCLUSIVE,
                                 .brings_max = VARJFS_WIRE_VALUE_MAX},
        [VARJFS_WIRE_KEY_GET] = {.most_max = VARJFS_WIRE_VALUE_MAX},
        [VARJFS_WIRE_KEY_DELETE] = {0},
    };
    bool is_one =
        (kind >= VARJFS_WIRE_OBJECT_CREATE && kind <= VARJFS_WIRE_ATTRIBUTE_DELETE) ||
        (kind >= VARJFS_WIRE_KEY_PUT && kind <= VARJFS_WIRE_KEY_DELETE);

    return is_one ? &kinds[kind] : NULL;
}

bool vj_client_attribute_decode(VjSlice *from, VjSlice *name, VjSlice *value)
{
    VjReader r = vj_reader(*from);
    uint16_t name_bytes = vj_read_u16(&r);
    uint32_t value_bytes = vj_read_u32(&r);

    *name = vj_read_bytes(&r, name_bytes);
    *value = vj_read_bytes(&r, value_bytes);
    if (r.bad) {
        return false;
    }
    *from = vj_slice(r.at, r.left);
    return true;
}

/* Settings, and attributes behind them. */
static bool is_creation(VjSlice brings, uint64_t settings_bytes)
{
    VjSlice name, value;
    unsigned count = 0;

    if (settings_bytes > MIN(brings.len, VARJFS_WIRE_SETTINGS_MAX)) {
        return false;
    }
    take(&brings, (size_t)settings_bytes);
    while (brings.len > 0) {
        if (++count > VARJFS_WIRE_CREATE_ATTRIBUTES_MAX ||
            !vj_client_attribute_decode(&brings, &name, &value) ||
            value.len > VARJFS_WIRE_VALUE_MAX) {
            return false;
        }
    }
    return true;
}

int vj_client_op_decode(VjClientBatch *batch, VjClientOp *out)
{
    VjReader *r = &batch->ops;
    uint16_t space_bytes, name_bytes, second_bytes;
    uint32_t brings;
    const Kind *kind;

    out->kind = vj_read_u8(r);
    out->flags = vj_read_u8(r);
    space_bytes = vj_read_u16(r);
    name_bytes = vj_read_u16(r);
    second_bytes = vj_read_u16(r);
    out->offset = vj_read_u64(r);
    out->old_len = vj_read_u64(r);
    brings = vj_read_u32(r);
    out->most = vj_read_u32(r);
    out->space = vj_read_bytes(r, space_bytes);
    out->name = vj_read_bytes(r, name_bytes);
    out->second = vj_read_bytes(r, second_bytes);
    kind = kind_of(out->kind);
    if (r->bad || kind == NULL || (out->flags & ~(unsigned)kind->flags) != 0 ||
        brings > kind->brings_max || out->most > kind->most_max ||
        brings > batch->bulk.len) {
        return -EPROTO;
    }
    if (out->kind == VARJFS_WIRE_OBJECT_CREATE &&
        !is_creation(vj_slice(batch->bulk.data, brings), out->old_len)) {
        return -EPROTO;
    }
    if ((!kind->has_offset && out->offset != 0) ||
        (!kind->has_old_len && out->old_len != 0) ||
        (!kind->has_second && second_bytes != 0) ||
        ((out->flags & VARJFS_WIRE_APPEND) != 0 && out->offset != 0)) {
        return -EPROTO;
    }
    out->brings = take(&batch->bulk, brings);
    return 0;
}

int vj_client_batch_decode(VjSlice message, VjSlice bulk, VjClientBatch *out,
                           uint64_t *most)
{
    VjClientBatch all;
    VjClientOp op;

    *out = (VjClientBatch){.ops = vj_reader(message), .bulk = bulk};
    out->flags = vj_read_u8(&out->ops);
    out->safety = vj_read_u8(&out->ops);
    out->slot = vj_read_u16(&out->ops);
    out->count = vj_read_u32(&out->ops);
    *most = 0;
    if (out->ops.bad || (out->flags & ~VARJFS_WIRE_BATCH_FLAGS) != 0 ||
        out->safety > VARJFS_WIRE_SAFETY_STORAGE || out->count == 0 ||
        out->count > VARJFS_WIRE_OPS_MAX) {
        return -EPROTO;
    }
    all = *out;
    for (uint32_t i = 0; i < out->count; i++) {
        if (vj_client_op_decode(&all, &op) < 0) {
            return -EPROTO;
        }
        *most += op.most;
    }
    return vj_reader_done(&all.ops) && all.bulk.len == 0 &&
                   *most <= (out->slot == 0 ? VARJFS_WIRE_BATCH_RETURN_MAX
                                            : VARJFS_WIRE_AREA_SLOT_BYTES)
               ? 0
               : -EPROTO;
}

void vj_client_result_encode(GByteArray *to, uint32_t status, uint64_t value)
{
    uint8_t bytes[VARJFS_WIRE_RESULT_BYTES];
    VjWriter w = vj_writer(bytes, sizeof bytes);

    vj_write_u32(&w, status);
    vj_write_u64(&w, value);
    g_assert(!w.bad && w.used == sizeof bytes);
    g_byte_array_append(to, bytes, sizeof bytes);
}

/* The attributes that were asked for, at the end of the message. */
static bool decode_attributes(VjReader *r, VjClientIterate *out)
{
    if (out->attribute_count > (out->what == VARJFS_WIRE_ITERATE_ITEMS
                                    ? VARJFS_WIRE_ITERATE_ATTRIBUTES_MAX
                                    : 0)) {
        return false;
    }
    for (uint16_t i = 0; i < out->attribute_count; i++) {
        uint16_t bytes = vj_read_u16(r);

        out->attributes[i] = vj_read_bytes(r, bytes);
        if (bytes == 0 || bytes > VARJFS_WIRE_ATTRIBUTE_NAME_MAX) {
            return false;
        }
    }
    return vj_reader_done(r);
}

int vj_client_empty_decode(VjSlice message, VjClientEmpty *out)
{
    VjReader r = vj_reader(message);
    uint8_t what = vj_read_u8(&r), reserved = vj_read_u8(&r);
    uint16_t space_bytes = vj_read_u16(&r);

    out->keys = what == VARJFS_WIRE_ITERATE_KEYS;
    out->most = vj_read_u32(&r);
    out->space = vj_read_bytes(&r, space_bytes);
    return vj_reader_done(&r) && reserved == 0 && what <= VARJFS_WIRE_ITERATE_KEYS &&
                   out->most > 0 && out->most <= VARJFS_WIRE_EMPTY_MAX
               ? 0
               : -EPROTO;
}

int vj_client_iterate_decode(VjSlice message, VjClientIterate *out)
{
    VjReader r = vj_reader(message);
    uint16_t space_bytes, prefix_bytes, behind_bytes, object_bytes;
    uint8_t reserved;

    *out = (VjClientIterate){.what = vj_read_u8(&r)};
    reserved = vj_read_u8(&r);
    space_bytes = vj_read_u16(&r);
    prefix_bytes = vj_read_u16(&r);
    behind_bytes = vj_read_u16(&r);
    out->entries_max = vj_read_u32(&r);
    out->bytes_max = vj_read_u32(&r);
    object_bytes = vj_read_u16(&r);
    out->attribute_count = vj_read_u16(&r);
    out->space = vj_read_bytes(&r, space_bytes);
    out->prefix = vj_read_bytes(&r, prefix_bytes);
    out->behind = vj_read_bytes(&r, behind_bytes);
    out->object = vj_read_bytes(&r, object_bytes);
    return decode_attributes(&r, out) && reserved == 0 &&
                   out->what <= VARJFS_WIRE_ITERATE_ITEMS &&
                   (object_bytes > 0) == (out->what == VARJFS_WIRE_ITERATE_ATTRIBUTES) &&
                   (space_bytes > 0 || out->what <= VARJFS_WIRE_ITERATE_KEYS) &&
                   out->entries_max > 0 && out->entries_max <= VARJFS_WIRE_ENTRIES_MAX &&
                   out->bytes_max >= VARJFS_WIRE_ITERATE_BULK_MIN &&
                   out->bytes_max <= VARJFS_WIRE_ITERATE_BULK_MAX &&
                   prefix_bytes <= VARJFS_WIRE_NAME_MAX &&
                   behind_bytes <= VARJFS_WIRE_NAME_MAX
               ? 0
               : -EPROTO;
}

void vj_client_iterate_reply_encode(GByteArray *to, bool more, uint32_t count)
{
    uint8_t bytes[VARJFS_WIRE_ITERATE_REPLY_BYTES];
    VjWriter w = vj_writer(bytes, sizeof bytes);

    vj_write_u8(&w, more);
    vj_write_u32(&w, count);
    g_assert(!w.bad && w.used == sizeof bytes);
    g_byte_array_append(to, bytes, sizeof bytes);
}
