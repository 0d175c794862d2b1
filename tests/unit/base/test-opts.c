/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* Option texts: what is taken, what is refused in one clear line, and hostile ones. */
#include "../../lib/test.h"

static const VjOptSpec specs[] = {
    {.name = "ro", .type = VJ_OPT_FLAG, .help = "refuse changes"},
    {.name = "uring", .type = VJ_OPT_FLAG, .fallback = "yes", .help = "io_uring"},
    {.name = "label", .type = VJ_OPT_STRING, .help = "shown by df"},
    {.name = "cache",
     .type = VJ_OPT_SIZE,
     .fallback = "64M",
     .min = 4096,
     .max = 1 << 30,
     .help = "bytes of cache"},
    {.name = "commit",
     .type = VJ_OPT_NUMBER,
     .fallback = "1",
     .max = 60,
     .help = "seconds"},
    {.name = "huge", .type = VJ_OPT_NUMBER, .min = 1, .help = "any number above 0"},
    {.name = "hash",
     .type = VJ_OPT_CHOICE,
     .fallback = "blake3",
     .choices = "blake3|sha256|sha1",
     .help = "digest"},
    {.name = "store", .type = VJ_OPT_STRING, .is_spec = true, .help = "driver"},
    {.name = "key", .type = VJ_OPT_STRING, .is_file = true, .help = "a file"},
    {.name = "disk", .type = VJ_OPT_STRING, .is_device = true, .help = "a device"},
    {.name = NULL},
};

static int make_opts(void **state)
{
    *state = vj_opts_new(specs);
    return 0;
}

static int free_opts(void **state)
{
    vj_opts_free(*state);
    return 0;
}

static void expect_refused(VjOpts *o, const char *text, const char *part)
{
    g_autoptr(GError) error = NULL;

    if (vj_opts_parse(o, text, &error)) {
        fail_msg("\"%s\" was taken", text);
    }
    vj_test_expect_error(&error, EINVAL, part);
}

/* Commas of a driver's spec need no escape where nothing else can be meant. */
static void specs_go_on(void **state)
{
    VjOpts *o = *state;

    assert_true(
        vj_opts_parse(o, "store=remote:a,b:replicas=2,name=k\\,1,,label=x,ro", NULL));
    assert_string_equal(vj_opts_string(o, "store"), "remote:a,b:replicas=2,name=k,1");
    assert_string_equal(vj_opts_string(o, "label"), "x");
    assert_true(vj_opts_flag(o, "ro"));
    assert_true(vj_opts_parse(o, "store=remote:a\\,b,hash=sha1", NULL));
    assert_string_equal(vj_opts_string(o, "store"), "remote:a,b");
    expect_refused(o, "store=posix,lable=x", "lable");
    expect_refused(o, "label=a:b,c", "\"c\"");
    expect_refused(o, "store=remote:a,ro,b", "\"b\"");
    expect_refused(o, "b,store=remote:a", "\"b\"");
}

static void files_are_listed(void **state)
{
    g_autoptr(VjOptFiles) files = vj_opt_files_new();
    VjOpts *o = *state;

    vj_opts_files(o, files);
    assert_int_equal(files->read->len, 0);
    assert_true(vj_opts_parse(o, "label=l,key=beside.key,disk=/dev/disk", NULL));
    vj_opts_files(o, files);
    assert_int_equal(files->read->len, 1);
    assert_string_equal(files->read->pdata[0], "beside.key");
    assert_int_equal(files->written->len, 1);
    assert_string_equal(files->written->pdata[0], "/dev/disk");
}

static void defaults_hold(void **state)
{
    VjOpts *o = *state;

    assert_true(vj_opts_parse(o, "", NULL));
    assert_false(vj_opts_flag(o, "ro"));
    assert_true(vj_opts_flag(o, "uring"));
    assert_null(vj_opts_string(o, "label"));
    assert_true(vj_opts_number(o, "cache") == 64 * VJ_MIB);
    assert_true(vj_opts_number(o, "commit") == 1);
    assert_true(vj_opts_number(o, "huge") == 0);
    assert_string_equal(vj_opts_string(o, "hash"), "blake3");
    assert_false(vj_opts_is_set(o, "hash"));
    assert_true(vj_opts_has_spec(o, "hash"));
    assert_false(vj_opts_has_spec(o, "has"));
    vj_opts_free(NULL);
}

static void values_are_taken(void **state)
{
    VjOpts *o = *state;
    g_autoptr(GError) error = NULL;

    assert_true(
        vj_opts_parse(o, "ro,label=a=b,cache=4K,commit=60,hash=sha1,uring=no", &error));
    assert_true(vj_opts_flag(o, "ro"));
    assert_false(vj_opts_flag(o, "uring"));
    assert_string_equal(vj_opts_string(o, "label"), "a=b");
    assert_true(vj_opts_number(o, "cache") == 4096);
    assert_string_equal(vj_opts_string(o, "cache"), "4K");
    assert_true(vj_opts_number(o, "commit") == 60);
    assert_string_equal(vj_opts_string(o, "hash"), "sha1");
    assert_true(vj_opts_is_set(o, "hash"));
    assert_true(vj_opts_parse(o, "huge=18446744073709551615", &error));
    assert_true(vj_opts_number(o, "huge") == UINT64_MAX);
}

