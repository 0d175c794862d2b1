/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-records.c - what the HDF5 connector stores, written and read back, and damaged
 *
 * Damaged bytes may be refused or taken for others, but nothing is read behind their end:
 * they stand at the end of a page, before one that cannot be read.  (HDF5 loses memory of
 * damaged types that it refuses, and says at its end that it cannot close.)
 */
#include "../../lib/test.h"

#include <inttypes.h>
#include <sys/mman.h>

#include "../../../lib/hdf5/hdf5-private.h"

#define ROUNDS 4000
#define PAGE 4096u

static uint64_t state_of_random;

static unsigned pick(unsigned below)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state_of_random >> 33) % below;
}

static uint8_t *region;
#define REGION (64 * PAGE)

static int start(void **state)
{
    const char *seed = getenv("VARJFS_TEST_SEED");

    state_of_random = seed ? strtoull(seed, NULL, 0) : (uint64_t)getpid();
    print_message("# VARJFS_TEST_SEED=%" PRIu64 "\n", state_of_random);
    (void)state;
    region = mmap(NULL, REGION + PAGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(region != MAP_FAILED);
    assert_int_equal(mprotect(region + REGION, PAGE, PROT_NONE), 0);
    return H5open() < 0;
}

/* A copy that ends where nothing can be read. */
static struct vjh_slice at_the_end(const void *data, size_t len)
{
    assert_true(len <= REGION);
    if (len) {
        memcpy(region + REGION - len, data, len);
    }
    return (struct vjh_slice){region + REGION - len, len};
}

/* One way in which bytes go wrong. */
static struct vjh_slice damaged(const struct vjh_buffer *b)
{
    g_autofree uint8_t *copy = g_memdup2(b->data, b->len);
    size_t len = pick(4) ? b->len : pick((unsigned)b->len + 1);

    for (unsigned i = pick(4); i > 0 && len > 0; i--) {
        copy[pick((unsigned)len)] = pick(2) ? (uint8_t)pick(256) : 0xff;
    }
    return at_the_end(copy, len);
}

/* ---- types ------------------------------------------------------------------------- */

static hid_t random_type(int depth)
{
    static const char *const names[] = {"a", "bb", "a longer name", "seven77",
                                        "eight888"};
    hsize_t dims[3] = {1 + pick(4), 1 + pick(4), 1 + pick(4)};
    hid_t type, part;
    size_t size;
    int value;

    switch (pick(depth > 3 ? 5 : 9)) {
    case 0:
        return H5Tcopy(pick(2) ? H5T_STD_I32BE : H5T_STD_U8LE);
    case 1:
        return H5Tcopy(pick(2) ? H5T_IEEE_F64LE : H5T_IEEE_F32BE);
    case 2:
        type = H5Tcopy(H5T_C_S1);
        H5Tset_size(type, pick(2) ? H5T_VARIABLE : 1 + pick(20));
        return type;
    case 3:
        type = H5Tcreate(H5T_OPAQUE, 1 + pick(20));
        H5Tset_tag(type, "what it is");
        return type;
    case 4:
        /* Of sequences of references HDF5 decodes another type than it encoded. */
        return H5Tcopy(depth == 0 ? H5T_STD_REF : H5T_STD_B16LE);
    case 5:
        type = H5Tenum_create(pick(2) ? H5T_NATIVE_INT : H5T_STD_I16LE);
        value = 3;
        for (unsigned i = 0, n = 1 + pick(5); i < n; i++, value += 5) {
            H5Tenum_insert(type, names[i], &value);
        }
        return type;
    case 6:
        part = random_type(depth + 1);
        type = H5Tvlen_create(part);
        break;
    case 7:
        part = random_type(depth + 1);
        type = H5Tarray_create2(part, 1 + pick(3), dims);
        break;
    default:
        part = random_type(depth + 1);
        size = H5Tget_size(part);
        type = H5Tcreate(H5T_COMPOUND, size * 5 + 300 * pick(2));
        for (unsigned i = 0, n = 1 + pick(5); i < n; i++) {
            H5Tinsert(type, names[i], i * size, part);
        }
        break;
    }
    H5Tclose(part);
    return type;
}

static void types_come_back(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS / 4; i++) {
        hid_t type = random_type(0), again;
        struct vjh_buffer b;

        assert_true(type >= 0);
        assert_int_equal(vjh_type_encode(type, &b), 0);
        assert_int_equal(vjh_type_decode(at_the_end(b.data, b.len), &again), 0);
        assert_true(H5Tequal(type, again) > 0);
        for (size_t len = 0; len < b.len; len++) {
            hid_t cut;

            if (vjh_type_decode(at_the_end(b.data, len), &cut) == 0) {
                H5Tclose(cut); /* HDF5 writes some bytes more than a type has */
            }
        }
        H5Tclose(again);
        H5Tclose(type);
        vjh_buffer_free(&b);
    }
}

