/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * examine.h - is this what a power cut may leave?
 *
 * Threads: one at a time; in a process that has opened no volume before.
 */
#ifndef VJ_CRASH_EXAMINE_H
#define VJ_CRASH_EXAMINE_H

#include "history.h"

typedef struct Examine {
    const char *source; /* the state */
    const History *history;
    CutAt at;
    uint64_t seed;
    bool in_the_making; /* mkfs has not returned: there may be no file system yet */
    /* An empty directory that gets a copy of all files; NULL: none. */
    const char *export_to;
    /* out: */
    uint64_t leaks, pending, objects, names, bytes, unreadable;
    unsigned told;
    GString *said; /* what is wrong; empty: nothing */
} Examine;

/* Everything is done, also after a finding; true: nothing is wrong. */
bool examine(Examine *e);

#endif
