/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * record.c - LD_PRELOAD: each call of this process that changes a directory tree goes to
 * a log
 *
 * VJ_RECORD_LOG     the log (record.h), appended to
 * VJ_RECORD_BELOW   the directory whose tree is recorded
 * VJ_RECORD_FAIL    N: one of N writes of LMDB's meta page and syncs of its file fails
 *                   with EIO, in turn a write that is not made, one that is made and
 *                   whose sync fails, a sync N:store: one of N syncs of anything else
 *                   fails
 *
 * What makes the log whole:
 *
 * - A change and its record are made under one mutex, so that their order is the same.  A
 *   sync is two records, when it begins and when it has returned, without the mutex: what
 *   it covers was made before the first.
 * - All system calls of this library are made by one instruction at a fixed address, and
 *   a seccomp filter traps those that can change files and come from anywhere else
 *   (libc's own, another library's).  The trap makes the call if it does not touch the
 *   tree, and ends the process with a message if it does: a call that this library does
 *   not know is never unseen.  io_uring and shared writable mappings of files in the
 *   tree end it too; libaio is done here, as calls of this library.
 *
 * No GLib, no sanitizers: this runs in other programs.  x86-64 alone.
 */
#include "record.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the recorder's filter is written for x86-64"
#endif

/* Below everything that a program or a sanitizer maps; the same in each process, because
 * a filter is inherited. */
#define STUB_ADDRESS 0x10000000ul
#define STUB_AFTER_SYSCALL (STUB_ADDRESS + 25)

/* long stub(long number, long a, long b, long c, long d, long e, long f) */
static const unsigned char stub_code[] = {
    0x48, 0x89, 0xf8,             /* mov %rdi,%rax */
    0x48, 0x89, 0xf7,             /* mov %rsi,%rdi */
    0x48, 0x89, 0xd6,             /* mov %rdx,%rsi */
    0x48, 0x89, 0xca,             /* mov %rcx,%rdx */
    0x4d, 0x89, 0xc2,             /* mov %r8,%r10 */
    0x4d, 0x89, 0xc8,             /* mov %r9,%r8 */
    0x4c, 0x8b, 0x4c, 0x24, 0x08, /* mov 8(%rsp),%r9 */
    0x0f, 0x05,                   /* syscall */
    0xc3,                         /* ret */
};

typedef long Stub(long number, long a, long b, long c, long d, long e, long f);
#define stub ((Stub *)STUB_ADDRESS)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static char below[PATH_MAX];
static size_t below_len;
static dev_t below_dev;
static _Atomic uint64_t numbers;
static bool is_on;
static bool has_stub;

static void map_stub(void);

/* ---- calls ------------------------------------------------------------------------- */

static long call(long number, long a, long b, long c, long d, long e, long f)
{
    long r;

    /* Constructors of other libraries may come before ours; they run one after
     * another. */
    if (!has_stub) {
        map_stub();
    }
    r = stub(number, a, b, c, d, e, f);
    if (r < 0 && r > -4096) {
        errno = (int)-r;
        return -1;
    }
    return r;
}

#define CALL(number, ...) CALL_(number, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define CALL_(number, a, b, c, d, e, f, ...)                                             \
    call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static void die(const char *what, const char *of)
{
    char text[PATH_MAX + 200];
    int len = snprintf(text, sizeof text, "librecord: %s: %s\n", what, of);

    (void)stub(SYS_write, 2, (long)text, len < (int)sizeof text ? len : (int)sizeof text,
               0, 0, 0);
    abort();
}

/* ---- what lies below --------------------------------------------------------------- */

static bool path_is_below(const char *path)
{
    return strncmp(path, below, below_len) == 0 &&
           (path[below_len] == '/' || path[below_len] == '\0');
}

static bool fd_path(int fd, char *path)
{
    char link[64];
    ssize_t len;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    len = readlink(link, path, PATH_MAX - 1);
    if (len < 0) {
        return false;
    }
    path[len] = '\0';
    return true;
}

/*
 * What is known of inode numbers of the device, so that not each write asks for a path.
 * An inode that was looked at stays on its side: names are moved neither in nor out
 * (rename dies).
 */
typedef struct Known {
    uint64_t ino;
    bool is_below;
} Known;

#define KNOWN_SLOTS (1u << 16)
static Known known[KNOWN_SLOTS];

