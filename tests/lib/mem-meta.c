/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mem-meta.c - see mem-meta.h
 *
 * A GTree of GBytes per space, changed in place; a write transaction remembers the value
 * that each put and del replaced and abort puts them back in reverse order.
 */
#include "mem-meta.h"

typedef struct Undo {
    VjSpace space;
    GBytes *key;
    GBytes *value; /* NULL: there was none */
} Undo;

typedef struct MemMeta {
    VjMeta base;
    GTree *spaces[VJ_SPACE_COUNT];
    VjMetaStats counts;
    uint64_t fail_in; /* 0: never */
    int fail_with;
    unsigned readers;
    bool writing;
} MemMeta;

typedef struct MemTxn {
    VjTxn base;
    GArray *undo;      /* Undo */
    GPtrArray *copies; /* GBytes that the caller may still look at */
} MemTxn;

static int compare_bytes(const void *a, const void *b, void *opaque)
{
    gsize a_len, b_len;
    const void *a_data = g_bytes_get_data((GBytes *)a, &a_len);
    const void *b_data = g_bytes_get_data((GBytes *)b, &b_len);

    (void)opaque;
    return vj_slice_compare(vj_slice(a_data, a_len), vj_slice(b_data, b_len));
}

static GBytes *bytes_of(VjSlice s)
{
    return g_bytes_new(s.data, s.len);
}

/* A copy that lives until the caller's next change, however long the tree keeps the
 * original. */
static VjSlice copy_for_caller(MemTxn *txn, GBytes *bytes)
{
    gsize len;
    const void *data = g_bytes_get_data(bytes, &len);
    GBytes *copy = g_bytes_new(data, len);

    g_ptr_array_add(txn->copies, copy);
    return vj_slice(g_bytes_get_data(copy, NULL), len);
}

static bool fails(MemMeta *m)
{
    return m->fail_in > 0 && --m->fail_in == 0;
}

static int mem_begin(VjMeta *meta, VjTxn *base)
{
    MemMeta *m = (MemMeta *)meta;
    MemTxn *txn = (MemTxn *)base;
    bool write = base->write;

    g_assert(!m->writing && (!write || m->readers == 0));
    txn->undo = g_array_new(FALSE, FALSE, sizeof(Undo));
    txn->copies = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    m->writing = write;
    m->readers += !write;
    m->counts.writes += write;
    m->counts.reads += !write;
    return 0;
}

static void end(MemTxn *txn)
{
    MemMeta *m = (MemMeta *)txn->base.meta;

    for (unsigned i = 0; i < txn->undo->len; i++) {
        Undo *u = &g_array_index(txn->undo, Undo, i);

        g_bytes_unref(u->key);
        g_clear_pointer(&u->value, g_bytes_unref);
    }
    m->readers -= !txn->base.write;
    m->writing = false;
    g_array_unref(txn->undo);
    g_ptr_array_unref(txn->copies);
}

static int mem_commit(VjTxn *base)
{
    ((MemMeta *)base->meta)->counts.commits++;
    end((MemTxn *)base);
    return 0;
}

static void mem_abort(VjTxn *base)
{
    MemTxn *txn = (MemTxn *)base;
    MemMeta *m = (MemMeta *)base->meta;

    for (unsigned i = txn->undo->len; i-- > 0;) {
        Undo *u = &g_array_index(txn->undo, Undo, i);

        if (u->value != NULL) {
            g_tree_replace(m->spaces[u->space], g_bytes_ref(u->key),
                           g_bytes_ref(u->value));
        } else {
            g_tree_remove(m->spaces[u->space], u->key);
        }
    }
    end(txn);
}

static int mem_get(VjTxn *base, VjSpace space, VjSlice key, VjSlice *value)
{
    MemMeta *m = (MemMeta *)base->meta;
    g_autoptr(GBytes) k = bytes_of(key);
    GBytes *found = g_tree_lookup(m->spaces[space], k);

    m->counts.gets[space]++;
    if (fails(m)) {
        return m->fail_with;
    }
    if (found == NULL) {
        return -ENOENT;
    }
    *value = copy_for_caller((MemTxn *)base, found);
    return 0;
}

static void remember(MemTxn *txn, VjSpace space, GBytes *key)
{
    MemMeta *m = (MemMeta *)txn->base.meta;
    GBytes *old = g_tree_lookup(m->spaces[space], key);
    Undo u = {.space = space,
              .key = g_bytes_ref(key),
              .value = old != NULL ? g_bytes_ref(old) : NULL};

    g_array_append_val(txn->undo, u);
    g_ptr_array_set_size(txn->copies, 0);
}

