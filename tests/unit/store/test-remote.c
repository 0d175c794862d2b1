/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The driver remote over sockets, with nodes that die, come back with and without their
 * disk, hang, are full, or belong to others.
 */
#include "../../lib/node-model.h"
#include "store-test.h"

#include "store/remote-private.h"

enum { NODES = 3, LEN = 3000 };

typedef struct Fixture {
    char *path;
    VjStore *s;
    const char *options;
    NodeModel *models[NODES];
    NodeServer *servers[NODES]; /* NULL: is down */
} Fixture;

static const char volume[] = "3f2504e0-4f89-41d3-9a0c-0305e82c3301";

static char *path_of(const Fixture *f, unsigned node)
{
    return g_strdup_printf("%s/node%u", f->path, node);
}

static void start(Fixture *f, unsigned node)
{
    g_autofree char *path = path_of(f, node);

    f->servers[node] = node_server_start(f->models[node], path);
}

static void stop(Fixture *f, unsigned node)
{
    node_server_stop(g_steal_pointer(&f->servers[node]));
}

static bool try_open(Fixture *f, const char *options, const VjStorePlace *place,
                     VjStore **s, GError **error)
{
    g_autofree char *spec = NULL;
    GString *nodes = g_string_new(NULL);
    bool ok;

    for (unsigned i = 0; i < NODES; i++) {
        g_autofree char *path = path_of(f, i);

        g_string_append_printf(nodes, "%sunix:%s", i > 0 ? "," : "", path);
    }
    spec = g_strdup_printf("remote:%s:insecure,%s", nodes->str, options);
    g_string_free(nodes, TRUE);
    ok = vj_store_open(spec, place, s, error);
    return ok;
}

static void open_store(Fixture *f, bool create, bool read_only)
{
    VjStorePlace place = {
        .dir_fd = -1, .volume = volume, .create = create, .read_only = read_only};
    g_autoptr(GError) error = NULL;

    if (!try_open(f, f->options, &place, &f->s, &error)) {
        fail_msg("%s", error->message);
    }
}

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);

    f->options = *state != NULL ? *state : "replicas=2,timeout=20";
    f->path = vj_test_make_dir();
    for (unsigned i = 0; i < NODES; i++) {
        f->models[i] = node_model_new(i, VJ_MIB);
        start(f, i);
    }
    open_store(f, true, false);
    vj_store_close(f->s);
    open_store(f, false, false);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;

    vj_store_close(f->s);
    for (unsigned i = 0; i < NODES; i++) {
        if (f->servers[i] != NULL) {
            stop(f, i);
        }
        node_model_free(f->models[i]);
    }
    vj_test_remove_dir(f->path);
    g_free(f);
    return 0;
}

static VjStoreHealth health_of(Fixture *f)
{
    VjStoreHealth health;

    vj_store_health(f->s, &health);
    return health;
}

/* Until as many nodes are live; the test hangs, and is ended, when they never are. */
static void wait_for_live(Fixture *f, unsigned live)
{
    VjRemote *r = (VjRemote *)f->s;

    vj_mutex_lock(&r->lock);
    while (vj_node_count(r->live) != live) {
        vj_cond_wait(&r->changed, &r->lock);
    }
    vj_mutex_unlock(&r->lock);
}

static VjNodeSet nodes_of(VjLoc loc)
{
    uint64_t nonce;
    VjNodeSet nodes;

    assert_true(vj_remote_loc_decode(loc, &nonce, &nodes));
    return nodes;
}

static uint64_t nonce_of(VjLoc loc)
{
    uint64_t nonce;
    VjNodeSet nodes;

    assert_true(vj_remote_loc_decode(loc, &nonce, &nodes));
    return nonce;
}

/* Nodes that have it, also those that are down. */
static VjNodeSet copies(Fixture *f, const VjPut *put)
{
    VjNodeSet set = 0;

    for (unsigned i = 0; i < NODES; i++) {
        if (f->servers[i] != NULL) {
            node_server_lock(f->servers[i]);
        }
        if (node_model_has(f->models[i], put->id, nonce_of(put->loc)) >= 0) {
            set |= vj_node_bit(i);
        }
        if (f->servers[i] != NULL) {
            node_server_unlock(f->servers[i]);
        }
    }
    return set;
}

static unsigned lowest(VjNodeSet set)
{
    assert_true(set != 0);
    return vj_node_next(set, 0);
}

/* Where the object of that id goes first, when all nodes are live. */
static unsigned first_node(uint64_t id)
{
    static const uint32_t weights[NODES] = {1, 1, 1};
    uint8_t order[NODES];

    vj_placement_rank(id, weights, NODES, order);
    return order[0];
}

static bool verify(void *opaque, VjSlice stored)
{
    const VjPut *put = opaque;
    g_autofree uint8_t *want = g_malloc(put->stored_bytes + 1);

    vj_store_test_fill(want, put->stored_bytes, put->id);
    return stored.len == put->stored_bytes && memcmp(stored.data, want, stored.len) == 0;
}

/* Without what follows when the record is durable. */
static int heal_only(Fixture *f, VjPut *put, bool *can_trim)
{
    VjStoreHealed healed;
    int rc = vj_store_heal(f->s, put, verify, put, &healed);

    put->loc = healed.loc;
    *can_trim = healed.can_trim;
    return rc;
}

static int heal(Fixture *f, VjPut *put)
{
    VjStoreHealed healed;
    bool can_trim;
    int rc = heal_only(f, put, &can_trim);

    if ((rc == 0 || rc == -EAGAIN) && can_trim) {
        rc = vj_store_trim(f->s, put, verify, put, &healed);
        put->loc = healed.loc;
    }
    return rc;
}

static bool wants_heal(Fixture *f, const VjPut *put)
{
    bool wants;

    assert_int_equal(vj_store_survey(f->s, put, 1, &wants), 0);
    return wants;
}

/* ---- options ----------------------------------------------------------------------- */

