/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * model.c - the model test in process: options, rounds, remounts, checks
 *
 * A round is a number of operations by each thread on its own files, which also copy
 * from files that all share.  After each round every file is compared as a whole, the
 * volume is closed, checked as fsck does, opened again and compared again.  At the end
 * everything that waited to be dropped is, and records, index and store have to agree
 * to the last one.
 *
 * The same seed does the same operations; with one thread in the same order.  What the
 * background threads do in between is up to the clock.
 */
#include "model.h"
#include "fsck/fsck.h"

#include "volume/volume-private.h"

#include <stdio.h>
#include <stdlib.h>

void fail(const Worker *w, const char *format, ...)
{
    g_autofree char *text = NULL;
    va_list args;

    va_start(args, format);
    text = g_strdup_vprintf(format, args);
    va_end(args);
    fprintf(stderr,
            "model: %s\nmodel: thread %u, operation %" G_GUINT64_FORMAT
            "; again: model%s\n"
            "model: the volume is left in %s\n",
            text, w->number, w->op, w->m->o.again, w->m->source);
    fflush(NULL);
    _exit(1);
}

void must(const Worker *w, int r, const char *what)
{
    if (r != 0) {
        fail(w, "%s: %s", what, g_strerror(-r));
    }
}

/* ---- the volume ------------------------------------------------------------------ */

static void volume_make(Worker *w)
{
    Model *m = w->m;
    g_autoptr(GError) error = NULL;
    g_autofree char *options =
        g_strdup_printf("objects=%s,chunker=%s", m->o.objects, m->o.chunker);
    VjVolumeMake how = {.source = m->source, .options = options, .force = true};

    if (!vj_volume_make(&how, &error)) {
        fail(w, "make: %s", error->message);
    }
}

static void volume_open(Worker *w, bool check)
{
    Model *m = w->m;
    g_autoptr(GError) error = NULL;
    g_autofree char *faults =
        g_strdup_printf("fault:conflicts=%u,seed=%" G_GUINT64_FORMAT, m->o.conflicts,
                        vj_rng_u64(&w->rng) % 1000000);
    VjVolumeOpen how = {.source = m->source,
                        .check = check,
                        .wrap_store = m->o.faults > 0 ? "fault" : NULL,
                        .wrap_meta = m->o.conflicts > 0 && !check ? faults : NULL};

    VjRemapLimits limits;

    if (!vj_volume_open(&how, &m->v, &error)) {
        fail(w, "open: %s", error->message);
    }
    vj_file_table_set_recode_step(vj_volume_files(m->v),
                                  m->o.size / 16); /* several for each file */
    /* Fragments in all stages: few wait, many wait, the bounds are met. */
    limits.step_bytes = m->o.size / 16;
    limits.idle_us = (int64_t)1000 << vj_rng_below(&w->rng, 10);
    limits.retry_us = 6 * limits.idle_us;
    limits.file_most = 8u << vj_rng_below(&w->rng, 8);
    limits.most = 4 * limits.file_most;
    if (!check) {
        vj_file_table_limit_fragments(vj_volume_files(m->v), &limits);
    }
}

/* Every so many calls of the store fail with EIO; 0: none. */
static void set_faults(Worker *w, unsigned every)
{
    g_autofree char *options =
        g_strdup_printf("kinds=put+get+remove+flush,every=%u", every);
    g_autoptr(GError) error = NULL;

    if (w->m->o.faults > 0 &&
        !vj_store_fault_set(vj_volume_store(w->m->v), options, &error)) {
        fail(w, "faults: %s", error->message);
    }
}

static void volume_close(Worker *w)
{
    int r = vj_volume_close(w->m->v);

    w->m->v = NULL;
    must(w, r, "close");
}

static void say_problem(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "model: check: %s\n", text);
}

/* The volume is closed.  @is_at_rest: nothing waits to be dropped or removed. */
static void check(Worker *w, bool read_data, bool is_at_rest)
{
    VjCheckReport r = {0};

    volume_open(w, true);
    must(w, vj_fsck_contents(w->m->v, read_data, say_problem, NULL, &r), "check");
    volume_close(w);
    if (r.problems > 0 || r.leaks > 0) {
        fail(w, "%" G_GUINT64_FORMAT " problems, %" G_GUINT64_FORMAT " leaks", r.problems,
             r.leaks);
    }
    if (is_at_rest && (r.pending > 0 || r.stored_objects != r.objects)) {
        fail(w,
             "%" G_GUINT64_FORMAT " things pending, %" G_GUINT64_FORMAT
             " objects stored, %" G_GUINT64_FORMAT " recorded",
             r.pending, r.stored_objects, r.objects);
    }
    if (is_at_rest) {
        printf("# %" G_GUINT64_FORMAT " inodes, %" G_GUINT64_FORMAT
               " map entries in %" G_GUINT64_FORMAT " nodes, %" G_GUINT64_FORMAT
               " objects, %" G_GUINT64_FORMAT " in the index, %" G_GUINT64_FORMAT
               " in the store\n",
               r.inodes, r.map_entries, r.map_nodes, r.objects, r.index_entries,
               r.stored_objects);
    }
}

