/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * A map node from any bytes, under the inode and number that its own head names: as it
 * is, and again with the checksum put right, so that what lies behind the checksum is
 * reached.  What is accepted encodes to the same bytes.
 */
#include "fuzz.h"

#include "map/map-format.h"

static void expect_sound(const VjMapImage *image)
{
    VjMapSums sums = {0};

    g_assert(image->count > 0 && image->level < VJ_MAP_HEIGHT_MAX);
    for (unsigned i = 0; i < image->count; i++) {
        if (image->level == 0) {
            g_assert(vj_map_entry_is_valid(&image->entries[i]));
            sums.bytes += image->entries[i].length;
            sums.stored_bytes += image->entries[i].stored_bytes;
        } else {
            g_assert(image->children[i].node != 0);
            sums.bytes += image->children[i].sums.bytes;
            sums.stored_bytes += image->children[i].sums.stored_bytes;
        }
    }
    g_assert(sums.bytes == image->sums.bytes && sums.bytes <= VJ_MAP_BYTES_MAX);
    g_assert(sums.stored_bytes == image->sums.stored_bytes);
}

static void try_decode(const uint8_t *data, size_t len)
{
    VjReader r = vj_reader(vj_slice(data, len));
    g_autofree VjMapImage *image = g_new0(VjMapImage, 1);
    uint64_t ino;
    uint32_t node;
    int rc;

    (void)vj_read_u64(&r);
    ino = vj_read_u64(&r);
    node = vj_read_u32(&r);
    rc = vj_map_image_decode(vj_slice(data, len), ino, node, image);
    g_assert(rc == 0 || rc == -EBADMSG);
    if (rc == 0) {
        uint8_t again[VJ_META_VALUE_CHEAP];

        expect_sound(image);
        g_assert(vj_map_image_encode(image, again) == len);
        g_assert(memcmp(again, data, len) == 0);
    }
    rc = vj_map_image_decode(vj_slice(data, len), ino + 1, node, image);
    g_assert(rc == -EBADMSG);
}

FUZZ_MUTATIONS(400);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    try_decode(data, len);
    if (len >= VJ_MAP_CHECKSUM_BYTES) {
        g_autofree uint8_t *forged = g_memdup2(data, len);
        uint64_t sum = GUINT64_TO_LE(vj_checksum64(data, len - VJ_MAP_CHECKSUM_BYTES));

        memcpy(forged + len - VJ_MAP_CHECKSUM_BYTES, &sum, sizeof sum);
        try_decode(forged, len);
    }
    return 0;
}
