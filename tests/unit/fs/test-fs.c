/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-fs.c - operations on names and handles, over the real rooms below
 *
 * The metadata engine returns conflicts at random, so every body of a transaction runs
 * again now and then; the check of names ends each test.
 */
#include "fixture.h"

#include <linux/falloc.h>
#include <sys/xattr.h>

#include "varjfs/ioctl.h"

static void open_volume(Fixture *x, bool read_only)
{
    fixture_open(x, (VjVolumeOpen){
                        .read_only = read_only,
                        .wrap_store = "fault",
                        .wrap_meta = "fault:conflicts=20,seed=3",
                        /* Nothing is written back that nobody waits for. */
                        .commit_seconds = 3600,
                    });
}

static int setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);

    fixture_make(x, NULL);
    open_volume(x, false);
    *state = x;
    return 0;
}

static uint64_t links_of(Fixture *x, uint64_t ino)
{
    VjAttr attr;

    assert_int_equal(vj_fs_getattr(x->fs, ino, &attr), 0);
    return attr.st.st_nlink;
}

/* Background work has dropped @ino. */
static bool is_gone(Fixture *x, uint64_t ino)
{
    VjAttr attr;

    for (unsigned i = 0; i < 60000; i++) {
        int r = vj_fs_getattr(x->fs, ino, &attr);

        if (r == -ENOENT) {
            return true;
        }
        assert_int_equal(r, 0);
        g_usleep(1000);
    }
    return false;
}

/* ---- names ------------------------------------------------------------------------- */

static void test_names(void **state)
{
    Fixture *x = *state;
    VjAttr attr;
    char name[VJ_NAME_MAX + 2];
    uint64_t d = make_dir(x->fs, VJ_INO_ROOT, "d"), f = make_file(x->fs, d, "f");

    assert_int_equal(look(x->fs, VJ_INO_ROOT, "d"), d);
    assert_int_equal(look(x->fs, d, "f"), f);
    assert_int_equal(look(x->fs, d, "g"), 0);
    assert_int_equal(look(x->fs, d, "."), d);
    assert_int_equal(look(x->fs, d, ".."), VJ_INO_ROOT);
    assert_int_equal(look(x->fs, VJ_INO_ROOT, ".."), VJ_INO_ROOT);
    assert_int_equal(vj_fs_lookup(x->fs, &root_caller, f, "..", &attr), -ENOTDIR);
    assert_int_equal(vj_fs_mkdir(x->fs, &root_caller, d, "f", 0, &attr), -EEXIST);
    assert_int_equal(vj_fs_mkdir(x->fs, &root_caller, f, "g", 0, &attr), -ENOTDIR);
    assert_int_equal(vj_fs_mkdir(x->fs, &root_caller, d, ".", 0, &attr), -EEXIST);
    assert_int_equal(vj_fs_mknod(x->fs, &root_caller, d, "x", S_IFDIR, 0, &attr),
                     -EINVAL);
    assert_int_equal(vj_fs_mknod(x->fs, &root_caller, d, "a/b", S_IFREG, 0, &attr),
                     -EINVAL);

    memset(name, 'n', sizeof name);
    name[VJ_NAME_MAX + 1] = '\0';
    assert_int_equal(vj_fs_lookup(x->fs, &root_caller, d, name, &attr), -ENAMETOOLONG);
    assert_int_equal(vj_fs_symlink(x->fs, &root_caller, d, name, "t", &attr),
                     -ENAMETOOLONG);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, d, "f", d, name, 0),
                     -ENAMETOOLONG);
    name[VJ_NAME_MAX] = '\0';
    make_file(x->fs, d, name);
    assert_int_equal(vj_fs_unlink(x->fs, d, name), 0);

    assert_int_equal(vj_fs_rmdir(x->fs, VJ_INO_ROOT, "d"), -ENOTEMPTY);
    assert_int_equal(vj_fs_rmdir(x->fs, d, "f"), -ENOTDIR);
    assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "d"), -EISDIR);
    assert_int_equal(vj_fs_unlink(x->fs, d, "g"), -ENOENT);
    assert_int_equal(vj_fs_unlink(x->fs, d, "f"), 0);
    assert_int_equal(vj_fs_rmdir(x->fs, VJ_INO_ROOT, "d"), 0);
    assert_true(is_gone(x, d));
    assert_true(is_gone(x, f));
}

static void test_who_owns_what(void **state)
{
    Fixture *x = *state;
    VjSetattr set = {.what = VJ_SET_MODE | VJ_SET_GID, .mode = 02777, .gid = 55};
    uint64_t d = make_dir(x->fs, VJ_INO_ROOT, "d");
    VjAttr attr;

    assert_int_equal(vj_fs_mkdir(x->fs, &user_caller, d, "a", 0777, &attr), 0);
    assert_int_equal(attr.st.st_uid, 1000);
    assert_int_equal(attr.st.st_gid, 100);
    assert_int_equal(attr.st.st_mode, S_IFDIR | 0755);
    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, d, NULL, &set, &attr), 0);
    assert_int_equal(vj_fs_mkdir(x->fs, &user_caller, d, "b", 0777, &attr), 0);
    assert_int_equal(attr.st.st_gid, 55);
    assert_int_equal(attr.st.st_mode, S_IFDIR | S_ISGID | 0755);
    assert_int_equal(vj_fs_mknod(x->fs, &user_caller, d, "c", S_IFREG | 0666, 0, &attr),
                     0);
    assert_int_equal(attr.st.st_gid, 55);
    assert_int_equal(attr.st.st_mode, S_IFREG | 0644);
}

static void test_links(void **state)
{
    Fixture *x = *state;
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f"),
             d = make_dir(x->fs, VJ_INO_ROOT, "d");
    VjAttr attr;

    assert_int_equal(vj_fs_link(x->fs, f, d, "g", &attr), 0);
    assert_int_equal(attr.st.st_nlink, 2);
    assert_int_equal(vj_fs_link(x->fs, f, d, "g", &attr), -EEXIST);
    assert_int_equal(vj_fs_link(x->fs, d, d, "h", &attr), -EPERM);
    assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "f"), 0);
    assert_int_equal(links_of(x, f), 1);
    assert_int_equal(vj_fs_unlink(x->fs, d, "g"), 0);
    assert_true(is_gone(x, f));
}

