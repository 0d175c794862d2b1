/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-send.c - commits that reach the node's memory before they are durable
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../lib/key-node.h"
#include "../../lib/test.h"
#include "meta/meta-private.h"
#include "meta/session-private.h"

#define SPACE VJ_SPACE_DENTRY

typedef struct Fixture {
    KeyNode *node;
    VjMeta *meta;
} Fixture;

static VjEngine *new_memory(void)
{
    VjMetaPlace place = {.dir_fd = -1, .create = true};
    g_autoptr(VjOpts) opts = vj_opts_new(vj_engine_memory_ops.options);

    return vj_engine_open(&vj_engine_memory_ops, NULL, &place, opts, NULL);
}

static VjMeta *open_session(const KeyNode *n, const char *name, bool create)
{
    g_autofree char *spec = key_node_spec(n, ",commit=3600");
    VjSessionOpen session = {.name = name};
    VjMetaPlace place = {.dir_fd = -1,
                         .path = "the volume",
                         .volume = KEY_NODE_VOLUME,
                         .create = create,
                         .session = &session};
    GError *error = NULL;
    VjMeta *m = NULL;

    if (!vj_meta_open(spec, &place, &m, &error)) {
        fail_msg("open: %s", error->message);
    }
    return m;
}

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);

    f->node = key_node_new(new_memory());
    f->meta = open_session(f->node, "one", true);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;

    if (f->meta != NULL) {
        assert_int_equal(vj_meta_close(f->meta), 0);
    }
    key_node_free(f->node);
    g_free(f);
    return 0;
}

typedef struct Number {
    uint64_t key, value; /* 0: it is deleted, or not there */
} Number;

static int set_body(VjTxn *txn, void *opaque)
{
    const Number *n = opaque;
    uint8_t key[8], value[8];

    vj_be64_set(key, n->key);
    vj_be64_set(value, n->value);
    return n->value == 0 ? vj_txn_del(txn, SPACE, vj_slice(key, 8))
                         : vj_txn_put(txn, SPACE, vj_slice(key, 8), vj_slice(value, 8));
}

static int get_body(VjTxn *txn, void *opaque)
{
    Number *n = opaque;
    uint8_t key[8];
    VjSlice value;
    int rc;

    vj_be64_set(key, n->key);
    rc = vj_txn_get(txn, SPACE, vj_slice(key, 8), &value);
    n->value = rc == 0 ? vj_be64_get(value.data) : 0;
    return rc == -ENOENT ? 0 : rc;
}

static void set(VjMeta *m, uint64_t key, uint64_t value)
{
    Number n = {key, value};

    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, set_body, &n), 0);
}

static uint64_t get(VjMeta *m, uint64_t key)
{
    Number n = {key, 0};

    assert_int_equal(vj_meta_view(m, get_body, &n), 0);
    return n.value;
}

/* What the node has, whatever the session knows. */
static uint64_t at_node(const Fixture *f, uint64_t key)
{
    uint8_t bytes[8];
    VjKey wanted = {SPACE, vj_slice(bytes, 8)};
    VjItems items = {0};
    uint64_t value;

    vj_be64_set(bytes, key);
    assert_int_equal(
        vj_engine_get_many(f->node->engine, &wanted, 1, &items, VJ_NO_DEADLINE), 0);
    value = items.at[0].version != 0 ? vj_be64_get(items.at[0].value.data) : 0;
    vj_items_clear(&items);
    return value;
}

/* The node begins anew, and what was received alone is gone. */
static void lose_received(Fixture *f, uint64_t first, uint64_t last)
{
    key_node_stop(f->node);
    for (uint64_t i = first; i <= last; i++) {
        uint8_t bytes[8];
        VjChange change = {
            .space = SPACE, .is_delete = true, .key = vj_slice(bytes, sizeof bytes)};
        VjChanges all = {&change, 1};
        VjBatch batch = {.next = vj_changes_next, .changes = &all, .count = 1};

        vj_be64_set(bytes, i);
        assert_int_equal(vj_engine_apply(f->node->engine, &batch, NULL, VJ_NO_DEADLINE),
                         0);
    }
    f->node->last_number = 0;
    key_node_start(f->node);
}

static uint64_t applies(const Fixture *f)
{
    return key_node_requests(f->node, VJ_OP_APPLY);
}

/* ---- Tests ----------------------------------------------------------------------- */

