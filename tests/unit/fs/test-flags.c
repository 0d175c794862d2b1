/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-flags.c - what chattr(1) sets: who may, and what edits and open handles make of it
 *
 * What the flags forbid call by call is checked through a mount by tests/posix/flags.c;
 * here is what no system call shows.  The metadata engine returns conflicts at random.
 */
#include "fixture.h"

#include <linux/falloc.h>
#include <sys/xattr.h>

/* Rounds of the race between a change of the flags and writers. */
#define ROUNDS 2000

static const VjCaller other_caller = {.uid = 1001, .gid = 100, .umask = 022};
static const VjVolumeOpen how_open = {.wrap_meta = "fault:conflicts=20,seed=5"};

static int setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);

    fixture_make(x, NULL);
    fixture_open(x, how_open);
    *state = x;
    return 0;
}

static uint64_t create(Fixture *x, const VjCaller *who, const char *name, int flags,
                       VjHandle **h)
{
    VjAttr attr;

    assert_int_equal(vj_fs_create(x->fs, who, VJ_INO_ROOT, name, 0644, flags, &attr, h),
                     0);
    return attr.st.st_ino;
}

static uint32_t flags_of(Fixture *x, uint64_t ino)
{
    uint32_t flags;

    assert_int_equal(vj_fs_get_flags(x->fs, ino, &flags), 0);
    return flags;
}

static void set(Fixture *x, uint64_t ino, uint32_t flags)
{
    assert_int_equal(vj_fs_set_flags(x->fs, NULL, ino, flags), 0);
    assert_int_equal(flags_of(x, ino), flags);
}

/* ---- who may, and what stays ------------------------------------------------------- */

static void test_who(void **state)
{
    Fixture *x = *state;
    VjHandle *h;
    uint64_t ino = create(x, &user_caller, "f", O_RDWR, &h);
    const uint32_t free_flags = VJ_INODE_NODUMP | VJ_INODE_NOATIME;
    VjAttr attr;

    assert_int_equal(vj_fs_set_flags(x->fs, &other_caller, ino, free_flags), -EPERM);
    assert_int_equal(vj_fs_set_flags(x->fs, &user_caller, ino, free_flags), 0);
    assert_int_equal(vj_fs_set_flags(x->fs, &user_caller, ino, VJ_INODE_APPEND_ONLY),
                     -EPERM);
    assert_int_equal(
        vj_fs_set_flags(x->fs, &user_caller, ino, free_flags | VJ_INODE_IMMUTABLE),
        -EPERM);
    assert_int_equal(vj_fs_set_flags(x->fs, NULL, ino, VJ_INODE_TRANSFORM | free_flags),
                     -EOPNOTSUPP);
    assert_int_equal(vj_fs_set_flags(x->fs, NULL, ino, VJ_INODE_NOATIME << 1),
                     -EOPNOTSUPP);
    assert_int_equal(vj_fs_set_flags(x->fs, NULL, 4711, 0), -ENOENT);
    /* Root has what its capabilities give it, and none where nobody sees them. */
    assert_int_equal(vj_fs_set_flags(x->fs, &root_caller, ino, 0), -EPERM);
    assert_int_equal(flags_of(x, ino), free_flags);
    set(x, ino, VJ_INODE_IMMUTABLE);
    assert_int_equal(vj_fs_set_flags(x->fs, &user_caller, ino, 0), -EPERM);
    assert_int_equal(
        vj_fs_set_flags(x->fs, NULL, ino, VJ_INODE_IMMUTABLE | VJ_INODE_NODUMP), -EPERM);
    set(x, ino, VJ_INODE_IMMUTABLE);
    vj_fs_release(x->fs, h);
    fixture_close(x);
    fixture_open(x, how_open);
    assert_int_equal(flags_of(x, ino), VJ_INODE_IMMUTABLE);
    assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "f"), -EPERM);
    set(x, ino, 0);
    assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "f"), 0);

    assert_int_equal(
        vj_fs_mknod(x->fs, &root_caller, VJ_INO_ROOT, "p", S_IFIFO | 0600, 0, &attr), 0);
    assert_int_equal(vj_fs_set_flags(x->fs, NULL, attr.st.st_ino, 0), -EOPNOTSUPP);
}

