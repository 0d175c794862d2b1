/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What src/store/store.h promises, asked of every driver, bare and behind each wrapper.
 *
 * A new driver is one row in stacks[]; the suite fails while one is missing there, or a
 * wrapper.  Tests are named "stack: test", so that "-p 'posix: *'" runs one of them.
 */
#include "../lib/node-model.h"
#include "../lib/real-node.h"
#include "../lib/test.h"

#include "store/store-private.h"

/* ---- a wrapper that has submit alone ----------------------------------------------- */

static const VjOptSpec no_options[] = {{.name = NULL}};

static bool async_open(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                       GError **error)
{
    (void)s, (void)place, (void)opts, (void)error;
    return true;
}

static void async_close(VjStore *s)
{
    (void)s;
}

static void async_done(VjIo *child)
{
    vj_io_complete(child->opaque, child->rc, &child->put);
}

static void async_submit(VjStore *s, VjIo *io)
{
    vj_io_forward(s, io, async_done);
}

static bool async_same_loc(VjStore *s, VjLoc a, VjLoc b)
{
    return vj_store_same_loc(s->next, a, b);
}

static int async_stage(VjStore *s, const VjPut *added, size_t added_count,
                       const VjPut *removed, size_t removed_count, GArray *changes)
{
    return vj_store_stage(s->next, added, added_count, removed, removed_count, changes);
}

static void async_removes_committed(VjStore *s, const VjPut *removed, size_t count)
{
    vj_store_removes_committed(s->next, removed, count);
}

static int async_each(VjStore *s, uint64_t first_id, uint64_t last_id,
                      VjStoreVisit *visit, void *opaque)
{
    return vj_store_each(s->next, first_id, last_id, visit, opaque);
}

static int async_space(VjStore *s, VjStoreSpace *out)
{
    return vj_store_space(s->next, out);
}

static const VjStoreOps async_ops = {
    .name = "async",
    .options = no_options,
    .instance_size = sizeof(VjStore),
    .align_bytes = 1,
    .open = async_open,
    .close = async_close,
    .same_loc = async_same_loc,
    .stage = async_stage,
    .removes_committed = async_removes_committed,
    .each = async_each,
    .space = async_space,
    .submit = async_submit,
};

typedef struct Stack {
    const char *name;
    const char *driver;
    const char *wraps[3]; /* inside out */
    bool keeps;           /* get() finds what was put */
    bool outlives_close;  /* what was put is there after close and open */
    unsigned nodes;       /* of remote: */
    const char *real;     /* as varjfsd has them, with this store; NULL: models */
    /* When all have been used to make the volume.  That there is no such object is then
     * found out in seconds: so not many are asked for. */
    bool one_dies;
} Stack;

enum { NODES_MAX = 3 };

static const Stack stacks[] = {
    {"posix", "posix", {NULL}, true, true, 0, NULL, false},
    {"posix one by one",
     "posix:sync_batch=64,open_files=2",
     {NULL},
     true,
     true,
     0,
     NULL,
     false},
    {"posix syncfs",
     "posix:sync_batch=0,open_files=0",
     {NULL},
     true,
     true,
     0,
     NULL,
     false},
    {"posix that erases", "posix:erase=yes", {NULL}, true, true, 0, NULL, false},
    {"memory", "memory", {NULL}, true, false, 0, NULL, false},
    {"memory of a name", "memory:name=contract", {NULL}, true, true, 0, NULL, false},
    {"null", "null", {NULL}, false, false, 0, NULL, false},
    {"posix+stats", "posix", {"stats"}, true, true, 0, NULL, false},
    {"posix+fault", "posix", {"fault"}, true, true, 0, NULL, false},
    {"posix+stats+fault",
     "posix",
     {"stats", "fault:delay_us=1"},
     true,
     true,
     0,
     NULL,
     false},
    {"memory+fault+stats", "memory", {"fault", "stats"}, true, false, 0, NULL, false},
    {"null+stats", "null", {"stats"}, false, false, 0, NULL, false},
    {"block", "block", {NULL}, true, true, 0, NULL, false},
    {"block past the page cache", "block:direct=yes", {NULL}, true, true, 0, NULL, false},
    {"block+fault+stats", "block", {"fault", "stats"}, true, true, 0, NULL, false},
    {"block+async+stats",
     "block:direct=yes",
     {"async", "stats"},
     true,
     true,
     0,
     NULL,
     false},
    {"posix with a timeout",
     "posix:timeout=86400",
     {"stats"},
     true,
     true,
     0,
     NULL,
     false},
    {"memory+async", "memory", {"async"}, true, false, 0, NULL, false},
    {"block+latency+stats",
     "block:direct=yes",
     {"latency:us=1", "stats"},
     true,
     true,
     0,
     NULL,
     false},
    {"posix+latency+fault",
     "posix",
     {"latency:us=1", "fault"},
     true,
     true,
     0,
     NULL,
     false},
    {"memory+latency", "memory", {"latency:us=1"}, true, false, 0, NULL, false},
    {"remote", "remote:NODES:insecure", {NULL}, true, true, 1, NULL, false},
    {"remote 3 nodes",
     "remote:NODES:insecure,replicas=2",
     {NULL},
     true,
     true,
     3,
     NULL,
     false},
    {"remote+fault+stats",
     "remote:NODES:insecure,replicas=2,weight=1/2/3",
     {"fault", "stats"},
     true,
     true,
     3,
     NULL,
     false},
    {"remote at a node", "remote:NODES:insecure", {NULL}, true, true, 1, "posix", false},
    {"remote at a node in memory",
     "remote:NODES:insecure",
     {NULL},
     true,
     true,
     1,
     "memory:name=contract-node",
     false},
    {"remote at 3 nodes",
     "remote:NODES:insecure,replicas=2",
     {"stats"},
     true,
     true,
     3,
     "posix",
     false},
    {"remote at 3 nodes, one dead",
     "remote:NODES:insecure,replicas=2,timeout=5",
     {NULL},
     true,
     true,
     3,
     "posix",
     true},
};