static int set_links_body(VjTxn *txn, void *opaque)
{
    VjInode inode;
    int r = vj_inode_get(txn, *(uint64_t *)opaque, &inode);

    inode.nlink = VJ_FS_LINK_MAX;
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

static int unset_links_body(VjTxn *txn, void *opaque)
{
    VjInode inode;
    int r = vj_inode_get(txn, *(uint64_t *)opaque, &inode);

    inode.nlink = 1;
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

static void test_too_many_links(void **state)
{
    Fixture *x = *state;
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f");
    VjAttr attr;

    assert_int_equal(vj_meta_run(x->fs->meta, VJ_RUN_DEFAULT, set_links_body, &f), 0);
    assert_int_equal(vj_fs_link(x->fs, f, VJ_INO_ROOT, "g", &attr), -EMLINK);
    assert_int_equal(look(x->fs, VJ_INO_ROOT, "g"), 0);
    assert_int_equal(vj_meta_run(x->fs->meta, VJ_RUN_DEFAULT, unset_links_body, &f), 0);
}

static void test_symlinks(void **state)
{
    Fixture *x = *state;
    char target[VJ_SYMLINK_MAX + 2], got[VJ_SYMLINK_MAX + 1];
    VjAttr attr;

    memset(target, 't', sizeof target);
    target[VJ_SYMLINK_MAX + 1] = '\0';
    assert_int_equal(vj_fs_symlink(x->fs, &root_caller, VJ_INO_ROOT, "l", target, &attr),
                     -ENAMETOOLONG);
    assert_int_equal(vj_fs_symlink(x->fs, &root_caller, VJ_INO_ROOT, "l", "", &attr),
                     -ENOENT);
    target[VJ_SYMLINK_MAX] = '\0';
    assert_int_equal(vj_fs_symlink(x->fs, &user_caller, VJ_INO_ROOT, "l", target, &attr),
                     0);
    assert_int_equal(attr.st.st_mode, S_IFLNK | 0777);
    assert_int_equal(attr.st.st_size, VJ_SYMLINK_MAX);
    assert_int_equal(vj_fs_readlink(x->fs, attr.st.st_ino, got), 0);
    assert_string_equal(got, target);
    assert_int_equal(vj_fs_readlink(x->fs, VJ_INO_ROOT, got), -EINVAL);
}

/* ---- rename ------------------------------------------------------------------------ */

static void test_rename_rules(void **state)
{
    Fixture *x = *state;
    uint64_t r = VJ_INO_ROOT, a = make_dir(x->fs, r, "a"), b = make_dir(x->fs, a, "b");
    uint64_t c = make_dir(x->fs, b, "c"), f = make_file(x->fs, r, "f"),
             g = make_file(x->fs, r, "g");
    VjAttr attr;

    assert_int_equal(vj_fs_rename(x->fs, &root_caller, r, "a", c, "x", 0), -EINVAL);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, r, "a", a, "x", 0), -EINVAL);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, a, "b", r, "a", 0), -ENOTEMPTY);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, r, "f", r, "a", 0), -EISDIR);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, r, "a", r, "f", 0), -ENOTDIR);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, r, "no", r, "f", 0), -ENOENT);
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, r, "f", r, "g", VJ_RENAME_NOREPLACE), -EEXIST);
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, r, "f", r, "no", VJ_RENAME_EXCHANGE), -ENOENT);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, r, "f", r, "g", 7), -EINVAL);
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, r, "a", b, "c", VJ_RENAME_EXCHANGE), -EINVAL);
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, b, "c", r, "a", VJ_RENAME_EXCHANGE), -EINVAL);

    assert_int_equal(vj_fs_rename(x->fs, &root_caller, r, "f", r, "g", 0), 0);
    assert_int_equal(look(x->fs, r, "g"), f);
    assert_int_equal(look(x->fs, r, "f"), 0);
    assert_true(is_gone(x, g));

    assert_int_equal(vj_fs_rename(x->fs, &root_caller, b, "c", r, "c", 0), 0);
    assert_int_equal(look(x->fs, c, ".."), r);
    assert_int_equal(links_of(x, b), 2);
    assert_int_equal(links_of(x, r), 4);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, r, "c", a, "b", 0), 0);
    assert_true(is_gone(x, b));
    assert_int_equal(links_of(x, a), 3);
    assert_int_equal(look(x->fs, c, ".."), a);

    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, a, "b", r, "g", VJ_RENAME_EXCHANGE), 0);
    assert_int_equal(look(x->fs, r, "g"), c);
    assert_int_equal(look(x->fs, a, "b"), f);
    assert_int_equal(look(x->fs, c, ".."), r);
    assert_int_equal(links_of(x, a), 2);

    assert_int_equal(vj_fs_link(x->fs, f, r, "same", &attr), 0);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, r, "same", a, "b", 0), 0);
    assert_int_equal(links_of(x, f), 2);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, a, "b", a, "b", 0), 0);
}

static void expect_whiteout(Fixture *x, uint64_t dir, const char *name, uid_t uid)
{
    VjAttr attr;

    assert_int_equal(vj_fs_lookup(x->fs, &root_caller, dir, name, &attr), 0);
    assert_int_equal(attr.st.st_mode, S_IFCHR);
    assert_int_equal(attr.st.st_rdev, 0);
    assert_int_equal(attr.st.st_nlink, 1);
    assert_int_equal(attr.st.st_uid, uid);
}

static uint64_t inodes_in_use(Fixture *x)
{
    struct statvfs st;

    assert_int_equal(vj_fs_statfs(x->fs, &st), 0);
    return st.f_files - st.f_ffree;
}

typedef struct Age {
    uint64_t dir;
    uint64_t next_cookie;
} Age;

static int age_body(VjTxn *txn, void *opaque)
{
    Age *age = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, age->dir, &inode);

    if (r < 0) {
        return r;
    }
    inode.next_cookie = age->next_cookie;
    return vj_inode_put(txn, &inode);
}

/* As a transaction of a shared session sees them that read the directory before another
 * session made the name; or as damage leaves them. */
static void test_rename_in_a_directory_older_than_the_name(void **state)
{
    Fixture *x = *state;
    uint64_t dir = make_dir(x->fs, VJ_INO_ROOT, "dir");
    uint64_t f = make_file(x->fs, dir, "f");
    Age old = {.dir = dir, .next_cookie = 3}, whole = {.dir = dir, .next_cookie = 4};

    assert_int_equal(vj_meta_run(x->fs->meta, VJ_RUN_DEFAULT, age_body, &old), 0);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, dir, "f", dir, "g", 0), 0);
    assert_int_equal(look(x->fs, dir, "g"), f);
    assert_int_equal(look(x->fs, dir, "f"), 0);
    assert_int_equal(vj_meta_run(x->fs->meta, VJ_RUN_DEFAULT, age_body, &whole), 0);
}

/* The old name stays, and with it its place in a listing; the number of inodes is one
 * more. */
static void test_whiteout(void **state)
{
    Fixture *x = *state;
    const unsigned alone = VJ_RENAME_WHITEOUT | VJ_RENAME_NOREPLACE;
    uint64_t r = VJ_INO_ROOT, a = make_dir(x->fs, r, "a"), d = make_dir(x->fs, r, "d");
    uint64_t f = make_file(x->fs, r, "f"), g = make_file(x->fs, a, "g"), inodes;
    uint64_t last = make_file(x->fs, r, "last");

    inodes = inodes_in_use(x);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, r, "f", r, "d",
                                  VJ_RENAME_WHITEOUT | VJ_RENAME_EXCHANGE),
                     -EINVAL);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, r, "f", a, "g", alone), -EEXIST);
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, r, "f", r, "a", VJ_RENAME_WHITEOUT), -EISDIR);
    assert_int_equal(inodes_in_use(x), inodes);
    assert_int_equal(vj_fs_rename(x->fs, &user_caller, r, "f", r, "new", alone), 0);
    expect_whiteout(x, r, "f", user_caller.uid);
    assert_int_equal(look(x->fs, r, "new"), f);
    assert_int_equal(inodes_in_use(x), inodes + 1);

    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, r, "new", a, "g", VJ_RENAME_WHITEOUT), 0);
    expect_whiteout(x, r, "new", 0);
    assert_int_equal(look(x->fs, a, "g"), f);
    assert_true(is_gone(x, g));

    assert_int_equal(vj_fs_rename(x->fs, &root_caller, r, "d", a, "d", alone), 0);
    expect_whiteout(x, r, "d", 0);
    assert_int_equal(look(x->fs, d, ".."), a);
    assert_int_equal(links_of(x, r), 3);
    assert_int_equal(links_of(x, a), 3);
    /* A whiteout in place of a whiteout. */
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, r, "d", r, "f", VJ_RENAME_WHITEOUT), 0);
    expect_whiteout(x, r, "d", 0);
    expect_whiteout(x, r, "f", 0);
    assert_int_equal(look(x->fs, r, "last"), last);
    assert_int_equal(vj_fs_unlink(x->fs, r, "d"), 0);
    assert_int_equal(look(x->fs, r, "d"), 0);
}

/* @opaque: VjInode with its number. */
static int committed_body(VjTxn *txn, void *opaque)
{
    VjInode *inode = opaque;

    return vj_inode_get(txn, inode->ino, inode);
}

/* What is committed of @ino, without what is in memory. */
static VjInode committed(Fixture *x, uint64_t ino)
{
    VjInode inode = {.ino = ino};

    assert_int_equal(vj_meta_view(x->fs->meta, committed_body, &inode), 0);
    return inode;
}

/* Over an existing name the content is committed with or before the name. */
static void test_rename_after_content(void **state)
{
    Fixture *x = *state;
    g_autofree char *bytes = g_malloc0(100000);
    VjHandle *h;
    VjAttr attr;
    uint64_t f;

    make_file(x->fs, VJ_INO_ROOT, "old");
    assert_int_equal(
        vj_fs_create(x->fs, &root_caller, VJ_INO_ROOT, "new", 0644, O_RDWR, &attr, &h),
        0);
    f = attr.st.st_ino;
    assert_int_equal(vj_fs_write(h, 0, bytes, 100000, 0, NULL), 0);
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, VJ_INO_ROOT, "new", VJ_INO_ROOT, "old", 0), 0);
    assert_int_equal(committed(x, f).size, 100000);
    vj_fs_release(x->fs, h);
}

