/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * common.h - what the model tests in process and through a mount choose alike
 */
#ifndef VJ_TEST_MODEL_COMMON_H
#define VJ_TEST_MODEL_COMMON_H

#include "shadow.h"

/* A number of the command line; exits with 2 when @text is none, or out of range. */
uint64_t option_number(const char *text, uint64_t least, uint64_t most);

/* An operation: one of a table of them, as often as its weight says. */
typedef struct Weight {
    unsigned weight;
    bool grows; /* the file */
} Weight;

/* The index of a weight; @stride bytes lie between two of them. */
size_t any_of(VjRng *rng, const Weight *weights, size_t count, size_t stride);

/* Where to work on a file whose last change ended at @last: ends, borders, anywhere. */
size_t any_offset_of(VjRng *rng, const Shadow *s, size_t last);

/* A value of user.varjfs.transform.  A build may lack it. */
const char *any_transform(VjRng *rng);

#endif
