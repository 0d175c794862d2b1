/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ops-ioctl.c - edits, staged data, text, recoding, and everything that waits for
 * durability
 *
 * The command number carries the size of its argument, so commands are distinguished by
 * type and number, and every size and length is checked here against what arrived.
 */
#include "front/front-private.h"

static VjFront *front_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* ---- durability: on threads that may wait ------------------------------------------ */

typedef struct SyncJob {
    VjWait wait; /* no handle: see all */
    VjFlushWait flush;
    bool all; /* contents too, not only names */
    bool ioctl;
    bool is_recode;
    bool is_tend;
    bool is_node;
    union {
        struct varjfs_recode recode;
        struct varjfs_tend tend;
        struct varjfs_node node;
    };
    VjCaller who;
} SyncJob;

static void recode_job(VjFront *f, SyncJob *job)
{
    struct varjfs_recode *io = &job->recode;
    VjRecode step = {.offset = io->cursor, .version = io->state};
    int r = vj_fs_recode(job->wait.handle, &job->who, &step);

    if (r >= 0 && step.rewritten_bytes > 0) {
        vj_front_attributes_stale(f, vj_fs_handle_ino(job->wait.handle)); /* st_blocks */
    }
    if (!vj_wait_claim(&job->wait)) {
        return;
    }
    if (r < 0) {
        fuse_reply_err(job->wait.req, vj_front_errno(r));
        return;
    }
    io->flags = step.changed ? VARJFS_RECODE_CHANGED : 0;
    io->cursor = step.done ? VARJFS_RECODE_END : step.offset;
    io->state = step.version;
    io->size = step.size;
    io->examined = step.examined_bytes;
    io->rewritten = step.rewritten_bytes;
    io->unreadable = step.unreadable_bytes;
    fuse_reply_ioctl(job->wait.req, 0, io, sizeof *io);
}

static void tend_job(VjFront *f, SyncJob *job)
{
    struct varjfs_tend *io = &job->tend;
    VjTend step = {.cursor = io->cursor};
    int r = vj_fs_tend(f->fs, &job->who, io->what, &step);

    G_STATIC_ASSERT(VARJFS_TEND_BAD == VJ_TEND_BAD_MOST);
    if (!vj_wait_claim(&job->wait)) {
        return;
    }
    if (r < 0) {
        fuse_reply_err(job->wait.req, vj_front_errno(r));
        return;
    }
    io->cursor = step.cursor;
    io->total = step.total;
    io->examined = step.examined;
    io->examined_bytes = step.examined_bytes;
    io->found = step.found;
    io->found_bytes = step.found_bytes;
    io->bad_count = step.bad_count;
    memcpy(io->bad, step.bad, sizeof io->bad);
    fuse_reply_ioctl(job->wait.req, 0, io, sizeof *io);
}

static void run_node(VjFront *f, const VjCaller *who, struct varjfs_node *io)
{
    static const VjNodeChangeKind kinds[] = {[VARJFS_NODE_ADD] = VJ_NODE_ADD,
                                             [VARJFS_NODE_DRAIN] = VJ_NODE_DRAIN,
                                             [VARJFS_NODE_REMOVE] = VJ_NODE_REMOVE};
    g_autoptr(GError) error = NULL;
    uint64_t left = 0;

    if (io->what == VARJFS_NODE_COUNT) {
        int r = vj_fs_count_at_node(f->fs, who, io->host, &left);

        if (r < 0) {
            vj_error_set_errno(&error, -r, "node %s", io->host);
        }
    } else {
        VjNodeChange change = {.kind = kinds[io->what],
                               .address = io->host,
                               .weight = io->weight,
                               .is_forced = (io->flags & VARJFS_NODE_FORCE) != 0};

        (void)vj_fs_change_nodes(f->fs, who, &change, &error);
    }
    io->left = left;
    io->error = error != NULL ? (uint32_t)error->code : 0;
    memset(io->message, 0, sizeof io->message);
    if (error != NULL) {
        g_strlcpy(io->message, error->message, sizeof io->message);
    }
}

static void node_job(VjFront *f, SyncJob *job)
{
    run_node(f, &job->who, &job->node);
    if (!vj_wait_claim(&job->wait)) {
        return;
    }
    if (job->node.error == EPERM) {
        fuse_reply_err(job->wait.req, EPERM);
    } else {
        fuse_reply_ioctl(job->wait.req, 0, &job->node, sizeof job->node);
    }
}

/* An error that no fsync of the handle has returned yet is returned once, and not to a
 * caller that was killed meanwhile. */
