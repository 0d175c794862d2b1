/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair.c - fsck -y of names: their records, and the inodes that are lost
 *
 * A name has two records that say the same, so either one restores the other.  A lost
 * inode is made again from its content, with the type that its name says, owned by the
 * user who runs the repair and readable by no other.  repair-names.c then makes both
 * agree.
 *
 * Memory: a few words for each inode that is lost.
 */
#include "fsck/repair-names-private.h"

/* ---- bits -------------------------------------------------------------------------- */

static bool dentry_is_good(VjSlice key, VjSlice value)
{
    VjDentry d;

    return vj_dentry_decode(key, value, &d) == 0;
}

static bool cookie_is_good(VjSlice key, VjSlice value)
{
    VjSlice name;
    VjDentry d;

    return vj_cookie_decode(key, value, &d, &name) == 0;
}

static int mend_dentry_bit(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    g_autofree char *name = NULL;
    g_autofree char *what = NULL;

    (void)opaque;
    if (key.len <= 8 || key.len > VJ_FS_KEY_MAX) {
        vj_repair_del(r, VJ_SPACE_DENTRY, key);
        vj_repair_say(r, "a name with a key of %zu bytes was removed", key.len);
        return 0;
    }
    if (!dentry_is_good(key, value)) {
        name = vj_repair_name_of(key);
        what = g_strdup_printf("directory %" G_GUINT64_FORMAT ": the name \"%s\"",
                               vj_repair_dir_of(key), name);
        (void)vj_repair_bit(r, VJ_SPACE_DENTRY, key, value, dentry_is_good, what);
    }
    return 0;
}

static int mend_cookie_bit(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    g_autofree char *what = NULL;

    (void)opaque;
    if (cookie_is_good(key, value)) {
        return 0;
    }
    what = key.len == 16 ? g_strdup_printf("directory %" G_GUINT64_FORMAT
                                           ": a name in the order of readdir",
                                           vj_repair_dir_of(key))
                         : g_strdup("a name of no directory in the order of readdir");
    if (key.len == 16 &&
        vj_repair_bit(r, VJ_SPACE_COOKIE, key, value, cookie_is_good, what)) {
        return 0;
    }
    vj_repair_del(r, VJ_SPACE_COOKIE, key); /* the name itself says the same */
    vj_repair_say(r, "%s was damaged and was removed", what);
    return 0;
}

/* ---- the two records of a name ----------------------------------------------------- */

typedef struct Sought {
    uint64_t dir;
    VjSlice name;
    VjDentry d;
    bool found;
} Sought;

/* The record in readdir's order that has this name. */
static int seek_cookie_body(VjTxn *txn, void *opaque)
{
    Sought *out = opaque;
    VjFsKey zero;
    VjScan scan;

    out->found = false;
    vj_fs_key_number(&zero, out->dir, 0);
    vj_scan_begin(&scan, txn, VJ_SPACE_COOKIE, vj_slice(zero.bytes, 8));
    vj_scan_behind(&scan, vj_fs_key_slice(&zero));
    while (!out->found && vj_scan_next(&scan) && scan.key.len == 16) {
        VjSlice its_name;

        out->found = vj_cookie_decode(scan.key, scan.value, &out->d, &its_name) == 0 &&
                     vj_slice_compare(its_name, out->name) == 0;
    }
    return scan.error;
}

void vj_repair_put_dentry(VjRepair *r, uint64_t dir, VjSlice name, const VjDentry *d)
{
    VjFsKey key;
    VjDentryDisk disk;

    vj_fs_key_name(&key, dir, name.data, name.len);
    vj_dentry_encode(&key, d, &disk);
    vj_repair_put(r, VJ_SPACE_DENTRY, vj_fs_key_slice(&key),
                  vj_slice(&disk, sizeof disk));
}

void vj_repair_put_cookie(VjRepair *r, uint64_t dir, VjSlice name, const VjDentry *d)
{
    uint8_t value[sizeof(VjCookieDisk) + VJ_NAME_MAX];
    VjFsKey key;
    size_t len;

    vj_fs_key_number(&key, dir, d->cookie);
    len = vj_cookie_encode(&key, d, name.data, name.len, value);
    vj_repair_put(r, VJ_SPACE_COOKIE, vj_fs_key_slice(&key), vj_slice(value, len));
}

static bool is_name(VjSlice name)
{
    const char *text = name.data;

    return name.len > 0 && memchr(text, '/', name.len) == NULL &&
           memchr(text, '\0', name.len) == NULL && !(name.len == 1 && text[0] == '.') &&
           !(name.len == 2 && text[0] == '.' && text[1] == '.');
}

