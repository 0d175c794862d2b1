/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * check.c - makes states that a power cut may leave of a recorded mount, and examines
 * them
 *
 *   check states LOG --dir DIR [OPTION...]    N states at cuts all over the log
 *   check replay LOG DIR                      the whole log, into the empty directory DIR
 *   check mark LOG TEXT                       appends a mark (history.h)
 *   check count LOG                           what is in it
 *   check pid LOG                             the last process that was recorded
 *
 * Every state is made and examined by a process of its own, so that one that dies is a
 * finding.
 */
#include "examine.h"

#include "volume/volume.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOBS_MOST 16
/* A state that takes longer hangs. */
#define STATE_SECONDS 300u
#define SAID_MOST 20u
#define NEAR_RECORDS 40u

typedef struct Options {
    int states, jobs, hook_every, restore_every;
    uint64_t seed;
    char *dir, *hook, *one, *near;
    gboolean keep, export_tree, first, bare;
} Options;

/* Shared with the children. */
typedef struct Result {
    uint64_t leaks, pending, objects, names, bytes, unreadable;
    bool is_clean, is_restored;
} Result;

typedef struct Job {
    pid_t pid; /* 0: free */
    size_t cut;
    uint64_t seed;
    char *dir;
} Job;

typedef struct Run {
    const Options *o;
    const char *log_path;
    CrashLog log;
    History history;
    Disk *disk;
    Job jobs[JOBS_MOST];
    Result *results; /* of jobs */
    unsigned started, violations, leaking, restored;
    uint64_t leaks_most, pending_most, bytes, unreadable;
} Run;

static int fail(const char *what, const GError *error)
{
    fprintf(stderr, "check: %s%s%s\n", what, error != NULL ? ": " : "",
            error != NULL ? error->message : "");
    return EXIT_FAILURE;
}

/* ---- one state, in its own process ------------------------------------------------- */

/* What cannot be removed is told by the rmdir of its parent. */
static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *where)
{
    (void)st;
    (void)where;
    return kind == FTW_DP ? rmdir(path) : unlink(path);
}

static void remove_tree(const char *path)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) {
        fprintf(stderr, "check: %s: %s\n", path, g_strerror(errno));
    }
}

static char *make_dir(const char *parent, const char *name)
{
    char *path = g_build_filename(parent, name, NULL);

    if (mkdir(path, 0700) < 0) {
        fprintf(stderr, "check: %s: %s\n", path, g_strerror(errno));
        _exit(EXIT_FAILURE);
    }
    return path;
}

static void write_marks(const Run *run, const char *path, size_t cut)
{
    FILE *to = fopen(path, "we");

    for (size_t i = 0; to != NULL && i < cut; i++) {
        CrashRecord r = crash_log_get(&run->log, i);

        if (r.head.kind == VJ_RECORD_MARK) {
            fprintf(to, "%.*s\n", (int)r.head.data_bytes, (const char *)r.data);
        } else if (r.head.kind == VJ_RECORD_LINK || r.head.kind == VJ_RECORD_UNLINK) {
            fprintf(to, "%c%.*s\n", r.head.kind == VJ_RECORD_LINK ? '+' : '-',
                    (int)r.head.name_bytes, r.name);
        }
    }
    if (to == NULL || fclose(to) != 0) {
        fprintf(stderr, "check: %s: %s\n", path, g_strerror(errno));
        _exit(EXIT_FAILURE);
    }
}

/* A program of the caller's looks at the state too. */
static bool run_hook(const Run *run, const Job *job, const char *tree)
{
    g_autofree char *state = make_dir(job->dir, "state");
    g_autofree char *marks = g_build_filename(job->dir, "marks", NULL);
    g_autoptr(GError) error = NULL;

    write_marks(run, marks, job->cut);
    if (!disk_write(run->disk, state, &error)) {
        fprintf(stderr, "check: %s\n", error->message);
        return false;
    }
    g_setenv("VJ_CRASH_STATE", state, TRUE);
    g_setenv("VJ_CRASH_MARKS", marks, TRUE);
    if (tree != NULL) {
        g_setenv("VJ_CRASH_TREE", tree, TRUE);
    }
    fflush(NULL);
    return system(run->o->hook) == 0;
}

