/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ops.c - the table of requests, and those about names and attributes
 *
 * A handler decodes, calls one function of fs, and replies exactly once.  Before a reply
 * that names an inode to the kernel, a lookup is counted; when the reply does
 * not arrive, it is forgotten again.
 */
#include "front/front-private.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static VjFront *front_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* 0 or an error, as the whole answer. */
static void reply_status(fuse_req_t req, int r)
{
    vj_serve_answers();
    fuse_reply_err(req, r < 0 ? vj_front_errno(r) : 0);
}

/*
 * The kernel takes the answer to LINK (6.18 too), and an older one that to SETATTR, also
 * where attributes were invalidated after it had asked: it is not to keep them.
 * @compares: it looks whether they were.
 */
static double timeout_after_change(const VjFront *f, const VjAttr *attr, bool compares)
{
    return S_ISREG(attr->st.st_mode) && !compares ? 0 : vj_front_attr_timeout(f, attr);
}

/* @is_link: of an inode that was there before. */
static void reply_inode(fuse_req_t req, int r, const VjAttr *attr, bool is_link)
{
    VjFront *f = front_of(req);
    struct fuse_entry_param e;

    vj_serve_answers();
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
        return;
    }
    vj_front_entry(f, attr, &e);
    if (is_link) {
        e.attr_timeout = timeout_after_change(f, attr, false);
    }
    if (fuse_reply_entry(req, &e) != 0) {
        vj_front_forget_one(f, e.ino, 1);
    }
}

static void reply_entry(fuse_req_t req, int r, const VjAttr *attr)
{
    reply_inode(req, r, attr, false);
}

static void reply_attr(fuse_req_t req, int r, const VjAttr *attr, bool is_setattr)
{
    VjFront *f = front_of(req);

    vj_front_hold(f, VJ_HOLD_ATTR_REPLY);
    vj_serve_answers();
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else {
        fuse_reply_attr(req, &attr->st,
                        is_setattr ? timeout_after_change(f, attr, f->compares_setattr)
                                   : vj_front_attr_timeout(f, attr));
    }
}

/* ---- names ------------------------------------------------------------------------- */

static void front_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    VjFront *f = front_of(req);
    /* Names change through this mount alone, or we hear of it, so the kernel may remember
     * absence too. */
    const struct fuse_entry_param absent = {.entry_timeout = vj_front_timeout(f)};
    VjCaller who;
    VjAttr attr;
    int r;

    vj_front_caller(req, &who);
    r = vj_fs_lookup(f->fs, &who, parent, name, &attr);
    if (r == -ENOENT && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
        vj_serve_answers();
        fuse_reply_entry(req, &absent);
        return;
    }
    reply_entry(req, r, &attr);
}

static void front_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    vj_front_forget_one(front_of(req), ino, count);
    fuse_reply_none(req);
}

static void front_forget_multi(fuse_req_t req, size_t count,
                               struct fuse_forget_data *forgets)
{
    for (size_t i = 0; i < count; i++) {
        vj_front_forget_one(front_of(req), forgets[i].ino, forgets[i].nlookup);
    }
    fuse_reply_none(req);
}

static void front_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                        dev_t rdev)
{
    VjCaller who;
    VjAttr attr;
    int r;

    vj_front_caller(req, &who);
    r = vj_fs_mknod(front_of(req)->fs, &who, parent, name, mode, rdev, &attr);
    vj_front_doubt_name(front_of(req), r, parent, name);
    reply_entry(req, r, &attr);
}

static void front_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    VjCaller who;
    VjAttr attr;
    int r;

    vj_front_caller(req, &who);
    r = vj_fs_mkdir(front_of(req)->fs, &who, parent, name, mode, &attr);
    vj_front_doubt_name(front_of(req), r, parent, name);
    reply_entry(req, r, &attr);
}

static void front_symlink(fuse_req_t req, const char *target, fuse_ino_t parent,
                          const char *name)
{
    VjCaller who;
    VjAttr attr;
    int r;

    vj_front_caller(req, &who);
    r = vj_fs_symlink(front_of(req)->fs, &who, parent, name, target, &attr);
    vj_front_doubt_name(front_of(req), r, parent, name);
    reply_entry(req, r, &attr);
}

