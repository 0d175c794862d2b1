/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-coherence.c - whom an edit lets in, what the kernel may hold, and where pages that
 * come back belong
 */
#include "../../lib/test.h"

#include "front/front-private.h"

#define INO 42u
#define PAGE VJ_PAGE_BYTES
#define SOMEBODY 7

static int64_t now_us = 1000000000;
/* Of the thread that makes the edits. */
static gint is_runnable; /* atomic */
static gint run_ns;      /* atomic */
static gint looks;       /* atomic */

/* In place of thread-time.c. */
bool vj_thread_is_runnable(pid_t tid, uint64_t *out)
{
    assert_true(tid == SOMEBODY + 1 || tid == 0);
    g_atomic_int_inc(&looks);
    *out = (uint64_t)g_atomic_int_get(&run_ns);
    return g_atomic_int_get(&is_runnable) != 0;
}

static void set_clock(int64_t us)
{
    struct timespec real = {1, 0};

    now_us = us;
    vj_clock_set_for_test(&real, now_us);
}

static int setup(void **state)
{
    *state = vj_coherence_new();
    set_clock(1000000000);
    return 0;
}

static int teardown(void **state)
{
    vj_coherence_free(*state);
    vj_clock_set_for_test(NULL, 0);
    return 0;
}

/* Nobody is cancelled. */
static void pages_begin(VjCoherence *c, uint64_t ino, VjPassKind kind, uint64_t offset,
                        uint64_t len, pid_t who, VjPass *p)
{
    assert_int_equal(vj_coherence_pages_begin(c, ino, kind, offset, len, who, p), 0);
}

static void edit_begin(VjCoherence *c, uint64_t ino, uint64_t offset, uint64_t len,
                       VjEditPass *p)
{
    assert_int_equal(vj_coherence_edit_begin(c, ino, offset, len, p), 0);
}

static void read_pages(VjCoherence *c, uint64_t first, uint64_t count)
{
    VjPass p;

    pages_begin(c, INO, VJ_PASS_READ, first * PAGE, count * PAGE, SOMEBODY, &p);
    assert_null(p.parts);
    vj_coherence_pages_end(c, &p);
}

static void drop(VjCoherence *c, uint64_t first, bool ok)
{
    VjDrop d;

    vj_coherence_drop_begin(c, INO, first * PAGE, 0, &d);
    vj_coherence_drop_end(c, &d, ok);
}

static bool may_hold(VjCoherence *c, uint64_t first)
{
    return vj_coherence_may_hold(c, INO, first * PAGE, 0);
}

/* An edit before page @first; false: it meets pages. */
static bool edit(VjCoherence *c, uint64_t first)
{
    static const VjEdited nothing = {.changed = false};
    VjEditPass p;

    edit_begin(c, INO, first * PAGE, 0, &p);
    vj_coherence_edit_end(c, &p, &nothing, VJ_WINDOW_NONE, NULL);
    return !p.may_hold;
}

/* ---- what the kernel may hold ------------------------------------------------------ */

static void test_nothing_is_known_at_first(void **state)
{
    VjCoherence *c = *state;

    assert_true(may_hold(c, 0));
    read_pages(c, 0, 1);
    assert_false(edit(c, 0));
    assert_true(may_hold(c, 0));
}

static void test_an_invalidation_to_the_end_tells(void **state)
{
    VjCoherence *c = *state;

    drop(c, 3, true);
    assert_true(may_hold(c, 2));
    assert_false(may_hold(c, 3));
    assert_true(edit(c, 3));
    assert_false(edit(c, 2));
    read_pages(c, 1, 1); /* nothing is known of that one anyway */
    assert_false(may_hold(c, 3));
    read_pages(c, 5, 2);
    assert_true(may_hold(c, 3));
    assert_false(may_hold(c, 7));
    assert_false(vj_coherence_may_hold(c, INO, 3 * PAGE, 2 * PAGE));
    assert_true(vj_coherence_may_hold(c, INO, 3 * PAGE, 3 * PAGE));
    drop(c, 6, true);
    assert_true(may_hold(c, 5));
    assert_false(may_hold(c, 6));
}

/* write(2) fills pages before its WRITE comes; a direct one is not told of. */
static void test_writes_bring_pages(void **state)
{
    VjCoherence *c = *state;

    drop(c, 0, true);
    vj_coherence_locked(c, INO, 0, 0);
    assert_false(may_hold(c, 0));
    vj_coherence_locked(c, INO, 4 * PAGE, 1);
    assert_true(may_hold(c, 4));
    assert_false(may_hold(c, 5));
}

