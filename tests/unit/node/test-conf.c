/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* varjfsd.conf: what it says, each kind of mistake with its line, and the manual page */
#include "../../lib/test.h"

#include "node/conf.h"

#define MINIMAL "[node]\nlisten_insecure = unix:/run/x\n"

static VjNodeConf *parse(const char *text)
{
    g_autoptr(GError) error = NULL;
    VjNodeConf *c = vj_node_conf_parse("/etc/v/x.conf", text, strlen(text), &error);

    if (c == NULL) {
        fail_msg("%s", error->message);
    }
    return c;
}

/* The mistake stands in line @line. */
static void refuse(const char *text, unsigned line, const char *part)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *where = g_strdup_printf("/etc/v/x.conf:%u: ", line);
    VjNodeConf *c = vj_node_conf_parse("/etc/v/x.conf", text, strlen(text), &error);

    assert_null(c);
    if (!g_str_has_prefix(error->message, where)) {
        fail_msg("\"%s\" does not begin with \"%s\"", error->message, where);
    }
    vj_test_expect_error(&error, error->code, part);
}

static char *write_key(const char *dir, const char *name, mode_t mode)
{
    g_autofree char *text = vj_key_new_text();
    char *path = g_build_filename(dir, name, NULL);

    assert_true(g_file_set_contents(path, text, -1, NULL));
    assert_int_equal(chmod(path, mode), 0);
    return path;
}

static void test_minimal(void **state)
{
    g_autoptr(VjNodeConf) c = parse("# a comment\n; another\n\n" MINIMAL
                                    "[volume lab]\n\tdirectory = lab  \r\n");
    const VjNodeVolumeConf *v = vj_node_conf_volume(c, "lab");

    (void)state;
    assert_string_equal(c->path, "/etc/v/x.conf");
    assert_null(*c->listen);
    assert_string_equal(c->listen_insecure[0], "unix:/run/x");
    assert_int_equal(vj_opts_number(c->node, "workers"), 16);
    assert_non_null(v);
    assert_string_equal(v->directory, "/etc/v/lab");
    assert_int_equal(v->roles, VJ_NODE_ROLES);
    assert_string_equal(v->store, "posix");
    assert_string_equal(v->meta, "lmdb");
    assert_false(v->refuses_empty);
    assert_true(vj_node_volume_conf_admits(v, ""));
    assert_false(vj_node_volume_conf_admits(v, "key:lab"));
    assert_false(vj_node_volume_conf_admits(v, "cert:lab"));
    assert_null(vj_node_conf_volume(c, "other"));
}

static void test_all_keys(void **state)
{
    char *dir = vj_test_make_dir();
    g_autofree char *key = write_key(dir, "a.key", 0600);
    g_autofree char *text = g_strdup_printf(
        "[node]\nlisten = 10.0.0.1, [::1]:1 ,unix:/run/y\n"
        "listen_insecure = 127.0.0.1:2, unix:run/z\n"
        "certificate = c.pem\ncertificate_key = /k.pem\nca = ca.pem\nkey = %s\n"
        "workers = 3\nmemory = 2G\nconnection_memory = 64M\nconnections = 9\n"
        "drain = 0\nlog = l.log\nsandbox = off\nbelow = /srv\n"
        "[volume a-1.b_c]\ndirectory = /srv/a\nroles = object\nstore = posix\n"
        "meta = lmdb:redo=0\nkey = %s\nidentities = one, two\nempty = refuse\n",
        key, key);
    g_autoptr(VjNodeConf) c = parse(text);
    const VjNodeVolumeConf *v = g_ptr_array_index(c->volumes, 0);
    g_autoptr(VjNodeVolumeConf) copy = vj_node_volume_conf_copy(v);

    (void)state;
    assert_int_equal(g_strv_length(c->listen), 3);
    assert_string_equal(c->listen[2], "unix:/run/y");
    assert_string_equal(c->listen_insecure[0], "127.0.0.1:2");
    assert_string_equal(c->listen_insecure[1], "unix:/etc/v/run/z");
    assert_string_equal(c->certificate, "/etc/v/c.pem");
    assert_string_equal(c->certificate_key, "/k.pem");
    assert_string_equal(c->log, "/etc/v/l.log");
    assert_string_equal(c->below, "/srv");
    assert_true(c->has_key && v->has_key);
    assert_int_equal(c->key_paths->len, 2);
    assert_int_equal(v->roles, VJ_NODE_ROLE(VJ_ROLE_OBJECT));
    assert_true(v->refuses_empty);
    assert_true(vj_node_volume_conf_same_place(v, copy));
    assert_true(vj_node_volume_conf_admits(copy, "key:a-1.b_c"));
    assert_true(vj_node_volume_conf_admits(copy, "cert:two"));
    assert_false(vj_node_volume_conf_admits(copy, "cert:a-1.b_c"));
    assert_false(vj_node_volume_conf_admits(copy, "key:one"));
    assert_false(vj_node_volume_conf_admits(copy, "two"));
    assert_false(vj_node_volume_conf_admits(copy, ""));
    vj_test_remove_dir(dir);
}

