/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-volume-file.c - volume files: making one, what a failure leaves, opening, locks
 *
 * Keys and objects are in memory, under a name that no other test has.
 */
#include "../../lib/test.h"
#include "volume/volume-private.h"

#include <fcntl.h>
#include <sys/stat.h>

static bool never(void *opaque)
{
    (void)opaque;
    return false;
}

/* Each test has a directory, and a volume file in it. */
typedef struct Fixture {
    char *dir, *file, *making, *options;
    unsigned polls; /* calls of cancelled */
    unsigned stop;  /* the one that says so; 0: none */
    VjVolumeMaking told;
    guint told_count, told_files;
} Fixture;

static bool is_cancelled(void *opaque)
{
    Fixture *f = opaque;

    return ++f->polls == f->stop;
}

static void opened(void *opaque, const VjVolumeMaking *making)
{
    Fixture *f = opaque;

    f->told = *making;
    f->told_count++;
    f->told_files = making->files->read->len + making->files->written->len;
}

static int setup(void **state)
{
    static unsigned number;
    Fixture *f = g_new0(Fixture, 1);

    f->dir = vj_test_make_dir();
    f->file = g_build_filename(f->dir, "volume.conf", NULL);
    f->making = g_strconcat(f->file, ".making", NULL);
    f->options =
        g_strdup_printf("meta=memory:name=volume-file-%u,store=memory", number++);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;

    vj_test_remove_dir(f->dir);
    g_free(f->file);
    g_free(f->making);
    g_free(f->options);
    g_free(f);
    return 0;
}

static bool make(Fixture *f, bool force, GError **error)
{
    VjVolumeMake how = {.source = f->file,
                        .options = f->options,
                        .force = force,
                        .may_forget = true,
                        .opened = opened,
                        .cancelled = is_cancelled,
                        .opaque = f};

    f->polls = 0;
    return vj_volume_make(&how, error);
}

static void must_make(Fixture *f, bool force)
{
    g_autoptr(GError) error = NULL;

    if (!make(f, force, &error)) {
        fail_msg("%s", error->message);
    }
}

static void expect_not_made(Fixture *f, bool force, int code, const char *part)
{
    g_autoptr(GError) error = NULL;

    assert_false(make(f, force, &error));
    vj_test_expect_error(&error, code, part);
}

static bool is_there(const char *path)
{
    return g_file_test(path, G_FILE_TEST_EXISTS);
}

static char *uuid_in(const char *path)
{
    g_autofree char *text = NULL;
    VjSuperblock super;
    gsize len;
    char *uuid;

    assert_true(g_file_get_contents(path, &text, &len, NULL));
    assert_true(vj_superblock_parse(text, len, &super, NULL));
    uuid = g_strdup(super.uuid);
    vj_superblock_clear(&super);
    return uuid;
}

static VjPlace *open_place(const char *source)
{
    g_autoptr(GError) error = NULL;
    VjPlace *p;

    if (!vj_place_open(source, &p, &error)) {
        fail_msg("%s", error->message);
    }
    return p;
}

static void expect_refused(const char *source, int code, const char *part)
{
    g_autoptr(GError) error = NULL;
    VjPlace *p;

    assert_false(vj_place_open(source, &p, &error));
    assert_null(p);
    vj_test_expect_error(&error, code, part);
}

/* ---- making ------------------------------------------------------------------------ */

