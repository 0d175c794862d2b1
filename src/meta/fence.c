/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fence.c - what a batch of an exclusive session checks
 *
 * So one that comes late, when the session has been shut out, does nothing.  The batch
 * which has the session's record is the last one without a fence; then the engine is
 * asked once which version it has given that.
 */
#include "meta/session-private.h"

const VjCheck *vj_session_fence(const VjSession *s)
{
    return s->fence.stands ? &s->fence.check : NULL;
}

/* The version of the record that the engine has had for a moment. */
static void stand(VjSession *s)
{
    VjFence *f = &s->fence;
    VjItems items = {0};
    int rc = vj_engine_get_many(s->engine, &f->check.key, 1, &items, VJ_NO_DEADLINE);

    if (rc == 0 && items.at[0].version != 0) {
        f->check.version = items.at[0].version;
        f->stands = true;
    }
    vj_items_clear(&items);
}

/* A failure to ask leaves it to the batch after the next one. */
void vj_session_fence_moved(VjSession *s, uint64_t last_seq)
{
    VjFence *f = &s->fence;
    bool has_joined, has_left;

    vj_mutex_lock(&s->state);
    has_joined = f->join_seq > 0 && last_seq >= f->join_seq;
    has_left = f->leave_seq > 0 && last_seq >= f->leave_seq;
    vj_mutex_unlock(&s->state);
    if (has_left) {
        f->stands = false;
    } else if (has_joined && !f->stands) {
        stand(s);
    }
}
