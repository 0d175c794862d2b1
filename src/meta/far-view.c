/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * far-view.c - reading an engine without snapshots, through the item cache
 *
 * A read finds what is there now.  Whether all that a body reads is of one state is
 * decided differently for each kind of session.
 *
 * Exclusive: it is, as long as no commit beyond the number of the view is on its way to
 * the engine.  That is looked at after each read; where such a commit is on its way, the
 * body runs again.
 *
 * Shared: each item is noted with its version.  Where the engine reports changes before
 * any session can read them, what was read is of one state if no report was of something
 * that was read before; so a body never sees a mixture.  Elsewhere the session asks when
 * the body has ended, if more than one answer of the engine has contributed: the engine
 * says whether all versions are still what they were.  A key that guards a range (each
 * writer of the range changes that key too) is among them.  Nothing says whether the gaps
 * that the cache keeps of such a range are as new as the key, so that walks ask the
 * engine there.
 */
#include "meta/shared-private.h"

static VjSession *session_of(const VjTxn *txn)
{
    return (VjSession *)txn->meta;
}

static VjView *view_of(const VjTxn *txn)
{
    return ((const VjSessionTxn *)txn)->view;
}

void vj_far_clear(VjView *v)
{
    v->scan = NULL;
    while (v->runs != NULL) {
        VjViewRun *run = v->runs;

        v->runs = run->older;
        vj_items_clear(&run->items);
        g_free(run);
    }
}

static VjViewRun *run_add(VjView *v)
{
    VjViewRun *run = g_try_new0(VjViewRun, 1);

    if (run != NULL) {
        run->older = v->runs;
        v->runs = run;
    }
    return run;
}

/* ---- Asking ---------------------------------------------------------------------- */

int vj_far_ask(VjSession *s, const VjKey *keys, size_t count, VjItems *out)
{
    uint64_t ticket = s->cache != NULL ? vj_item_cache_ticket(s->cache) : 0;
    int rc = vj_engine_get_many(s->engine, keys, count, out, vj_cancel_deadline_us());

    if (rc == 0 && s->cache != NULL) {
        vj_item_cache_add(s->cache, ticket, keys, &out->at[out->count - count], count);
    }
    return rc;
}

int vj_far_ask_range(VjSession *s, const VjRange *range, size_t limit, VjItems *out,
                     bool *more)
{
    uint64_t ticket = s->cache != NULL ? vj_item_cache_ticket(s->cache) : 0;
    int rc = vj_engine_scan(s->engine, range, limit, out, more, vj_cancel_deadline_us());

    if (rc == 0 && s->cache != NULL) {
        vj_item_cache_add_run(s->cache, ticket, range, out->at, out->count, *more);
    }
    return rc;
}

/* ---- One state ------------------------------------------------------------------- */

static int run_again(VjTxn *txn)
{
    txn->verdict = -EAGAIN;
    return -EAGAIN;
}

/* Of an exclusive session, after a read. */
static int still_sees(VjSession *s, VjTxn *txn)
{
    bool is_passed;

    vj_mutex_lock(&s->state);
    is_passed = s->applied_seq > view_of(txn)->snapshot.seq;
    vj_mutex_unlock(&s->state);
    g_assert(!is_passed || !txn->write);
    return is_passed ? run_again(txn) : 0;
}

typedef struct Look {
    const VjReadSet *reads;
    bool is_changed;
} Look;

static bool look_at_report(void *opaque, const VjKey *key)
{
    Look *l = opaque;

    l->is_changed = vj_read_set_has(l->reads, key);
    return l->is_changed;
}

/* Where changes are reported before they can be read: was one of what has been read? */
static int check_reports(VjSession *s, VjTxn *txn)
{
    VjReadSet *reads = view_of(txn)->reads;
    Look l = {.reads = reads};
    int rc;

    if (!s->shared->is_prompt ||
        vj_item_cache_last_report(s->cache) == reads->checked_report) {
        return 0;
    }
    rc =
        vj_item_cache_each_reported(s->cache, &reads->checked_report, look_at_report, &l);
    return rc < 0 || l.is_changed ? run_again(txn) : 0;
}

void vj_far_begin(VjSession *s, VjView *v)
{
    v->reads->checked_report = vj_item_cache_last_report(s->cache);
}

/* Have those keys the versions that they had when they were read? */
static int compare_versions(VjSession *s, const VjCheck *checks, size_t count)
{
    g_autofree VjKey *keys = g_try_new(VjKey, count);
    VjItems items = {0};
    int rc = keys == NULL ? -ENOMEM : 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        keys[i] = checks[i].key;
    }
    if (rc == 0) {
        rc = vj_far_ask(s, keys, count, &items);
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = items.at[i].version == checks[i].version ? 0 : -EAGAIN;
    }
    vj_items_clear(&items);
    return rc;
}

/*
 * A version that has not changed from the read until it is asked for again was there all
 * the time between; so all of them were there at one time, when the last read had ended.
 */
int vj_far_validate(VjSession *s, VjTxn *txn)
{
    const VjReadSet *reads = view_of(txn)->reads;
    g_autofree VjCheck *checks = NULL;
    size_t count;
    int rc = 0;

    if (s->shared->is_prompt || reads->sources <= 1) {
        return 0;
    }
    checks = vj_read_set_checks(reads, 1, &count);
    if (checks == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; rc == 0 && i < count; i += VJ_VIEW_EXPECT_KEYS) {
        rc = compare_versions(s, checks + i, MIN(count - i, VJ_VIEW_EXPECT_KEYS));
    }
    return rc;
}

/* ---- One key --------------------------------------------------------------------- */

