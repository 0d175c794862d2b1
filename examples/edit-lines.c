/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * edit-lines.c - edit lines of a text file in place, as an editor saves small changes
 *
 *   edit-lines FILE COMMAND...
 *
 *     Np        print line N (lines count from 1)
 *     Nd        delete line N
 *     N,Md      delete lines N to M
 *     NiTEXT    insert TEXT as a line before line N; N may be one more than there are lines
 *     NcTEXT    line N becomes TEXT
 *
 * The commands are executed in their order, each on the result of the one before.  Editors
 * rewrite a whole file, or what is behind a change, when they save it; this one writes what
 * it changes and nothing else, by rpwrite(2).  On varjfs that costs as much for a file of
 * gigabytes as for a short one, apart from counting lines up to N; and whoever reads the file
 * sees each command done or not done.
 *
 * Exit status: 0; 1 on an error, with the commands before it executed; 2 on bad usage.
 *
 *   cc -o edit-lines edit-lines.c $(pkg-config --cflags --libs rwrite)
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

static const char *path;

static int complain(const char *what)
{
    fprintf(stderr, "edit-lines: %s: %s\n", path, what);
    return 1;
}

/* The bytes of lines [first, last], newlines included.  1: found; 0: there is no line first
 * (start is then the end of the file, which line_count lines precede); -1 and errno. */
typedef struct Lines {
    off_t start, end;
    unsigned long long line_count; /* lines before start */
    int last_is_complete;          /* the byte before end is a newline */
} Lines;

static int find_lines(int fd, unsigned long long first, unsigned long long last,
                      Lines *out)
{
    static char block[BLOCK_BYTES];
    unsigned long long line = 1; /* that the byte at `at` belongs to */
    off_t at = 0;
    int found = first == 1, after_newline = 1;

    *out = (Lines){0, 0, 0, 1};
    for (;;) {
        ssize_t got = pread(fd, block, sizeof block, at);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        for (ssize_t i = 0; i < got; i++) {
            after_newline = block[i] == '\n';
            if (!after_newline) {
                continue;
            }
            line++;
            if (line == first) {
                out->start = at + i + 1;
                found = 1;
            }
            if (line == last + 1) {
                out->end = at + i + 1;
                out->line_count = first - 1;
                return 1;
            }
        }
        at += got;
    }
    out->end = at;
    out->last_is_complete = after_newline;
    if (!found || out->start == at) {
        out->start = at;
        out->line_count = line - (after_newline ? 1 : 0);
        return 0;
    }
    out->line_count = first - 1;
    return 1;
}

static int print_line(int fd, const Lines *l)
{
    char block[4096];

    for (off_t at = l->start; at < l->end;) {
        size_t want =
            l->end - at < (off_t)sizeof block ? (size_t)(l->end - at) : sizeof block;
        ssize_t got = pread(fd, block, want, at);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return complain(got < 0 ? strerror(errno) : "has become shorter");
        }
        if (fwrite(block, 1, (size_t)got, stdout) != (size_t)got) {
            return complain("standard output cannot be written");
        }
        at += got;
    }
    return 0;
}

/* Lines [start, end) become @text and a newline. */
static int put_line(int fd, const Lines *l, off_t end, const char *text,
                    int newline_before)
{
    size_t len = strlen(text), at = 0;
    char *line = malloc(len + 2);
    ssize_t done;

    if (line == NULL) {
        return complain(strerror(errno));
    }
    if (newline_before) {
        line[at++] = '\n';
    }
    memcpy(line + at, text, len);
    at += len;
    line[at++] = '\n';
    /* Up to 8 MiB are one step; only more could come back short. */
    done = rpwrite(fd, line, at, l->start, (size_t)(end - l->start));
    free(line);
    if (done < 0) {
        return complain(strerror(errno));
    }
    return (size_t)done == at ? 0 : complain("was written in part");
}

static int run(int fd, const char *command)
{
    unsigned long long first, last;
    char *rest;
    Lines lines;
    int found;

    errno = 0;
    first = last = strtoull(command, &rest, 10);
    if (*rest == ',') {
        last = strtoull(rest + 1, &rest, 10);
    }
    if (errno != 0 || command[0] < '0' || command[0] > '9' || first == 0 ||
        last < first || last == (unsigned long long)-1 || *rest == '\0' ||
        strchr("pdic", *rest) == NULL ||
        (strchr("pd", *rest) != NULL && rest[1] != '\0') ||
        (last != first && *rest != 'd') || strchr(rest, '\n') != NULL) {
        fprintf(stderr, "edit-lines: %s: not a command\n", command);
        return 2;
    }
    found = find_lines(fd, first, last, &lines);
    if (found < 0) {
        return complain(strerror(errno));
    }
    if (found == 0 && (*rest != 'i' || lines.line_count != first - 1)) {
        return complain("has no such line");
    }
    switch (*rest) {
    case 'p':
        return print_line(fd, &lines);
    case 'd':
        if (rpwrite(fd, NULL, 0, lines.start, (size_t)(lines.end - lines.start)) != 0) {
            return complain(strerror(errno));
        }
        return 0;
    case 'i':
        return put_line(fd, &lines, lines.start, rest + 1,
                        found == 0 && !lines.last_is_complete);
    default:
        return put_line(fd, &lines, lines.end, rest + 1, 0);
    }
}

int main(int argc, char **argv)
{
    int fd, status = 0;

    if (argc < 3) {
        fprintf(stderr, "usage: edit-lines FILE COMMAND...\n"
                        "commands: Np, Nd, N,Md, NiTEXT, NcTEXT\n");
        return 2;
    }
    path = argv[1];
    fd = open(path, O_RDWR);
    if (fd < 0) {
        return complain(strerror(errno));
    }
    for (int i = 2; i < argc && status == 0; i++) {
        status = run(fd, argv[i]);
    }
    if (fsync(fd) != 0 || close(fd) != 0 || fflush(stdout) != 0) {
        return complain(strerror(errno));
    }
    return status;
}
