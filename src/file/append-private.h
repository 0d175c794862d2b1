/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * append-private.h - one append that comes in several parts, in any order
 *
 * A direct write(2) at the end comes from the kernel as many requests at the same time.
 * Where the end is only this room knows for certain, so the offset of a part says nothing
 * but which of the parts it stands behind.  A part goes to the end of the file, or in
 * front of those parts that follow it and were faster.  So no byte that another caller
 * has written is overwritten, and none is missing between.
 *
 * All under the file's lock.
 */
#ifndef VJ_FILE_APPEND_PRIVATE_H
#define VJ_FILE_APPEND_PRIVATE_H

#include "base/base.h"

/* Pieces of an append that are known at a time; beyond that the oldest is forgotten. */
#define VJ_APPEND_RUNS 64u

/* Parts that follow one another, in the append and in the file. */
typedef struct VjAppendRun {
    uint64_t from, to; /* in the append: as the parts are numbered */
    uint64_t at;       /* in the file */
    uint64_t came;     /* the last of its parts, among all parts */
} VjAppendRun;

typedef struct VjAppend {
    uint64_t who;    /* the number of the append whose parts these are; 0: none */
    unsigned active; /* parts of it that are under way */
    bool was_cut;    /* the file became shorter since it began */
    bool has_failed; /* a part of it was refused: */
    uint64_t failed; /* the lowest of those */
    uint64_t parts;  /* that have been placed */
    unsigned count;
    VjAppendRun runs[VJ_APPEND_RUNS]; /* rising */
} VjAppend;

/* A part of the append of @who comes.  False: another append is under way. */
bool vj_append_enter(VjAppend *a, uint64_t who);
void vj_append_leave(VjAppend *a, uint64_t from, bool has_failed);
/* Where it goes, in a file of @size bytes.  Forgets an earlier append whose numbers come
 * again. */
uint64_t vj_append_place(VjAppend *a, uint64_t from, uint64_t len, uint64_t size);
/* It went to @at; vj_append_changed has been called. */
void vj_append_placed(VjAppend *a, uint64_t from, uint64_t len, uint64_t at);
/* Any change of the file: @old_len bytes at @at became @len. */
void vj_append_changed(VjAppend *a, uint64_t at, uint64_t old_len, uint64_t len);
/*
 * Once after a failure: the append is to be undone from @from on.  [*at, *at + *len) is
 * what there is of that part of it; *len 0: nothing, or it does not stand together.
 * False: @from is not where an append that has failed began.
 */
bool vj_append_undo(VjAppend *a, uint64_t from, uint64_t *at, uint64_t *len);

#endif
