/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Opening by name, what a wrong name or option is told, and promises that are asserted.
 */
#include "store-test.h"

static const VjStorePlace nowhere = {.dir_fd = -1, .path = "nowhere"};

static void expect_open_fails(const char *spec, const char *part)
{
    g_autoptr(GError) error = NULL;
    VjStore *s = (VjStore *)&nowhere;

    assert_false(vj_store_open(spec, &nowhere, &s, &error));
    assert_null(s);
    vj_test_expect_error(&error, EINVAL, part);
}

static void test_names(void **state)
{
    (void)state;
    expect_open_fails("posi", "no store is called \"posi\"; this build has: posix");
    expect_open_fails("posixx", "\"posixx\"");
    expect_open_fails("", "\"\"");
    expect_open_fails(":size=1", "\"\"");
    expect_open_fails("fault", "no store is called \"fault\"");
    expect_open_fails("null:colour=red", "store null: ");
    expect_open_fails("null:size=0", "size");
    expect_open_fails("posix:sync_batch=65", "sync_batch");
    expect_open_fails("posix:open_files=1025", "open_files");
}

static void expect_wrap_fails(VjStore *inner, const char *spec, const char *part)
{
    g_autoptr(GError) error = NULL;
    VjStore *s = inner;

    assert_false(vj_store_wrap(spec, inner, &s, &error));
    assert_null(s);
    vj_test_expect_error(&error, EINVAL, part);
}

static void test_wrappers(void **state)
{
    g_autoptr(GError) error = NULL;
    VjStore *inner, *outer;

    (void)state;
    assert_true(vj_store_open("null:size=3K", &nowhere, &inner, &error));
    expect_wrap_fails(inner, "null", "no wrapper of a store is called \"null\"");
    expect_wrap_fails(inner, "stats:x=1", "store stats: ");
    expect_wrap_fails(inner, "fault:kinds=put+got", "\"got\"");
    expect_wrap_fails(inner, "fault:kinds=", "kinds");
    expect_wrap_fails(inner, "fault:errno=EWHAT", "EWHAT");
    expect_wrap_fails(inner, "fault:errno=ENOENT", "get alone");
    assert_true(vj_store_wrap("stats", inner, &outer, &error));
    assert_ptr_equal(outer->next, inner);
    assert_int_equal(vj_store_align_bytes(outer), 1);
    vj_store_close(outer);
    vj_store_close(NULL);
}

static void test_rows(void **state)
{
    (void)state;
    for (const VjStoreOps *const *row = vj_store_drivers; *row != NULL; row++) {
        assert_non_null((*row)->name);
        assert_non_null((*row)->options);
        for (const VjOptSpec *option = (*row)->options; option->name != NULL; option++) {
            assert_non_null(option->help);
        }
    }
}

static void test_needs(void **state)
{
    (void)state;
    assert_int_equal(vj_store_needs("posix"), VJ_NEEDS_FILES);
    assert_int_equal(vj_store_needs("posix:sync_batch=1,no such option"), VJ_NEEDS_FILES);
    assert_int_equal(vj_store_needs("block"), VJ_NEEDS_FILES);
    assert_int_equal(vj_store_needs("block:/dev/disk"), 0);
    assert_int_equal(vj_store_needs("memory:size=1G"), 0);
    assert_int_equal(vj_store_needs("null"), 0);
    assert_int_equal(vj_store_needs("posi"), 0);
    assert_int_equal(vj_store_needs("fault"), 0);
    assert_int_equal(vj_store_needs("remote:unix:/there"), VJ_NEEDS_UNIX);
    assert_int_equal(vj_store_needs("remote:a,unix:/b,c"), VJ_NEEDS_UNIX | VJ_NEEDS_TCP);
    for (const VjStoreOps *const *row = vj_store_drivers; *row != NULL; row++) {
        g_autoptr(GError) error = NULL;
        VjStore *s;

        assert_int_equal((*row)->needs & ~(uint32_t)VJ_NEEDS_ALL, 0);
        if ((*row)->needs_of != NULL) {
            continue; /* what it takes depends on its addresses */
        }
        assert_int_equal(vj_store_needs((*row)->name), (*row)->needs);
        if (((*row)->needs & VJ_NEEDS_FILES) == 0) {
            assert_true(vj_store_open((*row)->name, &nowhere, &s, &error));
            vj_store_close(s);
        }
    }
}

/* ---- Promises ---------------------------------------------------------------------- */

