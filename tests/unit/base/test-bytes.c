/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* Slices, byte order, cursors that stop at the end, arithmetic that says when it cannot,
 * uuids. */
#include "base/uuid.h"

#include "../../lib/test.h"

static void slices_order_like_memcmp_then_length(void **state)
{
    static const char *const rising[] = {"", "a", "aa", "ab", "b", "\xff"};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(rising); i++) {
        for (size_t j = 0; j < G_N_ELEMENTS(rising); j++) {
            int order = vj_slice_compare(vj_slice(rising[i], strlen(rising[i])),
                                         vj_slice(rising[j], strlen(rising[j])));

            assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
        }
    }
    assert_int_equal(vj_slice_compare(vj_slice(NULL, 0), vj_slice("", 0)), 0);
    assert_true(vj_slice_compare(vj_slice(NULL, 0), vj_slice("a", 1)) < 0);
}

static void integers_have_their_byte_order(void **state)
{
    static const uint8_t bytes[] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0xf8};
    uint8_t key[8];

    (void)state;
    assert_int_equal(vj_le16_get(bytes), 0x0201);
    assert_int_equal(vj_le32_get(bytes), 0x04030201);
    assert_true(vj_le64_get(bytes) == UINT64_C(0xf807060504030201));
    assert_int_equal(vj_be32_get(bytes), 0x01020304);
    assert_true(vj_be64_get(bytes) == UINT64_C(0x01020304050607f8));
    vj_be64_set(key, UINT64_C(0x01020304050607f8));
    assert_memory_equal(key, bytes, 8);
    vj_be32_set(key, 0x01020304);
    assert_memory_equal(key, bytes, 4);
}

static void writer_and_reader_agree(void **state)
{
    uint8_t bytes[18];
    VjWriter w = vj_writer(bytes, sizeof bytes);
    VjReader r;
    VjSlice tail;

    (void)state;
    vj_write_u8(&w, 0xab);
    vj_write_u16(&w, 0x1234);
    vj_write_u32(&w, 0xdeadbeef);
    vj_write_u64(&w, UINT64_C(0x0123456789abcdef));
    vj_write_bytes(&w, "xyz", 3);
    vj_write_bytes(&w, NULL, 0);
    assert_false(w.bad);
    assert_int_equal(w.used, sizeof bytes);
    vj_test_expect_hex(bytes, sizeof bytes, "ab3412efbeaddeefcdab896745230178797a");

    r = vj_reader(vj_slice(bytes, sizeof bytes));
    assert_int_equal(vj_read_u8(&r), 0xab);
    assert_int_equal(vj_read_u16(&r), 0x1234);
    assert_true(vj_read_u32(&r) == 0xdeadbeef);
    assert_true(vj_read_u64(&r) == UINT64_C(0x0123456789abcdef));
    assert_false(vj_reader_done(&r));
    tail = vj_read_bytes(&r, 3);
    assert_int_equal(tail.len, 3);
    assert_memory_equal(tail.data, "xyz", 3);
    assert_true(vj_reader_done(&r));
}

/* Each read one byte short: zero, bad, and bad for good although a byte is left. */
static void reads_past_the_end_give_zero_for_good(void **state)
{
    static const uint8_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const size_t widths[] = {1, 2, 4, 8};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(widths); i++) {
        /* Heap of the exact length: a read beyond it is seen by ASan and valgrind. */
        g_autofree uint8_t *exact = g_memdup2(ones, widths[i] - 1);
        VjReader r = vj_reader(vj_slice(exact, widths[i] - 1));
        uint64_t value = widths[i] == 1   ? vj_read_u8(&r)
                         : widths[i] == 2 ? vj_read_u16(&r)
                         : widths[i] == 4 ? vj_read_u32(&r)
                                          : vj_read_u64(&r);

        assert_true(value == 0);
        assert_true(r.bad);
        assert_int_equal(vj_read_u8(&r), 0);
        assert_int_equal(vj_read_bytes(&r, 0).len, 0);
        assert_false(vj_reader_done(&r));
    }
}

