/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-resolve.c - what a reader looked at is one state, whatever was committed until it
 * began to read the metadata
 */
#include "file/file-private.h"
#include "settings-fixture.h"

#include <pthread.h>

#define LEN ((size_t)1 << 20)
#define INSERTED ((size_t)100)

/* A thread that is stopped where it begins to look into the metadata. */
typedef struct Stopped {
    VjFile *f;
    bool in_step; /* not before a step of recoding has begun */
    GThread *thread;
    /* guarded by lock: */
    bool arrived, may_go;
    /* its result: */
    uint8_t bytes[4096];
    int r;
} Stopped;

/* Of pthread: a checker of threads sees into them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static __thread Stopped *stopped; /* this thread, until it has been stopped */

int __real_vj_meta_begin(VjMeta *m, const VjTxn *like, VjTxn **txn);
int __wrap_vj_meta_begin(VjMeta *m, const VjTxn *like, VjTxn **txn);

static bool is_the_place(Stopped *s)
{
    bool step;

    vj_mutex_lock(&s->f->lock);
    step = s->f->frozen != NULL;
    vj_mutex_unlock(&s->f->lock);
    return !s->in_step || step;
}

/* The linker puts it in front of each transaction's begin, of any thread. */
int __wrap_vj_meta_begin(VjMeta *m, const VjTxn *like, VjTxn **txn)
{
    Stopped *s = stopped;

    if (s != NULL && is_the_place(s)) {
        stopped = NULL;
        pthread_mutex_lock(&lock);
        s->arrived = true;
        pthread_cond_broadcast(&changed);
        while (!s->may_go) {
            pthread_cond_wait(&changed, &lock);
        }
        pthread_mutex_unlock(&lock);
    }
    return __real_vj_meta_begin(m, like, txn);
}

static gpointer recode_step(gpointer opaque)
{
    Stopped *s = opaque;
    VjRecode step = {.offset = 0};

    stopped = s;
    s->r = vj_file_recode(s->f, &step);
    g_assert_cmpuint(step.rewritten_bytes, ==, 0);
    return NULL;
}

static gpointer read_middle(gpointer opaque)
{
    Stopped *s = opaque;
    size_t got;

    stopped = s;
    s->r = vj_file_read(s->f, LEN / 2, s->bytes, sizeof s->bytes, &got);
    g_assert_cmpuint(got, ==, sizeof s->bytes);
    return NULL;
}

static void start(Stopped *s, GThreadFunc run)
{
    s->thread = g_thread_new("stopped", run, s);
    pthread_mutex_lock(&lock);
    while (!s->arrived) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void finish(Stopped *s)
{
    pthread_mutex_lock(&lock);
    s->may_go = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    g_thread_join(s->thread);
    assert_int_equal(s->r, 0);
}

/*
 * A reader looks at a file whose content is being recoded, and which has a change that
 * waits.  The step finds nothing to do; then the change is committed; then the reader
 * goes on, to a map that is one version newer, and has that change in it already.
 */
static void a_step_that_changed_nothing_is_no_commit(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjFile *f = create(x);
    Stopped step = {.f = f, .in_step = true}, reader = {.f = f};

    set(x, f, "none", "16K");
    write_all(f, 0, bytes, LEN);
    assert_int_equal(vj_file_sync(f), 0);

    start(&step, recode_step);
    assert_int_equal(vj_file_replace(f, 0, 0, bytes, INSERTED, false, NULL), 0);
    start(&reader, read_middle);
    finish(&step);
    assert_int_equal(vj_file_commit(f), 0);
    finish(&reader);
    assert_memory_equal(reader.bytes, bytes + LEN / 2 - INSERTED, sizeof reader.bytes);
    vj_file_unref(f);
    expect_sound(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_step_that_changed_nothing_is_no_commit, setup,
                                    teardown),
};

VJ_TEST_MAIN(tests)
