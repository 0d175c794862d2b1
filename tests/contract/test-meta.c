/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-meta.c - the contract of meta.h, run for a session on each engine and for each
 * wrapper
 *
 * The model test compares every answer with a plain sorted structure; its seed is printed
 * and can be set with VARJFS_TEST_SEED.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../lib/flush-answer.h"
#include "../lib/key-node.h"
#include "../lib/real-node.h"
#include "meta/meta-private.h"
#include "meta/session.h"

/* What a suite runs on: an engine's spec, and the wrappers from the inside out. */
typedef struct Flavour {
    const char *name;
    const char *driver;
    int model_steps; /* transactions of the model test, about 15 changes each */
    const char *wrappers[3];
    bool shared;             /* a session among others that might be there */
    const VjEngineOps *node; /* of "remote": what the node has; NULL: it is a real one */
} Flavour;

static const Flavour flavours[] = {
    {"lmdb", "lmdb", 2000, {NULL}, false, NULL},
    {"lmdb, small overlay", "lmdb:overlay=1M", 6700, {NULL}, false, NULL},
    {"stats of lmdb", "lmdb", 500, {"stats", NULL}, false, NULL},
    {"conflicts over lmdb",
     "lmdb",
     2000,
     {"fault:conflicts=300,seed=5", NULL},
     false,
     NULL},
    {"lmdb far away", "lmdb:redo=0", 500, {"latency:us=0", NULL}, false, NULL},
    {"memory", "memory", 2000, {NULL}, false, NULL},
    {"memory, small overlay", "memory:overlay=1M", 6700, {NULL}, false, NULL},
    {"stats of memory", "memory", 500, {"stats", NULL}, false, NULL},
    {"conflicts over memory",
     "memory",
     500,
     {"fault:conflicts=300,seed=6", NULL},
     false,
     NULL},
    {"memory far away", "memory:overlay=1M", 2000, {"latency:us=0", NULL}, false, NULL},
    {"conflicts over latency over memory",
     "memory",
     500,
     {"latency:us=5", "fault:conflicts=300,seed=7", NULL},
     false,
     NULL},
    {"memory, shared", "memory", 2000, {NULL}, true, NULL},
    {"conflicts over memory, shared",
     "memory",
     500,
     {"fault:conflicts=300,seed=8"},
     true,
     NULL},
    {"memory far away, shared", "memory", 2000, {"latency:us=0"}, true, NULL},
    {"memory far away, shared, heard late",
     "memory",
     500,
     {"latency:us=0,watch=late"},
     true,
     NULL},
    {"memory far away, shared, unheard",
     "memory",
     500,
     {"latency:us=0,watch=none"},
     true,
     NULL},
    {"conflicts over latency over memory, shared",
     "memory",
     500,
     {"latency:us=5", "stats", "fault:conflicts=300,seed=9"},
     true,
     NULL},
    {"remote", "remote", 1000, {NULL}, false, &vj_engine_memory_ops},
    {"remote, small overlay",
     "remote:overlay=1M",
     500,
     {"stats", NULL},
     false,
     &vj_engine_lmdb_ops},
    {"remote at a real node", "remote", 300, {NULL}, false, NULL},
    {"conflicts over remote",
     "remote",
     500,
     {"fault:conflicts=300,seed=10", NULL},
     false,
     &vj_engine_memory_ops},
};

typedef struct Fixture {
    const Flavour *flavour;
    char *path;
    int dir_fd;
    KeyNode *node;       /* NULL: none is needed, */
    RealNode *real;      /* or this one */
    const char *address; /* of the node; NULL: there is none */
    VjMeta *meta;
} Fixture;

/* ---- Fixture --------------------------------------------------------------------- */

/* What the flavour's driver is called here; owned. */
static char *spec_of(const Fixture *f)
{
    const char *options = strchr(f->flavour->driver, ':');

    return f->address != NULL ? g_strdup_printf("remote:%s:insecure%s%s", f->address,
                                                options != NULL ? "," : "",
                                                options != NULL ? options + 1 : "")
                              : g_strdup(f->flavour->driver);
}

static void start_node(Fixture *f)
{
    const VjEngineOps *ops = f->flavour->node;
    VjMetaPlace place = {.dir_fd = f->dir_fd, .path = f->path, .create = true};
    g_autoptr(VjOpts) opts = ops != NULL ? vj_opts_new(ops->options) : NULL;

    if (ops != NULL) {
        VjEngine *engine = vj_engine_open(ops, NULL, &place, opts, NULL);

        assert_non_null(engine);
        f->node = key_node_new(engine);
        f->address = f->node->address;
    } else if (g_str_has_prefix(f->flavour->driver, "remote")) {
        f->real = real_node_new("lmdb");
        f->address = f->real->address;
    }
}

static void open_meta(Fixture *f, bool create, bool read_only)
{
    g_autofree char *spec = spec_of(f);
    VjSessionOpen session = {.name = "a test",
                             .shared = f->flavour->shared && !read_only};
    VjMetaPlace place = {.dir_fd = f->dir_fd,
                         .path = f->path,
                         .volume = KEY_NODE_VOLUME,
                         .create = create,
                         .read_only = read_only,
                         .session = session.shared ? &session : NULL};
    GError *error = NULL;

    if (!vj_meta_open(spec, &place, &f->meta, &error)) {
        fail_msg("open: %s", error->message);
    }
    for (size_t i = 0;
         i < G_N_ELEMENTS(f->flavour->wrappers) && f->flavour->wrappers[i] != NULL; i++) {
        VjMeta *inner = f->meta;

        if (!vj_meta_wrap(f->flavour->wrappers[i], inner, &f->meta, &error)) {
            fail_msg("wrap: %s", error->message);
        }
    }
}

static void close_meta(Fixture *f)
{
    assert_int_equal(vj_meta_close(f->meta), 0);
    f->meta = NULL;
}

static void reopen(Fixture *f)
{
    close_meta(f);
    open_meta(f, false, false);
}

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    g_autofree char *template = g_build_filename(g_get_tmp_dir(), "meta-XXXXXX", NULL);

    f->flavour = *state;
    f->path = g_strdup(g_mkdtemp(template));
    assert_non_null(f->path);
    f->dir_fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(f->dir_fd >= 0);
    start_node(f);
    open_meta(f, true, false);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;

    if (f->meta != NULL) {
        close_meta(f);
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
    (void)unlinkat(f->dir_fd, "redo.log", 0);
    close(f->dir_fd);
    rmdir(f->path);
    g_free(f->path);
    g_free(f);
    return 0;
}

static bool is_far(const Fixture *f)
{
    return f->address != NULL || (f->flavour->wrappers[0] != NULL &&
                                  g_str_has_prefix(f->flavour->wrappers[0], "latency"));
}

static bool is_durable(const Fixture *f)
{
    return g_str_has_prefix(f->flavour->driver, "lmdb");
}

