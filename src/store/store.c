/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * store.c - opening by name, and the only callers of a driver's ops
 *
 * Each caller asserts what its own caller promised before, and what the driver promised
 * after: an errno out of the vocabulary, no EINTR or EAGAIN, results that fit the
 * request.
 */
#include "store/store-private.h"

static const VjStoreOps *const wrappers[] = {
    &vj_store_fault_ops,
    &vj_store_latency_ops,
    &vj_store_stats_ops,
    NULL,
};

VjStore *vj_store_find(VjStore *s, const VjStoreOps *ops)
{
    while (s != NULL && s->ops != ops) {
        s = s->next;
    }
    return s;
}

static char *names_of(const VjStoreOps *const *table)
{
    GString *names = g_string_new(NULL);

    for (; *table != NULL; table++) {
        g_string_append_printf(names, "%s%s", names->len > 0 ? ", " : "", (*table)->name);
    }
    return g_string_free(names, FALSE);
}

/* "name" or "name:options" against @table; @options is borrowed from @spec. */
static const VjStoreOps *find_ops(const VjStoreOps *const *table, const char *what,
                                  const char *spec, const char **options, GError **error)
{
    const char *colon = strchr(spec, ':');
    size_t name_len = colon != NULL ? (size_t)(colon - spec) : strlen(spec);
    g_autofree char *names = NULL;

    *options = colon != NULL ? colon + 1 : "";
    for (const VjStoreOps *const *row = table; *row != NULL; row++) {
        if (strlen((*row)->name) == name_len &&
            memcmp((*row)->name, spec, name_len) == 0) {
            return *row;
        }
    }
    names = names_of(table);
    vj_error_set(error, EINVAL, "no %s is called \"%.*s\"; this build has: %s", what,
                 (int)name_len, spec, names);
    return NULL;
}

/* Owned; NULL with a line that names the driver. */
static VjOpts *read_options(const VjStoreOps *ops, const char *options, GError **error)
{
    g_autoptr(VjOpts) opts = vj_opts_new(ops->options);

    if (!vj_opts_parse_spec(opts, options, error)) {
        vj_error_prefix(error, "store %s", ops->name);
        return NULL;
    }
    return g_steal_pointer(&opts);
}

static bool open_with(const VjStoreOps *ops, const char *options, VjStore *next,
                      const VjStorePlace *place, VjStore **out, GError **error)
{
    g_autoptr(VjOpts) opts = read_options(ops, options, error);
    VjStore *s;

    g_assert(ops->instance_size >= sizeof(VjStore));
    g_assert(ops->align_bytes > 0 && (ops->align_bytes & (ops->align_bytes - 1)) == 0);
    g_assert(ops->align_bytes <= VJ_BUF_ALIGN);
    if (opts == NULL) {
        return false;
    }
    s = g_malloc0(ops->instance_size);
    s->ops = ops;
    s->next = next;
    s->align_bytes = MAX(ops->align_bytes, next != NULL ? next->align_bytes : 1);
    s->queue = vj_io_queue_new(s);
    s->space = vj_space_cache_new();
    if (!ops->open(s, place, opts, error)) {
        vj_io_queue_free(s->queue);
        vj_space_cache_free(s->space);
        g_free(s);
        return vj_error_prefix(error, "store %s", ops->name);
    }
    *out = s;
    return true;
}

bool vj_store_open(const char *spec, const VjStorePlace *place, VjStore **out,
                   GError **error)
{
    const char *options = NULL;
    const VjStoreOps *ops = NULL;

    g_assert(spec != NULL && place != NULL && out != NULL);
    *out = NULL;
    ops = find_ops(vj_store_drivers, "store", spec, &options, error);
    if (ops == NULL) {
        return false;
    }
    if (place->shared && !ops->is_shareable) {
        return vj_error_set(error, EOPNOTSUPP,
                            "store %s: it cannot be shared by several sessions",
                            ops->name);
    }
    return open_with(ops, options, NULL, place, out, error);
}

bool vj_store_spec_check(const char *spec, GError **error)
{
    const char *options = NULL;
    const VjStoreOps *ops = find_ops(vj_store_drivers, "store", spec, &options, error);
    g_autoptr(VjOpts) opts = ops != NULL ? read_options(ops, options, error) : NULL;

    return opts != NULL && (ops->check == NULL || ops->check(opts, error) ||
                            vj_error_prefix(error, "store %s", ops->name));
}

