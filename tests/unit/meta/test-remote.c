/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-remote.c - the engine remote: opening, nodes that go and come, and answers that
 * are none
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../lib/cut-proxy.h"
#include "../../lib/key-node.h"
#include "../../lib/test.h"
#include "meta/leased-private.h"
#include "meta/meta-private.h"
#include "meta/shared-private.h"

#define SPACE VJ_SPACE_DENTRY
#define OTHER_VOLUME "ffffffff-4455-6677-8899-aabbccddeeff"

/* ---- Fixture --------------------------------------------------------------------- */

static VjEngine *new_memory(void)
{
    VjMetaPlace place = {.dir_fd = -1, .create = true};
    g_autoptr(VjOpts) opts = vj_opts_new(vj_engine_memory_ops.options);
    VjEngine *e = vj_engine_open(&vj_engine_memory_ops, NULL, &place, opts, NULL);

    assert_non_null(e);
    return e;
}

/* @spec: as of the engine, behind "remote:". */
static VjEngine *try_engine(const char *spec, const VjMetaPlace *place, GError **error)
{
    g_autoptr(VjOpts) opts = vj_opts_new(vj_engine_remote_ops.options);

    assert_true(vj_opts_parse_spec(opts, spec, NULL));
    return vj_engine_open(&vj_engine_remote_ops, NULL, place, opts, error);
}

static VjEngine *open_at(const char *address, bool create)
{
    g_autofree char *spec = g_strdup_printf("%s:insecure", address);
    VjMetaPlace place = {.dir_fd = -1, .volume = KEY_NODE_VOLUME, .create = create};
    GError *error = NULL;
    VjEngine *e = try_engine(spec, &place, &error);

    if (e == NULL) {
        fail_msg("open: %s", error->message);
    }
    return e;
}

typedef struct Fixture {
    KeyNode *node;
    VjEngine *engine;
} Fixture;

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);

    f->node = key_node_new(new_memory());
    f->engine = open_at(f->node->address, true);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;

    assert_int_equal(vj_engine_close(f->engine, true), 0);
    key_node_free(f->node);
    g_free(f);
    return 0;
}

static VjSlice text(const char *s)
{
    return vj_slice(s, strlen(s));
}

static VjKey key_of(const char *key)
{
    return (VjKey){SPACE, text(key)};
}

static int put_under(VjEngine *e, const char *key, const char *value,
                     const VjCheck *fence, const VjCheck *check, VjItems *fresh,
                     int64_t deadline_us)
{
    VjChange change = {.space = SPACE, .key = text(key), .value = text(value)};
    VjChanges all = {&change, 1};
    VjBatch batch = {.next = vj_changes_next,
                     .changes = &all,
                     .count = 1,
                     .fence = fence,
                     .checks = check,
                     .check_count = check != NULL,
                     .number = 1};

    return vj_engine_apply(e, &batch, fresh, deadline_us);
}

static int put(VjEngine *e, const char *key, const char *value)
{
    return put_under(e, key, value, NULL, NULL, NULL, VJ_NO_DEADLINE);
}

static int get(VjEngine *e, const char *key, char **value)
{
    VjKey wanted = key_of(key);
    VjItems items = {0};
    int rc = vj_engine_get_many(e, &wanted, 1, &items, VJ_NO_DEADLINE);

    *value = rc == 0 && items.at[0].version != 0
                 ? g_strndup(items.at[0].value.data, items.at[0].value.len)
                 : NULL;
    vj_items_clear(&items);
    return rc;
}

static void assert_has(VjEngine *e, const char *key, const char *value)
{
    g_autofree char *got = NULL;

    assert_int_equal(get(e, key, &got), 0);
    assert_non_null(got);
    assert_string_equal(got, value);
}

/* ---- Opening --------------------------------------------------------------------- */

static void specs(void **state)
{
    static const struct {
        const char *spec, *why;
    } bad[] = {
        {"remote", "no node"},
        {"remote:insecure", "no node"},
        {"remote:host", "one of key"},
        {"remote:host:insecure,key=k", "one of key"},
        {"remote:host:cert=c", "belong together"},
        {"remote:host:cert=c,certkey=k,ca=a,key=k", "one of key"},
        {"remote:host:insecure,volume=..", "no name of a volume"},
        {"remote:host:insecure,volume=a/b", "no name of a volume"},
        {"remote:host:insecure,timeout=0", "timeout"},
        {"remote:host:70000:insecure", "70000"},
        {"remote:host:insecure,nonsense=1", "nonsense"},
    };
    static const char *const good[] = {
        "remote:host:insecure",
        "remote:host:7:key=k,volume=v,identity=i,timeout=1",
        "remote:[::1]:7843:cert=c,certkey=k,ca=a,overlay=1M,commit=5",
        "remote:unix:/a/b:insecure",
        "remote:node=host,insecure",
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;

        if (vj_meta_spec_check(bad[i].spec, &error)) {
            fail_msg("%s is taken", bad[i].spec);
        }
        if (strstr(error->message, bad[i].why) == NULL) {
            fail_msg("%s: %s", bad[i].spec, error->message);
        }
    }
    for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
        assert_true(vj_meta_spec_check(good[i], NULL));
    }
    assert_int_equal(vj_meta_needs("remote:host:insecure"), VJ_NEEDS_TCP);
    assert_int_equal(vj_meta_needs("remote:unix:/a:insecure"), VJ_NEEDS_UNIX);
    assert_int_equal(vj_meta_needs("remote"), 0);
}

