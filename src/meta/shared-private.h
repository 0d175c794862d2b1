/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * shared-private.h - what a shared session has besides
 *
 *   shared.c       commits, and finding out what became of one
 *   shared-join.c  its record, from the first to the last
 *   lease.c        its lease, and those of others
 */
#ifndef VJ_META_SHARED_PRIVATE_H
#define VJ_META_SHARED_PRIVATE_H

#include "meta/session-private.h"

/* How long what was read is good where the engine reports no changes. */
#define VJ_SHARED_GOOD_US ((int64_t)1000 * 1000)
/* Pause between tries to find out what became of a commit, doubled up to the second. */
#define VJ_RESOLVE_PAUSE_FIRST_US ((int64_t)10 * 1000)
#define VJ_RESOLVE_PAUSE_MAX_US ((int64_t)1000 * 1000)

struct VjShared {
    VjSessionRecord record; /* its own; never changes after open */
    /* never change after open, but by vj_session_wrap_engine: */
    bool watches;   /* the engine reports changes, */
    bool is_prompt; /* and before any session can read them */
    int64_t lease_us;
    /* of the writer: */
    VjSessionKey commit_key;
    VjCheck commit;         /* of the key that has the number of the last commit */
    uint64_t commit_number; /* that number, or a larger one that was given up */
    VjOverlay doubted;      /* what may have been committed, or may be later */
    uint64_t doubted_number;
    bool was_done;     /* the last one that was in doubt */
    bool was_given_up; /* and an error was returned for it before that was known */
    /* guarded by state: */
    bool is_in_doubt; /* nothing is read or written before it is known */
    bool is_stopping;
    VjCond wake;        /* both threads, and one that pauses between tries */
    VjCond looked;      /* a look has ended */
    bool is_looking;    /* the thread of the lease asks the engine */
    bool look_wanted;   /* without a time to be waited for */
    bool renew_wanted;  /* tests */
    uint64_t looks;     /* that have ended */
    int64_t renewed_us; /* when the lease was renewed last */
    int64_t next_us;    /* when it is to be */
    bool never_renews;  /* tests */
    GArray *ended;      /* of uint64_t: sessions that are to be released */
    GThread *lease_thread, *release_thread;
};

/* ---- shared.c -------------------------------------------------------------------- */

/* Before @txn: 0; -ESTALE; others: nothing can be believed now.  Where that writes, the
 * calling thread is the writer. */
int vj_shared_begin(VjSession *s, const VjTxn *txn) G_GNUC_WARN_UNUSED_RESULT;
/* As the member of the ops table, but that @txn does not end. */
int vj_shared_commit(VjSession *s, VjTxn *txn) G_GNUC_WARN_UNUSED_RESULT;
/* By the writer: asks once what became of the commit in doubt, so that it cannot become
 * another later.  0 it is known now, or none is in doubt any more; as apply(). */
int vj_shared_resolve(VjSession *s, int64_t deadline_us) G_GNUC_WARN_UNUSED_RESULT;
/* For good.  @why is logged. */
void vj_shared_shut_out(VjSession *s, const char *why);

/* ---- shared-join.c --------------------------------------------------------------- */

/* Setup: the session becomes a shared one, and gets its record. */
bool vj_shared_join(VjSession *s, const VjSessionOpen *how, GError **error);
/* Setup: the record goes, or says that the session has ended. */
int vj_shared_leave(VjSession *s) G_GNUC_WARN_UNUSED_RESULT;
void vj_shared_free(VjShared *sh); /* NULL is fine */
/* Setup: begins and ends to hear what is changed. */
void vj_shared_watch(VjSession *s);
void vj_shared_unwatch(VjSession *s);

/* ---- lease.c --------------------------------------------------------------------- */

/* Setup: starts and stops the threads. */
void vj_lease_start(VjSession *s);
void vj_lease_stop(VjSession *s);
/* The record of another session was changed: they are looked at soon. */
void vj_lease_look_soon(VjSession *s);
/* Tests: renews and looks before this returns. */
void vj_lease_look_for_test(VjMeta *m);
/* Tests: what its thread does once it has seen that a commit is in doubt. */
void vj_lease_resolve_for_test(VjMeta *m);
/* Tests: it does not renew from now on, as if it hung. */
void vj_lease_never_renew_for_test(VjMeta *m);

#endif
