/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * varjfs-bench.c - how many objects and keys a second: varjfs-bench(1)
 *
 * Uses libvarjfs as any program does.  Each thread has a connection and names of its own;
 * all begin one kind of operation together, in all processes, and it ends with the last
 * of them.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <varjfs/varjfs.h>

#define THREADS_MAX 256
#define PROCESSES_MAX 256
#define SPACE "varjfs-bench"
/* The object that a thread writes and reads in blocks. */
#define BLOCKS "%u-blocks"

struct settings {
    const char *source, *volume;
    struct varjfs_semantics semantics;
    size_t bytes;   /* of a write, a read and a value */
    unsigned batch; /* operations of one */
    unsigned count; /* of each kind, of each thread */
    unsigned threads, processes;
    unsigned first; /* number of this process's first thread */
    bool is_json;
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
    char blocks[32];
    const struct kind *kind;
    int error;
    pthread_barrier_t *barrier;
};

/* One kind of operation: adds number @i to the batch, as its operation @slot. */
struct kind {
    const char *name;
    int (*add)(struct worker *w, unsigned i, unsigned slot);
    bool moves_bytes;
    int (*begin)(struct worker *w); /* before the time that counts; NULL: nothing */
    int (*end)(struct worker *w);   /* behind it */
};

static int add_create(struct worker *w, unsigned i, unsigned slot)
{
    (void)i;
    return varjfs_object_create(w->b, SPACE, w->names[slot], NULL, &w->results[slot]);
}

static int add_delete(struct worker *w, unsigned i, unsigned slot)
{
    (void)i;
    return varjfs_object_delete(w->b, SPACE, w->names[slot], &w->results[slot]);
}

static int add_status(struct worker *w, unsigned i, unsigned slot)
{
    (void)i;
    return varjfs_object_status(w->b, SPACE, w->names[slot], &w->statuses[slot],
                                &w->results[slot]);
}

static int add_write_each(struct worker *w, unsigned i, unsigned slot)
{
    (void)i;
    return varjfs_object_write(w->b, SPACE, w->names[slot],
                               w->data + (size_t)slot * w->settings->bytes,
                               w->settings->bytes, 0, 0, &w->results[slot]);
}

static int add_read_each(struct worker *w, unsigned i, unsigned slot)
{
    (void)i;
    return varjfs_object_read(w->b, SPACE, w->names[slot],
                              w->into + (size_t)slot * w->settings->bytes,
                              w->settings->bytes, 0, NULL, &w->results[slot]);
}

static int add_put(struct worker *w, unsigned i, unsigned slot)
{
    (void)i;
    return varjfs_kv_put(w->b, SPACE, w->names[slot], strlen(w->names[slot]),
                         w->data + (size_t)slot * w->settings->bytes, w->settings->bytes,
                         0, &w->results[slot]);
}

static int add_get(struct worker *w, unsigned i, unsigned slot)
{
    (void)i;
    return varjfs_kv_get(w->b, SPACE, w->names[slot], strlen(w->names[slot]),
                         w->into + (size_t)slot * w->settings->bytes, w->settings->bytes,
                         NULL, &w->results[slot]);
}

static int add_key_delete(struct worker *w, unsigned i, unsigned slot)
{
    (void)i;
    return varjfs_kv_delete(w->b, SPACE, w->names[slot], strlen(w->names[slot]),
                            &w->results[slot]);
}

static int add_write(struct worker *w, unsigned i, unsigned slot)
{
    size_t bytes = w->settings->bytes;

    return varjfs_object_write(w->b, SPACE, w->blocks, w->data + slot * bytes, bytes,
                               (uint64_t)i * bytes, 0, &w->results[slot]);
}

static int add_read(struct worker *w, unsigned i, unsigned slot)
{
    size_t bytes = w->settings->bytes;

    return varjfs_object_read(w->b, SPACE, w->blocks, w->into + slot * bytes, bytes,
                              (uint64_t)i * bytes, NULL, &w->results[slot]);
}

