/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-credentials.c - files of keys and certificates: which are taken, and which are not
 */
#include "credentials-test.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

static void expect_refused(const VjCredentialsTest *t, const VjCredentialsFiles *files,
                           int positive_errno, const char *part)
{
    g_autoptr(GError) error = NULL;
    VjCredentials *c = (VjCredentials *)t;

    assert_false(vj_credentials_load(t->dir_fd, files, &c, &error));
    assert_null(c);
    vj_test_expect_error(&error, positive_errno, part);
}

/* ---- keys -------------------------------------------------------------------------- */

static void test_key_text(void **state)
{
    VjCredentialsTest *t = *state;
    g_autofree char *first = vj_key_new_text(), *second = vj_key_new_text();
    g_autoptr(GError) error = NULL;
    VjKey256 key;

    assert_int_equal(strlen(first), strlen("varjfs-key-1:") + 64 + 1);
    assert_string_not_equal(first, second);
    vj_test_write(t->dir_fd, "fixed.key",
                  "varjfs-key-1:000102030405060708090a0b0c0d0e0f"
                  "F0e1d2c3b4a5968778695a4b3c2d1e0f",
                  0400);
    assert_true(vj_key_load(t->dir_fd, "fixed.key", &key, &error));
    vj_test_expect_hex(
        key.bytes, sizeof key.bytes,
        "000102030405060708090a0b0c0d0e0ff0e1d2c3b4a5968778695a4b3c2d1e0f");
}

static void test_what_is_no_key(void **state)
{
    VjCredentialsTest *t = *state;
    g_autofree char *good = vj_key_new_text();
    g_autofree char *cut = g_strndup(good, strlen(good) - 2);
    g_autofree char *two = g_strconcat(good, good, NULL);
    g_autofree char *spaced = g_strconcat(" ", good, NULL);
    g_autofree char *other = g_strdup(good);
    g_autofree char *digit = g_strdup(good);
    const char *const texts[] = {"", "\n", cut, two, spaced, other, digit};

    other[11] = '2'; /* of another version */
    digit[40] = 'g';
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        const VjCredentialsFiles files = {.key = "bad.key", .identity = "home"};

        vj_test_write(t->dir_fd, "bad.key", texts[i], 0600);
        expect_refused(t, &files, EINVAL, "bad.key: is no key");
    }
}

static void test_modes_of_keys(void **state)
{
    VjCredentialsTest *t = *state;
    const VjCredentialsFiles files = {.key = "home.key", .identity = "home"};

    for (unsigned bit = 1; bit <= 077; bit <<= 1) {
        g_autofree char *mode = g_strdup_printf("home.key: has mode %04o", 0600 | bit);

        assert_int_equal(fchmodat(t->dir_fd, "home.key", 0600 | bit, 0), 0);
        expect_refused(t, &files, EACCES, mode);
    }
}

static void test_modes_of_certificates(void **state)
{
    VjCredentialsTest *t = *state;
    const VjCredentialsFiles files = {
        .certificate = "alice.pem", .certificate_key = "alice-key.pem", .ca = "ca.pem"};
    const char *const names[] = {files.certificate, files.certificate_key, files.ca};

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        struct stat st;

        assert_int_equal(fstatat(t->dir_fd, names[i], &st, 0), 0);
        for (unsigned bit = 02; bit <= 020; bit <<= 3) {
            mode_t mode = st.st_mode | bit;
            g_autofree char *text =
                g_strdup_printf("%s: has mode %04o", names[i], mode & 07777);

            assert_int_equal(fchmodat(t->dir_fd, names[i], mode, 0), 0);
            expect_refused(t, &files, EACCES, text);
        }
        assert_int_equal(fchmodat(t->dir_fd, names[i], st.st_mode, 0), 0);
    }
    assert_int_equal(fchmodat(t->dir_fd, "alice-key.pem", 0640, 0), 0);
    expect_refused(t, &files, EACCES, "alice-key.pem: has mode 0640");
}

