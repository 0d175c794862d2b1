/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * latency-probe.c - repeat one operation and print how long it took
 *
 *   latency-probe [-n COUNT] [-t SECONDS] [-j PROCESSES] [-p PAUSE_MS] [-s BYTES]
 *                 [-m LIMIT_MS] [-r SEED] OPERATION PATH
 *
 *   create   open(O_CREAT|O_EXCL) and close of a new file in the directory PATH; the
 * files are removed at the end stat     statx(AT_STATX_FORCE_SYNC) of PATH, so that the
 * file system has to answer insert   an edit: BYTES at a random offset of
 * the file PATH delete   the same: BYTES less at a random offset, until the file is
 * shorter than that write    pwrite of BYTES at a random offset of the file PATH, within
 * its length if that is BYTES or more append   pwrite of BYTES at the end of PATH.K in
 * process K, made if missing fsync    the same, then fsync; the time of both
 *
 * It stops after COUNT operations in each process or after SECONDS, whichever comes
 * first; -n 1000 if neither is given.  BYTES is 4096 if not given.
 * One line of output:
 *
 *   OPERATION count=N p50_us=N p99_us=N max_us=N seed=N
 *
 * Exit: 0; 1 an operation failed, or -m and one took longer than LIMIT_MS; 2 usage.
 */
#include "base/base.h"

#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw-edit.h"

#define PROCESS_MOST 256
#define SAMPLE_MOST ((uint64_t)4000000) /* of all processes together */
#define BYTES_MOST ((uint64_t)8 << 20)

typedef struct Probe Probe;

typedef struct Operation {
    const char *name;
    bool (*open)(Probe *p);   /* before the first; NULL: nothing to do */
    bool (*run)(Probe *p);    /* what is timed */
    void (*finish)(Probe *p); /* after the last; NULL: nothing to do */
} Operation;

struct Probe {
    const Operation *operation;
    const char *path;
    uint64_t count, seconds, process_count, pause_ms, bytes, limit_ms, seed;
    /* Of one process: */
    unsigned process;
    uint64_t done;
    int fd;
    uint64_t file_bytes;
    VjRng rng;
    uint8_t *buffer; /* header of an edit, then the data */
};

/* Shared with the processes. */
typedef struct Samples {
    uint64_t count; /* in us */
    bool is_complete;
    uint32_t us[];
} Samples;

static bool say(const Probe *p, const char *path)
{
    fprintf(stderr, "latency-probe: %s: %s: %s\n", p->operation->name, path,
            strerror(errno));
    return false;
}

/* ---- Operations -------------------------------------------------------------------- */

static char *created_name(const Probe *p, uint64_t i)
{
    return g_strdup_printf("%s/probe-%u-%" PRIu64, p->path, p->process, i);
}

static bool create_one(Probe *p)
{
    g_autofree char *path = created_name(p, p->done);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    return fd >= 0 && close(fd) == 0 ? true : say(p, path);
}

static void remove_created(Probe *p)
{
    for (uint64_t i = 0; i < p->done; i++) {
        g_autofree char *path = created_name(p, i);

        if (unlink(path) != 0) {
            say(p, path);
        }
    }
}

static bool stat_one(Probe *p)
{
    struct statx st;

    return statx(AT_FDCWD, p->path, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &st) == 0
               ? true
               : say(p, p->path);
}

static bool open_file(Probe *p)
{
    struct stat st;

    p->fd = open(p->path, O_RDWR | O_CLOEXEC);
    if (p->fd < 0 || fstat(p->fd, &st) != 0) {
        return say(p, p->path);
    }
    p->file_bytes = (uint64_t)st.st_size;
    return true;
}

static bool edit(Probe *p, uint64_t old_len, uint64_t len)
{
    struct varjfs_edit *e = (struct varjfs_edit *)(void *)p->buffer;

    *e = (struct varjfs_edit){
        .version = VARJFS_IOC_VERSION,
        .offset = vj_rng_below(&p->rng, p->file_bytes - old_len + 1),
        .old_len = old_len,
        .len = len,
    };
    if (raw_edit(p->fd, e, len) != 0) {
        return say(p, p->path);
    }
    p->file_bytes += len - old_len;
    return true;
}

