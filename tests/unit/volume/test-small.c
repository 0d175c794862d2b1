/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-small.c - small changes that somebody waits for: fragments now, objects later
 */
#include "../../lib/test.h"
#include "file/file-private.h"
#include "file/remap-private.h"

#include "fsck/fsck.h"
#include "volume/volume-private.h"

#include <sys/stat.h>

#define LARGE ((size_t)64 << 20)
#define PIECE 4096u

typedef struct Fixture {
    char *dir;
    VjVolume *v;
    VjFile *f;
    uint64_t ino;
    VjRng rng;
    uint8_t *bytes; /* what the file should hold */
    size_t len;
} Fixture;

/* Nothing becomes objects by itself. */
static const VjRemapLimits quiet = {.most = 65536,
                                    .file_most = 32768,
                                    .idle_us = INT64_MAX / 4,
                                    .retry_us = INT64_MAX / 2,
                                    .step_bytes = 1 << 20};

static void open_volume(Fixture *x, bool check, const char *wrap_store)
{
    g_autoptr(GError) error = NULL;
    /* Nor is anything written back that nobody waits for. */
    VjVolumeOpen how = {.source = x->dir,
                        .check = check,
                        .wrap_store = wrap_store,
                        .commit_seconds = 3600};

    if (!vj_volume_open(&how, &x->v, &error)) {
        fail_msg("%s", error->message);
    }
    if (!check) {
        vj_file_table_limit_fragments(vj_volume_files(x->v), &quiet);
        assert_int_equal(vj_file_open(vj_volume_files(x->v), x->ino, &x->f), 0);
    }
}

static void close_volume(Fixture *x)
{
    vj_file_unref(g_steal_pointer(&x->f));
    assert_int_equal(vj_volume_close(x->v), 0);
    x->v = NULL;
}

static int create_body(VjTxn *txn, void *opaque)
{
    uint64_t *ino = opaque;
    int r = vj_ino_take(txn, ino);
    VjInode inode = {.ino = *ino, .generation = 1, .mode = S_IFREG | 0644, .nlink = 1};

    return r < 0 ? r : vj_inode_put(txn, &inode);
}

/* A file of @len random bytes in objects, durable. */
static void make(Fixture *x, const char *options, size_t len)
{
    g_autoptr(GError) error = NULL;
    VjVolumeMake how = {.options = options};
    VjVolumeOpen open = {.source = NULL};

    *x = (Fixture){.dir = vj_test_make_dir(), .len = len, .bytes = g_malloc(2 * len)};
    how.source = open.source = x->dir;
    vj_rng_init(&x->rng, 11);
    assert_true(vj_volume_make(&how, &error));
    assert_true(vj_volume_open(&open, &x->v, &error));
    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, create_body, &x->ino), 0);
    assert_int_equal(vj_volume_close(x->v), 0);
    open_volume(x, false, NULL);
    vj_rng_bytes(&x->rng, x->bytes, len);
    for (size_t at = 0; at < len; at += MIN(len - at, VJ_FILE_EDIT_MAX)) {
        assert_int_equal(vj_file_write(x->f, at, x->bytes + at,
                                       MIN(len - at, VJ_FILE_EDIT_MAX), false, NULL),
                         0);
    }
    assert_int_equal(vj_file_commit(x->f), 0);
    assert_int_equal(vj_meta_flush(x->v->meta), 0);
}

static void done(Fixture *x)
{
    if (x->v != NULL) {
        close_volume(x);
    }
    vj_test_remove_dir(x->dir);
    g_free(x->bytes);
}

/* One edit of file and bytes. */
static void edit(Fixture *x, size_t at, size_t old_len, size_t len)
{
    uint8_t *fresh = g_malloc(len + 1);

    vj_rng_bytes(&x->rng, fresh, len);
    assert_int_equal(vj_file_replace(x->f, at, old_len, fresh, len, false, NULL), 0);
    memmove(x->bytes + at + len, x->bytes + at + old_len, x->len - at - old_len);
    memcpy(x->bytes + at, fresh, len);
    x->len = x->len - old_len + len;
    g_free(fresh);
}

static void edit_and_sync(Fixture *x, size_t at, size_t old_len, size_t len)
{
    edit(x, at, old_len, len);
    assert_int_equal(vj_file_sync(x->f), 0);
}

