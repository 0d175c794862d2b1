/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * make.c - what open O_CREAT, mkdir, mknod, mkfifo, symlink and O_TMPFILE make: owner,
 * mode and umask, times, link counts; and the errors of making
 */
#include <limits.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static int create(const char *n, mode_t mode)
{
    int fd = open(n, O_CREAT | O_EXCL | O_RDWR, mode);

    return fd < 0 ? -1 : close(fd);
}

static int create_at(const char *n, mode_t mode)
{
    int fd = openat(AT_FDCWD, n, O_CREAT | O_WRONLY, mode);

    return fd < 0 ? -1 : close(fd);
}

static int creat_it(const char *n, mode_t mode)
{
    int fd = creat(n, mode);

    return fd < 0 ? -1 : close(fd);
}

static int mknod_regular(const char *n, mode_t mode)
{
    return mknod(n, S_IFREG | mode, 0);
}

static int mknod_plain(const char *n, mode_t mode)
{
    return mknod(n, mode, 0); /* no type means a regular file */
}

static int mknod_fifo(const char *n, mode_t mode)
{
    return mknod(n, S_IFIFO | mode, 0);
}

static int mknod_socket(const char *n, mode_t mode)
{
    return mknod(n, S_IFSOCK | mode, 0);
}

static int mknod_char(const char *n, mode_t mode)
{
    return mknod(n, S_IFCHR | mode, makedev(1, 5));
}

static int mknod_block(const char *n, mode_t mode)
{
    return mknod(n, S_IFBLK | mode, makedev(7, 200));
}

static int symlink_to(const char *n, mode_t mode)
{
    (void)mode;
    return symlink("somewhere", n);
}

/* bind(2) makes a socket with 0777 less the umask. */
static int bind_socket(const char *n, mode_t mode)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), r, error;

    (void)mode;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", n);
    r = bind(fd, (const struct sockaddr *)&address, sizeof address);
    error = errno;
    close(fd);
    errno = error;
    return r;
}

static const struct {
    const char *name;
    int (*call)(const char *n, mode_t mode);
    Kind kind;
} makers[] = {
    {"open O_CREAT|O_EXCL", create, REGULAR},
    {"openat O_CREAT", create_at, REGULAR},
    {"creat", creat_it, REGULAR},
    {"mknod S_IFREG", mknod_regular, REGULAR},
    {"mknod 0", mknod_plain, REGULAR},
    {"mkdir", mkdir, DIRECTORY},
    {"symlink", symlink_to, SYMLINK},
    {"mkfifo", mkfifo, FIFO},
    {"mknod S_IFIFO", mknod_fifo, FIFO},
    {"mknod S_IFSOCK", mknod_socket, SOCKET},
    {"bind", bind_socket, SOCKET},
    {"mknod S_IFCHR", mknod_char, CHARDEV},
    {"mknod S_IFBLK", mknod_block, BLOCKDEV},
};

static const mode_t modes[] = {0,     0400,  0644,  0755,  0777,
                               01755, 04755, 02755, 06777, 07777};
static const mode_t masks[] = {0, 0022, 0027, 0077, 0277, 0777};

static mode_t wanted_mode(size_t m, mode_t mode, mode_t mask)
{
    if (makers[m].kind == SYMLINK) {
        return 0777;
    }
    if (makers[m].call == bind_socket) {
        mode = 0777;
    }
    /* mkdir(2): the bits of 0777 and the sticky one. */
    if (makers[m].kind == DIRECTORY) {
        mode &= 01777;
    }
    return mode & ~mask;
}

static void mode_and_umask(size_t m)
{
    for (size_t i = 0; i < COUNT(modes); i++) {
        for (size_t u = 0; u < COUNT(masks); u++) {
            const char *n = fresh();

            about("%s 0%o with umask 0%o", makers[m].name, modes[i], masks[u]);
            umask(masks[u]);
            OK(makers[m].call(n, modes[i]));
            umask(0);
            EQ(wanted_mode(m, modes[i], masks[u]) | kind_modes[makers[m].kind],
               stat_of(n).st_mode);
            MUST(gone(makers[m].kind, n));
        }
    }
}

