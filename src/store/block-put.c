/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* block-put.c - objects onto the device, and writes in flight */
#include "store/block-private.h"

#include <fcntl.h>
#if HAVE_LIBAIO
#include <libaio.h>
#endif

/* A put looks for room below in so many places. */
#define PLACES_MAX 64u
/* Shorter objects are left to the flush, which writes many of them together. */
#define WRITE_OUT_LEAST 65536u

/* ---- objects and blocks ------------------------------------------------------------ */

static uint32_t now_s(void)
{
    int64_t now = vj_clock_real().tv_sec;

    return (uint32_t)CLAMP(now, 0, (int64_t)UINT32_MAX);
}

/* What @stays is used until the next open, which counts again. */
static void give_blocks(VjBlockStore *b, const VjBlockObject *object, bool stays)
    VJ_REQUIRES(b->lock)
{
    if (!stays) {
        vj_block_space_give(&b->space, object->first_block,
                            vj_block_count_of(object->bytes));
    }
}

void vj_block_forget(VjBlockStore *b, VjBlockEntry *entry)
{
    VjBlockObject object = vj_block_object_of(entry);

    entry->is_removed = true;
    entry->is_staged = false;
    if (entry->is_written) { /* else when it is */
        /* Two keys claim them, or what is put there next may not be written. */
        give_blocks(b, &object, entry->is_doubled || entry->is_bad);
        vj_block_table_remove(&b->objects, entry);
    }
}

static void untake_blocks(VjBlockStore *b, const VjBlockObject *object)
{
    vj_mutex_lock(&b->lock);
    give_blocks(b, object, false);
    vj_mutex_unlock(&b->lock);
}

/* 0, also where the file system below has no such call. */
static int set_aside(const VjBlockStore *b, off_t first, off_t bytes)
{
    int rc;

    do {
        rc = fallocate(b->fd, 0, first, bytes) == 0 || errno == EOPNOTSUPP ? 0 : -errno;
    } while (rc == -EINTR);
    return rc;
}

/* What a file has room for is known before it is written: what goes there directly would
 * fail late.  A zone at once; where there is no room for one, each object by itself. */
static int reserve(VjBlockStore *b, const VjBlockObject *object, uint64_t unbacked)
{
    off_t first = (off_t)(object->first_block * VJ_BLOCK_BYTES);
    off_t own = (off_t)(vj_block_count_of(object->bytes) * VJ_BLOCK_BYTES);

    if (unbacked > 0) {
        if (set_aside(b, first, (off_t)(unbacked * VJ_BLOCK_BYTES)) == 0) {
            return 0;
        }
        vj_mutex_lock(&b->lock);
        b->reserves_each = true;
        vj_mutex_unlock(&b->lock);
    }
    return set_aside(b, first, own);
}

/* What is being given back is free, but cannot be used meanwhile. */
static bool find_blocks(VjBlockStore *b, VjBlockObject *object, uint64_t *unbacked)
    VJ_REQUIRES(b->lock)
{
    uint64_t count = vj_block_count_of(object->bytes);
    bool is_found;

    while (!(is_found =
                 vj_block_space_take(&b->space, count, &object->first_block, unbacked)) &&
           b->space.leaving > 0) {
        b->zone_waits++;
        vj_cond_wait(&b->changed, &b->lock);
        b->zone_waits--;
    }
    if (!is_found) {
        vj_block_space_try_all(&b->space); /* the next one */
    }
    return is_found;
}

static bool is_no_room(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG;
}

/*
 * The file system below had no room for @object where it was to be.  It has some behind
 * what was emptied since the last flush, and behind blocks that were used before: else a
 * full one would stay so, whatever is removed here.
 */
static void look_elsewhere(VjBlockStore *b, const VjBlockObject *object)
{
    vj_mutex_lock(&b->lock);
    if (vj_block_give_back_zones(b, VJ_BLOCK_GIVEN_BACK_MAX) == 0) {
        vj_block_space_short(&b->space, object->first_block);
    }
    vj_mutex_unlock(&b->lock);
}

/* 0, and *object has its nonce and blocks; -ENOSPC.  *is_short: there are blocks, but no
 * room below. */
