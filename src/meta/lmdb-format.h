/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-format.h - the record by which the lmdb driver knows its own file
 *
 * Under VJ_LMDB_FORMAT_KEY in the unnamed database, beside the named databases "s00",
 * "s01", … of the spaces.  Little-endian.
 */
#ifndef VJ_META_LMDB_FORMAT_H
#define VJ_META_LMDB_FORMAT_H

#include "base/base.h"

#define VJ_LMDB_FORMAT_KEY "varjfs"
/* Rewritten to have something to commit; the value, eight bytes, means nothing. */
#define VJ_LMDB_NUMBER_KEY "varjfs.number"
#define VJ_LMDB_FORMAT_MAGIC "VJFSMETA"
#define VJ_LMDB_FORMAT_VERSION 1u
/*
 * The same, but that there is a log in front of the file (VjRedoState under
 * VJ_LMDB_REDO_KEY): the file alone is not all that was made durable.  Closing it in
 * order makes it 1 again.
 */
#define VJ_LMDB_FORMAT_LOGGED 2u
#define VJ_LMDB_REDO_KEY "varjfs.redo"

typedef struct VjLmdbFormat {
    uint8_t magic[8];
    uint8_t version[4];
    uint8_t reserved[4]; /* zero */
    uint8_t checksum[8]; /* vj_checksum64 of the bytes before it */
} VjLmdbFormat;

G_STATIC_ASSERT(sizeof(VjLmdbFormat) == 24);
G_STATIC_ASSERT(offsetof(VjLmdbFormat, version) == 8);
G_STATIC_ASSERT(offsetof(VjLmdbFormat, checksum) == 16);

#endif
