/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * kill-call.c - fsck.varjfs that dies of SIGKILL at its N-th call that changes SOURCE
 *
 * Linked in front of what fsck.varjfs consists of, with --wrap.  VARJFS_KILL_COUNTER
 * names a file of eight bytes in which the processes count their calls, VARJFS_KILL_AT
 * says before which one they die (0: never).  With VARJFS_KILL_EAGER each commit is
 * durable at once, as if the engine's thread were fast: then the calls before the N-th
 * have all left their mark.  Without it they are in memory until a flush, and most of
 * them are lost.
 */
#include "file/file.h"
#include "store/store.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t *counter; /* shared with the processes that this one forks */
static uint64_t kill_at;
static bool is_eager;

/* Before main: the program gives rights away. */
__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("VARJFS_KILL_COUNTER"), *at = getenv("VARJFS_KILL_AT");
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *map = MAP_FAILED;

    if (fd >= 0) {
        map = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    counter = map == MAP_FAILED ? NULL : map;
    kill_at = at == NULL ? 0 : strtoull(at, NULL, 10);
    is_eager = getenv("VARJFS_KILL_EAGER") != NULL;
}

static void count(void)
{
    if (counter != NULL && __atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST) == kill_at) {
        kill(getpid(), SIGKILL);
    }
}

int __real_vj_meta_flush(VjMeta *m);
int __wrap_vj_meta_flush(VjMeta *m);
int __wrap_vj_meta_flush(VjMeta *m)
{
    count();
    return __real_vj_meta_flush(m);
}

int __real_vj_meta_run(VjMeta *m, VjRunFlags flags, VjTxnBody *body, void *opaque);
int __wrap_vj_meta_run(VjMeta *m, VjRunFlags flags, VjTxnBody *body, void *opaque);
int __wrap_vj_meta_run(VjMeta *m, VjRunFlags flags, VjTxnBody *body, void *opaque)
{
    int rc;

    count();
    rc = __real_vj_meta_run(m, flags, body, opaque);
    return rc == 0 && is_eager ? __real_vj_meta_flush(m) : rc;
}

int __real_vj_store_remove(VjStore *s, uint64_t id, VjLoc loc);
int __wrap_vj_store_remove(VjStore *s, uint64_t id, VjLoc loc);
int __wrap_vj_store_remove(VjStore *s, uint64_t id, VjLoc loc)
{
    count();
    return __real_vj_store_remove(s, id, loc);
}

int __real_vj_store_flush(VjStore *s);
int __wrap_vj_store_flush(VjStore *s);
int __wrap_vj_store_flush(VjStore *s)
{
    count();
    return __real_vj_store_flush(s);
}

int __real_vj_store_flush_removes(VjStore *s);
int __wrap_vj_store_flush_removes(VjStore *s);
int __wrap_vj_store_flush_removes(VjStore *s)
{
    count();
    return __real_vj_store_flush_removes(s);
}

int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    count();
    return __real_renameat(from_dir, from, to_dir, to);
}

int __real_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags)
{
    count();
    return __real_unlinkat(dir, name, flags);
}

int __real_mkdirat(int dir, const char *name, mode_t mode);
int __wrap_mkdirat(int dir, const char *name, mode_t mode);
int __wrap_mkdirat(int dir, const char *name, mode_t mode)
{
    count();
    return __real_mkdirat(dir, name, mode);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    count();
    return __real_fsync(fd);
}