static bool insert_one(Probe *p)
{
    return edit(p, 0, p->bytes);
}

static bool delete_one(Probe *p)
{
    if (p->file_bytes < p->bytes) {
        errno = ENODATA;
        return say(p, p->path);
    }
    return edit(p, p->bytes, 0);
}

static bool write_at(Probe *p, uint64_t offset)
{
    ssize_t written = pwrite(p->fd, p->buffer, p->bytes, (off_t)offset);

    if (written >= 0 && (uint64_t)written < p->bytes) {
        errno = ENOSPC; /* a short write: the next one would say why */
    }
    return (uint64_t)written == p->bytes ? true : say(p, p->path);
}

static bool write_one(Probe *p)
{
    uint64_t room = p->file_bytes > p->bytes ? p->file_bytes - p->bytes : 0;

    return write_at(p, vj_rng_below(&p->rng, room + 1));
}

static bool open_own_file(Probe *p)
{
    g_autofree char *path = g_strdup_printf("%s.%u", p->path, p->process);
    struct stat st;

    p->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (p->fd < 0 || fstat(p->fd, &st) != 0) {
        return say(p, path);
    }
    p->file_bytes = (uint64_t)st.st_size;
    return true;
}

static bool append_one(Probe *p)
{
    if (!write_at(p, p->file_bytes)) {
        return false;
    }
    p->file_bytes += p->bytes;
    return true;
}

static bool fsync_one(Probe *p)
{
    return append_one(p) && (fsync(p->fd) == 0 ? true : say(p, p->path));
}

static const Operation operations[] = {
    {"create", NULL, create_one, remove_created},
    {"stat", NULL, stat_one, NULL},
    {"insert", open_file, insert_one, NULL},
    {"delete", open_file, delete_one, NULL},
    {"write", open_file, write_one, NULL},
    {"append", open_own_file, append_one, NULL},
    {"fsync", open_own_file, fsync_one, NULL},
};

/* ---- Processes --------------------------------------------------------------------- */

static void pause_for(uint64_t ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000),
                            .tv_nsec = (long)(ms % 1000) * 1000000};

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static bool run_process(Probe *p, Samples *samples, int64_t end_us)
{
    const Operation *operation = p->operation;
    bool all_done = operation->open == NULL || operation->open(p);

    vj_rng_init(&p->rng, p->seed + p->process);
    p->buffer = g_malloc(sizeof(struct varjfs_edit) + p->bytes);
    vj_rng_bytes(&p->rng, p->buffer, sizeof(struct varjfs_edit) + p->bytes);
    while (all_done && p->done < p->count) {
        int64_t begin_us = vj_clock_mono_us();

        if (begin_us >= end_us) {
            break;
        }
        all_done = operation->run(p);
        if (all_done) {
            samples->us[p->done++] =
                (uint32_t)MIN(vj_clock_mono_us() - begin_us, (int64_t)UINT32_MAX);
            samples->count = p->done;
        }
        if (p->pause_ms > 0) {
            pause_for(p->pause_ms);
        }
    }
    if (operation->finish != NULL) {
        operation->finish(p);
    }
    g_free(p->buffer);
    return all_done;
}

