/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-session.c - exclusive sessions: their numbers, records and fences
 */
#include "meta-fixture.h"

static const char *const drivers[] = {"lmdb", "lmdb:redo=0", "memory"};

/* ---- Opening --------------------------------------------------------------------- */

static VjMeta *open_session(const Fixture *f, const char *spec, const char *name)
{
    VjSessionOpen session = {.name = name};
    VjMetaPlace place = {
        .dir_fd = f->dir_fd, .path = f->path, .session = name != NULL ? &session : NULL};
    GError *error = NULL;
    VjMeta *m;

    if (!vj_meta_open(spec, &place, &m, &error)) {
        fail_msg("open: %s", error->message);
    }
    return m;
}

/* A volume that somebody made. */
static Fixture made(const char *spec)
{
    Fixture f = fixture_new(spec);

    assert_int_equal(vj_meta_session(f.meta), 0);
    assert_int_equal(vj_meta_close(f.meta), 0);
    f.meta = NULL;
    return f;
}

static void free_made(Fixture *f)
{
    f->meta = NULL;
    fixture_free(f);
}

typedef struct List {
    GArray *all; /* of VjSessionInfo */
    uint64_t has_ended_of;
    bool has_ended;
} List;

static int list_body(VjTxn *txn, void *opaque)
{
    List *l = opaque;
    int rc = vj_session_list(txn, l->all);

    return rc < 0 ? rc : vj_session_has_ended(txn, l->has_ended_of, &l->has_ended);
}

/* Those of which a record is there, "1 2+" for instance; +: has ended. */
static char *listed(VjMeta *m)
{
    List l = {.all = g_array_new(FALSE, FALSE, sizeof(VjSessionInfo))};
    GString *text = g_string_new(NULL);

    assert_int_equal(vj_meta_view(m, list_body, &l), 0);
    for (guint i = 0; i < l.all->len; i++) {
        const VjSessionInfo *info = &g_array_index(l.all, VjSessionInfo, i);

        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT "%s", i > 0 ? " " : "",
                               info->id, info->has_ended ? "+" : "");
        assert_int_equal(info->expires_us, 0);
        assert_int_equal(info->epoch, 0);
    }
    g_array_unref(l.all);
    return g_string_free(text, FALSE);
}

static void assert_listed(VjMeta *m, const char *all)
{
    g_autofree char *text = listed(m);

    assert_string_equal(text, all);
}

static bool has_ended(VjMeta *m, uint64_t id)
{
    List l = {.all = g_array_new(FALSE, FALSE, sizeof(VjSessionInfo)),
              .has_ended_of = id};

    assert_int_equal(vj_meta_view(m, list_body, &l), 0);
    g_array_unref(l.all);
    return l.has_ended;
}

static int forget_body(VjTxn *txn, void *opaque)
{
    return vj_session_forget(txn, *(const uint64_t *)opaque);
}

/* ---- Numbers --------------------------------------------------------------------- */

static void numbers_go_on(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(drivers); i++) {
        Fixture f = made(drivers[i]);

        for (uint64_t n = 1; n <= 3; n++) {
            g_autofree char *own = g_strdup_printf("%" G_GUINT64_FORMAT, n);
            VjMeta *m = open_session(&f, drivers[i], "a mount");

            assert_int_equal(vj_meta_session(m), n);
            assert_false(vj_meta_is_shared(m));
            assert_listed(m, own);
            assert_int_equal(put_numbered(m, VJ_SPACE_INODE, n, 10), 0);
            assert_int_equal(vj_meta_flush(m), 0);
            assert_listed(m, own);
            assert_int_equal(vj_meta_close(m), 0);
        }
        /* Who has no record sees that nobody left one. */
        f.meta = open_session(&f, drivers[i], NULL);
        assert_int_equal(vj_meta_session(f.meta), 0);
        assert_listed(f.meta, "");
        assert_int_equal(vj_meta_close(f.meta), 0);
        free_made(&f);
    }
}

/* A session that left its record has ended for the next one, until that forgets it. */
static void a_record_is_left(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(drivers); i++) {
        Fixture f = made(drivers[i]);
        VjMeta *m = open_session(&f, drivers[i], "one");
        uint64_t first = 1;

        vj_meta_leave_record(m);
        assert_int_equal(put_numbered(m, VJ_SPACE_INODE, 7, 10), 0);
        assert_int_equal(vj_meta_close(m), 0);
        m = open_session(&f, drivers[i], "two");
        assert_int_equal(vj_meta_session(m), 2);
        assert_listed(m, "1+ 2");
        assert_true(has_ended(m, 0));
        assert_true(has_ended(m, 1));
        assert_false(has_ended(m, 2));
        assert_true(has_ended(m, 3));
        assert_int_equal(vj_meta_run(m, VJ_RUN_RELEASE, forget_body, &first), 0);
        assert_int_equal(vj_meta_run(m, VJ_RUN_RELEASE, forget_body, &first), 0);
        assert_listed(m, "2");
        assert_int_equal(vj_meta_close(m), 0);
        free_made(&f);
    }
}

