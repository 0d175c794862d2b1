/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rounds.c - rounds of at most four concurrent operations on one small file
 *
 *   rounds --dir DIR [--seed N] [--rounds N] [--seconds N] [--ops LIST] [--no-edits]
 *          [--exact-reads] [--load] [--keep-going] [--show N] [--most N] [--strict]
 *
 * LIST: names of operations, or -NAME for all but these ("--ops=-store,-copy").
 * --no-edits: DIR is not on varjfs.  --exact-reads: it is, with a libfuse and a kernel
 * that send a direct read by a descriptor without O_RDWR as one request.  --load: a busy
 * process for each processor.  --keep-going: count, and go on with a new file.  --show:
 * how many of each kind are told in full (3).  --most: operations at once, to see which
 * of them it takes.  --strict: also direct writes beside stores through a mapping, which
 * open(2) warns of.
 *
 * Two processes with two threads each do the operations of a round at the same time.
 * Then everybody waits while the file is looked at through every view: they must agree,
 * and be what one of the possible orders leaves behind (rounds-check.c).
 *
 * Exit status: 0 no violation; 1 violations; 2 it could not run; 3 a hang.
 */
#include "rounds.h"

#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <linux/stat.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 2u
#define THREADS (ROUND_OPS / PROCESSES)
#define HANG_SECONDS 60u
#define ROUNDS_A_FILE 500u
/* A longer file is made short before the next round. */
#define SIZE_MOST ((uint64_t)24 << 10)

typedef struct Options {
    const char *dir;
    uint64_t rounds, seconds;
    bool no_edits, exact_reads, load, keep_going;
} Options;

typedef struct Runner {
    Options o;
    Shared *shared;
    VjRng rng;
    Choice choice;
    pid_t children[PROCESSES + 64];
    unsigned child_count;
    Report report;
    Views views;
    int watch;   /* inotify */
    bool spoilt; /* the file: a new one before the next round */
} Runner;

static volatile sig_atomic_t is_interrupted;

static bool chance(Runner *r, unsigned percent)
{
    return vj_rng_below(&r->rng, 100) < percent;
}

/* ---- workers */

static void *worker_thread(void *number)
{
    Runner *r = ((void **)number)[0];

    worker_run(r->shared, GPOINTER_TO_UINT(((void **)number)[1]));
}

static void start_process(Runner *r, unsigned first)
{
    static void *arguments[ROUND_OPS][2];
    pid_t pid = fork();

    if (pid < 0) {
        die("fork");
    }
    if (pid > 0) {
        r->children[r->child_count++] = pid;
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_t thread;

        arguments[i][0] = r;
        arguments[i][1] = GUINT_TO_POINTER(first + i);
        if (pthread_create(&thread, NULL, worker_thread, arguments[i]) != 0) {
            die("pthread_create");
        }
    }
    for (;;) {
        pause();
    }
}

static void start_load(Runner *r)
{
    long count = MIN(sysconf(_SC_NPROCESSORS_ONLN), 64);

    for (long i = 0; i < count; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile uint64_t n = 0;; n++) {
            }
        }
        r->children[r->child_count++] = pid;
    }
}

static void stop_children(Runner *r)
{
    for (unsigned i = 0; i < r->child_count; i++) {
        kill(r->children[i], SIGKILL);
        waitpid(r->children[i], NULL, 0);
    }
}

/* All workers, or those that have an operation, do round number @r->report.round. */
static void run_workers(Runner *r, unsigned count)
{
    Shared *s = r->shared;
    uint64_t end = now_ns() + (uint64_t)HANG_SECONDS * 1000000000u;
    static uint32_t number;
    uint32_t left;

    number++;
    __atomic_store_n(&s->running, count, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < count; i++) {
        __atomic_store_n(&s->go[i], number, __ATOMIC_RELEASE);
    }
    for (unsigned i = 0; i < count; i++) {
        futex_wake(&s->go[i]);
    }
    while ((left = __atomic_load_n(&s->running, __ATOMIC_ACQUIRE)) != 0) {
        futex_wait(&s->running, left, 1000);
        if (now_ns() > end) {
            report_round(&r->report, &s->round, "HANG");
            stop_children(r);
            exit(3);
        }
    }
}

/* ---- the file */

