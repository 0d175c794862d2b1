/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-copy-private.h - the keys of an LMDB file in another one, while it is written to
 */
#ifndef VJ_META_LMDB_COPY_PRIVATE_H
#define VJ_META_LMDB_COPY_PRIVATE_H

#include "meta/lmdb-private.h"

/* Bytes of notes, at most: of more the copy could not keep up. */
#define VJ_LMDB_NOTES_MAX (8 * VJ_MIB)
/* Of these so many may be left when applies are made to wait for the rest. */
#define VJ_LMDB_NOTES_LAST (64 * VJ_KIB)

typedef struct VjLmdbCopy {
    VjLmdb *d;
    int fd;       /* of the new file, opened apart from LMDB's; -1: there is none */
    MDB_env *env; /* NULL: closed */
    MDB_dbi dbi[VJ_SPACE_COUNT];
    MDB_dbi unnamed;
    VjEngineSnapshot *snapshot; /* of the file that is copied */
    /* All keys up to this one are in the copy. */
    VjSpace space;
    uint8_t at[VJ_META_KEY_MAX];
    size_t at_bytes; /* 0: none of the space */
    bool at_end;
    /* After finish: */
    VjLmdbFile file;
    uint64_t commit;
} VjLmdbCopy;

/*
 * vj_lmdb_copy_open - an empty file beside the other, whose changes are noted from now on
 *
 * Returns   0; -ENOSPC, -EIO, -ENOMEM: discard it all the same
 * Threads   one at a time      Locks   none
 */
int vj_lmdb_copy_open(VjLmdb *d, VjLmdbCopy *c) G_GNUC_WARN_UNUSED_RESULT;
/*
 * vj_lmdb_copy_step - what was noted since the last step, and some more keys; durable
 *
 * Returns   0; -ECANCELED an apply failed, -EBUSY more was applied than could be noted;
 *           -ENOSPC, -EIO, -ENOMEM, -EBADMSG
 */
int vj_lmdb_copy_step(VjLmdbCopy *c) G_GNUC_WARN_UNUSED_RESULT;
/*
 * The last step: no apply runs, and all keys were copied.  What is no key of a space goes
 * along, the number of keys is compared, and the shape of the file is looked at.
 */
int vj_lmdb_copy_finish(VjLmdbCopy *c) G_GNUC_WARN_UNUSED_RESULT;
/* Reads the file without believing it.  -EBADMSG; what vj_lmdb_rewrite_must_end says. */
int vj_lmdb_copy_examine(VjLmdbCopy *c) G_GNUC_WARN_UNUSED_RESULT;
/* LMDB knows it no more; the file stays. */
void vj_lmdb_copy_close(VjLmdbCopy *c);
/* Nothing is noted any more, and the file goes, unless it has got another name. */
void vj_lmdb_copy_discard(VjLmdbCopy *c);

#endif
