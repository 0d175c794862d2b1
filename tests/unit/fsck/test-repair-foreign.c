/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-repair-foreign.c - an object without a record, or inline content where there can
 * be none, whose bytes only another build can read
 *
 * Repair leaves its bytes and all that names it alone and goes on saying what is wrong; a
 * build that knows the transformation makes the record again.
 */
#include "../../lib/test.h"

#include "../../lib/plant.h"
#include "codec/codec.h"
#include "file/inode-format.h"
#include "file/records.h"
#include "fs/fs-private.h"
#include "fsck/fsck.h"
#include "object/object-format.h"
#include "object/stored-form.h"

#include <ftw.h>

#define CONTENT_BYTES 100000u
#define FOREIGN_CODEC 200
/* Where a footer says which transformation it is. */
#define FOOTER_CODEC 12

static const VjCaller root_caller = {.umask = 0};

/* What the checks and the repair of the last repair() said, a line each. */
static GString *said;

static void say(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "# %s\n", text);
    g_string_append_printf(said, "%s\n", text);
}

/* Around the store while a volume is repaired; NULL: nothing. */
static const char *repair_faults;

static VjVolume *open_volume(char *dir, bool check)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = dir,
                        .check = check,
                        .repair = check,
                        .wrap_store = check ? repair_faults : NULL};
    VjVolume *v;

    if (!vj_volume_open(&how, &v, &error)) {
        fail_msg("%s", error->message);
    }
    return v;
}

static void fill(uint8_t content[CONTENT_BYTES])
{
    VjRng rng;

    vj_rng_init(&rng, 7);
    vj_rng_bytes(&rng, content, CONTENT_BYTES);
}

/* A volume with the file f, of one object. */
static uint64_t make_volume(char *dir)
{
    g_autoptr(GError) error = NULL;
    g_autofree uint8_t *content = g_malloc(CONTENT_BYTES);
    VjVolumeMake how = {.source = dir};
    VjVolume *v;
    VjAttr attr;
    VjHandle *h;
    VjFs *fs;

    fill(content);
    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    v = open_volume(dir, false);
    fs = vj_fs_new(v);
    assert_int_equal(
        vj_fs_create(fs, &root_caller, VJ_INO_ROOT, "f", 0644, O_RDWR, &attr, &h), 0);
    assert_int_equal(vj_fs_write(h, 0, content, CONTENT_BYTES, 0, NULL), 0);
    vj_fs_release(fs, h);
    vj_fs_free(fs);
    assert_int_equal(vj_volume_close(v), 0);
    return attr.st.st_ino;
}

static int lose_record(VjTxn *txn, void *opaque)
{
    VjSlice key, value;
    int r = vj_txn_next(txn, VJ_SPACE_OBJECT, vj_slice(NULL, 0), &key, &value);
    uint8_t copy[VJ_OBJECT_KEY_BYTES];

    (void)opaque;
    assert_int_equal(r, 0);
    memcpy(copy, key.data, sizeof copy);
    return vj_txn_del(txn, VJ_SPACE_OBJECT, vj_slice(copy, sizeof copy));
}

static uint8_t label;
static unsigned labelled;

/* The objects' files are those that end with a footer. */
static int relabel(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    off_t footer = st->st_size - VJ_TRAILER_FOOTER_BYTES;
    VJ_AUTO_FD fd = -1;
    char magic[4];

    (void)ftw;
    if (type != FTW_F || footer < 0) {
        return 0;
    }
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    if (pread(fd, magic, sizeof magic, footer + 20) == 4 &&
        memcmp(magic, "VJtr", sizeof magic) == 0) {
        assert_int_equal(pwrite(fd, &label, 1, footer + FOOTER_CODEC), 1);
        labelled++;
    }
    return 0;
}

static void relabel_objects(const char *dir, uint8_t codec)
{
    label = codec;
    labelled = 0;
    assert_int_equal(nftw(dir, relabel, 16, FTW_PHYS), 0);
    assert_int_equal(labelled, 1);
}

/* Rounds as fsck.varjfs -y makes them; the problems that are left.  *mended things
 * changed. */
