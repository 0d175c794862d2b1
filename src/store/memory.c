/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * memory.c - objects in memory, for tests and measurements of what stands above
 *
 * Durability: none; closing the store, or the end of the process, loses everything.  With
 * name= the objects stay until the process ends, and each store that is opened under that
 * name has them, also at the same time.  Limits: the bytes of all objects together stay
 * below the option size.
 *
 * Objects are found by their id and the number in their locator, which put() takes at
 * random.  An object that is being read has a reference, so remove() need not wait.
 */
#include "store/store-private.h"

#define LOC_MAGIC 0x564a4d31u /* "VJM1" */

typedef struct Object {
    uint64_t number, id; /* the key */
    int64_t mtime_us;
    GBytes *bytes;
} Object;

/* What the stores of one name share. */
typedef struct Objects {
    gint refs;  /* atomic */
    char *name; /* NULL: no other store finds it */
    uint64_t size_bytes;

    VjMutex lock;
    /* guarded by lock: */
    GHashTable *table; /* set of Object */
    uint64_t used_bytes;
} Objects;

typedef struct MemoryStore {
    VjStore base;
    bool read_only;
    Objects *objects; /* a reference */
} MemoryStore;

/* All that have a name, until the process ends. */
static VjMutex registry_lock = VJ_MUTEX_INIT(VJ_RANK_STORE, "store.memory.names");
static GHashTable *registry; /* name → Objects; guarded by registry_lock */

static guint object_hash(gconstpointer opaque)
{
    const Object *object = opaque;
    uint64_t mixed = object->number ^ object->id * 0x9e3779b97f4a7c15u;

    return (guint)(mixed ^ mixed >> 32);
}

static gboolean object_equal(gconstpointer a, gconstpointer b)
{
    const Object *x = a, *y = b;

    return x->number == y->number && x->id == y->id;
}

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

static Objects *objects_new(const char *name, uint64_t size_bytes)
{
    Objects *o = g_new0(Objects, 1);

    o->refs = 1;
    o->name = g_strdup(name);
    o->size_bytes = size_bytes;
    o->table = g_hash_table_new_full(object_hash, object_equal, object_free, NULL);
    vj_mutex_init(&o->lock, VJ_RANK_STORE, "store.memory");
    return o;
}

static void objects_unref(gpointer opaque)
{
    Objects *o = opaque;

    if (g_atomic_int_dec_and_test(&o->refs)) {
        g_hash_table_unref(o->table);
        vj_mutex_clear(&o->lock);
        g_free(o->name);
        g_free(o);
    }
}

/* Those of @name, with @create empty ones in their place; NULL: there are none. */
static Objects *objects_find(const char *name, bool create, uint64_t size_bytes)
{
    Objects *o, *old = NULL;

    vj_mutex_lock(&registry_lock);
    if (registry == NULL) {
        registry = g_hash_table_new(g_str_hash, g_str_equal);
    }
    o = g_hash_table_lookup(registry, name);
    if (create) {
        old = o;
        o = objects_new(name, size_bytes);
        g_hash_table_replace(registry, o->name, o);
    }
    if (o != NULL) {
        g_atomic_int_inc(&o->refs);
    }
    vj_mutex_unlock(&registry_lock);
    if (old != NULL) {
        objects_unref(old);
    }
    return o;
}

static bool memory_open(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                        GError **error)
{
    MemoryStore *m = (MemoryStore *)s;
    const char *name = vj_opts_string(opts, "name");
    uint64_t size_bytes = vj_opts_number(opts, "size");

    m->read_only = place->read_only;
    if (name != NULL) {
        m->objects = objects_find(name, place->create, size_bytes);
        return m->objects != NULL ||
               vj_error_set(error, ENOENT, "this process has no objects of the name %s",
                            name);
    }
    if (place->shared) {
        return vj_error_set(error, EINVAL, "objects without name= cannot be shared");
    }
    m->objects = objects_new(NULL, size_bytes);
    return true;
}

static void memory_close(VjStore *s)
{
    objects_unref(((MemoryStore *)s)->objects);
}

static int64_t now_us(void)
{
    struct timespec now = vj_clock_real();

    return (int64_t)now.tv_sec * G_USEC_PER_SEC + now.tv_nsec / 1000;
}

/* The object of @id and @number, or NULL. */
static Object *find(const Objects *o, uint64_t id, uint64_t number) VJ_REQUIRES(o->lock)
{
    Object key = {.id = id, .number = number};

    return g_hash_table_lookup(o->table, &key);
}

/* Owned; NULL when memory is short. */
static Object *object_new(uint64_t id, uint64_t number, const struct iovec *iov,
                          int iov_count)
{
    uint64_t put_bytes = vj_store_iov_bytes(iov, iov_count);
    uint8_t *copy = g_try_malloc(MAX(put_bytes, 1));
    size_t at = 0;
    Object *object;

    if (copy == NULL) {
        return NULL;
    }
    for (int i = 0; i < iov_count; i++) {
        if (iov[i].iov_len > 0) {
            memcpy(copy + at, iov[i].iov_base, iov[i].iov_len);
            at += iov[i].iov_len;
        }
    }
    object = g_new(Object, 1);
    *object = (Object){.number = number,
                       .id = id,
                       .mtime_us = now_us(),
                       .bytes = g_bytes_new_take(copy, put_bytes)};
    return object;
}

