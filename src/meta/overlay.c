/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * overlay.c - an ordered map in memory, with versions for snapshots
 *
 * Invariants: each list is sorted by key without duplicates on every level; back mirrors
 * forward[0], last_of the ends of all levels; versions fall strictly by seq; where there
 * is an index, it has each entry once; bytes, tally and the figures of what is unlogged
 * are what a walk would count.
 */
#include "meta/overlay-private.h"

/* What the allocator adds to a block, bytes: so that budgets mean memory. */
#define BLOCK_OVERHEAD 16u
/* LMDB's nodes: header, slot in the page's index, the largest that stays in a leaf page.
 */
#define NODE_HEADER 8u
#define NODE_SLOT 2u
#define NODE_MAX 2038u
#define PAGE_BYTES 4096u
#define PAGE_HEADER 16u
/* From so many entries on there is an index, and its chains: with the most entries that a
 * generation has by default they are a few long. */
#define INDEX_ENTRIES 512u
#define INDEX_CHAINS (1u << 16)

/* ---- Snapshots ------------------------------------------------------------------- */

void vj_snapshots_add(VjSnapshots *all, VjSnapshot *s)
{
    g_assert(all->newest == NULL || all->newest->seq <= s->seq);
    s->newer = NULL;
    s->older = all->newest;
    if (all->newest != NULL) {
        all->newest->newer = s;
    } else {
        all->oldest = s;
    }
    all->newest = s;
}

void vj_snapshots_remove(VjSnapshots *all, VjSnapshot *s)
{
    if (s->older != NULL) {
        s->older->newer = s->newer;
    } else {
        g_assert(all->oldest == s);
        all->oldest = s->newer;
    }
    if (s->newer != NULL) {
        s->newer->older = s->older;
    } else {
        g_assert(all->newest == s);
        all->newest = s->older;
    }
    s->older = s->newer = NULL;
}

bool vj_snapshots_need(const VjSnapshots *all, uint64_t from, uint64_t until)
{
    for (const VjSnapshot *s = all->newest; s != NULL && s->seq >= from; s = s->older) {
        if (s->seq < until) {
            return true;
        }
    }
    return false;
}

/* ---- Entries and versions -------------------------------------------------------- */

static VjKeyHead head_of(VjSlice key)
{
    uint8_t bytes[sizeof(VjKeyHead)] = {0};

    memcpy(bytes, key.data, MIN(key.len, sizeof bytes));
    return (VjKeyHead){vj_be64_get(bytes), vj_be64_get(bytes + sizeof(uint64_t))};
}

/* As vj_slice_compare of @e's key with @key, whose head is @head. */
static int compare(const VjOverlayEntry *e, VjSlice key, VjKeyHead head)
{
    if (e->head.high != head.high) {
        return e->head.high < head.high ? -1 : 1;
    }
    if (e->head.low != head.low) {
        return e->head.low < head.low ? -1 : 1;
    }
    if (e->key_bytes <= sizeof head && key.len <= sizeof head) {
        return (e->key_bytes > key.len) - (e->key_bytes < key.len);
    }
    return vj_slice_compare(vj_entry_key(e), key);
}

static size_t entry_bytes(uint32_t levels, size_t key_bytes)
{
    return sizeof(VjOverlayEntry) + levels * sizeof(VjOverlayEntry *) + key_bytes;
}

static VjOverlayEntry *entry_new(VjSpace space, uint32_t levels, VjSlice key)
{
    VjOverlayEntry *e = g_try_malloc(entry_bytes(levels, key.len));

    if (e == NULL) {
        return NULL;
    }
    e->newest = NULL;
    e->back = NULL;
    e->next_unlogged = NULL;
    e->next_alike = NULL;
    e->space = (uint8_t)space;
    e->unlogged = false;
    e->key_bytes = (uint16_t)key.len;
    e->levels = (uint8_t)levels;
    e->head = head_of(key);
    memcpy(&e->forward[levels], key.data, key.len);
    return e;
}

static VjVersion *version_new(const VjSlice *value)
{
    size_t len = value == NULL ? 0 : value->len;
    VjVersion *v = g_try_malloc(sizeof *v + len);

    if (v == NULL) {
        return NULL;
    }
    v->older = NULL;
    v->seq = 0;
    v->value_bytes = (uint32_t)len;
    v->tombstone = value == NULL;
    if (len > 0) {
        memcpy(v->value, value->data, len);
    }
    return v;
}

static void account_entry(VjOverlay *o, const VjOverlayEntry *e, int sign)
{
    uint64_t bytes = entry_bytes(e->levels, e->key_bytes) + BLOCK_OVERHEAD;

    o->bytes += sign > 0 ? bytes : -bytes;
    o->entry_count += sign > 0 ? 1 : UINT64_MAX;
}

