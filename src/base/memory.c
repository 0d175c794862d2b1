/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* memory.c - what the allocator keeps of freed memory */
#include "base/base.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static gsize mapped_bytes; /* atomic */

void vj_memory_count_mapped(gssize bytes)
{
    (void)__atomic_fetch_add(&mapped_bytes, (gsize)bytes, __ATOMIC_RELAXED);
}

#if defined HAVE_MALLINFO2 && defined HAVE_MALLOC_TRIM
#include <malloc.h>

#define ARENAS_PER_CPU 2

struct VjMemoryKeeper {
    int statm_fd;       /* -1: there is no /proc */
    size_t floor_bytes; /* spare after the last time: stacks, rings, holes below a page */
};

void vj_memory_init(size_t buffer_most)
{
    /* A mapping of its own would be new pages each time, which cost more than what is
     * read into them.  What is aligned is a little longer. */
    size_t most = buffer_most + 2 * VJ_BUF_ALIGN;

    /* Another allocator in its place (a sanitizer's) has no arenas: nothing is lost by
     * that. */
    (void)mallopt(M_ARENA_MAX, ARENAS_PER_CPU * (int)g_get_num_processors());
    (void)mallopt(M_MMAP_THRESHOLD, (int)most);
    /* So much may be free at the end of an arena before it is given back at once: the
     * next buffers. */
    (void)mallopt(M_TRIM_THRESHOLD, (int)(2 * most));
}

VjMemoryKeeper *vj_memory_keeper_new(void)
{
    VjMemoryKeeper *k = g_new0(VjMemoryKeeper, 1);

    k->statm_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (k->statm_fd < 0) {
        vj_log_warn("/proc/self/statm: %s: freed memory is not given back",
                    g_strerror(errno));
    }
    return k;
}

void vj_memory_keeper_free(VjMemoryKeeper *k)
{
    if (k == NULL) {
        return;
    }
    if (k->statm_fd >= 0) {
        close(k->statm_fd);
    }
    g_free(k);
}

/* Resident anonymous bytes beyond what is in use. */
static size_t spare_now(const VjMemoryKeeper *k)
{
    struct mallinfo2 info = mallinfo2();
    size_t used = info.uordblks + info.hblkhd +
                  (size_t)__atomic_load_n(&mapped_bytes, __ATOMIC_RELAXED);
    size_t resident, shared, anonymous;
    char text[128];
    ssize_t n = pread(k->statm_fd, text, sizeof text - 1, 0);

    if (n <= 0) {
        return 0;
    }
    text[n] = '\0';
    if (sscanf(text, "%*u %zu %zu", &resident, &shared) != 2 || shared > resident) {
        return 0;
    }
    anonymous = (resident - shared) * (size_t)sysconf(_SC_PAGESIZE);
    return anonymous > used ? anonymous - used : 0;
}

bool vj_memory_give_back(VjMemoryKeeper *k, size_t spare_bytes)
{
    if (k->statm_fd < 0 || spare_now(k) <= k->floor_bytes + spare_bytes) {
        return false;
    }
    /* Whether it found a page to give is not looked at: the next call measures again. */
    (void)malloc_trim(0);
    k->floor_bytes = spare_now(k);
    return true;
}

#else

struct VjMemoryKeeper {
    char nothing;
};

void vj_memory_init(size_t buffer_most)
{
    (void)buffer_most;
}

VjMemoryKeeper *vj_memory_keeper_new(void)
{
    return g_new0(VjMemoryKeeper, 1);
}

void vj_memory_keeper_free(VjMemoryKeeper *k)
{
    g_free(k);
}

bool vj_memory_give_back(VjMemoryKeeper *k, size_t spare_bytes)
{
    (void)k;
    (void)spare_bytes;
    return false;
}

#endif
