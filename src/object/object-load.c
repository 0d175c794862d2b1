/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-load.c - stored bytes of an object, verified and decoded
 *
 * What comes from the store is compared with the checksums that the record and the
 * trailer hold before anything else looks at it.  A block that is not what was stored
 * fails the ranges that touch it and no others.
 */
#include "object/object-private.h"

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
    int rc = vj_store_get_checked(o->store, object->id, object->loc, offset, dst, len);

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

/* What of @rc has to be reported, is. */
static int report(VjObjects *o, const VjObject *object, int rc, const VjFormFault *fault)
{
    if (rc == -EOPNOTSUPP) {
        g_autofree char *why =
            g_strdup_printf("transformation %u (%s) is not in this build", object->codec,
                            vj_codec_name_of(object->codec));

        tell(object, why);
    }
    return rc == -EBADMSG ? report_damage(o, object, fault->what, fault->at) : rc;
}

int vj_object_load_shape(VjObjects *o, const VjObject *object, VjCodecSpec *spec,
                         bool *varying)
{
    VjFormFault fault;
    int rc = vj_form_shape(object, spec, varying, &fault);

    return report(o, object, rc, &fault);
}

int vj_object_load_trailer(VjObjects *o, const VjObject *object, VjTrailer **out)
{
    g_autofree uint8_t *raw = NULL;
    VjFormFault fault;
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
    return rc < 0 ? rc
                  : report(o, object, vj_form_trailer(object, varying, raw, out, &fault),
                           &fault);
}

int vj_object_verify_blocks(VjObjects *o, const VjObject *object, const VjTrailer *t,
                            uint32_t first, uint32_t last, const uint8_t *stored)
{
    VjFormFault fault;

    return report(o, object, vj_form_verify_blocks(t, first, last, stored, &fault),
                  &fault);
}

static void count_decoded(VjObjectCache *c, uint32_t blocks, uint64_t bytes)
{
    vj_mutex_lock(&c->lock);
    c->stats.decoded_blocks += blocks;
    c->stats.decoded_bytes += bytes;
    vj_mutex_unlock(&c->lock);
}

int vj_object_decode_blocks(VjObjects *o, const VjObject *object, const VjCodecSpec *spec,
                            const VjTrailer *t, uint32_t first, const uint8_t *stored,
                            uint32_t start, uint8_t *dst, uint32_t len)
{
    uint32_t block = vj_stored_block_bytes(t->varying), last = (start + len - 1) / block;
    VjFormFault fault;

    count_decoded(&o->cache, last - first + 1,
                  (uint64_t)(last - first) * block + vj_trailer_block_plain(t, last));
    return report(
        o, object,
        vj_form_decode_blocks(object, spec, t, first, stored, start, dst, len, &fault),
        &fault);
}

int vj_object_unpack(VjObjects *o, const VjObject *object, VjBuf *stored, VjBuf **plain)
{
    VjFormFault fault;
    VjCodecSpec spec;
    bool varying;
    int rc = report(o, object, vj_form_unpack(object, stored, plain, &fault), &fault);

    if (rc == 0 && *plain != stored && vj_form_of_codec(object->codec, &spec, &varying)) {
        count_decoded(&o->cache, vj_stored_block_count(varying, object->plain_bytes),
                      object->plain_bytes);
    }
    return rc;
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

bool vj_object_at(VjObjects *o, const VjObject *object, unsigned index, VjObject *out)
{
    *out = *object;
    return vj_store_loc_at(o->store, object->loc, index, &out->loc);
}

int vj_object_load_any(VjObjects *o, const VjObject *object, VjBuf **plain)
{
    int rc = vj_object_load(o, object, plain);
    VjObject one;

    for (unsigned i = 0; rc == -EBADMSG && vj_object_at(o, object, i, &one); i++) {
        rc = vj_object_load(o, &one, plain);
    }
    return rc;
}

int vj_object_load_content(VjObjects *o, const VjObject *object, VjBuf **plain)
{
    if ((object->flags & (VJ_OBJECT_BY_NODE | VJ_OBJECT_ON_WIRE)) != 0 &&
        vj_store_takes_plain(o->store) && vj_by_node_load(o, object, plain) == 0) {
        return 0;
    }
    return vj_object_load(o, object, plain); /* which reports what is wrong */
}
