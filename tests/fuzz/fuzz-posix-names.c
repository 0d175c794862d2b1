/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * File names and locators of the posix store from any bytes: what is taken for one is
 * what the store would make of the same id, and nothing else is.
 */
#include "fuzz.h"

#include "store/posix-format.h"

/* As readdir gives it: a NUL ends it, and nothing behind that may be looked at. */
static void try_name(const char *name)
{
    char made[VJ_POSIX_OBJECT_NAME_BYTES];
    uint64_t id, nonce;

    if (vj_posix_parse_object(name, &id, &nonce)) {
        vj_posix_object_name(id, nonce, made);
        g_assert(strcmp(made, name) == 0);
    }
    if (vj_posix_parse_top(name, &id)) {
        g_assert(id < (uint64_t)1 << 40);
        vj_posix_top_name(id << 24, made);
        g_assert(strcmp(made, name) == 0);
    }
    if (vj_posix_parse_middle(name, &id)) {
        g_assert(id < 4096);
        vj_posix_middle_name(id << 12, made);
        g_assert(strcmp(made, name) == 0);
    }
}

static void try_locator(const uint8_t *data, size_t len)
{
    VjLoc loc, again;
    uint64_t nonce;

    if (len < sizeof loc.bytes) {
        return;
    }
    memcpy(loc.bytes, data, sizeof loc.bytes);
    if (vj_posix_loc_decode(loc, &nonce)) {
        again = vj_posix_loc_encode(nonce);
        g_assert(memcmp(&again, &loc, sizeof loc) == 0);
    }
}

/* What the store makes of any id is a name that it knows again. */
static void try_id(const uint8_t *data, size_t len)
{
    char object[VJ_POSIX_OBJECT_NAME_BYTES], top[VJ_POSIX_TOP_NAME_BYTES],
        middle[VJ_POSIX_MIDDLE_NAME_BYTES];
    uint64_t id, nonce, got_id, got_nonce, high, low;

    if (len < 16) {
        return;
    }
    id = vj_le64_get(data);
    nonce = vj_le64_get(data + 8);
    vj_posix_object_name(id, nonce, object);
    vj_posix_top_name(id, top);
    vj_posix_middle_name(id, middle);
    g_assert(vj_posix_parse_object(object, &got_id, &got_nonce));
    g_assert(got_id == id && got_nonce == nonce);
    g_assert(vj_posix_parse_top(top, &high) && vj_posix_parse_middle(middle, &low));
    g_assert((high << 24 | low << 12) == (id & ~(uint64_t)0xfff));
}

FUZZ_MUTATIONS(400);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    g_autofree char *name = g_strndup((const char *)data, len);
    /* Of its exact length, so that a read behind its end is found. */
    g_autofree char *exact = g_strdup(name);

    try_name(exact);
    try_locator(data, len);
    try_id(data, len);
    return 0;
}
