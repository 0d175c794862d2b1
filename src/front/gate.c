/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * gate.c - who is in a file while it is edited
 *
 * The kernel does not know that an edit moved bytes.  Between the moment that an edit is
 * applied and the return of the invalidation behind it (the window), its page cache holds
 * pages in old coordinates, and some that were read or written since and are in new ones.
 * A gate stands in front of each inode that is being read, written or edited, and of those
 * that were edited within the last second.  It knows
 *
 *   - who is inside, so that an edit is applied between requests, never under one;
 *   - which pages were touched in the window, so that dirty pages which come back from the
 *     page cache can be put where their bytes belong now;
 *   - whether an edit began since a WRITE came in, so that pages that its invalidation
 *     missed are invalidated again;
 *   - which pages behind an edit the kernel may hold, so that an edit before none of them
 *     need not wait for it (below).
 *
 * Requests wait at a closed gate; what they wait for (requests inside, one vj_fs_replace)
 * never waits for the kernel.  Locks: one a shard, held for a search of at most
 * GATE_TOUCHED_MAX ranges: microseconds, and only while a file is edited and read all over.
 */
#include "front/front-private.h"

#define GATE_SHARDS 32u
/* Ranges of pages that a window remembers one by one. */
#define GATE_TOUCHED_MAX 4096u
/* Ranges of reads near an edit that are remembered one by one; then their hull. */
#define GATE_READS_MAX 1024u
/* Ranges that the kernel may hold, or that have a byte of ours, one by one; then the last one
 * grows. */
#define GATE_HELD_MAX 64u
/* Ranges of an inode that wait to be invalidated one by one; then the last one grows. */
#define GATE_STALE_MAX 64u
/* Old gates looked at when a new one is made: more than one, so that they run out. */
#define GATE_SWEEP 2u

#define NO_PAGE UINT64_MAX

typedef struct StaleRange {
    uint64_t from, to;
    uint64_t ticket; /* rises along the queue; who waits for a smaller one has got it */
    bool shared;     /* it grew: more than one waits for it */
} StaleRange;

struct VjGate {
    uint64_t ino;
    unsigned refs;   /* requests and edits; one for the queue of stale ranges */
    unsigned inside; /* requests that read or change the file now */
    bool closed;     /* an edit is being applied, or waits for those inside */
    bool editing;    /* from its first invalidation to its reply */
    bool window;     /* applied, second invalidation not yet returned */
    bool resting;    /* in the shard's queue of recent gates */
    VjEdited edited; /* in the window */
    GArray *touched; /* VjPageRange: read or written in the window; NULL until needed */
    /* VjPageRange: read near an edit, since the last plain WRITE and not invalidated since */
    GArray *reads;
    /* Likewise: a byte of ours was stored there.  A WRITE that has filled such a page on its way in
     * has that byte over its own. */
    GArray *stored;
    bool marking;       /* an edit has begun: what brings pages is noted in `held` */
    uint64_t bare_from; /* page: from there on the kernel holds none but `held`.  NO_PAGE:
                         * that is not known of any */
    uint64_t note_from; /* page: from there on that is noted; bare_from or before it */
    GArray *held;       /* VjPageRange; NULL until needed */
    bool
        end_known; /* the last byte of the file is end_byte while `writes` is end_writes */
    uint8_t end_byte;
    uint64_t end_writes;
    /* While the kernel learns of an end behind this one: it clears what lies from here on in the
     * page when that is written back.  NO_PAGE: no such page. */
    uint64_t cleared_from;
    uint64_t edits;          /* begun so far */
    uint64_t writes;         /* in and out */
    uint64_t told;           /* edits that the kernel knows the size of; up to `edits` */
    int64_t untold_until_us; /* how long others wait for the caller of the last edit */
    pid_t teller;            /* who is to tell the kernel; 0: nobody yet */
    uint64_t applied;        /* edits */
    unsigned raising;        /* answers on their way that make the kernel's size larger */
    unsigned raising_before; /* of these: from before the last edit was applied */
    int64_t raised_us;       /* when the last one was given */
    int64_t raised_before_us; /* likewise, from before the last edit was applied */
    pid_t raiser;             /* to whom */
    int64_t hot_until_us;
    bool busy;   /* an edit is queued or being made */
    GQueue jobs; /* of VjJob, behind it */
    GArray *
        stale; /* StaleRange: waits to be invalidated, first come first; NULL: none yet */
    uint64_t staling; /* ticket of the range that is being invalidated; 0: none */
};

