/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mount-ops.c - system calls, and what they ought to do to the shadow
 *
 * The shadow is changed and noted first, then the call is made: when the daemon dies
 * within it, both what was and what was to be are in the history.
 */
#include "mount-model.h"

#include "varjfs/ioctl.h"
#include "varjfs/rwrite.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- files ----------------------------------------------------------------------- */

/* UINT_MAX: the name of a new version that is about to be renamed over the file. */
char *file_path(const Process *p, const MountFile *f, unsigned name)
{
    return name == UINT_MAX ? g_strdup_printf("%s/f%u.new", p->dir, f->number)
                            : g_strdup_printf("%s/f%u.%u", p->dir, f->number, name);
}

static void map_file(Process *p, MountFile *f)
{
    f->map = mmap(NULL, p->o->size * 2, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
    if (f->map == MAP_FAILED) {
        f->map = NULL;
        failed_call(p, f, "mmap");
    }
}

static void unmap_file(Process *p, MountFile *f)
{
    if (f->map != NULL) {
        munmap(f->map, p->o->size * 2);
        f->map = NULL;
    }
}

static void open_at(Process *p, MountFile *f, const char *path, int flags)
{
    f->fd = open(path, O_RDWR | O_CLOEXEC | flags, 0644);
    if (f->fd < 0) {
        failed_call(p, f, "open");
    }
    f->append_fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (f->append_fd < 0) {
        /* Nobody else knows of the first one, which would keep a dead mount busy. */
        vj_fd_close(&f->fd);
        failed_call(p, f, "open to append");
    }
}

void file_open(Process *p, MountFile *f)
{
    g_autofree char *path = file_path(p, f, f->name);

    open_at(p, f, path, 0);
}

/* Errors of close() are those of earlier writes, which an fsync has told or will tell. */
void file_close(MountFile *f)
{
    if (f->fd >= 0) {
        close(f->fd);
    }
    if (f->append_fd >= 0) {
        close(f->append_fd);
    }
    f->fd = f->append_fd = -1;
}

void file_make(Process *p, MountFile *f)
{
    g_autofree char *path = file_path(p, f, f->name);

    f->birth++;
    shadow_truncate(&f->shadow, 0);
    f->last = 0;
    f->fd = f->append_fd = -1;
    history_note_missing(p, f);
    history_note(p, f);
    open_at(p, f, path, O_CREAT | O_EXCL);
}

/* ---- where and how much ---------------------------------------------------------- */

static size_t any_offset(Process *p, const MountFile *f)
{
    return any_offset_of(&p->rng, &f->shadow, f->last);
}

static size_t edit_most(const Process *p)
{
    return p->o->size / 4;
}

/* ---- changes --------------------------------------------------------------------- */

static void edit(Process *p, MountFile *f, size_t offset, size_t old_len, size_t len)
{
    ssize_t done;

    say(p, "rpwrite %u at %zu old %zu new %zu (of %zu)", f->number, offset, old_len, len,
        f->shadow.len);
    data_fill(p->pool, &p->rng, p->data, len);
    shadow_replace(&f->shadow, offset, old_len, p->data, len);
    f->last = offset + len;
    history_note(p, f);
    done = rpwrite(f->fd, p->data, len, (off_t)offset, old_len);
    if (done < 0) {
        failed_call(p, f, "rpwrite");
    }
    if ((size_t)done != len) {
        wrong(p, "file %u: rpwrite of %zu bytes returned %zd", f->number, len, done);
    }
}

static void op_replace(Process *p, MountFile *f)
{
    size_t len = data_length(&p->rng, edit_most(p));

    edit(p, f, any_offset(p, f), data_length(&p->rng, edit_most(p)), len);
}

static void op_insert(Process *p, MountFile *f)
{
    size_t len = data_length(&p->rng, edit_most(p));

    edit(p, f, any_offset(p, f), 0, len);
}

static void op_delete(Process *p, MountFile *f)
{
    size_t most = vj_rng_below(&p->rng, 10) == 0 ? p->o->size : edit_most(p);

    edit(p, f, any_offset(p, f), data_length(&p->rng, most), 0);
}

/*
 * write(2) is as many steps as the kernel makes of it: it sends the rest of a page that
 * it has not in its cache by itself.  An edit is one step.
 */
static void shadow_plain_write(Process *p, MountFile *f, size_t offset, size_t len)
{
    size_t first = 4096 - offset % 4096;

    if (first < 4096 && first < len) {
        shadow_write(&f->shadow, offset, p->data, first);
        history_note(p, f);
    }
    shadow_write(&f->shadow, offset, p->data, len);
}

/*
 * Before write(2) makes the file longer: the page that holds the end is clean.  When it
 * is written back at that moment, by whatever, the kernel clears what lies behind the end
 * that it knows, in any FUSE file system (doc/page-cache.md, "Known limits").
 */
static void clean_end(Process *p, const MountFile *f)
{
    const unsigned how =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;

    if (f->map != NULL &&
        sync_file_range(f->fd, (off_t)(f->shadow.len & ~(size_t)4095), 4096, how) < 0) {
        failed_call(p, f, "sync_file_range");
    }
}

static void write_at(Process *p, MountFile *f, size_t offset, size_t len)
{
    ssize_t done;

    say(p, "pwrite %u at %zu len %zu (of %zu)", f->number, offset, len, f->shadow.len);
    if (offset + len > f->shadow.len) {
        clean_end(p, f);
    }
    data_fill(p->pool, &p->rng, p->data, len);
    shadow_plain_write(p, f, offset, len);
    f->last = offset + len;
    history_note(p, f);
    done = pwrite(f->fd, p->data, len, (off_t)offset);
    if (done < 0) {
        failed_call(p, f, "pwrite");
    }
    if ((size_t)done != len) {
        wrong(p, "file %u: pwrite of %zu bytes returned %zd", f->number, len, done);
    }
}

static void op_write(Process *p, MountFile *f)
{
    write_at(p, f, any_offset(p, f), data_length(&p->rng, edit_most(p)));
}

static void op_append(Process *p, MountFile *f)
{
    size_t len = data_length(&p->rng, edit_most(p));
    bool by_edit = vj_rng_below(&p->rng, 4) == 0;
    ssize_t done;

    say(p, "append %u len %zu (of %zu)", f->number, len, f->shadow.len);
    if (!by_edit) {
        clean_end(p, f);
    }
    data_fill(p->pool, &p->rng, p->data, len);
    if (by_edit) {
        shadow_write(&f->shadow, f->shadow.len, p->data, len);
    } else {
        shadow_plain_write(p, f, f->shadow.len, len);
    }
    f->last = f->shadow.len;
    history_note(p, f);
    done = by_edit ? rwrite(f->append_fd, p->data, len, 0)
                   : write(f->append_fd, p->data, len);
    if (done < 0) {
        failed_call(p, f, "append");
    }
    if ((size_t)done != len) {
        wrong(p, "file %u: an append of %zu bytes returned %zd", f->number, len, done);
    }
}

static void op_truncate(Process *p, MountFile *f)
{
    size_t size = vj_rng_below(&p->rng, 4) == 0
                      ? f->shadow.len + vj_rng_below(&p->rng, edit_most(p))
                      : vj_rng_below(&p->rng, f->shadow.len + 1);

    say(p, "ftruncate %u to %zu (of %zu)", f->number, size, f->shadow.len);
    shadow_truncate(&f->shadow, size);
    history_note(p, f);
    if (ftruncate(f->fd, (off_t)size) < 0) {
        failed_call(p, f, "ftruncate");
    }
}

static void op_punch(Process *p, MountFile *f)
{
    static const int modes[] = {
        FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
        FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, FALLOC_FL_KEEP_SIZE};
    int mode = modes[vj_rng_below(&p->rng, G_N_ELEMENTS(modes))];
    size_t offset = any_offset(p, f), len = data_length(&p->rng, edit_most(p));

    say(p, "fallocate %u mode %d at %zu len %zu (of %zu)", f->number, mode, offset, len,
        f->shadow.len);
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
        shadow_punch(&f->shadow, offset, len, !(mode & FALLOC_FL_KEEP_SIZE));
    } else if (mode == 0 && offset + len > f->shadow.len) {
        shadow_truncate(&f->shadow, offset + len);
    }
    history_note(p, f);
    if (fallocate(f->fd, mode, (off_t)offset, (off_t)len) < 0) {
        failed_call(p, f, "fallocate");
    }
}