/* Where there is a checkpoint: a copy of the state is restored to it, and examined. */
static bool try_restore(const Run *run, const Job *job, Result *result)
{
    g_autofree char *source = make_dir(job->dir, "restored");
    g_autofree char *command = g_strdup_printf("fsck.varjfs --restore %s >&2", source);
    g_autoptr(GArray) checkpoints = NULL;
    g_autoptr(GError) error = NULL;
    Examine e = {.source = source,
                 .history = &run->history,
                 .at = {job->cut, true},
                 .seed = job->seed};
    int status;
    bool ok;

    if (!disk_write(run->disk, source, &error) ||
        (checkpoints = vj_volume_checkpoints(source, &error)) == NULL) {
        fprintf(stderr, "check: %s\n", error->message);
        return false;
    }
    if (checkpoints->len == 0) {
        return true;
    }
    fflush(NULL);
    status = system(command);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1) {
        fprintf(stderr, "%s: status %#x\n", command, (unsigned)status);
        return false;
    }
    ok = examine(&e);
    fprintf(stderr, "restored: %s\n%s", g_array_index(checkpoints, VjCheckpoint, 0).name,
            e.said->str);
    result->is_restored = true;
    result->unreadable = e.unreadable;
    return ok;
}

static void be_job(Run *run, Job *job, Result *result, bool with_hook, bool with_restore)
{
    g_autofree char *said = g_build_filename(job->dir, "said", NULL);
    g_autofree char *source = NULL, *tree = NULL;
    g_autoptr(GError) error = NULL;
    Examine e = {.history = &run->history,
                 .at = {job->cut, false},
                 .seed = job->seed,
                 .in_the_making = job->cut <= run->history.begin};
    Cut cut;
    VjRng rng;
    bool ok;

    alarm(STATE_SECONDS);
    if (freopen(said, "w", stderr) == NULL) {
        _exit(EXIT_FAILURE);
    }
    source = make_dir(job->dir, "source");
    vj_rng_init(&rng, job->seed);
    cut_choose(&cut, &rng);
    fprintf(stderr,
            "survives: %s, %u %%, torn at %u, sizes %d, stale %d; %zu changes in doubt\n",
            cut_text(&cut), cut.keep_percent, cut.tear_bytes, cut.sizes, cut.stale,
            disk_pending(run->disk));
    disk_cut(run->disk, &cut, &rng);
    if (!disk_write(run->disk, source, &error)) {
        fprintf(stderr, "%s\n", error->message);
        _exit(EXIT_FAILURE);
    }
    e.source = source;
    if (run->o->export_tree && with_hook && !e.in_the_making) {
        tree = make_dir(job->dir, "tree");
        e.export_to = tree;
    }
    ok = run->o->bare || examine(&e);
    if (e.said != NULL) {
        fputs(e.said->str, stderr);
    }
    if (ok && with_hook && !e.in_the_making) {
        ok = run_hook(run, job, tree);
    }
    *result = (Result){.leaks = e.leaks,
                       .pending = e.pending,
                       .objects = e.objects,
                       .names = e.names,
                       .bytes = e.bytes};
    if (ok && with_restore && !e.in_the_making) {
        ok = try_restore(run, job, result);
    }
    result->is_clean = ok;
    fflush(NULL);
    _exit(ok ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* ---- jobs -------------------------------------------------------------------------- */

static void show_violation(const Run *run, const Job *job, int status)
{
    g_autofree char *path = g_build_filename(job->dir, "said", NULL);
    g_autofree char *said = NULL;

    printf("violation: at record %zu of %zu\n", job->cut, crash_log_count(&run->log));
    if (WIFSIGNALED(status)) {
        printf("  it ended with signal %d (%s)\n", WTERMSIG(status),
               strsignal(WTERMSIG(status)));
    }
    if (g_file_get_contents(path, &said, NULL, NULL)) {
        g_auto(GStrv) lines = g_strsplit(g_strchomp(said), "\n", -1);

        for (guint i = 0; lines[i] != NULL && i < 60; i++) {
            printf("  %s\n", lines[i]);
        }
    }
    printf("  again: check states %s --dir DIR --keep --one %zu:%" G_GUINT64_FORMAT "\n",
           run->log_path, job->cut, job->seed);
    fflush(stdout);
}

static void end_job(Run *run, Job *job, const Result *result, int status)
{
    bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0 && result->is_clean;

    if (!ok && !(run->o->first && run->violations > 0)) {
        run->violations++;
        if (run->violations <= SAID_MOST) {
            show_violation(run, job, status);
        }
    }
    run->leaking += result->leaks > 0;
    run->leaks_most = MAX(run->leaks_most, result->leaks);
    run->pending_most = MAX(run->pending_most, result->pending);
    run->bytes += result->bytes;
    run->restored += result->is_restored;
    run->unreadable += result->unreadable;
    if (run->o->keep) {
        printf("kept: %s\n", job->dir);
    } else {
        remove_tree(job->dir);
    }
    g_clear_pointer(&job->dir, g_free);
    job->pid = 0;
}

static void wait_job(Run *run)
{
    int status;
    pid_t pid = wait(&status);

    for (int i = 0; i < run->o->jobs; i++) {
        if (run->jobs[i].pid == pid && pid > 0) {
            end_job(run, &run->jobs[i], &run->results[i], status);
        }
    }
}

static Job *free_job(Run *run)
{
    for (;;) {
        for (int i = 0; i < run->o->jobs; i++) {
            if (run->jobs[i].pid == 0) {
                return &run->jobs[i];
            }
        }
        wait_job(run);
    }
}

/* One state of @every, not the first of them. */
static bool is_due(const Run *run, int every)
{
    return run->started % (unsigned)every == (unsigned)every / 2;
}

static void start_job(Run *run, size_t cut, uint64_t seed)
{
    Job *job = free_job(run);
    Result *result = &run->results[job - run->jobs];
    g_autofree char *name = g_strdup_printf("%zu-%" G_GINT64_MODIFIER "x", cut, seed);
    bool with_hook = run->o->hook != NULL && is_due(run, run->o->hook_every);
    bool with_restore = run->o->restore_every > 0 && is_due(run, run->o->restore_every);

    job->cut = cut;
    job->seed = seed;
    job->dir = make_dir(run->o->dir, name);
    *result = (Result){.is_clean = false};
    run->started++;
    fflush(NULL);
    job->pid = fork();
    if (job->pid == 0) {
        be_job(run, job, result, with_hook, with_restore);
    }
    if (job->pid < 0) {
        fprintf(stderr, "check: fork: %s\n", g_strerror(errno));
        exit(EXIT_FAILURE);
    }
}

/* ---- where to cut ------------------------------------------------------------------ */

/* Before and after what makes durable there is more to go wrong. */
static unsigned weight(const Run *run, size_t i)
{
    switch (crash_log_get(&run->log, i).head.kind) {
    case VJ_RECORD_SYNC:
    case VJ_RECORD_SYNC_ALL:
    case VJ_RECORD_SYNCED:
    case VJ_RECORD_DURABLE:
        return 8;
    case VJ_RECORD_CREATE:
    case VJ_RECORD_UNLINK:
    case VJ_RECORD_MARK:
        return 3;
    default:
        return 1;
    }
}

static int by_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;

    return x < y ? -1 : x > y;
}

/* The records behind "begin" that name what --near says, as a file or in a mark. */
static GArray *find_near(const Run *run)
{
    GArray *found = g_array_new(FALSE, FALSE, sizeof(size_t));

    for (size_t i = run->history.begin + 1;
         run->o->near != NULL && i < crash_log_count(&run->log); i++) {
        CrashRecord r = crash_log_get(&run->log, i);
        g_autofree char *name = g_strndup(r.name, r.head.name_bytes);
        bool is_mark = r.head.kind == VJ_RECORD_MARK;

        if (strcmp(name, run->o->near) == 0 ||
            (is_mark && r.head.data_bytes >= strlen(run->o->near) &&
             memcmp(r.data, run->o->near, strlen(run->o->near)) == 0)) {
            g_array_append_val(found, i);
        }
    }
    return found;
}

/* Half of the cuts. */
static void move_near(const Run *run, size_t *cuts, size_t count, VjRng *rng)
{
    g_autoptr(GArray) near = find_near(run);

    for (size_t k = 1; near->len > 0 && k < count; k += 2) {
        size_t at = g_array_index(near, size_t, vj_rng_below(rng, near->len));
        /* The closer the more. */
        size_t behind = vj_rng_below(rng, 1 + vj_rng_below(rng, NEAR_RECORDS));

        cuts[k] = MIN(at + 1 + behind, crash_log_count(&run->log));
    }
}

/* Rising numbers of records, each a cut behind so many.  One in 30 lies before
 * "begin". */
static size_t *choose_cuts(const Run *run, size_t count, VjRng *rng)
{
    size_t records = crash_log_count(&run->log);
    size_t begin = run->history.begin;
    g_autofree uint64_t *sums = g_new(uint64_t, records + 1);
    size_t *cuts = g_new(size_t, count);

    sums[0] = 0;
    for (size_t i = 0; i < records; i++) {
        sums[i + 1] =
            sums[i] + weight(run, i) + (i + 1 < records ? weight(run, i + 1) : 0);
    }
    for (size_t k = 0; k < count; k++) {
        bool early = begin > 0 && vj_rng_below(rng, 30) == 0;
        uint64_t from = early ? 0 : sums[begin], to = early ? sums[begin] : sums[records];
        uint64_t at = from + vj_rng_below(rng, to - from);
        size_t low = 0, high = records;

        while (low + 1 < high) { /* the last i with sums[i] <= at */
            size_t middle = (low + high) / 2;

            if (sums[middle] <= at) {
                low = middle;
            } else {
                high = middle;
            }
        }
        cuts[k] = low + 1;
    }
    move_near(run, cuts, count, rng);
    qsort(cuts, count, sizeof *cuts, by_size);
    return cuts;
}

static bool feed_to(Run *run, size_t cut)
{
    g_autoptr(GError) error = NULL;

    while (disk_position(run->disk) < cut) {
        if (!disk_feed(run->disk, &error)) {
            fail("the log", error);
            return false;
        }
    }
    return true;
}

static bool run_states(Run *run)
{
    VjRng rng;
    size_t count = (size_t)run->o->states;
    g_autofree size_t *cuts = NULL;
    bool ok = true;

    if (run->o->one != NULL) {
        char *colon = NULL;
        size_t cut = (size_t)strtoull(run->o->one, &colon, 10);

        ok = *colon == ':' && cut <= crash_log_count(&run->log) && feed_to(run, cut);
        if (ok) {
            start_job(run, cut, strtoull(colon + 1, NULL, 10));
        }
    } else {
        vj_rng_init(&rng, run->o->seed);
        cuts = choose_cuts(run, count, &rng);
        for (size_t i = 0; ok && i < count && !(run->o->first && run->violations > 0);
             i++) {
            ok = feed_to(run, cuts[i]);
            if (ok) {
                start_job(run, cuts[i], vj_rng_u64(&rng) >> 16);
            }
        }
    }
    for (int i = 0; i < run->o->jobs; i++) {
        while (run->jobs[i].pid != 0) {
            wait_job(run);
        }
    }
    return ok;
}

/* ---- commands ---------------------------------------------------------------------- */

static int run_all(Run *run)
{
    g_autoptr(GError) error = NULL;
    bool ok;

    if (!crash_log_open(&run->log, run->log_path, &error) ||
        !history_read(&run->history, &run->log, &error)) {
        return fail("the log", error);
    }
    if (run->history.begin == SIZE_MAX) {
        return fail("the log has no mark \"begin\"", NULL);
    }
    run->disk = disk_new(&run->log);
    run->results = mmap(NULL, sizeof(Result) * JOBS_MOST, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    g_assert(run->results != MAP_FAILED);
    ok = run_states(run);
    printf("states %u violations %u seed %" G_GUINT64_FORMAT
           " records %zu leaking %u leaks-most "
           "%" G_GUINT64_FORMAT " pending-most %" G_GUINT64_FORMAT " bytes-compared "
           "%" G_GUINT64_FORMAT " restored %u unreadable %" G_GUINT64_FORMAT "\n",
           run->started, run->violations, run->o->seed, crash_log_count(&run->log),
           run->leaking, run->leaks_most, run->pending_most, run->bytes, run->restored,
           run->unreadable);
    disk_free(run->disk);
    history_clear(&run->history);
    crash_log_close(&run->log);
    return ok && run->violations == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int command_states(int argc, char **argv)
{
    Options o = {.states = 100, .jobs = 2, .hook_every = 1, .seed = 1};
    gint64 seed = 1;
    const GOptionEntry entries[] = {
        {"states", 0, 0, G_OPTION_ARG_INT, &o.states, "how many", "N"},
        {"seed", 0, 0, G_OPTION_ARG_INT64, &seed, "of cuts and of what survives them",
         "N"},
        {"jobs", 0, 0, G_OPTION_ARG_INT, &o.jobs, "at a time", "N"},
        {"dir", 0, 0, G_OPTION_ARG_FILENAME, &o.dir, "where they are made", "DIR"},
        {"hook", 0, 0, G_OPTION_ARG_STRING, &o.hook,
         "run for a state: VJ_CRASH_STATE, _MARKS", "COMMAND"},
        {"hook-every", 0, 0, G_OPTION_ARG_INT, &o.hook_every, "for one state of N", "N"},
        {"tree", 0, 0, G_OPTION_ARG_NONE, &o.export_tree,
         "before the hook: copy all files out, to VJ_CRASH_TREE", NULL},
        {"restore-every", 0, 0, G_OPTION_ARG_INT, &o.restore_every,
         "of one state of N a copy is restored to its newest checkpoint", "N"},
        {"near", 0, 0, G_OPTION_ARG_STRING, &o.near,
         "half of the cuts close behind what happens to names that are NAME, or marks "
         "that "
         "begin so",
         "NAME"},
        {"one", 0, 0, G_OPTION_ARG_STRING, &o.one, "one state, as a violation names it",
         "CUT:SEED"},
        {"first", 0, 0, G_OPTION_ARG_NONE, &o.first, "end with the first violation",
         NULL},
        {"bare", 0, 0, G_OPTION_ARG_NONE, &o.bare,
         "it is no file system: only the hook looks at it", NULL},
        {"keep", 0, 0, G_OPTION_ARG_NONE, &o.keep, "leave the states in DIR", NULL},
        {NULL},
    };
    g_autoptr(GOptionContext) context = g_option_context_new("LOG");
    g_autoptr(GError) error = NULL;
    Run run = {.o = &o};

    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &error)) {
        return fail("states", error);
    }
    if (argc != 2 || o.dir == NULL || o.states < 1 || o.jobs < 1 || o.jobs > JOBS_MOST ||
        o.hook_every < 1) {
        return fail("usage: check states LOG --dir DIR [OPTION...]", NULL);
    }
    o.seed = (uint64_t)seed;
    run.log_path = argv[1];
    return run_all(&run);
}

static int command_replay(const char *log_path, const char *dir)
{
    g_autoptr(GError) error = NULL;
    Cut all = {.kind = CUT_ALL};
    CrashLog log;
    Disk *disk;
    VjRng rng;
    bool ok = true;

    if (!crash_log_open(&log, log_path, &error)) {
        return fail("the log", error);
    }
    disk = disk_new(&log);
    while (ok && disk_position(disk) < crash_log_count(&log)) {
        ok = disk_feed(disk, &error);
    }
    vj_rng_init(&rng, 0);
    if (ok) {
        disk_cut(disk, &all, &rng);
        ok = disk_write(disk, dir, &error);
    }
    disk_free(disk);
    crash_log_close(&log);
    return ok ? EXIT_SUCCESS : fail("replay", error);
}

static int command_mark(const char *path, const char *text)
{
    VjRecordHead head = {.magic = VJ_RECORD_MAGIC,
                         .kind = VJ_RECORD_MARK,
                         .pid = (uint32_t)getpid(),
                         .data_bytes = strlen(text)};
    struct iovec iov[2] = {{&head, sizeof head}, {(void *)(uintptr_t)text, strlen(text)}};
    VJ_AUTO_FD fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

    if (fd < 0 || writev(fd, iov, 2) != (ssize_t)(sizeof head + head.data_bytes)) {
        return fail(path, NULL);
    }
    return EXIT_SUCCESS;
}

static int command_count(const char *path)
{
    g_autoptr(GError) error = NULL;
    unsigned counts[256] = {0}, marks = 0, marks_most = 0;
    uint64_t bytes = 0;
    CrashLog log;

    if (!crash_log_open(&log, path, &error)) {
        return fail("the log", error);
    }
    for (size_t i = 0; i < crash_log_count(&log); i++) {
        CrashRecord r = crash_log_get(&log, i);

        counts[r.head.kind]++;
        bytes += r.head.kind == VJ_RECORD_WRITE ? r.head.data_bytes : 0;
        marks += r.head.kind == VJ_RECORD_MARK;
        if (r.head.kind == VJ_RECORD_DURABLE || i + 1 == crash_log_count(&log)) {
            marks_most = MAX(marks_most, marks);
            marks = 0;
        }
    }
    printf("records %zu written %" G_GUINT64_FORMAT " marks-between-flushes %u",
           crash_log_count(&log), bytes, marks_most);
    for (unsigned i = 0; i < G_N_ELEMENTS(counts); i++) {
        if (counts[i] > 0) {
            printf(" %c=%u", (int)i, counts[i]);
        }
    }
    printf("\n");
    crash_log_close(&log);
    return EXIT_SUCCESS;
}

/* Of the process that recorded last: the daemon, since it is mounted. */
static int command_pid(const char *path)
{
    g_autoptr(GError) error = NULL;
    uint32_t pid = 0;
    CrashLog log;

    if (!crash_log_open(&log, path, &error)) {
        return fail("the log", error);
    }
    for (size_t i = 0; i < crash_log_count(&log); i++) {
        CrashRecord r = crash_log_get(&log, i);

        pid = r.head.kind != VJ_RECORD_MARK ? r.head.pid : pid;
    }
    crash_log_close(&log);
    printf("%u\n", pid);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";

    if (strcmp(command, "states") == 0) {
        return command_states(argc - 1, argv + 1);
    }
    if (strcmp(command, "replay") == 0 && argc == 4) {
        return command_replay(argv[2], argv[3]);
    }
    if (strcmp(command, "mark") == 0 && argc == 4) {
        return command_mark(argv[2], argv[3]);
    }
    if (strcmp(command, "count") == 0 && argc == 3) {
        return command_count(argv[2]);
    }
    if (strcmp(command, "pid") == 0 && argc == 3) {
        return command_pid(argv[2]);
    }
    return fail("usage: check states|replay|mark|count|pid LOG ...", NULL);
}
