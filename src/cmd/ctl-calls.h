/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-calls.h - what the daemon says of its calls by kind (VARJFS_TEXT_CALLS), and how
 * that is shown
 */
#ifndef VJ_CMD_CTL_CALLS_H
#define VJ_CMD_CTL_CALLS_H

#include "cmd/ctl.h"

typedef struct VjCtlCalls {
    char *group, *kind; /* owned */
    VjCallSums sums;
} VjCtlCalls;

/* All kinds, in the order of the daemon; owned.  NULL after a message. */
GArray *vj_ctl_calls(const VjCtl *ctl, const char *path, int fd);

/* The value of "NAME=VALUE", one of the fields between spaces; owned.  NULL: there is
 * none. */
char *vj_ctl_field(char *const *fields, const char *name);
bool vj_ctl_field_number(char *const *fields, const char *name, uint64_t *out);

/* A time for people, "12.3us", "4.5ms"; "-": none. */
char *vj_ctl_duration(uint64_t ns);
/* The call of rank @permille/1000, never above the longest; 0: none. */
uint64_t vj_ctl_rank_ns(const VjCallSums *sums, unsigned permille);

/* Of kinds that were called, a table for each group. */
void vj_ctl_calls_print_text(const GArray *calls);
/* Members of an object, without the first comma: "request": {"lookup": {…}, …}, … */
void vj_ctl_calls_print_json(const GArray *calls);
/* @labels: what stands first between the braces. */
void vj_ctl_calls_print_prometheus(const GArray *calls, const char *labels);

#endif
