/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-gate.c - what an edit lets in, what it shifts, and what has to be invalidated again
 */
#include "../../lib/test.h"

#include "front/front-private.h"

#define INO 42u
#define PAGE VJ_PAGE_BYTES

typedef struct Fixture {
    VjGates *gates;
    VjGate *gate;
} Fixture;

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);

    f->gates = vj_gates_new();
    vj_clock_set_for_test(NULL, 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;

    vj_gates_free(f->gates);
    g_free(f);
    return 0;
}

static void edit_to_window(Fixture *f, const VjEdited *edited)
{
    VjJob job = {.ino = INO};

    assert_true(vj_gate_edit_begin(f->gates, INO, &job, &f->gate));
    vj_gate_edit_start(f->gates, f->gate);
    vj_gate_close(f->gates, f->gate);
    vj_gate_open(f->gates, f->gate, edited, NULL);
}

static void edit_end(Fixture *f)
{
    vj_gate_settle(f->gates, f->gate);
    assert_null(vj_gate_edit_end(f->gates, f->gate));
}

static bool pass(Fixture *f, VjPassKind kind, uint64_t offset, uint64_t len)
{
    VjPass p;

    vj_gate_enter(f->gates, INO, kind, offset, len, &p);
    return vj_gate_leave(f->gates, &p);
}

static void test_quiet_file(void **state)
{
    Fixture *f = *state;
    VjPass p;

    assert_false(pass(f, VJ_PASS_READ, 0, 100));
    assert_false(pass(f, VJ_PASS_WRITE_DIRECT, 0, 100));
    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE_PAGE, 0, 100, &p);
    assert_null(p.parts);
    assert_false(vj_gate_leave(f->gates, &p));
}

/* Rule 3: in flight when an edit began, during it, and until a second after it. */
static void test_hot_writes(void **state)
{
    static const VjEdited edited = {.at = 10, .len = 5, .changed = true};
    Fixture *f = *state;
    VjJob job = {.ino = INO};
    VjPass before, reader;
    int64_t now_us = 1000000000;
    struct timespec real = {1, 0};

    vj_clock_set_for_test(&real, now_us);
    assert_true(vj_gate_edit_begin(f->gates, INO, &job, &f->gate));
    assert_false(pass(f, VJ_PASS_READ, 0, 10)); /* before: its pages will be dropped */
    assert_false(pass(f, VJ_PASS_WRITE_DIRECT, 0, 10));
    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE_DIRECT, 0, 10, &before);
    vj_gate_enter(f->gates, INO, VJ_PASS_READ, 0, 10, &reader);
    vj_gate_edit_start(f->gates, f->gate);
    assert_false(pass(f, VJ_PASS_WRITE_DIRECT, 0, 10)); /* nobody has read it since */
    assert_false(pass(f, VJ_PASS_READ, 0, 10));
    assert_true(vj_gate_leave(f->gates, &before));
    assert_false(vj_gate_leave(f->gates, &reader));
    assert_false(pass(f, VJ_PASS_WRITE_DIRECT, PAGE, 10)); /* another page */
    assert_true(pass(f, VJ_PASS_WRITE_DIRECT, 0, 10));
    assert_false(pass(f, VJ_PASS_SIZE, 0, 0));
    assert_false(
        pass(f, VJ_PASS_WRITE_DIRECT, 0, 10)); /* the kernel has dropped its pages */
    assert_false(pass(f, VJ_PASS_READ, 0, 10));
    vj_gate_close(f->gates, f->gate);
    vj_gate_open(f->gates, f->gate, &edited, NULL);
    assert_true(pass(f, VJ_PASS_WRITE_DIRECT, 0, 10));
    edit_end(f);
    assert_true(pass(f, VJ_PASS_WRITE_DIRECT, 0, 10));
    vj_clock_set_for_test(&real, now_us + VJ_FRONT_HOT_US - 1);
    assert_true(pass(f, VJ_PASS_WRITE_DIRECT, 0, 10));
    vj_clock_set_for_test(&real, now_us + VJ_FRONT_HOT_US);
    assert_false(pass(f, VJ_PASS_WRITE_DIRECT, 0, 10));

    /* The next edit, later, starts with nothing read; a stored page counts as read. */
    assert_true(vj_gate_edit_begin(f->gates, INO, &job, &f->gate));
    vj_gate_edit_start(f->gates, f->gate);
    assert_false(pass(f, VJ_PASS_WRITE_DIRECT, 0, 10));
    vj_gate_note_store(f->gates, f->gate, 0);
    assert_true(pass(f, VJ_PASS_WRITE_DIRECT, 0, 10));
    edit_end(f);
    vj_clock_set_for_test(NULL, 0);
}

