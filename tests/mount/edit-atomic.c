/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * edit-atomic.c - an edit happens entirely or not at all
 *
 *   edit-atomic init FILE SEED        makes the file
 *   edit-atomic edit FILE SEED COUNT  COUNT edits; one line for each when COUNT is 0: for
 *                                     ever
 *   edit-atomic read FILE SEED COUNT  COUNT reads in one request each; counts states seen
 *   edit-atomic check FILE SEED       reads the file once, as anybody would
 *
 * The file is a run of one letter and then TAIL_BYTES of 'T'.  Each edit replaces the
 * whole run by that of another letter; how long the run of a letter is follows from the
 * seed.  So a reader that sees two letters, or a run of another length, has seen a part
 * of an edit.
 *
 * The reads stay within the file, which is always longer: at the end of a file that grows
 * meanwhile some kernels make two requests of one read (cache.py looks at the end).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

#include "varjfs/rwrite.h"

/* What one READ brings. */
#define READ_BYTES ((size_t)1 << 20)
#define TAIL_BYTES READ_BYTES
#define RUN_MAX_BYTES ((size_t)900000)
#define LETTERS 26u

static size_t run_of[LETTERS]; /* bytes, by letter from 'a' on */

static void choose_runs(uint64_t seed)
{
    VjRng rng;

    vj_rng_init(&rng, seed);
    for (unsigned i = 0; i < LETTERS; i++) {
        /* Mostly short enough for one ioctl; the long ones are staged. */
        run_of[i] = 1 + (size_t)vj_rng_below(&rng, i % 4 == 0 ? RUN_MAX_BYTES : 12000);
    }
}

static int fail(const char *what)
{
    fprintf(stderr, "edit-atomic: %s: %s\n", what, strerror(errno));
    return 1;
}

/* What the first @len bytes are: a letter and its run.  1 after a message. */
static int look(const uint8_t *bytes, size_t len, unsigned *letter)
{
    size_t run = 0, tail = 0;

    while (run < len && bytes[run] == bytes[0] && bytes[run] != 'T') {
        run++;
    }
    while (run + tail < len && bytes[run + tail] == 'T') {
        tail++;
    }
    *letter = run > 0 ? (unsigned)(bytes[0] - 'a') : LETTERS;
    if (*letter < LETTERS && run == run_of[*letter] && run + tail == len) {
        return 0;
    }
    fprintf(stderr,
            "edit-atomic: torn: %zu bytes of letter %u (its run is %zu), %zu of the "
            "tail, then "
            "byte %d; %zu in all\n",
            run, *letter, *letter < LETTERS ? run_of[*letter] : 0, tail,
            run + tail < len ? bytes[run + tail] : -1, len);
    return 1;
}

static int make(const char *path)
{
    g_autofree uint8_t *bytes = g_malloc(RUN_MAX_BYTES + TAIL_BYTES);
    VJ_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t len = run_of[0] + TAIL_BYTES;

    memset(bytes, 'a', run_of[0]);
    memset(bytes + run_of[0], 'T', TAIL_BYTES);
    if (fd < 0 || write(fd, bytes, len) != (ssize_t)len || fsync(fd) != 0) {
        return fail(path);
    }
    return 0;
}

/* There is one writer, so it knows how long the run is. */
static int edit(const char *path, uint64_t count)
{
    g_autofree uint8_t *bytes = g_malloc(RUN_MAX_BYTES);
    VJ_AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
    size_t run = size > (off_t)TAIL_BYTES ? (size_t)size - TAIL_BYTES : 0;

    if (run == 0) {
        return fail(path);
    }
    for (uint64_t i = 0; count == 0 || i < count; i++) {
        size_t len = run_of[i % LETTERS];

        memset(bytes, (int)('a' + i % LETTERS), len);
        if (rpwrite(fd, bytes, len, 0, run) != (ssize_t)len) {
            return fail("rpwrite");
        }
        run = len;
        if (i % 16 == 0 && fsync(fd) != 0) {
            return fail("fsync");
        }
        if (count == 0) {
            printf("%" PRIu64 "\n", i);
            fflush(stdout);
        }
    }
    return 0;
}

static int read_many(const char *path, uint64_t count)
{
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    void *bytes = NULL;
    uint64_t changes = 0;
    unsigned last = LETTERS;
    int status = 0;

    if (fd < 0 || posix_memalign(&bytes, 4096, READ_BYTES) != 0) {
        return fail(path);
    }
    for (uint64_t i = 0; i < count && status == 0; i++) {
        ssize_t len = pread(fd, bytes, READ_BYTES, 0);
        unsigned letter = LETTERS;

        status = len < 0 ? fail("pread") : look(bytes, (size_t)len, &letter);
        changes += letter != last;
        last = letter;
    }
    free(bytes);
    printf("%" PRIu64 " states seen\n", changes);
    return status;
}

static int check(const char *path)
{
    g_autofree char *bytes = NULL;
    gsize len;
    unsigned letter;

    if (!g_file_get_contents(path, &bytes, &len, NULL)) {
        return fail(path);
    }
    return look((const uint8_t *)bytes, len, &letter) != 0 ||
           len != run_of[letter] + TAIL_BYTES;
}

int main(int argc, char **argv)
{
    if (argc >= 4) {
        choose_runs(strtoull(argv[3], NULL, 10));
    }
    if (argc == 4 && strcmp(argv[1], "init") == 0) {
        return make(argv[2]);
    }
    if (argc == 4 && strcmp(argv[1], "check") == 0) {
        return check(argv[2]);
    }
    if (argc == 5 && strcmp(argv[1], "edit") == 0) {
        return edit(argv[2], strtoull(argv[4], NULL, 10));
    }
    if (argc == 5 && strcmp(argv[1], "read") == 0) {
        return read_many(argv[2], strtoull(argv[4], NULL, 10));
    }
    fprintf(stderr, "usage: edit-atomic init|check|edit|read FILE SEED [COUNT]\n");
    return 2;
}
