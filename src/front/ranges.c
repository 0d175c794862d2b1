/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ranges.c - pages of a file, as ranges: few, in no order, searched one by one
 */
#include "front/front-private.h"

VjPageRange vj_pages_of(uint64_t offset, uint64_t len)
{
    return (VjPageRange){offset / VJ_PAGE_BYTES,
                         (offset + MAX(len, 1) - 1) / VJ_PAGE_BYTES};
}

VjPageRange vj_pages_from(uint64_t offset, uint64_t len)
{
    return (VjPageRange){offset / VJ_PAGE_BYTES,
                         len == 0 ? UINT64_MAX : (offset + len - 1) / VJ_PAGE_BYTES};
}

bool vj_ranges_add(GArray **ranges, guint most, VjPageRange r)
{
    VjPageRange *last;

    if (*ranges == NULL) {
        *ranges = g_array_new(FALSE, FALSE, sizeof(VjPageRange));
    }
    for (guint i = 0; i < (*ranges)->len; i++) {
        VjPageRange *t = &g_array_index(*ranges, VjPageRange, i);

        if (r.first <= t->last + 1 && t->first <= r.last + 1) {
            t->first = MIN(t->first, r.first);
            t->last = MAX(t->last, r.last);
            return true;
        }
    }
    if ((*ranges)->len < most) {
        g_array_append_val(*ranges, r);
        return true;
    }
    last = &g_array_index(*ranges, VjPageRange, most - 1);
    last->first = MIN(last->first, r.first);
    last->last = MAX(last->last, r.last);
    return false;
}

void vj_ranges_remove(GArray *ranges, guint most, VjPageRange r)
{
    for (guint i = 0; ranges != NULL && i < ranges->len;) {
        VjPageRange *t = &g_array_index(ranges, VjPageRange, i);
        VjPageRange behind = {r.last + 1, t->last};

        if (r.first > t->last || t->first > r.last) {
            i++;
        } else if (t->first < r.first && t->last > r.last) {
            if (ranges->len < most) {
                t->last = r.first - 1;
                g_array_append_val(ranges, behind);
            }
            i++;
        } else if (t->first < r.first) {
            t->last = r.first - 1;
            i++;
        } else if (t->last > r.last) {
            t->first = r.last + 1;
            i++;
        } else {
            g_array_remove_index_fast(ranges, i);
        }
    }
}

bool vj_ranges_meet(const GArray *ranges, VjPageRange r)
{
    for (guint i = 0; ranges != NULL && i < ranges->len; i++) {
        const VjPageRange *t = &g_array_index(ranges, VjPageRange, i);

        if (r.first <= t->last && t->first <= r.last) {
            return true;
        }
    }
    return false;
}
