/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mount-model.c - the model test through a mount: options, processes, rounds
 *
 *     mount-model --dir DIR --remount COMMAND [--pid-file FILE] [OPTION...]
 *
 * DIR is an empty directory of the mount.  Each round is a number of operations by all
 * processes; then they close everything, COMMAND unmounts, checks and mounts again, and
 * they compare.  With --pid-file the first process kills the daemon, whose number
 * stands in that file, somewhere in the round; COMMAND then clears the dead mount away
 * instead.
 */
#include "mount-model.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the parent tells its children. */
enum { ORDER_OPEN = 'o', ORDER_RUN = 'r', ORDER_CLOSE = 'c', ORDER_QUIT = 'q' };

static Process *this_process; /* for the signal handler */

void fail(const Process *p, const char *format, ...)
{
    g_autofree char *text = NULL;
    va_list args;

    va_start(args, format);
    text = g_strdup_vprintf(format, args);
    va_end(args);
    fprintf(stderr,
            "mount-model: %s\nmount-model: process %u, operation %" G_GUINT64_FORMAT
            "; again: mount-model%s\n",
            text, p->number, p->op, p->o->again);
    fflush(NULL);
    _exit(1);
}

static bool is_killed(const Process *p)
{
    return __atomic_load_n(&p->common->killed, __ATOMIC_ACQUIRE) != 0;
}

void leave_if_killed(Process *p)
{
    if (is_killed(p)) {
        siglongjmp(p->lost, 1);
    }
}

void failed_call(Process *p, const MountFile *f, const char *what)
{
    int error = errno;

    leave_if_killed(p);
    fail(p, "file %u: %s: %s", f->number, what, g_strerror(error));
}

/* A page that the dead daemon cannot bring. */
static void on_bus_error(int number)
{
    static const char text[] = "mount-model: SIGBUS: a mapping has no page in the file\n";

    if (is_killed(this_process)) {
        siglongjmp(this_process->lost, 1);
    }
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    signal(number, SIG_DFL);
    raise(number);
}

/* ---- one process ----------------------------------------------------------------- */

static void kill_daemon(Process *p)
{
    g_autofree char *text = NULL;
    GError *error = NULL;
    pid_t pid;

    if (!g_file_get_contents(p->o->pid_file, &text, NULL, &error)) {
        fail(p, "%s", error->message);
    }
    pid = (pid_t)g_ascii_strtoll(text, NULL, 10);
    if (pid <= 1) {
        fail(p, "%s does not name a daemon", p->o->pid_file);
    }
    __atomic_store_n(&p->common->killed, 1, __ATOMIC_RELEASE);
    if (kill(pid, SIGKILL) < 0) {
        fail(p, "kill: %s", g_strerror(errno));
    }
}

/* False: the daemon was killed, and @run was left in the middle. */
static bool is_completed(Process *p, void (*run)(Process *p))
{
    if (sigsetjmp(p->lost, 1) != 0) {
        return false;
    }
    run(p);
    return true;
}

static void run_ops(Process *p)
{
    uint64_t count = MAX(p->o->ops / p->o->rounds / p->o->processes, 1);
    uint64_t fatal = UINT64_MAX;

    if (p->o->pid_file != NULL) {
        fatal =
            p->number == 0 ? p->op + 1 + vj_rng_below(&p->rng, count * 2) : UINT64_MAX;
        count = UINT64_MAX - p->op; /* until the daemon is dead */
    }
    for (uint64_t i = 0; i < count && !is_killed(p); i++) {
        p->op++;
        if (p->op == fatal) {
            kill_daemon(p);
        }
        run_op(p);
    }
}

static void close_all(Process *p)
{
    for (unsigned i = 0; i < p->o->files; i++) {
        MountFile *f = &p->files[i];

        if (f->map != NULL) {
            munmap(f->map, p->o->size * 2);
            f->map = NULL;
        }
        file_close(f);
    }
    for (unsigned i = 0; i < SHARED_FILES; i++) {
        close(p->shared_fd[i]);
    }
}

static char *shared_path(const MountOptions *o, unsigned i)
{
    return g_strdup_printf("%s/shared%u", o->dir, i);
}

