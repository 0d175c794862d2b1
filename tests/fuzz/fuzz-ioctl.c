/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ioctls as they reach the daemon: any command number, any argument, on a file that is
 * open for reading and writing, one that is open for reading, and a directory, by root
 * and by a user.  Each is answered exactly once, by an answer that fits it; what an
 * answer asks for is carried out, or with other numbers; then the file can be read.
 *
 * libfuse's functions that answer are replaced here.  The input: calls of who and what
 * (1), command (1), how long the argument is (2), the argument.
 */
#include "fuzz-volume.h"

#include "front/front-private.h"
#include "varjfs/ioctl.h"

#include <fcntl.h>
#include <linux/fs.h>

#define CALLS_MAX 12
#define START_BYTES 16384u

/* ---- the kernel -------------------------------------------------------------------- */

static struct {
    GMutex lock;
    GCond answered;
    int answers;                              /* to the call under way */
    int error;                                /* positive */
    size_t out_bytes;                         /* of the answer */
    uint8_t out[sizeof(struct varjfs_shift)]; /* its beginning */
} kernel;

static VjFront *front;
static struct fuse_ctx context;
/* Requests are told apart by nobody: one at a time. */
static char request;

static int reply(int error, size_t bytes)
{
    g_mutex_lock(&kernel.lock);
    kernel.answers++;
    kernel.error = error;
    kernel.out_bytes = bytes;
    g_cond_signal(&kernel.answered);
    g_mutex_unlock(&kernel.lock);
    return 0;
}

int fuse_reply_err(fuse_req_t req, int error)
{
    g_assert((void *)req == &request && error >= 0 && error < 4096);
    return reply(error, 0);
}

int fuse_reply_ioctl(fuse_req_t req, int result, const void *buf, size_t size)
{
    uint8_t sum = 0;

    g_assert((void *)req == &request && result >= 0);
    for (size_t i = 0; i < size; i++) {
        sum ^= ((const uint8_t *)buf)[i]; /* all of it can be read */
    }
    (void)sum;
    memset(kernel.out, 0, sizeof kernel.out);
    if (size > 0) {
        memcpy(kernel.out, buf, MIN(size, sizeof kernel.out));
    }
    return reply(0, size);
}

int fuse_reply_attr(fuse_req_t req, const struct stat *attr, double timeout)
{
    g_assert((void *)req == &request && attr->st_size >= 0 && timeout >= 0);
    return reply(0, 0);
}

void *fuse_req_userdata(fuse_req_t req)
{
    g_assert((void *)req == &request);
    return front;
}

const struct fuse_ctx *fuse_req_ctx(fuse_req_t req)
{
    g_assert((void *)req == &request);
    return &context;
}

/* Nobody is killed. */
void fuse_req_interrupt_func(fuse_req_t req, fuse_interrupt_func_t func, void *data)
{
    (void)func;
    (void)data;
    g_assert((void *)req == &request);
}

int fuse_lowlevel_notify_inval_inode(struct fuse_session *session, fuse_ino_t ino,
                                     off_t offset, off_t len)
{
    (void)session;
    (void)len;
    g_assert(ino != 0 && offset >= -1);
    return 0;
}

/* ---- the daemon -------------------------------------------------------------------- */

static struct {
    char *dir;
    VjFs *fs;
    VjHandle *writer, *reader;
    uint64_t ino;
} world;

static void world_end(void)
{
    fuzz_dir_remove(world.dir);
}

/* Once for the process: each input begins with the same content, and without stages. */
static void world_begin(void)
{
    VjVolume *v;

    world.dir = fuzz_dir_new();
    atexit(world_end);
    fuzz_volume_make(world.dir, "objects=2K");
    v = fuzz_volume_open(world.dir, false);
    world.fs = vj_fs_new(v);
    front = g_new0(VjFront, 1);
    front->fs = world.fs;
    vj_mutex_init(&front->lock, VJ_RANK_FRONT, "front");
    g_queue_init(&front->sync_jobs);
    front->handles = g_hash_table_new(NULL, NULL);
    front->waiting = g_hash_table_new(NULL, NULL);
    front->awaited = g_hash_table_new(NULL, NULL);
    front->left = g_hash_table_new(NULL, NULL);
    front->coherence = vj_coherence_new();
    front->staged = vj_staged_edits_new();
    front->editor = vj_editor_new(front);
    front->syncers = g_thread_pool_new(vj_front_sync_job, front, 4, FALSE, NULL);
}

static void open_files(void)
{
    g_autofree uint8_t *bytes = g_malloc(START_BYTES);
    VjAttr attr;

    for (size_t i = 0; i < START_BYTES; i++) {
        bytes[i] = (uint8_t)(i / 64);
    }
    g_assert(vj_fs_create(world.fs, &fuzz_root, VJ_INO_ROOT, "f", 0644, O_RDWR | O_TRUNC,
                          &attr, &world.writer) == 0);
    world.ino = attr.st.st_ino;
    g_assert(vj_fs_open(world.fs, &fuzz_root, world.ino, O_RDONLY, &world.reader) == 0);
    g_assert(vj_fs_write(world.writer, 0, bytes, START_BYTES, 0, NULL) == 0);
}

static void close_files(void)
{
    uint8_t bytes[4096];
    size_t got;

    g_assert(vj_fs_read(world.reader, 0, bytes, sizeof bytes, &got) == 0);
    vj_front_handle_drop(front, world.reader);
    vj_front_handle_drop(front, world.writer);
    g_assert(vj_fs_set_flags(world.fs, NULL, world.ino, 0) == 0);
    g_assert(vj_fs_set_flags(world.fs, NULL, VJ_INO_ROOT, 0) == 0);
    g_assert(vj_fs_unlink(world.fs, VJ_INO_ROOT, "f") == 0);
}

