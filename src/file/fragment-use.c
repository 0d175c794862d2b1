/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fragment-use.c - how many fragments each inode has
 *
 * Each commit and each drop says how many it made and dropped; those of earlier mounts
 * are counted when the volume is opened (remap.c).  No commit makes more than the bounds
 * allow; beyond them a small change is stored as objects, as any other.
 */
#include "file/remap-private.h"

VjFragmentUse *vj_fragment_use_locked(VjRemapper *x, uint64_t ino)
{
    VjFragmentUse *u = g_hash_table_lookup(x->uses, &ino);

    if (u == NULL) {
        u = g_new0(VjFragmentUse, 1);
        u->ino = ino;
        g_hash_table_insert(x->uses, &u->ino, u);
    }
    return u;
}

void vj_fragment_use_unqueue_locked(VjRemapper *x, VjFragmentUse *u)
{
    if (u->link != NULL) {
        g_queue_delete_link(&x->due, u->link);
        u->link = NULL;
    }
}

void vj_fragment_use_queue_locked(VjRemapper *x, VjFragmentUse *u, int64_t due_us)
{
    GList *link;

    vj_fragment_use_unqueue_locked(x, u);
    link = x->due.tail;
    u->due_us = due_us;
    while (link != NULL && ((VjFragmentUse *)link->data)->due_us > u->due_us) {
        link = link->prev;
    }
    if (link == NULL) {
        g_queue_push_head(&x->due, u);
        u->link = x->due.head;
    } else {
        g_queue_insert_after(&x->due, link, u);
        u->link = link->next;
    }
    /* Each commit comes by here: it wakes the thread for what cannot wait alone, and not
     * while it rests. */
    if (x->wakes_us != INT64_MIN && (due_us < x->wakes_us || x->count > x->most / 2)) {
        vj_cond_signal(&x->wake);
    }
}

void vj_fragment_use_release_locked(VjRemapper *x, VjFragmentUse *u)
{
    if (u->count == 0 && u->reserved == 0 && !u->busy) {
        vj_fragment_use_unqueue_locked(x, u);
        g_hash_table_remove(x->uses, &u->ino);
    }
}

/* Fragments that the volume may have: a page of metadata each. */
static uint32_t most_locked(const VjRemapper *x, uint64_t available_bytes)
{
    return (uint32_t)MIN(x->limits.most,
                         available_bytes / VJ_FRAGMENTS_SPACE_PART / VJ_FRAGMENT_PAGE);
}

bool vj_remapper_reserve(VjRemapper *x, uint64_t ino, uint32_t count)
{
    uint64_t available_bytes = vj_space_available(&x->table->space);
    uint32_t now, most;
    bool fits;
    VjFragmentUse *u;

    vj_mutex_lock(&x->lock);
    x->most = most = most_locked(x, available_bytes);
    u = g_hash_table_lookup(x->uses, &ino);
    now = u != NULL ? u->count + u->reserved : 0;
    fits = count <= most && x->count + x->reserved <= most - count &&
           count <= x->limits.file_most && now <= x->limits.file_most - count;
    if (fits && count > 0) {
        vj_fragment_use_locked(x, ino)->reserved += count;
        x->reserved += count;
    }
    vj_mutex_unlock(&x->lock);
    return fits;
}

void vj_remapper_made(VjRemapper *x, uint64_t ino, uint32_t reserved, uint32_t made,
                      uint32_t dropped)
{
    VjFragmentUse *u;

    if (x == NULL) {
        return;
    }
    vj_mutex_lock(&x->lock);
    u = vj_fragment_use_locked(x, ino);
    g_assert(u->reserved >= reserved && x->reserved >= reserved);
    u->reserved -= reserved;
    x->reserved -= reserved;
    u->count += made;
    x->count += made;
    dropped = MIN(dropped, u->count); /* what is damaged may go twice */
    u->count -= dropped;
    x->count -= dropped;
    u->urgent = u->count > x->limits.file_most / 2;
    if (made > 0) {
        u->change = ++x->changes;
        if (!u->busy) {
            vj_fragment_use_queue_locked(
                x, u, u->urgent ? 0 : vj_clock_mono_us() + x->limits.idle_us);
        }
    }
    vj_fragment_use_release_locked(x, u);
    vj_mutex_unlock(&x->lock);
}

void vj_remapper_limit(VjRemapper *x, const VjRemapLimits *limits)
{
    GHashTableIter each;
    gpointer value;

    vj_mutex_lock(&x->lock);
    x->limits = *limits;
    x->most = limits->most;
    g_hash_table_iter_init(&each, x->uses);
    while (g_hash_table_iter_next(&each, NULL, &value)) {
        VjFragmentUse *u = value;

        if (u->link != NULL && !u->urgent) {
            vj_fragment_use_queue_locked(x, u, vj_clock_mono_us() + limits->idle_us);
        }
    }
    vj_mutex_unlock(&x->lock);
}

uint32_t vj_remapper_count(VjRemapper *x, uint64_t ino, uint32_t *all)
{
    const VjFragmentUse *u;
    uint32_t count;

    vj_mutex_lock(&x->lock);
    u = g_hash_table_lookup(x->uses, &ino);
    count = u != NULL ? u->count : 0;
    *all = x->count;
    vj_mutex_unlock(&x->lock);
    return count;
}
