/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-cache.c - trailers and plaintext that readers keep, but not those of a scan
 *
 * S3-FIFO (Yang and others, SOSP 2023).  What is new enters a small queue; what was used
 * again when it comes to the end of that goes on to the main queue, anything else goes,
 * and only its number is remembered for a while: if that is wanted again, it enters the
 * main queue at once.  In the main queue what was used goes round again, up to three
 * times.  So content that is read once passes through the small queue alone, however much
 * it is.  A read that goes on where the last one ended is the same use: one of an object
 * in parts is no use again.
 *
 * Content that was got ahead of a reader, and that is kept only until that has come by,
 * goes to a third queue when as much as all of it was read.  That queue is short, so the
 * buffers of a long read are the same few again and again; what is used there again goes
 * on to the main queue.
 *
 *   - An entry holds what was verified: plaintext, or the trailer, or neither while it
 *     loads.  Beside that, what was got for it and nobody has looked at.
 *   - One thread loads, the others wait for it; nothing is held meanwhile but the entry.
 *   - No thread waits for the get of what is loaded ahead of readers.  When the get is
 *     over, the first thread that comes unpacks it: a reader need not wait for a worker.
 *     What is only to be verified is left to a reader: it takes no longer than waking a
 *     worker, and what is copied next is in that CPU's cache then.
 *   - What a thread uses (users > 0: from vj_cache_use to vj_cache_done) is pinned: it is
 *     passed over when room is made, since freeing it would give nothing back yet.  So
 *     the budget is exceeded by what requests in flight hold and by no more.
 *   - Ids are never used twice, so an entry is never stale.
 */
#include "object/object-private.h"

/* What an entry costs beside its bytes: itself, its hash node, its link. */
#define VJ_CACHE_ENTRY_BYTES 192u
/* How many busy entries an eviction looks at before it leaves the rest to the
 * next one. */
#define VJ_CACHE_SCAN_MAX 64u
/* The small queue may have this part of the budget before the main one has to give. */
#define VJ_CACHE_SMALL_SHARE 4u
#define VJ_CACHE_USES_MOST 3u
/* What a reader has come by has this part of the budget. */
#define VJ_CACHE_PASSED_SHARE 32u
/* A longer read is no piece: a reader that goes on from end to end gets as much at a
 * time. */
#define VJ_CACHE_PIECE_MOST 32768u

typedef enum EntryPlace { IN_SMALL, IN_MAIN, IN_PASSED } EntryPlace;

struct VjCacheEntry {
    guint64 id;
    /* guarded by the cache's lock: */
    GList link;
    unsigned users;
    unsigned uses;         /* again, since it entered its queue or went round */
    uint32_t read_to;      /* where the last use ended */
    uint32_t pieces_bytes; /* read by vj_cache_find in pieces that were not there */
    uint32_t left_bytes;   /* to be read until a reader has come by; 0: no matter */
    EntryPlace place;
    bool loading;
    bool is_ahead; /* from vj_cache_ahead_begin on, while loading */
    /* Of that load: all stored bytes, which the next one to come unpacks.  They may stay
     * so without a user. */
    VjIo *got;
    bool in_parts;      /* not all of it can be read: do not try to load it whole again */
    VjTrailer *trailer; /* does not change while users > 0 */
    VjBuf *plain;
    uint64_t bytes;
};

void vj_cache_init(VjObjectCache *c, uint64_t budget_bytes)
{
    c->budget_bytes = budget_bytes;
    vj_mutex_init(&c->lock, VJ_RANK_OBJECT_CACHE, "object-cache");
    vj_cond_init(&c->changed);
    c->entries = g_hash_table_new(g_int64_hash, g_int64_equal);
    g_queue_init(&c->small);
    g_queue_init(&c->main);
    g_queue_init(&c->passed);
    c->gone = g_new0(VjCacheGone, VJ_CACHE_GONE_SLOTS);
}

static GQueue *queue_of(VjObjectCache *c, const VjCacheEntry *e)
{
    return e->place == IN_MAIN ? &c->main : e->place == IN_SMALL ? &c->small : &c->passed;
}

static void count_bytes(VjObjectCache *c, VjCacheEntry *e, uint64_t bytes)
{
    c->bytes += bytes - e->bytes;
    c->small_bytes += e->place == IN_SMALL ? bytes - e->bytes : 0;
    c->passed_bytes += e->place == IN_PASSED ? bytes - e->bytes : 0;
    e->bytes = bytes;
}

static void entry_free(VjObjectCache *c, VjCacheEntry *e)
{
    g_assert(e->users == 0 && e->loading == (e->got != NULL));
    g_hash_table_remove(c->entries, &e->id);
    g_queue_unlink(queue_of(c, e), &e->link);
    count_bytes(c, e, 0);
    vj_trailer_free(e->trailer);
    vj_buf_unref(e->plain);
    vj_io_unref(e->got);
    g_free(e);
}

