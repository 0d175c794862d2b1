/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * flags.c - what chattr(1) sets, and what it forbids then
 *
 * The kernel knows nothing of these flags of a FUSE file system: it looks at none of them
 * when it opens, writes, removes or changes, so all of that is refused here.  Operations
 * on names and attributes look at the records in their own transactions.  Writes and
 * edits have none: for them an open inode remembers what its records say, until one of
 * them is changed; also whether a change of content has privileges to take away.
 *
 * As on ext4, a descriptor that was open before may go on with a file that becomes append
 * only, but not with one that becomes immutable.
 */
#include <linux/capability.h>

#include "fs/fs-private.h"

/* VjNode's record: what is known, and how often it has changed. */
#define HAS_READ_PROTECTION 1u /* VJ_INODE_PROTECTED are as in the record */
#define HAS_READ_PRIVILEGES 2u /* so is HAS_PRIVILEGES */
#define HAS_PRIVILEGES 4u      /* a set-id bit, or a security.capability */
#define RECORD_BITS                                                                      \
    (HAS_READ_PROTECTION | HAS_READ_PRIVILEGES | HAS_PRIVILEGES |                        \
     (guint)VJ_INODE_PROTECTED)
#define RECORD_CHANGE 0x400u

G_STATIC_ASSERT((VJ_INODE_PROTECTED &
                 (HAS_READ_PROTECTION | HAS_READ_PRIVILEGES | HAS_PRIVILEGES)) == 0);
G_STATIC_ASSERT(VJ_INODE_PROTECTED < RECORD_CHANGE);

/* Of what was @seen before the records were read @found is known now. */
static guint learn(VjHandle *h, guint seen, guint found)
{
    guint now = seen | found;

    /* Unless a record was changed since: then the next caller looks again. */
    (void)g_atomic_int_compare_and_exchange(&h->node->record, (gint)seen, (gint)now);
    return now;
}

void vj_fs_note_made(VjHandle *h, const VjInode *inode)
{
    guint found = HAS_READ_PROTECTION | (inode->flags & VJ_INODE_PROTECTED);

    if ((inode->mode & (S_ISUID | S_ISGID)) == 0) {
        found |= HAS_READ_PRIVILEGES; /* it has no attributes either */
    }
    if (!vj_volume_is_shared(h->fs->volume)) { /* others may have changed it since */
        (void)learn(h, 0, found);
    }
}

int vj_fs_protection(VjHandle *h, uint32_t *out)
{
    guint seen = (guint)g_atomic_int_get(&h->node->record);

    if (!(seen & HAS_READ_PROTECTION)) {
        VjInode inode;
        int r = vj_file_getattr(h->fs->files, h->ino, &inode);

        if (r < 0) {
            return r;
        }
        seen = learn(h, seen, HAS_READ_PROTECTION | (inode.flags & VJ_INODE_PROTECTED));
    }
    *out = seen & VJ_INODE_PROTECTED;
    return 0;
}

int vj_fs_has_privileges(VjHandle *h, bool *out)
{
    guint seen = (guint)g_atomic_int_get(&h->node->record);

    if (!(seen & HAS_READ_PRIVILEGES)) {
        bool has;
        int r = vj_fs_look_for_privileges(h->fs, h->ino, &has);

        if (r < 0) {
            return r;
        }
        seen = learn(h, seen, HAS_READ_PRIVILEGES | (has ? HAS_PRIVILEGES : 0));
    }
    *out = (seen & HAS_PRIVILEGES) != 0;
    return 0;
}

bool vj_fs_is_without_capability(VjFs *fs, uint64_t ino)
{
    const VjNode *n;
    guint record = 0;

    if (vj_volume_is_shared(fs->volume)) {
        return false;
    }
    vj_mutex_lock(&fs->lock);
    n = g_hash_table_lookup(fs->nodes, &ino);
    if (n != NULL) {
        record = (guint)g_atomic_int_get(&n->record);
    }
    vj_mutex_unlock(&fs->lock);
    return (record & (HAS_READ_PRIVILEGES | HAS_PRIVILEGES)) == HAS_READ_PRIVILEGES;
}

int vj_fs_may_write(VjHandle *h, bool appends)
{
    uint32_t protection;
    int r = vj_fs_protection(h, &protection);

    if (r < 0 || protection == 0) {
        return r;
    }
    if (protection & VJ_INODE_IMMUTABLE) {
        return -EPERM;
    }
    /* Opened without O_APPEND: it was open before.  Else fcntl(2) took the flag away, of
     * which the kernel would say EPERM if it knew, or the bytes come from a mapping,
     * which it would refuse. */
    return appends || !(h->flags & O_APPEND) ? 0 : -EPERM;
}

