/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ops-io.c - requests on open files
 *
 * What reads pages for the kernel or writes them back passes by coherence.c, so that an
 * edit is applied between requests.  All else comes under the kernel's lock of the inode,
 * as an edit does; but for asynchronous direct WRITEs, which it lets go of when they are
 * sent.
 */
#include "front/front-private.h"

#include <fcntl.h>

static VjFront *front_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

static void reply_status(fuse_req_t req, int r)
{
    vj_serve_answers();
    fuse_reply_err(req, r < 0 ? vj_front_errno(r) : 0);
}

static void open_flags(const VjFront *f, VjHandle *h, struct fuse_file_info *fi)
{
    fi->fh = (uintptr_t)h;
    /*
     * Else the kernel reads what lies behind the end that we answered with through the
     * page cache, if it knows of a later end by then, and one read(2) is half old and
     * half new.  Not for writers: not every kernel drops the pages that were read in
     * while such a WRITE was under way.
     */
    fi->direct_io = (fi->flags & O_DIRECT) != 0 && (fi->flags & O_ACCMODE) == O_RDONLY &&
                    f->maps_direct_files;
    /* Each change of content invalidates its pages, so the others stay good over close
     * and open.  Another session may have changed it while it was closed here, and this
     * one hears of that in another thread. */
    fi->keep_cache = !f->is_shared;
    /*
     * Else each close(2) of a reader makes the kernel write back what others have stored
     * through a mapping, which may clear what a writer is appending (README, "Known
     * limits"); and it costs a request.  A writer's close(2) returns errors.
     */
    fi->noflush = (fi->flags & O_ACCMODE) == O_RDONLY;
#ifdef HAVE_STRUCT_FUSE_FILE_INFO_PARALLEL_DIRECT_WRITES
    fi->parallel_direct_writes = 1;
#endif
}

void vj_front_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);
    VjCaller who;
    VjHandle *h;
    int r;

    vj_front_caller(req, &who);
    /* O_TRUNC comes as a SETATTR of its own. */
    r = vj_fs_open(f->fs, &who, ino, fi->flags & ~O_TRUNC, &h);
    if (r == -ESTALE && !vj_fs_is_shut_out(f->fs)) {
        fuse_reply_err(req, ESTALE); /* by that name it is gone: the kernel looks again */
        return;
    }
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
        return;
    }
    vj_front_handle_add(f, h);
    open_flags(f, h, fi);
    vj_serve_answers();
    if (fuse_reply_open(req, fi) != 0) {
        vj_front_handle_drop(f, h);
    }
}

static void reply_create(fuse_req_t req, int r, const VjAttr *attr, VjHandle *h,
                         struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);
    struct fuse_entry_param e;

    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
        return;
    }
    vj_front_handle_add(f, h);
    vj_front_entry(f, attr, &e);
    open_flags(f, h, fi);
    vj_serve_answers();
    if (fuse_reply_create(req, &e, fi) != 0) {
        vj_front_handle_drop(f, h);
        vj_front_forget_one(f, e.ino, 1);
    }
}

void vj_front_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                     struct fuse_file_info *fi)
{
    VjCaller who;
    VjAttr attr;
    VjHandle *h;
    int r;

    vj_front_caller(req, &who);
    r = vj_fs_create(front_of(req)->fs, &who, parent, name, mode, fi->flags, &attr, &h);
    vj_front_doubt_name(front_of(req), r, parent, name);
    reply_create(req, r, &attr, h, fi);
}

#ifdef HAVE_STRUCT_FUSE_LOWLEVEL_OPS_TMPFILE
void vj_front_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode,
                      struct fuse_file_info *fi)
{
    VjCaller who;
    VjAttr attr;
    VjHandle *h;
    int r;

    vj_front_caller(req, &who);
    r = vj_fs_tmpfile(front_of(req)->fs, &who, parent, mode, fi->flags, &attr, &h);
    reply_create(req, r, &attr, h, fi);
}
#endif

void vj_front_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    vj_front_handle_drop(front_of(req), vj_front_handle(fi));
    reply_status(req, 0);
}