typedef struct Shard {
    VjMutex lock; /* VJ_RANK_FRONT */
    VjCond changed;
    /* guarded by lock: */
    GHashTable *gates; /* uint64_t* in VjGate → VjGate */
    GQueue recent;     /* gates without references that may be hot, oldest first */
    uint64_t tickets;  /* given out so far: longer than any gate lives */
} Shard;

struct VjGates {
    Shard shard[GATE_SHARDS];
};

static void gate_free(gpointer data)
{
    VjGate *g = data;

    g_assert(g->refs == 0 && g_queue_is_empty(&g->jobs));
    if (g->touched != NULL) {
        g_array_unref(g->touched);
    }
    if (g->reads != NULL) {
        g_array_unref(g->reads);
    }
    if (g->stored != NULL) {
        g_array_unref(g->stored);
    }
    if (g->stale != NULL) {
        g_array_unref(g->stale);
    }
    if (g->held != NULL) {
        g_array_unref(g->held);
    }
    g_free(g);
}

VjGates *vj_gates_new(void)
{
    VjGates *gates = g_new0(VjGates, 1);

    for (unsigned i = 0; i < GATE_SHARDS; i++) {
        Shard *s = &gates->shard[i];

        vj_mutex_init(&s->lock, VJ_RANK_FRONT, "front gate");
        vj_cond_init(&s->changed);
        s->gates = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, gate_free);
        g_queue_init(&s->recent);
    }
    return gates;
}

void vj_gates_free(VjGates *gates)
{
    if (gates == NULL) {
        return;
    }
    for (unsigned i = 0; i < GATE_SHARDS; i++) {
        Shard *s = &gates->shard[i];

        g_queue_clear(&s->recent);
        g_hash_table_unref(s->gates);
        vj_cond_clear(&s->changed);
        vj_mutex_clear(&s->lock);
    }
    g_free(gates);
}

static Shard *shard_of(VjGates *gates, uint64_t ino)
{
    return &gates->shard[(ino * UINT64_C(0x9e3779b97f4a7c15)) >> 59];
}

/* Frees gates that have been cold for long enough. */
static void sweep(Shard *s) VJ_REQUIRES(s->lock)
{
    int64_t now_us = vj_clock_mono_us();

    for (unsigned i = 0; i < GATE_SWEEP; i++) {
        VjGate *g = g_queue_peek_head(&s->recent);

        if (g == NULL || g->hot_until_us > now_us) {
            return;
        }
        g_queue_pop_head(&s->recent);
        g->resting = false;
        if (g->refs == 0) {
            g_hash_table_remove(s->gates, &g->ino);
        }
    }
}

static VjGate *gate_ref(Shard *s, uint64_t ino) VJ_REQUIRES(s->lock)
{
    VjGate *g = g_hash_table_lookup(s->gates, &ino);

    if (g == NULL) {
        sweep(s);
        g = g_new0(VjGate, 1);
        g->ino = ino;
        g->bare_from = g->note_from = g->cleared_from = NO_PAGE;
        g_queue_init(&g->jobs);
        g_hash_table_insert(s->gates, &g->ino, g);
    }
    g->refs++;
    return g;
}

static void gate_unref(Shard *s, VjGate *g) VJ_REQUIRES(s->lock)
{
    g_assert(g->refs > 0);
    if (--g->refs > 0 || g->resting) {
        return;
    }
    if (g->hot_until_us > vj_clock_mono_us()) {
        g->resting = true;
        g_queue_push_tail(&s->recent, g);
    } else {
        g_hash_table_remove(s->gates, &g->ino);
    }
}

/* ---- the window --------------------------------------------------------------------- */

static void touch(VjGate *g, VjPageRange r)
{
    if (!vj_ranges_add(&g->touched, GATE_TOUCHED_MAX, r)) {
        vj_log_warn(
            "inode %" G_GUINT64_FORMAT
            ": too many scattered reads during one edit to tell mapped pages apart",
            g->ino);
    }
}

static bool is_touched(const VjGate *g, uint64_t page)
{
    return vj_ranges_meet(g->touched, (VjPageRange){page, page});
}