static void test_a_failed_invalidation_tells_nothing(void **state)
{
    VjCoherence *c = *state;

    drop(c, 0, true);
    assert_false(may_hold(c, 0));
    drop(c, 0, false);
    assert_true(may_hold(c, 0));
    drop(c, 0, true);
    assert_false(may_hold(c, 0));
}

/* The page stays until the invalidation is over, whoever asks; a READ that comes
 * meanwhile counts. */
static void test_pages_leave_when_the_invalidation_is_over(void **state)
{
    VjCoherence *c = *state;
    VjDrop first, second;

    drop(c, 0, true);
    read_pages(c, 2, 1);
    vj_coherence_drop_begin(c, INO, 0, 0, &first);
    assert_true(may_hold(c, 2));
    assert_false(may_hold(c, 3));
    assert_false(edit(c, 0));
    read_pages(c, 5, 1);
    vj_coherence_drop_end(c, &first, true);
    assert_false(vj_coherence_may_hold(c, INO, 2 * PAGE, PAGE));
    assert_true(may_hold(c, 5));

    /* Two at once: what only the later one is sure to take stays until that is over. */
    vj_coherence_drop_begin(c, INO, 0, 0, &first);
    read_pages(c, 7, 1);
    vj_coherence_drop_begin(c, INO, 6 * PAGE, 0, &second);
    vj_coherence_drop_end(c, &first, true);
    assert_true(may_hold(c, 7));
    vj_coherence_drop_end(c, &second, true);
    assert_false(may_hold(c, 5));
    assert_false(may_hold(c, 0));
}

static void test_the_later_of_two_may_end_first(void **state)
{
    VjCoherence *c = *state;
    VjDrop first, second;

    drop(c, 0, true);
    read_pages(c, 1, 1);
    read_pages(c, 8, 1);
    vj_coherence_drop_begin(c, INO, 0, 0, &first);
    vj_coherence_drop_begin(c, INO, 6 * PAGE, 0, &second);
    vj_coherence_drop_end(c, &second, true);
    assert_true(may_hold(c, 1));
    assert_false(may_hold(c, 6));
    vj_coherence_drop_end(c, &first, true);
    assert_false(may_hold(c, 0));
}

/* By ftruncate(2) the kernel drops them all, but where it believes in the new size
 * already: so those before the edit are taken for held. */
static void test_pages_before_a_truncation(void **state)
{
    static const VjEdited edited = {
        .old_size = 9 * PAGE, .size = 8 * PAGE, .changed = true};
    VjCoherence *c = *state;
    VjEditPass p;

    drop(c, 5, true);
    edit_begin(c, INO, 5 * PAGE, 0, &p);
    assert_false(p.may_hold);
    vj_coherence_edit_end(c, &p, &edited, VJ_WINDOW_NONE, NULL);
    assert_true(may_hold(c, 4));
    assert_false(may_hold(c, 5));
}

/* What a direct WRITE of page @first has to invalidate: pages; 0: nothing; UINT64_MAX:
 * all. */
static uint64_t write_past(VjCoherence *c, uint64_t first)
{
    uint64_t offset = first * PAGE, len = PAGE;

    if (!vj_coherence_direct_written(c, INO, &offset, &len)) {
        return 0;
    }
    if (len == 0) {
        assert_int_equal(offset, 0);
        return UINT64_MAX;
    }
    assert_int_equal(offset, first * PAGE);
    return len / PAGE;
}

static void drop_pages(VjCoherence *c, uint64_t first, uint64_t count)
{
    VjDrop d;

    vj_coherence_drop_begin(c, INO, first * PAGE, count * PAGE, &d);
    vj_coherence_drop_end(c, &d, true);
}

static void test_direct_writes_where_nobody_reads(void **state)
{
    VjCoherence *c = *state;

    for (unsigned i = 0; i < 2000; i++) {
        vj_coherence_locked(c, INO, 0, 0); /* others that fill no page */
        assert_int_equal(write_past(c, i % 7), 0);
    }
}

/* A READ is noted before it reads, a direct WRITE asks when it is in the file: whichever
 * of the two comes first. */