static void attributes(size_t m)
{
    const char *dir = made(DIRECTORY, 0777), *n = path("%s/x", dir);
    struct stat then = before(dir), st, now;
    struct timespec start, end;
    bool directory = makers[m].kind == DIRECTORY;

    about("%s: what it makes", makers[m].name);
    clock_gettime(CLOCK_REALTIME_COARSE, &start);
    OK(makers[m].call(n, 0644));
    clock_gettime(CLOCK_REALTIME, &end);
    st = stat_of(n);
    EQ(ME.uid, st.st_uid);
    EQ(ME.gid, st.st_gid);
    EQ(directory ? 2 : 1, st.st_nlink);
    if (makers[m].kind == SYMLINK) {
        EQ(strlen("somewhere"), st.st_size);
    } else if (!directory) {
        EQ(0, st.st_size);
        EQ(0, st.st_blocks);
    }
    EQ(then.st_dev, st.st_dev);
    IS_TRUE(st.st_ino != 0 && st.st_ino != then.st_ino);
    IS_TRUE(!later(start, st.st_atim) && !later(st.st_atim, end));
    IS_TRUE(!later(start, st.st_mtim) && !later(st.st_mtim, end));
    IS_TRUE(!later(start, st.st_ctim) && !later(st.st_ctim, end));
    MC_TIMES(then, dir, TIME_M | TIME_C);
    now = stat_of(dir);
    EQ(then.st_nlink + directory, now.st_nlink);
    EQ(1, names_in(dir));
    MUST(gone(makers[m].kind, n));
    EQ(then.st_nlink, stat_of(dir).st_nlink);
    MUST(rmdir(dir));
}

static void owners(size_t m)
{
    static const Who *const who[] = {&ALICE, &BOB, &CAROL, &DAVE};
    bool device = makers[m].kind == CHARDEV || makers[m].kind == BLOCKDEV;

    for (size_t w = 0; w < COUNT(who); w++) {
        const char *n = fresh();

        about("%s", makers[m].name);
        AS(*who[w])
        {
            WANT(device ? EPERM : 0, makers[m].call(n, 0640));
        }
        if (!device) {
            EQ(who[w]->uid, stat_of(n).st_uid);
            EQ(who[w]->gid, stat_of(n).st_gid);
            MUST(gone(makers[m].kind, n));
        }
    }
}

/* A name that is there stays as it was, and so does its directory. */
static void on_existing(size_t m)
{
    EACH_KIND(k)
    {
        const char *dir = made(DIRECTORY, 0777), *n = path("%s/x", dir);
        struct stat then, then_dir;

        if (makers[m].call == create_at || makers[m].call == creat_it) {
            MUST(rmdir(dir));
            continue;
        }
        MUST(make(k, n, 0604));
        then = before(n);
        then_dir = before(dir);
        about("%s over a %s", makers[m].name, kind_names[k]);
        WANT(makers[m].call == bind_socket ? EADDRINUSE : EEXIST,
             makers[m].call(n, 0755));
        EQ(then.st_ino, stat_of(n).st_ino);
        EQ(then.st_mode, stat_of(n).st_mode);
        MC_TIMES(then, n, 0);
        MC_TIMES(then_dir, dir, 0);
        if (makers[m].call != bind_socket) {
            WANT(EEXIST, makers[m].call(path("%s/.", dir), 0755));
            WANT(EEXIST, makers[m].call(path("%s/..", dir), 0755));
        }
        MUST(gone(k, n));
        MUST(rmdir(dir));
    }
}

/* In a directory that is gone, but in which somebody stands. */
static void in_a_removed_directory(size_t m)
{
    const char *dir = made(DIRECTORY, 0777);
    int here = (int)MUST(open(".", O_PATH | O_DIRECTORY));

    about("%s in a removed directory", makers[m].name);
    MUST(chdir(dir));
    MUST(rmdir(path("../%s", dir)));
    WANT(ENOENT, makers[m].call("x", 0644));
    MUST(fchdir(here));
    close(here);
}

