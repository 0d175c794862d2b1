/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object-sessions-random.c - three sessions do what they like to the same objects
 *
 * A thread for each.  What is right stands in the names: whoever sees a name, under a
 * guard or by a pin, can read what it names.  Now and then one shuts another out and
 * releases what it had, while that one goes on until it hears of it.  In the end all is
 * closed, and nothing is left over.
 *
 * VARJFS_MODEL_SEED=N repeats a run as far as threads allow; VARJFS_SESSION_OPS is how
 * many operations each session does.
 */
#include "session-fixture.h"

#define NAME_COUNT 24u
#define SEED_COUNT 40u
#define PINS_MAX 4u
#define OPS_DEFAULT 600u
/* One operation in so many ends another session. */
#define CRASH_ONE_IN 60u

typedef struct Slot {
    uint64_t id;
    bool has_ended; /* by the word of another */
} Slot;

typedef struct Run {
    World *w;
    const char *engine; /* a wrapper of it; NULL: none */
    uint64_t seed, ops;
    bool crashes;
    VjMutex lock;
    /* guarded by lock: */
    Slot slots[SESSIONS];
    uint64_t reads, revived, crashed;
} Run;

typedef struct Pinned {
    uint64_t id, seed;
} Pinned;

/* One session's thread. */
typedef struct Actor {
    Run *run;
    unsigned number;
    Fixture *f;
    VjRng rng;
    Pinned pins[PINS_MAX];
    unsigned pin_count;
    uint64_t reads, revived;
} Actor;

static bool has_ended(const Actor *a)
{
    Run *run = a->run;
    bool ended;

    vj_mutex_lock(&run->lock);
    ended = run->slots[a->number].has_ended;
    vj_mutex_unlock(&run->lock);
    return ended;
}

/* @rc is fine for a session that lives; else it has been shut out. */
static void expect(const Actor *a, const char *what, int rc, bool fine)
{
    if (!fine && !has_ended(a)) {
        g_error("session %u: %s: %s", a->number, what, g_strerror(-rc));
    }
}

static uint64_t any_name(Actor *a)
{
    return vj_rng_below(&a->rng, NAME_COUNT);
}

/* ---- operations -------------------------------------------------------------------- */

static void do_name(Actor *a)
{
    uint64_t seed = vj_rng_below(&a->rng, SEED_COUNT);
    int rc = name_content(a->f, any_name(a), seed);

    expect(a, "naming", rc, rc == 0);
}

static void do_unname(Actor *a)
{
    int rc = unname(a->f, any_name(a));

    expect(a, "dropping a name", rc, rc == 0 || rc == -ENOENT);
}

static void do_give_up(Actor *a)
{
    VjPendingObject *pending;
    int rc = store_content(a->f, vj_rng_below(&a->rng, SEED_COUNT), &pending);

    expect(a, "storing", rc, rc == 0);
    if (rc == 0) {
        vj_pending_free(a->f->objects, pending, false);
    }
}

/* Reads what a name names, and perhaps pins it. */
static void do_read(Actor *a, bool pin)
{
    VjReadGuard guard;
    VjObject object;
    uint64_t seed;
    int rc;

    vj_objects_guard_enter(a->f->objects, &guard);
    rc = look_up_name(a->f, any_name(a), &object, &seed);
    expect(a, "looking a name up", rc, rc == 0 || rc == -ENOENT);
    if (rc == 0) {
        rc = read_content(a->f, &object, seed);
        expect(a, "reading what a name names", rc, rc == 0);
        a->reads++;
        if (pin && a->pin_count < PINS_MAX) {
            vj_object_pin(a->f->objects, object.id);
            a->pins[a->pin_count++] = (Pinned){.id = object.id, .seed = seed};
        }
    }
    vj_objects_guard_leave(a->f->objects, &guard);
}

/* Reads what is pinned, or names it once more; then, perhaps, unpins it. */
static void do_pinned(Actor *a)
{
    uint64_t which = vj_rng_below(&a->rng, a->pin_count);
    Pinned p = a->pins[which];
    VjObject object;
    int rc;

    if (vj_rng_below(&a->rng, 2) == 0) {
        rc = get_object(a->f, p.id, &object);
        rc = rc == 0 ? read_content(a->f, &object, p.seed) : rc;
        expect(a, "reading what is pinned", rc, rc == 0);
        a->reads++;
    } else {
        rc = name_object(a->f, any_name(a), p.id, p.seed);
        expect(a, "naming what is pinned", rc, rc == 0 || rc == -EEXIST);
        a->revived += rc == 0;
    }
    if (vj_rng_below(&a->rng, 2) == 0) {
        vj_object_unpin(a->f->objects, p.id);
        a->pins[which] = a->pins[--a->pin_count];
    }
}

static void do_pass(Actor *a)
{
    int rc = vj_objects_reap_now(a->f->objects);

    expect(a, "removing the dead", rc, rc == 0);
}

/* ---- sessions that end ------------------------------------------------------------- */

