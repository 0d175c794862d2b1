/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * form.c - from content to its stored form and back, without a volume
 *
 * What comes from a store is compared with the checksums that the record and the trailer
 * hold before anything else looks at it.
 */
#include "object/form.h"

static int damaged(VjFormFault *fault, const char *what, uint64_t at)
{
    *fault = (VjFormFault){.what = what, .at = at};
    return -EBADMSG;
}

/* ---- shape ------------------------------------------------------------------------- */

bool vj_form_of_codec(uint8_t codec, VjCodecSpec *spec, bool *varying)
{
    const uint32_t even = VJ_CODEC_SAME_LENGTH | VJ_CODEC_RANDOM_ACCESS;

    *spec = (VjCodecSpec){.ops = vj_codec_by_id(codec)};
    *varying = spec->ops != NULL && (spec->ops->flags & even) != even;
    return spec->ops != NULL;
}

int vj_form_shape(const VjObject *object, VjCodecSpec *spec, bool *varying,
                  VjFormFault *fault)
{
    uint32_t trailer_bytes;

    if (!vj_form_of_codec(object->codec, spec, varying)) {
        return -EOPNOTSUPP;
    }
    spec->params.param = object->param;
    trailer_bytes = vj_trailer_bytes(*varying, object->plain_bytes);
    if (object->stored_bytes <= trailer_bytes ||
        (!*varying && object->stored_bytes - trailer_bytes != object->plain_bytes)) {
        return damaged(fault, "the length", object->stored_bytes);
    }
    return 0;
}

/* ---- encoding ---------------------------------------------------------------------- */

/* Data bytes of the varying shape that are fewer than those of `none`, trailers
 * or not. */
static uint32_t most_worth_it(uint32_t plain_bytes)
{
    uint32_t even = vj_trailer_bytes(false, plain_bytes);
    uint32_t varying = vj_trailer_bytes(true, plain_bytes);
    uint32_t more = varying > even ? varying - even : 0;

    return plain_bytes > more + 1 ? plain_bytes - more - 1 : 0;
}

/* Bytes [@at, @at + @len) of @from, copied to @seam where they are in both places. */
static const uint8_t *source_block(const VjFormSource *from, size_t at, size_t len,
                                   uint8_t seam[VJ_STORED_EVEN_BYTES])
{
    size_t before;

    if (from->rest == NULL || at + len <= from->first_len) {
        return from->first + at;
    }
    if (at >= from->first_len) {
        return from->rest + (at - from->first_len);
    }
    g_assert(len <= VJ_STORED_EVEN_BYTES);
    before = from->first_len - at;
    memcpy(seam, from->first + at, before);
    memcpy(seam + before, from->rest, len - before);
    return seam;
}

/*
 * The blocks of @from in the shape of @spec.  *data is NULL where they are the content
 * itself. -ENOSPC: the whole would not be smaller than `none` makes it (what keeps the
 * length need not be: it was not chosen to save space).
 */
static int encode_blocks(const VjObject *object, const VjCodecSpec *spec, bool varying,
                         const VjFormSource *from, VjBuf **data, VjTrailer **trailer)
{
    uint8_t seam[VJ_STORED_EVEN_BYTES];
    bool as_it_is = vj_codec_is_identity(spec);
    uint32_t plain_bytes = object->plain_bytes;
    uint32_t most = varying ? most_worth_it(plain_bytes) : plain_bytes;
    g_autoptr(VjTrailer) t = vj_trailer_new(spec->ops->id, varying, plain_bytes);
    g_autoptr(VjBuf) encoded = as_it_is ? NULL : vj_buf_new(most);
    uint32_t at = 0;

    if (t == NULL || (!as_it_is && encoded == NULL)) {
        return -ENOMEM;
    }
    g_assert(from->rest == NULL || (as_it_is && !varying));
    for (uint32_t i = 0; i < t->block_count; i++) {
        size_t len = vj_trailer_block_plain(t, i);
        const uint8_t *src =
            source_block(from, (size_t)i * vj_stored_block_bytes(varying), len, seam);

        if (!as_it_is) {
            const VjCodecContext context = vj_form_context(object, i);
            int rc = vj_codec_encode(spec, &context, src, len, encoded->data + at,
                                     most - at, &len);

            if (rc < 0) {
                return rc;
            }
            src = encoded->data + at;
            at += (uint32_t)len;
        }
        vj_trailer_add(t, i, src, (uint32_t)len);
    }
    *data = g_steal_pointer(&encoded);
    *trailer = g_steal_pointer(&t);
    return 0;
}