static void front_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent,
                       const char *name)
{
    VjAttr attr;
    int r = vj_fs_link(front_of(req)->fs, ino, parent, name, &attr);

    vj_front_doubt_name(front_of(req), r, parent, name);
    vj_front_doubt_inode(front_of(req), r, ino);
    vj_front_hold(front_of(req), VJ_HOLD_ATTR_REPLY);
    reply_inode(req, r, &attr, true);
}

static void front_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    int r = vj_fs_unlink(front_of(req)->fs, parent, name);

    vj_front_doubt_name(front_of(req), r, parent, name);
    reply_status(req, r);
}

static void front_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    int r = vj_fs_rmdir(front_of(req)->fs, parent, name);

    vj_front_doubt_name(front_of(req), r, parent, name);
    reply_status(req, r);
}

/* A directory has come into another one: what the kernel has listed of it says the old
 * parent for "..", and no name in it has changed.  It goes a moment later, by the thread
 * that may invalidate. */
static void forget_parent(VjFront *f, const VjCaller *who, uint64_t parent,
                          const char *name)
{
    VjAttr attr;

    if (!f->is_shared && vj_fs_lookup(f->fs, who, parent, name, &attr) == 0 &&
        S_ISDIR(attr.st.st_mode)) {
        vj_invalidate_inode(f->invalidator, attr.st.st_ino, true);
    }
}

static void front_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
                         fuse_ino_t new_parent, const char *new_name, unsigned int flags)
{
    unsigned vj_flags = 0;
    VjCaller who;
    int r;

    if (flags & RENAME_NOREPLACE) {
        vj_flags |= VJ_RENAME_NOREPLACE;
    }
    if (flags & RENAME_EXCHANGE) {
        vj_flags |= VJ_RENAME_EXCHANGE;
    }
    if (flags & RENAME_WHITEOUT) {
        vj_flags |= VJ_RENAME_WHITEOUT;
    }
    if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    vj_front_caller(req, &who);
    r = vj_fs_rename(front_of(req)->fs, &who, parent, name, new_parent, new_name,
                     vj_flags);
    vj_front_doubt_name(front_of(req), r, parent, name);
    vj_front_doubt_name(front_of(req), r, new_parent, new_name);
    if (r == 0 && parent != new_parent) {
        forget_parent(front_of(req), &who, new_parent, new_name);
        if (vj_flags & VJ_RENAME_EXCHANGE) {
            forget_parent(front_of(req), &who, parent, name);
        }
    }
    reply_status(req, r);
}

static void front_readlink(fuse_req_t req, fuse_ino_t ino)
{
    char target[VJ_SYMLINK_MAX + 1];
    int r = vj_fs_readlink(front_of(req)->fs, ino, target);

    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else {
        fuse_reply_readlink(req, target);
    }
}

/* ---- attributes -------------------------------------------------------------------- */

static void front_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);
    VjAttr attr;
    int r;

    (void)fi;
    r = vj_fs_getattr(f->fs, ino, &attr);
    reply_attr(req, r, &attr, false);
}

#ifdef HAVE_STRUCT_FUSE_LOWLEVEL_OPS_STATX
static struct statx_timestamp statx_time(struct timespec t)
{
    return (struct statx_timestamp){.tv_sec = t.tv_sec, .tv_nsec = (uint32_t)t.tv_nsec};
}

/* The kernel asks by this one where a caller of statx(2) wants to know when a file was
 * made. */
static void front_statx(fuse_req_t req, fuse_ino_t ino, int flags, int mask,
                        struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);
    struct statx x;
    VjAttr attr;
    int r;

    (void)flags;
    (void)mask;
    (void)fi;
    r = vj_fs_getattr(f->fs, ino, &attr);
    vj_serve_answers();
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
        return;
    }
    x = (struct statx){
        .stx_mask = STATX_BASIC_STATS | STATX_BTIME,
        .stx_blksize = (uint32_t)attr.st.st_blksize,
        .stx_nlink = (uint32_t)attr.st.st_nlink,
        .stx_uid = attr.st.st_uid,
        .stx_gid = attr.st.st_gid,
        .stx_mode = (uint16_t)attr.st.st_mode,
        .stx_ino = attr.st.st_ino,
        .stx_size = (uint64_t)attr.st.st_size,
        .stx_blocks = (uint64_t)attr.st.st_blocks,
        .stx_atime = statx_time(attr.st.st_atim),
        .stx_btime = statx_time(attr.btime),
        .stx_ctime = statx_time(attr.st.st_ctim),
        .stx_mtime = statx_time(attr.st.st_mtim),
        .stx_rdev_major = major(attr.st.st_rdev),
        .stx_rdev_minor = minor(attr.st.st_rdev),
    };
    fuse_reply_statx(req, 0, &x, vj_front_attr_timeout(front_of(req), &attr));
}
#endif

