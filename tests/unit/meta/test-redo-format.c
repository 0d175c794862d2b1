/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-redo-format.c - the bytes of the redo log: golden, and hurt in each bit
 */
#include "../../lib/golden.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "meta/redo-private.h"

#define HALF (8 * VJ_REDO_BLOCK_BYTES)

static const uint8_t some_id[VJ_REDO_ID_BYTES] = {0x10, 0x21, 0x32, 0x43, 0x54, 0x65,
                                                  0x76, 0x87, 0x98, 0xa9, 0xba, 0xcb,
                                                  0xdc, 0xed, 0xfe, 0x0f};

static VjRedo *log_new(void)
{
    VjRedo *log = g_new0(VjRedo, 1);

    log->fd = memfd_create("redo", MFD_CLOEXEC);
    assert_true(log->fd >= 0);
    assert_int_equal(ftruncate(log->fd, VJ_REDO_BLOCK_BYTES + 2 * HALF), 0);
    memcpy(log->id, some_id, sizeof some_id);
    log->half_bytes = HALF;
    return log;
}

/* A record with two changes, a put and a deletion. */
static void append(VjRedo *log, uint64_t round, uint64_t block, uint64_t first_seq,
                   uint64_t last_seq)
{
    uint8_t *bytes = vj_redo_room_new(VJ_REDO_BLOCK_BYTES);
    VjWriter w = vj_writer(bytes + sizeof(VjRedoRecord), 1000);
    VjSlice value = vj_slice("a value", 7);
    VjRedoRun run = {.round = round,
                     .offset = block * VJ_REDO_BLOCK_BYTES,
                     .first_seq = first_seq,
                     .last_seq = last_seq,
                     .change_count = 2};

    vj_redo_change_encode(&w, VJ_SPACE_INODE, vj_slice("key", 3), &value);
    vj_redo_change_encode(&w, VJ_SPACE_DENTRY, vj_slice("name", 4), NULL);
    run.body_bytes = (uint32_t)w.used;
    assert_int_equal(vj_redo_append(log, &run, bytes), 0);
    free(bytes);
}

static int count_change(void *opaque, VjSpace space, VjSlice key, const VjSlice *value)
{
    unsigned *count = opaque;

    if (*count % 2 == 0) {
        assert_int_equal(space, VJ_SPACE_INODE);
        assert_memory_equal(key.data, "key", 3);
        assert_int_equal(value->len, 7);
    } else {
        assert_int_equal(space, VJ_SPACE_DENTRY);
        assert_int_equal(key.len, 4);
        assert_null(value);
    }
    (*count)++;
    return 0;
}

static VjRedoFound read_from(const VjRedo *log, uint64_t round, uint64_t seq)
{
    VjRedoPoint from = {.round = round, .seq = seq};
    unsigned count = 0;
    VjRedoReader reader = {.change = count_change, .opaque = &count};
    VjRedoFound found;

    assert_int_equal(vj_redo_read(log, &from, &reader, &found), 0);
    assert_int_equal(count, 2 * found.records);
    return found;
}

