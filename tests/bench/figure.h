/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * figure.h - how the programs of this directory say what they measured
 *
 * One line for each thing measured, with a value for each round:
 *
 *     figure<TAB>NAME<TAB>UNIT<TAB>VALUE VALUE …[<TAB>lower|higher<TAB>BASELINE<TAB>AIM]
 *
 * BASELINE is the name of another figure of the same program; AIM is what the ratio is to
 * be, such as ">= 0.9", or empty.  tests/lib/vjbench.py reads these lines; "vjbench.py
 * run PROGRAM" shows them.
 */
#ifndef VJ_TESTS_BENCH_FIGURE_H
#define VJ_TESTS_BENCH_FIGURE_H

#include <stdio.h>

/* @better: "lower" or "higher"; @baseline and @aim may be NULL. */
static inline void figure_against(const char *name, const char *unit,
                                  const double *values, int count, const char *better,
                                  const char *baseline, const char *aim)
{
    printf("figure\t%s\t%s\t", name, unit);
    for (int i = 0; i < count; i++) {
        printf("%s%.6g", i > 0 ? " " : "", values[i]);
    }
    if (better != NULL) {
        printf("\t%s\t%s\t%s", better, baseline != NULL ? baseline : "",
               aim != NULL ? aim : "");
    }
    printf("\n");
    fflush(stdout);
}

static inline void figure_print(const char *name, const char *unit, const double *values,
                                int count)
{
    figure_against(name, unit, values, count, NULL, NULL, NULL);
}

#endif
