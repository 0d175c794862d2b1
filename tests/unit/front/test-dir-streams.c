/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-dir-streams.c - where listings end: of one, of several in one directory, of more
 * than are remembered
 */
#include "../../lib/test.h"

#include "front/front-private.h"

static void test_one(void **state)
{
    VjDirStreams *s = vj_dir_streams_new();

    (void)state;
    assert_true(vj_dir_streams_end(s, 1, 0) == UINT64_MAX);
    vj_dir_streams_note(s, 1, 0, 10, 100);
    /* The reader had room for some of the names, or for all of them. */
    assert_int_equal(vj_dir_streams_end(s, 1, 5), 100);
    assert_int_equal(vj_dir_streams_end(s, 1, 10), 100);
    vj_dir_streams_note(s, 1, 5, 20, 100);
    assert_int_equal(vj_dir_streams_end(s, 1, 20), 100);
    /* Not of another directory, not of where no listing has got. */
    assert_true(vj_dir_streams_end(s, 2, 10) == UINT64_MAX);
    assert_true(vj_dir_streams_end(s, 1, 21) == UINT64_MAX);
    assert_true(vj_dir_streams_end(s, 1, 4) == UINT64_MAX);
    /* From the start it is a new one. */
    assert_true(vj_dir_streams_end(s, 1, 0) == UINT64_MAX);
    vj_dir_streams_note(s, 1, 20, 0, 100);
    assert_true(vj_dir_streams_end(s, 1, 20) == UINT64_MAX);
    vj_dir_streams_free(s);
}

static void test_several(void **state)
{
    VjDirStreams *s = vj_dir_streams_new();

    (void)state;
    vj_dir_streams_note(s, 1, 0, 10, 100);
    vj_dir_streams_note(s, 1, 0, 30, 200);
    /* Both have got there: names are missing from neither. */
    assert_int_equal(vj_dir_streams_end(s, 1, 10), 200);
    assert_int_equal(vj_dir_streams_end(s, 1, 30), 200);
    vj_dir_streams_note(s, 1, 30, 60, 200);
    assert_int_equal(vj_dir_streams_end(s, 1, 10), 100);
    /* One that is over is not known any more. */
    vj_dir_streams_note(s, 1, 60, 0, 200);
    assert_true(vj_dir_streams_end(s, 1, 60) == UINT64_MAX);
    vj_dir_streams_free(s);
}

/* The kernel keeps the list of one that is over: a reader of it may ask anywhere, also
 * where one that began before was left. */
static void test_kept(void **state)
{
    VjDirStreams *s = vj_dir_streams_new();

    (void)state;
    vj_dir_streams_note(s, 1, 0, 30, 100);
    vj_dir_streams_note(s, 1 + VJ_DIR_STREAMS_MAX, 0, 30, 100); /* another directory */
    vj_dir_streams_note(s, 1, 0, 30, 200);
    vj_dir_streams_note(s, 1, 30, 60, 200);
    assert_int_equal(vj_dir_streams_end(s, 1, 10), 100);
    vj_dir_streams_note(s, 1, 60, 0, 200);
    assert_int_equal(vj_dir_streams_end(s, 1, 10), 200);
    assert_int_equal(vj_dir_streams_end(s, 1 + VJ_DIR_STREAMS_MAX, 10), 100);
    /* Nor does one end earlier by that. */
    vj_dir_streams_note(s, 1, 70, 0, 150);
    assert_int_equal(vj_dir_streams_end(s, 1, 10), 200);
    /* As one that is not known to have begun. */
    vj_dir_streams_note(s, 1, 70, 0, 300);
    assert_int_equal(vj_dir_streams_end(s, 1, 10), 300);
    vj_dir_streams_free(s);
}

/* A listing that goes on is remembered, however many begin beside it and are left. */
static void test_many(void **state)
{
    VjDirStreams *s = vj_dir_streams_new();
    uint64_t at = 0;

    (void)state;
    for (uint64_t i = 0; i < UINT64_C(20) * VJ_DIR_STREAMS_MAX; i++) {
        assert_true(at == 0 || vj_dir_streams_end(s, 7, at) == 1000000);
        vj_dir_streams_note(s, 7, at, at + 10, 1000000);
        at += 10;
        vj_dir_streams_note(s, i + 8, 0, 10, 50);
    }
    assert_true(vj_dir_streams_end(s, 8, 10) == UINT64_MAX);
    vj_dir_streams_free(s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_one),
    cmocka_unit_test(test_several),
    cmocka_unit_test(test_kept),
    cmocka_unit_test(test_many),
};

VJ_TEST_MAIN(tests)
