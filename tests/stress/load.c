/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * load.c - processes and threads on the same few files, and whether what they saw can be
 *
 *   load --dir DIR [--seconds N] [--seed N] [--processes N] [--threads N] [--files N]
 *        [--mix edits|writes|mixed|mapped] [--plant torn|stale|early|lost|absent]
 *        [--no-kill] [--strict]
 *
 * Windows follow each other.  In each all threads do some dozens of operations and note
 * when each was called, when it returned, and what it saw; now and then a process is
 * killed.  Then everybody waits while each file is read in three ways, which must agree.
 * A process that runs beside the next window looks for an order that explains the history
 * of each file.
 *
 * Exit status: 0 no difference; 1 a difference, or a call that failed; 3 a hang.
 */
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HANG_SECONDS 180
#define OPS_LEAST 15u
#define OPS_MOST 45u

typedef struct Parent {
    Load l;
    VjRng rng;
    pid_t pids[PROCESSES_MAX];
    pid_t checkers[2]; /* of the windows in shared->windows */
    uint64_t window;
    uint8_t *bytes;
} Parent;

/* ---- for the workers, too */

uint64_t load_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void load_futex_wait(uint32_t *word, uint32_t value, unsigned timeout_ms)
{
    struct timespec t = {.tv_sec = timeout_ms / 1000,
                         .tv_nsec = timeout_ms % 1000 * 1000000};

    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

void load_futex_wake(uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void load_fail(const Load *l, const char *format, ...)
{
    va_list args;

    flockfile(stderr);
    fprintf(stderr, "load: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    funlockfile(stderr);
    __atomic_store_n(&l->shared->failed, 1, __ATOMIC_RELEASE);
    _exit(1);
}

char *load_path(const Load *l, const char *what, unsigned i)
{
    return g_strdup_printf("%s/%s%u", l->dir, what, i);
}

Window *load_window(const Load *l)
{
    return &l->shared
                ->windows[__atomic_load_n(&l->shared->started, __ATOMIC_ACQUIRE) % 2];
}

struct Logged *log_begin(Log *log, Kind kind, unsigned file)
{
    struct Logged *entry = &log->entries[log->count];

    g_assert(log->count < EVENTS_MAX);
    *entry = (struct Logged){.e = {.kind = kind, .size_after = NO_SIZE}, .file = file};
    return entry;
}

void log_call(Log *log, struct Logged *entry)
{
    entry->e.returned_ns = UINT64_MAX;
    entry->e.called_ns = load_now_ns();
    __atomic_store_n(&log->count, log->count + 1, __ATOMIC_RELEASE);
}

void log_return(struct Logged *entry)
{
    entry->e.returned_ns = load_now_ns();
    __atomic_store_n(&entry->e.has_returned, true, __ATOMIC_RELEASE);
}

/* ---- what a word says */

static uint64_t word_of(uint32_t op, uint32_t index)
{
    uint64_t w = (uint64_t)op << 20 | index, check = w * 0x9e3779b97f4a7c15u;

    return op == OP_HOLE ? 0 : w << 14 | check >> 50;
}

void content_fill(void *dst, uint32_t op, uint32_t index, size_t words)
{
    uint64_t *to = dst;

    for (size_t i = 0; i < words; i++) {
        to[i] = word_of(op, index + (uint32_t)i);
    }
}

bool content_decode(const void *src, size_t words, Log *log, Event *e)
{
    const uint64_t *from = src;
    Run *runs = log->runs + log->run_count;
    unsigned count = 0;

    for (size_t i = 0; i < words; i++) {
        uint32_t op = (uint32_t)(from[i] >> 34),
                 index = (uint32_t)(from[i] >> 14 & 0xfffff);

        if (log->run_count + count + 1 >= RUNS_MAX) {
            return false;
        }
        runs_add(runs, &count, from[i] == word_of(op, index) ? op : OP_BROKEN, index);
    }
    log->run_count += count;
    e->seen = runs;
    e->seen_count = count;
    return true;
}

/* ---- the parent */

static uint64_t below(Parent *p, uint64_t bound)
{
    return vj_rng_below(&p->rng, bound);
}

static int open_file(Parent *p, const char *what, unsigned i, int flags)
{
    g_autofree char *path = load_path(&p->l, what, i);
    int fd = open(path, flags | O_CLOEXEC, 0600);

    if (fd < 0) {
        load_fail(&p->l, "open %s: %s", path, strerror(errno));
    }
    return fd;
}

static void write_all(Parent *p, int fd, const void *src, size_t len)
{
    if (len > 0 && write(fd, src, len) != (ssize_t)len) {
        load_fail(&p->l, "write of %zu bytes: %s", len, strerror(errno));
    }
}

/* A new inode, so that offsets of another phase do not meet old pages. */
static void reset_file(Parent *p, unsigned file, FileWindow *w)
{
    static const uint64_t limits[] = {512, 4096, 4096, 32768, 131000};
    g_autofree char *path = load_path(&p->l, "file", file);
    uint64_t words;
    VJ_AUTO_FD fd = -1;

    w->phase = w->mix != EDITS || below(p, 2) > 0 ? 0 : (unsigned)below(p, WORD_BYTES);
    w->limit_words = limits[below(p, G_N_ELEMENTS(limits))];
    words = below(p, w->limit_words);
    if (below(p, 2) == 0 && unlink(path) != 0 && errno != ENOENT) {
        load_fail(&p->l, "unlink %s: %s", path, strerror(errno));
    }
    fd = open_file(p, "file", file, O_WRONLY | O_CREAT | O_TRUNC);
    write_all(p, fd, "phase..", w->phase);
    content_fill(p->bytes, OP_POOL, 0, words);
    write_all(p, fd, p->bytes, words * WORD_BYTES);
}

static size_t read_past_cache(Parent *p, unsigned file)
{
    VJ_AUTO_FD fd = open_file(p, "file", file, O_RDONLY | O_DIRECT);
    size_t len = 0;
    ssize_t n;

    do {
        n = pread(fd, p->bytes + len, 1 << 20, (off_t)len);
        if (n < 0 || len + (size_t)n > FILE_WORDS_MAX * WORD_BYTES - (1 << 20)) {
            load_fail(&p->l, "file %u at %zu: %s", file, len, strerror(errno));
        }
        len += (size_t)n;
    } while (n == 1 << 20);
    return len;
}

static void compare(Parent *p, unsigned file, const char *how, const uint8_t *got,
                    size_t got_len, size_t len)
{
    size_t same = 0;

    while (same < MIN(got_len, len) && got[same] == p->bytes[same]) {
        same++;
    }
    if (got_len != len || same < len) {
        load_fail(
            &p->l,
            "window %" PRIu64 ", file %u (mix %d): %s gives %zu bytes, past the cache "
            "%zu, the first %zu are equal",
            p->window, file, (int)p->l.shared->windows[p->window % 2].files[file].mix,
            how, got_len, len, same);
    }
}

/* The kernel may have cleared the rest of a page (README.md); it is read again. */
static ssize_t read_cleared_again(Parent *p, int fd, uint8_t *cached, size_t len,
                                  ssize_t n)
{
    bool cleared = false;

    for (size_t i = 0; i < MIN((size_t)n, len); i++) {
        if (cached[i] != p->bytes[i] && cached[i] != 0) {
            return n;
        }
        cleared = cleared || cached[i] != p->bytes[i];
    }
    if (!cleared) {
        return n;
    }
    p->l.shared->totals.cleared++;
    if (p->l.strict) {
        return n;
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return pread(fd, cached, len + 1, 0);
}

/* Nobody does anything: the daemon, the page cache, a mapping and stat(2) agree. */
static size_t look_at_file(Parent *p, unsigned file)
{
    size_t len = read_past_cache(p, file);
    g_autofree uint8_t *cached = g_malloc(len + 1);
    VJ_AUTO_FD fd = open_file(p, "file", file, O_RDONLY);
    ssize_t n = pread(fd, cached, len + 1, 0);
    struct stat st;
    void *map;

    if (n >= 0) {
        n = read_cleared_again(p, fd, cached, len, n);
    }
    if (n < 0 || fstat(fd, &st) != 0) {
        load_fail(&p->l, "file %u: %s", file, strerror(errno));
    }
    compare(p, file, "read(2)", cached, (size_t)n, len);
    if ((size_t)st.st_size != len) {
        load_fail(&p->l, "window %" PRIu64 ", file %u: stat says %zu bytes, it has %zu",
                  p->window, file, (size_t)st.st_size, len);
    }
    if (len > 0) {
        map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
            load_fail(&p->l, "mmap: %s", strerror(errno));
        }
        compare(p, file, "a mapping", map, len, len);
        munmap(map, len);
    }
    return len;
}

/* The state of a file into the parent's log. */
static void note_file(Parent *p, Window *w, unsigned file, size_t len)
{
    Log *log = &w->logs[THREADS_MAX];
    struct Logged *entry = log_begin(log, READ, file);

    if (len < w->files[file].phase || (len - w->files[file].phase) % WORD_BYTES != 0) {
        load_fail(&p->l, "window %" PRIu64 ", file %u has %zu bytes, phase %u", p->window,
                  file, len, w->files[file].phase);
    }
    entry->e.called_ns = load_now_ns();
    entry->e.to_the_end = true;
    entry->e.has_returned = true;
    entry->e.returned_ns = UINT64_MAX;
    entry->e.thread = THREADS_MAX;
    if (!content_decode(p->bytes + w->files[file].phase,
                        (len - w->files[file].phase) / WORD_BYTES, log, &entry->e)) {
        load_fail(&p->l, "file %u has too many pieces", file);
    }
    log->count++;
}

static void look_at_names(Parent *p, Window *w, uint64_t *inodes)
{
    Log *log = &w->logs[THREADS_MAX];
    VJ_AUTO_FD names = open_file(p, "names", 0, O_RDONLY | O_DIRECTORY);

    for (unsigned i = 0; i < NAMES; i++) {
        struct Logged *entry = log_begin(log, LOOK_UP, p->l.files);
        char name[] = {'n', (char)('0' + i), 0};
        struct stat st = {0};

        if (fstatat(names, name, &st, AT_SYMLINK_NOFOLLOW) != 0 && errno != ENOENT) {
            load_fail(&p->l, "stat %s: %s", name, strerror(errno));
        }
        entry->e.called_ns = load_now_ns();
        entry->e.a = i;
        entry->e.inode = inodes[i] = st.st_ino;
        entry->e.has_returned = true;
        entry->e.returned_ns = UINT64_MAX;
        entry->e.thread = THREADS_MAX;
        log->count++;
    }
}

static void start_worker(Parent *p, unsigned i)
{
    p->pids[i] = fork();
    if (p->pids[i] < 0) {
        load_fail(&p->l, "fork: %s", strerror(errno));
    }
    if (p->pids[i] == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        worker_run(&p->l, i);
    }
}

/* The checker of the window two before has to be done with its memory. */
static void wait_for_checker(Parent *p, unsigned i)
{
    int status;

    if (p->checkers[i] > 0) {
        if (waitpid(p->checkers[i], &status, 0) < 0 || status != 0) {
            p->l.shared->failed = 1;
        }
        p->checkers[i] = 0;
    }
}

static void begin_window(Parent *p)
{
    Shared *s = p->l.shared;
    const Window *last = &s->windows[p->window % 2];
    Window *w = &s->windows[(p->window + 1) % 2];

    wait_for_checker(p, (unsigned)((p->window + 1) % 2));
    p->window++;
    w->number = p->window;
    w->seed = vj_rng_u64(&p->rng);
    w->ops = OPS_LEAST + (unsigned)below(p, OPS_MOST - OPS_LEAST);
    for (unsigned t = 0; t <= THREADS_MAX; t++) {
        w->logs[t].count = w->logs[t].run_count = 0;
    }
    for (unsigned f = 0; f < p->l.files; f++) {
        FileWindow *file = &w->files[f];
        const Event *seen;
        size_t len;

        file->mix = p->l.only != MIXES ? p->l.only : (Mix)below(p, MIXES);
        file->phase = last->files[f].phase;
        file->limit_words = last->files[f].limit_words;
        if (p->window == 1 || below(p, 2) == 0 ||
            (file->mix != EDITS && file->phase != 0)) {
            reset_file(p, f, file);
        }
        len = look_at_file(p, f);
        note_file(p, w, f, len);
        /* That was the beginning; the end will go into the log in its place. */
        w->logs[THREADS_MAX].count = 0;
        w->logs[THREADS_MAX].run_count = 0;
        seen = &w->logs[THREADS_MAX].entries[0].e;
        file->first_count = seen->seen_count;
        memcpy(file->first, seen->seen, seen->seen_count * sizeof(Run));
        file->first_size = s->size_words[f] = (len - file->phase) / WORD_BYTES;
    }
    look_at_names(p, w, w->first_names);
    w->logs[THREADS_MAX].count = 0;
    for (unsigned i = 0; i < p->l.processes; i++) {
        if (p->pids[i] == 0) {
            start_worker(p, i);
        }
    }
    s->ended = 0;
    __atomic_store_n(&s->started, (uint32_t)p->window, __ATOMIC_RELEASE);
    load_futex_wake(&s->started);
}

/* A killed process has ended all its calls when it has been waited for. */
static void reap(Parent *p, unsigned i, bool killed)
{
    Shared *s = p->l.shared;
    Window *w = &s->windows[p->window % 2];
    int status;

    if (waitpid(p->pids[i], &status, 0) < 0 || (!killed && status != 0)) {
        s->failed = 1;
    }
    p->pids[i] = 0;
    for (unsigned k = 0; k < p->l.threads; k++) {
        unsigned t = i * p->l.threads + k;
        Log *log = &w->logs[t];

        s->threads[t].window = (uint32_t)p->window;
        for (unsigned e = 0; e < log->count; e++) {
            if (!log->entries[e].e.has_returned) {
                log->entries[e].e.returned_ns = load_now_ns();
            }
        }
    }
}

static bool has_ended(const Parent *p, unsigned process)
{
    for (unsigned k = 0; k < p->l.threads; k++) {
        unsigned t = process * p->l.threads + k;

        if (__atomic_load_n(&p->l.shared->threads[t].window, __ATOMIC_ACQUIRE) !=
            (uint32_t)p->window) {
            return false;
        }
    }
    return true;
}

/* Where the threads of a process are in the kernel; root may see it. */
static void print_stacks(pid_t pid)
{
    g_autofree char *tasks = g_strdup_printf("/proc/%d/task", (int)pid);
    g_autoptr(GDir) dir = g_dir_open(tasks, 0, NULL);
    const char *task;

    while (dir != NULL && (task = g_dir_read_name(dir)) != NULL) {
        g_autofree char *path = g_strdup_printf("%s/%s/stack", tasks, task);
        g_autofree char *stack = NULL;

        if (g_file_get_contents(path, &stack, NULL, NULL)) {
            fprintf(stderr, "%s:\n%s", path, stack);
        }
    }
}

static void say_where_it_hangs(Parent *p)
{
    Shared *s = p->l.shared;

    fprintf(stderr, "load: window %" PRIu64 " does not end:\n", p->window);
    for (unsigned t = 0; t < p->l.processes * p->l.threads; t++) {
        if (s->threads[t].window != (uint32_t)p->window) {
            fprintf(stderr, "  process %d, thread %u: %s for %.1f s\n",
                    (int)p->pids[t / p->l.threads], t, s->threads[t].doing,
                    (double)(load_now_ns() - s->threads[t].since_ns) / 1e9);
        }
    }
    for (unsigned i = 0; i < p->l.processes; i++) {
        if (p->pids[i] != 0 && !has_ended(p, i)) {
            print_stacks(p->pids[i]);
        }
    }
}

/* false: somebody hangs. */
static bool wait_for_workers(Parent *p)
{
    Shared *s = p->l.shared;
    uint64_t deadline = load_now_ns() + HANG_SECONDS * (uint64_t)1000000000;

    for (unsigned i = 0; i < p->l.processes; i++) {
        while (p->pids[i] != 0 && !has_ended(p, i)) {
            uint32_t ended = __atomic_load_n(&s->ended, __ATOMIC_ACQUIRE);
            siginfo_t info = {0};

            if (has_ended(p, i)) {
                break;
            }
            load_futex_wait(&s->ended, ended, 100);
            if (waitid(P_PID, (id_t)p->pids[i], &info, WEXITED | WNOHANG | WNOWAIT) ==
                    0 &&
                info.si_pid != 0) {
                reap(p, i, false);
            } else if (load_now_ns() > deadline) {
                say_where_it_hangs(p);
                return false;
            }
        }
    }
    return true;
}

static void maybe_kill(Parent *p)
{
    uint64_t until;
    unsigned victim;

    if (!p->l.kills || below(p, 4) > 0) {
        return;
    }
    victim = (unsigned)below(p, p->l.processes);
    until = load_now_ns() + below(p, 30) * 1000000;
    while (load_now_ns() < until && !has_ended(p, victim)) {
        uint32_t ended = __atomic_load_n(&p->l.shared->ended, __ATOMIC_ACQUIRE);

        load_futex_wait(&p->l.shared->ended, ended, 1);
    }
    if (p->pids[victim] != 0 && !has_ended(p, victim)) {
        kill(p->pids[victim], SIGKILL);
        reap(p, victim, true);
        p->l.shared->totals.kills++;
    }
}

static void end_window(Parent *p)
{
    unsigned i = (unsigned)(p->window % 2);
    Window *w = &p->l.shared->windows[i];
    uint64_t inodes[NAMES];

    for (unsigned t = 0; t < p->l.processes * p->l.threads; t++) {
        for (unsigned e = 0; e < w->logs[t].count; e++) {
            w->logs[t].entries[e].e.thread = t;
        }
    }
    for (unsigned f = 0; f < p->l.files; f++) {
        note_file(p, w, f, look_at_file(p, f));
    }
    look_at_names(p, w, inodes);
    p->l.shared->totals.windows++;
    p->checkers[i] = fork();
    if (p->checkers[i] == 0) {
        _exit(window_check(&p->l, w) ? 0 : 1);
    }
}

static void print_totals(const Parent *p)
{
    const Totals *t = &p->l.shared->totals;

    printf("# %" PRIu64 " windows, %" PRIu64 " kills, %" PRIu64 " events, %" PRIu64
           " whole reads and lookups, %" PRIu64 " page reads; histories: %" PRIu64
           " explained, %" PRIu64 " undecided, %" PRIu64 " skipped; states %" PRIu64
           ", at most %" PRIu64 "; %" PRIu64 " pages cleared by the kernel\n",
           t->windows, t->kills, t->events, t->reads, t->slices, t->explained,
           t->undecided, t->skipped, t->states, t->states_most, t->cleared);
    fflush(stdout);
}

static void prepare(Parent *p)
{
    g_autofree char *names = load_path(&p->l, "names", 0);
    VJ_AUTO_FD pool = -1;

    if (mkdir(p->l.dir, 0700) != 0 || mkdir(names, 0700) != 0) {
        load_fail(&p->l, "mkdir %s: %s", p->l.dir, strerror(errno));
    }
    pool = open_file(p, "pool", 0, O_WRONLY | O_CREAT);
    content_fill(p->bytes, OP_POOL, 0, POOL_WORDS);
    write_all(p, pool, p->bytes, POOL_WORDS * WORD_BYTES);
    p->l.shared->next_op = OP_FIRST;
}

static int run(Parent *p)
{
    Shared *s = p->l.shared;
    uint64_t end, report;
    bool hangs = false;

    prepare(p);
    end = load_now_ns() + p->l.seconds * 1000000000;
    report = load_now_ns();
    while (load_now_ns() < end && !hangs &&
           !__atomic_load_n(&s->failed, __ATOMIC_ACQUIRE)) {
        begin_window(p);
        maybe_kill(p);
        hangs = !wait_for_workers(p);
        if (!hangs && !s->failed) {
            end_window(p);
        }
        if (load_now_ns() > report + (uint64_t)60000000000) {
            report = load_now_ns();
            print_totals(p);
        }
    }
    if (hangs) {
        return 3; /* the mount is left as it is */
    }
    wait_for_checker(p, 0);
    wait_for_checker(p, 1);
    __atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
    load_futex_wake(&s->started);
    for (unsigned i = 0; i < p->l.processes; i++) {
        if (p->pids[i] > 0) {
            (void)kill(p->pids[i], SIGKILL);
            (void)waitpid(p->pids[i], NULL, 0);
        }
    }
    print_totals(p);
    return s->failed != 0;
}

static int choice(const char *text, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (g_strcmp0(text, names[i]) == 0) {
            return i;
        }
    }
    fprintf(stderr, "load: %s: unknown\n", text);
    exit(2);
}

int main(int argc, char **argv)
{
    static const char *const mixes[] = {"edits", "writes", "mixed", "mapped", "all"};
    static const char *const plants[] = {"none",  "torn", "stale",
                                         "early", "lost", "absent"};
    g_autofree char *dir = NULL, *mix = g_strdup("all"), *plant = g_strdup("none");
    gint64 seconds = 5, seed = 0;
    int processes = 4, threads = 2, files = 5;
    gboolean no_kill = FALSE, strict = FALSE;
    const GOptionEntry entries[] = {
        {"dir", 0, 0, G_OPTION_ARG_FILENAME, &dir, NULL, NULL},
        {"seconds", 0, 0, G_OPTION_ARG_INT64, &seconds, NULL, NULL},
        {"seed", 0, 0, G_OPTION_ARG_INT64, &seed, NULL, NULL},
        {"processes", 0, 0, G_OPTION_ARG_INT, &processes, NULL, NULL},
        {"threads", 0, 0, G_OPTION_ARG_INT, &threads, NULL, NULL},
        {"files", 0, 0, G_OPTION_ARG_INT, &files, NULL, NULL},
        {"mix", 0, 0, G_OPTION_ARG_STRING, &mix, NULL, NULL},
        {"plant", 0, 0, G_OPTION_ARG_STRING, &plant, NULL, NULL},
        {"no-kill", 0, 0, G_OPTION_ARG_NONE, &no_kill, NULL, NULL},
        {"strict", 0, 0, G_OPTION_ARG_NONE, &strict, NULL, NULL},
        {0}};
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);
    g_autoptr(GError) error = NULL;
    Parent p = {0};

    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &error) || dir == NULL ||
        processes < 1 || threads < 1 || files < 1 || processes > (int)PROCESSES_MAX ||
        processes * threads > (int)THREADS_MAX || files > (int)FILES_MAX || seconds < 1) {
        fprintf(stderr, "load: %s\n", error != NULL ? error->message : "bad usage");
        return 2;
    }
    while (seed == 0) {
        seed = (gint64)(vj_random_u64() >> 33);
    }
    p.l = (Load){.dir = dir,
                 .seconds = (uint64_t)seconds,
                 .seed = (uint64_t)seed,
                 .processes = (unsigned)processes,
                 .threads = (unsigned)threads,
                 .files = (unsigned)files,
                 .plant = (Plant)choice(plant, plants, G_N_ELEMENTS(plants)),
                 .only = (Mix)choice(mix, mixes, G_N_ELEMENTS(mixes)),
                 .kills = !no_kill,
                 .strict = strict};
    vj_rng_init(&p.rng, p.l.seed);
    p.bytes = g_malloc(FILE_WORDS_MAX * WORD_BYTES);
    p.l.shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p.l.shared == MAP_FAILED) {
        fprintf(stderr, "load: no memory\n");
        return 1;
    }
    printf("# seed %" PRIu64 "\n", p.l.seed);
    fflush(stdout);
    return run(&p);
}
