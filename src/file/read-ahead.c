/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * read-ahead.c - the next objects of a file that is read from end to end
 *
 * The kernel reads a file ahead by a request or two, and a request of a file is several
 * objects, one after another.  So a device below is idle between two objects, and one
 * thread decodes while others could.  Here reads that follow one another are noticed, and
 * what comes next is brought nearer before it is asked for: the store gets a hint of
 * objects that are stored as they are (its file system caches them), the others are
 * decoded into the object cache, each by a worker.
 *
 * From a store that takes no hints, a far one, all objects come into the object cache.
 * Many gets are in flight there, and no thread waits for one:
 *
 *     to_get ──> vj_object_get_ahead ──> got() ──> the pool: verified, decoded, kept
 *       in order of the file, up to GETS_MOST            └──> the next one of to_get
 *
 * What is stored as it is, the reader verifies: no thread is woken for it.
 *
 * Nothing here is content: objects never change, so what was brought in vain is only
 * that.  A file that was changed meanwhile is not looked at.  What waits to be got or
 * decoded is pinned and bounded by bytes.
 */
#include "file/file-private.h"

/* Shorter reads are no sign of a stream: the kernel asks for more at a time when a
 * program reads on. */
#define NOTED_LEAST ((size_t)64 << 10)
/* The kernel's requests overtake each other: one that begins so near belongs to the
 * stream. */
#define NEAR_BYTES (2 * VJ_MIB)
/* So much was read on before anything is brought: small files are not worth it. */
#define RUN_LEAST VJ_MIB
/* Brought at most before it is asked for: as much as was read so far, up to this. */
#define AHEAD_MOST (8 * VJ_MIB)
/* The same where the store is far: at 256 KiB an object, 32 are in flight when the window
 * is half empty. */
#define AHEAD_FAR (16 * VJ_MIB)
/* The window is refilled when this part of it is empty; where the store is far, in steps
 * of about what the kernel asks for at a time. */
#define REFILL_SHARE 2u
#define REFILL_SHARE_FAR 16u
/* Jobs that may wait; more are hints that come too late. */
#define JOBS_MOST 256u
/* Objects that may wait to be got from a far store, and those of them in flight. */
#define FAR_JOBS_MOST 4096u
#define GETS_MOST 64u
/* Content that waits to be decoded takes this part of the cache at most. */
#define CACHE_SHARE 4u
/* Objects of a range, and what else it consists of. */
#define SEGMENTS_MOST 4096u

typedef struct Job {
    VjReadAhead
        *ahead;   /* atomic, stored last: checkers of races do not know GLib's queue */
    VjFile *file; /* referenced: what stands in [from, to) is wanted; NULL: object is */
    uint64_t from, to;
    uint64_t seq;   /* the file's last change when the job was made */
    bool is_got;    /* by get: what came is to be unpacked; else it is to be loaded */
    VjGetAhead get; /* its object is pinned, and its bytes are counted as waiting */
} Job;

struct VjReadAhead {
    VjFileTable *table;
    uint64_t most_bytes;
    bool is_far; /* the store takes no hints */
    GThreadPool *threads;
    VjMutex lock; /* VJ_RANK_FILE_QUEUE */
    VjCond idle;
    /* guarded by lock: */
    unsigned pending;       /* in to_get, in flight, in the pool's queue, or being done */
    uint64_t waiting_bytes; /* of objects to be got or decoded */
    GQueue to_get;          /* of Job */
    unsigned gets;          /* in flight, or what came is not unpacked yet */
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
static bool notice(const VjReadAhead *a, VjFile *f, uint64_t offset, uint64_t len,
                   uint64_t *from, uint64_t *to)
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
    window = MIN(s->run, a->is_far ? MIN(AHEAD_FAR, a->most_bytes) : AHEAD_MOST);
    end = MIN(s->next + window, size);
    s->ahead = MAX(s->ahead, s->next);
    if (end <= s->ahead ||
        (end < size &&
         end - s->ahead < window / (a->is_far ? REFILL_SHARE_FAR : REFILL_SHARE))) {
        return false;
    }
    *from = s->ahead;
    *to = s->ahead = end;
    return true;
}

/* ---- the jobs ---------------------------------------------------------------------- */

static uint64_t bytes_of(const Job *job)
{
    return job->file != NULL ? 0 : job->get.object.plain_bytes;
}

static void job_free(VjFileTable *table, Job *job)
{
    if (job->file != NULL) {
        vj_file_unref(job->file);
    } else {
        vj_object_unpin(table->objects, job->get.object.id);
    }
    g_free(job);
}

/* Takes @job, if true; counts it as pending.  @is_get: into to_get. */
static bool admit(VjReadAhead *a, Job *job, bool is_get)
{
    bool taken;

    vj_mutex_lock(&a->lock);
    taken = a->pending < (is_get ? FAR_JOBS_MOST : JOBS_MOST) &&
            a->waiting_bytes + bytes_of(job) <= a->most_bytes && !a->stop;
    if (taken) {
        a->pending++;
        a->waiting_bytes += bytes_of(job);
    }
    if (taken && is_get) {
        g_queue_push_tail(&a->to_get, job);
    }
    vj_mutex_unlock(&a->lock);
    return taken;
}

