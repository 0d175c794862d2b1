/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-by-ioctl.c - what the library asks of varjfs, and when it does not ask
 *
 * fstatfs, ioctl, fallocate, ftruncate, lseek, process_vm_readv, pwrite, pwritev2,
 * clock_gettime and nanosleep of the library lead here.  The fake varjfs holds the ioctl
 * ABI's promises strictly (a request that breaks one fails the test) and applies edits to
 * a plain file, when they are carried out.
 */
#include "rwrite-fixture.h"

#include "../../../lib/preload/next.h"
#include "../../../lib/preload/rwrite-private.h"
#include "varjfs/ioctl.h"

#include <linux/magic.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#define STEP ((size_t)VARJFS_EDIT_MAX)

static struct {
    bool fuse;         /* fstatfs says so */
    bool varjfs;       /* ioctls are answered */
    int foreign_errno; /* what others answer; 0: they say yes to everything */
    unsigned fstat_count, fstatfs_count, ping_count, edit_count, stage_count, drop_count;
    unsigned fail_edit;  /* the n-th edit from 1; 0: none */
    unsigned fail_stage; /* likewise */
    int fail_errno;
    bool no_vm_readv;     /* a seccomp filter forbids it */
    bool no_noappend;     /* a kernel before RWF_NOAPPEND */
    int fallocate_errno;  /* 0: the file system's own answer */
    unsigned fail_pwrite; /* the n-th */
    uint64_t stage_id;    /* of the open stage; 0: none */
    GByteArray *stage;
    uint64_t last_id;
    int version;         /* what PING returns */
    unsigned hole_count; /* edits that bring a hole; nothing is applied */
    struct varjfs_edit hole;
    struct varjfs_edit staged; /* carry.call is NOTHING: none is */
    uint8_t staged_data[VARJFS_IOC_MAX];
    unsigned carry_count[4]; /* by VARJFS_CARRY_* */
    unsigned seek_count, where_count;
    unsigned at_once_count;
    int at_once_errno;
    unsigned overtaken; /* so often the size has changed when an edit is carried out */
    uint64_t appended;  /* where the last append went */
    int64_t now_ns;     /* pauses take their time of this clock alone */
} fake;

int __wrap_ftruncate64(int fd, off_t len);
int __real_ftruncate64(int fd, off_t len);
off_t __wrap_lseek64(int fd, off_t offset, int whence);
off_t __real_lseek64(int fd, off_t offset, int whence);
int __wrap_fstat64(int fd, struct stat64 *out);
int __real_fstat64(int fd, struct stat64 *out);
int __wrap_fstatfs64(int fd, struct statfs64 *out);
int __real_fstatfs64(int fd, struct statfs64 *out);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __real_ioctl(int fd, unsigned long request, ...);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long to_count,
                                const struct iovec *from, unsigned long from_count,
                                unsigned long flags);
ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long to_count,
                                const struct iovec *from, unsigned long from_count,
                                unsigned long flags);
VjFallocate64 *__wrap_vj_next_fallocate64(void);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len);
int __real_fallocate64(int fd, int mode, off_t offset, off_t len);
ssize_t __wrap_pwrite64(int fd, const void *src, size_t len, off_t offset);
ssize_t __real_pwrite64(int fd, const void *src, size_t len, off_t offset);
ssize_t __wrap_pwritev64v2(int fd, const struct iovec *iov, int count, off_t offset,
                           int flags);
ssize_t __real_pwritev64v2(int fd, const struct iovec *iov, int count, off_t offset,
                           int flags);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    assert_int_equal(clock, CLOCK_MONOTONIC);
    *out = (struct timespec){.tv_sec = fake.now_ns / 1000000000,
                             .tv_nsec = fake.now_ns % 1000000000};
    return 0;
}

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
    assert_null(left);
    assert_int_equal(pause->tv_sec, 0);
    fake.now_ns += pause->tv_nsec;
    return 0;
}

int __wrap_fstat64(int fd, struct stat64 *out)
{
    fake.fstat_count++;
    return __real_fstat64(fd, out);
}

int __wrap_fstatfs64(int fd, struct statfs64 *out)
{
    int result = __real_fstatfs64(fd, out);

    fake.fstatfs_count++;
    if (result == 0) {
        out->f_type = fake.fuse ? FUSE_SUPER_MAGIC : EXT4_SUPER_MAGIC;
    }
    return result;
}

static int fail_with(int error)
{
    errno = error;
    return -1;
}

static int fake_stage(const struct varjfs_stage *in, size_t bytes,
                      struct varjfs_stage *out)
{
    *out = *in;
    assert_int_equal(in->version, VARJFS_IOC_VERSION);
    assert_int_equal(bytes, sizeof *in + in->len);
    if ((in->flags & VARJFS_STAGE_DROP) != 0) {
        fake.drop_count++;
        assert_int_not_equal(in->stage_id, 0);
        assert_int_equal(in->stage_id, fake.stage_id);
        fake.stage_id = 0;
        g_byte_array_set_size(fake.stage, 0);
        return 0;
    }
    if (++fake.stage_count == fake.fail_stage) {
        return fail_with(fake.fail_errno);
    }
    assert_int_equal(in->flags, 0);
    assert_int_equal(in->offset, fake.stage->len);
    assert_true(in->offset + in->len <= VARJFS_EDIT_MAX);
    if (in->stage_id == 0) {
        assert_int_equal(fake.stage_id, 0); /* the one before was used or dropped */
        fake.stage_id = ++fake.last_id;
    } else {
        assert_int_equal(in->stage_id, fake.stage_id);
    }
    g_byte_array_append(fake.stage, (const uint8_t *)(in + 1), (guint)in->len);
    out->stage_id = fake.stage_id;
    return 0;
}

