/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * told.h - what the owner of a VjFlushWait was told, in tests of one thread
 */
#ifndef VJ_TEST_TOLD_H
#define VJ_TEST_TOLD_H

#include "meta/meta.h"

typedef struct Told {
    VjFlushWait wait; /* .done = tell */
    unsigned times;
    int rc; /* the last time */
} Told;

static inline void tell(VjFlushWait *w, int rc)
{
    Told *t = (Told *)w;

    t->times++;
    t->rc = rc;
}

#endif
