/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-volume.c - a volume of format 2, as a crash left it, is read by today's build
 *
 * volume-v2.tar.gz was made by make-image.sh.  From the first release on it is never
 * changed, and nothing here may be made easier for a later format: a difference means
 * that volumes made before are lost.
 */
#include "../lib/test.h"
#include "fsck/fsck.h"
#include "volume-content.h"

#include "fs/fs.h"
#include "volume/volume-private.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

typedef struct Fixture {
    char *dir;
    VjVolume *v;
    VjFs *fs;
    VjCheckReport report;
} Fixture;

static const VjCaller root_caller = {.umask = 0};

static void unpack(Fixture *x)
{
    g_autofree char *archive =
        g_build_filename(TOP_SRCDIR, "tests/compat/volume-v2.tar.gz", NULL);
    g_autoptr(GError) error = NULL;
    const char *const argv[] = {"tar", "-xzf", archive, "-C", NULL, NULL};
    char *args[G_N_ELEMENTS(argv)];
    int status;

    if (G_BYTE_ORDER != G_LITTLE_ENDIAN || sizeof(void *) != 8) {
        skip(); /* LMDB's own file is the host's; the records in it are not */
    }
    x->dir = vj_test_make_dir();
    memcpy(args, argv, sizeof args);
    args[4] = x->dir;
    if (!g_spawn_sync(NULL, args, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL,
                      &status, &error)) {
        fail_msg("%s", error->message);
    }
    assert_int_equal(status, 0);
}

static void open_volume(Fixture *x, bool read_only, bool check)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = x->dir, .read_only = read_only, .check = check};

    if (!vj_volume_open(&how, &x->v, &error)) {
        fail_msg("%s", error->message);
    }
    x->fs = vj_fs_new(x->v);
    vj_fs_set_noatime(x->fs); /* the times of what is read are compared, too */
}

static void close_volume(Fixture *x)
{
    vj_fs_free(x->fs);
    assert_int_equal(vj_volume_close(x->v), 0);
}

static void say(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "check: %s\n", text);
}

/* No problem and no leak; what is pending is in the report. */
static void check(Fixture *x)
{
    VjCheckReport names = {0};

    open_volume(x, true, true);
    assert_int_equal(vj_fsck_contents(x->v, true, say, NULL, &x->report), 0);
    assert_int_equal(vj_fsck_names(x->v, say, NULL, &names), 0);
    close_volume(x);
    assert_int_equal(x->report.problems, 0);
    assert_int_equal(x->report.leaks, 0);
    assert_int_equal(names.problems, 0);
}

/* ---- comparing --------------------------------------------------------------------- */

static VjAttr look(const Fixture *x, const char *path)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    VjAttr attr = {.st.st_ino = VJ_INO_ROOT};

    for (size_t i = 0; parts[i] != NULL; i++) {
        if (vj_fs_lookup(x->fs, &root_caller, attr.st.st_ino, parts[i], &attr) != 0) {
            fail_msg("%s is missing", path);
        }
    }
    return attr;
}

static void expect_absent(const Fixture *x, uint64_t dir, const char *name)
{
    VjAttr attr;

    assert_int_equal(vj_fs_lookup(x->fs, &root_caller, dir, name, &attr), -ENOENT);
}

static void expect_range(VjHandle *h, const FileContent *f, uint64_t at, uint64_t len)
{
    g_autofree uint8_t *want = g_malloc(65536), *got = g_malloc(65536);
    size_t got_len;

    while (len > 0) {
        size_t step = MIN(len, 65536);

        content_read(f, at, want, step);
        assert_int_equal(vj_fs_read(h, at, got, step, &got_len), 0);
        assert_int_equal(got_len, step);
        if (memcmp(got, want, step) != 0) {
            fail_msg("%s differs behind byte %" G_GUINT64_FORMAT, f->path, at);
        }
        at += step;
        len -= step;
    }
}

/* All of a part; of a hole both ends. */
static void expect_part(VjHandle *h, const FileContent *f, const Part *p, uint64_t at)
{
    uint64_t found;

    if (p->kind != PART_HOLE) {
        expect_range(h, f, at, p->length);
        return;
    }
    expect_range(h, f, at, MIN(p->length, 100000));
    expect_range(h, f, at + p->length - MIN(p->length, 100000), MIN(p->length, 100000));
    assert_int_equal(vj_fs_seek(h, at, false, &found), 0);
    /* In whole blocks: the one in which the data before it ends is none. */
    assert_int_equal(found, (at + 4095) / 4096 * 4096);
}

