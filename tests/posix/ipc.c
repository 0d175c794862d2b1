/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* ipc.c - fifos, sockets and inotify: names of the file system that lead elsewhere */
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "posix.h"

TOPIC(fifo)
{
    const char *f = made(FIFO, 0644);
    char bytes[10];
    int r, w;

    WANT(ENXIO, open(f, O_WRONLY | O_NONBLOCK)); /* nobody reads */
    r = (int)OK(open(f, O_RDONLY | O_NONBLOCK));
    EQ(0, read(r, bytes, sizeof bytes)); /* nobody writes */
    w = (int)OK(open(f, O_WRONLY));
    WANT(EAGAIN, read(r, bytes, sizeof bytes));
    EQ(5, write(w, "hello", 5));
    EQ(3, read(r, bytes, 3));
    EQ(2, read(r, bytes, sizeof bytes));
    EQ(0, stat_of(f).st_size);
    WANT(ESPIPE, lseek(r, 0, SEEK_SET));
    WANT(EINVAL, ftruncate(w, 0));
    MUST(rename(f, "moved"));
    EQ(1, write(w, "x", 1));
    EQ(1, read(r, bytes, sizeof bytes)); /* the pipe is the inode's */
    MUST(unlink("moved"));
    EQ(1, write(w, "y", 1));
    EQ(1, read(r, bytes, sizeof bytes));
    close(r);
    close(w);
    f = made(FIFO, 0644);
    CHILD
    {
        int pid = (int)MUST(fork());

        if (pid == 0) { /* blocking opens meet */
            int fd = open(f, O_WRONLY);

            _exit(write(fd, "from the child", 14) == 14 ? 0 : 1);
        }
        r = (int)OK(open(f, O_RDONLY));
        EQ(10, read(r, bytes, sizeof bytes));
        MUST(waitpid(pid, NULL, 0));
    }
}

static int socket_at(const char *name, bool listen_there)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), r, error;

    strncpy(address.sun_path, name, sizeof address.sun_path - 1);
    r = listen_there ? bind(fd, (struct sockaddr *)&address, sizeof address)
                     : connect(fd, (struct sockaddr *)&address, sizeof address);
    if (r == 0 && listen_there) {
        r = listen(fd, 5);
    }
    error = errno;
    if (r < 0) {
        close(fd);
    }
    errno = error;
    return r < 0 ? -1 : fd;
}

TOPIC(unix_socket)
{
    const char *n = "door";
    char bytes[10];
    int server, client, peer;

    server = (int)OK(socket_at(n, true));
    IS_TRUE(S_ISSOCK(stat_of(n).st_mode));
    EQ(0777, mode_of(n));
    WANT(EADDRINUSE, socket_at(n, true));
    client = (int)OK(socket_at(n, false));
    peer = (int)OK(accept(server, NULL, NULL));
    EQ(5, write(client, "hello", 5));
    EQ(5, read(peer, bytes, sizeof bytes));
    close(peer);
    WANT(ENXIO, open(n, O_RDWR));
    MUST(rename(n, "moved"));
    peer = (int)OK(socket_at("moved", false));
    close(peer);
    WANT(ENOENT, socket_at(n, false));
    close(server);
    WANT(ECONNREFUSED, socket_at("moved", false));
    close(client);
    MUST(unlink("moved"));
    umask(027);
    server = (int)OK(socket_at(n, true));
    umask(0);
    EQ(0750, mode_of(n));
    close(server);
}

/* ---- inotify ----------------------------------------------------------------------- */

/* All events that wait, of any name.  Who looks into a directory in passing is not of
 * ours. */
static uint32_t events(int fd)
{
    char bytes[16384] __attribute__((aligned(8)));
    ssize_t len = read(fd, bytes, sizeof bytes);
    uint32_t mask = 0;

    for (ssize_t at = 0; at < len;) {
        const struct inotify_event *e = (const void *)(bytes + at);

        mask |=
            e->mask & IN_ISDIR
                ? e->mask & ~(uint32_t)(IN_ISDIR | IN_OPEN | IN_ACCESS | IN_CLOSE_NOWRITE)
                : e->mask;
        at += (ssize_t)(sizeof *e + e->len);
    }
    return mask;
}

TOPIC(inotify)
{
    const char *d = made(DIRECTORY, 0755), *n = path("%s/f", d), *m = path("%s/g", d);
    int watch = (int)MUST(inotify_init1(IN_NONBLOCK)), fd;
    char byte;

    OK(inotify_add_watch(watch, d, IN_ALL_EVENTS));
    fd = (int)MUST(open(n, O_CREAT | O_RDWR, 0644));
    EQ(IN_CREATE | IN_OPEN, events(watch));
    MUST(write(fd, "x", 1));
    EQ(IN_MODIFY, events(watch));
    MUST(pread(fd, &byte, 1, 0));
    EQ(IN_ACCESS, events(watch));
    MUST(fchmod(fd, 0600));
    EQ(IN_ATTRIB, events(watch));
    MUST(ftruncate(fd, 0));
    EQ(IN_MODIFY, events(watch));
    MUST(close(fd));
    EQ(IN_CLOSE_WRITE, events(watch));
    MUST(rename(n, m));
    EQ(IN_MOVED_FROM | IN_MOVED_TO, events(watch));
    MUST(link(m, n));
    EQ(IN_CREATE, events(watch));
    MUST(unlink(n));
    IS_TRUE(events(watch) & IN_DELETE);
    MUST(unlink(m));
    EQ(IN_DELETE, events(watch));
    MUST(mkdir(n, 0755));
    EQ(IN_CREATE, events(watch));
    MUST(rmdir(n));
    EQ(IN_DELETE, events(watch));
    MUST(rmdir(d));
    EQ(IN_DELETE_SELF | IN_IGNORED, events(watch));
    close(watch);
}
