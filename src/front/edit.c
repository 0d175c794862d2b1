/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * edit.c - the threads that may talk to the kernel about its page cache
 *
 * A notification waits for locked pages and makes the kernel write dirty ones back to us, so
 * whoever sends one must not be needed to serve requests, and must hold no lock.  Edits run
 * on a few threads, one at a time per inode:
 *
 *   invalidate from the offset   dirty mapped pages come back in old coordinates
 *   close the gate, apply, open  between requests
 *   invalidate again             pages that were read or dirtied meanwhile
 *   store the last byte          a growing edit: else an existing mapping gives SIGBUS there
 *   invalidate the old end       if its page has come back before the kernel knew of the new one
 *   reply
 *
 * An invalidation is left out where the gate knows that the kernel holds no page behind the edit;
 * its attributes alone are taken back then, which waits for nothing.  Such an edit is made by the
 * request thread itself (vj_editor_run): what is left to wait for is the lock of the page that
 * holds the last byte, which a READ or a WRITE under way may have, for as long as another request
 * thread takes to serve it.  There is one: before a thread serves a request serve.c sees to it that
 * another one waits for the next or has only to answer, or there are VJ_FRONT_THREADS_MAX, of which such edits take
 * VJ_FRONT_EDITS_HERE at most, or one could not be started, and then edits are made here no more.
 *
 * A few further threads invalidate ranges whose WRITE may have crossed an edit, one range of
 * an inode at a time.
 */
#include "front/front-private.h"

#include "varjfs/ioctl.h"

/* A range that is invalidated when the kernel is sure to know the new size. */
typedef struct LateItem {
    uint64_t ino, offset, len;
    int64_t due_us;
} LateItem;

/* Ranges that wait for their time; beyond that the oldest is not waited for. */
#define LATE_MAX 4096u

struct VjEditor {
    VjFront *front;
    VjMutex lock; /* VJ_RANK_FRONT */
    VjCond wake;  /* edit threads */
    VjCond stale_wake;
    /* guarded by lock: */
    GQueue ready;   /* of VjJob: each the only one of its inode */
    GArray *stale;  /* inodes with ranges that wait; each at most once */
    GQueue late;    /* of LateItem, rising by due_us */
    unsigned count; /* edits taken and not yet answered */
    unsigned here;  /* of these: made by request threads */
    bool stop;      /* no more edits are taken */
    bool stopped;   /* somebody has joined the threads, or is about to */

    GThread *threads[VJ_FRONT_EDIT_THREADS];
    GThread *stale_threads[VJ_FRONT_STALE_THREADS];
};

/* From @offset to @offset + @len; len 0: to the end.  False: they may still be there. */
static bool invalidate(VjFront *f, uint64_t ino, uint64_t offset, uint64_t len)
{
    int r;

    vj_lock_assert_none();
    r = fuse_lowlevel_notify_inval_inode(f->session, ino, (off_t)offset, (off_t)len);
    vj_trace(front,
             "ino %" G_GUINT64_FORMAT ": invalidate %" G_GUINT64_FORMAT
             "+%" G_GUINT64_FORMAT ": %d",
             ino, offset, len, r);
    /* -ENOENT: the kernel has forgotten it, with its pages.  The others: unmounted. */
    if (r < 0 && r != -ENOENT && r != -ENODEV && r != -ENOTCONN && r != -EBADF) {
        vj_log_warn("inode %" G_GUINT64_FORMAT
                    ": the kernel's pages cannot be invalidated: %s",
                    ino, g_strerror(-r));
    }
    return r >= 0 || r == -ENOENT;
}

/* The kernel has no page to lose: it asks for size, times and mode again.  Waits for nothing. */
static void invalidate_attributes(VjFront *f, uint64_t ino)
{
    int r;

    vj_lock_assert_none();
    r = fuse_lowlevel_notify_inval_inode(f->session, ino, -1, 0);
    vj_trace(front, "ino %" G_GUINT64_FORMAT ": invalidate attributes: %d", ino, r);
    if (r < 0 && r != -ENOENT && r != -ENODEV && r != -ENOTCONN && r != -EBADF) {
        vj_log_warn("inode %" G_GUINT64_FORMAT
                    ": the kernel's attributes cannot be invalidated: %s",
                    ino, g_strerror(-r));
    }
}

/* The kernel's pages of a range that an edit moves; @len 0: all from @from on. */
static void drop_pages(VjFront *f, const VjJob *job, uint64_t from, uint64_t len)
{
    bool ok;

    vj_gate_forget_marks(f->gates, job->gate, from, len);
    ok = invalidate(f, job->ino, from, len);
    vj_gate_dropped(f->gates, job->gate, from, len, ok);
}

