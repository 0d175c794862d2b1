/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-confine.c - a program may do in SOURCE what the drivers of the volume need
 *
 * There is no way back, so each test is a child that tries and tells by its status.
 */
#include "../../lib/test.h"

#include "cmd/confine.h"
#include "volume/volume-private.h"

#include <sys/stat.h>
#include <sys/syscall.h>

#define LANDLOCK_CREATE_RULESET 444
#define LANDLOCK_VERSION 1u

enum { AS_EXPECTED = 0, DIFFERENT = 1 };

static const VjSourceOwners owners = {false, false};

/* A sanitizer's reports want files to read. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIMITS_READING false
#else
#define LIMITS_READING true
#endif

static bool has_landlock(void)
{
    return getenv("VARJFS_TEST_WRAPPER") == NULL &&
           syscall(LANDLOCK_CREATE_RULESET, NULL, 0, LANDLOCK_VERSION) >= 2;
}

static void make_dir(const char *dir, const char *name)
{
    g_autofree char *path = g_build_filename(dir, name, NULL);

    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
}

/* With all directories that a volume may have, whether its drivers need them or not. */
static char *make_volume(const char *options)
{
    static const char *const names[] = {"meta", "objects", "checkpoints"};
    char *dir = vj_test_make_dir();
    VjVolumeMake how = {.source = dir, .options = options, .may_forget = true};
    g_autoptr(GError) error = NULL;

    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        make_dir(dir, names[i]);
    }
    return dir;
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

static void confine(const VjPlace *p, const char *source, bool rewrites)
{
    g_autoptr(VjOptFiles) files = vj_opt_files_new();
    VjConfine how = {
        .owners = owners, .files = files, .rewrites = rewrites, .other_fd = -1};

    vj_confine_to(p, &how);
    how.drivers = vj_confine_drivers(p, source, owners, files);
    vj_confine(&how);
}

/* ---- which drivers ----------------------------------------------------------------- */

static void expect_needs(const char *dir, uint32_t meta, uint32_t store)
{
    VjPlace *p = open_place(dir);
    g_autoptr(VjOptFiles) files = vj_opt_files_new();
    VjDriverNeeds needs = vj_confine_drivers(p, dir, owners, files);

    assert_int_equal(needs.meta, meta);
    assert_int_equal(needs.store, store);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process is left */
    assert_int_equal(errno, ECHILD);
    assert_int_equal(files->read->len + files->written->len, 0);
    assert_int_equal(vj_place_close(p), 0);
}

