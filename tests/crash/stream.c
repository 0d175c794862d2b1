/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* stream.c - see stream.h */
#include "stream.h"

#include "record.h"
#include "varjfs/ioctl.h"
#include "varjfs/rwrite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define TRIES_MOST 1000u

/* ---- marks ------------------------------------------------------------------------- */

void stream_failed(const StreamWriter *w, const char *format, ...)
{
    int saved_errno = errno;
    va_list args;

    fprintf(stderr, "workload: stream %s: ", w->name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, ": %s\n", g_strerror(saved_errno));
    exit(EXIT_FAILURE);
}

static void append_mark(const StreamWriter *w, const char *text)
{
    VjRecordHead head = {.magic = VJ_RECORD_MAGIC,
                         .kind = VJ_RECORD_MARK,
                         .pid = (uint32_t)getpid(),
                         .data_bytes = strlen(text)};
    struct iovec iov[2] = {{&head, sizeof head},
                           {(void *)(uintptr_t)text, head.data_bytes}};

    if (writev(w->log_fd, iov, 2) != (ssize_t)(sizeof head + head.data_bytes)) {
        stream_failed(w, "the log");
    }
}

void stream_note(const StreamWriter *w, const char *text)
{
    append_mark(w, text);
}

static void G_GNUC_PRINTF(2, 3) mark(StreamWriter *w, const char *format, ...)
{
    g_autoptr(GString) text = g_string_new(w->name);
    va_list args;

    g_string_append_c(text, ' ');
    va_start(args, format);
    g_string_append_vprintf(text, format, args);
    va_end(args);
    append_mark(w, text->str);
}

static void G_GNUC_PRINTF(2, 3) step(StreamWriter *w, const char *format, ...)
{
    g_autofree char *text = NULL;
    va_list args;

    va_start(args, format);
    text = g_strdup_vprintf(format, args);
    va_end(args);
    w->steps++;
    mark(w, "n %s", text);
}

/* The shadow holds what the next call may bring. */
static void mark_content(StreamWriter *w, WFile *f)
{
    f->version++;
    mark(w, "c %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT " %zu %" G_GINT64_MODIFIER "x",
         f->number, f->version, f->shadow.len,
         vj_checksum64(f->shadow.bytes, f->shadow.len));
}

static void mark_durable(StreamWriter *w, WFile *f)
{
    if (f->durable != f->version) {
        mark(w, "d %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT, f->number, f->version);
        f->durable = f->version;
    }
}

static void mark_names_durable(StreamWriter *w, uint64_t steps)
{
    mark(w, "D %" G_GUINT64_FORMAT, steps);
}

/* ---- a device that fails ----------------------------------------------------------- */

/* A flush makes the daemon try at once what failed; whether that fails too does not
 * matter. */
static bool try_again(StreamWriter *w, unsigned *tries)
{
    if (!w->repeats || errno != EIO || ++*tries > TRIES_MOST) {
        return false;
    }
    (void)!fsync(w->dir_fd);
    errno = EIO;
    return true;
}

/* The value of a system call, which is made again as long as it gives EIO. */
#define TRY(w_, call_)                                                                   \
    ({                                                                                   \
        unsigned tries_ = 0;                                                             \
        long r_;                                                                         \
        do {                                                                             \
            r_ = (long)(call_);                                                          \
        } while (r_ < 0 && try_again(w_, &tries_));                                      \
        r_;                                                                              \
    })

/* ---- streams and files ------------------------------------------------------------- */

void stream_open(StreamWriter *w, const char *mount_point, const char *name, int log_fd,
                 const DataPool *pool, uint64_t seed)
{
    *w = (StreamWriter){.name = name,
                        .dir = g_build_filename(mount_point, name, NULL),
                        .log_fd = log_fd,
                        .pool = pool,
                        .open = g_ptr_array_new()};
    vj_rng_init(&w->rng, seed);
    if (mkdir(w->dir, 0755) < 0) {
        stream_failed(w, "mkdir");
    }
    w->dir_fd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->dir_fd < 0 || fsync(w->dir_fd) < 0) {
        stream_failed(w, "fsync of the directory");
    }
    mark_names_durable(w, 0);
}