static void expect_file(const Fixture *x, const FileContent *f)
{
    VjAttr attr = look(x, f->path);
    uint64_t at = 0;
    VjHandle *h;

    assert_true(S_ISREG(attr.st.st_mode));
    assert_int_equal(attr.st.st_size, content_size(f));
    assert_int_equal(vj_fs_open(x->fs, &root_caller, attr.st.st_ino, O_RDONLY, &h), 0);
    for (size_t i = 0; i < PARTS_MAX && f->parts[i].kind != PART_END; i++) {
        expect_part(h, f, &f->parts[i], at);
        at += f->parts[i].length;
    }
    vj_fs_release(x->fs, h);
}

static void expect_links(const Fixture *x)
{
    static const char *const names[] = {LINK_FIRST, LINK_SECOND, LINK_THIRD};
    g_autofree char *target = g_malloc(VJ_SYMLINK_MAX + 1);
    uint64_t ino = look(x, LINK_FIRST).st.st_ino;

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        VjAttr attr = look(x, names[i]);

        assert_int_equal(attr.st.st_ino, ino);
        assert_int_equal(attr.st.st_nlink, 3);
    }
    assert_int_equal(vj_fs_readlink(x->fs, look(x, "symlink").st.st_ino, target), 0);
    assert_string_equal(target, SYMLINK_SHORT_TARGET);
    assert_int_equal(vj_fs_readlink(x->fs, look(x, "symlink-long").st.st_ino, target), 0);
    assert_int_equal(strlen(target), SYMLINK_LONG_BYTES);
    assert_int_equal(strspn(target, "s"), SYMLINK_LONG_BYTES);
}

static void expect_nodes(const Fixture *x)
{
    assert_int_equal(look(x, "fifo").st.st_mode, S_IFIFO | 0600);
    assert_int_equal(look(x, "socket").st.st_mode, S_IFSOCK | 0600);
    assert_int_equal(look(x, "char").st.st_mode, S_IFCHR | 0600);
    assert_int_equal(look(x, "char").st.st_rdev, CHAR_DEVICE);
    assert_int_equal(look(x, "block").st.st_mode, S_IFBLK | 0600);
    assert_int_equal(look(x, "block").st.st_rdev, BLOCK_DEVICE);
    assert_int_equal(look(x, "d").st.st_mode, S_IFDIR | 0755);
    assert_int_equal(look(x, "d").st.st_nlink, 3);
    assert_int_equal(look(x, "d/e").st.st_mode, S_IFDIR | 0700);
    assert_int_equal(look(x, "d/e/f").st.st_mode, S_IFDIR | 01777);
    assert_int_equal(look(x, "d/e/f/g").st.st_mode, S_IFDIR | 02755);
    assert_int_equal(look(x, "d/e/..").st.st_ino, look(x, "d").st.st_ino);
}

static bool add_name(void *opaque, const VjDirent *entry, const VjAttr *attr)
{
    GPtrArray *names = opaque;

    (void)attr;
    g_ptr_array_add(names, g_strdup(entry->name));
    return true;
}

/* In the order in which they were made; the new name of "1" stands where that did. */
static void expect_names(const Fixture *x)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *longest = g_strnfill(LONG_NAME_BYTES, 'n');
    uint64_t dir = look(x, "names").st.st_ino;
    guint next = 2;
    VjAttr attr;

    assert_int_equal(vj_fs_lookup(x->fs, &root_caller, dir, longest, &attr), 0);
    for (size_t i = 0; odd_names[i] != NULL; i++) {
        assert_int_equal(vj_fs_lookup(x->fs, &root_caller, dir, odd_names[i], &attr), 0);
    }
    assert_int_equal(vj_fs_readdir(x->fs, look(x, "many").st.st_ino, 0, NULL, 1 << 20,
                                   false, add_name, names),
                     0);
    assert_string_equal(names->pdata[0], ".");
    assert_string_equal(names->pdata[1], "..");
    for (unsigned i = 1; i < MANY_COUNT; i++) {
        g_autofree char *name = i == 1 ? g_strdup("one") : g_strdup_printf("%u", i);

        if (i % 3 != 0) {
            assert_string_equal(names->pdata[next++], name);
        }
    }
    assert_string_equal(names->pdata[next], "last");
    assert_int_equal(names->len, next + 1);
}

