/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-shared.c - several sessions on one engine: what each sees of the others, and that
 * no order of their commits shows which would not have been one after another
 */
#include "shared-fixture.h"

#define SESSIONS 3u

/* Three sessions that read in one way. */
typedef struct World {
    const Way *way;
    char *spec;
    VjMeta *meta[SESSIONS];
    gint running; /* atomic */
} World;

static World world_new(const Way *way)
{
    World w = {.way = way, .spec = new_volume()};

    for (unsigned i = 0; i < SESSIONS; i++) {
        w.meta[i] = open_shared(w.spec, "one of three", way->wrapper, 0);
    }
    return w;
}

static void world_free(World *w)
{
    for (unsigned i = 0; i < SESSIONS; i++) {
        assert_int_equal(vj_meta_close(w->meta[i]), 0);
    }
    g_free(w->spec);
}

typedef void Main(World *w, unsigned session);

typedef struct Start {
    World *w;
    Main *main;
    unsigned session;
} Start;

static gpointer start(gpointer opaque)
{
    Start *s = opaque;

    s->main(s->w, s->session);
    g_atomic_int_add(&s->w->running, -1);
    return NULL;
}

/* Two threads in each session: the one writes, the other reads until all have written. */
static void run_all(World *w, Main *writer, Main *reader)
{
    Start starts[2 * SESSIONS];
    GThread *threads[2 * SESSIONS];

    w->running = 2 * SESSIONS;
    for (unsigned i = 0; i < 2 * SESSIONS; i++) {
        starts[i] = (Start){w, i < SESSIONS ? writer : reader, i % SESSIONS};
        threads[i] = g_thread_new("session", start, &starts[i]);
    }
    for (unsigned i = 0; i < 2 * SESSIONS; i++) {
        g_thread_join(threads[i]);
    }
}

static bool others_write(World *w)
{
    return g_atomic_int_get(&w->running) > (gint)SESSIONS;
}

/* Fewer rounds where each takes long. */
static unsigned rounds_of(const World *w)
{
    return w->way->wrapper == NULL ? 400 : 120;
}

/* ---- One after another ----------------------------------------------------------- */

static void sees_what_others_commit(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        World w = world_new(&ways[i]);
        bool is_live = i != 3 && i != 4; /* else it may take a while */

        for (uint64_t n = 1; n <= 3; n++) {
            assert_int_equal(add(w.meta[n % SESSIONS], "a", 1), 0);
            assert_int_equal(vj_meta_flush(w.meta[n % SESSIONS]), 0);
            assert_int_equal(count_of(w.meta[n % SESSIONS], "a"), n);
            for (unsigned k = 0; is_live && k < SESSIONS; k++) {
                assert_int_equal(count_of(w.meta[k], "a"), n);
            }
        }
        /* Those who read it long ago are told so by the conflict. */
        assert_int_equal(add(w.meta[1], "a", 1), 0);
        assert_int_equal(count_of(w.meta[1], "a"), 4);
        world_free(&w);
    }
}

/* ---- At the same time ------------------------------------------------------------ */

static void count_up(World *w, unsigned session)
{
    for (unsigned i = 0; i < rounds_of(w); i++) {
        g_assert(add(w->meta[session], "sum", 1) == 0);
    }
}

static void see_it_grow(World *w, unsigned session)
{
    Count c = {.key = "sum"};
    uint64_t last = 0;

    while (others_write(w)) {
        g_assert(vj_meta_view(w->meta[session], count_body, &c) == 0);
        g_assert(c.value >= last || !w->way->is_opaque);
        last = c.value;
    }
}

static void no_update_is_lost(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        World w = world_new(&ways[i]);

        run_all(&w, count_up, see_it_grow);
        for (unsigned k = 0; k < SESSIONS; k++) {
            assert_int_equal(add(w.meta[k], "sum", 0), 0); /* by which all are told */
            assert_int_equal(count_of(w.meta[k], "sum"), SESSIONS * rounds_of(&w));
        }
        world_free(&w);
    }
}

/* Two doctors: each may go when the other one stays. */
static int go_body(VjTxn *txn, void *opaque)
{
    const char *who = opaque, *other = strcmp(who, "x") == 0 ? "y" : "x";
    uint64_t is_here, stays;
    int rc = get_count(txn, who, &is_here);

    if (rc == 0) {
        rc = get_count(txn, other, &stays);
    }
    if (rc < 0) {
        return rc;
    }
    if (is_here != 0) {
        return stays != 0 ? put_count(txn, who, 0) : -EBUSY;
    }
    return put_count(txn, who, 1);
}