static void test_options(void **state)
{
    static const struct {
        const char *spec, *says;
    } bad[] = {
        {"remote", "no node is named"},
        {"remote:replicas=2", "no node is named"},
        {"remote:a,b:replicas=3", "replicas=3 with 2 nodes"},
        {"remote:a,-,b:replicas=3", "replicas=3 with 2 nodes"},
        {"remote:a,b:replicas=9", "above the most"},
        {"remote:a,b,a", "twice"},
        {"remote:a,b:weight=1", "1 of them for 2"},
        {"remote:a,b:weight=1/x", "no number"},
        {"remote:a,b:weight=1/1001", "no number"},
        {"remote:a,b:weight=0/0", "no node"},
        {"remote:-:replicas=1", "no node"},
        {"remote:a,:replicas=1", ""},
        {"remote:a:volume=", "volume"},
        {"remote:a:nonesuch=1", "address"},
    };
    static const char *const good[] = {
        "remote:a", "remote:a:7843,[::1]:1,unix:/x:replicas=3,weight=1/0/1000",
        "remote:nodes=a\\,b,replicas=2", "remote:a,-,b:replicas=2,insecure"};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;

        if (vj_store_spec_check(bad[i].spec, &error)) {
            fail_msg("%s is taken", bad[i].spec);
        }
        vj_test_expect_error(&error, EINVAL, bad[i].says);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
        g_autoptr(GError) error = NULL;

        if (!vj_store_spec_check(good[i], &error)) {
            fail_msg("%s: %s", good[i], error->message);
        }
    }
    assert_int_equal(vj_store_needs("remote:a,unix:/x"), VJ_NEEDS_UNIX | VJ_NEEDS_TCP);
    assert_int_equal(vj_store_needs("remote:unix:/x,-:insecure"), VJ_NEEDS_UNIX);
    assert_int_equal(vj_store_needs("remote:a"), VJ_NEEDS_TCP);
    assert_int_equal(vj_store_needs("posix"), VJ_NEEDS_FILES);
}

/* ---- which nodes ------------------------------------------------------------------- */

static void test_placement(void **state)
{
    Fixture *f = *state;

    for (uint64_t id = 1; id <= 20; id++) {
        VjPut put = vj_store_test_put(f->s, id, LEN);

        assert_int_equal(vj_node_count(nodes_of(put.loc)), 2);
        assert_true(copies(f, &put) == nodes_of(put.loc));
        assert_true((nodes_of(put.loc) & vj_node_bit(first_node(id))) != 0);
        assert_true(vj_store_test_matches(f->s, &put));
        assert_false(wants_heal(f, &put));
    }
    assert_int_equal(vj_store_flush(f->s), 0);
    assert_true(health_of(f).degraded_puts == 0);
    assert_int_equal(vj_store_test_object_count(f->s), 20);
}

/* A part of a buffer is sent from where it is, to each node, and let go of. */
static void test_put_held(void **state)
{
    static const size_t lengths[][2] = {{1, 0}, {1, 30}, {100000, 0}, {70001, 501}};
    Fixture *f = *state;

    for (uint64_t id = 1; id <= G_N_ELEMENTS(lengths); id++) {
        size_t first = lengths[id - 1][0], rest = lengths[id - 1][1];
        g_autoptr(VjBuf) holder = vj_buf_new(10 + first + 5);
        g_autofree uint8_t *bytes = g_malloc(first + rest);
        struct iovec iov[2] = {{.iov_base = holder->data + 10, .iov_len = first},
                               {.iov_base = bytes + first, .iov_len = rest}};
        VjPut put;

        vj_store_test_fill(bytes, first + rest, id);
        memcpy(holder->data + 10, bytes, first);
        assert_int_equal(vj_store_put_held(f->s, id, holder, iov, 2, &put), 0);
        assert_int_equal(put.stored_bytes, first + rest);
        assert_int_equal(vj_node_count(copies(f, &put)), 2);
        assert_true(vj_store_test_matches(f->s, &put));
        memset(bytes, 0, first + rest);
        assert_int_equal(vj_store_get_checked(f->s, id, put.loc, 0, bytes, first + rest),
                         0);
        assert_true(verify(&put, vj_slice(bytes, first + rest)));
    }
    assert_int_equal(vj_store_flush(f->s), 0);
}

/* The nodes of a list keep their bits where one was taken out of it. */
static void test_hole(void **state)
{
    Fixture *f = *state;
    VjPut put = vj_store_test_put(f->s, 1, LEN);
    unsigned gone = lowest(nodes_of(put.loc));
    g_autoptr(GString) spec = g_string_new("remote:");
    VjStorePlace place = {.dir_fd = -1, .volume = volume};
    g_autoptr(GError) error = NULL;
    VjStoreNode node;

    vj_store_close(f->s);
    for (unsigned i = 0; i < NODES; i++) {
        g_autofree char *path = path_of(f, i);

        g_string_append_printf(spec, "%s%s%s", i > 0 ? "," : "",
                               i == gone ? "-" : "unix:", i == gone ? "" : path);
    }
    g_string_append(spec, ":insecure,replicas=2");
    assert_true(vj_store_open(spec->str, &place, &f->s, &error));
    assert_true(vj_store_test_matches(f->s, &put));
    assert_true(wants_heal(f, &put));
    assert_int_equal(heal(f, &put), 0);
    assert_true((nodes_of(put.loc) & vj_node_bit(gone)) == 0);
    assert_int_equal(vj_node_count(nodes_of(put.loc)), 2);
    assert_int_equal(health_of(f).nodes, 2);
    assert_true(vj_store_node(f->s, gone, &node));
    assert_string_equal(node.address, "");
    assert_string_equal(node.state, "removed");
    assert_false(vj_store_node(f->s, NODES, &node));
}

/* ---- nodes that go ----------------------------------------------------------------- */

