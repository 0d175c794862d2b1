/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-objects-session.c - one of several sessions ends at any of its calls to the engine
 *
 * Another one finds that, removes what it had put and not committed, and nothing that it
 * had committed.  The session that ended goes on for a while, as one does that is cut off
 * from the engine and not from the store: that harms nobody.
 */
#include "../unit/object/session-fixture.h"

#define NAMES_OF_VICTIM 5u
#define NOTHING UINT64_MAX

/* What the victim was acknowledged. */
typedef struct Acknowledged {
    uint64_t seed[NAMES_OF_VICTIM]; /* NOTHING: the name is not there */
    bool is_open[NAMES_OF_VICTIM];  /* the last change failed: it may be there or not */
    int error;                      /* the last one */
} Acknowledged;

static void note(Acknowledged *a, uint64_t name, uint64_t seed, int rc)
{
    if (rc == 0) {
        a->seed[name] = seed;
        a->is_open[name] = false;
    } else {
        a->is_open[name] = true;
        a->error = rc;
    }
}

static void note_naming(Acknowledged *a, Fixture *f, uint64_t name, uint64_t seed)
{
    note(a, name, seed, name_content(f, name, seed));
}

/* One that is dead and pinned comes back. */
static void pin_and_revive(Acknowledged *a, Fixture *f)
{
    VjReadGuard guard;
    VjObject object;
    uint64_t seed;
    int rc;

    vj_objects_guard_enter(f->objects, &guard);
    rc = look_up_name(f, 1, &object, &seed);
    if (rc == 0) {
        vj_object_pin(f->objects, object.id);
    }
    vj_objects_guard_leave(f->objects, &guard);
    if (rc < 0) {
        a->error = rc;
        return;
    }
    note(a, 1, NOTHING, unname(f, 1));
    rc = vj_objects_reap_now(f->objects);
    a->error = rc < 0 ? rc : a->error;
    note(a, 3, seed, name_object(f, 3, object.id, seed));
    vj_object_unpin(f->objects, object.id);
}

/* A bit of everything. */
static void work(Acknowledged *a, Fixture *f)
{
    VjPendingObject *pending;
    int rc;

    note_naming(a, f, 0, 100);
    note_naming(a, f, 1, 101);
    note_naming(a, f, 2, 100);
    note_naming(a, f, 0, 7); /* another session has that */
    pin_and_revive(a, f);
    note(a, 2, NOTHING, unname(f, 2));
    rc = store_content(f, 102, &pending);
    if (rc == 0) {
        vj_pending_free(f->objects, pending, false);
    }
    a->error = rc < 0 ? rc : a->error;
    rc = vj_objects_reap_now(f->objects);
    a->error = rc < 0 ? rc : a->error;
    note_naming(a, f, 4, 103);
}

static void expect_acknowledged(const Acknowledged *a, Fixture *by)
{
    for (uint64_t name = 0; name < NAMES_OF_VICTIM; name++) {
        VjObject object;
        uint64_t seed;
        int rc = look_up_name(by, name, &object, &seed);

        assert_true(rc == 0 || rc == -ENOENT);
        if (rc == 0) {
            assert_int_equal(read_content(by, &object, seed), 0);
        }
        if (!a->is_open[name]) {
            assert_int_equal(rc == 0 ? seed : NOTHING, a->seed[name]);
        }
    }
}

static void expect_all(const Acknowledged *a, Fixture *f, Fixture *other)
{
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_world_consistent(f);
    expect_acknowledged(a, other);
}

/* What others do when they find that the victim has ended. */
static void end_victim(World *w, uint64_t id)
{
    int rc = try_shut_out(w->s[0], id);

    assert_true(rc == 0 || rc == -ENOENT); /* it may have left in order */
    assert_int_equal(release_ended(w->s[0], id), 0);
}

/* How the victim is opened; it is the world's. */
typedef Fixture *OpenVictim(const World *w, const void *how);

static Fixture *open_to_crash(const World *w, const void *how)
{
    return session_open_to_crash(w, "victim", *(const uint64_t *)how);
}

static Fixture *open_to_lose(const World *w, const void *how)
{
    return session_open(w, "victim", how);
}

/* What the victim does, in a world with two others; 0, or an error that it met.  Closing
 * it may have failed then. */
static int try_one(OpenVictim *open, const void *how, int *closed)
{
    bool ends = open == open_to_crash;
    World *w = world_new();
    Acknowledged a = {.error = 0};
    Fixture *victim;
    uint64_t id;

    for (uint64_t i = 0; i < NAMES_OF_VICTIM; i++) {
        a.seed[i] = NOTHING;
    }
    assert_int_equal(session_close(g_steal_pointer(&w->s[2])), 0);
    assert_int_equal(name_content(w->s[0], 1000, 7), 0);
    victim = open(w, how);
    id = session_number(victim);
    if (victim->objects != NULL) {
        work(&a, victim);
    } else {
        a.error = -EIO;
    }
    if (ends && a.error < 0) {
        end_victim(w, id);
        expect_all(&a, w->s[0], w->s[1]);
    }
    *closed = session_close(victim);
    if (*closed < 0 && (a.error == 0 || !ends)) { /* it left its record */
        end_victim(w, id);
    }
    assert_int_equal(collect_garbage(w->s[1]), 0);
    expect_all(&a, w->s[1], w->s[0]);
    world_free(w);
    return a.error;
}

/* From that call on it hears nothing from the engine any more. */
static void test_a_session_ends_at_any_call(void **state)
{
    int closed = -EIO;
    uint64_t calls;

    (void)state;
    for (calls = 0; closed < 0; calls++) {
        int rc = try_one(open_to_crash, &calls, &closed);

        assert_true(rc == 0 || closed < 0);
    }
    assert_int_equal(closed, 0);
    assert_true(calls > NAMES_OF_VICTIM); /* each of them is committed by one */
}

/* The commit is done, or not, or later, and nobody says so: the session finds out, and
 * lives on. */
static void test_any_commit_gets_no_answer(void **state)
{
    static const char *const kinds[] = {"lose=%u", "drop=%u", "late=%u,by=2"};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
        unsigned n = 0;
        uint64_t before;

        do {
            g_autofree char *kind = g_strdup_printf(kinds[i], ++n);
            g_autofree char *engine = g_strdup_printf("crash:%s", kind);
            int closed, rc;

            before = vj_meta_crash_hits();
            rc = try_one(open_to_lose, engine, &closed);
            if (rc < 0 && i == 0) { /* what was done is no error */
                fail_msg("%s: %s", engine, g_strerror(-rc));
            }
        } while (vj_meta_crash_hits() > before);
        assert_true(n > NAMES_OF_VICTIM);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_session_ends_at_any_call),
    cmocka_unit_test(test_any_commit_gets_no_answer),
};

VJ_TEST_MAIN(tests)