static int take_blocks(VjBlockStore *b, VjBlockObject *object, uint64_t *failures,
                       bool *is_short)
{
    uint64_t unbacked = 0;
    bool is_found, reserves;
    int rc;

    vj_mutex_lock(&b->lock);
    is_found = find_blocks(b, object, &unbacked);
    reserves = b->is_file && b->is_direct && (unbacked > 0 || b->reserves_each);
    object->nonce = ++b->last_nonce;
    *failures = b->failures;
    vj_mutex_unlock(&b->lock);
    if (!is_found) {
        return -ENOSPC;
    }
    rc = reserves ? reserve(b, object, unbacked) : 0;
    if (rc < 0) {
        *is_short = b->is_file && is_no_room(rc);
        untake_blocks(b, object);
    }
    return rc;
}

/* flush() answers for it from now on; -EIO: a sync that failed may have met its bytes. */
static int add_object(VjBlockStore *b, const VjBlockObject *object, uint64_t failures,
                      bool is_written) VJ_REQUIRES(b->lock)
{
    VjBlockUnsynced unsynced = {.id = object->id, .nonce = object->nonce};
    VjBlockEntry *entry;

    if (failures != b->failures) {
        return -EIO;
    }
    entry = vj_block_table_add(&b->objects, object);
    if (entry == NULL) {
        return -ENOSPC;
    }
    entry->is_written = is_written;
    g_array_append_val(b->unsynced, unsynced);
    return 0;
}

static int data_error(const VjBlockStore *b, const char *what, uint64_t id, int rc)
{
    if (rc == -ENOSPC || rc == -EDQUOT || rc == -EROFS || rc == -EBADMSG) {
        return rc;
    }
    if (rc == -EFBIG) { /* RLIMIT_FSIZE, or what the file system below can hold */
        return -ENOSPC;
    }
    vj_log_error("store block %s: cannot %s object %016" G_GINT64_MODIFIER "x: %s",
                 b->path, what, id, g_strerror(-rc));
    return -EIO;
}

/* ---- through the page cache -------------------------------------------------------- */

static int write_through_cache(VjBlockStore *b, const VjBlockObject *object,
                               const struct iovec *iov, int iov_count, uint64_t failures)
{
    uint64_t at = object->first_block * VJ_BLOCK_BYTES;
    int rc = vj_fd_pwritev_all(b->fd, iov, iov_count, at);

    if (rc == 0 && object->bytes >= WRITE_OUT_LEAST &&
        sync_file_range(b->fd, (off_t)at, (off_t)object->bytes, SYNC_FILE_RANGE_WRITE) !=
            0) {
        rc = -errno;
    }
    if (rc == 0) {
        vj_mutex_lock(&b->lock);
        rc = add_object(b, object, failures, true);
        vj_mutex_unlock(&b->lock);
    }
    return rc;
}

/* ---- writes in flight -------------------------------------------------------------- */

static VjBlockWrite *free_slot(VjBlockStore *b) VJ_REQUIRES(b->lock)
{
    for (unsigned i = 0; i < VJ_BLOCK_WRITES_MAX; i++) {
        if (b->writes[i].buf == NULL) {
            return &b->writes[i];
        }
    }
    return NULL;
}

/* The write is over, with @rc. */
static void write_ended(VjBlockStore *b, VjBlockWrite *w, int rc) VJ_REQUIRES(b->lock)
{
    VjBlockEntry *entry = vj_block_table_find(&b->objects, w->id, w->nonce);

    g_assert(entry != NULL && !entry->is_written);
    entry->is_written = true;
    if (entry->is_removed && !entry->is_staged) {
        vj_block_forget(b, entry);
    } else if (rc < 0 && !entry->is_removed) {
        vj_block_doubt(b, entry, rc);
    }
    vj_buf_unref(w->buf);
    w->buf = NULL;
    b->write_count--;
    b->write_bytes -= w->len;
    vj_cond_broadcast(&b->changed);
}

VjBuf *vj_block_being_written(const VjBlockStore *b, const VjBlockObject *object)
{
    for (unsigned i = 0; b->write_count > 0 && i < VJ_BLOCK_WRITES_MAX; i++) {
        const VjBlockWrite *w = &b->writes[i];

        if (w->buf != NULL && w->nonce == object->nonce && w->id == object->id) {
            return vj_buf_ref(w->buf);
        }
    }
    return NULL;
}

#if HAVE_LIBAIO

bool vj_block_writes_open(VjBlockStore *b, GError **error)
{
    io_context_t context = NULL;
    int rc = b->is_direct ? io_setup(VJ_BLOCK_WRITES_MAX, &context) : 0;

    b->aio = context;
    return rc == 0 || vj_error_set_errno(error, -rc, "%s: io_setup", b->path);
}

