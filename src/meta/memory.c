/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * memory.c - an engine in memory, for tests of what stands above engines
 *
 * Durability: none.  The keys live as long as the process: a caller that closes the
 * engine and opens it again for the same directory, or with the same name=, finds them;
 * so do several sessions at one time.  A crash of a session is to close it with what it
 * did not flush.
 *
 * The keys of a space stand in a treap whose nodes are shared between states and never
 * change once they are: a batch copies the paths to what it changes, and becomes the
 * state with one store of a pointer.  So a snapshot is a reference on a state, and a
 * batch that is refused leaves nothing.
 *
 * Sessions that watch are notified of a batch before any of them can read it: reads and
 * new snapshots wait meanwhile, and what a callback makes other threads read again is the
 * new state.
 */
#include <sys/stat.h>

#include "meta/meta-private.h"

/* A key with its value; never changes. */
typedef struct Entry {
    gint refs; /* atomic */
    uint32_t value_bytes;
    uint32_t key_bytes;
    uint64_t version;
    uint8_t bytes[]; /* the key, then the value */
} Entry;

typedef struct Node Node;
struct Node {
    gint refs;         /* atomic; with more than one it does not change */
    uint64_t priority; /* not below those of its children; follows from the key */
    Entry *entry;
    Node *left, *right;
};

typedef struct State {
    gint refs;        /* atomic */
    uint64_t version; /* the largest of its entries */
    Node *roots[VJ_SPACE_COUNT];
    uint64_t counts[VJ_SPACE_COUNT];
} State;

typedef struct Memory Memory;

/* What sessions share. */
typedef struct Keys {
    gint refs;  /* atomic */
    char *name; /* never changes; NULL: no other engine finds it */
    VjMutex lock;
    VjCond applied; /* or notified */
    /* Atomic: how far its clock is ahead of the one that never steps; so it does not step
     * with the wall clock, and no lease ends by that. */
    int64_t clock_ahead_us;
    /* guarded by lock: */
    State *now;
    bool is_applying;
    bool is_notifying; /* watchers are being notified of the next state */
    Memory *watchers;
} Keys;

struct Memory {
    VjEngine engine;
    bool read_only;
    Keys *keys;
    /* guarded by keys->lock; stay while is_notifying: */
    Memory *next_watcher;
    VjEngineWatch *changed; /* NULL: it does not watch */
    void *opaque;
};

typedef struct MemorySnapshot {
    VjEngineSnapshot base;
    State *state; /* NULL: it is not taken */
} MemorySnapshot;

/* All that have a name, until the process ends. */
static VjMutex registry_lock = VJ_MUTEX_INIT(VJ_RANK_META_ENGINE, "meta memory registry");
static GHashTable *registry; /* name → Keys; guarded by registry_lock */

static const VjOptSpec memory_options[] = {
    VJ_SESSION_OPTIONS,
    {.name = "name",
     .type = VJ_OPT_STRING,
     .help = "the keys of this name, whichever the directory; default: the directory's"},
    {.name = NULL},
};

/* ---- Entries and nodes ----------------------------------------------------------- */

static VjSlice key_of(const Entry *e)
{
    return vj_slice(e->bytes, e->key_bytes);
}

static VjSlice value_of(const Entry *e)
{
    return vj_slice(e->bytes + e->key_bytes, e->value_bytes);
}

static Entry *entry_new(const VjChange *change, uint64_t version)
{
    Entry *e = g_try_malloc(sizeof *e + change->key.len + change->value.len);

    if (e == NULL) {
        return NULL;
    }
    e->refs = 1;
    e->version = version;
    e->key_bytes = (uint32_t)change->key.len;
    e->value_bytes = (uint32_t)change->value.len;
    memcpy(e->bytes, change->key.data, change->key.len);
    if (change->value.len > 0) {
        memcpy(e->bytes + change->key.len, change->value.data, change->value.len);
    }
    return e;
}

static void entry_unref(Entry *e)
{
    if (g_atomic_int_dec_and_test(&e->refs)) {
        g_free(e);
    }
}

static Node *node_ref(Node *n)
{
    if (n != NULL) {
        g_atomic_int_inc(&n->refs);
    }
    return n;
}

/* As deep as the tree is high. */
static void node_unref(Node *n)
{
    if (n != NULL && g_atomic_int_dec_and_test(&n->refs)) {
        node_unref(n->left);
        node_unref(n->right);
        entry_unref(n->entry);
        g_free(n);
    }
}

/* Takes @e. */
static Node *node_new(Entry *e)
{
    Node *n = g_new0(Node, 1);

    n->refs = 1;
    n->priority = vj_checksum64(e->bytes, e->key_bytes);
    n->entry = e;
    return n;
}