typedef struct Mistake {
    const char *text;
    unsigned line;
    const char *part;
} Mistake;

static const Mistake mistakes[] = {
    {"workers = 1\n", 1, "before the first section"},
    {"[nodes]\n", 1, "no section"},
    {"[node\n", 1, "ends with ']'"},
    {"[node]\nlisten_insecure = unix:/x\n[node]\n", 3, "line 1 already"},
    {"[node]\nlisten_insecure\n", 2, "key = value"},
    {"[node]\nlisten_insecure =\n", 2, "no value"},
    {"[node]\ncolour = red\n", 2, "colour"},
    {"[node]\nworkers = many\n", 2, "workers"},
    {"[node]\nworkers = 0\n", 2, "workers"},
    {"[node]\nworkers = 1\nworkers = 2\n", 3, "line 2 already"},
    {"[node]\nsandbox = perhaps\n", 2, "sandbox"},
    {"[node]\nworkers = 1\n", 1, "neither listen"},
    {"[node]\nlisten_insecure = unix:\n", 2, "listen_insecure"},
    {"[node]\nlisten_insecure = unix:/x,,unix:/y\n", 2, "between two commas"},
    {"[node]\nlisten_insecure = unix:/x,unix:/x\n", 2, "twice"},
    {"[node]\nlisten_insecure = 127.0.0.1\nlisten = 127.0.0.1\n", 3, "too"},
    {"[node]\nlisten = 127.0.0.1\n", 1, "neither a certificate nor"},
    {"[node]\nlisten = 127.0.0.1\nca = x\n", 1, "go together"},
    {"[node]\nlisten_insecure = unix:/x\nkey = /nonexistent/k\n", 3, "key"},
    {MINIMAL "[volume]\n", 3, "no section"},
    {MINIMAL "[volume a/b]\n", 3, "no name"},
    {MINIMAL "[volume .node]\n", 3, "no name"},
    {MINIMAL "[volume -a]\n", 3, "no name"},
    {MINIMAL "[volume a]\n", 3, "no directory"},
    {MINIMAL "[volume a]\ndirectory = x\n[volume a]\n", 5, "line 3 already"},
    {MINIMAL "[volume a]\ndirectory = x\n[volume b]\ndirectory = x\n", 6, "has it"},
    {MINIMAL "[volume a]\ndirectory = x\nroles = object,clients\n", 5, "roles"},
    {MINIMAL "[volume a]\ndirectory = x\nroles = object,client\n", 5, "alone"},
    {MINIMAL "[volume a]\ndirectory = x\nroles = client\nmeta = lmdb\n", 6,
     "not for the role client"},
    {MINIMAL "[volume a]\ndirectory = x\nstore = floppy\n", 5, "floppy"},
    {MINIMAL "[volume a]\ndirectory = x\nstore = posix:colour=red\n", 5, "colour"},
    {MINIMAL "[volume a]\ndirectory = x\nstore = block\n", 5, "behind a node"},
    {MINIMAL "[volume a]\ndirectory = x\nmeta = cards\n", 5, "cards"},
    {MINIMAL "[volume a]\ndirectory = x\nempty = maybe\n", 5, "empty"},
    {MINIMAL "[volume a]\ndirectory = x\nkey = /nonexistent/k\n", 5, "key"},
    {MINIMAL "[volume a]\ndirectory = x\nidentities = b\n", 3, "no listen"},
    {MINIMAL "[volume a]\ndirectory = x\nidentities = b,\n", 5, "two commas"},
};

static void test_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(mistakes); i++) {
        refuse(mistakes[i].text, mistakes[i].line, mistakes[i].part);
    }
}

