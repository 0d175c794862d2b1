/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * by-tail.c - the edit on other file systems: the tail of the file is moved
 *
 * A longer replacement: reserve the space, move the tail from its end, write the data.  A
 * shorter one: write the data, move the tail from its start, cut the file.  Neither
 * atomic nor safe against crashes, and holes in the tail become zeros.  When something
 * fails, the file is brought to the state that the return value describes: the first n
 * bytes of the data stand in place of min(n, old_len) old ones.  Only if a shorter
 * replacement fails in its second half, or putting back fails too, the tail is lost.
 *
 * Some descriptors cannot do this themselves: write-only ones cannot read the tail, and
 * O_DIRECT wants alignment.  For them the file is opened again by its entry in /proc.
 */
#include "rwrite-private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)256 << 10)

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x00000020 /* Linux 6.9; older headers do not have it */
#endif

typedef struct Tail {
    VjEdit *edit;
    int fd; /* the caller's, or ours */
    bool own_fd;
    bool no_append; /* the caller's O_APPEND is to be overruled in each write */
    bool can_read;
    char *block;   /* BLOCK_BYTES */
    uint64_t size; /* of the file at first */
} Tail;

static int tail_reopen(Tail *t, bool can_read)
{
    char path[64];
    int keep = t->edit->flags & (O_SYNC | O_DSYNC);
    int fd;

    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", t->edit->fd);
    fd = open(path, (can_read ? O_RDWR : O_WRONLY) | O_CLOEXEC | O_NOCTTY | keep);
    if (fd < 0) {
        return errno == ENOENT ? -EOPNOTSUPP : -errno;
    }
    t->fd = fd;
    t->own_fd = true;
    t->no_append = false;
    t->can_read = can_read;
    return 0;
}

static ssize_t write_some(Tail *t, const char *src, size_t len, uint64_t offset)
{
    if (t->no_append) {
        struct iovec data = {.iov_base = (void *)(uintptr_t)src, .iov_len = len};
        ssize_t done = pwritev2(t->fd, &data, 1, (off_t)offset, RWF_NOAPPEND);

        if (done >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)) {
            return done < 0 ? -errno : done;
        }
        int result = tail_reopen(t, t->can_read);
        if (result != 0) {
            return result;
        }
    }
    ssize_t done = pwrite(t->fd, src, len, (off_t)offset);
    return done < 0 ? -errno : done;
}

/* @done is what was written, also after an error. */
static int write_all(Tail *t, const char *src, uint64_t len, uint64_t offset,
                     uint64_t *done)
{
    *done = 0;
    while (*done < len) {
        ssize_t part = write_some(t, src + *done, len - *done, offset + *done);

        if (part == -EINTR) {
            continue; /* half an edit is no answer to a signal */
        }
        if (part <= 0) {
            return part == 0 ? -EIO : (int)part;
        }
        *done += (uint64_t)part;
    }
    return 0;
}

static int move_block(Tail *t, uint64_t from, uint64_t to, size_t len)
{
    uint64_t written;

    for (size_t got = 0; got < len;) {
        ssize_t part = pread(t->fd, t->block + got, len - got, (off_t)(from + got));

        if (part == 0) {
            return -EIO; /* another process has cut the file */
        }
        if (part < 0 && errno != EINTR) {
            return -errno;
        }
        got += part > 0 ? (size_t)part : 0;
    }
    return write_all(t, t->block, len, to, &written);
}

/* To a lower offset, first block first. */
static int move_left(Tail *t, uint64_t from, uint64_t to, uint64_t len)
{
    for (uint64_t moved = 0; moved < len;) {
        uint64_t left = len - moved;
        size_t part = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        int result = move_block(t, from + moved, to + moved, part);

        if (result != 0) {
            return result;
        }
        moved += part;
    }
    return 0;
}

/* To a higher offset, last block first; @left is what has not moved. */
static int move_right(Tail *t, uint64_t from, uint64_t to, uint64_t len, uint64_t *left)
{
    for (*left = len; *left > 0;) {
        size_t part = *left < BLOCK_BYTES ? *left : BLOCK_BYTES;
        int result = move_block(t, from + *left - part, to + *left - part, part);

        if (result != 0) {
            return result;
        }
        *left -= part;
    }
    return 0;
}

/* After a failure: what moved goes back to where @to says, and the file ends behind
 * it. */
static void put_back(Tail *t, uint64_t from, uint64_t to, uint64_t len)
{
    /* If this fails as well there is nothing left to try; the caller has the first
     * error. */
    if (move_left(t, from, to, len) == 0) {
        (void)!ftruncate(t->fd, (off_t)(to + len));
    }
}

