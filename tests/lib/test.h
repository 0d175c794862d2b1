/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test.h - what unit and contract tests share beside cmocka
 *
 * A test program ends with VJ_TEST_MAIN(table).  It prints TAP and takes "-p PATTERN" to
 * run the tests whose names match (* and ?).  Helpers are inline, so that a test links
 * its room and cmocka and nothing else.
 */
#ifndef VJ_TEST_LIB_TEST_H
#define VJ_TEST_LIB_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define VJ_TEST_MAIN(tests)                                                              \
    int main(int argc, char **argv)                                                      \
    {                                                                                    \
        if (argc == 3 && strcmp(argv[1], "-p") == 0) {                                   \
            cmocka_set_test_filter(argv[2]);                                             \
        } else if (argc != 1) {                                                          \
            fprintf(stderr, "usage: %s [-p PATTERN]\n", argv[0]);                        \
            return 2;                                                                    \
        }                                                                                \
        setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);                                       \
        return cmocka_run_group_tests(tests, NULL, NULL);                                \
    }

/* For tests of several transformations, which a build may lack. */
#if defined(HAVE_LZ4) && defined(HAVE_ZSTD)
#define VJ_TEST_MAIN_WITH_CODECS(tests) VJ_TEST_MAIN(tests)
#else
#define VJ_TEST_MAIN_WITH_CODECS(tests)                                                  \
    int main(void)                                                                       \
    {                                                                                    \
        printf("1..0 # SKIP %zu tests need lz4 and zstd\n", G_N_ELEMENTS(tests));        \
        return 77;                                                                       \
    }
#endif

/* Fails unless @error is set in our domain with this errno and its text holds @part. */
static inline void vj_test_expect_error(GError **error, int positive_errno,
                                        const char *part)
{
    assert_non_null(*error);
    assert_true((*error)->domain == VJ_ERROR);
    if (strstr((*error)->message, part) == NULL) {
        fail_msg("\"%s\" does not hold \"%s\"", (*error)->message, part);
    }
    assert_int_equal((*error)->code, positive_errno);
    g_clear_error(error);
}

/* Fails unless @body aborts in a child of its own, saying both parts on stderr. */
static inline void vj_test_expect_abort(void (*body)(void), const char *part,
                                        const char *other_part)
{
    char said[4096];
    size_t used = 0;
    int ends[2], status;
    ssize_t got;
    pid_t child;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit no_core = {0, 0};

        setrlimit(RLIMIT_CORE, &no_core);
        dup2(ends[1], STDERR_FILENO);
        dup2(ends[1], STDOUT_FILENO); /* GLib says "Bail out!" there: not for our TAP */
        body();
        _exit(0);
    }
    close(ends[1]);
    while (used < sizeof said - 1 &&
           (got = read(ends[0], said + used, sizeof said - 1 - used)) > 0) {
        used += (size_t)got;
    }
    said[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) {
        fail_msg("did not abort (status %#x), said: %s", (unsigned)status, said);
    }
    if (strstr(said, part) == NULL || strstr(said, other_part) == NULL) {
        fail_msg("aborted, but said: %s", said);
    }
}

/* A new empty directory, owned by the caller; vj_test_remove_dir takes it away. */
static inline char *vj_test_make_dir(void)
{
    g_autoptr(GError) error = NULL;
    char *path = g_dir_make_tmp("varjfs-test-XXXXXX", &error);

    assert_non_null(path);
    return path;
}

static inline int vj_test_remove_entry(const char *path, const struct stat *st, int type,
                                       struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

/* Takes @path. */
static inline void vj_test_remove_dir(char *path)
{
    assert_int_equal(nftw(path, vj_test_remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    g_free(path);
}

/* The byte pattern of the BLAKE3 test vectors. */
static inline void vj_test_fill_pattern(uint8_t *dst, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        dst[i] = (uint8_t)(i % 251);
    }
}

static inline void vj_test_expect_hex(const uint8_t *bytes, size_t len, const char *hex)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (size_t i = 0; i < len; i++) {
        g_string_append_printf(text, "%02x", bytes[i]);
    }
    assert_string_equal(text->str, hex);
}

#endif
