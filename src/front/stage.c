/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * stage.c - edits that are announced and not yet carried out
 *
 * An edit is staged by an ioctl and carried out by the next call of the same thread on
 * the same descriptor.  That call has no room for more than two numbers, so it names the
 * edit by them:
 *
 *   fallocate(KEEP_SIZE) at, ftruncate to  VJ_STAGED_BASE + token: no file is as
 *                                          long, and where no such edit is
 *                                          staged, nothing happens
 *   fallocate(0) up to the size after it   the kernel takes that number for the
 *                                          size, so the length names the edit,
 *                                          among those of the caller
 *
 * A staged edit is never forgotten while its thread may call: the call would be a plain
 * one then.  Those of threads that have ended go when the room is needed.
 */
#include "front/front-private.h"

#include "varjfs/ioctl.h"

#include <fcntl.h>
#include <signal.h>

/* Edits that are staged at one time, of all, of one user and of one handle; 16 KiB each
 * at most. */
#define STAGED_MAX 4096u
#define STAGED_UID_MAX (STAGED_MAX / 4)
#define STAGED_HANDLE_MAX 512u

struct VjStagedEdits {
    VjMutex lock; /* VJ_RANK_FRONT */
    /* guarded by lock: */
    GHashTable *handles; /* VjHandle → GQueue of VjStaged, owned */
    GHashTable *shares;  /* uid → how many are its; none: 0 */
    uint64_t last_token;
    unsigned count;
};

VjStaged *vj_staged_new(const void *src, size_t len)
{
    VjStaged *s = g_malloc(sizeof *s + len);

    memset(s, 0, sizeof *s);
    s->copied = len;
    if (len > 0) {
        memcpy(s->bytes, src, len);
    }
    return s;
}

VjStaged *vj_staged_of_size(VjHandle *h, uint64_t ino, uint64_t size)
{
    const unsigned len_bits = VARJFS_DELETE_SIZE_LEN_BITS,
                   bits = len_bits + VARJFS_DELETE_SIZE_OFFSET_BITS;
    uint64_t rest = size & ((UINT64_C(1) << bits) - 1);
    VjStaged *s;

    if (size - rest != VARJFS_DELETE_SIZE_MARK) {
        return NULL;
    }
    s = vj_staged_new(NULL, 0);
    s->handle = h;
    s->ino = ino;
    s->edit.offset = rest >> len_bits;
    s->edit.old_len = (rest & ((UINT64_C(1) << len_bits) - 1)) + 1;
    s->any_size = s->is_single = true;
    s->carry.call = VARJFS_CARRY_FTRUNCATE;
    return s;
}

void vj_staged_free(VjStaged *s)
{
    if (s != NULL) {
        vj_buf_unref(s->data);
        g_free(s);
    }
}

static void queue_free(gpointer data)
{
    GQueue *queue = data;

    g_queue_free_full(queue, (GDestroyNotify)vj_staged_free);
}

static unsigned share_of(VjStagedEdits *e, uid_t uid) VJ_REQUIRES(e->lock)
{
    return GPOINTER_TO_UINT(g_hash_table_lookup(e->shares, GUINT_TO_POINTER(uid)));
}

/* One edit of @uid more, or less. */
static void count_locked(VjStagedEdits *e, uid_t uid, int change) VJ_REQUIRES(e->lock)
{
    unsigned share = share_of(e, uid) + (unsigned)change;

    e->count += (unsigned)change;
    if (share == 0) {
        g_hash_table_remove(e->shares, GUINT_TO_POINTER(uid));
    } else {
        g_hash_table_insert(e->shares, GUINT_TO_POINTER(uid), GUINT_TO_POINTER(share));
    }
}

VjStagedEdits *vj_staged_edits_new(void)
{
    VjStagedEdits *e = g_new0(VjStagedEdits, 1);

    vj_mutex_init(&e->lock, VJ_RANK_FRONT, "front staged edits");
    e->handles = g_hash_table_new_full(NULL, NULL, NULL, queue_free);
    e->shares = g_hash_table_new(NULL, NULL);
    return e;
}

void vj_staged_edits_free(VjStagedEdits *e)
{
    if (e != NULL) {
        g_hash_table_unref(e->handles);
        g_hash_table_unref(e->shares);
        vj_mutex_clear(&e->lock);
        g_free(e);
    }
}

/* What thread @tid has staged before; one of another pid namespace has no number. */
static VjStaged *find_thread(GQueue *queue, pid_t tid)
{
    for (GList *l = queue != NULL && tid != 0 ? queue->head : NULL; l != NULL;
         l = l->next) {
        VjStaged *s = l->data;

        if (s->tid == tid) {
            return s;
        }
    }
    return NULL;
}

