/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * killed.c - fsck.varjfs -y is killed while it repairs, and run again
 *
 * A round hurts the volume of the sweep at several positions and lets fsck.varjfs -y
 * repair it undisturbed: that is what has to come out.  Then, for chosen N, the hurt
 * volume is brought back, the repair dies of SIGKILL before its N-th call that changes
 * SOURCE (kill-call.c), every other time a second one dies of it too, and the last one
 * runs to its end.  It ends as the undisturbed one did, fsck.varjfs -n tells of the same
 * lost ranges, and each file has the same bytes and the same errors.  Only in lost+found
 * there may be more: what the killed one had put there already, the next one finds again.
 */
#include "sweep.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS_DEFAULT 3u
#define POINTS_DEFAULT 8u
#define HURTS_MOST 7u
#define BLOCK_BYTES 512u
/* The same volume in each run: a round is repeated by its own seed. */
#define TREE_SEED 1u
/* A run takes a tenth of a second; this long is a hang. */
#define HANG_SECONDS 120u

typedef struct Killed {
    Tree *tree;
    char *fsck, *hurt, *counter;
    uint64_t seed, rounds, points; /* points 0: each call */
    bool eager;
    uint64_t runs, kills, violations;
    VjRng rng;
} Killed;

/* ---- hurting ----------------------------------------------------------------------- */

/* With these, what is left is another thing than damage, or says anything. */
static bool is_usable(const Class *c)
{
    static const char *const others[] = {
        "*-hostile", "fan-out-*", "store-*",  "*-is-*",   "*-permission", "conf-*",
        "super*",    "meta-*",    "format-*", "source-*", "volume-*",     "mark-*"};

    for (size_t i = 0; i < G_N_ELEMENTS(others); i++) {
        if (g_pattern_match_simple(others[i], c->name)) {
            return false;
        }
    }
    return true;
}

/* Up to the first "-": the space, or the part of a stored object. */
static bool is_of_one_kind(const char *a, const char *b)
{
    size_t len = strcspn(a, "-");

    return strncmp(a, b, len + 1) == 0;
}

/* One position each of several classes, none of a kind: they do not meet in one
 * record. */
static char *hurt(Killed *k, const GArray *classes)
{
    unsigned wanted = 2 + (unsigned)vj_rng_below(&k->rng, HURTS_MOST - 1);
    g_autoptr(GPtrArray) used = g_ptr_array_new();
    GString *what = g_string_new(NULL);

    tree_restore(k->tree);
    for (unsigned tries = 0; used->len < wanted && tries < 1000; tries++) {
        const Class *c =
            &g_array_index(classes, Class, vj_rng_below(&k->rng, classes->len));
        uint64_t positions = is_usable(c) ? c->positions(k->tree, c) : 0;
        bool fits = positions > 0;
        uint64_t at;
        Hit *hit;

        for (guint i = 0; fits && i < used->len; i++) {
            fits = !is_of_one_kind(c->name, used->pdata[i]);
        }
        if (!fits) {
            continue;
        }
        at = vj_rng_below(&k->rng, positions);
        hit = hit_new();
        c->hurt(k->tree, c, at, hit);
        g_string_append_printf(what, "%s%s at %" G_GUINT64_FORMAT,
                               used->len == 0 ? "" : ", ", c->name, at);
        hit_free(hit);
        g_ptr_array_add(used, (char *)(uintptr_t)c->name);
    }
    return g_string_free(what, FALSE);
}

static void copy(const char *from, const char *to)
{
    g_autofree char *line =
        g_strdup_printf("rm -rf '%s' && cp -a '%s' '%s'", to, from, to);
    int r = system(line);

    g_assert(r == 0);
}

/* ---- running ----------------------------------------------------------------------- */

typedef struct Run {
    int status;     /* exit status; -1: a signal */
    uint64_t calls; /* that changed SOURCE */
    char *said;
} Run;

static void run_clear(Run *run)
{
    g_free(run->said);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Run, run_clear)

