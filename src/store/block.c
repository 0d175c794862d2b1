/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * block.c - objects in runs of blocks of 4 KiB on a device, or in one file that grows
 *
 * Where each object stands is in keys of the driver's own (block-format.h), which the
 * caller commits with the object's record and which open() reads: no other index is on
 * the device, and an object whose key is not committed does not exist after the next
 * open.
 *
 * The blocks of an object that some transaction may name are used again only when the
 * transaction that drops its key is committed.  Commits become durable in their order, so
 * after a crash no two keys claim one block.
 *
 * Durability: block-flush.c.  Limits: the device's size, or what a file may have; 40
 * bytes of memory for each object and a bit for each block.
 */
#include "store/block-private.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Of zeroes, at one time. */
#define ERASE_PIECE_BYTES VJ_MIB

/* ---- keys -------------------------------------------------------------------------- */

/* Keys that are too long, which nobody writes, are left. */
static void delete_key(VjBlockStore *b, VjSlice key) VJ_REQUIRES(b->lock)
{
    VjStoreChange change = {.key_len = (uint32_t)key.len};

    if (key.len > 0 && key.len <= sizeof change.key) {
        memcpy(change.key, key.data, key.len);
        g_array_append_val(b->bad_key_changes, change);
    }
}

/* A key that is not as it was written.  True: it is known what it was. */
static bool take_bad_key(VjBlockStore *b, VjSlice key, VjSlice value,
                         VjBlockObject *object) VJ_REQUIRES(b->lock)
{
    bool is_known = vj_block_key_mend(key, value, b->end_block, object) &&
                    vj_block_table_find(&b->objects, object->id, object->nonce) == NULL;
    VjStoreChange change;

    delete_key(b, key);
    if (is_known) {
        vj_block_key_encode(object, &change);
        g_array_append_val(b->bad_key_changes, change);
        b->bad_keys.mended++;
    } else {
        b->bad_keys.lost++;
    }
    return is_known;
}

typedef struct KeyLoad {
    VjBlockStore *store;
    bool has_doubled; /* two keys claim the same blocks */
} KeyLoad;

/* NULL: it is not known what the key said, or the object is there already: which cannot
 * be while all keys were as they were written, as no two are the same. */
static VjBlockEntry *add_loaded(VjBlockStore *b, VjSlice key, VjSlice value,
                                VjBlockObject *out) VJ_REQUIRES(b->lock)
{
    if (!vj_block_key_decode(key, value, b->end_block, out) &&
        !take_bad_key(b, key, value, out)) {
        return NULL;
    }
    return b->bad_keys.mended > 0 &&
                   vj_block_table_find(&b->objects, out->id, out->nonce) != NULL
               ? NULL
               : vj_block_table_add(&b->objects, out);
}

static bool load_key(void *opaque, VjSlice key, VjSlice value)
{
    KeyLoad *load = opaque;
    VjBlockStore *b = load->store;
    VjBlockObject object;
    VjBlockEntry *entry;

    vj_mutex_lock(&b->lock);
    if (vj_block_is_mount_key(key)) {
        if (!vj_block_mounts_decode(value, &b->mounts)) {
            b->mounts = (VjBlockMounts){0}; /* fits a device that was never mounted */
        }
        vj_mutex_unlock(&b->lock);
        return true;
    }
    entry = add_loaded(b, key, value, &object);
    if (entry != NULL) {
        entry->is_staged = true;
        entry->is_written = true;
        load->has_doubled = !vj_block_space_mark(&b->space, object.first_block,
                                                 vj_block_count_of(object.bytes)) ||
                            load->has_doubled;
    }
    vj_mutex_unlock(&b->lock);
    return true;
}

static uint64_t first_block(const VjBlockEntry *entry)
{
    return vj_block_object_of(entry).first_block;
}

static uint64_t end_block(const VjBlockEntry *entry)
{
    VjBlockObject object = vj_block_object_of(entry);

    return object.first_block + vj_block_count_of(object.bytes);
}

static gint by_first_block(gconstpointer a, gconstpointer b)
{
    uint64_t first = first_block(*(VjBlockEntry *const *)a);
    uint64_t second = first_block(*(VjBlockEntry *const *)b);

    return first < second ? -1 : first > second ? 1 : 0;
}