/* What the last round did with transformations. */
static void say_transformed(void *opaque, const char *name, uint64_t value)
{
    (void)opaque;
    if (strstr(name, "coded_") != NULL) {
        printf("# %s %" G_GUINT64_FORMAT "\n", name, value);
    }
}

/* ---- files ----------------------------------------------------------------------- */

static void each_file(Worker *w, void (*run)(Worker *w, ModelFile *f))
{
    for (unsigned i = 0; i < w->m->file_count; i++) {
        run(w, &w->m->files[i]);
    }
}

static void file_close(Worker *w, ModelFile *f)
{
    (void)w;
    g_clear_pointer(&f->f, vj_file_unref);
}

static void file_open(Worker *w, ModelFile *f)
{
    must(w, vj_file_open(vj_volume_files(w->m->v), f->ino, &f->f), "open");
    f->error_mark = vj_file_error_mark(f->f);
}

static void file_make(Worker *w, ModelFile *f)
{
    history_init(f);
    file_create(w, f);
    change_end(w->m, f);
}

static void shared_fill(Worker *w, ModelFile *f)
{
    size_t len = w->m->o.size / 2;

    for (size_t at = 0; at < len; at += 8192) {
        data_fill(&w->m->pool, &w->rng, w->data, 8192);
        must(w, vj_file_write(f->f, at, w->data, 8192, false, NULL), "write");
        shadow_write(&f->shadow, at, w->data, 8192);
    }
}

/* ---- rounds ---------------------------------------------------------------------- */

static gpointer worker_main(gpointer opaque)
{
    Worker *w = opaque;

    while (w->op < w->until) {
        w->op++;
        run_op(w);
    }
    return NULL;
}

static void worker_init(Worker *w, Model *m, unsigned number)
{
    *w = (Worker){.m = m, .number = number};
    vj_rng_init(&w->rng, m->o.seed * 1000 + number);
    w->data = g_malloc(m->o.size + 8192);
    w->back = g_malloc(m->o.size + 16384);
    if (number < m->o.threads) {
        w->files = &m->files[number * m->o.files];
    }
}

static void worker_clear(Worker *w)
{
    g_free(w->data);
    g_free(w->back);
}

/* One round of all threads; @readers read meanwhile. */
static void run_round(Worker *main_worker, Worker *workers, Worker *readers)
{
    Model *m = main_worker->m;

    g_atomic_int_set(&m->stop_readers, 0);
    for (unsigned i = 0; i < m->o.readers; i++) {
        readers[i].thread = g_thread_new("reader", reader_main, &readers[i]);
    }
    for (unsigned i = 0; i < m->o.recoders; i++) {
        Worker *w = &readers[m->o.readers + i];

        w->thread = g_thread_new("recoder", recoder_main, w);
    }
    for (unsigned i = 1; i < m->o.threads; i++) {
        workers[i].thread = g_thread_new("worker", worker_main, &workers[i]);
    }
    worker_main(&workers[0]);
    for (unsigned i = 1; i < m->o.threads; i++) {
        g_thread_join(workers[i].thread);
    }
    g_atomic_int_set(&m->stop_readers, 1);
    for (unsigned i = 0; i < m->o.readers + m->o.recoders; i++) {
        g_thread_join(readers[i].thread);
    }
}

static void remount(Worker *w)
{
    each_file(w, file_compare);
    each_file(w, file_close);
    volume_close(w);
    check(w, w->m->o.read_data, false);
    volume_open(w, false);
    each_file(w, file_open);
    each_file(w, file_compare);
}

/* Everything that waits is done, then nothing may be left over. */
static void finish_all(Worker *w)
{
    /* Nobody makes objects of fragments, and gives up old ones, behind the reaper; nobody
     * reads ahead, and pins what may be dead. */
    vj_file_table_stop(vj_volume_files(w->m->v));
    must(w, vj_volume_sync(w->m->v), "sync");
    each_file(w, file_close);
    vj_orphan_purge_drain(w->m->v->purge);
    must(w, vj_meta_flush(w->m->v->meta), "flush");
    must(w, vj_objects_reap_now(w->m->v->objects), "reap");
    volume_close(w);
    check(w, true, true);
}

