/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object-damage.c - stored bytes, records and index entries that are not what was
 * written
 */
#include "object-fixture.h"

#include "object/object-private.h"

#define LEN 100000u
#define BLOCKS ((LEN + 4095) / 4096)

static char *found_path;
static off_t found_bytes;

static int find_file(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)where;
    if (type == FTW_F && st->st_size == found_bytes) {
        g_free(found_path);
        found_path = g_strdup(path);
    }
    return 0;
}

/* The file in which the posix driver keeps @object; its length is unlike any other's. */
static int open_stored(Fixture *f, const VjObject *object)
{
    g_autofree char *objects = g_build_filename(f->path, "objects", NULL);
    int fd;

    g_clear_pointer(&found_path, g_free);
    found_bytes = object->stored_bytes;
    assert_int_equal(nftw(objects, find_file, 16, FTW_PHYS), 0);
    assert_non_null(found_path);
    fd = open(found_path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    g_clear_pointer(&found_path, g_free);
    return fd;
}

static void flip(Fixture *f, const VjObject *object, uint32_t at)
{
    VJ_AUTO_FD fd = open_stored(f, object);
    uint8_t byte;

    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static int read_block(Fixture *f, const VjObject *object, const uint8_t *plain,
                      uint32_t i, bool whole)
{
    uint8_t got[4096];
    uint32_t start = i * 4096, len = MIN(4096, LEN - start);
    int rc = vj_object_read(f->objects, object, start, got, len, whole);

    if (rc == 0) {
        assert_memory_equal(got, plain + start, len);
    }
    return rc;
}

static void test_a_damaged_block_costs_itself_alone(void **state)
{
    static const uint32_t places[] = {0, 4095, 4096, 50000, LEN - 1};
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);

    for (size_t p = 0; p < G_N_ELEMENTS(places); p++) {
        uint32_t bad = places[p] / 4096;
        g_autofree char *said = NULL;
        VjObject object;

        bytes[1] = (uint8_t)p;
        must_put(f, bytes, LEN, &object);
        flip(f, &object, places[p]);
        for (int whole = 0; whole < 2; whole++) {
            fixture_reopen_objects(f);
            for (uint32_t i = 0; i < BLOCKS; i++) {
                assert_int_equal(read_block(f, &object, bytes, i, whole),
                                 i == bad ? -EBADMSG : 0);
            }
        }
        assert_true(stats_of(f).damaged > 0);
        assert_int_equal(check_objects(f, &said).problems, 1);
        assert_non_null(strstr(said, "they are damaged"));
        flip(f, &object, places[p]);
        assert_int_equal(drop_ref(f, object.id), 0);
        assert_int_equal(vj_objects_reap_now(f->objects), 0);
    }
}

static void test_a_damaged_trailer_is_not_believed(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    VjObject object;

    must_put(f, bytes, LEN, &object);
    for (uint32_t at = LEN; at < object.stored_bytes; at++) {
        vj_cache_drop(&f->objects->cache, object.id);
        flip(f, &object, at);
        assert_int_equal(read_block(f, &object, bytes, 3, at % 2 == 0), -EBADMSG);
        flip(f, &object, at);
    }
    vj_cache_drop(&f->objects->cache, object.id);
    assert_int_equal(read_block(f, &object, bytes, 3, true), 0);
}

static void test_a_short_or_missing_object_is_told(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    g_autofree char *said = NULL, *said_missing = NULL;
    VJ_AUTO_FD fd = -1;
    VjObject object;

    must_put(f, bytes, LEN, &object);
    fd = open_stored(f, &object);
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_int_equal(read_block(f, &object, bytes, 0, false), -EBADMSG);
    assert_true(check_objects(f, &said).problems >= 1);
    assert_int_equal(vj_store_remove(f->store, object.id, object.loc), 0);
    assert_int_equal(read_block(f, &object, bytes, 0, false), -ENOENT);
    assert_true(check_objects(f, &said_missing).problems >= 1);
    assert_non_null(strstr(said_missing, "not in the store"));
}

static void test_equal_content_is_stored_afresh(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    VjObject damaged, stored_anew, again;

    must_put(f, bytes, LEN, &damaged);
    flip(f, &damaged, 50000);
    /* Written since open: believed until somebody reads it. */
    assert_int_equal(read_block(f, &damaged, bytes, 50000 / 4096, false), -EBADMSG);
    must_put(f, bytes, LEN, &stored_anew);
    assert_true(stored_anew.id != damaged.id);
    assert_int_equal(stored_anew.refs, 1);
    assert_content(f, &stored_anew, bytes);
    must_put(f, bytes, LEN, &again);
    assert_int_equal(again.id, stored_anew.id);
    assert_int_equal(get_object(f, damaged.id, &damaged), 0);
    assert_true((damaged.flags & VJ_OBJECT_DAMAGED) != 0);
    assert_int_equal(damaged.refs, 1);
    assert_int_equal(check_objects(f, NULL).problems, 0);
    assert_int_equal(check_objects(f, NULL).lost, 1); /* as its record says */
    /* The damaged one dies without touching its successor. */
    assert_int_equal(drop_ref(f, damaged.id), 0);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_consistent(f);
    assert_int_equal(stored_count(f), 1);
}

static void test_the_next_mount_verifies_before_it_shares(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    VjObject damaged, stored_anew;

    must_put(f, bytes, LEN, &damaged);
    flip(f, &damaged, 0);
    fixture_reopen_objects(f);
    must_put(f, bytes, LEN, &stored_anew);
    assert_true(stored_anew.id != damaged.id);
    assert_content(f, &stored_anew, bytes);
    assert_int_equal(drop_ref(f, damaged.id), 0);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_consistent(f);
}

static void test_a_damaged_neighbour_is_not_shared(void **state)
{
    const VjTransform want = {0};
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    VjObject damaged, pending_object;
    VjPendingObject *pending;

    must_put(f, bytes, LEN, &damaged);
    flip(f, &damaged, 0);
    fixture_reopen_objects(f);
    vj_object_pin(f->objects, damaged.id);
    assert_int_equal(store_plain(f->objects, bytes, LEN, &want, &damaged, 1, &pending),
                     0);
    assert_true(vj_pending_is_put(pending));
    assert_int_equal(commit_pending(f, &pending, 1, &pending_object), 0);
    assert_true(pending_object.id != damaged.id);
    vj_object_unpin(f->objects, damaged.id);
}

/* Found in the index and believed; then somebody condemns it before the commit. */
static void test_a_condemned_object_is_stale(void **state)
{
    const VjTransform want = {0};
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    VjObject damaged, out;
    VjIndexKey key;
    VjPendingObject *held, *other;

    must_put(f, bytes, LEN, &damaged);
    assert_int_equal(store_plain(f->objects, bytes, LEN, &want, NULL, 0, &held), 0);
    assert_int_equal(store_plain(f->objects, bytes, LEN, &want, NULL, 0, &other), 0);
    vj_index_key_of(&damaged, &key);
    assert_int_equal(vj_object_condemn(f->objects, &key, damaged.id), 0);
    assert_int_equal(commit_pending(f, &held, 1, &out), -ESTALE);
    /* Although the other still holds it, a new store does not join it. */
    must_put(f, bytes, LEN, &out);
    assert_true(out.id != damaged.id);
    assert_int_equal(commit_pending(f, &other, 1, &out), 0); /* takes the successor */
    assert_true(out.id != damaged.id);
    assert_int_equal(out.refs, 2);
    assert_consistent(f);
}

typedef struct Forged {
    VjObjects *objects;
    VjObject object;
} Forged;

static int forge_body(VjTxn *txn, void *opaque)
{
    Forged *forged = opaque;
    VjObject out;

    return vj_object_create(forged->objects, txn, &forged->object, &out);
}

/* All checksums are right, but the index leads to other bytes than were asked for. */
static void test_a_wrong_index_entry_is_not_believed(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN), *other = content(2, LEN);
    struct iovec iov = {.iov_base = other, .iov_len = LEN};
    Forged forged = {.objects = f->objects};
    g_autofree uint8_t *stored = NULL;
    VjObject object, out;
    VjPut put;

    must_put(f, bytes, LEN, &object);
    stored = g_malloc(object.stored_bytes);
    assert_int_equal(
        vj_store_get(f->store, object.id, object.loc, 0, stored, object.stored_bytes), 0);
    forged.object = object;
    forged.object.refs = 0;
    assert_int_equal(vj_digest_hash(vj_digest_default(), &iov, 1, &forged.object.digest),
                     0);
    assert_int_equal(vj_id_take(f->objects, &forged.object.id), 0);
    iov = (struct iovec){.iov_base = stored, .iov_len = object.stored_bytes};
    assert_int_equal(vj_store_put(f->store, forged.object.id, &iov, 1, &put), 0);
    forged.object.loc = put.loc;
    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, forge_body, &forged), 0);
    vj_id_resolve(f->objects, forged.object.id, false);

    must_put(f, other, LEN, &out);
    assert_true(out.id != forged.object.id);
    assert_content(f, &out, other);
}