static void open_shared(Process *p)
{
    for (unsigned i = 0; i < SHARED_FILES; i++) {
        g_autofree char *path = shared_path(p->o, i);
        g_autofree char *bytes = NULL;
        gsize len;

        p->shared_fd[i] = open(path, O_RDONLY | O_CLOEXEC);
        if (p->shared_fd[i] < 0 || !g_file_get_contents(path, &bytes, &len, NULL)) {
            fail(p, "%s cannot be read", path);
        }
        if (p->shared[i].bytes == NULL) {
            shadow_write(&p->shared[i], 0, bytes, len);
        } else if (len != p->shared[i].len ||
                   memcmp(bytes, p->shared[i].bytes, len) != 0) {
            fail(p, "%s has changed", path);
        }
    }
}

/* The directory has the names of the files and no other. */
static void check_names(Process *p)
{
    g_autoptr(GDir) dir = g_dir_open(p->dir, 0, NULL);
    const char *name;
    unsigned count = 0;

    if (dir == NULL) {
        fail(p, "%s cannot be listed", p->dir);
    }
    while ((name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *path = g_build_filename(p->dir, name, NULL);
        bool found = false;

        for (unsigned i = 0; i < p->o->files && !found; i++) {
            g_autofree char *own = file_path(p, &p->files[i], p->files[i].name);

            found = strcmp(own, path) == 0;
        }
        if (!found) {
            fail(p, "%s: nobody made that", path);
        }
        count++;
    }
    if (count != p->o->files) {
        fail(p, "%s: %u names, not %u", p->dir, count, p->o->files);
    }
}

/* After a remount: everything is as it was left, or as it may be after a crash. */
static void come_back(Process *p)
{
    open_shared(p);
    for (unsigned i = 0; i < p->o->files; i++) {
        MountFile *f = &p->files[i];

        f->number = i;
        if (f->birth == 0) {
            file_make(p, f);
        } else if (p->o->pid_file != NULL) {
            history_recover(p, f);
        } else {
            file_open(p, f);
        }
        file_compare(p, f);
    }
    check_names(p);
}

static void process_main(Process *p, int orders, int answers)
{
    char order;

    this_process = p;
    vj_rng_init(&p->rng, p->o->seed * 1000 + p->number);
    p->data = g_malloc(p->o->size + 8192);
    p->back = g_malloc(p->o->size + 8192);
    p->files = g_new0(MountFile, p->o->files);
    p->dir = g_strdup_printf("%s/p%u", p->o->dir, p->number);
    signal(SIGBUS, on_bus_error);
    while (read(orders, &order, 1) == 1 && order != ORDER_QUIT) {
        if (order == ORDER_OPEN) {
            come_back(p);
        } else if (order == ORDER_RUN && !is_completed(p, run_ops)) {
            say(p, "the daemon is gone");
        } else if (order == ORDER_CLOSE) {
            close_all(p);
        }
        if (write(answers, &order, 1) != 1) {
            _exit(1);
        }
    }
    _exit(0);
}

/* ---- the parent ------------------------------------------------------------------ */

typedef struct Child {
    pid_t pid;
    int orders, answers;
} Child;

/* Files that all copy from, and the directories, durable. */
static void make_shared(Process *p)
{
    for (unsigned i = 0; i < SHARED_FILES; i++) {
        g_autofree char *path = shared_path(p->o, i);
        g_autofree uint8_t *bytes = g_malloc(p->o->size);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

        for (size_t at = 0; at < p->o->size; at += 8192) {
            data_fill(p->pool, &p->rng, bytes + at, MIN(8192, p->o->size - at));
        }
        if (fd < 0 || write(fd, bytes, p->o->size) != (ssize_t)p->o->size ||
            fsync(fd) < 0) {
            fail(p, "%s: %s", path, g_strerror(errno));
        }
        close(fd);
    }
    for (unsigned i = 0; i < p->o->processes; i++) {
        g_autofree char *path = g_strdup_printf("%s/p%u", p->o->dir, i);
        int fd;

        if (mkdir(path, 0755) < 0 || (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0 ||
            fsync(fd) < 0) {
            fail(p, "%s: %s", path, g_strerror(errno));
        }
        close(fd);
    }
}

static Child start_child(const Process *parent, unsigned number)
{
    int orders[2], answers[2];
    Process p = *parent;
    Child child;

    p.number = number;
    if (pipe2(orders, O_CLOEXEC) < 0 || pipe2(answers, O_CLOEXEC) < 0) {
        fail(parent, "pipe: %s", g_strerror(errno));
    }
    fflush(NULL);
    child = (Child){.pid = fork(), .orders = orders[1], .answers = answers[0]};
    if (child.pid < 0) {
        fail(parent, "fork: %s", g_strerror(errno));
    }
    if (child.pid == 0) {
        close(orders[1]);
        close(answers[0]);
        process_main(&p, orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    return child;
}

/* All children carry out @order; false when one has failed and said so. */
static bool tell(const Process *p, const Child *children, char order)
{
    bool ok = true;
    char answer;

    for (unsigned i = 0; i < p->o->processes; i++) {
        if (write(children[i].orders, &order, 1) != 1) {
            ok = false;
        }
    }
    for (unsigned i = 0; i < p->o->processes; i++) {
        if (read(children[i].answers, &answer, 1) != 1) {
            ok = false;
        }
    }
    return ok;
}

/* Nobody edits, and kills the daemon, before all are back. */
static bool run_round(const Process *p, const Child *children, bool edit)
{
    __atomic_store_n(&p->common->killed, 0, __ATOMIC_RELEASE);
    return tell(p, children, ORDER_OPEN) && (!edit || tell(p, children, ORDER_RUN)) &&
           tell(p, children, ORDER_CLOSE);
}

static bool run(Process *p)
{
    g_autofree Child *children = g_new0(Child, p->o->processes);
    bool ok = true;

    make_shared(p);
    for (unsigned i = 0; i < p->o->processes; i++) {
        children[i] = start_child(p, i);
    }
    for (uint64_t round = 0; ok && round < p->o->rounds; round++) {
        ok = run_round(p, children, true);
        if (ok && system(p->o->remount) != 0) {
            fprintf(stderr, "mount-model: after round %" G_GUINT64_FORMAT ": %s failed\n",
                    round + 1, p->o->remount);
            ok = false;
        }
    }
    ok = ok && run_round(p, children, false);
    for (unsigned i = 0; i < p->o->processes; i++) {
        char quit = ORDER_QUIT;
        int status;

        /* Not by the end of the pipe: later children have inherited it. */
        if (write(children[i].orders, &quit, 1) != 1 ||
            waitpid(children[i].pid, &status, 0) < 0 || status != 0) {
            ok = false;
        }
        close(children[i].orders);
        close(children[i].answers);
    }
    return ok;
}

/* ---- options --------------------------------------------------------------------- */

static void parse(int argc, char **argv, MountOptions *o)
{
    const ModelOption options[] = {
        {"ops", "N", .number = &o->ops, .least = 1, .most = INT64_MAX},
        {"seed", "N", .number = &o->seed, .most = INT64_MAX},
        {"rounds", "N", .number = &o->rounds, .least = 1, .most = 1000000},
        {"processes", "N", .count = &o->processes, .least = 1, .most = 64},
        {"files", "N", .count = &o->files, .least = 1, .most = 1000},
        {"size", "BYTES", .number = &o->size, .least = 65536, .most = 1 << 30},
        {"dir", "DIR (needed)", .text = &o->dir},
        {"remount", "COMMAND (needed)", .text = &o->remount},
        {"pid-file", "FILE", .text = &o->pid_file},
        {"verbose", .flag = &o->verbose},
    };

    o->again = options_parse(argc, argv, options, G_N_ELEMENTS(options));
    if (o->dir == NULL || o->remount == NULL) {
        options_usage(options, G_N_ELEMENTS(options));
    }
}

int main(int argc, char **argv)
{
    MountOptions o = {.ops = 10000,
                      .seed = vj_random_u64() % 1000000,
                      .rounds = 4,
                      .processes = 3,
                      .files = 3,
                      .size = 256 << 10};
    g_autofree DataPool *pool = g_new(DataPool, 1);
    Process p = {.o = &o, .pool = pool, .number = 99};
    gint64 started = g_get_monotonic_time();
    bool ok;

    parse(argc, argv, &o);
    signal(SIGPIPE, SIG_IGN);
    p.common = mmap(NULL, sizeof *p.common, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    g_assert(p.common != MAP_FAILED);
    data_pool_init(pool, o.seed);
    vj_rng_init(&p.rng, o.seed);
    printf("# seed %" G_GUINT64_FORMAT "\n", o.seed);
    ok = run(&p);
    printf("# %" G_GUINT64_FORMAT " operations by %u processes in %" G_GUINT64_FORMAT
           " rounds, %.1f s\n",
           o.ops, o.processes, o.rounds,
           (double)(g_get_monotonic_time() - started) / 1e6);
    g_free(o.again);
    return ok ? 0 : 1;
}