void stream_close(StreamWriter *w)
{
    while (w->open->len > 0) {
        stream_drop(w, w->open->pdata[0]);
    }
    g_ptr_array_unref(w->open);
    close(w->dir_fd);
    g_free(w->dir);
}

static WFile *file_new(StreamWriter *w, int fd, const char *path)
{
    WFile *f = g_new0(WFile, 1);
    struct stat st;

    f->path = g_strdup(path);
    f->number = w->files;
    f->fd = fd;
    if (fd < 0 || TRY(w, fstat(fd, &st)) < 0) {
        stream_failed(w, "making file %" G_GUINT64_FORMAT, f->number);
    }
    mark(w, "i %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT, f->number, (uint64_t)st.st_ino);
    g_ptr_array_add(w->open, f);
    return f;
}

WFile *stream_create(StreamWriter *w, const char *path)
{
    w->files++;
    step(w, "+%s=%" G_GUINT64_FORMAT, path, w->files);
    return file_new(
        w,
        (int)TRY(w, openat(w->dir_fd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644)),
        path);
}

WFile *stream_tmpfile(StreamWriter *w)
{
    int fd = (int)TRY(w, openat(w->dir_fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0644));

    if (fd < 0 && errno == EOPNOTSUPP) {
        return NULL;
    }
    w->files++;
    return file_new(w, fd, NULL);
}

void stream_drop(StreamWriter *w, WFile *f)
{
    /* An error of a write-back that nobody waited for may be told here. */
    if (f->fd >= 0 && close(f->fd) < 0 && !(w->repeats && errno == EIO)) {
        stream_failed(w, "close");
    }
    g_ptr_array_remove(w->open, f);
    shadow_clear(&f->shadow);
    g_free(f->path);
    g_free(f);
}

/* ---- contents ---------------------------------------------------------------------- */

static uint8_t *some_bytes(StreamWriter *w, size_t len)
{
    uint8_t *bytes = g_malloc(len + 1);

    data_fill(w->pool, &w->rng, bytes, len);
    return bytes;
}

void stream_replace(StreamWriter *w, WFile *f, size_t offset, size_t old_len, size_t len)
{
    g_autofree uint8_t *bytes = some_bytes(w, len);

    shadow_replace(&f->shadow, offset, old_len, bytes, len);
    mark_content(w, f);
    if (TRY(w, rpwrite(f->fd, bytes, len, (off_t)offset, old_len)) != (ssize_t)len) {
        stream_failed(w, "rpwrite");
    }
}

/*
 * The kernel makes two requests of a write that begins within a page which it does not
 * have and ends behind it: that page's part alone is a content too.
 */
static void do_write(StreamWriter *w, WFile *f, size_t offset, size_t len, int flags)
{
    g_autofree uint8_t *bytes = some_bytes(w, len);
    size_t in_page = PAGE_BYTES - offset % PAGE_BYTES;

    if (in_page < len) {
        shadow_write(&f->shadow, offset, bytes, in_page);
        mark_content(w, f);
    }
    shadow_write(&f->shadow, offset, bytes, len);
    mark_content(w, f);
    /* Short where the second request failed. */
    for (size_t done = 0; done < len;) {
        struct iovec iov = {bytes + done, len - done};
        ssize_t r = TRY(w, pwritev2(f->fd, &iov, 1, (off_t)(offset + done), flags));

        if (r <= 0) {
            stream_failed(w, "write");
        }
        done += (size_t)r;
    }
}

void stream_write(StreamWriter *w, WFile *f, size_t offset, size_t len)
{
    do_write(w, f, offset, len, 0);
}

void stream_write_sync(StreamWriter *w, WFile *f, size_t offset, size_t len)
{
    do_write(w, f, offset, len, RWF_DSYNC);
    mark_durable(w, f);
    mark_names_durable(w, w->steps);
}

void stream_truncate(StreamWriter *w, WFile *f, size_t size)
{
    shadow_truncate(&f->shadow, size);
    mark_content(w, f);
    if (TRY(w, ftruncate(f->fd, (off_t)size)) < 0) {
        stream_failed(w, "ftruncate");
    }
}

void stream_punch(StreamWriter *w, WFile *f, size_t offset, size_t len)
{
    shadow_punch(&f->shadow, offset, len, false);
    mark_content(w, f);
    if (TRY(w, fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                         (off_t)len)) < 0) {
        stream_failed(w, "fallocate");
    }
}

