/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-place.c - volumes with a place of their own, with one that they share, and with
 * none
 */
#include "../../lib/test.h"
#include "file/file-private.h"

#include "volume/volume-private.h"

#include <sys/stat.h>

#define TEXT "what is in the file"

static VjVolume *open_in(VjPlace *place, bool read_only, const char *wrap_meta)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.place = place, .read_only = read_only, .wrap_meta = wrap_meta};
    VjVolume *v;

    if (!vj_volume_open(&how, &v, &error)) {
        fail_msg("%s", error->message);
    }
    return v;
}

static VjPlace *open_place(const char *dir)
{
    g_autoptr(GError) error = NULL;
    VjPlace *p;

    if (!vj_place_open(dir, &p, &error)) {
        fail_msg("%s", error->message);
    }
    return p;
}

/* A file system on keys in memory, which others find by @name, and objects in files. */
static char *make_in_directory(const char *name)
{
    char *dir = vj_test_make_dir();
    g_autofree char *options = g_strdup_printf("meta=memory:name=%s", name);
    VjVolumeMake how = {.source = dir, .options = options, .may_forget = true};
    g_autoptr(GError) error = NULL;

    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    return dir;
}

static bool has(const char *dir, const char *name)
{
    g_autofree char *path = g_build_filename(dir, name, NULL);

    return g_file_test(path, G_FILE_TEST_EXISTS);
}

static int create_body(VjTxn *txn, void *opaque)
{
    uint64_t *ino = opaque;
    int r = vj_ino_take(txn, ino);
    VjInode inode = {.ino = *ino, .generation = 1, .mode = S_IFREG | 0644, .nlink = 1};

    return r < 0 ? r : vj_inode_put(txn, &inode);
}

static uint64_t write_file(VjVolume *v)
{
    uint64_t ino;
    VjFile *f;

    assert_int_equal(vj_meta_run(v->meta, VJ_RUN_DEFAULT, create_body, &ino), 0);
    assert_int_equal(vj_file_open(vj_volume_files(v), ino, &f), 0);
    assert_int_equal(vj_file_write(f, 0, TEXT, strlen(TEXT), false, NULL), 0);
    vj_file_unref(f);
    assert_int_equal(vj_volume_sync(v), 0);
    return ino;
}

static void expect_file(VjVolume *v, uint64_t ino)
{
    char bytes[sizeof TEXT] = "";
    size_t got;
    VjFile *f;

    assert_int_equal(vj_file_open(vj_volume_files(v), ino, &f), 0);
    assert_int_equal(vj_file_read(f, 0, bytes, sizeof bytes, &got), 0);
    assert_int_equal(got, strlen(TEXT));
    assert_string_equal(bytes, TEXT);
    vj_file_unref(f);
}

/* ---- none -------------------------------------------------------------------------- */

static void without_directory(void **state)
{
    char *dir = vj_test_make_dir();
    g_autofree char *source = g_build_filename(dir, "none", NULL);
    g_autofree char *conf = NULL;
    VjVolumeMake how = {.source = source,
                        .options = "meta=memory:name=without,store=memory",
                        .may_forget = true,
                        .conf = &conf};
    g_autoptr(GError) error = NULL;
    VjPlace *place;
    VjVolume *v;
    uint64_t ino, bytes;

    (void)state;
    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    assert_non_null(strstr(conf, "\nmeta = memory:name=without\n"));
    for (unsigned round = 0; round < 2; round++) {
        place = vj_place_of_text(source, conf);
        v = open_in(place, false, NULL);
        ino = write_file(v);
        assert_int_equal(vj_volume_checkpoint(v, &bytes), -EOPNOTSUPP);
        assert_int_equal(vj_volume_close(v), 0);
        v = open_in(place, true, NULL);
        expect_file(v, ino);
        assert_int_equal(vj_volume_checkpoint(v, &bytes), -EROFS);
        assert_int_equal(vj_volume_close(v), 0);
        assert_int_equal(vj_place_close(place), 0);
    }
    assert_false(has(dir, "none"));
    vj_test_remove_dir(dir);
}

