/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-outcome.c - commits of a shared session of which the engine does not say what
 * became of them
 */
#include "shared-fixture.h"

#define LEASE_US ((int64_t)30 * 1000 * 1000)

/* ---- Answers that are lost ------------------------------------------------------- */

static const char *const faults[] = {
    "crash:lose=%u",      "crash:drop=%u",      "crash:late=%u,by=1",
    "crash:late=%u,by=2", "crash:late=%u,by=3", "crash:late=%u,by=4",
    "crash:late=%u,by=7",
};

/* Of one session, while another one adds too; @fault: NULL, none.  Runs of the body. */
static unsigned add_beside_another(const char *wrapper, const char *fault)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", wrapper, 0);
    VjMeta *two = open_shared(spec, "two", NULL, 0);
    unsigned runs = 0;
    uint64_t done = 0;

    if (fault != NULL) {
        one = wrap_meta(one, fault);
    }
    /* The lease's thread makes no call between those that are counted. */
    vj_lease_never_renew_for_test(one);
    vj_lease_look_for_test(one);
    for (unsigned i = 0; i < 6; i++) {
        Count c = {.key = "a", .value = 1};

        /* What was not done is done again: there is time. */
        assert_int_equal(vj_meta_run(one, VJ_RUN_DEFAULT, add_body, &c), 0);
        runs += c.runs;
        done++;
        assert_int_equal(count_of(two, "a"), done);
        assert_int_equal(add(two, "a", 1), 0);
        done++;
    }
    assert_int_equal(add(one, "a", 0), 0);
    assert_int_equal(count_of(one, "a"), done);
    assert_int_equal(vj_meta_close(one), 0);
    assert_int_equal(vj_meta_close(two), 0);
    return runs;
}

/* What is acknowledged is there once, whatever became of the first try. */
static void once_and_not_twice(void **state)
{
    (void)state;
    for (size_t w = 0; w < G_N_ELEMENTS(ways); w++) {
        for (size_t f = 0; f < G_N_ELEMENTS(faults); f++) {
            for (unsigned nth = 1; nth <= 3; nth++) {
                g_autofree char *fault = g_strdup_printf(faults[f], nth);
                unsigned runs = add_beside_another(ways[w].wrapper, fault);

                /* Of those that are late the one comes before the question. */
                if (ways[w].wrapper == NULL) {
                    assert_int_equal(runs,
                                     add_beside_another(NULL, NULL) + (f == 1 || f > 2));
                }
            }
        }
    }
}

/* ---- An engine that obeys -------------------------------------------------------- */

/* What becomes of the next commits; a question what became of one is a commit too. */
typedef struct Failure {
    unsigned count; /* so many of them fail, */
    int why;        /* with this */
    bool is_done;   /* the first one is done all the same, */
    VjCancel *fire; /* and then this is fired; NULL: nothing */
    bool hangs;     /* and then each apply does */
    /* So many questions are answered besides; UINT_MAX: all. */
    unsigned answers;
    int64_t takes_us; /* each that fails, by the clock that the test has frozen */
} Failure;

typedef struct Obeying {
    VjEngine engine;
    VjMutex lock;
    VjCond changed;
    /* guarded by lock: */
    Failure failure;
    bool fails;    /* each call, with -EIO */
    bool is_stuck; /* an apply waits */
    bool hangs;    /* each does, until its deadline */
    bool waits;    /* one does */
    unsigned applies;
} Obeying;

static int answer(VjEngine *e)
{
    Obeying *o = (Obeying *)e;
    int rc;

    vj_mutex_lock(&o->lock);
    rc = o->fails ? -EIO : 0;
    vj_mutex_unlock(&o->lock);
    return rc;
}

static bool obeying_open(VjEngine *e, const VjMetaPlace *place, const VjOpts *opts,
                         GError **error)
{
    Obeying *o = (Obeying *)e;

    (void)place;
    (void)opts;
    (void)error;
    vj_mutex_init(&o->lock, VJ_RANK_META_WRAPPER, "test engine");
    vj_cond_init(&o->changed);
    return true;
}

