/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * path.c - from inode numbers back to names, for messages of fsck
 *
 * One pass over all names keeps those of directories and of the inodes that are asked for.
 * Records that do not decode are skipped: vj_fs_check tells of them.
 */
#include <dirent.h>

#include "fs/fs-private.h"

/* Steps up from an inode: damaged directories may form a ring. */
#define PATH_DEPTH_MAX 4096u

typedef struct Name Name;
struct Name {
    uint64_t ino;
    uint64_t parent;
    Name *other; /* of the same inode, owned */
    char *name;
};

static void name_free(gpointer data)
{
    Name *n = data;

    while (n != NULL) {
        Name *other = n->other;

        g_free(n->name);
        g_free(n);
        n = other;
    }
}

/* @key is directory and name. */
static void keep_name(GHashTable *names, VjSlice key, const VjDentry *d)
{
    Name *n, *first = g_hash_table_lookup(names, &d->ino), *last = first;

    for (unsigned i = 1; last != NULL && last->other != NULL; i++) {
        last = last->other;
        if (i + 1 >= VJ_FS_PATHS_MOST) {
            return;
        }
    }
    n = g_new(Name, 1);
    *n = (Name){.ino = d->ino,
                .parent = vj_be64_get(key.data),
                .name = g_strndup((const char *)key.data + 8, key.len - 8)};
    if (last != NULL) {
        last->other = n;
    } else {
        g_hash_table_insert(names, &n->ino, n);
    }
}

static int read_names(VjVolume *volume, GHashTable *wanted, GHashTable *names)
{
    VJ_AUTO_READ_TXN *txn = NULL;
    VjSlice key, value;
    VjFsKey after = {.len = 0};
    int r = vj_meta_begin_read(vj_volume_meta(volume), &txn);

    while (r == 0 && (r = vj_txn_next(txn, VJ_SPACE_DENTRY, vj_fs_key_slice(&after), &key,
                                      &value)) == 0) {
        VjDentry d;

        if (vj_dentry_decode(key, value, &d) == 0 &&
            (d.type == DT_DIR || g_hash_table_contains(wanted, &d.ino))) {
            keep_name(names, key, &d);
        }
        if (key.len > sizeof after.bytes) {
            return -EBADMSG;
        }
        memcpy(after.bytes, key.data, key.len);
        after.len = key.len;
    }
    return r == -ENOENT ? 0 : r;
}

/* Owned.  What cannot be followed up to the root begins with "...". */
static char *path_of(GHashTable *names, const Name *n)
{
    GString *path = g_string_new(NULL);

    for (unsigned depth = 0;; depth++) {
        if (n == NULL || depth == PATH_DEPTH_MAX) {
            g_string_prepend(path, "...");
            break;
        }
        g_string_prepend(path, n->name);
        g_string_prepend_c(path, '/');
        if (n->parent == VJ_INO_ROOT) {
            break;
        }
        n = g_hash_table_lookup(names, &n->parent);
    }
    return g_string_free(path, FALSE);
}

static void visit_paths(GHashTable *names, uint64_t ino, VjFsPathVisit *visit,
                        void *opaque)
{
    const Name *n = g_hash_table_lookup(names, &ino);

    if (ino == VJ_INO_ROOT || n == NULL) {
        visit(opaque, ino, ino == VJ_INO_ROOT ? "/" : NULL);
        return;
    }
    for (; n != NULL; n = n->other) {
        g_autofree char *path = path_of(names, n);

        visit(opaque, ino, path);
    }
}

int vj_fs_find_paths(VjVolume *volume, const uint64_t *inodes, size_t count,
                     VjFsPathVisit *visit, void *opaque)
{
    g_autoptr(GHashTable) wanted = g_hash_table_new(g_int64_hash, g_int64_equal);
    g_autoptr(GHashTable) names =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, name_free);
    int r;

    for (size_t i = 0; i < count; i++) {
        g_hash_table_add(wanted, (gpointer)&inodes[i]);
    }
    r = read_names(volume, wanted, names);
    for (size_t i = 0; r == 0 && i < count; i++) {
        visit_paths(names, inodes[i], visit, opaque);
    }
    return r;
}