/* One request each, and only of what changed since. */
static void what_is_sent(void **state)
{
    Fixture *f = *state;
    uint64_t before = applies(f);

    for (uint64_t i = 1; i <= 100; i++) {
        set(f->meta, i, i);
    }
    assert_int_equal(applies(f), before);
    assert_int_equal(vj_meta_send(f->meta), 0);
    assert_int_equal(applies(f), before + 1);
    assert_int_equal(f->node->received, 1);
    assert_int_equal(f->node->last_changes, 100);
    assert_int_equal(at_node(f, 77), 77);
    assert_int_equal(vj_meta_send(f->meta), 0); /* nothing is new */
    assert_int_equal(applies(f), before + 1);

    set(f->meta, 5, 500);
    set(f->meta, 200, 200);
    set(f->meta, 7, 0);
    set(f->meta, 5, 501);
    assert_int_equal(vj_meta_send(f->meta), 0);
    assert_int_equal(applies(f), before + 2);
    assert_int_equal(f->node->received, 2);
    assert_int_equal(f->node->last_changes, 3);
    assert_int_equal(at_node(f, 5), 501);
    assert_int_equal(at_node(f, 7), 0);
    assert_int_equal(get(f->meta, 7), 0);

    /* All of it comes again to become durable; then there is nothing to send. */
    assert_int_equal(vj_meta_flush(f->meta), 0);
    assert_int_equal(applies(f), before + 3);
    assert_int_equal(f->node->received, 2);
    assert_int_equal(f->node->last_changes, 101);
    assert_int_equal(vj_meta_send(f->meta), 0);
    assert_int_equal(applies(f), before + 3);
    set(f->meta, 300, 300);
    assert_int_equal(vj_meta_send(f->meta), 0);
    assert_int_equal(f->node->last_changes, 1);
    assert_int_equal(f->node->refused_late, 0);
}

/* What another session finds when the process of this one has died. */
static void after_the_death_of_the_sender(void **state)
{
    Fixture *f = *state;
    VjMeta *two;

    set(f->meta, 1, 1);
    assert_int_equal(vj_meta_send(f->meta), 0);
    set(f->meta, 2, 2); /* not sent */
    vj_memory_clock_advance_for_test(f->node->engine, VJ_LEASE_DEFAULT_US + 1);
    two = open_session(f->node, "two", false);
    assert_int_equal(get(two, 1), 1);
    assert_int_equal(get(two, 2), 0);
    assert_int_equal(vj_meta_send(f->meta), -ESTALE);
    assert_int_equal(vj_meta_close(f->meta), -ESTALE);
    f->meta = two;
}

/* A node that has lost what it received gets all that is not durable. */
static void nodes_that_begin_anew(void **state)
{
    Fixture *f = *state;

    set(f->meta, 1, 1);
    assert_int_equal(vj_meta_flush(f->meta), 0);
    for (uint64_t i = 2; i <= 10; i++) {
        set(f->meta, i, i);
        assert_int_equal(vj_meta_send(f->meta), 0);
    }
    lose_received(f, 2, 10);
    assert_int_equal(at_node(f, 5), 0);
    set(f->meta, 11, 11);
    assert_int_equal(vj_meta_send(f->meta), 0);
    for (uint64_t i = 1; i <= 11; i++) {
        assert_int_equal(at_node(f, i), i);
    }
    assert_int_equal(f->node->last_changes, 10);

    /* The same before a flush, which has it all anyway. */
    lose_received(f, 2, 11);
    assert_int_equal(vj_meta_flush(f->meta), 0);
    for (uint64_t i = 1; i <= 11; i++) {
        assert_int_equal(at_node(f, i), i);
    }
}

/* The caller gets the error; what follows has all of it. */
static void failures(void **state)
{
    Fixture *f = *state;

    set(f->meta, 1, 1);
    assert_int_equal(vj_meta_send(f->meta), 0);
    set(f->meta, 2, 2);
    key_node_set_fate(f->node, VJ_OP_APPLY, KEY_NODE_FAIL, 1, -EIO);
    assert_int_equal(vj_meta_send(f->meta), -EIO);
    assert_int_equal(at_node(f, 2), 0);
    assert_int_equal(get(f->meta, 2), 2);
    set(f->meta, 3, 3);
    assert_int_equal(vj_meta_send(f->meta), 0);
    assert_int_equal(f->node->last_changes, 3);
    assert_int_equal(at_node(f, 2), 2);
    assert_int_equal(at_node(f, 3), 3);

    key_node_set_fate(f->node, VJ_OP_APPLY, KEY_NODE_FAIL, 1, -ENOSPC);
    set(f->meta, 4, 4);
    assert_int_equal(vj_meta_send(f->meta), -ENOSPC);
    assert_int_equal(vj_meta_send(f->meta), 0);
    assert_int_equal(at_node(f, 4), 4);
    assert_int_equal(vj_meta_flush(f->meta), 0);
}

/* A move that fails is the error of those that wait for it, and goes before what is sent
 * later. */
