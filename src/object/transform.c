/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * transform.c - which transformation was asked for, as text and in records
 */
#include "codec/codec.h"
#include "object/object.h"

bool vj_transform_parse(const char *text, VjTransform *t, GError **error)
{
    VjCodecSpec spec;

    if (!vj_codec_parse(text, &spec, error)) {
        return false;
    }
    t->codec = spec.ops->id;
    t->param = spec.params.param;
    t->level = spec.params.level;
    t->key_id = 0;
    return true;
}

char *vj_transform_text(const VjTransform *t)
{
    const VjCodecSpec spec = {.ops = vj_codec_by_id(t->codec),
                              .params = {.param = t->param, .level = t->level}};

    if (spec.ops == NULL) {
        return g_strdup_printf("unknown-%u", t->codec);
    }
    return vj_codec_format(&spec);
}

bool vj_transform_is_known(const VjTransform *t)
{
    return vj_codec_by_id(t->codec) != NULL && t->key_id == 0;
}

bool vj_transform_keeps_length(const VjTransform *t)
{
    const VjCodecOps *ops = vj_codec_by_id(t->codec);

    return ops != NULL && t->key_id == 0 &&
           (ops->flags & (VJ_CODEC_IDENTITY | VJ_CODEC_SAME_LENGTH)) != 0;
}
