/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * libdelay.c - LD_PRELOAD: this process has a slow device
 *
 * VJ_TEST_SYNC_DELAY_MS   every sync (fsync, fdatasync, sync_file_range that waits,
 *                         syncfs, sync, msync with MS_SYNC, and a write through O_SYNC,
 *                         O_DSYNC or RWF_DSYNC) takes so many milliseconds longer
 *
 * VJ_TEST_WRITE_BPS       writes to regular files below VJ_TEST_WRITE_PREFIX pass at so
 *                         many bytes per second, all of the process together, as through
 *                         one device
 *
 * VJ_TEST_WRITE_PREFIX    a directory's absolute path; not set: all regular files
 *
 * VJ_TEST_SYNC_COUNT      a file of little-endian 64-bit words, made if missing, that is
 *                         mapped: a test reads counts there and turns the delay on and
 *                         off (delay.sh).  Words as in struct Control
 *
 * A FUSE daemon's notifications that an inode is to be given up wait as long as the word
 * notices_held says so, as in a kernel that waits for something else.
 *
 * VJ_TEST_READ_BPS        the same of pread(2), through the same device
 *
 * A variable that is set is written into the file when the process starts; one that is
 * not leaves what stands there.  Children inherit all of it.
 *
 * Not seen: io_uring, libaio, sendfile, splice, copy_file_range, stores into mappings,
 * and calls that libc makes inside itself (stdio).
 *
 * No GLib, no sanitizers: this runs in other programs.  It aborts when it is set up
 * wrongly, because a test of a device that is not slow says nothing.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Shared with tests and other processes; every word by itself, without order. */
struct Control {
    _Atomic uint64_t syncs;       /* 0: all that have ended, of the kinds below */
    _Atomic uint64_t fsyncs;      /* 1 */
    _Atomic uint64_t fdatasyncs;  /* 2 */
    _Atomic uint64_t range_syncs; /* 3: sync_file_range that waits */
    _Atomic uint64_t fs_syncs;    /* 4: syncfs, sync */
    _Atomic uint64_t map_syncs;   /* 5: msync */
    _Atomic uint64_t write_syncs; /* 6: writes through O_SYNC, O_DSYNC, RWF_DSYNC */
    _Atomic uint64_t under_way; /* 7: syncs begun and not ended; kill -9 leaves its own */
    _Atomic uint64_t delay_ms;  /* 8 */
    _Atomic uint64_t write_bps; /* 9: 0 is no limit */
    _Atomic uint64_t slow_bytes;     /* 10: written under the limit */
    _Atomic uint64_t files_only;     /* 11: not 0: only fsync and fdatasync are delayed */
    _Atomic uint64_t read_bps;       /* 12: as write_bps */
    _Atomic uint64_t notices_held;   /* 13: not 0: they wait */
    _Atomic uint64_t notices_waited; /* 14: those that had to */
};

#define CONTROL_BYTES 4096
_Static_assert(sizeof(struct Control) == 120, "words of 8 bytes");

static struct Control *control;
static char prefix[PATH_MAX];
static size_t prefix_len;
/* When the slow device has taken all writes so far. */
static _Atomic int64_t device_free_ns;

static struct {
    int (*fsync)(int);
    int (*fdatasync)(int);
    int (*sync_file_range)(int, off64_t, off64_t, unsigned);
    int (*syncfs)(int);
    void (*sync)(void);
    int (*msync)(void *, size_t, int);
    ssize_t (*write)(int, const void *, size_t);
    ssize_t (*writev)(int, const struct iovec *, int);
    ssize_t (*pread64)(int, void *, size_t, off64_t);
    ssize_t (*pwrite64)(int, const void *, size_t, off64_t);
    ssize_t (*pwritev64)(int, const struct iovec *, int, off64_t);
    ssize_t (*pwritev64v2)(int, const struct iovec *, int, off64_t, int);
} real;

/* ---- Setting up -------------------------------------------------------------------- */

static void die(const char *what)
{
    fprintf(stderr, "libdelay: %s: %s\n", what, strerror(errno));
    abort();
}

static void find(void *pointer, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (found == NULL) {
        errno = ENOSYS;
        die(name);
    }
    memcpy(pointer, &found, sizeof found);
}

static void take_number(const char *name, _Atomic uint64_t *word)
{
    const char *text = getenv(name);
    char *end;

    if (text == NULL) {
        return;
    }
    errno = 0;
    *word = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *text == '-') {
        errno = EINVAL;
        die(name);
    }
}