void vj_block_writes_close(VjBlockStore *b)
{
    vj_mutex_lock(&b->lock);
    vj_block_wait_for_writes(b, b->write_order);
    vj_mutex_unlock(&b->lock);
    if (b->aio != NULL) {
        io_destroy(b->aio);
    }
}

/* Of a request that is over, also that of a write that was cut short. */
static int result_of(const struct io_event *event, const VjBlockWrite *w)
{
    long result = (long)event->res;

    return result < 0 ? (int)result : (size_t)result == w->len ? 0 : -EIO;
}

/* Takes what is over, of at least @least writes; the lock is given up meanwhile. */
static void reap(VjBlockStore *b, long least) VJ_REQUIRES(b->lock)
{
    struct io_event events[VJ_BLOCK_WRITES_MAX];
    int count;

    b->is_reaping = true;
    vj_mutex_unlock(&b->lock);
    do {
        count = io_getevents(b->aio, least, VJ_BLOCK_WRITES_MAX, events, NULL);
    } while (count == -EINTR);
    vj_mutex_lock(&b->lock);
    g_assert(count >= 0);
    for (int i = 0; i < count; i++) {
        VjBlockWrite *w = events[i].data;
        int rc = result_of(&events[i], w);

        if (rc < 0) {
            rc = data_error(b, "write", w->id, rc);
        }
        write_ended(b, w, rc);
    }
    b->is_reaping = false;
    vj_cond_broadcast(&b->changed);
}

/* Waits until something is over.  What the kernel may yet refuse will be no event. */
static void wait_for_one(VjBlockStore *b) VJ_REQUIRES(b->lock)
{
    if (b->is_reaping || b->write_count <= b->unsubmitted) {
        vj_cond_wait(&b->changed, &b->lock);
    } else {
        reap(b, 1);
    }
}

/* The first slot that is free. */
static VjBlockWrite *take_slot(VjBlockStore *b, size_t len) VJ_REQUIRES(b->lock)
{
    while (b->write_count == VJ_BLOCK_WRITES_MAX ||
           (b->write_count > 0 && b->write_bytes + len > VJ_BLOCK_WRITE_BYTES_MAX)) {
        wait_for_one(b);
    }
    return free_slot(b);
}

typedef struct iocb Request;

/* While nobody else can know that it is over: then the slot is another's. */
static void prepare(VjBlockStore *b, VjBlockWrite *w, Request *out) VJ_REQUIRES(b->lock)
{
    io_prep_pwrite(out, b->fd, w->buf->data, w->len,
                   (long long)(w->first_block * VJ_BLOCK_BYTES));
    out->data = w;
}

/* 0: it is in flight, and may be over; else nothing was begun. */
static int submit(VjBlockStore *b, Request *request)
{
    int rc;

    do {
        rc = io_submit(b->aio, 1, &request);
    } while (rc == -EINTR);
    return rc == 1 ? 0 : rc == 0 ? -EAGAIN : rc;
}

#else

bool vj_block_writes_open(VjBlockStore *b, GError **error)
{
    (void)b;
    (void)error;
    return true;
}

void vj_block_writes_close(VjBlockStore *b)
{
    (void)b;
}

static void wait_for_one(VjBlockStore *b)
{
    vj_cond_wait(&b->changed, &b->lock);
}

static VjBlockWrite *take_slot(VjBlockStore *b, size_t len)
{
    (void)len;
    while (b->write_count == VJ_BLOCK_WRITES_MAX) {
        wait_for_one(b);
    }
    return free_slot(b);
}

typedef struct Request {
    const VjBlockWrite *write;
} Request;

static void prepare(VjBlockStore *b, VjBlockWrite *w, Request *out)
{
    (void)b;
    out->write = w;
}

static int submit(VjBlockStore *b, Request *request)
{
    (void)b;
    (void)request;
    return -EAGAIN;
}

#endif

static bool is_one_before(const VjBlockStore *b, uint64_t order) VJ_REQUIRES(b->lock)
{
    for (unsigned i = 0; b->write_count > 0 && i < VJ_BLOCK_WRITES_MAX; i++) {
        if (b->writes[i].buf != NULL && b->writes[i].order <= order) {
            return true;
        }
    }
    return false;
}

void vj_block_wait_for_writes(VjBlockStore *b, uint64_t order)
{
    while (is_one_before(b, order)) {
        wait_for_one(b);
    }
}