static void expect_bytes(Fixture *x)
{
    g_autofree uint8_t *got = g_malloc(x->len + 1);
    size_t read_len;

    assert_int_equal(vj_file_read(x->f, 0, got, x->len + 1, &read_len), 0);
    assert_int_equal(read_len, x->len);
    assert_true(memcmp(got, x->bytes, x->len) == 0);
}

/* @opaque: how many fragments are stored, out of one state. */
static int count_records_body(VjTxn *txn, void *opaque)
{
    unsigned *count = opaque;
    VjScan scan;

    *count = 0;
    vj_scan_begin(&scan, txn, VJ_SPACE_FRAGMENT, VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        assert_true(scan.value.len <= VJ_META_VALUE_CHEAP);
        ++*count;
    }
    return scan.error;
}

static unsigned count_records(Fixture *x)
{
    unsigned count;

    assert_int_equal(vj_meta_view(x->v->meta, count_records_body, &count), 0);
    return count;
}

/*
 * Those that are stored; the counts in memory say the same.  Where the thread may be at
 * work (bounds_hold), it commits first and counts then: they agree once it has.
 */
static unsigned count_fragments(Fixture *x)
{
    int64_t limit_us = vj_clock_mono_us() + (int64_t)120 * 1000 * 1000;
    unsigned count, earlier;
    uint32_t all;

    do {
        earlier = count_records(x);
        (void)vj_file_table_fragments(vj_volume_files(x->v), x->ino, &all);
        count = count_records(x);
        g_thread_yield();
    } while ((all != count || earlier != count) && vj_clock_mono_us() < limit_us);
    assert_int_equal(all, count);
    return count;
}

typedef struct Kinds {
    unsigned objects, parts, fragments, holes;
} Kinds;

static bool count_kind(void *opaque, const VjFileExtent *e)
{
    Kinds *k = opaque;

    k->objects += e->kind == VJ_EXTENT_OBJECT;
    k->parts += e->kind == VJ_EXTENT_OBJECT && e->length != e->object_bytes;
    k->fragments += e->kind == VJ_EXTENT_FRAGMENT;
    k->holes += e->kind == VJ_EXTENT_HOLE;
    return true;
}

static Kinds kinds(Fixture *x)
{
    Kinds k = {0};

    assert_int_equal(vj_file_extents(x->f, 0, count_kind, &k), 0);
    return k;
}

/* Whole objects and nothing else; the same bytes; nothing left behind. */
static void expect_objects(Fixture *x)
{
    Kinds k = kinds(x);

    assert_int_equal(k.fragments, 0);
    assert_int_equal(k.parts, 0);
    assert_int_equal(count_fragments(x), 0);
    expect_bytes(x);
}

static void say(void *opaque, const char *text)
{
    g_string_append_printf(opaque, "%s\n", text);
}

/* fsck about what is in there; without names, of which there are none here. */
static void expect_sound(Fixture *x)
{
    g_autoptr(GString) said = g_string_new(NULL);
    VjCheckReport report = {0};

    close_volume(x);
    open_volume(x, true, NULL);
    assert_int_equal(vj_fsck_contents(x->v, true, say, said, &report), 0);
    if (report.problems > 0 || report.leaks > 0) {
        fail_msg("check said: %s", said->str);
    }
    assert_int_equal(vj_volume_close(x->v), 0);
    open_volume(x, false, NULL);
}

static void a_sync_puts_no_object(void **state)
{
    static const struct {
        size_t old_len, len;
    } edits[] = {{PIECE, PIECE}, {0, PIECE}, {PIECE, 0}, {1000, 5000}, {0, 1}};
    VjStoreStats before, after;
    Fixture x;
    Kinds k;

    (void)state;
    make(&x, NULL, LARGE);
    vj_store_stats(x.v->store, &before);
    for (size_t i = 0; i < 25; i++) {
        size_t at = (i * LARGE / 25 + 12345) & ~(PIECE - 1);

        edit_and_sync(&x, at, edits[i % 5].old_len, edits[i % 5].len);
    }
    vj_store_stats(x.v->store, &after);
    assert_int_equal(after.puts, before.puts);
    assert_int_equal(after.flushes, before.flushes);
    k = kinds(&x);
    assert_true(k.fragments >= 25 && k.fragments <= 50);
    assert_int_equal(count_fragments(&x), k.fragments);
    expect_bytes(&x);
    expect_sound(&x); /* closed and opened in between: they are there, and counted */
    assert_int_equal(count_fragments(&x), k.fragments);
    vj_store_stats(x.v->store, &before);
    assert_int_equal(vj_file_table_remap(vj_volume_files(x.v)), 0);
    vj_store_stats(x.v->store, &after);
    assert_true(after.puts > before.puts && after.puts - before.puts <= 4 * 25);
    expect_objects(&x);
    expect_sound(&x);
    done(&x);
}

