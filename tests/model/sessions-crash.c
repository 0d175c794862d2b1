/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sessions-crash.c - a session begins, ends in order, or in a crash at any call
 *
 * There are three ways to crash.  From some call of the engine on none reaches it; that
 * one may be done without an answer.  Or the same happens at a call of the store, and the
 * engine hears of the session for a while.  Or another session shuts it out, and it goes
 * on until it finds that out.  In each of them what it had in memory is thrown away, and
 * the session that takes its place, opened before or after that, shuts it out.
 */
#include "sessions.h"

#include "../lib/shut-out.h"
#include "object/object.h"

/* Of objects; so that most reads are of the store. */
#define CACHE_BYTES ((uint64_t)64 << 10)

/* Commits of a session among which the one is chosen that gets no answer, and how many
 * calls later it is done at most. */
#define COMMITS_DRAWN 200u
#define LATE_MOST 4u

/* One in so many sessions reads a store that takes its time. */
#define SLOW_STORES 3u

/* What the caller and the world have of a session that is given up. */
typedef struct Old {
    VjVolume *v;
    VjFs *fs;
    VjHandle *handles[HANDLES];
} Old;

bool life_goes_on(World *w, uint64_t life)
{
    bool goes_on = false;

    pthread_mutex_lock(&w->lives);
    for (unsigned k = 0; k < w->o.sessions; k++) {
        const Session *s = &w->sessions[k];

        goes_on = goes_on || (s->life == life && s->over != life);
    }
    pthread_mutex_unlock(&w->lives);
    return goes_on;
}

bool session_timed_out(Session *s, int r)
{
    if (!s->loses || r != -ETIMEDOUT) {
        return false;
    }
    COUNT(s->w, timed_out);
    return true;
}

/* ---- shutting out ---------------------------------------------------------------- */

static int shut_out(Session *s, uint64_t number)
{
    return vj_test_shut_out(vj_volume_meta(s->v), number);
}

/* All of its name but itself: they belong to a machine that is not there any more. */
static void shut_out_predecessors(Session *s, const char *name)
{
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(VjSessionInfo));
    int r = vj_meta_sessions(vj_volume_meta(s->v), all);

    for (guint i = 0; r == 0 && i < all->len; i++) {
        const VjSessionInfo *info = &g_array_index(all, VjSessionInfo, i);

        if (strcmp(info->name, name) == 0 && info->id != s->number && !info->has_ended) {
            r = shut_out(s, info->id);
            r = session_timed_out(s, r) ? shut_out(s, info->id) : r;
            r = r == -ENOENT ? 0 : r; /* it was released meanwhile */
        }
    }
    if (r != 0 && !session_is_dead(s)) {
        fail(s, "shutting out what was there before: %s", g_strerror(-r));
    }
}

void session_await_release(Session *s)
{
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(VjSessionInfo));

    doing(s, "wait until those that crashed are released");
    do {
        int r = vj_meta_sessions(vj_volume_meta(s->v), all);

        if (r != 0) {
            fail(s, "%s", g_strerror(-r));
        }
        g_usleep(LOOK_US);
    } while (all->len != s->w->o.sessions);
}

void session_evict_another(Session *s)
{
    World *w = s->w;
    Session *other = &w->sessions[vj_rng_below(&s->rng, w->o.sessions)];
    uint64_t number;
    int r;

    if (other == s) {
        return;
    }
    pthread_mutex_lock(&w->lives);
    number = other->target;
    other->over = number != 0 ? other->life : other->over;
    pthread_mutex_unlock(&w->lives);
    if (number == 0) {
        return;
    }
    doing(s, "shut out session %u", other->index);
    r = shut_out(s, number);
    if (r != 0 && r != -ENOENT && !session_is_dead(s) && !session_timed_out(s, r)) {
        fail(s, "%s", g_strerror(-r));
    }
}

/* ---- write-back beside what the session's thread does ---------------------------- */

static gpointer syncer_main(gpointer opaque)
{
    Session *s = opaque;

    pthread_mutex_lock(&s->sync_lock);
    while (!s->syncer_ends) {
        if (s->syncs == 0) {
            pthread_cond_wait(&s->sync_wanted, &s->sync_lock);
            continue;
        }
        s->syncs = 0;
        pthread_mutex_unlock(&s->sync_lock);
        (void)!vj_volume_sync(s->v); /* who calls fsync hears of it */
        pthread_mutex_lock(&s->sync_lock);
    }
    pthread_mutex_unlock(&s->sync_lock);
    return NULL;
}