bool vj_store_spec_can_put_as(const char *spec)
{
    const char *options = NULL;
    const VjStoreOps *ops = find_ops(vj_store_drivers, "store", spec, &options, NULL);

    return ops != NULL && ops->put_as != NULL;
}

uint32_t vj_store_needs(const char *spec)
{
    const char *options = NULL;
    const VjStoreOps *ops = find_ops(vj_store_drivers, "store", spec, &options, NULL);
    g_autoptr(VjOpts) opts = NULL;

    if (ops == NULL || ops->needs_of == NULL) {
        return ops != NULL ? ops->needs : 0;
    }
    opts = read_options(ops, options, NULL);
    return opts != NULL ? ops->needs_of(opts) : 0;
}

void vj_store_files(const char *spec, VjOptFiles *files)
{
    const char *options = NULL;
    const VjStoreOps *ops = find_ops(vj_store_drivers, "store", spec, &options, NULL);
    g_autoptr(VjOpts) opts = ops != NULL ? read_options(ops, options, NULL) : NULL;

    if (opts != NULL) {
        vj_opts_files(opts, files);
    }
}

bool vj_store_wrap_with(const VjStoreOps *ops, const char *options, VjStore *next,
                        VjStore **out, GError **error)
{
    if (!open_with(ops, options, next, NULL, out, error)) {
        return false;
    }
    /* The outermost store keeps the time, of what is below it too. */
    (*out)->timeout_us = next->timeout_us;
    next->timeout_us = 0;
    vj_space_cache_free(g_steal_pointer(&next->space));
    return true;
}

bool vj_store_wrap(const char *spec, VjStore *next, VjStore **out, GError **error)
{
    const char *options = NULL;
    const VjStoreOps *ops = NULL;

    g_assert(spec != NULL && next != NULL && out != NULL);
    *out = NULL;
    ops = find_ops(wrappers, "wrapper of a store", spec, &options, error);
    return ops != NULL && vj_store_wrap_with(ops, options, next, out, error);
}

void vj_store_close(VjStore *s)
{
    while (s != NULL) {
        VjStore *next = s->next;

        vj_io_queue_free(s->queue);
        s->ops->close(s);
        vj_space_cache_free(s->space);
        g_free(s);
        s = next;
    }
}

static bool is_aligned(uint32_t align_bytes, const void *address, uint64_t offset)
{
    return (((uintptr_t)address | offset) & (align_bytes - 1)) == 0;
}

/* ---- for io.c ---------------------------------------------------------------------- */

int vj_store_call(VjStore *s, VjIo *io, VjPut *put)
{
    struct iovec whole[2] = {
        {.iov_base = (void *)(uintptr_t)io->lead_data, .iov_len = io->lead_len},
        {.iov_base = io->buf != NULL ? io->buf->data : NULL,
         .iov_len = io->len - io->lead_len}};
    const struct iovec *iov = io->lead != NULL ? whole : &whole[1];
    int iov_count = io->lead != NULL ? 2 : 1;

    switch (io->op) {
    case VJ_IO_PUT:
        return s->ops->put(s, io->id, iov, iov_count, put);
    case VJ_IO_GET:
        return s->ops->get(s, io->id, io->loc, io->offset, io->buf->data, io->len);
    case VJ_IO_REMOVE:
        return s->ops->remove(s, io->id, io->loc);
    case VJ_IO_FLUSH:
        return s->ops->flush(s);
    case VJ_IO_FLUSH_REMOVES:
        return s->ops->flush_removes(s);
    case VJ_IO_SPACE:
        return s->ops->space(s, &io->space);
    case VJ_IO_PUT_AS:
        return s->ops->put_as(s, io->id, io->nonce, iov, iov_count, put);
    }
    g_assert_not_reached();
}

void vj_store_call_submit(VjStore *s, VjIo *io)
{
    s->ops->submit(s, io);
}

void vj_store_call_cancel(VjStore *s, VjIo *io)
{
    if (s->ops->cancel != NULL) {
        s->ops->cancel(s, io);
    }
}

