/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * session.h - sessions of a volume: what each of them is, has and reports
 *
 * A session is one user of a volume's metadata: a mount, a check, a collection of
 * garbage.  It has a number that no other one gets in the life of the volume, and a
 * record, which is its fence: an engine refuses what comes from a session whose record
 * was changed.  What is owned by sessions (blocks of numbers, contents without a name)
 * names its owner; when one ends without having given it up, another one does.
 *
 * - An exclusive session is alone: its opener has seen to that (a lock on the volume's
 *   directory), or it has a lease, where the engine is elsewhere.  Every other record is
 *   of a session that has ended.  With a lease it is refused while another session has
 *   one; takes over when that has ended, or when the other one's process on this machine
 *   is gone; and is shut out by another one that does the same.  It goes on when its own
 *   lease has ended and no session has taken over.
 * - A shared session has others beside it.  A write transaction reads, keeps the versions
 *   of what it read, and is one call of the engine that checks them; on a conflict its
 *   body runs again.  It is visible to all and durable when vj_meta_run returns, so that
 *   a flush has nothing to do.  Its lease is renewed in the background; a session that
 *   does not renew it in time is shut out by another one.  One write transaction runs at
 *   a time in a session.
 *
 * -ESTALE of any transaction says that the session was shut out.  What it committed last
 * may have been done or not.  From then on its user removes nothing from the store: the
 * sessions that release what it owned do that.
 */
#ifndef VJ_META_SESSION_H
#define VJ_META_SESSION_H

#include "meta/meta.h"

#define VJ_SESSION_NAME_MAX 63u /* bytes */
/* How long a session with a lease is believed to live after it said so last. */
#define VJ_LEASE_DEFAULT_US ((int64_t)30 * 1000 * 1000)

/*
 * VjSessionOpen - how a session is opened: VjMetaPlace.session, borrowed for the call
 *
 * Without one it is an exclusive session without a number and a record, for mkfs and
 * examining; one that only reads has neither.  Where the engine is elsewhere each has
 * both, but one that only reads and has no name, for a look of a moment.
 */
struct VjSessionOpen {
    const char *name; /* for people: "mount /mnt, pid 7 on host"; cut at the maximum */
    bool shared;
    /* Of one that has a lease; 0: VJ_LEASE_DEFAULT_US; renewed at a third. */
    int64_t lease_us;
};

/* Its number, > 0 and never given again in the volume; 0: it has no record. */
uint64_t vj_meta_session(VjMeta *m);
bool vj_meta_is_shared(VjMeta *m);
/*
 * What this session owns could not be given up: vj_meta_close leaves its record, as of
 * one that has ended, so that another one does it.
 */
void vj_meta_leave_record(VjMeta *m);

typedef struct VjSessionInfo {
    uint64_t id;
    uint64_t epoch;     /* as it published last; 0: it never did */
    int64_t expires_us; /* its lease, on the engine's clock; 0: it has none */
    bool has_ended;     /* as vj_session_has_ended */
    char name[VJ_SESSION_NAME_MAX + 1];
} VjSessionInfo;

/* vj_session_list() in a view of its own. */
int vj_meta_sessions(VjMeta *m, GArray *out) G_GNUC_WARN_UNUSED_RESULT;

/* ---- In transactions: -errno as of gets and puts --------------------------------- */

/* All that have a record, in order of id: @out (of VjSessionInfo) is set anew. */
int vj_session_list(VjTxn *txn, GArray *out) G_GNUC_WARN_UNUSED_RESULT;
/* Also 0 and one without a record have; in an exclusive session all but itself. */
int vj_session_has_ended(VjTxn *txn, uint64_t id, bool *ended) G_GNUC_WARN_UNUSED_RESULT;
/* Nothing is owned by it any more: its record goes.  It has ended.  0 also when there is
 * none. */
int vj_session_forget(VjTxn *txn, uint64_t id) G_GNUC_WARN_UNUSED_RESULT;
/*
 * vj_session_shut_out - another session has ended, whatever its lease says
 *
 * For an operator's command to come, whose user knows that a machine is gone and does not
 * wait for the lease, and for tests.  From the commit on what comes from @id, which is
 * not the caller's own, is refused, and what it owned is released.
 * Returns   0, also when it had ended, or its record is damaged, which is the same;
 *           -ENOENT
 */
