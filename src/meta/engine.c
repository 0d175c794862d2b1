/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * engine.c - the asserting callers of engines, and the lists that they fill
 */
#include "meta/engine.h"

/* ---- Lists ----------------------------------------------------------------------- */

static int make_room(VjItems *items)
{
    size_t room = MAX(8, items->room * 2);
    VjItem *at = g_try_renew(VjItem, items->at, room);

    if (at == NULL) {
        return -ENOMEM;
    }
    items->at = at;
    items->room = room;
    return 0;
}

/* Key and value stand in one block, which begins with the key. */
int vj_items_add(VjItems *items, const VjItem *item)
{
    uint8_t *bytes;
    VjItem *to;

    if (items->count == items->room && make_room(items) < 0) {
        return -ENOMEM;
    }
    bytes = g_try_malloc(item->key.len + item->value.len);
    if (bytes == NULL) {
        return -ENOMEM;
    }
    memcpy(bytes, item->key.data, item->key.len);
    if (item->value.len > 0) {
        memcpy(bytes + item->key.len, item->value.data, item->value.len);
    }
    to = &items->at[items->count++];
    *to = *item;
    to->key.data = bytes;
    to->value.data = bytes + item->key.len;
    return 0;
}

static void truncate_items(VjItems *items, size_t count)
{
    while (items->count > count) {
        g_free((void *)items->at[--items->count].key.data);
    }
}

void vj_items_clear(VjItems *items)
{
    truncate_items(items, 0);
    g_free(items->at);
    *items = (VjItems){0};
}

bool vj_changes_next(const VjBatch *batch, const void **at, VjChange *out)
{
    const VjChanges *all = batch->changes;
    const VjChange *next = *at == NULL ? all->at : (const VjChange *)*at + 1;

    if (next == NULL || next == all->at + all->count) {
        return false;
    }
    *at = next;
    *out = *next;
    return true;
}

/* ---- Callers --------------------------------------------------------------------- */

static void assert_key(VjSpace space, VjSlice key)
{
    g_assert((unsigned)space < VJ_SPACE_COUNT);
    g_assert(key.data != NULL && key.len > 0 && key.len <= VJ_META_KEY_MAX);
}

static void assert_items(const VjItems *items, size_t from)
{
    for (size_t i = from; i < items->count; i++) {
        const VjItem *item = &items->at[i];

        assert_key(item->space, item->key);
        g_assert(item->value.len <= VJ_META_VALUE_MAX);
        g_assert(item->version != 0 || item->value.len == 0);
    }
}

static bool is_failure(int rc)
{
    return rc < 0 && rc != -EINTR && rc != -ENOENT && rc != -EAGAIN && rc != -ESTALE;
}

VjEngine *vj_engine_open(const VjEngineOps *ops, VjEngine *next, const VjMetaPlace *place,
                         const VjOpts *opts, GError **error)
{
    g_autofree VjEngine *e = NULL;

    g_assert(ops->instance_size >= sizeof(VjEngine));
    g_assert((ops->reserve == NULL) == (ops->empty_apply_helps == NULL));
    e = g_malloc0(ops->instance_size);
    e->ops = ops;
    e->next = next;
    return ops->open(e, place, opts, error) ? g_steal_pointer(&e) : NULL;
}

int vj_engine_close(VjEngine *e, bool in_order)
{
    int rc = 0;

    while (e != NULL) {
        VjEngine *next = e->next;
        int one = e->ops->close(e, in_order);

        g_assert(one <= 0);
        rc = rc != 0 ? rc : one;
        g_free(e);
        e = next;
    }
    return rc;
}

int vj_engine_get_many(VjEngine *e, const VjKey *keys, size_t count, VjItems *out,
                       int64_t deadline_us)
{
    size_t before = out->count;
    int rc;

    for (size_t i = 0; i < count; i++) {
        assert_key(keys[i].space, keys[i].key);
    }
    rc = e->ops->get_many(e, keys, count, out, deadline_us);
    g_assert(rc == 0 || is_failure(rc));
    if (rc < 0) {
        truncate_items(out, before);
        return rc;
    }
    g_assert(out->count == before + count);
    assert_items(out, before);
    return 0;
}

int vj_engine_scan(VjEngine *e, const VjRange *range, size_t limit, VjItems *out,
                   bool *more, int64_t deadline_us)
{
    size_t before = out->count;
    int rc;

    g_assert(limit > 0 && limit <= VJ_SCAN_ITEMS_MAX);
    g_assert((unsigned)range->space < VJ_SPACE_COUNT);
    *more = false;
    rc = e->ops->scan(e, range, limit, out, more, deadline_us);
    g_assert(rc == 0 || is_failure(rc));
    if (rc < 0) {
        truncate_items(out, before);
        return rc;
    }
    g_assert(out->count - before <= limit && (!*more || out->count > before));
    assert_items(out, before);
    return 0;
}

int vj_engine_apply(VjEngine *e, const VjBatch *batch, VjItems *fresh,
                    int64_t deadline_us)
{
    size_t before = fresh != NULL ? fresh->count : 0;
    int rc;

    g_assert(batch->next != NULL && (batch->check_count == 0 || fresh != NULL));
    g_assert(!batch->is_received || (vj_engine_receives(e) && batch->fence != NULL));
    g_assert(!batch->is_received || (batch->check_count == 0 && batch->number > 0));
    g_assert(batch->after <= (batch->is_received ? batch->number : 0));
    vj_lock_assert_none();
    rc = e->ops->apply(e, batch, fresh, deadline_us);
    g_assert(rc == 0 || is_failure(rc) || rc == -EAGAIN || rc == -ESTALE);
    g_assert(rc != -ESTALE || batch->fence != NULL);
    if (batch->is_received) {
        g_assert(rc != -EAGAIN || batch->after > 0);
    } else if (rc == -EAGAIN) {
        g_assert(fresh->count == before + batch->check_count);
        assert_items(fresh, before);
    } else if (fresh != NULL) {
        truncate_items(fresh, before);
    }
    return rc;
}

