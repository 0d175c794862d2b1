/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-check.c - vj_fsck_names finds each violation, and nothing in a sound volume
 *
 *     /one, /two (links of one file, with an attribute)   /d/e/   /d/inner   /l (symlink)
 *
 * Each plant is one wrong key in that volume; then the sound metadata is put back.
 */
#include "../../lib/test.h"

#include "../../lib/plant.h"

#include "fs/fs-private.h"
#include "fsck/fsck.h"

typedef struct Fixture {
    char *dir;
    VjVolume *v;
    uint64_t one, d, e, inner, link; /* inode numbers */
    GString *said;
    VjCheckReport report;
} Fixture;

static const VjCaller root_caller = {.umask = 022};

static void open_as(Fixture *x, const VjVolumeOpen *how)
{
    g_autoptr(GError) error = NULL;

    if (!vj_volume_open(how, &x->v, &error)) {
        fail_msg("%s", error->message);
    }
}

static void open_volume(Fixture *x, bool check)
{
    VjVolumeOpen how = {.source = x->dir, .check = check};

    open_as(x, &how);
}

static void close_volume(Fixture *x)
{
    assert_int_equal(vj_volume_close(x->v), 0);
    x->v = NULL;
}

static void make_tree(Fixture *x)
{
    VjFs *fs = vj_fs_new(x->v);
    VjAttr attr;

    assert_int_equal(
        vj_fs_mknod(fs, &root_caller, VJ_INO_ROOT, "one", S_IFREG | 0644, 0, &attr), 0);
    x->one = attr.st.st_ino;
    assert_int_equal(vj_fs_link(fs, x->one, VJ_INO_ROOT, "two", &attr), 0);
    assert_int_equal(vj_fs_setxattr(fs, &root_caller, x->one, "user.colour", "red", 3, 0),
                     0);
    assert_int_equal(vj_fs_mkdir(fs, &root_caller, VJ_INO_ROOT, "d", 0755, &attr), 0);
    x->d = attr.st.st_ino;
    assert_int_equal(vj_fs_mkdir(fs, &root_caller, x->d, "e", 0755, &attr), 0);
    x->e = attr.st.st_ino;
    assert_int_equal(
        vj_fs_mknod(fs, &root_caller, x->d, "inner", S_IFREG | 0644, 0, &attr), 0);
    x->inner = attr.st.st_ino;
    assert_int_equal(vj_fs_symlink(fs, &root_caller, VJ_INO_ROOT, "l", "d/inner", &attr),
                     0);
    x->link = attr.st.st_ino;
    vj_fs_free(fs);
}

static int setup(void **state)
{
    g_autoptr(GError) error = NULL;
    Fixture *x = g_new0(Fixture, 1);
    VjVolumeMake how = {.options = NULL};

    x->dir = vj_test_make_dir();
    x->said = g_string_new(NULL);
    how.source = x->dir;
    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    open_volume(x, false);
    make_tree(x);
    close_volume(x);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    Fixture *x = *state;

    vj_test_remove_dir(x->dir);
    g_string_free(x->said, TRUE);
    g_free(x);
    return 0;
}

static void say(void *opaque, const char *text)
{
    Fixture *x = opaque;

    g_string_append_printf(x->said, "%s\n", text);
}

static void check_as(Fixture *x, const char *wrap_meta)
{
    VjVolumeOpen how = {.source = x->dir, .check = true, .wrap_meta = wrap_meta};

    open_as(x, &how);
    g_string_truncate(x->said, 0);
    x->report = (VjCheckReport){0};
    assert_int_equal(vj_fsck_names(x->v, say, x, &x->report), 0);
    close_volume(x);
}

/* Views that begin anew find the same, once. */
static void check(Fixture *x)
{
    g_autofree char *said = NULL;
    uint64_t problems;

    check_as(x, "fault:conflicts=400,seed=13");
    said = g_strdup(x->said->str);
    problems = x->report.problems;
    check_as(x, NULL);
    assert_string_equal(said, x->said->str);
    assert_int_equal(problems, x->report.problems);
}

/* ---- planting ---------------------------------------------------------------------- */

typedef int Plant(VjTxn *txn, const Fixture *x);

typedef struct Planting {
    Plant *plant;
    const Fixture *x;
} Planting;

static int plant_body(VjTxn *txn, void *opaque)
{
    const Planting *p = opaque;

    return p->plant(txn, p->x);
}

static int change_inode(VjTxn *txn, uint64_t ino, void (*change)(VjInode *inode))
{
    VjInode inode;
    int r = vj_inode_get(txn, ino, &inode);

    if (r == 0) {
        change(&inode);
        r = vj_inode_put(txn, &inode);
    }
    return r;
}

