/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * stored-form.h - what the store keeps for one object: data, then the trailer
 *
 *     ┌──────────────────────────────────┬───────────┬────────────┬────────┐
 *     │ data: block 0, block 1, …        │ checksums │ ends       │ footer │
 *     └──────────────────────────────────┴───────────┴────────────┴────────┘
 *     0                                  data bytes                stored bytes
 *
 * The data comes first, so that byte 0 of a `none` object is byte 0 of its content. There
 * are two shapes; which one is said by the transformation:
 *
 *   even     (none, xor, all that keep the length) a block is 4096 bytes of content,
 *            stored at the offset that it has in the content; the last one may be shorter
 *   varying  (all others) a block is the encoded form of 65536 bytes of content (the last
 *            one: of what is left); blocks follow one another without gaps
 *
 * The trailer, little-endian, without padding:
 *
 *   checksums  count × 8   XXH3-64 (seed 0) of each block as it is stored
 *   ends       count × 4   varying only: offset behind the block, from the object's start
 *   footer     24 bytes    the last of the object, so that it is found from the end:
 *        0   4  number of blocks       4   4  plain bytes      8   4  data bytes
 *       12   1  codec                 13   1  log2 of a block's plain bytes (12 or 16)
 *       14   2  version, 1            16   4  flags: bit 0 = there are ends
 *       20   4  magic "VJtr"
 *
 * XXH3-64 of the whole trailer (checksums to magic) is in the object record.  A reader
 * gets the trailer, compares that sum, and from then on believes it; a block is believed
 * when its own sum is right.  So damage costs the block that it hit and no other, and a
 * trailer that belongs to other bytes is never believed.
 */
#ifndef VJ_OBJECT_STORED_FORM_H
#define VJ_OBJECT_STORED_FORM_H

#include "base/base.h"

#define VJ_STORED_EVEN_BYTES 4096u
#define VJ_STORED_VARYING_BYTES 65536u
#define VJ_TRAILER_FOOTER_BYTES 24u

/* A trailer in memory: counts, and the bytes as they are stored.  Read-only once made. */
typedef struct VjTrailer {
    uint8_t codec;
    bool varying;
    uint32_t plain_bytes;
    uint32_t data_bytes;
    uint32_t block_count;
    uint32_t bytes; /* of raw */
    uint8_t raw[];
} VjTrailer;

/* Plain bytes of a block (but the last). */
static inline uint32_t vj_stored_block_bytes(bool varying)
{
    return varying ? VJ_STORED_VARYING_BYTES : VJ_STORED_EVEN_BYTES;
}

uint32_t vj_stored_block_count(bool varying, uint32_t plain_bytes);
/* Bytes of the trailer of so many plain bytes. */
uint32_t vj_trailer_bytes(bool varying, uint32_t plain_bytes);

/* Returns owned (vj_trailer_free), sums unset; NULL when memory is short. */
VjTrailer *vj_trailer_new(uint8_t codec, bool varying, uint32_t plain_bytes);
void vj_trailer_free(VjTrailer *t);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjTrailer, vj_trailer_free)

/* Block @i as it is stored; called for each in order. */
void vj_trailer_add(VjTrailer *t, uint32_t i, const void *stored, uint32_t len);
/* After the last: writes the footer and returns the checksum for the record. */
uint64_t vj_trailer_seal(VjTrailer *t);

/*
 * vj_trailer_parse - believe stored bytes, or not
 *
 * Everything that the object record says is compared; the ends are in order and within
 * the data.  The bytes are hostile.
 * @out      owned
 * Returns   0; -EBADMSG; -ENOMEM
 */
int vj_trailer_parse(VjSlice raw, uint8_t codec, bool varying, uint32_t plain_bytes,
                     uint32_t stored_bytes, uint64_t checksum,
                     VjTrailer **out) G_GNUC_WARN_UNUSED_RESULT;

/* Where block @i is stored, from the object's start. */
uint32_t vj_trailer_block_start(const VjTrailer *t, uint32_t i);
uint32_t vj_trailer_block_end(const VjTrailer *t, uint32_t i);
/* Content bytes of block @i. */
uint32_t vj_trailer_block_plain(const VjTrailer *t, uint32_t i);
/* @stored is block @i, whole. */
bool vj_trailer_block_is_right(const VjTrailer *t, uint32_t i, const void *stored);

#endif