/* ---- Small helpers --------------------------------------------------------------- */

static VjSlice text(const char *s)
{
    return vj_slice(s, strlen(s));
}

typedef struct Write {
    VjSpace space;
    const char *key;
    const char *value; /* NULL: delete */
    int result;        /* of put or del */
} Write;

static int write_body(VjTxn *txn, void *opaque)
{
    for (Write *w = opaque; w->key != NULL; w++) {
        w->result = w->value != NULL
                        ? vj_txn_put(txn, w->space, text(w->key), text(w->value))
                        : vj_txn_del(txn, w->space, text(w->key));
    }
    return 0;
}

static void put_text(Fixture *f, const char *key, const char *value)
{
    Write writes[] = {{VJ_SPACE_DENTRY, key, value, 0}, {.key = NULL}};

    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, write_body, writes), 0);
    assert_int_equal(writes[0].result, 0);
}

static void assert_get(VjTxn *txn, const char *key, const char *value)
{
    VjSlice got;
    int rc = vj_txn_get(txn, VJ_SPACE_DENTRY, text(key), &got);

    if (value == NULL) {
        assert_int_equal(rc, -ENOENT);
        return;
    }
    assert_int_equal(rc, 0);
    assert_int_equal(got.len, strlen(value));
    assert_memory_equal(got.data, value, got.len);
}

static int seen(VjTxn *txn, const char *key, const char *value)
{
    VjSlice got;
    int rc = vj_txn_get(txn, VJ_SPACE_DENTRY, text(key), &got);

    if (rc == -ENOENT) {
        assert_null(value);
        return 0;
    }
    if (rc == 0) {
        assert_non_null(value);
        assert_int_equal(got.len, strlen(value));
        assert_memory_equal(got.data, value, got.len);
    }
    return rc;
}

typedef struct Now {
    const char *key, *value;
} Now;

static int now_body(VjTxn *txn, void *opaque)
{
    const Now *now = opaque;

    return seen(txn, now->key, now->value);
}

static void assert_now(Fixture *f, const char *key, const char *value)
{
    Now now = {key, value};

    assert_int_equal(vj_meta_view(f->meta, now_body, &now), 0);
}

/* ---- One transaction ------------------------------------------------------------- */

static void test_put_get_del(void **state)
{
    Fixture *f = *state;
    Write absent[] = {{VJ_SPACE_DENTRY, "b", NULL, 0}, {.key = NULL}};

    put_text(f, "a", "one");
    put_text(f, "empty", "");
    assert_now(f, "a", "one");
    assert_now(f, "empty", "");
    assert_now(f, "b", NULL);
    put_text(f, "a", "two, and longer");
    assert_now(f, "a", "two, and longer");
    assert_int_equal(vj_meta_run(f->meta, 0, write_body, absent), 0);
    assert_int_equal(absent[0].result, -ENOENT);
    put_text(f, "a", NULL);
    assert_now(f, "a", NULL);
    reopen(f);
    assert_now(f, "a", NULL);
    assert_now(f, "empty", "");
}

/* How many keys a space holds, as the engine finds it when it is opened. */
static void test_count(void **state)
{
    Fixture *f = *state;
    uint64_t count = 99;

    assert_int_equal(vj_meta_count(f->meta, VJ_SPACE_DENTRY, &count), 0);
    assert_int_equal(count, 0);
    put_text(f, "a", "one");
    put_text(f, "b", "two");
    put_text(f, "c", "three");
    put_text(f, "b", NULL);
    reopen(f);
    assert_int_equal(vj_meta_count(f->meta, VJ_SPACE_DENTRY, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(vj_meta_count(f->meta, VJ_SPACE_COOKIE, &count), 0);
    assert_int_equal(count, 0);
}

/* A key deleted in memory stays deleted although the file still has it. */
static void test_del_of_durable(void **state)
{
    Fixture *f = *state;
    Write again[] = {{VJ_SPACE_DENTRY, "a", NULL, 0}, {.key = NULL}};

    put_text(f, "a", "one");
    assert_int_equal(vj_meta_flush(f->meta), 0);
    put_text(f, "a", NULL);
    assert_now(f, "a", NULL);
    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_RELEASE, write_body, again), 0);
    assert_int_equal(again[0].result, -ENOENT);
    assert_int_equal(vj_meta_flush(f->meta), 0);
    assert_now(f, "a", NULL);
    reopen(f);
    assert_now(f, "a", NULL);
}

/* Nobody else syncs: it is answered before the call returns. */
static void test_flush_that_nobody_waits_for(void **state)
{
    Fixture *f = *state;
    FlushAnswer answer = {.wait.done = count_answer};

    for (unsigned i = 0; i < 3; i++) {
        put_text(f, "a", i % 2 == 0 ? "one" : "two");
        vj_meta_flush_join(f->meta, &answer.wait);
        assert_int_equal(answer.times, 2 * i + 1);
        assert_int_equal(answer.rc, 0);
        vj_meta_flush_join(f->meta, &answer.wait);
        assert_int_equal(answer.times, 2 * i + 2);
        assert_int_equal(answer.rc, 0);
    }
    reopen(f);
    assert_now(f, "a", "one");
}

static int spaces_body(VjTxn *txn, void *opaque)
{
    VjSlice got;
    int rc = seen(txn, "k", NULL);

    (void)opaque;
    if (rc == 0) {
        rc = vj_txn_get(txn, VJ_SPACE_SYSTEM, text("k"), &got);
    }
    if (rc == 0) {
        assert_int_equal(got.len, 6);
        rc = vj_txn_get(txn, VJ_SPACE_STORE, text("k"), &got);
    }
    if (rc == 0) {
        assert_int_equal(got.len, 5);
    }
    return rc;
}

static void test_spaces_are_apart(void **state)
{
    Fixture *f = *state;
    Write writes[] = {{VJ_SPACE_SYSTEM, "k", "system", 0},
                      {VJ_SPACE_STORE, "k", "store", 0},
                      {.key = NULL}};

    assert_int_equal(vj_meta_run(f->meta, 0, write_body, writes), 0);
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(vj_meta_view(f->meta, spaces_body, NULL), 0);
        reopen(f);
    }
}

static int failing_body(VjTxn *txn, void *opaque)
{
    (void)opaque;
    assert_int_equal(vj_txn_put(txn, VJ_SPACE_DENTRY, text("a"), text("never")), 0);
    assert_int_equal(vj_txn_del(txn, VJ_SPACE_DENTRY, text("kept")), 0);
    assert_get(txn, "a", "never");
    assert_get(txn, "kept", NULL);
    return -EDOM;
}

