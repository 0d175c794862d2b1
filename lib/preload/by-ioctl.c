/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * by-ioctl.c - the edit on varjfs, and how varjfs is recognised
 *
 * A step is one edit of at most VARJFS_EDIT_MAX bytes.  It is staged by an ioctl, with
 * what fits of the data inside and the rest sent before, so that nothing has happened
 * when the caller's buffer turns out to be bad; then the call that the answer names
 * carries it out.  Old bytes go in step with new ones, and what is left of them with the
 * last.
 */
#include "next.h"
#include "rwrite-private.h"
#include "varjfs/ioctl.h"

#include <errno.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* Data up to this length goes through the stack: threads may have 16 KiB of it in all. */
#define STACK_DATA_BYTES 4096u
/* Each time an edit is staged so often, a change of the file's size meanwhile does not
 * matter: a program that appends without end would keep it from happening. */
#define SIZED_TRIES 8u
/* The same of an edit that takes more than it brings: pages that others read between its
 * two calls would keep it from happening. */
#define SHORTER_TRIES 3u
/* An edit is given up when it was staged so often, each time with a change just in
 * between, and for so long.  On busy processors a thousand tries are over in a moment. */
#define TRIES_LEAST 1024u
#define GIVE_UP_AFTER_S 5
/* Pauses become no longer after so many. */
#define PAUSES_GROW 4096u

/* No file is as long: a daemon that stages an edit puts the file's size in its place. */
#define NO_SIZE (~(__u64)0)

/*
 * The device on which a PING succeeded last.  fstatfs asks the daemon, so that it is not
 * called for every edit.  A number that now belongs to another file system is found out
 * by that one's answer to the edit: looks_foreign().
 */
static _Atomic VjDevice varjfs_device;

/* Answers of file systems that do not know our ioctls (the kernel's, or a FUSE
 * daemon's). */
static bool looks_foreign(int error)
{
    return error == ENOTTY || error == EINVAL || error == ENOSYS || error == EOPNOTSUPP ||
           error == EPERM || error == EACCES;
}

/* The version that its daemon speaks, 0 if it is none, or -errno when that cannot be
 * found out now. */
static int varjfs_version(int fd, VjDevice device)
{
    struct statfs fs;
    int version;

    if (fstatfs(fd, &fs) != 0) {
        return -errno;
    }
    /* The cast: on some machines f_type is signed. */
    if ((unsigned long)fs.f_type != FUSE_SUPER_MAGIC) {
        return 0;
    }
    version = ioctl(fd, VARJFS_IOC_PING);
    if (version < 0) {
        return looks_foreign(errno) ? 0 : -errno;
    }
    if (version != VARJFS_IOC_VERSION) {
        return 0; /* one that says yes to everything, or of another version */
    }
    atomic_store(&varjfs_device, device);
    return version;
}

static bool is_known(VjDevice device)
{
    return device != 0 && atomic_load(&varjfs_device) == device;
}

bool vj_is_varjfs(int fd, VjDevice device)
{
    return is_known(device) || varjfs_version(fd, device) > 0;
}

void vj_stage_drop(int fd, uint64_t id)
{
    struct varjfs_stage stage = {
        .version = VARJFS_IOC_VERSION, .flags = VARJFS_STAGE_DROP, .stage_id = id};
    int saved_errno = errno;

    /* Without an answer the stage ends with the descriptor. */
    if (ioctl(fd, VARJFS_IOC_STAGE(0), &stage) != 0) {
        errno = saved_errno;
    }
}

int vj_stage_data(int fd, VjMessage *message, const char *src, size_t len, uint64_t *id)
{
    size_t room = message->size - sizeof(struct varjfs_stage);

    *id = 0;
    for (size_t sent = 0; sent < len;) {
        size_t part = len - sent < room ? len - sent : room;
        struct varjfs_stage stage = {
            .version = VARJFS_IOC_VERSION, .stage_id = *id, .offset = sent, .len = part};
        int result = vj_copy_from_caller(message->bytes + sizeof stage, src + sent, part);

        if (result == 0) {
            memcpy(message->bytes, &stage, sizeof stage);
            result = ioctl(fd, VARJFS_IOC_STAGE(part), message->bytes) == 0 ? 0 : -errno;
        }
        if (result != 0) {
            if (*id != 0) {
                vj_stage_drop(fd, *id);
            }
            return result;
        }
        memcpy(&stage, message->bytes, sizeof stage);
        *id = stage.stage_id;
        sent += part;
    }
    return 0;
}

/* A call that did not come to the daemon leaves its edit there. */
static void drop_staged(int fd)
{
    struct varjfs_edit edit = {.version = VARJFS_IOC_VERSION};

    (void)!ioctl(fd, VARJFS_IOC_EDIT_DROP, &edit);
}