static void expect_parts(const VjPass *p, const VjPassPart *parts, guint count)
{
    assert_non_null(p->parts);
    assert_int_equal(p->parts->len, count);
    for (guint i = 0; i < count; i++) {
        const VjPassPart *got = &g_array_index(p->parts, VjPassPart, i);

        assert_int_equal(got->skip, parts[i].skip);
        assert_int_equal(got->offset, parts[i].offset);
        assert_int_equal(got->len, parts[i].len);
    }
}

/* A page of the old end that comes back while the kernel learns of the new one. */
static void test_cleared(void **state)
{
    static const VjEdited edited = {
        .at = 0,
        .len = 300,
        .old_size = PAGE + 700,
        .size = PAGE + 1000,
        .changed = true,
    };
    static const VjPassPart expected[] = {
        {0, PAGE, 702}, {704, PAGE + 704, 1}, {999, PAGE + 999, 1}, {PAGE, 2 * PAGE, 5}};
    g_autofree char *buf = g_malloc0(2 * PAGE);
    const VjPassPart parts[] = {{0, PAGE, 1000}, {PAGE, 2 * PAGE, 5}};
    /* In old coordinates: zeroes from before the old end, which the edit has moved behind it. */
    const VjPassPart moved = {702, PAGE + 710, 2};
    g_autoptr(GArray) believed = NULL, all = NULL;
    Fixture *f = *state;
    VjPass p;

    memset(buf, 'x', 702); /* two bytes that somebody has stored, and two more */
    buf[704] = buf[999] = 'x';
    edit_to_window(f, &edited);
    vj_gate_settle(f->gates, f->gate);
    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE, PAGE, 1000, &p);
    assert_int_equal(p.cleared_to, 0); /* nobody else's pages */
    (void)vj_gate_leave(f->gates, &p);
    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE_PAGE, PAGE, 1000, &p);
    assert_int_equal(p.cleared_from, PAGE + 700);
    assert_int_equal(p.cleared_to, 2 * PAGE);
    believed = vj_pass_believed(&p, buf, parts, G_N_ELEMENTS(parts));
    (void)vj_gate_leave(f->gates, &p);
    p.offset = 0;
    all = vj_pass_believed(&p, buf, &moved, 1);
    assert_int_equal(all->len, 1);
    p.parts = believed;
    expect_parts(&p, expected, G_N_ELEMENTS(expected));
    assert_null(vj_gate_edit_end(f->gates, f->gate));
    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE_PAGE, PAGE, 1000, &p);
    assert_int_equal(p.cleared_to, 0);
    (void)vj_gate_leave(f->gates, &p);
}

/* A byte of ours is in a page that a WRITE has filled on its way in. */
static void test_stored(void **state)
{
    static const VjEdited edited = {.at = 10, .len = 5, .changed = true};
    Fixture *f = *state;

    edit_to_window(f, &edited);
    edit_end(f);
    vj_gate_note_store(f->gates, f->gate, 2 * PAGE + 5);
    assert_false(pass(f, VJ_PASS_WRITE_DIRECT, 0, 10 * PAGE)); /* fills no page */
    assert_false(pass(f, VJ_PASS_WRITE, 2 * PAGE + 1, PAGE));  /* waits with it locked */
    assert_false(pass(f, VJ_PASS_WRITE, 0, 10 * PAGE)); /* sent when that was answered */
    vj_gate_note_store(f->gates, f->gate, 2 * PAGE + 5);
    assert_true(pass(f, VJ_PASS_WRITE, 2 * PAGE, PAGE));
    vj_gate_note_store(f->gates, f->gate, 2 * PAGE + 5);
    vj_gate_forget_marks(f->gates, f->gate, 2 * PAGE, 1);
    assert_false(pass(f, VJ_PASS_WRITE, 2 * PAGE, PAGE));
}