static void durable_answer(SyncJob *job, int r)
{
    VjHandle *h = job->wait.handle;
    int earlier = 0;

    if (!vj_wait_claim(&job->wait)) {
        return;
    }
    if (h != NULL) {
        /* Taken also when this attempt failed: one failure is returned once. */
        earlier = vj_fs_take_error(h);
    }
    r = r < 0 ? r : earlier;
    if (r == 0 && job->ioctl) {
        fuse_reply_ioctl(job->wait.req, 0, NULL, 0);
    } else {
        fuse_reply_err(job->wait.req, r < 0 ? vj_front_errno(r) : 0);
    }
}

static void durable_job(VjFront *f, SyncJob *job)
{
    int r;

    vj_front_hold(f, VJ_HOLD_FSYNC);
    if (job->wait.handle != NULL) {
        r = vj_fs_sync(job->wait.handle);
    } else {
        r = job->all ? vj_fs_sync_all(f->fs) : vj_fs_sync_names(f->fs);
    }
    durable_answer(job, r);
}

void vj_front_sync_job(gpointer data, gpointer user_data)
{
    VjFront *f = user_data;
    SyncJob *job;

    (void)data;
    vj_mutex_lock(&f->lock);
    job = g_queue_pop_head(&f->sync_jobs);
    vj_mutex_unlock(&f->lock);
    if (job == NULL) {
        return; /* its caller is gone */
    }
    if (job->is_recode) {
        recode_job(f, job);
    } else if (job->is_tend) {
        tend_job(f, job);
    } else if (job->is_node) {
        node_job(f, job);
    } else {
        durable_job(f, job);
    }
    vj_wait_unref(&job->wait);
}

static SyncJob *sync_job_new(fuse_req_t req, VjHandle *h, const SyncJob *what)
{
    SyncJob *job = g_memdup2(what, sizeof *what);

    vj_wait_begin(&job->wait, front_of(req), req, h);
    return job;
}

/* Jobs wait in a queue of ours, under a lock that race checkers see; the pool's counts
 * them.  The queue is bounded by the kernel: one entry for each thread that sits in
 * fsync(2). */
static void sync_push(VjFront *f, SyncJob *job)
{
    vj_mutex_lock(&f->lock);
    g_queue_push_tail(&f->sync_jobs, job);
    /* Under the lock: once another thread has done the job, the pools may be freed
     * (vj_front_await_waits). */
    if (!g_thread_pool_push(f->syncers, f, NULL)) {
        /* Queued, but no thread could be started for it. */
        (void)g_thread_pool_push(f->sync_reserve, f, NULL);
    }
    vj_mutex_unlock(&f->lock);
}

static void sync_submit(fuse_req_t req, VjHandle *h, const SyncJob *what)
{
    sync_push(front_of(req), sync_job_new(req, h, what));
}

static void durable_done(VjFlushWait *w, int rc)
{
    SyncJob *job = (SyncJob *)((char *)w - offsetof(SyncJob, flush));

    if (rc == -EAGAIN) {
        sync_push(job->wait.front, job);
        return;
    }
    durable_answer(job, rc);
    vj_wait_unref(&job->wait);
}

/* One more of @most that there may be; false: there are as many. */
static bool take_one(gint *count, gint most)
{
    gint now;

    do {
        now = g_atomic_int_get(count);
        if (now >= most) {
            return false;
        }
    } while (!g_atomic_int_compare_and_exchange(count, now, now + 1));
    return true;
}

/*
 * Durability never waits for another request, so the request thread sees to it itself,
 * which saves two wake-ups; a few do at a time, so that a store that hangs leaves enough
 * of them.  Where one syncs already, it answers for the others too.
 */
static void durable_submit(fuse_req_t req, VjHandle *h)
{
    VjFront *f = front_of(req);
    bool here = vj_front_has_threads(f, VJ_FRONT_SYNCS_HERE) &&
                take_one(&f->syncs_here, VJ_FRONT_SYNCS_HERE);
    SyncJob *job = sync_job_new(req, h, &(SyncJob){.flush = {.done = durable_done}});

    vj_trace(front, "durable: by a %s thread", here ? "request" : "sync");
    if (!here) {
        sync_push(f, job);
        return;
    }
    vj_front_hold(f, VJ_HOLD_FSYNC);
    if (h != NULL) {
        vj_fs_sync_join(h, &job->flush);
    } else {
        vj_fs_sync_names_join(f->fs, &job->flush);
    }
    (void)g_atomic_int_dec_and_test(&f->syncs_here);
}

