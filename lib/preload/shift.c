/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * shift.c - finds how the bytes of a write stand in the file already, and moves them
 *
 * Nothing that is known of the program decides what is written: guesses say where to
 * look, then the bytes themselves are compared, and the daemon moves them only if the
 * file has not changed since before the comparison (varjfs/ioctl.h, VARJFS_IOC_SHIFT).
 * What does not stand there is written as it is.  So after each step the file is what
 * plain writes of the same bytes would have made of it.
 *
 * A write is taken in segments: bytes that are the same in place, then bytes that stand
 * nowhere (the lead), then bytes that have moved.
 */
#include "shift.h"
#include "next.h"
#include "rwrite-private.h"
#include "varjfs/ioctl.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)256 << 10)
/* What is looked through for a way that nothing hints at. */
#define WINDOW_BYTES ((size_t)128 << 10)
#define ANCHOR_BYTES ((size_t)32)
#define ANCHOR_TRIES 16u
/* So many equal bytes make a guess worth a full comparison. */
#define QUICK_BYTES ((size_t)4096)
/* Fewer moved bytes than this, or than four times the data that travels, are written. */
#define MOVED_LEAST ((size_t)32 << 10)
#define DATA_RATIO 4u
/* Of one write; the rest of it is written. */
#define SEGMENTS_MAX 256u

typedef struct Work {
    VjShiftWrite *w;
    char *mine;   /* BLOCK_BYTES, of the program */
    char *theirs; /* BLOCK_BYTES, of the file */
    VjMessage message;
    bool claimed; /* the descriptor's offset is behind the write already */
} Work;

typedef struct Segment {
    size_t same; /* bytes that the file has in place */
    size_t lead; /* bytes that are written */
    int64_t way; /* of those behind; never 0 */
} Segment;

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(int64_t way)
{
    return (size_t)(way < 0 ? -way : way);
}

/* The caller's bytes; false: there are none at that address, the kernel shall say so. */
static bool copy_mine(Work *k, size_t at, size_t len)
{
    struct iovec to = {.iov_base = k->mine, .iov_len = len};
    struct iovec from = {.iov_base = (void *)(uintptr_t)(k->w->src + at), .iov_len = len};

    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)len;
}

static size_t first_difference(const char *a, const char *b, size_t len)
{
    size_t i = 0;

    if (memcmp(a, b, len) == 0) {
        return len;
    }
    while (len - i >= 64 && memcmp(a + i, b + i, 64) == 0) {
        i += 64;
    }
    while (a[i] == b[i]) {
        i++;
    }
    return i;
}

/* How many of the @most bytes at @at of the write stand at @place of the file. */
static size_t match(Work *k, size_t at, uint64_t place, size_t most)
{
    size_t same = 0;

    while (same < most) {
        size_t step = min_size(most - same, same == 0 ? QUICK_BYTES : BLOCK_BYTES);
        ssize_t got =
            vj_next_pread64()(k->w->fd, k->theirs, step, (int64_t)(place + same));
        size_t equal;

        if (got <= 0 || !copy_mine(k, at + same, (size_t)got)) {
            break;
        }
        equal = first_difference(k->mine, k->theirs, (size_t)got);
        same += equal;
        if (equal < step) {
            break;
        }
    }
    return same;
}

/* The same for bytes that have gone @way, from @at on; @most counts those that have
 * moved. */
static size_t match_moved(Work *k, size_t at, int64_t way, size_t most)
{
    uint64_t place = k->w->offset + at;

    return way > 0 ? match(k, at + distance(way), place, most)
                   : match(k, at, place + distance(way), most);
}

static bool is_way_usable(int64_t way, size_t left)
{
    return way != 0 && distance(way) <= VARJFS_EDIT_MAX &&
           distance(way) <= left / (DATA_RATIO + 1);
}

/* The first of the guesses that holds for a few bytes. */
static bool find_by_guess(Work *k, size_t at, Segment *s)
{
    size_t left = k->w->len - at;

    for (unsigned i = 0; i < k->w->guess_count; i++) {
        int64_t way = k->w->guesses[i];

        if (is_way_usable(way, left) &&
            match_moved(k, at, way, QUICK_BYTES) == QUICK_BYTES) {
            *s = (Segment){.way = way};
            return true;
        }
    }
    return false;
}