static void later_settings_win(void **state)
{
    VjOpts *o = *state;

    assert_true(vj_opts_parse(o, "commit=2,ro,commit=3,ro=no", NULL));
    assert_true(vj_opts_parse(o, "commit=4", NULL));
    assert_true(vj_opts_number(o, "commit") == 4);
    assert_false(vj_opts_flag(o, "ro"));
    assert_true(vj_opts_set(o, "label", "as, it \\is", NULL));
    assert_string_equal(vj_opts_string(o, "label"), "as, it \\is");
}

static void escapes_and_empty_elements(void **state)
{
    VjOpts *o = *state;

    assert_true(vj_opts_parse(o, "label=a\\,b\\\\c,,ro,", NULL));
    assert_string_equal(vj_opts_string(o, "label"), "a,b\\c");
    assert_true(vj_opts_flag(o, "ro"));
    assert_true(vj_opts_parse(o, ",", NULL));
    assert_true(vj_opts_parse(o, "label=", NULL));
    assert_string_equal(vj_opts_string(o, "label"), "");
    expect_refused(o, "label=a\\b", "backslash");
    expect_refused(o, "label=a\\", "backslash");
    expect_refused(o, "\\", "backslash");
}

static void mistakes_are_one_clear_line(void **state)
{
    VjOpts *o = *state;

    expect_refused(o, "cach=1M",
                   "unknown option \"cach\": known are ro, uring, label, cache");
    expect_refused(o, "=", "unknown option \"\"");
    expect_refused(o, "ro=", "option ro: it is yes or no");
    expect_refused(o, "ro=1", "option ro: it is yes or no");
    expect_refused(o, "label", "option label: needs a value (label=...)");
    expect_refused(o, "cache=", "option cache: \"\" is not a size");
    expect_refused(o, "cache=1k", "option cache: \"1k\" is not a size");
    expect_refused(o, "cache=4095", "option cache: 4095 is below the least, 4096");
    expect_refused(o, "cache=2G",
                   "option cache: 2147483648 is above the most, 1073741824");
    expect_refused(o, "commit=61", "option commit: 61 is above the most, 60");
    expect_refused(o, "commit=-1", "option commit: \"-1\" is not a decimal number");
    expect_refused(o, "commit=1K", "not a decimal number");
    expect_refused(o, "huge=18446744073709551616", "not a decimal number below 2^64");
    expect_refused(o, "huge=0", "below the least");
    expect_refused(o, "hash=md5",
                   "option hash: \"md5\" is not one of blake3|sha256|sha1");
    expect_refused(o, "hash=", "option hash: \"\" is not one of");
    expect_refused(o, "hash=blake3|sha256", "is not one of");
    assert_true(vj_opts_number(o, "commit") == 1); /* a refused value changes nothing */
    assert_false(vj_opts_is_set(o, "commit"));
}

static void hostile_text_is_quoted_and_bounded(void **state)
{
    VjOpts *o = *state;
    g_autofree char *huge = g_strnfill(65537, 'x');
    g_autofree char *many = g_strnfill(65536, ',');
    g_autoptr(GError) error = NULL;

    expect_refused(o, "\n\033[2Jx=1", "\"\\x0a\\x1b[2Jx\"");
    expect_refused(o, "hash=\xff\xfe", "\"\\xff\\xfe\"");
    expect_refused(o, huge, "longer than 65536 bytes");
    assert_true(vj_opts_parse(o, many, NULL));
    huge[65536] = '\0';
    assert_false(vj_opts_parse(o, huge, &error));
    assert_in_range(strlen(error->message), 64, 300);
}

/* Seeded noise from the characters that matter: never a crash, errors always ours. */
static void noise_is_survived(void **state)
{
    static const char alphabet[] = "ro,=\\cahehsl0189KMGT|-.\n\xff";
    const uint64_t seed = 20261120;
    VjRng r;

    (void)state;
    vj_rng_init(&r, seed);
    for (int n = 0; n < 20000; n++) {
        g_autoptr(VjOpts) o = vj_opts_new(specs);
        g_autoptr(GError) error = NULL;
        char text[40];
        size_t len = vj_rng_below(&r, sizeof text);

        for (size_t i = 0; i < len; i++) {
            text[i] = alphabet[vj_rng_below(&r, sizeof alphabet - 1)];
        }
        text[len] = '\0';
        if (!vj_opts_parse(o, text, &error)) {
            assert_true(g_error_matches(error, VJ_ERROR, EINVAL));
            assert_null(strchr(error->message, '\n'));
        } else {
            assert_null(error);
        }
    }
}