static void part_add(GArray *parts, uint64_t skip, uint64_t offset, uint64_t len)
{
    VjPassPart part = {skip, offset, len};

    if (len == 0) {
        return;
    }
    if (parts->len > 0) {
        VjPassPart *p = &g_array_index(parts, VjPassPart, parts->len - 1);

        if (p->skip + p->len == skip && p->offset + p->len == offset) {
            p->len += len;
            return;
        }
    }
    g_array_append_val(parts, part);
}

/* Old coordinates [from, to): what lay before the edit stays, what it replaced is gone, what
 * lay behind has moved. */
static void part_shift(GArray *parts, const VjEdited *e, uint64_t start, uint64_t from,
                       uint64_t to)
{
    uint64_t gone_to = e->at + e->old_len, f = from, t = MIN(to, e->at);

    if (f < t) {
        part_add(parts, f - start, f, t - f);
    }
    f = MAX(from, gone_to);
    if (f < to) {
        part_add(parts, f - start, f - e->old_len + e->len, to - f);
    }
}

/* Dirty pages that come back in the window: page by page, old or new coordinates. */
static GArray *split(const VjGate *g, uint64_t offset, uint64_t len)
{
    GArray *parts = g_array_new(FALSE, FALSE, sizeof(VjPassPart));
    uint64_t end = offset + len, at = offset;

    while (at < end) {
        uint64_t page = at / VJ_PAGE_BYTES;
        uint64_t to = MIN(end, (page + 1) * VJ_PAGE_BYTES);

        if (is_touched(g, page)) {
            part_add(parts, at - offset, at, to - at);
        } else {
            part_shift(parts, &g->edited, offset, at, to);
        }
        at = to;
    }
    return parts;
}

/* @part of @buf, but for zeroes that the kernel may have put there: behind an end in its own
 * coordinates, wherever they belong now. */
static void add_believed(GArray *believed, const VjPass *pass, const char *buf,
                         VjPassPart part)
{
    uint64_t from = 0; /* of the run that is being collected */

    for (uint64_t i = 0; i <= part.len; i++) {
        uint64_t at = pass->offset + part.skip + i;
        bool doubted = i < part.len && at >= pass->cleared_from &&
                       at < pass->cleared_to && buf[part.skip + i] == 0;

        if (doubted || i == part.len) {
            part_add(believed, part.skip + from, part.offset + from, i - from);
            from = i + 1;
        }
    }
}

GArray *vj_pass_believed(const VjPass *pass, const char *buf, const VjPassPart *parts,
                         size_t count)
{
    GArray *believed = g_array_new(FALSE, FALSE, sizeof(VjPassPart));

    for (size_t i = 0; i < count; i++) {
        add_believed(believed, pass, buf, parts[i]);
    }
    return believed;
}

/* ---- what the kernel may hold --------------------------------------------------------- */

/*
 * Why it is known.  A page that the kernel can show or write back is up to date.  It becomes so
 * by a READ, by a plain WRITE that fills it, or by our storing its first byte, and by nothing
 * else; the page that a WRITE fills in part, or that we store into behind its first byte, does
 * not.  All three are noted here: a READ and a WRITE when they come in, under the shard's lock.
 * What is up to date before the WRITE that filled it has come in holds what that WRITE brings,
 * and the file will hold it too, after the edit: neither the page nor a store into it through a
 * mapping is in old coordinates.  A READ that has not come in yet will be answered after the
 * edit.  So a page that is not noted by the time that the gate is closed shows nothing old.
 *
 * What the kernel held before this gate was made is not known: an invalidation to the end of the
 * file takes all that away.  It waits for locked pages, which are those of READs that came in
 * before it began, so their notes go with it; what comes in later is noted anew, also where
 * nothing was known before: the invalidation may have passed that page already.
 */
static bool may_hold(const VjGate *g, VjPageRange r)
{
    if (!g->marking || r.first < g->bare_from) {
        return true;
    }
    return vj_ranges_meet(g->held, r);
}

static void note_held(VjGate *g, VjPageRange r)
{
    if (g->marking && r.last >= g->note_from) {
        (void)vj_ranges_add(&g->held, GATE_HELD_MAX, r);
    }
}

bool vj_gate_may_hold(VjGates *gates, VjGate *g, uint64_t offset, uint64_t len)
{
    Shard *s = shard_of(gates, g->ino);
    bool may;

    vj_mutex_lock(&s->lock);
    may = may_hold(g, vj_pages_from(offset, len));
    vj_mutex_unlock(&s->lock);
    return may;
}

