/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ops-flags.c - what chattr(1) sends: the kernel's own ioctls for the flags of an inode
 *
 * The kernel holds the inode's lock and has opened the inode for this request alone.  It
 * takes flags for nothing but numbers: what they forbid is refused in fs.
 */
#include "front/front-private.h"

#include <linux/fs.h>

static VjFront *front_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* One flag under its three names. */
typedef struct FlagName {
    uint32_t inode; /* VJ_INODE_CHATTR */
    uint32_t flag;  /* of FS_IOC_GETFLAGS */
    uint32_t xflag; /* of FS_IOC_FSGETXATTR */
} FlagName;

static const FlagName names[] = {
    {VJ_INODE_IMMUTABLE, FS_IMMUTABLE_FL, FS_XFLAG_IMMUTABLE},
    {VJ_INODE_APPEND_ONLY, FS_APPEND_FL, FS_XFLAG_APPEND},
    {VJ_INODE_NODUMP, FS_NODUMP_FL, FS_XFLAG_NODUMP},
    {VJ_INODE_NOATIME, FS_NOATIME_FL, FS_XFLAG_NOATIME},
};

/* False: some of @flags is none of these. */
static bool flags_decode(uint32_t flags, bool extended, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        uint32_t bit = extended ? names[i].xflag : names[i].flag;

        if (flags & bit) {
            *out |= names[i].inode;
            flags &= ~bit;
        }
    }
    return flags == 0;
}

static uint32_t flags_encode(uint32_t inode, bool extended)
{
    uint32_t out = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        if (inode & names[i].inode) {
            out |= extended ? names[i].xflag : names[i].flag;
        }
    }
    return out;
}

/* ---- looking ----------------------------------------------------------------------- */

static void get_flags(fuse_req_t req, fuse_ino_t ino, bool extended, size_t room)
{
    struct fsxattr x = {.fsx_xflags = 0};
    uint32_t inode = 0;
    int flags;
    int r = vj_fs_get_flags(front_of(req)->fs, ino, &inode);

    if (r == 0 && room != (extended ? sizeof x : sizeof flags)) {
        r = -EINVAL;
    }
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else if (extended) {
        x.fsx_xflags = flags_encode(inode, true);
        fuse_reply_ioctl(req, 0, &x, sizeof x);
    } else {
        flags = (int)flags_encode(inode, false);
        fuse_reply_ioctl(req, 0, &flags, sizeof flags);
    }
}

/* ---- setting ----------------------------------------------------------------------- */

static int set_now(VjFront *f, const VjCaller *who, uint64_t ino, uint32_t flags)
{
    int r = vj_fs_set_flags(f->fs, f->knows_who_sets_flags ? NULL : who, ino, flags);

    if (r == 0) {
        vj_front_attributes_stale(f, ino); /* ctime is another */
    }
    return r;
}

static void set_answer(fuse_req_t req, int r)
{
    if (r < 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else {
        fuse_reply_ioctl(req, 0, NULL, 0);
    }
}

static void job_over(VjFlagsJob *job, int r)
{
    if (vj_wait_claim(&job->wait)) {
        set_answer(job->wait.req, r);
    }
    vj_wait_unref(&job->wait);
}

/*
 * What was stored through mappings until now comes in before the flag would refuse it,
 * and no page stays that could be stored into without a request.  Waits for pages, so no
 * request thread; and at the end of the mount requests are served until it is done.
 */
static void flags_job(VjFront *f, VjFlagsJob *job)
{
    bool are_dropped;

    vj_front_hold(f, VJ_HOLD_FLAGS);
    are_dropped = vj_edit_drop_pages(f, job->ino, 0, 0);
    job_over(job, are_dropped ? set_now(f, &job->who, job->ino, job->flags) : -EIO);
}

static void submit(fuse_req_t req, fuse_ino_t ino, uint32_t flags, const VjCaller *who)
{
    VjFront *f = front_of(req);
    VjFlagsJob *job = g_new0(VjFlagsJob, 1);

    job->run = flags_job;
    job->ino = ino;
    job->flags = flags;
    job->who = *who;
    vj_wait_begin(&job->wait, f, req, NULL);
    if (!vj_editor_flags(f->editor, job)) {
        job_over(job, -ENOMEM);
    }
}

static void set_flags(fuse_req_t req, fuse_ino_t ino, bool is_known, uint32_t flags)
{
    VjFront *f = front_of(req);
    VjCaller who;

    if (!is_known) {
        fuse_reply_err(req, EOPNOTSUPP);
        return;
    }
    vj_front_caller(req, &who);
    if ((flags & VJ_INODE_PROTECTED) && vj_fs_has_writers(f->fs, ino)) {
        submit(req, ino, flags, &who);
    } else {
        set_answer(req, set_now(f, &who, ino, flags));
    }
}

static void set_plain(fuse_req_t req, fuse_ino_t ino, const void *in, size_t len)
{
    uint32_t flags, inode;
    bool is_known;

    if (len != sizeof flags) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    memcpy(&flags, in, sizeof flags);
    is_known = flags_decode(flags, false, &inode);
    set_flags(req, ino, is_known, inode);
}

static void set_extended(fuse_req_t req, fuse_ino_t ino, const void *in, size_t len)
{
    struct fsxattr x;
    uint32_t inode;
    bool is_known;

    if (len != sizeof x) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    memcpy(&x, in, sizeof x);
    is_known = flags_decode(x.fsx_xflags, true, &inode) && x.fsx_extsize == 0 &&
               x.fsx_projid == 0 && x.fsx_cowextsize == 0;
    set_flags(req, ino, is_known, inode);
}

bool vj_front_flags(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, const void *in,
                    size_t in_len, size_t out_len)
{
    switch (cmd) {
    case FS_IOC_GETFLAGS:
        get_flags(req, ino, false, out_len);
        return true;
    case FS_IOC_FSGETXATTR:
        get_flags(req, ino, true, out_len);
        return true;
    case FS_IOC_SETFLAGS:
        set_plain(req, ino, in, in_len);
        return true;
    case FS_IOC_FSSETXATTR:
        set_extended(req, ino, in, in_len);
        return true;
    default:
        return false;
    }
}
