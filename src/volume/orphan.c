/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * orphan.c - contents without a name, dropped in the background
 *
 * An orphan record is written in the transaction that takes the last name away, or that
 * cuts a subtree off a map.  One thread drops what they name, VJ_FILE_DROP_BATCH entries
 * a transaction: each transaction leaves a smaller orphan, so a crash at any point loses
 * nothing and the next mount goes on.  Small ones go several in one transaction.
 *
 * A record names the session that is to drop the orphan.  The orphans of a session that
 * has ended are dropped by any other: a session that opens the volume takes those of all
 * ended sessions, a session to which an end is reported those of that one (sessions.c).
 */
#include "meta/session.h"
#include "volume/volume-private.h"

/* Orphans of this mount in memory; a thread that has one more waits. */
#define QUEUE_MAX 65536u
/* How long the first orphan waits for others: to wake the thread costs more than to drop
 * one. */
#define COMPANY_US ((int64_t)10000)
#define COMPANY_MAX 1024u
/* Those of earlier mounts and those that failed, 16 bytes each; the next mount has the
 * rest. */
#define EARLIER_MAX (4u << 20)
/* Those that failed are tried again after VjVolume.drop_retry_us, then after twice as
 * long each time, up to this. */
#define RETRY_MAX_US ((int64_t)300 * 1000 * 1000)
/* Attributes and records of an inode that go in one transaction. */
#define XATTR_BATCH 1000u
/* Orphans that go in one transaction. */
#define TOGETHER_MAX 64u

typedef struct Orphan {
    uint64_t ino;
    uint32_t node; /* 0: the inode */
} Orphan;

struct VjOrphanPurge {
    VjVolume *v;
    GThread *thread;
    VjMutex lock; /* VJ_RANK_VOLUME */
    VjCond wake, idle;
    /* guarded by lock: */
    GQueue queue;    /* Orphan: of this mount */
    GArray *earlier; /* Orphan: of earlier mounts, from the end */
    GArray *failed;  /* Orphan: to be tried again at retry_us */
    int64_t retry_us, retry_pause_us;
    bool again;     /* a caller wants what failed to be tried now */
    unsigned hurry; /* how many wait: no pause for company */
    bool busy, stop;
};

/* ---- dropping ---------------------------------------------------------------------- */

typedef struct Drop {
    Orphan orphan; /* what this transaction drops from; the body may run again */
    /* out: */
    uint32_t left_node; /* the root of what is left of a tree */
    uint32_t fragments; /* that were dropped */
    uint32_t entries;   /* of maps and attributes that were */
    bool more;          /* another transaction is needed */
} Drop;

static int drop_entries(VjTxn *txn, uint64_t ino, VjMapRoot *root, Drop *d)
{
    g_autoptr(GArray) removed = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    int r = vj_map_drop(txn, ino, root, VJ_FILE_DROP_BATCH, removed);

    d->entries += removed->len;
    for (guint i = 0; r == 0 && i < removed->len; i++) {
        const VjEntry *e = &g_array_index(removed, VjEntry, i);

        r = vj_entry_drop(txn, ino, e);
        d->fragments += e->kind == VJ_ENTRY_FRAGMENT;
    }
    return r;
}

/* Up to XATTR_BATCH attributes; *more when there are others left. */
static int drop_xattrs(VjTxn *txn, uint64_t ino, Drop *d, bool *more)
{
    uint8_t prefix[8];
    VjScan scan;

    *more = false;
    vj_scan_begin(&scan, txn, VJ_SPACE_XATTR, vj_ino_key(ino, prefix));
    for (unsigned i = 0; vj_scan_next(&scan); i++) {
        int r;

        if (i == XATTR_BATCH) {
            *more = true;
            return 0;
        }
        r = vj_txn_del(txn, VJ_SPACE_XATTR, scan.key);
        if (r < 0) {
            return r;
        }
        d->entries++;
    }
    return scan.error;
}

