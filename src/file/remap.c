/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remap.c - fragments become objects in the background
 *
 * One thread takes the file whose fragments have not changed for longest: when they have
 * not for VJ_REMAP_IDLE_US, or at once when a file or the volume has half of what it may
 * have.  It works in steps, each a round of write-back and a commit of its own, and goes
 * on where it stopped.
 *
 * In a shared session each makes objects of the fragments that it knows of, which is what
 * it made itself and what there was when it was opened; another one may have done so
 * meanwhile, or may have the file open.
 */
#include "file/remap-private.h"

/* ---- one file ---------------------------------------------------------------------- */

static int step_of(VjFileTable *table, uint64_t ino, VjRemap *step)
{
    g_autoptr(VjFile) f = NULL;
    int r = vj_file_open_quietly(table, ino, &f);

    if (r == 0) {
        r = vj_file_remap(f, step);
    }
    if (r == 0) {
        vj_count(&table->counters.remap_steps, 1);
    }
    return r;
}

/* The inode is not there, or is in the hands of another session. */
static bool is_out_of_reach(int r)
{
    return r == -ENOENT || r == -EBUSY || r == -ESTALE;
}

/* They are not there any more: another session made objects of them, or removed the
 * file. */
static void forget_locked(VjRemapper *x, VjFragmentUse *u)
{
    x->count -= u->count;
    u->count = 0;
    u->urgent = false;
}

/* Steps of a file that the thread has, as long as they are wanted.  False: nothing came
 * of it. */
static bool work(VjRemapper *x, VjFragmentUse *u) VJ_REQUIRES(x->lock)
{
    VjRemap step = {.offset = u->offset, .most_bytes = x->limits.step_bytes};
    bool from_start = u->offset == 0, found = false;
    bool was_urgent = u->urgent, wanted = true;
    uint64_t change = u->change;
    int r = 0;

    while (wanted) {
        vj_mutex_unlock(&x->lock);
        r = step_of(x->table, u->ino, &step);
        vj_mutex_lock(&x->lock);
        found = found || step.found > 0;
        u->offset = r < 0 || step.done ? 0 : step.offset;
        wanted = r == 0 && !step.done && !x->stop && u->count > 0 &&
                 (u->change == change || x->count > x->most / 2 ||
                  (was_urgent && u->count > x->limits.file_most / 4));
    }
    if (r < 0 && !is_out_of_reach(r) && r != -EROFS) {
        vj_log_warn("inode %" G_GUINT64_FORMAT
                    ": its small changes cannot be stored as objects now: %s",
                    u->ino, g_strerror(-r));
    }
    u->gone = is_out_of_reach(r);
    if (x->table->is_shared && u->change == change &&
        (r == -ENOENT || r == -ESTALE || (r == 0 && from_start && step.done && !found))) {
        forget_locked(x, u);
        return true;
    }
    return r == 0 && (found || !from_start || !step.done);
}

/* The next file, or NULL; its time may not have come. */
static VjFragmentUse *next_locked(VjRemapper *x)
{
    return g_queue_peek_head(&x->due);
}

static bool is_due_locked(const VjRemapper *x, const VjFragmentUse *u)
{
    return u->due_us <= vj_clock_mono_us() || (!u->gone && x->count > x->most / 2);
}

/* Until there may be something to do.  @rest_us: not before that; 0: as @u says. */
static void rest_locked(VjRemapper *x, const VjFragmentUse *u, int64_t rest_us)
    VJ_REQUIRES(x->lock)
{
    int64_t until_us = rest_us != 0 ? rest_us : u != NULL ? u->due_us : INT64_MAX;

    x->wakes_us = rest_us != 0 ? INT64_MIN : until_us;
    if (until_us == INT64_MAX) {
        vj_cond_wait(&x->wake, &x->lock);
    } else {
        (void)vj_cond_wait_until(&x->wake, &x->lock, until_us);
    }
    x->wakes_us = INT64_MIN;
}

static gpointer remapper_main(gpointer opaque)
{
    VjRemapper *x = opaque;
    int64_t rest_us = 0; /* after a failure: the volume may be full */

    vj_mutex_lock(&x->lock);
    while (!x->stop) {
        VjFragmentUse *u = next_locked(x);
        int64_t now_us = vj_clock_mono_us();
        bool rests = u != NULL && now_us < rest_us;

        x->looks++;
        if (u == NULL || rests || !is_due_locked(x, u)) {
            rest_locked(x, u, rests ? rest_us : 0);
        } else {
            bool went_well;

            vj_fragment_use_unqueue_locked(x, u);
            u->busy = true;
            went_well = work(x, u);
            u->busy = false;
            now_us = vj_clock_mono_us();
            if (!went_well) {
                if (!u->gone) {
                    rest_us = now_us + MIN(x->limits.idle_us, x->limits.retry_us);
                }
                vj_fragment_use_queue_locked(x, u, now_us + x->limits.retry_us);
            } else {
                vj_fragment_use_queue_locked(x, u,
                                             u->urgent ? 0 : now_us + x->limits.idle_us);
            }
            vj_fragment_use_release_locked(x, u);
        }
    }
    vj_mutex_unlock(&x->lock);
    return NULL;
}

