/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * generation.c - commits on their way to the engine, and room for them
 *
 * A generation is a run of whole commits.  Commits go to the active one; the applier
 * freezes it and applies it to the engine while another takes new commits.
 */
#include "meta/session-private.h"

VjGeneration *vj_generation_new(void)
{
    VjGeneration *g = g_new0(VjGeneration, 1);

    vj_overlay_init(&g->overlay);
    g->refs = 1;
    return g;
}

void vj_generation_free(VjGeneration *g)
{
    g_assert(g->refs == 0);
    vj_overlay_clear(&g->overlay);
    g_free(g);
}

void vj_generation_unref(VjSession *s, VjGeneration *g)
{
    vj_mutex_assert_held(&s->state);
    g_assert(g->refs > 0);
    if (--g->refs == 0) {
        g->next_dropped = s->dropped;
        s->dropped = g;
        if (!s->has_worker) {
            vj_cond_signal(&s->applier_wake);
        }
    }
}

/*
 * LMDB keeps the pages that a move changes in memory until it commits.  Keys at random
 * touch a page each, so that these may weigh more than keys and values: both are counted.
 */
bool vj_session_is_full_to(const VjSession *s, unsigned parts)
{
    const VjOverlay *o = &s->active->overlay;
    uint64_t most = s->generation_max_bytes / parts;

    return o->bytes > most || vj_engine_apply_bytes(s->engine, o->tally) > 2 * most;
}

bool vj_session_is_full(const VjSession *s)
{
    return vj_session_is_full_to(s, 1);
}

void vj_session_make_visible(VjSession *s)
{
    VjOverlay *to;

    vj_mutex_lock(&s->state);
    to = &s->active->overlay;
    if (to->entry_count == 0) {
        s->active->first_us = vj_clock_mono_us();
        if (s->active->first_us + s->commit_interval_us < s->applier_until_us) {
            vj_cond_signal(&s->applier_wake);
        }
    }
    s->seq++;
    vj_overlay_merge(to, &s->changes, s->seq, &s->snapshots);
    if (vj_session_is_full(s)) {
        vj_cond_signal(&s->applier_wake);
    }
    vj_mutex_unlock(&s->state);
}

/* ---- On their way ---------------------------------------------------------------- */

bool vj_overlay_next_change(const VjBatch *batch, const void **at, VjChange *out)
{
    const VjOverlay *o = batch->changes;
    const VjOverlayEntry *e = *at;
    VjSpace space = e != NULL ? (VjSpace)e->space : 0;

    e = e != NULL ? e->forward[0] : vj_overlay_first(o, 0);
    while (e == NULL && ++space < VJ_SPACE_COUNT) {
        e = vj_overlay_first(o, space);
    }
    if (e == NULL) {
        return false;
    }
    *at = e;
    *out = (VjChange){.space = space,
                      .is_delete = e->newest->tombstone,
                      .key = vj_entry_key(e),
                      .value = vj_version_value(e->newest)};
    return true;
}

/* ---- Room ------------------------------------------------------------------------ */

static void tally_add(VjTally *to, const VjTally *t)
{
    to->puts += t->puts;
    to->dels += t->dels;
    to->bytes += t->bytes;
    to->pages += t->pages;
    to->run_pages += t->run_pages;
}

void vj_session_load(const VjSession *s, const VjOverlay *changes, VjLoad *out)
{
    const VjOverlay *active = &s->active->overlay;
    VjTally *second = s->frozen != NULL ? out->second : out->first;

    if (s->frozen != NULL) {
        memcpy(out->first, s->frozen->overlay.tally, sizeof out->first);
    } else {
        memset(out->second, 0, sizeof out->second);
    }
    memcpy(second, active->tally, sizeof active->tally);
    for (size_t i = 0; changes != NULL && i < VJ_SPACE_COUNT; i++) {
        tally_add(&second[i], &changes->tally[i]);
    }
}

int vj_session_reserve(VjSession *s, bool release)
{
    VjLoad load;

    vj_mutex_lock(&s->state);
    vj_session_load(s, &s->changes, &load);
    vj_mutex_unlock(&s->state);
    return vj_engine_reserve(s->engine, &load, release);
}
