/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-device.c - a device that fails LMDB's own calls
 *
 * fdatasync, pwrite and writev are defined here, so that liblmdb finds these and not
 * libc's. Data pages arrive by either of the two writes, the meta page by a short pwrite
 * near the start of the file.  fsync is the driver's own, for a file that it makes anew.
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "meta-fixture.h"

#define META_PAGES_END 8192

typedef enum Call {
    CALL_NONE,
    CALL_SYNC,
    CALL_DATA,
    CALL_META,
    CALL_FSYNC,
} Call;

/* Read by the applier, set while it has nothing to do. */
static gint failing_call, failing_errno, sync_count, failed_count;
/* Of the applier: the file whose write failed, and how often it was written to after
 * that. */
static uint64_t failed_file;
static gint late_writes;

static uint64_t file_of(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? st.st_ino : 0;
}

/* LMDB puts its old meta page back where the write of the new one failed: that is its own
 * affair. */
static void note_write(int fd, bool is_meta)
{
    if (failed_file != 0 && !is_meta && file_of(fd) == failed_file) {
        g_atomic_int_inc(&late_writes);
    }
}

static bool fails(int fd, Call call)
{
    if (g_atomic_int_get(&failing_call) != (gint)call) {
        return false;
    }
    g_atomic_int_add(&failed_count, 1);
    failed_file = call == CALL_FSYNC ? failed_file : file_of(fd);
    errno = g_atomic_int_get(&failing_errno);
    return true;
}

static void set_failing(Call call, int error)
{
    g_atomic_int_set(&failing_errno, error);
    g_atomic_int_set(&failing_call, (gint)call);
    g_atomic_int_set(&failed_count, 0);
}

int fdatasync(int fd)
{
    g_atomic_int_add(&sync_count, 1);
    return fails(fd, CALL_SYNC) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    return fails(fd, CALL_FSYNC) ? -1 : (int)syscall(SYS_fsync, fd);
}

/* By this name even where 64-bit offsets make the headers rename it. */
ssize_t device_pwrite(int fd, const void *src, size_t len,
                      off_t offset) __asm__("pwrite");
ssize_t device_pwrite(int fd, const void *src, size_t len, off_t offset)
{
    Call call = offset < META_PAGES_END && len < 4096 ? CALL_META : CALL_DATA;

    note_write(fd, call == CALL_META);
    return fails(fd, call) ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, src, len, offset);
}

ssize_t writev(int fd, const struct iovec *iov, int iov_count)
{
    note_write(fd, false);
    return fails(fd, CALL_DATA) ? -1 : (ssize_t)syscall(SYS_writev, fd, iov, iov_count);
}

static void put_many(const Fixture *f, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        assert_int_equal(put_numbered(f->meta, VJ_SPACE_NODE, i, 500), 0);
    }
}

static void assert_many(const Fixture *f, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        assert_int_equal(get_numbered(f->meta, VJ_SPACE_NODE, i), 500);
    }
}

/* Nothing is moved but by a flush: how often a call fails does not depend on the time. */
static Fixture fixture_asked(const char *spec)
{
    Fixture f = fixture_new(spec);

    vj_session_retry_when_asked_for_test(f.meta);
    return f;
}