static void apply(int fd, const struct varjfs_edit *edit, const uint8_t *src)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", fd);
    g_autofree char *text = NULL;
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    VJ_AUTO_FD own = open(path, O_WRONLY | O_CLOEXEC);
    struct rlimit callers, none; /* the limit is the caller's, not the daemon's */
    gsize len;

    assert_true(own >= 0);
    assert_true(g_file_get_contents(path, &text, &len, NULL));
    g_byte_array_append(bytes, (uint8_t *)text, (guint)len);
    model_replace(bytes, src, edit->len, edit->offset, edit->old_len);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &callers), 0);
    none = (struct rlimit){.rlim_cur = callers.rlim_max, .rlim_max = callers.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_int_equal(__real_pwrite64(own, bytes->data, bytes->len, 0), bytes->len);
    assert_int_equal(__real_ftruncate64(own, bytes->len), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &callers), 0);
}

/* Stages @in; the second call applies it. */
static int fake_edit(int fd, const struct varjfs_edit *in, size_t bytes,
                     struct varjfs_edit *out)
{
    struct stat st;
    uint64_t old_len;

    *out = *in;
    assert_int_equal(in->version, VARJFS_IOC_VERSION);
    assert_true((in->flags & ~(VARJFS_EDIT_APPEND | VARJFS_EDIT_STAGED |
                               VARJFS_EDIT_ANY_SIZE | VARJFS_EDIT_LIMITED)) == 0);
    assert_true(in->len <= VARJFS_EDIT_MAX);
    assert_true(in->offset <= INT64_MAX && in->old_len <= INT64_MAX - in->offset);
    if ((in->flags & VARJFS_EDIT_STAGED) != 0) {
        assert_int_equal(bytes, sizeof *in);
        assert_int_equal(in->stage_id, fake.stage_id);
        assert_int_equal(in->len, fake.stage->len);
    } else {
        assert_int_equal(bytes, sizeof *in + in->len);
        assert_int_equal(in->stage_id, 0);
        assert_int_equal(fake.stage_id, 0);
        memcpy(fake.staged_data, in + 1, in->len);
    }
    if (++fake.edit_count == fake.fail_edit) {
        return fail_with(fake.fail_errno);
    }
    assert_int_equal(fstat(fd, &st), 0);
    if ((in->flags & VARJFS_EDIT_APPEND) != 0) {
        assert_int_equal(in->offset, 0);
        assert_int_equal(in->old_len, 0);
        out->offset = (uint64_t)st.st_size;
    }
    old_len = out->offset < (uint64_t)st.st_size
                  ? MIN(in->old_len, (uint64_t)st.st_size - out->offset)
                  : 0;
    out->old_len = old_len;
    out->size =
        MAX((uint64_t)st.st_size, out->len > 0 ? out->offset : 0) - old_len + out->len;
    if (out->len == 0 && old_len == 0) {
        out->size = (uint64_t)st.st_size;
        out->carry = (struct varjfs_carry){.call = VARJFS_CARRY_NOTHING};
        return 0;
    }
    if (out->size < (uint64_t)st.st_size ||
        (in->flags & (VARJFS_EDIT_ANY_SIZE | VARJFS_EDIT_LIMITED)) ==
            VARJFS_EDIT_ANY_SIZE) {
        out->carry = (in->flags & VARJFS_EDIT_LIMITED) != 0
                         ? (struct varjfs_carry){VARJFS_CARRY_FALLOCATE_SEEK, 1, 4711, 1}
                         : (struct varjfs_carry){VARJFS_CARRY_FTRUNCATE, 0, 0, 4711};
    } else {
        out->carry = (struct varjfs_carry){
            VARJFS_CARRY_FALLOCATE, out->size == (uint64_t)st.st_size ? 1 : 0, 4711, 1};
    }
    fake.staged = *out;
    return 0;
}