static void expect_attributes(Fixture *x, bool has_fragments, uint64_t *stored_bytes)
{
    VjInode one, many;
    int result;

    assert_int_equal(vj_file_getattr(vj_volume_files(x->v), x->ino, &one), 0);
    vj_file_getattr_many(vj_volume_files(x->v), &x->ino, 1, &many, &result);
    assert_int_equal(result, 0);
    assert_false(one.dirty);
    assert_int_equal(one.has_fragments, has_fragments);
    assert_int_equal(many.has_fragments, has_fragments);
    assert_int_equal(one.stored_bytes, many.stored_bytes);
    *stored_bytes = one.stored_bytes;
}

/* It takes other space then, without a change: who is shown it is told so. */
static void what_becomes_objects_is_not_to_be_kept(void **state)
{
    uint64_t before, after;
    Fixture x;

    (void)state;
    make(&x, "objects=1K", LARGE);
    expect_attributes(&x, false, &before);
    for (size_t i = 0; i < 25; i++) {
        edit_and_sync(&x, i * 5000, 0, 100);
    }
    expect_attributes(&x, true, &before);
    assert_int_equal(vj_file_table_remap(vj_volume_files(x.v)), 0);
    expect_attributes(&x, false, &after);
    assert_true(after != before);
    done(&x);
}

/* What became objects late is cut as what was written so from the start. */
static void it_is_cut_as_a_writer_would_have(void **state)
{
    g_autofree uint8_t *all = NULL;
    Fixture x;
    Kinds k, again;
    VjRecode step = {.offset = 0};

    (void)state;
    make(&x, "objects=16K", (size_t)2 << 20);
    for (unsigned i = 0; i < 40; i++) {
        edit_and_sync(&x, vj_rng_below(&x.rng, x.len - PIECE),
                      vj_rng_below(&x.rng, PIECE), vj_rng_below(&x.rng, PIECE));
    }
    assert_int_equal(vj_file_table_remap(vj_volume_files(x.v)), 0);
    expect_objects(&x);
    k = kinds(&x);
    while (!step.done) {
        assert_int_equal(vj_file_recode(x.f, &step), 0);
    }
    again = kinds(&x);
    /* Forced cuts and cuts left of a change may differ: an edit itself allows them. */
    assert_true(k.objects <= again.objects + again.objects / 4);
    expect_sound(&x);
    done(&x);
}

static void random_edits(Fixture *x, unsigned count, const VjRemapLimits *limits)
{
    for (unsigned i = 0; i < count; i++) {
        size_t at = vj_rng_below(&x->rng, x->len);
        size_t old_len = MIN(x->len - at, vj_rng_below(&x->rng, 3) * 2500);
        size_t len = vj_rng_below(&x->rng, 4) * 1700;

        if (x->len + len > 2 * x->len - old_len || x->len > 3 << 19) {
            len = MIN(len, old_len / 2);
        }
        edit(x, at, old_len, len);
        if (i % 50 == 0) {
            assert_int_equal(vj_file_commit(x->f), 0);
        } else {
            assert_int_equal(vj_file_sync(x->f), 0);
        }
        assert_true(count_records(x) <= MIN(limits->most, limits->file_most));
    }
}

