/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sweep.c - damage at one position at a time, and what comes of it
 *
 * For each position: SOURCE as it was made is hurt there.  fsck -n finds something or
 * not.  The volume is opened (or mounted) and each file read, listed, looked up.  fsck -y
 * repairs, fsck -n finds nothing any more, and everything is read again.  Outcomes:
 *
 *     found      fsck -n tells of it
 *     harmless   it does not, and everything is right
 *     refused    the volume cannot be opened, and one line says why
 *
 * Anything else is a violation: a crash or hang, a wrong byte, a loss that is found by
 * nobody or was not hit, a file that is not named, damage that is left after the repair.
 *
 * The work is done in a child process, so that a crash costs one position.
 */
#include "sweep.h"
#include "fsck/fsck.h"

#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT_DEFAULT 1u
#define SEED_DEFAULT 1u
#define ROUNDS_MOST 8u
/* A position takes a tenth of a second; this long is a hang. */
#define HANG_SECONDS 120u
#define VIOLATIONS_SHOWN 5u

typedef struct Counts {
    uint64_t tried, found, harmless, refused; /* one of the last three each */
    uint64_t unreadable; /* some range gave an error before the repair */
    uint64_t repaired;   /* nothing was lost in the end */
    uint64_t lost;       /* something was, and the repair said so */
    uint64_t left;       /* the repair could not do it, and said so */
    uint64_t violations;
} Counts;

/* With the child. */
typedef struct Shared {
    Counts counts;
    uint64_t step; /* of the class; the next one after a crash */
    bool in_step;
    char what[256];
} Shared;

typedef struct Sweep {
    Tree *tree;
    uint64_t seed, count; /* positions of each class; 0: all */
    const char *pattern;  /* of classes */
    uint64_t every;       /* each so many-th of them */
    const char *programs; /* where varjfs and fsck.varjfs are; NULL: in this process */
    char *mount;
    bool one; /* only position at */
    bool verbose;
    uint64_t at;
    Shared *shared;
    char *log; /* stderr of the child */
    Hit *hit;
    GString *said;  /* by fsck -n, then by the repair */
    GString *wrong; /* violations of this position */
} Sweep;

/* ---- fsck -------------------------------------------------------------------------- */

static void say(void *opaque, const char *text)
{
    Sweep *s = opaque;

    g_string_append_printf(s->said, "%s\n", text);
}

static void G_GNUC_PRINTF(2, 3) violation(Sweep *s, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    g_string_append_vprintf(s->wrong, format, args);
    va_end(args);
    g_string_append_c(s->wrong, '\n');
}

/* One line that says something. */
static void judge_refusal(Sweep *s, const char *when, const char *message, bool may)
{
    if (!may) {
        violation(s, "%s: refused: %s", when, message);
    } else if (*message == '\0' || strchr(message, '\n') != NULL) {
        violation(s, "%s: refused by \"%s\", which is not one line", when, message);
    }
}

typedef enum Verdict { CLEAN, DIRTY, REFUSED } Verdict;

static void no_path(void *opaque, uint64_t ino, const char *path)
{
    (void)opaque;
    (void)ino;
    (void)path;
}

static bool check_open(Sweep *s, bool repair, VjVolume **v, const char *when, bool may)
{
    VjVolumeOpen how = {.source = s->tree->source,
                        .check = true,
                        .repair = repair,
                        .read_only = !repair,
                        .workers = 1};
    g_autoptr(GError) error = NULL;

    if (vj_volume_open(&how, v, &error)) {
        return true;
    }
    judge_refusal(s, when, error->message, may);
    g_string_append_printf(s->said, "refused: %s\n", error->message);
    return false;
}

static int check(Sweep *s, VjVolume *v, bool read_data, VjCheckReport *report)
{
    int r = vj_fsck_contents(v, read_data, say, s, report);

    return r < 0 ? r : vj_fsck_names(v, say, s, report);
}

