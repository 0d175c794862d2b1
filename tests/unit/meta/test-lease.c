/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-lease.c - the ends of shared sessions: in order, by a lease that runs out, in the
 * middle of any call; and what the others do about it
 *
 * The clock is the engine's, which goes on when a test says so.
 */
#include "../../lib/shut-out.h"
#include "shared-fixture.h"

#define LEASE_US ((int64_t)30 * 1000 * 1000)
/* Of one that dies: for so long it tries to find out what became of its last commit. */
#define SHORT_LEASE_US ((int64_t)20 * 1000)

static void pass_time(VjMeta *m, int64_t us)
{
    vj_memory_clock_advance_for_test(vj_session_of(m)->engine, us);
}

/* ---- Who listens ----------------------------------------------------------------- */

typedef struct Listener {
    VjMeta *meta;
    VjMutex lock;
    VjCond changed;
    /* guarded by lock: */
    GArray *ended;  /* of uint64_t: those that were reported */
    unsigned calls; /* for sessions that had ended */
    bool forgets;
    unsigned shut_out;
} Listener;

typedef struct Release {
    uint64_t id;
    bool more;
} Release;

static int release_body(VjTxn *txn, void *opaque)
{
    Release *r = opaque;
    bool ended;
    int rc = vj_session_has_ended(txn, r->id, &ended);

    if (rc < 0) {
        return rc;
    }
    g_assert(ended);
    rc = vj_claims_release(txn, r->id, 2, &r->more);
    return rc < 0 || r->more ? rc : vj_session_forget(txn, r->id);
}

static void on_ended(void *opaque, uint64_t id)
{
    Listener *l = opaque;
    Release r = {.id = id, .more = true};
    bool forgets;
    int rc = 0;

    vj_mutex_lock(&l->lock);
    l->calls++;
    forgets = l->forgets;
    vj_mutex_unlock(&l->lock);
    while (forgets && rc == 0 && r.more) {
        rc = vj_meta_run(l->meta, VJ_RUN_RELEASE, release_body, &r);
        g_assert(rc == 0 || rc == -ESTALE);
    }
    vj_mutex_lock(&l->lock);
    g_array_append_val(l->ended, id);
    vj_cond_broadcast(&l->changed);
    vj_mutex_unlock(&l->lock);
}

static void on_shut_out(void *opaque)
{
    Listener *l = opaque;

    vj_mutex_lock(&l->lock);
    l->shut_out++;
    vj_cond_broadcast(&l->changed);
    vj_mutex_unlock(&l->lock);
}

static void listen_to(VjMeta *m, Listener *l, bool forgets)
{
    static const VjMetaEvents events = {.session_ended = on_ended,
                                        .shut_out = on_shut_out};

    *l = (Listener){.meta = m,
                    .forgets = forgets,
                    .ended = g_array_new(FALSE, FALSE, sizeof(uint64_t))};
    vj_mutex_init(&l->lock, VJ_RANK_BASE, "test listener");
    vj_cond_init(&l->changed);
    vj_meta_listen(m, &events, l);
}

static void stop_listening(Listener *l)
{
    vj_meta_listen(l->meta, NULL, NULL);
    g_array_unref(l->ended);
    vj_cond_clear(&l->changed);
    vj_mutex_clear(&l->lock);
}

static void wait_for_end_of(Listener *l, uint64_t id)
{
    bool found = false;

    vj_mutex_lock(&l->lock);
    while (!found) {
        for (guint i = 0; i < l->ended->len && !found; i++) {
            found = g_array_index(l->ended, uint64_t, i) == id;
        }
        if (!found) {
            vj_cond_wait(&l->changed, &l->lock);
        }
    }
    g_array_set_size(l->ended, 0);
    vj_mutex_unlock(&l->lock);
}

static void wait_for_shut_out(Listener *l)
{
    vj_mutex_lock(&l->lock);
    while (l->shut_out == 0) {
        vj_cond_wait(&l->changed, &l->lock);
    }
    assert_int_equal(l->shut_out, 1);
    vj_mutex_unlock(&l->lock);
}

/* ---- Small helpers --------------------------------------------------------------- */

