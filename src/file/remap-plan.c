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

/* How far the scan has come. */
typedef struct Progress {
    uint64_t at;      /* the next entry */
    uint64_t covered; /* spans say what there is before */
    uint64_t cost;    /* bytes of objects, about */
    uint64_t end;     /* of the last fragment */
    guint entries;
    guint spans, mems; /* of the scan, before this snapshot */
    uint32_t found;    /* fragments that can be read */
} Progress;

typedef struct Scan {
    VjOldMap *old;
    uint64_t most_bytes;
    uint32_t avg_bytes;
    GArray *spans;
    GPtrArray *mems;
    Progress before; /* this snapshot */
    Progress now;
} Scan;

static void add_base(Scan *s, uint64_t to)
{
    uint64_t covered = s->now.covered;

    if (to > covered) {
        VjPiece piece = {.kind = VJ_PIECE_BASE, .start = covered, .length = to - covered};

        g_array_append_val(s->spans, piece);
        s->now.covered = to;
    }
}

static int add_fragment(Scan *s, VjTxn *txn, const VjEntry *entry)
{
    VjPiece piece = {.kind = VJ_PIECE_MEMORY, .length = entry->length};
    Progress *p = &s->now;
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
    add_base(s, p->at);
    piece.mem = mem;
    g_array_append_val(s->spans, piece);
    p->covered += entry->length;
    /* What lies between two that are near is cut anew as well. */
    p->cost += entry->length + MIN(p->found > 0 ? p->at - p->end : UINT64_MAX,
                                   2 * (uint64_t)s->avg_bytes);
    p->end = p->covered;
    p->found++;
    return 0;
}

static bool is_enough(const Scan *s)
{
    const Progress *p = &s->now;

    return p->cost >= s->most_bytes || p->found >= STEP_FRAGMENTS ||
           p->entries >= STEP_ENTRIES;
}

/* As if this snapshot had not been looked at yet. */
static void begin_anew(Scan *s)
{
    s->now = s->before;
    g_array_set_size(s->spans, s->before.spans);
    g_ptr_array_set_size(s->mems, (gint)s->before.mems);
}

/* Entries from s->before.at on, out of one snapshot. */
static int scan_body(VjTxn *txn, void *opaque)
{
    Scan *s = opaque;
    Progress *p = &s->now;
    guint until = s->before.entries + SNAPSHOT_ENTRIES;
    g_autoptr(VjMapCursor) cursor = vj_map_cursor_new(txn, s->old->ino, &s->old->root);
    VjEntry entry;
    uint64_t at;
    int r;

    begin_anew(s);
    for (r = vj_map_cursor_seek(cursor, p->at, &entry, &at); r == 0;
         r = vj_map_cursor_next(cursor, &entry, &at)) {
        if (is_enough(s) || p->entries >= until) {
            break;
        }
        p->at = at;
        p->entries++;
        if (entry.kind == VJ_ENTRY_FRAGMENT) {
            r = add_fragment(s, txn, &entry);
            if (r < 0) {
                return r;
            }
        }
        p->at = at + entry.length;
    }
    if (r == -ENOENT) {
        p->at = s->old->root.bytes;
        r = 0;
    }
    return r;
}

static int scan_some(Scan *s)
{
    s->before = s->now;
    s->before.spans = s->spans->len;
    s->before.mems = s->mems->len;
    return vj_meta_view(s->old->table->meta, scan_body, s);
}

int vj_remap_plan(VjOldMap *old, VjRemapPlan *plan, uint32_t avg_bytes, GArray *spans,
                  GPtrArray *mems)
{
    Scan s = {.old = old,
              .most_bytes = plan->most_bytes,
              .avg_bytes = avg_bytes,
              .spans = spans,
              .mems = mems,
              .now = {.at = plan->from}};
    int r = 0;

    while (r == 0 && s.now.at < old->root.bytes && !is_enough(&s)) {
        r = scan_some(&s);
    }
    plan->found = s.now.found;
    if (r == 0) {
        add_base(&s, old->root.bytes);
        plan->to = s.now.at;
    }
    return r;
}