static void limit_file_size(rlim_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = MIN(bytes, limit.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static int lift_limit(void **state)
{
    (void)state;
    limit_file_size(RLIM_INFINITY);
    return 0;
}

/* The call fails for a while; then everything is made good without a reopening. */
static void check_recovers(Call call, int error)
{
    Fixture f = fixture_asked("lmdb:redo=0,commit=3600");

    put_many(&f, 0, 100);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    put_many(&f, 100, 300);
    set_failing(call, error);
    assert_int_equal(vj_meta_flush(f.meta), -error);
    assert_true(g_atomic_int_get(&failed_count) > 0);
    assert_many(&f, 0, 300);
    put_many(&f, 300, 400);
    set_failing(CALL_NONE, 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    fixture_close(&f);
    fixture_open(&f, "lmdb", false);
    assert_many(&f, 0, 400);
    fixture_free(&f);
}

static void test_sync_fails(void **state)
{
    (void)state;
    check_recovers(CALL_SYNC, EIO);
}

static void test_data_fails(void **state)
{
    (void)state;
    check_recovers(CALL_DATA, EIO);
    check_recovers(CALL_DATA, ENOSPC);
}

/*
 * A limit of the size of files amid a page cuts one write short before it refuses the
 * next.  LMDB says EIO to the first, which is a lack of space all the same.
 */
static void test_write_cut_short(void **state)
{
    Fixture f = fixture_asked("lmdb:redo=0,commit=3600");
    int rc = -ENOSPC;

    (void)state;
    assert_ptr_not_equal(signal(SIGXFSZ, SIG_IGN), SIG_ERR);
    put_many(&f, 0, 300);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    put_many(&f, 0, 300);
    for (rlim_t bytes = META_PAGES_END + 100; rc != 0; bytes += 4096) {
        assert_int_equal(rc, -ENOSPC);
        limit_file_size(bytes);
        rc = vj_meta_flush(f.meta);
    }
    limit_file_size(RLIM_INFINITY);
    assert_many(&f, 0, 300);
    fixture_free(&f);
}

/* LMDB gives up until it is opened again: the driver does that. */
static void test_meta_fails(void **state)
{
    Fixture f = fixture_asked("lmdb:redo=0,commit=3600");

    (void)state;
    put_many(&f, 0, 100);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    put_many(&f, 100, 200);
    for (unsigned i = 0; i < 3; i++) {
        set_failing(CALL_META, EIO);
        assert_int_equal(vj_meta_flush(f.meta), -EIO);
        assert_true(g_atomic_int_get(&failed_count) > 0);
        set_failing(CALL_NONE, 0);
        assert_many(&f, 0, 200 + 100 * i);
        if (i == 1) {
            assert_int_equal(vj_meta_flush(f.meta), 0);
        }
        put_many(&f, 200 + 100 * i, 300 + 100 * i);
    }
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_many(&f, 0, 500);
    fixture_close(&f);
    fixture_open(&f, "lmdb", false);
    assert_many(&f, 0, 500);
    fixture_free(&f);
}

/* A transaction that was open all the while goes on seeing what it saw; new ones wait for
 * it. */
static void test_meta_fails_beside_reader(void **state)
{
    Fixture f = fixture_asked("lmdb:redo=0,commit=3600");
    uint8_t key[8];
    VjSlice value;
    VjTxn *txn;

    (void)state;
    put_many(&f, 0, 100);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(begin_snapshot(f.meta, &txn), 0);
    put_many(&f, 100, 200);
    set_failing(CALL_META, EIO);
    assert_int_equal(vj_meta_flush(f.meta), -EIO);
    set_failing(CALL_NONE, 0);
    assert_int_equal(vj_txn_get(txn, VJ_SPACE_NODE, numbered_key(50, key), &value), 0);
    assert_int_equal(value.len, 500);
    assert_int_equal(vj_txn_get(txn, VJ_SPACE_NODE, numbered_key(150, key), &value),
                     -ENOENT);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_NODE, 1), -EIO);
    assert_false(vj_txn_abort(txn));
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_many(&f, 0, 200);
    fixture_free(&f);
}

/* And when it is never good again, closing says so; the file is what it was. */
static void test_meta_fails_for_good(void **state)
{
    Fixture f = fixture_asked("lmdb:redo=0,commit=3600");

    (void)state;
    put_many(&f, 0, 100);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    put_many(&f, 100, 200);
    set_failing(CALL_META, EIO);
    assert_int_equal(vj_meta_flush(f.meta), -EIO);
    assert_int_equal(vj_meta_flush(f.meta), -EIO);
    assert_int_equal(vj_meta_close(f.meta), -EIO);
    set_failing(CALL_NONE, 0);
    fixture_open(&f, "lmdb", false);
    assert_many(&f, 0, 100);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_NODE, 100), -ENOENT);
    fixture_free(&f);
}

