/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Whole workloads in which the n-th call below fails, n = 1, 2, … until one ends before
 * it comes to call n.  Below are the store, the metadata engine, their system calls, and
 * the allocators that may fail; the kinds of faults stand in sweep-faults.c, the
 * workloads in sweep-work.c.  For each run:
 *
 *   - an operation that fails says an error that fits, and has left nothing, or
 *     everything;
 *   - what succeeds is right, at once and in the end;
 *   - a kill after the fault, and after the first sync behind it, with all objects lost
 *     that no flush covered: mounts, fsck finds nothing, and what was synced is there;
 *   - when calls work again, so does the file system: everything accepted becomes
 *     durable, deletes, renames and writes go on, nothing waits to be removed for ever;
 *   - unmounted, fsck finds neither problems nor leaks; mounted again, every byte is
 *     right.
 *
 * usage: sweep [--workload NAME] [--kind NAME] [--first N] [--last N] [--points P]
 * [--seed S]
 *              [--part I/N]
 *   --points P   at most P numbers for each workload and kind, spread by the seed; 0: all
 *   --part I/N   each N-th of the pairs of workload and kind, beginning with the I-th
 *                (from 0)
 * Prints the table of points.  A failure prints the options that repeat it.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sweep.h"

/* A run that takes longer hangs. */
enum { RUN_SECONDS = 300 };
/* More numbers than any workload has calls. */
enum { NUMBER_MAX = 1000000 };

typedef struct Options {
    const char *workload, *kind;
    uint64_t first, last, points, seed, part, parts;
} Options;

typedef struct Tally {
    uint64_t points, errors, late, healed;
} Tally;

static char running[300]; /* for the signal handler */

static void on_alarm(int unused)
{
    static const char text[] = "# hangs: ";

    (void)unused;
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0 ||
        write(STDOUT_FILENO, running, strlen(running)) < 0) {
        _exit(2);
    }
    abort();
}

/* All works again: so does the file system. */
static void go_on(World *w)
{
    static const char *const paths[] = {"a", "b", "f", "dir/3", "dir/10", "new"};

    world_calm(w);
    if (w->v == NULL) {
        world_open(w);
    }
    /* Names that nobody knows are looked at; errors are over after one sync. */
    world_verify(w);
    if (w->problem[0] != '\0') {
        return;
    }
    if (vj_fs_sync_all(w->fs) < 0) {
        world_problem(w, "the first sync without faults fails");
    }
    world_make(w, "after", S_IFDIR | 0755);
    for (size_t i = 0; i < G_N_ELEMENTS(paths); i++) {
        g_autofree char *key = g_strdup_printf("N:%s", paths[i]);
        Node *n;

        if (!g_hash_table_contains(w->tree, key)) {
            continue;
        }
        n = world_file(w, paths[i]);
        if (n == NULL) {
            continue;
        }
        /* Each handle hears of write-back that failed, once. */
        (void)!vj_fs_fsync(n->h);
        world_replace(w, n, 10, 20, 3000, false);
        world_fsync(w, n);
        world_truncate(w, n, world_size(n) / 2);
        world_fsync(w, n);
        world_rename(w, paths[i], "after/moved", 0);
    }
    world_make(w, "after/made", S_IFREG | 0600);
    world_write(w, world_file(w, "after/made"), 0, 7000, false);
    world_rename(w, "after/made", "after/moved", 0);
    world_sync(w);
    world_verify(w);
}

static void run_workload(World *w, const Workload *load)
{
    load->prepare(w);
    world_close(w);
    w->segment = 0;
    if (w->problem[0] == '\0') {
        load->work(w);
        go_on(w);
        if (vj_volume_purge(w->v) < 0) {
            world_problem(w, "something waits to be removed for ever");
        }
        world_close(w);
        world_check(w, "in the end");
        world_open(w);
        world_verify(w);
        world_close(w);
    }
}

/* False: the workload made fewer calls, or failed. */
static bool run_once(const Options *o, const Workload *load, const Kind *kind,
                     unsigned segment, uint64_t number, Tally *tally, uint64_t *calls)
{
    World w;
    bool hit, good;

    g_snprintf(running, sizeof running,
               "--workload %s --kind %s --first %" G_GUINT64_FORMAT
               " --last %" G_GUINT64_FORMAT " --seed %" G_GUINT64_FORMAT
               " (segment %u)\n",
               load->name, kind->name, number, number, o->seed, segment);
    alarm(RUN_SECONDS);
    world_new(&w, kind, number, segment, load->make_options, o->seed);
    run_workload(&w, load);
    alarm(0);
    hit = world_hit(&w);
    good = w.problem[0] == '\0';
    if (!good) {
        printf("# %s# %s\n", running, w.problem);
    }
    tally->points += hit;
    tally->errors += hit && w.errors > 0;
    tally->late += w.late;
    tally->healed += hit && w.errors == 0;
    *calls = w.calls;
    world_free(&w);
    sweep_faults_clear();
    return hit && good;
}