static void test_puts_without_a_node(void **state)
{
    Fixture *f = *state;
    VjPut before = vj_store_test_put(f->s, 1, LEN), put;
    uint64_t changes = health_of(f).changes;

    stop(f, first_node(1));
    assert_true(vj_store_test_matches(f->s, &before));
    put = vj_store_test_put(f->s, 1, LEN);
    assert_true((nodes_of(put.loc) & vj_node_bit(first_node(1))) == 0);
    assert_int_equal(vj_node_count(nodes_of(put.loc)), 2);
    assert_true(health_of(f).degraded_puts == 0);
    assert_int_equal(health_of(f).dead, 1);
    assert_true(health_of(f).changes > changes);
    assert_int_equal(vj_store_flush(f->s), 0);

    stop(f, (first_node(1) + 1) % NODES);
    put = vj_store_test_put(f->s, 2, LEN);
    assert_int_equal(vj_node_count(nodes_of(put.loc)), 1);
    assert_true(health_of(f).degraded_puts >= 1);
    assert_int_equal(vj_store_flush(f->s), 0);
    assert_true(vj_store_test_matches(f->s, &put));
    assert_int_equal(heal(f, &put), -EAGAIN);

    /* Those that come back get what they have missed. */
    start(f, first_node(1));
    start(f, (first_node(1) + 1) % NODES);
    wait_for_live(f, NODES);
    assert_true(wants_heal(f, &put));
    assert_int_equal(heal(f, &put), 0);
    assert_int_equal(vj_node_count(nodes_of(put.loc)), 2);
    assert_true(copies(f, &put) == nodes_of(put.loc));
    assert_false(wants_heal(f, &put));
}

typedef struct Waiting {
    Fixture *f;
    VjPut put;
    int rc;
} Waiting;

static gpointer put_in_thread(gpointer opaque)
{
    Waiting *waiting = opaque;

    waiting->rc = vj_store_test_try_put(waiting->f->s, 9, LEN, &waiting->put);
    return NULL;
}

static gpointer get_in_thread(gpointer opaque)
{
    Waiting *waiting = opaque;

    waiting->rc = vj_store_test_matches(waiting->f->s, &waiting->put) ? 0 : -EIO;
    return NULL;
}

/* Until a request of the store waits for a node. */
static void wait_for_waiting(Fixture *f)
{
    VjRemote *r = (VjRemote *)f->s;
    bool waits = false;

    while (!waits) {
        vj_mutex_lock(&r->lock);
        waits = r->waiting.length > 0;
        vj_mutex_unlock(&r->lock);
        g_thread_yield();
    }
}

/* Without any node requests wait for one. */
static void test_no_node(void **state)
{
    Fixture *f = *state;
    Waiting put = {.f = f}, get = {.f = f, .put = vj_store_test_put(f->s, 1, LEN)};
    GThread *thread;

    for (unsigned i = 0; i < NODES; i++) {
        stop(f, i);
    }
    wait_for_live(f, 0);
    thread = g_thread_new("put", put_in_thread, &put);
    wait_for_waiting(f);
    start(f, 1);
    g_thread_join(thread);
    assert_int_equal(put.rc, 0);
    assert_true(nodes_of(put.put.loc) == vj_node_bit(1));

    stop(f, 1);
    wait_for_live(f, 0);
    thread = g_thread_new("get", get_in_thread, &get);
    wait_for_waiting(f);
    start(f, lowest(nodes_of(get.put.loc)));
    g_thread_join(thread);
    assert_int_equal(get.rc, 0);
}

static const VjRemoteSeam *real_seam;
static gint puts_sent, puts_with_helper; /* atomic */

static void submit_and_count(VjRpcClient *c, VjRpcCall *call)
{
    if (call->op == VJ_OP_PUT) {
        g_atomic_int_inc(&puts_sent);
        g_atomic_int_add(&puts_with_helper, call->has_helper);
    }
    real_seam->submit(c, call);
}

/* Whoever waits for a put runs the loop of rpc for what it sends itself.  What is sent
 * after a wait, the loop's own thread has to be called for. */
static void test_helper(void **state)
{
    Fixture *f = *state;
    static VjRemoteSeam seam;
    Waiting put = {.f = f};
    GThread *thread;

    vj_store_close(f->s); /* its threads look at the seam */
    real_seam = vj_remote_seam;
    seam = *real_seam;
    seam.submit = submit_and_count;
    vj_remote_seam = &seam;
    puts_sent = puts_with_helper = 0;
    open_store(f, false, false);
    wait_for_live(f, NODES);
    put.put = vj_store_test_put(f->s, 1, LEN);
    assert_int_equal(g_atomic_int_get(&puts_sent), 2);
    assert_int_equal(g_atomic_int_get(&puts_with_helper), 2);
    for (unsigned i = 0; i < NODES; i++) {
        stop(f, i);
    }
    wait_for_live(f, 0);
    thread = g_thread_new("put", put_in_thread, &put);
    wait_for_waiting(f);
    start(f, 1);
    g_thread_join(thread);
    assert_int_equal(put.rc, 0);
    vj_store_close(f->s);
    vj_remote_seam = real_seam;
    open_store(f, false, false);
    assert_true(g_atomic_int_get(&puts_sent) > 2);
    assert_int_equal(g_atomic_int_get(&puts_with_helper), 2);
}

static void test_no_node_in_time(void **state)
{
    Fixture *f = *state;
    VjPut put = vj_store_test_put(f->s, 1, LEN), other;

    for (unsigned i = 0; i < NODES; i++) {
        stop(f, i);
    }
    assert_int_equal(vj_store_test_try_put(f->s, 2, LEN, &other), -ETIMEDOUT);
    assert_int_equal(vj_store_test_get_byte(f->s, &put), -ETIMEDOUT);
    assert_int_equal(vj_store_remove(f->s, put.id, put.loc), 0);
    assert_int_equal(vj_store_each(f->s, 0, UINT64_MAX, vj_store_test_count, NULL), -EIO);
}

/* ---- nodes that hang --------------------------------------------------------------- */

