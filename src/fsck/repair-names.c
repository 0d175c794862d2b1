/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-names.c - fsck -y: names and inodes are made to agree
 *
 * Counts follow the names, never the other way round.  What has no name gets one in
 * /lost+found; what leads nowhere goes.
 *
 * Memory: a few words for each inode, as in check.c.
 */
#include "fsck/repair-names-private.h"

#define LOST_FOUND "lost+found"
/* Names of that kind that are tried before giving up: others may have them. */
#define LOST_FOUND_TRIES 1000u

/* ---- names against inodes ---------------------------------------------------------- */

typedef struct Seen {
    uint64_t ino;
    uint64_t names;   /* that lead to it */
    uint64_t entries; /* directories: names within */
    uint64_t subdirs; /* directories: names within that lead to directories */
    uint64_t last_cookie;
    uint64_t in; /* directories: the directory that names it */
    uint64_t parent;
    uint32_t mode;
    bool below_root;
    bool in_parent; /* that directory names it */
} Seen;

typedef struct Names {
    GHashTable *inodes; /* uint64_t* in Seen → Seen */
    GArray *nameless;   /* uint64_t */
    GArray *lists;      /* uint64_t: their access lists and modes do not agree */
    GArray *bare;       /* uint64_t: their access lists are to be removed */
} Names;

static Seen *seen_find(const Names *n, uint64_t ino)
{
    return g_hash_table_lookup(n->inodes, &ino);
}

static int list_inode(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    Names *n = opaque;
    VjInode inode;
    Seen *s;

    (void)r;
    if (key.len != 8 || vj_inode_decode(value, vj_repair_dir_of(key), &inode) < 0) {
        return 0;
    }
    s = g_new0(Seen, 1);
    s->ino = inode.ino;
    s->mode = inode.mode;
    s->parent = inode.parent;
    g_hash_table_insert(n->inodes, &s->ino, s);
    return 0;
}

static void remove_name(VjRepair *r, VjSlice key, const VjDentry *d)
{
    VjFsKey order;

    vj_fs_key_number(&order, vj_repair_dir_of(key), d->cookie);
    vj_repair_del(r, VJ_SPACE_DENTRY, key);
    vj_repair_del(r, VJ_SPACE_COOKIE, vj_fs_key_slice(&order));
}

/* A second name of a directory goes: ".." leads to one of them. */
static bool is_surplus(const Seen *target, uint64_t dir)
{
    return S_ISDIR(target->mode) && (target->ino == VJ_INO_ROOT || target->names > 0 ||
                                     (target->in_parent && dir != target->parent));
}

static int repair_target(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    const Names *n = opaque;
    g_autofree char *name = vj_repair_name_of(key);
    const Seen *dir;
    Seen *target;
    uint8_t record_key[8];
    VjSlice record;
    VjDentry d;

    if (vj_dentry_decode(key, value, &d) < 0) {
        return 0;
    }
    dir = seen_find(n, vj_repair_dir_of(key));
    target = seen_find(n, d.ino);
    if (target != NULL && target->parent == vj_repair_dir_of(key)) {
        target->in_parent = true;
    }
    if (dir == NULL || !S_ISDIR(dir->mode)) {
        if (vj_repair_get(r, VJ_SPACE_INODE,
                          vj_repair_ino_key(vj_repair_dir_of(key), record_key),
                          &record) == 0 &&
            dir == NULL) {
            return 0; /* a record of a newer version */
        }
        remove_name(r, key, &d);
        vj_repair_say(r,
                      "inode %" G_GUINT64_FORMAT ": it is no directory, and the name "
                      "\"%s\" within was removed from inode %" G_GUINT64_FORMAT,
                      vj_repair_dir_of(key), name, d.ino);
    } else if (target == NULL) {
        if (vj_repair_get(r, VJ_SPACE_INODE, vj_repair_ino_key(d.ino, record_key),
                          &record) == 0) {
            return 0;
        }
        remove_name(r, key, &d);
        vj_repair_say(r,
                      "directory %" G_GUINT64_FORMAT
                      ": the name \"%s\" led to inode %" G_GUINT64_FORMAT
                      ", of which nothing is left, and was removed",
                      vj_repair_dir_of(key), name, d.ino);
    } else if (vj_fs_type(target->mode) != d.type) {
        d.type = vj_fs_type(target->mode);
        vj_repair_put_dentry(r, vj_repair_dir_of(key), vj_repair_name_slice(key), &d);
        vj_repair_put_cookie(r, vj_repair_dir_of(key), vj_repair_name_slice(key), &d);
        vj_repair_say(r,
                      "directory %" G_GUINT64_FORMAT
                      ": the name \"%s\" says the right type again",
                      vj_repair_dir_of(key), name);
    }
    return 0;
}