void stream_copy(StreamWriter *w, WFile *from, size_t from_offset, WFile *to,
                 size_t offset, size_t len)
{
    g_autofree uint8_t *bytes = NULL;
    off_t in = (off_t)from_offset, out = (off_t)offset;
    Shadow before = {.len = 0};
    ssize_t copied;

    if (from_offset >= from->shadow.len) {
        return;
    }
    len = MIN(len, from->shadow.len - from_offset);
    bytes = g_memdup2(from->shadow.bytes + from_offset, len);
    shadow_write(&before, 0, to->shadow.bytes, to->shadow.len);
    shadow_write(&to->shadow, offset, bytes, len);
    mark_content(w, to);
    copied = TRY(w, copy_file_range(from->fd, &in, to->fd, &out, len, 0));
    if (copied < 0) {
        stream_failed(w, "copy_file_range");
    }
    if ((size_t)copied == len) {
        shadow_clear(&before);
        return;
    }
    /* It may be short, which is known only now. */
    shadow_clear(&to->shadow);
    to->shadow = before;
    shadow_write(&to->shadow, offset, bytes, (size_t)copied);
    mark_content(w, to);
}

void stream_edit(StreamWriter *w, WFile *f, WFile *other, size_t most)
{
    size_t size = f->shadow.len, len = data_length(&w->rng, STREAM_WRITE_MOST / 2);
    size_t offset = (size_t)vj_rng_below(&w->rng, size + 1);

    if (size + len > most) {
        stream_truncate(w, f, (size_t)vj_rng_below(&w->rng, size + 1));
        return;
    }
    switch (vj_rng_below(&w->rng, 9)) {
    case 0:
    case 1:
        stream_write(w, f, offset, len);
        break;
    case 2:
    case 3:
        stream_replace(w, f, offset, 0, len);
        break;
    case 4:
        stream_replace(w, f, offset, len, 0);
        break;
    case 5:
        stream_replace(w, f, offset, data_length(&w->rng, 4096), len);
        break;
    case 6:
        stream_write(w, f, size, len);
        break;
    case 7:
        if (other == f) {
            stream_punch(w, f, offset, len);
        } else {
            stream_copy(w, other, (size_t)vj_rng_below(&w->rng, other->shadow.len + 1), f,
                        offset, len);
        }
        break;
    default:
        stream_truncate(w, f, offset + (size_t)vj_rng_below(&w->rng, 5000));
    }
}

void stream_fsync(StreamWriter *w, WFile *f, bool data_only)
{
    if (TRY(w, data_only ? fdatasync(f->fd) : fsync(f->fd)) < 0) {
        stream_failed(w, "fsync");
    }
    mark_durable(w, f);
    mark_names_durable(w, w->steps);
}

static void all_durable(StreamWriter *w)
{
    for (guint i = 0; i < w->open->len; i++) {
        mark_durable(w, w->open->pdata[i]);
    }
    mark_names_durable(w, w->steps);
}

void stream_sync_all(StreamWriter *w)
{
    if (TRY(w, ioctl(w->dir_fd, VARJFS_IOC_SYNC)) < 0) {
        stream_failed(w, "sync");
    }
    all_durable(w);
}

GPtrArray *stream_to_keep(const StreamWriter *w)
{
    GPtrArray *marks = g_ptr_array_new_with_free_func(g_free);

    for (guint i = 0; i < w->open->len; i++) {
        const WFile *f = w->open->pdata[i];

        g_ptr_array_add(marks,
                        g_strdup_printf("%s k %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT,
                                        w->name, f->number, f->version));
    }
    g_ptr_array_add(marks, g_strdup_printf("%s K %" G_GUINT64_FORMAT, w->name, w->steps));
    return marks;
}

