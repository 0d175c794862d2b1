/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * varjfs-bench.c - how many objects and keys a second: varjfs-bench(1)
 *
 * Uses libvarjfs as any program does.  Each thread has a connection and names of its own;
 * all begin one kind of operation together, and it ends with the last of them.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <varjfs/varjfs.h>

#define THREADS_MAX 256
#define SPACE "varjfs-bench"

struct settings {
    const char *source, *volume;
    struct varjfs_semantics semantics;
    size_t bytes;   /* of an object and a value */
    unsigned batch; /* operations of one */
    unsigned count; /* of each kind, of each thread */
    unsigned threads;
    const char *only; /* names of kinds, separated by commas; NULL: all */
};

struct worker {
    const struct settings *settings;
    unsigned number;
    varjfs *v;
    varjfs_batch *b;
    unsigned char *data; /* bytes, for each operation of a batch */
    unsigned char *into;
    int *results; /* of a batch */
    struct varjfs_object_status *statuses;
    char (*names)[32]; /* of a batch: they stay until it is executed */
    const struct kind *kind;
    int error;
    pthread_barrier_t *barrier;
};

/* One kind of operation: adds number @i to the batch, as its operation @slot. */
struct kind {
    const char *name;
    int (*add)(struct worker *w, unsigned slot);
    bool moves_bytes;
};

static int add_create(struct worker *w, unsigned slot)
{
    return varjfs_object_create(w->b, SPACE, w->names[slot], NULL, &w->results[slot]);
}

static int add_delete(struct worker *w, unsigned slot)
{
    return varjfs_object_delete(w->b, SPACE, w->names[slot], &w->results[slot]);
}

static int add_status(struct worker *w, unsigned slot)
{
    return varjfs_object_status(w->b, SPACE, w->names[slot], &w->statuses[slot],
                                &w->results[slot]);
}

static int add_write(struct worker *w, unsigned slot)
{
    return varjfs_object_write(w->b, SPACE, w->names[slot],
                               w->data + (size_t)slot * w->settings->bytes,
                               w->settings->bytes, 0, 0, &w->results[slot]);
}

static int add_read(struct worker *w, unsigned slot)
{
    return varjfs_object_read(w->b, SPACE, w->names[slot],
                              w->into + (size_t)slot * w->settings->bytes,
                              w->settings->bytes, 0, NULL, &w->results[slot]);
}

static int add_put(struct worker *w, unsigned slot)
{
    return varjfs_kv_put(w->b, SPACE, w->names[slot], strlen(w->names[slot]),
                         w->data + (size_t)slot * w->settings->bytes, w->settings->bytes,
                         0, &w->results[slot]);
}

static int add_get(struct worker *w, unsigned slot)
{
    return varjfs_kv_get(w->b, SPACE, w->names[slot], strlen(w->names[slot]),
                         w->into + (size_t)slot * w->settings->bytes, w->settings->bytes,
                         NULL, &w->results[slot]);
}

static int add_key_delete(struct worker *w, unsigned slot)
{
    return varjfs_kv_delete(w->b, SPACE, w->names[slot], strlen(w->names[slot]),
                            &w->results[slot]);
}

/* In an order in which each finds what those before it have made. */
static const struct kind kinds[] = {
    {"object-create", add_create, false}, {"object-write", add_write, true},
    {"object-status", add_status, false}, {"object-read", add_read, true},
    {"object-delete", add_delete, false}, {"key-put", add_put, true},
    {"key-get", add_get, true},           {"key-delete", add_key_delete, false},
};

#define KINDS (sizeof kinds / sizeof kinds[0])

/* ---- a worker ---------------------------------------------------------------------- */

/* Each block differs from every other: nothing is stored once for two. */
static void fill(struct worker *w, unsigned first, unsigned count)
{
    if (!w->kind->moves_bytes) {
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        uint64_t mark[2] = {w->number, first + i};

        memcpy(w->data + (size_t)i * w->settings->bytes, mark,
               w->settings->bytes < sizeof mark ? w->settings->bytes : sizeof mark);
    }
}

static int run_batch(struct worker *w, unsigned first, unsigned count)
{
    int rc = 0;

    fill(w, first, count);
    for (unsigned i = 0; rc == 0 && i < count; i++) {
        snprintf(w->names[i], sizeof w->names[i], "%u-%u", w->number, first + i);
        rc = w->kind->add(w, i);
    }
    return rc == 0 ? varjfs_batch_execute(w->b) : rc;
}