static void test_direct_writes_beside_reads(void **state)
{
    VjCoherence *c = *state;
    VjPass p;

    pages_begin(c, INO, VJ_PASS_READ, 3 * PAGE, PAGE, SOMEBODY, &p);
    assert_int_equal(write_past(c, 3), 1);
    vj_coherence_pages_end(c, &p);
    assert_int_equal(write_past(c, 3), 1);
    /* It is not known what came before: neither that page nor another one. */
    drop_pages(c, 3, 1);
    assert_int_equal(write_past(c, 3), 1);
    assert_int_equal(write_past(c, 4), 1);
    /* Until all are gone. */
    drop(c, 0, true);
    assert_int_equal(write_past(c, 3), 0);
    read_pages(c, 3, 2);
    assert_int_equal(write_past(c, 2), 0);
    assert_int_equal(write_past(c, 4), 1);
    drop_pages(c, 4, 1);
    assert_int_equal(write_past(c, 4), 0);
    assert_int_equal(write_past(c, 3), 1);
    vj_coherence_locked(c, INO, 9 * PAGE, 1); /* by write(2) */
    assert_int_equal(write_past(c, 9), 1);
}

/* The page of a READ that is under way is noted while it is being invalidated. */
static void test_direct_writes_beside_each_other(void **state)
{
    VjCoherence *c = *state;
    VjDrop first;

    drop(c, 0, true);
    read_pages(c, 3, 1);
    vj_coherence_drop_begin(c, INO, 3 * PAGE, PAGE, &first);
    assert_int_equal(write_past(c, 3), 1);
    vj_coherence_drop_end(c, &first, true);
    assert_int_equal(write_past(c, 3), 0);
}

static unsigned writes_before_all_goes(VjCoherence *c)
{
    unsigned count = 1;

    while (write_past(c, count) == 1) {
        assert_true(++count < 10000);
        drop_pages(c, count, 1);
    }
    return count;
}

static void test_direct_writes_find_out(void **state)
{
    VjCoherence *c = *state;
    unsigned count;

    read_pages(c, 0, 1);
    count = writes_before_all_goes(c);
    assert_true(count > 100);
    drop(c, 0, true);
    assert_int_equal(write_past(c, 0), 0);
    /* Forgotten, and then somebody goes on reading. */
    set_clock(now_us + 2000000);
    for (uint64_t ino = 100; ino < 2000; ino++) {
        vj_coherence_locked(c, ino, 0, 1);
        (void)vj_coherence_direct_written(c, ino, &(uint64_t){0}, &(uint64_t){PAGE});
    }
    for (unsigned i = 0; i < 3 * count; i++) {
        assert_int_equal(write_past(c, 0), 1);
        if (i % (count - 1) == 0) {
            read_pages(c, 5, 1);
        }
    }
}

static void read_pages_of(VjCoherence *c, uint64_t ino)
{
    VjPass p;

    pages_begin(c, ino, VJ_PASS_READ, 0, 1, SOMEBODY, &p);
    vj_coherence_pages_end(c, &p);
}

static void test_it_is_forgotten_in_time(void **state)
{
    VjCoherence *c = *state;

    drop(c, 0, true);
    set_clock(now_us + 2000000);
    read_pages(c, 0, 1); /* the last one to use it */
    for (uint64_t ino = 100; ino < 2000; ino++) {
        read_pages_of(c, ino);
    }
    assert_true(may_hold(c, 9));
}

/* ---- pages in old coordinates ------------------------------------------------------ */

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

static void open_window(VjCoherence *c, const VjEdited *edited)
{
    VjEditPass p;

    edit_begin(c, INO, 0, 0, &p);
    vj_coherence_edit_end(c, &p, edited, VJ_WINDOW_KERNEL, NULL);
}

static void expect_back(VjCoherence *c, uint64_t offset, uint64_t len,
                        const VjPassPart *parts, guint count)
{
    VjPass p;

    pages_begin(c, INO, VJ_PASS_PAGES, offset, len, 0, &p);
    expect_parts(&p, parts, count);
    vj_coherence_pages_end(c, &p);
}