static void bounds_hold(void **state)
{
    VjRemapLimits limits = quiet;
    Fixture x;

    (void)state;
    make(&x, "objects=16K", (size_t)1 << 20);
    limits.file_most = 40;
    vj_file_table_limit_fragments(vj_volume_files(x.v),
                                  &limits); /* and the thread comes at 20 */
    random_edits(&x, 60, &limits);
    expect_bytes(&x);
    /* What is there already may be more than a smaller bound. */
    assert_int_equal(vj_file_table_remap(vj_volume_files(x.v)), 0);
    assert_int_equal(count_fragments(&x), 0);
    limits.file_most = 1000;
    limits.most = 30;
    vj_file_table_limit_fragments(vj_volume_files(x.v), &limits);
    random_edits(&x, 60, &limits);
    expect_bytes(&x);
    assert_int_equal(vj_file_table_remap(vj_volume_files(x.v)), 0);
    assert_int_equal(count_fragments(&x), 0);
    limits.most = 0;
    vj_file_table_limit_fragments(vj_volume_files(x.v), &limits);
    random_edits(&x, 10, &limits); /* none at all */
    expect_bytes(&x);
    expect_sound(&x);
    done(&x);
}

static int set_links_body(VjTxn *txn, void *opaque)
{
    const VjInode *want = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, want->ino, &inode);

    inode.nlink = want->nlink;
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

static void set_links(Fixture *x, uint32_t nlink)
{
    VjInode want = {.ino = x->ino, .nlink = nlink};

    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, set_links_body, &want), 0);
}

/* Its fragments are left alone, and nobody rests for its sake. */
static void a_file_without_a_name_keeps_none_waiting(void **state)
{
    VjRemapLimits limits = quiet;
    int64_t limit_us = vj_clock_mono_us() + (int64_t)120 * 1000 * 1000;
    uint32_t count, all;
    Fixture x, other;

    (void)state;
    make(&x, "objects=16K", (size_t)1 << 20);
    for (unsigned i = 0; i < 3; i++) {
        edit_and_sync(&x, 100000 * (i + 1), 0, PIECE);
    }
    set_links(&x, 0);
    other = x;
    other.f = NULL;
    assert_int_equal(vj_meta_run(x.v->meta, VJ_RUN_DEFAULT, create_body, &other.ino), 0);
    assert_int_equal(vj_file_open(vj_volume_files(x.v), other.ino, &other.f), 0);
    assert_int_equal(vj_file_write(other.f, 0, x.bytes, x.len, false, NULL), 0);
    assert_int_equal(vj_file_commit(other.f), 0);
    (void)vj_file_table_fragments(vj_volume_files(x.v), x.ino, &all);
    /* That is more than half: at once, whatever was due when. */
    limits.most = 2 * all - 1;
    vj_file_table_limit_fragments(vj_volume_files(x.v), &limits);
    assert_int_equal(vj_file_replace(other.f, 5000, 0, x.bytes, PIECE, false, NULL), 0);
    assert_int_equal(vj_file_sync(other.f), 0);
    do {
        g_thread_yield();
        count = vj_file_table_fragments(vj_volume_files(x.v), other.ino, &all);
    } while (count > 0 && vj_clock_mono_us() < limit_us);
    assert_int_equal(count, 0);
    assert_true(all > 0);
    vj_file_unref(other.f);
    set_links(&x, 1);
    expect_bytes(&x);
    done(&x);
}

static void expect_counted(Fixture *x)
{
    VjFileCounters c;

    vj_file_table_counters(vj_volume_files(x->v), &c);
    assert_int_equal(c.fragments_made - c.fragments_dropped, count_records(x));
}

static int orphan_body(VjTxn *txn, void *opaque)
{
    return vj_orphan_put(txn, *(const uint64_t *)opaque);
}

/* Whoever drops them: a change, the thread that makes objects, the orphan purge, of a
 * subtree and of a file. */
