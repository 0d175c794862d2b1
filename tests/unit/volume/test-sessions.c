/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-sessions.c - several sessions of one volume: whose content is open, who drops what
 * has no name, what one leaves that is gone, and who may not share
 */
#include "../../lib/shared-volume.h"

#include "file/file-private.h"

#include <sys/stat.h>

enum { BYTES = 100000, BLOCK = 5, NUMBERS = 23 };

typedef struct Fixture {
    SharedVolume s;
    VjVolume *a, *b;
    uint8_t bytes[BYTES];
} Fixture;

static int setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);
    VjRng rng;

    vj_rng_init(&rng, 5);
    vj_rng_bytes(&rng, x->bytes, sizeof x->bytes);
    shared_make(&x->s);
    x->s.wrap = *state;
    x->a = shared_open(&x->s, "first", SHARED_LONG_US);
    x->b = shared_open(&x->s, "second", SHARED_LONG_US);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    Fixture *x = *state;

    if (x->a != NULL) {
        shared_close(x->a);
    }
    shared_close(x->b);
    shared_end(&x->s);
    g_free(x);
    return 0;
}

/* ---- files ------------------------------------------------------------------------- */

typedef struct Make {
    uint64_t ino;
    unsigned nlink;
    bool left_open; /* out, of take_name_body */
} Make;

/* With a name or without; fsck looks at names by its own count, so the tests take what
 * they make away again. */
static int make_body(VjTxn *txn, void *opaque)
{
    const Make *m = opaque;
    VjInode inode = {
        .ino = m->ino, .generation = 1, .mode = S_IFREG | 0644, .nlink = m->nlink};
    int r = vj_inode_put(txn, &inode);

    return r < 0 || m->nlink > 0 ? r : vj_orphan_put(txn, m->ino);
}

static uint64_t make(VjVolume *v, unsigned nlink)
{
    Make m = {.nlink = nlink};

    assert_int_equal(vj_ino_new(v->files, &m.ino), 0);
    assert_int_equal(vj_meta_run(v->meta, VJ_RUN_DEFAULT, make_body, &m), 0);
    return m.ino;
}

static int take_name_body(VjTxn *txn, void *opaque)
{
    Make *m = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, m->ino, &inode);

    if (r < 0) {
        return r;
    }
    inode.nlink = 0;
    r = vj_inode_put(txn, &inode);
    return r < 0 ? r : vj_orphan_put_unlinked(txn, m->ino, &m->left_open);
}

/* As unlink(2); true: another session has it open, and drops it. */
static bool take_name(VjVolume *v, uint64_t ino)
{
    Make m = {.ino = ino};

    assert_int_equal(vj_meta_run(v->meta, VJ_RUN_DEFAULT, take_name_body, &m), 0);
    return m.left_open;
}

static int look_body(VjTxn *txn, void *opaque)
{
    VjInode inode;

    return vj_inode_get(txn, *(const uint64_t *)opaque, &inode);
}

static bool is_there(VjVolume *v, uint64_t ino)
{
    int r = vj_meta_view(v->meta, look_body, &ino);

    assert_true(r == 0 || r == -ENOENT);
    return r == 0;
}

static VjFile *open_file(VjVolume *v, uint64_t ino)
{
    VjFile *f;

    assert_int_equal(vj_file_open(v->files, ino, &f), 0);
    return f;
}

static void expect_refused(VjVolume *v, uint64_t ino, int error)
{
    VjFile *f;

    assert_int_equal(vj_file_open(v->files, ino, &f), error);
    assert_null(f);
}

static void write_file(Fixture *x, VjFile *f)
{
    assert_int_equal(vj_file_write(f, 0, x->bytes, BYTES, false, NULL), 0);
}

static void expect_content(const Fixture *x, VjFile *f)
{
    g_autofree uint8_t *got = g_malloc(BYTES + 1);
    size_t len;

    assert_int_equal(vj_file_read(f, 0, got, BYTES + 1, &len), 0);
    assert_int_equal(len, BYTES);
    assert_memory_equal(got, x->bytes, BYTES);
}

/* It has no name any more when the test is over. */
static void remove_file(VjVolume *v, uint64_t ino)
{
    assert_false(take_name(v, ino));
    vj_volume_reap(v, ino);
    vj_orphan_purge_drain(v->purge);
    assert_false(is_there(v, ino));
}