/* One call.  A copy that is short is another state than the one that was noted. */
static void op_copy(Process *p, MountFile *f)
{
    unsigned n = (unsigned)vj_rng_below(&p->rng, p->o->files + SHARED_FILES);
    bool own = n < p->o->files;
    const Shadow *src = own ? &p->files[n].shadow : &p->shared[n - p->o->files];
    int src_fd = own ? p->files[n].fd : p->shared_fd[n - p->o->files];
    off_t from = (off_t)vj_rng_below(&p->rng, src->len + 1), to = (off_t)any_offset(p, f);
    size_t len = data_length(&p->rng, p->o->size / 2);
    size_t want = MIN(len, src->len - (size_t)from);
    g_autofree uint8_t *bytes = NULL;
    ssize_t done;

    if (own && n == f->number && from < to + (off_t)len && to < from + (off_t)len) {
        return;
    }
    say(p, "copy %u at %lld to %u at %lld len %zu", n, (long long)from, f->number,
        (long long)to, len);
    bytes = want > 0 ? g_memdup2(src->bytes + from, want) : NULL;
    if (want > 0) {
        shadow_write(&f->shadow, (size_t)to, bytes, want);
        f->last = (size_t)to + want;
    }
    history_note(p, f);
    done = copy_file_range(src_fd, &from, f->fd, &to, len, 0);
    if (done < 0) {
        failed_call(p, f, "copy_file_range");
    }
    if ((size_t)done != want) {
        wrong(p, "file %u: copy_file_range of %zu bytes returned %zd", f->number, want,
              done);
    }
}

