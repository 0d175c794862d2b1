/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-superblock.c - varjfs.conf, and that its volume, metadata and objects belong
 * together
 *
 * tests/compat/varjfs-conf*-v2.txt and volume-v1.hex are what version 2 wrote; they are
 * never changed.
 */
#include "../../lib/golden.h"
#include "../../lib/mem-meta.h"

#include "file/inode-format.h"
#include "volume/volume-private.h"

#define UUID "01234567-89ab-4cde-8f01-23456789abcd"
#define OTHER "01234567-89ab-4cde-8f01-23456789abce"

static char *read_golden(const char *name, size_t *len)
{
    g_autofree char *path = g_build_filename(TOP_SRCDIR, "tests/compat", name, NULL);
    char *text;

    assert_true(g_file_get_contents(path, &text, len, NULL));
    return text;
}

static char *golden_text(size_t *len)
{
    return read_golden("varjfs-conf-v2.txt", len);
}

static void golden_superblock(void **state)
{
    size_t len;
    g_autofree char *text = golden_text(&len), *again = NULL;
    g_autoptr(GError) error = NULL;
    VjSuperblock s;

    (void)state;
    if (!vj_superblock_parse(text, len, &s, &error)) {
        fail_msg("%s", error->message);
    }
    assert_string_equal(s.uuid, UUID);
    assert_string_equal(s.label, "a label = with # odd  parts");
    assert_string_equal(s.store, "posix:open_files=7");
    assert_string_equal(s.meta, "lmdb");
    assert_string_equal(s.digest->name, "sha256");
    assert_string_equal(s.chunker->name, "rabin");
    assert_int_equal(s.sizes.min_bytes, 2048);
    assert_int_equal(s.sizes.avg_bytes, 65536);
    assert_int_equal(s.sizes.max_bytes, 1048576);
    assert_int_equal(s.chunk_seed, UINT64_C(0x00fedcba98765432));
    assert_int_equal(s.transform.codec, 0);
    again = vj_superblock_format(&s);
    assert_string_equal(again, text);
    vj_superblock_clear(&s);
}

/* Of a program that knows gear.  How gear cuts is in tests/unit/chunk/golden-cuts.h. */
static void golden_superblock_of_gear(void **state)
{
    size_t len;
    g_autofree char *text = read_golden("varjfs-conf-gear-v2.txt", &len), *again = NULL;
    g_autoptr(GError) error = NULL;
    VjSuperblock s;

    (void)state;
    if (!vj_superblock_parse(text, len, &s, &error)) {
        fail_msg("%s", error->message);
    }
    assert_string_equal(s.chunker->name, "gear");
    assert_int_equal(s.sizes.min_bytes, 65536);
    assert_int_equal(s.sizes.avg_bytes, 262144);
    assert_int_equal(s.sizes.max_bytes, 1048576);
    again = vj_superblock_format(&s);
    assert_string_equal(again, text);
    vj_superblock_clear(&s);
}

/* Each bit flipped, each prefix: refused. */
static void damaged_superblock(void **state)
{
    size_t len;
    g_autofree char *text = golden_text(&len);
    VjSuperblock s;

    (void)state;
    for (size_t i = 0; i < 8 * len; i++) {
        char right = text[i / 8];

        text[i / 8] ^= (char)(1 << i % 8);
        if (vj_superblock_parse(text, len, &s, NULL)) {
            fail_msg("bit %zu: it is taken:\n%s", i, text);
        }
        text[i / 8] = right;
    }
    while (len-- > 0) {
        text[len] = '\0';
        assert_false(vj_superblock_parse(text, len, &s, NULL));
    }
}

/* The golden text with @old replaced by @now and a right checksum is refused with
 * @part. */
