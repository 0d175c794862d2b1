/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-session-format.c - the bytes of sessions and claims: golden, hurt in each bit, and
 * under another's key
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../lib/golden.h"
#include "meta/session-format.h"

static const char *const golden_records[] = {"session-exclusive-v1.hex",
                                             "session-ended-v1.hex"};

static VjSessionRecord record_of(unsigned i)
{
    VjSessionRecord r = vj_session_record_of(
        UINT64_C(0x1122334455667788), i == 0 ? VJ_SESSION_EXCLUSIVE : VJ_SESSION_SHARED,
        i == 0 ? "mount /mnt, pid 7 on host" : "");

    r.state = i == 0 ? VJ_SESSION_LIVE : VJ_SESSION_ENDED;
    return r;
}

static void records(void **state)
{
    (void)state;
    for (unsigned i = 0; i < G_N_ELEMENTS(golden_records); i++) {
        VjSessionRecord r = record_of(i), read;
        VjSessionKey key = vj_session_key(r.id), other = vj_session_key(r.id + 1);
        uint8_t bytes[VJ_SESSION_RECORD_BYTES];
        VjSlice value = vj_slice(bytes, sizeof bytes);

        vj_session_encode(&r, bytes);
        golden_expect(golden_records[i], value);
        assert_int_equal(vj_session_decode(vj_session_key_slice(&key), value, &read), 0);
        assert_memory_equal(&read, &r, sizeof r);
        assert_int_equal(vj_session_decode(vj_session_key_slice(&other), value, &read),
                         -EBADMSG);
        assert_int_equal(vj_session_decode(vj_session_key_slice(&key),
                                           vj_slice(bytes, sizeof bytes - 1), &read),
                         -EBADMSG);
        for (size_t bit = 0; bit < sizeof bytes * 8; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(vj_session_decode(vj_session_key_slice(&key), value, &read),
                             -EBADMSG);
            assert_int_equal(
                vj_session_key_check(VJ_SPACE_SESSION, vj_session_key_slice(&key), value),
                -EBADMSG);
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        assert_int_equal(
            vj_session_key_check(VJ_SPACE_SESSION, vj_session_key_slice(&key), value), 0);
    }
}

static void names_are_cut(void **state)
{
    g_autofree char *name = g_strnfill(200, 'n');
    VjSessionRecord r = vj_session_record_of(7, VJ_SESSION_SHARED, name), read;
    VjSessionKey key = vj_session_key(7);
    uint8_t bytes[VJ_SESSION_RECORD_BYTES];

    (void)state;
    assert_int_equal(strlen(r.name), VJ_SESSION_NAME_MAX);
    vj_session_encode(&r, bytes);
    assert_int_equal(vj_session_decode(vj_session_key_slice(&key),
                                       vj_slice(bytes, sizeof bytes), &read),
                     0);
    assert_string_equal(read.name, r.name);
    r = vj_session_record_of(7, VJ_SESSION_SHARED, NULL);
    assert_string_equal(r.name, "");
}

static void numbers(void **state)
{
    const uint64_t id = 258;
    const struct {
        const char *golden;
        VjNumber what;
        VjSpace space;
        VjSessionKey key;
    } all[] = {
        {"session-commit-v1.hex", VJ_NUMBER_COMMIT, VJ_SPACE_SESSION,
         vj_session_sub_key(id, VJ_SESSION_SUB_COMMIT)},
        {"session-epoch-v1.hex", VJ_NUMBER_EPOCH, VJ_SPACE_SESSION,
         vj_session_sub_key(id, VJ_SESSION_SUB_EPOCH)},
        {"session-lease-v1.hex", VJ_NUMBER_LEASE, VJ_SPACE_SESSION,
         vj_session_sub_key(id, VJ_SESSION_SUB_LEASE)},
        {"claim-index-v1.hex", VJ_NUMBER_INDEX, VJ_SPACE_CLAIM,
         vj_claim_index_key(id, VJ_CLAIM_CONTENT, 0x1234)},
        {"claim-content-v1.hex", VJ_NUMBER_CLAIM, VJ_SPACE_CLAIM,
         vj_claim_key(VJ_CLAIM_CONTENT, 0x1234)},
        {"claim-holds-v1.hex", VJ_NUMBER_HOLDS, VJ_SPACE_CLAIM,
         vj_claim_key(VJ_CLAIM_HOLD, 0x1234)},
        {"claim-hold-v1.hex", VJ_NUMBER_CLAIM, VJ_SPACE_CLAIM, vj_hold_key(0x1234, id)},
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(all); i++) {
        VjSlice key = vj_session_key_slice(&all[i].key);
        VjSessionKey other = all[i].key;
        uint8_t bytes[VJ_NUMBER_BYTES];
        VjSlice value = vj_slice(bytes, sizeof bytes);
        uint64_t read;

        other.bytes[7] ^= 1;
        vj_number_encode(all[i].what, key, 0x1122334455667788, bytes);
        golden_expect(all[i].golden, value);
        assert_int_equal(vj_number_decode(all[i].what, key, value, &read), 0);
        assert_int_equal(read, 0x1122334455667788);
        assert_int_equal(vj_session_key_check(all[i].space, key, value), 0);
        assert_int_equal(
            vj_session_key_check(all[i].space, vj_session_key_slice(&other), value),
            -EBADMSG);
        assert_int_equal(
            vj_session_key_check(all[i].space, key, vj_slice(bytes, sizeof bytes - 1)),
            -EBADMSG);
        for (size_t bit = 0; bit < sizeof bytes * 8; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(vj_number_decode(all[i].what, key, value, &read), -EBADMSG);
            assert_int_equal(vj_session_key_check(all[i].space, key, value), -EBADMSG);
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

static void next_session(void **state)
{
    VjSlice key = vj_slice(VJ_NEXT_SESSION_KEY, strlen(VJ_NEXT_SESSION_KEY));
    uint8_t bytes[VJ_NUMBER_BYTES];
    uint64_t read;

    (void)state;
    vj_number_encode(VJ_NUMBER_NEXT_SESSION, key, 259, bytes);
    golden_expect("session-next-v1.hex", vj_slice(bytes, sizeof bytes));
    assert_int_equal(
        vj_number_decode(VJ_NUMBER_NEXT_SESSION, key, vj_slice(bytes, 24), &read), 0);
    assert_int_equal(read, 259);
    assert_int_equal(vj_number_decode(VJ_NUMBER_EPOCH, key, vj_slice(bytes, 24), &read),
                     -EBADMSG);
}

/* Keys that are none of these. */
static void foreign_keys(void **state)
{
    static const uint8_t bytes[32] = {VJ_CLAIM_HOLD};
    uint8_t value[VJ_NUMBER_BYTES];

    (void)state;
    for (size_t len = 1; len < sizeof bytes; len++) {
        VjSlice key = vj_slice(bytes, len);

        vj_number_encode(VJ_NUMBER_EPOCH, key, 5, value);
        assert_int_equal(
            vj_session_key_check(VJ_SPACE_SESSION, key, vj_slice(value, sizeof value)),
            -EBADMSG);
        assert_int_equal(
            vj_session_key_check(VJ_SPACE_CLAIM, key, vj_slice(value, sizeof value)),
            -EBADMSG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records),      cmocka_unit_test(names_are_cut),
        cmocka_unit_test(numbers),      cmocka_unit_test(next_session),
        cmocka_unit_test(foreign_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