/* The one call that may follow; -1 and EAGAIN once in a while. */
static int carry_staged(int fd, uint32_t call, uint32_t mode, off_t offset, off_t len)
{
    struct varjfs_edit edit = fake.staged;
    const uint8_t *src =
        (edit.flags & VARJFS_EDIT_STAGED) != 0 ? fake.stage->data : fake.staged_data;
    struct rlimit limit;
    sigset_t masked;

    /* No handler may make an edit in between. */
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &masked), 0);
    assert_int_equal(sigismember(&masked, SIGALRM), 1);
    fake.staged.carry.call = VARJFS_CARRY_NOTHING;
    fake.carry_count[edit.carry.call]++;
    assert_int_equal(call == VARJFS_CARRY_FTRUNCATE,
                     edit.carry.call == VARJFS_CARRY_FTRUNCATE);
    assert_int_equal(mode, edit.carry.mode);
    assert_int_equal(offset, edit.carry.offset);
    assert_int_equal(len, edit.carry.len);
    if (fake.overtaken > 0 && ((edit.flags & VARJFS_EDIT_ANY_SIZE) == 0 ||
                               edit.carry.call == VARJFS_CARRY_FALLOCATE)) {
        fake.overtaken--;
        return fail_with(EAGAIN);
    }
    if (call == VARJFS_CARRY_FALLOCATE && mode == 0 &&
        getrlimit(RLIMIT_FSIZE, &limit) == 0 && edit.size > limit.rlim_cur) {
        raise(SIGXFSZ);
        return fail_with(EFBIG);
    }
    apply(fd, &edit, src);
    fake.appended = edit.offset;
    if ((edit.flags & VARJFS_EDIT_STAGED) != 0) {
        fake.stage_id = 0;
        g_byte_array_set_size(fake.stage, 0);
    }
    return 0;
}

/* A delete that was not staged. */
static int delete_at_once(int fd, uint64_t size)
{
    uint64_t rest = size - VARJFS_DELETE_SIZE_MARK;
    struct varjfs_edit edit = {
        .offset = rest >> VARJFS_DELETE_SIZE_LEN_BITS,
        .old_len = rest % (1u << VARJFS_DELETE_SIZE_LEN_BITS) + 1,
    };

    fake.at_once_count++;
    if (fake.at_once_errno != 0) {
        return fail_with(fake.at_once_errno);
    }
    apply(fd, &edit, NULL);
    return 0;
}

int __wrap_ftruncate64(int fd, off_t len)
{
    if ((uint64_t)len >= VARJFS_DELETE_SIZE_MARK) {
        assert_int_equal(fake.staged.carry.call, VARJFS_CARRY_NOTHING);
        return delete_at_once(fd, (uint64_t)len);
    }
    return fake.staged.carry.call == VARJFS_CARRY_NOTHING
               ? __real_ftruncate64(fd, len)
               : carry_staged(fd, VARJFS_CARRY_FTRUNCATE, 0, 0, len);
}

off_t __wrap_lseek64(int fd, off_t offset, int whence)
{
    fake.seek_count += offset == INT64_MIN;
    return __real_lseek64(fd, offset, whence);
}

/* A daemon may refuse the place. */
static int fake_hole(size_t bytes, struct varjfs_edit *out)
{
    assert_int_equal(bytes, sizeof fake.hole);
    assert_int_equal(fake.hole.version, VARJFS_IOC_VERSION);
    assert_int_equal(fake.hole.flags, VARJFS_EDIT_HOLE | VARJFS_EDIT_INSIDE);
    assert_int_equal(fake.hole.stage_id, 0);
    if (fake.fail_errno != 0) {
        return fail_with(fake.fail_errno);
    }
    out->size = 1000;
    out->carry.call = VARJFS_CARRY_NOTHING;
    return 0;
}

static int fake_where(struct varjfs_edit *out)
{
    sigset_t masked;

    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &masked), 0);
    assert_int_equal(sigismember(&masked, SIGALRM), 1);
    fake.where_count++;
    assert_int_equal(out->version, VARJFS_IOC_VERSION);
    out->offset = fake.appended;
    return 0;
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
    union {
        struct varjfs_edit edit;
        struct varjfs_stage stage;
    } out;
    uint8_t in[VARJFS_IOC_MAX + 1]; /* a whole number of words, for the casts below */
    size_t bytes = _IOC_SIZE(request);
    va_list args;
    void *argument;
    int result;

    va_start(args, request);
    argument = va_arg(args, void *);
    va_end(args);
    if (!fake.varjfs) {
        assert_true(fake.fuse); /* other file systems never see our numbers */
        return fake.foreign_errno == 0 ? 0 : fail_with(fake.foreign_errno);
    }
    assert_int_equal(_IOC_TYPE(request), VARJFS_IOC_MAGIC);
    if (request == VARJFS_IOC_PING) {
        fake.ping_count++;
        return fake.version;
    }
    assert_int_equal(_IOC_DIR(request), _IOC_READ | _IOC_WRITE);
    assert_true(bytes <= VARJFS_IOC_MAX);
    memcpy(in, argument, bytes);
    if (request == VARJFS_IOC_EDIT_DROP) {
        return fake_where(argument);
    }
    if (_IOC_NR(request) == _IOC_NR(VARJFS_IOC_STAGE(0))) {
        result = fake_stage((struct varjfs_stage *)(void *)in, bytes, &out.stage);
        memcpy(argument, &out.stage, sizeof out.stage);
    } else {
        assert_int_equal(_IOC_NR(request), _IOC_NR(VARJFS_IOC_EDIT(0)));
        memcpy(&fake.hole, in, sizeof fake.hole);
        if ((fake.hole.flags & VARJFS_EDIT_HOLE) != 0) {
            fake.hole_count++;
            return fake_hole(bytes, argument);
        }
        result = fake_edit(fd, (struct varjfs_edit *)(void *)in, bytes, &out.edit);
        memcpy(argument, &out.edit, sizeof out.edit);
    }
    return result;
}

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long to_count,
                                const struct iovec *from, unsigned long from_count,
                                unsigned long flags)
{
    if (fake.no_vm_readv) {
        return fail_with(EPERM);
    }
    return __real_process_vm_readv(pid, to, to_count, from, from_count, flags);
}

