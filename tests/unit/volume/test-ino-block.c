/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-ino-block.c - inode numbers: none twice, few writes of the counter, and what a
 * close gives back
 */
#include "../../lib/test.h"

#include "volume/volume-private.h"

enum { THREADS = 8, NUMBERS = 5000, SHORT_BLOCK = 7 };

typedef struct Fixture {
    char *dir;
    VjVolume *v;
} Fixture;

static void open_volume(Fixture *x)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = x->dir, .wrap_meta = "fault"};

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
    open_volume(x);
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

static void reopen(Fixture *x)
{
    assert_int_equal(vj_volume_close(x->v), 0);
    open_volume(x);
}

static uint64_t new_number(Fixture *x)
{
    uint64_t ino;

    assert_int_equal(vj_ino_new(vj_volume_files(x->v), &ino), 0);
    return ino;
}

static int next_body(VjTxn *txn, void *opaque)
{
    return vj_ino_next(txn, opaque);
}

/* The counter, as it is with the metadata. */
static uint64_t counter(Fixture *x)
{
    uint64_t next;

    assert_int_equal(vj_meta_view(vj_volume_meta(x->v), next_body, &next), 0);
    return next;
}

static uint64_t counter_writes(Fixture *x)
{
    VjMetaStats s;

    vj_meta_stats(vj_volume_meta(x->v), &s);
    return s.puts[VJ_SPACE_SYSTEM];
}

/* ---- counts ------------------------------------------------------------------------ */

static void a_block_is_one_write(void **state)
{
    Fixture *x = *state;
    uint64_t before = counter_writes(x), first = new_number(x);

    assert_int_equal(counter(x), first + VJ_INO_BLOCK);
    for (unsigned i = 1; i < 3 * VJ_INO_BLOCK; i++) {
        assert_int_equal(new_number(x), first + i);
    }
    assert_int_equal(counter_writes(x) - before, 3);
    assert_int_equal(counter(x), first + 3 * VJ_INO_BLOCK);
}

static void the_rest_goes_back_at_close(void **state)
{
    Fixture *x = *state;
    uint64_t first = new_number(x);

    reopen(x);
    assert_int_equal(counter(x), first + 1);
    assert_int_equal(new_number(x), first + 1);
}

static int take_body(VjTxn *txn, void *opaque)
{
    return vj_ino_take(txn, opaque);
}

/* Who took a number behind the block keeps it. */
static void a_later_block_is_left_alone(void **state)
{
    Fixture *x = *state;
    uint64_t first = new_number(x), other;

    assert_int_equal(vj_meta_run(vj_volume_meta(x->v), VJ_RUN_DEFAULT, take_body, &other),
                     0);
    assert_int_equal(other, first + VJ_INO_BLOCK);
    reopen(x);
    assert_int_equal(counter(x), other + 1);
    assert_int_equal(new_number(x), other + 1);
}

/* ---- failures ---------------------------------------------------------------------- */

static void a_block_that_cannot_be_had(void **state)
{
    Fixture *x = *state;
    g_autoptr(GError) error = NULL;
    uint64_t ino, before = counter(x);

    assert_true(vj_meta_fault_set(vj_volume_meta(x->v), "fail=1,kinds=commit", &error));
    assert_int_equal(vj_ino_new(vj_volume_files(x->v), &ino), -EIO);
    assert_true(vj_meta_fault_set(vj_volume_meta(x->v), "", &error));
    assert_int_equal(counter(x), before);
    assert_int_equal(new_number(x), before);
}

static int last_body(VjTxn *txn, void *opaque)
{
    uint8_t value[VJ_NEXT_INO_BYTES];

    (void)opaque;
    vj_ino_next_encode(VJ_INO_MAX - 2, value);
    return vj_txn_put(txn, VJ_SPACE_SYSTEM, vj_slice("next-ino", strlen("next-ino")),
                      vj_slice(value, sizeof value));
}

/* The last block is shorter, and then there is none. */
static void numbers_end(void **state)
{
    Fixture *x = *state;
    uint64_t ino;

    assert_int_equal(vj_meta_run(vj_volume_meta(x->v), VJ_RUN_DEFAULT, last_body, NULL),
                     0);
    assert_int_equal(new_number(x), VJ_INO_MAX - 2);
    assert_int_equal(new_number(x), VJ_INO_MAX - 1);
    assert_int_equal(vj_ino_new(vj_volume_files(x->v), &ino), -ENOSPC);
    assert_int_equal(vj_ino_new(vj_volume_files(x->v), &ino), -ENOSPC);
}

/* ---- threads ----------------------------------------------------------------------- */

typedef struct Taker {
    Fixture *x;
    GThread *thread;
    uint64_t taken[NUMBERS];
} Taker;

static gpointer taker_main(gpointer opaque)
{
    Taker *t = opaque;

    for (unsigned i = 0; i < NUMBERS; i++) {
        t->taken[i] = new_number(t->x);
    }
    return NULL;
}

/* Each number is new, and below the counter.  Returns how many were lost besides. */
static uint64_t take_at_once(Fixture *x, GHashTable *seen)
{
    Taker *takers = g_new0(Taker, THREADS);
    uint64_t first = counter(x);

    for (unsigned i = 0; i < THREADS; i++) {
        takers[i].x = x;
        takers[i].thread = g_thread_new("taker", taker_main, &takers[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        g_thread_join(takers[i].thread);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned j = 0; j < NUMBERS; j++) {
            uint64_t *ino = g_memdup2(&takers[i].taken[j], sizeof *ino);

            assert_true(*ino < counter(x));
            assert_true(g_hash_table_add(seen, ino));
        }
    }
    g_free(takers);
    return counter(x) - first - (uint64_t)THREADS * NUMBERS;
}

static void threads_get_different_numbers(void **state)
{
    Fixture *x = *state;
    GHashTable *seen = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);

    vj_file_table_set_ino_block(vj_volume_files(x->v), SHORT_BLOCK);
    assert_true(take_at_once(x, seen) < SHORT_BLOCK);
    reopen(x);
    vj_file_table_set_ino_block(vj_volume_files(x->v), SHORT_BLOCK);
    assert_true(take_at_once(x, seen) < SHORT_BLOCK);
    g_hash_table_unref(seen);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_block_is_one_write, setup, teardown),
    cmocka_unit_test_setup_teardown(the_rest_goes_back_at_close, setup, teardown),
    cmocka_unit_test_setup_teardown(a_later_block_is_left_alone, setup, teardown),
    cmocka_unit_test_setup_teardown(a_block_that_cannot_be_had, setup, teardown),
    cmocka_unit_test_setup_teardown(numbers_end, setup, teardown),
    cmocka_unit_test_setup_teardown(threads_get_different_numbers, setup, teardown),
};

VJ_TEST_MAIN(tests)