/* Counts what is left, and takes second names from directories. */
static int count_name(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    const Names *n = opaque;
    Seen *dir = seen_find(n, vj_repair_dir_of(key)), *target;
    VjDentry d;

    if (dir == NULL || vj_dentry_decode(key, value, &d) < 0) {
        return 0;
    }
    target = seen_find(n, d.ino);
    if (target != NULL && is_surplus(target, dir->ino)) {
        g_autofree char *name = vj_repair_name_of(key);

        remove_name(r, key, &d);
        vj_repair_say(r,
                      "directory %" G_GUINT64_FORMAT
                      ": the name \"%s\" was removed, directory %" G_GUINT64_FORMAT
                      " has another",
                      dir->ino, name, d.ino);
        return 0;
    }
    dir->entries++;
    dir->last_cookie = MAX(dir->last_cookie, d.cookie);
    dir->subdirs += d.type == DT_DIR;
    if (target != NULL) {
        target->names++;
        target->in = dir->ino;
    }
    return 0;
}

/* Marks everything that can be walked to from the root; true: @s is below it. */
static bool mark_below(const Names *n, Seen *s)
{
    g_autoptr(GPtrArray) way = g_ptr_array_new();
    Seen *at = s;
    bool below;

    while (at != NULL && at->ino != VJ_INO_ROOT && !at->below_root && at->names > 0 &&
           way->len <= g_hash_table_size(n->inodes)) {
        g_ptr_array_add(way, at);
        at = seen_find(n, at->in);
    }
    below = at != NULL && (at->ino == VJ_INO_ROOT || at->below_root);
    for (guint i = 0; below && i < way->len; i++) {
        ((Seen *)way->pdata[i])->below_root = true;
    }
    return below;
}

/* The name of @ino in @dir, to be taken away. */
typedef struct Unname {
    uint64_t dir, ino;
} Unname;

static int unname(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    const Unname *u = opaque;
    VjDentry d;

    if (vj_repair_dir_of(key) == u->dir && vj_dentry_decode(key, value, &d) == 0 &&
        d.ino == u->ino) {
        remove_name(r, key, &d);
    }
    return 0;
}

/* Directories in a ring: one of each ring loses its name, and goes to lost+found. */
static int open_rings(VjRepair *r, Names *n)
{
    GHashTableIter iter;
    gpointer value;
    int rc = 0;

    g_hash_table_iter_init(&iter, n->inodes);
    while (rc == 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        Seen *s = value, *at = s;

        if (!S_ISDIR(s->mode) || s->ino == VJ_INO_ROOT || s->names == 0 ||
            mark_below(n, s)) {
            continue;
        }
        /* Up from it: either to one without a name, which will get one, or around. */
        for (guint i = 0; at != NULL && at->names > 0 && i < g_hash_table_size(n->inodes);
             i++) {
            at = seen_find(n, at->in);
        }
        if (at != NULL && at->names > 0) {
            Unname u = {.dir = at->in, .ino = at->ino};
            Seen *dir = seen_find(n, at->in);

            vj_repair_say(r,
                          "directory %" G_GUINT64_FORMAT ": it was within itself, and "
                          "was taken out",
                          at->ino);
            rc = vj_repair_each(r, VJ_SPACE_DENTRY, unname, &u);
            at->names = 0;
            dir->entries--;
            dir->subdirs--;
        }
    }
    return rc;
}

/* ---- counts and lost+found --------------------------------------------------------- */

typedef struct Adjust {
    const Seen *seen;
    bool is_orphan; /* out */
    bool changed, was_orphan, nameless;
} Adjust;