/* @checked: the kernel says which callers lack CAP_FSETID, and a mode comes of chmod(2)
 * alone. */
static void setattr_decode(const struct stat *st, int to_set, bool checked,
                           VjSetattr *out)
{
    static const struct {
        int fuse;
        unsigned ours;
    } bits[] = {
        {FUSE_SET_ATTR_MODE, VJ_SET_MODE},       {FUSE_SET_ATTR_UID, VJ_SET_UID},
        {FUSE_SET_ATTR_GID, VJ_SET_GID},         {FUSE_SET_ATTR_SIZE, VJ_SET_SIZE},
        {FUSE_SET_ATTR_ATIME, VJ_SET_ATIME},     {FUSE_SET_ATTR_MTIME, VJ_SET_MTIME},
        {FUSE_SET_ATTR_ATIME_NOW, VJ_SET_ATIME}, {FUSE_SET_ATTR_MTIME_NOW, VJ_SET_MTIME},
    };

    *out = (VjSetattr){
        .mode = st->st_mode,
        .uid = st->st_uid,
        .gid = st->st_gid,
        .size = (uint64_t)st->st_size,
        .atime = st->st_atim,
        .mtime = st->st_mtim,
    };
    for (size_t i = 0; i < G_N_ELEMENTS(bits); i++) {
        if (to_set & bits[i].fuse) {
            out->what |= bits[i].ours;
        }
    }
    /*
     * With HANDLE_KILLPRIV_V2 the kernel says with a size that the caller lacks
     * CAP_FSETID (the bit has another name in libfuse), and nothing at all before other
     * changes of what has privileges.
     */
    if (to_set & FUSE_SET_ATTR_KILL_SUID) {
        out->what |= VJ_SET_UNPRIVILEGED;
    }
    if (out->what == 0) {
        out->what = VJ_SET_CHANGES;
    }
    out->what |= checked ? VJ_SET_CHECKED : 0;
    if (to_set & FUSE_SET_ATTR_ATIME_NOW) {
        out->atime.tv_nsec = UTIME_NOW;
    }
    if (to_set & FUSE_SET_ATTR_MTIME_NOW) {
        out->mtime.tv_nsec = UTIME_NOW;
    }
}

/* The edit that ftruncate(2) to @size carries out; NULL: none. */
static VjStaged *edit_of_size(VjFront *f, pid_t tid, uint64_t ino, VjHandle *h,
                              uint64_t size)
{
    VjStaged *s;

    if (h == NULL || size < VJ_STAGED_BASE) {
        return NULL;
    }
    s = vj_stage_take_ftruncate(f->staged, h, tid, size);
    if (s == NULL) {
        s = vj_staged_of_size(h, ino, size);
        if (s != NULL && vj_coherence_may_hold(f->coherence, ino, s->edit.offset, 0)) {
            g_clear_pointer(&s, vj_staged_free);
        }
    }
    return s;
}

static void front_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
                          struct fuse_file_info *fi)
{
    VjFront *f = front_of(req);
    VjHandle *h = fi != NULL ? vj_front_handle(fi) : NULL;
    VjCarry carry = {.req = req, .ino = ino, .is_truncate = true};
    VjSetattr set;
    VjAttr attr;
    int r;

    vj_front_caller(req, &carry.who);
    setattr_decode(st, to_set, f->clears_privileges, &set);
    if (set.what & VJ_SET_SIZE) {
        vj_trace(front, "ino %" G_GUINT64_FORMAT ": size %" G_GUINT64_FORMAT,
                 (uint64_t)ino, set.size);
        carry.staged = edit_of_size(f, carry.who.pid, ino, h, set.size);
        if (carry.staged != NULL) {
            /* What else ftruncate(2) sets, the edit sets too. */
            vj_edit_carry_out(f, &carry);
            return;
        }
        vj_coherence_locked(f->coherence, ino, 0, 0);
    }
    vj_served_changed(ino); /* the size and what it may run as, before the rest */
    r = vj_fs_setattr(f->fs, &carry.who, ino, h, &set, &attr);
    vj_front_doubt_inode(f, r, ino);
    reply_attr(req, r, &attr, true);
    if (r == -ECANCELED) {
        vj_editor_stale(f->editor, ino, 0, VJ_FILE_SIZE_MAX);
    }
}