/* Begins to write @holder's bytes; what the kernel does not take now is written here. */
static int write_directly(VjBlockStore *b, const VjBlockObject *object, VjBuf *holder,
                          uint64_t failures)
{
    size_t len = vj_block_count_of(object->bytes) * VJ_BLOCK_BYTES;
    struct iovec whole = {.iov_base = holder->data, .iov_len = len};
    bool is_refused;
    VjBlockWrite *w;
    Request request;
    int rc;

    vj_mutex_lock(&b->lock);
    w = take_slot(b, len);
    rc = add_object(b, object, failures, false);
    if (rc < 0) {
        vj_mutex_unlock(&b->lock);
        return rc;
    }
    *w = (VjBlockWrite){.id = object->id,
                        .nonce = object->nonce,
                        .order = ++b->write_order,
                        .buf = vj_buf_ref(holder),
                        .len = len,
                        .first_block = object->first_block};
    b->write_count++;
    b->unsubmitted++;
    b->write_bytes += len;
    prepare(b, w, &request);
    vj_mutex_unlock(&b->lock);
    is_refused = submit(b, &request) < 0;
    if (is_refused) {
        rc = vj_fd_pwritev_all(b->fd, &whole, 1, object->first_block * VJ_BLOCK_BYTES);
        rc = rc < 0 ? data_error(b, "write", object->id, rc) : 0;
    }
    vj_mutex_lock(&b->lock);
    b->unsubmitted--;
    if (is_refused) {
        write_ended(b, w, rc);
    }
    vj_cond_broadcast(&b->changed);
    vj_mutex_unlock(&b->lock);
    return 0;
}

/* ---- put --------------------------------------------------------------------------- */

static bool has_many_unsynced(VjBlockStore *b)
{
    bool many;

    vj_mutex_lock(&b->lock);
    many = b->unsynced->len >= VJ_BLOCK_UNSYNCED_MAX;
    vj_mutex_unlock(&b->lock);
    return many;
}

/* @holder NULL: the bytes change when this has returned.  *is_short: as take_blocks. */
static int put_once(VjBlockStore *b, VjBlockObject *object, VjBuf *holder,
                    const struct iovec *iov, int iov_count, bool *is_short)
{
    uint64_t failures = 0;
    int rc = take_blocks(b, object, &failures, is_short);

    if (rc < 0) {
        return rc;
    }
    object->put_s = now_s();
    if (holder != NULL) { /* what it needs is reserved */
        rc = write_directly(b, object, holder, failures);
    } else {
        rc = write_through_cache(b, object, iov, iov_count, failures);
        *is_short = b->is_file && is_no_room(rc);
    }
    if (rc < 0) {
        untake_blocks(b, object);
    }
    return rc;
}

static int put(VjBlockStore *b, uint64_t id, VjBuf *holder, const struct iovec *iov,
               int iov_count, VjPut *out)
{
    VjBlockObject object = {.id = id,
                            .bytes = (uint32_t)vj_store_iov_bytes(iov, iov_count)};
    bool is_short = false;
    int rc;

    if (b->read_only) {
        return -EROFS;
    }
    if (has_many_unsynced(b)) {
        rc = vj_block_flush(&b->base);
        if (rc < 0) {
            return rc;
        }
    }
    rc = put_once(b, &object, holder, iov, iov_count, &is_short);
    for (unsigned i = 1; is_short && i < PLACES_MAX; i++) {
        look_elsewhere(b, &object);
        is_short = false;
        rc = put_once(b, &object, holder, iov, iov_count, &is_short);
    }
    if (rc < 0) {
        return data_error(b, "put", id, rc);
    }
    *out = (VjPut){
        .id = id, .loc = vj_block_loc_encode(object.nonce), .stored_bytes = object.bytes};
    return 0;
}

int vj_block_put_held(VjStore *s, uint64_t id, VjBuf *holder, const struct iovec *iov,
                      int iov_count, VjPut *out)
{
    VjBlockStore *b = (VjBlockStore *)s;
    bool is_whole = iov_count == 1 && iov[0].iov_base == holder->data &&
                    vj_store_room_bytes(iov[0].iov_len) <= holder->cap;

    return b->is_direct && is_whole ? put(b, id, holder, iov, iov_count, out)
                                    : vj_block_put(s, id, iov, iov_count, out);
}

int vj_block_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                 VjPut *out)
{
    VjBlockStore *b = (VjBlockStore *)s;
    g_autoptr(VjBuf) copy = NULL;

    if (b->is_direct) {
        copy = vj_buf_new(vj_store_room_bytes(vj_store_iov_bytes(iov, iov_count)));
        if (copy == NULL) {
            return -ENOMEM;
        }
        vj_store_gather(copy, iov, iov_count);
    }
    return put(b, id, copy, iov, iov_count, out);
}
