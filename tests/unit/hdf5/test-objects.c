/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-objects.c - files, links, attributes and objects of the HDF5 connector
 *
 * What HDF5's own tests of connectors do not look at: what is left in the volume when
 * something is deleted, objects that are deleted while they are open, degrees of closing,
 * what is refused, and what the errors say.
 */
#include "volume.h"

#include <H5VLconnector.h>
#include <hdf5.h>

#include <varjfs/varjfs.h>

static char *directory, *source;
static hid_t file;

static int start(void **state)
{
    g_autofree char *command = NULL;

    (void)state;
    directory = vj_test_make_dir();
    source = g_build_filename(directory, "volume", NULL);
    command = g_strdup_printf("%s/mkfs.varjfs %s >/dev/null", VARJFS_SBINDIR, source);
    assert_int_equal(mkdir(source, 0700), 0);
    assert_int_equal(system(command), 0);
    setenv("VARJFS_SOURCE", source, 1);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    H5close();
    volume_stop(directory);
    return 0;
}

static int open_file(void **state)
{
    (void)state;
    file = H5Fcreate("f.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    return file < 0;
}

static int close_file(void **state)
{
    (void)state;
    return H5Fclose(file) < 0;
}

/* ---- helpers ----------------------------------------------------------------------- */

/* Keys and objects of all HDF5 files, without the records of files. */
static unsigned stored(void)
{
    struct varjfs_entry space = {.size = sizeof space}, e = {.size = sizeof e};
    varjfs *v;
    unsigned count = 0;

    assert_int_equal(varjfs_open(source, NULL, &v), 0);
    for (int objects = 0; objects < 2; objects++) {
        varjfs_iterator *spaces, *i;

        assert_int_equal(objects ? varjfs_object_iterate(v, NULL, "hdf5-", &spaces)
                                 : varjfs_kv_iterate(v, NULL, "hdf5-", 5, &spaces),
                         0);
        while (varjfs_iterator_next(spaces, &space) == 1) {
            g_autofree char *name = g_strndup(space.name, space.name_len);

            assert_int_equal(objects ? varjfs_object_iterate(v, name, NULL, &i)
                                     : varjfs_kv_iterate(v, name, NULL, 0, &i),
                             0);
            while (varjfs_iterator_next(i, &e) == 1) {
                count++;
            }
            varjfs_iterator_free(i);
        }
        varjfs_iterator_free(spaces);
    }
    assert_int_equal(varjfs_close(v), 0);
    return count;
}

static herr_t add_text(unsigned n, const H5E_error2_t *e, void *text)
{
    (void)n;
    g_string_append_printf(text, "%s; ", e->desc);
    return 0;
}

/* The call failed, and its errors say @part. */
static void failed_with(const char *part)
{
    GString *text = g_string_new("");

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, add_text, text);
    if (!strstr(text->str, part)) {
        fail_msg("\"%s\" does not hold \"%s\"", text->str, part);
    }
    g_string_free(text, TRUE);
}

