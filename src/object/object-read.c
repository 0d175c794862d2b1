/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-read.c - any range of an object's content, by way of the cache or past it
 *
 * A part is read by getting the trailer (kept by the cache) and the blocks that the part
 * touches; a whole object by one get of everything (object-load.c).
 *
 * What a read wants decides what is decoded of an object whose content is not in the
 * cache: all of it only where the read asks for 64 KiB or more, the object has at most
 * 1 MiB or 8 times what is asked for, and a quarter of the cache holds it (or the read
 * wants exactly all of it); else the blocks that the range touches, which are not kept.
 */
#include "object/object-private.h"

/* Objects up to this length are always loaded whole: one get instead of two, bytes. */
#define VJ_READ_WHOLE_BELOW 32768u
/* Objects beyond this length are loaded whole only for reads of a good part of them. */
#define VJ_READ_WHOLE_EASILY (1u << 20)
#define VJ_READ_WHOLE_SHARE 8u
/* And none that would take more than this part of the cache, where it would not last. */
#define VJ_READ_WHOLE_CACHE_SHARE 4u

/* Reads of fewer bytes copy: object-cache.c takes them for pieces, and counts them. */
#define HOLD_LEAST 65536u

static int read_blocks(VjObjects *o, const VjObject *object, const VjTrailer *t,
                       uint32_t start, void *dst, uint32_t len)
{
    uint32_t block = vj_stored_block_bytes(t->varying);
    uint32_t first = start / block, last = (start + len - 1) / block;
    uint32_t from = vj_trailer_block_start(t, first);
    uint32_t bytes = vj_trailer_block_end(t, last) - from;
    g_autoptr(VjBuf) stored = NULL;
    VjCodecSpec spec;
    bool varying;
    int rc = vj_object_load_shape(o, object, &spec, &varying);

    if (rc < 0) {
        return rc;
    }
    g_assert(varying == t->varying);
    stored = vj_buf_new(bytes);
    if (stored == NULL) {
        return -ENOMEM;
    }
    rc = vj_object_load_stored(o, object, from, stored->data, bytes);
    if (rc == 0) {
        rc = vj_object_verify_blocks(o, object, t, first, last, stored->data);
    }
    if (rc < 0) {
        return rc;
    }
    return vj_object_decode_blocks(o, object, &spec, t, first, stored->data, start, dst,
                                   len);
}

/* By way of the cache; @whole: all of the object stays there. */
static int read_cached(VjObjects *o, const VjObject *object, uint32_t start, void *dst,
                       uint32_t len, bool whole)
{
    const VjCacheRead read = {start, len, whole};
    g_autoptr(VjBuf) plain = NULL;
    const VjTrailer *trailer;
    VjCacheEntry *entry;
    int rc = vj_cache_use(o, object, &read, &entry, &plain, &trailer);

    if (rc < 0) {
        return rc;
    }
    if (plain != NULL) {
        memcpy(dst, plain->data + start, len);
    } else {
        rc = read_blocks(o, object, trailer, start, dst, len);
    }
    g_clear_pointer(&plain, vj_buf_unref);
    vj_cache_done(&o->cache, entry);
    return rc;
}

/* @dst: gets what is found. */
static VjCacheFind find_copy(VjObjects *o, const VjObject *object, uint32_t start,
                             void *dst, uint32_t len)
{
    g_autoptr(VjBuf) plain = NULL;
    VjCacheFind found = vj_cache_find(&o->cache, object, start, len, &plain);

    if (plain != NULL) {
        memcpy(dst, plain->data + start, len);
    }
    return found;
}

/* What is gotten of an object and is not wanted, at its ends: room for so many bytes. */
#define SPILL_BYTES (4 * VJ_STORED_EVEN_BYTES)

/*
 * Content that stands in the store as it is goes straight to @dst: keeping it would be a
 * copy more and fresh memory, where the store's own file system keeps it too.  Blocks at
 * the ends that are wanted in part come by way of @spill; a short read does so
 * altogether.
 */
