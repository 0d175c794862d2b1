/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * meta.c - opening and wrapping engines, the asserting callers
 *
 * No other file calls through VjMetaOps: the callers here assert what the caller promised
 * before and what the engine promised after.
 */
#include "meta/meta-private.h"
#include "meta/shared-private.h"

#include <fcntl.h>
#include <sys/stat.h>

static const VjMetaOps *const wrappers[] = {
    &vj_meta_fault_ops,
    &vj_meta_stats_ops,
    NULL,
};

/* ---- Open, wrap, close ----------------------------------------------------------- */

/* @spec without its options. */
static char *spec_name(const char *spec)
{
    return g_strndup(spec, strcspn(spec, ":"));
}

static const VjEngineOps *const engine_wrappers[] = {
    &vj_engine_latency_ops,
    &vj_engine_crash_ops,
    NULL,
};

static const VjEngineOps *find_engine(const VjEngineOps *const table[], const char *name)
{
    for (size_t i = 0; table[i] != NULL; i++) {
        if (strcmp(table[i]->name, name) == 0) {
            return table[i];
        }
    }
    return NULL;
}

static const VjMetaOps *find_wrapper(const char *name)
{
    for (size_t i = 0; wrappers[i] != NULL; i++) {
        if (strcmp(wrappers[i]->name, name) == 0) {
            return wrappers[i];
        }
    }
    return NULL;
}

static bool refuse_name(const char *name, GError **error)
{
    return vj_error_set(error, EINVAL, "meta: there is no \"%s\"", name);
}

/* The options in @spec; owned, NULL with one line. */
static VjOpts *read_options(const char *spec, const VjOptSpec *options, GError **error)
{
    const char *colon = strchr(spec, ':');
    g_autoptr(VjOpts) opts = vj_opts_new(options);

    if (colon != NULL && !vj_opts_parse_spec(opts, colon + 1, error)) {
        g_autofree char *name = spec_name(spec);

        vj_error_prefix(error, "meta %s", name);
        return NULL;
    }
    return g_steal_pointer(&opts);
}

bool vj_meta_open(const char *spec, const VjMetaPlace *place, VjMeta **out,
                  GError **error)
{
    g_autofree char *name = spec_name(spec);
    const VjEngineOps *ops = find_engine(vj_engine_drivers, name);
    g_autoptr(VjOpts) opts = NULL;

    g_assert(place != NULL);
    *out = NULL;
    if (ops == NULL) {
        return refuse_name(name, error);
    }
    opts = read_options(spec, ops->options, error);
    return opts != NULL && (vj_session_open(ops, place, opts, out, error) ||
                            vj_error_prefix(error, "meta %s", name));
}

VjEngine *vj_engine_open_spec(const char *spec, const VjMetaPlace *place, GError **error)
{
    g_autofree char *name = spec_name(spec);
    const VjEngineOps *ops = find_engine(vj_engine_drivers, name);
    g_autoptr(VjOpts) opts = NULL;
    VjEngine *e;

    if (ops == NULL) {
        refuse_name(name, error);
        return NULL;
    }
    opts = read_options(spec, ops->options, error);
    e = opts == NULL ? NULL : vj_engine_open(ops, NULL, place, opts, error);
    if (e == NULL && opts != NULL) {
        vj_error_prefix(error, "meta %s", name);
    }
    return e;
}

VjEngine *vj_engine_wrap(const char *spec, VjEngine *next, GError **error)
{
    g_autofree char *name = spec_name(spec);
    const VjEngineOps *ops = find_engine(engine_wrappers, name);
    g_autoptr(VjOpts) opts = NULL;

    if (ops == NULL) {
        refuse_name(name, error);
        return NULL;
    }
    opts = read_options(spec, ops->options, error);
    return opts == NULL ? NULL : vj_engine_open(ops, next, NULL, opts, error);
}