/* With the mutex held. */
static bool fd_is_below(int fd, uint64_t *ino)
{
    Known *slot;
    char path[PATH_MAX];
    struct stat st;
    int saved_errno = errno;

    if (!is_on || fstat(fd, &st) != 0 || st.st_dev != below_dev ||
        !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
        errno = saved_errno;
        return false;
    }
    *ino = st.st_ino;
    slot = &known[st.st_ino * 0x9e3779b97f4a7c15u >> 48];
    if (slot->ino != st.st_ino) {
        *slot = (Known){st.st_ino, fd_path(fd, path) && path_is_below(path)};
    }
    errno = saved_errno;
    return slot->is_below;
}

/* ---- the log ----------------------------------------------------------------------- */

static void append(VjRecordHead *head, const char *name, const char *name2,
                   const struct iovec *data, int data_count)
{
    struct iovec iov[IOV_MAX];
    uint64_t bytes = sizeof *head;
    int count = 3, saved_errno = errno;
    long wrote;

    head->magic = VJ_RECORD_MAGIC;
    head->pid = (uint32_t)getpid();
    head->name_bytes = name == NULL ? 0 : (uint16_t)strlen(name);
    head->name2_bytes = name2 == NULL ? 0 : (uint16_t)strlen(name2);
    head->data_bytes = 0;
    iov[0] = (struct iovec){head, sizeof *head};
    iov[1] = (struct iovec){(void *)(uintptr_t)name, head->name_bytes};
    iov[2] = (struct iovec){(void *)(uintptr_t)name2, head->name2_bytes};
    for (int i = 0; i < data_count; i++) {
        if (count == IOV_MAX) {
            die("a write of too many parts", below);
        }
        head->data_bytes += data[i].iov_len;
        iov[count++] = data[i];
    }
    bytes += head->name_bytes + head->name2_bytes + head->data_bytes;
    do {
        wrote = CALL(SYS_writev, log_fd, iov, count);
    } while (wrote < 0 && errno == EINTR);
    if (wrote != (long)bytes) {
        die("the log", wrote < 0 ? strerror(errno) : "a short write");
    }
    errno = saved_errno;
}

static void record(VjRecordHead head, const char *name, const char *name2)
{
    append(&head, name, name2, NULL, 0);
}

/* ---- a device that fails ----------------------------------------------------------- */

#define META_PAGES_END 8192

enum Fault { FAULT_NONE, FAULT_LOST, FAULT_IN_DOUBT, FAULT_SYNC };

static unsigned fail_every, fail_calls, fail_due;
static bool fail_store;

static bool is_named(int fd, const char *name)
{
    char path[PATH_MAX];
    const char *slash = fd_path(fd, path) ? strrchr(path, '/') : NULL;

    return slash != NULL && strcmp(slash + 1, name) == 0;
}

static void record_fault(const char *text)
{
    struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};
    VjRecordHead head = {.kind = VJ_RECORD_MARK};

    append(&head, NULL, NULL, &iov, 1);
}

/* With the mutex held, of a call on a file below: what becomes of it. */
static enum Fault choose_fault(int fd, bool is_sync, off_t offset)
{
    static const char *const texts[] = {"", "!fault: metadata are not written",
                                        "!fault: metadata are in doubt",
                                        "!fault: a sync fails"};
    enum Fault due;
    bool is_log;

    if (fail_store && is_sync && !is_named(fd, "data.mdb") && !is_named(fd, "redo.log") &&
        ++fail_calls == fail_every) {
        fail_calls = 0;
        record_fault(texts[FAULT_SYNC]);
        return FAULT_SYNC;
    }
    is_log = is_named(fd, "redo.log");
    if (fail_every == 0 || fail_store || (!is_log && !is_named(fd, "data.mdb")) ||
        (!is_sync && !is_log &&
         (offset < 0 || offset >= META_PAGES_END ||
          (fcntl(fd, F_GETFL) & O_DSYNC) == 0))) {
        return FAULT_NONE;
    }
    fail_calls++;
    due = (enum Fault)(FAULT_LOST + fail_due % FAULT_SYNC);
    if (fail_calls < fail_every || is_sync != (due == FAULT_SYNC)) {
        return FAULT_NONE;
    }
    fail_calls = 0;
    fail_due++;
    record_fault(texts[due]);
    return due;
}

/* ---- writes ------------------------------------------------------------------------ */

/* The first @len bytes of @iov. */
static int cut_iov(const struct iovec *iov, int count, uint64_t len, struct iovec *out)
{
    int n = 0;

    for (int i = 0; i < count && len > 0; i++) {
        uint64_t part = iov[i].iov_len < len ? iov[i].iov_len : len;

        if (n == IOV_MAX - 3) {
            die("a write of too many parts", below);
        }
        out[n++] = (struct iovec){iov[i].iov_base, part};
        len -= part;
    }
    return n;
}

