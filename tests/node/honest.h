/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * honest.h - a client that does its work beside the attacks, and counts
 *
 * A thread of its own puts objects, reads them back, compares, removes them, and asks the
 * role meta for the time.
 */
#ifndef VJ_TESTS_NODE_HONEST_H
#define VJ_TESTS_NODE_HONEST_H

#include "rpc/rpc.h"

typedef struct Honest Honest;

/* @credentials: a reference is taken. */
Honest *honest_start(const char *address, VjCredentials *credentials);
/* Waits until it has got @more answers than now; false: it got none for two minutes. */
bool honest_wait(Honest *h, uint64_t more);
uint64_t honest_answers(Honest *h);
/* Requests that failed, or were answered with other bytes; each is printed. */
uint64_t honest_failures(Honest *h);
/* The longest time that one took since the last call of this. */
int64_t honest_slowest_us(Honest *h);
void honest_stop(Honest *h);

#endif