void vj_store_call_push(VjStore *s)
{
    if (s->ops->push != NULL) {
        s->ops->push(s);
    }
}

bool vj_store_call_can_help(const VjStore *s)
{
    return s->ops->help != NULL;
}

void vj_store_call_help(VjStore *s, bool (*is_over)(void *opaque), void *opaque,
                        int64_t until_us)
{
    if (vj_store_call_can_help(s)) {
        s->ops->help(s, is_over, opaque, until_us);
    }
}

void vj_store_count_put(VjStore *s, uint64_t bytes)
{
    if (s->space != NULL) {
        vj_space_cache_put(s->space, bytes);
    }
}

/* ---- synchronous calls made of submit ---------------------------------------------- */

static bool goes_by_submit(const VjStore *s, bool has_call)
{
    g_assert(has_call || s->ops->submit != NULL);
    return !has_call || s->timeout_us > 0;
}

/* Takes @io. */
static int run_and_drop(VjStore *s, VjIo *io)
{
    int rc = vj_io_run(s, io);

    vj_io_unref(io);
    return rc;
}

/* A copy, but of what is in @holder: the driver may read it after the deadline.  @nonce
 * NULL: a put. */
static int put_by_submit(VjStore *s, uint64_t id, const uint64_t *nonce, VjBuf *holder,
                         const struct iovec *iov, int iov_count, uint64_t put_bytes,
                         VjPut *out)
{
    size_t lead_bytes = holder != NULL ? iov[0].iov_len : 0;
    g_autoptr(VjBuf) buf = vj_buf_new(vj_store_room_bytes(put_bytes - lead_bytes));
    VjIo *io;
    int rc;

    if (buf == NULL) {
        return -ENOMEM;
    }
    if (lead_bytes > 0) {
        vj_store_gather(buf, iov + 1, iov_count - 1);
    } else {
        vj_store_gather(buf, iov, iov_count);
    }
    io = vj_io_new_put(id, buf, put_bytes - lead_bytes);
    if (lead_bytes > 0) {
        io->len = put_bytes;
        io->lead = vj_buf_ref(holder);
        io->lead_data = iov[0].iov_base;
        io->lead_len = lead_bytes;
    }
    if (nonce != NULL) {
        io->op = VJ_IO_PUT_AS;
        io->nonce = *nonce;
    }
    rc = vj_io_run(s, io);
    *out = io->put;
    vj_io_unref(io);
    return rc;
}

static int get_by_submit(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                         size_t len, bool is_checked)
{
    VjIo *io = vj_io_new_get(id, loc, offset, len);
    int rc;

    if (io == NULL) {
        return -ENOMEM;
    }
    io->is_checked = is_checked;
    rc = vj_io_run(s, io);
    if (rc == 0 && len > 0) {
        memcpy(dst, io->buf->data, len);
    }
    vj_io_unref(io);
    return rc;
}

static int space_by_submit(VjStore *s, VjStoreSpace *out)
{
    VjIo *io = vj_io_new_call(VJ_IO_SPACE);
    int rc = vj_io_run(s, io);

    if (rc == 0) {
        *out = io->space;
    }
    vj_io_unref(io);
    return rc;
}

/* What the caller of a put promised; returns the bytes of all pieces. */
static uint64_t check_pieces(const VjStore *s, const struct iovec *iov, int iov_count)
{
    uint64_t put_bytes = 0;

    g_assert(iov != NULL && iov_count > 0 && iov_count <= VJ_STORE_IOV_MAX);
    for (int i = 0; i < iov_count; i++) {
        g_assert(iov[i].iov_len <= VJ_STORE_OBJECT_MAX);
        g_assert(is_aligned(s->align_bytes, iov[i].iov_base,
                            i + 1 < iov_count ? iov[i].iov_len : 0));
        put_bytes += iov[i].iov_len;
    }
    g_assert(put_bytes <= VJ_STORE_OBJECT_MAX);
    vj_lock_assert_none();
    return put_bytes;
}

static void check_put(VjStore *s, uint64_t id, uint64_t put_bytes, int result,
                      const VjPut *out)
{
    g_assert(vj_store_result_is_sound(result));
    if (result == 0) {
        vj_store_count_put(s, put_bytes);
        g_assert(out->id == id && out->stored_bytes == put_bytes);
    }
}

