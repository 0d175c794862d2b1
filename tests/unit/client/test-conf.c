/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-conf.c - configurations of clients: all faults with their lines, and what
 * varjfs_open makes of a good one
 */
#include "fake-daemon.h"

typedef struct Seen {
    GString *faults; /* "LINE KEY: TEXT", one after the other, "|" between them */
    GString *values; /* "KEY=VALUE", likewise */
} Seen;

static void see(void *opaque, unsigned line, const char *key, const char *value,
                const char *fault)
{
    Seen *seen = opaque;

    assert_true((value == NULL) == (fault != NULL));
    if (fault != NULL) {
        g_string_append_printf(seen->faults, "%s%u%s%s: %s",
                               seen->faults->len > 0 ? "|" : "", line,
                               key != NULL ? " " : "", key != NULL ? key : "", fault);
    } else {
        assert_true(line > 0);
        g_string_append_printf(seen->values, "%s%s=%s", seen->values->len > 0 ? "|" : "",
                               key, value);
    }
}

static int look(const char *path, Seen *seen)
{
    seen->faults = g_string_new(NULL);
    seen->values = g_string_new(NULL);
    return varjfs_config_each(path, see, seen);
}

static void seen_clear(Seen *seen)
{
    g_string_free(seen->faults, TRUE);
    g_string_free(seen->values, TRUE);
}

static char *write_conf(const char *directory, const char *text, gssize len)
{
    char *path = g_build_filename(directory, "client.conf", NULL);

    assert_true(g_file_set_contents(path, text, len, NULL));
    assert_int_equal(chmod(path, 0600), 0);
    return path;
}

/* ---- faults ------------------------------------------------------------------------ */

static void test_faults(void **state)
{
    static const struct {
        const char *text, *faults;
    } cases[] = {
        {"[client]\nsource = v\n", ""},
        {"# c\n;\n\n [client] \r\n\tsource=\tv \r\n", ""},
        {"[client]\nsource = tls:h:1\nvolume = v\nkey = k\nidentity=i\n", ""},
        {"[client]\nsource=tls:[::1]\nvolume=v\nca=a\ncertificate=b\ncertificate_key=c\n",
         ""},
        {"[client]\nsource = unix:s\nvolume = v\ntimeout = 5\nread_only = yes", ""},
        {"", "1 source: is missing"},
        {"[client]\n", "1 source: is missing"},
        {"source = v\n", "1 source: stands before the section [client]"},
        {"[node]\nsource = v\n",
         "1: no section of a client's configuration: it is [client]"},
        {"[client]\nsource = v\n[client]\n", "3: there is a section [client] already"},
        {"[client]\nsource = v\nsource = w\n", "3 source: stands there twice"},
        {"[client]\nsource = v\ncolour = red\n", "3 colour: no such setting"},
        {"[client]\nsource = v\nwords\n", "3: neither a section nor \"key = value\""},
        {"[client]\nsource =\n", "2 source: there is no value"},
        {"[client]\nsource = unix:s\n", "2 volume: is missing: the source is an address"},
        {"[client]\nsource = v\nvolume = w\nkey = k\n",
         "3 volume: is for addresses: the source is a directory|"
         "4 key: is for TLS: the source is no tls:HOST"},
        {"[client]\nsource = unix:s\nvolume = -\n",
         "3 volume: no name of a volume: at most 63 letters, digits, '.', '_' and '-'"},
        {"[client]\nsource = tcp:h\n",
         "2 source: tcp: is in clear text, which leaves no machine: tls:HOST"},
        {"[client]\nsource = ftp:h\n",
         "2 source: no address of a kind that is known here"},
        {"[client]\nsource = tls:h\nvolume = v\n",
         "2 key: is missing, and so are certificate, certificate_key and ca"},
        {"[client]\nsource = tls:h\nvolume = v\nca = c\nidentity = i\n",
         "5 identity: is for a key|"
         "2 certificate: is missing: certificate, certificate_key and ca go together|"
         "2 certificate_key: is missing: certificate, certificate_key and ca go "
         "together"},
        {"[client]\ntimeout = 0\nread_only = on\ntimeout = 1\n",
         "2 timeout: no number of seconds, 1 to 86400|3 read_only: neither yes nor no|"
         "4 timeout: stands there twice|1 source: is missing"},
        {"[client]\nsource = tls:h\nvolume = v\nkey = k\ndaemon = d\n",
         "5 daemon: is for directories: the source is an address"},
    };
    g_autofree char *directory = vj_test_make_dir();

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *path = write_conf(directory, cases[i].text, -1);
        Seen seen;
        int rc = look(path, &seen);

        assert_string_equal(seen.faults->str, cases[i].faults);
        assert_int_equal(rc, *cases[i].faults == '\0' ? 0 : -EINVAL);
        seen_clear(&seen);
    }
    vj_test_remove_dir(g_steal_pointer(&directory));
}

