/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * committed.c - see committed-private.h
 *
 * A run never changes but for the records of objects, which are put in once each
 * (atomically).  The runs of one file do not overlap and stand in rising order.
 */
#include "file/committed-private.h"

typedef struct Slot {
    VjEntry entry;
    uint64_t at;      /* of its first byte in the file */
    VjObject *object; /* atomic; owned; NULL: nobody has asked for it */
} Slot;

struct VjCommittedRun {
    gint refs;
    /* guarded by the budget's lock: */
    VjCommitted *of; /* NULL: in none any more */
    GList link;      /* in used */
    /* never change: */
    unsigned count;
    Slot slots[];
};

struct VjCommitted {
    gint refs;
    VjCommittedBudget *budget;
    VjInode inode;
    GPtrArray *runs; /* guarded by the budget's lock; referenced, rising */
};

void vj_committed_budget_init(VjCommittedBudget *b, uint64_t limit_bytes)
{
    *b = (VjCommittedBudget){.limit_bytes = limit_bytes};
    vj_mutex_init(&b->lock, VJ_RANK_FILE_COMMITTED, "file.committed");
    g_queue_init(&b->used);
}

void vj_committed_budget_clear(VjCommittedBudget *b)
{
    g_assert(b->bytes == 0 && g_queue_is_empty(&b->used));
    vj_mutex_clear(&b->lock);
}

/* ---- runs -------------------------------------------------------------------------- */

static uint64_t run_bytes(unsigned count)
{
    return sizeof(VjCommittedRun) + count * (sizeof(Slot) + sizeof(VjObject));
}

static uint64_t run_from(const VjCommittedRun *run)
{
    return run->slots[0].at;
}

static uint64_t run_end(const VjCommittedRun *run)
{
    const Slot *last = &run->slots[run->count - 1];

    return last->at + last->entry.length;
}

static void run_unref(gpointer data)
{
    VjCommittedRun *run = data;

    if (run == NULL || !g_atomic_int_dec_and_test(&run->refs)) {
        return;
    }
    for (unsigned i = 0; i < run->count; i++) {
        g_free(run->slots[i].object);
    }
    g_free(run);
}