/* "1 2+", as in test-session. */
static void assert_listed(VjMeta *m, const char *all)
{
    g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(VjSessionInfo));
    g_autoptr(GString) found = g_string_new(NULL);

    assert_int_equal(vj_meta_sessions(m, list), 0);
    for (guint i = 0; i < list->len; i++) {
        const VjSessionInfo *info = &g_array_index(list, VjSessionInfo, i);

        g_string_append_printf(found, "%s%" G_GUINT64_FORMAT "%s", i > 0 ? " " : "",
                               info->id, info->has_ended ? "+" : "");
    }
    assert_string_equal(found->str, all);
}

typedef struct Claim {
    VjClaimKind kind;
    uint64_t number;
    uint64_t holder; /* out */
    bool held;
} Claim;

static int take_body(VjTxn *txn, void *opaque)
{
    Claim *c = opaque;

    return c->kind == VJ_CLAIM_HOLD ? vj_hold_put(txn, c->number)
                                    : vj_claim_take(txn, c->kind, c->number, &c->holder);
}

static int take(VjMeta *m, VjClaimKind kind, uint64_t number, uint64_t *holder)
{
    Claim c = {.kind = kind, .number = number};
    int rc = vj_meta_run(m, VJ_RUN_DEFAULT, take_body, &c);

    *holder = c.holder;
    return rc;
}

static int drop_body(VjTxn *txn, void *opaque)
{
    Claim *c = opaque;

    return c->kind == VJ_CLAIM_HOLD ? vj_hold_del(txn, c->number)
                                    : vj_claim_drop(txn, c->kind, c->number);
}

static void drop(VjMeta *m, VjClaimKind kind, uint64_t number)
{
    Claim c = {.kind = kind, .number = number};

    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, drop_body, &c), 0);
}

static int look_body(VjTxn *txn, void *opaque)
{
    Claim *c = opaque;

    return c->kind == VJ_CLAIM_HOLD
               ? vj_hold_any(txn, c->number, &c->held)
               : vj_claim_holder(txn, c->kind, c->number, &c->holder);
}

static uint64_t holder_of(VjMeta *m, uint64_t ino)
{
    Claim c = {.kind = VJ_CLAIM_CONTENT, .number = ino};

    assert_int_equal(vj_meta_view(m, look_body, &c), 0);
    return c.holder;
}

static bool is_held(VjMeta *m, uint64_t object)
{
    Claim c = {.kind = VJ_CLAIM_HOLD, .number = object};

    assert_int_equal(vj_meta_view(m, look_body, &c), 0);
    return c.held;
}

static int claims_left_body(VjTxn *txn, void *opaque)
{
    VjSlice key, value;

    (void)opaque;
    return vj_txn_next(txn, VJ_SPACE_CLAIM, VJ_SCAN_ALL, &key, &value);
}

/* ---- In order -------------------------------------------------------------------- */

static void in_order(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, LEASE_US);
    VjMeta *two = open_shared(spec, "two", NULL, LEASE_US);
    Listener l;

    (void)state;
    listen_to(one, &l, true);
    assert_listed(one, "1 2");
    assert_int_equal(vj_meta_close(two), 0);
    assert_listed(one, "1");
    vj_lease_look_for_test(one);
    assert_int_equal(l.calls, 0);
    stop_listening(&l);
    assert_int_equal(vj_meta_close(one), 0);
}

/* Who still has something, or says so, leaves its record; others release it at once. */
static void with_something_left(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, LEASE_US);
    Listener l;
    uint64_t holder;

    (void)state;
    listen_to(one, &l, true);
    for (unsigned i = 0; i < 3; i++) {
        VjMeta *other = open_shared(spec, "other", NULL, LEASE_US);
        uint64_t id = vj_meta_session(other);

        if (i == 0) {
            assert_int_equal(take(other, VJ_CLAIM_CONTENT, 5, &holder), 0);
        } else if (i == 1) {
            assert_int_equal(take(other, VJ_CLAIM_HOLD, 5, &holder), 0);
        } else {
            vj_meta_leave_record(other);
        }
        assert_int_equal(vj_meta_close(other), 0);
        wait_for_end_of(&l, id);
        assert_listed(one, "1");
        assert_int_equal(vj_meta_view(one, claims_left_body, NULL), -ENOENT);
    }
    stop_listening(&l);
    assert_int_equal(vj_meta_close(one), 0);
}

