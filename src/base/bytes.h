/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bytes.h - slices, little-endian integers, and cursors that cannot leave their buffer
 *
 * Threads: any; everything here is a plain value.  Locks: none.
 */
#ifndef VJ_BASE_BYTES_H
#define VJ_BASE_BYTES_H

/* Borrowed bytes; data may be NULL only when len is 0. */
typedef struct VjSlice {
    const void *data;
    size_t len; /* bytes */
} VjSlice;

static inline VjSlice vj_slice(const void *data, size_t len)
{
    return (VjSlice){.data = data, .len = len};
}

/* memcmp order; a prefix sorts before what it is a prefix of. */
int vj_slice_compare(VjSlice a, VjSlice b);

/* Unaligned little-endian access; big-endian is for keys, so that they sort by number. */
static inline uint16_t vj_le16_get(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return GUINT16_FROM_LE(v);
}

static inline uint32_t vj_le32_get(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return GUINT32_FROM_LE(v);
}

static inline uint64_t vj_le64_get(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return GUINT64_FROM_LE(v);
}

static inline uint64_t vj_be64_get(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return GUINT64_FROM_BE(v);
}

static inline void vj_be64_set(void *p, uint64_t v)
{
    v = GUINT64_TO_BE(v);
    memcpy(p, &v, sizeof v);
}

static inline uint32_t vj_be32_get(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return GUINT32_FROM_BE(v);
}

static inline void vj_be32_set(void *p, uint32_t v)
{
    v = GUINT32_TO_BE(v);
    memcpy(p, &v, sizeof v);
}

/*
 * VjReader - decode hostile bytes
 *
 * A read past the end gives zeroes and sets @bad for good: decode a whole record in a
 * straight line and look at @bad once, before any of the values is used.
 */
typedef struct VjReader {
    const uint8_t *at;
    size_t left; /* bytes */
    bool bad;
} VjReader;

VjReader vj_reader(VjSlice bytes);
uint8_t vj_read_u8(VjReader *r);
uint16_t vj_read_u16(VjReader *r);
uint32_t vj_read_u32(VjReader *r);
uint64_t vj_read_u64(VjReader *r);
/* Borrowed from the reader's bytes; an empty slice and @bad when fewer are left. */
VjSlice vj_read_bytes(VjReader *r, size_t len);
/* True when nothing was missing and nothing is left over. */
bool vj_reader_done(const VjReader *r);

/*
 * VjWriter - encode into a buffer of fixed size
 *
 * A write past the end writes nothing and sets @bad; the size was the programmer's
 * promise, so callers assert !bad.
 */
typedef struct VjWriter {
    uint8_t *start;
    size_t used; /* bytes */
    size_t cap;  /* bytes */
    bool bad;
} VjWriter;

VjWriter vj_writer(void *dst, size_t cap);
void vj_write_u8(VjWriter *w, uint8_t v);
void vj_write_u16(VjWriter *w, uint16_t v);
void vj_write_u32(VjWriter *w, uint32_t v);
void vj_write_u64(VjWriter *w, uint64_t v);
void vj_write_bytes(VjWriter *w, const void *src, size_t len);

/* XXH3-64, seed 0: the checksum of records, nodes and stored blocks.  Source:
 * digest.c. */
uint64_t vj_checksum64(const void *src, size_t len);

/* The same of bytes that come in pieces. */
typedef struct VjChecksum {
    _Alignas(64) uint8_t state[576];
} VjChecksum;

void vj_checksum_init(VjChecksum *c);
void vj_checksum_add(VjChecksum *c, const void *src, size_t len);
/* Of all that was added so far. */
uint64_t vj_checksum_get(const VjChecksum *c);

#endif