/* All those that share a block with another one. */
static void find_doubled(VjBlockStore *b) VJ_REQUIRES(b->lock)
{
    g_autoptr(GPtrArray) entries = g_ptr_array_new();
    VjBlockEntry *last = NULL; /* of those before, the one that ends last */

    for (uint32_t i = 0; i < b->objects.entry_count; i++) {
        g_ptr_array_add(entries, vj_block_table_at(&b->objects, i));
    }
    g_ptr_array_sort(entries, by_first_block);
    for (guint i = 0; i < entries->len; i++) {
        VjBlockEntry *entry = entries->pdata[i];

        if (last != NULL && first_block(entry) < end_block(last)) {
            last->is_doubled = true;
            entry->is_doubled = true;
        }
        last = last == NULL || end_block(entry) > end_block(last) ? entry : last;
    }
}

static bool load_keys(VjBlockStore *b, const VjStorePlace *place, GError **error)
{
    KeyLoad load = {.store = b};
    int rc =
        place->keys != NULL ? place->keys->each(place->keys->from, load_key, &load) : 0;
    VjStoreBadKeys bad_keys;

    vj_mutex_lock(&b->lock);
    bad_keys = b->bad_keys;
    if (load.has_doubled) {
        find_doubled(b);
    }
    vj_mutex_unlock(&b->lock);
    if (bad_keys.lost + bad_keys.mended > 0) {
        vj_log_error("store block %s: %" G_GUINT64_FORMAT
                     " keys are damaged, and of %" G_GUINT64_FORMAT
                     " it is not known what they said: fsck.varjfs(8)",
                     b->path, bad_keys.lost + bad_keys.mended, bad_keys.lost);
    }
    return rc == 0 || vj_error_set_errno(error, -rc, "%s: its keys", b->path);
}

/*
 * The metadata know of the mount that used the device last.  Else they are a copy, or
 * older ones, and what they call free may have objects by now, and the other way round.
 */
static bool check_mounts(VjBlockStore *b, const VjStorePlace *place, GError **error)
{
    VjBlockMounts mounts;
    uint64_t mount;

    vj_mutex_lock(&b->lock);
    mounts = b->mounts;
    mount = b->super.mount;
    vj_mutex_unlock(&b->lock);
    if (place->keys == NULL || !b->is_named || mount == mounts.last ||
        mount == mounts.next) {
        return true;
    }
    if (place->adopt) {
        vj_log_warn("store block %s: another copy of the metadata has used it since",
                    b->path);
        return true;
    }
    return vj_error_set(error, EBADMSG,
                        "%s: it was used with another copy of these metadata since; use "
                        "that one, or have fsck.varjfs -y look what these have left",
                        b->path);
}

/* The mount before, whose number the device has, and this one, whose number it gets. */
static int block_claim(VjStore *s, GArray *changes)
{
    VjBlockStore *b = (VjBlockStore *)s;
    VjStoreChange change;

    if (!b->is_named) {
        return 0; /* a copy of SOURCE has a copy of the file */
    }
    vj_mutex_lock(&b->lock);
    b->mounts = (VjBlockMounts){.last = b->super.mount, .next = vj_random_u64() | 1};
    vj_block_mounts_encode(&b->mounts, &change);
    vj_mutex_unlock(&b->lock);
    g_array_append_val(changes, change);
    return 0;
}

static int block_claimed(VjStore *s)
{
    VjBlockStore *b = (VjBlockStore *)s;
    uint64_t next;

    vj_mutex_lock(&b->lock);
    next = b->mounts.next;
    vj_mutex_unlock(&b->lock);
    return vj_block_super_claim(b, next);
}

static void block_bad_keys(VjStore *s, GArray *changes, VjStoreBadKeys *out)
{
    VjBlockStore *b = (VjBlockStore *)s;

    vj_mutex_lock(&b->lock);
    *out = b->bad_keys;
    if (changes != NULL && b->bad_key_changes->len > 0) {
        g_array_append_vals(changes, b->bad_key_changes->data, b->bad_key_changes->len);
        g_array_set_size(b->bad_key_changes, 0);
        b->bad_keys = (VjStoreBadKeys){.lost = 0};
    }
    vj_mutex_unlock(&b->lock);
}

