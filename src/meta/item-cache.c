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
    VjSlice key;    /* in bytes */
    uint8_t bytes[];
} Item;

struct VjItemCache {
    uint64_t limit_bytes; /* never changes */
    VjMutex lock;
    /* guarded by lock: */
    GSequence *spaces[VJ_SPACE_COUNT]; /* of Item, owned */
    GQueue used;                       /* the last one used first */
    uint64_t bytes;
    uint64_t applied; /* batches that were entered, or begun to be */
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
    item->at = g_sequence_insert_before(g_sequence_iter_next(before->at), item);
    g_queue_push_head_link(&c->used, &item->link);
    c->bytes += bytes_of(item);
    return item;
}

static void item_clear(VjItemCache *c, Item *item, Presence presence)
{
    c->bytes -= item->value_bytes;
    g_clear_pointer(&item->value, g_free);
    item->value_bytes = 0;
    item->presence = presence;
}

static void item_set(VjItemCache *c, Item *item, VjSlice value)
{
    uint8_t *copy = g_try_malloc(MAX(value.len, 1));

    item_clear(c, item, copy != NULL ? PRESENCE_VALUE : PRESENCE_UNKNOWN);
    if (copy != NULL) {
        if (value.len > 0) {
            memcpy(copy, value.data, value.len);
        }
        item->value = copy;
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
                   .version = 1};

    return vj_items_add(out, &copy);
}

/* The item that says what is known of @key; NULL: nothing. */
static Item *item_about(VjItemCache *c, VjKey key)
{
    Item *item = item_up_to(c, key.space, key.key);

    if (vj_slice_compare(item->key, key.key) == 0) {
        return item->presence == PRESENCE_UNKNOWN ? NULL : item;
    }
    return item->is_joined ? item : NULL;
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
static int find_behind(Item *from, Item **out)
{
    Item *item = from;

    while (item->is_joined) {
        item = item_behind(item);
        if (item == NULL) {
            return -ENOENT;
        }
        if (item->presence == PRESENCE_VALUE) {
            *out = item;
            return 0;
        }
        if (item->presence == PRESENCE_UNKNOWN) {
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
    while (item->is_joined) {
        if (item->presence == PRESENCE_VALUE) {
            *out = item;
            return 0;
        }
        if (item->key.len == 0) {
            return -ENOENT;
        }
        if (item->presence == PRESENCE_UNKNOWN) {
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
    rc = forward ? find_behind(item_up_to(c, space, from), &item)
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
    knows = find_behind(item_up_to(c, space, from), &item) != -EAGAIN;
    vj_mutex_unlock(&c->lock);
    return knows;
}

/* ---- Adding ---------------------------------------------------------------------- */

uint64_t vj_item_cache_ticket(VjItemCache *c)
{
    uint64_t ticket;

    vj_mutex_lock(&c->lock);
    ticket = c->applied;
    vj_mutex_unlock(&c->lock);
    return ticket;
}

void vj_item_cache_add(VjItemCache *c, uint64_t ticket, const VjKey *keys,
                       const VjItem *items, size_t count)
{
    vj_mutex_lock(&c->lock);
    for (size_t i = 0; ticket == c->applied && i < count; i++) {
        Item *item = item_ensure(c, keys[i].space, keys[i].key);

        if (item != NULL && items[i].version != 0) {
            item_set(c, item, items[i].value);
        } else if (item != NULL) {
            item_clear(c, item, PRESENCE_ABSENT);
        }
    }
    make_room(c);
    vj_mutex_unlock(&c->lock);
}

/* Between @from and @to (NULL: the end of the space) the engine has what is here. */
static void join(Item *from, const Item *to)
{
    for (Item *item = from; item != NULL && item != to; item = item_behind(item)) {
        item->is_joined = true;
        if (item != from && item->presence == PRESENCE_UNKNOWN) {
            item->presence = PRESENCE_ABSENT;
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
            item_set(c, last, items[i].value);
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
    if (ticket == c->applied) {
        from = from_the_end ? item_at(g_sequence_get_begin_iter(c->spaces[range->space]))
                            : item_ensure(c, range->space, range->from);
        last = from == NULL ? NULL : add_items(c, from, range->space, items, count);
        if (last != NULL && !range->backward) {
            join(from, more ? last : NULL);
        } else if (last != NULL) {
            join(more ? last
                      : item_at(g_sequence_get_begin_iter(c->spaces[range->space])),
                 from_the_end ? NULL : from);
        }
    }
    make_room(c);
    vj_mutex_unlock(&c->lock);
}

static void enter(VjItemCache *c, const VjChange *change)
{
    Item *item = change->is_delete ? item_find(c, change->space, change->key)
                                   : item_ensure(c, change->space, change->key);

    if (item != NULL && change->is_delete) {
        item_clear(c, item, PRESENCE_ABSENT);
        if (item->is_joined && item_before(item)->is_joined) {
            item_drop(c, item); /* the gap says so */
        }
    } else if (item != NULL) {
        item_set(c, item, change->value);
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
        enter(c, &change);
        if (++done % VJ_ITEM_CACHE_STEP == 0) {
            make_room(c);
            vj_mutex_unlock(&c->lock);
            vj_mutex_lock(&c->lock);
        }
    }
    make_room(c);
    vj_mutex_unlock(&c->lock);
}

/* ---- New and free ---------------------------------------------------------------- */

VjItemCache *vj_item_cache_new(uint64_t limit_bytes)
{
    VjItemCache *c = g_new0(VjItemCache, 1);

    c->limit_bytes = limit_bytes;
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
    vj_mutex_clear(&c->lock);
    g_free(c);
}
