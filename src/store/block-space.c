/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* block-space.c - runs of free blocks, zone by zone */
#include "store/block-space.h"

#define ZONE_BLOCKS VJ_BLOCK_ZONE_BLOCKS
#define WORD_BITS 64u
#define ZONE_WORDS (ZONE_BLOCKS / WORD_BITS)
/* A zone with that many free blocks is filled before a new one is begun. */
#define WORTH_FILLING (ZONE_BLOCKS / 4)

G_STATIC_ASSERT(ZONE_BLOCKS % WORD_BITS == 0);
/* The head and the largest object fit into one zone. */
G_STATIC_ASSERT(VJ_BLOCK_COUNT_MIN <= ZONE_BLOCKS);

static VjBlockZone *zone_at(const VjBlockSpace *s, uint32_t number)
{
    return &g_array_index(s->zones, VjBlockZone, number);
}

static uint32_t zone_count(const VjBlockSpace *s)
{
    return s->zones->len;
}

/* ---- bits of one zone -------------------------------------------------------------- */

/* True: none of them was so before. */
static bool set_bits(VjBlockZone *z, uint32_t first, uint32_t count, bool used)
{
    uint32_t changed = 0;

    for (uint32_t at = first, end = first + count; at < end;) {
        uint32_t in_word = at % WORD_BITS, bits = MIN(WORD_BITS - in_word, end - at);
        uint64_t mask = (bits == WORD_BITS ? UINT64_MAX : (UINT64_C(1) << bits) - 1)
                        << in_word;
        uint64_t *word = &z->used[at / WORD_BITS], before = *word;

        *word = used ? before | mask : before & ~mask;
        changed += (uint32_t)__builtin_popcountll(before ^ *word);
        at += bits;
    }
    z->free = used ? z->free - changed : z->free + changed;
    return changed == count;
}

/* Of the run of free or used blocks that begins at @from. */
static uint32_t run_length(const VjBlockZone *z, uint32_t from, bool used)
{
    uint32_t at = from;

    while (at < z->count) {
        uint32_t in_word = at % WORD_BITS;
        uint64_t word = z->used[at / WORD_BITS];
        uint64_t other = (used ? ~word : word) >> in_word;

        if (other != 0) {
            at += (uint32_t)__builtin_ctzll(other);
            break;
        }
        at += WORD_BITS - in_word;
    }
    return MIN(at, z->count) - from;
}

/* From @from on, of those that have room; false: no run is so long, and *longest is the
 * longest one. */
static bool find_run(const VjBlockZone *z, uint32_t from, uint32_t count, uint32_t *first,
                     uint32_t *longest)
{
    *longest = 0;
    for (uint32_t at = from; at < z->room;) {
        uint32_t run;

        at += run_length(z, at, true);
        run = at < z->room ? MIN(run_length(z, at, false), z->room - at) : 0;
        if (run >= count) {
            *first = at;
            return true;
        }
        *longest = MAX(*longest, run);
        at += run;
    }
    return false;
}

/* ---- zones ------------------------------------------------------------------------- */

static void add_zone(VjBlockSpace *s, uint32_t count)
{
    VjBlockZone zone = {.count = count, .free = count, .longest = count, .room = count};

    g_array_append_val(s->zones, zone);
    s->block_count += count;
}

static void need_bits(VjBlockSpace *s, VjBlockZone *z)
{
    if (z->used == NULL) {
        z->used = g_new0(uint64_t, ZONE_WORDS);
        s->emptied -= z->has_space ? 1 : 0;
        s->unbacked_count += z->has_space ? 0 : 1;
        z->has_space = true;
    }
}

static bool mark_in_zone(VjBlockSpace *s, uint32_t number, uint32_t first, uint32_t count)
{
    VjBlockZone *z = zone_at(s, number);
    uint32_t before = z->free;
    bool were_free;

    need_bits(s, z);
    were_free = set_bits(z, first, count, true);
    s->used_count += before - z->free;
    z->longest = MIN(z->longest, z->free);
    return were_free;
}

