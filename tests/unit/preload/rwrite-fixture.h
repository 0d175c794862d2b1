/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rwrite-fixture.h - a file and the bytes that it ought to hold
 *
 * The directory is VARJFS_TEST_DIR (a mount, when tests/mount runs these tests) or a new
 * one.
 */
#ifndef VJ_TEST_RWRITE_FIXTURE_H
#define VJ_TEST_RWRITE_FIXTURE_H

#include "../../lib/test.h"

#include "varjfs/rwrite.h"

typedef struct Fixture {
    char *dir;
    char *path;
    GByteArray *model;
    int fd; /* O_RDWR */
} Fixture;

static inline void fixture_remove_dir(char *dir)
{
    vj_test_remove_dir(dir);
}

static inline int fixture_setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    const char *base = getenv("VARJFS_TEST_DIR");

    if (base != NULL) {
        f->dir = g_strdup_printf("%s/rwrite-XXXXXX", base);
        assert_non_null(g_mkdtemp(f->dir));
    } else {
        f->dir = vj_test_make_dir();
    }
    f->path = g_strdup_printf("%s/file", f->dir);
    f->model = g_byte_array_new();
    f->fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(f->fd >= 0);
    *state = f;
    return 0;
}

static inline int fixture_teardown(void **state)
{
    Fixture *f = *state;

    close(f->fd);
    fixture_remove_dir(f->dir);
    g_free(f->path);
    g_byte_array_unref(f->model);
    g_free(f);
    return 0;
}

/* What rpwrite does, on the model. */
static inline void model_replace(GByteArray *model, const uint8_t *src, size_t len,
                                 uint64_t offset, uint64_t old_len)
{
    /* A copy: the bytes may be the model's own, which move. */
    g_autofree uint8_t *bytes = len > 0 ? g_memdup2(src, len) : NULL;
    size_t at = (size_t)offset;
    size_t cut, tail;

    if (offset >= model->len) {
        if (len == 0) {
            return;
        }
        size_t old_size = model->len;
        g_byte_array_set_size(model, (guint)(at + len));
        memset(model->data + old_size, 0, at - old_size);
        memcpy(model->data + at, bytes, len);
        return;
    }
    cut = MIN(old_len, model->len - at);
    tail = model->len - at - cut;
    if (len > cut) {
        g_byte_array_set_size(model, (guint)(at + len + tail));
    }
    memmove(model->data + at + len, model->data + at + cut, tail);
    if (len > 0) {
        memcpy(model->data + at, bytes, len);
    }
    g_byte_array_set_size(model, (guint)(at + len + tail));
}

/* The whole file, read through a descriptor of its own. */
static inline void fixture_expect_model(Fixture *f)
{
    g_autofree uint8_t *got = g_malloc(f->model->len + 1);
    VJ_AUTO_FD fd = open(f->path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t part;
    struct stat st;

    assert_true(fd >= 0);
    while (used < f->model->len + 1 &&
           (part = read(fd, got + used, f->model->len + 1 - used)) > 0) {
        used += (size_t)part;
    }
    assert_int_equal(used, f->model->len);
    if (f->model->len > 0 && memcmp(got, f->model->data, used) != 0) {
        size_t i = 0;

        while (got[i] == f->model->data[i]) {
            i++;
        }
        fail_msg("byte %zu of %zu differs: %#x, expected %#x", i, used, got[i],
                 f->model->data[i]);
    }
    assert_int_equal(fstat(f->fd, &st), 0);
    assert_int_equal(st.st_size, f->model->len);
}

/* Fill file and model with @len bytes that differ from place to place. */
static inline void fixture_fill(Fixture *f, size_t len)
{
    g_byte_array_set_size(f->model, (guint)len);
    vj_test_fill_pattern(f->model->data, len);
    assert_int_equal(ftruncate(f->fd, 0), 0);
    assert_int_equal(pwrite(f->fd, f->model->data, len, 0), len);
}

/* rpwrite on file and model; both must agree that it succeeds. */
static inline void fixture_rpwrite(Fixture *f, const void *src, size_t len,
                                   uint64_t offset, uint64_t old_len)
{
    errno = 4711;
    assert_int_equal(rpwrite(f->fd, src, len, (off_t)offset, old_len), len);
    assert_int_equal(errno, 4711);
    model_replace(f->model, src, len, offset, old_len);
}

/* -1 and this errno, and nothing has changed. */
#define FIXTURE_EXPECT_ERRNO(f, call, expected)                                          \
    do {                                                                                 \
        errno = 0;                                                                       \
        assert_int_equal((call), -1);                                                    \
        assert_int_equal(errno, (expected));                                             \
        fixture_expect_model(f);                                                         \
    } while (0)

#endif