static void test_abort_leaves_nothing(void **state)
{
    Fixture *f = *state;

    put_text(f, "kept", "yes");
    assert_int_equal(vj_meta_run(f->meta, 0, failing_body, NULL), -EDOM);
    assert_now(f, "a", NULL);
    assert_now(f, "kept", "yes");
    reopen(f);
    assert_now(f, "a", NULL);
    assert_now(f, "kept", "yes");
}

static int own_writes_body(VjTxn *txn, void *opaque)
{
    VjSlice key, value;

    (void)opaque;
    assert_get(txn, "m", "old");
    assert_int_equal(vj_txn_put(txn, VJ_SPACE_DENTRY, text("m"), text("new")), 0);
    assert_get(txn, "m", "new");
    /* A value may be put again under another key while it is still borrowed. */
    assert_int_equal(vj_txn_get(txn, VJ_SPACE_DENTRY, text("m"), &value), 0);
    assert_int_equal(vj_txn_put(txn, VJ_SPACE_DENTRY, text("m"), value), 0);
    assert_get(txn, "m", "new");
    assert_int_equal(vj_txn_del(txn, VJ_SPACE_DENTRY, text("m")), 0);
    assert_get(txn, "m", NULL);
    assert_int_equal(vj_txn_del(txn, VJ_SPACE_DENTRY, text("m")), -ENOENT);
    assert_int_equal(vj_txn_next(txn, VJ_SPACE_DENTRY, text("l"), &key, &value), -ENOENT);
    assert_int_equal(vj_txn_put(txn, VJ_SPACE_DENTRY, text("n"), text("n")), 0);
    assert_int_equal(vj_txn_next(txn, VJ_SPACE_DENTRY, text("l"), &key, &value), 0);
    assert_int_equal(vj_slice_compare(key, text("n")), 0);
    return 0;
}

static void test_own_writes(void **state)
{
    Fixture *f = *state;

    put_text(f, "m", "old");
    assert_int_equal(vj_meta_run(f->meta, 0, own_writes_body, NULL), 0);
    assert_now(f, "m", NULL);
    assert_now(f, "n", "n");
}

/* ---- Snapshots ------------------------------------------------------------------- */

/* Of the session itself: it stays open beside writers, and no wrapper ends it. */
static VjTxn *begin_snapshot(Fixture *f)
{
    VjMeta *m = f->meta;
    VjTxn *txn;

    while (m->next != NULL) {
        m = m->next;
    }
    assert_int_equal(vj_meta_begin(m, &(VjTxn){.write = false}, &txn), 0);
    return txn;
}

static void test_snapshot(void **state)
{
    Fixture *f = *state;
    VjTxn *old = NULL;
    VjSlice borrowed, key, value;

    put_text(f, "a", "one");
    put_text(f, "b", "gone later");
    if (is_far(f)) {
        return; /* the engine has none: test_view_while_keys_move */
    }
    old = begin_snapshot(f);
    assert_int_equal(vj_txn_get(old, VJ_SPACE_DENTRY, text("a"), &borrowed), 0);
    for (int round = 0; round < 3; round++) {
        put_text(f, "a", "two");
        put_text(f, "b", NULL);
        put_text(f, "c", "new");
        assert_get(old, "a", "one");
        assert_get(old, "b", "gone later");
        assert_get(old, "c", NULL);
        assert_int_equal(vj_txn_next(old, VJ_SPACE_DENTRY, text("a"), &key, &value), 0);
        assert_int_equal(vj_slice_compare(key, text("b")), 0);
        assert_int_equal(vj_txn_next(old, VJ_SPACE_DENTRY, key, &key, &value), -ENOENT);
        assert_int_equal(
            vj_txn_prev(old, VJ_SPACE_DENTRY, vj_slice(NULL, 0), &key, &value), 0);
        assert_int_equal(vj_slice_compare(key, text("b")), 0);
        assert_memory_equal(borrowed.data, "one", 3);
        assert_now(f, "a", "two");
        assert_now(f, "b", NULL);
        put_text(f, "b", "again");
        /* The generation goes to the file and is dropped under the snapshot's feet. */
        assert_int_equal(vj_meta_flush(f->meta), 0);
    }
    assert_false(vj_txn_abort(old));
    assert_now(f, "a", "two");
    assert_now(f, "b", "again");
}

/* ---- Bodies that only read ------------------------------------------------------- */

typedef struct Look {
    const char *a, *b; /* what is expected; NULL: absent */
    int result;        /* of the body */
    unsigned runs;
} Look;

static int look_body(VjTxn *txn, void *opaque)
{
    Look *look = opaque;
    VjSlice key = vj_slice(NULL, 0), value;
    int rc;

    look->runs++;
    rc = seen(txn, "a", look->a);
    rc = rc == 0 ? seen(txn, "b", look->b) : rc;
    for (unsigned keys = (look->a != NULL) + (look->b != NULL); rc == 0; keys--) {
        rc = vj_txn_next(txn, VJ_SPACE_DENTRY, key, &key, &value);
        if (rc == -ENOENT) {
            assert_int_equal(keys, 0);
        }
    }
    return rc == -ENOENT ? look->result : rc;
}

static void test_view(void **state)
{
    Fixture *f = *state;
    Look look = {NULL, NULL, 0, 0};

    assert_int_equal(vj_meta_view(f->meta, look_body, &look), 0);
    put_text(f, "a", "one");
    look = (Look){"one", NULL, -EDOM, 0};
    assert_int_equal(vj_meta_view(f->meta, look_body, &look), -EDOM);
    assert_int_equal(vj_meta_flush(f->meta), 0);
    put_text(f, "b", "two");
    look = (Look){"one", "two", -ENOENT, 0};
    assert_int_equal(vj_meta_view(f->meta, look_body, &look), -ENOENT);
    reopen(f);
    look = (Look){"one", "two", 0, 0};
    assert_int_equal(vj_meta_view(f->meta, look_body, &look), 0);
    assert_true(look.runs >= 1);
}

/* A run that could not be finished leaves nothing: neither its result nor its error. */
static void test_view_runs_again(void **state)
{
    Fixture *f = *state;
    uint64_t hits = vj_meta_fault_hits();
    unsigned runs = 0;
    VjMeta *faulty;

    put_text(f, "a", "one");
    assert_int_equal(vj_meta_flush(f->meta), 0);
    put_text(f, "b", "two");
    assert_true(vj_meta_wrap("fault:conflicts=500,seed=9", f->meta, &faulty, NULL));
    f->meta = faulty;
    for (unsigned i = 0; i < 100; i++) {
        Look look = {"one", "two", i % 2 == 0 ? 0 : -EDOM, 0};

        assert_int_equal(vj_meta_view(f->meta, look_body, &look), look.result);
        runs += look.runs;
    }
    assert_true(runs > 150);
    assert_true(vj_meta_fault_hits() - hits >= runs - 100);
}

typedef struct Moving {
    Fixture *f;
    unsigned runs;
    bool is_new; /* what the last run saw */
} Moving;