/* Stores through a mapping; in a test that kills the daemon, durable at once: the kernel
 * keeps dirty pages for as long as it likes. */
static void op_store(Process *p, MountFile *f)
{
    bool durable = p->o->pid_file != NULL;
    size_t offset, len;

    if (f->shadow.len == 0) {
        return;
    }
    offset = vj_rng_below(&p->rng, f->shadow.len);
    len = data_length(&p->rng, durable ? 16 : edit_most(p));
    len = MIN(len, f->shadow.len - offset);
    if (durable) {
        len = MIN(len, 4096 - offset % 4096);
    }
    if (f->map == NULL) {
        map_file(p, f);
    }
    say(p, "store %u at %zu len %zu (of %zu)", f->number, offset, len, f->shadow.len);
    data_fill(p->pool, &p->rng, p->data, len);
    shadow_write(&f->shadow, offset, p->data, len);
    history_note(p, f);
    memcpy(f->map + offset, p->data, len);
    if (durable) {
        if (msync(f->map + (offset & ~(size_t)4095), 4096, MS_SYNC) < 0) {
            failed_call(p, f, "msync");
        }
        history_durable(p, f);
    }
}

/* ---- looking --------------------------------------------------------------------- */

/* What the daemon says, past the page cache. */
static const char *opinion_of_daemon(const MountFile *f, size_t at)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", f->fd);
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    uint8_t byte;
    ssize_t got = fd >= 0 ? pread(fd, &byte, 1, (off_t)at) : -1;

    if (fd >= 0) {
        close(fd);
    }
    return got != 1                      ? "cannot say"
           : byte == f->shadow.bytes[at] ? "has it right"
                                         : "has it wrong too";
}

static void compare(Process *p, const MountFile *f, const char *how, size_t offset,
                    const uint8_t *got, size_t len)
{
    size_t same = len > 0 ? shadow_difference(f->shadow.bytes + offset, got, len) : 0;

    if (same != len) {
        size_t last = len - 1, count = 0;

        for (size_t i = same; i < len; i++) {
            if (got[i] != f->shadow.bytes[offset + i]) {
                last = i;
                count++;
            }
        }
        wrong(p,
              "file %u of %zu bytes by %s: byte %zu is %02x, not %02x; the daemon %s;"
              " %zu bytes differ, the last one is %zu",
              f->number, f->shadow.len, how, offset + same, got[same],
              f->shadow.bytes[offset + same], opinion_of_daemon(f, offset + same), count,
              offset + last);
    }
}

static void read_range(Process *p, MountFile *f, size_t offset, size_t len)
{
    size_t want = offset < f->shadow.len ? MIN(len, f->shadow.len - offset) : 0;
    ssize_t got;

    say(p, "pread %u at %zu len %zu (of %zu)", f->number, offset, len, f->shadow.len);
    got = pread(f->fd, p->back, len, (off_t)offset);
    if (got < 0) {
        failed_call(p, f, "pread");
    }
    if ((size_t)got != want) {
        wrong(p, "file %u of %zu bytes: pread at %zu gave %zd bytes, not %zu", f->number,
              f->shadow.len, offset, got, want);
    }
    compare(p, f, "pread", offset, p->back, want);
}

static void op_read(Process *p, MountFile *f)
{
    read_range(p, f, any_offset(p, f), data_length(&p->rng, edit_most(p)));
}

