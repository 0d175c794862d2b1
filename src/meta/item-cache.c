/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * item-cache.c - see item-cache-private.h
 *
 * For each space a sequence of items in order of keys, which begins with one that has an
 * empty key and stays.  An item that is joined has nothing of the engine's between it and
 * the item behind it, or the end of the space.
 */
#include "meta/item-cache-private.h"

/* Changes that are entered before others get the lock. */
#define VJ_ITEM_CACHE_STEP 256u
/* What an item costs besides key and value: itself, and its node of the sequence. */
#define VJ_ITEM_CACHE_OVERHEAD ((uint64_t)sizeof(Item) + 64)

typedef enum Presence {
    PRESENCE_UNKNOWN, /* only what is beside it is known */
    PRESENCE_ABSENT,  /* the engine has no such key */
    PRESENCE_VALUE,
} Presence;

typedef struct Item {
    GList link; /* in used; not of the first item */
    GSequenceIter *at;
    VjSpace space;
    Presence presence;
    bool is_joined;
    uint32_t value_bytes;
    uint8_t *value; /* owned */
    uint64_t version;
    /* Where what is kept is good for a time: when value and gap became known. */
    int64_t seen_us, joined_us;
    VjSlice key; /* in bytes */
    uint8_t bytes[];
} Item;

struct VjItemCache {
    /* never change after setup: */
    uint64_t limit_bytes;
    bool is_shared;
    int64_t good_us; /* 0: what is kept is good until its change is reported */
    VjMutex lock;
    /* guarded by lock: */
    GSequence *spaces[VJ_SPACE_COUNT]; /* of Item, owned */
    GQueue used;                       /* the last one used first */
    uint64_t bytes;
    uint64_t applied;        /* batches that were entered, or begun to be; exclusive */
    VjRecentChanges *recent; /* owned; NULL: exclusive */
};

/* ---- Items ----------------------------------------------------------------------- */

static uint64_t bytes_of(const Item *item)
{
    return VJ_ITEM_CACHE_OVERHEAD + item->key.len + item->value_bytes;
}

static void item_free(gpointer p)
{
    Item *item = p;

    g_free(item->value);
    g_free(item);
}

static Item *item_at(GSequenceIter *at)
{
    return g_sequence_get(at);
}

/* NULL at the end of the space. */
static Item *item_behind(const Item *item)
{
    GSequenceIter *at = g_sequence_iter_next(item->at);

    return g_sequence_iter_is_end(at) ? NULL : item_at(at);
}

static Item *item_before(const Item *item)
{
    return item_at(g_sequence_iter_prev(item->at));
}

static gint compare(gconstpointer a, gconstpointer b, gpointer unused)
{
    (void)unused;
    return vj_slice_compare(((const Item *)a)->key, ((const Item *)b)->key);
}

/* The last item that does not stand behind @key; the first item at least. */
static Item *item_up_to(VjItemCache *c, VjSpace space, VjSlice key)
{
    Item wanted = {.key = key};
    GSequenceIter *behind = g_sequence_search(c->spaces[space], &wanted, compare, NULL);

    return item_at(g_sequence_iter_prev(behind));
}

static Item *item_find(VjItemCache *c, VjSpace space, VjSlice key)
{
    Item *item = item_up_to(c, space, key);

    return vj_slice_compare(item->key, key) == 0 ? item : NULL;
}

static void touch(VjItemCache *c, Item *item)
{
    if (item->key.len > 0) {
        g_queue_unlink(&c->used, &item->link);
        g_queue_push_head_link(&c->used, &item->link);
    }
}

/* NULL when memory is short.  In a gap that is known to be empty it is known to be
 * absent. */
