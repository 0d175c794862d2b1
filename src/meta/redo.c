/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * redo.c - the redo log as a file: made, written to, read without believing it
 *
 * The blocks are written with zeroes once, when the file is made: a sync after a write to
 * a block that was set aside and never written has to wait for the file system's own
 * journal.  Records go past the page cache where they may: to write a page back costs as
 * much as all else in a small sync.
 */
#include "meta/redo-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES VJ_MIB

/* ---- Records in memory ------------------------------------------------------------- */

void vj_redo_point_encode(const VjRedoPoint *p, VjRedoState *out)
{
    VjWriter w = vj_writer(out, sizeof *out);

    vj_write_bytes(&w, VJ_REDO_STATE_MAGIC, sizeof out->magic);
    vj_write_u32(&w, 0);
    vj_write_bytes(&w, p->id, sizeof p->id);
    vj_write_u64(&w, p->round);
    vj_write_u64(&w, p->seq);
    vj_write_u64(&w, vj_checksum64(out, offsetof(VjRedoState, checksum)));
    g_assert(!w.bad && w.used == sizeof *out);
}

int vj_redo_point_decode(VjSlice bytes, VjRedoPoint *out)
{
    const VjRedoState *s = bytes.data;

    if (bytes.len != sizeof *s ||
        memcmp(s->magic, VJ_REDO_STATE_MAGIC, sizeof s->magic) != 0 ||
        vj_le32_get(s->reserved) != 0 ||
        vj_le64_get(s->checksum) != vj_checksum64(s, offsetof(VjRedoState, checksum))) {
        return -EBADMSG;
    }
    memcpy(out->id, s->id, sizeof out->id);
    out->round = vj_le64_get(s->round);
    out->seq = vj_le64_get(s->seq);
    /* Neither comes near its end in any life of a volume. */
    return out->round > 0 && out->round < UINT64_MAX / 2 && out->seq < UINT64_MAX / 2
               ? 0
               : -EBADMSG;
}

void vj_redo_head_encode(const VjRedo *log, VjRedoHead *out)
{
    VjWriter w = vj_writer(out, sizeof *out);

    vj_write_bytes(&w, VJ_REDO_MAGIC, sizeof out->magic);
    vj_write_u32(&w, VJ_REDO_VERSION);
    vj_write_u32(&w, VJ_REDO_BLOCK_BYTES);
    vj_write_bytes(&w, log->id, sizeof log->id);
    vj_write_u64(&w, log->half_bytes);
    vj_write_u64(&w, 0);
    vj_write_u64(&w, 0);
    vj_write_u64(&w, vj_checksum64(out, offsetof(VjRedoHead, checksum)));
    g_assert(!w.bad && w.used == sizeof *out);
}

static uint64_t file_bytes(uint64_t half_bytes)
{
    return VJ_REDO_BLOCK_BYTES + 2 * half_bytes;
}

/* The largest halves of a file of @bytes. */
static uint64_t half_of(uint64_t bytes)
{
    return (bytes - VJ_REDO_BLOCK_BYTES) / 2 / VJ_REDO_BLOCK_BYTES * VJ_REDO_BLOCK_BYTES;
}

static int head_decode(const VjRedoHead *h, VjRedo *log)
{
    static const uint8_t zeroes[sizeof h->reserved];

    if (memcmp(h->magic, VJ_REDO_MAGIC, sizeof h->magic) != 0) {
        return -EBADMSG;
    }
    if (vj_le64_get(h->checksum) != vj_checksum64(h, offsetof(VjRedoHead, checksum))) {
        return -EBADMSG;
    }
    if (vj_le32_get(h->version) != VJ_REDO_VERSION) {
        return -EPROTONOSUPPORT;
    }
    memcpy(log->id, h->id, sizeof log->id);
    log->half_bytes = vj_le64_get(h->half_bytes);
    return vj_le32_get(h->block_bytes) == VJ_REDO_BLOCK_BYTES &&
                   memcmp(h->reserved, zeroes, sizeof zeroes) == 0 &&
                   log->half_bytes >= VJ_REDO_BLOCK_BYTES &&
                   log->half_bytes <= VJ_REDO_BYTES_MAX / 2 &&
                   log->half_bytes % VJ_REDO_BLOCK_BYTES == 0
               ? 0
               : -EBADMSG;
}

