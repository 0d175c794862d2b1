/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wrap-fault.c - the wrapper that fails, damages, delays and throttles, for tests
 *
 * Each call of a kind in kinds= has a number, from 1, counted since the options were last
 * set.  What happens to a call is decided under the lock from that number; the waiting
 * and the wrapped call come after it, so that calls overlap as on a real device.  A call
 * of another kind passes through, but for bps, which holds for all puts and gets.
 *
 * Two files let a test say when, without a word to the process: with hold=FILE counted
 * calls wait as long as a process has FILE locked (flock(2)), with if=FILE they fail, by
 * fail= or every=, only while FILE is there.
 */
#include "store/store-private.h"

#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

typedef enum FaultKind {
    KIND_PUT = 1 << 0,
    KIND_GET = 1 << 1,
    KIND_REMOVE = 1 << 2,
    KIND_FLUSH = 1 << 3,
    KIND_EACH = 1 << 4,
    KIND_SPACE = 1 << 5,
    KIND_STAGE = 1 << 6,
    KIND_FLUSH_REMOVES = 1 << 7,
} FaultKind;

static const struct {
    const char *name;
    FaultKind kind;
} kind_names[] = {
    {"put", KIND_PUT},       {"get", KIND_GET},
    {"remove", KIND_REMOVE}, {"flush", KIND_FLUSH},
    {"each", KIND_EACH},     {"space", KIND_SPACE},
    {"stage", KIND_STAGE},   {"flush_removes", KIND_FLUSH_REMOVES},
};

static const struct {
    const char *name;
    int error;
} error_names[] = {
    {"EIO", EIO},       {"ENOSPC", ENOSPC},       {"EDQUOT", EDQUOT},
    {"EROFS", EROFS},   {"ETIMEDOUT", ETIMEDOUT}, {"EBADMSG", EBADMSG},
    {"ENOENT", ENOENT},
};

#define KINDS_DEFAULT "put+get+remove+flush+each+space+stage+flush_removes"
#define ERRORS "EIO|ENOSPC|EDQUOT|EROFS|ETIMEDOUT|EBADMSG|ENOENT"

const VjOptSpec vj_store_fault_options[] = {
    {.name = "kinds",
     .type = VJ_OPT_STRING,
     .fallback = KINDS_DEFAULT,
     .help = "calls that are counted, joined by +"},
    {.name = "fail",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .help = "number of the first counted call that fails; 0: none"},
    {.name = "every",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .help = "every so many counted calls one fails; 0: none"},
    {.name = "times",
     .type = VJ_OPT_NUMBER,
     .fallback = "1",
     .help = "how many calls from the one of fail=, damage= or short= on; 0: all"},
    {.name = "errno",
     .type = VJ_OPT_CHOICE,
     .fallback = "EIO",
     .choices = ERRORS,
     .help = "error of a call that fails; ENOENT is for get alone"},
    {.name = "after",
     .type = VJ_OPT_FLAG,
     .fallback = "no",
     .help = "a failing call reaches the store all the same; only its answer is lost"},
    {.name = "damage",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .help = "number of the first get whose result has a wrong bit; 0: none"},
    {.name = "short",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .help =
         "number of the first get that finds the object too short (EBADMSG); 0: none"},
    {.name = "bps",
     .type = VJ_OPT_SIZE,
     .fallback = "0",
     .help = "bytes a second of puts and gets together; 0: no limit"},
    {.name = "delay_us",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .min = 0,
     .max = 60 * G_USEC_PER_SEC,
     .help = "microseconds that each counted call takes longer"},
    {.name = "hold",
     .type = VJ_OPT_STRING,
     .help = "file; counted calls wait while somebody has it locked"},
    {.name = "if",
     .type = VJ_OPT_STRING,
     .help = "file; calls fail only while it is there, and count only then"},
    {.name = "seed",
     .type = VJ_OPT_NUMBER,
     .fallback = "1",
     .help = "seed of what is chosen at random: the damaged bit"},
    {.name = NULL},
};

typedef struct FaultPlan {
    uint32_t kinds; /* FaultKind bits */
    uint64_t fail, every, damage, short_get;
    uint64_t times; /* from fail, damage and short_get on; 0: for ever */
    int error;      /* positive */
    bool after;
    uint64_t bytes_per_second;
    uint64_t delay_us;
    char *hold, *only_if; /* owned; NULL: none */
} FaultPlan;