static int put(VjStore *s, uint64_t id, VjBuf *holder, const struct iovec *iov,
               int iov_count, VjPut *out)
{
    uint64_t put_bytes = check_pieces(s, iov, iov_count);
    int result;

    g_assert(out != NULL);
    if (goes_by_submit(s, s->ops->put != NULL)) {
        return put_by_submit(s, id, NULL, s->align_bytes > 1 ? NULL : holder, iov,
                             iov_count, put_bytes, out);
    }
    result = holder != NULL && s->ops->put_held != NULL
                 ? s->ops->put_held(s, id, holder, iov, iov_count, out)
                 : s->ops->put(s, id, iov, iov_count, out);
    check_put(s, id, put_bytes, result, out);
    return result;
}

int vj_store_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                 VjPut *out)
{
    return put(s, id, NULL, iov, iov_count, out);
}

/* It is all of the put, and has the room behind that which a driver may ask for. */
static bool is_whole(const VjBuf *holder, const struct iovec *iov, int iov_count)
{
    return holder != NULL && iov_count == 1 && iov[0].iov_base == holder->data &&
           holder->cap >= vj_store_room_bytes(iov[0].iov_len);
}

int vj_store_put_held(VjStore *s, uint64_t id, VjBuf *holder, const struct iovec *iov,
                      int iov_count, VjPut *out)
{
    const uint8_t *first = iov[0].iov_base;

    g_assert(holder == NULL || (first >= holder->data && iov[0].iov_len <= holder->cap &&
                                first <= holder->data + holder->cap - iov[0].iov_len));
    return vj_store_align_bytes(s) > 1 && !is_whole(holder, iov, iov_count)
               ? vj_store_put_unaligned(s, id, iov, iov_count, out)
               : put(s, id, holder, iov, iov_count, out);
}

bool vj_store_can_put_as(const VjStore *s)
{
    g_assert(s != NULL);
    while (s != NULL && s->ops->put_as != NULL) {
        g_assert(s->ops->loc_of_nonce != NULL && s->ops->nonce_of_loc != NULL &&
                 s->ops->length != NULL);
        s = s->next;
    }
    return s == NULL;
}

int vj_store_put_as(VjStore *s, uint64_t id, uint64_t nonce, const struct iovec *iov,
                    int iov_count, VjPut *out)
{
    uint64_t put_bytes = check_pieces(s, iov, iov_count);
    int result;

    g_assert(out != NULL && s->ops->put_as != NULL);
    if (goes_by_submit(s, true)) {
        return put_by_submit(s, id, &nonce, NULL, iov, iov_count, put_bytes, out);
    }
    result = s->ops->put_as(s, id, nonce, iov, iov_count, out);
    check_put(s, id, put_bytes, result, out);
    return result;
}

VjLoc vj_store_loc_of_nonce(VjStore *s, uint64_t nonce)
{
    g_assert(s->ops->loc_of_nonce != NULL);
    return s->ops->loc_of_nonce(s, nonce);
}

bool vj_store_nonce_of_loc(VjStore *s, VjLoc loc, uint64_t *nonce)
{
    g_assert(s->ops->nonce_of_loc != NULL);
    return s->ops->nonce_of_loc(s, loc, nonce);
}

int vj_store_length(VjStore *s, uint64_t id, VjLoc loc, uint64_t *stored_bytes)
{
    int result;

    g_assert(s->ops->length != NULL);
    result = s->ops->length(s, id, loc, stored_bytes);
    g_assert(result == 0 ? *stored_bytes <= VJ_STORE_OBJECT_MAX
                         : result < 0 && result != -EAGAIN && result != -EINTR);
    return result;
}

bool vj_store_same_loc(VjStore *s, VjLoc a, VjLoc b)
{
    return s->ops->same_loc != NULL ? s->ops->same_loc(s, a, b)
                                    : memcmp(a.bytes, b.bytes, VJ_LOC_BYTES) == 0;
}

