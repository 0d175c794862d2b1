/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-round-trips.c - how often the metadata engine is asked, where each time costs a
 * round trip
 *
 * Counted by the wrapper latency; VARJFS_TEST_LATENCY_US makes each call cost as long.
 * Those of the test's own thread are counted: others of the volume look into the metadata
 * once in a while.  That no thread makes a call before an answer is shown by an engine
 * that hangs.
 */
#include "../../lib/shared-volume.h"
#include "fixture.h"

#include "file/table.h"

#include <fcntl.h>
#include <sys/file.h>

enum { FILES = 10000, TIMES = 100 };
/* How long each wait of an operation may take where none is to wait, microseconds. */
#define PATIENCE_US ((int64_t)10 * 1000 * 1000)

/* @hold: a file; NULL: the engine never hangs.  Owned by the caller. */
static char *far_engine(const char *hold)
{
    const char *us = g_getenv("VARJFS_TEST_LATENCY_US");

    return g_strdup_printf("latency:us=%s%s%s", us != NULL ? us : "0",
                           hold != NULL ? ",hold=" : "", hold != NULL ? hold : "");
}

static void open_far(Fixture *x)
{
    g_autofree char *hold = g_build_filename(x->dir, "hold", NULL);
    g_autofree char *wrap = far_engine(hold);

    assert_true(g_file_set_contents(hold, "", 0, NULL));
    fixture_open(x, (VjVolumeOpen){.wrap_meta = wrap, .commit_seconds = 3600});
}

static uint64_t calls(const Fixture *x)
{
    VjMetaCalls c;

    vj_meta_calls(vj_volume_meta(x->v), &c);
    return c.own;
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
    uint64_t dir = look(x->fs, VJ_INO_ROOT, "dir"), before = calls(x), seen;
    uint64_t end = UINT64_MAX;
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
    assert_int_equal(calls(x) - before, 0);
}

static void attributes_of_a_known_file(void **state)
{
    Fixture *x = *state;
    uint64_t dir = look(x->fs, VJ_INO_ROOT, "dir"), ino, before = calls(x);
    VjAttr attr;

    ino = look(x->fs, dir, "a file of the name 77");
    assert_int_not_equal(ino, 0);
    assert_in_range(calls(x) - before, 1, 2); /* the name, the inode */
    before = calls(x);
    for (unsigned i = 0; i < TIMES; i++) {
        assert_int_equal(vj_fs_getattr(x->fs, ino, &attr), 0);
        assert_int_equal(look(x->fs, dir, "a file of the name 77"), ino);
    }
    assert_int_equal(calls(x) - before, 0);
}

/* The kernel looks for a name before it makes one. */
static void making_files(void **state)
{
    Fixture *x = *state;
    uint64_t dir = look(x->fs, VJ_INO_ROOT, "dir"), before, first, next = 0, looks = 0;

    assert_int_equal(look(x->fs, dir, "new"), 0);
    before = calls(x);
    (void)make(x, dir, "new", S_IFREG | 0644);
    first = calls(x) - before;
    for (unsigned i = 0; i < TIMES; i++) {
        g_autofree char *name = g_strdup_printf("new %u", i);

        before = calls(x);
        assert_int_equal(look(x->fs, dir, name), 0);
        looks += calls(x) - before;
        before = calls(x);
        (void)make(x, dir, name, S_IFREG | 0644);
        next += calls(x) - before;
    }
    print_message("# the first file in a directory: %" G_GUINT64_FORMAT
                  " calls, the next %u: %" G_GUINT64_FORMAT "\n",
                  first, TIMES, next);
    assert_in_range(first, 0, 2);
    assert_int_equal(next, 0);
    assert_int_equal(looks, 0); /* the first one has found that there is nothing */
    before = calls(x);
    assert_int_equal(vj_fs_sync_names(x->fs), 0);
    assert_in_range(calls(x) - before, 0, 1); /* by one, or by the log */
    assert_int_not_equal(look(x->fs, dir, "new 99"), 0);
}

typedef enum Step { LOOK, CREATE, WRITE, INSERT, SYNC, CLOSE, READ, RENAME, UNLINK } Step;

enum { STEPS = UNLINK + 1 };

static const char *const step_names[STEPS] = {
    [LOOK] = "look",     [CREATE] = "create", [WRITE] = "write",
    [INSERT] = "insert", [SYNC] = "fsync",    [CLOSE] = "close",
    [READ] = "read",     [RENAME] = "rename", [UNLINK] = "unlink",
};

typedef struct Steps {
    const Fixture *x;
    uint64_t last, calls[STEPS];
} Steps;

static void step_done(Steps *s, Step step)
{
    uint64_t now = calls(s->x);

    s->calls[step] += now - s->last;
    s->last = now;
}