void vj_front_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    reply_status(req, vj_fs_flush(vj_front_handle(fi)));
}

/* ---- read and write ---------------------------------------------------------------- */

/*
 * Between the daemon and the caller's memory, past the page cache.  The kernel names the
 * owner of locks in such READs and WRITEs alone; O_DIRECT in the flags also comes with
 * pages that are read through a mapping or behind an end that moved.
 */
static bool is_direct(const struct fuse_file_info *fi)
{
    return fi->lock_owner != 0;
}

/* One buffer a request thread: faulting in a new one costs more than filling it.  It
 * begins a page: the kernel takes hold of each page that it copies from. */
static char *read_buffer(size_t size)
{
    static _Thread_local char *mine;
    static GPrivate owner = G_PRIVATE_INIT(free);

    if (size > VJ_FRONT_IO_MAX) {
        return NULL;
    }
    if (mine == NULL) {
        mine = aligned_alloc(VJ_PAGE_BYTES, VJ_FRONT_IO_MAX);
        g_private_set(&owner, mine);
    }
    return mine;
}

void vj_front_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                   struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);
    char *room = read_buffer(size), *own = NULL;
    bool is_direct_read = is_direct(fi), is_inside;
    VjReadParts parts;
    size_t got = 0;
    VjPass pass;
    int r = 0;

    if (room == NULL) {
        room = own = g_try_malloc(size);
    }
    if (room == NULL) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    vj_trace(front, "ino %" G_GUINT64_FORMAT ": read %" G_GUINT64_FORMAT "+%zu%s",
             (uint64_t)ino, (uint64_t)off, size, is_direct_read ? " past the cache" : "");
    vj_front_hold(f, VJ_HOLD_READ);
    if (!is_direct_read) {
        r = vj_coherence_pages_begin(f->coherence, ino, VJ_PASS_READ, (uint64_t)off, size,
                                     fuse_req_ctx(req)->pid, &pass);
    }
    is_inside = !is_direct_read && r == 0;
    parts.count = 0;
    if (r == 0) {
        r = vj_fs_read_parts(vj_front_handle(fi), (uint64_t)off, room, size, &got,
                             &parts);
    }
    vj_front_hold(f, VJ_HOLD_READ_REPLY);
    vj_serve_answers();
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else {
        fuse_reply_iov(req, parts.iov, (int)parts.count);
    }
    vj_fs_read_parts_clear(&parts);
    if (is_inside) {
        vj_coherence_pages_end(f->coherence, &pass);
    }
    g_free(own);
}

/*
 * Pages from the cache cannot make a file longer, but the kernel may believe in an older,
 * larger size after a shrinking edit: what lies beyond the end is not written.
 */
static int write_pages(VjFront *f, VjHandle *h, const char *buf, const VjPassPart *parts,
                       size_t count)
{
    VjAttr attr;
    uint64_t size;
    int r = vj_fs_getattr(f->fs, vj_fs_handle_ino(h), &attr);

    if (r < 0) {
        return r;
    }
    size = (uint64_t)attr.st.st_size;
    for (size_t i = 0; r == 0 && i < count; i++) {
        const VjPassPart *p = &parts[i];

        if (p->offset < size) {
            r = vj_fs_write(h, p->offset, buf + p->skip, MIN(p->len, size - p->offset), 0,
                            NULL);
        }
    }
    return r;
}

/* The bytes become the file's, or are copied. */
static int write_bytes(VjHandle *h, const char *buf, size_t size, uint64_t off,
                       unsigned flags, uint64_t *at)
{
    VjHandOff hand_off;
    int r = vj_serve_hand_off(buf, size, &hand_off)
                ? vj_fs_write_block(h, off, &hand_off.block, buf, size, flags, at)
                : vj_fs_write(h, off, buf, size, flags, at);

    vj_serve_handed_off(&hand_off);
    return r;
}