static void expect_refused(const char *old, const char *now, int positive_errno,
                           const char *part)
{
    size_t len;
    g_autofree char *text = golden_text(&len), *changed = NULL;
    g_autoptr(GError) error = NULL;
    char *at = strstr(text, old), *sum = strstr(text, "checksum = ");
    VjSuperblock s;

    assert_non_null(at);
    *sum = '\0';
    *at = '\0';
    changed = g_strconcat(text, now, at + strlen(old), NULL);
    g_free(text);
    text = g_strdup_printf("%schecksum = %016" G_GINT64_MODIFIER "x\n", changed,
                           vj_checksum64(changed, strlen(changed)));
    assert_false(vj_superblock_parse(text, strlen(text), &s, &error));
    vj_test_expect_error(&error, positive_errno, part);
}

static void impossible_superblock(void **state)
{
    (void)state;
    expect_refused("format = 2\n", "format = 3\n", EPROTO, "format 3 is newer");
    expect_refused("format = 2\n", "format = 1\n", EPROTO, "format 1 was never released");
    expect_refused("format = 2\n", "format = 0\n", EBADMSG, "format line is damaged");
    expect_refused("format = 2\n", "format = 2 \n", EBADMSG, "format line is damaged");
    expect_refused("format = 2\n", "", EBADMSG, "no line \"format\"");
    expect_refused("meta = lmdb\n", "", EBADMSG, "no line \"meta\"");
    expect_refused("meta = lmdb\n", "meta = lmdb\nmeta = redis\n", EBADMSG,
                   "two lines \"meta\"");
    expect_refused("meta = lmdb\n", "meta = lmdb\nfragments = 1\n", EPROTO,
                   "\"fragments\" is of a newer version");
    expect_refused("meta = lmdb\n", "meta=lmdb\n", EBADMSG, "not \"key = value\"");
    expect_refused("uuid = 0123", "uuid = 123", EBADMSG, "uuid");
    expect_refused("uuid = 0", "uuid = G", EBADMSG, "uuid");
    expect_refused("seed = 00", "seed = ", EBADMSG, "seed");
    expect_refused("seed = 00", "seed = 0x", EBADMSG, "seed");
    expect_refused("hash = sha256", "hash = sha512", EBADMSG, "digest");
    expect_refused("chunker = rabin", "chunker = ae", EOPNOTSUPP, "chunker ae");
    expect_refused("2048:65536", "4294967297:65536", EBADMSG, "sizes");
    expect_refused("transform = none", "transform = rot13", EINVAL, "rot13");
    expect_refused("transform = none\n", "transform = none\nsequence = 0\n", EBADMSG,
                   "sequence");
    expect_refused("transform = none\n", "transform = none\nsequence = x\n", EBADMSG,
                   "sequence");
}

/* A line that begins with "x-" is for people and other programs. */
static void harmless_superblock(void **state)
{
    size_t len;
    g_autofree char *text = golden_text(&len), *longer = NULL;
    VjSuperblock s;

    (void)state;
    *strstr(text, "checksum = ") = '\0';
    longer = g_strconcat(text, "x-owner = somebody\n", NULL);
    g_free(text);
    text = g_strdup_printf("%schecksum = %016" G_GINT64_MODIFIER "x\n", longer,
                           vj_checksum64(longer, strlen(longer)));
    assert_true(vj_superblock_parse(text, strlen(text), &s, NULL));
    vj_superblock_clear(&s);
}

/* The first change adds the line; all others stay, those for other programs too. */
static void changed_superblock(void **state)
{
    size_t len;
    g_autofree char *text = golden_text(&len), *once = NULL, *twice = NULL;
    g_autofree char *expected = NULL;
    VjSuperblock s;

    (void)state;
    once = vj_superblock_text_with(text, "remote:a,b", 1);
    assert_true(vj_superblock_parse(once, strlen(once), &s, NULL));
    assert_string_equal(s.store, "remote:a,b");
    assert_string_equal(s.meta, "lmdb");
    assert_true(s.sequence == 1);
    vj_superblock_clear(&s);
    twice = vj_superblock_text_with(once, "posix:open_files=7", UINT64_MAX);
    assert_true(vj_superblock_parse(twice, strlen(twice), &s, NULL));
    assert_true(s.sequence == UINT64_MAX);
    vj_superblock_clear(&s);
    *strstr(text, "checksum = ") = '\0';
    expected = g_strconcat(text, "sequence = 18446744073709551615\n", NULL);
    assert_true(g_str_has_prefix(twice, expected));
    assert_true(g_str_has_prefix(twice + strlen(expected), "checksum = "));
}

