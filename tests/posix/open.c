/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* open.c - open and openat: flags, types, errors; what O_PATH, O_TMPFILE and O_APPEND
 * mean */
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static int closed(int fd)
{
    return fd < 0 ? -1 : close(fd);
}

static int fd_for(const char *n, int flags)
{
    return (int)MUST(open(n, flags, 0600));
}

/* Each type with each set of flags. */
static int kind_error(Kind k, int flags)
{
    int mode = flags & O_ACCMODE;

    if (k == SYMLINK) {
        return flags & O_CREAT && flags & O_EXCL ? EEXIST
               : flags & O_NOFOLLOW && !(flags & O_PATH)
                   ? (flags & O_DIRECTORY ? ENOTDIR : ELOOP)
               : flags & O_NOFOLLOW ? (flags & O_DIRECTORY ? ENOTDIR : 0)
                                    : ENOENT;
    }
    if (flags & O_PATH) {
        return (flags & O_DIRECTORY) && k != DIRECTORY ? ENOTDIR : 0;
    }
    if ((flags & O_CREAT) && (flags & O_EXCL)) {
        return EEXIST;
    }
    if (k == DIRECTORY) {
        return mode != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) ? EISDIR : 0;
    }
    if (flags & O_DIRECTORY) {
        return ENOTDIR;
    }
    return k == SOCKET ? ENXIO : 0;
}

static void types_and_flags(void)
{
    static const struct {
        const char *name;
        int flags;
    } sets[] = {
        {"O_RDONLY", O_RDONLY},
        {"O_WRONLY", O_WRONLY},
        {"O_RDWR", O_RDWR},
        {"O_RDONLY|O_DIRECTORY", O_RDONLY | O_DIRECTORY},
        {"O_WRONLY|O_DIRECTORY", O_WRONLY | O_DIRECTORY},
        {"O_RDONLY|O_NOFOLLOW", O_RDONLY | O_NOFOLLOW},
        {"O_RDONLY|O_NOFOLLOW|O_DIRECTORY", O_RDONLY | O_NOFOLLOW | O_DIRECTORY},
        {"O_PATH", O_PATH},
        {"O_PATH|O_NOFOLLOW", O_PATH | O_NOFOLLOW},
        {"O_PATH|O_DIRECTORY", O_PATH | O_DIRECTORY},
        {"O_RDONLY|O_TRUNC", O_RDONLY | O_TRUNC},
        {"O_WRONLY|O_TRUNC", O_WRONLY | O_TRUNC},
        {"O_WRONLY|O_APPEND", O_WRONLY | O_APPEND},
        {"O_RDWR|O_SYNC", O_RDWR | O_SYNC},
        {"O_RDWR|O_DSYNC", O_RDWR | O_DSYNC},
        {"O_RDWR|O_NOATIME", O_RDWR | O_NOATIME},
        {"O_RDONLY|O_CLOEXEC", O_RDONLY | O_CLOEXEC},
        {"O_WRONLY|O_CREAT|O_EXCL", O_WRONLY | O_CREAT | O_EXCL},
        {"O_RDONLY|O_CREAT|O_EXCL", O_RDONLY | O_CREAT | O_EXCL},
        {"O_RDONLY|O_CREAT|O_NOFOLLOW", O_RDONLY | O_CREAT | O_NOFOLLOW},
    };

    EACH_KIND(k)
    {
        for (size_t i = 0; k != CHARDEV && k != BLOCKDEV && i < COUNT(sets); i++) {
            const char *n = made(k, 0600);
            int flags = sets[i].flags, error = kind_error(k, flags), fd;

            if (k == FIFO && (flags & O_ACCMODE) == O_WRONLY && error == 0) {
                error = ENXIO; /* nobody reads */
            }
            if (k == DIRECTORY && (flags & O_DIRECTORY) &&
                (flags & O_ACCMODE) != O_RDONLY) {
                error = EISDIR;
            }
            about("%s of a %s", sets[i].name, kind_names[k]);
            fd = (int)WANT(error,
                           open(n, flags | (flags & O_PATH ? 0 : O_NONBLOCK), 0600));
            if (fd >= 0) {
                EQ(kind_modes[k], fstat_of(fd).st_mode & S_IFMT);
                EQ(stat_of(n).st_ino, fstat_of(fd).st_ino);
                EQ((flags & O_CLOEXEC) ? FD_CLOEXEC : 0, fcntl(fd, F_GETFD));
                if (!(flags & O_PATH)) {
                    EQ(flags & O_ACCMODE, fcntl(fd, F_GETFL) & O_ACCMODE);
                    EQ(flags & (O_APPEND | O_SYNC | O_NOATIME),
                       fcntl(fd, F_GETFL) & (O_APPEND | O_SYNC | O_NOATIME));
                }
                close(fd);
            }
            MUST(gone(k, n));
        }
    }
}