/* @n, or in its place a copy that no other state shares. */
static Node *unshared(Node *n)
{
    Node *copy;

    if (g_atomic_int_get(&n->refs) == 1) {
        return n;
    }
    copy = g_new(Node, 1);
    /* Not its count of references: others change it meanwhile. */
    *copy = (Node){.refs = 1,
                   .priority = n->priority,
                   .entry = n->entry,
                   .left = node_ref(n->left),
                   .right = node_ref(n->right)};
    g_atomic_int_inc(&copy->entry->refs);
    node_unref(n);
    return copy;
}

/* ---- Trees: each of these takes the trees that it is given and returns one --------- */

static Node *tree_put(Node *n, Entry *e, bool *added)
{
    int order;
    Node *child;

    if (n == NULL) {
        *added = true;
        return node_new(e);
    }
    n = unshared(n);
    order = vj_slice_compare(key_of(e), key_of(n->entry));
    if (order == 0) {
        entry_unref(n->entry);
        n->entry = e;
        return n;
    }
    child = order < 0 ? (n->left = tree_put(n->left, e, added))
                      : (n->right = tree_put(n->right, e, added));
    if (child->priority <= n->priority) {
        return n;
    }
    if (order < 0) {
        n->left = child->right;
        child->right = n;
    } else {
        n->right = child->left;
        child->left = n;
    }
    return child;
}

/* All keys of @a are before those of @b. */
static Node *tree_join(Node *a, Node *b)
{
    if (a == NULL || b == NULL) {
        return a != NULL ? a : b;
    }
    if (a->priority > b->priority) {
        a = unshared(a);
        a->right = tree_join(a->right, b);
        return a;
    }
    b = unshared(b);
    b->left = tree_join(a, b->left);
    return b;
}

/* @key is in it. */
static Node *tree_del(Node *n, VjSlice key)
{
    int order = vj_slice_compare(key, key_of(n->entry));
    Node *joined;

    n = unshared(n);
    if (order < 0) {
        n->left = tree_del(n->left, key);
        return n;
    }
    if (order > 0) {
        n->right = tree_del(n->right, key);
        return n;
    }
    joined = tree_join(n->left, n->right);
    n->left = n->right = NULL;
    node_unref(n);
    return joined;
}

/* The first entry behind @from in that direction; with @or_equal, or at it. */
static const Entry *tree_near(const Node *n, VjSlice from, bool forward, bool or_equal)
{
    const Entry *best = NULL;

    while (n != NULL) {
        int order =
            from.len == 0 ? (forward ? -1 : 1) : vj_slice_compare(from, key_of(n->entry));

        if (order == 0 && or_equal) {
            return n->entry;
        }
        if (forward ? order < 0 : order > 0) {
            best = n->entry;
            n = forward ? n->left : n->right;
        } else {
            n = forward ? n->right : n->left;
        }
    }
    return best;
}

static const Entry *tree_find(const Node *n, VjSlice key)
{
    const Entry *e = tree_near(n, key, true, true);

    return e != NULL && vj_slice_compare(key_of(e), key) == 0 ? e : NULL;
}

/* ---- States ---------------------------------------------------------------------- */

static void state_unref(State *s)
{
    if (g_atomic_int_dec_and_test(&s->refs)) {
        for (size_t i = 0; i < VJ_SPACE_COUNT; i++) {
            node_unref(s->roots[i]);
        }
        g_free(s);
    }
}

/* What comes after @old, to be changed. */
static State *state_after(const State *old)
{
    State *s = g_new0(State, 1);

    /* Not its count of references: readers take and drop them meanwhile. */
    s->refs = 1;
    s->version = old->version + 1;
    for (size_t i = 0; i < VJ_SPACE_COUNT; i++) {
        s->roots[i] = node_ref(old->roots[i]);
        s->counts[i] = old->counts[i];
    }
    return s;
}

static int state_change(State *s, const VjChange *change)
{
    Node **root = &s->roots[change->space];
    bool added = false;
    Entry *e;

    if (change->is_delete) {
        if (tree_find(*root, change->key) != NULL) {
            *root = tree_del(*root, change->key);
            s->counts[change->space]--;
        }
        return 0;
    }
    e = entry_new(change, s->version);
    if (e == NULL) {
        return -ENOMEM;
    }
    *root = tree_put(*root, e, &added);
    s->counts[change->space] += added;
    return 0;
}