typedef struct Straight {
    uint32_t first, last; /* blocks */
    /* Stored bytes, of whole blocks; from up to start and beyond the end. */
    uint32_t from, to;
    uint32_t whole_from, whole_to; /* of them, those in dst; empty: all are in spill */
    uint8_t spill[SPILL_BYTES];    /* all; or the first block, then the last one */
} Straight;

static void straight_plan(const VjObject *object, uint32_t start, uint32_t len,
                          Straight *s)
{
    const uint32_t block = VJ_STORED_EVEN_BYTES;
    uint32_t end = start + len;

    s->first = start / block;
    s->last = (end - 1) / block;
    s->from = s->first * block;
    s->to = MIN((s->last + 1) * block, object->plain_bytes);
    s->whole_from = s->whole_to = s->from;
    if (s->to - s->from > SPILL_BYTES) {
        s->whole_from = start == s->from ? s->from : s->from + block;
        s->whole_to = end == s->to ? s->to : s->last * block;
    }
}

static int straight_get(VjObjects *o, const VjObject *object, const Straight *s,
                        uint8_t *spill, uint32_t start, uint8_t *dst)
{
    int rc = 0;

    if (s->whole_from == s->whole_to) {
        return vj_object_load_stored(o, object, s->from, spill, s->to - s->from);
    }
    if (s->from < s->whole_from) {
        rc = vj_object_load_stored(o, object, s->from, spill, s->whole_from - s->from);
    }
    if (rc == 0) {
        rc =
            vj_object_load_stored(o, object, s->whole_from, dst + (s->whole_from - start),
                                  s->whole_to - s->whole_from);
    }
    if (rc == 0 && s->whole_to < s->to) {
        rc = vj_object_load_stored(o, object, s->whole_to, spill + VJ_STORED_EVEN_BYTES,
                                   s->to - s->whole_to);
    }
    return rc;
}

/* Compares all blocks, and completes @dst. */
static int straight_verify(VjObjects *o, const VjObject *object, const VjTrailer *t,
                           const Straight *s, uint32_t start, uint8_t *dst, uint32_t len)
{
    const uint32_t block = VJ_STORED_EVEN_BYTES;
    uint32_t first = s->whole_from / block, last = s->last;
    int rc = 0;

    if (s->whole_from == s->whole_to) {
        rc = vj_object_verify_blocks(o, object, t, s->first, s->last, s->spill);
        if (rc == 0) {
            memcpy(dst, s->spill + (start - s->from), len);
        }
        return rc;
    }
    if (s->from < s->whole_from) {
        rc = vj_object_verify_blocks(o, object, t, s->first, s->first, s->spill);
        memcpy(dst, s->spill + (start - s->from), s->whole_from - start);
    }
    if (rc == 0 && s->whole_to < s->to) {
        rc = vj_object_verify_blocks(o, object, t, s->last, s->last, s->spill + block);
        memcpy(dst + (s->whole_to - start), s->spill + block, start + len - s->whole_to);
        last--;
    }
    return rc < 0 ? rc
                  : vj_object_verify_blocks(o, object, t, first, last,
                                            dst + (s->whole_from - start));
}

/* The content first: so the store's file system has read on when the trailer is
 * wanted. */
static int read_straight(VjObjects *o, const VjObject *object, uint32_t start, void *dst,
                         uint32_t len)
{
    g_autoptr(VjBuf) plain = NULL;
    const VjTrailer *trailer;
    VjCacheEntry *entry;
    VjCodecSpec spec;
    Straight s;
    bool varying;
    int rc;

    switch (find_copy(o, object, start, dst, len)) {
    case VJ_CACHE_FOUND:
        return 0;
    case VJ_CACHE_COMING:
    case VJ_CACHE_WORTH_WHOLE:
        return read_cached(o, object, start, dst, len, true);
    case VJ_CACHE_NONE:
        break;
    }
    rc = vj_object_load_shape(o, object, &spec, &varying);
    if (rc < 0) {
        return rc;
    }
    straight_plan(object, start, len, &s);
    rc = straight_get(o, object, &s, s.spill, start, dst);
    if (rc == 0) {
        rc = vj_cache_use(o, object, &(VjCacheRead){start, len, false}, &entry, &plain,
                          &trailer);
    }
    if (rc < 0) {
        return rc;
    }
    if (plain != NULL) {
        memcpy(dst, plain->data + start, len);
    } else {
        rc = straight_verify(o, object, trailer, &s, start, dst, len);
    }
    vj_cache_done(&o->cache, entry);
    return rc;
}