/* Two of them at once: nobody locks the other out. */
static void two_without_directory(void **state)
{
    VjVolume *v[2];
    VjPlace *place[2];
    uint64_t ino[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        g_autofree char *options =
            g_strdup_printf("meta=memory:name=two%u,store=null", i);
        g_autofree char *conf = NULL;
        VjVolumeMake how = {.source = "the same name",
                            .options = options,
                            .may_forget = true,
                            .conf = &conf};

        assert_true(vj_volume_make(&how, NULL));
        place[i] = vj_place_of_text("the same name", conf);
        v[i] = open_in(place[i], false, NULL);
        ino[i] = write_file(v[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        expect_file(v[i], ino[i]);
        assert_int_equal(vj_volume_close(v[i]), 0);
        assert_int_equal(vj_place_close(place[i]), 0);
    }
}

static void refuses_files(void **state)
{
    static const char *const options[] = {"store=memory",
                                          "meta=memory:name=refused,store=posix"};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(options); i++) {
        g_autofree char *conf = NULL;
        g_autoptr(GError) error = NULL;
        VjVolumeMake how = {.source = "nowhere",
                            .options = options[i],
                            .may_forget = true,
                            .conf = &conf};

        assert_false(vj_volume_make(&how, &error));
        vj_test_expect_error(&error, EINVAL, "nowhere: a driver that keeps files");
        assert_null(conf);
    }
}

/* What mkfs in a directory wrote names drivers with files: opened as text it fails in one
 * line, and so does what is no superblock. */
static void refuses_text(void **state)
{
    char *dir = vj_test_make_dir();
    g_autofree char *path = g_build_filename(dir, VJ_SUPERBLOCK_NAME, NULL);
    g_autofree char *text = NULL;
    VjVolumeMake make = {.source = dir};
    VjVolumeOpen how = {.place = NULL};
    g_autoptr(GError) error = NULL;
    VjVolume *v;

    (void)state;
    assert_true(vj_volume_make(&make, NULL));
    assert_true(g_file_get_contents(path, &text, NULL, NULL));
    how.place = vj_place_of_text("text", text);
    assert_false(vj_volume_open(&how, &v, &error));
    assert_null(v);
    vj_test_expect_error(&error, EINVAL, "text: a driver that keeps files");
    assert_int_equal(vj_place_close(how.place), 0);
    text[strlen(text) / 2] ^= 1;
    how.place = vj_place_of_text("text", text);
    assert_false(vj_volume_open(&how, &v, &error));
    assert_null(strstr(error->message, "fsck.varjfs"));
    vj_test_expect_error(&error, EBADMSG, "text/varjfs.conf");
    assert_int_equal(vj_place_close(how.place), 0);
    vj_test_remove_dir(dir);
}

/* ---- a directory ------------------------------------------------------------------- */

/* A directory has what its drivers ask for, and no more. */
static void only_needed_directories(void **state)
{
    char *files = make_in_directory("needed");
    char *none = vj_test_make_dir();
    VjVolumeMake how = {.source = none, .options = "store=null"};
    VjVolumeOpen open = {.source = none};
    VjVolume *v;

    (void)state;
    assert_false(has(files, VJ_META_DIR));
    assert_true(has(files, VJ_OBJECTS_DIR));
    assert_true(vj_volume_make(&how, NULL));
    assert_true(has(none, VJ_META_DIR));
    assert_false(has(none, VJ_OBJECTS_DIR));
    assert_true(vj_volume_open(&open, &v, NULL));
    assert_int_equal(vj_volume_close(v), 0);
    assert_true(vj_volume_is_clean(none));
    vj_test_remove_dir(none);
    vj_test_remove_dir(files);
}

static void expect_locked(const char *dir, bool is_locked)
{
    VjPlace *other = open_place(dir);
    g_autoptr(GError) error = NULL;

    assert_int_equal(vj_place_lock(other, false, 0, &error), !is_locked);
    if (is_locked) {
        vj_test_expect_error(&error, EBUSY, "is in use by another varjfs process");
    }
    assert_int_equal(vj_place_close(other), 0);
}

/* Volumes of one process, together and one after another.  Lock and mark are the
 * place's. */
static void shared(void **state)
{
    char *dir = make_in_directory("shared");
    VjPlace *place = open_place(dir);
    VjVolume *v, *second;
    uint64_t ino;

    (void)state;
    expect_locked(dir, false);
    v = open_in(place, false, NULL);
    expect_locked(dir, true);
    assert_true(has(dir, VJ_IN_USE_NAME));
    ino = write_file(v);
    second = open_in(place, true, NULL);
    expect_file(second, ino);
    assert_int_equal(vj_volume_close(v), 0);
    expect_locked(dir, true);
    assert_true(has(dir, VJ_IN_USE_NAME));
    expect_file(second, ino);
    assert_int_equal(vj_volume_close(second), 0);
    assert_true(has(dir, VJ_IN_USE_NAME));
    assert_false(vj_place_was_left_in_use(place));
    v = open_in(place, false, NULL);
    expect_file(v, ino);
    assert_int_equal(vj_volume_close(v), 0);
    expect_locked(dir, true);
    assert_int_equal(vj_place_close(place), 0);
    expect_locked(dir, false);
    assert_false(has(dir, VJ_IN_USE_NAME));
    assert_true(has(dir, VJ_CLEAN_NAME));
    vj_test_remove_dir(dir);
}

/* One of them could not be closed in order: whoever comes next comes after a crash. */
static void shared_after_failure(void **state)
{
    char *dir = make_in_directory("failed");
    VjPlace *place = open_place(dir);
    VjVolume *v = open_in(place, false, "fault");
    g_autoptr(GError) error = NULL;

    (void)state;
    (void)write_file(v);
    assert_true(vj_meta_fault_set(v->meta, "kinds=flush,every=1", &error));
    assert_true(vj_volume_close(v) < 0);
    assert_true(vj_place_was_left_in_use(place));
    v = open_in(place, false, NULL);
    assert_int_equal(vj_volume_close(v), 0);
    assert_int_equal(vj_place_close(place), 0);
    assert_true(has(dir, VJ_IN_USE_NAME));
    assert_false(has(dir, VJ_CLEAN_NAME));
    vj_test_remove_dir(dir);
}

static void lock_shared(VjPlace *place)
{
    g_autoptr(GError) error = NULL;

    if (!vj_place_lock(place, true, 0, &error)) {
        fail_msg("%s", error->message);
    }
}

/* By processes, of which each has a place of its own here.  The last one takes the mark
 * away, and only the first one can find that of a crash. */
static void shared_by_processes(void **state)
{
    char *dir = make_in_directory("processes");
    VjPlace *first = open_place(dir), *second = open_place(dir), *third;
    g_autoptr(GError) error = NULL;

    (void)state;
    lock_shared(first);
    assert_false(vj_place_was_left_in_use(first));
    assert_true(vj_place_mark(first, &error));
    expect_locked(dir, true);
    lock_shared(second);
    assert_false(vj_place_was_left_in_use(second));
    assert_true(vj_place_mark(second, &error));
    assert_int_equal(vj_place_close(first), 0);
    assert_true(has(dir, VJ_IN_USE_NAME));
    expect_locked(dir, true);
    assert_int_equal(vj_place_close(second), 0);
    assert_false(has(dir, VJ_IN_USE_NAME));
    expect_locked(dir, false);

    first = open_place(dir);
    lock_shared(first);
    assert_true(vj_place_mark(first, &error));
    first->has_failed = true;
    assert_int_equal(vj_place_close(first), 0);
    third = open_place(dir);
    lock_shared(third);
    assert_true(vj_place_was_left_in_use(third));
    assert_int_equal(vj_place_close(third), 0);
    vj_test_remove_dir(dir);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(without_directory),       cmocka_unit_test(two_without_directory),
    cmocka_unit_test(refuses_files),           cmocka_unit_test(refuses_text),
    cmocka_unit_test(only_needed_directories), cmocka_unit_test(shared),
    cmocka_unit_test(shared_after_failure),    cmocka_unit_test(shared_by_processes),
};

VJ_TEST_MAIN(tests)
