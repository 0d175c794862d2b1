/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * stored-form.c - make, parse and use the trailer that stored-form.h describes
 */
#include "object/stored-form.h"

#define VJ_TRAILER_MAGIC                                                                 \
    ((uint32_t)'V' | (uint32_t)'J' << 8 | (uint32_t)'t' << 16 | (uint32_t)'r' << 24)
#define VJ_TRAILER_VERSION 1u
#define VJ_TRAILER_HAS_ENDS 1u

G_STATIC_ASSERT(VJ_STORED_EVEN_BYTES == 1u << 12);
G_STATIC_ASSERT(VJ_STORED_VARYING_BYTES == 1u << 16);

static uint8_t block_shift(bool varying)
{
    return varying ? 16 : 12;
}

uint32_t vj_stored_block_count(bool varying, uint32_t plain_bytes)
{
    g_assert(plain_bytes > 0);
    return (plain_bytes - 1) / vj_stored_block_bytes(varying) + 1;
}

uint32_t vj_trailer_bytes(bool varying, uint32_t plain_bytes)
{
    return vj_stored_block_count(varying, plain_bytes) * (varying ? 12u : 8u) +
           VJ_TRAILER_FOOTER_BYTES;
}

VjTrailer *vj_trailer_new(uint8_t codec, bool varying, uint32_t plain_bytes)
{
    uint32_t bytes = vj_trailer_bytes(varying, plain_bytes);
    VjTrailer *t = g_try_malloc0(sizeof *t + bytes);

    if (t == NULL) {
        return NULL;
    }
    t->codec = codec;
    t->varying = varying;
    t->plain_bytes = plain_bytes;
    t->block_count = vj_stored_block_count(varying, plain_bytes);
    t->bytes = bytes;
    return t;
}

void vj_trailer_free(VjTrailer *t)
{
    g_free(t);
}

static uint8_t *ends_of(VjTrailer *t)
{
    g_assert(t->varying);
    return t->raw + (size_t)t->block_count * 8;
}

void vj_trailer_add(VjTrailer *t, uint32_t i, const void *stored, uint32_t len)
{
    uint64_t sum = GUINT64_TO_LE(vj_checksum64(stored, len));

    g_assert(i < t->block_count && len > 0);
    g_assert(t->varying || len == vj_trailer_block_plain(t, i));
    memcpy(t->raw + (size_t)i * 8, &sum, sizeof sum);
    t->data_bytes += len;
    if (t->varying) {
        uint32_t end = GUINT32_TO_LE(t->data_bytes);

        memcpy(ends_of(t) + (size_t)i * 4, &end, sizeof end);
    }
}

uint64_t vj_trailer_seal(VjTrailer *t)
{
    VjWriter w =
        vj_writer(t->raw + t->bytes - VJ_TRAILER_FOOTER_BYTES, VJ_TRAILER_FOOTER_BYTES);

    g_assert(t->data_bytes > 0 && (t->varying || t->data_bytes == t->plain_bytes));
    vj_write_u32(&w, t->block_count);
    vj_write_u32(&w, t->plain_bytes);
    vj_write_u32(&w, t->data_bytes);
    vj_write_u8(&w, t->codec);
    vj_write_u8(&w, block_shift(t->varying));
    vj_write_u16(&w, VJ_TRAILER_VERSION);
    vj_write_u32(&w, t->varying ? VJ_TRAILER_HAS_ENDS : 0);
    vj_write_u32(&w, VJ_TRAILER_MAGIC);
    g_assert(!w.bad && w.used == VJ_TRAILER_FOOTER_BYTES);
    return vj_checksum64(t->raw, t->bytes);
}

static bool footer_is_right(const VjTrailer *t)
{
    VjReader r = vj_reader(
        vj_slice(t->raw + t->bytes - VJ_TRAILER_FOOTER_BYTES, VJ_TRAILER_FOOTER_BYTES));
    bool good = vj_read_u32(&r) == t->block_count;

    good = vj_read_u32(&r) == t->plain_bytes && good;
    good = vj_read_u32(&r) == t->data_bytes && good;
    good = vj_read_u8(&r) == t->codec && good;
    good = vj_read_u8(&r) == block_shift(t->varying) && good;
    good = vj_read_u16(&r) == VJ_TRAILER_VERSION && good;
    good = vj_read_u32(&r) == (t->varying ? VJ_TRAILER_HAS_ENDS : 0) && good;
    good = vj_read_u32(&r) == VJ_TRAILER_MAGIC && good;
    return good && vj_reader_done(&r);
}

/* Each block holds something and the last one ends where the data does. */
static bool ends_are_right(const VjTrailer *t)
{
    uint32_t before = 0;

    if (!t->varying) {
        return t->data_bytes == t->plain_bytes;
    }
    for (uint32_t i = 0; i < t->block_count; i++) {
        uint32_t end = vj_trailer_block_end(t, i);

        if (end <= before || end > t->data_bytes) {
            return false;
        }
        before = end;
    }
    return before == t->data_bytes;
}

int vj_trailer_parse(VjSlice raw, uint8_t codec, bool varying, uint32_t plain_bytes,
                     uint32_t stored_bytes, uint64_t checksum, VjTrailer **out)
{
    g_autoptr(VjTrailer) t = NULL;

    *out = NULL;
    if (raw.len != vj_trailer_bytes(varying, plain_bytes) || stored_bytes <= raw.len ||
        vj_checksum64(raw.data, raw.len) != checksum) {
        return -EBADMSG;
    }
    t = vj_trailer_new(codec, varying, plain_bytes);
    if (t == NULL) {
        return -ENOMEM;
    }
    t->data_bytes = stored_bytes - t->bytes;
    memcpy(t->raw, raw.data, raw.len);
    if (!footer_is_right(t) || !ends_are_right(t)) {
        return -EBADMSG;
    }
    *out = g_steal_pointer(&t);
    return 0;
}

uint32_t vj_trailer_block_start(const VjTrailer *t, uint32_t i)
{
    g_assert(i < t->block_count);
    if (!t->varying) {
        return i * VJ_STORED_EVEN_BYTES;
    }
    return i == 0 ? 0 : vj_trailer_block_end(t, i - 1);
}

uint32_t vj_trailer_block_end(const VjTrailer *t, uint32_t i)
{
    g_assert(i < t->block_count);
    if (!t->varying) {
        return i * VJ_STORED_EVEN_BYTES + vj_trailer_block_plain(t, i);
    }
    return vj_le32_get(t->raw + (size_t)t->block_count * 8 + (size_t)i * 4);
}

uint32_t vj_trailer_block_plain(const VjTrailer *t, uint32_t i)
{
    uint32_t block = vj_stored_block_bytes(t->varying);

    g_assert(i < t->block_count);
    return i + 1 < t->block_count ? block : t->plain_bytes - i * block;
}

bool vj_trailer_block_is_right(const VjTrailer *t, uint32_t i, const void *stored)
{
    uint32_t len = vj_trailer_block_end(t, i) - vj_trailer_block_start(t, i);

    return vj_checksum64(stored, len) == vj_le64_get(t->raw + (size_t)i * 8);
}