static void drivers_by_superblock(void **state)
{
    static const struct {
        const char *options;
        uint32_t meta, store;
    } volumes[] = {
        {NULL, VJ_NEEDS_FILES, VJ_NEEDS_FILES},
        {"store=null", VJ_NEEDS_FILES, 0},
        {"meta=memory:name=a", 0, VJ_NEEDS_FILES},
        {"meta=memory:name=b,store=memory", 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(volumes); i++) {
        char *dir = make_volume(volumes[i].options);

        expect_needs(dir, volumes[i].meta, volumes[i].store);
        vj_test_remove_dir(dir);
    }
}

/* What is damaged or missing may be mended from copies in files; no socket is opened for
 * it. */
static void drivers_of_damaged(void **state)
{
    char *dir = make_volume("meta=memory:name=c,store=null");
    g_autofree char *path = g_build_filename(dir, VJ_SUPERBLOCK_NAME, NULL);

    (void)state;
    expect_needs(dir, 0, 0);
    assert_true(g_file_set_contents(path, "store = remote\n", -1, NULL));
    expect_needs(dir, VJ_NEEDS_FILES, VJ_NEEDS_FILES);
    assert_int_equal(unlink(path), 0);
    expect_needs(dir, VJ_NEEDS_FILES, VJ_NEEDS_FILES);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_needs(dir, VJ_NEEDS_FILES, VJ_NEEDS_FILES);
    vj_test_remove_dir(dir);
}

static bool has_dir(const VjVolumeNeeds *needs, const char *name)
{
    bool found = false;

    for (unsigned i = 0; i < needs->dir_count; i++) {
        found = found || strcmp(needs->dirs[i], name) == 0;
    }
    return found;
}

static void needs_of_volume(void **state)
{
    (void)state;
    for (uint32_t meta = 0; meta <= VJ_NEEDS_ALL; meta++) {
        for (uint32_t store = 0; store <= VJ_NEEDS_ALL; store++) {
            VjVolumeNeeds needs =
                vj_volume_needs((VjDriverNeeds){.meta = meta, .store = store});
            bool meta_files = (meta & VJ_NEEDS_FILES) != 0;

            assert_int_equal(needs.drivers, meta | store);
            assert_int_equal(needs.writes_source, meta_files);
            assert_int_equal(has_dir(&needs, "meta"), meta_files);
            assert_int_equal(has_dir(&needs, "checkpoints"), meta_files);
            assert_int_equal(has_dir(&needs, "objects"), (store & VJ_NEEDS_FILES) != 0);
        }
    }
}

/* ---- what is left ------------------------------------------------------------------ */

static bool is_so(const char *what, bool done, bool wanted)
{
    if (done != wanted) {
        fprintf(stderr, "# %s: %s\n", what, done ? "it can" : g_strerror(errno));
    }
    return done == wanted;
}

static bool can_write(int dir_fd, const char *dir)
{
    g_autofree char *name = g_strdup_printf("%s/written", dir);
    VJ_AUTO_FD fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    return fd >= 0 && write(fd, "x", 1) == 1;
}

static bool can_mark(int dir_fd)
{
    VJ_AUTO_FD fd = openat(dir_fd, "mark", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);

    return fd >= 0 && renameat(dir_fd, "mark", dir_fd, "other") == 0 &&
           unlinkat(dir_fd, "other", 0) == 0;
}

typedef struct Left {
    const char *options;
    bool rewrites;
    bool source, meta, objects, checkpoints;
} Left;

static bool try_all(int fd, const Left *left)
{
    bool ok = true;

    ok &= is_so("mark SOURCE", can_mark(fd), true);
    ok &= is_so("read SOURCE", faccessat(fd, VJ_SUPERBLOCK_NAME, R_OK, 0) == 0, true);
    ok &= is_so("write SOURCE", can_write(fd, "."), left->source);
    ok &= is_so("write meta", can_write(fd, "meta"), left->meta);
    ok &= is_so("write objects", can_write(fd, "objects"), left->objects);
    ok &= is_so("write checkpoints", can_write(fd, "checkpoints"), left->checkpoints);
    ok &= is_so("write elsewhere", can_write(AT_FDCWD, g_get_tmp_dir()), false);
    return ok;
}

static void expect_child(pid_t child)
{
    int status;

    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), AS_EXPECTED);
}

/* A directory that no driver needs cannot be written, although it is there. */
static void files_by_drivers(void **state)
{
    static const Left volumes[] = {
        {NULL, false, true, true, true, true},
        {"meta=memory:name=d", false, false, false, true, false},
        {"meta=memory:name=e,store=memory", false, false, false, false, false},
        {"meta=memory:name=f,store=null", false, false, false, false, false},
        {"meta=memory:name=g,store=null", true, true, true, true, true},
    };

    (void)state;
    if (!has_landlock()) {
        skip();
    }
    for (size_t i = 0; i < G_N_ELEMENTS(volumes); i++) {
        char *dir = make_volume(volumes[i].options);
        VjPlace *p = open_place(dir);
        pid_t child = fork();

        if (child == 0) {
            confine(p, dir, volumes[i].rewrites);
            _exit(try_all(vj_place_fd(p), &volumes[i]) ? AS_EXPECTED : DIFFERENT);
        }
        expect_child(child);
        assert_int_equal(vj_place_close(p), 0);
        vj_test_remove_dir(dir);
    }
}

/* ---- a volume in it ---------------------------------------------------------------- */

static bool open_and_close(const char *dir, int fd)
{
    VjVolumeOpen how = {.source = dir};
    g_autoptr(GError) error = NULL;
    VjVolume *v;

    if (!vj_volume_open(&how, &v, &error)) {
        fprintf(stderr, "# %s\n", error->message);
        return false;
    }
    return faccessat(fd, "varjfs.inuse", F_OK, 0) == 0 && vj_volume_close(v) == 0 &&
           faccessat(fd, "varjfs.clean", F_OK, 0) == 0;
}

/* What is left is enough for those whose it is; twice, as the mark is made the first
 * time. */
