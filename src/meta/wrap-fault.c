/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wrap-fault.c - fail chosen calls, and invent conflicts
 *
 * For tests.  A call that is made to fail never reaches the engine, with two exceptions
 * that keep the contract: a failing commit and an invented conflict abort the transaction
 * below, so that really nothing of it is there.
 */
#include "meta/meta-private.h"

typedef enum FaultKind {
    FAULT_GET = 1 << 0,
    FAULT_PUT = 1 << 1,
    FAULT_DEL = 1 << 2,
    FAULT_NEXT = 1 << 3, /* and prev */
    FAULT_BEGIN = 1 << 4,
    FAULT_COMMIT = 1 << 5,
    FAULT_FLUSH = 1 << 6,
} FaultKind;

static const char *const kind_names[] = {
    "get", "put", "del", "next", "begin", "commit", "flush",
};

#define ALL_KINDS "get+put+del+next+begin+commit+flush"

static const struct {
    const char *name;
    int code;
} errnos[] = {{"EIO", EIO},
              {"ENOSPC", ENOSPC},
              {"ENOMEM", ENOMEM},
              {"ETIMEDOUT", ETIMEDOUT},
              {"ESTALE", ESTALE}};

const VjOptSpec vj_meta_fault_options[] = {
    {.name = "fail",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .help = "fail the N-th call of the chosen kinds, counted from 1; 0: none"},
    {.name = "times",
     .type = VJ_OPT_NUMBER,
     .fallback = "1",
     .help = "how many calls from the one of fail= or conflict= on; 0: all"},
    {.name = "every",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .help = "fail each N-th call of the chosen kinds; 0: none"},
    {.name = "errno",
     .type = VJ_OPT_CHOICE,
     .fallback = "EIO",
     .choices = "EIO|ENOSPC|ENOMEM|ETIMEDOUT|ESTALE",
     .help = "what a failing call returns"},
    {.name = "kinds",
     .type = VJ_OPT_STRING,
     .fallback = ALL_KINDS,
     .help = "which calls count, joined by +: get put del next begin commit flush"},
    {.name = "conflict",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .help = "the N-th commit of a write transaction meets a conflict; 0: none"},
    {.name = "conflicts",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .max = 999,
     .help = "how many commits of a thousand meet a conflict, and how many bodies of a"
             " thousand that only read run again, at random"},
    {.name = "seed",
     .type = VJ_OPT_NUMBER,
     .fallback = "1",
     .help = "seed of the random conflicts"},
    {.name = NULL},
};

typedef struct Fault {
    VjMeta meta;
    VjMutex lock;
    /* guarded by lock: */
    uint32_t kinds;
    uint64_t fail, every, times, conflict;
    uint64_t conflicts_permille;
    int error; /* positive */
    VjRng rng;
    uint64_t calls;   /* of the chosen kinds, since the options were set */
    uint64_t commits; /* that were not made to fail, since then */
} Fault;

/* The reads of a view among which one is chosen to end it. */
#define READS_DRAWN_MAX 4u

typedef struct FaultTxn {
    VjTxn txn;
    uint64_t
        reads_left; /* 0: it is not chosen; else the read that ends it, counted down */
} FaultTxn;

/* What all wrappers of the process did to calls; atomic. */
static uint64_t hits;

static void count_hit(void)
{
    __atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED);
}

uint64_t vj_meta_fault_hits(void)
{
    return __atomic_load_n(&hits, __ATOMIC_RELAXED);
}

/* Number @n is one of those that begin with @first; 0: none do.  Under lock. */
static bool is_hit(const Fault *f, uint64_t n, uint64_t first)
{
    return first > 0 && n >= first && (f->times == 0 || n - first < f->times);
}

static bool parse_kinds(const char *text, uint32_t *kinds, GError **error)
{
    g_auto(GStrv) words = g_strsplit(text, "+", -1);

    *kinds = 0;
    for (size_t i = 0; words[i] != NULL; i++) {
        size_t k = 0;

        while (k < G_N_ELEMENTS(kind_names) && strcmp(words[i], kind_names[k]) != 0) {
            k++;
        }
        if (k == G_N_ELEMENTS(kind_names)) {
            return vj_error_set(error, EINVAL, "kinds=%s: \"%s\" is none of %s", text,
                                words[i], ALL_KINDS);
        }
        *kinds |= 1u << k;
    }
    return true;
}

