/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-utimens.c - times of earlier writes and reads that memory still has, beside calls
 * of utimensat(2): a call that fails changes nothing, whatever comes in between
 *
 * The linker puts a function in front of the transaction, where the times in memory are
 * taken already: there a test writes back, closes the file, or begins another call.
 */
#include "../../lib/shared-volume.h"
#include "names.h"

#include "file/file-private.h"
#include "fs/fs-private.h"

/* What the calls set, in seconds: long before what writes and reads bring. */
enum { OLD = 1, FIRST = 2, SECOND = 3 };
enum { BYTES = 100000 };

typedef struct Fixture {
    SharedVolume s;
    VjVolume *v;
    VjFs *fs;
    uint64_t ino;
    VjHandle *h; /* NULL: closed */
} Fixture;

typedef void Between(Fixture *x);

static Fixture *fixture;
/* Of the next transaction: what is done in front of it, and its failure. */
static Between *between;
static int failure;

int __real_vj_fs_run(VjFs *fs, VjRunFlags flags, VjTxnBody *body, void *op);
int __wrap_vj_fs_run(VjFs *fs, VjRunFlags flags, VjTxnBody *body, void *op);

int __wrap_vj_fs_run(VjFs *fs, VjRunFlags flags, VjTxnBody *body, void *op)
{
    Between *act = between;
    int r = failure;

    between = NULL;
    failure = 0;
    if (act != NULL) {
        act(fixture);
    }
    return r < 0 ? r : __real_vj_fs_run(fs, flags, body, op);
}

static void set(Fixture *x, unsigned what, time_t seconds, int r, Between *act)
{
    const VjSetattr times = {
        .what = what, .atime = {.tv_sec = seconds}, .mtime = {.tv_sec = seconds}};
    VjAttr attr;

    between = act;
    failure = r;
    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, x->ino, NULL, &times, &attr), r);
}

static void write_bytes(Fixture *x, size_t len)
{
    g_autofree char *bytes = g_strnfill(len, 'x');

    assert_int_equal(vj_fs_write(x->h, 0, bytes, len, 0, NULL), 0);
}

static void write_some(Fixture *x)
{
    write_bytes(x, 4);
}

static void read_some(Fixture *x)
{
    char byte;
    size_t got;

    assert_int_equal(vj_fs_read(x->h, 0, &byte, 1, &got), 0);
    assert_int_equal(got, 1);
}

static void write_back(Fixture *x)
{
    assert_int_equal(vj_file_write_back(x->h->file), 0);
}

static void close_file(Fixture *x)
{
    vj_fs_release(x->fs, g_steal_pointer(&x->h));
}

static void write_back_and_close(Fixture *x)
{
    write_back(x);
    close_file(x);
}

/* A file with old times, open, and then changed and read. */
static int setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);
    VjAttr attr;

    shared_make(&x->s);
    x->s.wrap = *state;
    x->v = shared_open(&x->s, "first", SHARED_LONG_US);
    x->fs = vj_fs_new(x->v);
    assert_int_equal(
        vj_fs_create(x->fs, &root_caller, VJ_INO_ROOT, "f", 0644, O_RDWR, &attr, &x->h),
        0);
    x->ino = attr.st.st_ino;
    set(x, VJ_SET_ATIME | VJ_SET_MTIME, OLD, 0, NULL);
    write_some(x);
    read_some(x);
    fixture = x;
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    Fixture *x = *state;

    if (x->h != NULL) {
        close_file(x);
    }
    assert_int_equal(g_atomic_int_get(&x->fs->read_count), 0);
    assert_int_equal(g_hash_table_size(x->fs->nodes), 0);
    vj_fs_free(x->fs);
    shared_close(x->v);
    shared_end(&x->s);
    g_free(x);
    return 0;
}

static struct stat look_at(Fixture *x)
{
    VjAttr attr;

    assert_int_equal(vj_fs_getattr(x->fs, x->ino, &attr), 0);
    return attr.st;
}

static VjInode record(Fixture *x)
{
    VjInode inode;

    assert_int_equal(vj_file_record(x->v->files, x->ino, &inode), 0);
    return inode;
}

/* @seconds: that were set.  0: a write was later. */
static void expect_mtime(Fixture *x, time_t seconds)
{
    time_t shown = look_at(x).st_mtim.tv_sec, stored;

    assert_int_equal(vj_volume_sync(x->v), 0);
    stored = record(x).mtime.tv_sec;
    assert_int_equal(shown <= SECOND ? shown : 0, seconds);
    assert_int_equal(stored <= SECOND ? stored : 0, seconds);
}