static int drop_inode(VjTxn *txn, Drop *d)
{
    VjInode inode;
    bool more;
    int r = vj_inode_get(txn, d->orphan.ino, &inode);

    if (r < 0) {
        return r;
    }
    if (inode.nlink != 0) { /* has a name again */
        return vj_orphan_del(txn, d->orphan.ino);
    }
    if (inode.content == VJ_CONTENT_MAP) {
        r = drop_entries(txn, d->orphan.ino, &inode.root, d);
    } else if (inode.content == VJ_CONTENT_INLINE) {
        r = vj_inline_del(txn, d->orphan.ino);
    }
    if (r < 0) {
        return r;
    }
    r = drop_xattrs(txn, d->orphan.ino, d, &more);
    if (r < 0) {
        return r;
    }
    if (inode.root.node != 0 || more) {
        d->more = true;
        if (inode.root.node == 0) {
            inode.content = VJ_CONTENT_EMPTY;
        }
        inode.size = inode.root.bytes;
        inode.stored_bytes = inode.root.stored_bytes;
        inode.map_version++;
        return vj_inode_put(txn, &inode);
    }
    r = vj_inode_del(txn, d->orphan.ino);
    return r < 0 ? r : vj_orphan_del(txn, d->orphan.ino);
}

static int drop_tree(VjTxn *txn, Drop *d)
{
    uint8_t key[VJ_ORPHAN_KEY_BYTES];
    VjSlice value, k = vj_orphan_key(d->orphan.ino, d->orphan.node, key);
    VjOrphan orphan;
    int r = vj_txn_get(txn, VJ_SPACE_ORPHAN, k, &value);

    if (r == 0) {
        r = vj_orphan_decode(k, value, &orphan);
    }
    if (r < 0) {
        return r;
    }
    r = drop_entries(txn, orphan.ino, &orphan.root, d);
    if (r < 0) {
        return r;
    }
    r = vj_txn_del(txn, VJ_SPACE_ORPHAN, k);
    if (r == 0 && orphan.root.node != 0) {
        d->more = true;
        d->left_node = orphan.root.node;
        r = vj_orphan_put_tree(txn, orphan.ino, &orphan.root);
    }
    return r;
}

/* *is_theirs: it is of another session that lives, or became so. */
static int look_whose(VjTxn *txn, VjSlice key, VjSlice value, bool *is_theirs)
{
    bool ended = false;
    VjOrphan orphan;
    int r;

    *is_theirs = false;
    if (!vj_meta_is_shared(txn->meta)) {
        return 0;
    }
    r = vj_orphan_decode(key, value, &orphan);
    if (r == 0 && orphan.session != vj_meta_session(txn->meta)) {
        r = vj_session_has_ended(txn, orphan.session, &ended);
        *is_theirs = r == 0 && !ended;
    }
    return r;
}

static int drop_body(VjTxn *txn, void *opaque)
{
    Drop *d = opaque;
    uint8_t bytes[VJ_ORPHAN_KEY_BYTES];
    VjSlice key = vj_orphan_key(d->orphan.ino, d->orphan.node, bytes), value;
    bool is_theirs = false;
    int r = vj_txn_get(txn, VJ_SPACE_ORPHAN, key, &value);

    d->more = false;
    d->left_node = 0;
    d->fragments = d->entries = 0;
    if (r == -ENOENT) {
        return 0; /* done before, or it has a name again */
    }
    if (r == 0) {
        r = look_whose(txn, key, value, &is_theirs);
    }
    if (r < 0 || is_theirs) {
        return r;
    }
    return d->orphan.node == 0 ? drop_inode(txn, d) : drop_tree(txn, d);
}

/* What is changed in it and not written back goes. */
static void discard(VjVolume *v, const Orphan *orphan)
{
    if (orphan->node == 0) {
        vj_file_discard_ino(v->files, orphan->ino);
    }
}

/* After the commit. */
static void dropped(VjVolume *v, Drop *d)
{
    if (d->fragments > 0) {
        vj_file_fragments_dropped(v->files, d->orphan.ino, d->fragments);
    }
    d->orphan.node = d->left_node;
}

/* @d: what is left of an orphan, or all of it. */
static int drop(VjVolume *v, Drop *d)
{
    while (d->more) {
        int r = vj_meta_run(v->meta, VJ_RUN_RELEASE | VJ_RUN_BACKGROUND, drop_body, d);

        if (r < 0) {
            vj_log_error("inode %" G_GUINT64_FORMAT
                         ": what it held cannot be dropped now: %s",
                         d->orphan.ino, g_strerror(-r));
            return r;
        }
        dropped(v, d);
        vj_objects_kick(v->objects);
    }
    return 0;
}

