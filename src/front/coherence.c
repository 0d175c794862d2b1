/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * coherence.c - what the kernel's page cache may hold of a file, beside edits
 *
 * The kernel does not know that an edit moves bytes.  An edit is carried out under the
 * kernel's lock of the inode, so no write, append, truncation or other edit is under way
 * meanwhile.  What is left are READs of pages and WRITEs of pages that were stored into
 * through a mapping, which take no such lock.  A state stands for each inode of which one
 * of these is being served, and for each that was edited within the last second.
 *
 * Events, one function each, and what they do in each stage of a state.  It is open or
 * closed; while it is open the kernel may be taking a size, and a window may be open.
 *
 *                    open             closed: an edit  size: the kernel  window: pages in
 *                                     is applied and   takes the one of  old coordinates
 *                                     answered         an edit           may come back
 *
 *  READ of pages     its pages are    waits            waits, if it ends its pages are
 *   pages_begin      held                              behind the size   new ones
 *  WRITE of pages    as it stands     waits            as it stands      pages not read
 *   pages_begin                                                          since are moved
 *  their answer                       the last one                       moved onto a new
 *   pages_end                         lets the edit in                   page: is stale
 *  request under the pages that it    (comes behind    the size is       ends
 *   lock: locked     fills are held   the answer)      taken
 *  an edit           closes, waits    waits for the    taken; READs that ends
 *   edit_begin       for those inside one before       wait come in
 *  its end           opens; then size and window, as its caller says
 *   edit_end
 *  an invalidation   what was held goes, what comes meanwhile is held; in the end the
 *   drop_begin, _end kernel holds nothing else behind one to the end of the file
 *  a direct WRITE    answers whether the kernel may hold a page of its range, which is
 *   direct_written   then invalidated
 *
 * "Held" is what the kernel may hold, so that it is invalidated before an edit, and
 * nothing is where there is none; may_hold asks for it.
 *
 * What READs and WRITEs of pages wait for (requests inside, one vj_fs_replace, the
 * writing of an answer, the run of a thread) never waits for the kernel's page cache.
 * Locks: one a shard, held for a search of at most TOUCHED_MAX ranges.  An insert takes
 * it twice and beside pages six times, a delete three and five times; a READ or WRITE of
 * pages twice, any other write once.
 */
#include "front/front-private.h"

#define SHARDS 32u
/* Ranges of pages that a window remembers one by one. */
#define TOUCHED_MAX 4096u
/* Ranges that the kernel may hold, one by one; then the last one grows. */
#define HELD_MAX 64u
/* Old states looked at when a new one is made: more than one, so that they run out. */
#define SWEEP 2u
/* States without references that are kept in a shard. */
#define RESTING_MAX 256u
/* Windows of a shard that may be open: beyond it an edit that needs one is to be tried
 * again. */
#define WINDOWS_MAX 1024u
/* How long after an edit it is known what the kernel holds. */
#define HOT_US ((int64_t)1000000)
/* How long pages in old coordinates may come back after a change of size, if nothing
 * shows earlier that the kernel is done: it drops a GiB of pages in 0.2 s. */
#define WINDOW_US ((int64_t)60000000)
/* How long a READ waits for the kernel to take another size before it looks whether the
 * thread that got the answer has run, and then from look to look. */
#define SIZED_US ((int64_t)1000)
/* And how long at most: a thread that has a processor to itself may not be seen to
 * run. */
#define SIZED_MOST_US HOT_US
/* Bits of a shard that say which inodes the kernel has had pages of. */
#define PAGED_BITS 32768u
/* Direct WRITEs that invalidate what they wrote, one after the other and no READ between
 * them; then all pages go, so that it is known that there are none. */
#define PAST_MAX 256u

#define NO_PAGE UINT64_MAX