static void refused(const char *spec, const VjMetaPlace *place, int code, const char *why)
{
    g_autoptr(GError) error = NULL;
    VjEngine *e = try_engine(spec, place, &error);

    assert_null(e);
    if (error->code != code || strstr(error->message, why) == NULL) {
        fail_msg("%s: %d, %s", spec, error->code, error->message);
    }
}

static void who_is_let_in(void **state)
{
    Fixture *f = *state;
    KeyNode *n = f->node;
    g_autofree char *spec = g_strdup_printf("%s:insecure,timeout=1", n->address);
    g_autofree char *relative = g_strdup_printf("%s:key=file", n->address);
    VjMetaPlace place = {.dir_fd = -1, .volume = OTHER_VOLUME};

    refused(spec, &place, ENXIO, "another file system: the test says so");
    place.create = true;
    refused(spec, &place, EEXIST, "is another file system");
    place.create = false;
    place.volume = KEY_NODE_VOLUME;
    refused(relative, &place, EINVAL, "begins with /");
    n->hello_rc = -EACCES;
    refused(spec, &place, EACCES, "is not for this client");
    n->hello_rc = -EOPNOTSUPP;
    refused(spec, &place, EOPNOTSUPP, "keeps no metadata");
    n->hello_rc = -EIO;
    refused(spec, &place, EIO, "the test says so");
    n->hello_rc = -EBUSY; /* perhaps later */
    refused(spec, &place, ETIMEDOUT, "no answer within 1 s");
    n->hello_rc = 0;
    n->has_uuid = false;
    refused(spec, &place, ENOENT, "has no file system");
    n->has_uuid = true;
    place.volume = NULL;
    refused(spec, &place, EINVAL, "which volume");
    place.volume = "no uuid";
    refused(spec, &place, EINVAL, "which volume");
}

/* What is shown to people in one line has no more than that, nor signs that are none. */
static void the_name_of_a_client(void **state)
{
    static const struct {
        const char *name, *shown;
    } names[] = {
        {"mount /mnt", "mount /mnt"},
        {"two\nlines", "two"},
        {"0123456789012345678901234567890123456789012345678901234567890123456789",
         "012345678901234567890123456789012345678901234567890123456789012"},
        {"01234567890123456789012345678901234567890123456789012345678901\xc3\xa9",
         "01234567890123456789012345678901234567890123456789012345678901"},
    };
    Fixture *f = *state;
    g_autofree char *spec = g_strdup_printf("%s:insecure", f->node->address);

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        VjSessionOpen session = {.name = names[i].name};
        VjMetaPlace place = {
            .dir_fd = -1, .volume = KEY_NODE_VOLUME, .session = &session};
        VjEngine *e = try_engine(spec, &place, NULL);

        assert_non_null(e);
        assert_string_equal(f->node->name, names[i].shown);
        assert_int_equal(vj_engine_close(e, true), 0);
    }
}

/* ---- Answers in parts ------------------------------------------------------------ */

static void long_answers(void **state)
{
    Fixture *f = *state;
    VjKey keys[40];
    char names[40][8];
    VjItems items = {0};
    VjRange range = {.space = SPACE};
    VjCheck wrong[40];
    VjItems fresh = {0};
    VjChange change = {.space = SPACE, .key = text("a"), .value = text("new")};
    VjChanges all = {&change, 1};
    VjBatch batch = {.next = vj_changes_next,
                     .changes = &all,
                     .count = 1,
                     .checks = wrong,
                     .check_count = 40};
    bool more;

    for (unsigned i = 0; i < 40; i++) {
        g_snprintf(names[i], sizeof names[i], "key %02u", i);
        keys[i] = key_of(names[i]);
        wrong[i] = (VjCheck){keys[i], 77};
        assert_int_equal(put(f->engine, names[i], i % 3 == 0 ? "" : names[i]), 0);
    }
    f->node->items_bytes_max = 100;
    assert_int_equal(vj_engine_get_many(f->engine, keys, 40, &items, VJ_NO_DEADLINE), 0);
    assert_in_range(key_node_requests(f->node, VJ_OP_GET_MANY), 9, 40);
    assert_int_equal(items.count, 40);
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(vj_slice_compare(items.at[i].key, text(names[i])), 0);
        assert_int_equal(items.at[i].value.len, i % 3 == 0 ? 0 : 6);
    }
    vj_items_clear(&items);
    assert_int_equal(vj_engine_scan(f->engine, &range, 40, &items, &more, VJ_NO_DEADLINE),
                     0);
    assert_in_range(items.count, 1, 39);
    assert_true(more);
    vj_items_clear(&items);
    assert_int_equal(vj_engine_apply(f->engine, &batch, &fresh, VJ_NO_DEADLINE), -EAGAIN);
    assert_int_equal(fresh.count, 40);
    assert_int_equal(vj_slice_compare(fresh.at[38].value, text("key 38")), 0);
    vj_items_clear(&fresh);
}

