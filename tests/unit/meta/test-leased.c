/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-leased.c - an exclusive session that is alone by a lease
 */
#include <sys/wait.h>
#include <unistd.h>

#include "leased-fixture.h"
#include "meta/session-join-private.h"

#define LEASE_US ((int64_t)3600 * 1000 * 1000)

/* ---- Helpers --------------------------------------------------------------------- */

/* "ID[+]" for each session, + : its record says that it has ended. */
static char *listed(const char *spec)
{
    VjMetaPlace place = {.dir_fd = -1, .read_only = true};
    g_autoptr(GString) text = g_string_new(NULL);
    VjItems items = {0};
    VjMeta *look;

    assert_true(vj_meta_open(spec, &place, &look, NULL));
    assert_int_equal(vj_join_scan_sessions(vj_session_of(look), &items, VJ_NO_DEADLINE),
                     0);
    for (size_t i = 0; i < items.count; i++) {
        VjSessionRecord record;

        assert_int_equal(
            vj_session_key_check(VJ_SPACE_SESSION, items.at[i].key, items.at[i].value),
            0);
        if (vj_session_decode(items.at[i].key, items.at[i].value, &record) == 0) {
            g_string_append_printf(text, "%s%" G_GUINT64_FORMAT "%s",
                                   text->len > 0 ? " " : "", record.id,
                                   record.state == VJ_SESSION_ENDED ? "+" : "");
        }
    }
    vj_items_clear(&items);
    assert_int_equal(vj_meta_close(look), 0);
    return g_string_free(g_steal_pointer(&text), FALSE);
}

static void assert_listed(const char *spec, const char *all)
{
    g_autofree char *text = listed(spec);

    assert_string_equal(text, all);
}

static void assert_refused(const char *spec, const VjSessionOpen *session, bool read_only,
                           const char *by)
{
    g_autoptr(GError) error = NULL;
    VjMeta *m;

    assert_false(try_leased(spec, session, read_only, &m, &error));
    assert_null(m);
    assert_int_equal(error->code, EBUSY);
    assert_non_null(strstr(error->message, by));
}

static int count_or_error(VjMeta *m, const char *key)
{
    Count c = {.key = key};

    return vj_meta_view(m, count_body, &c);
}

/* ---- One after the other --------------------------------------------------------- */

static void in_order(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *m = open_leased(spec, "one", LEASE_US);

    (void)state;
    assert_int_equal(vj_meta_session(m), 1);
    assert_true(vj_meta_is_leased(m));
    assert_false(vj_meta_is_shared(m));
    assert_listed(spec, "1");
    assert_int_equal(add(m, "a", 1), 0);
    assert_int_equal(vj_meta_close(m), 0);
    assert_listed(spec, "");
    m = open_leased(spec, "two", LEASE_US);
    assert_int_equal(vj_meta_session(m), 2);
    assert_int_equal(count_of(m, "a"), 1);
    assert_int_equal(vj_meta_close(m), 0);
}

static void with_something_left(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *m = open_leased(spec, "one", LEASE_US);

    (void)state;
    vj_meta_leave_record(m);
    assert_int_equal(vj_meta_close(m), 0);
    assert_listed(spec, "1+");
    m = open_leased(spec, "two", LEASE_US);
    assert_int_equal(vj_meta_session(m), 2);
    assert_listed(spec, "1+ 2");
    assert_int_equal(vj_meta_close(m), 0);
}

/* ---- Beside another one ---------------------------------------------------------- */

static void who_is_there_is_named(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *m = open_leased(spec, "mount /mnt, pid 7 on host", 12 * 1000 * 1000);
    VjSessionOpen named = {.name = "a check"}, unnamed = {.name = NULL};

    (void)state;
    pass_time(m, 500 * 1000);
    assert_refused(spec, &named, false,
                   "the volume is in use by mount /mnt, pid 7 on host; its lease ends in "
                   "12 s");
    assert_refused(spec, &named, true, "in use by mount /mnt");
    assert_refused(spec, &unnamed, false, "in use by mount /mnt");
    assert_refused(spec, NULL, false, "in use by mount /mnt");
    assert_listed(spec, "1");
    assert_int_equal(add(m, "a", 1), 0);
    assert_int_equal(vj_meta_flush(m), 0);
    assert_int_equal(vj_meta_close(m), 0);
}

/* One that only reads has it alone too, and writes nothing but its record. */
static void a_reader_keeps_others_out(void **state)
{
    g_autofree char *spec = new_volume();
    VjSessionOpen reader = {.name = "a reader"}, other = {.name = "another"};
    VjMeta *m = open_leased(spec, "one", LEASE_US);

    (void)state;
    assert_int_equal(add(m, "a", 1), 0);
    assert_int_equal(vj_meta_close(m), 0);
    assert_true(try_leased(spec, &reader, true, &m, NULL));
    assert_int_equal(count_of(m, "a"), 1);
    assert_int_equal(add(m, "a", 1), -EROFS);
    assert_refused(spec, &other, false, "a reader");
    assert_refused(spec, &other, true, "a reader");
    assert_int_equal(vj_meta_close(m), 0);
    assert_listed(spec, "");
}