static void what_is_dropped_is_counted(void **state)
{
    Fixture x;

    (void)state;
    make(&x, "objects=16K", LARGE / 4);
    for (unsigned i = 0; i < 60; i++) {
        edit_and_sync(&x, 200000 * (i + 1), 0, PIECE);
    }
    assert_true(count_records(&x) >= 60);
    expect_counted(&x);
    edit_and_sync(&x, 200000, PIECE, 0);
    expect_counted(&x);
    edit_and_sync(&x, 1000000, x.len - 2000000, 0);
    vj_orphan_purge_drain(x.v->purge);
    expect_counted(&x);
    assert_int_equal(vj_file_table_remap(vj_volume_files(x.v)), 0);
    assert_int_equal(count_records(&x), 0);
    expect_counted(&x);
    edit_and_sync(&x, 1000, 0, PIECE);
    assert_true(count_records(&x) > 0);
    set_links(&x, 0);
    assert_int_equal(vj_meta_run(x.v->meta, VJ_RUN_DEFAULT, orphan_body, &x.ino), 0);
    vj_file_unref(g_steal_pointer(&x.f));
    vj_volume_reap(x.v, x.ino);
    vj_orphan_purge_drain(x.v->purge);
    assert_int_equal(count_records(&x), 0);
    expect_counted(&x);
    done(&x);
}

static uint64_t looks_of_remapper(const Fixture *x)
{
    VjRemapper *remapper = vj_volume_files(x->v)->remapper;
    uint64_t looks;

    vj_mutex_lock(&remapper->lock);
    looks = remapper->looks;
    vj_mutex_unlock(&remapper->lock);
    return looks;
}

/* It is woken for what is due, not by each of the commits that put that off. */
static void commits_do_not_wake_the_thread_that_makes_objects(void **state)
{
    uint64_t before;
    Fixture x;

    (void)state;
    make(&x, "objects=16K", (size_t)1 << 20);
    edit_and_sync(&x, 5000, PIECE, PIECE);
    before = looks_of_remapper(&x);
    for (unsigned i = 0; i < 40; i++) {
        edit_and_sync(&x, 10000 * (i + 1), PIECE, PIECE);
    }
    assert_true(count_records(&x) > 40);
    /* The first commit's, should it come late. */
    assert_in_range(looks_of_remapper(&x) - before, 0, 2);
    done(&x);
}

/* It could not store what it had to. */
static bool remapper_rests(const Fixture *x)
{
    VjRemapper *remapper = vj_volume_files(x->v)->remapper;
    const VjFragmentUse *u;
    bool rests;

    vj_mutex_lock(&remapper->lock);
    u = g_queue_peek_head(&remapper->due);
    rests = u != NULL && u->due_us >= quiet.retry_us;
    vj_mutex_unlock(&remapper->lock);
    return rests;
}

/* What it could not store is tried again when it has rested, however much there is. */
static void nor_while_it_rests(void **state)
{
    VjRemapLimits limits = quiet;
    g_autoptr(GError) error = NULL;
    uint64_t before;
    Fixture x;

    (void)state;
    make(&x, "objects=16K", (size_t)1 << 20);
    close_volume(&x);
    open_volume(&x, false, "fault");
    for (unsigned i = 0; i < 60; i++) {
        edit_and_sync(&x, 10000 * (i + 1), PIECE, PIECE);
    }
    limits.most = 2 * count_records(&x) - 1; /* it has more than half: at once */
    assert_true(vj_store_fault_set(x.v->store, "every=1,errno=EIO", &error));
    vj_file_table_limit_fragments(vj_volume_files(x.v), &limits);
    while (!remapper_rests(&x)) {
        g_thread_yield();
    }
    before = looks_of_remapper(&x);
    for (unsigned i = 0; i < 40; i++) {
        edit_and_sync(&x, 10000 * (i + 1) + 5000, PIECE, PIECE);
    }
    assert_true(count_records(&x) > limits.most / 2);
    assert_int_equal(looks_of_remapper(&x), before);
    assert_true(vj_store_fault_set(x.v->store, "every=0", &error));
    expect_bytes(&x);
    done(&x);
}

/* Else a small change becomes objects whenever the first one since the mount has its
 * age. */
static void what_is_durable_does_not_hurry_the_next_change(void **state)
{
    int64_t due_us, now_us;
    Fixture x;

    (void)state;
    make(&x, "objects=16K", (size_t)100 << 10);
    for (unsigned i = 0; i < 3; i++) {
        due_us = x.f->flush_link.due_us;
        now_us = vj_clock_mono_us();
        while (vj_clock_mono_us() == now_us) {
        }
        edit(&x, 1000, 0, 10);
        assert_true(x.f->flush_link.due_us > due_us);
        due_us = x.f->flush_link.due_us;
        edit(&x, 2000, 0, 10); /* not durable: the first counts */
        assert_true(x.f->flush_link.due_us == due_us);
        assert_int_equal(vj_file_sync(x.f), 0);
    }
    done(&x);
}