static void come_and_go(World *w, unsigned session)
{
    for (unsigned i = 0; i < rounds_of(w); i++) {
        int rc = vj_meta_run(w->meta[session], VJ_RUN_DEFAULT, go_body,
                             (void *)(session % 2 == 0 ? "x" : "y"));

        g_assert(rc == 0 || rc == -EBUSY);
    }
}

static int here_body(VjTxn *txn, void *opaque)
{
    const World *w = opaque;
    uint64_t x, y;
    int rc = get_count(txn, "x", &x);

    if (rc == 0) {
        rc = get_count(txn, "y", &y);
    }
    g_assert(rc != 0 || x + y > 0 || !w->way->is_opaque);
    return rc == 0 && x + y == 0 ? -EDOM : rc;
}

static void see_one_here(World *w, unsigned session)
{
    while (others_write(w)) {
        g_assert(vj_meta_view(w->meta[session], here_body, w) == 0);
    }
}

static void no_write_skew(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        World w = world_new(&ways[i]);

        assert_int_equal(add(w.meta[0], "x", 1), 0);
        assert_int_equal(add(w.meta[0], "y", 1), 0);
        for (unsigned k = 0; k < SESSIONS; k++) { /* with nothing old in their caches */
            assert_int_equal(add(w.meta[k], "x", 0), 0);
            assert_int_equal(add(w.meta[k], "y", 0), 0);
        }
        run_all(&w, come_and_go, see_one_here);
        world_free(&w);
    }
}

/* ---- Walks ----------------------------------------------------------------------- */

#define NAMES 12u

static int walk(VjTxn *txn, bool forward, uint64_t *names)
{
    VjSlice key = vj_slice(NULL, 0), value;
    uint8_t at[8];
    int rc;

    *names = 0;
    while ((rc = forward ? vj_txn_next(txn, VJ_SPACE_DENTRY, key, &key, &value)
                         : vj_txn_prev(txn, VJ_SPACE_DENTRY, key, &key, &value)) == 0) {
        memcpy(at, key.data, key.len);
        key = vj_slice(at, key.len);
        (*names)++;
    }
    return rc == -ENOENT ? 0 : rc;
}

/* Makes or removes a name of a directory, whose record counts them. */
static int toggle_body(VjTxn *txn, void *opaque)
{
    const uint8_t *name = opaque;
    VjSlice key = vj_slice(name, 1), value;
    uint64_t count, names;
    int rc = get_count(txn, "directory", &count);

    if (rc == 0) {
        rc = walk(txn, *name % 2 == 0, &names);
    }
    if (rc == 0 && names != count) {
        return -EDOM;
    }
    if (rc == 0) {
        rc = vj_txn_get(txn, VJ_SPACE_DENTRY, key, &value);
    }
    if (rc != 0 && rc != -ENOENT) {
        return rc;
    }
    if (rc == 0) {
        rc = vj_txn_del(txn, VJ_SPACE_DENTRY, key);
        return rc < 0 ? rc : put_count(txn, "directory", count - 1);
    }
    rc = vj_txn_put(txn, VJ_SPACE_DENTRY, key, key);
    return rc < 0 ? rc : put_count(txn, "directory", count + 1);
}

static void toggle(World *w, unsigned session)
{
    VjRng rng;

    vj_rng_init(&rng, session);
    for (unsigned i = 0; i < rounds_of(w); i++) {
        uint8_t name = (uint8_t)vj_rng_below(&rng, NAMES);

        g_assert(vj_meta_run(w->meta[session], VJ_RUN_DEFAULT, toggle_body, &name) == 0);
    }
}

static int list_body(VjTxn *txn, void *opaque)
{
    const World *w = opaque;
    uint64_t count, names = 0;
    int rc = get_count(txn, "directory", &count);

    for (unsigned i = 0; rc == 0 && i < 2; i++) {
        rc = walk(txn, i == 0, &names);
        g_assert(rc != 0 || names == count || !w->way->is_opaque);
        rc = rc == 0 && names != count ? -EDOM : rc;
    }
    return rc;
}

static void list(World *w, unsigned session)
{
    while (others_write(w)) {
        g_assert(vj_meta_view(w->meta[session], list_body, w) == 0);
    }
}

static void walks_are_guarded(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        World w = world_new(&ways[i]);

        run_all(&w, toggle, list);
        world_free(&w);
    }
}

/* A walk without a guard: where bodies see states alone, it is of one too. */
static int pair_body(VjTxn *txn, void *opaque)
{
    uint64_t names;
    int rc = walk(txn, *(const unsigned *)opaque % 2 == 0, &names);

    g_assert(rc != 0 || names % 2 == 0);
    return rc;
}

