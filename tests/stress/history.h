/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * history.h - what was called and what came back, and whether one order explains it
 *
 * A file is a sequence of words.  Each word that an operation writes carries the number
 * of the operation and its index in it, so that whoever reads it knows where it comes
 * from; a hole is operation 0.  A directory is a table of names.
 *
 * A history is the list of all events of one file (or directory) between two moments when
 * nobody did anything.  history_check looks for an order of its events that keeps to what
 * is `before` what in time, and in which each event returns what it returned.
 */
#ifndef VJ_TEST_STRESS_HISTORY_H
#define VJ_TEST_STRESS_HISTORY_H

#include <stdio.h>

#include "base/base.h"

#define NO_SIZE UINT64_MAX
#define NAMES 8u

/* Words next to each other of one operation: index, index + 1, ...  Zeroes all have index
 * 0. */
typedef struct Run {
    uint32_t op;
    uint32_t index;
    uint32_t len;
} Run;

#define OP_HOLE 0u
#define OP_POOL 1u /* the file that copies come from */
#define OP_FIRST 2u
#define OP_BROKEN UINT32_MAX /* a word that nobody wrote so */

typedef enum Kind {
    EDIT,     /* old_len words at `at` become data */
    WRITE,    /* data at `at`; copy_file_range, too */
    APPEND,   /* data at the end */
    TRUNCATE, /* to `at` words */
    STORE,    /* one word through a mapping; beyond the end: nothing */
    READ,     /* one request: all or nothing of everything */
    SLICE,    /* what came through the page cache of one page, see history_slice */
    LOOK_UP,  /* name a is inode `inode`, 0: nothing */
    CREATE,   /* a, which is inode `inode` then */
    UNLINK,   /* a */
    RENAME,   /* a to b */
    LINK,     /* `inode`, which is open, also as b */
    EXCHANGE, /* a and b */
} Kind;

typedef struct Event {
    Kind kind;
    uint32_t thread;
    uint64_t called_ns, returned_ns;
    bool has_returned; /* else: killed; it has happened before returned_ns or never */
    bool to_the_end;   /* a read was longer than what it brought */
    bool is_weak;      /* a SLICE: not to be ordered among reads */
    bool end_is_loose; /* a SLICE: zeroes may stand behind the end */
    bool is_mapped;    /* a SLICE: anything may stand there */
    int error;         /* of an operation on names */
    uint64_t at, old_len, len, size_after; /* words */
    unsigned part;   /* a write through the cache is one for each page, in order */
    uint32_t op;     /* of the data that it writes */
    uint32_t index;  /* of the first word of it */
    const Run *seen; /* by a read */
    unsigned seen_count;
    unsigned a, b; /* names */
    uint64_t inode;
    /* A SLICE: whatever returned before this must be seen; a LINK: opened. */
    uint64_t since_ns;
    GArray *loose_ops; /* a SLICE: operations of which it may see any part */
    GArray *late_ops;  /* a SLICE: stores that it need not see yet */
} Event;

typedef struct State {
    uint64_t size; /* words */
    GArray *runs;  /* of Run, as few as possible */
    uint64_t inodes[NAMES];
} State;

void state_init(State *s);
void state_copy(State *dst, const State *src); /* @dst is initialised */
void state_clear(State *s);
void state_replace(State *s, uint64_t at, uint64_t old_len, Run with);
/* Applies @e, or false: what @e returned cannot be explained here. */
bool state_apply(State *s, const Event *e);
void state_print(const State *s, FILE *out);
/* Where @e, a read, saw something else. */
void state_print_differences(const State *s, const Event *e, FILE *out);

/* Adds a word to runs. */
void runs_add(Run *runs, unsigned *count, uint32_t op, uint32_t index);
void event_print(const Event *e, uint64_t origin_ns, FILE *out);

typedef enum Verdict { EXPLAINED, UNEXPLAINED, UNDECIDED } Verdict;

typedef struct Found {
    uint64_t states;         /* looked at */
    unsigned explained_most; /* events of the longest order that was found */
    GArray *missing;         /* of unsigned: the events that were left over then */
    State state;             /* and the state there */
} Found;

/*
 * history_check - is there an order?
 *
 * @first       the state at the beginning
 * @states_max  gives up with UNDECIDED after so many
 * @found       out: for a message; found_clear()
 */
Verdict history_check(const State *first, const Event *events, unsigned count,
                      uint64_t states_max, Found *found);
void found_clear(Found *found);

/*
 * history_slices - what a read through the page cache says, page by page
 *
 * @read    the whole read, of kind READ
 * @others  the operations of the same file, among which are all that it may have seen
 * @phase   bytes before word 0 in the file
 * @sizes   what the kernel knows of the size may be too large, or a page may have been
 *          cleared behind a smaller one: zeroes are let pass, and the end
 * @strict  nothing writes through the page cache meanwhile: a page is of one moment not
 *          before the last change that returned before the read was called
 * @keep    gets the arrays that the slices point into
 * @out     of Event: gets slices
 */
void history_slices(const Event *read, const Event *others, unsigned count,
                    unsigned phase, bool sizes, bool strict, GPtrArray *keep,
                    GArray *out);

#endif