/* The last byte of the file, which nobody has changed if vj_gate_writes is still @writes. */
static bool last_byte(VjFront *f, const VjJob *job, const VjEdited *edited,
                      uint64_t writes, uint8_t *byte)
{
    size_t got;

    if (vj_gate_end_byte(f->gates, job->gate, writes, byte)) {
        return true;
    }
    if (vj_fs_read(job->handle, edited->size - 1, byte, 1, &got) < 0 || got != 1) {
        return false; /* truncated since, or damaged: a reader will be told */
    }
    vj_gate_end_known(f->gates, job->gate, writes, *byte);
    return true;
}

/* The page in which @at lies, and all behind it, are to be invalidated. */
static void job_stale(VjJob *job, uint64_t at)
{
    at -= at % VJ_PAGE_BYTES;
    job->stale_from = job->stale ? MIN(job->stale_from, at) : at;
    job->stale = true;
}

/* The byte at the new end: extends the kernel's idea of the size for existing mappings. */
static void store_last_byte(VjFront *f, VjJob *job)
{
    uint64_t at = job->edited.size - 1, old_size = job->edited.old_size;
    uint64_t writes = vj_gate_writes(f->gates, job->gate);
    uint8_t byte;
    struct fuse_bufvec buf = FUSE_BUFVEC_INIT(1);
    int r;

    if (last_byte(f, job, &job->edited, writes, &byte)) {
        buf.buf[0].mem = &byte;
        vj_gate_note_store(f->gates, job->gate, at);
        vj_lock_assert_none();
        r = fuse_lowlevel_notify_store(f->session, job->ino, (off_t)at, &buf, 0);
        vj_trace(front, "ino %" G_GUINT64_FORMAT ": store %" G_GUINT64_FORMAT ": %d",
                 job->ino, at, r);
        /* A WRITE that came between the two lines above may have changed that byte. */
        if (vj_gate_writes(f->gates, job->gate) != writes) {
            job_stale(job, at);
        }
    }
    /* Written back before that, it has been cleared behind the end that the kernel knew. */
    if (old_size % VJ_PAGE_BYTES != 0 &&
        vj_gate_may_hold(f->gates, job->gate, old_size, 1)) {
        job_stale(job, old_size);
    }
}

static void reply_shift(const VjJob *job, const VjEdited *edited)
{
    struct varjfs_shift out = {
        .version = VARJFS_IOC_VERSION,
        .offset = edited->at,
        .len = edited->len,
        .data_len = job->shift.src_len,
        .change = job->shift.change,
        .size = edited->size,
    };

    fuse_reply_ioctl(job->req, 0, &out, sizeof out);
}

static void reply_edit(const VjJob *job, int r, const VjEdited *edited)
{
    struct varjfs_edit out = {
        .version = VARJFS_IOC_VERSION,
        .offset = edited->at,
        .old_len = edited->old_len,
        .len = edited->len,
        .size = edited->size,
    };

    if (r < 0) {
        fuse_reply_err(job->req, vj_front_errno(r));
    } else if (job->shift.len > 0) {
        reply_shift(job, edited);
    } else {
        fuse_reply_ioctl(job->req, 0, &out, sizeof out);
    }
}

/* From where on the kernel's pages change, and how many bytes of them; *len 0: to the end. */
static int edit_range(VjFront *f, const VjJob *job, uint64_t *from, uint64_t *len)
{
    VjAttr attr;
    int r = 0;

    *from = job->edit.offset;
    *len = 0;
    if (job->shift.len > 0) {
        *from = job->shift.offset;
        *len = job->shift.len; /* what lies behind stays where it is */
    } else if (job->edit.append) {
        r = vj_fs_getattr(f->fs, job->ino, &attr);
        *from = r == 0 ? (uint64_t)attr.st.st_size : 0;
    }
    return r == 0 && (*from > INT64_MAX || *len > INT64_MAX - *from) ? -EINVAL : r;
}

/* The last byte of the file, where the edit has brought it. */
static const uint8_t *brought_end(const VjJob *job, const VjEdited *edited)
{
    static const uint8_t zero = 0;

    if (job->shift.len > 0 || !edited->changed || edited->len == 0 ||
        edited->at + edited->len != edited->size) {
        return NULL;
    }
    return job->edit.hole ? &zero : (const uint8_t *)job->edit.src + (edited->len - 1);
}

static int apply(VjFront *f, VjJob *job)
{
    int r;

    if (job->shift.len > 0) {
        r = vj_fs_shift(f->fs, &job->who, job->handle, &job->shift, &job->edited);
    } else {
        r = vj_fs_replace(f->fs, &job->who, job->handle, &job->edit, &job->edited);
    }
    if (r < 0) {
        job->edited.changed = false;
    }
    return r;
}