static void account_version(VjOverlay *o, const VjVersion *v, int sign)
{
    uint64_t bytes = sizeof *v + v->value_bytes + BLOCK_OVERHEAD;

    o->bytes += sign > 0 ? bytes : -bytes;
}

/* What a put adds to a tally. */
static VjTally tally_of(uint64_t key_bytes, uint64_t value_bytes)
{
    VjTally t = {.puts = 1};
    uint64_t node = NODE_HEADER + key_bytes + value_bytes;
    uint64_t pages = (PAGE_HEADER + value_bytes + PAGE_BYTES - 1) / PAGE_BYTES;

    if (node > NODE_MAX) {
        node = NODE_HEADER + key_bytes + sizeof(uint64_t);
        t.pages = pages == 1 ? 1 : 0;
        t.run_pages = pages == 1 ? 0 : pages;
    }
    t.bytes = node + node % 2 + NODE_SLOT;
    return t;
}

void vj_tally_add(VjTally *to, const VjChange *change)
{
    VjTally share;

    if (change->is_delete) {
        to->dels++;
        return;
    }
    share = tally_of(change->key.len, change->value.len);
    to->puts++;
    to->bytes += share.bytes;
    to->pages += share.pages;
    to->run_pages += share.run_pages;
}

/* The newest version's share in the tally; older ones never reach the engine. */
static void count_newest(VjOverlay *o, const VjOverlayEntry *e, int sign)
{
    uint64_t unit = sign > 0 ? 1 : UINT64_MAX;
    VjTally *tally = &o->tally[e->space], share;

    if (e->newest->tombstone) {
        tally->dels += unit;
        return;
    }
    share = tally_of(e->key_bytes, e->newest->value_bytes);
    tally->puts += unit;
    tally->bytes += unit * share.bytes;
    tally->pages += unit * share.pages;
    tally->run_pages += unit * share.run_pages;
}

/* ---- Lists ----------------------------------------------------------------------- */

/* Geometric with one in four, from a generator that need not be good. */
static uint32_t draw_levels(VjOverlay *o)
{
    uint64_t x = o->coin;
    uint32_t levels = 1;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    o->coin = x;
    for (x >>= 20; levels < VJ_OVERLAY_LEVELS && (x & 3) == 0; x >>= 2) {
        levels++;
    }
    return levels;
}

/*
 * The last entry with key < @key (or <= @key), NULL when there is none.  With @path, the
 * place on each level behind which a new entry goes.
 */
static VjOverlayEntry *list_before(const VjOverlayList *l, VjSlice key, bool or_equal,
                                   VjOverlayEntry *const *path[])
{
    VjOverlayEntry *at = NULL;
    const VjOverlayEntry *passed = NULL; /* already found not to be before @key */
    VjKeyHead head = head_of(key);

    for (uint32_t level = l->levels; level-- > 0;) {
        VjOverlayEntry *const *links = at == NULL ? l->head : at->forward;

        for (;;) {
            VjOverlayEntry *to = links[level];

            if (to == NULL || to == passed) {
                break;
            }
            int order = compare(to, key, head);

            if (order > 0 || (order == 0 && !or_equal)) {
                passed = to;
                break;
            }
            at = to;
            links = to->forward;
        }
        if (path != NULL) {
            path[level] = &links[level];
        }
    }
    return at;
}

/* Where a key is, or where it would go. */
typedef struct Place {
    VjOverlayEntry *entry;  /* NULL: the key is not there */
    VjOverlayEntry *before; /* the entry in front of it; NULL: none */
    VjOverlayEntry *const *path[VJ_OVERLAY_LEVELS];
} Place;

/* The place behind all that is there. */
static Place list_end(const VjOverlayList *l)
{
    Place p = {.before = l->last};

    for (uint32_t level = 0; level < VJ_OVERLAY_LEVELS; level++) {
        VjOverlayEntry *last = l->last_of[level];

        p.path[level] = last != NULL ? &last->forward[level] : &l->head[level];
    }
    return p;
}

static Place list_place(const VjOverlayList *l, VjSlice key)
{
    Place p;
    VjOverlayEntry *next;

    /* Numbers of inodes and objects rise. */
    if (l->last == NULL || compare(l->last, key, head_of(key)) < 0) {
        return list_end(l);
    }
    for (uint32_t level = l->levels; level < VJ_OVERLAY_LEVELS; level++) {
        p.path[level] = &l->head[level];
    }
    p.before = list_before(l, key, false, p.path);
    next = *p.path[0];
    p.entry =
        next != NULL && vj_slice_compare(vj_entry_key(next), key) == 0 ? next : NULL;
    return p;
}

