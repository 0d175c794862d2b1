/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * shift.h - a write of bytes that stand in the file already, some way up or down
 */
#ifndef VARJFS_RWRITE_SHIFT_H
#define VARJFS_RWRITE_SHIFT_H

#include "rwrite-private.h"

/* Shorter writes are not looked at: an edit costs as much as they do. */
#define VJ_SHIFT_WRITE_LEAST ((size_t)64 << 10)
#define VJ_SHIFT_GUESSES_MAX 8u

typedef struct VjShiftWrite {
    int fd; /* open for reading and writing, on varjfs */
    const char *src;
    size_t len;
    uint64_t offset;      /* offset + len fits an off_t */
    bool moves_position;  /* write(2), not pwrite(2): offset is the descriptor's */
    unsigned guess_count; /* likely ways: above 0 up, below down */
    int64_t guesses[VJ_SHIFT_GUESSES_MAX];
    int64_t way; /* out: the last that was taken, or 0 */
} VjShiftWrite;

/*
 * True: the write was done; @result as of write(2), or -errno.  False: nothing has
 * happened and the caller writes.
 */
bool vj_shift_write(VjShiftWrite *w, int64_t *result);

#endif