static Verdict fsck_n(Sweep *s, const char *when, bool may_refuse)
{
    static const uint64_t some[] = {1, 2, 3, 4, 5};
    VjCheckReport report = {0};
    VjVolume *v;
    int r;

    if (!check_open(s, false, &v, when, may_refuse)) {
        return REFUSED;
    }
    r = check(s, v, true, &report);
    if (r < 0) {
        violation(s, "%s: it ends with %s", when, g_strerror(-r));
    }
    r = vj_fs_find_paths(v, some, G_N_ELEMENTS(some), no_path, NULL);
    if (r < 0) {
        violation(s, "%s: paths: %s", when, g_strerror(-r));
    }
    r = vj_volume_close(v);
    if (r < 0) {
        violation(s, "%s: close: %s", when, g_strerror(-r));
    }
    return report.problems + report.leaks + report.lost + report.whole > 0 ? DIRTY
                                                                           : CLEAN;
}

static void mend_superblock(Sweep *s)
{
    g_autoptr(GError) error = NULL;
    VjSuperblockState state;

    if (!vj_volume_mend_superblock(s->tree->source, true, 0, say, s, &state, &error)) {
        violation(s, "fsck -y: %s", error->message);
    }
}

/* As fsck.varjfs -y. */
static Verdict fsck_y(Sweep *s)
{
    VjCheckReport report = {0};
    VjVolume *v;
    int r = 0;

    mend_superblock(s);
    if (!check_open(s, true, &v, "fsck -y", s->hit->beyond)) {
        return REFUSED;
    }
    for (unsigned i = 0; r == 0 && i <= ROUNDS_MOST; i++) {
        r = check(s, v, i == 0, &report);
        if (r < 0 || (report.problems == 0 && report.whole == 0)) {
            break;
        }
        g_autoptr(VjRepair) repair = vj_repair_new(v, say, s);

        r = vj_repair_all(repair);
        if (r == 0 && vj_repair_count(repair) == 0) {
            break;
        }
    }
    if (r == 0 && report.problems == 0 && report.leaks > 0) {
        g_autoptr(VjRepair) repair = vj_repair_new(v, say, s);

        r = vj_repair_store(repair);
    }
    if (r == -EBADMSG && s->hit->hostile) { /* it says so, and goes no further */
        report.problems++;
    } else if (r < 0) {
        violation(s, "fsck -y ends with %s", g_strerror(-r));
    }
    r = vj_volume_close(v);
    if (r < 0) {
        violation(s, "fsck -y: close: %s", g_strerror(-r));
    }
    return report.problems == 0 ? CLEAN : DIRTY;
}

/* ---- the programs ------------------------------------------------------------------ */

/* Its output, both streams, is added to what was said.  The exit status; -1: a signal. */
static int program(Sweep *s, const char *name, const char *const *arguments)
{
    g_autoptr(GPtrArray) argv = g_ptr_array_new();
    g_autofree char *path = strchr(name, '/') != NULL || s->programs == NULL
                                ? g_strdup(name)
                                : g_build_filename(s->programs, name, NULL);
    g_autofree char *out = NULL, *err = NULL;
    g_autoptr(GError) error = NULL;
    int status;

    g_ptr_array_add(argv, path);
    for (; *arguments != NULL; arguments++) {
        g_ptr_array_add(argv, (char *)(uintptr_t)*arguments);
    }
    g_ptr_array_add(argv, NULL);
    if (!g_spawn_sync(NULL, (char **)argv->pdata, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL,
                      &out, &err, &status, &error)) {
        g_error("%s: %s", path, error->message);
    }
    g_string_append(s->said, out);
    g_string_append(s->said, err);
    if (!WIFEXITED(status)) {
        violation(s, "%s ended with signal %d: %s", name, WTERMSIG(status), err);
        return -1;
    }
    return WEXITSTATUS(status);
}

static Verdict run_fsck(Sweep *s, const char *option, bool may_refuse)
{
    const char *arguments[] = {option, s->tree->source, NULL};
    gsize before = s->said->len;
    int status = program(s, "fsck.varjfs", arguments);

    if (status == 8) {
        judge_refusal(s, option, g_strchomp(s->said->str + before), may_refuse);
        return REFUSED;
    }
    if (status != 0 && status != 1 && status != 4) {
        violation(s, "fsck.varjfs %s: exit status %d", option, status);
    }
    return status == 0 ? CLEAN : status == 1 ? CLEAN : DIRTY;
}

