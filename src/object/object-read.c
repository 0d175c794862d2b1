/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-read.c - from stored bytes to plaintext, believing nothing that is not verified
 *
 * A part is read by getting the trailer (kept by the cache) and the blocks that the part
 * touches; a whole object by one get of everything.  A block that is not what was stored
 * fails the ranges that touch it and no others.
 */
#include "object/object-private.h"

/* Objects up to this length are always loaded whole: one get instead of two, bytes. */
#define VJ_READ_WHOLE_BELOW 32768u
/* Objects beyond this length are loaded whole only for reads of a good part of them. */
#define VJ_READ_WHOLE_EASILY (1u << 20)
#define VJ_READ_WHOLE_SHARE 8u
/* And none that would take more than this part of the cache, where it would not last. */
#define VJ_READ_WHOLE_CACHE_SHARE 4u

bool vj_object_shape(uint8_t codec, VjCodecSpec *spec, bool *varying)
{
    const uint32_t even = VJ_CODEC_SAME_LENGTH | VJ_CODEC_RANDOM_ACCESS;

    *spec = (VjCodecSpec){.ops = vj_codec_by_id(codec)};
    *varying = spec->ops != NULL && (spec->ops->flags & even) != even;
    return spec->ops != NULL;
}

/* Why @object cannot be read: to whom it matters most, and to nobody else. */
static void tell(const VjObject *object, const char *why)
{
    if (object->fault != NULL) {
        object->fault->object = object->id;
        g_strlcpy(object->fault->why, why, sizeof object->fault->why);
    } else {
        vj_log_error("object %" G_GUINT64_FORMAT ": %s", object->id, why);
    }
}

static int report_damage(VjObjects *o, const VjObject *object, const char *what,
                         uint64_t at)
{
    g_autofree char *why = g_strdup_printf(
        "%s at stored byte %" G_GUINT64_FORMAT " is not what was stored", what, at);

    tell(object, why);
    vj_objects_count(o, damaged, 1);
    vj_inflight_doubt(&o->inflight, object->id);
    return -EBADMSG;
}

static int store_get(VjObjects *o, const VjObject *object, uint32_t offset, void *dst,
                     uint32_t len)
{
    int rc = vj_store_get(o->store, object->id, object->loc, offset, dst, len);

    vj_mutex_lock(&o->cache.lock);
    o->cache.stats.reads++;
    o->cache.stats.read_bytes += len;
    vj_mutex_unlock(&o->cache.lock);
    if (rc == -EBADMSG) {
        return report_damage(o, object, "the length", offset);
    }
    if (rc == -ENOENT) {
        tell(object, "not in the store");
        vj_inflight_doubt(&o->inflight, object->id);
    }
    return rc;
}

/* What the record says about lengths is possible. */
static int shape_of(VjObjects *o, const VjObject *object, VjCodecSpec *spec,
                    bool *varying)
{
    uint32_t trailer_bytes;

    if (!vj_object_shape(object->codec, spec, varying)) {
        g_autofree char *why =
            g_strdup_printf("transformation %u (%s) is not in this build", object->codec,
                            vj_codec_name_of(object->codec));

        tell(object, why);
        return -EOPNOTSUPP;
    }
    spec->params.param = object->param;
    trailer_bytes = vj_trailer_bytes(*varying, object->plain_bytes);
    if (object->stored_bytes <= trailer_bytes ||
        (!*varying && object->stored_bytes - trailer_bytes != object->plain_bytes)) {
        return report_damage(o, object, "the length", object->stored_bytes);
    }
    return 0;
}

static int parse_trailer(VjObjects *o, const VjObject *object, bool varying,
                         const void *raw, VjTrailer **out)
{
    uint32_t bytes = vj_trailer_bytes(varying, object->plain_bytes);
    int rc = vj_trailer_parse(vj_slice(raw, bytes), object->codec, varying,
                              object->plain_bytes, object->stored_bytes,
                              object->trailer_checksum, out);

    return rc != -EBADMSG
               ? rc
               : report_damage(o, object, "the trailer", object->stored_bytes - bytes);
}

int vj_object_load_trailer(VjObjects *o, const VjObject *object, VjTrailer **out)
{
    g_autofree uint8_t *raw = NULL;
    VjCodecSpec spec;
    uint32_t bytes;
    bool varying;
    int rc;

    *out = NULL;
    rc = shape_of(o, object, &spec, &varying);
    if (rc < 0) {
        return rc;
    }
    bytes = vj_trailer_bytes(varying, object->plain_bytes);
    raw = g_try_malloc(bytes);
    if (raw == NULL) {
        return -ENOMEM;
    }
    rc = store_get(o, object, object->stored_bytes - bytes, raw, bytes);
    return rc < 0 ? rc : parse_trailer(o, object, varying, raw, out);
}

