/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * random.c - kernel randomness, and xoshiro256** (Blackman and Vigna) from a seed
 *
 * The generator's numbers are part of what tests print and replay: golden values in
 * tests/unit/base hold them still.
 */
#include "base/base.h"

#include <pthread.h>
#include <sys/random.h>

/* Numbers of one thread that the kernel has given together. */
#define NUMBERS_KEPT 32u

static _Thread_local struct {
    uint64_t numbers[NUMBERS_KEPT];
    unsigned left;
    gint forks; /* when they came */
} kept;

/* atomic: of the process's ancestors and its own, that made it: what was kept before
 * belongs to the parent */
static gint forks;

void vj_random_bytes(void *dst, size_t len)
{
    uint8_t *at = dst;

    while (len > 0) {
        ssize_t got = getrandom(at, len, 0);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            g_error("the kernel gives no random bytes: %s", g_strerror(errno));
        }
        at += got;
        len -= (size_t)got;
    }
}

static void note_fork(void)
{
    g_atomic_int_inc(&forks);
}

static void watch_forks(void)
{
    static gsize once;

    if (g_once_init_enter(&once)) {
        if (pthread_atfork(NULL, NULL, note_fork) != 0) {
            g_error("no memory for what a fork is to do");
        }
        g_once_init_leave(&once, 1);
    }
}

uint64_t vj_random_u64(void)
{
    if (kept.left == 0 || kept.forks != g_atomic_int_get(&forks)) {
        watch_forks();
        kept.forks = g_atomic_int_get(&forks);
        vj_random_bytes(kept.numbers, sizeof kept.numbers);
        kept.left = NUMBERS_KEPT;
    }
    return kept.numbers[--kept.left];
}

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t v, unsigned bits)
{
    return (v << bits) | (v >> (64 - bits));
}

void vj_rng_init(VjRng *r, uint64_t seed)
{
    for (size_t i = 0; i < G_N_ELEMENTS(r->s); i++) {
        r->s[i] = splitmix64(&seed);
    }
}

uint64_t vj_rng_u64(VjRng *r)
{
    uint64_t *s = r->s;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t shifted = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint64_t vj_rng_below(VjRng *r, uint64_t bound)
{
    uint64_t skip, v;

    g_assert(bound > 0);
    /* 2^64 mod bound: below it the low residues would come up once more often. */
    skip = (0 - bound) % bound;
    do {
        v = vj_rng_u64(r);
    } while (v < skip);
    return v % bound;
}

void vj_rng_bytes(VjRng *r, void *dst, size_t len)
{
    uint8_t *at = dst;

    while (len > 0) {
        uint64_t v = GUINT64_TO_LE(vj_rng_u64(r));
        size_t part = MIN(len, sizeof v);

        memcpy(at, &v, part);
        at += part;
        len -= part;
    }
}
