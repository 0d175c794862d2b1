/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * session-fixture.c - see session-fixture.h
 */
#include "session-fixture.h"

#include "../../lib/shut-out.h"

/* No lease ends while a test runs. */
#define LONG_LEASE_US ((int64_t)3600 * 1000 * 1000)
/* Where the names stand. */
#define NAMES VJ_SPACE_INODE
/* How often content is stored anew that is found to be going. */
#define STALE_TRIES 100u
/* Claims that one transaction drops. */
#define RELEASE_BATCH 64u

/* ---- sessions ---------------------------------------------------------------------- */

static void changed(void *opaque, const VjKey *key)
{
    vj_objects_changed(((Fixture *)opaque)->objects, key);
}

static const VjMetaEvents events = {.changed = changed};

/* @name NULL: an exclusive one without a number. */
static VjMeta *open_meta(const char *spec, const char *name, bool create)
{
    VjSessionOpen session = {.name = name, .shared = true, .lease_us = LONG_LEASE_US};
    VjMetaPlace place = {
        .dir_fd = -1, .create = create, .session = name != NULL ? &session : NULL};
    GError *error = NULL;
    VjMeta *m;

    if (!vj_meta_open(spec, &place, &m, &error)) {
        fail_msg("open: %s", error->message);
    }
    return m;
}

static VjStore *open_store(const char *spec, bool create)
{
    VjStorePlace place = {.dir_fd = -1, .path = "", .shared = true, .create = create};
    GError *error = NULL;
    VjStore *s, *out;

    if (!vj_store_open(spec, &place, &s, &error) ||
        !vj_store_wrap("fault", s, &out, &error)) {
        fail_msg("open: %s", error->message);
    }
    return out;
}

static Fixture *open_seams(const World *w, const char *name)
{
    Fixture *f = g_new0(Fixture, 1);

    f->driver = "memory";
    vj_mutex_init(&f->lock, VJ_RANK_BASE, "fixture");
    f->counts = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    f->block_ids = 16;
    f->meta = open_meta(w->volume, name, false);
    f->store = open_store(w->volume, false);
    return f;
}

static bool open_objects(Fixture *f, GError **error)
{
    VjObjectsConfig config = {.meta = f->meta,
                              .store = f->store,
                              .digest = vj_digest_default(),
                              .block_ids = f->block_ids};

    return vj_objects_open(&config, &f->objects, error);
}

/* @calls of the engine, and no more; UINT64_MAX: any number. */
static Fixture *open_session(const World *w, const char *name, const char *engine,
                             uint64_t calls)
{
    Fixture *f = open_seams(w, name);
    g_autoptr(GError) error = NULL;

    if (engine != NULL && !vj_meta_wrap(engine, f->meta, &f->meta, &error)) {
        fail_msg("%s: %s", engine, error->message);
    }
    if (calls != UINT64_MAX) {
        vj_meta_crash_after(f->meta, calls, false);
    }
    if (open_objects(f, &error)) {
        vj_meta_listen(f->meta, &events, f);
    } else if (engine == NULL) {
        fail_msg("open: %s", error->message);
    }
    return f;
}

Fixture *session_open(const World *w, const char *name, const char *engine)
{
    return open_session(w, name, engine, UINT64_MAX);
}

Fixture *session_open_to_crash(const World *w, const char *name, uint64_t calls)
{
    g_assert(calls != UINT64_MAX);
    return open_session(w, name, "crash", calls);
}

int session_close(Fixture *f)
{
    int rc = 0, closed;

    vj_meta_listen(f->meta, NULL, NULL);
    if (f->objects != NULL) {
        rc = vj_objects_close(f->objects);
    }
    vj_store_close(f->store);
    closed = vj_meta_close(f->meta);
    g_hash_table_destroy(f->counts);
    vj_mutex_clear(&f->lock);
    g_free(f);
    return rc < 0 ? rc : closed;
}

uint64_t session_number(Fixture *f)
{
    return vj_meta_session(f->meta);
}