static void test_shift(void **state)
{
    /* 100 bytes at page 2 + 50 become 30. */
    static const VjEdited edited = {
        .at = 2 * PAGE + 50,
        .old_len = 100,
        .len = 30,
        .old_size = 10 * PAGE,
        .size = 10 * PAGE - 70,
        .changed = true,
    };
    Fixture *f = *state;
    VjPass p;

    edit_to_window(f, &edited);
    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE_PAGE, 0, 2 * PAGE, &p);
    expect_parts(&p, (VjPassPart[]){{0, 0, 2 * PAGE}}, 1);
    assert_true(vj_gate_leave(f->gates, &p));

    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE_PAGE, PAGE, 3 * PAGE, &p);
    expect_parts(
        &p,
        (VjPassPart[]){{0, PAGE, PAGE + 50}, {PAGE + 150, 2 * PAGE + 80, 2 * PAGE - 150}},
        2);
    assert_true(vj_gate_leave(f->gates, &p));

    /* Read in the window: the page is in new coordinates. */
    assert_false(pass(f, VJ_PASS_READ, 3 * PAGE + 5, 10));
    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE_PAGE, 3 * PAGE, 2 * PAGE, &p);
    expect_parts(&p, (VjPassPart[]){{0, 3 * PAGE, PAGE}, {PAGE, 4 * PAGE - 70, PAGE}}, 2);
    assert_true(vj_gate_leave(f->gates, &p));

    /* What is written in the window is, too; a page that came back is not. */
    assert_false(pass(f, VJ_PASS_WRITE, 5 * PAGE, 1));
    for (unsigned i = 0; i < 2; i++) {
        vj_gate_enter(f->gates, INO, VJ_PASS_WRITE_PAGE, 5 * PAGE, 2 * PAGE, &p);
        expect_parts(&p, (VjPassPart[]){{0, 5 * PAGE, PAGE}, {PAGE, 6 * PAGE - 70, PAGE}},
                     2);
        assert_true(vj_gate_leave(f->gates, &p));
    }

    /* Wholly replaced: nothing is left of it. */
    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE_PAGE, 2 * PAGE + 60, 40, &p);
    assert_int_equal(p.parts->len, 0);
    assert_true(vj_gate_leave(f->gates, &p));
    edit_end(f);

    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE_PAGE, 4 * PAGE, PAGE, &p);
    assert_null(p.parts);
    assert_false(vj_gate_leave(f->gates, &p));
}

/* An edit that changed nothing opens no window. */
static void test_failed_edit(void **state)
{
    static const VjEdited nothing = {.changed = false};
    Fixture *f = *state;
    VjPass p;

    edit_to_window(f, &nothing);
    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE_PAGE, 0, PAGE, &p);
    assert_null(p.parts);
    assert_false(vj_gate_leave(f->gates, &p));
    edit_end(f);
}

/* Dirty pages in old and new coordinates, against bytes that say where they belong. */
static void test_random_shifts(void **state)
{
    Fixture *f = *state;
    VjRng rng;

    vj_rng_init(&rng, 4711);
    for (unsigned round = 0; round < 300; round++) {
        uint64_t old_size = 1 + vj_rng_below(&rng, 20 * PAGE);
        VjEdited e = {.at = vj_rng_below(&rng, old_size + 1), .old_size = old_size};
        uint64_t first, last, from, len;
        VjPass p;

        e.old_len = vj_rng_below(&rng, old_size - e.at + 1);
        e.len = vj_rng_below(&rng, 3 * PAGE);
        e.size = old_size - e.old_len + e.len;
        e.changed = true;
        edit_to_window(f, &e);
        first = vj_rng_below(&rng, 20);
        last = first + vj_rng_below(&rng, 4);
        assert_false(pass(f, VJ_PASS_READ, first * PAGE, (last - first + 1) * PAGE));
        from = vj_rng_below(&rng, old_size);
        len = 1 + vj_rng_below(&rng, old_size - from);
        vj_gate_enter(f->gates, INO, VJ_PASS_WRITE_PAGE, from, len, &p);
        for (uint64_t i = 0, part = 0; i < len; i++) {
            uint64_t at = from + i, want = at, page = at / PAGE;
            bool gone = false;

            if ((page < first || page > last) && at >= e.at) {
                gone = at < e.at + e.old_len;
                want = at - e.old_len + e.len;
            }
            while (part < p.parts->len &&
                   i >= g_array_index(p.parts, VjPassPart, part).skip +
                            g_array_index(p.parts, VjPassPart, part).len) {
                part++;
            }
            if (part == p.parts->len ||
                i < g_array_index(p.parts, VjPassPart, part).skip) {
                assert_true(gone);
            } else {
                const VjPassPart *q = &g_array_index(p.parts, VjPassPart, part);

                assert_false(gone);
                assert_int_equal(q->offset + (i - q->skip), want);
            }
        }
        assert_true(vj_gate_leave(f->gates, &p));
        edit_end(f);
    }
}

/* ---- waiting ------------------------------------------------------------------------ */

static gpointer close_thread(gpointer data)
{
    Fixture *f = data;

    vj_gate_close(f->gates, f->gate);
    return NULL;
}

typedef struct Entrant {
    Fixture *f;
    gint inside; /* atomic */
} Entrant;

static gpointer enter_thread(gpointer data)
{
    Entrant *e = data;
    VjPass p;

    vj_gate_enter(e->f->gates, INO, VJ_PASS_READ, 0, 1, &p);
    g_atomic_int_set(&e->inside, 1);
    (void)vj_gate_leave(e->f->gates, &p);
    return NULL;
}