static void test_exchange_after_contents(void **state)
{
    Fixture *x = *state;
    static const char *const names[2] = {"a", "b"};
    g_autofree char *bytes = g_malloc0(100000);
    VjHandle *h[2];
    VjAttr attr[2];

    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(vj_fs_create(x->fs, &root_caller, VJ_INO_ROOT, names[i], 0644,
                                      O_RDWR, &attr[i], &h[i]),
                         0);
        assert_int_equal(vj_fs_write(h[i], 0, bytes, 100000, 0, NULL), 0);
    }
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, VJ_INO_ROOT, "a", VJ_INO_ROOT, "b",
                                  VJ_RENAME_EXCHANGE),
                     0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(committed(x, attr[i].st.st_ino).size, 100000);
        vj_fs_release(x->fs, h[i]);
    }
}

static int ring_body(VjTxn *txn, void *opaque)
{
    const uint64_t *ring = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, ring[0], &inode);

    inode.parent = ring[1];
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

/* Damaged directories that are each other's parents: an error, not a search without
 * end. */
static void test_rename_below_a_ring(void **state)
{
    Fixture *x = *state;
    uint64_t a = make_dir(x->fs, VJ_INO_ROOT, "a"), b = make_dir(x->fs, a, "b");
    uint64_t c = make_dir(x->fs, b, "c"), ring[2] = {a, c}, mended[2] = {a, VJ_INO_ROOT};

    make_dir(x->fs, VJ_INO_ROOT, "moved");
    assert_int_equal(vj_meta_run(x->fs->meta, VJ_RUN_DEFAULT, ring_body, ring), 0);
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, VJ_INO_ROOT, "moved", c, "moved", 0), -EBADMSG);
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, VJ_INO_ROOT, "moved", a, "moved", 0), -EBADMSG);
    assert_int_equal(vj_meta_run(x->fs->meta, VJ_RUN_DEFAULT, ring_body, mended), 0);
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, VJ_INO_ROOT, "moved", c, "moved", 0), 0);
}

/* ---- directories ------------------------------------------------------------------- */

typedef struct Seen {
    GHashTable *names;
    uint64_t last_cookie;
    unsigned left; /* how many more to take */
} Seen;

static bool seen_visit(void *opaque, const VjDirent *e, const VjAttr *attr)
{
    Seen *s = opaque;

    assert_true(e->cookie > s->last_cookie);
    if (attr != NULL) {
        assert_int_equal(attr->st.st_ino, e->ino);
        assert_int_equal(IFTODT(attr->st.st_mode), e->type);
    }
    if (s->left == 0) {
        return false;
    }
    s->left--;
    s->last_cookie = e->cookie;
    assert_true(g_hash_table_add(s->names, g_strdup(e->name)));
    return true;
}

/* Reads on in steps of @step names until nothing comes. */
static void read_all(Fixture *x, uint64_t dir, Seen *s, unsigned step)
{
    uint64_t before;

    do {
        before = s->last_cookie;
        s->left = step;
        assert_int_equal(
            vj_fs_readdir(x->fs, dir, s->last_cookie, NULL, 1000, true, seen_visit, s),
            0);
    } while (s->last_cookie != before);
}

static void test_readdir_under_change(void **state)
{
    Fixture *x = *state;
    Seen s = {.names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL)};
    uint64_t d = make_dir(x->fs, VJ_INO_ROOT, "d");
    char name[32], other[32];

    for (unsigned i = 0; i < 100; i++) {
        g_snprintf(name, sizeof name, "stay%u", i);
        make_file(x->fs, d, name);
        g_snprintf(name, sizeof name, "go%u", i);
        make_file(x->fs, d, name);
    }
    s.left = 50;
    assert_int_equal(vj_fs_readdir(x->fs, d, 0, NULL, 1 << 20, false, seen_visit, &s), 0);
    assert_int_equal(g_hash_table_size(s.names), 50);
    for (unsigned i = 0; i < 100; i++) {
        g_snprintf(name, sizeof name, "go%u", i);
        assert_int_equal(vj_fs_unlink(x->fs, d, name), 0);
        g_snprintf(name, sizeof name, "fresh%u", i);
        make_file(x->fs, d, name);
        /* Replaced and exchanged, those that stay keep their place. */
        g_snprintf(other, sizeof other, "stay%u", i);
        assert_int_equal(vj_fs_rename(x->fs, &root_caller, d, name, d, other,
                                      i % 2 ? VJ_RENAME_EXCHANGE : 0),
                         0);
    }
    read_all(x, d, &s, 7);
    for (unsigned i = 0; i < 100; i++) {
        g_snprintf(name, sizeof name, "stay%u", i);
        assert_true(g_hash_table_contains(s.names, name));
    }
    assert_true(g_hash_table_contains(s.names, "."));
    assert_true(g_hash_table_contains(s.names, ".."));
    g_hash_table_unref(s.names);
}

/* ---- orphans ----------------------------------------------------------------------- */

static void test_orphans(void **state)
{
    static const bool is_known[] = {false, true};
    Fixture *x = *state;
    VjHandle *h, *second;
    char byte;
    size_t got;
    uint64_t f;

    for (size_t i = 0; i < G_N_ELEMENTS(is_known); i++) {
        f = make_file(x->fs, VJ_INO_ROOT, "f");
        x->is_known = is_known[i];
        assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDWR, &h), 0);
        assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDWR, &second), 0);
        assert_int_equal(vj_fs_write(h, 0, "x", 1, 0, NULL), 0);
        assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "f"), 0);
        vj_fs_release(x->fs, second);
        assert_int_equal(vj_fs_read(h, 0, &byte, 1, &got), 0);
        assert_int_equal(byte, 'x');
        assert_int_equal(links_of(x, f), 0);
        vj_fs_release(x->fs, h);
        if (x->is_known) {
            assert_int_equal(links_of(x, f), 0);
            x->is_known = false;
            vj_fs_forgotten(x->fs, f);
        }
        assert_true(is_gone(x, f));
        vj_fs_forgotten(x->fs, f);
    }
    /* Forgotten while it has a name: nothing happens to it. */
    f = make_file(x->fs, VJ_INO_ROOT, "f");
    vj_fs_forgotten(x->fs, f);
    assert_int_equal(links_of(x, f), 1);
    assert_int_equal(g_hash_table_size(x->fs->nodes), 0);
}

static void test_tmpfile(void **state)
{
    Fixture *x = *state;
    VjHandle *h;
    VjAttr attr;
    uint64_t f;

    x->is_known = true;
    assert_int_equal(
        vj_fs_tmpfile(x->fs, &user_caller, VJ_INO_ROOT, 0666, O_RDWR, &attr, &h), 0);
    f = attr.st.st_ino;
    assert_int_equal(attr.st.st_nlink, 0);
    assert_int_equal(attr.st.st_mode, S_IFREG | 0644);
    assert_int_equal(vj_fs_write(h, 0, "kept", 4, 0, NULL), 0);
    assert_int_equal(vj_fs_link(x->fs, f, VJ_INO_ROOT, "named", &attr), 0);
    assert_int_equal(attr.st.st_nlink, 1);
    vj_fs_release(x->fs, h);
    x->is_known = false;
    vj_fs_forgotten(x->fs, f);
    assert_int_equal(links_of(x, f), 1);

    assert_int_equal(
        vj_fs_tmpfile(x->fs, &user_caller, VJ_INO_ROOT, 0666, O_RDWR, &attr, &h), 0);
    vj_fs_release(x->fs, h);
    vj_fs_forgotten(x->fs, attr.st.st_ino);
    assert_true(is_gone(x, attr.st.st_ino));
    assert_int_equal(vj_fs_link(x->fs, attr.st.st_ino, VJ_INO_ROOT, "late", &attr),
                     -ENOENT);
}

/* ---- handles ----------------------------------------------------------------------- */

static void store_fails(Fixture *x, const char *how)
{
    g_autoptr(GError) error = NULL;

    if (!vj_store_fault_set(vj_volume_store(x->v), how, &error)) {
        fail_msg("%s", error->message);
    }
}

