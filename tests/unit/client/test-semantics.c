/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* test-semantics.c - every combination, as varjfs-semantics(7) has it */
#include "../../lib/test.h"

#include <varjfs/varjfs.h>

/* Which is refused: said here once more, and not by the library's table. */
static const char *expected_refusal(const struct varjfs_semantics *s)
{
    if (s->security == VARJFS_SECURITY_STRICT) {
        return "security strict";
    }
    if (s->safety == VARJFS_SAFETY_NONE &&
        s->persistency == VARJFS_PERSISTENCY_IMMEDIATE) {
        return "persistency immediate";
    }
    if (s->safety == VARJFS_SAFETY_NONE &&
        s->consistency == VARJFS_CONSISTENCY_IMMEDIATE) {
        return "consistency immediate";
    }
    return NULL;
}

static void test_every_combination(void **state)
{
    /* In the order of the structure. */
    static const uint8_t limits[7] = {3, 3, 4, 3, 3, 3, 2};
    unsigned refused = 0, all = 0;
    uint8_t at[7] = {0};
    size_t digit;

    (void)state;
    do {
        struct varjfs_semantics s = {sizeof s, at[0], at[1], at[2], at[3],
                                     at[4],    at[5], at[6], 0};
        const char *expected = expected_refusal(&s), *why = "";

        all++;
        refused += expected != NULL;
        assert_int_equal(varjfs_semantics_check(&s, &why),
                         expected != NULL ? -ENOTSUP : 0);
        assert_int_equal(varjfs_semantics_check(&s, NULL),
                         expected != NULL ? -ENOTSUP : 0);
        if (expected == NULL) {
            assert_null(why);
        } else {
            assert_non_null(why);
            assert_true(g_str_has_prefix(why, expected));
        }
        for (digit = 0; digit < 7 && ++at[digit] == limits[digit]; digit++) {
            at[digit] = 0;
        }
    } while (digit < 7);
    assert_int_equal(all, 3 * 3 * 4 * 3 * 3 * 3 * 2);
    assert_true(refused > 0 && refused < all);
}

static void test_values_without_meaning(void **state)
{
    static const uint8_t limits[7] = {3, 3, 4, 3, 3, 3, 2};
    const char *why = "";

    (void)state;
    for (size_t i = 0; i < 7; i++) {
        struct varjfs_semantics s = {.size = sizeof s};

        (&s.atomicity)[i] = limits[i];
        assert_int_equal(varjfs_semantics_check(&s, &why), -EINVAL);
        assert_null(why);
    }
}

static void test_sizes(void **state)
{
    struct {
        struct varjfs_semantics s;
        uint64_t later;
    } s = {{.size = sizeof s}, 0};

    (void)state;
    assert_int_equal(varjfs_semantics_check(&s.s, NULL), 0);
    s.later = 1; /* a member that this version does not have is asked for */
    assert_int_equal(varjfs_semantics_check(&s.s, NULL), -EINVAL);
    s.s.size = 8;
    assert_int_equal(varjfs_semantics_check(&s.s, NULL), -EINVAL);
    assert_int_equal(varjfs_semantics_template("default", &s.s), -EINVAL);
    assert_int_equal(varjfs_semantics_check(NULL, NULL), -EINVAL);
}

static void test_templates(void **state)
{
    static const char *const names[] = {"default", "posix", "temporary", "checkpoint"};
    struct varjfs_semantics s = {.size = sizeof s};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        assert_int_equal(varjfs_semantics_template(names[i], &s), 0);
        assert_int_equal(s.size, sizeof s);
        assert_int_equal(varjfs_semantics_check(&s, NULL), 0);
    }
    assert_int_equal(s.safety, VARJFS_SAFETY_STORAGE);
    assert_int_equal(varjfs_semantics_template("other", &s), -EINVAL);
    assert_int_equal(varjfs_semantics_template(NULL, &s), -EINVAL);
    assert_int_equal(varjfs_semantics_template("default", NULL), -EINVAL);
}

static void test_texts(void **state)
{
    (void)state;
    assert_string_equal(varjfs_version(), VARJFS_VERSION);
    assert_string_equal(varjfs_strerror(0), "no error");
    assert_string_not_equal(varjfs_strerror(-ENOENT), varjfs_strerror(-EIO));
    for (int error = -200; error <= 200; error++) {
        assert_true(strlen(varjfs_strerror(error)) > 0);
    }
    assert_non_null(varjfs_strerror(INT_MIN));
}

/* What a later version may give a meaning is zero until then. */
static void test_reserved(void **state)
{
    struct varjfs_semantics s = {.size = sizeof s};

    (void)state;
    assert_int_equal(varjfs_semantics_template("default", &s), 0);
    assert_int_equal(varjfs_semantics_check(&s, NULL), 0);
    s.reserved = 1;
    assert_int_equal(varjfs_semantics_check(&s, NULL), -EINVAL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_reserved),
    {"/semantics/every-combination", test_every_combination, NULL, NULL, NULL},
    {"/semantics/values-without-meaning", test_values_without_meaning, NULL, NULL, NULL},
    {"/semantics/sizes", test_sizes, NULL, NULL, NULL},
    {"/semantics/templates", test_templates, NULL, NULL, NULL},
    {"/semantics/texts", test_texts, NULL, NULL, NULL},
};

VJ_TEST_MAIN(tests)