typedef struct FaultStore {
    VjStore base;

    VjMutex lock;
    /* guarded by lock: */
    FaultPlan plan;
    uint64_t calls, gets; /* since the plan was set; gets: of any plan */
    VjRng rng;
    int64_t busy_until_us; /* when the simulated device has done all it was asked for */
    uint64_t puts;         /* that went well */
    GHashTable *unflushed; /* ids → numbers of puts that no good flush has covered */
} FaultStore;

/* What all wrappers of the process did to calls; atomic. */
static uint64_t hits;

/* What one call has to do. */
typedef struct Verdict {
    int64_t wait_until_us; /* of vj_clock_mono_us */
    int failed;            /* 0 or -errno */
    bool after;
    bool too_short;
    bool damage;
    uint64_t damage_at; /* random */
    char *hold;         /* owned; NULL: it need not wait */
} Verdict;

static bool parse_kinds(const char *text, uint32_t *kinds, GError **error)
{
    g_auto(GStrv) words = g_strsplit(text, "+", -1);

    *kinds = 0;
    for (char **word = words; *word != NULL; word++) {
        uint32_t kind = 0;

        for (size_t i = 0; i < G_N_ELEMENTS(kind_names); i++) {
            if (strcmp(*word, kind_names[i].name) == 0) {
                kind = kind_names[i].kind;
            }
        }
        if (kind == 0) {
            return vj_error_set(error, EINVAL, "kinds: \"%s\" is none of %s", *word,
                                KINDS_DEFAULT);
        }
        *kinds |= kind;
    }
    if (*kinds == 0) {
        return vj_error_set(error, EINVAL, "kinds: none given; use fail=0 and every=0");
    }
    return true;
}

static bool make_plan(const VjOpts *opts, FaultPlan *plan, GError **error)
{
    *plan = (FaultPlan){.fail = vj_opts_number(opts, "fail"),
                        .every = vj_opts_number(opts, "every"),
                        .times = vj_opts_number(opts, "times"),
                        .damage = vj_opts_number(opts, "damage"),
                        .short_get = vj_opts_number(opts, "short"),
                        .after = vj_opts_flag(opts, "after"),
                        .bytes_per_second = vj_opts_number(opts, "bps"),
                        .delay_us = vj_opts_number(opts, "delay_us")};
    for (size_t i = 0; i < G_N_ELEMENTS(error_names); i++) {
        if (strcmp(vj_opts_string(opts, "errno"), error_names[i].name) == 0) {
            plan->error = error_names[i].error;
        }
    }
    g_assert(plan->error > 0);
    if (!parse_kinds(vj_opts_string(opts, "kinds"), &plan->kinds, error)) {
        return false;
    }
    if (plan->error == ENOENT && plan->kinds != KIND_GET) {
        return vj_error_set(error, EINVAL, "errno=ENOENT is an answer of get alone");
    }
    plan->hold = g_strdup(vj_opts_string(opts, "hold"));
    plan->only_if = g_strdup(vj_opts_string(opts, "if"));
    return true;
}

static void clear_plan(FaultPlan *plan)
{
    g_free(plan->hold);
    g_free(plan->only_if);
    *plan = (FaultPlan){.kinds = 0};
}

/* Takes what @plan owns. */
static void set_plan(FaultStore *w, const FaultPlan *plan, uint64_t seed)
{
    vj_mutex_lock(&w->lock);
    clear_plan(&w->plan);
    w->plan = *plan;
    w->calls = 0;
    w->gets = 0;
    w->busy_until_us = 0;
    vj_rng_init(&w->rng, seed);
    vj_mutex_unlock(&w->lock);
}

static bool fault_open(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                       GError **error)
{
    FaultStore *w = (FaultStore *)s;
    FaultPlan plan;

    (void)place;
    g_assert(s->next != NULL);
    if (!make_plan(opts, &plan, error)) {
        return false;
    }
    vj_mutex_init(&w->lock, VJ_RANK_STORE_WRAPPER, "store.fault");
    w->unflushed = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    set_plan(w, &plan, vj_opts_number(opts, "seed"));
    return true;
}

static void fault_close(VjStore *s)
{
    FaultStore *w = (FaultStore *)s;

    g_hash_table_unref(w->unflushed);
    clear_plan(&w->plan);
    vj_mutex_clear(&w->lock);
}

bool vj_store_fault_set(VjStore *s, const char *options, GError **error)
{
    FaultStore *w = (FaultStore *)vj_store_find(s, &vj_store_fault_ops);
    g_autoptr(VjOpts) opts = vj_opts_new(vj_store_fault_options);
    FaultPlan plan;

    g_assert(w != NULL && options != NULL);
    if (!vj_opts_parse(opts, options, error) || !make_plan(opts, &plan, error)) {
        return false;
    }
    set_plan(w, &plan, vj_opts_number(opts, "seed"));
    return true;
}

