/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* block-table.c - a hash table whose entries lie in parts that are never moved */
#include "store/block-table.h"

#define PART_ENTRIES 1024u
#define HEADS_MIN 1024u

static VjBlockEntry *entry_at(const VjBlockTable *t, uint32_t number)
{
    VjBlockEntry *part = g_ptr_array_index(t->parts, number / PART_ENTRIES);

    return &part[number % PART_ENTRIES];
}

/* Nonces are consecutive numbers from a random one on, a row for each mount, in about the
 * order of the keys.  So they are not mixed: neighbours have neighbouring heads, and an
 * open that adds a million of them does not wait for memory at each.  Rows may lie over
 * each other; a head has as many entries as rows meet there. */
static uint32_t *head_of(const VjBlockTable *t, uint32_t nonce)
{
    return &t->heads[nonce & t->head_mask];
}

static void set_heads(VjBlockTable *t, uint32_t count)
{
    g_free(t->heads);
    t->heads = g_new0(uint32_t, count);
    t->head_mask = count - 1;
}

void vj_block_table_init(VjBlockTable *t)
{
    *t = (VjBlockTable){.parts = g_ptr_array_new_with_free_func(g_free)};
    set_heads(t, HEADS_MIN);
}

void vj_block_table_clear(VjBlockTable *t)
{
    g_ptr_array_unref(t->parts);
    g_free(t->heads);
}

VjBlockEntry *vj_block_table_at(const VjBlockTable *t, uint32_t number)
{
    VjBlockEntry *entry = entry_at(t, number);

    return entry->is_there ? entry : NULL;
}

VjBlockEntry *vj_block_table_find(const VjBlockTable *t, uint64_t id, uint32_t nonce)
{
    for (uint32_t at = *head_of(t, nonce); at != 0;) {
        VjBlockEntry *entry = entry_at(t, at - 1);

        if (entry->nonce == nonce && entry->id == id) {
            return entry;
        }
        at = entry->next;
    }
    return NULL;
}

static void link_entry(VjBlockTable *t, uint32_t number)
{
    VjBlockEntry *entry = entry_at(t, number);
    uint32_t *head = head_of(t, entry->nonce);

    entry->next = *head;
    *head = number + 1;
}

static void grow_heads(VjBlockTable *t)
{
    set_heads(t, (t->head_mask + 1) * 2);
    for (uint32_t i = 0; i < t->entry_count; i++) {
        if (entry_at(t, i)->is_there) {
            link_entry(t, i);
        }
    }
}

/* A number of an entry that is free; UINT32_MAX: there is none. */
static uint32_t take_number(VjBlockTable *t)
{
    uint32_t number;

    if (t->free_entry != 0) {
        number = t->free_entry - 1;
        t->free_entry = entry_at(t, number)->next;
        return number;
    }
    if (t->entry_count == UINT32_MAX - 1) {
        return UINT32_MAX;
    }
    number = t->entry_count++;
    if (number % PART_ENTRIES == 0) {
        g_ptr_array_add(t->parts, g_new0(VjBlockEntry, PART_ENTRIES));
    }
    return number;
}

VjBlockEntry *vj_block_table_add(VjBlockTable *t, const VjBlockObject *object)
{
    uint32_t number = take_number(t);
    VjBlockEntry *entry;

    if (number == UINT32_MAX) {
        return NULL;
    }
    entry = entry_at(t, number);
    *entry = (VjBlockEntry){.id = object->id,
                            .place = vj_block_place_encode(object),
                            .nonce = object->nonce,
                            .put_s = object->put_s,
                            .is_there = true};
    link_entry(t, number);
    t->count++;
    if (t->count > t->head_mask && t->head_mask < UINT32_MAX / 2) {
        grow_heads(t);
    }
    return entry;
}

void vj_block_table_remove(VjBlockTable *t, VjBlockEntry *entry)
{
    uint32_t *at = head_of(t, entry->nonce);
    uint32_t number;

    while (entry_at(t, *at - 1) != entry) {
        at = &entry_at(t, *at - 1)->next;
    }
    number = *at - 1;
    *at = entry->next;
    *entry = (VjBlockEntry){.next = t->free_entry};
    t->free_entry = number + 1;
    t->count--;
}
