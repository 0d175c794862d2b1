/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-load.c - stored bytes of an object, verified and decoded
 *
 * What comes from the store is compared with the checksums that the record and the
 * trailer hold before anything else looks at it.  A block that is not what was stored
 * fails the ranges that touch it and no others.
 */
#include "object/object-private.h"

bool vj_object_shape(uint8_t codec, VjCodecSpec *spec, bool *varying)
{
    const uint32_t even = VJ_CODEC_SAME_LENGTH | VJ_CODEC_RANDOM_ACCESS;

    *spec = (VjCodecSpec){.ops = vj_codec_by_id(codec)};
    *varying = spec->ops != NULL && (spec->ops->flags & even) != even;
    return spec->ops != NULL;
}

/* Reports why @object cannot be read, once: to the caller where it gave @fault, which
 * then names the file; else to the log. */
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
    vj_verified_drop(&o->verified, object->id);
    return -EBADMSG;
}

int vj_object_load_stored(VjObjects *o, const VjObject *object, uint32_t offset,
                          void *dst, uint32_t len)
{
    int rc = vj_store_get_unaligned(o->store, object->id, object->loc, offset, dst, len);

    vj_cache_count_get(&o->cache, len);
    if (rc == -EBADMSG) {
        return report_damage(o, object, "the length", offset);
    }
    if (rc == -ENOENT) {
        tell(object, "not in the store");
        vj_verified_drop(&o->verified, object->id);
    }
    return rc;
}

/* What the record says about lengths is possible. */
int vj_object_load_shape(VjObjects *o, const VjObject *object, VjCodecSpec *spec,
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
    rc = vj_object_load_shape(o, object, &spec, &varying);
    if (rc < 0) {
        return rc;
    }
    bytes = vj_trailer_bytes(varying, object->plain_bytes);
    raw = g_try_malloc(bytes);
    if (raw == NULL) {
        return -ENOMEM;
    }
    rc = vj_object_load_stored(o, object, object->stored_bytes - bytes, raw, bytes);
    return rc < 0 ? rc : parse_trailer(o, object, varying, raw, out);
}

/* Blocks [first, last] as stored begin at @stored; all of them are compared. */
int vj_object_verify_blocks(VjObjects *o, const VjObject *object, const VjTrailer *t,
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

int vj_object_decode_blocks(VjObjects *o, const VjObject *object, const VjCodecSpec *spec,
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
        const VjCodecContext context = vj_object_context(object, i);
        bool all = take == plain_len;
        int rc;

        if (!all && part == NULL) {
            part = g_try_malloc(block);
            if (part == NULL) {
                return -ENOMEM;
            }
        }
        rc = vj_codec_decode(spec, &context, src, src_len, all ? dst : part, plain_len);
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

int vj_object_unpack(VjObjects *o, const VjObject *object, VjBuf *stored, VjBuf **plain)
{
    g_autoptr(VjBuf) decoded = NULL;
    g_autoptr(VjTrailer) t = NULL;
    VjCodecSpec spec;
    bool varying;
    int rc;

    *plain = NULL;
    rc = vj_object_load_shape(o, object, &spec, &varying);
    if (rc == 0) {
        rc = parse_trailer(o, object, varying,
                           stored->data + object->stored_bytes -
                               vj_trailer_bytes(varying, object->plain_bytes),
                           &t);
    }
    if (rc == 0) {
        rc = vj_object_verify_blocks(o, object, t, 0, t->block_count - 1, stored->data);
    }
    if (rc < 0) {
        return rc;
    }
    if (vj_codec_is_identity(&spec)) {
        decoded = vj_buf_ref(stored);
    } else {
        decoded = vj_buf_new(object->plain_bytes);
        rc = decoded == NULL
                 ? -ENOMEM
                 : vj_object_decode_blocks(o, object, &spec, t, 0, stored->data, 0,
                                           decoded->data, object->plain_bytes);
        if (rc < 0) {
            return rc;
        }
    }
    decoded->len = object->plain_bytes;
    *plain = g_steal_pointer(&decoded);
    return 0;
}

int vj_object_load(VjObjects *o, const VjObject *object, VjBuf **plain)
{
    g_autoptr(VjBuf) stored = NULL;
    VjCodecSpec spec;
    bool varying;
    int rc;

    *plain = NULL;
    rc = vj_object_load_shape(o, object, &spec, &varying);
    if (rc < 0) {
        return rc;
    }
    stored = vj_buf_new(object->stored_bytes);
    if (stored == NULL) {
        return -ENOMEM;
    }
    rc = vj_object_load_stored(o, object, 0, stored->data, object->stored_bytes);
    return rc < 0 ? rc : vj_object_unpack(o, object, stored, plain);
}