static Item *item_ensure(VjItemCache *c, VjSpace space, VjSlice key)
{
    Item *before = item_up_to(c, space, key), *item;

    if (vj_slice_compare(before->key, key) == 0) {
        touch(c, before);
        return before;
    }
    item = g_try_malloc0(sizeof *item + key.len);
    if (item == NULL) {
        return NULL;
    }
    item->link.data = item;
    item->space = space;
    memcpy(item->bytes, key.data, key.len);
    item->key = vj_slice(item->bytes, key.len);
    item->is_joined = before->is_joined;
    item->presence = before->is_joined ? PRESENCE_ABSENT : PRESENCE_UNKNOWN;
    item->seen_us = item->joined_us = before->joined_us;
    item->at = g_sequence_insert_before(g_sequence_iter_next(before->at), item);
    g_queue_push_head_link(&c->used, &item->link);
    c->bytes += bytes_of(item);
    return item;
}

/* True: what became known at @since_us is good still. */
static bool is_good(const VjItemCache *c, int64_t since_us)
{
    return c->good_us == 0 || vj_clock_mono_us() < since_us + c->good_us;
}

static Presence presence_of(const VjItemCache *c, const Item *item)
{
    return item->key.len == 0 || is_good(c, item->seen_us) ? item->presence
                                                           : PRESENCE_UNKNOWN;
}

static bool is_joined(const VjItemCache *c, const Item *item)
{
    return item->is_joined && is_good(c, item->joined_us);
}

static void item_clear(VjItemCache *c, Item *item, Presence presence)
{
    c->bytes -= item->value_bytes;
    g_clear_pointer(&item->value, g_free);
    item->value_bytes = 0;
    item->version = 0;
    item->presence = presence;
    item->seen_us = c->good_us > 0 ? vj_clock_mono_us() : 0;
}

static void item_set(VjItemCache *c, Item *item, VjSlice value, uint64_t version)
{
    uint8_t *copy = g_try_malloc(MAX(value.len, 1));

    item_clear(c, item, copy != NULL ? PRESENCE_VALUE : PRESENCE_UNKNOWN);
    if (copy != NULL) {
        if (value.len > 0) {
            memcpy(copy, value.data, value.len);
        }
        item->value = copy;
        item->version = version;
        item->value_bytes = (uint32_t)value.len;
        c->bytes += value.len;
    }
}

static void item_drop(VjItemCache *c, Item *item)
{
    Item *before = item_before(item);

    if (!item->is_joined || item->presence != PRESENCE_ABSENT) {
        before->is_joined = false;
    }
    c->bytes -= bytes_of(item);
    g_queue_unlink(&c->used, &item->link);
    g_sequence_remove(item->at);
}

static void make_room(VjItemCache *c)
{
    while (c->bytes > c->limit_bytes && c->used.tail != NULL) {
        item_drop(c, c->used.tail->data);
    }
}

/* ---- Looking --------------------------------------------------------------------- */

static int give(const Item *item, VjItems *out)
{
    VjItem copy = {.space = item->space,
                   .key = item->key,
                   .value = vj_slice(item->value, item->value_bytes),
                   .version = item->version};

    return vj_items_add(out, &copy);
}

/* The item that says what is known of @key; NULL: nothing. */
static Item *item_about(VjItemCache *c, VjKey key)
{
    Item *item = item_up_to(c, key.space, key.key);

    if (vj_slice_compare(item->key, key.key) == 0) {
        return presence_of(c, item) == PRESENCE_UNKNOWN ? NULL : item;
    }
    return is_joined(c, item) ? item : NULL;
}

int vj_item_cache_get(VjItemCache *c, VjKey key, VjItems *out)
{
    Item *item;
    int rc = -EAGAIN;

    vj_mutex_lock(&c->lock);
    item = item_about(c, key);
    if (item != NULL) {
        touch(c, item);
        rc = item->presence == PRESENCE_VALUE && vj_slice_compare(item->key, key.key) == 0
                 ? give(item, out)
                 : -ENOENT;
    }
    vj_mutex_unlock(&c->lock);
    return rc;
}

bool vj_item_cache_knows(VjItemCache *c, VjKey key)
{
    bool knows;

    vj_mutex_lock(&c->lock);
    knows = item_about(c, key) != NULL;
    vj_mutex_unlock(&c->lock);
    return knows;
}