/* A file is made, filled, edited, flushed, renamed, and some of them removed. */
static void work_on_a_file(Fixture *x, Steps *s, uint64_t dir, unsigned i)
{
    static uint8_t bytes[4000], read[8000];
    g_autofree char *name = g_strdup_printf("made %u", (i * 37) % TIMES);
    g_autofree char *other = g_strdup_printf("renamed %u", (i * 37) % TIMES);
    VjEdit edit = {.offset = 10, .src = bytes, .len = 10};
    VjEdited edited;
    VjHandle *h;
    VjAttr attr;
    uint64_t at;
    size_t got;

    s->last = calls(x);
    assert_int_equal(look(x->fs, dir, name), 0);
    step_done(s, LOOK);
    assert_int_equal(
        vj_fs_create(x->fs, &root_caller, dir, name, 0644, O_RDWR, &attr, &h), 0);
    step_done(s, CREATE);
    assert_int_equal(vj_fs_write(h, 0, bytes, sizeof bytes, 0, &at), 0);
    step_done(s, WRITE);
    assert_int_equal(vj_fs_replace(&root_caller, h, &edit, &edited), 0);
    step_done(s, INSERT);
    assert_int_equal(vj_fs_fsync(h), 0);
    step_done(s, SYNC);
    assert_int_equal(vj_fs_read(h, 0, read, sizeof read, &got), 0);
    assert_int_equal(got, sizeof bytes + 10);
    assert_int_equal(vj_fs_getattr(x->fs, attr.st.st_ino, &attr), 0);
    step_done(s, READ);
    vj_fs_release(x->fs, h);
    step_done(s, CLOSE);
    assert_int_equal(look(x->fs, dir, other), 0);
    step_done(s, LOOK);
    assert_int_equal(vj_fs_rename(x->fs, &root_caller, dir, name, dir, other, 0), 0);
    step_done(s, RENAME);
    if (i % 2 == 0) {
        assert_int_equal(vj_fs_unlink(x->fs, dir, other), 0);
        step_done(s, UNLINK);
    }
}

/* What a program does costs no round trip, once it is known what there is. */
static void everyday_work_in(Fixture *x, uint64_t dir)
{
    Steps s = {.x = x};

    for (unsigned i = 0; i < TIMES; i++) {
        work_on_a_file(x, &s, dir, i);
    }
    for (unsigned step = 0; step < STEPS; step++) {
        print_message("# %s: %" G_GUINT64_FORMAT " calls\n", step_names[step],
                      s.calls[step]);
        /* Of the first one of each: the names, the directory, its attributes; and
         * attributes of files. */
        assert_in_range(s.calls[step], 0, step <= CREATE ? 2 : step == INSERT ? 1 : 0);
    }
}

static void everyday_work_in_a_new_directory(void **state)
{
    Fixture *x = *state;

    everyday_work_in(x, make(x, VJ_INO_ROOT, "mine", S_IFDIR | 0755));
}

static void everyday_work_in_a_large_directory(void **state)
{
    Fixture *x = *state;

    everyday_work_in(x, look(x->fs, VJ_INO_ROOT, "dir"));
}

/* By any thread; @x has no log beside the engine, so that a flush is an apply(). */
static uint64_t calls_of_all(const Fixture *x)
{
    VjMetaCalls c;

    vj_meta_calls(vj_volume_meta(x->v), &c);
    return c.get_many + c.scan + c.apply;
}

static void a_flush_of_a_new_file(void **state)
{
    static uint8_t bytes[4000];
    Fixture x = {.dir = NULL};
    uint64_t dir, before, most = 0, at;

    (void)state;
    fixture_make(&x, "meta=lmdb:redo=0");
    open_far(&x);
    dir = make(&x, VJ_INO_ROOT, "dir", S_IFDIR | 0755);
    for (unsigned i = 0; i < TIMES; i++) {
        g_autofree char *name = g_strdup_printf("new %u", i);
        VjHandle *h;
        VjAttr attr;

        assert_int_equal(
            vj_fs_create(x.fs, &root_caller, dir, name, 0644, O_RDWR, &attr, &h), 0);
        assert_int_equal(vj_fs_write(h, 0, bytes, sizeof bytes, 0, &at), 0);
        before = calls_of_all(&x);
        assert_int_equal(vj_fs_fsync(h), 0);
        most = MAX(most, i > 0 ? calls_of_all(&x) - before : 0);
        vj_fs_release(x.fs, h);
    }
    print_message("# flush of a new file: at most %" G_GUINT64_FORMAT " calls\n", most);
    assert_in_range(most, 1, 2);
    fixture_close(&x);
    vj_test_remove_dir(x.dir);
}