static int make_call(int fd, const struct varjfs_carry *carry)
{
    bool is_first = carry->call == VARJFS_CARRY_FALLOCATE_FTRUNCATE;
    int saved_errno = errno, result;

    if (carry->call == VARJFS_CARRY_FTRUNCATE) {
        return ftruncate(fd, (off_t)carry->len) == 0 ? 0 : -errno;
    }
    result = vj_next_fallocate64()(fd, (int)carry->mode, (int64_t)carry->offset,
                                   is_first ? 1 : (int64_t)carry->len);
    if (result == 0 && is_first) {
        result = ftruncate(fd, (off_t)carry->len);
    } else if (result == 0 && carry->call == VARJFS_CARRY_FALLOCATE_SEEK) {
        (void)lseek(fd, INT64_MIN, SEEK_END);
        errno = saved_errno;
    }
    return result == 0 ? 0 : -errno;
}

int vj_carry_out(int fd, const struct varjfs_carry *carry)
{
    int result = carry->call == VARJFS_CARRY_NOTHING ? 0 : make_call(fd, carry);

    if (result != 0 && result != -EAGAIN) {
        drop_staged(fd);
    }
    return result;
}

/* Where an append went that nothing but the daemon knows. */
static int ask_where(int fd, const struct varjfs_edit *out, uint64_t *at)
{
    struct varjfs_edit edit = {.version = VARJFS_IOC_VERSION};

    /* Not where the size was right: then it went where it was announced. */
    if (out->carry.call == VARJFS_CARRY_FALLOCATE) {
        return 0;
    }
    if (ioctl(fd, VARJFS_IOC_EDIT_DROP, &edit) != 0) {
        return -errno;
    }
    *at = edit.offset;
    return 0;
}