/* In its first run the keys change under it, down to the engine. */
static int moving_body(VjTxn *txn, void *opaque)
{
    Moving *m = opaque;
    VjSlice a, b;
    int rc = vj_txn_get(txn, VJ_SPACE_DENTRY, text("a"), &a);

    if (rc == 0 && m->runs++ == 0) {
        Write writes[] = {{VJ_SPACE_DENTRY, "a", "new", 0},
                          {VJ_SPACE_DENTRY, "b", "new", 0},
                          {.key = NULL}};

        assert_int_equal(vj_meta_run(m->f->meta, 0, write_body, writes), 0);
        assert_int_equal(vj_meta_flush(m->f->meta), 0);
    }
    if (rc == 0) {
        rc = vj_txn_get(txn, VJ_SPACE_DENTRY, text("b"), &b);
    }
    if (rc == 0 && vj_slice_compare(a, b) != 0) {
        return -EDOM; /* whether that is a state is asked when the body has ended */
    }
    if (rc == 0) {
        m->is_new = vj_slice_compare(a, text("new")) == 0;
    }
    return rc;
}

/* One state: from a snapshot, or because the body runs again. */
static void test_view_while_keys_move(void **state)
{
    Fixture *f = *state;
    Moving moving = {.f = f};

    put_text(f, "a", "old");
    put_text(f, "b", "old");
    assert_int_equal(vj_meta_flush(f->meta), 0);
    assert_int_equal(vj_meta_view(f->meta, moving_body, &moving), 0);
    if (is_far(f)) {
        assert_true(moving.runs >= 2 && moving.is_new);
    } else if (f->flavour->wrappers[0] == NULL) {
        assert_true(moving.runs == 1 && !moving.is_new);
    }
}

/* What fails for another reason is the caller's result. */
static void test_view_fails(void **state)
{
    Fixture *f = *state;
    Look look = {"one", NULL, 0, 0};
    VjMeta *faulty;

    put_text(f, "a", "one");
    assert_true(vj_meta_wrap("fault", f->meta, &faulty, NULL));
    f->meta = faulty;
    assert_true(vj_meta_fault_set(f->meta, "kinds=get+next+begin,every=1", NULL));
    assert_int_equal(vj_meta_view(f->meta, look_body, &look), -EIO);
    assert_int_equal(look.runs, 0);
    assert_true(vj_meta_fault_set(f->meta, "kinds=get,fail=2,errno=ENOMEM", NULL));
    assert_int_equal(vj_meta_view(f->meta, look_body, &look), -ENOMEM);
    assert_int_equal(look.runs, 1);
}

/* ---- Values ---------------------------------------------------------------------- */

typedef struct Large {
    size_t len;
    const uint8_t *bytes;
} Large;

static VjSlice large_key(const size_t *len, char *out)
{
    snprintf(out, 32, "size %zu", *len);
    return text(out);
}

static const size_t large_sizes[] = {0,
                                     1,
                                     1900,
                                     2037,
                                     2038,
                                     2039,
                                     4080,
                                     4081,
                                     8176,
                                     8177,
                                     65536,
                                     65537,
                                     VJ_META_VALUE_MAX};

static int large_body(VjTxn *txn, void *opaque)
{
    const uint8_t *bytes = opaque;
    char key[32];

    for (size_t i = 0; i < G_N_ELEMENTS(large_sizes); i++) {
        assert_int_equal(vj_txn_put(txn, VJ_SPACE_XATTR, large_key(&large_sizes[i], key),
                                    vj_slice(bytes + i, large_sizes[i])),
                         0);
    }
    return 0;
}

static int large_seen_body(VjTxn *txn, void *opaque)
{
    const uint8_t *bytes = opaque;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < G_N_ELEMENTS(large_sizes); i++) {
        char key[32];
        VjSlice got;

        rc = vj_txn_get(txn, VJ_SPACE_XATTR, large_key(&large_sizes[i], key), &got);
        if (rc == 0) {
            assert_int_equal(got.len, large_sizes[i]);
            assert_memory_equal(got.data, bytes + i, got.len);
        }
    }
    return rc;
}

static void test_large_values(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = g_malloc(VJ_META_VALUE_MAX + 64);
    VjRng rng;

    vj_rng_init(&rng, 7);
    vj_rng_bytes(&rng, bytes, VJ_META_VALUE_MAX + 64);
    assert_int_equal(vj_meta_run(f->meta, 0, large_body, bytes), 0);
    for (int pass = 0; pass < 3; pass++) {
        assert_int_equal(vj_meta_view(f->meta, large_seen_body, bytes), 0);
        if (pass == 0) {
            assert_int_equal(vj_meta_flush(f->meta), 0);
        } else {
            reopen(f);
        }
    }
}

/* What a scan of @prefix visits, separated by blanks; it begins behind @behind, if any,
 * and deletes each key that it stands on with @del. */
static char *scanned(VjTxn *txn, const char *prefix, const char *behind, bool del)
{
    GString *keys = g_string_new(NULL);
    VjScan scan;

    vj_scan_begin(&scan, txn, VJ_SPACE_DENTRY, text(prefix));
    if (behind != NULL) {
        vj_scan_behind(&scan, text(behind));
    }
    while (vj_scan_next(&scan)) {
        assert_get(txn, "none", NULL); /* the key is the scan's own */
        g_string_append_len(keys, scan.key.data, (gssize)scan.key.len);
        g_string_append_c(keys, ' ');
        assert_memory_equal(scan.value.data, "v", scan.value.len);
        if (del) {
            assert_int_equal(vj_txn_del(txn, VJ_SPACE_DENTRY, scan.key), 0);
        }
    }
    assert_int_equal(scan.error, 0);
    return g_string_free(keys, FALSE);
}

static int scan_body(VjTxn *txn, void *opaque)
{
    static const struct {
        const char *prefix, *behind;
        bool del;
        const char *keys;
    } scans[] = {
        {"", NULL, false, "a aa ab abc b ba "},
        {"", "ab", false, "abc b ba "},
        {"", "zz", false, ""},
        {"a", NULL, false, "aa ab abc "}, /* not the prefix itself */
        {"a", "aaaa", false, "ab abc "},
        {"ab", NULL, false, "abc "},
        {"c", NULL, false, ""},
        {"a", NULL, true, "aa ab abc "},
        {"", NULL, false, "a b ba "},
    };

    (void)opaque;
    for (size_t i = 0; i < G_N_ELEMENTS(scans); i++) {
        g_autofree char *keys =
            scanned(txn, scans[i].prefix, scans[i].behind, scans[i].del);

        assert_string_equal(keys, scans[i].keys);
    }
    return 0;
}

