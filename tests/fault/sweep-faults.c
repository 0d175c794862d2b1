/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sweep-faults.c - the kinds of faults, and the two layers that no wrapper reaches
 *
 * System calls of the store and of the metadata engine, and the allocators that may fail:
 * the functions below stand in front of the C library's and GLib's.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sweep.h"

#define STORE(name, options)                                                             \
    {                                                                                    \
        name, LAYER_STORE, options, 0, 0                                                 \
    }
#define META(name, options)                                                              \
    {                                                                                    \
        name, LAYER_META, options, 0, 0                                                  \
    }

const Kind sweep_kinds[] = {
    STORE("store-EIO", "fail=#"),
    STORE("store-EIO-8", "fail=#,times=8"),
    STORE("store-EIO-all", "fail=#,times=0"),
    STORE("store-ENOSPC", "fail=#,errno=ENOSPC,kinds=put+flush"),
    STORE("store-ENOSPC-all", "fail=#,errno=ENOSPC,kinds=put+flush,times=0"),
    STORE("store-answer-lost",
          "fail=#,errno=ETIMEDOUT,kinds=put+remove+flush,after,times=2"),
    STORE("store-flush-3", "fail=#,kinds=flush,times=3"),
    STORE("store-damaged", "damage=#"),
    STORE("store-damaged-5", "damage=#,times=5"),
    STORE("store-short", "short=#"),
    STORE("store-absent", "fail=#,errno=ENOENT,kinds=get"),
    META("meta-EIO", "fail=#"),
    META("meta-EIO-40", "fail=#,times=40"),
    META("meta-EIO-all", "fail=#,times=0"),
    META("meta-ENOSPC", "fail=#,errno=ENOSPC,kinds=put+begin+commit"),
    META("meta-ENOSPC-all", "fail=#,errno=ENOSPC,kinds=put+begin+commit,times=0"),
    META("meta-ENOMEM", "fail=#,errno=ENOMEM,kinds=get+put+del+next+begin+commit"),
    META("meta-flush-3", "fail=#,kinds=flush,times=3"),
    META("meta-conflict", "conflict=#"),
    META("meta-conflict-3", "conflict=#,times=3"),
    META("meta-conflict-all", "conflict=#,times=0"),
    {"sys-EIO", LAYER_SYS, NULL, EIO, 1},
    {"sys-EIO-6", LAYER_SYS, NULL, EIO, 6},
    {"sys-ENOSPC", LAYER_SYS, NULL, ENOSPC, 1},
    {"sys-ENOSPC-all", LAYER_SYS, NULL, ENOSPC, 0},
    {"sys-EMFILE-4", LAYER_SYS, NULL, EMFILE, 4},
    {"sys-EFBIG-all", LAYER_SYS, NULL, EFBIG, 0},
    {"alloc", LAYER_ALLOC, NULL, ENOMEM, 1},
    {"alloc-10", LAYER_ALLOC, NULL, ENOMEM, 10},
    {"alloc-all", LAYER_ALLOC, NULL, ENOMEM, 0},
};
const size_t sweep_kind_count = G_N_ELEMENTS(sweep_kinds);

/* Set by one thread while others count: the layer comes last. */
static int armed_layer = -1;
static int armed_error;
static bool is_paused;
static uint64_t armed_number, armed_times, call_count, hit_count;

void sweep_faults_arm(const Kind *kind, uint64_t number)
{
    sweep_faults_clear();
    __atomic_store_n(&call_count, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&armed_error, kind->error, __ATOMIC_RELAXED);
    __atomic_store_n(&armed_number, number, __ATOMIC_RELAXED);
    __atomic_store_n(&armed_times, kind->times, __ATOMIC_RELAXED);
    __atomic_store_n(&armed_layer, (int)kind->layer, __ATOMIC_RELEASE);
}

void sweep_faults_clear(void)
{
    __atomic_store_n(&armed_layer, -1, __ATOMIC_RELEASE);
}

void sweep_faults_pause(bool paused)
{
    __atomic_store_n(&is_paused, paused, __ATOMIC_RELEASE);
}

uint64_t sweep_faults_calls(void)
{
    return __atomic_load_n(&call_count, __ATOMIC_RELAXED);
}

uint64_t sweep_faults_hits(void)
{
    return __atomic_load_n(&hit_count, __ATOMIC_RELAXED) + vj_store_fault_hits() +
           vj_meta_fault_hits();
}

static bool is_hit(Layer layer)
{
    uint64_t number, first, times;

    if (__atomic_load_n(&armed_layer, __ATOMIC_ACQUIRE) != (int)layer ||
        __atomic_load_n(&is_paused, __ATOMIC_ACQUIRE)) {
        return false;
    }
    number = __atomic_add_fetch(&call_count, 1, __ATOMIC_RELAXED);
    first = __atomic_load_n(&armed_number, __ATOMIC_RELAXED);
    times = __atomic_load_n(&armed_times, __ATOMIC_RELAXED);
    if (first == 0 || number < first || (times > 0 && number - first >= times)) {
        return false;
    }
    __atomic_add_fetch(&hit_count, 1, __ATOMIC_RELAXED);
    return true;
}

