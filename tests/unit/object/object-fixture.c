/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-fixture.c - see object-fixture.h
 */
#include "object-fixture.h"

#include <sys/stat.h>

static int open_dir(const char *parent, const char *name)
{
    g_autofree char *path = g_build_filename(parent, name, NULL);
    int fd;

    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void wrap_store(Fixture *f, const char *spec)
{
    VjStore *inner = f->store;
    GError *error = NULL;

    if (!vj_store_wrap(spec, inner, &f->store, &error)) {
        fail_msg("%s: %s", spec, error->message);
    }
}

static void wrap_meta(Fixture *f, const char *spec)
{
    VjMeta *inner = f->meta;
    GError *error = NULL;

    if (!vj_meta_wrap(spec, inner, &f->meta, &error)) {
        fail_msg("%s: %s", spec, error->message);
    }
}

/* The drivers borrow the directories for as long as they are open. */
static int meta_dir = -1, store_dir = -1;

void fixture_open_seams(Fixture *f, const char *store, bool create)
{
    VjMetaPlace meta_place = {.path = f->path, .create = create};
    VjStoreKeys keys;
    VjStorePlace store_place = {.path = f->path, .keys = &keys, .create = create};
    g_autofree char *meta_path = g_build_filename(f->path, "meta", NULL);
    GError *error = NULL;

    meta_place.dir_fd = meta_dir = open_dir(f->path, "meta");
    meta_place.path = meta_path;
    store_place.dir_fd = store_dir = open_dir(f->path, "objects");
    if (!vj_meta_open("lmdb", &meta_place, &f->meta, &error)) {
        fail_msg("open: %s", error->message);
    }
    keys = vj_object_store_keys(f->meta);
    if (!vj_store_open(store, &store_place, &f->store, &error)) {
        fail_msg("open: %s", error->message);
    }
    wrap_store(f, "fault");
    wrap_store(f, "stats");
    wrap_meta(f, "fault");
    wrap_meta(f, "stats");
}

void fixture_close_seams(Fixture *f)
{
    vj_store_close(g_steal_pointer(&f->store));
    assert_int_equal(vj_meta_close(g_steal_pointer(&f->meta)), 0);
    vj_fd_close(&meta_dir);
    vj_fd_close(&store_dir);
}

void fixture_open_objects(Fixture *f)
{
    VjObjectsConfig config = {.meta = f->meta,
                              .store = f->store,
                              .digest = vj_digest_default(),
                              .cache_bytes = f->cache_bytes,
                              .block_ids = f->block_ids};
    GError *error = NULL;

    if (!vj_objects_open(&config, &f->objects, &error)) {
        fail_msg("open: %s", error->message);
    }
    /* The pass that this starts does not come beside a check, or when a test has the
     * dead. */
    (void)!vj_objects_reap_now(f->objects);
}

void fixture_close_objects(Fixture *f)
{
    assert_int_equal(vj_objects_close(g_steal_pointer(&f->objects)), 0);
}

void fixture_reopen_objects(Fixture *f)
{
    fixture_close_objects(f);
    fixture_open_objects(f);
}

void fixture_faults(Fixture *f, const char *store, const char *meta)
{
    GError *error = NULL;

    if ((store != NULL && !vj_store_fault_set(f->store, store, &error)) ||
        (meta != NULL && !vj_meta_fault_set(f->meta, meta, &error))) {
        fail_msg("%s", error->message);
    }
}

static int setup_on(void **state, const char *store)
{
    Fixture *f = g_new0(Fixture, 1);

    f->path = vj_test_make_dir();
    f->driver = store;
    vj_mutex_init(&f->lock, VJ_RANK_BASE, "fixture");
    f->counts = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    f->cache_bytes = 4 * VJ_MIB;
    fixture_open_seams(f, store, true);
    fixture_open_objects(f);
    *state = f;
    return 0;
}

int fixture_setup(void **state)
{
    return setup_on(state, "memory");
}

int fixture_setup_posix(void **state)
{
    return setup_on(state, "posix");
}

int fixture_setup_block(void **state)
{
    return setup_on(state, "block:direct=yes");
}

int fixture_teardown(void **state)
{
    Fixture *f = *state;

    if (f->objects != NULL) {
        fixture_close_objects(f);
    }
    if (f->meta != NULL) {
        fixture_close_seams(f);
    }
    vj_test_remove_dir(f->path);
    g_hash_table_destroy(f->counts);
    vj_mutex_clear(&f->lock);
    g_free(f);
    return 0;
}

uint8_t *content(uint64_t seed, size_t len)
{
    uint8_t *bytes = g_malloc(len);
    VjRng rng;

    vj_rng_init(&rng, seed);
    vj_rng_bytes(&rng, bytes, len);
    return bytes;
}

static void count(Fixture *f, uint64_t id, gint64 by)
{
    gint64 key = (gint64)id, *found;

    vj_mutex_lock(&f->lock);
    found = g_hash_table_lookup(f->counts, &key);
    if (found == NULL) {
        found = g_new0(gint64, 1);
        g_hash_table_insert(f->counts, g_memdup2(&key, sizeof key), found);
    }
    *found += by;
    assert_true(*found >= 0);
    if (*found == 0) {
        g_hash_table_remove(f->counts, &key);
    }
    vj_mutex_unlock(&f->lock);
}

typedef struct Take {
    VjPendingObject **pending;
    size_t count;
    VjObject *out;
} Take;

static int take_body(VjTxn *txn, void *opaque)
{
    const Take *t = opaque;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < t->count; i++) {
        rc = vj_pending_take(txn, t->pending[i], &t->out[i]);
    }
    return rc;
}

