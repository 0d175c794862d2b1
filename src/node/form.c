/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* form.c - what a node does of the room object's work, for its clients */
#include "node/form.h"

#include "object/form.h"

static VjObject object_of(VjWireObject which, const VjWireForm *form)
{
    return (VjObject){.id = which.id,
                      .codec = form->codec,
                      .requested_codec = form->codec,
                      .param = form->param,
                      .key_id = form->key_id,
                      .plain_bytes = form->plain_bytes,
                      .stored_bytes = form->stored_bytes,
                      .trailer_checksum = form->trailer_checksum};
}

/* Not -ENOENT of the conversion: a store whose locators are others has no such object. */
static int get(VjStore *s, VjWireObject which, uint64_t offset, void *dst, size_t len)
{
    return vj_store_get_unaligned(s, which.id, vj_store_loc_of_nonce(s, which.nonce),
                                  offset, dst, len);
}

/* All of the content, verified.  *plain owned. */
static int load(VjStore *s, VjWireObject which, const VjWireForm *form, VjBuf **plain)
{
    VjObject object = object_of(which, form);
    g_autoptr(VjBuf) stored = NULL;
    VjFormFault fault;
    VjCodecSpec spec;
    bool varying;
    int rc;

    *plain = NULL;
    if (form->key_id != 0) {
        return -EOPNOTSUPP;
    }
    rc = vj_form_shape(&object, &spec, &varying, &fault);
    if (rc < 0) {
        return rc;
    }
    stored = vj_buf_new(object.stored_bytes);
    if (stored == NULL) {
        return -ENOMEM;
    }
    rc = get(s, which, 0, stored->data, object.stored_bytes);
    return rc < 0 ? rc : vj_form_unpack(&object, stored, plain, &fault);
}

int vj_node_digest(VjStore *s, const VjWireDigest *m, uint8_t out[VJ_WIRE_DIGEST_BYTES])
{
    bool is_known;
    const VjDigestOps *ops = vj_digest_by_id(m->digest, &is_known);
    g_autoptr(VjBuf) plain = NULL;
    struct iovec iov;
    VjDigest digest;
    int rc;

    G_STATIC_ASSERT(VJ_WIRE_DIGEST_BYTES == VJ_DIGEST_MAX_BYTES);
    if (ops == NULL) {
        return -EOPNOTSUPP;
    }
    rc = load(s, m->object, &m->form, &plain);
    if (rc < 0) {
        return rc;
    }
    iov = (struct iovec){.iov_base = plain->data, .iov_len = plain->len};
    rc = vj_digest_hash(ops, &iov, 1, &digest);
    memcpy(out, digest.bytes, sizeof digest.bytes);
    return rc;
}

/* ---- content in -------------------------------------------------------------------- */

/* The content itself: @bytes, or *decoded, owned. */
static int decode_wire(const VjWirePutPlain *m, VjSlice bytes, VjBuf **decoded)
{
    VjCodecSpec spec = {.ops = vj_codec_by_id(m->wire_codec),
                        .params = {.param = m->wire_param}};
    g_autoptr(VjBuf) plain = NULL;
    int rc;

    *decoded = NULL;
    if (m->wire_codec == VJ_CODEC_ID_NONE) {
        return bytes.len == m->plain_bytes ? 0 : -EPROTO;
    }
    if (spec.ops == NULL || (spec.ops->flags & VJ_CODEC_USES_CONTEXT) != 0) {
        return -EOPNOTSUPP;
    }
    plain = vj_buf_new(m->plain_bytes);
    if (plain == NULL) {
        return -ENOMEM;
    }
    rc = vj_codec_decode(&spec, NULL, bytes.data, bytes.len, plain->data, m->plain_bytes);
    if (rc < 0) {
        return rc == -EBADMSG ? -EPROTO : rc;
    }
    *decoded = g_steal_pointer(&plain);
    return 0;
}

