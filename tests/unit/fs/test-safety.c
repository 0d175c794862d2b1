/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-safety.c - safety=none|network|storage: what each call waits for, counted in
 * requests to the node that has the metadata
 */
#include "../../lib/key-node.h"
#include "fixture.h"
#include "meta/meta-private.h"

#include <fcntl.h>
#include <sys/xattr.h>

#define SAFETY "user.varjfs.safety"

typedef struct Far {
    Fixture x;
    KeyNode *node;
    unsigned received;
    uint64_t applies;
} Far;

static void open_volume(Far *f, VjSafety safety)
{
    fixture_open(&f->x, (VjVolumeOpen){.commit_seconds = 3600});
    vj_fs_set_safety(f->x.fs, safety);
}

static int setup(void **state)
{
    Far *f = g_new0(Far, 1);
    g_autofree char *options = NULL;
    g_autoptr(VjOpts) opts = vj_opts_new(vj_engine_memory_ops.options);
    VjMetaPlace place = {.dir_fd = -1, .create = true};

    f->node =
        key_node_new(vj_engine_open(&vj_engine_memory_ops, NULL, &place, opts, NULL));
    options = g_strdup_printf("meta=remote:%s:insecure", f->node->address);
    fixture_make(&f->x, options);
    open_volume(f, VJ_SAFETY_NONE);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Far *f = *state;

    fixture_expect_sound(&f->x);
    fixture_close(&f->x);
    vj_test_remove_dir(f->x.dir);
    key_node_free(f->node);
    g_free(f);
    return 0;
}

static void count_from_here(Far *f)
{
    f->applies = key_node_requests(f->node, VJ_OP_APPLY);
    f->received = f->node->received;
}

/* Since the last time, in all and of them received alone. */
static void expect_requests(Far *f, uint64_t all, unsigned received, const char *what)
{
    uint64_t applies = key_node_requests(f->node, VJ_OP_APPLY) - f->applies;

    if (applies != all || f->node->received - f->received != received) {
        fail_msg("%s: %" G_GUINT64_FORMAT " requests, %u received", what, applies,
                 f->node->received - f->received);
    }
    count_from_here(f);
}

static int set_safety(Far *f, uint64_t ino, const char *value)
{
    return vj_fs_setxattr(f->x.fs, &root_caller, ino, SAFETY, value, strlen(value), 0);
}

static uint64_t make(Far *f, uint64_t dir, const char *name, mode_t mode)
{
    VjAttr attr;
    int r = S_ISDIR(mode)
                ? vj_fs_mkdir(f->x.fs, &root_caller, dir, name, mode & 07777, &attr)
                : vj_fs_mknod(f->x.fs, &root_caller, dir, name, mode, 0, &attr);

    assert_int_equal(r, 0);
    return attr.st.st_ino;
}

/* The calls that change a name or an attribute, and each costs @all requests. */
static void names_and_attributes(Far *f, uint64_t dir, uint64_t all, unsigned received)
{
    const VjSetattr mode = {.what = VJ_SET_MODE, .mode = 0600};
    const VjSetattr size = {.what = VJ_SET_SIZE, .size = 10000};
    VjFs *fs = f->x.fs;
    VjHandle *h;
    VjAttr attr;
    uint64_t ino;

    (void)make(f, dir, "first", S_IFREG | 0644); /* what a session does once */
    count_from_here(f);
    ino = make(f, dir, "f", S_IFREG | 0644);
    expect_requests(f, all, received, "mknod");
    assert_int_equal(vj_fs_create(fs, &root_caller, dir, "c", 0644, O_RDWR, &attr, &h),
                     0);
    expect_requests(f, all, received, "create");
    vj_fs_release(fs, h);
    (void)make(f, dir, "d", S_IFDIR | 0755);
    expect_requests(f, all, received, "mkdir");
    assert_int_equal(vj_fs_symlink(fs, &root_caller, dir, "s", "there", &attr), 0);
    expect_requests(f, all, received, "symlink");
    assert_int_equal(vj_fs_link(fs, ino, dir, "l", &attr), 0);
    expect_requests(f, all, received, "link");
    assert_int_equal(vj_fs_rename(fs, &root_caller, dir, "l", dir, "m", 0), 0);
    expect_requests(f, all, received, "rename");
    assert_int_equal(vj_fs_unlink(fs, dir, "m"), 0);
    expect_requests(f, all, received, "unlink");
    assert_int_equal(vj_fs_rmdir(fs, dir, "d"), 0);
    expect_requests(f, all, received, "rmdir");
    assert_int_equal(vj_fs_setattr(fs, &root_caller, ino, NULL, &mode, &attr), 0);
    expect_requests(f, all, received, "chmod");
    assert_int_equal(vj_fs_setattr(fs, &root_caller, ino, NULL, &size, &attr), 0);
    expect_requests(f, all, received, "truncate");
    assert_int_equal(vj_fs_setxattr(fs, &root_caller, ino, "user.a", "1", 1, 0), 0);
    expect_requests(f, all, received, "setxattr");
    assert_int_equal(vj_fs_removexattr(fs, ino, "user.a"), 0);
    expect_requests(f, all, received, "removexattr");
    assert_int_equal(vj_fs_set_flags(fs, &root_caller, ino, VJ_INODE_NODUMP), 0);
    expect_requests(f, all, received, "chattr");
    assert_int_equal(vj_fs_rename(fs, &root_caller, dir, "no", dir, "m", 0), -ENOENT);
    assert_int_equal(vj_fs_getattr(fs, ino, &attr), 0);
    expect_requests(f, 0, 0, "what changes nothing");
}