static void *work(void *opaque)
{
    struct worker *w = opaque;
    const struct settings *s = w->settings;

    pthread_barrier_wait(w->barrier);
    for (unsigned i = 0; w->error == 0 && i < s->count; i += s->batch) {
        w->error = run_batch(w, i, s->count - i < s->batch ? s->count - i : s->batch);
    }
    /* With safety none the answers are waited for, too. */
    if (w->error == 0 && s->semantics.safety == VARJFS_SAFETY_NONE) {
        varjfs_batch *last;

        w->error = varjfs_batch_new(w->v, NULL, &last);
        if (w->error == 0) {
            struct varjfs_object_status status = {.size = sizeof status};

            w->error = varjfs_object_status(last, SPACE, "none", &status, NULL);
            if (w->error == 0) {
                int rc = varjfs_batch_execute(last);

                w->error = rc == -ENOENT ? 0 : rc;
            }
            varjfs_batch_free(last);
        }
    }
    return NULL;
}

static int worker_open(struct worker *w)
{
    const struct settings *s = w->settings;
    struct varjfs_options options = {.size = sizeof options, .volume = s->volume};
    int rc = varjfs_open(s->source, &options, &w->v);

    if (rc < 0) {
        fprintf(stderr, "varjfs-bench: %s\n", varjfs_open_error());
        return rc;
    }
    rc = varjfs_batch_new(w->v, &s->semantics, &w->b);
    if (rc < 0) {
        fprintf(stderr, "varjfs-bench: %s\n", varjfs_strerror(rc));
        return rc;
    }
    w->data = calloc(s->batch, s->bytes);
    w->into = calloc(s->batch, s->bytes);
    w->results = calloc(s->batch, sizeof *w->results);
    w->statuses = calloc(s->batch, sizeof *w->statuses);
    w->names = calloc(s->batch, sizeof *w->names);
    if (w->data == NULL || w->into == NULL || w->results == NULL || w->statuses == NULL ||
        w->names == NULL) {
        fprintf(stderr, "varjfs-bench: %s\n", varjfs_strerror(-ENOMEM));
        return -ENOMEM;
    }
    for (unsigned i = 0; i < s->batch; i++) {
        w->statuses[i].size = sizeof w->statuses[i];
    }
    return 0;
}

static int worker_close(struct worker *w)
{
    int rc = varjfs_close(w->v);

    free(w->data);
    free(w->into);
    free(w->results);
    free(w->statuses);
    free(w->names);
    return rc;
}

/* ---- a run ------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool is_wanted(const struct settings *s, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = s->only; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, len) == 0 && (at[len] == '\0' || at[len] == ',')) {
            return true;
        }
    }
    return s->only == NULL;
}

static int run_kind(const struct settings *s, struct worker *workers,
                    const struct kind *kind)
{
    pthread_t threads[THREADS_MAX];
    pthread_barrier_t barrier;
    double begin, seconds, operations;
    unsigned started = 0;
    int rc = 0;

    pthread_barrier_init(&barrier, NULL, s->threads + 1);
    for (; started < s->threads; started++) {
        workers[started].kind = kind;
        workers[started].barrier = &barrier;
        if (pthread_create(&threads[started], NULL, work, &workers[started]) != 0) {
            fprintf(stderr, "varjfs-bench: no thread can be started\n");
            exit(EXIT_FAILURE);
        }
    }
    begin = now();
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < s->threads; i++) {
        pthread_join(threads[i], NULL);
        rc = rc == 0 ? workers[i].error : rc;
    }
    seconds = now() - begin;
    pthread_barrier_destroy(&barrier);
    /* What failed with safety none is heard of now. */
    for (unsigned i = 0;
         s->semantics.safety == VARJFS_SAFETY_NONE && rc == 0 && i < s->threads; i++) {
        rc = varjfs_sync(workers[i].v);
    }
    if (rc < 0) {
        fprintf(stderr, "varjfs-bench: %s: %s\n", kind->name, varjfs_strerror(rc));
        return rc;
    }
    operations = (double)s->count * s->threads;
    printf("%-14s %12.0f /s", kind->name, operations / seconds);
    if (kind->moves_bytes) {
        printf(" %10.1f MB/s", operations * (double)s->bytes / seconds / 1e6);
    }
    printf("\n");
    return fflush(stdout) == 0 ? 0 : -errno;
}

static int run(const struct settings *s)
{
    static struct worker workers[THREADS_MAX];
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < s->threads; i++) {
        workers[i] = (struct worker){.settings = s, .number = i};
        rc = worker_open(&workers[i]);
    }
    for (size_t i = 0; rc == 0 && i < KINDS; i++) {
        if (is_wanted(s, kinds[i].name)) {
            rc = run_kind(s, workers, &kinds[i]);
        }
    }
    for (unsigned i = 0; i < s->threads; i++) {
        int closed = worker_close(&workers[i]);

        if (rc == 0 && closed < 0) {
            fprintf(stderr, "varjfs-bench: %s\n", varjfs_strerror(closed));
            rc = closed;
        }
    }
    return rc;
}

/* ---- the command line -------------------------------------------------------------- */