static uint64_t half_start(const VjRedo *log, uint64_t round)
{
    return VJ_REDO_BLOCK_BYTES + round % 2 * log->half_bytes;
}

static uint64_t record_checksum(const VjRedo *log, const VjRedoRecord *r)
{
    uint8_t bytes[VJ_REDO_ID_BYTES + offsetof(VjRedoRecord, checksum)];

    memcpy(bytes, log->id, VJ_REDO_ID_BYTES);
    memcpy(bytes + VJ_REDO_ID_BYTES, r, offsetof(VjRedoRecord, checksum));
    return vj_checksum64(bytes, sizeof bytes);
}

static void record_encode(const VjRedo *log, const VjRedoRun *run, const uint8_t *body,
                          VjRedoRecord *out)
{
    VjWriter w = vj_writer(out, sizeof *out);

    vj_write_bytes(&w, VJ_REDO_RECORD_MAGIC, sizeof out->magic);
    vj_write_u32(&w, run->body_bytes);
    vj_write_u64(&w, run->round);
    vj_write_u64(&w, half_start(log, run->round) + run->offset);
    vj_write_u64(&w, run->first_seq);
    vj_write_u64(&w, run->last_seq);
    vj_write_u32(&w, run->change_count);
    vj_write_u32(&w, 0);
    vj_write_u64(&w, vj_checksum64(body, run->body_bytes));
    vj_write_u64(&w, record_checksum(log, out));
    g_assert(!w.bad && w.used == sizeof *out);
}

/* True: these bytes are the head of a record of @round at @offset, and @run is set. */
static bool record_decode(const VjRedo *log, const VjRedoRecord *r, uint64_t round,
                          uint64_t offset, VjRedoRun *run)
{
    if (memcmp(r->magic, VJ_REDO_RECORD_MAGIC, sizeof r->magic) != 0 ||
        vj_le64_get(r->checksum) != record_checksum(log, r) ||
        vj_le64_get(r->round) != round ||
        vj_le64_get(r->place) != half_start(log, round) + offset) {
        return false;
    }
    *run = (VjRedoRun){.round = round,
                       .offset = offset,
                       .first_seq = vj_le64_get(r->first_seq),
                       .last_seq = vj_le64_get(r->last_seq),
                       .change_count = vj_le32_get(r->change_count),
                       .body_bytes = vj_le32_get(r->body_bytes)};
    return vj_le32_get(r->reserved) == 0 && run->change_count > 0 &&
           run->body_bytes <= VJ_REDO_BODY_MAX &&
           vj_redo_record_bytes(run->body_bytes) <= log->half_bytes - offset &&
           run->first_seq > 0 && run->first_seq <= run->last_seq &&
           run->last_seq < UINT64_MAX / 2;
}

void vj_redo_change_encode(VjWriter *w, VjSpace space, VjSlice key, const VjSlice *value)
{
    uint8_t key_bytes[2] = {(uint8_t)key.len, (uint8_t)(key.len >> 8)};

    vj_write_u8(w, (uint8_t)space);
    vj_write_u8(w, value != NULL ? VJ_REDO_PUT : VJ_REDO_DELETE);
    vj_write_bytes(w, key_bytes, sizeof key_bytes);
    vj_write_u32(w, value != NULL ? (uint32_t)value->len : 0);
    vj_write_bytes(w, key.data, key.len);
    if (value != NULL) {
        vj_write_bytes(w, value->data, value->len);
    }
}

static bool change_decode(VjReader *r, VjSpace *space, VjSlice *key, VjSlice *value,
                          bool *is_put)
{
    uint8_t number = vj_read_u8(r), kind = vj_read_u8(r);
    uint16_t key_bytes = vj_read_u16(r);
    uint32_t value_bytes = vj_read_u32(r);

    if (r->bad || number >= VJ_SPACE_COUNT ||
        (kind != VJ_REDO_PUT && kind != VJ_REDO_DELETE) || key_bytes == 0 ||
        key_bytes > VJ_META_KEY_MAX || value_bytes > VJ_META_VALUE_MAX ||
        (kind == VJ_REDO_DELETE && value_bytes > 0)) {
        return false;
    }
    *space = (VjSpace)number;
    *key = vj_read_bytes(r, key_bytes);
    *value = vj_read_bytes(r, value_bytes);
    *is_put = kind == VJ_REDO_PUT;
    return !r->bad;
}