/* @r bytes of @iov were written at @offset, or at the descriptor's own (-1). */
static void record_write(int fd, uint64_t ino, const struct iovec *iov, int count,
                         off_t offset, int flags, long r, bool in_doubt)
{
    struct iovec parts[IOV_MAX];
    VjRecordHead head = {.kind = VJ_RECORD_WRITE, .ino = ino};
    int status = fcntl(fd, F_GETFL), n = cut_iov(iov, count, (uint64_t)r, parts);

    if (offset < 0 || (status & O_APPEND) != 0) {
        off_t end = lseek(fd, 0, SEEK_CUR);

        if (offset >= 0 || end < r) {
            die("a write whose offset is not known", below);
        }
        offset = end - r;
    }
    head.offset = (uint64_t)offset;
    head.length = (uint64_t)r;
    /* O_SYNC holds O_DSYNC. */
    head.dsync =
        !in_doubt && ((status & O_DSYNC) != 0 || (flags & (RWF_DSYNC | RWF_SYNC)) != 0);
    head.number = head.dsync ? ++numbers : 0;
    append(&head, NULL, NULL, parts, n);
    if (head.dsync) {
        head.kind = VJ_RECORD_DURABLE;
        append(&head, NULL, NULL, NULL, 0);
    }
}

static ssize_t do_write(long number, int fd, const void *a, long b, off_t offset,
                        const struct iovec *iov, int count, int flags)
{
    enum Fault fault;
    uint64_t ino;
    long r = -1;

    pthread_mutex_lock(&mutex);
    if (!fd_is_below(fd, &ino)) {
        pthread_mutex_unlock(&mutex);
        return CALL(number, fd, a, b, offset, 0, flags);
    }
    fault = choose_fault(fd, false, offset);
    if (fault != FAULT_LOST) {
        r = CALL(number, fd, a, b, offset, 0, flags);
    }
    if (r > 0) {
        int saved_errno = errno;

        record_write(fd, ino, iov, count, offset, flags, r, fault == FAULT_IN_DOUBT);
        errno = saved_errno;
    }
    pthread_mutex_unlock(&mutex);
    if (fault != FAULT_NONE) {
        errno = EIO;
        return -1;
    }
    return r;
}

ssize_t write(int fd, const void *src, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)src, len};

    return do_write(SYS_write, fd, src, (long)len, -1, &iov, 1, 0);
}

ssize_t pwrite64(int fd, const void *src, size_t len, off64_t offset)
{
    struct iovec iov = {(void *)(uintptr_t)src, len};

    return do_write(SYS_pwrite64, fd, src, (long)len, offset, &iov, 1, 0);
}

ssize_t writev(int fd, const struct iovec *iov, int count)
{
    return do_write(SYS_writev, fd, iov, count, -1, iov, count, 0);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int count, off64_t offset)
{
    return do_write(SYS_pwritev, fd, iov, count, offset, iov, count, 0);
}

ssize_t pwritev64v2(int fd, const struct iovec *iov, int count, off64_t offset, int flags)
{
    return do_write(SYS_pwritev2, fd, iov, count, offset, iov, count, flags);
}

ssize_t pwrite(int fd, const void *src, size_t len, off_t offset)
{
    return pwrite64(fd, src, len, offset);
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
    return pwritev64(fd, iov, count, offset);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    return pwritev64v2(fd, iov, count, offset, flags);
}

int ftruncate64(int fd, off64_t size)
{
    uint64_t ino;
    bool is_below;
    long r;

    pthread_mutex_lock(&mutex);
    is_below = fd_is_below(fd, &ino);
    r = CALL(SYS_ftruncate, fd, size);
    if (is_below && r == 0) {
        record((VjRecordHead){.kind = VJ_RECORD_TRUNCATE,
                              .ino = ino,
                              .offset = (uint64_t)size},
               NULL, NULL);
    }
    pthread_mutex_unlock(&mutex);
    return (int)r;
}

int ftruncate(int fd, off_t size)
{
    return ftruncate64(fd, size);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t len)
{
    uint64_t ino;
    bool is_below;
    long r;

    pthread_mutex_lock(&mutex);
    is_below = fd_is_below(fd, &ino);
    r = CALL(SYS_fallocate, fd, mode, offset, len);
    if (is_below && r == 0) {
        record((VjRecordHead){.kind = VJ_RECORD_ALLOCATE,
                              .ino = ino,
                              .mode = (uint16_t)mode,
                              .offset = (uint64_t)offset,
                              .length = (uint64_t)len},
               NULL, NULL);
    }
    pthread_mutex_unlock(&mutex);
    return (int)r;
}