/* An edit is applied when those inside are out, and nobody comes in before it is. */
static void test_closed(void **state)
{
    static const VjEdited edited = {.len = 1, .size = 1, .changed = true};
    Fixture *f = *state;
    VjJob job = {.ino = INO}, second = {.ino = INO};
    Entrant entrant = {.f = f};
    VjGate *same;
    VjPass inside;
    GThread *closer, *late;

    vj_gate_enter(f->gates, INO, VJ_PASS_READ, 0, 1, &inside);
    assert_true(vj_gate_edit_begin(f->gates, INO, &job, &f->gate));
    assert_false(vj_gate_edit_begin(f->gates, INO, &second, &same));
    assert_ptr_equal(same, f->gate);
    vj_gate_edit_start(f->gates, f->gate);
    closer = g_thread_new("close", close_thread, f);
    /* The closer waits for us; it ends only after this. */
    (void)vj_gate_leave(f->gates, &inside);
    g_thread_join(closer);
    late = g_thread_new("enter", enter_thread, &entrant);
    g_thread_yield();
    assert_int_equal(g_atomic_int_get(&entrant.inside), 0);
    vj_gate_open(f->gates, f->gate, &edited, NULL);
    g_thread_join(late);
    assert_int_equal(g_atomic_int_get(&entrant.inside), 1);
    vj_gate_settle(f->gates, f->gate);
    assert_ptr_equal(vj_gate_edit_end(f->gates, f->gate), &second);
    vj_gate_edit_start(f->gates, f->gate);
    vj_gate_close(f->gates, f->gate);
    vj_gate_open(f->gates, f->gate, &edited, NULL);
    edit_end(f);
}

static uint64_t stale_add(Fixture *f, uint64_t offset, uint64_t len, bool queue)
{
    uint64_t ticket;

    assert_int_equal(vj_gate_stale_add(f->gates, INO, offset, len, &ticket), queue);
    return ticket;
}

static void stale_take(Fixture *f, uint64_t offset, uint64_t len)
{
    uint64_t got_offset, got_len;

    vj_gate_stale_take(f->gates, INO, &got_offset, &got_len);
    assert_int_equal(got_offset, offset);
    assert_int_equal(got_len, len);
}

static bool is_done(Fixture *f, uint64_t ticket)
{
    return vj_gate_stale_wait(f->gates, INO, ticket, 0);
}

/* One after the other, and each knows when it is done. */
static void test_stale_ranges(void **state)
{
    Fixture *f = *state;
    uint64_t first, second, third;

    first = stale_add(f, 100, 10, true);
    second = stale_add(f, 300, 10, false);
    third = stale_add(f, 50, 1, false);
    assert_int_equal(stale_add(f, 50, 1, false), third); /* it is in the last one */
    stale_take(f, 100, 10);
    assert_false(is_done(f, first));
    assert_true(vj_gate_stale_done(f->gates, INO));
    assert_true(is_done(f, first));
    assert_false(is_done(f, second));
    stale_take(f, 300, 10);
    assert_int_not_equal(stale_add(f, 300, 10, false), second); /* that has begun */
    assert_true(vj_gate_stale_done(f->gates, INO));
    assert_true(is_done(f, second));
    assert_false(is_done(f, third));
    stale_take(f, 50, 1);
    assert_true(vj_gate_stale_done(f->gates, INO));
    assert_true(is_done(f, third));
    assert_false(is_done(f, VJ_TICKET_ALL));
    stale_take(f, 300, 10);
    assert_false(vj_gate_stale_done(f->gates, INO));
    assert_true(is_done(f, VJ_TICKET_ALL));

    /* The gate is another one by now; old tickets have nothing to do with it. */
    (void)stale_add(f, 7, 1, true);
    assert_true(is_done(f, third));
    stale_take(f, 7, 1);
    assert_false(vj_gate_stale_done(f->gates, INO));
}

/* Many: the last one grows, and nobody is told that his is done before it is. */
static void test_many_stale_ranges(void **state)
{
    enum { COUNT = 1000 };
    Fixture *f = *state;
    uint64_t ticket[COUNT], offset, len, to = 0;
    bool more = true;

    for (uint64_t i = 0; i < COUNT; i++) {
        ticket[i] = stale_add(f, i * 2 * PAGE, PAGE, i == 0);
        assert_true(i == 0 || ticket[i] >= ticket[i - 1]);
    }
    for (uint64_t i = 0; more; i++) {
        vj_gate_stale_take(f->gates, INO, &offset, &len);
        assert_int_equal(offset, i * 2 * PAGE);
        to = offset + len;
        assert_false(is_done(f, ticket[i]));
        assert_false(is_done(f, ticket[COUNT - 1]));
        more = vj_gate_stale_done(f->gates, INO);
        assert_true(is_done(f, ticket[i]));
    }
    assert_int_equal(to, (COUNT - 1) * 2 * PAGE + PAGE);
    assert_true(is_done(f, ticket[COUNT - 1]));
}