typedef struct Fixture {
    const Stack *stack;
    char *path;
    int dir_fd;
    VjStore *s;
    char *spec; /* of the driver */
    NodeModel *models[NODES_MAX];
    NodeServer *servers[NODES_MAX];
    RealNode *real[NODES_MAX];
    VjMutex lock;
    /* guarded by lock: the driver's own keys, as a caller of stage() commits them */
    GTree *keys; /* GBytes → GBytes */
} Fixture;

/* ---- the caller's part of stage() -------------------------------------------------- */

static gint compare_keys(gconstpointer a, gconstpointer b, gpointer unused)
{
    (void)unused;
    return g_bytes_compare(a, b);
}

static void commit(Fixture *f, const VjPut *added, size_t added_count,
                   const VjPut *removed, size_t removed_count)
{
    g_autoptr(GArray) changes = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));

    assert_int_equal(
        vj_store_stage(f->s, added, added_count, removed, removed_count, changes), 0);
    vj_mutex_lock(&f->lock);
    for (guint i = 0; i < changes->len; i++) {
        const VjStoreChange *c = &g_array_index(changes, VjStoreChange, i);
        GBytes *key = g_bytes_new(c->key, c->key_len);

        if (c->value_len > 0) {
            g_tree_replace(f->keys, key, g_bytes_new(c->value, c->value_len));
        } else {
            g_tree_remove(f->keys, key);
            g_bytes_unref(key);
        }
    }
    vj_mutex_unlock(&f->lock);
    vj_store_removes_committed(f->s, removed, removed_count);
}

static VjSlice slice_of(gconstpointer bytes)
{
    size_t len;
    const void *data = g_bytes_get_data((GBytes *)(uintptr_t)bytes, &len);

    return vj_slice(data, len);
}

static int each_key(void *from, VjStoreKeyVisit *visit, void *opaque)
{
    Fixture *f = from;

    for (GTreeNode *n = g_tree_node_first(f->keys); n != NULL; n = g_tree_node_next(n)) {
        if (!visit(opaque, slice_of(g_tree_node_key(n)),
                   slice_of(g_tree_node_value(n)))) {
            break;
        }
    }
    return 0;
}

static void open_store(Fixture *f, bool create, bool read_only)
{
    VjStoreKeys keys = {.each = each_key, .from = f};
    VjStorePlace place = {.dir_fd = f->dir_fd,
                          .path = f->path,
                          .keys = create ? NULL : &keys,
                          .create = create,
                          .read_only = read_only};
    g_autoptr(GError) error = NULL;

    assert_true(vj_store_open(f->spec, &place, &f->s, &error));
    for (size_t i = 0; i < G_N_ELEMENTS(f->stack->wraps); i++) {
        VjStore *outer = NULL;

        if (g_strcmp0(f->stack->wraps[i], "async") == 0) {
            assert_true(vj_store_wrap_with(&async_ops, "", f->s, &outer, &error));
            f->s = outer;
        } else if (f->stack->wraps[i] != NULL) {
            assert_true(vj_store_wrap(f->stack->wraps[i], f->s, &outer, &error));
            f->s = outer;
        }
    }
}

/* Where the stack has nodes, they listen in the directory of the test. */
static void start_nodes(Fixture *f)
{
    g_autoptr(GString) nodes = g_string_new(NULL);
    g_auto(GStrv) parts = g_strsplit(f->stack->driver, "NODES", 2);

    for (unsigned i = 0; i < f->stack->nodes; i++) {
        g_autofree char *path = g_strdup_printf("%s/node%u", f->path, i);

        g_string_append(nodes, i > 0 ? "," : "");
        if (f->stack->real != NULL) {
            g_autofree char *lines =
                g_strdup_printf("store = %s\nroles = object", f->stack->real);

            f->real[i] = real_node_new_with(lines);
            g_string_append(nodes, f->real[i]->address);
        } else {
            f->models[i] = node_model_new(i, VJ_GIB);
            f->servers[i] = node_server_start(f->models[i], path);
            g_string_append_printf(nodes, "unix:%s", path);
        }
    }
    f->spec = g_strjoinv(nodes->str, parts);
}

static void stop_nodes(Fixture *f)
{
    for (unsigned i = 0; i < f->stack->nodes; i++) {
        if (f->servers[i] != NULL) {
            node_server_stop(f->servers[i]);
            node_model_free(f->models[i]);
        }
        if (f->real[i] != NULL) {
            real_node_free(f->real[i]);
        }
    }
    g_free(f->spec);
}

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);

    f->stack = *state;
    f->path = vj_test_make_dir();
    f->dir_fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(f->dir_fd >= 0);
    vj_mutex_init(&f->lock, VJ_RANK_BASE, "fixture");
    f->keys = g_tree_new_full(compare_keys, NULL, (GDestroyNotify)g_bytes_unref,
                              (GDestroyNotify)g_bytes_unref);
    start_nodes(f);
    open_store(f, true, false);
    if (f->stack->one_dies) {
        vj_store_close(f->s);
        real_node_free(g_steal_pointer(&f->real[f->stack->nodes - 1]));
        open_store(f, false, false);
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;

    vj_store_close(f->s);
    stop_nodes(f);
    vj_fd_close(&f->dir_fd);
    vj_test_remove_dir(f->path);
    g_tree_unref(f->keys);
    vj_mutex_clear(&f->lock);
    g_free(f);
    return 0;
}

/* Bytes that differ for every id and place. */
static void fill(uint8_t *dst, size_t len, uint64_t id)
{
    for (size_t i = 0; i < len; i++) {
        dst[i] = (uint8_t)(id * 131 + i * 7 + (i >> 8));
    }
}

static VjPut put_one(Fixture *f, uint64_t id, size_t len)
{
    g_autofree uint8_t *bytes = g_malloc(len + 1);
    struct iovec iov = {.iov_base = bytes, .iov_len = len};
    VjPut put;

    fill(bytes, len, id);
    assert_int_equal(vj_store_put_unaligned(f->s, id, &iov, 1, &put), 0);
    assert_true(put.id == id);
    assert_true(put.stored_bytes == len);
    commit(f, &put, 1, NULL, 0);
    return put;
}