static int damage_body(VjTxn *txn, void *opaque)
{
    (void)opaque;
    return vj_txn_put(txn, VJ_SPACE_SYSTEM,
                      vj_slice(VJ_NEXT_SESSION_KEY, strlen(VJ_NEXT_SESSION_KEY)),
                      vj_slice("nothing", 7));
}

/* The next number is then one that was never given. */
static void the_counter_is_damaged(void **state)
{
    Fixture f = made("memory");
    VjMeta *m = open_session(&f, "memory", "one");
    uint64_t second;

    (void)state;
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, damage_body, NULL), 0);
    vj_meta_leave_record(m);
    assert_int_equal(vj_meta_close(m), 0);
    m = open_session(&f, "memory", "two");
    second = vj_meta_session(m);
    assert_true(second > 1000);
    assert_int_equal(vj_meta_close(m), 0);
    m = open_session(&f, "memory", "three");
    assert_int_equal(vj_meta_session(m), second + 1);
    assert_int_equal(vj_meta_close(m), 0);
    free_made(&f);
}

static void names(void **state)
{
    Fixture f = made("memory");
    VjMeta *m = open_session(&f, "memory", "mount /mnt, pid 7 on host");
    List l = {.all = g_array_new(FALSE, FALSE, sizeof(VjSessionInfo))};

    (void)state;
    assert_int_equal(vj_meta_view(m, list_body, &l), 0);
    assert_string_equal(g_array_index(l.all, VjSessionInfo, 0).name,
                        "mount /mnt, pid 7 on host");
    g_array_unref(l.all);
    assert_int_equal(vj_meta_close(m), 0);
    free_made(&f);
}

/* Who only reads has none. */
static void read_only(void **state)
{
    Fixture f = made("memory");
    VjSessionOpen session = {.name = "a reader"};
    VjMetaPlace place = {
        .dir_fd = f.dir_fd, .path = f.path, .session = &session, .read_only = true};
    VjMeta *m;

    (void)state;
    assert_true(vj_meta_open("memory", &place, &m, NULL));
    assert_int_equal(vj_meta_session(m), 0);
    assert_listed(m, "");
    assert_int_equal(vj_meta_close(m), 0);
    free_made(&f);
}

/* ---- Fences ---------------------------------------------------------------------- */

static void note_shut_out(void *opaque)
{
    g_atomic_int_inc((gint *)opaque);
}

/* Another one that believes itself alone takes over: what the first one has not applied
 * by then never is. */
static void the_first_is_shut_out(void **state)
{
    static const VjMetaEvents events = {.shut_out = note_shut_out};
    Fixture f = made("memory");
    VjMeta *one = open_session(&f, "memory", "one"), *two;
    gint told = 0;

    (void)state;
    vj_meta_listen(one, &events, &told);
    assert_int_equal(put_numbered(one, VJ_SPACE_INODE, 1, 10), 0);
    assert_int_equal(vj_meta_flush(one), 0); /* the engine has its record */
    assert_int_equal(put_numbered(one, VJ_SPACE_INODE, 2, 10), 0);
    assert_int_equal(vj_meta_flush(one), 0); /* and checks it */
    two = open_session(&f, "memory", "two");
    assert_listed(two, "1+ 2");
    assert_int_equal(put_numbered(two, VJ_SPACE_INODE, 3, 10), 0);
    assert_int_equal(vj_meta_flush(two), 0);
    assert_int_equal(put_numbered(one, VJ_SPACE_INODE, 4, 10), 0);
    assert_int_equal(vj_meta_flush(one), -ESTALE);
    assert_int_equal(put_numbered(one, VJ_SPACE_INODE, 5, 10), -ESTALE);
    assert_int_equal(vj_meta_flush(one), -ESTALE);
    while (g_atomic_int_get(&told) == 0) {
        g_thread_yield();
    }
    vj_meta_listen(one, NULL, NULL);
    assert_int_equal(vj_meta_close(one), -ESTALE);
    assert_int_equal(g_atomic_int_get(&told), 1);
    assert_int_equal(get_numbered(two, VJ_SPACE_INODE, 2), 10);
    assert_int_equal(get_numbered(two, VJ_SPACE_INODE, 4), -ENOENT);
    assert_int_equal(vj_meta_close(two), 0);
    free_made(&f);
}