static void test_other_files(void **state)
{
    VjCredentialsTest *t = *state;
    g_autofree char *large = g_strnfill(5000, 'x');
    VjCredentialsFiles files = {.key = "directory", .identity = "home"};

    assert_int_equal(mkdirat(t->dir_fd, "directory", 0700), 0);
    expect_refused(t, &files, EINVAL, "directory: is no regular file");
    /* Nobody writes to it: an open that waited would not return. */
    assert_int_equal(mkfifoat(t->dir_fd, "fifo", 0600), 0);
    files.key = "fifo";
    expect_refused(t, &files, EINVAL, "fifo: is no regular file");
    files.key = "/dev/zero";
    expect_refused(t, &files, EINVAL, "/dev/zero: is no regular file");
    vj_test_write(t->dir_fd, "large", large, 0600);
    files.key = "large";
    expect_refused(t, &files, EFBIG, "large: has more than 4096 bytes");
    files.key = "missing";
    expect_refused(t, &files, ENOENT, "missing");
}

/* ---- what is given together -------------------------------------------------------- */

static void test_what_is_given(void **state)
{
    VjCredentialsTest *t = *state;
    g_autofree char *long_name = g_strnfill(VJ_RPC_KEY_IDENTITY_MAX + 1, 'x');
    const struct {
        VjCredentialsFiles files;
        const char *part;
    } cases[] = {
        {{0}, "no credentials: give key="},
        {{.key = "home.key"}, "needs the name"},
        {{.key = "home.key", .identity = ""}, "needs the name"},
        {{.key = "home.key", .identity = long_name}, "needs the name"},
        {{.key = "home.key", .identity = "home", .insecure = true}, "give one of"},
        {{.key = "home.key", .identity = "home", .ca = "ca.pem"}, "give one of"},
        {{.ca = "ca.pem", .insecure = true}, "give one of"},
        {{.ca = "ca.pem"}, "certificate= is missing"},
        {{.certificate = "alice.pem", .certificate_key = "alice-key.pem"},
         "ca= is missing"},
        {{.certificate = "alice.pem", .ca = "ca.pem"}, "certificate_key= is missing"},
        {{.certificate = "alice.pem", .certificate_key = "node-key.pem", .ca = "ca.pem"},
         "node-key.pem: is not the key of the certificate in alice.pem"},
        {{.certificate = "alice.pem", .certificate_key = "home.key", .ca = "ca.pem"},
         "home.key: has no private key"},
        {{.certificate = "home.key", .certificate_key = "alice-key.pem", .ca = "ca.pem"},
         "home.key: has no certificate"},
        {{.certificate = "alice.pem",
          .certificate_key = "alice-key.pem",
          .ca = "home.key"},
         "home.key: has no certificate"},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        expect_refused(t, &cases[i].files, EINVAL, cases[i].part);
    }
}

static bool find_none(void *opaque, const char *identity, VjKey256 *out)
{
    (void)opaque;
    (void)identity;
    (void)out;
    return false;
}

static void test_what_a_server_is_given(void **state)
{
    VjCredentialsTest *t = *state;
    const VjCredentialsFiles nothing = {0}, insecure = {.insecure = true};
    const VjCredentialsFiles both = {.insecure = true, .ca = "ca.pem"};
    const VjCredentialsFiles part = {.ca = "ca.pem"};
    g_autoptr(GError) error = NULL;
    VjCredentials *c;

    assert_false(vj_credentials_load_server(t->dir_fd, &nothing, NULL, NULL, &c, &error));
    vj_test_expect_error(&error, EINVAL, "no credentials: give keys");
    assert_false(vj_credentials_load_server(t->dir_fd, &both, NULL, NULL, &c, &error));
    vj_test_expect_error(&error, EINVAL, "give one of");
    assert_false(
        vj_credentials_load_server(t->dir_fd, &part, find_none, NULL, &c, &error));
    vj_test_expect_error(&error, EINVAL, "certificate= is missing");
    assert_true(vj_credentials_load_server(t->dir_fd, &insecure, NULL, NULL, &c, &error));
    vj_credentials_unref(vj_credentials_ref(c));
    vj_credentials_unref(c);
    assert_true(
        vj_credentials_load_server(t->dir_fd, &nothing, find_none, NULL, &c, &error));
    vj_credentials_unref(c);
    vj_credentials_unref(NULL);
}

/* ---- certificates ------------------------------------------------------------------ */

static char *text_of(const VjCredentialsTest *t, const char *name)
{
    g_autofree char *path = g_build_filename(t->path, name, NULL);
    char *text;

    assert_true(g_file_get_contents(path, &text, NULL, NULL));
    return text;
}

