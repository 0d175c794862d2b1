/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ops-dir.c - requests that list directories
 *
 * The kernel opens a directory by itself and keeps what it has listed, until a name in it
 * comes or goes through this mount.  What changes behind its back is invalidated
 * (vj_front_doubt_name).  Beside other sessions it keeps no list: their changes are
 * reported in another thread, perhaps before an answer that was made without them.
 */
#include "front/front-private.h"

#include <dirent.h>
#include <sys/stat.h>

static VjFront *front_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

void vj_front_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    const VjFront *f = front_of(req);

    (void)ino;
    if (f->may_open_dirs && !f->is_shared) {
        fuse_reply_err(req, ENOSYS); /* from now on it does not ask */
        return;
    }
    fi->cache_readdir = fi->keep_cache = !f->is_shared;
    fuse_reply_open(req, fi);
}

typedef struct Listing {
    fuse_req_t req;
    char *bytes;
    size_t cap, used;
    bool plus;
    uint64_t last;   /* cookie; 0: no name came */
    GArray *counted; /* uint64_t: inodes that the kernel counts */
} Listing;

static bool is_dot(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static bool listing_visit(void *opaque, const VjDirent *d, const VjAttr *attr)
{
    Listing *l = opaque;
    size_t room = l->cap - l->used, need;
    struct fuse_entry_param e = {.ino = 0};

    e.attr.st_ino = d->ino;
    e.attr.st_mode = DTTOIF(d->type);
    if (!l->plus) {
        need = fuse_add_direntry(l->req, l->bytes + l->used, room, d->name, &e.attr,
                                 (off_t)d->cookie);
    } else {
        bool counts = attr != NULL && !is_dot(d->name);

        if (counts) {
            vj_front_entry_fill(front_of(l->req), attr, &e);
        }
        need = fuse_add_direntry_plus(l->req, l->bytes + l->used, room, d->name, &e,
                                      (off_t)d->cookie);
        if (need <= room && counts) {
            vj_lookup_counts_add(front_of(l->req)->lookups, e.ino);
            g_array_append_val(l->counted, e.ino);
        }
    }
    if (need > room) {
        return false;
    }
    l->used += need;
    l->last = d->cookie;
    return true;
}

static void listing_forget(Listing *l)
{
    for (guint i = 0; i < l->counted->len; i++) {
        vj_front_forget_one(front_of(l->req), g_array_index(l->counted, uint64_t, i), 1);
    }
    g_array_set_size(l->counted, 0);
    l->used = 0;
}

static void read_directory(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                           bool plus)
{
    VjFront *f = front_of(req);
    g_autofree char *bytes = g_try_malloc(MAX(size, 1));
    Listing l = {.req = req, .bytes = bytes, .cap = size, .plus = plus};
    uint64_t end = vj_dir_streams_end(f->dir_streams, ino, (uint64_t)off);
    int r;

    if (bytes == NULL) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    l.counted = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    r = vj_fs_readdir(f->fs, ino, (uint64_t)off, &end, size, plus, listing_visit, &l);
    if (r == 0) {
        vj_dir_streams_note(f->dir_streams, ino, (uint64_t)off, l.last, end);
    }
    if (r < 0 && l.used == 0) {
        fuse_reply_err(req, vj_front_errno(r));
    } else if (fuse_reply_buf(req, bytes, l.used) != 0) {
        listing_forget(&l);
    }
    g_array_unref(l.counted);
}

void vj_front_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                      struct fuse_file_info *fi)
{
    (void)fi;
    read_directory(req, ino, size, off, false);
}

void vj_front_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                          struct fuse_file_info *fi)
{
    (void)fi;
    read_directory(req, ino, size, off, true);
}
