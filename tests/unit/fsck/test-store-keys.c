/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-store-keys.c - what fsck makes of keys of the store block that are wrong: a wrong
 * bit, many, one that names blocks of another object, one that no record knows
 */
#include "../../lib/test.h"

#include "../../lib/plant.h"
#include "fs/fs-private.h"
#include "fsck/fsck.h"
#include "object/object-format.h"
#include "store/block-format.h"

#define FILES 3u
#define CONTENT_BYTES 100000u

static const VjCaller root_caller = {.umask = 0};

static char said[8192];

static void say(void *opaque, const char *text)
{
    (void)opaque;
    g_strlcat(said, text, sizeof said);
    g_strlcat(said, "\n", sizeof said);
}

static VjVolume *open_volume(char *dir, bool check)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = dir, .check = check, .repair = check};
    VjVolume *v;

    if (!vj_volume_open(&how, &v, &error)) {
        fail_msg("%s", error->message);
    }
    return v;
}

static void fill(uint8_t *content, unsigned file)
{
    VjRng rng;

    vj_rng_init(&rng, file);
    vj_rng_bytes(&rng, content, CONTENT_BYTES);
}

static char *name_of(unsigned file)
{
    return g_strdup_printf("f%u", file);
}

/* A volume with files of one object each. */
static char *make_volume(void)
{
    g_autoptr(GError) error = NULL;
    g_autofree uint8_t *content = g_malloc(CONTENT_BYTES);
    char *dir = vj_test_make_dir();
    VjVolumeMake how = {.source = dir, .options = "store=block"};
    VjVolume *v;
    VjFs *fs;

    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    v = open_volume(dir, false);
    fs = vj_fs_new(v);
    for (unsigned i = 0; i < FILES; i++) {
        g_autofree char *name = name_of(i);
        VjAttr attr;
        VjHandle *h;

        fill(content, i);
        assert_int_equal(
            vj_fs_create(fs, &root_caller, VJ_INO_ROOT, name, 0644, O_RDWR, &attr, &h),
            0);
        assert_int_equal(vj_fs_write(h, 0, content, CONTENT_BYTES, 0, NULL), 0);
        vj_fs_release(fs, h);
        assert_int_equal(vj_volume_sync(v), 0);
    }
    vj_fs_free(fs);
    assert_int_equal(vj_volume_close(v), 0);
    return dir;
}

/* Problems and leaks; said. */
static VjCheckReport check(VjVolume *v)
{
    VjCheckReport report = {.problems = 0};

    said[0] = '\0';
    assert_int_equal(vj_fsck_contents(v, true, say, NULL, &report), 0);
    return report;
}

/* How many of the files have what they had. */
static unsigned count_whole(char *dir)
{
    g_autofree uint8_t *want = g_malloc(CONTENT_BYTES), *got = g_malloc(CONTENT_BYTES);
    VjVolume *v = open_volume(dir, false);
    VjFs *fs = vj_fs_new(v);
    unsigned whole = 0;

    for (unsigned i = 0; i < FILES; i++) {
        g_autofree char *name = name_of(i);
        VjAttr attr;
        VjHandle *h;
        size_t len = 0;

        fill(want, i);
        if (vj_fs_lookup(fs, &root_caller, VJ_INO_ROOT, name, &attr) != 0 ||
            vj_fs_open(fs, &root_caller, attr.st.st_ino, O_RDONLY, &h) != 0) {
            continue;
        }
        if (vj_fs_read(h, 0, got, CONTENT_BYTES, &len) == 0 && len == CONTENT_BYTES &&
            memcmp(want, got, len) == 0) {
            whole++;
        }
        vj_fs_release(fs, h);
    }
    vj_fs_free(fs);
    assert_int_equal(vj_volume_close(v), 0);
    return whole;
}

/* Finds something, repairs it; then nothing is found. */
static void expect_repaired(char *dir, const char *problem, unsigned whole)
{
    VjVolume *v = open_volume(dir, true);
    VjCheckReport report = check(v);
    VjRepair *repair = vj_repair_new(v, say, NULL);

    if (strstr(said, problem) == NULL) {
        fail_msg("%s is not said: %s", problem, said);
    }
    assert_true(report.problems + report.leaks > 0);
    if (report.problems > 0) {
        assert_int_equal(vj_repair_all(repair), 0);
    } else {
        assert_int_equal(vj_repair_store(repair), 0);
    }
    assert_true(vj_repair_count(repair) > 0);
    vj_repair_free(repair);
    assert_int_equal(vj_volume_close(v), 0);

    v = open_volume(dir, true);
    report = check(v);
    repair = vj_repair_new(v, say, NULL);
    assert_int_equal(report.problems, 0);
    assert_int_equal(vj_repair_store(repair), 0);
    vj_repair_free(repair);
    assert_int_equal(vj_volume_close(v), 0);
    v = open_volume(dir, true);
    report = check(v);
    assert_int_equal(report.problems + report.leaks, 0);
    assert_int_equal(vj_volume_close(v), 0);
    assert_int_equal(count_whole(dir), whole);
}