static void test_damaged_certificates(void **state)
{
    VjCredentialsTest *t = *state;
    VjCredentialsFiles files = {
        .certificate = "alice.pem", .certificate_key = "alice-key.pem", .ca = "bad.pem"};
    g_autofree char *ca = text_of(t, "ca.pem");
    g_autofree char *damaged = g_strdup(ca);
    g_autofree char *behind = NULL;
    g_autofree char *revoked = g_strconcat(ca, "-----BEGIN X509 CRL-----\n", NULL);
    g_autoptr(GString) many = g_string_new(NULL);

    memset(damaged + 200, '!', 8);
    vj_test_write(t->dir_fd, "bad.pem", damaged, 0644);
    expect_refused(t, &files, EINVAL, "bad.pem: ");
    behind = g_strconcat(ca, damaged, NULL);
    vj_test_write(t->dir_fd, "bad.pem", behind, 0644);
    expect_refused(t, &files, EINVAL, "bad.pem: ");
    vj_test_write(t->dir_fd, "bad.pem", revoked, 0644);
    expect_refused(t, &files, EINVAL, "list of revoked certificates");
    for (int i = 0; i < 65; i++) {
        g_string_append(many, ca);
    }
    vj_test_write(t->dir_fd, "bad.pem", many->str, 0644);
    expect_refused(t, &files, EFBIG, "more than 64 certificates");
    files.ca = "ca.pem";
    files.certificate = "bad.pem";
    expect_refused(t, &files, EFBIG, "more than 9 certificates");
}

static void test_expiry_is_reported(void **state)
{
    VjCredentialsTest *t = *state;
    const VjCredentialsFiles files = {.certificate = "expired-alice.pem",
                                      .certificate_key = "expired-alice-key.pem",
                                      .ca = "ca.pem"};
    const VjCredentialsFiles soon = {
        .certificate = "soon.pem", .certificate_key = "soon-key.pem", .ca = "ca.pem"};
    VjCredentials *c;

    assert_true(vj_credentials_load(t->dir_fd, &files, &c, NULL));
    vj_credentials_unref(c);
    assert_true(vj_test_logged(t, "expired-alice.pem: a certificate has expired"));
    vj_test_certificate(t->dir_fd, VJ_CERTIFICATE_CLIENT, "soon", NULL, -1, 7);
    assert_true(vj_credentials_load(t->dir_fd, &soon, &c, NULL));
    vj_credentials_unref(c);
    assert_true(vj_test_logged(t, "soon.pem: a certificate expires within two weeks"));
}

