/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-io.c - one round of one kind of work on any file system
 *
 *   bench-io [-n COUNT] [-b BYTES] [-j PROCESSES] [-s SEED] [-o OFFSET] [-r RANGE] [-i
 *   INPUT] [-f]
 *            [-d] [-e] [-p] WORK PATH
 *
 *   write      a new file PATH from end to end, COUNT blocks of BYTES; -f: the time ends
 *              with an fsync; -i: the blocks of INPUT instead (over again when it is
 *              shorter)
 *   read       the file PATH from end to end, BYTES at a time
 *   randread   COUNT blocks of the file PATH in random order, none twice; each of the
 *              PROCESSES has
 *   randwrite  its share of them; -f: an fdatasync after each write; -e: each in a file
 *              of its own, PATH.0, PATH.1, ...; -d: past the page cache (O_DIRECT)
 *   append     COUNT times BYTES behind the end of PATH (made if missing); -f: fsync each
 *   ping       COUNT times the ioctl of varjfs that does nothing, on PATH (of others:
 *              that they do not know)
 *   insert, delete, replace    COUNT times BYTES at random in the RANGE (1 byte) from
 *              OFFSET by librwrite; replace takes half as many away; -f: fsync each; -p:
 *              as many pings besides, in turn, and their median as a second number
 *   create     COUNT files in the directory PATH for each process, BYTES written into
 *              each
 *   stat       of the files that create made, asked of the file system, four times
 *   rename     of these, there and back: 2 COUNT renames
 *   unlink     of these
 *   list       the names in the directory PATH, read from end to end
 *   mknod      COUNT empty files in the directory PATH, no process beside another
 *
 * Prints one number: MB/s of write and read; operations a second of all processes, for
 * what may have several; else the median of microseconds of an operation.  What is
 * written is random, differs with SEED and never repeats; it is made before the clock
 * runs.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/stat.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <varjfs/ioctl.h>
#include <varjfs/rwrite.h>

#define PROCESS_MOST 64u
#define DIRECT_ALIGN_BYTES 4096u /* of a buffer, for any device */

typedef struct Work Work;

typedef struct Job {
    const Work *work;
    unsigned number;
    double *us; /* of each operation; NULL where only the sum counts */
} Job;

struct Work {
    const char *name;
    void (*run)(const Job *job);
    enum { MB_PER_S, PER_S, MICROSECONDS } unit;
    unsigned factor; /* operations for each of COUNT */
};

static const char *path, *input;
static uint64_t count = 1000, block_bytes = 4096, edit_offset, edit_range = 1;
static uint64_t seed = 1;
static unsigned job_count = 1;
static int want_sync, own_files, want_pings, direct;
static uint8_t *data; /* of all blocks that are written, or one */
static uint64_t data_bytes;
static int file = -1;

static struct Shared {
    atomic_uint ready;
    double begin_us[PROCESS_MOST], end_us[PROCESS_MOST];
} * shared;