/* As the callers do it: the bytes, then what the driver knew of them. */
static int remove_one(Fixture *f, uint64_t id, VjLoc loc)
{
    VjPut put = {.id = id, .loc = loc};
    int result = vj_store_remove(f->s, id, loc);

    if (result == 0) {
        commit(f, NULL, 0, &put, 1);
    }
    return result;
}

static void expect_object(const Fixture *f, const VjPut *put)
{
    g_autofree uint8_t *want = g_malloc(put->stored_bytes + 1);
    g_autofree uint8_t *got = g_malloc(put->stored_bytes + 1);
    int result =
        vj_store_get_unaligned(f->s, put->id, put->loc, 0, got, put->stored_bytes);

    if (!f->stack->keeps) {
        assert_int_equal(result, -ENOENT);
        return;
    }
    assert_int_equal(result, 0);
    fill(want, put->stored_bytes, put->id);
    assert_memory_equal(got, want, put->stored_bytes);
}

static void expect_absent(const Fixture *f, const VjPut *put)
{
    uint8_t byte;

    assert_int_equal(vj_store_get_unaligned(f->s, put->id, put->loc, 0, &byte, 1),
                     -ENOENT);
}

static void test_put_get(void **state)
{
    static const size_t lens[] = {1, 2, 4095, 4096, 4097, 65536, 300001};
    Fixture *f = *state;
    VjPut puts[G_N_ELEMENTS(lens)];

    for (size_t i = 0; i < G_N_ELEMENTS(lens); i++) {
        puts[i] = put_one(f, 100 + i, lens[i]);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < G_N_ELEMENTS(lens); i++) {
            expect_object(f, &puts[i]);
        }
        assert_int_equal(vj_store_flush(f->s), 0);
    }
}

static void test_get_ranges(void **state)
{
    Fixture *f = *state;
    enum { LEN = 70001 };
    VjPut put = put_one(f, 7, LEN);
    g_autofree uint8_t *want = g_malloc(LEN);
    g_autofree uint8_t *got = g_malloc(LEN + 1);
    VjRng rng;

    if (!f->stack->keeps) {
        return;
    }
    vj_rng_init(&rng, 20261120);
    fill(want, LEN, 7);
    for (int i = 0; i < 100; i++) {
        size_t from = vj_rng_below(&rng, LEN), len = vj_rng_below(&rng, LEN - from + 1);

        assert_int_equal(vj_store_get_unaligned(f->s, 7, put.loc, from, got, len), 0);
        assert_memory_equal(got, want + from, len);
    }
    assert_int_equal(vj_store_get_unaligned(f->s, 7, put.loc, LEN, got, 0), 0);
    assert_int_equal(vj_store_get_unaligned(f->s, 7, put.loc, 0, got, LEN + 1), -EBADMSG);
    assert_int_equal(vj_store_get_unaligned(f->s, 7, put.loc, LEN, got, 1), -EBADMSG);
    assert_int_equal(
        vj_store_get_unaligned(f->s, 7, put.loc, VJ_STORE_OBJECT_MAX - 1, got, 1),
        -EBADMSG);
}

/* As many pieces as allowed, some of them empty. */
static void test_put_pieces(void **state)
{
    Fixture *f = *state;
    enum { PIECE = 1000 };
    g_autofree uint8_t *bytes = g_malloc(VJ_STORE_IOV_MAX * PIECE);
    struct iovec iov[VJ_STORE_IOV_MAX];
    size_t len = 0;
    VjPut put;

    for (int i = 0; i < VJ_STORE_IOV_MAX; i++) {
        iov[i].iov_base = bytes + len;
        iov[i].iov_len = i % 5 == 0 ? 0 : (size_t)(PIECE - i);
        len += iov[i].iov_len;
    }
    fill(bytes, len, 9);
    assert_int_equal(vj_store_put_unaligned(f->s, 9, iov, VJ_STORE_IOV_MAX, &put), 0);
    assert_true(put.stored_bytes == len);
    expect_object(f, &put);
}

static void test_largest_object(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = g_malloc0(VJ_STORE_OBJECT_MAX);
    struct iovec iov = {.iov_base = bytes, .iov_len = VJ_STORE_OBJECT_MAX};
    uint8_t last[3] = {0};
    VjPut put;

    memcpy(bytes + VJ_STORE_OBJECT_MAX - 3, "end", 3);
    assert_int_equal(vj_store_put_unaligned(f->s, 3, &iov, 1, &put), 0);
    assert_int_equal(vj_store_get_unaligned(f->s, 3, put.loc, VJ_STORE_OBJECT_MAX - 3,
                                            last, sizeof last),
                     f->stack->keeps ? 0 : -ENOENT);
    if (f->stack->keeps) {
        assert_memory_equal(last, "end", 3);
    }
}

static void test_extreme_ids(void **state)
{
    static const uint64_t ids[] = {0,
                                   1,
                                   4095,
                                   4096,
                                   ((uint64_t)1 << 24) - 1,
                                   (uint64_t)1 << 24,
                                   (uint64_t)1 << 40,
                                   UINT64_MAX - 1,
                                   UINT64_MAX};
    Fixture *f = *state;

    for (size_t i = 0; i < G_N_ELEMENTS(ids); i++) {
        VjPut put = put_one(f, ids[i], 10);

        expect_object(f, &put);
        assert_int_equal(remove_one(f, put.id, put.loc), 0);
        expect_absent(f, &put);
    }
}

static void test_remove(void **state)
{
    Fixture *f = *state;
    VjPut kept = put_one(f, 20, 5000), gone = put_one(f, 21, 5000);
    VjPut never = gone;

    never.id = (uint64_t)1 << 33;
    assert_true(vj_store_prefer(f->s, 22) >= 22);
    expect_object(f, &gone); /* so that it is in caches */
    assert_int_equal(remove_one(f, gone.id, gone.loc), 0);
    expect_absent(f, &gone);
    assert_int_equal(remove_one(f, gone.id, gone.loc), 0);
    assert_int_equal(remove_one(f, never.id, never.loc), 0);
    expect_absent(f, &never);
    expect_object(f, &kept);
    assert_int_equal(vj_store_flush(f->s), 0);
    expect_object(f, &kept);
}