/* As many as no request may have. */
static void many_keys(void **state)
{
    Fixture *f = *state;
    size_t count = 2 * VJ_WIRE_KEYS_MAX + 1;
    g_autofree VjKey *keys = g_new(VjKey, count);
    g_autofree uint8_t *bytes = g_new(uint8_t, 8 * count);
    VjItems items = {0};

    assert_int_equal(put(f->engine, "a", "1"), 0);
    for (size_t i = 0; i < count; i++) {
        vj_be64_set(bytes + 8 * i, i);
        keys[i] = (VjKey){SPACE, vj_slice(bytes + 8 * i, 8)};
    }
    keys[count - 1] = key_of("a");
    assert_int_equal(vj_engine_get_many(f->engine, keys, count, &items, VJ_NO_DEADLINE),
                     0);
    assert_int_equal(key_node_requests(f->node, VJ_OP_GET_MANY), 3);
    assert_int_equal(items.at[0].version, 0);
    assert_int_not_equal(items.at[count - 1].version, 0);
    vj_items_clear(&items);
}

typedef struct Getter {
    VjEngine *engine;
    char *values[2];
    int rc;
} Getter;

static gpointer get_two_main(gpointer opaque)
{
    Getter *g = opaque;
    VjKey keys[] = {key_of("a"), key_of("b")};
    VjItems items = {0};

    g->rc = vj_engine_get_many(g->engine, keys, 2, &items, VJ_NO_DEADLINE);
    for (unsigned i = 0; g->rc == 0 && i < 2; i++) {
        g->values[i] = g_strndup(items.at[i].value.data, items.at[i].value.len);
    }
    vj_items_clear(&items);
    return NULL;
}

/* What is read in two requests is of one state all the same. */
static void an_apply_between_two_answers(void **state)
{
    Fixture *f = *state;
    VjChange changes[] = {{.space = SPACE, .key = text("a"), .value = text("new")},
                          {.space = SPACE, .key = text("b"), .value = text("new")}};
    VjChanges all = {changes, 2};
    VjBatch batch = {.next = vj_changes_next, .changes = &all, .count = 2, .number = 2};
    Getter g = {.engine = f->engine};
    GThread *thread;

    assert_int_equal(put(f->engine, "a", "old"), 0);
    assert_int_equal(put(f->engine, "b", "old"), 0);
    f->node->items_bytes_max = 1;
    /* The second request of the reader is held back. */
    key_node_set_fate(f->node, VJ_OP_GET_MANY, KEY_NODE_HOLD, UINT_MAX, 0);
    thread = g_thread_new("get", get_two_main, &g);
    key_node_wait_for_held(f->node, 1);
    key_node_let_one_go(f->node);
    key_node_wait_for_held(f->node, 1);
    assert_int_equal(vj_engine_apply(f->engine, &batch, NULL, VJ_NO_DEADLINE), 0);
    key_node_set_fate(f->node, VJ_OP_GET_MANY, KEY_NODE_DO, 0, 0);
    key_node_let_go(f->node);
    g_thread_join(thread);
    assert_int_equal(g.rc, 0);
    assert_string_equal(g.values[0], g.values[1]);
    assert_string_equal(g.values[0], "new");
    g_free(g.values[0]);
    g_free(g.values[1]);
}

/* ---- What the node says ---------------------------------------------------------- */

typedef enum Op { GET_MANY, SCAN, APPLY, CLOCK, COUNT, OPS } Op;

static const uint16_t wire_ops[OPS] = {
    [GET_MANY] = VJ_OP_GET_MANY, [SCAN] = VJ_OP_SCAN,   [APPLY] = VJ_OP_APPLY,
    [CLOCK] = VJ_OP_CLOCK,       [COUNT] = VJ_OP_COUNT,
};

static int call(VjEngine *e, Op op, int64_t deadline_us)
{
    VjKey key = key_of("a");
    VjRange range = {.space = SPACE, .from = text("A"), .to = text("c")};
    VjCheck check = {key, 1};
    VjItems items = {0};
    uint64_t count;
    int64_t us;
    bool more;
    int rc = 0;

    switch (op) {
    case GET_MANY:
        rc = vj_engine_get_many(e, &key, 1, &items, deadline_us);
        break;
    case SCAN:
        rc = vj_engine_scan(e, &range, 10, &items, &more, deadline_us);
        break;
    case APPLY: /* of this version, or another: it is done, or there is a fresh one */
        rc = put_under(e, "a", "1", NULL, &check, &items, deadline_us);
        break;
    case CLOCK:
        us = vj_engine_clock_us(e, deadline_us);
        rc = us < 0 ? (int)us : 0;
        break;
    case COUNT:
        rc = vj_engine_count(e, SPACE, &count);
        break;
    case OPS:
        g_assert_not_reached();
    }
    vj_items_clear(&items);
    return rc;
}