static void made(void **state)
{
    Fixture *f = *state;
    g_autofree char *uuid = NULL;
    struct stat st;

    must_make(f, false);
    assert_int_equal(f->told_count, 1);
    assert_true(f->told.is_file);
    assert_false(f->told.is_new);
    assert_int_equal(f->told.drivers.meta | f->told.drivers.store, 0);
    assert_int_equal(f->told_files, 0);
    assert_int_equal(stat(f->file, &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    assert_false(is_there(f->making));
    uuid = uuid_in(f->file);
    expect_not_made(f, false, EEXIST, "volume.conf is a volume file already; -f");
    must_make(f, true);
    {
        g_autofree char *now = uuid_in(f->file);

        assert_string_not_equal(now, uuid);
    }
    assert_false(is_there(f->making));
}

/* A slash, or a directory that is there, makes it one. */
static void directories_stay(void **state)
{
    Fixture *f = *state;
    g_autofree char *slash = g_strconcat(f->file, "/", NULL);
    g_autofree char *conf = g_build_filename(f->file, VJ_SUPERBLOCK_NAME, NULL);
    VjVolumeMake how = {
        .source = slash, .options = f->options, .may_forget = true, .cancelled = never};

    assert_true(vj_volume_make(&how, NULL));
    assert_true(is_there(conf));
    expect_not_made(f, false, EEXIST, "already holds a varjfs file system");
}

static void foreign_files_stay(void **state)
{
    Fixture *f = *state;
    g_autofree char *text = NULL;

    assert_true(g_file_set_contents(f->file, "precious\n", -1, NULL));
    expect_not_made(f, false, EEXIST, "is no volume file");
    expect_not_made(f, true, EEXIST, "is no volume file");
    assert_true(g_file_get_contents(f->file, &text, NULL, NULL));
    assert_string_equal(text, "precious\n");
    assert_false(is_there(f->making));
    assert_int_equal(f->told_count, 0);
}

static void drivers_with_files(void **state)
{
    Fixture *f = *state;

    must_make(f, false);
    g_free(f->options);
    f->options = g_strdup("meta=memory");
    expect_not_made(f, true, ENOTDIR, "is no directory, and posix keeps files in one");
}

/* ---- failures ---------------------------------------------------------------------- */

/* Before anything was asked for elsewhere nothing stays; after it, the uuid. */
static void interrupted(void **state)
{
    Fixture *f = *state;

    f->stop = 1;
    expect_not_made(f, false, ECANCELED, "interrupted");
    assert_false(is_there(f->file));
    assert_false(is_there(f->making));
    for (unsigned stop = 2; stop <= 3; stop++) {
        g_autofree char *before = NULL;
        g_autofree char *after = NULL;

        f->stop = stop;
        expect_not_made(f, false, ECANCELED, "interrupted");
        assert_false(is_there(f->file));
        before = uuid_in(f->making);
        expect_not_made(f, false, ECANCELED, "interrupted");
        after = uuid_in(f->making);
        assert_string_equal(before, after);
        f->stop = 0;
        must_make(f, false);
        g_free(after);
        after = uuid_in(f->file);
        assert_string_equal(before, after);
        assert_false(is_there(f->making));
        assert_int_equal(unlink(f->file), 0);
    }
}

/* What an earlier one left is no text: a new volume begins. */
static void damaged_rest(void **state)
{
    Fixture *f = *state;

    assert_true(g_file_set_contents(f->making, "half of a", -1, NULL));
    must_make(f, false);
    assert_true(is_there(f->file));
    assert_false(is_there(f->making));
}

/* No link is followed, and nobody else's file is written. */
static void planted_rest(void **state)
{
    Fixture *f = *state;
    g_autofree char *other = g_build_filename(f->dir, "other", NULL);
    g_autofree char *text = NULL;

    assert_true(g_file_set_contents(other, "precious\n", -1, NULL));
    assert_int_equal(symlink("other", f->making), 0);
    expect_not_made(f, false, ELOOP, "volume.conf.making");
    assert_int_equal(unlink(f->making), 0);
    assert_int_equal(mkfifo(f->making, 0600), 0);
    expect_not_made(f, false, EEXIST, "is not ours");
    assert_true(g_file_get_contents(other, &text, NULL, NULL));
    assert_string_equal(text, "precious\n");
}

/* One that came meanwhile is not replaced. */
static void come_meanwhile(void *opaque, const VjVolumeMaking *making)
{
    Fixture *f = opaque;

    (void)making;
    assert_true(g_file_set_contents(f->file, "another's\n", -1, NULL));
}

static void another_comes(void **state)
{
    Fixture *f = *state;
    g_autofree char *text = NULL;
    g_autoptr(GError) error = NULL;
    VjVolumeMake how = {.source = f->file,
                        .options = f->options,
                        .may_forget = true,
                        .opened = come_meanwhile,
                        .opaque = f};

    assert_false(vj_volume_make(&how, &error));
    vj_test_expect_error(&error, EEXIST, "volume.conf");
    assert_true(g_file_get_contents(f->file, &text, NULL, NULL));
    assert_string_equal(text, "another's\n");
}

static void in_use_when_made(void **state)
{
    Fixture *f = *state;
    VjPlace *p;

    must_make(f, false);
    p = open_place(f->file);
    assert_true(vj_place_lock(p, false, 0, NULL));
    expect_not_made(f, true, EBUSY, "in use by another varjfs process");
    assert_int_equal(vj_place_close(p), 0);
    must_make(f, true);
}

/* ---- opening ----------------------------------------------------------------------- */

static void who_may_write(void **state)
{
    static const mode_t bad[] = {0620, 0602, 0666, 0720}, good[] = {0600, 0644, 0400};
    Fixture *f = *state;

    must_make(f, false);
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        assert_int_equal(chmod(f->file, bad[i]), 0);
        expect_refused(f->file, EACCES, "others may write it");
    }
    for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
        assert_int_equal(chmod(f->file, good[i]), 0);
        assert_int_equal(vj_place_close(open_place(f->file)), 0);
    }
}

