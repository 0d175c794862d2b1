/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * detect.c - RWRITE_DETECT=1: programs that insert or delete by rewriting the tail of a
 * file
 *
 * Watches where a program has read and written, and lets shift.c look at each longer
 * write to a place that the program has read.  What is remembered are guesses and nothing
 * else: descriptors may be closed, duplicated, inherited and used by several threads
 * without our knowing, and the worst that a wrong guess does is to compare a few bytes in
 * vain.
 *
 * The memory is fixed.  A slot is used by one thread at a time; a thread that finds it
 * taken (or a signal handler that has interrupted the thread which holds it) does
 * without.
 */
#include "next.h"
#include "shift.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SLOTS 64u
#define RUNS 4u
/* The kernel's limit of one write. */
#define WRITE_MOST ((size_t)0x7ffff000)

typedef struct Run {
    uint64_t start, end; /* bytes of the file; empty when equal */
} Run;

typedef struct Slot {
    atomic_flag taken;
    int fd;
    Run reads[RUNS]; /* places that were read, each from start to end without a gap */
    unsigned next_read;
    Run written; /* the last place that was written, likewise */
    int64_t way; /* of the last shift */
} Slot;

static Slot slots[SLOTS];
static bool detecting;

__attribute__((constructor)) static void read_environment(void)
{
    const char *value = getenv("RWRITE_DETECT");

    detecting = value != NULL && strcmp(value, "1") == 0;
}

/* NULL: another thread has it.  What it knows of another descriptor is forgotten. */
static Slot *slot_take(int fd)
{
    Slot *s = &slots[(unsigned)fd % SLOTS];

    if (fd < 0 || atomic_flag_test_and_set_explicit(&s->taken, memory_order_acquire)) {
        return NULL;
    }
    if (s->fd != fd) {
        s->fd = fd;
        memset(s->reads, 0, sizeof s->reads);
        s->next_read = 0;
        s->written = (Run){0, 0};
        s->way = 0;
    }
    return s;
}

static void slot_release(Slot *s)
{
    atomic_flag_clear_explicit(&s->taken, memory_order_release);
}

static void note_read(int fd, uint64_t start, size_t len)
{
    Slot *s = slot_take(fd);

    if (s == NULL) {
        return;
    }
    for (unsigned i = 0; i < RUNS; i++) {
        Run *r = &s->reads[i];

        if (r->start < r->end && start >= r->start && start <= r->end) {
            r->end = start + len > r->end ? start + len : r->end;
            slot_release(s);
            return;
        }
    }
    s->reads[s->next_read++ % RUNS] = (Run){start, start + len};
    slot_release(s);
}

static void note_write(Slot *s, uint64_t start, size_t len)
{
    if (start == s->written.end && s->written.start < s->written.end) {
        s->written.end += len;
    } else {
        s->written = (Run){start, start + len};
    }
}

static bool has_read_any(const Slot *s)
{
    return s->reads[0].end != 0;
}

/* The program has read bytes of the range; only then it can be writing them back. */
static bool has_read(const Slot *s, uint64_t start, size_t len)
{
    for (unsigned i = 0; i < RUNS; i++) {
        const Run *r = &s->reads[i];

        if (r->start < r->end && r->start < start + len && r->end > start) {
            return true;
        }
    }
    return false;
}

static void guess(VjShiftWrite *w, int64_t way)
{
    if (way != 0 && w->guess_count < VJ_SHIFT_GUESSES_MAX) {
        w->guesses[w->guess_count++] = way;
    }
}

/* How far bytes may have gone: as the last time; since they were read; by what was
 * written in front of them. */
static void guess_ways(const Slot *s, VjShiftWrite *w)
{
    guess(w, s->way);
    for (unsigned i = 0; i < RUNS; i++) {
        const Run *r = &s->reads[i];

        if (r->start < r->end) {
            guess(w, (int64_t)w->offset - (int64_t)r->start);
        }
    }
    if (s->written.end == w->offset && s->written.start < s->written.end) {
        guess(w, (int64_t)(s->written.end - s->written.start));
    }
}

/* Only what shift.c can do exactly as write(2) would: no appending, no direct and no
 * synchronous writing, no limit in reach. */
static bool is_plain_descriptor(const VjShiftWrite *w)
{
    VjEdit e = {.fd = w->fd};
    VjDevice device = 0;

    return vj_edit_check_descriptor(&e, &device) == 0 &&
           (e.flags & O_ACCMODE) == O_RDWR &&
           (e.flags & (O_APPEND | O_DIRECT | O_SYNC | O_DSYNC)) == 0 &&
           vj_edit_check_limit(&e, w->offset + w->len) == 0 &&
           vj_is_varjfs(w->fd, device);
}

static bool is_candidate(size_t len)
{
    return len >= VJ_SHIFT_WRITE_LEAST && len <= WRITE_MOST;
}

/*
 * True: done, *result and errno are what the program gets.  @s is taken.  Signals wait as
 * they do for a write(2) that is being made: a handler that never returns would leave the
 * descriptor's offset moved and the bytes unwritten.
 */