/* The next item with a value behind @from.  -ENOENT; -EAGAIN not known. */
static int find_behind(const VjItemCache *c, Item *from, Item **out)
{
    Item *item = from;

    while (is_joined(c, item)) {
        item = item_behind(item);
        if (item == NULL) {
            return -ENOENT;
        }
        if (presence_of(c, item) == PRESENCE_VALUE) {
            *out = item;
            return 0;
        }
        if (presence_of(c, item) == PRESENCE_UNKNOWN) {
            break;
        }
    }
    return -EAGAIN;
}

/* The same before @from, which need not be there; empty: the end of the space. */
static int find_before(VjItemCache *c, VjSpace space, VjSlice from, Item **out)
{
    Item *item =
        from.len == 0
            ? item_at(g_sequence_iter_prev(g_sequence_get_end_iter(c->spaces[space])))
            : item_up_to(c, space, from);

    if (from.len > 0 && vj_slice_compare(item->key, from) == 0) {
        item = item_before(item);
    }
    while (is_joined(c, item)) {
        if (presence_of(c, item) == PRESENCE_VALUE) {
            *out = item;
            return 0;
        }
        if (item->key.len == 0) {
            return -ENOENT;
        }
        if (presence_of(c, item) == PRESENCE_UNKNOWN) {
            break;
        }
        item = item_before(item);
    }
    return -EAGAIN;
}

int vj_item_cache_near(VjItemCache *c, VjSpace space, VjSlice from, bool forward,
                       VjItems *out)
{
    Item *item;
    int rc;

    vj_mutex_lock(&c->lock);
    rc = forward ? find_behind(c, item_up_to(c, space, from), &item)
                 : find_before(c, space, from, &item);
    if (rc == 0) {
        touch(c, item);
        rc = give(item, out);
    }
    vj_mutex_unlock(&c->lock);
    return rc;
}

bool vj_item_cache_knows_next(VjItemCache *c, VjSpace space, VjSlice from)
{
    Item *item;
    bool knows;

    vj_mutex_lock(&c->lock);
    knows = find_behind(c, item_up_to(c, space, from), &item) != -EAGAIN;
    vj_mutex_unlock(&c->lock);
    return knows;
}

/* ---- Adding ---------------------------------------------------------------------- */

uint64_t vj_item_cache_ticket(VjItemCache *c)
{
    uint64_t ticket;

    vj_mutex_lock(&c->lock);
    ticket = c->is_shared ? c->recent->count : c->applied;
    vj_mutex_unlock(&c->lock);
    return ticket;
}

/* An answer with @ticket may be taken, but for what was reported since. */
static bool takes(const VjItemCache *c, uint64_t ticket)
{
    return c->is_shared ? vj_recent_covers(c->recent, ticket) : ticket == c->applied;
}

/* A change of @key was reported since @ticket, which is remembered. */
static bool was_reported(const VjItemCache *c, uint64_t ticket, VjSpace space,
                         VjSlice key, bool by_others)
{
    for (uint64_t n = ticket + 1; c->is_shared && n <= c->recent->count; n++) {
        const VjRecentChange *change = vj_recent_at(c->recent, n);

        if (vj_key_is(&change->key, space, key) && !(by_others && change->own)) {
            return true;
        }
    }
    return false;
}

/* That of a key between @range's begin and @last; NULL: the end of the space. */
static bool was_reported_in(const VjItemCache *c, uint64_t ticket, const VjRange *range,
                            const VjItem *last)
{
    for (uint64_t n = ticket + 1; c->is_shared && n <= c->recent->count; n++) {
        const VjKey *key = &vj_recent_at(c->recent, n)->key;
        int from = range->from.len == 0 ? 0 : vj_slice_compare(key->key, range->from);
        int to = last == NULL ? 0 : vj_slice_compare(key->key, last->key);

        if (key->space == range->space &&
            (range->backward ? (range->from.len == 0 || from <= 0) && to >= 0
                             : from >= 0 && to <= 0)) {
            return true;
        }
    }
    return false;
}

