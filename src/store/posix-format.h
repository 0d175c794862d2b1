/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * posix-format.h - names and locators of the posix driver, as they are on disk
 *
 * An object is the file  TTTTTTTTTT/MMM/IIIIIIIIIIIIIIII.NNNNNNNNNNNNNNNN  below
 * objects/, all lower-case hexadecimal of fixed width: T is id >> 24, M is (id >> 12) &
 * 0xfff, I is the id, N the nonce, a random number of this one put.  So a directory holds
 * the objects of 4096 consecutive ids.  The locator is a magic and the nonce: a late
 * remove of an earlier put names another file.
 *
 * The file "format" in objects/ says whose directory this is: the first line is
 * VJ_POSIX_FORMAT_TEXT; a second, "volume = " and its uuid, is there when the maker named
 * one.
 */
#ifndef VJ_STORE_POSIX_FORMAT_H
#define VJ_STORE_POSIX_FORMAT_H

#include "store/store.h"

#define VJ_POSIX_LOC_MAGIC 0x31504a56u /* "VJP1", little-endian */

/* Layout of VjLoc.bytes; integers are little-endian. */
typedef struct VjPosixLoc {
    uint32_t magic;
    uint32_t zero;
    uint64_t nonce;
} VjPosixLoc;
G_STATIC_ASSERT(sizeof(VjPosixLoc) == VJ_LOC_BYTES);
G_STATIC_ASSERT(G_STRUCT_OFFSET(VjPosixLoc, nonce) == 8);

#define VJ_POSIX_FORMAT_NAME "format"
#define VJ_POSIX_FORMAT_TEXT "varjfs posix store 1\n"
#define VJ_POSIX_FORMAT_VOLUME "volume = "
#define VJ_POSIX_FORMAT_MAX ((size_t)256) /* bytes */

/* Ids of one directory that holds objects. */
#define VJ_POSIX_DIR_IDS 4096u

#define VJ_POSIX_TOP_NAME_BYTES 11u    /* with the NUL */
#define VJ_POSIX_MIDDLE_NAME_BYTES 4u  /* with the NUL */
#define VJ_POSIX_OBJECT_NAME_BYTES 34u /* with the NUL */

VjLoc vj_posix_loc_encode(uint64_t nonce);
/* False: not a locator of this driver. */
bool vj_posix_loc_decode(VjLoc loc, uint64_t *nonce);

/* @dst: the NAME_BYTES above. */
void vj_posix_top_name(uint64_t id, char *dst);
void vj_posix_middle_name(uint64_t id, char *dst);
void vj_posix_object_name(uint64_t id, uint64_t nonce, char *dst);

/* The inverse: true only for a name that the functions above make. */
bool vj_posix_parse_top(const char *name, uint64_t *id_shift_24);
bool vj_posix_parse_middle(const char *name, uint64_t *id_shift_12_low);
bool vj_posix_parse_object(const char *name, uint64_t *id, uint64_t *nonce);

#endif
