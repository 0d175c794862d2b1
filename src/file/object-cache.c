/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-cache.c - trailers and plaintext that readers keep, least recently used first
 * out
 *
 *   - An entry holds what was verified: plaintext, or the trailer, or neither while it
 *     loads.
 *   - One thread loads, the others wait for it; nothing is held meanwhile but the entry.
 *   - What somebody uses (users > 0: from vj_cache_use to vj_cache_done) is pinned: it is
 *     passed over when room is made, since freeing it would give nothing back yet.  So
 *     the budget is exceeded by what requests in flight hold and by no more.
 *   - Ids are never used twice, so an entry is never stale.
 */
#include "file/object-parts.h"

/* What an entry costs beside its bytes: itself, its hash node, its link. */
#define VJ_CACHE_ENTRY_BYTES 192u
/* How many busy entries an eviction looks at before it leaves the rest to the
 * next one. */
#define VJ_CACHE_SCAN_MAX 64u

struct VjCacheEntry {
    guint64 id;
    /* guarded by the cache's lock: */
    GList link;
    unsigned users;
    bool loading;
    bool in_parts;      /* not all of it can be read: do not try to load it whole again */
    VjTrailer *trailer; /* does not change while users > 0 */
    VjBuf *plain;
    uint64_t bytes;
};

void vj_cache_init(VjObjectCache *c, uint64_t budget_bytes)
{
    c->budget_bytes = budget_bytes;
    vj_mutex_init(&c->lock, VJ_RANK_FILE_CACHE, "object-cache");
    vj_cond_init(&c->changed);
    c->entries = g_hash_table_new(g_int64_hash, g_int64_equal);
    g_queue_init(&c->recent);
}

static void entry_free(VjObjectCache *c, VjCacheEntry *e)
{
    g_assert(e->users == 0 && !e->loading);
    g_hash_table_remove(c->entries, &e->id);
    g_queue_unlink(&c->recent, &e->link);
    c->bytes -= e->bytes;
    vj_trailer_free(e->trailer);
    vj_buf_unref(e->plain);
    g_free(e);
}

void vj_cache_clear(VjObjectCache *c)
{
    while (c->recent.head != NULL) {
        entry_free(c, c->recent.head->data);
    }
    g_assert(c->bytes == 0);
    g_hash_table_destroy(c->entries);
    vj_cond_clear(&c->changed);
    vj_mutex_clear(&c->lock);
}

static void make_room(VjObjectCache *c)
{
    unsigned passed = 0;
    GList *at = c->recent.tail;

    vj_mutex_assert_held(&c->lock);
    while (at != NULL && c->bytes > c->budget_bytes && passed < VJ_CACHE_SCAN_MAX) {
        VjCacheEntry *e = at->data;

        at = at->prev;
        if (e->users > 0) {
            passed++;
        } else {
            entry_free(c, e);
        }
    }
}

static void entry_account(VjObjectCache *c, VjCacheEntry *e)
{
    uint64_t bytes = VJ_CACHE_ENTRY_BYTES;

    if (e->trailer != NULL) {
        bytes += sizeof *e->trailer + e->trailer->bytes;
    }
    if (e->plain != NULL) {
        bytes += sizeof *e->plain + e->plain->cap;
    }
    c->bytes += bytes - e->bytes;
    e->bytes = bytes;
}

static VjCacheEntry *entry_of(VjObjectCache *c, uint64_t id)
{
    guint64 key = id;
    VjCacheEntry *e = g_hash_table_lookup(c->entries, &key);

    vj_mutex_assert_held(&c->lock);
    if (e == NULL) {
        e = g_new0(VjCacheEntry, 1);
        e->id = id;
        e->link.data = e;
        g_hash_table_insert(c->entries, &e->id, e);
        entry_account(c, e);
    } else {
        g_queue_unlink(&c->recent, &e->link);
    }
    g_queue_push_head_link(&c->recent, &e->link);
    e->users++;
    return e;
}

bool vj_cache_has(VjObjectCache *c, uint64_t id)
{
    guint64 key = id;
    const VjCacheEntry *e;
    bool has;

    vj_mutex_lock(&c->lock);
    e = g_hash_table_lookup(c->entries, &key);
    has = e != NULL && (e->plain != NULL || e->loading);
    vj_mutex_unlock(&c->lock);
    return has;
}

void vj_cache_drop(VjObjectCache *c, uint64_t id)
{
    guint64 key = id;
    VjCacheEntry *e;

    vj_mutex_lock(&c->lock);
    e = g_hash_table_lookup(c->entries, &key);
    if (e != NULL && e->users == 0) {
        entry_free(c, e);
    }
    vj_mutex_unlock(&c->lock);
}

static void done_locked(VjObjectCache *c, VjCacheEntry *e)
{
    g_assert(e->users > 0);
    e->users--;
    make_room(c);
}

void vj_cache_done(VjObjectCache *c, VjCacheEntry *entry)
{
    vj_mutex_lock(&c->lock);
    done_locked(c, entry);
    vj_mutex_unlock(&c->lock);
}

/* Fills @e, which this thread marked as loading.  Called and returns with the
 * lock held. */
static int load(VjObjects *o, VjObjectCache *c, const VjObject *object, VjCacheEntry *e,
                bool whole) VJ_REQUIRES(c->lock)
{
    VjTrailer *trailer = NULL;
    VjBuf *plain = NULL;
    bool in_parts = false;
    int rc = 0;

    vj_mutex_unlock(&c->lock);
    if (whole) {
        rc = vj_object_load(o, object, &plain);
        in_parts = rc == -EBADMSG || rc == -EIO;
        if (in_parts || rc == -ENOMEM) {
            rc = 0; /* the parts that are asked for may be whole, and smaller */
        }
    }
    if (rc == 0 && plain == NULL) {
        rc = vj_object_load_trailer(o, object, &trailer);
    }
    vj_mutex_lock(&c->lock);
    g_assert(e->loading && e->plain == NULL);
    e->loading = false;
    e->in_parts = e->in_parts || in_parts;
    e->plain = plain;
    if (e->trailer == NULL) {
        e->trailer = g_steal_pointer(&trailer);
    }
    vj_trailer_free(trailer);
    entry_account(c, e);
    vj_cond_broadcast(&c->changed);
    return rc;
}

int vj_cache_use(VjObjects *o, const VjObject *object, bool whole, VjCacheEntry **entry,
                 VjBuf **plain, const VjTrailer **trailer)
{
    VjObjectCache *c = &o->cache;
    VjCacheEntry *e;
    bool hit = true;
    int rc = 0;

    *entry = NULL;
    *plain = NULL;
    *trailer = NULL;
    vj_mutex_lock(&c->lock);
    e = entry_of(c, object->id);
    while (rc == 0 && e->plain == NULL &&
           (e->trailer == NULL || (whole && !e->in_parts))) {
        if (e->loading) {
            vj_cond_wait(&c->changed, &c->lock);
        } else {
            hit = false;
            e->loading = true;
            rc = load(o, c, object, e, whole && !e->in_parts);
            whole = false; /* one attempt: what could not be had whole is read in parts */
        }
    }
    if (rc < 0) {
        done_locked(c, e);
    } else {
        c->stats.cache_hits += hit;
        c->stats.cache_misses += !hit;
        *entry = e;
        *plain = e->plain != NULL ? vj_buf_ref(e->plain) : NULL;
        *trailer = e->plain == NULL ? e->trailer : NULL;
    }
    vj_mutex_unlock(&c->lock);
    return rc;
}