/* Each handle that was open when write-back failed hears of it once. */
static void test_error_once(void **state)
{
    Fixture *x = *state;
    g_autofree char *bytes = g_malloc(1 << 20);
    VjHandle *a, *b, *later;
    VjAttr attr;
    VjRng rng;

    vj_rng_init(&rng, 5);
    vj_rng_bytes(&rng, bytes, 1 << 20);
    assert_int_equal(
        vj_fs_create(x->fs, &root_caller, VJ_INO_ROOT, "f", 0644, O_RDWR, &attr, &a), 0);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, attr.st.st_ino, O_RDWR, &b), 0);
    store_fails(x, "kinds=put,every=1");
    assert_int_equal(vj_fs_write(a, 0, bytes, 1 << 20, 0, NULL), 0);
    assert_int_equal(vj_fs_fsync(a), -EIO);
    store_fails(x, "every=0");
    assert_int_equal(vj_fs_open(x->fs, &root_caller, attr.st.st_ino, O_RDWR, &later), 0);
    assert_int_equal(vj_fs_fsync(a), 0);
    assert_int_equal(vj_fs_flush(a), 0);
    assert_int_equal(vj_fs_flush(b), -EIO);
    assert_int_equal(vj_fs_flush(b), -EIO);
    assert_int_equal(vj_fs_fsync(b), -EIO);
    assert_int_equal(vj_fs_flush(b), 0);
    assert_int_equal(vj_fs_flush(later), 0);
    assert_int_equal(committed(x, attr.st.st_ino).size, 1 << 20);
    vj_fs_release(x->fs, a);
    vj_fs_release(x->fs, b);
    vj_fs_release(x->fs, later);
}

static void test_edits(void **state)
{
    static const struct {
        VjEdit edit;
        VjEdited out;
        const char *text;
    } cases[] = {
        {{.offset = 2, .old_len = 3, .src = "AB", .len = 2},
         {2, 3, 2, 10, 9, true},
         "01AB56789"},
        {{.offset = 2, .src = "AB", .len = 2}, {2, 0, 2, 10, 12, true}, "01AB23456789"},
        {{.offset = 8, .old_len = 9}, {8, 2, 0, 10, 8, true}, "01234567"},
        {{.offset = 10, .old_len = 9}, {10, 0, 0, 10, 10, false}, "0123456789"},
        {{.offset = 99, .old_len = 9}, {99, 0, 0, 10, 10, false}, "0123456789"},
        {{.offset = 99, .old_len = 9, .src = "Z", .len = 1, .append = true},
         {10, 0, 1, 10, 11, true},
         "0123456789Z"},
        {{.offset = 11, .old_len = 9, .src = "Z", .len = 1},
         {11, 0, 1, 10, 12, true},
         NULL},
    };
    Fixture *x = *state;
    VjHandle *h;
    VjAttr attr;
    VjEdited out;
    char got[64];
    size_t len;

    assert_int_equal(
        vj_fs_create(x->fs, &root_caller, VJ_INO_ROOT, "f", 0644, O_RDWR, &attr, &h), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        VjSetattr cut = {.what = VJ_SET_SIZE, .size = 10};

        assert_int_equal(vj_fs_write(h, 0, "0123456789", 10, 0, NULL), 0);
        assert_int_equal(
            vj_fs_setattr(x->fs, &root_caller, attr.st.st_ino, h, &cut, &attr), 0);
        assert_int_equal(vj_fs_replace(&root_caller, h, &cases[i].edit, &out), 0);
        assert_int_equal(out.at, cases[i].out.at);
        assert_int_equal(out.old_len, cases[i].out.old_len);
        assert_int_equal(out.len, cases[i].out.len);
        assert_int_equal(out.old_size, cases[i].out.old_size);
        assert_int_equal(out.size, cases[i].out.size);
        assert_int_equal(out.changed, cases[i].out.changed);
        assert_int_equal(vj_fs_read(h, 0, got, sizeof got, &len), 0);
        assert_int_equal(len, out.size);
        if (cases[i].text != NULL) {
            assert_memory_equal(got, cases[i].text, len);
        } else {
            assert_memory_equal(got, "0123456789\0Z", len);
        }
    }
    vj_fs_release(x->fs, h);
}

static void test_edit_refused(void **state)
{
    Fixture *x = *state;
    VjEdit edit = {.src = "x", .len = 1};
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f");
    VjHandle *h;
    VjEdited out;

    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDONLY, &h), 0);
    assert_int_equal(vj_fs_replace(&root_caller, h, &edit, &out), -EBADF);
    vj_fs_release(x->fs, h);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_WRONLY, &h), 0);
    edit.offset = (uint64_t)INT64_MAX + 1;
    assert_int_equal(vj_fs_replace(&root_caller, h, &edit, &out), -EINVAL);
    edit.offset = VJ_FILE_SIZE_MAX;
    assert_int_equal(vj_fs_replace(&root_caller, h, &edit, &out), -EFBIG);
    vj_fs_release(x->fs, h);
}

static void test_set_id_bits(void **state)
{
    Fixture *x = *state;
    VjSetattr set = {.what = VJ_SET_MODE | VJ_SET_CHECKED, .mode = 06777};
    VjEdit edit = {.src = "x", .len = 1};
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f");
    const VjCaller own = {.uid = geteuid(), .gid = getegid(), .pid = getpid()};
    bool keeps = own.uid == 0; /* and has its capabilities */
    VjHandle *h;
    VjEdited out;
    VjAttr attr;

    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDWR, &h), 0);
    for (unsigned by_user = 0; by_user < 2; by_user++) {
        const VjCaller *who = by_user ? &user_caller : &own;

        set = (VjSetattr){.what = VJ_SET_MODE | VJ_SET_CHECKED, .mode = 06777};
        assert_int_equal(vj_fs_setattr(x->fs, &root_caller, f, NULL, &set, &attr), 0);
        assert_int_equal(vj_fs_replace(who, h, &edit, &out), 0);
        assert_int_equal(vj_fs_getattr(x->fs, f, &attr), 0);
        assert_int_equal(attr.st.st_mode & 07777, by_user || !keeps ? 0777 : 06777);
    }
    /* Without group execution the bit means something else and stays, for members. */
    for (unsigned member = 0; member < 2; member++) {
        set = (VjSetattr){.what = VJ_SET_GID, .gid = member ? user_caller.gid : 5};
        assert_int_equal(vj_fs_setattr(x->fs, &root_caller, f, NULL, &set, &attr), 0);
        set = (VjSetattr){.what = VJ_SET_MODE | VJ_SET_CHECKED, .mode = 06764};
        assert_int_equal(vj_fs_setattr(x->fs, &root_caller, f, NULL, &set, &attr), 0);
        assert_int_equal(vj_fs_replace(&user_caller, h, &edit, &out), 0);
        assert_int_equal(vj_fs_getattr(x->fs, f, &attr), 0);
        assert_int_equal(attr.st.st_mode & 07777, member ? 02764 : 0764);
    }
    vj_fs_release(x->fs, h);
}

static void test_stages(void **state)
{
    Fixture *x = *state;
    g_autofree char *bytes = g_malloc0(VJ_FS_STAGE_MAX);
    g_autoptr(VjBuf) data = NULL;
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f"), first = 0, second = 0, id;
    VjHandle *h, *other;

    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDWR, &h), 0);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDWR, &other), 0);
    assert_int_equal(vj_fs_stage_add(h, &first, 0, "abc", 3), 0);
    assert_int_equal(vj_fs_stage_add(h, &second, 0, "x", 1), 0);
    assert_int_not_equal(first, second);
    assert_int_equal(vj_fs_stage_add(h, &first, 3, "def", 3), 0);
    assert_int_equal(vj_fs_stage_add(h, &first, 5, "!", 1), -EINVAL);
    assert_int_equal(vj_fs_stage_add(other, &first, 6, "!", 1), -ENOENT);
    assert_int_equal(vj_fs_stage_take(h, first, &data), 0);
    assert_int_equal(data->len, 6);
    assert_memory_equal(data->data, "abcdef", 6);
    assert_int_equal(vj_fs_stage_drop(h, first), -ENOENT);
    assert_int_equal(vj_fs_stage_drop(h, second), 0);
    assert_int_equal(x->fs->staged_bytes, 0);

    id = 0;
    assert_int_equal(vj_fs_stage_add(h, &id, 0, bytes, VJ_FS_STAGE_MAX), 0);
    assert_int_equal(vj_fs_stage_add(h, &id, VJ_FS_STAGE_MAX, "x", 1), -EFBIG);
    second = 0;
    assert_int_equal(vj_fs_stage_add(h, &second, 0, "x", 1), -EFBIG);
    assert_int_equal(vj_fs_stage_add(other, &second, 0, "x", 1), 0);
    assert_int_equal(x->fs->staged_bytes, VJ_FS_STAGE_MAX + 1);
    vj_fs_release(x->fs, h);
    vj_fs_release(x->fs, other);
    assert_int_equal(x->fs->staged_bytes, 0);
}