static int obeying_close(VjEngine *e, bool in_order)
{
    Obeying *o = (Obeying *)e;

    (void)in_order;
    vj_cond_clear(&o->changed);
    vj_mutex_clear(&o->lock);
    return 0;
}

static int obeying_get_many(VjEngine *e, const VjKey *keys, size_t count, VjItems *out,
                            int64_t deadline_us)
{
    int rc = answer(e);

    return rc < 0 ? rc : vj_engine_get_many(e->next, keys, count, out, deadline_us);
}

static int obeying_scan(VjEngine *e, const VjRange *range, size_t limit, VjItems *out,
                        bool *more, int64_t deadline_us)
{
    int rc = answer(e);

    return rc < 0 ? rc : vj_engine_scan(e->next, range, limit, out, more, deadline_us);
}

/* As long as it may. */
static int hang(Obeying *o, int64_t deadline_us) VJ_REQUIRES(&o->lock)
{
    int rc = 0;

    g_assert(deadline_us != VJ_NO_DEADLINE); /* the caller would wait for ever */
    o->waits = true;
    vj_cond_broadcast(&o->changed);
    while (rc == 0 && o->hangs) {
        rc = vj_cond_wait_or_cancel(&o->changed, &o->lock, deadline_us);
    }
    return rc;
}

/* It changes the number of the last commit, and nothing else. */
static bool is_question(const VjBatch *batch)
{
    return batch->number > 0 && batch->count == 1;
}

static Failure take_failure(Obeying *o, const VjBatch *batch) VJ_REQUIRES(&o->lock)
{
    Failure f = {.why = o->fails ? -EIO : 0};

    /* The lease is renewed at any time. */
    if (batch->number == 0 || o->failure.count == 0) {
        return f;
    }
    if (is_question(batch) && o->failure.answers > 0) {
        o->failure.answers -= o->failure.answers < UINT_MAX;
        return f;
    }
    f = o->failure;
    o->failure.count--;
    o->failure.is_done = false;
    o->failure.fire = NULL;
    o->hangs = o->hangs || f.hangs;
    if (f.takes_us > 0) {
        vj_clock_set_for_test(&(struct timespec){.tv_sec = 1},
                              vj_clock_mono_us() + f.takes_us);
    }
    return f;
}

static int obeying_apply(VjEngine *e, const VjBatch *batch, VjItems *fresh,
                         int64_t deadline_us)
{
    Obeying *o = (Obeying *)e;
    Failure f;
    int rc = 0;

    vj_mutex_lock(&o->lock);
    o->applies++;
    if (o->hangs) {
        rc = hang(o, deadline_us);
    }
    while (rc == 0 && o->is_stuck) {
        o->waits = true;
        vj_cond_broadcast(&o->changed);
        vj_cond_wait(&o->changed, &o->lock);
    }
    f = take_failure(o, batch);
    vj_mutex_unlock(&o->lock);
    if (rc == 0 && (f.why == 0 || f.is_done)) {
        rc = vj_engine_apply(e->next, batch, fresh, deadline_us);
        assert_true(rc == 0 || !f.is_done);
    }
    if (f.fire != NULL) {
        vj_cancel_fire(f.fire, 1);
    }
    return f.why < 0 ? f.why : rc;
}

static int obeying_watch(VjEngine *e, VjEngineWatch *changed, void *opaque,
                         bool *is_prompt)
{
    return vj_engine_watch(e->next, changed, opaque, is_prompt);
}

static int64_t obeying_clock(VjEngine *e, int64_t deadline_us)
{
    int rc = answer(e);

    return rc < 0 ? rc : vj_engine_clock_us(e->next, deadline_us);
}

static const VjOptSpec no_options[] = {{.name = NULL}};

static const VjEngineOps obeying_ops = {
    .name = "obeying",
    .options = no_options,
    .instance_size = sizeof(Obeying),
    .open = obeying_open,
    .close = obeying_close,
    .get_many = obeying_get_many,
    .scan = obeying_scan,
    .apply = obeying_apply,
    .watch = obeying_watch,
    .clock_us = obeying_clock,
};

static Obeying *obey(VjMeta *m)
{
    g_autoptr(VjOpts) opts = vj_opts_new(no_options);

    assert_true(vj_session_wrap_engine(m, &obeying_ops, opts, NULL));
    return (Obeying *)vj_session_of(m)->engine;
}