/* The other replica is asked after a while, and its answer counts. */
static void test_hedge(void **state)
{
    Fixture *f = *state;
    VjPut put = vj_store_test_put(f->s, 1, LEN);
    unsigned first = first_node(1);

    node_server_hold(f->servers[first], VJ_OP_GET);
    for (int i = 0; i < 5; i++) {
        assert_true(vj_store_test_matches(f->s, &put));
    }
    assert_true(((VjRemote *)f->s)->hedges >= 1);
    assert_int_equal(health_of(f).live, NODES);
    node_server_hold(f->servers[first], 0);
    assert_true(vj_store_test_matches(f->s, &put));
}

/* A node that was lost in the middle of a put: the next one takes its place. */
static void test_put_hangs(void **state)
{
    Fixture *f = *state;
    Waiting waiting = {.f = f};
    unsigned first = first_node(9);
    GThread *thread;

    node_server_hold(f->servers[first], VJ_OP_PUT);
    thread = g_thread_new("put", put_in_thread, &waiting);
    /* It is there when the node has been asked. */
    for (bool asked = false; !asked; g_thread_yield()) {
        node_server_lock(f->servers[first]);
        asked = node_server_held(f->servers[first]) > 0;
        node_server_unlock(f->servers[first]);
    }
    stop(f, first);
    g_thread_join(thread);
    assert_int_equal(waiting.rc, 0);
    assert_int_equal(vj_node_count(nodes_of(waiting.put.loc)), 2);
    assert_true((nodes_of(waiting.put.loc) & vj_node_bit(first)) == 0);
    assert_true(copies(f, &waiting.put) == nodes_of(waiting.put.loc));
}

/* ---- durability -------------------------------------------------------------------- */

/* The process ends and another starts: what no flush has covered is gone. */
static void crash(Fixture *f, unsigned node)
{
    stop(f, node);
    node_model_crash(f->models[node]);
    start(f, node);
}

static void test_flush_after_a_crash(void **state)
{
    Fixture *f = *state;
    VjPut put = vj_store_test_put(f->s, 1, LEN);
    unsigned first = first_node(1),
             second = lowest(nodes_of(put.loc) & ~vj_node_bit(first));

    crash(f, first);
    wait_for_live(f, NODES);
    assert_int_equal(vj_store_flush(f->s), 0); /* the other one has it */
    assert_true(health_of(f).degraded_puts == 1);
    crash(f, second);
    wait_for_live(f, NODES);
    assert_true(vj_store_test_matches(f->s, &put));
    assert_true(copies(f, &put) == vj_node_bit(second));
    assert_int_equal(heal(f, &put), 0);
    assert_true(copies(f, &put) == nodes_of(put.loc));
    assert_int_equal(vj_node_count(nodes_of(put.loc)), 2);
    crash(f, first);
    crash(f, second);
    wait_for_live(f, NODES);
    assert_int_equal(vj_node_count(copies(f, &put)), 2);
}

/* Lost at all nodes: flush says so until the caller has removed it. */
static void test_flush_fails(void **state)
{
    Fixture *f = *state;
    VjPut lost = vj_store_test_put(f->s, 1, LEN), kept;

    VJ_NODE_EACH(i, nodes_of(lost.loc))
    {
        crash(f, i);
    }
    wait_for_live(f, NODES);
    assert_int_equal(vj_store_flush(f->s), -EIO);
    assert_int_equal(vj_store_flush(f->s), -EIO);
    kept = vj_store_test_put(f->s, 2, LEN);
    assert_int_equal(vj_store_flush(f->s), -EIO);
    assert_int_equal(vj_store_remove(f->s, lost.id, lost.loc), 0);
    assert_int_equal(vj_store_flush(f->s), 0);
    assert_true(vj_store_test_matches(f->s, &kept));
}

/* A connection that was lost takes nothing with it. */
static void test_same_process_comes_back(void **state)
{
    Fixture *f = *state;
    VjPut put = vj_store_test_put(f->s, 1, LEN);

    for (unsigned i = 0; i < NODES; i++) {
        /* It is seen to be away first: a flush does not wait for what it sees to be. */
        stop(f, i);
        wait_for_live(f, NODES - 1);
        start(f, i);
        wait_for_live(f, NODES);
    }
    assert_int_equal(vj_store_flush(f->s), 0);
    assert_true(health_of(f).degraded_puts == 0);
    for (unsigned i = 0; i < NODES; i++) {
        crash(f, i);
    }
    wait_for_live(f, NODES);
    assert_true(copies(f, &put) == nodes_of(put.loc));
}

static void fail_flush(Fixture *f, unsigned node)
{
    node_server_lock(f->servers[node]);
    node_model_fail_flush(f->models[node], 1);
    node_server_unlock(f->servers[node]);
}

static uint64_t removes(Fixture *f, unsigned node)
{
    uint64_t count;

    node_server_lock(f->servers[node]);
    count = node_model_requests(f->models[node], VJ_OP_REMOVE);
    node_server_unlock(f->servers[node]);
    return count;
}

/* Removes of one call go together: at most two requests to each node. */
static void test_removes_go_together(void **state)
{
    enum { COUNT = 300 };
    Fixture *f = *state;
    VjPut puts[COUNT];
    int results[COUNT];
    uint64_t gone = 0;

    for (uint64_t i = 0; i < COUNT; i++) {
        puts[i] = vj_store_test_put(f->s, i + 1, LEN);
    }
    assert_int_equal(vj_store_flush(f->s), 0);
    vj_store_remove_all(f->s, puts, COUNT, results);
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_int_equal(results[i], 0);
        gone += copies(f, &puts[i]) == 0;
    }
    assert_true(gone == COUNT);
    for (unsigned i = 0; i < NODES; i++) {
        assert_in_range(removes(f, i), 1, 2);
    }
}

/* As the healer does it, which comes again when not all could be done. */
static int heal_at_last(Fixture *f, VjPut *put)
{
    int rc;

    do {
        g_thread_yield();
        rc = heal(f, put);
    } while (rc == -EAGAIN);
    return rc;
}

