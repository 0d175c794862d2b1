/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-settings.c - user.varjfs.*: set, inherited, effective, removed
 *
 * The volume's default is zstd:3; the engine returns conflicts now and then.
 */
#include "fixture.h"

#include <sys/xattr.h>

#define TRANSFORM "user.varjfs.transform"
#define MODE "user.varjfs.mode"
#define SAFETY "user.varjfs.safety"
#define OBJECTS "user.varjfs.objects"

static void open_volume(Fixture *x, const char *transform)
{
    fixture_open(x, (VjVolumeOpen){.transform = transform,
                                   .wrap_meta = "fault:conflicts=20,seed=3"});
}

static int setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);

    x->is_known = true;
    fixture_make(x, "transform=zstd:3,objects=64K");
    open_volume(x, NULL);
    *state = x;
    return 0;
}

static uint64_t make(Fixture *x, uint64_t dir, const char *name, mode_t type)
{
    VjAttr attr;
    int r = type == S_IFDIR ? vj_fs_mkdir(x->fs, &root_caller, dir, name, 0755, &attr)
            : type == S_IFLNK
                ? vj_fs_symlink(x->fs, &root_caller, dir, name, "there", &attr)
                : vj_fs_mknod(x->fs, &root_caller, dir, name, type | 0644, 0, &attr);

    assert_int_equal(r, 0);
    return attr.st.st_ino;
}

static int set(Fixture *x, uint64_t ino, const char *name, const char *value, int flags)
{
    return vj_fs_setxattr(x->fs, &root_caller, ino, name, value, strlen(value), flags);
}

static void expect(Fixture *x, uint64_t ino, const char *name, const char *value)
{
    char got[256] = "";
    size_t len;

    assert_int_equal(vj_fs_getxattr(x->fs, ino, name, got, sizeof got - 1, &len), 0);
    got[len] = '\0';
    assert_string_equal(got, value);
}

static void expect_list(Fixture *x, uint64_t ino, const char *names)
{
    char got[256] = "";
    size_t len;

    assert_int_equal(vj_fs_listxattr(x->fs, &root_caller, ino, got, sizeof got - 1, &len),
                     0);
    for (size_t i = 0; i < len; i++) {
        got[i] = got[i] == '\0' ? ' ' : got[i];
    }
    assert_string_equal(got, names);
}

static void expect_status(Fixture *x, uint64_t ino, const char *part)
{
    char got[512] = "";
    size_t len;

    assert_int_equal(
        vj_fs_getxattr(x->fs, ino, "user.varjfs.status", got, sizeof got - 1, &len), 0);
    got[len] = '\0';
    if (strstr(got, part) == NULL) {
        fail_msg("status has no \"%s\": %s", part, got);
    }
}

static void defaults(void **state)
{
    Fixture *x = *state;
    uint64_t f = make(x, VJ_INO_ROOT, "f", S_IFREG);

    expect(x, f, TRANSFORM, "zstd:3");
    expect(x, VJ_INO_ROOT, TRANSFORM, "zstd:3");
    expect(x, f, MODE, "client");
    expect(x, f, SAFETY, "none");
    expect(x, f, OBJECTS, "65536");
    expect_list(x, f, "");
    expect_status(x, f, "transform=zstd:3\nmode=client\n");
    assert_int_equal(set(x, f, TRANSFORM, "none", 0), 0);
    expect(x, f, TRANSFORM, "none");
    expect_list(x, f, TRANSFORM " ");
    expect_status(x, f, "transform=none\n");
    /* Back to what mkfs chose, not to none. */
    assert_int_equal(vj_fs_removexattr(x->fs, f, TRANSFORM), 0);
    expect(x, f, TRANSFORM, "zstd:3");
    expect_list(x, f, "");
    assert_int_equal(vj_fs_removexattr(x->fs, f, TRANSFORM), -ENODATA);
}