/* A setting is part of the record as a flag is: one does not take the other away. */
static void test_beside_settings(void **state)
{
    Fixture *x = *state;
    VjHandle *h;
    uint64_t ino = create(x, &user_caller, "f", O_RDWR, &h);
    char value[16];
    size_t len;

    assert_int_equal(
        vj_fs_setxattr(x->fs, &user_caller, ino, "user.varjfs.transform", "xor", 3, 0),
        0);
    set(x, ino, VJ_INODE_IMMUTABLE);
    assert_int_equal(
        vj_fs_setxattr(x->fs, &user_caller, ino, "user.varjfs.transform", "none", 4, 0),
        -EPERM);
    assert_int_equal(vj_fs_removexattr(x->fs, ino, "user.varjfs.transform"), -EPERM);
    assert_int_equal(
        vj_fs_getxattr(x->fs, ino, "user.varjfs.transform", value, sizeof value, &len),
        0);
    assert_memory_equal(value, "xor", 3);
    set(x, ino, 0);
    assert_int_equal(vj_fs_removexattr(x->fs, ino, "user.varjfs.transform"), 0);
    vj_fs_release(x->fs, h);
}

/* ---- content ----------------------------------------------------------------------- */

static int edit(VjHandle *h, uint64_t offset, uint64_t old_len, const char *text)
{
    VjEdit e = {.offset = offset, .old_len = old_len, .src = text, .len = strlen(text)};
    VjEdited edited;

    return vj_fs_replace(&root_caller, h, &e, &edited);
}

static int append(VjHandle *h, const char *text)
{
    VjEdit e = {.src = text, .len = strlen(text), .append = true};
    VjEdited edited;

    return vj_fs_replace(&root_caller, h, &e, &edited);
}

static int hole(VjHandle *h, uint64_t offset, uint64_t len)
{
    VjEdit e = {.offset = offset, .len = len, .hole = true};
    VjEdited edited;

    return vj_fs_replace(&root_caller, h, &e, &edited);
}

static int shift(VjHandle *h)
{
    VjFileShift s = {.offset = 0, .len = 8, .src = "x", .src_len = 1};
    uint64_t size;
    VjEdited edited;

    assert_int_equal(vj_fs_change_count(h, &s.change, &size), 0);
    return vj_fs_shift(&root_caller, h, &s, &edited);
}

static void test_edits(void **state)
{
    Fixture *x = *state;
    VjHandle *h, *appender;
    uint64_t ino = create(x, &root_caller, "f", O_RDWR, &h), copied;
    VjFs *fs = x->fs;

    assert_int_equal(edit(h, 0, 0, "0123456789"), 0);
    set(x, ino, VJ_INODE_IMMUTABLE);
    assert_int_equal(edit(h, 3, 0, "in"), -EPERM);
    assert_int_equal(edit(h, 3, 2, ""), -EPERM);
    assert_int_equal(edit(h, 10, 0, "end"), -EPERM);
    assert_int_equal(append(h, "end"), -EPERM);
    assert_int_equal(hole(h, 3, 5), -EPERM);
    assert_int_equal(shift(h), -EPERM);
    assert_int_equal(vj_fs_write(h, 0, "x", 1, 0, NULL), -EPERM);
    assert_int_equal(vj_fs_write(h, 0, "x", 1, VJ_WRITE_APPEND, NULL), -EPERM);
    assert_int_equal(vj_fs_fallocate(h, 0, 0, 100), -EPERM);
    assert_int_equal(vj_fs_copy(h, 0, h, 5, 3, &copied), -EPERM);
    assert_int_equal(vj_fs_clear_privileges(fs, &user_caller, ino), -EPERM);
    expect_text(h, "0123456789");

    set(x, ino, VJ_INODE_APPEND_ONLY);
    assert_int_equal(vj_fs_open(fs, &root_caller, ino, O_RDWR, &appender), -EPERM);
    assert_null(appender);
    assert_int_equal(vj_fs_open(fs, &root_caller, ino, O_WRONLY | O_APPEND, &appender),
                     0);
    assert_int_equal(edit(appender, 3, 0, "in"), -EPERM);
    assert_int_equal(edit(appender, 3, 2, ""), -EPERM);
    assert_int_equal(edit(appender, 9, 1, "x"), -EPERM);
    assert_int_equal(edit(appender, 11, 0, "x"), -EPERM);
    assert_int_equal(edit(h, 3, 2, ""), -EPERM); /* also what was open before */
    assert_int_equal(hole(appender, 10, 5), -EPERM);
    assert_int_equal(shift(h), -EPERM);
    assert_int_equal(vj_fs_write(appender, 0, "x", 1, 0, NULL), -EPERM);
    expect_text(h, "0123456789");
    assert_int_equal(edit(appender, 10, 0, "a"), 0);
    assert_int_equal(append(appender, "b"), 0);
    assert_int_equal(vj_fs_write(appender, 0, "c", 1, VJ_WRITE_APPEND, NULL), 0);
    assert_int_equal(vj_fs_fallocate(appender, FALLOC_FL_KEEP_SIZE, 0, 4), 0);
    assert_int_equal(vj_fs_fallocate(h, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4),
                     -EPERM);
    expect_text(h, "0123456789abc");
    assert_int_equal(vj_fs_write(h, 0, "x", 1, 0, NULL), 0);
    expect_text(h, "x123456789abc");

    set(x, ino, 0);
    assert_int_equal(edit(appender, 0, 1, ""), 0);
    expect_text(h, "123456789abc");
    vj_fs_release(fs, appender);
    vj_fs_release(fs, h);
}