void vj_item_cache_add(VjItemCache *c, uint64_t ticket, const VjKey *keys,
                       const VjItem *items, size_t count)
{
    vj_mutex_lock(&c->lock);
    for (size_t i = 0; takes(c, ticket) && i < count; i++) {
        Item *item = was_reported(c, ticket, keys[i].space, keys[i].key, false)
                         ? NULL
                         : item_ensure(c, keys[i].space, keys[i].key);

        if (item != NULL && items[i].version != 0) {
            item_set(c, item, items[i].value, items[i].version);
        } else if (item != NULL) {
            item_clear(c, item, PRESENCE_ABSENT);
        }
    }
    make_room(c);
    vj_mutex_unlock(&c->lock);
}

/* Between @from and @to (NULL: the end of the space) the engine has what is here. */
static void join(const VjItemCache *c, Item *from, const Item *to)
{
    int64_t now_us = c->good_us > 0 ? vj_clock_mono_us() : 0;

    for (Item *item = from; item != NULL && item != to; item = item_behind(item)) {
        item->is_joined = true;
        item->joined_us = now_us;
        if (item != from && item->presence != PRESENCE_VALUE) {
            item->presence = PRESENCE_ABSENT;
            item->seen_us = now_us;
        }
    }
}

/* NULL when memory is short. */
static Item *add_items(VjItemCache *c, Item *last, VjSpace space, const VjItem *items,
                       size_t count)
{
    for (size_t i = 0; last != NULL && i < count; i++) {
        last = item_ensure(c, space, items[i].key);
        if (last != NULL) {
            item_set(c, last, items[i].value, items[i].version);
            last = last->presence == PRESENCE_VALUE ? last : NULL;
        }
    }
    return last;
}

void vj_item_cache_add_run(VjItemCache *c, uint64_t ticket, const VjRange *range,
                           const VjItem *items, size_t count, bool more)
{
    bool from_the_end = range->backward && range->from.len == 0;
    Item *from, *last;

    g_assert(range->to.len == 0);
    vj_mutex_lock(&c->lock);
    if (takes(c, ticket) &&
        !was_reported_in(c, ticket, range, more ? &items[count - 1] : NULL)) {
        from = from_the_end ? item_at(g_sequence_get_begin_iter(c->spaces[range->space]))
                            : item_ensure(c, range->space, range->from);
        last = from == NULL ? NULL : add_items(c, from, range->space, items, count);
        if (last != NULL && !range->backward) {
            join(c, from, more ? last : NULL);
        } else if (last != NULL) {
            join(c,
                 more ? last
                      : item_at(g_sequence_get_begin_iter(c->spaces[range->space])),
                 from_the_end ? NULL : from);
        }
    }
    make_room(c);
    vj_mutex_unlock(&c->lock);
}

static void enter(VjItemCache *c, const VjChange *change, uint64_t version)
{
    Item *item = change->is_delete ? item_find(c, change->space, change->key)
                                   : item_ensure(c, change->space, change->key);

    if (item != NULL && change->is_delete) {
        item_clear(c, item, PRESENCE_ABSENT);
        if (item->is_joined && item_before(item)->is_joined) {
            item_drop(c, item); /* the gap says so */
        }
    } else if (item != NULL) {
        item_set(c, item, change->value, version);
    } else if (!change->is_delete) {
        /* No memory: nothing is known of where it stands. */
        item_up_to(c, change->space, change->key)->is_joined = false;
    }
}

void vj_item_cache_apply(VjItemCache *c, const VjBatch *batch)
{
    const void *at = NULL;
    uint64_t done = 0;
    VjChange change;

    vj_mutex_lock(&c->lock);
    c->applied++;
    while (batch->next(batch, &at, &change)) {
        enter(c, &change, 1);
        if (++done % VJ_ITEM_CACHE_STEP == 0) {
            make_room(c);
            vj_mutex_unlock(&c->lock);
            vj_mutex_lock(&c->lock);
        }
    }
    make_room(c);
    vj_mutex_unlock(&c->lock);
}

/* ---- Of a shared session --------------------------------------------------------- */

/* Nothing is known of @key any more.  What is known beside it stays where the session's
 * own change comes next. */
static void forget(VjItemCache *c, const VjKey *key, bool own)
{
    Item *item =
        own ? item_ensure(c, key->space, key->key) : item_find(c, key->space, key->key);

    if (item != NULL) {
        item_clear(c, item, PRESENCE_UNKNOWN);
    } else {
        item_up_to(c, key->space, key->key)->is_joined = false;
    }
}