/* Pages that were stored into through a mapping.  @pass: what is stale afterwards. */
static int write_back_pages(VjFront *f, fuse_ino_t ino, const char *buf, size_t size,
                            uint64_t off, const struct fuse_file_info *fi, VjPass *pass)
{
    VjPassPart whole = {0, off, size};
    const VjPassPart *parts = &whole;
    size_t count = 1;
    int r =
        vj_coherence_pages_begin(f->coherence, ino, VJ_PASS_PAGES, off, size, 0, pass);

    if (r < 0) {
        return r;
    }
    if (pass->parts != NULL) {
        parts = (const VjPassPart *)(void *)pass->parts->data;
        count = pass->parts->len;
    }
    r = write_pages(f, vj_front_handle(fi), buf, parts, count);
    vj_coherence_pages_end(f->coherence, pass);
    return r;
}

/* Where the kernel asks for it, because it does not know whether there are any. */
static int kill_privileges(fuse_req_t req, fuse_ino_t ino,
                           const struct fuse_file_info *fi)
{
    int r = 0;

#ifdef HAVE_STRUCT_FUSE_FILE_INFO_KILL_SUIDGID
    if (fi->kill_suidgid) {
        VjCaller who;

        vj_front_caller(req, &who);
        vj_served_changed(ino);
        r = vj_fs_clear_privileges(front_of(req)->fs, &who, ino);
    }
#else
    (void)req;
    (void)ino;
    (void)fi;
#endif
    return r;
}

static void reply_write(fuse_req_t req, fuse_ino_t ino, const char *kind, int r,
                        size_t size)
{
    vj_front_hold(front_of(req), VJ_HOLD_WRITE_REPLY);
    vj_trace(front, "ino %" G_GUINT64_FORMAT ": %s of %zu: answer %d", (uint64_t)ino,
             kind, size, r);
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else {
        fuse_reply_write(req, size);
    }
}

static void write_pages_back(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
                             uint64_t off, const struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);
    VjPass pass = {.stale_len = 0};
    int r = kill_privileges(req, ino, fi);

    if (r == 0) {
        r = write_back_pages(f, ino, buf, size, off, fi, &pass);
    }
    reply_write(req, ino, "pages", r, size);
    /* The kernel has other times now, but may have got those of before for a question
     * that it asked meanwhile, and does not look which came first. */
    vj_front_attributes_stale(f, ino);
    /* After the answer: an invalidation waits for this very write-back. */
    vj_editor_stale(f->editor, ino, pass.stale_offset, pass.stale_len);
    if (r < 0) {
        /* The kernel reports it to msync(2) or fsync(2) and goes on to take the pages for
         * good. */
        vj_editor_stale(f->editor, ino, off, size);
    }
}

/*
 * An O_APPEND write(2) goes to the end as the daemon knows it: the kernel's may be
 * another, where a caller has ended between the two calls of an edit, or a write has
 * failed in part.  A direct one comes as many WRITEs at the same time; their offsets say
 * in which order they belong.
 */
static int append_bytes(VjHandle *h, const char *buf, size_t size, VjFilePart *part)
{
    VjHandOff hand_off;
    bool is_handed_off = vj_serve_hand_off(buf, size, &hand_off);
    int r = vj_fs_append_part(h, part, is_handed_off ? &hand_off.block : NULL, buf, size);

    vj_serve_handed_off(&hand_off);
    return r;
}

/* What was written is in the file, also where the caller dies meanwhile. */
static int make_durable(VjHandle *h)
{
    vj_served_changed(vj_fs_handle_ino(h));
    return vj_fs_fsync(h);
}