static void op_read_map(Process *p, MountFile *f)
{
    size_t offset, len;

    if (f->shadow.len == 0) {
        return;
    }
    if (f->map == NULL) {
        map_file(p, f);
    }
    offset = vj_rng_below(&p->rng, f->shadow.len);
    len = data_length(&p->rng, edit_most(p));
    len = MIN(len, f->shadow.len - offset);
    say(p, "read map %u at %zu len %zu (of %zu)", f->number, offset, len, f->shadow.len);
    compare(p, f, "mmap", offset, f->map + offset, len);
}

static void op_stat(Process *p, MountFile *f)
{
    struct stat st;

    if (fstat(f->fd, &st) < 0) {
        failed_call(p, f, "fstat");
    }
    if ((size_t)st.st_size != f->shadow.len) {
        wrong(p, "file %u: its size is %lld, not %zu", f->number, (long long)st.st_size,
              f->shadow.len);
    }
    if (st.st_nlink != 1) {
        wrong(p, "file %u: it has %lu links", f->number, (unsigned long)st.st_nlink);
    }
}

static void op_seek(Process *p, MountFile *f)
{
    size_t offset = any_offset(p, f), len = f->shadow.len, to;
    off_t at;

    if (f->map != NULL) { /* the kernel asks the daemon, which has not seen dirty pages */
        return;
    }
    at = lseek(f->fd, (off_t)offset, SEEK_DATA);
    if (at < 0 && errno != ENXIO) {
        failed_call(p, f, "lseek");
    }
    to = at < 0 ? len : (size_t)at;
    for (size_t i = offset; i < MIN(to, len); i++) {
        if (f->shadow.bytes[i] != 0) {
            wrong(p, "file %u: SEEK_DATA from %zu gave %lld and passed %zu", f->number,
                  offset, (long long)at, i);
        }
    }
}

void file_compare(Process *p, MountFile *f)
{
    op_stat(p, f);
    for (size_t at = 0; at < f->shadow.len; at += edit_most(p)) {
        read_range(p, f, at, edit_most(p));
    }
    read_range(p, f, f->shadow.len, 10);
    if (f->map != NULL && f->shadow.len > 0) {
        compare(p, f, "mmap", 0, f->map, f->shadow.len);
    }
}

/* ---- durability and names -------------------------------------------------------- */

static void op_sync(Process *p, MountFile *f)
{
    bool data_only = vj_rng_below(&p->rng, 2) == 0;

    say(p, "fsync %u", f->number);
    if ((data_only ? fdatasync(f->fd) : fsync(f->fd)) < 0) {
        failed_call(p, f, "fsync");
    }
    history_durable(p, f);
}

static void op_reopen(Process *p, MountFile *f)
{
    say(p, "reopen %u", f->number);
    unmap_file(p, f);
    file_close(f);
    file_open(p, f);
}

static void op_unmap(Process *p, MountFile *f)
{
    unmap_file(p, f);
}

static void op_rename(Process *p, MountFile *f)
{
    g_autofree char *old = file_path(p, f, f->name);
    g_autofree char *new = file_path(p, f, f->name + 1);

    say(p, "rename %u", f->number);
    f->name++;
    history_note(p, f);
    if (rename(old, new) < 0) {
        failed_call(p, f, "rename");
    }
}

/* As editors save: a new file with all of the content takes the name.  No fsync. */
static void op_rename_over(Process *p, MountFile *f)
{
    g_autofree char *beside = file_path(p, f, UINT_MAX);
    g_autofree char *path = file_path(p, f, f->name);
    size_t len = data_length(&p->rng, edit_most(p));
    MountFile new = {.number = f->number};
    ssize_t done;

    say(p, "rename over %u, %zu bytes", f->number, len);
    data_fill(p->pool, &p->rng, p->data, len);
    open_at(p, &new, beside, O_CREAT | O_EXCL);
    done = write(new.fd, p->data, len);
    if (done < 0 || (size_t)done != len) {
        file_close(&new);
        failed_call(p, f, "write of a new version");
    }
    unmap_file(p, f);
    f->birth++;
    shadow_truncate(&f->shadow, 0);
    shadow_write(&f->shadow, 0, p->data, len);
    f->last = len;
    history_note(p, f);
    if (rename(beside, path) < 0) {
        file_close(&new);
        failed_call(p, f, "rename over");
    }
    file_close(f);
    f->fd = new.fd;
    f->append_fd = new.append_fd;
}