/* No thread's call of the engine ends meanwhile. */
static void nothing_waits_for_the_engine(void **state)
{
    Fixture *x = *state;
    uint64_t dir = look(x->fs, VJ_INO_ROOT, "dir"), ino;
    g_autofree char *hold = g_build_filename(x->dir, "hold", NULL);
    int fd = open(hold, O_RDONLY | O_CLOEXEC);
    VjCancel cancel;
    VjAttr attr;

    assert_int_equal(look(x->fs, dir, "new"), 0);
    for (unsigned i = 0; i < TIMES; i++) {
        g_autofree char *name = g_strdup_printf("new %u", i);

        assert_int_equal(look(x->fs, dir, name), 0);
    }
    ino = make(x, dir, "new", S_IFREG | 0644);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    vj_cancel_init(&cancel);
    vj_cancel_reset(&cancel, 1, PATIENCE_US);
    vj_cancel_enter(&cancel);
    for (unsigned i = 0; i < TIMES; i++) {
        g_autofree char *name = g_strdup_printf("new %u", i);
        VjHandle *h;

        assert_int_equal(
            vj_fs_create(x->fs, &root_caller, dir, name, 0644, O_RDWR, &attr, &h), 0);
        vj_fs_release(x->fs, h);
        assert_int_equal(vj_fs_getattr(x->fs, ino, &attr), 0);
        assert_int_equal(look(x->fs, dir, "new"), ino);
    }
    /* What nobody knows would wait. */
    vj_cancel_leave();
    vj_cancel_reset(&cancel, 2, 1000);
    vj_cancel_enter(&cancel);
    assert_int_equal(
        vj_fs_lookup(x->fs, &root_caller, dir, "a file of the name 77", &attr),
        -ETIMEDOUT);
    assert_ptr_equal(vj_cancel_leave(), &cancel);
    vj_cancel_clear(&cancel);
    assert_int_equal(close(fd), 0);
}

/* Beside others a create is in the engine before it is answered. */
static void in_a_shared_session(void **state)
{
    g_autofree char *wrap = far_engine(NULL);
    Fixture x = {.dir = NULL};
    SharedVolume s;
    uint64_t dir, ino = 0, before, most = 0, all = 0;
    VjAttr attr;

    (void)state;
    shared_make(&s);
    x.v = shared_try(&s,
                     (VjVolumeOpen){.shared = true,
                                    .session_name = "one",
                                    .lease_us = SHARED_LONG_US,
                                    .wrap_meta = wrap,
                                    .commit_seconds = 3600},
                     NULL);
    assert_non_null(x.v);
    x.fs = vj_fs_new(x.v);
    dir = make(&x, VJ_INO_ROOT, "dir", S_IFDIR | 0755);
    for (unsigned i = 0; i < TIMES; i++) {
        g_autofree char *name = g_strdup_printf("new %u", i);
        VjHandle *h;

        assert_int_equal(look(x.fs, dir, name), 0);
        before = calls(&x);
        assert_int_equal(
            vj_fs_create(x.fs, &root_caller, dir, name, 0644, O_RDWR, &attr, &h), 0);
        most = MAX(most, calls(&x) - before);
        all += calls(&x) - before;
        vj_fs_release(x.fs, h);
        ino = attr.st.st_ino;
    }
    print_message("# shared: %u creates: %" G_GUINT64_FORMAT
                  " calls, at most %" G_GUINT64_FORMAT "\n",
                  TIMES, all, most);
    assert_in_range(most, 1, 2);
    assert_int_equal(vj_fs_getattr(x.fs, ino, &attr), 0);
    before = calls(&x);
    for (unsigned i = 0; i < TIMES; i++) {
        assert_int_equal(vj_fs_getattr(x.fs, ino, &attr), 0);
        assert_int_equal(look(x.fs, dir, "new 99"), ino);
    }
    assert_int_equal(calls(&x) - before, 0);
    vj_fs_free(x.fs);
    shared_close(x.v);
    shared_end(&s);
}

/* Their numbers come in blocks. */
static void creates_do_not_write_the_counter(void **state)
{
    Fixture *x = *state;
    VjMeta *meta = vj_volume_meta(x->v);
    uint64_t dir = look(x->fs, VJ_INO_ROOT, "dir");
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
    uint64_t dir = look(x->fs, VJ_INO_ROOT, "dir"), at;
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
    vj_cancel_fire(&cancel, 1);
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
    cmocka_unit_test_setup_teardown(everyday_work_in_a_new_directory, setup, teardown),
    cmocka_unit_test_setup_teardown(everyday_work_in_a_large_directory, setup, teardown),
    cmocka_unit_test(a_flush_of_a_new_file),
    cmocka_unit_test_setup_teardown(nothing_waits_for_the_engine, setup, teardown),
    cmocka_unit_test(in_a_shared_session),
    cmocka_unit_test_setup_teardown(creates_do_not_write_the_counter, setup, teardown),
    cmocka_unit_test_setup_teardown(a_killed_caller_fails_no_write_back, setup, teardown),
};

VJ_TEST_MAIN(tests)