static void expect_mode(const VjCredentialsTest *t, const char *name, mode_t mode)
{
    struct stat st;

    assert_int_equal(fstatat(t->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(st.st_mode & 07777, mode);
}

static void test_files_are_new(void **state)
{
    VjCredentialsTest *t = *state;
    VjCertificateTimes times = vj_test_times(0, 1);
    const char *const names[] = {"bob", NULL};
    g_autofree char *before = text_of(t, "ca-key.pem");
    g_autofree char *after = NULL;
    g_autoptr(GError) error = NULL;

    expect_mode(t, "ca.pem", 0644);
    expect_mode(t, "ca-key.pem", 0600);
    expect_mode(t, "alice.pem", 0644);
    expect_mode(t, "alice-key.pem", 0600);
    assert_false(vj_certificate_make_ca(t->dir_fd, "another", &times, &error));
    vj_test_expect_error(&error, EEXIST, "ca.pem");
    assert_int_equal(unlinkat(t->dir_fd, "ca.pem", 0), 0);
    assert_false(vj_certificate_make_ca(t->dir_fd, "another", &times, &error));
    vj_test_expect_error(&error, EEXIST, "ca-key.pem");
    after = text_of(t, "ca-key.pem");
    assert_string_equal(before, after);
    assert_false(
        vj_certificate_make(t->dir_fd, VJ_CERTIFICATE_CLIENT, names, &times, &error));
    vj_test_expect_error(&error, ENOENT, "the CA: ca.pem");
    assert_false(vj_fd_has(t->dir_fd, "bob.pem"));
    assert_false(vj_fd_has(t->dir_fd, "bob-key.pem"));
}

/* What is behind a name that leads elsewhere is neither made nor changed. */
static void test_links_are_not_followed(void **state)
{
    VjCredentialsTest *t = *state;
    VjCertificateTimes times = vj_test_times(0, 1);
    const char *const names[] = {"bob", NULL};
    g_autoptr(GError) error = NULL;

    assert_int_equal(symlinkat("elsewhere", t->dir_fd, "bob.pem"), 0);
    assert_false(
        vj_certificate_make(t->dir_fd, VJ_CERTIFICATE_CLIENT, names, &times, &error));
    vj_test_expect_error(&error, EEXIST, "bob.pem");
    assert_false(vj_fd_has(t->dir_fd, "elsewhere"));
    assert_false(vj_fd_has(t->dir_fd, "bob-key.pem"));
}

static void test_names_of_certificates(void **state)
{
    VjCredentialsTest *t = *state;
    g_autofree char *long_name = g_strnfill(VJ_CERTIFICATE_NAME_MAX + 1, 'x');
    const char *const wrong[] = {"",    ".",     "../x",  "-x", "x,DNS:y", "x y",
                                 "x\n", "x*.de", "x-key", "ca", long_name};
    const char *const right[] = {"n1", "::1", "10.0.0.1", "a.b-c", NULL};
    VjCertificateTimes times = vj_test_times(0, 1);
    g_autoptr(GError) error = NULL;

    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        const char *const names[] = {wrong[i], NULL};

        assert_false(
            vj_certificate_make(t->dir_fd, VJ_CERTIFICATE_NODE, names, &times, &error));
        assert_true(error->code == EINVAL || error->code == EEXIST);
        g_clear_error(&error);
    }
    assert_true(
        vj_certificate_make(t->dir_fd, VJ_CERTIFICATE_NODE, right, &times, &error));
    assert_true(vj_fd_has(t->dir_fd, "n1.pem"));
}

static X509 *load_certificate(const VjCredentialsTest *t, const char *name)
{
    g_autofree char *path = g_build_filename(t->path, name, NULL);
    BIO *bio = BIO_new_file(path, "r");
    X509 *x = PEM_read_bio_X509(bio, NULL, NULL, NULL);

    BIO_free(bio);
    assert_non_null(x);
    return x;
}

static void test_what_certificates_say(void **state)
{
    VjCredentialsTest *t = *state;
    X509 *ca = load_certificate(t, "ca.pem"), *node = load_certificate(t, "node.pem"),
         *alice = load_certificate(t, "alice.pem");

    assert_int_equal(X509_check_ca(ca), 1);
    assert_int_equal(X509_get_pathlen(ca), 0);
    assert_int_equal(X509_check_ca(node), 0);
    assert_int_equal(X509_check_issued(ca, node), X509_V_OK);
    assert_int_equal(X509_check_purpose(node, X509_PURPOSE_SSL_SERVER, 0), 1);
    assert_int_equal(X509_check_purpose(node, X509_PURPOSE_SSL_CLIENT, 0), 0);
    assert_int_equal(X509_check_purpose(alice, X509_PURPOSE_SSL_CLIENT, 0), 1);
    assert_int_equal(X509_check_purpose(alice, X509_PURPOSE_SSL_SERVER, 0), 0);
    assert_int_equal(X509_check_host(node, "node", 0, 0, NULL), 1);
    assert_int_equal(X509_check_ip_asc(node, "127.0.0.1", 0), 1);
    assert_int_equal(X509_check_host(node, "127.0.0.1", 0, 0, NULL), 0);
    assert_int_equal(ASN1_INTEGER_cmp(X509_get0_serialNumber(node),
                                      X509_get0_serialNumber(alice)) != 0,
                     1);
    X509_free(ca);
    X509_free(node);
    X509_free(alice);
}

static const struct CMUnitTest tests[] = {
    VJ_CREDENTIALS_TEST(test_key_text),
    VJ_CREDENTIALS_TEST(test_what_is_no_key),
    VJ_CREDENTIALS_TEST(test_modes_of_keys),
    VJ_CREDENTIALS_TEST(test_modes_of_certificates),
    VJ_CREDENTIALS_TEST(test_other_files),
    VJ_CREDENTIALS_TEST(test_what_is_given),
    VJ_CREDENTIALS_TEST(test_what_a_server_is_given),
    VJ_CREDENTIALS_TEST(test_damaged_certificates),
    VJ_CREDENTIALS_TEST(test_expiry_is_reported),
    VJ_CREDENTIALS_TEST(test_files_are_new),
    VJ_CREDENTIALS_TEST(test_links_are_not_followed),
    VJ_CREDENTIALS_TEST(test_names_of_certificates),
    VJ_CREDENTIALS_TEST(test_what_certificates_say),
};

VJ_TEST_MAIN(tests)