int fallocate(int fd, int mode, off_t offset, off_t len)
{
    return fallocate64(fd, mode, offset, len);
}

/* ---- libaio ------------------------------------------------------------------------ */

/*
 * Writes that are submitted are made, and recorded, when somebody waits for them, not
 * before: nothing that a driver does meanwhile may count on them.
 */
#define SUBMITTED_MAX 256u

static pthread_mutex_t submitted_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t submitted_changed = PTHREAD_COND_INITIALIZER;
static struct iocb *submitted[SUBMITTED_MAX];
static long submitted_count;

int io_setup(int most, void **context);
int io_destroy(void *context);
int io_submit(void *context, long count, struct iocb **requests);
int io_getevents(void *context, long least, long most, struct io_event *events,
                 struct timespec *timeout);

int io_setup(int most, void **context)
{
    *context = submitted;
    return most > (int)SUBMITTED_MAX ? -EAGAIN : 0;
}

int io_destroy(void *context)
{
    (void)context;
    return 0;
}

int io_submit(void *context, long count, struct iocb **requests)
{
    long taken = 0;

    (void)context;
    pthread_mutex_lock(&submitted_mutex);
    for (; taken < count && submitted_count < (long)SUBMITTED_MAX; taken++) {
        struct iocb *copy = malloc(sizeof *copy);

        if (copy == NULL || requests[taken]->aio_lio_opcode != IOCB_CMD_PWRITE) {
            die("libaio", "a request that is not recorded");
        }
        *copy = *requests[taken];
        submitted[submitted_count++] = copy;
    }
    pthread_cond_broadcast(&submitted_changed);
    pthread_mutex_unlock(&submitted_mutex);
    return taken > 0 ? (int)taken : -EAGAIN;
}

/* The last one: their order is nobody's promise. */
static struct iocb *take_submitted(void)
{
    struct iocb *request;

    pthread_mutex_lock(&submitted_mutex);
    while (submitted_count == 0) {
        pthread_cond_wait(&submitted_changed, &submitted_mutex);
    }
    request = submitted[--submitted_count];
    pthread_mutex_unlock(&submitted_mutex);
    return request;
}

int io_getevents(void *context, long least, long most, struct io_event *events,
                 struct timespec *timeout)
{
    (void)context;
    (void)timeout;
    for (long i = 0; i < least && i < most; i++) {
        struct iocb *request = take_submitted();
        ssize_t r = pwrite((int)request->aio_fildes, (const void *)request->aio_buf,
                           request->aio_nbytes, request->aio_offset);

        events[i] =
            (struct io_event){.data = request->aio_data, .res = r >= 0 ? r : -errno};
        free(request);
    }
    return (int)least;
}

/* ---- syncs ------------------------------------------------------------------------- */

static int do_sync(long number, int fd, uint8_t kind, long a, long b, long c)
{
    VjRecordHead head = {.kind = kind};
    enum Fault fault = FAULT_NONE;
    bool is_below;
    long r;

    pthread_mutex_lock(&mutex);
    is_below = fd_is_below(fd, &head.ino);
    if (is_below) {
        fault = choose_fault(fd, true, 0);
        head.number = ++numbers;
        append(&head, NULL, NULL, NULL, 0);
    }
    pthread_mutex_unlock(&mutex);
    r = fault == FAULT_NONE ? CALL(number, fd, a, b, c) : -1;
    if (is_below) {
        int saved_errno = fault == FAULT_NONE ? errno : EIO;

        head.kind = r == 0 ? VJ_RECORD_SYNCED : VJ_RECORD_UNSYNCED;
        append(&head, NULL, NULL, NULL, 0);
        errno = saved_errno;
    }
    return (int)r;
}

int fsync(int fd)
{
    return do_sync(SYS_fsync, fd, VJ_RECORD_SYNC, 0, 0, 0);
}

int fdatasync(int fd)
{
    return do_sync(SYS_fdatasync, fd, VJ_RECORD_SYNC, 0, 0, 0);
}

int syncfs(int fd)
{
    return do_sync(SYS_syncfs, fd, VJ_RECORD_SYNC_ALL, 0, 0, 0);
}

