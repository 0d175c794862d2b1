/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * session-join-private.h - the first batch of a session that has a lease
 *
 * It asks the engine directly, as there are no transactions yet: what sessions there are,
 * and which number comes next.  Its batch changes that, and checks that it is as it was
 * read; on a conflict the caller begins anew.
 */
#ifndef VJ_META_SESSION_JOIN_PRIVATE_H
#define VJ_META_SESSION_JOIN_PRIVATE_H

#include "meta/session-private.h"

typedef struct VjJoin {
    VjSession *s;
    /* what there is: */
    VjItems counter, sessions;
    uint64_t last; /* the largest number that has a record */
    /* what is to be: */
    uint64_t number;
    VjOverlay changes;
    GArray *checks; /* of VjCheck; keys are borrowed from the items */
} VjJoin;

void vj_join_init(VjJoin *j, VjSession *s);
void vj_join_clear(VjJoin *j);
/* Begins, also anew. */
int vj_join_read(VjJoin *j) G_GNUC_WARN_UNUSED_RESULT;
/* Chooses the number. */
int vj_join_choose_number(VjJoin *j) G_GNUC_WARN_UNUSED_RESULT;
/* The session of @item, with @record, has ended; it is checked that the item is still
 * there, and with @lease (NULL: none) that this has not been renewed. */
int vj_join_end(VjJoin *j, const VjItem *item, const VjItem *lease,
                VjSessionRecord *record) G_GNUC_WARN_UNUSED_RESULT;
/* Applies it.  *version (may be NULL): as VjBatch.  -EAGAIN: begin anew. */
int vj_join_apply(VjJoin *j, uint64_t *version) G_GNUC_WARN_UNUSED_RESULT;

/* Appends all keys of all sessions. */
int vj_join_scan_sessions(VjSession *s, VjItems *out,
                          int64_t deadline_us) G_GNUC_WARN_UNUSED_RESULT;
/* The item of the key @sub of session @id; NULL: there is none. */
const VjItem *vj_join_find(const VjItems *sessions, uint64_t id, char sub);
/* When the lease of session @id ends; 0: it has none.  *at: its item, or NULL. */
int64_t vj_join_lease_of(const VjItems *sessions, uint64_t id, const VjItem **at);

/* Keys of sessions in a batch; a tombstone for @bytes NULL. */
int vj_join_set(VjOverlay *o, const VjSessionKey *key, const uint8_t *bytes, size_t len);
int vj_join_set_number(VjOverlay *o, VjNumber what, const VjSessionKey *key,
                       uint64_t number);
int vj_join_set_record(VjOverlay *o, const VjSessionRecord *record);

#endif