static void values(void **state)
{
    static const char *const good[][2] = {
        {"none", "none"}, {"xor", "xor"},     {"xor:5A", "xor:5a"},   {"rle", "rle"},
        {"lz4", "lz4"},   {"lz4:9", "lz4:9"}, {"zstd:19", "zstd:19"},
    };
    static const char *const bad[] = {
        "",      "rot13",  "ZSTD", "zstd:", "zstd:x",   "zstd:100",  "xor:5",   "xor:xy",
        "rle:1", "none:1", "lz4 ", " lz4",  "lz4,zstd", "unknown-9", "zstd:3:4"};
    char longest[100];
    Fixture *x = *state;
    uint64_t f = make(x, VJ_INO_ROOT, "f", S_IFREG);

    for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
        assert_int_equal(set(x, f, TRANSFORM, good[i][0], 0), 0);
        expect(x, f, TRANSFORM, good[i][1]);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        if (set(x, f, TRANSFORM, bad[i], 0) != -EINVAL) {
            fail_msg("\"%s\" was taken", bad[i]);
        }
        expect(x, f, TRANSFORM, "zstd:19");
    }
    memset(longest, 'z', sizeof longest);
    assert_int_equal(
        vj_fs_setxattr(x->fs, &root_caller, f, TRANSFORM, longest, sizeof longest, 0),
        -EINVAL);
    assert_int_equal(vj_fs_setxattr(x->fs, &root_caller, f, TRANSFORM, "lz4", 4, 0),
                     -EINVAL); /* with its NUL */
    assert_int_equal(set(x, f, "user.varjfs.unheard-of", "1", 0), -EINVAL);
    assert_int_equal(set(x, f, "user.varjfs.status", "1", 0), -EPERM);
    assert_int_equal(set(x, f, MODE, "transport", 0), 0);
    assert_int_equal(set(x, f, MODE, "lz4", 0), -EINVAL);
    expect(x, f, MODE, "transport");
    expect(x, f, TRANSFORM, "zstd:19");
    assert_int_equal(set(x, f, SAFETY, "storage", 0), 0);
    assert_int_equal(set(x, f, SAFETY, "disk", 0), -EINVAL);
    assert_int_equal(set(x, f, SAFETY, "", 0), -EINVAL);
    expect(x, f, SAFETY, "storage");
    assert_int_equal(vj_fs_removexattr(x->fs, f, SAFETY), 0);
    expect(x, f, SAFETY, "none");
    assert_int_equal(vj_fs_removexattr(x->fs, f, SAFETY), -ENODATA);
}

static void create_and_replace(void **state)
{
    Fixture *x = *state;
    uint64_t d = make(x, VJ_INO_ROOT, "d", S_IFDIR), f;

    assert_int_equal(set(x, d, TRANSFORM, "lz4", XATTR_REPLACE), -ENODATA);
    assert_int_equal(set(x, d, TRANSFORM, "lz4", XATTR_CREATE), 0);
    assert_int_equal(set(x, d, TRANSFORM, "rle", XATTR_CREATE), -EEXIST);
    assert_int_equal(set(x, d, TRANSFORM, "rle", XATTR_REPLACE), 0);
    f = make(x, d, "f", S_IFREG);
    /* Inherited is there, and not listed: both are right about it. */
    assert_int_equal(set(x, f, TRANSFORM, "none", XATTR_REPLACE), 0);
    assert_int_equal(set(x, make(x, d, "g", S_IFREG), TRANSFORM, "none", XATTR_CREATE),
                     0);
}

static void inheritance(void **state)
{
    Fixture *x = *state;
    uint64_t d = make(x, VJ_INO_ROOT, "d", S_IFDIR), sub, f, link, fifo;
    VjHandle *h;
    VjAttr attr;

    assert_int_equal(set(x, d, TRANSFORM, "xor:5a", 0), 0);
    assert_int_equal(set(x, d, OBJECTS, "4K", 0), 0);
    assert_int_equal(set(x, d, MODE, "server", 0), 0);
    assert_int_equal(set(x, d, SAFETY, "network", 0), 0);
    expect_list(x, d, TRANSFORM " " MODE " " OBJECTS " " SAFETY " ");
    sub = make(x, d, "sub", S_IFDIR);
    f = make(x, sub, "f", S_IFREG);
    expect(x, f, TRANSFORM, "xor:5a");
    expect(x, f, OBJECTS, "4096");
    expect(x, f, MODE, "server");
    expect(x, f, SAFETY, "network");
    expect_list(x, sub, "");
    expect_list(x, f, "");
    assert_int_equal(vj_fs_tmpfile(x->fs, &user_caller, sub, 0600, O_RDWR, &attr, &h), 0);
    expect(x, attr.st.st_ino, TRANSFORM, "xor:5a");
    vj_fs_release(x->fs, h);
    /* What cannot be transformed has no choice to show. */
    link = make(x, d, "link", S_IFLNK);
    fifo = make(x, d, "fifo", S_IFIFO);
    expect(x, link, TRANSFORM, "zstd:3");
    assert_int_equal(set(x, link, TRANSFORM, "lz4", 0), -EPERM);
    assert_int_equal(set(x, fifo, TRANSFORM, "lz4", 0), -EPERM);
    /* A change of mind is for what is made from now on. */
    assert_int_equal(set(x, sub, TRANSFORM, "rle", 0), 0);
    expect(x, f, TRANSFORM, "xor:5a");
    expect(x, make(x, sub, "g", S_IFREG), TRANSFORM, "rle");
    assert_int_equal(vj_fs_removexattr(x->fs, sub, TRANSFORM), 0);
    expect(x, make(x, sub, "i", S_IFREG), TRANSFORM, "zstd:3");
    assert_int_equal(vj_fs_removexattr(x->fs, f, TRANSFORM), 0);
    expect(x, f, TRANSFORM, "zstd:3");
    /* A name elsewhere changes nothing. */
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, sub, "g", VJ_INO_ROOT, "g", 0), 0);
    expect(x, f, OBJECTS, "4096");
}

