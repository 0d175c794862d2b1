/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-inode-format.c - inode, inline and orphan records and the counter, byte by byte
 *
 * tests/compat/inode-*-v1.hex and their like are what version 1 wrote; they are never
 * changed.  Each is decoded and encoded again to the same bytes, refused when any one bit
 * is flipped, and refused under another's key.
 */
#include "../../lib/golden.h"
#include "../../lib/mem-meta.h"
#include "../../lib/test.h"

#include "codec/codec.h"
#include "file/inode-format.h"
#include "map/map-format.h"
#include "volume/volume-private.h"

#include <sys/stat.h>

#define INO ((uint64_t)0x0000070605040302)

/* One read or write of a record in an engine in memory. */
typedef int Body(VjTxn *txn, void *opaque);

static VjInode sample(void)
{
    return (VjInode){
        .ino = INO,
        .generation = 0x1112131415161718,
        .mode = S_IFREG | 04751,
        .uid = 0x21222324,
        .gid = 0x31323334,
        .nlink = 0x41424344,
        .rdev = 0x5152535455565758,
        .atime = {.tv_sec = -2, .tv_nsec = 999999999},
        .mtime = {.tv_sec = 0x6162636465666768, .tv_nsec = 1},
        .ctime = {.tv_sec = 0x7172737475767778, .tv_nsec = 2},
        .btime = {.tv_sec = 0, .tv_nsec = 3},
        .flags = VJ_INODE_TRANSFORM | VJ_INODE_MODE | VJ_INODE_INHERITED(VJ_INODE_MODE),
        .transform = {.codec = 4,
                      .param = 0x5a,
                      .level = -7,
                      .mode = VJ_MODE_SERVER,
                      .key_id = 0x81828384},
        .object_min = 0x1000,
        .object_avg = 0x2000,
        .object_max = 0x4000,
        .size = 0x0102030405060708,
        .stored_bytes = 0x0001020304050607,
        .content = VJ_CONTENT_MAP,
        .map_version = 0x9192939495969798,
        .root = {.node = 0xa1a2a3a4,
                 .next_node = 0xb1b2b3b4,
                 .height = 3,
                 .bytes = 0x0102030405060708,
                 .stored_bytes = 0x0001020304050607},
    };
}

static VjInode sample_directory(void)
{
    return (VjInode){
        .ino = INO,
        .generation = 1,
        .mode = S_IFDIR | S_ISVTX | 0755,
        .nlink = 5,
        .parent = 0x0000171615141312,
        .entry_count = 0x2122232425262728,
        .next_cookie = 0x3132333435363738,
        .root = {.next_node = 1},
    };
}

/* ---- records, each as bytes -------------------------------------------------------- */

/* What a test does with a space: one record under one key. */
typedef struct Record {
    VjSpace space;
    VjSlice key;
    GByteArray *bytes; /* read: out; write: in */
} Record;

static int read_body(VjTxn *txn, void *opaque)
{
    Record *r = opaque;
    VjSlice value;
    int rc = vj_txn_get(txn, r->space, r->key, &value);

    g_byte_array_set_size(r->bytes, 0);
    if (rc == 0) {
        g_byte_array_append(r->bytes, value.data, (guint)value.len);
    }
    return rc;
}

static int write_body(VjTxn *txn, void *opaque)
{
    const Record *r = opaque;

    return vj_txn_put(txn, r->space, r->key, vj_slice(r->bytes->data, r->bytes->len));
}

static void run(VjMeta *m, Body *body, void *opaque)
{
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, body, opaque), 0);
}

/*
 * The record that @record names is the golden one, and no other that differs by one bit
 * is believed: @read says -EBADMSG.
 */
static void expect_golden(VjMeta *m, Record *record, const char *name, Body *read,
                          void *opaque)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();

    record->bytes = bytes;
    run(m, read_body, record);
    golden_expect(name, vj_slice(bytes->data, bytes->len));
    run(m, read, opaque);
    for (guint bit = 0; bit < bytes->len * 8; bit++) {
        bytes->data[bit / 8] ^= (guint8)(1u << bit % 8);
        run(m, write_body, record);
        assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, read, opaque), -EBADMSG);
        bytes->data[bit / 8] ^= (guint8)(1u << bit % 8);
    }
    for (guint len = bytes->len; len-- > 0;) {
        g_byte_array_set_size(bytes, len);
        run(m, write_body, record);
        assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, read, opaque), -EBADMSG);
    }
}