static void no_volume_files(void **state)
{
    Fixture *f = *state;
    g_autofree char *large = g_malloc0(VJ_SUPERBLOCK_MAX + 1);

    expect_refused(f->file, ENOENT, "volume.conf");
    expect_refused("/dev/null", ENOTDIR, "neither a directory nor a volume file");
    assert_int_equal(mkfifo(f->file, 0600), 0);
    expect_refused(f->file, ENOTDIR, "neither a directory nor a volume file");
    assert_int_equal(unlink(f->file), 0);
    memset(large, '#', VJ_SUPERBLOCK_MAX + 1);
    assert_true(g_file_set_contents_full(f->file, large, (gssize)VJ_SUPERBLOCK_MAX + 1,
                                         G_FILE_SET_CONTENTS_NONE, 0600, NULL));
    expect_refused(f->file, EFBIG, "too large");
}

static void credentials_beside(void **state)
{
    Fixture *f = *state;
    char *elsewhere = vj_test_make_dir();
    g_autofree char *link = g_build_filename(elsewhere, "link.conf", NULL);
    struct stat wanted, st;

    must_make(f, false);
    assert_int_equal(symlink(f->file, link), 0);
    assert_int_equal(stat(f->dir, &wanted), 0);
    for (unsigned i = 0; i < 2; i++) {
        VjPlace *p = open_place(i == 0 ? f->file : link);
        g_auto(VjPlaceDir) dir = VJ_PLACE_DIR_NONE;
        VjStorePlace store = {0};

        assert_true(vj_place_is_file(p));
        assert_int_equal(fstat(vj_place_credentials_dir_fd(p), &st), 0);
        assert_true(st.st_ino == wanted.st_ino && st.st_dev == wanted.st_dev);
        assert_true(vj_place_dir_open(p, "objects", 0, false, &dir, NULL));
        vj_place_store_at(p, &dir, &store);
        assert_int_equal(store.dir_fd, -1);
        assert_string_equal(store.path, i == 0 ? f->file : link);
        assert_int_equal(store.credentials_dir_fd, vj_place_credentials_dir_fd(p));
        assert_string_equal(store.credentials_dir, f->dir);
        assert_int_equal(vj_place_close(p), 0);
    }
    vj_test_remove_dir(elsewhere);
}

static VjVolume *open_volume(const char *source)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = source};
    VjVolume *v;

    if (!vj_volume_open(&how, &v, &error)) {
        fail_msg("%s", error->message);
    }
    return v;
}

/* The lock is of the file, by whatever name, and nothing is made beside it. */
static void one_process(void **state)
{
    Fixture *f = *state;
    g_autofree char *link = g_build_filename(f->dir, "link.conf", NULL);
    VjVolumeOpen how = {.source = link};
    g_autoptr(GError) error = NULL;
    bool foreign;
    VjVolume *v, *second;

    must_make(f, false);
    assert_int_equal(symlink("volume.conf", link), 0);
    v = open_volume(f->file);
    assert_false(vj_volume_open(&how, &second, &error));
    vj_test_expect_error(&error, EBUSY, "in use by another varjfs process");
    assert_false(vj_volume_wait_released(f->file, 0, &foreign, &error));
    assert_false(foreign);
    vj_test_expect_error(&error, ETIMEDOUT, "still in use");
    assert_int_equal(vj_volume_close(v), 0);
    assert_true(vj_volume_wait_released(f->file, 0, &foreign, NULL));
    v = open_volume(link);
    assert_int_equal(vj_volume_close(v), 0);
    assert_false(vj_volume_is_clean(f->file));
    assert_int_equal(unlink(link), 0);
    assert_int_equal(unlink(f->file), 0);
    assert_int_equal(rmdir(f->dir), 0); /* there is nothing else in it */
    assert_int_equal(mkdir(f->dir, 0700), 0);
}

static void no_checkpoints(void **state)
{
    Fixture *f = *state;
    g_autoptr(GError) error = NULL;
    g_autofree char *kept = NULL;
    VjCheckpoint c;

    must_make(f, false);
    assert_null(vj_volume_checkpoints(f->file, &error));
    vj_test_expect_error(&error, EOPNOTSUPP, "is a volume file");
    assert_false(vj_volume_restore(f->file, NULL, 0, &c, &kept, &error));
    vj_test_expect_error(&error, EOPNOTSUPP, "is a volume file");
}

/* Replaced by another one between opening and locking. */
static void replaced(void **state)
{
    Fixture *f = *state;
    g_autoptr(GError) error = NULL;
    VjPlace *p;

    must_make(f, false);
    p = open_place(f->file);
    must_make(f, true);
    assert_false(vj_place_lock(p, false, 0, &error));
    vj_test_expect_error(&error, EBUSY, "was replaced");
    assert_int_equal(vj_place_close(p), 0);
}