/* Which errors a call can have at all. */
enum { CAN_FILL = 1, CAN_OPEN = 2 };

static bool sys_fails(unsigned can)
{
    int error = __atomic_load_n(&armed_error, __ATOMIC_RELAXED);

    if (((error == ENOSPC || error == EFBIG) && !(can & CAN_FILL)) ||
        (error == EMFILE && !(can & CAN_OPEN)) || !is_hit(LAYER_SYS)) {
        return false;
    }
    errno = error;
    return true;
}

/* ---- system calls ------------------------------------------------------------------ */

/* config.h may make the plain names those of 64-bit offsets; the engine calls the
 * others. */
#ifdef _FILE_OFFSET_BITS
#define PLAIN(type, name, params, args)                                                  \
    type plain_##name params __asm__(#name);                                             \
    type plain_##name params                                                             \
    {                                                                                    \
        return name args;                                                                \
    }
PLAIN(ssize_t, pwrite, (int fd, const void *src, size_t len, off_t at),
      (fd, src, len, at))
PLAIN(int, ftruncate, (int fd, off_t len), (fd, len))
#endif

ssize_t pwrite(int fd, const void *src, size_t len, off_t at)
{
    return sys_fails(CAN_FILL) ? -1 : syscall(SYS_pwrite64, fd, src, len, at);
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t at)
{
    return sys_fails(CAN_FILL) ? -1 : syscall(SYS_pwritev, fd, iov, count, at, 0);
}

/* Of the engine alone. */
ssize_t writev(int fd, const struct iovec *iov, int count)
{
    return sys_fails(CAN_FILL) ? -1 : syscall(SYS_writev, fd, iov, count);
}

ssize_t pread64(int fd, void *dst, size_t len, off64_t at)
{
    return sys_fails(0) ? -1 : syscall(SYS_pread64, fd, dst, len, at);
}

int ftruncate(int fd, off_t len)
{
    return sys_fails(0) ? -1 : (int)syscall(SYS_ftruncate, fd, len);
}

int fallocate(int fd, int mode, off_t at, off_t len)
{
    return sys_fails(CAN_FILL) ? -1 : (int)syscall(SYS_fallocate, fd, mode, at, len);
}

/* Nothing here has to reach a device. */
int fsync(int fd)
{
    (void)fd;
    return sys_fails(0) ? -1 : 0;
}

int fdatasync(int fd)
{
    (void)fd;
    return sys_fails(0) ? -1 : 0;
}

int syncfs(int fd)
{
    (void)fd;
    return sys_fails(0) ? -1 : 0;
}

int openat64(int fd, const char *name, int flags, ...)
{
    mode_t mode = 0;

    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list more;

        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    if (sys_fails(CAN_OPEN | (flags & O_CREAT ? CAN_FILL : 0))) {
        return -1;
    }
    return (int)syscall(SYS_openat, fd, name, flags | O_LARGEFILE, mode);
}

int mkdirat(int fd, const char *name, mode_t mode)
{
    return sys_fails(CAN_FILL) ? -1 : (int)syscall(SYS_mkdirat, fd, name, mode);
}

int unlinkat(int fd, const char *name, int flags)
{
    return sys_fails(0) ? -1 : (int)syscall(SYS_unlinkat, fd, name, flags);
}

/* ---- allocators -------------------------------------------------------------------- */

gpointer(g_try_malloc)(gsize len)
{
    return len == 0 || is_hit(LAYER_ALLOC) ? NULL : malloc(len);
}

gpointer(g_try_malloc0)(gsize len)
{
    return len == 0 || is_hit(LAYER_ALLOC) ? NULL : calloc(1, len);
}

gpointer(g_try_malloc_n)(gsize count, gsize len)
{
    size_t all;

    return __builtin_mul_overflow(count, len, &all) ? NULL : (g_try_malloc)(all);
}

gpointer(g_try_malloc0_n)(gsize count, gsize len)
{
    size_t all;

    return __builtin_mul_overflow(count, len, &all) ? NULL : (g_try_malloc0)(all);
}

gpointer(g_try_realloc)(gpointer old, gsize len)
{
    if (len == 0) {
        free(old);
        return NULL;
    }
    return is_hit(LAYER_ALLOC) ? NULL : realloc(old, len);
}

gpointer(g_try_realloc_n)(gpointer old, gsize count, gsize len)
{
    size_t all;

    return __builtin_mul_overflow(count, len, &all) ? NULL : (g_try_realloc)(old, all);
}

/* VjBuf's.  GLib's slices ask too, for less than their alignment, and end the program. */
int posix_memalign(void **out, size_t align, size_t len)
{
    if (align == VJ_BUF_ALIGN && len >= align && is_hit(LAYER_ALLOC)) {
        return ENOMEM;
    }
    *out = aligned_alloc(align, (len + align - 1) / align * align);
    return *out == NULL ? ENOMEM : 0;
}