int try_shut_out(Fixture *by, uint64_t id)
{
    return vj_test_shut_out(by->meta, id);
}

void shut_out(Fixture *by, uint64_t id)
{
    assert_int_equal(try_shut_out(by, id), 0);
}

typedef struct Release {
    uint64_t id;
    bool more;
} Release;

static int release_body(VjTxn *txn, void *opaque)
{
    Release *r = opaque;
    int rc = vj_claims_release(txn, r->id, RELEASE_BATCH, &r->more);

    return rc < 0 || r->more ? rc : vj_session_forget(txn, r->id);
}

int release_ended(Fixture *by, uint64_t id)
{
    Release r = {.id = id};
    int rc = vj_objects_release_session(by->objects, id);

    do {
        rc = rc < 0 ? rc : vj_meta_run(by->meta, VJ_RUN_RELEASE, release_body, &r);
    } while (rc == 0 && r.more);
    return rc;
}

/* ---- the world --------------------------------------------------------------------- */

World *world_new(void)
{
    static const char *const names[SESSIONS] = {"first", "second", "third"};
    static unsigned number;
    World *w = g_new0(World, 1);

    w->volume = g_strdup_printf("memory:name=sessions-%u", number++);
    assert_int_equal(vj_meta_close(open_meta(w->volume, NULL, true)), 0);
    vj_store_close(open_store(w->volume, true));
    for (unsigned i = 0; i < SESSIONS; i++) {
        w->s[i] = session_open(w, names[i], NULL);
    }
    return w;
}

static void assert_nothing_left_over(Fixture *f)
{
    assert_int_equal(key_count(f, VJ_SPACE_DEAD), 0);
    assert_int_equal(key_count(f, VJ_SPACE_CLAIM), 0);
    assert_int_equal(stored_count(f), key_count(f, VJ_SPACE_OBJECT));
}

/* Those whose releaser has ended before it was done. */
static void release_all(Fixture *f)
{
    g_autoptr(GArray) sessions = g_array_new(FALSE, FALSE, sizeof(VjSessionInfo));

    assert_int_equal(vj_meta_sessions(f->meta, sessions), 0);
    for (guint i = 0; i < sessions->len; i++) {
        uint64_t id = g_array_index(sessions, VjSessionInfo, i).id;

        assert_int_equal(release_ended(f, id), 0);
    }
}

/* Another one, alone, finds all in order and nothing left over. */
static void look_alone(const World *w, bool after_crashes)
{
    Fixture *f = open_seams(w, NULL);

    assert_true(key_count(f, VJ_SPACE_ID_BLOCK) == 0 || after_crashes);
    assert_true(open_objects(f, NULL));
    if (after_crashes) {
        release_all(f);
    }
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_true(collect_garbage(f) == 0 || after_crashes);
    assert_world_consistent(f);
    assert_nothing_left_over(f);
    assert_int_equal(session_close(f), 0);
}

void world_free_after_crashes(World *w, bool after_crashes)
{
    for (unsigned i = 0; i < SESSIONS; i++) {
        if (w->s[i] != NULL) {
            assert_int_equal(session_close(w->s[i]), 0);
        }
    }
    look_alone(w, after_crashes);
    g_free(w->volume);
    g_free(w);
}

void world_free(World *w)
{
    world_free_after_crashes(w, false);
}

int world_setup(void **state)
{
    *state = world_new();
    return 0;
}

int world_teardown(void **state)
{
    world_free(*state);
    return 0;
}

static void say(void *opaque, const char *text)
{
    g_string_append_printf(opaque, "%s\n", text);
}

/* id → how many names it has. */
static GHashTable *count_names(Fixture *f)
{
    GHashTable *counts =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    VjListing l;

    vj_listing_begin(&l, f->meta, NAMES);
    while (vj_listing_next(&l)) {
        gint64 id = (gint64)vj_be64_get(l.value.data), *count;

        count = g_hash_table_lookup(counts, &id);
        if (count == NULL) {
            count = g_new0(gint64, 1);
            g_hash_table_insert(counts, g_memdup2(&id, sizeof id), count);
        }
        *count += 1;
    }
    assert_int_equal(vj_listing_end(&l), 0);
    return counts;
}