void session_sync_soon(Session *s)
{
    pthread_mutex_lock(&s->sync_lock);
    s->syncs++;
    pthread_cond_signal(&s->sync_wanted);
    pthread_mutex_unlock(&s->sync_lock);
}

static void syncer_start(Session *s)
{
    s->syncer_ends = false;
    s->syncs = 0;
    s->syncer = g_thread_new("syncer", syncer_main, s);
}

static void syncer_stop(Session *s)
{
    pthread_mutex_lock(&s->sync_lock);
    s->syncer_ends = true;
    pthread_cond_signal(&s->sync_wanted);
    pthread_mutex_unlock(&s->sync_lock);
    g_thread_join(g_steal_pointer(&s->syncer));
}

/* ---- in order -------------------------------------------------------------------- */

/* What is put around its engine; owned.  @loses: one commit gets no answer. */
static char *wrappers(Session *s, bool is_far, bool loses)
{
    static const char *const far[] = {"latency:us=0;", "latency:us=20;"};
    static const char *const kinds[] = {"lose", "drop", "late"};
    const char *latency = is_far ? far[vj_rng_below(&s->rng, 2)] : "";
    const char *kind = kinds[vj_rng_below(&s->rng, G_N_ELEMENTS(kinds))];

    if (!loses) {
        return g_strdup_printf("%scrash", latency);
    }
    return g_strdup_printf("%scrash:%s=%" G_GUINT64_FORMAT ",by=%" G_GUINT64_FORMAT,
                           latency, kind, 1 + vj_rng_below(&s->rng, COMMITS_DRAWN),
                           1 + vj_rng_below(&s->rng, LATE_MOST));
}

static bool try_to_open(Session *s, const char *name, const char *wrap, GError **error)
{
    VjVolumeOpen how = {.source = s->w->source,
                        .shared = true,
                        .session_name = name,
                        .workers = 2,
                        .cache_bytes = CACHE_BYTES,
                        .wrap_store = vj_rng_below(&s->rng, SLOW_STORES) == 0
                                          ? "fault:kinds=get,delay_us=200"
                                          : "fault",
                        .wrap_meta = wrap};

    return vj_volume_open(&how, &s->v, error);
}

void session_open(Session *s)
{
    World *w = s->w;
    bool is_far = w->o.far > 0 && vj_rng_below(&s->rng, w->o.far) == 0;
    g_autoptr(GError) error = NULL;
    g_autofree char *name = g_strdup_printf("session %u", s->index);
    g_autofree char *wrap = NULL, *plain = wrappers(s, is_far, false);

    doing(s, "begin a session");
    s->loses = w->o.crashes > 0 && vj_rng_below(&s->rng, 2) == 0;
    wrap = wrappers(s, is_far, s->loses);
    if (s->loses && !try_to_open(s, name, wrap, NULL)) {
        s->loses = false; /* the answer was one that opening waited for */
    }
    if (!s->loses && !try_to_open(s, name, plain, &error)) {
        fail(s, "%s", error->message);
    }
    s->fs = vj_fs_new(s->v);
    s->is_armed = false;
    s->store_calls = 0;
    pthread_mutex_lock(&w->lives);
    COUNT(w, lives);
    s->life = w->counts.lives;
    s->number = vj_meta_session(vj_volume_meta(s->v));
    pthread_mutex_unlock(&w->lives);
    if (is_far) {
        COUNT(w, far);
    }
    syncer_start(s);
    shut_out_predecessors(s, name);
}

void session_is_used(Session *s)
{
    if (s->target != s->number) {
        pthread_mutex_lock(&s->w->lives);
        s->target = s->number;
        pthread_mutex_unlock(&s->w->lives);
    }
}

/* Nobody is to shut it out from now on. */
static void life_is_over(Session *s)
{
    pthread_mutex_lock(&s->w->lives);
    s->over = s->life;
    s->target = 0;
    pthread_mutex_unlock(&s->w->lives);
}

static void add_counts(Session *s)
{
    VjObjectsStats objects;
    VjMetaStats stats;

    vj_meta_stats(vj_volume_meta(s->v), &stats);
    (void)__atomic_add_fetch(&s->w->counts.conflicts, stats.conflicts, __ATOMIC_RELAXED);
    vj_objects_stats(vj_volume_objects(s->v), &objects);
    (void)__atomic_add_fetch(&s->w->counts.removed, objects.removed, __ATOMIC_RELAXED);
}

