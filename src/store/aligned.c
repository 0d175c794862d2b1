/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * aligned.c - all objects in one file of blocks of 4 KiB, for tests of what stands above
 *
 * A small model of a driver for a raw device: buffers, offsets and lengths are multiples
 * of 4 KiB, and where each object lies stands in keys of its own, which the caller
 * commits with the object's record (stage) and which open() reads.  An object whose keys
 * are not committed does not exist after the next open; a caller that forgets them loses
 * data at once.
 *
 * Durability: flush() syncs the file; keys are durable with the caller's commit.  Limits:
 * option size; the objects and a byte for each block of the file are kept in memory.
 *
 * The file, objects/aligned: block 0 holds MAGIC and the volume, the others objects, each
 * in blocks that follow one another.  The driver's keys, 16 bytes, big-endian: id, nonce;
 * the value, 32 bytes, too: first block, bytes, time of the put in microseconds, checksum
 * of key and the 24 bytes before.  The locator: LOC_MAGIC, 4 bytes of zero, the nonce,
 * big-endian.
 *
 * The place of an object that some transaction may name is used again only when the
 * transaction that drops its key is committed: else two keys could name one block after a
 * crash.
 */
#include "store/store-private.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES 4096u
#define FILE_NAME "aligned"
#define MAGIC "varjfs store aligned 1\n"
#define LOC_MAGIC 0x564a414cu /* "VJAL" */
#define KEY_BYTES 16u
#define VALUE_BYTES 32u

G_STATIC_ASSERT(BLOCK_BYTES <= VJ_BUF_ALIGN);

typedef struct Object {
    uint64_t nonce; /* the key */
    uint64_t id;
    uint64_t first_block;
    uint64_t bytes;
    int64_t mtime_us;
    bool is_staged;  /* a transaction has its key */
    bool is_removed; /* and waits for removes_committed */
} Object;

typedef struct AlignedStore {
    VjStore base;
    int fd;
    bool read_only;
    uint64_t block_count;

    VjMutex lock;
    /* guarded by lock: */
    GHashTable *objects; /* &Object.nonce → Object */
    uint8_t *used;       /* by block */
    uint64_t used_count;
    uint64_t next; /* where the search for free blocks goes on */
} AlignedStore;

