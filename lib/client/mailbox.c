/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mailbox.c - memory where a small request stands, and then its reply
 *
 * For a request that its sender waits for at once, while the daemon looks at the memory:
 * then neither side enters the kernel but to give its processor away.  Who has waited
 * long enough goes to the socket: takes a request back that nobody has taken, and sends
 * it there, or has the reply come there.
 *
 * Where both sides may use one processor alone, the library rings a bell behind the
 * request, and sleeps until the daemon wakes it.
 *
 * The daemon may write what it likes at any time: a frame is copied before any of it is
 * looked at.
 */
#include "client-private.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* So many requests are waited for before a mailbox is worth its making. */
#define WAITS_BEFORE 16u
/* A request that takes longer is waited for at the socket.  (A timer that ends before the
 * tick of the kernel costs more than all the rest.) */
#define SLEEP_NS 20000000

static uint32_t *word(const varjfs *v, size_t at)
{
    return (uint32_t *)(void *)(v->mailbox + at);
}

static bool change_state(const varjfs *v, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(word(v, VARJFS_WIRE_MAILBOX_STATE_AT), &from, to,
                                       false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static uint32_t state(const varjfs *v)
{
    return __atomic_load_n(word(v, VARJFS_WIRE_MAILBOX_STATE_AT), __ATOMIC_ACQUIRE);
}

/* The daemon looks at it. */
static bool is_heard(const varjfs *v)
{
    return __atomic_load_n(word(v, VARJFS_WIRE_MAILBOX_LISTENS_AT), __ATOMIC_ACQUIRE) ==
           1;
}

/* Nothing can be done about a failure: who is not heard goes to the socket. */
static void ring(const varjfs *v)
{
    static const uint64_t one = 1;

    if (v->bell >= 0 && write(v->bell, &one, sizeof one) < 0) {
        return;
    }
}

/* Plus 1; 0: there are more. */
static uint32_t only_cpu(void)
{
    uint32_t cpu = 0;
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) != 1) {
        return 0;
    }
    while (!CPU_ISSET(cpu, &set)) {
        cpu++;
    }
    return cpu + 1;
}

/* Writing to it neither waits nor raises a signal, as writing to a pipe would. */
static bool is_bell(int fd)
{
    static const char name[] = "anon_inode:[eventfd]";
    char path[32], target[sizeof name];
    int flags = fcntl(fd, F_GETFL);

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, target, sizeof target) == (ssize_t)sizeof name - 1 &&
           memcmp(target, name, sizeof name - 1) == 0 && flags >= 0 &&
           (flags & O_NONBLOCK) != 0;
}

/* Who has answered well looks no more unless the bell is rung. */
static void make_bell(varjfs *v)
{
    if (vjc_fd_ask(v, VARJFS_WIRE_BELL, &v->bell) == 0 &&
        (v->bell < 0 || !is_bell(v->bell))) {
        vjc_mailbox_free(v);
    }
}

static void make(varjfs *v)
{
    uint32_t cpu = only_cpu();

    v->may_call = false;
    v->mailbox = vjc_shared_ask(v, VARJFS_WIRE_MAILBOX, VARJFS_WIRE_MAILBOX_BYTES,
                                PROT_READ | PROT_WRITE);
    if (v->mailbox != NULL && cpu != 0 &&
        __atomic_load_n(word(v, VARJFS_WIRE_MAILBOX_CPU_AT), __ATOMIC_RELAXED) == cpu) {
        make_bell(v);
    }
}

bool vjc_mailbox_sleep(const varjfs *v)
{
    static const struct timespec most = {.tv_nsec = SLEEP_NS};
    uint32_t *sleeps, seen;

    if (v->bell < 0 || !v->looks_at_mailbox) {
        return false;
    }
    sleeps = word(v, VARJFS_WIRE_MAILBOX_SLEEPS_AT);
    __atomic_store_n(sleeps, 1, __ATOMIC_SEQ_CST);
    seen = state(v);
    if (seen == VARJFS_WIRE_MAILBOX_CALLED || seen == VARJFS_WIRE_MAILBOX_TAKEN) {
        (void)syscall(SYS_futex, word(v, VARJFS_WIRE_MAILBOX_STATE_AT), FUTEX_WAIT, seen,
                      &most, NULL, 0);
    }
    __atomic_store_n(sleeps, 0, __ATOMIC_RELAXED);
    return true;
}