/* ---- inodes ------------------------------------------------------------------------ */

static int put_inode(VjTxn *txn, void *opaque)
{
    return vj_inode_put(txn, opaque);
}

/* What is read is what was put: put again it is the same bytes. */
static int get_inode(VjTxn *txn, void *opaque)
{
    const VjInode *want = opaque;
    VjInode got;
    int r = vj_inode_get(txn, INO, &got);

    if (r == 0) {
        assert_int_equal(got.generation, want->generation);
        assert_int_equal(got.mtime.tv_sec, want->mtime.tv_sec);
        assert_int_equal(got.transform.level, want->transform.level);
        assert_int_equal(got.root.stored_bytes, want->root.stored_bytes);
        r = vj_inode_put(txn, &got);
    }
    return r;
}

static void inode_records(void **state)
{
    VjInode file = sample(), dir = sample_directory();
    uint8_t key[8];
    Record record = {.space = VJ_SPACE_INODE, .key = vj_ino_key(INO, key)};
    VjMeta *m = mem_meta_new();

    (void)state;
    run(m, put_inode, &file);
    expect_golden(m, &record, "inode-file-v1.hex", get_inode, &file);
    run(m, put_inode, &dir);
    expect_golden(m, &record, "inode-directory-v1.hex", get_inode, &dir);
    dir.flags = VJ_INODE_CHATTR | VJ_INODE_TRANSFORM;
    run(m, put_inode, &dir);
    expect_golden(m, &record, "inode-flags-v1.hex", get_inode, &dir);
    dir.flags = VJ_INODE_SAFETY | VJ_INODE_INHERITED(VJ_INODE_SAFETY);
    dir.safety = VJ_SAFETY_STORAGE;
    run(m, put_inode, &dir);
    expect_golden(m, &record, "inode-safety-v1.hex", get_inode, &dir);
    file.content = VJ_CONTENT_INLINE;
    file.size = file.stored_bytes = VJ_FILE_INLINE_MAX;
    file.root = (VjMapRoot){0};
    file.inline_rest_bytes = VJ_FILE_INLINE_REST_MAX;
    for (uint8_t i = 0; i < VJ_FILE_INLINE_REST_MAX; i++) {
        file.inline_rest[i] = (uint8_t)(0xc0 + i);
    }
    run(m, put_inode, &file);
    expect_golden(m, &record, "inode-inline-rest-v1.hex", get_inode, &file);
    assert_int_equal(vj_meta_close(m), 0);
}

/* A record with a right checksum and values that no varjfs wrote. */
static void expect_refused(size_t offset, size_t len, uint64_t value, bool is_directory)
{
    g_autoptr(GByteArray) bytes =
        golden_load(is_directory ? "inode-directory-v1.hex" : "inode-file-v1.hex");
    uint64_t sum, le = GUINT64_TO_LE(value);
    VjInode inode;

    assert_int_equal(vj_inode_decode(vj_slice(bytes->data, bytes->len), INO, &inode), 0);
    memcpy(bytes->data + offset, &le, len);
    sum = GUINT64_TO_LE(vj_checksum64(bytes->data, offsetof(VjInodeDisk, checksum)));
    memcpy(bytes->data + offsetof(VjInodeDisk, checksum), &sum, sizeof sum);
    if (vj_inode_decode(vj_slice(bytes->data, bytes->len), INO, &inode) != -EBADMSG) {
        fail_msg("%zu bytes at %zu: %" G_GINT64_MODIFIER "x is accepted", len, offset,
                 value);
    }
}

