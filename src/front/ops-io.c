/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ops-io.c - requests on open files
 *
 * What reads or changes content passes the gate of its inode (gate.c), so that an edit is
 * applied between requests.  What a WRITE leaves stale in the page cache is gone before it is
 * answered; one from the page cache itself is answered first.
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
     * Else the kernel reads what lies behind the end that we told through the page cache, if it
     * knows of a later end by then, and one read(2) is half old and half new.  Not for writers:
     * not every kernel drops the pages that were read in while such a WRITE was under way.
     */
    fi->direct_io = (fi->flags & O_DIRECT) != 0 && (fi->flags & O_ACCMODE) == O_RDONLY &&
                    f->maps_direct_files;
    /* Whoever changes content invalidates it, so pages stay good over close and open. */
    fi->keep_cache = 1;
    /*
     * Else each close(2) of a reader makes the kernel write back what others have stored through a
     * mapping, which may clear what somebody is appending (README, "Known limits"); and it costs
     * a request.  A writer's close(2) tells errors.
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

/* ---- read and write ----------------------------------------------------------------- */

/*
 * Between the daemon and the caller's memory, past the page cache.  The kernel names the owner of
 * locks in such READs and WRITEs alone; O_DIRECT in the flags also comes with pages that are
 * read through a mapping or behind an end that moved.
 */
static bool is_direct(const struct fuse_file_info *fi)
{
    return fi->lock_owner != 0;
}

/* One buffer a request thread: faulting in a fresh one costs more than filling it. */
static char *read_buffer(size_t size)
{
    static _Thread_local char *mine;
    static GPrivate owner = G_PRIVATE_INIT(g_free);

    if (size > VJ_FRONT_IO_MAX) {
        return NULL;
    }
    if (mine == NULL) {
        mine = g_try_malloc(VJ_FRONT_IO_MAX);
        g_private_set(&owner, mine);
    }
    return mine;
}