static int mem_put(VjTxn *base, VjSpace space, VjSlice key, VjSlice value)
{
    MemMeta *m = (MemMeta *)base->meta;
    GBytes *k;

    m->counts.puts[space]++;
    if (fails(m)) {
        return m->fail_with;
    }
    k = bytes_of(key);
    /* The value may be one of these copies: copy it before they go. */
    GBytes *v = bytes_of(value);

    remember((MemTxn *)base, space, k);
    g_tree_replace(m->spaces[space], k, v);
    return 0;
}

static int mem_del(VjTxn *base, VjSpace space, VjSlice key)
{
    MemMeta *m = (MemMeta *)base->meta;
    g_autoptr(GBytes) k = bytes_of(key);

    m->counts.dels[space]++;
    if (fails(m)) {
        return m->fail_with;
    }
    if (g_tree_lookup(m->spaces[space], k) == NULL) {
        return -ENOENT;
    }
    remember((MemTxn *)base, space, k);
    g_tree_remove(m->spaces[space], k);
    return 0;
}

static int give(MemTxn *txn, GTreeNode *node, VjSlice *key, VjSlice *value)
{
    if (node == NULL) {
        return -ENOENT;
    }
    *key = copy_for_caller(txn, g_tree_node_key(node));
    *value = copy_for_caller(txn, g_tree_node_value(node));
    return 0;
}

static int mem_next(VjTxn *base, VjSpace space, VjSlice after, VjSlice *key,
                    VjSlice *value)
{
    MemMeta *m = (MemMeta *)base->meta;
    g_autoptr(GBytes) k = bytes_of(after);

    return give((MemTxn *)base, g_tree_upper_bound(m->spaces[space], k), key, value);
}

static int mem_prev(VjTxn *base, VjSpace space, VjSlice before, VjSlice *key,
                    VjSlice *value)
{
    MemMeta *m = (MemMeta *)base->meta;
    GTree *tree = m->spaces[space];
    g_autoptr(GBytes) k = bytes_of(before);
    GTreeNode *node = before.len > 0 ? g_tree_lower_bound(tree, k) : NULL;

    node = node != NULL ? g_tree_node_previous(node) : g_tree_node_last(tree);
    return give((MemTxn *)base, node, key, value);
}

static int mem_flush(VjMeta *meta)
{
    ((MemMeta *)meta)->counts.flushes++;
    return 0;
}

static int mem_close(VjMeta *meta)
{
    MemMeta *m = (MemMeta *)meta;

    g_assert(!m->writing && m->readers == 0);
    for (unsigned i = 0; i < VJ_SPACE_COUNT; i++) {
        g_tree_unref(m->spaces[i]);
    }
    return 0;
}

static const VjOptSpec no_options[] = {{.name = NULL}};

static const VjMetaOps mem_ops = {
    .name = "mem",
    .options = no_options,
    .instance_size = sizeof(MemMeta),
    .txn_size = sizeof(MemTxn),
    .close = mem_close,
    .begin = mem_begin,
    .commit = mem_commit,
    .abort = mem_abort,
    .flush = mem_flush,
    .get = mem_get,
    .put = mem_put,
    .del = mem_del,
    .next = mem_next,
    .prev = mem_prev,
};

VjMeta *mem_meta_new(void)
{
    MemMeta *m = g_new0(MemMeta, 1);

    m->base.ops = &mem_ops;
    for (unsigned i = 0; i < VJ_SPACE_COUNT; i++) {
        m->spaces[i] = g_tree_new_full(compare_bytes, NULL, (GDestroyNotify)g_bytes_unref,
                                       (GDestroyNotify)g_bytes_unref);
    }
    return &m->base;
}

void mem_meta_counts(VjMeta *m, VjMetaStats *out)
{
    *out = ((MemMeta *)m)->counts;
}

void mem_meta_reset_counts(VjMeta *m)
{
    ((MemMeta *)m)->counts = (VjMetaStats){0};
}

size_t mem_meta_size(VjMeta *m, VjSpace space)
{
    return (size_t)g_tree_nnodes(((MemMeta *)m)->spaces[space]);
}

void mem_meta_fail(VjMeta *m, uint64_t nth, int error)
{
    ((MemMeta *)m)->fail_in = nth;
    ((MemMeta *)m)->fail_with = error;
}

static gboolean add_to_fingerprint(void *key, void *value, void *opaque)
{
    uint64_t *print = opaque;
    gsize len;
    const void *data = g_bytes_get_data(key, &len);

    *print = *print * 31 + vj_checksum64(data, len);
    data = g_bytes_get_data(value, &len);
    *print = *print * 31 + vj_checksum64(data, len);
    return FALSE;
}

uint64_t mem_meta_fingerprint(VjMeta *m, VjSpace space)
{
    uint64_t print = 0;

    g_tree_foreach(((MemMeta *)m)->spaces[space], add_to_fingerprint, &print);
    return print;
}