/* A stage costs more than its bytes: their number has a limit too. */
static void test_many_stages(void **state)
{
    Fixture *x = *state;
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f"), id, last = 0;
    VjHandle *h;

    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDWR, &h), 0);
    for (unsigned i = 0; i < VJ_FS_STAGES_MAX; i++) {
        last = 0;
        assert_int_equal(vj_fs_stage_add(h, &last, 0, "x", 1), 0);
    }
    id = 0;
    assert_int_equal(vj_fs_stage_add(h, &id, 0, "x", 1), -EFBIG);
    assert_int_equal(vj_fs_stage_add(h, &last, 1, "y", 1), 0);
    assert_int_equal(vj_fs_stage_drop(h, last), 0);
    assert_int_equal(vj_fs_stage_add(h, &id, 0, "x", 1), 0);
    vj_fs_release(x->fs, h);
    assert_int_equal(x->fs->staged_bytes, 0);
}

/* The bound over all handles, without the memory that it bounds. */
static void test_stages_of_all(void **state)
{
    Fixture *x = *state;
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f"), id = 0;
    VjHandle *h;

    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDWR, &h), 0);
    x->fs->staged_bytes = VJ_FS_STAGE_TOTAL_MAX - 5;
    assert_int_equal(vj_fs_stage_add(h, &id, 0, "abcdef", 6), -ENOMEM);
    assert_int_equal(vj_fs_stage_add(h, &id, 0, "abcde", 5), 0);
    x->fs->staged_bytes -= VJ_FS_STAGE_TOTAL_MAX - 5;
    vj_fs_release(x->fs, h);
}

/* ---- attributes -------------------------------------------------------------------- */

static void test_times(void **state)
{
    Fixture *x = *state;
    VjSetattr set = {
        .what = VJ_SET_ATIME | VJ_SET_MTIME,
        .atime = {5, 6},
        .mtime = {-7, 8},
    };
    VjHandle *h;
    VjAttr attr;
    struct timespec before = vj_clock_real();

    assert_int_equal(
        vj_fs_create(x->fs, &root_caller, VJ_INO_ROOT, "f", 0644, O_RDWR, &attr, &h), 0);
    assert_int_equal(vj_fs_write(h, 0, "x", 1, 0, NULL), 0);
    assert_int_equal(
        vj_fs_setattr(x->fs, &root_caller, attr.st.st_ino, NULL, &set, &attr), 0);
    assert_int_equal(vj_fs_fsync(h), 0);
    assert_int_equal(vj_fs_getattr(x->fs, attr.st.st_ino, &attr), 0);
    assert_int_equal(attr.st.st_atim.tv_nsec, 6);
    assert_int_equal(attr.st.st_mtim.tv_sec, -7);
    assert_int_equal(attr.st.st_mtim.tv_nsec, 8);
    assert_false(vj_fs_time_later(before, attr.st.st_ctim));
    assert_false(attr.may_change);
    set.mtime.tv_nsec = UTIME_NOW;
    set.what = VJ_SET_MTIME;
    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, attr.st.st_ino, h, &set, &attr),
                     0);
    assert_false(vj_fs_time_later(before, attr.st.st_mtim));
    assert_int_equal(attr.st.st_atim.tv_sec, 5);
    vj_fs_release(x->fs, h);
}

static void test_xattrs(void **state)
{
    Fixture *x = *state;
    g_autofree char *big = g_malloc0(VJ_XATTR_VALUE_MAX + 1);
    g_autofree char *got = g_malloc0(VJ_XATTR_VALUE_MAX + 1);
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f");
    size_t len;

    assert_int_equal(vj_fs_getxattr(x->fs, f, "user.a", got, 10, &len), -ENODATA);
    assert_int_equal(vj_fs_getxattr(x->fs, f, "security.a", got, 10, &len), -ENODATA);
    assert_int_equal(vj_fs_getxattr(x->fs, f, "system.a", got, 10, &len), -EOPNOTSUPP);
    assert_int_equal(vj_fs_setxattr(x->fs, &root_caller, f, "user.", "1", 1, 0), -EINVAL);
    assert_int_equal(
        vj_fs_setxattr(x->fs, &root_caller, f, "user.a", "1", 1, XATTR_REPLACE),
        -ENODATA);
    assert_int_equal(
        vj_fs_setxattr(x->fs, &root_caller, f, "user.a", "1", 1, XATTR_CREATE), 0);
    assert_int_equal(
        vj_fs_setxattr(x->fs, &root_caller, f, "user.a", "2", 1, XATTR_CREATE), -EEXIST);
    assert_int_equal(
        vj_fs_setxattr(x->fs, &root_caller, f, "user.b", big, VJ_XATTR_VALUE_MAX + 1, 0),
        -E2BIG);
    memset(big, 'b', VJ_XATTR_VALUE_MAX);
    assert_int_equal(
        vj_fs_setxattr(x->fs, &root_caller, f, "user.b", big, VJ_XATTR_VALUE_MAX, 0), 0);
    assert_int_equal(vj_fs_getxattr(x->fs, f, "user.b", NULL, 0, &len), 0);
    assert_int_equal(len, VJ_XATTR_VALUE_MAX);
    assert_int_equal(vj_fs_getxattr(x->fs, f, "user.b", got, 100, &len), -ERANGE);
    assert_int_equal(vj_fs_getxattr(x->fs, f, "user.b", got, VJ_XATTR_VALUE_MAX, &len),
                     0);
    assert_memory_equal(got, big, len);
    assert_int_equal(
        vj_fs_setxattr(x->fs, &root_caller, f, "user.varjfs.mode", "server", 6, 0), 0);
    assert_int_equal(vj_fs_listxattr(x->fs, &root_caller, f, got, 100, &len), 0);
    assert_int_equal(len, sizeof "user.varjfs.mode\0user.a\0user.b");
    assert_memory_equal(got, "user.varjfs.mode\0user.a\0user.b", len);
    assert_int_equal(vj_fs_listxattr(x->fs, &root_caller, f, got, 5, &len), -ERANGE);
    assert_int_equal(vj_fs_removexattr(x->fs, f, "user.a"), 0);
    assert_int_equal(vj_fs_removexattr(x->fs, f, "user.a"), -ENODATA);
    assert_int_equal(vj_fs_removexattr(x->fs, f, "user.varjfs.mode"), 0);
    assert_int_equal(vj_fs_removexattr(x->fs, f, "user.varjfs.mode"), -ENODATA);
    assert_int_equal(vj_fs_listxattr(x->fs, &root_caller, f, got, 100, &len), 0);
    assert_int_equal(len, sizeof "user.b");
    assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "f"), 0);
    assert_true(is_gone(x, f)); /* the check at the end finds attributes left behind */
}

static void test_long_xattr_lists(void **state)
{
    enum { NAMES = 264, CAP = 65536 }; /* 264 names of 250 bytes are more than 64 KiB */
    static const VjCaller user = {.uid = 1000, .gid = 1000};
    Fixture *x = *state;
    g_autofree char *got = g_malloc(CAP);
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f");
    size_t len;

    for (int i = 0; i < NAMES; i++) {
        g_autofree char *name = g_strdup_printf("trusted.%0241d", i);

        assert_int_equal(vj_fs_setxattr(x->fs, &root_caller, f, name, "", 0, 0), 0);
    }
    assert_int_equal(vj_fs_setxattr(x->fs, &root_caller, f, "user.a", "", 0, 0), 0);
    /* Who does not see them is not kept from the others. */
    assert_int_equal(vj_fs_listxattr(x->fs, &user, f, got, CAP, &len), 0);
    assert_int_equal(len, sizeof "user.a");
    for (int i = 0; i < NAMES; i++) {
        g_autofree char *name = g_strdup_printf("user.%0244d", i);

        assert_int_equal(vj_fs_setxattr(x->fs, &root_caller, f, name, "", 0, 0), 0);
    }
    assert_int_equal(vj_fs_listxattr(x->fs, &user, f, got, 1000, &len), -ERANGE);
    assert_int_equal(vj_fs_listxattr(x->fs, &user, f, got, CAP, &len), -E2BIG);
    assert_int_equal(vj_fs_listxattr(x->fs, &user, f, NULL, 0, &len), -E2BIG);
}