void vj_gate_dropped(VjGates *gates, VjGate *g, uint64_t offset, uint64_t len, bool ok)
{
    Shard *s = shard_of(gates, g->ino);

    vj_mutex_lock(&s->lock);
    if (!ok) {
        g->bare_from = NO_PAGE;
    } else if (len == 0) {
        g->bare_from = MIN(g->bare_from, offset / VJ_PAGE_BYTES);
    }
    vj_mutex_unlock(&s->lock);
}

/* ---- requests ----------------------------------------------------------------------- */

/* An edit is being made, or was within the last second. */
static bool is_hot(const VjGate *g)
{
    return g->editing || g->hot_until_us > vj_clock_mono_us();
}

void vj_gate_enter(VjGates *gates, uint64_t ino, VjPassKind kind, uint64_t offset,
                   uint64_t len, VjPass *pass)
{
    Shard *s = shard_of(gates, ino);
    VjGate *g;

    vj_mutex_lock(&s->lock);
    g = gate_ref(s, ino);
    while (g->closed) {
        vj_cond_wait(&s->changed, &s->lock);
    }
    g->inside++;
    *pass = (VjPass){
        .gate = g,
        .ino = ino,
        .offset = offset,
        .len = len,
        .edits = g->edits,
        .kind = kind,
        .hot = is_hot(g),
    };
    if (kind != VJ_PASS_READ && kind != VJ_PASS_READ_DIRECT) {
        g->writes++;
    } else if (pass->hot && kind == VJ_PASS_READ) {
        (void)vj_ranges_add(&g->reads, GATE_READS_MAX, vj_pages_of(offset, len));
    }
    if (kind != VJ_PASS_READ_DIRECT && kind != VJ_PASS_SIZE) {
        note_held(g, vj_pages_of(offset, len));
    }
    if (kind == VJ_PASS_WRITE_PAGE && g->cleared_from != NO_PAGE &&
        offset + len > g->cleared_from) {
        pass->cleared_from = g->cleared_from;
        pass->cleared_to = (g->cleared_from / VJ_PAGE_BYTES + 1) * VJ_PAGE_BYTES;
    }
    if (g->window) {
        if (kind == VJ_PASS_WRITE_PAGE) {
            pass->parts = split(g, offset, len);
        } else if (kind == VJ_PASS_READ || kind == VJ_PASS_WRITE ||
                   kind == VJ_PASS_WRITE_DIRECT) {
            touch(g, vj_pages_of(offset, len));
        }
    }
    vj_mutex_unlock(&s->lock);
}

/*
 * The kernel drops the pages that it has, and those whose READ is under way when they have
 * come: a mark from before that moment says nothing any more.
 */
static void forget_marks(VjGate *g, uint64_t from, uint64_t to)
{
    if (from < to) {
        VjPageRange r = {from / VJ_PAGE_BYTES, (to - 1) / VJ_PAGE_BYTES};

        vj_ranges_remove(g->reads, GATE_READS_MAX, r);
        vj_ranges_remove(g->stored, GATE_HELD_MAX, r);
    }
}

/* The next WRITE is sent when what holds the kernel's lock of the inode is answered. */
static void forget_all_marks(VjGate *g)
{
    if (g->reads != NULL) {
        g_array_set_size(g->reads, 0);
    }
    if (g->stored != NULL) {
        g_array_set_size(g->stored, 0);
    }
}

static bool is_write(VjPassKind kind)
{
    return kind == VJ_PASS_WRITE || kind == VJ_PASS_WRITE_DIRECT;
}

/* Cuts @pass down to what its WRITE has left stale in the page cache; false: nothing. */
static bool cut_to_stale(const VjGate *g, VjPass *pass)
{
    uint64_t end = pass->offset + pass->len;
    uint64_t from = (pass->offset + VJ_PAGE_BYTES - 1) / VJ_PAGE_BYTES * VJ_PAGE_BYTES;
    uint64_t len = MAX(end / VJ_PAGE_BYTES * VJ_PAGE_BYTES, from) - from;
    /* Only what was up to date before the WRITE came in: pages that it fills. */
    bool stored = pass->kind == VJ_PASS_WRITE && len > 0 &&
                  vj_ranges_common(g->stored, &from, &len);
    /* Only a READ since the edit can have brought a page back without these bytes. */
    bool read = vj_ranges_common(g->reads, &pass->offset, &pass->len);

    if (stored) {
        uint64_t to = from + len;

        if (read) {
            to = MAX(to, pass->offset + pass->len);
            from = MIN(from, pass->offset);
        }
        pass->offset = from;
        pass->len = to - from;
    }
    return stored || read;
}