int vj_session_shut_out(VjTxn *txn, uint64_t id) G_GNUC_WARN_UNUSED_RESULT;
/* The transaction's own session reads nothing any more that is older than @epoch.  In an
 * exclusive one nothing is written, as there is no other session to read it. */
int vj_session_publish(VjTxn *txn, uint64_t epoch) G_GNUC_WARN_UNUSED_RESULT;
/* Of a key of VJ_SPACE_SESSION or VJ_SPACE_CLAIM, for checks: 0; -EBADMSG damaged. */
int vj_session_key_check(VjSpace space, VjSlice key,
                         VjSlice value) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Claims: something that one session has at a time.  An exclusive session needs none; a
 * caller that would take one asks vj_meta_is_shared() first.
 */
typedef enum VjClaimKind {
    VJ_CLAIM_REAPER = 1,  /* removes dead objects; number 0 */
    VJ_CLAIM_CONTENT = 2, /* has a file's content open; its inode number */
    VJ_CLAIM_HOLD = 3,    /* several at a time: vj_hold_put */
} VjClaimKind;

/* 0, also when this session has it already, or its holder has ended; -EBUSY: *holder,
 * which lives, has it. */
int vj_claim_take(VjTxn *txn, VjClaimKind kind, uint64_t number,
                  uint64_t *holder) G_GNUC_WARN_UNUSED_RESULT;
/* The same of a number that no session has had before: reads nothing. */
int vj_claim_take_new(VjTxn *txn, VjClaimKind kind,
                      uint64_t number) G_GNUC_WARN_UNUSED_RESULT;
/* This session's; 0 also when it has none. */
int vj_claim_drop(VjTxn *txn, VjClaimKind kind,
                  uint64_t number) G_GNUC_WARN_UNUSED_RESULT;
/* *holder 0: no session has it, or one that has ended. */
int vj_claim_holder(VjTxn *txn, VjClaimKind kind, uint64_t number,
                    uint64_t *holder) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Holds: this session needs the dead object still.  Any number of sessions may hold one;
 * putting and deleting one again is 0.  *held: by one that has not ended.
 */
int vj_hold_put(VjTxn *txn, uint64_t object) G_GNUC_WARN_UNUSED_RESULT;
int vj_hold_del(VjTxn *txn, uint64_t object) G_GNUC_WARN_UNUSED_RESULT;
int vj_hold_any(VjTxn *txn, uint64_t object, bool *held) G_GNUC_WARN_UNUSED_RESULT;

/* Drops claims and holds of @session, which has ended or is this one, at most @most
 * (> 0); *more: some are left. */
int vj_claims_release(VjTxn *txn, uint64_t session, unsigned most,
                      bool *more) G_GNUC_WARN_UNUSED_RESULT;

/* ---- What a session reports ------------------------------------------------------ */

/* Each NULL: it is not asked.  Called without locks, from threads of the room's. */
typedef struct VjMetaEvents {
    /*
     * Another session changed @key, or this one by a transaction of which vj_meta_run
     * said that it had failed; NULL: anything may have changed.  Reading it from now on
     * finds the change.  Must not block nor run transactions.
     */
    void (*changed)(void *opaque, const VjKey *key);
    /*
     * Session @id was shut out, or was closed and left its record: release what it owned,
     * then vj_session_forget.  May block and run transactions; one at a time.  Called
     * again until it is forgotten.  In an exclusive session: never, see vj_session_list.
     */
    void (*session_ended)(void *opaque, uint64_t id);
    /* This session was: its transactions fail with -ESTALE from now on (those that only
     * read: in a session with a lease alone).  Must not run transactions. */
    void (*shut_out)(void *opaque);
} VjMetaEvents;

/* Setup only.  Both borrowed until the next call; @events NULL ends it, and waits for a
 * call that runs. */
void vj_meta_listen(VjMeta *m, const VjMetaEvents *events, void *opaque);

#endif