void vj_front_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                   struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);
    char *room = read_buffer(size), *own = NULL;
    bool is_direct_read = is_direct(fi);
    size_t got;
    VjPass pass;
    int r;

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
    vj_gate_enter(f->gates, ino, is_direct_read ? VJ_PASS_READ_DIRECT : VJ_PASS_READ,
                  (uint64_t)off, size, &pass);
    r = vj_fs_read(vj_front_handle(fi), (uint64_t)off, room, size, &got);
    (void)vj_gate_leave(f->gates, &pass);
    vj_front_hold(f, VJ_HOLD_READ_REPLY);
    vj_serve_answers();
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else {
        fuse_reply_buf(req, room, got);
    }
    if (r == 0 && got < size && pass.hot && !is_direct_read) {
        /* The kernel has handled the answer to a READ of pages when we are back. */
        vj_gate_told(f->gates, &pass);
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

typedef struct Range {
    uint64_t from, to;
} Range;

static Range range_of(uint64_t offset, uint64_t len)
{
    return (Range){offset, offset + len};
}

/* What a WRITE leaves stale in the page cache. */
typedef struct Stale {
    Range written; /* where the kernel put the bytes */
    Range moved;   /* where they went, if elsewhere */
    Range last; /* page that the kernel may hold locked until the answer; empty: none */
    bool last_is_fresh; /* it is known not to be stale */
    bool extending;     /* the kernel will take a new size */
    VjPass pass;
} Stale;

/* The page in which [@offset, @end) ends, unless it is written whole. */
static Range last_page(uint64_t offset, uint64_t end)
{
    uint64_t page = (end - 1) / VJ_PAGE_BYTES * VJ_PAGE_BYTES;

    return offset <= page && end == page + VJ_PAGE_BYTES
               ? (Range){end, end}
               : (Range){page, page + VJ_PAGE_BYTES};
}

/* A plain WRITE has left the gate. */
static void stale_written(Stale *stale, const VjPass *pass, bool again, uint64_t offset,
                          uint64_t size, uint64_t at)
{
    stale->last = last_page(offset, offset + size);
    if (again) {
        stale->written = range_of(pass->offset, pass->len);
    }
    /* Edits drop pages, and it was not read since: the kernel cannot have it whole. */
    stale->last_is_fresh = pass->hot && stale->written.to <= stale->last.from;
    if (at != offset) {
        /* The kernel put the bytes where it believed the end to be. */
        stale->written = range_of(offset, size);
        stale->moved = range_of(at, size);
    }
}

/* The bytes become the file's, or are copied. */
static int write_bytes(VjHandle *h, const char *buf, size_t size, uint64_t off,
                       unsigned flags, uint64_t *at)
{
    VjLoan loan;
    int r = vj_serve_lend(buf, size, &loan)
                ? vj_fs_write_block(h, off, &loan.block, buf, size, flags, at)
                : vj_fs_write(h, off, buf, size, flags, at);

    vj_serve_lent(&loan);
    return r;
}

static int write_through_gate(VjFront *f, fuse_ino_t ino, const char *buf, size_t size,
                              uint64_t off, const struct fuse_file_info *fi, Stale *stale)
{
    VjHandle *h = vj_front_handle(fi);
    bool append = (fi->flags & O_APPEND) != 0, again;
    VjPass *pass = &stale->pass;
    uint64_t at = off;
    VjAttr attr;
    int r;

    vj_gate_enter(f->gates, ino, is_direct(fi) ? VJ_PASS_WRITE_DIRECT : VJ_PASS_WRITE,
                  off, size, pass);
    stale->extending = pass->hot && vj_fs_getattr(f->fs, ino, &attr) == 0 &&
                       off + size > (uint64_t)attr.st.st_size;
    pass->raises = stale->extending;
    r = write_bytes(h, buf, size, off, append ? VJ_WRITE_APPEND : 0, &at);
    again = vj_gate_leave(f->gates, pass);
    stale_written(stale, pass, again, off, size, at);
    return r;
}

/* Dirty pages that come back. */
static int pages_through_gate(VjFront *f, fuse_ino_t ino, const char *buf, size_t size,
                              uint64_t off, const struct fuse_file_info *fi, Stale *stale)
{
    g_autoptr(GArray) believed = NULL;
    VjPassPart whole = {0, off, size};
    const VjPassPart *parts = &whole;
    size_t count = 1;
    VjPass pass;
    int r;

    vj_gate_enter(f->gates, ino, VJ_PASS_WRITE_PAGE, off, size, &pass);
    if (pass.parts != NULL) {
        parts = (const VjPassPart *)(void *)pass.parts->data;
        count = pass.parts->len;
        if (count > 0) {
            stale->moved.from = parts[0].offset;
            stale->moved.to = parts[count - 1].offset + parts[count - 1].len;
        }
    }
    if (pass.cleared_from < pass.cleared_to) {
        believed = vj_pass_believed(&pass, buf, parts, count);
        parts = (const VjPassPart *)(void *)believed->data;
        count = believed->len;
    }
    r = write_pages(f, vj_front_handle(fi), buf, parts, count);
    (void)vj_gate_leave(f->gates, &pass);
    return r;
}

/* The part of @r that lies in [@from, @to) is gone when it returns. */
static void make_fresh(VjFront *f, fuse_ino_t ino, Range r, uint64_t from, uint64_t to,
                       bool extending)
{
    from = MAX(from, r.from);
    to = MIN(to, r.to);
    if (from < to) {
        vj_editor_fresh(f->editor, ino, from, to - from, extending);
    }
}

/*
 * Before the answer to a plain WRITE: its stale pages are invalidated.
 *
 * The kernel unlocks the pages that it has whole before it sends a WRITE, and then nothing
 * keeps an invalidation.  A page that it does not have whole ends the WRITE that begins to
 * fill it, and stays locked until the answer: an invalidation waits for us, and we for it
 * as long as we do.  Such a page can be neither stale nor dirty, so that nothing is lost
 * when the answer comes first.  It comes last, so that the others are gone by then.
 */
static void make_written_fresh(VjFront *f, fuse_ino_t ino, const Stale *s)
{
    make_fresh(f, ino, s->written, 0, s->last.from, s->extending);
    make_fresh(f, ino, s->moved, 0, s->last.from, s->extending);
    make_fresh(f, ino, s->written, s->last.to, UINT64_MAX, s->extending);
    make_fresh(f, ino, s->moved, s->last.to, UINT64_MAX, s->extending);
    if (!s->last_is_fresh) {
        make_fresh(f, ino, s->written, s->last.from, s->last.to, s->extending);
        make_fresh(f, ino, s->moved, s->last.from, s->last.to, s->extending);
    }
}

static void make_stale(VjFront *f, fuse_ino_t ino, Range r)
{
    if (r.from < r.to) {
        vj_editor_stale(f->editor, ino, r.from, r.to - r.from);
    }
}

/* Where the kernel asks for it, because it cannot tell whether there are any. */
static int kill_privileges(fuse_req_t req, fuse_ino_t ino,
                           const struct fuse_file_info *fi)
{
    int r = 0;

#ifdef HAVE_STRUCT_FUSE_FILE_INFO_KILL_SUIDGID
    if (fi->kill_suidgid) {
        VjCaller who;

        vj_front_caller(req, &who);
        r = vj_fs_clear_privileges(front_of(req)->fs, &who, ino);
    }
#else
    (void)req;
    (void)ino;
    (void)fi;
#endif
    return r;
}

void vj_front_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
                    off_t off, struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);
    const char *kind = fi->writepage ? "pages" : "write";
    Stale stale = {.extending = false};
    pid_t who = fuse_req_ctx(req)->pid;
    int r;

    vj_trace(front, "ino %" G_GUINT64_FORMAT ": %s %" G_GUINT64_FORMAT "+%zu",
             (uint64_t)ino, kind, (uint64_t)off, size);
    vj_front_hold(f, fi->writepage ? VJ_HOLD_PAGES : VJ_HOLD_WRITE);
    r = size == 0 ? 0 : kill_privileges(req, ino, fi);
    if (r < 0 || size == 0) {
        /* nothing is written */
    } else if (fi->writepage) {
        r = pages_through_gate(f, ino, buf, size, (uint64_t)off, fi, &stale);
        if (r < 0) {
            /* The kernel tells msync(2) or fsync(2) and goes on to take the pages for good. */
            stale.written = range_of((uint64_t)off, size);
        }
    } else {
        r = write_through_gate(f, ino, buf, size, (uint64_t)off, fi, &stale);
        if (r == 0 && (fi->flags & (O_SYNC | O_DSYNC))) {
            r = vj_fs_fsync(vj_front_handle(fi));
        }
        make_written_fresh(f, ino, &stale);
    }
    vj_front_hold(f, VJ_HOLD_WRITE_REPLY);
    vj_trace(front, "ino %" G_GUINT64_FORMAT ": %s %" G_GUINT64_FORMAT "+%zu: answer %d",
             (uint64_t)ino, kind, (uint64_t)off, size, r);
    if (!fi->writepage) {
        vj_serve_answers();
    }
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else {
        fuse_reply_write(req, size);
    }
    vj_gate_answered(f->gates, &stale.pass, who);
    if (fi->writepage) {
        /* After the answer: an invalidation waits for this very write-back. */
        make_stale(f, ino, stale.moved);
        make_stale(f, ino, stale.written);
    }
}