/* Up to the opening of the gate behind the edit. */
static void begin(VjFront *f, VjJob *job, bool may_invalidate)
{
    const VjEdited *edited = &job->edited;
    uint64_t from;

    job->result = edit_range(f, job, &from, &job->reach);
    vj_gate_edit_start(f->gates, job->gate);
    if (job->result == 0) {
        /* Not for the sake of what has come since vj_gate_edit_try: it is in the window. */
        if (may_invalidate && vj_gate_may_hold(f->gates, job->gate, from, job->reach)) {
            drop_pages(f, job, from, job->reach);
        }
        vj_front_hold(f, VJ_HOLD_APPLY);
        vj_gate_close(f->gates, job->gate);
        job->result = apply(f, job);
        job->window = vj_gate_open(f->gates, job->gate, edited, brought_end(job, edited));
        vj_trace(front,
                 "ino %" G_GUINT64_FORMAT ": %" G_GUINT64_FORMAT
                 " bytes at %" G_GUINT64_FORMAT " become %" G_GUINT64_FORMAT ": %d",
                 job->ino, edited->old_len, edited->at, edited->len, job->result);
    }
    job->stage = VJ_JOB_APPLIED;
    if (edited->changed) {
        vj_front_hold(f, VJ_HOLD_EDIT);
    }
}

/* Pages in old coordinates go, and the one that the last byte will be stored into; true: done. */
static bool settle(VjFront *f, VjJob *job, bool may_invalidate)
{
    const VjEdited *edited = &job->edited;
    uint64_t from = MIN(edited->at, edited->old_size), reach = job->reach;
    bool drop = edited->changed && job->window;

    if (!drop && edited->changed && edited->size > edited->old_size &&
        vj_gate_may_hold(f->gates, job->gate, edited->size - 1, 1)) {
        /* It has come since, with what others have written or stored over that byte. */
        from = edited->size - 1;
        reach = 0;
        drop = true;
    }
    if (drop && !may_invalidate) {
        return false;
    }
    if (drop) {
        drop_pages(f, job, from, reach);
    } else if (edited->changed) {
        invalidate_attributes(f, job->ino);
    }
    vj_gate_settle(f->gates, job->gate);
    job->stage = VJ_JOB_SETTLED;
    return true;
}

/* Of the new size. */
static void tell(VjFront *f, VjJob *job)
{
    const VjEdited *edited = &job->edited;

    if (edited->changed && edited->size > edited->old_size) {
        store_last_byte(f, job);
    } else if (edited->changed && edited->size < edited->old_size &&
               vj_gate_raise_wait(f->gates, job->gate, job->who.pid)) {
        /* What was read meanwhile shows a size that has been raised since. */
        job_stale(job, edited->size);
    }
    job->stage = VJ_JOB_TOLD;
}

/* Answers @job.  Returns the next one of its inode, whose turn it is, or NULL. */
static VjJob *finish(VjFront *f, const VjJob *job)
{
    VjJob *next;

    if (job->edited.changed && job->edited.size < job->edited.old_size) {
        vj_gate_untold(f->gates, job->gate, job->who.pid);
    }
    /* Before the answer: else the caller's next edit comes while this one is not over. */
    next = vj_gate_edit_end(f->gates, job->gate);
    reply_edit(job, job->result, &job->edited);
    return next;
}

/*
 * Goes on with @job.  False: something is to be invalidated, and @may_invalidate says that this
 * thread must not; another one goes on.  True: it is answered, and *@next is the next one of its inode,
 * whose turn it is, or NULL.
 */
static bool edit_run(VjFront *f, VjJob *job, bool may_invalidate, VjJob **next)
{
    if (job->stage == VJ_JOB_NEW) {
        begin(f, job, may_invalidate);
    }
    if (job->stage == VJ_JOB_APPLIED && !settle(f, job, may_invalidate)) {
        return false;
    }
    if (job->stage == VJ_JOB_SETTLED) {
        tell(f, job);
    }
    if (job->stale) {
        if (!may_invalidate) {
            return false;
        }
        drop_pages(f, job, job->stale_from, 0);
    }
    *next = finish(f, job);
    return true;
}

static void job_free(VjJob *job)
{
    vj_buf_unref(job->data);
    g_free(job);
}

