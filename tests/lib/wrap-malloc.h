/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wrap-malloc.h - memory of the code under test, each allocation of which can fail
 *
 * Linked with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign,
 * --wrap=free.  Behind what the test has of its own: bool fails(void), which says whether
 * this call does, with errno set; is_counting; and live, pieces of memory that were taken
 * while is_counting and not given back.
 */
#ifndef VJ_TESTS_LIB_WRAP_MALLOC_H
#define VJ_TESTS_LIB_WRAP_MALLOC_H

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
int __real_posix_memalign(void **out, size_t align, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
int __wrap_posix_memalign(void **out, size_t align, size_t size);
void __wrap_free(void *memory);

static void *counted(void *memory)
{
    live += is_counting && memory != NULL ? 1 : 0;
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    void *memory;

    if (fails()) {
        return NULL;
    }
    memory = __real_realloc(old, size);
    return old == NULL ? counted(memory) : memory;
}

int __wrap_posix_memalign(void **out, size_t align, size_t size)
{
    int rc = fails() ? ENOMEM : __real_posix_memalign(out, align, size);

    counted(rc == 0 ? *out : NULL);
    return rc;
}

void __wrap_free(void *memory)
{
    live -= is_counting && memory != NULL ? 1 : 0;
    __real_free(memory);
}

#endif