/* A later version may keep its checksum elsewhere: it is named, not called damaged. */
static void newer_superblock(void **state)
{
    static const char text[] = "# A volume\nformat = 12\nsomething else\n";
    g_autoptr(GError) error = NULL;
    VjSuperblock s;

    (void)state;
    assert_false(vj_superblock_parse(text, strlen(text), &s, &error));
    vj_test_expect_error(&error, EPROTO, "format 12 is newer");
}

/* ---- what belongs together --------------------------------------------------------- */

static int record_body(VjTxn *txn, void *opaque)
{
    return vj_volume_record_put(txn, opaque);
}

typedef struct Raw {
    GByteArray *bytes;
} Raw;

static int raw_get(VjTxn *txn, void *opaque)
{
    Raw *raw = opaque;
    VjSlice value;
    int r = vj_txn_get(txn, VJ_SPACE_SYSTEM,
                       vj_slice(VJ_VOLUME_KEY, strlen(VJ_VOLUME_KEY)), &value);

    g_byte_array_set_size(raw->bytes, 0);
    if (r == 0) {
        g_byte_array_append(raw->bytes, value.data, (guint)value.len);
    }
    return r;
}

static int raw_put(VjTxn *txn, void *opaque)
{
    const Raw *raw = opaque;

    return vj_txn_put(txn, VJ_SPACE_SYSTEM,
                      vj_slice(VJ_VOLUME_KEY, strlen(VJ_VOLUME_KEY)),
                      vj_slice(raw->bytes->data, raw->bytes->len));
}

static void volume_record(void **state)
{
    VjMeta *m = mem_meta_new();
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    g_autoptr(GError) error = NULL;
    Raw raw = {bytes};

    (void)state;
    assert_false(vj_volume_record_check(m, UUID, "place", &error));
    vj_test_expect_error(&error, EBADMSG, "missing");
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, record_body, (void *)(uintptr_t)UUID),
                     0);
    assert_true(vj_volume_record_check(m, UUID, "place", &error));
    assert_false(vj_volume_record_check(m, OTHER, "place", &error));
    vj_test_expect_error(&error, EBADMSG,
                         "place: these are the metadata of another volume");
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, raw_get, &raw), 0);
    golden_expect("volume-v1.hex", vj_slice(bytes->data, bytes->len));
    for (guint i = 0; i < bytes->len; i++) {
        bytes->data[i] ^= 0x10;
        assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, raw_put, &raw), 0);
        assert_false(vj_volume_record_check(m, UUID, "place", &error));
        vj_test_expect_error(&error, EBADMSG, "damaged");
        bytes->data[i] ^= 0x10;
    }
    assert_int_equal(vj_meta_close(m), 0);
}

static int copy_put(VjTxn *txn, void *opaque)
{
    return vj_superblock_record_put(txn, opaque);
}

static int copy_get(VjTxn *txn, void *opaque)
{
    return vj_superblock_record_get(txn, opaque);
}

static int copy_raw_get(VjTxn *txn, void *opaque)
{
    Raw *raw = opaque;
    VjSlice value;
    int r = vj_txn_get(txn, VJ_SPACE_SYSTEM,
                       vj_slice(VJ_SUPERBLOCK_KEY, strlen(VJ_SUPERBLOCK_KEY)), &value);

    g_byte_array_set_size(raw->bytes, 0);
    if (r == 0) {
        g_byte_array_append(raw->bytes, value.data, (guint)value.len);
    }
    return r;
}

