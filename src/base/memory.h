/* SPDX-License-Identifier: LGPL-3.0-or-later */
#ifndef VJ_BASE_MEMORY_H
#define VJ_BASE_MEMORY_H
/*
 * memory.h - what the allocator keeps of freed memory
 *
 * glibc keeps freed memory in arenas, one for each of a few threads and up to eight a
 * CPU.  Buffers of many sizes that come and go in many threads leave them full of holes:
 * after 20 GB of random writes 1.4 GiB were resident and 33 MiB in use.  Budgets of a
 * program say nothing then, so it looks from time to time and gives back what it does not
 * use.  With another allocator nothing is given back.
 */
#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* As g_malloc0, for what is made and freed all the time: glibc's calloc passes over the
 * small pieces that its malloc keeps for each thread. */
static inline void *vj_malloc0(size_t bytes)
{
    return memset(g_malloc(bytes), 0, bytes);
}

/* @bytes more (fewer, below 0) are in use that a room has mapped itself, without malloc.
 * Threads: any. */
void vj_memory_count_mapped(gssize bytes);

typedef struct VjMemoryKeeper VjMemoryKeeper;

/* Fewer arenas than glibc's default, which is for programs of many CPUs; and what buffers
 * of up to @buffer_most bytes give back is there for the next ones.  Before there are
 * threads. */
void vj_memory_init(size_t buffer_most);

/* Belongs to the process that makes it, and to one thread at a time.  Opens a file of
 * /proc now, so it works in a sandbox; where that fails it gives nothing back and says so
 * once. */
VjMemoryKeeper *vj_memory_keeper_new(void);
void vj_memory_keeper_free(VjMemoryKeeper *k);

/* When resident anonymous memory exceeds what is in use by more than @spare_bytes, and by
 * as much more than after the last time, gives what is free to the system.  The look
 * takes some 0.1 ms, the work milliseconds for each GiB.  True: it did. */
bool vj_memory_give_back(VjMemoryKeeper *k, size_t spare_bytes);

#endif