/* Writes do not wait, and close does. */
static void contents(Far *f, uint64_t dir, uint64_t all, unsigned received)
{
    static uint8_t bytes[300000];
    VjFs *fs = f->x.fs;
    VjHandle *h;
    VjAttr attr;
    uint64_t at;

    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * i >> 8);
    }
    assert_int_equal(
        vj_fs_create(fs, &root_caller, dir, "content", 0644, O_RDWR, &attr, &h), 0);
    count_from_here(f);
    assert_int_equal(vj_fs_write(h, 0, bytes, sizeof bytes, 0, &at), 0);
    expect_requests(f, 0, 0, "write");
    assert_int_equal(vj_fs_flush(h), 0);
    expect_requests(f, all, received, "close");
    vj_fs_release(fs, h);
    assert_int_equal(
        vj_fs_create(fs, &root_caller, dir, "synced", 0644, O_RDWR, &attr, &h), 0);
    count_from_here(f);
    assert_int_equal(vj_fs_write(h, 0, "x", 1, 0, &at), 0);
    assert_int_equal(vj_fs_fsync(h), 0);
    expect_requests(f, 1, 0, "fsync");
    vj_fs_release(fs, h);
}

static void each_safety_of_the_mount(void **state)
{
    Far *f = *state;
    uint64_t dir;

    names_and_attributes(f, make(f, VJ_INO_ROOT, "none", S_IFDIR | 0755), 0, 0);
    vj_fs_set_safety(f->x.fs, VJ_SAFETY_NETWORK);
    dir = make(f, VJ_INO_ROOT, "network", S_IFDIR | 0755);
    names_and_attributes(f, dir, 1, 1);
    contents(f, dir, 1, 1);
    vj_fs_set_safety(f->x.fs, VJ_SAFETY_STORAGE);
    dir = make(f, VJ_INO_ROOT, "storage", S_IFDIR | 0755);
    names_and_attributes(f, dir, 1, 0);
    contents(f, dir, 1, 0);
}

static void each_safety_of_a_directory(void **state)
{
    Far *f = *state;
    uint64_t dir = make(f, VJ_INO_ROOT, "network", S_IFDIR | 0755), none, sub;

    assert_int_equal(set_safety(f, dir, "network"), 0);
    names_and_attributes(f, dir, 1, 1);
    contents(f, dir, 1, 1);
    /* What is made in it has the same. */
    sub = make(f, dir, "sub", S_IFDIR | 0755);
    names_and_attributes(f, sub, 1, 1);
    count_from_here(f);
    assert_int_equal(set_safety(f, dir, "storage"), 0);
    expect_requests(f, 1, 0, "the setting itself");
    (void)make(f, sub, "what was there keeps its own", S_IFREG | 0644);
    expect_requests(f, 1, 1, "sub");
    (void)make(f, dir, "new", S_IFREG | 0644);
    expect_requests(f, 1, 0, "dir");
    assert_int_equal(vj_fs_removexattr(f->x.fs, dir, SAFETY), 0);
    expect_requests(f, 0, 0, "back to the mount's");

    /* Less than the mount's. */
    vj_fs_set_safety(f->x.fs, VJ_SAFETY_STORAGE);
    none = make(f, VJ_INO_ROOT, "none", S_IFDIR | 0755);
    assert_int_equal(set_safety(f, none, "none"), 0);
    names_and_attributes(f, none, 0, 0);
    /* Of two directories the safer one counts. */
    assert_int_equal(vj_fs_rename(f->x.fs, &root_caller, none, "f", VJ_INO_ROOT, "f", 0),
                     0);
    expect_requests(f, 1, 0, "rename to another directory");
}

