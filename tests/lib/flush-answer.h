/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * flush-answer.h - how a VjFlushWait was answered, in tests of one thread
 */
#ifndef VJ_TEST_FLUSH_ANSWER_H
#define VJ_TEST_FLUSH_ANSWER_H

#include "meta/meta.h"

typedef struct FlushAnswer {
    VjFlushWait wait; /* .done = count_answer */
    unsigned times;
    int rc; /* the last time */
} FlushAnswer;

static inline void count_answer(VjFlushWait *w, int rc)
{
    FlushAnswer *a = (FlushAnswer *)w;

    a->times++;
    a->rc = rc;
}

#endif