/* ---- names ------------------------------------------------------------------------- */

typedef struct Place {
    uint64_t dir; /* inode of the directory */
    const char *name;
    int dir_fd; /* -1: nothing of ours to be closed */
    bool is_below;
} Place;

/* With the mutex held; to be given to leave(). */
static Place find_place(int dir_fd, const char *path)
{
    Place place = {.name = path, .dir_fd = -1};
    const char *slash = strrchr(path, '/');
    int saved_errno = errno;

    if (slash != NULL) {
        char parent[PATH_MAX];
        size_t len = slash == path ? 1 : (size_t)(slash - path);

        if (len >= sizeof parent) {
            return place;
        }
        memcpy(parent, path, len);
        parent[len] = '\0';
        place.dir_fd =
            (int)CALL(SYS_openat, dir_fd, parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
        place.name = slash + 1;
        place.is_below = place.dir_fd >= 0 && fd_is_below(place.dir_fd, &place.dir);
    } else if (dir_fd == AT_FDCWD) {
        place.dir_fd =
            (int)CALL(SYS_openat, dir_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        place.is_below = place.dir_fd >= 0 && fd_is_below(place.dir_fd, &place.dir);
    } else {
        place.is_below = fd_is_below(dir_fd, &place.dir);
    }
    errno = saved_errno;
    return place;
}

static void leave(const Place *place)
{
    int saved_errno = errno;

    if (place->dir_fd >= 0) {
        close(place->dir_fd);
    }
    errno = saved_errno;
}

static uint64_t ino_of(int dir_fd, const char *path)
{
    int saved_errno = errno;
    struct stat st;
    uint64_t ino =
        fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_ino : 0;

    errno = saved_errno;
    return ino;
}

static void know_below(uint64_t ino)
{
    known[ino * 0x9e3779b97f4a7c15u >> 48] = (Known){ino, true};
}

/* An open that may make or cut a file. */
static int open_changing(int dir_fd, const char *path, int flags, mode_t mode)
{
    bool tmpfile = (flags & O_TMPFILE) == O_TMPFILE;
    Place place;
    uint64_t old_ino;
    long fd;

    pthread_mutex_lock(&mutex);
    place = find_place(dir_fd, path);
    if (!place.is_below || !is_on) {
        pthread_mutex_unlock(&mutex);
        leave(&place);
        return (int)CALL(SYS_openat, dir_fd, path, flags, mode);
    }
    old_ino = tmpfile ? 0 : ino_of(dir_fd, path);
    fd = CALL(SYS_openat, dir_fd, path, flags, mode);
    if (fd >= 0) {
        struct stat st;

        if (fstat((int)fd, &st) != 0) {
            die("fstat", path);
        }
        if (old_ino == 0) {
            know_below(st.st_ino);
            record((VjRecordHead){.kind = VJ_RECORD_CREATE,
                                  .ino = st.st_ino,
                                  .dir = tmpfile ? 0 : place.dir},
                   tmpfile ? NULL : place.name, NULL);
        } else if ((flags & O_TRUNC) != 0 && old_ino == st.st_ino) {
            record((VjRecordHead){.kind = VJ_RECORD_TRUNCATE, .ino = st.st_ino}, NULL,
                   NULL);
        }
    }
    pthread_mutex_unlock(&mutex);
    leave(&place);
    return (int)fd;
}

static bool open_changes(int flags)
{
    return (flags & (O_CREAT | O_TRUNC)) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

static int do_open(int dir_fd, const char *path, int flags, mode_t mode)
{
    return open_changes(flags) ? open_changing(dir_fd, path, flags, mode)
                               : (int)CALL(SYS_openat, dir_fd, path, flags, mode);
}

static mode_t mode_argument(int flags, va_list args)
{
    return open_changes(flags) ? (mode_t)va_arg(args, int) : 0;
}

#define OPEN_WITH_MODE(dir_fd)                                                           \
    va_list args;                                                                        \
    mode_t mode;                                                                         \
                                                                                         \
    va_start(args, flags);                                                               \
    mode = mode_argument(flags, args);                                                   \
    va_end(args);                                                                        \
    return do_open(dir_fd, path, flags, mode)

int open(const char *path, int flags, ...)
{
    OPEN_WITH_MODE(AT_FDCWD);
}

int open64(const char *path, int flags, ...)
{
    OPEN_WITH_MODE(AT_FDCWD);
}

int openat(int dir_fd, const char *path, int flags, ...)
{
    OPEN_WITH_MODE(dir_fd);
}

int openat64(int dir_fd, const char *path, int flags, ...)
{
    OPEN_WITH_MODE(dir_fd);
}

int creat(const char *path, mode_t mode)
{
    return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int mkdirat(int dir_fd, const char *path, mode_t mode)
{
    Place place;
    long r;

    pthread_mutex_lock(&mutex);
    place = find_place(dir_fd, path);
    r = CALL(SYS_mkdirat, dir_fd, path, mode);
    if (place.is_below && r == 0) {
        uint64_t ino = ino_of(dir_fd, path);

        know_below(ino);
        record((VjRecordHead){.kind = VJ_RECORD_MKDIR, .ino = ino, .dir = place.dir},
               place.name, NULL);
    }
    pthread_mutex_unlock(&mutex);
    leave(&place);
    return (int)r;
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int unlinkat(int dir_fd, const char *path, int flags)
{
    Place place;
    long r;

    pthread_mutex_lock(&mutex);
    place = find_place(dir_fd, path);
    r = CALL(SYS_unlinkat, dir_fd, path, flags);
    if (place.is_below && r == 0) {
        record((VjRecordHead){.kind = VJ_RECORD_UNLINK, .dir = place.dir}, place.name,
               NULL);
    }
    pthread_mutex_unlock(&mutex);
    leave(&place);
    return (int)r;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int symlinkat(const char *target, int dir_fd, const char *path)
{
    Place place;
    long r;

    pthread_mutex_lock(&mutex);
    place = find_place(dir_fd, path);
    r = CALL(SYS_symlinkat, target, dir_fd, path);
    if (place.is_below && r == 0) {
        record((VjRecordHead){.kind = VJ_RECORD_SYMLINK,
                              .ino = ino_of(dir_fd, path),
                              .dir = place.dir},
               place.name, target);
    }
    pthread_mutex_unlock(&mutex);
    leave(&place);
    return (int)r;
}

int linkat(int old_fd, const char *old_path, int new_fd, const char *new_path, int flags)
{
    Place place;
    long r;

    pthread_mutex_lock(&mutex);
    place = find_place(new_fd, new_path);
    r = CALL(SYS_linkat, old_fd, old_path, new_fd, new_path, flags);
    if (place.is_below && r == 0) {
        record((VjRecordHead){.kind = VJ_RECORD_LINK,
                              .ino = ino_of(new_fd, new_path),
                              .dir = place.dir},
               place.name, NULL);
    }
    pthread_mutex_unlock(&mutex);
    leave(&place);
    return (int)r;
}

int link(const char *old_path, const char *new_path)
{
    return linkat(AT_FDCWD, old_path, AT_FDCWD, new_path, 0);
}

int renameat2(int old_fd, const char *old_path, int new_fd, const char *new_path,
              unsigned flags)
{
    Place from, to;
    long r;

    pthread_mutex_lock(&mutex);
    from = find_place(old_fd, old_path);
    to = find_place(new_fd, new_path);
    if (from.is_below != to.is_below) {
        die("a rename into or out of the recorded tree", old_path);
    }
    r = CALL(SYS_renameat2, old_fd, old_path, new_fd, new_path, flags);
    if (from.is_below && r == 0) {
        record((VjRecordHead){.kind = (flags & RENAME_EXCHANGE) != 0 ? VJ_RECORD_EXCHANGE
                                                                     : VJ_RECORD_RENAME,
                              .dir = from.dir,
                              .dir2 = to.dir},
               from.name, to.name);
    }
    pthread_mutex_unlock(&mutex);
    leave(&from);
    leave(&to);
    return (int)r;
}

int renameat(int old_fd, const char *old_path, int new_fd, const char *new_path)
{
    return renameat2(old_fd, old_path, new_fd, new_path, 0);
}

int rename(const char *old_path, const char *new_path)
{
    return renameat2(AT_FDCWD, old_path, AT_FDCWD, new_path, 0);
}

/* The daemon closes what its caller had open: not the log. */
int close_range(unsigned first, unsigned last, int flags)
{
    unsigned ours = (unsigned)log_fd;

    if (log_fd < 0 || ours < first || ours > last) {
        return (int)CALL(SYS_close_range, first, last, flags);
    }
    if (ours > first && CALL(SYS_close_range, first, ours - 1, flags) < 0) {
        return -1;
    }
    return ours == last ? 0 : (int)CALL(SYS_close_range, ours + 1, last, flags);
}

/* ---- the trap ---------------------------------------------------------------------- */

enum Subject { FD, PATH, AT_PATH, OPEN, OPEN_AT, MAP, NEVER };

/* Calls that can change a file, and which argument says whether it is one of ours. */
static const struct Trapped {
    int number;
    enum Subject subject;
    int argument, argument2; /* of a second path; 0: there is none */
    const char *name;
} trapped[] = {
    {SYS_write, FD, 0, 0, "write"},
    {SYS_pwrite64, FD, 0, 0, "pwrite64"},
    {SYS_writev, FD, 0, 0, "writev"},
    {SYS_pwritev, FD, 0, 0, "pwritev"},
    {SYS_pwritev2, FD, 0, 0, "pwritev2"},
    {SYS_ftruncate, FD, 0, 0, "ftruncate"},
    {SYS_fallocate, FD, 0, 0, "fallocate"},
    {SYS_sendfile, FD, 0, 0, "sendfile"},
    {SYS_splice, FD, 2, 0, "splice"},
    {SYS_copy_file_range, FD, 2, 0, "copy_file_range"},
    {SYS_truncate, PATH, 0, 0, "truncate"},
    {SYS_rename, PATH, 0, 1, "rename"},
    {SYS_renameat, AT_PATH, 0, 2, "renameat"},
    {SYS_renameat2, AT_PATH, 0, 2, "renameat2"},
    {SYS_link, PATH, 1, 0, "link"},
    {SYS_linkat, AT_PATH, 2, 0, "linkat"},
    {SYS_symlink, PATH, 1, 0, "symlink"},
    {SYS_symlinkat, AT_PATH, 1, 0, "symlinkat"},
    {SYS_unlink, PATH, 0, 0, "unlink"},
    {SYS_unlinkat, AT_PATH, 0, 0, "unlinkat"},
    {SYS_mkdir, PATH, 0, 0, "mkdir"},
    {SYS_mkdirat, AT_PATH, 0, 0, "mkdirat"},
    {SYS_rmdir, PATH, 0, 0, "rmdir"},
    {SYS_mknod, PATH, 0, 0, "mknod"},
    {SYS_mknodat, AT_PATH, 0, 0, "mknodat"},
    {SYS_creat, OPEN, 0, 0, "creat"},
    {SYS_open, OPEN, 0, 0, "open"},
    {SYS_openat, OPEN_AT, 0, 0, "openat"},
    {SYS_openat2, NEVER, 0, 0, "openat2"},
    {SYS_mmap, MAP, 4, 0, "mmap of a file, shared and writable"},
    {SYS_io_setup, NEVER, 0, 0, "io_setup (libaio)"},
    {SYS_io_uring_setup, NEVER, 0, 0, "io_uring_setup"},
};

#define TRAPPED_COUNT (sizeof trapped / sizeof trapped[0])

static bool place_is_ours(int dir_fd, const char *path)
{
    Place place = find_place(dir_fd, path);

    leave(&place);
    return place.is_below;
}

static bool touches_tree(const struct Trapped *t, const long *args)
{
    uint64_t ino;

    switch (t->subject) {
    case FD:
        return fd_is_below((int)args[t->argument], &ino);
    case PATH:
        return place_is_ours(AT_FDCWD, (const char *)args[t->argument]) ||
               (t->argument2 > 0 &&
                place_is_ours(AT_FDCWD, (const char *)args[t->argument2]));
    case AT_PATH:
        return place_is_ours((int)args[t->argument],
                             (const char *)args[t->argument + 1]) ||
               (t->argument2 > 0 && place_is_ours((int)args[t->argument2],
                                                  (const char *)args[t->argument2 + 1]));
    case OPEN:
        return place_is_ours(AT_FDCWD, (const char *)args[0]);
    case OPEN_AT:
        return place_is_ours((int)args[0], (const char *)args[1]);
    case MAP:
        return fd_is_below((int)args[4], &ino);
    case NEVER:
        return true;
    }
    return true;
}

static void on_trap(int signal_number, siginfo_t *info, void *opaque)
{
    greg_t *regs = ((ucontext_t *)opaque)->uc_mcontext.gregs;
    long args[6] = {regs[REG_RDI], regs[REG_RSI], regs[REG_RDX],
                    regs[REG_R10], regs[REG_R8],  regs[REG_R9]};
    int saved_errno = errno;

    (void)signal_number;
    for (size_t i = 0; i < TRAPPED_COUNT; i++) {
        /* A thread that holds the mutex makes no such call, so it is free or
         * another's. */
        if (trapped[i].number == info->si_syscall) {
            bool ours;

            pthread_mutex_lock(&mutex);
            ours = touches_tree(&trapped[i], args);
            pthread_mutex_unlock(&mutex);
            if (ours) {
                die("a call that is not recorded", trapped[i].name);
            }
        }
    }
    regs[REG_RAX] =
        stub(info->si_syscall, args[0], args[1], args[2], args[3], args[4], args[5]);
    errno = saved_errno;
}

#define LOAD(field)                                                                      \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define VERDICT(what) BPF_STMT(BPF_RET | BPF_K, what)

static void set_trap(void)
{
    struct sigaction action = {.sa_sigaction = on_trap,
                               .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    struct sock_filter filter[16 + 8 * TRAPPED_COUNT];
    struct sock_fprog program = {.filter = filter};
    unsigned short n = 0;

#define ADD(...) filter[n++] = (struct sock_filter)__VA_ARGS__
    ADD(LOAD(instruction_pointer));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, STUB_AFTER_SYSCALL, 0, 3));
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, instruction_pointer) + 4));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1));
    ADD(VERDICT(SECCOMP_RET_ALLOW));
    ADD(LOAD(nr));
    for (size_t i = 0; i < TRAPPED_COUNT; i++) {
        enum Subject subject = trapped[i].subject;
        unsigned number = (unsigned)trapped[i].number;

        if ((subject == OPEN && number == SYS_open) || subject == OPEN_AT) {
            ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4));
            ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                         offsetof(struct seccomp_data, args[subject == OPEN ? 1 : 2])));
            ADD(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K,
                         O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY), 0, 1));
            ADD(VERDICT(SECCOMP_RET_TRAP));
            ADD(VERDICT(SECCOMP_RET_ALLOW));
        } else if (subject == MAP) {
            ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 6));
            ADD(LOAD(args[2]));
            ADD(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_WRITE, 0, 3));
            ADD(LOAD(args[3]));
            ADD(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 1));
            ADD(VERDICT(SECCOMP_RET_TRAP));
            ADD(VERDICT(SECCOMP_RET_ALLOW));
        } else {
            ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
            ADD(VERDICT(SECCOMP_RET_TRAP));
        }
    }
    ADD(VERDICT(SECCOMP_RET_ALLOW));
