/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * leased-private.h - an exclusive session that is alone by a lease
 *
 *   leased.c   its record, from the first to the last, and its lease
 *   holder.c   which process has it
 */
#ifndef VJ_META_LEASED_PRIVATE_H
#define VJ_META_LEASED_PRIVATE_H

#include "meta/session-private.h"

/* Pause after the lease could not be renewed. */
#define VJ_LEASED_RETRY_US ((int64_t)1000 * 1000)

struct VjLeased {
    /* never change after open: */
    VjSessionRecord record; /* its own */
    VjSessionKey lease_key;
    int64_t lease_us;
    /* guarded by state: */
    VjCond wake;
    VjCond looked;      /* a try to renew has ended */
    uint64_t looks;     /* that have */
    int64_t renewed_us; /* when the lease was renewed last */
    int64_t next_us;    /* when it is to be */
    bool is_over;       /* it has ended by now, as far as this session knows */
    bool is_stopping;
    bool renew_wanted; /* tests */
    bool never_renews; /* tests */
    GThread *thread;   /* of setup; NULL: it does not run */
};

/* Setup: the session gets its record and its lease.  -EBUSY of @error: another session
 * has the volume, and which.  A thread renews the lease from now on. */
bool vj_leased_join(VjSession *s, const VjSessionOpen *how, GError **error);
/* Setup: starts and stops the thread. */
void vj_leased_start(VjSession *s);
void vj_leased_stop(VjSession *s);
/* Setup, after the last move and after stop: the record goes.  @patience_us: it takes no
 * longer. */
int vj_leased_leave(VjSession *s, int64_t patience_us) G_GNUC_WARN_UNUSED_RESULT;
void vj_leased_free(VjLeased *l); /* NULL is fine */

/* Tests: renews before this returns. */
void vj_leased_renew_for_test(VjMeta *m);
/* Tests: it does not renew from now on, as if it hung. */
void vj_leased_never_renew_for_test(VjMeta *m);

/* ---- holder.c -------------------------------------------------------------------- */

/* The calling process; with a nonce that no other one has. */
void vj_holder_self(VjHolder *out);
/* It was on this machine since its last boot, and is not any more. */
bool vj_holder_is_gone(const VjHolder *holder);

#endif
