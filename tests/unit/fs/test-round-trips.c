/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-round-trips.c - how often the metadata engine is asked, where each time costs a
 * round trip
 *
 * Counted by the wrapper latency; VARJFS_TEST_LATENCY_US makes each call cost as long.
 */
#include "fixture.h"

#include "file/table.h"

/* Threads of the volume look into the metadata once in a while, beside what is counted:
 * of operations that need no call there are so many, and of these calls at most a few. */
enum { FILES = 10000, TIMES = 100, BESIDE = 5 };

static void open_far(Fixture *x)
{
    const char *us = g_getenv("VARJFS_TEST_LATENCY_US");
    g_autofree char *wrap = g_strdup_printf("latency:us=%s", us != NULL ? us : "0");

    fixture_open(x, (VjVolumeOpen){.wrap_meta = wrap, .commit_seconds = 3600});
}

static uint64_t calls(const Fixture *x)
{
    VjMetaCalls c;

    vj_meta_calls(vj_volume_meta(x->v), &c);
    return c.get_many + c.scan + c.apply + c.clock + c.count;
}

static uint64_t make(Fixture *x, uint64_t dir, const char *name, mode_t mode)
{
    VjAttr attr;
    int r = S_ISDIR(mode)
                ? vj_fs_mkdir(x->fs, &root_caller, dir, name, mode & 07777, &attr)
                : vj_fs_mknod(x->fs, &root_caller, dir, name, mode, 0, &attr);

    assert_int_equal(r, 0);
    return attr.st.st_ino;
}

/* A directory with FILES files, which nobody knows yet. */
static int setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);
    uint64_t dir;

    fixture_make(x, NULL);
    fixture_open(x, (VjVolumeOpen){.commit_seconds = 3600});
    dir = make(x, VJ_INO_ROOT, "dir", S_IFDIR | 0755);
    for (unsigned i = 0; i < FILES; i++) {
        g_autofree char *name = g_strdup_printf("a file of the name %u", i);

        (void)make(x, dir, name, S_IFREG | 0644);
    }
    fixture_close(x);
    open_far(x);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    Fixture *x = *state;

    fixture_close(x);
    fixture_open(x, (VjVolumeOpen){.commit_seconds = 3600});
    return fixture_teardown(state);
}

static uint64_t look(Fixture *x, uint64_t dir, const char *name)
{
    VjAttr attr;
    int r = vj_fs_lookup(x->fs, &root_caller, dir, name, &attr);

    assert_true(r == 0 || r == -ENOENT);
    return r == 0 ? attr.st.st_ino : 0;
}

typedef struct Listing {
    uint64_t cookie, names;
} Listing;

static bool visit(void *opaque, const VjDirent *entry, const VjAttr *attr)
{
    Listing *l = opaque;

    assert_non_null(attr);
    l->cookie = entry->cookie;
    l->names++;
    return true;
}

/* As the kernel reads one, 4 KiB at a time. */
static void reading_a_directory(void **state)
{
    Fixture *x = *state;
    uint64_t dir = look(x, VJ_INO_ROOT, "dir"), before = calls(x), seen, end = 0;
    Listing l = {0};

    do {
        seen = l.names;
        assert_int_equal(vj_fs_readdir(x->fs, dir, l.cookie, &end, 4096, true, visit, &l),
                         0);
    } while (l.names > seen);
    assert_int_equal(l.names, FILES + 2);
    print_message("# readdir with attributes of %u entries: %" G_GUINT64_FORMAT
                  " calls\n",
                  FILES, calls(x) - before);
    assert_in_range(calls(x) - before, 1, 50);

    /* All of it is known now. */
    before = calls(x);
    l = (Listing){0};
    do {
        seen = l.names;
        assert_int_equal(vj_fs_readdir(x->fs, dir, l.cookie, &end, 4096, true, visit, &l),
                         0);
    } while (l.names > seen);
    assert_in_range(calls(x) - before, 0, BESIDE);
}