static VjStore *open_null(void)
{
    VjStore *s = NULL;

    g_assert(vj_store_open("null", &nowhere, &s, NULL));
    return s;
}

static void put_too_much(void)
{
    static uint8_t byte;
    struct iovec iov[2] = {{&byte, VJ_STORE_OBJECT_MAX}, {&byte, 1}};
    VjPut put;

    (void)(vj_store_put(open_null(), 1, iov, 2, &put) == 0);
}

static void put_nothing(void)
{
    struct iovec iov = {NULL, 0};
    VjPut put;

    (void)(vj_store_put(open_null(), 1, &iov, 0, &put) == 0);
}

static void get_past_largest(void)
{
    VjLoc loc = {{0}};
    uint8_t byte;

    (void)(vj_store_get(open_null(), 1, loc, UINT64_MAX, &byte, 1) == 0);
}

static void each_of_nothing(void)
{
    uint64_t count = 0;

    (void)(vj_store_each(open_null(), 2, 1, vj_store_test_count, &count) == 0);
}

static int answer_eintr(VjStore *s)
{
    (void)s;
    return -EINTR;
}

static int answer_larger(VjStore *s, VjStoreSpace *out)
{
    (void)s;
    *out = (VjStoreSpace){.total_bytes = 1, .free_bytes = 2};
    return 0;
}

static int answer_enoent(VjStore *s, uint64_t id, VjLoc loc)
{
    (void)s;
    (void)id;
    (void)loc;
    return -ENOENT;
}

static bool visit_twice_after_stop(void *opaque, const VjPut *object, int64_t mtime_us)
{
    (void)opaque;
    (void)object;
    (void)mtime_us;
    return false;
}

static int visit_outside(VjStore *s, uint64_t first, uint64_t last, VjStoreVisit *visit,
                         void *opaque)
{
    VjPut object = {.id = last + 1};

    (void)s;
    (void)first;
    visit(opaque, &object, 0);
    return 0;
}

static int visit_on(VjStore *s, uint64_t first, uint64_t last, VjStoreVisit *visit,
                    void *opaque)
{
    VjPut object = {.id = first};

    (void)s;
    (void)last;
    visit(opaque, &object, 0);
    visit(opaque, &object, 0);
    return 0;
}

static const VjStoreOps bad_ops = {
    .name = "bad",
    .flush = answer_eintr,
    .space = answer_larger,
    .remove = answer_enoent,
    .each = visit_outside,
};
static const VjStoreOps visit_on_ops = {.name = "bad", .each = visit_on};
static VjStore bad = {.ops = &bad_ops}, visits_on = {.ops = &visit_on_ops};

static void driver_eintr(void)
{
    (void)(vj_store_flush(&bad) == 0);
}

static void driver_space(void)
{
    VjStoreSpace space;

    (void)(vj_store_space(&bad, &space) == 0);
}

static void driver_remove(void)
{
    (void)(vj_store_remove(&bad, 1, (VjLoc){{0}}) == 0);
}

static void driver_each_outside(void)
{
    (void)(vj_store_each(&bad, 1, 2, visit_twice_after_stop, NULL) == 0);
}

static void driver_each_on(void)
{
    (void)(vj_store_each(&visits_on, 1, 2, visit_twice_after_stop, NULL) == 0);
}

static void test_promises(void **state)
{
    (void)state;
    vj_test_expect_abort(put_too_much, "check_pieces", "VJ_STORE_OBJECT_MAX");
    vj_test_expect_abort(put_nothing, "check_pieces", "iov_count > 0");
    vj_test_expect_abort(get_past_largest, "get_some", "VJ_STORE_OBJECT_MAX");
    vj_test_expect_abort(each_of_nothing, "vj_store_each", "first_id <= last_id");
    vj_test_expect_abort(driver_eintr, "vj_store_flush", "result_is_sound");
    vj_test_expect_abort(driver_space, "vj_store_space", "free_bytes");
    vj_test_expect_abort(driver_remove, "vj_store_remove", "ENOENT");
    vj_test_expect_abort(driver_each_outside, "check_visit", "first_id");
    vj_test_expect_abort(driver_each_on, "check_visit", "stopped");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_names),    cmocka_unit_test(test_wrappers),
    cmocka_unit_test(test_rows),     cmocka_unit_test(test_needs),
    cmocka_unit_test(test_promises),
};

VJ_TEST_MAIN(tests)
