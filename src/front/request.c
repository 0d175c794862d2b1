/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * request.c - what the handlers of all requests share: the caller, the errors that the
 * kernel sees, and the attributes and lookup count of an inode that an answer names
 *
 * Calls no handler.
 */
#include "front/front-private.h"

int vj_front_errno(int r)
{
    switch (r) {
    case -ECANCELED: /* by a signal that ends the caller, which does not see this */
        return EINTR;
    case -EBADMSG: /* damaged */
    case -EPROTO:
    case -ETIMEDOUT:
    case -ESTALE:
        return EIO;
    default:
        g_assert(r < 0);
        return -r;
    }
}

void vj_front_caller(fuse_req_t req, VjCaller *out)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);

    *out = (VjCaller){
        .uid = ctx->uid,
        .gid = ctx->gid,
        .umask = ctx->umask,
        .pid = ctx->pid,
    };
}

void vj_front_forget_one(VjFront *f, uint64_t ino, uint64_t count)
{
    if (vj_lookup_counts_sub(f->lookups, ino, count)) {
        vj_fs_forgotten(f->fs, ino);
    }
}

/* Of a device, a node or a session; what forbids a call is found before its change. */
static bool may_come_after_change(int r)
{
    switch (r) {
    case -EIO:
    case -EBADMSG:
    case -EPROTO:
    case -ETIMEDOUT:
    case -ECANCELED:
    case -ESTALE:
    case -ENOSPC:
    case -EDQUOT:
    case -ENOMEM:
    case -EROFS:
        return true;
    default:
        return false;
    }
}

void vj_front_doubt_name(VjFront *f, int r, uint64_t dir, const char *name)
{
    if (may_come_after_change(r)) {
        vj_invalidate_name(f->invalidator, dir, name);
        vj_invalidate_inode(f->invalidator, dir, true); /* what it has listed, too */
    }
}

void vj_front_doubt_inode(VjFront *f, int r, uint64_t ino)
{
    if (may_come_after_change(r)) {
        vj_invalidate_inode(f->invalidator, ino, false);
    }
}

double vj_front_timeout(const VjFront *f)
{
    return f->is_shared ? VJ_FRONT_SHARED_TIMEOUT_S : VJ_FRONT_TIMEOUT_S;
}

double vj_front_attr_timeout(const VjFront *f, const VjAttr *attr)
{
    return attr->may_change ? 0 : vj_front_timeout(f);
}

void vj_front_entry_fill(const VjFront *f, const VjAttr *attr, struct fuse_entry_param *e)
{
    *e = (struct fuse_entry_param){
        .ino = attr->st.st_ino,
        .generation = attr->generation,
        .attr = attr->st,
        .attr_timeout = vj_front_attr_timeout(f, attr),
        .entry_timeout = vj_front_timeout(f),
    };
}

void vj_front_entry(VjFront *f, const VjAttr *attr, struct fuse_entry_param *e)
{
    vj_front_entry_fill(f, attr, e);
    vj_lookup_counts_add(f->lookups, attr->st.st_ino);
}