static void test_scan(void **state)
{
    static const char *const keys[] = {"b", "a", "abc", "ab", "ba", "aa"};
    Fixture *f = *state;

    for (size_t i = 0; i < G_N_ELEMENTS(keys); i++) {
        put_text(f, keys[i], "v");
        if (i == 2) {
            reopen(f); /* some of them below the overlay, some in it */
        }
    }
    assert_int_equal(vj_meta_run(f->meta, 0, scan_body, NULL), 0);
}

static int failing_scan_body(VjTxn *txn, void *opaque)
{
    VjScan scan;

    (void)opaque;
    vj_scan_begin(&scan, txn, VJ_SPACE_DENTRY, VJ_SCAN_ALL);
    assert_true(vj_scan_next(&scan) || scan.error == -EAGAIN);
    assert_false(scan.error == 0 && vj_scan_next(&scan));
    return scan.error;
}

/* An error ends it, and is told apart from the end. */
static void test_scan_fails(void **state)
{
    Fixture *f = *state;
    VjMeta *faulty;

    put_text(f, "a", "v");
    put_text(f, "b", "v");
    close_meta(f);
    f->flavour = &flavours[is_durable(f) ? 0 : 5]; /* a body that does not run again */
    open_meta(f, false, false);
    assert_true(vj_meta_wrap("fault", f->meta, &faulty, NULL));
    f->meta = faulty;
    assert_true(vj_meta_fault_set(f->meta, "kinds=next,fail=2", NULL));
    assert_int_equal(vj_meta_view(f->meta, failing_scan_body, NULL), -EIO);
}

#define LISTED 150u /* several batches */

