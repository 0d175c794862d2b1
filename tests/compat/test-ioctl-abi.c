/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-ioctl-abi.c - version 3 of varjfs/ioctl.h as programs were built against it
 *
 * The numbers are those of the day the ABI was frozen; none of them ever changes.  Each
 * offset is a multiple of its field's size and each structure of 8, so 32-bit programs,
 * where __u64 is aligned to 4, see the same; the makefile has no 32-bit compiler to ask.
 */
#include "../lib/test.h"

#include "varjfs/ioctl.h"

#define FIELD(type, field, at)                                                           \
    do {                                                                                 \
        assert_int_equal(offsetof(struct type, field), (at));                            \
        assert_int_equal((at) % sizeof(((struct type *)0)->field), 0);                   \
    } while (0)

static void structures(void **state)
{
    (void)state;
    assert_int_equal(sizeof(struct varjfs_carry), 24);
    FIELD(varjfs_carry, call, 0);
    FIELD(varjfs_carry, mode, 4);
    FIELD(varjfs_carry, offset, 8);
    FIELD(varjfs_carry, len, 16);
    assert_int_equal(sizeof(struct varjfs_edit), 72);
    FIELD(varjfs_edit, version, 0);
    FIELD(varjfs_edit, flags, 4);
    FIELD(varjfs_edit, offset, 8);
    FIELD(varjfs_edit, old_len, 16);
    FIELD(varjfs_edit, len, 24);
    FIELD(varjfs_edit, stage_id, 32);
    FIELD(varjfs_edit, size, 40);
    assert_int_equal(offsetof(struct varjfs_edit, carry), 48);
    assert_int_equal(sizeof(struct varjfs_stage), 32);
    FIELD(varjfs_stage, version, 0);
    FIELD(varjfs_stage, flags, 4);
    FIELD(varjfs_stage, stage_id, 8);
    FIELD(varjfs_stage, offset, 16);
    FIELD(varjfs_stage, len, 24);
    assert_int_equal(sizeof(struct varjfs_text), 8216);
    FIELD(varjfs_text, version, 0);
    FIELD(varjfs_text, what, 4);
    FIELD(varjfs_text, cursor, 8);
    FIELD(varjfs_text, len, 16);
    assert_int_equal(offsetof(struct varjfs_text, text), 24);
    assert_int_equal(sizeof(struct varjfs_shift), 80);
    FIELD(varjfs_shift, version, 0);
    FIELD(varjfs_shift, flags, 4);
    FIELD(varjfs_shift, offset, 8);
    FIELD(varjfs_shift, len, 16);
    FIELD(varjfs_shift, data_len, 24);
    FIELD(varjfs_shift, stage_id, 32);
    FIELD(varjfs_shift, change, 40);
    FIELD(varjfs_shift, size, 48);
    assert_int_equal(offsetof(struct varjfs_shift, carry), 56);
    assert_int_equal(sizeof(struct varjfs_tend), 192);
    FIELD(varjfs_tend, version, 0);
    FIELD(varjfs_tend, what, 4);
    FIELD(varjfs_tend, cursor, 8);
    FIELD(varjfs_tend, total, 16);
    FIELD(varjfs_tend, examined, 24);
    FIELD(varjfs_tend, examined_bytes, 32);
    FIELD(varjfs_tend, found, 40);
    FIELD(varjfs_tend, found_bytes, 48);
    FIELD(varjfs_tend, bad_count, 56);
    assert_int_equal(offsetof(struct varjfs_tend, bad), 64);
    assert_int_equal(sizeof(struct varjfs_node), 544);
    FIELD(varjfs_node, version, 0);
    FIELD(varjfs_node, what, 4);
    FIELD(varjfs_node, flags, 8);
    FIELD(varjfs_node, weight, 12);
    FIELD(varjfs_node, left, 16);
    FIELD(varjfs_node, error, 24);
    FIELD(varjfs_node, reserved, 28);
    assert_int_equal(offsetof(struct varjfs_node, host), 32);
    assert_int_equal(offsetof(struct varjfs_node, message), 288);
    assert_int_equal(sizeof(struct varjfs_recode), 56);
    FIELD(varjfs_recode, version, 0);
    FIELD(varjfs_recode, flags, 4);
    FIELD(varjfs_recode, cursor, 8);
    FIELD(varjfs_recode, state, 16);
    FIELD(varjfs_recode, size, 24);
    FIELD(varjfs_recode, examined, 32);
    FIELD(varjfs_recode, rewritten, 40);
    FIELD(varjfs_recode, unreadable, 48);
}