bool session_close(Session *s)
{
    int r;

    doing(s, "end the session");
    life_is_over(s);
    syncer_stop(s);
    add_counts(s);
    vj_fs_free(s->fs);
    r = vj_volume_close(s->v);
    s->fs = NULL;
    s->v = NULL;
    if (r != 0 && !s->is_armed && !s->loses) {
        fail(s, "%s", g_strerror(-r));
    }
    if (r != 0) {
        COUNT(s->w, crashes);
    }
    return r == 0;
}

/* ---- crashes --------------------------------------------------------------------- */

static void arm_engine(Session *s, unsigned calls)
{
    uint64_t after = vj_rng_below(&s->rng, calls);
    bool is_done = vj_rng_below(&s->rng, 2) == 0;

    vj_meta_crash_after(vj_volume_meta(s->v), after, is_done);
}

static void arm_store(Session *s, unsigned calls)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *plan = NULL;

    s->store_calls = 1 + vj_rng_below(&s->rng, calls);
    plan =
        g_strdup_printf("fail=%" G_GUINT64_FORMAT ",times=0,errno=EIO%s", s->store_calls,
                        vj_rng_below(&s->rng, 2) == 0 ? ",after=yes" : "");
    if (!vj_store_fault_set(vj_volume_store(s->v), plan, &error)) {
        fail(s, "%s", error->message);
    }
}

void session_arm(Session *s, unsigned calls)
{
    uint64_t how = vj_rng_below(&s->rng, 4);

    s->is_armed = true;
    if (how != 0) {
        arm_engine(s, calls);
    }
    if (how <= 1) {
        arm_store(s, calls);
    }
}

static bool is_evicted(Session *s)
{
    bool is_over;

    pthread_mutex_lock(&s->w->lives);
    is_over = s->over == s->life;
    pthread_mutex_unlock(&s->w->lives);
    return is_over;
}

static bool engine_is_gone(Session *s)
{
    return vj_meta_has_crashed(vj_volume_meta(s->v));
}

static bool store_is_gone(Session *s)
{
    return s->store_calls > 0 &&
           vj_store_fault_calls(vj_volume_store(s->v)) >= s->store_calls;
}

bool session_is_dead(Session *s)
{
    return engine_is_gone(s) || store_is_gone(s) || is_evicted(s);
}

/* Nothing of it reaches engine or store any more. */
static void stop(Session *s)
{
    g_autoptr(GError) error = NULL;

    vj_meta_crash_after(vj_volume_meta(s->v), 0, false);
    if (!vj_store_fault_set(vj_volume_store(s->v), "every=1,errno=EIO", &error)) {
        fail(s, "%s", error->message);
    }
}

static void count_crash(Session *s)
{
    COUNT(s->w, crashes);
    if (engine_is_gone(s)) {
        COUNT(s->w, by_engine);
    } else if (store_is_gone(s)) {
        COUNT(s->w, by_store);
    } else {
        COUNT(s->w, by_eviction);
    }
}

static Old take_old(Session *s)
{
    Old old = {.v = s->v, .fs = s->fs};

    for (unsigned k = 0; k < HANDLES; k++) {
        old.handles[k] = g_steal_pointer(&s->handles[k].h);
    }
    return old;
}

/* It may fail in any way. */
static void abandon(const Old *old)
{
    for (unsigned k = 0; k < HANDLES; k++) {
        if (old->handles[k] != NULL) {
            vj_fs_release(old->fs, old->handles[k]);
        }
    }
    vj_fs_free(old->fs);
    (void)!vj_volume_close(old->v);
}

void session_crash(Session *s)
{
    bool first = vj_rng_below(&s->rng, 2) == 0, goes_on = vj_rng_below(&s->rng, 4) == 0;
    char was_doing[sizeof s->doing];
    Old old;

    count_crash(s);
    add_counts(s);
    life_is_over(s);
    if (!goes_on || engine_is_gone(s)) {
        stop(s);
    }
    syncer_stop(s);
    s->crashed = true;
    old = take_old(s);
    memcpy(was_doing, s->doing, sizeof was_doing);
    if (first) {
        abandon(&old);
    }
    session_open(s);
    if (!first) {
        abandon(&old);
    }
    memcpy(s->doing, was_doing, sizeof was_doing);
}