typedef struct Spoil {
    VjSpace space;
    VjSlice key;
    uint32_t at; /* byte of the value whose bit is flipped */
    uint32_t value_bytes;
} Spoil;

static int spoil_body(VjTxn *txn, void *opaque)
{
    Spoil *s = opaque;
    uint8_t copy[256];
    VjSlice value;
    int rc = vj_txn_get(txn, s->space, s->key, &value);

    if (rc < 0) {
        return rc;
    }
    s->value_bytes = (uint32_t)value.len;
    memcpy(copy, value.data, value.len);
    copy[s->at] ^= 0x04;
    return vj_txn_put(txn, s->space, s->key, vj_slice(copy, s->value_bytes));
}

static void test_each_byte_of_a_record_is_covered(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    VjObject object, out;
    uint8_t key[8];

    must_put(f, bytes, LEN, &object);
    vj_be64_set(key, object.id);
    for (uint32_t at = 0; at < VJ_OBJECT_RECORD_BYTES; at++) {
        Spoil s = {VJ_SPACE_OBJECT, vj_slice(key, sizeof key), at, 0};

        assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, spoil_body, &s), 0);
        assert_int_equal(s.value_bytes, VJ_OBJECT_RECORD_BYTES);
        assert_int_equal(get_object(f, object.id, &out), -EBADMSG);
        assert_int_equal(drop_ref(f, object.id), -EBADMSG);
        assert_true(check_objects(f, NULL).problems >= 1);
        assert_int_equal(check_objects(f, NULL).leaks, 0);
        assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, spoil_body, &s), 0);
    }
    assert_consistent(f);
}