static uint64_t repair(char *dir, uint64_t *mended)
{
    VjVolume *v = open_volume(dir, true);
    VjCheckReport report = {0};

    if (said != NULL) {
        g_string_free(said, TRUE);
    }
    said = g_string_new(NULL);
    *mended = 0;
    for (unsigned round = 0; round < 4; round++) {
        g_autoptr(VjRepair) r = NULL;

        report = (VjCheckReport){0};
        assert_int_equal(vj_fsck_contents(v, round == 0, say, NULL, &report), 0);
        assert_int_equal(vj_fsck_names(v, say, NULL, &report), 0);
        if (report.problems == 0) {
            break;
        }
        r = vj_repair_new(v, say, NULL);
        assert_int_equal(vj_repair_all(r), 0);
        *mended += vj_repair_count(r);
    }
    assert_int_equal(vj_volume_close(v), 0);
    return report.problems;
}

static void expect_content(char *dir, uint64_t ino)
{
    g_autofree uint8_t *content = g_malloc(CONTENT_BYTES);
    g_autofree uint8_t *found = g_malloc(CONTENT_BYTES);
    VjVolume *v = open_volume(dir, false);
    VjFs *fs = vj_fs_new(v);
    VjHandle *h;
    size_t got;

    fill(content);
    assert_int_equal(vj_fs_open(fs, &root_caller, ino, O_RDONLY, &h), 0);
    assert_int_equal(vj_fs_read(h, 0, found, CONTENT_BYTES, &got), 0);
    assert_int_equal(got, CONTENT_BYTES);
    assert_memory_equal(found, content, CONTENT_BYTES);
    vj_fs_release(fs, h);
    vj_fs_free(fs);
    assert_int_equal(vj_volume_close(v), 0);
}

static void another_build_can_read_it(void **state)
{
    char *dir = vj_test_make_dir();
    uint64_t ino = make_volume(dir), mended;

    (void)state;
    vj_plant(dir, lose_record, NULL);
    relabel_objects(dir, FOREIGN_CODEC);
    assert_true(repair(dir, &mended) > 0);
    assert_int_equal(mended, 0);

    relabel_objects(dir, VJ_CODEC_ID_NONE);
    assert_int_equal(repair(dir, &mended), 0);
    assert_true(mended > 0);
    expect_content(dir, ino);
    vj_test_remove_dir(dir);
}

/* A device that fails is no proof that the bytes are lost. */
static void a_store_that_fails_loses_nothing(void **state)
{
    char *dir = vj_test_make_dir();
    uint64_t ino = make_volume(dir), mended;

    (void)state;
    vj_plant(dir, lose_record, NULL);
    repair_faults = "fault:kinds=get,every=1,errno=EIO";
    assert_true(repair(dir, &mended) > 0);
    assert_int_equal(mended, 0);
    repair_faults = NULL;
    assert_int_equal(repair(dir, &mended), 0);
    expect_content(dir, ino);
    vj_test_remove_dir(dir);
}

/* ---- inline content of what is no file --------------------------------------------- */

typedef struct Inline {
    uint64_t ino; /* of a file with 5 bytes in it, which becomes a device */
    uint8_t codec;
    uint64_t size; /* what the inode says */
} Inline;

static int make_it_a_device(VjTxn *txn, void *opaque)
{
    const Inline *want = opaque;
    uint8_t key[8], bytes[200];
    uint64_t sum;
    VjInode inode;
    VjSlice value;

    assert_int_equal(vj_inode_get(txn, want->ino, &inode), 0);
    assert_int_equal(inode.content, VJ_CONTENT_INLINE);
    inode.mode = S_IFCHR | 0600;
    inode.size = want->size;
    assert_int_equal(vj_inode_put(txn, &inode), 0);
    vj_be64_set(key, want->ino);
    assert_int_equal(vj_txn_get(txn, VJ_SPACE_INLINE, vj_slice(key, sizeof key), &value),
                     0);
    assert_true(value.len <= sizeof bytes);
    memcpy(bytes, value.data, value.len);
    bytes[offsetof(VjInlineHead, codec)] = want->codec;
    sum = GUINT64_TO_LE(vj_checksum64(bytes, value.len - VJ_INLINE_CHECKSUM_BYTES));
    memcpy(bytes + value.len - VJ_INLINE_CHECKSUM_BYTES, &sum, sizeof sum);
    return vj_txn_put(txn, VJ_SPACE_INLINE, vj_slice(key, sizeof key),
                      vj_slice(bytes, value.len));
}

