/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Superblocks, keys and locators of the store block from any bytes: what is taken is what
 * the store writes, and nothing else is; a key that is put right differs by one bit.
 */
#include "fuzz.h"

#include "store/block-format.h"

#define KEY sizeof(VjBlockKeyFormat)
#define VALUE sizeof(VjBlockValueFormat)

static void try_super(const uint8_t *data, size_t len)
{
    uint8_t block[VJ_BLOCK_BYTES] = {0}, again[VJ_BLOCK_BYTES];
    uint64_t sum;
    VjBlockSuper super;

    memcpy(block, data, MIN(len, sizeof block));
    for (int pass = 0; pass < 2; pass++) {
        if (vj_block_super_decode(block, &super) == 0) {
            g_assert(super.block_count >= VJ_BLOCK_COUNT_MIN);
            g_assert(memchr(super.volume, '\0', sizeof super.volume) != NULL);
            vj_block_super_encode(&super, again);
            g_assert(memcmp(block, again, sizeof block) == 0);
        }
        sum = GUINT64_TO_LE(vj_checksum64(block, sizeof block - 8));
        memcpy(block + sizeof block - 8, &sum, sizeof sum);
    }
}

static void expect_same(const uint8_t *data, const VjBlockObject *object)
{
    VjStoreChange change;

    g_assert(object->first_block >= VJ_BLOCK_HEAD_BLOCKS);
    vj_block_key_encode(object, &change);
    g_assert(change.key_len == KEY && change.value_len == VALUE);
    g_assert(memcmp(change.key, data, KEY) == 0);
    g_assert(memcmp(change.value, data + KEY, VALUE) == 0);
}

static unsigned different_bits(const uint8_t *data, const VjBlockObject *object)
{
    VjStoreChange change;
    unsigned bits = 0;

    vj_block_key_encode(object, &change);
    for (size_t i = 0; i < KEY + VALUE; i++) {
        bits += (unsigned)__builtin_popcount(
            data[i] ^ (i < KEY ? change.key[i] : change.value[i - KEY]));
    }
    return bits;
}

static void try_key(const uint8_t *data, size_t len)
{
    uint8_t both[KEY + VALUE];
    VjSlice key = vj_slice(both, KEY), value = vj_slice(both + KEY, VALUE);
    VjBlockObject object;

    g_assert(!vj_block_key_decode(vj_slice(data, len), vj_slice(data, len),
                                  VJ_BLOCK_COUNT_MAX, &object));
    if (len < sizeof both) {
        return;
    }
    memcpy(both, data, sizeof both);
    if (vj_block_key_decode(key, value, VJ_BLOCK_COUNT_MAX, &object)) {
        expect_same(both, &object);
    } else if (vj_block_key_mend(key, value, VJ_BLOCK_COUNT_MAX, &object)) {
        g_assert(different_bits(both, &object) == 1);
    }
}

static void try_locator(const uint8_t *data, size_t len)
{
    VjLoc loc, again;
    uint32_t nonce;

    if (len < sizeof loc.bytes) {
        return;
    }
    memcpy(loc.bytes, data, sizeof loc.bytes);
    if (vj_block_loc_decode(loc, &nonce)) {
        again = vj_block_loc_encode(nonce);
        g_assert(memcmp(&again, &loc, sizeof loc) == 0);
    }
}

FUZZ_MUTATIONS(3000);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    try_super(data, len);
    try_key(data, len);
    try_locator(data, len);
    return 0;
}