static int get_some(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                    size_t len, bool is_checked)
{
    uint64_t end = 0;
    int result;

    g_assert(s != NULL && (dst != NULL || len == 0));
    g_assert(is_aligned(vj_store_align_bytes(s), dst, offset));
    g_assert(vj_add_u64(offset, len, &end) && end <= VJ_STORE_OBJECT_MAX);
    vj_lock_assert_none();

    if (goes_by_submit(s, s->ops->get != NULL)) {
        return get_by_submit(s, id, loc, offset, dst, len, is_checked);
    }
    result = is_checked && s->ops->get_checked != NULL
                 ? s->ops->get_checked(s, id, loc, offset, dst, len)
                 : s->ops->get(s, id, loc, offset, dst, len);
    g_assert(vj_store_result_is_sound(result));
    return result;
}

int vj_store_get(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                 size_t len)
{
    return get_some(s, id, loc, offset, dst, len, false);
}

int vj_store_get_checked(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                         size_t len)
{
    /* What asks for alignment is on this machine: nothing is spared there. */
    return vj_store_align_bytes(s) > 1
               ? vj_store_get_unaligned(s, id, loc, offset, dst, len)
               : get_some(s, id, loc, offset, dst, len, true);
}

int vj_store_with_file(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, size_t len,
                       VjStoreUseFile *use, void *opaque)
{
    int result;

    g_assert(len <= VJ_STORE_OBJECT_MAX && offset <= VJ_STORE_OBJECT_MAX - len);
    vj_lock_assert_none();
    if (s->ops->with_file == NULL || s->timeout_us > 0) {
        return -EOPNOTSUPP; /* @use would block for as long as it likes */
    }
    result = s->ops->with_file(s, id, loc, offset, len, use, opaque);
    g_assert(vj_store_result_is_sound(result) || result == -EOPNOTSUPP);
    return result;
}

void vj_store_expect(VjStore *s, uint64_t id, VjLoc loc)
{
    g_assert(s != NULL);
    vj_lock_assert_none();
    if (s->ops->expect != NULL) {
        s->ops->expect(s, id, loc);
    }
}

bool vj_store_can_expect(const VjStore *s)
{
    g_assert(s != NULL);
    while (s != NULL && s->ops->expect != NULL) {
        s = s->next;
    }
    return s == NULL;
}

uint64_t vj_store_prefer(VjStore *s, uint64_t id)
{
    uint64_t preferred = id;

    g_assert(s != NULL);
    vj_lock_assert_none();
    if (s->ops->prefer != NULL) {
        preferred = s->ops->prefer(s, id);
    }
    g_assert(preferred >= id);
    return preferred;
}

int vj_store_remove(VjStore *s, uint64_t id, VjLoc loc)
{
    int result;

    g_assert(s != NULL);
    vj_lock_assert_none();

    if (goes_by_submit(s, s->ops->remove != NULL)) {
        return run_and_drop(s, vj_io_new_remove(id, loc));
    }
    result = s->ops->remove(s, id, loc);
    g_assert(vj_store_result_is_sound(result) && result != -ENOENT);
    return result;
}

void vj_store_remove_all(VjStore *s, const VjPut *puts, size_t count, int *results)
{
    if (s->ops->submit != NULL && !vj_store_can_expect(s)) {
        vj_io_remove_all(s, puts, count, results);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        results[i] = vj_store_remove(s, puts[i].id, puts[i].loc);
    }
}

int vj_store_flush(VjStore *s)
{
    int result;

    g_assert(s != NULL);
    vj_lock_assert_none();

    if (goes_by_submit(s, s->ops->flush != NULL)) {
        return run_and_drop(s, vj_io_new_flush());
    }
    result = s->ops->flush(s);
    g_assert(vj_store_result_is_sound(result));
    return result;
}

int vj_store_flush_removes(VjStore *s)
{
    int result;

    g_assert(s != NULL);
    vj_lock_assert_none();
    if (s->ops->flush_removes == NULL) {
        return 0;
    }
    if (goes_by_submit(s, true)) {
        return run_and_drop(s, vj_io_new_call(VJ_IO_FLUSH_REMOVES));
    }
    result = s->ops->flush_removes(s);
    g_assert(vj_store_result_is_sound(result));
    return result;
}