/* One operation on the object of blocks by itself. */
static int change_blocks(struct worker *w, bool makes)
{
    varjfs_batch *b;
    int rc = varjfs_batch_new(w->v, NULL, &b);

    if (rc < 0) {
        return rc;
    }
    rc = makes ? varjfs_object_create(b, SPACE, w->blocks, NULL, NULL)
               : varjfs_object_delete(b, SPACE, w->blocks, NULL);
    rc = rc == 0 ? varjfs_batch_execute(b) : rc;
    varjfs_batch_free(b);
    return rc;
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

/* It is empty: what a run before has left goes. */
static int begin_write(struct worker *w)
{
    int rc = change_blocks(w, false);

    return rc == 0 || rc == -ENOENT ? change_blocks(w, true) : rc;
}

/* Nothing is left behind. */
static int end_read(struct worker *w)
{
    return is_wanted(w->settings, "object-write") ? change_blocks(w, false) : 0;
}

/* In an order in which each finds what those before it have made. */
static const struct kind kinds[] = {
    {"object-create", add_create, false, NULL, NULL},
    {"object-write-each", add_write_each, true, NULL, NULL},
    {"object-status", add_status, false, NULL, NULL},
    {"object-read-each", add_read_each, true, NULL, NULL},
    {"object-delete", add_delete, false, NULL, NULL},
    {"object-write", add_write, true, begin_write, NULL},
    {"object-read", add_read, true, NULL, end_read},
    {"key-put", add_put, true, NULL, NULL},
    {"key-get", add_get, true, NULL, NULL},
    {"key-delete", add_key_delete, false, NULL, NULL},
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
        rc = w->kind->add(w, first + i, i);
    }
    return rc == 0 ? varjfs_batch_execute(w->b) : rc;
}

/* Of what nobody has waited for: a page of names does, whatever its namespace. */
static int wait_for_answers(varjfs *v)
{
    struct varjfs_entry entry = {.size = sizeof entry};
    varjfs_iterator *names;
    int rc = varjfs_object_iterate(v, SPACE "-none", NULL, &names);

    if (rc == 0) {
        rc = varjfs_iterator_next(names, &entry);
        varjfs_iterator_free(names);
    }
    return rc;
}