static VjSlice name_key(VjFsKey *key, uint64_t dir, const char *name)
{
    vj_fs_key_name(key, dir, name, strlen(name));
    return vj_fs_key_slice(key);
}

/* The key in readdir's order of a name that is there. */
static int order_key(VjTxn *txn, VjFsKey *key, uint64_t dir, const char *name)
{
    VjDentry d;
    int r = vj_name_get(txn, dir, name, &d);

    if (r == 0) {
        vj_fs_key_number(key, dir, d.cookie);
    }
    return r;
}

/* A whole name, counted or not. */
static int add_name(VjTxn *txn, uint64_t dir, const char *name, uint64_t ino,
                    uint8_t type, bool counted)
{
    VjInode inode;
    int r = vj_inode_get(txn, dir, &inode);

    if (r == 0) {
        r = vj_name_add(txn, &inode, name, ino, type);
    }
    if (!counted) {
        inode.entry_count--;
    }
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

static int plant_no_cookie(VjTxn *txn, const Fixture *x)
{
    VjFsKey key;
    int r = order_key(txn, &key, x->d, "inner");

    return r < 0 ? r : vj_txn_del(txn, VJ_SPACE_COOKIE, vj_fs_key_slice(&key));
}

static int plant_no_dentry(VjTxn *txn, const Fixture *x)
{
    VjFsKey key;

    return vj_txn_del(txn, VJ_SPACE_DENTRY, name_key(&key, x->d, "inner"));
}

static int plant_damaged_dentry(VjTxn *txn, const Fixture *x)
{
    VjFsKey key;

    return vj_plant_flip(txn, VJ_SPACE_DENTRY, name_key(&key, x->d, "inner"), 9);
}

static int plant_damaged_cookie(VjTxn *txn, const Fixture *x)
{
    VjFsKey key;
    int r = order_key(txn, &key, x->d, "inner");

    return r < 0 ? r : vj_plant_flip(txn, VJ_SPACE_COOKIE, vj_fs_key_slice(&key), 9);
}

static int plant_other_target(VjTxn *txn, const Fixture *x)
{
    VjDentry d;
    VjDentryDisk disk;
    VjFsKey key;
    int r = vj_name_get(txn, x->d, "inner", &d);

    d.ino = x->one;
    name_key(&key, x->d, "inner");
    vj_dentry_encode(&key, &d, &disk);
    return r < 0 ? r
                 : vj_txn_put(txn, VJ_SPACE_DENTRY, vj_fs_key_slice(&key),
                              vj_slice(&disk, sizeof disk));
}

static int plant_missing_target(VjTxn *txn, const Fixture *x)
{
    return vj_inode_del(txn, x->inner);
}

static int plant_wrong_type(VjTxn *txn, const Fixture *x)
{
    VjDentry d;
    int r = vj_name_get(txn, x->d, "inner", &d);

    d.type = DT_FIFO;
    return r < 0 ? r : vj_name_set(txn, x->d, "inner", &d);
}

static int plant_uncounted_name(VjTxn *txn, const Fixture *x)
{
    VjInode inode;
    int r = vj_inode_get(txn, x->one, &inode);

    inode.nlink++;
    if (r == 0) {
        r = vj_inode_put(txn, &inode);
    }
    return r < 0 ? r : add_name(txn, x->d, "three", x->one, DT_REG, false);
}

static void count_more(VjInode *inode)
{
    inode->entry_count++;
}

static int plant_counted_nothing(VjTxn *txn, const Fixture *x)
{
    return change_inode(txn, x->e, count_more);
}

static void forget_cookies(VjInode *inode)
{
    inode->next_cookie = 3;
}

static int plant_old_cookie_counter(VjTxn *txn, const Fixture *x)
{
    return change_inode(txn, x->d, forget_cookies);
}

static void link_more(VjInode *inode)
{
    inode->nlink++;
}

static int plant_links_of_file(VjTxn *txn, const Fixture *x)
{
    return change_inode(txn, x->one, link_more);
}

static int plant_links_of_directory(VjTxn *txn, const Fixture *x)
{
    return change_inode(txn, x->d, link_more);
}

static void set_parent_root(VjInode *inode)
{
    inode->parent = VJ_INO_ROOT;
}

static int plant_wrong_parent(VjTxn *txn, const Fixture *x)
{
    return change_inode(txn, x->e, set_parent_root);
}

static int plant_nameless_file(VjTxn *txn, const Fixture *x)
{
    VjInode inode = {.ino = x->link + 1, .mode = S_IFREG | 0600, .nlink = 0};

    return vj_inode_put(txn, &inode);
}

static int plant_nameless_directory(VjTxn *txn, const Fixture *x)
{
    VjInode inode = {.ino = x->link + 1,
                     .mode = S_IFDIR | 0700,
                     .nlink = 2,
                     .parent = x->d,
                     .next_cookie = 3};

    return vj_inode_put(txn, &inode);
}

/* Two directories that name each other and nobody else. */
static int plant_loop(VjTxn *txn, const Fixture *x)
{
    uint64_t a = x->link + 1, b = x->link + 2;
    VjInode one = {
        .ino = a, .mode = S_IFDIR | 0700, .nlink = 3, .parent = b, .next_cookie = 3};
    VjInode two = {
        .ino = b, .mode = S_IFDIR | 0700, .nlink = 3, .parent = a, .next_cookie = 3};
    int r = vj_inode_put(txn, &one);

    if (r == 0) {
        r = vj_inode_put(txn, &two);
    }
    if (r == 0) {
        r = add_name(txn, a, "down", b, DT_DIR, true);
    }
    return r < 0 ? r : add_name(txn, b, "down", a, DT_DIR, true);
}

static int plant_second_name_of_directory(VjTxn *txn, const Fixture *x)
{
    return add_name(txn, VJ_INO_ROOT, "again", x->e, DT_DIR, true);
}

static int plant_name_in_file(VjTxn *txn, const Fixture *x)
{
    VjDentry d = {.ino = x->inner, .cookie = 3, .type = DT_REG};

    return vj_name_set(txn, x->one, "within", &d);
}

static int plant_slash(VjTxn *txn, const Fixture *x)
{
    VjInode inode;
    int r = vj_inode_get(txn, x->one, &inode);

    inode.nlink++;
    if (r == 0) {
        r = vj_inode_put(txn, &inode);
    }
    return r < 0 ? r : add_name(txn, x->d, "a/b", x->one, DT_REG, true);
}

static int plant_dot_dot(VjTxn *txn, const Fixture *x)
{
    VjInode inode;
    int r = vj_inode_get(txn, x->one, &inode);

    inode.nlink++;
    if (r == 0) {
        r = vj_inode_put(txn, &inode);
    }
    return r < 0 ? r : add_name(txn, x->d, "..", x->one, DT_REG, true);
}

static int plant_damaged_xattr(VjTxn *txn, const Fixture *x)
{
    VjFsKey key;

    return vj_plant_flip(txn, VJ_SPACE_XATTR, name_key(&key, x->one, "user.colour"), 17);
}

static int plant_loose_xattr(VjTxn *txn, const Fixture *x)
{
    uint8_t bytes[sizeof(VjXattrDisk) + 1];
    VjFsKey key;

    name_key(&key, x->link + 5, "user.x");
    vj_xattr_encode(&key, "y", 1, bytes);
    return vj_txn_put(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key),
                      vj_slice(bytes, sizeof bytes));
}

