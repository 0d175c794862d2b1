/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Published vectors.  BLAKE3: the official test pattern (byte i is i % 251).  SHA-256 and
 * SHA-1: the examples of FIPS 180.  XXH3: the same pattern through another build.
 */
#include "base/digest-private.h"

#include "../../lib/test.h"

typedef struct Vector {
    size_t len; /* of the test pattern */
    const char *hex;
} Vector;

static const Vector blake3_vectors[] = {
    {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
    {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
    {63, "e9bc37a594daad83be9470df7f7b3798297c3d834ce80ba85d6e207627b7db7b"},
    {64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98"},
    {65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee"},
    {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
    {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
    {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
    {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
    {3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
    {8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b"},
    {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
    {102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
};

static const struct {
    const char *text;
    const char *sha256, *sha1;
} sha_vectors[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
     "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
     "a9993e364706816aba3e25717850c26c9cd0d89d"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
     "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
};

static const char million_a_sha256[] =
    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
static const char million_a_sha1[] = "34aa973cd4c4daa4f61eeb2bdbad27316534016f";

/* @src whole, then cut into many pieces with empty ones between: the same digest. */
static void expect_digest(const VjDigestOps *ops, const void *src, size_t len,
                          const char *hex)
{
    struct iovec whole = {.iov_base = (void *)src, .iov_len = len};
    struct iovec pieces[100];
    size_t at = 0;
    int n = 0;
    VjDigest d;

    memset(&d, 0xff, sizeof d);
    assert_int_equal(vj_digest_hash(ops, &whole, 1, &d), 0);
    vj_test_expect_hex(d.bytes, ops->len, hex);
    for (size_t i = ops->len; i < sizeof d.bytes; i++) {
        assert_int_equal(d.bytes[i], 0);
    }

    while (n < 98) {
        size_t part = MIN(len - at, (size_t)n % 7);

        pieces[n].iov_base = (uint8_t *)src + at;
        pieces[n++].iov_len = part;
        at += part;
    }
    pieces[n].iov_base = (uint8_t *)src + at;
    pieces[n++].iov_len = len - at;
    assert_int_equal(vj_digest_hash(ops, pieces, n, &d), 0);
    vj_test_expect_hex(d.bytes, ops->len, hex);
}

static void blake3_gives_the_official_vectors(void **state)
{
    g_autofree uint8_t *pattern = NULL;
    bool is_known;
    const VjDigestOps *ops = vj_digest_by_name("blake3", &is_known);

    (void)state;
    assert_true(is_known);
    if (ops == NULL) {
        print_message("# this build has no BLAKE3\n");
        skip();
    }
    assert_int_equal(ops->len, 32);
    pattern = g_malloc(102400);
    vj_test_fill_pattern(pattern, 102400);
    for (size_t i = 0; i < G_N_ELEMENTS(blake3_vectors); i++) {
        expect_digest(ops, pattern, blake3_vectors[i].len, blake3_vectors[i].hex);
    }
}

static void sha_gives_the_fips_vectors(void **state)
{
    g_autofree char *million = g_strnfill(1000000, 'a');
    bool is_known;
    const VjDigestOps *sha256 = vj_digest_by_name("sha256", &is_known);
    const VjDigestOps *sha1 = vj_digest_by_name("sha1", &is_known);

    (void)state;
    assert_non_null(sha256);
    assert_non_null(sha1);
    assert_int_equal(sha256->len, 32);
    assert_int_equal(sha1->len, 20);
    for (size_t i = 0; i < G_N_ELEMENTS(sha_vectors); i++) {
        size_t len = strlen(sha_vectors[i].text);

        expect_digest(sha256, sha_vectors[i].text, len, sha_vectors[i].sha256);
        expect_digest(sha1, sha_vectors[i].text, len, sha_vectors[i].sha1);
    }
    expect_digest(sha256, million, 1000000, million_a_sha256);
    expect_digest(sha1, million, 1000000, million_a_sha1);
}

static void names_and_ids_are_a_format(void **state)
{
    static const struct {
        const char *name;
        uint8_t id;
    } rows[] = {{"sha1", 1}, {"sha256", 2}, {"blake3", 3}};
    bool is_known;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        const VjDigestOps *ops = vj_digest_by_name(rows[i].name, &is_known);

        assert_true(is_known);
        assert_ptr_equal(vj_digest_by_id(rows[i].id, &is_known), ops);
        assert_true(is_known);
        assert_true(ops == NULL || ops->id == rows[i].id);
    }
    assert_null(vj_digest_by_name("md5", &is_known));
    assert_false(is_known);
    assert_null(vj_digest_by_id(0, &is_known));
    assert_false(is_known);
    assert_null(vj_digest_by_id(255, &is_known));
    assert_false(is_known);
}

static void the_default_is_in_this_build(void **state)
{
    bool is_known;
    const VjDigestOps *blake3 = vj_digest_by_name("blake3", &is_known);

    (void)state;
    assert_non_null(vj_digest_default());
    assert_string_equal(vj_digest_default()->name, blake3 != NULL ? "blake3" : "sha256");
}

static gpointer hash_often(gpointer unused)
{
    bool is_known;
    const VjDigestOps *sha256 = vj_digest_by_name("sha256", &is_known);
    const VjDigestOps *sha1 = vj_digest_by_name("sha1", &is_known);

    (void)unused;
    for (int i = 0; i < 200; i++) {
        expect_digest(sha256, "abc", 3, sha_vectors[1].sha256);
        expect_digest(sha1, "abc", 3, sha_vectors[1].sha1);
    }
    return NULL;
}

/* A failed check in a thread ends the program, which is failure enough. */
static void threads_have_contexts_of_their_own(void **state)
{
    GThread *threads[4];

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++) {
        threads[i] = g_thread_new("hash", hash_often, NULL);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++) {
        g_thread_join(threads[i]);
    }
}

static void checksum_is_xxh3(void **state)
{
    static const struct {
        size_t len;
        uint64_t sum;
    } golden[] = {
        {0, UINT64_C(0x2d06800538d394c2)},     {1, UINT64_C(0xc44bdff4074eecdb)},
        {3, UINT64_C(0x5f4299fc161c9cbb)},     {4, UINT64_C(0x60dab036a58211f2)},
        {8, UINT64_C(0x3a1c2d7c85af88f8)},     {9, UINT64_C(0xe9612598145bb9dc)},
        {16, UINT64_C(0x8355e3a6f61770db)},    {17, UINT64_C(0x9ef341a99de37328)},
        {128, UINT64_C(0x85c6174c7ff4c46b)},   {129, UINT64_C(0xec7642b431ba3e5a)},
        {240, UINT64_C(0x375a384d957fe865)},   {241, UINT64_C(0x02e8cd95421c6d02)},
        {1024, UINT64_C(0xe5d78bafa45b2aa5)},  {4096, UINT64_C(0x7135ffa504f1bc71)},
        {65536, UINT64_C(0xaaae63800707a868)},
    };
    g_autofree uint8_t *pattern = g_malloc(65536 + 1);

    (void)state;
    for (size_t shift = 0; shift < 2; shift++) {
        vj_test_fill_pattern(pattern + shift, 65536);
        for (size_t i = 0; i < G_N_ELEMENTS(golden); i++) {
            assert_true(vj_checksum64(pattern + shift, golden[i].len) == golden[i].sum);
            assert_true(vj_checksum64_plain(pattern + shift, golden[i].len) ==
                        golden[i].sum);
        }
    }
}

/* Whatever instructions each part is for. */
static void checksum_of_parts_is_that_of_all(void **state)
{
    static const size_t steps[] = {1, 63, 255, 256, 257, 1024, 4096, 5000};
    const size_t len = 40000;
    g_autofree uint8_t *pattern = g_malloc(len);

    (void)state;
    vj_test_fill_pattern(pattern, len);
    for (size_t i = 0; i < G_N_ELEMENTS(steps); i++) {
        VjChecksum parts, mixed;
        bool plain = false;

        vj_checksum_init(&parts);
        vj_checksum_init(&mixed);
        for (size_t at = 0; at < len; at += steps[i], plain = !plain) {
            size_t n = MIN(steps[i], len - at);

            vj_checksum_add(&parts, pattern + at, n);
            if (plain) {
                vj_checksum_add_plain(mixed.state, pattern + at, n);
            } else {
                vj_checksum_add(&mixed, pattern + at, n);
            }
        }
        assert_true(vj_checksum_get(&parts) == vj_checksum64_plain(pattern, len));
        assert_true(vj_checksum_get(&mixed) == vj_checksum64_plain(pattern, len));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(blake3_gives_the_official_vectors),
    cmocka_unit_test(sha_gives_the_fips_vectors),
    cmocka_unit_test(names_and_ids_are_a_format),
    cmocka_unit_test(the_default_is_in_this_build),
    cmocka_unit_test(threads_have_contexts_of_their_own),
    cmocka_unit_test(checksum_is_xxh3),
    cmocka_unit_test(checksum_of_parts_is_that_of_all),
};

VJ_TEST_MAIN(tests)
