/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * content-claim.c - in a shared session: which session has the content of a file open
 *
 * What a VjFile keeps of its inode stays right because no other session commits its
 * content meanwhile: opening it takes a claim (meta/session.h) in the transaction that
 * reads the record, or makes it, and the last close drops that.  Names and attributes
 * need no claim.
 *
 * Another session may take the last name of a file that is open here.  Its orphan record
 * then names this session and says VJ_ORPHAN_LEFT_OPEN, and this session finds that when
 * it drops the claim.  From then on the file cannot be opened any more: the purge is
 * about to come.
 *
 * A claim that cannot be dropped is tried again when another one is.  What is left when
 * the session ends goes with it.
 */
#include "file/file-private.h"
#include "meta/session.h"

/* Claims that wait to be dropped; those beyond stay until the session ends. */
#define LEFT_MAX 65536u

/* ---- taking ------------------------------------------------------------------------ */

typedef struct Take {
    uint64_t ino;
    VjInode *inode;
    uint64_t holder; /* out, of -EBUSY */
} Take;

/* -ESTALE: @ino has no name, and another session drops it, or this one is about to. */
static int check_orphan(VjTxn *txn, uint64_t ino)
{
    VjOrphan orphan;
    int r = vj_orphan_get(txn, ino, &orphan);

    if (r < 0) {
        return r == -ENOENT ? 0 : r;
    }
    return orphan.session == vj_meta_session(txn->meta) &&
                   !(orphan.flags & VJ_ORPHAN_LEFT_OPEN)
               ? 0
               : -ESTALE;
}

static int take_body(VjTxn *txn, void *opaque)
{
    Take *t = opaque;
    int r = vj_inode_get(txn, t->ino, t->inode);

    t->holder = 0;
    if (r == 0 && t->inode->nlink == 0) {
        r = check_orphan(txn, t->ino);
    }
    return r < 0 ? r : vj_claim_take(txn, VJ_CLAIM_CONTENT, t->ino, &t->holder);
}

/* It is not known whether the claim was taken. */
static bool is_doubtful(int r)
{
    return r == -EIO || r == -ETIMEDOUT || r == -ECANCELED;
}

/* It is not among those that are being opened any more: take_left passes these over. */
static void leave(VjFileTable *table, uint64_t ino)
{
    bool has_room;

    vj_mutex_lock(&table->lock);
    has_room = table->claims_left->len < LEFT_MAX;
    if (has_room) {
        g_array_append_val(table->claims_left, ino);
    }
    vj_mutex_unlock(&table->lock);
    if (!has_room) {
        vj_log_warn("inode %" G_GUINT64_FORMAT
                    ": other sessions cannot open it before this one ends",
                    ino);
    }
}

void vj_content_claim_failed(VjFileTable *table, uint64_t ino, int r)
{
    if (is_doubtful(r)) {
        leave(table, ino);
    }
}

int vj_content_claim(VjFileTable *table, uint64_t ino, VjInode *out, uint64_t *holder)
{
    Take take = {.ino = ino, .inode = out};
    int r = vj_meta_run(table->meta, VJ_RUN_RELEASE, take_body, &take);

    *holder = take.holder;
    return r;
}

void vj_content_tell_busy(VjFileTable *table, uint64_t ino, uint64_t holder)
{
    g_autoptr(GArray) sessions = g_array_new(FALSE, FALSE, sizeof(VjSessionInfo));
    const char *name = "another session";
    int r = vj_meta_sessions(table->meta, sessions);

    for (guint i = 0; r == 0 && i < sessions->len; i++) {
        const VjSessionInfo *s = &g_array_index(sessions, VjSessionInfo, i);

        if (s->id == holder && s->name[0] != '\0') {
            name = s->name;
        }
    }
    vj_log_warn("inode %" G_GUINT64_FORMAT
                ": its content is open in session %" G_GUINT64_FORMAT
                " (%s), and in one at a time",
                ino, holder, name);
}

/* ---- dropping ---------------------------------------------------------------------- */

typedef struct Drop {
    uint64_t ino;
    bool is_orphan; /* out: the purge's now */
} Drop;

/* What is damaged is the check's business. */
static int drop_body(VjTxn *txn, void *opaque)
{
    Drop *d = opaque;
    VjOrphan orphan;
    VjInode inode;
    int r = vj_inode_get(txn, d->ino, &inode);

    d->is_orphan = false;
    if (r == 0 && inode.nlink == 0) {
        r = vj_orphan_get(txn, d->ino, &orphan);
        d->is_orphan = r == 0 && (orphan.flags & VJ_ORPHAN_LEFT_OPEN) &&
                       orphan.session == vj_meta_session(txn->meta);
    }
    if (r < 0 && r != -ENOENT && r != -EBADMSG) {
        return r;
    }
    return vj_claim_drop(txn, VJ_CLAIM_CONTENT, d->ino);
}

/* Wakes the threads that wait for an inode that was being closed. */
static void is_closed(VjFileTable *table, VjOpening *closing)
{
    vj_mutex_lock(&table->lock);
    g_hash_table_remove(table->opening, &closing->ino);
    vj_cond_broadcast(&table->opened);
    vj_mutex_unlock(&table->lock);
}

static int drop(VjFileTable *table, VjOpening *closing)
{
    Drop d = {.ino = closing->ino};
    int r = vj_meta_run(table->meta, VJ_RUN_RELEASE, drop_body, &d);

    if (r < 0 && r != -ESTALE) { /* shut out: others release what it had */
        vj_log_warn("inode %" G_GUINT64_FORMAT
                    ": that its content was closed cannot be told to other sessions "
                    "now: %s",
                    d.ino, g_strerror(-r));
    }
    is_closed(table, closing);
    if (r < 0 && r != -ESTALE) {
        leave(table, d.ino);
    }
    if (r == 0 && d.is_orphan) { /* may wait for the purge, which waits for openings */
        table->events->orphaned(table->opaque, d.ino, 0);
    }
    return r;
}

/* One of the claims that were left, whose inode no thread has opened again: its number is
 * then among those that are being opened. */
static bool take_left(VjFileTable *table, VjOpening *o)
{
    bool found = false;

    vj_mutex_lock(&table->lock);
    while (!found && table->claims_left->len > 0) {
        guint last = table->claims_left->len - 1;

        o->ino = g_array_index(table->claims_left, uint64_t, last);
        g_array_set_size(table->claims_left, last);
        /* A thread that has it open, or is about to, drops the claim in the end. */
        found = g_hash_table_lookup(table->files, &o->ino) == NULL &&
                g_hash_table_lookup(table->opening, &o->ino) == NULL;
    }
    if (found) {
        g_hash_table_insert(table->opening, &o->ino, o);
    }
    vj_mutex_unlock(&table->lock);
    return found;
}

void vj_content_drop(VjFileTable *table, VjOpening *closing)
{
    VjOpening left = {0};

    if (drop(table, closing) == 0 && take_left(table, &left)) {
        (void)!drop(table, &left);
    }
}