static int adjust_body(VjTxn *txn, void *opaque)
{
    Adjust *a = opaque;
    const Seen *s = a->seen;
    bool is_dir = S_ISDIR(s->mode);
    uint8_t key[12] = {0};
    VjInode inode, was;
    VjSlice value;
    int rc = vj_inode_get(txn, s->ino, &inode);

    if (rc < 0) {
        return rc;
    }
    was = inode;
    vj_be64_set(key, s->ino);
    rc = vj_txn_get(txn, VJ_SPACE_ORPHAN, vj_slice(key, sizeof key), &value);
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    a->was_orphan = rc == 0;
    a->nameless = s->names == 0 && s->ino != VJ_INO_ROOT && !a->was_orphan;
    inode.nlink = is_dir ? (uint32_t)(s->subdirs + 2) : (uint32_t)s->names;
    if (s->names == 0 && s->ino != VJ_INO_ROOT && a->was_orphan) {
        inode.nlink = 0;
    }
    if (is_dir) {
        inode.entry_count = s->entries;
        inode.next_cookie = MAX(inode.next_cookie, MAX(s->last_cookie, 2) + 1);
        inode.parent = s->ino == VJ_INO_ROOT ? VJ_INO_ROOT
                       : s->names > 0        ? s->in
                                             : inode.parent;
    }
    a->changed = inode.nlink != was.nlink || inode.entry_count != was.entry_count ||
                 inode.next_cookie != was.next_cookie || inode.parent != was.parent;
    rc = a->changed ? vj_inode_put(txn, &inode) : 0;
    if (rc == 0 && a->was_orphan && (s->names > 0 || s->ino == VJ_INO_ROOT)) {
        a->changed = true;
        rc = vj_orphan_del(txn, s->ino);
    }
    return rc;
}

static int adjust(VjRepair *r, Names *n, const Seen *s)
{
    Adjust a = {.seen = s};
    int rc =
        vj_meta_run(vj_volume_meta(vj_repair_volume(r)), VJ_RUN_RELEASE, adjust_body, &a);

    if (rc == 0 && a.changed && !a.nameless) {
        vj_repair_say(
            r, "inode %" G_GUINT64_FORMAT ": its links and names were counted anew",
            s->ino);
    }
    if (rc == 0 && a.nameless) {
        g_array_append_val(n->nameless, s->ino);
    }
    return rc;
}

typedef struct Attach {
    uint64_t ino;
    uint64_t dir; /* of lost+found */
    char name[64];
} Attach;

/* /lost+found, made when it is not there, under another name when that is no
 * directory. */
static int lost_found(VjTxn *txn, uint64_t *out)
{
    struct timespec now = vj_clock_real();
    VjInode root, made = {.mode = S_IFDIR | 0700,
                          .generation = 1,
                          .nlink = 2,
                          .uid = getuid(),
                          .gid = getgid(),
                          .atime = now,
                          .mtime = now,
                          .ctime = now,
                          .btime = now,
                          .parent = VJ_INO_ROOT,
                          .next_cookie = 3};
    char name[64] = LOST_FOUND;
    int rc = vj_inode_get(txn, VJ_INO_ROOT, &root);

    for (unsigned i = 2; rc == 0; i++) {
        VjDentry d;

        rc = vj_name_get(txn, VJ_INO_ROOT, name, &d);
        if (rc == 0 && d.type == DT_DIR) {
            *out = d.ino;
            return 0;
        }
        if (rc < 0 || i > LOST_FOUND_TRIES) {
            break;
        }
        g_snprintf(name, sizeof name, LOST_FOUND "-%u", i);
    }
    if (rc != -ENOENT) {
        return rc == 0 ? -EEXIST : rc;
    }
    rc = vj_ino_take(txn, &made.ino);
    if (rc == 0) {
        rc = vj_inode_put(txn, &made);
    }
    if (rc == 0) {
        root.nlink++;
        rc = vj_name_add(txn, &root, name, made.ino, DT_DIR);
    }
    *out = made.ino;
    return rc < 0 ? rc : vj_inode_put(txn, &root);
}