static void attributes_of_a_known_file(void **state)
{
    Fixture *x = *state;
    uint64_t dir = look(x, VJ_INO_ROOT, "dir"), ino, before = calls(x);
    VjAttr attr;

    ino = look(x, dir, "a file of the name 77");
    assert_int_not_equal(ino, 0);
    assert_in_range(calls(x) - before, 1, 2 + BESIDE); /* the name, the inode */
    before = calls(x);
    for (unsigned i = 0; i < TIMES; i++) {
        assert_int_equal(vj_fs_getattr(x->fs, ino, &attr), 0);
        assert_int_equal(look(x, dir, "a file of the name 77"), ino);
    }
    assert_in_range(calls(x) - before, 0, BESIDE);
}

/* The kernel looks for a name before it makes one. */
static void making_files(void **state)
{
    Fixture *x = *state;
    uint64_t dir = look(x, VJ_INO_ROOT, "dir"), before, first, next = 0;

    assert_int_equal(look(x, dir, "new"), 0);
    before = calls(x);
    (void)make(x, dir, "new", S_IFREG | 0644);
    first = calls(x) - before;
    for (unsigned i = 0; i < TIMES; i++) {
        g_autofree char *name = g_strdup_printf("new %u", i);

        assert_int_equal(look(x, dir, name), 0);
        before = calls(x);
        (void)make(x, dir, name, S_IFREG | 0644);
        next += calls(x) - before;
    }
    print_message("# the first file in a directory: %" G_GUINT64_FORMAT
                  " calls, the next %u: %" G_GUINT64_FORMAT "\n",
                  first, TIMES, next);
    assert_in_range(first, 0, 2 + BESIDE);
    assert_in_range(next, 0, BESIDE);
    before = calls(x);
    assert_int_equal(vj_fs_sync_names(x->fs), 0);
    assert_in_range(calls(x) - before, 0, 1 + BESIDE); /* by one, or by the log */
    assert_int_not_equal(look(x, dir, "new 99"), 0);
}

/* Their numbers come in blocks. */
static void creates_do_not_write_the_counter(void **state)
{
    Fixture *x = *state;
    VjMeta *meta = vj_volume_meta(x->v);
    uint64_t dir = look(x, VJ_INO_ROOT, "dir");
    VjMetaStats before, after;

    vj_meta_stats(meta, &before);
    for (unsigned i = 0; i < 2 * VJ_INO_BLOCK; i++) {
        g_autofree char *name = g_strdup_printf("new %u", i);

        (void)make(x, dir, name, S_IFREG | 0644);
    }
    vj_meta_stats(meta, &after);
    assert_int_equal(after.puts[VJ_SPACE_SYSTEM] - before.puts[VJ_SPACE_SYSTEM], 2);
    assert_int_equal(after.commits - before.commits, 2 * VJ_INO_BLOCK + 2);
}

/* A round of write-back is for everybody who has the file, whoever began it. */
static void a_killed_caller_fails_no_write_back(void **state)
{
    Fixture *x = *state;
    uint64_t dir = look(x, VJ_INO_ROOT, "dir"), at;
    g_autofree uint8_t *bytes = g_malloc0(VJ_MIB);
    VjHandle *his, *another;
    VjCancel cancel;
    VjAttr attr;

    assert_int_equal(
        vj_fs_create(x->fs, &root_caller, dir, "his", 0644, O_RDWR, &attr, &his), 0);
    assert_int_equal(vj_fs_open(x->fs, &root_caller, attr.st.st_ino, O_RDWR, &another),
                     0);
    assert_int_equal(vj_fs_write(his, 0, bytes, VJ_MIB, 0, &at), 0);
    vj_cancel_init(&cancel);
    vj_cancel_fire(&cancel);
    vj_cancel_enter(&cancel);
    (void)!vj_fs_sync(his);
    assert_ptr_equal(vj_cancel_leave(), &cancel);
    vj_cancel_clear(&cancel);
    assert_int_equal(vj_fs_sync(another), 0);
    assert_int_equal(vj_fs_take_error(another), 0);
    vj_fs_release(x->fs, his);
    vj_fs_release(x->fs, another);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(reading_a_directory, setup, teardown),
    cmocka_unit_test_setup_teardown(attributes_of_a_known_file, setup, teardown),
    cmocka_unit_test_setup_teardown(making_files, setup, teardown),
    cmocka_unit_test_setup_teardown(creates_do_not_write_the_counter, setup, teardown),
    cmocka_unit_test_setup_teardown(a_killed_caller_fails_no_write_back, setup, teardown),
};

VJ_TEST_MAIN(tests)