static void fsck(Killed *k, const char *option, uint64_t kill_at, Run *out)
{
    g_auto(GStrv) environment = g_get_environ();
    g_autofree char *at = g_strdup_printf("%" G_GUINT64_FORMAT, kill_at);
    const char *argv[] = {k->fsck, option, k->tree->source, NULL};
    g_autofree char *err = NULL, *text = NULL, *both = NULL;
    g_autoptr(GError) error = NULL;
    uint64_t calls = 0;
    gsize len;
    int status;

    g_assert(g_file_set_contents(k->counter, (const char *)&calls, sizeof calls, NULL));
    environment = g_environ_setenv(environment, "VARJFS_KILL_COUNTER", k->counter, true);
    environment = g_environ_setenv(environment, "VARJFS_KILL_AT", at, true);
    if (k->eager) {
        environment = g_environ_setenv(environment, "VARJFS_KILL_EAGER", "1", true);
    }
    if (!g_spawn_sync(NULL, (char **)(uintptr_t)argv, environment, 0, NULL, NULL,
                      &out->said, &err, &status, &error)) {
        g_error("%s: %s", k->fsck, error->message);
    }
    both = g_strconcat(out->said, err, NULL);
    g_free(out->said);
    out->said = g_steal_pointer(&both);
    out->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    g_assert(g_file_get_contents(k->counter, &text, &len, NULL) && len == sizeof calls);
    memcpy(&out->calls, text, sizeof calls);
    k->runs++;
}

/* ---- what there is in the end ------------------------------------------------------ */

static gint by_text(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Each block of a file: its checksum, or that it cannot be read. */
static uint64_t content(View *v, const char *path, uint64_t size, uint64_t *lost)
{
    uint64_t sum = 0;
    void *file;

    *lost = 0;
    if (v->open(v, path, &file) < 0) {
        *lost = size;
        return 0;
    }
    for (uint64_t at = 0; at < size; at += BLOCK_BYTES) {
        uint8_t block[16 + BLOCK_BYTES] = {0};
        size_t want = MIN(BLOCK_BYTES, size - at), got = 0;
        int r = v->read(v, file, at, block + 16, want, &got);

        if (r < 0 || got != want) {
            *lost += want;
            memset(block, 0xff, sizeof block);
        }
        memcpy(block, &sum, sizeof sum);
        sum = vj_checksum64(block, 16 + want);
    }
    v->close(v, file);
    return sum;
}

static void describe(View *v, const char *path, GPtrArray *lines);

static void describe_dir(View *v, const char *path, GPtrArray *lines)
{
    g_autoptr(GHashTable) names =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    int r = v->list(v, path, names);
    GHashTableIter iter;
    gpointer name;

    if (r < 0) {
        g_ptr_array_add(lines, g_strdup_printf("%s: %s", path, g_strerror(-r)));
    }
    g_hash_table_iter_init(&iter, names);
    while (g_hash_table_iter_next(&iter, &name, NULL)) {
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
            g_autofree char *below =
                g_strconcat(strcmp(path, "/") == 0 ? "" : path, "/", name, NULL);

            describe(v, below, lines);
        }
    }
}

/* The numbers of what was found without a name may differ, and with them the names. */
static void describe(View *v, const char *path, GPtrArray *lines)
{
    bool is_found = g_str_has_prefix(path, "/lost+found/inode-");
    const char *shown = is_found ? "/lost+found/*" : path;
    struct stat st;
    uint64_t lost = 0, sum = 0;
    int r = v->look(v, path, &st);

    if (r < 0) {
        g_ptr_array_add(lines, g_strdup_printf("%s: %s", shown, g_strerror(-r)));
        return;
    }
    if (S_ISDIR(st.st_mode)) {
        st.st_nlink = 0; /* with or without lost+found */
    }
    if (S_ISREG(st.st_mode)) {
        sum = content(v, path, (uint64_t)st.st_size, &lost);
    }
    g_ptr_array_add(lines, g_strdup_printf("%s: mode %o, %u links, %" G_GUINT64_FORMAT
                                           " bytes, %" G_GUINT64_FORMAT
                                           " of them lost, %016" G_GINT64_MODIFIER "x",
                                           shown, st.st_mode, (unsigned)st.st_nlink,
                                           S_ISDIR(st.st_mode) ? 0 : (uint64_t)st.st_size,
                                           lost, (guint64)sum));
    if (S_ISDIR(st.st_mode)) {
        describe_dir(v, path, lines);
    }
}

/* Ranges of files that have names, without the numbers of objects: new ones stand for
 * lost. */
static void add_losses(const char *said, GPtrArray *lines)
{
    g_auto(GStrv) all = g_strsplit(said, "\n", 0);

    for (size_t i = 0; all[i] != NULL; i++) {
        char *object = strstr(all[i], " are in object ");

        if (g_str_has_prefix(all[i], "inode ") &&
            strstr(all[i], ": its bytes ") != NULL && object != NULL &&
            strstr(all[i], "/lost+found/") == NULL) {
            *object = '\0';
            g_ptr_array_add(lines, g_strdup(all[i]));
        }
    }
}

