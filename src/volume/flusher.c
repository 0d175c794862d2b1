/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * flusher.c - write-back in the background: by age, by memory, at close
 *
 * Changed files in the order in which they are due, those that were closed and those that
 * are wanted at once apart.  A file in it is referenced by it, so a file with changes
 * never leaves memory.  Two threads take from it, and neither waits for a file that
 * another thread is writing back: one large file on a slow device does not hold up the
 * others.  So files with much to put are not taken together with others, which would
 * wait for their objects and their flush: whoever makes one of these durable meanwhile
 * waits for the end of its round.  For the same reason memory that is short is sought
 * where much of it is.  The same threads give back freed memory, a second after
 * something was changed or left the object cache.
 *
 * To wake a thread costs as much as to write a small file back.  So one of those that
 * have nothing to do, the leader, waits for the clock and is woken only by what is due
 * before that; the others are woken when there is no leader.  Files that are closed wait
 * a moment for each other, and become due at the same instant: a program that makes many
 * small files wakes a thread once for all of a batch, and what stands beside inodes is
 * committed together (round.c).
 */
#include "volume/volume-private.h"

#define FLUSHER_THREADS 2u
/* Of each queue, for a batch. */
#define LOOKED_AT (4 * VJ_WRITE_BACK_BATCH)
/* Freed memory is given back so much after a change, when it is more than this. */
#define TRIM_US ((int64_t)1000000)
#define SPARE_BYTES (32 * VJ_MIB)
/* After a failure a file is tried again so much later, microseconds. */
#define RETRY_US ((int64_t)1000000)
/* How long a file that is closed waits for others, at the most; and one that holds
 * little. */
#define SOON_US ((int64_t)5000)
#define GATHERED_US ((int64_t)50000)

struct VjFlusher {
    VjFileTable *files;
    int64_t age_us;
    GThread *threads[FLUSHER_THREADS];
    VjMutex lock; /* VJ_RANK_VOLUME */
    VjCond wake;  /* of the leader */
    VjCond relief;
    /* guarded by lock: */
    GQueue urgent; /* VjFile, first come first */
    GQueue closed; /* VjFile, rising by due_us */
    GQueue due;    /* VjFile, rising by due_us */
    bool has_leader;
    int64_t wake_us; /* when the leader wakes */
    /* Memory is short, so the next file is taken whatever its age.  pressure_any: any
     * file; else one that holds much, and others only while none of these is being
     * written back. */
    bool pressure_any, pressure;
    unsigned much_rounds; /* threads that write back a file that holds much */
    bool stop;
    int64_t trim_us; /* when to look for spare memory; 0: nothing was freed since */
    bool trimming;   /* a thread looks; it alone uses the keeper */
    VjMemoryKeeper *memory;
    gint trim_wanted; /* trim_us is set; atomic, for threads without the lock */
};

/* Its place in the queues.  Under lock. */
static VjFlushLink *place(VjFile *f)
{
    return vj_file_flush_link(f);
}

/* Inserts from the end: nearly every file is due after all others. */
static void push_locked(GQueue *queue, VjFile *f)
{
    GList *link = queue->tail;

    while (link != NULL && place(link->data)->due_us > place(f)->due_us) {
        link = link->prev;
    }
    if (link == NULL) {
        g_queue_push_head(queue, f);
        place(f)->link = queue->head;
    } else {
        g_queue_insert_after(queue, link, f);
        place(f)->link = link->next;
    }
    place(f)->queue = queue;
}

/* There is something to do at @due_us. */
static void call_locked(VjFlusher *x, int64_t due_us)
{
    if (!x->has_leader) {
        vj_cond_signal(&x->relief);
    } else if (due_us < x->wake_us) {
        x->wake_us = due_us; /* one signal is enough */
        vj_cond_signal(&x->wake);
    }
}