static void errors(void **state)
{
    static const struct {
        int said;
        int of_read, of_apply;
    } errors_of[] = {
        {-EIO, -EIO, -EIO},          {-EBADMSG, -EBADMSG, -EBADMSG},
        {-ENOMEM, -ENOMEM, -ENOMEM}, {-ETIMEDOUT, -ETIMEDOUT, -ETIMEDOUT},
        {-ENOSPC, -ENOSPC, -ENOSPC}, {-EROFS, -EROFS, -EROFS},
        {-EPROTO, -EPROTO, -EPROTO}, {-ENOENT, -EPROTO, -EPROTO},
        {-EAGAIN, -EPROTO, -EPROTO}, /* without items */
        {-ESTALE, -EPROTO, -EPROTO}, /* without a fence */
        {-EACCES, -EIO, -EIO},       {-EFBIG, -EIO, -EIO},
        {-EOPNOTSUPP, -EIO, -EIO},   {-ENXIO, -EIO, -EIO},
    };
    Fixture *f = *state;

    for (size_t i = 0; i < G_N_ELEMENTS(errors_of); i++) {
        for (Op op = 0; op < OPS; op++) {
            key_node_set_fate(f->node, wire_ops[op], KEY_NODE_FAIL, 1, errors_of[i].said);
            assert_int_equal(call(f->engine, op, VJ_NO_DEADLINE),
                             op == APPLY ? errors_of[i].of_apply : errors_of[i].of_read);
        }
    }
    key_node_set_fate(f->node, VJ_OP_APPLY, KEY_NODE_DO, 0, 0);
    assert_int_equal(put(f->engine, "a", "1"), 0);
}

/* Busy, or about to go down: it is asked again. */
static void busy_nodes(void **state)
{
    Fixture *f = *state;

    for (Op op = 0; op < OPS; op++) {
        uint64_t before = key_node_requests(f->node, wire_ops[op]);

        key_node_set_fate(f->node, wire_ops[op], KEY_NODE_FAIL, 2, -EBUSY);
        assert_int_equal(call(f->engine, op, VJ_NO_DEADLINE), op == APPLY ? -EAGAIN : 0);
        assert_int_equal(key_node_requests(f->node, wire_ops[op]) - before, 3);
    }
    /* Not beyond its time. */
    key_node_set_fate(f->node, VJ_OP_CLOCK, KEY_NODE_FAIL, UINT_MAX, -ESHUTDOWN);
    assert_int_equal(call(f->engine, CLOCK, vj_clock_mono_us() + 1000), -ETIMEDOUT);
}

/* ---- Garbage --------------------------------------------------------------------- */

typedef struct Reply {
    Op op;
    bool more;
    uint32_t count;
    VjWireItem items[3];
    uint32_t cut;  /* bytes that are missing */
    bool too_many; /* bytes */
    int rc;
} Reply;

static void set_reply(KeyNode *n, const Reply *r)
{
    VjWireItemsReply head = {.more = r->more, .count = r->count};

    g_byte_array_set_size(n->garbage_message, 0);
    g_byte_array_set_size(n->garbage_bulk, 0);
    vj_wire_items_reply_encode(n->garbage_message, &head);
    for (size_t i = 0; i < G_N_ELEMENTS(r->items) && r->items[i].key.key.len > 0; i++) {
        vj_wire_item_encode(n->garbage_bulk, &r->items[i]);
    }
    g_byte_array_set_size(n->garbage_bulk, n->garbage_bulk->len - r->cut);
    if (r->too_many) {
        g_byte_array_append(n->garbage_bulk, (const guint8 *)"x", 1);
    }
}

#define NO_ITEM                                                                          \
    {                                                                                    \
        {0, {NULL, 0}}, 0,                                                               \
        {                                                                                \
            NULL, 0                                                                      \
        }                                                                                \
    }
#define ITEM(space, key, version, value)                                                 \
    {                                                                                    \
        {(space), {(key), sizeof(key) - 1}}, (version),                                  \
        {                                                                                \
            (value), sizeof(value) - 1                                                   \
        }                                                                                \
    }

