/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What the engine remote, and a session above it, make of each status of a node for each
 * operation, where it belongs and where not.  No answer ends the process: the callers of
 * an engine and of room meta assert what they are given (engine.c, meta.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../lib/key-node.h"
#include "../../lib/test.h"
#include "meta/meta-private.h"
#include "meta/session.h"

#define SPACE VJ_SPACE_DENTRY
#define FIRST_OP VJ_OP_GET_MANY
#define LAST_OP VJ_OP_COUNT

static VjEngine *new_memory(void)
{
    VjMetaPlace place = {.dir_fd = -1, .create = true};
    g_autoptr(VjOpts) opts = vj_opts_new(vj_engine_memory_ops.options);
    VjEngine *e = vj_engine_open(&vj_engine_memory_ops, NULL, &place, opts, NULL);

    assert_non_null(e);
    return e;
}

static VjEngine *open_engine(const char *address, bool create)
{
    g_autofree char *spec = g_strdup_printf("%s:insecure", address);
    g_autoptr(VjOpts) opts = vj_opts_new(vj_engine_remote_ops.options);
    VjMetaPlace place = {.dir_fd = -1, .volume = KEY_NODE_VOLUME, .create = create};
    VjEngine *e;

    assert_true(vj_opts_parse_spec(opts, spec, NULL));
    e = vj_engine_open(&vj_engine_remote_ops, NULL, &place, opts, NULL);
    assert_non_null(e);
    return e;
}

static int setup(void **state)
{
    KeyNode *n = key_node_new(new_memory());
    VjEngine *e = open_engine(n->address, true);

    assert_int_equal(vj_engine_close(e, true), 0);
    *state = n;
    return 0;
}

static int teardown(void **state)
{
    key_node_free(*state);
    return 0;
}

/* ---- the engine -------------------------------------------------------------------- */

static int apply(VjEngine *e, const VjCheck *fence, const VjCheck *check)
{
    VjChange change = {.space = SPACE, .key = {"a", 1}, .value = {"v", 1}};
    VjChanges all = {&change, 1};
    VjItems fresh = {0};
    VjBatch batch = {.next = vj_changes_next,
                     .changes = &all,
                     .count = 1,
                     .fence = fence,
                     .checks = check,
                     .check_count = check != NULL,
                     .number = 1};
    int rc = vj_engine_apply(e, &batch, &fresh, VJ_NO_DEADLINE);

    vj_items_clear(&fresh);
    return rc;
}

static int call_engine(VjEngine *e, uint16_t op, unsigned how)
{
    VjKey key = {SPACE, {"a", 1}};
    VjCheck check = {key, 1};
    VjRange range = {.space = SPACE};
    VjItems items = {0};
    uint64_t count;
    int64_t us;
    bool more;
    int rc = 0;

    switch (op) {
    case VJ_OP_GET_MANY:
        rc = vj_engine_get_many(e, &key, 1, &items, VJ_NO_DEADLINE);
        break;
    case VJ_OP_SCAN:
        rc = vj_engine_scan(e, &range, 10, &items, &more, VJ_NO_DEADLINE);
        break;
    case VJ_OP_APPLY:
        rc = apply(e, (how & 1) != 0 ? &check : NULL, (how & 2) != 0 ? &check : NULL);
        break;
    case VJ_OP_CLOCK:
        us = vj_engine_clock_us(e, VJ_NO_DEADLINE);
        rc = us < 0 ? (int)us : 0;
        break;
    default:
        rc = vj_engine_count(e, SPACE, &count);
        break;
    }
    vj_items_clear(&items);
    return rc;
}

/* An answer that is none of the operation's is an error, and the next call is served. */
static void any_status_at_the_engine(void **state)
{
    KeyNode *n = *state;
    VjEngine *e = open_engine(n->address, false);

    for (uint16_t op = FIRST_OP; op <= LAST_OP; op++) {
        for (uint32_t status = 1; status < VJ_WIRE_STATUS_COUNT; status++) {
            for (unsigned how = 0; how < 4; how++) {
                bool is_again = status == VJ_WIRE_BUSY || status == VJ_WIRE_LEAVING;
                int rc;

                key_node_set_fate(n, op, KEY_NODE_FAIL, 1, vj_wire_errno(status));
                rc = call_engine(e, op, how);
                if (!is_again) {
                    assert_true(rc < 0);
                }
                if (op != VJ_OP_APPLY) {
                    assert_true(rc != -ESTALE && rc != -EAGAIN);
                }
            }
        }
        key_node_set_fate(n, op, KEY_NODE_DO, 0, 0);
        assert_int_equal(call_engine(e, op, 0), 0);
    }
    assert_int_equal(vj_engine_close(e, true), 0);
}

/* ---- a session --------------------------------------------------------------------- */

static VjMeta *open_session(KeyNode *n)
{
    g_autofree char *spec = g_strdup_printf("remote:%s:insecure", n->address);
    VjSessionOpen session = {.name = "answers"};
    VjMetaPlace place = {.dir_fd = -1,
                         .path = "the volume",
                         .volume = KEY_NODE_VOLUME,
                         .session = &session};
    VjMeta *m = NULL;

    (void)!vj_meta_open(spec, &place, &m, NULL);
    return m;
}

static int put_body(VjTxn *txn, void *opaque)
{
    (void)opaque;
    return vj_txn_put(txn, SPACE, vj_slice("k", 1), vj_slice("v", 1));
}

/* A key and a range that nothing has been read of. */
static int read_body(VjTxn *txn, void *opaque)
{
    const char *name = opaque;
    VjScan scan;
    VjSlice value;
    int rc = vj_txn_get(txn, SPACE, vj_slice(name, 2), &value);

    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    vj_scan_begin(&scan, txn, SPACE, vj_slice(name, 1));
    while (vj_scan_next(&scan)) {
    }
    return scan.error;
}

/* What the results are, the callers in meta.c have asserted. */
static void use(VjMeta *m)
{
    static unsigned uses;
    char name[2] = {(char)('A' + uses % 26), (char)('a' + uses / 26 % 26)};
    uint64_t count;

    uses++;
    (void)!vj_meta_view(m, read_body, name);
    (void)!vj_meta_run(m, VJ_RUN_DEFAULT, put_body, NULL);
    (void)!vj_meta_flush(m);
    (void)!vj_meta_count(m, SPACE, &count);
}

static void any_status_in_a_session(void **state)
{
    KeyNode *n = *state;
    VjMeta *m;

    for (uint16_t op = FIRST_OP; op <= LAST_OP; op++) {
        for (uint32_t status = 1; status < VJ_WIRE_STATUS_COUNT; status++) {
            m = open_session(n);
            assert_non_null(m);
            key_node_set_fate(n, op, KEY_NODE_FAIL, 1 + status % 3,
                              vj_wire_errno(status));
            use(m);
            (void)!vj_meta_close(m);
            key_node_set_fate(n, op, KEY_NODE_FAIL, 1, vj_wire_errno(status));
            m = open_session(n); /* which may fail */
            key_node_set_fate(n, op, KEY_NODE_DO, 0, 0);
            if (m != NULL) {
                (void)!vj_meta_close(m);
            }
            /* One that could not leave in order is there until its lease ends. */
            vj_memory_clock_advance_for_test(n->engine, VJ_LEASE_DEFAULT_US + 1);
        }
    }
    for (uint16_t op = FIRST_OP; op <= LAST_OP; op++) {
        assert_true(key_node_requests(n, op) >= VJ_WIRE_STATUS_COUNT);
    }
    m = open_session(n);
    assert_non_null(m);
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, put_body, NULL), 0);
    assert_int_equal(vj_meta_flush(m), 0);
    assert_int_equal(vj_meta_close(m), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_status_at_the_engine, setup, teardown),
        cmocka_unit_test_setup_teardown(any_status_in_a_session, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