/* What nobody has begun, and nobody else waits for, may be taken back. */
static void test_withdraw(void **state)
{
    Fixture *f = *state;
    uint64_t first, second, third;

    assert_false(vj_gate_stale_withdraw(f->gates, INO, 1));
    first = stale_add(f, 100, 10, true);
    second = stale_add(f, 300, 10, false);
    assert_false(vj_gate_stale_withdraw(f->gates, INO, first)); /* promised to a thread */
    stale_take(f, 100, 10);
    assert_false(vj_gate_stale_withdraw(f->gates, INO, first));
    third = stale_add(f, 500, 10, false);
    assert_true(vj_gate_stale_withdraw(f->gates, INO, second));
    assert_false(vj_gate_stale_withdraw(f->gates, INO, second));
    assert_int_equal(stale_add(f, 505, 1, false), third);
    assert_false(vj_gate_stale_withdraw(f->gates, INO, third)); /* two wait for it */
    assert_true(vj_gate_stale_done(f->gates, INO));
    stale_take(f, 500, 10);
    assert_false(vj_gate_stale_done(f->gates, INO));
}

/* A READ from before an invalidation does not make a later WRITE's page stale. */
static void test_invalidated_reads(void **state)
{
    static const VjEdited edited = {.at = 10, .len = 5, .changed = true};
    Fixture *f = *state;

    edit_to_window(f, &edited);
    assert_false(pass(f, VJ_PASS_READ, 0, 10 * PAGE));
    assert_false(pass(f, VJ_PASS_READ_DIRECT, 20 * PAGE, PAGE));
    assert_true(pass(f, VJ_PASS_WRITE_DIRECT, 3 * PAGE, 1));
    assert_false(
        pass(f, VJ_PASS_WRITE_DIRECT, 20 * PAGE, 1)); /* a direct one brings no page */
    (void)stale_add(f, 3 * PAGE + 5, PAGE, true);     /* pages 3 and 4 */
    assert_true(pass(f, VJ_PASS_WRITE_DIRECT, 3 * PAGE, 1));
    stale_take(f, 3 * PAGE + 5, PAGE);
    assert_true(pass(f, VJ_PASS_WRITE_DIRECT, 2 * PAGE, PAGE));
    assert_false(pass(f, VJ_PASS_WRITE_DIRECT, 3 * PAGE, 2 * PAGE));
    assert_true(pass(f, VJ_PASS_WRITE_DIRECT, 5 * PAGE, 1));
    assert_false(pass(f, VJ_PASS_READ, 4 * PAGE, 1));
    assert_false(vj_gate_stale_done(f->gates, INO));
    assert_true(pass(f, VJ_PASS_WRITE_DIRECT, 4 * PAGE, 1)); /* read meanwhile */
    vj_gate_forget_marks(f->gates, f->gate, 4 * PAGE + 1, 0);
    assert_false(pass(f, VJ_PASS_WRITE_DIRECT, 3 * PAGE, 100 * PAGE));
    assert_true(pass(f, VJ_PASS_WRITE_DIRECT, 0, PAGE));
    /* Plain WRITEs come one after the other: what was read before one is old to the next. */
    assert_true(pass(f, VJ_PASS_WRITE, 0, PAGE));
    assert_false(pass(f, VJ_PASS_WRITE, 0, PAGE));
    assert_false(pass(f, VJ_PASS_READ, 0, PAGE));
    assert_false(pass(f, VJ_PASS_SIZE, 0, 0));
    assert_false(pass(f, VJ_PASS_WRITE, 0, PAGE));
    edit_end(f);
}

static gpointer wait_quiet(gpointer opaque)
{
    Fixture *f = opaque;

    assert_true(vj_gate_stale_wait(f->gates, INO, VJ_TICKET_ALL, G_MAXINT64 / 4));
    return NULL;
}

/* Who waits for quiet goes on when the last range is invalidated, or after its time. */
static bool may_hold(Fixture *f, uint64_t page, uint64_t pages)
{
    return vj_gate_may_hold(f->gates, f->gate, page * PAGE, pages * PAGE);
}

/* An edit of @edited; whether pages are to be invalidated behind it. */
static bool edit_at(Fixture *f, const VjEdited *edited, const uint8_t *end)
{
    VjJob job = {.ino = INO};
    bool window;

    assert_true(vj_gate_edit_begin(f->gates, INO, &job, &f->gate));
    vj_gate_edit_start(f->gates, f->gate);
    vj_gate_close(f->gates, f->gate);
    window = vj_gate_open(f->gates, f->gate, edited, end);
    edit_end(f);
    return window;
}