static void *work(void *opaque)
{
    struct worker *w = opaque;
    const struct settings *s = w->settings;

    pthread_barrier_wait(w->barrier);
    for (unsigned i = 0; w->error == 0 && i < s->count; i += s->batch) {
        w->error = run_batch(w, i, s->count - i < s->batch ? s->count - i : s->batch);
    }
    if (w->error == 0 && s->semantics.safety == VARJFS_SAFETY_NONE) {
        w->error = wait_for_answers(w->v);
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
    snprintf(w->blocks, sizeof w->blocks, BLOCKS, w->number);
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

/* What comes before a kind, or behind it, in all threads' connections. */
static int each_worker(const struct settings *s, struct worker *workers,
                       const struct kind *kind, int (*call)(struct worker *w))
{
    int rc = 0;

    for (unsigned i = 0; call != NULL && rc == 0 && i < s->threads; i++) {
        rc = call(&workers[i]);
    }
    if (rc < 0) {
        fprintf(stderr, "varjfs-bench: %s: %s\n", kind->name, varjfs_strerror(rc));
    }
    return rc;
}

static int begin_kind(const struct settings *s, struct worker *workers,
                      const struct kind *kind)
{
    return is_wanted(s, kind->name) ? each_worker(s, workers, kind, kind->begin) : 0;
}

/* In the threads of this process. */
static int run_kind(const struct settings *s, struct worker *workers,
                    const struct kind *kind)
{
    pthread_t threads[THREADS_MAX];
    pthread_barrier_t barrier;
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
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < s->threads; i++) {
        pthread_join(threads[i], NULL);
        rc = rc == 0 ? workers[i].error : rc;
    }
    pthread_barrier_destroy(&barrier);
    return rc;
}

/* What failed with safety none is heard of now. */
static int end_kind(const struct settings *s, struct worker *workers,
                    const struct kind *kind)
{
    int rc = 0;

    for (unsigned i = 0;
         s->semantics.safety == VARJFS_SAFETY_NONE && rc == 0 && i < s->threads; i++) {
        rc = varjfs_sync(workers[i].v);
    }
    return rc == 0 ? each_worker(s, workers, kind, kind->end) : rc;
}

static int report(const struct settings *s, const struct kind *kind, double seconds,
                  int rc)
{
    double operations = (double)s->count * s->threads * s->processes;

    if (rc < 0) {
        fprintf(stderr, "varjfs-bench: %s: %s\n", kind->name, varjfs_strerror(rc));
        return rc;
    }
    if (s->is_json) {
        printf("{\"kind\": \"%s\", \"operations\": %.0f, \"seconds\": %.6f, "
               "\"per_second\": %.1f, \"bytes\": %zu, \"batch\": %u, \"threads\": %u, "
               "\"processes\": %u}",
               kind->name, operations, seconds, operations / seconds,
               kind->moves_bytes ? s->bytes : 0, s->batch, s->threads, s->processes);
    } else {
        printf("%-17s %12.0f /s", kind->name, operations / seconds);
        if (kind->moves_bytes) {
            printf(" %10.1f MB/s", operations * (double)s->bytes / seconds / 1e6);
        }
    }
    printf("\n");
    return fflush(stdout) == 0 ? 0 : -errno;
}

static int open_workers(const struct settings *s, struct worker *workers)
{
    int rc = 0;

    for (unsigned i = 0; i < s->threads; i++) {
        workers[i] = (struct worker){.settings = s, .number = s->first + i};
        rc = rc == 0 ? worker_open(&workers[i]) : rc;
    }
    return rc;
}

static int close_workers(const struct settings *s, struct worker *workers, int rc)
{
    for (unsigned i = 0; i < s->threads; i++) {
        int closed = worker_close(&workers[i]);

        if (rc == 0 && closed < 0) {
            fprintf(stderr, "varjfs-bench: %s\n", varjfs_strerror(closed));
            rc = closed;
        }
    }
    return rc;
}

static int run_alone(const struct settings *s, struct worker *workers)
{
    int rc = open_workers(s, workers);

    for (size_t i = 0; rc == 0 && i < KINDS; i++) {
        double begin, seconds;

        if (!is_wanted(s, kinds[i].name)) {
            continue;
        }
        rc = begin_kind(s, workers, &kinds[i]);
        if (rc == 0) {
            begin = now();
            rc = run_kind(s, workers, &kinds[i]);
            seconds = now() - begin;
            rc = rc == 0 ? end_kind(s, workers, &kinds[i]) : rc;
            rc = report(s, &kinds[i], seconds, rc);
        }
    }
    return close_workers(s, workers, rc);
}

/* ---- several processes ------------------------------------------------------------- */

/* Numbers go to and fro: "begin" to a process, its result to us.  Who is gone is read as
 * the end of its pipe. */
struct process {
    pid_t pid;
    int go, result; /* the ends that are ours */
};

static bool say(int fd, int number)
{
    return write(fd, &number, sizeof number) == (ssize_t)sizeof number;
}

static int hear(int fd)
{
    int number;

    return read(fd, &number, sizeof number) == (ssize_t)sizeof number ? number : -EIO;
}

static int process_main(const struct settings *s, struct worker *workers, int go,
                        int result)
{
    int rc = open_workers(s, workers);

    for (size_t i = 0;; i++) {
        rc = rc == 0 && i < KINDS ? begin_kind(s, workers, &kinds[i]) : rc;
        if (!say(result, rc) || rc != 0 || i == KINDS || hear(go) != 0) {
            break; /* the end, or another process has failed */
        }
        if (is_wanted(s, kinds[i].name)) {
            rc = run_kind(s, workers, &kinds[i]);
            if (!say(result, rc)) {
                break;
            }
            rc = rc == 0 ? end_kind(s, workers, &kinds[i]) : rc;
        }
    }
    return close_workers(s, workers, rc) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Closes in a child what belongs to the others before it. */
static bool start(const struct settings *s, struct worker *workers, struct process *all,
                  unsigned number)
{
    struct settings own = *s;
    int go[2], result[2];

    if (pipe(go) != 0 || pipe(result) != 0) {
        return false;
    }
    own.first = number * s->threads;
    all[number].pid = fork();
    if (all[number].pid == 0) {
        for (unsigned i = 0; i < number; i++) {
            close(all[i].go);
            close(all[i].result);
        }
        close(go[1]);
        close(result[0]);
        _exit(process_main(&own, workers, go[0], result[1]));
    }
    close(go[0]);
    close(result[1]);
    all[number].go = go[1];
    all[number].result = result[0];
    return all[number].pid > 0;
}

static int say_all(const struct settings *s, const struct process *all)
{
    for (unsigned i = 0; i < s->processes; i++) {
        if (!say(all[i].go, 0)) {
            return -EIO;
        }
    }
    return 0;
}

static int hear_all(const struct settings *s, const struct process *all)
{
    int rc = 0;

    for (unsigned i = 0; i < s->processes; i++) {
        int one = hear(all[i].result);

        rc = rc == 0 ? one : rc;
    }
    return rc;
}

static int run_processes(const struct settings *s, struct worker *workers)
{
    static struct process all[PROCESSES_MAX];
    int rc = 0;

    signal(SIGPIPE, SIG_IGN);
    for (unsigned i = 0; i < s->processes; i++) {
        if (!start(s, workers, all, i)) {
            fprintf(stderr, "varjfs-bench: no process can be started\n");
            return -errno;
        }
    }
    rc = hear_all(s, all);
    for (size_t i = 0; rc == 0 && i < KINDS; i++) {
        double begin = now();

        rc = say_all(s, all);
        if (rc == 0 && is_wanted(s, kinds[i].name)) {
            rc = hear_all(s, all);
            rc = report(s, &kinds[i], now() - begin, rc);
        }
        rc = rc == 0 ? hear_all(s, all) : rc; /* ready for the next one */
    }
    for (unsigned i = 0; i < s->processes; i++) {
        int status = 0;

        close(all[i].go);
        close(all[i].result);
        if (waitpid(all[i].pid, &status, 0) != all[i].pid || status != 0) {
            rc = rc == 0 ? -EIO : rc;
        }
    }
    return rc;
}

static int run(const struct settings *s)
{
    static struct worker workers[THREADS_MAX];

    return s->processes == 1 ? run_alone(s, workers) : run_processes(s, workers);
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
    {"semantics", required_argument, NULL, 'S'},
    {"processes", required_argument, NULL, 'p'},
    {"json", no_argument, NULL, 'j'},
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
        "  -n, --bytes N          of a write, a read and a value (4096); K, M\n"
        "  -t, --threads N        of a process, each with a connection (1)\n"
        "  -p, --processes N      each with so many threads (1)\n"
        "  -T, --template NAME    semantics: default, posix, temporary, checkpoint\n"
        "  -s, --safety LEVEL     none, network or storage\n"
        "  -a, --atomicity LEVEL  none, operation or batch (batch: keys alone)\n"
        "  -S, --semantics NAME=LEVEL[,...]  of varjfs-semantics(7)\n"
        "  -j, --json             a JSON object on a line for each kind\n"
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

/* With K or M behind it. */
static bool size(const char *text, unsigned long most, size_t *out)
{
    size_t len = strlen(text);
    unsigned shift = len == 0               ? 0
                     : text[len - 1] == 'K' ? 10
                     : text[len - 1] == 'M' ? 20
                                            : 0;
    char digits[16];
    unsigned value;

    if (len == 0 || len >= sizeof digits) {
        return false;
    }
    memcpy(digits, text, len + 1);
    digits[len - (shift > 0)] = '\0';
    if (!number(digits, 1, most >> shift, &value)) {
        return false;
    }
    *out = (size_t)value << shift;
    return true;
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

/* "NAME=LEVEL,NAME=LEVEL": by their numbers, in the order of varjfs.h. */
static bool set_semantics(struct varjfs_semantics *s, const char *text)
{
    static const char *const levels[] = {"none operation batch",
                                         "none non-overlapping overlapping",
                                         "none session eventual immediate",
                                         "relaxed semi strict",
                                         "none eventual immediate",
                                         "none network storage",
                                         "none strict"};
    static const char *const names[] = {"atomicity", "concurrency", "consistency",
                                        "ordering",  "persistency", "safety",
                                        "security"};
    uint8_t *const values[] = {&s->atomicity, &s->concurrency, &s->consistency,
                               &s->ordering,  &s->persistency, &s->safety,
                               &s->security};

    while (*text != '\0') {
        size_t at = 0, len = strcspn(text, "=,"), value_len;
        const char *value, *word;
        uint8_t found = 0;

        while (at < sizeof names / sizeof *names &&
               (strlen(names[at]) != len || strncmp(names[at], text, len) != 0)) {
            at++;
        }
        if (at == sizeof names / sizeof *names || text[len] != '=') {
            return false;
        }
        value = text + len + 1;
        value_len = strcspn(value, ",");
        for (word = levels[at]; *word != '\0'; found++) {
            size_t word_len = strcspn(word, " ");

            if (word_len == value_len && strncmp(word, value, value_len) == 0) {
                break;
            }
            word += word_len + (word[word_len] == ' ');
        }
        if (*word == '\0') {
            return false;
        }
        *values[at] = found;
        text = value + value_len + (value[value_len] == ',');
    }
    return true;
}

static bool set(struct settings *s, int letter, const char *value)
{
    static const char *const safeties[] = {"none", "network", "storage"};
    static const char *const atomicities[] = {"none", "operation", "batch"};

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
        return size(value, 8 << 20, &s->bytes);
    case 'p':
        return number(value, 1, PROCESSES_MAX, &s->processes);
    case 'j':
        s->is_json = true;
        return true;
    case 'S':
        return set_semantics(&s->semantics, value);
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
    struct settings s = {
        .bytes = 4096, .batch = 1, .count = 10000, .threads = 1, .processes = 1};
    const char *why;
    int letter;

    opterr = 0;
    s.semantics.size = sizeof s.semantics;
    if (varjfs_semantics_template("default", &s.semantics) < 0) {
        return EXIT_FAILURE;
    }
    while ((letter = getopt_long(argc, argv, "v:b:n:c:t:T:s:a:S:p:jo:hV", options,
                                 NULL)) != -1) {
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
            fprintf(stderr, "varjfs-bench: -%c %s: not possible\n", letter,
                    optarg != NULL ? optarg : "");
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
