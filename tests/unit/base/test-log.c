/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* Log lines, their limit and its summary; trace of chosen rooms. */
#include "../../lib/test.h"

static const struct timespec wall = {.tv_sec = 1700000000, .tv_nsec = 123456789};

static bool writes_fail;

ssize_t __real_write(int fd, const void *src, size_t len);
ssize_t __wrap_write(int fd, const void *src, size_t len);
ssize_t __wrap_write(int fd, const void *src, size_t len)
{
    if (writes_fail) {
        errno = ENOSPC;
        return -1;
    }
    return __real_write(fd, src, len);
}

typedef struct Place {
    char *dir;
    char *file;
} Place;

static int make_place(void **state)
{
    Place *place = g_new0(Place, 1);

    place->dir = vj_test_make_dir();
    place->file = g_build_filename(place->dir, "log", NULL);
    *state = place;
    vj_clock_set_for_test(&wall, 1000000);
    return vj_log_open("tester", place->file, VJ_LOG_INFO, NULL) ? 0 : -1;
}

static int remove_place(void **state)
{
    Place *place = *state;

    writes_fail = false;
    vj_log_close();
    vj_clock_set_for_test(NULL, 0);
    g_free(place->file);
    vj_test_remove_dir(place->dir);
    g_free(place);
    return 0;
}

/* The log's lines without time and process; free with g_strfreev. */
static char **lines_of(const Place *place)
{
    g_autofree char *text = NULL;
    g_autofree char *prefix =
        g_strdup_printf("2023-11-14T22:13:20.123Z tester[%ld]: ", (long)getpid());
    size_t len;
    char **lines;

    assert_true(g_file_get_contents(place->file, &text, &len, NULL));
    assert_int_equal(len, strlen(text));
    assert_true(len == 0 || text[len - 1] == '\n');
    lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line != NULL && **line != '\0'; line++) {
        assert_true(g_str_has_prefix(*line, prefix));
        memmove(*line, *line + strlen(prefix), strlen(*line + strlen(prefix)) + 1);
    }
    return lines;
}

static void levels_are_named_and_chosen(void **state)
{
    Place *place = *state;
    g_auto(GStrv) lines = NULL;

    errno = ERANGE;
    vj_log_error("object %d: %s", 7, "gone");
    vj_log_warn("w");
    vj_log_info("i");
    vj_log_debug("not wanted");
    assert_int_equal(errno, ERANGE);
    lines = lines_of(place);
    assert_string_equal(lines[0], "error: object 7: gone");
    assert_string_equal(lines[1], "warning: w");
    assert_string_equal(lines[2], "info: i");
    assert_string_equal(lines[3], "");
}

static void one_message_is_one_line(void **state)
{
    Place *place = *state;
    g_autofree char *huge = g_strnfill(100000, 'h');
    g_auto(GStrv) lines = NULL;

    vj_log_warn("name %s", "a\nerror: forged\r\033[31m\x7f");
    vj_log_warn("%s", huge);
    vj_log_warn("caf\xc3\xa9");
    /* A control sequence of terminals in eight bits, as a character and as a byte; a line
     * of its own and a change of direction in Unicode. */
    vj_log_warn("\xc2\x9b"
                "31m \x9b \xe2\x80\xa8 \xe2\x80\xae");
    lines = lines_of(place);
    assert_string_equal(lines[0], "warning: name a\\x0aerror: forged\\x0d\\x1b[31m\\x7f");
    assert_in_range(strlen(lines[1]), 4000, 4200);
    assert_string_equal(lines[2], "warning: caf\xc3\xa9");
    assert_string_equal(lines[3], "warning: \\xc2\\x9b31m \\x9b \\xe2\\x80\\xa8 "
                                  "\\xe2\\x80\\xae");
    assert_string_equal(lines[4], "");
}

static void complain(int n)
{
    vj_log_warn("complaint %d", n);
}

static void repeats_are_counted(void **state)
{
    Place *place = *state;
    g_auto(GStrv) lines = NULL;

    for (int i = 0; i < 15; i++) {
        complain(i);
    }
    vj_log_warn("another site");
    vj_clock_set_for_test(&wall, 1999999);
    complain(15);
    vj_clock_set_for_test(&wall, 2000000);
    complain(16);
    complain(17);
    lines = lines_of(place);
    assert_string_equal(lines[9], "warning: complaint 9");
    assert_string_equal(lines[10], "warning: another site");
    assert_string_equal(lines[11], "warning: 6 more lines like the next were left out");
    assert_string_equal(lines[12], "warning: complaint 16");
    assert_string_equal(lines[13], "warning: complaint 17");
    assert_string_equal(lines[14], "");
}

static void closing_tells_what_was_left_out(void **state)
{
    Place *place = *state;
    g_auto(GStrv) lines = NULL;

    vj_clock_set_for_test(&wall, 10000000);
    for (int i = 0; i < 13; i++) {
        complain(i);
    }
    vj_log_close();
    lines = lines_of(place);
    assert_string_equal(lines[9], "warning: complaint 9");
    assert_string_equal(lines[10],
                        "warning: 3 more lines like this were left out: complaint 10");
    assert_string_equal(lines[11], "");
}