VjFallocate64 *__wrap_vj_next_fallocate64(void)
{
    return __wrap_fallocate64;
}

int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len)
{
    if (fake.staged.carry.call != VARJFS_CARRY_NOTHING) {
        return carry_staged(fd, VARJFS_CARRY_FALLOCATE, (uint32_t)mode, offset, len);
    }
    return fake.fallocate_errno != 0 ? fail_with(fake.fallocate_errno)
                                     : __real_fallocate64(fd, mode, offset, len);
}

ssize_t __wrap_pwrite64(int fd, const void *src, size_t len, off_t offset)
{
    if (fake.fail_pwrite > 0 && --fake.fail_pwrite == 0) {
        return fail_with(fake.fail_errno);
    }
    return __real_pwrite64(fd, src, len, offset);
}

ssize_t __wrap_pwritev64v2(int fd, const struct iovec *iov, int count, off_t offset,
                           int flags)
{
    if (fake.no_noappend) {
        return fail_with(EOPNOTSUPP);
    }
    return __real_pwritev64v2(fd, iov, count, offset, flags);
}

static int setup(void **state)
{
    memset(&fake, 0, sizeof fake);
    fake.stage = g_byte_array_new();
    fake.fuse = fake.varjfs = true;
    fake.version = VARJFS_IOC_VERSION;
    fake.foreign_errno = ENOTTY;
    return fixture_setup(state);
}

static int teardown(void **state)
{
    assert_int_equal(fake.stage_id, 0);
    g_byte_array_unref(fake.stage);
    return fixture_teardown(state);
}

/* ---- on varjfs --------------------------------------------------------------------- */

static void test_small_edit_is_two_calls(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 1000);
    fixture_rpwrite(f, "insert", 6, 100, 0);
    fake.fstatfs_count = fake.ping_count = fake.edit_count = 0;
    fixture_rpwrite(f, "insert", 6, 100, 0);
    assert_int_equal(fake.fstatfs_count, 0);
    assert_int_equal(fake.ping_count, 0);
    assert_int_equal(fake.edit_count, 1);
    assert_int_equal(fake.stage_count, 0);
    fixture_rpwrite(f, NULL, 0, 10, 500);
    fixture_expect_model(f);
    assert_int_equal(fake.edit_count, 2);
    assert_int_equal(fake.carry_count[VARJFS_CARRY_FALLOCATE], 2);
    assert_int_equal(fake.carry_count[VARJFS_CARRY_FTRUNCATE], 1);
    /* Changes nothing. */
    fixture_rpwrite(f, NULL, 0, 10000, VARJFS_DELETE_SIZE_LEN + 1);
    assert_int_equal(fake.edit_count, 3);
    assert_int_equal(fake.carry_count[VARJFS_CARRY_FTRUNCATE], 1);
    fixture_expect_model(f);
}