static void sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"64K", 65536},
        {"007M", 7 * VJ_MIB},
        {"3G", 3 * VJ_GIB},
        {"1T", VJ_TIB},
        {"16777215T", UINT64_C(16777215) << 40},
        {"18446744073709551615", UINT64_MAX},
    };
    static const char *const bad[] = {
        "",
        "K",
        " 1",
        "1 ",
        "+1",
        "-1",
        "0x10",
        "1.5M",
        "1KB",
        "1KK",
        "1k",
        "16777216T",
        "18446744073709551616",
        "99999999999999999999999999",
    };
    g_autoptr(GError) error = NULL;
    uint64_t bytes;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
        assert_true(vj_parse_size(good[i].text, &bytes, &error));
        assert_true(bytes == good[i].bytes);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        if (vj_parse_size(bad[i], &bytes, &error)) {
            fail_msg("\"%s\" was taken", bad[i]);
        }
        vj_test_expect_error(&error, EINVAL, "is not a size");
    }
}

static void help_shows_every_option(void **state)
{
    g_autofree char *help = vj_opts_help(specs);
    static const char expected[] =
        "  ro                        refuse changes\n"
        "  uring                     io_uring (default yes)\n"
        "  label=TEXT                shown by df\n"
        "  cache=SIZE                bytes of cache (default 64M)\n"
        "  commit=N                  seconds (default 1)\n"
        "  huge=N                    any number above 0\n"
        "  hash=blake3|sha256|sha1   digest (default blake3)\n"
        "  store=TEXT                driver\n"
        "  key=TEXT                  a file\n"
        "  disk=TEXT                 a device\n";

    (void)state;
    assert_string_equal(help, expected);
}

static void ask_for_unknown(void)
{
    g_autoptr(VjOpts) o = vj_opts_new(specs);

    vj_opts_string(o, "nonsense");
}

static void ask_number_of_a_choice(void)
{
    g_autoptr(VjOpts) o = vj_opts_new(specs);

    vj_opts_number(o, "hash");
}

static void bad_fallback(void)
{
    static const VjOptSpec wrong[] = {
        {.name = "n", .type = VJ_OPT_NUMBER, .fallback = "many", .help = ""},
        {.name = NULL},
    };
    g_autoptr(VjOpts) o = vj_opts_new(wrong);
}

static void programmers_mistakes_abort(void **state)
{
    (void)state;
    vj_test_expect_abort(ask_for_unknown, "i < o->count", "opts.c");
    vj_test_expect_abort(ask_number_of_a_choice, "VJ_OPT_NUMBER", "opts.c");
    vj_test_expect_abort(bad_fallback, "is_valid", "opts.c");
}

/* What stands before the first setting, colons and commas included. */
static void leaders(void **state)
{
    static const VjOptSpec led[] = {
        {.name = "nodes", .type = VJ_OPT_STRING, .leads = true, .help = ""},
        {.name = "key", .type = VJ_OPT_STRING, .help = ""},
        {.name = "plain", .type = VJ_OPT_FLAG, .help = ""},
        {.name = NULL},
    };
    static const struct {
        const char *text, *nodes, *key;
        bool plain;
    } rows[] = {
        {"", NULL, NULL, false},
        {"h", "h", NULL, false},
        {"h:7843", "h:7843", NULL, false},
        {"[::1]:7843,h2", "[::1]:7843,h2", NULL, false},
        {"unix:/run/x:plain", "unix:/run/x", NULL, true},
        {"unix:/run/x:plain,key=a:b=c", "unix:/run/x", "a:b=c", true},
        {"unix:/run/a=b,[::1]:1:key=k", "unix:/run/a=b,[::1]:1", "k", false},
        {"plain", NULL, NULL, true},
        {"plain:1", "plain:1", NULL, false},
        {"plainer:keys=1", "plainer:keys=1", NULL, false},
        {"key=k,nodes=a\\,b", "a,b", "k", false},
        {"h:key=", "h", "", false},
        {"h\\:key=x", "h\\", "x", false},
    };

    (void)state;
    assert_ptr_equal(vj_opts_leader(led), &led[0]);
    assert_null(vj_opts_leader(specs));
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(VjOpts) o = vj_opts_new(led);
        g_autoptr(GError) error = NULL;

        assert_true(vj_opts_parse_spec(o, rows[i].text, &error));
        assert_int_equal(g_strcmp0(vj_opts_string(o, "nodes"), rows[i].nodes), 0);
        assert_int_equal(g_strcmp0(vj_opts_string(o, "key"), rows[i].key), 0);
        assert_int_equal(vj_opts_flag(o, "plain"), rows[i].plain);
    }
}

#define WITH_OPTS(test) cmocka_unit_test_setup_teardown(test, make_opts, free_opts)

static const struct CMUnitTest tests[] = {
    WITH_OPTS(defaults_hold),
    WITH_OPTS(specs_go_on),
    WITH_OPTS(files_are_listed),
    WITH_OPTS(values_are_taken),
    WITH_OPTS(later_settings_win),
    WITH_OPTS(escapes_and_empty_elements),
    WITH_OPTS(mistakes_are_one_clear_line),
    WITH_OPTS(hostile_text_is_quoted_and_bounded),
    cmocka_unit_test(leaders),
    cmocka_unit_test(noise_is_survived),
    cmocka_unit_test(sizes),
    cmocka_unit_test(help_shows_every_option),
    cmocka_unit_test(programmers_mistakes_abort),
};

VJ_TEST_MAIN(tests)
