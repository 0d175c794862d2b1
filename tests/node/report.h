/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * report.h - results of a program that attacks a node, and what it sees of the node
 *
 * Threads: one.
 */
#ifndef VJ_TESTS_NODE_REPORT_H
#define VJ_TESTS_NODE_REPORT_H

#include "base/base.h"

/* The process that is watched; 0: none, and what is seen of it is 0. */
void report_watch(int pid);
void report(bool ok, const char *name);
/* The number of results; what main() returns. */
int report_end(void);

/* Resident memory of the process; its peak since report_forget_peak. */
uint64_t report_memory_kib(bool peak);
void report_forget_peak(void);
unsigned report_sockets(void);

#endif