static void expect_xattr(const Fixture *x, const char *path, const char *name,
                         const void *want, size_t want_len)
{
    g_autofree char *got = g_malloc(BIG_BYTES);
    size_t len;

    assert_int_equal(
        vj_fs_getxattr(x->fs, look(x, path).st.st_ino, name, got, BIG_BYTES, &len), 0);
    assert_int_equal(len, want_len);
    if (len > 0) {
        assert_memory_equal(got, want, len);
    }
}

static gint by_text(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* @want: names in order of the alphabet, each with ' ' behind it. */
static void expect_list(const Fixture *x, const char *path, const char *want)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    g_autoptr(GString) got = g_string_new(NULL);
    char list[1024];
    size_t len;

    assert_int_equal(vj_fs_listxattr(x->fs, &root_caller, look(x, path).st.st_ino, list,
                                     sizeof list, &len),
                     0);
    for (size_t at = 0; at < len; at += strlen(list + at) + 1) {
        g_ptr_array_add(names, list + at);
    }
    g_ptr_array_sort(names, by_text);
    for (guint i = 0; i < names->len; i++) {
        g_string_append_printf(got, "%s ", (const char *)names->pdata[i]);
    }
    assert_string_equal(got->str, want);
}

static void expect_attributes(const Fixture *x)
{
    const struct timespec atime = ATTRIBUTES_ATIME, mtime = ATTRIBUTES_MTIME;
    g_autofree char *big = g_strnfill(BIG_BYTES, 'b');
    VjAttr attr = look(x, "attributes");
    uint8_t binary[BINARY_BYTES];

    for (size_t i = 0; i < sizeof binary; i++) {
        binary[i] = (uint8_t)i;
    }
    assert_int_equal(attr.st.st_mode, S_IFREG | ATTRIBUTES_MODE);
    assert_int_equal(attr.st.st_uid, ATTRIBUTES_UID);
    assert_int_equal(attr.st.st_gid, ATTRIBUTES_GID);
    assert_memory_equal(&attr.st.st_atim, &atime, sizeof atime);
    assert_memory_equal(&attr.st.st_mtim, &mtime, sizeof mtime);
    expect_xattr(x, "attributes", "user.empty", "", 0);
    expect_xattr(x, "attributes", "user.binary", binary, sizeof binary);
    expect_xattr(x, "attributes", "user.big", big, BIG_BYTES);
    expect_list(x, "attributes", "user.big user.binary user.empty user.varjfs.mode ");
    expect_xattr(x, "attributes", "user.varjfs.mode", "transport", strlen("transport"));
    expect_xattr(x, "settings", "user.varjfs.objects", "2048", 4);
    expect_xattr(x, "settings/inherited", "user.varjfs.objects", "2048", 4);
    expect_list(x, "settings", "user.varjfs.objects ");
    expect_list(x, "settings/inherited", "");
    expect_xattr(x, "random", "user.varjfs.objects", "1024", 4);
}

static void expect_all(const Fixture *x)
{
    for (const FileContent *f = volume_files; f->path != NULL; f++) {
        expect_file(x, f);
    }
    expect_links(x);
    expect_nodes(x);
    expect_names(x);
    expect_attributes(x);
    expect_absent(x, VJ_INO_ROOT, "gone");
    expect_absent(x, VJ_INO_ROOT, "orphan");
}

/* ---- tests ------------------------------------------------------------------------- */

static void the_check_finds_no_problem(void **state)
{
    Fixture x = {0};

    (void)state;
    unpack(&x);
    check(&x);
    /* Two orphans, the id block, and the objects of the file that is gone. */
    assert_true(x.report.pending > 3);
    vj_test_remove_dir(x.dir);
}

static void read_only_shows_everything(void **state)
{
    Fixture x = {0};

    (void)state;
    unpack(&x);
    open_volume(&x, true, false);
    assert_string_equal(x.v->super.label, "compat v2");
    expect_all(&x);
    close_volume(&x);
    vj_test_remove_dir(x.dir);
}

static bool count_shared(void *opaque, const VjFileExtent *e)
{
    unsigned *shared = opaque;

    *shared += e->kind == VJ_EXTENT_OBJECT && e->refs > 1;
    return true;
}

/* Equal content is one object, also with what is written today. */
static void expect_sharing(Fixture *x, const char *path)
{
    g_autoptr(VjFile) file = NULL;
    unsigned shared = 0;

    assert_int_equal(vj_file_open(vj_volume_files(x->v), look(x, path).st.st_ino, &file),
                     0);
    assert_int_equal(vj_file_extents(file, 0, count_shared, &shared), 0);
    assert_true(shared > 5);
}

