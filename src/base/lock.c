/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lock.c - ranked locks over pthread
 *
 * With VJ_LOCK_DEBUG each thread keeps the locks that it holds in the order in which it
 * took them.  As every new one must outrank the last, that order is also the order of
 * ranks, so one comparison checks all of them.
 *
 * clang's analysis reads the annotations of lock.h; the bodies here are what it cannot
 * see through and are left out of it.
 */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

#define VJ_UNANALYSED VJ_TSA(no_thread_safety_analysis)

#ifdef VJ_LOCK_DEBUG

/* Locks of one thread at once: more than there are layers of ranks. */
#define HELD_MAX 16

typedef struct Held {
    const void *lock;
    const char *name;
    int rank;
    bool is_mutex;
} Held;

static _Thread_local Held held[HELD_MAX];
static _Thread_local unsigned held_count;

G_GNUC_NORETURN static void refuse(const char *what, const char *name, int rank,
                                   const Held *other)
{
    if (other != NULL) {
        fprintf(stderr,
                "varjfs: lock order: %s \"%s\" (rank %d) while holding \"%s\" (%d)\n",
                what, name, rank, other->name, other->rank);
    } else {
        fprintf(stderr, "varjfs: lock order: %s \"%s\" (rank %d)\n", what, name, rank);
    }
    abort();
}

static void check_order(const char *name, int rank)
{
    if (held_count > 0 && held[held_count - 1].rank >= rank) {
        refuse("taking", name, rank, &held[held_count - 1]);
    }
    if (held_count == HELD_MAX) {
        refuse("too many locks, taking", name, rank, NULL);
    }
}

static void push(const void *lock, const char *name, int rank, bool is_mutex)
{
    held[held_count++] =
        (Held){.lock = lock, .name = name, .rank = rank, .is_mutex = is_mutex};
}

static void pop(const void *lock, const char *name, int rank)
{
    for (unsigned i = held_count; i-- > 0;) {
        if (held[i].lock == lock) {
            memmove(&held[i], &held[i + 1], (held_count - i - 1) * sizeof held[0]);
            held_count--;
            return;
        }
    }
    refuse("releasing what this thread does not hold:", name, rank, NULL);
}

static void check_held(const void *lock, const char *name, int rank)
{
    for (unsigned i = 0; i < held_count; i++) {
        if (held[i].lock == lock) {
            return;
        }
    }
    refuse("needed but not held:", name, rank, NULL);
}

/* A wait gives @m up and takes it again, under whatever else is still held. */
static void check_innermost(const VjMutex *m)
{
    check_held(m, m->name, m->rank);
    if (held[held_count - 1].lock != m) {
        refuse("waiting with", m->name, m->rank, &held[held_count - 1]);
    }
}

void vj_lock_assert_none(void)
{
    for (unsigned i = 0; i < held_count; i++) {
        if (held[i].is_mutex) {
            refuse("held where none may be:", held[i].name, held[i].rank, NULL);
        }
    }
}

const char *vj_lock_held(void)
{
    for (unsigned i = 0; i < held_count; i++) {
        if (held[i].is_mutex) {
            return held[i].name;
        }
    }
    return NULL;
}

#else

static inline void check_order(const char *name, int rank)
{
    (void)name;
    (void)rank;
}

static inline void push(const void *lock, const char *name, int rank, bool is_mutex)
{
    (void)lock;
    (void)name;
    (void)rank;
    (void)is_mutex;
}

static inline void pop(const void *lock, const char *name, int rank)
{
    (void)lock;
    (void)name;
    (void)rank;
}

static inline void check_held(const void *lock, const char *name, int rank)
{
    (void)lock;
    (void)name;
    (void)rank;
}

static inline void check_innermost(const VjMutex *m)
{
    (void)m;
}

void vj_lock_assert_none(void)
{
}

const char *vj_lock_held(void)
{
    return NULL;
}

#endif

/* None of these calls fails for a reason but a programmer's. */
static void must(int failed, const char *call, const char *name)
{
    if (G_UNLIKELY(failed != 0)) {
        g_error("%s of lock \"%s\": %s", call, name, g_strerror(failed));
    }
}

void vj_mutex_init(VjMutex *m, VjLockRank rank, const char *name)
{
    must(pthread_mutex_init(&m->mutex, NULL), "init", name);
    m->name = name;
    m->rank = rank;
}

void vj_mutex_clear(VjMutex *m)
{
    must(pthread_mutex_destroy(&m->mutex), "clear", m->name);
}

VJ_UNANALYSED void vj_mutex_lock(VjMutex *m)
{
    check_order(m->name, m->rank);
    must(pthread_mutex_lock(&m->mutex), "lock", m->name);
    push(m, m->name, m->rank, true);
}

