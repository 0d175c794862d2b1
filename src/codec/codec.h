/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * codec.h - transformations of bytes: the face of the room codec
 *
 * A codec turns one run of bytes into another and back.  It knows nothing of objects,
 * blocks or trailers: the room object cuts content into blocks, calls a codec for each,
 * keeps lengths and checksums, and stores "none" when the result is not smaller.
 *
 * Codecs are pure and re-entrant: the output depends on the arguments alone.  No
 * allocation outlives a call but working memory of the calling thread, at most
 * VJ_CODEC_KEPT_MAX for each codec, freed when the thread ends.  What decode() reads is
 * hostile.
 *
 * A codec is chosen by a text, "name" or "name:parameters" (xor:5a, zstd:3): the value of
 * the transformation xattr, of mkfs.varjfs -o transform= and of the mount option.
 */
#ifndef VJ_CODEC_CODEC_H
#define VJ_CODEC_CODEC_H

#include "base/base.h"

/* The longest run that is encoded or decoded in one call, bytes. */
#define VJ_CODEC_RUN_MAX ((size_t)16 << 20)
/* The longest text that names a codec and its parameters, bytes without the NUL. */
#define VJ_CODEC_TEXT_MAX ((size_t)64)

/* Working memory that one codec may keep for the next call of a thread, bytes. */
#define VJ_CODEC_KEPT_MAX ((size_t)8 << 20)

/* On disk, never reused. */
enum {
    VJ_CODEC_ID_NONE = 0,
    VJ_CODEC_ID_XOR = 1,
    VJ_CODEC_ID_RLE = 2,
    VJ_CODEC_ID_LZ4 = 3,
    VJ_CODEC_ID_ZSTD = 4,
};

enum {
    /* Encoded and plain bytes are equally many. */
    VJ_CODEC_SAME_LENGTH = 1u << 0,
    /* Any range of the encoded bytes decodes to the same range of the plain ones. */
    VJ_CODEC_RANDOM_ACCESS = 1u << 1,
    /* Encoded and plain bytes are the same: skip the call and use them where they are. */
    VJ_CODEC_IDENTITY = 1u << 2,
    /*
     * The result depends on the context.  A run is decoded as it was encoded, whole:
     * VJ_CODEC_RANDOM_ACCESS says of such a codec that short runs are as good as long
     * ones, and nothing of ranges.
     */
    VJ_CODEC_USES_CONTEXT = 1u << 3,
};

/* What may follow the name, as numbers; zero where a codec takes nothing. */
typedef struct VjCodecParams {
    uint8_t param; /* what decoding needs (xor.c); in object records, inodes */
    int8_t level;  /* what encoding alone looks at; 0: the codec's default; in inodes */
} VjCodecParams;

/* What the number of a context counts.  What is stored depends on these: never reused. */
typedef enum VjCodecDomain {
    VJ_CODEC_DOMAIN_OBJECT = 1,   /* number: the object's id; block: of its content */
    VJ_CODEC_DOMAIN_INLINE = 2,   /* number: the inode's; block: 0 */
    VJ_CODEC_DOMAIN_FRAGMENT = 3, /* number: the inode's; block: the fragment's number */
} VjCodecDomain;

/*
 * VjCodecContext - which run of bytes it is, and under which key
 *
 * decode() gets the context that encode() had.  Domain, number and block together are of
 * one run: no two that are stored have them in common.
 *
 *   OBJECT    for ever: an id is taken for one put, also one that fails, and a block of
 *             it is encoded once.  An encryption makes its nonce of id and block.
 *   INLINE, FRAGMENT    at one time: the record is written again, with other bytes under
 *             the same context.  A codec that must not do that twice under one key draws
 *             a nonce at random and keeps it in the encoded bytes.
 *
 * Only a codec with VJ_CODEC_USES_CONTEXT looks at it; the others may get NULL.  none,
 * xor, rle, lz4 and zstd do not: equal bytes are encoded alike wherever they stand.
 */
