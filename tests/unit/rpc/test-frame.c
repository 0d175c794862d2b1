/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-frame.c - heads of frames and statuses
 *
 * The bytes of a head are golden: a change of them is another protocol.  Those of
 * messages are in tests/compat.
 */
#include "rpc-test.h"

#include "rpc/connection-private.h"

static const uint8_t golden[VJ_FRAME_HEAD_BYTES] = {
    0x56, 0x4a, 0x46, 0x52, 0x01, 0x00, 0x01, 0x01, 0x88, 0x77, 0x66, 0x55,
    0x44, 0x33, 0x22, 0x11, 0x04, 0x03, 0x02, 0x01, 0x08, 0x07, 0x06, 0x05,
    0x0c, 0x0b, 0x0a, 0x09, 0x00, 0x00, 0x00, 0x00, 0x11, 0x22, 0x33, 0x44,
    0x55, 0x66, 0x77, 0x88, 0x1f, 0x39, 0x35, 0xfc, 0x9b, 0xe9, 0xc3, 0xf1,
};

static const VjFrame golden_frame = {
    .op = VJ_OP_GET,
    .tag = UINT64_C(0x1122334455667788),
    .timeout_ms = 0x01020304,
    .message_bytes = 0x05060708,
    .bulk_bytes = 0x090a0b0c,
    .body_checksum = UINT64_C(0x8877665544332211),
};

static void expect_same(const VjFrame *a, const VjFrame *b)
{
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->op, b->op);
    assert_true(a->tag == b->tag && a->body_checksum == b->body_checksum);
    assert_int_equal(a->timeout_ms, b->timeout_ms);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->message_bytes, b->message_bytes);
    assert_int_equal(a->bulk_bytes, b->bulk_bytes);
}

static void golden_bytes(void **state)
{
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    VjFrame frame;

    (void)state;
    vj_frame_encode(&golden_frame, head);
    assert_memory_equal(head, golden, sizeof head);
    assert_int_equal(vj_frame_decode(golden, &frame), 0);
    expect_same(&frame, &golden_frame);
}

static void round_trip(void **state)
{
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, 1);
    for (unsigned i = 0; i < 1000; i++) {
        bool is_reply = i % 2 != 0;
        VjFrame frame = {.flags = is_reply ? VJ_FRAME_REPLY : 0,
                         .op = (uint16_t)vj_rng_u64(&rng),
                         .tag = vj_rng_u64(&rng),
                         .timeout_ms = is_reply ? 0 : (uint32_t)vj_rng_u64(&rng),
                         .status = is_reply ? (uint32_t)vj_rng_u64(&rng) : 0,
                         .message_bytes = 1 + (uint32_t)vj_rng_below(&rng, 1000),
                         .bulk_bytes = (uint32_t)vj_rng_u64(&rng),
                         .body_checksum = vj_rng_u64(&rng)};
        uint8_t head[VJ_FRAME_HEAD_BYTES];
        VjFrame decoded;

        vj_frame_encode(&frame, head);
        assert_int_equal(vj_frame_decode(head, &decoded), 0);
        expect_same(&frame, &decoded);
    }
}

/* A head again with another byte, and the checksum that belongs to it. */
static int decode_with(unsigned at, uint8_t byte)
{
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    VjFrame frame;
    uint64_t sum;

    memcpy(head, golden, sizeof head);
    head[at] = byte;
    sum = GUINT64_TO_LE(vj_checksum64(head, 40));
    memcpy(head + 40, &sum, sizeof sum);
    return vj_frame_decode(head, &frame);
}