static void die(const char *what)
{
    fprintf(stderr, "bench-io: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void *pages(uint64_t bytes)
{
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        die("memory");
    }
    return p;
}

static void read_input(void)
{
    int fd = open(input, O_RDONLY | O_CLOEXEC);
    uint64_t have = 0;
    ssize_t got = 1;

    if (fd < 0) {
        die(input);
    }
    while (have < data_bytes && got > 0) {
        got = read(fd, data + have, data_bytes - have);
        if (got < 0 || (got == 0 && have == 0)) {
            die(input);
        }
        have += (uint64_t)got;
    }
    close(fd);
    for (uint64_t at = have; at < data_bytes; at++) {
        data[at] = data[at - have];
    }
}

static void make_data(uint64_t bytes)
{
    data_bytes = (bytes + 7) / 8 * 8;
    data = pages(data_bytes);
    if (input != NULL) {
        read_input();
        return;
    }
    for (uint64_t i = 0, state = mix(seed); i < data_bytes; i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(data + i, &state, 8);
    }
}

static const uint8_t *block(uint64_t number)
{
    return data + number * block_bytes % (data_bytes - block_bytes + 1);
}

static void open_file(int flags)
{
    file = open(path, flags | O_CLOEXEC, 0600);
    if (file < 0) {
        die(path);
    }
}

static void must(long result, long expected, const char *what)
{
    if (result != expected) {
        die(what);
    }
}

static void sync_if_wanted(void)
{
    if (want_sync) {
        must(fsync(file), 0, "fsync");
    }
}

/* ---- files ------------------------------------------------------------------------- */

static void run_write(const Job *job)
{
    (void)job;
    for (uint64_t i = 0; i < count; i++) {
        must(write(file, block(i), block_bytes), (long)block_bytes, "write");
    }
    sync_if_wanted();
    must(close(file), 0, "close");
}

static void run_read(const Job *job)
{
    ssize_t got;

    (void)job;
    for (count = 0; (got = read(file, data, block_bytes)) > 0; count++) {
    }
    must(got, 0, "read");
}

/* The @i-th of @n numbers in an order that looks random: a step without a common
 * divisor. */
static uint64_t shuffled(uint64_t i, uint64_t n)
{
    uint64_t step = mix(seed) % n | 1, a, b;

    for (;; step += 2) {
        for (a = step, b = n; b != 0;) {
            uint64_t rest = a % b;

            a = b;
            b = rest;
        }
        if (a == 1) {
            break;
        }
    }
    return (mix(seed + 1) % n + i % n * (step % n)) % n;
}

static void run_random(const Job *job)
{
    struct stat st;
    uint64_t blocks;
    void *buf = NULL;
    int writes = strcmp(job->work->name, "randwrite") == 0;
    int flags = (writes ? O_RDWR : O_RDONLY) | (direct ? O_DIRECT : 0) | O_CLOEXEC;
    char name[4200];
    int fd;

    must(posix_memalign(&buf, DIRECT_ALIGN_BYTES, block_bytes), 0, "memory");
    snprintf(name, sizeof name, own_files ? "%s.%u" : "%s", path, job->number);
    fd = open(name, flags);
    if (fd < 0 || fstat(fd, &st) < 0) {
        die(path);
    }
    blocks = (uint64_t)st.st_size / block_bytes;
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    for (uint64_t i = job->number; i < count; i += job_count) {
        off_t at = (off_t)(shuffled(i, blocks) * block_bytes);

        if (!writes) {
            must(pread(fd, buf, block_bytes, at), (long)block_bytes, "pread");
            continue;
        }
        must(pwrite(fd, block(i), block_bytes, at), (long)block_bytes, "pwrite");
        if (want_sync) {
            must(fdatasync(fd), 0, "fdatasync");
        }
    }
    close(fd);
    free(buf);
}

static void run_append(const Job *job)
{
    for (uint64_t i = 0; i < count; i++) {
        double begin = now_us();

        must(write(file, block(i), block_bytes), (long)block_bytes, "write");
        sync_if_wanted();
        job->us[i] = now_us() - begin;
    }
}

/* ---- edits ------------------------------------------------------------------------- */

/* So many edits, then as many pings: where the processes run is the same for both. */
#define EDITS_IN_TURN 20u

static void time_pings(double *us, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        double begin = now_us();

        /* Who does not know it has been asked all the same. */
        if (ioctl(file, VARJFS_IOC_PING) < 0 && errno != ENOTTY && errno != ENOSYS) {
            die("ping");
        }
        us[i] = now_us() - begin;
    }
}

static void run_ping(const Job *job)
{
    time_pings(job->us, count);
}

static void run_edit(const Job *job)
{
    int deletes = strcmp(job->work->name, "delete") == 0;
    int replaces = strcmp(job->work->name, "replace") == 0;
    size_t len = deletes ? 0 : block_bytes;
    size_t old_len = deletes ? block_bytes : replaces ? block_bytes / 2 : 0;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t offset = edit_offset + mix(mix(seed) + i) % edit_range;
        double begin = now_us();

        if (rpwrite(file, block(i), len, (off_t)offset, old_len) != (ssize_t)len) {
            die(job->work->name);
        }
        sync_if_wanted();
        job->us[i] = now_us() - begin;
        if (want_pings && (i + 1) % EDITS_IN_TURN == 0) {
            time_pings(job->us + count + i + 1 - EDITS_IN_TURN, EDITS_IN_TURN);
        }
    }
    if (want_pings) {
        time_pings(job->us + count + count / EDITS_IN_TURN * EDITS_IN_TURN,
                   count % EDITS_IN_TURN);
    }
}