static void expect_as_it_is(VjCoherence *c)
{
    VjPass p;

    pages_begin(c, INO, VJ_PASS_PAGES, 4 * PAGE, PAGE, 0, &p);
    assert_null(p.parts);
    vj_coherence_pages_end(c, &p);
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
    VjCoherence *c = *state;

    expect_as_it_is(c);
    open_window(c, &edited);
    expect_back(c, 0, 2 * PAGE, (VjPassPart[]){{0, 0, 2 * PAGE}}, 1);
    expect_back(
        c, PAGE, 3 * PAGE,
        (VjPassPart[]){{0, PAGE, PAGE + 50}, {PAGE + 150, 2 * PAGE + 80, 2 * PAGE - 150}},
        2);
    read_pages(c, 3, 1); /* since: it is in new coordinates */
    for (unsigned i = 0; i < 2; i++) {
        expect_back(c, 3 * PAGE, 2 * PAGE,
                    (VjPassPart[]){{0, 3 * PAGE, PAGE}, {PAGE, 4 * PAGE - 70, PAGE}}, 2);
    }
    /* Wholly replaced: nothing is left of it. */
    expect_back(c, 2 * PAGE + 60, 40, NULL, 0);
    /* The next request under the lock of the inode: the kernel is done. */
    vj_coherence_locked(c, INO, 0, 0);
    expect_as_it_is(c);
}

/* From 10 on 70 bytes are gone: page 3 moves onto pages 2 and 3. */
static const VjEdited cut = {.at = 10,
                             .old_len = 70,
                             .old_size = 10 * PAGE,
                             .size = 10 * PAGE - 70,
                             .changed = true};

/* What is stale when pages from @first on have come back, and @between has happened
 * meanwhile. */
static void expect_stale(VjCoherence *c, uint64_t first, void (*between)(VjCoherence *c),
                         uint64_t offset, uint64_t len)
{
    VjPass p;

    pages_begin(c, INO, VJ_PASS_PAGES, first * PAGE, PAGE, 0, &p);
    if (between != NULL) {
        between(c);
    }
    vj_coherence_pages_end(c, &p);
    assert_int_equal(p.stale_len, len);
    if (len > 0) {
        assert_int_equal(p.stale_offset, offset);
    }
}

static void read_page_2(VjCoherence *c)
{
    read_pages(c, 2, 1);
}

static void end_window(VjCoherence *c)
{
    vj_coherence_locked(c, INO, 0, 0);
}

/* What is invalidated without need is written back beside whatever follows the edit. */
static void test_what_moved_is_stale_where_it_was_read(void **state)
{
    VjCoherence *c = *state;

    open_window(c, &cut);
    expect_stale(c, 3, NULL, 0, 0);
    read_page_2(c);
    expect_stale(c, 3, NULL, 3 * PAGE - 70, PAGE);
    expect_stale(c, 4, NULL, 0, 0);
    expect_stale(c, 2, NULL, 0, 0); /* in new coordinates: it stays where it is */
    end_window(c);
    expect_stale(c, 3, NULL, 0, 0);
    open_window(c, &cut);
    expect_stale(c, 3, read_page_2, 3 * PAGE - 70, PAGE);
    open_window(c, &cut);
    expect_stale(c, 3, end_window, 3 * PAGE - 70, PAGE); /* who read it is not known */
}

static void test_the_next_edit_ends_the_window(void **state)
{
    static const VjEdited edited = {.at = 0, .len = 30, .size = 30, .changed = true};
    VjCoherence *c = *state;

    open_window(c, &edited);
    (void)edit(c, 0);
    expect_as_it_is(c);
}

/* Windows of other inodes, until there is no room for one more; how many. */
static unsigned fill_windows(VjCoherence *c, uint64_t *ino)
{
    for (unsigned count = 0;; count++) {
        VjEditPass p;

        edit_begin(c, ++*ino, 0, 0, &p);
        vj_coherence_edit_end(c, &p, &cut, p.has_room ? VJ_WINDOW_KERNEL : VJ_WINDOW_NONE,
                              NULL);
        if (!p.has_room) {
            return count;
        }
        assert_in_range(count, 0, 1 << 20);
    }
}

static void test_windows_are_bounded(void **state)
{
    VjCoherence *c = *state;
    uint64_t ino = INO, full;
    unsigned count = fill_windows(c, &ino);
    VjEditPass p;

    edit_begin(c, full = ino, 0, 0, &p);
    assert_false(p.has_room);
    vj_coherence_edit_end(c, &p, &cut, VJ_WINDOW_NONE, NULL);
    /* They end by the next request under the lock, */
    for (uint64_t i = INO + 1; i < full; i++) {
        vj_coherence_locked(c, i, 0, 0);
    }
    assert_in_range(fill_windows(c, &ino), count / 2, count * 2);
    /* and in time, also where no other inode comes. */
    set_clock(now_us + 61000000);
    edit_begin(c, ino, 0, 0, &p);
    assert_true(p.has_room);
    vj_coherence_edit_end(c, &p, &cut, VJ_WINDOW_NONE, NULL);
}