bool vj_meta_spec_check(const char *spec, GError **error)
{
    g_autofree char *name = spec_name(spec);
    const VjEngineOps *ops = find_engine(vj_engine_drivers, name);
    g_autoptr(VjOpts) opts = NULL;

    if (ops == NULL) {
        return refuse_name(name, error);
    }
    opts = read_options(spec, ops->options, error);
    return opts != NULL && (ops->check == NULL || ops->check(opts, error) ||
                            vj_error_prefix(error, "meta %s", name));
}

bool vj_meta_forgets(const char *spec)
{
    g_autofree char *name = spec_name(spec);
    const VjEngineOps *ops = find_engine(vj_engine_drivers, name);

    return ops != NULL && (ops->flags & VJ_ENGINE_FORGETS) != 0;
}

uint32_t vj_meta_needs(const char *spec)
{
    g_autofree char *name = spec_name(spec);
    const VjEngineOps *ops = find_engine(vj_engine_drivers, name);
    g_autoptr(VjOpts) opts = NULL;

    if (ops == NULL) {
        return 0;
    }
    opts = ops->needs_of != NULL ? read_options(spec, ops->options, NULL) : NULL;
    return opts != NULL ? ops->needs_of(opts) : ops->needs;
}

void vj_meta_files(const char *spec, VjOptFiles *files)
{
    g_autofree char *name = spec_name(spec);
    const VjEngineOps *ops = find_engine(vj_engine_drivers, name);
    g_autoptr(VjOpts) opts = ops != NULL ? read_options(spec, ops->options, NULL) : NULL;

    if (opts != NULL) {
        vj_opts_files(opts, files);
    }
}

static bool wrap(const VjMetaOps *ops, const VjOpts *opts, VjMeta *next, VjMeta **out,
                 GError **error)
{
    g_autofree VjMeta *m = NULL;

    g_assert(ops->instance_size >= sizeof(VjMeta) && ops->txn_size >= sizeof(VjTxn));
    m = g_malloc0(ops->instance_size);
    m->ops = ops;
    m->next = next;
    if (!ops->open(m, opts, error)) {
        return vj_error_prefix(error, "meta %s", ops->name);
    }
    *out = g_steal_pointer(&m);
    return true;
}

static bool wrap_engine(const char *spec, const VjEngineOps *ops, VjMeta *m, VjMeta **out,
                        GError **error)
{
    g_autoptr(VjOpts) opts = read_options(spec, ops->options, error);

    if (opts == NULL || !vj_session_wrap_engine(m, ops, opts, error)) {
        return false;
    }
    *out = m;
    return true;
}

bool vj_meta_wrap(const char *spec, VjMeta *next, VjMeta **out, GError **error)
{
    g_autofree char *name = spec_name(spec);
    const VjMetaOps *ops = find_wrapper(name);
    const VjEngineOps *below = find_engine(engine_wrappers, name);
    g_autoptr(VjOpts) opts = NULL;

    g_assert(next != NULL);
    *out = NULL;
    if (below != NULL) {
        return wrap_engine(spec, below, next, out, error);
    }
    if (ops == NULL) {
        return refuse_name(name, error);
    }
    opts = read_options(spec, ops->options, error);
    return opts != NULL && wrap(ops, opts, next, out, error);
}

int vj_meta_close(VjMeta *m)
{
    int rc = 0;

    while (m != NULL) {
        VjMeta *next = m->next;
        int one = m->ops->close(m);

        g_assert(one <= 0);
        rc = rc != 0 ? rc : one;
        g_free(m);
        m = next;
    }
    return rc;
}

VjMeta *vj_meta_find(VjMeta *m, const VjMetaOps *ops)
{
    while (m != NULL && m->ops != ops) {
        m = m->next;
    }
    return m;
}

/* ---- Files that no session has open; copies --------------------------------------- */