/* ---- what is wrong ----------------------------------------------------------------- */

/* The first key at or behind @from; copied. */
static VjStoreChange next_key(VjTxn *txn, VjSlice from)
{
    VjStoreChange out = {.key_len = 0};
    VjSlice key, value;

    assert_int_equal(vj_txn_next(txn, VJ_SPACE_STORE, from, &key, &value), 0);
    assert_true(key.len <= sizeof out.key && value.len <= sizeof out.value);
    memcpy(out.key, key.data, key.len);
    memcpy(out.value, value.data, value.len);
    out.key_len = (uint32_t)key.len;
    out.value_len = (uint32_t)value.len;
    return out;
}

static VjSlice key_of(const VjStoreChange *c)
{
    return vj_slice(c->key, c->key_len);
}

static int put(VjTxn *txn, const VjStoreChange *c)
{
    return vj_txn_put(txn, VJ_SPACE_STORE, key_of(c), vj_slice(c->value, c->value_len));
}

static int flip_in_value(VjTxn *txn, void *opaque)
{
    VjStoreChange c = next_key(txn, vj_slice(NULL, 0));

    (void)opaque;
    return vj_plant_flip(txn, VJ_SPACE_STORE, key_of(&c), 3);
}

static int flip_in_key(VjTxn *txn, void *opaque)
{
    VjStoreChange c = next_key(txn, vj_slice(NULL, 0));
    int rc = vj_txn_del(txn, VJ_SPACE_STORE, key_of(&c));

    (void)opaque;
    c.key[c.key_len - 1] ^= 0x10;
    return rc == 0 ? put(txn, &c) : rc;
}

static void test_a_wrong_bit(void **state)
{
    VjTxnBody *const bodies[] = {flip_in_value, flip_in_key};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(bodies); i++) {
        char *dir = make_volume();

        vj_plant(dir, bodies[i], NULL);
        assert_int_equal(count_whole(dir), FILES); /* a mount can do that too */
        expect_repaired(dir, "1 keys of the store have a wrong bit", FILES);
        vj_test_remove_dir(dir);
    }
}

static void test_many_wrong_bits(void **state)
{
    char *dir = make_volume();

    (void)state;
    vj_plant_smears = true;
    vj_plant(dir, flip_in_value, NULL);
    vj_plant_smears = false;
    assert_int_equal(count_whole(dir), FILES - 1);
    expect_repaired(dir, "1 keys of the store are damaged", FILES - 1);
    vj_test_remove_dir(dir);
}

/* The second object's key says that it is where the first one is. */
static int claim_anothers(VjTxn *txn, void *opaque)
{
    VjStoreChange first = next_key(txn, vj_slice(NULL, 0)), second;
    VjBlockObject a, b;
    uint8_t behind[sizeof first.key];

    (void)opaque;
    memcpy(behind, first.key, first.key_len);
    behind[first.key_len - 1]++;
    second = next_key(txn, vj_slice(behind, first.key_len));
    assert_true(vj_block_key_decode(
        key_of(&first), vj_slice(first.value, first.value_len), UINT64_MAX, &a));
    assert_true(vj_block_key_decode(
        key_of(&second), vj_slice(second.value, second.value_len), UINT64_MAX, &b));
    b.first_block = a.first_block + 1;
    vj_block_key_encode(&b, &second);
    return put(txn, &second);
}

static void test_blocks_of_two(void **state)
{
    char *dir = make_volume();

    (void)state;
    vj_plant(dir, claim_anothers, NULL);
    assert_int_equal(count_whole(dir), FILES - 1);
    expect_repaired(dir, "damaged", FILES - 1);
    vj_test_remove_dir(dir);
}

static int add_unknown(VjTxn *txn, void *opaque)
{
    const uint64_t *first_block = opaque;
    VjBlockObject object = {
        .id = 1, .nonce = 77, .first_block = *first_block, .bytes = 5000};
    VjStoreChange c;

    vj_block_key_encode(&object, &c);
    return put(txn, &c);
}

static void test_a_key_that_no_record_knows(void **state)
{
    char *dir = make_volume();
    g_autofree char *path = g_build_filename(dir, "objects", "blocks", NULL);
    uint64_t first_block = 1000;

    (void)state;
    assert_int_equal(truncate(path, 8 << 20), 0);
    vj_plant(dir, add_unknown, &first_block);
    expect_repaired(dir, "5000 bytes that no record names", FILES);
    vj_test_remove_dir(dir);
}

/* It takes no memory for what would be before it. */
static void test_a_key_behind_the_end(void **state)
{
    char *dir = make_volume();
    uint64_t first_block = VJ_BLOCK_COUNT_MAX - 10;

    (void)state;
    vj_plant(dir, add_unknown, &first_block);
    expect_repaired(dir, "1 keys of the store are damaged", FILES);
    vj_test_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wrong_bit),
        cmocka_unit_test(test_many_wrong_bits),
        cmocka_unit_test(test_blocks_of_two),
        cmocka_unit_test(test_a_key_that_no_record_knows),
        cmocka_unit_test(test_a_key_behind_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
