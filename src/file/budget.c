/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * budget.c - see budget-private.h
 */
#include "file/budget-private.h"

#include <stdlib.h>

/* Part of the limit that blocks may take: as much as one write-back of a stream gives
 * back. */
#define SPARE_SHARE 2u
/* A sanitizer finds what is used after it was freed only if it is freed. */
#define KEEPS_BLOCKS (!VJ_IS_SANITIZED)

typedef struct VjSpareBlock {
    struct VjSpareBlock *next;
} VjSpareBlock;

/* One that none of the slabs has; NULL: no memory. */
static void *add_slab(VjBudget *b)
{
    VjSlab *slab;
    void *block;
    bool huge;

    vj_mutex_lock(&b->lock);
    huge = b->slabs->len > 0;
    vj_mutex_unlock(&b->lock);
    slab = vj_slab_new(huge);
    if (slab == NULL) {
        return NULL;
    }
    block = vj_slab_take(slab);
    vj_mutex_lock(&b->lock);
    g_ptr_array_add(b->slabs, slab);
    vj_mutex_unlock(&b->lock);
    return block;
}

static void *new_block(VjBudget *b)
{
    void *block = NULL;

    if (!KEEPS_BLOCKS) {
        return posix_memalign(&block, 4096, VJ_BUDGET_BLOCK_ALLOCATED) == 0 ? block
                                                                            : NULL;
    }
    vj_mutex_lock(&b->lock);
    for (guint i = 0; block == NULL && i < b->slabs->len; i++) {
        block = vj_slab_take(g_ptr_array_index(b->slabs, i));
    }
    vj_mutex_unlock(&b->lock);
    if (block == NULL) {
        block = add_slab(b);
    }
    if (block != NULL) {
        vj_memory_count_mapped((gssize)VJ_BUDGET_BLOCK_ALLOCATED);
    }
    return block;
}

/* Back into its slab, which is returned if all of it is free and it is not the first. */
static VjSlab *give_locked(VjBudget *b, void *block) VJ_REQUIRES(b->lock)
{
    guint i = 0;
    VjSlab *slab = g_ptr_array_index(b->slabs, 0);

    while (!vj_slab_has(slab, block)) {
        slab = g_ptr_array_index(b->slabs, ++i);
    }
    if (!vj_slab_give(slab, block) || i == 0) {
        return NULL;
    }
    g_ptr_array_remove_index(b->slabs, i);
    return slab;
}

static void free_block(VjBudget *b, void *block)
{
    VjSlab *empty;

    if (!KEEPS_BLOCKS) {
        free(block);
        return;
    }
    vj_slab_drop_pages(block);
    vj_memory_count_mapped(-(gssize)VJ_BUDGET_BLOCK_ALLOCATED);
    vj_mutex_lock(&b->lock);
    empty = give_locked(b, block);
    vj_mutex_unlock(&b->lock);
    if (empty != NULL) {
        vj_slab_free(empty);
    }
}

static void blocks_free(VjBudget *b, VjSpareBlock *blocks)
{
    while (blocks != NULL) {
        VjSpareBlock *next = blocks->next;

        free_block(b, blocks);
        blocks = next;
    }
}

static void set_spare(VjBudget *b, uint64_t bytes)
{
    __atomic_store_n(&b->spare_bytes, bytes, __ATOMIC_RELAXED);
}

static VjSpareBlock *pop_locked(VjBudget *b) VJ_REQUIRES(b->lock)
{
    VjSpareBlock *block = b->spare;

    if (block != NULL) {
        b->spare = block->next;
        set_spare(b, b->spare_bytes - VJ_BUDGET_BLOCK);
    }
    return block;
}

void vj_budget_init(VjBudget *b, uint64_t limit_bytes,
                    void (*pressure)(void *opaque, bool any), void *opaque)
{
    g_assert(limit_bytes > 0);
    *b = (VjBudget){.limit_bytes = limit_bytes, .pressure = pressure, .opaque = opaque};
    vj_mutex_init(&b->lock, VJ_RANK_FILE_BUDGET, "file.budget");
    vj_cond_init(&b->freed);
    b->slabs = g_ptr_array_new();
}

void vj_budget_clear(VjBudget *b)
{
    g_assert(b->used_bytes == 0);
    vj_budget_trim(b);
    if (b->slabs->len > 0) {
        vj_slab_free(g_ptr_array_index(b->slabs, 0));
    }
    g_assert(b->slabs->len <= 1);
    g_ptr_array_unref(b->slabs);
    vj_cond_clear(&b->freed);
    vj_mutex_clear(&b->lock);
}