/* What was written before is written back, whatever the flag says by then. */
static void test_dirty(void **state)
{
    Fixture *x = *state;
    VjSetattr times = {.what = VJ_SET_ATIME | VJ_SET_MTIME};
    VjHandle *h;
    VjAttr before, after;
    uint64_t ino = create(x, &root_caller, "f", O_RDWR, &h);

    assert_int_equal(vj_fs_write(h, 0, "dirty", 5, 0, NULL), 0);
    set(x, ino, VJ_INODE_IMMUTABLE);
    assert_int_equal(vj_fs_getattr(x->fs, ino, &before), 0);
    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, ino, h, &times, &after), -EPERM);
    assert_int_equal(vj_fs_getattr(x->fs, ino, &after), 0);
    assert_int_equal(after.st.st_mtim.tv_sec, before.st.st_mtim.tv_sec);
    assert_int_equal(after.st.st_mtim.tv_nsec, before.st.st_mtim.tv_nsec);
    assert_int_equal(vj_fs_fsync(h), 0);
    vj_fs_release(x->fs, h);
    fixture_close(x);
    fixture_open(x, how_open);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, ino, O_RDWR, &h), -EPERM);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, ino, O_RDONLY, &h), 0);
    expect_text(h, "dirty");
    vj_fs_release(x->fs, h);
    assert_int_equal(flags_of(x, ino), VJ_INODE_IMMUTABLE);
}

typedef struct Race {
    Fixture *x;
    uint64_t ino;
    VjHandle *h;
    gint stop; /* atomic */
} Race;

static gpointer race_writer(gpointer opaque)
{
    Race *race = opaque;

    while (!g_atomic_int_get(&race->stop)) {
        int r = vj_fs_write(race->h, 0, "w", 1, 0, NULL);

        g_assert(r == 0 || r == -EPERM);
    }
    return NULL;
}

static gpointer race_opener(gpointer opaque)
{
    Race *race = opaque;

    while (!g_atomic_int_get(&race->stop)) {
        VjHandle *h;
        int r = vj_fs_open(race->x->fs, &root_caller, race->ino, O_RDWR, &h);

        g_assert(r == 0 || r == -EPERM);
        if (r == 0) {
            vj_fs_release(race->x->fs, h);
        }
    }
    return NULL;
}

/* What is remembered of a record is never older than what the last change made of it. */
static void test_race(void **state)
{
    Fixture *x = *state;
    Race race = {.x = x};
    GThread *threads[3];

    race.ino = create(x, &root_caller, "f", O_RDWR, &race.h);
    threads[0] = g_thread_new("writer", race_writer, &race);
    threads[1] = g_thread_new("writer", race_writer, &race);
    threads[2] = g_thread_new("opener", race_opener, &race);
    for (unsigned i = 0; i < ROUNDS; i++) {
        set(x, race.ino, VJ_INODE_IMMUTABLE);
        assert_int_equal(vj_fs_write(race.h, 1, "i", 1, 0, NULL), -EPERM);
        /* Others look at the record now: what they find must not last beyond the next
         * change. */
        set(x, race.ino, 0);
    }
    g_atomic_int_set(&race.stop, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++) {
        g_thread_join(threads[i]);
    }
    assert_int_equal(vj_fs_write(race.h, 0, "end", 3, 0, NULL), 0);
    expect_text(race.h, "end");
    vj_fs_release(x->fs, race.h);
}