/* The same of reads: they are stored by the last close. */
static void expect_atime(Fixture *x, time_t seconds)
{
    time_t shown = look_at(x).st_atim.tv_sec, stored;

    if (x->h != NULL) {
        close_file(x);
    }
    stored = record(x).atime.tv_sec;
    assert_int_equal(shown <= SECOND ? shown : 0, seconds);
    assert_int_equal(stored <= SECOND ? stored : 0, seconds);
}

/* ---- mtime ------------------------------------------------------------------------- */

static void fail_first(Fixture *x)
{
    set(x, VJ_SET_ATIME | VJ_SET_MTIME, FIRST, -EIO, NULL);
}

static void set_first(Fixture *x)
{
    set(x, VJ_SET_ATIME | VJ_SET_MTIME, FIRST, 0, NULL);
}

static void expect_shown(Fixture *x)
{
    assert_true(look_at(x).st_mtim.tv_sec > SECOND);
    assert_true(look_at(x).st_atim.tv_sec > SECOND);
}

static void a_call_that_fails_is_not_seen(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_ATIME | VJ_SET_MTIME, SECOND, -EIO, expect_shown);
    expect_mtime(x, 0);
    expect_atime(x, 0);
}

static void a_call_that_succeeds(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_ATIME | VJ_SET_MTIME, SECOND, 0, expect_shown);
    expect_mtime(x, SECOND);
    expect_atime(x, SECOND);
}

static void what_is_omitted_stays(void **state)
{
    Fixture *x = *state;
    const VjSetattr omit = {.what = VJ_SET_ATIME | VJ_SET_MTIME,
                            .atime = {.tv_nsec = UTIME_OMIT},
                            .mtime = {.tv_nsec = UTIME_OMIT}};
    VjAttr attr;

    assert_int_equal(vj_fs_setattr(x->fs, &root_caller, x->ino, NULL, &omit, &attr), 0);
    expect_mtime(x, 0);
    expect_atime(x, 0);
}

/* The file is clean when the call has failed. */
static void a_round_in_between(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_MTIME, SECOND, -EIO, write_back);
    expect_mtime(x, 0);
    write_some(x);
    set(x, VJ_SET_MTIME, SECOND, 0, write_back);
    expect_mtime(x, SECOND);
}

static void fail_and_write_back(Fixture *x)
{
    fail_first(x);
    write_back(x);
}

static void a_round_that_had_failed(void **state)
{
    Fixture *x = *state;
    g_autoptr(GError) error = NULL;

    write_bytes(x, BYTES);
    assert_true(vj_store_fault_set(x->v->store, "every=1,errno=EIO", &error));
    assert_int_equal(vj_file_write_back(x->h->file), -EIO);
    assert_true(vj_store_fault_set(x->v->store, "every=0", &error));
    set(x, VJ_SET_MTIME, SECOND, -EIO, fail_and_write_back);
    expect_mtime(x, 0);
}

static void the_file_is_closed_in_between(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_MTIME, SECOND, -EIO, write_back_and_close);
    expect_mtime(x, 0);
}

static void two_that_fail(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_MTIME, SECOND, -EIO, fail_first);
    expect_mtime(x, 0);
}

static void one_of_two_fails(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_MTIME, SECOND, -EIO, set_first);
    expect_mtime(x, FIRST);
    write_some(x);
    set(x, VJ_SET_MTIME, SECOND, 0, fail_first);
    expect_mtime(x, SECOND);
}

static void write_and_fail(Fixture *x)
{
    write_some(x);
    fail_first(x);
}

static void set_and_write(Fixture *x)
{
    set_first(x);
    write_and_fail(x);
}

static void set_and_fail(Fixture *x)
{
    set_first(x);
    fail_first(x);
}

/* As if the call that fails had never been. */
static void a_write_in_between(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_MTIME, SECOND, -EIO, set_and_write);
    expect_mtime(x, 0);
    set(x, VJ_SET_MTIME, SECOND, -EIO, set_and_fail);
    expect_mtime(x, FIRST);
    set(x, VJ_SET_MTIME, SECOND, 0, write_and_fail);
    expect_mtime(x, 0);
}