/* Also what fsck -n says of it. */
static char *outcome(Killed *k, int *status)
{
    g_autoptr(GPtrArray) lines = g_ptr_array_new_with_free_func(g_free);
    VjVolumeOpen how = {.source = k->tree->source, .workers = 1};
    g_autoptr(GError) error = NULL;
    g_auto(Run) look = {0};
    VjVolume *v;
    View view;
    int r;

    fsck(k, "-n", 0, &look);
    *status = look.status;
    add_losses(look.said, lines);
    if (!vj_volume_open(&how, &v, &error)) {
        return g_strdup_printf("refused: %s\n", error->message);
    }
    view_of_fs(&view, vj_fs_new(v));
    describe(&view, "/", lines);
    vj_fs_free(view.fs);
    r = vj_volume_close(v);
    g_ptr_array_sort(lines, by_text);
    g_ptr_array_add(lines, r == 0 ? NULL : g_strdup_printf("close: %s", g_strerror(-r)));
    if (r != 0) {
        g_ptr_array_add(lines, NULL);
    }
    return g_strjoinv("\n", (char **)lines->pdata);
}

/* ---- rounds ------------------------------------------------------------------------ */

/* The lines of @text that @other lacks are shown with @mark (0: not); their number. */
static unsigned differing(const char *text, const char *other, bool with_found, char mark)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", 0), others = g_strsplit(other, "\n", 0);
    unsigned count = 0;

    for (size_t i = 0; lines[i] != NULL; i++) {
        if (!g_strv_contains((const char *const *)others, lines[i]) &&
            (with_found || !g_str_has_prefix(lines[i], "/lost+found"))) {
            count++;
            if (mark != 0) {
                printf("#   %c %s\n", mark, lines[i]);
            }
        }
    }
    return count;
}

static void violation(Killed *k, const char *hurts, uint64_t at, uint64_t second,
                      const char *what)
{
    g_auto(GStrv) lines = g_strsplit(what, "\n", 0);

    k->violations++;
    printf("# violation: %s: killed at call %" G_GUINT64_FORMAT
           ", then at %" G_GUINT64_FORMAT "%s\n",
           hurts, at, second, k->eager ? ", each commit durable" : "");
    for (size_t i = 0; lines[i] != NULL; i++) {
        printf("#   %s\n", lines[i]);
    }
}

static void one_point(Killed *k, const char *hurts, uint64_t at, uint64_t second,
                      int want_status, int want_check, const char *want)
{
    g_auto(Run) first = {0}, again = {0}, last = {0};
    g_autofree char *got = NULL;
    int check;

    copy(k->hurt, k->tree->source);
    fsck(k, "-y", at, &first);
    k->kills += first.calls >= at ? 1 : 0;
    if (second > 0) {
        fsck(k, "-y", second, &again);
        k->kills += again.calls >= second ? 1 : 0;
    }
    fsck(k, "-y", 0, &last);
    /* What the killed one has mended is no news: 1 may become 0. */
    if (last.status != want_status && !(want_status == 1 && last.status == 0)) {
        violation(k, hurts, at, second, last.said);
        return;
    }
    got = outcome(k, &check);
    if (check != want_check || differing(want, got, true, 0) > 0 ||
        differing(got, want, false, 0) > 0) {
        violation(k, hurts, at, second, "undisturbed (-) and killed (+) differ:");
        printf("#   fsck.varjfs -n: %d and %d\n", want_check, check);
        (void)differing(want, got, true, '-');
        (void)differing(got, want, true, '+');
        printf("# the killed one said:\n");
        (void)differing(first.said, "", true, ' ');
        printf("# the last one said:\n");
        (void)differing(last.said, "", true, ' ');
    }
}