static int compare_samples(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Prints the line; whether the limit holds. */
static bool report(const Probe *p, const GArray *all)
{
    const uint32_t *us = (const uint32_t *)(const void *)all->data;
    uint32_t max_us = us[all->len - 1];

    printf("%s count=%u p50_us=%u p99_us=%u max_us=%u seed=%" PRIu64 "\n",
           p->operation->name, all->len, us[all->len / 2],
           us[((uint64_t)all->len * 99 + 99) / 100 - 1], max_us, p->seed);
    if (p->limit_ms > 0 && max_us > p->limit_ms * 1000) {
        fprintf(stderr, "latency-probe: %s: %u us is more than %" PRIu64 " ms\n",
                p->operation->name, max_us, p->limit_ms);
        return false;
    }
    return true;
}

/* Runs all processes; true when every operation of each succeeded, within the limit. */
static bool run_all(Probe *p)
{
    size_t sample_bytes = sizeof(Samples) + p->count * sizeof(uint32_t);
    size_t stride = (sample_bytes + 63) & ~(size_t)63;
    uint8_t *shared = mmap(NULL, stride * p->process_count, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    int64_t end_us =
        p->seconds > 0 ? vj_clock_mono_us() + (int64_t)p->seconds * 1000000 : INT64_MAX;
    bool all_well = true;

    if (shared == MAP_FAILED) {
        return say(p, "mmap");
    }
    for (unsigned i = 0; i < p->process_count; i++) {
        pid_t child = fork();

        if (child < 0) {
            all_well = say(p, "fork");
        } else if (child == 0) {
            Samples *samples = (Samples *)(void *)(shared + i * stride);

            p->process = i;
            samples->is_complete = run_process(p, samples, end_us);
            _exit(0);
        }
    }
    while (wait(NULL) > 0 || errno == EINTR) {
    }
    for (unsigned i = 0; i < p->process_count; i++) {
        const Samples *samples = (const Samples *)(const void *)(shared + i * stride);

        all_well = all_well && samples->is_complete;
        g_array_append_vals(all, samples->us, (guint)samples->count);
    }
    munmap(shared, stride * p->process_count);
    if (all->len == 0) {
        fprintf(stderr, "latency-probe: %s: nothing was measured\n", p->operation->name);
        return false;
    }
    g_array_sort(all, compare_samples);
    return report(p, all) && all_well;
}

/* ---- Command line ------------------------------------------------------------------ */

static void take_number(const char *text, uint64_t least, uint64_t most, uint64_t *number)
{
    g_autoptr(GError) error = NULL;

    if (!vj_parse_size(text, number, &error)) {
        fprintf(stderr, "latency-probe: %s\n", error->message);
        exit(2);
    }
    if (*number < least || *number > most) {
        fprintf(stderr, "latency-probe: %s: not within %" PRIu64 " … %" PRIu64 "\n", text,
                least, most);
        exit(2);
    }
}

static void take_options(Probe *p, int argc, char **argv)
{
    int option;

    while ((option = getopt(argc, argv, "n:t:j:p:s:m:r:")) != -1) {
        switch (option) {
        case 'n':
            take_number(optarg, 1, SAMPLE_MOST, &p->count);
            break;
        case 't':
            take_number(optarg, 1, 3600, &p->seconds);
            break;
        case 'j':
            take_number(optarg, 1, PROCESS_MOST, &p->process_count);
            break;
        case 'p':
            take_number(optarg, 0, 60000, &p->pause_ms);
            break;
        case 's':
            take_number(optarg, 1, BYTES_MOST, &p->bytes);
            break;
        case 'm':
            take_number(optarg, 1, 3600000, &p->limit_ms);
            break;
        case 'r':
            take_number(optarg, 0, UINT64_MAX, &p->seed);
            break;
        default:
            exit(2);
        }
    }
    for (size_t i = 0; argc - optind == 2 && i < G_N_ELEMENTS(operations); i++) {
        if (strcmp(operations[i].name, argv[optind]) == 0) {
            p->operation = &operations[i];
            p->path = argv[optind + 1];
        }
    }
}

int main(int argc, char **argv)
{
    Probe p = {
        .process_count = 1, .bytes = 4096, .fd = -1, .seed = vj_random_u64() >> 32};

    take_options(&p, argc, argv);
    if (p.operation == NULL) {
        fprintf(
            stderr,
            "usage: latency-probe [-n COUNT] [-t SECONDS] [-j PROCESSES] [-p PAUSE_MS]\n"
            "           [-s BYTES] [-m LIMIT_MS] [-r SEED]\n"
            "           create|stat|insert|delete|write|append|fsync PATH\n");
        return 2;
    }
    if (p.operation->run == insert_one && p.bytes > VARJFS_EDIT_INLINE_MAX) {
        fprintf(stderr, "latency-probe: insert takes at most %zu bytes\n",
                (size_t)VARJFS_EDIT_INLINE_MAX);
        return 2;
    }
    if (p.count == 0) {
        p.count = p.seconds > 0 ? SAMPLE_MOST / p.process_count : 1000;
    }
    p.count = MIN(p.count, SAMPLE_MOST / p.process_count);
    return run_all(&p) ? 0 : 1;
}