static void forget_all(VjItemCache *c)
{
    while (c->used.tail != NULL) {
        item_drop(c, c->used.tail->data);
    }
    for (VjSpace i = 0; i < VJ_SPACE_COUNT; i++) {
        item_at(g_sequence_get_begin_iter(c->spaces[i]))->is_joined = false;
    }
}

void vj_item_cache_report(VjItemCache *c, const VjKey *key, bool own)
{
    g_assert(c->is_shared);
    vj_mutex_lock(&c->lock);
    vj_recent_add(c->recent, key, own);
    if (key != NULL) {
        forget(c, key, own);
    } else {
        forget_all(c);
    }
    make_room(c);
    vj_mutex_unlock(&c->lock);
}

void vj_item_cache_commit(VjItemCache *c, uint64_t ticket, const VjBatch *batch,
                          uint64_t version)
{
    const void *at = NULL;
    VjChange change;

    g_assert(c->is_shared);
    vj_mutex_lock(&c->lock);
    while (batch->next(batch, &at, &change)) {
        VjKey key = {change.space, change.key};
        bool is_remembered = vj_recent_covers(c->recent, ticket);
        bool is_reported =
            is_remembered && was_reported(c, ticket, key.space, key.key, false);

        if (is_remembered && !was_reported(c, ticket, key.space, key.key, true)) {
            enter(c, &change, version);
        } else {
            forget(c, &key, false);
        }
        /* An answer that another thread waits for may be older than this commit, also
         * where the engine reports no own changes. */
        if (!is_reported) {
            vj_recent_add(c->recent, &key, true);
        }
    }
    make_room(c);
    vj_mutex_unlock(&c->lock);
}

uint64_t vj_item_cache_last_report(VjItemCache *c)
{
    return __atomic_load_n(&c->recent->count, __ATOMIC_ACQUIRE);
}

int vj_item_cache_each_reported(VjItemCache *c, uint64_t *number, VjReportVisit *visit,
                                void *opaque)
{
    int rc;

    vj_mutex_lock(&c->lock);
    rc = vj_recent_covers(c->recent, *number) ? 0 : -EAGAIN;
    for (uint64_t n = *number + 1; rc == 0 && n <= c->recent->count; n++) {
        if (visit(opaque, &vj_recent_at(c->recent, n)->key)) {
            break;
        }
    }
    *number = c->recent->count;
    vj_mutex_unlock(&c->lock);
    return rc;
}

void vj_item_cache_set_good(VjItemCache *c, int64_t us)
{
    g_assert(c->is_shared && us >= 0);
    vj_mutex_lock(&c->lock);
    forget_all(c);
    c->good_us = us;
    vj_mutex_unlock(&c->lock);
}

/* ---- New and free ---------------------------------------------------------------- */

VjItemCache *vj_item_cache_new(uint64_t limit_bytes, bool shared)
{
    VjItemCache *c = g_new0(VjItemCache, 1);

    c->limit_bytes = limit_bytes;
    c->is_shared = shared;
    c->recent = shared ? g_new0(VjRecentChanges, 1) : NULL;
    vj_mutex_init(&c->lock, VJ_RANK_META_ENGINE, "meta item cache");
    g_queue_init(&c->used);
    for (VjSpace i = 0; i < VJ_SPACE_COUNT; i++) {
        Item *first = g_new0(Item, 1);

        first->space = i;
        first->presence = PRESENCE_ABSENT;
        c->spaces[i] = g_sequence_new(item_free);
        first->at = g_sequence_append(c->spaces[i], first);
    }
    return c;
}

void vj_item_cache_free(VjItemCache *c)
{
    if (c == NULL) {
        return;
    }
    for (VjSpace i = 0; i < VJ_SPACE_COUNT; i++) {
        g_sequence_free(c->spaces[i]);
    }
    if (c->recent != NULL) {
        vj_recent_clear(c->recent);
        g_free(c->recent);
    }
    vj_mutex_clear(&c->lock);
    g_free(c);
}