void vj_front_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
                    struct fuse_file_info *fi)
{
    (void)ino;
    (void)datasync;
    durable_submit(req, vj_front_handle(fi));
}

void vj_front_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync,
                       struct fuse_file_info *fi)
{
    (void)ino;
    (void)datasync;
    (void)fi;
    durable_submit(req, NULL);
}

/* ---- edits ------------------------------------------------------------------------- */

typedef struct Argument {
    fuse_req_t req;
    uint64_t ino;
    VjHandle *handle; /* NULL: a directory */
    const void *bytes;
    size_t len;
} Argument;

/* With a copy of what stands behind the structure of @head bytes. */
static VjStaged *staged_of(const Argument *a, size_t head)
{
    return vj_staged_new((const uint8_t *)a->bytes + head, a->len - head);
}

/* The @len bytes of data of an edit: the copy, or what was sent under @stage_id. */
static int edit_data(const Argument *a, uint64_t len, bool staged, uint64_t stage_id,
                     VjStaged *s)
{
    size_t room = s->copied;

    if (staged) {
        s->stage_id = stage_id;
        return stage_id == 0 || room != 0 ? -EINVAL
                                          : vj_fs_stage_has(a->handle, stage_id, len);
    }
    if (stage_id != 0 || len != room) {
        return -EINVAL;
    }
    s->edit.src = s->shift.src = s->bytes;
    return 0;
}

/* Takes @s.  @r: what is wrong with it. */
static void stage_submit(const Argument *a, VjStaged *s, int r)
{
    VjCarry carry = {.req = a->req, .ino = a->ino, .staged = s};

    if (r < 0) {
        vj_staged_free(s);
        fuse_reply_err(a->req, vj_front_errno(r));
        return;
    }
    vj_front_caller(a->req, &carry.who);
    s->handle = a->handle;
    s->ino = a->ino;
    s->uid = carry.who.uid;
    s->tid = carry.who.pid;
    vj_edit_stage(front_of(a->req), &carry);
}

/* True: the argument is not @size bytes at least, or not a file's, and was answered. */
static bool refused(const Argument *a, size_t size)
{
    if (a->handle == NULL) {
        fuse_reply_err(a->req, EISDIR);
    } else if (a->len < size) {
        fuse_reply_err(a->req, EINVAL);
    }
    return a->handle == NULL || a->len < size;
}

static bool are_edit_flags_valid(uint32_t flags)
{
    uint32_t kind = flags & ~(VARJFS_EDIT_ANY_SIZE | VARJFS_EDIT_LIMITED);

    /* A hole has no data; what is appended has nothing behind it. */
    return (kind & ~(VARJFS_EDIT_APPEND | VARJFS_EDIT_STAGED)) == 0 ||
           kind == VARJFS_EDIT_HOLE || kind == (VARJFS_EDIT_HOLE | VARJFS_EDIT_INSIDE);
}

static void ioctl_edit(const Argument *a)
{
    struct varjfs_edit in;
    VjStaged *s;
    int r;

    if (refused(a, sizeof in)) {
        return;
    }
    memcpy(&in, a->bytes, sizeof in);
    s = staged_of(a, sizeof in);
    s->edit = (VjEdit){
        .offset = in.offset,
        .old_len = in.old_len,
        .len = in.len,
        .append = (in.flags & VARJFS_EDIT_APPEND) != 0,
        .hole = (in.flags & VARJFS_EDIT_HOLE) != 0,
        .inside = (in.flags & VARJFS_EDIT_INSIDE) != 0,
    };
    s->any_size = (in.flags & VARJFS_EDIT_ANY_SIZE) != 0;
    s->limited = (in.flags & VARJFS_EDIT_LIMITED) != 0;
    if (in.version != VARJFS_IOC_VERSION || !are_edit_flags_valid(in.flags)) {
        r = -EINVAL;
    } else if (s->edit.hole) {
        r = in.stage_id != 0 || a->len != sizeof in ? -EINVAL : 0;
    } else {
        r = edit_data(a, in.len, (in.flags & VARJFS_EDIT_STAGED) != 0, in.stage_id, s);
    }
    stage_submit(a, s, r);
}

static void ioctl_edit_drop(const Argument *a)
{
    struct varjfs_edit io;
    VjStaged *s;

    if (refused(a, sizeof io)) {
        return;
    }
    memcpy(&io, a->bytes, sizeof io);
    if (a->len != sizeof io || io.version != VARJFS_IOC_VERSION || io.flags != 0) {
        fuse_reply_err(a->req, EINVAL);
        return;
    }
    s = vj_stage_take_any(front_of(a->req)->staged, a->handle, fuse_req_ctx(a->req)->pid);
    if (s == NULL) {
        fuse_reply_err(a->req, ENOENT);
        return;
    }
    io.offset = s->edit.offset;
    vj_staged_free(s);
    fuse_reply_ioctl(a->req, 0, &io, sizeof io);
}