/* @f is in no queue, and referenced. */
static void insert_locked(VjFlusher *x, GQueue *queue, VjFile *f, int64_t due_us)
{
    place(f)->due_us = due_us;
    push_locked(queue, f);
    call_locked(x, due_us);
}

static void trim_soon_locked(VjFlusher *x)
{
    if (x->trim_us == 0) {
        x->trim_us = vj_clock_mono_us() + TRIM_US;
        g_atomic_int_set(&x->trim_wanted, 1);
        call_locked(x, x->trim_us);
    }
}

void vj_flusher_trim_soon(VjFlusher *x)
{
    if (g_atomic_int_get(&x->trim_wanted) != 0) {
        return;
    }
    vj_mutex_lock(&x->lock);
    trim_soon_locked(x);
    vj_mutex_unlock(&x->lock);
}

static void remove_locked(VjFile *f)
{
    g_queue_delete_link(place(f)->queue, place(f)->link);
    place(f)->link = NULL;
    place(f)->queue = NULL;
}

/* One instant for all that are closed within @window_us. */
static int64_t end_of_window(int64_t window_us)
{
    return (vj_clock_mono_us() / window_us + 1) * window_us;
}

void vj_flusher_add(VjFlusher *x, VjFile *f, VjFlushWhen when)
{
    GQueue *queue = &x->closed;
    int64_t due_us = 0;

    switch (when) {
    case VJ_FLUSH_NOW:
        queue = &x->urgent;
        break;
    case VJ_FLUSH_SOON:
        due_us = end_of_window(SOON_US);
        break;
    case VJ_FLUSH_GATHERED:
        due_us = end_of_window(MAX(MIN(GATHERED_US, x->age_us), SOON_US));
        break;
    case VJ_FLUSH_AGED:
    case VJ_FLUSH_ANEW:
        queue = &x->due;
        due_us = vj_clock_mono_us() + x->age_us;
        break;
    }
    vj_mutex_lock(&x->lock);
    trim_soon_locked(x);
    if (place(f)->queue == NULL) {
        insert_locked(x, queue, vj_file_ref(f), due_us);
    } else if (due_us < place(f)->due_us ||
               (when == VJ_FLUSH_ANEW && place(f)->queue == &x->due)) {
        remove_locked(f);
        insert_locked(x, queue, f, due_us);
    }
    vj_mutex_unlock(&x->lock);
}

void vj_flusher_committed(VjFlusher *x, VjFile *f, int64_t since_us)
{
    vj_mutex_lock(&x->lock);
    if (place(f)->queue == &x->due && place(f)->due_us < since_us + x->age_us) {
        remove_locked(f);
        insert_locked(x, &x->due, f, since_us + x->age_us);
    }
    vj_mutex_unlock(&x->lock);
}

void vj_flusher_clean(VjFlusher *x, VjFile *f)
{
    bool was_queued;

    vj_mutex_lock(&x->lock);
    was_queued = place(f)->queue != NULL;
    if (was_queued) {
        remove_locked(f);
    }
    vj_mutex_unlock(&x->lock);
    if (!was_queued) {
        return;
    }
    /* A change since then has found it in the queue, and may have been in a hurry. */
    if (vj_file_is_dirty(f)) {
        vj_flusher_add(x, f, VJ_FLUSH_SOON);
    }
    vj_file_unref(f);
}

/* What goes next, due or not; NULL: no file has changes. */
static VjFile *first_locked(VjFlusher *x)
{
    VjFile *urgent = g_queue_peek_head(&x->urgent);
    VjFile *closed = g_queue_peek_head(&x->closed);
    VjFile *due = g_queue_peek_head(&x->due);

    if (urgent != NULL) {
        return urgent;
    }
    if (closed == NULL || due == NULL) {
        return closed != NULL ? closed : due;
    }
    return place(closed)->due_us <= place(due)->due_us ? closed : due;
}

