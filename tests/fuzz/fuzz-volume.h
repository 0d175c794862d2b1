/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fuzz-volume.h - a whole volume for a target that needs one
 *
 * In a directory of its own, in memory where there is /dev/shm: what an input does to it
 * must not wait for a device.
 */
#ifndef VJ_TEST_FUZZ_FUZZ_VOLUME_H
#define VJ_TEST_FUZZ_FUZZ_VOLUME_H

#include "fsck/fsck.h"
#include "fuzz.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/fs.h"

/*
 * The threads of a volume that was closed may still be on their way out, and what they
 * keep for themselves is nobody's then: that is no leak, but looks like one.  (The name
 * is the sanitizer's.)
 */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

static const VjCaller fuzz_root = {.umask = 022};

/* An empty directory; owned (fuzz_dir_remove). */
static inline char *fuzz_dir_new(void)
{
    const char *where = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : g_get_tmp_dir();
    char *path = g_build_filename(where, "varjfs-fuzz-XXXXXX", NULL);

    g_assert(g_mkdtemp(path) != NULL);
    return path;
}

static inline int fuzz_remove_entry(const char *path, const struct stat *st, int type,
                                    struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

/* Takes @path. */
static inline void fuzz_dir_remove(char *path)
{
    g_assert(nftw(path, fuzz_remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0);
    g_free(path);
}

static inline void fuzz_volume_make(const char *dir, const char *options)
{
    g_autoptr(GError) error = NULL;
    VjVolumeMake how = {.source = dir, .options = options};

    if (!vj_volume_make(&how, &error)) {
        g_error("%s", error->message);
    }
}

static inline VjVolume *fuzz_volume_open(const char *dir, bool check)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = dir, .check = check, .workers = 1, .read_only = check};
    VjVolume *v;

    if (!vj_volume_open(&how, &v, &error)) {
        g_error("%s", error->message);
    }
    return v;
}

static inline void fuzz_volume_say(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "check: %s\n", text);
}

/* The volume is closed and has nothing wrong with it. */
static inline void fuzz_volume_expect_clean(const char *dir)
{
    VjVolume *v = fuzz_volume_open(dir, true);
    VjCheckReport report = {0};

    g_assert(vj_fsck_contents(v, true, fuzz_volume_say, NULL, &report) == 0);
    g_assert(vj_fsck_names(v, fuzz_volume_say, NULL, &report) == 0);
    g_assert(report.problems == 0 && report.leaks == 0 && report.lost == 0);
    g_assert(vj_volume_close(v) == 0);
}

/* ---- a volume as it was ------------------------------------------------------------ */

static GHashTable *fuzz_kept; /* path → GBytes: each file of it */

static inline int fuzz_keep_file(const char *path, const struct stat *st, int type,
                                 struct FTW *where)
{
    char *text;
    gsize len;

    (void)st;
    (void)where;
    if (type == FTW_F && strstr(path, "lock") == NULL) {
        g_assert(g_file_get_contents(path, &text, &len, NULL));
        g_hash_table_insert(fuzz_kept, g_strdup(path), g_bytes_new_take(text, len));
    }
    return 0;
}

/* Remembers all files below @dir, except those that are locked and empty. */
static inline void fuzz_keep(const char *dir)
{
    fuzz_kept = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                      (GDestroyNotify)g_bytes_unref);
    g_assert(nftw(dir, fuzz_keep_file, 16, FTW_PHYS) == 0);
}

static inline void fuzz_kept_clear(void)
{
    g_clear_pointer(&fuzz_kept, g_hash_table_unref);
}

static inline int fuzz_remove_foreign(const char *path, const struct stat *st, int type,
                                      struct FTW *where)
{
    (void)st;
    (void)where;
    return type == FTW_F && !g_hash_table_contains(fuzz_kept, path) ? remove(path) : 0;
}

/* Objects are never written twice, so that those that are there are right. */
static inline void fuzz_put_back(const char *dir)
{
    GHashTableIter iter;
    gpointer path, bytes;

    g_assert(nftw(dir, fuzz_remove_foreign, 16, FTW_PHYS) == 0);
    g_hash_table_iter_init(&iter, fuzz_kept);
    while (g_hash_table_iter_next(&iter, &path, &bytes)) {
        gsize len;
        const void *data = g_bytes_get_data(bytes, &len);
        bool is_object = strstr(path, "/objects/") != NULL;
        struct stat st;

        if (!is_object || stat(path, &st) != 0 || (gsize)st.st_size != len) {
            g_autofree char *parent = g_path_get_dirname(path);
            VJ_AUTO_FD fd = -1;

            g_assert(g_mkdir_with_parents(parent, 0700) == 0);
            fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
            g_assert(fd >= 0 && vj_fd_write_all(fd, data, len) == 0);
        }
    }
}

#endif