bool vj_gate_leave(VjGates *gates, VjPass *pass)
{
    Shard *s = shard_of(gates, pass->ino);
    VjGate *g = pass->gate;
    bool again = pass->parts != NULL;

    vj_mutex_lock(&s->lock);
    g_assert(g->inside > 0);
    g->inside--;
    if (pass->kind != VJ_PASS_READ && pass->kind != VJ_PASS_READ_DIRECT) {
        g->writes++;
    }
    if (pass->raises) {
        pass->applied = g->applied;
        g->raising++;
        g->refs++; /* until vj_gate_answered */
    }
    if (is_write(pass->kind) && (pass->hot || g->edits != pass->edits)) {
        again = cut_to_stale(g, pass);
    }
    if (pass->kind == VJ_PASS_WRITE || pass->kind == VJ_PASS_SIZE) {
        forget_all_marks(g); /* to the next one these are old */
    }
    if (g->closed && g->inside == 0) {
        vj_cond_broadcast(&s->changed);
    }
    gate_unref(s, g);
    vj_mutex_unlock(&s->lock);
    if (pass->parts != NULL) {
        g_array_unref(pass->parts);
        pass->parts = NULL;
    }
    return again;
}

/* ---- edits -------------------------------------------------------------------------- */

bool vj_gate_edit_begin(VjGates *gates, uint64_t ino, VjJob *job, VjGate **out)
{
    Shard *s = shard_of(gates, ino);
    VjGate *g;
    bool mine;

    vj_mutex_lock(&s->lock);
    g = gate_ref(s, ino);
    mine = !g->busy;
    g->busy = true;
    *out = g;
    if (!mine) {
        g_queue_push_tail(&g->jobs, job);
    }
    vj_mutex_unlock(&s->lock);
    return mine;
}

bool vj_gate_edit_try(VjGates *gates, uint64_t ino, uint64_t offset, uint64_t len,
                      VjGate **out)
{
    Shard *s = shard_of(gates, ino);
    VjGate *g;
    bool mine;

    vj_mutex_lock(&s->lock);
    g = g_hash_table_lookup(s->gates, &ino);
    mine = g != NULL && !g->busy && !may_hold(g, vj_pages_from(offset, len));
    if (mine) {
        g->refs++;
        g->busy = true;
    }
    vj_mutex_unlock(&s->lock);
    *out = mine ? g : NULL;
    return mine;
}

void vj_gate_edit_start(VjGates *gates, VjGate *g)
{
    Shard *s = shard_of(gates, g->ino);

    vj_mutex_lock(&s->lock);
    g_assert(g->busy && !g->editing && !g->window);
    if (!is_hot(g)) {
        forget_all_marks(g);
    }
    g->editing = true;
    g->marking = true;
    g->edits++;
    g->teller = 0;
    vj_mutex_unlock(&s->lock);
}

void vj_gate_close(VjGates *gates, VjGate *g)
{
    Shard *s = shard_of(gates, g->ino);

    vj_mutex_lock(&s->lock);
    g_assert(g->editing && !g->closed);
    g->closed = true;
    while (g->inside > 0) {
        vj_cond_wait(&s->changed, &s->lock);
    }
    vj_mutex_unlock(&s->lock);
}

bool vj_gate_open(VjGates *gates, VjGate *g, const VjEdited *edited, const uint8_t *end)
{
    Shard *s = shard_of(gates, g->ino);
    bool window;

    vj_mutex_lock(&s->lock);
    g_assert(g->closed && g->inside == 0);
    g->closed = false;
    g->applied++;
    g->raising_before = g->raising;
    g->raised_before_us = g->raised_us;
    window = edited->changed &&
             may_hold(g, vj_pages_from(MIN(edited->at, edited->old_size), 0));
    g->window = window;
    g->edited = *edited;
    if (edited->changed && edited->size > edited->old_size &&
        edited->old_size % VJ_PAGE_BYTES != 0) {
        g->cleared_from = edited->old_size;
    }
    if (end != NULL) {
        g->end_known = true;
        g->end_writes = g->writes;
        g->end_byte = *end;
    } else if (edited->changed && (edited->at >= edited->old_size ||
                                   edited->old_len >= edited->old_size - edited->at)) {
        g->end_known = false;
    }
    if (g->touched != NULL) {
        g_array_set_size(g->touched, 0);
    }
    vj_cond_broadcast(&s->changed);
    vj_mutex_unlock(&s->lock);
    return window;
}

