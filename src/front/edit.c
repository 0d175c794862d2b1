/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * edit.c - carrying out edits, and the threads that invalidate the kernel's pages
 *
 * The call that carries an edit out comes while the kernel holds the lock of the inode.
 * By fallocate(2):
 *
 *   invalidate from the offset  where the kernel may hold pages there: dirty
 *                               ones come back in old coordinates
 *   close, apply                READs of pages wait from here on.  Where one has brought
 *                               a page since the invalidation began, once more from the
 *                               start
 *   answer, open                the kernel takes the size of the call
 *
 * By ftruncate(2) the kernel drops all pages of the file when it has the answer, after it
 * has written dirty ones back: those are in old coordinates (the window of coherence.c).
 * While it waits for that answer it writes nothing back, and an invalidation that meets a
 * dirty page would wait with it.  So what is dirty is written back before, by a
 * fallocate(2) that does nothing else: under the lock of the inode, or the kernel may
 * clear what a writer is appending (README.md, "Known limits").  Pages behind a smaller
 * end that come between the two calls are a reason to refuse the second one (-EAGAIN).
 *
 * A notification waits for locked pages and makes the kernel write dirty ones back to us,
 * so a thread that sends one must not be needed to serve requests, and must hold no lock:
 * the edit threads do nothing else.  An edit before no cached page needs none, and is
 * made by the request thread.
 */
#include "front/front-private.h"

#include "varjfs/ioctl.h"

#include <fcntl.h>

/* Edits and direct WRITEs that wait for a thread; more edits are -ENOMEM. */
#define JOBS_MAX 4096u
/* Ranges that wait to be invalidated; those of one inode become one. */
#define STALE_MAX 65536u

typedef struct VjJob {
    VjCarry carry;     /* req NULL: the range is stale, and no request waits */
    VjFlagsJob *flags; /* instead of an edit; owned by itself (VjWait) */
    bool is_flush;     /* the first of two calls: pages are written back */
    VjServed *served;  /* of the request; owned.  NULL: it cannot be cancelled, or none */
    size_t written;    /* by a direct WRITE that waits for the range; 0: it is none */
    uint64_t ino, offset, len;
} VjJob;

struct VjEditor {
    VjFront *front;
    VjMutex lock; /* VJ_RANK_FRONT */
    VjCond wake;
    /* guarded by lock: */
    GQueue jobs;          /* of VjJob, for which a caller waits */
    GQueue stale;         /* of VjJob, for which none does */
    GHashTable *stale_of; /* uint64_t* in VjJob → VjJob that waits */
    unsigned count;       /* jobs that are not done */
    bool stop;            /* no more jobs are taken */
    bool stopped;         /* a thread has joined the others, or is about to */

    GThread *threads[VJ_FRONT_EDIT_THREADS];
};

/* ---- notifications ----------------------------------------------------------------- */

/* -ENOENT: the kernel has forgotten the inode, with its pages.  The others: unmounted. */
static void log_failure(uint64_t ino, const char *what, int r)
{
    if (r < 0 && r != -ENOENT && r != -ENODEV && r != -ENOTCONN && r != -EBADF) {
        vj_log_warn("inode %" G_GUINT64_FORMAT
                    ": the kernel's %s cannot be invalidated: %s",
                    ino, what, g_strerror(-r));
    }
}

/* From @offset to @offset + @len; len 0: to the end.  False: they may still be there. */
static bool invalidate(VjFront *f, uint64_t ino, uint64_t offset, uint64_t len)
{
    int r;

    vj_lock_assert_none();
    vj_before_wait(); /* for requests, perhaps: those of pages, and of who ends a file */
    r = fuse_lowlevel_notify_inval_inode(f->session, ino, (off_t)offset, (off_t)len);
    vj_trace(front,
             "ino %" G_GUINT64_FORMAT ": invalidate %" G_GUINT64_FORMAT
             "+%" G_GUINT64_FORMAT ": %d",
             ino, offset, len, r);
    log_failure(ino, "pages", r);
    return r >= 0 || r == -ENOENT;
}

void vj_front_attributes_stale(VjFront *f, uint64_t ino)
{
    int r;

    vj_lock_assert_none();
    vj_before_wait(); /* for requests, perhaps: those of pages, and of who ends a file */
    r = fuse_lowlevel_notify_inval_inode(f->session, ino, -1, 0);
    vj_trace(front, "ino %" G_GUINT64_FORMAT ": invalidate attributes: %d", ino, r);
    log_failure(ino, "attributes", r);
}

