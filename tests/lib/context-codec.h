/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * context-codec.h - two codecs whose result depends on the context, for tests alone
 *
 * "placed" keeps the length (even blocks): a stream that is made of the context is
 * exclusive-ored to the bytes, and under another context other bytes come out.  "sealed"
 * does not (varying blocks): rle, the stream, and a tag in front by which it refuses
 * another context.
 *
 * They stand in the table of a program that is linked with context-codec.c and
 * -Wl,--wrap=vj_codec_table, behind those of the build.
 */
#ifndef VJ_TEST_CONTEXT_CODEC_H
#define VJ_TEST_CONTEXT_CODEC_H

#include "codec/codec.h"

#define VJ_TEST_PLACED 250u
#define VJ_TEST_SEALED 251u

/* Since the last reset; by VjCodecDomain. */
typedef struct VjTestContexts {
    uint64_t encoded[VJ_CODEC_DOMAIN_FRAGMENT + 1];
    uint64_t decoded[VJ_CODEC_DOMAIN_FRAGMENT + 1];
    /* A block of an object was encoded under a context that had been used before: an
     * encryption would have used its nonce again.  Also since before the last reset. */
    uint64_t repeated;
} VjTestContexts;

/* Threads: any.  Locks: none. */
void vj_test_contexts(VjTestContexts *out);
void vj_test_contexts_reset(void);
/* A process that works on another volume, or on the same one as it was: the ids begin
 * anew. */
void vj_test_contexts_forget(void);

#endif