bool vj_gate_end_byte(VjGates *gates, VjGate *g, uint64_t writes, uint8_t *byte)
{
    Shard *s = shard_of(gates, g->ino);
    bool known;

    vj_mutex_lock(&s->lock);
    known = g->end_known && g->end_writes == writes;
    *byte = g->end_byte;
    vj_mutex_unlock(&s->lock);
    return known;
}

void vj_gate_end_known(VjGates *gates, VjGate *g, uint64_t writes, uint8_t byte)
{
    Shard *s = shard_of(gates, g->ino);

    vj_mutex_lock(&s->lock);
    g->end_known = true;
    g->end_writes = writes;
    g->end_byte = byte;
    vj_mutex_unlock(&s->lock);
}

void vj_gate_settle(VjGates *gates, VjGate *g)
{
    Shard *s = shard_of(gates, g->ino);

    vj_mutex_lock(&s->lock);
    g->window = false;
    g->hot_until_us = vj_clock_mono_us() + VJ_FRONT_HOT_US;
    vj_mutex_unlock(&s->lock);
}

void vj_gate_note_store(VjGates *gates, VjGate *g, uint64_t at)
{
    Shard *s = shard_of(gates, g->ino);

    vj_mutex_lock(&s->lock);
    (void)vj_ranges_add(&g->stored, GATE_HELD_MAX, vj_pages_of(at, 1));
    if (at % VJ_PAGE_BYTES == 0) {
        /* Else a page that the kernel has not got stays one that has to be read. */
        (void)vj_ranges_add(&g->reads, GATE_READS_MAX, vj_pages_of(at, 1));
        note_held(g, vj_pages_of(at, 1));
    }
    vj_mutex_unlock(&s->lock);
}

/* The last edit is over but for what its caller does. */
static bool is_told_soon(const VjGate *g)
{
    return !g->editing || g->teller != 0;
}

static void tell(Shard *s, VjGate *g)
{
    g->told = g->edits;
    g->teller = 0;
    vj_cond_broadcast(&s->changed);
}

void vj_gate_untold(VjGates *gates, VjGate *g, pid_t teller)
{
    Shard *s = shard_of(gates, g->ino);

    vj_mutex_lock(&s->lock);
    g->teller = teller;
    g->untold_until_us = vj_clock_mono_us() + VJ_FRONT_TELL_US;
    vj_cond_broadcast(&s->changed); /* from now on it is known until when others wait */
    vj_mutex_unlock(&s->lock);
}

void vj_gate_told(VjGates *gates, const VjPass *pass)
{
    Shard *s = shard_of(gates, pass->ino);
    VjGate *g;

    vj_mutex_lock(&s->lock);
    g = g_hash_table_lookup(s->gates, &pass->ino);
    if (g != NULL && is_told_soon(g) && g->edits == pass->edits && g->told < g->edits) {
        tell(s, g);
    }
    vj_mutex_unlock(&s->lock);
}

/* Until when somebody may not yet have taken the answer that makes the kernel's size larger. */
static int64_t raised_until_us(const VjGate *g, pid_t who)
{
    if (g->raising > 0) {
        return INT64_MAX;
    }
    return g->raiser == who || g->raised_us == 0 ? 0 : g->raised_us + VJ_FRONT_RAISE_US;
}

/* The kernel does not take what it asked for before it took that answer. */
static bool wait_for_raises(Shard *s, uint64_t ino, pid_t who) VJ_REQUIRES(s->lock)
{
    int64_t now_us = vj_clock_mono_us(), end_us = now_us + VJ_FRONT_RAISE_MOST_US;
    const VjGate *g = g_hash_table_lookup(s->gates, &ino);
    bool waited = false;

    while (g != NULL && now_us < MIN(end_us, raised_until_us(g, who))) {
        waited = true;
        (void)vj_cond_wait_until(&s->changed, &s->lock,
                                 MIN(end_us, raised_until_us(g, who)));
        now_us = vj_clock_mono_us();
        g = g_hash_table_lookup(s->gates, &ino);
    }
    return waited;
}

