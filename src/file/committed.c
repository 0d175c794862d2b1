/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * committed.c - see committed-private.h
 *
 * A run never changes but for the records of objects, which are put in once each
 * (atomically).  The runs of one file do not overlap and stand in rising order.
 *
 * A reader at random finds none of this in the processor's caches: what the searches
 * compare stands side by side, and the record of an object where its entry is.
 */
#include "file/committed-private.h"

/* Of the record in a slot. */
enum { RECORD_MISSING, RECORD_COMES, RECORD_THERE };

typedef struct Slot {
    VjEntry entry;
    gint state;      /* atomic; RECORD_* */
    VjObject object; /* never changes once it is there */
} Slot;

struct VjCommittedRun {
    gint refs;
    /* guarded by the budget's lock: */
    VjCommitted *of; /* NULL: in none any more */
    GList link;      /* in used */
    /* never change: */
    unsigned count;
    uint64_t at[VJ_COMMITTED_RUN]; /* of the first byte of each entry in the file */
    Slot slots[];
};

/* A run in its file. */
typedef struct Place {
    uint64_t end; /* where its last entry ends */
    VjCommittedRun *run;
} Place;

struct VjCommitted {
    gint refs;
    VjCommittedBudget *budget;
    VjInode inode;
    GArray *runs; /* Place; guarded by the budget's lock; referenced, rising */
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
    return sizeof(VjCommittedRun) + count * sizeof(Slot);
}

static uint64_t run_from(const VjCommittedRun *run)
{
    return run->at[0];
}

static uint64_t run_end(const VjCommittedRun *run)
{
    return run->at[run->count - 1] + run->slots[run->count - 1].entry.length;
}

static void run_unref(gpointer data)
{
    VjCommittedRun *run = data;

    if (run != NULL && g_atomic_int_dec_and_test(&run->refs)) {
        g_free(run);
    }
}

static Place *place_at(const VjCommitted *c, guint i)
{
    return &g_array_index(c->runs, Place, i);
}

/* The index of the first run that ends behind @offset.  Under lock. */
static guint first_behind(const VjCommitted *c, uint64_t offset)
{
    guint low = 0, high = c->runs->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (place_at(c, middle)->end <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* No file has @run any more, but a reader may.  Under lock. */
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
        g_array_remove_index(c->runs, first_behind(c, run_from(run)));
        g_ptr_array_add(gone, run);
    }
}

static unsigned slot_of(const VjCommittedRun *run, uint64_t offset)
{
    unsigned low = 0, high = run->count - 1;

    while (low < high) {
        unsigned middle = low + (high - low + 1) / 2;

        if (run->at[middle] <= offset) {
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
    c->runs = g_array_new(FALSE, FALSE, sizeof(Place));
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
        forget_locked(c->budget, place_at(c, i)->run);
    }
    vj_mutex_unlock(&c->budget->lock);
    for (guint i = 0; i < c->runs->len; i++) {
        run_unref(place_at(c, i)->run);
    }
    g_array_unref(c->runs);
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
    *at = a->run->at[a->index];
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

    if (i == c->runs->len || run_from(place_at(c, i)->run) > offset) {
        return false;
    }
    run = place_at(c, i)->run;
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
    VjCommittedRun *run = g_malloc0(run_bytes(VJ_COMMITTED_RUN));
    int r = vj_map_cursor_seek(cursor, offset, &run->slots[0].entry, &run->at[0]);

    *out = NULL;
    if (r < 0) {
        g_free(run);
        return r;
    }
    for (run->count = 1; run->count < VJ_COMMITTED_RUN; run->count++) {
        if (vj_map_cursor_next(cursor, &run->slots[run->count].entry,
                               &run->at[run->count]) < 0) {
            break; /* the end, or an error, which the read of that place returns */
        }
    }
    run = g_realloc(run, run_bytes(run->count));
    run->refs = 1;
    run->link.data = run;
    *out = run;
    return 0;
}

int vj_committed_load(VjCommitted *c, VjTxn *txn, VjMapCursor *cursor, uint64_t offset,
                      VjCommittedAt *out)
{
    g_autoptr(GPtrArray) gone = g_ptr_array_new_with_free_func(run_unref);
    VjCommittedRun *run;
    Place place;
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
        while (i < c->runs->len && run_end(run) > run_from(place_at(c, i)->run)) {
            run->count--;
        }
        run->of = c;
        place = (Place){.end = run_end(run), .run = run};
        g_array_insert_val(c->runs, i, place);
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
    int r;

    if (g_atomic_int_get(&slot->state) == RECORD_THERE) {
        *out = slot->object;
        return 0;
    }
    if (txn == NULL) {
        return -EAGAIN;
    }
    r = vj_object_get(txn, slot->entry.id, out);
    if (r == 0 &&
        g_atomic_int_compare_and_exchange(&slot->state, RECORD_MISSING, RECORD_COMES)) {
        slot->object = *out;
        g_atomic_int_set(&slot->state, RECORD_THERE);
    }
    return r;
}
