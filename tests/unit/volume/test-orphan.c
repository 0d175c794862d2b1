/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-orphan.c - what has no name is dropped: of this mount and of earlier ones, also
 * when it fails at first
 */
#include "../../lib/test.h"

#include "file/inode-format.h"
#include "volume/volume-private.h"

#include <sys/stat.h>

#define EARLIER 70000u
#define BATCH 1000u
/* Far more than a retry takes. */
#define LONG_US ((int64_t)20 * 1000 * 1000)

typedef struct Fixture {
    char *dir;
    VjVolume *v;
} Fixture;

static void open_volume(Fixture *x, bool check)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = x->dir, .check = check, .wrap_meta = "fault"};

    if (!vj_volume_open(&how, &x->v, &error)) {
        fail_msg("%s", error->message);
    }
}

static int setup(void **state)
{
    g_autoptr(GError) error = NULL;
    Fixture *x = g_new0(Fixture, 1);
    VjVolumeMake how = {.options = NULL};

    x->dir = vj_test_make_dir();
    how.source = x->dir;
    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    open_volume(x, false);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    Fixture *x = *state;

    assert_int_equal(vj_volume_close(x->v), 0);
    vj_test_remove_dir(x->dir);
    g_free(x);
    return 0;
}

typedef struct Orphans {
    unsigned count;
    uint64_t last;
} Orphans;

static int orphans_body(VjTxn *txn, void *opaque)
{
    Orphans *o = opaque;
    int r = 0;

    for (unsigned i = 0; r == 0 && i < o->count; i++) {
        VjInode inode = {.generation = 1, .mode = S_IFREG | 0600};

        r = vj_ino_take(txn, &inode.ino);
        if (r == 0) {
            r = vj_inode_put(txn, &inode);
        }
        if (r == 0) {
            r = vj_orphan_put(txn, inode.ino);
        }
        o->last = inode.ino;
    }
    return r;
}

static uint64_t make_orphans(Fixture *x, unsigned count)
{
    Orphans o = {.count = count};

    assert_int_equal(vj_meta_run(vj_volume_meta(x->v), VJ_RUN_DEFAULT, orphans_body, &o),
                     0);
    return o.last;
}

static int first_body(VjTxn *txn, void *opaque)
{
    VjSlice key, value;

    (void)opaque;
    return vj_txn_next(txn, VJ_SPACE_ORPHAN, vj_slice(NULL, 0), &key, &value);
}

static bool is_there(Fixture *x)
{
    int r = vj_meta_view(vj_volume_meta(x->v), first_body, NULL);

    assert_true(r == 0 || r == -ENOENT);
    return r == 0;
}

static void an_orphan_that_failed_is_dropped_later(void **state)
{
    Fixture *x = *state;
    g_autoptr(GError) error = NULL;
    int64_t until_us = vj_clock_mono_us() + LONG_US;
    uint64_t ino = make_orphans(x, 1);

    x->v->drop_retry_us = 10 * 1000;
    assert_true(vj_meta_fault_set(vj_volume_meta(x->v), "fail=1,kinds=commit", &error));
    vj_volume_reap(x->v, ino);
    vj_orphan_purge_drain(x->v->purge);
    while (is_there(x) && vj_clock_mono_us() < until_us) {
        g_thread_yield();
    }
    assert_false(is_there(x));
}

/* More than the queue of one mount may hold. */
static void those_of_earlier_mounts_are_dropped(void **state)
{
    Fixture *x = *state;

    for (unsigned i = 0; i < EARLIER; i += BATCH) {
        (void)make_orphans(x, BATCH);
    }
    assert_int_equal(vj_volume_close(x->v), 0);
    open_volume(x, false);
    vj_orphan_purge_drain(x->v->purge);
    assert_false(is_there(x));
}

#define TOGETHER 100u

static int damage_body(VjTxn *txn, void *opaque)
{
    const uint64_t *ino = opaque;
    uint8_t key[8];

    return vj_txn_put(txn, VJ_SPACE_INODE, vj_ino_key(*ino, key), vj_slice("damaged", 7));
}

static int count_body(VjTxn *txn, void *opaque)
{
    unsigned *count = opaque;
    VjScan scan;

    *count = 0;
    vj_scan_begin(&scan, txn, VJ_SPACE_ORPHAN, VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        (*count)++;
    }
    return scan.error;
}

static unsigned count_orphans(Fixture *x)
{
    unsigned count;

    assert_int_equal(vj_meta_view(vj_volume_meta(x->v), count_body, &count), 0);
    return count;
}

/* Those that would go in one transaction with it. */
static void a_damaged_one_does_not_keep_others(void **state)
{
    Fixture *x = *state;
    uint64_t last = make_orphans(x, TOGETHER), damaged = last - TOGETHER / 2;

    assert_int_equal(count_orphans(x), TOGETHER);
    assert_int_equal(
        vj_meta_run(vj_volume_meta(x->v), VJ_RUN_DEFAULT, damage_body, &damaged), 0);
    for (uint64_t ino = last - TOGETHER + 1; ino <= last; ino++) {
        vj_volume_reap(x->v, ino);
    }
    vj_orphan_purge_drain(x->v->purge);
    assert_int_equal(count_orphans(x), 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(an_orphan_that_failed_is_dropped_later, setup,
                                    teardown),
    cmocka_unit_test_setup_teardown(those_of_earlier_mounts_are_dropped, setup, teardown),
    cmocka_unit_test_setup_teardown(a_damaged_one_does_not_keep_others, setup, teardown),
};

VJ_TEST_MAIN(tests)
