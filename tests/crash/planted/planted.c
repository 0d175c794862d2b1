/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * planted.c - varjfs with a bug that a power cut shows, and nothing else
 *
 * Linked in front of what varjfs consists of, with --wrap; VARJFS_PLANTED says which bug:
 *
 *   late-flush       metadata are made durable before the objects that they name
 *   remap-unflushed  fragments go before the objects made of them are durable
 *   nosync           MDB_NOSYNC: LMDB's commits are not synced
 *   no-rename-rule   a rename over a file does not commit the content of the new one
 *                    first
 *   no-error         a sync succeeds, whatever the device says of the metadata
 *   sync-again       where a sync failed it is made again, and the second one believed
 *   log-unsynced     records of the redo log are not synced
 *   log-id           every redo log has the same id: records of an earlier one count
 *   erase-unsynced   what is removed goes before the zeroes over it are durable
 *   no-fsync         fsync of a file does nothing: all is sound, and what was promised is
 *                    not there
 */
#include "fs/fs.h"
#include "meta/redo-private.h"

#include <lmdb.h>
#include <sys/prctl.h>
#include <unistd.h>

int __real_vj_store_flush(VjStore *s);
int __wrap_vj_store_flush(VjStore *s);
int __real_vj_meta_flush(VjMeta *m);
int __wrap_vj_meta_flush(VjMeta *m);
void __real_vj_meta_flush_join(VjMeta *m, VjFlushWait *w);
void __wrap_vj_meta_flush_join(VjMeta *m, VjFlushWait *w);
int __real_vj_file_commit(VjFile *f);
int __wrap_vj_file_commit(VjFile *f);
int __real_mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode);
int __wrap_mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode);
int __real_vj_fs_sync(VjHandle *h);
int __wrap_vj_fs_sync(VjHandle *h);
void __real_vj_fs_sync_join(VjHandle *h, VjFlushWait *w);
void __wrap_vj_fs_sync_join(VjHandle *h, VjFlushWait *w);

int __real_vj_redo_append(VjRedo *log, const VjRedoRun *run, uint8_t *bytes);
int __wrap_vj_redo_append(VjRedo *log, const VjRedoRun *run, uint8_t *bytes);
int __real_vj_redo_begin(int dir_fd, uint64_t bytes, VjRedo **out);
int __wrap_vj_redo_begin(int dir_fd, uint64_t bytes, VjRedo **out);
void __real_vj_random_bytes(void *dst, size_t len);
void __wrap_vj_random_bytes(void *dst, size_t len);
int __real_vj_fd_overwrite(int fd, uint64_t bytes);
int __wrap_vj_fd_overwrite(int fd, uint64_t bytes);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_syncfs(int fd);
int __wrap_syncfs(int fd);

static gpointer unflushed; /* VjStore */
static __thread bool is_unsynced, in_begin;

static bool has_bug(const char *name)
{
    return g_strcmp0(g_getenv("VARJFS_PLANTED"), name) == 0;
}

/* In the thread that makes objects of fragments. */
static bool in_remapper(void)
{
    char name[16];

    return prctl(PR_GET_NAME, name, 0, 0, 0) == 0 && strcmp(name, "varjfs-remap") == 0;
}

int __wrap_vj_store_flush(VjStore *s)
{
    if (has_bug("remap-unflushed") && in_remapper()) {
        return 0;
    }
    if (!has_bug("late-flush")) {
        return __real_vj_store_flush(s);
    }
    g_atomic_pointer_set(&unflushed, s);
    return 0;
}

int __wrap_vj_meta_flush(VjMeta *m)
{
    int r = __real_vj_meta_flush(m);
    VjStore *s = g_atomic_pointer_get(&unflushed);

    if (has_bug("no-error")) {
        return 0;
    }
    return r == 0 && s != NULL ? __real_vj_store_flush(s) : r;
}

void __wrap_vj_meta_flush_join(VjMeta *m, VjFlushWait *w)
{
    if (has_bug("late-flush") || has_bug("no-error")) {
        w->done(w, __wrap_vj_meta_flush(m));
    } else {
        __real_vj_meta_flush_join(m, w);
    }
}

int __wrap_vj_file_commit(VjFile *f)
{
    return has_bug("no-rename-rule") ? 0 : __real_vj_file_commit(f);
}

int __wrap_mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode)
{
    return __real_mdb_env_open(env, path, has_bug("nosync") ? flags | MDB_NOSYNC : flags,
                               mode);
}

int __wrap_vj_fs_sync(VjHandle *h)
{
    return has_bug("no-fsync") ? 0 : __real_vj_fs_sync(h);
}

void __wrap_vj_fs_sync_join(VjHandle *h, VjFlushWait *w)
{
    if (has_bug("no-fsync")) {
        w->done(w, 0);
    } else {
        __real_vj_fs_sync_join(h, w);
    }
}

int __wrap_vj_redo_append(VjRedo *log, const VjRedoRun *run, uint8_t *bytes)
{
    int r;

    is_unsynced = has_bug("log-unsynced");
    r = __real_vj_redo_append(log, run, bytes);
    is_unsynced = false;
    return r;
}

int __wrap_vj_redo_begin(int dir_fd, uint64_t bytes, VjRedo **out)
{
    int r;

    in_begin = has_bug("log-id");
    r = __real_vj_redo_begin(dir_fd, bytes, out);
    in_begin = false;
    return r;
}

void __wrap_vj_random_bytes(void *dst, size_t len)
{
    if (in_begin) {
        memset(dst, 7, len);
    } else {
        __real_vj_random_bytes(dst, len);
    }
}

int __wrap_vj_fd_overwrite(int fd, uint64_t bytes)
{
    int r;

    is_unsynced = has_bug("erase-unsynced");
    r = __real_vj_fd_overwrite(fd, bytes);
    is_unsynced = false;
    return r;
}

int __wrap_fdatasync(int fd)
{
    int r = is_unsynced ? 0 : __real_fdatasync(fd);

    return r < 0 && has_bug("sync-again") ? __real_fdatasync(fd) : r;
}

int __wrap_syncfs(int fd)
{
    int r = __real_syncfs(fd);

    return r < 0 && has_bug("sync-again") ? __real_syncfs(fd) : r;
}
