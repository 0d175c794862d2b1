/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * put-queue.c - chunks of one write-back in the volume's workers
 *
 * A worker hashes, looks up, transforms and puts (object-store.c).  The queue of one
 * write-back is bounded by bytes; the pool is shared by all of them.  The thread that
 * cuts keeps the last chunk and stores it itself: it would only wait, and a small file
 * wakes no worker.
 */
#include "file/write-back-private.h"

/* The thread that waits for room is woken when there is room for a good deal more. */
#define ROOM_BYTES (VJ_PUT_QUEUE_MAX / 2)

typedef struct VjPutJob {
    VjPutQueue
        *queue; /* atomic, stored last: checkers of races do not know GLib's queue */
    VjOut *out;
    const uint8_t *data;
    size_t len;
    VjBuf *holder;
    size_t neighbour_count;
    VjObject neighbours[VJ_NEIGHBOURS];
} VjPutJob;

void vj_put_queue_init(VjPutQueue *q, VjFileTable *table, const VjTransform *want)
{
    *q = (VjPutQueue){.table = table, .want = *want};
    vj_mutex_init(&q->lock, VJ_RANK_FILE_QUEUE, "file.put-queue");
    vj_cond_init(&q->done);
}

void vj_put_queue_clear(VjPutQueue *q)
{
    g_assert(q->waiting_jobs == 0 && q->held == NULL);
    vj_cond_clear(&q->done);
    vj_mutex_clear(&q->lock);
}

void vj_put_worker(gpointer data, gpointer volume)
{
    VjPutJob *job = data;
    VjFileTable *table = volume;
    VjPutQueue *q = g_atomic_pointer_get(&job->queue);
    bool skip;
    int r = 0;

    vj_mutex_lock(&q->lock);
    skip = q->error != 0;
    vj_mutex_unlock(&q->lock);
    if (!skip) {
        r = vj_object_store(table->objects, job->data, (uint32_t)job->len, &q->want,
                            job->neighbours, job->neighbour_count, &job->out->pending);
    }
    vj_buf_unref(job->holder);
    vj_mutex_lock(&q->lock);
    if (r < 0 && q->error == 0) {
        q->error = r;
    }
    q->waiting_bytes -= job->len;
    q->waiting_jobs--;
    if (q->waiting_jobs == 0 || q->waiting_bytes <= ROOM_BYTES || q->error != 0) {
        vj_cond_broadcast(&q->done);
    }
    vj_mutex_unlock(&q->lock);
    g_free(job);
}

static void hand_over(VjPutQueue *q)
{
    VjPutJob *job = g_steal_pointer(&q->held);

    if (job != NULL) {
        g_thread_pool_push(q->table->workers, job,
                           NULL); /* queues even if no thread can start */
    }
}

int vj_put_queue_add(VjPutQueue *q, VjOut *out, const uint8_t *data, size_t len,
                     VjBuf *holder, const VjObject *neighbours, size_t neighbour_count)
{
    VjPutJob *job;
    int r;

    hand_over(q);
    vj_mutex_lock(&q->lock);
    while (q->error == 0 && q->waiting_bytes > 0 &&
           q->waiting_bytes + len > VJ_PUT_QUEUE_MAX) {
        vj_cond_wait(&q->done, &q->lock);
    }
    r = q->error;
    if (r == 0) {
        q->waiting_bytes += len;
        q->waiting_jobs++;
    }
    vj_mutex_unlock(&q->lock);
    if (r < 0) {
        vj_buf_unref(holder);
        return r;
    }
    job = g_new(VjPutJob, 1);
    job->out = out;
    job->data = data;
    job->len = len;
    job->holder = holder;
    job->neighbour_count = MIN(neighbour_count, VJ_NEIGHBOURS);
    if (job->neighbour_count > 0) {
        memcpy(job->neighbours, neighbours, job->neighbour_count * sizeof *neighbours);
    }
    g_atomic_pointer_set(&job->queue, q);
    q->held = job;
    return 0;
}

int vj_put_queue_drain(VjPutQueue *q)
{
    int r;

    if (q->held != NULL) {
        vj_put_worker(g_steal_pointer(&q->held), q->table);
    }
    vj_mutex_lock(&q->lock);
    while (q->waiting_jobs > 0) {
        vj_cond_wait(&q->done, &q->lock);
    }
    r = q->error;
    vj_mutex_unlock(&q->lock);
    return r;
}