/* A late remove of an earlier put of the same bytes does not destroy the later one. */
static void test_locators_are_fresh(void **state)
{
    Fixture *f = *state;
    VjPut first = put_one(f, 30, 777), second = put_one(f, 30, 777);

    assert_memory_not_equal(&first.loc, &second.loc, sizeof first.loc);
    assert_int_equal(remove_one(f, 30, first.loc), 0);
    expect_absent(f, &first);
    expect_object(f, &second);
    assert_int_equal(remove_one(f, 30, first.loc), 0);
    expect_object(f, &second);
}

/* An object is found under its own id alone. */
static void test_locator_of_another_id(void **state)
{
    Fixture *f = *state;
    VjPut put = put_one(f, 31, 100), wrong = put;

    wrong.id = 32;
    expect_absent(f, &wrong);
    assert_int_equal(remove_one(f, wrong.id, wrong.loc), 0);
    expect_object(f, &put);
}

/* Locators come out of metadata that may be damaged. */
static void test_hostile_locator(void **state)
{
    Fixture *f = *state;
    VjPut put = put_one(f, 33, 100);
    uint8_t byte;
    VjRng rng;

    vj_rng_init(&rng, 4);
    for (int i = 0; i < 64; i += f->stack->one_dies ? 16 : 1) {
        VjLoc loc = put.loc;
        int result;

        if (i < 32) {
            loc.bytes[i / 2] ^= (uint8_t)(1u << vj_rng_below(&rng, 8));
        } else {
            vj_rng_bytes(&rng, loc.bytes, sizeof loc.bytes);
        }
        if (vj_store_same_loc(f->s, loc, put.loc)) {
            continue; /* it says something else of the same object */
        }
        result = vj_store_get_unaligned(f->s, 33, loc, 0, &byte, 1);
        assert_true(result == -ENOENT || result == -EBADMSG ||
                    (result == -ETIMEDOUT && f->stack->one_dies));
        result = remove_one(f, 33, loc);
        assert_true(result == 0 || result == -EBADMSG);
    }
    expect_object(f, &put);
}

typedef struct Seen {
    GArray *puts; /* VjPut */
    int64_t oldest_us, newest_us;
    guint stop_after; /* 0: never */
    Fixture *remove_from;
} Seen;

static bool see(void *opaque, const VjPut *object, int64_t mtime_us)
{
    Seen *seen = opaque;

    g_array_append_val(seen->puts, *object);
    seen->oldest_us = MIN(seen->oldest_us, mtime_us);
    seen->newest_us = MAX(seen->newest_us, mtime_us);
    if (seen->remove_from != NULL) {
        assert_int_equal(remove_one(seen->remove_from, object->id, object->loc), 0);
    }
    return seen->puts->len != seen->stop_after;
}

static Seen seen_new(void)
{
    return (Seen){.puts = g_array_new(FALSE, FALSE, sizeof(VjPut)),
                  .oldest_us = INT64_MAX,
                  .newest_us = INT64_MIN};
}

/* Exactly the objects of @puts whose ids lie in the range, each once. */
static void expect_each(const Fixture *f, const VjPut *puts, size_t count, uint64_t first,
                        uint64_t last)
{
    Seen seen = seen_new();
    guint expected = 0;

    assert_int_equal(vj_store_each(f->s, first, last, see, &seen), 0);
    for (size_t i = 0; f->stack->keeps && i < count; i++) {
        guint found = 0;

        if (puts[i].id < first || puts[i].id > last) {
            continue;
        }
        expected++;
        for (guint k = 0; k < seen.puts->len; k++) {
            const VjPut *one = &g_array_index(seen.puts, VjPut, k);

            if (one->id == puts[i].id && vj_store_same_loc(f->s, one->loc, puts[i].loc)) {
                assert_true(one->stored_bytes == puts[i].stored_bytes);
                found++;
            }
        }
        assert_int_equal(found, 1);
    }
    assert_int_equal(seen.puts->len, expected);
    g_array_unref(seen.puts);
}

static void test_each(void **state)
{
    static const uint64_t ids[] = {0,
                                   1,
                                   1,
                                   4095,
                                   4096,
                                   4097,
                                   65535,
                                   65536,
                                   ((uint64_t)1 << 24) - 1,
                                   (uint64_t)1 << 24,
                                   ((uint64_t)1 << 40) + 12345,
                                   UINT64_MAX};
    Fixture *f = *state;
    VjPut puts[G_N_ELEMENTS(ids)];

    expect_each(f, NULL, 0, 0, UINT64_MAX);
    for (size_t i = 0; i < G_N_ELEMENTS(ids); i++) {
        puts[i] = put_one(f, ids[i], 10 + i);
    }
    expect_each(f, puts, G_N_ELEMENTS(ids), 0, UINT64_MAX);
    for (size_t i = 0; i < G_N_ELEMENTS(ids); i++) {
        expect_each(f, puts, G_N_ELEMENTS(ids), ids[i], ids[i]);
        expect_each(f, puts, G_N_ELEMENTS(ids), 0, ids[i]);
        expect_each(f, puts, G_N_ELEMENTS(ids), ids[i], UINT64_MAX);
        for (size_t k = i; k < G_N_ELEMENTS(ids); k++) {
            expect_each(f, puts, G_N_ELEMENTS(ids), ids[i], ids[k]);
        }
    }
    expect_each(f, puts, G_N_ELEMENTS(ids), 2, 4094);
    expect_each(f, puts, G_N_ELEMENTS(ids), (uint64_t)1 << 50, (uint64_t)1 << 51);
}

static bool stands_behind_a_node(const Stack *stack)
{
    bool can = !g_str_has_prefix(stack->driver, "block") &&
               !g_str_has_prefix(stack->driver, "remote");

    for (size_t i = 0; i < G_N_ELEMENTS(stack->wraps); i++) {
        can = can && g_strcmp0(stack->wraps[i], "async") != 0;
    }
    return can;
}