static uint64_t make_small_of(char *dir, const void *bytes, size_t len)
{
    g_autoptr(GError) error = NULL;
    VjVolumeMake how = {.source = dir};
    VjVolume *v;
    VjAttr attr;
    VjHandle *h;
    VjFs *fs;

    assert_true(vj_volume_make(&how, &error));
    v = open_volume(dir, false);
    fs = vj_fs_new(v);
    assert_int_equal(
        vj_fs_create(fs, &root_caller, VJ_INO_ROOT, "f", 0644, O_RDWR, &attr, &h), 0);
    assert_int_equal(vj_fs_write(h, 0, bytes, len, 0, NULL), 0);
    vj_fs_release(fs, h);
    vj_fs_free(fs);
    assert_int_equal(vj_volume_close(v), 0);
    return attr.st.st_ino;
}

static uint64_t make_small(char *dir)
{
    return make_small_of(dir, "inner", 5);
}

/* "inner" is in a file that repair has made; @count such files. */
static void expect_kept(char *dir, uint64_t after, unsigned count)
{
    VjVolume *v = open_volume(dir, false);
    VjFs *fs = vj_fs_new(v);
    unsigned found = 0;

    for (uint64_t ino = after + 1; ino < after + 8; ino++) {
        char bytes[6] = "";
        size_t got = 0;
        VjHandle *h;

        if (vj_fs_open(fs, &root_caller, ino, O_RDONLY, &h) == 0) {
            found +=
                vj_fs_read(h, 0, bytes, 5, &got) == 0 && memcmp(bytes, "inner", 5) == 0;
            vj_fs_release(fs, h);
        }
    }
    assert_int_equal(found, count);
    vj_fs_free(fs);
    assert_int_equal(vj_volume_close(v), 0);
}

static void content_of_a_device_becomes_a_file(void **state)
{
    static const uint64_t sizes[] = {5, 7};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        char *dir = vj_test_make_dir();
        Inline want = {make_small(dir), VJ_CODEC_ID_NONE, sizes[i]};
        uint64_t mended;

        vj_plant(dir, make_it_a_device, &want);
        assert_int_equal(repair(dir, &mended), 0);
        expect_kept(dir, want.ino, 1);
        vj_test_remove_dir(dir);
    }
}

static void content_of_another_build_stays(void **state)
{
    char *dir = vj_test_make_dir();
    Inline want = {make_small(dir), FOREIGN_CODEC, 5};
    uint64_t mended;

    (void)state;
    vj_plant(dir, make_it_a_device, &want);
    assert_true(repair(dir, &mended) > 0);
    expect_kept(dir, want.ino, 0);

    want.codec = VJ_CODEC_ID_NONE;
    vj_plant(dir, make_it_a_device, &want);
    assert_int_equal(repair(dir, &mended), 0);
    expect_kept(dir, want.ino, 1);
    vj_test_remove_dir(dir);
}

/* ---- inline content, and its rest in the record of the inode ----------------------- */

#define FIRST_BYTES (VJ_FILE_INLINE_MAX - VJ_FILE_INLINE_REST_MAX)
#define FULL_BYTES VJ_FILE_INLINE_MAX

static int lose_inode(VjTxn *txn, void *opaque)
{
    return vj_inode_del(txn, *(const uint64_t *)opaque);
}

/* More than one bit of it, and none of the rest. */
static int damage_inode(VjTxn *txn, void *opaque)
{
    uint8_t key[8];
    int r;

    vj_plant_smears = true;
    r = vj_plant_flip(txn, VJ_SPACE_INODE, vj_ino_key(*(const uint64_t *)opaque, key),
                      offsetof(VjInodeDisk, mtime_sec));
    vj_plant_smears = false;
    return r;
}

/* Of it and of its rest. */
static int damage_rest(VjTxn *txn, void *opaque)
{
    uint8_t key[8];
    int r;

    vj_plant_smears = true;
    r = vj_plant_flip(txn, VJ_SPACE_INODE, vj_ino_key(*(const uint64_t *)opaque, key),
                      offsetof(VjInodeDisk, checksum));
    vj_plant_smears = false;
    return r;
}

/* What a transaction that is lost in part could leave: the rest of other content. */
typedef struct Rest {
    uint64_t ino;
    uint8_t bytes;
    uint64_t size; /* 0: stays */
    bool is_device;
} Rest;