/* What another one changed of a record, or took away, is a fence as well. */
static void a_forgotten_session_is_shut_out(void **state)
{
    Fixture f = made("memory");
    VjMeta *one = open_session(&f, "memory", "one"), *two;
    uint64_t first = 1;

    (void)state;
    assert_int_equal(put_numbered(one, VJ_SPACE_INODE, 1, 10), 0);
    assert_int_equal(vj_meta_flush(one), 0);
    two = open_session(&f, "memory", "two");
    assert_int_equal(vj_meta_run(two, VJ_RUN_RELEASE, forget_body, &first), 0);
    assert_int_equal(vj_meta_flush(two), 0);
    assert_int_equal(put_numbered(one, VJ_SPACE_INODE, 4, 10), 0);
    assert_int_equal(vj_meta_flush(one), -ESTALE);
    assert_int_equal(vj_meta_close(one), -ESTALE);
    assert_listed(two, "2");
    assert_int_equal(vj_meta_close(two), 0);
    free_made(&f);
}

/* ---- Claims ---------------------------------------------------------------------- */

typedef struct Claims {
    uint64_t holder;
    bool held, more;
} Claims;

static int claims_body(VjTxn *txn, void *opaque)
{
    Claims *c = opaque;
    VjSlice key, value;
    unsigned left = 0;

    assert_int_equal(vj_claim_holder(txn, VJ_CLAIM_CONTENT, 5, &c->holder), 0);
    assert_int_equal(c->holder, 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(vj_claim_take(txn, VJ_CLAIM_CONTENT, 5, &c->holder), 0);
        assert_int_equal(c->holder, 1);
        assert_int_equal(vj_hold_put(txn, 9), 0);
    }
    assert_int_equal(vj_claim_take(txn, VJ_CLAIM_REAPER, 0, &c->holder), 0);
    assert_int_equal(vj_claim_holder(txn, VJ_CLAIM_CONTENT, 5, &c->holder), 0);
    assert_int_equal(c->holder, 1);
    assert_int_equal(vj_hold_any(txn, 9, &c->held), 0);
    assert_true(c->held);
    assert_int_equal(vj_hold_any(txn, 8, &c->held), 0);
    assert_false(c->held);
    assert_int_equal(vj_hold_del(txn, 8), 0);
    assert_int_equal(vj_claim_drop(txn, VJ_CLAIM_CONTENT, 6), 0);
    /* One of the three, then the rest. */
    assert_int_equal(vj_claims_release(txn, 1, 1, &c->more), 0);
    assert_true(c->more);
    assert_int_equal(vj_claims_release(txn, 1, 2, &c->more), 0);
    assert_false(c->more);
    assert_int_equal(vj_hold_any(txn, 9, &c->held), 0);
    assert_false(c->held);
    while (vj_txn_next(txn, VJ_SPACE_CLAIM, VJ_SCAN_ALL, &key, &value) == 0) {
        left++;
        assert_int_equal(vj_txn_del(txn, VJ_SPACE_CLAIM, key), 0);
    }
    assert_int_equal(left, 0);
    /* By its own hand. */
    assert_int_equal(vj_claim_take(txn, VJ_CLAIM_CONTENT, 5, &c->holder), 0);
    assert_int_equal(vj_hold_put(txn, 9), 0);
    assert_int_equal(vj_claim_drop(txn, VJ_CLAIM_CONTENT, 5), 0);
    assert_int_equal(vj_hold_del(txn, 9), 0);
    assert_int_equal(vj_hold_del(txn, 9), 0);
    return vj_txn_next(txn, VJ_SPACE_CLAIM, VJ_SCAN_ALL, &key, &value) == -ENOENT ? 0
                                                                                  : -EIO;
}

static void claims_of_one(void **state)
{
    Fixture f = made("memory");
    VjMeta *m = open_session(&f, "memory", "one");
    Claims c;

    (void)state;
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, claims_body, &c), 0);
    assert_int_equal(vj_meta_close(m), 0);
    free_made(&f);
}

/* ---- The writer's turn ----------------------------------------------------------- */

/* Waiters that nobody wants any more, in front of one that still waits. */
#define CANCELLED 4u
#define HAND_ON_ROUNDS 50u
/* So that a wake-up that was lost fails the test and does not hang it. */
#define WAIT_US ((int64_t)20 * 1000 * 1000)

typedef struct Waiter {
    VjSession *session;
    VjCancel cancel;
    GThread *thread;
    int rc;
} Waiter;

static gpointer wait_main(gpointer opaque)
{
    Waiter *w = opaque;

    vj_cancel_enter(&w->cancel);
    w->rc = vj_session_writer_begin(w->session, vj_cancel_deadline_us(), false);
    if (w->rc == 0) {
        vj_session_writer_end(w->session);
    }
    assert_ptr_equal(vj_cancel_leave(), &w->cancel);
    return NULL;
}

static bool waits(Waiter *w)
{
    bool does;

    vj_mutex_lock(&w->cancel.lock);
    does = w->cancel.cond == &w->session->writer_ended;
    vj_mutex_unlock(&w->cancel.lock);
    return does;
}

