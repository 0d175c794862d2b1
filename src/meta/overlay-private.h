/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * overlay-private.h - an ordered map in memory, with versions for snapshots
 *
 * Holds what a write transaction changed (a private overlay), and what was committed but
 * is not yet in the engine's file (a generation).  A key maps to a chain of versions,
 * newest first; a version is a value or a tombstone.  An entry is never unlinked while
 * its overlay lives, so a pointer to one stays good and a walk may be resumed from it.
 *
 * Ordered by skip lists, one per space: an entry moves from a private overlay into a
 * generation without a copy, and both neighbours of any key are one search away.  A
 * generation with many entries has an index besides, chains by a hash: to find one key in
 * it costs as much however long the lists are.
 *
 * Threads: one at a time, or several that only read.  Locks: none; session-private.h says
 * what guards which overlay.
 */
#ifndef VJ_META_OVERLAY_PRIVATE_H
#define VJ_META_OVERLAY_PRIVATE_H

#include "meta/engine.h"

/* With one entry of four promoted, 12 levels serve 4^12 entries. */
#define VJ_OVERLAY_LEVELS 12u

typedef struct VjVersion VjVersion;
struct VjVersion {
    VjVersion *older; /* what some snapshot still needs */
    uint64_t seq;     /* the commit that wrote it; 0 in a private overlay */
    uint32_t value_bytes;
    bool tombstone;
    uint8_t value[];
};

/* The first 16 bytes of a key as numbers that sort as they do; zeros behind a shorter
 * one. */
typedef struct VjKeyHead {
    uint64_t high, low;
} VjKeyHead;

typedef struct VjOverlayEntry VjOverlayEntry;
struct VjOverlayEntry {
    VjVersion *newest;             /* never NULL */
    VjOverlayEntry *back;          /* the entry before this one; NULL: none */
    VjOverlayEntry *next_unlogged; /* while it is in the overlay's list of those */
    VjOverlayEntry *next_alike;    /* in its chain of the index */
    uint16_t key_bytes;
    uint8_t levels;
    uint8_t space;
    bool unlogged;
    VjKeyHead head;            /* most searches need no more of the key */
    VjOverlayEntry *forward[]; /* levels pointers; the key follows them */
};

typedef struct VjOverlayList {
    VjOverlayEntry *head[VJ_OVERLAY_LEVELS];
    VjOverlayEntry *last;
    VjOverlayEntry *last_of[VJ_OVERLAY_LEVELS]; /* on each level; NULL: it is empty */
    uint32_t levels;                            /* in use */
} VjOverlayList;

typedef struct VjOverlay {
    VjOverlayList lists[VJ_SPACE_COUNT];
    VjTally tally[VJ_SPACE_COUNT]; /* of the newest versions */
    uint64_t bytes;                /* of memory, versions kept for snapshots included */
    uint64_t entry_count;
    uint64_t coin; /* state of the generator that draws levels */
    /* The index; NULL: it has none, and the lists are searched. */
    VjOverlayEntry **chains;
    /* What was merged since vj_overlay_take_unlogged, latest first; not in private
     * overlays. */
    VjOverlayEntry *unlogged;
    uint64_t unlogged_count;
    /* keys and newest values, VJ_OVERLAY_CHANGE_BYTES for each */
    uint64_t unlogged_bytes;
} VjOverlay;

/* What a log needs for a change besides key and value. */
#define VJ_OVERLAY_CHANGE_BYTES 8u

/* An entry and what was its newest version when it was taken. */
typedef struct VjUnlogged {
    const VjOverlayEntry *entry;
    const VjVersion *version;
} VjUnlogged;

/* One live snapshot: it sees each key's newest version with seq <= its own. */
typedef struct VjSnapshot VjSnapshot;
struct VjSnapshot {
    VjSnapshot *older, *newer;
    uint64_t seq;
};

/* All live ones; begun in order, hence sorted. */
typedef struct VjSnapshots {
    VjSnapshot *oldest, *newest;
} VjSnapshots;

void vj_snapshots_add(VjSnapshots *all, VjSnapshot *s);
void vj_snapshots_remove(VjSnapshots *all, VjSnapshot *s);
/* True when a snapshot with from <= seq < until lives. */
bool vj_snapshots_need(const VjSnapshots *all, uint64_t from, uint64_t until);

void vj_overlay_init(VjOverlay *o);
/* Frees every entry; @o is then as after init. */
void vj_overlay_clear(VjOverlay *o);

/*
 * vj_overlay_set - write one key of a private overlay
 *
 * @value    NULL: a tombstone
 * Returns   0; -ENOMEM
 * The version that was there before is freed.
 */
int vj_overlay_set(VjOverlay *o, VjSpace space, VjSlice key, const VjSlice *value);

/*
 * vj_overlay_merge - move every entry of @src into @dst as commit @seq; cannot fail
 *
 * Versions of @dst that no snapshot in @live can see any more are freed, so a chain is at
 * most as long as there are snapshots, and one.  @src is empty afterwards.
 */
void vj_overlay_merge(VjOverlay *dst, VjOverlay *src, uint64_t seq,
                      const VjSnapshots *live);

/*
 * vj_overlay_take_unlogged - what was merged since the last call, in no order
 *
 * @out      room for o->unlogged_count
 * The versions stay as long as a snapshot of the last merge lives, the entries as the
 * overlay.
 */
void vj_overlay_take_unlogged(VjOverlay *o, VjUnlogged *out);

/* NULL when there is none.  @key empty: the first, the last of all. */
VjOverlayEntry *vj_overlay_find(const VjOverlay *o, VjSpace space, VjSlice key);
VjOverlayEntry *vj_overlay_after(const VjOverlay *o, VjSpace space, VjSlice key);
VjOverlayEntry *vj_overlay_before(const VjOverlay *o, VjSpace space, VjSlice key);

static inline VjOverlayEntry *vj_overlay_first(const VjOverlay *o, VjSpace space)
{
    return o->lists[space].head[0];
}

static inline VjSlice vj_entry_key(const VjOverlayEntry *e)
{
    return vj_slice(&e->forward[e->levels], e->key_bytes);
}

static inline VjSlice vj_version_value(const VjVersion *v)
{
    return vj_slice(v->value, v->value_bytes);
}

/* What a snapshot at @seq sees of @e; NULL: nothing, ask what lies below this overlay. */
static inline const VjVersion *vj_entry_visible(const VjOverlayEntry *e, uint64_t seq)
{
    const VjVersion *v = e->newest;

    while (v != NULL && v->seq > seq) {
        v = v->older;
    }
    return v;
}

#endif