/* Which edits need no invalidation: those before no page that the kernel may hold. */
static void test_held_pages(void **state)
{
    static const VjEdited none = {.at = 8 * PAGE, .old_size = 99 * PAGE};
    static const VjEdited edited = {.at = 8 * PAGE + 5,
                                    .len = 5,
                                    .old_size = 99 * PAGE,
                                    .size = 99 * PAGE + 5,
                                    .changed = true};
    static const VjEdited hole = {.at = 20 * PAGE,
                                  .len = 1,
                                  .old_size = 7 * PAGE,
                                  .size = 20 * PAGE + 1,
                                  .changed = true};
    Fixture *f = *state;
    VjJob job = {.ino = INO};
    struct timespec real = {1, 0};
    VjPass reader;
    VjGate *gate;

    vj_clock_set_for_test(&real, 1000000000);
    assert_false(vj_gate_edit_try(f->gates, INO, 0, 0, &gate)); /* nothing is known */
    vj_gate_enter(f->gates, INO, VJ_PASS_READ, 9 * PAGE, PAGE, &reader);
    assert_false(vj_gate_edit_try(f->gates, INO, 8 * PAGE, 0, &gate));
    assert_true(vj_gate_edit_begin(f->gates, INO, &job, &f->gate));
    assert_false(vj_gate_edit_try(f->gates, INO, 8 * PAGE, 0, &gate)); /* busy */
    vj_gate_edit_start(f->gates, f->gate);
    assert_true(may_hold(f, 8, 0));
    vj_gate_forget_marks(f->gates, f->gate, 8 * PAGE, 0);
    assert_false(vj_gate_leave(f->gates, &reader)); /* the invalidation waited for it */
    vj_gate_dropped(f->gates, f->gate, 8 * PAGE, 0, true);
    assert_true(may_hold(f, 7, 0));
    assert_false(may_hold(f, 8, 0));
    vj_gate_close(f->gates, f->gate);
    assert_false(vj_gate_open(f->gates, f->gate, &edited, NULL));
    edit_end(f);
    assert_false(edit_at(f, &edited, NULL));
    assert_true(edit_at(f, &hole, NULL)); /* the page of the old end */
    assert_false(edit_at(f, &none, NULL));

    /* What brings a page behind it is noticed, ... */
    assert_false(pass(f, VJ_PASS_READ, 0, 8 * PAGE));
    assert_false(pass(f, VJ_PASS_READ_DIRECT, 9 * PAGE, PAGE));
    assert_false(pass(f, VJ_PASS_SIZE, 0, 0));
    assert_false(may_hold(f, 8, 0));
    assert_false(pass(f, VJ_PASS_READ, 30 * PAGE + 7, 1));
    assert_true(may_hold(f, 8, 0));
    assert_true(may_hold(f, 30, 1));
    assert_false(may_hold(f, 8, 22));
    assert_false(may_hold(f, 31, 0));
    assert_true(edit_at(f, &edited, NULL));
    vj_gate_forget_marks(f->gates, f->gate, 30 * PAGE, PAGE);
    vj_gate_dropped(f->gates, f->gate, 30 * PAGE, PAGE, true);
    assert_false(may_hold(f, 8, 0));
    (void)pass(f, VJ_PASS_WRITE, 40 * PAGE, 1);
    (void)pass(f, VJ_PASS_WRITE_PAGE, 42 * PAGE, PAGE);
    vj_gate_note_store(f->gates, f->gate, 44 * PAGE);
    for (uint64_t page = 39; page < 46; page++) {
        assert_int_equal(may_hold(f, page, 1), page % 2 == 0);
    }
    /* ... also during the invalidation, ... */
    vj_gate_forget_marks(f->gates, f->gate, 8 * PAGE, 0);
    assert_false(pass(f, VJ_PASS_READ, 50 * PAGE, 1));
    vj_gate_dropped(f->gates, f->gate, 8 * PAGE, 0, true);
    assert_true(may_hold(f, 8, 0));
    assert_true(edit_at(f, &edited, NULL));
    /* ... and one that failed says nothing. */
    vj_gate_forget_marks(f->gates, f->gate, 60 * PAGE, 0);
    vj_gate_dropped(f->gates, f->gate, 60 * PAGE, 0, false);
    assert_true(may_hold(f, 70, 0));
    vj_clock_set_for_test(NULL, 0);
}

/* What is read behind an invalidation that is under way is old, and has to go after the edit: also
 * where the gate knew nothing before. */
static void test_read_behind_invalidation(void **state)
{
    static const VjEdited edited = {
        .at = 0, .len = 5, .old_size = 99 * PAGE, .size = 99 * PAGE + 5, .changed = true};
    Fixture *f = *state;
    VjJob job = {.ino = INO};

    for (uint64_t from = 16; from <= 16; from -= 8) { /* 16, 8, 0: lower each time */
        assert_true(vj_gate_edit_begin(f->gates, INO, &job, &f->gate));
        vj_gate_edit_start(f->gates, f->gate);
        assert_true(may_hold(f, from, 0));
        vj_gate_forget_marks(f->gates, f->gate, from * PAGE, 0);
        assert_false(pass(f, VJ_PASS_READ, (from + 2) * PAGE, PAGE));
        vj_gate_dropped(f->gates, f->gate, from * PAGE, 0, true);
        assert_true(may_hold(f, from, 0));
        assert_true(may_hold(f, from + 2, 1));
        assert_false(may_hold(f, from, 2));
        vj_gate_close(f->gates, f->gate);
        assert_true(vj_gate_open(f->gates, f->gate, &edited, NULL));
        edit_end(f);
    }
}

