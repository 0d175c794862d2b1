/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* block-format.c - superblocks, keys and locators of the driver block */
#include "store/block-format.h"

G_STATIC_ASSERT(VJ_BLOCK_BYTES <= VJ_BUF_ALIGN);
G_STATIC_ASSERT(VJ_STORE_OBJECT_MAX < UINT64_C(1) << VJ_BLOCK_PLACE_SHIFT);
G_STATIC_ASSERT(VJ_BLOCK_COUNT_MAX == UINT64_C(1) << (64 - VJ_BLOCK_PLACE_SHIFT));

static void put_le(uint8_t *dst, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        dst[i] = (uint8_t)(value >> 8 * i);
    }
}

void vj_block_super_encode(const VjBlockSuper *super, uint8_t *dst)
{
    VjBlockSuperFormat f = {.magic = VJ_BLOCK_MAGIC};

    put_le(f.version, VJ_BLOCK_VERSION, sizeof f.version);
    put_le(f.block_bytes, VJ_BLOCK_BYTES, sizeof f.block_bytes);
    put_le(f.zone_blocks, VJ_BLOCK_ZONE_BLOCKS, sizeof f.zone_blocks);
    put_le(f.sequence, super->sequence, sizeof f.sequence);
    put_le(f.block_count, super->block_count, sizeof f.block_count);
    memcpy(f.volume, super->volume, sizeof f.volume);
    put_le(f.mount, super->mount, sizeof f.mount);
    put_le(f.checksum, vj_checksum64(&f, offsetof(VjBlockSuperFormat, checksum)),
           sizeof f.checksum);
    memcpy(dst, &f, sizeof f);
}

int vj_block_super_decode(const uint8_t *src, VjBlockSuper *out)
{
    uint8_t again[VJ_BLOCK_BYTES];
    VjBlockSuperFormat f;

    memcpy(&f, src, sizeof f);
    if (memcmp(f.magic, VJ_BLOCK_MAGIC, sizeof f.magic) != 0) {
        return -ENODATA;
    }
    if (vj_le64_get(f.checksum) !=
        vj_checksum64(&f, offsetof(VjBlockSuperFormat, checksum))) {
        return -EBADMSG;
    }
    *out = (VjBlockSuper){.sequence = vj_le64_get(f.sequence),
                          .block_count = vj_le64_get(f.block_count),
                          .mount = vj_le64_get(f.mount)};
    memcpy(out->volume, f.volume, VJ_BLOCK_UUID_BYTES - 1);
    vj_block_super_encode(out, again);
    return memcmp(src, again, VJ_BLOCK_BYTES) == 0 &&
                   out->block_count >= VJ_BLOCK_COUNT_MIN &&
                   out->block_count <= VJ_BLOCK_COUNT_MAX
               ? 0
               : -EINVAL;
}

VjLoc vj_block_loc_encode(uint32_t nonce)
{
    VjBlockLocFormat f = {.zero = {0}};
    VjLoc loc;

    vj_be32_set(f.magic, VJ_BLOCK_LOC_MAGIC);
    vj_be32_set(f.nonce, nonce);
    memcpy(loc.bytes, &f, sizeof f);
    return loc;
}

bool vj_block_loc_decode(VjLoc loc, uint32_t *nonce)
{
    VjBlockLocFormat f;

    memcpy(&f, loc.bytes, sizeof f);
    *nonce = vj_be32_get(f.nonce);
    return vj_be32_get(f.magic) == VJ_BLOCK_LOC_MAGIC && vj_be64_get(f.zero) == 0;
}

bool vj_block_is_mount_key(VjSlice key)
{
    return key.len == strlen(VJ_BLOCK_MOUNT_KEY) &&
           memcmp(key.data, VJ_BLOCK_MOUNT_KEY, key.len) == 0;
}