static void damaged_types_end_with_their_bytes(void **state)
{
    unsigned taken = 0, refused = 0;

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        hid_t type = random_type(0), again;
        struct vjh_buffer b;
        int r;

        assert_int_equal(vjh_type_encode(type, &b), 0);
        r = vjh_type_decode(damaged(&b), &again);
        assert_true(r == 0 || r == -EIO);
        if (r == 0) {
            taken++;
            H5Tclose(again);
        } else {
            refused++;
        }
        H5Tclose(type);
        vjh_buffer_free(&b);
    }
    print_message("# %u damaged types were refused, %u read as others\n", refused, taken);
    assert_true(refused > ROUNDS / 20);
}

/* An enumeration whose values would go on for a long way. */
static void a_type_that_claims_more_is_refused(void **state)
{
    hid_t type = H5Tenum_create(H5T_STD_I16LE), again;
    struct vjh_buffer b;
    uint8_t *p;
    int value = 1;

    (void)state;
    H5Tenum_insert(type, "one", &value);
    assert_int_equal(vjh_type_encode(type, &b), 0);
    p = b.data;
    assert_int_equal(p[2] & 0x0f, H5T_ENUM);
    p[3] = p[4] = 0xff; /* members */
    assert_int_equal(vjh_type_decode(at_the_end(b.data, b.len), &again), -EIO);
    p[3] = 1;
    p[4] = 0;
    p[2 + 8 + 4 + 2] = 0x10; /* the size of the integers */
    assert_int_equal(vjh_type_decode(at_the_end(b.data, b.len), &again), -EIO);
    vjh_buffer_free(&b);
    H5Tclose(type);
}

static void types_within_types_have_a_limit(void **state)
{
    uint8_t bytes[2 + 8 * 4000] = {3, 0};
    hid_t again;

    (void)state;
    for (size_t i = 0; i < 4000; i++) {
        uint8_t *p = bytes + 2 + 8 * i;

        p[0] = 0x10 | H5T_VLEN;
        p[4] = 16;
    }
    assert_int_equal(vjh_type_decode(at_the_end(bytes, sizeof bytes), &again), -EIO);
}

/* ---- dataspaces, property lists, records ------------------------------------------- */

static void spaces_come_back(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        hsize_t dims[4], most[4];
        unsigned rank = pick(5);
        struct vjh_buffer b;
        hid_t space, again;
        int r;

        for (unsigned j = 0; j < rank; j++) {
            dims[j] = pick(100);
            most[j] = pick(2) ? H5S_UNLIMITED : dims[j] + pick(3);
        }
        space = rank ? H5Screate_simple((int)rank, dims, most)
                     : H5Screate(pick(2) ? H5S_SCALAR : H5S_NULL);
        assert_int_equal(vjh_space_encode(space, &b), 0);
        assert_int_equal(vjh_space_decode(at_the_end(b.data, b.len), &again), 0);
        assert_true(H5Sextent_equal(space, again) > 0);
        H5Sclose(again);
        r = vjh_space_decode(damaged(&b), &again);
        assert_true(r == 0 || r == -EIO);
        if (r == 0) {
            H5Sclose(again);
        }
        H5Sclose(space);
        vjh_buffer_free(&b);
    }
}

static void a_space_without_extent_is_refused(void **state)
{
    hid_t space = H5Screate(H5S_SIMPLE);
    struct vjh_buffer b;

    (void)state;
    assert_int_equal(vjh_space_encode(space, &b), -EINVAL);
    H5Sclose(space);
}

static void property_lists_come_back(void **state)
{
    const hid_t classes[] = {H5P_FILE_CREATE, H5P_GROUP_CREATE, H5P_DATATYPE_CREATE};

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        hid_t class_id = classes[i % 3], list = H5Pcreate(class_id), again;
        struct vjh_buffer b;
        int r;

        H5Pset_attr_phase_change(list, 20 + pick(10), pick(20));
        H5Pset_attr_creation_order(list, H5P_CRT_ORDER_TRACKED);
        if (i % 3 < 2) {
            H5Pset_link_creation_order(list, H5P_CRT_ORDER_TRACKED);
            H5Pset_est_link_info(list, pick(1000), pick(1000));
        }
        if (i % 3 == 0) {
            H5Pset_userblock(list, pick(2) ? 512 : 0);
            H5Pset_shared_mesg_nindexes(list, 1);
            H5Pset_shared_mesg_index(list, 0, H5O_SHMESG_DTYPE_FLAG, pick(100));
        }
        assert_int_equal(vjh_plist_encode(list, &b), 0);
        assert_int_equal(vjh_plist_decode(at_the_end(b.data, b.len), class_id, &again),
                         0);
        assert_true(H5Pequal(list, again) > 0);
        H5Pclose(again);
        r = vjh_plist_decode(damaged(&b), class_id, &again);
        assert_true(r == 0 || r == -EIO);
        if (r == 0) {
            H5Pclose(again);
        }
        H5Pclose(list);
        vjh_buffer_free(&b);
    }
}