/* @perm: of all entries.  A list that says no more than a mode is a list all the same. */
static int put_acl(VjTxn *txn, uint64_t ino, const char *name, uint16_t perm, size_t cut)
{
    const VjAcl acl = {.count = 3,
                       .entries = {{VJ_ACL_OWNER, perm, VJ_ACL_NO_ID},
                                   {VJ_ACL_OWNING_GROUP, perm, VJ_ACL_NO_ID},
                                   {VJ_ACL_OTHER, perm, VJ_ACL_NO_ID}}};
    uint8_t plain[VJ_ACL_MAX_BYTES], bytes[sizeof(VjXattrDisk) + VJ_ACL_MAX_BYTES];
    size_t len = vj_acl_encode(&acl, plain) - cut;
    VjFsKey key;

    name_key(&key, ino, name);
    vj_xattr_encode(&key, plain, len, bytes);
    return vj_txn_put(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key),
                      vj_slice(bytes, sizeof(VjXattrDisk) + len));
}

static int plant_no_acl(VjTxn *txn, const Fixture *x)
{
    return put_acl(txn, x->d, VJ_ACL_DEFAULT, 7, sizeof(VjAclEntryDisk));
}

static int plant_other_acl(VjTxn *txn, const Fixture *x)
{
    return put_acl(txn, x->d, VJ_ACL_ACCESS, 4, 0);
}

static int plant_acl_of_symlink(VjTxn *txn, const Fixture *x)
{
    return put_acl(txn, x->link, VJ_ACL_ACCESS, 7, 0);
}