/* ---- Leases ---------------------------------------------------------------------- */

static void a_lease_is_renewed(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, LEASE_US);
    VjMeta *two = open_shared(spec, "two", NULL, LEASE_US);

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        pass_time(one, LEASE_US / 2);
        vj_lease_look_for_test(one);
        vj_lease_look_for_test(two);
    }
    assert_listed(one, "1 2");
    assert_int_equal(add(one, "a", 1), 0);
    assert_int_equal(add(two, "a", 1), 0);
    assert_int_equal(vj_meta_close(two), 0);
    assert_int_equal(vj_meta_close(one), 0);
}

/* Half a lease is enough for nobody's end. */
static void who_hangs_is_shut_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        g_autofree char *spec = new_volume();
        VjMeta *one = open_shared(spec, "one", ways[i].wrapper, LEASE_US);
        VjMeta *two = open_shared(spec, "two", ways[i].wrapper, LEASE_US);
        Listener first, second;
        uint64_t holder;

        listen_to(one, &first, false);
        listen_to(two, &second, true);
        assert_int_equal(take(one, VJ_CLAIM_CONTENT, 5, &holder), 0);
        assert_int_equal(take(two, VJ_CLAIM_CONTENT, 5, &holder), -EBUSY);
        assert_int_equal(holder, 1);
        assert_int_equal(take(one, VJ_CLAIM_HOLD, 6, &holder), 0);
        assert_true(is_held(two, 6));
        vj_lease_never_renew_for_test(one);
        pass_time(two, LEASE_US / 2);
        vj_lease_look_for_test(two);
        assert_listed(two, "1 2");
        pass_time(two, LEASE_US / 2 + 1);
        vj_lease_look_for_test(two);
        wait_for_end_of(&second, 1);
        /* Its next commit finds it out, and all that comes later. */
        assert_int_equal(add(one, "a", 1), -ESTALE);
        assert_int_equal(add(one, "a", 1), -ESTALE);
        assert_int_equal(vj_meta_view(one, claims_left_body, NULL), -ESTALE);
        wait_for_shut_out(&first);
        assert_int_equal(vj_meta_view(two, claims_left_body, NULL), -ENOENT);
        assert_listed(two, "2");
        assert_int_equal(count_of(two, "a"), 0);
        assert_int_equal(first.calls, 0);
        stop_listening(&first);
        stop_listening(&second);
        assert_int_equal(vj_meta_close(one), -ESTALE);
        assert_int_equal(vj_meta_close(two), 0);
    }
}

/* Whatever its lease says. */
static void by_the_word_of_another(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, LEASE_US);
    VjMeta *two = open_shared(spec, "two", NULL, LEASE_US);
    Listener l;

    (void)state;
    assert_int_equal(vj_test_shut_out(two, 7), -ENOENT);
    assert_int_equal(add(one, "a", 1), 0);
    assert_int_equal(vj_test_shut_out(two, 1), 0);
    assert_int_equal(vj_test_shut_out(two, 1), 0);
    assert_int_equal(add(one, "a", 1), -ESTALE);
    listen_to(two, &l, true);
    vj_lease_look_for_test(two);
    wait_for_end_of(&l, 1);
    assert_listed(two, "2");
    assert_int_equal(count_of(two, "a"), 1);
    stop_listening(&l);
    assert_int_equal(vj_meta_close(one), -ESTALE);
    assert_int_equal(vj_meta_close(two), 0);
}

static int damage_body(VjTxn *txn, void *opaque)
{
    VjSessionKey key = vj_session_key(*(const uint64_t *)opaque);

    return vj_txn_put(txn, VJ_SPACE_SESSION, vj_session_key_slice(&key), text("damaged"));
}

