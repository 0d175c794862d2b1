/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * check-names.c - fsck of names: every invariant of names.c, make.c and rename.c
 *
 * One pass over each space.  What is kept per inode is a few words; a volume at rest is
 * assumed.  The invariants: the two records of a name agree; the inode is there and of
 * that type; entry_count, next_cookie, nlink and parent agree with the names; an inode
 * without names is an orphan; attributes are whole and their inode is there; access
 * control lists are such and agree with the mode.
 */
#include "file/records.h"
#include "fs/records.h"
#include "fsck/fsck.h"

typedef struct Seen {
    uint64_t ino;
    uint64_t names;   /* that lead to it */
    uint64_t entries; /* directories: names within */
    uint64_t cookies; /* directories: records in cookie order */
    uint64_t subdirs; /* directories: names within that lead to directories */
    uint64_t last_cookie;
    uint64_t in;     /* directories: the directory that names it */
    uint64_t parent; /* directories: what the record says */
    uint32_t mode, nlink;
    bool damaged; /* there is a record, and nothing in it can be believed */
} Seen;

typedef struct Check {
    VjMeta *meta;
    VjCheckSay *say;
    void *opaque;
    VjCheckReport *report;
    GHashTable *inodes; /* uint64_t* in Seen → Seen */
} Check;

static void problem(Check *c, const char *format, ...) G_GNUC_PRINTF(2, 3);

static void problem(Check *c, const char *format, ...)
{
    g_autofree char *text = NULL, *line = NULL;
    va_list args;

    va_start(args, format);
    text = g_strdup_vprintf(format, args);
    va_end(args);
    line = vj_one_line(text); /* names are anything */
    c->report->problems++;
    c->say(c->opaque, line);
}

typedef int CheckRecord(Check *c, VjSlice key, VjSlice value);

/* Calls @record for every key of @space, outside of transactions; keys and values are
 * borrowed for the call. */
static int each_record(Check *c, VjSpace space, CheckRecord *record)
{
    VjListing l;
    int r = 0, listed;

    vj_listing_begin(&l, c->meta, space);
    while (r == 0 && vj_listing_next(&l)) {
        r = record(c, l.key, l.value);
    }
    listed = vj_listing_end(&l);
    return r < 0 ? r : listed;
}

static Seen *seen_find(Check *c, uint64_t ino)
{
    return g_hash_table_lookup(c->inodes, &ino);
}

static int check_inode(Check *c, VjSlice key, VjSlice value)
{
    uint64_t ino = key.len == 8 ? vj_be64_get(key.data) : 0;
    VjInode inode;
    Seen *s;

    if (ino == 0) {
        return 0;
    }
    s = g_new0(Seen, 1);
    s->ino = ino;
    s->damaged =
        vj_inode_decode(value, ino, &inode) < 0; /* vj_fsck_contents reports it */
    g_hash_table_insert(c->inodes, &s->ino, s);
    if (s->damaged) {
        return 0;
    }
    s->mode = inode.mode;
    s->nlink = inode.nlink;
    s->parent = inode.parent;
    if (S_ISDIR(inode.mode)) {
        s->last_cookie = inode.next_cookie;
        s->entries = inode.entry_count;
    }
    return 0;
}

/* A name against the inode that it leads to and the directory that holds it. */
static void check_target(Check *c, uint64_t dir, const VjDentry *d, const char *name)
{
    Seen *target = seen_find(c, d->ino);

    if (target == NULL) {
        problem(c,
                "directory %" G_GUINT64_FORMAT
                ": the name \"%s\" leads to inode %" G_GUINT64_FORMAT
                ", which is missing",
                dir, name, d->ino);
        return;
    }
    target->names++;
    if (!target->damaged && vj_fs_type(target->mode) != d->type) {
        problem(c,
                "directory %" G_GUINT64_FORMAT
                ": the name \"%s\" says type %u, inode %" G_GUINT64_FORMAT
                " is of type %u",
                dir, name, d->type, d->ino, vj_fs_type(target->mode));
    }
    if (S_ISDIR(target->mode)) {
        target->in = dir;
    }
}