/* A request larger than the whole limit may run when it is alone. */
static bool fits(const VjBudget *b, size_t bytes)
{
    uint64_t limit = b->limit_bytes;

    if (bytes <= VJ_BUDGET_SMALL) {
        limit += limit / 8;
    }
    return b->used_bytes == 0 || b->used_bytes + bytes <= limit;
}

int vj_budget_wait(VjBudget *b, size_t bytes)
{
    int r = 0;

    vj_mutex_lock(&b->lock);
    while (r == 0 && !fits(b, bytes)) {
        uint64_t seen = b->freed_count;

        vj_mutex_unlock(&b->lock);
        b->pressure(b->opaque, bytes <= VJ_BUDGET_SMALL); /* what was theirs is used up */
        vj_mutex_lock(&b->lock);
        /* What was asked for may be over already, without having freed enough. */
        if (!fits(b, bytes) && b->freed_count == seen) {
            r = b->failing != 0 ? b->failing
                                : vj_cond_wait_or_cancel(&b->freed, &b->lock, INT64_MAX);
        }
    }
    vj_mutex_unlock(&b->lock);
    return r;
}

void vj_budget_charge(VjBudget *b, size_t bytes)
{
    VjSpareBlock *surplus = NULL;

    vj_mutex_lock(&b->lock);
    b->used_bytes += bytes;
    while (b->spare != NULL && b->used_bytes + b->spare_bytes > b->limit_bytes) {
        VjSpareBlock *block = pop_locked(b);

        block->next = surplus;
        surplus = block;
    }
    vj_mutex_unlock(&b->lock);
    blocks_free(b, surplus);
}

void vj_budget_release(VjBudget *b, size_t bytes)
{
    vj_mutex_lock(&b->lock);
    g_assert(b->used_bytes >= bytes);
    b->used_bytes -= bytes;
    b->freed_count++;
    vj_cond_broadcast(&b->freed);
    vj_mutex_unlock(&b->lock);
}

void vj_budget_ask_again(VjBudget *b)
{
    vj_mutex_lock(&b->lock);
    b->freed_count++;
    vj_cond_broadcast(&b->freed);
    vj_mutex_unlock(&b->lock);
}

void *vj_budget_take_block(VjBudget *b)
{
    VjSpareBlock *block;

    vj_mutex_lock(&b->lock);
    b->was_taken = true;
    block = pop_locked(b);
    vj_mutex_unlock(&b->lock);
    return block != NULL ? block : new_block(b);
}

void vj_budget_give_block(VjBudget *b, void *memory)
{
    VjSpareBlock *block = memory;
    uint64_t spare;
    bool keep;

    vj_mutex_lock(&b->lock);
    spare = b->spare_bytes + VJ_BUDGET_BLOCK;
    keep = KEEPS_BLOCKS && spare <= b->limit_bytes / SPARE_SHARE &&
           b->used_bytes + spare <= b->limit_bytes;
    if (keep) {
        block->next = b->spare;
        b->spare = block;
        set_spare(b, spare);
    }
    vj_mutex_unlock(&b->lock);
    if (!keep) {
        free_block(b, memory);
    }
}

bool vj_budget_has_blocks(VjBudget *b)
{
    return __atomic_load_n(&b->spare_bytes, __ATOMIC_RELAXED) > 0;
}

void vj_budget_trim(VjBudget *b)
{
    VjSpareBlock *blocks;

    vj_mutex_lock(&b->lock);
    blocks = g_steal_pointer(&b->spare);
    set_spare(b, 0);
    vj_mutex_unlock(&b->lock);
    blocks_free(b, blocks);
}

void vj_budget_look(VjBudget *b)
{
    bool trims;

    vj_mutex_lock(&b->lock);
    b->looks_since = b->was_taken ? 0 : MIN(b->looks_since + 1, VJ_BUDGET_LOOKS);
    b->was_taken = false;
    trims = b->looks_since == VJ_BUDGET_LOOKS;
    vj_mutex_unlock(&b->lock);
    if (trims) {
        vj_budget_trim(b);
    }
}

void vj_budget_set_failing(VjBudget *b, int error)
{
    vj_mutex_lock(&b->lock);
    if (b->failing != error) {
        b->failing = error;
        vj_cond_broadcast(&b->freed);
    }
    vj_mutex_unlock(&b->lock);
}

uint64_t vj_budget_used(VjBudget *b)
{
    uint64_t used;

    vj_mutex_lock(&b->lock);
    used = b->used_bytes;
    vj_mutex_unlock(&b->lock);
    return used;
}

bool vj_budget_is_tight(VjBudget *b)
{
    return vj_budget_used(b) > b->limit_bytes / 2;
}
