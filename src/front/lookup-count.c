/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lookup-count.c - which inodes the kernel knows: how many answers have named each
 *
 * The kernel may know millions of inodes, so an entry is 8 bytes: 48 bits of inode number
 * and 16 of count, in open-addressing tables that are between 7/12 and 7/8 full (at most
 * 13.8 bytes an inode).  A count that does not fit, or a number above 48 bits, lives in a
 * side table; the count in the slot is then FULL.
 *
 * Where a table cannot grow, because memory is short, it is filled further.
 *
 * Empty slots are 0.  Deletion moves later entries of a run back, so there are no
 * tombstones.  Locks: one a shard, the innermost of this room.
 */
#include "front/front-private.h"

#define SHARDS VJ_LOOKUP_SHARDS
#define LEAST_SLOTS 64u
#define INO_BITS 48
#define COUNT_FULL 0xffffu

typedef struct Shard {
    VjMutex lock; /* VJ_RANK_FRONT_INODE */
    /* guarded by lock: */
    uint64_t *slots;
    uint64_t slot_count, used;
    GHashTable *more; /* ino → uint64_t count; NULL until needed */
} Shard;

struct VjLookupCounts {
    Shard shard[SHARDS];
};

VjLookupCounts *vj_lookup_counts_new(void)
{
    VjLookupCounts *k = g_new0(VjLookupCounts, 1);

    for (unsigned i = 0; i < SHARDS; i++) {
        vj_mutex_init(&k->shard[i].lock, VJ_RANK_FRONT_INODE, "front lookup counts");
        k->shard[i].slots = g_new0(uint64_t, LEAST_SLOTS);
        k->shard[i].slot_count = LEAST_SLOTS;
    }
    return k;
}

void vj_lookup_counts_free(VjLookupCounts *k)
{
    if (k == NULL) {
        return;
    }
    for (unsigned i = 0; i < SHARDS; i++) {
        g_free(k->shard[i].slots);
        if (k->shard[i].more != NULL) {
            g_hash_table_unref(k->shard[i].more);
        }
        vj_mutex_clear(&k->shard[i].lock);
    }
    g_free(k);
}

static uint64_t mix(uint64_t ino)
{
    ino *= UINT64_C(0x9e3779b97f4a7c15);
    return ino ^ (ino >> 32);
}

static Shard *shard_of(VjLookupCounts *k, uint64_t ino)
{
    return &k->shard[mix(ino) % SHARDS];
}

static uint64_t slot_ino(uint64_t slot)
{
    return slot & ((UINT64_C(1) << INO_BITS) - 1);
}

static uint64_t slot_count(uint64_t slot)
{
    return slot >> INO_BITS;
}

static uint64_t home_of(const Shard *s, uint64_t ino)
{
    return (uint64_t)(((unsigned __int128)(mix(ino) * UINT64_C(0xff51afd7ed558ccd)) *
                       s->slot_count) >>
                      64);
}

static uint64_t next_slot(const Shard *s, uint64_t i)
{
    return i + 1 == s->slot_count ? 0 : i + 1;
}

/* Where @ino is, or the empty slot where its search ended. */
static uint64_t *slot_find(const Shard *s, uint64_t ino)
{
    uint64_t i = home_of(s, ino);

    while (s->slots[i] != 0 && slot_ino(s->slots[i]) != ino) {
        i = next_slot(s, i);
    }
    return &s->slots[i];
}

/* Without memory it stays as it is. */
static void shard_resize(Shard *s, uint64_t slots)
{
    uint64_t *old = s->slots, *new = g_try_new0(uint64_t, slots);
    uint64_t old_count = s->slot_count;

    if (new == NULL) {
        return;
    }
    s->slots = new;
    s->slot_count = slots;
    for (uint64_t i = 0; i < old_count; i++) {
        if (old[i] != 0) {
            *slot_find(s, slot_ino(old[i])) = old[i];
        }
    }
    g_free(old);
}

static void slot_delete(Shard *s, uint64_t *slot)
{
    uint64_t hole = (uint64_t)(slot - s->slots), i = hole;

    for (;;) {
        uint64_t home;

        i = next_slot(s, i);
        if (s->slots[i] == 0) {
            break;
        }
        home = home_of(s, slot_ino(s->slots[i]));
        /* It may move back unless its home lies behind the hole, on the way to it. */
        if (hole <= i ? (home <= hole || home > i) : (home <= hole && home > i)) {
            s->slots[hole] = s->slots[i];
            hole = i;
        }
    }
    s->slots[hole] = 0;
    s->used--;
    if (s->slot_count > LEAST_SLOTS && s->used < s->slot_count / 4) {
        shard_resize(s, MAX(LEAST_SLOTS, s->used * 12 / 7));
    }
}