static void devices(void)
{
    static const struct {
        unsigned major, minor;
    } numbers[] = {{0, 0}, {1, 3}, {8, 1}, {255, 255}, {259, 70000}, {511, 65536}};

    for (size_t i = 0; i < COUNT(numbers); i++) {
        dev_t dev = makedev(numbers[i].major, numbers[i].minor);
        const char *c = fresh(), *b = fresh();

        about("device %u:%u", numbers[i].major, numbers[i].minor);
        OK(mknod(c, S_IFCHR | 0600, dev));
        OK(mknod(b, S_IFBLK | 0600, dev));
        EQ(dev, stat_of(c).st_rdev);
        EQ(dev, stat_of(b).st_rdev);
        OK(link(c, path("%s.link", c)));
        OK(rename(c, path("%s.moved", c)));
        EQ(dev, stat_of(path("%s.moved", c)).st_rdev);
        EQ(dev, stat_of(path("%s.link", c)).st_rdev);
    }
}

static void working_devices(void)
{
    char bytes[4] = "abc";
    const char *zero = fresh(), *null = fresh();
    int fd;

    about("a device that works");
    MUST(mknod(zero, S_IFCHR | 0666, makedev(1, 5)));
    MUST(mknod(null, S_IFCHR | 0666, makedev(1, 3)));
    fd = (int)OK(open(zero, O_RDONLY));
    EQ(3, read(fd, bytes, 3));
    EQ(0, bytes[0]);
    close(fd);
    fd = (int)OK(open(null, O_RDWR | O_TRUNC));
    EQ(3, write(fd, "abc", 3));
    EQ(0, read(fd, bytes, 3));
    close(fd);
    about("a device that nobody drives");
    MUST(mknod("nobody", S_IFCHR | 0666, makedev(500, 1)));
    WANT(ENXIO, open("nobody", O_RDONLY));
}

static void fifos(void)
{
    const char *n = made(FIFO, 0600);
    char c = 0;
    int in, out;

    about("a fifo that works");
    WANT(ENXIO, open(n, O_WRONLY | O_NONBLOCK));
    in = (int)OK(open(n, O_RDONLY | O_NONBLOCK));
    out = (int)OK(open(n, O_WRONLY | O_NONBLOCK));
    EQ(1, write(out, "x", 1));
    EQ(1, read(in, &c, 1));
    EQ('x', c);
    EQ(0, stat_of(n).st_size);
    MUST(unlink(n));
    EQ(1, write(out, "y", 1));
    EQ(1, read(in, &c, 1));
    close(in);
    close(out);
}

static void sockets(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "listening"};
    int server = socket(AF_UNIX, SOCK_STREAM, 0),
        client = socket(AF_UNIX, SOCK_STREAM, 0);

    about("a socket that works");
    OK(bind(server, (const struct sockaddr *)&address, sizeof address));
    OK(listen(server, 1));
    OK(connect(client, (const struct sockaddr *)&address, sizeof address));
    WANT(ENXIO, open("listening", O_RDWR));
    close(client);
    close(server);
    client = socket(AF_UNIX, SOCK_STREAM, 0);
    WANT(ECONNREFUSED,
         connect(client, (const struct sockaddr *)&address, sizeof address));
    close(client);
    OK(unlink("listening"));
}

static void bad_types(void)
{
    about("types that mknod does not make");
    WANT(EPERM, mknod("directory", S_IFDIR | 0700, 0));
    WANT(EINVAL, mknod("symlink", S_IFLNK | 0700, 0));
    WANT(EINVAL, mknod("none", 0170000 | 0700, 0));
    WANT(EINVAL, mknod("other", 0030000 | 0700, 0));
}

TOPIC(make)
{
    for (size_t m = 0; m < COUNT(makers); m++) {
        bool device = makers[m].kind == CHARDEV || makers[m].kind == BLOCKDEV;

        if (device && !am_root()) {
            about("%s", makers[m].name);
            WANT(EPERM, makers[m].call(fresh(), 0600));
            continue;
        }
        mode_and_umask(m);
        attributes(m);
        on_existing(m);
        in_a_removed_directory(m);
        if (am_root()) {
            owners(m);
        }
    }
    fifos();
    sockets();
    bad_types();
    about("%s", "");
    NEEDS_ROOT("devices");
    devices();
    working_devices();
}