static void op_unlink(Process *p, MountFile *f)
{
    g_autofree char *path = file_path(p, f, f->name);

    say(p, "unlink %u", f->number);
    history_note_missing(p, f);
    if (unlink(path) < 0) {
        failed_call(p, f, "unlink");
    }
    read_range(p, f, 0, edit_most(p)); /* it is still there for who has it open */
    unmap_file(p, f);
    file_close(f);
    f->name++;
    file_make(p, f);
}

/* What is written from now on; a build may lack it. */
static void op_choose(Process *p, MountFile *f)
{
    const char *text = any_transform(&p->rng);

    say(p, "choose %u: %s", f->number, text);
    if (fsetxattr(f->fd, "user.varjfs.transform", text, strlen(text), 0) < 0 &&
        errno != EINVAL) {
        failed_call(p, f, "fsetxattr");
    }
}

/* Some steps, or all: no byte changes. */
static void op_recode(Process *p, MountFile *f)
{
    struct varjfs_recode io = {.version = VARJFS_IOC_VERSION};
    uint64_t steps = vj_rng_below(&p->rng, 3) == 0 ? UINT64_MAX : 1;

    say(p, "recode %u", f->number);
    for (uint64_t i = 0; i < steps && io.cursor != VARJFS_RECODE_END; i++) {
        io.flags = 0;
        if (ioctl(f->fd, VARJFS_IOC_RECODE, &io) < 0) {
            failed_call(p, f, "recode");
        }
        if (io.unreadable > 0) {
            wrong(p, "file %u: %llu bytes cannot be read, says recode", f->number,
                  (unsigned long long)io.unreadable);
        }
    }
}

/* Reads somebody else's file: its pages come back in the middle of edits. */
static void op_disturb(Process *p, MountFile *f)
{
    unsigned other = (unsigned)vj_rng_below(&p->rng, p->o->processes);
    uint64_t skip = vj_rng_below(&p->rng, p->o->files);
    g_autofree char *path = g_strdup_printf("%s/p%u", p->o->dir, other);
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    const char *name = NULL;

    (void)f;
    for (uint64_t i = 0; dir != NULL && i <= skip; i++) {
        name = g_dir_read_name(dir);
    }
    if (name != NULL) {
        g_autofree char *file = g_build_filename(path, name, NULL);
        int fd = open(file, O_RDONLY | O_CLOEXEC);

        for (int i = 0; fd >= 0 && i < 4; i++) {
            off_t at = (off_t)vj_rng_below(&p->rng, p->o->size);

            if (pread(fd, p->back, data_length(&p->rng, edit_most(p)), at) < 0) {
                break; /* what it says is not ours to judge */
            }
        }
        if (fd >= 0) {
            close(fd);
        }
    }
}

static const struct {
    Weight weight;
    void (*run)(Process *p, MountFile *f);
} ops[] = {
    {{200, false}, op_read},   {{60, false}, op_read_map}, {{20, false}, op_stat},
    {{60, true}, op_replace},  {{90, true}, op_insert},    {{70, false}, op_delete},
    {{100, true}, op_write},   {{60, true}, op_append},    {{60, false}, op_store},
    {{12, true}, op_truncate}, {{30, true}, op_punch},     {{40, true}, op_copy},
    {{15, false}, op_seek},    {{10, false}, op_sync},     {{8, false}, op_reopen},
    {{20, false}, op_unmap},   {{8, false}, op_rename},    {{4, false}, op_rename_over},
    {{2, false}, op_unlink},   {{40, false}, op_disturb},  {{8, false}, op_choose},
    {{3, false}, op_recode},
};

static void shrink(Process *p, MountFile *f)
{
    if (vj_rng_below(&p->rng, 3) == 0) {
        op_truncate(p, f);
    } else {
        size_t at = vj_rng_below(&p->rng, f->shadow.len);

        edit(p, f, at, f->shadow.len - at - vj_rng_below(&p->rng, f->shadow.len - at), 0);
    }
}

void run_op(Process *p)
{
    MountFile *f = &p->files[vj_rng_below(&p->rng, p->o->files)];
    size_t i;

    if (f->history != NULL && f->history->len >= HISTORY_MOST) {
        op_sync(p, f);
    }
    i = any_of(&p->rng, &ops[0].weight, G_N_ELEMENTS(ops), sizeof ops[0]);
    if (ops[i].weight.grows && f->shadow.len >= p->o->size) {
        shrink(p, f);
    } else {
        ops[i].run(p, f);
    }
}
