/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * shared-fixture.h - several sessions on one engine in memory, for the tests of this room
 */
#ifndef VJ_TESTS_SHARED_FIXTURE_H
#define VJ_TESTS_SHARED_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "meta/shared-private.h"

/* No lease is renewed while a test runs, unless it asks for that. */
#define LONG_LEASE_US ((int64_t)3600 * 1000 * 1000)

/* Ways to read: from snapshots; or from far away, where changes are reported in different
 * ways. */
typedef struct Way {
    const char *name;
    const char *wrapper; /* NULL: none */
    bool is_opaque;      /* a body never sees what is no state */
} Way;

static const Way ways[] = {
    {"snapshots", NULL, true},
    {"far, prompt", "latency:us=0", true},
    {"far, prompt, slow", "latency:us=50", true},
    {"far, late", "latency:us=0,watch=late", false},
    {"far, unheard", "latency:us=0,watch=none", false},
    {"wrapped snapshots", "crash", true},
};

static inline VjMeta *wrap_meta(VjMeta *m, const char *spec)
{
    GError *error = NULL;
    VjMeta *out;

    if (!vj_meta_wrap(spec, m, &out, &error)) {
        fail_msg("%s: %s", spec, error->message);
    }
    return out;
}

/* A name that no other test has. */
static inline char *new_volume(void)
{
    static unsigned number;
    g_autofree char *name = g_strdup_printf("shared-%u", number++);
    g_autofree char *spec = g_strdup_printf("memory:name=%s", name);
    VjMetaPlace place = {.dir_fd = -1, .create = true};
    VjMeta *m;

    assert_true(vj_meta_open(spec, &place, &m, NULL));
    assert_int_equal(vj_meta_close(m), 0);
    return g_steal_pointer(&spec);
}

/* @wrapper NULL: none; @lease_us 0: a long one. */
static inline VjMeta *open_shared(const char *spec, const char *name, const char *wrapper,
                                  int64_t lease_us)
{
    VjSessionOpen session = {.name = name,
                             .shared = true,
                             .lease_us = lease_us > 0 ? lease_us : LONG_LEASE_US};
    VjMetaPlace place = {.dir_fd = -1, .session = &session};
    GError *error = NULL;
    VjMeta *m;

    if (!vj_meta_open(spec, &place, &m, &error)) {
        fail_msg("open: %s", error->message);
    }
    return wrapper != NULL ? wrap_meta(m, wrapper) : m;
}

/* ---- Numbers under keys ---------------------------------------------------------- */

static inline VjSlice text(const char *s)
{
    return vj_slice(s, strlen(s));
}

/* 0 where there is none. */
static inline int get_count(VjTxn *txn, const char *key, uint64_t *out)
{
    VjSlice value;
    int rc = vj_txn_get(txn, VJ_SPACE_INODE, text(key), &value);

    *out = rc == 0 ? vj_be64_get(value.data) : 0;
    return rc == -ENOENT ? 0 : rc;
}

static inline int put_count(VjTxn *txn, const char *key, uint64_t count)
{
    uint8_t bytes[8];

    vj_be64_set(bytes, count);
    return vj_txn_put(txn, VJ_SPACE_INODE, text(key), vj_slice(bytes, sizeof bytes));
}

typedef struct Count {
    const char *key;
    uint64_t value;
    unsigned runs;
} Count;

static inline int add_body(VjTxn *txn, void *opaque)
{
    Count *c = opaque;
    uint64_t before;
    int rc = get_count(txn, c->key, &before);

    c->runs++;
    return rc < 0 ? rc : put_count(txn, c->key, before + c->value);
}

static inline int add(VjMeta *m, const char *key, uint64_t value)
{
    Count c = {.key = key, .value = value};

    return vj_meta_run(m, VJ_RUN_DEFAULT, add_body, &c);
}

static inline int count_body(VjTxn *txn, void *opaque)
{
    Count *c = opaque;

    return get_count(txn, c->key, &c->value);
}

static inline uint64_t count_of(VjMeta *m, const char *key)
{
    Count c = {.key = key};

    assert_int_equal(vj_meta_view(m, count_body, &c), 0);
    return c.value;
}

#endif