static void impossible_values(void **state)
{
    (void)state;
#define AT(field) offsetof(VjInodeDisk, field), sizeof(((VjInodeDisk *)0)->field)
    expect_refused(AT(magic), 0x324e4956, false); /* the next version */
    expect_refused(AT(content), 3, false);
    expect_refused(AT(content), VJ_CONTENT_EMPTY, false); /* and yet a root */
    expect_refused(AT(height), 0, false);
    expect_refused(AT(height), VJ_MAP_HEIGHT_MAX + 1, false);
    expect_refused(AT(flags), 1 << 15, false);
    expect_refused(AT(flags), VJ_INODE_INHERITED(VJ_INODE_OBJECTS), false);
    for (uint64_t bit = VJ_INODE_SAFETY << 1; bit <= UINT16_MAX; bit <<= 1) {
        expect_refused(AT(flags), bit, false);
    }
    expect_refused(AT(safety), VJ_SAFETY_NETWORK, false); /* and yet not set */
    expect_refused(AT(ino), INO + 1, false);
    expect_refused(AT(ctime_nsec), 1000000000, false);
    expect_refused(AT(parent), 1, false);
    expect_refused(AT(next_cookie), 3, false);
    expect_refused(AT(root_node), 0, false);
    expect_refused(AT(root_next_node), 0xa1a2a3a4, false); /* the root's own number */
    expect_refused(AT(size), VJ_MAP_BYTES_MAX + 1, false);
    expect_refused(AT(size), 5, false);
    expect_refused(AT(reserved), 1, false);
    expect_refused(AT(parent), 0, true);
    expect_refused(AT(parent), VJ_INO_MAX, true);
    expect_refused(AT(next_cookie), 2, true);
    expect_refused(AT(next_cookie), (uint64_t)1 << 63, true);
    expect_refused(AT(mode), S_IFREG | 0644, true);
#undef AT
}

/* What nobody could take away again: chattr(1) is for files and directories. */
static void protected_kinds(void **state)
{
    static const mode_t kinds[] = {S_IFREG, S_IFDIR, S_IFLNK,  S_IFIFO,
                                   S_IFCHR, S_IFBLK, S_IFSOCK, 0};

    (void)state;
    for (const mode_t *kind = kinds; *kind != 0; kind++) {
        g_autoptr(GByteArray) bytes = golden_load(
            *kind == S_IFDIR ? "inode-directory-v1.hex" : "inode-file-v1.hex");
        VjInodeDisk *d = (VjInodeDisk *)(void *)bytes->data;
        bool may = *kind == S_IFREG || *kind == S_IFDIR;
        VjInode inode;

        for (uint32_t bit = VJ_INODE_IMMUTABLE; bit <= VJ_INODE_NOATIME; bit <<= 1) {
            bool is_protection = (bit & VJ_INODE_PROTECTED) != 0;

            d->mode = GUINT32_TO_LE(*kind | 0644);
            d->flags = GUINT16_TO_LE((uint16_t)bit);
            d->checksum =
                GUINT64_TO_LE(vj_checksum64(d, offsetof(VjInodeDisk, checksum)));
            assert_int_equal(
                vj_inode_decode(vj_slice(bytes->data, bytes->len), INO, &inode),
                may || !is_protection ? 0 : -EBADMSG);
        }
    }
}

static void foreign_key(void **state)
{
    g_autoptr(GByteArray) bytes = golden_load("inode-file-v1.hex");
    VjInode inode;

    (void)state;
    assert_int_equal(vj_inode_decode(vj_slice(bytes->data, bytes->len), INO + 1, &inode),
                     -EBADMSG);
}

/* ---- inline content ---------------------------------------------------------------- */

#define INLINE_TEXT "inline content"

static int put_inline(VjTxn *txn, void *opaque)
{
    VjInode inode = {.ino = INO};
    VjInlineRecord record;

    (void)opaque;
    vj_inline_make(INO, NULL, INLINE_TEXT, strlen(INLINE_TEXT), &record);
    return vj_inline_put(txn, &inode, &record);
}

static const VjTransform xored = {.codec = VJ_CODEC_ID_XOR, .param = 0x5a};

