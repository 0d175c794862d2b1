/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * listing.c - the records of a space, copied out of views, a batch each
 *
 * A view that begins anew begins its batch anew; what was given out before stays given
 * out.
 */
#include "meta/meta.h"

/* A batch ends with the record that reaches one of these. */
#define BATCH_RECORDS 64u
#define BATCH_BYTES (64u << 10)

/* A record in the bytes of a batch: the key, the value behind it. */
typedef struct Place {
    size_t at, key_bytes, value_bytes;
} Place;

void vj_listing_begin(VjListing *l, VjMeta *m, VjSpace space)
{
    *l = (VjListing){.meta = m,
                     .space = space,
                     .bytes = g_byte_array_new(),
                     .places = g_array_new(FALSE, FALSE, sizeof(Place))};
}

void vj_listing_behind(VjListing *l, VjSlice key)
{
    g_assert(key.len <= sizeof l->at);
    if (key.len > 0) {
        memmove(l->at, key.data, key.len);
    }
    l->at_bytes = key.len;
    l->next = 0;
    l->at_end = false;
    g_array_set_size(l->places, 0);
}

static void add(VjListing *l, VjSlice key, VjSlice value)
{
    const Place place = {
        .at = l->bytes->len, .key_bytes = key.len, .value_bytes = value.len};

    g_byte_array_append(l->bytes, key.data, (guint)key.len);
    if (value.len > 0) {
        g_byte_array_append(l->bytes, value.data, (guint)value.len);
    }
    g_array_append_val(l->places, place);
}

static int batch_body(VjTxn *txn, void *opaque)
{
    VjListing *l = opaque;
    VjScan scan;

    g_byte_array_set_size(l->bytes, 0);
    g_array_set_size(l->places, 0);
    l->at_end = true;
    vj_scan_begin(&scan, txn, l->space, VJ_SCAN_ALL);
    vj_scan_behind(&scan, vj_slice(l->at, l->at_bytes));
    while (vj_scan_next(&scan)) {
        add(l, scan.key, scan.value);
        if (l->places->len >= BATCH_RECORDS || l->bytes->len >= BATCH_BYTES) {
            l->at_end = false;
            return 0;
        }
    }
    if (scan.error < 0 && scan.error != -EAGAIN && l->places->len > 0) {
        l->at_end = false; /* the records in front of what cannot be read are good */
        return 0;
    }
    return scan.error;
}

bool vj_listing_next(VjListing *l)
{
    const Place *p;

    if (l->error == 0 && l->next == l->places->len && !l->at_end) {
        l->next = 0;
        l->error = vj_meta_view(l->meta, batch_body, l);
    }
    if (l->error < 0 || l->next == l->places->len) {
        return false;
    }
    p = &g_array_index(l->places, Place, l->next);
    l->next++;
    l->key = vj_slice(l->bytes->data + p->at, p->key_bytes);
    l->value = vj_slice(l->bytes->data + p->at + p->key_bytes, p->value_bytes);
    memcpy(l->at, l->key.data, l->key.len);
    l->at_bytes = l->key.len;
    return true;
}

int vj_listing_end(VjListing *l)
{
    g_byte_array_unref(l->bytes);
    g_array_unref(l->places);
    return l->error;
}
