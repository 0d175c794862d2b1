/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * log-trim.c - keep the end of a log file, delete its head in place
 *
 *   log-trim FILE BYTES
 *
 * Deletes whole lines from the start of FILE until at most BYTES are left.  The file stays
 * the same file: programs that have it open with O_APPEND (as loggers do) go on writing and
 * need not be told.  On varjfs the cost is that of finding one newline, however long the log
 * is, and each deletion is one step, so that a line that is appended meanwhile is never lost.
 * On other file systems librwrite moves what is left, and nobody may write meanwhile.
 *
 * Exit status: 0 (also when there was nothing to delete), 1 on an error, 2 on bad usage.
 *
 *   cc -o log-trim log-trim.c $(pkg-config --cflags --libs rwrite)
 */
#include <varjfs/rwrite.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES 65536

/* A line may be cut here when no newline comes: a log of one endless line stays bounded too. */
#define LINE_MAX_BYTES ((off_t)1 << 20)

static int complain(const char *path)
{
    fprintf(stderr, "log-trim: %s: %s\n", path, strerror(errno));
    return 1;
}

/* Where the first line begins that starts at @from or behind it; -1 and errno. */
static off_t next_line(int fd, off_t from, off_t size)
{
    static char block[BLOCK_BYTES];
    off_t at = from - 1; /* a newline just before from makes from itself a start */

    while (at < size && at - from < LINE_MAX_BYTES) {
        ssize_t got = pread(fd, block, sizeof block, at);
        const char *newline;

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            return size; /* somebody else has made it shorter */
        }
        newline = memchr(block, '\n', (size_t)got);
        if (newline != NULL) {
            return at + (newline - block) + 1;
        }
        at += got;
    }
    return at < size ? from : size;
}

int main(int argc, char **argv)
{
    unsigned long long keep;
    struct stat st;
    char *end;
    off_t cut;
    int fd;

    if (argc != 3) {
        fprintf(stderr, "usage: log-trim FILE BYTES\n");
        return 2;
    }
    errno = 0;
    keep = strtoull(argv[2], &end, 10);
    if (errno != 0 || end == argv[2] || *end != '\0' || argv[2][0] == '-') {
        fprintf(stderr, "log-trim: %s: not a number of bytes\n", argv[2]);
        return 2;
    }
    fd = open(argv[1], O_RDWR);
    if (fd < 0 || fstat(fd, &st) != 0) {
        return complain(argv[1]);
    }
    if ((unsigned long long)st.st_size <= keep) {
        return close(fd) == 0 ? 0 : complain(argv[1]);
    }
    cut = next_line(fd, st.st_size - (off_t)keep, st.st_size);
    if (cut < 0) {
        return complain(argv[1]);
    }
    /* The head becomes nothing.  fsync: a trimmed log that comes back is no harm, an error is
     * worth knowing. */
    if (rpwrite(fd, NULL, 0, 0, (size_t)cut) != 0 || fsync(fd) != 0 || close(fd) != 0) {
        return complain(argv[1]);
    }
    return 0;
}