struct VjCoherenceState {
    uint64_t ino;
    unsigned refs;   /* requests, edits, invalidations */
    unsigned inside; /* READs and WRITEs of pages that are being served */
    bool closed;     /* an edit is being applied or answered, or waits for those inside */
    bool let_go;     /* while closed: the kernel has, of the lock of the inode */
    bool resting;    /* in the shard's queue */
    bool window;     /* pages in old coordinates may come back */
    VjEdited edited; /* of the window */
    GArray *touched; /* VjPageRange: read in the window; NULL until needed */
    bool marking;    /* what brings pages is noted in `held` */
    /* From this page on the kernel holds none but `held`.  NO_PAGE: that is not known. */
    uint64_t bare_from;
    uint64_t note_from; /* page: from there on that is noted; bare_from or before it */
    GArray *held;       /* VjPageRange; NULL until needed */
    GArray *leaving;    /* VjPageRange: what of them is being invalidated; likewise */
    unsigned drops;     /* invalidations that are under way */
    uint64_t drops_begun;
    int64_t hot_until_us;
    /* The kernel is taking another size: READs that go behind sized_from wait.  Behind a
     * smaller end they would be shown zeroes up to the old one; the page of the old end
     * is cleared behind it if it is stored into and written back before the kernel knows
     * of a larger one. */
    uint64_t sized_from;
    int64_t sized_until_us; /* 0: it has taken it */
    int64_t sized_us;       /* since when */
    uint64_t sized_run_ns;  /* of size_owner, when it was looked at; 0: never */
    uint64_t sized_number;  /* of such sizes */
    pid_t size_owner;       /* whose next request shows that it has */
    unsigned size_waiters;  /* READs */
    unsigned past;          /* direct WRITEs that had to invalidate since the last READ */
};

typedef struct Shard {
    VjMutex lock; /* VJ_RANK_FRONT_COHERENCE */
    VjCond changed;
    /* guarded by lock: */
    GHashTable *states; /* uint64_t* in VjCoherenceState → VjCoherenceState */
    GQueue resting;     /* states without references that may be hot, oldest first */
    unsigned windows;   /* states with one */
    uint8_t paged[PAGED_BITS / 8]; /* by a hash of the inode; never cleared */
} Shard;

struct VjCoherence {
    Shard shard[SHARDS];
};

static void state_free(gpointer data)
{
    VjCoherenceState *s = data;

    g_assert(s->refs == 0);
    g_clear_pointer(&s->touched, g_array_unref);
    g_clear_pointer(&s->held, g_array_unref);
    g_clear_pointer(&s->leaving, g_array_unref);
    g_free(s);
}

VjCoherence *vj_coherence_new(void)
{
    VjCoherence *c = g_new0(VjCoherence, 1);

    for (unsigned i = 0; i < SHARDS; i++) {
        Shard *shard = &c->shard[i];

        vj_mutex_init(&shard->lock, VJ_RANK_FRONT_COHERENCE, "front coherence");
        vj_cond_init(&shard->changed);
        shard->states =
            g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, state_free);
        g_queue_init(&shard->resting);
    }
    return c;
}

void vj_coherence_free(VjCoherence *c)
{
    if (c == NULL) {
        return;
    }
    for (unsigned i = 0; i < SHARDS; i++) {
        Shard *shard = &c->shard[i];

        g_queue_clear(&shard->resting);
        g_hash_table_unref(shard->states);
        vj_cond_clear(&shard->changed);
        vj_mutex_clear(&shard->lock);
    }
    g_free(c);
}

static uint64_t hash_of(uint64_t ino)
{
    return ino * UINT64_C(0x9e3779b97f4a7c15);
}

static Shard *shard_of(VjCoherence *c, uint64_t ino)
{
    return &c->shard[hash_of(ino) >> 59];
}

static void state_remove(Shard *shard, VjCoherenceState *s) VJ_REQUIRES(shard->lock)
{
    shard->windows -= s->window ? 1 : 0;
    g_hash_table_remove(shard->states, &s->ino);
}