static void run(Model *m)
{
    unsigned threads = m->o.threads, readers = m->o.readers + m->o.recoders;
    g_autofree Worker *workers = g_new0(Worker, threads + readers + 1);
    Worker *main_worker = &workers[threads + readers];
    gint64 started = g_get_monotonic_time();

    m->file_count = threads * m->o.files + SHARED_FILES;
    m->files = g_new0(ModelFile, m->file_count);
    for (unsigned i = 0; i < m->file_count; i++) {
        m->files[i].number = i;
    }
    for (unsigned i = 0; i <= threads + readers; i++) {
        worker_init(&workers[i], m, i);
    }
    volume_make(main_worker);
    volume_open(main_worker, false);
    each_file(main_worker, file_make);
    for (unsigned i = threads * m->o.files; i < m->file_count; i++) {
        shared_fill(main_worker, &m->files[i]);
    }
    for (uint64_t round = 0; round < m->o.rounds; round++) {
        for (unsigned i = 0; i < threads; i++) {
            workers[i].until = m->o.ops / threads * (round + 1) / m->o.rounds;
        }
        set_faults(main_worker, m->o.faults);
        run_round(main_worker, workers, workers + threads);
        set_faults(main_worker, 0);
        main_worker->op = round;
        if (round + 1 == m->o.rounds) {
            vj_volume_counters(m->v, say_transformed, NULL);
        }
        remount(main_worker);
    }
    finish_all(main_worker);
    printf("# %" G_GUINT64_FORMAT " operations by %u threads, %" G_GINT64_FORMAT
           " concurrent reads compared (%" G_GINT64_FORMAT " too late), %" G_GINT64_FORMAT
           " recodings beside them, %.1f s\n",
           m->o.ops, threads, m->reads_checked, m->reads_skipped, m->recodings,
           (double)(g_get_monotonic_time() - started) / 1e6);
    for (unsigned i = 0; i < m->file_count; i++) {
        history_clear(&m->files[i]);
        shadow_clear(&m->files[i].shadow);
    }
    for (unsigned i = 0; i <= threads + readers; i++) {
        worker_clear(&workers[i]);
    }
    g_free(m->files);
}

/* ---- options --------------------------------------------------------------------- */

static void parse(int argc, char **argv, Options *o)
{
    const ModelOption options[] = {
        {"ops", "N", .number = &o->ops, .most = INT64_MAX},
        {"seed", "N", .number = &o->seed, .most = INT64_MAX},
        {"rounds", "N", .number = &o->rounds, .least = 1, .most = INT64_MAX},
        {"threads", "N", .count = &o->threads, .least = 1, .most = 64},
        {"readers", "N", .count = &o->readers, .most = 64},
        {"recoders", "N", .count = &o->recoders, .most = 64},
        {"files", "N", .count = &o->files, .least = 1, .most = 1000},
        {"size", "BYTES", .number = &o->size, .least = 65536, .most = INT64_MAX},
        {"objects", "AVG", .text = &o->objects},
        {"chunker", "NAME", .text = &o->chunker},
        {"conflicts", "PERMILLE", .count = &o->conflicts, .most = UINT32_MAX},
        {"faults", "EVERY", .count = &o->faults, .most = UINT32_MAX},
        {"dir", "DIR", .text = &o->dir},
        {"no-read", .flag = &o->read_data, .is_off = true},
        {"verbose", .flag = &o->verbose},
    };

    o->again = options_parse(argc, argv, options, G_N_ELEMENTS(options));
}

int main(int argc, char **argv)
{
    g_autofree Model *m = g_new0(Model, 1);
    g_autofree char *command = NULL;

    m->o = (Options){.ops = 10000,
                     .seed = vj_random_u64() % 1000000,
                     .rounds = 4,
                     .threads = 1,
                     .files = 4,
                     .size = 256 << 10,
                     .objects = "1K",
                     .chunker = "mincdc",
                     .read_data = true};
    parse(argc, argv, &m->o);
    m->source = g_strdup_printf("%s/varjfs-model-XXXXXX",
                                m->o.dir != NULL ? m->o.dir : g_get_tmp_dir());
    if (g_mkdtemp(m->source) == NULL) {
        fprintf(stderr, "model: %s: %s\n", m->source, g_strerror(errno));
        return 8;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("# seed %" G_GUINT64_FORMAT "\n", m->o.seed);
    data_pool_init(&m->pool, m->o.seed);
    run(m);
    command = g_strdup_printf("rm -rf '%s'", m->source);
    if (system(command) != 0) {
        return 8;
    }
    g_free(m->source);
    g_free(m->o.again);
    return 0;
}