void vj_cache_clear(VjObjectCache *c)
{
    while (c->small.head != NULL) {
        entry_free(c, c->small.head->data);
    }
    while (c->main.head != NULL) {
        entry_free(c, c->main.head->data);
    }
    while (c->passed.head != NULL) {
        entry_free(c, c->passed.head->data);
    }
    g_assert(c->bytes == 0 && c->small_bytes == 0 && c->passed_bytes == 0);
    g_free(c->gone);
    g_hash_table_destroy(c->entries);
    vj_cond_clear(&c->changed);
    vj_mutex_clear(&c->lock);
}

/* From where it is in its queue to the head of @place. */
static void move_to(VjObjectCache *c, VjCacheEntry *e, EntryPlace place)
{
    uint64_t bytes = e->bytes;

    g_queue_unlink(queue_of(c, e), &e->link);
    count_bytes(c, e, 0);
    e->place = place;
    count_bytes(c, e, bytes);
    g_queue_push_head_link(queue_of(c, e), &e->link);
}

/* The next entry to go, if no thread uses it; NULL: there is room.  @not_passed: those
 * that a reader has come by are in use. */
static VjCacheEntry *next_to_go(VjObjectCache *c, bool not_passed)
{
    bool is_full = c->bytes > c->budget_bytes;

    if (c->passed.tail != NULL && !not_passed &&
        (is_full || c->passed_bytes > c->budget_bytes / VJ_CACHE_PASSED_SHARE)) {
        return c->passed.tail->data;
    }
    if (!is_full || (c->main.tail == NULL && c->small.tail == NULL)) {
        return NULL;
    }
    return c->main.tail == NULL ||
                   (c->small.tail != NULL &&
                    c->small_bytes > c->budget_bytes / VJ_CACHE_SMALL_SHARE)
               ? c->small.tail->data
               : c->main.tail->data;
}