static bool is_name(const char *name, size_t len)
{
    return strlen(name) == len && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

/* A name against what its directory counts. */
static void count_entry(Check *c, Seen *dir, const VjDentry *d, const char *name)
{
    if (d->cookie < 3 || d->cookie >= dir->last_cookie) {
        problem(c,
                "directory %" G_GUINT64_FORMAT
                ": the name \"%s\" has cookie %" G_GUINT64_FORMAT
                " of %" G_GUINT64_FORMAT,
                dir->ino, name, d->cookie, dir->last_cookie);
    }
    if (dir->entries == 0) {
        problem(c, "directory %" G_GUINT64_FORMAT ": more names than it counts",
                dir->ino);
    } else {
        dir->entries--;
    }
}

/* What the order of readdir says of a name. */
typedef struct InOrder {
    uint64_t dir;
    const VjDentry *d;
    VjSlice name;
    bool agrees; /* out */
} InOrder;

static int in_order_body(VjTxn *txn, void *opaque)
{
    InOrder *o = opaque;
    VjSlice value, name;
    VjDentry other;
    VjFsKey key;
    int r;

    o->agrees = false;
    vj_fs_key_number(&key, o->dir, o->d->cookie);
    r = vj_txn_get(txn, VJ_SPACE_COOKIE, vj_fs_key_slice(&key), &value);
    if (r < 0) {
        return r == -ENOENT ? 0 : r;
    }
    o->agrees = vj_cookie_decode(vj_fs_key_slice(&key), value, &other, &name) == 0 &&
                other.ino == o->d->ino && other.type == o->d->type &&
                vj_slice_compare(name, o->name) == 0;
    return 0;
}

/* A name against its place in the order of readdir. */
static int check_order(Check *c, Seen *dir, const VjDentry *d, const char *name,
                       size_t len)
{
    InOrder o = {.dir = dir->ino, .d = d, .name = vj_slice(name, len)};
    int r = vj_meta_view(c->meta, in_order_body, &o);

    if (r == 0 && o.agrees) {
        dir->cookies++;
    } else if (r == 0) {
        problem(c, "directory %" G_GUINT64_FORMAT ": readdir does not agree about \"%s\"",
                dir->ino, name);
    }
    return r;
}

static int check_dentry(Check *c, VjSlice key, VjSlice value)
{
    char name[VJ_NAME_MAX + 1] = "";
    VjDentry d;
    Seen *dir;
    uint64_t dir_ino;

    c->report->names++;
    if (key.len <= 8 || key.len > VJ_FS_KEY_MAX) {
        problem(c, "a name has a key of %zu bytes", key.len);
        return 0;
    }
    dir_ino = vj_be64_get(key.data);
    memcpy(name, (const uint8_t *)key.data + 8, key.len - 8);
    if (vj_dentry_decode(key, value, &d) < 0) {
        problem(c, "directory %" G_GUINT64_FORMAT ": the name \"%s\" is damaged", dir_ino,
                name);
        return 0;
    }
    dir = seen_find(c, dir_ino);
    if (dir == NULL || (!dir->damaged && !S_ISDIR(dir->mode))) {
        problem(c,
                "inode %" G_GUINT64_FORMAT " holds the name \"%s\" and is no directory",
                dir_ino, name);
        return 0;
    }
    if (!is_name(name, key.len - 8)) {
        problem(c, "directory %" G_GUINT64_FORMAT ": \"%s\" is no name", dir_ino, name);
    }
    if (!dir->damaged) {
        count_entry(c, dir, &d, name);
    }
    if (d.type == DT_DIR) {
        dir->subdirs++;
    }
    check_target(c, dir_ino, &d, name);
    return check_order(c, dir, &d, name, key.len - 8);
}

/* Each was counted through its name: one too many is one without a name. */
static int check_cookie(Check *c, VjSlice key, VjSlice value)
{
    Seen *dir = key.len == 16 ? seen_find(c, vj_be64_get(key.data)) : NULL;

    (void)value;
    if (dir == NULL) {
        problem(c, "readdir has a name in no directory");
    } else if (dir->cookies == 0) {
        problem(c,
                "directory %" G_GUINT64_FORMAT ": readdir has a name that lookup lacks",
                dir->ino);
    } else {
        dir->cookies--;
    }
    return 0;
}

/* An access control list against the inode that has it. */
static void check_acl(Check *c, const Seen *s, const char *name, VjSlice plain)
{
    bool access = strcmp(name, VJ_ACL_ACCESS) == 0;
    VjAcl acl;

    if (vj_acl_decode(plain, &acl) < 0) {
        problem(c, "inode %" G_GUINT64_FORMAT ": %s is no access control list", s->ino,
                name);
    } else if (!s->damaged && (S_ISLNK(s->mode) || (!access && !S_ISDIR(s->mode)))) {
        problem(c, "inode %" G_GUINT64_FORMAT ": %s is not for this type of file", s->ino,
                name);
    } else if (!s->damaged && access && !vj_acl_agrees(&acl, s->mode)) {
        problem(c,
                "inode %" G_GUINT64_FORMAT
                ": its access control list does not agree with its mode %04o",
                s->ino, s->mode & 07777);
    }
}

static int check_xattr(Check *c, VjSlice key, VjSlice value)
{
    uint64_t ino = key.len > 8 ? vj_be64_get(key.data) : 0;
    char name[VJ_NAME_MAX + 1] = "";
    VjSlice plain;

    if (ino == 0 || seen_find(c, ino) == NULL) {
        problem(c,
                "an extended attribute belongs to inode %" G_GUINT64_FORMAT
                ", which is missing",
                ino);
    } else if (vj_xattr_decode(key, value, &plain) < 0) {
        problem(c, "inode %" G_GUINT64_FORMAT ": %s is damaged", ino,
                ((const uint8_t *)key.data)[8] == VJ_FS_KEY_RECORD
                    ? "a key"
                    : "an extended attribute");
    } else if (key.len <= VJ_FS_KEY_MAX) {
        memcpy(name, (const uint8_t *)key.data + 8, key.len - 8);
        if (vj_acl_is_name(name)) {
            check_acl(c, seen_find(c, ino), name, plain);
        }
    }
    return 0;
}

/* @opaque: the inode. */
static int is_orphan_body(VjTxn *txn, void *opaque)
{
    const uint64_t *ino = opaque;
    uint8_t key[12] = {0};
    VjSlice value;

    vj_be64_set(key, *ino);
    return vj_txn_get(txn, VJ_SPACE_ORPHAN, vj_slice(key, sizeof key), &value);
}

static int check_counts(Check *c, Seen *s)
{
    bool is_dir = S_ISDIR(s->mode);
    uint64_t expected = is_dir ? s->subdirs + 2 : s->names;
    int r;

    if (s->damaged) {
        return 0;
    }
    if (is_dir && s->entries != 0) {
        problem(c,
                "directory %" G_GUINT64_FORMAT ": %" G_GUINT64_FORMAT
                " names fewer than it counts",
                s->ino, s->entries);
    }
    if (s->ino == VJ_INO_ROOT) {
        if (s->names != 0 || s->parent != VJ_INO_ROOT) {
            problem(c, "the root directory has a name or another parent");
        }
    } else if (s->names == 0) {
        r = vj_meta_view(c->meta, is_orphan_body, &s->ino);
        if (r < 0 && r != -ENOENT) {
            return r;
        }
        if (r == -ENOENT) {
            problem(c, "inode %" G_GUINT64_FORMAT " has no name and is no orphan",
                    s->ino);
        }
        expected = 0;
    } else if (is_dir && (s->names != 1 || s->in != s->parent)) {
        problem(c,
                "directory %" G_GUINT64_FORMAT ": %" G_GUINT64_FORMAT
                " names, in directory %" G_GUINT64_FORMAT
                ", \"..\" is %" G_GUINT64_FORMAT,
                s->ino, s->names, s->in, s->parent);
    }
    if (s->nlink != expected) {
        problem(
            c, "inode %" G_GUINT64_FORMAT ": link count %u, there are %" G_GUINT64_FORMAT,
            s->ino, s->nlink, expected);
    }
    return 0;
}

/* Directories that are not below the root: a loop, since each has one name. */
static void check_tree(Check *c, Seen *s)
{
    uint64_t steps = 0, most = g_hash_table_size(c->inodes);
    const Seen *at = s;

    while (at->ino != VJ_INO_ROOT) {
        at = seen_find(c, at->parent);
        if (at == NULL || ++steps > most) {
            problem(c, "directory %" G_GUINT64_FORMAT " is not below the root", s->ino);
            return;
        }
        if (at->damaged || (at->mode & (1u << 31)) != 0) {
            break; /* known to be below the root, or it cannot be known */
        }
    }
    s->mode |= 1u << 31;
}

/* What was seen of each inode, after all records. */
static int check_inodes(Check *c)
{
    GHashTableIter iter;
    gpointer value;
    int r = 0;

    if (seen_find(c, VJ_INO_ROOT) == NULL) {
        problem(c, "there is no root directory");
    }
    g_hash_table_iter_init(&iter, c->inodes);
    while (r == 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        r = check_counts(c, value);
    }
    g_hash_table_iter_init(&iter, c->inodes);
    while (r == 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        Seen *s = value;

        if (S_ISDIR(s->mode & 0177777) && s->names > 0) {
            check_tree(c, s);
        }
    }
    return r;
}

int vj_fsck_names(VjVolume *volume, VjCheckSay *say, void *opaque, VjCheckReport *out)
{
    g_autoptr(GHashTable) inodes =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    Check c = {.meta = vj_volume_meta(volume),
               .say = say,
               .opaque = opaque,
               .report = out,
               .inodes = inodes};
    int r = each_record(&c, VJ_SPACE_INODE, check_inode);

    if (r == 0) {
        r = each_record(&c, VJ_SPACE_DENTRY, check_dentry);
    }
    if (r == 0) {
        r = each_record(&c, VJ_SPACE_COOKIE, check_cookie);
    }
    if (r == 0) {
        r = each_record(&c, VJ_SPACE_XATTR, check_xattr);
    }
    return r < 0 ? r : check_inodes(&c);
}