uint64_t vj_store_fault_calls(VjStore *s)
{
    FaultStore *w = (FaultStore *)vj_store_find(s, &vj_store_fault_ops);
    uint64_t calls;

    g_assert(w != NULL);
    vj_mutex_lock(&w->lock);
    calls = w->calls;
    vj_mutex_unlock(&w->lock);
    return calls;
}

uint64_t vj_store_fault_hits(void)
{
    return __atomic_load_n(&hits, __ATOMIC_RELAXED);
}

GArray *vj_store_fault_unflushed(VjStore *s)
{
    FaultStore *w = (FaultStore *)vj_store_find(s, &vj_store_fault_ops);
    GArray *ids = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    GHashTableIter each;
    gpointer id;

    g_assert(w != NULL);
    vj_mutex_lock(&w->lock);
    g_hash_table_iter_init(&each, w->unflushed);
    while (g_hash_table_iter_next(&each, &id, NULL)) {
        g_array_append_vals(ids, id, 1);
    }
    vj_mutex_unlock(&w->lock);
    return ids;
}

/* When the device has moved @len more bytes. */
static int64_t transfer_until(FaultStore *w, int64_t now_us, uint64_t len)
    VJ_REQUIRES(w->lock)
{
    int64_t needed_us =
        (int64_t)((double)len * G_USEC_PER_SEC / (double)w->plan.bytes_per_second);

    w->busy_until_us = MAX(w->busy_until_us, now_us) + needed_us;
    return w->busy_until_us;
}

/* Call @number is one of those that begin with @first; 0: none do. */
static bool is_hit(const FaultPlan *plan, uint64_t number, uint64_t first)
{
    return first > 0 && number >= first &&
           (plan->times == 0 || number - first < plan->times);
}

/* The file that if= names is there. */
static bool armed(FaultStore *w)
{
    g_autofree char *path = NULL;

    vj_mutex_lock(&w->lock);
    path = g_strdup(w->plan.only_if);
    vj_mutex_unlock(&w->lock);
    return path == NULL || access(path, F_OK) == 0;
}

static Verdict judge(FaultStore *w, FaultKind kind, uint64_t len)
{
    Verdict v = {.wait_until_us = 0};
    int64_t now_us = vj_clock_mono_us();
    bool is_armed = armed(w);
    bool counted, throttled;

    vj_mutex_lock(&w->lock);
    counted = is_armed && (w->plan.kinds & kind) != 0;
    if ((w->plan.kinds & kind) != 0 && kind != KIND_STAGE) {
        v.hold = g_strdup(w->plan.hold);
    }
    throttled = w->plan.bytes_per_second > 0 && (kind & (KIND_PUT | KIND_GET)) != 0;
    if (throttled) {
        v.wait_until_us = transfer_until(w, now_us, len);
    }
    if (counted) {
        w->calls++;
        v.wait_until_us = MAX(v.wait_until_us, now_us) + (int64_t)w->plan.delay_us;
        if (is_hit(&w->plan, w->calls, w->plan.fail) ||
            (w->plan.every > 0 && w->calls % w->plan.every == 0)) {
            v.failed = -w->plan.error;
            v.after = w->plan.after;
        }
    }
    if (kind == KIND_GET) {
        w->gets++;
        v.too_short = is_hit(&w->plan, w->gets, w->plan.short_get);
        v.damage = is_hit(&w->plan, w->gets, w->plan.damage);
        v.damage_at = vj_rng_u64(&w->rng);
    }
    vj_mutex_unlock(&w->lock);
    if (v.failed != 0 || v.too_short || v.damage) {
        __atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED);
    }
    if (v.failed != 0) {
        vj_trace(store, "fault kind=%d result=%d", kind, v.failed);
    }
    return v;
}

/* Being slow is what is simulated here: nothing else waits for this. */
static void wait_until(int64_t until_us)
{
    int64_t left_us = until_us - vj_clock_mono_us();

    if (until_us > 0 && left_us > 0) {
        g_usleep((gulong)left_us);
    }
}

/* Each call opens the file for itself: locks of flock(2) belong to what was opened. */
static void wait_for_holder(const char *path)
{
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);

    while (fd >= 0 && flock(fd, LOCK_SH) < 0 && errno == EINTR) {
    }
}