/* ---- numbers ----------------------------------------------------------------------- */

static void numbers_are_of_one_session(void **state)
{
    Fixture *x = *state;
    GHashTable *seen = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    VjVolume *v[] = {x->a, x->b};
    uint64_t last = 0;

    vj_file_table_set_ino_block(x->a->files, BLOCK);
    vj_file_table_set_ino_block(x->b->files, BLOCK + 1);
    for (unsigned i = 0; i < 2 * NUMBERS; i++) {
        uint64_t *ino = g_new(uint64_t, 1);

        assert_int_equal(vj_ino_new(v[i % 2]->files, ino), 0);
        last = MAX(last, *ino);
        assert_true(g_hash_table_add(seen, ino));
    }
    assert_true(last < VJ_INO_ROOT + 2 * NUMBERS + 2 * BLOCK + 2);
    g_hash_table_unref(seen);
}

/* ---- contents ---------------------------------------------------------------------- */

static void a_content_is_open_in_one(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make(x->a, 1);
    VjFile *f = open_file(x->a, ino), *again = open_file(x->a, ino);

    expect_refused(x->b, ino, -EBUSY);
    write_file(x, f);
    vj_file_unref(again);
    expect_refused(x->b, ino, -EBUSY);
    assert_int_equal(vj_file_sync(f), 0);
    vj_file_unref(f);
    f = open_file(x->b, ino);
    expect_content(x, f);
    expect_refused(x->a, ino, -EBUSY);
    assert_int_equal(vj_file_truncate(f, 10), 0);
    assert_int_equal(vj_file_sync(f), 0);
    vj_file_unref(f);
    f = open_file(x->a, ino);
    assert_int_equal(vj_file_size(f), 10);
    vj_file_unref(f);
    assert_int_equal(shared_keys(x->a, VJ_SPACE_CLAIM), 0);
    remove_file(x->a, ino);
}

/* Closed by all that opened it, it is open until what was changed is committed. */
static void what_is_dirty_is_open(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make(x->a, 1);
    VjFile *f = open_file(x->a, ino);

    write_file(x, f);
    vj_file_unref(f);
    expect_refused(x->b, ino, -EBUSY);
    assert_int_equal(vj_volume_sync(x->a), 0);
    f = open_file(x->b, ino);
    expect_content(x, f);
    vj_file_unref(f);
    remove_file(x->b, ino);
}

static void what_fails_leaves_no_claim(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make(x->a, 1), none;
    VjFile *f = open_file(x->b, ino);

    assert_int_equal(vj_ino_new(x->a->files, &none), 0);
    expect_refused(x->a, none, -ENOENT);
    expect_refused(x->a, ino, -EBUSY);
    assert_int_not_equal(shared_keys(x->a, VJ_SPACE_CLAIM), 0);
    vj_file_unref(f);
    assert_int_equal(shared_keys(x->a, VJ_SPACE_CLAIM), 0);
    remove_file(x->b, ino);
}

/* ---- claims in doubt --------------------------------------------------------------- */

/* Of this thread's next transaction. */
static __thread enum { ANSWERED, ANSWER_LOST, NEVER_DONE } answer;
/* It has the last reference of this one, and drops it while the next file is opened. */
static __thread VjFile *let_go;

int __real_vj_meta_run(VjMeta *m, VjRunFlags flags, VjTxnBody *body, void *op);
int __wrap_vj_meta_run(VjMeta *m, VjRunFlags flags, VjTxnBody *body, void *op);
int __real_vj_content_claim(VjFileTable *table, uint64_t ino, VjInode *out,
                            uint64_t *holder);
int __wrap_vj_content_claim(VjFileTable *table, uint64_t ino, VjInode *out,
                            uint64_t *holder);

int __wrap_vj_meta_run(VjMeta *m, VjRunFlags flags, VjTxnBody *body, void *op)
{
    bool is_done = answer != NEVER_DONE, is_lost = answer != ANSWERED;
    int r;

    answer = ANSWERED;
    r = is_done ? __real_vj_meta_run(m, flags, body, op) : 0;
    return r == 0 && is_lost ? -EIO : r;
}