int vj_store_stage(VjStore *s, const VjPut *added, size_t added_count,
                   const VjPut *removed, size_t removed_count, GArray *changes)
{
    guint changes_before;
    int result;

    g_assert(s != NULL && changes != NULL);
    g_assert(g_array_get_element_size(changes) == sizeof(VjStoreChange));
    g_assert((added != NULL || added_count == 0) &&
             (removed != NULL || removed_count == 0));
    if (s->ops->stage == NULL) {
        return 0;
    }
    changes_before = changes->len;
    result = s->ops->stage(s, added, added_count, removed, removed_count, changes);
    g_assert(vj_store_result_is_sound(result) && changes->len >= changes_before);
    for (guint i = changes_before; i < changes->len; i++) {
        const VjStoreChange *change = &g_array_index(changes, VjStoreChange, i);

        g_assert(change->key_len > 0 && change->key_len <= sizeof change->key);
        g_assert(change->value_len <= sizeof change->value);
    }
    return result;
}

void vj_store_removes_committed(VjStore *s, const VjPut *removed, size_t removed_count)
{
    g_assert(s != NULL && (removed != NULL || removed_count == 0));
    if (s->ops->removes_committed != NULL) {
        s->ops->removes_committed(s, removed, removed_count);
    }
}

/* Stands between driver and visitor, so that what the driver says is checked too. */
typedef struct Walk {
    uint64_t first_id, last_id;
    VjStoreVisit *visit;
    void *opaque;
    bool stopped;
} Walk;

static bool check_visit(void *opaque, const VjPut *object, int64_t mtime_us)
{
    Walk *walk = opaque;

    g_assert(!walk->stopped);
    g_assert(object->id >= walk->first_id && object->id <= walk->last_id);
    walk->stopped = !walk->visit(walk->opaque, object, mtime_us);
    return !walk->stopped;
}

int vj_store_digest(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                    uint8_t algorithm, VjDigest *out)
{
    int result;

    g_assert(s != NULL && form->stored_bytes <= VJ_STORE_OBJECT_MAX);
    vj_lock_assert_none();
    if (s->ops->digest == NULL) {
        return -EOPNOTSUPP;
    }
    result = s->ops->digest(s, id, loc, form, algorithm, out);
    g_assert(vj_store_result_is_sound(result) || result == -EOPNOTSUPP);
    return result;
}

bool vj_store_takes_plain(const VjStore *s)
{
    while (s != NULL && s->ops->put_plain != NULL && s->ops->get_plain != NULL) {
        s = s->next;
    }
    return s == NULL;
}

int vj_store_put_plain(VjStore *s, uint64_t id, const VjStoreWant *want,
                       const void *bytes, size_t len, VjPut *out, VjStoreForm *form)
{
    int result;

    g_assert(s->ops->put_plain != NULL && want->plain_bytes > 0);
    g_assert(want->wire_codec != 0 || len == want->plain_bytes);
    vj_lock_assert_none();
    result = s->ops->put_plain(s, id, want, bytes, len, out, form);
    g_assert(vj_store_result_is_sound(result) || result == -EOPNOTSUPP);
    if (result == 0) {
        g_assert(out->id == id && out->stored_bytes == form->stored_bytes);
        vj_store_count_put(s, out->stored_bytes);
    }
    return result;
}

int vj_store_get_plain(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                       uint32_t offset, uint32_t len, const VjStoreWant *wire,
                       VjBuf **bytes, bool *is_encoded)
{
    int result;

    g_assert(s->ops->get_plain != NULL && len > 0 && len <= form->plain_bytes &&
             offset <= form->plain_bytes - len);
    vj_lock_assert_none();
    *bytes = NULL;
    *is_encoded = false;
    result = s->ops->get_plain(s, id, loc, form, offset, len, wire, bytes, is_encoded);
    g_assert(vj_store_result_is_sound(result) || result == -EOPNOTSUPP);
    g_assert(result != 0 || (*is_encoded ? wire != NULL : (*bytes)->len == len));
    return result;
}

int vj_store_each(VjStore *s, uint64_t first_id, uint64_t last_id, VjStoreVisit *visit,
                  void *opaque)
{
    Walk walk = {
        .first_id = first_id, .last_id = last_id, .visit = visit, .opaque = opaque};
    int result;

    g_assert(s != NULL && visit != NULL && first_id <= last_id);
    vj_lock_assert_none();

    result = s->ops->each(s, first_id, last_id, check_visit, &walk);
    g_assert(vj_store_result_is_sound(result));
    return result;
}