/* ---- writers, reads ---------------------------------------------------------------- */

static void test_writers(void **state)
{
    Fixture *x = *state;
    VjHandle *h, *reader;
    uint64_t ino = create(x, &root_caller, "f", O_RDWR, &h);

    assert_true(vj_fs_has_writers(x->fs, ino));
    assert_int_equal(vj_fs_open(x->fs, &root_caller, ino, O_RDONLY, &reader), 0);
    vj_fs_release(x->fs, h);
    assert_false(vj_fs_has_writers(x->fs, ino));
    set(x, ino, VJ_INODE_IMMUTABLE);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, ino, O_RDWR, &h), -EPERM);
    assert_false(vj_fs_has_writers(x->fs, ino));
    vj_fs_release(x->fs, reader);
    assert_false(vj_fs_has_writers(x->fs, ino));
}

static void test_noatime(void **state)
{
    Fixture *x = *state;
    VjSetattr old = {.what = VJ_SET_ATIME, .atime = {.tv_sec = 1000}};
    char byte;
    size_t got;
    VjHandle *h;
    VjAttr attr;
    uint64_t ino = create(x, &root_caller, "f", O_RDWR, &h);

    assert_int_equal(vj_fs_write(h, 0, "x", 1, 0, NULL), 0);
    set(x, ino, VJ_INODE_NOATIME);
    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, ino, h, &old, &attr), 0);
    assert_int_equal(vj_fs_read(h, 0, &byte, 1, &got), 0);
    assert_int_equal(vj_fs_getattr(x->fs, ino, &attr), 0);
    assert_int_equal(attr.st.st_atim.tv_sec, 1000);
    set(x, ino, 0);
    assert_int_equal(vj_fs_read(h, 0, &byte, 1, &got), 0);
    assert_int_equal(vj_fs_getattr(x->fs, ino, &attr), 0);
    assert_true(attr.st.st_atim.tv_sec > 1000);
    vj_fs_release(x->fs, h);
}

/* Without HANDLE_KILLPRIV_V2 the kernel takes set-id bits away by a mode, before a write
 * too. */
static void test_mode_of_append(void **state)
{
    Fixture *x = *state;
    const VjSetattr chmod_to = {.what = VJ_SET_MODE | VJ_SET_CHECKED, .mode = 0777};
    VjSetattr to = {.what = VJ_SET_MODE | VJ_SET_CHECKED, .mode = 06777};
    VjHandle *h;
    VjAttr attr;
    uint64_t ino = create(x, &root_caller, "f", O_RDWR, &h);

    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, ino, NULL, &to, &attr), 0);
    to = (VjSetattr){.what = VJ_SET_MODE, .mode = 0777};
    set(x, ino, VJ_INODE_IMMUTABLE);
    assert_int_equal(vj_fs_setattr(x->fs, &user_caller, ino, NULL, &to, &attr), -EPERM);
    set(x, ino, VJ_INODE_APPEND_ONLY);
    assert_int_equal(vj_fs_setattr(x->fs, &user_caller, ino, NULL, &chmod_to, &attr),
                     -EPERM);
    for (mode_t other = 1; other < 07777; other++) {
        to.mode = other;
        if (other != 0777) {
            assert_int_equal(vj_fs_setattr(x->fs, &user_caller, ino, NULL, &to, &attr),
                             -EPERM);
        }
    }
    to.mode = 0777;
    assert_int_equal(vj_fs_setattr(x->fs, &user_caller, ino, NULL, &to, &attr), 0);
    assert_int_equal(attr.st.st_mode & 07777, 0777);
    assert_int_equal(vj_fs_setattr(x->fs, &user_caller, ino, NULL, &to, &attr), -EPERM);
    vj_fs_release(x->fs, h);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_who),     TEST(test_beside_settings),
    TEST(test_edits),   TEST(test_dirty),
    TEST(test_race),    TEST(test_writers),
    TEST(test_noatime), TEST(test_mode_of_append),
};

VJ_TEST_MAIN(tests)