/* Frees states that have been cold for long enough, or are too many. */
static void sweep(Shard *shard) VJ_REQUIRES(shard->lock)
{
    int64_t now_us = vj_clock_mono_us();

    for (unsigned i = 0; i < SWEEP; i++) {
        VjCoherenceState *s = g_queue_peek_head(&shard->resting);
        bool hot = s != NULL && s->hot_until_us > now_us;

        if (s == NULL || (hot && g_queue_get_length(&shard->resting) <= RESTING_MAX)) {
            return;
        }
        g_queue_pop_head(&shard->resting);
        if (hot && s->window) {
            g_queue_push_tail(&shard->resting, s); /* must not be forgotten yet */
            continue;
        }
        s->resting = false;
        if (s->refs == 0) {
            state_remove(shard, s);
        }
    }
}

static VjCoherenceState *state_ref(Shard *shard, uint64_t ino) VJ_REQUIRES(shard->lock)
{
    VjCoherenceState *s = g_hash_table_lookup(shard->states, &ino);

    if (s == NULL) {
        sweep(shard);
        s = g_new0(VjCoherenceState, 1);
        s->ino = ino;
        s->bare_from = s->note_from = NO_PAGE;
        g_hash_table_insert(shard->states, &s->ino, s);
    }
    s->refs++;
    return s;
}

static void state_unref(Shard *shard, VjCoherenceState *s) VJ_REQUIRES(shard->lock)
{
    g_assert(s->refs > 0);
    if (--s->refs > 0 || s->resting) {
        return;
    }
    if (s->hot_until_us > vj_clock_mono_us()) {
        s->resting = true;
        g_queue_push_tail(&shard->resting, s);
    } else {
        state_remove(shard, s);
    }
}

/* ---- the window -------------------------------------------------------------------- */