static void write_plain(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
                        uint64_t off, const struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);
    VjHandle *h = vj_front_handle(fi);
    unsigned flags = (fi->flags & O_APPEND) != 0 ? VJ_WRITE_APPEND : 0;
    VjFilePart part = {.offset = off, .at = off};
    bool is_written;
    int r = kill_privileges(req, ino, fi);

    if (!is_direct(fi)) {
        vj_coherence_locked(f->coherence, ino, off, size);
    }
    if (r == 0 && is_direct(fi) && flags != 0) {
        r = append_bytes(h, buf, size, &part);
    } else if (r == 0) {
        r = write_bytes(h, buf, size, off, flags, &part.at);
    }
    is_written = r == 0;
    if (r == 0 && (fi->flags & (O_SYNC | O_DSYNC))) {
        r = make_durable(h);
    }
    vj_serve_answers();
    if (r < 0 || !is_direct(fi) || !vj_edit_written_past(f, req, ino, part.at, size)) {
        reply_write(req, ino, "write", r, size);
    }
    if (part.at != off) {
        /* The kernel put the bytes where it believed the end to be. */
        vj_editor_stale(f->editor, ino, off, size);
        vj_editor_stale(f->editor, ino, part.at, size);
    }
    if (part.moved) {
        vj_editor_stale(f->editor, ino, part.at, 0);
    }
    if ((is_written && r < 0) || r == -ECANCELED) {
        /* The kernel believes that nothing was changed, also of what it may run as. */
        vj_editor_stale(f->editor, ino, 0, VJ_FILE_SIZE_MAX);
    }
}

void vj_front_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
                    off_t off, struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);

    vj_trace(front, "ino %" G_GUINT64_FORMAT ": %s %" G_GUINT64_FORMAT "+%zu",
             (uint64_t)ino, fi->writepage ? "pages" : "write", (uint64_t)off, size);
    vj_front_hold(f, fi->writepage ? VJ_HOLD_PAGES : VJ_HOLD_WRITE);
    if (size == 0) {
        fuse_reply_write(req, 0);
    } else if (fi->writepage) {
        write_pages_back(req, ino, buf, size, (uint64_t)off, fi);
    } else {
        write_plain(req, ino, buf, size, (uint64_t)off, fi);
    }
}

/* ---- the rest of content ----------------------------------------------------------- */

void vj_front_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset,
                        off_t length, struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);
    VjHandle *h = vj_front_handle(fi);
    VjCarry carry = {.req = req, .ino = ino};
    int r;

    if (offset < 0 || length <= 0) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    vj_trace(front,
             "ino %" G_GUINT64_FORMAT ": fallocate %#x %" G_GUINT64_FORMAT
             "+%" G_GUINT64_FORMAT,
             (uint64_t)ino, (unsigned)mode, (uint64_t)offset, (uint64_t)length);
    vj_front_caller(req, &carry.who);
    carry.staged = vj_stage_take_fallocate(f->staged, h, carry.who.pid, mode,
                                           (uint64_t)offset, (uint64_t)length);
    if (carry.staged != NULL) {
        vj_edit_carry_out(f, &carry);
        return;
    }
    vj_coherence_locked(f->coherence, ino, 0, 0);
    r = vj_fs_fallocate(h, mode, (uint64_t)offset, (uint64_t)length);
    if (r == 0 && (mode & FALLOC_FL_KEEP_SIZE) != 0) {
        vj_front_attributes_stale(f, ino);
    }
    reply_status(req, r);
}

void vj_front_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
                              struct fuse_file_info *fi_in, fuse_ino_t ino_out,
                              off_t off_out, struct fuse_file_info *fi_out, size_t len,
                              int flags)
{
    VjFront *f = front_of(req);
    uint64_t copied;
    int r;

    (void)ino_in;
    if (flags != 0) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    vj_trace(front, "ino %" G_GUINT64_FORMAT ": copy here %" G_GUINT64_FORMAT "+%zu",
             (uint64_t)ino_out, (uint64_t)off_out, len);
    vj_coherence_locked(f->coherence, ino_out, 0, 0);
    r = vj_fs_copy(vj_front_handle(fi_in), (uint64_t)off_in, vj_front_handle(fi_out),
                   (uint64_t)off_out, len, &copied);
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else {
        fuse_reply_write(req, copied);
    }
}

void vj_front_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
                    struct fuse_file_info *fi)
{
    uint64_t out;
    int r;

    (void)ino;
    if (off < 0) {
        fuse_reply_err(req, ENXIO);
        return;
    }
    if (whence != SEEK_DATA && whence != SEEK_HOLE) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    r = vj_fs_seek(vj_front_handle(fi), (uint64_t)off, whence == SEEK_DATA, &out);
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else {
        fuse_reply_lseek(req, (off_t)out);
    }
}
