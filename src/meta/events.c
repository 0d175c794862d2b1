/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * events.c - what a session is to others: its number, and whom it tells what
 */
#include "meta/session-private.h"

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

/* ---- Telling ---------------------------------------------------------------------- */

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
    vj_mutex_unlock(&s->state);
}

static void end_call(VjSession *s) VJ_REQUIRES(&s->state)
{
    if (--s->listener.calls == 0) {
        vj_cond_broadcast(&s->listener.idle);
    }
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