static void make_room(VjObjectCache *c)
{
    unsigned looked_at = 0;
    bool not_passed = false;
    VjCacheEntry *e;

    vj_mutex_assert_held(&c->lock);
    while (looked_at < VJ_CACHE_SCAN_MAX && (e = next_to_go(c, not_passed)) != NULL) {
        if (e->users > 0) {
            not_passed = not_passed || e->place == IN_PASSED;
            move_to(c, e, e->place);
            looked_at++;
        } else if (e->uses > 0) {
            e->uses = e->place == IN_MAIN ? e->uses - 1 : 0;
            move_to(c, e, IN_MAIN);
        } else {
            if (e->place != IN_MAIN) {
                c->gone[e->id % VJ_CACHE_GONE_SLOTS] =
                    (VjCacheGone){e->id, ++c->gone_count};
            }
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
    if (e->got != NULL) {
        bytes += sizeof *e->got + e->got->buf->cap;
    }
    count_bytes(c, e, bytes);
}

static VjCacheEntry *entry_new(VjObjectCache *c, uint64_t id)
{
    VjCacheEntry *e = g_new0(VjCacheEntry, 1);
    const VjCacheGone *gone = &c->gone[id % VJ_CACHE_GONE_SLOTS];

    e->id = id;
    e->link.data = e;
    e->place =
        gone->id == id && c->gone_count - gone->number < g_hash_table_size(c->entries)
            ? IN_MAIN
            : IN_SMALL;
    g_hash_table_insert(c->entries, &e->id, e);
    g_queue_push_head_link(queue_of(c, e), &e->link);
    entry_account(c, e);
    return e;
}

static void count_use(VjObjectCache *c, VjCacheEntry *e, uint32_t start, uint32_t len)
{
    if (start != e->read_to) {
        e->uses = MIN(e->uses + 1, VJ_CACHE_USES_MOST);
    }
    e->read_to = start + len;
    if (e->left_bytes > len) {
        e->left_bytes -= len;
    } else if (e->left_bytes > 0) {
        e->left_bytes = 0;
        if (e->place == IN_SMALL) {
            /* The kernel's requests overtake each other: that was no use again. */
            e->uses = 0;
            move_to(c, e, IN_PASSED);
        }
    }
}

/* For a read of content bytes [@start, @start + @len). */
static VjCacheEntry *entry_of(VjObjectCache *c, uint64_t id, uint32_t start, uint32_t len)
{
    guint64 key = id;
    VjCacheEntry *e = g_hash_table_lookup(c->entries, &key);

    vj_mutex_assert_held(&c->lock);
    if (e == NULL) {
        e = entry_new(c, id);
        e->read_to = start;
    }
    count_use(c, e, start, len);
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

/*
 * A piece of @e is not there: true: load all of it.  Where there is room by then: what
 * others load at the same time may take it, and something is put out.
 */
static bool count_piece(const VjObjectCache *c, VjCacheEntry *e, const VjObject *object,
                        uint32_t start, uint32_t len)
{
    if (len > VJ_CACHE_PIECE_MOST || start == e->read_to) {
        return false;
    }
    if (e->pieces_bytes < object->plain_bytes) {
        e->pieces_bytes += len;
        return false;
    }
    return !e->loading && !e->in_parts &&
           c->bytes + object->stored_bytes <= c->budget_bytes;
}

VjCacheFind vj_cache_find(VjObjectCache *c, const VjObject *object, uint32_t start,
                          uint32_t len, VjBuf **plain)
{
    guint64 key = object->id;
    VjCacheFind found = VJ_CACHE_NONE;
    VjCacheEntry *e;

    *plain = NULL;
    vj_mutex_lock(&c->lock);
    e = g_hash_table_lookup(c->entries, &key);
    if (e != NULL && e->plain != NULL) {
        *plain = vj_buf_ref(e->plain);
        count_use(c, e, start, len);
        make_room(c);
        c->stats.cache_hits++;
        found = VJ_CACHE_FOUND;
    } else if (e != NULL && e->is_ahead) {
        found = VJ_CACHE_COMING;
    } else if (e != NULL && count_piece(c, e, object, start, len)) {
        found = VJ_CACHE_WORTH_WHOLE;
    }
    vj_mutex_unlock(&c->lock);
    return found;
}

void vj_cache_count_get(VjObjectCache *c, uint64_t len)
{
    vj_mutex_lock(&c->lock);
    c->stats.reads++;
    c->stats.read_bytes += len;
    vj_mutex_unlock(&c->lock);
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

/* Fills @e, which this thread marked as loading, or of which it takes what was got.
 * Called and returns with the lock held. */
static int load(VjObjects *o, VjObjectCache *c, const VjObject *object, VjCacheEntry *e,
                bool whole) VJ_REQUIRES(c->lock)
{
    VjTrailer *trailer = NULL;
    VjBuf *plain = NULL;
    VjIo *got = g_steal_pointer(&e->got);
    bool in_parts = false;
    int rc = 0;

    vj_mutex_unlock(&c->lock);
    if (whole || got != NULL) {
        rc = got != NULL ? vj_object_unpack(o, object, got->buf, &plain)
                         : vj_object_load_content(o, object, &plain);
        vj_io_unref(got);
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
    e->loading = e->is_ahead = false;
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

int vj_cache_use(VjObjects *o, const VjObject *object, const VjCacheRead *read,
                 VjCacheEntry **entry, VjBuf **plain, const VjTrailer **trailer)
{
    VjObjectCache *c = &o->cache;
    VjCacheEntry *e;
    bool hit = true, whole = read->whole;
    int rc = 0;

    *entry = NULL;
    *plain = NULL;
    *trailer = NULL;
    vj_mutex_lock(&c->lock);
    e = entry_of(c, object->id, read->start, read->len);
    while (rc == 0 && e->plain == NULL &&
           (e->is_ahead || e->trailer == NULL || (whole && !e->in_parts))) {
        if (e->loading && e->got == NULL) {
            rc = vj_cond_wait_or_cancel(&c->changed, &c->lock, INT64_MAX);
        } else {
            hit = e->got != NULL;
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

bool vj_cache_ahead_begin(VjObjectCache *c, const VjObject *object, bool is_passing,
                          VjCacheEntry **entry)
{
    guint64 key = object->id;
    VjCacheEntry *e;
    bool begun;

    *entry = NULL;
    vj_mutex_lock(&c->lock);
    e = g_hash_table_lookup(c->entries, &key);
    begun = e == NULL || (e->plain == NULL && !e->loading && !e->in_parts);
    if (begun) {
        e = e != NULL ? e : entry_new(c, object->id);
        e->users++;
        e->loading = e->is_ahead = true;
        e->left_bytes = is_passing ? object->plain_bytes : 0;
        *entry = e;
    }
    vj_mutex_unlock(&c->lock);
    return begun;
}

void vj_cache_ahead_got(VjObjectCache *c, VjCacheEntry *entry, VjIo *io, bool is_left)
{
    vj_mutex_lock(&c->lock);
    g_assert(entry->loading && entry->is_ahead && entry->got == NULL);
    if (io != NULL) {
        c->stats.reads++;
        c->stats.read_bytes += io->len;
    }
    if (io != NULL && io->rc == 0) {
        entry->got = vj_io_ref(io);
    } else {
        entry->loading = entry->is_ahead = false;
    }
    if (entry->users > 1) {
        vj_cond_broadcast(&c->changed);
    }
    if (is_left) {
        entry_account(c, entry);
        done_locked(c, entry);
    }
    vj_mutex_unlock(&c->lock);
}

void vj_cache_ahead_end(VjObjects *o, const VjObject *object, VjCacheEntry *entry)
{
    VjObjectCache *c = &o->cache;

    vj_mutex_lock(&c->lock);
    if (entry->got != NULL) {
        (void)!load(o, c, object, entry, false); /* the reader finds out */
    }
    done_locked(c, entry);
    vj_mutex_unlock(&c->lock);
}