static int64_t replace_by_longer(Tail *t, uint64_t old_len)
{
    VjEdit *e = t->edit;
    uint64_t grow = e->len - old_len;
    uint64_t old_end = e->offset + old_len, new_end = e->offset + e->len;
    uint64_t tail = t->size - old_end;
    uint64_t left, done;
    int result;

    /* Running out of space is found before anything has moved, where that is
     * supported. */
    if (fallocate(t->fd, 0, (off_t)t->size, (off_t)grow) != 0 &&
        (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
        result = -errno;
        (void)!ftruncate(t->fd, (off_t)t->size);
        return result;
    }
    result = move_right(t, old_end, new_end, tail, &left);
    if (result != 0) {
        put_back(t, new_end + left, old_end + left, tail - left);
        return result;
    }
    result = write_all(t, e->src, e->len, e->offset, &done);
    if (result != 0) {
        put_back(t, new_end, e->offset + (done > old_len ? done : old_len), tail);
        return done > 0 ? (int64_t)done : result;
    }
    return (int64_t)done;
}

static int64_t replace_by_shorter(Tail *t, uint64_t old_len)
{
    VjEdit *e = t->edit;
    uint64_t old_end = e->offset + old_len, new_end = e->offset + e->len;
    uint64_t tail = t->size - old_end;
    uint64_t done;
    int result = write_all(t, e->src, e->len, e->offset, &done);

    if (result != 0) {
        return done > 0 ? (int64_t)done : result;
    }
    result = move_left(t, old_end, new_end, tail);
    if (result == 0 && ftruncate(t->fd, (off_t)(new_end + tail)) != 0) {
        result = -errno;
    }
    return result != 0 ? result : (int64_t)done;
}

/* Nothing behind the edit changes its place: a write, and a cut if it is shorter. */
static int64_t replace_in_place(Tail *t, uint64_t old_len)
{
    VjEdit *e = t->edit;
    uint64_t done;
    int result = write_all(t, e->src, e->len, e->offset, &done);

    if (result != 0 && done == 0 && e->offset > t->size) {
        /* Linux 6.18 leaves the hole when not one byte behind it could be copied in. */
        (void)!ftruncate(t->fd, (off_t)t->size);
    }
    if (result != 0) {
        return done > 0 ? (int64_t)done : result;
    }
    if (e->len < old_len && ftruncate(t->fd, (off_t)(e->offset + e->len)) != 0) {
        return -errno;
    }
    return (int64_t)done;
}

static int64_t replace(Tail *t, uint64_t old_len, bool moves)
{
    VjEdit *e = t->edit;
    int64_t done;

    if (!moves) {
        return replace_in_place(t, old_len);
    }
    t->block = mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (t->block == MAP_FAILED) {
        return -errno;
    }
    done =
        e->len > old_len ? replace_by_longer(t, old_len) : replace_by_shorter(t, old_len);
    munmap(t->block, BLOCK_BYTES);
    return done;
}

/* Append mode: one write at the end is what is wanted, and the kernel finds the end. */
static int64_t append(VjEdit *e)
{
    ssize_t done = write(e->fd, e->src, e->len);
    off_t end;

    if (done < 0) {
        return -errno;
    }
    end = lseek(e->fd, 0, SEEK_CUR);
    e->at = (uint64_t)end - (uint64_t)done;
    return end < 0 ? -errno : done;
}

int64_t vj_edit_by_tail(VjEdit *e)
{
    Tail t = {.edit = e, .fd = e->fd, .no_append = (e->flags & O_APPEND) != 0};
    uint64_t old_len = 0, reach;
    struct stat st;
    bool moves;
    int64_t done;

    if (e->append) {
        return append(e);
    }
    if (fstat(e->fd, &st) != 0) {
        return -errno;
    }
    t.size = (uint64_t)st.st_size;
    t.can_read = (e->flags & O_ACCMODE) == O_RDWR;
    if (e->offset < t.size) {
        old_len = e->old_len < t.size - e->offset ? e->old_len : t.size - e->offset;
    }
    if (e->len == 0 && old_len == 0) {
        return 0;
    }
    moves = e->len != old_len && e->offset + old_len < t.size;
    if (moves && e->len > old_len && e->len - old_len > INT64_MAX - t.size) {
        return -EFBIG;
    }
    reach = moves ? t.size - old_len + e->len : e->offset + e->len;
    done = e->len > 0 || moves ? vj_edit_check_limit(e, reach) : 0;
    if (done == 0 && ((e->flags & O_DIRECT) != 0 || (moves && !t.can_read))) {
        done = tail_reopen(&t, moves);
    }
    if (done == 0) {
        e->at = e->offset;
        done = replace(&t, old_len, moves);
    }
    if (t.own_fd) {
        close(t.fd);
    }
    return done;
}