int vj_fs_may_open(VjHandle *h, int flags)
{
    bool write = (flags & O_ACCMODE) != O_RDONLY;
    uint32_t protection;
    int r;

    if (!write && !(flags & O_TRUNC)) {
        return 0;
    }
    r = vj_fs_protection(h, &protection);
    if (r < 0 || protection == 0) {
        return r;
    }
    return (protection & VJ_INODE_IMMUTABLE) || (flags & O_TRUNC) || !(flags & O_APPEND)
               ? -EPERM
               : 0;
}

static void forget_record(VjNode *n)
{
    guint seen, now;

    do {
        seen = (guint)g_atomic_int_get(&n->record);
        now = (seen & ~RECORD_BITS) + RECORD_CHANGE;
    } while (!g_atomic_int_compare_and_exchange(&n->record, (gint)seen, (gint)now));
    g_atomic_int_set(&n->atime_is_new, 0);
}

void vj_fs_record_changed(VjFs *fs, uint64_t ino)
{
    VjNode *n;

    vj_mutex_lock(&fs->lock);
    n = g_hash_table_lookup(fs->nodes, &ino);
    if (n != NULL) {
        forget_record(n);
    }
    vj_mutex_unlock(&fs->lock);
}

void vj_fs_all_records_changed(VjFs *fs)
{
    GHashTableIter iter;
    gpointer n;

    vj_mutex_lock(&fs->lock);
    g_hash_table_iter_init(&iter, fs->nodes);
    while (g_hash_table_iter_next(&iter, NULL, &n)) {
        forget_record(n);
    }
    vj_mutex_unlock(&fs->lock);
}

bool vj_fs_has_writers(VjFs *fs, uint64_t ino)
{
    const VjNode *n;
    bool has;

    vj_mutex_lock(&fs->lock);
    n = g_hash_table_lookup(fs->nodes, &ino);
    has = n != NULL && n->writers > 0;
    vj_mutex_unlock(&fs->lock);
    return has;
}

/* ---- looking and setting ----------------------------------------------------------- */

int vj_fs_get_flags(VjFs *fs, uint64_t ino, uint32_t *out)
{
    VjInode inode;
    int r = vj_file_getattr(fs->files, ino, &inode);

    if (r == 0) {
        *out = inode.flags & VJ_INODE_CHATTR;
    }
    return r;
}

typedef struct FlagsOp {
    uint64_t ino;
    uint32_t wanted;
    const VjCaller *who; /* NULL: he may */
    bool may_of_others;  /* CAP_FOWNER */
    bool may_protection; /* CAP_LINUX_IMMUTABLE */
    struct timespec now;
    const VjFs *fs;
    VjSafety safety; /* out */
} FlagsOp;

static int flags_body(VjTxn *txn, void *opaque)
{
    FlagsOp *op = opaque;
    uint32_t change;
    VjInode inode;
    int r = vj_inode_get(txn, op->ino, &inode);

    if (r < 0) {
        return r;
    }
    if (!S_ISREG(inode.mode) && !S_ISDIR(inode.mode)) {
        return -EOPNOTSUPP;
    }
    change = (inode.flags ^ op->wanted) & VJ_INODE_CHATTR;
    if (op->who != NULL && inode.uid != op->who->uid && !op->may_of_others) {
        return -EPERM;
    }
    if (op->who != NULL && (change & VJ_INODE_PROTECTED) && !op->may_protection) {
        return -EPERM;
    }
    /* Nothing else of what stays immutable may change. */
    if (change != 0 && (inode.flags & op->wanted & VJ_INODE_IMMUTABLE)) {
        return -EPERM;
    }
    inode.flags ^= change;
    inode.ctime = op->now;
    op->safety = vj_fs_safety_of(op->fs, &inode);
    return vj_inode_put(txn, &inode);
}

int vj_fs_set_flags(VjFs *fs, const VjCaller *who, uint64_t ino, uint32_t flags)
{
    FlagsOp op = {
        .ino = ino,
        .wanted = flags,
        .who = who,
        .may_of_others = who != NULL && vj_caller_capable(who, CAP_FOWNER),
        .may_protection = who != NULL && vj_caller_capable(who, CAP_LINUX_IMMUTABLE),
        .now = vj_clock_real(),
        .fs = fs,
    };
    int r;

    if ((flags & ~(uint32_t)VJ_INODE_CHATTR) != 0) {
        return -EOPNOTSUPP;
    }
    r = vj_fs_run(fs, VJ_RUN_DEFAULT, flags_body, &op);
    vj_fs_record_changed(fs, ino);
    return vj_fs_acknowledge(fs, r, op.safety);
}