static int put_inline_xored(VjTxn *txn, void *opaque)
{
    VjInode inode = {.ino = INO};
    VjInlineRecord record;

    (void)opaque;
    vj_inline_make(INO, &xored, INLINE_TEXT, strlen(INLINE_TEXT), &record);
    return vj_inline_put(txn, &inode, &record);
}

static int get_inline(VjTxn *txn, void *opaque)
{
    const VjInode *inode = opaque;
    char got[64];
    int r = vj_inline_get(txn, inode, got, sizeof got, NULL);

    if (r == 0) {
        assert_memory_equal(got, INLINE_TEXT, strlen(INLINE_TEXT));
    }
    return r;
}

static void inline_records(void **state)
{
    VjInode inode = {
        .ino = INO, .size = strlen(INLINE_TEXT), .content = VJ_CONTENT_INLINE};
    g_autoptr(GByteArray) bytes = golden_load("inline-v1.hex");
    uint8_t key[8];
    Record record = {.space = VJ_SPACE_INLINE, .key = vj_ino_key(INO, key)};
    VjMeta *m = mem_meta_new();
    uint64_t sum;

    (void)state;
    run(m, put_inline, NULL);
    expect_golden(m, &record, "inline-v1.hex", get_inline, &inode);
    run(m, put_inline_xored, NULL);
    expect_golden(m, &record, "inline-xor-v1.hex", get_inline, &inode);

    /* The content of another file, of the same length. */
    record.bytes = bytes;
    record.key = vj_ino_key(INO + 1, key);
    inode.ino = INO + 1;
    run(m, write_body, &record);
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, get_inline, &inode), -EBADMSG);

    /* A transformation that came later, which made it shorter: refused as such. */
    record.key = vj_ino_key(INO, key);
    inode.ino = INO;
    bytes->data[offsetof(VjInlineHead, codec)] = 77;
    g_byte_array_set_size(bytes, bytes->len - 5);
    sum = GUINT64_TO_LE(vj_checksum64(bytes->data, bytes->len - 8));
    memcpy(bytes->data + bytes->len - 8, &sum, sizeof sum);
    run(m, write_body, &record);
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, get_inline, &inode), -EOPNOTSUPP);
    assert_int_equal(vj_meta_close(m), 0);
}

typedef struct Small {
    VjInode inode;
    VjTransform want;
    uint8_t bytes[VJ_FILE_INLINE_MAX];
} Small;

static int put_small(VjTxn *txn, void *opaque)
{
    Small *s = opaque;
    VjInlineRecord record;
    int r;

    vj_inline_make(INO, &s->want, s->bytes, s->inode.size, &record);
    assert_true(record.len <= VJ_META_VALUE_CHEAP);
    r = vj_inline_put(txn, &s->inode, &record);
    return r < 0 ? r : vj_inode_put(txn, &s->inode);
}

static int get_small(VjTxn *txn, void *opaque)
{
    const Small *s = opaque;
    uint8_t got[VJ_FILE_INLINE_MAX];
    uint64_t stored = 0;
    VjInode inode;
    int r = vj_inode_get(txn, INO, &inode);

    if (r == 0) {
        r = vj_inline_get(txn, &inode, got, sizeof got, &stored);
    }
    if (r == 0) {
        assert_memory_equal(got, s->bytes, s->inode.size);
        assert_int_equal(stored, inode.stored_bytes);
    }
    return r;
}

static int lose_rest(VjTxn *txn, void *opaque)
{
    Small *s = opaque;
    VjInode inode = s->inode;

    inode.inline_rest_bytes--;
    return vj_inode_put(txn, &inode);
}

/* No length takes a second page of the engine, and what does not go into the first one is
 * not left behind by a shorter content. */