/* More ranges than are kept one by one: rather too much is held than too little. */
static void test_many_held_pages(void **state)
{
    static const VjEdited edited = {
        .at = 0, .len = 1, .old_size = PAGE, .size = PAGE + 1, .changed = true};
    Fixture *f = *state;

    edit_to_window(f, &edited);
    vj_gate_forget_marks(f->gates, f->gate, 0, 0);
    vj_gate_dropped(f->gates, f->gate, 0, 0, true);
    for (uint64_t i = 0; i < 1000; i++) {
        (void)pass(f, VJ_PASS_READ, i * 3 * PAGE, PAGE);
    }
    for (uint64_t i = 0; i < 1000; i++) {
        assert_true(may_hold(f, i * 3, 1));
    }
    assert_false(may_hold(f, 1, 1));
    assert_false(may_hold(f, 2998, 0));
    edit_end(f);
}

/* The last byte is remembered as long as nobody can have changed it. */
static void test_end_byte(void **state)
{
    static const VjEdited before = {
        .at = 10, .len = 5, .old_size = 100, .size = 105, .changed = true};
    static const VjEdited over = {
        .at = 90, .old_len = 10, .old_size = 100, .size = 90, .changed = true};
    static const uint8_t end = 7;
    Fixture *f = *state;
    uint64_t writes;
    uint8_t byte;
    VjPass p;

    edit_to_window(f, &before);
    writes = vj_gate_writes(f->gates, f->gate);
    assert_false(vj_gate_end_byte(f->gates, f->gate, writes, &byte));
    vj_gate_end_known(f->gates, f->gate, writes, 5);
    edit_end(f);
    (void)edit_at(f, &before, NULL);
    assert_true(vj_gate_end_byte(f->gates, f->gate, writes, &byte));
    assert_int_equal(byte, 5);
    (void)edit_at(f, &over, NULL);
    assert_false(vj_gate_end_byte(f->gates, f->gate, writes, &byte));
    (void)edit_at(f, &over, &end);
    assert_true(vj_gate_end_byte(f->gates, f->gate, writes, &byte));
    assert_int_equal(byte, 7);
    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE, 0, 1, &p);
    assert_false(
        vj_gate_end_byte(f->gates, f->gate, vj_gate_writes(f->gates, f->gate), &byte));
    (void)vj_gate_leave(f->gates, &p);
    (void)edit_at(f, &before, NULL);
    assert_false(
        vj_gate_end_byte(f->gates, f->gate, vj_gate_writes(f->gates, f->gate), &byte));
}

static void test_wait_quiet(void **state)
{
    Fixture *f = *state;
    GThread *waiter;

    (void)wait_quiet(f); /* nobody knows the inode */
    (void)stale_add(f, 100, 10, true);
    stale_take(f, 100, 10);
    assert_false(
        vj_gate_stale_wait(f->gates, INO, VJ_TICKET_ALL, 1)); /* its time is over */
    assert_false(vj_gate_stale_done(f->gates, INO));
    (void)stale_add(f, 100, 10, true);
    waiter = g_thread_new("waiter", wait_quiet, f);
    stale_take(f, 100, 10);
    (void)stale_add(f, 200, 10, false); /* one more meanwhile */
    assert_true(vj_gate_stale_done(f->gates, INO));
    stale_take(f, 200, 10);
    assert_false(vj_gate_stale_done(f->gates, INO));
    g_thread_join(waiter);
}

static void shrink(Fixture *f, pid_t caller)
{
    VjEdited edited = {
        .at = 0, .old_len = 10, .old_size = 100, .size = 90, .changed = true};

    edit_to_window(f, &edited);
    vj_gate_settle(f->gates, f->gate);
    vj_gate_untold(f->gates, f->gate, caller);
}

static bool must_wait(Fixture *f, pid_t who)
{
    return vj_gate_told_wait(f->gates, INO, who, 1);
}

