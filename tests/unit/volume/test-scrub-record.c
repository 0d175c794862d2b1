/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-scrub-record.c - how far a scrub has come: its record, and passes that meet
 */
#include "../../lib/golden.h"
#include "../../lib/mem-meta.h"

#include "volume/scrub-format.h"

static const VjScrubStatus example = {
    .place = 0x1122334455667788,
    .pass = {.begun_s = 1795209543, .objects = 4711, .bytes = 1 << 30, .damaged = 2},
    .finished_s = 1795123143,
    .last = {.begun_s = 1795120000, .objects = 9001, .bytes = 2000000000, .damaged = 1},
};

static int get_body(VjTxn *txn, void *opaque)
{
    return vj_scrub_get(txn, opaque);
}

static VjScrubStatus look(VjMeta *m)
{
    VjScrubStatus s;

    assert_int_equal(vj_meta_view(m, get_body, &s), 0);
    return s;
}

static void golden_record(void **state)
{
    g_autoptr(GByteArray) bytes = NULL;
    VjScrubStatus read;
    VjScrubDisk disk;

    (void)state;
    vj_scrub_encode(&example, &disk);
    golden_expect("scrub-v1.hex", vj_slice(&disk, sizeof disk));
    bytes = golden_load("scrub-v1.hex");
    assert_int_equal(vj_scrub_decode(vj_slice(bytes->data, bytes->len), &read), 0);
    assert_memory_equal(&read, &example, sizeof read);
    for (size_t i = 0; i < sizeof disk * 8; i++) {
        ((uint8_t *)&disk)[i / 8] ^= (uint8_t)(1u << i % 8);
        assert_int_equal(vj_scrub_decode(vj_slice(&disk, sizeof disk), &read), -EBADMSG);
        ((uint8_t *)&disk)[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    assert_int_equal(vj_scrub_decode(vj_slice(&disk, sizeof disk - 1), &read), -EBADMSG);
}

static void expect_impossible(VjScrubStatus s)
{
    VjScrubStatus read;
    VjScrubDisk disk;

    vj_scrub_encode(&s, &disk);
    assert_int_equal(vj_scrub_decode(vj_slice(&disk, sizeof disk), &read), -EBADMSG);
}

static void impossible_values(void **state)
{
    VjScrubStatus s = example;

    (void)state;
    s.place = 0;
    expect_impossible(s);
    s.place = UINT64_MAX;
    expect_impossible(s);
    s = example;
    s.finished_s = 0;
    expect_impossible(s);
}

static void a_pass_in_steps(void **state)
{
    const VjScrubPass step = {.objects = 10, .bytes = 1000, .damaged = 1};
    VjMeta *m = mem_meta_new();
    VjScrubStatus s = look(m);

    (void)state;
    assert_int_equal(s.place | s.finished_s | s.pass.objects, 0);
    assert_int_equal(vj_scrub_note(m, 0, 77, &step), 0);
    assert_int_equal(vj_scrub_note(m, 77, 99, &step), 0);
    s = look(m);
    assert_int_equal(s.place, 99);
    assert_int_equal(s.pass.objects, 20);
    assert_int_equal(s.pass.bytes, 2000);
    assert_int_equal(s.pass.damaged, 2);
    assert_int_not_equal(s.pass.begun_s, 0);
    assert_int_equal(s.finished_s, 0);
    assert_int_equal(vj_scrub_note(m, 99, UINT64_MAX, &step), 0);
    s = look(m);
    assert_int_equal(s.place | s.pass.begun_s | s.pass.objects, 0);
    assert_int_not_equal(s.finished_s, 0);
    assert_int_equal(s.last.objects, 30);
    assert_int_equal(s.last.damaged, 3);
    /* An empty volume: begun and finished in one. */
    assert_int_equal(vj_scrub_note(m, 0, UINT64_MAX, &(VjScrubPass){.objects = 0}), 0);
    s = look(m);
    assert_int_equal(s.place | s.last.objects, 0);
    assert_int_equal(vj_meta_close(m), 0);
}

/* A new pass takes the record over; steps of the old one leave it alone. */
static void passes_that_meet(void **state)
{
    const VjScrubPass step = {.objects = 1, .bytes = 1};
    VjMeta *m = mem_meta_new();
    VjScrubStatus s;

    (void)state;
    assert_int_equal(vj_scrub_note(m, 0, 50, &step), 0);
    assert_int_equal(vj_scrub_note(m, 0, 10, &step), 0);
    assert_int_equal(vj_scrub_note(m, 50, UINT64_MAX, &step), 0);
    s = look(m);
    assert_int_equal(s.place, 10);
    assert_int_equal(s.pass.objects, 1);
    assert_int_equal(s.finished_s, 0);
    assert_int_equal(vj_scrub_note(m, 10, UINT64_MAX, &step), 0);
    assert_int_equal(vj_scrub_note(m, 10, 20, &step), 0);
    s = look(m);
    assert_int_equal(s.place, 0);
    assert_int_equal(s.last.objects, 2);
    assert_int_equal(vj_meta_close(m), 0);
}

static int put_rubbish(VjTxn *txn, void *opaque)
{
    (void)opaque;
    return vj_txn_put(txn, VJ_SPACE_SYSTEM, vj_slice(VJ_SCRUB_KEY, strlen(VJ_SCRUB_KEY)),
                      vj_slice("rubbish", 7));
}

/* A damaged record is told, keeps nobody from scrubbing, and the next pass writes it
 * anew. */
static void damaged_record(void **state)
{
    const VjScrubPass step = {.objects = 5, .bytes = 5};
    VjMeta *m = mem_meta_new();
    VjScrubStatus s;

    (void)state;
    assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, put_rubbish, NULL), 0);
    assert_int_equal(vj_meta_view(m, get_body, &s), -EBADMSG);
    assert_int_equal(vj_scrub_note(m, 5, 6, &step), 0); /* of a pass that nobody knows */
    assert_int_equal(vj_scrub_note(m, 0, 7, &step), 0);
    s = look(m);
    assert_int_equal(s.place, 7);
    assert_int_equal(s.pass.objects, 5);
    assert_int_equal(vj_meta_close(m), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(golden_record),   cmocka_unit_test(impossible_values),
    cmocka_unit_test(a_pass_in_steps), cmocka_unit_test(passes_that_meet),
    cmocka_unit_test(damaged_record),
};

VJ_TEST_MAIN(tests)
