/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-wrappers.c - fault fails what its options say, stats counts, vj_meta_run ends
 */
#include <sys/file.h>

#include "../../lib/flush-answer.h"
#include "meta-fixture.h"

static VjMeta *wrap(const char *spec, VjMeta *inner)
{
    GError *error = NULL;
    VjMeta *m;

    if (!vj_meta_wrap(spec, inner, &m, &error)) {
        fail_msg("%s: %s", spec, error->message);
    }
    return m;
}

static void set(VjMeta *m, const char *options)
{
    GError *error = NULL;

    if (!vj_meta_fault_set(m, options, &error)) {
        fail_msg("%s: %s", options, error->message);
    }
}

/* One call of each kind; what each returned. */
typedef struct Calls {
    int begin, get, put, del, next, prev, commit;
} Calls;

static int calls_body(VjTxn *txn, void *opaque)
{
    Calls *c = opaque;
    VjSlice key = vj_slice("k", 1), found, value;

    c->put = vj_txn_put(txn, VJ_SPACE_DENTRY, key, key);
    c->get = vj_txn_get(txn, VJ_SPACE_DENTRY, key, &value);
    c->next = vj_txn_next(txn, VJ_SPACE_DENTRY, vj_slice(NULL, 0), &found, &value);
    c->prev = vj_txn_prev(txn, VJ_SPACE_DENTRY, vj_slice(NULL, 0), &found, &value);
    c->del = vj_txn_del(txn, VJ_SPACE_DENTRY, key);
    return 0;
}

static void test_kinds(void **state)
{
    FlushAnswer answer = {.wait.done = count_answer};
    Fixture f = fixture_new("lmdb");
    Calls c;

    (void)state;
    f.meta = wrap("fault:every=1,errno=ENOMEM,kinds=get+next", f.meta);
    assert_int_equal(vj_meta_run(f.meta, 0, calls_body, &c), 0);
    assert_int_equal(c.get, -ENOMEM);
    assert_int_equal(c.next, -ENOMEM);
    assert_int_equal(c.prev, -ENOMEM);
    assert_int_equal(c.put, 0);
    assert_int_equal(c.del, 0);
    assert_int_equal(vj_meta_fault_calls(f.meta), 3);
    set(f.meta, "every=1,kinds=put+del");
    assert_int_equal(vj_meta_run(f.meta, 0, calls_body, &c), 0);
    assert_int_equal(c.put, -EIO);
    assert_int_equal(c.del, -EIO);
    assert_int_equal(c.get, -ENOENT);
    set(f.meta, "every=1,kinds=begin,errno=ENOSPC");
    assert_int_equal(vj_meta_run(f.meta, 0, calls_body, &c), -ENOSPC);
    set(f.meta, "every=1,kinds=flush");
    assert_int_equal(vj_meta_flush(f.meta), -EIO);
    vj_meta_flush_join(f.meta, &answer.wait);
    assert_int_equal(answer.times, 1);
    assert_int_equal(answer.rc, -EIO);
    set(f.meta, "");
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(vj_meta_run(f.meta, 0, calls_body, &c), 0);
    assert_int_equal(c.get | c.put | c.next | c.prev | c.del, 0);
    assert_int_equal(vj_meta_close(f.meta), 0);
    fixture_open(&f, "lmdb", false);
    fixture_free(&f);
}

/* Fails the N-th call once, for each N, until the run passes. */
static void test_fail_nth(void **state)
{
    Fixture f = fixture_new("lmdb");
    VjMeta *driver = f.meta;
    unsigned n;

    (void)state;
    f.meta = wrap("fault", driver);
    for (n = 1;; n++) {
        g_autofree char *options = g_strdup_printf("fail=%u", n);
        int rc;

        set(f.meta, options);
        rc = put_numbered(f.meta, VJ_SPACE_INODE, 5, 20);
        rc = rc < 0 ? rc : vj_meta_flush(f.meta);
        if (vj_meta_fault_calls(f.meta) < n) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_int_equal(rc, -EIO);
    }
    /* begin, put, commit, flush */
    assert_int_equal(n, 5);
    set(f.meta, "");
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 5), 20);
    assert_int_equal(vj_meta_close(f.meta), 0);
    fixture_open(&f, "lmdb", false);
    fixture_free(&f);
}