/* The change is in the metadata: no error may say that it is not. */
static void test_setting_that_is_read_late(void **state)
{
    Fixture *x = *state;
    g_autoptr(GError) error = NULL;
    char got[20];
    size_t len;
    VjHandle *h;
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f");

    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDWR, &h), 0);
    assert_int_equal(vj_volume_purge(x->v), 0); /* nobody else begins anything */
    /* The second beginning is that of the reader who tells the open file. */
    assert_true(vj_meta_fault_set(vj_volume_meta(x->v), "kinds=begin,fail=2", &error));
    assert_int_equal(
        vj_fs_setxattr(x->fs, &root_caller, f, "user.varjfs.mode", "server", 6, 0), 0);
    assert_true(vj_meta_fault_set(vj_volume_meta(x->v), "kinds=begin", &error));
    assert_int_equal(vj_fs_getxattr(x->fs, f, "user.varjfs.mode", got, 20, &len), 0);
    assert_int_equal(len, 6);
    assert_memory_equal(got, "server", 6);
    vj_fs_release(x->fs, h);
}

/* Whoever asks behind the end gets the end. */
static void test_tend_from_the_end(void **state)
{
    static const unsigned what[] = {VARJFS_TEND_GC, VARJFS_TEND_SCRUB};
    Fixture *x = *state;

    for (size_t i = 0; i < G_N_ELEMENTS(what); i++) {
        VjTend step = {.cursor = VARJFS_TEND_END};

        assert_int_equal(vj_fs_tend(x->fs, &root_caller, what[i], &step), 0);
        assert_true(step.cursor == VARJFS_TEND_END);
        assert_int_equal(step.examined | step.found, 0);
    }
}

/* ---- access control lists ---------------------------------------------------------- */

/* "o7 u1000:6 g5 G100:4 m7 r0": owner, user, owning group, group, mask, others. */
static VjSlice acl_bytes(const char *text, uint8_t bytes[VJ_ACL_MAX_BYTES])
{
    g_auto(GStrv) words = g_strsplit(text, " ", -1);
    static const char letters[] = "ougGmr";
    VjAcl acl = {.count = 0};

    for (size_t i = 0; words[i] != NULL; i++) {
        VjAclEntry *e = &acl.entries[acl.count++];
        const char *colon = strchr(words[i], ':');

        e->tag = (uint16_t)(1u << (strchr(letters, words[i][0]) - letters));
        e->id = colon == NULL ? VJ_ACL_NO_ID : (uint32_t)atoi(words[i] + 1);
        e->perm = (uint16_t)(colon == NULL ? words[i][1] - '0' : colon[1] - '0');
    }
    return vj_slice(bytes, vj_acl_encode(&acl, bytes));
}

static int acl_set(Fixture *x, uint64_t ino, const char *name, const char *text)
{
    uint8_t bytes[VJ_ACL_MAX_BYTES];
    VjSlice value = acl_bytes(text, bytes);

    return vj_fs_setxattr(x->fs, &user_caller, ino, name, value.data, value.len, 0);
}

/* @text NULL: there is none. */
static void acl_expect(Fixture *x, uint64_t ino, const char *name, const char *text)
{
    uint8_t bytes[VJ_ACL_MAX_BYTES], got[VJ_ACL_MAX_BYTES];
    size_t len = 0;
    int r = vj_fs_getxattr(x->fs, ino, name, got, sizeof got, &len);

    if (text == NULL) {
        assert_int_equal(r, -ENODATA);
    } else {
        VjSlice value = acl_bytes(text, bytes);

        assert_int_equal(r, 0);
        assert_int_equal(len, value.len);
        assert_memory_equal(got, value.data, len);
    }
}

static mode_t mode_of(Fixture *x, uint64_t ino)
{
    VjAttr attr;

    assert_int_equal(vj_fs_getattr(x->fs, ino, &attr), 0);
    return attr.st.st_mode & 07777;
}

static void test_acl_inherited(void **state)
{
    static const VjCaller who = {.uid = 1000, .gid = 100, .umask = 077};
    Fixture *x = *state;
    VjHandle *h;
    VjAttr attr;
    uint64_t dir;

    assert_int_equal(vj_fs_mkdir(x->fs, &who, VJ_INO_ROOT, "d", 02777, &attr), 0);
    dir = attr.st.st_ino;
    assert_int_equal(mode_of(x, dir), 02700);
    assert_int_equal(acl_set(x, dir, VJ_ACL_DEFAULT, "o7 u5:6 g5 m7 r1"), 0);
    assert_int_equal(mode_of(x, dir), 02700);

    assert_int_equal(vj_fs_mknod(x->fs, &who, dir, "f", S_IFREG | 0666, 0, &attr), 0);
    assert_int_equal(attr.st.st_mode & 07777, 0660);
    acl_expect(x, attr.st.st_ino, VJ_ACL_ACCESS, "o6 u5:6 g5 m6 r0");
    acl_expect(x, attr.st.st_ino, VJ_ACL_DEFAULT, NULL);
    assert_int_equal(vj_fs_mkdir(x->fs, &who, dir, "s", 0700, &attr), 0);
    assert_int_equal(mode_of(x, attr.st.st_ino), 02700);
    acl_expect(x, attr.st.st_ino, VJ_ACL_ACCESS, "o7 u5:6 g5 m0 r0");
    acl_expect(x, attr.st.st_ino, VJ_ACL_DEFAULT, "o7 u5:6 g5 m7 r1");
    assert_int_equal(vj_fs_symlink(x->fs, &who, dir, "l", "f", &attr), 0);
    acl_expect(x, attr.st.st_ino, VJ_ACL_ACCESS, NULL);
    assert_int_equal(vj_fs_tmpfile(x->fs, &who, dir, 0640, O_RDWR, &attr, &h), 0);
    assert_int_equal(attr.st.st_mode & 07777, 0640);
    acl_expect(x, attr.st.st_ino, VJ_ACL_ACCESS, "o6 u5:6 g5 m4 r0");
    vj_fs_release(x->fs, h);

    /* A default list that says no more than a mode beats the umask and leaves nothing. */
    assert_int_equal(acl_set(x, dir, VJ_ACL_DEFAULT, "o7 g5 r4"), 0);
    assert_int_equal(vj_fs_create(x->fs, &who, dir, "g", 0666, O_RDWR, &attr, &h), 0);
    assert_int_equal(attr.st.st_mode & 07777, 0644);
    acl_expect(x, attr.st.st_ino, VJ_ACL_ACCESS, NULL);
    vj_fs_release(x->fs, h);
    assert_int_equal(vj_fs_removexattr(x->fs, dir, VJ_ACL_DEFAULT), 0);
    assert_int_equal(vj_fs_removexattr(x->fs, dir, VJ_ACL_DEFAULT), 0);
    assert_int_equal(vj_fs_mknod(x->fs, &who, dir, "h", S_IFREG | 0666, 0, &attr), 0);
    assert_int_equal(attr.st.st_mode & 07777, 0600);
}

static void test_acl_and_mode(void **state)
{
    Fixture *x = *state;
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f");
    VjSetattr set = {.what = VJ_SET_MODE, .mode = 02641};
    VjAttr attr;

    assert_int_equal(acl_set(x, f, VJ_ACL_ACCESS, "o7 u5:6 g5 m3 r1"), 0);
    assert_int_equal(mode_of(x, f), 0731);
    acl_expect(x, f, VJ_ACL_ACCESS, "o7 u5:6 g5 m3 r1");
    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, f, NULL, &set, &attr), 0);
    acl_expect(x, f, VJ_ACL_ACCESS, "o6 u5:6 g5 m4 r1");
    assert_int_equal(attr.st.st_mode & 07777, 02641);
    /* Set by somebody who is not in the file's group: set-gid goes. */
    assert_int_equal(acl_set(x, f, VJ_ACL_ACCESS, "o6 g4 r0"), 0);
    assert_int_equal(mode_of(x, f), 0640);
    acl_expect(x, f, VJ_ACL_ACCESS, NULL);
    assert_int_equal(acl_set(x, f, VJ_ACL_ACCESS, "o6 u5:6 g4 r0"), -EINVAL);
    assert_int_equal(acl_set(x, f, VJ_ACL_DEFAULT, "o6 g4 r0"), -EACCES);
    assert_int_equal(mode_of(x, f), 0640);
    assert_int_equal(vj_fs_symlink(x->fs, &root_caller, VJ_INO_ROOT, "l", "f", &attr), 0);
    assert_int_equal(acl_set(x, attr.st.st_ino, VJ_ACL_ACCESS, "o6 g4 r0"), -EOPNOTSUPP);
    assert_int_equal(
        vj_fs_setxattr(x->fs, &root_caller, attr.st.st_ino, "user.a", "1", 1, 0), -EPERM);
    assert_int_equal(
        vj_fs_setxattr(x->fs, &root_caller, attr.st.st_ino, "trusted.a", "1", 1, 0), 0);
}