static bool is_by_node(const VjObjects *o, const VjObject *object)
{
    return (object->flags & (VJ_OBJECT_BY_NODE | VJ_OBJECT_ON_WIRE)) != 0 &&
           vj_store_takes_plain(o->store);
}

static bool goes_straight(const VjObject *object)
{
    VjCodecSpec spec;
    bool varying;

    return object->plain_bytes > VJ_READ_WHOLE_BELOW &&
           (object->flags & VJ_OBJECT_ON_WIRE) == 0 &&
           vj_form_of_codec(object->codec, &spec, &varying) &&
           vj_codec_is_identity(&spec);
}

/* The hint @whole, for a read of @len bytes. */
static bool load_whole(const VjObjects *o, const VjObject *object, uint32_t len,
                       bool whole)
{
    uint64_t bytes = object->plain_bytes;

    if (bytes <= VJ_READ_WHOLE_BELOW) {
        return true;
    }
    if (!whole || bytes == len) {
        return whole;
    }
    return bytes <= o->cache.budget_bytes / VJ_READ_WHOLE_CACHE_SHARE &&
           (bytes <= VJ_READ_WHOLE_EASILY ||
            bytes <= (uint64_t)len * VJ_READ_WHOLE_SHARE);
}

VjExpect vj_object_expect(VjObjects *o, const VjObject *object)
{
    bool can_expect = vj_store_can_expect(o->store);

    vj_lock_assert_none();
    vj_objects_count(o, expected, 1);
    if (can_expect && goes_straight(object)) {
        vj_store_expect(o->store, object->id, object->loc);
        return VJ_EXPECT_DONE;
    }
    if (!load_whole(o, object, VJ_READ_WHOLE_EASILY, true) ||
        vj_cache_has(&o->cache, object->id)) {
        return VJ_EXPECT_DONE;
    }
    return can_expect || is_by_node(o, object) ? VJ_EXPECT_LOAD : VJ_EXPECT_GET;
}

/* @object, of which nothing is said when it cannot be read. */
static VjObject quiet_object(const VjObject *object, VjFault *fault)
{
    VjObject quiet = *object;

    *fault = (VjFault){.object = 0};
    quiet.fault = fault;
    return quiet;
}

void vj_object_load_ahead(VjObjects *o, const VjObject *object)
{
    g_autoptr(VjBuf) plain = NULL;
    const VjTrailer *trailer;
    VjFault fault;
    VjObject quiet = quiet_object(object, &fault);
    VjCacheEntry *entry;

    if (vj_cache_use(o, &quiet, &(VjCacheRead){.whole = true}, &entry, &plain,
                     &trailer) == 0) {
        vj_cache_done(&o->cache, entry);
    }
}

static void ahead_is_over(VjIo *io)
{
    VjGetAhead *ahead = io->opaque;

    ahead->is_over = goes_straight(&ahead->object);
    vj_cache_ahead_got(&ahead->objects->cache, ahead->entry, io, ahead->is_over);
    ahead->got(ahead);
    vj_io_unref(io);
}