static void contents_of_a_page(void **state)
{
    static const VjTransform transforms[] = {{.codec = VJ_CODEC_ID_NONE},
                                             {.codec = VJ_CODEC_ID_XOR, .param = 0x5a}};
    static const size_t lengths[] = {4047, 4096, 4048, 4049, 1, 4095};
    const size_t plain_most = VJ_FILE_INLINE_MAX - VJ_FILE_INLINE_REST_MAX;
    VjMeta *m = mem_meta_new();
    Small s = {.inode = {.ino = INO, .mode = S_IFREG | 0644, .nlink = 1}};

    (void)state;
    for (size_t i = 0; i < sizeof s.bytes; i++) {
        s.bytes[i] = (uint8_t)(i * 131 ^ i >> 5);
    }
    for (size_t t = 0; t < G_N_ELEMENTS(transforms); t++) {
        s.want = transforms[t];
        for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
            s.inode.size = lengths[i];
            run(m, put_small, &s);
            assert_int_equal(s.inode.inline_rest_bytes,
                             lengths[i] - MIN(lengths[i], plain_most));
            assert_int_equal(s.inode.stored_bytes, lengths[i]);
            run(m, get_small, &s);
            if (s.inode.inline_rest_bytes > 0) {
                run(m, lose_rest, &s);
                assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, get_small, &s), -EBADMSG);
            }
        }
    }
    assert_int_equal(vj_meta_close(m), 0);
}

/* What a compressor made is nothing without its end: it has no rest, and what would have
 * one is stored as it is. */
static void compressed_contents_have_no_rest(void **state)
{
    static const uint8_t codecs[] = {VJ_CODEC_ID_LZ4, VJ_CODEC_ID_ZSTD};
    uint8_t bytes[VJ_FILE_INLINE_MAX];
    unsigned kept = 0, plain = 0;
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, 3);
    vj_rng_bytes(&rng, bytes, sizeof bytes);
    for (size_t c = 0; c < G_N_ELEMENTS(codecs); c++) {
        const VjTransform want = {.codec = codecs[c]};

        for (size_t zeros = 1; zeros < 200 && vj_codec_by_id(codecs[c]) != NULL;
             zeros++) {
            uint8_t some[VJ_FILE_INLINE_MAX];
            VjInlineRecord record;
            VjInlineHead head;

            memcpy(some, bytes, sizeof some);
            memset(some + 1000, 0, zeros);
            vj_inline_make(INO, &want, some, sizeof some, &record);
            memcpy(&head, record.bytes, sizeof head);
            if (head.codec == VJ_CODEC_ID_NONE) {
                assert_int_equal(record.rest_bytes, VJ_FILE_INLINE_REST_MAX);
                assert_int_equal(record.stored_bytes, sizeof some);
                plain++;
            } else {
                assert_int_equal(record.rest_bytes, 0);
                assert_true(record.stored_bytes <= VJ_META_VALUE_CHEAP);
                kept++;
            }
        }
    }
    assert_true(vj_codec_by_id(VJ_CODEC_ID_LZ4) == NULL || (kept > 0 && plain > 48));
}

/* ---- fragments --------------------------------------------------------------------- */

#define FRAGMENT 0x51525354u

static int put_fragment(VjTxn *txn, void *opaque)
{
    (void)opaque;
    return vj_fragment_put(txn, INO, FRAGMENT, NULL, INLINE_TEXT, strlen(INLINE_TEXT));
}

static int put_fragment_xored(VjTxn *txn, void *opaque)
{
    (void)opaque;
    return vj_fragment_put(txn, INO, FRAGMENT, &xored, INLINE_TEXT, strlen(INLINE_TEXT));
}

static int get_fragment(VjTxn *txn, void *opaque)
{
    const VjEntry *entry = opaque;
    char got[64];
    int r = vj_fragment_get(txn, INO, entry, 1, got, entry->length - 1);

    if (r == 0) {
        assert_memory_equal(got, INLINE_TEXT + 3, entry->length - 1);
    }
    return r;
}