static int give_it_a_rest(VjTxn *txn, void *opaque)
{
    const Rest *rest = opaque;
    VjInode inode;

    assert_int_equal(vj_inode_get(txn, rest->ino, &inode), 0);
    inode.inline_rest_bytes = rest->bytes;
    inode.stored_bytes = MIN(inode.size, FIRST_BYTES) + rest->bytes;
    memset(inode.inline_rest, 0x55, rest->bytes);
    inode.size = rest->size != 0 ? rest->size : inode.size;
    inode.mode = rest->is_device ? S_IFCHR | 0600 : inode.mode;
    return vj_inode_put(txn, &inode);
}

static const uint8_t *full_bytes(void)
{
    static uint8_t bytes[FULL_BYTES];
    VjRng rng;

    vj_rng_init(&rng, 9);
    vj_rng_bytes(&rng, bytes, sizeof bytes);
    return bytes;
}

/* The file has @size bytes; the first @len of them are @bytes, the others cannot be
 * read. */
static void expect_first(char *dir, uint64_t ino, const void *bytes, size_t len,
                         size_t size)
{
    uint8_t found[FULL_BYTES + 1];
    VjVolume *v = open_volume(dir, false);
    VjFs *fs = vj_fs_new(v);
    VjHandle *h;
    VjAttr attr;
    size_t got;

    assert_int_equal(vj_fs_getattr(fs, ino, &attr), 0);
    assert_int_equal(attr.st.st_size, size);
    assert_int_equal(vj_fs_open(fs, &root_caller, ino, O_RDONLY, &h), 0);
    assert_int_equal(vj_fs_read(h, 0, found, len < size ? len : sizeof found, &got), 0);
    assert_int_equal(got, len);
    assert_memory_equal(found, bytes, len);
    if (len < size) {
        assert_true(vj_fs_read(h, len, found, size - len, &got) < 0);
    }
    vj_fs_release(fs, h);
    vj_fs_free(fs);
    assert_int_equal(vj_volume_close(v), 0);
}

static void expect_said(const char *text)
{
    if (strstr(said->str, text) == NULL) {
        fail_msg("not said: %s", text);
    }
}

/* Nothing that is there goes, and what is not there is not made up. */
static void a_lost_inode_takes_the_rest_alone(void **state)
{
    static const struct {
        size_t len;
        const char *said;
    } contents[] = {{FIRST_BYTES, "its record was missing"},
                    {FIRST_BYTES + 1, "its bytes 4048 to 4048 are lost"},
                    {FULL_BYTES, "its bytes 4048 to 4095 are lost"}};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(contents); i++) {
        char *dir = vj_test_make_dir();
        size_t len = contents[i].len;
        uint64_t ino = make_small_of(dir, full_bytes(), len), mended;

        expect_first(dir, ino, full_bytes(), len, len);
        vj_plant(dir, lose_inode, &ino);
        assert_int_equal(repair(dir, &mended), 0);
        expect_said(contents[i].said);
        expect_first(dir, ino, full_bytes(), MIN(len, FIRST_BYTES), len);
        assert_int_equal(repair(dir, &mended), 0);
        assert_int_equal(mended, 0);
        vj_test_remove_dir(dir);
    }
}

/* The record of the inline bytes knows what the rest is. */
static void a_damaged_inode_keeps_a_rest_that_is_whole(void **state)
{
    static const size_t lengths[] = {FIRST_BYTES, FIRST_BYTES + 1, FULL_BYTES};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        char *dir = vj_test_make_dir();
        uint64_t ino = make_small_of(dir, full_bytes(), lengths[i]), mended;

        vj_plant(dir, damage_inode, &ino);
        assert_int_equal(repair(dir, &mended), 0);
        assert_true(mended > 0);
        expect_first(dir, ino, full_bytes(), lengths[i], lengths[i]);
        vj_test_remove_dir(dir);
    }
}

static void a_damaged_rest_is_lost_alone(void **state)
{
    char *dir = vj_test_make_dir();
    uint64_t ino = make_small_of(dir, full_bytes(), FULL_BYTES), mended;

    (void)state;
    vj_plant(dir, damage_rest, &ino);
    assert_int_equal(repair(dir, &mended), 0);
    expect_said("its bytes 4048 to 4095 are lost");
    expect_first(dir, ino, full_bytes(), FIRST_BYTES, FULL_BYTES);
    vj_test_remove_dir(dir);
}

