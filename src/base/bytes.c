/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bytes.c - slices and the two cursors
 *
 * Both cursors are sticky: once something did not fit, nothing more is read or written,
 * so one look at the flag covers a whole record.
 */
#include "base/base.h"

int vj_slice_compare(VjSlice a, VjSlice b)
{
    size_t common = MIN(a.len, b.len);
    int order = common > 0 ? memcmp(a.data, b.data, common) : 0;

    if (order != 0) {
        return order;
    }
    return (a.len > b.len) - (a.len < b.len);
}

VjReader vj_reader(VjSlice bytes)
{
    g_assert(bytes.data != NULL || bytes.len == 0);
    return (VjReader){.at = bytes.data, .left = bytes.len};
}

/* Where the next @len bytes are, already consumed; NULL when there are fewer. */
static const uint8_t *take(VjReader *r, size_t len)
{
    const uint8_t *at = r->at;

    if (r->bad || r->left < len) {
        r->bad = true;
        return NULL;
    }
    if (len > 0) {
        r->at += len;
        r->left -= len;
    }
    return at;
}

uint8_t vj_read_u8(VjReader *r)
{
    const uint8_t *at = take(r, 1);

    return at != NULL ? *at : 0;
}

uint16_t vj_read_u16(VjReader *r)
{
    const uint8_t *at = take(r, 2);

    return at != NULL ? vj_le16_get(at) : 0;
}

uint32_t vj_read_u32(VjReader *r)
{
    const uint8_t *at = take(r, 4);

    return at != NULL ? vj_le32_get(at) : 0;
}

uint64_t vj_read_u64(VjReader *r)
{
    const uint8_t *at = take(r, 8);

    return at != NULL ? vj_le64_get(at) : 0;
}

VjSlice vj_read_bytes(VjReader *r, size_t len)
{
    const uint8_t *at = take(r, len);

    return at != NULL ? vj_slice(at, len) : vj_slice(NULL, 0);
}

bool vj_reader_done(const VjReader *r)
{
    return !r->bad && r->left == 0;
}

VjWriter vj_writer(void *dst, size_t cap)
{
    g_assert(dst != NULL || cap == 0);
    return (VjWriter){.start = dst, .cap = cap};
}

void vj_write_bytes(VjWriter *w, const void *src, size_t len)
{
    if (w->bad || w->cap - w->used < len) {
        w->bad = true;
        return;
    }
    if (len > 0) {
        memcpy(w->start + w->used, src, len);
        w->used += len;
    }
}

void vj_write_u8(VjWriter *w, uint8_t v)
{
    vj_write_bytes(w, &v, sizeof v);
}

void vj_write_u16(VjWriter *w, uint16_t v)
{
    v = GUINT16_TO_LE(v);
    vj_write_bytes(w, &v, sizeof v);
}

void vj_write_u32(VjWriter *w, uint32_t v)
{
    v = GUINT32_TO_LE(v);
    vj_write_bytes(w, &v, sizeof v);
}

void vj_write_u64(VjWriter *w, uint64_t v)
{
    v = GUINT64_TO_LE(v);
    vj_write_bytes(w, &v, sizeof v);
}
