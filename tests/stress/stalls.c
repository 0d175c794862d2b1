/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * stalls.c - how long a write waits beside edits and programs that drop pages
 *
 *     stalls DIR SECONDS EVICTORS [LIMIT_MS]
 *
 * One process writes 4096 bytes at random places of a file in DIR, one inserts and
 * deletes 565 bytes there by librwrite, and EVICTORS (at most 8) read it and drop its
 * pages by posix_fadvise(2).  Prints for writes and edits
 *
 *     WHAT count=N p50_us=N p99_us=N max_us=N
 *
 * and how often pages were dropped.  Exit: 0; 1 a write took longer than LIMIT_MS, or the
 * file has another size than the edits leave; 2 something failed, or a process had
 * nothing done.
 */
#include "base/base.h"
#include "varjfs/rwrite.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_BYTES ((size_t)4 << 20)
#define WRITE_BYTES ((size_t)4096)
#define EDIT_BYTES ((size_t)565)
#define EVICTORS_MOST 8u
#define SAMPLES_MOST ((size_t)4000000) /* of each kind; later ones are left out */

/* Of one process, in shared memory. */
typedef struct Samples {
    uint64_t count;
    uint64_t us[SAMPLES_MOST];
} Samples;

typedef enum Role { WRITER, EDITOR, EVICTOR } Role;

typedef struct Run {
    const char *path;
    int64_t until_us;
    Samples *samples[3]; /* by Role */
} Run;

G_NORETURN static void die(const char *what)
{
    fprintf(stderr, "stalls: %s: %s\n", what, g_strerror(errno));
    exit(2);
}

static void write_once(int fd, VjRng *rng)
{
    uint8_t data[WRITE_BYTES];

    memset(data, 'w', sizeof data);
    if (pwrite(fd, data, sizeof data,
               (off_t)vj_rng_below(rng, FILE_BYTES - WRITE_BYTES)) !=
        (ssize_t)sizeof data) {
        die("write");
    }
}

/* An insert, and its opposite the next time. */
static void edit_once(int fd, VjRng *rng, bool is_insert)
{
    uint8_t data[EDIT_BYTES];
    size_t len = is_insert ? EDIT_BYTES : 0;

    memset(data, 'e', sizeof data);
    if (rpwrite(fd, data, len, (off_t)vj_rng_below(rng, FILE_BYTES - EDIT_BYTES),
                EDIT_BYTES - len) < 0) {
        die("edit");
    }
}

static void drop_once(int fd)
{
    static uint8_t data[FILE_BYTES];

    if (pread(fd, data, sizeof data, 0) < 0) {
        die("read");
    }
    if (posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) {
        die("posix_fadvise");
    }
}

/* Never returns. */
G_NORETURN static void work(const Run *run, Role role, unsigned number)
{
    int fd = open(run->path, O_RDWR | O_CLOEXEC);
    Samples *samples = run->samples[role];
    int64_t now_us = vj_clock_mono_us();
    bool is_insert = true;
    VjRng rng;

    if (fd < 0) {
        die(run->path);
    }
    vj_rng_init(&rng, number);
    /* The editor ends behind a delete. */
    while (now_us < run->until_us || !is_insert) {
        int64_t begun_us = now_us;
        uint64_t at;

        switch (role) {
        case WRITER:
            write_once(fd, &rng);
            break;
        case EDITOR:
            edit_once(fd, &rng, is_insert);
            is_insert = !is_insert;
            break;
        case EVICTOR:
            drop_once(fd);
            break;
        }
        now_us = vj_clock_mono_us();
        at = __atomic_fetch_add(&samples->count, 1, __ATOMIC_RELAXED);
        if (at < SAMPLES_MOST) {
            samples->us[at] = (uint64_t)(now_us - begun_us);
        }
    }
    exit(0);
}

static void start(const Run *run, Role role, unsigned number)
{
    pid_t child = fork();

    if (child < 0) {
        die("fork");
    }
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        work(run, role, number);
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The longest, in us. */
static uint64_t report(const char *what, Samples *s)
{
    size_t count = (size_t)MIN(s->count, SAMPLES_MOST);

    if (count == 0) {
        fprintf(stderr, "stalls: %s: nothing was done\n", what);
        exit(2);
    }
    qsort(s->us, count, sizeof *s->us, compare);
    printf("%s count=%" PRIu64 " p50_us=%" PRIu64 " p99_us=%" PRIu64 " max_us=%" PRIu64
           "\n",
           what, s->count, s->us[count / 2], s->us[count * 99 / 100], s->us[count - 1]);
    return s->us[count - 1];
}

static void make_file(const char *path)
{
    g_autofree char *data = g_malloc(FILE_BYTES);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    memset(data, 'f', FILE_BYTES);
    if (fd < 0 || vj_fd_write_all(fd, data, FILE_BYTES) < 0) {
        die(path);
    }
    vj_fd_close(&fd);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"write", "edit", "drop"};
    g_autofree char *path = NULL;
    unsigned evictors;
    uint64_t longest_us[G_N_ELEMENTS(names)], limit_us;
    struct stat st;
    Run run;
    int status;

    if (argc < 4 || argc > 5 || (evictors = (unsigned)atoi(argv[3])) > EVICTORS_MOST) {
        fprintf(stderr, "usage: stalls DIR SECONDS EVICTORS [LIMIT_MS]\n");
        return 2;
    }
    limit_us = argc > 4 ? strtoull(argv[4], NULL, 10) * 1000 : UINT64_MAX;
    path = g_build_filename(argv[1], "stalls", NULL);
    make_file(path);
    run = (Run){.path = path, .until_us = vj_clock_mono_us() + atoi(argv[2]) * 1000000LL};
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        run.samples[i] = mmap(NULL, sizeof(Samples), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (run.samples[i] == MAP_FAILED) {
            die("memory");
        }
    }
    start(&run, WRITER, 1);
    start(&run, EDITOR, 2);
    for (unsigned i = 0; i < evictors; i++) {
        start(&run, EVICTOR, 3 + i);
    }
    while (wait(&status) > 0) {
        if (status != 0) {
            return 2;
        }
    }
    for (size_t i = 0; i < (evictors > 0 ? G_N_ELEMENTS(names) : EVICTOR); i++) {
        longest_us[i] = report(names[i], run.samples[i]);
    }
    if (stat(path, &st) < 0 || st.st_size != (off_t)FILE_BYTES) {
        printf("the file has %lld bytes\n", (long long)st.st_size);
        return 1;
    }
    return longest_us[WRITER] > limit_us ? 1 : 0;
}