static void remove_locked(VjStagedEdits *e, GQueue *queue, VjStaged *s)
    VJ_REQUIRES(e->lock)
{
    g_queue_remove(queue, s);
    count_locked(e, s->uid, -1);
    if (g_queue_is_empty(queue)) {
        g_hash_table_remove(e->handles, s->handle);
    }
}

static void add_locked(VjStagedEdits *e, VjStaged *s) VJ_REQUIRES(e->lock)
{
    GQueue *queue = g_hash_table_lookup(e->handles, s->handle);

    if (queue == NULL) {
        queue = g_queue_new();
        g_hash_table_insert(e->handles, s->handle, queue);
    }
    g_queue_push_tail(queue, s);
    count_locked(e, s->uid, 1);
}

/* No room for @s. */
static bool is_full(VjStagedEdits *e, const VjStaged *s) VJ_REQUIRES(e->lock)
{
    GQueue *queue = g_hash_table_lookup(e->handles, s->handle);

    return e->count >= STAGED_MAX || share_of(e, s->uid) >= STAGED_UID_MAX ||
           (queue != NULL && g_queue_get_length(queue) >= STAGED_HANDLE_MAX);
}

/* Whether a thread without a number has ended cannot be found out: its descriptor's end
 * counts. */
static bool is_abandoned(const VjStaged *s)
{
    return s->tid != 0 && kill(s->tid, 0) != 0 && errno == ESRCH;
}

/* Edits that no thread can carry out any more and that are in the way of @s go to @out.
 * Only where it is full: a system call for each edit that is looked at. */
static void collect_abandoned(VjStagedEdits *e, const VjStaged *s, GQueue *out)
    VJ_REQUIRES(e->lock)
{
    bool all = e->count >= STAGED_MAX;
    GHashTableIter iter;
    gpointer queue;

    g_hash_table_iter_init(&iter, e->handles);
    while (g_hash_table_iter_next(&iter, NULL, &queue)) {
        for (GList *l = ((GQueue *)queue)->head, *next; l != NULL; l = next) {
            VjStaged *t = l->data;

            next = l->next;
            if ((all || t->uid == s->uid || t->handle == s->handle) && is_abandoned(t)) {
                g_queue_delete_link(queue, l);
                count_locked(e, t->uid, -1);
                g_queue_push_tail(out, t);
            }
        }
        if (g_queue_is_empty(queue)) {
            g_hash_table_iter_remove(&iter);
        }
    }
}

/* The call that will name @s. */
static void name_call(VjStaged *s)
{
    switch (s->carry.call) {
    case VARJFS_CARRY_FTRUNCATE:
    case VARJFS_CARRY_FALLOCATE_FTRUNCATE:
        s->carry.offset = s->carry.len = VJ_STAGED_BASE + s->token;
        break;
    case VARJFS_CARRY_FALLOCATE:
    case VARJFS_CARRY_FALLOCATE_SEEK:
        if (s->carry.mode == 0) {
            s->carry.len = 1 + s->token % s->size;
            s->carry.offset = s->size - s->carry.len;
        } else {
            s->carry.offset = VJ_STAGED_BASE + s->token;
            s->carry.len = 1;
        }
        break;
    default:
        g_assert_not_reached();
    }
}

/* Whether another edit of a thread without a number has the name of @s, whose length it
 * is: each would carry out the other's. */
static bool is_name_taken(const GQueue *queue, const VjStaged *s)
{
    for (const GList *l = queue != NULL && s->tid == 0 && s->carry.mode == 0 ? queue->head
                                                                             : NULL;
         l != NULL; l = l->next) {
        const VjStaged *t = l->data;

        if (t->tid == 0 && t->carry.mode == 0 && t->carry.offset == s->carry.offset &&
            t->carry.len == s->carry.len) {
            return true;
        }
    }
    return false;
}

/* The lengths of tokens in a row differ, as long as the size has others. */
static bool find_name(VjStagedEdits *e, VjStaged *s) VJ_REQUIRES(e->lock)
{
    const GQueue *queue = g_hash_table_lookup(e->handles, s->handle);
    guint others = queue != NULL ? queue->length : 0;

    for (guint i = 0; i <= others; i++) {
        s->token = ++e->last_token;
        name_call(s);
        if (!is_name_taken(queue, s)) {
            return true;
        }
    }
    return false;
}

