/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * shared-volume.h - several sessions of one volume in this process
 *
 * Keys and objects are in memory, under a name that no other test has.  A session is
 * abandoned as if its machine had gone: nothing of it reaches engine or store any more.
 * Each test runs twice (SHARED_TEST): with the engine at hand, and far away.
 */
#ifndef VJ_TESTS_LIB_SHARED_VOLUME_H
#define VJ_TESTS_LIB_SHARED_VOLUME_H

#include "shut-out.h"
#include "test.h"

#include "fsck/fsck.h"
#include "volume/volume-private.h"

/* No lease of it ends while a test runs. */
#define SHARED_LONG_US ((int64_t)3600 * 1000 * 1000)
/* Between two looks, where nothing is told to a test: one that waits for ever is ended by
 * its time limit. */
#define SHARED_LOOK_US 1000u

/* Around the engine of a SharedVolume that is far away. */
static char shared_far[] G_GNUC_UNUSED = "latency:us=0";

/* Two rows of a table of tests: @setup finds in *state what goes to SharedVolume.wrap. */
#define SHARED_TEST(test, setup, teardown)                                               \
    cmocka_unit_test_setup_teardown(test, setup, teardown),                              \
        SHARED_TEST_ROW(#test ", far away", test, setup, teardown, shared_far)
#define SHARED_TEST_ROW(...)                                                             \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }

typedef struct SharedVolume {
    char *conf; /* the text of varjfs.conf */
    VjPlace *place;
    const char *wrap; /* around the engine of each session; NULL: none */
} SharedVolume;

/* As mkfs.varjfs makes one; the engine is at hand. */
static inline void shared_make(SharedVolume *s)
{
    static unsigned number;
    g_autofree char *options =
        g_strdup_printf("objects=4K,meta=memory:name=shared%u,store=memory:name=shared%u",
                        number, number);
    VjVolumeMake how = {
        .source = "shared", .options = options, .may_forget = true, .conf = &s->conf};
    g_autoptr(GError) error = NULL;

    number++;
    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    s->place = vj_place_of_text("shared", s->conf);
    s->wrap = NULL;
}

/* @how without its place. */
static inline VjVolume *shared_try(SharedVolume *s, VjVolumeOpen how, GError **error)
{
    VjVolume *v;

    how.place = s->place;
    return vj_volume_open(&how, &v, error) ? v : NULL;
}

/* Nothing is written back that no thread waits for. */
static inline VjVolume *shared_open(SharedVolume *s, const char *name, int64_t lease_us)
{
    g_autofree char *wrap = g_strdup_printf("%s;crash", s->wrap != NULL ? s->wrap : "");
    g_autoptr(GError) error = NULL;
    VjVolume *v = shared_try(s,
                             (VjVolumeOpen){.shared = true,
                                            .session_name = name,
                                            .lease_us = lease_us,
                                            .workers = 2,
                                            .wrap_meta = wrap,
                                            .wrap_store = "fault",
                                            .commit_seconds = 3600},
                             &error);

    if (v == NULL) {
        fail_msg("%s: %s", name, error->message);
    }
    return v;
}

static inline void shared_close(VjVolume *v)
{
    assert_int_equal(vj_volume_close(v), 0);
}

/* From now on nothing of it reaches engine or store, and it takes itself to be shut out
 * when it finds that; vj_volume_close() frees it, and says that it failed. */
static inline void shared_abandon(VjVolume *v)
{
    g_autoptr(GError) error = NULL;

    vj_meta_crash_after(v->meta, 0, false);
    assert_true(vj_store_fault_set(v->store, "every=1,errno=EIO", &error));
}

static inline void shared_say(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "# %s\n", text);
}

/* Nobody has it open: fsck finds nothing, and nothing waits to be removed. */
static inline void shared_expect_sound(SharedVolume *s)
{
    g_autoptr(GError) error = NULL;
    VjCheckReport report = {0};
    VjVolume *v = shared_try(s, (VjVolumeOpen){.check = true, .read_only = true}, &error);

    if (v == NULL) {
        fail_msg("%s", error->message);
    }
    assert_int_equal(vj_fsck_contents(v, true, shared_say, NULL, &report), 0);
    assert_int_equal(vj_fsck_names(v, shared_say, NULL, &report), 0);
    assert_int_equal(report.problems, 0);
    assert_int_equal(report.leaks, 0);
    shared_close(v);
}

/* Keys of @space, as @v sees them. */
typedef struct SharedCount {
    VjSpace space;
    unsigned keys;
} SharedCount;

static inline int shared_count_body(VjTxn *txn, void *opaque)
{
    SharedCount *c = opaque;
    VjScan scan;

    c->keys = 0;
    vj_scan_begin(&scan, txn, c->space, VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        c->keys++;
    }
    return scan.error;
}

static inline unsigned shared_keys(VjVolume *v, VjSpace space)
{
    SharedCount c = {.space = space};

    assert_int_equal(vj_meta_view(v->meta, shared_count_body, &c), 0);
    return c.keys;
}

/* Sessions that have a record. */
static inline unsigned shared_sessions(VjVolume *v)
{
    g_autoptr(GArray) sessions = g_array_new(FALSE, FALSE, sizeof(VjSessionInfo));

    assert_int_equal(vj_meta_sessions(v->meta, sessions), 0);
    return sessions->len;
}

/* Until there are @count sessions, as @v sees it: others were released. */
static inline void shared_await_sessions(VjVolume *v, unsigned count)
{
    while (shared_sessions(v) != count) {
        g_usleep(SHARED_LOOK_US);
    }
}

/* By the word of @by, whatever its lease says: a third session hears of it, and releases
 * what it had. */
static inline void shared_shut_out(VjVolume *by, VjVolume *lost)
{
    assert_int_equal(vj_test_shut_out(by->meta, vj_meta_session(lost->meta)), 0);
}

/* It ends, and nobody has it open; fsck finds nothing. */
static inline void shared_end(SharedVolume *s)
{
    shared_expect_sound(s);
    assert_int_equal(vj_place_close(s->place), 0);
    g_free(s->conf);
}

#endif