static void flipped_bits(void **state)
{
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    VjFrame frame;

    (void)state;
    memcpy(head, golden, sizeof head);
    for (unsigned bit = 0; bit < 8 * sizeof head; bit++) {
        head[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(vj_frame_decode(head, &frame), -EPROTO);
        head[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(decode_with(0, golden[0]), 0);
    for (unsigned at = 0; at < 5; at++) { /* magic and version */
        assert_int_equal(decode_with(at, golden[at] ^ 1), -EPROTO);
    }
    for (unsigned bit = 1; bit < 8; bit++) { /* flags that nobody has */
        if (1u << bit != VJ_FRAME_BARE) {
            assert_int_equal(decode_with(5, (uint8_t)(1u << bit)), -EPROTO);
        }
    }
    for (unsigned at = 28; at < 32; at++) { /* reserved */
        assert_int_equal(decode_with(at, 1), -EPROTO);
    }
}

/* A bulk without a checksum. */
static void bare(void **state)
{
    static const uint8_t bytes[] = "message";
    VjPipe pipe = {.read_fd = -1, .write_fd = -1};
    VjOut out = {.message = vj_slice(bytes, 7), .pipe = &pipe, .pipe_bytes = 1000};
    VjFrame frame = {.flags = VJ_FRAME_REPLY, .op = VJ_OP_GET, .tag = 1}, decoded;
    uint8_t head[VJ_FRAME_HEAD_BYTES];

    (void)state;
    vj_out_encode(&out, &frame);
    assert_int_equal(vj_out_bytes(&out), VJ_FRAME_HEAD_BYTES + 7 + 1000);
    assert_int_equal(vj_frame_decode(out.head, &decoded), 0);
    assert_true(vj_frame_is_bare(&decoded));
    assert_int_equal(decoded.message_bytes, 7);
    assert_int_equal(decoded.bulk_bytes, 1000);
    assert_true(decoded.body_checksum == vj_checksum64(bytes, 7));

    frame.message_bytes = 0;
    frame.body_checksum = 0;
    vj_frame_encode(&frame, head);
    assert_int_equal(vj_frame_decode(head, &decoded), 0);
    assert_int_equal(vj_frame_sum_bytes(&decoded), 0);
    frame.body_checksum = 1; /* of nothing */
    vj_frame_encode(&frame, head);
    assert_int_equal(vj_frame_decode(head, &decoded), -EPROTO);

    frame.flags = VJ_FRAME_BARE; /* a request's */
    frame.message_bytes = 7;
    vj_frame_encode(&frame, head);
    assert_int_equal(vj_frame_decode(head, &decoded), 0);
    assert_true(vj_frame_is_bare(&decoded));
    assert_int_equal(vj_frame_sum_bytes(&decoded), 7);
}

static void no_body(void **state)
{
    VjFrame frame = {.op = VJ_OP_PING, .tag = 1}, decoded;
    uint8_t head[VJ_FRAME_HEAD_BYTES];

    (void)state;
    vj_frame_encode(&frame, head);
    assert_int_equal(vj_frame_decode(head, &decoded), 0);
    frame.body_checksum = 1;
    vj_frame_encode(&frame, head);
    assert_int_equal(vj_frame_decode(head, &decoded), -EPROTO);
}

/* What vj_out_encode makes of message and bulk. */
static void checksums(void **state)
{
    static const uint8_t bytes[300] = {1, 2, 3};
    static const size_t lengths[] = {0, 1, 16, 17, 128, 129, 240, 241, 300};

    (void)state;
    for (unsigned i = 0; i < G_N_ELEMENTS(lengths); i++) {
        for (size_t message = 0; message <= lengths[i]; message++) {
            size_t bulk = lengths[i] - message, lead = bulk * (message % 4) / 3;
            VjOut out = {.message = vj_slice(bytes, message),
                         .lead = vj_slice(bytes + message, lead),
                         .bulk = vj_slice(bytes + message + lead, bulk - lead)};
            VjFrame frame = {.op = OP_ECHO}, decoded;

            vj_out_encode(&out, &frame);
            assert_int_equal(vj_frame_decode(out.head, &decoded), 0);
            assert_int_equal(decoded.message_bytes, message);
            assert_int_equal(decoded.bulk_bytes, lengths[i] - message);
            assert_true(decoded.body_checksum ==
                        (lengths[i] == 0 ? 0 : vj_checksum64(bytes, lengths[i])));
        }
    }
}

static void statuses(void **state)
{
    (void)state;
    for (uint32_t status = 0; status < VJ_WIRE_STATUS_COUNT; status++) {
        int rc = vj_wire_errno(status);

        assert_true(status == 0 ? rc == 0 : rc < 0);
        assert_int_equal(vj_wire_status(rc), status);
    }
    assert_int_equal(vj_wire_errno(VJ_WIRE_STATUS_COUNT), -EIO);
    assert_int_equal(vj_wire_errno(UINT32_MAX), -EIO);
    assert_int_equal(vj_wire_status(-ENAMETOOLONG), VJ_WIRE_DEVICE);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(golden_bytes), cmocka_unit_test(round_trip),
    cmocka_unit_test(flipped_bits), cmocka_unit_test(bare),
    cmocka_unit_test(no_body),      cmocka_unit_test(checksums),
    cmocka_unit_test(statuses),
};

VJ_TEST_MAIN(tests)