static void front_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs st;
    int r = vj_fs_statfs(front_of(req)->fs, &st);

    (void)ino;
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else {
        fuse_reply_statfs(req, &st);
    }
}

/* ---- extended attributes ----------------------------------------------------------- */

/* The kernel asks for a length (size 0) or for the bytes. */
static void reply_xattr(fuse_req_t req, int r, size_t size, const char *value, size_t len)
{
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else if (size == 0) {
        fuse_reply_xattr(req, len);
    } else {
        fuse_reply_buf(req, value, len);
    }
}

/* Bytes that the kernel asks for at once: 64 KiB is its own limit. */
static char *xattr_room(fuse_req_t req, size_t size)
{
    char *room = g_try_malloc(MAX(size, 1));

    if (room == NULL) {
        fuse_reply_err(req, ENOMEM);
    }
    return room;
}

static void front_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    g_autofree char *room = xattr_room(req, size);
    size_t len = 0;
    int r;

    if (room != NULL) {
        r = vj_fs_getxattr(front_of(req)->fs, ino, name, room, size, &len);
        reply_xattr(req, r, size, room, len);
    }
}

static void front_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    g_autofree char *room = xattr_room(req, size);
    size_t len = 0;
    VjCaller who;
    int r;

    if (room != NULL) {
        vj_front_caller(req, &who);
        r = vj_fs_listxattr(front_of(req)->fs, &who, ino, room, size, &len);
        reply_xattr(req, r, size, room, len);
    }
}

/* Another transformation: what waits for write-back will take another number of blocks,
 * and the kernel believes that only a time has changed. */
static void reply_setting(fuse_req_t req, int r, fuse_ino_t ino, const char *name)
{
    VjFront *f = front_of(req);

    vj_front_doubt_inode(f, r, ino);
    if (r == 0 && vj_fs_is_setting(name)) {
        vj_front_attributes_stale(f, ino);
    }
    reply_status(req, r);
}

static void front_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
                           const char *value, size_t size, int flags)
{
    VjCaller who;
    int r;

    vj_front_caller(req, &who);
    r = vj_fs_setxattr(front_of(req)->fs, &who, ino, name, value, size, flags);
    reply_setting(req, r, ino, name);
}

static void front_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    reply_setting(req, vj_fs_removexattr(front_of(req)->fs, ino, name), ino, name);
}

/* ---- the connection ---------------------------------------------------------------- */

/* Sets what is wanted among what the kernel offers. */
static void want(struct fuse_conn_info *conn, unsigned flag, bool on)
{
    if (on && (conn->capable & flag)) {
        conn->want |= flag;
    } else {
        conn->want &= ~flag;
    }
}

