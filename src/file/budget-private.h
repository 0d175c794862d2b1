/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * budget-private.h - how much may be changed and not yet written back
 *
 * Two promises: memory stays within dirty=BYTES, and what write(2) accepted finds space
 * in the store.  Charges follow the memory itself (VjMem, tree nodes); a writer asks
 * before it allocates, and waits while others' bytes are being written back.
 *
 * Blocks of a stream are kept for the next write, within the same limit, until none was
 * taken for a while: to have fresh pages cleared by the kernel costs more than to
 * fill them.  They come from slabs (slab-private.h).  The first slab has small pages:
 * each request thread has a block, of which most requests touch little.
 *
 * Threads: any.  Locks: VJ_RANK_FILE_BUDGET inside.
 */
#ifndef VJ_FILE_BUDGET_PRIVATE_H
#define VJ_FILE_BUDGET_PRIVATE_H

#include "file/slab-private.h"

typedef struct VjBudget {
    uint64_t limit_bytes; /* never changes */
    /* Asks for write-back, @any: of small changes too; no lock of the budget held. */
    void (*pressure)(void *opaque, bool any);
    void *opaque;
    VjMutex lock;
    VjCond freed;
    /* guarded by lock: */
    uint64_t used_bytes;
    uint64_t freed_count; /* how often `freed` was signalled for memory */
    uint64_t spare_bytes; /* in blocks that are kept; read without the lock too */
    struct VjSpareBlock *spare;
    bool was_taken;       /* a block, since the last look */
    unsigned looks_since; /* when none was, since then */
    GPtrArray *slabs;     /* VjSlab */
    int failing;          /* -errno while write-back keeps failing, else 0 */
} VjBudget;

/* Requests up to this size may exceed the limit by an eighth, so that a small edit need
 * not stand in line behind a stream; bytes. */
#define VJ_BUDGET_SMALL ((size_t)64 << 10)

void vj_budget_init(VjBudget *b, uint64_t limit_bytes,
                    void (*pressure)(void *opaque, bool any), void *opaque);
void vj_budget_clear(VjBudget *b);

/*
 * vj_budget_wait - wait until @bytes more may be charged
 *
 * Returns   0; the error of write-back when that fails and memory is full; -ECANCELED
 * Locks     none may be held: this may take as long as the device does
 */
int vj_budget_wait(VjBudget *b, size_t bytes) G_GNUC_WARN_UNUSED_RESULT;

void vj_budget_charge(VjBudget *b, size_t bytes);
void vj_budget_release(VjBudget *b, size_t bytes);
/* A block of VJ_BUDGET_BLOCK_ALLOCATED bytes at a page boundary, one that was kept or a
 * new one; not charged.  NULL: no memory. */
void *vj_budget_take_block(VjBudget *b);
/* Takes such a block, no longer charged: keeps or frees it. */
void vj_budget_give_block(VjBudget *b, void *block);
bool vj_budget_has_blocks(VjBudget *b);
/* Write-back that was asked for is over, and may have freed nothing: who waits asks once
 * more. */
void vj_budget_ask_again(VjBudget *b);
/* Frees the blocks. */
void vj_budget_trim(VjBudget *b);
/* To be called once a second: frees the blocks when none was taken since VJ_BUDGET_LOOKS
 * calls.  Small writes, which take none, do not keep them. */
#define VJ_BUDGET_LOOKS 5u
void vj_budget_look(VjBudget *b);
/* Write-back failed (@error -errno) or succeeded (0). */
void vj_budget_set_failing(VjBudget *b, int error);
uint64_t vj_budget_used(VjBudget *b);
/* More than half is in use: write back without waiting for age. */
bool vj_budget_is_tight(VjBudget *b);

#endif
