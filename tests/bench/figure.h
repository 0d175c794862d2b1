/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * figure.h - how the programs of this directory say what they measured
 *
 * One line for each thing measured, with a value for each round:
 *
 *     figure<TAB>NAME<TAB>UNIT<TAB>VALUE VALUE …
 *
 * tests/lib/vjbench.py reads these lines (run_figures); which of them is another's baseline,
 * and what is to be reached, is said in scripts/bench.d.
 */
#ifndef VJ_TESTS_BENCH_FIGURE_H
#define VJ_TESTS_BENCH_FIGURE_H

#include <stdio.h>

static inline void figure_print(const char *name, const char *unit, const double *values,
                                int count)
{
    printf("figure\t%s\t%s\t", name, unit);
    for (int i = 0; i < count; i++) {
        printf("%s%.6g", i > 0 ? " " : "", values[i]);
    }
    printf("\n");
    fflush(stdout);
}

#endif
