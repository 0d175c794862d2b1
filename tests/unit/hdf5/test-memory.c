/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-memory.c - each allocation of the connector, and of libvarjfs under it, fails in
 * turn
 *
 * A program uses all that the connector has.  A call in which an allocation failed says
 * so, or has done what it says; the program repeats it, as if memory had been had again.
 * What was written is there in the end, no identifier and no memory stays behind, and
 * nothing ends the process.
 *
 * $VARJFS_TEST_ALL: each allocation, alone and with all that follow in the same call;
 * else some of them, others each time.
 */
#include "volume.h"

#include <H5PLextern.h>
#include <H5VLconnector.h>
#include <hdf5.h>

#include <varjfs/varjfs.h>

char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t len);
void *__real_H5allocate_memory(size_t size, hbool_t clear);
int __real_varjfs_sync(varjfs *v);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t len);
int __wrap_asprintf(char **out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void *__wrap_H5allocate_memory(size_t size, hbool_t clear);
int __wrap_varjfs_sync(varjfs *v);

static bool is_counting, and_all_that_follow;
static unsigned calls, failing, failed;
static int live;

/* This call is one that fails. */
static bool fails(void)
{
    if (!is_counting || failing == 0 ||
        (++calls != failing && !(and_all_that_follow && calls > failing))) {
        return false;
    }
    failed++;
    errno = ENOMEM;
    return true;
}

#include "../../lib/wrap-malloc.h"

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : counted(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t len)
{
    return fails() ? NULL : counted(__real_strndup(text, len));
}

int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list args;
    int len;

    if (fails()) {
        return -1;
    }
    va_start(args, format);
    len = vasprintf(out, format, args);
    va_end(args);
    counted(len >= 0 ? *out : NULL);
    return len;
}

/* HDF5 frees it. */
void *__wrap_H5allocate_memory(size_t size, hbool_t clear)
{
    return fails() ? NULL : __real_H5allocate_memory(size, clear);
}

/* Of the last one. */
static int sync_result;

int __wrap_varjfs_sync(varjfs *v)
{
    sync_result = fails() ? -ENOMEM : __real_varjfs_sync(v);
    return sync_result;
}

/* ---- calls that may fail ----------------------------------------------------------- */

/* It said that it failed: was there a reason?  From now on there is memory. */
static void after_failure(const char *call)
{
    if (failed == 0) {
        H5Eprint2(H5E_DEFAULT, stderr);
        fail_msg("%s failed before allocation %u", call, failing);
    }
    failing = 0;
}

static void fails_again(const char *call)
{
    H5Eprint2(H5E_DEFAULT, stderr);
    fail_msg("%s: with memory it fails too", call);
}