static void answers_that_are_none(void **state)
{
    static const Reply replies[] = {
        {GET_MANY, false, 0, {NO_ITEM}, 0, false, 0},
        {GET_MANY, true, 0, {NO_ITEM}, 0, false, 0},
        {GET_MANY, false, 1, {NO_ITEM}, 0, false, 0},
        {GET_MANY, false, 1, {ITEM(SPACE, "b", 1, "v")}, 0, false, 0},
        {GET_MANY, false, 1, {ITEM(SPACE + 1, "a", 1, "v")}, 0, false, 0},
        {GET_MANY, false, 1, {ITEM(SPACE, "a", 1, "v")}, 1, false, 0},
        {GET_MANY, false, 1, {ITEM(SPACE, "a", 1, "v")}, 0, true, 0},
        {GET_MANY, true, 1, {ITEM(SPACE, "a", 1, "v")}, 0, false, 0},
        {GET_MANY, false, 1, {ITEM(SPACE, "a", 0, "v")}, 0, false, 0},
        {GET_MANY,
         false,
         2,
         {ITEM(SPACE, "a", 1, "v"), ITEM(SPACE, "a", 1, "v")},
         0,
         false,
         0},
        {GET_MANY,
         false,
         1,
         {ITEM(SPACE, "a", 1, "v"), ITEM(SPACE, "a", 1, "v")},
         0,
         false,
         0},
        {SCAN, true, 0, {NO_ITEM}, 0, false, 0},
        {SCAN, false, 1, {ITEM(SPACE, "a", 0, "")}, 0, false, 0},
        {SCAN, false, 1, {ITEM(SPACE + 1, "a", 1, "")}, 0, false, 0},
        {SCAN, false, 1, {ITEM(SPACE, "A", 1, "v")}, 0, false, 0},
        {SCAN, false, 1, {ITEM(SPACE, "c", 1, "v")}, 0, false, 0},
        {SCAN,
         false,
         2,
         {ITEM(SPACE, "b", 1, "v"), ITEM(SPACE, "a", 1, "v")},
         0,
         false,
         0},
        {SCAN,
         false,
         2,
         {ITEM(SPACE, "b", 1, "v"), ITEM(SPACE, "b", 1, "v")},
         0,
         false,
         0},
        {SCAN, false, 11, {ITEM(SPACE, "b", 1, "v")}, 0, false, 0},
        {APPLY, false, 0, {NO_ITEM}, 0, false, -EAGAIN},
        {APPLY, false, 1, {ITEM(SPACE, "b", 1, "v")}, 0, false, -EAGAIN},
        {APPLY, false, 1, {ITEM(SPACE, "a", 1, "v")}, 2, false, -EAGAIN},
        {APPLY, false, 1, {ITEM(SPACE, "a", 1, "v")}, 0, false, 0},
        {CLOCK, false, 0, {NO_ITEM}, 0, false, 0},
        {COUNT, false, 0, {NO_ITEM}, 0, false, 0},
    };
    Fixture *f = *state;

    assert_int_equal(put(f->engine, "a", "v"), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(replies); i++) {
        int rc;

        set_reply(f->node, &replies[i]);
        key_node_set_fate(f->node, wire_ops[replies[i].op], KEY_NODE_GARBAGE, 1,
                          replies[i].rc);
        rc = call(f->engine, replies[i].op, VJ_NO_DEADLINE);
        if (rc != -EPROTO) {
            fail_msg("reply %zu: %d", i, rc);
        }
    }
    key_node_set_fate(f->node, VJ_OP_APPLY, KEY_NODE_DO, 0, 0);
    assert_has(f->engine, "a", "v");
}

/* Good answers with some bytes changed: whatever comes of it, it is an answer or an
 * error, and the engine goes on. */
static void any_bytes(void **state)
{
    Fixture *f = *state;
    Reply good = {SCAN, true,  2, {ITEM(SPACE, "a", 1, "v"), ITEM(SPACE, "b", 2, "w")},
                  0,    false, 0};
    unsigned taken = 0;
    VjRng rng;

    vj_rng_init(&rng, 13);
    for (unsigned i = 0; i < 3000; i++) {
        GByteArray *parts[] = {f->node->garbage_message, f->node->garbage_bulk};
        Op op = (Op)vj_rng_below(&rng, OPS);

        set_reply(f->node, &good);
        for (uint64_t n = vj_rng_below(&rng, 4); n > 0; n--) {
            GByteArray *part = parts[vj_rng_below(&rng, 2)];

            if (vj_rng_below(&rng, 4) == 0) {
                g_byte_array_set_size(part,
                                      (guint)vj_rng_below(&rng, (uint64_t)part->len + 1));
            } else if (part->len > 0) {
                part->data[vj_rng_below(&rng, part->len)] = (uint8_t)vj_rng_u64(&rng);
            }
        }
        key_node_set_fate(f->node, wire_ops[op], KEY_NODE_GARBAGE, 1,
                          op == APPLY ? -EAGAIN : 0);
        taken += call(f->engine, op, VJ_NO_DEADLINE) == 0;
    }
    assert_in_range(taken, 1, 2000);
    key_node_set_fate(f->node, VJ_OP_APPLY, KEY_NODE_DO, 0, 0);
    assert_int_equal(put(f->engine, "a", "v"), 0);
    assert_has(f->engine, "a", "v");
}

/* ---- Nodes that go and come ------------------------------------------------------ */

/* The connection is cut after each number of bytes, in each direction; every call is done
 * all the same, once as far as its caller sees. */
