/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* uuid.c - see uuid.h */
#include "base/uuid.h"

#include "base/base.h"

/* A sign stands in front of byte @i. */
static bool has_sign_before(unsigned i)
{
    return i == 4 || i == 6 || i == 8 || i == 10;
}

static int digit_of(char c)
{
    return g_ascii_isupper(c) ? -1 : g_ascii_xdigit_value(c);
}

bool vj_uuid_parse(const char *text, uint8_t bytes[VJ_UUID_BYTES])
{
    const char *at = text;

    memset(bytes, 0, VJ_UUID_BYTES);
    if (strlen(text) != VJ_UUID_TEXT_BYTES - 1) {
        return false;
    }
    for (unsigned i = 0; i < VJ_UUID_BYTES; i++) {
        int high, low;

        if (has_sign_before(i) && *at++ != '-') {
            break;
        }
        high = digit_of(at[0]);
        low = digit_of(at[1]);
        if (high < 0 || low < 0) {
            break;
        }
        bytes[i] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    if (*at != '\0') {
        memset(bytes, 0, VJ_UUID_BYTES);
    }
    return *at == '\0';
}

void vj_uuid_text(const uint8_t bytes[VJ_UUID_BYTES], char text[VJ_UUID_TEXT_BYTES])
{
    char *at = text;

    for (unsigned i = 0; i < VJ_UUID_BYTES; i++) {
        if (has_sign_before(i)) {
            *at++ = '-';
        }
        at += g_snprintf(at, 3, "%02x", bytes[i]);
    }
}