/* A node that cannot sync: the other one has it, and heal puts it anew. */
static void test_node_cannot_flush(void **state)
{
    Fixture *f = *state;
    VjPut put;
    unsigned first = first_node(1);

    fail_flush(f, first);
    put = vj_store_test_put(f->s, 1, LEN);
    assert_int_equal(vj_store_flush(f->s), 0);
    assert_true(health_of(f).degraded_puts == 1);
    assert_true(vj_store_test_matches(f->s, &put));
    assert_true(copies(f, &put) == nodes_of(put.loc));
    assert_true(wants_heal(f, &put));
    assert_int_equal(heal(f, &put), 0);
    assert_false(wants_heal(f, &put));
    assert_int_equal(vj_node_count(nodes_of(put.loc)), 2);
    assert_true(copies(f, &put) == nodes_of(put.loc));
    vj_store_test_put(f->s, 2, LEN);
    assert_int_equal(vj_store_flush(f->s), 0);
    assert_true(health_of(f).degraded_puts == 1);
}

/* And does not come back: heal does not wait for that. */
static void test_node_cannot_flush_and_goes(void **state)
{
    Fixture *f = *state;
    VjPut put;
    unsigned first = first_node(1);

    fail_flush(f, first);
    put = vj_store_test_put(f->s, 1, LEN);
    assert_int_equal(vj_store_flush(f->s), 0);
    stop(f, first);
    wait_for_live(f, NODES - 1);
    assert_true(wants_heal(f, &put));
    assert_int_equal(heal(f, &put), 0);
    assert_int_equal(vj_node_count(nodes_of(put.loc)), 2);
    assert_true((nodes_of(put.loc) & vj_node_bit(first)) == 0);
    start(f, first);
    wait_for_live(f, NODES);
    assert_int_equal(heal(f, &put), 0);
    assert_true(copies(f, &put) == nodes_of(put.loc));
    assert_false(wants_heal(f, &put));
}

/* A node that cannot make one object durable keeps what it had of others, and others are
 * mended from it. */
static void test_flush_fails_of_another(void **state)
{
    Fixture *f = *state;
    VjPut good, bad;

    stop(f, 2);
    wait_for_live(f, NODES - 1);
    good = vj_store_test_put(f->s, 1, LEN);
    assert_int_equal(vj_store_flush(f->s), 0);
    fail_flush(f, 0);
    bad = vj_store_test_put(f->s, 2, LEN);
    assert_int_equal(vj_store_flush(f->s), 0);
    node_server_lock(f->servers[1]);
    assert_true(node_model_damage(f->models[1], 1, nonce_of(good.loc), true));
    node_server_unlock(f->servers[1]);

    assert_int_equal(heal(f, &good), -EAGAIN);
    assert_true(removes(f, 0) == 0);
    assert_true(copies(f, &good) == 3);
    assert_true(nodes_of(good.loc) == 3);
    stop(f, 0);
    assert_true(vj_store_test_matches(f->s, &good));
    start(f, 0);
    wait_for_live(f, NODES - 1);
    assert_int_equal(heal_at_last(f, &bad), 0);
    assert_int_equal(heal_at_last(f, &good), 0);
    assert_false(wants_heal(f, &bad));
}

/* Two nodes that cannot sync: one fails for another object, and the other may have lost
 * this one.  Neither replica is taken away before a third node has it. */
static void test_two_nodes_cannot_flush(void **state)
{
    Fixture *f = *state;
    VjPut put, other;
    uint64_t before[2];

    stop(f, 2);
    wait_for_live(f, NODES - 1);
    fail_flush(f, 1);
    put = vj_store_test_put(f->s, 1, LEN);
    assert_int_equal(vj_store_flush(f->s), 0);
    fail_flush(f, 0);
    other = vj_store_test_put(f->s, 2, LEN);
    assert_int_equal(vj_store_flush(f->s), -EIO);
    before[0] = removes(f, 0);
    before[1] = removes(f, 1);
    assert_int_equal(heal(f, &put), -EAGAIN);
    assert_true(removes(f, 0) == before[0] && removes(f, 1) == before[1]);
    assert_true(copies(f, &put) == 3);
    assert_true(nodes_of(put.loc) == 3);
    assert_true(wants_heal(f, &put));
    start(f, 2);
    wait_for_live(f, NODES);
    assert_int_equal(vj_store_remove(f->s, other.id, other.loc), 0);
    assert_int_equal(heal_at_last(f, &put), 0);
    assert_int_equal(vj_node_count(nodes_of(put.loc)), 2);
    assert_true(copies(f, &put) == nodes_of(put.loc));
    assert_false(wants_heal(f, &put));
}

/* A replica that a node has not acknowledged may be the last one. */
static void test_silent_replica(void **state)
{
    Fixture *f = *state;
    unsigned first = first_node(1);
    VjNodeSet named;
    VjPut put;

    node_server_mute(f->servers[first], VJ_OP_PUT);
    put = vj_store_test_put(f->s, 1, LEN);
    named = nodes_of(put.loc);
    assert_int_equal(vj_node_count(named), 2);
    assert_true((named & vj_node_bit(first)) == 0);
    assert_int_equal(vj_store_flush(f->s), 0);
    assert_true(wants_heal(f, &put));
    assert_true(removes(f, first) == 0);
    node_server_mute(f->servers[first], 0);
    VJ_NODE_EACH(i, named)
    {
        stop(f, i);
        node_model_crash(f->models[i]);
        node_model_lose_disk(f->models[i]);
        start(f, i);
    }
    wait_for_live(f, NODES);
    assert_int_equal(heal_at_last(f, &put), 0);
    assert_int_equal(vj_node_count(nodes_of(put.loc)), 2);
    assert_true(copies(f, &put) == nodes_of(put.loc));
    assert_false(wants_heal(f, &put));
    assert_true(vj_store_test_matches(f->s, &put));
}

/* ---- damage ------------------------------------------------------------------------ */