static void say_waits(const varjfs *v, bool waits)
{
    if (v->mailbox != NULL) {
        __atomic_store_n(word(v, VARJFS_WIRE_MAILBOX_WAITS_AT), waits ? 1 : 0,
                         __ATOMIC_RELAXED);
    }
}

void vjc_mailbox_prepare(varjfs *v, bool is_waited_for)
{
    if (is_waited_for && v->may_call && ++v->waits == WAITS_BEFORE) {
        make(v);
    }
    say_waits(v, is_waited_for && v->trust > 0);
}

static bool is_free(const varjfs *v)
{
    return v->mailbox != NULL && v->called == NULL && v->trust > 0 && is_heard(v) &&
           state(v) == VARJFS_WIRE_MAILBOX_FREE;
}

bool vjc_mailbox_call(varjfs *v, VjcRequest *r, const uint8_t *message, size_t len,
                      const struct iovec *bulk, size_t bulk_count)
{
    uint8_t *at;
    size_t sum = len;

    if (!is_free(v)) {
        return false;
    }
    for (size_t i = 0; i < bulk_count; i++) {
        sum += bulk[i].iov_len;
    }
    if (sum > VARJFS_WIRE_MAILBOX_FRAME_MAX) {
        return false;
    }
    at = mempcpy(v->mailbox + VARJFS_WIRE_MAILBOX_REQUEST_AT, message, len);
    for (size_t i = 0; i < bulk_count; i++) {
        at = mempcpy(at, bulk[i].iov_base, bulk[i].iov_len);
    }
    v->called = r;
    v->called_bytes = sum;
    v->looks_at_mailbox = true;
    __atomic_store_n(word(v, VARJFS_WIRE_MAILBOX_STATE_AT), VARJFS_WIRE_MAILBOX_CALLED,
                     __ATOMIC_SEQ_CST);
    ring(v);
    return true;
}

bool vjc_mailbox_is_left(const varjfs *v)
{
    return v->looks_at_mailbox && !is_heard(v) && state(v) == VARJFS_WIRE_MAILBOX_CALLED;
}

const uint8_t *vjc_mailbox_answer(const varjfs *v)
{
    return state(v) == VARJFS_WIRE_MAILBOX_ANSWERED
               ? v->mailbox + VARJFS_WIRE_MAILBOX_REPLY_AT
               : NULL;
}

bool vjc_mailbox_take_back(varjfs *v, struct iovec *frame)
{
    if (!change_state(v, VARJFS_WIRE_MAILBOX_CALLED, VARJFS_WIRE_MAILBOX_FREE)) {
        return false;
    }
    *frame = (struct iovec){.iov_base = v->mailbox + VARJFS_WIRE_MAILBOX_REQUEST_AT,
                            .iov_len = v->called_bytes};
    v->called = NULL;
    v->looks_at_mailbox = false;
    return true;
}

bool vjc_mailbox_leave(varjfs *v)
{
    if (!change_state(v, VARJFS_WIRE_MAILBOX_TAKEN, VARJFS_WIRE_MAILBOX_BY_SOCKET) &&
        vjc_mailbox_answer(v) != NULL) {
        return false;
    }
    v->looks_at_mailbox = false;
    return true;
}

void vjc_mailbox_answered(varjfs *v)
{
    v->called = NULL;
    v->looks_at_mailbox = false;
    __atomic_store_n(word(v, VARJFS_WIRE_MAILBOX_STATE_AT), VARJFS_WIRE_MAILBOX_FREE,
                     __ATOMIC_RELEASE);
}

void vjc_mailbox_free(varjfs *v)
{
    if (v->mailbox != NULL) {
        munmap(v->mailbox, VARJFS_WIRE_MAILBOX_BYTES);
        v->mailbox = NULL;
    }
    if (v->bell >= 0) {
        close(v->bell);
        v->bell = -1;
    }
}