/* A commit that fails leaves nothing. */
static void test_failing_commit(void **state)
{
    Fixture f = fixture_new("lmdb");

    (void)state;
    f.meta = wrap("fault:fail=1,kinds=commit", f.meta);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 5, 20), -EIO);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 5), -ENOENT);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 5, 21), 0);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 5), 21);
    assert_int_equal(vj_meta_close(f.meta), 0);
    fixture_open(&f, "lmdb", false);
    fixture_free(&f);
}

static int counting_body(VjTxn *txn, void *opaque)
{
    unsigned *runs = opaque;
    uint8_t key[8];

    (*runs)++;
    /* Nothing of the run before is there. */
    assert_int_equal(vj_txn_del(txn, VJ_SPACE_INODE, numbered_key(1, key)), -ENOENT);
    return vj_txn_put(txn, VJ_SPACE_INODE, numbered_key(1, key), vj_slice("12345678", 8));
}

static void test_conflicts(void **state)
{
    Fixture f = fixture_new("lmdb");
    VjMetaStats stats;
    uint64_t commits = 0;
    unsigned runs = 0;
    int rc;

    (void)state;
    f.meta = wrap("stats", wrap("fault:conflicts=500,seed=3", f.meta));
    for (uint64_t i = 0; i < 200; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_OBJECT, i, 10), 0);
        commits++;
    }
    vj_meta_stats(f.meta, &stats);
    assert_int_equal(stats.commits, commits);
    assert_true(stats.conflicts > 100 && stats.conflicts < 400);
    assert_int_equal(stats.writes, stats.commits + stats.conflicts);
    assert_int_equal(stats.puts[VJ_SPACE_OBJECT], stats.writes);
    /* Odds of 1 in 1000 to get through: it is tried the promised number of times at most.
     */
    set(f.meta, "conflicts=999,seed=4");
    rc = vj_meta_run(f.meta, 0, counting_body, &runs);
    assert_true(runs <= VJ_META_RUN_TRIES);
    assert_true(rc == 0 || (rc == -EIO && runs == VJ_META_RUN_TRIES));
    assert_int_equal(vj_meta_close(f.meta), 0);
    fixture_open(&f, "lmdb", false);
    fixture_free(&f);
}

/* One commit, then some, meet a conflict; so do some calls in a row fail. */
static void test_times(void **state)
{
    Fixture f = fixture_new("lmdb");
    uint64_t hits = vj_meta_fault_hits();
    Calls c;

    (void)state;
    f.meta = wrap("fault:conflict=2,times=3", f.meta);
    assert_int_equal(vj_meta_run(f.meta, 0, calls_body, &c), 0);
    assert_int_equal(vj_meta_fault_hits() - hits, 0);
    assert_int_equal(vj_meta_run(f.meta, 0, calls_body, &c), 0);
    assert_int_equal(vj_meta_fault_hits() - hits, 3);
    set(f.meta, "kinds=flush,fail=1,times=2");
    assert_int_equal(vj_meta_flush(f.meta), -EIO);
    assert_int_equal(vj_meta_flush(f.meta), -EIO);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    set(f.meta, "conflict=1,times=0");
    assert_int_equal(vj_meta_run(f.meta, 0, calls_body, &c), -EIO);
    set(f.meta, "");
    assert_int_equal(vj_meta_run(f.meta, 0, calls_body, &c), 0);
    assert_int_equal(vj_meta_close(f.meta), 0);
    fixture_open(&f, "lmdb", false);
    fixture_free(&f);
}

