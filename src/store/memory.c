/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * memory.c - objects in memory, for tests and measurements of what stands above
 *
 * Durability: none; closing the store, or the end of the process, loses everything.
 * Limits: the bytes of all objects together stay below the option size.
 *
 * Objects are found by the number in their locator, which is never used twice; the id is
 * compared.  An object that is being read has a reference, so remove() need not wait.
 */
#include "store/store-private.h"

#define LOC_MAGIC 0x564a4d31u /* "VJM1" */

typedef struct Object {
    uint64_t number; /* the key */
    uint64_t id;
    int64_t mtime_us;
    GBytes *bytes;
} Object;

typedef struct MemoryStore {
    VjStore base;
    bool read_only;
    uint64_t size_bytes;

    VjMutex lock;
    /* guarded by lock: */
    GHashTable *objects; /* &Object.number → Object */
    uint64_t last_number;
    uint64_t used_bytes;
} MemoryStore;

static void object_free(gpointer opaque)
{
    Object *object = opaque;

    g_bytes_unref(object->bytes);
    g_free(object);
}

static VjLoc loc_encode(uint64_t number)
{
    VjLoc loc = {0};

    vj_be32_set(loc.bytes, LOC_MAGIC);
    vj_be64_set(loc.bytes + 8, number);
    return loc;
}

static bool loc_decode(VjLoc loc, uint64_t *number)
{
    *number = vj_be64_get(loc.bytes + 8);
    return vj_be32_get(loc.bytes) == LOC_MAGIC && vj_be32_get(loc.bytes + 4) == 0;
}

static bool memory_open(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                        GError **error)
{
    MemoryStore *m = (MemoryStore *)s;

    (void)error;
    m->read_only = place->read_only;
    m->size_bytes = vj_opts_number(opts, "size");
    m->objects = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, object_free);
    vj_mutex_init(&m->lock, VJ_RANK_STORE, "store.memory");
    return true;
}

static void memory_close(VjStore *s)
{
    MemoryStore *m = (MemoryStore *)s;

    g_hash_table_unref(m->objects);
    vj_mutex_clear(&m->lock);
}

static int64_t now_us(void)
{
    struct timespec now = vj_clock_real();

    return (int64_t)now.tv_sec * G_USEC_PER_SEC + now.tv_nsec / 1000;
}

static int memory_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                      VjPut *out)
{
    MemoryStore *m = (MemoryStore *)s;
    uint64_t put_bytes = vj_store_iov_bytes(iov, iov_count);
    size_t at = 0;
    uint8_t *copy;
    Object *object;

    if (m->read_only) {
        return -EROFS;
    }
    copy = g_try_malloc(MAX(put_bytes, 1));
    if (copy == NULL) {
        return -ENOSPC;
    }
    for (int i = 0; i < iov_count; i++) {
        if (iov[i].iov_len > 0) {
            memcpy(copy + at, iov[i].iov_base, iov[i].iov_len);
            at += iov[i].iov_len;
        }
    }
    object = g_new(Object, 1);
    object->id = id;
    object->mtime_us = now_us();
    object->bytes = g_bytes_new_take(copy, put_bytes);

    vj_mutex_lock(&m->lock);
    if (put_bytes > m->size_bytes - m->used_bytes) {
        vj_mutex_unlock(&m->lock);
        object_free(object);
        return -ENOSPC;
    }
    object->number = ++m->last_number;
    m->used_bytes += put_bytes;
    g_hash_table_insert(m->objects, &object->number, object);
    *out =
        (VjPut){.id = id, .loc = loc_encode(object->number), .stored_bytes = put_bytes};
    vj_mutex_unlock(&m->lock);
    return 0;
}

