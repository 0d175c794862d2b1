/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rounds-work.c - a worker: one operation a round, by descriptors and a mapping of its
 * own
 *
 * It waits for its round at a futex in shared memory, so that a round costs microseconds.
 */
#include "rounds.h"

#include "varjfs/rwrite.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TAIL_TRIES 2000u

typedef struct Worker {
    Shared *shared;
    uint32_t generation; /* of the file that is open */
    int buffered, append, direct, direct_append, direct_reader, source;
    uint8_t *mapping;
    uint8_t *aligned; /* OP_BYTES, for O_DIRECT */
} Worker;

/* ---- mappings */

static __thread sigjmp_buf *bus_error_target;

static void on_bus_error(int number)
{
    if (bus_error_target != NULL) {
        siglongjmp(*bus_error_target, 1);
    }
    signal(number, SIG_DFL);
    raise(number);
}

void mapping_handle_bus_errors(void)
{
    struct sigaction action = {.sa_handler = on_bus_error, .sa_flags = SA_NODEFER};

    sigaction(SIGBUS, &action, NULL);
}

static void move_once(volatile void *dst, const volatile void *src, size_t len)
{
    switch (len) {
    case 1:
        *(volatile uint8_t *)dst = *(const volatile uint8_t *)src;
        break;
    case 2:
        *(volatile uint16_t *)dst = *(const volatile uint16_t *)src;
        break;
    case 4:
        *(volatile uint32_t *)dst = *(const volatile uint32_t *)src;
        break;
    default:
        *(volatile uint64_t *)dst = *(const volatile uint64_t *)src;
        break;
    }
}

static bool move_or_bus_error(volatile void *dst, const volatile void *src, size_t len)
{
    sigjmp_buf target;

    if (sigsetjmp(target, 0) != 0) {
        bus_error_target = NULL;
        return false;
    }
    bus_error_target = &target;
    move_once(dst, src, len);
    bus_error_target = NULL;
    return true;
}

bool mapping_store(uint8_t *mapping, const uint8_t *src, size_t len)
{
    uint64_t word;

    memcpy(&word, src, len);
    return move_or_bus_error(mapping, &word, len);
}

bool mapping_load(const uint8_t *mapping, uint8_t *dst, size_t len)
{
    uint64_t word = 0;
    bool ok = move_or_bus_error(&word, mapping, len);

    memcpy(dst, &word, len);
    return ok;
}

size_t mapping_copy(const uint8_t *mapping, uint8_t *dst, size_t len)
{
    sigjmp_buf target;
    volatile size_t done = 0;

    if (sigsetjmp(target, 0) == 0) {
        bus_error_target = &target;
        for (; done < len; done += ROUND_PAGE) {
            memcpy(dst + done, mapping + done, ROUND_PAGE);
        }
    }
    bus_error_target = NULL;
    return done;
}

/* ---- time and waiting */

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void futex_wait(uint32_t *word, uint32_t value, unsigned timeout_ms)
{
    struct timespec timeout = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};

    syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

void futex_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* ---- the operations */

static int64_t result_of(int64_t result)
{
    return result < 0 ? -errno : result;
}

static int fd_for(const Worker *w, const Op *op)
{
    if (op->kind == OP_APPEND || op->kind == OP_APPEND_EDIT) {
        return op->direct ? w->direct_append : w->append;
    }
    if (op->direct) {
        return op->kind == OP_READ && op->variant ? w->direct_reader : w->direct;
    }
    return w->buffered;
}

/* What is given to O_DIRECT is aligned. */
static const uint8_t *source_of(Worker *w, const Op *op)
{
    if (!op->direct) {
        return op->bytes;
    }
    memcpy(w->aligned, op->bytes, op->len);
    return w->aligned;
}

static int64_t do_edit(Op *op, int fd, const uint8_t *src)
{
    if (op->kind == OP_APPEND_EDIT) {
        return rwrite(fd, src, op->len, op->old_len);
    }
    if (!op->variant) {
        return rpwrite(fd, src, op->len, (off_t)op->offset, op->old_len);
    }
    if (lseek(fd, (off_t)op->offset, SEEK_SET) < 0) {
        return -1;
    }
    op->called_ns = now_ns();
    return rwrite(fd, src, op->len, op->old_len);
}

static int64_t do_read(Worker *w, Op *op, int fd)
{
    int64_t got =
        pread(fd, op->direct ? w->aligned : op->bytes, op->len, (off_t)op->offset);

    if (op->direct && got > 0) {
        memcpy(op->bytes, w->aligned, (size_t)got);
    }
    return got;
}

/* As tail -f: until there is something, or nobody is left who could write it. */
static int64_t do_tail(Worker *w, Op *op)
{
    int64_t got = 0;

    for (unsigned i = 0; i < TAIL_TRIES && got == 0; i++) {
        bool last = __atomic_load_n(&w->shared->changing, __ATOMIC_ACQUIRE) == 0;

        op->called_ns = now_ns();
        got = pread(w->buffered, op->bytes, op->len, (off_t)op->offset);
        if (last) {
            break;
        }
    }
    return got;
}

static int64_t do_copy(Worker *w, Op *op)
{
    off_t from = (off_t)op->source, to = (off_t)op->offset;
    int source = op->kind == OP_COPY ? w->source : w->buffered;

    return copy_file_range(source, &from, w->buffered, &to, op->len, 0);
}

static int64_t do_fallocate(const Worker *w, const Op *op)
{
    int mode = op->kind == OP_PUNCH       ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
               : op->kind == OP_ZERO      ? FALLOC_FL_ZERO_RANGE
               : op->kind == OP_ZERO_KEEP ? FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE
                                          : 0;

    return fallocate(w->buffered, mode, (off_t)op->offset, (off_t)op->len);
}

