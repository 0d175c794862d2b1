/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * path.c - from inode numbers back to names, for messages
 *
 * One pass over all names keeps those of directories and of the inodes that are asked
 * for.  Records that do not decode are skipped: vj_fsck_names reports them.
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

typedef struct ReadNames {
    GHashTable *wanted, *names;
} ReadNames;

static int read_names_body(VjTxn *txn, void *opaque)
{
    const ReadNames *r = opaque;
    VjScan scan;

    g_hash_table_remove_all(r->names);
    vj_scan_begin(&scan, txn, VJ_SPACE_DENTRY, VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        VjDentry d;

        if (vj_dentry_decode(scan.key, scan.value, &d) == 0 &&
            (d.type == DT_DIR || g_hash_table_contains(r->wanted, &d.ino))) {
            keep_name(r->names, scan.key, &d);
        }
    }
    return scan.error;
}

static int read_names(VjVolume *volume, GHashTable *wanted, GHashTable *names)
{
    ReadNames r = {.wanted = wanted, .names = names};

    return vj_meta_view(vj_volume_meta(volume), read_names_body, &r);
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

/* ---- names in the log -------------------------------------------------------------- */

/* A look through all names costs what it costs: at most this share of the time goes
 * there. */
#define LOOK_SHARE 20
/* Names may change; and those that are kept at once. */
#define SHOWN_US ((int64_t)10 * 1000 * 1000)
#define SHOWN_MOST 64u

/* A name of @ino in the directory *dir, or (0) in any, which is *dir then.  -ENOENT:
 * none. */
static int name_of(VjTxn *txn, uint64_t ino, uint64_t *dir, GString *path)
{
    uint8_t prefix[8];
    VjScan scan;

    vj_be64_set(prefix, *dir);
    vj_scan_begin(&scan, txn, VJ_SPACE_DENTRY,
                  *dir != 0 ? vj_slice(prefix, sizeof prefix) : VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        VjDentry d;

        if (scan.key.len >= 8 && vj_dentry_decode(scan.key, scan.value, &d) == 0 &&
            d.ino == ino) {
            *dir = vj_be64_get(scan.key.data);
            g_string_prepend_len(path, (const char *)scan.key.data + 8,
                                 (gssize)(scan.key.len - 8));
            g_string_prepend_c(path, '/');
            return 0;
        }
    }
    return scan.error < 0 ? scan.error : -ENOENT;
}

typedef struct FindPath {
    uint64_t ino;
    GString *path;
} FindPath;

/* Puts the path of @ino before @path. */
static int prepend_path(VjTxn *txn, uint64_t ino, GString *path)
{
    int r = 0;

    for (unsigned depth = 0; r == 0 && ino != VJ_INO_ROOT; depth++) {
        VjInode inode;
        uint64_t dir = 0;

        r = depth < PATH_DEPTH_MAX ? vj_inode_get(txn, ino, &inode) : -ELOOP;
        if (r == 0) {
            dir = S_ISDIR(inode.mode) ? inode.parent : 0;
            r = name_of(txn, ino, &dir, path);
            ino = dir;
        }
    }
    return r;
}

static int find_path_body(VjTxn *txn, void *opaque)
{
    const FindPath *f = opaque;

    g_string_truncate(f->path, 0);
    return prepend_path(txn, f->ino, f->path);
}

/* One path of @ino, by the parents that directories know; owned, NULL: none is found. */
static char *find_path(VjFs *fs, uint64_t ino)
{
    g_autoptr(GString) path = g_string_new(NULL);
    FindPath f = {.ino = ino, .path = path};
    int r = vj_meta_view(fs->meta, find_path_body, &f);

    return r == 0 ? g_strdup(path->len > 0 ? path->str : "/") : NULL;
}

/* Under the lock: the path is known (copied), or it is not the time to look for it. */
static bool is_shown(VjFs *fs, uint64_t ino, char **out) VJ_REQUIRES(fs->lock)
{
    int64_t now = vj_clock_mono_us();
    const char *shown;

    if (now - fs->shown_us > SHOWN_US || g_hash_table_size(fs->shown) >= SHOWN_MOST) {
        g_hash_table_remove_all(fs->shown);
    }
    shown = g_hash_table_lookup(fs->shown, &ino);
    *out = g_strdup(shown);
    if (shown != NULL ||
        (fs->shown_us != 0 && now - fs->shown_us < fs->look_us * LOOK_SHARE)) {
        return true;
    }
    fs->shown_us = now;
    return false;
}

char *vj_fs_shown_name(VjFs *fs, uint64_t ino)
{
    g_autofree char *path = NULL;
    int64_t begin = vj_clock_mono_us();
    bool shown;

    vj_mutex_lock(&fs->lock);
    shown = is_shown(fs, ino, &path);
    vj_mutex_unlock(&fs->lock);
    if (!shown) {
        path = find_path(fs, ino);
        vj_mutex_lock(&fs->lock);
        fs->look_us = vj_clock_mono_us() - begin;
        g_hash_table_replace(fs->shown, g_memdup2(&ino, sizeof ino),
                             g_strdup(path == NULL ? "" : path));
        vj_mutex_unlock(&fs->lock);
    }
    return path == NULL || path[0] == '\0'
               ? g_strdup_printf("inode %" G_GUINT64_FORMAT, ino)
               : g_strdup_printf("inode %" G_GUINT64_FORMAT " (%s)", ino, path);
}

/* ---- names of what is busy --------------------------------------------------------- */

typedef struct BusyNames {
    const VjFsBusy *busy;
    unsigned count;
    GHashTable *places; /* inode → Name, its own place in a directory */
    GHashTable *paths;  /* inode → path, owned; "": it has none */
} BusyNames;

/* One name of each, in one pass. */
static int busy_places(VjTxn *txn, const BusyNames *b)
{
    VjScan scan;

    vj_scan_begin(&scan, txn, VJ_SPACE_DENTRY, VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        VjDentry d;
        Name *n;

        if (scan.key.len < 8 || vj_dentry_decode(scan.key, scan.value, &d) != 0) {
            continue;
        }
        n = g_hash_table_lookup(b->places, &d.ino);
        if (n != NULL && n->name == NULL) {
            n->parent = vj_be64_get(scan.key.data);
            n->name = g_strndup((const char *)scan.key.data + 8, scan.key.len - 8);
        }
    }
    return scan.error;
}

static int busy_names_body(VjTxn *txn, void *opaque)
{
    const BusyNames *b = opaque;
    int r;

    g_hash_table_remove_all(b->places);
    g_hash_table_remove_all(b->paths);
    for (unsigned i = 0; i < b->count; i++) {
        Name *n = g_new0(Name, 1);

        n->ino = b->busy[i].id;
        g_hash_table_replace(b->places, &n->ino, n);
    }
    r = busy_places(txn, b);
    for (unsigned i = 0; r == 0 && i < b->count; i++) {
        const Name *n = g_hash_table_lookup(b->places, &b->busy[i].id);
        g_autoptr(GString) path = g_string_new(NULL);

        if (n->ino == VJ_INO_ROOT) {
            g_string_assign(path, "/");
        } else if (n->name != NULL) {
            g_string_printf(path, "/%s", n->name);
            /* Above it damaged records may be in the way. */
            r = prepend_path(txn, n->parent, path);
            if (r == -ENOENT || r == -ELOOP || r == -EBADMSG) {
                g_string_prepend(path, "...");
                r = 0;
            }
        }
        g_hash_table_replace(b->paths, g_memdup2(&n->ino, sizeof n->ino),
                             g_strdup(path->str));
    }
    return r;
}

/* Under the lock.  True: the caller is to look for them now. */
static bool begin_look(VjFs *fs, const VjFsBusy *busy, unsigned count)
    VJ_REQUIRES(fs->lock)
{
    int64_t now = vj_clock_mono_us();
    bool is_known = now - fs->busy_us < SHOWN_US;

    for (unsigned i = 0; is_known && i < count; i++) {
        is_known = g_hash_table_contains(fs->busy_paths, &busy[i].id);
    }
    if (fs->busy_us != 0 &&
        (is_known || now - fs->busy_us < fs->busy_look_us * LOOK_SHARE)) {
        return false;
    }
    fs->busy_us = now;
    return true;
}

static void look(VjFs *fs, const VjFsBusy *busy, unsigned count)
{
    BusyNames b = {
        .busy = busy,
        .count = count,
        .places = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, name_free),
        .paths = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free)};
    int64_t begun_us = vj_clock_mono_us();
    int r = vj_meta_view(fs->meta, busy_names_body, &b);

    g_hash_table_unref(b.places);
    vj_mutex_lock(&fs->lock);
    fs->busy_look_us = vj_clock_mono_us() - begun_us;
    if (r == 0) { /* else those of before stay until the next look */
        GHashTable *before = fs->busy_paths;

        fs->busy_paths = b.paths;
        b.paths = before;
    }
    vj_mutex_unlock(&fs->lock);
    g_hash_table_unref(b.paths);
}

void vj_fs_busy_paths(VjFs *fs, const VjFsBusy *busy, unsigned count,
                      VjFsBusyVisit *visit, void *opaque)
{
    bool begins;

    vj_mutex_lock(&fs->lock);
    begins = begin_look(fs, busy, count);
    vj_mutex_unlock(&fs->lock);
    if (begins) {
        look(fs, busy, count);
    }
    for (unsigned i = 0; i < count; i++) {
        g_autofree char *path = NULL;

        vj_mutex_lock(&fs->lock);
        path = g_strdup(g_hash_table_lookup(fs->busy_paths, &busy[i].id));
        vj_mutex_unlock(&fs->lock);
        visit(opaque, &busy[i], path == NULL || *path == '\0' ? NULL : path);
    }
}