static void flip(const VjRedo *log, uint64_t bit)
{
    uint8_t byte;

    assert_int_equal(pread(log->fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (uint8_t)(1u << bit % 8);
    assert_int_equal(pwrite(log->fd, &byte, 1, (off_t)(bit / 8)), 1);
}

static void golden(void **state)
{
    uint8_t record[sizeof(VjRedoRecord) + 30];
    VjRedoPoint point = {.round = 0x1122334455667788, .seq = 0x123456789abcdef}, read;
    g_autoptr(GByteArray) bytes = golden_load("redo-state-v1.hex");
    VjRedo *log = log_new();
    VjRedoState disk;
    VjRedoHead head;

    (void)state;
    memcpy(point.id, some_id, sizeof some_id);
    vj_redo_point_encode(&point, &disk);
    golden_expect("redo-state-v1.hex", vj_slice(&disk, sizeof disk));
    assert_int_equal(vj_redo_point_decode(vj_slice(bytes->data, bytes->len), &read), 0);
    assert_memory_equal(&read, &point, sizeof read);
    for (size_t i = 0; i < sizeof disk * 8; i++) {
        ((uint8_t *)&disk)[i / 8] ^= (uint8_t)(1u << i % 8);
        assert_int_equal(vj_redo_point_decode(vj_slice(&disk, sizeof disk), &read),
                         -EBADMSG);
        ((uint8_t *)&disk)[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    vj_redo_head_encode(log, &head);
    golden_expect("redo-head-v1.hex", vj_slice(&head, sizeof head));
    append(log, 7, 0, 100, 109);
    assert_int_equal(pread(log->fd, record, sizeof record, VJ_REDO_BLOCK_BYTES + HALF),
                     sizeof record);
    golden_expect("redo-record-v1.hex", vj_slice(record, sizeof record));
    vj_redo_close(log);
}

/* What is behind the last commit of the file, of two rounds. */
static void what_counts(void **state)
{
    VjRedo *log = log_new();

    (void)state;
    append(log, 5, 0, 90, 91); /* of a round that does not count, in the half of 7 */
    append(log, 5, 1, 92, 93);
    append(log, 5, 2, 94, 95);
    append(log, 6, 0, 96, 99);
    append(log, 6, 1, 100, 104);
    append(log, 7, 0, 105, 109);
    assert_int_equal(read_from(log, 6, 95).records, 3);
    assert_int_equal(read_from(log, 6, 99).records, 2);
    assert_int_equal(read_from(log, 6, 102).records, 2); /* one has both */
    assert_int_equal(read_from(log, 7, 104).records, 1);
    assert_int_equal(read_from(log, 7, 109).records, 0);
    assert_int_equal(read_from(log, 7, 109).flaws, 0);
    assert_int_equal(read_from(log, 9, 109).records, 0);
    assert_int_equal(read_from(log, 6, 109).last_seq, 109);
    /* Commits are missing; a later round than there can be. */
    assert_int_equal(read_from(log, 6, 94).flaws, 1);
    assert_int_equal(read_from(log, 7, 103).flaws, 1);
    assert_int_equal(read_from(log, 5, 89).flaws, 1);
    vj_redo_close(log);
}

/* Any bit of a record but those of its zeroes: the record is not there. */
static void hurt_bits(void **state)
{
    uint64_t used = 8 * (sizeof(VjRedoRecord) + 2 * sizeof(VjRedoChange) + 3 + 7 + 4);
    VjRedo *log = log_new();

    (void)state;
    append(log, 6, 0, 96, 99);
    append(log, 6, 1, 100, 104);
    append(log, 7, 0, 105, 109);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t start = 8 * (VJ_REDO_BLOCK_BYTES +
                              (i == 2 ? HALF : (uint64_t)i * VJ_REDO_BLOCK_BYTES));

        for (uint64_t bit = start; bit < start + used; bit++) {
            VjRedoFound found;

            flip(log, bit);
            found = read_from(log, 6, 95);
            assert_int_equal(found.flaws, i == 2 ? 0 : 1);
            assert_int_equal(found.records, i);
            flip(log, bit);
        }
    }
    assert_int_equal(read_from(log, 6, 95).records, 3);
    vj_redo_close(log);
}

/* Copied to another place, or into another log, it is none. */
static void misplaced(void **state)
{
    VjRedo *log = log_new();
    uint8_t block[VJ_REDO_BLOCK_BYTES];

    (void)state;
    append(log, 6, 0, 96, 99);
    assert_int_equal(pread(log->fd, block, sizeof block, VJ_REDO_BLOCK_BYTES),
                     sizeof block);
    assert_int_equal(pwrite(log->fd, block, sizeof block, 2 * VJ_REDO_BLOCK_BYTES),
                     sizeof block);
    assert_int_equal(read_from(log, 6, 95).records, 1);
    assert_int_equal(read_from(log, 6, 95).flaws, 0);
    log->id[3] ^= 1;
    assert_int_equal(read_from(log, 6, 95).records, 0);
    vj_redo_close(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(what_counts),
        cmocka_unit_test(hurt_bits),
        cmocka_unit_test(misplaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