/* Its record says so, or cannot be read. */
static void who_has_ended_is_shut_out(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, LEASE_US);
    VjMeta *two = open_shared(spec, "two", NULL, LEASE_US);
    VjMeta *three = open_shared(spec, "three", NULL, LEASE_US);
    uint64_t damaged = vj_meta_session(two), left = vj_meta_session(three);

    (void)state;
    assert_int_equal(vj_meta_run(one, VJ_RUN_DEFAULT, damage_body, &damaged), 0);
    assert_int_equal(vj_test_shut_out(one, damaged), 0);
    vj_meta_leave_record(three);
    assert_int_equal(vj_meta_close(three), 0);
    assert_int_equal(vj_test_shut_out(one, left), 0);
    assert_listed(one, "1 2+ 3+");
    assert_int_equal(add(two, "a", 1), -ESTALE);
    assert_int_equal(vj_meta_close(two), -ESTALE);
    assert_int_equal(vj_meta_close(one), 0);
}

/* It is reported again until somebody has forgotten it. */
static void until_it_is_forgotten(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, LEASE_US);
    VjMeta *two = open_shared(spec, "two", NULL, LEASE_US);
    Listener l;

    (void)state;
    listen_to(two, &l, false);
    vj_meta_leave_record(one);
    assert_int_equal(vj_meta_close(one), 0);
    for (unsigned i = 0; i < 3; i++) {
        wait_for_end_of(&l, 1);
        vj_lease_look_for_test(two);
    }
    assert_listed(two, "1+ 2");
    wait_for_end_of(&l, 1);
    vj_mutex_lock(&l.lock);
    l.forgets = true;
    vj_mutex_unlock(&l.lock);
    vj_lease_look_for_test(two);
    wait_for_end_of(&l, 1);
    assert_listed(two, "2");
    stop_listening(&l);
    assert_int_equal(vj_meta_close(two), 0);
}

/* Claims of one that has ended hold nobody up, before they are released too. */
static void claims_of_the_dead(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, LEASE_US);
    VjMeta *two = open_shared(spec, "two", NULL, LEASE_US);
    Release r = {.id = 1};
    uint64_t holder;

    (void)state;
    assert_int_equal(take(one, VJ_CLAIM_CONTENT, 5, &holder), 0);
    assert_int_equal(take(one, VJ_CLAIM_CONTENT, 6, &holder), 0);
    assert_int_equal(take(one, VJ_CLAIM_HOLD, 7, &holder), 0);
    assert_int_equal(take(two, VJ_CLAIM_HOLD, 7, &holder), 0);
    assert_int_equal(holder_of(two, 5), 1);
    assert_int_equal(vj_meta_close(one), 0); /* its record says that it has ended */
    assert_int_equal(holder_of(two, 5), 0);
    assert_true(is_held(two, 7));
    drop(two, VJ_CLAIM_HOLD, 7);
    assert_false(is_held(two, 7));
    assert_int_equal(take(two, VJ_CLAIM_CONTENT, 5, &holder), 0);
    assert_int_equal(holder, 2);
    do {
        assert_int_equal(vj_meta_run(two, VJ_RUN_RELEASE, release_body, &r), 0);
    } while (r.more);
    assert_int_equal(holder_of(two, 5), 2); /* which was not the first one's any more */
    assert_int_equal(holder_of(two, 6), 0);
    drop(two, VJ_CLAIM_CONTENT, 5);
    assert_int_equal(vj_meta_view(two, claims_left_body, NULL), -ENOENT);
    assert_listed(two, "2");
    assert_int_equal(vj_meta_close(two), 0);
}

static int publish_body(VjTxn *txn, void *opaque)
{
    return vj_session_publish(txn, *(const uint64_t *)opaque);
}

