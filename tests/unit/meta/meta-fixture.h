/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * meta-fixture.h - a session on an lmdb engine in a directory of its own, for the tests
 * of this room
 */
#ifndef VJ_TESTS_META_FIXTURE_H
#define VJ_TESTS_META_FIXTURE_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "meta/lmdb-private.h"
#include "meta/session-private.h"

typedef struct Fixture {
    char *path;
    int dir_fd;
    VjMeta *meta; /* the session, or what it is wrapped in */
} Fixture;

static inline void fixture_open(Fixture *f, const char *spec, bool create)
{
    VjMetaPlace place = {.dir_fd = f->dir_fd, .path = f->path, .create = create};
    GError *error = NULL;

    if (!vj_meta_open(spec, &place, &f->meta, &error)) {
        fail_msg("open: %s", error->message);
    }
}

static inline Fixture fixture_new(const char *spec)
{
    Fixture f = {.dir_fd = -1};
    g_autofree char *template = g_build_filename(g_get_tmp_dir(), "meta-XXXXXX", NULL);

    f.path = g_strdup(g_mkdtemp(template));
    assert_non_null(f.path);
    f.dir_fd = open(f.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(f.dir_fd >= 0);
    fixture_open(&f, spec, true);
    return f;
}

static inline VjEngine *fixture_engine(const Fixture *f)
{
    return vj_session_of(f->meta)->engine;
}

/* Pages that the file must have so that all that is visible can be moved; those in
 * use. */
static inline void fixture_pages(const Fixture *f, uint64_t *needed, uint64_t *used)
{
    VjSession *s = vj_session_of(f->meta);
    VjLoad load;

    vj_mutex_lock(&s->state);
    vj_session_load(s, NULL, &load);
    vj_mutex_unlock(&s->state);
    vj_lmdb_pages_for_test(s->engine, &load, needed, used);
}

/* Closes without an error, and finds that space was bounded rightly all the time. */
static inline void fixture_close(Fixture *f)
{
    assert_int_equal(vj_lmdb_overruns_for_test(fixture_engine(f)), 0);
    assert_int_equal(vj_meta_close(f->meta), 0);
    f->meta = NULL;
}

static inline void fixture_free(Fixture *f)
{
    if (f->meta != NULL) {
        fixture_close(f);
    }
    (void)unlinkat(f->dir_fd, "data.mdb", 0);
    (void)unlinkat(f->dir_fd, "lmdb/data.mdb", 0);
    (void)unlinkat(f->dir_fd, "lmdb/lock.mdb", 0);
    (void)unlinkat(f->dir_fd, "lmdb", AT_REMOVEDIR);
    (void)unlinkat(f->dir_fd, VJ_REDO_FILE, 0);
    close(f->dir_fd);
    (void)rmdir(f->path);
    g_free(f->path);
}

/* One key by number, with a value of @value_bytes that starts with the number. */
typedef struct NumberedPut {
    VjSpace space;
    uint64_t number;
    size_t value_bytes; /* at least 8; 0: delete */
} NumberedPut;

static inline VjSlice numbered_key(uint64_t number, uint8_t out[8])
{
    vj_be64_set(out, number);
    return vj_slice(out, 8);
}

static inline int numbered_body(VjTxn *txn, void *opaque)
{
    static const uint8_t zeroes[VJ_META_VALUE_MAX];
    const NumberedPut *p = opaque;
    g_autofree uint8_t *value = NULL;
    uint8_t key[8];

    if (p->value_bytes == 0) {
        return vj_txn_del(txn, p->space, numbered_key(p->number, key));
    }
    value = g_memdup2(zeroes, p->value_bytes);
    vj_be64_set(value, p->number);
    return vj_txn_put(txn, p->space, numbered_key(p->number, key),
                      vj_slice(value, p->value_bytes));
}

static inline int put_numbered(VjMeta *m, VjSpace space, uint64_t number,
                               size_t value_bytes)
{
    NumberedPut p = {.space = space, .number = number, .value_bytes = value_bytes};

    return vj_meta_run(m, value_bytes == 0 ? VJ_RUN_RELEASE : VJ_RUN_DEFAULT,
                       numbered_body, &p);
}

typedef struct NumberedGet {
    VjSpace space;
    uint64_t number;
    int64_t len; /* out */
} NumberedGet;

static inline int numbered_get_body(VjTxn *txn, void *opaque)
{
    NumberedGet *g = opaque;
    uint8_t key[8];
    VjSlice value;
    int rc = vj_txn_get(txn, g->space, numbered_key(g->number, key), &value);

    if (rc == 0) {
        assert_true(value.len >= 8 && vj_be64_get(value.data) == g->number);
        g->len = (int64_t)value.len;
    }
    return rc;
}

/* Its value's length; -errno. */
static inline int64_t get_numbered(VjMeta *m, VjSpace space, uint64_t number)
{
    NumberedGet g = {.space = space, .number = number};
    int rc = vj_meta_view(m, numbered_get_body, &g);

    return rc < 0 ? rc : g.len;
}

/* A snapshot that stays open beside writers, of an engine that has them; it ends with
 * vj_txn_abort. */
static inline int begin_snapshot(VjMeta *m, VjTxn **txn)
{
    return vj_meta_begin(m, &(VjTxn){.write = false}, txn);
}

#endif