static void a_rest_of_other_content_goes(void **state)
{
    char *dir = vj_test_make_dir();
    Rest rest = {make_small(dir), VJ_FILE_INLINE_REST_MAX, 0, false};
    uint64_t mended;

    (void)state;
    vj_plant(dir, give_it_a_rest, &rest);
    assert_int_equal(repair(dir, &mended), 0);
    assert_true(mended > 0);
    expect_first(dir, rest.ino, "inner", 5, 5);
    vj_test_remove_dir(dir);
}

/* Nor is it taken for the end of this one, be it as long or not. */
static void a_rest_of_other_content_is_no_end(void **state)
{
    static const Rest rests[] = {{.bytes = VJ_FILE_INLINE_REST_MAX},
                                 {.bytes = 7},
                                 {.bytes = 7, .size = FIRST_BYTES + 7},
                                 {.bytes = 0, .size = 5}};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(rests); i++) {
        char *dir = vj_test_make_dir();
        Rest rest = rests[i];
        uint64_t mended;

        rest.ino = make_small_of(dir, full_bytes(), FULL_BYTES);
        vj_plant(dir, give_it_a_rest, &rest);
        assert_true(repair(dir, &mended) == 0 && mended > 0);
        expect_said("its bytes 4048 to 4095 are lost");
        expect_first(dir, rest.ino, full_bytes(), FIRST_BYTES, FULL_BYTES);
        vj_test_remove_dir(dir);
    }
}

/* The first number behind @ino that is a file. */
static uint64_t find_kept(char *dir, uint64_t after)
{
    VjVolume *v = open_volume(dir, false);
    VjFs *fs = vj_fs_new(v);
    uint64_t ino = after;
    VjAttr attr;

    do {
        assert_true(++ino < after + 8);
    } while (vj_fs_getattr(fs, ino, &attr) < 0 || !S_ISREG(attr.st.st_mode));
    vj_fs_free(fs);
    assert_int_equal(vj_volume_close(v), 0);
    return ino;
}

static void a_device_without_the_rest_keeps_the_others(void **state)
{
    char *dir = vj_test_make_dir();
    Rest rest = {.is_device = true};
    uint64_t mended;

    (void)state;
    rest.ino = make_small_of(dir, full_bytes(), FULL_BYTES);
    vj_plant(dir, give_it_a_rest, &rest);
    assert_int_equal(repair(dir, &mended), 0);
    expect_said("its bytes 4048 to 4095 are lost");
    expect_first(dir, find_kept(dir, rest.ino), full_bytes(), FIRST_BYTES, FULL_BYTES);
    vj_test_remove_dir(dir);
}

static int make_it_a_damaged_device(VjTxn *txn, void *opaque)
{
    const Rest rest = {.ino = *(const uint64_t *)opaque, .is_device = true};
    uint8_t key[8];
    int r = give_it_a_rest(txn, (void *)(uintptr_t)&rest);

    vj_plant_smears = true;
    r = r < 0 ? r
              : vj_plant_flip(txn, VJ_SPACE_INLINE, vj_ino_key(rest.ino, key),
                              sizeof(VjInlineHead));
    vj_plant_smears = false;
    return r;
}

/* What is gone is not said to have become a file. */
static void what_is_lost_of_a_device_is_said(void **state)
{
    char *dir = vj_test_make_dir();
    uint64_t ino = make_small_of(dir, full_bytes(), 100), mended;

    (void)state;
    vj_plant(dir, make_it_a_damaged_device, &ino);
    assert_int_equal(repair(dir, &mended), 0);
    expect_said("its 100 bytes are lost");
    assert_null(strstr(said->str, "became a file of its own"));
    vj_test_remove_dir(dir);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(another_build_can_read_it),
    cmocka_unit_test(a_store_that_fails_loses_nothing),
    cmocka_unit_test(content_of_a_device_becomes_a_file),
    cmocka_unit_test(content_of_another_build_stays),
    cmocka_unit_test(a_lost_inode_takes_the_rest_alone),
    cmocka_unit_test(a_damaged_inode_keeps_a_rest_that_is_whole),
    cmocka_unit_test(a_damaged_rest_is_lost_alone),
    cmocka_unit_test(a_rest_of_other_content_goes),
    cmocka_unit_test(a_rest_of_other_content_is_no_end),
    cmocka_unit_test(a_device_without_the_rest_keeps_the_others),
    cmocka_unit_test(what_is_lost_of_a_device_is_said),
};

VJ_TEST_MAIN(tests)
