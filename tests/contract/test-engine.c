/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-engine.c - the contract of meta/engine.h, run for each engine and with each
 * wrapper
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "../lib/key-node.h"
#include "../lib/real-node.h"
#include "../lib/test.h"
#include "meta/engine.h"
#include "meta/meta-private.h"

#define SPACE VJ_SPACE_DENTRY

typedef enum Watching { NO_WATCH, LATE_WATCH, PROMPT_WATCH } Watching;

typedef struct Flavour {
    const char *name;
    const char *driver;
    const VjEngineOps *wrapper; /* NULL: none */
    const char *options;        /* of it */
    Watching watching;
    const char *node; /* of "remote": the engine that the node has, */
    bool is_real;     /* which is one of varjfsd's */
} Flavour;

static const Flavour flavours[] = {
    {"lmdb", "lmdb", NULL, NULL, NO_WATCH, NULL, false},
    {"memory", "memory", NULL, NULL, PROMPT_WATCH, NULL, false},
    {"latency over lmdb", "lmdb", &vj_engine_latency_ops, "us=0", NO_WATCH, NULL, false},
    {"latency over memory", "memory", &vj_engine_latency_ops, "us=20", PROMPT_WATCH, NULL,
     false},
    {"late latency over memory", "memory", &vj_engine_latency_ops, "us=0,watch=late",
     LATE_WATCH, NULL, false},
    {"unheard latency over memory", "memory", &vj_engine_latency_ops, "us=0,watch=none",
     NO_WATCH, NULL, false},
    {"crash over lmdb", "lmdb", &vj_engine_crash_ops, "", NO_WATCH, NULL, false},
    {"crash over memory", "memory", &vj_engine_crash_ops, "", PROMPT_WATCH, NULL, false},
    {"remote over memory", "remote", NULL, NULL, NO_WATCH, "memory", false},
    {"remote over lmdb", "remote", NULL, NULL, NO_WATCH, "lmdb", false},
    {"remote over a node", "remote", NULL, NULL, NO_WATCH, "lmdb", true},
    {"latency over remote", "remote", &vj_engine_latency_ops, "us=0", NO_WATCH, "memory",
     false},
};

typedef struct Fixture {
    const Flavour *flavour;
    char *path;
    int dir_fd;
    KeyNode *node;  /* NULL: the engine needs none, */
    RealNode *real; /* or this one */
    const char *address;
    VjEngine *engine;
} Fixture;

/* ---- Fixture --------------------------------------------------------------------- */

static const VjEngineOps *ops_of(const char *name)
{
    size_t i = 0;

    while (strcmp(vj_engine_drivers[i]->name, name) != 0) {
        i++;
        assert_non_null(vj_engine_drivers[i]);
    }
    return vj_engine_drivers[i];
}

static VjEngine *open_named(const Fixture *f, const char *driver, bool create,
                            bool read_only)
{
    const VjEngineOps *ops = ops_of(driver);
    VjMetaPlace place = {.dir_fd = f->dir_fd,
                         .path = f->path,
                         .volume = KEY_NODE_VOLUME,
                         .create = create,
                         .read_only = read_only};
    g_autoptr(VjOpts) opts = vj_opts_new(ops->options);
    GError *error = NULL;
    VjEngine *e;

    if (f->address != NULL) {
        assert_true(vj_opts_set(opts, "node", f->address, NULL));
        assert_true(vj_opts_set(opts, "insecure", NULL, NULL));
    }
    e = vj_engine_open(ops, NULL, &place, opts, &error);
    if (e == NULL) {
        fail_msg("open: %s", error->message);
    }
    return e;
}

static VjEngine *open_one(const Fixture *f, bool create, bool read_only)
{
    return open_named(f, f->flavour->driver, create, read_only);
}

static VjEngine *wrapped(VjEngine *e, const VjEngineOps *ops, const char *options)
{
    g_autoptr(VjOpts) opts = vj_opts_new(ops->options);

    assert_true(vj_opts_parse(opts, options, NULL));
    e = vj_engine_open(ops, e, NULL, opts, NULL);
    assert_non_null(e);
    return e;
}

static void open_engine(Fixture *f, bool create, bool read_only)
{
    f->engine = open_one(f, create, read_only);
    if (f->flavour->wrapper != NULL) {
        f->engine = wrapped(f->engine, f->flavour->wrapper, f->flavour->options);
    }
}

