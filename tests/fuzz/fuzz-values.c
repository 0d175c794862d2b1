/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Records that are only read through a transaction: inline contents, fragments, the
 * counter of inodes, the name of the volume, how far a scrub has come.  The input: which
 * (1), inode (8), number of the fragment (4), what is asked for (4) and from where (2),
 * then the value.  It is tried as it is and with its checksum put right.  A part is what
 * the whole has there; what was read and is written again reads the same.
 */
#include "fuzz.h"

#include "codec/codec.h"
#include "file/inode-format.h"
#include "volume/scrub-format.h"
#include "volume/volume-private.h"

#include "../lib/mem-meta.h"

#define UUID "01234567-89ab-cdef-0123-456789abcdef"

typedef struct Input {
    uint8_t kind;
    uint64_t ino;
    uint32_t number;
    uint32_t size;
    uint16_t from;
    VjSlice value;
} Input;

static int put_body(VjTxn *txn, void *opaque)
{
    static const VjSpace spaces[] = {VJ_SPACE_INLINE, VJ_SPACE_FRAGMENT, VJ_SPACE_SYSTEM,
                                     VJ_SPACE_SYSTEM, VJ_SPACE_SYSTEM};
    static const char *const names[] = {VJ_NEXT_INO_KEY, VJ_VOLUME_KEY, VJ_SCRUB_KEY};
    const Input *in = opaque;
    uint8_t key[12];
    VjSlice where = vj_slice(key, in->kind == 1 ? 12 : 8);

    vj_be64_set(key, in->ino);
    vj_be32_set(key + 8, in->number);
    if (in->kind >= 2) {
        const char *name = names[in->kind - 2];

        where = vj_slice(name, strlen(name));
    }
    return vj_txn_put(txn, spaces[in->kind], where, in->value);
}

/* ---- inline ------------------------------------------------------------------------ */

static void try_inline(VjTxn *txn, const Input *in)
{
    VjInode inode = {.ino = in->ino, .size = in->size, .content = VJ_CONTENT_INLINE};
    size_t cap = MIN(in->size, VJ_FILE_INLINE_MAX);
    g_autofree uint8_t *dst = g_malloc(cap + 1);
    uint64_t stored = 0;
    int r = vj_inline_get(txn, &inode, dst, cap, &stored);

    g_assert(r == 0 || r == -EBADMSG || r == -EOPNOTSUPP);
    g_assert(r != 0 || (in->size <= cap && stored <= in->size));
    inode.inline_rest_bytes = (uint8_t)(in->from % (VJ_FILE_INLINE_REST_MAX + 1));
    r = vj_inline_get(txn, &inode, dst, cap, &stored);
    g_assert(r == 0 || r == -EBADMSG || r == -EOPNOTSUPP);
    g_assert(r != 0 || (in->size <= cap && stored <= in->size));
    inode.ino++;
    r = vj_inline_get(txn, &inode, dst, cap, NULL);
    g_assert(r == -EBADMSG); /* under a key that has none */
}

typedef struct Again {
    VjInode inode;
    uint8_t *dst;
} Again;

static int again_body(VjTxn *txn, void *opaque)
{
    const Again *a = opaque;

    return vj_inline_get(txn, &a->inode, a->dst, a->inode.size, NULL);
}

static void encode_again(VjMeta *m, const Input *in, const uint8_t *plain, size_t len)
{
    const VjTransform want = {.codec = in->number % 5, .param = (uint8_t)in->from};
    VjInlineRecord record;
    Input again = *in;
    g_autofree uint8_t *dst = g_malloc(len);
    Again a = {.inode = {.ino = in->ino, .size = len, .content = VJ_CONTENT_INLINE},
               .dst = dst};

    vj_inline_make(in->ino, &want, plain, len, &record);
    g_assert(record.stored_bytes <= len);
    again.value = vj_slice(record.bytes, record.len);
    a.inode.inline_rest_bytes = record.rest_bytes;
    memcpy(a.inode.inline_rest, record.rest, record.rest_bytes);
    g_assert(vj_meta_run(m, VJ_RUN_DEFAULT, put_body, &again) == 0);
    g_assert(vj_meta_view(m, again_body, &a) == 0);
    g_assert(memcmp(dst, plain, len) == 0);
}

/* ---- fragments --------------------------------------------------------------------- */