int vj_node_put_plain(VjStore *s, const VjWirePutPlain *m, VjSlice bytes,
                      VjWireForm *form)
{
    VjTransform want = {.codec = m->codec, .param = m->param, .level = (int8_t)m->level};
    VjObject object = {
        .id = m->object.id, .plain_bytes = m->plain_bytes, .param = m->param};
    g_autoptr(VjBuf) decoded = NULL;
    g_autoptr(VjBuf) data = NULL;
    g_autoptr(VjTrailer) t = NULL;
    g_autoptr(VjBuf) whole = NULL;
    const void *plain;
    struct iovec iov;
    VjPut put;
    int rc = decode_wire(m, bytes, &decoded);

    if (rc < 0) {
        return rc;
    }
    plain = decoded != NULL ? decoded->data : bytes.data;
    rc = vj_form_encode(plain, &want, &object, &data, &t);
    if (rc < 0) {
        return rc;
    }
    /* In one piece, as the store may ask for alignment. */
    whole = vj_buf_new(object.stored_bytes);
    if (whole == NULL) {
        return -ENOMEM;
    }
    memcpy(whole->data, data != NULL ? data->data : plain, t->data_bytes);
    memcpy(whole->data + t->data_bytes, t->raw, t->bytes);
    iov = (struct iovec){.iov_base = whole->data, .iov_len = object.stored_bytes};
    rc = vj_store_put_as(s, m->object.id, m->object.nonce, &iov, 1, &put);
    *form = (VjWireForm){.codec = object.codec,
                         .param = m->param,
                         .plain_bytes = object.plain_bytes,
                         .stored_bytes = object.stored_bytes,
                         .trailer_checksum = object.trailer_checksum};
    return rc;
}

/* ---- content out ------------------------------------------------------------------- */

/* Its trailer alone.  *out owned. */
static int load_trailer(VjStore *s, VjWireObject which, const VjObject *object,
                        bool varying, VjTrailer **out)
{
    uint32_t bytes = vj_trailer_bytes(varying, object->plain_bytes);
    g_autofree uint8_t *raw = g_try_malloc(bytes);
    VjFormFault fault;
    int rc;

    *out = NULL;
    if (raw == NULL) {
        return -ENOMEM;
    }
    rc = get(s, which, object->stored_bytes - bytes, raw, bytes);
    return rc < 0 ? rc : vj_form_trailer(object, varying, raw, out, &fault);
}

/* The range [@offset, @offset + @len) of the content. */
static int load_range(VjStore *s, const VjWireGetPlain *m, uint8_t *dst)
{
    VjObject object = object_of(m->object, &m->form);
    g_autoptr(VjTrailer) t = NULL;
    g_autoptr(VjBuf) stored = NULL;
    uint32_t block, first, last, from, bytes;
    VjFormFault fault;
    VjCodecSpec spec;
    bool varying;
    int rc = m->form.key_id != 0 ? -EOPNOTSUPP
                                 : vj_form_shape(&object, &spec, &varying, &fault);

    if (rc == 0) {
        rc = load_trailer(s, m->object, &object, varying, &t);
    }
    if (rc < 0) {
        return rc;
    }
    block = vj_stored_block_bytes(varying);
    first = m->offset / block;
    last = (m->offset + m->len - 1) / block;
    from = vj_trailer_block_start(t, first);
    bytes = vj_trailer_block_end(t, last) - from;
    stored = vj_buf_new(bytes);
    if (stored == NULL) {
        return -ENOMEM;
    }
    rc = get(s, m->object, from, stored->data, bytes);
    if (rc == 0) {
        rc = vj_form_verify_blocks(t, first, last, stored->data, &fault);
    }
    return rc < 0 ? rc
                  : vj_form_decode_blocks(&object, &spec, t, first, stored->data,
                                          m->offset, dst, m->len, &fault);
}

/* Shorter, or nothing.  Owned. */
static VjBuf *encode_wire(const VjWireGetPlain *m, const VjBuf *plain)
{
    VjCodecSpec spec = {.ops = vj_codec_by_id(m->wire_codec),
                        .params = {.param = m->wire_param}};
    g_autoptr(VjBuf) out = NULL;

    if (m->wire_codec == VJ_CODEC_ID_NONE || spec.ops == NULL || plain->len < 2 ||
        (spec.ops->flags & VJ_CODEC_USES_CONTEXT) != 0) {
        return NULL;
    }
    out = vj_buf_new(plain->len - 1);
    if (out == NULL || vj_codec_encode(&spec, NULL, plain->data, plain->len, out->data,
                                       plain->len - 1, &out->len) < 0) {
        return NULL;
    }
    return g_steal_pointer(&out);
}

int vj_node_get_plain(VjStore *s, const VjWireGetPlain *m, VjBuf **bytes,
                      uint8_t *wire_codec)
{
    g_autoptr(VjBuf) plain = vj_buf_new(m->len);
    VjBuf *encoded;
    int rc;

    *bytes = NULL;
    *wire_codec = VJ_CODEC_ID_NONE;
    if (plain == NULL) {
        return -ENOMEM;
    }
    rc = load_range(s, m, plain->data);
    if (rc < 0) {
        return rc;
    }
    plain->len = m->len;
    encoded = encode_wire(m, plain);
    *wire_codec = encoded != NULL ? m->wire_codec : VJ_CODEC_ID_NONE;
    *bytes = encoded != NULL ? encoded : g_steal_pointer(&plain);
    return 0;
}