int __wrap_vj_content_claim(VjFileTable *table, uint64_t ino, VjInode *out,
                            uint64_t *holder)
{
    int r = __real_vj_content_claim(table, ino, out, holder);

    vj_file_unref(g_steal_pointer(&let_go));
    return r;
}

/* It cannot be dropped while its file is being opened, and goes with the next one. */
static void a_claim_in_doubt_is_dropped_later(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make(x->a, 1), other = make(x->a, 1);

    let_go = open_file(x->a, other);
    answer = ANSWER_LOST;
    expect_refused(x->a, ino, -EIO);
    assert_null(let_go);
    expect_refused(x->b, ino, -EBUSY);
    vj_file_unref(open_file(x->a, other));
    assert_int_equal(shared_keys(x->a, VJ_SPACE_CLAIM), 0);
    remove_file(x->b, ino);
    remove_file(x->a, other);
}

static void so_is_one_that_could_not_be_dropped(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make(x->a, 1), other = make(x->a, 1);
    VjFile *f = open_file(x->a, ino);

    answer = NEVER_DONE;
    vj_file_unref(f);
    expect_refused(x->b, ino, -EBUSY);
    vj_file_unref(open_file(x->a, other));
    assert_int_equal(shared_keys(x->a, VJ_SPACE_CLAIM), 0);
    remove_file(x->b, ino);
    remove_file(x->a, other);
}

/* The claim is this one's. */
static void but_not_of_a_file_that_is_open_again(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make(x->a, 1), other = make(x->a, 1);
    VjFile *f;

    answer = ANSWER_LOST;
    expect_refused(x->a, ino, -EIO);
    f = open_file(x->a, ino);
    vj_file_unref(open_file(x->a, other));
    expect_refused(x->b, ino, -EBUSY);
    vj_file_unref(f);
    assert_int_equal(shared_keys(x->a, VJ_SPACE_CLAIM), 0);
    remove_file(x->b, ino);
    remove_file(x->a, other);
}

/* ---- write-back -------------------------------------------------------------------- */

static uint64_t commits(VjVolume *v)
{
    VjFileCounters c;

    vj_file_table_counters(v->files, &c);
    return c.commits;
}

static void wait_until_clean(VjFile *f)
{
    while (vj_file_is_dirty(f)) {
        g_usleep(SHARED_LOOK_US);
    }
}

/* Its age would be an hour. */
static void what_changes_behind_a_round_is_committed_soon(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make(x->a, 1);
    VjFile *f = open_file(x->a, ino);

    write_file(x, f);
    vj_flusher_clean(x->a->flusher, f); /* the end of a round of before */
    wait_until_clean(f);
    write_file(x, f);
    vj_file_kick(f); /* as a close */
    wait_until_clean(f);
    assert_int_equal(commits(x->a), 2);
    vj_file_unref(f);
    while (shared_keys(x->a, VJ_SPACE_CLAIM) > 0) { /* the flusher lets go of it */
        g_usleep(SHARED_LOOK_US);
    }
    remove_file(x->a, ino);
}

/* Nothing is in a hurry that comes behind an fsync. */
static void each_change_is_in_one_round(void **state)
{
    enum { TIMES = 50 };
    Fixture *x = *state;
    uint64_t ino = make(x->a, 1);
    VjFile *f = open_file(x->a, ino);

    for (unsigned i = 0; i < TIMES; i++) {
        int64_t now_us = vj_clock_mono_us();

        write_file(x, f);
        assert_non_null(vj_file_flush_link(f)->queue);
        assert_true(vj_file_flush_link(f)->due_us - now_us >=
                    (int64_t)3600 * 1000 * 1000);
        assert_int_equal(vj_file_sync(f), 0);
        assert_null(vj_file_flush_link(f)->queue);
        assert_int_equal(commits(x->a), i + 1);
    }
    vj_file_unref(f);
    assert_int_equal(shared_keys(x->a, VJ_SPACE_CLAIM), 0);
    remove_file(x->a, ino);
}

/* ---- threads ----------------------------------------------------------------------- */

typedef struct Opener {
    VjVolume *v;
    uint64_t ino;
    GThread *thread;
    unsigned opened, refused;
} Opener;