/* Each of two succeeds or fails, and either may end first. */
static void calls_that_overlap(void **state)
{
    Fixture *x = *state;

    for (unsigned i = 0; i < 8; i++) {
        int first = (i & 1) != 0 ? 0 : -EIO, second = (i & 2) != 0 ? 0 : -EIO;
        VjUtimens calls[2], *ends[2] = {&calls[0], &calls[1]};

        set(x, VJ_SET_MTIME, OLD, 0, NULL);
        write_some(x);
        vj_file_utimens_begin(x->v->files, x->ino, &calls[0]);
        vj_file_utimens_begin(x->v->files, x->ino, &calls[1]);
        if ((i & 4) != 0) {
            ends[0] = &calls[1];
            ends[1] = &calls[0];
        }
        vj_file_utimens_end(ends[0], first);
        write_back(x);
        vj_file_utimens_end(ends[1], second);
        assert_int_equal(vj_file_is_dirty(x->h->file), first < 0 && second < 0);
        expect_mtime(x, first < 0 && second < 0 ? 0 : OLD);
    }
}

/* ---- atime ------------------------------------------------------------------------- */

static void closed_in_between(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_ATIME, SECOND, -EIO, close_file);
    assert_int_equal(g_atomic_int_get(&x->fs->read_count), 0);
    expect_atime(x, 0);
}

static VjCancel cancel;

static void close_and_die(Fixture *x)
{
    close_file(x);
    vj_cancel_fire(&cancel, 1);
}

static void closed_before_the_caller_dies(void **state)
{
    Fixture *x = *state;

    vj_cancel_init(&cancel);
    vj_cancel_enter(&cancel);
    set(x, VJ_SET_ATIME, SECOND, -ECANCELED, close_and_die);
    assert_ptr_equal(vj_cancel_leave(), &cancel);
    vj_cancel_clear(&cancel);
    expect_atime(x, 0);
}

static void closed_before_another_succeeds(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_ATIME, SECOND, 0, close_file);
    expect_atime(x, SECOND);
}

static void two_reads_that_fail(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_ATIME, SECOND, -EIO, fail_first);
    expect_atime(x, 0);
}

static void close_and_fail(Fixture *x)
{
    close_file(x);
    fail_first(x);
}

static void two_that_fail_and_a_close(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_ATIME, SECOND, -EIO, close_and_fail);
    expect_atime(x, 0);
}

static void one_of_two_beside_a_read_fails(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_ATIME, SECOND, -EIO, set_first);
    assert_int_equal(look_at(x).st_atim.tv_sec, FIRST);
    read_some(x);
    set(x, VJ_SET_ATIME, SECOND, 0, fail_first);
    expect_atime(x, SECOND);
}

static void read_and_fail(Fixture *x)
{
    write_some(x); /* else the read does not count */
    read_some(x);
    fail_first(x);
}

static void a_read_in_between(void **state)
{
    Fixture *x = *state;

    set(x, VJ_SET_ATIME, SECOND, 0, read_and_fail);
    expect_atime(x, 0);
}

/* The close has looked at the time, and finds it changed. */
static void a_call_that_fails_while_the_file_is_closed(void **state)
{
    Fixture *x = *state;

    between = fail_first;
    close_file(x);
    expect_atime(x, 0);
}

static void a_call_that_succeeds_while_the_file_is_closed(void **state)
{
    Fixture *x = *state;

    between = set_first;
    close_file(x);
    expect_atime(x, FIRST);
}

#define TEST(name) SHARED_TEST(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(a_call_that_fails_is_not_seen),
    TEST(a_call_that_succeeds),
    TEST(what_is_omitted_stays),
    TEST(a_round_in_between),
    TEST(a_round_that_had_failed),
    TEST(the_file_is_closed_in_between),
    TEST(two_that_fail),
    TEST(one_of_two_fails),
    TEST(a_write_in_between),
    TEST(calls_that_overlap),
    TEST(closed_in_between),
    TEST(closed_before_the_caller_dies),
    TEST(closed_before_another_succeeds),
    TEST(two_reads_that_fail),
    TEST(two_that_fail_and_a_close),
    TEST(one_of_two_beside_a_read_fails),
    TEST(a_read_in_between),
    TEST(a_call_that_fails_while_the_file_is_closed),
    TEST(a_call_that_succeeds_while_the_file_is_closed),
};

VJ_TEST_MAIN(tests)