/* A look of a moment needs no record, and keeps nobody out. */
static void a_look_of_a_moment(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *m = open_leased(spec, "one", LEASE_US), *look;

    (void)state;
    assert_true(try_leased(spec, NULL, true, &look, NULL));
    assert_int_equal(vj_meta_session(look), 0);
    assert_int_equal(vj_meta_close(look), 0);
    assert_int_equal(vj_meta_close(m), 0);
}

/* ---- Taking over ----------------------------------------------------------------- */

typedef struct Shut {
    VjMutex lock;
    VjCond cond;
    bool is_shut_out;
} Shut;

static void hear_shut_out(void *opaque)
{
    Shut *s = opaque;

    vj_mutex_lock(&s->lock);
    s->is_shut_out = true;
    vj_cond_broadcast(&s->cond);
    vj_mutex_unlock(&s->lock);
}

static const VjMetaEvents events = {.shut_out = hear_shut_out};

static void wait_until_shut_out(Shut *s)
{
    vj_mutex_lock(&s->lock);
    while (!s->is_shut_out) {
        vj_cond_wait(&s->cond, &s->lock);
    }
    vj_mutex_unlock(&s->lock);
}

/* Who has not renewed it loses what it has not flushed, and no more, and is notified. */
static void an_expired_one_is_shut_out(void **state)
{
    g_autofree char *spec = new_volume();
    VjSessionOpen other = {.name = "two", .lease_us = LEASE_US};
    VjMeta *one = open_leased(spec, "one", LEASE_US), *two;
    Shut shut = {.is_shut_out = false};

    (void)state;
    vj_mutex_init(&shut.lock, VJ_RANK_BASE, "test shut out");
    vj_cond_init(&shut.cond);
    vj_meta_listen(one, &events, &shut);
    assert_int_equal(add(one, "a", 1), 0);
    assert_int_equal(vj_meta_flush(one), 0);
    pass_time(one, LEASE_US - 1000 * 1000);
    assert_refused(spec, &other, false, "in use by one");
    pass_time(one, 2000 * 1000);
    two = open_leased(spec, "two", LEASE_US);
    assert_listed(spec, "1+ 2");
    assert_int_equal(count_of(two, "a"), 1);
    assert_int_equal(add(two, "a", 10), 0);
    assert_int_equal(vj_meta_flush(two), 0);
    /* It does not know it yet. */
    assert_int_equal(add(one, "a", 100), 0);
    assert_int_equal(vj_meta_flush(one), -ESTALE);
    wait_until_shut_out(&shut);
    assert_int_equal(add(one, "a", 100), -ESTALE);
    assert_int_equal(count_or_error(one, "a"), -ESTALE);
    assert_int_equal(vj_meta_flush(one), -ESTALE);
    vj_meta_listen(one, NULL, NULL);
    assert_int_equal(vj_meta_close(one), -ESTALE);
    assert_int_equal(count_of(two, "a"), 11);
    assert_listed(spec, "1+ 2");
    assert_int_equal(vj_meta_close(two), 0);
    vj_cond_clear(&shut.cond);
    vj_mutex_clear(&shut.lock);
}

/* One that does nothing learns it when it would renew the lease. */
static void an_idle_one_learns_it(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_leased(spec, "one", LEASE_US), *two;

    (void)state;
    pass_time(one, LEASE_US + 1000 * 1000);
    two = open_leased(spec, "two", LEASE_US);
    assert_int_equal(count_of(one, "a"), 0);
    vj_leased_renew_for_test(one);
    assert_int_equal(count_or_error(one, "a"), -ESTALE);
    assert_int_equal(add(one, "a", 1), -ESTALE);
    assert_int_equal(vj_meta_close(one), 0); /* nothing was lost */
    assert_int_equal(vj_meta_close(two), 0);
}

/* And one that only reads, which has no thread that applies. */
static void a_reader_learns_it(void **state)
{
    g_autofree char *spec = new_volume();
    VjSessionOpen reader = {.name = "a reader", .lease_us = LEASE_US};
    Shut shut = {.is_shut_out = false};
    VjMeta *one, *two;

    (void)state;
    vj_mutex_init(&shut.lock, VJ_RANK_BASE, "test shut out");
    vj_cond_init(&shut.cond);
    assert_true(try_leased(spec, &reader, true, &one, NULL));
    vj_meta_listen(one, &events, &shut);
    pass_time(one, LEASE_US + 1000 * 1000);
    two = open_leased(spec, "two", LEASE_US);
    vj_leased_renew_for_test(one);
    wait_until_shut_out(&shut);
    assert_int_equal(count_or_error(one, "a"), -ESTALE);
    vj_meta_listen(one, NULL, NULL);
    assert_int_equal(vj_meta_close(one), 0);
    assert_int_equal(vj_meta_close(two), 0);
    vj_cond_clear(&shut.cond);
    vj_mutex_clear(&shut.lock);
}