static void close_engine(Fixture *f)
{
    assert_int_equal(vj_engine_close(f->engine, true), 0);
    f->engine = NULL;
}

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    g_autofree char *template = g_build_filename(g_get_tmp_dir(), "engine-XXXXXX", NULL);

    f->flavour = *state;
    f->path = g_strdup(g_mkdtemp(template));
    assert_non_null(f->path);
    f->dir_fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(f->dir_fd >= 0);
    if (f->flavour->is_real) {
        f->real = real_node_new(f->flavour->node);
        f->address = f->real->address;
    } else if (f->flavour->node != NULL) {
        f->node = key_node_new(open_named(f, f->flavour->node, true, false));
        f->address = f->node->address;
    }
    open_engine(f, true, false);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;

    if (f->engine != NULL) {
        close_engine(f);
    }
    if (f->node != NULL) {
        key_node_free(f->node);
    }
    if (f->real != NULL) {
        real_node_free(f->real);
    }
    (void)unlinkat(f->dir_fd, "data.mdb", 0);
    (void)unlinkat(f->dir_fd, "lmdb/data.mdb", 0);
    (void)unlinkat(f->dir_fd, "lmdb/lock.mdb", 0);
    (void)unlinkat(f->dir_fd, "lmdb", AT_REMOVEDIR);
    close(f->dir_fd);
    rmdir(f->path);
    g_free(f->path);
    g_free(f);
    return 0;
}

/* ---- Small helpers --------------------------------------------------------------- */

static VjSlice text(const char *s)
{
    return vj_slice(s, strlen(s));
}

static VjChange put(const char *key, const char *value)
{
    return (VjChange){.space = SPACE, .key = text(key), .value = text(value)};
}

static VjChange del(const char *key)
{
    return (VjChange){.space = SPACE, .is_delete = true, .key = text(key)};
}

static VjCheck version(const char *key, uint64_t value)
{
    return (VjCheck){.key = {.space = SPACE, .key = text(key)}, .version = value};
}

static int by_key(const void *a, const void *b)
{
    const VjChange *one = a, *two = b;

    return one->space != two->space ? (one->space < two->space ? -1 : 1)
                                    : vj_slice_compare(one->key, two->key);
}

/* In order of keys.  @fresh NULL: there are no checks. */
static int apply_all(VjEngine *e, const VjChange *changes, size_t count,
                     const VjCheck *checks, size_t check_count, const VjCheck *fence,
                     VjItems *fresh)
{
    g_autofree VjChange *sorted = g_memdup2(changes, count * sizeof *changes);
    VjChanges all = {.at = sorted, .count = count};
    VjBatch batch = {.checks = checks,
                     .check_count = check_count,
                     .fence = fence,
                     .next = vj_changes_next,
                     .changes = &all,
                     .count = count,
                     .number = 1};

    if (count > 0) {
        qsort(sorted, count, sizeof *sorted, by_key);
    }
    return vj_engine_apply(e, &batch, fresh, VJ_NO_DEADLINE);
}

#define APPLY(e, ...)                                                                    \
    do {                                                                                 \
        const VjChange changes_[] = {__VA_ARGS__};                                       \
                                                                                         \
        assert_int_equal(                                                                \
            apply_all((e), changes_, G_N_ELEMENTS(changes_), NULL, 0, NULL, NULL), 0);   \
    } while (0)

/* The version of @key, whose value is @value; NULL: it is not there. */
static uint64_t assert_has(VjEngine *e, const char *key, const char *value)
{
    VjKey wanted = {.space = SPACE, .key = text(key)};
    VjItems items = {0};
    uint64_t found;

    assert_int_equal(vj_engine_get_many(e, &wanted, 1, &items, VJ_NO_DEADLINE), 0);
    assert_int_equal(vj_slice_compare(items.at[0].key, text(key)), 0);
    found = items.at[0].version;
    assert_int_equal(found != 0, value != NULL);
    assert_int_equal(
        vj_slice_compare(items.at[0].value, text(value != NULL ? value : "")), 0);
    vj_items_clear(&items);
    return found;
}

/* The keys that a scan gives, @limit at a time, each followed by a blank. */
static char *scanned(VjEngine *e, const char *from, const char *to, bool backward,
                     size_t limit)
{
    VjRange range = {
        .space = SPACE, .backward = backward, .from = text(from), .to = text(to)};
    GString *keys = g_string_new(NULL);
    char last[VJ_META_KEY_MAX];
    bool more = true;

    while (more) {
        VjItems items = {0};

        assert_int_equal(vj_engine_scan(e, &range, limit, &items, &more, VJ_NO_DEADLINE),
                         0);
        assert_true(items.count <= limit);
        for (size_t i = 0; i < items.count; i++) {
            const VjItem *item = &items.at[i];

            assert_int_equal(item->space, SPACE);
            g_string_append_len(keys, item->key.data, (gssize)item->key.len);
            g_string_append_c(keys, ' ');
            assert_true(item->version != 0);
            assert_int_equal(vj_slice_compare(item->value, text("v")), 0);
        }
        if (items.count > 0) {
            VjSlice key = items.at[items.count - 1].key;

            memcpy(last, key.data, key.len);
            range.from = vj_slice(last, key.len);
        }
        vj_items_clear(&items);
    }
    return g_string_free(keys, FALSE);
}

/* ---- Reading --------------------------------------------------------------------- */