/* A log: few bytes, again and again. */
static void what_grows_slowly_takes_few_records(void **state)
{
    Fixture x;

    (void)state;
    make(&x, "objects=16K", (size_t)100 << 10);
    for (unsigned i = 0; i < 90; i++) {
        edit_and_sync(&x, x.len, 0, 100);
    }
    assert_true(count_fragments(&x) <= 4);
    for (unsigned i = 0; i < 50; i++) { /* and in the middle, as somebody types */
        edit_and_sync(&x, 50000 + i * 10, 0, 10);
    }
    assert_true(count_fragments(&x) <= 6);
    for (unsigned i = 0; i < 20; i++) { /* the same block over and over */
        edit_and_sync(&x, 8192, PIECE, PIECE);
    }
    assert_true(count_fragments(&x) <= 8);
    expect_bytes(&x);
    expect_sound(&x);
    assert_int_equal(vj_file_table_remap(vj_volume_files(x.v)), 0);
    expect_objects(&x);
    done(&x);
}

/* Cut, punched, copied, dropped with the end of the file. */
static void other_changes_meet_fragments(void **state)
{
    Fixture x, *p = &x;
    uint64_t other, copied;
    VjFile *to;
    Fixture copy;

    (void)state;
    make(&x, "objects=16K", (size_t)300 << 10);
    for (unsigned i = 0; i < 20; i++) {
        edit_and_sync(p, i * 15000, PIECE, 6000);
    }
    assert_int_equal(vj_file_punch(x.f, 45000 + 1000, 8192, false), 0);
    memset(x.bytes + 46000, 0, 8192);
    assert_int_equal(vj_file_sync(x.f), 0);
    expect_bytes(&x);
    assert_int_equal(vj_file_truncate(x.f, 195000 + 500), 0);
    x.len = 195500;
    assert_int_equal(vj_file_sync(x.f), 0);
    expect_bytes(&x);
    edit_and_sync(&x, 90500, 1000, 0); /* out of the middle of one */
    expect_bytes(&x);
    assert_int_equal(vj_meta_run(x.v->meta, VJ_RUN_DEFAULT, create_body, &other), 0);
    assert_int_equal(vj_file_open(vj_volume_files(x.v), other, &to), 0);
    assert_int_equal(vj_file_copy(x.f, 0, to, 0, x.len, &copied), 0);
    assert_int_equal(copied, x.len);
    assert_int_equal(vj_file_sync(to), 0);
    copy = x;
    copy.f = to;
    expect_bytes(&copy);
    assert_int_equal(vj_file_table_remap(vj_volume_files(x.v)), 0);
    expect_bytes(&copy);
    expect_bytes(&x);
    assert_int_equal(count_fragments(&x), 0);
    vj_file_unref(to);
    expect_sound(&x);
    done(&x);
}

/* Deleting works on a full store, also out of fragments, and making objects of them
 * waits. */
static void a_full_store(void **state)
{
    Fixture x;

    (void)state;
    make(&x, "objects=16K", (size_t)300 << 10);
    for (unsigned i = 0; i < 10; i++) {
        edit_and_sync(&x, i * 15000, PIECE, PIECE);
    }
    close_volume(&x);
    open_volume(&x, false, "fault:errno=ENOSPC,kinds=put,every=1");
    expect_bytes(&x);
    for (unsigned i = 0; i < 5; i++) { /* out of the middle of one, its end, its begin */
        edit(&x, 30000 * i + 1000, 500, 0);
        assert_int_equal(vj_file_commit(x.f), 0);
        edit_and_sync(&x, 30000 * i + 3000, 1500, 0);
    }
    expect_bytes(&x);
    assert_int_equal(vj_file_table_remap(vj_volume_files(x.v)), -ENOSPC);
    expect_bytes(&x);
    assert_true(count_fragments(&x) > 0);
    expect_sound(&x);
    assert_int_equal(vj_file_table_remap(vj_volume_files(x.v)), 0);
    assert_int_equal(count_fragments(&x), 0);
    expect_bytes(&x);
    expect_sound(&x);
    done(&x);
}