void vj_flusher_pressure(VjFlusher *x, bool any)
{
    vj_mutex_lock(&x->lock);
    x->pressure = true;
    x->pressure_any = x->pressure_any || any;
    vj_cond_broadcast(&x->wake);
    vj_cond_broadcast(&x->relief);
    vj_mutex_unlock(&x->lock);
}

static void end_pressure_locked(VjFlusher *x)
{
    x->pressure = x->pressure_any = false;
}

/* Is @f to be written back now?  Under lock. */
static bool is_wanted_locked(const VjFlusher *x, VjFile *f, int64_t now_us)
{
    return place(f)->due_us <= now_us || x->pressure_any ||
           (x->pressure && (x->much_rounds == 0 || vj_file_holds_much(f)));
}

/* As the leader, until @until_us. */
static void watch_locked(VjFlusher *x, int64_t until_us) VJ_REQUIRES(x->lock)
{
    x->has_leader = true;
    x->wake_us = until_us;
    if (until_us == INT64_MAX) {
        vj_cond_wait(&x->wake, &x->lock);
    } else {
        /* The timeout is the event: a file becomes due. */
        (void)vj_cond_wait_until(&x->wake, &x->lock, until_us);
    }
    x->has_leader = false;
}

/* Gives freed memory back when it is time to.  Under lock, which it leaves meanwhile. */
static void trim_locked(VjFlusher *x) VJ_REQUIRES(x->lock)
{
    if (x->trimming || x->trim_us == 0 || vj_clock_mono_us() < x->trim_us) {
        return;
    }
    x->trimming = true;
    x->trim_us = 0;
    g_atomic_int_set(&x->trim_wanted, 0);
    vj_mutex_unlock(&x->lock);
    vj_file_table_look(x->files);
    (void)vj_memory_give_back(x->memory, SPARE_BYTES);
    vj_mutex_lock(&x->lock);
    x->trimming = false;
    if (x->trim_us != 0) {
        call_locked(x, x->trim_us); /* set meanwhile: no thread waits for it yet */
    }
}

/* Waits until a file is due; false: stop.  Under lock. */
static bool wait_locked(VjFlusher *x) VJ_REQUIRES(x->lock)
{
    for (;;) {
        VjFile *f;
        int64_t until_us;

        trim_locked(x);
        f = first_locked(x);
        if (x->stop) {
            return false;
        }
        if (f == NULL) {
            end_pressure_locked(x);
            if (vj_file_table_has_blocks(x->files)) {
                trim_soon_locked(x); /* what came back after the last look */
            }
        } else if (is_wanted_locked(x, f, vj_clock_mono_us())) {
            return true;
        }
        until_us = f == NULL ? INT64_MAX : place(f)->due_us;
        if (x->trim_us != 0 && !x->trimming) {
            until_us = MIN(until_us, x->trim_us);
        }
        if (x->has_leader) {
            vj_cond_wait(&x->relief, &x->lock);
        } else {
            watch_locked(x, until_us);
        }
    }
}

/* What a thread takes at a time. */
typedef struct Batch {
    VjFile *files[VJ_WRITE_BACK_BATCH];
    size_t count;
    bool is_much; /* each of them holds much, else none does */
} Batch;

/* As many as are wanted of the first files in @queue. */
static void take_from_locked(VjFlusher *x, GQueue *queue, int64_t now_us, Batch *b)
{
    GList *next = queue->head;

    for (unsigned i = 0; i < LOOKED_AT && next != NULL && b->count < VJ_WRITE_BACK_BATCH;
         i++) {
        VjFile *f = next->data;

        next = next->next;
        if (is_wanted_locked(x, f, now_us) && vj_file_holds_much(f) == b->is_much) {
            remove_locked(f);
            b->files[b->count++] = f;
        }
    }
}

/* Takes the first file, which is wanted, and others like it: what is due, and under
 * pressure the rest of a batch too.  Under lock. */