static void let_fail(Obeying *o, bool fails)
{
    vj_mutex_lock(&o->lock);
    o->fails = fails;
    vj_mutex_unlock(&o->lock);
}

static void let_hang(Obeying *o, bool hangs)
{
    vj_mutex_lock(&o->lock);
    o->hangs = hangs;
    vj_cond_broadcast(&o->changed);
    vj_mutex_unlock(&o->lock);
}

/* The next @f.count commits fail; 0: none does. */
static void fail_next(Obeying *o, Failure f)
{
    vj_mutex_lock(&o->lock);
    o->failure = f;
    vj_mutex_unlock(&o->lock);
}

/* ---- Whoever does not wait ------------------------------------------------------- */

typedef struct Heard {
    gint a; /* atomic: how often key "a" was reported */
} Heard;

static void hear(void *opaque, const VjKey *key)
{
    Heard *h = opaque;

    if (key != NULL && key->space == VJ_SPACE_INODE &&
        vj_slice_compare(key->key, text("a")) == 0) {
        g_atomic_int_inc(&h->a);
    }
}

static const VjMetaEvents hearing = {.changed = hear};

/* One that @is_done is cancelled then, another has no time.  Nothing can be found out
 * about it until fail_next is called again. */
static int add_and_give_up(VjMeta *m, Obeying *o, bool is_done)
{
    VjCancel cancel;
    int rc;

    vj_cancel_init(&cancel);
    vj_cancel_reset(&cancel, 1, is_done ? INT64_MAX : 0);
    vj_cancel_enter(&cancel);
    fail_next(o, (Failure){.count = UINT_MAX,
                           .why = -EIO,
                           .is_done = is_done,
                           .fire = is_done ? &cancel : NULL});
    rc = add(m, "a", 1);
    assert_ptr_equal(vj_cancel_leave(), &cancel);
    vj_cancel_clear(&cancel);
    return rc;
}

/* Who gave up is told that it failed; nothing is believed before it is known whether it
 * did, and then it is reported. */
static void given_up(void **state)
{
    (void)state;
    for (unsigned is_done = 0; is_done < 2; is_done++) {
        g_autofree char *spec = new_volume();
        VjMeta *one = open_shared(spec, "one", NULL, 0);
        VjMeta *two = open_shared(spec, "two", NULL, 0);
        Obeying *o = obey(one);
        Heard h = {.a = 0};

        assert_int_equal(add(one, "a", 1), 0);
        assert_int_equal(count_of(one, "a"), 1); /* and is kept */
        vj_meta_listen(one, &hearing, &h);
        assert_int_equal(add_and_give_up(one, o, is_done != 0),
                         is_done != 0 ? -ECANCELED : -ETIMEDOUT);
        assert_int_equal(add(one, "a", 1), -EIO);
        assert_int_equal(vj_meta_view(one, count_body, &(Count){.key = "a"}), -EIO);
        assert_int_equal(h.a, 0);
        fail_next(o, (Failure){.count = 0});
        assert_int_equal(count_of(one, "a"), 1 + is_done);
        assert_int_equal(h.a, is_done);
        assert_int_equal(count_of(two, "a"), 1 + is_done);
        assert_int_equal(add(one, "a", 1), 0);
        assert_int_equal(count_of(two, "a"), 2 + is_done);
        assert_int_equal(h.a, is_done);
        vj_meta_listen(one, NULL, NULL);
        assert_int_equal(vj_meta_close(one), 0);
        assert_int_equal(vj_meta_close(two), 0);
    }
}

/* It becomes known although nobody asks. */
static void in_the_background(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, 0);
    Obeying *o = obey(one);
    Heard h = {.a = 0};

    (void)state;
    vj_meta_listen(one, &hearing, &h);
    assert_int_equal(add_and_give_up(one, o, true), -ECANCELED);
    fail_next(o, (Failure){.count = 0});
    while (g_atomic_int_get(&h.a) == 0) {
        g_thread_yield();
    }
    vj_meta_listen(one, NULL, NULL);
    assert_int_equal(vj_meta_close(one), 0);
}