static void cut_at_any_byte(void **state)
{
    Fixture *f = *state;

    for (unsigned direction = 0; direction < 2; direction++) {
        for (Op op = 0; op < OPS; op++) {
            uint64_t bytes = 0;
            unsigned cuts;

            do {
                CutProxy *proxy = cut_proxy_new(f->node->address);
                VjEngine *e = open_at(proxy->address, false);
                g_autofree char *value =
                    g_strdup_printf("%u %u %u", direction, op, (unsigned)bytes);

                assert_int_equal(put(e, "a", value), 0);
                cut_proxy_after(proxy, direction == 1, bytes);
                if (op == APPLY) {
                    assert_int_equal(put(e, "b", value), 0);
                } else {
                    assert_int_equal(call(e, op, VJ_NO_DEADLINE), 0);
                }
                cuts = cut_proxy_cuts(proxy);
                assert_has(e, "a", value);
                if (op == APPLY) {
                    assert_has(e, "b", value);
                }
                assert_int_equal(vj_engine_close(e, true), 0);
                cut_proxy_free(proxy);
                bytes += 1 + bytes / 8;
            } while (cuts > 0);
            assert_true(bytes > 8);
        }
    }
}

static void while_the_node_is_away(void **state)
{
    Fixture *f = *state;
    g_autofree char *spec = g_strdup_printf("%s:insecure,timeout=1", f->node->address);
    VjMetaPlace place = {.dir_fd = -1, .volume = KEY_NODE_VOLUME};
    VjEngine *e = try_engine(spec, &place, NULL);
    int64_t soon_us;

    assert_non_null(e);
    assert_int_equal(put(e, "a", "1"), 0);
    key_node_stop(f->node);
    soon_us = vj_clock_mono_us() + 1000;
    for (Op op = 0; op < COUNT; op++) {
        assert_int_equal(call(e, op, soon_us), -ETIMEDOUT);
    }
    assert_int_equal(call(e, COUNT, VJ_NO_DEADLINE), -ETIMEDOUT); /* after timeout= */
    key_node_start(f->node);
    assert_has(e, "a", "1");
    assert_int_equal(put(e, "a", "2"), 0);
    assert_int_equal(vj_engine_close(e, true), 0);
    assert_has(f->engine, "a", "2");
}

typedef struct Canceled {
    VjEngine *engine;
    VjCancel cancel;
    int rc;
} Canceled;

static gpointer canceled_main(gpointer opaque)
{
    Canceled *c = opaque;

    vj_cancel_reset(&c->cancel, 1, INT64_MAX);
    vj_cancel_enter(&c->cancel);
    c->rc = call(c->engine, GET_MANY, VJ_NO_DEADLINE);
    (void)vj_cancel_leave();
    return NULL;
}

static void a_caller_that_gives_up(void **state)
{
    Fixture *f = *state;
    Canceled c = {.engine = f->engine};
    GThread *thread;

    vj_cancel_init(&c.cancel);
    key_node_set_fate(f->node, VJ_OP_GET_MANY, KEY_NODE_HOLD, 1, 0);
    thread = g_thread_new("canceled", canceled_main, &c);
    key_node_wait_for_held(f->node, 1);
    vj_cancel_fire(&c.cancel, 1);
    g_thread_join(thread);
    assert_int_equal(c.rc, -ECANCELED);
    key_node_let_go(f->node);
    assert_int_equal(call(f->engine, GET_MANY, VJ_NO_DEADLINE), 0);
    vj_cancel_clear(&c.cancel);
}

/* Another disk in the place of the one that was there. */
static void another_place(void **state)
{
    Fixture *f = *state;
    g_autofree char *spec = g_strdup_printf("%s:insecure,timeout=1", f->node->address);
    VjMetaPlace place = {.dir_fd = -1, .volume = KEY_NODE_VOLUME};
    VjEngine *e = try_engine(spec, &place, NULL);

    assert_non_null(e);
    key_node_stop(f->node);
    f->node->place[0] ^= 1;
    key_node_start(f->node);
    assert_int_equal(call(e, GET_MANY, VJ_NO_DEADLINE), -ETIMEDOUT);
    key_node_stop(f->node);
    f->node->place[0] ^= 1;
    key_node_start(f->node);
    assert_int_equal(call(e, GET_MANY, VJ_NO_DEADLINE), 0);
    assert_int_equal(vj_engine_close(e, true), 0);
}

/* ---- Sessions -------------------------------------------------------------------- */

static VjMeta *open_session(const char *address, const char *name, bool create,
                            GError **error)
{
    g_autofree char *spec = g_strdup_printf("remote:%s:insecure", address);
    VjSessionOpen session = {.name = name};
    VjMetaPlace place = {.dir_fd = -1,
                         .path = "the volume",
                         .volume = KEY_NODE_VOLUME,
                         .create = create,
                         .session = &session};
    VjMeta *m = NULL;

    (void)!vj_meta_open(spec, &place, &m, error);
    return m;
}

typedef struct Number {
    VjSpace space;
    uint64_t key, value;
} Number;

static int put_number_body(VjTxn *txn, void *opaque)
{
    const Number *n = opaque;
    uint8_t key[8], value[8];

    vj_be64_set(key, n->key);
    vj_be64_set(value, n->value);
    return vj_txn_put(txn, n->space, vj_slice(key, 8), vj_slice(value, 8));
}

static int get_number_body(VjTxn *txn, void *opaque)
{
    Number *n = opaque;
    uint8_t key[8];
    VjSlice value;
    int rc;

    vj_be64_set(key, n->key);
    rc = vj_txn_get(txn, n->space, vj_slice(key, 8), &value);
    n->value = rc == 0 ? vj_be64_get(value.data) : 0;
    return rc == -ENOENT ? 0 : rc;
}