/* Returns when it waits. */
static void start_waiter(Waiter *w, VjSession *s)
{
    w->session = s;
    vj_cancel_init(&w->cancel);
    vj_cancel_reset(&w->cancel, 1, WAIT_US);
    w->thread = g_thread_new("waiter", wait_main, w);
    while (!waits(w)) {
        g_thread_yield();
    }
    /* It has the lock until it sleeps. */
    vj_mutex_lock(&s->writer);
    vj_mutex_unlock(&s->writer);
}

static int end_waiter(Waiter *w)
{
    g_thread_join(w->thread);
    vj_cancel_clear(&w->cancel);
    return w->rc;
}

static void hand_on(VjSession *s)
{
    Waiter cancelled[CANCELLED], last;

    assert_int_equal(vj_session_writer_begin(s, INT64_MAX, false), 0);
    for (size_t i = 0; i < CANCELLED; i++) {
        start_waiter(&cancelled[i], s);
    }
    start_waiter(&last, s);
    for (size_t i = 0; i < CANCELLED; i++) {
        /* Wakes none of them. */
        __atomic_store_n(&cancelled[i].cancel.fired, 1, __ATOMIC_SEQ_CST);
    }
    vj_session_writer_end(s);
    assert_int_equal(end_waiter(&last), 0);
    for (size_t i = 0; i < CANCELLED; i++) {
        assert_int_equal(end_waiter(&cancelled[i]), -ECANCELED);
    }
}

/* One wake-up comes for each turn that ends.  A waiter that gets it and was cancelled at
 * the same time, by a thread that did not find it waiting any more, hands it on.  The
 * system chooses the waiter, hence the rounds. */
static void a_cancelled_waiter_hands_on(void **state)
{
    Fixture f = made("memory");
    VjMeta *m = open_session(&f, "memory", NULL);

    (void)state;
    for (unsigned i = 0; i < HAND_ON_ROUNDS; i++) {
        hand_on(vj_session_of(m));
    }
    assert_int_equal(vj_meta_close(m), 0);
    free_made(&f);
}

/* One that is woken to be cancelled leaves the turn to the thread that has it. */
static void a_cancelled_waiter_goes(void **state)
{
    Fixture f = made("memory");
    VjMeta *m = open_session(&f, "memory", NULL);
    VjSession *s = vj_session_of(m);
    Waiter cancelled, last;

    (void)state;
    assert_int_equal(vj_session_writer_begin(s, INT64_MAX, false), 0);
    start_waiter(&cancelled, s);
    start_waiter(&last, s);
    vj_cancel_fire(&cancelled.cancel, 1);
    assert_int_equal(end_waiter(&cancelled), -ECANCELED);
    assert_true(s->has_writer);
    vj_session_writer_end(s);
    assert_int_equal(end_waiter(&last), 0);
    assert_int_equal(vj_meta_close(m), 0);
    free_made(&f);
}

typedef struct Trier {
    VjSession *session;
    bool is_writer;
} Trier;

static gpointer try_main(gpointer opaque)
{
    Trier *t = opaque;

    t->is_writer = vj_session_writer_try(t->session);
    if (t->is_writer) {
        vj_session_writer_end(t->session);
    }
    return NULL;
}

/* By another thread. */
static bool try_to_write(VjSession *s)
{
    Trier t = {.session = s};

    g_thread_join(g_thread_new("try", try_main, &t));
    return t.is_writer;
}

static int try_body(VjTxn *txn, void *opaque)
{
    assert_false(try_to_write(vj_session_of_txn(txn)));
    *(unsigned *)opaque += 1;
    return 0;
}

static void another_thread_writes(void **state)
{
    Fixture f = made("memory");
    VjMeta *m = open_session(&f, "memory", NULL);
    VjSession *s = vj_session_of(m);
    unsigned runs = 0;

    (void)state;
    assert_true(try_to_write(s));
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, try_body, &runs), 0);
    assert_int_equal(runs, 1);
    assert_true(vj_session_writer_try(s));
    assert_false(try_to_write(s));
    assert_true(s->has_writer); /* what failed has not ended it */
    vj_session_writer_end(s);
    assert_true(try_to_write(s));
    assert_int_equal(vj_meta_close(m), 0);
    free_made(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_go_on),
        cmocka_unit_test(a_record_is_left),
        cmocka_unit_test(the_counter_is_damaged),
        cmocka_unit_test(names),
        cmocka_unit_test(read_only),
        cmocka_unit_test(the_first_is_shut_out),
        cmocka_unit_test(a_forgotten_session_is_shut_out),
        cmocka_unit_test(claims_of_one),
        cmocka_unit_test(a_cancelled_waiter_hands_on),
        cmocka_unit_test(a_cancelled_waiter_goes),
        cmocka_unit_test(another_thread_writes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