enum { OPENS = 500 };

static gpointer opener_main(gpointer opaque)
{
    Opener *o = opaque;

    for (unsigned i = 0; i < OPENS; i++) {
        uint8_t byte;
        size_t got;
        VjFile *f;
        int r = vj_file_open(o->v->files, o->ino, &f);

        assert_true(r == 0 || r == -EBUSY);
        o->opened += r == 0;
        o->refused += r == -EBUSY;
        if (r == 0) {
            /* Content grows by what each of them adds. */
            assert_int_equal(vj_file_write(f, 0, "x", 1, true, NULL), 0);
            assert_int_equal(vj_file_commit(f), 0);
            assert_int_equal(vj_file_read(f, 0, &byte, 1, &got), 0);
            assert_int_equal(got, 1);
        }
        vj_file_unref(f);
    }
    return NULL;
}

static void threads_of_both_open_and_close(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make(x->a, 1);
    Opener o[4] = {{0}};
    unsigned opened = 0;
    VjFile *f;

    for (unsigned i = 0; i < G_N_ELEMENTS(o); i++) {
        o[i].v = i % 2 == 0 ? x->a : x->b;
        o[i].ino = ino;
        o[i].thread = g_thread_new("opener", opener_main, &o[i]);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(o); i++) {
        g_thread_join(o[i].thread);
        opened += o[i].opened;
        assert_int_equal(o[i].opened + o[i].refused, OPENS);
    }
    assert_int_equal(vj_volume_sync(x->a), 0);
    assert_int_equal(vj_volume_sync(x->b), 0);
    f = open_file(x->a, ino);
    assert_int_equal(vj_file_size(f), opened);
    vj_file_unref(f);
    assert_int_equal(shared_keys(x->a, VJ_SPACE_CLAIM), 0);
    remove_file(x->a, ino);
}

/* ---- without a name ---------------------------------------------------------------- */

static void what_is_open_elsewhere_is_left_to_that_one(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make(x->a, 1);
    VjFile *f = open_file(x->b, ino);

    write_file(x, f);
    assert_true(take_name(x->a, ino));
    vj_volume_reap(x->a, ino); /* it is not for this one to drop */
    vj_orphan_purge_drain(x->a->purge);
    assert_true(is_there(x->a, ino));
    expect_refused(x->a, ino, -ESTALE);
    assert_int_equal(vj_file_sync(f), 0);
    expect_content(x, f);
    vj_file_unref(f);
    vj_orphan_purge_drain(x->b->purge);
    assert_false(is_there(x->a, ino));
    expect_refused(x->a, ino, -ENOENT);
    assert_int_equal(shared_keys(x->a, VJ_SPACE_CLAIM), 0);
    assert_int_equal(shared_keys(x->a, VJ_SPACE_ORPHAN), 0);
}

static void an_orphan_of_another_is_not_opened(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make(x->a, 0);
    VjFile *f;

    expect_refused(x->b, ino, -ESTALE);
    f = open_file(x->a, ino);
    expect_refused(x->b, ino, -ESTALE);
    vj_file_unref(f);
    vj_volume_reap(x->b, ino);
    vj_orphan_purge_drain(x->b->purge);
    assert_true(is_there(x->b, ino));
    vj_volume_reap(x->a, ino);
    vj_orphan_purge_drain(x->a->purge);
    assert_false(is_there(x->b, ino));
}

static int take_back_body(VjTxn *txn, void *opaque)
{
    return vj_orphan_take_back(txn, *(const uint64_t *)opaque);
}

/* As linkat(2) of what has no name. */
static int take_back(VjVolume *v, uint64_t ino)
{
    return vj_meta_run(v->meta, VJ_RUN_DEFAULT, take_back_body, &ino);
}

static int put_again_body(VjTxn *txn, void *opaque)
{
    return vj_orphan_put(txn, *(const uint64_t *)opaque);
}