/* What is left of a fragment stays, though all of the map around it is cut off as one
 * tree. */
static void a_full_store_and_a_large_cut(void **state)
{
    Fixture x;
    size_t end;

    (void)state;
    make(&x, "objects=16K", (size_t)24 << 20);
    edit_and_sync(&x, 0, PIECE, PIECE);
    edit_and_sync(&x, x.len - PIECE, PIECE, PIECE);
    close_volume(&x);
    open_volume(&x, false, "fault:errno=ENOSPC,kinds=put,every=1");
    end = x.len / 2;
    edit(&x, 1000, end - 1000, 0);
    assert_int_equal(vj_file_commit(x.f), 0);
    end = x.len - 1000;
    edit(&x, x.len / 2, end - x.len / 2, 0);
    assert_int_equal(vj_file_commit(x.f), 0);
    vj_orphan_purge_drain(x.v->purge);
    expect_bytes(&x);
    expect_sound(&x);
    done(&x);
}

static int plant_last_body(VjTxn *txn, void *opaque)
{
    const Fixture *x = opaque;

    return vj_fragment_put(txn, x->ino, UINT32_MAX, NULL, "x", 1);
}

static int unplant_last_body(VjTxn *txn, void *opaque)
{
    const Fixture *x = opaque;
    VjEntry e = {.kind = VJ_ENTRY_FRAGMENT, .id = UINT32_MAX, .length = 1};

    return vj_entry_drop(txn, x->ino, &e);
}

/* The last number is taken: the gaps below it are used. */
static void numbers_are_used_again(void **state)
{
    Fixture x;

    (void)state;
    make(&x, "objects=16K", (size_t)300 << 10);
    edit_and_sync(&x, 0, 0, 10);
    assert_int_equal(vj_meta_run(x.v->meta, VJ_RUN_DEFAULT, plant_last_body, &x), 0);
    edit_and_sync(&x, 100000, 0, 10);
    edit_and_sync(&x, 200000, 0, 10);
    edit_and_sync(&x, 100000, 10, 0);
    edit_and_sync(&x, 250000, 0, 10);
    assert_int_equal(vj_meta_run(x.v->meta, VJ_RUN_DEFAULT, unplant_last_body, &x), 0);
    expect_bytes(&x);
    expect_sound(&x);
    done(&x);
}

/* A small new file is durable without an object; larger ones are objects at once. */
static void new_files(void **state)
{
    static const size_t lens[] = {4000, 5000, 16384, 16385};
    VjStoreStats before, after;
    Fixture x;

    (void)state;
    make(&x, NULL, 100000);
    for (size_t i = 0; i < G_N_ELEMENTS(lens); i++) {
        assert_int_equal(vj_file_truncate(x.f, 0), 0);
        assert_int_equal(vj_file_sync(x.f), 0);
        x.len = 0;
        vj_store_stats(x.v->store, &before);
        edit_and_sync(&x, 0, 0, lens[i]);
        vj_store_stats(x.v->store, &after);
        assert_int_equal(after.puts - before.puts, lens[i] > 16384);
        expect_bytes(&x);
    }
    expect_sound(&x);
    done(&x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_sync_puts_no_object),
    cmocka_unit_test(it_is_cut_as_a_writer_would_have),
    cmocka_unit_test(what_becomes_objects_is_not_to_be_kept),
    cmocka_unit_test(bounds_hold),
    cmocka_unit_test(a_file_without_a_name_keeps_none_waiting),
    cmocka_unit_test(what_is_dropped_is_counted),
    cmocka_unit_test(what_is_durable_does_not_hurry_the_next_change),
    cmocka_unit_test(commits_do_not_wake_the_thread_that_makes_objects),
    cmocka_unit_test(nor_while_it_rests),
    cmocka_unit_test(what_grows_slowly_takes_few_records),
    cmocka_unit_test(other_changes_meet_fragments),
    cmocka_unit_test(a_full_store),
    cmocka_unit_test(a_full_store_and_a_large_cut),
    cmocka_unit_test(numbers_are_used_again),
    cmocka_unit_test(new_files),
};

VJ_TEST_MAIN(tests)