/* Without a choice of its own, a file has the mount's of today. */
static void the_mounts_safety(void **state)
{
    Fixture *x = *state;
    uint64_t d = make(x, VJ_INO_ROOT, "d", S_IFDIR), f = make(x, d, "f", S_IFREG), g;

    vj_fs_set_safety(x->fs, VJ_SAFETY_STORAGE);
    expect(x, f, SAFETY, "storage");
    assert_int_equal(set(x, d, SAFETY, "none", 0), 0);
    g = make(x, d, "g", S_IFREG);
    expect(x, g, SAFETY, "none");
    expect_list(x, g, "");
    vj_fs_set_safety(x->fs, VJ_SAFETY_NETWORK);
    expect(x, f, SAFETY, "network");
    expect(x, g, SAFETY, "none");
}

/* The directory's choice, then the mount's, then the volume's. */
static void the_mounts_choice(void **state)
{
    Fixture *x = *state;
    uint64_t d = make(x, VJ_INO_ROOT, "d", S_IFDIR), f, sub, in_d;

    assert_int_equal(set(x, d, TRANSFORM, "none", 0), 0);
    fixture_close(x);
    open_volume(x, "lz4:9");
    f = make(x, VJ_INO_ROOT, "f", S_IFREG);
    sub = make(x, VJ_INO_ROOT, "sub", S_IFDIR);
    in_d = make(x, d, "f", S_IFREG);
    expect(x, f, TRANSFORM, "lz4:9");
    expect_list(x, f, "");
    expect(x, sub, TRANSFORM, "zstd:3"); /* what is made in it later is another mount's */
    expect(x, in_d, TRANSFORM, "none");
    fixture_close(x);
    open_volume(x, NULL);
    expect(x, f, TRANSFORM, "lz4:9"); /* it stays what it was made with */
    assert_int_equal(vj_fs_removexattr(x->fs, f, TRANSFORM), 0);
    expect(x, f, TRANSFORM, "zstd:3");
    expect(x, make(x, sub, "f", S_IFREG), TRANSFORM, "zstd:3");
}

static void an_unknown_choice_of_the_mount(void **state)
{
    Fixture *x = *state;
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = x->dir, .transform = "rot13"};
    VjVolume *v;

    fixture_close(x);
    assert_false(vj_volume_open(&how, &v, &error));
    assert_int_equal(error->code, EINVAL);
    open_volume(x, NULL);
}

/* Any owner, or who may write, recodes; the rest of the rules is the kernel's. */
static void who_may_recode(void **state)
{
    Fixture *x = *state;
    uint64_t f = make(x, VJ_INO_ROOT, "f", S_IFREG);
    const VjSetattr give = {.what = VJ_SET_UID, .uid = 1000};
    const VjCaller other = {.uid = 1001};
    VjRecode step = {.offset = 0};
    VjHandle *reader, *writer;
    VjAttr attr;

    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, f, NULL, &give, &attr), 0);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_RDONLY, &reader), 0);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, f, O_WRONLY, &writer), 0);
    assert_int_equal(vj_fs_recode(reader, &other, &step), -EBADF);
    assert_int_equal(vj_fs_recode(reader, &user_caller, &step), 0);
    assert_true(step.done);
    assert_int_equal(vj_fs_recode(reader, &root_caller, &step), 0);
    assert_int_equal(vj_fs_recode(writer, &other, &step), 0);
    vj_fs_release(x->fs, reader);
    vj_fs_release(x->fs, writer);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

static const struct CMUnitTest tests[] = {
    TEST(defaults),           TEST(values),
    TEST(create_and_replace), TEST(inheritance),
    TEST(the_mounts_choice),  TEST(an_unknown_choice_of_the_mount),
    TEST(who_may_recode),     TEST(the_mounts_safety),
};

VJ_TEST_MAIN_WITH_CODECS(tests)