/* From the order of readdir, or not at all: then its inode has lost a name. */
static int restore_dentry(VjRepair *r, VjSlice key)
{
    g_autofree char *name = vj_repair_name_of(key);
    Sought s = {.dir = vj_repair_dir_of(key), .name = vj_repair_name_slice(key)};
    int rc = vj_meta_view(r->meta, seek_cookie_body, &s);

    if (rc < 0) {
        return rc;
    }
    if (s.found) {
        vj_repair_put_dentry(r, vj_repair_dir_of(key), vj_repair_name_slice(key), &s.d);
        vj_repair_say(r,
                      "directory %" G_GUINT64_FORMAT
                      ": the name \"%s\" was damaged and was restored",
                      vj_repair_dir_of(key), name);
    } else {
        vj_repair_del(r, VJ_SPACE_DENTRY, key);
        vj_repair_say(r,
                      "directory %" G_GUINT64_FORMAT
                      ": the name \"%s\" was damaged and was removed",
                      vj_repair_dir_of(key), name);
    }
    return 0;
}

/* Does another name own the place in readdir's order that @d has? */
static int cookie_is_taken(VjRepair *r, VjSlice key, const VjDentry *d, bool *agrees,
                           bool *taken)
{
    VjFsKey at, other;
    VjSlice value, its_name;
    VjDentry its, named;
    int rc;

    *agrees = *taken = false;
    vj_fs_key_number(&at, vj_repair_dir_of(key), d->cookie);
    rc = vj_repair_get(r, VJ_SPACE_COOKIE, vj_fs_key_slice(&at), &value);
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    if (vj_cookie_decode(vj_fs_key_slice(&at), value, &its, &its_name) < 0) {
        return 0;
    }
    if (vj_slice_compare(its_name, vj_repair_name_slice(key)) == 0) {
        *agrees = its.ino == d->ino && its.type == d->type;
        return 0;
    }
    vj_fs_key_name(&other, vj_repair_dir_of(key), its_name.data, its_name.len);
    rc = vj_repair_get(r, VJ_SPACE_DENTRY, vj_fs_key_slice(&other), &value);
    if (rc == 0) {
        *taken = vj_dentry_decode(vj_fs_key_slice(&other), value, &named) == 0 &&
                 named.cookie == d->cookie;
    }
    return rc == -ENOENT ? 0 : rc;
}

/* The largest number in use in the order of @dir. */
static int last_cookie(VjTxn *txn, uint64_t dir, uint64_t *last)
{
    VjFsKey before;
    VjSlice key, value;
    int rc;

    *last = 2;
    vj_fs_key_number(&before, dir + 1, 0);
    rc = vj_txn_prev(txn, VJ_SPACE_COOKIE, vj_fs_key_slice(&before), &key, &value);
    if (rc == 0 && key.len == 16 && vj_repair_dir_of(key) == dir) {
        *last = MAX(*last, vj_be64_get((const uint8_t *)key.data + 8));
    }
    return rc == -ENOENT ? 0 : rc;
}

typedef struct LastCookie {
    uint64_t dir, last;
} LastCookie;

static int last_cookie_body(VjTxn *txn, void *opaque)
{
    LastCookie *l = opaque;

    return last_cookie(txn, l->dir, &l->last);
}

static int repair_dentry(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    g_autofree char *name = vj_repair_name_of(key);
    bool agrees, taken;
    VjDentry d;
    int rc;

    (void)opaque;
    if (vj_dentry_decode(key, value, &d) < 0) {
        return restore_dentry(r, key);
    }
    if (!is_name(vj_repair_name_slice(key))) {
        VjFsKey order;

        vj_fs_key_number(&order, vj_repair_dir_of(key), d.cookie);
        vj_repair_del(r, VJ_SPACE_DENTRY, key);
        vj_repair_del(r, VJ_SPACE_COOKIE, vj_fs_key_slice(&order));
        vj_repair_say(r,
                      "directory %" G_GUINT64_FORMAT ": \"%s\" is no name, and was "
                      "removed from inode %" G_GUINT64_FORMAT,
                      vj_repair_dir_of(key), name, d.ino);
        return 0;
    }
    rc = cookie_is_taken(r, key, &d, &agrees, &taken);
    if (rc < 0 || agrees) {
        return rc;
    }
    if (taken) {
        LastCookie l = {.dir = vj_repair_dir_of(key)};

        rc = vj_meta_view(r->meta, last_cookie_body, &l);
        if (rc < 0 || l.last >= INT64_MAX - 1) {
            return rc;
        }
        d.cookie = l.last + 1;
        vj_repair_put_dentry(r, vj_repair_dir_of(key), vj_repair_name_slice(key), &d);
    }
    vj_repair_put_cookie(r, vj_repair_dir_of(key), vj_repair_name_slice(key), &d);
    vj_repair_say(r,
                  "directory %" G_GUINT64_FORMAT
                  ": the name \"%s\" got its place in readdir again",
                  vj_repair_dir_of(key), name);
    return 0;
}