/* Of the same file, where the kernel held no page behind the one before. */
static void test_the_next_delete_is_one_call(void **state)
{
    Fixture *f = *state;
    VjEdit e = {.fd = f->fd, .offset = 100, .old_len = 500, .mount = 77, .ino = 5},
           big = e;
    struct rlimit before, limit;

    big.old_len = VARJFS_DELETE_SIZE_LEN + 1;
    fixture_fill(f, 50000);
#define DELETE(e)                                                                        \
    do {                                                                                 \
        assert_int_equal(vj_edit_by_ioctl(&(e), 99), 0);                                 \
        model_replace(f->model, NULL, 0, (e).offset, (e).old_len);                       \
        fixture_expect_model(f);                                                         \
    } while (0)
    DELETE(e);
    assert_int_equal(fake.edit_count, 1);
    DELETE(e);
    e.old_len = VARJFS_DELETE_SIZE_LEN;
    DELETE(e);
    assert_int_equal(fake.edit_count, 1);
    assert_int_equal(fake.at_once_count, 2);
    /* Too long for the number; past its offsets. */
    DELETE(big);
    assert_int_equal(fake.edit_count, 2);
    e.offset = (uint64_t)1 << VARJFS_DELETE_SIZE_OFFSET_BITS;
    DELETE(e);
    assert_int_equal(fake.edit_count, 3);
    /* The kernel would compare the number with the limit. */
    e.offset = 100;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    DELETE(e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(fake.edit_count, 4);
    /* Pages were read meanwhile. */
    fake.at_once_errno = EFBIG;
    DELETE(e);
    assert_int_equal(fake.edit_count, 5);
    assert_int_equal(fake.at_once_count, 3);
    fake.at_once_errno = EIO;
    assert_int_equal(vj_edit_by_ioctl(&e, 99), -EIO);
    assert_int_equal(fake.edit_count, 5);
    /* Another file, another mount, and where mounts have no number. */
    fake.at_once_errno = 0;
    DELETE(e);
    e.ino++;
    DELETE(e);
    e.mount++;
    DELETE(e);
    e.mount = 0;
    DELETE(e);
    DELETE(e);
    assert_int_equal(fake.edit_count, 10);
    assert_int_equal(fake.at_once_count, 4);
#undef DELETE
}

/* What fallocate(2) becomes: one request, however long, and the device is remembered. */
static void test_holes(void **state)
{
    Fixture *f = *state;
    VjEdit insert = {.fd = f->fd, .offset = 10, .len = (uint64_t)1 << 50, .hole = true};
    VjDevice device = 4711;

    fixture_fill(f, 1000);
    assert_int_equal(vj_edit_by_ioctl(&insert, device), 0);
    assert_int_equal(fake.hole.offset, 10);
    assert_int_equal(fake.hole.len, (uint64_t)1 << 50);
    assert_int_equal(fake.hole.old_len, 0);
    assert_int_equal(vj_edit_by_ioctl(&insert, device), 0);
    assert_int_equal(fake.ping_count, 1);
    fake.fail_errno = EINVAL; /* not before the end of the file */
    assert_int_equal(vj_edit_by_ioctl(&insert, device), -EINVAL);
    fake.fail_errno = ENOSPC;
    assert_int_equal(vj_edit_by_ioctl(&insert, device), -ENOSPC);
    /* The kernel's answer holds where the daemon is of another version, or the file is
     * elsewhere. */
    fake.version = VARJFS_IOC_VERSION - 1;
    assert_int_equal(vj_edit_by_ioctl(&insert, device + 1), -EOPNOTSUPP);
    fake.fail_errno = EINVAL;
    assert_int_equal(vj_edit_by_ioctl(&insert, device), -EOPNOTSUPP);
    fake.fail_errno = 0;
    fake.varjfs = false;
    assert_int_equal(vj_edit_by_ioctl(&insert, device), -EOPNOTSUPP);
    fake.fuse = false;
    assert_int_equal(vj_edit_by_ioctl(&insert, device + 2), -EOPNOTSUPP);
    assert_int_equal(fake.hole_count, 5);
}

/* The size has changed since the edit was staged: again, with the data that was sent
 * before, and in the end whatever becomes of the size. */
static void test_overtaken(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *data = g_malloc0(100000);

    fixture_fill(f, 1000);
    fixture_rpwrite(f, "known", 5, 0, 0);
    memset(fake.carry_count, 0, sizeof fake.carry_count);
    fake.edit_count = 0;
    fake.overtaken = 3;
    fixture_rpwrite(f, data, 100000, 100, 0);
    fixture_expect_model(f);
    assert_int_equal(fake.edit_count, 4);
    assert_int_equal(fake.carry_count[VARJFS_CARRY_FALLOCATE], 4);
    fake.overtaken = 1000;
    fixture_rpwrite(f, data, 100000, 100, 0);
    fixture_expect_model(f);
    assert_int_equal(fake.carry_count[VARJFS_CARRY_FTRUNCATE], 1);
    assert_true(fake.overtaken > 900);
    assert_int_equal(fake.drop_count, 0);
    assert_int_equal(fake.where_count, 0);
}

/* Where it went nobody knows but the daemon. */
static void test_overtaken_append(void **state)
{
    Fixture *f = *state;
    VJ_AUTO_FD fd = -1;

    fixture_fill(f, 1000);
    fd = open(f->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    fake.overtaken = 1000;
    assert_int_equal(rwrite(fd, "end", 3, 0), 3);
    model_replace(f->model, (const uint8_t *)"end", 3, 1000, 0);
    assert_int_equal(fake.where_count, 1);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 1003);
    fixture_expect_model(f);
}

static void test_same_length_is_pwrite(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 1000);
    fixture_rpwrite(f, "same", 4, 100, 4);
    fixture_expect_model(f);
    assert_int_equal(fake.edit_count, 0);
}

static void test_inline_and_staged(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *data = g_malloc0(STEP);

    fixture_fill(f, 1000);
    fixture_rpwrite(f, data, VARJFS_EDIT_INLINE_MAX, 100, 0);
    assert_int_equal(fake.stage_count, 0);
    fixture_rpwrite(f, data, VARJFS_EDIT_INLINE_MAX + 1, 100, 0);
    assert_int_equal(fake.stage_count, 1);
    assert_int_equal(fake.edit_count, 2);
    fake.stage_count = 0;
    fixture_rpwrite(f, data, STEP, 100, 3);
    assert_int_equal(fake.stage_count,
                     (STEP + VARJFS_STAGE_DATA_MAX - 1) / VARJFS_STAGE_DATA_MAX);
    assert_int_equal(fake.edit_count, 3);
    fixture_expect_model(f);
}

static void test_long_edits_go_in_steps(void **state)
{
    Fixture *f = *state;
    size_t len = 2 * STEP + 77;
    g_autofree uint8_t *data = g_malloc(len);

    vj_test_fill_pattern(data, len);
    fixture_fill(f, 3000);
    fixture_rpwrite(f, data, len, 100, 50);
    assert_int_equal(fake.edit_count, 3);
    fixture_expect_model(f);
    fixture_rpwrite(f, data, STEP + 1, 50, 2 * STEP);
    assert_int_equal(fake.edit_count, 5);
    fixture_expect_model(f);
}

/* The first step is in the file, with as many old bytes gone; going on completes the
 * call. */
