/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * atime.c - when a file was last read, as relatime has it
 *
 * Reads that the kernel answers from its cache never arrive here; of the others the first
 * one after a change of the file, and the first one in a day, count; none where chattr +A
 * says so.  The time is kept with the open inode and committed when a handle goes, so
 * that no reader waits for a transaction; a crash may lose it.
 */
#include "fs/fs-private.h"

#define RELATIME_SECONDS (24 * 3600)

static bool is_due(const struct stat *st, struct timespec now)
{
    return !vj_fs_time_later(st->st_atim, st->st_mtim) ||
           !vj_fs_time_later(st->st_atim, st->st_ctim) ||
           now.tv_sec - st->st_atim.tv_sec >= RELATIME_SECONDS;
}

void vj_fs_set_noatime(VjFs *fs)
{
    fs->noatime = true;
}

static bool has_atime(const VjNode *n)
{
    return n->was_read || n->read_taken_by != 0;
}

/* The lock is held. */
static void node_set_read(VjFs *fs, VjNode *n, bool was_read, uint64_t taken_by)
{
    bool before = has_atime(n);

    if (n->was_read && !was_read) {
        g_atomic_int_inc(&n->reads_forgotten);
    }
    n->was_read = was_read;
    n->read_taken_by = taken_by;
    if (!before && has_atime(n)) {
        g_atomic_int_inc(&fs->read_count);
    } else if (before && !has_atime(n)) {
        g_atomic_int_inc(&fs->read_end_count); /* before read_count says 0 */
        (void)g_atomic_int_dec_and_test(&fs->read_count);
    }
}

void vj_fs_note_read(VjHandle *h)
{
    VjFs *fs = h->fs;
    VjNode *n = h->node;
    struct timespec now;
    VjAttr attr;

    if (g_atomic_int_get(&n->atime_is_new) || fs->noatime || (h->flags & O_NOATIME) ||
        vj_volume_read_only(fs->volume)) {
        return;
    }
    /* A change from now on makes it old again. */
    g_atomic_int_set(&n->atime_is_new, 1);
    if (vj_fs_getattr(fs, h->ino, &attr) < 0) {
        g_atomic_int_set(&n->atime_is_new, 0);
        return; /* the read itself has reported it */
    }
    now = vj_clock_real();
    if ((attr.flags & VJ_INODE_NOATIME) || !is_due(&attr.st, now)) {
        return;
    }
    vj_mutex_lock(&fs->lock);
    n->atime = now;
    node_set_read(fs, n, true, n->read_taken_by);
    vj_mutex_unlock(&fs->lock);
}

void vj_fs_note_change(VjHandle *h)
{
    if (g_atomic_int_get(&h->node->atime_is_new)) {
        g_atomic_int_set(&h->node->atime_is_new, 0);
    }
}

void vj_fs_show_read(VjFs *fs, uint64_t ino, VjAttr *out)
{
    const VjNode *n;

    if (g_atomic_int_get(&fs->read_count) == 0) {
        return;
    }
    vj_mutex_lock(&fs->lock);
    n = g_hash_table_lookup(fs->nodes, &ino);
    if (n != NULL && has_atime(n)) {
        out->st.st_atim = n->atime;
    }
    vj_mutex_unlock(&fs->lock);
}

typedef struct ReadOp {
    uint64_t ino;
    const VjNode *node;
    gint forgotten; /* node->reads_forgotten when atime was looked at */
    struct timespec atime;
} ReadOp;

static int read_body(VjTxn *txn, void *opaque)
{
    const ReadOp *op = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, op->ino, &inode);

    if (r < 0) {
        return r;
    }
    if (g_atomic_int_get(&op->node->reads_forgotten) != op->forgotten) {
        return 0; /* a caller has set another, or is about to */
    }
    inode.atime = op->atime;
    return vj_inode_put(txn, &inode);
}

static void commit_read(VjFs *fs, VjNode *n)
{
    ReadOp op = {.ino = n->ino, .node = n};
    bool wanted;
    int r;

    vj_mutex_lock(&fs->lock);
    wanted = n->was_read;
    op.atime = n->atime;
    op.forgotten = g_atomic_int_get(&n->reads_forgotten);
    if (wanted && n->orphan) {
        node_set_read(fs, n, false, n->read_taken_by);
        wanted = false;
    }
    vj_mutex_unlock(&fs->lock);
    if (!wanted) {
        return;
    }
    /* Shown from memory until it is committed; another reader may come meanwhile. */
    r = vj_fs_run(fs, VJ_RUN_DEFAULT, read_body, &op);
    if (r < 0) {
        vj_trace(fs, "ino %" G_GUINT64_FORMAT ": its atime is lost: %s", op.ino,
                 g_strerror(-r));
    }
    vj_mutex_lock(&fs->lock);
    /* Not what a utimens took meanwhile, and gave back. */
    if (n->was_read && g_atomic_int_get(&n->reads_forgotten) == op.forgotten &&
        !vj_fs_time_later(n->atime, op.atime)) {
        node_set_read(fs, n, false, n->read_taken_by);
    }
    vj_mutex_unlock(&fs->lock);
}

/* With each close: of two that go at the same moment neither would be the last one. */
void vj_fs_commit_read(VjHandle *h)
{
    if (g_atomic_int_get(&h->fs->read_count) > 0) {
        commit_read(h->fs, h->node);
    }
}

/* ---- an atime that is set ---------------------------------------------------------- */

void vj_fs_utimens_begin(VjFs *fs, uint64_t ino, VjUtimensRead *out)
{
    VjNode *n;

    *out = (VjUtimensRead){.n = NULL};
    if (g_atomic_int_get(&fs->read_count) == 0) {
        return;
    }
    vj_mutex_lock(&fs->lock);
    n = g_hash_table_lookup(fs->nodes, &ino);
    if (n != NULL && has_atime(n)) {
        n->utimens_now++;
        *out = (VjUtimensRead){.n = n, .number = ++n->utimens_count};
        if (n->was_read) {
            node_set_read(fs, n, false, out->number);
        }
    }
    vj_mutex_unlock(&fs->lock);
}

void vj_fs_utimens_end(VjFs *fs, const VjUtimensRead *u, int r)
{
    VjNode *n = u->n;
    VjCancel *callers;
    uint64_t ino;
    bool reap;

    if (n == NULL) {
        return;
    }
    if (r < 0) {
        vj_stall_begin(); /* nothing was set */
    }
    /* The read was of another caller; but an engine that did not answer in time may not
     * now. */
    callers = r == -ETIMEDOUT ? NULL : vj_cancel_leave();
    vj_mutex_lock(&fs->lock);
    ino = n->ino;
    if (r == 0 && n->read_taken_by <= u->number) {
        node_set_read(fs, n, n->was_read, 0);
    }
    while (n->utimens_now == 1 && n->read_taken_by != 0) {
        node_set_read(fs, n, true, 0);
        if (n->handles == 0) { /* else one of them does it */
            vj_mutex_unlock(&fs->lock);
            commit_read(fs, n);
            vj_mutex_lock(&fs->lock);
        }
    }
    n->utimens_now--;
    reap = vj_fs_node_drop_unused_locked(fs, n);
    vj_mutex_unlock(&fs->lock);
    if (callers != NULL) {
        vj_cancel_enter(callers);
    }
    if (r < 0) {
        (void)!vj_stall_end(r);
    }
    if (reap) {
        vj_volume_reap(fs->volume, ino);
    }
}
