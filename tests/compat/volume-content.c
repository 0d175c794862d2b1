/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * volume-content.c - the tables of volume-content.h, and the bytes that they stand for
 */
#include "volume-content.h"

#define TIB ((uint64_t)1 << 40)

const FileContent volume_files[] = {
    {.path = "empty"},
    {.path = "inline", .parts = {{PART_RANDOM, 1, 10, 0}}},
    {.path = "inline-most", .parts = {{PART_RANDOM, 2, 4096, 0}}},
    {.path = "object-least", .parts = {{PART_RANDOM, 3, 4097, 0}}},
    {.path = "random", .parts = {{PART_RANDOM, 4, 14000, 0}}},
    {.path = "again", .parts = {{PART_RANDOM, 4, 14000, 0}}},
    {.path = "inserted",
     .parts = {{PART_RANDOM, 4, 7000, 0},
               {PART_RANDOM, 5, 33, 0},
               {PART_RANDOM, 4, 7000, 7000}}},
    {.path = "deleted",
     .parts = {{PART_RANDOM, 4, 5000, 0}, {PART_RANDOM, 4, 5000, 9000}}},
    {.path = "large",
     .parts = {{PART_FILL, 'x', 8 << 20, 0},
               {PART_RANDOM, 6, 3000, 0},
               {PART_FILL, 'x', 8 << 20, 0}}},
    {.path = "sparse",
     .parts = {{PART_RANDOM, 7, 4200, 0},
               {PART_HOLE, 0, TIB, 0},
               {PART_RANDOM, 8, 2500, 0}}},
    {.path = "hole", .parts = {{PART_HOLE, 0, TIB + 1, 0}}},
    {.path = "tail-hole", .parts = {{PART_RANDOM, 9, 4500, 0}, {PART_HOLE, 0, 10000, 0}}},
    {.path = "attributes", .parts = {{PART_FILL, 'a', 3, 0}}},
    {.path = LINK_FIRST, .parts = {{PART_FILL, 'l', 100, 0}}},
    {.path = "settings/inherited", .parts = {{PART_RANDOM, 12, 5000, 0}}},
    {.path = "d/e/f/g/deep", .parts = {{PART_FILL, 'd', 1, 0}}},
    {.path = "cut"},
    {.path = NULL},
};

const char *const odd_names[] = {"\n", " ", "\xff\xfe", "-", "*?[", "a\\b", "...", NULL};

uint64_t content_size(const FileContent *f)
{
    uint64_t size = 0;

    for (size_t i = 0; i < PARTS_MAX && f->parts[i].kind != PART_END; i++) {
        size += f->parts[i].length;
    }
    return size;
}

/* Byte @at of the sequence @seed: each is computed alone, so any range can be. */
static uint8_t random_byte(uint32_t seed, uint64_t at)
{
    uint64_t x = ((uint64_t)seed << 40) + at + UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 31) * UINT64_C(0x7fb5d329728ea185);
    x = (x ^ x >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return (uint8_t)(x >> 33);
}

static uint8_t content_byte(const FileContent *f, uint64_t at)
{
    for (size_t i = 0; i < PARTS_MAX && f->parts[i].kind != PART_END; i++) {
        const Part *p = &f->parts[i];

        if (at >= p->length) {
            at -= p->length;
            continue;
        }
        return p->kind == PART_RANDOM ? random_byte(p->seed, p->skip + at)
               : p->kind == PART_FILL ? (uint8_t)p->seed
                                      : 0;
    }
    g_assert_not_reached();
}

void content_read(const FileContent *f, uint64_t offset, uint8_t *dst, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        dst[i] = content_byte(f, offset + i);
    }
}