static unsigned applies_of(Obeying *o)
{
    unsigned applies;

    vj_mutex_lock(&o->lock);
    applies = o->applies;
    vj_mutex_unlock(&o->lock);
    return applies;
}

/* The thread of the lease has seen the doubt, and then it is another writer's turn, which
 * finds out, and commits: there is nothing left to ask. */
static void in_the_background_too_late(void **state)
{
    (void)state;
    for (unsigned is_done = 0; is_done < 2; is_done++) {
        g_autofree char *spec = new_volume();
        VjMeta *one = open_shared(spec, "one", NULL, 0);
        Obeying *o = obey(one);
        unsigned applies;

        assert_int_equal(add_and_give_up(one, o, is_done != 0),
                         is_done != 0 ? -ECANCELED : -ETIMEDOUT);
        fail_next(o, (Failure){.count = 0});
        assert_int_equal(add(one, "a", 1), 0);
        applies = applies_of(o);
        /* An engine that does what it is asked, and does not say so. */
        fail_next(o, (Failure){.count = 1, .why = -EIO, .is_done = true});
        vj_lease_resolve_for_test(one);
        fail_next(o, (Failure){.count = 0});
        assert_int_equal(add(one, "a", 1), 0);
        assert_int_equal(applies_of(o), applies + 1);
        assert_int_equal(count_of(one, "a"), 2 + is_done);
        assert_int_equal(vj_meta_close(one), 0);
    }
}

/* A session that is closed before it is known leaves its record. */
static void closed_before(void **state)
{
    (void)state;
    for (unsigned is_done = 0; is_done < 2; is_done++) {
        g_autofree char *spec = new_volume();
        VjMeta *one = open_shared(spec, "one", NULL, 0);
        VjMeta *two = open_shared(spec, "two", NULL, 0);
        Obeying *o = obey(one);

        assert_int_equal(add_and_give_up(one, o, is_done != 0),
                         is_done != 0 ? -ECANCELED : -ETIMEDOUT);
        assert_int_equal(vj_meta_close(one), -EIO);
        assert_int_equal(count_of(two, "a"), is_done);
        assert_int_equal(vj_meta_close(two), 0);
    }
}

/* ---- Shut out meanwhile ---------------------------------------------------------- */

typedef struct Adder {
    VjMeta *meta;
    VjCancel *cancel; /* NULL: nobody can */
    int rc;
} Adder;

static gpointer add_main(gpointer opaque)
{
    Adder *a = opaque;

    if (a->cancel != NULL) {
        vj_cancel_enter(a->cancel);
    }
    a->rc = add(a->meta, "a", 1);
    assert_ptr_equal(vj_cancel_leave(), a->cancel);
    return NULL;
}

/* A commit that was on its way for longer than the lease finds the fence. */
static void late_and_fenced(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, LEASE_US);
    VjMeta *two = open_shared(spec, "two", NULL, LEASE_US);
    Obeying *o = obey(one);
    Adder adder = {.meta = one};
    GThread *thread;

    (void)state;
    assert_int_equal(add(one, "a", 1), 0);
    vj_lease_never_renew_for_test(one);
    vj_mutex_lock(&o->lock);
    o->is_stuck = true;
    thread = g_thread_new("add", add_main, &adder);
    while (!o->waits) {
        vj_cond_wait(&o->changed, &o->lock);
    }
    vj_mutex_unlock(&o->lock);
    vj_memory_clock_advance_for_test(vj_session_of(two)->engine, LEASE_US + 1);
    vj_lease_look_for_test(two);
    assert_int_equal(add(two, "a", 10), 0);
    vj_mutex_lock(&o->lock);
    o->is_stuck = false;
    vj_cond_broadcast(&o->changed);
    vj_mutex_unlock(&o->lock);
    g_thread_join(thread);
    assert_int_equal(adder.rc, -ESTALE);
    assert_int_equal(count_of(two, "a"), 11);
    assert_int_equal(vj_meta_close(one), -ESTALE);
    assert_int_equal(vj_meta_close(two), 0);
}