static void front_init(void *userdata, struct fuse_conn_info *conn)
{
    VjFront *f = userdata;

    /* Daemon and kernel would each believe to own size and times. */
    want(conn, FUSE_CAP_WRITEBACK_CACHE, false);
    /* Content changes behind the kernel's back only where we invalidate. */
    want(conn, FUSE_CAP_AUTO_INVAL_DATA, false);
    want(conn, FUSE_CAP_EXPLICIT_INVAL_DATA, true);
    /* The daemon clears set-id bits where the kernel asks for it, and not at each
     * write. */
    want(conn, FUSE_CAP_HANDLE_KILLPRIV, false);
#ifdef HAVE_STRUCT_FUSE_FILE_INFO_KILL_SUIDGID
    want(conn, FUSE_CAP_HANDLE_KILLPRIV_V2, true);
    f->clears_privileges = (conn->want & FUSE_CAP_HANDLE_KILLPRIV_V2) != 0;
#endif
    want(conn, FUSE_CAP_ASYNC_READ, true);
    want(conn, FUSE_CAP_ASYNC_DIO, true);
    /* The kernel would send O_TRUNC with OPEN, and refuse a running program only after
     * it. */
    want(conn, FUSE_CAP_ATOMIC_O_TRUNC, false);
    want(conn, FUSE_CAP_EXPORT_SUPPORT, true);
    /* Access control lists: the kernel checks them, and a default list beats the
     * umask. */
    want(conn, FUSE_CAP_POSIX_ACL, true);
    want(conn, FUSE_CAP_DONT_MASK, true);
    want(conn, FUSE_CAP_IOCTL_DIR, true);
    want(conn, FUSE_CAP_PARALLEL_DIROPS, true);
    want(conn, FUSE_CAP_READDIRPLUS, true);
    want(conn, FUSE_CAP_READDIRPLUS_AUTO, true);
    want(conn, FUSE_CAP_CACHE_SYMLINKS, true);
    /* Locks stay with the kernel, which is right and interruptible for one mount. */
    want(conn, FUSE_CAP_POSIX_LOCKS, false);
    want(conn, FUSE_CAP_FLOCK_LOCKS, false);
    /* Requests are copied anyway: the bytes are kept, or hashed. */
    want(conn, FUSE_CAP_SPLICE_READ, false);
    want(conn, FUSE_CAP_SPLICE_WRITE, false);
    want(conn, FUSE_CAP_SPLICE_MOVE, false);
#ifdef HAVE_FUSE_URING
    /* libfuse would use io_uring where its variable FUSE_URING_ENABLE says so; why not:
     * doc/measured/front.md. */
    want(conn, FUSE_CAP_OVER_IO_URING, false);
#endif
#ifdef FUSE_CAP_DIRECT_IO_ALLOW_MMAP
    want(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP, true);
    f->maps_direct_files = (conn->want & FUSE_CAP_DIRECT_IO_ALLOW_MMAP) != 0;
#endif
    vj_trace(front, "a direct read is one request: %s",
             f->maps_direct_files ? "yes" : "no");
    f->may_open_dirs =
        (conn->capable & ~f->delays.off & FUSE_CAP_NO_OPENDIR_SUPPORT) != 0;
    f->compares_setattr = conn->proto_minor >= VJ_FRONT_MINOR_SETATTR;
    f->knows_who_sets_flags = conn->proto_minor >= VJ_FRONT_MINOR_FILEATTR;
    want(conn, f->delays.off, false);
    conn->max_write = f->delays.io_bytes;
    conn->max_readahead = f->delays.io_bytes;
    conn->max_background = f->delays.background;
    conn->congestion_threshold = f->delays.background * 3 / 4;
    conn->time_gran = 1;

    vj_mutex_lock(&f->lock);
    f->initialised = true;
    vj_cond_broadcast(&f->changed);
    vj_mutex_unlock(&f->lock);
}

const struct fuse_lowlevel_ops vj_front_ops = {
    .init = front_init,
    .lookup = front_lookup,
    .forget = front_forget,
    .forget_multi = front_forget_multi,
    .getattr = front_getattr,
#ifdef HAVE_STRUCT_FUSE_LOWLEVEL_OPS_STATX
    .statx = front_statx,
#endif
    .setattr = front_setattr,
    .readlink = front_readlink,
    .mknod = front_mknod,
    .mkdir = front_mkdir,
    .unlink = front_unlink,
    .rmdir = front_rmdir,
    .symlink = front_symlink,
    .rename = front_rename,
    .link = front_link,
    .open = vj_front_open,
    .create = vj_front_create,
#ifdef HAVE_STRUCT_FUSE_LOWLEVEL_OPS_TMPFILE
    .tmpfile = vj_front_tmpfile,
#endif
    .read = vj_front_read,
    .write = vj_front_write,
    .flush = vj_front_flush,
    .release = vj_front_release,
    .fsync = vj_front_fsync,
    .opendir = vj_front_opendir,
    .readdir = vj_front_readdir,
    .readdirplus = vj_front_readdirplus,
    .fsyncdir = vj_front_fsyncdir,
    .statfs = front_statfs,
    .setxattr = front_setxattr,
    .getxattr = front_getxattr,
    .listxattr = front_listxattr,
    .removexattr = front_removexattr,
    .ioctl = vj_front_ioctl,
    .fallocate = vj_front_fallocate,
    .copy_file_range = vj_front_copy_file_range,
    .lseek = vj_front_lseek,
};