bool vj_edit_drop_pages(VjFront *f, uint64_t ino, uint64_t offset, uint64_t len)
{
    bool are_dropped;
    VjDrop drop;

    vj_coherence_drop_begin(f->coherence, ino, offset, len, &drop);
    are_dropped = invalidate(f, ino, offset, len);
    vj_coherence_drop_end(f->coherence, &drop, are_dropped);
    return are_dropped;
}

/* ---- one edit ---------------------------------------------------------------------- */

/* What @s would do to the file as it is now. */
static int look(const VjStaged *s, VjEdited *out)
{
    return s->shift.len > 0 ? vj_fs_shift_look(s->handle, &s->shift, out)
                            : vj_fs_replace_look(s->handle, &s->edit, out);
}

/* Not as it was announced: the kernel would take a wrong size, or keep pages. */
static bool is_overtaken(const VjCarry *c, const VjEdited *now)
{
    const VjStaged *s = c->staged;

    if (c->is_truncate) {
        return now->changed && now->size == now->old_size;
    }
    if (s->carry.call != VARJFS_CARRY_FALLOCATE) {
        /* The kernel gets the size only after it has let go of the lock: appends to the
         * old end would overwrite what is behind it. */
        return s->carry.call == VARJFS_CARRY_FALLOCATE_SEEK && now->size > now->old_size;
    }
    /* fallocate(0) makes the kernel's size larger and never smaller. */
    return s->carry.mode == 0 ? now->size != s->size || now->size <= now->old_size
                              : now->size != now->old_size;
}

/* From where on the kernel's pages change, and how many bytes; *len 0: to the end. */
static void range_of(const VjStaged *s, const VjEdited *now, uint64_t *from,
                     uint64_t *len)
{
    *from = MIN(now->at, now->old_size);
    *len = s->shift.len > 0 && now->size == now->old_size ? s->shift.len : 0;
}

/* The data that was sent before belongs to the edit from now on. */
static int take_data(VjStaged *s)
{
    int r = 0;

    if (s->data == NULL && s->stage_id != 0) {
        r = vj_fs_stage_take(s->handle, s->stage_id, &s->data);
        if (r == 0 &&
            s->data->len != (s->shift.len > 0 ? s->shift.src_len : s->edit.len)) {
            r = -EINVAL; /* it has grown since */
        }
    }
    if (r == 0 && s->data != NULL) {
        s->edit.src = s->shift.src = s->data->data;
    }
    return r;
}

static int apply(const VjCarry *c, VjEdited *out)
{
    VjStaged *s = c->staged;
    int r = take_data(s);

    vj_served_changed(s->ino); /* what the file may run as, before the edit */
    *out = (VjEdited){.changed = false};
    if (r == 0 && s->shift.len > 0) {
        r = vj_fs_shift(&c->who, s->handle, &s->shift, out);
    } else if (r == 0) {
        r = vj_fs_replace(&c->who, s->handle, &s->edit, out);
    }
    if (r < 0) {
        out->changed = false;
    }
    vj_trace(front,
             "ino %" G_GUINT64_FORMAT ": %" G_GUINT64_FORMAT
             " bytes at %" G_GUINT64_FORMAT " become %" G_GUINT64_FORMAT ": %d",
             s->ino, out->old_len, out->at, out->len, r);
    return r;
}

/* @attr is of before the edit, which has happened: where nothing newer can be read, that
 * with another size will do.  The kernel asks again before it believes any of it. */
static void look_again(VjFront *f, uint64_t ino, const VjEdited *edited, VjAttr *attr)
{
    VjAttr now;

    if (vj_fs_getattr(f->fs, ino, &now) == 0) {
        *attr = now;
    } else if (edited->changed) {
        attr->st.st_size = (off_t)edited->size;
    }
}

/* Answers the call.  What is left of @c->staged is freed.  @attr: for an ftruncate(2)
 * that succeeded. */