/* Whoever is about to invalidate what an edit was applied beside may be late. */
static void test_a_window_is_not_forgotten(void **state)
{
    VjCoherence *c = *state;
    VjEditPass p;

    edit_begin(c, INO, 0, 0, &p);
    vj_coherence_edit_end(c, &p, &cut, VJ_WINDOW_EDIT, NULL);
    set_clock(now_us + 10000000);
    for (uint64_t ino = 100; ino < 2000; ino++) {
        read_pages_of(c, ino);
    }
    expect_back(c, 3 * PAGE, PAGE, (VjPassPart[]){{0, 3 * PAGE - 70, PAGE}}, 1);
}

/* Against bytes that say where they belong. */
static void test_random_shifts(void **state)
{
    VjCoherence *c = *state;
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
        open_window(c, &e);
        first = vj_rng_below(&rng, 20);
        last = first + vj_rng_below(&rng, 4);
        read_pages(c, first, last - first + 1);
        from = vj_rng_below(&rng, old_size);
        len = 1 + vj_rng_below(&rng, old_size - from);
        pages_begin(c, INO, VJ_PASS_PAGES, from, len, 0, &p);
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
        vj_coherence_pages_end(c, &p);
    }
}

/* ---- waiting ----------------------------------------------------------------------- */

typedef struct Actor {
    VjCoherence *c;
    VjEditPass pass;
    uint64_t offset;
    pid_t who;
    gint is_done; /* atomic */
} Actor;

static gpointer close_thread(gpointer data)
{
    Actor *a = data;

    edit_begin(a->c, INO, 0, 0, &a->pass);
    g_atomic_int_set(&a->is_done, 1);
    return NULL;
}

static gpointer enter_thread(gpointer data)
{
    Actor *a = data;
    VjPass p;

    pages_begin(a->c, INO, VJ_PASS_READ, a->offset, 1, a->who, &p);
    g_atomic_int_set(&a->is_done, 1);
    vj_coherence_pages_end(a->c, &p);
    return NULL;
}

/* An edit is applied when those inside are answered, and nobody comes in before it is. */
static void test_closed(void **state)
{
    static const VjEdited nothing = {.changed = false};
    Actor closer = {.c = *state}, next = {.c = *state}, reader = {.c = *state};
    GThread *threads[3];
    VjPass inside;

    pages_begin(closer.c, INO, VJ_PASS_READ, 0, 1, SOMEBODY, &inside);
    threads[0] = g_thread_new("close", close_thread, &closer);
    g_thread_yield();
    assert_int_equal(g_atomic_int_get(&closer.is_done), 0);
    vj_coherence_pages_end(closer.c, &inside);
    g_thread_join(threads[0]);
    threads[1] = g_thread_new("enter", enter_thread, &reader);
    /* The one before is answered and not yet over. */
    threads[2] = g_thread_new("close", close_thread, &next);
    g_thread_yield();
    assert_int_equal(g_atomic_int_get(&reader.is_done), 0);
    assert_int_equal(g_atomic_int_get(&next.is_done), 0);
    vj_coherence_edit_end(closer.c, &closer.pass, &nothing, VJ_WINDOW_NONE, NULL);
    g_thread_join(threads[2]);
    vj_coherence_edit_end(next.c, &next.pass, &nothing, VJ_WINDOW_NONE, NULL);
    g_thread_join(threads[1]);
}

/* Its caller is killed while it waits. */
typedef struct Killed {
    VjCoherence *c;
    VjCancel cancel;
    int result;
} Killed;

static gpointer killed_edit(gpointer data)
{
    Killed *k = data;
    VjEditPass p;

    vj_cancel_enter(&k->cancel);
    k->result = vj_coherence_edit_begin(k->c, INO, 0, 0, &p);
    (void)vj_cancel_leave();
    return NULL;
}

static gpointer killed_reader(gpointer data)
{
    Killed *k = data;
    VjPass p;

    vj_cancel_enter(&k->cancel);
    k->result = vj_coherence_pages_begin(k->c, INO, VJ_PASS_READ, 0, 1, SOMEBODY, &p);
    (void)vj_cancel_leave();
    return NULL;
}