static int copy_raw_put(VjTxn *txn, void *opaque)
{
    const Raw *raw = opaque;

    return vj_txn_put(txn, VJ_SPACE_SYSTEM,
                      vj_slice(VJ_SUPERBLOCK_KEY, strlen(VJ_SUPERBLOCK_KEY)),
                      vj_slice(raw->bytes->data, raw->bytes->len));
}

/* The text is any. */
static void copy_record(void **state)
{
    g_autofree char *text = NULL, *again = NULL;
    VjMeta *m = mem_meta_new();
    g_autoptr(GByteArray) bytes = golden_load("superblock-v1.hex");
    Raw raw = {bytes};

    (void)state;
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, copy_get, &text), -ENOENT);
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, copy_raw_put, &raw), 0);
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, copy_get, &text), 0);
    assert_true(g_str_has_prefix(text, "# A varjfs volume"));
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, copy_put, text), 0);
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, copy_get, &again), 0);
    assert_string_equal(again, text);
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, copy_raw_get, &raw), 0);
    golden_expect("superblock-v1.hex", vj_slice(bytes->data, bytes->len));
    g_clear_pointer(&again, g_free);
    for (guint i = 0; i < bytes->len; i++) {
        bytes->data[i] ^= 0x10;
        assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, copy_raw_put, &raw), 0);
        assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, copy_get, &again), -EBADMSG);
        assert_null(again);
        bytes->data[i] ^= 0x10;
    }
    for (guint keep = 0; keep < 20; keep++) {
        g_byte_array_set_size(bytes, 19 - keep);
        assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, copy_raw_put, &raw), 0);
        assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, copy_get, &again), -EBADMSG);
    }
    assert_int_equal(vj_meta_close(m), 0);
}

static char *make_volume(void)
{
    char *dir = vj_test_make_dir();
    VjVolumeMake how = {.source = dir};
    g_autoptr(GError) error = NULL;

    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    return dir;
}

static void exchange(const char *a, const char *b, const char *name)
{
    g_autofree char *from = g_build_filename(a, name, NULL);
    g_autofree char *to = g_build_filename(b, name, NULL);

    assert_int_equal(renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE), 0);
}

static bool opens(const char *dir, GError **error)
{
    VjVolumeOpen how = {.source = dir};
    VjVolume *v;

    if (!vj_volume_open(&how, &v, error)) {
        return false;
    }
    assert_int_equal(vj_volume_close(v), 0);
    return true;
}

static void parts_of_two_volumes(void **state)
{
    char *a = make_volume(), *b = make_volume();
    g_autoptr(GError) error = NULL;

    (void)state;
    assert_true(opens(a, &error) && opens(b, &error));
    exchange(a, b, "meta");
    assert_false(opens(a, &error));
    vj_test_expect_error(&error, EBADMSG,
                         "meta: these are the metadata of another volume");
    exchange(a, b, "objects");
    assert_false(opens(a, &error));
    vj_test_expect_error(&error, EBADMSG,
                         "meta: these are the metadata of another volume");
    exchange(a, b, "meta");
    assert_false(opens(a, &error));
    vj_test_expect_error(&error, EBADMSG, "objects: these objects belong to the volume ");
    exchange(a, b, "objects");
    assert_true(opens(a, &error) && opens(b, &error));
    vj_test_remove_dir(a);
    vj_test_remove_dir(b);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(golden_superblock),  cmocka_unit_test(golden_superblock_of_gear),
    cmocka_unit_test(damaged_superblock), cmocka_unit_test(impossible_superblock),
    cmocka_unit_test(changed_superblock), cmocka_unit_test(harmless_superblock),
    cmocka_unit_test(newer_superblock),   cmocka_unit_test(volume_record),
    cmocka_unit_test(copy_record),        cmocka_unit_test(parts_of_two_volumes),
};

VJ_TEST_MAIN(tests)