int commit_pending(Fixture *f, VjPendingObject **pending, size_t n, VjObject *out)
{
    Take t = {.pending = pending, .count = n, .out = out};
    bool must_flush = false;
    int rc = 0;

    for (size_t i = 0; i < n; i++) {
        must_flush = must_flush || vj_pending_is_put(pending[i]);
    }
    if (must_flush) {
        rc = vj_store_flush(f->store);
    }
    if (rc == 0) {
        rc = vj_meta_run(f->meta, VJ_RUN_DEFAULT, take_body, &t);
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        count(f, out[i].id, 1);
    }
    for (size_t i = 0; i < n; i++) {
        vj_pending_free(f->objects, pending[i], rc == 0);
        pending[i] = NULL;
    }
    return rc;
}

int put_content(Fixture *f, const void *plain, uint32_t len, VjObject *out)
{
    const VjTransform want = {.codec = f->codec};
    VjPendingObject *pending;
    int rc = store_plain(f->objects, plain, len, &want, NULL, 0, &pending);

    return rc < 0 ? rc : commit_pending(f, &pending, 1, out);
}

void must_put(Fixture *f, const void *plain, uint32_t len, VjObject *out)
{
    assert_int_equal(put_content(f, plain, len, out), 0);
}

typedef struct Change {
    uint64_t id;
    VjObject *out;
    bool drop;
} Change;

static int change_body(VjTxn *txn, void *opaque)
{
    const Change *c = opaque;

    return c->drop ? vj_object_unref(txn, c->id, c->out)
                   : vj_object_ref(txn, c->id, c->out);
}

int add_ref(Fixture *f, uint64_t id, VjObject *out)
{
    Change c = {.id = id, .out = out};
    int rc = vj_meta_run(f->meta, VJ_RUN_DEFAULT, change_body, &c);

    if (rc == 0) {
        count(f, id, 1);
    }
    return rc;
}

int drop_ref(Fixture *f, uint64_t id)
{
    VjObject object;
    Change c = {.id = id, .out = &object, .drop = true};
    int rc;

    rc = vj_meta_run(f->meta, VJ_RUN_RELEASE, change_body, &c);
    if (rc == 0) {
        count(f, id, -1);
    }
    return rc;
}

typedef struct Get {
    uint64_t id;
    VjObject *out;
} Get;

static int get_body(VjTxn *txn, void *opaque)
{
    const Get *g = opaque;

    return vj_object_get(txn, g->id, g->out);
}

int get_object(Fixture *f, uint64_t id, VjObject *out)
{
    return vj_meta_view(f->meta, get_body, &(Get){.id = id, .out = out});
}

void assert_content(Fixture *f, const VjObject *object, const void *plain)
{
    g_autofree uint8_t *got = g_malloc(object->plain_bytes);

    assert_int_equal(
        vj_object_read(f->objects, object, 0, got, object->plain_bytes, false), 0);
    assert_memory_equal(got, plain, object->plain_bytes);
}

static void say(void *opaque, const char *text)
{
    g_string_append_printf(opaque, "%s\n", text);
}

VjCheckReport check_objects(Fixture *f, char **said)
{
    GString *text = g_string_new(NULL);
    VjCheckReport report = {0};

    assert_int_equal(
        vj_objects_check(f->objects, f->counts, true, NULL, say, text, &report), 0);
    if (said != NULL) {
        *said = g_string_free(text, FALSE);
    } else {
        g_string_free(text, TRUE);
    }
    return report;
}

void assert_consistent(Fixture *f)
{
    g_autofree char *said = NULL;
    VjCheckReport report = check_objects(f, &said);

    if (report.problems + report.leaks > 0 || *said != '\0') {
        fail_msg("%s", said);
    }
    assert_int_equal(report.objects, g_hash_table_size(f->counts));
}

static bool count_one(void *opaque, const VjPut *object, int64_t mtime_us)
{
    (void)object;
    (void)mtime_us;
    *(uint64_t *)opaque += 1;
    return true;
}

uint64_t stored_count(Fixture *f)
{
    uint64_t n = 0;

    assert_int_equal(vj_store_each(f->store, 1, UINT64_MAX, count_one, &n), 0);
    return n;
}

uint64_t key_count(Fixture *f, VjSpace space)
{
    VjListing l;
    uint64_t n = 0;

    vj_listing_begin(&l, f->meta, space);
    while (vj_listing_next(&l)) {
        n++;
    }
    assert_int_equal(vj_listing_end(&l), 0);
    return n;
}

VjObjectsStats stats_of(Fixture *f)
{
    VjObjectsStats stats;

    vj_objects_stats(f->objects, &stats);
    return stats;
}