static void answer(VjFront *f, VjCarry *c, int r, const VjEdited *edited,
                   const VjAttr *attr)
{
    VjStaged *s = g_steal_pointer(&c->staged);
    bool keeps_size = !c->is_truncate && s->carry.mode == FALLOC_FL_KEEP_SIZE;

    if (r == 0 && s->edit.append && s->any_size &&
        s->carry.call != VARJFS_CARRY_FALLOCATE) {
        vj_stage_keep_result(f->staged, s, edited->at);
    } else {
        vj_staged_free(s);
    }
    if (keeps_size && edited->changed) {
        vj_front_attributes_stale(f, c->ino);
    }
    vj_serve_answers();
    if (c->is_truncate && r == 0) {
        fuse_reply_attr(c->req, &attr->st, 0);
    } else {
        fuse_reply_err(c->req, r < 0 ? vj_front_errno(r) : 0);
    }
    if (r == -ECANCELED) {
        vj_editor_stale(f->editor, c->ino, 0, VJ_FILE_SIZE_MAX);
    }
}

/* Between edit_begin and edit_end: applies the edit and answers its caller. */
static void apply_and_answer(VjFront *f, VjCarry *c, VjEditPass *pass)
{
    VjWindow window = VJ_WINDOW_NONE;
    VjEdited edited = {.changed = false};
    VjAttr attr;
    int r;

    vj_front_hold(f, VJ_HOLD_APPLY);
    r = c->is_truncate ? vj_fs_getattr(f->fs, c->ino, &attr) : 0;
    if (r == 0 && pass->may_hold && !pass->has_room) {
        r = -EAGAIN;
    }
    if (r == 0) {
        r = apply(c, &edited);
    }
    if (edited.changed) {
        vj_front_hold(f, VJ_HOLD_EDIT);
    }
    if (edited.changed && c->is_truncate && pass->may_hold) {
        /* They go, unless the kernel believes in the new size already. */
        window = VJ_WINDOW_KERNEL;
    }
    if (c->is_truncate && r == 0) {
        look_again(f, c->ino, &edited, &attr);
    }
    answer(f, c, r, &edited, &attr);
    vj_coherence_edit_end(f->coherence, pass, &edited, window,
                          edited.changed ? &c->who : NULL);
}

/* The same where READs bring pages faster than they are dropped. */
static void apply_beside_pages(VjFront *f, VjCarry *c, VjEditPass *pass, uint64_t from,
                               uint64_t len)
{
    VjEdited edited;
    int r = apply(c, &edited);

    vj_coherence_edit_end(f->coherence, pass, &edited,
                          edited.changed ? VJ_WINDOW_EDIT : VJ_WINDOW_NONE, NULL);
    if (edited.changed) {
        vj_front_hold(f, VJ_HOLD_EDIT);
        (void)vj_edit_drop_pages(f, c->ino, from, len);
        vj_coherence_locked(f->coherence, c->ino, 0, 0);
    }
    answer(f, c, r, &edited, NULL);
}

/* Until the kernel knows of the new end it clears the page of the old one behind that,
 * when it writes it back: no request may read that page before. */
static bool clears_old_end(const VjEdited *now)
{
    return now->size > now->old_size && now->old_size % VJ_PAGE_BYTES != 0;
}

/* On a thread that may invalidate. */
static void edit_with_pages(VjFront *f, VjCarry *c)
{
    const VjEdited nothing = {.changed = false};
    uint64_t from, len;
    VjEdited now = nothing;
    VjEditPass pass;
    int r = look(c->staged, &now);

    if (r < 0) {
        answer(f, c, vj_stall_end(r), &now, NULL);
        return;
    }
    range_of(c->staged, &now, &from, &len);
    for (unsigned i = 0;; i++) {
        if (i > 0) {
            vj_stall_begin(); /* the first one lasts since it was submitted */
        }
        /* READs that come meanwhile are noted only behind an invalidation to the end. */
        (void)vj_edit_drop_pages(f, c->ino, from, i == 0 ? len : 0);
        vj_front_hold(f, VJ_HOLD_DROPPED);
        r = vj_stall_end(0);
        if (r == 0) {
            r = vj_coherence_edit_begin(f->coherence, c->ino, from, len, &pass);
        }
        if (r < 0) {
            answer(f, c, r, &nothing, NULL);
            return;
        }
        if (!pass.may_hold) {
            apply_and_answer(f, c, &pass);
            return;
        }
        if (i == f->delays.tries && !clears_old_end(&now)) {
            apply_beside_pages(f, c, &pass, from, len);
            return;
        }
        vj_coherence_edit_end(f->coherence, &pass, &nothing, VJ_WINDOW_NONE, NULL);
        if (i == f->delays.tries) {
            answer(f, c, -EAGAIN, &nothing, NULL);
            return;
        }
    }
}

static void submit(VjEditor *e, const VjJob *what);