static void map_control(void)
{
    const char *path = getenv("VJ_TEST_SYNC_COUNT");
    int fd = -1;

    if (path != NULL) {
        struct stat st;

        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0 || fstat(fd, &st) != 0 ||
            (st.st_size < CONTROL_BYTES && ftruncate(fd, CONTROL_BYTES) != 0)) {
            die(path);
        }
    }
    control = mmap(NULL, CONTROL_BYTES, PROT_READ | PROT_WRITE,
                   MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
    if (control == MAP_FAILED) {
        die("mmap");
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void set_up_once(void)
{
    const char *path = getenv("VJ_TEST_WRITE_PREFIX");

    find(&real.fsync, "fsync");
    find(&real.fdatasync, "fdatasync");
    find(&real.sync_file_range, "sync_file_range");
    find(&real.syncfs, "syncfs");
    find(&real.sync, "sync");
    find(&real.msync, "msync");
    find(&real.write, "write");
    find(&real.writev, "writev");
    find(&real.pread64, "pread64");
    find(&real.pwrite64, "pwrite64");
    find(&real.pwritev64, "pwritev64");
    find(&real.pwritev64v2, "pwritev64v2");
    errno = EINVAL;
    if (path != NULL && (*path != '/' || realpath(path, prefix) == NULL)) {
        die("VJ_TEST_WRITE_PREFIX");
    }
    prefix_len = strlen(prefix);
    map_control();
    take_number("VJ_TEST_SYNC_DELAY_MS", &control->delay_ms);
    take_number("VJ_TEST_WRITE_BPS", &control->write_bps);
    take_number("VJ_TEST_READ_BPS", &control->read_bps);
}

/* A constructor of another library may call us before our own has run. */
static void set_up(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int saved_errno = errno;

    pthread_once(&once, set_up_once);
    errno = saved_errno;
}

__attribute__((constructor)) static void at_load(void)
{
    set_up();
}

/* ---- The slow device --------------------------------------------------------------- */

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void sleep_until(int64_t when_ns)
{
    struct timespec when = {
        .tv_sec = when_ns / INT64_C(1000000000),
        .tv_nsec = when_ns % INT64_C(1000000000),
    };

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR) {
    }
}

static void begin_sync(const _Atomic uint64_t *kind)
{
    bool of_file = kind == &control->fsyncs || kind == &control->fdatasyncs;

    control->under_way++;
    if (control->delay_ms > 0 && (of_file || control->files_only == 0)) {
        sleep_until(now_ns() + (int64_t)control->delay_ms * 1000000);
    }
}

static void end_sync(_Atomic uint64_t *kind)
{
    (*kind)++;
    control->syncs++;
    control->under_way--;
}

static bool is_slow_file(int fd)
{
    char link[64], path[PATH_MAX];
    struct stat st;
    ssize_t len;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return false;
    }
    if (prefix_len == 0) {
        return true;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    len = readlink(link, path, sizeof path);
    return len > (ssize_t)prefix_len && memcmp(path, prefix, prefix_len) == 0 &&
           path[prefix_len] == '/';
}

/* Until the device is through with it.  All queue up behind device_free_ns. */
static bool wait_for_device(int fd, uint64_t len, uint64_t bytes_per_s)
{
    if (bytes_per_s > 0 && len > 0 && is_slow_file(fd)) {
        int64_t taken_ns = (int64_t)((double)len * 1e9 / (double)bytes_per_s);
        int64_t now = now_ns(), free_ns = device_free_ns, end_ns;

        do {
            end_ns = (free_ns > now ? free_ns : now) + taken_ns;
        } while (!atomic_compare_exchange_weak(&device_free_ns, &free_ns, end_ns));
        sleep_until(end_ns);
        return true;
    }
    return false;
}

/* Before a write: waits.  Returns whether the write is also a sync. */
static bool begin_write(int fd, uint64_t len, int flags)
{
    int saved_errno = errno, status;
    bool is_sync;

    set_up();
    if (wait_for_device(fd, len, control->write_bps)) {
        control->slow_bytes += len;
    }
    status = fcntl(fd, F_GETFL);
    is_sync =
        (status >= 0 && (status & O_DSYNC) != 0) || (flags & (RWF_DSYNC | RWF_SYNC)) != 0;
    if (is_sync) {
        set_up();
        begin_sync(&control->write_syncs);
    }
    errno = saved_errno;
    return is_sync;
}

static uint64_t iov_bytes(const struct iovec *iov, int iov_count)
{
    uint64_t bytes = 0;

    for (int i = 0; i < iov_count; i++) {
        bytes += iov[i].iov_len;
    }
    return bytes;
}

/* ---- The calls --------------------------------------------------------------------- */

int fsync(int fd)
{
    int ret;

    set_up();
    begin_sync(&control->fsyncs);
    ret = real.fsync(fd);
    end_sync(&control->fsyncs);
    return ret;
}

int fdatasync(int fd)
{
    int ret;

    set_up();
    begin_sync(&control->fdatasyncs);
    ret = real.fdatasync(fd);
    end_sync(&control->fdatasyncs);
    return ret;
}

int sync_file_range(int fd, off64_t offset, off64_t len, unsigned flags)
{
    int ret;

    set_up();
    if ((flags & (SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER)) == 0) {
        return real.sync_file_range(fd, offset, len, flags); /* only begins it */
    }
    begin_sync(&control->range_syncs);
    ret = real.sync_file_range(fd, offset, len, flags);
    end_sync(&control->range_syncs);
    return ret;
}

int syncfs(int fd)
{
    int ret;

    set_up();
    begin_sync(&control->fs_syncs);
    ret = real.syncfs(fd);
    end_sync(&control->fs_syncs);
    return ret;
}

void sync(void)
{
    set_up();
    begin_sync(&control->fs_syncs);
    real.sync();
    end_sync(&control->fs_syncs);
}

int msync(void *start, size_t len, int flags)
{
    int ret;

    set_up();
    if ((flags & MS_SYNC) == 0) {
        return real.msync(start, len, flags);
    }
    set_up();
    begin_sync(&control->map_syncs);
    ret = real.msync(start, len, flags);
    end_sync(&control->map_syncs);
    return ret;
}

#define WRITE_THROUGH(fd, len, flags, call)                                              \
    bool is_sync = begin_write(fd, len, flags);                                          \
    ssize_t ret = (call);                                                                \
                                                                                         \
    if (is_sync) {                                                                       \
        end_sync(&control->write_syncs);                                                 \
    }                                                                                    \
    return ret

ssize_t write(int fd, const void *src, size_t len)
{
    WRITE_THROUGH(fd, len, 0, real.write(fd, src, len));
}

/* Of /dev/fuse: the header of an answer to no request, with what it is about. */
static bool is_notice(const struct iovec *iov, int iov_count)
{
    struct fuse_out_header head;

    if (iov_count == 0 || iov[0].iov_len != sizeof head) {
        return false;
    }
    memcpy(&head, iov[0].iov_base, sizeof head);
    return head.unique == 0 && head.error == FUSE_NOTIFY_INVAL_INODE;
}

/* A shell lets it go on by writing to the file, which wakes nobody: so it looks there. */
static void hold_notice(void)
{
    if (control->notices_held != 0) {
        control->notices_waited++;
        while (control->notices_held != 0) {
            usleep(10000);
        }
    }
}

ssize_t writev(int fd, const struct iovec *iov, int iov_count)
{
    if (is_notice(iov, iov_count)) {
        hold_notice();
    }
    WRITE_THROUGH(fd, iov_bytes(iov, iov_count), 0, real.writev(fd, iov, iov_count));
}

ssize_t pread64(int fd, void *dst, size_t len, off64_t offset)
{
    int saved_errno = errno;

    set_up();
    (void)wait_for_device(fd, len, control->read_bps);
    errno = saved_errno;
    return real.pread64(fd, dst, len, offset);
}

ssize_t pread(int fd, void *dst, size_t len, off_t offset)
{
    return pread64(fd, dst, len, offset);
}

ssize_t pwrite64(int fd, const void *src, size_t len, off64_t offset)
{
    WRITE_THROUGH(fd, len, 0, real.pwrite64(fd, src, len, offset));
}

ssize_t pwritev64(int fd, const struct iovec *iov, int iov_count, off64_t offset)
{
    WRITE_THROUGH(fd, iov_bytes(iov, iov_count), 0,
                  real.pwritev64(fd, iov, iov_count, offset));
}

ssize_t pwritev64v2(int fd, const struct iovec *iov, int iov_count, off64_t offset,
                    int flags)
{
    WRITE_THROUGH(fd, iov_bytes(iov, iov_count), flags,
                  real.pwritev64v2(fd, iov, iov_count, offset, flags));
}

/* The names that programs without _FILE_OFFSET_BITS=64 use. */
ssize_t pwrite(int fd, const void *src, size_t len, off_t offset)
{
    return pwrite64(fd, src, len, offset);
}

ssize_t pwritev(int fd, const struct iovec *iov, int iov_count, off_t offset)
{
    return pwritev64(fd, iov, iov_count, offset);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int iov_count, off_t offset, int flags)
{
    return pwritev64v2(fd, iov, iov_count, offset, flags);
}
