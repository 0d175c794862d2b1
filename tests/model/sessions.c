/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sessions.c - the model test of several sessions: options, rounds, comparisons
 *
 * A round is a number of operations of each session, all at the same time, and crashes of
 * sessions among them.  After it every session compares all names, one of them each
 * content; then all are closed, the volume is checked as fsck does, and they are opened
 * again.
 */
#include "sessions.h"
#include "fsck/fsck.h"

/* Calls of the engine, and of the store, among which the first unanswered one is
 * chosen; and while a session ends. */
#define CALLS_DRAWN 60u
#define CALLS_DRAWN_AT_END 12u
/* One session in so many crashes as it ends. */
#define CRASHES_AT_END 4u
/* After so many rounds one session is alone for a while. */
#define ROUNDS_PER_RECOVERY 3u
/* Beside one in so many operations what is dirty is written back. */
#define OPS_PER_SYNC 8u
/* In one of so many rounds no session crashes at the end. */
#define ROUNDS_IN_ORDER 2u
/* Behind the largest file, bytes. */
#define SPARE_BYTES ((size_t)8192)

#include <stdio.h>
#include <stdlib.h>

const VjCaller caller = {.uid = 1000, .gid = 1000, .umask = 0};

void fail(const Session *s, const char *format, ...)
{
    g_autofree char *text = NULL;
    va_list args;

    va_start(args, format);
    text = g_strdup_vprintf(format, args);
    va_end(args);
    fprintf(stderr,
            "sessions: %s: %s\nsessions: session %u, operation %" G_GUINT64_FORMAT
            "; again: sessions%s\nsessions: the objects are left in %s\n",
            s->doing, text, s->index, s->op, s->w->o.again, s->w->source);
    fflush(NULL);
    _exit(1);
}

void doing(Session *s, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    g_vsnprintf(s->doing, sizeof s->doing, format, args);
    va_end(args);
    if (s->w->o.verbose) {
        g_printerr("%u.%" G_GUINT64_FORMAT " %s\n", s->index, s->op, s->doing);
    }
}

/* ---- the model ------------------------------------------------------------------- */

void lock_names(Name *a, Name *b)
{
    if (b == NULL || b == a) {
        pthread_mutex_lock(&a->lock);
    } else {
        pthread_mutex_lock(a < b ? &a->lock : &b->lock);
        pthread_mutex_lock(a < b ? &b->lock : &a->lock);
    }
}

void unlock_names(Name *a, Name *b)
{
    pthread_mutex_unlock(&a->lock);
    if (b != NULL && b != a) {
        pthread_mutex_unlock(&b->lock);
    }
}

Name *any_name(Session *s)
{
    return &s->w->names[vj_rng_below(&s->rng, DIRS * NAMES)];
}

Inode *inode_new(uint64_t ino, mode_t mode)
{
    Inode *i = g_new0(Inode, 1);

    pthread_mutex_init(&i->lock, NULL);
    i->refs = 1;
    i->ino = ino;
    i->type = mode & S_IFMT;
    i->mode = mode;
    i->states = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    content_push(i, g_bytes_new(NULL, 0));
    return i;
}

Inode *inode_ref(Inode *i)
{
    g_atomic_int_inc(&i->refs);
    return i;
}

void inode_unref(Inode *i)
{
    if (i != NULL && g_atomic_int_dec_and_test(&i->refs)) {
        g_ptr_array_unref(i->states);
        pthread_mutex_destroy(&i->lock);
        g_free(i);
    }
}

GBytes *content_now(const Inode *i)
{
    return g_ptr_array_index(i->states, i->states->len - 1);
}

void content_push(Inode *i, GBytes *content)
{
    g_ptr_array_add(i->states, content);
}

void content_is_durable(Inode *i)
{
    if (i->states->len > 1) {
        g_ptr_array_remove_range(i->states, 0, i->states->len - 1);
    }
}

/* ---- the volume ------------------------------------------------------------------ */

static void volume_make(Session *s)
{
    World *w = s->w;
    g_autoptr(GError) error = NULL;
    g_autofree char *options =
        g_strdup_printf("objects=1K,meta=memory:name=%s,store=%s", w->source, w->o.store);
    VjVolumeMake how = {
        .source = w->source, .options = options, .force = true, .may_forget = true};

    if (!vj_volume_make(&how, &error)) {
        fail(s, "make: %s", error->message);
    }
}