static void ioctl_look(const Argument *a, struct varjfs_shift *io)
{
    int r = -EINVAL;

    if (io->version == VARJFS_IOC_VERSION && io->flags == VARJFS_SHIFT_LOOK &&
        io->offset == 0 && io->len == 0 && io->data_len == 0 && io->stage_id == 0 &&
        a->len == sizeof *io) {
        uint64_t change = 0, size = 0;

        r = vj_fs_change_count(a->handle, &change, &size);
        io->change = change;
        io->size = size;
    }
    if (r < 0) {
        fuse_reply_err(a->req, vj_front_errno(r));
    } else {
        fuse_reply_ioctl(a->req, 0, io, sizeof *io);
    }
}

static void ioctl_shift(const Argument *a)
{
    struct varjfs_shift in;
    VjStaged *s;
    int r;

    if (refused(a, sizeof in)) {
        return;
    }
    memcpy(&in, a->bytes, sizeof in);
    if (in.flags & VARJFS_SHIFT_LOOK) {
        ioctl_look(a, &in);
        return;
    }
    s = staged_of(a, sizeof in);
    s->shift = (VjFileShift){
        .offset = in.offset,
        .len = in.len,
        .src_len = in.data_len,
        .down = (in.flags & VARJFS_SHIFT_DOWN) != 0,
        .change = in.change,
    };
    if (in.version != VARJFS_IOC_VERSION ||
        (in.flags & ~(VARJFS_SHIFT_DOWN | VARJFS_SHIFT_STAGED)) != 0 || in.len == 0) {
        r = -EINVAL; /* a len of 0 would be no shift to the editor */
    } else {
        r = edit_data(a, in.data_len, (in.flags & VARJFS_SHIFT_STAGED) != 0, in.stage_id,
                      s);
    }
    stage_submit(a, s, r);
}

static void ioctl_stage(const Argument *a)
{
    struct varjfs_stage io;
    int r;

    if (a->handle == NULL) {
        fuse_reply_err(a->req, EISDIR);
        return;
    }
    if (a->len < sizeof io) {
        fuse_reply_err(a->req, EINVAL);
        return;
    }
    memcpy(&io, a->bytes, sizeof io);
    if (io.version != VARJFS_IOC_VERSION || (io.flags & ~VARJFS_STAGE_DROP) != 0 ||
        io.len != a->len - sizeof io) {
        fuse_reply_err(a->req, EINVAL);
        return;
    }
    if (io.flags & VARJFS_STAGE_DROP) {
        r = vj_fs_stage_drop(a->handle, io.stage_id);
    } else {
        uint64_t id = io.stage_id;

        r = vj_fs_stage_add(a->handle, &id, io.offset, (const char *)a->bytes + sizeof io,
                            io.len);
        io.stage_id = id;
    }
    if (r < 0) {
        fuse_reply_err(a->req, vj_front_errno(r));
    } else {
        fuse_reply_ioctl(a->req, 0, &io, sizeof io);
    }
}

static void ioctl_recode(const Argument *a)
{
    SyncJob job = {.is_recode = true};

    if (a->handle == NULL) {
        fuse_reply_err(a->req, EISDIR);
        return;
    }
    if (a->len == sizeof job.recode) {
        memcpy(&job.recode, a->bytes, sizeof job.recode);
    }
    if (a->len != sizeof job.recode || job.recode.version != VARJFS_IOC_VERSION ||
        job.recode.flags != 0 || job.recode.cursor > VJ_FILE_SIZE_MAX) {
        fuse_reply_err(a->req, EINVAL);
        return;
    }
    vj_front_caller(a->req, &job.who);
    sync_submit(a->req, a->handle, &job);
}

static void ioctl_tend(const Argument *a)
{
    SyncJob job = {.is_tend = true};

    if (a->len == sizeof job.tend) {
        memcpy(&job.tend, a->bytes, sizeof job.tend);
    }
    if (a->len != sizeof job.tend || job.tend.version != VARJFS_IOC_VERSION) {
        fuse_reply_err(a->req, EINVAL);
        return;
    }
    vj_front_caller(a->req, &job.who);
    sync_submit(a->req, NULL, &job);
}