void assert_world_consistent(Fixture *f)
{
    g_autoptr(GHashTable) counts = count_names(f);
    g_autoptr(GString) text = g_string_new(NULL);
    VjCheckReport report = {0};

    assert_int_equal(vj_objects_check(f->objects, counts, true, NULL, say, text, &report),
                     0);
    if (report.problems + report.leaks > 0 || text->len > 0) {
        fail_msg("%s", text->str);
    }
    assert_int_equal(report.objects, g_hash_table_size(counts));
}

static bool collect(void *opaque, const VjPut *object, int64_t mtime_us)
{
    (void)mtime_us;
    g_array_append_vals(opaque, object, 1);
    return true;
}

guint collect_garbage(Fixture *f)
{
    g_autoptr(GArray) puts = g_array_new(FALSE, FALSE, sizeof(VjPut));

    assert_int_equal(vj_store_each(f->store, 1, UINT64_MAX, collect, puts), 0);
    assert_int_equal(vj_objects_keep_garbage(f->objects, puts), 0);
    for (guint i = 0; i < puts->len; i++) {
        assert_int_equal(
            vj_object_remove_unnamed(f->objects, &g_array_index(puts, VjPut, i)), 0);
    }
    return puts->len;
}

/* ---- names ------------------------------------------------------------------------- */

#define NAME_VALUE_BYTES 16u

typedef struct Naming {
    uint64_t name, id, seed;
    VjPendingObject *pending;
    VjObject object;
} Naming;

static VjSlice name_key(uint64_t name, uint8_t key[8])
{
    vj_be64_set(key, name);
    return vj_slice(key, 8);
}

static int get_name(VjTxn *txn, uint64_t name, uint64_t *id, uint64_t *seed)
{
    uint8_t key[8];
    VjSlice value;
    int rc = vj_txn_get(txn, NAMES, name_key(name, key), &value);

    if (rc == 0) {
        assert_int_equal(value.len, NAME_VALUE_BYTES);
        *id = vj_be64_get(value.data);
        *seed = vj_be64_get((const uint8_t *)value.data + 8);
    }
    return rc;
}

static int put_name(VjTxn *txn, uint64_t name, uint64_t id, uint64_t seed)
{
    uint8_t key[8], value[NAME_VALUE_BYTES];

    vj_be64_set(value, id);
    vj_be64_set(value + 8, seed);
    return vj_txn_put(txn, NAMES, name_key(name, key), vj_slice(value, sizeof value));
}

static int unname_body(VjTxn *txn, void *opaque)
{
    Naming *n = opaque;
    uint8_t key[8];
    int rc = get_name(txn, n->name, &n->id, &n->seed);

    if (rc == 0) {
        rc = vj_object_unref(txn, n->id, &n->object);
        rc = rc == -ENOENT ? -EBADMSG : rc; /* a name without an object */
    }
    return rc == 0 ? vj_txn_del(txn, NAMES, name_key(n->name, key)) : rc;
}