static void give_in_zone(VjBlockSpace *s, uint32_t number, uint32_t first, uint32_t count)
{
    VjBlockZone *z = zone_at(s, number);
    bool were_used = set_bits(z, first, count, false);

    g_assert(were_used);
    s->used_count -= count;
    if (z->free == z->count) {
        g_clear_pointer(&z->used, g_free);
        z->longest = z->count;
        s->emptied++;
    } else { /* it may lie between two others */
        z->longest = MIN(z->free, 2 * z->longest + count);
    }
}

static bool take_in_zone(VjBlockSpace *s, uint32_t number, uint32_t from, uint32_t count,
                         uint64_t *first)
{
    VjBlockZone *z = zone_at(s, number);
    uint32_t at = 0, longest;

    if (z->is_leaving || z->longest < count || z->free < count || z->room < count ||
        (s->is_short && z->used == NULL && !z->has_space)) {
        return false;
    }
    if (z->used != NULL && !find_run(z, from, count, &at, &longest)) {
        if (from > 0) {
            return take_in_zone(s, number, 0, count, first);
        }
        z->longest = longest;
        return false;
    }
    mark_in_zone(s, number, at, count);
    s->zone = number;
    s->in_zone = at + count;
    *first = (uint64_t)number * ZONE_BLOCKS + at;
    return true;
}

/* Zones in turn, behind the one in which the last object was put; false: none will do. */
static bool take_in_others(VjBlockSpace *s, uint32_t count, uint32_t free_min,
                           bool in_empty, uint64_t *first)
{
    for (uint32_t i = 1; i <= zone_count(s); i++) {
        uint32_t number = (uint32_t)(((uint64_t)s->zone + i) % zone_count(s));
        const VjBlockZone *z = zone_at(s, number);

        if (z->free >= free_min && (z->used == NULL) == in_empty &&
            take_in_zone(s, number, 0, count, first)) {
            return true;
        }
    }
    return false;
}

static bool add_one_zone(VjBlockSpace *s)
{
    VjBlockZone *last = zone_at(s, zone_count(s) - 1);
    uint64_t room = s->most_blocks - s->block_count;

    if (room == 0) {
        return false;
    }
    if (last->count < ZONE_BLOCKS) { /* it is continued, and had its end before */
        uint32_t more = (uint32_t)MIN(ZONE_BLOCKS - last->count, room);

        last->room += last->room == last->count ? more : 0;
        last->count += more;
        last->free += more;
        last->longest = MIN(last->longest + more, last->free);
        s->block_count += more;
        s->unbacked_count++;
        return true;
    }
    add_zone(s, (uint32_t)MIN(ZONE_BLOCKS, room));
    return true;
}

static void add_zones(VjBlockSpace *s, uint64_t up_to)
{
    while (s->block_count < up_to && add_one_zone(s)) {
    }
}

/* ---- all --------------------------------------------------------------------------- */

void vj_block_space_init(VjBlockSpace *s, uint64_t block_count, uint64_t most_blocks)
{
    g_assert(block_count >= VJ_BLOCK_HEAD_BLOCKS && most_blocks >= block_count);
    *s = (VjBlockSpace){.zones = g_array_new(FALSE, FALSE, sizeof(VjBlockZone)),
                        .most_blocks = most_blocks};
    add_zone(s, (uint32_t)MIN(ZONE_BLOCKS, block_count));
    add_zones(s, block_count);
    mark_in_zone(s, 0, 0, VJ_BLOCK_HEAD_BLOCKS);
}

void vj_block_space_clear(VjBlockSpace *s)
{
    for (uint32_t i = 0; i < zone_count(s); i++) {
        g_free(zone_at(s, i)->used);
    }
    g_array_unref(s->zones);
}

void vj_block_space_grow(VjBlockSpace *s, uint64_t block_count, uint64_t most_blocks)
{
    g_assert(block_count >= s->block_count && most_blocks >= block_count);
    s->most_blocks = most_blocks;
    add_zones(s, block_count);
}