/* ---- reading ----------------------------------------------------------------------- */

static bool open_to_read(Sweep *s, bool after, VjVolume **v, View *view)
{
    VjVolumeOpen how = {.source = s->tree->source,
                        .read_only = !after && vj_rng_below(&s->tree->rng, 2) == 0,
                        .workers = 1};
    g_autoptr(GError) error = NULL;

    if (!vj_volume_open(&how, v, &error)) {
        judge_refusal(s, after ? "open after the repair" : "open", error->message,
                      !after ? s->hit->refusable : s->hit->beyond);
        return false;
    }
    view_of_fs(view, vj_fs_new(*v));
    return true;
}

static bool mount_to_read(Sweep *s, bool after, View *view)
{
    const char *arguments[] = {s->tree->source, s->mount, NULL};
    gsize before = s->said->len;

    if (program(s, "varjfs", arguments) != 0) {
        judge_refusal(s, after ? "mount after the repair" : "mount",
                      g_strchomp(s->said->str + before),
                      !after ? s->hit->refusable : s->hit->beyond);
        return false;
    }
    view_of_mount(view, s->mount);
    return true;
}

static void unmount(Sweep *s)
{
    const char *arguments[] = {"-i", s->mount, NULL}; /* no helper of another build */
    g_autoptr(GError) error = NULL;
    bool foreign;

    if (program(s, "/bin/umount", arguments) != 0) {
        violation(s, "umount: %s", s->said->str);
    }
    if (!vj_volume_wait_released(s->tree->source, 60 * G_USEC_PER_SEC, &foreign,
                                 &error)) {
        violation(s, "umount: %s", error->message);
    }
}

/* False: refused. */
static bool read_all(Sweep *s, bool after, Loss *loss)
{
    static const size_t steps[] = {512, 4096, 65536};
    size_t step = steps[vj_rng_below(&s->tree->rng, G_N_ELEMENTS(steps))];
    VjVolume *v = NULL;
    View view;
    int r;

    *loss = (Loss){0};
    if (s->programs != NULL ? !mount_to_read(s, after, &view)
                            : !open_to_read(s, after, &v, &view)) {
        return false;
    }
    compare(s->tree, &view, s->hit, after, step, loss, s->wrong);
    if (s->programs != NULL) {
        unmount(s);
        return true;
    }
    vj_fs_free(view.fs);
    r = vj_volume_close(v);
    if (r < 0 && after) {
        violation(s, "close after the repair: %s", g_strerror(-r));
    }
    return true;
}

/* ---- one position ------------------------------------------------------------------ */

/* A line names the inode; with the program it names the path, too. */
static bool is_named(const Sweep *s, const Thing *thing)
{
    g_autofree char *inode = g_strdup_printf("inode %" G_GUINT64_FORMAT ":", thing->ino);
    g_autofree char *named = g_strdup_printf("inode %" G_GUINT64_FORMAT " (", thing->ino);
    const char *line;

    if (s->programs == NULL) {
        return strstr(s->said->str, inode) != NULL;
    }
    for (line = s->said->str; (line = strstr(line, named)) != NULL; line++) {
        const char *end = strchr(line, '\n');
        g_autofree char *text =
            end == NULL ? g_strdup(line) : g_strndup(line, (gsize)(end - line));

        if (strstr(text, thing->path) != NULL) {
            return true;
        }
    }
    return false;
}

static void judge_names(Sweep *s, const Loss *loss)
{
    for (guint i = 0; i < s->tree->things->len; i++) {
        const Thing *thing = &g_array_index(s->tree->things, Thing, i);

        if ((loss->contents & ((uint64_t)1 << i)) != 0 && !is_named(s, thing)) {
            violation(s, "%s cannot be read, and fsck -n does not name it:\n%s",
                      thing->path, s->said->str);
        }
    }
}