static void write_all(int fd, const uint8_t *src, size_t len)
{
    if (pwrite(fd, src, len, 0) != (ssize_t)len) {
        die("write of the first content");
    }
}

/* A content of any size, with bytes that were never there. */
static void renew_content(Runner *r)
{
    Content *c = &r->shared->round.before;

    memset(c, 0, sizeof *c);
    c->size = any_size(&r->rng);
    for (uint64_t i = 0; i < c->size; i++) {
        c->bytes[i] = (uint8_t)(1 + vj_rng_below(&r->rng, 255));
    }
    if (ftruncate(r->views.fd, (off_t)c->size) != 0) {
        die("ftruncate");
    }
    write_all(r->views.fd, c->bytes, c->size);
}

static void close_file(Runner *r)
{
    if (r->views.mapping == NULL) {
        return;
    }
    munmap(r->views.mapping, FILE_BYTES);
    close(r->views.fd);
    close(r->watch);
    if (r->views.direct >= 0) {
        close(r->views.direct);
    }
}

static void new_file(Runner *r)
{
    Shared *s = r->shared;

    close_file(r);
    unlink(s->path);
    r->views.fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (r->views.fd < 0) {
        die(s->path);
    }
    r->views.direct = s->direct ? open(s->path, O_RDONLY | O_DIRECT | O_CLOEXEC) : -1;
    r->views.mapping =
        mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, r->views.fd, 0);
    if (r->views.mapping == MAP_FAILED || (s->direct && r->views.direct < 0)) {
        die("open for the views");
    }
    r->watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (r->watch < 0 || inotify_add_watch(r->watch, s->path, IN_MODIFY) < 0) {
        die("inotify");
    }
    r->spoilt = false;
    renew_content(r);
    __atomic_add_fetch(&s->generation, 1, __ATOMIC_ACQ_REL);
    run_workers(r, ROUND_OPS);
}

static void make_source(Runner *r)
{
    uint8_t *bytes = g_malloc(SOURCE_BYTES);
    int fd = open(r->shared->source, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    for (size_t i = 0; i < SOURCE_BYTES; i++) {
        bytes[i] = (uint8_t)(1 + vj_rng_below(&r->rng, 255));
    }
    if (fd < 0) {
        die(r->shared->source);
    }
    write_all(fd, bytes, SOURCE_BYTES);
    close(fd);
    r->choice.source = bytes;
}

static void refuse(Runner *r, OpKind kind)
{
    if (r->choice.weights[kind] > 0) {
        printf("# %s: not here (%s)\n", op_classes[kind].name, g_strerror(errno));
        r->choice.weights[kind] = 0;
    }
}

/* Of offsets and lengths; 0: there is no O_DIRECT. */
static uint64_t direct_align(const Runner *r, int fd)
{
    static const uint64_t aligns[] = {1, 512, 4096};
    struct statx stx = {0};
    uint64_t least = 1;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
        (stx.stx_mask & STATX_DIOALIGN) != 0) {
        least = MAX(stx.stx_dio_offset_align, 1);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(aligns); i++) {
        size_t len = aligns[i];

        if (len >= least &&
            pread(fd, r->views.aligned, len, (off_t)len) == (ssize_t)len &&
            pwrite(fd, r->views.aligned, len, (off_t)len) == (ssize_t)len) {
            return len;
        }
    }
    return 0;
}