static int64_t do_stat(const Worker *w, const Op *op)
{
    struct stat st;
    int result = op->variant ? stat(w->shared->path, &st) : fstat(w->buffered, &st);

    return result < 0 ? -1 : (int64_t)st.st_size;
}

static int64_t do_reopen(const Worker *w)
{
    int fd = open(w->shared->path, O_RDWR | O_CLOEXEC);

    return fd < 0 ? -1 : close(fd);
}

static int64_t do_op(Worker *w, Op *op)
{
    int fd = fd_for(w, op);

    switch (op->kind) {
    case OP_WRITE:
        return pwrite(fd, source_of(w, op), op->len, (off_t)op->offset);
    case OP_APPEND:
        return write(fd, source_of(w, op), op->len);
    case OP_INSERT:
    case OP_DELETE:
    case OP_REPLACE:
    case OP_APPEND_EDIT:
        return do_edit(op, fd, source_of(w, op));
    case OP_TRUNCATE:
        return op->variant ? truncate(w->shared->path, (off_t)op->offset)
                           : ftruncate(w->buffered, (off_t)op->offset);
    case OP_PUNCH:
    case OP_ZERO:
    case OP_ZERO_KEEP:
    case OP_ALLOCATE:
        return do_fallocate(w, op);
    case OP_STORE:
        op->bus_error = !mapping_store(w->mapping + op->offset, op->bytes, op->len);
        return 0;
    case OP_LOAD:
        op->bus_error = !mapping_load(w->mapping + op->offset, op->bytes, op->len);
        return 0;
    case OP_COPY:
    case OP_COPY_SELF:
        return do_copy(w, op);
    case OP_READ:
        return do_read(w, op, fd);
    case OP_TAIL:
        return do_tail(w, op);
    case OP_STAT:
        return do_stat(w, op);
    case OP_DROP:
        errno = posix_fadvise(w->buffered, 0, 0, POSIX_FADV_DONTNEED);
        return errno == 0 ? 0 : -1;
    case OP_SYNC:
        return op->variant ? msync(w->mapping, FILE_BYTES, MS_SYNC) : fsync(w->buffered);
    case OP_REOPEN:
        return do_reopen(w);
    default:
        g_assert_not_reached();
    }
}

static void spin_ns(uint64_t ns)
{
    for (uint64_t end = now_ns() + ns; now_ns() < end;) {
    }
}

static void do_round(Worker *w, Op *op)
{
    spin_ns(op->delay_ns);
    op->called_ns = now_ns();
    op->result = result_of(do_op(w, op));
    if (op->kind == OP_APPEND || op->kind == OP_APPEND_EDIT) {
        op->returned_ns = now_ns();
        op->position = op->result < 0 ? -1 : lseek(fd_for(w, op), 0, SEEK_CUR);
    } else {
        op->returned_ns = now_ns();
    }
}

/* ---- the file, and the rounds */

void die(const char *what)
{
    fprintf(stderr, "rounds: %s: %s\n", what, g_strerror(errno));
    exit(2);
}

static int open_or_die(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);

    if (fd < 0) {
        die(path);
    }
    return fd;
}

static void close_file(Worker *w)
{
    const int fds[] = {w->buffered,      w->append,        w->direct,
                       w->direct_append, w->direct_reader, w->source};

    if (w->mapping == NULL) {
        return;
    }
    munmap(w->mapping, FILE_BYTES);
    for (unsigned i = 0; i < G_N_ELEMENTS(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

static void open_file(Worker *w)
{
    const char *path = w->shared->path;
    bool direct = w->shared->direct;

    close_file(w);
    w->buffered = open_or_die(path, O_RDWR);
    w->append = open_or_die(path, O_RDWR | O_APPEND);
    w->direct = direct ? open_or_die(path, O_RDWR | O_DIRECT) : -1;
    w->direct_append = direct ? open_or_die(path, O_RDWR | O_APPEND | O_DIRECT) : -1;
    w->direct_reader = direct ? open_or_die(path, O_RDONLY | O_DIRECT) : -1;
    w->source = open_or_die(w->shared->source, O_RDONLY);
    w->mapping =
        mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, w->buffered, 0);
    if (w->mapping == MAP_FAILED) {
        die("mmap");
    }
}

G_NORETURN void worker_run(Shared *shared, unsigned number)
{
    Worker w = {.shared = shared, .aligned = g_aligned_alloc(1, OP_BYTES, ROUND_PAGE)};
    uint32_t done = 0;

    for (;;) {
        uint32_t round = __atomic_load_n(&shared->go[number], __ATOMIC_ACQUIRE);
        uint32_t generation = __atomic_load_n(&shared->generation, __ATOMIC_ACQUIRE);

        if (round == done) {
            futex_wait(&shared->go[number], done, 1000);
            continue;
        }
        done = round;
        if (__atomic_load_n(&shared->quit, __ATOMIC_ACQUIRE) != 0) {
            _exit(0);
        }
        if (generation != w.generation) {
            open_file(&w); /* a round without operations */
            w.generation = generation;
        } else {
            do_round(&w, &shared->round.ops[number]);
            if (op_classes[shared->round.ops[number].kind].changes) {
                __atomic_sub_fetch(&shared->changing, 1, __ATOMIC_ACQ_REL);
            }
        }
        if (__atomic_sub_fetch(&shared->running, 1, __ATOMIC_ACQ_REL) == 0) {
            futex_wake(&shared->running);
        }
    }
}