/* A place in the order whose name is missing restores it. */
static int repair_cookie(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    VjSlice name, record;
    VjDentry d, named;
    VjFsKey own;
    int rc;

    (void)opaque;
    if (vj_cookie_decode(key, value, &d, &name) < 0) {
        return 0; /* the pass before removed it, or a newer version made it */
    }
    vj_fs_key_name(&own, vj_repair_dir_of(key), name.data, name.len);
    rc = vj_repair_get(r, VJ_SPACE_DENTRY, vj_fs_key_slice(&own), &record);
    if (rc == -ENOENT && is_name(name)) {
        g_autofree char *text = vj_repair_name_of(vj_fs_key_slice(&own));

        vj_repair_put_dentry(r, vj_repair_dir_of(key), name, &d);
        vj_repair_say(r,
                      "directory %" G_GUINT64_FORMAT
                      ": the name \"%s\" was missing and was restored",
                      vj_repair_dir_of(key), text);
        return 0;
    }
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    if (rc == -ENOENT || (vj_dentry_decode(vj_fs_key_slice(&own), record, &named) == 0 &&
                          named.cookie != d.cookie)) {
        vj_repair_del(r, VJ_SPACE_COOKIE, key);
        vj_repair_say(r,
                      "directory %" G_GUINT64_FORMAT
                      ": a second place of a name in readdir was removed",
                      vj_repair_dir_of(key));
    }
    return 0;
}

/* ---- inodes whose record is lost --------------------------------------------------- */

typedef struct Broken {
    uint64_t ino;
    uint8_t type; /* DT_*, as a name says; DT_UNKNOWN */
    uint64_t in;  /* the directory of that name */
    bool was_damaged, has_names, has_keys;
} Broken;

static Broken *broken_get(GHashTable *all, uint64_t ino)
{
    Broken *b = g_hash_table_lookup(all, &ino);

    if (b == NULL) {
        b = g_new0(Broken, 1);
        b->ino = ino;
        b->type = DT_UNKNOWN;
        g_hash_table_insert(all, &b->ino, b);
    }
    return b;
}

static int see_inode(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    VjInode inode;

    (void)r;
    if (key.len == 8 && !vj_repair_is_sealed(value) &&
        vj_inode_decode(value, vj_repair_dir_of(key), &inode) < 0) {
        broken_get(opaque, vj_repair_dir_of(key))->was_damaged = true;
    }
    return 0;
}

/* Names of, and in, inodes that have no usable record. */
static int see_name(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    GHashTable *all = opaque;
    uint8_t record_key[8];
    VjSlice record;
    VjDentry d;
    int rc;

    (void)r;
    if (vj_dentry_decode(key, value, &d) < 0) {
        return 0;
    }
    rc = vj_repair_get(r, VJ_SPACE_INODE, vj_repair_ino_key(d.ino, record_key), &record);
    if (rc == -ENOENT || g_hash_table_contains(all, &d.ino)) {
        Broken *b = broken_get(all, d.ino);

        b->type = d.type;
        b->in = vj_repair_dir_of(key);
        rc = 0;
    }
    if (rc == 0) {
        uint64_t dir = vj_repair_dir_of(key);

        rc =
            vj_repair_get(r, VJ_SPACE_INODE, vj_repair_ino_key(dir, record_key), &record);
        if (rc == -ENOENT || g_hash_table_contains(all, &dir)) {
            broken_get(all, dir)->has_names = true;
            rc = 0;
        }
    }
    return rc;
}

/* A namespace of keys has no names in it. */
static int see_key(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    uint8_t record_key[8];
    VjSlice plain, record;
    uint64_t ino;
    int rc;

    if (key.len <= 9 || ((const uint8_t *)key.data)[8] != VJ_FS_KEY_RECORD ||
        vj_xattr_decode(key, value, &plain) < 0) {
        return 0;
    }
    ino = vj_repair_dir_of(key);
    if (ino == 0) {
        return 0; /* of nobody */
    }
    rc = vj_repair_get(r, VJ_SPACE_INODE, vj_repair_ino_key(ino, record_key), &record);
    if (rc == -ENOENT || (rc == 0 && g_hash_table_contains(opaque, &ino))) {
        broken_get(opaque, ino)->has_keys = true;
        rc = 0;
    }
    return rc;
}

/* What the record of an inode is made of. */
typedef struct Remake {
    const Broken *b;
    struct timespec now;
    VjInode inode; /* out, as keep */
    bool keep;     /* there is something to keep */
} Remake;