#undef ADD
    program.len = n;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGSYS, &action, NULL) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        die("the trap", strerror(errno));
    }
}

/* A thread that has the trap's signal blocked would be ended by it. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    static int (*real)(int, const sigset_t *, sigset_t *);
    sigset_t rest;

    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_sigmask");
    }
    if (set != NULL && how != SIG_UNBLOCK) {
        rest = *set;
        sigdelset(&rest, SIGSYS);
        set = &rest;
    }
    return real(how, set, old);
}

/* ---- setting up -------------------------------------------------------------------- */

static void map_stub(void)
{
    void *page = mmap((void *)STUB_ADDRESS, 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    if (page != (void *)STUB_ADDRESS) {
        fprintf(stderr, "librecord: no room at %#lx\n", STUB_ADDRESS);
        abort();
    }
    memcpy(page, stub_code, sizeof stub_code);
    if (mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0) {
        fprintf(stderr, "librecord: mprotect: %s\n", strerror(errno));
        abort();
    }
    has_stub = true;
}

__attribute__((constructor)) static void at_load(void)
{
    const char *path = getenv("VJ_RECORD_LOG"), *dir = getenv("VJ_RECORD_BELOW");
    const char *fail = getenv("VJ_RECORD_FAIL");
    char *rest = NULL;
    struct stat st;
    int fd;

    if (!has_stub) {
        map_stub();
    }
    if (path == NULL || dir == NULL || realpath(dir, below) == NULL ||
        stat(below, &st) != 0) {
        die("VJ_RECORD_LOG, VJ_RECORD_BELOW", dir == NULL ? "not set" : dir);
    }
    below_len = strlen(below);
    below_dev = st.st_dev;
    fail_every = fail == NULL ? 0 : (unsigned)strtoul(fail, &rest, 10);
    fail_store = rest != NULL && strcmp(rest, ":store") == 0;
    fd = (int)CALL(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
                   0666);
    if (fd < 0) {
        die(path, strerror(errno));
    }
    log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 512);
    if (log_fd < 0) {
        die(path, strerror(errno));
    }
    close(fd);
    is_on = true;
    record((VjRecordHead){.kind = VJ_RECORD_START, .ino = st.st_ino}, NULL, NULL);
    set_trap();
}