/* What this file system does not have is left out, and said. */
static void probe(Runner *r)
{
    int fd = open(r->shared->source, O_RDWR | O_DIRECT | O_CLOEXEC);
    off_t from = 0, to = 8192;

    r->choice.direct_align = fd < 0 ? 0 : direct_align(r, fd);
    r->choice.direct = r->choice.direct_align != 0;
    if (!r->choice.direct) {
        printf("# O_DIRECT: not here\n");
    }
    if (fallocate(r->views.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1) != 0) {
        refuse(r, OP_PUNCH);
    }
    if (fallocate(r->views.fd, FALLOC_FL_ZERO_RANGE, 0, 1) != 0) {
        refuse(r, OP_ZERO);
        refuse(r, OP_ZERO_KEEP);
    }
    if (fallocate(r->views.fd, 0, 0, 1) != 0) {
        refuse(r, OP_ALLOCATE);
    }
    if (copy_file_range(r->views.fd, &from, r->views.fd, &to, 1, 0) != 1) {
        refuse(r, OP_COPY);
        refuse(r, OP_COPY_SELF);
    }
    if (r->o.no_edits) {
        errno = EOPNOTSUPP; /* as one step: the source is read without a lock elsewhere */
        refuse(r, OP_COPY_SELF);
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* ---- what is asked of a round */

static void check_calls(Runner *r)
{
    const Round *round = &r->shared->round;

    for (unsigned i = 0; i < round->op_count; i++) {
        const Op *op = &round->ops[i];

        if (op->result < 0) {
            g_autofree char *kind =
                g_strdup_printf("call failed: %s: %s", op_classes[op->kind].name,
                                g_strerror((int)-op->result));

            report_violation(&r->report, round, kind, KERNEL_NONE);
            r->spoilt = true;
        }
    }
}

static void check_looks(Runner *r)
{
    static const char *const faults[] = {"", "zeroes that nobody wrote",
                                         "bytes that were not there",
                                         "a size that was not"};
    const Round *round = &r->shared->round;

    for (unsigned i = 0; i < round->op_count; i++) {
        const Op *op = &round->ops[i];
        ReadFault fault =
            op_classes[op->kind].looks ? round_judge_look(round, i, NULL) : READ_RIGHT;

        if (fault != READ_RIGHT) {
            g_autofree char *kind =
                g_strdup_printf("%s%s saw %s", op->direct ? "direct " : "",
                                op_classes[op->kind].name, faults[fault]);

            report_violation(&r->report, round, kind,
                             round_kernel_fault_of_look(round, i));
        }
    }
}

static void print_views(const Views *v)
{
    printf("    sizes:");
    for (unsigned i = 0; i < VIEW_KINDS; i++) {
        printf(" %s %" PRIu64 "%s", view_names[i], v->seen[i].size,
               i + 1 < VIEW_KINDS ? "," : "\n");
    }
}

static void check_content(Runner *r)
{
    static Nearest nearest;
    const Round *round = &r->shared->round;
    const Content *truth = &r->views.seen[VIEW_DIRECT];
    Verdict verdict = round_judge(round, truth, &nearest);
    KernelFault by_kernel;

    if (verdict == VERDICT_RIGHT) {
        return;
    }
    by_kernel = round_kernel_fault(round, truth);
    if (verdict != VERDICT_WRONG) {
        report_violation(&r->report, round,
                         verdict == VERDICT_POSITION
                             ? "position behind an append"
                             : "result of a call or a direct read",
                         by_kernel);
        return;
    }
    r->spoilt = true;
    if (report_violation(&r->report, round, round_name_fault(round, truth, &nearest),
                         by_kernel)) {
        printf("    nearest: size %" PRIu64 ", order", nearest.content.size);
        for (unsigned i = 0; i < ROUND_OPS && nearest.order[i] < ROUND_OPS; i++) {
            printf(" %u", nearest.order[i]);
        }
        printf("\n");
        print_difference(round, truth, &nearest.content);
        print_views(&r->views);
    }
}

/* The first view that does not agree; looked at once more, to see whether it stays so. */
static void check_views(Runner *r)
{
    static Content first[2];
    const Round *round = &r->shared->round;
    bool stores = round_stores(round);

    for (unsigned i = 0; i < VIEW_KINDS; i++) {
        const char *fault = view_fault(&r->views, (ViewKind)i, stores);
        g_autofree char *kind = NULL;
        uint64_t seen_size;

        if (fault == NULL) {
            continue;
        }
        r->spoilt = true;
        first[0] = r->views.seen[VIEW_DIRECT];
        first[1] = r->views.seen[i];
        seen_size = first[1].size;
        if (i == VIEW_MAPPED && seen_size == page_end(first[0].size)) {
            first[1].size = first[0].size; /* its size is right */
        }
        views_take(&r->views, &r->rng);
        kind =
            g_strdup_printf("%s, %s", fault,
                            views_agree(&r->views, stores) ? "for a moment" : "for good");
        if (report_violation(&r->report, round, kind,
                             round_kernel_fault_of_view(round, &first[1], &first[0]))) {
            printf("    %s: size %" PRIu64 ", past the cache %" PRIu64 "\n",
                   view_names[i], first[1].size, first[0].size);
            if (view_has_bytes((ViewKind)i)) {
                print_difference(round, &first[1], &first[0]);
            }
            print_views(&r->views);
        }
        return;
    }
}

/* Who changes a file is seen by those who watch it. */
static void check_events(Runner *r)
{
    const Round *round = &r->shared->round;
    char events[4096] __attribute__((aligned(8)));
    bool seen = false, needed = false;

    while (read(r->watch, events, sizeof events) > 0) {
        seen = true;
    }
    for (unsigned i = 0; i < round->op_count; i++) {
        const Op *op = &round->ops[i];

        needed |= op_classes[op->kind].edits && op->len > 0 && op->result > 0;
    }
    if (needed && !seen) {
        report_violation(&r->report, round, "no event of inotify", KERNEL_NONE);
    }
}

static void drain_events(const Runner *r)
{
    char events[4096];

    while (read(r->watch, events, sizeof events) > 0) {
    }
}

/* ---- a round */

/* Nobody else is at work: which pages are cached or dirty when the round begins. */
static void prepare(Runner *r)
{
    Round *round = &r->shared->round;
    Content *c = &round->before;
    uint8_t word;
    uint64_t at;

    round->is_dirty = false;
    if (c->size > SIZE_MOST || chance(r, 12)) {
        renew_content(r);
    }
    if (chance(r, 25) && posix_fadvise(r->views.fd, 0, 0, POSIX_FADV_DONTNEED) != 0) {
        die("posix_fadvise");
    }
    if (chance(r, 25) && c->size > 0 && r->choice.weights[OP_STORE] > 0) {
        at = chance(r, 50) ? c->size - 1 : vj_rng_below(&r->rng, c->size);
        word = (uint8_t)(1 + vj_rng_below(&r->rng, 255));
        if (!mapping_store(r->views.mapping + at, &word, 1)) {
            report_violation(&r->report, round, "SIGBUS before a round", KERNEL_NONE);
            r->spoilt = true;
            return;
        }
        c->bytes[at] = word;
        round->is_dirty = true;
        round->dirty_at = at;
    }
}

static void run_round(Runner *r)
{
    Round *round = &r->shared->round;

    r->report.round++;
    if (r->spoilt || r->report.round % ROUNDS_A_FILE == 1) {
        new_file(r);
    }
    round->op_count = 0;
    prepare(r);
    if (r->spoilt) {
        return;
    }
    round_make(round, &r->rng, &r->choice, r->report.seed * 1000003 + r->report.round);
    drain_events(r);
    r->shared->changing = 0;
    for (unsigned i = 0; i < round->op_count; i++) {
        r->shared->changing += op_classes[round->ops[i].kind].changes;
        r->report.done[round->ops[i].kind]++;
    }
    run_workers(r, round->op_count);
    views_take(&r->views, &r->rng);
    check_events(r);
    check_calls(r);
    check_looks(r);
    check_content(r);
    if (!r->spoilt) {
        check_views(r);
    }
    round->before = r->views.seen[VIEW_DIRECT];
    /* A store behind the end may come to light in any later round. */
    r->spoilt |= view_shows_bytes_behind(&r->views.seen[VIEW_MAPPED], round->before.size);
}

/* ---- the command line */

static void usage(void)
{
    fprintf(stderr, "usage: rounds --dir DIR [--seed N] [--rounds N] [--seconds N] "
                    "[--ops LIST] [--no-edits] [--exact-reads] [--load] [--keep-going] "
                    "[--show N] [--most N] [--strict]\n");
    exit(2);
}

static uint64_t number_or_usage(const char *text)
{
    uint64_t number;

    if (!g_ascii_string_to_unsigned(text, 10, 0, UINT64_MAX, &number, NULL)) {
        usage();
    }
    return number;
}

static void set_weights(Runner *r, const char *list)
{
    g_auto(GStrv) names = g_strsplit(list, ",", -1);
    bool without = names[0] != NULL && names[0][0] == '-';

    for (unsigned i = 0; i < OP_KINDS; i++) {
        r->choice.weights[i] = without ? op_classes[i].weight : 0;
    }
    for (unsigned n = 0; names[n] != NULL; n++) {
        unsigned i = 0;

        while (i < OP_KINDS && strcmp(op_classes[i].name, names[n] + without) != 0) {
            i++;
        }
        if (i == OP_KINDS) {
            usage();
        }
        r->choice.weights[i] = without ? 0 : MAX(op_classes[i].weight, 1);
    }
}

static void parse_options(Runner *r, int argc, char **argv)
{
    static const struct option options[] = {{"dir", required_argument, NULL, 'd'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"seconds", required_argument, NULL, 't'},
                                            {"ops", required_argument, NULL, 'o'},
                                            {"no-edits", no_argument, NULL, 'n'},
                                            {"exact-reads", no_argument, NULL, 'e'},
                                            {"load", no_argument, NULL, 'l'},
                                            {"keep-going", no_argument, NULL, 'k'},
                                            {"show", required_argument, NULL, 'w'},
                                            {"most", required_argument, NULL, 'm'},
                                            {"strict", no_argument, NULL, 'x'},
                                            {NULL, 0, NULL, 0}};
    int c;

    r->o.rounds = UINT64_MAX;
    r->report = (Report){.seed = vj_random_u64() % 1000000000, .show = 3};
    for (unsigned i = 0; i < OP_KINDS; i++) {
        r->choice.weights[i] = op_classes[i].weight;
    }
    r->choice.most = ROUND_OPS;
    while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        switch (c) {
        case 'd':
            r->o.dir = optarg;
            break;
        case 's':
            r->report.seed = number_or_usage(optarg);
            break;
        case 'r':
            r->o.rounds = number_or_usage(optarg);
            break;
        case 't':
            r->o.seconds = number_or_usage(optarg);
            break;
        case 'o':
            set_weights(r, optarg);
            break;
        case 'n':
            r->o.no_edits = true;
            break;
        case 'e':
            r->o.exact_reads = true;
            break;
        case 'l':
            r->o.load = true;
            break;
        case 'k':
            r->o.keep_going = true;
            break;
        case 'w':
            r->report.show = (unsigned)number_or_usage(optarg);
            break;
        case 'm':
            r->choice.most = (unsigned)number_or_usage(optarg);
            break;
        case 'x':
            r->choice.strict = true;
            break;
        default:
            usage();
        }
    }
    if (r->o.dir == NULL || optind != argc || r->choice.most == 0) {
        usage();
    }
    for (unsigned i = 0; i < OP_KINDS; i++) {
        if (r->o.no_edits && op_classes[i].edits) {
            r->choice.weights[i] = 0;
        }
    }
}

static void on_interrupt(int number)
{
    (void)number;
    is_interrupted = 1;
}

static void start(Runner *r)
{
    Shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (s == MAP_FAILED) {
        die("shared memory");
    }
    r->shared = s;
    r->views.aligned = g_aligned_alloc(1, FILE_BYTES, ROUND_PAGE);
    r->report.counts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    vj_rng_init(&r->rng, r->report.seed);
    r->views.path = s->path;
    g_snprintf(s->path, sizeof s->path, "%s/rounds", r->o.dir);
    g_snprintf(s->source, sizeof s->source, "%s/rounds-source", r->o.dir);
    mapping_handle_bus_errors();
    make_source(r);
    r->views.fd = open(s->source, O_RDWR | O_CLOEXEC);
    probe(r);
    close(r->views.fd);
    make_source(r);
    s->direct = r->choice.direct;
    s->round.exact_reads = r->o.exact_reads;
    for (unsigned i = 0; i < ROUND_OPS; i += THREADS) {
        start_process(r, i);
    }
    if (r->o.load) {
        start_load(r);
    }
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
}

int main(int argc, char **argv)
{
    Runner *r = g_new0(Runner, 1);
    uint64_t begin, end;

    setvbuf(stdout, NULL, _IOLBF, 0);
    parse_options(r, argc, argv);
    printf("# seed %" PRIu64 "\n", r->report.seed);
    start(r);
    begin = now_ns();
    end = r->o.seconds == 0 ? UINT64_MAX : begin + r->o.seconds * 1000000000u;
    while (r->report.round < r->o.rounds && now_ns() < end && !is_interrupted &&
           (r->o.keep_going || r->report.violations == 0)) {
        run_round(r);
    }
    report_figures(&r->report, (double)(now_ns() - begin) / 1e9);
    stop_children(r);
    unlink(r->shared->path);
    unlink(r->shared->source);
    return r->report.violations > 0 ? 1 : 0;
}