/* Every change of a body; @visit NULL: only whether all of it decodes.  -EBADMSG: not. */
static int visit_body(const VjRedoRun *run, const uint8_t *body, VjRedoVisit *visit,
                      void *opaque)
{
    VjReader r = vj_reader(vj_slice(body, run->body_bytes));
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < run->change_count; i++) {
        VjSlice key, value;
        VjSpace space;
        bool is_put;

        if (!change_decode(&r, &space, &key, &value, &is_put)) {
            return -EBADMSG;
        }
        rc = visit == NULL ? 0 : visit(opaque, space, key, is_put ? &value : NULL);
    }
    return rc < 0 ? rc : vj_reader_done(&r) ? 0 : -EBADMSG;
}

/* ---- The file ---------------------------------------------------------------------- */

void vj_redo_close(VjRedo *log)
{
    if (log != NULL) {
        vj_fd_close(&log->fd);
        g_free(log);
    }
}

static VjRedo *redo_new(int fd)
{
    VjRedo *log = g_new0(VjRedo, 1);

    log->fd = fd;
    return log;
}

static int read_head(VjRedo *log)
{
    VjRedoHead head;
    struct stat st;
    int rc;

    if (fstat(log->fd, &st) != 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode)) {
        return -EBADMSG;
    }
    rc = vj_fd_pread_all(log->fd, &head, sizeof head, 0);
    if (rc == 0) {
        rc = head_decode(&head, log);
    }
    if (rc == 0 && (uint64_t)st.st_size < file_bytes(log->half_bytes)) {
        rc = -EBADMSG;
    }
    return rc;
}

