/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * A redo log from anybody.  A log of two rounds is changed as the input says, and what
 * was changed is made right again where it says so; then it is opened and read.  Whatever
 * is visited lies within the limits of keys and values, commits never go back, what is
 * said is one line, and nothing is visited behind a flaw.
 *
 * The input: the point (2), then changes: where (2), what (1), a number (8).
 */
#include "fuzz.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "meta/redo-private.h"

#define HALF (16 * VJ_REDO_BLOCK_BYTES)
#define BYTES (VJ_REDO_BLOCK_BYTES + 2 * HALF)
#define CHANGES_MAX 32

static char *dir;
static int dir_fd = -1;
static uint8_t *sound;
static VjRedo like;

static void end(void)
{
    (void)!unlinkat(dir_fd, VJ_REDO_FILE, 0);
    close(dir_fd);
    rmdir(dir);
    g_free(dir);
    g_free(sound);
}

static void append(int fd, uint64_t round, uint64_t *block, uint64_t first, uint64_t last)
{
    size_t room = 3 * VJ_REDO_BLOCK_BYTES;
    uint8_t *bytes = vj_redo_room_new(room);
    VjWriter w = vj_writer(bytes + sizeof(VjRedoRecord), room - sizeof(VjRedoRecord));
    static const uint8_t some[6000];
    VjRedoRun run = {.round = round,
                     .offset = *block * VJ_REDO_BLOCK_BYTES,
                     .first_seq = first,
                     .last_seq = last};
    VjRedo log = like;

    for (uint64_t i = first; i <= last; i++, run.change_count++) {
        VjSlice value = vj_slice(some, i % 7 == 0 ? sizeof some : (size_t)i % 90);

        vj_redo_change_encode(&w, (VjSpace)(i % VJ_SPACE_COUNT), vj_slice(&i, sizeof i),
                              i % 5 == 0 ? NULL : &value);
    }
    g_assert(!w.bad);
    run.body_bytes = (uint32_t)w.used;
    log.fd = fd;
    g_assert(vj_redo_append(&log, &run, bytes) == 0);
    free(bytes);
    *block += vj_redo_record_bytes(run.body_bytes) / VJ_REDO_BLOCK_BYTES;
}