static void one_position(Sweep *s, const Class *c, uint64_t at)
{
    Counts *counts = &s->shared->counts;
    Loss before, after = {0};
    Verdict found, left;
    bool opened;

    tree_restore(s->tree);
    c->hurt(s->tree, c, at, s->hit);
    g_snprintf(s->shared->what, sizeof s->shared->what, "%s at %" G_GUINT64_FORMAT ": %s",
               c->name, at, s->hit->what->str);
    if (s->verbose) {
        printf("# %s\n", s->shared->what);
    }
    found = s->programs != NULL ? run_fsck(s, "-n", s->hit->refusable)
                                : fsck_n(s, "fsck -n", s->hit->refusable);
    opened = read_all(s, false, &before);
    if (found == CLEAN && !s->hit->is_silent &&
        (before.names | before.contents | before.attrs | before.listing) != 0) {
        violation(s, "something is lost, and fsck -n finds nothing");
    }
    judge_names(s, &before);
    if (s->verbose) {
        printf("%s", s->said->str);
    }
    g_string_truncate(s->said, 0);
    left = s->programs != NULL ? run_fsck(s, "-y", s->hit->beyond) : fsck_y(s);
    if (left == DIRTY && !s->hit->hostile && !s->hit->beyond) {
        violation(s, "damage is left after the repair:\n%s", s->said->str);
    }
    if (s->verbose) {
        printf("-- repair\n%s", s->said->str);
    }
    if (left != REFUSED) {
        if (left == CLEAN &&
            (s->programs != NULL ? run_fsck(s, "-n", false)
                                 : fsck_n(s, "fsck -n again", false)) == REFUSED) {
            violation(s, "fsck -n refuses after the repair");
        }
        (void)read_all(s, true, &after);
    }
    counts->tried++;
    if (found == REFUSED || !opened) {
        counts->refused++;
    } else if (found == DIRTY) {
        counts->found++;
    } else {
        counts->harmless++;
    }
    counts->unreadable +=
        opened && (before.names | before.contents | before.attrs | before.listing) != 0;
    if (left != CLEAN) {
        counts->left++;
    } else if ((after.names | after.contents | after.attrs | after.listing) != 0) {
        counts->lost++;
    } else {
        counts->repaired++;
    }
}

/* ---- a class, in a child ----------------------------------------------------------- */

static void tell(Sweep *s, const char *what)
{
    Counts *counts = &s->shared->counts;

    if (counts->violations++ < VIOLATIONS_SHOWN || s->verbose) {
        g_auto(GStrv) lines = g_strsplit(what, "\n", 0);

        printf("# violation: %s\n", s->shared->what);
        for (size_t i = 0; lines[i] != NULL; i++) {
            printf("#   %s\n", lines[i]);
        }
        fflush(stdout);
    }
}

static uint64_t choose(Sweep *s, uint64_t positions, uint64_t step, uint64_t count)
{
    if (s->one) {
        return s->at % positions;
    }
    if (count == positions) {
        return step;
    }
    /* Evenly and at random in turn. */
    return step % 2 == 0 ? positions / count * step
                         : vj_rng_below(&s->tree->rng, positions);
}

static void run_steps(Sweep *s, const Class *c, uint64_t positions, uint64_t count)
{
    for (; s->shared->step < count; s->shared->step++) {
        uint64_t step = s->shared->step, at;

        vj_rng_init(&s->tree->rng, s->seed + 1000003 * step + g_str_hash(c->name));
        at = choose(s, positions, step, count);
        /* What is random at a position depends on it alone. */
        vj_rng_init(&s->tree->rng, s->seed + 1000003 * at + g_str_hash(c->name));
        s->hit = hit_new();
        g_string_truncate(s->said, 0);
        g_string_truncate(s->wrong, 0);
        s->shared->in_step = true;
        alarm(HANG_SECONDS);
        one_position(s, c, at);
        alarm(0);
        s->shared->in_step = false;
        if (s->wrong->len > 0) {
            tell(s, s->wrong->str);
        }
        hit_free(s->hit);
    }
}