/* "inode-N", or "inode-N-2" when another inode has that name. */
static int free_name(VjTxn *txn, Attach *a)
{
    VjDentry d;
    int rc = 0;

    g_snprintf(a->name, sizeof a->name, "inode-%" G_GUINT64_FORMAT, a->ino);
    for (unsigned i = 2; i <= LOST_FOUND_TRIES; i++) {
        rc = vj_name_get(txn, a->dir, a->name, &d);
        if (rc < 0) {
            break;
        }
        g_snprintf(a->name, sizeof a->name, "inode-%" G_GUINT64_FORMAT "-%u", a->ino, i);
    }
    return rc == -ENOENT ? 0 : rc == 0 ? -EEXIST : rc;
}

static int attach_body(VjTxn *txn, void *opaque)
{
    Attach *a = opaque;
    VjInode dir, inode;
    int rc = lost_found(txn, &a->dir);

    if (rc == 0) {
        rc = free_name(txn, a);
    }
    if (rc == 0) {
        rc = vj_inode_get(txn, a->dir, &dir);
    }
    if (rc == 0) {
        rc = vj_inode_get(txn, a->ino, &inode);
    }
    if (rc < 0) {
        return rc;
    }
    rc = vj_name_add(txn, &dir, a->name, a->ino, vj_fs_type(inode.mode));
    if (S_ISDIR(inode.mode)) {
        inode.parent = a->dir;
        dir.nlink++;
    } else {
        inode.nlink = 1;
    }
    if (rc == 0) {
        rc = vj_inode_put(txn, &inode);
    }
    return rc < 0 ? rc : vj_inode_put(txn, &dir);
}

static int attach(VjRepair *r, uint64_t ino)
{
    Attach a = {.ino = ino};
    int rc =
        vj_meta_run(vj_volume_meta(vj_repair_volume(r)), VJ_RUN_RELEASE, attach_body, &a);

    if (rc == 0) {
        vj_repair_say(r,
                      "inode %" G_GUINT64_FORMAT ": it had no name, and is /" LOST_FOUND
                      "/%s now",
                      ino, a.name);
    }
    return rc;
}

/* Removes the attribute, an access list with what bare_body does in the same step. */
static void remove_xattr(VjRepair *r, Names *n, const Seen *s, VjSlice key,
                         const char *name)
{
    if (s != NULL && strcmp(name, VJ_ACL_ACCESS) == 0 && !S_ISLNK(s->mode)) {
        g_array_append_val(n->bare, s->ino);
    } else {
        vj_repair_del(r, VJ_SPACE_XATTR, key);
    }
}

static bool xattr_is_good(VjSlice key, VjSlice value)
{
    VjSlice plain;

    return vj_xattr_decode(key, value, &plain) == 0;
}

/* A list that is none, or that its inode cannot have, goes; one that says something else
 * than the mode follows the mode. */
static void repair_list(VjRepair *r, Names *n, const Seen *s, VjSlice key, VjSlice plain)
{
    g_autofree char *name = vj_repair_name_of(key);
    bool access = strcmp(name, VJ_ACL_ACCESS) == 0;
    VjAcl acl;

    if (vj_acl_decode(plain, &acl) < 0 || S_ISLNK(s->mode) ||
        (!access && !S_ISDIR(s->mode))) {
        remove_xattr(r, n, s, key, name);
        vj_repair_say(r, "inode %" G_GUINT64_FORMAT ": %s was not right and was removed",
                      s->ino, name);
    } else if (access && !vj_acl_agrees(&acl, s->mode)) {
        g_array_append_val(n->lists, s->ino);
    }
}

/* For who repairs: what a record of VJ_SPACE_XATTR is. */
static char *xattr_text(uint64_t ino, VjSlice key, const char *name)
{
    bool is_key = key.len > 8 && ((const uint8_t *)key.data)[8] == VJ_FS_KEY_RECORD;

    return g_strdup_printf("inode %" G_GUINT64_FORMAT ": the %s \"%s\"", ino,
                           is_key ? "key" : "attribute",
                           is_key ? name + strlen("\\001") : name);
}

