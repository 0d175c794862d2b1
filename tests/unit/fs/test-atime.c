/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-atime.c - when a file was last read, beside changes of other kinds
 */
#include "fixture.h"

/* Rounds of a race that was lost once in about 6000 of them. */
#define ROUNDS 2000

/* A file of 10 bytes, read before it was changed. */
static uint64_t file_ino;

static int setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);
    VjHandle *h;
    VjAttr attr;

    fixture_make(x, NULL);
    /* A transaction that runs again leaves room for others in between. */
    fixture_open(x, (VjVolumeOpen){.wrap_meta = "fault:conflicts=50,seed=3"});
    assert_int_equal(
        vj_fs_create(x->fs, &root_caller, VJ_INO_ROOT, "f", 0644, O_RDWR, &attr, &h), 0);
    assert_int_equal(vj_fs_write(h, 0, "0123456789", 10, 0, NULL), 0);
    vj_fs_release(x->fs, h);
    file_ino = attr.st.st_ino;
    *state = x;
    return 0;
}

static struct timespec atime_of(Fixture *x)
{
    VjAttr attr;

    assert_int_equal(vj_fs_getattr(x->fs, file_ino, &attr), 0);
    return attr.st.st_atim;
}

static void read_byte(VjHandle *h)
{
    char byte;
    size_t got;

    assert_int_equal(vj_fs_read(h, 0, &byte, 1, &got), 0);
    assert_int_equal(got, 1);
}

/* A shift changes content as a write does: the next read counts. */
static void test_read_after_shift(void **state)
{
    Fixture *x = *state;
    VjFileShift shift = {.offset = 2, .len = 5, .src = "ab", .src_len = 2};
    struct timespec first;
    VjEdited edited;
    uint64_t size;
    VjHandle *h;

    assert_int_equal(vj_fs_open(x->fs, &root_caller, file_ino, O_RDWR, &h), 0);
    read_byte(h);
    first = atime_of(x);
    assert_int_equal(vj_fs_change_count(h, &shift.change, &size), 0);
    assert_int_equal(vj_fs_shift(&root_caller, h, &shift, &edited), 0);
    read_byte(h);
    assert_true(vj_fs_time_later(atime_of(x), first));
    vj_fs_release(x->fs, h);
}

static void change_owner(Fixture *x)
{
    VjSetattr set = {.what = VJ_SET_UID, .uid = 5};
    VjAttr attr;

    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, file_ino, NULL, &set, &attr), 0);
}

static void set_mtime(Fixture *x)
{
    VjSetattr set = {.what = VJ_SET_MTIME, .mtime = {5, 0}};
    VjAttr attr;

    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, file_ino, NULL, &set, &attr), 0);
}

static void set_attribute(Fixture *x)
{
    assert_int_equal(vj_fs_setxattr(x->fs, &root_caller, file_ino, "user.a", "1", 1, 0),
                     0);
}

static void remove_attribute(Fixture *x)
{
    assert_int_equal(vj_fs_removexattr(x->fs, file_ino, "user.a"), 0);
}

static void set_setting(Fixture *x)
{
    assert_int_equal(vj_fs_setxattr(x->fs, &root_caller, file_ino,
                                    "user.varjfs.transform", "xor", 3, 0),
                     0);
}

static void link_it(Fixture *x)
{
    VjAttr attr;

    assert_int_equal(vj_fs_link(x->fs, file_ino, VJ_INO_ROOT, "other", &attr), 0);
}

static void rename_it(Fixture *x)
{
    assert_int_equal(
        vj_fs_rename(x->fs, &root_caller, VJ_INO_ROOT, "other", VJ_INO_ROOT, "third", 0),
        0);
}

static void unlink_it(Fixture *x)
{
    assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "third"), 0);
}

/* Whatever makes ctime newer than atime: the next read by the same descriptor counts. */
static void test_read_after_changes_of_the_record(void **state)
{
    static void (*const changes[])(Fixture * x) = {
        change_owner, set_mtime, set_attribute, remove_attribute,
        set_setting,  link_it,   rename_it,     unlink_it,
    };
    Fixture *x = *state;
    VjHandle *h;

    assert_int_equal(vj_fs_open(x->fs, &root_caller, file_ino, O_RDWR, &h), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(changes); i++) {
        struct timespec before;

        read_byte(h);
        before = atime_of(x);
        changes[i](x);
        read_byte(h);
        if (!vj_fs_time_later(atime_of(x), before)) {
            fail_msg("change %zu", i);
        }
    }
    vj_fs_release(x->fs, h);
}

typedef struct Release {
    VjFs *fs;
    VjHandle *h;
} Release;

static gpointer release_main(gpointer opaque)
{
    const Release *r = opaque;

    vj_fs_release(r->fs, r->h);
    return NULL;
}

/* The kernel tells of a close when it likes: utimensat(2) may come first and must win. */
static void test_set_while_closing(void **state)
{
    Fixture *x = *state;

    for (int i = 1; i <= ROUNDS; i++) {
        VjSetattr set = {.what = VJ_SET_ATIME, .atime = {i, 5}};
        Release r = {.fs = x->fs};
        GThread *thread;
        VjAttr attr;

        assert_int_equal(vj_fs_open(x->fs, &root_caller, file_ino, O_RDONLY, &r.h), 0);
        read_byte(r.h);
        thread = g_thread_new("release", release_main, &r);
        for (int wait = i % 40; wait > 0;
             wait--) { /* now the one, now the other is first */
            (void)atime_of(x);
        }
        assert_int_equal(vj_fs_setattr(x->fs, &root_caller, file_ino, NULL, &set, &attr),
                         0);
        g_thread_join(thread);
        assert_int_equal(atime_of(x).tv_sec, i);
    }
}

/* What stat(2) shows while the time goes from memory into the record: never the old
 * one. */
static void test_shown_while_closing(void **state)
{
    Fixture *x = *state;
    VjSetattr set = {.what = VJ_SET_ATIME, .atime = {1000, 0}};

    for (int i = 0; i < ROUNDS; i++) {
        Release r = {.fs = x->fs};
        GThread *thread;
        VjAttr attr;

        assert_int_equal(vj_fs_setattr(x->fs, &root_caller, file_ino, NULL, &set, &attr),
                         0);
        assert_int_equal(vj_fs_open(x->fs, &root_caller, file_ino, O_RDONLY, &r.h), 0);
        read_byte(r.h);
        thread = g_thread_new("release", release_main, &r);
        do {
            assert_int_not_equal(atime_of(x).tv_sec, 1000);
        } while (g_atomic_int_get(&x->fs->read_count) > 0);
        g_thread_join(thread);
    }
}

/* Each close looks for itself: of the last two, at the same moment, neither would be the
 * last. */
static void test_first_of_two_closes(void **state)
{
    Fixture *x = *state;
    VjHandle *a, *b;

    assert_int_equal(vj_fs_open(x->fs, &root_caller, file_ino, O_RDWR, &a), 0);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, file_ino, O_RDONLY, &b), 0);
    assert_int_equal(vj_fs_write(a, 0, "x", 1, 0, NULL), 0);
    read_byte(b);
    assert_int_equal(g_atomic_int_get(&x->fs->read_count), 1);
    vj_fs_release(x->fs, b);
    assert_int_equal(g_atomic_int_get(&x->fs->read_count), 0);
    vj_fs_release(x->fs, a);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_read_after_shift),    TEST(test_read_after_changes_of_the_record),
    TEST(test_set_while_closing),   TEST(test_shown_while_closing),
    TEST(test_first_of_two_closes),
};

VJ_TEST_MAIN(tests)