static void begin(void)
{
    const char *where = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : g_get_tmp_dir();
    uint64_t block = 0, first = 1;
    int fd;

    dir = g_build_filename(where, "varjfs-fuzz-XXXXXX", NULL);
    g_assert(g_mkdtemp(dir) != NULL);
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fd = openat(dir_fd, VJ_REDO_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    g_assert(dir_fd >= 0 && fd >= 0 && ftruncate(fd, BYTES) == 0);
    like.half_bytes = HALF;
    memset(like.id, 0x5a, sizeof like.id);
    for (uint64_t round = 4; round < 6; round++) {
        for (block = 0; block < 12; first += 4) {
            append(fd, round, &block, first, first + 3);
        }
    }
    sound = g_malloc(BYTES);
    g_assert(vj_fd_pread_all(fd, sound, BYTES, 0) == 0);
    vj_redo_head_encode(&like, (VjRedoHead *)sound);
    close(fd);
    atexit(end);
}

/* Checksums as a program would write them; the body's too when it lies within the
 * file. */
static void make_right(uint8_t *bytes, size_t block)
{
    VjRedoRecord *r = (VjRedoRecord *)(bytes + block * VJ_REDO_BLOCK_BYTES);
    uint8_t sealed[VJ_REDO_ID_BYTES + offsetof(VjRedoRecord, checksum)];
    uint32_t len = vj_le32_get(r->body_bytes);
    uint64_t sum;

    if (block == 0) {
        VjRedoHead *h = (VjRedoHead *)bytes;

        sum = GUINT64_TO_LE(vj_checksum64(h, offsetof(VjRedoHead, checksum)));
        memcpy(h->checksum, &sum, sizeof sum);
        return;
    }
    if (len <= BYTES - block * VJ_REDO_BLOCK_BYTES - sizeof *r) {
        sum = GUINT64_TO_LE(vj_checksum64(r + 1, len));
        memcpy(r->body_checksum, &sum, sizeof sum);
    }
    memcpy(sealed, like.id, VJ_REDO_ID_BYTES);
    memcpy(sealed + VJ_REDO_ID_BYTES, r, offsetof(VjRedoRecord, checksum));
    sum = GUINT64_TO_LE(vj_checksum64(sealed, sizeof sealed));
    memcpy(r->checksum, &sum, sizeof sum);
}

static void change(VjReader *in, uint8_t *bytes)
{
    uint16_t where = vj_read_u16(in);
    uint8_t what = vj_read_u8(in);
    uint64_t number = vj_read_u64(in);
    size_t block = where % (BYTES / VJ_REDO_BLOCK_BYTES);
    uint8_t *at = bytes + block * VJ_REDO_BLOCK_BYTES;
    size_t offset = what / 8 * 4u + (what % 8 == 3 ? where / 64 : 0);

    switch (what % 8) {
    case 0:
        memcpy(at + offset, &number, 4);
        break;
    case 1:
        memcpy(at + offset, &number, 8);
        break;
    case 2:
        at[offset + number % 4] ^= (uint8_t)(1u << number / 4 % 8);
        break;
    case 3:
        at[offset] = (uint8_t)number;
        break;
    case 4:
        memset(at, 0, VJ_REDO_BLOCK_BYTES);
        return;
    case 5:
        memmove(at, bytes + number % (BYTES / VJ_REDO_BLOCK_BYTES) * VJ_REDO_BLOCK_BYTES,
                VJ_REDO_BLOCK_BYTES);
        break;
    default:
        at[64 + number % 256] = (uint8_t)(number / 256);
        break;
    }
    if (number >> 63 == 0) {
        make_right(bytes, block);
    }
}

typedef struct Seen {
    uint64_t records, last_seq;
    bool flaw;
} Seen;

static int see_change(void *opaque, VjSpace space, VjSlice key, const VjSlice *value)
{
    g_assert(!((Seen *)opaque)->flaw);
    g_assert(space < VJ_SPACE_COUNT && key.len > 0 && key.len <= VJ_META_KEY_MAX);
    g_assert(value == NULL || value->len <= VJ_META_VALUE_MAX);
    return 0;
}

static int see_end(void *opaque, const VjRedoRun *run)
{
    Seen *s = opaque;

    g_assert(run->last_seq > s->last_seq && run->change_count > 0);
    s->last_seq = run->last_seq;
    s->records++;
    return 0;
}

static void see_flaw(void *opaque, const char *text)
{
    ((Seen *)opaque)->flaw = true;
    fuzz_expect_line(text);
}

FUZZ_MUTATIONS(100);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    VjReader in = vj_reader(vj_slice(data, len));
    g_autofree uint8_t *bytes = NULL;
    VjRedoPoint from;
    Seen seen = {0};
    VjRedoReader reader = {
        .change = see_change, .end = see_end, .say = see_flaw, .opaque = &seen};
    VjRedoFound found;
    VjRedo *log;
    int fd, r;

    fuzz_quiet();
    if (dir == NULL) {
        begin();
    }
    from = (VjRedoPoint){.round = 3 + vj_read_u8(&in) % 4u, .seq = vj_read_u8(&in)};
    seen.last_seq = from.seq;
    bytes = g_memdup2(sound, BYTES);
    for (unsigned n = 0; n < CHANGES_MAX && in.left >= 11; n++) {
        change(&in, bytes);
    }
    fd = openat(dir_fd, VJ_REDO_FILE, O_WRONLY | O_CLOEXEC);
    g_assert(fd >= 0 && vj_fd_write_all(fd, bytes, BYTES) == 0);
    close(fd);
    r = vj_redo_open(dir_fd, false, &log);
    g_assert(r == 0 || r == -EBADMSG || r == -EPROTONOSUPPORT);
    if (r == 0) {
        g_assert(vj_redo_read(log, &from, &reader, &found) == 0);
        g_assert(found.records == seen.records && (found.flaws > 0) == seen.flaw);
        vj_redo_close(log);
    }
    return 0;
}