int vj_file_table_remap(VjFileTable *table)
{
    g_autoptr(GArray) inos = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    GHashTableIter iter;
    uint64_t step_bytes;
    gpointer use;
    int r = 0;

    if (table->remapper == NULL) {
        return -EROFS;
    }
    vj_mutex_lock(&table->remapper->lock);
    step_bytes = table->remapper->limits.step_bytes;
    g_hash_table_iter_init(&iter, table->remapper->uses);
    while (g_hash_table_iter_next(&iter, NULL, &use)) {
        g_array_append_val(inos, ((VjFragmentUse *)use)->ino);
    }
    vj_mutex_unlock(&table->remapper->lock);
    for (guint i = 0; i < inos->len; i++) {
        VjRemap step = {.offset = 0, .most_bytes = step_bytes};
        int one = 0;

        while (one == 0 && !step.done) {
            one = step_of(table, g_array_index(inos, uint64_t, i), &step);
        }
        r = r == 0 && !is_out_of_reach(one) ? one : r;
    }
    return r;
}

/* ---- open and close ---------------------------------------------------------------- */

#define FRAGMENT_KEY_BYTES 12u
/* Fragments of earlier mounts that are counted out of one snapshot. */
#define EARLIER_BATCH 4096u

typedef struct Earlier {
    uint8_t after[FRAGMENT_KEY_BYTES]; /* the last one of the batch before */
    size_t after_bytes;                /* 0: it is the first batch */
    GArray *batch;                     /* uint64_t: the inode of each fragment */
    uint8_t last[FRAGMENT_KEY_BYTES];  /* of this batch */
    bool more;
} Earlier;

static int earlier_body(VjTxn *txn, void *opaque)
{
    Earlier *e = opaque;
    VjScan scan;

    g_array_set_size(e->batch, 0);
    e->more = false;
    vj_scan_begin(&scan, txn, VJ_SPACE_FRAGMENT, VJ_SCAN_ALL);
    vj_scan_behind(&scan, vj_slice(e->after, e->after_bytes));
    while (vj_scan_next(&scan)) {
        uint64_t ino;

        if (scan.key.len != sizeof e->last) {
            return 0; /* fsck.varjfs reports it */
        }
        memcpy(e->last, scan.key.data, sizeof e->last);
        ino = vj_be64_get(e->last);
        g_array_append_val(e->batch, ino);
        if (e->batch->len == EARLIER_BATCH) {
            e->more = true;
            break;
        }
    }
    return scan.error;
}

static void count_fragment(VjRemapper *x, uint64_t ino, int64_t due_us)
{
    VjFragmentUse *u = vj_fragment_use_locked(x, ino);

    u->count++;
    x->count++;
    u->urgent = u->count > x->limits.file_most / 2;
    if (u->link == NULL) {
        vj_fragment_use_queue_locked(x, u, due_us);
    }
}

/* Every fragment of earlier mounts. */
static int count_earlier(VjRemapper *x)
{
    g_autoptr(GArray) batch = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    int64_t due_us = vj_clock_mono_us() + x->limits.idle_us;
    Earlier e = {.batch = batch};
    uint64_t count = 0;
    int r = vj_meta_count(x->table->meta, VJ_SPACE_FRAGMENT, &count);

    e.more = count > 0;
    while (r == 0 && e.more) {
        r = vj_meta_view(x->table->meta, earlier_body, &e);
        for (guint i = 0; r == 0 && i < batch->len; i++) {
            count_fragment(x, g_array_index(batch, uint64_t, i), due_us);
        }
        memcpy(e.after, e.last, sizeof e.after);
        e.after_bytes = sizeof e.after;
    }
    return r;
}

bool vj_remapper_open(VjFileTable *table, uint64_t most_bytes, VjRemapper **out,
                      GError **error)
{
    uint64_t most = MIN(most_bytes / VJ_FRAGMENT_PAGE, UINT32_MAX / 2);
    VjRemapper *x = g_new0(VjRemapper, 1);
    int r;

    *out = NULL;
    x->table = table;
    x->limits = (VjRemapLimits){.most = (uint32_t)most,
                                .file_most = (uint32_t)(most / 2),
                                .idle_us = VJ_REMAP_IDLE_US,
                                .retry_us = VJ_REMAP_RETRY_US,
                                .step_bytes = VJ_REMAP_STEP_BYTES};
    x->most = x->limits.most;
    vj_mutex_init(&x->lock, VJ_RANK_FILE_QUEUE, "file.remapper");
    vj_cond_init(&x->wake);
    x->wakes_us = INT64_MIN;
    x->uses = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    g_queue_init(&x->due);
    r = count_earlier(x); /* no other thread has it yet */
    if (r < 0) {
        vj_remapper_free(x);
        return vj_error_set_errno(error, -r, "fragments of the last mount");
    }
    *out = x;
    return true;
}

void vj_remapper_start(VjRemapper *x)
{
    x->thread = g_thread_new("varjfs-remap", remapper_main, x);
}

void vj_remapper_stop(VjRemapper *x)
{
    if (x == NULL || x->thread == NULL) {
        return;
    }
    vj_mutex_lock(&x->lock);
    x->stop = true;
    vj_cond_broadcast(&x->wake);
    vj_mutex_unlock(&x->lock);
    g_thread_join(g_steal_pointer(&x->thread));
}

void vj_remapper_free(VjRemapper *x)
{
    if (x == NULL) {
        return;
    }
    g_assert(x->thread == NULL);
    g_queue_clear(&x->due);
    g_hash_table_unref(x->uses);
    vj_cond_clear(&x->wake);
    vj_mutex_clear(&x->lock);
    g_free(x);
}
