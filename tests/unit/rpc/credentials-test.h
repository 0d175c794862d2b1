/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * credentials-test.h - a directory with keys and certificates for tests of room rpc
 */
#ifndef VJ_TEST_CREDENTIALS_TEST_H
#define VJ_TEST_CREDENTIALS_TEST_H

#include "../../lib/test.h"

#include <sys/stat.h>

#include "rpc/certificates.h"
#include "rpc/rpc.h"

#define VJ_TEST_DAY_S ((int64_t)24 * 3600)

typedef struct VjCredentialsTest {
    char *path; /* files home.key, office.key; ca, other-ca/ca; see below */
    int dir_fd;
    char *log;
} VjCredentialsTest;

static inline void vj_test_write(int dir_fd, const char *name, const char *text,
                                 mode_t mode)
{
    VJ_AUTO_FD fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(vj_fd_write_all(fd, text, strlen(text)), 0);
    assert_int_equal(fchmod(fd, mode), 0);
}

static inline void vj_test_write_key(int dir_fd, const char *name)
{
    g_autofree char *text = vj_key_new_text();

    vj_test_write(dir_fd, name, text, 0600);
}

static inline VjCertificateTimes vj_test_times(int64_t begins_days, int64_t ends_days)
{
    int64_t now_s = vj_clock_real().tv_sec;

    return (VjCertificateTimes){now_s + begins_days * VJ_TEST_DAY_S,
                                now_s + ends_days * VJ_TEST_DAY_S};
}

static inline void vj_test_certificate(int dir_fd, VjCertificateKind kind,
                                       const char *name, const char *other_name,
                                       int64_t begins_days, int64_t ends_days)
{
    VjCertificateTimes times = vj_test_times(begins_days, ends_days);
    const char *const names[] = {name, other_name, NULL};
    g_autoptr(GError) error = NULL;

    assert_true(vj_certificate_make(dir_fd, kind, names, &times, &error));
}

static inline void vj_test_ca(int dir_fd)
{
    VjCertificateTimes times = vj_test_times(-30, 3650);
    g_autoptr(GError) error = NULL;

    assert_true(vj_certificate_make_ca(dir_fd, "test CA", &times, &error));
}

/* The next second begins: the log's limit of lines a second starts anew. */
static inline void vj_test_next_second(void)
{
    struct timespec real = vj_clock_real();

    vj_clock_set_for_test(&real, vj_clock_mono_us() + 2 * G_USEC_PER_SEC);
}

/* node (also 127.0.0.1), alice; expired-node, expired-alice; the directory other has a CA
 * of its own with a node and an alice. */
static inline int vj_test_credentials_setup(void **state)
{
    VjCredentialsTest *t = g_new0(VjCredentialsTest, 1);
    g_autoptr(GError) error = NULL;
    int other;

    t->path = vj_test_make_dir();
    t->dir_fd = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(t->dir_fd >= 0);
    vj_test_write_key(t->dir_fd, "home.key");
    vj_test_write_key(t->dir_fd, "office.key");
    vj_test_ca(t->dir_fd);
    vj_test_certificate(t->dir_fd, VJ_CERTIFICATE_NODE, "node", "127.0.0.1", -1, 365);
    vj_test_certificate(t->dir_fd, VJ_CERTIFICATE_CLIENT, "alice", NULL, -1, 365);
    vj_test_certificate(t->dir_fd, VJ_CERTIFICATE_NODE, "expired-node", "node", -20, -10);
    vj_test_certificate(t->dir_fd, VJ_CERTIFICATE_CLIENT, "expired-alice", NULL, -20,
                        -10);
    assert_int_equal(mkdirat(t->dir_fd, "other", 0700), 0);
    other = openat(t->dir_fd, "other", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(other >= 0);
    vj_test_ca(other);
    vj_test_certificate(other, VJ_CERTIFICATE_NODE, "node", NULL, -1, 365);
    vj_test_certificate(other, VJ_CERTIFICATE_CLIENT, "alice", NULL, -1, 365);
    close(other);
    t->log = g_build_filename(t->path, "log", NULL);
    assert_true(vj_log_open("test", t->log, VJ_LOG_DEBUG, &error));
    vj_test_next_second();
    *state = t;
    return 0;
}

static inline int vj_test_credentials_teardown(void **state)
{
    VjCredentialsTest *t = *state;

    vj_log_close();
    close(t->dir_fd);
    vj_test_remove_dir(t->path);
    g_free(t->log);
    g_free(t);
    return 0;
}

#define VJ_CREDENTIALS_TEST(test)                                                        \
    cmocka_unit_test_setup_teardown(test, vj_test_credentials_setup,                     \
                                    vj_test_credentials_teardown)

/* Whether a line of the log since the last call has @part; empties the log. */
static inline bool vj_test_logged(const VjCredentialsTest *t, const char *part)
{
    g_autofree char *text = NULL;
    bool found;

    assert_true(g_file_get_contents(t->log, &text, NULL, NULL));
    found = strstr(text, part) != NULL;
    if (!found) {
        fprintf(stderr, "the log has no \"%s\": %s\n", part, text);
    }
    assert_int_equal(truncate(t->log, 0), 0);
    vj_test_next_second();
    return found;
}

#endif