static void expect_file(const char *path, int rc, const char *faults)
{
    Seen seen;

    assert_int_equal(look(path, &seen), rc);
    assert_string_equal(seen.faults->str, faults);
    seen_clear(&seen);
}

static void test_files(void **state)
{
    g_autofree char *directory = vj_test_make_dir(), *path = NULL;
    g_autofree char *text = g_strnfill(70000, '\n'), *none = NULL;
    varjfs *v;

    (void)state;
    path = write_conf(directory, "[client]\nsource = v\n\0\n", 22);
    none = g_build_filename(directory, "none", NULL);
    expect_file(path, -EINVAL, "3: there is a NUL byte");
    expect_file(none, -ENOENT, "0: no such object, key or volume");
    expect_file(directory, -EISDIR, "0: another error of the system");
    expect_file("/dev/null", -EINVAL, "0: is neither a file nor a directory");
    g_free(path);
    path = write_conf(directory, text, -1);
    expect_file(path, -EFBIG, "0: is too long for a configuration");
    assert_int_equal(chmod(path, 0620), 0);
    expect_file(path, -EACCES, "0: others than its owner may write it (chmod go-w)");
    assert_int_equal(varjfs_open(path, NULL, &v), -EACCES);
    assert_non_null(strstr(varjfs_open_error(), "chmod"));
    vj_test_remove_dir(g_steal_pointer(&directory));
}

/* ---- what it means ----------------------------------------------------------------- */

static void test_values(void **state)
{
    g_autofree char *directory = vj_test_make_dir(), *path = NULL, *expected = NULL;
    Seen seen;

    (void)state;
    path = write_conf(directory,
                      "[client]\nsource = unix:s\nvolume = v\nread_only = no\n", -1);
    assert_int_equal(look(path, &seen), 0);
    expected = g_strdup_printf("source=unix:%s/s|volume=v|read_only=no", directory);
    assert_string_equal(seen.values->str, expected);
    seen_clear(&seen);
    g_free(path);
    g_free(expected);
    path = write_conf(directory,
                      "[client]\nsource=tls:h\nvolume=v\nkey=/k\nidentity=a b\n", -1);
    assert_int_equal(look(path, &seen), 0);
    assert_string_equal(seen.values->str, "source=tls:h|volume=v|key=/k|identity=a b");
    seen_clear(&seen);
    g_free(path);
    path = write_conf(directory, "[client]\nsource = .\ndaemon = d\n", -1);
    assert_int_equal(look(path, &seen), 0);
    expected = g_strdup_printf("source=%s/.|daemon=d", directory);
    assert_string_equal(seen.values->str, expected);
    seen_clear(&seen);
    vj_test_remove_dir(g_steal_pointer(&directory));
}

static void serve(FakeDaemon *d)
{
    fake_hello(d, 0);
    fake_serve(d);
}

/* By a configuration beside the socket, whatever the directory of the process. */
static void test_open(void **state)
{
    FakeDaemon d = {0};
    g_autofree char *path = NULL;
    varjfs_batch *b;
    varjfs *v;

    (void)state;
    fake_start(&d, serve);
    path = write_conf(d.directory,
                      "[client]\nsource = unix:varjfsd.sock\nvolume = volume\n", -1);
    assert_int_equal(varjfs_open(path, NULL, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_kv_put(b, "s", "k", 1, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

static void test_bad_open(void **state)
{
    g_autofree char *directory = vj_test_make_dir(), *path = NULL;
    varjfs *v = (varjfs *)directory;

    (void)state;
    path = write_conf(directory, "[client]\n\nsauce = .\n", -1);
    assert_int_equal(varjfs_open(path, NULL, &v), -EINVAL);
    assert_null(v);
    assert_non_null(strstr(varjfs_open_error(), "client.conf: line 3: sauce: no such"));
    vj_test_remove_dir(g_steal_pointer(&directory));
}

static const struct CMUnitTest tests[] = {
    {"/conf/faults", test_faults, NULL, NULL, NULL},
    {"/conf/files", test_files, NULL, NULL, NULL},
    {"/conf/values", test_values, NULL, NULL, NULL},
    {"/conf/open", test_open, NULL, NULL, NULL},
    {"/conf/bad-open", test_bad_open, NULL, NULL, NULL},
};

VJ_TEST_MAIN(tests)