static void touch(VjCoherenceState *s, VjPageRange r)
{
    if (!vj_ranges_add(&s->touched, TOUCHED_MAX, r)) {
        vj_log_warn(
            "inode %" G_GUINT64_FORMAT
            ": too many scattered reads during one edit to tell mapped pages apart",
            s->ino);
    }
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

/* Old coordinates [from, to): what lay before the edit stays, what it replaced is gone,
 * what lay behind has moved. */
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

/* Pages that come back in the window: page by page, old or new coordinates. */
static GArray *split(const VjCoherenceState *s, uint64_t offset, uint64_t len)
{
    GArray *parts = g_array_new(FALSE, FALSE, sizeof(VjPassPart));
    uint64_t end = offset + len, at = offset;

    while (at < end) {
        uint64_t page = at / VJ_PAGE_BYTES;
        uint64_t to = MIN(end, (page + 1) * VJ_PAGE_BYTES);

        if (vj_ranges_meet(s->touched, (VjPageRange){page, page})) {
            part_add(parts, at - offset, at, to - at);
        } else {
            part_shift(parts, &s->edited, offset, at, to);
        }
        at = to;
    }
    return parts;
}

/* A WRITE in old coordinates is in the file.  Where its bytes were moved to, a page that
 * was read since the edit lacks them and is invalidated.  Nothing else is: the kernel
 * would write its dirty pages back, and no lock orders that with what follows the
 * edit. */
static void note_stale(const VjCoherenceState *s, VjPass *pass)
{
    uint64_t end = 0;

    for (guint i = 0; i < pass->parts->len; i++) {
        const VjPassPart *p = &g_array_index(pass->parts, VjPassPart, i);

        if (p->offset == pass->offset + p->skip ||
            (s->window && !vj_ranges_meet(s->touched, vj_pages_of(p->offset, p->len)))) {
            continue;
        }
        pass->stale_offset = end == 0 ? p->offset : MIN(pass->stale_offset, p->offset);
        end = MAX(end, p->offset + p->len);
        pass->stale_len = end - pass->stale_offset;
    }
}

static void window_end(Shard *shard, VjCoherenceState *s) VJ_REQUIRES(shard->lock)
{
    shard->windows -= s->window ? 1 : 0;
    s->window = false;
    if (s->touched != NULL) {
        g_array_set_size(s->touched, 0);
    }
}

/* ---- what the kernel may hold ------------------------------------------------------ */

/*
 * Why it is known.  A page that the kernel can show or write back is up to date.  It
 * becomes so by a READ or by a plain WRITE that fills it, and by nothing else.  Both are
 * noted here: a READ when it comes in, a WRITE when it comes in, which is before the next
 * edit, since both take the lock of the inode.  A READ that has not come in yet will be
 * answered after the edit.  So a page that is not noted by the time that those inside
 * have left shows nothing old.
 *
 * What the kernel held before this state was made is not known: an invalidation to the
 * end of the file takes all that away.  It waits for locked pages, which are those of
 * READs that came in before it began, so their notes go with it when it is over; what
 * comes in later is noted anew, also where nothing was known before: the invalidation may
 * have passed that page already.
 */
static bool may_hold(const VjCoherenceState *s, VjPageRange r)
{
    if (!s->marking || r.first < s->bare_from) {
        return true;
    }
    return vj_ranges_meet(s->held, r) || vj_ranges_meet(s->leaving, r);
}

/* Bytes: from there on the kernel holds no page.  UINT64_MAX: that is not known. */
static uint64_t held_end(const VjCoherenceState *s)
{
    const GArray *sets[] = {s->held, s->leaving};
    uint64_t end = s->marking ? s->bare_from : NO_PAGE;

    for (size_t k = 0; k < G_N_ELEMENTS(sets); k++) {
        for (guint i = 0; sets[k] != NULL && i < sets[k]->len; i++) {
            uint64_t last = g_array_index(sets[k], VjPageRange, i).last;

            end = MAX(end, last == NO_PAGE ? NO_PAGE : last + 1);
        }
    }
    return end > UINT64_MAX / VJ_PAGE_BYTES ? UINT64_MAX : end * VJ_PAGE_BYTES;
}

static unsigned paged_bit(uint64_t ino)
{
    return (unsigned)(hash_of(ino) >> 44) % PAGED_BITS;
}

static void note_paged(Shard *shard, uint64_t ino) VJ_REQUIRES(shard->lock)
{
    unsigned bit = paged_bit(ino);

    shard->paged[bit / 8] |= (uint8_t)(1u << bit % 8);
}

static bool was_paged(const Shard *shard, uint64_t ino) VJ_REQUIRES(shard->lock)
{
    unsigned bit = paged_bit(ino);

    return (shard->paged[bit / 8] & (1u << bit % 8)) != 0;
}

static void note_held(VjCoherenceState *s, VjPageRange r)
{
    if (s->marking && r.last >= s->note_from) {
        (void)vj_ranges_add(&s->held, HELD_MAX, r);
    }
}

bool vj_coherence_may_hold(VjCoherence *c, uint64_t ino, uint64_t offset, uint64_t len)
{
    Shard *shard = shard_of(c, ino);
    const VjCoherenceState *s;
    bool may;

    vj_mutex_lock(&shard->lock);
    s = g_hash_table_lookup(shard->states, &ino);
    may = s == NULL || may_hold(s, vj_pages_from(offset, len));
    vj_mutex_unlock(&shard->lock);
    return may;
}

bool vj_coherence_direct_written(VjCoherence *c, uint64_t ino, uint64_t *offset,
                                 uint64_t *len)
{
    Shard *shard = shard_of(c, ino);
    bool may = false;
    VjCoherenceState *s;

    vj_mutex_lock(&shard->lock);
    if (was_paged(shard, ino)) {
        s = state_ref(shard, ino);
        s->hot_until_us = MAX(s->hot_until_us, vj_clock_mono_us() + HOT_US);
        may = may_hold(s, vj_pages_of(*offset, *len));
        if (may && ++s->past >= PAST_MAX) {
            s->past = 0;
            *offset = *len = 0;
        }
        state_unref(shard, s);
    }
    vj_mutex_unlock(&shard->lock);
    return may;
}

void vj_coherence_drop_begin(VjCoherence *c, uint64_t ino, uint64_t offset, uint64_t len,
                             VjDrop *drop)
{
    Shard *shard = shard_of(c, ino);
    VjPageRange r = vj_pages_from(offset, len);
    VjCoherenceState *s;

    vj_mutex_lock(&shard->lock);
    s = state_ref(shard, ino);
    s->marking = true;
    for (guint i = 0; s->held != NULL && i < s->held->len; i++) {
        VjPageRange t = g_array_index(s->held, VjPageRange, i);

        if (t.first <= r.last && r.first <= t.last) {
            (void)vj_ranges_add(
                &s->leaving, HELD_MAX,
                (VjPageRange){MAX(t.first, r.first), MIN(t.last, r.last)});
        }
    }
    vj_ranges_remove(s->held, HELD_MAX, r);
    if (len == 0) {
        s->note_from = MIN(s->note_from, offset / VJ_PAGE_BYTES);
    }
    s->drops++;
    *drop = (VjDrop){s, offset, len, ++s->drops_begun};
    vj_mutex_unlock(&shard->lock);
}

/* What was noted before the invalidation began is gone with it, and nothing that came
 * later. */
static void drop_left(VjCoherenceState *s, const VjDrop *drop)
{
    if (--s->drops == 0 && s->leaving != NULL) {
        g_array_set_size(s->leaving, 0);
    } else if (drop->number == s->drops_begun) {
        vj_ranges_remove(s->leaving, HELD_MAX, vj_pages_from(drop->offset, drop->len));
    }
}

void vj_coherence_drop_end(VjCoherence *c, VjDrop *drop, bool ok)
{
    VjCoherenceState *s = drop->state;
    Shard *shard = shard_of(c, s->ino);

    vj_mutex_lock(&shard->lock);
    drop_left(s, drop);
    if (!ok) {
        s->bare_from = NO_PAGE;
    } else if (drop->len == 0) {
        s->bare_from = MIN(s->bare_from, drop->offset / VJ_PAGE_BYTES);
    }
    s->hot_until_us = MAX(s->hot_until_us, vj_clock_mono_us() + HOT_US);
    state_unref(shard, s);
    vj_mutex_unlock(&shard->lock);
}

/* ---- requests ---------------------------------------------------------------------- */

static void size_taken(Shard *shard, VjCoherenceState *s) VJ_REQUIRES(shard->lock)
{
    if (s->sized_until_us != 0) {
        s->sized_until_us = 0;
        vj_cond_broadcast(&shard->changed);
    }
}

/*
 * Whether the kernel has taken the size: the thread that got the answer does so as soon
 * as it has a processor.  It is woken by the answer, so it has run if it sleeps again, or
 * if its time goes on.
 */
static void look_for_size(Shard *shard, VjCoherenceState *s) VJ_REQUIRES(shard->lock)
{
    uint64_t number = s->sized_number, run_ns = 0;
    pid_t tid = s->size_owner;
    int64_t now_us = vj_clock_mono_us();
    bool waits;

    vj_mutex_unlock(&shard->lock);
    waits = vj_thread_is_runnable(tid, &run_ns);
    vj_mutex_lock(&shard->lock);
    if (s->sized_number != number || s->sized_until_us == 0) {
        return;
    }
    if (!waits || (s->sized_run_ns != 0 && s->sized_run_ns != run_ns) ||
        now_us - s->sized_us > SIZED_MOST_US) {
        size_taken(shard, s);
    } else {
        s->sized_run_ns = run_ns;
        s->sized_until_us = now_us + SIZED_US;
    }
}

static void wait_for_size(Shard *shard, VjCoherenceState *s) VJ_REQUIRES(shard->lock)
{
    if (s->sized_until_us > vj_clock_mono_us()) {
        (void)vj_cond_wait_until(&shard->changed, &shard->lock, s->sized_until_us);
    } else {
        look_for_size(shard, s);
    }
}

static int wait_for_change(Shard *shard) VJ_REQUIRES(shard->lock)
{
    return vj_cond_wait_or_cancel(&shard->changed, &shard->lock, INT64_MAX);
}

/* Until no edit is being applied, and a READ up to @end is not ahead of the kernel. */
static int wait_to_enter(Shard *shard, VjCoherenceState *s, VjPassKind kind, uint64_t end,
                         pid_t who) VJ_REQUIRES(shard->lock)
{
    int r = 0;

    while (r == 0) {
        if (s->closed) {
            r = wait_for_change(shard);
        } else if (kind != VJ_PASS_READ || s->sized_until_us == 0 ||
                   end <= s->sized_from || (who != 0 && who == s->size_owner)) {
            return 0;
        } else {
            s->size_waiters++;
            wait_for_size(shard, s);
            if (--s->size_waiters == 0) {
                vj_cond_broadcast(&shard->changed);
            }
        }
    }
    return r;
}

static void enter(Shard *shard, VjCoherenceState *s, VjPassKind kind, VjPass *pass,
                  uint64_t offset, uint64_t len) VJ_REQUIRES(shard->lock)
{
    s->inside++;
    *pass = (VjPass){.state = s, .offset = offset};
    if (kind == VJ_PASS_READ) {
        note_paged(shard, s->ino);
        s->past = 0;
        note_held(s, vj_pages_of(offset, len));
        if (s->window) {
            touch(s, vj_pages_of(offset, len));
        }
    } else if (s->window) {
        pass->parts = split(s, offset, len);
    }
}

int vj_coherence_pages_begin(VjCoherence *c, uint64_t ino, VjPassKind kind,
                             uint64_t offset, uint64_t len, pid_t who, VjPass *pass)
{
    Shard *shard = shard_of(c, ino);
    VjCoherenceState *s;
    int r;

    vj_mutex_lock(&shard->lock);
    s = state_ref(shard, ino);
    r = wait_to_enter(shard, s, kind, offset + len, who);
    if (r == 0) {
        enter(shard, s, kind, pass, offset, len);
    } else {
        state_unref(shard, s);
    }
    vj_mutex_unlock(&shard->lock);
    return r;
}

void vj_coherence_pages_end(VjCoherence *c, VjPass *pass)
{
    VjCoherenceState *s = pass->state;
    Shard *shard = shard_of(c, s->ino);

    vj_mutex_lock(&shard->lock);
    if (pass->parts != NULL) {
        note_stale(s, pass);
        g_clear_pointer(&pass->parts, g_array_unref);
    }
    g_assert(s->inside > 0);
    if (--s->inside == 0 && s->closed) {
        vj_cond_broadcast(&shard->changed);
    }
    state_unref(shard, s);
    vj_mutex_unlock(&shard->lock);
}

void vj_coherence_locked(VjCoherence *c, uint64_t ino, uint64_t offset, uint64_t len)
{
    Shard *shard = shard_of(c, ino);
    VjCoherenceState *s;

    vj_mutex_lock(&shard->lock);
    s = g_hash_table_lookup(shard->states, &ino);
    if (len > 0) {
        note_paged(shard, ino);
    }
    if (s != NULL) {
        window_end(shard, s);
        size_taken(shard, s);
        s->let_go = s->closed;
        if (len > 0) {
            note_held(s, vj_pages_of(offset, len));
        }
    }
    vj_mutex_unlock(&shard->lock);
}

/* ---- edits ------------------------------------------------------------------------- */

/* One more window may be open.  Those that are over, and that no request has asked for,
 * go first. */
static bool has_room(Shard *shard) VJ_REQUIRES(shard->lock)
{
    if (shard->windows >= WINDOWS_MAX) {
        sweep(shard);
    }
    return shard->windows < WINDOWS_MAX;
}

/* Until the edit before is over, and no READ waits for the kernel to take its size: those
 * come in first, or would wait for one edit after the other. */
static int wait_to_close(Shard *shard, VjCoherenceState *s) VJ_REQUIRES(shard->lock)
{
    int r = 0;

    while (r == 0) {
        /* The one before is answered, and just not over. */
        while (r == 0 && s->closed) {
            r = wait_for_change(shard);
        }
        if (r == 0) {
            window_end(shard, s);
            size_taken(shard, s);
            if (s->size_waiters == 0) {
                return 0;
            }
            r = wait_for_change(shard);
        }
    }
    return r;
}

/* Those inside may wait for a store that hangs. */
static int close_behind_all(Shard *shard, VjCoherenceState *s) VJ_REQUIRES(shard->lock)
{
    int r = 0;

    s->closed = true;
    s->let_go = false;
    while (r == 0 && s->inside > 0) {
        r = wait_for_change(shard);
    }
    if (r < 0) {
        s->closed = false;
        vj_cond_broadcast(&shard->changed);
    }
    return r;
}

int vj_coherence_edit_begin(VjCoherence *c, uint64_t ino, uint64_t offset, uint64_t len,
                            VjEditPass *pass)
{
    Shard *shard = shard_of(c, ino);
    VjCoherenceState *s;
    int r;

    vj_mutex_lock(&shard->lock);
    s = state_ref(shard, ino);
    r = wait_to_close(shard, s);
    if (r == 0) {
        r = close_behind_all(shard, s);
    }
    if (r == 0) {
        *pass = (VjEditPass){.state = s,
                             .may_hold = may_hold(s, vj_pages_from(offset, len)),
                             .has_room = has_room(shard),
                             .held_end = held_end(s)};
        s->marking = true;
    } else {
        state_unref(shard, s);
    }
    vj_mutex_unlock(&shard->lock);
    return r;
}

/* The kernel takes the size of the answer when the thread @tid, which got it, runs.  A
 * request under the lock of the inode that came before this shows that it has. */
static void size_begin(VjCoherenceState *s, const VjEdited *edited, pid_t tid)
{
    uint64_t rest = edited->old_size % VJ_PAGE_BYTES;

    if (s->let_go || edited->size == edited->old_size ||
        (edited->size > edited->old_size && rest == 0)) {
        return;
    }
    s->sized_from = MIN(edited->size, edited->old_size - rest);
    s->sized_us = vj_clock_mono_us();
    s->sized_until_us = s->sized_us + SIZED_US;
    s->sized_run_ns = 0;
    s->sized_number++;
    s->size_owner = tid;
}

void vj_coherence_edit_end(VjCoherence *c, VjEditPass *pass, const VjEdited *edited,
                           VjWindow window, const VjCaller *answered)
{
    VjCoherenceState *s = g_steal_pointer(&pass->state);
    Shard *shard = shard_of(c, s->ino);
    bool has_window = window != VJ_WINDOW_NONE;

    vj_mutex_lock(&shard->lock);
    g_assert(s->closed && s->inside == 0 && !s->window);
    s->closed = false;
    s->window = has_window;
    if (has_window) {
        shard->windows++;
        s->edited = *edited;
    }
    if (answered != NULL) {
        size_begin(s, edited, answered->pid);
    }
    s->hot_until_us = vj_clock_mono_us() + (has_window ? WINDOW_US : HOT_US);
    vj_cond_broadcast(&shard->changed);
    state_unref(shard, s);
    vj_mutex_unlock(&shard->lock);
}