static void hostile_lengths_do_not_wrap(void **state)
{
    VjReader r = vj_reader(vj_slice("abc", 3));
    VjSlice got;

    (void)state;
    assert_int_equal(vj_read_u8(&r), 'a');
    got = vj_read_bytes(&r, SIZE_MAX);
    assert_null(got.data);
    assert_int_equal(got.len, 0);
    assert_true(r.bad);
    r = vj_reader(vj_slice(NULL, 0));
    assert_true(vj_reader_done(&r));
    assert_int_equal(vj_read_bytes(&r, 0).len, 0);
    assert_true(vj_reader_done(&r));
}

static void writes_past_the_end_write_nothing(void **state)
{
    uint8_t bytes[4] = {9, 9, 9, 9};
    VjWriter w = vj_writer(bytes, 3);

    (void)state;
    vj_write_u16(&w, 0);
    vj_write_u16(&w, 0x7777);
    assert_true(w.bad);
    assert_int_equal(w.used, 2);
    vj_write_u8(&w, 0x77);
    assert_int_equal(w.used, 2);
    assert_int_equal(bytes[2], 9);
    assert_int_equal(bytes[3], 9);

    w = vj_writer(bytes, 3); /* a length that wraps when added to what is used */
    vj_write_u16(&w, 0);
    vj_write_bytes(&w, bytes, SIZE_MAX);
    assert_true(w.bad);
    assert_int_equal(w.used, 2);
}

static void arithmetic_says_when_it_does_not_fit(void **state)
{
    uint64_t v;
    size_t s;

    (void)state;
    assert_true(vj_add_u64(UINT64_MAX - 1, 1, &v) && v == UINT64_MAX);
    assert_false(vj_add_u64(UINT64_MAX, 1, &v));
    assert_true(vj_sub_u64(5, 5, &v) && v == 0);
    assert_false(vj_sub_u64(5, 6, &v));
    assert_true(vj_mul_u64(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &v));
    assert_false(vj_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &v));
    assert_true(vj_add_size(SIZE_MAX, 0, &s) && s == SIZE_MAX);
    assert_false(vj_add_size(SIZE_MAX, 1, &s));
    assert_false(vj_mul_size(SIZE_MAX, 2, &s));
    assert_true(vj_round_up_u64(0, 4096, &v) && v == 0);
    assert_true(vj_round_up_u64(1, 4096, &v) && v == 4096);
    assert_true(vj_round_up_u64(4096, 4096, &v) && v == 4096);
    assert_true(vj_round_up_u64(UINT64_MAX - 4095, 4096, &v) && v == UINT64_MAX - 4095);
    assert_false(vj_round_up_u64(UINT64_MAX - 4094, 4096, &v));
}

static void uuids_are_their_text(void **state)
{
    static const char right[] = "00112233-4455-6677-8899-aabbccddeeff";
    static const char *const wrong[] = {
        "",
        "00112233445566778899aabbccddeeff",
        "00112233-4455-6677-8899-AABBCCDDEEFF",
        "00112233-4455-6677-8899-aabbccddeef",
        "00112233-4455-6677-8899-aabbccddeeff0",
        "0011223-34455-6677-8899-aabbccddeeff",
        "00112233-4455-6677-8899-aabbccddeefg",
        "------------------------------------",
    };
    uint8_t bytes[VJ_UUID_BYTES];
    char text[VJ_UUID_TEXT_BYTES];

    (void)state;
    assert_true(vj_uuid_parse(right, bytes));
    for (unsigned i = 0; i < VJ_UUID_BYTES; i++) {
        assert_int_equal(bytes[i], 0x11 * i);
    }
    vj_uuid_text(bytes, text);
    assert_string_equal(text, right);
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        assert_false(vj_uuid_parse(wrong[i], bytes));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(slices_order_like_memcmp_then_length),
    cmocka_unit_test(integers_have_their_byte_order),
    cmocka_unit_test(writer_and_reader_agree),
    cmocka_unit_test(reads_past_the_end_give_zero_for_good),
    cmocka_unit_test(hostile_lengths_do_not_wrap),
    cmocka_unit_test(writes_past_the_end_write_nothing),
    cmocka_unit_test(arithmetic_says_when_it_does_not_fit),
    cmocka_unit_test(uuids_are_their_text),
};

VJ_TEST_MAIN(tests)