static void who_may_name_it_again(void **state)
{
    Fixture *x = *state;
    uint64_t left = make(x->a, 1), own = make(x->a, 0);
    VjFile *f = open_file(x->b, left);

    assert_true(take_name(x->a, left));
    assert_int_equal(take_back(x->a, left), -ENOENT);
    assert_int_equal(take_back(x->b, own), -ENOENT);
    assert_int_equal(take_back(x->a, own), 0);
    assert_int_equal(take_back(x->a, own), -ENOENT);
    assert_int_equal(take_back(x->b, left), 0); /* it has it open */
    assert_int_equal(vj_meta_run(x->a->meta, VJ_RUN_DEFAULT, put_again_body, &own), 0);
    assert_int_equal(vj_meta_run(x->b->meta, VJ_RUN_DEFAULT, put_again_body, &left), 0);
    vj_file_unref(f);
}

/* In order: what waits to be dropped goes, and the record last. */
static void a_close_leaves_nothing(void **state)
{
    Fixture *x = *state;
    uint64_t inos[3];

    for (unsigned i = 0; i < G_N_ELEMENTS(inos); i++) {
        VjFile *f;

        inos[i] = make(x->a, 0);
        f = open_file(x->a, inos[i]);
        write_file(x, f);
        vj_file_unref(f);
    }
    assert_int_equal(shared_sessions(x->b), 2);
    shared_close(g_steal_pointer(&x->a));
    assert_int_equal(shared_sessions(x->b), 1);
    assert_int_equal(shared_keys(x->b, VJ_SPACE_ORPHAN), 0);
    assert_int_equal(shared_keys(x->b, VJ_SPACE_CLAIM), 0);
}

/* ---- a session that is gone -------------------------------------------------------- */

static void what_a_lost_session_had_is_released(void **state)
{
    Fixture *x = *state;
    VjVolume *lost = shared_open(&x->s, "lost", SHARED_LONG_US);
    uint64_t dirty = make(lost, 1), orphan = make(lost, 0), left = make(lost, 1), next;
    VjFile *f = open_file(lost, dirty), *g = open_file(lost, orphan),
           *h = open_file(lost, left);

    write_file(x, g);
    assert_int_equal(vj_file_sync(g), 0);
    assert_true(take_name(x->b, left));
    write_file(x, f);
    expect_refused(x->b, dirty, -EBUSY);
    shared_abandon(lost);
    assert_true(vj_file_commit(f) < 0);
    shared_shut_out(x->b, lost);
    shared_await_sessions(x->b, 2);
    assert_false(is_there(x->b, orphan));
    assert_false(is_there(x->b, left));
    assert_int_equal(shared_keys(x->b, VJ_SPACE_CLAIM), 0);
    assert_int_equal(shared_keys(x->b, VJ_SPACE_ORPHAN), 0);
    vj_file_unref(f);
    vj_file_unref(g);
    vj_file_unref(h);
    assert_true(vj_volume_close(lost) < 0);
    f = open_file(x->b, dirty);
    assert_int_equal(vj_file_size(f), 0); /* it was never committed */
    vj_file_unref(f);
    /* Its numbers are lost. */
    assert_int_equal(vj_ino_new(x->b->files, &next), 0);
    assert_true(next > left);
    remove_file(x->b, dirty);
}

/* It finds that itself, before others say so, and does not wait for its lease. */
static void who_is_shut_out_is_told(void **state)
{
    Fixture *x = *state;
    VjVolume *lost = shared_open(&x->s, "lost", SHARED_LONG_US);
    uint64_t ino = make(lost, 1);
    VjFile *f = open_file(lost, ino);

    assert_false(vj_volume_is_shut_out(lost));
    write_file(x, f);
    shared_abandon(lost);
    assert_true(vj_file_commit(f) < 0); /* nobody waits for the engine */
    while (!vj_volume_is_shut_out(lost)) {
        g_usleep(SHARED_LOOK_US);
    }
    assert_true(vj_file_commit(f) < 0);
    assert_int_equal(vj_meta_view(lost->meta, look_body, &ino), -ESTALE);
    shared_shut_out(x->b, lost);
    shared_await_sessions(x->b, 2);
    vj_file_unref(f);
    assert_true(vj_volume_close(lost) < 0);
    remove_file(x->b, ino);
}