static int put_number(VjMeta *m, uint64_t key, uint64_t value)
{
    Number n = {SPACE, key, value};

    return vj_meta_run(m, VJ_RUN_DEFAULT, put_number_body, &n);
}

static uint64_t get_number(VjMeta *m, uint64_t key)
{
    Number n = {SPACE, key, 0};

    assert_int_equal(vj_meta_view(m, get_number_body, &n), 0);
    return n.value;
}

static void a_second_one_is_refused(void **state)
{
    Fixture *f = *state;
    g_autoptr(GError) error = NULL;
    VjMeta *one = open_session(f->node->address, "mount /mnt", false, NULL);

    assert_non_null(one);
    assert_null(open_session(f->node->address, "another", false, &error));
    assert_int_equal(error->code, EBUSY);
    assert_non_null(strstr(error->message, "in use by mount /mnt; its lease ends in "));
    assert_int_equal(vj_meta_close(one), 0);
}

/* A flush is one request; what is visible or was read costs none. */
static void requests_are_counted(void **state)
{
    Fixture *f = *state;
    VjMeta *m = open_session(f->node->address, "one", false, NULL);
    uint64_t applies = key_node_requests(f->node, VJ_OP_APPLY), gets, scans;

    assert_non_null(m);
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(put_number(m, i, i), 0);
    }
    assert_int_equal(vj_meta_flush(m), 0);
    /* One more, if the commit interval has ended in the meantime. */
    assert_in_range(key_node_requests(f->node, VJ_OP_APPLY) - applies, 1, 2);
    gets = key_node_requests(f->node, VJ_OP_GET_MANY);
    scans = key_node_requests(f->node, VJ_OP_SCAN);
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(get_number(m, i), i);
    }
    assert_int_equal(key_node_requests(f->node, VJ_OP_GET_MANY), gets);
    assert_int_equal(key_node_requests(f->node, VJ_OP_SCAN), scans);
    assert_int_equal(vj_meta_close(m), 0);
}

/* The answer to the batch by which it joins is lost: it joins once. */
static void joining_twice(void **state)
{
    Fixture *f = *state;
    uint64_t bytes = 0;
    unsigned cuts;

    do {
        CutProxy *proxy = cut_proxy_new(f->node->address);
        VjMeta *m;

        cut_proxy_after(proxy, true, bytes);
        m = open_session(proxy->address, "one", false, NULL);
        assert_non_null(m);
        cuts = cut_proxy_cuts(proxy);
        assert_int_equal(put_number(m, 1, bytes), 0);
        assert_int_equal(vj_meta_close(m), 0);
        cut_proxy_free(proxy);
        bytes += 7;
    } while (cuts > 0);
    assert_true(bytes > 200);
}

/* The same of the batch by which it leaves. */
static void leaving_twice(void **state)
{
    Fixture *f = *state;
    uint64_t bytes = 0;
    unsigned cuts;

    do {
        CutProxy *proxy = cut_proxy_new(f->node->address);
        VjMeta *m = open_session(proxy->address, "one", false, NULL);

        assert_non_null(m);
        assert_int_equal(put_number(m, 1, bytes), 0);
        cut_proxy_after(proxy, true, bytes);
        assert_int_equal(vj_meta_close(m), 0);
        cuts = cut_proxy_cuts(proxy);
        cut_proxy_free(proxy);
        m = open_session(f->node->address, "two", false, NULL);
        assert_non_null(m); /* it has left */
        assert_int_equal(get_number(m, 1), bytes);
        assert_int_equal(vj_meta_close(m), 0);
        bytes += 7;
    } while (cuts > 0);
    assert_true(bytes > 50);
}

/* One that was cut off for longer than its lease, while another one took over, loses what
 * it had not flushed, and no more. */
static void cut_off_and_shut_out(void **state)
{
    Fixture *f = *state;
    CutProxy *proxy = cut_proxy_new(f->node->address);
    VjMeta *one = open_session(proxy->address, "one", false, NULL), *two;
    Number n = {SPACE, 1, 0};

    assert_non_null(one);
    assert_int_equal(put_number(one, 1, 1), 0);
    assert_int_equal(vj_meta_flush(one), 0);
    cut_proxy_set_down(proxy, true);
    assert_int_equal(put_number(one, 1, 2), 0);
    assert_int_equal(get_number(one, 1), 2);
    vj_memory_clock_advance_for_test(f->node->engine, VJ_LEASE_DEFAULT_US + 1);
    two = open_session(f->node->address, "two", false, NULL);
    assert_non_null(two);
    assert_int_equal(get_number(two, 1), 1);
    assert_int_equal(put_number(two, 1, 3), 0);
    assert_int_equal(vj_meta_flush(two), 0);
    cut_proxy_set_down(proxy, false);
    assert_int_equal(vj_meta_flush(one), -ESTALE);
    assert_int_equal(vj_meta_view(one, get_number_body, &n), -ESTALE);
    assert_int_equal(put_number(one, 1, 4), -ESTALE);
    assert_int_equal(vj_meta_close(one), -ESTALE);
    assert_int_equal(get_number(two, 1), 3);
    assert_int_equal(vj_meta_close(two), 0);
    cut_proxy_free(proxy);
}