static bool is_node_request_valid(const struct varjfs_node *io)
{
    bool is_add = io->what == VARJFS_NODE_ADD;

    return io->version == VARJFS_IOC_VERSION && io->what >= VARJFS_NODE_ADD &&
           io->what <= VARJFS_NODE_COUNT && io->reserved == 0 &&
           (io->flags & ~VARJFS_NODE_FORCE) == 0 &&
           (io->flags == 0 || io->what == VARJFS_NODE_REMOVE) &&
           (is_add ? io->weight >= 1 && io->weight <= VARJFS_NODE_WEIGHT_MAX
                   : io->weight == 0) &&
           io->host[0] != '\0' && memchr(io->host, '\0', sizeof io->host) != NULL;
}

static void ioctl_node(const Argument *a)
{
    SyncJob job = {.is_node = true};

    if (a->len == sizeof job.node) {
        memcpy(&job.node, a->bytes, sizeof job.node);
    }
    if (a->len != sizeof job.node || !is_node_request_valid(&job.node)) {
        fuse_reply_err(a->req, EINVAL);
        return;
    }
    vj_front_caller(a->req, &job.who);
    sync_submit(a->req, NULL, &job);
}

static void ioctl_text(const Argument *a)
{
    g_autofree struct varjfs_text *io = g_new0(struct varjfs_text, 1);
    VjCaller who;
    uint64_t cursor;
    size_t len = 0;
    int r;

    if (a->len != sizeof *io) {
        fuse_reply_err(a->req, EINVAL);
        return;
    }
    memcpy(io, a->bytes, offsetof(struct varjfs_text, text));
    if (io->version != VARJFS_IOC_VERSION) {
        fuse_reply_err(a->req, EINVAL);
        return;
    }
    /* Digests reveal something of the content. */
    if (io->what == VARJFS_TEXT_MAP && a->handle != NULL &&
        !vj_fs_handle_readable(a->handle)) {
        fuse_reply_err(a->req, EBADF);
        return;
    }
    cursor = io->cursor;
    vj_front_caller(a->req, &who);
    r = vj_fs_text(front_of(a->req)->fs, &who, a->ino, io->what, &cursor, io->text,
                   sizeof io->text, &len);
    if (r < 0) {
        fuse_reply_err(a->req, vj_front_errno(r));
        return;
    }
    io->cursor = cursor;
    io->len = len;
    fuse_reply_ioctl(a->req, 0, io, sizeof *io);
}

void vj_front_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
                    struct fuse_file_info *fi, unsigned flags, const void *in_buf,
                    size_t in_bufsz, size_t out_bufsz)
{
    Argument a = {
        .req = req,
        .ino = ino,
        .handle = (flags & FUSE_IOCTL_DIR) ? NULL : vj_front_handle(fi),
        .bytes = in_buf,
        .len = in_bufsz,
    };

    (void)arg;
    if (vj_front_flags(req, ino, cmd, in_buf, in_bufsz, out_bufsz)) {
        return;
    }
    if (out_bufsz < in_bufsz) {
        /* A command of ours whose direction is another's: there is no room for the
         * answer, the kernel would make EIO of it, and what was asked for would have
         * happened. */
        a.len = 0;
    }
    if (_IOC_TYPE(cmd) != VARJFS_IOC_MAGIC) {
        fuse_reply_err(req, ENOTTY);
        return;
    }
    switch (_IOC_NR(cmd)) {
    case _IOC_NR(VARJFS_IOC_EDIT(0)):
        ioctl_edit(&a);
        break;
    case _IOC_NR(VARJFS_IOC_EDIT_DROP):
        ioctl_edit_drop(&a);
        break;
    case _IOC_NR(VARJFS_IOC_STAGE(0)):
        ioctl_stage(&a);
        break;
    case _IOC_NR(VARJFS_IOC_SYNC):
        sync_submit(req, NULL, &(SyncJob){.all = true, .ioctl = true});
        break;
    case _IOC_NR(VARJFS_IOC_PING):
        fuse_reply_ioctl(req, VARJFS_IOC_VERSION, NULL, 0);
        break;
    case _IOC_NR(VARJFS_IOC_RECODE):
        ioctl_recode(&a);
        break;
    case _IOC_NR(VARJFS_IOC_TEND):
        ioctl_tend(&a);
        break;
    case _IOC_NR(VARJFS_IOC_NODE):
        ioctl_node(&a);
        break;
    case _IOC_NR(VARJFS_IOC_TEXT):
        ioctl_text(&a);
        break;
    case _IOC_NR(VARJFS_IOC_SHIFT(0)):
        ioctl_shift(&a);
        break;
    default:
        fuse_reply_err(req, ENOTTY);
        break;
    }
}