typedef struct Tiresome {
    VjCancel *cancel;
    unsigned runs, fire_at;
} Tiresome;

static int tiresome_body(VjTxn *txn, void *opaque)
{
    Tiresome *t = opaque;

    (void)txn;
    if (++t->runs == t->fire_at) {
        vj_cancel_fire(t->cancel, 1);
    }
    return 0;
}

/* Who pauses between conflicts can be cancelled, and has its deadline. */
static void test_pauses(void **state)
{
    Fixture f = fixture_new("memory");
    Tiresome t = {.fire_at = 4};
    VjCancel cancel;

    (void)state;
    f.meta = wrap("fault:conflict=1,times=0", f.meta);
    vj_cancel_init(&cancel);
    t.cancel = &cancel;
    vj_cancel_enter(&cancel);
    assert_int_equal(vj_meta_run(f.meta, 0, tiresome_body, &t), -ECANCELED);
    assert_int_equal(t.runs, 4);
    vj_cancel_reset(&cancel, 2, 0);
    t = (Tiresome){.cancel = &cancel};
    assert_int_equal(vj_meta_run(f.meta, 0, tiresome_body, &t), -ETIMEDOUT);
    assert_true(t.runs < 100);
    assert_ptr_equal(vj_cancel_leave(), &cancel);
    vj_cancel_clear(&cancel);
    assert_int_equal(vj_meta_close(f.meta), 0);
    f.meta = NULL;
    fixture_free(&f);
}

static void test_stats(void **state)
{
    Fixture f = fixture_new("lmdb");
    FlushAnswer answer = {.wait.done = count_answer};
    VjMetaStats stats;

    (void)state;
    vj_meta_stats(f.meta, &stats);
    assert_int_equal(stats.writes + stats.flushes, 0);
    f.meta = wrap("stats", f.meta);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_XATTR, 1, 10), 0);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_XATTR, 2, 10), 0);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_XATTR, 2, 0), 0);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_XATTR, 1), 10);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    vj_meta_flush_join(f.meta, &answer.wait);
    assert_int_equal(answer.times, 1);
    assert_int_equal(answer.rc, 0);
    vj_meta_stats(f.meta, &stats);
    assert_int_equal(stats.writes, 3);
    assert_int_equal(stats.commits, 3);
    assert_int_equal(stats.conflicts, 0);
    assert_int_equal(stats.reads, 1);
    assert_int_equal(stats.flushes, 2);
    assert_int_equal(stats.puts[VJ_SPACE_XATTR], 2);
    assert_int_equal(stats.dels[VJ_SPACE_XATTR], 1);
    assert_int_equal(stats.gets[VJ_SPACE_XATTR], 1);
    assert_int_equal(stats.gets[VJ_SPACE_INODE], 0);
    assert_int_equal(vj_meta_close(f.meta), 0);
    fixture_open(&f, "lmdb", false);
    fixture_free(&f);
}

static void refuse(const Fixture *f, const char *spec, const char *says)
{
    g_autoptr(GError) error = NULL;
    VjMeta *m;

    assert_false(vj_meta_wrap(spec, f->meta, &m, &error));
    assert_null(m);
    assert_non_null(strstr(error->message, says));
}

/* Of 130 keys: reads one, or goes through all. */
static int look_body(VjTxn *txn, void *opaque)
{
    const bool *all = opaque;
    uint8_t key[8];
    VjSlice value;
    VjScan scan;
    unsigned count = 0;

    if (!*all) {
        return vj_txn_get(txn, VJ_SPACE_INODE, numbered_key(7, key), &value);
    }
    vj_scan_begin(&scan, txn, VJ_SPACE_INODE, VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        count++;
    }
    assert_int_equal(count, 130);
    return scan.error;
}

static VjMeta *open_far(bool create)
{
    VjMetaPlace place = {.dir_fd = -1, .create = create};
    VjMeta *m;

    assert_true(vj_meta_open("memory:commit=3600,name=far", &place, &m, NULL));
    return wrap("latency:us=10", wrap("stats", m));
}

