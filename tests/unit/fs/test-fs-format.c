/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-fs-format.c - names and extended attributes, byte by byte
 *
 * tests/compat/dentry-v1.hex and its like are what version 1 wrote; they are never
 * changed.
 */
#include "../../lib/golden.h"

#include "fs/fs-format.h"

#include <dirent.h>

#define DIR_INO UINT64_C(0x0000010203040506)
#define NAME "a name \xff\x01"

static const VjDentry sample = {.ino = UINT64_C(0x0000313233343536),
                                .cookie = UINT64_C(0x4142434445464748),
                                .type = DT_LNK};

/* A decoder of one of the records: 0 or -EBADMSG. */
typedef int Decode(VjSlice key, VjSlice value);

static int decode_dentry(VjSlice key, VjSlice value)
{
    VjDentry d;

    return vj_dentry_decode(key, value, &d);
}

static int decode_cookie(VjSlice key, VjSlice value)
{
    VjDentry d;
    VjSlice name;

    return vj_cookie_decode(key, value, &d, &name);
}

static int decode_xattr(VjSlice key, VjSlice value)
{
    VjSlice bytes;

    return vj_xattr_decode(key, value, &bytes);
}

/* The golden record is believed under its key; nothing that differs by one bit in key or
 * value is, and no part of it. */
static void expect_only(Decode *decode, VjFsKey key, const char *name)
{
    g_autoptr(GByteArray) bytes = golden_load(name);
    VjSlice value = vj_slice(bytes->data, bytes->len);

    assert_int_equal(decode(vj_fs_key_slice(&key), value), 0);
    for (size_t bit = 0; bit < bytes->len * 8; bit++) {
        bytes->data[bit / 8] ^= (guint8)(1u << bit % 8);
        assert_int_equal(decode(vj_fs_key_slice(&key), value), -EBADMSG);
        bytes->data[bit / 8] ^= (guint8)(1u << bit % 8);
    }
    for (size_t bit = 0; bit < key.len * 8; bit++) {
        key.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(decode(vj_fs_key_slice(&key), value), -EBADMSG);
        key.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t len = 0; len < bytes->len; len++) {
        assert_int_equal(decode(vj_fs_key_slice(&key), vj_slice(bytes->data, len)),
                         -EBADMSG);
    }
}

static void names(void **state)
{
    VjFsKey key;
    VjDentryDisk disk;
    VjDentry got;

    (void)state;
    vj_fs_key_name(&key, DIR_INO, NAME, strlen(NAME));
    golden_expect("dentry-key-v1.hex", vj_fs_key_slice(&key));
    vj_dentry_encode(&key, &sample, &disk);
    golden_expect("dentry-v1.hex", vj_slice(&disk, sizeof disk));
    assert_int_equal(
        vj_dentry_decode(vj_fs_key_slice(&key), vj_slice(&disk, sizeof disk), &got), 0);
    assert_int_equal(got.ino, sample.ino);
    assert_int_equal(got.cookie, sample.cookie);
    assert_int_equal(got.type, sample.type);
    expect_only(decode_dentry, key, "dentry-v1.hex");
}

static void cookies(void **state)
{
    uint8_t bytes[sizeof(VjCookieDisk) + VJ_NAME_MAX];
    VjFsKey key;
    VjDentry got;
    VjSlice name;
    size_t len;

    (void)state;
    vj_fs_key_number(&key, DIR_INO, sample.cookie);
    golden_expect("cookie-key-v1.hex", vj_fs_key_slice(&key));
    len = vj_cookie_encode(&key, &sample, NAME, strlen(NAME), bytes);
    golden_expect("cookie-v1.hex", vj_slice(bytes, len));
    assert_int_equal(
        vj_cookie_decode(vj_fs_key_slice(&key), vj_slice(bytes, len), &got, &name), 0);
    assert_int_equal(got.ino, sample.ino);
    assert_int_equal(got.cookie, sample.cookie);
    assert_int_equal(name.len, strlen(NAME));
    assert_memory_equal(name.data, NAME, name.len);
    expect_only(decode_cookie, key, "cookie-v1.hex");
}

static void attributes(void **state)
{
    static const uint8_t value[] = {0, 1, 2, 0xff};
    uint8_t bytes[sizeof(VjXattrDisk) + sizeof value];
    VjFsKey key;
    VjSlice got;

    (void)state;
    vj_fs_key_name(&key, DIR_INO, "user.colour", strlen("user.colour"));
    golden_expect("xattr-key-v1.hex", vj_fs_key_slice(&key));
    vj_xattr_encode(&key, value, sizeof value, bytes);
    golden_expect("xattr-v1.hex", vj_slice(bytes, sizeof bytes));
    assert_int_equal(
        vj_xattr_decode(vj_fs_key_slice(&key), vj_slice(bytes, sizeof bytes), &got), 0);
    assert_int_equal(got.len, sizeof value);
    assert_memory_equal(got.data, value, sizeof value);
    expect_only(decode_xattr, key, "xattr-v1.hex");
}