static bool is_limited(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/*
 * What this thread deleted from last, by a staged edit behind which the kernel held no
 * page: such a file can have the next delete by one call.  The mount's number shows that
 * it is varjfs still.  In the block that a thread gets at its start: another would be
 * allocated in the midst of a call, by the dynamic linker, of which the library asks
 * nothing else.
 */
static _Thread_local struct {
    uint64_t mount, ino;
    int fd;
} deleted __attribute__((tls_model("initial-exec")));

static bool is_deleted_from(const VjEdit *e)
{
    return e->mount != 0 && deleted.mount == e->mount && deleted.ino == e->ino &&
           deleted.fd == e->fd;
}

/* -EFBIG: not so; it has to be staged. */
static int delete_at_once(const VjEdit *e, uint64_t offset, uint64_t len)
{
    if (len == 0 || len > VARJFS_DELETE_SIZE_LEN ||
        offset >> VARJFS_DELETE_SIZE_OFFSET_BITS != 0 || !is_deleted_from(e) ||
        is_limited()) {
        return -EFBIG;
    }
    if (ftruncate(e->fd, (off_t)VARJFS_DELETE_SIZE(offset, len)) == 0) {
        return 0;
    }
    deleted.mount = 0;
    return -errno;
}

/*
 * Stages @edit, whose @inside bytes of data stand behind it in @bytes, and carries it
 * out.
 * @at is where it happened.  No signal comes in between: a handler may make an edit too,
 * which would take the place of this one.
 */
static int try_edit(const VjEdit *e, const struct varjfs_edit *edit, char *bytes,
                    size_t inside, uint64_t *at)
{
    struct varjfs_edit out;
    sigset_t all, before;
    int result;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    memcpy(bytes, edit, sizeof *edit);
    result = ioctl(e->fd, VARJFS_IOC_EDIT(inside), bytes) == 0 ? 0 : -errno;
    memcpy(&out, bytes, sizeof out);
    *at = out.offset;
    if (result == 0 && out.size == NO_SIZE) {
        result = -ENOTTY; /* said yes and did nothing: the number is another's now */
    } else if (result == 0) {
        result = vj_carry_out(e->fd, &out.carry);
        if (result == 0 && edit->len == 0 && out.carry.call == VARJFS_CARRY_FTRUNCATE) {
            deleted.mount = e->mount;
            deleted.ino = e->ino;
            deleted.fd = e->fd;
        }
        if (result == 0 && e->append && (edit->flags & VARJFS_EDIT_ANY_SIZE) != 0) {
            result = ask_where(e->fd, &out, at);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

/* A thread that changes the size without end may do so in step with us, each time in
 * between.  Pauses of uneven length end that: up to a third of a millisecond at first, up
 * to five at last. */
static void fall_out_of_step(unsigned tries)
{
    unsigned longer = 1 + (tries < PAUSES_GROW ? tries : PAUSES_GROW) / 256;
    struct timespec pause = {.tv_nsec = (long)(tries * 7919u % 97u * longer) * 3000};
    int saved_errno = errno;

    (void)nanosleep(&pause, NULL);
    errno = saved_errno;
}

static bool is_given_up(unsigned tries, time_t begun_s)
{
    struct timespec now;

    if (tries < TRIES_LEAST) {
        return false;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - begun_s > GIVE_UP_AFTER_S;
}

/*
 * The same again and again until the size of the file has not changed in between.  With
 * ANY_SIZE that matters still for growth of a process with a limit, which the kernel
 * compares with the size that it gets before, and for an edit by ftruncate(2) that turns
 * out to leave the size, as the kernel would keep the pages.
 */
static int stage_and_carry_out(const VjEdit *e, const struct varjfs_edit *edit,
                               char *bytes, size_t inside, uint64_t *at)
{
    struct varjfs_edit now = *edit;
    struct timespec begun = {.tv_sec = 0};
    unsigned most = edit->len < edit->old_len ? SHORTER_TRIES : SIZED_TRIES;
    unsigned i = 0;
    int result;

    do {
        bool any_size;

        if (i == SIZED_TRIES) {
            clock_gettime(CLOCK_MONOTONIC, &begun);
        }
        if (i >= SIZED_TRIES) {
            fall_out_of_step(i);
        }
        any_size = ++i % most == 0;
        now.flags = edit->flags | (any_size ? VARJFS_EDIT_ANY_SIZE : 0);
        /* The limit matters only where ftruncate(2) may be the call. */
        if ((any_size || edit->len <= edit->old_len) && is_limited()) {
            now.flags |= VARJFS_EDIT_LIMITED;
        }
        result = try_edit(e, &now, bytes, inside, at);
    } while (result == -EAGAIN && !is_given_up(i, begun.tv_sec));
    return result == -EAGAIN ? -EBUSY : result;
}

/* One edit; @at is where it happened. */
static int edit_step(VjEdit *e, VjMessage *message, uint64_t offset, uint64_t old_len,
                     const char *src, size_t len, uint64_t *at)
{
    struct varjfs_edit edit = {
        .version = VARJFS_IOC_VERSION,
        .flags = e->append ? VARJFS_EDIT_APPEND : 0,
        .offset = e->append ? 0 : offset,
        .old_len = old_len,
        .len = len,
        .size = NO_SIZE,
    };
    size_t inside = len;
    uint64_t id = 0;
    int result = len == 0 && !e->append ? delete_at_once(e, offset, old_len) : -EFBIG;

    if (result != -EFBIG) {
        return result;
    }
    if (len > message->size - sizeof edit) {
        result = vj_stage_data(e->fd, message, src, len, &id);
        edit.flags |= VARJFS_EDIT_STAGED;
        inside = 0;
    } else {
        result = vj_copy_from_caller(message->bytes + sizeof edit, src, len);
    }
    if (result != 0) {
        return result;
    }
    edit.stage_id = id;
    result = stage_and_carry_out(e, &edit, message->bytes, inside, at);
    if (result != 0 && id != 0) {
        vj_stage_drop(e->fd, id);
    }
    return result;
}

static int64_t edit_in_steps(VjEdit *e, VjMessage *message)
{
    uint64_t done = 0;

    do {
        uint64_t left = e->len - done;
        size_t len = left < VARJFS_EDIT_MAX ? left : VARJFS_EDIT_MAX;
        uint64_t old_left = e->old_len > done ? e->old_len - done : 0;
        uint64_t old_len = len == left || old_left < len ? old_left : len;
        uint64_t at = 0;
        int result =
            edit_step(e, message, e->offset + done, old_len, e->src + done, len, &at);

        if (result != 0) {
            return done > 0 ? (int64_t)done : result;
        }
        /* Appends of others may lie between our steps: the end of the last one counts. */
        e->at = at - done;
        done += len;
    } while (done < e->len);
    return (int64_t)done;
}

static int64_t edit_with_message(VjEdit *e)
{
    if (e->len <= STACK_DATA_BYTES) {
        char bytes[sizeof(struct varjfs_edit) + STACK_DATA_BYTES];
        VjMessage message = {bytes, sizeof bytes};

        return edit_in_steps(e, &message);
    } else {
        VjMessage message = {.size = VARJFS_IOC_MAX};
        int64_t done;

        message.bytes = mmap(NULL, message.size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (message.bytes == MAP_FAILED) {
            return -errno;
        }
        done = edit_in_steps(e, &message);
        munmap(message.bytes, message.size);
        return done;
    }
}

/* A hole in place of old_len bytes, if something follows: one step however long it is. */
static int hole_step(VjEdit *e)
{
    struct varjfs_edit edit = {
        .version = VARJFS_IOC_VERSION,
        .flags = VARJFS_EDIT_HOLE | VARJFS_EDIT_INSIDE,
        .offset = e->offset,
        .old_len = e->old_len,
        .len = e->len,
        .size = NO_SIZE,
    };
    char bytes[sizeof edit];
    uint64_t at;

    return stage_and_carry_out(e, &edit, bytes, 0, &at);
}

int64_t vj_edit_by_ioctl(VjEdit *e, VjDevice device)
{
    bool was_known = is_known(device);
    int version = was_known ? VARJFS_IOC_VERSION : varjfs_version(e->fd, device);
    int64_t done;

    if (version <= 0) {
        return version == 0 ? -EOPNOTSUPP : version;
    }
    done = e->hole ? hole_step(e) : edit_with_message(e);
    if (done < 0 && was_known && looks_foreign((int)-done)) {
        version = varjfs_version(e->fd, device);
        if (version == 0) {
            atomic_store(&varjfs_device, 0);
            return -EOPNOTSUPP;
        }
        return version < 0 ? version : done;
    }
    return done;
}
