/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * common.h - what the model tests in process and through a mount choose alike
 */
#ifndef VJ_TEST_MODEL_COMMON_H
#define VJ_TEST_MODEL_COMMON_H

#include "shadow.h"

/* An option of the command line, and where its value goes: one of the pointers is set. */
typedef struct ModelOption {
    const char *name;  /* without the dashes */
    const char *value; /* its name in the usage; NULL: there is none */
    uint64_t *number;
    unsigned *count;
    uint64_t least, most; /* of both */
    const char **text;    /* borrowed from the command line */
    bool *flag;
    bool is_off; /* the option clears the flag */
} ModelOption;

/* Exits with 2, and the usage, when there is anything else, or a number that does not
 * fit.  Returns the options as they stand then, for running the same again; owned. */
char *options_parse(int argc, char **argv, const ModelOption *options, size_t count);
void options_usage(const ModelOption *options, size_t count) G_GNUC_NORETURN;

/* An operation: one of a table of them, as often as its weight says. */
typedef struct Weight {
    unsigned weight;
    bool grows; /* the file */
} Weight;

/* The index of a weight; @stride bytes lie between two of them. */
size_t any_of(VjRng *rng, const Weight *weights, size_t count, size_t stride);

/* Where to work on a file whose last change ended at @last: ends, borders, anywhere. */
size_t any_offset_of(VjRng *rng, const Shadow *s, size_t last);

/* What this process has in memory that is no file's.  Aborts where the kernel does not
 * say it. */
uint64_t memory_kib(void);

/* A value of user.varjfs.transform.  A build may lack it. */
const char *any_transform(VjRng *rng);

#endif