/* NULL where @wait is not set and the watchers are being notified. */
static State *state_take(Keys *keys, bool wait)
{
    State *s = NULL;

    vj_mutex_lock(&keys->lock);
    while (wait && keys->is_notifying) {
        vj_cond_wait(&keys->applied, &keys->lock);
    }
    if (!keys->is_notifying) {
        s = keys->now;
        g_atomic_int_inc(&s->refs);
    }
    vj_mutex_unlock(&keys->lock);
    return s;
}

static VjItem item_of(VjSpace space, VjSlice key, const Entry *e)
{
    VjItem item = {.space = space, .key = key};

    if (e != NULL) {
        item.value = value_of(e);
        item.version = e->version;
    }
    return item;
}

/* ---- Keys that sessions share ------------------------------------------------------ */

static Keys *keys_new(const char *name)
{
    struct timespec now = vj_clock_real();
    Keys *keys = g_new0(Keys, 1);

    keys->clock_ahead_us =
        (int64_t)now.tv_sec * 1000 * 1000 + now.tv_nsec / 1000 - vj_clock_mono_us();
    keys->refs = 1;
    keys->name = g_strdup(name);
    keys->now = g_new0(State, 1);
    keys->now->refs = 1;
    vj_mutex_init(&keys->lock, VJ_RANK_META_ENGINE, "meta memory");
    vj_cond_init(&keys->applied);
    return keys;
}

static void keys_unref(gpointer opaque)
{
    Keys *keys = opaque;

    if (g_atomic_int_dec_and_test(&keys->refs)) {
        g_assert(!keys->is_applying && keys->watchers == NULL);
        state_unref(keys->now);
        vj_cond_clear(&keys->applied);
        vj_mutex_clear(&keys->lock);
        g_free(keys->name);
        g_free(keys);
    }
}

/* Those of @name, with @create empty ones in their place; NULL: there are none. */
static Keys *keys_find(const char *name, bool create)
{
    Keys *keys;

    vj_mutex_lock(&registry_lock);
    if (registry == NULL) {
        registry = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, keys_unref);
    }
    if (create) {
        keys = keys_new(name);
        g_hash_table_replace(registry, keys->name, keys);
    } else {
        keys = g_hash_table_lookup(registry, name);
    }
    if (keys != NULL) {
        g_atomic_int_inc(&keys->refs);
    }
    vj_mutex_unlock(&registry_lock);
    return keys;
}

static char *name_of(const VjMetaPlace *place, const VjOpts *opts)
{
    const char *name = vj_opts_string(opts, "name");
    struct stat st;

    if (name != NULL) {
        return g_strdup_printf("name %s", name);
    }
    if (place->dir_fd >= 0 && fstat(place->dir_fd, &st) == 0) {
        return g_strdup_printf("directory %" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT,
                               (uint64_t)st.st_dev, (uint64_t)st.st_ino);
    }
    return NULL;
}

/* ---- Members --------------------------------------------------------------------- */

static bool memory_open(VjEngine *e, const VjMetaPlace *place, const VjOpts *opts,
                        GError **error)
{
    Memory *m = (Memory *)e;
    g_autofree char *name = name_of(place, opts);

    m->read_only = place->read_only;
    if (name != NULL) {
        m->keys = keys_find(name, place->create);
    } else if (place->create) {
        m->keys = keys_new(NULL);
    }
    return m->keys != NULL ||
           vj_error_set(error, ENOENT, "this process has no such metadata in its memory");
}

static int memory_close(VjEngine *e, bool in_order)
{
    (void)in_order;
    g_assert(((Memory *)e)->changed == NULL);
    keys_unref(((Memory *)e)->keys);
    return 0;
}

static int memory_get_many(VjEngine *e, const VjKey *keys, size_t count, VjItems *out,
                           int64_t deadline_us)
{
    State *s = state_take(((Memory *)e)->keys, true);
    int rc = 0;

    (void)deadline_us;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const VjKey *k = &keys[i];
        VjItem item = item_of(k->space, k->key, tree_find(s->roots[k->space], k->key));

        rc = vj_items_add(out, &item);
    }
    state_unref(s);
    return rc;
}

static int memory_scan(VjEngine *e, const VjRange *range, size_t limit, VjItems *out,
                       bool *more, int64_t deadline_us)
{
    State *s = state_take(((Memory *)e)->keys, true);
    VjSlice at = range->from;
    int rc = 0;

    (void)deadline_us;
    for (size_t i = 0; rc == 0; i++) {
        const Entry *next =
            tree_near(s->roots[range->space], at, !range->backward, false);
        VjItem item;

        if (next == NULL || vj_range_ends(range, key_of(next))) {
            break;
        }
        if (i == limit) {
            *more = true;
            break;
        }
        at = key_of(next);
        item = item_of(range->space, at, next);
        rc = vj_items_add(out, &item);
    }
    state_unref(s);
    return rc;
}