/* Shuts out another one that lives, and releases it. */
static void do_crash(Actor *a)
{
    Run *run = a->run;
    Slot *slot =
        &run->slots[(a->number + 1 + vj_rng_below(&a->rng, SESSIONS - 1)) % SESSIONS];
    uint64_t id = 0;
    int rc;

    vj_mutex_lock(&run->lock);
    if (!slot->has_ended && slot->id != 0 && !run->slots[a->number].has_ended) {
        id = slot->id;
        slot->has_ended = true;
        run->crashed++;
    }
    vj_mutex_unlock(&run->lock);
    if (id == 0) {
        return;
    }
    rc = try_shut_out(a->f, id);
    if (rc == 0) {
        rc = release_ended(a->f, id);
    }
    /* It may have left in order just now. */
    expect(a, "ending another session", rc, rc == 0 || rc == -ENOENT);
}

static void leave(Actor *a)
{
    Run *run = a->run;
    bool ended;
    int rc;

    while (a->pin_count > 0) {
        vj_object_unpin(a->f->objects, a->pins[--a->pin_count].id);
    }
    vj_mutex_lock(&run->lock);
    ended = run->slots[a->number].has_ended;
    run->slots[a->number].id = 0; /* nobody ends it any more */
    vj_mutex_unlock(&run->lock);
    rc = session_close(g_steal_pointer(&a->f));
    if (rc < 0 && !ended) {
        g_error("session %u: closing: %s", a->number, g_strerror(-rc));
    }
}

static void join(Actor *a)
{
    Run *run = a->run;

    a->f = session_open(run->w, "random", run->engine);
    vj_mutex_lock(&run->lock);
    run->slots[a->number] = (Slot){.id = session_number(a->f)};
    vj_mutex_unlock(&run->lock);
}

/* ---- a run ------------------------------------------------------------------------- */

static void operate(Actor *a)
{
    switch (vj_rng_below(&a->rng, 10)) {
    case 0:
    case 1:
    case 2:
        do_name(a);
        break;
    case 3:
    case 4:
        do_unname(a);
        break;
    case 5:
        do_give_up(a);
        break;
    case 6:
        do_read(a, false);
        break;
    case 7:
        do_read(a, true);
        break;
    case 8:
        if (a->pin_count > 0) {
            do_pinned(a);
        }
        break;
    default:
        do_pass(a);
        break;
    }
}

static gpointer actor_thread(gpointer opaque)
{
    Actor *a = opaque;
    Run *run = a->run;

    join(a);
    for (uint64_t i = 0; i < run->ops; i++) {
        if (run->crashes && vj_rng_below(&a->rng, CRASH_ONE_IN) == 0) {
            do_crash(a);
        } else {
            operate(a);
        }
        if (has_ended(a) && vj_rng_below(&a->rng, 4) == 0) { /* it hears of it now */
            leave(a);
            join(a);
        }
    }
    leave(a);
    vj_mutex_lock(&run->lock);
    run->reads += a->reads;
    run->revived += a->revived;
    vj_mutex_unlock(&run->lock);
    return NULL;
}

static uint64_t number_of(const char *variable, uint64_t fallback)
{
    const char *text = g_getenv(variable);

    return text != NULL ? g_ascii_strtoull(text, NULL, 10) : fallback;
}

static void run_all(const char *engine, bool crashes)
{
    Run run = {.w = world_new(),
               .engine = engine,
               .seed = number_of("VARJFS_MODEL_SEED", vj_random_u64() % 1000000),
               .ops = number_of("VARJFS_SESSION_OPS", OPS_DEFAULT),
               .crashes = crashes};
    GThread *threads[SESSIONS];
    Actor actors[SESSIONS];

    print_message("# seed %" G_GUINT64_FORMAT "\n", run.seed);
    vj_mutex_init(&run.lock, VJ_RANK_BASE, "run");
    for (unsigned i = 0; i < SESSIONS; i++) {
        assert_int_equal(session_close(g_steal_pointer(&run.w->s[i])), 0);
    }
    for (unsigned i = 0; i < SESSIONS; i++) {
        actors[i] = (Actor){.run = &run, .number = i};
        vj_rng_init(&actors[i].rng, run.seed * SESSIONS + i);
        threads[i] = g_thread_new("actor", actor_thread, &actors[i]);
    }
    for (unsigned i = 0; i < SESSIONS; i++) {
        g_thread_join(threads[i]);
    }
    print_message("# %" G_GUINT64_FORMAT " reads, %" G_GUINT64_FORMAT
                  " pinned objects named, %" G_GUINT64_FORMAT " sessions ended\n",
                  run.reads, run.revived, run.crashed);
    vj_mutex_clear(&run.lock);
    /* Bytes that a session put after its end are for gc. */
    world_free_after_crashes(run.w, crashes);
}

static void test_sessions_at_random(void **state)
{
    (void)state;
    run_all(NULL, false);
}

static void test_sessions_that_end_at_random(void **state)
{
    (void)state;
    run_all(NULL, true);
}

/* They read through caches that are told of changes: before those are done, or later. */
static void test_sessions_far_from_the_engine(void **state)
{
    (void)state;
    run_all("latency:us=0", true);
    run_all("latency:us=0,watch=late", true);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_sessions_at_random),
    cmocka_unit_test(test_sessions_that_end_at_random),
    cmocka_unit_test(test_sessions_far_from_the_engine),
};

VJ_TEST_MAIN(tests)