/* Orphans of one transaction. */
typedef struct Together {
    Drop drops[TOGETHER_MAX];
    unsigned count;
    unsigned done; /* out: the others are more than one transaction has */
} Together;

static int together_body(VjTxn *txn, void *opaque)
{
    Together *t = opaque;
    uint32_t entries = 0;

    for (t->done = 0; t->done < t->count && entries < VJ_FILE_DROP_BATCH; t->done++) {
        int r = drop_body(txn, &t->drops[t->done]);

        if (r < 0) {
            return r;
        }
        entries += t->drops[t->done].entries;
    }
    return 0;
}

/* Where one of them cannot be dropped each is tried by itself. */
static void drop_together(VjVolume *v, Together *t)
{
    for (unsigned i = 0; i < t->count; i++) {
        t->drops[i].more = true;
        discard(v, &t->drops[i].orphan);
    }
    if (t->count == 1 ||
        vj_meta_run(v->meta, VJ_RUN_RELEASE | VJ_RUN_BACKGROUND, together_body, t) < 0) {
        for (unsigned i = 0; i < t->count; i++) {
            t->drops[i].more = true;
        }
        return;
    }
    for (unsigned i = 0; i < t->done; i++) {
        dropped(v, &t->drops[i]);
    }
    for (unsigned i = t->done; i < t->count; i++) {
        t->drops[i].more = true;
    }
    vj_objects_kick(v->objects);
}

/* It failed, and may succeed another time.  What is damaged is left to the check, and a
 * session that was shut out has no more of them. */
static bool is_worth_a_try(int r)
{
    return r < 0 && r != -EBADMSG && r != -EROFS && r != -ESTALE;
}

/* ---- the thread -------------------------------------------------------------------- */

/* What is to be dropped next, this mount's first: a writer may wait for its space.
 * False: there is nothing yet. */
static bool next_locked(VjOrphanPurge *d, Orphan *out) VJ_REQUIRES(d->lock)
{
    Orphan *o = g_queue_pop_head(&d->queue);

    if (o == NULL && d->earlier->len == 0) {
        if (d->failed->len > 0 && (d->again || vj_clock_mono_us() >= d->retry_us)) {
            GArray *empty = d->earlier;

            d->earlier = d->failed;
            d->failed = empty;
        }
        d->again = false;
    }
    if (o != NULL) {
        *out = *o;
        g_free(o);
        return true;
    }
    if (d->earlier->len == 0) {
        return false;
    }
    *out = g_array_index(d->earlier, Orphan, d->earlier->len - 1);
    g_array_set_size(d->earlier, d->earlier->len - 1);
    return true;
}

static bool next_few_locked(VjOrphanPurge *d, Together *out) VJ_REQUIRES(d->lock)
{
    Orphan o;

    out->count = 0;
    while (out->count < TOGETHER_MAX && next_locked(d, &o)) {
        out->drops[out->count++] = (Drop){.orphan = o};
    }
    return out->count > 0;
}

static bool is_hurried(VjOrphanPurge *d) VJ_REQUIRES(d->lock)
{
    return d->hurry > 0 || d->stop || d->again ||
           g_queue_get_length(&d->queue) >= COMPANY_MAX;
}

static void wait_locked(VjOrphanPurge *d) VJ_REQUIRES(d->lock)
{
    int64_t until_us;

    d->busy = false;
    vj_cond_broadcast(&d->idle);
    if (d->failed->len > 0) {
        (void)vj_cond_wait_until(&d->wake, &d->lock, d->retry_us);
    } else {
        d->retry_pause_us = 0;
        vj_cond_wait(&d->wake, &d->lock);
    }
    until_us = vj_clock_mono_us() + COMPANY_US;
    while (!g_queue_is_empty(&d->queue) && !is_hurried(d) &&
           vj_cond_wait_until(&d->wake, &d->lock, until_us)) {
    }
}

static void failed_locked(VjOrphanPurge *d, const Orphan *o) VJ_REQUIRES(d->lock)
{
    if (d->failed->len == 0) {
        d->retry_pause_us = d->retry_pause_us == 0
                                ? d->v->drop_retry_us
                                : MIN(2 * d->retry_pause_us, RETRY_MAX_US);
        d->retry_us = vj_clock_mono_us() + d->retry_pause_us;
    }
    if (d->failed->len < EARLIER_MAX) {
        g_array_append_vals(d->failed, o, 1);
    }
}

