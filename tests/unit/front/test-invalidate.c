/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-invalidate.c - what the kernel is told of changes that other sessions make: each
 * once, in order, and all that it knows where there are too many
 */
#include "../../lib/test.h"

#include "front/front-private.h"

enum { PARENT = 7 };

typedef struct Fixture {
    VjInvalidator *i;
    VjMutex lock; /* VJ_RANK_BASE: innermost */
    VjCond changed;
    /* guarded by lock: */
    GPtrArray *told;  /* lines */
    bool held, waits; /* the thread does not come back from a call; it is in one */
} Fixture;

/* The thread has said so, and goes on when nobody holds it. */
static void tell(Fixture *x, char *line)
{
    vj_mutex_lock(&x->lock);
    g_ptr_array_add(x->told, line);
    x->waits = true;
    vj_cond_broadcast(&x->changed);
    while (x->held) {
        vj_cond_wait(&x->changed, &x->lock);
    }
    x->waits = false;
    vj_mutex_unlock(&x->lock);
}

static void on_inode(void *opaque, uint64_t ino, bool content)
{
    tell(opaque, g_strdup_printf("inode %" G_GUINT64_FORMAT "%s", ino,
                                 content ? " content" : ""));
}

static void on_name(void *opaque, uint64_t dir, const char *name)
{
    tell(opaque, g_strdup_printf("name %" G_GUINT64_FORMAT " %s", dir, name));
}

static void on_all(void *opaque)
{
    tell(opaque, g_strdup("all"));
}

static const VjInvalidateCalls calls = {
    .inode = on_inode, .name = on_name, .all = on_all};

static int setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);

    vj_mutex_init(&x->lock, VJ_RANK_BASE, "test");
    vj_cond_init(&x->changed);
    x->told = g_ptr_array_new_with_free_func(g_free);
    x->i = vj_invalidator_new(&calls, x);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    Fixture *x = *state;

    vj_invalidator_stop(x->i);
    vj_invalidator_free(x->i);
    g_ptr_array_unref(x->told);
    vj_cond_clear(&x->changed);
    vj_mutex_clear(&x->lock);
    g_free(x);
    return 0;
}

/* The thread is in its first call, and stays there: what comes now waits. */
static void hold(Fixture *x)
{
    vj_mutex_lock(&x->lock);
    x->held = true;
    vj_mutex_unlock(&x->lock);
    vj_invalidate_inode(x->i, 1, false);
    vj_mutex_lock(&x->lock);
    while (!x->waits) {
        vj_cond_wait(&x->changed, &x->lock);
    }
    vj_mutex_unlock(&x->lock);
}

static void let_go(Fixture *x)
{
    vj_mutex_lock(&x->lock);
    x->held = false;
    vj_cond_broadcast(&x->changed);
    vj_mutex_unlock(&x->lock);
}

/* All that was told up to the line @last, which comes. */
static void expect(Fixture *x, const char *const *lines)
{
    guint count = g_strv_length((char **)(uintptr_t)lines);

    vj_mutex_lock(&x->lock);
    while (x->told->len < count) {
        vj_cond_wait(&x->changed, &x->lock);
    }
    for (guint i = 0; i < count; i++) {
        assert_string_equal(x->told->pdata[i], lines[i]);
    }
    assert_int_equal(x->told->len, count);
    vj_mutex_unlock(&x->lock);
}

static void in_order(void **state)
{
    static const char *const lines[] = {
        "inode 1",  "inode 2 content", "name 7 a",   "name 7 ab",
        "name 8 a", "inode 7",         "inode 5000", NULL};
    Fixture *x = *state;

    hold(x);
    vj_invalidate_inode(x->i, 2, true);
    vj_invalidate_name(x->i, PARENT, "a");
    vj_invalidate_name(x->i, PARENT, "ab");
    vj_invalidate_name(x->i, PARENT + 1, "a");
    vj_invalidate_inode(x->i, PARENT, false);
    vj_invalidate_inode(x->i, 5000, false);
    let_go(x);
    expect(x, lines);
}

/* What waits already comes once, with all that is said of it. */
static void the_same_once(void **state)
{
    static const char *const lines[] = {"inode 1", "inode 2 content", "name 7 a",
                                        "inode 1", "inode 3",         NULL};
    Fixture *x = *state;

    hold(x);
    vj_invalidate_inode(x->i, 2, false);
    vj_invalidate_name(x->i, PARENT, "a");
    vj_invalidate_inode(x->i, 2, true);
    vj_invalidate_inode(x->i, 2, false);
    vj_invalidate_name(x->i, PARENT, "a");
    vj_invalidate_inode(x->i, 1, false); /* the first one is on its way */
    vj_invalidate_inode(x->i, 3, false);
    let_go(x);
    expect(x, lines);
}

/* Too many of them are one, and then it goes on as before. */
static void a_full_queue(void **state)
{
    static const char *const lines[] = {"inode 1", "all", "inode 9", NULL};
    static const char *const again[] = {"inode 1", "all",     "inode 9",
                                        "inode 9", "inode 2", NULL};
    Fixture *x = *state;

    hold(x);
    for (uint64_t i = 0; i < VJ_INVALIDATE_MAX; i++) {
        vj_invalidate_inode(x->i, 100 + i, false);
    }
    vj_invalidate_inode(x->i, 100, true); /* it waits already, and takes no room */
    vj_invalidate_name(x->i, PARENT, "one too many");
    for (uint64_t i = 0; i < 3 * VJ_INVALIDATE_MAX; i++) {
        vj_invalidate_inode(x->i, 100 + i, false); /* is among all */
    }
    let_go(x);
    vj_mutex_lock(&x->lock);
    while (x->told->len < 2) {
        vj_cond_wait(&x->changed, &x->lock);
    }
    vj_mutex_unlock(&x->lock);
    vj_invalidate_inode(x->i, 9, false);
    expect(x, lines);
    vj_invalidate_inode(x->i, 9, false);
    vj_invalidate_inode(x->i, 2, false);
    expect(x, again);
}

/* What waits is among all that the kernel knows. */
static void everything(void **state)
{
    static const char *const lines[] = {"inode 1", "all", NULL};
    Fixture *x = *state;

    hold(x);
    vj_invalidate_inode(x->i, 2, true);
    vj_invalidate_name(x->i, PARENT, "a");
    vj_invalidate_all(x->i);
    vj_invalidate_all(x->i);
    let_go(x);
    expect(x, lines);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(in_order, setup, teardown),
    cmocka_unit_test_setup_teardown(the_same_once, setup, teardown),
    cmocka_unit_test_setup_teardown(a_full_queue, setup, teardown),
    cmocka_unit_test_setup_teardown(everything, setup, teardown),
};

VJ_TEST_MAIN(tests)
