/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * posix-format.c - encoders and decoders of posix-format.h; names come from a directory
 * that any program may have written to, locators from metadata: both are hostile
 */
#include "store/posix-format.h"

#define TOP_DIGITS (VJ_POSIX_TOP_NAME_BYTES - 1)
#define MIDDLE_DIGITS (VJ_POSIX_MIDDLE_NAME_BYTES - 1)
#define ID_DIGITS 16u

G_STATIC_ASSERT(VJ_POSIX_OBJECT_NAME_BYTES == 2 * ID_DIGITS + 2);

VjLoc vj_posix_loc_encode(uint64_t nonce)
{
    VjPosixLoc fields = {.magic = GUINT32_TO_LE(VJ_POSIX_LOC_MAGIC),
                         .nonce = GUINT64_TO_LE(nonce)};
    VjLoc loc;

    memcpy(loc.bytes, &fields, sizeof loc.bytes);
    return loc;
}

bool vj_posix_loc_decode(VjLoc loc, uint64_t *nonce)
{
    *nonce = vj_le64_get(loc.bytes + G_STRUCT_OFFSET(VjPosixLoc, nonce));
    return vj_le32_get(loc.bytes) == VJ_POSIX_LOC_MAGIC &&
           vj_le32_get(loc.bytes + G_STRUCT_OFFSET(VjPosixLoc, zero)) == 0;
}

static void put_hex(char *dst, uint64_t value, size_t digit_count)
{
    for (size_t i = digit_count; i > 0; i--) {
        dst[i - 1] = "0123456789abcdef"[value & 0xf];
        value >>= 4;
    }
    g_assert(value == 0);
}

/* Exactly @digit_count lower-case digits; stops at the first other byte, also at a NUL.
 */
static bool get_hex(const char *src, size_t digit_count, uint64_t *value)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < digit_count; i++) {
        char c = src[i];

        if (c >= '0' && c <= '9') {
            sum = sum << 4 | (uint64_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            sum = sum << 4 | (uint64_t)(c - 'a' + 10);
        } else {
            return false;
        }
    }
    *value = sum;
    return true;
}

void vj_posix_top_name(uint64_t id, char *dst)
{
    put_hex(dst, id >> 24, TOP_DIGITS);
    dst[TOP_DIGITS] = '\0';
}

void vj_posix_middle_name(uint64_t id, char *dst)
{
    put_hex(dst, id >> 12 & 0xfff, MIDDLE_DIGITS);
    dst[MIDDLE_DIGITS] = '\0';
}

void vj_posix_object_name(uint64_t id, uint64_t nonce, char *dst)
{
    put_hex(dst, id, ID_DIGITS);
    dst[ID_DIGITS] = '.';
    put_hex(dst + ID_DIGITS + 1, nonce, ID_DIGITS);
    dst[VJ_POSIX_OBJECT_NAME_BYTES - 1] = '\0';
}

bool vj_posix_parse_top(const char *name, uint64_t *id_shift_24)
{
    return get_hex(name, TOP_DIGITS, id_shift_24) && name[TOP_DIGITS] == '\0';
}

bool vj_posix_parse_middle(const char *name, uint64_t *id_shift_12_low)
{
    return get_hex(name, MIDDLE_DIGITS, id_shift_12_low) && name[MIDDLE_DIGITS] == '\0';
}

bool vj_posix_parse_object(const char *name, uint64_t *id, uint64_t *nonce)
{
    return get_hex(name, ID_DIGITS, id) && name[ID_DIGITS] == '.' &&
           get_hex(name + ID_DIGITS + 1, ID_DIGITS, nonce) &&
           name[VJ_POSIX_OBJECT_NAME_BYTES - 1] == '\0';
}