static void list_insert(VjOverlayList *l, const Place *p, VjOverlayEntry *e)
{
    g_assert(p->entry == NULL);
    l->levels = MAX(l->levels, e->levels);
    for (uint32_t level = 0; level < e->levels; level++) {
        /* The search only reads; here the list is ours to change. */
        VjOverlayEntry **link = (VjOverlayEntry **)p->path[level];

        e->forward[level] = *link;
        *link = e;
        if (e->forward[level] == NULL) {
            l->last_of[level] = e;
        }
    }
    e->back = p->before;
    if (e->forward[0] != NULL) {
        e->forward[0]->back = e;
    } else {
        l->last = e;
    }
}

/* ---- The index ------------------------------------------------------------------- */

static VjOverlayEntry **chain_of(const VjOverlay *o, VjSpace space, VjSlice key)
{
    uint64_t hash = vj_checksum64(key.data, key.len) + space;

    return &o->chains[hash % INDEX_CHAINS];
}

static VjOverlayEntry *index_find(const VjOverlay *o, VjSpace space, VjSlice key)
{
    VjKeyHead head = head_of(key);
    VjOverlayEntry *e = *chain_of(o, space, key);

    while (e != NULL && (e->space != space || compare(e, key, head) != 0)) {
        e = e->next_alike;
    }
    return e;
}

static void index_add(VjOverlay *o, VjOverlayEntry *e)
{
    VjOverlayEntry **chain = chain_of(o, e->space, vj_entry_key(e));

    e->next_alike = *chain;
    *chain = e;
}

/* Without the memory for it the next merge tries again. */
static void index_make(VjOverlay *o)
{
    o->chains = g_try_new0(VjOverlayEntry *, INDEX_CHAINS);
    for (size_t i = 0; o->chains != NULL && i < VJ_SPACE_COUNT; i++) {
        for (VjOverlayEntry *e = o->lists[i].head[0]; e != NULL; e = e->forward[0]) {
            index_add(o, e);
        }
    }
}

/* ---- Overlays -------------------------------------------------------------------- */

/* The coin goes on: private overlays are short, and would else draw the same level for
 * ever. */
static void forget_entries(VjOverlay *o)
{
    /* A transaction changes few of the spaces. */
    for (size_t i = 0; i < VJ_SPACE_COUNT; i++) {
        if (o->lists[i].head[0] != NULL) {
            memset(&o->lists[i], 0, sizeof o->lists[i]);
            memset(&o->tally[i], 0, sizeof o->tally[i]);
        }
    }
    g_clear_pointer(&o->chains, g_free);
    o->bytes = 0;
    o->entry_count = 0;
    o->unlogged = NULL;
    o->unlogged_count = o->unlogged_bytes = 0;
}

void vj_overlay_init(VjOverlay *o)
{
    memset(o->lists, 0, sizeof o->lists);
    memset(o->tally, 0, sizeof o->tally);
    o->chains = NULL;
    forget_entries(o);
    o->coin = UINT64_C(0x9e3779b97f4a7c15);
}

void vj_overlay_clear(VjOverlay *o)
{
    for (size_t i = 0; i < VJ_SPACE_COUNT; i++) {
        for (VjOverlayEntry *e = o->lists[i].head[0]; e != NULL;) {
            VjOverlayEntry *next = e->forward[0];

            for (VjVersion *v = e->newest; v != NULL;) {
                VjVersion *older = v->older;

                g_free(v);
                v = older;
            }
            g_free(e);
            e = next;
        }
    }
    forget_entries(o);
}

VjOverlayEntry *vj_overlay_find(const VjOverlay *o, VjSpace space, VjSlice key)
{
    VjOverlayEntry *e;

    if (o->chains != NULL) {
        return index_find(o, space, key);
    }
    e = list_before(&o->lists[space], key, true, NULL);
    return e != NULL && vj_slice_compare(vj_entry_key(e), key) == 0 ? e : NULL;
}

VjOverlayEntry *vj_overlay_after(const VjOverlay *o, VjSpace space, VjSlice key)
{
    const VjOverlayList *l = &o->lists[space];
    const VjOverlayEntry *e = key.len == 0 ? NULL : list_before(l, key, true, NULL);

    return e == NULL ? l->head[0] : e->forward[0];
}

VjOverlayEntry *vj_overlay_before(const VjOverlay *o, VjSpace space, VjSlice key)
{
    const VjOverlayList *l = &o->lists[space];

    return key.len == 0 ? l->last : list_before(l, key, false, NULL);
}