static void test_get_many(void **state)
{
    Fixture *f = *state;
    const VjKey keys[] = {{SPACE, text("b")},          {SPACE, text("none")},
                          {VJ_SPACE_INODE, text("b")}, {SPACE, text("empty")},
                          {SPACE, text("a")},          {SPACE, text("b")}};
    VjItems items = {0};

    APPLY(f->engine, put("a", "one"), put("b", "two"), put("empty", ""));
    assert_int_equal(vj_engine_get_many(f->engine, keys, 0, &items, VJ_NO_DEADLINE), 0);
    assert_int_equal(items.count, 0);
    assert_int_equal(vj_engine_get_many(f->engine, keys, 1, &items, VJ_NO_DEADLINE), 0);
    assert_int_equal(
        vj_engine_get_many(f->engine, keys, G_N_ELEMENTS(keys), &items, VJ_NO_DEADLINE),
        0);
    assert_int_equal(items.count, 1 + G_N_ELEMENTS(keys));
    for (size_t i = 0; i < G_N_ELEMENTS(keys); i++) {
        assert_int_equal(items.at[1 + i].space, keys[i].space);
        assert_int_equal(vj_slice_compare(items.at[1 + i].key, keys[i].key), 0);
    }
    assert_int_equal(vj_slice_compare(items.at[1].value, text("two")), 0);
    assert_int_equal(items.at[2].version, 0);
    assert_int_equal(items.at[3].version, 0);
    assert_int_not_equal(items.at[4].version, 0);
    assert_int_equal(items.at[4].value.len, 0);
    assert_int_equal(vj_slice_compare(items.at[5].value, text("one")), 0);
    assert_int_equal(items.at[6].version, items.at[1].version);
    vj_items_clear(&items);
}

static void test_versions(void **state)
{
    Fixture *f = *state;
    uint64_t one, two;

    APPLY(f->engine, put("a", "one"), put("b", "other"));
    one = assert_has(f->engine, "a", "one");
    APPLY(f->engine, put("b", "changed"));
    assert_int_equal(assert_has(f->engine, "a", "one"), one);
    APPLY(f->engine, put("a", "two"));
    two = assert_has(f->engine, "a", "two");
    assert_int_not_equal(two, one);
    close_engine(f);
    open_engine(f, false, false);
    assert_int_equal(assert_has(f->engine, "a", "two"), two);
    APPLY(f->engine, del("a"));
    assert_int_equal(assert_has(f->engine, "a", NULL), 0);
}

static void test_scan(void **state)
{
    static const struct {
        const char *from, *to;
        bool backward;
        const char *keys;
    } scans[] = {
        {"", "", false, "a aa b ba c "},
        {"", "", true, "c ba b aa a "},
        {"a", "", false, "aa b ba c "},
        {"c", "", true, "ba b aa a "},
        {"", "b", false, "a aa "},
        {"", "b", true, "c ba "},
        {"ab", "bb", false, "b ba "},
        {"bb", "ab", true, "ba b "},
        {"c", "", false, ""},
        {"a", "", true, ""},
        {"b", "b", false, ""},
        {"zz", "", true, "c ba b aa a "},
    };
    Fixture *f = *state;

    APPLY(f->engine, put("c", "v"), put("a", "v"), put("ba", "v"));
    APPLY(f->engine, put("aa", "v"), put("b", "v"), put("gone", "v"));
    APPLY(f->engine, del("gone"), del("never"));
    for (size_t i = 0; i < G_N_ELEMENTS(scans); i++) {
        for (size_t limit = 1; limit <= 6; limit++) {
            g_autofree char *keys =
                scanned(f->engine, scans[i].from, scans[i].to, scans[i].backward, limit);

            assert_string_equal(keys, scans[i].keys);
        }
    }
}