/* And one without whom nobody took over loses nothing, however long it was. */
static void cut_off_and_back(void **state)
{
    Fixture *f = *state;
    CutProxy *proxy = cut_proxy_new(f->node->address);
    VjMeta *one = open_session(proxy->address, "one", false, NULL);

    assert_non_null(one);
    cut_proxy_set_down(proxy, true);
    assert_int_equal(put_number(one, 1, 2), 0);
    vj_memory_clock_advance_for_test(f->node->engine, 10 * VJ_LEASE_DEFAULT_US);
    cut_proxy_set_down(proxy, false);
    assert_int_equal(vj_meta_flush(one), 0);
    assert_int_equal(vj_meta_close(one), 0);
    cut_proxy_free(proxy);
}

#define RESTARTS 10u

typedef struct Worker {
    VjMeta *meta;
    gint stops;
    uint64_t flushed;
    int rc;
} Worker;

static gpointer work_main(gpointer opaque)
{
    Worker *w = opaque;

    for (uint64_t i = 1; w->rc == 0 && g_atomic_int_get(&w->stops) == 0; i++) {
        w->rc = put_number(w->meta, i, i);
        if (w->rc == 0) {
            w->rc = vj_meta_flush(w->meta);
        }
        w->flushed += w->rc == 0;
    }
    return NULL;
}

/* The node is stopped and started again in flushes: nobody notices. */
static void restarts_under_load(void **state)
{
    Fixture *f = *state;
    Worker w = {.meta = open_session(f->node->address, "one", false, NULL)};
    GThread *thread;
    VjMeta *m;

    assert_non_null(w.meta);
    thread = g_thread_new("work", work_main, &w);
    for (unsigned i = 0; i < RESTARTS; i++) {
        uint64_t before = key_node_requests(f->node, VJ_OP_APPLY);

        while (key_node_requests(f->node, VJ_OP_APPLY) < before + 5) {
            g_thread_yield();
        }
        key_node_stop(f->node);
        key_node_start(f->node);
    }
    g_atomic_int_set(&w.stops, 1);
    g_thread_join(thread);
    assert_int_equal(w.rc, 0);
    assert_true(w.flushed >= RESTARTS);
    assert_int_equal(vj_meta_close(w.meta), 0);
    m = open_session(f->node->address, "two", false, NULL);
    assert_non_null(m);
    for (uint64_t i = 1; i <= w.flushed; i++) {
        assert_int_equal(get_number(m, i), i);
    }
    assert_int_equal(vj_meta_close(m), 0);
}

/* ---- Large batches --------------------------------------------------------------- */

enum { BIG = 96 * 1024, BIG_PUTS = 660 };

static int put_much_body(VjTxn *txn, void *opaque)
{
    static uint8_t value[BIG];
    uint64_t first = *(const uint64_t *)opaque;
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < BIG_PUTS; i++) {
        uint8_t key[8];

        vj_be64_set(key, first + i);
        rc = vj_txn_put(txn, SPACE, vj_slice(key, 8), vj_slice(value, BIG));
    }
    return rc;
}

/* Transactions as large as they may be, with as much memory as is asked for: no batch is
 * longer than a request may be. */
static void the_largest_batches(void **state)
{
    Fixture *f = *state;
    g_autofree char *spec =
        g_strdup_printf("remote:%s:insecure,overlay=1G", f->node->address);
    VjMetaPlace place = {.dir_fd = -1, .volume = KEY_NODE_VOLUME};
    uint64_t count;
    VjMeta *m;

    assert_true(vj_meta_open(spec, &place, &m, NULL));
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t first = i * BIG_PUTS;

        /* What is there already when a large one comes. */
        for (uint64_t k = 0; k < 100; k++) {
            assert_int_equal(put_number(m, 100000 + 100 * i + k, k), 0);
        }
        assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, put_much_body, &first), 0);
    }
    assert_int_equal(vj_meta_flush(m), 0);
    assert_int_equal(vj_meta_close(m), 0);
    assert_int_equal(vj_engine_count(f->engine, SPACE, &count), 0);
    assert_int_equal(count, 4 * (BIG_PUTS + 100));
}

#define T(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs),
        T(who_is_let_in),
        T(the_name_of_a_client),
        T(long_answers),
        T(many_keys),
        T(an_apply_between_two_answers),
        T(errors),
        T(busy_nodes),
        T(answers_that_are_none),
        T(any_bytes),
        T(cut_at_any_byte),
        T(while_the_node_is_away),
        T(a_caller_that_gives_up),
        T(another_place),
        T(a_second_one_is_refused),
        T(requests_are_counted),
        T(joining_twice),
        T(leaving_twice),
        T(cut_off_and_shut_out),
        T(cut_off_and_back),
        T(restarts_under_load),
        T(the_largest_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