bool vj_gate_told_wait(VjGates *gates, uint64_t ino, pid_t who, int64_t most_us)
{
    Shard *s = shard_of(gates, ino);
    int64_t end_us = 0;
    uint64_t wanted;
    bool waited;
    VjGate *g;

    vj_mutex_lock(&s->lock);
    g = g_hash_table_lookup(s->gates, &ino);
    wanted = g != NULL ? g->edits : 0;
    while (g != NULL && g->told < MIN(wanted, g->edits)) {
        int64_t now_us = vj_clock_mono_us(), until_us;

        if (end_us == 0) {
            end_us = now_us + most_us;
        }
        until_us = is_told_soon(g) ? MIN(end_us, g->untold_until_us) : end_us;
        if (g->teller == who || now_us >= until_us) {
            if (is_told_soon(g)) {
                tell(s, g);
            }
            break;
        }
        (void)vj_cond_wait_until(&s->changed, &s->lock, until_us);
        g = g_hash_table_lookup(s->gates, &ino);
    }
    waited = wait_for_raises(s, ino, who);
    vj_mutex_unlock(&s->lock);
    return waited || end_us != 0;
}

void vj_gate_answered(VjGates *gates, const VjPass *pass, pid_t who)
{
    Shard *s = shard_of(gates, pass->ino);
    VjGate *g = pass->gate;

    if (!pass->raises) {
        return;
    }
    vj_mutex_lock(&s->lock);
    g_assert(g->raising > 0);
    g->raising--;
    g->raised_us = vj_clock_mono_us();
    g->raiser = who;
    if (pass->applied < g->applied && g->raising_before > 0) {
        g->raising_before--;
        g->raised_before_us = g->raised_us;
    }
    vj_cond_broadcast(&s->changed);
    gate_unref(s, g);
    vj_mutex_unlock(&s->lock);
}

bool vj_gate_raise_wait(VjGates *gates, VjGate *g, pid_t who)
{
    Shard *s = shard_of(gates, g->ino);
    int64_t begun_us = vj_clock_mono_us(), now_us = begun_us, until_us;
    bool waited = false;

    vj_mutex_lock(&s->lock);
    while (now_us < begun_us + VJ_FRONT_RAISE_MOST_US) {
        until_us = g->raised_before_us + VJ_FRONT_RAISE_US;
        if (g->raising_before > 0) {
            until_us = begun_us + VJ_FRONT_RAISE_MOST_US;
        } else if (until_us <= now_us || g->raiser == who) {
            break;
        }
        waited = true;
        (void)vj_cond_wait_until(&s->changed, &s->lock, until_us);
        now_us = vj_clock_mono_us();
    }
    vj_mutex_unlock(&s->lock);
    return waited;
}

uint64_t vj_gate_writes(VjGates *gates, VjGate *g)
{
    Shard *s = shard_of(gates, g->ino);
    uint64_t writes;

    vj_mutex_lock(&s->lock);
    writes = g->writes;
    vj_mutex_unlock(&s->lock);
    return writes;
}

VjJob *vj_gate_edit_end(VjGates *gates, VjGate *g)
{
    Shard *s = shard_of(gates, g->ino);
    VjJob *next;

    vj_mutex_lock(&s->lock);
    g_assert(g->busy && !g->closed && !g->window);
    g->editing = false;
    g->cleared_from = NO_PAGE;
    if (g->teller == 0 && g->told + 1 == g->edits) {
        tell(s, g);
    } else {
        vj_cond_broadcast(
            &s->changed); /* it is told soon now, or the time for that is over */
    }
    next = g_queue_pop_head(&g->jobs);
    g->busy = next != NULL;
    gate_unref(s, g);
    vj_mutex_unlock(&s->lock);
    return next;
}

/* ---- ranges to invalidate ----------------------------------------------------------- */

void vj_gate_forget_marks(VjGates *gates, VjGate *g, uint64_t offset, uint64_t len)
{
    Shard *s = shard_of(gates, g->ino);

    vj_mutex_lock(&s->lock);
    forget_marks(g, offset, len == 0 ? UINT64_MAX : offset + len);
    vj_ranges_remove(g->held, GATE_HELD_MAX, vj_pages_from(offset, len));
    if (len == 0) {
        g->note_from = MIN(g->note_from, offset / VJ_PAGE_BYTES);
    }
    vj_mutex_unlock(&s->lock);
}

