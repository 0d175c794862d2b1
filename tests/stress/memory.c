/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * memory.c - what makes a daemon need memory
 *
 *   memory files DIR COUNT PROCESSES DAEMON   makes, reads and removes COUNT files;
 *                                             prints the most RssAnon, KiB, that process
 *                                             DAEMON had
 *   memory maps DIR BYTES PROCESSES SECONDS   each process writes a file of BYTES through
 *                                             a mapping, again and again, and reads it
 *                                             back
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

#define FILES_OF_A_DIRECTORY 1000u
#define PAGE 4096u

static void fail(const char *what)
{
    fprintf(stderr, "memory: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t number(const char *text)
{
    uint64_t n;

    if (!g_ascii_string_to_unsigned(text, 10, 1, INT64_MAX, &n, NULL)) {
        fprintf(stderr, "memory: %s: not a number\n", text);
        exit(2);
    }
    return n;
}

static uint64_t anonymous_kib(const char *daemon)
{
    g_autofree char *path = g_strdup_printf("/proc/%s/status", daemon), *text = NULL;
    const char *at;

    if (!g_file_get_contents(path, &text, NULL, NULL)) {
        fail(path);
    }
    at = strstr(text, "RssAnon:");
    return at != NULL ? g_ascii_strtoull(at + strlen("RssAnon:"), NULL, 10) : 0;
}

/* ---- files */

/* From a few bytes, kept inline, to some that are objects. */
static size_t size_of(uint64_t i)
{
    return i % 50 == 0 ? 20000 : i % 7 * 300;
}

static void make_file(const char *path, uint64_t i, char *bytes)
{
    VJ_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    size_t len = size_of(i);

    memset(bytes, (int)('a' + i % 26), len);
    memcpy(bytes, &i, MIN(len, sizeof(i)));
    if (fd < 0 || write(fd, bytes, len) != (ssize_t)len) {
        fail(path);
    }
}

static void read_file(const char *path, uint64_t i, char *bytes)
{
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = size_of(i);

    if (fd < 0 || read(fd, bytes, 32768) != (ssize_t)len) {
        fail(path);
    }
    if (memcmp(bytes, &i, MIN(len, sizeof(i))) != 0 ||
        (len > 8 && bytes[len - 1] != (char)('a' + i % 26))) {
        errno = EBADMSG;
        fail(path);
    }
}

/* A directory at a time is made and read; what was made before the last ten is
 * removed. */
static void churn(const char *dir, uint64_t directories, unsigned process)
{
    g_autofree char *bytes = g_malloc(32768);

    for (uint64_t d = 0; d < directories + 10; d++) {
        g_autofree char *made = g_strdup_printf("%s/p%u.%" PRIu64, dir, process, d);
        g_autofree char *old = g_strdup_printf("%s/p%u.%" PRIu64, dir, process, d - 10);

        if (d < directories && mkdir(made, 0700) != 0) {
            fail(made);
        }
        for (unsigned i = 0; i < FILES_OF_A_DIRECTORY; i++) {
            g_autofree char *path = g_strdup_printf("%s/file-%u", made, i);
            g_autofree char *gone = g_strdup_printf("%s/file-%u", old, i);

            if (d < directories) {
                make_file(path, d * FILES_OF_A_DIRECTORY + i, bytes);
            }
            if (d >= 10) {
                read_file(gone, (d - 10) * FILES_OF_A_DIRECTORY + i, bytes);
                if (unlink(gone) != 0) {
                    fail(gone);
                }
            }
        }
        if (d >= 10 && rmdir(old) != 0) {
            fail(old);
        }
    }
}

static int files(const char *dir, uint64_t count, unsigned processes, const char *daemon)
{
    uint64_t most = anonymous_kib(daemon), first = most;
    unsigned running = processes;
    int failed = 0;

    for (unsigned p = 0; p < processes; p++) {
        if (fork() == 0) {
            churn(dir, MAX(count / processes / FILES_OF_A_DIRECTORY, 1), p);
            _exit(0);
        }
    }
    while (running > 0) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);

        if (pid > 0) {
            running--;
            failed = failed || status != 0;
        } else {
            g_usleep(100000); /* between two looks */
        }
        most = MAX(most, anonymous_kib(daemon));
    }
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", most, first, anonymous_kib(daemon));
    return failed;
}

/* ---- mappings */

static void write_map(const char *dir, uint64_t bytes, unsigned process, uint64_t seconds)
{
    g_autofree char *path = g_strdup_printf("%s/map%u", dir, process);
    VJ_AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int64_t end = g_get_monotonic_time() + (int64_t)seconds * 1000000;
    uint64_t *words, pages = bytes / PAGE, round = 0;

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        fail(path);
    }
    words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED) {
        fail("mmap");
    }
    do {
        round++;
        for (uint64_t i = 0; i < pages; i++) {
            words[i * (PAGE / sizeof(*words)) + round % 64] = round << 32 | i;
        }
        if (round % 3 == 0 && msync(words, bytes, MS_SYNC) != 0) {
            fail("msync");
        }
        for (uint64_t i = 0; i < pages; i++) {
            if (words[i * (PAGE / sizeof(*words)) + round % 64] != (round << 32 | i)) {
                errno = EBADMSG;
                fail(path);
            }
        }
    } while (g_get_monotonic_time() < end);
    printf("process %u: %" PRIu64 " rounds\n", process, round);
    fflush(stdout);
    _exit(0);
}

static int maps(const char *dir, uint64_t bytes, unsigned processes, uint64_t seconds)
{
    int failed = 0, status;

    for (unsigned p = 0; p < processes; p++) {
        if (fork() == 0) {
            write_map(dir, bytes, p, seconds);
        }
    }
    while (wait(&status) > 0) {
        failed = failed || status != 0;
    }
    return failed;
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "files") == 0) {
        return files(argv[2], number(argv[3]), (unsigned)number(argv[4]), argv[5]);
    }
    if (argc == 6 && strcmp(argv[1], "maps") == 0) {
        return maps(argv[2], number(argv[3]), (unsigned)number(argv[4]), number(argv[5]));
    }
    fprintf(stderr, "usage: memory files DIR COUNT PROCESSES DAEMON\n"
                    "       memory maps DIR BYTES PROCESSES SECONDS\n");
    return 2;
}