/* Which of bad_key_changes sets the key of @removed; the one before it deletes what was
 * read in its place.  False: none. */
static bool find_mended(const VjBlockStore *b, const VjStoreChange *removed, guint *index)
    VJ_REQUIRES(b->lock)
{
    for (guint i = 1; i < b->bad_key_changes->len; i++) {
        const VjStoreChange *c = &g_array_index(b->bad_key_changes, VjStoreChange, i);

        if (c->value_len > 0 && memcmp(c->key, removed->key, removed->key_len) == 0) {
            *index = i;
            return true;
        }
    }
    return false;
}

/* Its key, and that of which it was found out: else it were there again after the next
 * open, and others have its blocks. */
static void stage_removed(VjBlockStore *b, uint64_t id, uint32_t nonce, GArray *changes)
{
    VjStoreChange change;
    guint mended;

    vj_block_key_delete(id, nonce, &change);
    g_array_append_val(changes, change);
    vj_mutex_lock(&b->lock);
    if (find_mended(b, &change, &mended)) {
        g_array_append_vals(
            changes, &g_array_index(b->bad_key_changes, VjStoreChange, mended - 1), 1);
    }
    vj_mutex_unlock(&b->lock);
}

/* The keys of the object are gone, the one that was damaged too. */
static void forget_mended(VjBlockStore *b, uint64_t id, uint32_t nonce)
    VJ_REQUIRES(b->lock)
{
    VjStoreChange change;
    guint mended;

    vj_block_key_delete(id, nonce, &change);
    if (find_mended(b, &change, &mended)) {
        g_array_remove_range(b->bad_key_changes, mended - 1, 2);
        b->bad_keys.mended--;
    }
}

static int block_stage(VjStore *s, const VjPut *added, size_t added_count,
                       const VjPut *removed, size_t removed_count, GArray *changes)
{
    VjBlockStore *b = (VjBlockStore *)s;
    VjStoreChange change;
    uint32_t nonce = 0;

    for (size_t i = 0; i < removed_count; i++) {
        if (vj_block_loc_decode(removed[i].loc, &nonce)) {
            stage_removed(b, removed[i].id, nonce, changes);
        }
    }
    for (size_t i = 0; i < added_count; i++) {
        bool is_known = vj_block_loc_decode(added[i].loc, &nonce);
        VjBlockObject object;
        VjBlockEntry *entry;

        vj_mutex_lock(&b->lock);
        entry = is_known ? vj_block_table_find(&b->objects, added[i].id, nonce) : NULL;
        g_assert(entry != NULL && !entry->is_removed);
        entry->is_staged = true;
        object = vj_block_object_of(entry);
        vj_mutex_unlock(&b->lock);
        vj_block_key_encode(&object, &change);
        g_array_append_val(changes, change);
    }
    return 0;
}

static void block_removes_committed(VjStore *s, const VjPut *removed,
                                    size_t removed_count)
{
    VjBlockStore *b = (VjBlockStore *)s;
    uint32_t nonce = 0;

    for (size_t i = 0; i < removed_count; i++) {
        VjBlockEntry *entry;

        if (!vj_block_loc_decode(removed[i].loc, &nonce)) {
            continue;
        }
        vj_mutex_lock(&b->lock);
        forget_mended(b, removed[i].id, nonce);
        entry = vj_block_table_find(&b->objects, removed[i].id, nonce);
        if (entry != NULL) {
            g_assert(entry->is_removed);
            vj_block_forget(b, entry);
        }
        vj_mutex_unlock(&b->lock);
    }
}

/* ---- objects ----------------------------------------------------------------------- */

/* 0; -ENOENT, -EBADMSG: there is no such object, or it is shorter.  *buf: its bytes, a
 * reference, while they are being written; else NULL. */
static int find(VjBlockStore *b, uint64_t id, VjLoc loc, uint64_t offset, size_t len,
                VjBlockObject *out, VjBuf **buf)
{
    const VjBlockEntry *entry;
    uint32_t nonce = 0;
    int rc = 0;

    *buf = NULL;
    if (!vj_block_loc_decode(loc, &nonce)) {
        return -EBADMSG;
    }
    vj_mutex_lock(&b->lock);
    entry = vj_block_table_find(&b->objects, id, nonce);
    if (entry == NULL || entry->is_removed) {
        vj_mutex_unlock(&b->lock);
        return -ENOENT;
    }
    *out = vj_block_object_of(entry);
    if (offset > out->bytes || len > out->bytes - offset) {
        rc = -EBADMSG;
    } else {
        *buf = entry->is_written ? NULL : vj_block_being_written(b, out);
    }
    vj_mutex_unlock(&b->lock);
    return rc;
}