static void kill_one(VjCoherence *c, GThreadFunc run)
{
    Killed k = {.c = c};
    GThread *thread;

    vj_cancel_init(&k.cancel);
    thread = g_thread_new("killed", run, &k);
    vj_cancel_fire(&k.cancel, 1);
    g_thread_join(thread);
    vj_cancel_clear(&k.cancel);
    assert_int_equal(k.result, -ECANCELED);
}

/* Who waits may be given up, and those behind do not wait for it. */
static void test_killed(void **state)
{
    static const VjEdited nothing = {.changed = false};
    VjCoherence *c = *state;
    Actor next = {.c = c};
    VjEditPass p;
    VjPass inside;
    GThread *thread;

    pages_begin(c, INO, VJ_PASS_READ, 0, 1, SOMEBODY, &inside);
    kill_one(c, killed_edit); /* waits for the reader */
    read_pages(c, 0, 1);      /* does not wait for the edit */
    thread = g_thread_new("close", close_thread, &next);
    vj_coherence_pages_end(c, &inside);
    g_thread_join(thread);
    kill_one(c, killed_edit); /* waits for the edit before */
    kill_one(c, killed_reader);
    vj_coherence_edit_end(c, &next.pass, &nothing, VJ_WINDOW_NONE, NULL);
    read_pages(c, 0, 1);
    edit_begin(c, INO, 0, 0, &p); /* nobody is inside */
    vj_coherence_edit_end(c, &p, &nothing, VJ_WINDOW_NONE, NULL);
}

static const VjEdited shrunk = {.old_size = 2 * PAGE, .size = PAGE, .changed = true};

/* An edit makes the file end at PAGE, and is answered to the thread @tid. */
static void shrink(VjCoherence *c, pid_t tid)
{
    VjCaller answered = {.pid = tid};
    VjEditPass p;

    edit_begin(c, INO, 0, 0, &p);
    vj_coherence_edit_end(c, &p, &shrunk, VJ_WINDOW_NONE, &answered);
}

/* Lets a millisecond pass, and waits until @reader has looked at the thread for it or is
 * done. */
static void let_look(const Actor *reader)
{
    int before = g_atomic_int_get(&looks);

    set_clock(now_us + 1001);
    while (g_atomic_int_get(&looks) == before &&
           g_atomic_int_get(&reader->is_done) == 0) {
        g_thread_yield();
    }
}

/* A READ behind a smaller end waits until the thread that got the answer has run. */
static void test_reads_behind_a_smaller_end(void **state)
{
    Actor before = {.c = *state}, behind = {.c = *state, .offset = PAGE};
    GThread *thread;
    VjPass p;

    g_atomic_int_set(&is_runnable, 1);
    g_atomic_int_set(&run_ns, 5);
    shrink(*state, SOMEBODY + 1);
    (void)enter_thread(&before);
    assert_int_equal(before.is_done, 1);
    /* Whoever made the edit is back from the call. */
    pages_begin(before.c, INO, VJ_PASS_READ, PAGE, 1, SOMEBODY + 1, &p);
    vj_coherence_pages_end(before.c, &p);
    thread = g_thread_new("enter", enter_thread, &behind);
    let_look(&behind);
    let_look(&behind);
    assert_int_equal(g_atomic_int_get(&behind.is_done), 0);
    g_atomic_int_set(&run_ns, 6);
    let_look(&behind);
    g_thread_join(thread);
}

/* It sleeps again, or nobody knows; and an edit that follows shows that it is done with
 * this one. */
static void test_the_end_of_waiting(void **state)
{
    Actor asleep = {.c = *state, .offset = PAGE}, late = asleep;
    GThread *thread;

    g_atomic_int_set(&is_runnable, 0);
    shrink(*state, SOMEBODY + 1);
    thread = g_thread_new("enter", enter_thread, &asleep);
    let_look(&asleep);
    g_thread_join(thread);
    assert_int_equal(asleep.is_done, 1);
    g_atomic_int_set(&is_runnable, 1);
    shrink(*state, SOMEBODY + 1);
    thread = g_thread_new("enter", enter_thread, &late);
    let_look(&late);
    assert_int_equal(g_atomic_int_get(&late.is_done), 0);
    vj_coherence_locked(*state, INO, 0, 0);
    let_look(&late);
    g_thread_join(thread);
}