static uint64_t blocks_of(uint64_t bytes)
{
    return MAX((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES, 1);
}

static VjLoc loc_encode(uint64_t nonce)
{
    VjLoc loc = {0};

    vj_be32_set(loc.bytes, LOC_MAGIC);
    vj_be64_set(loc.bytes + 8, nonce);
    return loc;
}

static bool loc_decode(VjLoc loc, uint64_t *nonce)
{
    *nonce = vj_be64_get(loc.bytes + 8);
    return vj_be32_get(loc.bytes) == LOC_MAGIC && vj_be32_get(loc.bytes + 4) == 0;
}

/* ---- blocks ------------------------------------------------------------------------ */

static void mark_blocks(AlignedStore *a, const Object *object, bool used)
    VJ_REQUIRES(a->lock)
{
    uint64_t count = blocks_of(object->bytes);

    for (uint64_t i = 0; i < count; i++) {
        uint8_t *block = &a->used[object->first_block + i];

        g_assert(*block == !used);
        *block = used;
    }
    a->used_count = used ? a->used_count + count : a->used_count - count;
}

static bool is_free(const AlignedStore *a, uint64_t first, uint64_t count)
    VJ_REQUIRES(a->lock)
{
    return first + count <= a->block_count &&
           memchr(a->used + first, 1, count) == NULL; /* each is 0 or 1 */
}

/* False: no blocks that follow one another are free. */
static bool take_blocks(AlignedStore *a, Object *object)
{
    uint64_t count = blocks_of(object->bytes);
    bool found = false;

    vj_mutex_lock(&a->lock);
    for (uint64_t tried = 0; !found && tried < a->block_count; tried++) {
        object->first_block = a->next;
        found = is_free(a, a->next, count);
        a->next = found ? a->next + count : a->next + 1;
        a->next = a->next >= a->block_count ? 1 : a->next;
    }
    if (found) {
        mark_blocks(a, object, true);
    }
    vj_mutex_unlock(&a->lock);
    return found;
}

static void give_blocks(AlignedStore *a, const Object *object)
{
    vj_mutex_lock(&a->lock);
    mark_blocks(a, object, false);
    vj_mutex_unlock(&a->lock);
}

/* ---- keys -------------------------------------------------------------------------- */

static uint64_t key_checksum(const uint8_t *key, const uint8_t *value)
{
    uint8_t both[KEY_BYTES + VALUE_BYTES - 8];

    memcpy(both, key, KEY_BYTES);
    memcpy(both + KEY_BYTES, value, VALUE_BYTES - 8);
    return vj_checksum64(both, sizeof both);
}

static VjStoreChange key_of(const VjPut *put, uint64_t nonce)
{
    VjStoreChange change = {.key_len = KEY_BYTES};

    vj_be64_set(change.key, put->id);
    vj_be64_set(change.key + 8, nonce);
    return change;
}

static void encode_value(const Object *object, VjStoreChange *change)
{
    change->value_len = VALUE_BYTES;
    vj_be64_set(change->value, object->first_block);
    vj_be64_set(change->value + 8, object->bytes);
    vj_be64_set(change->value + 16, (uint64_t)object->mtime_us);
    vj_be64_set(change->value + 24, key_checksum(change->key, change->value));
}

static bool decode_key(const AlignedStore *a, VjSlice key, VjSlice value, Object *out)
{
    if (key.len != KEY_BYTES || value.len != VALUE_BYTES ||
        vj_be64_get(value.data + 24) != key_checksum(key.data, value.data)) {
        return false;
    }
    *out = (Object){.id = vj_be64_get(key.data),
                    .nonce = vj_be64_get(key.data + 8),
                    .first_block = vj_be64_get(value.data),
                    .bytes = vj_be64_get(value.data + 8),
                    .mtime_us = (int64_t)vj_be64_get(value.data + 16),
                    .is_staged = true};
    return out->bytes <= VJ_STORE_OBJECT_MAX && out->first_block > 0 &&
           out->first_block < a->block_count &&
           blocks_of(out->bytes) <= a->block_count - out->first_block;
}

/* False: damaged, or it claims what another has. */
static bool load_key(void *opaque, VjSlice key, VjSlice value)
{
    AlignedStore *a = opaque;
    Object object;
    bool ok = decode_key(a, key, value, &object);

    vj_mutex_lock(&a->lock);
    ok = ok && is_free(a, object.first_block, blocks_of(object.bytes)) &&
         !g_hash_table_contains(a->objects, &object.nonce);
    if (ok) {
        Object *kept = g_memdup2(&object, sizeof object);

        mark_blocks(a, kept, true);
        g_hash_table_insert(a->objects, &kept->nonce, kept);
    } else {
        a->next = 0; /* what load_keys looks at */
    }
    vj_mutex_unlock(&a->lock);
    return ok;
}

static bool load_keys(AlignedStore *a, const VjStorePlace *place, GError **error)
{
    int rc = place->keys != NULL ? place->keys->each(place->keys->from, load_key, a) : 0;
    bool all;

    vj_mutex_lock(&a->lock);
    all = a->next > 0;
    vj_mutex_unlock(&a->lock);
    if (rc == 0 && !all) {
        rc = -EBADMSG;
    }
    return rc == 0 || vj_error_set_errno(error, -rc, "%s: its keys", place->path);
}

/* ---- open and close ---------------------------------------------------------------- */

static bool write_head(AlignedStore *a, const VjStorePlace *place, GError **error)
{
    g_autofree char *head = g_malloc0(BLOCK_BYTES);
    struct iovec iov = {.iov_base = head, .iov_len = BLOCK_BYTES};
    int rc;

    g_snprintf(head, BLOCK_BYTES, MAGIC "%s\n",
               place->volume != NULL ? place->volume : "");
    rc = vj_fd_pwritev_all(a->fd, &iov, 1, 0);
    if (rc == 0 && (fsync(a->fd) < 0 || fsync(place->dir_fd) < 0)) {
        rc = -errno;
    }
    return rc == 0 || vj_error_set_errno(error, -rc, "%s/" FILE_NAME, place->path);
}

static bool read_head(AlignedStore *a, const VjStorePlace *place, GError **error)
{
    g_autofree char *head = g_malloc0(BLOCK_BYTES + 1);
    int rc = vj_fd_pread_all(a->fd, head, BLOCK_BYTES, 0);
    size_t magic_len = strlen(MAGIC);
    char *end;

    if (rc < 0) {
        return vj_error_set_errno(error, -rc, "%s/" FILE_NAME, place->path);
    }
    if (strncmp(head, MAGIC, magic_len) != 0) {
        return vj_error_set(error, EBADMSG, "%s/" FILE_NAME ": no store of this driver",
                            place->path);
    }
    end = strchr(head + magic_len, '\n');
    if (place->volume != NULL &&
        (end == NULL || strlen(place->volume) != (size_t)(end - head) - magic_len ||
         strncmp(head + magic_len, place->volume, strlen(place->volume)) != 0)) {
        return vj_error_set(error, EBADMSG,
                            "%s/" FILE_NAME ": the objects of another volume",
                            place->path);
    }
    return true;
}

static void aligned_close(VjStore *s)
{
    AlignedStore *a = (AlignedStore *)s;

    g_hash_table_unref(a->objects);
    g_free(a->used);
    vj_mutex_clear(&a->lock);
    vj_fd_close(&a->fd);
}

static bool aligned_open(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                         GError **error)
{
    AlignedStore *a = (AlignedStore *)s;
    int flags = place->read_only ? O_RDONLY
                : place->create  ? O_RDWR | O_CREAT | O_EXCL
                                 : O_RDWR;
    bool ok;

    a->fd = openat(place->dir_fd, FILE_NAME, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (a->fd < 0) {
        return vj_error_set_errno(error, errno, "%s/" FILE_NAME, place->path);
    }
    a->read_only = place->read_only;
    a->block_count = vj_opts_number(opts, "size") / BLOCK_BYTES;
    a->objects = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    a->used = g_malloc0(a->block_count);
    a->used[0] = 1;
    a->used_count = 1;
    a->next = 1;
    vj_mutex_init(&a->lock, VJ_RANK_STORE, "store.aligned");
    ok = (place->create ? write_head(a, place, error) : read_head(a, place, error)) &&
         load_keys(a, place, error);
    if (!ok) {
        aligned_close(s);
    }
    return ok;
}

/* ---- objects ----------------------------------------------------------------------- */

static int64_t now_us(void)
{
    struct timespec now = vj_clock_real();

    return (int64_t)now.tv_sec * G_USEC_PER_SEC + now.tv_nsec / 1000;
}

/* The object of @id and @nonce, or NULL. */
static Object *find(AlignedStore *a, uint64_t id, uint64_t nonce) VJ_REQUIRES(a->lock)
{
    Object *object = g_hash_table_lookup(a->objects, &nonce);

    return object != NULL && object->id == id ? object : NULL;
}

static int aligned_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                       VjPut *out)
{
    AlignedStore *a = (AlignedStore *)s;
    Object object = {.id = id, .bytes = vj_store_iov_bytes(iov, iov_count)};
    g_autofree struct iovec *rounded = NULL;
    Object *kept;
    int rc;

    if (a->read_only) {
        return -EROFS;
    }
    if (!take_blocks(a, &object)) {
        return -ENOSPC;
    }
    rounded = g_memdup2(iov, sizeof *iov * (size_t)iov_count);
    if (object.bytes > 0) {
        rounded[iov_count - 1].iov_len =
            (iov[iov_count - 1].iov_len + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    }
    rc = vj_fd_pwritev_all(a->fd, rounded, iov_count, object.first_block * BLOCK_BYTES);
    if (rc < 0) {
        give_blocks(a, &object);
        return rc == -ENOSPC || rc == -EDQUOT ? rc : -EIO;
    }
    object.nonce = vj_random_u64();
    object.mtime_us = now_us();
    kept = g_memdup2(&object, sizeof object);
    vj_mutex_lock(&a->lock);
    g_hash_table_insert(a->objects, &kept->nonce, kept);
    vj_mutex_unlock(&a->lock);
    *out =
        (VjPut){.id = id, .loc = loc_encode(object.nonce), .stored_bytes = object.bytes};
    return 0;
}

static int aligned_get(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                       size_t len)
{
    AlignedStore *a = (AlignedStore *)s;
    Object object = {.id = 0};
    const Object *found;
    uint64_t nonce = 0;
    int rc;

    if (!loc_decode(loc, &nonce)) {
        return -EBADMSG;
    }
    vj_mutex_lock(&a->lock);
    found = find(a, id, nonce);
    if (found != NULL && !found->is_removed) {
        object = *found;
    } else {
        found = NULL;
    }
    vj_mutex_unlock(&a->lock);
    if (found == NULL) {
        return -ENOENT;
    }
    if (offset > object.bytes || len > object.bytes - offset) {
        return -EBADMSG;
    }
    rc = vj_fd_pread_all(a->fd, dst, (len + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES,
                         object.first_block * BLOCK_BYTES + offset);
    return rc == 0 || rc == -EBADMSG ? rc : -EIO;
}

static int aligned_remove(VjStore *s, uint64_t id, VjLoc loc)
{
    AlignedStore *a = (AlignedStore *)s;
    uint64_t nonce = 0;
    Object *object;

    if (a->read_only) {
        return -EROFS;
    }
    if (!loc_decode(loc, &nonce)) {
        return -EBADMSG;
    }
    vj_mutex_lock(&a->lock);
    object = find(a, id, nonce);
    if (object != NULL && object->is_staged) {
        object->is_removed = true;
    } else if (object != NULL) {
        mark_blocks(a, object, false);
        g_hash_table_remove(a->objects, &nonce);
    }
    vj_mutex_unlock(&a->lock);
    return 0;
}

static int aligned_flush(VjStore *s)
{
    AlignedStore *a = (AlignedStore *)s;

    return a->read_only || fdatasync(a->fd) == 0 ? 0 : -EIO;
}

static int aligned_stage(VjStore *s, const VjPut *added, size_t added_count,
                         const VjPut *removed, size_t removed_count, GArray *changes)
{
    AlignedStore *a = (AlignedStore *)s;
    uint64_t nonce = 0;

    for (size_t i = 0; i < removed_count; i++) {
        if (loc_decode(removed[i].loc, &nonce)) {
            VjStoreChange change = key_of(&removed[i], nonce);

            g_array_append_val(changes, change);
        }
    }
    for (size_t i = 0; i < added_count; i++) {
        bool is_known = loc_decode(added[i].loc, &nonce);
        VjStoreChange change = key_of(&added[i], nonce);
        Object *object;

        vj_mutex_lock(&a->lock);
        object = is_known ? find(a, added[i].id, nonce) : NULL;
        if (object != NULL) {
            object->is_staged = true;
            encode_value(object, &change);
        }
        vj_mutex_unlock(&a->lock);
        g_assert(object != NULL && !object->is_removed);
        g_array_append_val(changes, change);
    }
    return 0;
}

static void aligned_removes_committed(VjStore *s, const VjPut *removed,
                                      size_t removed_count)
{
    AlignedStore *a = (AlignedStore *)s;
    uint64_t nonce = 0;

    for (size_t i = 0; i < removed_count; i++) {
        Object *object;

        if (!loc_decode(removed[i].loc, &nonce)) {
            continue;
        }
        vj_mutex_lock(&a->lock);
        object = find(a, removed[i].id, nonce);
        if (object != NULL) {
            g_assert(object->is_removed);
            mark_blocks(a, object, false);
            g_hash_table_remove(a->objects, &nonce);
        }
        vj_mutex_unlock(&a->lock);
    }
}

static int aligned_each(VjStore *s, uint64_t first_id, uint64_t last_id,
                        VjStoreVisit *visit, void *opaque)
{
    AlignedStore *a = (AlignedStore *)s;
    g_autoptr(GArray) seen = g_array_new(FALSE, FALSE, sizeof(Object));
    GHashTableIter iter;
    gpointer value = NULL;

    /* Copies the list first: the visitor may call the store. */
    vj_mutex_lock(&a->lock);
    g_hash_table_iter_init(&iter, a->objects);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const Object *object = value;

        if (object->id >= first_id && object->id <= last_id && !object->is_removed) {
            g_array_append_vals(seen, object, 1);
        }
    }
    vj_mutex_unlock(&a->lock);
    for (guint i = 0; i < seen->len; i++) {
        const Object *object = &g_array_index(seen, Object, i);
        VjPut put = {.id = object->id,
                     .loc = loc_encode(object->nonce),
                     .stored_bytes = object->bytes};

        if (!visit(opaque, &put, object->mtime_us)) {
            break;
        }
    }
    return 0;
}

static int aligned_space(VjStore *s, VjStoreSpace *out)
{
    AlignedStore *a = (AlignedStore *)s;
    uint64_t free_bytes;

    vj_mutex_lock(&a->lock);
    free_bytes = (a->block_count - a->used_count) * BLOCK_BYTES;
    vj_mutex_unlock(&a->lock);
    *out = (VjStoreSpace){.total_bytes = a->block_count * BLOCK_BYTES,
                          .free_bytes = free_bytes,
                          .available_bytes = free_bytes,
                          .available_objects = free_bytes / BLOCK_BYTES};
    return 0;
}

static const VjOptSpec aligned_options[] = {
    {.name = "size",
     .type = VJ_OPT_SIZE,
     .fallback = "1G",
     .min = 2 * BLOCK_BYTES,
     .max = (uint64_t)1 << 40,
     .help = "bytes of the file at most"},
    {.name = NULL},
};

const VjStoreOps vj_store_aligned_ops = {
    .name = "aligned",
    .options = aligned_options,
    .instance_size = sizeof(AlignedStore),
    .needs = VJ_NEEDS_FILES,
    .align_bytes = BLOCK_BYTES,
    .open = aligned_open,
    .close = aligned_close,
    .put = aligned_put,
    .get = aligned_get,
    .remove = aligned_remove,
    .flush = aligned_flush,
    .stage = aligned_stage,
    .removes_committed = aligned_removes_committed,
    .each = aligned_each,
    .space = aligned_space,
};