static VjPut put_as(Fixture *f, uint64_t id, uint64_t nonce, size_t len)
{
    g_autofree uint8_t *bytes = g_malloc(len + 1);
    struct iovec iov = {.iov_base = bytes, .iov_len = len};
    uint64_t again = nonce + 1, found = 0;
    VjLoc loc = vj_store_loc_of_nonce(f->s, nonce);
    VjPut put;

    fill(bytes, len, id);
    assert_int_equal(vj_store_put_as(f->s, id, nonce, &iov, 1, &put), 0);
    assert_true(put.id == id && put.stored_bytes == len);
    assert_memory_equal(&put.loc, &loc, sizeof loc);
    assert_true(vj_store_nonce_of_loc(f->s, put.loc, &again));
    assert_true(again == nonce);
    assert_int_equal(vj_store_length(f->s, id, put.loc, &found),
                     f->stack->keeps ? 0 : -ENOENT);
    assert_true(!f->stack->keeps || found == len);
    return put;
}

/* Under numbers of the caller's: what is there already is replaced, and id and number
 * together say which it is. */
static void test_put_as(void **state)
{
    static const uint64_t nonces[] = {0, 1, 0x123456789abcdef0, UINT64_MAX};
    Fixture *f = *state;
    VjLoc foreign;
    uint64_t nonce, bytes;

    assert_int_equal(vj_store_can_put_as(f->s), stands_behind_a_node(f->stack));
    if (!vj_store_can_put_as(f->s)) {
        return;
    }
    memset(&foreign, 0x5a, sizeof foreign);
    assert_false(vj_store_nonce_of_loc(f->s, foreign, &nonce));
    assert_true(!f->stack->keeps ||
                vj_store_length(f->s, 40, foreign, &bytes) == -EBADMSG);
    for (size_t i = 0; i < G_N_ELEMENTS(nonces); i++) {
        VjPut own = put_one(f, 40, 100), first = put_as(f, 40, nonces[i], 70000), puts[3];
        VjPut other = put_as(f, 41, nonces[i], 300);

        expect_object(f, &first);
        assert_int_equal(vj_store_flush(f->s), 0);
        puts[0] = put_as(f, 40, nonces[i], 70000);
        puts[1] = other;
        puts[2] = own;
        assert_true(vj_store_same_loc(f->s, first.loc, puts[0].loc));
        expect_each(f, puts, 3, 0, UINT64_MAX);
        expect_object(f, &puts[0]);
        assert_int_equal(vj_store_flush(f->s), 0);
        assert_int_equal(remove_one(f, 40, first.loc), 0);
        expect_absent(f, &puts[0]);
        assert_int_equal(vj_store_length(f->s, 40, first.loc, &bytes), -ENOENT);
        expect_object(f, &other);
        assert_int_equal(remove_one(f, 41, other.loc), 0);
        assert_int_equal(remove_one(f, 40, own.loc), 0);
        expect_each(f, NULL, 0, 0, UINT64_MAX);
    }
    put_as(f, 42, 5, 1000);
    assert_int_equal(vj_store_flush(f->s), 0);
    vj_store_close(f->s);
    open_store(f, false, false);
    if (f->stack->outlives_close) {
        VjPut again = put_as(f, 42, 5, 1000);

        assert_int_equal(vj_store_flush(f->s), 0);
        expect_each(f, &again, 1, 0, UINT64_MAX);
    }
}

static void test_each_stops(void **state)
{
    Fixture *f = *state;
    Seen seen = seen_new();

    for (uint64_t id = 1; id <= 5; id++) {
        put_one(f, id * 5000, 10);
    }
    seen.stop_after = 2;
    assert_int_equal(vj_store_each(f->s, 0, UINT64_MAX, see, &seen), 0);
    assert_int_equal(seen.puts->len, f->stack->keeps ? 2 : 0);
    g_array_unref(seen.puts);
}

static void test_each_tells_the_time(void **state)
{
    Fixture *f = *state;
    Seen seen = seen_new();
    struct timespec before = vj_clock_real(), after;

    put_one(f, 1, 10);
    after = vj_clock_real();
    assert_int_equal(vj_store_each(f->s, 0, UINT64_MAX, see, &seen), 0);
    if (f->stack->keeps) {
        /* The kernel's stamps may be a tick behind. */
        assert_true(seen.oldest_us >= ((int64_t)before.tv_sec - 1) * G_USEC_PER_SEC);
        assert_true(seen.newest_us <= ((int64_t)after.tv_sec + 1) * G_USEC_PER_SEC);
    }
    g_array_unref(seen.puts);
}

/* What gc does: the visitor removes; and the ids can be used again. */
static void test_each_removing(void **state)
{
    enum { COUNT = 600 };
    Fixture *f = *state;
    Seen seen = seen_new();
    VjPut again;

    for (uint64_t id = 0; id < COUNT; id++) {
        put_one(f, id * 100, 10);
    }
    seen.remove_from = f;
    assert_int_equal(vj_store_each(f->s, 0, UINT64_MAX, see, &seen), 0);
    assert_int_equal(seen.puts->len, f->stack->keeps ? COUNT : 0);
    expect_each(f, NULL, 0, 0, UINT64_MAX);
    expect_each(f, NULL, 0, 0, UINT64_MAX);
    again = put_one(f, 100, 10);
    expect_object(f, &again);
    expect_each(f, &again, 1, 0, UINT64_MAX);
    g_array_unref(seen.puts);
}

static void test_read_only(void **state)
{
    Fixture *f = *state;
    VjPut put = put_one(f, 1, 1000), other;
    struct iovec iov = {.iov_base = (char[]){"x"}, .iov_len = 1};

    assert_int_equal(vj_store_flush(f->s), 0);
    vj_store_close(f->s);
    open_store(f, false, true);
    assert_int_equal(vj_store_put_unaligned(f->s, 2, &iov, 1, &other), -EROFS);
    if (vj_store_can_put_as(f->s)) {
        assert_int_equal(vj_store_put_as(f->s, 2, 1, &iov, 1, &other), -EROFS);
    }
    assert_int_equal(remove_one(f, put.id, put.loc), -EROFS);
    assert_int_equal(vj_store_flush(f->s), 0);
    if (f->stack->outlives_close) {
        expect_object(f, &put);
        expect_each(f, &put, 1, 0, UINT64_MAX);
    }
}