/* The index of the first run that ends behind @offset.  Under lock. */
static guint first_behind(const VjCommitted *c, uint64_t offset)
{
    guint low = 0, high = c->runs->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (run_end(c->runs->pdata[middle]) <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* No file has @run any more, but who reads from it may.  Under lock. */
static void forget_locked(VjCommittedBudget *b, VjCommittedRun *run)
{
    b->bytes -= run_bytes(run->count);
    g_queue_unlink(&b->used, &run->link);
    run->of = NULL;
}

/* The runs that were used longest ago go until there is room.  Under lock. */
static void make_room_locked(VjCommittedBudget *b, GPtrArray *gone)
{
    while (b->bytes > b->limit_bytes && b->used.tail != NULL) {
        VjCommittedRun *run = b->used.tail->data;
        VjCommitted *c = run->of;

        forget_locked(b, run);
        g_ptr_array_add(gone,
                        g_ptr_array_steal_index(c->runs, first_behind(c, run_from(run))));
    }
}

static unsigned slot_of(const VjCommittedRun *run, uint64_t offset)
{
    unsigned low = 0, high = run->count - 1;

    while (low < high) {
        unsigned middle = low + (high - low + 1) / 2;

        if (run->slots[middle].at <= offset) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* ---- one file ---------------------------------------------------------------------- */

VjCommitted *vj_committed_new(VjCommittedBudget *budget, const VjInode *inode)
{
    VjCommitted *c = g_new0(VjCommitted, 1);

    c->refs = 1;
    c->budget = budget;
    c->inode = *inode;
    c->runs = g_ptr_array_new_with_free_func(run_unref);
    return c;
}

VjCommitted *vj_committed_ref(VjCommitted *c)
{
    g_atomic_int_inc(&c->refs);
    return c;
}

void vj_committed_unref(VjCommitted *c)
{
    if (c == NULL || !g_atomic_int_dec_and_test(&c->refs)) {
        return;
    }
    vj_mutex_lock(&c->budget->lock);
    for (guint i = 0; i < c->runs->len; i++) {
        forget_locked(c->budget, c->runs->pdata[i]);
    }
    vj_mutex_unlock(&c->budget->lock);
    g_ptr_array_unref(c->runs);
    g_free(c);
}

const VjInode *vj_committed_inode(const VjCommitted *c)
{
    return &c->inode;
}

void vj_committed_at_clear(VjCommittedAt *a)
{
    run_unref(a->run);
    a->run = NULL;
}

const VjEntry *vj_committed_entry(const VjCommittedAt *a, uint64_t *at)
{
    *at = a->run->slots[a->index].at;
    return &a->run->slots[a->index].entry;
}

bool vj_committed_next(VjCommittedAt *a)
{
    if (a->index + 1 >= a->run->count) {
        return false;
    }
    a->index++;
    return true;
}

/* Under lock. */
static bool find_locked(VjCommitted *c, uint64_t offset, VjCommittedAt *out)
{
    guint i = first_behind(c, offset);
    VjCommittedRun *run;

    if (i == c->runs->len || run_from(c->runs->pdata[i]) > offset) {
        return false;
    }
    run = c->runs->pdata[i];
    g_queue_unlink(&c->budget->used, &run->link);
    g_queue_push_head_link(&c->budget->used, &run->link);
    g_atomic_int_inc(&run->refs);
    *out = (VjCommittedAt){.run = run, .index = slot_of(run, offset)};
    return true;
}

bool vj_committed_find(VjCommitted *c, uint64_t offset, VjCommittedAt *out)
{
    bool found;

    *out = (VjCommittedAt){0};
    vj_mutex_lock(&c->budget->lock);
    found = find_locked(c, offset, out);
    vj_mutex_unlock(&c->budget->lock);
    return found;
}

/* The records of the objects that @run names will be asked for. */
static void expect_objects(const VjCommittedRun *run, VjTxn *txn)
{
    uint64_t ids[VJ_COMMITTED_RUN];
    size_t count = 0;

    for (unsigned i = 0; i < run->count; i++) {
        const VjEntry *entry = &run->slots[i].entry;

        if (entry->kind == VJ_ENTRY_OBJECT &&
            (count == 0 || ids[count - 1] != entry->id)) {
            ids[count++] = entry->id;
        }
    }
    vj_object_expect_records(txn, ids, count);
}

/* The entries from the one that holds @offset on.  Owned. */
static int read_run(VjMapCursor *cursor, uint64_t offset, VjCommittedRun **out)
{
    VjCommittedRun *run =
        g_malloc0(sizeof *run + VJ_COMMITTED_RUN * sizeof run->slots[0]);
    Slot *slot = run->slots;
    int r = vj_map_cursor_seek(cursor, offset, &slot->entry, &slot->at);

    *out = NULL;
    if (r < 0) {
        g_free(run);
        return r;
    }
    run->refs = 1;
    run->link.data = run;
    for (run->count = 1; run->count < VJ_COMMITTED_RUN; run->count++) {
        slot = &run->slots[run->count];
        if (vj_map_cursor_next(cursor, &slot->entry, &slot->at) < 0) {
            break; /* the end, or what whoever comes there finds out */
        }
    }
    *out = run;
    return 0;
}

int vj_committed_load(VjCommitted *c, VjTxn *txn, VjMapCursor *cursor, uint64_t offset,
                      VjCommittedAt *out)
{
    g_autoptr(GPtrArray) gone = g_ptr_array_new_with_free_func(run_unref);
    VjCommittedRun *run;
    int r = read_run(cursor, offset, &run);

    *out = (VjCommittedAt){0};
    if (r < 0) {
        return r;
    }
    expect_objects(run, txn);
    vj_mutex_lock(&c->budget->lock);
    if (find_locked(c, offset, out)) { /* another reader was faster */
        g_ptr_array_add(gone, run);
    } else {
        guint i = first_behind(c, offset);

        /* What the next run has is left to it. */
        while (i < c->runs->len && run_end(run) > run_from(c->runs->pdata[i])) {
            run->count--;
        }
        run->of = c;
        g_ptr_array_insert(c->runs, (gint)i, run);
        c->budget->bytes += run_bytes(run->count);
        g_queue_push_head_link(&c->budget->used, &run->link);
        g_atomic_int_inc(&run->refs);
        out->run = run;
        make_room_locked(c->budget, gone);
    }
    vj_mutex_unlock(&c->budget->lock);
    return 0;
}

int vj_committed_object(const VjCommittedAt *a, VjTxn *txn, VjObject *out)
{
    Slot *slot = &a->run->slots[a->index];
    VjObject *object = g_atomic_pointer_get(&slot->object);
    int r;

    if (object != NULL) {
        *out = *object;
        return 0;
    }
    if (txn == NULL) {
        return -EAGAIN;
    }
    r = vj_object_get(txn, slot->entry.id, out);
    if (r == 0) {
        object = g_memdup2(out, sizeof *out);
        if (!g_atomic_pointer_compare_and_exchange(&slot->object, NULL, object)) {
            g_free(object);
        }
    }
    return r;
}
