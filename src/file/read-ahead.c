/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * read-ahead.c - the next objects of a file that is read from end to end
 *
 * The kernel reads a file ahead by a request or two, and a request of a file is several
 * objects, one after another.  So a device below waits for us between two objects, and
 * one thread decodes while others could.  Here reads that follow one another are noticed,
 * and what comes next is brought nearer before it is asked for: the store is told of
 * objects that are stored as they are (its file system caches them), the others are
 * decoded into the object cache, each by a worker.
 *
 * Nothing here is content: objects never change, so what was brought in vain is only
 * that.  A file that was changed meanwhile is not looked at.  What waits to be decoded is
 * pinned and bounded by bytes.
 */
#include "file/file-private.h"

/* Reads below tell nothing: the kernel asks for more at a time when somebody reads on. */
#define NOTED_LEAST ((size_t)64 << 10)
/* The kernel's requests overtake each other: one that begins so near belongs to the
 * stream. */
#define NEAR_BYTES (2 * VJ_MIB)
/* So much was read on before anything is brought: small files are not worth it. */
#define RUN_LEAST VJ_MIB
/* Brought at most before it is asked for: as much as was read so far, up to this. */
#define AHEAD_MOST (8 * VJ_MIB)
/* Jobs that may wait; more are hints that come too late. */
#define JOBS_MOST 256u
/* Content that waits to be decoded takes this part of the cache at most. */
#define CACHE_SHARE 4u
/* Objects of a range, and what else it consists of. */
#define SEGMENTS_MOST 4096u

typedef struct Job {
    VjReadAhead
        *ahead;   /* atomic, stored last: checkers of races do not know GLib's queue */
    VjFile *file; /* referenced: what stands in [from, to) is wanted; NULL: object is */
    uint64_t from, to;
    uint64_t seq;    /* the file's last change when the job was made */
    VjObject object; /* pinned, its bytes counted as waiting */
} Job;

struct VjReadAhead {
    VjFileTable *table;
    uint64_t most_bytes;
    GThreadPool *threads;
    VjMutex lock; /* VJ_RANK_FILE_QUEUE */
    VjCond idle;
    /* guarded by lock: */
    unsigned pending;       /* in the pool's queue, or being done */
    uint64_t waiting_bytes; /* of objects to be decoded */
    bool stop;              /* what waits is dropped */
};

/* ---- noticing: under the file's lock ----------------------------------------------- */

static VjStream *stream_of(VjFile *f, uint64_t offset)
{
    VjStream *oldest = &f->streams[0];

    for (unsigned i = 0; i < VJ_STREAMS; i++) {
        VjStream *s = &f->streams[i];

        if (s->run > 0 && offset + NEAR_BYTES >= s->next &&
            offset <= s->next + NEAR_BYTES) {
            return s;
        }
        oldest = s->used_at < oldest->used_at ? s : oldest;
    }
    *oldest = (VjStream){.start = offset, .next = offset};
    return oldest;
}

/* A read: true: [*from, *to) comes next. */
static bool notice(VjFile *f, uint64_t offset, uint64_t len, uint64_t *from, uint64_t *to)
{
    VjStream *s = stream_of(f, offset);
    uint64_t window, end, size = vj_pieces_length(f->active);

    s->used_at = ++f->stream_tick;
    s->start = MIN(s->start, offset);
    s->next = MAX(s->next, offset + len);
    s->run += len;
    if (s->run < RUN_LEAST || s->run < (s->next - s->start) / 2) {
        return false; /* too little, or with gaps */
    }
    window = MIN(s->run, AHEAD_MOST);
    end = MIN(s->next + window, size);
    s->ahead = MAX(s->ahead, s->next);
    if (end <= s->ahead || (end < size && end - s->ahead < window / 2)) {
        return false;
    }
    *from = s->ahead;
    *to = s->ahead = end;
    return true;
}

/* ---- the jobs ---------------------------------------------------------------------- */

static void job_free(VjFileTable *table, Job *job)
{
    if (job->file != NULL) {
        vj_file_unref(job->file);
    } else {
        vj_object_unpin(table->objects, job->object.id);
    }
    g_free(job);
}

/* Takes @job. */
static void push(VjReadAhead *a, Job *job)
{
    uint64_t bytes = job->file != NULL ? 0 : job->object.plain_bytes;
    bool taken;

    vj_mutex_lock(&a->lock);
    taken = a->pending < JOBS_MOST && a->waiting_bytes + bytes <= a->most_bytes;
    if (taken) {
        a->pending++;
        a->waiting_bytes += bytes;
    }
    vj_mutex_unlock(&a->lock);
    if (taken) {
        g_atomic_pointer_set(&job->ahead, a);
        g_thread_pool_push(a->threads, job,
                           NULL); /* queues even if no thread can start */
    } else {
        job_free(a->table, job);
    }
}

