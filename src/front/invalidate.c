/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * invalidate.c - what other sessions of a shared volume change leaves the kernel's caches
 *
 * So does what a call changed that failed while it waited until the change is safe
 * (vj_front_doubt_name): the kernel takes it for not done.
 *
 * The callback for a change (vj_fs_listen) may not block; a notification waits for pages
 * that are being written back, and for operations in a directory that requests belong to.
 * So changes wait in a queue for one thread, which serves no requests.
 *
 * One that waits already is not queued again.  Beyond VJ_INVALIDATE_MAX all of them give
 * way to one: everything that the kernel knows.  There is no call that makes it forget
 * all names, and the daemon does not know which it has: these it believes for
 * VJ_FRONT_SHARED_TIMEOUT_S at most.
 */
#include "front/front-private.h"

typedef struct Change {
    uint64_t ino;    /* of a name: its directory */
    bool content;    /* of an inode: its pages, too */
    uint16_t length; /* of the name; 0: it is the inode */
    char name[];     /* with a NUL */
} Change;

struct VjInvalidator {
    const VjInvalidateCalls *calls;
    void *opaque;
    GThread *thread;
    VjMutex lock; /* VJ_RANK_FRONT */
    VjCond wake;
    /* guarded by lock: */
    GQueue queue;        /* of Change */
    GHashTable *waiting; /* Change → itself, of those in the queue */
    bool all, stop;
};

static guint change_hash(gconstpointer key)
{
    const Change *c = key;

    return (guint)(c->ino * 31 + (c->length > 0 ? g_str_hash(c->name) : 0));
}

/* As far as it is the same that changed. */
static gboolean change_equal(gconstpointer a, gconstpointer b)
{
    const Change *x = a, *y = b;

    return x->ino == y->ino && x->length == y->length &&
           memcmp(x->name, y->name, x->length) == 0;
}

/* ---- what waits -------------------------------------------------------------------- */

static Change *change_new(uint64_t ino, const char *name, bool content)
{
    size_t length = name != NULL ? strlen(name) : 0;
    Change *c = g_malloc(sizeof *c + length + 1);

    g_assert(length <= UINT16_MAX);
    *c = (Change){.ino = ino, .content = content, .length = (uint16_t)length};
    memcpy(c->name, name != NULL ? name : "", length + 1);
    return c;
}

static void forget_queue(VjInvalidator *i) VJ_REQUIRES(i->lock)
{
    g_hash_table_remove_all(i->waiting);
    g_queue_clear_full(&i->queue, g_free);
}

/* Takes @c. */
static void add(VjInvalidator *i, Change *c)
{
    Change *same;

    vj_mutex_lock(&i->lock);
    same = g_hash_table_lookup(i->waiting, c);
    if (same != NULL) {
        same->content = same->content || c->content;
    } else if (!i->all && i->queue.length == VJ_INVALIDATE_MAX) {
        forget_queue(i);
        i->all = true;
        vj_cond_signal(&i->wake);
    } else if (!i->all) {
        g_hash_table_add(i->waiting, c);
        g_queue_push_tail(&i->queue, c);
        vj_cond_signal(&i->wake);
        c = NULL;
    }
    vj_mutex_unlock(&i->lock);
    g_free(c);
}

void vj_invalidate_inode(VjInvalidator *i, uint64_t ino, bool content)
{
    add(i, change_new(ino, NULL, content));
}

void vj_invalidate_name(VjInvalidator *i, uint64_t dir, const char *name)
{
    if (name[0] != '\0') {
        add(i, change_new(dir, name, false));
    }
}

void vj_invalidate_all(VjInvalidator *i)
{
    vj_mutex_lock(&i->lock);
    forget_queue(i);
    i->all = true;
    vj_cond_signal(&i->wake);
    vj_mutex_unlock(&i->lock);
}

/* ---- the thread -------------------------------------------------------------------- */

static void tell(VjInvalidator *i, const Change *c)
{
    if (c == NULL) {
        i->calls->all(i->opaque);
    } else if (c->length > 0) {
        i->calls->name(i->opaque, c->ino, c->name);
    } else {
        i->calls->inode(i->opaque, c->ino, c->content);
    }
}

static gpointer invalidator_main(gpointer opaque)
{
    VjInvalidator *i = opaque;

    vj_mutex_lock(&i->lock);
    while (!i->stop) {
        Change *c = g_queue_pop_head(&i->queue);

        if (c == NULL && !i->all) {
            vj_cond_wait(&i->wake, &i->lock);
            continue;
        }
        if (c != NULL) {
            g_hash_table_remove(i->waiting, c);
        }
        i->all = i->all && c != NULL;
        vj_mutex_unlock(&i->lock);
        tell(i, c);
        g_free(c);
        vj_mutex_lock(&i->lock);
    }
    vj_mutex_unlock(&i->lock);
    return NULL;
}

VjInvalidator *vj_invalidator_new(const VjInvalidateCalls *calls, void *opaque)
{
    VjInvalidator *i = g_new0(VjInvalidator, 1);

    i->calls = calls;
    i->opaque = opaque;
    vj_mutex_init(&i->lock, VJ_RANK_FRONT, "front.invalidate");
    vj_cond_init(&i->wake);
    g_queue_init(&i->queue);
    i->waiting = g_hash_table_new(change_hash, change_equal);
    i->thread = g_thread_new("varjfs-inval", invalidator_main, i);
    return i;
}

void vj_invalidator_stop(VjInvalidator *i)
{
    if (i == NULL || i->thread == NULL) {
        return;
    }
    vj_mutex_lock(&i->lock);
    i->stop = true;
    vj_cond_signal(&i->wake);
    vj_mutex_unlock(&i->lock);
    g_thread_join(g_steal_pointer(&i->thread));
}

void vj_invalidator_free(VjInvalidator *i)
{
    if (i == NULL) {
        return;
    }
    g_assert(i->thread == NULL);
    g_queue_clear_full(&i->queue, g_free);
    g_hash_table_unref(i->waiting);
    vj_cond_clear(&i->wake);
    vj_mutex_clear(&i->lock);
    g_free(i);
}