/*
 * Whether ftruncate(2) is refused because the kernel may hold pages: 0, -EFBIG a delete
 * that was not staged, -EAGAIN they came between the two calls.  The kernel drops what
 * was stored into those behind a smaller end, so the two are made again until the caller
 * asks for the edit whatever comes.
 */
static int refusal_for_pages(VjFront *f, const VjCarry *c, const VjEdited *now,
                             const VjEditPass *pass)
{
    if (c->staged->is_single) {
        return -EFBIG;
    }
    return now->changed && !c->staged->any_size && f->delays.tries > 0 &&
                   pass->held_end > MIN(now->size, now->old_size)
               ? -EAGAIN
               : 0;
}

void vj_edit_carry_out(VjFront *f, VjCarry *c)
{
    const VjEdited nothing = {.changed = false};
    VjEdited now = nothing;
    int r = look(c->staged, &now);
    VjEditPass pass;
    uint64_t from, len;
    bool is_first;
    int refusal = 0;

    if (r == 0 && is_overtaken(c, &now)) {
        r = -EAGAIN;
    }
    is_first =
        !c->is_truncate && c->staged->carry.call == VARJFS_CARRY_FALLOCATE_FTRUNCATE;
    if (r < 0 || (!now.changed && !c->is_truncate && !is_first)) {
        vj_coherence_locked(f->coherence, c->ino, 0, 0);
        answer(f, c, r, &now, NULL);
        return;
    }
    range_of(c->staged, &now, &from, &len);
    if (is_first) {
        submit(f->editor, &(VjJob){.carry = *c, .is_flush = true, .offset = from});
        return;
    }
    r = vj_coherence_edit_begin(f->coherence, c->ino, from, len, &pass);
    if (r < 0) {
        answer(f, c, r, &nothing, NULL);
        return;
    }
    if (pass.may_hold && c->is_truncate) {
        refusal = refusal_for_pages(f, c, &now, &pass);
    }
    if (!pass.may_hold || (c->is_truncate && refusal == 0)) {
        apply_and_answer(f, c, &pass);
        return;
    }
    vj_coherence_edit_end(f->coherence, &pass, &nothing, VJ_WINDOW_NONE, NULL);
    if (refusal != 0) {
        answer(f, c, refusal, &nothing, NULL);
        return;
    }
    submit(f->editor, &(VjJob){.carry = *c});
}

/* ---- staging ----------------------------------------------------------------------- */

static uint32_t call_for(const VjStaged *s, const VjEdited *now)
{
    bool grows = now->size > now->old_size, shrinks = now->size < now->old_size;

    /* The kernel compares what ftruncate(2) is asked for with the limit of the process,
     * and drops no page where the size stays.  What grows must not leave the kernel with
     * the old end for a moment: an append to that would overwrite it. */
    if (s->limited || (!grows && !shrinks)) {
        return shrinks || (!grows && s->any_size) ? VARJFS_CARRY_FALLOCATE_SEEK
                                                  : VARJFS_CARRY_FALLOCATE;
    }
    return shrinks || s->any_size ? VARJFS_CARRY_FTRUNCATE : VARJFS_CARRY_FALLOCATE;
}

/* Nothing to do, whatever the size is.  An edit that is nothing for the size as it is now
 * may meet another size: its caller has to wait for the edit that changes it. */
static bool asks_nothing(const VjStaged *s)
{
    return s->shift.len == 0 && s->edit.len == 0 && s->edit.old_len == 0 && !s->any_size;
}

static void stage_answer(VjFront *f, VjCarry *c)
{
    VjStaged *s = g_steal_pointer(&c->staged);
    union {
        struct varjfs_edit edit;
        struct varjfs_shift shift;
    } out = {.edit = {.version = VARJFS_IOC_VERSION}};
    bool is_shift = s->shift.len > 0;
    struct varjfs_carry *carry = is_shift ? &out.shift.carry : &out.edit.carry;
    int r = 0;

    if (is_shift) {
        out.shift.offset = s->shift.offset;
        out.shift.len = s->shift.len;
        out.shift.data_len = s->shift.src_len;
        out.shift.change = s->shift.change;
        out.shift.size = s->size;
    } else {
        out.edit.offset = s->at;
        out.edit.old_len = s->old_len;
        out.edit.len = s->edit.len;
        out.edit.size = s->size;
    }
    if (s->carry.call == VARJFS_CARRY_NOTHING) {
        vj_staged_free(s);
    } else {
        r = vj_stage_put(f->staged, s, carry);
    }
    vj_serve_answers();
    if (r < 0) {
        fuse_reply_err(c->req, vj_front_errno(r));
    } else {
        fuse_reply_ioctl(c->req, 0, &out, is_shift ? sizeof out.shift : sizeof out.edit);
    }
}