static void test_short_return(void **state)
{
    Fixture *f = *state;
    size_t len = 2 * STEP;
    g_autofree uint8_t *data = g_malloc(len);

    vj_test_fill_pattern(data, len);
    for (int longer = 0; longer < 2; longer++) {
        size_t old_len = longer ? len + 1000 : 100;

        fixture_fill(f, len + 3000);
        fake.edit_count = 0;
        fake.fail_edit = 2;
        fake.fail_errno = ENOSPC;
        assert_int_equal(rpwrite(f->fd, data, len, 500, old_len), STEP);
        model_replace(f->model, data, STEP, 500, MIN(old_len, STEP));
        fixture_expect_model(f);
        assert_int_equal(rpwrite(f->fd, data + STEP, len - STEP, 500 + (off_t)STEP,
                                 old_len - MIN(old_len, STEP)),
                         len - STEP);
        model_replace(f->model, data + STEP, len - STEP, 500 + STEP,
                      old_len - MIN(old_len, STEP));
        fixture_expect_model(f);
    }
}

static void test_rwrite_offset_after_short_return(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *data = g_malloc0(STEP + 1);

    fixture_fill(f, 3000);
    fake.fail_edit = 2;
    fake.fail_errno = EIO;
    assert_int_equal(lseek(f->fd, 1000, SEEK_SET), 1000);
    assert_int_equal(rwrite(f->fd, data, STEP + 1, 0), STEP);
    assert_int_equal(lseek(f->fd, 0, SEEK_CUR), 1000 + STEP);
}

static void test_append_flag(void **state)
{
    Fixture *f = *state;
    VJ_AUTO_FD fd = -1;
    g_autofree uint8_t *data = g_malloc0(STEP + 1);

    fixture_fill(f, 3000);
    fd = open(f->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(rwrite(fd, data, STEP + 1, 20), STEP + 1);
    model_replace(f->model, data, STEP + 1, 3000, 0);
    assert_int_equal(fake.edit_count, 2);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), f->model->len);
    assert_int_equal(rpwrite(fd, "same", 4, 10, 4), 4); /* a pwrite would append */
    model_replace(f->model, (const uint8_t *)"same", 4, 10, 4);
    assert_int_equal(fake.edit_count, 3);
    fixture_expect_model(f);
}

static void test_errors_of_the_edit(void **state)
{
    static const int errors[] = {ENOSPC, EROFS, EIO, EFBIG, EINTR, EINVAL, EPERM};
    Fixture *f = *state;

    fixture_fill(f, 3000);
    fixture_rpwrite(f, "x", 1, 0, 0);
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        fake.edit_count = 0;
        fake.fail_edit = 1;
        fake.fail_errno = errors[i];
        FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "insert", 6, 10, 0), errors[i]);
        assert_int_equal(fake.edit_count, 1);
    }
}

static void test_errors_of_the_stage(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *data = g_malloc0(100000);

    fixture_fill(f, 3000);
    fake.fail_errno = ENOSPC;
    fake.fail_stage = 1;
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, data, 100000, 10, 0), ENOSPC);
    assert_int_equal(fake.drop_count, 0);
    fake.stage_count = 0;
    fake.fail_stage = 3;
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, data, 100000, 10, 0), ENOSPC);
    assert_int_equal(fake.drop_count, 1);
    assert_int_equal(fake.edit_count, 0);
}

static void expect_bad_buffers(Fixture *f)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map =
        mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + 7 * page, page, PROT_NONE), 0);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, NULL, 5, 10, 0), EFAULT);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, map + 7 * page - 3, 5, 10, 0), EFAULT);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, map + 1, 7 * page, 10, 0), EFAULT);
    fixture_rpwrite(f, map, 7 * page, 10, 0);
    fixture_expect_model(f);
    assert_int_equal(munmap(map, 8 * page), 0);
}

static void test_bad_buffer_drops_the_stage(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 3000);
    expect_bad_buffers(f);
    assert_int_equal(fake.drop_count, 1);
}

static void test_without_process_vm_readv(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 3000);
    fake.no_vm_readv = true;
    expect_bad_buffers(f);
    assert_int_equal(fake.drop_count, 1);
}

static volatile sig_atomic_t xfsz_count;

static void count_xfsz(int number)
{
    (void)number;
    xfsz_count++;
}

typedef struct Limited {
    struct sigaction old_action;
    struct rlimit old_limit;
} Limited;

static void limit_file_size(Limited *l, rlim_t bytes)
{
    struct sigaction count = {.sa_handler = count_xfsz};
    struct rlimit limit;

    assert_int_equal(sigaction(SIGXFSZ, &count, &l->old_action), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &l->old_limit), 0);
    limit = l->old_limit;
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    xfsz_count = 0;
}

static void unlimit_file_size(Limited *l)
{
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &l->old_limit), 0);
    assert_int_equal(sigaction(SIGXFSZ, &l->old_action, NULL), 0);
}