int vj_form_encode_from(const VjFormSource *from, const VjTransform *want,
                        VjObject *object, VjBuf **data, VjTrailer **trailer)
{
    VjCodecSpec spec;
    bool varying;
    int rc;

    if (!vj_form_of_codec(want->codec, &spec, &varying)) {
        return -EOPNOTSUPP;
    }
    spec.params = (VjCodecParams){.param = want->param, .level = want->level};
    rc = encode_blocks(object, &spec, varying, from, data, trailer);
    if (rc == -ENOSPC && object->key_id != 0) {
        return -EOPNOTSUPP;
    }
    if (rc == -ENOSPC && vj_form_of_codec(VJ_CODEC_ID_NONE, &spec, &varying)) {
        rc = encode_blocks(object, &spec, varying, from, data, trailer);
    }
    if (rc < 0) {
        return rc;
    }
    object->trailer_checksum = vj_trailer_seal(*trailer);
    object->codec = (*trailer)->codec;
    object->stored_bytes = (*trailer)->data_bytes + (*trailer)->bytes;
    return 0;
}

int vj_form_encode(const void *plain, const VjTransform *want, VjObject *object,
                   VjBuf **data, VjTrailer **trailer)
{
    VjFormSource from = {.first = plain, .first_len = object->plain_bytes};

    return vj_form_encode_from(&from, want, object, data, trailer);
}

/* ---- verifying and decoding -------------------------------------------------------- */

int vj_form_trailer(const VjObject *object, bool varying, const void *raw,
                    VjTrailer **out, VjFormFault *fault)
{
    uint32_t bytes = vj_trailer_bytes(varying, object->plain_bytes);
    int rc = vj_trailer_parse(vj_slice(raw, bytes), object->codec, varying,
                              object->plain_bytes, object->stored_bytes,
                              object->trailer_checksum, out);

    return rc != -EBADMSG ? rc
                          : damaged(fault, "the trailer", object->stored_bytes - bytes);
}

int vj_form_verify_blocks(const VjTrailer *t, uint32_t first, uint32_t last,
                          const uint8_t *stored, VjFormFault *fault)
{
    uint32_t start = vj_trailer_block_start(t, first);

    for (uint32_t i = first; i <= last; i++) {
        uint32_t at = vj_trailer_block_start(t, i);

        if (!vj_trailer_block_is_right(t, i, stored + (at - start))) {
            return damaged(fault, "a block", at);
        }
    }
    return 0;
}

int vj_form_decode_blocks(const VjObject *object, const VjCodecSpec *spec,
                          const VjTrailer *t, uint32_t first, const uint8_t *stored,
                          uint32_t start, uint8_t *dst, uint32_t len, VjFormFault *fault)
{
    uint32_t block = vj_stored_block_bytes(t->varying);
    uint32_t base = vj_trailer_block_start(t, first);
    g_autofree uint8_t *part = NULL;

    for (uint32_t i = first; len > 0; i++) {
        const uint8_t *src = stored + (vj_trailer_block_start(t, i) - base);
        uint32_t src_len = vj_trailer_block_end(t, i) - vj_trailer_block_start(t, i);
        uint32_t plain_len = vj_trailer_block_plain(t, i);
        uint32_t skip = start - i * block;
        uint32_t take = MIN(len, plain_len - skip);
        const VjCodecContext context = vj_form_context(object, i);
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
            return rc == -EBADMSG
                       ? damaged(fault, "an encoded block", vj_trailer_block_start(t, i))
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

static int trailer_of(const VjObject *object, const uint8_t *stored, VjCodecSpec *spec,
                      VjTrailer **out, VjFormFault *fault)
{
    bool varying;
    int rc = vj_form_shape(object, spec, &varying, fault);

    *out = NULL;
    if (rc == 0) {
        rc = vj_form_trailer(object, varying,
                             stored + object->stored_bytes -
                                 vj_trailer_bytes(varying, object->plain_bytes),
                             out, fault);
    }
    return rc;
}

int vj_form_verify(const VjObject *object, const uint8_t *stored, VjFormFault *fault)
{
    g_autoptr(VjTrailer) t = NULL;
    VjCodecSpec spec;
    int rc = trailer_of(object, stored, &spec, &t, fault);

    return rc < 0 ? rc : vj_form_verify_blocks(t, 0, t->block_count - 1, stored, fault);
}

int vj_form_unpack(const VjObject *object, VjBuf *stored, VjBuf **plain,
                   VjFormFault *fault)
{
    g_autoptr(VjBuf) decoded = NULL;
    g_autoptr(VjTrailer) t = NULL;
    VjCodecSpec spec;
    int rc;

    *plain = NULL;
    rc = trailer_of(object, stored->data, &spec, &t, fault);
    if (rc == 0) {
        rc = vj_form_verify_blocks(t, 0, t->block_count - 1, stored->data, fault);
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
                 : vj_form_decode_blocks(object, &spec, t, 0, stored->data, 0,
                                         decoded->data, object->plain_bytes, fault);
        if (rc < 0) {
            return rc;
        }
    }
    decoded->len = object->plain_bytes;
    *plain = g_steal_pointer(&decoded);
    return 0;
}