/* As vj_fd_pread_all, into @dst with room for whole blocks: of a file that was written
 * through the page cache the last one may end with its object. */
static int read_blocks(const VjBlockStore *b, uint8_t *dst, size_t len, uint64_t offset)
{
    size_t room = vj_store_room_bytes(len), done = 0;

    while (done < len) {
        ssize_t got = pread(b->fd, dst + done, room - done, (off_t)(offset + done));

        if (got == 0) {
            return -EBADMSG;
        }
        if (got < 0 && errno != EINTR) {
            return -errno;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

static int block_get(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                     size_t len)
{
    VjBlockStore *b = (VjBlockStore *)s;
    g_autoptr(VjBuf) buf = NULL;
    VjBlockObject object;
    int rc = find(b, id, loc, offset, len, &object, &buf);

    if (rc < 0 || len == 0) {
        return rc;
    }
    if (buf != NULL) {
        memcpy(dst, buf->data + offset, len);
        return 0;
    }
    offset += object.first_block * VJ_BLOCK_BYTES;
    rc = b->is_direct ? read_blocks(b, dst, len, offset)
                      : vj_fd_pread_all(b->fd, dst, len, offset);
    if (rc < 0 && rc != -EBADMSG) {
        vj_log_error("store block %s: cannot read object %016" G_GINT64_MODIFIER "x: %s",
                     b->path, id, g_strerror(-rc));
        rc = -EIO;
    }
    return rc;
}

static int block_with_file(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset,
                           size_t len, VjStoreUseFile *use, void *opaque)
{
    VjBlockStore *b = (VjBlockStore *)s;
    g_autoptr(VjBuf) buf = NULL;
    VjBlockObject object;
    int rc;

    if (b->is_direct || !b->is_file) {
        return -EOPNOTSUPP;
    }
    rc = find(b, id, loc, offset, len, &object, &buf);
    return rc < 0 ? rc
                  : use(opaque, b->fd, object.first_block * VJ_BLOCK_BYTES + offset, len);
}

static void block_expect(VjStore *s, uint64_t id, VjLoc loc)
{
    VjBlockStore *b = (VjBlockStore *)s;
    g_autoptr(VjBuf) buf = NULL;
    VjBlockObject object;

    if (find(b, id, loc, 0, 0, &object, &buf) == 0) {
        (void)posix_fadvise(b->fd, (off_t)(object.first_block * VJ_BLOCK_BYTES),
                            (off_t)object.bytes, POSIX_FADV_WILLNEED);
    }
}

/* Zeroes in its blocks. */
static int overwrite(const VjBlockStore *b, const VjBlockObject *object)
{
    uint64_t at = object->first_block * VJ_BLOCK_BYTES, left;
    g_autoptr(VjBuf) zeroes = NULL;
    int rc = 0;

    left = vj_block_count_of(object->bytes) * VJ_BLOCK_BYTES;
    zeroes = vj_buf_new((size_t)MIN(left, ERASE_PIECE_BYTES));
    if (zeroes == NULL) {
        return -ENOMEM;
    }
    memset(zeroes->data, 0, zeroes->cap);
    while (rc == 0 && left > 0) {
        struct iovec iov = {.iov_base = zeroes->data,
                            .iov_len = (size_t)MIN(left, zeroes->cap)};

        rc = vj_fd_pwritev_all(b->fd, &iov, 1, at);
        at += iov.iov_len;
        left -= iov.iov_len;
    }
    return rc;
}

/* The object, when no other remove writes over it; NULL: it is not there.  Waits. */
static VjBlockEntry *find_to_remove(VjBlockStore *b, uint64_t id, uint32_t nonce)
    VJ_REQUIRES(b->lock)
{
    VjBlockEntry *entry = vj_block_table_find(&b->objects, id, nonce);

    while (entry != NULL && entry->is_erased) {
        vj_cond_wait(&b->changed, &b->lock);
        entry = vj_block_table_find(&b->objects, id, nonce);
    }
    return entry;
}

/* What the device said of the zeroes of @object.  True: it goes as it is. */
static bool is_given_up(VjBlockStore *b, const VjBlockObject *object, int error)
{
    unsigned try;

    vj_mutex_lock(&b->lock);
    try = vj_erasures_failed(&b->erasures, object->id, object->nonce);
    vj_mutex_unlock(&b->lock);
    if (try == 1) {
        vj_log_error("store block %s: object %016" G_GINT64_MODIFIER
                     "x was removed and cannot be overwritten: %s; tried again",
                     b->path, object->id, g_strerror(-error));
    } else if (try == 0) {
        vj_log_error("store block %s: object %016" G_GINT64_MODIFIER
                     "x is removed without being overwritten, its %" G_GUINT64_FORMAT
                     " bytes may be left from byte %" G_GUINT64_FORMAT " on: %s",
                     b->path, object->id, (uint64_t)object->bytes,
                     object->first_block * VJ_BLOCK_BYTES, g_strerror(-error));
    }
    return try == 0;
}

/* 0: zeroes, durably, in its blocks, or it is given up: *is_bad. */
static int erase_object(VjBlockStore *b, const VjBlockObject *object, bool *is_bad)
{
    int rc = overwrite(b, object);

    *is_bad = false;
    if (rc == 0) {
        rc = vj_block_sync_now(b);
    }
    if (rc == 0) {
        vj_mutex_lock(&b->lock);
        vj_erasures_done(&b->erasures, object->id, object->nonce);
        vj_mutex_unlock(&b->lock);
    } else if (rc != -ENOMEM) {
        *is_bad = is_given_up(b, object, rc);
        rc = *is_bad ? 0 : -EIO;
    }
    return rc;
}

/*
 * 0 and the object, which nobody reads any more, with zeroes for its bytes; NULL: it is
 * not there.  -errno.  It is to be forgotten before the lock is let go: its blocks are
 * its own until then.
 */
static int erase(VjBlockStore *b, uint64_t id, uint32_t nonce, VjBlockEntry **out)
    VJ_REQUIRES(b->lock)
{
    VjBlockObject object;
    bool is_bad;
    int rc;

    vj_block_wait_for_writes(b, b->write_order);
    *out = find_to_remove(b, id, nonce);
    if (*out == NULL || (*out)->is_removed) {
        return 0;
    }
    vj_block_end_doubt(b, *out); /* nobody waits for bytes that are to be zeroes */
    if (!vj_erasures_is_due(&b->erasures, id, nonce)) {
        return -EIO;
    }
    (*out)->is_erased = true;
    object = vj_block_object_of(*out);
    vj_mutex_unlock(&b->lock);
    rc = erase_object(b, &object, &is_bad);
    vj_mutex_lock(&b->lock);
    *out = vj_block_table_find(&b->objects, id, nonce);
    if (*out != NULL) {
        (*out)->is_erased = false;
        (*out)->is_bad = is_bad;
        vj_block_end_doubt(b, *out); /* of a sync that failed meanwhile */
    }
    vj_cond_broadcast(&b->changed);
    return rc;
}

static int block_remove(VjStore *s, uint64_t id, VjLoc loc)
{
    VjBlockStore *b = (VjBlockStore *)s;
    uint32_t nonce = 0;
    VjBlockEntry *entry;
    int rc = 0;

    if (b->read_only) {
        return -EROFS;
    }
    if (!vj_block_loc_decode(loc, &nonce)) {
        return -EBADMSG;
    }
    vj_mutex_lock(&b->lock);
    if (b->erases) {
        rc = erase(b, id, nonce, &entry);
    } else {
        entry = vj_block_table_find(&b->objects, id, nonce);
    }
    if (rc == 0 && entry != NULL) {
        vj_block_end_doubt(b, entry);
        if (entry->is_staged) {
            entry->is_removed = true;
        } else {
            vj_block_forget(b, entry);
        }
    }
    vj_mutex_unlock(&b->lock);
    return rc;
}

static void block_erasures(VjStore *s, VjStoreErasures *out)
{
    VjBlockStore *b = (VjBlockStore *)s;

    vj_mutex_lock(&b->lock);
    *out = (VjStoreErasures){.waiting = g_hash_table_size(b->erasures.waiting),
                             .given_up = b->erasures.given_up};
    vj_mutex_unlock(&b->lock);
}

/* The list is copied first: the visitor may call the store. */
static GArray *list_of(VjBlockStore *b, uint64_t first_id, uint64_t last_id)
{
    GArray *seen = g_array_new(FALSE, FALSE, sizeof(VjBlockObject));

    vj_mutex_lock(&b->lock);
    for (uint32_t i = 0; i < b->objects.entry_count; i++) {
        const VjBlockEntry *entry = vj_block_table_at(&b->objects, i);

        if (entry != NULL && !entry->is_removed && entry->id >= first_id &&
            entry->id <= last_id) {
            VjBlockObject object = vj_block_object_of(entry);

            g_array_append_val(seen, object);
        }
    }
    vj_mutex_unlock(&b->lock);
    return seen;
}

static int block_each(VjStore *s, uint64_t first_id, uint64_t last_id,
                      VjStoreVisit *visit, void *opaque)
{
    g_autoptr(GArray) seen = list_of((VjBlockStore *)s, first_id, last_id);

    for (guint i = 0; i < seen->len; i++) {
        const VjBlockObject *object = &g_array_index(seen, VjBlockObject, i);
        VjPut put = {.id = object->id,
                     .loc = vj_block_loc_encode(object->nonce),
                     .stored_bytes = object->bytes};

        if (!visit(opaque, &put, (int64_t)object->put_s * G_USEC_PER_SEC)) {
            break;
        }
    }
    return 0;
}

/* ---- space ------------------------------------------------------------------------- */

/* Of a file: what its file system has left, and what is free in the file itself. */
static int space_of_file(const VjBlockStore *b, uint64_t used, uint64_t most,
                         VjStoreSpace *out)
{
    struct statvfs below;
    struct stat st;
    uint64_t own;

    if (fstatvfs(b->fd, &below) != 0 || fstat(b->fd, &st) != 0) {
        vj_log_error("store block %s: cannot ask for space: %s", b->path,
                     g_strerror(errno));
        return -EIO;
    }
    own = (uint64_t)st.st_blocks * 512;
    own = own > used ? own - used : 0;
    out->free_bytes = MIN((uint64_t)below.f_bfree * below.f_frsize + own, most - used);
    out->available_bytes =
        MIN((uint64_t)below.f_bavail * below.f_frsize + own, out->free_bytes);
    out->total_bytes =
        MIN(most, MAX((uint64_t)below.f_blocks * below.f_frsize, used + out->free_bytes));
    return 0;
}

static int block_space(VjStore *s, VjStoreSpace *out)
{
    VjBlockStore *b = (VjBlockStore *)s;
    uint64_t used, most;
    int rc = 0;

    vj_mutex_lock(&b->lock);
    used = (b->space.used_count - VJ_BLOCK_HEAD_BLOCKS) * VJ_BLOCK_BYTES;
    most = (b->space.most_blocks - VJ_BLOCK_HEAD_BLOCKS) * VJ_BLOCK_BYTES;
    vj_mutex_unlock(&b->lock);
    if (b->is_file) {
        rc = space_of_file(b, used, most, out);
    } else {
        *out = (VjStoreSpace){.total_bytes = most,
                              .free_bytes = most - used,
                              .available_bytes = most - used};
    }
    out->available_objects = out->available_bytes / VJ_BLOCK_BYTES;
    return rc;
}

static int block_grow(VjStore *s, uint64_t *gained)
{
    VjBlockStore *b = (VjBlockStore *)s;
    int rc = b->read_only ? -EROFS : 0;

    vj_mutex_lock(&b->lock);
    if (rc == 0 && b->is_growing) {
        rc = -EBUSY;
    }
    if (rc < 0) {
        vj_mutex_unlock(&b->lock);
        return rc;
    }
    b->is_growing = true;
    vj_mutex_unlock(&b->lock);
    rc = vj_block_super_grow(b, gained);
    vj_mutex_lock(&b->lock);
    b->is_growing = false;
    if (rc == 0 && *gained > 0) {
        vj_block_space_grow(&b->space, b->super.block_count, b->super.block_count);
    }
    vj_mutex_unlock(&b->lock);
    return rc;
}

static void tell_number(VjStoreTell *tell, void *opaque, const char *name, uint64_t value)
{
    char text[24];

    g_snprintf(text, sizeof text, "%" G_GUINT64_FORMAT, value);
    tell(opaque, name, text);
}

static void block_describe(VjStore *s, VjStoreTell *tell, void *opaque)
{
    VjBlockStore *b = (VjBlockStore *)s;
    uint32_t zones, empty, partly = 0, objects, doubtful, writes;
    uint64_t blocks, used;
    bool discards;

    vj_mutex_lock(&b->lock);
    zones = b->space.zones->len;
    empty = 0;
    for (uint32_t i = 0; i < zones; i++) {
        const VjBlockZone *z = &g_array_index(b->space.zones, VjBlockZone, i);

        empty += z->used == NULL;
        partly += z->used != NULL && z->free > 0;
    }
    blocks = b->super.block_count;
    used = b->space.used_count;
    objects = b->objects.count;
    doubtful = b->doubtful;
    writes = b->write_count;
    discards = b->discards;
    vj_mutex_unlock(&b->lock);
    tell(opaque, "path", b->path);
    tell(opaque, "kind", b->is_file ? "file" : "device");
    tell(opaque, "direct", b->is_direct ? "yes" : "no");
    tell(opaque, "discard", discards ? "yes" : "no");
    if (!b->is_file || blocks < VJ_BLOCK_COUNT_MAX) {
        tell_number(tell, opaque, "size_bytes", blocks * VJ_BLOCK_BYTES);
    }
    tell_number(tell, opaque, "used_bytes", used * VJ_BLOCK_BYTES);
    tell_number(tell, opaque, "objects", objects);
    tell_number(tell, opaque, "zones", zones);
    tell_number(tell, opaque, "zones_empty", empty);
    tell_number(tell, opaque, "zones_partly_used", partly);
    tell_number(tell, opaque, "writes_in_flight", writes);
    tell_number(tell, opaque, "objects_in_doubt", doubtful);
}

/* ---- open and close ---------------------------------------------------------------- */

static const VjStoreOps direct_ops;

/* A file has no object behind its end; one without any byte may stand there. */
static bool find_end(VjBlockStore *b, GError **error)
{
    off_t end = lseek(b->fd, 0, SEEK_END);

    if (end < 0) {
        return vj_error_set_errno(error, errno, "%s", b->path);
    }
    b->end_block = b->super.block_count;
    if (b->is_file) {
        b->end_block = MIN(vj_block_count_of((uint64_t)end) + 1, b->end_block);
    }
    return true;
}

static bool open_all(VjBlockStore *b, const VjStorePlace *place, const VjOpts *opts,
                     GError **error)
{
    const char *discard = vj_opts_string(opts, "discard");
    uint64_t block_count;

    b->most_bytes = vj_opts_number(opts, "size");
    if (!vj_block_device_open(b, place, opts, error) ||
        !(place->create ? vj_block_super_make(b, place, error)
                        : vj_block_super_load(b, place, error))) {
        return false;
    }
    b->erases = strcmp(vj_opts_string(opts, "erase"), "yes") == 0;
    b->discards =
        strcmp(discard, "yes") == 0 || (strcmp(discard, "auto") == 0 && b->is_file);
    block_count = b->is_file ? VJ_BLOCK_HEAD_BLOCKS : b->super.block_count;
    vj_block_space_init(&b->space, block_count, b->super.block_count);
    if (find_end(b, error) && load_keys(b, place, error) &&
        check_mounts(b, place, error) && vj_block_writes_open(b, error)) {
        return true;
    }
    vj_block_space_clear(&b->space);
    return false;
}

/* What a crash kept from being given back.  Not where keys are damaged, or of another
 * copy of the metadata: what they named may be looked for by hand. */
static void give_back_left(VjBlockStore *b, const VjStorePlace *place)
{
    bool are_sound;

    vj_mutex_lock(&b->lock);
    are_sound = b->bad_keys.lost + b->bad_keys.mended == 0;
    vj_mutex_unlock(&b->lock);
    if (are_sound && place->keys != NULL && !place->read_only && !place->adopt) {
        vj_block_give_back_left(b);
    }
}

static void free_all(VjBlockStore *b)
{
    vj_block_table_clear(&b->objects);
    g_array_unref(b->unsynced);
    g_array_unref(b->bad_key_changes);
    vj_erasures_clear(&b->erasures);
    vj_cond_clear(&b->changed);
    vj_mutex_clear(&b->lock);
    vj_fd_close(&b->fd);
    g_free(b->path);
}

static bool block_open(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                       GError **error)
{
    VjBlockStore *b = (VjBlockStore *)s;

    g_assert(place->path != NULL && !(place->create && place->read_only));
    b->fd = -1;
    b->read_only = place->read_only;
    b->must_sync = !place->create;
    b->last_nonce = (uint32_t)vj_random_u64();
    b->bad_key_changes = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));
    b->unsynced = g_array_new(FALSE, FALSE, sizeof(VjBlockUnsynced));
    vj_block_table_init(&b->objects);
    vj_erasures_init(&b->erasures);
    vj_mutex_init(&b->lock, VJ_RANK_STORE, "store.block");
    vj_cond_init(&b->changed);
    if (!open_all(b, place, opts, error)) {
        free_all(b);
        return false;
    }
    give_back_left(b, place);
    if (b->is_direct) {
        s->ops = &direct_ops;
        s->align_bytes = VJ_BLOCK_BYTES;
    }
    return true;
}

static void block_close(VjStore *s)
{
    VjBlockStore *b = (VjBlockStore *)s;

    vj_block_writes_close(b);
    vj_mutex_lock(&b->lock);
    (void)vj_block_give_back_zones(
        b, UINT_MAX); /* the next open does not see that they were used */
    vj_mutex_unlock(&b->lock);
    vj_block_space_clear(&b->space);
    free_all(b);
}

/* Where no device is named the file is below SOURCE. */
static uint32_t block_needs_of(const VjOpts *opts)
{
    return vj_opts_string(opts, "path") == NULL ? VJ_NEEDS_FILES : 0;
}

static const VjOptSpec block_options[] = {
    {.name = "path",
     .type = VJ_OPT_STRING,
     .help = "the device, or a file that is there; without it a file in SOURCE",
     .leads = true,
     .is_device = true},
    {.name = "size",
     .type = VJ_OPT_SIZE,
     .fallback = "0",
     .min = 0,
     .max = VJ_BLOCK_COUNT_MAX * VJ_BLOCK_BYTES,
     .help = "bytes of it that are used at most; 0: all of a device, and as much of a "
             "file as its file system has"},
    {.name = "direct",
     .type = VJ_OPT_CHOICE,
     .fallback = "auto",
     .choices = "auto|yes|no",
     .help = "past the page cache (O_DIRECT); auto: devices are"},
    {.name = "discard",
     .type = VJ_OPT_CHOICE,
     .fallback = "auto",
     .choices = "auto|yes|no",
     .help = "64 MiB in which nothing is any more are given back to what is below; auto: "
             "of files"},
    {.name = "erase",
     .type = VJ_OPT_CHOICE,
     .fallback = "no",
     .choices = "no|yes",
     .help = "overwrite objects with zeroes before their blocks are free"},
    {.name = NULL},
};

#define BLOCK_OPS                                                                        \
    .name = "block", .options = block_options, .instance_size = sizeof(VjBlockStore),    \
    .needs_of = block_needs_of, .open = block_open, .close = block_close,                \
    .put = vj_block_put, .put_held = vj_block_put_held, .get = block_get,                \
    .remove = block_remove, .erasures = block_erasures, .flush = vj_block_flush,         \
    .flush_removes = vj_block_flush_removes, .stage = block_stage,                       \
    .removes_committed = block_removes_committed, .bad_keys = block_bad_keys,            \
    .describe = block_describe, .grow = block_grow, .claim = block_claim,                \
    .claimed = block_claimed, .each = block_each, .space = block_space

/* Read ahead is what the page cache does. */
const VjStoreOps vj_store_block_ops = {
    BLOCK_OPS,
    .align_bytes = 1,
    .with_file = block_with_file,
    .expect = block_expect,
};

/* What an open store has that does without it. */
static const VjStoreOps direct_ops = {BLOCK_OPS, .align_bytes = VJ_BLOCK_BYTES};