static void test_heal_damage(void **state)
{
    Fixture *f = *state;

    for (int cut = 0; cut < 2; cut++) {
        VjPut put = vj_store_test_put(f->s, 1, LEN);
        unsigned first = first_node(1);

        node_server_lock(f->servers[first]);
        assert_true(node_model_damage(f->models[first], 1, nonce_of(put.loc), cut));
        node_server_unlock(f->servers[first]);
        /* A replica that is too short shows itself, other damage the caller finds. */
        assert_int_equal(vj_store_test_matches(f->s, &put), cut);
        assert_int_equal(wants_heal(f, &put), cut);
        assert_int_equal(heal(f, &put), 0);
        assert_true(vj_store_test_matches(f->s, &put));
        assert_true(copies(f, &put) == nodes_of(put.loc));
    }
}

static void test_heal_of_nothing(void **state)
{
    Fixture *f = *state;
    VjPut put = vj_store_test_put(f->s, 1, LEN), never = put;

    never.id = 2;
    assert_int_equal(heal(f, &never), -ENOENT);
    VJ_NODE_EACH(i, nodes_of(put.loc))
    {
        node_server_lock(f->servers[i]);
        assert_true(node_model_damage(f->models[i], 1, nonce_of(put.loc), false));
        node_server_unlock(f->servers[i]);
    }
    assert_int_equal(heal(f, &put), -EBADMSG);
    assert_int_equal(vj_node_count(copies(f, &put)), 2); /* nothing was removed */
    stop(f, 0);
    assert_int_equal(heal(f, &put), -EAGAIN);
}

/* One that is to be emptied gets nothing, and heal takes all from it. */
static void test_drain(void **state)
{
    Fixture *f = *state;
    VjPut put = vj_store_test_put(f->s, 1, LEN), other;
    unsigned first = first_node(1);

    assert_false(vj_store_drain(f->s, NODES, true));
    assert_true(vj_store_drain(f->s, first, true));
    assert_int_equal(health_of(f).draining, 1);
    other = vj_store_test_put(f->s, 1, LEN);
    assert_true((nodes_of(other.loc) & vj_node_bit(first)) == 0);
    assert_true(wants_heal(f, &put));
    assert_int_equal(heal(f, &put), 0);
    assert_true((nodes_of(put.loc) & vj_node_bit(first)) == 0);
    assert_true(copies(f, &put) == nodes_of(put.loc));
    assert_true(vj_store_drain(f->s, first, false));
    assert_true(wants_heal(f, &put));
}

/* The old replica goes when the record that names the new one is durable, and not before:
 * that of a crash before that names the old one alone. */
static void test_old_replica_stays(void **state)
{
    Fixture *f = *state;
    VjPut before = vj_store_test_put(f->s, 1, LEN), put = before;
    unsigned first = first_node(1);
    uint64_t removed;
    VjStoreHealed healed;
    bool can_trim;

    assert_int_equal(vj_store_flush(f->s), 0);
    assert_true(vj_store_drain(f->s, first, true));
    removed = removes(f, first);
    assert_int_equal(heal_only(f, &put, &can_trim), 0);
    assert_true(can_trim);
    assert_int_equal(vj_node_count(nodes_of(put.loc)),
                     vj_node_count(nodes_of(before.loc)) + 1);
    assert_true((nodes_of(before.loc) & ~nodes_of(put.loc)) == 0);
    assert_true(copies(f, &put) == nodes_of(put.loc));
    assert_true(removes(f, first) == removed);

    /* A record that names too few others makes up for nothing. */
    assert_int_equal(vj_store_trim(f->s, &before, verify, &before, &healed), 0);
    assert_true(copies(f, &put) == nodes_of(put.loc));
    assert_true(removes(f, first) == removed);

    assert_int_equal(vj_store_trim(f->s, &put, verify, &put, &healed), 0);
    assert_true(nodes_of(healed.loc) == (nodes_of(put.loc) & ~vj_node_bit(first)));
    assert_true(copies(f, &put) == nodes_of(healed.loc));
}

/* ---- changes of the list ----------------------------------------------------------- */

static void change(Fixture *f, VjNodeChangeKind kind, const char *address)
{
    VjNodeChange c = {.kind = kind, .address = address, .weight = kind == VJ_NODE_ADD};
    g_autoptr(GError) error = NULL;

    if (!vj_store_change_begin(f->s, &c, &error)) {
        fail_msg("%s: %s", address, error->message);
    }
    vj_store_change_end(f->s, &c, true);
}

/* One is drained, removed, and comes again: at a place of its own. */
static void test_change(void **state)
{
    Fixture *f = *state;
    VjPut put = vj_store_test_put(f->s, 1, LEN), other, before;
    unsigned first = first_node(1), found = 0;
    g_autofree char *path = path_of(f, first);
    g_autofree char *address = g_strdup_printf("unix:%s", path);
    VjStoreNode node;

    assert_true(vj_store_loc_names(f->s, put.loc, first));
    before = put;
    before.loc = vj_remote_loc_encode(nonce_of(put.loc), vj_node_bit(first));
    change(f, VJ_NODE_DRAIN, address);
    assert_int_equal(health_of(f).draining, 1);
    assert_int_equal(heal(f, &put), 0);
    assert_false(vj_store_loc_names(f->s, put.loc, first));
    change(f, VJ_NODE_REMOVE, address);
    assert_int_equal(health_of(f).nodes, NODES - 1);
    assert_true(vj_store_node(f->s, first, &node));
    assert_string_equal(node.address, "");
    assert_false(node.is_live);
    other = vj_store_test_put(f->s, 1, LEN);
    assert_false(vj_store_loc_names(f->s, other.loc, first));
    assert_true(vj_store_test_matches(f->s, &put));
    assert_true(vj_store_test_matches(f->s, &before)); /* is looked for elsewhere */
    change(f, VJ_NODE_ADD, address);
    assert_int_equal(health_of(f).nodes, NODES);
    assert_true(vj_store_node(f->s, NODES, &node));
    assert_string_equal(node.address, address);
    assert_int_equal(node.weight, 1);
    wait_for_live(f, NODES);
    for (uint64_t id = 2; id < 40; id++) {
        other = vj_store_test_put(f->s, id, LEN);
        assert_false(vj_store_loc_names(f->s, other.loc, first));
        found += vj_store_loc_names(f->s, other.loc, NODES);
        assert_true(vj_store_test_matches(f->s, &other));
    }
    assert_true(found > 5);
    assert_int_equal(vj_store_flush(f->s), 0);
    change(f, VJ_NODE_ADD, address); /* of one that is there: its weight */
    assert_false(vj_store_node(f->s, NODES + 1, &node));
}