static const VjAcl sample_acl = {
    .count = 6,
    .entries = {{VJ_ACL_OWNER, 7, VJ_ACL_NO_ID},
                {VJ_ACL_USER, 6, 0x01020304},
                {VJ_ACL_OWNING_GROUP, 5, VJ_ACL_NO_ID},
                {VJ_ACL_GROUP, 4, 0x11121314},
                {VJ_ACL_MASK, 3, VJ_ACL_NO_ID},
                {VJ_ACL_OTHER, 0, VJ_ACL_NO_ID}},
};

static int acl_through_bytes(const VjAcl *acl)
{
    uint8_t bytes[VJ_ACL_MAX_BYTES];
    VjAcl got;

    return vj_acl_decode(vj_slice(bytes, vj_acl_encode(acl, bytes)), &got);
}

static void access_lists(void **state)
{
    uint8_t bytes[VJ_ACL_MAX_BYTES + sizeof(VjAclEntryDisk)];
    size_t len = vj_acl_encode(&sample_acl, bytes);
    VjAcl got, wrong;

    (void)state;
    golden_expect("acl-v1.hex", vj_slice(bytes, len));
    assert_int_equal(vj_acl_decode(vj_slice(bytes, len), &got), 0);
    assert_int_equal(got.count, sample_acl.count);
    assert_memory_equal(got.entries, sample_acl.entries, got.count * sizeof(VjAclEntry));
    for (size_t part = 0; part < len; part++) {
        assert_int_equal(vj_acl_decode(vj_slice(bytes, part), &got), -EINVAL);
    }
    for (size_t i = 0; i < sample_acl.count;
         i++) { /* each is needed, or none but the named */
        bool named = sample_acl.entries[i].id != VJ_ACL_NO_ID;

        wrong = sample_acl;
        memmove(&wrong.entries[i], &wrong.entries[i + 1],
                (wrong.count - i - 1) * sizeof(VjAclEntry));
        wrong.count--;
        assert_int_equal(acl_through_bytes(&wrong), named ? 0 : -EINVAL);
        wrong = sample_acl; /* no other order, and nothing twice but the named */
        wrong.entries[i].tag = sample_acl.entries[(i + 1) % 6].tag;
        assert_int_equal(acl_through_bytes(&wrong), -EINVAL);
        wrong = sample_acl;
        wrong.entries[i].perm = 8;
        assert_int_equal(acl_through_bytes(&wrong), -EINVAL);
        wrong = sample_acl;
        wrong.entries[i].tag = 0x40;
        assert_int_equal(acl_through_bytes(&wrong), -EINVAL);
        wrong.entries[i].tag = 0;
        assert_int_equal(acl_through_bytes(&wrong), -EINVAL);
        wrong = sample_acl; /* an id that names nobody is not looked at */
        wrong.entries[i].id = named ? VJ_ACL_NO_ID : 5;
        assert_int_equal(acl_through_bytes(&wrong), named ? -EINVAL : 0);
    }
    wrong = (VjAcl){.count = 3,
                    .entries = {{VJ_ACL_OWNER, 7, 0},
                                {VJ_ACL_OWNING_GROUP, 5, 0},
                                {VJ_ACL_OTHER, 0, 0}}};
    assert_int_equal(acl_through_bytes(&wrong), 0);
    wrong.count = VJ_ACL_ENTRIES_MAX;
    assert_int_equal(acl_through_bytes(&wrong), -EINVAL);
    memset(bytes, 0, sizeof bytes);
    bytes[0] = VJ_ACL_VERSION;
    assert_int_equal(vj_acl_decode(vj_slice(bytes, sizeof bytes), &got), -E2BIG);
}

/* Records with right checksums and values that no varjfs writes. */
static void impossible_values(void **state)
{
    const VjDentry wrong[] = {
        {.ino = 0, .cookie = 3, .type = DT_REG},
        {.ino = 2, .cookie = 2, .type = DT_REG},
        {.ino = 2, .cookie = (uint64_t)1 << 63, .type = DT_REG},
        {.ino = 2, .cookie = 3, .type = DT_UNKNOWN},
        {.ino = 2, .cookie = 3, .type = 255},
    };
    uint8_t bytes[sizeof(VjCookieDisk) + VJ_NAME_MAX];
    VjDentry got;
    VjFsKey key;
    VjSlice name;
    size_t len;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        VjDentryDisk disk;

        vj_fs_key_name(&key, DIR_INO, "x", 1);
        vj_dentry_encode(&key, &wrong[i], &disk);
        assert_int_equal(
            vj_dentry_decode(vj_fs_key_slice(&key), vj_slice(&disk, sizeof disk), &got),
            -EBADMSG);
        vj_fs_key_number(&key, DIR_INO, wrong[i].cookie);
        len = vj_cookie_encode(&key, &wrong[i], "x", 1, bytes);
        assert_int_equal(
            vj_cookie_decode(vj_fs_key_slice(&key), vj_slice(bytes, len), &got, &name),
            -EBADMSG);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(names),
    cmocka_unit_test(cookies),
    cmocka_unit_test(attributes),
    cmocka_unit_test(access_lists),
    cmocka_unit_test(impossible_values),
};

VJ_TEST_MAIN(tests)
