/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * objects.c - operations on contents of objects, which are files, and on their lengths
 *
 * Each is a step of its own, as the room fs has it.
 */
#include "clients/clients-private.h"

#include "fs/records.h"

#include <dirent.h>

/* How often a namespace may be deleted while an object is made in it. */
#define MAKE_TRIES 16u

/* Where an operation is. */
typedef struct Place {
    uint64_t dir;
    char name[VARJFS_WIRE_NAME_MAX + 1];
} Place;

static int find_place(VjClientRun *run, const VjClientOp *op, bool make, Place *out)
{
    int rc = vj_client_name(op->name, out->name);

    return rc < 0 ? rc
                  : vj_client_space(run->clients, VJ_CLIENT_OBJECTS, op->space, make,
                                    &out->dir);
}

typedef struct Find {
    const Place *place;
    VjDentry found; /* out */
} Find;

static int find_body(VjTxn *txn, void *opaque)
{
    Find *f = opaque;

    return vj_name_get(txn, f->place->dir, f->place->name, &f->found);
}

static int find(VjClientRun *run, const VjClientOp *op, Place *place, uint64_t *ino)
{
    Find f = {.place = place};
    int rc = find_place(run, op, false, place);

    rc = rc == 0 ? vj_meta_view(run->clients->meta, find_body, &f) : rc;
    if (rc == 0 && f.found.type != DT_REG) {
        return -EISDIR; /* a program of a mount has made something else of it */
    }
    *ino = rc == 0 ? f.found.ino : 0;
    return rc;
}

/* For writing unless nobody may: what is read is often written, too. */
static int open_to_read(VjClientRun *run, uint64_t ino, VjClientOpen **out)
{
    int rc = vj_client_open(run->clients, ino, !run->read_only, out);

    return rc == -EPERM || rc == -EACCES || rc == -EROFS
               ? vj_client_open(run->clients, ino, false, out)
               : rc;
}

/* The open object; it stays open until the batch ends. */
static int open_object(VjClientRun *run, uint64_t ino, bool to_write, VjClientOpen **out)
{
    VjClientOpen *there;
    int rc;

    if (run->open == NULL) {
        run->open = g_hash_table_new(g_int64_hash, g_int64_equal);
        run->written = g_hash_table_new(NULL, NULL);
    }
    there = g_hash_table_lookup(run->open, &ino);
    if (there != NULL && (there->is_writable || !to_write)) {
        *out = there;
        return 0;
    }
    rc = to_write ? vj_client_open(run->clients, ino, true, out)
                  : open_to_read(run, ino, out);
    if (rc == 0) {
        g_hash_table_replace(run->open, &(*out)->ino, *out);
    }
    if (rc == 0 && there != NULL) {
        vj_client_close(run->clients, there);
    }
    return rc;
}

void vj_client_forget_open(VjClientRun *run, uint64_t ino)
{
    VjClientOpen *o = run->open != NULL ? g_hash_table_lookup(run->open, &ino) : NULL;
    VjInode inode;

    vj_client_forget(run->clients, ino);
    if (o != NULL &&
        vj_file_getattr(vj_volume_files(run->clients->volume), ino, &inode) == 0 &&
        inode.nlink == 0) {
        g_hash_table_remove(run->written, o);
        g_hash_table_remove(run->open, &ino);
        vj_client_close(run->clients, o);
    }
}

static uint64_t us_of(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * G_USEC_PER_SEC + (uint64_t)t->tv_nsec / 1000;
}

static int status(VjClientRun *run, const VjClientOp *op, uint64_t *value)
{
    VjFileTable *files = vj_volume_files(run->clients->volume);
    g_autofree char *text = NULL;
    size_t len;
    VjWriter w;
    VjInode inode;
    Place place;
    uint64_t ino;
    int rc = find(run, op, &place, &ino);

    rc = rc == 0 ? vj_file_getattr(files, ino, &inode) : rc;
    if (rc < 0) {
        return rc;
    }
    text = vj_file_transform_text(files, &inode);
    len = strlen(text);
    *value = VARJFS_WIRE_STATUS_BYTES + len;
    if (*value > op->most) {
        return -ERANGE;
    }
    w = vj_writer(run->out + run->out_len, *value);
    vj_write_u64(&w, inode.size);
    vj_write_u64(&w, inode.stored_bytes);
    vj_write_u64(&w, us_of(&inode.mtime));
    vj_write_u64(&w, us_of(&inode.btime));
    vj_write_bytes(&w, text, len);
    g_assert(!w.bad && w.used == *value);
    run->out_len += w.used;
    return 0;
}

static int read_some(VjClientRun *run, const VjClientOp *op, uint64_t *value)
{
    VjClientOpen *o;
    Place place;
    uint64_t ino;
    size_t got = 0;
    int rc = find(run, op, &place, &ino);

    rc = rc == 0 ? open_object(run, ino, false, &o) : rc;
    if (rc == 0 && op->most > 0 && op->offset <= VJ_FILE_SIZE_MAX) {
        rc = vj_fs_read(o->handle, op->offset, run->out + run->out_len, op->most, &got);
    }
    if (rc == 0) {
        run->out_len += got;
        *value = got;
    }
    return rc;
}

