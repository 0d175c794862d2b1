/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * reserve.c - space that a change and its write-back may take
 *
 * A change reserves the most that its write-back can put, before it is accepted (space.c
 * keeps the sum).  The reserve is given back when that write-back is over.
 */
#include "file/file-private.h"

uint64_t vj_file_stored_at_worst(const VjFile *f, uint64_t len)
{
    uint64_t objects = len / (f->sizes.avg_bytes / 2) + 1;

    return len + len / 256 + objects * VJ_SPACE_OBJECT_OVERHEAD;
}

uint64_t vj_file_worst_case(const VjFile *f, uint64_t len, bool sequential)
{
    uint64_t around = 4 * (uint64_t)f->sizes.avg_bytes;

    return vj_file_stored_at_worst(f, len + (sequential ? 0 : around));
}

int vj_file_reserve_locked(VjFile *f, size_t len, bool sequential)
{
    uint64_t size = vj_pieces_length(f->active) + len;
    /* The whole file rewritten is the most that write-back ever puts. */
    uint64_t whole = vj_file_stored_at_worst(f, size) + 64 * VJ_KIB;
    uint64_t want = f->reserved_bytes + vj_file_worst_case(f, len, sequential);
    int r = 0;

    want = MIN(want, MAX(whole, f->reserved_bytes));
    if (want > f->reserved_bytes) {
        r = vj_space_try(&f->table->space, want - f->reserved_bytes);
        if (r == 0) {
            f->reserved_bytes = want;
        }
    }
    return r;
}

void vj_file_table_reclaim(VjFileTable *table)
{
    if (table->remapper == NULL) { /* nothing is removed */
        return;
    }
    /* What has no name makes its objects dead. */
    table->events->drop_orphans(table->opaque);
    if (vj_objects_reap_now(table->objects) < 0) {
        vj_log_warn("store: dead objects cannot be removed yet");
    }
    vj_space_release_measured(&table->space, 0);
}