static gpointer purge_main(gpointer opaque)
{
    VjOrphanPurge *d = opaque;
    g_autofree Together *t = g_new(Together, 1);

    vj_mutex_lock(&d->lock);
    while (!d->stop) {
        if (!next_few_locked(d, t)) {
            wait_locked(d);
            continue;
        }
        d->busy = true;
        vj_cond_broadcast(&d->idle);
        vj_mutex_unlock(&d->lock);
        drop_together(d->v, t);
        vj_mutex_lock(&d->lock);
        for (unsigned i = 0; i < t->count && !d->stop; i++) {
            Drop *left = &t->drops[i];
            int r;

            if (!left->more) {
                continue;
            }
            vj_mutex_unlock(&d->lock);
            r = drop(d->v, left);
            vj_mutex_lock(&d->lock);
            if (is_worth_a_try(r)) {
                failed_locked(d, &left->orphan);
            }
        }
    }
    d->busy = false;
    vj_cond_broadcast(&d->idle);
    vj_mutex_unlock(&d->lock);
    return NULL;
}

void vj_orphan_purge_add(VjOrphanPurge *d, uint64_t ino, uint32_t node)
{
    Orphan *o = g_new(Orphan, 1);

    *o = (Orphan){.ino = ino, .node = node};
    vj_mutex_lock(&d->lock);
    /* The thread itself may close the last file of an inode. */
    while (g_queue_get_length(&d->queue) >= QUEUE_MAX && !d->stop &&
           g_thread_self() != d->thread) {
        if (vj_cond_wait_or_cancel(&d->idle, &d->lock, INT64_MAX) == -ECANCELED) {
            break; /* above QUEUE_MAX by one for each caller that was killed here */
        }
    }
    g_queue_push_tail(&d->queue, o);
    if (g_queue_get_length(&d->queue) == 1 ||
        g_queue_get_length(&d->queue) == COMPANY_MAX) {
        vj_cond_signal(&d->wake);
    }
    vj_mutex_unlock(&d->lock);
}

void vj_orphan_purge_drain(VjOrphanPurge *d)
{
    vj_mutex_lock(&d->lock);
    d->again = d->again || d->failed->len > 0;
    d->hurry++;
    vj_cond_signal(&d->wake);
    while (!d->stop &&
           (d->busy || !g_queue_is_empty(&d->queue) || d->earlier->len > 0 || d->again)) {
        vj_cond_wait(&d->idle, &d->lock);
    }
    d->hurry--;
    vj_mutex_unlock(&d->lock);
}

/* Orphans, a batch each, whose session has ended, or is a certain one. */
typedef struct Batch {
    uint64_t of_session;                /* 0: of each that has ended */
    uint8_t after[VJ_ORPHAN_KEY_BYTES]; /* the last one of the batch before */
    size_t after_bytes;                 /* 0: it is the first batch */
    GArray *orphans;                    /* Orphan */
    uint8_t last[VJ_ORPHAN_KEY_BYTES];  /* of this batch */
    bool more;
} Batch;

/* Records that one view looks at. */
#define BATCH_SEEN_MAX 10000u

static int is_wanted(VjTxn *txn, const Batch *b, const VjOrphan *orphan, bool *wanted)
{
    *wanted = orphan->session == b->of_session;
    return b->of_session != 0 ? 0 : vj_session_has_ended(txn, orphan->session, wanted);
}

static int batch_body(VjTxn *txn, void *opaque)
{
    Batch *b = opaque;
    unsigned seen = 0;
    VjScan scan;

    g_array_set_size(b->orphans, 0);
    b->more = false;
    vj_scan_begin(&scan, txn, VJ_SPACE_ORPHAN, VJ_SCAN_ALL);
    vj_scan_behind(&scan, vj_slice(b->after, b->after_bytes));
    while (!b->more && vj_scan_next(&scan)) {
        VjOrphan orphan;
        bool wanted = false;

        if (scan.key.len != sizeof b->last) {
            return -EBADMSG;
        }
        memcpy(b->last, scan.key.data, sizeof b->last);
        if (vj_orphan_decode(scan.key, scan.value, &orphan) == 0) {
            int r = is_wanted(txn, b, &orphan, &wanted);

            if (r < 0) {
                return r;
            }
        } else {
            vj_log_error("an orphan record is damaged: fsck.varjfs tells more");
        }
        if (wanted) {
            Orphan o = {.ino = orphan.ino, .node = orphan.root.node};

            g_array_append_val(b->orphans, o);
        }
        b->more = b->orphans->len == VJ_FILE_DROP_BATCH || ++seen == BATCH_SEEN_MAX;
    }
    return scan.error;
}