/* The file under the name, and a descriptor that keeps its number from being given to
 * another one. */
static uint64_t data_file(const Fixture *f, int *fd)
{
    *fd = openat(f->dir_fd, VJ_LMDB_FILE, O_RDONLY | O_CLOEXEC);
    assert_true(*fd >= 0);
    return file_of(*fd);
}

/* A file is not written to after a write of it failed: its last good commit goes into a
 * new one. */
static void check_new_file(Call call)
{
    Fixture f = fixture_asked("lmdb:redo=0,commit=3600");
    uint64_t before, after;
    int fd, fd_after;

    put_many(&f, 0, 100);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    before = data_file(&f, &fd);
    put_many(&f, 100, 300);
    /* A file of an earlier test may have had the same number. */
    failed_file = 0;
    g_atomic_int_set(&late_writes, 0);
    set_failing(call, EIO);
    assert_int_equal(vj_meta_flush(f.meta), -EIO);
    assert_int_equal(failed_file, before);
    /* Nor is a new file used that the device does not take. */
    set_failing(CALL_FSYNC, EIO);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(vj_meta_flush(f.meta), -EIO);
        assert_many(&f, 0, 300);
    }
    assert_int_equal(g_atomic_int_get(&failed_count), 4);
    set_failing(CALL_NONE, 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(g_atomic_int_get(&late_writes), 0);
    after = data_file(&f, &fd_after);
    assert_int_not_equal(after, before);
    assert_int_equal(faccessat(f.dir_fd, VJ_LMDB_NEW_FILE, F_OK, 0), -1);
    put_many(&f, 300, 400);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    fixture_close(&f);
    fixture_open(&f, "lmdb", false);
    assert_many(&f, 0, 400);
    close(fd);
    close(fd_after);
    fixture_free(&f);
}

static void test_new_file(void **state)
{
    (void)state;
    check_new_file(CALL_SYNC);
    check_new_file(CALL_DATA);
    check_new_file(CALL_META);
}

/* What was deleted, or set aside, while the file could not be written is so in the new
 * one. */
static void test_new_file_beside_work(void **state)
{
    Fixture f = fixture_asked("lmdb:redo=0,commit=3600,overlay=64M");
    uint64_t needed, used;

    (void)state;
    put_many(&f, 0, 100);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    set_failing(CALL_SYNC, EIO);
    put_many(&f, 100, 200);
    assert_int_equal(vj_meta_flush(f.meta), -EIO);
    put_many(&f, 200, 20000);
    set_failing(CALL_NONE, 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(vj_lmdb_overruns_for_test(fixture_engine(&f)), 0);
    fixture_pages(&f, &needed, &used);
    assert_true(needed >= used && used > 2000);
    fixture_close(&f);
    fixture_open(&f, "lmdb", false);
    assert_many(&f, 0, 20000);
    fixture_free(&f);
}

/* What a flush costs the device, and that nothing but a flush costs it anything. */
static void test_syncs_are_counted(void **state)
{
    Fixture f = fixture_asked("lmdb:redo=0,commit=3600");
    gint before = g_atomic_int_get(&sync_count);

    (void)state;
    put_many(&f, 0, 500);
    assert_int_equal(g_atomic_int_get(&sync_count), before);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(g_atomic_int_get(&sync_count), before + 1);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sync_fails),
        cmocka_unit_test(test_data_fails),
        cmocka_unit_test_teardown(test_write_cut_short, lift_limit),
        cmocka_unit_test(test_meta_fails),
        cmocka_unit_test(test_meta_fails_beside_reader),
        cmocka_unit_test(test_meta_fails_for_good),
        cmocka_unit_test(test_new_file),
        cmocka_unit_test(test_new_file_beside_work),
        cmocka_unit_test(test_syncs_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