typedef struct VjCodecContext {
    VjCodecDomain domain;
    uint64_t number;
    uint64_t block;  /* counted from 0; how long blocks are is the caller's choice */
    uint32_t key_id; /* 0: no key */
    VjSlice key;     /* borrowed for the call; data NULL: it is not there */
} VjCodecContext;

typedef struct VjCodecOps {
    const char *name;   /* lower case, digits, '-': what the text begins with */
    const char *syntax; /* what may follow "name:", for messages: "HH"; NULL: nothing */
    uint8_t id;         /* on disk; never reused */
    uint32_t flags;     /* VJ_CODEC_* */

    /*
     * The text behind the colon, not empty, into @out, which holds the defaults. Unknown:
     * false and EINVAL with one clear line.  NULL exactly where syntax is NULL.
     */
    bool (*parse)(const char *text, VjCodecParams *out, GError **error);
    /*
     * The shortest text that parse() turns into @params; owned; NULL: the defaults, which
     * need no text.  NULL member exactly where syntax is NULL.
     */
    char *(*format)(const VjCodecParams *params);

    /* The most bytes that encode() makes of @src_len; grows with it; no failure. */
    size_t (*bound)(size_t src_len);
    /*
     * @src_len bytes into at most @cap at @dst, which does not overlap @src; @dst_len:
     * how many.  0; -ENOSPC: they do not fit, @dst is undefined.  That is no failure: the
     * caller stores "none".  With cap >= bound(src_len) it fits always.  -ENOMEM.
     * Threads: any.  Locks: any may be held.
     */
    int (*encode)(const VjCodecParams *params, const VjCodecContext *context,
                  const void *src, size_t src_len, void *dst, size_t cap,
                  size_t *dst_len);
    /*
     * The inverse under the same context, into exactly @dst_len bytes that do not overlap
     * @src.  @src is hostile: anything that does not give exactly @dst_len bytes is
     * -EBADMSG, @dst is undefined then, and nothing outside of both runs is read or
     * written.  -ENOMEM.
     * Threads: any.  Locks: any may be held.
     */
    int (*decode)(const VjCodecParams *params, const VjCodecContext *context,
                  const void *src, size_t src_len, void *dst, size_t dst_len);
} VjCodecOps;

/* A codec and its parameters: what a text means. */
typedef struct VjCodecSpec {
    const VjCodecOps *ops;
    VjCodecParams params;
} VjCodecSpec;

/* Every codec of this build; ends with NULL. */
const VjCodecOps *const *vj_codec_table(void);

/* NULL: not in this build. */
const VjCodecOps *vj_codec_by_id(uint8_t id);
const VjCodecOps *vj_codec_by_name(const char *name);

/* What an id is called, also of one that is not in this build; "unknown". */
const char *vj_codec_name_of(uint8_t id);

/* The names that varjfs knows and this build lacks (its library was missing); ends with
 * NULL. */
const char *const *vj_codec_absent(void);
/* "none, xor[:HH], ...; not in this build: zstd": for --help and for messages; owned. */
char *vj_codec_list(void);

/*
 * vj_codec_parse - what a text means
 *
 * @text     a user's, NUL-terminated, otherwise anything
 * @out      undefined on failure
 * Returns   true; false with EINVAL and one clear line that names what there is
 * Threads   any      Locks   none
 */
bool vj_codec_parse(const char *text, VjCodecSpec *out, GError **error);

/* The canonical text, which vj_codec_parse turns into an equal spec; owned. */
char *vj_codec_format(const VjCodecSpec *spec);

/* As the members of VjCodecOps; they assert the request before and the result after. */
size_t vj_codec_bound(const VjCodecOps *ops, size_t src_len);
int vj_codec_encode(const VjCodecSpec *spec, const VjCodecContext *context,
                    const void *src, size_t src_len, void *dst, size_t cap,
                    size_t *dst_len) G_GNUC_WARN_UNUSED_RESULT;
int vj_codec_decode(const VjCodecSpec *spec, const VjCodecContext *context,
                    const void *src, size_t src_len, void *dst,
                    size_t dst_len) G_GNUC_WARN_UNUSED_RESULT;

#endif
