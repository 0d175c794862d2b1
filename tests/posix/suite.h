/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* suite.h - between main.c and those that it calls by name */
#ifndef SUITE_H
#define SUITE_H

/* In the topic's process: where its lines go. */
void suite_begin(const char *topic, int out);

/* readonly.c: makes a tree here; checks it once this is read-only; takes it away. */
void readonly_prepare(void);
void readonly_check(void);
void readonly_clear(void);

#endif