static bool configure(Fault *f, const VjOpts *opts, GError **error)
{
    const char *name = vj_opts_string(opts, "errno");
    uint32_t kinds;
    size_t e = 0;

    if (!parse_kinds(vj_opts_string(opts, "kinds"), &kinds, error)) {
        return false;
    }
    while (strcmp(errnos[e].name, name) != 0) {
        e++;
        g_assert(e < G_N_ELEMENTS(errnos));
    }
    vj_mutex_lock(&f->lock);
    f->kinds = kinds;
    f->fail = vj_opts_number(opts, "fail");
    f->every = vj_opts_number(opts, "every");
    f->times = vj_opts_number(opts, "times");
    f->conflict = vj_opts_number(opts, "conflict");
    f->conflicts_permille = vj_opts_number(opts, "conflicts");
    f->error = errnos[e].code;
    f->calls = 0;
    f->commits = 0;
    vj_rng_init(&f->rng, vj_opts_number(opts, "seed"));
    vj_mutex_unlock(&f->lock);
    return true;
}

/* 0, or the error that this call has to return. */
static int check(VjMeta *m, FaultKind kind)
{
    Fault *f = (Fault *)m;
    int rc = 0;

    vj_mutex_lock(&f->lock);
    if ((f->kinds & kind) != 0) {
        f->calls++;
        if (is_hit(f, f->calls, f->fail) || (f->every > 0 && f->calls % f->every == 0)) {
            rc = -f->error;
            count_hit();
        }
    }
    vj_mutex_unlock(&f->lock);
    return rc;
}

static bool draw_conflict(VjMeta *m)
{
    Fault *f = (Fault *)m;
    bool conflict;

    vj_mutex_lock(&f->lock);
    f->commits++;
    conflict = is_hit(f, f->commits, f->conflict);
    if (f->conflicts_permille > 0 &&
        vj_rng_below(&f->rng, 1000) < f->conflicts_permille) {
        conflict = true;
    }
    if (conflict) {
        count_hit();
    }
    vj_mutex_unlock(&f->lock);
    return conflict;
}

/*
 * Of a view: 0, or the number of the read that says that its body has to run again; after
 * fewer reads the end of the body does.
 */
static uint64_t draw_reads(VjMeta *m)
{
    Fault *f = (Fault *)m;
    uint64_t reads = 0;

    vj_mutex_lock(&f->lock);
    if (f->conflicts_permille > 0 &&
        vj_rng_below(&f->rng, 1000) < f->conflicts_permille) {
        reads = 1 + vj_rng_below(&f->rng, READS_DRAWN_MAX);
        count_hit();
    }
    vj_mutex_unlock(&f->lock);
    return reads;
}

static bool fault_open(VjMeta *m, const VjOpts *opts, GError **error)
{
    Fault *f = (Fault *)m;

    g_assert(m->next != NULL);
    vj_mutex_init(&f->lock, VJ_RANK_META_WRAPPER, "meta fault");
    if (!configure(f, opts, error)) {
        vj_mutex_clear(&f->lock);
        return false;
    }
    return true;
}

static int fault_close(VjMeta *m)
{
    vj_mutex_clear(&((Fault *)m)->lock);
    return 0;
}

static int fault_begin(VjMeta *m, VjTxn *txn)
{
    FaultTxn *t = (FaultTxn *)txn;
    int rc = check(m, FAULT_BEGIN);

    if (rc == 0) {
        rc = vj_meta_begin(m->next, txn, &txn->next);
    }
    if (rc == 0 && !txn->write) {
        t->reads_left = draw_reads(m);
    }
    return rc;
}

/* A view that was to end before its body did ends now. */
static void fault_abort(VjTxn *txn)
{
    bool drawn = ((FaultTxn *)txn)->reads_left > 0 || txn->verdict == -EAGAIN;
    int verdict = vj_txn_abort(txn->next);

    txn->verdict = verdict == 0 && drawn ? -EAGAIN : verdict;
}

/* @rc: of the wrapped read.  One of the reads of a body that has to run again returns
 * -EAGAIN. */
