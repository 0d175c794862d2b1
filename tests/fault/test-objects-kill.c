/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-objects-kill.c - SIGKILL at any moment; the next open finds all that was durable
 *
 * A child stores, commits, drops and reaps on the posix store and tells of each content
 * that is durable and of each drop before it begins.  The parent kills it after a number
 * of lines, opens the volume and looks.
 */
#include "../unit/object/object-fixture.h"

#include <signal.h>

#define CONTENTS 16

static const VjTransform plain_none;

/* What the child tells: content c is referenced durably / is about to be dropped. */
typedef struct Line {
    char what; /* '+' or '-' */
    uint8_t content;
    uint64_t id;
} Line;

static void tell(int to, char what, uint64_t content_number, uint64_t id)
{
    Line line = {.what = what, .content = (uint8_t)content_number, .id = id};

    if (write(to, &line, sizeof line) != (ssize_t)sizeof line) {
        _exit(0); /* the parent has gone */
    }
}

static void child(Fixture *f, int to, uint64_t seed)
{
    uint64_t ids[CONTENTS] = {0};
    VjRng rng;

    f->block_ids = 5;
    fixture_open_seams(f, f->driver, false);
    fixture_open_objects(f);
    vj_rng_init(&rng, seed);
    for (;;) {
        uint64_t n = vj_rng_below(&rng, CONTENTS);
        g_autofree uint8_t *bytes = content(n, 3000 + n);
        VjObject object;
        VjPendingObject *pending;

        if (store_plain(f->objects, bytes, (uint32_t)(3000 + n), &plain_none, NULL, 0,
                        &pending) < 0) {
            _exit(1);
        }
        if (vj_rng_below(&rng, 4) == 0) {
            if (vj_rng_below(&rng, 2) == 0) {
                vj_pending_free(f->objects, pending, false);
            } /* else: in flight when the end comes */
            continue;
        }
        if (ids[n] != 0) {
            vj_pending_free(f->objects, pending, false);
            tell(to, '-', n, ids[n]);
            if (drop_ref(f, ids[n]) < 0) {
                _exit(1);
            }
            vj_objects_kick(f->objects);
            ids[n] = 0;
        } else if (commit_pending(f, &pending, 1, &object) < 0 ||
                   vj_meta_flush(f->meta) < 0) {
            _exit(1);
        } else {
            ids[n] = object.id;
            tell(to, '+', n, object.id);
        }
    }
}

/* The references that the records hold are what the maps of a real volume would say. */
static void believe_records(Fixture *f)
{
    VjListing l;

    g_hash_table_remove_all(f->counts);
    vj_listing_begin(&l, f->meta, VJ_SPACE_OBJECT);
    while (vj_listing_next(&l)) {
        gint64 *refs = g_new(gint64, 1), *id = g_new(gint64, 1);
        VjObject object;

        assert_int_equal(get_object(f, vj_be64_get(l.key.data), &object), 0);
        *refs = (gint64)object.refs;
        *id = (gint64)object.id;
        g_hash_table_insert(f->counts, id, refs);
    }
    assert_int_equal(vj_listing_end(&l), 0);
}

static void look(Fixture *f, const uint64_t ids[CONTENTS])
{
    fixture_open_seams(f, f->driver, false);
    fixture_open_objects(f);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    believe_records(f);
    assert_consistent(f);
    assert_int_equal(stored_count(f), key_count(f, VJ_SPACE_OBJECT));
    if (g_str_has_prefix(f->driver, "block")) {
        assert_int_equal(key_count(f, VJ_SPACE_STORE), key_count(f, VJ_SPACE_OBJECT));
    }
    for (uint64_t n = 0; n < CONTENTS; n++) {
        g_autofree uint8_t *bytes = content(n, 3000 + n);
        VjObject object;

        if (ids[n] != 0) {
            assert_int_equal(get_object(f, ids[n], &object), 0);
            assert_int_equal(object.refs, 1);
            assert_content(f, &object, bytes);
        }
    }
    /* The next child begins with nothing. */
    for (uint64_t n = 0; n < CONTENTS; n++) {
        g_autofree uint8_t *bytes = content(n, 3000 + n);
        VjObject object;

        must_put(f, bytes, (uint32_t)(3000 + n), &object);
        while (object.refs-- > 0) {
            assert_int_equal(drop_ref(f, object.id), 0);
        }
    }
    fixture_close_objects(f);
    fixture_close_seams(f);
}

/* Lines of the child until it is killed; returns how many. */
static void follow(int from, pid_t pid, unsigned kill_after, uint64_t ids[CONTENTS])
{
    unsigned lines = 0;
    Line line;

    while (read(from, &line, sizeof line) == (ssize_t)sizeof line) {
        assert_true(line.content < CONTENTS);
        ids[line.content] = line.what == '+' ? line.id : 0;
        if (++lines == kill_after) {
            kill(pid, SIGKILL);
        }
    }
    assert_true(lines >= kill_after);
}

static void test_a_kill_at_any_moment(void **state)
{
    Fixture *f = *state;

    fixture_close_objects(f);
    fixture_close_seams(f);
    for (unsigned round = 1; round <= 12; round++) {
        uint64_t ids[CONTENTS] = {0};
        int ends[2], status;
        pid_t pid;

        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(ends[0]);
            child(f, ends[1], round);
            _exit(1);
        }
        close(ends[1]);
        follow(ends[0], pid, round * 3, ids);
        close(ends[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        look(f, ids);
    }
}

static const struct CMUnitTest tests[] = {
    {"posix: a_kill_at_any_moment", test_a_kill_at_any_moment, fixture_setup_posix,
     fixture_teardown, NULL},
    {"block: a_kill_at_any_moment", test_a_kill_at_any_moment, fixture_setup_block,
     fixture_teardown, NULL},
};

VJ_TEST_MAIN(tests)