static int plant_default_acl_of_file(VjTxn *txn, const Fixture *x)
{
    return put_acl(txn, x->one, VJ_ACL_DEFAULT, 7, 0);
}

static int plant_damaged_inode(VjTxn *txn, const Fixture *x)
{
    uint8_t key[8];

    vj_be64_set(key, x->inner);
    return vj_plant_flip(txn, VJ_SPACE_INODE, vj_slice(key, sizeof key), 70);
}

static int plant_damaged_directory(VjTxn *txn, const Fixture *x)
{
    uint8_t key[8];

    vj_be64_set(key, x->d);
    return vj_plant_flip(txn, VJ_SPACE_INODE, vj_slice(key, sizeof key), 70);
}

typedef struct Case {
    const char *name;
    Plant *plant;
    const char *line;
    int problems; /* exactly; -1: one or more */
} Case;

static const Case cases[] = {
    {"no cookie", plant_no_cookie, "readdir does not agree about \"inner\"", 1},
    {"no dentry", plant_no_dentry, "readdir has a name that lookup lacks", -1},
    {"damaged dentry", plant_damaged_dentry, "the name \"inner\" is damaged", -1},
    {"damaged cookie", plant_damaged_cookie, "readdir does not agree about \"inner\"",
     -1},
    {"other target", plant_other_target, "readdir does not agree about \"inner\"", -1},
    {"missing target", plant_missing_target, "which is missing", 1},
    {"wrong type", plant_wrong_type, "the name \"inner\" says type", 1},
    {"uncounted name", plant_uncounted_name, "more names than it counts", 1},
    {"counted nothing", plant_counted_nothing, "1 names fewer than it counts", 1},
    {"old cookie counter", plant_old_cookie_counter, "has cookie", -1},
    {"links of a file", plant_links_of_file, "link count 3, there are 2", 1},
    {"links of a directory", plant_links_of_directory, "link count 4, there are 3", 1},
    {"wrong parent", plant_wrong_parent, "\"..\" is 1", 1},
    {"nameless file", plant_nameless_file, "has no name and is no orphan", 1},
    {"nameless directory", plant_nameless_directory, "has no name and is no orphan", -1},
    {"loop", plant_loop, "is not below the root", -1},
    {"second name", plant_second_name_of_directory, "2 names", -1},
    {"name in a file", plant_name_in_file,
     "holds the name \"within\" and is no directory", -1},
    {"slash", plant_slash, "\"a/b\" is no name", 1},
    {"dot dot", plant_dot_dot, "\"..\" is no name", 1},
    {"damaged attribute", plant_damaged_xattr, "an extended attribute is damaged", 1},
    {"loose attribute", plant_loose_xattr, "which is missing", 1},
    {"no access list", plant_no_acl, "is no access control list", 1},
    {"access list and mode", plant_other_acl, "does not agree with its mode 0755", 1},
    {"access list of a symlink", plant_acl_of_symlink, "not for this type of file", 1},
    {"default list of a file", plant_default_acl_of_file, "not for this type of file", 1},
    /* vj_fsck_contents tells of the record: once is enough. */
    {"damaged inode", plant_damaged_inode, "", 0},
    {"damaged directory", plant_damaged_directory, "", 0},
};

static void each_violation_is_found(void **state)
{
    Fixture *x = *state;
    g_autoptr(GHashTable) files = vj_plant_files_new();

    vj_plant_keep(x->dir, files, false);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        Planting p = {.plant = cases[i].plant, .x = x};

        vj_plant(x->dir, plant_body, &p);
        check(x);
        if (strstr(x->said->str, cases[i].line) == NULL) {
            fail_msg("%s: \"%s\" is not in:\n%s", cases[i].name, cases[i].line,
                     x->said->str);
        }
        if (cases[i].problems >= 0 ? x->report.problems != (uint64_t)cases[i].problems
                                   : x->report.problems == 0) {
            fail_msg("%s: %" G_GUINT64_FORMAT " problems:\n%s", cases[i].name,
                     x->report.problems, x->said->str);
        }
        vj_plant_keep(x->dir, files, true);
    }
    check(x);
    assert_int_equal(x->report.problems, 0);
}

static void say_repaired(void *opaque, const char *text)
{
    Fixture *x = opaque;

    g_string_append_printf(x->said, "repaired: %s\n", text);
}

static void open_for_repair(Fixture *x)
{
    VjVolumeOpen how = {.source = x->dir,
                        .check = true,
                        .repair = true,
                        .wrap_meta = "fault:conflicts=100,seed=14"};

    open_as(x, &how);
}