/* What a descriptor may be used for. */
static void access_modes(void)
{
    const char *n = made(REGULAR, 0600);
    int r = fd_for(n, O_RDONLY), w = fd_for(n, O_WRONLY);
    char text[8] = "text";
    struct iovec iov = {text, 4};

    about("a descriptor for writing");
    EQ(4, write(w, text, 4));
    WANT(EBADF, read(w, text, 1));
    WANT(EBADF, pread(w, text, 1, 0));
    WANT(EBADF, readv(w, &iov, 1));
    WANT(EACCES, (long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, w, 0));
    about("a descriptor for reading");
    EQ(4, read(r, text, 8));
    WANT(EBADF, write(r, text, 1));
    WANT(EBADF, pwrite(r, text, 1, 0));
    WANT(EBADF, writev(r, &iov, 1));
    WANT(EINVAL, ftruncate(r, 1));
    WANT(EBADF, fallocate(r, 0, 0, 1));
    WANT(EACCES, (long)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r, 0));
    OK(fsync(r));
    OK(fdatasync(r));
    about("reads and writes");
    WANT(EINVAL, pread(r, text, 1, -1));
    WANT(EINVAL, pwrite(w, text, 1, -1));
    EQ(0, pread(r, text, 1, 4));
    EQ(0, pread(r, text, 1, 1 << 20));
    EQ(0, read(r, text, 1));
    EQ(0, write(w, text, 0));
    WANT(EFAULT, syscall(SYS_pread64, r, (void *)1, 4, 0));
    WANT(EFAULT, syscall(SYS_pwrite64, w, (void *)1, 4, 0));
    WANT(EINVAL, lseek(r, -1, SEEK_SET));
    WANT(EINVAL, lseek(r, -5, SEEK_END));
    WANT(EINVAL, lseek(r, 0, 99));
    EQ(4, lseek(r, 0, SEEK_END));
    EQ(1000, lseek(r, 1000, SEEK_SET));
    EQ(0, read(r, text, 1));
    close(r);
    close(w);
    WANT(EBADF, read(r, text, 1));
    WANT(EBADF, fsync(r));
}

static void on_directories(void)
{
    const char *dir = made(DIRECTORY, 0700);
    int fd = fd_for(dir, O_RDONLY);
    char text[8];

    about("a descriptor of a directory");
    WANT(EISDIR, read(fd, text, 1));
    WANT(EISDIR, pread(fd, text, 1, 0));
    WANT(EBADF, write(fd, text, 1));
    WANT(EINVAL, ftruncate(fd, 0));
    WANT(EISDIR, truncate(dir, 0));
    OK(fsync(fd));
    OK(fdatasync(fd));
    OK(fchmod(fd, 0755));
    OK(fchdir(fd));
    MUST(chdir(".."));
    close(fd);
}