/* get_many, scan and apply since the last call. */
static void expect_calls(VjMeta *m, VjMetaCalls *last, uint64_t gets, uint64_t scans,
                         uint64_t applies)
{
    VjMetaCalls now;

    vj_meta_calls(m, &now);
    assert_int_equal(now.get_many - last->get_many, gets);
    assert_int_equal(now.scan - last->scan, scans);
    assert_int_equal(now.apply - last->apply, applies);
    assert_int_equal(now.count + now.clock, 0);
    *last = now;
}

/* Brings 130 keys nearer, and reads them. */
static int expect_body(VjTxn *txn, void *opaque)
{
    uint8_t bytes[130][8];
    VjKey keys[130];
    VjSlice value;
    int rc = 0;

    (void)opaque;
    for (uint64_t i = 0; i < 130; i++) {
        keys[i] = (VjKey){VJ_SPACE_INODE, numbered_key(i, bytes[i])};
    }
    vj_txn_expect(txn, keys, 130);
    for (unsigned i = 0; rc == 0 && i < 130; i++) {
        assert_false(vj_txn_is_far(txn, keys[i]));
        rc = vj_txn_get(txn, VJ_SPACE_INODE, keys[i].key, &value);
    }
    return rc;
}

static int expect_run_body(VjTxn *txn, void *opaque)
{
    (void)opaque;
    vj_txn_expect_run(txn, VJ_SPACE_INODE, VJ_SCAN_ALL, 130);
    vj_txn_expect_run(txn, VJ_SPACE_INODE, VJ_SCAN_ALL, 130);
    return 0;
}

/* How often each operation of a session asks an engine that is far away. */
static void test_round_trips(void **state)
{
    VjMetaCalls last = {0};
    bool all = false;
    VjMeta *m = open_far(true);

    (void)state;
    for (uint64_t i = 0; i < 130; i++) {
        assert_int_equal(put_numbered(m, VJ_SPACE_INODE, i, 100), 0);
    }
    assert_int_equal(vj_meta_view(m, look_body, &all), 0); /* in the overlay */
    expect_calls(m, &last, 0, 0, 0);
    assert_int_equal(vj_meta_flush(m), 0);
    assert_int_equal(vj_meta_flush(m), 0);
    expect_calls(m, &last, 0, 0, 1);
    assert_int_equal(vj_meta_view(m, look_body, &all), 0); /* what it wrote, it knows */
    expect_calls(m, &last, 0, 0, 0);
    all = true;
    assert_int_equal(vj_meta_view(m, look_body, &all), 0);
    expect_calls(m, &last, 0, 3, 0); /* 64 keys at once */
    assert_int_equal(vj_meta_view(m, look_body, &all), 0);
    expect_calls(m, &last, 0, 0, 0);
    assert_int_equal(vj_meta_close(m), 0);

    m = open_far(false);
    last = (VjMetaCalls){0};
    all = false;
    assert_int_equal(vj_meta_view(m, look_body, &all), 0);
    expect_calls(m, &last, 1, 0, 0);
    assert_int_equal(vj_meta_view(m, expect_body, NULL), 0);
    expect_calls(m, &last, 1, 0, 0);
    assert_int_equal(vj_meta_view(m, expect_run_body, NULL), 0);
    expect_calls(m, &last, 0, 1, 0);
    all = true;
    assert_int_equal(vj_meta_view(m, look_body, &all), 0);
    expect_calls(m, &last, 0, 0, 0);
    assert_int_equal(vj_meta_close(m), 0);
}

/* ---- An engine that hangs --------------------------------------------------------- */

typedef struct Stuck {
    VjMeta *m;
    VjCancel cancel;
    bool writes;
    int result;
} Stuck;

static int far_body(VjTxn *txn, void *opaque)
{
    uint8_t key[8];
    VjSlice value;

    (void)opaque;
    return vj_txn_get(txn, VJ_SPACE_INODE, numbered_key(7, key), &value);
}