#define DO(call)                                                                         \
    do {                                                                                 \
        if ((call) < 0) {                                                                \
            after_failure(#call);                                                        \
            if ((call) < 0) {                                                            \
                fails_again(#call);                                                      \
            }                                                                            \
        }                                                                                \
    } while (0)

#define MAKE(out, call)                                                                  \
    do {                                                                                 \
        (out) = (call);                                                                  \
        if ((out) < 0) {                                                                 \
            after_failure(#call);                                                        \
            (out) = (call);                                                              \
            if ((out) < 0) {                                                             \
                fails_again(#call);                                                      \
            }                                                                            \
        }                                                                                \
    } while (0)

/* What has gone when it fails, as it came to its end in part, goes once. */
#define REMOVE(call, is_there)                                                           \
    do {                                                                                 \
        if ((call) < 0) {                                                                \
            after_failure(#call);                                                        \
            if ((is_there) > 0 && (call) < 0) {                                          \
                fails_again(#call);                                                      \
            }                                                                            \
        }                                                                                \
    } while (0)

/* ---- the program ------------------------------------------------------------------- */

#define LONG_ATTRIBUTE 9000

typedef struct Named {
    int number;
    char *name;
} Named;

static hid_t fapl, text_type, named_type, number_type; /* of memory */
static char long_name[40001], middle_name[301];
static int long_values[LONG_ATTRIBUTE];

static hid_t space_of(hsize_t count)
{
    return H5Screate_simple(1, &count, NULL);
}

/* A contiguous dataset with a fill value, of which a part is written. */
static void make_numbers(hid_t group)
{
    hid_t space = space_of(64), dcpl = H5Pcreate(H5P_DATASET_CREATE), memory, dataset;
    hsize_t start = 8, count = 4;
    int fill = -1, values[4] = {8, 9, 10, 11}, got[64];

    H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill);
    MAKE(dataset, H5Dcreate2(group, "numbers", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl,
                             H5P_DEFAULT));
    H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL);
    memory = space_of(count);
    DO(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, values));
    DO(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, got));
    assert_int_equal(got[7], -1);
    assert_memory_equal(got + 8, values, sizeof values);
    DO(H5Dclose(dataset));
    H5Sclose(memory);
    H5Sclose(space);
    H5Pclose(dcpl);
}

/* Chunks with a filter, a conversion, and an extent that changes. */
static void make_chunks(hid_t group)
{
    hsize_t dims[2] = {8, 8}, max[2] = {H5S_UNLIMITED, 8}, chunk[2] = {4, 4};
    hsize_t larger[2] = {12, 8}, smaller[2] = {6, 8}, offset[2] = {0, 4}, bytes;
    hid_t space = H5Screate_simple(2, dims, max), dcpl = H5Pcreate(H5P_DATASET_CREATE),
          dataset, found;
    double values[64];
    uint32_t mask = 0;
    int raw[16], got[48];

    for (int i = 0; i < 64; i++) {
        values[i] = i;
    }
    H5Pset_chunk(dcpl, 2, chunk);
    H5Pset_shuffle(dcpl);
    MAKE(dataset, H5Dcreate2(group, "chunks", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl,
                             H5P_DEFAULT));
    DO(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    DO(H5Dset_extent(dataset, larger));
    DO(H5Dset_extent(dataset, smaller));
    DO(H5Dread_chunk(dataset, H5P_DEFAULT, offset, &mask, raw));
    DO(H5Dwrite_chunk(dataset, H5P_DEFAULT, mask, offset, sizeof raw, raw));
    DO(H5Dget_chunk_storage_size(dataset, offset, &bytes));
    assert_int_equal(bytes, sizeof raw);
    DO(H5Dget_num_chunks(dataset, H5S_ALL, &bytes));
    assert_int_equal(bytes, 4);
    MAKE(found, H5Dget_space(dataset));
    H5Sclose(found);
    MAKE(found, H5Dget_create_plist(dataset));
    H5Pclose(found);
    MAKE(found, H5Dget_type(dataset));
    H5Tclose(found);
    DO(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, got));
    for (int i = 0; i < 48; i++) {
        assert_int_equal(got[i], i);
    }
    DO(H5Dclose(dataset));
    H5Pclose(dcpl);
    H5Sclose(space);
}

static void assert_texts(hid_t dataset, const char *const want[3])
{
    hid_t space = space_of(3);
    char *got[3] = {NULL};

    DO(H5Dread(dataset, text_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, got));
    for (int i = 0; i < 3; i++) {
        assert_string_equal(got[i], want[i]);
    }
    H5Treclaim(text_type, space, H5P_DEFAULT, got);
    H5Sclose(space);
}

static const char *const first_texts[3] = {"a", "bc", ""};
static const char *const last_texts[3] = {"one", "two", "three"};

/* Variable-length data, all of which are replaced. */
static void make_texts(hid_t group)
{
    hid_t space = space_of(3), dataset;

    MAKE(dataset, H5Dcreate2(group, "texts", text_type, space, H5P_DEFAULT, H5P_DEFAULT,
                             H5P_DEFAULT));
    DO(H5Dwrite(dataset, text_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, first_texts));
    assert_texts(dataset, first_texts);
    DO(H5Dwrite(dataset, text_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, last_texts));
    assert_texts(dataset, last_texts);
    DO(H5Dclose(dataset));
    H5Sclose(space);
}

/* Members of a compound, one of which is written and the other one kept. */
static void make_named(hid_t group)
{
    char word[3][4] = {"x", "yy", "zzz"};
    Named values[3] = {{1, word[0]}, {2, word[1]}, {3, word[2]}}, got[3] = {{0}};
    hid_t space = space_of(3), type = H5Tcopy(named_type), dataset, attribute;

    DO(H5Tcommit2(group, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    MAKE(dataset,
         H5Dcreate2(group, "named", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    DO(H5Dwrite(dataset, named_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    for (int i = 0; i < 3; i++) {
        values[i].number += 10;
    }
    DO(H5Dwrite(dataset, number_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    MAKE(attribute, H5Acreate2(dataset, "named", type, space, H5P_DEFAULT, H5P_DEFAULT));
    DO(H5Awrite(attribute, named_type, values));
    DO(H5Awrite(attribute, number_type, values));
    DO(H5Aread(attribute, named_type, got));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(got[i].number, 11 + i);
        assert_string_equal(got[i].name, word[i]);
    }
    H5Treclaim(named_type, space, H5P_DEFAULT, got);
    DO(H5Aclose(attribute));
    DO(H5Dclose(dataset));
    DO(H5Tclose(type));
    H5Sclose(space);
}

static herr_t count_attribute(hid_t at, const char *name, const H5A_info_t *info,
                              void *count)
{
    (void)at;
    (void)name;
    (void)info;
    ++*(int *)count;
    return 0;
}

static void make_attributes(hid_t group)
{
    hid_t space = space_of(LONG_ATTRIBUTE), scalar = H5Screate(H5S_SCALAR), attribute;
    g_autofree int *got = g_new0(int, LONG_ATTRIBUTE);
    int count = 0;
    hsize_t at = 0;

    MAKE(attribute,
         H5Acreate2(group, "long", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT));
    DO(H5Awrite(attribute, H5T_NATIVE_INT, long_values));
    DO(H5Aclose(attribute));
    MAKE(attribute,
         H5Acreate2(group, "old", H5T_NATIVE_INT, scalar, H5P_DEFAULT, H5P_DEFAULT));
    DO(H5Awrite(attribute, H5T_NATIVE_INT, long_values + 1));
    DO(H5Aclose(attribute));
    DO(H5Arename(group, "old", "new"));
    MAKE(attribute,
         H5Acreate2(group, "gone", text_type, scalar, H5P_DEFAULT, H5P_DEFAULT));
    DO(H5Awrite(attribute, text_type, first_texts));
    DO(H5Aclose(attribute));
    REMOVE(H5Adelete(group, "gone"), H5Aexists(group, "gone"));
    if (H5Aiterate2(group, H5_INDEX_NAME, H5_ITER_INC, &at, count_attribute, &count) <
        0) {
        after_failure("H5Aiterate2");
        count = 0;
        at = 0;
        DO(H5Aiterate2(group, H5_INDEX_NAME, H5_ITER_INC, &at, count_attribute, &count));
    }
    assert_int_equal(count, 2);
    MAKE(attribute, H5Aopen(group, "long", H5P_DEFAULT));
    DO(H5Aread(attribute, H5T_NATIVE_INT, got));
    assert_memory_equal(got, long_values, sizeof long_values);
    DO(H5Aclose(attribute));
    H5Sclose(scalar);
    H5Sclose(space);
}

static herr_t count_link(hid_t at, const char *name, const H5L_info2_t *info, void *count)
{
    (void)at;
    (void)name;
    (void)info;
    ++*(int *)count;
    return 0;
}

static herr_t count_object(hid_t at, const char *name, const H5O_info2_t *info,
                           void *count)
{
    (void)at;
    (void)name;
    (void)info;
    ++*(int *)count;
    return 0;
}

/* Counts what a call gives to a function, and begins anew where the call fails. */
#define COUNT(want, call)                                                                \
    do {                                                                                 \
        int count = 0;                                                                   \
                                                                                         \
        if ((call) < 0) {                                                                \
            after_failure(#call);                                                        \
            count = 0;                                                                   \
            DO(call);                                                                    \
        }                                                                                \
        assert_int_equal(count, want);                                                   \
    } while (0)

static void make_links(hid_t file, hid_t group)
{
    hid_t space = space_of(1), dataset, found;
    char name[80], got[sizeof middle_name];
    H5L_info2_t info;
    H5O_info2_t object;
    H5G_info_t about;

    DO(H5Lcreate_hard(group, "numbers", group, "hard", H5P_DEFAULT, H5P_DEFAULT));
    DO(H5Lcreate_soft("/group/numbers", group, middle_name, H5P_DEFAULT, H5P_DEFAULT));
    DO(H5Lcreate_soft(middle_name, group, long_name, H5P_DEFAULT, H5P_DEFAULT));
    DO(H5Lget_val(group, long_name, got, sizeof got, H5P_DEFAULT));
    assert_string_equal(got, middle_name);
    MAKE(dataset, H5Dopen2(group, middle_name, H5P_DEFAULT));
    DO(H5Iget_name(dataset, name, sizeof name));
    DO(H5Dclose(dataset));
    MAKE(dataset, H5Dcreate_anon(file, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT));
    DO(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, long_values + 2));
    DO(H5Olink(dataset, group, "anonymous", H5P_DEFAULT, H5P_DEFAULT));
    DO(H5Oget_info3(dataset, &object, H5O_INFO_ALL));
    assert_int_equal(object.rc, 1);
    DO(H5Dclose(dataset));
    DO(H5Lget_info2(group, "hard", &info, H5P_DEFAULT));
    DO(H5Gget_info(group, &about));
    assert_int_equal(about.nlinks, 9);
    DO(H5Lget_name_by_idx(file, "group", H5_INDEX_CRT_ORDER, H5_ITER_INC, 0, name,
                          sizeof name, H5P_DEFAULT));
    assert_string_equal(name, "numbers");
    MAKE(found,
         H5Oopen_by_idx(file, "group", H5_INDEX_NAME, H5_ITER_INC, 1, H5P_DEFAULT));
    DO(H5Oclose(found));
    COUNT(9,
          H5Literate2(group, H5_INDEX_CRT_ORDER, H5_ITER_INC, NULL, count_link, &count));
    COUNT(10, H5Lvisit2(file, H5_INDEX_NAME, H5_ITER_INC, count_link, &count));
    COUNT(8, H5Ovisit3(file, H5_INDEX_NAME, H5_ITER_INC, count_object, &count,
                       H5O_INFO_ALL));
    H5Sclose(space);
}

static void change_links(hid_t file, hid_t group)
{
    hid_t copy;

    DO(H5Lcopy(group, "hard", file, "/made/above/it", H5P_DEFAULT, H5P_DEFAULT));
    REMOVE(H5Lmove(group, "hard", group, "moved", H5P_DEFAULT, H5P_DEFAULT),
           H5Lexists(group, "hard", H5P_DEFAULT));
    DO(H5Ocopy(file, "group", file, "copy", H5P_DEFAULT, H5P_DEFAULT));
    MAKE(copy, H5Gopen2(file, "copy", H5P_DEFAULT));
    REMOVE(H5Ldelete(copy, "moved", H5P_DEFAULT), H5Lexists(copy, "moved", H5P_DEFAULT));
    REMOVE(H5Ldelete(copy, "chunks", H5P_DEFAULT),
           H5Lexists(copy, "chunks", H5P_DEFAULT));
    REMOVE(H5Ldelete(copy, long_name, H5P_DEFAULT),
           H5Lexists(copy, long_name, H5P_DEFAULT));
    DO(H5Gclose(copy));
    DO(H5Ocopy(file, "copy", file, "twice", H5P_DEFAULT, H5P_DEFAULT));
    REMOVE(H5Ldelete(file, "twice", H5P_DEFAULT), H5Lexists(file, "twice", H5P_DEFAULT));
    DO(H5Oincr_refcount(group));
    DO(H5Odecr_refcount(group));
}

static void write_all(void)
{
    hid_t file, group, gcpl = H5Pcreate(H5P_GROUP_CREATE),
                       lcpl = H5Pcreate(H5P_LINK_CREATE);

    H5Pset_link_creation_order(gcpl, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_attr_creation_order(gcpl, H5P_CRT_ORDER_TRACKED);
    H5Pset_create_intermediate_group(lcpl, 1);
    MAKE(file, H5Fcreate("memory.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl));
    MAKE(group, H5Gcreate2(file, "group", H5P_DEFAULT, gcpl, H5P_DEFAULT));
    make_numbers(group);
    make_chunks(group);
    make_texts(group);
    make_named(group);
    make_attributes(group);
    make_links(file, group);
    DO(H5Lcreate_soft("/", file, "/made/above/root", lcpl, H5P_DEFAULT));
    change_links(file, group);
    DO(H5Fflush(file, H5F_SCOPE_LOCAL));
    DO(H5Gclose(group));
    /* Also where it was repeated: it says that all is durable. */
    sync_result = 1;
    DO(H5Fclose(file));
    assert_int_equal(sync_result, 0);
    H5Pclose(lcpl);
    H5Pclose(gcpl);
}

static void check_in(hid_t file, const char *name, hsize_t links)
{
    hid_t group, dataset, attribute;
    g_autofree int *got = g_new0(int, LONG_ATTRIBUTE);
    Named named[3] = {{0}};
    H5G_info_t about;
    hid_t space = space_of(3);

    MAKE(group, H5Gopen2(file, name, H5P_DEFAULT));
    DO(H5Gget_info(group, &about));
    assert_int_equal(about.nlinks, links);
    MAKE(dataset, H5Dopen2(group, "numbers", H5P_DEFAULT));
    DO(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, got));
    for (int i = 0; i < 64; i++) {
        assert_int_equal(got[i], i >= 8 && i < 12 ? i : -1);
    }
    DO(H5Dclose(dataset));
    MAKE(dataset, H5Dopen2(group, "texts", H5P_DEFAULT));
    assert_texts(dataset, last_texts);
    DO(H5Dclose(dataset));
    MAKE(dataset, H5Dopen2(group, "named", H5P_DEFAULT));
    DO(H5Dread(dataset, named_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, named));
    assert_string_equal(named[2].name, "zzz");
    assert_int_equal(named[2].number, 13);
    H5Treclaim(named_type, space, H5P_DEFAULT, named);
    DO(H5Dclose(dataset));
    MAKE(attribute, H5Aopen_by_name(file, name, "long", H5P_DEFAULT, H5P_DEFAULT));
    DO(H5Aread(attribute, H5T_NATIVE_INT, got));
    assert_memory_equal(got, long_values, sizeof long_values);
    DO(H5Aclose(attribute));
    DO(H5Gclose(group));
    H5Sclose(space);
}

static void read_all(void)
{
    hid_t file, group;

    MAKE(file, H5Fopen("memory.h5", H5F_ACC_RDONLY, fapl));
    check_in(file, "group", 9);
    check_in(file, "copy", 6);
    /* What is open in a file keeps it open. */
    MAKE(group, H5Gopen2(file, "group", H5P_DEFAULT));
    DO(H5Fclose(file));
    DO(H5Gclose(group));
}

/* Allocations, of which the short form lets one fail. */
#define STEP 199

/* ---- rounds ------------------------------------------------------------------------ */

static herr_t count_identifier(hid_t id, void *count)
{
    (void)id;
    ++*(int *)count;
    return 0;
}

static int identifiers(void)
{
    static const H5I_type_t types[] = {H5I_FILE,       H5I_GROUP,   H5I_DATATYPE,
                                       H5I_DATASPACE,  H5I_DATASET, H5I_ATTR,
                                       H5I_GENPROP_LST};
    int count = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(types); i++) {
        assert_true(H5Iiterate(types[i], count_identifier, &count) >= 0);
    }
    return count;
}

/* The program, with allocation @number failing, and those that follow; 0: none.  Were
 * there so many? */
static bool run(unsigned number, bool all)
{
    int before = identifiers();

    calls = failed = 0;
    failing = number;
    and_all_that_follow = all;
    is_counting = true;
    write_all();
    read_all();
    REMOVE(H5Fdelete("memory.h5", fapl), H5Fis_accessible("memory.h5", fapl));
    is_counting = false;
    if (live != 0) {
        fail_msg("%d allocations stay behind the failure of number %u", live, number);
    }
    assert_int_equal(identifiers(), before);
    return failed > 0;
}

static void run_all(bool all)
{
    bool is_long = getenv("VARJFS_TEST_ALL") != NULL;
    const char *text = getenv("VARJFS_TEST_SEED");
    unsigned step = is_long ? 1 : STEP, number, seed;

    seed = text != NULL ? (unsigned)strtoul(text, NULL, 0) : (unsigned)getpid();
    printf("# VARJFS_TEST_SEED=%u\n", seed);
    assert_false(run(0, false));
    for (number = 1 + seed % step; run(number, all); number += step) {
        if (number % 100 == 0) {
            printf("# %u allocations\n", number);
            fflush(stdout);
        }
    }
    assert_true(number > 500);
}

static void one_allocation_fails(void **state)
{
    (void)state;
    run_all(false);
}

static void and_all_behind_it_fail(void **state)
{
    (void)state;
    run_all(true);
}

/* ---- the volume -------------------------------------------------------------------- */

static char *directory;

static int start(void **state)
{
    g_autofree char *info = NULL;
    void *options = NULL;
    hid_t connector;

    (void)state;
    directory = volume_start();
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    connector = H5VLregister_connector(H5PLget_plugin_info(), H5P_DEFAULT);
    assert_true(connector >= 0);
    info = g_strdup_printf("source=%s", getenv("VARJFS_SOURCE"));
    assert_true(H5VLconnector_str_to_info(info, connector, &options) >= 0);
    fapl = H5Pcreate(H5P_FILE_ACCESS);
    assert_true(H5Pset_vol(fapl, connector, options) >= 0);
    H5VLfree_connector_info(connector, options);
    H5VLclose(connector);
    text_type = H5Tcopy(H5T_C_S1);
    H5Tset_size(text_type, H5T_VARIABLE);
    named_type = H5Tcreate(H5T_COMPOUND, sizeof(Named));
    H5Tinsert(named_type, "number", offsetof(Named, number), H5T_NATIVE_INT);
    H5Tinsert(named_type, "name", offsetof(Named, name), text_type);
    number_type = H5Tcreate(H5T_COMPOUND, sizeof(Named));
    H5Tinsert(number_type, "number", offsetof(Named, number), H5T_NATIVE_INT);
    memset(long_name, 'l', sizeof long_name - 1);
    memset(middle_name, 'm', sizeof middle_name - 1);
    for (int i = 0; i < LONG_ATTRIBUTE; i++) {
        long_values[i] = i;
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    H5Tclose(number_type);
    H5Tclose(named_type);
    H5Tclose(text_type);
    H5Pclose(fapl);
    H5close();
    volume_stop(directory);
    return 0;
}

static const struct CMUnitTest tests[] = {
    {"/hdf5/memory/one", one_allocation_fails, NULL, NULL, NULL},
    {"/hdf5/memory/others", and_all_behind_it_fail, NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "-p") == 0) {
        cmocka_set_test_filter(argv[2]);
    }
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    return cmocka_run_group_tests(tests, start, stop);
}