/* Blocks [first, last] as stored begin at @stored; all of them are compared. */
static int verify_blocks(VjObjects *o, const VjObject *object, const VjTrailer *t,
                         uint32_t first, uint32_t last, const uint8_t *stored)
{
    uint32_t start = vj_trailer_block_start(t, first);

    for (uint32_t i = first; i <= last; i++) {
        uint32_t at = vj_trailer_block_start(t, i);

        if (!vj_trailer_block_is_right(t, i, stored + (at - start))) {
            return report_damage(o, object, "a block", at);
        }
    }
    return 0;
}

static void count_decoded(VjObjectCache *c, const VjTrailer *t, uint32_t first,
                          uint32_t last)
{
    uint64_t bytes = (uint64_t)(last - first) * vj_stored_block_bytes(t->varying) +
                     vj_trailer_block_plain(t, last);

    vj_mutex_lock(&c->lock);
    c->stats.decoded_blocks += last - first + 1;
    c->stats.decoded_bytes += bytes;
    vj_mutex_unlock(&c->lock);
}

/*
 * Content bytes [start, start + len) out of the verified blocks from @first on.  A block
 * that is wanted in part is decoded into a block of its own.
 */
static int decode_blocks(VjObjects *o, const VjObject *object, const VjCodecSpec *spec,
                         const VjTrailer *t, uint32_t first, const uint8_t *stored,
                         uint32_t start, uint8_t *dst, uint32_t len)
{
    uint32_t block = vj_stored_block_bytes(t->varying);
    uint32_t base = vj_trailer_block_start(t, first);
    uint32_t last = (start + len - 1) / block;
    g_autofree uint8_t *part = NULL;

    count_decoded(&o->cache, t, first, last);
    for (uint32_t i = first; len > 0; i++) {
        const uint8_t *src = stored + (vj_trailer_block_start(t, i) - base);
        uint32_t src_len = vj_trailer_block_end(t, i) - vj_trailer_block_start(t, i);
        uint32_t plain_len = vj_trailer_block_plain(t, i);
        uint32_t skip = start - i * block;
        uint32_t take = MIN(len, plain_len - skip);
        bool all = take == plain_len;
        int rc;

        if (!all && part == NULL) {
            part = g_try_malloc(block);
            if (part == NULL) {
                return -ENOMEM;
            }
        }
        rc = vj_codec_decode(spec, src, src_len, all ? dst : part, plain_len);
        if (rc < 0) {
            return rc == -EBADMSG ? report_damage(o, object, "an encoded block",
                                                  vj_trailer_block_start(t, i))
                                  : rc;
        }
        if (!all) {
            memcpy(dst, part + skip, take);
        }
        dst += take;
        start += take;
        len -= take;
    }
    return 0;
}

static bool is_identity(const VjCodecSpec *spec)
{
    return (spec->ops->flags & VJ_CODEC_IDENTITY) != 0;
}

int vj_object_load(VjObjects *o, const VjObject *object, VjBuf **plain)
{
    g_autoptr(VjBuf) stored = NULL, decoded = NULL;
    g_autoptr(VjTrailer) t = NULL;
    VjCodecSpec spec;
    bool varying;
    int rc;

    *plain = NULL;
    rc = shape_of(o, object, &spec, &varying);
    if (rc < 0) {
        return rc;
    }
    stored = vj_buf_new(object->stored_bytes);
    if (stored == NULL) {
        return -ENOMEM;
    }
    rc = store_get(o, object, 0, stored->data, object->stored_bytes);
    if (rc == 0) {
        rc = parse_trailer(o, object, varying,
                           stored->data + object->stored_bytes -
                               vj_trailer_bytes(varying, object->plain_bytes),
                           &t);
    }
    if (rc == 0) {
        rc = verify_blocks(o, object, t, 0, t->block_count - 1, stored->data);
    }
    if (rc < 0) {
        return rc;
    }
    if (is_identity(&spec)) {
        decoded = g_steal_pointer(&stored);
    } else {
        decoded = vj_buf_new(object->plain_bytes);
        rc = decoded == NULL ? -ENOMEM
                             : decode_blocks(o, object, &spec, t, 0, stored->data, 0,
                                             decoded->data, object->plain_bytes);
        if (rc < 0) {
            return rc;
        }
    }
    decoded->len = object->plain_bytes;
    *plain = g_steal_pointer(&decoded);
    return 0;
}

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
    int rc = shape_of(o, object, &spec, &varying);

    if (rc < 0) {
        return rc;
    }
    g_assert(varying == t->varying);
    stored = vj_buf_new(bytes);
    if (stored == NULL) {
        return -ENOMEM;
    }
    rc = store_get(o, object, from, stored->data, bytes);
    if (rc == 0) {
        rc = verify_blocks(o, object, t, first, last, stored->data);
    }
    if (rc < 0) {
        return rc;
    }
    return decode_blocks(o, object, &spec, t, first, stored->data, start, dst, len);
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