/* An edit of an inode is answered, and @next, if any, waits behind it. */
static void edit_done(VjEditor *e, VjJob *next) VJ_REQUIRES(e->lock)
{
    e->count--;
    if (next != NULL) {
        g_queue_push_tail(&e->ready, next);
        vj_cond_signal(&e->wake);
    } else if (e->stop && e->count == 0) {
        vj_cond_broadcast(&e->wake);
    }
}

static gpointer edit_thread(gpointer data)
{
    VjEditor *e = data;

    vj_mutex_lock(&e->lock);
    for (;;) {
        VjJob *job = g_queue_pop_head(&e->ready), *next = NULL;

        if (job == NULL) {
            if (e->stop && e->count == 0) {
                break;
            }
            vj_cond_wait(&e->wake, &e->lock);
            continue;
        }
        vj_mutex_unlock(&e->lock);
        (void)edit_run(e->front, job, true, &next);
        job_free(job);
        vj_mutex_lock(&e->lock);
        edit_done(e, next);
    }
    vj_mutex_unlock(&e->lock);
    return NULL;
}

static void stale_push(VjEditor *e, uint64_t ino) VJ_REQUIRES(e->lock)
{
    g_array_append_val(e->stale, ino);
    vj_cond_signal(&e->stale_wake);
}

/* Nothing is stale now: the next late range, if its time has come; else waits for something. */
static LateItem *wait_for_stale(VjEditor *e) VJ_REQUIRES(e->lock)
{
    const LateItem *next = g_queue_peek_head(&e->late);

    if (next == NULL) {
        vj_cond_wait(&e->stale_wake, &e->lock);
    } else if (next->due_us <= vj_clock_mono_us() ||
               g_queue_get_length(&e->late) > LATE_MAX) {
        return g_queue_pop_head(&e->late);
    } else {
        /* The timeout is the event: the range is due. */
        (void)vj_cond_wait_until(&e->stale_wake, &e->lock, next->due_us);
    }
    return NULL;
}

static gpointer stale_thread(gpointer data)
{
    VjEditor *e = data;

    vj_mutex_lock(&e->lock);
    for (;;) {
        uint64_t ino, offset, len;
        bool more;

        if (e->stale->len == 0) {
            g_autofree LateItem *late = NULL;

            if (e->stop) {
                break;
            }
            late = wait_for_stale(e);
            if (late != NULL) {
                vj_mutex_unlock(&e->lock);
                invalidate(e->front, late->ino, late->offset, late->len);
                vj_mutex_lock(&e->lock);
            }
            continue;
        }
        ino = g_array_index(e->stale, uint64_t, 0);
        g_array_remove_index(e->stale, 0);
        vj_mutex_unlock(&e->lock);
        vj_gate_stale_take(e->front->gates, ino, &offset, &len);
        vj_front_hold(e->front, VJ_HOLD_STALE);
        invalidate(e->front, ino, offset, len);
        more = vj_gate_stale_done(e->front->gates, ino);
        vj_mutex_lock(&e->lock);
        if (more) {
            stale_push(e, ino);
        }
    }
    vj_mutex_unlock(&e->lock);
    return NULL;
}

VjEditor *vj_editor_new(VjFront *f)
{
    VjEditor *e = g_new0(VjEditor, 1);

    e->front = f;
    vj_mutex_init(&e->lock, VJ_RANK_FRONT, "front editor");
    vj_cond_init(&e->wake);
    vj_cond_init(&e->stale_wake);
    g_queue_init(&e->ready);
    e->stale = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_queue_init(&e->late);
    for (unsigned i = 0; i < VJ_FRONT_EDIT_THREADS; i++) {
        e->threads[i] = g_thread_new("vj-edit", edit_thread, e);
    }
    for (unsigned i = 0; i < VJ_FRONT_STALE_THREADS; i++) {
        e->stale_threads[i] = g_thread_new("vj-stale", stale_thread, e);
    }
    return e;
}

void vj_editor_stop(VjEditor *e)
{
    bool again;

    vj_mutex_lock(&e->lock);
    again = e->stopped;
    e->stop = e->stopped = true;
    vj_cond_broadcast(&e->wake);
    vj_cond_broadcast(&e->stale_wake);
    vj_mutex_unlock(&e->lock);
    if (again) {
        return;
    }
    for (unsigned i = 0; i < VJ_FRONT_EDIT_THREADS; i++) {
        g_thread_join(e->threads[i]);
    }
    for (unsigned i = 0; i < VJ_FRONT_STALE_THREADS; i++) {
        g_thread_join(e->stale_threads[i]);
    }
}