/* True: the call does not reach the store; its answer is v->failed. */
static bool intercept(Verdict *v)
{
    if (v->hold != NULL) {
        wait_for_holder(v->hold);
        g_clear_pointer(&v->hold, g_free);
    }
    wait_until(v->wait_until_us);
    return v->failed != 0 && !v->after;
}

/* The answer of a call that reached the store and got @result. */
static int answer(const Verdict *v, int result)
{
    return v->failed != 0 ? v->failed : result;
}

static void note_put(FaultStore *w, uint64_t id)
{
    vj_mutex_lock(&w->lock);
    w->puts++;
    g_hash_table_insert(w->unflushed, g_memdup2(&id, sizeof id),
                        g_memdup2(&w->puts, sizeof w->puts));
    vj_mutex_unlock(&w->lock);
}

static int fault_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                     VjPut *out)
{
    FaultStore *w = (FaultStore *)s;
    Verdict v = judge(w, KIND_PUT, vj_store_iov_bytes(iov, iov_count));
    int result;

    if (intercept(&v)) {
        return v.failed;
    }
    result = answer(&v, vj_store_put(s->next, id, iov, iov_count, out));
    if (result == 0) {
        note_put(w, id);
    }
    return result;
}

static int fault_put_as(VjStore *s, uint64_t id, uint64_t nonce, const struct iovec *iov,
                        int iov_count, VjPut *out)
{
    FaultStore *w = (FaultStore *)s;
    Verdict v = judge(w, KIND_PUT, vj_store_iov_bytes(iov, iov_count));
    int result;

    if (intercept(&v)) {
        return v.failed;
    }
    result = answer(&v, vj_store_put_as(s->next, id, nonce, iov, iov_count, out));
    if (result == 0) {
        note_put(w, id);
    }
    return result;
}

static VjLoc fault_loc_of_nonce(VjStore *s, uint64_t nonce)
{
    return vj_store_loc_of_nonce(s->next, nonce);
}

static int fault_length(VjStore *s, uint64_t id, VjLoc loc, uint64_t *stored_bytes)
{
    return vj_store_length(s->next, id, loc, stored_bytes);
}

static bool fault_nonce_of_loc(VjStore *s, VjLoc loc, uint64_t *nonce)
{
    return vj_store_nonce_of_loc(s->next, loc, nonce);
}

static bool fault_same_loc(VjStore *s, VjLoc a, VjLoc b)
{
    return vj_store_same_loc(s->next, a, b);
}

/* What heals an object is no call of a reader or writer: it is not counted. */
static int fault_heal(VjStore *s, const VjPut *object, VjStoreVerify *verify,
                      void *opaque, VjStoreHealed *out)
{
    return vj_store_heal(s->next, object, verify, opaque, out);
}

static int fault_trim(VjStore *s, const VjPut *object, VjStoreVerify *verify,
                      void *opaque, VjStoreHealed *out)
{
    return vj_store_trim(s->next, object, verify, opaque, out);
}

static int fault_survey(VjStore *s, const VjPut *puts, size_t count, bool *wants)
{
    return vj_store_survey(s->next, puts, count, wants);
}

static void fault_health(VjStore *s, VjStoreHealth *out)
{
    vj_store_health(s->next, out);
}

static bool fault_node(VjStore *s, unsigned index, VjStoreNode *out)
{
    return vj_store_node(s->next, index, out);
}

static bool fault_drain(VjStore *s, unsigned index, bool drained)
{
    return vj_store_drain(s->next, index, drained);
}

static int fault_get(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                     size_t len)
{
    Verdict v = judge((FaultStore *)s, KIND_GET, len);
    int result;

    if (intercept(&v)) {
        return v.failed;
    }
    result = answer(&v, vj_store_get(s->next, id, loc, offset, dst, len));
    if (result == 0 && v.too_short) {
        result = -EBADMSG;
    }
    if (result == 0 && v.damage && len > 0) {
        uint8_t *bytes = dst;

        bytes[v.damage_at / 8 % len] ^= (uint8_t)(1u << v.damage_at % 8);
    }
    return result;
}

/* A hint: what would fail, fails in the get. */
static int fault_digest(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                        uint8_t algorithm, VjDigest *out)
{
    return vj_store_digest(s->next, id, loc, form, algorithm, out);
}

static int fault_put_plain(VjStore *s, uint64_t id, const VjStoreWant *want,
                           const void *bytes, size_t len, VjPut *out, VjStoreForm *form)
{
    return vj_store_put_plain(s->next, id, want, bytes, len, out, form);
}