static void one_round(Killed *k, const GArray *classes, uint64_t seed)
{
    g_autofree char *hurts = NULL, *want = NULL;
    g_auto(Run) undisturbed = {0};
    uint64_t points, before = k->kills;
    int check;

    alarm(HANG_SECONDS);
    vj_rng_init(&k->rng, seed);
    vj_rng_init(&k->tree->rng, seed);
    k->eager = seed % 2 == 1;
    hurts = hurt(k, classes);
    copy(k->tree->source, k->hurt);
    fsck(k, "-y", 0, &undisturbed);
    if (undisturbed.status != 0 && undisturbed.status != 1) {
        printf("# seed %" G_GUINT64_FORMAT ": %s: not repaired undisturbed either\n",
               seed, hurts);
        return;
    }
    want = outcome(k, &check);
    points = k->points == 0 ? undisturbed.calls : MIN(k->points, undisturbed.calls);
    for (uint64_t i = 0; i < points; i++) {
        uint64_t at = points == undisturbed.calls
                          ? i + 1
                          : 1 + vj_rng_below(&k->rng, undisturbed.calls);
        uint64_t second = i % 2 == 0 ? 0 : 1 + vj_rng_below(&k->rng, undisturbed.calls);

        alarm(HANG_SECONDS);
        one_point(k, hurts, at, second, undisturbed.status, check, want);
    }
    alarm(0);
    printf("# seed %" G_GUINT64_FORMAT ": %s: %" G_GUINT64_FORMAT
           " calls, killed %" G_GUINT64_FORMAT " times\n",
           seed, hurts, undisturbed.calls, k->kills - before);
    fflush(stdout);
}

/* ---- main -------------------------------------------------------------------------- */

static bool parse(Killed *k, int argc, char **argv)
{
    int letter;

    while ((letter = getopt(argc, argv, "n:p:s:")) != -1) {
        uint64_t number = optarg == NULL ? 0 : g_ascii_strtoull(optarg, NULL, 10);

        switch (letter) {
        case 'n':
            k->rounds = number;
            break;
        case 'p':
            k->points = number;
            break;
        case 's':
            k->seed = number;
            break;
        default:
            return false;
        }
    }
    return optind == argc;
}

static char *scratch(void)
{
    char *path = g_strdup("/dev/shm/varjfs-killed-XXXXXX");

    if (mkdtemp(path) == NULL) {
        g_free(path);
        path = g_dir_make_tmp("varjfs-killed-XXXXXX", NULL);
        g_assert(path != NULL);
    }
    return path;
}

int main(int argc, char **argv)
{
    Killed k = {.seed = 1, .rounds = ROUNDS_DEFAULT, .points = POINTS_DEFAULT};
    g_autofree char *here = g_path_get_dirname(argv[0]);
    g_autofree char *dir = NULL, *source = NULL, *line = NULL;
    g_autoptr(GArray) classes = g_array_new(FALSE, FALSE, sizeof(Class));
    const char *build = g_getenv("VARJFS_BUILDDIR");
    int r;

    if (!parse(&k, argc, argv)) {
        fprintf(stderr,
                "usage: %s [-n ROUNDS] [-p POINTS] [-s SEED]\n"
                "  -n  rounds, each with other damage (default %u)\n"
                "  -p  kills in each; 0: one at each call (default %u)\n"
                "  -s  seed of the first round (default 1)\n",
                argv[0], ROUNDS_DEFAULT, POINTS_DEFAULT);
        return 2;
    }
    dir = scratch();
    source = g_build_filename(dir, "source", NULL);
    k.hurt = g_build_filename(dir, "hurt", NULL);
    k.counter = g_build_filename(dir, "counter", NULL);
    k.fsck = build != NULL ? g_build_filename(build, "tests/damage/fsck-killed", NULL)
                           : g_build_filename(here, "fsck-killed", NULL);
    r = mkdir(source, 0755);
    g_assert(r == 0);
    k.tree = tree_new(source, TREE_SEED);
    record_classes(classes);
    stored_classes(classes);
    for (uint64_t i = 0; i < k.rounds; i++) {
        one_round(&k, classes, k.seed + i);
    }
    printf("# %" G_GUINT64_FORMAT " rounds, %" G_GUINT64_FORMAT
           " runs of fsck.varjfs, %" G_GUINT64_FORMAT
           " of them killed, %" G_GUINT64_FORMAT " violations\n",
           k.rounds, k.runs, k.kills, k.violations);
    printf("%s 1 - a killed repair costs nothing more\n1..1\n",
           k.violations == 0 && k.kills > 0 ? "ok" : "not ok");
    for (guint i = 0; i < classes->len; i++) {
        g_free((char *)(uintptr_t)g_array_index(classes, Class, i).name);
    }
    tree_free(k.tree);
    g_free(k.hurt);
    g_free(k.counter);
    g_free(k.fsck);
    line = g_strdup_printf("rm -rf '%s'", dir);
    r = system(line);
    return k.violations == 0 && k.kills > 0 && r == 0 ? 0 : 1;
}
