/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* Errors: code is the errno, context grows in front, NULL is nobody listening. */
#include "../../lib/test.h"

static void an_error_carries_errno_and_text(void **state)
{
    g_autoptr(GError) error = NULL;

    (void)state;
    assert_false(vj_error_set(&error, ENOSPC, "object %d", 7));
    assert_true(g_error_matches(error, VJ_ERROR, ENOSPC));
    assert_string_equal(error->message, "object 7");
    assert_int_equal(vj_error_to_errno(error), -ENOSPC);
}

static void errno_text_is_appended(void **state)
{
    g_autoptr(GError) error = NULL;

    (void)state;
    assert_false(vj_error_set_errno(&error, ENOENT, "open %s", "a%sb"));
    assert_string_equal(error->message, "open a%sb: No such file or directory");
    assert_int_equal(error->code, ENOENT);
}

static void context_goes_in_front(void **state)
{
    g_autoptr(GError) error = NULL;

    (void)state;
    vj_error_set(&error, EIO, "short read");
    assert_false(vj_error_prefix(&error, "object %u", 9u));
    assert_false(vj_error_prefix(&error, "store posix"));
    assert_string_equal(error->message, "store posix: object 9: short read");
    assert_int_equal(error->code, EIO);
}

static void what_others_chose_stays_in_one_line(void **state)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *endless = g_strnfill(100000, 'a');

    (void)state;
    vj_error_set(&error, EINVAL, "no option \"%s\"", "a\nb\033[31m\177");
    vj_error_prefix(&error, "%s", "in\rfront");
    assert_string_equal(error->message,
                        "in\\x0dfront: no option \"a\\x0ab\\x1b[31m\\x7f\"");
    g_clear_error(&error);
    vj_error_set(&error, EINVAL, "%s", endless);
    assert_true(strlen(error->message) < 5000);
    assert_true(g_str_has_suffix(error->message, "..."));
}

static void nobody_needs_to_listen(void **state)
{
    (void)state;
    assert_false(vj_error_set(NULL, EIO, "x"));
    assert_false(vj_error_set_errno(NULL, EIO, "x"));
    assert_false(vj_error_prefix(NULL, "x"));
}

static void foreign_errors_are_eio(void **state)
{
    g_autoptr(GError) error =
        g_error_new(G_FILE_ERROR, G_FILE_ERROR_NOENT, "some other library's");

    (void)state;
    assert_int_equal(vj_error_to_errno(error), -EIO);
}

static void overwrite(void)
{
    g_autoptr(GError) error = NULL;

    vj_error_set(&error, EIO, "first");
    vj_error_set(&error, EIO, "second");
}

static void a_second_error_is_a_mistake(void **state)
{
    (void)state;
    vj_test_expect_abort(overwrite, "*error == NULL", "error.c");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_error_carries_errno_and_text),
    cmocka_unit_test(errno_text_is_appended),
    cmocka_unit_test(context_goes_in_front),
    cmocka_unit_test(what_others_chose_stays_in_one_line),
    cmocka_unit_test(nobody_needs_to_listen),
    cmocka_unit_test(foreign_errors_are_eio),
    cmocka_unit_test(a_second_error_is_a_mistake),
};

VJ_TEST_MAIN(tests)
