/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * by-node.c - the modes server and transport: a node makes the stored form
 *
 * server      plain bytes go to the node, which encodes them as the file wants; reads of
 *             a part get that part of the content, already decoded
 * transport   what goes over the wire is encoded, either way, where that makes it
 *             shorter; the node keeps plain bytes
 *
 * Which of the two an object was put by stands in its record, and reads follow it.  What
 * a node answers is compared with the digest where all of the content was got, and with
 * what the record would say where none was encoded; a part of an encoded object is what
 * the node says.
 */
#include "object/object-private.h"

/* Bytes of which one in so many must be saved, else the plain ones are sent. */
#define WIRE_GAIN_SHARE 16u
/* After so many contents in a row that did not become shorter some are not tried: one,
 * then twice as many each time, but not more than WIRE_SKIP_MAX. */
#define WIRE_MISSES 4u
#define WIRE_SKIP_MAX 64u

bool vj_by_node_applies(const VjObjects *o, const VjTransform *want)
{
    return want->mode != VJ_MODE_CLIENT && want->key_id == 0 &&
           vj_store_takes_plain(o->store);
}

VjTransform vj_by_node_stored(const VjTransform *want)
{
    VjTransform stored = *want;

    if (want->mode == VJ_MODE_TRANSPORT) {
        stored.codec = VJ_CODEC_ID_NONE;
        stored.param = 0;
        stored.level = 0;
    }
    return stored;
}

/* ---- whether encoding for the wire pays -------------------------------------------- */

/* True: to be tried, and said by trial_ended() how it went. */
static bool trial_begins(VjObjects *o, VjWireTrial *t)
{
    bool try;

    vj_mutex_lock(&o->cache.lock);
    try = t->skip == 0;
    if (!try) {
        t->skip--;
        o->cache.stats.wire_untried++;
    }
    vj_mutex_unlock(&o->cache.lock);
    return try;
}

static void trial_ended(VjObjects *o, VjWireTrial *t, bool is_shorter, uint64_t saved)
{
    vj_mutex_lock(&o->cache.lock);
    if (is_shorter) {
        t->misses = t->skip = 0;
        o->cache.stats.wire_encoded++;
        o->cache.stats.wire_saved_bytes += saved;
    } else {
        t->misses = MIN(t->misses + 1, WIRE_MISSES + 16);
        t->skip = t->misses < WIRE_MISSES
                      ? 0
                      : MIN(1u << (t->misses - WIRE_MISSES), WIRE_SKIP_MAX);
        o->cache.stats.wire_unshrunk++;
    }
    vj_mutex_unlock(&o->cache.lock);
}

/* ---- putting ----------------------------------------------------------------------- */

/* The codec of @want may make bytes shorter, whatever they stand beside. */
static bool may_shorten(const VjTransform *want)
{
    const VjCodecOps *ops = vj_codec_by_id(want->codec);

    return ops != NULL &&
           (ops->flags & (VJ_CODEC_SAME_LENGTH | VJ_CODEC_USES_CONTEXT)) == 0;
}

/* @plain as it goes over the wire.  NULL: as it is. */
static VjBuf *encode_for_wire(const void *plain, const VjTransform *want,
                              uint32_t plain_bytes, size_t *len)
{
    VjCodecSpec spec = {.ops = vj_codec_by_id(want->codec),
                        .params = {.param = want->param, .level = want->level}};
    size_t most = plain_bytes - plain_bytes / WIRE_GAIN_SHARE;
    g_autoptr(VjBuf) out = NULL;

    out = vj_buf_new(most);
    if (out == NULL ||
        vj_codec_encode(&spec, NULL, plain, plain_bytes, out->data, most, len) < 0) {
        return NULL;
    }
    return g_steal_pointer(&out);
}

/* What the node says of the form is what can be, and, where it kept the content as it
 * is, what we would have made. */
static int check_form(const void *plain, const VjTransform *stored, VjObject *object,
                      const VjStoreForm *form)
{
    const VjTransform none = {.codec = VJ_CODEC_ID_NONE};
    g_autoptr(VjTrailer) t = NULL;
    g_autoptr(VjBuf) data = NULL;
    VjObject own = *object;
    VjFormFault fault;
    VjCodecSpec spec;
    bool varying;
    int rc;

    object->codec = form->codec;
    object->stored_bytes = form->stored_bytes;
    object->trailer_checksum = form->trailer_checksum;
    if (form->plain_bytes != object->plain_bytes || form->key_id != 0 ||
        (form->codec != stored->codec && form->codec != VJ_CODEC_ID_NONE) ||
        form->stored_bytes > VJ_STORE_OBJECT_MAX ||
        vj_form_shape(object, &spec, &varying, &fault) < 0) {
        return -EPROTO;
    }
    if (form->codec != VJ_CODEC_ID_NONE) {
        return 0;
    }
    rc = vj_form_encode(plain, &none, &own, &data, &t);
    if (rc < 0) {
        return rc;
    }
    return own.stored_bytes == object->stored_bytes &&
                   own.trailer_checksum == object->trailer_checksum
               ? 0
               : -EPROTO;
}

