/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * planted.c - varjfs with a bug that a power cut shows, and nothing else
 *
 * Linked in front of what varjfs consists of, with --wrap; VARJFS_PLANTED says which bug:
 *
 *   late-flush       metadata are made durable before the objects that they name
 *   nosync           MDB_NOSYNC: LMDB's commits are not synced
 *   no-rename-rule   a rename over a file does not commit the content of the new one first
 *   no-error         a sync succeeds, whatever the device says of the metadata
 *   sync-again       where a sync failed it is made again, and the second one believed
 *   no-fsync         fsync of a file does nothing: all is sound, and what was promised is not there
 */
#include "fs/fs.h"

#include <lmdb.h>
#include <unistd.h>

int __real_vj_store_flush(VjStore *s);
int __wrap_vj_store_flush(VjStore *s);
int __real_vj_meta_flush(VjMeta *m);
int __wrap_vj_meta_flush(VjMeta *m);
int __real_vj_file_commit(VjFile *f);
int __wrap_vj_file_commit(VjFile *f);
int __real_mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode);
int __wrap_mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode);
int __real_vj_fs_sync(VjHandle *h);
int __wrap_vj_fs_sync(VjHandle *h);

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_syncfs(int fd);
int __wrap_syncfs(int fd);

static gpointer unflushed; /* VjStore */

static bool has_bug(const char *name)
{
    return g_strcmp0(g_getenv("VARJFS_PLANTED"), name) == 0;
}

int __wrap_vj_store_flush(VjStore *s)
{
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

int __wrap_fdatasync(int fd)
{
    int r = __real_fdatasync(fd);

    return r < 0 && has_bug("sync-again") ? __real_fdatasync(fd) : r;
}

int __wrap_syncfs(int fd)
{
    int r = __real_syncfs(fd);

    return r < 0 && has_bug("sync-again") ? __real_syncfs(fd) : r;
}