/* Who may use a volume, and where peers come from, go together. */
static void test_nobody_can_use_it(void **state)
{
    char *dir = vj_test_make_dir();
    g_autofree char *key = write_key(dir, "a.key", 0600);
    g_autofree char *open = g_strdup_printf(
        "[node]\nlisten = [::1]\nkey = %s\n[volume a]\ndirectory = x\n", key);
    g_autofree char *named = g_strdup_printf(
        "[node]\nlisten = [::1]\n[volume a]\ndirectory = x\nkey = %s\nidentities = b\n",
        key);

    (void)state;
    refuse(open, 4, "nobody can use it");
    refuse(named, 3, "no certificate");
    vj_test_remove_dir(dir);
}

static void test_key_that_others_may_read(void **state)
{
    char *dir = vj_test_make_dir();
    g_autofree char *key = write_key(dir, "a.key", 0644);
    g_autofree char *text = g_strdup_printf(
        "[node]\nlisten = [::1]\n[volume a]\ndirectory = x\nkey = %s\n", key);

    (void)state;
    refuse(text, 5, "a.key");
    vj_test_remove_dir(dir);
}

static void test_no_text(void **state)
{
    g_autoptr(GError) error = NULL;
    char *dir = vj_test_make_dir();
    g_autofree char *path = g_build_filename(dir, "x.conf", NULL);
    g_autofree char *large = g_malloc0(VJ_NODE_CONF_BYTES_MAX + 1);

    (void)state;
    assert_null(vj_node_conf_parse("x", "\xff\xfe", 2, &error));
    vj_test_expect_error(&error, EINVAL, "UTF-8");
    assert_null(vj_node_conf_parse("x", "[node]\0\n", 8, &error));
    vj_test_expect_error(&error, EINVAL, "UTF-8");
    assert_null(vj_node_conf_parse("x", "", 0, &error));
    vj_test_expect_error(&error, EINVAL, "no section [node]");
    assert_null(vj_node_conf_load(path, &error));
    vj_test_expect_error(&error, ENOENT, "x.conf");
    memset(large, '#', VJ_NODE_CONF_BYTES_MAX + 1);
    assert_true(
        g_file_set_contents(path, large, (gssize)VJ_NODE_CONF_BYTES_MAX + 1, NULL));
    assert_null(vj_node_conf_load(path, &error));
    vj_test_expect_error(&error, EFBIG, "x.conf");
    vj_test_remove_dir(dir);
}

static void test_too_many(void **state)
{
    g_autoptr(GString) text = g_string_new(MINIMAL);

    (void)state;
    for (unsigned i = 0; i <= VJ_NODE_VOLUMES_MAX; i++) {
        g_string_append_printf(text, "[volume v%u]\ndirectory = d%u\n", i, i);
    }
    refuse(text->str, 2 + 2 * VJ_NODE_VOLUMES_MAX + 1, "more than");
}

static void expect_items(const char *page, const char *section, const VjOptSpec *specs)
{
    const char *begin = strstr(page, section), *end;
    g_autofree char *part = NULL;

    assert_non_null(begin);
    end = strstr(begin + 1, "\n=head1");
    part = g_strndup(begin, end != NULL ? (gsize)(end - begin) : strlen(begin));
    for (; specs->name != NULL; specs++) {
        g_autofree char *item = g_strdup_printf("B<%s>=", specs->name);

        if (strstr(part, item) == NULL) {
            fail_msg("%s does not describe %s", section, specs->name);
        }
    }
}

/* The manual page has each key of the tables. */
static void test_manual(void **state)
{
    g_autofree char *page = NULL;

    (void)state;
    assert_true(
        g_file_get_contents(TOP_SRCDIR "/man/varjfsd.conf.5.pod", &page, NULL, NULL));
    expect_items(page, "=head1 THE SECTION [node]", vj_node_options);
    expect_items(page, "=head1 SECTIONS [volume NAME]", vj_node_volume_options);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_minimal),
    cmocka_unit_test(test_all_keys),
    cmocka_unit_test(test_mistakes),
    cmocka_unit_test(test_nobody_can_use_it),
    cmocka_unit_test(test_key_that_others_may_read),
    cmocka_unit_test(test_no_text),
    cmocka_unit_test(test_too_many),
    cmocka_unit_test(test_manual),
};

VJ_TEST_MAIN(tests)
