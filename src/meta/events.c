/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * events.c - how the session behind a VjMeta is found, and what it reports to its
 * listener
 */
#include "meta/leased-private.h"
#include "meta/shared-private.h"

VjSession *vj_session_of(VjMeta *m)
{
    while (m->next != NULL) {
        m = m->next;
    }
    g_assert(m->ops == &vj_session_ops);
    return (VjSession *)m;
}

VjSession *vj_session_of_txn(VjTxn *txn)
{
    while (txn->next != NULL) {
        txn = txn->next;
    }
    return txn->meta->ops == &vj_session_ops ? (VjSession *)txn->meta : NULL;
}

/* NULL: @m has none. */
static VjSession *find_session(VjMeta *m)
{
    while (m->next != NULL) {
        m = m->next;
    }
    return m->ops == &vj_session_ops ? (VjSession *)m : NULL;
}

uint64_t vj_meta_session(VjMeta *m)
{
    const VjSession *s = find_session(m);

    return s != NULL ? s->number : 0;
}

bool vj_meta_is_shared(VjMeta *m)
{
    const VjSession *s = find_session(m);

    return s != NULL && vj_session_is_shared(s);
}

void vj_meta_leave_record(VjMeta *m)
{
    VjSession *s = find_session(m);

    if (s != NULL) {
        vj_mutex_lock(&s->state);
        s->fence.stays = true;
        vj_mutex_unlock(&s->state);
    }
}

/* ---- Telling --------------------------------------------------------------------- */

void vj_meta_listen(VjMeta *m, const VjMetaEvents *events, void *opaque)
{
    VjSession *s = find_session(m);
    VjListener *l;

    if (s == NULL) {
        return;
    }
    l = &s->listener;
    vj_mutex_lock(&s->state);
    l->events = NULL;
    while (l->calls > 0) {
        vj_cond_wait(&l->idle, &s->state);
    }
    l->events = events;
    l->opaque = opaque;
    l->knows = false;
    vj_cond_signal(&s->applier_wake);
    if (s->shared != NULL) {
        vj_cond_broadcast(&s->shared->wake);
    } else if (s->leased != NULL) {
        vj_cond_broadcast(&s->leased->wake);
    }
    vj_mutex_unlock(&s->state);
}

static void end_call(VjSession *s) VJ_REQUIRES(&s->state)
{
    if (--s->listener.calls == 0) {
        vj_cond_broadcast(&s->listener.idle);
    }
}

void vj_session_tell_changed(VjSession *s, const VjKey *key)
{
    const VjMetaEvents *events;
    void *opaque;

    vj_mutex_lock(&s->state);
    events = s->listener.events;
    opaque = s->listener.opaque;
    if (events != NULL && events->changed != NULL) {
        s->listener.calls++;
        vj_mutex_unlock(&s->state);
        events->changed(opaque, key);
        vj_mutex_lock(&s->state);
        end_call(s);
    }
    vj_mutex_unlock(&s->state);
}

void vj_session_tell_ended(VjSession *s, uint64_t id)
{
    const VjMetaEvents *events = s->listener.events;
    void *opaque = s->listener.opaque;

    g_assert(events != NULL && events->session_ended != NULL);
    s->listener.calls++;
    vj_mutex_unlock(&s->state);
    events->session_ended(opaque, id);
    vj_mutex_lock(&s->state);
    end_call(s);
}

bool vj_session_tell_due(const VjSession *s)
{
    return s->is_shut_out && !s->listener.knows && s->listener.events != NULL;
}

void vj_session_tell_shut_out(VjSession *s)
{
    VjListener *l = &s->listener;
    const VjMetaEvents *events = l->events;
    void *opaque = l->opaque;

    l->knows = true;
    if (events->shut_out != NULL) {
        l->calls++;
        vj_mutex_unlock(&s->state);
        events->shut_out(opaque);
        vj_mutex_lock(&s->state);
        end_call(s);
    }
}
