/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * unreferenced-put.c - bytes that were put for nothing
 *
 * A write-back that failed leaves objects which no record names.  They are removed on the
 * spot; where that fails too, they are remembered and tried again before each flush of
 * the store, because a store that has lost a put stays failed as long as that put exists.
 * Their id block stays open, so that a mount after a crash finds them as well.
 */
#include "object/object-private.h"

/* @opaque: the id.  0: there is a record. */
static int is_there_body(VjTxn *txn, void *opaque)
{
    const uint64_t *id = opaque;
    VjObject object;

    return vj_object_get(txn, *id, &object);
}

/* 0: there are no such bytes any more, or a record names them. */
static int end_one(VjObjects *o, const VjUnreferencedPut *s)
{
    uint64_t id = s->id;
    int rc = -ENOENT;

    if (s->is_taken) {
        /* Looked up and not concluded: the outcome of a failed commit may be unknown. */
        rc = vj_meta_view(o->meta, is_there_body, &id);
    }
    if (rc == -ENOENT) {
        vj_cache_drop(&o->cache, s->id);
        rc = vj_object_remove_unnamed(o, &(VjPut){.id = s->id, .loc = s->loc});
        if (rc == 0) {
            vj_objects_count(o, removed, 1);
        }
    }
    return rc;
}

static bool remember(VjInflight *t, const VjUnreferencedPut *s)
{
    bool room;

    vj_mutex_lock(&t->lock);
    room = t->unreferenced->len < VJ_UNREFERENCED_PUTS_MAX;
    if (room) {
        g_array_append_vals(t->unreferenced, s, 1);
    }
    vj_mutex_unlock(&t->lock);
    return room;
}

void vj_unreferenced_put_end(VjObjects *o, const VjUnreferencedPut *put)
{
    int rc = end_one(o, put);

    if (rc < 0) {
        vj_log_warn("object %" G_GUINT64_FORMAT ": not referenced, removed %s: %s",
                    put->id, remember(&o->inflight, put) ? "later" : "at the next mount",
                    g_strerror(-rc));
    }
    vj_id_resolve(o, put->id, rc < 0);
}

void vj_unreferenced_puts_retry(VjObjects *o)
{
    VjInflight *t = &o->inflight;
    g_autoptr(GArray) puts = NULL;

    vj_mutex_lock(&t->lock);
    if (t->unreferenced->len > 0) {
        puts = t->unreferenced;
        t->unreferenced = g_array_new(FALSE, FALSE, sizeof(VjUnreferencedPut));
    }
    vj_mutex_unlock(&t->lock);
    for (guint i = 0; puts != NULL && i < puts->len; i++) {
        const VjUnreferencedPut *s = &g_array_index(puts, VjUnreferencedPut, i);

        if (end_one(o, s) < 0 && !remember(t, s)) {
            vj_log_warn("object %" G_GUINT64_FORMAT ": removed at the next mount", s->id);
        }
    }
}

int vj_objects_flush(VjObjects *o)
{
    vj_unreferenced_puts_retry(o);
    return vj_store_flush(o->store);
}