/* The item of @key in @run; *from_engine: by a call. */
static int fetch(VjSession *s, VjKey key, VjViewRun *run)
{
    int rc = -EAGAIN;

    if (s->cache != NULL) {
        rc = vj_item_cache_get(s->cache, key, &run->items);
    }
    return rc == -EAGAIN ? vj_far_ask(s, &key, 1, &run->items) : rc;
}

static int get_exclusive(VjTxn *txn, VjKey key, VjSlice *value)
{
    VjSession *s = session_of(txn);
    VjViewRun *run = run_add(view_of(txn));
    int rc = run != NULL ? fetch(s, key, run) : -ENOMEM, seen;

    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    seen = still_sees(s, txn);
    if (seen < 0 || rc < 0) {
        return seen < 0 ? seen : rc;
    }
    *value = run->items.at[0].value;
    return run->items.at[0].version == 0 ? -ENOENT : 0;
}

/* It was read: what was read before has to be of the same state. */
static int note(VjTxn *txn, const VjItem *item, bool key_stays)
{
    int rc = vj_read_set_add(view_of(txn)->reads, item, key_stays);

    if (rc == -EAGAIN) {
        return run_again(txn);
    }
    return rc < 0 ? rc : check_reports(session_of(txn), txn);
}

static int get_shared(VjTxn *txn, VjKey key, VjSlice *value)
{
    VjSession *s = session_of(txn);
    VjView *v = view_of(txn);
    const VjRead *before = vj_read_set_find(v->reads, key.space, key.key);
    VjItem item = {.space = key.space, .key = key.key};
    VjViewRun *run;
    int rc;

    if (before != NULL) {
        *value = before->value;
        return before->version == 0 ? -ENOENT : 0;
    }
    rc = check_reports(s, txn); /* those before this read are not of it */
    if (rc < 0) {
        return rc;
    }
    run = run_add(v);
    rc = run != NULL ? fetch(s, key, run) : -ENOMEM;
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    if (rc == 0) {
        item = run->items.at[0];
    }
    v->reads->sources++;
    rc = note(txn, &item, rc == 0);
    *value = item.value;
    return rc == 0 && item.version == 0 ? -ENOENT : rc;
}

int vj_far_get(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value)
{
    VjKey wanted = {.space = space, .key = key};

    return vj_session_is_shared(session_of(txn)) ? get_shared(txn, wanted, value)
                                                 : get_exclusive(txn, wanted, value);
}

/* ---- In order -------------------------------------------------------------------- */

/* The item behind @from of the last scan, where that has it; *ended: there is none. */
static const VjItem *scanned_behind(const VjView *v, VjSpace space, VjSlice from,
                                    bool forward, bool *ended)
{
    VjViewRun *run = v->scan;

    *ended = false;
    if (run == NULL || run->space != space || run->forward != forward ||
        run->next == run->items.count ||
        vj_slice_compare(run->items.at[run->next].key, from) != 0) {
        return NULL;
    }
    if (run->next + 1 == run->items.count) {
        *ended = !run->more;
        return NULL;
    }
    return &run->items.at[++run->next];
}

/*
 * What a call or the cache gave from @from on.  All of it counts as read at once, also
 * what the body has not come to yet: it may come to it when that has changed.
 */
static int note_run(VjView *v, const VjViewRun *run, VjSlice from)
{
    bool has_end = run->items.count == 0 || (v->scan == run && !run->more);
    VjSlice to = has_end ? vj_slice(NULL, 0) : run->items.at[run->items.count - 1].key;

    v->reads->sources++;
    return vj_read_set_add_range(v->reads, run->space, from, to, run->forward);
}

bool vj_far_keeps_walks(const VjSession *s)
{
    return s->cache != NULL && (!vj_session_is_shared(s) || s->shared->is_prompt);
}

/* The first item behind @from, NULL when there is none. */
static int scan(VjTxn *txn, VjSpace space, VjSlice from, bool forward,
                const VjItem **item)
{
    VjSession *s = session_of(txn);
    VjView *v = view_of(txn);
    VjRange range = {.space = space, .backward = !forward, .from = from};
    VjViewRun *run = run_add(v);
    int rc = -EAGAIN;

    *item = NULL;
    if (run == NULL) {
        return -ENOMEM;
    }
    run->space = space;
    run->forward = forward;
    if (vj_far_keeps_walks(s)) {
        rc = vj_item_cache_near(s->cache, space, from, forward, &run->items);
    }
    if (rc == -EAGAIN) {
        rc = vj_far_ask_range(s, &range, VJ_VIEW_RUN_KEYS, &run->items, &run->more);
        v->scan = rc == 0 ? run : NULL;
    }
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    *item = run->items.count > 0 ? &run->items.at[0] : NULL;
    return vj_session_is_shared(s) ? note_run(v, run, from) : still_sees(s, txn);
}

int vj_far_near(VjTxn *txn, VjSpace space, VjSlice from, bool forward, VjSlice *key,
                VjSlice *value)
{
    VjSession *s = session_of(txn);
    bool is_shared = vj_session_is_shared(s), ended;
    int rc = is_shared ? check_reports(s, txn) : 0;
    const VjItem *item = scanned_behind(view_of(txn), space, from, forward, &ended);

    if (rc == 0 && item == NULL && !ended) {
        rc = scan(txn, space, from, forward, &item);
    }
    if (rc == 0 && is_shared) {
        rc = item != NULL ? note(txn, item, true) : check_reports(s, txn);
    }
    if (rc < 0) {
        return rc;
    }
    if (item == NULL) {
        return -ENOENT;
    }
    *key = item->key;
    *value = item->value;
    return 0;
}