bool vj_gate_stale_add(VjGates *gates, uint64_t ino, uint64_t offset, uint64_t len,
                       uint64_t *ticket)
{
    Shard *s = shard_of(gates, ino);
    StaleRange range = {.from = offset, .to = offset + len}, *last = NULL;
    bool queued;
    VjGate *g;

    g_assert(len > 0);
    vj_mutex_lock(&s->lock);
    g = gate_ref(s, ino);
    if (g->stale == NULL) {
        g->stale = g_array_new(FALSE, FALSE, sizeof(StaleRange));
    }
    queued = g->stale->len > 0 || g->staling != 0;
    if (g->stale->len > 0) {
        last = &g_array_index(g->stale, StaleRange, g->stale->len - 1);
    }
    if (last != NULL && (g->stale->len >= GATE_STALE_MAX ||
                         (last->from <= range.from && last->to >= range.to))) {
        last->from = MIN(last->from, range.from);
        last->to = MAX(last->to, range.to);
        last->shared = true;
        *ticket = last->ticket;
    } else {
        *ticket = range.ticket = ++s->tickets;
        g_array_append_val(g->stale, range);
    }
    if (queued) {
        gate_unref(s, g);
    }
    vj_mutex_unlock(&s->lock);
    return !queued;
}

void vj_gate_stale_take(VjGates *gates, uint64_t ino, uint64_t *offset, uint64_t *len)
{
    Shard *s = shard_of(gates, ino);
    const StaleRange *range;
    VjGate *g;

    vj_mutex_lock(&s->lock);
    g = g_hash_table_lookup(s->gates, &ino);
    g_assert(g != NULL && g->stale->len > 0 && g->staling == 0);
    range = &g_array_index(g->stale, StaleRange, 0);
    *offset = range->from;
    *len = range->to - range->from;
    g->staling = range->ticket;
    forget_marks(g, range->from, range->to);
    g_array_remove_index(g->stale, 0);
    vj_mutex_unlock(&s->lock);
}

bool vj_gate_stale_done(VjGates *gates, uint64_t ino)
{
    Shard *s = shard_of(gates, ino);
    VjGate *g;
    bool more;

    vj_mutex_lock(&s->lock);
    g = g_hash_table_lookup(s->gates, &ino);
    g_assert(g != NULL && g->staling != 0);
    g->staling = 0;
    more = g->stale->len > 0;
    vj_cond_broadcast(&s->changed);
    if (!more) {
        gate_unref(s, g);
    }
    vj_mutex_unlock(&s->lock);
    return more;
}

/* A range with @ticket or an earlier one is being invalidated or waits for it. */
static bool is_pending(const VjGate *g, uint64_t ticket)
{
    return g != NULL && ((g->staling != 0 && g->staling <= ticket) ||
                         (g->stale != NULL && g->stale->len > 0 &&
                          g_array_index(g->stale, StaleRange, 0).ticket <= ticket));
}

bool vj_gate_stale_wait(VjGates *gates, uint64_t ino, uint64_t ticket, int64_t most_us)
{
    Shard *s = shard_of(gates, ino);
    int64_t until_us = vj_clock_mono_us() + most_us;
    bool waiting = true, pending;

    vj_mutex_lock(&s->lock);
    ticket = MIN(ticket, s->tickets);
    while ((pending = is_pending(g_hash_table_lookup(s->gates, &ino), ticket)) &&
           waiting) {
        waiting = vj_cond_wait_until(&s->changed, &s->lock, until_us);
    }
    vj_mutex_unlock(&s->lock);
    return !pending;
}

bool vj_gate_stale_withdraw(VjGates *gates, uint64_t ino, uint64_t ticket)
{
    Shard *s = shard_of(gates, ino);
    const VjGate *g;
    bool found = false;

    vj_mutex_lock(&s->lock);
    g = g_hash_table_lookup(s->gates, &ino);
    /* The first of a queue that nothing is taken from at the moment is promised to a thread. */
    for (guint i = g != NULL && g->staling == 0 ? 1 : 0;
         !found && g != NULL && g->stale != NULL && i < g->stale->len; i++) {
        const StaleRange *range = &g_array_index(g->stale, StaleRange, i);

        found = range->ticket == ticket && !range->shared;
        if (found) {
            g_array_remove_index(g->stale, i);
        }
    }
    vj_mutex_unlock(&s->lock);
    return found;
}