/* The volume's next user finds what the last one left. */
static void all_of_them_lost(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make(x->b, 1), orphan = make(x->b, 0);
    VjFile *f = open_file(x->b, ino);
    VjVolume *next;

    write_file(x, f);
    shared_close(g_steal_pointer(&x->a));
    shared_abandon(x->b);
    vj_file_unref(f);
    assert_true(vj_volume_close(x->b) < 0);
    next = shared_try(&x->s, (VjVolumeOpen){.session_name = "alone"}, NULL);
    assert_non_null(next);
    assert_int_equal(shared_sessions(next), 1);
    assert_int_equal(shared_keys(next, VJ_SPACE_CLAIM), 0);
    vj_orphan_purge_drain(next->purge);
    assert_false(is_there(next, orphan));
    f = open_file(next, ino);
    assert_int_equal(vj_file_size(f), 0);
    vj_file_unref(f);
    remove_file(next, ino);
    shared_close(next);
    x->b = shared_open(&x->s, "second", SHARED_LONG_US);
}

/* ---- who may not share ------------------------------------------------------------- */

static void expect_not_shared(SharedVolume *s, VjVolumeOpen how, int code,
                              const char *why)
{
    g_autoptr(GError) error = NULL;

    how.shared = true;
    how.session_name = "third";
    assert_null(shared_try(s, how, &error));
    vj_test_expect_error(&error, code, why);
}

static void refused_by_name(void **state)
{
    Fixture *x = *state;
    g_autoptr(GError) error = NULL;
    uint64_t bytes;

    expect_not_shared(&x->s, (VjVolumeOpen){.read_only = true}, EOPNOTSUPP,
                      "a file system that is only read cannot be shared yet");
    expect_not_shared(&x->s, (VjVolumeOpen){.check = true}, EOPNOTSUPP,
                      "a check cannot be shared yet");
    expect_not_shared(&x->s, (VjVolumeOpen){.checkpoint_seconds = 60}, EOPNOTSUPP,
                      "one with checkpoints cannot be shared yet");
    assert_int_equal(vj_volume_checkpoint(x->a, &bytes), -EOPNOTSUPP);
    /* Nor may others come in between. */
    assert_null(shared_try(&x->s, (VjVolumeOpen){.session_name = "alone"}, &error));
    vj_test_expect_error(&error, EBUSY, "is in use in this process, and shared");
}

static void drivers_that_cannot_be_shared(void **state)
{
    static const char *const options[] = {"meta=memory:name=not,store=block",
                                          "store=posix"};
    static const char *const why[] = {"store block: it cannot be shared", "meta lmdb"};

    (void)state;
    for (unsigned i = 0; i < G_N_ELEMENTS(options); i++) {
        char *dir = vj_test_make_dir();
        VjVolumeMake make_how = {
            .source = dir, .options = options[i], .may_forget = true};
        VjVolumeOpen how = {.source = dir, .shared = true, .session_name = "first"};
        g_autoptr(GError) error = NULL;
        VjVolume *v;

        assert_true(vj_volume_make(&make_how, NULL));
        assert_false(vj_volume_open(&how, &v, &error));
        vj_test_expect_error(&error, EOPNOTSUPP, why[i]);
        vj_test_remove_dir(dir);
    }
}

#define SHARED(test) SHARED_TEST(test, setup, teardown)

static const struct CMUnitTest tests[] = {
    SHARED(numbers_are_of_one_session),
    SHARED(a_content_is_open_in_one),
    SHARED(what_is_dirty_is_open),
    SHARED(what_fails_leaves_no_claim),
    SHARED(a_claim_in_doubt_is_dropped_later),
    SHARED(so_is_one_that_could_not_be_dropped),
    SHARED(but_not_of_a_file_that_is_open_again),
    SHARED(what_changes_behind_a_round_is_committed_soon),
    SHARED(each_change_is_in_one_round),
    SHARED(threads_of_both_open_and_close),
    SHARED(what_is_open_elsewhere_is_left_to_that_one),
    SHARED(an_orphan_of_another_is_not_opened),
    SHARED(who_may_name_it_again),
    SHARED(a_close_leaves_nothing),
    SHARED(what_a_lost_session_had_is_released),
    SHARED(who_is_shut_out_is_told),
    SHARED(all_of_them_lost),
    SHARED(refused_by_name),
    cmocka_unit_test(drivers_that_cannot_be_shared),
};

VJ_TEST_MAIN(tests)
