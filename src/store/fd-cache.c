/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fd-cache.c - see fd-cache.h
 *
 * Invariants: a key is in at most one slot that is not dropped; users > 0 implies fd >=
 * 0. The slots that may hold a key are searched one after the other: all of a small
 *    cache, a
 * set of WAYS in a large one.
 */
#include "store/fd-cache.h"

#include <unistd.h>

#define WAYS 8u
/* A cache with fewer slots is one set. */
#define SETS_FROM 64u

typedef struct Set {
    uint32_t from, to;
} Set;

static Set set_of(const VjFdCache *c, VjFdKey key)
{
    uint64_t hash = (key.id ^ key.nonce) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t sets = c->slot_count / WAYS;
    uint32_t set;

    if (c->slot_count < SETS_FROM) {
        return (Set){0, c->slot_count};
    }
    set = (uint32_t)(hash >> 32) % sets;
    return (Set){set * WAYS, set == sets - 1 ? c->slot_count : (set + 1) * WAYS};
}

void vj_fd_cache_init(VjFdCache *c, uint32_t slot_count, const char *lock_name)
{
    g_assert(slot_count <= VJ_FD_CACHE_MAX);
    *c = (VjFdCache){.slot_count = slot_count, .slots = g_new0(VjFdSlot, slot_count)};
    for (uint32_t i = 0; i < slot_count; i++) {
        c->slots[i].fd = -1;
    }
    vj_mutex_init(&c->lock, VJ_RANK_STORE, lock_name);
}

void vj_fd_cache_clear(VjFdCache *c)
{
    for (uint32_t i = 0; i < c->slot_count; i++) {
        g_assert(c->slots[i].users == 0);
        vj_fd_close(&c->slots[i].fd);
    }
    g_free(c->slots);
    c->slots = NULL;
    vj_mutex_clear(&c->lock);
}

static VjFdSlot *find_slot(VjFdCache *c, VjFdKey key) VJ_REQUIRES(c->lock)
{
    Set set = set_of(c, key);

    for (uint32_t i = set.from; i < set.to; i++) {
        VjFdSlot *slot = &c->slots[i];

        if (slot->fd >= 0 && !slot->dropped && slot->key.id == key.id &&
            slot->key.nonce == key.nonce) {
            return slot;
        }
    }
    return NULL;
}

/* For @key: a free slot, else the least recently used that no thread uses now, else
 * NULL. */
static VjFdSlot *find_victim(VjFdCache *c, VjFdKey key) VJ_REQUIRES(c->lock)
{
    VjFdSlot *victim = NULL;
    Set set = set_of(c, key);

    for (uint32_t i = set.from; i < set.to; i++) {
        VjFdSlot *slot = &c->slots[i];

        if (slot->fd < 0) {
            return slot;
        }
        if (slot->users == 0 && (victim == NULL || slot->used_at < victim->used_at)) {
            victim = slot;
        }
    }
    return victim;
}

static void use_slot(VjFdCache *c, VjFdSlot *slot, VjFdUse *use) VJ_REQUIRES(c->lock)
{
    g_assert(slot->fd >= 0);
    slot->users++;
    slot->used_at = ++c->tick;
    *use = (VjFdUse){.fd = slot->fd, .slot = (int32_t)(slot - c->slots)};
}

bool vj_fd_cache_get(VjFdCache *c, VjFdKey key, VjFdUse *use)
{
    VjFdSlot *slot;

    vj_mutex_lock(&c->lock);
    slot = find_slot(c, key);
    if (slot != NULL) {
        use_slot(c, slot, use);
    }
    vj_mutex_unlock(&c->lock);
    return slot != NULL;
}

void vj_fd_cache_add(VjFdCache *c, VjFdKey key, int fd, uint64_t drops, VjFdUse *use)
{
    int evicted_fd = -1;
    VjFdSlot *slot = NULL;

    g_assert(fd >= 0);
    *use = (VjFdUse){.fd = fd, .slot = -1};
    vj_mutex_lock(&c->lock);
    if (c->drops == drops && find_slot(c, key) == NULL) {
        slot = find_victim(c, key);
    }
    if (slot != NULL) {
        evicted_fd = slot->fd;
        *slot = (VjFdSlot){.key = key, .fd = fd};
        use_slot(c, slot, use);
    }
    vj_mutex_unlock(&c->lock);
    vj_fd_close(&evicted_fd);
}

void vj_fd_cache_release(VjFdCache *c, VjFdUse *use)
{
    int fd = -1;

    if (use->fd < 0) {
        return;
    }
    if (use->slot < 0) {
        fd = use->fd;
    } else {
        VjFdSlot *slot = &c->slots[use->slot];

        vj_mutex_lock(&c->lock);
        g_assert(slot->fd == use->fd && slot->users > 0);
        slot->users--;
        if (slot->dropped && slot->users == 0) {
            fd = slot->fd;
            slot->fd = -1;
        }
        vj_mutex_unlock(&c->lock);
    }
    vj_fd_close(&fd);
    *use = (VjFdUse){.fd = -1, .slot = -1};
}

void vj_fd_cache_drop(VjFdCache *c, VjFdKey key)
{
    int fd = -1;
    VjFdSlot *slot;

    vj_mutex_lock(&c->lock);
    c->drops++;
    slot = find_slot(c, key);
    if (slot != NULL) {
        slot->dropped = true;
        if (slot->users == 0) {
            fd = slot->fd;
            slot->fd = -1;
        }
    }
    vj_mutex_unlock(&c->lock);
    vj_fd_close(&fd);
}

uint64_t vj_fd_cache_drops(VjFdCache *c)
{
    uint64_t drops;

    vj_mutex_lock(&c->lock);
    drops = c->drops;
    vj_mutex_unlock(&c->lock);
    return drops;
}

bool vj_fd_cache_shrink(VjFdCache *c)
{
    bool closed_some = false;

    for (uint32_t i = 0; i < c->slot_count; i++) {
        int fd = -1;

        vj_mutex_lock(&c->lock);
        if (c->slots[i].users == 0) {
            fd = c->slots[i].fd;
            c->slots[i].fd = -1;
        }
        vj_mutex_unlock(&c->lock);
        closed_some = closed_some || fd >= 0;
        vj_fd_close(&fd);
    }
    return closed_some;
}