bool vj_object_get_ahead(VjObjects *o, VjGetAhead *ahead)
{
    VjObject *object = &ahead->object;
    VjIo *io;

    vj_lock_assert_none();
    if (!vj_cache_ahead_begin(&o->cache, object, goes_straight(object), &ahead->entry)) {
        return false;
    }
    ahead->objects = o;
    ahead->is_over = false;
    io = vj_io_new_get(object->id, object->loc, 0, object->stored_bytes);
    if (io != NULL) {
        io->done = ahead_is_over;
        io->opaque = ahead;
        io->is_checked = true;
        if (vj_store_submit(o->store, io)) {
            return true;
        }
    }
    vj_io_unref(io);
    vj_cache_ahead_got(&o->cache, ahead->entry, NULL, false);
    vj_cache_ahead_end(o, object, ahead->entry);
    return false;
}

void vj_object_get_ahead_end(VjGetAhead *ahead)
{
    VjFault fault;
    VjObject quiet = quiet_object(&ahead->object, &fault);

    g_assert(!ahead->is_over);
    vj_cache_ahead_end(ahead->objects, &quiet, ahead->entry);
}

/* What the node cannot do is done here. */
static int read_part_by_node(VjObjects *o, const VjObject *object, uint32_t start,
                             void *dst, uint32_t len)
{
    int rc = 0;

    switch (find_copy(o, object, start, dst, len)) {
    case VJ_CACHE_FOUND:
        return 0;
    case VJ_CACHE_COMING:
    case VJ_CACHE_WORTH_WHOLE:
        return read_cached(o, object, start, dst, len, true);
    case VJ_CACHE_NONE:
        rc = vj_by_node_read(o, object, start, dst, len);
        break;
    }
    return rc < 0 ? read_cached(o, object, start, dst, len, false) : 0;
}

static int read_once(VjObjects *o, const VjObject *object, uint32_t start, void *dst,
                     uint32_t len, bool whole)
{
    if (is_by_node(o, object) && !load_whole(o, object, len, whole)) {
        return read_part_by_node(o, object, start, dst, len);
    }
    if (goes_straight(object)) {
        return read_straight(o, object, start, dst, len);
    }
    return read_cached(o, object, start, dst, len, load_whole(o, object, len, whole));
}

VjBuf *vj_object_hold(VjObjects *o, const VjObject *object, uint32_t start, uint32_t len)
{
    const VjCacheRead read = {start, len, true};
    VjBuf *plain = NULL;
    const VjTrailer *trailer;
    VjCacheEntry *entry;

    g_assert(len <= object->plain_bytes && start <= object->plain_bytes - len);
    vj_lock_assert_none();
    if (len < HOLD_LEAST) {
        return NULL; /* pieces, which are counted when they are read */
    }
    if (vj_cache_find(&o->cache, object, start, len, &plain) == VJ_CACHE_COMING &&
        vj_cache_use(o, object, &read, &entry, &plain, &trailer) == 0) {
        vj_cache_done(&o->cache, entry);
    }
    return plain;
}

/* One replica is damaged, and was not mended: nothing may be changed here, or its node
 * cannot remove it.  Each node is asked for its own. */
static int read_any(VjObjects *o, const VjObject *object, uint32_t start, void *dst,
                    uint32_t len, bool whole)
{
    int rc = -EBADMSG;
    VjObject one;

    for (unsigned i = 0; rc == -EBADMSG && vj_object_at(o, object, i, &one); i++) {
        vj_cache_drop(&o->cache, object->id);
        rc = read_once(o, &one, start, dst, len, whole);
    }
    if (rc == 0) {
        vj_log_warn("object %" G_GUINT64_FORMAT
                    ": a replica is damaged, another one was read",
                    object->id);
    }
    return rc;
}

int vj_object_read(VjObjects *o, const VjObject *object, uint32_t start, void *dst,
                   uint32_t len, bool whole)
{
    int rc;

    g_assert(len <= object->plain_bytes && start <= object->plain_bytes - len);
    if (len == 0) {
        return 0;
    }
    vj_lock_assert_none();
    rc = read_once(o, object, start, dst, len, whole);
    if (vj_object_mend(o, object, rc)) {
        rc = read_once(o, object, start, dst, len, whole);
    }
    return rc == -EBADMSG ? read_any(o, object, start, dst, len, whole) : rc;
}