const char *vj_meta_file(const char *spec)
{
    g_autofree char *name = spec_name(spec);
    const VjEngineOps *ops = find_engine(vj_engine_drivers, name);

    return ops != NULL ? ops->file : NULL;
}

int vj_meta_file_bytes(const char *spec, const VjMetaPlace *place, uint64_t *bytes)
{
    const char *file = vj_meta_file(spec);
    struct stat st;

    *bytes = 0;
    if (file == NULL) {
        return -EOPNOTSUPP;
    }
    if (fstatat(place->dir_fd, file, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return -errno;
    }
    *bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    return 0;
}

int vj_meta_examine(const char *spec, const VjMetaPlace *place, int fd, VjMetaFlaw *say,
                    void *opaque, VjMetaExam *out)
{
    g_autofree char *name = spec_name(spec);
    const VjEngineOps *ops = find_engine(vj_engine_drivers, name);
    int rc;

    g_assert(place != NULL && out != NULL);
    *out = (VjMetaExam){0};
    if (ops == NULL || ops->examine == NULL) {
        return -EOPNOTSUPP;
    }
    rc = ops->examine(place, fd, say, opaque, out);
    g_assert(rc <= 0);
    return rc;
}

bool vj_meta_restore(const char *spec, const VjMetaPlace *place, int fd, uint64_t bytes,
                     const char *keep, bool *replaced, GError **error)
{
    g_autofree char *name = spec_name(spec);
    const VjEngineOps *ops = find_engine(vj_engine_drivers, name);

    g_assert(place != NULL && fd >= 0 && keep != NULL);
    *replaced = false;
    if (ops == NULL || ops->restore == NULL) {
        return vj_error_set(error, EOPNOTSUPP, "meta %s: it has no checkpoints", name);
    }
    return ops->restore(place, fd, bytes, keep, replaced, error) ||
           vj_error_prefix(error, "meta %s", name);
}

/* The session; wrappers count and fail transactions, and none of these is one. */
static VjMeta *innermost(VjMeta *m)
{
    while (m->next != NULL) {
        m = m->next;
    }
    return m;
}

bool vj_meta_is_far(VjMeta *m)
{
    return vj_session_of(m)->cache != NULL;
}

bool vj_meta_is_leased(VjMeta *m)
{
    return vj_session_of(m)->leased != NULL;
}

void vj_meta_log_stats(VjMeta *m, VjMetaLogStats *out)
{
    *out = (VjMetaLogStats){0};
    m = innermost(m);
    if (m->ops->log_stats != NULL) {
        m->ops->log_stats(m, out);
    }
}

void vj_meta_calls(VjMeta *m, VjMetaCalls *out)
{
    vj_engine_latency_calls(vj_session_of(m)->engine, out);
}

void vj_meta_traffic(VjMeta *m, VjMetaTraffic *out)
{
    vj_engine_traffic(vj_session_of(m)->engine, out);
}

static void end_crashed(void *opaque)
{
    vj_shared_shut_out(opaque, "the test lets it crash");
}

void vj_meta_crash_after(VjMeta *m, uint64_t calls, bool is_done)
{
    VjSession *s = vj_session_of(m);
    VjEngineCrash how = {
        .calls = calls, .is_done = is_done, .crashed = end_crashed, .opaque = s};

    g_assert(vj_session_is_shared(s));
    vj_engine_crash_at(s->engine, &how);
}

bool vj_meta_has_crashed(VjMeta *m)
{
    return vj_engine_has_crashed(vj_session_of(m)->engine);
}

int vj_meta_save(VjMeta *m, int fd, VjMetaSaved *out)
{
    int rc;

    g_assert(fd >= 0 && out != NULL);
    vj_lock_assert_none();
    m = innermost(m);
    if (m->ops->save == NULL) {
        return -EOPNOTSUPP;
    }
    rc = m->ops->save(m, fd, out);
    g_assert(rc <= 0 && rc != -EAGAIN && rc != -EINTR);
    return rc;
}

/* ---- Transactions ---------------------------------------------------------------- */

int vj_meta_begin(VjMeta *m, const VjTxn *like, VjTxn **txn)
{
    g_autofree VjTxn *t = NULL;
    int rc;

    g_assert(m != NULL && txn != NULL);
    g_assert(like->write || (!like->release && !like->background));
    *txn = NULL;
    t = g_try_malloc0(m->ops->txn_size);
    if (t == NULL) {
        return -ENOMEM;
    }
    t->meta = m;
    t->write = like->write;
    t->release = like->release;
    t->background = like->background;
    t->until_us = like->until_us != 0 ? like->until_us : vj_cancel_deadline_us();
    rc = m->ops->begin(m, t);
    g_assert(rc <= 0 && rc != -EAGAIN && rc != -EINTR);
    if (rc == 0) {
        g_assert(t->meta == m && t->write == like->write && t->verdict == 0);
        *txn = g_steal_pointer(&t);
    }
    return rc;
}

int vj_txn_commit(VjTxn *txn)
{
    int rc;

    g_assert(txn != NULL && txn->write);
    rc = txn->meta->ops->commit(txn);
    g_assert(rc <= 0 && rc != -EINTR);
    g_free(txn);
    return rc;
}

int vj_txn_abort(VjTxn *txn)
{
    int verdict;

    g_assert(txn != NULL);
    txn->meta->ops->abort(txn);
    verdict = txn->verdict;
    g_assert(verdict <= 0 && verdict != -ENOENT);
    g_free(txn);
    return verdict;
}

int vj_meta_flush(VjMeta *m)
{
    int rc;

    vj_lock_assert_none();
    rc = m->ops->flush(m);
    g_assert(rc <= 0 && rc != -EAGAIN && rc != -EINTR);
    return rc;
}

int vj_meta_send(VjMeta *m)
{
    int rc;

    vj_lock_assert_none();
    rc = m->ops->send != NULL ? m->ops->send(m) : 0;
    g_assert(rc <= 0);
    return rc;
}

void vj_meta_flush_join(VjMeta *m, VjFlushWait *w)
{
    vj_lock_assert_none();
    g_assert(w->done != NULL);
    if (m->ops->flush_join != NULL) {
        m->ops->flush_join(m, w);
    } else {
        w->done(w, vj_meta_flush(m));
    }
}

int vj_meta_count(VjMeta *m, VjSpace space, uint64_t *out)
{
    int rc;

    g_assert((unsigned)space < VJ_SPACE_COUNT && out != NULL);
    rc = m->ops->count(m, space, out);
    g_assert(rc <= 0 && rc != -EAGAIN && rc != -EINTR);
    return rc;
}

static void assert_place(const VjTxn *txn, VjSpace space, VjSlice key, bool may_be_empty)
{
    g_assert(txn != NULL);
    g_assert((unsigned)space < VJ_SPACE_COUNT);
    g_assert(key.len <= VJ_META_KEY_MAX && (key.data != NULL || key.len == 0));
    g_assert(key.len > 0 || may_be_empty);
}

/* What a read may return: -EAGAIN only where the body runs again for it. */
static void assert_read(const VjTxn *txn, int rc)
{
    g_assert(rc <= 0 && (rc != -EAGAIN || txn->verdict == -EAGAIN));
}

int vj_txn_get(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value)
{
    int rc;

    assert_place(txn, space, key, false);
    rc = txn->meta->ops->get(txn, space, key, value);
    assert_read(txn, rc);
    g_assert(rc != 0 || value->len <= VJ_META_VALUE_MAX);
    return rc;
}

int vj_txn_put(VjTxn *txn, VjSpace space, VjSlice key, VjSlice value)
{
    int rc;

    assert_place(txn, space, key, false);
    g_assert(txn->write);
    g_assert(value.len <= VJ_META_VALUE_MAX && (value.data != NULL || value.len == 0));
    rc = txn->meta->ops->put(txn, space, key, value);
    g_assert(rc <= 0 && rc != -EAGAIN && rc != -ENOENT);
    return rc;
}

int vj_txn_del(VjTxn *txn, VjSpace space, VjSlice key)
{
    int rc;

    assert_place(txn, space, key, false);
    g_assert(txn->write);
    rc = txn->meta->ops->del(txn, space, key);
    assert_read(txn, rc);
    return rc;
}

int vj_txn_next(VjTxn *txn, VjSpace space, VjSlice after, VjSlice *key, VjSlice *value)
{
    int rc;

    assert_place(txn, space, after, true);
    rc = txn->meta->ops->next(txn, space, after, key, value);
    assert_read(txn, rc);
    g_assert(rc != 0 || (key->len > 0 && key->len <= VJ_META_KEY_MAX));
    return rc;
}

int vj_txn_prev(VjTxn *txn, VjSpace space, VjSlice before, VjSlice *key, VjSlice *value)
{
    int rc;

    assert_place(txn, space, before, true);
    rc = txn->meta->ops->prev(txn, space, before, key, value);
    assert_read(txn, rc);
    g_assert(rc != 0 || (key->len > 0 && key->len <= VJ_META_KEY_MAX));
    return rc;
}

void vj_txn_expect(VjTxn *txn, const VjKey *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_place(txn, keys[i].space, keys[i].key, false);
    }
    if (count > 0 && txn->meta->ops->expect != NULL) {
        txn->meta->ops->expect(txn, keys, count);
    }
}