static void epochs_are_published(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, LEASE_US);
    VjMeta *two = open_shared(spec, "two", NULL, LEASE_US);
    g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(VjSessionInfo));
    uint64_t epoch = 17;
    int64_t now_us = vj_engine_clock_us(vj_session_of(one)->engine, VJ_NO_DEADLINE);

    (void)state;
    assert_int_equal(vj_meta_run(two, VJ_RUN_DEFAULT, publish_body, &epoch), 0);
    assert_int_equal(vj_meta_sessions(one, list), 0);
    assert_int_equal(list->len, 2);
    for (guint i = 0; i < 2; i++) {
        const VjSessionInfo *info = &g_array_index(list, VjSessionInfo, i);

        assert_int_equal(info->id, i + 1);
        assert_int_equal(info->epoch, i == 0 ? 0 : 17);
        assert_string_equal(info->name, i == 0 ? "one" : "two");
        assert_in_range(info->expires_us, now_us + LEASE_US / 2, now_us + LEASE_US);
    }
    assert_int_equal(vj_meta_close(two), 0);
    assert_int_equal(vj_meta_close(one), 0);
}

/* ---- Exclusive ones beside them -------------------------------------------------- */

/* Whoever opens a volume alone has seen to it that nobody else lives. */
static void one_that_is_alone(void **state)
{
    g_autofree char *spec = new_volume();
    VjSessionOpen session = {.name = "alone"};
    VjMetaPlace place = {.dir_fd = -1, .session = &session};
    VjMeta *one = open_shared(spec, "one", NULL, LEASE_US), *alone, *two;

    (void)state;
    assert_true(vj_meta_open(spec, &place, &alone, NULL));
    assert_listed(alone, "1+ 2");
    assert_int_equal(add(alone, "a", 1), 0);
    assert_int_equal(vj_meta_flush(alone), 0);
    assert_int_equal(add(one, "a", 1), -ESTALE);
    assert_int_equal(vj_meta_close(one), -ESTALE);
    /* And the other way round. */
    two = open_shared(spec, "two", NULL, LEASE_US);
    assert_listed(two, "1+ 2+ 3");
    assert_int_equal(add(alone, "a", 1), 0);
    assert_int_equal(vj_meta_flush(alone), -ESTALE);
    /* It has memory for more, and would keep it for nobody. */
    assert_int_equal(add(alone, "a", 1), -ESTALE);
    assert_int_equal(vj_meta_close(alone), -ESTALE);
    assert_int_equal(count_of(two, "a"), 1);
    assert_int_equal(vj_meta_close(two), 0);
}

/* ---- In the middle of a call ----------------------------------------------------- */

#define ACCOUNTS 4u
#define EACH 100u

static const char *const accounts[ACCOUNTS] = {"a", "b", "c", "d"};

typedef struct Work {
    unsigned from, to;
    uint64_t done; /* transfers that were acknowledged */
} Work;

static int transfer_body(VjTxn *txn, void *opaque)
{
    Work *w = opaque;
    uint64_t from, to = 0, number = 0, holder;
    int rc = get_count(txn, accounts[w->from], &from);

    if (rc == 0) {
        rc = get_count(txn, accounts[w->to], &to);
    }
    if (rc == 0) {
        rc = get_count(txn, "transfers", &number);
    }
    if (rc == 0) {
        rc = put_count(txn, accounts[w->from], from - 1);
    }
    if (rc == 0) {
        rc = put_count(txn, accounts[w->to], to + 1);
    }
    if (rc == 0) {
        rc = put_count(txn, "transfers", number + 1);
    }
    return rc == 0 ? vj_claim_take(txn, VJ_CLAIM_CONTENT, number, &holder) : rc;
}

/* Until one fails.  True: none did. */
static bool transfer_some(VjMeta *m, Work *w)
{
    for (unsigned i = 0; i < 6; i++) {
        w->from = i % ACCOUNTS;
        w->to = (i + 1) % ACCOUNTS;
        if (vj_meta_run(m, VJ_RUN_DEFAULT, transfer_body, w) < 0) {
            return false;
        }
        w->done++;
        (void)!vj_meta_view(m, claims_left_body, NULL);
    }
    return true;
}

static int sum_body(VjTxn *txn, void *opaque)
{
    Work *w = opaque;
    uint64_t sum = 0;

    for (unsigned i = 0; i < ACCOUNTS; i++) {
        uint64_t one;
        int rc = get_count(txn, accounts[i], &one);

        if (rc < 0) {
            return rc;
        }
        sum += one;
    }
    assert_int_equal(sum, ACCOUNTS * EACH);
    return get_count(txn, "transfers", &w->done);
}