static const struct option options[] = {
    {"volume", required_argument, NULL, 'v'},
    {"batch", required_argument, NULL, 'b'},
    {"bytes", required_argument, NULL, 'n'},
    {"count", required_argument, NULL, 'c'},
    {"threads", required_argument, NULL, 't'},
    {"template", required_argument, NULL, 'T'},
    {"safety", required_argument, NULL, 's'},
    {"atomicity", required_argument, NULL, 'a'},
    {"only", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

static void usage(FILE *to)
{
    fprintf(
        to,
        "usage: varjfs-bench [OPTION...] SOURCE\n"
        "Counts operations on objects and keys of a volume, as libvarjfs(3) does them.\n"
        "  -v, --volume NAME      of a daemon's address: the volume there\n"
        "  -c, --count N          operations of each kind and thread (10000)\n"
        "  -b, --batch N          operations of a batch (1)\n"
        "  -n, --bytes N          of an object and a value (4096)\n"
        "  -t, --threads N        each with a connection (1)\n"
        "  -T, --template NAME    semantics: default, posix, temporary, checkpoint\n"
        "  -s, --safety LEVEL     none, network or storage\n"
        "  -a, --atomicity LEVEL  none, operation or batch (batch: keys alone)\n"
        "  -o, --only NAMES       kinds, separated by commas:\n"
        "                        ");
    for (size_t i = 0; i < KINDS; i++) {
        fprintf(to, " %s", kinds[i].name);
    }
    fprintf(to, "\n  -h, --help\n  -V, --version\n");
}

static bool number(const char *text, unsigned long least, unsigned long most,
                   unsigned *out)
{
    char *end;
    unsigned long value;

    errno = 0;
    value = strtoul(text, &end, 10);
    *out = (unsigned)value;
    return errno == 0 && *text >= '0' && *text <= '9' && *end == '\0' && value >= least &&
           value <= most;
}

static bool level(const char *text, const char *const names[3], uint8_t *out)
{
    for (uint8_t i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

static bool set(struct settings *s, int letter, const char *value)
{
    static const char *const safeties[] = {"none", "network", "storage"};
    static const char *const atomicities[] = {"none", "operation", "batch"};
    unsigned bytes;

    switch (letter) {
    case 'v':
        s->volume = value;
        return true;
    case 'b':
        return number(value, 1, 100000, &s->batch);
    case 'c':
        return number(value, 1, 1000000000, &s->count);
    case 't':
        return number(value, 1, THREADS_MAX, &s->threads);
    case 'n':
        if (!number(value, 1, 8 << 20, &bytes)) {
            return false;
        }
        s->bytes = bytes;
        return true;
    case 'T':
        return varjfs_semantics_template(value, &s->semantics) == 0;
    case 's':
        if (!level(value, safeties, &s->semantics.safety)) {
            return false;
        }
        if (s->semantics.safety ==
            VARJFS_SAFETY_NONE) { /* what is sent alone is not seen */
            s->semantics.consistency = VARJFS_CONSISTENCY_EVENTUAL;
            s->semantics.persistency = VARJFS_PERSISTENCY_EVENTUAL;
        }
        return true;
    case 'a':
        return level(value, atomicities, &s->semantics.atomicity);
    default:
        s->only = value;
        for (size_t i = 0; i < KINDS; i++) {
            if (is_wanted(s, kinds[i].name)) {
                return true;
            }
        }
        return false;
    }
}

int main(int argc, char **argv)
{
    struct settings s = {.bytes = 4096, .batch = 1, .count = 10000, .threads = 1};
    const char *why;
    int letter;

    opterr = 0;
    s.semantics.size = sizeof s.semantics;
    if (varjfs_semantics_template("default", &s.semantics) < 0) {
        return EXIT_FAILURE;
    }
    while ((letter = getopt_long(argc, argv, "v:b:n:c:t:T:s:a:o:hV", options, NULL)) !=
           -1) {
        if (letter == 'h') {
            usage(stdout);
            return EXIT_SUCCESS;
        }
        if (letter == 'V') {
            printf("varjfs-bench %s\n", varjfs_version());
            return EXIT_SUCCESS;
        }
        if (letter == '?') {
            fprintf(stderr, "varjfs-bench: %s: no such option, or its value is missing\n",
                    argv[optind - 1]);
            return 2;
        }
        if (!set(&s, letter, optarg)) {
            fprintf(stderr, "varjfs-bench: -%c %s: not possible\n", letter, optarg);
            return 2;
        }
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "varjfs-bench: SOURCE: %s\n",
                optind == argc ? "missing" : "there is one alone");
        usage(stderr);
        return 2;
    }
    if (varjfs_semantics_check(&s.semantics, &why) < 0) {
        fprintf(stderr, "varjfs-bench: %s\n", why != NULL ? why : "no such semantics");
        return 2;
    }
    s.source = argv[optind];
    return run(&s) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
