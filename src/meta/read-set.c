/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * read-set.c - see read-set-private.h
 */
#include "meta/read-set-private.h"

#define BLOCK_BYTES ((size_t)8 << 10)

/* Keys that stand behind @after and not behind @last; without an end where that is
 * empty. */
typedef struct Range {
    VjSpace space;
    VjSlice after, last;
} Range;

/* ---- Memory ---------------------------------------------------------------------- */

static void *take(VjReadSet *r, size_t bytes)
{
    void *taken;

    bytes = (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t);
    if (r->left < bytes) {
        size_t block_bytes = MAX(bytes, BLOCK_BYTES);
        uint8_t *block = r->bytes + block_bytes > VJ_READ_SET_BYTES_MAX
                             ? NULL
                             : g_try_malloc(block_bytes);

        if (block == NULL) {
            return NULL;
        }
        g_ptr_array_add(r->blocks, block);
        r->bytes += block_bytes;
        r->at = block;
        r->left = block_bytes;
    }
    taken = r->at;
    r->at += bytes;
    r->left -= bytes;
    return taken;
}

static int copy_slice(VjReadSet *r, VjSlice from, VjSlice *to)
{
    uint8_t *bytes = from.len == 0 ? NULL : take(r, from.len);

    *to = vj_slice(bytes, from.len);
    if (from.len > 0 && bytes == NULL) {
        return -ENOMEM;
    }
    if (from.len > 0) {
        memcpy(bytes, from.data, from.len);
    }
    return 0;
}

static guint hash(gconstpointer p)
{
    const VjKey *key = &((const VjRead *)p)->key;

    return (guint)vj_checksum64(key->key.data, key->key.len) + (guint)key->space;
}

static gboolean equal(gconstpointer a, gconstpointer b)
{
    const VjKey *one = &((const VjRead *)a)->key, *other = &((const VjRead *)b)->key;

    return one->space == other->space && vj_slice_compare(one->key, other->key) == 0;
}

VjReadSet *vj_read_set_new(void)
{
    VjReadSet *r = g_new0(VjReadSet, 1);

    r->reads = g_hash_table_new(hash, equal);
    r->ranges = g_array_new(FALSE, FALSE, sizeof(Range));
    r->blocks = g_ptr_array_new_with_free_func(g_free);
    return r;
}

void vj_read_set_free(VjReadSet *r)
{
    if (r != NULL) {
        g_hash_table_unref(r->reads);
        g_array_unref(r->ranges);
        g_ptr_array_unref(r->blocks);
        g_free(r);
    }
}

/* One block is kept for the next transaction. */
void vj_read_set_clear(VjReadSet *r)
{
    g_hash_table_remove_all(r->reads);
    g_array_set_size(r->ranges, 0);
    if (r->bytes > BLOCK_BYTES) {
        g_ptr_array_set_size(r->blocks, 0);
    }
    r->at = r->blocks->len > 0 ? g_ptr_array_index(r->blocks, 0) : NULL;
    r->left = r->bytes = r->blocks->len > 0 ? BLOCK_BYTES : 0;
    r->sources = 0;
    r->checked_report = 0;
}

/* ---- Reads ----------------------------------------------------------------------- */

const VjRead *vj_read_set_find(const VjReadSet *r, VjSpace space, VjSlice key)
{
    const VjRead wanted = {.key = {space, key}};

    return g_hash_table_lookup(r->reads, &wanted);
}

int vj_read_set_add(VjReadSet *r, const VjItem *item, bool key_stays)
{
    const VjRead *before = vj_read_set_find(r, item->space, item->key);
    VjRead *read;

    if (before != NULL) {
        return before->version == item->version ? 0 : -EAGAIN;
    }
    read = take(r, sizeof *read);
    if (read == NULL) {
        return -ENOMEM;
    }
    *read = (VjRead){
        .key = {item->space, item->key}, .value = item->value, .version = item->version};
    if (!key_stays && copy_slice(r, item->key, &read->key.key) < 0) {
        return -ENOMEM;
    }
    g_hash_table_add(r->reads, read);
    return 0;
}

/* A walk adds to the range that it added last. */
int vj_read_set_add_range(VjReadSet *r, VjSpace space, VjSlice from, VjSlice to,
                          bool forward)
{
    Range *last =
        r->ranges->len > 0 ? &g_array_index(r->ranges, Range, r->ranges->len - 1) : NULL;
    VjSlice *grows = last == NULL ? NULL : forward ? &last->last : &last->after;
    Range new = {.space = space};
    int rc;

    if (last != NULL && last->space == space && grows->len > 0 &&
        vj_slice_compare(*grows, from) == 0) {
        return copy_slice(r, to, grows);
    }
    rc = copy_slice(r, forward ? from : to, &new.after);
    if (rc == 0) {
        rc = copy_slice(r, forward ? to : from, &new.last);
    }
    if (rc == 0) {
        g_array_append_val(r->ranges, new);
    }
    return rc;
}

bool vj_read_set_has(const VjReadSet *r, const VjKey *key)
{
    if (vj_read_set_find(r, key->space, key->key) != NULL) {
        return true;
    }
    for (guint i = 0; i < r->ranges->len; i++) {
        const Range *range = &g_array_index(r->ranges, Range, i);

        if (range->space == key->space && vj_slice_compare(key->key, range->after) > 0 &&
            (range->last.len == 0 || vj_slice_compare(key->key, range->last) <= 0)) {
            return true;
        }
    }
    return false;
}

VjCheck *vj_read_set_checks(const VjReadSet *r, size_t more, size_t *count)
{
    size_t reads = g_hash_table_size(r->reads);
    VjCheck *checks = g_try_new(VjCheck, reads + more);
    GHashTableIter iter;
    gpointer read;

    *count = 0;
    g_hash_table_iter_init(&iter, r->reads);
    while (checks != NULL && g_hash_table_iter_next(&iter, &read, NULL)) {
        const VjRead *one = read;

        checks[(*count)++] = (VjCheck){.key = one->key, .version = one->version};
    }
    return checks;
}