/* One session stops at its N-th call of the engine, for each N; another one finds whole
 * transfers alone, all that were acknowledged and at most one besides, and what the first
 * one had is released. */
static void dies_at_any_call(const char *inner)
{
    bool survived = false;
    unsigned n;

    for (n = 1; !survived; n++) {
        g_autofree char *spec = new_volume();
        g_autofree char *crash = g_strdup_printf("crash:at=%u", n);
        VjMeta *one = open_shared(spec, "one", inner, SHORT_LEASE_US);
        VjMeta *two = open_shared(spec, "two", NULL, LEASE_US);
        Work work = {0}, found = {0};
        Listener l;

        listen_to(two, &l, true);
        for (unsigned i = 0; i < ACCOUNTS; i++) {
            assert_int_equal(add(two, accounts[i], EACH), 0);
        }
        one = wrap_meta(one, crash);
        survived = transfer_some(one, &work);
        (void)!vj_meta_close(one);
        pass_time(two, SHORT_LEASE_US + 1);
        vj_lease_look_for_test(two);
        wait_for_end_of(&l, 1);
        assert_int_equal(vj_meta_view(two, sum_body, &found), 0);
        assert_in_range(found.done, work.done, work.done + 1);
        assert_int_equal(vj_meta_view(two, claims_left_body, NULL), -ENOENT);
        assert_listed(two, "2");
        assert_true(transfer_some(two, &found)); /* and goes on */
        stop_listening(&l);
        assert_int_equal(vj_meta_close(two), 0);
    }
    assert_true(n > 10);
}

static void dies_with_snapshots(void **state)
{
    (void)state;
    dies_at_any_call(NULL);
}

static void dies_far_away(void **state)
{
    (void)state;
    dies_at_any_call("latency:us=0");
}

static void dies_unheard(void **state)
{
    (void)state;
    dies_at_any_call("latency:us=0,watch=none");
}

/* Nobody waits until the lease of one that has crashed ends.  True: the last one was done
 * without an answer. */
static bool crashes_after(uint64_t calls, bool is_done)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = wrap_meta(open_shared(spec, "one", NULL, LEASE_US), "crash");
    VjMeta *two = open_shared(spec, "two", NULL, LEASE_US);
    uint64_t answered = 0, found;

    vj_meta_crash_after(one, calls, is_done);
    assert_false(vj_meta_has_crashed(one));
    while (add(one, "a", 1) == 0) {
        answered++;
    }
    assert_true(vj_meta_has_crashed(one));
    assert_int_equal(add(one, "a", 1), -ESTALE);
    vj_meta_crash_after(one, calls, is_done); /* too late */
    assert_int_equal(add(one, "a", 1), -ESTALE);
    found = count_of(two, "a");
    assert_in_range(found, answered, answered + is_done);
    assert_listed(two, "1 2");
    assert_true(vj_meta_close(one) < 0);
    assert_int_equal(vj_meta_close(two), 0);
    return found > answered;
}

static void nobody_waits_for_the_engine(void **state)
{
    unsigned unanswered = 0;

    (void)state;
    for (uint64_t calls = 0; calls < 8; calls++) {
        assert_false(crashes_after(calls, false));
        unanswered += crashes_after(calls, true);
    }
    assert_in_range(unanswered, 1, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order),
        cmocka_unit_test(with_something_left),
        cmocka_unit_test(a_lease_is_renewed),
        cmocka_unit_test(who_hangs_is_shut_out),
        cmocka_unit_test(by_the_word_of_another),
        cmocka_unit_test(who_has_ended_is_shut_out),
        cmocka_unit_test(until_it_is_forgotten),
        cmocka_unit_test(claims_of_the_dead),
        cmocka_unit_test(epochs_are_published),
        cmocka_unit_test(one_that_is_alone),
        cmocka_unit_test(dies_with_snapshots),
        cmocka_unit_test(dies_far_away),
        cmocka_unit_test(dies_unheard),
        cmocka_unit_test(nobody_waits_for_the_engine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