/* What the child wrote to stderr, its last lines. */
static void tell_crash(Sweep *s, int status)
{
    g_autofree char *text = NULL, *line = NULL;
    gsize len = 0;

    if (!g_file_get_contents(s->log, &text, &len, NULL)) {
        text = g_strdup("");
    }
    line = g_strdup_printf(
        "%s %d:\n%s", WIFSIGNALED(status) ? "ended with signal" : "ended with status",
        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
        len > 4000 ? text + len - 4000 : text);
    tell(s, line);
}

/* The child left a mount. */
static void take_down(Sweep *s)
{
    g_autofree char *line = g_strdup_printf(
        "umount -i -f '%s' 2>/dev/null || umount -i -l '%s'", s->mount, s->mount);

    if (system(line) != 0) {
        printf("# nothing is mounted\n");
    }
}

static void run_class(Sweep *s, const Class *c)
{
    uint64_t positions = c->positions(s->tree, c);
    uint64_t count = s->count == 0 ? positions : MIN(s->count, positions);

    count = s->one ? 1 : count;
    memset(s->shared, 0, sizeof *s->shared);
    while (positions > 0 && s->shared->step < count) {
        pid_t child;
        int status;

        fflush(stdout);
        child = fork();
        g_assert(child >= 0);
        if (child == 0) {
            if (!s->verbose) {
                g_assert(freopen(s->log, "w", stderr) != NULL);
            }
            run_steps(s, c, positions, count);
            fflush(stdout);
            _exit(0);
        }
        g_assert(waitpid(child, &status, 0) == child);
        if (status != 0) {
            tell_crash(s, status);
            if (s->programs != NULL) {
                take_down(s);
            }
            s->shared->counts.tried++;
            s->shared->step++;
        }
    }
}

/* ---- the table --------------------------------------------------------------------- */

static void print_row(const char *name, uint64_t positions, const Counts *c)
{
    printf("# %-24s %9" G_GUINT64_FORMAT " %7" G_GUINT64_FORMAT " %7" G_GUINT64_FORMAT
           " %7" G_GUINT64_FORMAT " %7" G_GUINT64_FORMAT " %7" G_GUINT64_FORMAT
           " %7" G_GUINT64_FORMAT " %7" G_GUINT64_FORMAT " %7" G_GUINT64_FORMAT
           " %7" G_GUINT64_FORMAT "\n",
           name, positions, c->tried, c->found, c->harmless, c->refused, c->unreadable,
           c->repaired, c->lost, c->left, c->violations);
    fflush(stdout);
}

static void add(Counts *sum, const Counts *c)
{
    sum->tried += c->tried;
    sum->found += c->found;
    sum->harmless += c->harmless;
    sum->refused += c->refused;
    sum->unreadable += c->unreadable;
    sum->repaired += c->repaired;
    sum->lost += c->lost;
    sum->left += c->left;
    sum->violations += c->violations;
}

static uint64_t run_all(Sweep *s)
{
    g_autoptr(GArray) classes = g_array_new(FALSE, FALSE, sizeof(Class));
    Counts sum = {0};
    uint64_t all = 0;

    record_classes(classes);
    stored_classes(classes);
    printf("# %-24s %9s %7s %7s %7s %7s %7s %7s %7s %7s %7s\n", "class", "positions",
           "tried", "found", "harmls", "refused", "unread", "whole", "lost", "left",
           "violat");
    for (guint i = 0; i < classes->len; i++) {
        const Class *c = &g_array_index(classes, Class, i);
        uint64_t positions = c->positions(s->tree, c);

        if (!g_pattern_match_simple(s->pattern, c->name) ||
            i % s->every != s->seed % s->every) {
            continue;
        }
        run_class(s, c);
        print_row(c->name, positions, &s->shared->counts);
        add(&sum, &s->shared->counts);
        all += positions;
    }
    print_row("all", all, &sum);
    for (guint i = 0; i < classes->len; i++) {
        g_free((char *)(uintptr_t)g_array_index(classes, Class, i).name);
    }
    return sum.violations;
}