/* ---- names ------------------------------------------------------------------------- */

static void name_of(char *out, size_t size, const Job *job, uint64_t i,
                    const char *suffix)
{
    snprintf(out, size, "%s/%u.%" PRIu64 "%s", path, job->number, i, suffix);
}

static void run_create(const Job *job)
{
    char name[4200];

    for (uint64_t i = 0; i < count; i++) {
        int fd;

        name_of(name, sizeof name, job, i, "");
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) {
            die(name);
        }
        must(write(fd, block(i * job_count + job->number), block_bytes),
             (long)block_bytes, "write");
        must(close(fd), 0, "close");
    }
}

static void run_stat(const Job *job)
{
    char name[4200];
    struct statx st;

    for (uint64_t i = 0; i < job->work->factor * count; i++) {
        name_of(name, sizeof name, job, i % count, "");
        must(syscall(SYS_statx, AT_FDCWD, name, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS,
                     &st),
             0, name);
    }
}

static void run_rename(const Job *job)
{
    char name[4200], other[4200];

    for (uint64_t i = 0; i < count; i++) {
        name_of(name, sizeof name, job, i, "");
        name_of(other, sizeof other, job, i, ".other");
        must(rename(name, other), 0, name);
        must(rename(other, name), 0, other);
    }
}

static void run_unlink(const Job *job)
{
    char name[4200];

    for (uint64_t i = 0; i < count; i++) {
        name_of(name, sizeof name, job, i, "");
        must(unlink(name), 0, name);
    }
}

static void run_list(const Job *job)
{
    DIR *dir = opendir(path);

    (void)job;
    if (dir == NULL) {
        die(path);
    }
    errno = 0;
    for (count = 0; readdir(dir) != NULL; count++) {
    }
    must(errno, 0, "readdir");
    closedir(dir);
}

static void run_mknod(const Job *job)
{
    char name[4200];

    for (uint64_t i = 0; i < count; i++) {
        name_of(name, sizeof name, job, i, "");
        must(mknod(name, S_IFREG | 0600, 0), 0, name);
    }
}

/* ---- all of it --------------------------------------------------------------------- */

static const Work works[] = {
    {"write", run_write, MB_PER_S, 1},
    {"read", run_read, MB_PER_S, 1},
    {"randread", run_random, PER_S, 1},
    {"randwrite", run_random, PER_S, 1},
    {"append", run_append, MICROSECONDS, 1},
    {"ping", run_ping, MICROSECONDS, 1},
    {"insert", run_edit, MICROSECONDS, 1},
    {"delete", run_edit, MICROSECONDS, 1},
    {"replace", run_edit, MICROSECONDS, 1},
    {"create", run_create, PER_S, 1},
    {"stat", run_stat, PER_S, 4},
    {"rename", run_rename, PER_S, 2},
    {"unlink", run_unlink, PER_S, 1},
    {"list", run_list, PER_S, 1},
    {"mknod", run_mknod, PER_S, 1},
};

static void prepare(const Work *work)
{
    if (work->run == run_write) {
        make_data(count * block_bytes);
        open_file(O_WRONLY | O_CREAT | O_TRUNC);
    } else if (work->run == run_read) {
        make_data(block_bytes);
        open_file(O_RDONLY);
    } else if (work->run == run_append) {
        make_data(count * block_bytes);
        open_file(O_WRONLY | O_CREAT | O_APPEND);
    } else if (work->run == run_ping || work->run == run_edit) {
        if (work->run == run_edit && block_bytes > VARJFS_EDIT_INLINE_MAX) {
            errno = E2BIG;
            die("-b");
        }
        make_data(count * block_bytes);
        open_file(O_RDWR);
    } else if (work->run == run_create) {
        make_data(count * job_count * block_bytes);
    } else {
        make_data((count + 1) * block_bytes);
    }
}

