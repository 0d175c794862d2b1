/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * recent-changes.c - see recent-changes-private.h
 */
#include "meta/recent-changes-private.h"

void vj_recent_add(VjRecentChanges *t, const VjKey *key, bool own)
{
    uint64_t number = t->count + 1;
    VjRecentChange *to = &t->ring[number % VJ_RECENT_CHANGES_MAX];
    uint8_t *bytes = key != NULL ? g_try_malloc(key->key.len) : NULL;

    g_free(to->bytes);
    *to = (VjRecentChange){.bytes = bytes, .own = own};
    if (bytes == NULL) {
        t->floor = number;
    } else {
        memcpy(bytes, key->key.data, key->key.len);
        to->key = (VjKey){key->space, vj_slice(bytes, key->key.len)};
    }
    __atomic_store_n(&t->count, number, __ATOMIC_RELEASE);
}

void vj_recent_clear(VjRecentChanges *t)
{
    for (size_t i = 0; i < VJ_RECENT_CHANGES_MAX; i++) {
        g_clear_pointer(&t->ring[i].bytes, g_free);
    }
}