bool vj_block_space_take(VjBlockSpace *s, uint64_t count, uint64_t *first,
                         uint64_t *unbacked)
{
    uint32_t blocks = (uint32_t)count;
    uint64_t before = s->unbacked_count;
    bool is_taken;

    g_assert(count > 0 && count <= VJ_STORE_OBJECT_MAX / VJ_BLOCK_BYTES);
    is_taken = take_in_zone(s, s->zone, s->in_zone, blocks, first) ||
               take_in_others(s, blocks, WORTH_FILLING, false, first) ||
               take_in_others(s, blocks, 0, true, first) ||
               (!s->is_short && add_one_zone(s) &&
                take_in_zone(s, zone_count(s) - 1, 0, blocks, first)) ||
               take_in_others(s, blocks, 0, false, first);
    *unbacked = 0;
    if (is_taken && s->unbacked_count != before) {
        const VjBlockZone *z = zone_at(s, s->zone);

        *unbacked = (uint64_t)s->zone * ZONE_BLOCKS + z->count - *first;
    }
    return is_taken;
}

void vj_block_space_give(VjBlockSpace *s, uint64_t first, uint64_t count)
{
    while (count > 0) {
        uint32_t in_zone = (uint32_t)(first % ZONE_BLOCKS);
        uint32_t part = (uint32_t)MIN(count, ZONE_BLOCKS - in_zone);

        give_in_zone(s, (uint32_t)(first / ZONE_BLOCKS), in_zone, part);
        first += part;
        count -= part;
    }
}

void vj_block_space_short(VjBlockSpace *s, uint64_t first)
{
    VjBlockZone *z = zone_at(s, (uint32_t)(first / ZONE_BLOCKS));

    z->room = MIN(z->room, (uint32_t)(first % ZONE_BLOCKS));
    s->is_short = true;
}

void vj_block_space_try_all(VjBlockSpace *s)
{
    for (uint32_t i = 0; s->is_short && i < zone_count(s); i++) {
        VjBlockZone *z = zone_at(s, i);

        if (z->room < z->count) {
            z->room = z->count;
            z->longest = z->free;
        }
    }
    s->is_short = false;
}

bool vj_block_space_mark(VjBlockSpace *s, uint64_t first, uint64_t count)
{
    bool were_free = true;

    add_zones(s, first + count);
    g_assert(first + count <= s->block_count);
    while (count > 0) {
        uint32_t in_zone = (uint32_t)(first % ZONE_BLOCKS);
        uint32_t part = (uint32_t)MIN(count, ZONE_BLOCKS - in_zone);

        were_free =
            mark_in_zone(s, (uint32_t)(first / ZONE_BLOCKS), in_zone, part) && were_free;
        first += part;
        count -= part;
    }
    return were_free;
}

bool vj_block_space_is_empty(const VjBlockSpace *s, uint64_t number)
{
    return number >= zone_count(s) || zone_at(s, (uint32_t)number)->used == NULL;
}

bool vj_block_space_leave(VjBlockSpace *s, uint32_t *zone, uint64_t *first,
                          uint64_t *count)
{
    for (uint32_t i = 0; s->emptied > s->leaving && i < zone_count(s); i++) {
        VjBlockZone *z = zone_at(s, i);

        if (z->used == NULL && z->has_space && !z->is_leaving) {
            s->leaving++;
            z->is_leaving = true;
            *zone = i;
            *first = (uint64_t)i * ZONE_BLOCKS;
            *count = z->count;
            return true;
        }
    }
    return false;
}

void vj_block_space_left(VjBlockSpace *s, uint32_t zone, bool is_gone)
{
    VjBlockZone *z = zone_at(s, zone);

    g_assert(z->is_leaving && z->used == NULL);
    z->is_leaving = false;
    s->leaving--;
    if (is_gone) {
        z->has_space = false;
        s->emptied--;
    }
}