static hid_t make_group(hid_t at, const char *name)
{
    hid_t id = H5Gcreate2(at, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

    assert_true(id >= 0);
    return id;
}

/* A dataset of 1000 integers, in chunks, with an attribute of strings. */
static hid_t make_dataset(hid_t at, const char *name, hid_t type)
{
    hsize_t dims[] = {1000}, chunk[] = {100}, two[] = {2};
    hid_t space = H5Screate_simple(1, dims, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hid_t words = H5Screate_simple(1, two, NULL), text = H5Tcopy(H5T_C_S1), id, attribute;
    const char *strings[] = {"one", "another one"};
    int values[1000];

    for (int i = 0; i < 1000; i++) {
        values[i] = 3 * i;
    }
    H5Tset_size(text, H5T_VARIABLE);
    H5Pset_chunk(dcpl, 1, chunk);
    id = H5Dcreate2(at, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(id >= 0);
    assert_true(H5Dwrite(id, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    attribute = H5Acreate2(id, "words", text, words, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(attribute >= 0 && H5Awrite(attribute, text, strings) >= 0);
    H5Aclose(attribute);
    H5Sclose(words);
    H5Sclose(space);
    H5Tclose(text);
    H5Pclose(dcpl);
    return id;
}

static void look_at_dataset(hid_t at, const char *name)
{
    hid_t id = H5Dopen2(at, name, H5P_DEFAULT), attribute, text = H5Tcopy(H5T_C_S1);
    char *strings[2];
    int values[1000];

    assert_true(id >= 0);
    assert_true(H5Dread(id, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(values[i], 3 * i);
    }
    H5Tset_size(text, H5T_VARIABLE);
    attribute = H5Aopen(id, "words", H5P_DEFAULT);
    assert_true(attribute >= 0 && H5Aread(attribute, text, strings) >= 0);
    assert_string_equal(strings[1], "another one");
    H5free_memory(strings[0]);
    H5free_memory(strings[1]);
    H5Aclose(attribute);
    H5Tclose(text);
    H5Dclose(id);
}

/* ---- space ------------------------------------------------------------------------- */

static void what_is_deleted_leaves_nothing(void **state)
{
    unsigned before = stored();
    hid_t group = make_group(file, "g"), type = H5Tcopy(H5T_STD_I32LE);

    (void)state;
    assert_true(H5Tcommit2(group, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >=
                0);
    H5Dclose(make_dataset(group, "a", H5T_STD_I32BE));
    H5Dclose(make_dataset(group, "b", type));
    H5Gclose(make_group(group, "deeper"));
    assert_true(
        H5Lcreate_hard(group, "a", group, "deeper/again", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Tclose(type);
    H5Gclose(group);
    assert_true(stored() > before + 30);
    assert_true(H5Ldelete(file, "g", H5P_DEFAULT) >= 0);
    assert_int_equal(stored(), before);
}

static void anonymous_objects_go_when_they_are_closed(void **state)
{
    unsigned before = stored();
    hid_t kept = H5Gcreate_anon(file, H5P_DEFAULT, H5P_DEFAULT);
    hid_t lost = H5Gcreate_anon(file, H5P_DEFAULT, H5P_DEFAULT);

    (void)state;
    assert_true(kept >= 0 && lost >= 0);
    assert_true(H5Olink(kept, file, "kept", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Gclose(kept);
    H5Gclose(lost);
    /* header, link, back reference, and that it was linked later */
    assert_int_equal(stored(), before + 4);
}

static void an_open_object_stays_until_it_is_closed(void **state)
{
    unsigned before = stored();
    hid_t id = make_dataset(file, "d", H5T_STD_I32LE);
    int values[1000];
    char name[10];

    (void)state;
    assert_true(H5Ldelete(file, "d", H5P_DEFAULT) >= 0);
    assert_true(H5Lexists(file, "d", H5P_DEFAULT) == 0);
    assert_true(H5Dread(id, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    assert_int_equal(values[999], 2997);
    assert_int_equal(H5Iget_name(id, name, sizeof name), 0);
    H5Dclose(id);
    assert_int_equal(stored(), before);
}

static void truncating_and_deleting_a_file_frees_it(void **state)
{
    unsigned before = stored(), empty;
    hid_t other = H5Fcreate("other.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

    (void)state;
    H5Fclose(other);
    empty = stored();
    other = H5Fopen("other.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    H5Dclose(make_dataset(other, "d", H5T_STD_I32LE));
    H5Fclose(other);
    H5Fclose(H5Fcreate("/./other.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    assert_int_equal(stored(), empty);
    assert_true(H5Fdelete("other.h5", H5P_DEFAULT) >= 0);
    assert_int_equal(stored(), before);
    assert_true(H5Fis_accessible("other.h5", H5P_DEFAULT) == 0);
}

static void a_committed_type_stays_for_its_users(void **state)
{
    hid_t type = H5Tcopy(H5T_STD_I32LE), id, again;
    unsigned before = stored();

    (void)state;
    assert_true(H5Tcommit2(file, "t", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Dclose(make_dataset(file, "d", type));
    H5Tclose(type);
    assert_true(H5Ldelete(file, "t", H5P_DEFAULT) >= 0);
    id = H5Dopen2(file, "d", H5P_DEFAULT);
    again = H5Dget_type(id);
    assert_true(H5Tcommitted(again) > 0 && H5Tequal(again, H5T_STD_I32LE) > 0);
    H5Tclose(again);
    H5Dclose(id);
    assert_true(H5Ldelete(file, "d", H5P_DEFAULT) >= 0);
    assert_int_equal(stored(), before);
}

/* ---- copies ------------------------------------------------------------------------ */

static void copies_have_everything(void **state)
{
    hid_t other = H5Fcreate("other.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t group = make_group(file, "g");
    H5O_info2_t a, b;

    (void)state;
    H5Dclose(make_dataset(group, "d", H5T_STD_I32LE));
    assert_true(H5Lcreate_hard(group, "d", group, "same", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    assert_true(H5Lcreate_soft("d", group, "soft", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    assert_true(H5Lcreate_hard(file, "g", group, "up", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    assert_true(H5Ocopy(file, "g", other, "copy", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Gclose(group);
    assert_true(H5Ldelete(file, "g/up", H5P_DEFAULT) >= 0);
    assert_true(H5Ldelete(file, "g", H5P_DEFAULT) >= 0);
    look_at_dataset(other, "copy/d");
    look_at_dataset(other, "/copy/soft");
    assert_true(
        H5Oget_info_by_name3(other, "copy/same", &a, H5O_INFO_BASIC, H5P_DEFAULT) >= 0);
    assert_true(H5Oget_info_by_name3(other, "copy/up/up/d", &b, H5O_INFO_BASIC,
                                     H5P_DEFAULT) >= 0);
    assert_memory_equal(&a.token, &b.token, sizeof a.token);
    assert_int_equal(a.rc, 2);
    H5Fclose(other);
}

/* ---- closing ----------------------------------------------------------------------- */

static hid_t open_with_degree(H5F_close_degree_t degree)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), id;

    H5Pset_fclose_degree(fapl, degree);
    id = H5Fcreate("degree.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    assert_true(id >= 0);
    H5Pclose(fapl);
    return id;
}

static void a_strong_close_closes_objects(void **state)
{
    hid_t id = open_with_degree(H5F_CLOSE_STRONG), group = make_group(id, "g");
    hid_t data = make_dataset(group, "d", H5T_STD_I32LE);
    hid_t attribute = H5Aopen(data, "words", H5P_DEFAULT);

    (void)state;
    assert_true(H5Fclose(id) >= 0);
    assert_true(H5Iis_valid(group) == 0 && H5Iis_valid(data) == 0 &&
                H5Iis_valid(attribute) == 0);
    id = open_with_degree(H5F_CLOSE_STRONG);
    assert_true(H5Fclose(id) >= 0);
}

static void a_weak_close_leaves_them(void **state)
{
    hid_t id = open_with_degree(H5F_CLOSE_WEAK), group = make_group(id, "g"), again;

    (void)state;
    assert_true(H5Fclose(id) >= 0);
    H5Dclose(make_dataset(group, "d", H5T_STD_I32LE));
    again = H5Iget_file_id(group);
    assert_true(again >= 0);
    look_at_dataset(again, "/g/d");
    H5Gclose(group);
    look_at_dataset(again, "/g/d");
    assert_true(H5Fclose(again) >= 0);
    id = open_with_degree(H5F_CLOSE_WEAK); /* nothing has the old one open */
    assert_true(H5Fclose(id) >= 0);
}

/* ---- what is refused --------------------------------------------------------------- */

static void refusals_say_why(void **state)
{
    hid_t group, other;

    (void)state;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    assert_true(H5Fopen("../f.h5", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
    failed_with("\"..\"");
    assert_true(H5Fopen("none.h5", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
    failed_with("none.h5: there is no such HDF5 file");
    assert_true(H5Fcreate("f.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT) < 0);
    failed_with("is open in this process");
    assert_true(H5Fcreate("f.h5", H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT) < 0);
    assert_true(H5Lcreate_external("x.h5", "/", file, "e", H5P_DEFAULT, H5P_DEFAULT) < 0);
    failed_with("external");
    group = make_group(file, "g");
    assert_true(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) < 0);
    failed_with("there is a link g already");
    assert_true(H5Gopen2(file, "nothing/there", H5P_DEFAULT) < 0);
    failed_with("there is no link /nothing");
    assert_true(H5Dopen2(file, "g", H5P_DEFAULT) < 0);
    failed_with("g is a group, not a dataset");
    assert_true(H5Lcreate_soft("loop", file, "loop", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    assert_true(H5Gopen2(file, "loop", H5P_DEFAULT) < 0);
    failed_with("soft links");
    assert_true(H5Aopen(group, "none", H5P_DEFAULT) < 0);
    failed_with("there is no attribute none");
    other = H5Fcreate("other.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Fmount(group, ".", other, H5P_DEFAULT) < 0);
    failed_with("H5Fmount");
    assert_true(H5Lcreate_hard(file, "g", other, "g", H5P_DEFAULT, H5P_DEFAULT) < 0);
    H5Fclose(other);
    other = H5Fopen("other.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(H5Gcreate2(other, "a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) < 0);
    failed_with("reading");
    H5Fclose(other);
    H5Gclose(group);
}

/* What is wrong with a connector string is said when a file is opened. */
static void a_wrong_connector_string_is_an_error(void **state)
{
    static const char *const words[][2] = {
        {"safety=none", "network or storage"},
        {"sauce=x", "sauce=x"},
        {"source=/nowhere/at/all", "/nowhere/at/all"},
        {"source=http://x", "http://x"},
    };
    hid_t connector = H5VLget_connector_id(file);

    (void)state;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(words); i++) {
        hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
        void *info = NULL;

        assert_true(H5VLconnector_str_to_info(words[i][0], connector, &info) >= 0);
        assert_true(H5Pset_vol(fapl, connector, info) >= 0);
        H5VLfree_connector_info(connector, info);
        assert_true(H5Fcreate("x.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl) < 0);
        failed_with(words[i][1]);
        H5Pclose(fapl);
    }
    H5VLclose(connector);
}

/* ---- names ------------------------------------------------------------------------- */

static void names_of_any_bytes(void **state)
{
    g_autofree char *long_name = g_strnfill(5000, 'x');
    const char *const names[] = {"ä ö", " ", "..", "\xff\xfe", "a.b", long_name};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *found = g_malloc0(6000);
        hid_t id = make_group(file, names[i]);

        assert_int_equal(H5Iget_name(id, found, 6000), strlen(names[i]) + 1);
        assert_string_equal(found + 1, names[i]);
        H5Gclose(make_group(id, names[i]));
        H5Gclose(id);
        assert_int_equal(H5Lexists(file, names[i], H5P_DEFAULT), 1);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        assert_true(H5Ldelete(file, names[i], H5P_DEFAULT) >= 0);
    }
    assert_int_equal(H5Lexists(file, long_name, H5P_DEFAULT), 0);
}

static void an_object_that_was_opened_by_token_has_a_name(void **state)
{
    hid_t group = make_group(file, "g"), id = make_group(group, "h");
    char name[20];
    H5O_info2_t info;

    (void)state;
    assert_true(H5Oget_info3(id, &info, H5O_INFO_BASIC) >= 0);
    H5Gclose(id);
    id = H5Oopen_by_token(file, info.token);
    assert_true(id >= 0);
    assert_int_equal(H5Iget_name(id, name, sizeof name), 4);
    assert_string_equal(name, "/g/h");
    H5Gclose(id);
    H5Gclose(group);
}

#define WITH_FILE(f) cmocka_unit_test_setup_teardown(f, open_file, close_file)

/* ---- what cannot be made ----------------------------------------------------------- */

static void a_dataset_that_cannot_be_allocated_is_not_there(void **state)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space, id, group;
    hsize_t most = (hsize_t)1 << 40, dims[] = {most, most, most}, chunk[] = {1, 1, 1};
    unsigned before;
    int fill = 7;

    (void)state;
    H5Pset_chunk(dcpl, 3, chunk);
    H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill);
    H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
    space = H5Screate_simple(3, dims, NULL);
    assert_true(space >= 0);
    group = make_group(file, "g");
    before = stored();
    H5E_BEGIN_TRY
    {
        id =
            H5Dcreate2(group, "d", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    }
    H5E_END_TRY
    assert_true(id < 0);
    assert_true(H5Lexists(group, "d", H5P_DEFAULT) == 0);
    assert_int_equal(stored(), before);
    H5Gclose(group);
    H5Sclose(space);
    H5Pclose(dcpl);
}

/* ---- long attributes --------------------------------------------------------------- */

/* Bytes of the values of all keys of files. */
static size_t stored_bytes(void)
{
    struct varjfs_entry space = {.size = sizeof space}, e = {.size = sizeof e};
    varjfs_iterator *spaces, *i;
    size_t bytes = 0;
    varjfs *v;

    assert_int_equal(varjfs_open(source, NULL, &v), 0);
    assert_int_equal(varjfs_kv_iterate(v, NULL, "hdf5-", 5, &spaces), 0);
    while (varjfs_iterator_next(spaces, &space) == 1) {
        g_autofree char *name = g_strndup(space.name, space.name_len);

        assert_int_equal(varjfs_kv_iterate(v, name, NULL, 0, &i), 0);
        while (varjfs_iterator_next(i, &e) == 1) {
            bytes += e.len;
        }
        varjfs_iterator_free(i);
    }
    varjfs_iterator_free(spaces);
    assert_int_equal(varjfs_close(v), 0);
    return bytes;
}

typedef struct {
    char *kept, *text;
} Texts;

static void members_that_were_replaced_leave_nothing(void **state)
{
    hid_t text = H5Tcopy(H5T_C_S1), both = H5Tcreate(H5T_COMPOUND, sizeof(Texts));
    hid_t one = H5Tcreate(H5T_COMPOUND, sizeof(char *)), space = H5Screate(H5S_SCALAR);
    g_autofree char *longer = g_strnfill(500, 'x');
    Texts texts = {(char *)"this stays", longer}, got = {0};
    size_t bytes;
    hid_t a;

    (void)state;
    H5Tset_size(text, H5T_VARIABLE);
    H5Tinsert(both, "kept", HOFFSET(Texts, kept), text);
    H5Tinsert(both, "text", HOFFSET(Texts, text), text);
    H5Tinsert(one, "text", 0, text);
    a = H5Acreate2(file, "texts", both, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(a >= 0);
    assert_true(H5Awrite(a, both, &texts) >= 0);
    bytes = stored_bytes();
    for (int i = 0; i < 10; i++) {
        longer[0] = (char)('a' + i);
        assert_true(H5Awrite(a, one, &longer) >= 0);
        assert_int_equal(stored_bytes(), bytes);
    }
    assert_true(H5Aread(a, both, &got) >= 0);
    assert_string_equal(got.kept, "this stays");
    assert_string_equal(got.text, longer);
    H5Treclaim(both, space, H5P_DEFAULT, &got);
    H5Aclose(a);
    H5Sclose(space);
    H5Tclose(one);
    H5Tclose(both);
    H5Tclose(text);
}

static void no_attribute_has_more_than_4_gib(void **state)
{
    hsize_t dims[] = {UINT64_C(5) << 30};
    hid_t space = H5Screate_simple(1, dims, NULL), a;
    herr_t r;
    char byte = 0;

    (void)state;
    a = H5Acreate2(file, "large", H5T_NATIVE_CHAR, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(a >= 0);
    H5E_BEGIN_TRY
    {
        r = H5Awrite(a, H5T_NATIVE_CHAR, &byte); /* nobody looks at the data */
    }
    H5E_END_TRY
    assert_true(r < 0);
    failed_with("more than 4 GiB");
    H5Aclose(a);
    H5Sclose(space);
}

static hid_t make_attribute(const char *name, hid_t type, hsize_t dim)
{
    hid_t space = H5Screate_simple(1, &dim, NULL);
    hid_t a = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);

    assert_true(a >= 0);
    H5Sclose(space);
    return a;
}

/* One that was deleted is not another one of its name, whose type is another one. */
static void an_attribute_of_the_same_name_is_another_one(void **state)
{
    hid_t old = make_attribute("name", H5T_NATIVE_INT, 2), new;
    int numbers[2] = {1, 2};
    double value = 0.5, got = 0;
    herr_t written, read;

    (void)state;
    assert_true(H5Awrite(old, H5T_NATIVE_INT, numbers) >= 0);
    assert_true(H5Adelete(file, "name") >= 0);
    new = make_attribute("name", H5T_NATIVE_DOUBLE, 1);
    assert_true(H5Awrite(new, H5T_NATIVE_DOUBLE, &value) >= 0);
    H5E_BEGIN_TRY
    {
        read = H5Aread(old, H5T_NATIVE_INT, numbers);
        written = H5Awrite(old, H5T_NATIVE_INT, numbers);
    }
    H5E_END_TRY
    assert_true(read < 0);
    assert_true(written < 0);
    failed_with("deleted");
    H5Aclose(old);
    assert_true(H5Aread(new, H5T_NATIVE_DOUBLE, &got) >= 0);
    assert_true(got == value);
    H5Aclose(new);
}

/* As in HDF5's own files. */
static void an_open_attribute_has_its_new_name(void **state)
{
    hid_t a = make_attribute("before", H5T_NATIVE_INT, 1), b;
    int number = 7, got = 0;
    char name[20] = "";

    (void)state;
    assert_true(H5Arename(file, "before", "behind") >= 0);
    assert_true(H5Awrite(a, H5T_NATIVE_INT, &number) >= 0);
    assert_true(H5Aget_name(a, sizeof name, name) >= 0);
    assert_string_equal(name, "behind");
    b = H5Aopen(file, "behind", H5P_DEFAULT);
    assert_true(H5Aread(b, H5T_NATIVE_INT, &got) >= 0);
    assert_int_equal(got, 7);
    H5Aclose(b);
    H5Aclose(a);
}

static const struct CMUnitTest tests[] = {
    WITH_FILE(what_is_deleted_leaves_nothing),
    WITH_FILE(anonymous_objects_go_when_they_are_closed),
    WITH_FILE(an_open_object_stays_until_it_is_closed),
    WITH_FILE(truncating_and_deleting_a_file_frees_it),
    WITH_FILE(a_committed_type_stays_for_its_users),
    WITH_FILE(copies_have_everything),
    cmocka_unit_test(a_strong_close_closes_objects),
    cmocka_unit_test(a_weak_close_leaves_them),
    WITH_FILE(refusals_say_why),
    WITH_FILE(a_wrong_connector_string_is_an_error),
    WITH_FILE(names_of_any_bytes),
    WITH_FILE(a_dataset_that_cannot_be_allocated_is_not_there),
    WITH_FILE(members_that_were_replaced_leave_nothing),
    WITH_FILE(no_attribute_has_more_than_4_gib),
    WITH_FILE(an_object_that_was_opened_by_token_has_a_name),
    WITH_FILE(an_attribute_of_the_same_name_is_another_one),
    WITH_FILE(an_open_attribute_has_its_new_name),
};

int main(int argc, char **argv)
{
    g_autofree char *path = g_strdup_printf("%s:%s", VARJFS_SBINDIR, getenv("PATH"));

    if (argc == 3 && strcmp(argv[1], "-p") == 0) {
        cmocka_set_test_filter(argv[2]);
    }
    setenv("PATH", path, 1);
    setenv("HDF5_PLUGIN_PATH", VARJFS_SBINDIR "/.libs", 1);
    setenv("HDF5_VOL_CONNECTOR", "varjfs", 1);
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    return cmocka_run_group_tests(tests, start, stop);
}
