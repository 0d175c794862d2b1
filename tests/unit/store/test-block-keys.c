/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The driver block, opened again with its keys: with two that claim one place, with a
 * damaged one whose object is removed, in another way than the objects were put, and with
 * what a crash has left.
 */
#include "store-test.h"

#include "store/block-private.h"

#include <sys/stat.h>

enum { LEN = 9000, BLOCKS = 3 };

/* ---- keys -------------------------------------------------------------------------- */

/* What is committed, as an array of VjStoreChange that set a key each. */
static bool see_key(const VjStoreChange *k, VjStoreKeyVisit *visit, void *opaque)
{
    return visit(opaque, vj_slice(k->key, k->key_len), vj_slice(k->value, k->value_len));
}

static int each_key(void *from, VjStoreKeyVisit *visit, void *opaque)
{
    const GArray *keys = from;
    guint i = 0;

    while (i < keys->len &&
           see_key(&g_array_index(keys, VjStoreChange, i), visit, opaque)) {
        i++;
    }
    return 0;
}

static void commit_one(GArray *keys, const VjStoreChange *change)
{
    for (guint i = 0; i < keys->len; i++) {
        const VjStoreChange *k = &g_array_index(keys, VjStoreChange, i);

        if (k->key_len == change->key_len &&
            memcmp(k->key, change->key, k->key_len) == 0) {
            g_array_remove_index(keys, i);
            break;
        }
    }
    if (change->value_len > 0) {
        g_array_append_vals(keys, change, 1);
    }
}

static void commit(VjStoreTest *t, GArray *keys, const VjPut *added, const VjPut *removed)
{
    g_autoptr(GArray) changes = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));

    assert_int_equal(vj_store_stage(t->s, added, added != NULL ? 1 : 0, removed,
                                    removed != NULL ? 1 : 0, changes),
                     0);
    for (guint i = 0; i < changes->len; i++) {
        commit_one(keys, &g_array_index(changes, VjStoreChange, i));
    }
}

static void reopen(VjStoreTest *t, GArray *keys)
{
    VjStoreKeys all = {.each = each_key, .from = keys};
    VjStorePlace place = {.dir_fd = t->dir_fd, .path = t->path, .keys = &all};
    g_autoptr(GError) error = NULL;

    vj_store_close(t->s);
    if (!vj_store_open(t->spec, &place, &t->s, &error)) {
        fail_msg("%s", error->message);
    }
}

/* ---- objects ----------------------------------------------------------------------- */

static VjPut put_text(VjStoreTest *t, uint64_t id)
{
    g_autofree uint8_t *bytes = g_malloc(LEN);
    struct iovec iov = {.iov_base = bytes, .iov_len = LEN};
    VjPut put;

    vj_store_test_fill(bytes, LEN, id);
    assert_int_equal(vj_store_put_unaligned(t->s, id, &iov, 1, &put), 0);
    return put;
}

/* The bytes of @put are those that were put as @id. */
static void expect_text_of(VjStoreTest *t, const VjPut *put, uint64_t id)
{
    g_autofree uint8_t *want = g_malloc(LEN);
    g_autofree uint8_t *got = g_malloc(LEN);

    vj_store_test_fill(want, LEN, id);
    assert_int_equal(vj_store_get_unaligned(t->s, put->id, put->loc, 0, got, LEN), 0);
    assert_memory_equal(got, want, LEN);
}

static void remove_put(VjStoreTest *t, GArray *keys, const VjPut *put)
{
    assert_int_equal(vj_store_remove(t->s, put->id, put->loc), 0);
    commit(t, keys, NULL, put);
    vj_store_removes_committed(t->s, put, 1);
}

static uint64_t used(VjStoreTest *t)
{
    return ((VjBlockStore *)t->s)->space.used_count - VJ_BLOCK_HEAD_BLOCKS;
}

/* ---- the tests --------------------------------------------------------------------- */

/* Another key, of @id, for the blocks of the first one. */
static VjPut claim_again(GArray *keys, uint64_t id)
{
    const VjStoreChange *first = &g_array_index(keys, VjStoreChange, 0);
    VjStoreChange change;
    VjBlockObject object;

    assert_true(vj_block_key_decode(vj_slice(first->key, first->key_len),
                                    vj_slice(first->value, first->value_len),
                                    VJ_BLOCK_COUNT_MAX, &object));
    object.id = id;
    vj_block_key_encode(&object, &change);
    commit_one(keys, &change);
    return (VjPut){
        .id = id, .loc = vj_block_loc_encode(object.nonce), .stored_bytes = LEN};
}