static int read_result(VjTxn *txn, int rc)
{
    FaultTxn *t = (FaultTxn *)txn;

    rc = vj_wrap_read(txn, rc);
    if (t->reads_left > 0 && --t->reads_left == 0) {
        txn->verdict = -EAGAIN;
        return -EAGAIN;
    }
    return rc;
}

static int fault_commit(VjTxn *txn)
{
    int rc = check(txn->meta, FAULT_COMMIT);

    if (rc == 0 && draw_conflict(txn->meta)) {
        rc = -EAGAIN;
    }
    if (rc < 0) {
        fault_abort(txn);
        return rc;
    }
    return vj_txn_commit(txn->next);
}

static int fault_count(VjMeta *m, VjSpace space, uint64_t *out)
{
    return vj_meta_count(m->next, space, out);
}

static int fault_flush(VjMeta *m)
{
    int rc = check(m, FAULT_FLUSH);

    return rc < 0 ? rc : vj_meta_flush(m->next);
}

static int fault_send(VjMeta *m)
{
    int rc = check(m, FAULT_FLUSH);

    return rc < 0 ? rc : vj_meta_send(m->next);
}

static void fault_flush_join(VjMeta *m, VjFlushWait *w)
{
    int rc = check(m, FAULT_FLUSH);

    if (rc < 0) {
        w->done(w, rc);
    } else {
        vj_meta_flush_join(m->next, w);
    }
}

static int fault_get(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value)
{
    int rc = check(txn->meta, FAULT_GET);

    return rc < 0 ? rc : read_result(txn, vj_txn_get(txn->next, space, key, value));
}

static int fault_put(VjTxn *txn, VjSpace space, VjSlice key, VjSlice value)
{
    int rc = check(txn->meta, FAULT_PUT);

    return rc < 0 ? rc : vj_txn_put(txn->next, space, key, value);
}

static int fault_del(VjTxn *txn, VjSpace space, VjSlice key)
{
    int rc = check(txn->meta, FAULT_DEL);

    return rc < 0 ? rc : vj_wrap_read(txn, vj_txn_del(txn->next, space, key));
}

static int fault_next(VjTxn *txn, VjSpace space, VjSlice after, VjSlice *key,
                      VjSlice *value)
{
    int rc = check(txn->meta, FAULT_NEXT);

    return rc < 0 ? rc
                  : read_result(txn, vj_txn_next(txn->next, space, after, key, value));
}

static int fault_prev(VjTxn *txn, VjSpace space, VjSlice before, VjSlice *key,
                      VjSlice *value)
{
    int rc = check(txn->meta, FAULT_NEXT);

    return rc < 0 ? rc
                  : read_result(txn, vj_txn_prev(txn->next, space, before, key, value));
}

bool vj_meta_fault_set(VjMeta *m, const char *options, GError **error)
{
    VjMeta *f = vj_meta_find(m, &vj_meta_fault_ops);
    g_autoptr(VjOpts) opts = vj_opts_new(vj_meta_fault_options);

    g_assert(f != NULL);
    return vj_opts_parse(opts, options, error) && configure((Fault *)f, opts, error);
}

uint64_t vj_meta_fault_calls(VjMeta *m)
{
    Fault *f = (Fault *)vj_meta_find(m, &vj_meta_fault_ops);
    uint64_t calls;

    g_assert(f != NULL);
    vj_mutex_lock(&f->lock);
    calls = f->calls;
    vj_mutex_unlock(&f->lock);
    return calls;
}

const VjMetaOps vj_meta_fault_ops = {
    .name = "fault",
    .options = vj_meta_fault_options,
    .instance_size = sizeof(Fault),
    .txn_size = sizeof(FaultTxn),
    .open = fault_open,
    .close = fault_close,
    .begin = fault_begin,
    .commit = fault_commit,
    .abort = fault_abort,
    .count = fault_count,
    .flush = fault_flush,
    .flush_join = fault_flush_join,
    .send = fault_send,
    .get = fault_get,
    .put = fault_put,
    .del = fault_del,
    .next = fault_next,
    .prev = fault_prev,
    .is_far = vj_wrap_is_far,
    .expect = vj_wrap_expect,
    .expect_run = vj_wrap_expect_run,
};