/* ---- calls ------------------------------------------------------------------------- */

/* The kernel's own, whose numbers chance does not find. */
static bool is_about_flags(uint8_t who, uint8_t number, unsigned *cmd)
{
    static const unsigned commands[] = {FS_IOC_GETFLAGS, FS_IOC_SETFLAGS,
                                        FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR};

    *cmd = commands[number % G_N_ELEMENTS(commands)];
    return (who & 0x40) && number >= 0xf0;
}

static void call_begin(void)
{
    g_mutex_lock(&kernel.lock);
    kernel.answers = 0;
    g_mutex_unlock(&kernel.lock);
}

static void call_end(size_t room)
{
    g_mutex_lock(&kernel.lock);
    while (kernel.answers == 0) {
        g_cond_wait(&kernel.answered, &kernel.lock);
    }
    g_assert(kernel.answers == 1);
    g_assert(kernel.out_bytes <= room);
    g_assert(kernel.error != EIO);
    g_mutex_unlock(&kernel.lock);
}

/* What the last answer names, or @number away from it. */
static void carry_out(size_t carry_at, uint8_t number)
{
    struct fuse_file_info fi = {.fh = (uint64_t)(uintptr_t)world.writer};
    struct varjfs_carry carry;
    struct stat st = {.st_size = 0};

    memcpy(&carry, kernel.out + carry_at, sizeof carry);
    call_begin();
    if (carry.call == VARJFS_CARRY_FALLOCATE_FTRUNCATE) {
        vj_front_fallocate((fuse_req_t)&request, world.ino, (int)carry.mode,
                           (off_t)(carry.offset ^ number), 1, &fi);
        call_end(0);
        call_begin();
    }
    if (carry.call == VARJFS_CARRY_FTRUNCATE ||
        carry.call == VARJFS_CARRY_FALLOCATE_FTRUNCATE) {
        st.st_size = (off_t)(carry.len ^ number);
        vj_front_ops.setattr((fuse_req_t)&request, world.ino, &st, FUSE_SET_ATTR_SIZE,
                             &fi);
    } else {
        vj_front_fallocate((fuse_req_t)&request, world.ino, (int)carry.mode,
                           (off_t)(carry.offset ^ number), (off_t)carry.len, &fi);
    }
    call_end(0);
}

static void call(uint8_t who, uint8_t number, VjSlice argument)
{
    struct fuse_file_info fi = {.fh = 0};
    bool on_dir = (who & 3) == 3;
    unsigned type = who & 0x40 ? number : VARJFS_IOC_MAGIC;
    unsigned nr = who & 0x20 ? number : number % 12;
    /* Without a direction back the kernel has no room for an answer. */
    size_t room = who & 0x08 ? 0 : argument.len;
    unsigned cmd = _IOC(room > 0 ? _IOC_READ | _IOC_WRITE : _IOC_WRITE, type, nr,
                        (unsigned)argument.len);
    g_autofree uint8_t *exact = g_memdup2(argument.data, argument.len);
    unsigned flags_cmd;

    if (is_about_flags(who, number, &flags_cmd)) {
        cmd = flags_cmd;
        front->knows_who_sets_flags = (who & 0x80) != 0;
    }

    context = (struct fuse_ctx){.uid = who & 0x10 ? 0 : 1000, .gid = 1000};
    fi.fh = (uint64_t)(uintptr_t)((who & 3) == 2 ? world.reader : world.writer);
    call_begin();
    vj_front_ioctl((fuse_req_t)&request, on_dir ? VJ_INO_ROOT : world.ino, cmd, NULL, &fi,
                   on_dir ? FUSE_IOCTL_DIR : 0, argument.len > 0 ? exact : NULL,
                   argument.len, room);
    call_end(room);
    if (kernel.error == 0 && kernel.out_bytes == sizeof(struct varjfs_edit) &&
        _IOC_NR(cmd) == _IOC_NR(VARJFS_IOC_EDIT(0))) {
        carry_out(offsetof(struct varjfs_edit, carry), number / 12 % 4);
    } else if (kernel.error == 0 && kernel.out_bytes == sizeof(struct varjfs_shift) &&
               _IOC_NR(cmd) == _IOC_NR(VARJFS_IOC_SHIFT(0))) {
        carry_out(offsetof(struct varjfs_shift, carry), number / 12 % 4);
    }
}

/* A right version, so that what lies behind it is reached. */
static void set_version(uint8_t *bytes, size_t len)
{
    const uint32_t version = VARJFS_IOC_VERSION;

    if (len >= sizeof version) {
        memcpy(bytes, &version, sizeof version);
    }
}

FUZZ_MUTATIONS(20);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    VjReader in = vj_reader(vj_slice(data, len));

    fuzz_quiet();
    if (world.dir == NULL) {
        world_begin();
    }
    open_files();
    for (int n = 0; n < CALLS_MAX && in.left > 4; n++) {
        uint8_t who = vj_read_u8(&in), number = vj_read_u8(&in);
        size_t want = vj_read_u16(&in) & 0x3fff;
        g_autofree uint8_t *argument = g_malloc0(want + 1);
        VjSlice given = vj_read_bytes(&in, MIN(in.left, want));

        if (given.len > 0) {
            memcpy(argument, given.data, given.len);
        }
        if (who & 0x80) {
            set_version(argument, want);
        }
        call(who, number, vj_slice(argument, want));
    }
    close_files();
    return 0;
}
