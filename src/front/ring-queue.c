/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ring-queue.c - requests that wait for a thread of vj_rings_take
 */
#include "front/ring-inside-private.h"

VjRingHead vj_ring_head(const VjRingEntry *e)
{
    VjRingHead out;

    memcpy(&out.head, e->headers->in_out, sizeof out.head);
    out.payload_bytes = e->headers->entry.payload_bytes;
    out.op = e->headers->op;
    out.op_bytes = out.head.len - sizeof out.head - out.payload_bytes;
    g_assert(out.head.len >= sizeof out.head + out.payload_bytes);
    g_assert(out.op_bytes <= sizeof e->headers->op &&
             out.payload_bytes <= VJ_FRONT_IO_MAX);
    return out;
}

size_t vj_ring_copy(const VjRingEntry *e, uint8_t *payload, uint8_t **begin)
{
    VjRingHead h = vj_ring_head(e);

    *begin = payload - h.op_bytes - sizeof h.head;
    memcpy(*begin, &h.head, sizeof h.head);
    memcpy(*begin + sizeof h.head, h.op, h.op_bytes);
    memcpy(payload, e->payload, h.payload_bytes);
    return h.head.len;
}

/* True: there are more than threads that wait for them. */
static bool queue_push(VjRings *r, VjRingEntry *e, unsigned queue)
{
    VjRingHanded *h = &r->handed[queue];
    bool are_too_few;

    vj_mutex_lock(&r->lock);
    g_queue_push_tail(&h->entries, e);
    are_too_few = h->takers < h->entries.length;
    vj_cond_signal(&h->changed);
    vj_mutex_unlock(&r->lock);
    return are_too_few;
}

/* False: a thread has it already. */
static bool queue_remove(VjRings *r, VjRingEntry *e, unsigned queue)
{
    bool found;

    vj_mutex_lock(&r->lock);
    found = g_queue_remove(&r->handed[queue].entries, e);
    vj_mutex_unlock(&r->lock);
    return found;
}

void vj_ring_hand_over(VjRings *r, VjRingEntry *e, unsigned queue)
{
    if (!queue_push(r, e, queue) || r->calls->more(r->opaque, queue) ||
        queue == VJ_RINGS_ANY || !queue_remove(r, e, queue)) {
        return;
    }
    if (queue_push(r, e, VJ_RINGS_ANY)) {
        (void)r->calls->more(r->opaque, VJ_RINGS_ANY);
    }
}

/* A request that waits for a thread. */
typedef struct Queued {
    VjRingEntry *entry;
    uint64_t unique;
    unsigned queue;
    VjRingHead head; /* its bytes are the entry's: they stay until the answer */
} Queued;

static GArray *list_queued(VjRings *r, bool are_too_few[VJ_RINGS_ANY + 1])
{
    GArray *list = g_array_new(FALSE, FALSE, sizeof(Queued));

    vj_mutex_lock(&r->lock);
    for (unsigned i = 0; i <= VJ_RINGS_ANY; i++) {
        const VjRingHanded *h = &r->handed[i];

        are_too_few[i] = h->takers < h->entries.length;
        for (const GList *l = h->entries.head; l != NULL; l = l->next) {
            VjRingEntry *e = l->data;
            Queued one = {e, e->unique, i, vj_ring_head(e)};

            g_array_append_val(list, one);
        }
    }
    vj_mutex_unlock(&r->lock);
    return list;
}

/* The entry may have another request by now. */
static bool take_queued(VjRings *r, const Queued *one)
{
    GQueue *entries = &r->handed[one->queue].entries;
    bool found;

    vj_mutex_lock(&r->lock);
    found =
        g_queue_find(entries, one->entry) != NULL && one->entry->unique == one->unique;
    if (found) {
        g_queue_remove(entries, one->entry);
    }
    vj_mutex_unlock(&r->lock);
    return found;
}

void vj_rings_look(VjRings *r, bool (*in_vain)(const VjRingHead *head))
{
    bool are_too_few[VJ_RINGS_ANY + 1];
    g_autoptr(GArray) list = NULL;

    if (!vj_rings_are_on(r) || g_atomic_int_get(&r->is_closed)) {
        return;
    }
    list = list_queued(r, are_too_few);
    for (guint i = 0; i < list->len; i++) {
        const Queued *one = &g_array_index(list, Queued, i);

        if (in_vain(&one->head) && take_queued(r, one)) {
            struct fuse_out_header out = {
                .len = sizeof out, .error = -EINTR, .unique = one->unique};
            struct iovec iov = {&out, sizeof out};
            size_t bytes;
            bool is_answered = vj_rings_answer(r, &iov, 1, &bytes);

            g_assert(is_answered);
            vj_trace(front, "a caller is killed: %d: it had no thread",
                     (int)one->head.head.pid);
        }
    }
    for (unsigned i = 0; i <= VJ_RINGS_ANY; i++) {
        if (are_too_few[i]) {
            (void)r->calls->more(r->opaque, i);
        }
    }
}

VjRingEntry *vj_rings_take(VjRings *r, unsigned queue)
{
    VjRingHanded *h = &r->handed[queue];
    VjRingEntry *e = NULL;

    vj_mutex_lock(&r->lock);
    h->takers++;
    while (h->entries.length == 0 && !(queue == VJ_RINGS_ANY && r->wakes) &&
           g_atomic_int_get(&r->is_closed) == 0) {
        vj_cond_wait(&h->changed, &r->lock);
    }
    h->takers--;
    if (queue == VJ_RINGS_ANY && r->wakes) {
        r->wakes = false;
    } else {
        e = g_queue_pop_head(&h->entries);
    }
    vj_mutex_unlock(&r->lock);
    return e;
}

void vj_rings_wake(VjRings *r)
{
    vj_mutex_lock(&r->lock);
    r->wakes = true;
    vj_cond_signal(&r->handed[VJ_RINGS_ANY].changed);
    vj_mutex_unlock(&r->lock);
}