static void write_same_content(Fixture *x)
{
    g_autofree uint8_t *bytes = g_malloc(14000);
    VjAttr attr;
    VjHandle *h;

    content_read(&(FileContent){.parts = {{PART_RANDOM, 4, 14000, 0}}}, 0, bytes, 14000);
    assert_int_equal(
        vj_fs_create(x->fs, &root_caller, VJ_INO_ROOT, "today", 0644, O_RDWR, &attr, &h),
        0);
    assert_int_equal(vj_fs_write(h, 0, bytes, 14000, 0, NULL), 0);
    assert_int_equal(vj_volume_sync(x->v), 0); /* as an object: small ones may wait */
    vj_fs_release(x->fs, h);
}

/* Changes what is there, so that old nodes and objects are rewritten by today's code. */
static void change(Fixture *x)
{
    const VjEdit edit = {.offset = 4000000, .old_len = 70000, .src = "today", .len = 5};
    uint8_t got[7];
    size_t len;
    VjEdited edited;
    VjHandle *h;

    assert_int_equal(
        vj_fs_open(x->fs, &root_caller, look(x, "large").st.st_ino, O_RDWR, &h), 0);
    assert_int_equal(vj_fs_replace(&root_caller, h, &edit, &edited), 0);
    assert_int_equal(vj_fs_fsync(h), 0);
    assert_int_equal(vj_fs_read(h, 3999999, got, sizeof got, &len), 0);
    assert_memory_equal(got, "xtodayx", 7);
    vj_fs_release(x->fs, h);
    assert_int_equal(vj_fs_unlink(x->fs, VJ_INO_ROOT, "again"), 0);
    assert_int_equal(
        vj_fs_removexattr(x->fs, look(x, "attributes").st.st_ino, "user.big"), 0);
}

/* What a mount does in the background. */
static void finish(Fixture *x)
{
    vj_orphan_purge_drain(x->v->purge);
    assert_int_equal(vj_objects_reap_now(x->v->objects), 0);
}

static void a_mount_finishes_what_was_pending(void **state)
{
    Fixture x = {0};

    (void)state;
    unpack(&x);
    open_volume(&x, false, false);
    expect_all(&x);
    expect_sharing(&x, "random");
    write_same_content(&x);
    expect_sharing(&x, "today");
    finish(&x);
    close_volume(&x);
    check(&x);
    assert_int_equal(x.report.pending, 0);
    open_volume(&x, false, false);
    expect_all(&x);
    change(&x);
    finish(&x);
    close_volume(&x);
    check(&x);
    vj_test_remove_dir(x.dir);
}

typedef struct Shapes {
    uint64_t ino;
    bool has[VJ_SPACE_COUNT]; /* out, as */
    VjInode inode;
} Shapes;

static int shapes_body(VjTxn *txn, void *opaque)
{
    Shapes *s = opaque;

    for (unsigned space = 0; space < VJ_SPACE_COUNT; space++) {
        VjSlice key, value;
        int rc = vj_txn_next(txn, (VjSpace)space, vj_slice(NULL, 0), &key, &value);

        if (rc < 0 && rc != -ENOENT) {
            return rc;
        }
        s->has[space] = rc == 0;
    }
    return vj_inode_get(txn, s->ino, &s->inode);
}

/* The committed volume covers what it is there for. */
static void the_volume_has_all_shapes(void **state)
{
    Fixture x = {0};
    Shapes s = {.ino = 0};

    (void)state;
    unpack(&x);
    open_volume(&x, true, false);
    s.ino = look(&x, "large").st.st_ino;
    assert_int_equal(vj_meta_view(x.v->meta, shapes_body, &s), 0);
    for (unsigned space = 0; space < VJ_SPACE_COUNT; space++) {
        /* The posix store has no keys, and who is alone claims nothing. */
        assert_int_equal(s.has[space],
                         space != VJ_SPACE_STORE && space != VJ_SPACE_CLAIM);
    }
    assert_int_equal(s.inode.root.height, 3);
    close_volume(&x);
    vj_test_remove_dir(x.dir);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_check_finds_no_problem),
    cmocka_unit_test(read_only_shows_everything),
    cmocka_unit_test(a_mount_finishes_what_was_pending),
    cmocka_unit_test(the_volume_has_all_shapes),
};

VJ_TEST_MAIN(tests)