int vj_overlay_set(VjOverlay *o, VjSpace space, VjSlice key, const VjSlice *value)
{
    VjOverlayList *l = &o->lists[space];
    VjVersion *v = version_new(value);
    Place place;
    VjOverlayEntry *e;

    g_assert(key.len > 0 && key.len <= VJ_META_KEY_MAX);
    if (v == NULL) {
        return -ENOMEM;
    }
    place = list_place(l, key);
    e = place.entry;
    if (e == NULL) {
        e = entry_new(space, draw_levels(o), key);
        if (e == NULL) {
            g_free(v);
            return -ENOMEM;
        }
        list_insert(l, &place, e);
        account_entry(o, e, 1);
    } else {
        g_assert(e->newest->older == NULL);
        count_newest(o, e, -1);
        account_version(o, e->newest, -1);
        g_free(e->newest);
    }
    e->newest = v;
    account_version(o, v, 1);
    count_newest(o, e, 1);
    return 0;
}

/* Frees what no snapshot can see of the chain behind @e's newest version. */
static void prune(VjOverlay *o, VjOverlayEntry *e, const VjSnapshots *live)
{
    uint64_t until = e->newest->seq;

    for (VjVersion **link = &e->newest->older; *link != NULL;) {
        VjVersion *v = *link;

        if (vj_snapshots_need(live, v->seq, until)) {
            until = v->seq;
            link = &v->older;
        } else {
            *link = v->older;
            account_version(o, v, -1);
            g_free(v);
        }
    }
}

/* @older: the value that @e had in the list before; NULL: it was not in it. */
static void add_unlogged(VjOverlay *o, VjOverlayEntry *e, const VjVersion *older)
{
    if (e->unlogged) {
        o->unlogged_bytes -= older->value_bytes;
        o->unlogged_bytes += e->newest->value_bytes;
        return;
    }
    e->unlogged = true;
    e->next_unlogged = o->unlogged;
    o->unlogged = e;
    o->unlogged_count++;
    o->unlogged_bytes +=
        VJ_OVERLAY_CHANGE_BYTES + e->key_bytes + (uint64_t)e->newest->value_bytes;
}

void vj_overlay_take_unlogged(VjOverlay *o, VjUnlogged *out)
{
    VjOverlayEntry *e = o->unlogged;

    for (uint64_t i = 0; i < o->unlogged_count; i++) {
        VjOverlayEntry *next = e->next_unlogged;

        out[i] = (VjUnlogged){.entry = e, .version = e->newest};
        e->unlogged = false;
        e->next_unlogged = NULL;
        e = next;
    }
    g_assert(e == NULL);
    o->unlogged = NULL;
    o->unlogged_count = o->unlogged_bytes = 0;
}

static void merge_entry(VjOverlay *dst, VjOverlayList *l, VjOverlayEntry *e,
                        const VjSnapshots *live)
{
    VjSlice key = vj_entry_key(e);
    VjOverlayEntry *there =
        dst->chains != NULL ? index_find(dst, e->space, key) : NULL;
    Place place;

    if (there == NULL) {
        place = list_place(l, key);
        there = place.entry;
    }
    if (there == NULL) {
        list_insert(l, &place, e);
        if (dst->chains != NULL) {
            index_add(dst, e);
        }
        account_entry(dst, e, 1);
        account_version(dst, e->newest, 1);
        count_newest(dst, e, 1);
        add_unlogged(dst, e, NULL);
        return;
    }
    g_assert(there->newest->seq < e->newest->seq);
    count_newest(dst, there, -1);
    e->newest->older = there->newest;
    there->newest = e->newest;
    account_version(dst, there->newest, 1);
    count_newest(dst, there, 1);
    add_unlogged(dst, there, there->newest->older);
    prune(dst, there, live);
    g_free(e);
}

void vj_overlay_merge(VjOverlay *dst, VjOverlay *src, uint64_t seq,
                      const VjSnapshots *live)
{
    g_assert(seq > 0);
    for (VjSpace space = 0; space < VJ_SPACE_COUNT; space++) {
        for (VjOverlayEntry *e = src->lists[space].head[0]; e != NULL;) {
            VjOverlayEntry *next = e->forward[0];

            g_assert(e->newest->older == NULL);
            e->newest->seq = seq;
            merge_entry(dst, &dst->lists[space], e, live);
            e = next;
        }
    }
    if (dst->chains == NULL && dst->entry_count >= INDEX_ENTRIES) {
        index_make(dst);
    }
    forget_entries(src);
}
