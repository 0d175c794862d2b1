/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * semantics.c - templates, and what can be had
 *
 * A weaker value is always given by what is stronger.  What cannot be given is refused
 * here, before a batch is made; varjfs-semantics(7) has the same table.
 */
#include "client-private.h"

/* As far as version 0.1 of the structure goes; later members are behind. */
#define LEAST_SIZE ((size_t)(sizeof(size_t) + 8))

typedef struct Template {
    const char *name;
    struct varjfs_semantics values;
} Template;

static const Template templates[] = {
    {"default",
     {.atomicity = VARJFS_ATOMICITY_NONE,
      .concurrency = VARJFS_CONCURRENCY_OVERLAPPING,
      .consistency = VARJFS_CONSISTENCY_IMMEDIATE,
      .ordering = VARJFS_ORDERING_SEMI,
      .persistency = VARJFS_PERSISTENCY_EVENTUAL,
      .safety = VARJFS_SAFETY_NETWORK,
      .security = VARJFS_SECURITY_NONE}},
    {"posix",
     {.atomicity = VARJFS_ATOMICITY_OPERATION,
      .concurrency = VARJFS_CONCURRENCY_OVERLAPPING,
      .consistency = VARJFS_CONSISTENCY_IMMEDIATE,
      .ordering = VARJFS_ORDERING_STRICT,
      .persistency = VARJFS_PERSISTENCY_EVENTUAL,
      .safety = VARJFS_SAFETY_NETWORK,
      .security = VARJFS_SECURITY_NONE}},
    {"temporary",
     {.atomicity = VARJFS_ATOMICITY_NONE,
      .concurrency = VARJFS_CONCURRENCY_NONE,
      .consistency = VARJFS_CONSISTENCY_SESSION,
      .ordering = VARJFS_ORDERING_SEMI,
      .persistency = VARJFS_PERSISTENCY_NONE,
      .safety = VARJFS_SAFETY_NONE,
      .security = VARJFS_SECURITY_NONE}},
    {"checkpoint",
     {.atomicity = VARJFS_ATOMICITY_NONE,
      .concurrency = VARJFS_CONCURRENCY_NON_OVERLAPPING,
      .consistency = VARJFS_CONSISTENCY_EVENTUAL,
      .ordering = VARJFS_ORDERING_SEMI,
      .persistency = VARJFS_PERSISTENCY_IMMEDIATE,
      .safety = VARJFS_SAFETY_STORAGE,
      .security = VARJFS_SECURITY_NONE}},
};

int varjfs_semantics_template(const char *name, struct varjfs_semantics *out)
{
    if (name == NULL || out == NULL || out->size < LEAST_SIZE) {
        return -EINVAL;
    }
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        if (strcmp(name, templates[i].name) == 0) {
            *out = templates[i].values;
            out->size = LEAST_SIZE;
            return 0;
        }
    }
    return -EINVAL;
}

/* Each value is one of its enumeration. */
static bool has_meaning(const struct varjfs_semantics *s)
{
    return s->reserved == 0 && s->atomicity <= VARJFS_ATOMICITY_BATCH &&
           s->concurrency <= VARJFS_CONCURRENCY_OVERLAPPING &&
           s->consistency <= VARJFS_CONSISTENCY_IMMEDIATE &&
           s->ordering <= VARJFS_ORDERING_STRICT &&
           s->persistency <= VARJFS_PERSISTENCY_IMMEDIATE &&
           s->safety <= VARJFS_SAFETY_STORAGE && s->security <= VARJFS_SECURITY_STRICT;
}

static const char *what_is_refused(const struct varjfs_semantics *s)
{
    if (s->security == VARJFS_SECURITY_STRICT) {
        return "security strict: the daemon does not compare who owns an object";
    }
    if (s->safety != VARJFS_SAFETY_NONE) {
        return NULL;
    }
    if (s->persistency == VARJFS_PERSISTENCY_IMMEDIATE) {
        return "persistency immediate with safety none: a batch that is not waited for "
               "is not durable when it returns";
    }
    if (s->consistency == VARJFS_CONSISTENCY_IMMEDIATE) {
        return "consistency immediate with safety none: others do not see yet what was "
               "only sent";
    }
    return NULL;
}

int varjfs_semantics_check(const struct varjfs_semantics *s, const char **why)
{
    const char *refused = NULL;

    if (why != NULL) {
        *why = NULL;
    }
    if (s == NULL || !vjc_is_structure(s, LEAST_SIZE, LEAST_SIZE) || !has_meaning(s)) {
        return -EINVAL;
    }
    refused = what_is_refused(s);
    if (why != NULL) {
        *why = refused;
    }
    return refused != NULL ? -ENOTSUP : 0;
}

int vjc_semantics_copy(const struct varjfs_semantics *s, struct varjfs_semantics *out)
{
    int rc;

    if (s == NULL) {
        out->size = LEAST_SIZE;
        return varjfs_semantics_template("default", out);
    }
    rc = varjfs_semantics_check(s, NULL);
    if (rc == 0) {
        *out = *s;
        out->size = LEAST_SIZE;
    }
    return rc;
}