static void make_dirs(Session *s)
{
    World *w = s->w;

    for (unsigned k = 0; k < DIRS; k++) {
        g_autofree char *name = g_strdup_printf("dir%u", k);
        VjAttr attr;
        int r;

        do {
            r = vj_fs_mkdir(s->fs, &caller, VJ_INO_ROOT, name, 0777, &attr);
        } while (session_timed_out(s, r)); /* one answer is lost at most */
        if (r != 0) {
            fail(s, "mkdir: %s", g_strerror(-r));
        }
        w->dirs[k] = attr.st.st_ino;
        for (unsigned i = 0; i < NAMES; i++) {
            Name *n = &w->names[k * NAMES + i];

            pthread_mutex_init(&n->lock, NULL);
            n->dir = k;
            snprintf(n->text, sizeof n->text, "n%u", i);
        }
    }
}

static void say_problem(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "sessions: check: %s\n", text);
}

/* All sessions are closed. */
typedef enum Left {
    LEFT_ANYTHING, /* by those that crashed */
    LEFT_GARBAGE,  /* in the store alone, by machines that were shut out */
    LEFT_NOTHING,
} Left;

static void check(Session *s, Left left)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = s->w->source, .check = true, .read_only = true};
    VjCheckReport report = {0};
    VjVolume *v;
    int r;

    doing(s, "check");
    if (!vj_volume_open(&how, &v, &error)) {
        fail(s, "open: %s", error->message);
    }
    r = vj_fsck_contents(v, true, say_problem, NULL, &report);
    r = r == 0 ? vj_fsck_names(v, say_problem, NULL, &report) : r;
    if (r == 0) {
        r = vj_volume_close(v);
    }
    if (r != 0 || report.problems > 0) {
        fail(s, "%s, %" G_GUINT64_FORMAT " problems", g_strerror(-r), report.problems);
    }
    if ((left != LEFT_ANYTHING && report.pending > 0) ||
        (left == LEFT_NOTHING &&
         (report.leaks > 0 || report.stored_objects != report.objects))) {
        fail(s,
             "%" G_GUINT64_FORMAT " things pending, %" G_GUINT64_FORMAT
             " leaks, %" G_GUINT64_FORMAT " objects stored, %" G_GUINT64_FORMAT
             " recorded",
             report.pending, report.leaks, report.stored_objects, report.objects);
    }
}

/* ---- operations ------------------------------------------------------------------ */

static const struct {
    Weight weight;
    void (*run)(Session *s);
    const char *name;
} ops[OPS] = {
    [OP_MAKE] = {{90, false}, op_make, "make"},
    [OP_REMOVE] = {{60, false}, op_remove, "remove"},
    [OP_RENAME] = {{70, false}, op_rename, "rename"},
    [OP_LINK] = {{40, false}, op_link, "link"},
    [OP_LOOK] = {{60, false}, op_look, "lookup"},
    [OP_CHMOD] = {{30, false}, op_chmod, "chmod"},
    [OP_LIST] = {{20, false}, op_list, "list"},
    [OP_OPEN] = {{120, false}, op_open, "open"},
    [OP_CLOSE] = {{90, false}, op_close, "close"},
    [OP_WRITE] = {{250, true}, op_write, "edit"},
    [OP_READ] = {{120, false}, op_read, "read"},
    [OP_SYNC] = {{50, false}, op_sync, "fsync"},
    [OP_PURGE] = {{4, false}, op_purge, "purge"},
};

static void end_if_dead(Session *s)
{
    if (session_is_dead(s)) {
        session_crash(s);
    }
    if (s->crashed) {
        forget_handles(s);
    }
}

static void maybe_crash(Session *s)
{
    if (s->w->o.crashes == 0 || vj_rng_below(&s->rng, s->w->o.crashes) != 0) {
        return;
    }
    if (vj_rng_below(&s->rng, 3) == 0) {
        session_evict_another(s);
    } else if (!s->is_armed) {
        session_arm(s, CALLS_DRAWN);
    }
}

static gpointer session_main(gpointer opaque)
{
    Session *s = opaque;

    while (s->op < s->until) {
        size_t which = any_of(&s->rng, &ops[0].weight, OPS, sizeof ops[0]);

        s->op++;
        session_is_used(s);
        maybe_crash(s);
        if (s->op % OPS_PER_SYNC == 0) {
            session_sync_soon(s);
        }
        ops[which].run(s);
        COUNT(s->w, ops[which]);
        end_if_dead(s); /* also in the background, or in an operation of nothing */
    }
    if (s->is_armed) { /* it would wait for the end of the round, and others for it */
        session_crash(s);
        forget_handles(s);
    }
    return NULL;
}