/* Of a smaller size the kernel is told by the caller of the edit, before anybody else. */
static void test_told(void **state)
{
    Fixture *f = *state;
    VjPass early, late;

    assert_false(must_wait(f, 8)); /* nobody knows the inode */
    shrink(f, 7);
    vj_gate_enter(f->gates, INO, VJ_PASS_READ, 0, 4096, &early);
    (void)vj_gate_leave(f->gates, &early);
    assert_null(vj_gate_edit_end(f->gates, f->gate));
    vj_gate_told(f->gates, &early); /* it read to the end */
    assert_false(must_wait(f, 8));

    shrink(f, 7);
    vj_gate_told(f->gates, &early); /* from before this edit */
    vj_gate_enter(f->gates, INO, VJ_PASS_READ, 0, 4096, &late);
    (void)vj_gate_leave(f->gates, &late);
    assert_null(vj_gate_edit_end(f->gates, f->gate));
    assert_true(must_wait(f, 7)); /* the caller calls stat(2) */
    assert_false(must_wait(f, 8));
    vj_gate_told(f->gates, &late);
    assert_false(must_wait(f, 8));

    shrink(f, 0); /* somebody whom this process cannot see */
    assert_null(vj_gate_edit_end(f->gates, f->gate));
    assert_false(must_wait(f, 8));
}

static int waiters; /* that have begun */

static gpointer wait_told(gpointer opaque)
{
    Fixture *f = opaque;

    g_atomic_int_inc(&waiters);
    assert_true(vj_gate_told_wait(f->gates, INO, 8, G_MAXINT64 / 4));
    return NULL;
}

/* Most probably it waits when this returns; if not, the test tests less. */
static GThread *begin_waiter(Fixture *f)
{
    int before = g_atomic_int_get(&waiters);
    GThread *waiter = g_thread_new("waiter", wait_told, f);

    while (g_atomic_int_get(&waiters) == before) {
        g_thread_yield();
    }
    for (unsigned i = 0; i < 1000; i++) {
        g_thread_yield();
    }
    return waiter;
}

/* Who came while an edit was made goes on when its caller has had his time, or needs none. */
static void test_never_told(void **state)
{
    VjEdited longer = {.at = 0, .len = 10, .old_size = 90, .size = 100, .changed = true};
    VjEdited shorter = {
        .at = 0, .old_len = 10, .old_size = 100, .size = 90, .changed = true};
    Fixture *f = *state;

    for (unsigned round = 0; round < 20; round++) {
        GThread *waiter;

        edit_to_window(f, &shorter);
        waiter = begin_waiter(f);
        vj_gate_settle(f->gates, f->gate);
        vj_gate_untold(f->gates, f->gate, 7);
        assert_null(vj_gate_edit_end(f->gates, f->gate));
        g_thread_join(waiter);

        shrink(f, 7);
        assert_null(vj_gate_edit_end(f->gates, f->gate));
        edit_to_window(f, &longer);
        waiter = begin_waiter(f);
        edit_end(f);
        g_thread_join(waiter);
    }
}

/* An edit waits for answers from before it that make the kernel's size larger. */
static void test_raised(void **state)
{
    Fixture *f = *state;
    VjPass write;

    shrink(f, 7);
    assert_null(vj_gate_edit_end(f->gates, f->gate));
    vj_gate_enter(f->gates, INO, VJ_PASS_WRITE, 90, 10, &write);
    write.raises = true;
    (void)vj_gate_leave(f->gates, &write);
    shrink(f, 7);
    vj_gate_answered(f->gates, &write, 8);
    assert_false(vj_gate_raise_wait(f->gates, f->gate, 8)); /* who has the answer */
    assert_null(vj_gate_edit_end(f->gates, f->gate));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_quiet_file, setup, teardown),
    cmocka_unit_test_setup_teardown(test_hot_writes, setup, teardown),
    cmocka_unit_test_setup_teardown(test_stored, setup, teardown),
    cmocka_unit_test_setup_teardown(test_cleared, setup, teardown),
    cmocka_unit_test_setup_teardown(test_shift, setup, teardown),
    cmocka_unit_test_setup_teardown(test_failed_edit, setup, teardown),
    cmocka_unit_test_setup_teardown(test_random_shifts, setup, teardown),
    cmocka_unit_test_setup_teardown(test_closed, setup, teardown),
    cmocka_unit_test_setup_teardown(test_stale_ranges, setup, teardown),
    cmocka_unit_test_setup_teardown(test_many_stale_ranges, setup, teardown),
    cmocka_unit_test_setup_teardown(test_withdraw, setup, teardown),
    cmocka_unit_test_setup_teardown(test_invalidated_reads, setup, teardown),
    cmocka_unit_test_setup_teardown(test_held_pages, setup, teardown),
    cmocka_unit_test_setup_teardown(test_read_behind_invalidation, setup, teardown),
    cmocka_unit_test_setup_teardown(test_many_held_pages, setup, teardown),
    cmocka_unit_test_setup_teardown(test_end_byte, setup, teardown),
    cmocka_unit_test_setup_teardown(test_wait_quiet, setup, teardown),
    cmocka_unit_test_setup_teardown(test_told, setup, teardown),
    cmocka_unit_test_setup_teardown(test_never_told, setup, teardown),
    cmocka_unit_test_setup_teardown(test_raised, setup, teardown),
};

VJ_TEST_MAIN(tests)
