/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * handle.c - file handles on the command line
 *
 *   handle get FILE         prints the handle, in hexadecimal
 *   handle cat DIR HANDLE   prints the content of the file, found on DIR's file system
 *   handle path DIR HANDLE  prints the path of the directory
 *   handle link DIR HANDLE  prints where the symlink leads
 *
 * Exit status 3: the handle is stale (ESTALE).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef union Handle {
    struct file_handle head;
    unsigned char bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
} Handle;

static int fail(const char *what)
{
    int stale = errno == ESTALE;

    perror(what);
    return stale ? 3 : 1;
}

static int get(const char *name)
{
    Handle h = {.head = {.handle_bytes = MAX_HANDLE_SZ}};
    int mount_id;

    if (name_to_handle_at(AT_FDCWD, name, &h.head, &mount_id, 0) < 0) {
        return fail(name);
    }
    for (size_t i = 0; i < sizeof h.head + h.head.handle_bytes; i++) {
        printf("%02x", h.bytes[i]);
    }
    printf("\n");
    return 0;
}

static int show(char what, int fd)
{
    char bytes[65536], link[64];
    ssize_t n;

    if (what == 'c') {
        while ((n = read(fd, bytes, sizeof bytes)) > 0) {
            fwrite(bytes, 1, (size_t)n, stdout);
        }
        return n < 0 ? fail("read") : 0;
    }
    if (what == 'l') {
        n = readlinkat(fd, "", bytes, sizeof bytes);
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        n = readlink(link, bytes, sizeof bytes);
    }
    if (n < 0) {
        return fail("readlink");
    }
    printf("%.*s\n", (int)n, bytes);
    return 0;
}

static int use(char what, const char *dir, const char *text)
{
    Handle h;
    int mount_fd = open(dir, O_RDONLY | O_DIRECTORY), fd;

    memset(&h, 0, sizeof h);
    for (size_t i = 0; i < sizeof h && text[2 * i] != '\0'; i++) {
        char byte[3] = {text[2 * i], text[2 * i + 1], '\0'};

        h.bytes[i] = (unsigned char)strtoul(byte, NULL, 16);
    }
    fd = open_by_handle_at(mount_fd, &h.head,
                           what == 'l' ? O_PATH | O_NOFOLLOW : O_RDONLY);
    return fd < 0 ? fail("open_by_handle_at") : show(what, fd);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "get") == 0) {
        return get(argv[2]);
    }
    if (argc == 4) {
        return use(argv[1][0], argv[2], argv[3]);
    }
    fprintf(stderr, "usage: handle get FILE | cat|path|link DIR HANDLE\n");
    return 2;
}