/* Who was shut out finds out still that its last commit was done. */
static void done_and_fenced(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, LEASE_US);
    VjMeta *two = open_shared(spec, "two", NULL, LEASE_US);
    Obeying *o = obey(one);
    Heard h = {.a = 0};

    (void)state;
    vj_lease_never_renew_for_test(one);
    vj_lease_look_for_test(one); /* and it does not look when the other one is late */
    vj_meta_listen(one, &hearing, &h);
    assert_int_equal(add_and_give_up(one, o, true), -ECANCELED);
    let_fail(o, true);
    vj_memory_clock_advance_for_test(vj_session_of(two)->engine, LEASE_US + 1);
    vj_lease_look_for_test(two);
    let_fail(o, false);
    fail_next(o, (Failure){.count = 0});
    assert_int_equal(add(one, "a", 1), -ESTALE);
    assert_int_equal(count_of(two, "a"), 1);
    assert_int_equal(h.a, 1);
    vj_meta_listen(one, NULL, NULL);
    assert_int_equal(vj_meta_close(one), -ESTALE);
    assert_int_equal(vj_meta_close(two), 0);
}

/* Who cannot renew its lease for as long as it is takes itself to be shut out, and does
 * not ask any longer. */
static void until_the_lease_is_over(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, 20 * 1000);
    Obeying *o = obey(one);

    (void)state;
    let_fail(o, true);
    assert_int_equal(add(one, "a", 1), -EIO); /* its read */
    let_fail(o, false);
    assert_int_equal(add(one, "a", 0), 0);
    let_fail(o, true);
    assert_int_equal(add(one, "a", 1), -ESTALE);
    assert_int_equal(vj_meta_view(one, count_body, &(Count){.key = "a"}), -ESTALE);
    assert_true(vj_meta_close(one) < 0);
}

/* The lease of a session whose engine hangs: that long it takes to give up. */
#define HANG_LEASE_US ((int64_t)20 * 1000)

/* The same of one that hangs, for threads that nobody can cancel. */
static void an_engine_that_hangs(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, HANG_LEASE_US);
    VjMeta *two = open_shared(spec, "two", NULL, 0);
    Obeying *o = obey(one);

    (void)state;
    let_hang(o, true);
    assert_int_equal(add(one, "a", 1), -ESTALE);
    assert_true(vj_meta_close(one) < 0);
    assert_int_equal(count_of(two, "a"), 0);
    assert_int_equal(vj_meta_close(two), 0);
}

/* A caller gave its commit up, and the thread that begins next cannot be cancelled. */
static void an_engine_that_hangs_in_doubt(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, HANG_LEASE_US);
    VjMeta *two = open_shared(spec, "two", NULL, 0);
    Obeying *o = obey(one);
    int rc;

    (void)state;
    assert_int_equal(add_and_give_up(one, o, true), -ECANCELED);
    fail_next(o, (Failure){.count = 0});
    let_hang(o, true);
    do {
        rc = add(one, "a", 1);
    } while (rc == -ETIMEDOUT); /* each time after a part of the lease */
    assert_int_equal(rc, -ESTALE);
    assert_true(vj_meta_close(one) < 0);
    assert_int_equal(count_of(two, "a"), 1);
    assert_int_equal(vj_meta_close(two), 0);
}

/* ---- Callers whose time is over -------------------------------------------------- */

#define SECOND_US ((int64_t)1000 * 1000)

/* Of a caller that has ten seconds, where each commit that fails as @f says takes one. */
static int add_in_time(VjMeta *m, Obeying *o, Failure f, unsigned *runs)
{
    Count c = {.key = "a", .value = 1};
    VjCancel cancel;
    int rc;

    vj_cancel_init(&cancel);
    vj_cancel_reset(&cancel, 1, 10 * SECOND_US);
    vj_cancel_enter(&cancel);
    f.takes_us = SECOND_US;
    /* So early that nobody waits for the frozen clock. */
    vj_clock_set_for_test(&(struct timespec){.tv_sec = 1}, 1);
    fail_next(o, f);
    rc = vj_meta_run(m, VJ_RUN_DEFAULT, add_body, &c);
    fail_next(o, (Failure){.count = 0});
    vj_clock_set_for_test(NULL, 0);
    assert_ptr_equal(vj_cancel_leave(), &cancel);
    vj_cancel_clear(&cancel);
    *runs = c.runs;
    return rc;
}

