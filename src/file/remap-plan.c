/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remap-plan.c - which fragments of a file one step makes into objects
 *
 * The content of a step does not change.  What lies in fragments is given to recut.c as
 * memory, as if it had just been written: so it is cut with what is around it, where a
 * writer of the whole file would have cut, and ends as soon as the cuts agree with old
 * ones.  Fragments that cannot be read are left to the map.
 */
#include "file/write-back-private.h"

/* Entries looked at in one snapshot, and in one step. */
#define SNAPSHOT_ENTRIES 4096u
#define STEP_ENTRIES 65536u
/* Fragments of one step: all of them are in memory. */
#define STEP_FRAGMENTS 1024u

typedef struct Scan {
    VjOldMap *old;
    VjRemapPlan *plan;
    uint32_t avg_bytes;
    GArray *spans;
    GPtrArray *mems;
    uint64_t at;      /* the next entry */
    uint64_t covered; /* spans say what there is before */
    uint64_t cost;    /* bytes of objects, about */
    uint64_t end;     /* of the last fragment */
    guint entries;
} Scan;

static void add_base(Scan *s, uint64_t to)
{
    if (to > s->covered) {
        VjPiece piece = {
            .kind = VJ_PIECE_BASE, .start = s->covered, .length = to - s->covered};

        g_array_append_val(s->spans, piece);
        s->covered = to;
    }
}

static int add_fragment(Scan *s, VjTxn *txn, const VjEntry *entry)
{
    VjPiece piece = {.kind = VJ_PIECE_MEMORY, .length = entry->length};
    VjMem *mem;
    int r;

    if (entry->length > VJ_FILE_INLINE_MAX) {
        return 0; /* as if it could not be read */
    }
    mem = vj_mem_new(&s->old->table->dirty, entry->length);
    if (mem == NULL) {
        return -ENOMEM;
    }
    r = vj_fragment_get(txn, s->old->ino, entry, 0, mem->data, entry->length);
    if (r < 0) {
        vj_mem_unref(mem);
        return vj_is_damage(r) ? 0 : r;
    }
    mem->len = entry->length;
    g_ptr_array_add(s->mems, mem);
    add_base(s, s->at);
    piece.mem = mem;
    g_array_append_val(s->spans, piece);
    s->covered += entry->length;
    /* What lies between two that are near is cut anew as well. */
    s->cost += entry->length + MIN(s->plan->found > 0 ? s->at - s->end : UINT64_MAX,
                                   2 * (uint64_t)s->avg_bytes);
    s->end = s->covered;
    s->plan->found++;
    return 0;
}

static bool is_enough(const Scan *s)
{
    return s->cost >= s->plan->most_bytes || s->plan->found >= STEP_FRAGMENTS ||
           s->entries >= STEP_ENTRIES;
}

/* Entries from s->at on, out of one snapshot. */
static int scan_some(Scan *s)
{
    VJ_AUTO_READ_TXN *txn = NULL;
    g_autoptr(VjMapCursor) cursor = NULL;
    guint until = s->entries + SNAPSHOT_ENTRIES;
    VjEntry entry;
    uint64_t at;
    int r = vj_meta_begin_read(s->old->table->meta, &txn);

    if (r < 0) {
        return r;
    }
    cursor = vj_map_cursor_new(txn, s->old->ino, &s->old->root);
    for (r = vj_map_cursor_seek(cursor, s->at, &entry, &at); r == 0;
         r = vj_map_cursor_next(cursor, &entry, &at)) {
        if (is_enough(s) || s->entries >= until) {
            break;
        }
        s->at = at;
        s->entries++;
        if (entry.kind == VJ_ENTRY_FRAGMENT) {
            r = add_fragment(s, txn, &entry);
            if (r < 0) {
                return r;
            }
        }
        s->at = at + entry.length;
    }
    if (r == -ENOENT) {
        s->at = s->old->root.bytes;
        r = 0;
    }
    return r;
}

int vj_remap_plan(VjOldMap *old, VjRemapPlan *plan, uint32_t avg_bytes, GArray *spans,
                  GPtrArray *mems)
{
    Scan s = {.old = old,
              .plan = plan,
              .avg_bytes = avg_bytes,
              .spans = spans,
              .mems = mems,
              .at = plan->from};
    int r = 0;

    while (r == 0 && s.at < old->root.bytes && !is_enough(&s)) {
        r = scan_some(&s);
    }
    if (r == 0) {
        add_base(&s, old->root.bytes);
        plan->to = s.at;
    }
    return r;
}