void vj_edit_stage(VjFront *f, VjCarry *c)
{
    VjStaged *s = c->staged;
    uint64_t from, len;
    VjEdited now;
    int r = look(s, &now);

    if (c->who.pid != 0) {
        /* The one before ends, whatever becomes of this. */
        vj_staged_free(vj_stage_take_any(f->staged, s->handle, c->who.pid));
    }
    if (r < 0) {
        vj_staged_free(g_steal_pointer(&c->staged));
        fuse_reply_err(c->req, vj_front_errno(r));
        return;
    }
    s->at = now.at;
    s->old_len = now.old_len;
    s->size = now.size;
    if (asks_nothing(s)) {
        s->carry.call = VARJFS_CARRY_NOTHING;
        stage_answer(f, c);
        return;
    }
    s->carry.call = call_for(s, &now);
    if (s->carry.call != VARJFS_CARRY_FALLOCATE || now.size == now.old_size) {
        s->carry.mode = FALLOC_FL_KEEP_SIZE;
    }
    range_of(s, &now, &from, &len);
    if (s->carry.call == VARJFS_CARRY_FTRUNCATE &&
        vj_coherence_may_hold(f->coherence, c->ino, from, len)) {
        s->carry.call = VARJFS_CARRY_FALLOCATE_FTRUNCATE;
    }
    stage_answer(f, c);
}

/* ---- the threads ------------------------------------------------------------------- */

/* The first of two calls. */
static void flush(VjFront *f, VjJob *job)
{
    int r;

    (void)vj_edit_drop_pages(f, job->carry.ino, job->offset, 0);
    vj_front_hold(f, VJ_HOLD_FLUSHED);
    r = vj_stall_end(0);
    if (r == 0) {
        vj_stage_put_back(f->staged, g_steal_pointer(&job->carry.staged));
    } else {
        vj_staged_free(g_steal_pointer(&job->carry.staged));
    }
    fuse_reply_err(job->carry.req, r < 0 ? vj_front_errno(r) : 0);
}

/* A direct WRITE, which is in the file. */
static void answer_written(VjFront *f, const VjJob *job)
{
    (void)vj_edit_drop_pages(f, job->carry.ino, job->offset, job->len);
    vj_front_hold(f, VJ_HOLD_WRITE_REPLY);
    (void)!vj_stall_end(0); /* the caller may be gone */
    fuse_reply_write(job->carry.req, job->written);
}

static void run_one(VjFront *f, VjJob *job)
{
    if (job->flags != NULL) {
        job->flags->run(f, job->flags);
    } else if (job->carry.req == NULL) {
        vj_front_hold(f, VJ_HOLD_STALE);
        (void)vj_edit_drop_pages(f, job->ino, job->offset, job->len);
    } else if (job->is_flush) {
        flush(f, job);
    } else if (job->written > 0) {
        answer_written(f, job);
    } else {
        edit_with_pages(f, &job->carry);
    }
}

static void run(VjFront *f, VjJob *job)
{
    if (job->served != NULL) {
        vj_cancel_enter(&job->served->cancel);
    }
    run_one(f, job);
    vj_served_last(job->served, f);
    g_free(job);
}

/* Edits first: their callers wait. */
static VjJob *next_job(VjEditor *e) VJ_REQUIRES(e->lock)
{
    VjJob *job = g_queue_pop_head(&e->jobs);

    if (job == NULL) {
        job = g_queue_pop_head(&e->stale);
        if (job != NULL) {
            g_hash_table_remove(e->stale_of, &job->ino);
        }
    }
    return job;
}

static gpointer edit_thread(gpointer data)
{
    VjEditor *e = data;

    vj_mutex_lock(&e->lock);
    for (;;) {
        VjJob *job = next_job(e);

        if (job == NULL) {
            if (e->stop && e->count == 0) {
                break;
            }
            vj_cond_wait(&e->wake, &e->lock);
            continue;
        }
        vj_mutex_unlock(&e->lock);
        run(e->front, job);
        vj_mutex_lock(&e->lock);
        e->count--;
        if (e->stop && e->count == 0) {
            vj_cond_broadcast(&e->wake);
        }
    }
    vj_mutex_unlock(&e->lock);
    return NULL;
}