static void test_reopen(void **state)
{
    Fixture *f = *state;
    VjPut puts[20];

    for (uint64_t i = 0; i < G_N_ELEMENTS(puts); i++) {
        puts[i] = put_one(f, i * 1000, 100 + i);
    }
    assert_int_equal(vj_store_flush(f->s), 0);
    assert_int_equal(remove_one(f, puts[3].id, puts[3].loc), 0);
    vj_store_close(f->s);
    open_store(f, false, false);
    for (size_t i = 0; i < G_N_ELEMENTS(puts); i++) {
        if (i == 3 || !f->stack->outlives_close) {
            expect_absent(f, &puts[i]);
        } else {
            expect_object(f, &puts[i]);
        }
    }
    put_one(f, 50000, 10);
    assert_int_equal(vj_store_flush(f->s), 0);
}

static void test_flush(void **state)
{
    Fixture *f = *state;

    assert_int_equal(vj_store_flush(f->s), 0);
    for (int round = 1; round < 20; round++) {
        for (int i = 0; i < round; i++) {
            put_one(f, (uint64_t)(round * 100 + i), 100);
        }
        assert_int_equal(vj_store_flush(f->s), 0);
        assert_int_equal(vj_store_flush(f->s), 0);
    }
}

/* After any removes, after none, and where nothing can be removed. */
static void test_flush_removes(void **state)
{
    enum { COUNT = 20 };
    Fixture *f = *state;
    VjPut puts[COUNT], kept = put_one(f, 1, 100);

    assert_int_equal(vj_store_flush_removes(f->s), 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        puts[i] = put_one(f, i * 5000, 100); /* each in a directory of its own */
    }
    assert_int_equal(vj_store_flush(f->s), 0);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(remove_one(f, puts[i].id, puts[i].loc), 0);
    }
    assert_int_equal(vj_store_flush_removes(f->s), 0);
    assert_int_equal(vj_store_flush_removes(f->s), 0);
    expect_each(f, &kept, 1, 0, UINT64_MAX); /* and no directory is left of them */
    assert_int_equal(remove_one(f, kept.id, kept.loc), 0);
    expect_each(f, NULL, 0, 0, UINT64_MAX);
    assert_int_equal(vj_store_flush_removes(f->s), 0);
    vj_store_close(f->s);
    open_store(f, false, true);
    assert_int_equal(vj_store_flush_removes(f->s), 0);
    expect_each(f, NULL, 0, 0, UINT64_MAX);
}

static void test_space(void **state)
{
    Fixture *f = *state;
    VjStoreSpace space = {0};

    put_one(f, 1, 100000);
    assert_int_equal(vj_store_space(f->s, &space), 0);
    assert_true(space.total_bytes > 0);
    assert_true(space.free_bytes <= space.total_bytes);
    assert_true(space.available_bytes <= space.free_bytes);
}

/* The same puts and removes give the same changes, however often they are asked for. */
static void test_stage(void **state)
{
    Fixture *f = *state;
    g_autoptr(GArray) first = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));
    g_autoptr(GArray) again = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));
    VjPut put = put_one(f, 1, 100), kept = put_one(f, 2, 100);

    assert_int_equal(vj_store_stage(f->s, &put, 1, NULL, 0, first), 0);
    assert_int_equal(vj_store_stage(f->s, &put, 1, NULL, 0, again), 0);
    assert_int_equal(vj_store_remove(f->s, put.id, put.loc), 0);
    assert_int_equal(vj_store_stage(f->s, NULL, 0, &put, 1, first), 0);
    assert_int_equal(vj_store_stage(f->s, NULL, 0, &put, 1, again), 0);
    assert_int_equal(first->len, again->len);
    for (guint i = 0; i < first->len; i++) {
        const VjStoreChange *a = &g_array_index(first, VjStoreChange, i);
        const VjStoreChange *b = &g_array_index(again, VjStoreChange, i);

        assert_int_equal(a->key_len, b->key_len);
        assert_memory_equal(a->key, b->key, a->key_len);
        assert_int_equal(a->value_len, b->value_len);
        assert_memory_equal(a->value, b->value, a->value_len);
    }
    commit(f, NULL, 0, &put, 1);
    expect_absent(f, &put);
    expect_object(f, &kept);
    assert_int_equal(g_tree_nnodes(f->keys), first->len > 0 ? 1 : 0);
}

/* What is committed is all that a driver with keys of its own has after the next open. */
static void test_uncommitted(void **state)
{
    Fixture *f = *state;
    uint8_t byte = 1;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    VjPut kept = put_one(f, 1, 5000), lost, back = put_one(f, 3, 70000);
    bool has_keys = g_tree_nnodes(f->keys) > 0;

    assert_int_equal(vj_store_put_unaligned(f->s, 2, &iov, 1, &lost), 0);
    assert_int_equal(vj_store_flush(f->s), 0);
    /* A commit that failed, or was never made. */
    assert_int_equal(vj_store_remove(f->s, back.id, back.loc), 0);
    expect_absent(f, &back);
    for (uint64_t id = 10; id < 30; id++) {
        put_one(f, id, 5000); /* not in its place */
    }
    vj_store_close(f->s);
    open_store(f, false, false);
    if (has_keys) {
        expect_absent(f, &lost);
        expect_object(f, &kept);
        expect_object(f, &back);
    } else if (f->stack->outlives_close) {
        expect_object(f, &kept);
    }
}

/* Four threads, each with objects of its own, and one object that all of them read. */
typedef struct Worker {
    Fixture *f;
    VjPut shared;
    uint64_t number;
    uint64_t first_bad_op; /* 0: none */
} Worker;

static bool read_matches(const Fixture *f, const VjPut *put)
{
    uint8_t want[4096], got[4096];
    int result =
        vj_store_get_unaligned(f->s, put->id, put->loc, 0, got, put->stored_bytes);

    if (!f->stack->keeps) {
        return result == -ENOENT;
    }
    fill(want, put->stored_bytes, put->id);
    return result == 0 && memcmp(got, want, put->stored_bytes) == 0;
}

