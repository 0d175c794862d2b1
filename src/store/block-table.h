/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * block-table.h - the objects of the driver block, by their nonce
 *
 * 32 bytes an object and 4 to 8 for the index: there may be many millions.  Entries stay
 * where they are until they are removed.  Threads: one at a time.
 */
#ifndef VJ_STORE_BLOCK_TABLE_H
#define VJ_STORE_BLOCK_TABLE_H

#include "store/block-format.h"

typedef struct VjBlockEntry {
    uint64_t id;
    uint64_t place; /* vj_block_place_encode */
    uint32_t nonce;
    uint32_t put_s;
    uint32_t next;     /* the table's */
    bool is_there : 1; /* else the entry is free */
    /* The driver's: */
    bool is_staged : 1;   /* a transaction has its key */
    bool is_removed : 1;  /* and waits for removes_committed */
    bool is_doubtful : 1; /* it may not be durable, and will not become so */
    bool is_written : 1;  /* its bytes are on the device, or in the page cache */
    bool is_doubled : 1;  /* by the keys, another one has some of its blocks */
    bool is_erased : 1;   /* a remove writes over it, and will forget it */
    bool is_bad : 1;      /* its blocks could not be overwritten */
} VjBlockEntry;
G_STATIC_ASSERT(sizeof(VjBlockEntry) == 32);

static inline VjBlockObject vj_block_object_of(const VjBlockEntry *entry)
{
    VjBlockObject object = {
        .id = entry->id, .nonce = entry->nonce, .put_s = entry->put_s};

    vj_block_place_decode(entry->place, &object);
    return object;
}

typedef struct VjBlockTable {
    GPtrArray *parts; /* of 1024 entries each */
    uint32_t *heads;  /* entry number plus 1, by hash */
    uint32_t head_mask;
    uint32_t entry_count; /* that have ever been used */
    uint32_t free_entry;  /* number plus 1 of the first one; 0: none */
    uint32_t count;       /* of objects */
} VjBlockTable;

void vj_block_table_init(VjBlockTable *t);
void vj_block_table_clear(VjBlockTable *t);
/* The object of that id and nonce, or NULL. */
VjBlockEntry *vj_block_table_find(const VjBlockTable *t, uint64_t id, uint32_t nonce);
/* There is none of that id and nonce.  NULL: there are 2^32 - 2 already. */
VjBlockEntry *vj_block_table_add(VjBlockTable *t, const VjBlockObject *object);
void vj_block_table_remove(VjBlockTable *t, VjBlockEntry *entry);
/* Entry @number, below entry_count; NULL: it is free. */
VjBlockEntry *vj_block_table_at(const VjBlockTable *t, uint32_t number);

#endif