static gpointer stuck_main(gpointer opaque)
{
    Stuck *s = opaque;

    vj_cancel_enter(&s->cancel);
    s->result = s->writes ? vj_meta_run(s->m, VJ_RUN_DEFAULT, far_body, NULL)
                          : vj_meta_view(s->m, far_body, NULL);
    (void)vj_cancel_leave();
    return NULL;
}

static void wait_for_calls(VjMeta *m, uint64_t gets)
{
    VjMetaCalls calls;

    do {
        g_thread_yield();
        vj_meta_calls(m, &calls);
    } while (calls.get_many < gets);
}

/* Who reads, who writes, and who waits for that one: each can be cancelled. */
static void test_hanging(void **state)
{
    g_autofree char *hold = g_build_filename(g_get_tmp_dir(), "meta-hold-XXXXXX", NULL);
    VjMetaPlace place = {.dir_fd = -1, .create = true};
    Stuck stuck[3] = {{.writes = false}, {.writes = true}, {.writes = true}};
    GThread *threads[3];
    g_autofree char *spec = NULL;
    int fd = g_mkstemp(hold);
    VjMeta *m;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_true(vj_meta_open("memory:commit=3600", &place, &m, NULL));
    spec = g_strdup_printf("latency:us=0,hold=%s", hold);
    m = wrap(spec, m);
    for (unsigned i = 0; i < 3; i++) {
        stuck[i].m = m;
        vj_cancel_init(&stuck[i].cancel);
        threads[i] = g_thread_new("stuck", stuck_main, &stuck[i]);
        wait_for_calls(m, MIN(i + 1, 2)); /* the third waits for the second to end */
    }
    for (unsigned i = 3; i-- > 0;) {
        vj_cancel_fire(&stuck[i].cancel, 1);
        g_thread_join(threads[i]);
        assert_int_equal(stuck[i].result, -ECANCELED);
    }
    vj_cancel_reset(&stuck[0].cancel, 2, 1000);
    (void)stuck_main(&stuck[0]);
    assert_int_equal(stuck[0].result, -ETIMEDOUT);
    assert_int_equal(put_numbered(m, VJ_SPACE_INODE, 8, 100), 0); /* waits for nobody */
    vj_cancel_reset(&stuck[1].cancel, 2, INT64_MAX);
    threads[1] = g_thread_new("stuck", stuck_main, &stuck[1]);
    assert_int_equal(flock(fd, LOCK_UN), 0);
    g_thread_join(threads[1]);
    assert_int_equal(stuck[1].result, -ENOENT); /* it went on */
    for (unsigned i = 0; i < 3; i++) {
        vj_cancel_clear(&stuck[i].cancel);
    }
    assert_int_equal(vj_meta_close(m), 0);
    assert_int_equal(unlink(hold), 0);
    close(fd);
}

static void test_bad_specs(void **state)
{
    Fixture f = fixture_new("lmdb");
    VjMetaPlace place = {.dir_fd = f.dir_fd, .path = f.path};
    g_autoptr(GError) error = NULL;
    VjMeta *m;

    (void)state;
    refuse(&f, "nonsense", "nonsense");
    refuse(&f, "fault:kinds=get+sleep", "sleep");
    refuse(&f, "fault:errno=EWHAT", "errno");
    refuse(&f, "fault:conflicts=1000", "conflicts");
    refuse(&f, "latency:us=never", "us");
    assert_false(vj_meta_open("lmdb:overlay=1", &place, &m, &error));
    assert_non_null(strstr(error->message, "overlay"));
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),          cmocka_unit_test(test_fail_nth),
        cmocka_unit_test(test_failing_commit), cmocka_unit_test(test_conflicts),
        cmocka_unit_test(test_times),          cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_stats),          cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_hanging),        cmocka_unit_test(test_bad_specs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