/* Numbers of one segment.  False: a run failed. */
static bool sweep_segment(const Options *o, const Workload *load, const Kind *kind,
                          unsigned segment, Tally *tally)
{
    uint64_t number = o->first, calls = 0, ignored, before = tally->points;
    VjRng rng;

    if (o->points == 0) {
        while (number <= o->last &&
               run_once(o, load, kind, segment, number, tally, &ignored)) {
            number++;
        }
        /* Each number up to the one that was not reached. */
        return tally->points - before == number - o->first;
    }
    /* How many calls there are; the last ones, at the unmount, are not among them. */
    if (run_once(o, load, kind, segment, NUMBER_MAX, tally, &calls)) {
        return false;
    }
    vj_rng_init(&rng, o->seed + (uint64_t)(kind - sweep_kinds) * 1000 + segment);
    for (uint64_t i = 0; i < o->points && calls > 0; i++) {
        uint64_t from = calls * i / o->points, to = calls * (i + 1) / o->points;

        number = 1 + from + (to > from ? vj_rng_below(&rng, to - from) : 0);
        before = tally->points;
        if (!run_once(o, load, kind, segment, number, tally, &ignored) &&
            tally->points > before) {
            return false;
        }
    }
    return true;
}

static uint64_t number_argument(const char *text)
{
    char *end;
    uint64_t number = strtoull(text, &end, 10);

    if (*text == '\0' || *end != '\0') {
        fprintf(stderr, "sweep: %s: not a number\n", text);
        exit(2);
    }
    return number;
}

static Options parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"workload", required_argument, NULL, 'w'},
        {"kind", required_argument, NULL, 'k'},
        {"first", required_argument, NULL, 'f'},
        {"last", required_argument, NULL, 'l'},
        {"points", required_argument, NULL, 'p'},
        {"seed", required_argument, NULL, 's'},
        {"part", required_argument, NULL, 'P'},
        {NULL, 0, NULL, 0},
    };
    Options o = {.first = 1, .last = UINT64_MAX, .seed = 1, .parts = 1};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'w':
            o.workload = optarg;
            break;
        case 'k':
            o.kind = optarg;
            break;
        case 'f':
            o.first = MAX(1, number_argument(optarg));
            break;
        case 'l':
            o.last = number_argument(optarg);
            break;
        case 'p':
            o.points = number_argument(optarg);
            break;
        case 's':
            o.seed = number_argument(optarg);
            break;
        case 'P':
            if (sscanf(optarg, "%" G_GUINT64_FORMAT "/%" G_GUINT64_FORMAT, &o.part,
                       &o.parts) != 2 ||
                o.parts == 0) {
                fprintf(stderr, "sweep: --part I/N\n");
                exit(2);
            }
            break;
        default:
            exit(2);
        }
    }
    return o;
}

/* A kind is chosen by its name or by the beginning of it, as "meta". */
static bool is_chosen(const char *choice, const char *name)
{
    return choice == NULL || g_str_has_prefix(name, choice);
}

int main(int argc, char **argv)
{
    Options o = parse(argc, argv);
    unsigned test = 0, failures = 0;

    g_assert(vj_log_open(
        "sweep", g_getenv("SWEEP_LOG") != NULL ? g_getenv("SWEEP_LOG") : "/dev/null",
        VJ_LOG_ERROR, NULL));
    signal(SIGALRM, on_alarm);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("# seed %" G_GUINT64_FORMAT ", %s\n", o.seed,
           o.points == 0 ? "every number" : "some numbers");
    for (size_t i = 0; i < sweep_workload_count; i++) {
        const Workload *load = &sweep_workloads[i];

        for (size_t k = 0; k < sweep_kind_count && is_chosen(o.workload, load->name);
             k++) {
            const Kind *kind = &sweep_kinds[k];
            Tally tally = {0};
            bool good = true;

            if (!is_chosen(o.kind, kind->name) || (i + k) % o.parts != o.part) {
                continue;
            }
            for (unsigned s = 0; s < load->segments; s++) {
                good = sweep_segment(&o, load, kind, s, &tally) && good;
            }
            failures += !good;
            printf("%s %u - %s %s: %" G_GUINT64_FORMAT
                   " points, an error from %" G_GUINT64_FORMAT
                   ", healed %" G_GUINT64_FORMAT ", said too late %" G_GUINT64_FORMAT
                   "\n",
                   good ? "ok" : "not ok", ++test, load->name, kind->name, tally.points,
                   tally.errors, tally.healed, tally.late);
        }
    }
    printf("1..%u\n", test);
    vj_log_close();
    return failures == 0 ? 0 : 1;
}
