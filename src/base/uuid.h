/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * uuid.h - 16 bytes, and their text "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
 *
 * Digits are lower-case.  Threads: any.  Locks: none.
 */
#ifndef VJ_BASE_UUID_H
#define VJ_BASE_UUID_H

#include <stdbool.h>
#include <stdint.h>

#define VJ_UUID_BYTES 16u
#define VJ_UUID_TEXT_BYTES 37u /* with the NUL */

/* False: @text is none, and @bytes are all zero. */
bool vj_uuid_parse(const char *text, uint8_t bytes[VJ_UUID_BYTES]);
void vj_uuid_text(const uint8_t bytes[VJ_UUID_BYTES], char text[VJ_UUID_TEXT_BYTES]);

#endif