static void lost_lines_are_counted(void **state)
{
    Place *place = *state;
    g_auto(GStrv) lines = NULL;

    writes_fail = true;
    vj_log_warn("one");
    vj_log_warn("two");
    vj_log_warn("three");
    writes_fail = false;
    vj_log_warn("four");
    vj_log_warn("five");
    lines = lines_of(place);
    assert_string_equal(lines[0], "warning: 3 earlier lines could not be written here");
    assert_string_equal(lines[1], "warning: four");
    assert_string_equal(lines[2], "warning: five");
    assert_string_equal(lines[3], "");
}

static void a_bad_target_is_an_error(void **state)
{
    g_autoptr(GError) error = NULL;

    (void)state;
    assert_false(vj_log_open("tester", "/nonexistent/log", VJ_LOG_INFO, &error));
    vj_test_expect_error(&error, ENOENT, "log /nonexistent/log: cannot open");
}

static gpointer shout(gpointer unused)
{
    (void)unused;
    for (int i = 0; i < 200; i++) {
        complain(i);
    }
    return NULL;
}

static void threads_may_log(void **state)
{
    Place *place = *state;
    GThread *threads[4];
    g_auto(GStrv) lines = NULL;

    vj_clock_set_for_test(&wall, 20000000);
    for (int i = 0; i < 4; i++) {
        threads[i] = g_thread_new("shout", shout, NULL);
    }
    for (int i = 0; i < 4; i++) {
        g_thread_join(threads[i]);
    }
    vj_log_close();
    lines = lines_of(place);
    assert_int_equal(g_strv_length(lines), 12);
    assert_true(g_str_has_prefix(
        lines[10], "warning: 790 more lines like this were left out: complaint "));
    assert_null(strchr(lines[10], '%'));
}

/* What @body writes to stderr; owned. */
static char *stderr_of(const Place *place, void (*body)(void))
{
    g_autofree char *path = g_build_filename(place->dir, "stderr", NULL);
    VJ_AUTO_FD file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    VJ_AUTO_FD saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    char *text;

    assert_true(file >= 0 && saved >= 0);
    assert_true(dup2(file, STDERR_FILENO) >= 0);
    body();
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    assert_true(g_file_get_contents(path, &text, NULL, NULL));
    return text;
}

static void warn_to_stderr(void)
{
    vj_log_close();
    vj_log_warn("before any log is open");
    vj_log_debug("not shown");
}

static void stderr_is_where_it_starts(void **state)
{
    g_autofree char *text = stderr_of(*state, warn_to_stderr);

    assert_true(g_str_has_suffix(text, ": warning: before any log is open\n"));
    assert_null(strstr(text, "not shown"));
}

static int evaluated;

static int evaluate(void)
{
    return ++evaluated;
}

static void trace_two_rooms(void)
{
    vj_log_close();
    setenv("VARJFS_TRACE", "store,,nonsense,fs", 1);
    vj_trace_init();
    vj_trace(store, "get loc=%s len=%d", "abc", evaluate());
    vj_trace(meta, "off %d", evaluate());
    vj_trace(fs, "plain");
    setenv("VARJFS_TRACE", "all", 1);
    vj_trace_init();
    vj_trace(node, "%s", (char *)memset((char[3000]){0}, 'x', 2999));
    unsetenv("VARJFS_TRACE");
    vj_trace_init();
    vj_trace(store, "off again");
}

static void trace_shows_the_rooms_asked_for(void **state)
{
    g_autofree char *text = NULL;
    g_auto(GStrv) lines = NULL;

    evaluated = 0;
    text = stderr_of(*state, trace_two_rooms);
    lines = g_strsplit(text, "\n", -1);
    assert_int_equal(g_strv_length(lines), 5);
    assert_non_null(strstr(lines[0], "VARJFS_TRACE: unknown room \"nonsense\""));
    assert_true(g_str_has_prefix(lines[1], "1.000000 "));
    assert_true(g_str_has_suffix(lines[1], " store: get loc=abc len=1"));
    assert_true(g_str_has_suffix(lines[2], " fs: plain"));
    assert_non_null(strstr(lines[3], " node: xxx"));
    assert_in_range(strlen(lines[3]), 1024, 1100);
    assert_int_equal(evaluated, 1);
}

#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)

static const struct CMUnitTest tests[] = {
    IN_PLACE(levels_are_named_and_chosen),
    IN_PLACE(one_message_is_one_line),
    IN_PLACE(repeats_are_counted),
    IN_PLACE(closing_tells_what_was_left_out),
    IN_PLACE(lost_lines_are_counted),
    IN_PLACE(a_bad_target_is_an_error),
    IN_PLACE(threads_may_log),
    IN_PLACE(stderr_is_where_it_starts),
    IN_PLACE(trace_shows_the_rooms_asked_for),
};

VJ_TEST_MAIN(tests)