/* Repairs and checks all until nothing is found; @rounds at the most. */
static void repair(Fixture *x, const char *name, unsigned rounds)
{
    open_for_repair(x);
    for (unsigned i = 0;; i++) {
        x->report = (VjCheckReport){0};
        assert_int_equal(vj_fsck_contents(x->v, true, say, x, &x->report), 0);
        assert_int_equal(vj_fsck_names(x->v, say, x, &x->report), 0);
        if (x->report.problems == 0) {
            break;
        }
        if (i == rounds) {
            fail_msg("%s: %" G_GUINT64_FORMAT " problems are left:\n%s", name,
                     x->report.problems, x->said->str);
        }
        g_autoptr(VjRepair) r = vj_repair_new(x->v, say_repaired, x);

        assert_int_equal(vj_repair_all(r), 0);
    }
    close_volume(x);
}

static void repair_each(Fixture *x)
{
    g_autoptr(GHashTable) files = vj_plant_files_new();

    vj_plant_keep(x->dir, files, false);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        Planting p = {.plant = cases[i].plant, .x = x};

        vj_plant(x->dir, plant_body, &p);
        g_string_truncate(x->said, 0);
        repair(x, cases[i].name, 2);
        if (strstr(x->said->str, "repaired: ") == NULL) {
            fail_msg("%s: nothing was repaired:\n%s", cases[i].name, x->said->str);
        }
        if (g_getenv("VARJFS_TEST_TELL") != NULL) {
            print_message("---- %s\n%s", cases[i].name, x->said->str);
        }
        vj_plant_keep(x->dir, files, true);
    }
}

static void each_violation_is_repaired(void **state)
{
    repair_each(*state);
}

/* What was one bit is eight bytes now. */
static void smears_are_repaired(void **state)
{
    vj_plant_smears = true;
    repair_each(*state);
    vj_plant_smears = false;
}

static int plant_cut_access_list(VjTxn *txn, const Fixture *x)
{
    return put_acl(txn, x->one, VJ_ACL_ACCESS, 7, sizeof(VjAclEntryDisk));
}

static mode_t mode_of(Fixture *x, uint64_t ino)
{
    VjInode inode = {.mode = 0};

    open_volume(x, true);
    assert_int_equal(vj_file_getattr(vj_volume_files(x->v), ino, &inode), 0);
    close_volume(x);
    return inode.mode;
}

/* The group's permissions in the mode were those of the list's mask. */
static void a_lost_list_gives_nobody_more(void **state)
{
    Fixture *x = *state;
    Planting p = {.plant = plant_cut_access_list, .x = x};

    assert_int_not_equal(mode_of(x, x->one) & 070, 0);
    vj_plant(x->dir, plant_body, &p);
    repair(x, "access list", 2);
    assert_int_equal(mode_of(x, x->one) & 070, 0);
}

static void sound_volume_is_clean(void **state)
{
    Fixture *x = *state;

    check(x);
    assert_string_equal(x->said->str, "");
    assert_int_equal(x->report.problems, 0);
    assert_int_equal(x->report.names, 6);
}

/* What an unlink leaves while the file is open: no name, and no problem. */
static int unlink_body(VjTxn *txn, const Fixture *x)
{
    VjInode dir, inode;
    VjDentry d;
    int r = vj_inode_get(txn, x->d, &dir);

    if (r == 0) {
        r = vj_inode_get(txn, x->inner, &inode);
    }
    if (r == 0) {
        r = vj_name_get(txn, x->d, "inner", &d);
    }
    if (r == 0) {
        r = vj_name_del(txn, &dir, "inner", &d);
    }
    if (r == 0) {
        r = vj_inode_put(txn, &dir);
    }
    inode.nlink = 0;
    if (r == 0) {
        r = vj_inode_put(txn, &inode);
    }
    return r < 0 ? r : vj_orphan_put(txn, x->inner);
}

static void orphan_is_no_problem(void **state)
{
    Fixture *x = *state;
    Planting p = {.plant = unlink_body, .x = x};

    vj_plant(x->dir, plant_body, &p);
    check(x);
    assert_string_equal(x->said->str, "");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(sound_volume_is_clean, setup, teardown),
    cmocka_unit_test_setup_teardown(each_violation_is_found, setup, teardown),
    cmocka_unit_test_setup_teardown(each_violation_is_repaired, setup, teardown),
    cmocka_unit_test_setup_teardown(smears_are_repaired, setup, teardown),
    cmocka_unit_test_setup_teardown(a_lost_list_gives_nobody_more, setup, teardown),
    cmocka_unit_test_setup_teardown(orphan_is_no_problem, setup, teardown),
};

VJ_TEST_MAIN(tests)