static char *text_of(const char *file)
{
    char *text;

    assert_true(g_file_get_contents(file, &text, NULL, NULL));
    return text;
}

/* While it is in use: umount and the next mount wait for the daemon that has locked what
 * it was. */
static void renewed(void **state)
{
    Fixture *f = *state;
    g_autofree char *kept = g_strconcat(f->file, ".replaced", NULL);
    g_autofree char *first = NULL, *second = NULL, *third = NULL, *now = NULL;
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = f->file};
    VjVolume *v, *other;
    VjConfState is;
    struct stat st;
    bool foreign;

    must_make(f, false);
    assert_int_equal(chmod(f->file, 0640), 0);
    first = text_of(f->file);
    second = vj_superblock_text_with(first, "memory", 1);
    third = vj_superblock_text_with(first, "memory", 2);
    v = open_volume(f->file);
    assert_true(vj_volume_renew_conf(f->file, second, 0, false, &is, NULL));
    assert_int_equal(is, VJ_CONF_OLDER);
    assert_true(vj_volume_renew_conf(f->file, second, 0, true, &is, NULL));
    assert_int_equal(is, VJ_CONF_RENEWED);
    assert_true(vj_volume_renew_conf(f->file, third, 0, true, &is, NULL));
    assert_true(vj_volume_renew_conf(f->file, third, 0, true, &is, NULL));
    assert_int_equal(is, VJ_CONF_SAME);
    now = text_of(f->file);
    assert_string_equal(now, third);
    assert_int_equal(stat(f->file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_false(vj_volume_renew_conf(f->file, second, 0, true, &is, &error));
    vj_test_expect_error(&error, EEXIST, "is newer");
    assert_false(vj_volume_renew_conf(f->file, third, geteuid() + 1, true, &is, &error));
    vj_test_expect_error(&error, EPERM, "another user");
    assert_false(vj_volume_open(&how, &other, &error));
    vj_test_expect_error(&error, EBUSY, "in use by another varjfs process");
    assert_false(vj_volume_wait_released(f->file, 0, &foreign, &error));
    vj_test_expect_error(&error, ETIMEDOUT, "still in use");
    assert_int_equal(vj_volume_close(v), 0);
    assert_true(vj_volume_wait_released(f->file, 0, &foreign, NULL));
    v = open_volume(f->file); /* it goes on by the newer file */
    assert_int_equal(vj_volume_close(v), 0);
    assert_int_equal(unlink(kept), 0);
}

/* An old copy of the file: the newer text is found in the metadata, and counts. */
static void older_file(void **state)
{
    Fixture *f = *state;
    g_autofree char *first = NULL, *second = NULL, *now = NULL;
    VjVolume *v;

    must_make(f, false);
    first = text_of(f->file);
    second = vj_superblock_text_with(first, "memory", 1);
    v = open_volume(f->file);
    assert_int_equal(vj_superblock_record_change(v, second), 0);
    now = vj_volume_conf(v);
    assert_string_equal(now, first);
    assert_int_equal(vj_volume_close(v), 0);
    v = open_volume(f->file);
    g_free(now);
    now = vj_volume_conf(v);
    assert_string_equal(now, second);
    assert_int_equal(vj_volume_close(v), 0);
    g_free(now);
    now = text_of(f->file);
    assert_string_equal(now, first); /* it is not the daemon's to write */
}

/* What has no nodes has no list of them. */
static void no_nodes(void **state)
{
    Fixture *f = *state;
    VjNodeChange change = {.kind = VJ_NODE_DRAIN, .address = "a"};
    g_autoptr(GError) error = NULL;
    uint64_t left;
    VjVolume *v;

    must_make(f, false);
    v = open_volume(f->file);
    assert_false(vj_volume_change_nodes(v, &change, &error));
    vj_test_expect_error(&error, EOPNOTSUPP, "no storage nodes");
    assert_int_equal(vj_volume_count_at_node(v, "a", &left), -EOPNOTSUPP);
    assert_int_equal(vj_volume_close(v), 0);
}

static const struct CMUnitTest tests[] = {
#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    WITH_FILE(made),
    WITH_FILE(directories_stay),
    WITH_FILE(foreign_files_stay),
    WITH_FILE(drivers_with_files),
    WITH_FILE(interrupted),
    WITH_FILE(damaged_rest),
    WITH_FILE(planted_rest),
    WITH_FILE(another_comes),
    WITH_FILE(in_use_when_made),
    WITH_FILE(who_may_write),
    WITH_FILE(no_volume_files),
    WITH_FILE(credentials_beside),
    WITH_FILE(one_process),
    WITH_FILE(no_checkpoints),
    WITH_FILE(replaced),
    WITH_FILE(renewed),
    WITH_FILE(older_file),
    WITH_FILE(no_nodes),
};

VJ_TEST_MAIN(tests)