static void test_count(void **state)
{
    Fixture *f = *state;
    uint64_t count;

    assert_int_equal(vj_engine_count(f->engine, SPACE, &count), 0);
    assert_int_equal(count, 0);
    APPLY(f->engine, put("a", "1"), put("b", "2"), put("c", "3"));
    APPLY(f->engine, put("a", "4"), del("b"), del("none"));
    assert_int_equal(vj_engine_count(f->engine, SPACE, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(vj_engine_count(f->engine, VJ_SPACE_INODE, &count), 0);
    assert_int_equal(count, 0);
}

/* It goes on, and is not an error. */
static void test_clock(void **state)
{
    Fixture *f = *state;
    int64_t first = vj_engine_clock_us(f->engine, VJ_NO_DEADLINE);

    assert_true(first > INT64_C(1600000000000000));
    assert_true(vj_engine_clock_us(f->engine, VJ_NO_DEADLINE) >= first);
}

/* ---- Batches --------------------------------------------------------------------- */

static void test_apply_survives(void **state)
{
    Fixture *f = *state;

    APPLY(f->engine, put("a", "one"), put("b", "two"));
    APPLY(f->engine, put("a", "three"), del("b"));
    assert_int_equal(apply_all(f->engine, NULL, 0, NULL, 0, NULL, NULL), 0);
    close_engine(f);
    open_engine(f, false, false);
    (void)assert_has(f->engine, "a", "three");
    (void)assert_has(f->engine, "b", NULL);
}

static void test_read_only(void **state)
{
    Fixture *f = *state;
    const VjChange change = put("a", "two");

    APPLY(f->engine, put("a", "one"));
    close_engine(f);
    open_engine(f, false, true);
    assert_int_equal(apply_all(f->engine, &change, 1, NULL, 0, NULL, NULL), -EROFS);
    (void)assert_has(f->engine, "a", "one");
}

/* A check that fails: nothing is done, and what is there comes back, of all checks. */
static void test_conflict(void **state)
{
    Fixture *f = *state;
    const VjChange changes[] = {put("a", "new"), put("c", "new"), del("b")};
    VjCheck checks[3];
    VjItems fresh = {0};
    uint64_t a, b;

    APPLY(f->engine, put("a", "one"), put("b", "two"));
    a = assert_has(f->engine, "a", "one");
    b = assert_has(f->engine, "b", "two");
    checks[0] = version("a", a);
    checks[1] = version("b", b);
    checks[2] = version("c", 0);
    APPLY(f->engine, put("b", "other"));
    assert_int_equal(apply_all(f->engine, changes, 3, checks, 3, NULL, &fresh), -EAGAIN);
    assert_int_equal(fresh.count, 3);
    assert_int_equal(fresh.at[0].version, a);
    assert_int_equal(vj_slice_compare(fresh.at[0].value, text("one")), 0);
    assert_int_equal(fresh.at[1].version, assert_has(f->engine, "b", "other"));
    assert_int_equal(vj_slice_compare(fresh.at[1].value, text("other")), 0);
    assert_int_equal(fresh.at[2].version, 0);
    (void)assert_has(f->engine, "a", "one");
    (void)assert_has(f->engine, "c", NULL);
    /* With what came back it is done. */
    checks[1].version = fresh.at[1].version;
    vj_items_clear(&fresh);
    assert_int_equal(apply_all(f->engine, changes, 3, checks, 3, NULL, &fresh), 0);
    assert_int_equal(fresh.count, 0);
    (void)assert_has(f->engine, "a", "new");
    (void)assert_has(f->engine, "b", NULL);
    (void)assert_has(f->engine, "c", "new");
    /* What was to be absent is there. */
    assert_int_equal(apply_all(f->engine, changes, 3, &checks[2], 1, NULL, &fresh),
                     -EAGAIN);
    assert_int_equal(vj_slice_compare(fresh.at[0].value, text("new")), 0);
    vj_items_clear(&fresh);
}

/* A session whose record was changed is shut out, whatever it checks. */
static void test_fence(void **state)
{
    Fixture *f = *state;
    const VjChange change = put("a", "by the fenced");
    VjCheck fence, wrong = version("a", 7);
    VjItems fresh = {0};

    APPLY(f->engine, put("session 1", "fence 1"));
    fence = version("session 1", assert_has(f->engine, "session 1", "fence 1"));
    assert_int_equal(apply_all(f->engine, &change, 1, NULL, 0, &fence, NULL), 0);
    APPLY(f->engine, put("session 1", "fence 2"), put("a", "one"));
    assert_int_equal(apply_all(f->engine, &change, 1, NULL, 0, &fence, NULL), -ESTALE);
    assert_int_equal(apply_all(f->engine, &change, 1, &wrong, 1, &fence, &fresh),
                     -ESTALE);
    assert_int_equal(fresh.count, 0);
    (void)assert_has(f->engine, "a", "one");
    APPLY(f->engine, del("session 1"));
    assert_int_equal(apply_all(f->engine, &change, 1, NULL, 0, &fence, NULL), -ESTALE);
    (void)assert_has(f->engine, "a", "one");
}

/* ---- Snapshots ------------------------------------------------------------------- */

static void assert_snapshot(VjEngineSnapshot *s)
{
    VjSlice key = vj_slice(NULL, 0), value;

    assert_int_equal(vj_engine_snapshot_get(s, SPACE, text("a"), &value, NULL), 0);
    assert_int_equal(vj_slice_compare(value, text("one")), 0);
    assert_int_equal(vj_engine_snapshot_get(s, SPACE, text("c"), &value, NULL), -ENOENT);
    assert_int_equal(vj_engine_snapshot_near(s, SPACE, key, true, &key, &value, NULL), 0);
    assert_int_equal(vj_slice_compare(key, text("a")), 0);
    assert_int_equal(vj_engine_snapshot_near(s, SPACE, key, true, &key, &value, NULL), 0);
    assert_int_equal(vj_slice_compare(key, text("b")), 0);
    assert_int_equal(vj_engine_snapshot_near(s, SPACE, key, true, &key, &value, NULL),
                     -ENOENT);
    assert_int_equal(
        vj_engine_snapshot_near(s, SPACE, text("b"), false, &key, &value, NULL), 0);
    assert_int_equal(vj_slice_compare(key, text("a")), 0);
    assert_int_equal(vj_engine_snapshot_near(s, SPACE, key, false, &key, &value, NULL),
                     -ENOENT);
    assert_int_equal(
        vj_engine_snapshot_near(s, SPACE, vj_slice(NULL, 0), false, &key, &value, NULL),
        0);
    assert_int_equal(vj_slice_compare(key, text("b")), 0);
}

static void test_snapshot(void **state)
{
    Fixture *f = *state;
    VjEngineSnapshot *s;
    VjSlice value;

    APPLY(f->engine, put("a", "one"), put("b", "two"));
    assert_int_equal(vj_engine_snapshot_new(f->engine, &s), 0);
    assert_int_equal(s != NULL,
                     f->flavour->wrapper != &vj_engine_latency_ops && f->address == NULL);
    assert_int_equal(s != NULL, vj_engine_has_snapshots(f->engine));
    if (s == NULL) {
        return;
    }
    for (int round = 0; round < 2; round++) {
        assert_int_equal(vj_engine_snapshot_prepare(s), 0);
        assert_int_equal(vj_engine_snapshot_take(s), 0);
        assert_snapshot(s);
        APPLY(f->engine, put("a", "new"), del("b"), put("c", "new"));
        assert_snapshot(s);
        vj_engine_snapshot_release(s);
        APPLY(f->engine, put("a", "one"), put("b", "two"), del("c"));
    }
    assert_int_equal(vj_engine_snapshot_take(s), 0);
    APPLY(f->engine, put("a", "new"));
    vj_engine_snapshot_release(s);
    assert_int_equal(vj_engine_snapshot_take(s), 0);
    assert_int_equal(vj_engine_snapshot_get(s, SPACE, text("a"), &value, NULL), 0);
    assert_int_equal(vj_slice_compare(value, text("new")), 0);
    vj_engine_snapshot_release(s);
    vj_engine_snapshot_free(s);
}

/* Versions are those of get_many. */
static void test_snapshot_versions(void **state)
{
    Fixture *f = *state;
    VjEngineSnapshot *s;
    VjSlice key, value;
    uint64_t version, a, b;

    APPLY(f->engine, put("a", "one"));
    APPLY(f->engine, put("b", "two"));
    a = assert_has(f->engine, "a", "one");
    b = assert_has(f->engine, "b", "two");
    assert_int_equal(vj_engine_snapshot_new(f->engine, &s), 0);
    if (s == NULL) {
        return;
    }
    assert_int_equal(vj_engine_snapshot_prepare(s), 0);
    assert_int_equal(vj_engine_snapshot_take(s), 0);
    assert_int_equal(vj_engine_snapshot_get(s, SPACE, text("b"), &value, &version), 0);
    assert_int_equal(version, b);
    assert_int_equal(
        vj_engine_snapshot_near(s, SPACE, text("b"), false, &key, &value, &version), 0);
    assert_int_equal(version, a);
    assert_int_equal(
        vj_engine_snapshot_near(s, SPACE, text("a"), true, &key, &value, &version), 0);
    assert_int_equal(version, b);
    vj_engine_snapshot_release(s);
    vj_engine_snapshot_free(s);
}

/* ---- What others change ------------------------------------------------------------ */

typedef struct Heard {
    VjMutex lock;
    VjCond more;
    GString *text; /* "key ", of own changes "key! ", of any "* " */
    unsigned keys; /* "number" that was heard */
} Heard;

static void hear(void *opaque, const VjKey *key, bool own)
{
    Heard *h = opaque;

    vj_lock_assert_none();
    vj_mutex_lock(&h->lock);
    if (key == NULL) {
        g_string_append(h->text, "* ");
    } else if (vj_slice_compare(key->key, text("number")) == 0) {
        h->keys++;
    } else {
        assert_int_equal(key->space, SPACE);
        g_string_append_printf(h->text, "%.*s%s ", (int)key->key.len,
                               (const char *)key->key.data, own ? "!" : "");
    }
    vj_cond_broadcast(&h->more);
    vj_mutex_unlock(&h->lock);
}

static void heard_init(Heard *h)
{
    *h = (Heard){.text = g_string_new(NULL)};
    vj_mutex_init(&h->lock, VJ_RANK_BASE, "test heard");
    vj_cond_init(&h->more);
}

static void heard_clear(Heard *h)
{
    g_string_free(h->text, TRUE);
    vj_cond_clear(&h->more);
    vj_mutex_clear(&h->lock);
}

/* @wait: some time later; else it is there by now. */
static void assert_heard(Heard *h, const char *all, bool wait)
{
    vj_mutex_lock(&h->lock);
    while (wait && strlen(h->text->str) < strlen(all)) {
        vj_cond_wait(&h->more, &h->lock);
    }
    assert_string_equal(h->text->str, all);
    g_string_truncate(h->text, 0);
    vj_mutex_unlock(&h->lock);
}

static void test_watch(void **state)
{
    Fixture *f = *state;
    Watching watching = f->flavour->watching;
    VjCheck wrong = version("a", 77);
    const VjChange change = put("refused", "1");
    VjItems fresh = {0};
    bool is_prompt;
    VjEngine *other;
    Heard h;

    heard_init(&h);
    if (watching == NO_WATCH) {
        assert_int_equal(vj_engine_watch(f->engine, hear, &h, &is_prompt), -EOPNOTSUPP);
        heard_clear(&h);
        return;
    }
    other = open_one(f, false, false);
    APPLY(other, put("before", "1"));
    assert_int_equal(vj_engine_watch(f->engine, hear, &h, &is_prompt), 0);
    assert_int_equal(is_prompt, watching == PROMPT_WATCH);
    APPLY(other, put("a", "1"), put("b", "1"));
    assert_int_equal(apply_all(other, &change, 1, &wrong, 1, NULL, &fresh), -EAGAIN);
    vj_items_clear(&fresh);
    assert_heard(&h, "a b ", watching == LATE_WATCH);
    APPLY(f->engine, put("c", "1"));
    APPLY(other, del("a"), del("none"));
    assert_heard(&h, watching == PROMPT_WATCH ? "c! a none " : "a none ",
                 watching == LATE_WATCH);
    (void)assert_has(f->engine, "a", NULL);
    assert_int_equal(vj_engine_watch(f->engine, NULL, NULL, &is_prompt), 0);
    APPLY(other, put("a", "2"));
    assert_heard(&h, "", false);
    /* And again. */
    assert_int_equal(vj_engine_watch(f->engine, hear, &h, &is_prompt), 0);
    APPLY(other, put("d", "2"));
    assert_heard(&h, "d ", watching == LATE_WATCH);
    assert_int_equal(vj_engine_watch(f->engine, NULL, NULL, &is_prompt), 0);
    assert_int_equal(vj_engine_close(other, true), 0);
    heard_clear(&h);
}

#define PROMPT_ROUNDS 2000u

typedef struct Reader {
    VjEngine *engine;
    Heard *heard;
    VjEngineSnapshot *snapshot; /* NULL: it asks the engine */
} Reader;

static uint64_t number_of(Reader *r)
{
    VjKey key = {.space = SPACE, .key = text("number")};
    VjItems items = {0};
    VjSlice value;
    uint64_t number;

    if (r->snapshot != NULL) {
        int rc;

        do {
            g_assert(vj_engine_snapshot_prepare(r->snapshot) == 0);
            rc = vj_engine_snapshot_take(r->snapshot);
            g_assert(rc == 0 || rc == -EAGAIN);
        } while (rc < 0);
        rc = vj_engine_snapshot_get(r->snapshot, SPACE, key.key, &value, NULL);
        number = rc == 0 ? vj_be64_get(value.data) : 0;
        vj_engine_snapshot_release(r->snapshot);
        return number;
    }
    g_assert(vj_engine_get_many(r->engine, &key, 1, &items, VJ_NO_DEADLINE) == 0);
    number = items.at[0].version != 0 ? vj_be64_get(items.at[0].value.data) : 0;
    vj_items_clear(&items);
    return number;
}

/* Whoever can read a change finds that it was reported. */
static gpointer read_main(gpointer opaque)
{
    Reader *r = opaque;
    uint64_t number;

    do {
        unsigned reported;

        number = number_of(r);
        vj_mutex_lock(&r->heard->lock);
        reported = r->heard->keys;
        vj_mutex_unlock(&r->heard->lock);
        g_assert(reported >= number);
    } while (number < PROMPT_ROUNDS);
    return NULL;
}

static void test_watch_is_prompt(void **state)
{
    Fixture *f = *state;
    Reader readers[2];
    GThread *threads[2];
    bool is_prompt;
    VjEngine *other;
    Heard h;

    if (f->flavour->watching != PROMPT_WATCH) {
        return;
    }
    heard_init(&h);
    other = open_one(f, false, false);
    assert_int_equal(vj_engine_watch(f->engine, hear, &h, &is_prompt), 0);
    for (unsigned i = 0; i < 2; i++) {
        readers[i] = (Reader){.engine = other, .heard = &h};
        if (i == 1) {
            assert_int_equal(vj_engine_snapshot_new(other, &readers[i].snapshot), 0);
        }
        threads[i] = g_thread_new("read", read_main, &readers[i]);
    }
    for (uint64_t n = 1; n <= PROMPT_ROUNDS; n++) {
        uint8_t bytes[8];
        VjChange change = {
            .space = SPACE, .key = text("number"), .value = vj_slice(bytes, 8)};

        vj_be64_set(bytes, n);
        assert_int_equal(apply_all(other, &change, 1, NULL, 0, NULL, NULL), 0);
        assert_int_equal(h.keys, n); /* before the apply returned */
    }
    for (unsigned i = 0; i < 2; i++) {
        g_thread_join(threads[i]);
    }
    vj_engine_snapshot_free(readers[1].snapshot);
    assert_int_equal(vj_engine_watch(f->engine, NULL, NULL, &is_prompt), 0);
    assert_int_equal(vj_engine_close(other, true), 0);
    heard_clear(&h);
}

/* An engine that can be shared says which version it has given. */
static void test_given_version(void **state)
{
    Fixture *f = *state;
    const VjChange changes[] = {put("a", "new"), put("b", "new"), del("c")};
    VjChanges all = {.at = changes, .count = 3};
    uint64_t given = 0;
    VjBatch batch = {.next = vj_changes_next,
                     .changes = &all,
                     .count = 3,
                     .number = 1,
                     .version = &given};

    if ((ops_of(f->flavour->driver)->flags & VJ_ENGINE_IS_SHAREABLE) == 0) {
        return;
    }
    APPLY(f->engine, put("c", "old"));
    assert_int_equal(vj_engine_apply(f->engine, &batch, NULL, VJ_NO_DEADLINE), 0);
    assert_int_not_equal(given, 0);
    assert_int_equal(assert_has(f->engine, "a", "new"), given);
    assert_int_equal(assert_has(f->engine, "b", "new"), given);
}

/* ---- Far away -------------------------------------------------------------------- */

/* A call that cannot be in time does nothing, and is counted. */
static void test_deadline(void **state)
{
    Fixture *f = *state;
    const VjChange change = put("a", "late");
    VjChanges all = {.at = &change, .count = 1};
    VjBatch batch = {.next = vj_changes_next, .changes = &all, .count = 1, .number = 1};
    VjKey key = {.space = SPACE, .key = text("a")};
    VjRange range = {.space = SPACE};
    VjItems items = {0};
    VjMetaCalls calls;
    VjEngine *far;
    int64_t past_us = vj_clock_mono_us() - 1;
    bool more;

    APPLY(f->engine, put("a", "one"));
    far = f->engine = wrapped(f->engine, &vj_engine_latency_ops, "us=1000");
    assert_int_equal(vj_engine_get_many(far, &key, 1, &items, past_us), -ETIMEDOUT);
    assert_int_equal(vj_engine_scan(far, &range, 1, &items, &more, past_us), -ETIMEDOUT);
    assert_int_equal(vj_engine_apply(far, &batch, NULL, past_us), -ETIMEDOUT);
    assert_int_equal(vj_engine_clock_us(far, past_us), -ETIMEDOUT);
    assert_int_equal(items.count, 0);
    (void)assert_has(far, "a", "one");
    vj_engine_latency_calls(far, &calls);
    assert_int_equal(calls.get_many, 2);
    assert_int_equal(calls.scan, 1);
    assert_int_equal(calls.apply, 1);
    assert_int_equal(calls.clock, 1);
}

#ifdef VJ_LOCK_DEBUG
static void ask_under_a_lock(void)
{
    static VjMutex mutex = VJ_MUTEX_INIT(VJ_RANK_FILE, "a file");
    Flavour flavour = {"memory", "memory", NULL, NULL, PROMPT_WATCH, NULL, false};
    Fixture f = {.flavour = &flavour, .dir_fd = -1};
    VjKey key = {.space = SPACE, .key = text("a")};
    VjItems items = {0};

    open_engine(&f, true, false);
    f.engine = wrapped(f.engine, &vj_engine_latency_ops, "us=0");
    vj_mutex_lock(&mutex);
    (void)!vj_engine_get_many(f.engine, &key, 1, &items, VJ_NO_DEADLINE);
}
#endif

/* Whoever asks an engine with a lock held would keep others from it for a round trip. */
static void test_asked_under_a_lock(void **state)
{
    (void)state;
#ifdef VJ_LOCK_DEBUG
    vj_test_expect_abort(ask_under_a_lock, "get_many", "\"a file\"");
#else
    skip();
#endif
}

/* ---- Several writers ------------------------------------------------------------- */

#define WRITERS 4u
#define ROUNDS 300u

/* Adds one to the number that the key has, as often as it is told to. */
static gpointer add_main(gpointer opaque)
{
    VjEngine *e = opaque;
    VjKey key = {.space = SPACE, .key = text("number")};
    VjItems items = {0};

    g_assert(vj_engine_get_many(e, &key, 1, &items, VJ_NO_DEADLINE) == 0);
    for (unsigned done = 0; done < ROUNDS;) {
        VjCheck check = {.key = key, .version = items.at[0].version};
        uint8_t bytes[8];
        VjChange change = {.space = SPACE, .key = key.key, .value = vj_slice(bytes, 8)};
        VjItems fresh = {0};
        int rc;

        vj_be64_set(bytes,
                    check.version == 0 ? 1 : vj_be64_get(items.at[0].value.data) + 1);
        rc = apply_all(e, &change, 1, &check, 1, NULL, &fresh);
        g_assert(rc == 0 || rc == -EAGAIN);
        done += rc == 0;
        if (rc == 0) {
            g_assert(vj_engine_get_many(e, &key, 1, &fresh, VJ_NO_DEADLINE) == 0);
        }
        vj_items_clear(&items);
        items = fresh;
    }
    vj_items_clear(&items);
    return NULL;
}

/* Of an engine that several sessions can have open: no sum is lost. */
static void test_writers(void **state)
{
    Fixture *f = *state;
    unsigned writers = strcmp(f->flavour->driver, "memory") == 0 ? WRITERS : 1;
    VjKey key = {.space = SPACE, .key = text("number")};
    VjEngine *engines[WRITERS] = {f->engine};
    GThread *threads[WRITERS];
    VjItems items = {0};

    for (unsigned i = 1; i < writers; i++) {
        engines[i] = open_one(f, false, false);
    }
    for (unsigned i = 0; i < writers; i++) {
        threads[i] = g_thread_new("add", add_main, engines[i]);
    }
    for (unsigned i = 0; i < writers; i++) {
        g_thread_join(threads[i]);
    }
    assert_int_equal(vj_engine_get_many(f->engine, &key, 1, &items, VJ_NO_DEADLINE), 0);
    assert_int_equal(vj_be64_get(items.at[0].value.data), writers * ROUNDS);
    vj_items_clear(&items);
    for (unsigned i = 1; i < writers; i++) {
        assert_int_equal(vj_engine_close(engines[i], true), 0);
    }
}

/* ---- Against a model ------------------------------------------------------------- */

#define MODEL_KEYS 200u

static void model_key(uint64_t n, uint8_t out[2])
{
    out[0] = (uint8_t)(n / 16);
    out[1] = (uint8_t)(n % 16);
}

/* Batches of random changes; after each the engine has what an array has. */
static void test_model(void **state)
{
    Fixture *f = *state;
    uint64_t values[MODEL_KEYS] = {0}; /* 0: it is not there */
    VjRng rng;

    vj_rng_init(&rng, 23);
    for (unsigned round = 0; round < 60; round++) {
        VjChange changes[40];
        uint8_t keys[40][2], bytes[40][8];
        VjRange range = {.space = SPACE};
        VjItems items = {0};
        size_t count = 0, seen = 0;
        bool more;

        for (uint64_t n = vj_rng_below(&rng, 20); n < MODEL_KEYS && count < 40;
             n += 1 + vj_rng_below(&rng, 10)) {
            values[n] = vj_rng_below(&rng, 3) == 0 ? 0 : 1 + vj_rng_below(&rng, 1000);
            model_key(n, keys[count]);
            vj_be64_set(bytes[count], values[n]);
            changes[count] = (VjChange){.space = SPACE,
                                        .is_delete = values[n] == 0,
                                        .key = vj_slice(keys[count], 2),
                                        .value = vj_slice(bytes[count], 8)};
            count++;
        }
        assert_int_equal(apply_all(f->engine, changes, count, NULL, 0, NULL, NULL), 0);
        assert_int_equal(
            vj_engine_scan(f->engine, &range, MODEL_KEYS, &items, &more, VJ_NO_DEADLINE),
            0);
        for (uint64_t n = 0; n < MODEL_KEYS; n++) {
            uint8_t key[2];

            if (values[n] != 0) {
                model_key(n, key);
                assert_true(seen < items.count);
                assert_memory_equal(items.at[seen].key.data, key, 2);
                assert_int_equal(vj_be64_get(items.at[seen].value.data), values[n]);
                seen++;
            }
        }
        assert_int_equal(seen, items.count);
        vj_items_clear(&items);
    }
}

/* ---- Run ------------------------------------------------------------------------- */

#define T(function)                                                                      \
    {                                                                                    \
#function, function, setup, teardown, NULL                                       \
    }

static const struct CMUnitTest suite[] = {
    T(test_get_many),  T(test_versions),        T(test_scan),
    T(test_count),     T(test_clock),           T(test_apply_survives),
    T(test_read_only), T(test_conflict),        T(test_fence),
    T(test_snapshot),  T(test_deadline),        T(test_asked_under_a_lock),
    T(test_writers),   T(test_model),           T(test_snapshot_versions),
    T(test_watch),     T(test_watch_is_prompt), T(test_given_version),
};

int main(void)
{
    int failed = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(flavours); i++) {
        struct CMUnitTest tests[G_N_ELEMENTS(suite)];

        memcpy(tests, suite, sizeof suite);
        for (size_t t = 0; t < G_N_ELEMENTS(tests); t++) {
            tests[t].initial_state = (void *)&flavours[i];
        }
        failed += _cmocka_run_group_tests(flavours[i].name, tests, G_N_ELEMENTS(tests),
                                          NULL, NULL);
    }
    return failed == 0 ? 0 : 1;
}