static void records_come_back(void **state)
{
    struct vjh_slice text = {"some bytes", 10}, none = {0};
    struct vjh_header h = {VJH_DATASET, 5, 77, 88, text, text, none, text}, h2;
    struct vjh_link l = {VJH_LINK_SOFT, 1, 1, 2, 3, none, text}, l2;
    struct vjh_attribute_record a = {1, 3, 4, 5, 6, none, text, text, text}, a2;
    struct vjh_file_record f = {{1, 2, 3}, 9, text}, f2;
    struct vjh_buffer bh, bl, ba, bf;

    (void)state;
    assert_int_equal(vjh_header_encode(&h, &bh), 0);
    assert_int_equal(vjh_link_encode(&l, &bl), 0);
    assert_int_equal(vjh_attribute_encode(&a, &ba), 0);
    assert_int_equal(vjh_file_record_encode(&f, &bf), 0);
    assert_int_equal(vjh_header_decode(at_the_end(bh.data, bh.len), &h2), 0);
    assert_true(h2.kind == h.kind && h2.flags == 5 && h2.created_us == 77 &&
                h2.committed_id == 88 && h2.plist.len == 10 && h2.space.len == 0);
    assert_int_equal(vjh_link_decode(at_the_end(bl.data, bl.len), &l2), 0);
    assert_true(l2.order == 2 && l2.id == 3 && l2.target.len == 10);
    assert_memory_equal(l2.target.data, text.data, 10);
    assert_int_equal(vjh_attribute_decode(at_the_end(ba.data, ba.len), &a2), 0);
    assert_true(a2.flags == 3 && a2.order == 4 && a2.data_id == 6 && a2.data.len == 10);
    assert_int_equal(vjh_file_record_decode(at_the_end(bf.data, bf.len), &f2), 0);
    assert_memory_equal(f2.id, f.id, sizeof f.id);
    for (int i = 0; i < ROUNDS; i++) {
        int r[] = {vjh_header_decode(damaged(&bh), &h2),
                   vjh_link_decode(damaged(&bl), &l2),
                   vjh_attribute_decode(damaged(&ba), &a2),
                   vjh_file_record_decode(damaged(&bf), &f2)};

        for (int j = 0; j < 4; j++) {
            assert_true(r[j] == 0 || r[j] == -EIO);
        }
    }
    vjh_buffer_free(&bh);
    vjh_buffer_free(&bl);
    vjh_buffer_free(&ba);
    vjh_buffer_free(&bf);
}

static void names_of_any_length_come_back(void **state)
{
    (void)state;
    for (size_t len = 1; len < VJH_LINK_NAME_MAX; len += len < 400 ? 1 : len / 3) {
        g_autofree char *name = g_strnfill(len, 'n');
        char *again;
        struct vjh_key key;
        struct vjh_slice in_key;

        vjh_key_referrer(&key, 1, 2, name);
        assert_true(key.len <= VARJFS_NAME_MAX);
        in_key = (struct vjh_slice){key.bytes + 17, key.len - 17};
        assert_int_equal(vjh_name_restore(in_key, vjh_name_rest(name), &again), 0);
        assert_string_equal(again, name);
        assert_true(vjh_name_is(name, vjh_name_rest(name)));
        free(again);
    }
}

/* Two names that begin alike, and one that looks as a long name's key does. */
static void keys_of_names_differ(void **state)
{
    g_autofree char *a = g_strnfill(300, 'n'), *b = g_strnfill(300, 'n');
    struct vjh_key ka, kb;

    (void)state;
    b[299] = 'm';
    vjh_key_name(&ka, 1, VJH_KEY_LINK, a);
    vjh_key_name(&kb, 1, VJH_KEY_LINK, b);
    assert_true(ka.len == kb.len && memcmp(ka.bytes, kb.bytes, ka.len) != 0);
    a[VJH_NAME_KEY_MAX] = 0;
    vjh_key_name(&ka, 1, VJH_KEY_LINK, a);
    assert_true(ka.len < kb.len);
}

/* Asked by a leak checker.  HDF5's decoder loses the names of a type that is damaged
 * behind them. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5\n";
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(types_come_back),
    cmocka_unit_test(damaged_types_end_with_their_bytes),
    cmocka_unit_test(a_type_that_claims_more_is_refused),
    cmocka_unit_test(types_within_types_have_a_limit),
    cmocka_unit_test(spaces_come_back),
    cmocka_unit_test(a_space_without_extent_is_refused),
    cmocka_unit_test(property_lists_come_back),
    cmocka_unit_test(records_come_back),
    cmocka_unit_test(names_of_any_length_come_back),
    cmocka_unit_test(keys_of_names_differ),
};

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "-p") == 0) {
        cmocka_set_test_filter(argv[2]);
    }
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    return cmocka_run_group_tests(tests, start, NULL);
}