/* ANCHOR_BYTES of the file that stand somewhere else in the write. */
static bool find_anchor(const Work *k, size_t mine_len, size_t theirs_len, size_t anchor,
                        Segment *s)
{
    size_t from = 0;

    if (anchor + QUICK_BYTES > theirs_len) {
        return false;
    }
    for (unsigned i = 0; i < ANCHOR_TRIES && from < mine_len; i++) {
        const char *hit =
            memmem(k->mine + from, mine_len - from, k->theirs + anchor, ANCHOR_BYTES);
        size_t mine = hit != NULL ? (size_t)(hit - k->mine) : 0, theirs = anchor;

        if (hit == NULL) {
            return false;
        }
        if (mine != theirs && mine + QUICK_BYTES <= mine_len &&
            memcmp(hit, k->theirs + anchor, QUICK_BYTES) == 0) {
            while (mine > 0 && theirs > 0 && k->mine[mine - 1] == k->theirs[theirs - 1]) {
                mine--;
                theirs--;
            }
            s->lead = min_size(mine, theirs);
            s->way = (int64_t)mine - (int64_t)theirs;
            return true;
        }
        from = mine + 1;
    }
    return false;
}

static bool find_by_search(Work *k, size_t at, Segment *s)
{
    size_t mine_len = min_size(k->w->len - at, WINDOW_BYTES);
    ssize_t got = vj_next_pread64()(k->w->fd, k->theirs, WINDOW_BYTES,
                                    (int64_t)(k->w->offset + at));

    if (got <= 0 || !copy_mine(k, at, mine_len)) {
        return false;
    }
    return (find_anchor(k, mine_len, (size_t)got, WINDOW_BYTES / 8, s) ||
            find_anchor(k, mine_len, (size_t)got, WINDOW_BYTES / 2, s)) &&
           is_way_usable(s->way, k->w->len - at - s->lead);
}

static bool find_segment(Work *k, size_t at, Segment *s)
{
    size_t same;

    *s = (Segment){.way = 0};
    if (at == 0 && find_by_guess(k, at, s)) {
        return true;
    }
    same = match(k, at, k->w->offset + at, k->w->len - at);
    if (k->w->len - at - same < VJ_SHIFT_WRITE_LEAST ||
        !find_by_search(k, at + same, s)) {
        return false;
    }
    s->same = same;
    return true;
}

/* 0 or -errno; @change: a number that stays until the file is changed. */
static int look(int fd, uint64_t *change)
{
    struct varjfs_shift io = {.version = VARJFS_IOC_VERSION, .flags = VARJFS_SHIFT_LOOK};
    const __u64 unchanged = ~(__u64)0; /* no file is as long */

    io.size = unchanged;
    if (ioctl(fd, VARJFS_IOC_SHIFT(0), &io) != 0) {
        return -errno;
    }
    *change = io.change;
    return io.size == unchanged ? -ENOTTY : 0;
}

/* [at, at + len) of the write; the data is those bytes of it that do not stand there. */
static int shift(Work *k, size_t at, size_t len, int64_t way, uint64_t change)
{
    size_t data_len = distance(way), inside = data_len;
    const char *data = k->w->src + at + (way > 0 ? 0 : len - data_len);
    struct varjfs_shift io = {.version = VARJFS_IOC_VERSION,
                              .flags = way < 0 ? VARJFS_SHIFT_DOWN : 0,
                              .offset = k->w->offset + at,
                              .len = len,
                              .data_len = data_len,
                              .change = change};
    int result;

    if (data_len > k->message.size - sizeof io) {
        uint64_t id;

        result = vj_stage_data(k->w->fd, &k->message, data, data_len, &id);
        io.flags |= VARJFS_SHIFT_STAGED;
        io.stage_id = id;
        inside = 0;
    } else {
        result = vj_copy_from_caller(k->message.bytes + sizeof io, data, data_len);
    }
    if (result != 0) {
        return result;
    }
    memcpy(k->message.bytes, &io, sizeof io);
    if (ioctl(k->w->fd, VARJFS_IOC_SHIFT(inside), k->message.bytes) != 0) {
        result = -errno;
    } else {
        memcpy(&io, k->message.bytes, sizeof io);
        result = vj_carry_out(k->w->fd, &io.carry);
    }
    if (result != 0 && io.stage_id != 0) {
        vj_stage_drop(k->w->fd, io.stage_id);
    }
    return result;
}