static int toggle_pair_body(VjTxn *txn, void *opaque)
{
    uint8_t first = *(const uint8_t *)opaque, second = (uint8_t)(first + NAMES);
    VjSlice value, one = vj_slice(&first, 1), other = vj_slice(&second, 1);
    int rc = vj_txn_get(txn, VJ_SPACE_DENTRY, one, &value);

    if (rc == 0) {
        rc = vj_txn_del(txn, VJ_SPACE_DENTRY, one);
        return rc < 0 ? rc : vj_txn_del(txn, VJ_SPACE_DENTRY, other);
    }
    if (rc == -ENOENT) {
        rc = vj_txn_put(txn, VJ_SPACE_DENTRY, one, one);
        return rc < 0 ? rc : vj_txn_put(txn, VJ_SPACE_DENTRY, other, other);
    }
    return rc;
}

static void toggle_pairs(World *w, unsigned session)
{
    VjRng rng;

    vj_rng_init(&rng, session);
    for (unsigned i = 0; i < rounds_of(w); i++) {
        uint8_t name = (uint8_t)vj_rng_below(&rng, NAMES);

        g_assert(vj_meta_run(w->meta[session], VJ_RUN_DEFAULT, toggle_pair_body, &name) ==
                 0);
    }
}

static void list_pairs(World *w, unsigned session)
{
    for (unsigned i = 0; others_write(w); i++) {
        g_assert(vj_meta_view(w->meta[session], pair_body, &i) == 0);
    }
}

static void walks_are_of_one_state(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        World w;

        if (!ways[i].is_opaque) {
            continue;
        }
        w = world_new(&ways[i]);
        run_all(&w, toggle_pairs, list_pairs);
        world_free(&w);
    }
}

/* ---- Runs ------------------------------------------------------------------------ */

typedef struct Meddler {
    VjMeta *other;
    unsigned runs, meddles;
    bool fails;
    uint64_t a, b;
} Meddler;

/* While it runs another session changes both keys. */
static int meddled_body(VjTxn *txn, void *opaque)
{
    Meddler *m = opaque;
    int rc = get_count(txn, "a", &m->a);

    m->runs++;
    if (rc == 0 && m->runs <= m->meddles) {
        assert_int_equal(add(m->other, "a", 1), 0);
        assert_int_equal(add(m->other, "b", 1), 0);
    }
    if (rc == 0) {
        rc = get_count(txn, "b", &m->b);
    }
    if (rc < 0 || m->fails) {
        return rc < 0 ? rc : -EDOM;
    }
    return txn->write ? put_count(txn, "c", m->a + m->b) : 0;
}

/* A body whose input was changed runs again, one that fails or changes nothing too,
 * unless it saw a snapshot. */
static void bodies_run_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        World w = world_new(&ways[i]);
        bool has_snapshot = i == 0 || i == 5;

        assert_int_equal(add(w.meta[0], "a", 1), 0);
        assert_int_equal(add(w.meta[0], "b", 1), 0);
        for (unsigned k = 0; k < 4; k++) {
            bool writes = k % 2 == 0;
            Meddler m = {.other = w.meta[1], .meddles = 2, .fails = k >= 2};
            int rc = writes ? vj_meta_run(w.meta[0], VJ_RUN_DEFAULT, meddled_body, &m)
                            : vj_meta_view(w.meta[0], meddled_body, &m);

            assert_int_equal(rc, m.fails ? -EDOM : 0);
            if (has_snapshot && (m.fails || !writes)) {
                assert_int_equal(m.runs, 1);
            } else {
                assert_true(m.runs >= 3);
            }
            assert_int_equal(m.a, m.b);
        }
        world_free(&w);
    }
}

static int same_twice_body(VjTxn *txn, void *opaque)
{
    Meddler *m = opaque;
    uint64_t again;
    int rc = get_count(txn, "a", &m->a);

    m->runs++;
    if (rc == 0 && m->runs == 1) {
        assert_int_equal(add(m->other, "a", 1), 0);
    }
    if (rc == 0) {
        rc = get_count(txn, "a", &again);
    }
    assert_true(rc < 0 || again == m->a);
    return rc;
}

/* What a transaction has read, it reads again. */
static void reads_are_repeatable(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        World w = world_new(&ways[i]);
        Meddler m = {.other = w.meta[1]};

        assert_int_equal(add(w.meta[0], "a", 1), 0);
        assert_int_equal(vj_meta_view(w.meta[0], same_twice_body, &m), 0);
        m.runs = 0;
        assert_int_equal(vj_meta_run(w.meta[0], VJ_RUN_DEFAULT, same_twice_body, &m), 0);
        world_free(&w);
    }
}