void vj_editor_free(VjEditor *e)
{
    uint64_t offset, len;

    g_assert(e->stop && e->count == 0);
    /* What came after the thread had ended: the mount is gone, and its pages with it. */
    for (guint i = 0; i < e->stale->len; i++) {
        uint64_t ino = g_array_index(e->stale, uint64_t, i);

        do {
            vj_gate_stale_take(e->front->gates, ino, &offset, &len);
        } while (vj_gate_stale_done(e->front->gates, ino));
    }
    g_array_unref(e->stale);
    g_queue_clear_full(&e->late, g_free);
    vj_cond_clear(&e->wake);
    vj_cond_clear(&e->stale_wake);
    vj_mutex_clear(&e->lock);
    g_free(e);
}

/* What a request thread has begun and must not go on with; nothing in it is needed any more that
 * comes into the file. */
static VjJob *rest_of(const VjJob *job)
{
    VjJob *rest = g_new(VjJob, 1);

    g_assert(job->data == NULL);
    *rest = *job;
    rest->edit.src = rest->shift.src = NULL;
    return rest;
}

bool vj_editor_run(VjEditor *e, VjJob *job)
{
    VjFront *f = e->front;
    VjJob *next = NULL;
    uint64_t from, len;
    bool may;

    if (!vj_front_has_threads(f, VJ_FRONT_EDITS_HERE) ||
        edit_range(f, job, &from, &len) < 0) {
        return false;
    }
    vj_mutex_lock(&e->lock);
    may = !e->stop && e->count < VJ_FRONT_EDITS_MAX && e->here < VJ_FRONT_EDITS_HERE;
    if (may) {
        e->count++;
        e->here++;
    }
    vj_mutex_unlock(&e->lock);
    if (!may) {
        return false;
    }
    may = vj_gate_edit_try(f->gates, job->ino, from, len, &job->gate);
    if (may && !edit_run(f, job, false, &next)) {
        VjJob *rest = rest_of(job);

        vj_mutex_lock(&e->lock);
        e->here--;
        g_queue_push_tail(&e->ready, rest); /* still counted */
        vj_cond_signal(&e->wake);
        vj_mutex_unlock(&e->lock);
        return true;
    }
    vj_mutex_lock(&e->lock);
    e->here--;
    edit_done(e, next);
    vj_mutex_unlock(&e->lock);
    return may;
}

void vj_editor_submit(VjEditor *e, VjJob *job)
{
    bool refused;

    vj_mutex_lock(&e->lock);
    refused = e->stop || e->count >= VJ_FRONT_EDITS_MAX;
    if (!refused) {
        e->count++;
    }
    vj_mutex_unlock(&e->lock);
    if (refused) {
        fuse_reply_err(job->req, ENOMEM);
        job_free(job);
        return;
    }
    if (!vj_gate_edit_begin(e->front->gates, job->ino, job, &job->gate)) {
        return;
    }
    vj_mutex_lock(&e->lock);
    g_queue_push_tail(&e->ready, job);
    vj_cond_signal(&e->wake);
    vj_mutex_unlock(&e->lock);
}

/* False: the threads have ended, and nobody will do it. */
static bool stale_add(VjEditor *e, uint64_t ino, uint64_t offset, uint64_t len,
                      uint64_t *ticket)
{
    bool queue, ended;

    queue = vj_gate_stale_add(e->front->gates, ino, offset, len, ticket);
    vj_mutex_lock(&e->lock);
    ended = e->stop;
    if (queue) {
        stale_push(e, ino);
    }
    vj_mutex_unlock(&e->lock);
    return !ended;
}

void vj_editor_stale(VjEditor *e, uint64_t ino, uint64_t offset, uint64_t len)
{
    uint64_t ticket;

    (void)stale_add(e, ino, offset, len, &ticket);
}

void vj_editor_fresh(VjEditor *e, uint64_t ino, uint64_t offset, uint64_t len,
                     bool extending)
{
    VjGates *gates = e->front->gates;
    LateItem *item;
    uint64_t ticket;

    if (len == 0 || !stale_add(e, ino, offset, len, &ticket) ||
        vj_gate_stale_wait(gates, ino, ticket, e->front->delays.quiet_us)) {
        return;
    }
    vj_trace(front,
             "ino %" G_GUINT64_FORMAT ": waited in vain for %" G_GUINT64_FORMAT
             "+%" G_GUINT64_FORMAT,
             ino, offset, len);
    if (!extending || !vj_gate_stale_withdraw(gates, ino, ticket)) {
        return;
    }
    item = g_new(LateItem, 1);
    *item = (LateItem){ino, offset, len, vj_clock_mono_us() + VJ_FRONT_HOT_US};
    vj_mutex_lock(&e->lock);
    g_queue_push_tail(&e->late, item);
    vj_cond_signal(&e->stale_wake);
    vj_mutex_unlock(&e->lock);
}