static int memory_get(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                      size_t len)
{
    MemoryStore *m = (MemoryStore *)s;
    g_autoptr(GBytes) bytes = NULL;
    const uint8_t *data;
    uint64_t number = 0;
    Object *object;
    size_t object_bytes = 0;

    if (!loc_decode(loc, &number)) {
        return -EBADMSG;
    }
    vj_mutex_lock(&m->lock);
    object = g_hash_table_lookup(m->objects, &number);
    if (object != NULL && object->id == id) {
        bytes = g_bytes_ref(object->bytes);
    }
    vj_mutex_unlock(&m->lock);
    if (bytes == NULL) {
        return -ENOENT;
    }
    data = g_bytes_get_data(bytes, &object_bytes);
    if (offset > object_bytes || len > object_bytes - offset) {
        return -EBADMSG;
    }
    if (len > 0) {
        memcpy(dst, data + offset, len);
    }
    return 0;
}

static int memory_remove(VjStore *s, uint64_t id, VjLoc loc)
{
    MemoryStore *m = (MemoryStore *)s;
    uint64_t number = 0;
    Object *object;

    if (m->read_only) {
        return -EROFS;
    }
    if (!loc_decode(loc, &number)) {
        return -EBADMSG;
    }
    vj_mutex_lock(&m->lock);
    object = g_hash_table_lookup(m->objects, &number);
    if (object != NULL && object->id == id) {
        g_assert(m->used_bytes >= g_bytes_get_size(object->bytes));
        m->used_bytes -= g_bytes_get_size(object->bytes);
        g_hash_table_remove(m->objects, &number);
    }
    vj_mutex_unlock(&m->lock);
    return 0;
}

static int memory_flush(VjStore *s)
{
    (void)s;
    return 0;
}

typedef struct Seen {
    VjPut put;
    int64_t mtime_us;
} Seen;

/* Copies the list first: the visitor may call the store. */
static int memory_each(VjStore *s, uint64_t first_id, uint64_t last_id,
                       VjStoreVisit *visit, void *opaque)
{
    MemoryStore *m = (MemoryStore *)s;
    g_autoptr(GArray) seen = g_array_new(FALSE, FALSE, sizeof(Seen));
    GHashTableIter iter;
    gpointer value = NULL;

    vj_mutex_lock(&m->lock);
    g_hash_table_iter_init(&iter, m->objects);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const Object *object = value;
        Seen one = {.put = {.id = object->id,
                            .loc = loc_encode(object->number),
                            .stored_bytes = g_bytes_get_size(object->bytes)},
                    .mtime_us = object->mtime_us};

        if (object->id >= first_id && object->id <= last_id) {
            g_array_append_val(seen, one);
        }
    }
    vj_mutex_unlock(&m->lock);
    for (guint i = 0; i < seen->len; i++) {
        const Seen *one = &g_array_index(seen, Seen, i);

        if (!visit(opaque, &one->put, one->mtime_us)) {
            break;
        }
    }
    return 0;
}

static int memory_space(VjStore *s, VjStoreSpace *out)
{
    MemoryStore *m = (MemoryStore *)s;

    vj_mutex_lock(&m->lock);
    g_assert(m->used_bytes <= m->size_bytes);
    *out = (VjStoreSpace){.total_bytes = m->size_bytes,
                          .free_bytes = m->size_bytes - m->used_bytes,
                          .available_bytes = m->size_bytes - m->used_bytes,
                          .available_objects = UINT64_MAX};
    vj_mutex_unlock(&m->lock);
    return 0;
}

static const VjOptSpec memory_options[] = {
    {.name = "size",
     .type = VJ_OPT_SIZE,
     .fallback = "1G",
     .min = 1,
     .max = (uint64_t)1 << 50,
     .help = "most bytes of all objects together"},
    {.name = NULL},
};

const VjStoreOps vj_store_memory_ops = {
    .name = "memory",
    .options = memory_options,
    .instance_size = sizeof(MemoryStore),
    .align_bytes = 1,
    .open = memory_open,
    .close = memory_close,
    .put = memory_put,
    .get = memory_get,
    .remove = memory_remove,
    .flush = memory_flush,
    .each = memory_each,
    .space = memory_space,
};