static const Entry *entry_at(const State *s, const VjKey *key)
{
    return tree_find(s->roots[key->space], key->key);
}

static bool holds(const State *s, const VjCheck *check)
{
    const Entry *e = entry_at(s, &check->key);

    return (e != NULL ? e->version : 0) == check->version;
}

static int add_fresh(const State *s, const VjBatch *batch, VjItems *fresh)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < batch->check_count; i++) {
        const VjKey *key = &batch->checks[i].key;
        VjItem item = item_of(key->space, key->key, entry_at(s, key));

        rc = vj_items_add(fresh, &item);
    }
    return rc == 0 ? -EAGAIN : rc;
}

static int check_all(const State *s, const VjBatch *batch, VjItems *fresh)
{
    if (batch->fence != NULL && !holds(s, batch->fence)) {
        return -ESTALE;
    }
    for (size_t i = 0; i < batch->check_count; i++) {
        if (!holds(s, &batch->checks[i])) {
            return add_fresh(s, batch, fresh);
        }
    }
    return 0;
}

/* What @batch makes of @now, which no thread replaces meanwhile. */
static int make_next(const State *now, const VjBatch *batch, VjItems *fresh, State **out)
{
    const void *at = NULL;
    VjChange change;
    int rc = check_all(now, batch, fresh);

    *out = NULL;
    if (rc < 0) {
        return rc;
    }
    *out = state_after(now);
    while (rc == 0 && batch->next(batch, &at, &change)) {
        rc = state_change(*out, &change);
    }
    if (rc < 0) {
        state_unref(*out);
        *out = NULL;
    }
    return rc;
}

static void notify(const Memory *to, const Memory *from, const VjBatch *batch)
{
    const void *at = NULL;
    VjChange change;

    while (batch->next(batch, &at, &change)) {
        VjKey key = {.space = change.space, .key = change.key};

        to->changed(to->opaque, &key, to == from);
    }
}

/* The state becomes @next; the lock is given up while the watchers are notified. */
static void become(Keys *keys, State *next, const Memory *from, const VjBatch *batch)
    VJ_REQUIRES(&keys->lock)
{
    if (keys->watchers != NULL) {
        keys->is_notifying = true;
        vj_mutex_unlock(&keys->lock);
        for (const Memory *w = keys->watchers; w != NULL; w = w->next_watcher) {
            notify(w, from, batch);
        }
        vj_mutex_lock(&keys->lock);
        keys->is_notifying = false;
    }
    keys->now = next;
    if (batch->version != NULL) {
        *batch->version = next->version;
    }
}

static int begin_apply(Keys *keys, int64_t deadline_us) VJ_REQUIRES(&keys->lock)
{
    while (keys->is_applying) {
        if (deadline_us == VJ_NO_DEADLINE) {
            vj_cond_wait(&keys->applied, &keys->lock);
        } else if (!vj_cond_wait_until(&keys->applied, &keys->lock, deadline_us)) {
            return -ETIMEDOUT;
        }
    }
    keys->is_applying = true;
    return 0;
}

static int memory_apply(VjEngine *e, const VjBatch *batch, VjItems *fresh,
                        int64_t deadline_us)
{
    Keys *keys = ((Memory *)e)->keys;
    State *now, *next;
    int rc;

    if (((Memory *)e)->read_only) {
        return -EROFS;
    }
    vj_mutex_lock(&keys->lock);
    rc = begin_apply(keys, deadline_us);
    now = keys->now;
    vj_mutex_unlock(&keys->lock);
    if (rc < 0) {
        return rc;
    }
    rc = make_next(now, batch, fresh, &next);
    vj_mutex_lock(&keys->lock);
    g_assert(keys->now == now);
    if (rc == 0) {
        become(keys, next, (Memory *)e, batch);
    }
    keys->is_applying = false;
    vj_cond_broadcast(&keys->applied);
    vj_mutex_unlock(&keys->lock);
    if (rc == 0) {
        state_unref(now);
    }
    return rc;
}