static void test_privileges(void **state)
{
    Fixture *x = *state;
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f");
    VjSetattr set = {.what = VJ_SET_MODE | VJ_SET_CHECKED, .mode = 06711};
    VjEdit edit = {.src = "x", .len = 1};
    VjEdited edited;
    VjHandle *h;
    VjAttr attr;
    char list[100];
    size_t len;
    bool root = geteuid() == 0;
    VjCaller own = {.uid = geteuid(), .gid = getegid(), .pid = getpid()};

    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDWR, &h), 0);
    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, f, NULL, &set, &attr), 0);
    assert_int_equal(
        vj_fs_setxattr(x->fs, &root_caller, f, "security.capability", "1", 1, 0), 0);
    assert_int_equal(vj_fs_setxattr(x->fs, &root_caller, f, "trusted.t", "1", 1, 0), 0);
    assert_int_equal(vj_fs_replace(&own, h, &edit, &edited), 0);
    assert_int_equal(mode_of(x, f), root ? 06711 : 0711); /* the capability always goes */
    assert_int_equal(vj_fs_listxattr(x->fs, &own, f, list, sizeof list, &len), 0);
    assert_int_equal(len, root ? sizeof "trusted.t" : 0);
    /* Who cannot be looked up has no capability, whatever user it is. */
    assert_int_equal(vj_fs_listxattr(x->fs, &root_caller, f, list, sizeof list, &len), 0);
    assert_int_equal(len, 0);
    assert_int_equal(vj_fs_replace(&root_caller, h, &edit, &edited), 0);
    assert_int_equal(mode_of(x, f), 0711);
    /* What the kernel says is not looked up. */
    set = (VjSetattr){.what = VJ_SET_MODE | VJ_SET_CHECKED, .mode = 06711};
    assert_int_equal(vj_fs_setattr(x->fs, &own, f, NULL, &set, &attr), 0);
    set = (VjSetattr){.what = VJ_SET_SIZE | VJ_SET_CHECKED, .size = 10};
    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, f, NULL, &set, &attr), 0);
    assert_int_equal(mode_of(x, f), 06711);
    set.what |= VJ_SET_UNPRIVILEGED;
    assert_int_equal(vj_fs_setattr(x->fs, &own, f, NULL, &set, &attr), 0);
    assert_int_equal(mode_of(x, f), 0711);
    vj_fs_release(x->fs, h);
}

/* What an open inode remembers of its records is forgotten when they change. */
static void test_privileges_after_edits(void **state)
{
    Fixture *x = *state;
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f");
    VjSetattr set = {.what = VJ_SET_MODE | VJ_SET_CHECKED, .mode = 04755};
    VjEdit edit = {.src = "x", .len = 1};
    VjEdited edited;
    VjHandle *h;
    VjAttr attr;
    char list[100];
    size_t len;

    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDWR, &h), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(vj_fs_replace(&user_caller, h, &edit, &edited), 0);
        assert_int_equal(vj_fs_setattr(x->fs, &root_caller, f, NULL, &set, &attr), 0);
        assert_int_equal(mode_of(x, f), 04755);
        assert_int_equal(vj_fs_replace(&user_caller, h, &edit, &edited), 0);
        assert_int_equal(mode_of(x, f), 0755);
        assert_int_equal(vj_fs_replace(&user_caller, h, &edit, &edited), 0);
        assert_int_equal(
            vj_fs_setxattr(x->fs, &root_caller, f, "security.capability", "1", 1, 0), 0);
        assert_int_equal(vj_fs_replace(&user_caller, h, &edit, &edited), 0);
        assert_int_equal(vj_fs_listxattr(x->fs, &root_caller, f, list, sizeof list, &len),
                         0);
        assert_int_equal(len, 0);
    }
    vj_fs_release(x->fs, h);
}

/* Of a size that comes without VJ_SET_CHECKED the kernel has not said everything. */
static void test_privileges_at_size(void **state)
{
    Fixture *x = *state;
    const VjCaller own = {.uid = geteuid(), .gid = getegid(), .pid = getpid()};
    const VjCaller member = {.uid = user_caller.uid, .gid = 5};
    const struct {
        const VjCaller *who;
        mode_t before, after;
    } steps[] = {
        {&user_caller, 02666, 0666},
        {&member, 02666, 02666},
        {&member, 02676, 0676},
        {&root_caller, 06666, 0666},
        {&own, 06777, geteuid() == 0 ? 06777 : 0777},
    };
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f");
    VjSetattr set = {.what = VJ_SET_GID, .gid = 5};
    VjAttr attr;

    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, f, NULL, &set, &attr), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(steps); i++) {
        set = (VjSetattr){.what = VJ_SET_MODE | VJ_SET_CHECKED, .mode = steps[i].before};
        assert_int_equal(vj_fs_setattr(x->fs, &own, f, NULL, &set, &attr), 0);
        set = (VjSetattr){.what = VJ_SET_SIZE, .size = 10 + i};
        assert_int_equal(vj_fs_setattr(x->fs, steps[i].who, f, NULL, &set, &attr), 0);
        assert_int_equal(mode_of(x, f), steps[i].after);
        assert_int_equal(attr.st.st_size, 10 + i);
    }
}

static void test_read_only(void **state)
{
    Fixture *x = *state;
    VjSetattr set = {.what = VJ_SET_MODE};
    uint64_t f = make_file(x->fs, VJ_INO_ROOT, "f");
    VjHandle *h;
    VjAttr attr;
    char byte;
    size_t got;

    fixture_close(x);
    open_volume(x, true);
    assert_int_equal(vj_fs_mkdir(x->fs, &root_caller, VJ_INO_ROOT, "d", 0, &attr),
                     -EROFS);
    assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "f"), -EROFS);
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, VJ_INO_ROOT, "f", VJ_INO_ROOT, "g", 0), -EROFS);
    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, f, NULL, &set, &attr), -EROFS);
    set.what = VJ_SET_SIZE;
    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, f, NULL, &set, &attr), -EROFS);
    assert_int_equal(vj_fs_setxattr(x->fs, &root_caller, f, "user.a", "1", 1, 0), -EROFS);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_WRONLY, &h), -EROFS);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDONLY | O_TRUNC, &h), -EROFS);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDONLY, &h), 0);
    assert_int_equal(vj_fs_read(h, 0, &byte, 1, &got), 0);
    assert_int_equal(got, 0);
    assert_int_equal(vj_fs_fsync(h), 0);
    vj_fs_release(x->fs, h);
    fixture_close(x);
    open_volume(x, false);
}

/* ---- everything at random ---------------------------------------------------------- */

static void random_step(Fixture *x, VjRng *rng, const uint64_t *dirs, size_t count)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    uint64_t dir = dirs[vj_rng_below(rng, count)], to = dirs[vj_rng_below(rng, count)];
    const char *name = names[vj_rng_below(rng, G_N_ELEMENTS(names))];
    const char *new_name = names[vj_rng_below(rng, G_N_ELEMENTS(names))];
    VjAttr attr;
    int r;

    switch (vj_rng_below(rng, 8)) {
    case 0:
        r = vj_fs_mknod(x->fs, &root_caller, dir, name, S_IFREG | 0644, 0, &attr);
        break;
    case 1:
        r = vj_fs_mkdir(x->fs, &root_caller, dir, name, 0755, &attr);
        break;
    case 2:
        r = vj_fs_unlink(x->fs, dir, name);
        break;
    case 3:
        r = vj_fs_rmdir(x->fs, dir, name);
        break;
    case 4:
        r = vj_fs_lookup(x->fs, &root_caller, dir, name, &attr);
        r = r < 0 ? r : vj_fs_link(x->fs, attr.st.st_ino, to, new_name, &attr);
        break;
    case 5:
        r = vj_fs_rename(x->fs, &root_caller, dir, name, to, new_name,
                         VJ_RENAME_EXCHANGE);
        break;
    case 6:
        r = vj_fs_rename(x->fs, &root_caller, dir, name, to, new_name,
                         VJ_RENAME_WHITEOUT);
        break;
    default:
        r = vj_fs_rename(x->fs, &root_caller, dir, name, to, new_name, 0);
        break;
    }
    switch (r) {
    case 0:
    case -ENOENT:
    case -EEXIST:
    case -ENOTDIR:
    case -EISDIR:
    case -ENOTEMPTY:
    case -EINVAL:
    case -EPERM:
        break;
    default:
        fail_msg("a step failed: %s", g_strerror(-r));
    }
}