static void volumes_open(void **state)
{
    static const char *const options[] = {NULL, "store=null", "meta=memory:name=h",
                                          "meta=memory:name=i,store=null"};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(options); i++) {
        char *dir = make_volume(options[i]);
        VjPlace *p = open_place(dir);
        pid_t child = fork();

        if (child == 0) {
            int fd = vj_place_fd(p);

            confine(p, dir, false);
            _exit(open_and_close(dir, fd) && open_and_close(dir, fd) ? AS_EXPECTED
                                                                     : DIFFERENT);
        }
        expect_child(child);
        assert_int_equal(vj_place_close(p), 0);
        vj_test_remove_dir(dir);
    }
}

/* ---- a volume file ----------------------------------------------------------------- */

static void write_text(const char *dir, const char *name, const char *text)
{
    g_autofree char *path = g_build_filename(dir, name, NULL);

    assert_true(
        g_file_set_contents_full(path, text, -1, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
}

/* As mkfs would write it, had there been a node. */
static char *make_volume_file(const char *dir, const char *meta)
{
    char *made = make_volume("meta=memory:name=j,store=null");
    g_autofree char *conf = g_build_filename(made, VJ_SUPERBLOCK_NAME, NULL);
    g_autofree char *text = NULL;
    g_autofree char *changed = NULL;
    VjSuperblock super;
    gsize len;

    assert_true(g_file_get_contents(conf, &text, &len, NULL));
    assert_true(vj_superblock_parse(text, len, &super, NULL));
    g_free(super.meta);
    super.meta = g_strdup(meta);
    changed = vj_superblock_format(&super);
    vj_superblock_clear(&super);
    vj_test_remove_dir(made);
    write_text(dir, "volume.conf", changed);
    return g_build_filename(dir, "volume.conf", NULL);
}

static bool can_read(int dir_fd, const char *name)
{
    VJ_AUTO_FD fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    char byte;

    return fd >= 0 && read(fd, &byte, 1) == 1;
}

static bool try_volume_file(int dir_fd, const char *elsewhere)
{
    bool ok = true;

    ok &= is_so("read the file", can_read(dir_fd, "volume.conf"), true);
    ok &= is_so("write the file", can_write(dir_fd, "."), false);
    ok &= is_so("read the key", can_read(dir_fd, "mine.key"), true);
    ok &= is_so("read another key", can_read(dir_fd, "other.key"), false);
    ok &= is_so("read the key that has a path", can_read(AT_FDCWD, elsewhere), true);
    ok &= is_so("make a file", can_mark(dir_fd), false);
    return ok;
}

/* That file, the credential files that it names, and nothing beside them. */
static void check_files_of_volume_file(void)
{
    char *dir = vj_test_make_dir(), *other = vj_test_make_dir();
    g_autofree char *elsewhere = g_build_filename(other, "certificate", NULL);
    g_autofree char *meta =
        g_strdup_printf("remote:localhost:key=mine.key,cert=%s,ca=missing", elsewhere);
    g_autofree char *source = make_volume_file(dir, meta);
    g_autoptr(VjOptFiles) files = vj_opt_files_new();
    VjDriverNeeds needs;
    VjPlace *p;
    pid_t child;

    write_text(dir, "mine.key", "a key");
    write_text(dir, "other.key", "a key");
    write_text(other, "certificate", "a certificate");
    p = open_place(source);
    needs = vj_confine_drivers(p, source, owners, files);
    assert_int_equal(needs.meta, VJ_NEEDS_TCP);
    assert_int_equal(needs.store, 0);
    assert_int_equal(files->read->len, 3);
    assert_int_equal(files->written->len, 0);
    assert_string_equal(files->read->pdata[0], "mine.key");
    assert_string_equal(files->read->pdata[1], elsewhere);
    child = fork();
    if (child == 0) {
        VJ_AUTO_FD dir_fd = dup(vj_place_credentials_dir_fd(p));

        confine(p, source, false);
        _exit(try_volume_file(dir_fd, elsewhere) ? AS_EXPECTED : DIFFERENT);
    }
    expect_child(child);
    assert_int_equal(vj_place_close(p), 0);
    vj_test_remove_dir(dir);
    vj_test_remove_dir(other);
}

static void files_of_volume_file(void **state)
{
    (void)state;
    if (!has_landlock() || !LIMITS_READING) {
        skip();
    }
    check_files_of_volume_file();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(drivers_by_superblock), cmocka_unit_test(drivers_of_damaged),
    cmocka_unit_test(needs_of_volume),       cmocka_unit_test(files_by_drivers),
    cmocka_unit_test(volumes_open),          cmocka_unit_test(files_of_volume_file),
};

VJ_TEST_MAIN(tests)