void stream_kept(const StreamWriter *w, GPtrArray *to_keep)
{
    for (guint i = 0; i < to_keep->len; i++) {
        append_mark(w, to_keep->pdata[i]);
    }
    g_ptr_array_unref(to_keep);
}

void stream_close_files(StreamWriter *w)
{
    for (guint i = 0; i < w->open->len; i++) {
        WFile *f = w->open->pdata[i];

        if (close(f->fd) < 0) {
            stream_failed(w, "close");
        }
        f->fd = -1;
    }
    close(w->dir_fd);
    w->dir_fd = -1;
}

void stream_reopen(StreamWriter *w)
{
    w->dir_fd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->dir_fd < 0) {
        stream_failed(w, "open");
    }
    for (guint i = 0; i < w->open->len; i++) {
        WFile *f = w->open->pdata[i];

        f->fd = openat(w->dir_fd, f->path, O_RDWR | O_CLOEXEC);
        if (f->fd < 0) {
            stream_failed(w, "open %s", f->path);
        }
    }
    all_durable(w);
}

/* ---- names ------------------------------------------------------------------------- */

void stream_mkdir(StreamWriter *w, const char *path)
{
    step(w, "+%s=d", path);
    if (TRY(w, mkdirat(w->dir_fd, path, 0755)) < 0) {
        stream_failed(w, "mkdir %s", path);
    }
}

void stream_rmdir(StreamWriter *w, const char *path)
{
    step(w, "-%s", path);
    if (TRY(w, unlinkat(w->dir_fd, path, AT_REMOVEDIR)) < 0) {
        stream_failed(w, "rmdir %s", path);
    }
}

void stream_link(StreamWriter *w, WFile *f, const char *path)
{
    g_autofree char *from = g_strdup_printf("/proc/self/fd/%d", f->fd);

    step(w, "+%s=%" G_GUINT64_FORMAT, path, f->number);
    if (TRY(w, linkat(AT_FDCWD, from, w->dir_fd, path, AT_SYMLINK_FOLLOW)) < 0) {
        stream_failed(w, "link %s", path);
    }
    if (f->path == NULL) {
        f->path = g_strdup(path);
    }
}

void stream_unlink(StreamWriter *w, const char *path)
{
    step(w, "-%s", path);
    if (TRY(w, unlinkat(w->dir_fd, path, 0)) < 0) {
        stream_failed(w, "unlink %s", path);
    }
}

void stream_rename(StreamWriter *w, WFile *f, const char *from, const char *to,
                   bool replaces)
{
    if (replaces) {
        step(w, "-%s +%s=%" G_GUINT64_FORMAT " ^%" G_GUINT64_FORMAT "=%" G_GUINT64_FORMAT,
             from, to, f->number, f->number, f->version);
    } else {
        step(w, "-%s +%s=%" G_GUINT64_FORMAT, from, to, f->number);
    }
    if (TRY(w, renameat(w->dir_fd, from, w->dir_fd, to)) < 0) {
        stream_failed(w, "rename %s %s", from, to);
    }
    g_free(f->path);
    f->path = g_strdup(to);
}

void stream_exchange(StreamWriter *w, WFile *a, const char *a_path, WFile *b,
                     const char *b_path)
{
    step(w,
         "+%s=%" G_GUINT64_FORMAT " +%s=%" G_GUINT64_FORMAT " ^%" G_GUINT64_FORMAT
         "=%" G_GUINT64_FORMAT " ^%" G_GUINT64_FORMAT "=%" G_GUINT64_FORMAT,
         a_path, b->number, b_path, a->number, a->number, a->version, b->number,
         b->version);
    if (TRY(w, renameat2(w->dir_fd, a_path, w->dir_fd, b_path, RENAME_EXCHANGE)) < 0) {
        stream_failed(w, "exchange %s %s", a_path, b_path);
    }
    g_free(a->path);
    g_free(b->path);
    a->path = g_strdup(b_path);
    b->path = g_strdup(a_path);
}

void stream_sync_names(StreamWriter *w)
{
    if (TRY(w, fsync(w->dir_fd)) < 0) {
        stream_failed(w, "fsync of the directory");
    }
    mark_names_durable(w, w->steps);
}