static void places(void)
{
    const char *n = made(REGULAR, 0600), *dir = made(DIRECTORY, 0700);
    int fd = fd_for(n, O_PATH), in = fd_for(dir, O_PATH | O_DIRECTORY), again;
    char text[8];

    MUST(spew(n, "text"));
    about("O_PATH");
    WANT(EBADF, read(fd, text, 1));
    WANT(EBADF, write(fd, text, 1));
    WANT(EBADF, ftruncate(fd, 0));
    WANT(EBADF, fchmod(fd, 0600));
    WANT(EBADF, fchown(fd, (uid_t)-1, (gid_t)-1));
    WANT(EBADF, fsync(fd));
    WANT(EBADF, ioctl(fd, FIONREAD, text));
    WANT(EBADF, (long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
    EQ(O_PATH, fcntl(fd, F_GETFL) & O_PATH);
    EQ(4, fstat_of(fd).st_size);
    again = (int)OK(open(path("/proc/self/fd/%d", fd), O_RDONLY));
    EQ(4, read(again, text, 8));
    close(again);
    again = (int)OK(openat(in, "new", O_CREAT | O_RDWR, 0600));
    close(again);
    OK(fchdir(in));
    MUST(chdir(".."));
    MUST(unlink(path("%s/new", dir)));
    MUST(unlink(n));
    EQ(0, fstat_of(fd).st_nlink);
    MUST(chmod(dir, 0));
    WANT(am_root() ? ENOENT : EACCES, openat(in, "missing", O_RDONLY));
    MUST(chmod(dir, 0700));
    close(fd);
    close(in);
}

static void creating(void)
{
    const char *n = fresh(), *target = fresh(), *s = fresh();
    int fd;

    about("O_CREAT");
    fd = (int)OK(open(n, O_CREAT | O_RDWR, 0));
    EQ(4, write(fd, "text", 4)); /* the mode counts for later opens alone */
    close(fd);
    if (!am_root()) {
        WANT(EACCES, open(n, O_RDWR));
        WANT(EACCES, open(n, O_CREAT | O_RDWR, 0600));
    }
    MUST(chmod(n, 0600));
    fd = (int)OK(open(n, O_CREAT | O_RDWR, 0777));
    EQ(0600, mode_of(n));
    EQ(4, fstat_of(fd).st_size);
    close(fd);
    fd = (int)OK(open(n, O_CREAT | O_RDWR | O_TRUNC, 0777));
    EQ(0, fstat_of(fd).st_size);
    close(fd);
    about("O_CREAT through a symlink");
    MUST(symlink(target, s));
    WANT(EEXIST, open(s, O_CREAT | O_EXCL | O_RDWR, 0600));
    WANT(ELOOP, open(s, O_CREAT | O_NOFOLLOW | O_RDWR, 0600));
    IS_TRUE(!exists(target));
    OK(closed(open(s, O_CREAT | O_RDWR, 0640)));
    EQ(0640, mode_of(target));
    MUST(unlink(s));
    MUST(symlink("missing/x", s));
    WANT(ENOENT, open(s, O_CREAT | O_RDWR, 0600));
    about("O_CREAT|O_DIRECTORY");
    WANT(EINVAL, open(fresh(), O_CREAT | O_DIRECTORY, 0700));
}

static void truncating(void)
{
    const char *n = made(REGULAR, 0600);
    struct stat then;
    int fd = fd_for(n, O_RDWR);
    char text[8];

    MUST(spew(n, "some text"));
    then = before(n);
    about("O_TRUNC");
    OK(closed(open(n, O_WRONLY | O_TRUNC)));
    EQ(0, fstat_of(fd).st_size);
    EQ(0, pread(fd, text, 8, 0));
    MC_TIMES(then, n, TIME_M | TIME_C);
    then = before(n);
    about("O_TRUNC of an empty file");
    OK(closed(open(n, O_WRONLY | O_TRUNC)));
    MC_TIMES(then, n, TIME_M | TIME_C);
    EQ(4, pwrite(fd, "text", 4, 0));
    then = before(n);
    about("open without O_TRUNC");
    OK(closed(open(n, O_RDWR)));
    OK(closed(open(n, O_RDWR | O_CREAT, 0600)));
    MC_TIMES(then, n, 0);
    EQ(4, fstat_of(fd).st_size);
    close(fd);
}

static void appending(void)
{
    const char *n = made(REGULAR, 0600);
    int a = fd_for(n, O_WRONLY | O_APPEND), b = fd_for(n, O_RDWR);

    about("O_APPEND");
    EQ(3, write(a, "one", 3));
    EQ(3, write(b, "ONE", 3));
    EQ(3, write(a, "two", 3));
    IS_TRUE(holds(n, "ONEtwo"));
    EQ(0, lseek(a, 0, SEEK_SET));
    EQ(5, write(a, "three", 5));
    EQ(11, lseek(a, 0, SEEK_CUR));
    IS_TRUE(holds(n, "ONEtwothree"));
    EQ(4, pwrite(a, "four", 4, 0)); /* BUGS of pwrite(2): it appends */
    IS_TRUE(holds(n, "ONEtwothreefour"));
    OK(ftruncate(b, 3));
    EQ(1, write(a, "!", 1));
    IS_TRUE(holds(n, "ONE!"));
    OK(fcntl(b, F_SETFL, O_APPEND));
    EQ(0, lseek(b, 0, SEEK_SET));
    EQ(1, write(b, "?", 1));
    IS_TRUE(holds(n, "ONE!?"));
    OK(fcntl(b, F_SETFL, 0));
    EQ(1, pwrite(b, "o", 1, 0));
    IS_TRUE(holds(n, "oNE!?"));
    close(a);
    close(b);
}

/* Each record of each process is there once and whole. */
static void appending_together(void)
{
    enum { PROCESSES = 4, RECORDS = 400, BYTES = 37 };
    const char *n = made(REGULAR, 0600);
    unsigned seen[PROCESSES] = {0};
    char record[BYTES + 1];
    int fd, started[2];
    bool whole = true;

    about("O_APPEND from %d processes", PROCESSES);
    CHILD
    {
        MUST(pipe(started));
        for (int p = 0; p < PROCESSES; p++) {
            if (fork() == 0) {
                int out = open(n, O_WRONLY | O_APPEND);

                close(started[1]);
                memset(record, 'a' + p, BYTES);
                if (read(started[0], record + BYTES, 1) != 0) {
                    _exit(1);
                }
                for (int i = 0; i < RECORDS; i++) {
                    if (write(out, record, BYTES) != BYTES) {
                        _exit(1);
                    }
                }
                _exit(close(out));
            }
        }
        close(started[1]); /* all begin */
        for (int p = 0; p < PROCESSES; p++) {
            EQ(0, wait_for_child());
        }
    }
    EQ(PROCESSES * RECORDS * BYTES, stat_of(n).st_size);
    fd = fd_for(n, O_RDONLY);
    while (read(fd, record, BYTES) == BYTES) {
        for (int i = 1; i < BYTES; i++) {
            whole = whole && record[i] == record[0];
        }
        if (record[0] >= 'a' && record[0] < 'a' + PROCESSES) {
            seen[record[0] - 'a']++;
        }
    }
    close(fd);
    IS_TRUE(whole);
    for (int p = 0; p < PROCESSES; p++) {
        EQ(RECORDS, seen[p]);
    }
}

static void descriptors(void)
{
    const char *n = made(REGULAR, 0600), *dir = made(DIRECTORY, 0700);
    int fd = fd_for(n, O_RDONLY), in = fd_for(dir, O_RDONLY);

    about("openat");
    OK(closed(openat(in, "x", O_CREAT | O_WRONLY, 0600)));
    OK(closed(openat(in, path("../%s", n), O_RDONLY)));
    WANT(EBADF, openat(-1, "x", O_RDONLY));
    WANT(ENOTDIR, openat(fd, "x", O_RDONLY));
    OK(closed(openat(-1, "/", O_RDONLY | O_DIRECTORY)));
    WANT(ENOENT, openat(in, "", O_RDONLY));
    WANT(EFAULT, syscall(SYS_openat, AT_FDCWD, (void *)1, O_RDONLY, 0));
    MUST(unlink(path("%s/x", dir)));
    about("many descriptors of one file");
    for (int i = 0; i < 200; i++) {
        MUST(open(n, O_RDWR)); /* the process ends soon */
    }
    EQ(1, stat_of(n).st_nlink);
    close(fd);
    close(in);
}

static void fsyncs(void)
{
    static const int flags[] = {0, O_SYNC, O_DSYNC, O_APPEND | O_SYNC, O_DIRECT};

    for (size_t i = 0; i < COUNT(flags); i++) {
        const char *n = made(REGULAR, 0600);
        void *bytes = NULL;
        int fd;

        MUST(posix_memalign(&bytes, 4096, 8192));
        memset(bytes, 'x', 8192);
        about("flags 0%o", flags[i]);
        fd = (int)OK(open(n, O_RDWR | flags[i]));
        EQ(4096, write(fd, bytes, 4096));
        OK(fsync(fd));
        EQ(4096, write(fd, bytes, 4096));
        OK(fdatasync(fd));
        EQ(8192, pread(fd, bytes, 8192, 0));
        EQ(8192, fstat_of(fd).st_size);
        close(fd);
        free(bytes);
    }
    about("syncs of what is no file");
    MUST(make(FIFO, "pipe", 0600));
    WANT(EINVAL, fsync(fd_for("pipe", O_RDWR)));
}

TOPIC(open)
{
    types_and_flags();
    access_modes();
    on_directories();
    places();
    creating();
    truncating();
    appending();
    appending_together();
    descriptors();
    fsyncs();
}