int vj_store_space(VjStore *s, VjStoreSpace *out)
{
    VjSpaceAsk ask;
    int result;

    g_assert(s != NULL && out != NULL);
    vj_lock_assert_none();

    if (s->space != NULL && vj_space_cache_get(s->space, out, &ask)) {
        return 0;
    }
    result = goes_by_submit(s, true) ? space_by_submit(s, out) : s->ops->space(s, out);
    g_assert(vj_store_result_is_sound(result));
    if (result == 0) {
        g_assert(out->free_bytes <= out->total_bytes);
        g_assert(out->available_bytes <= out->free_bytes);
    }
    if (s->space != NULL) {
        vj_space_cache_set(s->space, &ask, result, out);
    }
    return result;
}

static VjStore *driver_of(VjStore *s)
{
    while (s->next != NULL) {
        s = s->next;
    }
    return s;
}

void vj_store_bad_keys(VjStore *s, GArray *changes, VjStoreBadKeys *out)
{
    g_assert(s != NULL && out != NULL);
    vj_lock_assert_none();
    s = driver_of(s);
    *out = (VjStoreBadKeys){.lost = 0};
    if (s->ops->bad_keys != NULL) {
        s->ops->bad_keys(s, changes, out);
    }
}

void vj_store_describe(VjStore *s, VjStoreTell *tell, void *opaque)
{
    g_assert(s != NULL && tell != NULL);
    vj_lock_assert_none();
    s = driver_of(s);
    tell(opaque, "store", s->ops->name);
    if (s->ops->describe != NULL) {
        s->ops->describe(s, tell, opaque);
    }
}

void vj_store_erasures(VjStore *s, VjStoreErasures *out)
{
    g_assert(s != NULL && out != NULL);
    s = driver_of(s);
    *out = (VjStoreErasures){.waiting = 0};
    if (s->ops->erasures != NULL) {
        s->ops->erasures(s, out);
    }
}

int vj_store_grow(VjStore *s, uint64_t *gained)
{
    g_assert(s != NULL && gained != NULL);
    vj_lock_assert_none();
    s = driver_of(s);
    *gained = 0;
    return s->ops->grow != NULL ? s->ops->grow(s, gained) : 0;
}

int vj_store_claim(VjStore *s, GArray *changes)
{
    g_assert(s != NULL && s->next == NULL && changes != NULL);
    vj_lock_assert_none();
    g_assert((s->ops->claim == NULL) == (s->ops->claimed == NULL));
    return s->ops->claim != NULL ? s->ops->claim(s, changes) : 0;
}

int vj_store_claimed(VjStore *s)
{
    g_assert(s != NULL && s->next == NULL && s->ops->claimed != NULL);
    vj_lock_assert_none();
    return s->ops->claimed(s);
}

bool vj_store_has_replicas(const VjStore *s)
{
    g_assert(s != NULL);
    while (s != NULL && s->ops->heal != NULL) {
        g_assert(s->ops->health != NULL && s->ops->trim != NULL);
        s = s->next;
    }
    return s == NULL;
}

typedef int HealOp(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                   VjStoreHealed *out);

static int run_heal(VjStore *s, HealOp *op, const VjPut *object, VjStoreVerify *verify,
                    void *opaque, VjStoreHealed *out)
{
    int result;

    g_assert(op != NULL && verify != NULL && out != NULL);
    g_assert(object->stored_bytes <= VJ_STORE_OBJECT_MAX);
    vj_lock_assert_none();
    *out = (VjStoreHealed){.loc = object->loc};
    result = op(s, object, verify, opaque, out);
    g_assert(result == -EAGAIN || vj_store_result_is_sound(result));
    g_assert(result != 0 || vj_store_same_loc(s, object->loc, out->loc));
    return result;
}

int vj_store_heal(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                  VjStoreHealed *out)
{
    return run_heal(s, s->ops->heal, object, verify, opaque, out);
}