int vj_stage_put(VjStagedEdits *e, VjStaged *s, struct varjfs_carry *out)
{
    GQueue gone = G_QUEUE_INIT;
    VjStaged *before;
    GQueue *queue;
    int r = 0;

    vj_mutex_lock(&e->lock);
    queue = g_hash_table_lookup(e->handles, s->handle);
    before = find_thread(queue, s->tid);
    if (before != NULL) {
        remove_locked(e, queue, before);
        g_queue_push_tail(&gone, before);
    }
    if (is_full(e, s)) {
        collect_abandoned(e, s, &gone);
    }
    if (is_full(e, s)) {
        r = -ENOMEM;
    } else if (!find_name(e, s)) {
        r = -EAGAIN;
    } else {
        *out = s->carry;
        add_locked(e, s);
    }
    vj_mutex_unlock(&e->lock);
    g_queue_clear_full(&gone, (GDestroyNotify)vj_staged_free);
    if (r < 0) {
        vj_staged_free(s);
    }
    return r;
}

/* Takes out the edit of @h that @is_it says yes to. */
static VjStaged *take(VjStagedEdits *e, VjHandle *h,
                      bool (*is_it)(const VjStaged *s, const VjStaged *wanted),
                      const VjStaged *wanted)
{
    VjStaged *found = NULL;
    GQueue *queue;

    vj_mutex_lock(&e->lock);
    queue = g_hash_table_lookup(e->handles, h);
    for (GList *l = queue != NULL ? queue->head : NULL; l != NULL && found == NULL;
         l = l->next) {
        if (is_it(l->data, wanted)) {
            found = l->data;
        }
    }
    if (found != NULL) {
        remove_locked(e, queue, found);
    }
    vj_mutex_unlock(&e->lock);
    return found;
}

static bool is_fallocate(const VjStaged *s, const VjStaged *wanted)
{
    uint64_t len = s->carry.call == VARJFS_CARRY_FALLOCATE_FTRUNCATE ? 1 : s->carry.len;

    return !s->is_done && s->carry.call != VARJFS_CARRY_FTRUNCATE &&
           s->carry.mode == wanted->carry.mode &&
           s->carry.offset == wanted->carry.offset && len == wanted->carry.len &&
           s->tid == wanted->tid;
}

VjStaged *vj_stage_take_fallocate(VjStagedEdits *e, VjHandle *h, pid_t tid, int mode,
                                  uint64_t offset, uint64_t len)
{
    VjStaged wanted = {.tid = tid,
                       .carry = {.mode = (uint32_t)mode, .offset = offset, .len = len}};

    return take(e, h, is_fallocate, &wanted);
}

static bool is_ftruncate(const VjStaged *s, const VjStaged *wanted)
{
    return !s->is_done &&
           (s->carry.call == VARJFS_CARRY_FTRUNCATE ||
            s->carry.call == VARJFS_CARRY_FALLOCATE_FTRUNCATE) &&
           s->carry.len == wanted->carry.len && s->tid == wanted->tid;
}

VjStaged *vj_stage_take_ftruncate(VjStagedEdits *e, VjHandle *h, pid_t tid, uint64_t size)
{
    VjStaged wanted = {.tid = tid, .carry = {.len = size}};

    return take(e, h, is_ftruncate, &wanted);
}

/* Without a number: nothing that another thread may be about to carry out. */
static bool is_of_thread(const VjStaged *s, const VjStaged *wanted)
{
    return s->tid == wanted->tid && (s->tid != 0 || s->is_done);
}

VjStaged *vj_stage_take_any(VjStagedEdits *e, VjHandle *h, pid_t tid)
{
    VjStaged wanted = {.tid = tid};

    return take(e, h, is_of_thread, &wanted);
}

void vj_stage_put_back(VjStagedEdits *e, VjStaged *s)
{
    vj_mutex_lock(&e->lock);
    add_locked(e, s);
    vj_mutex_unlock(&e->lock);
}

void vj_stage_keep_result(VjStagedEdits *e, VjStaged *s, uint64_t at)
{
    s->is_done = true;
    s->edit.offset = at;
    g_clear_pointer(&s->data, vj_buf_unref);
    vj_stage_put_back(e, s);
}

void vj_stage_forget_handle(VjStagedEdits *e, VjHandle *h)
{
    GQueue *queue;

    vj_mutex_lock(&e->lock);
    queue = g_hash_table_lookup(e->handles, h);
    for (GList *l = queue != NULL ? queue->head : NULL; l != NULL; l = l->next) {
        count_locked(e, ((VjStaged *)l->data)->uid, -1);
    }
    g_hash_table_steal(e->handles, h);
    vj_mutex_unlock(&e->lock);
    if (queue != NULL) {
        queue_free(queue);
    }
}
