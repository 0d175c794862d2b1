/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * put-queue.c - chunks of one write-back in the volume's workers
 *
 * A worker hashes, looks up, transforms and puts (object-store.c); where the index is
 * far, several chunks with one question.  The queue of one write-back is bounded by
 * bytes; the pool is shared by all of them.  The thread that cuts keeps the last chunk
 * and stores it itself: it would only wait, and a small file wakes no worker.
 *
 * A write-back has at most as many calls in the pool as that has threads.  A call takes
 * chunk after chunk, so that a worker need not be woken for each; after some it goes to
 * the end of the pool's queue.  So another write-back waits for some chunks of a stream,
 * and not for all of its queue.
 */
#include "file/write-back-private.h"

/* The thread that waits for room is woken when there is room for a good deal more. */
#define ROOM_BYTES (VJ_PUT_QUEUE_MAX / 2)

/* What a worker takes at a time where the index is far: it asks once for all of them. */
#define TOGETHER 8u

typedef struct VjPutJob {
    GList link; /* in queue.jobs */
    VjOut *out;
    VjPlain content; /* with its holder, which is owned */
    size_t neighbour_count;
    VjObject neighbours[VJ_NEIGHBOURS];
} VjPutJob;

void vj_put_queue_init(VjPutQueue *q, VjFileTable *table, const VjTransform *want)
{
    *q = (VjPutQueue){.table = table, .want = *want};
    vj_mutex_init(&q->lock, VJ_RANK_FILE_QUEUE, "file.put-queue");
    vj_cond_init(&q->done);
    g_queue_init(&q->jobs);
    g_atomic_pointer_set(&q->self, q);
}

void vj_put_queue_clear(VjPutQueue *q)
{
    g_assert(q->waiting_jobs == 0 && q->calls == 0 && q->held == NULL);
    vj_cond_clear(&q->done);
    vj_mutex_clear(&q->lock);
}

/* Consumes @job, whose content has its digest if @r is 0; its result is @r otherwise. */
static void store_job(VjPutQueue *q, VjFileTable *table, VjPutJob *job, int r)
{
    if (r == 0) {
        r = vj_object_store(table->objects, &job->content, &q->want, job->neighbours,
                            job->neighbour_count, &job->out->pending);
    }
    vj_buf_unref(job->content.holder);
    vj_mutex_lock(&q->lock);
    if (r < 0 && q->error == 0) {
        q->error = r;
    }
    q->waiting_bytes -= job->content.len;
    q->waiting_jobs--;
    if (q->waiting_jobs == 0 || q->waiting_bytes <= ROOM_BYTES || q->error != 0) {
        vj_cond_broadcast(&q->done);
    }
    vj_mutex_unlock(&q->lock);
    g_free(job);
}

/* @skip: an earlier one has failed. */
static void store_jobs(VjPutQueue *q, VjFileTable *table, VjPutJob **jobs, size_t count,
                       bool skip)
{
    const VjPlain *contents[TOGETHER];
    int results[TOGETHER];
    size_t named = 0;

    for (size_t i = 0; i < count; i++) {
        results[i] =
            skip ? -ECANCELED : vj_plain_digest(table->objects, &jobs[i]->content);
        if (results[i] == 0) {
            contents[named++] = &jobs[i]->content;
        }
    }
    if (named > 1) {
        vj_plain_expect(table->objects, &q->want, contents, named);
    }
    for (size_t i = 0; i < count; i++) {
        store_job(q, table, jobs[i], results[i]);
    }
}

/* At least one, and several where the index is far.  Under lock. */
static size_t take_jobs(VjPutQueue *q, VjFileTable *table, VjPutJob *jobs[TOGETHER])
{
    size_t most = 1, count = 0;

    if (vj_meta_is_far(table->meta)) {
        most = CLAMP(q->jobs.length / table->worker_count, 1, TOGETHER);
    }
    for (GList *link; count < most && (link = g_queue_pop_head_link(&q->jobs)) != NULL;) {
        jobs[count++] = link->data;
    }
    return count;
}

/* Reads nothing of @q, which may be over before it returns. */
static void push_call(GThreadPool *workers, VjPutQueue *q)
{
    g_thread_pool_push(workers, &q->self, NULL); /* queues even if no thread can start */
}

void vj_put_worker(gpointer data, gpointer volume)
{
    VjPutQueue *q = g_atomic_pointer_get((VjPutQueue **)data);
    VjFileTable *table = volume;
    GThreadPool *workers;
    VjPutJob *jobs[TOGETHER];
    size_t taken = 0, count;
    bool skip, goes_on;

    vj_mutex_lock(&q->lock);
    workers = table->workers;
    while (taken < VJ_PUT_CALL_JOBS && q->jobs.length > 0) {
        count = take_jobs(q, table, jobs);
        skip = q->error != 0;
        vj_mutex_unlock(&q->lock);
        store_jobs(q, table, jobs, count, skip);
        taken += count;
        vj_mutex_lock(&q->lock);
    }
    goes_on = q->jobs.length > 0;
    if (!goes_on && --q->calls == 0) {
        vj_cond_broadcast(&q->done);
    }
    vj_mutex_unlock(&q->lock);
    if (goes_on) {
        push_call(workers, q);
    }
}

static void hand_over(VjPutQueue *q)
{
    VjPutJob *job = g_steal_pointer(&q->held);
    bool calls;

    if (job != NULL) {
        job->link = (GList){.data = job};
        vj_mutex_lock(&q->lock);
        g_queue_push_tail_link(&q->jobs, &job->link);
        calls = q->calls < q->table->put_workers;
        q->calls += calls;
        vj_mutex_unlock(&q->lock);
        if (calls) {
            push_call(q->table->workers, q);
        }
    }
}

int vj_put_queue_add(VjPutQueue *q, VjOut *out, const VjPlain *content,
                     const VjObject *neighbours, size_t neighbour_count)
{
    size_t len = content->len;
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
        vj_buf_unref(content->holder);
        return r;
    }
    job = g_new(VjPutJob, 1);
    job->out = out;
    job->content = *content;
    job->neighbour_count = MIN(neighbour_count, VJ_NEIGHBOURS);
    if (job->neighbour_count > 0) {
        memcpy(job->neighbours, neighbours, job->neighbour_count * sizeof *neighbours);
    }
    q->held = job;
    return 0;
}

int vj_put_queue_drain(VjPutQueue *q)
{
    int r;

    if (q->held != NULL) {
        VjPutJob *last = g_steal_pointer(&q->held);

        vj_mutex_lock(&q->lock);
        r = q->error;
        vj_mutex_unlock(&q->lock);
        store_jobs(q, q->table, &last, 1, r != 0);
    }
    vj_mutex_lock(&q->lock);
    while (q->waiting_jobs > 0 || q->calls > 0) {
        vj_cond_wait(&q->done, &q->lock);
    }
    r = q->error;
    vj_mutex_unlock(&q->lock);
    return r;
}