static void a_lease_is_renewed(void **state)
{
    g_autofree char *spec = new_volume();
    VjSessionOpen other = {.name = "two"};
    VjMeta *one = open_leased(spec, "one", LEASE_US);

    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        pass_time(one, LEASE_US - 1000 * 1000);
        assert_refused(spec, &other, false, "its lease ends in");
        vj_leased_renew_for_test(one);
    }
    assert_int_equal(add(one, "a", 1), 0);
    assert_int_equal(vj_meta_close(one), 0);
}

/* Nobody has taken over: it goes on where its lease has ended. */
static void it_goes_on_when_late(void **state)
{
    g_autofree char *spec = new_volume();
    VjSessionOpen other = {.name = "two"};
    VjMeta *one = open_leased(spec, "one", LEASE_US);

    (void)state;
    pass_time(one, 3 * LEASE_US);
    assert_int_equal(add(one, "a", 1), 0);
    assert_int_equal(vj_meta_flush(one), 0);
    vj_leased_renew_for_test(one);
    assert_refused(spec, &other, false, "in use by one");
    assert_int_equal(vj_meta_close(one), 0);
}

/* By its own thread, at a third of its time. */
static void by_its_thread(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_leased(spec, "one", 300 * 1000);
    VjLeased *l = vj_session_of(one)->leased;

    (void)state;
    vj_mutex_lock(&vj_session_of(one)->state);
    while (l->looks < 3) {
        vj_cond_wait(&l->looked, &vj_session_of(one)->state);
    }
    vj_mutex_unlock(&vj_session_of(one)->state);
    assert_int_equal(vj_meta_close(one), 0);
}

/* ---- Processes that are gone ----------------------------------------------------- */

static void write_holder(const char *spec, uint64_t id, const VjHolder *holder)
{
    VjMetaPlace place = {.dir_fd = -1};
    VjSessionKey key = vj_session_sub_key(id, VJ_SESSION_SUB_HOLDER);
    uint8_t bytes[VJ_HOLDER_BYTES];
    VjChange change = {.space = VJ_SPACE_SESSION,
                       .key = vj_session_key_slice(&key),
                       .value = vj_slice(bytes, sizeof bytes)};
    VjChanges all = {&change, 1};
    VjBatch batch = {.next = vj_changes_next, .changes = &all, .count = 1};
    VjMeta *m;

    vj_holder_encode(holder, change.key, bytes);
    assert_true(vj_meta_open(spec, &place, &m, NULL));
    assert_int_equal(
        vj_engine_apply(vj_session_of(m)->engine, &batch, NULL, VJ_NO_DEADLINE), 0);
    assert_int_equal(vj_meta_close(m), 0);
}

/* The PID of a process that is gone. */
static uint64_t gone_pid(void)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    return (uint64_t)child;
}

static void which_are_gone(void **state)
{
    VjHolder self, other;
    pid_t zombie;
    siginfo_t info;

    (void)state;
    vj_holder_self(&self);
    assert_int_equal(self.pid, getpid());
    assert_int_not_equal(self.started, 0);
    assert_false(vj_holder_is_gone(&self));
    other = self;
    other.started++; /* its PID was given again */
    assert_true(vj_holder_is_gone(&other));
    other = self;
    other.started = 0;
    assert_false(vj_holder_is_gone(&other));
    other = self;
    other.pid = gone_pid();
    assert_true(vj_holder_is_gone(&other));
    other.boot[3] ^= 1; /* another machine, or another boot */
    assert_false(vj_holder_is_gone(&other));
    other = self;
    other.pid = gone_pid();
    other.pid_namespace++;
    assert_false(vj_holder_is_gone(&other));
    other = (VjHolder){.pid = other.pid};
    assert_false(vj_holder_is_gone(&other));
    /* One that nobody has waited for. */
    zombie = fork();
    assert_true(zombie >= 0);
    if (zombie == 0) {
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT), 0);
    other = self;
    other.pid = (uint64_t)zombie;
    other.started = 0;
    assert_true(vj_holder_is_gone(&other));
    assert_int_equal(waitpid(zombie, NULL, 0), zombie);
}

