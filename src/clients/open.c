/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * open.c - objects that are open, and stay open for the next batch that uses them
 *
 * By inode: a name is looked for by each operation, so that what has it now is used.  An
 * object that loses its name is forgotten: it is closed when the last batch that uses it
 * has ended, and its space given back then.  Those that nobody uses are closed in the
 * order of their use where there are more than VJ_CLIENT_OPEN_KEPT.
 */
#include "clients/clients-private.h"

#include <fcntl.h>

/* Not in the table any more, and nobody's. */
static void open_free(VjClients *c, VjClientOpen *o)
{
    if (o != NULL) {
        vj_fs_release(c->fs, o->handle);
        g_free(o);
    }
}

/* Out of the table.  Returns owned what is to be closed now; NULL: it is in use. */
static VjClientOpen *forget_locked(VjClients *c, VjClientOpen *o) VJ_REQUIRES(&c->lock)
{
    g_hash_table_remove(c->open, &o->ino);
    o->is_forgotten = true;
    if (o->users > 0) {
        return NULL;
    }
    g_queue_unlink(&c->unused, &o->link);
    return o;
}

static VjClientOpen *find_used(VjClients *c, uint64_t ino, bool to_write)
{
    VjClientOpen *o, *closed = NULL;

    vj_mutex_lock(&c->lock);
    o = g_hash_table_lookup(c->open, &ino);
    if (o != NULL && to_write && !o->is_writable) {
        closed = forget_locked(c, o);
        o = NULL;
    }
    if (o != NULL && o->users++ == 0) {
        g_queue_unlink(&c->unused, &o->link);
    }
    vj_mutex_unlock(&c->lock);
    open_free(c, closed);
    return o;
}

/* 0, -ENOENT it has lost its name, or why that is not known.  A deletion that comes after
 * this look finds it in the table. */
static int check_name(VjClients *c, uint64_t ino)
{
    VjInode inode;
    int rc = vj_file_getattr(vj_volume_files(c->volume), ino, &inode);

    return rc == 0 && inode.nlink == 0 ? -ENOENT : rc;
}

int vj_client_open(VjClients *c, uint64_t ino, bool to_write, VjClientOpen **out)
{
    int flags = (to_write ? O_RDWR : O_RDONLY) | O_NOATIME;
    VjClientOpen *there;
    VjHandle *handle;
    int rc;

    *out = find_used(c, ino, to_write);
    if (*out != NULL) {
        return 0;
    }
    rc = vj_fs_open(c->fs, &c->who, ino, flags, &handle);
    if (rc < 0) {
        return rc;
    }
    *out = g_new0(VjClientOpen, 1);
    **out =
        (VjClientOpen){.ino = ino, .handle = handle, .is_writable = to_write, .users = 1};
    (*out)->link.data = *out;
    vj_mutex_lock(&c->lock);
    there = g_hash_table_lookup(c->open, &ino);
    (*out)->is_forgotten = there != NULL; /* another thread has opened it, too */
    if (there == NULL) {
        g_hash_table_insert(c->open, &(*out)->ino, *out);
    }
    vj_mutex_unlock(&c->lock);
    rc = check_name(c, ino);
    if (rc < 0) {
        vj_client_forget(c, ino);
        vj_client_close(c, *out);
        *out = NULL;
    }
    return rc;
}

void vj_client_close(VjClients *c, VjClientOpen *o)
{
    VjClientOpen *closed = NULL;

    vj_mutex_lock(&c->lock);
    g_assert(o->users > 0);
    o->users--;
    if (o->users == 0 && o->is_forgotten) {
        closed = o;
    } else if (o->users == 0) {
        g_queue_push_tail_link(&c->unused, &o->link);
        if (g_queue_get_length(&c->unused) > VJ_CLIENT_OPEN_KEPT) {
            closed = forget_locked(c, g_queue_peek_head(&c->unused));
        }
    }
    vj_mutex_unlock(&c->lock);
    open_free(c, closed);
}

void vj_client_forget(VjClients *c, uint64_t ino)
{
    VjClientOpen *o, *closed = NULL;

    vj_mutex_lock(&c->lock);
    o = g_hash_table_lookup(c->open, &ino);
    if (o != NULL) {
        closed = forget_locked(c, o);
    }
    vj_mutex_unlock(&c->lock);
    open_free(c, closed);
}

void vj_client_forget_all(VjClients *c)
{
    GHashTableIter iter;
    gpointer o;
    GQueue closed;
    GList *link;

    vj_mutex_lock(&c->lock);
    g_hash_table_iter_init(&iter, c->open);
    while (g_hash_table_iter_next(&iter, NULL, &o)) {
        ((VjClientOpen *)o)->is_forgotten = true;
        g_hash_table_iter_remove(&iter);
    }
    closed = c->unused;
    g_queue_init(&c->unused);
    vj_mutex_unlock(&c->lock);
    while ((link = g_queue_pop_head_link(&closed)) != NULL) {
        open_free(c, link->data);
    }
}