static void test_file_size_limit(void **state)
{
    Fixture *f = *state;
    Limited limited;

    fixture_fill(f, 5000);
    limit_file_size(&limited, 5000);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "xx", 2, 100, 1), EFBIG);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "x", 1, 5000, 20), EFBIG);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "xx", 2, 4999, 20), EFBIG);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "x", 1, 6000, 0), EFBIG);
    assert_int_equal(xfsz_count, 4);
    assert_int_equal(fake.carry_count[VARJFS_CARRY_FALLOCATE], 4);
    fixture_rpwrite(f, "x", 1, 100, 2);
    fixture_rpwrite(f, NULL, 0, 6000, 2);
    assert_int_equal(fake.carry_count[VARJFS_CARRY_FALLOCATE_SEEK], 1);
    assert_int_equal(fake.seek_count, 1);
    assert_int_equal(fake.carry_count[VARJFS_CARRY_FTRUNCATE], 0);
    unlimit_file_size(&limited);
    fixture_expect_model(f);
    limit_file_size(&limited, 3000); /* what makes it no longer is allowed all the same */
    fixture_rpwrite(f, "xx", 2, 100, 3);
    fixture_rpwrite(f, NULL, 0, 4000, 10);
    assert_int_equal(xfsz_count, 0);
    /* Beside who changes the size too. */
    fake.overtaken = 1000;
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "xxxx", 4, 100, 1), EFBIG);
    assert_int_equal(xfsz_count, 1);
    unlimit_file_size(&limited);
    fake.overtaken = 0;
    fixture_expect_model(f);
}

/* Who is overtaken each time gives up at last, with a word that is not "try again". */
static void test_overtaken_for_ever(void **state)
{
    Fixture *f = *state;
    Limited limited;

    fixture_fill(f, 5000);
    fake.overtaken = 900; /* without a limit of the process it does not come so far */
    fixture_rpwrite(f, "xx", 2, 100, 1);
    assert_true(fake.overtaken > 800);
    limit_file_size(&limited, 100000);
    fixture_rpwrite(f, "xx", 2, 100, 1);
    assert_int_equal(fake.overtaken, 0);
    fake.overtaken = 1000000;
    fake.now_ns = 0;
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "xx", 2, 100, 1), EBUSY);
    assert_in_range(fake.now_ns, (int64_t)5000000000, (int64_t)7000000000);
    assert_in_range(fake.overtaken, 1000000 - 10000, 1000000 - 1024);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, f->model->data, 20000, 100, 1), EBUSY);
    assert_true(fake.overtaken > 900000);
    assert_int_equal(fake.stage_id, 0); /* what was sent before went too */
    unlimit_file_size(&limited);
    fake.overtaken = 0;
    fixture_expect_model(f);
}

/* ---- elsewhere --------------------------------------------------------------------- */

/* The library may remember our device: one foreign answer makes it forget. */
static void go_elsewhere(Fixture *f)
{
    fake.varjfs = false;
    fixture_rpwrite(f, "forget", 6, 0, 0);
    fake.fuse = false;
}

static void test_others_see_no_ioctl(void **state)
{
    Fixture *f = *state;

    fixture_fill(f, 100000);
    go_elsewhere(f);
    fixture_rpwrite(f, "insert", 6, 10, 0);
    fixture_expect_model(f);
    assert_int_equal(fake.edit_count, 0);
}

static void test_other_fuse_file_systems(void **state)
{
    static const int answers[] = {ENOTTY, EINVAL, ENOSYS, EOPNOTSUPP, EPERM, EACCES, 0};
    Fixture *f = *state;

    fixture_fill(f, 100000);
    for (size_t i = 0; i < G_N_ELEMENTS(answers); i++) {
        fake.varjfs = true;
        fixture_rpwrite(f, "known now", 9, 10, 0);
        fake.varjfs = false; /* the device's number belongs to another one now */
        fake.foreign_errno = answers[i];
        fixture_rpwrite(f, "insert", 6, 10, 0);
        fixture_expect_model(f);
        fixture_rpwrite(f, "again", 5, 10, 0); /* and now it is asked first */
        fixture_rpwrite(f, f->model->data, 20000, 30, 0);
        fixture_expect_model(f);
    }
    fake.foreign_errno = ENOTCONN;
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "insert", 6, 10, 0), ENOTCONN);
}

static void test_append_mode_on_old_kernels(void **state)
{
    Fixture *f = *state;
    VJ_AUTO_FD fd = -1;

    fixture_fill(f, 600000);
    go_elsewhere(f);
    fake.no_noappend = true;
    fd = open(f->path, O_RDWR | O_APPEND | O_CLOEXEC);
    assert_int_equal(rpwrite(fd, "insert", 6, 100, 0), 6);
    model_replace(f->model, (const uint8_t *)"insert", 6, 100, 0);
    assert_int_equal(rpwrite(fd, "same", 4, 200, 4), 4);
    model_replace(f->model, (const uint8_t *)"same", 4, 200, 4);
    assert_int_equal(rpwrite(fd, NULL, 0, 300, 4000), 0);
    model_replace(f->model, NULL, 0, 300, 4000);
    fixture_expect_model(f);
}

/* Every write of a growing edit fails once: the file is as it was. */
static void test_failed_moves_are_put_back(void **state)
{
    Fixture *f = *state;
    unsigned n;

    fixture_fill(f, 900000);
    go_elsewhere(f);
    fake.fail_errno = EIO;
    for (n = 1; n < 100; n++) {
        fake.fail_pwrite = n;
        errno = 0;
        if (rpwrite(f->fd, "insert", 6, 1000, 2) == 6) {
            break;
        }
        assert_int_equal(errno, EIO);
        fixture_expect_model(f);
    }
    assert_int_equal(n, 6); /* four blocks, the data, and then none failed */
    fake.fail_pwrite = 0;
    model_replace(f->model, (const uint8_t *)"insert", 6, 1000, 2);
    fixture_expect_model(f);
    fake.fail_pwrite = 1;
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "ab", 2, 1000, 50), EIO);
}