int vj_engine_count(VjEngine *e, VjSpace space, uint64_t *out)
{
    int rc = e->ops->count(e, space, out);

    g_assert(rc == 0 || is_failure(rc));
    return rc;
}

int vj_engine_watch(VjEngine *e, VjEngineWatch *changed, void *opaque, bool *is_prompt)
{
    int rc;

    *is_prompt = false;
    vj_lock_assert_none();
    rc = e->ops->watch == NULL ? -EOPNOTSUPP
                               : e->ops->watch(e, changed, opaque, is_prompt);
    g_assert(rc == 0 || is_failure(rc));
    return rc;
}

int64_t vj_engine_clock_us(VjEngine *e, int64_t deadline_us)
{
    return e->ops->clock_us(e, deadline_us);
}

bool vj_engine_receives(const VjEngine *e)
{
    while (e->next != NULL) {
        e = e->next;
    }
    return (e->ops->flags & VJ_ENGINE_RECEIVES) != 0;
}

/* ---- Snapshots ------------------------------------------------------------------- */

bool vj_engine_has_snapshots(const VjEngine *e)
{
    while ((e->ops->flags & VJ_ENGINE_PASSES_SNAPSHOTS) != 0) {
        e = e->next;
    }
    return e->ops->snapshot_new != NULL;
}

int vj_engine_snapshot_new(VjEngine *e, VjEngineSnapshot **out)
{
    int rc;

    *out = NULL;
    if (e->ops->snapshot_new == NULL) {
        return 0;
    }
    rc = e->ops->snapshot_new(e, out);
    g_assert(rc == 0 ? *out == NULL || (*out)->engine == e : is_failure(rc));
    return rc;
}

int vj_engine_snapshot_prepare(VjEngineSnapshot *s)
{
    int rc = s->engine->ops->snapshot_prepare(s);

    g_assert(rc == 0 || is_failure(rc));
    return rc;
}

int vj_engine_snapshot_take(VjEngineSnapshot *s)
{
    int rc = s->engine->ops->snapshot_take(s);

    g_assert(rc == 0 || rc == -EAGAIN || is_failure(rc));
    return rc;
}

void vj_engine_snapshot_release(VjEngineSnapshot *s)
{
    s->engine->ops->snapshot_release(s);
}

void vj_engine_snapshot_free(VjEngineSnapshot *s)
{
    s->engine->ops->snapshot_free(s);
}

int vj_engine_snapshot_get(VjEngineSnapshot *s, VjSpace space, VjSlice key,
                           VjSlice *value, uint64_t *version)
{
    int rc = s->engine->ops->snapshot_get(s, space, key, value, version);

    g_assert(rc <= 0 && rc != -EAGAIN);
    return rc;
}

int vj_engine_snapshot_near(VjEngineSnapshot *s, VjSpace space, VjSlice from,
                            bool forward, VjSlice *key, VjSlice *value, uint64_t *version)
{
    int rc = s->engine->ops->snapshot_near(s, space, from, forward, key, value, version);

    g_assert(rc == 0 ? key->len > 0 && key->len <= VJ_META_KEY_MAX : rc != -EAGAIN);
    return rc;
}

/* ---- Room, the log, copies --------------------------------------------------------- */

int vj_engine_reserve(VjEngine *e, const VjLoad *load, bool release)
{
    int rc = e->ops->reserve == NULL ? 0 : e->ops->reserve(e, load, release);

    g_assert(rc == 0 || is_failure(rc));
    return rc;
}

bool vj_engine_empty_apply_helps(VjEngine *e)
{
    return e->ops->empty_apply_helps != NULL && e->ops->empty_apply_helps(e);
}

uint64_t vj_engine_apply_bytes(VjEngine *e, const VjTally tally[VJ_SPACE_COUNT])
{
    return e->ops->apply_bytes == NULL ? 0 : e->ops->apply_bytes(e, tally);
}

bool vj_engine_log(VjEngine *e, VjEngineLog *out, VjRedoPoint *point)
{
    *out = (VjEngineLog){.dir_fd = -1};
    if (e->ops->log == NULL) {
        return false;
    }
    e->ops->log(e, out, point);
    g_assert(out->dir_fd >= 0);
    return true;
}

void vj_engine_traffic(VjEngine *e, VjMetaTraffic *out)
{
    *out = (VjMetaTraffic){0};
    while (e->next != NULL) {
        e = e->next;
    }
    if (e->ops->traffic != NULL) {
        e->ops->traffic(e, out);
    }
}

void vj_engine_rewritten(VjEngine *e, VjEngineRewrites *out)
{
    *out = (VjEngineRewrites){0};
    while (e->next != NULL) {
        e = e->next;
    }
    if (e->ops->rewritten != NULL) {
        e->ops->rewritten(e, out);
    }
}

int vj_engine_save(VjEngine *e, int fd, VjMetaSaved *out)
{
    int rc = e->ops->save == NULL ? -EOPNOTSUPP : e->ops->save(e, fd, out);

    g_assert(rc <= 0 && rc != -EAGAIN && rc != -EINTR);
    return rc;
}