static uint64_t *more_get(Shard *s, uint64_t ino, bool create)
{
    uint64_t *count;

    if (s->more == NULL) {
        if (!create) {
            return NULL;
        }
        s->more = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    }
    count = g_hash_table_lookup(s->more, &ino);
    if (count == NULL && create) {
        uint64_t *key = g_new(uint64_t, 1);

        *key = ino;
        count = g_new0(uint64_t, 1);
        g_hash_table_insert(s->more, key, count);
    }
    return count;
}

void vj_lookup_counts_add(VjLookupCounts *k, uint64_t ino)
{
    Shard *s = shard_of(k, ino);
    uint64_t *slot;

    g_assert(ino != 0);
    vj_mutex_lock(&s->lock);
    if (ino >> INO_BITS) {
        (*more_get(s, ino, true))++;
        vj_mutex_unlock(&s->lock);
        return;
    }
    slot = slot_find(s, ino);
    if (*slot == 0) {
        if ((s->used + 1) * 8 > s->slot_count * 7) {
            shard_resize(s, s->slot_count + s->slot_count / 2);
            slot = slot_find(s, ino);
        }
        /* Searches end at an empty slot.  The kernel is about to use this inode: no error
         * can be returned. */
        g_assert(s->used + 1 < s->slot_count);
        *slot = ino | (UINT64_C(1) << INO_BITS);
        s->used++;
    } else if (slot_count(*slot) == COUNT_FULL) {
        (*more_get(s, ino, true))++;
    } else {
        *slot += UINT64_C(1) << INO_BITS;
        if (slot_count(*slot) == COUNT_FULL) {
            *more_get(s, ino, true) = COUNT_FULL;
        }
    }
    vj_mutex_unlock(&s->lock);
}

static bool more_sub(Shard *s, uint64_t ino, uint64_t count)
{
    uint64_t *more = more_get(s, ino, false);

    if (more == NULL) {
        return false;
    }
    if (*more > count) {
        *more -= count;
        return false;
    }
    g_hash_table_remove(s->more, &ino);
    return true;
}

bool vj_lookup_counts_sub(VjLookupCounts *k, uint64_t ino, uint64_t count)
{
    Shard *s = shard_of(k, ino);
    bool last = false;
    uint64_t *slot;

    vj_mutex_lock(&s->lock);
    if (ino >> INO_BITS) {
        last = more_sub(s, ino, count);
        vj_mutex_unlock(&s->lock);
        return last;
    }
    slot = slot_find(s, ino);
    if (*slot != 0) {
        if (slot_count(*slot) == COUNT_FULL) {
            last = more_sub(s, ino, count);
        } else if (slot_count(*slot) > count) {
            *slot -= count << INO_BITS;
        } else {
            last = true;
        }
        if (last) {
            slot_delete(s, slot);
        }
    }
    vj_mutex_unlock(&s->lock);
    return last;
}

bool vj_lookup_counts_has(VjLookupCounts *k, uint64_t ino)
{
    Shard *s = shard_of(k, ino);
    bool has;

    vj_mutex_lock(&s->lock);
    has = (ino >> INO_BITS) ? more_get(s, ino, false) != NULL : *slot_find(s, ino) != 0;
    vj_mutex_unlock(&s->lock);
    return has;
}

GArray *vj_lookup_counts_list(VjLookupCounts *k, unsigned shard)
{
    Shard *s = &k->shard[shard];
    GArray *inos = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    GHashTableIter iter;
    gpointer ino;

    g_assert(shard < SHARDS);
    vj_mutex_lock(&s->lock);
    for (uint64_t i = 0; i < s->slot_count; i++) {
        uint64_t number = slot_ino(s->slots[i]);

        if (s->slots[i] != 0) {
            g_array_append_val(inos, number);
        }
    }
    /* The counts that no slot holds are of inodes in slots, or of those that fit in
     * none. */
    if (s->more != NULL) {
        g_hash_table_iter_init(&iter, s->more);
        while (g_hash_table_iter_next(&iter, &ino, NULL)) {
            if (*(uint64_t *)ino >> INO_BITS) {
                g_array_append_vals(inos, ino, 1);
            }
        }
    }
    vj_mutex_unlock(&s->lock);
    return inos;
}

void vj_lookup_counts_size(VjLookupCounts *k, uint64_t *inodes, uint64_t *bytes)
{
    *inodes = *bytes = 0;
    for (unsigned i = 0; i < SHARDS; i++) {
        Shard *s = &k->shard[i];

        vj_mutex_lock(&s->lock);
        *inodes += s->used;
        *bytes += s->slot_count * sizeof *s->slots;
        vj_mutex_unlock(&s->lock);
    }
}