/* Moving a tail writes up to the new end: refused before it begins. */
static void test_limit_of_moves(void **state)
{
    Fixture *f = *state;
    Limited limited;

    fixture_fill(f, 10000);
    go_elsewhere(f);
    limit_file_size(&limited, 6000);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, NULL, 0, 100, 10), EFBIG);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "x", 1, 100, 10), EFBIG);
    FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "x", 1, 100, 0), EFBIG);
    assert_int_equal(xfsz_count, 3);
    fixture_rpwrite(f, NULL, 0, 8000, SIZE_MAX); /* nothing moves */
    fixture_rpwrite(f, NULL, 0, 100, 7000);
    fixture_rpwrite(f, "insert", 6, 100, 0);
    unlimit_file_size(&limited);
    fixture_expect_model(f);
}

/* No space is found before the first byte moves; a file system without fallocate will
 * do. */
static void test_space_is_reserved_first(void **state)
{
    static const int none[] = {EOPNOTSUPP, ENOSYS};
    static const int full[] = {ENOSPC, EDQUOT, EFBIG};
    Fixture *f = *state;

    fixture_fill(f, 300000);
    go_elsewhere(f);
    for (size_t i = 0; i < G_N_ELEMENTS(full); i++) {
        fake.fallocate_errno = full[i];
        FIXTURE_EXPECT_ERRNO(f, rpwrite(f->fd, "insert", 6, 10, 0), full[i]);
        fixture_rpwrite(f, "in", 2, 10, 3);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(none); i++) {
        fake.fallocate_errno = none[i];
        fixture_rpwrite(f, "insert", 6, 10, 0);
        fixture_expect_model(f);
    }
}

/*
 * The environment is read when the library is loaded: this program started again.  Its
 * arguments say that it is the child.
 */
static int strict_child(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    int append = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

    if (fd < 0 || append < 0) {
        return 10;
    }
    if (rpwrite(fd, "insert", 6, 1, 0) != -1 || errno != EOPNOTSUPP) {
        return 11;
    }
    if (rpwrite(fd, NULL, 0, 1, 1) != -1 || errno != EOPNOTSUPP) {
        return 12;
    }
    if (rwrite(append, "end", 3, 0) != -1 || errno != EOPNOTSUPP) {
        return 13;
    }
    if (rpwrite(fd, "same", 4, 1, 4) != 4 || rwrite(fd, NULL, 0, 0) != 0) {
        return 14;
    }
    fake.fuse = fake.varjfs = true;
    fake.version = VARJFS_IOC_VERSION;
    fake.stage = g_byte_array_new();
    return rpwrite(fd, "insert", 6, 1, 0) == 6 ? 0 : 15;
}

static void test_strict(void **state)
{
    Fixture *f = *state;
    char *argv[] = {(char *)"/proc/self/exe", (char *)"--strict-child", f->path, NULL};
    g_auto(GStrv) envp = g_environ_setenv(g_get_environ(), "RWRITE_STRICT", "1", TRUE);
    g_autoptr(GError) error = NULL;
    int status;

    fixture_fill(f, 100);
    assert_true(g_spawn_sync(NULL, argv, envp, G_SPAWN_DEFAULT, NULL, NULL, NULL, NULL,
                             &status, &error));
    assert_int_equal(status, 0);
    model_replace(f->model, (const uint8_t *)"same", 4, 1, 4);
    model_replace(f->model, (const uint8_t *)"insert", 6, 1, 0);
    fixture_expect_model(f);
}

static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    TEST(test_small_edit_is_two_calls),
    TEST(test_the_next_delete_is_one_call),
    TEST(test_holes),
    TEST(test_overtaken),
    TEST(test_overtaken_append),
    TEST(test_same_length_is_pwrite),
    TEST(test_inline_and_staged),
    TEST(test_long_edits_go_in_steps),
    TEST(test_short_return),
    TEST(test_rwrite_offset_after_short_return),
    TEST(test_append_flag),
    TEST(test_errors_of_the_edit),
    TEST(test_errors_of_the_stage),
    TEST(test_bad_buffer_drops_the_stage),
    TEST(test_without_process_vm_readv),
    TEST(test_file_size_limit),
    TEST(test_overtaken_for_ever),
    TEST(test_others_see_no_ioctl),
    TEST(test_other_fuse_file_systems),
    TEST(test_append_mode_on_old_kernels),
    TEST(test_failed_moves_are_put_back),
    TEST(test_limit_of_moves),
    TEST(test_space_is_reserved_first),
    TEST(test_strict),
};

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--strict-child") == 0) {
        return strict_child(argv[2]);
    }
    if (argc == 3 && strcmp(argv[1], "-p") == 0) {
        cmocka_set_test_filter(argv[2]);
    } else if (argc != 1) {
        fprintf(stderr, "usage: %s [-p PATTERN]\n", argv[0]);
        return 2;
    }
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