static int memory_put_as(VjStore *s, uint64_t id, uint64_t number,
                         const struct iovec *iov, int iov_count, VjPut *out)
{
    Objects *o = ((MemoryStore *)s)->objects;
    uint64_t put_bytes = vj_store_iov_bytes(iov, iov_count), old_bytes;
    Object *object, *old;

    if (((MemoryStore *)s)->read_only) {
        return -EROFS;
    }
    object = object_new(id, number, iov, iov_count);
    if (object == NULL) {
        return -ENOSPC;
    }
    vj_mutex_lock(&o->lock);
    old = find(o, id, number);
    old_bytes = old != NULL ? g_bytes_get_size(old->bytes) : 0;
    g_assert(o->used_bytes >= old_bytes);
    if (put_bytes > o->size_bytes - (o->used_bytes - old_bytes)) {
        vj_mutex_unlock(&o->lock);
        object_free(object);
        return -ENOSPC;
    }
    o->used_bytes += put_bytes - old_bytes;
    g_hash_table_add(o->table, object);
    vj_mutex_unlock(&o->lock);
    *out = (VjPut){.id = id, .loc = loc_encode(number), .stored_bytes = put_bytes};
    return 0;
}

static int memory_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                      VjPut *out)
{
    return memory_put_as(s, id, vj_random_u64(), iov, iov_count, out);
}

static VjLoc memory_loc_of_nonce(VjStore *s, uint64_t nonce)
{
    (void)s;
    return loc_encode(nonce);
}

static bool memory_nonce_of_loc(VjStore *s, VjLoc loc, uint64_t *nonce)
{
    (void)s;
    return loc_decode(loc, nonce);
}

static int memory_length(VjStore *s, uint64_t id, VjLoc loc, uint64_t *stored_bytes)
{
    Objects *o = ((MemoryStore *)s)->objects;
    const Object *object;
    uint64_t number;

    if (!loc_decode(loc, &number)) {
        return -EBADMSG;
    }
    vj_mutex_lock(&o->lock);
    object = find(o, id, number);
    if (object != NULL) {
        *stored_bytes = g_bytes_get_size(object->bytes);
    }
    vj_mutex_unlock(&o->lock);
    return object != NULL ? 0 : -ENOENT;
}

static int memory_get(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                      size_t len)
{
    Objects *o = ((MemoryStore *)s)->objects;
    g_autoptr(GBytes) bytes = NULL;
    const uint8_t *data;
    uint64_t number = 0;
    Object *object;
    size_t object_bytes = 0;

    if (!loc_decode(loc, &number)) {
        return -EBADMSG;
    }
    vj_mutex_lock(&o->lock);
    object = find(o, id, number);
    if (object != NULL) {
        bytes = g_bytes_ref(object->bytes);
    }
    vj_mutex_unlock(&o->lock);
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
    Objects *o = ((MemoryStore *)s)->objects;
    uint64_t number = 0;
    Object *object;

    if (((MemoryStore *)s)->read_only) {
        return -EROFS;
    }
    if (!loc_decode(loc, &number)) {
        return -EBADMSG;
    }
    vj_mutex_lock(&o->lock);
    object = find(o, id, number);
    if (object != NULL) {
        g_assert(o->used_bytes >= g_bytes_get_size(object->bytes));
        o->used_bytes -= g_bytes_get_size(object->bytes);
        g_hash_table_remove(o->table, object);
    }
    vj_mutex_unlock(&o->lock);
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
    Objects *o = ((MemoryStore *)s)->objects;
    g_autoptr(GArray) seen = g_array_new(FALSE, FALSE, sizeof(Seen));
    GHashTableIter iter;
    gpointer value = NULL;

    vj_mutex_lock(&o->lock);
    g_hash_table_iter_init(&iter, o->table);
    while (g_hash_table_iter_next(&iter, &value, NULL)) {
        const Object *object = value;
        Seen one = {.put = {.id = object->id,
                            .loc = loc_encode(object->number),
                            .stored_bytes = g_bytes_get_size(object->bytes)},
                    .mtime_us = object->mtime_us};

        if (object->id >= first_id && object->id <= last_id) {
            g_array_append_val(seen, one);
        }
    }
    vj_mutex_unlock(&o->lock);
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
    Objects *o = ((MemoryStore *)s)->objects;

    vj_mutex_lock(&o->lock);
    g_assert(o->used_bytes <= o->size_bytes);
    *out = (VjStoreSpace){.total_bytes = o->size_bytes,
                          .free_bytes = o->size_bytes - o->used_bytes,
                          .available_bytes = o->size_bytes - o->used_bytes,
                          .available_objects = UINT64_MAX};
    vj_mutex_unlock(&o->lock);
    return 0;
}

static const VjOptSpec memory_options[] = {
    {.name = "size",
     .type = VJ_OPT_SIZE,
     .fallback = "1G",
     .min = 1,
     .max = (uint64_t)1 << 50,
     .help = "most bytes of all objects together"},
    {.name = "name",
     .type = VJ_OPT_STRING,
     .help = "the objects of this name, which stay until the process ends; default: "
             "objects of this store alone"},
    {.name = NULL},
};

const VjStoreOps vj_store_memory_ops = {
    .name = "memory",
    .options = memory_options,
    .instance_size = sizeof(MemoryStore),
    .align_bytes = 1,
    .is_shareable = true,
    .open = memory_open,
    .close = memory_close,
    .put = memory_put,
    .put_as = memory_put_as,
    .loc_of_nonce = memory_loc_of_nonce,
    .nonce_of_loc = memory_nonce_of_loc,
    .length = memory_length,
    .get = memory_get,
    .remove = memory_remove,
    .flush = memory_flush,
    .each = memory_each,
    .space = memory_space,
};