static void fragment_records(void **state)
{
    VjEntry entry = {.kind = VJ_ENTRY_FRAGMENT, .id = FRAGMENT, .start = 2, .length = 5};
    uint8_t key[12];
    Record record = {.space = VJ_SPACE_FRAGMENT, .key = vj_slice(key, sizeof key)};
    VjMeta *m = mem_meta_new();

    (void)state;
    run(m, put_fragment, NULL);
    vj_be64_set(key, INO);
    vj_be32_set(key + 8, FRAGMENT);
    expect_golden(m, &record, "fragment-v1.hex", get_fragment, &entry);
    run(m, put_fragment_xored, NULL);
    expect_golden(m, &record, "fragment-xor-v1.hex", get_fragment, &entry);
    /* An entry that wants more than there is, or counts around. */
    run(m, put_fragment, NULL);
    entry.length = strlen(INLINE_TEXT) - 1;
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, get_fragment, &entry), -EBADMSG);
    entry = (VjEntry){
        .kind = VJ_ENTRY_FRAGMENT, .id = FRAGMENT, .start = UINT32_MAX - 4, .length = 5};
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, get_fragment, &entry), -EBADMSG);
    entry.id += (uint64_t)1 << 32;
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, get_fragment, &entry), -EBADMSG);
    assert_int_equal(vj_meta_close(m), 0);
}

/* ---- orphans ----------------------------------------------------------------------- */

static const VjOrphan orphan_inode = {
    .ino = INO, .session = 0x7172737475767778, .flags = VJ_ORPHAN_LEFT_OPEN};
static const VjOrphan orphan_tree = {.ino = INO,
                                     .root = {.node = 0x51525354,
                                              .height = 2,
                                              .bytes = 0x0102030405060708,
                                              .stored_bytes = 0x61626364},
                                     .session = 0x71};

static int put_orphan(VjTxn *txn, void *opaque)
{
    const VjOrphan *orphan = opaque;
    uint8_t key[VJ_ORPHAN_KEY_BYTES], value[VJ_ORPHAN_BYTES];

    vj_orphan_encode(orphan, value);
    return vj_txn_put(txn, VJ_SPACE_ORPHAN,
                      vj_orphan_key(orphan->ino, orphan->root.node, key),
                      vj_slice(value, sizeof value));
}

static int get_orphan(VjTxn *txn, void *opaque)
{
    const Record *record = opaque;
    VjOrphan orphan;
    VjSlice value;
    int r = vj_txn_get(txn, VJ_SPACE_ORPHAN, record->key, &value);

    return r < 0 ? r : vj_orphan_decode(record->key, value, &orphan);
}

static void orphan_records(void **state)
{
    uint8_t key[12];
    Record record = {.space = VJ_SPACE_ORPHAN, .key = vj_slice(key, sizeof key)};
    VjMeta *m = mem_meta_new();

    (void)state;
    run(m, put_orphan, (void *)(uintptr_t)&orphan_inode);
    run(m, put_orphan, (void *)(uintptr_t)&orphan_tree);
    vj_be64_set(key, INO);
    vj_be32_set(key + 8, 0);
    expect_golden(m, &record, "orphan-inode-v2.hex", get_orphan, &record);
    vj_be32_set(key + 8, orphan_tree.root.node);
    expect_golden(m, &record, "orphan-tree-v2.hex", get_orphan, &record);
    assert_int_equal(vj_meta_close(m), 0);
}

/* ---- the counter ------------------------------------------------------------------- */

static int next_ino(VjTxn *txn, void *opaque)
{
    uint64_t ino;

    (void)opaque;
    return vj_ino_take(txn, &ino);
}

/* A damaged counter gives out no number: it might be one that is in use. */
static void inode_counter(void **state)
{
    Record record = {.space = VJ_SPACE_SYSTEM,
                     .key = vj_slice(VJ_NEXT_INO_KEY, strlen(VJ_NEXT_INO_KEY))};
    VjMeta *m = mem_meta_new();

    (void)state;
    run(m, next_ino, NULL);
    expect_golden(m, &record, "next-ino-v1.hex", next_ino, NULL);
    assert_int_equal(vj_meta_close(m), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(inode_records),
    cmocka_unit_test(impossible_values),
    cmocka_unit_test(protected_kinds),
    cmocka_unit_test(foreign_key),
    cmocka_unit_test(inline_records),
    cmocka_unit_test(fragment_records),
    cmocka_unit_test(orphan_records),
    cmocka_unit_test(inode_counter),
    cmocka_unit_test(contents_of_a_page),
    cmocka_unit_test(compressed_contents_have_no_rest),
};

VJ_TEST_MAIN(tests)