static void behind_a_failed_move(void **state)
{
    Fixture *f = *state;

    vj_session_retry_when_asked_for_test(f->meta);
    set(f->meta, 1, 1);
    key_node_set_fate(f->node, VJ_OP_APPLY, KEY_NODE_FAIL, 2, -EIO);
    assert_int_equal(vj_meta_flush(f->meta), -EIO);
    set(f->meta, 2, 2);
    assert_int_equal(vj_meta_send(f->meta), -EIO);
    assert_int_equal(vj_meta_send(f->meta), 0);
    assert_int_equal(at_node(f, 1), 1);
    assert_int_equal(at_node(f, 2), 2);
    assert_int_equal(f->node->refused_late, 0);
}

enum { CALLERS = 8 };

typedef struct Caller {
    VjMeta *meta;
    uint64_t key;
    int rc;
} Caller;

static gpointer caller_main(gpointer opaque)
{
    Caller *c = opaque;

    c->rc = vj_meta_send(c->meta);
    return NULL;
}

/* Those that come while one is under way share the next. */
static void callers_share_requests(void **state)
{
    Fixture *f = *state;
    GThread *first, *threads[CALLERS];
    Caller callers[CALLERS], one = {.meta = f->meta, .rc = 1};
    uint64_t before = applies(f);

    set(f->meta, 1000, 1);
    key_node_set_fate(f->node, VJ_OP_APPLY, KEY_NODE_HOLD, 1, 0);
    first = g_thread_new("first", caller_main, &one);
    key_node_wait_for_held(f->node, 1);
    for (unsigned i = 0; i < CALLERS; i++) {
        set(f->meta, i + 1, i + 1);
    }
    for (unsigned i = 0; i < CALLERS; i++) {
        callers[i] = (Caller){.meta = f->meta, .rc = 1};
        threads[i] = g_thread_new("caller", caller_main, &callers[i]);
    }
    key_node_let_go(f->node);
    g_thread_join(first);
    assert_int_equal(one.rc, 0);
    for (unsigned i = 0; i < CALLERS; i++) {
        g_thread_join(threads[i]);
        assert_int_equal(callers[i].rc, 0);
        assert_int_equal(at_node(f, i + 1), i + 1);
    }
    assert_int_equal(applies(f), before + 2);
}

static int set_both_body(VjTxn *txn, void *opaque)
{
    int rc = 0;

    (void)opaque;
    for (uint64_t key = 1; rc == 0 && key <= 2; key++) {
        rc = set_body(txn, &(Number){key, 5});
    }
    return rc;
}

static gpointer set_both_main(gpointer opaque)
{
    VjMeta *m = opaque;
    int rc = vj_meta_run(m, VJ_RUN_DEFAULT, set_both_body, NULL);

    return GINT_TO_POINTER(rc < 0 ? rc : vj_meta_send(m));
}

typedef struct Both {
    VjMeta *meta;
    unsigned runs;
    Number pair[2];
} Both;

/* Between its two reads another thread changes both values and sends them. */
static int read_both_body(VjTxn *txn, void *opaque)
{
    Both *b = opaque;
    int rc = get_body(txn, &b->pair[0]);

    if (rc == 0 && b->runs++ == 0) {
        GThread *thread = g_thread_new("both", set_both_main, b->meta);

        assert_int_equal(GPOINTER_TO_INT(g_thread_join(thread)), 0);
    }
    return rc < 0 ? rc : get_body(txn, &b->pair[1]);
}

/* A reader that finds at the node what was committed after it began begins anew. */
static void readers_see_one_state(void **state)
{
    Fixture *f = *state;
    Both b = {.meta = f->meta, .pair = {{1, 0}, {2, 0}}};

    assert_int_equal(vj_meta_view(f->meta, read_both_body, &b), 0);
    assert_int_equal(b.runs, 2);
    assert_int_equal(b.pair[0].value, 5);
    assert_int_equal(b.pair[1].value, 5);
    assert_int_equal(at_node(f, 2), 5);
}

/* An engine in this process: nothing to do, and nothing is durable by it. */
static void engines_that_do_not_receive(void **state)
{
    VjMetaPlace place = {.dir_fd = -1, .path = "the volume", .create = true};
    VjMeta *m;

    (void)state;
    assert_true(vj_meta_open("memory:commit=3600", &place, &m, NULL));
    set(m, 1, 1);
    assert_int_equal(vj_meta_send(m), 0);
    assert_int_equal(vj_session_sends_for_test(m), 0);
    assert_int_equal(vj_session_moves_for_test(m), 0);
    assert_int_equal(vj_meta_close(m), 0);
}

#define T(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_is_sent),          T(after_the_death_of_the_sender),
        T(nodes_that_begin_anew), T(failures),
        T(behind_a_failed_move),  T(callers_share_requests),
        T(readers_see_one_state), cmocka_unit_test(engines_that_do_not_receive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