/* What has been begun and is not listed leaves nothing. */
static void test_change_undone(void **state)
{
    Fixture *f = *state;
    g_autofree char *path = path_of(f, 0);
    g_autofree char *address = g_strdup_printf("unix:%s", path);
    VjNodeChange c = {.kind = VJ_NODE_REMOVE, .address = address};
    VjStoreNode node;
    g_autoptr(GError) error = NULL;

    assert_true(vj_store_change_begin(f->s, &c, NULL));
    assert_int_equal(health_of(f).draining, 1);
    for (uint64_t id = 1; id < 9; id++) {
        VjPut put = vj_store_test_put(f->s, id, LEN);

        assert_false(vj_store_loc_names(f->s, put.loc, 0));
    }
    vj_store_change_end(f->s, &c, false);
    assert_int_equal(health_of(f).draining, 0);
    assert_true(vj_store_node(f->s, 0, &node));
    assert_true(node.is_live);
    change(f, VJ_NODE_REMOVE, address);
    c = (VjNodeChange){.kind = VJ_NODE_ADD, .address = address, .weight = 1};
    assert_true(vj_store_change_begin(f->s, &c, NULL));
    vj_store_change_end(f->s, &c, false);
    assert_false(vj_store_node(f->s, NODES, &node));
    stop(f, 0);
    assert_false(vj_store_change_begin(f->s, &c, &error));
    vj_test_expect_error(&error, ETIMEDOUT, "does not answer");
}

/* The same place by another name, and one of another volume. */
static void test_change_refused(void **state)
{
    Fixture *f = *state;
    g_autofree char *path = path_of(f, 0);
    g_autofree char *link = g_build_filename(f->path, "link", NULL);
    g_autofree char *address = g_strdup_printf("unix:%s", link);
    VjNodeChange c = {.kind = VJ_NODE_ADD, .address = address, .weight = 1};
    NodeModel *model = node_model_new(NODES, VJ_MIB);
    g_autofree char *other_path = path_of(f, NODES);
    g_autofree char *other = g_strdup_printf("unix:%s", other_path);
    g_autofree char *spec = g_strdup_printf("remote:%s:insecure", other);
    VjStorePlace place = {
        .dir_fd = -1, .volume = "3f2504e0-4f89-41d3-9a0c-0305e82c3302", .create = true};
    NodeServer *server = node_server_start(model, other_path);
    VjStore *foreign;
    VjStoreNode node;
    g_autoptr(GError) error = NULL;

    assert_int_equal(symlink(path, link), 0);
    assert_false(vj_store_change_begin(f->s, &c, &error));
    vj_test_expect_error(&error, EEXIST, "is node 0 of the list");
    assert_true(vj_store_open(spec, &place, &foreign, NULL));
    c.address = other;
    assert_false(vj_store_change_begin(f->s, &c, &error));
    vj_test_expect_error(&error, ENXIO, "another volume");
    vj_store_close(foreign);
    assert_false(vj_store_node(f->s, NODES, &node));
    node_server_stop(server);
    node_model_free(model);
}

/* ---- space ------------------------------------------------------------------------- */

/* A full node is passed over; when all are, it is ENOSPC. */
static void test_full(void **state)
{
    Fixture *f = *state;
    enum { LARGE = 200000 };
    VjStoreSpace space;
    unsigned count = 0;
    VjPut put;
    int rc;

    assert_int_equal(vj_store_space(f->s, &space), 0);
    assert_true(space.total_bytes == NODES * VJ_MIB / 2);
    while ((rc = vj_store_test_try_put(f->s, ++count, LARGE, &put)) == 0) {
        assert_true(vj_store_test_matches(f->s, &put));
    }
    assert_int_equal(rc, -ENOSPC);
    assert_true(count > 7); /* 5 fit at each of 3 nodes, twice each */
    assert_int_equal(vj_store_flush(f->s), 0);
}

/* ---- whose place it is ------------------------------------------------------------- */

/* They stand in lines of K=V between blanks. */
static void test_state_words(void **state)
{
    (void)state;
    for (VjRemoteState s = VJ_REMOTE_HOLE; s <= VJ_REMOTE_REFUSING; s++) {
        assert_null(strpbrk(vj_remote_state_word(s), " =\n"));
    }
}

static void test_foreign(void **state)
{
    Fixture *f = *state;
    VjStorePlace place = {.dir_fd = -1, .volume = "00000000-0000-0000-0000-000000000001"};
    g_autoptr(GError) error = NULL;
    VjStore *s = NULL;

    assert_false(try_open(f, "replicas=2", &place, &s, &error));
    assert_null(s);
    vj_test_expect_error(&error, ETIMEDOUT, "of another volume");
    place.volume = "no uuid";
    assert_false(try_open(f, "replicas=2", &place, &s, &error));
    vj_test_expect_error(&error, EINVAL, "no uuid");
}

static void test_create_needs_all(void **state)
{
    Fixture *f = *state;
    VjStorePlace place = {.dir_fd = -1, .volume = volume, .create = true};
    g_autoptr(GError) error = NULL;
    VjStore *s = NULL;

    stop(f, 2);
    assert_false(try_open(f, "replicas=2,timeout=1", &place, &s, &error));
    vj_test_expect_error(&error, ETIMEDOUT, "2 of 3 nodes");
}