/* ---- Round trips ----------------------------------------------------------------- */

static void expect_calls(VjMeta *m, VjMetaCalls *last, uint64_t gets, uint64_t scans,
                         uint64_t applies)
{
    VjMetaCalls now;

    vj_meta_calls(m, &now);
    assert_int_equal(now.get_many - last->get_many, gets);
    assert_int_equal(now.scan - last->scan, scans);
    assert_int_equal(now.apply - last->apply, applies);
    assert_int_equal(now.count + now.clock, 0);
    *last = now;
}

/* A name in a directory: reads its record and that there is no such name. */
static int create_body(VjTxn *txn, void *opaque)
{
    const char *name = opaque;
    VjKey keys[] = {{VJ_SPACE_INODE, text("directory")}, {VJ_SPACE_INODE, text(name)}};
    uint64_t count, there = 0;
    int rc;

    vj_txn_expect(txn, keys, G_N_ELEMENTS(keys));
    rc = get_count(txn, "directory", &count);
    if (rc == 0) {
        rc = get_count(txn, name, &there);
    }
    if (rc < 0 || there != 0) {
        return rc < 0 ? rc : -EEXIST;
    }
    rc = put_count(txn, name, 1);
    return rc < 0 ? rc : put_count(txn, "directory", count + 1);
}

static void round_trips(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *near = open_shared(spec, "near", NULL, 0);
    VjMeta *far = open_shared(spec, "far", "latency:us=20", 0);
    VjMetaCalls last = {0};

    (void)state;
    assert_int_equal(add(near, "directory", 0), 0);
    expect_calls(far, &last, 0, 0, 0);
    /* One read and one apply; when the directory is known, an apply and what is not. */
    assert_int_equal(vj_meta_run(far, 0, create_body, (void *)"one"), 0);
    expect_calls(far, &last, 1, 0, 1);
    assert_int_equal(vj_meta_run(far, 0, create_body, (void *)"two"), 0);
    expect_calls(far, &last, 1, 0, 1);
    assert_int_equal(add(far, "directory", 0), 0);
    expect_calls(far, &last, 0, 0, 1);
    /* What it wrote and read it knows. */
    assert_int_equal(count_of(far, "directory"), 2);
    assert_int_equal(count_of(far, "one"), 1);
    assert_int_equal(vj_meta_flush(far), 0);
    expect_calls(far, &last, 0, 0, 0);
    /* Another session's change is a read once, and the same for a name that is gone. */
    assert_int_equal(vj_meta_run(near, 0, create_body, (void *)"three"), 0);
    assert_int_equal(count_of(far, "directory"), 3);
    expect_calls(far, &last, 1, 0, 0);
    assert_int_equal(count_of(far, "directory"), 3);
    assert_int_equal(count_of(far, "two"), 1);
    expect_calls(far, &last, 0, 0, 0);
    assert_int_equal(vj_meta_run(far, 0, create_body, (void *)"three"), -EEXIST);
    expect_calls(far, &last, 1, 0, 0);
    assert_int_equal(vj_meta_close(far), 0);
    assert_int_equal(vj_meta_close(near), 0);
}

/* A conflict brings what is there along. */
static void conflicts_cost_an_apply(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *near = open_shared(spec, "near", NULL, 0);
    VjMeta *far = open_shared(spec, "far", "latency:us=0,watch=late", 0);
    Count c = {.key = "a", .value = 1};
    VjMetaCalls calls;

    (void)state;
    assert_int_equal(add(far, "a", 1), 0);
    assert_int_equal(add(near, "a", 1), 0);
    assert_int_equal(vj_meta_run(far, VJ_RUN_DEFAULT, add_body, &c), 0);
    vj_meta_calls(far, &calls);
    /* A read and an apply each where the session hears of the change in time; an apply
     * that is refused and another one where it does not; and where it hears of it
     * between the two, what the refusal brought is not kept, but read again. */
    assert_true(calls.get_many + calls.apply <= 5);
    assert_int_equal(count_of(near, "a"), 3);
    assert_int_equal(vj_meta_close(far), 0);
    assert_int_equal(vj_meta_close(near), 0);
}

/* ---- What is reported ------------------------------------------------------------ */

typedef struct Heard {
    VjMutex lock;
    GString *keys; /* each followed by a blank; "*": any */
    VjCond more;
} Heard;