static void run_round(World *w, uint64_t until)
{
    for (unsigned k = 0; k < w->o.sessions; k++) {
        w->sessions[k].until = until / w->o.sessions;
        w->sessions[k].thread = g_thread_new("session", session_main, &w->sessions[k]);
    }
    for (unsigned k = 0; k < w->o.sessions; k++) {
        g_thread_join(w->sessions[k].thread);
    }
}

/* Everything is closed and durable, in sessions that live. */
static void make_durable(Session *s)
{
    int r;

    if (s->is_armed || session_is_dead(s)) {
        session_crash(s);
    }
    end_if_dead(s);
    close_all(s);
    doing(s, "sync");
    r = vj_volume_sync(s->v);
    r = session_timed_out(s, r) ? vj_volume_sync(s->v) : r;
    if (r != 0) {
        fail(s, "%s", g_strerror(-r));
    }
}

static void compare_all_names_and_contents(World *w)
{
    for (unsigned k = 0; k < w->o.sessions; k++) {
        make_durable(&w->sessions[k]);
    }
    for (unsigned k = 0; k < w->o.sessions; k++) {
        compare_names(&w->sessions[k]);
    }
    for (unsigned k = 0; k < DIRS * NAMES; k++) {
        compare_content(w, &w->names[k]);
    }
}

static void open_all(World *w)
{
    for (unsigned k = 0; k < w->o.sessions; k++) {
        session_open(&w->sessions[k]);
    }
}

/* @in_order: all that crashed are released before, and none does now.  Returns what they
 * may leave. */
static Left close_sessions(World *w, bool in_order)
{
    bool all = in_order;

    if (in_order) {
        session_await_release(&w->sessions[0]);
        for (unsigned k = w->o.sessions; k-- > 0;) {
            op_purge(&w->sessions[k]);
        }
    }
    for (unsigned k = 0; k < w->o.sessions; k++) {
        Session *s = &w->sessions[k];

        if (!in_order && w->o.crashes > 0 && vj_rng_below(&s->rng, CRASHES_AT_END) == 0) {
            session_arm(s, CALLS_DRAWN_AT_END);
        }
        all = session_close(s) && all;
    }
    if (!all) {
        return LEFT_ANYTHING;
    }
    return w->o.crashes == 0 ? LEFT_NOTHING : LEFT_GARBAGE;
}

/* What sessions that crashed have left is dealt with by one that is alone, and what their
 * machines put into the store afterwards is garbage. */
static void recover(Session *s)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = s->w->source, .session_name = "alone"};
    VjTend gc = {.cursor = 0};
    VjVolume *v;
    int r = 0;

    doing(s, "recover");
    if (!vj_volume_open(&how, &v, &error)) {
        fail(s, "open: %s", error->message);
    }
    while (r == 0 && gc.cursor != UINT64_MAX) {
        r = vj_volume_gc(v, &gc);
    }
    r = r < 0 ? r : vj_volume_purge(v);
    if (r == 0) {
        r = vj_volume_close(v);
    }
    if (r != 0) {
        fail(s, "%s", g_strerror(-r));
    }
}

static void sessions_new(World *w)
{
    w->sessions = g_new0(Session, w->o.sessions);
    for (unsigned k = 0; k < w->o.sessions; k++) {
        Session *s = &w->sessions[k];

        *s = (Session){.w = w, .index = k};
        vj_rng_init(&s->rng, w->o.seed * 1000 + k);
        s->data = g_malloc(w->o.size + SPARE_BYTES);
        s->back = g_malloc(w->o.size + SPARE_BYTES);
        pthread_mutex_init(&s->sync_lock, NULL);
        pthread_cond_init(&s->sync_wanted, NULL);
    }
}

static void world_clear(World *w)
{
    for (unsigned k = 0; k < DIRS * NAMES; k++) {
        inode_unref(w->names[k].inode);
        pthread_mutex_destroy(&w->names[k].lock);
    }
    for (unsigned k = 0; k < w->o.sessions; k++) {
        g_free(w->sessions[k].data);
        g_free(w->sessions[k].back);
        pthread_mutex_destroy(&w->sessions[k].sync_lock);
        pthread_cond_destroy(&w->sessions[k].sync_wanted);
    }
    g_free(w->sessions);
    pthread_mutex_destroy(&w->lives);
}