static void test_what_two_keys_claim_stays_used(void **state)
{
    VjStoreTest *t = *state;

    for (unsigned gone = 0; gone < 2; gone++) {
        g_autoptr(GArray) keys = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));
        VjPut both[2];

        both[0] = put_text(t, 1);
        commit(t, keys, &both[0], NULL);
        assert_int_equal(vj_store_flush(t->s), 0);
        both[1] = claim_again(keys, 2);
        reopen(t, keys);
        assert_int_equal(used(t), BLOCKS);
        remove_put(t, keys, &both[gone]);
        assert_int_equal(used(t), BLOCKS);
        put_text(t, 3);
        expect_text_of(t, &both[1 - gone], 1);
        reopen(t, keys); /* it is the only one */
        assert_int_equal(used(t), BLOCKS);
        remove_put(t, keys, &both[1 - gone]);
        assert_int_equal(used(t), 0);
    }
}

static void test_a_damaged_key_goes_with_its_object(void **state)
{
    g_autoptr(GArray) keys = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));
    VjStoreTest *t = *state;
    VjPut put = put_text(t, 1), other;

    commit(t, keys, &put, NULL);
    assert_int_equal(vj_store_flush(t->s), 0);
    g_array_index(keys, VjStoreChange, 0).key[3] ^= 4;
    reopen(t, keys);
    expect_text_of(t, &put, 1);
    remove_put(t, keys, &put);
    assert_int_equal(keys->len, 0);
    other = put_text(t, 2);
    commit(t, keys, &other, NULL);
    reopen(t, keys);
    assert_int_equal(vj_store_test_object_count(t->s), 1);
    expect_text_of(t, &other, 2);
}

static void test_directly_what_went_through_the_cache(void **state)
{
    g_autoptr(GArray) keys = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));
    VjStoreTest *t = *state;
    VjPut put = put_text(t, 1);

    commit(t, keys, &put, NULL);
    assert_int_equal(vj_store_flush(t->s), 0);
    t->spec = "block:direct=yes";
    reopen(t, keys); /* the file ends with the object, within a block */
    expect_text_of(t, &put, 1);
    t->spec = "block";
    reopen(t, keys);
    expect_text_of(t, &put, 1);
}

static uint64_t bytes_below(const VjStoreTest *t)
{
    struct stat st;

    assert_int_equal(fstatat(t->dir_fd, "blocks", &st, 0), 0);
    return (uint64_t)st.st_blocks * 512;
}

static VjPut put_long(VjStoreTest *t, uint64_t id, size_t len)
{
    g_autofree uint8_t *bytes = g_malloc0(len);
    struct iovec iov = {.iov_base = bytes, .iov_len = len};
    VjPut put;

    assert_int_equal(vj_store_put_unaligned(t->s, id, &iov, 1, &put), 0);
    return put;
}

/* The crash came before they were committed, or between the commit that removed them and
 * the hole. */
static void test_what_a_crash_has_left_is_given_back(void **state)
{
    enum { COUNT = 36, LONG = 4 << 20 };
    g_autoptr(GArray) keys = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));
    VjStoreTest *t = *state;
    VjPut put = put_text(t, 1);

    commit(t, keys, &put, NULL); /* in the first zone, of 64 MiB, which has the head */
    for (uint64_t i = 0; i < COUNT; i++) {
        VjPut more = put_long(t, 2 + i, LONG);

        if (i == COUNT - 1) { /* the third one */
            commit(t, keys, &more, NULL);
        }
    }
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_true(bytes_below(t) >= (uint64_t)COUNT * LONG);
    reopen(t, keys);
    expect_text_of(t, &put, 1);
    assert_true(bytes_below(t) <= (uint64_t)129 << 20);
    assert_true(bytes_below(t) >= (uint64_t)65 << 20);
    /* With a key that cannot be read nothing is touched: it may have named something. */
    for (uint64_t i = 0; i < COUNT; i++) {
        (void)put_long(t, 100 + i, LONG);
    }
    assert_int_equal(vj_store_flush(t->s), 0);
    g_array_index(keys, VjStoreChange, 0).value[0] ^= 0x41;
    reopen(t, keys);
    assert_true(bytes_below(t) >= (uint64_t)COUNT * LONG);
    g_array_index(keys, VjStoreChange, 0).value[0] ^= 0x41;
    g_array_set_size(keys, 1);
    reopen(t, keys);
    expect_text_of(t, &put, 1);
    assert_true(bytes_below(t) <= (uint64_t)65 << 20);
}

int main(void)
{
    static char direct[] = "block:direct=yes", cached[] = "block";
#define ON(test_, spec_)                                                                 \
    {                                                                                    \
#test_, test_, vj_store_test_setup, vj_store_test_teardown, spec_                \
    }
    const struct CMUnitTest tests[] = {
        ON(test_what_two_keys_claim_stays_used, cached),
        ON(test_what_two_keys_claim_stays_used, direct),
        ON(test_a_damaged_key_goes_with_its_object, cached),
        ON(test_directly_what_went_through_the_cache, cached),
        ON(test_what_a_crash_has_left_is_given_back, cached),
        ON(test_what_a_crash_has_left_is_given_back, direct),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
