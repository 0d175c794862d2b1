/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * shadow.c - the obvious way to edit a file
 */
#include "shadow.h"

void shadow_clear(Shadow *s)
{
    g_free(s->bytes);
    *s = (Shadow){0};
}

static void make_room(Shadow *s, size_t len)
{
    if (len > s->cap) {
        s->cap = MAX(len, s->cap * 2);
        s->bytes = g_realloc(s->bytes, s->cap);
    }
}

void shadow_truncate(Shadow *s, size_t len)
{
    make_room(s, len);
    if (len > s->len) {
        memset(s->bytes + s->len, 0, len - s->len);
    }
    s->len = len;
}

void shadow_replace(Shadow *s, size_t offset, size_t old_len, const void *src, size_t len)
{
    if (offset > s->len) {
        if (len == 0) {
            return;
        }
        shadow_truncate(s, offset);
    }
    old_len = MIN(old_len, s->len - offset);
    make_room(s, s->len - old_len + len);
    if (offset + old_len < s->len) {
        memmove(s->bytes + offset + len, s->bytes + offset + old_len,
                s->len - offset - old_len);
    }
    if (len > 0) {
        memcpy(s->bytes + offset, src, len);
    }
    s->len = s->len - old_len + len;
}

void shadow_write(Shadow *s, size_t offset, const void *src, size_t len)
{
    shadow_replace(s, offset, len, src, len);
}

void shadow_punch(Shadow *s, size_t offset, size_t len, bool grow)
{
    size_t end = offset + len;

    if (grow && end > s->len) {
        shadow_truncate(s, end);
    }
    if (offset < s->len) {
        memset(s->bytes + offset, 0, MIN(end, s->len) - offset);
    }
}

size_t shadow_difference(const uint8_t *a, const uint8_t *b, size_t len)
{
    size_t i = 0;

    if (len == 0 || memcmp(a, b, len) == 0) {
        return len;
    }
    while (a[i] == b[i]) {
        i++;
    }
    return i;
}

void data_pool_init(DataPool *pool, uint64_t seed)
{
    VjRng rng;

    vj_rng_init(&rng, seed);
    vj_rng_bytes(&rng, pool->bytes, sizeof pool->bytes);
}

void data_fill(const DataPool *pool, VjRng *rng, uint8_t *dst, size_t len)
{
    uint64_t kind = vj_rng_below(rng, 10);
    size_t period = 1 + vj_rng_below(rng, 100), from;

    switch (kind) {
    case 0:
        memset(dst, 0, len);
        break;
    case 1:
        memset(dst, (int)vj_rng_below(rng, 256), len);
        break;
    case 2:
        vj_rng_bytes(rng, dst, MIN(len, period));
        for (size_t i = period; i < len; i++) {
            dst[i] = dst[i - period];
        }
        break;
    case 3:
    case 4:
    case 5:
        from = vj_rng_below(rng, 16) * (DATA_POOL_BYTES / 16);
        for (size_t done = 0; done < len; from = 0) {
            size_t take = MIN(len - done, DATA_POOL_BYTES - from);

            memcpy(dst + done, pool->bytes + from, take);
            done += take;
        }
        break;
    default:
        vj_rng_bytes(rng, dst, len);
        break;
    }
}

size_t data_length(VjRng *rng, size_t most)
{
    size_t limit = most;

    switch (vj_rng_below(rng, 8)) {
    case 0:
    case 1:
    case 2:
        limit = 64;
        break;
    case 3:
    case 4:
    case 5:
        limit = 5000;
        break;
    case 6:
        limit = most / 8;
        break;
    default:
        break;
    }
    return 1 + vj_rng_below(rng, CLAMP(limit, 1, most));
}
