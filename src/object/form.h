/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * form.h - from content to its stored form and back, without a volume
 *
 * What an object record says (VjObject) and the bytes in the store, in one's own memory:
 * a mount uses it around its cache, a storage node for clients that leave the work to it.
 * Stored bytes and records are hostile.  Pure and re-entrant.  Threads: any.  Locks:
 * none.
 */
#ifndef VJ_OBJECT_FORM_H
#define VJ_OBJECT_FORM_H

#include "codec/codec.h"
#include "object/object.h"
#include "object/stored-form.h"

/* What is not as it was stored; set on -EBADMSG. */
typedef struct VjFormFault {
    const char *what; /* static text: "a block" */
    uint64_t at;      /* of the stored bytes */
} VjFormFault;

/* How @codec stores; @spec without parameters.  False: not in this build. */
bool vj_form_of_codec(uint8_t codec, VjCodecSpec *spec,
                      bool *varying) G_GNUC_WARN_UNUSED_RESULT;
/* The same, and the parameter, when the lengths of the record are possible; -EBADMSG,
 * -EOPNOTSUPP. */
int vj_form_shape(const VjObject *object, VjCodecSpec *spec, bool *varying,
                  VjFormFault *fault) G_GNUC_WARN_UNUSED_RESULT;

/* Block @block of @object, as a codec knows it: an encryption never meets the same twice,
 * because an id is put once.  There are no keys in a volume yet. */
static inline VjCodecContext vj_form_context(const VjObject *object, uint32_t block)
{
    return (VjCodecContext){.domain = VJ_CODEC_DOMAIN_OBJECT,
                            .number = object->id,
                            .block = block,
                            .key_id = object->key_id};
}

/* The stored data is the content itself. */
static inline bool vj_codec_is_identity(const VjCodecSpec *spec)
{
    return (spec->ops->flags & VJ_CODEC_IDENTITY) != 0;
}

/* Content in one place; or in two, which only what is stored as it is may be. */
typedef struct VjFormSource {
    const uint8_t *first;
    uint32_t first_len;
    const uint8_t *rest; /* NULL: all of it is at first */
} VjFormSource;

/*
 * vj_form_encode_from - content as @want says, or as none where that would not be smaller
 *
 * @from     object->plain_bytes of it
 * @object   has id, plain_bytes and key_id; gets codec, stored_bytes, trailer_checksum
 * @data     owned; NULL where it is the content itself
 * @trailer  owned
 * Returns   0; -EOPNOTSUPP not in this build, or a key must not go without; -ENOMEM
 */
int vj_form_encode_from(const VjFormSource *from, const VjTransform *want,
                        VjObject *object, VjBuf **data,
                        VjTrailer **trailer) G_GNUC_WARN_UNUSED_RESULT;
/* As vj_form_encode_from, of what is at @plain. */
int vj_form_encode(const void *plain, const VjTransform *want, VjObject *object,
                   VjBuf **data, VjTrailer **trailer) G_GNUC_WARN_UNUSED_RESULT;

/* The trailer at @raw, of the shape of @object.  *out owned.  -EBADMSG, -ENOMEM. */
int vj_form_trailer(const VjObject *object, bool varying, const void *raw,
                    VjTrailer **out, VjFormFault *fault) G_GNUC_WARN_UNUSED_RESULT;
/* Blocks [@first, @last], which begin at @stored, are what was stored; else -EBADMSG. */
int vj_form_verify_blocks(const VjTrailer *t, uint32_t first, uint32_t last,
                          const uint8_t *stored,
                          VjFormFault *fault) G_GNUC_WARN_UNUSED_RESULT;
/*
 * Content bytes [@start, @start + @len) out of the verified blocks from @first on.  A
 * block that is wanted in part is decoded into a block of its own.  -EBADMSG, -ENOMEM.
 */
int vj_form_decode_blocks(const VjObject *object, const VjCodecSpec *spec,
                          const VjTrailer *t, uint32_t first, const uint8_t *stored,
                          uint32_t start, uint8_t *dst, uint32_t len,
                          VjFormFault *fault) G_GNUC_WARN_UNUSED_RESULT;

/* All stored_bytes of @object at @stored are what was stored.  0; -EBADMSG, -EOPNOTSUPP,
 * -ENOMEM. */
int vj_form_verify(const VjObject *object, const uint8_t *stored,
                   VjFormFault *fault) G_GNUC_WARN_UNUSED_RESULT;
/*
 * vj_form_unpack - verify, and decode all of it
 *
 * @plain    owned; @stored itself, with its len set, where the bytes are the content
 */
int vj_form_unpack(const VjObject *object, VjBuf *stored, VjBuf **plain,
                   VjFormFault *fault) G_GNUC_WARN_UNUSED_RESULT;

#endif
