/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * by-ioctl.c - the edit on varjfs, and how varjfs is recognised
 *
 * A step is one EDIT of at most VARJFS_EDIT_MAX bytes: what fits travels inside the ioctl,
 * the rest is staged first, so that nothing has happened when the caller's buffer turns out
 * to be bad.  Old bytes go in step with new ones, and what is left of them with the last.
 */
#include "rwrite-private.h"
#include "varjfs/ioctl.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Data up to this length goes through the stack: threads may have 16 KiB of it in all. */
#define STACK_DATA_BYTES 4096u
/* How often the kernel is told a size that it does not take: others edit too. */
#define SIZE_TRIES 32u

/* No file is as long: whoever makes an edit puts the file's size in its place. */
#define NO_SIZE (~(__u64)0)

/*
 * The device on which a PING succeeded last.  fstatfs asks the daemon, so that it is not
 * called for every edit.  A number that now belongs to another file system is found out by
 * that one's answer to the edit: looks_foreign().
 */
static _Atomic VjDevice known_device;

/* Answers of file systems that do not know our ioctls (the kernel's, or a FUSE daemon's). */
static bool looks_foreign(int error)
{
    return error == ENOTTY || error == EINVAL || error == ENOSYS || error == EOPNOTSUPP ||
           error == EPERM || error == EACCES;
}

/* The version that its daemon speaks, 0 if it is none, or -errno when that cannot be found
 * out now. */
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
    if (version < VARJFS_IOC_VERSION) {
        return 0; /* a file system that says yes to everything */
    }
    atomic_store(&known_device, device);
    return version;
}

static bool is_known(VjDevice device)
{
    return device != 0 && atomic_load(&known_device) == device;
}

bool vj_is_varjfs(int fd, VjDevice device)
{
    return is_known(device) || varjfs_version(fd, device) > 0;
}

static void stage_drop(int fd, uint64_t id)
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
                stage_drop(fd, *id);
            }
            return result;
        }
        memcpy(&stage, message->bytes, sizeof stage);
        *id = stage.stage_id;
        sent += part;
    }
    return 0;
}

/*
 * The kernel learns a smaller size from a read that meets the end, or from fstat.  From fstat it
 * clears the rest of the page of the end without a lock, while somebody may be writing
 * there: so the read comes first, and fstat where it does not help (O_WRONLY, O_DIRECT, others who
 * write).  The kernel drops an answer when a notification about the file or a write overtakes it,
 * and goes on believing in the old end: FIONREAD says what it believes, without asking the
 * daemon.  The edit itself has succeeded.
 */
static void tell_kernel_size(int fd, uint64_t size)
{
    struct stat st = {.st_size = (off_t)size};
    int saved_errno = errno;
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t got;
    char byte;

    if (at >= 0) {
        got = pread(fd, &byte, 1, st.st_size);
        (void)got;
    }
    for (unsigned i = 0; at >= 0 && i < SIZE_TRIES; i++) {
        unsigned left; /* of size minus position, the low bits */

        if (ioctl(fd, FIONREAD, &left) != 0 || left == (unsigned)(st.st_size - at) ||
            fstat(fd, &st) != 0) {
            break;
        }
    }
    errno = saved_errno;
}

/* One EDIT; @at is where it happened. */
static int edit_step(const VjEdit *e, VjMessage *message, uint64_t offset,
                     uint64_t old_len, const char *src, size_t len, uint64_t *at)
{
    struct varjfs_edit edit = {.version = VARJFS_IOC_VERSION,
                               .flags = e->append ? VARJFS_EDIT_APPEND : 0,
                               .offset = e->append ? 0 : offset,
                               .old_len = old_len,
                               .len = len,
                               .size = NO_SIZE};
    size_t inside = len;
    __u64 id = 0;
    int result;

    if (len > message->size - sizeof edit) {
        uint64_t staged;

        result = vj_stage_data(e->fd, message, src, len, &staged);
        id = staged;
        edit.flags |= VARJFS_EDIT_STAGED;
        inside = 0;
    } else {
        result = vj_copy_from_caller(message->bytes + sizeof edit, src, len);
    }
    if (result != 0) {
        return result;
    }
    edit.stage_id = id;
    memcpy(message->bytes, &edit, sizeof edit);
    if (ioctl(e->fd, VARJFS_IOC_EDIT(inside), message->bytes) != 0) {
        return -errno;
    }
    memcpy(&edit, message->bytes, sizeof edit);
    if (edit.size == NO_SIZE) {
        return -ENOTTY; /* said yes and did nothing: the device's number is another's now */
    }
    *at = edit.offset;
    if (old_len > len) {
        tell_kernel_size(e->fd, edit.size);
    }
    return 0;
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
static int hole_step(const VjEdit *e)
{
    struct varjfs_edit edit = {.version = VARJFS_IOC_VERSION,
                               .flags = VARJFS_EDIT_HOLE | VARJFS_EDIT_INSIDE,
                               .offset = e->offset,
                               .old_len = e->old_len,
                               .len = e->len,
                               .size = NO_SIZE};

    if (ioctl(e->fd, VARJFS_IOC_EDIT(0), &edit) != 0) {
        return -errno;
    }
    if (edit.size == NO_SIZE) {
        return -ENOTTY;
    }
    if (e->old_len > e->len) {
        tell_kernel_size(e->fd, edit.size);
    }
    return 0;
}

/* Only a process with a limit pays for looking at the size. */
static int check_growth(VjEdit *e)
{
    struct stat st;
    uint64_t size, old_len = 0;

    if (vj_edit_check_limit(e, INT64_MAX) == 0) {
        return 0;
    }
    e->over_limit = false;
    if (fstat(e->fd, &st) != 0) {
        return -errno;
    }
    size = (uint64_t)st.st_size;
    if (e->hole && e->offset >= size) {
        return 0; /* refused for another reason */
    }
    if (e->append || e->offset <= size) {
        if (!e->append) {
            old_len = e->old_len < size - e->offset ? e->old_len : size - e->offset;
        }
        return e->len > old_len ? vj_edit_check_limit(e, size - old_len + e->len) : 0;
    }
    return e->len > 0 ? vj_edit_check_limit(e, e->offset + e->len) : 0;
}

int64_t vj_edit_by_ioctl(VjEdit *e, VjDevice device)
{
    bool known = is_known(device);
    int version = known ? 1 : varjfs_version(e->fd, device);
    int64_t done;

    if (version <= 0) {
        return version == 0 ? -EOPNOTSUPP : version;
    }
    done = check_growth(e);
    if (done != 0) {
        return done;
    }
    done = e->hole ? hole_step(e) : edit_with_message(e);
    if (done < 0 && (known || e->hole) && looks_foreign((int)-done)) {
        version = varjfs_version(e->fd, device);
        if (version == 0) {
            atomic_store(&known_device, 0);
        }
        if (version == 0 || (e->hole && version > 0 && version < VARJFS_IOC_PING_HOLES)) {
            return -EOPNOTSUPP;
        }
        return version < 0 ? version : done;
    }
    return done;
}