int vj_by_node_put(VjObjects *o, const void *plain, const VjTransform *want,
                   VjObject *object)
{
    VjTransform stored = vj_by_node_stored(want);
    VjStoreWant to_do = {.codec = stored.codec,
                         .param = stored.param,
                         .level = stored.level,
                         .plain_bytes = object->plain_bytes};
    g_autoptr(VjBuf) encoded = NULL;
    size_t len = object->plain_bytes;
    VjStoreForm form;
    VjPut put;
    int rc;

    if (want->mode == VJ_MODE_TRANSPORT && may_shorten(want) &&
        trial_begins(o, &o->wire_put)) {
        encoded = encode_for_wire(plain, want, object->plain_bytes, &len);
        to_do.wire_codec = encoded != NULL ? want->codec : 0;
        to_do.wire_param = encoded != NULL ? want->param : 0;
        trial_ended(o, &o->wire_put, encoded != NULL, object->plain_bytes - len);
    }
    rc = vj_store_put_plain(o->store, object->id, &to_do,
                            encoded != NULL ? encoded->data : plain, len, &put, &form);
    if (rc < 0) {
        return rc;
    }
    object->loc = put.loc;
    object->flags |= want->mode == VJ_MODE_SERVER ? VJ_OBJECT_BY_NODE : VJ_OBJECT_ON_WIRE;
    rc = check_form(plain, &stored, object, &form);
    if (rc < 0) {
        vj_log_warn("object %" G_GUINT64_FORMAT ": its node made something else of it "
                    "than was asked for; this mount encodes it",
                    object->id);
        (void)!vj_store_remove(o->store, object->id, object->loc);
    }
    return rc;
}

/* ---- reading ----------------------------------------------------------------------- */

static int decode_from_wire(const VjStoreWant *wire, const VjBuf *bytes, void *dst,
                            uint32_t len)
{
    VjCodecSpec spec = {.ops = vj_codec_by_id(wire->wire_codec),
                        .params = {.param = wire->wire_param}};

    return vj_codec_decode(&spec, NULL, bytes->data, bytes->len, dst, len);
}

int vj_by_node_read(VjObjects *o, const VjObject *object, uint32_t start, void *dst,
                    uint32_t len)
{
    VjStoreWant wire = {.wire_codec = VJ_CODEC_ID_LZ4};
    bool is_wire = (object->flags & VJ_OBJECT_ON_WIRE) != 0 &&
                   vj_codec_by_id(VJ_CODEC_ID_LZ4) != NULL &&
                   trial_begins(o, &o->wire_get);
    VjStoreForm form = vj_object_store_form(object);
    g_autoptr(VjBuf) bytes = NULL;
    bool is_encoded;
    int rc = vj_store_get_plain(o->store, object->id, object->loc, &form, start, len,
                                is_wire ? &wire : NULL, &bytes, &is_encoded);

    if (rc < 0) {
        return rc;
    }
    vj_cache_count_get(&o->cache, bytes->len);
    if (is_wire) {
        trial_ended(o, &o->wire_get, is_encoded, len - MIN(len, bytes->len));
    }
    if (is_encoded) {
        rc = decode_from_wire(&wire, bytes, dst, len);
    } else {
        memcpy(dst, bytes->data, len);
    }
    return rc;
}

int vj_by_node_load(VjObjects *o, const VjObject *object, VjBuf **plain)
{
    g_autoptr(VjBuf) got = vj_buf_new(object->plain_bytes);
    struct iovec iov;
    VjDigest digest;
    int rc;

    *plain = NULL;
    if (got == NULL) {
        return -ENOMEM;
    }
    rc = vj_by_node_read(o, object, 0, got->data, object->plain_bytes);
    iov = (struct iovec){.iov_base = got->data, .iov_len = object->plain_bytes};
    if (rc == 0) {
        rc = vj_digest_hash(o->digest, &iov, 1, &digest);
    }
    if (rc == 0 && memcmp(&digest, &object->digest, sizeof digest) != 0) {
        rc = -EBADMSG;
    }
    if (rc == 0) {
        got->len = object->plain_bytes;
        *plain = g_steal_pointer(&got);
    }
    return rc;
}