int vj_store_trim(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                  VjStoreHealed *out)
{
    return run_heal(s, s->ops->trim, object, verify, opaque, out);
}

int vj_store_survey(VjStore *s, const VjPut *puts, size_t count, bool *wants)
{
    int result;

    g_assert(s->ops->survey != NULL && (puts != NULL || count == 0));
    vj_lock_assert_none();
    result = s->ops->survey(s, puts, count, wants);
    g_assert(result == -EAGAIN || vj_store_result_is_sound(result));
    return result;
}

void vj_store_health(VjStore *s, VjStoreHealth *out)
{
    g_assert(s->ops->health != NULL);
    s->ops->health(s, out);
    g_assert(out->live <= out->nodes && out->dead <= out->nodes - out->live);
}

bool vj_store_node(VjStore *s, unsigned index, VjStoreNode *out)
{
    g_assert(s->ops->node != NULL);
    return s->ops->node(s, index, out);
}

bool vj_store_drain(VjStore *s, unsigned index, bool drained)
{
    g_assert(s->ops->drain != NULL);
    return s->ops->drain(s, index, drained);
}

/* ---- changes of the list of nodes -------------------------------------------------- */

/* What was set is what is read again: an address may look like an option. */
static bool reads_the_same(const VjStoreOps *ops, const VjOpts *opts, const char *text,
                           GError **error)
{
    g_autoptr(VjOpts) again = read_options(ops, text, error);
    g_autofree char *second = again != NULL ? vj_opts_spec_text(again) : NULL;
    const VjOptSpec *leader = vj_opts_leader(ops->options);

    return again != NULL &&
           ((strcmp(second, text) == 0 &&
             (leader == NULL || g_strcmp0(vj_opts_string(again, leader->name),
                                          vj_opts_string(opts, leader->name)) == 0)) ||
            vj_error_set(error, EINVAL, "store %s: \"%s\" can be read in two ways",
                         ops->name, text));
}

bool vj_store_change_spec(const char *spec, const VjNodeChange *change, char **out,
                          GError **error)
{
    const char *options = NULL;
    const VjStoreOps *ops = find_ops(vj_store_drivers, "store", spec, &options, error);
    g_autoptr(VjOpts) opts = ops != NULL ? read_options(ops, options, error) : NULL;
    g_autofree char *before = opts != NULL ? vj_opts_spec_text(opts) : NULL;
    g_autofree char *text = NULL;
    g_autofree char *changed = NULL;

    *out = NULL;
    if (opts == NULL) {
        return false;
    }
    if (ops->change_list == NULL) {
        return vj_error_set(error, EOPNOTSUPP, "store %s: it has no list of nodes",
                            ops->name);
    }
    if (!ops->change_list(opts, change, error)) {
        return false;
    }
    text = vj_opts_spec_text(opts);
    if (strcmp(text, before) == 0) {
        *out = g_strdup(spec);
        return true;
    }
    changed = g_strdup_printf("%s:%s", ops->name, text);
    if (!reads_the_same(ops, opts, text, error) || !vj_store_spec_check(changed, error)) {
        return false;
    }
    *out = g_steal_pointer(&changed);
    return true;
}

bool vj_store_change_begin(VjStore *s, const VjNodeChange *change, GError **error)
{
    VjStore *driver = driver_of(s);

    g_assert(driver->ops->change_begin != NULL && driver->ops->change_end != NULL);
    vj_lock_assert_none();
    return driver->ops->change_begin(driver, change, error);
}

void vj_store_change_end(VjStore *s, const VjNodeChange *change, bool is_listed)
{
    VjStore *driver = driver_of(s);

    g_assert(driver->ops->change_end != NULL);
    vj_lock_assert_none();
    driver->ops->change_end(driver, change, is_listed);
}

bool vj_store_loc_names(VjStore *s, VjLoc loc, unsigned index)
{
    VjStore *driver = driver_of(s);

    g_assert(driver->ops->loc_names != NULL);
    return driver->ops->loc_names(driver, loc, index);
}

bool vj_store_loc_at(VjStore *s, VjLoc loc, unsigned index, VjLoc *out)
{
    VjStore *driver = driver_of(s);

    return driver->ops->loc_at != NULL && driver->ops->loc_at(driver, loc, index, out);
}