static bool is_taken(VjEditor *e, const VjJob *what)
{
    VjJob *job = g_memdup2(what, sizeof *what);
    bool taken;

    job->served = what->flags == NULL ? vj_served_hand_over(e->front) : NULL;
    if (what->carry.req != NULL) {
        vj_count_hand_over(e->front->count, what->carry.req);
    }
    vj_mutex_lock(&e->lock);
    taken = !e->stop && g_queue_get_length(&e->jobs) < JOBS_MAX;
    if (taken) {
        e->count++;
        g_queue_push_tail(&e->jobs, job);
        vj_cond_signal(&e->wake);
    }
    vj_mutex_unlock(&e->lock);
    if (!taken) {
        vj_served_last(job->served, e->front);
        g_free(job);
    }
    return taken;
}

static void submit(VjEditor *e, const VjJob *what)
{
    if (!is_taken(e, what)) {
        vj_staged_free(what->carry.staged);
        fuse_reply_err(what->carry.req, ENOMEM);
    }
}

bool vj_edit_written_past(VjFront *f, fuse_req_t req, uint64_t ino, uint64_t offset,
                          size_t size)
{
    VjJob job = {.carry = {.req = req, .ino = ino},
                 .written = size,
                 .offset = offset,
                 .len = size};

    if (!vj_coherence_direct_written(f->coherence, ino, &job.offset, &job.len)) {
        return false;
    }
    if (is_taken(f->editor, &job)) {
        return true;
    }
    vj_editor_stale(f->editor, ino, offset, size);
    return false;
}

bool vj_editor_flags(VjEditor *e, VjFlagsJob *job)
{
    return is_taken(e, &(VjJob){.flags = job});
}

VjEditor *vj_editor_new(VjFront *f)
{
    VjEditor *e = g_new0(VjEditor, 1);

    e->front = f;
    vj_mutex_init(&e->lock, VJ_RANK_FRONT, "front editor");
    vj_cond_init(&e->wake);
    g_queue_init(&e->jobs);
    g_queue_init(&e->stale);
    e->stale_of = g_hash_table_new(g_int64_hash, g_int64_equal);
    for (unsigned i = 0; i < VJ_FRONT_EDIT_THREADS; i++) {
        e->threads[i] = g_thread_new("vj-edit", edit_thread, e);
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
    vj_mutex_unlock(&e->lock);
    for (unsigned i = 0; i < VJ_FRONT_EDIT_THREADS && !again; i++) {
        g_thread_join(e->threads[i]);
    }
}

void vj_editor_free(VjEditor *e)
{
    g_assert(e->stop && e->count == 0);
    g_hash_table_unref(e->stale_of);
    vj_cond_clear(&e->wake);
    vj_mutex_clear(&e->lock);
    g_free(e);
}

/* One range for each inode: it grows. */
static bool stale_add(VjEditor *e, uint64_t ino, uint64_t offset, uint64_t len)
    VJ_REQUIRES(e->lock)
{
    VjJob *job = g_hash_table_lookup(e->stale_of, &ino);
    uint64_t end = offset + len;

    if (job != NULL) {
        end = MAX(end, job->offset + job->len);
        job->offset = MIN(job->offset, offset);
        job->len = end - job->offset;
        return true;
    }
    if (g_queue_get_length(&e->stale) >= STALE_MAX) {
        return false;
    }
    job = g_new0(VjJob, 1);
    job->ino = ino;
    job->offset = offset;
    job->len = len;
    g_hash_table_insert(e->stale_of, &job->ino, job);
    g_queue_push_tail(&e->stale, job);
    e->count++;
    vj_cond_signal(&e->wake);
    return true;
}

void vj_editor_stale(VjEditor *e, uint64_t ino, uint64_t offset, uint64_t len)
{
    bool added = true;

    if (len == 0) {
        return;
    }
    vj_mutex_lock(&e->lock);
    /* At the end the mount is gone, and its pages with it. */
    if (!e->stop) {
        added = stale_add(e, ino, offset, len);
    }
    vj_mutex_unlock(&e->lock);
    if (!added) {
        vj_log_warn(
            "inode %" G_GUINT64_FORMAT
            ": too many pages could not be stored; the kernel shows some as if they were",
            ino);
    }
}
