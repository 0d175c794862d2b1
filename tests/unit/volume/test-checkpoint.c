/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-checkpoint.c - the record at the end of a checkpoint, and the sum of an image
 */
#include "../../lib/golden.h"
#include "volume/checkpoint-private.h"

static VjCheckpointEnd example(void)
{
    VjCheckpointEnd end = {.made_s = 1795209543,
                           .commit = 0x0102030405060708,
                           .image_bytes = 0x1122334455667788,
                           .image_checksum = 0x99aabbccddeeff00,
                           .conf_bytes = 305};

    for (size_t i = 0; i < sizeof end.uuid; i++) {
        end.uuid[i] = (uint8_t)(0xa0 + i);
    }
    return end;
}

static void expect_equal(const VjCheckpointEnd *a, const VjCheckpointEnd *b)
{
    assert_memory_equal(a->uuid, b->uuid, sizeof a->uuid);
    assert_int_equal(a->made_s, b->made_s);
    assert_int_equal(a->commit, b->commit);
    assert_int_equal(a->image_bytes, b->image_bytes);
    assert_int_equal(a->image_checksum, b->image_checksum);
    assert_int_equal(a->conf_bytes, b->conf_bytes);
}

static void golden_record(const char *name, const VjCheckpointEnd *end)
{
    VjCheckpointEnd read;
    g_autoptr(GByteArray) bytes = NULL;
    VjCheckpointDisk disk;

    vj_checkpoint_encode(end, &disk);
    golden_expect(name, vj_slice(&disk, sizeof disk));
    bytes = golden_load(name);
    memcpy(&disk, bytes->data, sizeof disk);
    assert_int_equal(vj_checkpoint_decode(&disk, &read), 0);
    expect_equal(&read, end);
    for (size_t i = 0; i < sizeof disk * 8; i++) {
        ((uint8_t *)&disk)[i / 8] ^= (uint8_t)(1u << i % 8);
        assert_int_equal(vj_checkpoint_decode(&disk, &read), -EBADMSG);
        ((uint8_t *)&disk)[i / 8] ^= (uint8_t)(1u << i % 8);
    }
}

static void golden_end(void **state)
{
    VjCheckpointEnd end = example();

    (void)state;
    golden_record("checkpoint-end-v2.hex", &end);
}

/* Other versions, and lengths that cannot be: under a right checksum. */
static void wrong_end(void **state)
{
    static const struct {
        uint32_t version, conf_bytes;
    } wrong[] = {{1, 305}, {1, 0}, {2, 0}, {3, 305}, {0, 0}, {2, VJ_SUPERBLOCK_MAX + 1}};
    VjCheckpointEnd end = example(), read;
    VjCheckpointDisk disk;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        uint32_t version = GUINT32_TO_LE(wrong[i].version);
        uint32_t conf_bytes = GUINT32_TO_LE(wrong[i].conf_bytes);
        uint64_t sum;

        vj_checkpoint_encode(&end, &disk);
        memcpy(disk.version, &version, sizeof version);
        memcpy(disk.conf_bytes, &conf_bytes, sizeof conf_bytes);
        sum = GUINT64_TO_LE(vj_checksum64(&disk, offsetof(VjCheckpointDisk, checksum)));
        memcpy(disk.checksum, &sum, sizeof sum);
        assert_int_equal(vj_checkpoint_decode(&disk, &read), -EBADMSG);
    }
}

/* Two pieces and a rest; each byte counts, and so does its place. */
static void image_sum(void **state)
{
    enum { BYTES = 2 * VJ_CHECKPOINT_PIECE_BYTES + 4096 };
    g_autofree uint8_t *bytes = g_malloc0(BYTES);
    g_autofree char *path = NULL;
    int fd = g_file_open_tmp("checkpoint-XXXXXX", &path, NULL);
    static const size_t places[] = {0, VJ_CHECKPOINT_PIECE_BYTES, BYTES - 1};
    uint64_t first, other;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    }
    assert_int_equal(pwrite(fd, bytes, BYTES, 0), BYTES);
    assert_int_equal(vj_checkpoint_sum(fd, BYTES, &first), 0);
    assert_int_equal(first, UINT64_C(0x390634d071ecc709)); /* as it is on disk */
    for (size_t i = 0; i < G_N_ELEMENTS(places); i++) {
        uint8_t byte = bytes[places[i]] ^ 1;

        assert_int_equal(pwrite(fd, &byte, 1, (off_t)places[i]), 1);
        assert_int_equal(vj_checkpoint_sum(fd, BYTES, &other), 0);
        assert_int_not_equal(other, first);
        assert_int_equal(pwrite(fd, &bytes[places[i]], 1, (off_t)places[i]), 1);
    }
    assert_int_equal(vj_checkpoint_sum(fd, BYTES + 1, &other), -EBADMSG);
    close(fd);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(golden_end),
    cmocka_unit_test(wrong_end),
    cmocka_unit_test(image_sum),
};

VJ_TEST_MAIN(tests)