/* ---- the rest of content ------------------------------------------------------------ */

void vj_front_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset,
                        off_t length, struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);
    VjPass pass;
    bool again;
    int r;

    if (offset < 0 || length <= 0) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    vj_trace(front,
             "ino %" G_GUINT64_FORMAT ": fallocate %#x %" G_GUINT64_FORMAT
             "+%" G_GUINT64_FORMAT,
             (uint64_t)ino, (unsigned)mode, (uint64_t)offset, (uint64_t)length);
    /* Some kernels do not lock the inode where the size stays. */
    vj_gate_enter(f->gates, ino,
                  mode == FALLOC_FL_KEEP_SIZE ? VJ_PASS_WRITE_DIRECT : VJ_PASS_WRITE,
                  (uint64_t)offset, (uint64_t)length, &pass);
    r = vj_fs_fallocate(vj_front_handle(fi), mode, (uint64_t)offset, (uint64_t)length);
    again = vj_gate_leave(f->gates, &pass);
    if (again && r == 0) {
        vj_editor_fresh(f->editor, ino, pass.offset, pass.len, false);
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
    VjPass pass;
    bool again;
    int r;

    (void)ino_in;
    if (flags != 0) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    vj_trace(front, "ino %" G_GUINT64_FORMAT ": copy here %" G_GUINT64_FORMAT "+%zu",
             (uint64_t)ino_out, (uint64_t)off_out, len);
    vj_gate_enter(f->gates, ino_out, VJ_PASS_WRITE, (uint64_t)off_out, len, &pass);
    r = vj_fs_copy(vj_front_handle(fi_in), (uint64_t)off_in, vj_front_handle(fi_out),
                   (uint64_t)off_out, len, &copied);
    again = vj_gate_leave(f->gates, &pass);
    if (again && r == 0 && copied > 0) {
        vj_editor_fresh(f->editor, ino_out, pass.offset, pass.len, false);
    }
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
