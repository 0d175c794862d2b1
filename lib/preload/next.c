/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * next.c - the C library's own functions: dlsym(RTLD_NEXT), once for each name
 */
#include "next.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum Name {
    FALLOCATE,
    FALLOCATE64,
    READ,
    WRITE,
    PREAD,
    PREAD64,
    PWRITE,
    PWRITE64,
    NAME_COUNT
} Name;

static const char *const names[NAME_COUNT] = {
    [FALLOCATE] = "fallocate", [FALLOCATE64] = "fallocate64",
    [READ] = "read",           [WRITE] = "write",
    [PREAD] = "pread",         [PREAD64] = "pread64",
    [PWRITE] = "pwrite",       [PWRITE64] = "pwrite64",
};

/* Addresses; 0: not looked up.  Two threads that look at once find the same. */
static _Atomic uintptr_t found[NAME_COUNT];

/*
 * What a name is when no library behind this one has it: the system call.  Where a word
 * has 32 bits, a 64-bit argument is a pair of them in the machine's order; some machines
 * begin such a pair at an even argument, and there the C library has all the names.
 */
#if defined(__LP64__) || defined(__x86_64__)
#define WORDS(value) (value)
#elif __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define WORDS(value) (long)(value), (long)((value) >> 32)
#else
#define WORDS(value) (long)((value) >> 32), (long)(value)
#endif

static int system_fallocate64(int fd, int mode, int64_t offset, int64_t len)
{
    return (int)syscall(SYS_fallocate, fd, mode, WORDS(offset), WORDS(len));
}

static int system_fallocate(int fd, int mode, long offset, long len)
{
    return system_fallocate64(fd, mode, offset, len);
}

static ssize_t system_read(int fd, void *dst, size_t len)
{
    return syscall(SYS_read, fd, dst, len);
}

static ssize_t system_write(int fd, const void *src, size_t len)
{
    return syscall(SYS_write, fd, src, len);
}

static ssize_t system_pread64(int fd, void *dst, size_t len, int64_t offset)
{
    return syscall(SYS_pread64, fd, dst, len, WORDS(offset));
}

static ssize_t system_pread(int fd, void *dst, size_t len, long offset)
{
    return system_pread64(fd, dst, len, offset);
}

static ssize_t system_pwrite64(int fd, const void *src, size_t len, int64_t offset)
{
    return syscall(SYS_pwrite64, fd, src, len, WORDS(offset));
}

static ssize_t system_pwrite(int fd, const void *src, size_t len, long offset)
{
    return system_pwrite64(fd, src, len, offset);
}

static uintptr_t next(Name name, uintptr_t otherwise)
{
    uintptr_t address = atomic_load_explicit(&found[name], memory_order_acquire);

    if (address == 0) {
        address = (uintptr_t)dlsym(RTLD_NEXT, names[name]);
        if (address == 0) {
            address = otherwise;
        }
        atomic_store_explicit(&found[name], address, memory_order_release);
    }
    return address;
}

VjFallocate *vj_next_fallocate(void)
{
    return (VjFallocate *)next(FALLOCATE, (uintptr_t)system_fallocate);
}

VjFallocate64 *vj_next_fallocate64(void)
{
    return (VjFallocate64 *)next(FALLOCATE64, (uintptr_t)system_fallocate64);
}

VjRead *vj_next_read(void)
{
    return (VjRead *)next(READ, (uintptr_t)system_read);
}

VjWrite *vj_next_write(void)
{
    return (VjWrite *)next(WRITE, (uintptr_t)system_write);
}

VjPread *vj_next_pread(void)
{
    return (VjPread *)next(PREAD, (uintptr_t)system_pread);
}

VjPread64 *vj_next_pread64(void)
{
    return (VjPread64 *)next(PREAD64, (uintptr_t)system_pread64);
}

VjPwrite *vj_next_pwrite(void)
{
    return (VjPwrite *)next(PWRITE, (uintptr_t)system_pwrite);
}

VjPwrite64 *vj_next_pwrite64(void)
{
    return (VjPwrite64 *)next(PWRITE64, (uintptr_t)system_pwrite64);
}

__attribute__((constructor)) static void look_up_all(void)
{
    (void)vj_next_fallocate();
    (void)vj_next_fallocate64();
    (void)vj_next_read();
    (void)vj_next_write();
    (void)vj_next_pread();
    (void)vj_next_pread64();
    (void)vj_next_pwrite();
    (void)vj_next_pwrite64();
}
