/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * record-codec.c - the bytes in inline and fragment records under a transformation
 *
 * They are at most a few KiB and read as a whole, so there are no blocks: one run, whose
 * length is what is left of the record.  As with objects, what does not become smaller is
 * stored as none, unless the codec keeps the length of all it gets; encoded bytes are
 * never more than plain ones.
 */
#include "codec/codec.h"
#include "object/object.h"

static VjCodecContext context_of(const VjRecordPlace *place)
{
    bool is_fragment = place->kind == VJ_RECORD_FRAGMENT;

    g_assert(is_fragment || place->number == 0);
    return (VjCodecContext){.domain = is_fragment ? VJ_CODEC_DOMAIN_FRAGMENT
                                                  : VJ_CODEC_DOMAIN_INLINE,
                            .number = place->ino,
                            .block = place->number};
}

bool vj_record_needs_place(const VjTransform *want)
{
    const VjCodecOps *ops = want != NULL ? vj_codec_by_id(want->codec) : NULL;

    return ops != NULL && (ops->flags & VJ_CODEC_USES_CONTEXT) != 0;
}

VjRecordCodec vj_record_encode(const VjTransform *want, const VjRecordPlace *place,
                               const void *src, size_t len, void *dst, size_t *dst_len)
{
    const VjCodecContext context =
        place != NULL ? context_of(place) : (VjCodecContext){.number = 0};
    const VjCodecOps *ops = want != NULL ? vj_codec_by_id(want->codec) : NULL;
    const VjCodecSpec spec = {
        .ops = ops,
        .params = {.param = want != NULL ? want->param : 0,
                   .level = want != NULL ? want->level : 0},
    };

    if (ops != NULL && !(ops->flags & VJ_CODEC_IDENTITY) && want->key_id == 0) {
        size_t most = ops->flags & VJ_CODEC_SAME_LENGTH ? len : len - 1;

        if (vj_codec_encode(&spec, place != NULL ? &context : NULL, src, len, dst, most,
                            dst_len) == 0) {
            return (VjRecordCodec){.codec = want->codec, .param = want->param};
        }
    }
    memcpy(dst, src, len);
    *dst_len = len;
    return (VjRecordCodec){.codec = VJ_CODEC_ID_NONE};
}

int vj_record_decode(VjRecordCodec how, const VjRecordPlace *place, const void *src,
                     size_t len, void *dst, size_t plain_len)
{
    const VjCodecContext context = context_of(place);
    const VjCodecSpec spec = {.ops = vj_codec_by_id(how.codec),
                              .params = {.param = how.param}};

    if (spec.ops == NULL || how.key_id != 0) {
        return -EOPNOTSUPP;
    }
    return len > plain_len ? -EBADMSG
                           : vj_codec_decode(&spec, &context, src, len, dst, plain_len);
}