/* What is gotten of an object and is not wanted, at its ends: room for so many bytes. */
#define SPILL_BYTES (4 * VJ_STORED_EVEN_BYTES)

/*
 * Content that stands in the store as it is goes straight to @dst: keeping it would be a copy more and
 * fresh memory, where the store's own file system keeps it too.  Blocks at the ends that are wanted
 * in part come by way of @spill; a short read does so altogether.
 */
typedef struct Straight {
    uint32_t first, last; /* blocks */
    uint32_t from,
        to; /* stored bytes, of whole blocks; from up to start and beyond the end */
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
        return store_get(o, object, s->from, spill, s->to - s->from);
    }
    if (s->from < s->whole_from) {
        rc = store_get(o, object, s->from, spill, s->whole_from - s->from);
    }
    if (rc == 0) {
        rc = store_get(o, object, s->whole_from, dst + (s->whole_from - start),
                       s->whole_to - s->whole_from);
    }
    if (rc == 0 && s->whole_to < s->to) {
        rc = store_get(o, object, s->whole_to, spill + VJ_STORED_EVEN_BYTES,
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
        rc = verify_blocks(o, object, t, s->first, s->last, s->spill);
        if (rc == 0) {
            memcpy(dst, s->spill + (start - s->from), len);
        }
        return rc;
    }
    if (s->from < s->whole_from) {
        rc = verify_blocks(o, object, t, s->first, s->first, s->spill);
        memcpy(dst, s->spill + (start - s->from), s->whole_from - start);
    }
    if (rc == 0 && s->whole_to < s->to) {
        rc = verify_blocks(o, object, t, s->last, s->last, s->spill + block);
        memcpy(dst + (s->whole_to - start), s->spill + block, start + len - s->whole_to);
        last--;
    }
    return rc < 0
               ? rc
               : verify_blocks(o, object, t, first, last, dst + (s->whole_from - start));
}

/* The content first: so the store's file system has read on when the trailer is wanted. */
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

    switch (vj_cache_find(&o->cache, object, start, len, dst)) {
    case VJ_CACHE_COPIED:
        return 0;
    case VJ_CACHE_WORTH_WHOLE:
        return read_cached(o, object, start, dst, len, true);
    case VJ_CACHE_NONE:
        break;
    }
    rc = shape_of(o, object, &spec, &varying);
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

static bool goes_straight(const VjObject *object)
{
    VjCodecSpec spec;
    bool varying;

    return object->plain_bytes > VJ_READ_WHOLE_BELOW &&
           vj_object_shape(object->codec, &spec, &varying) && is_identity(&spec);
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

bool vj_object_expect(VjObjects *o, const VjObject *object)
{
    vj_lock_assert_none();
    vj_objects_count(o, expected, 1);
    if (goes_straight(object)) {
        vj_store_expect(o->store, object->id, object->loc);
        return true;
    }
    return !load_whole(o, object, VJ_READ_WHOLE_EASILY, true) ||
           vj_cache_has(&o->cache, object->id);
}

void vj_object_load_ahead(VjObjects *o, const VjObject *object)
{
    g_autoptr(VjBuf) plain = NULL;
    const VjTrailer *trailer;
    VjFault fault = {.object = 0};
    VjObject quiet = *object;
    VjCacheEntry *entry;

    quiet.fault = &fault;
    if (vj_cache_use(o, &quiet, &(VjCacheRead){.whole = true}, &entry, &plain,
                     &trailer) == 0) {
        vj_cache_done(&o->cache, entry);
    }
}

int vj_object_read(VjObjects *o, const VjObject *object, uint32_t start, void *dst,
                   uint32_t len, bool whole)
{
    g_assert(len <= object->plain_bytes && start <= object->plain_bytes - len);
    if (len == 0) {
        return 0;
    }
    vj_lock_assert_none();
    if (goes_straight(object)) {
        return read_straight(o, object, start, dst, len);
    }
    return read_cached(o, object, start, dst, len, load_whole(o, object, len, whole));
}