static int put_listed_body(VjTxn *txn, void *opaque)
{
    (void)opaque;
    for (unsigned i = 0; i < LISTED; i++) {
        g_autofree char *key = g_strdup_printf("%03u", i);
        int rc = vj_txn_put(txn, VJ_SPACE_DENTRY, text(key),
                            vj_slice(key, i % 2 == 0 ? strlen(key) : 0));

        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* Each record once, whatever else is done in between and however often views begin
 * anew. */
static void test_listing(void **state)
{
    Fixture *f = *state;
    unsigned i = 0;
    VjListing l;

    assert_int_equal(vj_meta_run(f->meta, 0, put_listed_body, NULL), 0);
    assert_int_equal(vj_meta_flush(f->meta), 0);
    vj_listing_begin(&l, f->meta, VJ_SPACE_DENTRY);
    for (; vj_listing_next(&l); i++) {
        g_autofree char *key = g_strdup_printf("%03u", i);

        assert_int_equal(vj_slice_compare(l.key, text(key)), 0);
        assert_int_equal(l.value.len, i % 2 == 0 ? 3 : 0);
        if (i == 10) {
            put_text(f, "011", NULL);
            put_text(f, "0105", "late");
            vj_listing_behind(&l, l.key);
            assert_true(vj_listing_next(&l));
            assert_int_equal(vj_slice_compare(l.key, text("0105")), 0);
            assert_int_equal(vj_slice_compare(l.value, text("late")), 0);
            i++;
        }
    }
    assert_int_equal(i, LISTED);
    assert_false(vj_listing_next(&l));
    vj_listing_behind(&l, text("148"));
    assert_true(vj_listing_next(&l));
    assert_int_equal(vj_slice_compare(l.key, text("149")), 0);
    assert_int_equal(vj_listing_end(&l), 0);
    vj_listing_begin(&l, f->meta, VJ_SPACE_XATTR);
    assert_false(vj_listing_next(&l));
    assert_int_equal(vj_listing_end(&l), 0);
}

/* What can be read in front of a failure is given out. */
static void test_listing_fails(void **state)
{
    Fixture *f = *state;
    VjMeta *faulty;
    VjListing l;

    put_text(f, "a", "v");
    put_text(f, "b", "v");
    close_meta(f);
    f->flavour = &flavours[is_durable(f) ? 0 : 5]; /* views that do not begin anew */
    open_meta(f, false, false);
    assert_true(vj_meta_wrap("fault", f->meta, &faulty, NULL));
    f->meta = faulty;
    assert_true(vj_meta_fault_set(f->meta, "kinds=next,fail=2,times=0", NULL));
    vj_listing_begin(&l, f->meta, VJ_SPACE_DENTRY);
    assert_true(vj_listing_next(&l));
    assert_int_equal(vj_slice_compare(l.key, text("a")), 0);
    assert_false(vj_listing_next(&l));
    assert_int_equal(vj_listing_end(&l), -EIO);
}

static void test_longest_key(void **state)
{
    Fixture *f = *state;
    char key[VJ_META_KEY_MAX + 1];

    memset(key, 0xff, VJ_META_KEY_MAX);
    key[VJ_META_KEY_MAX] = 0;
    put_text(f, key, "long");
    assert_now(f, key, "long");
    reopen(f);
    assert_now(f, key, "long");
}

/* ---- Opening --------------------------------------------------------------------- */

static void test_read_only(void **state)
{
    Fixture *f = *state;
    Write writes[] = {{VJ_SPACE_DENTRY, "a", "b", 0}, {.key = NULL}};

    put_text(f, "a", "one");
    close_meta(f);
    open_meta(f, false, true);
    assert_now(f, "a", "one");
    assert_int_equal(vj_meta_run(f->meta, 0, write_body, writes), -EROFS);
    assert_int_equal(vj_meta_flush(f->meta), 0);
    assert_now(f, "a", "one");
}

static void test_missing_engine(void **state)
{
    Fixture *f = *state;
    VjMetaPlace place = {.dir_fd = f->dir_fd, .path = f->path, .volume = KEY_NODE_VOLUME};
    g_autoptr(GError) error = NULL;
    VjMeta *m;

    close_meta(f);
    if (f->address != NULL) {
        g_autofree char *spec = spec_of(f);

        if (f->real != NULL) {
            real_node_free(f->real);
            f->real = real_node_new("lmdb"); /* a new disk */
            g_free(spec);
            f->address = f->real->address;
            spec = spec_of(f);
        } else {
            f->node->has_uuid = false;
        }
        assert_false(vj_meta_open(spec, &place, &m, &error));
        assert_int_equal(error->code, ENOENT);
        return;
    }
    if (!is_durable(f)) {
        g_autofree char *spec =
            g_strdup_printf("%s%sname=unheard of", f->flavour->driver,
                            strchr(f->flavour->driver, ':') ? "," : ":");

        assert_false(vj_meta_open(spec, &place, &m, &error));
        assert_int_equal(error->code, ENOENT);
        return;
    }
    assert_int_equal(unlinkat(f->dir_fd, "data.mdb", 0), 0);
    assert_false(vj_meta_open(f->flavour->driver, &place, &m, &error));
    assert_int_equal(error->code, ENOENT);
    assert_null(m);
    assert_int_equal(faccessat(f->dir_fd, "data.mdb", F_OK, 0), -1);
}

/* ---- Against a model ------------------------------------------------------------- */

/* A plain sorted array of keys with values: slow and obvious. */
typedef struct Pair {
    uint8_t key[16];
    uint8_t key_bytes;
    uint64_t value; /* its number; the bytes follow from it */
} Pair;

typedef struct Model {
    GArray *pairs[2]; /* of Pair, sorted; for two of the spaces */
} Model;

static const VjSpace model_spaces[2] = {VJ_SPACE_INODE, VJ_SPACE_INDEX};

static VjSlice pair_key(const Pair *p)
{
    return vj_slice(p->key, p->key_bytes);
}

static Pair *pair_at(GArray *a, size_t i)
{
    return &g_array_index(a, Pair, i);
}

/* Index of the first pair with a key >= @key. */
static size_t model_lower(GArray *a, VjSlice key)
{
    size_t low = 0, high = a->len;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (vj_slice_compare(pair_key(pair_at(a, mid)), key) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static bool model_has(GArray *a, size_t at, VjSlice key)
{
    return at < a->len && vj_slice_compare(pair_key(pair_at(a, at)), key) == 0;
}

static void model_put(GArray *a, const Pair *p)
{
    size_t at = model_lower(a, pair_key(p));

    if (model_has(a, at, pair_key(p))) {
        pair_at(a, at)->value = p->value;
    } else {
        g_array_insert_vals(a, (guint)at, p, 1);
    }
}

static bool model_del(GArray *a, VjSlice key)
{
    size_t at = model_lower(a, key);

    if (!model_has(a, at, key)) {
        return false;
    }
    g_array_remove_index(a, (guint)at);
    return true;
}

static Model *model_new(void)
{
    Model *m = g_new0(Model, 1);

    for (size_t i = 0; i < 2; i++) {
        m->pairs[i] = g_array_new(FALSE, FALSE, sizeof(Pair));
    }
    return m;
}

static Model *model_copy(const Model *from)
{
    Model *m = g_new0(Model, 1);

    for (size_t i = 0; i < 2; i++) {
        m->pairs[i] = g_array_copy(from->pairs[i]);
    }
    return m;
}

static void model_free(Model *m)
{
    for (size_t i = 0; i < 2; i++) {
        g_array_free(m->pairs[i], TRUE);
    }
    g_free(m);
}

/* Value @n: its length and bytes follow from the number; sometimes over a page. */
static VjSlice value_bytes(uint64_t n, uint8_t *out)
{
    size_t len = n % 97 == 0 ? 3000 + n % 6000 : 8 + n % 120;

    memset(out, (int)(n & 0xff), len);
    vj_be64_set(out, n);
    return vj_slice(out, len);
}

static void assert_value(VjSlice got, uint64_t n)
{
    uint8_t bytes[16384];
    VjSlice want = value_bytes(n, bytes);

    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.data, want.data, want.len);
}

static Pair random_pair(VjRng *rng)
{
    Pair p = {.key_bytes = (uint8_t)(1 + vj_rng_below(rng, 3)),
              .value = vj_rng_u64(rng) >> 20};

    for (size_t i = 0; i < p.key_bytes; i++) {
        p.key[i] = (uint8_t)(vj_rng_below(rng, 16) * 16);
    }
    return p;
}

/* One random question, answered by both. */
static void compare_once(VjTxn *txn, Model *m, VjRng *rng)
{
    size_t which = vj_rng_below(rng, 2);
    GArray *a = m->pairs[which];
    VjSpace space = model_spaces[which];
    Pair p = random_pair(rng);
    VjSlice from = vj_rng_below(rng, 50) == 0 ? vj_slice(NULL, 0) : pair_key(&p);
    size_t at = model_lower(a, from);
    VjSlice key, value;
    int rc;

    switch (vj_rng_below(rng, 3)) {
    case 0:
        rc = vj_txn_get(txn, space, pair_key(&p), &value);
        at = model_lower(a, pair_key(&p));
        assert_int_equal(rc, model_has(a, at, pair_key(&p)) ? 0 : -ENOENT);
        if (rc == 0) {
            assert_value(value, pair_at(a, at)->value);
        }
        return;
    case 1:
        rc = vj_txn_next(txn, space, from, &key, &value);
        at += from.len > 0 && model_has(a, at, from) ? 1 : 0;
        assert_int_equal(rc, at < a->len ? 0 : -ENOENT);
        break;
    default:
        rc = vj_txn_prev(txn, space, from, &key, &value);
        at = from.len == 0 ? a->len : at;
        assert_int_equal(rc, at > 0 ? 0 : -ENOENT);
        at--;
        break;
    }
    if (rc == 0) {
        assert_int_equal(vj_slice_compare(key, pair_key(pair_at(a, at))), 0);
        assert_value(value, pair_at(a, at)->value);
    }
}

typedef struct Step {
    uint64_t seed;
    const Model *before;
    Model *after; /* what the last run of the body made of it; owned */
    bool give_up; /* abort at the end */
} Step;

/* May run several times: starts from the same seed and a copy of the same model. */
static int step_body(VjTxn *txn, void *opaque)
{
    Step *s = opaque;
    uint8_t bytes[16384];
    VjRng rng;

    vj_rng_init(&rng, s->seed);
    g_clear_pointer(&s->after, model_free);
    s->after = model_copy(s->before);
    for (uint64_t n = 1 + vj_rng_below(&rng, 30); n > 0; n--) {
        size_t which = vj_rng_below(&rng, 2);
        VjSpace space = model_spaces[which];
        Pair p = random_pair(&rng);

        if (vj_rng_below(&rng, 100) < 45) {
            bool there = model_del(s->after->pairs[which], pair_key(&p));

            assert_int_equal(vj_txn_del(txn, space, pair_key(&p)), there ? 0 : -ENOENT);
        } else {
            model_put(s->after->pairs[which], &p);
            assert_int_equal(
                vj_txn_put(txn, space, pair_key(&p), value_bytes(p.value, bytes)), 0);
        }
        compare_once(txn, s->after, &rng);
    }
    return s->give_up ? -EDOM : 0;
}

/* A body. */
static int compare_all(VjTxn *txn, void *opaque)
{
    const Model *m = opaque;

    for (size_t i = 0; i < 2; i++) {
        VjSlice key = vj_slice(NULL, 0), value;
        int rc;

        for (size_t at = 0; at < m->pairs[i]->len; at++) {
            rc = vj_txn_next(txn, model_spaces[i], key, &key, &value);
            if (rc == -EAGAIN) {
                return rc;
            }
            assert_int_equal(rc, 0);
            assert_int_equal(vj_slice_compare(key, pair_key(pair_at(m->pairs[i], at))),
                             0);
            assert_value(value, pair_at(m->pairs[i], at)->value);
        }
        rc = vj_txn_next(txn, model_spaces[i], key, &key, &value);
        if (rc == -EAGAIN) {
            return rc;
        }
        assert_int_equal(rc, -ENOENT);
    }
    return 0;
}

/* An old snapshot, with the model as it was. */
typedef struct Past {
    VjTxn *txn;
    Model *model;
} Past;

static void past_end(Past *p)
{
    if (p->txn != NULL) {
        assert_int_equal(compare_all(p->txn, p->model), 0);
        assert_false(vj_txn_abort(g_steal_pointer(&p->txn)));
        g_clear_pointer(&p->model, model_free);
    }
}

static void past_begin(Past *p, Fixture *f, const Model *now)
{
    past_end(p);
    if (!is_far(f)) {
        p->txn = begin_snapshot(f);
        p->model = model_copy(now);
    }
}

static uint64_t test_seed(void)
{
    const char *text_seed = g_getenv("VARJFS_TEST_SEED");

    return text_seed != NULL ? g_ascii_strtoull(text_seed, NULL, 0) : 20260101;
}

static Model *model_step(Fixture *f, Model *model, VjRng *rng)
{
    Step step = {
        .seed = vj_rng_u64(rng), .before = model, .give_up = vj_rng_below(rng, 20) == 0};
    int rc = vj_meta_run(f->meta, VJ_RUN_DEFAULT, step_body, &step);

    assert_int_equal(rc, step.give_up ? -EDOM : 0);
    if (step.give_up) {
        model_free(step.after);
        return model;
    }
    model_free(model);
    return step.after;
}

/* At its longest, 10^5 changes and as many questions. */
static void test_model(void **state)
{
    Fixture *f = *state;
    Model *model = model_new();
    Past past[3] = {{NULL, NULL}};
    VjRng rng;

    print_message("# seed %" G_GUINT64_FORMAT "\n", test_seed());
    vj_rng_init(&rng, test_seed());
    for (int i = 0; i < f->flavour->model_steps; i++) {
        uint64_t what = vj_rng_below(&rng, 1000);

        model = model_step(f, model, &rng);
        if (what < 20) {
            assert_int_equal(vj_meta_flush(f->meta), 0);
        } else if (what >= 950) {
            assert_int_equal(vj_meta_view(f->meta, compare_all, model), 0);
        } else if (what < 23) {
            for (size_t p = 0; p < G_N_ELEMENTS(past); p++) {
                past_end(&past[p]);
            }
            reopen(f);
        } else if (what < 200) {
            past_begin(&past[vj_rng_below(&rng, G_N_ELEMENTS(past))], f, model);
        } else if (what < 600) {
            Past *p = &past[vj_rng_below(&rng, G_N_ELEMENTS(past))];

            if (p->txn != NULL) {
                compare_once(p->txn, p->model, &rng);
            }
        }
    }
    for (size_t p = 0; p < G_N_ELEMENTS(past); p++) {
        past_end(&past[p]);
    }
    reopen(f);
    assert_int_equal(vj_meta_view(f->meta, compare_all, model), 0);
    model_free(model);
}

/* ---- Several threads ------------------------------------------------------------- */

#define ACCOUNTS 40u
#define ACCOUNT_START 1000u
#define TRANSFERS 2000u

/* Writers move amounts between accounts; every snapshot has to show the same sum. */
typedef struct Bank {
    VjMeta *meta;
    gint running; /* writers that are not done */
} Bank;

typedef struct Transfer {
    uint64_t from, to, amount;
} Transfer;

static VjSlice account_key(uint64_t number, uint8_t out[8])
{
    vj_be64_set(out, number);
    return vj_slice(out, 8);
}

static uint64_t balance(VjTxn *txn, uint64_t number)
{
    uint8_t key[8];
    VjSlice value;

    g_assert(vj_txn_get(txn, VJ_SPACE_OBJECT, account_key(number, key), &value) == 0);
    g_assert(value.len == 8);
    return vj_be64_get(value.data);
}

static int set_balance(VjTxn *txn, uint64_t number, uint64_t amount)
{
    uint8_t key[8], value[8];

    vj_be64_set(value, amount);
    return vj_txn_put(txn, VJ_SPACE_OBJECT, account_key(number, key), vj_slice(value, 8));
}

/* An account that becomes empty is deleted, and made again when something comes in. */
/* Written by each change of which accounts there are: by it a walk over them is guarded
 * in a session without snapshots. */
static int change_guard(VjTxn *txn)
{
    uint8_t bytes[8];

    vj_be64_set(bytes, vj_random_u64());
    return vj_txn_put(txn, VJ_SPACE_SYSTEM, text("accounts"), vj_slice(bytes, 8));
}

static int transfer_body(VjTxn *txn, void *opaque)
{
    const Transfer *t = opaque;
    uint8_t key[8];
    VjSlice value;
    uint64_t from, amount, to = 0;
    int rc = vj_txn_get(txn, VJ_SPACE_OBJECT, account_key(t->from, key), &value);

    if (rc == -ENOENT || t->from == t->to) {
        return 0;
    }
    g_assert(rc == 0);
    from = vj_be64_get(value.data);
    amount = MIN(t->amount, from);
    rc = vj_txn_get(txn, VJ_SPACE_OBJECT, account_key(t->to, key), &value);
    g_assert(rc == 0 || rc == -ENOENT);
    if (rc == 0) {
        to = balance(txn, t->to);
    }
    rc = rc == -ENOENT || from <= amount ? change_guard(txn) : 0;
    if (rc < 0) {
        return rc;
    }
    rc = from > amount ? set_balance(txn, t->from, from - amount)
                       : vj_txn_del(txn, VJ_SPACE_OBJECT, account_key(t->from, key));
    return rc < 0 ? rc : set_balance(txn, t->to, to + amount);
}

static int open_accounts_body(VjTxn *txn, void *opaque)
{
    (void)opaque;
    for (uint64_t i = 0; i < ACCOUNTS; i++) {
        int rc = set_balance(txn, i, ACCOUNT_START);

        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static uint64_t sum_of(VjTxn *txn, bool forward)
{
    VjSlice key = vj_slice(NULL, 0), value;
    uint64_t sum = 0;

    while ((forward ? vj_txn_next(txn, VJ_SPACE_OBJECT, key, &key, &value)
                    : vj_txn_prev(txn, VJ_SPACE_OBJECT, key, &key, &value)) == 0) {
        sum += vj_be64_get(value.data);
    }
    return sum;
}

static gpointer writer_main(gpointer opaque)
{
    Bank *bank = opaque;
    VjRng rng;

    vj_rng_init(&rng, (uint64_t)(uintptr_t)&rng);
    for (unsigned i = 0; i < TRANSFERS; i++) {
        Transfer t = {.from = vj_rng_below(&rng, ACCOUNTS),
                      .to = vj_rng_below(&rng, ACCOUNTS),
                      .amount = vj_rng_below(&rng, 2 * ACCOUNT_START)};

        g_assert(vj_meta_run(bank->meta, VJ_RUN_DEFAULT, transfer_body, &t) == 0);
        if (i % 200 == 0) {
            g_assert(vj_meta_flush(bank->meta) == 0);
        }
    }
    g_atomic_int_add(&bank->running, -1);
    return NULL;
}

static int sums_body(VjTxn *txn, void *opaque)
{
    VjSlice guard;
    int rc = vj_txn_get(txn, VJ_SPACE_SYSTEM, text("accounts"), &guard);

    (void)opaque;
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    for (int pass = 0; pass < 4; pass++) {
        uint64_t sum = sum_of(txn, pass % 2 == 0);

        if (txn->verdict != 0) {
            return -EAGAIN;
        }
        if (sum != ACCOUNTS * ACCOUNT_START) {
            return -EDOM; /* nobody believes it, unless it is a state */
        }
    }
    return 0;
}

static gpointer reader_main(gpointer opaque)
{
    Bank *bank = opaque;

    do {
        g_assert(vj_meta_view(bank->meta, sums_body, NULL) == 0);
    } while (g_atomic_int_get(&bank->running) > 0);
    return NULL;
}

static void test_threads(void **state)
{
    Fixture *f = *state;
    Bank bank = {.meta = f->meta, .running = 2};
    GThread *threads[4];

    assert_int_equal(vj_meta_run(f->meta, 0, open_accounts_body, NULL), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++) {
        threads[i] = g_thread_new("bank", i < 2 ? writer_main : reader_main, &bank);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++) {
        g_thread_join(threads[i]);
    }
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(vj_meta_view(f->meta, sums_body, NULL), 0);
        reopen(f);
    }
}

/* ---- Killed ---------------------------------------------------------------------- */

static int count_body(VjTxn *txn, void *opaque)
{
    const uint64_t *number = opaque;
    uint8_t key[8], value[400] = {0};

    /* Two keys in two spaces: both or none. */
    vj_be64_set(value, *number);
    if (vj_txn_put(txn, VJ_SPACE_ID_BLOCK, account_key(*number, key),
                   vj_slice(value, 8 + *number % 300)) < 0) {
        return -EIO;
    }
    return vj_txn_put(txn, VJ_SPACE_SYSTEM, text("last"), vj_slice(value, 8));
}

/* Commits numbers without end; says over the pipe which of them a flush acknowledged. */
G_GNUC_NORETURN static void child_main(Fixture *f, uint64_t first, int pipe_fd)
{
    open_meta(f, false, false);
    for (uint64_t n = first;; n++) {
        if (vj_meta_run(f->meta, VJ_RUN_DEFAULT, count_body, &n) < 0) {
            _exit(1);
        }
        if (n % 7 == 0 && (vj_meta_flush(f->meta) < 0 ||
                           write(pipe_fd, &n, sizeof n) != (ssize_t)sizeof n)) {
            _exit(1);
        }
    }
}

/* Runs a child until it has acknowledged @acks times, kills it; the last number it said.
 */
static uint64_t run_and_kill(Fixture *f, uint64_t first, uint64_t acks)
{
    uint64_t acked = 0;
    int fds[2], status;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        child_main(f, first, fds[1]);
    }
    close(fds[1]);
    for (uint64_t i = 0; i < acks; i++) {
        assert_int_equal(read(fds[0], &acked, sizeof acked), sizeof acked);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    /* What it said before it died counts as well. */
    while (read(fds[0], &first, sizeof first) == (ssize_t)sizeof first) {
        acked = first;
    }
    close(fds[0]);
    return acked;
}

/* The numbers are 1, 2, 3, … without a gap, and the record of the last one agrees. */
static int prefix_body(VjTxn *txn, void *opaque)
{
    VjSlice key = vj_slice(NULL, 0), value;
    uint64_t count = 0;
    int rc;

    while ((rc = vj_txn_next(txn, VJ_SPACE_ID_BLOCK, key, &key, &value)) == 0) {
        count++;
        assert_int_equal(vj_be64_get(key.data), count);
        assert_int_equal(vj_be64_get(value.data), count);
        assert_int_equal(value.len, 8 + count % 300);
    }
    if (rc == -ENOENT) {
        rc = vj_txn_get(txn, VJ_SPACE_SYSTEM, text("last"), &value);
    }
    if (rc == -EAGAIN) {
        return rc;
    }
    assert_int_equal(rc, count > 0 ? 0 : -ENOENT);
    if (rc == 0) {
        assert_int_equal(vj_be64_get(value.data), count);
    }
    *(uint64_t *)opaque = count;
    return 0;
}

static uint64_t check_prefix(Fixture *f)
{
    uint64_t count = 0;

    assert_int_equal(vj_meta_view(f->meta, prefix_body, &count), 0);
    return count;
}

static void test_killed(void **state)
{
    Fixture *f = *state;
    uint64_t count = 0;
    VjRng rng;

    print_message("# seed %" G_GUINT64_FORMAT "\n", test_seed());
    vj_rng_init(&rng, test_seed());
    for (int round = 0; round < 10; round++) {
        uint64_t acked;

        close_meta(f);
        acked = run_and_kill(f, count + 1, 1 + vj_rng_below(&rng, 20));
        open_meta(f, false, false);
        count = check_prefix(f);
        assert_true(count >= acked);
    }
}

/* ---- Run ------------------------------------------------------------------------- */

#define T(function)                                                                      \
    {                                                                                    \
#function, function, setup, teardown, NULL                                       \
    }

static const struct CMUnitTest suite[] = {
    T(test_put_get_del),
    T(test_count),
    T(test_del_of_durable),
    T(test_flush_that_nobody_waits_for),
    T(test_spaces_are_apart),
    T(test_abort_leaves_nothing),
    T(test_own_writes),
    T(test_snapshot),
    T(test_view),
    T(test_view_runs_again),
    T(test_view_while_keys_move),
    T(test_view_fails),
    T(test_large_values),
    T(test_longest_key),
    T(test_scan),
    T(test_scan_fails),
    T(test_listing),
    T(test_listing_fails),
    T(test_read_only),
    T(test_missing_engine),
    T(test_model),
    T(test_threads),
    T(test_killed), /* the last: of what a process leaves, where it leaves something */
};

int main(void)
{
    int failed = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(flavours); i++) {
        size_t count =
            G_N_ELEMENTS(suite) - !g_str_has_prefix(flavours[i].driver, "lmdb");
        struct CMUnitTest tests[G_N_ELEMENTS(suite)];

        memcpy(tests, suite, sizeof suite);
        for (size_t t = 0; t < count; t++) {
            tests[t].initial_state = (void *)&flavours[i];
        }
        failed += _cmocka_run_group_tests(flavours[i].name, tests, count, NULL, NULL);
    }
    return failed == 0 ? 0 : 1;
}