static bool shifted(Slot *s, VjShiftWrite *w, int saved_errno, ssize_t *result)
{
    int cancel_state, ignored;
    sigset_t all, before;
    int64_t done = 0;
    bool taken;

    if (w->len > INT64_MAX - w->offset || !has_read(s, w->offset, w->len)) {
        return false;
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    guess_ways(s, w);
    taken = is_plain_descriptor(w) && vj_shift_write(w, &done);
    if (taken) {
        s->way = w->way;
        *result = done < 0 ? -1 : (ssize_t)done;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_setcancelstate(cancel_state, &ignored);
    errno = taken && done < 0 ? (int)-done : saved_errno;
    return taken;
}

static ssize_t detect_write(int fd, const void *src, size_t len)
{
    int saved_errno = errno;
    Slot *s = slot_take(fd);
    VjShiftWrite w = {.fd = fd, .src = src, .len = len, .moves_position = true};
    ssize_t result = -1;
    bool done = false;
    off_t at = -1;

    if (s != NULL && has_read_any(s)) {
        at = lseek(fd, 0, SEEK_CUR);
        errno = saved_errno;
    }
    if (at >= 0 && is_candidate(len)) {
        w.offset = (uint64_t)at;
        done = shifted(s, &w, saved_errno, &result);
        at = (off_t)w.offset;
    }
    if (s != NULL && !done) {
        /* Given back first: the plain write may be cancelled, or a signal handler
         * write. */
        if (at >= 0) {
            note_write(s, (uint64_t)at, len);
        }
        slot_release(s);
        return vj_next_write()(fd, src, len);
    }
    if (s == NULL) {
        return vj_next_write()(fd, src, len);
    }
    note_write(s, (uint64_t)at, len);
    slot_release(s);
    return result;
}

/* True: done. */
static bool detect_pwrite(int fd, const void *src, size_t len, int64_t offset,
                          ssize_t *result)
{
    VjShiftWrite w = {.fd = fd, .src = src, .len = len, .offset = (uint64_t)offset};
    Slot *s = offset >= 0 ? slot_take(fd) : NULL;
    bool done = false;

    if (s == NULL) {
        return false;
    }
    if (has_read_any(s)) {
        done = is_candidate(len) && shifted(s, &w, errno, result);
        note_write(s, w.offset, len);
    }
    slot_release(s);
    return done;
}

static void note_read_before(int fd, size_t len)
{
    int saved_errno = errno;
    off_t at = lseek(fd, 0, SEEK_CUR);

    errno = saved_errno;
    if (at >= (off_t)len) {
        note_read(fd, (uint64_t)at - len, len);
    }
}

/* ---- the names that programs call -------------------------------------------------- */

VJ_PUBLIC ssize_t vj_read(int fd, void *dst, size_t len) __asm__("read");
VJ_PUBLIC ssize_t vj_pread(int fd, void *dst, size_t len, long offset) __asm__("pread");
VJ_PUBLIC ssize_t vj_pread64(int fd, void *dst, size_t len,
                             int64_t offset) __asm__("pread64");
VJ_PUBLIC ssize_t vj_write(int fd, const void *src, size_t len) __asm__("write");
VJ_PUBLIC ssize_t vj_pwrite(int fd, const void *src, size_t len,
                            long offset) __asm__("pwrite");
VJ_PUBLIC ssize_t vj_pwrite64(int fd, const void *src, size_t len,
                              int64_t offset) __asm__("pwrite64");

ssize_t vj_read(int fd, void *dst, size_t len)
{
    ssize_t got = vj_next_read()(fd, dst, len);

    if (detecting && got > 0) {
        note_read_before(fd, (size_t)got);
    }
    return got;
}

ssize_t vj_pread(int fd, void *dst, size_t len, long offset)
{
    ssize_t got = vj_next_pread()(fd, dst, len, offset);

    if (detecting && got > 0) {
        note_read(fd, (uint64_t)offset, (size_t)got);
    }
    return got;
}

ssize_t vj_pread64(int fd, void *dst, size_t len, int64_t offset)
{
    ssize_t got = vj_next_pread64()(fd, dst, len, offset);

    if (detecting && got > 0) {
        note_read(fd, (uint64_t)offset, (size_t)got);
    }
    return got;
}

ssize_t vj_write(int fd, const void *src, size_t len)
{
    return detecting ? detect_write(fd, src, len) : vj_next_write()(fd, src, len);
}

ssize_t vj_pwrite(int fd, const void *src, size_t len, long offset)
{
    ssize_t result;

    if (detecting && detect_pwrite(fd, src, len, offset, &result)) {
        return result;
    }
    return vj_next_pwrite()(fd, src, len, offset);
}

ssize_t vj_pwrite64(int fd, const void *src, size_t len, int64_t offset)
{
    ssize_t result;

    if (detecting && detect_pwrite(fd, src, len, offset, &result)) {
        return result;
    }
    return vj_next_pwrite64()(fd, src, len, offset);
}