static void hear(void *opaque, const VjKey *key)
{
    Heard *h = opaque;

    if (key != NULL && key->space != VJ_SPACE_INODE) {
        return;
    }
    vj_mutex_lock(&h->lock);
    if (key != NULL) {
        g_string_append_len(h->keys, key->key.data, (gssize)key->key.len);
    }
    g_string_append(h->keys, key != NULL ? " " : "* ");
    vj_cond_broadcast(&h->more);
    vj_mutex_unlock(&h->lock);
}

static void heard_until(Heard *h, const char *all)
{
    vj_mutex_lock(&h->lock);
    while (strcmp(h->keys->str, all) != 0) {
        vj_cond_wait(&h->more, &h->lock);
    }
    g_string_truncate(h->keys, 0);
    vj_mutex_unlock(&h->lock);
}

static int put_two_body(VjTxn *txn, void *opaque)
{
    int rc = put_count(txn, "b", 1);

    (void)opaque;
    return rc < 0 ? rc : put_count(txn, "c", 1);
}

static void changes_are_reported(void **state)
{
    static const VjMetaEvents events = {.changed = hear};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        World w = world_new(&ways[i]);
        Heard h = {.keys = g_string_new(NULL)};

        vj_mutex_init(&h.lock, VJ_RANK_BASE, "test heard");
        vj_cond_init(&h.more);
        vj_meta_listen(w.meta[0], &events, &h);
        assert_int_equal(add(w.meta[0], "own", 1), 0);
        assert_int_equal(add(w.meta[1], "a", 1), 0);
        assert_int_equal(vj_meta_run(w.meta[2], 0, put_two_body, NULL), 0);
        if (strstr(ways[i].name, "unheard") != NULL) {
            heard_until(&h, "* ");
        } else {
            heard_until(&h, "a b c ");
            assert_int_equal(count_of(w.meta[0], "a"), 1);
        }
        vj_meta_listen(w.meta[0], NULL, NULL);
        assert_int_equal(add(w.meta[1], "a", 1), 0);
        assert_int_equal(h.keys->len, 0);
        g_string_free(h.keys, TRUE);
        vj_cond_clear(&h.more);
        vj_mutex_clear(&h.lock);
        world_free(&w);
    }
}

/* ---- Opening --------------------------------------------------------------------- */

static void refused(const char *spec, bool read_only, int code, const char *says)
{
    VjSessionOpen session = {.name = "a test", .shared = true};
    VjMetaPlace place = {.dir_fd = -1, .session = &session, .read_only = read_only};
    g_autoptr(GError) error = NULL;
    VjMeta *m;

    assert_false(vj_meta_open(spec, &place, &m, &error));
    assert_int_equal(error->code, code);
    assert_non_null(strstr(error->message, says));
}

static void what_cannot_be_shared(void **state)
{
    g_autofree char *spec = new_volume();

    (void)state;
    refused("lmdb", false, EOPNOTSUPP, "lmdb: it cannot be used by several sessions");
    refused(spec, true, EINVAL, "has to write its record");
    refused("memory:name=nobody", false, ENOENT, "no such metadata");
}

static gpointer join_main(gpointer opaque)
{
    return open_shared(opaque, "one of many", NULL, 0);
}

static void numbers_differ(void **state)
{
    enum { MANY = 16 };
    g_autofree char *spec = new_volume();
    GThread *threads[MANY];
    VjMeta *all[MANY];
    bool used[MANY + 1] = {false};

    (void)state;
    for (unsigned i = 0; i < MANY; i++) {
        threads[i] = g_thread_new("join", join_main, spec);
    }
    for (unsigned i = 0; i < MANY; i++) {
        all[i] = g_thread_join(threads[i]);
        assert_true(vj_meta_is_shared(all[i]));
        assert_in_range(vj_meta_session(all[i]), 1, MANY);
        assert_false(used[vj_meta_session(all[i])]);
        used[vj_meta_session(all[i])] = true;
    }
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(vj_meta_close(all[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sees_what_others_commit), cmocka_unit_test(no_update_is_lost),
        cmocka_unit_test(no_write_skew),           cmocka_unit_test(walks_are_guarded),
        cmocka_unit_test(walks_are_of_one_state),  cmocka_unit_test(bodies_run_again),
        cmocka_unit_test(reads_are_repeatable),    cmocka_unit_test(round_trips),
        cmocka_unit_test(conflicts_cost_an_apply), cmocka_unit_test(changes_are_reported),
        cmocka_unit_test(what_cannot_be_shared),   cmocka_unit_test(numbers_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
