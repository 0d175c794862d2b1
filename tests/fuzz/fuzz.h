/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fuzz.h - what a fuzz target is
 *
 * A target is one function that takes any bytes and aborts when an invariant of the
 * decoder breaks.  With --enable-fuzzers libFuzzer calls it; else replay.c does, with the
 * files of tests/fuzz/corpus/NAME and mutations of them.
 */
#ifndef VJ_TEST_FUZZ_FUZZ_H
#define VJ_TEST_FUZZ_FUZZ_H

#include "base/base.h"

/* Returns 0.  The name and the type are libFuzzer's. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* How many mutations of each file replay.c tries: a target whose inputs take long has
 * few. */
extern const int fuzz_mutations;
#define FUZZ_MUTATIONS(count_) const int fuzz_mutations = (count_)

/* What the rooms say of damage goes nowhere: an input is nothing but that. */
static inline void fuzz_quiet(void)
{
    static gsize done;

    if (g_once_init_enter(&done)) {
        g_assert(vj_log_open("fuzz", "/dev/null", VJ_LOG_ERROR, NULL));
        g_once_init_leave(&done, 1);
    }
}

/* One line for a user: no line break, nothing that a terminal obeys, not without end. */
static inline void fuzz_expect_line(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        g_assert((unsigned char)*at >= ' ' && *at != '\177');
    }
    g_assert(*text != '\0' && strlen(text) < 4096);
}

#endif