static void report(const World *w, double seconds)
{
    const Counts *c = &w->counts;

    printf("# %" G_GUINT64_FORMAT " operations of %u sessions:", w->o.ops, w->o.sessions);
    for (unsigned k = 0; k < OPS; k++) {
        printf(" %" G_GUINT64_FORMAT " %s", c->ops[k], ops[k].name);
    }
    printf("\n# %" G_GUINT64_FORMAT " sessions, %" G_GUINT64_FORMAT
           " without snapshots; %" G_GUINT64_FORMAT
           " commits repeated; %" G_GUINT64_FORMAT
           " contents went to another one, %" G_GUINT64_FORMAT
           " were busy there; %" G_GUINT64_FORMAT
           " left to one that had them open; %" G_GUINT64_FORMAT " objects removed\n",
           c->lives, c->far, c->conflicts, c->taken, c->busy, c->orphans, c->removed);
    printf("# %" G_GUINT64_FORMAT " crashes: %" G_GUINT64_FORMAT
           " of the engine, %" G_GUINT64_FORMAT " of the store, %" G_GUINT64_FORMAT
           " shut out; %" G_GUINT64_FORMAT " operations unanswered, %" G_GUINT64_FORMAT
           " of them done; %" G_GUINT64_FORMAT
           " contents lost changes; %" G_GUINT64_FORMAT
           " operations timed out in sessions that live on\n",
           c->crashes, c->by_engine, c->by_store, c->by_eviction, c->unsure,
           c->unsure_done, c->lost, c->timed_out);
    printf("# 0 differences, %.1f s\n", seconds);
}

static void run(World *w)
{
    gint64 started = g_get_monotonic_time();
    Session *first;

    sessions_new(w);
    first = &w->sessions[0];
    volume_make(first);
    open_all(w);
    make_dirs(first);
    for (uint64_t round = 1; round <= w->o.rounds; round++) {
        run_round(w, w->o.ops * round / w->o.rounds);
        compare_all_names_and_contents(w);
        check(first, close_sessions(w, round % ROUNDS_IN_ORDER == 0));
        if (round % ROUNDS_PER_RECOVERY == 0 || round == w->o.rounds) {
            recover(first);
            check(first, LEFT_NOTHING);
        }
        if (round < w->o.rounds) {
            open_all(w);
        }
    }
    report(w, (double)(g_get_monotonic_time() - started) / G_USEC_PER_SEC);
    world_clear(w);
}

/* ---- options --------------------------------------------------------------------- */

static void parse(int argc, char **argv, Options *o)
{
    const ModelOption options[] = {
        {"ops", "N", .number = &o->ops, .most = INT64_MAX},
        {"seed", "N", .number = &o->seed, .most = INT64_MAX},
        {"rounds", "N", .number = &o->rounds, .least = 1, .most = INT64_MAX},
        {"sessions", "N", .count = &o->sessions, .least = 1, .most = 16},
        {"crashes", "ONE-IN", .count = &o->crashes, .most = UINT32_MAX},
        {"size", "BYTES", .number = &o->size, .least = 4096, .most = INT64_MAX},
        {"store", "SPEC", .text = &o->store},
        {"far", "ONE-IN", .count = &o->far, .most = UINT32_MAX},
        {"dir", "DIR", .text = &o->dir},
        {"verbose", .flag = &o->verbose},
    };

    o->again = options_parse(argc, argv, options, G_N_ELEMENTS(options));
}

int main(int argc, char **argv)
{
    g_autofree World *w = g_new0(World, 1);
    g_autofree char *command = NULL, *store = NULL;

    w->o = (Options){.ops = 10000,
                     .seed = vj_random_u64() % 1000000,
                     .rounds = 4,
                     .sessions = 3,
                     .crashes = 500,
                     .size = 48 << 10,
                     .far = 3};
    parse(argc, argv, &w->o);
    /* A pool's thread does not go on as another volume's: ThreadSanitizer does not see
     * how GLib hands it over. */
    g_thread_pool_set_max_unused_threads(0);
    w->source = g_strdup_printf("%s/varjfs-sessions-XXXXXX",
                                w->o.dir != NULL ? w->o.dir : g_get_tmp_dir());
    if (g_mkdtemp(w->source) == NULL) {
        fprintf(stderr, "sessions: %s: %s\n", w->source, g_strerror(errno));
        return 8;
    }
    store = w->o.store != NULL ? g_strdup(w->o.store)
                               : g_strdup_printf("memory:name=%s", w->source);
    w->o.store = store;
    pthread_mutex_init(&w->lives, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("# seed %" G_GUINT64_FORMAT "\n", w->o.seed);
    data_pool_init(&w->pool, w->o.seed);
    run(w);
    command = g_strdup_printf("rm -rf '%s'", w->source);
    if (system(command) != 0) {
        return 8;
    }
    g_free(w->source);
    g_free(w->o.again);
    return 0;
}