void vj_block_mounts_encode(const VjBlockMounts *mounts, VjStoreChange *out)
{
    VjBlockMountFormat f;

    vj_be64_set(f.last, mounts->last);
    vj_be64_set(f.next, mounts->next);
    vj_be64_set(f.checksum, vj_checksum64(&f, offsetof(VjBlockMountFormat, checksum)));
    *out = (VjStoreChange){.key_len = strlen(VJ_BLOCK_MOUNT_KEY), .value_len = sizeof f};
    memcpy(out->key, VJ_BLOCK_MOUNT_KEY, out->key_len);
    memcpy(out->value, &f, sizeof f);
}

bool vj_block_mounts_decode(VjSlice value, VjBlockMounts *out)
{
    VjBlockMountFormat f;

    if (value.len != sizeof f) {
        return false;
    }
    memcpy(&f, value.data, sizeof f);
    *out = (VjBlockMounts){.last = vj_be64_get(f.last), .next = vj_be64_get(f.next)};
    return vj_be64_get(f.checksum) ==
           vj_checksum64(&f, offsetof(VjBlockMountFormat, checksum));
}

static uint64_t sum_of_key(const VjBlockKeyFormat *key, const VjBlockValueFormat *value)
{
    uint8_t both[sizeof *key + offsetof(VjBlockValueFormat, checksum)];

    memcpy(both, key, sizeof *key);
    memcpy(both + sizeof *key, value, offsetof(VjBlockValueFormat, checksum));
    return vj_checksum64(both, sizeof both);
}

void vj_block_key_delete(uint64_t id, uint32_t nonce, VjStoreChange *out)
{
    VjBlockKeyFormat key;

    vj_be64_set(key.id, id);
    vj_be32_set(key.nonce, nonce);
    *out = (VjStoreChange){.key_len = sizeof key};
    memcpy(out->key, &key, sizeof key);
}

void vj_block_key_encode(const VjBlockObject *object, VjStoreChange *out)
{
    VjBlockValueFormat value;
    VjBlockKeyFormat key;

    vj_block_key_delete(object->id, object->nonce, out);
    memcpy(&key, out->key, sizeof key);
    vj_be64_set(value.place, vj_block_place_encode(object));
    vj_be32_set(value.put_s, object->put_s);
    vj_be64_set(value.checksum, sum_of_key(&key, &value));
    out->value_len = sizeof value;
    memcpy(out->value, &value, sizeof value);
}

bool vj_block_key_decode(VjSlice key, VjSlice value, uint64_t block_count,
                         VjBlockObject *out)
{
    VjBlockValueFormat v;
    VjBlockKeyFormat k;

    if (key.len != sizeof k || value.len != sizeof v) {
        return false;
    }
    memcpy(&k, key.data, sizeof k);
    memcpy(&v, value.data, sizeof v);
    if (vj_be64_get(v.checksum) != sum_of_key(&k, &v)) {
        return false;
    }
    *out = (VjBlockObject){.id = vj_be64_get(k.id),
                           .nonce = vj_be32_get(k.nonce),
                           .put_s = vj_be32_get(v.put_s)};
    vj_block_place_decode(vj_be64_get(v.place), out);
    return out->bytes <= VJ_STORE_OBJECT_MAX &&
           out->first_block >= VJ_BLOCK_HEAD_BLOCKS && out->first_block < block_count &&
           vj_block_count_of(out->bytes) <= block_count - out->first_block;
}

bool vj_block_key_mend(VjSlice key, VjSlice value, uint64_t block_count,
                       VjBlockObject *out)
{
    uint8_t k[sizeof(VjBlockKeyFormat)], v[sizeof(VjBlockValueFormat)];

    if (key.len != sizeof k || value.len != sizeof v) {
        return false;
    }
    memcpy(k, key.data, sizeof k);
    memcpy(v, value.data, sizeof v);
    for (size_t bit = 0; bit < (sizeof k + sizeof v) * 8; bit++) {
        uint8_t *at = bit / 8 < sizeof k ? &k[bit / 8] : &v[bit / 8 - sizeof k];

        *at ^= (uint8_t)(1u << bit % 8);
        if (vj_block_key_decode(vj_slice(k, sizeof k), vj_slice(v, sizeof v), block_count,
                                out)) {
            return true;
        }
        *at ^= (uint8_t)(1u << bit % 8);
    }
    return false;
}