/* That they were not done is known each time, and they are tried again: as long as the
 * caller has time. */
static void an_engine_that_drops_commits(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, 0);
    Obeying *o = obey(one);
    Failure some = {.count = 3, .why = -ETIMEDOUT, .answers = UINT_MAX};
    Failure all = {.count = UINT_MAX, .why = -ETIMEDOUT, .answers = UINT_MAX};
    unsigned runs;

    (void)state;
    assert_int_equal(add_in_time(one, o, some, &runs), 0);
    assert_int_equal(runs, 4);
    assert_int_equal(add_in_time(one, o, all, &runs), -ETIMEDOUT);
    assert_int_equal(runs, 10);
    assert_int_equal(count_of(one, "a"), 1);
    assert_int_equal(add(one, "a", 1), 0);
    assert_int_equal(count_of(one, "a"), 2);
    assert_int_equal(vj_meta_close(one), 0);
}

/* Of the sixth it is not: what five took is not left for asking. */
static void and_the_answer_is_not_sure(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_shared(spec, "one", NULL, 0);
    Obeying *o = obey(one);
    Failure f = {.count = UINT_MAX, .why = -ETIMEDOUT, .answers = 5};
    unsigned runs, before = applies_of(o);

    (void)state;
    assert_int_equal(add_in_time(one, o, f, &runs), -ETIMEDOUT);
    assert_int_equal(runs, 6);
    /* Ten that took a second, and the answers. */
    assert_int_equal(applies_of(o) - before, 10 + 5);
    assert_int_equal(add(one, "a", 1), 0);
    assert_int_equal(count_of(one, "a"), 1);
    assert_int_equal(vj_meta_close(one), 0);
}

/* The commit is done, and the engine hangs when it is asked. */
static int add_and_hang(VjMeta *m, Obeying *o, bool is_cancelled)
{
    Adder adder = {.meta = m};
    VjCancel cancel;
    GThread *thread;

    vj_cancel_init(&cancel);
    vj_cancel_reset(&cancel, 1, is_cancelled ? INT64_MAX : 20 * 1000);
    adder.cancel = &cancel;
    fail_next(o, (Failure){.count = 1, .why = -EIO, .is_done = true, .hangs = true});
    thread = g_thread_new("add", add_main, &adder);
    vj_mutex_lock(&o->lock);
    while (!o->waits) {
        vj_cond_wait(&o->changed, &o->lock);
    }
    vj_mutex_unlock(&o->lock);
    if (is_cancelled) {
        vj_cancel_fire(&cancel, 1);
    }
    g_thread_join(thread);
    vj_cancel_clear(&cancel);
    return adder.rc;
}

/* Its caller does not, and what comes later does what it is to. */
static void a_caller_of_one_that_hangs(void **state)
{
    (void)state;
    for (unsigned is_cancelled = 0; is_cancelled < 2; is_cancelled++) {
        g_autofree char *spec = new_volume();
        VjMeta *one = open_shared(spec, "one", NULL, 0);
        Obeying *o = obey(one);

        assert_int_equal(add_and_hang(one, o, is_cancelled != 0),
                         is_cancelled != 0 ? -ECANCELED : -ETIMEDOUT);
        let_hang(o, false);
        assert_int_equal(add(one, "a", 1), 0);
        assert_int_equal(count_of(one, "a"), 2);
        assert_int_equal(vj_meta_close(one), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(once_and_not_twice),
        cmocka_unit_test(given_up),
        cmocka_unit_test(in_the_background),
        cmocka_unit_test(in_the_background_too_late),
        cmocka_unit_test(closed_before),
        cmocka_unit_test(late_and_fenced),
        cmocka_unit_test(done_and_fenced),
        cmocka_unit_test(until_the_lease_is_over),
        cmocka_unit_test(an_engine_that_hangs),
        cmocka_unit_test(an_engine_that_hangs_in_doubt),
        cmocka_unit_test(an_engine_that_drops_commits),
        cmocka_unit_test(and_the_answer_is_not_sure),
        cmocka_unit_test(a_caller_of_one_that_hangs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