/* A node that comes back with an empty disk is taken into use. */
static void test_empty(void **state)
{
    Fixture *f = *state;
    VjPut put = vj_store_test_put(f->s, 1, LEN);
    unsigned first = first_node(1);
    uint64_t changes;
    VjStoreNode node;

    assert_int_equal(vj_store_flush(f->s), 0);
    changes = health_of(f).changes;
    stop(f, first);
    wait_for_live(f, NODES - 1);
    node_model_lose_disk(f->models[first]);
    start(f, first);
    wait_for_live(f, NODES);
    assert_true(health_of(f).changes > changes);
    assert_true(vj_store_test_matches(f->s, &put));
    assert_true(wants_heal(f, &put));
    assert_int_equal(heal(f, &put), 0);
    assert_true(copies(f, &put) == nodes_of(put.loc));
    assert_int_equal(vj_node_count(nodes_of(put.loc)), 2);

    /* Not by one who may not change anything. */
    vj_store_close(f->s);
    stop(f, first);
    node_model_lose_disk(f->models[first]);
    start(f, first);
    open_store(f, false, true);
    assert_int_equal(health_of(f).live, NODES - 1);
    assert_true(vj_store_node(f->s, first, &node));
    assert_string_equal(node.state, "empty");
    assert_true(vj_store_test_matches(f->s, &put));
    assert_int_equal(heal(f, &put), -EROFS);
}

/* Two addresses of one place are one node. */
static void test_double(void **state)
{
    Fixture *f = *state;
    g_autofree char *path = path_of(f, 0), *other = path_of(f, 1), *link = NULL;
    g_autofree char *spec = NULL;
    VjStorePlace place = {.dir_fd = -1, .volume = volume};
    g_autoptr(GError) error = NULL;
    VjPut put;

    vj_store_close(f->s);
    link = g_strconcat(f->path, "/link", NULL);
    assert_int_equal(symlink(path, link), 0);
    spec = g_strdup_printf("remote:unix:%s,unix:%s,unix:%s:insecure,replicas=2", path,
                           link, other);
    assert_true(vj_store_open(spec, &place, &f->s, &error));
    assert_int_equal(health_of(f).live, 2);
    put = vj_store_test_put(f->s, 1, LEN);
    assert_int_equal(vj_node_count(nodes_of(put.loc)), 2);
    assert_true(copies(f, &put) == 3);
}

/* Two nodes that exchange their addresses are used again, and heal names them anew. */
static void test_exchanged(void **state)
{
    Fixture *f = *state;
    VjPut put = vj_store_test_put(f->s, 1, LEN);
    unsigned one = lowest(nodes_of(put.loc)),
             other = lowest((vj_node_bit(NODES) - 1) & ~nodes_of(put.loc));
    NodeModel *model = f->models[one];

    assert_int_equal(vj_store_flush(f->s), 0);
    stop(f, one);
    stop(f, other);
    wait_for_live(f, NODES - 2);
    f->models[one] = f->models[other];
    f->models[other] = model;
    start(f, one);
    start(f, other);
    wait_for_live(f, NODES);
    assert_true(vj_store_test_matches(f->s, &put));
    assert_true(copies(f, &put) != nodes_of(put.loc));
    assert_true(wants_heal(f, &put));
    assert_int_equal(heal(f, &put), 0);
    assert_true(copies(f, &put) == nodes_of(put.loc));
    assert_int_equal(vj_node_count(nodes_of(put.loc)), 2);
}

/* ---- listings ---------------------------------------------------------------------- */

/* Several pages, and with one node less than there are replicas. */
static void test_each(void **state)
{
    Fixture *f = *state;
    enum { COUNT = 9000 };
    uint64_t count = 0;

    for (uint64_t id = 1; id <= COUNT; id++) {
        VjPut put;

        assert_int_equal(vj_store_test_try_put(f->s, id, 1, &put), 0);
    }
    assert_int_equal(vj_store_test_object_count(f->s), COUNT);
    assert_int_equal(vj_store_each(f->s, 100, 199, vj_store_test_count, &count), 0);
    assert_int_equal(count, 100);
    stop(f, 1);
    assert_int_equal(vj_store_test_object_count(f->s), COUNT);
    stop(f, 2);
    assert_int_equal(vj_store_each(f->s, 0, UINT64_MAX, vj_store_test_count, &count),
                     -EIO);
}

#define REMOTE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define REMOTE_TEST_WITH(name, options)                                                  \
    cmocka_unit_test_prestate_setup_teardown(name, setup, teardown, (void *)(options))

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_options),
    REMOTE_TEST(test_placement),
    REMOTE_TEST(test_put_held),
    REMOTE_TEST(test_hole),
    REMOTE_TEST(test_puts_without_a_node),
    REMOTE_TEST(test_no_node),
    REMOTE_TEST(test_helper),
    REMOTE_TEST_WITH(test_no_node_in_time, "replicas=2,timeout=1"),
    REMOTE_TEST(test_hedge),
    REMOTE_TEST(test_put_hangs),
    REMOTE_TEST(test_flush_after_a_crash),
    REMOTE_TEST(test_flush_fails),
    REMOTE_TEST(test_same_process_comes_back),
    REMOTE_TEST(test_removes_go_together),
    REMOTE_TEST(test_node_cannot_flush),
    REMOTE_TEST(test_node_cannot_flush_and_goes),
    REMOTE_TEST(test_flush_fails_of_another),
    REMOTE_TEST(test_two_nodes_cannot_flush),
    REMOTE_TEST_WITH(test_silent_replica, "replicas=2,timeout=4"),
    REMOTE_TEST(test_heal_damage),
    REMOTE_TEST(test_heal_of_nothing),
    REMOTE_TEST(test_drain),
    REMOTE_TEST_WITH(test_old_replica_stays, "replicas=1,timeout=20"),
    REMOTE_TEST(test_full),
    cmocka_unit_test(test_state_words),
    REMOTE_TEST_WITH(test_foreign, "replicas=2,timeout=1"),
    REMOTE_TEST(test_create_needs_all),
    REMOTE_TEST(test_change),
    REMOTE_TEST_WITH(test_change_undone, "replicas=2,timeout=1"),
    REMOTE_TEST(test_change_refused),
    REMOTE_TEST(test_empty),
    REMOTE_TEST(test_double),
    REMOTE_TEST(test_exchanged),
    REMOTE_TEST(test_each),
};

VJ_TEST_MAIN(tests)