static void try_fragment(VjTxn *txn, const Input *in)
{
    uint8_t whole[VJ_FILE_INLINE_MAX], part[VJ_FILE_INLINE_MAX];
    uint32_t len = in->size % (VJ_FILE_INLINE_MAX + 1);
    VjEntry e = {.kind = VJ_ENTRY_FRAGMENT, .id = in->number, .start = 0, .length = len};
    uint32_t skip = len > 0 ? in->from % len : 0;
    int r;

    g_assert(len <= sizeof whole);
    r = vj_fragment_get(txn, in->ino, &e, 0, whole, len);
    g_assert(r == 0 || r == -EBADMSG || r == -EOPNOTSUPP);
    if (r == 0) {
        g_assert(vj_fragment_get(txn, in->ino, &e, skip, part, len - skip) == 0);
        g_assert(memcmp(part, whole + skip, len - skip) == 0);
        e.start = skip;
        g_assert(vj_fragment_get(txn, in->ino, &e, 0, part, len - skip) == 0);
        g_assert(memcmp(part, whole + skip, len - skip) == 0);
    }
    e.start = UINT32_MAX;
    r = vj_fragment_get(txn, in->ino, &e, UINT64_MAX - in->size, part, 1);
    g_assert(r < 0);
    e.id = (uint64_t)in->number | (uint64_t)1 << 32;
    g_assert(vj_fragment_get(txn, in->ino, &e, 0, part, 1) == -EBADMSG);
}

/* ---- the rest ---------------------------------------------------------------------- */

static void try_next_ino(VjTxn *txn)
{
    uint64_t next;

    if (vj_ino_next(txn, &next) == 0) {
        g_assert(next > VJ_INO_ROOT && next <= VJ_INO_MAX);
    }
}

static void try_volume(VjMeta *m)
{
    g_autoptr(GError) error = NULL;

    if (!vj_volume_record_check(m, UUID, "meta", &error)) {
        g_assert(error->code == EBADMSG);
        fuzz_expect_line(error->message);
    }
}

static int scrub_body(VjTxn *txn, void *opaque)
{
    return vj_scrub_get(txn, opaque);
}

/* What was read is written as the same bytes; a step fits behind any record. */
static void try_scrub(VjMeta *m, const Input *in)
{
    const VjScrubPass step = {.objects = in->number, .bytes = in->size};
    VjScrubStatus s = {.place = 0}, after = {.place = 0};
    VjScrubDisk disk;

    if (vj_meta_view(m, scrub_body, &s) == 0) {
        vj_scrub_encode(&s, &disk);
        g_assert(in->value.len == sizeof disk &&
                 memcmp(in->value.data, &disk, sizeof disk) == 0);
    } else {
        s = (VjScrubStatus){.place = 0};
    }
    g_assert(vj_scrub_note(m, s.place, UINT64_MAX, &step) == 0);
    g_assert(vj_meta_view(m, scrub_body, &after) == 0);
    g_assert(after.place == 0 && after.finished_s != 0);
    g_assert(after.last.objects == s.pass.objects + step.objects);
}

static int try_body(VjTxn *txn, void *opaque)
{
    const Input *in = opaque;

    if (in->kind == 0) {
        try_inline(txn, in);
    } else if (in->kind == 1) {
        try_fragment(txn, in);
    } else if (in->kind == 2) {
        try_next_ino(txn);
    }
    return 0;
}

static void try_value(const Input *in)
{
    VjMeta *m = mem_meta_new();
    int r = vj_meta_run(m, VJ_RUN_DEFAULT, put_body, (void *)(uintptr_t)in);

    g_assert(r == 0);
    r = vj_meta_view(m, try_body, (void *)(uintptr_t)in);
    g_assert(r == 0);
    if (in->kind == 4) {
        try_scrub(m, in);
    } else if (in->kind == 3) {
        try_volume(m);
    } else if (in->kind == 0 && in->value.len > 0 &&
               in->value.len <= VJ_FILE_INLINE_MAX) {
        encode_again(m, in, in->value.data, in->value.len);
    }
    r = vj_meta_close(m);
    g_assert(r == 0);
}

FUZZ_MUTATIONS(200);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    VjReader r = vj_reader(vj_slice(data, len));
    Input in = {.kind = vj_read_u8(&r) % 5};
    g_autofree uint8_t *forged = NULL;

    fuzz_quiet();
    in.ino = vj_read_u64(&r);
    in.number = vj_read_u32(&r);
    in.size = vj_read_u32(&r);
    in.from = vj_read_u16(&r);
    in.value = vj_slice(r.at, r.left);
    if (r.bad || in.value.len > VJ_META_VALUE_MAX || in.ino == 0) {
        return 0;
    }
    try_value(&in);
    if (in.value.len > 8) {
        uint64_t sum = GUINT64_TO_LE(vj_checksum64(in.value.data, in.value.len - 8));

        forged = g_memdup2(in.value.data, in.value.len);
        memcpy(forged + in.value.len - 8, &sum, sizeof sum);
        in.value.data = forged;
        try_value(&in);
    }
    return 0;
}