static void take_locked(VjFlusher *x, Batch *b)
{
    int64_t now_us = vj_clock_mono_us();
    VjFile *first = first_locked(x);

    b->is_much = vj_file_holds_much(first);
    b->files[0] = first;
    b->count = 1;
    remove_locked(first);
    take_from_locked(x, &x->urgent, now_us, b);
    take_from_locked(x, &x->closed, now_us, b);
    take_from_locked(x, &x->due, now_us, b);
    x->much_rounds += b->is_much;
    end_pressure_locked(x);
    if (first_locked(x) != NULL && !x->has_leader) {
        vj_cond_signal(&x->relief); /* another thread takes the rest */
    }
}

static gpointer flusher_main(gpointer opaque)
{
    VjFlusher *x = opaque;
    Batch b;

    vj_mutex_lock(&x->lock);
    while (wait_locked(x)) {
        bool failed, is_any_clean = false;

        take_locked(x, &b);
        vj_mutex_unlock(&x->lock);
        failed = vj_file_write_back_grown(x->files, b.files, b.count) < 0;
        for (size_t i = 0; i < b.count; i++) {
            VjFile *f = b.files[i];

            /* Still dirty: it failed, another thread writes it back, or it was changed
             * again. */
            if (vj_file_is_dirty(f)) {
                bool at_once = !failed && vj_file_is_much(f);

                vj_mutex_lock(&x->lock);
                if (place(f)->queue == NULL && at_once) {
                    insert_locked(x, &x->urgent, vj_file_ref(f), 0);
                } else if (place(f)->queue == NULL) {
                    insert_locked(x, &x->due, vj_file_ref(f),
                                  vj_clock_mono_us() + (failed ? RETRY_US : x->age_us));
                }
                vj_mutex_unlock(&x->lock);
            } else {
                is_any_clean = true;
            }
            vj_file_unref(f);
        }
        if (is_any_clean) {
            /* Perhaps before, as fsync leaves it in its queue, and nothing was freed.  A
             * file that stays gives memory back later: nobody asks for it meanwhile. */
            vj_file_table_ask_again(x->files);
        }
        vj_mutex_lock(&x->lock);
        x->much_rounds -= b.is_much;
    }
    vj_mutex_unlock(&x->lock);
    return NULL;
}

VjFlusher *vj_flusher_open(VjFileTable *files, int64_t age_us)
{
    VjFlusher *x = g_new0(VjFlusher, 1);

    x->files = files;
    x->age_us = age_us;
    x->memory = vj_memory_keeper_new();
    g_queue_init(&x->urgent);
    g_queue_init(&x->closed);
    g_queue_init(&x->due);
    vj_mutex_init(&x->lock, VJ_RANK_VOLUME, "volume.flusher");
    vj_cond_init(&x->wake);
    vj_cond_init(&x->relief);
    for (unsigned i = 0; i < FLUSHER_THREADS; i++) {
        x->threads[i] = g_thread_new("varjfs-flush", flusher_main, x);
    }
    return x;
}

void vj_flusher_close(VjFlusher *x)
{
    if (x == NULL) {
        return;
    }
    vj_mutex_lock(&x->lock);
    x->stop = true;
    vj_cond_broadcast(&x->wake);
    vj_cond_broadcast(&x->relief);
    vj_mutex_unlock(&x->lock);
    for (unsigned i = 0; i < FLUSHER_THREADS; i++) {
        g_thread_join(x->threads[i]);
    }
    /* What could not be written back is lost with the process: close() has reported
     * it. */
    for (VjFile *f; (f = first_locked(x)) != NULL;) {
        remove_locked(f);
        vj_file_discard(f);
        vj_file_unref(f);
    }
    vj_memory_keeper_free(x->memory);
    vj_cond_clear(&x->relief);
    vj_cond_clear(&x->wake);
    vj_mutex_clear(&x->lock);
    g_free(x);
}