static void expect_object(VjReadAhead *a, const VjObject *object)
{
    Job *job;

    if (vj_object_expect(a->table->objects, object)) {
        return;
    }
    job = g_new0(Job, 1);
    job->object = *object;
    vj_object_pin(a->table->objects, object->id);
    push(a, job);
}

static void expect_range(VjReadAhead *a, const Job *job)
{
    g_autoptr(GArray) segments = vj_segments_new();
    uint64_t size, seq, last = 0;
    VjReadGuard guard;

    vj_mutex_lock(&job->file->lock);
    seq = job->file->dirty_seq;
    vj_mutex_unlock(&job->file->lock);
    if (seq != job->seq) {
        return;
    }
    vj_objects_guard_enter(a->table->objects, &guard);
    if (vj_file_resolve(job->file, job->from, job->to - job->from, SEGMENTS_MOST,
                        segments, &size) == 0) {
        for (guint i = 0; i < segments->len; i++) {
            const VjSegment *s = &g_array_index(segments, VjSegment, i);

            if (s->kind == VJ_SEGMENT_OBJECT && s->object.id != last) {
                last = s->object.id;
                expect_object(a, &s->object);
            }
        }
    }
    vj_objects_guard_leave(a->table->objects, &guard);
}

static void run(gpointer data, gpointer unused)
{
    Job *job = data;
    VjReadAhead *a = g_atomic_pointer_get(&job->ahead);
    uint64_t bytes = job->file != NULL ? 0 : job->object.plain_bytes;
    bool stop;

    (void)unused;
    vj_mutex_lock(&a->lock);
    stop = a->stop;
    vj_mutex_unlock(&a->lock);
    if (!stop && job->file != NULL) {
        expect_range(a, job);
    } else if (!stop) {
        vj_object_load_ahead(a->table->objects, &job->object);
    }
    job_free(a->table, job);
    vj_mutex_lock(&a->lock);
    a->waiting_bytes -= bytes;
    a->pending--;
    if (a->pending == 0) {
        vj_cond_broadcast(&a->idle);
    }
    vj_mutex_unlock(&a->lock);
}

void vj_read_ahead(VjFile *f, uint64_t offset, size_t len)
{
    VjReadAhead *a = f->table->read_ahead;
    Job *job = NULL;
    uint64_t from, to;

    if (len < NOTED_LEAST) {
        return;
    }
    vj_mutex_lock(&f->lock);
    if (notice(f, offset, len, &from, &to)) {
        job = g_new0(Job, 1);
        job->file = vj_file_ref(f);
        job->from = from;
        job->to = to;
        job->seq = f->dirty_seq;
    }
    vj_mutex_unlock(&f->lock);
    if (job != NULL) {
        push(a, job);
    }
}

void vj_read_ahead_drain(VjReadAhead *a)
{
    vj_mutex_lock(&a->lock);
    while (a->pending > 0) {
        vj_cond_wait(&a->idle, &a->lock);
    }
    vj_mutex_unlock(&a->lock);
}

void vj_read_ahead_hold(VjReadAhead *a, bool hold)
{
    g_thread_pool_set_max_threads(a->threads, hold ? 0 : (gint)a->table->worker_count,
                                  NULL);
}

VjReadAhead *vj_read_ahead_open(VjFileTable *table, uint64_t cache_bytes)
{
    VjReadAhead *a = g_new0(VjReadAhead, 1);

    a->table = table;
    a->most_bytes = cache_bytes / CACHE_SHARE;
    a->threads = g_thread_pool_new(run, NULL, (gint)table->worker_count, FALSE, NULL);
    vj_mutex_init(&a->lock, VJ_RANK_FILE_QUEUE, "file.read-ahead");
    vj_cond_init(&a->idle);
    return a;
}

void vj_read_ahead_close(VjReadAhead *a)
{
    if (a == NULL) {
        return;
    }
    vj_mutex_lock(&a->lock);
    a->stop = true;
    vj_mutex_unlock(&a->lock);
    vj_read_ahead_hold(a, false);
    vj_read_ahead_drain(a);
    g_thread_pool_free(a->threads, FALSE, TRUE);
    vj_cond_clear(&a->idle);
    vj_mutex_clear(&a->lock);
    g_free(a);
}