/* After a crash of the mount nobody waits for its lease on the same machine. */
static void one_of_a_process_that_is_gone(void **state)
{
    g_autofree char *spec = new_volume();
    VjSessionOpen other = {.name = "two", .lease_us = LEASE_US};
    VjMeta *one = open_leased(spec, "one", LEASE_US), *two;
    VjHolder holder;

    (void)state;
    vj_holder_self(&holder);
    holder.pid = gone_pid();
    holder.pid_namespace++;
    write_holder(spec, 1, &holder);
    assert_refused(spec, &other, false, "in use by one");
    holder.pid_namespace--;
    write_holder(spec, 1, &holder);
    two = open_leased(spec, "two", LEASE_US);
    assert_listed(spec, "1+ 2");
    assert_int_equal(add(one, "a", 1), 0);
    assert_int_equal(vj_meta_flush(one), -ESTALE);
    assert_int_equal(vj_meta_close(one), -ESTALE);
    assert_int_equal(vj_meta_close(two), 0);
}

/* A record that nobody can read is of a session that has ended. */
static void a_damaged_lease(void **state)
{
    g_autofree char *spec = new_volume();
    VjMeta *one = open_leased(spec, "one", LEASE_US), *two;
    VjSessionKey key = vj_session_sub_key(1, VJ_SESSION_SUB_LEASE);
    VjChange change = {.space = VJ_SPACE_SESSION,
                       .key = vj_session_key_slice(&key),
                       .value = vj_slice("damaged", 7)};
    VjChanges all = {&change, 1};
    VjBatch batch = {.next = vj_changes_next, .changes = &all, .count = 1};

    (void)state;
    assert_int_equal(
        vj_engine_apply(vj_session_of(one)->engine, &batch, NULL, VJ_NO_DEADLINE), 0);
    two = open_leased(spec, "two", LEASE_US);
    assert_int_equal(vj_meta_session(two), 2);
    assert_int_equal(vj_meta_close(two), 0);
    assert_int_equal(vj_meta_close(one), 0);
}

/* ---- At the same time ------------------------------------------------------------ */

#define OPENERS 8u

typedef struct Opener {
    const char *spec;
    VjMeta *meta; /* NULL: refused */
} Opener;

static gpointer open_main(gpointer opaque)
{
    Opener *o = opaque;
    VjSessionOpen session = {.name = "one of many", .lease_us = LEASE_US};
    g_autoptr(GError) error = NULL;

    if (!try_leased(o->spec, &session, false, &o->meta, &error)) {
        g_assert(error->code == EBUSY);
    }
    return NULL;
}

static void one_of_many_gets_it(void **state)
{
    g_autofree char *spec = new_volume();
    Opener openers[OPENERS];
    GThread *threads[OPENERS];
    unsigned opened = 0;

    (void)state;
    (void)leased_ops();
    for (unsigned i = 0; i < OPENERS; i++) {
        openers[i] = (Opener){.spec = spec};
        threads[i] = g_thread_new("open", open_main, &openers[i]);
    }
    for (unsigned i = 0; i < OPENERS; i++) {
        g_thread_join(threads[i]);
        opened += openers[i].meta != NULL;
    }
    assert_int_equal(opened, 1);
    for (unsigned i = 0; i < OPENERS; i++) {
        if (openers[i].meta != NULL) {
            assert_int_equal(vj_meta_close(openers[i].meta), 0);
        }
    }
}

/* With a wrapper around the engine the lease goes on. */
static void with_a_wrapper(void **state)
{
    g_autofree char *spec = new_volume();
    VjSessionOpen other = {.name = "two"};
    VjMeta *one = wrap_meta(open_leased(spec, "one", LEASE_US), "latency:us=0");

    (void)state;
    pass_time(one, LEASE_US - 1000 * 1000);
    vj_leased_renew_for_test(one);
    pass_time(one, LEASE_US - 1000 * 1000);
    assert_refused(spec, &other, false, "in use by one");
    assert_int_equal(add(one, "a", 1), 0);
    assert_int_equal(vj_meta_close(one), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order),
        cmocka_unit_test(with_something_left),
        cmocka_unit_test(who_is_there_is_named),
        cmocka_unit_test(a_reader_keeps_others_out),
        cmocka_unit_test(a_look_of_a_moment),
        cmocka_unit_test(an_expired_one_is_shut_out),
        cmocka_unit_test(an_idle_one_learns_it),
        cmocka_unit_test(a_reader_learns_it),
        cmocka_unit_test(a_lease_is_renewed),
        cmocka_unit_test(it_goes_on_when_late),
        cmocka_unit_test(by_its_thread),
        cmocka_unit_test(which_are_gone),
        cmocka_unit_test(one_of_a_process_that_is_gone),
        cmocka_unit_test(a_damaged_lease),
        cmocka_unit_test(one_of_many_gets_it),
        cmocka_unit_test(with_a_wrapper),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