/*
 * Before the first change: the bytes get their place, and the descriptor's offset goes
 * behind them in one step, as that of write(2) does for all processes that share the
 * description.  False: another thread or process has moved it since we looked; the write
 * has its place where it was then.
 */
static bool claim(Work *k)
{
    VjShiftWrite *w = k->w;
    off_t end;

    if (!w->moves_position || k->claimed) {
        return true;
    }
    end = lseek(w->fd, (off_t)w->len, SEEK_CUR);
    if (end < 0) {
        return false; /* nothing has happened */
    }
    k->claimed = true;
    if ((uint64_t)end - w->len == w->offset) {
        return true;
    }
    w->offset = (uint64_t)end - w->len;
    return false;
}

/*
 * One segment of the write from *done on.  True: *done has moved on and there may be
 * more.  False: the rest, from *done on, is for a plain write.
 */
static bool do_segment(Work *k, size_t *done)
{
    VjShiftWrite *w = k->w;
    size_t at = *done, moved, way_len;
    uint64_t change = 0;
    Segment s;

    if (w->len - at < VJ_SHIFT_WRITE_LEAST || !find_segment(k, at, &s)) {
        return false;
    }
    at += s.same;
    if (s.lead > 0) {
        if (!claim(k)) {
            return false;
        }
        ssize_t written =
            vj_next_pwrite64()(w->fd, w->src + at, s.lead, (int64_t)(w->offset + at));

        if (written < 0 || (size_t)written < s.lead) {
            return false; /* the plain write meets the same trouble and reports it */
        }
        at += s.lead;
        *done = at;
    }
    way_len = distance(s.way);
    if (look(w->fd, &change) != 0) {
        return false;
    }
    moved = match_moved(k, at, s.way, w->len - at - way_len);
    if (moved < MOVED_LEAST || moved / DATA_RATIO < way_len || !claim(k) ||
        shift(k, at, moved + way_len, s.way, change) != 0) {
        return false;
    }
    *done = at + moved + way_len;
    w->way = s.way;
    return true;
}

/* What no segment took.  Bytes written in all, or -errno. */
static int64_t write_rest(Work *k, size_t done)
{
    VjShiftWrite *w = k->w;
    ssize_t rest = 0;
    int64_t result = (int64_t)done;

    if (done < w->len) {
        rest = vj_next_pwrite64()(w->fd, w->src + done, w->len - done,
                                  (int64_t)(w->offset + done));
        if (rest < 0) {
            result = done > 0 ? (int64_t)done : -errno;
            rest = 0;
        } else {
            result += rest;
        }
    }
    if (k->claimed && done + (size_t)rest < w->len) {
        (void)lseek(w->fd, (off_t)(w->offset + done + (size_t)rest), SEEK_SET);
    }
    return result;
}

bool vj_shift_write(VjShiftWrite *w, int64_t *result)
{
    size_t bytes = 2 * BLOCK_BYTES + VARJFS_IOC_MAX;
    char *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Work k = {.w = w, .mine = memory};
    size_t done = 0;
    bool taken;

    w->way = 0;
    if (memory == MAP_FAILED) {
        return false;
    }
    k.theirs = memory + BLOCK_BYTES;
    k.message = (VjMessage){memory + 2 * BLOCK_BYTES, VARJFS_IOC_MAX};
    for (unsigned i = 0; i < SEGMENTS_MAX && do_segment(&k, &done); i++) {
    }
    taken = done > 0 || k.claimed;
    if (taken) {
        *result = write_rest(&k, done);
    }
    munmap(memory, bytes);
    return taken;
}