/* A hint changes nothing, whatever it is about. */
static void test_expect(void **state)
{
    Fixture *f = *state;
    VjPut put = put_one(f, 1, 4000), gone = put_one(f, 2, 1000);
    VjLoc strange = {{0}};

    assert_int_equal(remove_one(f, 2, gone.loc), 0);
    vj_store_expect(f->s, 1, put.loc);
    vj_store_expect(f->s, 2, gone.loc);
    vj_store_expect(f->s, 3, put.loc);
    memset(&strange, 0xff, sizeof strange);
    vj_store_expect(f->s, 1, strange);
    assert_true(read_matches(f, &put));
}

static bool work_once(Worker *w, VjRng *rng, VjPut *mine, size_t count)
{
    VjPut *put = &mine[vj_rng_below(rng, count)];
    uint8_t bytes[4096];

    switch (vj_rng_below(rng, 8)) {
    case 0:
        return vj_store_flush(w->f->s) == 0;
    case 1:
        return read_matches(w->f, &w->shared);
    case 2:
    case 3:
        return put->stored_bytes == 0 || read_matches(w->f, put);
    default:
        break;
    }
    if (put->stored_bytes > 0) {
        VjPut removed = *put;

        *put = (VjPut){0};
        return remove_one(w->f, removed.id, removed.loc) == 0 &&
               (w->f->stack->one_dies ||
                vj_store_get_unaligned(w->f->s, removed.id, removed.loc, 0, bytes, 1) ==
                    -ENOENT);
    }
    /* Ids that share directories with the other threads'. */
    uint64_t id = vj_rng_below(rng, 40000) * 4 + w->number;
    struct iovec iov = {.iov_base = bytes, .iov_len = 1 + vj_rng_below(rng, 4096)};

    fill(bytes, iov.iov_len, id);
    if (vj_store_put_unaligned(w->f->s, id, &iov, 1, put) != 0) {
        return false;
    }
    commit(w->f, put, 1, NULL, 0);
    return true;
}