/* The end of what admit() took.  The last touch of @a, which may be freed then. */
static void end(VjReadAhead *a, Job *job)
{
    uint64_t bytes = bytes_of(job);

    job_free(a->table, job);
    vj_mutex_lock(&a->lock);
    a->waiting_bytes -= bytes;
    a->pending--;
    if (a->pending == 0) {
        vj_cond_broadcast(&a->idle);
    }
    vj_mutex_unlock(&a->lock);
}

static void leave_to_threads(VjReadAhead *a, Job *job)
{
    GThreadPool *threads = a->threads; /* @a may be gone when it is set */

    g_atomic_pointer_set(&job->ahead, a);
    g_thread_pool_push(threads, job, NULL); /* queues even if no thread can start */
}

static void push(VjReadAhead *a, Job *job)
{
    if (admit(a, job, false)) {
        leave_to_threads(a, job);
    } else {
        job_free(a->table, job);
    }
}

/* In a thread that must not submit: who begins the next one is woken only where one
 * waits. */
static void got(VjGetAhead *get)
{
    Job *job = get->opaque;
    VjReadAhead *a = g_atomic_pointer_get(&job->ahead);
    bool ends;

    vj_mutex_lock(&a->lock);
    ends = get->is_over && a->to_get.length == 0;
    a->gets -= ends;
    vj_mutex_unlock(&a->lock);
    job->is_got = true;
    if (ends) {
        end(a, job);
    } else {
        leave_to_threads(a, job);
    }
}

/* Begins what waits to be got, as much as may be in flight. */
static void get_more(VjReadAhead *a)
{
    Job *job;

    do {
        bool stop;

        job = NULL;
        vj_mutex_lock(&a->lock);
        stop = a->stop;
        if (a->gets < GETS_MOST || stop) {
            job = g_queue_pop_head(&a->to_get);
            a->gets += job != NULL;
        }
        vj_mutex_unlock(&a->lock);
        if (job != NULL && (stop || !vj_object_get_ahead(a->table->objects, &job->get))) {
            vj_mutex_lock(&a->lock);
            a->gets--;
            vj_mutex_unlock(&a->lock);
            end(a, job);
        }
    } while (job != NULL);
}

/* False: no more can wait now. */
static bool expect_object(VjReadAhead *a, const VjObject *object)
{
    VjExpect left = vj_object_expect(a->table->objects, object);
    Job *job;

    if (left == VJ_EXPECT_DONE) {
        return true;
    }
    job = g_new0(Job, 1);
    job->get = (VjGetAhead){.object = *object, .got = got, .opaque = job};
    vj_object_pin(a->table->objects, object->id);
    if (left == VJ_EXPECT_LOAD) {
        push(a, job);
        return true;
    }
    g_atomic_pointer_set(&job->ahead, a);
    if (!admit(a, job, true)) {
        job_free(a->table, job);
        return false;
    }
    get_more(a);
    return true;
}

/* What the job did not come to, from @at on, is left to a later read. */
static void put_back(const Job *job, uint64_t at)
{
    vj_mutex_lock(&job->file->lock);
    for (unsigned i = 0; i < VJ_STREAMS; i++) {
        VjStream *s = &job->file->streams[i];

        if (s->ahead == job->to) {
            s->ahead = at;
        }
    }
    vj_mutex_unlock(&job->file->lock);
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
                if (!expect_object(a, &s->object)) {
                    put_back(job, s->at);
                    break;
                }
            }
        }
    }
    vj_objects_guard_leave(a->table->objects, &guard);
}

static void run(gpointer data, gpointer unused)
{
    Job *job = data;
    VjReadAhead *a = g_atomic_pointer_get(&job->ahead);
    bool stop;

    (void)unused;
    vj_mutex_lock(&a->lock);
    stop = a->stop;
    vj_mutex_unlock(&a->lock);
    if (job->is_got) {
        if (!job->get.is_over) {
            vj_object_get_ahead_end(&job->get);
        }
        vj_mutex_lock(&a->lock);
        a->gets--;
        vj_mutex_unlock(&a->lock);
        get_more(a);
    } else if (!stop && job->file != NULL) {
        expect_range(a, job);
    } else if (!stop) {
        vj_object_load_ahead(a->table->objects, &job->get.object);
    }
    end(a, job);
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
    if (notice(a, f, offset, len, &from, &to)) {
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

VjReadAhead *vj_read_ahead_open(VjFileTable *table, uint64_t cache_bytes, bool is_far)
{
    VjReadAhead *a = g_new0(VjReadAhead, 1);

    a->table = table;
    a->most_bytes = cache_bytes / CACHE_SHARE;
    a->is_far = is_far;
    g_queue_init(&a->to_get);
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
    get_more(a); /* drops what waits to be got; what is in flight is waited for */
    vj_read_ahead_hold(a, false);
    vj_read_ahead_drain(a);
    g_thread_pool_free(a->threads, FALSE, TRUE);
    vj_cond_clear(&a->idle);
    vj_mutex_clear(&a->lock);
    g_free(a);
}