static void test_content_of_a_damaged_record_is_stored_afresh(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    VjObject object, out;
    uint8_t key[8];
    Spoil s = {.space = VJ_SPACE_OBJECT, .key = vj_slice(key, sizeof key), .at = 40};

    must_put(f, bytes, LEN, &object);
    vj_be64_set(key, object.id);
    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, spoil_body, &s), 0);
    must_put(f, bytes, LEN, &out);
    assert_true(out.id != object.id);
    assert_content(f, &out, bytes);
}

static void test_each_byte_of_an_index_entry_is_covered(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    VjObject object, out;
    VjIndexKey key;

    must_put(f, bytes, LEN, &object);
    vj_index_key_of(&object, &key);
    for (uint32_t at = 0; at < VJ_INDEX_VALUE_BYTES; at++) {
        Spoil s = {VJ_SPACE_INDEX, vj_slice(&key, sizeof key), at, 0};

        assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, spoil_body, &s), 0);
        assert_int_equal(s.value_bytes, VJ_INDEX_VALUE_BYTES);
        assert_int_equal(check_objects(f, NULL).problems, 1);
        assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, spoil_body, &s), 0);
    }
    assert_consistent(f);
    {
        Spoil s = {VJ_SPACE_INDEX, vj_slice(&key, sizeof key), 8, 0};

        assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, spoil_body, &s), 0);
    }
    must_put(f, bytes, LEN, &out);
    assert_true(out.id != object.id);
    assert_content(f, &out, bytes);
    /* The old one lives on outside of the index and can die. */
    assert_int_equal(drop_ref(f, object.id), 0);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_consistent(f);
}

static int spoil_del_body(VjTxn *txn, void *opaque)
{
    const Spoil *s = opaque;

    return vj_txn_del(txn, s->space, s->key);
}

static void test_a_check_names_each_disagreement(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    g_autofree char *said = NULL, *no_index = NULL, *no_record = NULL, *name = NULL;
    VjObject object;
    VjIndexKey key;
    uint8_t id[8];
    Spoil index = {.space = VJ_SPACE_INDEX, .key = vj_slice(&key, sizeof key)};
    Spoil record = {.space = VJ_SPACE_OBJECT, .key = vj_slice(id, sizeof id)};
    gint64 *refs, number;

    must_put(f, bytes, LEN, &object);
    vj_index_key_of(&object, &key);
    vj_be64_set(id, object.id);
    number = (gint64)object.id;
    name = g_strdup_printf("object %" G_GUINT64_FORMAT ":", object.id);
    refs = g_hash_table_lookup(f->counts, &number);
    *refs = 2;
    assert_int_equal(check_objects(f, &said).problems, 1);
    assert_non_null(strstr(said, name));
    assert_non_null(strstr(said, "1 references, the maps 2"));
    *refs = 1;

    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, spoil_del_body, &index), 0);
    assert_int_equal(check_objects(f, &no_index).problems, 1);
    assert_non_null(strstr(no_index, "not in the index"));

    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, spoil_del_body, &record), 0);
    assert_int_equal(check_objects(f, &no_record).problems, 1);
    assert_non_null(strstr(no_record, "has no record"));
    assert_int_equal(check_objects(f, NULL).leaks, 0); /* in the open id block */
    g_hash_table_remove_all(f->counts);
    fixture_reopen_objects(f);
    assert_int_equal(check_objects(f, NULL).leaks, 1);
}

#define TEST(name)                                                                       \
    cmocka_unit_test_setup_teardown(name, fixture_setup_posix, fixture_teardown)
static const struct CMUnitTest tests[] = {
    TEST(test_a_damaged_block_costs_itself_alone),
    TEST(test_a_damaged_trailer_is_not_believed),
    TEST(test_a_short_or_missing_object_is_told),
    TEST(test_equal_content_is_stored_afresh),
    TEST(test_the_next_mount_verifies_before_it_shares),
    TEST(test_a_damaged_neighbour_is_not_shared),
    TEST(test_a_condemned_object_is_stale),
    TEST(test_a_wrong_index_entry_is_not_believed),
    TEST(test_each_byte_of_a_record_is_covered),
    TEST(test_content_of_a_damaged_record_is_stored_afresh),
    TEST(test_each_byte_of_an_index_entry_is_covered),
    TEST(test_a_check_names_each_disagreement),
};

VJ_TEST_MAIN(tests)
