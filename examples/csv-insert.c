/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * csv-insert.c - insert a row into a sorted CSV file, at its place
 *
 *   csv-insert [-n] [-H] FILE ROW
 *
 *     -n   the first column holds numbers; else it is compared byte by byte
 *     -H   the first row of the file is a header and stays first
 *
 * FILE is sorted by its first column.  The place is found by binary search over the bytes of
 * the file, and the row is inserted there, behind rows with an equal first column: so a
 * table of any length stays sorted at the cost of some 4 KiB reads and one insert, where a
 * program would otherwise rewrite half of it.  Fields may be quoted, but no field may hold a
 * newline, as a search that begins in the middle of a file could not tell it from the end of
 * a row; and the first column is compared without its quotes.
 *
 * Exit status: 0, 1 on an error (the file is as it was), 2 on bad usage.
 *
 *   cc -o csv-insert csv-insert.c $(pkg-config --cflags --libs rwrite)
 */
#include <varjfs/rwrite.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROW_MAX_BYTES 65536
#define BLOCK_BYTES 4096

static const char *path;
static bool numeric;

static int complain(const char *what)
{
    fprintf(stderr, "csv-insert: %s: %s\n", path, what);
    return -1;
}

/* The first column of a row of @len bytes as a string in @out. */
static void first_column(const char *row, size_t len, char *out)
{
    bool quoted = len > 0 && row[0] == '"';
    size_t used = 0;

    for (size_t i = quoted ? 1 : 0; i < len; i++) {
        if (quoted && row[i] == '"') {
            if (i + 1 == len || row[i + 1] != '"') {
                break;
            }
            i++; /* "" stands for one */
        } else if (!quoted && (row[i] == ',' || row[i] == '\r' || row[i] == '\n')) {
            break;
        }
        out[used++] = row[i];
    }
    out[used] = '\0';
}

static int compare(const char *a, const char *b)
{
    if (numeric) {
        double x = strtod(a, NULL), y = strtod(b, NULL);

        return x < y ? -1 : x > y;
    }
    return strcmp(a, b);
}

/* The row that begins at @start, without its newline; *len is -1 when it is too long. */
static int read_row(int fd, off_t start, char *row, ssize_t *len)
{
    size_t have = 0;

    while (have < ROW_MAX_BYTES) {
        size_t want =
            ROW_MAX_BYTES - have < BLOCK_BYTES ? ROW_MAX_BYTES - have : BLOCK_BYTES;
        ssize_t got = pread(fd, row + have, want, start + (off_t)have);
        const char *newline;

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return complain(strerror(errno));
        }
        newline = memchr(row + have, '\n', (size_t)got);
        if (newline != NULL || got == 0) {
            *len = newline != NULL ? newline - row : (ssize_t)have;
            return 0;
        }
        have += (size_t)got;
    }
    return complain("a row is longer than 64 KiB");
}

/* The first row that begins behind @from - 1, or @end. */
static int row_start(int fd, off_t from, off_t end, off_t *start)
{
    static char row[ROW_MAX_BYTES];
    ssize_t len;

    if (read_row(fd, from - 1, row, &len) != 0) {
        return -1;
    }
    *start = from + len < end ? from + len : end;
    return 0;
}

/* Where the row with @key belongs in [low, high); low is the start of a row. */
static int find_place(int fd, const char *key, off_t low, off_t high, off_t *place)
{
    static char row[ROW_MAX_BYTES], column[ROW_MAX_BYTES + 1];
    off_t end = high;

    /* Rows that begin before low are not greater than the key; those from high on are. */
    while (low < high) {
        off_t middle = low + (high - low) / 2, start = low;
        ssize_t len;

        if (middle > low && row_start(fd, middle, end, &start) != 0) {
            return -1;
        }
        if (start >= high) {
            high = middle; /* no row begins between the two */
            continue;
        }
        if (read_row(fd, start, row, &len) != 0) {
            return -1;
        }
        first_column(row, (size_t)len, column);
        if (compare(column, key) > 0) {
            high = middle;
        } else {
            low = start + len + 1 < end ? start + len + 1 : end;
        }
    }
    *place = low;
    return 0;
}

static int insert_row(int fd, const char *row, bool header)
{
    static char key[ROW_MAX_BYTES + 1], text[ROW_MAX_BYTES + 2];
    size_t len = strlen(row), at = 0;
    off_t low = 0, place = 0;
    struct stat st;
    char last = '\n';

    if (fstat(fd, &st) != 0) {
        return complain(strerror(errno));
    }
    if (header && st.st_size > 0 && row_start(fd, 1, st.st_size, &low) != 0) {
        return -1;
    }
    first_column(row, len, key);
    if (find_place(fd, key, low, st.st_size, &place) != 0) {
        return -1;
    }
    /* Behind a last row that has no newline. */
    if (place == st.st_size && place > 0 && pread(fd, &last, 1, place - 1) != 1) {
        return complain(strerror(errno));
    }
    if (last != '\n') {
        text[at++] = '\n';
    }
    memcpy(text + at, row, len);
    at += len;
    text[at++] = '\n';
    if (rpwrite(fd, text, at, place, 0) != (ssize_t)at) {
        return complain(strerror(errno));
    }
    return 0;
}

int main(int argc, char **argv)
{
    bool header = false;
    int option, fd;

    while ((option = getopt(argc, argv, "nH")) != -1) {
        if (option == 'n') {
            numeric = true;
        } else if (option == 'H') {
            header = true;
        } else {
            argc = 0;
            break;
        }
    }
    if (argc - optind != 2) {
        fprintf(stderr, "usage: csv-insert [-n] [-H] FILE ROW\n");
        return 2;
    }
    path = argv[optind];
    if (strchr(argv[optind + 1], '\n') != NULL ||
        strlen(argv[optind + 1]) >= ROW_MAX_BYTES) {
        fprintf(stderr, "csv-insert: a row is one line of less than 64 KiB\n");
        return 2;
    }
    fd = open(path, O_RDWR);
    if (fd < 0) {
        return complain(strerror(errno)) != 0;
    }
    if (insert_row(fd, argv[optind + 1], header) != 0) {
        return 1;
    }
    if (fsync(fd) != 0 || close(fd) != 0) {
        return complain(strerror(errno)) != 0;
    }
    return 0;
}