/* Damaged ones go: their content is lost, and the file should have the default then. */
static int repair_xattr(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    Names *n = opaque;
    uint64_t ino = key.len > 8 ? vj_repair_dir_of(key) : 0;
    g_autofree char *name = key.len > 8 ? vj_repair_name_of(key) : g_strdup("");
    g_autofree char *what = xattr_text(ino, key, name);
    const Seen *s = seen_find(n, ino);
    uint8_t record_key[8];
    VjSlice record, plain;

    if (ino == 0 ||
        (s == NULL && vj_repair_get(r, VJ_SPACE_INODE, vj_repair_ino_key(ino, record_key),
                                    &record) == -ENOENT)) {
        vj_repair_del(r, VJ_SPACE_XATTR, key);
        vj_repair_say(r, "%s of nobody was removed", what);
    } else if (vj_xattr_decode(key, value, &plain) == 0) {
        if (s != NULL && vj_acl_is_name(name)) {
            repair_list(r, n, s, key, plain);
        }
    } else if (!vj_repair_bit(r, VJ_SPACE_XATTR, key, value, xattr_is_good, what)) {
        remove_xattr(r, n, s, key, name);
        vj_repair_say(r, "%s was damaged and was removed", what);
    }
    return 0;
}

static int agree_body(VjTxn *txn, void *opaque)
{
    VjInode inode;
    int rc = vj_inode_get(txn, *(const uint64_t *)opaque, &inode);

    return rc < 0 ? rc : vj_acl_chmod(txn, &inode);
}

/* Without its list the mode's group permissions, which were the mask, would be the owning
 * group's: whatever that had, it has nothing now. */
static int bare_body(VjTxn *txn, void *opaque)
{
    const uint64_t *ino = opaque;
    VjInode inode;
    int rc = vj_inode_get(txn, *ino, &inode);

    if (rc == 0) {
        rc = vj_xattr_drop(txn, *ino, VJ_ACL_ACCESS);
    }
    if (rc < 0) {
        return rc;
    }
    inode.mode &= ~(mode_t)070;
    return vj_inode_put(txn, &inode);
}

static int repair_bare(VjRepair *r, const Names *n)
{
    int rc = 0;

    for (guint i = 0; rc == 0 && i < n->bare->len; i++) {
        uint64_t ino = g_array_index(n->bare, uint64_t, i);

        rc = vj_meta_run(vj_volume_meta(vj_repair_volume(r)), VJ_RUN_RELEASE, bare_body,
                         &ino);
        if (rc == 0) {
            vj_repair_say(r,
                          "inode %" G_GUINT64_FORMAT
                          ": its group has no permissions until chmod gives some",
                          ino);
        }
    }
    return rc;
}

static int repair_lists(VjRepair *r, const Names *n)
{
    int rc = 0;

    for (guint i = 0; rc == 0 && i < n->lists->len; i++) {
        uint64_t ino = g_array_index(n->lists, uint64_t, i);

        rc = vj_meta_run(vj_volume_meta(vj_repair_volume(r)), VJ_RUN_RELEASE, agree_body,
                         &ino);
        if (rc == 0) {
            vj_repair_say(
                r, "inode %" G_GUINT64_FORMAT ": its access list says what its mode says",
                ino);
        }
    }
    return rc;
}

static int repair_counts(VjRepair *r, Names *n)
{
    GHashTableIter iter;
    gpointer value;
    int rc = 0;

    g_hash_table_iter_init(&iter, n->inodes);
    while (rc == 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        rc = adjust(r, n, value);
    }
    for (guint i = 0; rc == 0 && i < n->nameless->len; i++) {
        rc = attach(r, g_array_index(n->nameless, uint64_t, i));
    }
    return rc;
}

int vj_repair_names(VjRepair *r)
{
    g_autoptr(GHashTable) inodes =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    g_autoptr(GArray) nameless = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_autoptr(GArray) lists = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_autoptr(GArray) bare = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    Names n = {.inodes = inodes, .nameless = nameless, .lists = lists, .bare = bare};
    int rc = vj_repair_each(r, VJ_SPACE_INODE, list_inode, &n);

    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_DENTRY, repair_target, &n);
    }
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_DENTRY, count_name, &n);
    }
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_XATTR, repair_xattr, &n);
    }
    if (rc == 0) {
        rc = repair_bare(r, &n);
    }
    if (rc == 0) {
        rc = repair_lists(r, &n);
    }
    if (rc == 0) {
        rc = open_rings(r, &n);
    }
    return rc < 0 ? rc : repair_counts(r, &n);
}