static void run_job(Job *job)
{
    atomic_fetch_add(&shared->ready, 1);
    while (atomic_load(&shared->ready) < job_count) {
        sched_yield();
    }
    shared->begin_us[job->number] = now_us();
    job->work->run(job);
    shared->end_us[job->number] = now_us();
}

static void run_jobs(const Work *work, double *us)
{
    int status, failed = 0;

    if (job_count == 1) {
        run_job(&(Job){.work = work, .us = us});
        return;
    }
    for (unsigned i = 0; i < job_count; i++) {
        pid_t child = fork();

        if (child < 0) {
            die("fork");
        }
        if (child == 0) {
            run_job(&(Job){.work = work, .number = i, .us = us});
            _exit(0);
        }
    }
    for (unsigned i = 0; i < job_count; i++) {
        failed |= wait(&status) < 0 || status != 0;
    }
    if (failed) {
        exit(1);
    }
}

static double wall_us(void)
{
    double begin = shared->begin_us[0], end = shared->end_us[0];

    for (unsigned i = 1; i < job_count; i++) {
        begin = shared->begin_us[i] < begin ? shared->begin_us[i] : begin;
        end = shared->end_us[i] > end ? shared->end_us[i] : end;
    }
    return end - begin;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *us)
{
    qsort(us, count, sizeof *us, by_value);
    return us[count / 2];
}

static void report(const Work *work, double *us)
{
    double operations = (double)count * work->factor;

    if (work->unit == MICROSECONDS) {
        printf("%.3f", median(us));
        if (want_pings) {
            printf(" %.3f", median(us + count));
        }
        printf("\n");
    } else if (work->unit == MB_PER_S) {
        printf("%.3f\n", operations * (double)block_bytes / wall_us());
    } else if (work->run == run_random) {
        printf("%.1f\n", operations * 1e6 / wall_us());
    } else {
        printf("%.1f\n", operations * job_count * 1e6 / wall_us());
    }
}

static int usage(void)
{
    fprintf(stderr,
            "usage: bench-io [-n COUNT] [-b BYTES] [-j PROCESSES] [-s SEED] [-o OFFSET] "
            "[-r RANGE] [-i INPUT] [-f] [-d] [-e] [-p] WORK PATH\n");
    return 2;
}

int main(int argc, char **argv)
{
    const Work *work = NULL;
    double *us;
    int c;

    while ((c = getopt(argc, argv, "n:b:j:s:o:r:i:fdep")) != -1) {
        switch (c) {
        case 'n':
            count = strtoull(optarg, NULL, 10);
            break;
        case 'b':
            block_bytes = strtoull(optarg, NULL, 10);
            break;
        case 'j':
            job_count = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 's':
            seed = strtoull(optarg, NULL, 10);
            break;
        case 'o':
            edit_offset = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            edit_range = strtoull(optarg, NULL, 10);
            break;
        case 'i':
            input = optarg;
            break;
        case 'f':
            want_sync = 1;
            break;
        case 'd':
            direct = 1;
            break;
        case 'e':
            own_files = 1;
            break;
        case 'p':
            want_pings = 1;
            break;
        default:
            return usage();
        }
    }
    for (size_t i = 0; optind == argc - 2 && i < sizeof works / sizeof *works; i++) {
        work = strcmp(works[i].name, argv[optind]) == 0 ? &works[i] : work;
    }
    if (work == NULL || count == 0 || block_bytes == 0 || edit_range == 0 ||
        job_count == 0 || job_count > PROCESS_MOST ||
        (job_count > 1 && work->unit != PER_S) || (want_pings && work->run != run_edit)) {
        return usage();
    }
    path = argv[optind + 1];
    shared = pages(sizeof *shared);
    us = pages(2 * count * sizeof *us);
    prepare(work);
    run_jobs(work, us);
    report(work, us);
    return 0;
}