VJ_UNANALYSED void vj_mutex_unlock(VjMutex *m)
{
    const char *name = m->name; /* the thread that gets it next may free it */

    pop(m, m->name, m->rank);
    must(pthread_mutex_unlock(&m->mutex), "unlock", name);
}

VJ_UNANALYSED bool vj_mutex_trylock(VjMutex *m)
{
    int failed;

    check_order(m->name, m->rank);
    failed = pthread_mutex_trylock(&m->mutex);
    if (failed == EBUSY) {
        return false;
    }
    must(failed, "trylock", m->name);
    push(m, m->name, m->rank, true);
    return true;
}

VJ_UNANALYSED void vj_mutex_assert_held(VjMutex *m)
{
    check_held(m, m->name, m->rank);
}

void vj_cond_init(VjCond *c)
{
    pthread_condattr_t attr;

    must(pthread_condattr_init(&attr), "attributes", "condition");
    must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC), "clock", "condition");
    must(pthread_cond_init(&c->cond, &attr), "init", "condition");
    must(pthread_condattr_destroy(&attr), "attributes", "condition");
}

void vj_cond_clear(VjCond *c)
{
    must(pthread_cond_destroy(&c->cond), "clear", "condition");
}

static _Thread_local void (*before_wait)(void *opaque);
static _Thread_local void *before_wait_opaque;

void vj_before_wait_set(void (*call)(void *opaque), void *opaque)
{
    before_wait = call;
    before_wait_opaque = opaque;
}

void vj_before_wait(void)
{
    if (before_wait != NULL) {
        before_wait(before_wait_opaque);
    }
}

VJ_UNANALYSED void vj_cond_wait(VjCond *c, VjMutex *m)
{
    vj_before_wait();
    check_innermost(m);
    pop(m, m->name, m->rank);
    must(pthread_cond_wait(&c->cond, &m->mutex), "wait", m->name);
    push(m, m->name, m->rank, true);
}

/* The kernel's clock runs on when a test has frozen ours, so only the distance counts. */
static struct timespec deadline_of(int64_t until_mono_us)
{
    int64_t left_us = MAX(0, until_mono_us - vj_clock_mono_us());
    struct timespec at;

    must(clock_gettime(CLOCK_MONOTONIC, &at) == 0 ? 0 : errno, "clock", "condition");
    at.tv_sec += (time_t)(left_us / 1000000);
    at.tv_nsec += (long)(left_us % 1000000) * 1000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    return at;
}

VJ_UNANALYSED bool vj_cond_wait_until(VjCond *c, VjMutex *m, int64_t until_mono_us)
{
    struct timespec deadline = deadline_of(until_mono_us);
    int failed;

    vj_before_wait();
    check_innermost(m);
    pop(m, m->name, m->rank);
    failed = pthread_cond_timedwait(&c->cond, &m->mutex, &deadline);
    push(m, m->name, m->rank, true);
    if (failed == ETIMEDOUT) {
        return false;
    }
    must(failed, "timed wait", m->name);
    return true;
}

void vj_cond_signal(VjCond *c)
{
    must(pthread_cond_signal(&c->cond), "signal", "condition");
}

void vj_cond_broadcast(VjCond *c)
{
    must(pthread_cond_broadcast(&c->cond), "broadcast", "condition");
}

void vj_rwlock_init(VjRwLock *l, VjLockRank rank, const char *name)
{
    must(pthread_rwlock_init(&l->rwlock, NULL), "init", name);
    l->name = name;
    l->rank = rank;
}

void vj_rwlock_clear(VjRwLock *l)
{
    must(pthread_rwlock_destroy(&l->rwlock), "clear", l->name);
}

VJ_UNANALYSED void vj_rwlock_read_lock(VjRwLock *l)
{
    check_order(l->name, l->rank);
    must(pthread_rwlock_rdlock(&l->rwlock), "read lock", l->name);
    push(l, l->name, l->rank, false);
}

VJ_UNANALYSED void vj_rwlock_read_unlock(VjRwLock *l)
{
    pop(l, l->name, l->rank);
    must(pthread_rwlock_unlock(&l->rwlock), "read unlock", l->name);
}

VJ_UNANALYSED void vj_rwlock_write_lock(VjRwLock *l)
{
    check_order(l->name, l->rank);
    must(pthread_rwlock_wrlock(&l->rwlock), "write lock", l->name);
    push(l, l->name, l->rank, false);
}

VJ_UNANALYSED void vj_rwlock_write_unlock(VjRwLock *l)
{
    pop(l, l->name, l->rank);
    must(pthread_rwlock_unlock(&l->rwlock), "write unlock", l->name);
}