static int name_pending_body(VjTxn *txn, void *opaque)
{
    Naming *n = opaque, old = {.name = n->name};
    int rc = vj_pending_take(txn, n->pending, &n->object);

    if (rc == 0) {
        rc = unname_body(txn, &old);
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc == 0 ? put_name(txn, n->name, n->object.id, n->seed) : rc;
}

static int name_object_body(VjTxn *txn, void *opaque)
{
    Naming *n = opaque;
    uint64_t id, seed;
    int rc = get_name(txn, n->name, &id, &seed);

    if (rc != -ENOENT) {
        return rc == 0 ? -EEXIST : rc;
    }
    rc = vj_object_ref(txn, n->id, &n->object);
    return rc == 0 ? put_name(txn, n->name, n->id, n->seed) : rc;
}

static int look_up_body(VjTxn *txn, void *opaque)
{
    Naming *n = opaque;
    int rc = get_name(txn, n->name, &n->id, &n->seed);

    if (rc == 0) {
        rc = vj_object_get(txn, n->id, &n->object);
        rc = rc == -ENOENT ? -EBADMSG : rc;
    }
    return rc;
}

static uint32_t content_bytes(uint64_t seed)
{
    return (uint32_t)(2000 + seed % 3000);
}

int store_content(Fixture *f, uint64_t seed, VjPendingObject **pending)
{
    const VjTransform want = {0};
    g_autofree uint8_t *bytes = content(seed, content_bytes(seed));

    return store_plain(f->objects, bytes, content_bytes(seed), &want, NULL, 0, pending);
}

int name_pending(Fixture *f, uint64_t name, uint64_t seed, VjPendingObject *pending,
                 VjObject *out)
{
    Naming n = {.name = name, .seed = seed, .pending = pending};
    int rc = vj_pending_is_put(pending) ? vj_store_flush(f->store) : 0;

    if (rc == 0) {
        rc = vj_meta_run(f->meta, VJ_RUN_DEFAULT, name_pending_body, &n);
    }
    vj_pending_free(f->objects, pending, rc == 0);
    *out = n.object;
    return rc;
}

int name_content(Fixture *f, uint64_t name, uint64_t seed)
{
    VjPendingObject *pending;
    VjObject out;
    int rc = -ESTALE;

    for (unsigned i = 0; i < STALE_TRIES && rc == -ESTALE; i++) {
        rc = store_content(f, seed, &pending);
        if (rc == 0) {
            rc = name_pending(f, name, seed, pending, &out);
        }
    }
    return rc;
}

int name_object(Fixture *f, uint64_t name, uint64_t id, uint64_t seed)
{
    Naming n = {.name = name, .id = id, .seed = seed};

    return vj_meta_run(f->meta, VJ_RUN_DEFAULT, name_object_body, &n);
}

int unname(Fixture *f, uint64_t name)
{
    Naming n = {.name = name};
    int rc = vj_meta_run(f->meta, VJ_RUN_RELEASE, unname_body, &n);

    if (rc == 0 && n.object.refs == 0) {
        vj_objects_kick(f->objects);
    }
    return rc;
}

int look_up_name(Fixture *f, uint64_t name, VjObject *out, uint64_t *seed)
{
    Naming n = {.name = name};
    int rc = vj_meta_view(f->meta, look_up_body, &n);

    *out = n.object;
    *seed = n.seed;
    return rc;
}

int read_content(Fixture *f, const VjObject *object, uint64_t seed)
{
    g_autofree uint8_t *want = content(seed, content_bytes(seed));
    g_autofree uint8_t *got = g_malloc(content_bytes(seed));
    int rc;

    assert_int_equal(object->plain_bytes, content_bytes(seed));
    rc = vj_object_read(f->objects, object, 0, got, object->plain_bytes, false);
    return rc == 0 && memcmp(got, want, object->plain_bytes) != 0 ? -EILSEQ : rc;
}

/* ---- passes ------------------------------------------------------------------------ */

unsigned parity_of(Fixture *f)
{
    VjDead *d = &f->objects->dead;
    unsigned parity;

    vj_mutex_lock(&d->lock);
    parity = d->epoch;
    vj_mutex_unlock(&d->lock);
    return parity;
}

void wait_for_other_parity(Fixture *f, unsigned before)
{
    while (parity_of(f) == before) {
        g_thread_yield();
    }
}

static gpointer pass_thread(gpointer opaque)
{
    return GINT_TO_POINTER(vj_objects_reap_now(opaque));
}

GThread *begin_pass(Fixture *f)
{
    unsigned before = parity_of(f);
    GThread *thread = g_thread_new("pass", pass_thread, f->objects);

    wait_for_other_parity(f, before);
    return thread;
}

void end_pass(GThread *thread, int rc)
{
    assert_int_equal(GPOINTER_TO_INT(g_thread_join(thread)), rc);
}