void vj_txn_expect_run(VjTxn *txn, VjSpace space, VjSlice after, size_t count)
{
    assert_place(txn, space, after, true);
    if (count > 0 && txn->meta->ops->expect_run != NULL) {
        txn->meta->ops->expect_run(txn, space, after, count);
    }
}

bool vj_txn_is_far(VjTxn *txn, VjKey key)
{
    assert_place(txn, key.space, key.key, false);
    return txn->meta->ops->is_far != NULL && txn->meta->ops->is_far(txn, key);
}

void vj_wrap_expect(VjTxn *txn, const VjKey *keys, size_t count)
{
    vj_txn_expect(txn->next, keys, count);
}

bool vj_wrap_is_far(VjTxn *txn, VjKey key)
{
    return vj_txn_is_far(txn->next, key);
}

void vj_wrap_expect_run(VjTxn *txn, VjSpace space, VjSlice after, size_t count)
{
    vj_txn_expect_run(txn->next, space, after, count);
}

/* ---- Scans ----------------------------------------------------------------------- */

void vj_scan_begin(VjScan *s, VjTxn *txn, VjSpace space, VjSlice prefix)
{
    s->txn = txn;
    s->space = space;
    s->prefix_bytes = 0;
    s->error = 0;
    vj_scan_behind(s, prefix);
    s->prefix_bytes = prefix.len;
}

void vj_scan_behind(VjScan *s, VjSlice key)
{
    g_assert(key.len >= s->prefix_bytes && key.len <= sizeof s->at);
    g_assert(s->prefix_bytes == 0 || memcmp(key.data, s->at, s->prefix_bytes) == 0);
    if (key.len > 0) {
        memmove(s->at, key.data, key.len);
    }
    s->key = vj_slice(s->at, key.len);
}

bool vj_scan_next(VjScan *s)
{
    VjSlice key;
    int rc = vj_txn_next(s->txn, s->space, s->key, &key, &s->value);

    if (rc < 0) {
        s->error = rc == -ENOENT ? 0 : rc;
        return false;
    }
    if (key.len <= s->prefix_bytes ||
        (s->prefix_bytes > 0 && memcmp(key.data, s->at, s->prefix_bytes) != 0)) {
        return false;
    }
    vj_scan_behind(s, key);
    return true;
}