/* What the record has to be, as far as other records show. */
static int remake_body(VjTxn *txn, void *opaque)
{
    static const struct {
        uint8_t type;
        mode_t mode;
    } modes[] = {
        {DT_REG, S_IFREG | 0600},     {DT_LNK, S_IFLNK | 0777},
        {DT_CHR, S_IFCHR | 0600},     {DT_BLK, S_IFBLK | 0600},
        {DT_FIFO, S_IFIFO | 0600},    {DT_SOCK, S_IFSOCK | 0600},
        {DT_UNKNOWN, S_IFREG | 0600},
    };
    Remake *m = opaque;
    const Broken *b = m->b;
    VjInode *out = &m->inode;
    int rc;

    *out = (VjInode){.ino = b->ino,
                     .generation = 1,
                     .nlink = 1,
                     .uid = getuid(),
                     .gid = getgid(),
                     .atime = m->now,
                     .mtime = m->now,
                     .ctime = m->now,
                     .btime = m->now};
    if (b->ino == VJ_INO_ROOT || b->has_names || b->has_keys || b->type == DT_DIR) {
        uint64_t last;

        rc = last_cookie(txn, b->ino, &last);
        out->mode = S_IFDIR | (b->ino == VJ_INO_ROOT ? 0755 : 0700);
        out->nlink = 2;
        out->next_cookie = MIN(last, (uint64_t)INT64_MAX - 1) + 1;
        out->parent = b->ino == VJ_INO_ROOT || b->in == 0 ? VJ_INO_ROOT : b->in;
        m->keep = b->ino == VJ_INO_ROOT || b->has_names || b->has_keys || b->was_damaged;
        return rc;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(modes); i++) {
        out->mode = modes[i].type == b->type ? modes[i].mode : out->mode;
    }
    rc = vj_repair_content(txn, b->ino, out, &m->keep);
    if (out->content != VJ_CONTENT_INLINE && S_ISLNK(out->mode)) {
        out->mode = S_IFREG | 0600;
    }
    m->keep = m->keep || b->was_damaged;
    return rc;
}

static int put_inode_body(VjTxn *txn, void *opaque)
{
    return vj_inode_put(txn, opaque);
}

static int repair_broken(VjRepair *r, Broken *b)
{
    Remake m = {.b = b, .now = vj_clock_real()};
    const VjInode *inode = &m.inode;
    int rc = vj_meta_view(r->meta, remake_body, &m);

    if (rc < 0 || !m.keep) {
        return rc; /* the pass over the names removes those that lead nowhere */
    }
    rc = vj_meta_run(r->meta, VJ_RUN_RELEASE, put_inode_body, &m.inode);
    if (rc == 0) {
        vj_repair_say(r,
                      "inode %" G_GUINT64_FORMAT
                      ": its record was %s and was made again (%s, %" G_GUINT64_FORMAT
                      " bytes); owner, permissions and times are lost",
                      b->ino, b->was_damaged ? "damaged" : "missing",
                      S_ISDIR(inode->mode)   ? "directory"
                      : S_ISLNK(inode->mode) ? "symlink"
                                             : "file",
                      inode->size);
    }
    return rc;
}

/* A root directory that is missing, or none, is lost as well. */
static int see_root(VjRepair *r, GHashTable *all)
{
    uint8_t key[8];
    VjSlice value;
    VjInode root;
    int rc =
        vj_repair_get(r, VJ_SPACE_INODE, vj_repair_ino_key(VJ_INO_ROOT, key), &value);

    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    if (rc == -ENOENT ||
        (vj_inode_decode(value, VJ_INO_ROOT, &root) == 0 && !S_ISDIR(root.mode))) {
        (void)broken_get(all, VJ_INO_ROOT);
    }
    return 0;
}

static int repair_lost_inodes(VjRepair *r)
{
    g_autoptr(GHashTable) all =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    GHashTableIter iter;
    gpointer value;
    int rc = vj_repair_each(r, VJ_SPACE_INODE, see_inode, all);

    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_DENTRY, see_name, all);
    }
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_XATTR, see_key, all);
    }
    if (rc == 0) {
        rc = see_root(r, all);
    }
    g_hash_table_iter_init(&iter, all);
    while (rc == 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        rc = repair_broken(r, value);
    }
    return rc;
}

static int repair_inodes(VjRepair *r)
{
    int rc = vj_repair_each(r, VJ_SPACE_DENTRY, mend_dentry_bit, NULL);

    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_COOKIE, mend_cookie_bit, NULL);
    }
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_DENTRY, repair_dentry, NULL);
    }
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_COOKIE, repair_cookie, NULL);
    }
    return rc < 0 ? rc : repair_lost_inodes(r);
}

int vj_repair_all(VjRepair *r)
{
    int rc = vj_repair_store_keys(r);

    if (rc == 0) {
        rc = vj_repair_records(r);
    }
    if (rc == 0) {
        rc = repair_inodes(r);
    }
    if (rc == 0) {
        rc = vj_repair_contents(r);
    }
    if (rc == 0) {
        rc = vj_repair_names(r);
    }
    return rc < 0 ? rc : vj_repair_objects(r);
}