int vj_redo_open(int dir_fd, bool write, VjRedo **out)
{
    int fd = openat(dir_fd, VJ_REDO_FILE,
                    (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    VjRedo *log;
    int rc;

    *out = NULL;
    if (fd < 0) {
        return errno == ELOOP || errno == ENXIO || errno == EISDIR ? -EBADMSG : -errno;
    }
    log = redo_new(fd);
    vj_fd_drop_pages(fd);
    rc = read_head(log);
    if (rc < 0) {
        vj_redo_close(log);
        return rc;
    }
    *out = log;
    return 0;
}

/* A file that ends early reads as zeroes: what is there then has no magic. */
static int read_at(const VjRedo *log, void *dst, size_t len, uint64_t at)
{
    int rc = vj_fd_pread_all(log->fd, dst, len, at);

    if (rc == -EBADMSG) {
        memset(dst, 0, len);
        rc = 0;
    }
    return rc;
}

int vj_redo_open_as(int dir_fd, const uint8_t id[VJ_REDO_ID_BYTES], VjRedo **out)
{
    int fd = openat(dir_fd, VJ_REDO_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    VjRedo *log;
    VjRedoHead head;
    struct stat st;
    uint64_t bytes;
    int rc;

    *out = NULL;
    if (fd < 0) {
        return -errno;
    }
    log = redo_new(fd);
    vj_fd_drop_pages(fd);
    rc = fstat(fd, &st) != 0 ? -errno : S_ISREG(st.st_mode) ? 0 : -EBADMSG;
    if (rc == 0) {
        rc = read_at(log, &head, sizeof head, 0);
    }
    if (rc == 0 && head_decode(&head, log) < 0) {
        bytes = CLAMP((uint64_t)st.st_size, file_bytes(VJ_REDO_BLOCK_BYTES),
                      file_bytes(VJ_REDO_BYTES_MAX / 2));
        log->half_bytes = half_of(bytes);
        rc = (uint64_t)st.st_size == file_bytes(log->half_bytes) ? 0 : -EBADMSG;
    }
    if (rc < 0) {
        vj_redo_close(log);
        return rc;
    }
    memcpy(log->id, id, VJ_REDO_ID_BYTES);
    *out = log;
    return 0;
}

/* At most so many damaged logs are kept under the names of one second. */
#define KEPT_NAMES_MOST 100u

int vj_redo_keep(int dir_fd)
{
    g_autoptr(GDateTime) now = g_date_time_new_now_utc();
    g_autofree char *date = g_date_time_format(now, "%Y%m%dT%H%M%SZ");

    for (unsigned i = 0; i < KEPT_NAMES_MOST; i++) {
        g_autofree char *more = i > 0 ? g_strdup_printf("-%u", i) : g_strdup("");
        g_autofree char *name = g_strdup_printf(VJ_REDO_FILE ".damaged-%s%s", date, more);

        if (linkat(dir_fd, VJ_REDO_FILE, dir_fd, name, 0) == 0) {
            return fsync(dir_fd) == 0 ? 0 : -errno;
        }
        if (errno != EEXIST) {
            return -errno;
        }
    }
    return -EEXIST;
}

/* A file that was put aside under another name is not written to any more. */
static bool is_kept(const VjRedo *log)
{
    struct stat st;

    return fstat(log->fd, &st) != 0 || st.st_nlink > 1;
}

/* So that the device has it, and so that no block is written for the first time later. */
static int fill(int fd, uint64_t bytes)
{
    g_autofree uint8_t *zeroes = g_malloc0(PIECE_BYTES);
    int rc = 0;

    if (fallocate(fd, 0, 0, (off_t)bytes) != 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS) {
        return -errno;
    }
    for (uint64_t at = 0; rc == 0 && at < bytes; at += PIECE_BYTES) {
        struct iovec iov = {.iov_base = zeroes,
                            .iov_len = (size_t)MIN(PIECE_BYTES, bytes - at)};

        rc = vj_fd_pwritev_all(fd, &iov, 1, at);
    }
    return rc < 0 ? rc : fdatasync(fd) == 0 ? 0 : -errno;
}

int vj_redo_remove(int dir_fd)
{
    return unlinkat(dir_fd, VJ_REDO_FILE, 0) == 0 || errno == ENOENT ? 0 : -errno;
}

static int make(int dir_fd, uint64_t bytes, VjRedo **out)
{
    int fd, rc = vj_redo_remove(dir_fd);

    if (rc < 0) {
        return rc;
    }
    fd = openat(dir_fd, VJ_REDO_FILE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                0600);
    if (fd < 0) {
        return -errno;
    }
    rc = fill(fd, bytes);
    if (rc == 0 && fsync(dir_fd) != 0) {
        rc = -errno;
    }
    if (rc < 0) {
        close(fd);
        (void)!unlinkat(dir_fd, VJ_REDO_FILE, 0); /* the next one does it again */
        return rc;
    }
    *out = redo_new(fd);
    return 0;
}

/* False: the file system has nothing of the kind. */
static bool set_direct(const VjRedo *log, bool direct)
{
    int flags = fcntl(log->fd, F_GETFL);

    return flags >= 0 &&
           fcntl(log->fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

int vj_redo_begin(int dir_fd, uint64_t bytes, VjRedo **out)
{
    VjRedoHead head;
    struct iovec iov = {.iov_base = &head, .iov_len = sizeof head};
    VjRedo *log = NULL;
    int rc;

    *out = NULL;
    if (bytes < VJ_REDO_BYTES_MIN || bytes > VJ_REDO_BYTES_MAX) {
        return -EINVAL;
    }
    rc = vj_redo_open(dir_fd, true, &log);
    if (rc == 0 && (log->half_bytes != half_of(bytes) || is_kept(log) ||
                    (vj_fd_is_in_place(dir_fd) && !vj_fd_is_in_place(log->fd)))) {
        vj_redo_close(log);
        log = NULL;
    }
    rc = log == NULL ? make(dir_fd, file_bytes(half_of(bytes)), &log) : 0;
    if (rc < 0) {
        return rc;
    }
    log->half_bytes = half_of(bytes);
    vj_random_bytes(log->id, sizeof log->id);
    vj_redo_head_encode(log, &head);
    rc = vj_fd_pwritev_all(log->fd, &iov, 1, 0);
    if (rc == 0 && fdatasync(log->fd) != 0) {
        rc = -errno;
    }
    if (rc == 0) {
        rc = vj_fd_check_alive(dir_fd);
    }
    if (rc < 0) {
        vj_redo_close(log);
        return rc;
    }
    log->is_direct = set_direct(log, true);
    *out = log;
    return 0;
}

uint8_t *vj_redo_room_new(uint64_t record_bytes)
{
    void *room = NULL;

    g_assert(record_bytes % VJ_REDO_BLOCK_BYTES == 0);
    return posix_memalign(&room, VJ_REDO_BLOCK_BYTES, record_bytes) == 0 ? room : NULL;
}

int vj_redo_append(VjRedo *log, const VjRedoRun *run, uint8_t *bytes)
{
    uint64_t len = vj_redo_record_bytes(run->body_bytes);
    struct iovec iov = {.iov_base = bytes, .iov_len = len};
    size_t used = sizeof(VjRedoRecord) + run->body_bytes;
    uint64_t start = half_start(log, run->round) + run->offset;
    int rc;

    g_assert(run->body_bytes <= VJ_REDO_BODY_MAX &&
             run->offset % VJ_REDO_BLOCK_BYTES == 0 &&
             run->offset + len <= log->half_bytes);
    g_assert(run->first_seq > 0 && run->first_seq <= run->last_seq);
    memset(bytes + used, 0, len - used);
    record_encode(log, run, bytes + sizeof(VjRedoRecord), (VjRedoRecord *)bytes);
    rc = vj_fd_pwritev_all(log->fd, &iov, 1, start);
    if (rc == -EINVAL && log->is_direct && set_direct(log, false)) {
        /* Its device wants larger blocks, or a file system below it nothing of the
         * kind. */
        log->is_direct = false;
        vj_trace(meta, "redo: direct I/O is refused, the page cache is used");
        rc = vj_fd_pwritev_all(log->fd, &iov, 1, start);
    }
    return rc < 0 ? rc : fdatasync(log->fd) == 0 ? 0 : -errno;
}

/* ---- Reading ----------------------------------------------------------------------- */

typedef struct Reading {
    const VjRedo *log;
    const VjRedoReader *reader;
    VjRedoFound *found;
    uint64_t seq;        /* every commit up to it is there */
    uint64_t record_seq; /* the last one of the record before; 0: there was none */
    uint8_t *body;       /* owned; as long as the longest so far */
    uint64_t body_room;
} Reading;

static void G_GNUC_PRINTF(2, 3) flaw(Reading *r, const char *format, ...)
{
    va_list args;
    g_autofree char *text = NULL;

    r->found->flaws++;
    if (r->reader->say == NULL) {
        return;
    }
    va_start(args, format);
    text = g_strdup_vprintf(format, args);
    va_end(args);
    r->reader->say(r->reader->opaque, text);
}

/* 1: there is a record, and its body is in @r; 0: there is none, or its head alone. */
static int read_record(Reading *r, uint64_t round, uint64_t offset, VjRedoRun *run)
{
    uint64_t at = half_start(r->log, round) + offset;
    VjRedoRecord head;
    int rc;

    if (r->log->half_bytes - offset < VJ_REDO_BLOCK_BYTES) {
        return 0;
    }
    rc = read_at(r->log, &head, sizeof head, at);
    if (rc < 0 || !record_decode(r->log, &head, round, offset, run)) {
        return rc;
    }
    if (run->body_bytes > r->body_room) {
        g_free(r->body);
        r->body = g_try_malloc(run->body_bytes);
        r->body_room = r->body == NULL ? 0 : run->body_bytes;
        if (r->body == NULL) {
            return -ENOMEM;
        }
    }
    rc = read_at(r->log, r->body, run->body_bytes, at + sizeof head);
    if (rc < 0) {
        return rc;
    }
    if (vj_checksum64(r->body, run->body_bytes) != vj_le64_get(head.body_checksum)) {
        r->found->torn_at = at;
        return 0;
    }
    return 1;
}

/* Is there a record behind @offset, where there was none?  1, 0, -errno. */
static int is_followed(const Reading *r, uint64_t round, uint64_t offset, uint64_t *place)
{
    g_autofree uint8_t *piece = g_try_malloc(PIECE_BYTES);
    uint64_t start = half_start(r->log, round);

    if (piece == NULL) {
        return -ENOMEM;
    }
    for (uint64_t at = offset + VJ_REDO_BLOCK_BYTES; at < r->log->half_bytes;) {
        size_t len = (size_t)MIN(PIECE_BYTES, r->log->half_bytes - at);
        int rc = read_at(r->log, piece, len, start + at);

        if (rc < 0) {
            return rc;
        }
        for (size_t i = 0; i < len; i += VJ_REDO_BLOCK_BYTES) {
            VjRedoRecord head;
            VjRedoRun run;

            memcpy(&head, piece + i, sizeof head);
            if (record_decode(r->log, &head, round, at + i, &run)) {
                *place = start + at + i;
                return 1;
            }
        }
        at += len;
    }
    return 0;
}

static int take_record(Reading *r, const VjRedoRun *run)
{
    int rc = visit_body(run, r->body, NULL, NULL);

    if (rc == -EBADMSG) {
        flaw(r, "the record at byte %" G_GUINT64_FORMAT " makes no sense",
             half_start(r->log, run->round) + run->offset);
        return 0;
    }
    if (run->first_seq > r->seq + 1 || run->first_seq <= r->record_seq) {
        flaw(r,
             "the record at byte %" G_GUINT64_FORMAT
             " begins with commit %" G_GUINT64_FORMAT ", not with %" G_GUINT64_FORMAT,
             half_start(r->log, run->round) + run->offset, run->first_seq, r->seq + 1);
        return 0;
    }
    r->record_seq = run->last_seq;
    if (run->last_seq <= r->seq) {
        return 0; /* moved before the crash */
    }
    r->seq = run->last_seq;
    r->found->records++;
    r->found->bytes += vj_redo_record_bytes(run->body_bytes);
    if (r->reader->change != NULL) {
        rc = visit_body(run, r->body, r->reader->change, r->reader->opaque);
    }
    if (rc == 0 && r->reader->end != NULL) {
        rc = r->reader->end(r->reader->opaque, run);
    }
    return rc;
}

static int read_round(Reading *r, uint64_t round)
{
    uint64_t offset = 0, place;
    VjRedoRun run;
    int rc;

    while ((rc = read_record(r, round, offset, &run)) == 1) {
        rc = take_record(r, &run);
        if (rc < 0 || r->found->flaws > 0) {
            return rc;
        }
        offset += vj_redo_record_bytes(run.body_bytes);
    }
    if (rc == 0) {
        rc = is_followed(r, round, offset, &place);
    }
    if (rc == 1) {
        flaw(r,
             "the record at byte %" G_GUINT64_FORMAT
             " is damaged: there is a later one at byte %" G_GUINT64_FORMAT,
             half_start(r->log, round) + offset, place);
        rc = 0;
    }
    return rc;
}

/* A half that holds a later round than it can: then the file that asks is an old one. */
static int check_half(Reading *r, uint64_t round, uint64_t last)
{
    VjRedoRecord head;
    VjRedoRun run;
    int rc = read_at(r->log, &head, sizeof head, half_start(r->log, round));
    uint64_t there = vj_le64_get(head.round);

    if (rc == 0 && there > last && there % 2 == round % 2 &&
        record_decode(r->log, &head, there, 0, &run)) {
        flaw(r,
             "it has come to round %" G_GUINT64_FORMAT
             ", and the file needs round %" G_GUINT64_FORMAT ": the file is an old one",
             there, round);
    }
    return rc;
}

int vj_redo_read(const VjRedo *log, const VjRedoPoint *from, const VjRedoReader *reader,
                 VjRedoFound *out)
{
    Reading r = {.log = log, .reader = reader, .found = out, .seq = from->seq};
    int rc;

    *out = (VjRedoFound){0};
    rc = check_half(&r, from->round, from->round + 1);
    if (rc == 0 && out->flaws == 0) {
        rc = check_half(&r, from->round + 1, from->round + 1);
    }
    if (rc == 0 && out->flaws == 0) {
        rc = read_round(&r, from->round);
    }
    if (rc == 0 && out->flaws == 0) {
        rc = read_round(&r, from->round + 1);
    }
    out->last_seq = r.seq;
    g_free(r.body);
    return rc;
}

bool vj_redo_is_lost(int rc)
{
    return rc == 0 || rc == -ENOENT || rc == -EBADMSG;
}

const char *vj_redo_why_not(const VjRedo *log, int rc, const VjRedoPoint *point)
{
    if (rc == -ENOENT) {
        return "it is missing";
    }
    if (rc == -EBADMSG) {
        return "its head is damaged, or its end is missing";
    }
    if (rc < 0) {
        return g_strerror(-rc);
    }
    return memcmp(log->id, point->id, VJ_REDO_ID_BYTES) == 0
               ? NULL
               : "it is not the one that the engine needs";
}