/* The object that is written; made first where the operation says so. */
static int find_to_write(VjClientRun *run, const VjClientOp *op, uint64_t *ino)
{
    VjClients *c = run->clients;
    VjAttr attr;
    Place place;
    int rc = find(run, op, &place, ino);

    if (rc != -ENOENT || (op->flags & VARJFS_WIRE_MAKE) == 0) {
        return rc;
    }
    for (unsigned i = 0; rc == -ENOENT && i < MAKE_TRIES; i++) {
        rc = find_place(run, op, true, &place);
        if (rc == 0) {
            rc = vj_fs_mknod(c->fs, &c->who, place.dir, place.name, VJ_CLIENT_OBJECT_MODE,
                             0, &attr);
        }
        if (rc == -ENOENT) { /* its namespace was deleted meanwhile */
            vj_client_forget_spaces(c);
        }
    }
    if (rc == -EEXIST) { /* another client has made it just now */
        return find(run, op, &place, ino);
    }
    run->changes_meta = run->changes_meta || rc == 0;
    *ino = rc == 0 ? attr.st.st_ino : 0;
    return rc;
}

/* What was found may be deleted before it is open: then it is made anew, or is not
 * there. */
static int open_to_write(VjClientRun *run, const VjClientOp *op, VjClientOpen **out)
{
    int rc = -ENOENT;

    for (unsigned i = 0; rc == -ENOENT && i < MAKE_TRIES; i++) {
        uint64_t ino;

        rc = find_to_write(run, op, &ino);
        rc = rc == 0 ? open_object(run, ino, true, out) : rc;
        if ((op->flags & VARJFS_WIRE_MAKE) == 0) {
            break;
        }
    }
    return rc;
}

static int write_some(VjClientRun *run, const VjClientOp *op, uint64_t *value)
{
    VjClients *c = run->clients;
    bool append = (op->flags & VARJFS_WIRE_APPEND) != 0;
    VjClientOpen *o = NULL;
    int rc = op->offset <= VJ_FILE_SIZE_MAX ? open_to_write(run, op, &o) : -EFBIG;

    if (rc == 0 && op->kind == VARJFS_WIRE_OBJECT_WRITE && op->brings.len > 0) {
        rc = vj_fs_write(o->handle, op->offset, op->brings.data, op->brings.len,
                         append ? VJ_WRITE_APPEND : 0, value);
    } else if (rc == 0 && op->kind == VARJFS_WIRE_OBJECT_RWRITE) {
        VjEdit edit = {.offset = op->offset,
                       .old_len = op->old_len,
                       .src = op->brings.data,
                       .len = op->brings.len,
                       .append = append};
        VjEdited edited = {0};

        rc = vj_fs_replace(&c->who, o->handle, &edit, &edited);
        *value = edited.at;
    }
    if (rc == 0) {
        g_hash_table_add(run->written, o);
    }
    return rc;
}

static int resize(VjClientRun *run, const VjClientOp *op)
{
    VjClients *c = run->clients;
    VjSetattr set = {.what = VJ_SET_SIZE, .size = op->offset};
    VjClientOpen *o = NULL;
    Place place;
    VjAttr attr;
    uint64_t ino;
    int rc = op->offset <= VJ_FILE_SIZE_MAX ? find(run, op, &place, &ino) : -EFBIG;

    rc = rc == 0 ? open_object(run, ino, true, &o) : rc;
    rc = rc == 0 ? vj_fs_setattr(c->fs, &c->who, ino, o->handle, &set, &attr) : rc;
    if (rc == 0) {
        g_hash_table_add(run->written, o);
    }
    return rc;
}

/* What has the new name is an object too; *ino is its, or 0. */
static int find_target(VjClientRun *run, const Place *place, const char *name,
                       uint64_t *ino)
{
    VjAttr attr;
    int rc = vj_fs_lookup(run->clients->fs, &run->clients->who, place->dir, name, &attr);

    *ino = rc == 0 ? attr.st.st_ino : 0;
    return rc == -ENOENT ? 0 : rc == 0 && !S_ISREG(attr.st.st_mode) ? -EISDIR : rc;
}

static int rename_object(VjClientRun *run, const VjClientOp *op)
{
    unsigned flags = (op->flags & VARJFS_WIRE_EXCLUSIVE) != 0 ? VJ_RENAME_NOREPLACE : 0;
    VjClients *c = run->clients;
    char to[VARJFS_WIRE_NAME_MAX + 1];
    uint64_t ino, replaced;
    Place place;
    int rc = vj_client_name(op->second, to);

    rc = rc == 0 ? find(run, op, &place, &ino) : rc;
    rc = rc == 0 ? find_target(run, &place, to, &replaced) : rc;
    rc = rc == 0
             ? vj_fs_rename(c->fs, &c->who, place.dir, place.name, place.dir, to, flags)
             : rc;
    if (rc == 0) {
        run->changes_meta = true;
        vj_client_forget_open(run, replaced);
    }
    return rc;
}

int vj_client_object(VjClientRun *run, const VjClientOp *op, uint64_t *value)
{
    bool changes =
        op->kind != VARJFS_WIRE_OBJECT_STATUS && op->kind != VARJFS_WIRE_OBJECT_READ;

    if (changes && run->read_only) {
        return -EROFS;
    }
    switch (op->kind) {
    case VARJFS_WIRE_OBJECT_STATUS:
        return status(run, op, value);
    case VARJFS_WIRE_OBJECT_READ:
        return read_some(run, op, value);
    case VARJFS_WIRE_OBJECT_RESIZE:
        return resize(run, op);
    case VARJFS_WIRE_OBJECT_RENAME:
        return rename_object(run, op);
    default:
        return write_some(run, op, value);
    }
}