/* Directories below the root, depth first, up to @most; returns how many. */
static size_t find_dirs(Fixture *x, uint64_t dir, uint64_t *dirs, size_t most)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    size_t count = 1;
    VjAttr attr;

    dirs[0] = dir;
    for (size_t i = 0; i < G_N_ELEMENTS(names) && count < most; i++) {
        if (vj_fs_lookup(x->fs, &root_caller, dir, names[i], &attr) == 0 &&
            S_ISDIR(attr.st.st_mode)) {
            count += find_dirs(x, attr.st.st_ino, dirs + count, most - count);
        }
    }
    return count;
}

static void test_random(void **state)
{
    Fixture *x = *state;
    uint64_t dirs[40];
    VjRng rng;

    vj_rng_init(&rng, 77);
    for (unsigned round = 0; round < 40; round++) {
        size_t count = find_dirs(x, VJ_INO_ROOT, dirs, G_N_ELEMENTS(dirs));

        for (unsigned step = 0; step < 60; step++) {
            random_step(x, &rng, dirs, count);
        }
        fixture_expect_sound(x);
    }
}

static uint64_t inodes_used(Fixture *x)
{
    struct statvfs s;

    assert_int_equal(vj_fs_statfs(x->fs, &s), 0);
    assert_true(s.f_ffree <= s.f_files && s.f_favail <= s.f_ffree);
    return s.f_files - s.f_ffree;
}

/* statfs: what has a name or is open, across a remount too. */
static void test_inode_count(void **state)
{
    Fixture *x = *state;
    uint64_t before = inodes_used(x), ino;
    VjHandle *h, *nameless;
    VjAttr attr;

    ino = make_file(x->fs, VJ_INO_ROOT, "f");
    make_file(x->fs, VJ_INO_ROOT, "g");
    make_dir(x->fs, VJ_INO_ROOT, "d");
    assert_int_equal(inodes_used(x), before + 3);
    assert_int_equal(vj_fs_link(x->fs, ino, VJ_INO_ROOT, "second", &attr), 0);
    assert_int_equal(inodes_used(x), before + 3);
    assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "second"), 0);
    assert_int_equal(vj_fs_rmdir(x->fs, VJ_INO_ROOT, "d"), 0);
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, VJ_INO_ROOT, "g", VJ_INO_ROOT, "f", 0), 0);
    assert_int_equal(inodes_used(x), before + 1);

    ino = look(x->fs, VJ_INO_ROOT, "f");
    assert_int_equal(vj_fs_open(x->fs, &root_caller, ino, O_RDWR, &h), 0);
    assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "f"), 0);
    assert_int_equal(inodes_used(x), before + 1);
    vj_fs_release(x->fs, h);
    assert_int_equal(inodes_used(x), before);

    assert_int_equal(
        vj_fs_tmpfile(x->fs, &root_caller, VJ_INO_ROOT, 0600, O_RDWR, &attr, &nameless),
        0);
    assert_int_equal(inodes_used(x), before + 1);
    assert_int_equal(vj_fs_link(x->fs, attr.st.st_ino, VJ_INO_ROOT, "named", &attr), 0);
    vj_fs_release(x->fs, nameless);
    assert_int_equal(inodes_used(x), before + 1);

    /* Left without a name by this mount, dropped by the next one or before. */
    x->is_known = true;
    make_file(x->fs, VJ_INO_ROOT, "left");
    assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "left"), 0);
    assert_int_equal(inodes_used(x), before + 1);
    fixture_close(x);
    open_volume(x, false);
    assert_int_equal(inodes_used(x), before + 1);
    x->is_known = false;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

/* As a request whose caller has died before it was served. */
static void a_dead_caller_changes_nothing(void **state)
{
    Fixture *x = *state;
    const VjSetattr set = {.what = VJ_SET_SIZE | VJ_SET_MTIME, .mtime = {.tv_sec = 1}};
    uint64_t ino = make_file(x->fs, VJ_INO_ROOT, "f"), at;
    uint64_t other = make_file(x->fs, VJ_INO_ROOT, "other");
    const VjEdit edit = {.old_len = 2, .src = "x", .len = 1};
    VjEdited edited;
    VjCancel cancel;
    VjHandle *h;
    VjAttr attr;

    assert_int_equal(vj_fs_open(x->fs, &root_caller, ino, O_RDWR, &h), 0);
    assert_int_equal(vj_fs_write(h, 0, "text", 4, 0, &at), 0);
    vj_cancel_init(&cancel);
    vj_cancel_fire(&cancel, 1);
    vj_cancel_enter(&cancel);
    assert_int_equal(vj_fs_write(h, 4, "more", 4, 0, &at), -ECANCELED);
    assert_int_equal(vj_fs_replace(&root_caller, h, &edit, &edited), -ECANCELED);
    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, ino, h, &set, &attr), -ECANCELED);
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, VJ_INO_ROOT, "f", VJ_INO_ROOT, "other", 0),
        -ECANCELED);
    assert_int_equal(vj_fs_mkdir(x->fs, &root_caller, VJ_INO_ROOT, "d", 0755, &attr),
                     -ECANCELED);
    assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "other"), -ECANCELED);
    assert_ptr_equal(vj_cancel_leave(), &cancel);
    vj_cancel_clear(&cancel);
    assert_int_equal(look(x->fs, VJ_INO_ROOT, "f"), ino);
    assert_int_equal(look(x->fs, VJ_INO_ROOT, "other"), other);
    assert_int_equal(look(x->fs, VJ_INO_ROOT, "d"), 0);
    assert_int_equal(vj_fs_fsync(h), 0);
    expect_text(h, "text");
    assert_int_equal(vj_fs_getattr(x->fs, ino, &attr), 0);
    assert_true(attr.st.st_mtim.tv_sec > 1);
    vj_fs_release(x->fs, h);
}

/* An earlier write has changed the times, if what was to set others fails. */
static void times_that_cannot_be_set(void **state)
{
    Fixture *x = *state;
    const VjSetattr old = {.what = VJ_SET_MTIME, .mtime = {.tv_sec = 1}},
                    set = {.what = VJ_SET_MTIME, .mtime = {.tv_sec = 2}};
    uint64_t ino = make_file(x->fs, VJ_INO_ROOT, "f"), at;
    g_autoptr(GError) error = NULL;
    VjHandle *h;
    VjAttr attr;

    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, ino, NULL, &old, &attr), 0);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, ino, O_RDWR, &h), 0);
    assert_int_equal(vj_fs_write(h, 0, "text", 4, 0, &at), 0);
    assert_true(vj_meta_fault_set(vj_volume_meta(x->v), "kinds=commit,fail=1", &error));
    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, ino, NULL, &set, &attr), -EIO);
    assert_true(vj_meta_fault_set(vj_volume_meta(x->v), "kinds=commit,fail=0", &error));
    assert_int_equal(vj_fs_getattr(x->fs, ino, &attr), 0);
    assert_true(attr.st.st_mtim.tv_sec > 2);
    assert_int_equal(vj_fs_fsync(h), 0);
    assert_int_equal(vj_fs_getattr(x->fs, ino, &attr), 0);
    assert_true(attr.st.st_mtim.tv_sec > 2);
    vj_fs_release(x->fs, h);
}

static const struct CMUnitTest tests[] = {
    TEST(test_names),
    TEST(test_who_owns_what),
    TEST(test_links),
    TEST(test_too_many_links),
    TEST(test_symlinks),
    TEST(test_rename_rules),
    TEST(test_rename_in_a_directory_older_than_the_name),
    TEST(test_whiteout),
    TEST(test_rename_after_content),
    TEST(test_exchange_after_contents),
    TEST(test_rename_below_a_ring),
    TEST(test_readdir_under_change),
    TEST(test_orphans),
    TEST(test_tmpfile),
    TEST(test_error_once),
    TEST(test_edits),
    TEST(test_edit_refused),
    TEST(test_set_id_bits),
    TEST(test_stages),
    TEST(test_many_stages),
    TEST(test_stages_of_all),
    TEST(test_times),
    TEST(test_xattrs),
    TEST(test_long_xattr_lists),
    TEST(test_setting_that_is_read_late),
    TEST(test_tend_from_the_end),
    TEST(test_acl_inherited),
    TEST(test_acl_and_mode),
    TEST(test_privileges),
    TEST(test_privileges_after_edits),
    TEST(test_privileges_at_size),
    TEST(test_inode_count),
    TEST(test_read_only),
    TEST(test_random),
    TEST(a_dead_caller_changes_nothing),
    TEST(times_that_cannot_be_set),
};

VJ_TEST_MAIN(tests)