/* All callers whom the daemon cannot see have the number 0. */
static void test_a_reader_without_a_number_waits(void **state)
{
    Actor behind = {.c = *state, .offset = PAGE};
    GThread *thread;

    g_atomic_int_set(&is_runnable, 1);
    shrink(*state, 0);
    thread = g_thread_new("enter", enter_thread, &behind);
    let_look(&behind);
    let_look(&behind);
    assert_int_equal(g_atomic_int_get(&behind.is_done), 0);
    vj_coherence_locked(*state, INO, 0, 0);
    g_thread_join(thread);
}

/* One edit after the other, each with a size that the kernel is still to take. */
static void test_readers_come_in_between_edits(void **state)
{
    static const VjEdited nothing = {.changed = false};
    Actor behind = {.c = *state, .offset = PAGE};
    GThread *thread;
    VjEditPass p;

    g_atomic_int_set(&is_runnable, 1);
    shrink(*state, SOMEBODY + 1);
    thread = g_thread_new("enter", enter_thread, &behind);
    let_look(&behind);
    edit_begin(*state, INO, 0, 0, &p);
    assert_int_equal(g_atomic_int_get(&behind.is_done), 1);
    vj_coherence_edit_end(*state, &p, &nothing, VJ_WINDOW_NONE, NULL);
    g_thread_join(thread);
}

/* The answer may be out, and the kernel's next request here, before the edit is over. */
static void test_a_size_that_was_taken_at_once(void **state)
{
    VjCaller answered = {.pid = SOMEBODY + 1};
    Actor behind = {.c = *state, .offset = PAGE};
    VjEditPass p;

    g_atomic_int_set(&is_runnable, 1);
    edit_begin(*state, INO, 0, 0, &p);
    vj_coherence_locked(*state, INO, 0, 0);
    vj_coherence_edit_end(*state, &p, &shrunk, VJ_WINDOW_NONE, &answered);
    (void)enter_thread(&behind);
    assert_int_equal(behind.is_done, 1);
}

/* Where the pages end that the kernel may hold, which an ftruncate(2) may meet. */
static void test_where_what_is_held_ends(void **state)
{
    static const VjEdited nothing = {.changed = false};
    VjCoherence *c = *state;
    VjEditPass p;

    edit_begin(c, INO, 0, 0, &p);
    vj_coherence_edit_end(c, &p, &nothing, VJ_WINDOW_NONE, NULL);
    assert_true(p.held_end == UINT64_MAX);
    drop(c, 2, true);
    edit_begin(c, INO, 9 * PAGE, 0, &p);
    vj_coherence_edit_end(c, &p, &nothing, VJ_WINDOW_NONE, NULL);
    assert_int_equal(p.held_end, 2 * PAGE);
    read_pages(c, 5, 2);
    edit_begin(c, INO, 9 * PAGE, 0, &p);
    vj_coherence_edit_end(c, &p, &nothing, VJ_WINDOW_NONE, NULL);
    assert_false(p.may_hold);
    assert_int_equal(p.held_end, 7 * PAGE);
}

static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    TEST(test_nothing_is_known_at_first),
    TEST(test_an_invalidation_to_the_end_tells),
    TEST(test_writes_bring_pages),
    TEST(test_a_failed_invalidation_tells_nothing),
    TEST(test_pages_leave_when_the_invalidation_is_over),
    TEST(test_the_later_of_two_may_end_first),
    TEST(test_pages_before_a_truncation),
    TEST(test_direct_writes_where_nobody_reads),
    TEST(test_direct_writes_beside_reads),
    TEST(test_direct_writes_beside_each_other),
    TEST(test_direct_writes_find_out),
    TEST(test_it_is_forgotten_in_time),
    TEST(test_shift),
    TEST(test_what_moved_is_stale_where_it_was_read),
    TEST(test_the_next_edit_ends_the_window),
    TEST(test_windows_are_bounded),
    TEST(test_a_window_is_not_forgotten),
    TEST(test_random_shifts),
    TEST(test_closed),
    TEST(test_killed),
    TEST(test_reads_behind_a_smaller_end),
    TEST(test_the_end_of_waiting),
    TEST(test_a_reader_without_a_number_waits),
    TEST(test_readers_come_in_between_edits),
    TEST(test_a_size_that_was_taken_at_once),
    TEST(test_where_what_is_held_ends),
};

VJ_TEST_MAIN(tests)