/* The caller hears of it; the change is there, and what follows is as ever. */
static void a_node_that_fails(void **state)
{
    Far *f = *state;
    VjFs *fs = f->x.fs;
    uint64_t dir = make(f, VJ_INO_ROOT, "dir", S_IFDIR | 0755), at;
    VjHandle *h, *none;
    VjAttr attr;

    assert_int_equal(set_safety(f, dir, "network"), 0);
    assert_int_equal(vj_fs_create(fs, &root_caller, dir, "open", 0644, O_RDWR, &attr, &h),
                     0);
    (void)make(f, dir, "old", S_IFREG | 0644);
    (void)make(f, dir, "gone", S_IFREG | 0644);
    key_node_set_fate(f->node, VJ_OP_APPLY, KEY_NODE_FAIL, 5, -EIO);
    assert_int_equal(vj_fs_mknod(fs, &root_caller, dir, "one", S_IFREG | 0644, 0, &attr),
                     -EIO);
    assert_int_equal(
        vj_fs_create(fs, &root_caller, dir, "two", 0644, O_RDWR, &attr, &none), -EIO);
    assert_null(none);
    assert_int_equal(vj_fs_rename(fs, &root_caller, dir, "old", dir, "new", 0), -EIO);
    assert_int_equal(vj_fs_unlink(fs, dir, "gone"), -EIO);
    assert_int_equal(vj_fs_write(h, 0, "content", 7, 0, &at), 0);
    assert_int_equal(vj_fs_flush(h), -EIO);
    assert_int_equal(vj_fs_flush(h), 0);
    vj_fs_release(fs, h);
    assert_int_not_equal(look(fs, dir, "one"), 0);
    assert_int_not_equal(look(fs, dir, "two"), 0);
    assert_int_equal(look(fs, dir, "old"), 0);
    assert_int_not_equal(look(fs, dir, "new"), 0);
    assert_int_equal(look(fs, dir, "gone"), 0);

    assert_int_equal(set_safety(f, dir, "storage"), 0);
    key_node_set_fate(f->node, VJ_OP_APPLY, KEY_NODE_FAIL, 1, -ENOSPC);
    assert_int_equal(
        vj_fs_mknod(fs, &root_caller, dir, "three", S_IFREG | 0644, 0, &attr), -ENOSPC);
    (void)make(f, dir, "four", S_IFREG | 0644);
}

enum { CALLERS = 8 };

typedef struct Caller {
    Far *f;
    uint64_t dir;
    unsigned i;
} Caller;

static gpointer caller_main(gpointer opaque)
{
    Caller *c = opaque;
    g_autofree char *name = g_strdup_printf("of caller %u", c->i);

    (void)make(c->f, c->dir, name, S_IFREG | 0644);
    return NULL;
}

static bool all_are_made(const Far *f, uint64_t dir)
{
    VjAttr attr;

    return vj_fs_getattr(f->x.fs, dir, &attr) == 0 &&
           look(f->x.fs, dir, "of caller 1") != 0 &&
           look(f->x.fs, dir, "of caller 2") != 0 &&
           look(f->x.fs, dir, "of caller 3") != 0 &&
           look(f->x.fs, dir, "of caller 4") != 0 &&
           look(f->x.fs, dir, "of caller 5") != 0 &&
           look(f->x.fs, dir, "of caller 6") != 0 &&
           look(f->x.fs, dir, "of caller 7") != 0;
}

/* Those that come while one waits share the next request. */
static void share_a_request(void **state, VjSafety safety)
{
    Far *f = *state;
    uint64_t dir = make(f, VJ_INO_ROOT, "dir", S_IFDIR | 0755);
    GThread *threads[CALLERS];
    Caller callers[CALLERS];
    bool receives = safety == VJ_SAFETY_NETWORK;

    vj_fs_set_safety(f->x.fs, safety);
    (void)make(f, dir, "first", S_IFREG | 0644);
    count_from_here(f);
    key_node_set_fate(f->node, VJ_OP_APPLY, KEY_NODE_HOLD, 1, 0);
    for (unsigned i = 0; i < CALLERS; i++) {
        callers[i] = (Caller){f, dir, i};
        threads[i] = g_thread_new("caller", caller_main, &callers[i]);
        if (i == 0) {
            key_node_wait_for_held(f->node, 1);
        }
    }
    while (!all_are_made(f, dir)) {
        g_thread_yield();
    }
    key_node_let_go(f->node);
    for (unsigned i = 0; i < CALLERS; i++) {
        g_thread_join(threads[i]);
    }
    expect_requests(f, 2, receives ? 2 : 0, "eight callers");
}

static void callers_share_a_send(void **state)
{
    share_a_request(state, VJ_SAFETY_NETWORK);
}

static void callers_share_a_flush(void **state)
{
    share_a_request(state, VJ_SAFETY_STORAGE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(each_safety_of_the_mount), TEST(each_safety_of_a_directory),
    TEST(a_node_that_fails),        TEST(callers_share_a_send),
    TEST(callers_share_a_flush),
};

VJ_TEST_MAIN_WITH_CODECS(tests)
