/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-insert.c - an insert into the middle of a large file against rewriting its tail
 *
 *   bench-insert DIR [MIB [RUNS]]
 *
 * DIR is on a varjfs mount.  A file of MIB (1024) of random data; in turn, RUNS (9)
 * times: insert 4 KiB in the middle by the ioctl + fsync, and the same by reading the
 * tail and writing it back 4 KiB further + fsync, which is what a program does elsewhere.
 * Before each, the file is durable and its cached pages are dropped.  Both files end up
 * equal.
 */
#include <varjfs/ioctl.h>
#include <varjfs/rwrite.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "figure.h"

#define EDIT_BYTES 4096u
#define STEP_BYTES ((size_t)4 << 20)
#define RUNS_MAX 99

static void die(const char *what)
{
    fprintf(stderr, "bench-insert: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* xorshift: incompressible, not repeating within a file; @state is never 0. */
static void fill(uint64_t *state, uint8_t *dst, size_t len)
{
    for (size_t i = 0; i < len; i += 8) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        memcpy(dst + i, state, 8);
    }
}

static int make(const char *dir, const char *name, uint64_t mib, uint64_t seed,
                uint8_t *buf)
{
    char path[4096];
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        die(path);
    }
    unlink(path);
    for (uint64_t at = 0; at < mib << 20; at += STEP_BYTES) {
        fill(&seed, buf, STEP_BYTES);
        if (write(fd, buf, STEP_BYTES) != (ssize_t)STEP_BYTES) {
            die("write");
        }
    }
    if (fsync(fd) < 0) {
        die("fsync");
    }
    return fd;
}

static void start_cold(int fd)
{
    if (fsync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) {
        die("fsync");
    }
}

static double insert(int fd, uint64_t offset, const uint8_t *data)
{
    double start;

    start_cold(fd);
    start = now_ms();
    if (rpwrite(fd, data, EDIT_BYTES, (off_t)offset, 0) < 0 || fsync(fd) < 0) {
        die("insert");
    }
    return now_ms() - start;
}

/* From the end, so that nothing is overwritten before it was read. */
static double rewrite(int fd, uint64_t offset, const uint8_t *data, uint8_t *buf)
{
    double start;
    uint64_t end;

    start_cold(fd);
    start = now_ms();
    end = (uint64_t)lseek(fd, 0, SEEK_END);
    while (end > offset) {
        size_t step = end - offset < STEP_BYTES ? (size_t)(end - offset) : STEP_BYTES;

        end -= step;
        if (pread(fd, buf, step, (off_t)end) != (ssize_t)step ||
            pwrite(fd, buf, step, (off_t)(end + EDIT_BYTES)) != (ssize_t)step) {
            die("rewrite");
        }
    }
    if (pwrite(fd, data, EDIT_BYTES, (off_t)offset) != EDIT_BYTES || fsync(fd) < 0) {
        die("rewrite");
    }
    return now_ms() - start;
}

static uint64_t counter(int fd, const char *name)
{
    static struct varjfs_text t;
    char key[64];
    uint64_t cursor = 0;

    snprintf(key, sizeof key, "%s=", name);
    while (cursor != VARJFS_TEXT_END) {
        memset(&t, 0, sizeof t);
        t.version = VARJFS_IOC_VERSION;
        t.what = VARJFS_TEXT_STATS;
        t.cursor = cursor;
        if (ioctl(fd, VARJFS_IOC_TEXT, &t) < 0 || t.len >= sizeof t.text) {
            die("counters");
        }
        t.text[t.len] = '\0';
        for (char *line = t.text; line != NULL && *line != '\0';) {
            if (strncmp(line, key, strlen(key)) == 0) {
                return strtoull(line + strlen(key), NULL, 10);
            }
            line = strchr(line, '\n');
            line = line != NULL ? line + 1 : NULL;
        }
        cursor = t.cursor;
    }
    fprintf(stderr, "bench-insert: the daemon has no counter %s\n", name);
    exit(1);
}

static void compare(int a, int b, uint8_t *buf)
{
    uint8_t *other = malloc(STEP_BYTES);
    uint64_t at = 0;
    ssize_t got;

    while (other != NULL && (got = pread(a, buf, STEP_BYTES, (off_t)at)) > 0) {
        if (pread(b, other, STEP_BYTES, (off_t)at) != got ||
            memcmp(buf, other, (size_t)got) != 0) {
            fprintf(stderr, "bench-insert: the two files differ near %" PRIu64 "\n", at);
            exit(1);
        }
        at += (uint64_t)got;
    }
    free(other);
}

int main(int argc, char **argv)
{
    uint64_t mib = argc > 2 ? strtoull(argv[2], NULL, 10) : 1024;
    int runs = argc > 3 ? atoi(argv[3]) : 9;
    double inserts[RUNS_MAX], rewrites[RUNS_MAX];
    uint64_t put = 0, puts = 0;
    uint8_t *buf = malloc(STEP_BYTES), data[EDIT_BYTES];
    int a, b;

    if (argc < 2 || argc > 4 || mib < 8 || mib % 4 != 0 || runs < 1 || runs > RUNS_MAX ||
        buf == NULL) {
        fprintf(stderr, "usage: bench-insert DIR [MIB [RUNS]]\n");
        return 2;
    }
    a = make(argv[1], "bench-insert.a", mib, 88172645463325252u, buf);
    b = make(argv[1], "bench-insert.b", mib, 88172645463325252u, buf);
    for (int i = 0; i < runs; i++) {
        uint64_t offset = (mib << 19) + 12345u * (uint64_t)i, before, before_count;

        if (getrandom(data, sizeof data, 0) != (ssize_t)sizeof data) {
            die("getrandom");
        }
        start_cold(a);
        before = counter(a, "object_bytes_put");
        before_count = counter(a, "objects_put");
        inserts[i] = insert(a, offset, data);
        put += counter(a, "object_bytes_put") - before;
        puts += counter(a, "objects_put") - before_count;
        rewrites[i] = rewrite(b, offset, data, buf);
    }
    compare(a, b, buf);
    double each = (double)put / runs, objects = (double)puts / runs;

    figure_print("rewriting the tail + fsync", "ms", rewrites, runs);
    figure_against("insert 4 KiB in the middle + fsync", "ms", inserts, runs, "lower",
                   "rewriting the tail + fsync", NULL);
    figure_print("object bytes put for an insert", "bytes", &each, 1);
    figure_print("objects put for an insert", "", &objects, 1);
    close(a);
    close(b);
    free(buf);
    return 0;
}