static void *work(void *opaque)
{
    Worker *w = opaque;
    VjPut mine[30] = {{0}};
    VjRng rng;

    vj_rng_init(&rng, w->number + 1);
    for (uint64_t op = 1; op <= 250 && w->first_bad_op == 0; op++) {
        if (!work_once(w, &rng, mine, G_N_ELEMENTS(mine))) {
            w->first_bad_op = op;
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    Fixture *f = *state;
    VjPut shared = put_one(f, (uint64_t)1 << 20, 3000);
    pthread_t threads[4];
    Worker workers[4];
    Seen seen = seen_new();

    for (size_t i = 0; i < 4; i++) {
        workers[i] = (Worker){.f = f, .shared = shared, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    /* Walks, and prunes what is empty, under their hands; the shared object stays seen.
     */
    for (int i = 0; i < 5; i++) {
        g_array_set_size(seen.puts, 0);
        assert_int_equal(vj_store_each(f->s, shared.id, shared.id, see, &seen), 0);
        assert_int_equal(seen.puts->len, f->stack->keeps ? 1 : 0);
        assert_int_equal(vj_store_each(f->s, 0, UINT64_MAX, see, &seen), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        if (workers[i].first_bad_op != 0) {
            fail_msg("thread %zu: operation %" G_GUINT64_FORMAT " went wrong", i,
                     workers[i].first_bad_op);
        }
    }
    assert_int_equal(vj_store_flush(f->s), 0);
    g_array_unref(seen.puts);
}

/* ---- requests in flight ------------------------------------------------------------ */

typedef struct Flight {
    VjMutex lock;
    VjCond changed;
    /* guarded by lock: */
    unsigned pending;
} Flight;

static void flight_init(Flight *t)
{
    vj_mutex_init(&t->lock, VJ_RANK_BASE, "flight");
    vj_cond_init(&t->changed);
    t->pending = 0;
}

static void landed(VjIo *io)
{
    Flight *t = io->opaque;

    vj_mutex_lock(&t->lock);
    assert_true(t->pending > 0);
    t->pending--;
    vj_cond_broadcast(&t->changed);
    vj_mutex_unlock(&t->lock);
}

static void take_off(const Fixture *f, Flight *t, VjIo *io)
{
    io->done = landed;
    io->opaque = t;
    vj_mutex_lock(&t->lock);
    t->pending++;
    vj_mutex_unlock(&t->lock);
    assert_true(vj_store_submit(f->s, io));
}

static void flight_wait(Flight *t)
{
    vj_mutex_lock(&t->lock);
    while (t->pending > 0) {
        vj_cond_wait(&t->changed, &t->lock);
    }
    vj_mutex_unlock(&t->lock);
}

static void flight_clear(Flight *t)
{
    flight_wait(t);
    vj_cond_clear(&t->changed);
    vj_mutex_clear(&t->lock);
}

static VjIo *new_put(uint64_t id, size_t len)
{
    g_autoptr(VjBuf) buf = vj_buf_new(vj_store_room_bytes(len));

    fill(buf->data, len, id);
    return vj_io_new_put(id, buf, len);
}

static void clear_ios(VjIo **ios, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        vj_io_unref(ios[i]);
    }
}

static void check_get(const Fixture *f, const VjIo *get)
{
    g_autofree uint8_t *want = g_malloc(get->len + 1);

    assert_int_equal(get->rc, f->stack->keeps ? 0 : -ENOENT);
    if (get->rc == 0) {
        fill(want, get->len, get->id);
        assert_memory_equal(get->buf->data, want, get->len);
    }
}

/* What the synchronous calls answer, of many at once. */
static void test_submit(void **state)
{
    enum { COUNT = 100 };
    Fixture *f = *state;
    VjIo *puts[COUNT], *gets[COUNT], *removes[COUNT], *flush = vj_io_new_flush();
    Flight t;

    flight_init(&t);
    for (uint64_t i = 0; i < COUNT; i++) {
        take_off(f, &t, puts[i] = new_put(i, i * 191));
    }
    flight_wait(&t);
    take_off(f, &t, flush);
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_int_equal(puts[i]->rc, 0);
        assert_true(puts[i]->put.id == i && puts[i]->put.stored_bytes == i * 191);
        commit(f, &puts[i]->put, 1, NULL, 0);
        take_off(f, &t, gets[i] = vj_io_new_get(i, puts[i]->put.loc, 0, i * 191));
    }
    flight_wait(&t);
    assert_int_equal(flush->rc, 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        check_get(f, gets[i]);
        take_off(f, &t, removes[i] = vj_io_new_remove(i, puts[i]->put.loc));
    }
    flight_wait(&t);
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_int_equal(removes[i]->rc, 0);
        commit(f, NULL, 0, &puts[i]->put, 1);
        if (i == 0 || !f->stack->one_dies) {
            expect_absent(f, &puts[i]->put);
        }
    }
    expect_each(f, NULL, 0, 0, UINT64_MAX);
    clear_ios(puts, COUNT);
    clear_ios(gets, COUNT);
    clear_ios(removes, COUNT);
    vj_io_unref(flush);
    flight_clear(&t);
}

/* Whoever is first: each is answered once, and what was not put is not there. */
static void test_cancel(void **state)
{
    enum { COUNT = 60 };
    Fixture *f = *state;
    VjPut kept[COUNT];
    VjIo *puts[COUNT];
    size_t kept_count = 0;
    Flight t;

    flight_init(&t);
    for (uint64_t i = 0; i < COUNT; i++) {
        puts[i] = new_put(i, 20000);
        puts[i]->deadline_us = i % 3 == 1 ? 1 : 0; /* has passed */
        take_off(f, &t, puts[i]);
        if (i % 3 == 0) {
            vj_store_cancel(f->s, puts[i]);
        }
    }
    flight_wait(&t);
    for (uint64_t i = 0; i < COUNT; i++) {
        int refused = i % 3 == 0 ? -ECANCELED : i % 3 == 1 ? -ETIMEDOUT : 0;

        assert_true(puts[i]->rc == 0 || puts[i]->rc == refused);
        if (puts[i]->rc == 0) {
            kept[kept_count++] = puts[i]->put;
            commit(f, &puts[i]->put, 1, NULL, 0);
            expect_object(f, &puts[i]->put);
        }
    }
    clear_ios(puts, COUNT);
    vj_store_close(f->s); /* waits for those that came too late, and they are removed */
    open_store(f, false, false);
    if (f->stack->outlives_close) {
        expect_each(f, kept, kept_count, 0, UINT64_MAX);
    }
    flight_clear(&t);
}

static const struct {
    const char *name;
    CMUnitTestFunction run;
} rows[] = {
    {"put_get", test_put_get},
    {"get_ranges", test_get_ranges},
    {"put_pieces", test_put_pieces},
    {"largest_object", test_largest_object},
    {"extreme_ids", test_extreme_ids},
    {"remove", test_remove},
    {"locators_are_fresh", test_locators_are_fresh},
    {"locator_of_another_id", test_locator_of_another_id},
    {"hostile_locator", test_hostile_locator},
    {"put_as", test_put_as},
    {"each", test_each},
    {"each_stops", test_each_stops},
    {"each_tells_the_time", test_each_tells_the_time},
    {"each_removing", test_each_removing},
    {"read_only", test_read_only},
    {"reopen", test_reopen},
    {"flush", test_flush},
    {"flush_removes", test_flush_removes},
    {"space", test_space},
    {"stage", test_stage},
    {"uncommitted", test_uncommitted},
    {"expect", test_expect},
    {"threads", test_threads},
    {"submit", test_submit},
    {"cancel", test_cancel},
};

/* "name" or "name:options" */
static bool is_named(const char *spec, const char *name)
{
    return spec != NULL && g_str_has_prefix(spec, name) &&
           (spec[strlen(name)] == '\0' || spec[strlen(name)] == ':');
}

static bool is_tried(const char *name)
{
    bool found = false;

    for (size_t i = 0; i < G_N_ELEMENTS(stacks); i++) {
        found = found || is_named(stacks[i].driver, name);
        for (size_t w = 0; w < G_N_ELEMENTS(stacks[i].wraps); w++) {
            found = found || is_named(stacks[i].wraps[w], name);
        }
    }
    return found;
}

/* The room says which wrappers there are when it is asked for another. */
static void every_row_is_tried(void **state)
{
    VjStore next = {.ops = NULL}, *out;
    g_autoptr(GError) error = NULL;
    g_auto(GStrv) wrappers = NULL;
    const char *list;

    (void)state;
    for (size_t i = 0; vj_store_drivers[i] != NULL; i++) {
        if (!is_tried(vj_store_drivers[i]->name)) {
            fail_msg("store %s: add a row to test-store.c", vj_store_drivers[i]->name);
        }
    }
    assert_false(vj_store_wrap("nonesuch", &next, &out, &error));
    list = strstr(error->message, "this build has: ");
    assert_non_null(list);
    wrappers = g_strsplit(list + strlen("this build has: "), ", ", -1);
    assert_true(g_strv_length(wrappers) > 0);
    for (size_t i = 0; wrappers[i] != NULL; i++) {
        if (!is_tried(wrappers[i])) {
            fail_msg("wrapper %s: add a row to test-store.c", wrappers[i]);
        }
    }
}

int main(int argc, char **argv)
{
    enum { COUNT = G_N_ELEMENTS(stacks) * G_N_ELEMENTS(rows) };
    struct CMUnitTest tests[COUNT + 1] = {
        [COUNT] = cmocka_unit_test(every_row_is_tried),
    };
    char *names[COUNT];
    int failed;

    if (argc == 3 && strcmp(argv[1], "-p") == 0) {
        cmocka_set_test_filter(argv[2]);
    } else if (argc != 1) {
        fprintf(stderr, "usage: %s [-p PATTERN]\n", argv[0]);
        return 2;
    }
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    for (size_t i = 0; i < COUNT; i++) {
        const Stack *stack = &stacks[i / G_N_ELEMENTS(rows)];
        size_t row = i % G_N_ELEMENTS(rows);

        names[i] = g_strdup_printf("%s: %s", stack->name, rows[row].name);
        tests[i] = (struct CMUnitTest){.name = names[i],
                                       .test_func = rows[row].run,
                                       .setup_func = setup,
                                       .teardown_func = teardown,
                                       .initial_state = (void *)stack};
    }
    failed = _cmocka_run_group_tests("store", tests, COUNT + 1, NULL, NULL);
    for (size_t i = 0; i < COUNT; i++) {
        g_free(names[i]);
    }
    return failed;
}