static void numbers(void **state)
{
    (void)state;
    assert_int_equal(VARJFS_IOC_VERSION, 3);
    assert_int_equal(VARJFS_IOC_MAX, 16383);
    assert_int_equal(VARJFS_EDIT_MAX, 8388608);
    assert_int_equal(VARJFS_EDIT_APPEND, 1);
    assert_int_equal(VARJFS_EDIT_STAGED, 2);
    assert_int_equal(VARJFS_EDIT_HOLE, 4);
    assert_int_equal(VARJFS_EDIT_INSIDE, 8);
    assert_int_equal(VARJFS_EDIT_ANY_SIZE, 16);
    assert_int_equal(VARJFS_EDIT_LIMITED, 32);
    assert_int_equal(VARJFS_CARRY_NOTHING, 0);
    assert_int_equal(VARJFS_CARRY_FALLOCATE, 1);
    assert_int_equal(VARJFS_CARRY_FTRUNCATE, 2);
    assert_int_equal(VARJFS_CARRY_FALLOCATE_SEEK, 3);
    assert_int_equal(VARJFS_CARRY_FALLOCATE_FTRUNCATE, 4);
    assert_int_equal(VARJFS_STAGE_DROP, 1);
    assert_int_equal(VARJFS_SHIFT_LOOK, 1);
    assert_int_equal(VARJFS_SHIFT_DOWN, 2);
    assert_int_equal(VARJFS_SHIFT_STAGED, 4);
    assert_int_equal(VARJFS_TEXT_MAP, 1);
    assert_int_equal(VARJFS_TEXT_DF, 2);
    assert_int_equal(VARJFS_TEXT_STATS, 3);
    assert_int_equal(VARJFS_TEXT_VOLUME, 4);
    assert_int_equal(VARJFS_TEXT_SCRUB, 5);
    assert_int_equal(VARJFS_TEXT_NODES, 6);
    assert_int_equal(VARJFS_TEXT_CONF, 7);
    assert_int_equal(VARJFS_TEXT_STORE, 10);
    assert_int_equal(VARJFS_TEND_GROW, 5);
    assert_int_equal(VARJFS_NODE_ADD, 1);
    assert_int_equal(VARJFS_NODE_DRAIN, 2);
    assert_int_equal(VARJFS_NODE_REMOVE, 3);
    assert_int_equal(VARJFS_NODE_COUNT, 4);
    assert_int_equal(VARJFS_NODE_FORCE, 1);
    assert_int_equal(VARJFS_TEXT_END, UINT64_MAX);
    assert_int_equal(VARJFS_RECODE_CHANGED, 1);
    assert_int_equal(VARJFS_RECODE_END, UINT64_MAX);
    assert_int_equal(VARJFS_EDIT_INLINE_MAX, 16311);
    assert_int_equal(VARJFS_STAGE_DATA_MAX, 16351);
    assert_int_equal(VARJFS_SHIFT_INLINE_MAX, 16303);
#if !defined(__powerpc__) && !defined(__mips__) && !defined(__sparc__) &&                \
    !defined(__alpha__) /* have their own places for size and direction */
    assert_int_equal(VARJFS_IOC_EDIT(0), 0xc0489601);
    assert_int_equal(VARJFS_IOC_EDIT(VARJFS_EDIT_INLINE_MAX), 0xffff9601);
    assert_int_equal(VARJFS_IOC_STAGE(1), 0xc0219602);
    assert_int_equal(VARJFS_IOC_SYNC, 0x9603);
    assert_int_equal(VARJFS_IOC_PING, 0x9604);
    assert_int_equal(VARJFS_IOC_TEXT, 0xe0189605);
    assert_int_equal(VARJFS_IOC_RECODE, 0xc0389606);
    assert_int_equal(VARJFS_IOC_TEND, 0xc0c09607);
    assert_int_equal(VARJFS_IOC_NODE, 0xc2209608);
    assert_int_equal(VARJFS_IOC_SHIFT(0), 0xc050960a);
    assert_int_equal(VARJFS_IOC_EDIT_DROP, 0xc048960b);
    assert_int_equal(VARJFS_IOC_SHIFT(VARJFS_SHIFT_INLINE_MAX), 0xffff960a);
#endif
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(structures),
    cmocka_unit_test(numbers),
};

VJ_TEST_MAIN(tests)