/* ---- main -------------------------------------------------------------------------- */

static int usage(const char *name)
{
    fprintf(stderr,
            "usage: %s [-n COUNT] [-s SEED] [-c CLASSES] [-e EVERY] [-a POSITION] "
            "[-m PROGRAMS] [-v]\n"
            "  -n  positions of each class; 0: all of them (default %u)\n"
            "  -s  seed (default %u)\n"
            "  -c  only classes whose names match, * and ? have their meaning\n"
            "  -a  only this position of them\n"
            "  -m  through mounts: the directory of varjfs and fsck.varjfs\n"
            "  -v  say what fsck says\n",
            name, COUNT_DEFAULT, SEED_DEFAULT);
    return 2;
}

static bool parse(Sweep *s, int argc, char **argv)
{
    int letter;

    while ((letter = getopt(argc, argv, "n:s:c:e:a:m:v")) != -1) {
        switch (letter) {
        case 'n':
            s->count = g_ascii_strtoull(optarg, NULL, 10);
            break;
        case 's':
            s->seed = g_ascii_strtoull(optarg, NULL, 10);
            break;
        case 'c':
            s->pattern = optarg;
            break;
        case 'e':
            s->every = MAX(g_ascii_strtoull(optarg, NULL, 10), 1);
            break;
        case 'a':
            s->one = true;
            s->at = g_ascii_strtoull(optarg, NULL, 10);
            break;
        case 'm':
            s->programs = optarg;
            break;
        case 'v':
            s->verbose = true;
            break;
        default:
            return false;
        }
    }
    return optind == argc;
}

/* Memory, where there is one to be written to: a position syncs some dozen times. */
static char *scratch(void)
{
    char *path = g_strdup("/dev/shm/varjfs-damage-XXXXXX");
    g_autoptr(GError) error = NULL;

    if (mkdtemp(path) == NULL) {
        g_free(path);
        path = g_dir_make_tmp("varjfs-damage-XXXXXX", &error);
        g_assert(path != NULL);
    }
    return path;
}

int main(int argc, char **argv)
{
    Sweep s = {.seed = SEED_DEFAULT, .count = COUNT_DEFAULT, .pattern = "*", .every = 1};
    g_autofree char *dir = NULL, *source = NULL, *line = NULL, *near = NULL;
    uint64_t violations;
    int r;

    if (!parse(&s, argc, argv)) {
        return usage(argv[0]);
    }
    /* A pool of a child would wait for an idle thread, and all of them are its
     * parent's. */
    g_thread_pool_set_max_unused_threads(0);
    dir = scratch();
    source = g_build_filename(dir, "source", NULL);
    near = g_dir_make_tmp("varjfs-damage-XXXXXX", NULL); /* where a left mount is seen */
    g_assert(near != NULL);
    s.mount = g_build_filename(near, "mount", NULL);
    s.log = g_build_filename(dir, "log", NULL);
    s.said = g_string_new(NULL);
    s.wrong = g_string_new(NULL);
    s.shared = mmap(NULL, sizeof *s.shared, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    g_assert(s.shared != MAP_FAILED && mkdir(source, 0755) == 0 &&
             mkdir(s.mount, 0755) == 0);
    s.tree = tree_new(source, s.seed);
    printf("# seed %" G_GUINT64_FORMAT "\n", s.seed);
    violations = run_all(&s);
    printf("%s 1 - damage is found or harmless, and costs no more than it hit\n1..1\n",
           violations == 0 ? "ok" : "not ok");
    tree_free(s.tree);
    munmap(s.shared, sizeof *s.shared);
    g_string_free(s.said, TRUE);
    g_string_free(s.wrong, TRUE);
    g_free(s.mount);
    g_free(s.log);
    line = g_strdup_printf("rm -rf '%s' && rmdir '%s/mount' '%s'", dir, near, near);
    r = system(line);
    return violations == 0 && r == 0 ? 0 : 1;
}