static int memory_watch(VjEngine *e, VjEngineWatch *changed, void *opaque,
                        bool *is_prompt)
{
    Memory *m = (Memory *)e, **at;

    *is_prompt = true;
    vj_mutex_lock(&m->keys->lock);
    while (m->keys->is_notifying) {
        vj_cond_wait(&m->keys->applied, &m->keys->lock);
    }
    for (at = &m->keys->watchers; *at != NULL && *at != m;) {
        at = &(*at)->next_watcher;
    }
    if (*at == NULL && changed != NULL) {
        m->next_watcher = NULL;
        *at = m;
    } else if (*at != NULL && changed == NULL) {
        *at = m->next_watcher;
    }
    m->changed = changed;
    m->opaque = opaque;
    vj_mutex_unlock(&m->keys->lock);
    return 0;
}

static int64_t memory_clock_us(VjEngine *e, int64_t deadline_us)
{
    (void)deadline_us;
    return vj_clock_mono_us() +
           __atomic_load_n(&((Memory *)e)->keys->clock_ahead_us, __ATOMIC_RELAXED);
}

void vj_memory_clock_advance_for_test(VjEngine *e, int64_t us)
{
    while (e->next != NULL) {
        e = e->next;
    }
    g_assert(e->ops->clock_us == memory_clock_us); /* a test may have changed its flags */
    __atomic_add_fetch(&((Memory *)e)->keys->clock_ahead_us, us, __ATOMIC_RELAXED);
}

static int memory_count(VjEngine *e, VjSpace space, uint64_t *out)
{
    State *s = state_take(((Memory *)e)->keys, true);

    *out = s->counts[space];
    state_unref(s);
    return 0;
}

/* ---- Snapshots ------------------------------------------------------------------- */

static int memory_snapshot_new(VjEngine *e, VjEngineSnapshot **out)
{
    MemorySnapshot *s = g_try_new0(MemorySnapshot, 1);

    *out = NULL;
    if (s == NULL) {
        return -ENOMEM;
    }
    s->base.engine = e;
    *out = &s->base;
    return 0;
}

static int memory_snapshot_prepare(VjEngineSnapshot *s)
{
    Keys *keys = ((Memory *)s->engine)->keys;

    g_assert(((MemorySnapshot *)s)->state == NULL);
    vj_mutex_lock(&keys->lock);
    while (keys->is_notifying) {
        vj_cond_wait(&keys->applied, &keys->lock);
    }
    vj_mutex_unlock(&keys->lock);
    return 0;
}

static int memory_snapshot_take(VjEngineSnapshot *s)
{
    MemorySnapshot *ms = (MemorySnapshot *)s;

    g_assert(ms->state == NULL);
    ms->state = state_take(((Memory *)s->engine)->keys, false);
    return ms->state != NULL ? 0 : -EAGAIN;
}

static void memory_snapshot_release(VjEngineSnapshot *s)
{
    g_clear_pointer(&((MemorySnapshot *)s)->state, state_unref);
}

static void memory_snapshot_free(VjEngineSnapshot *s)
{
    g_assert(((MemorySnapshot *)s)->state == NULL);
    g_free(s);
}

static int memory_snapshot_get(VjEngineSnapshot *s, VjSpace space, VjSlice key,
                               VjSlice *value, uint64_t *version)
{
    const Entry *e = tree_find(((MemorySnapshot *)s)->state->roots[space], key);

    if (e == NULL) {
        return -ENOENT;
    }
    *value = value_of(e);
    if (version != NULL) {
        *version = e->version;
    }
    return 0;
}

static int memory_snapshot_near(VjEngineSnapshot *s, VjSpace space, VjSlice from,
                                bool forward, VjSlice *key, VjSlice *value,
                                uint64_t *version)
{
    const State *state = ((MemorySnapshot *)s)->state;
    const Entry *e = tree_near(state->roots[space], from, forward, false);

    if (e == NULL) {
        return -ENOENT;
    }
    *key = key_of(e);
    *value = value_of(e);
    if (version != NULL) {
        *version = e->version;
    }
    return 0;
}

const VjEngineOps vj_engine_memory_ops = {
    .name = "memory",
    .options = memory_options,
    .flags = VJ_ENGINE_FORGETS | VJ_ENGINE_IS_NEAR | VJ_ENGINE_IS_SHAREABLE,
    .instance_size = sizeof(Memory),
    .open = memory_open,
    .close = memory_close,
    .get_many = memory_get_many,
    .scan = memory_scan,
    .apply = memory_apply,
    .watch = memory_watch,
    .clock_us = memory_clock_us,
    .count = memory_count,
    .snapshot_new = memory_snapshot_new,
    .snapshot_prepare = memory_snapshot_prepare,
    .snapshot_take = memory_snapshot_take,
    .snapshot_release = memory_snapshot_release,
    .snapshot_free = memory_snapshot_free,
    .snapshot_get = memory_snapshot_get,
    .snapshot_near = memory_snapshot_near,
};