/* False: there is no other batch, or *rc. */
static bool next_batch(VjVolume *v, Batch *b, int *rc)
{
    if (!b->more) {
        *rc = 0;
        return false;
    }
    *rc = vj_meta_view(v->meta, batch_body, b);
    memcpy(b->after, b->last, sizeof b->after);
    b->after_bytes = sizeof b->after;
    return *rc == 0;
}

/*
 * Every orphan of sessions that have ended: no program has them open.  The thread is not
 * there yet, and the mount does not wait for any of them to be dropped.
 */
static int list_earlier(VjOrphanPurge *d)
{
    g_autoptr(GArray) orphans = g_array_new(FALSE, FALSE, sizeof(Orphan));
    Batch b = {.orphans = orphans, .more = true};
    int r;

    while (next_batch(d->v, &b, &r)) {
        for (guint i = 0; i < orphans->len; i++) {
            const Orphan *o = &g_array_index(orphans, Orphan, i);

            if (o->node == 0 && d->v->inodes_at_open > 0) {
                d->v->inodes_at_open--;
            }
        }
        g_array_append_vals(d->earlier, orphans->data, orphans->len);
        if (b.more && d->earlier->len >= EARLIER_MAX) {
            vj_log_warn("more than %u removals wait from earlier mounts: the next mount "
                        "has the rest",
                        EARLIER_MAX);
            return 0;
        }
    }
    return r;
}

int vj_orphan_purge_session(VjOrphanPurge *d, uint64_t session)
{
    g_autoptr(GArray) orphans = g_array_new(FALSE, FALSE, sizeof(Orphan));
    Batch b = {.of_session = session, .orphans = orphans, .more = true};
    int first = 0, r;

    while (next_batch(d->v, &b, &r)) {
        for (guint i = 0; i < orphans->len; i++) {
            Drop whole = {.orphan = g_array_index(orphans, Orphan, i), .more = true};
            int one;

            discard(d->v, &whole.orphan);
            one = drop(d->v, &whole);

            first = first == 0 ? one : first;
        }
    }
    return r < 0 ? r : first;
}

bool vj_orphan_purge_open(VjVolume *v, VjOrphanPurge **out, GError **error)
{
    VjOrphanPurge *d = g_new0(VjOrphanPurge, 1);
    int r;

    *out = NULL;
    d->v = v;
    g_queue_init(&d->queue);
    vj_mutex_init(&d->lock, VJ_RANK_VOLUME, "volume.orphan-purge");
    vj_cond_init(&d->wake);
    vj_cond_init(&d->idle);
    d->earlier = g_array_new(FALSE, FALSE, sizeof(Orphan));
    d->failed = g_array_new(FALSE, FALSE, sizeof(Orphan));
    r = list_earlier(d);
    if (r < 0) {
        vj_orphan_purge_close(d);
        return vj_error_set_errno(error, -r, "orphans of the last mount");
    }
    *out = d;
    return true;
}

void vj_orphan_purge_start(VjOrphanPurge *d)
{
    d->thread = g_thread_new("varjfs-purge", purge_main, d);
}

void vj_orphan_purge_close(VjOrphanPurge *d)
{
    if (d == NULL) {
        return;
    }
    vj_mutex_lock(&d->lock);
    d->stop = true;
    vj_cond_broadcast(&d->wake);
    vj_cond_broadcast(&d->idle);
    vj_mutex_unlock(&d->lock);
    if (d->thread != NULL) {
        g_thread_join(d->thread);
    }
    g_queue_clear_full(&d->queue, g_free); /* their records wait for the next mount */
    g_array_unref(d->earlier);
    g_array_unref(d->failed);
    vj_cond_clear(&d->idle);
    vj_cond_clear(&d->wake);
    vj_mutex_clear(&d->lock);
    g_free(d);
}
