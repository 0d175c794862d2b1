/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * append.c - what becomes of appends to a page that is stored into and written back
 * meanwhile
 *
 *     append DIR SECONDS close|sync_file_range|fdatasync|nothing
 *
 * One process stores a byte into the last page of a file in DIR through a mapping,
 * appends with write(2) and reads what it has appended, again and again; another one does
 * what the last argument says to the file, all the while.  Prints how many appends there
 * were, how many of them read back wrong, and how many of these are wrong past the page
 * cache too.  Status 1 when there were any: doc/page-cache.md, "Known limits".
 */
#include "base/base.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define APPEND_MOST ((size_t)5000)
#define FILE_MOST ((off_t)8 << 20)

G_NORETURN static void die(const char *what)
{
    fprintf(stderr, "append: %s: %s\n", what, g_strerror(errno));
    exit(2);
}

static void disturb_once(const char *path, int fd, const char *how)
{
    if (strcmp(how, "close") == 0) {
        int other = open(path, O_RDWR | O_CLOEXEC);

        if (other < 0 || close(other) < 0) {
            die("open and close");
        }
    } else if (strcmp(how, "sync_file_range") == 0) {
        if (sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) < 0) {
            die("sync_file_range");
        }
    } else if (strcmp(how, "fdatasync") == 0) {
        if (fdatasync(fd) < 0) {
            die("fdatasync");
        }
    } else {
        (void)pause(); /* until it is killed */
    }
}

/* Past the page cache; -1 does not count as right. */
static bool is_there(const char *path, const uint8_t *data, size_t len, off_t at)
{
    uint8_t got[APPEND_MOST];
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    bool ok =
        fd >= 0 && pread(fd, got, len, at) == (ssize_t)len && memcmp(got, data, len) == 0;

    vj_fd_close(&fd);
    return ok;
}

typedef struct Counts {
    uint64_t appends, wrong, lost;
} Counts;

static void append(const char *path, int fd, int64_t until_us, Counts *counts)
{
    uint8_t data[APPEND_MOST], got[APPEND_MOST];
    uint8_t *map =
        mmap(NULL, (size_t)FILE_MOST * 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int end = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    off_t size = 0;
    VjRng rng;

    if (map == MAP_FAILED || end < 0) {
        die(path);
    }
    memset(data, 'Z', sizeof data);
    vj_rng_init(&rng, 1);
    while (vj_clock_mono_us() < until_us) {
        size_t len = 100 + vj_rng_below(&rng, APPEND_MOST - 100);

        if (size > FILE_MOST) {
            size = 0;
            if (ftruncate(fd, 0) < 0) {
                die("ftruncate");
            }
        }
        if (size > 0) {
            map[size - 1] = 'Z';
        }
        if (write(end, data, len) != (ssize_t)len) {
            die("write");
        }
        counts->appends++;
        if (pread(fd, got, len, size) != (ssize_t)len || memcmp(got, data, len) != 0) {
            counts->wrong++;
            counts->lost += !is_there(path, data, len, size);
        }
        size += (off_t)len;
    }
    munmap(map, (size_t)FILE_MOST * 2);
    vj_fd_close(&end);
}

int main(int argc, char **argv)
{
    g_autofree char *path = NULL;
    Counts counts = {0};
    pid_t other;
    int fd;

    static const char *const ways[] = {"close", "sync_file_range", "fdatasync", "nothing",
                                       NULL};

    if (argc != 4 || atoi(argv[2]) <= 0 || !g_strv_contains(ways, argv[3])) {
        fprintf(stderr,
                "usage: append DIR SECONDS close|sync_file_range|fdatasync|nothing\n");
        return 2;
    }
    path = g_strdup_printf("%s/append.%d", argv[1], (int)getpid());
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        die(path);
    }
    other = fork();
    if (other < 0) {
        die("fork");
    }
    if (other == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            disturb_once(path, fd, argv[3]);
        }
    }
    append(path, fd, vj_clock_mono_us() + atoll(argv[2]) * 1000000, &counts);
    if (kill(other, SIGKILL) < 0 || waitpid(other, NULL, 0) < 0 || unlink(path) < 0) {
        die("clean-up");
    }
    printf("%" G_GUINT64_FORMAT " appends beside %s: %" G_GUINT64_FORMAT
           " read back wrong, %" G_GUINT64_FORMAT " of these are not in the file\n",
           counts.appends, argv[3], counts.wrong, counts.lost);
    return counts.wrong > 0;
}