static int fault_get_plain(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                           uint32_t offset, uint32_t len, const VjStoreWant *wire,
                           VjBuf **bytes, bool *is_encoded)
{
    return vj_store_get_plain(s->next, id, loc, form, offset, len, wire, bytes,
                              is_encoded);
}

static void fault_expect(VjStore *s, uint64_t id, VjLoc loc)
{
    vj_store_expect(s->next, id, loc);
}

static uint64_t fault_prefer(VjStore *s, uint64_t id)
{
    return vj_store_prefer(s->next, id);
}

static int fault_remove(VjStore *s, uint64_t id, VjLoc loc)
{
    FaultStore *w = (FaultStore *)s;
    Verdict v = judge(w, KIND_REMOVE, 0);
    int result;

    if (intercept(&v)) {
        return v.failed;
    }
    result = vj_store_remove(s->next, id, loc);
    if (result == 0) {
        vj_mutex_lock(&w->lock);
        g_hash_table_remove(w->unflushed, &id);
        vj_mutex_unlock(&w->lock);
    }
    return answer(&v, result);
}

static gboolean is_covered(gpointer id, gpointer number, gpointer until)
{
    (void)id;
    return *(const uint64_t *)number <= *(const uint64_t *)until;
}

static int fault_flush(VjStore *s)
{
    FaultStore *w = (FaultStore *)s;
    Verdict v = judge(w, KIND_FLUSH, 0);
    uint64_t until;
    int result;

    if (intercept(&v)) {
        return v.failed;
    }
    vj_mutex_lock(&w->lock);
    until = w->puts;
    vj_mutex_unlock(&w->lock);
    result = vj_store_flush(s->next);
    if (result == 0) {
        vj_mutex_lock(&w->lock);
        g_hash_table_foreach_remove(w->unflushed, is_covered, &until);
        vj_mutex_unlock(&w->lock);
    }
    return answer(&v, result);
}

static int fault_flush_removes(VjStore *s)
{
    Verdict v = judge((FaultStore *)s, KIND_FLUSH_REMOVES, 0);

    return intercept(&v) ? v.failed : answer(&v, vj_store_flush_removes(s->next));
}

/* Changes memory alone, so nothing waits here; a lost answer would leave @changes behind.
 */
static int fault_stage(VjStore *s, const VjPut *added, size_t added_count,
                       const VjPut *removed, size_t removed_count, GArray *changes)
{
    Verdict v = judge((FaultStore *)s, KIND_STAGE, 0);

    if (v.failed != 0) {
        return v.failed;
    }
    return vj_store_stage(s->next, added, added_count, removed, removed_count, changes);
}

static void fault_removes_committed(VjStore *s, const VjPut *removed,
                                    size_t removed_count)
{
    vj_store_removes_committed(s->next, removed, removed_count);
}

static int fault_each(VjStore *s, uint64_t first_id, uint64_t last_id,
                      VjStoreVisit *visit, void *opaque)
{
    Verdict v = judge((FaultStore *)s, KIND_EACH, 0);

    if (intercept(&v)) {
        return v.failed;
    }
    return answer(&v, vj_store_each(s->next, first_id, last_id, visit, opaque));
}

static int fault_space(VjStore *s, VjStoreSpace *out)
{
    Verdict v = judge((FaultStore *)s, KIND_SPACE, 0);

    if (intercept(&v)) {
        return v.failed;
    }
    return answer(&v, vj_store_space(s->next, out));
}

const VjStoreOps vj_store_fault_ops = {
    .name = "fault",
    .options = vj_store_fault_options,
    .instance_size = sizeof(FaultStore),
    .align_bytes = 1,
    .open = fault_open,
    .close = fault_close,
    .put = fault_put,
    .put_as = fault_put_as,
    .loc_of_nonce = fault_loc_of_nonce,
    .nonce_of_loc = fault_nonce_of_loc,
    .length = fault_length,
    .same_loc = fault_same_loc,
    .get = fault_get,
    .expect = fault_expect,
    .digest = fault_digest,
    .put_plain = fault_put_plain,
    .get_plain = fault_get_plain,
    .prefer = fault_prefer,
    .remove = fault_remove,
    .flush = fault_flush,
    .flush_removes = fault_flush_removes,
    .stage = fault_stage,
    .removes_committed = fault_removes_committed,
    .each = fault_each,
    .heal = fault_heal,
    .trim = fault_trim,
    .survey = fault_survey,
    .health = fault_health,
    .node = fault_node,
    .drain = fault_drain,
    .space = fault_space,
};
