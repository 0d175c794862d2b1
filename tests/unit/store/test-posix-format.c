/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Names and locators of the posix driver: golden values, since they are on disk, and
 * names that somebody else put there.
 */
#include "../../lib/test.h"

#include "store/posix-format.h"

static void expect_names(uint64_t id, uint64_t nonce, const char *path)
{
    char top[VJ_POSIX_TOP_NAME_BYTES], middle[VJ_POSIX_MIDDLE_NAME_BYTES];
    char object[VJ_POSIX_OBJECT_NAME_BYTES];
    g_autofree char *made = NULL;
    uint64_t got_top = 0, got_middle = 0, got_id = 0, got_nonce = 0;

    vj_posix_top_name(id, top);
    vj_posix_middle_name(id, middle);
    vj_posix_object_name(id, nonce, object);
    made = g_strdup_printf("%s/%s/%s", top, middle, object);
    assert_string_equal(made, path);
    assert_true(vj_posix_parse_top(top, &got_top));
    assert_true(vj_posix_parse_middle(middle, &got_middle));
    assert_true(vj_posix_parse_object(object, &got_id, &got_nonce));
    assert_true(got_top == id >> 24 && got_middle == (id >> 12 & 0xfff));
    assert_true(got_id == id && got_nonce == nonce);
}

static void test_names(void **state)
{
    (void)state;
    expect_names(0, 0, "0000000000/000/0000000000000000.0000000000000000");
    expect_names(1, 0xabc, "0000000000/000/0000000000000001.0000000000000abc");
    expect_names(0x1000, 1, "0000000000/001/0000000000001000.0000000000000001");
    expect_names(0x123456789abcdef0, 0xfedcba9876543210,
                 "123456789a/bcd/123456789abcdef0.fedcba9876543210");
    expect_names(UINT64_MAX, UINT64_MAX,
                 "ffffffffff/fff/ffffffffffffffff.ffffffffffffffff");
}

static void test_foreign_names(void **state)
{
    static const char *const names[] = {
        "",
        ".",
        "0",
        "00",
        "format",
        "lost+found",
        "000000000",
        "00000000000",
        "000000000G",
        "000000000A",
        "-000000001",
        "0x00000001",
        " 000000000",
        "00g",
        "0000",
        "FFF",
        "0000000000000000",
        "0000000000000000.",
        "0000000000000000.000000000000000",
        "0000000000000000.00000000000000000",
        "0000000000000000.000000000000000G",
        "0000000000000000-0000000000000000",
        "000000000000000A.0000000000000000",
        "0000000000000000.0000000000000000~",
        ".000000000000000.0000000000000000",
    };
    uint64_t a = 0, b = 0;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        /* In memory of exactly its size: a sanitizer sees a read past the end. */
        g_autofree char *name = g_strdup(names[i]);

        assert_false(vj_posix_parse_top(name, &a));
        assert_false(vj_posix_parse_middle(name, &a));
        assert_false(vj_posix_parse_object(name, &a, &b));
    }
}

static void test_locators(void **state)
{
    VjLoc loc = vj_posix_loc_encode(0x1122334455667788);
    uint64_t nonce = 0;

    (void)state;
    vj_test_expect_hex(loc.bytes, sizeof loc.bytes, "564a5031000000008877665544332211");
    assert_true(vj_posix_loc_decode(loc, &nonce));
    assert_true(nonce == 0x1122334455667788);
    for (size_t i = 0; i < 8; i++) {
        VjLoc damaged = loc;

        damaged.bytes[i] ^= 1;
        assert_false(vj_posix_loc_decode(damaged, &nonce));
    }
    assert_false(vj_posix_loc_decode((VjLoc){{0}}, &nonce));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_names),
    cmocka_unit_test(test_foreign_names),
    cmocka_unit_test(test_locators),
};

VJ_TEST_MAIN(tests)
