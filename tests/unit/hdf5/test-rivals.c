/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-rivals.c - what another process does between two requests of this one
 *
 * This program is the first process.  The other one is this program too, started with the
 * name of what it shall do, and is waited for: so the order is always the same.
 */
#include "volume.h"

#include <spawn.h>

#include <H5VLconnector.h>
#include <hdf5.h>

#include <varjfs/hdf5.h>
#include <varjfs/varjfs.h>

#include "requests.h"

static char *directory;
static hid_t file;

/* ---- requests ---------------------------------------------------------------------- */

static unsigned requests, at_request; /* at_request 0: none */
static void (*rival)(void);

static void before_each_request(void)
{
    if (++requests == at_request) {
        rival();
    }
}

/* Before that of the number @number, from 1 on, the rival comes. */
static void before_request(unsigned number, void (*what)(void))
{
    requests = 0;
    at_request = number;
    rival = what;
}

/* ---- the other process ------------------------------------------------------------- */

static int run_other(const char *what)
{
    char program[] = "/proc/self/exe", word[] = "--other";
    g_autofree char *name = g_strdup(what);
    char *words[] = {program, word, name, NULL};
    pid_t pid;
    int status;

    assert_int_equal(posix_spawn(&pid, program, NULL, NULL, words, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void other(const char *what)
{
    assert_int_equal(run_other(what), 0);
}

/* There: an error is said, and the exit status. */
#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "# line %d: %s\n", __LINE__, #what);                         \
            _exit(100);                                                                  \
        }                                                                                \
    } while (0)

/* ---- things that both use ---------------------------------------------------------- */

static hid_t text_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    CHECK(H5Tset_size(type, H5T_VARIABLE) >= 0);
    return type;
}

/* A dataset of texts that can grow. */
static hid_t make_texts(const char *name, hsize_t count)
{
    hsize_t max = H5S_UNLIMITED, chunk = 4;
    hid_t type = text_type(), dcpl = H5Pcreate(H5P_DATASET_CREATE),
          space = H5Screate_simple(1, &count, &max), dataset;

    CHECK(H5Pset_chunk(dcpl, 1, &chunk) >= 0);
    dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    CHECK(dataset >= 0);
    H5Sclose(space);
    H5Pclose(dcpl);
    H5Tclose(type);
    return dataset;
}

/* @count elements from @first on, or all: @count 0. */
static herr_t write_texts(hid_t dataset, hsize_t first, hsize_t count,
                          const char *const *texts)
{
    hid_t type = text_type(), space = H5Dget_space(dataset), memory = H5S_ALL;
    herr_t done;

    if (count > 0) {
        memory = H5Screate_simple(1, &count, NULL);
        CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, NULL, &count, NULL) >=
              0);
    }
    done =
        H5Dwrite(dataset, type, memory, count > 0 ? space : H5S_ALL, H5P_DEFAULT, texts);
    if (count > 0) {
        H5Sclose(memory);
    }
    H5Sclose(space);
    H5Tclose(type);
    return done;
}

/* All of them, with ',' behind each. */
static char *read_texts(hid_t dataset)
{
    hid_t type = text_type(), space = H5Dget_space(dataset);
    hssize_t count = H5Sget_select_npoints(space);
    g_autofree char **texts = g_new0(char *, (gsize)count);
    GString *out = g_string_new(NULL);

    if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts) < 0) {
        g_string_append(out, "failed");
    } else {
        for (hssize_t i = 0; i < count; i++) {
            g_string_append_printf(out, "%s,", texts[i] == NULL ? "" : texts[i]);
        }
        H5Treclaim(type, space, H5P_DEFAULT, texts);
    }
    H5Sclose(space);
    H5Tclose(type);
    return g_string_free(out, FALSE);
}

static void assert_texts(hid_t dataset, const char *want)
{
    g_autofree char *got = read_texts(dataset);

    assert_string_equal(got, want);
}

static hid_t open_of(const char *name)
{
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);

    CHECK(dataset >= 0);
    return dataset;
}

/* Segments of variable-length data in the volume. */
static unsigned segments(void)
{
    struct varjfs_entry space = {.size = sizeof space}, entry = {.size = sizeof entry};
    varjfs_iterator *spaces, *i;
    unsigned count = 0;
    varjfs *v;

    assert_int_equal(varjfs_open(getenv("VARJFS_SOURCE"), NULL, &v), 0);
    assert_int_equal(varjfs_kv_iterate(v, NULL, NULL, 0, &spaces), 0);
    while (varjfs_iterator_next(spaces, &space) > 0) {
        assert_int_equal(varjfs_object_iterate(v, space.name, NULL, &i), 0);
        while (varjfs_iterator_next(i, &entry) > 0) {
            count += strstr(entry.name, ".v.") != NULL;
        }
        varjfs_iterator_free(i);
    }
    varjfs_iterator_free(spaces);
    varjfs_close(v);
    return count;
}

/* ---- the file ---------------------------------------------------------------------- */

static int start(void **state)
{
    (void)state;
    directory = volume_start();
    file = H5Fcreate("rivals.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(file >= 0);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    assert_true(H5Fclose(file) >= 0);
    H5close();
    volume_stop(directory);
    return 0;
}

/* ---- variable-length data ---------------------------------------------------------- */

typedef struct Named {
    int number;
    char *name;
    int unknown;
} Named;

static hid_t named_type(bool all)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(Named)), text = text_type();

    CHECK(H5Tinsert(type, "number", offsetof(Named, number), H5T_NATIVE_INT) >= 0);
    CHECK(!all || H5Tinsert(type, "name", offsetof(Named, name), text) >= 0);
    H5Tclose(text);
    return type;
}

/* What a write leaves as it was keeps what it refers to. */
static void members_keep_their_texts(void **state)
{
    hsize_t dim = 3;
    hid_t all = named_type(true), one = named_type(false),
          other_one = H5Tcreate(H5T_COMPOUND, sizeof(Named)),
          space = H5Screate_simple(1, &dim, NULL), dataset;
    char words[3][8] = {"a", "bcd", ""};
    Named values[3] = {{1, words[0], 0}, {2, words[1], 0}, {3, words[2], 0}},
          got[3] = {{0}};

    (void)state;
    H5Tinsert(other_one, "number", offsetof(Named, number), H5T_NATIVE_INT);
    H5Tinsert(other_one, "unknown", offsetof(Named, unknown), H5T_NATIVE_INT);
    dataset =
        H5Dcreate2(file, "named", all, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(dataset, all, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < 3; i++) {
            values[i].number = 10 * (kind + 1) + i;
        }
        assert_true(H5Dwrite(dataset, kind == 0 ? one : other_one, H5S_ALL, H5S_ALL,
                             H5P_DEFAULT, values) >= 0);
        assert_true(H5Dread(dataset, all, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(got[i].number, values[i].number);
            assert_string_equal(got[i].name, words[i]);
        }
        H5Treclaim(all, space, H5P_DEFAULT, got);
    }
    assert_int_equal(segments(), 1);
    assert_true(H5Dwrite(dataset, all, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    assert_int_equal(segments(), 1); /* the one before has gone */
    H5Dclose(dataset);
    assert_true(H5Ldelete(file, "named", H5P_DEFAULT) >= 0);
    H5Sclose(space);
    H5Tclose(other_one);
    H5Tclose(one);
    H5Tclose(all);
}

static H5T_conv_ret_t refuse(H5T_conv_except_t what, hid_t src, hid_t dst, void *from,
                             void *to, void *opaque)
{
    (void)what;
    (void)src;
    (void)dst;
    (void)from;
    (void)to;
    (void)opaque;
    return H5T_CONV_ABORT;
}

/* A write of one member that fails, and was not killed, holds nothing back. */
static void a_write_that_failed_keeps_no_texts(void **state)
{
    hsize_t dim = 3;
    hid_t all = named_type(true), large = H5Tcreate(H5T_COMPOUND, sizeof(int64_t)),
          space = H5Screate_simple(1, &dim, NULL), dxpl = H5Pcreate(H5P_DATASET_XFER),
          dataset;
    char words[3][8] = {"a", "bcd", ""};
    Named values[3] = {{1, words[0], 0}, {2, words[1], 0}, {3, words[2], 0}};
    int64_t numbers[3] = {1, 2, INT64_MAX};

    (void)state;
    H5Tinsert(large, "number", 0, H5T_NATIVE_INT64);
    H5Pset_type_conv_cb(dxpl, refuse, NULL);
    dataset =
        H5Dcreate2(file, "refused", all, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(dataset, all, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5E_BEGIN_TRY
    {
        assert_true(H5Dwrite(dataset, large, H5S_ALL, H5S_ALL, dxpl, numbers) < 0);
    }
    H5E_END_TRY
    assert_true(H5Dwrite(dataset, all, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    assert_int_equal(segments(), 1);
    H5Dclose(dataset);
    assert_true(H5Ldelete(file, "refused", H5P_DEFAULT) >= 0);
    H5Pclose(dxpl);
    H5Sclose(space);
    H5Tclose(large);
    H5Tclose(all);
}

static void write_named(void)
{
    hid_t dataset = open_of("kept"), all = named_type(true);
    char words[3][8] = {"x", "y", "z"};
    Named values[3] = {{7, words[0], 0}, {8, words[1], 0}, {9, words[2], 0}};

    CHECK(H5Dwrite(dataset, all, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Tclose(all);
    H5Dclose(dataset);
}

static void write_numbers(void)
{
    hid_t dataset = open_of("kept"), one = named_type(false);
    Named values[3] = {{10, NULL, 0}, {11, NULL, 0}, {12, NULL, 0}};

    CHECK(H5Dwrite(dataset, one, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Tclose(one);
    H5Dclose(dataset);
}

static void come_and_write_named(void)
{
    other("write_named");
}

static void come_and_write_numbers(void)
{
    other("write_numbers");
}

/* One writes all, the other one a member, at each moment of one another: whichever is
 * the last, what the elements refer to is there. */
static void kept_texts_stay_beside_a_write_of_all(void **state)
{
    hsize_t dim = 3;
    hid_t all = named_type(true), space = H5Screate_simple(1, &dim, NULL), dataset;
    char words[3][8] = {"a", "bcd", "e"};
    Named values[3] = {{1, words[0], 0}, {2, words[1], 0}, {3, words[2], 0}};

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        bool is_over = false;

        for (unsigned when = 1; !is_over; when++) {
            Named got[3] = {{0}};

            dataset = H5Dcreate2(file, "kept", all, space, H5P_DEFAULT, H5P_DEFAULT,
                                 H5P_DEFAULT);
            assert_true(H5Dwrite(dataset, all, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >=
                        0);
            before_request(when,
                           kind == 0 ? come_and_write_named : come_and_write_numbers);
            if (kind == 0) {
                write_numbers();
            } else {
                write_named();
            }
            is_over = requests < when;
            before_request(0, NULL);
            assert_true(H5Dread(dataset, all, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
            H5Treclaim(all, space, H5P_DEFAULT, got);
            H5Dclose(dataset);
            assert_true(H5Ldelete(file, "kept", H5P_DEFAULT) >= 0);
        }
    }
    assert_int_equal(segments(), 0);
    H5Sclose(space);
    H5Tclose(all);
}

static const char *const four[] = {"1", "2", "3", "4"};
static const char *const others[] = {"e", "f", "g", "h"};

static void grow_texts(void)
{
    hid_t dataset = open_of("grown");
    hsize_t dim = 8;

    CHECK(H5Dset_extent(dataset, &dim) >= 0);
    CHECK(write_texts(dataset, 4, 4, others) >= 0);
    H5Dclose(dataset);
}

/* All that this process knows of is not all. */
static void texts_of_a_larger_extent_stay(void **state)
{
    hid_t dataset = make_texts("grown", 4);

    (void)state;
    assert_true(write_texts(dataset, 0, 0, four) >= 0);
    other("grow_texts");
    assert_true(write_texts(dataset, 0, 0, four) >= 0);
    assert_true(H5Drefresh(dataset) >= 0);
    assert_texts(dataset, "1,2,3,4,e,f,g,h,");
    H5Dclose(dataset);
    assert_true(H5Ldelete(file, "grown", H5P_DEFAULT) >= 0);
}

static void rewrite_texts(void)
{
    hid_t dataset = open_of("rewritten");

    CHECK(write_texts(dataset, 0, 0, others) >= 0);
    H5Dclose(dataset);
}

static void come_and_rewrite(void)
{
    other("rewrite_texts");
}

/* Between the elements and what they refer to. */
static void texts_are_replaced_while_they_are_read(void **state)
{
    hid_t dataset = make_texts("rewritten", 4);

    (void)state;
    assert_true(write_texts(dataset, 0, 0, four) >= 0);
    before_request(2, come_and_rewrite);
    assert_texts(dataset, "e,f,g,h,");
    assert_true(requests >= 4);
    assert_int_equal(segments(), 1);
    H5Dclose(dataset);
    assert_true(H5Ldelete(file, "rewritten", H5P_DEFAULT) >= 0);
}

/* At each moment of a write of two of the elements: also between what they refer to and
 * these. */
static void texts_are_replaced_while_they_are_written(void **state)
{
    static const char *const mine[] = {"x", "y"};
    bool is_over = false;

    (void)state;
    for (unsigned when = 1; !is_over; when++) {
        hid_t dataset = make_texts("rewritten", 4);
        g_autofree char *got = NULL;

        assert_true(write_texts(dataset, 0, 0, four) >= 0);
        before_request(when, come_and_rewrite);
        assert_true(write_texts(dataset, 1, 2, mine) >= 0);
        is_over = requests < when;
        before_request(0, NULL);
        got = read_texts(dataset);
        assert_string_equal(got, is_over                        ? "1,x,y,4,"
                                 : g_str_has_prefix(got, "e,f") ? "e,f,g,h,"
                                                                : "e,x,y,h,");
        assert_true(write_texts(dataset, 0, 0, four) >= 0);
        assert_int_equal(segments(), 1);
        assert_texts(dataset, "1,2,3,4,");
        H5Dclose(dataset);
        assert_true(H5Ldelete(file, "rewritten", H5P_DEFAULT) >= 0);
    }
}

/* ---- extents ----------------------------------------------------------------------- */

static hid_t make_numbers(const char *name, hsize_t count, hid_t dcpl)
{
    hsize_t max = H5S_UNLIMITED, chunk = 4;
    hid_t space = H5Screate_simple(1, &count, &max), dataset;
    int fill = -1;

    CHECK(H5Pset_chunk(dcpl, 1, &chunk) >= 0);
    CHECK(H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill) >= 0);
    dataset =
        H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    CHECK(dataset >= 0);
    H5Sclose(space);
    return dataset;
}

static hsize_t extent_of(hid_t dataset)
{
    hid_t space = H5Dget_space(dataset);
    hssize_t count = H5Sget_select_npoints(space);

    H5Sclose(space);
    return (hsize_t)count;
}

static void assert_numbers(hid_t dataset, hsize_t first, hsize_t last, int want)
{
    int values[16];

    assert_true(extent_of(dataset) <= 16 && last < extent_of(dataset));
    assert_true(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >=
                0);
    for (hsize_t i = first; i <= last; i++) {
        assert_int_equal(values[i], want);
    }
}

static void set_extent(hid_t dataset, hsize_t dim)
{
    CHECK(H5Dset_extent(dataset, &dim) >= 0);
}

static void grow_numbers(void)
{
    hid_t dataset = open_of("numbers");
    int values[8];

    for (int i = 0; i < 8; i++) {
        values[i] = 77;
    }
    set_extent(dataset, 8);
    CHECK(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(dataset);
}

/* What others have written there stays. */
static void a_dataset_grows_from_what_it_is(void **state)
{
    (void)state;
    for (int early = 0; early < 2; early++) {
        hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), dataset;

        if (early) {
            H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
        }
        dataset = make_numbers("numbers", 4, dcpl);
        other("grow_numbers");
        assert_int_equal(extent_of(dataset), 4);
        set_extent(dataset, 12);
        assert_numbers(dataset, 0, 7, 77);
        assert_numbers(dataset, 8, 11, -1);
        H5Dclose(dataset);
        assert_true(H5Ldelete(file, "numbers", H5P_DEFAULT) >= 0);
        H5Pclose(dcpl);
    }
}

static void come_and_grow(void)
{
    other("grow_numbers");
}

/* Early allocation after the other one has written there. */
static void early_chunks_of_others_stay(void **state)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), dataset;

    (void)state;
    H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
    dataset = make_numbers("numbers", 4, dcpl);
    before_request(3, come_and_grow); /* extent read, extent written */
    set_extent(dataset, 8);
    assert_true(requests >= 3);
    before_request(0, NULL);
    assert_numbers(dataset, 0, 7, 77);
    H5Dclose(dataset);
    assert_true(H5Ldelete(file, "numbers", H5P_DEFAULT) >= 0);
    H5Pclose(dcpl);
}

/* Also what this process does not know of. */
static void a_dataset_shrinks_from_what_it_is(void **state)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), dataset;

    (void)state;
    dataset = make_numbers("numbers", 4, dcpl);
    other("grow_numbers");
    set_extent(dataset, 5);
    set_extent(dataset, 8);
    assert_numbers(dataset, 0, 4, 77);
    assert_numbers(dataset, 5, 7, -1);
    H5Dclose(dataset);
    dataset = open_of("numbers");
    set_extent(dataset, 4);
    other("grow_numbers");
    set_extent(dataset, 4); /* no change, as this process knows it */
    assert_true(H5Drefresh(dataset) >= 0);
    assert_int_equal(extent_of(dataset), 4);
    H5Dclose(dataset);
    assert_true(H5Ldelete(file, "numbers", H5P_DEFAULT) >= 0);
    H5Pclose(dcpl);
}

/* Whatever of it this process has open besides. */
static void an_extent_is_read_when_it_is_opened(void **state)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), scalar = H5Screate(H5S_SCALAR), dataset,
          attribute;

    (void)state;
    dataset = make_numbers("numbers", 4, dcpl);
    attribute =
        H5Acreate2(dataset, "a", H5T_NATIVE_INT, scalar, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(attribute >= 0);
    H5Dclose(dataset);
    other("grow_numbers");
    dataset = open_of("numbers");
    assert_int_equal(extent_of(dataset), 8);
    H5Dclose(dataset);
    H5Aclose(attribute);
    assert_true(H5Ldelete(file, "numbers", H5P_DEFAULT) >= 0);
    H5Sclose(scalar);
    H5Pclose(dcpl);
}

/* Not one whose elements have no numbers of 64 bits. */
static void extents_that_are_too_large_are_refused(void **state)
{
    hsize_t dims[3] = {1, 1, 1}, large[3] = {1u << 31, 1u << 31, 1u << 31},
            max[3] = {H5S_UNLIMITED, H5S_UNLIMITED, H5S_UNLIMITED}, chunk[3] = {1, 1, 1};
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(3, dims, max),
          dataset;

    (void)state;
    H5Pset_chunk(dcpl, 3, chunk);
    dataset =
        H5Dcreate2(file, "large", H5T_NATIVE_CHAR, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5E_BEGIN_TRY
    {
        assert_true(H5Dset_extent(dataset, large) < 0);
    }
    H5E_END_TRY
    assert_int_equal(extent_of(dataset), 1);
    H5Dclose(dataset);
    assert_true(H5Ldelete(file, "large", H5P_DEFAULT) >= 0);
    H5Sclose(space);
    H5Pclose(dcpl);
}

/* ---- the fill value ---------------------------------------------------------------- */

#define MANY 2500000

static void be_killed(void)
{
    raise(SIGKILL);
}

/* In windows, as the types are different: killed after the first one. */
static void write_some_numbers(void)
{
    g_autofree double *values = g_new0(double, MANY);
    hid_t dataset = open_of("many");

    before_request(3, be_killed);
    H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    _exit(100);
}

/* What was never written has it, also where what is behind it has been written. */
static void what_was_never_written_has_the_fill_value(void **state)
{
    g_autofree int *values = g_new0(int, MANY);
    hsize_t dim = MANY, one = 1, at = MANY - 1;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &dim, NULL),
          memory = H5Screate_simple(1, &one, NULL), dataset;
    int fill = -1, value = 5, status, written = 0;

    (void)state;
    H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill);
    dataset =
        H5Dcreate2(file, "many", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    status = run_other("write_some_numbers");
    assert_true(WIFSIGNALED(status));
    H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &one, NULL);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, &value) >=
                0);
    assert_true(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >=
                0);
    while (written < MANY && values[written] == 0) {
        written++;
    }
    assert_true(written > 0 && written < MANY - 1);
    for (int i = written; i < MANY - 1; i++) {
        assert_int_equal(values[i], -1);
    }
    assert_int_equal(values[MANY - 1], 5);
    H5Dclose(dataset);
    assert_true(H5Ldelete(file, "many", H5P_DEFAULT) >= 0);
    H5Sclose(memory);
    H5Sclose(space);
    H5Pclose(dcpl);
}

static void write_an_element(void)
{
    hsize_t one = 1, at = 1;
    hid_t dataset = open_of("both"), space = H5Dget_space(dataset),
          memory = H5Screate_simple(1, &one, NULL);
    int value = 7;

    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &one, NULL) >= 0);
    CHECK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, &value) >= 0);
    H5Sclose(memory);
    H5Sclose(space);
    H5Dclose(dataset);
}

static void come_and_write(void)
{
    other("write_an_element");
}

/* Both are the first to write a part: neither fills over what the other one wrote. */
static void two_are_the_first_to_write(void **state)
{
    hsize_t dim = 4, one = 1, at = 2;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &dim, NULL),
          memory = H5Screate_simple(1, &one, NULL), dataset;
    int fill = -1, value = 5, values[4] = {0}, want[4] = {-1, 7, 5, -1};

    (void)state;
    H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &one, NULL);
    for (unsigned when = 1; when < 4; when++) {
        dataset = H5Dcreate2(file, "both", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl,
                             H5P_DEFAULT);
        assert_true(dataset >= 0);
        before_request(when, come_and_write);
        assert_true(
            H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, &value) >= 0);
        assert_true(requests >= when);
        before_request(0, NULL);
        assert_true(
            H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
        assert_memory_equal(values, want, sizeof want);
        H5Dclose(dataset);
        assert_true(H5Ldelete(file, "both", H5P_DEFAULT) >= 0);
    }
    H5Sclose(memory);
    H5Sclose(space);
    H5Pclose(dcpl);
}

/* ---- chunks as they are stored ----------------------------------------------------- */

static void write_raw(hid_t dataset, uint32_t mask, size_t len, uint8_t byte)
{
    hsize_t offset = 0;
    uint8_t raw[100];

    memset(raw, byte, sizeof raw);
    CHECK(H5Dwrite_chunk(dataset, H5P_DEFAULT, mask, &offset, len, raw) >= 0);
}

static void write_shorter_chunk(void)
{
    hid_t dataset = open_of("raw");

    write_raw(dataset, 1, 20, 2);
    H5Dclose(dataset);
}

static void write_longer_chunk(void)
{
    hid_t dataset = open_of("raw");

    write_raw(dataset, 1, 60, 3);
    H5Dclose(dataset);
}

static void come_and_write_shorter(void)
{
    other("write_shorter_chunk");
}

static void come_and_write_longer(void)
{
    other("write_longer_chunk");
}

/* Between its length and its bytes: all of it is that of the other one. */
static void a_chunk_is_replaced_while_it_is_read(void **state)
{
    hsize_t dim = 40, offset = 0;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &dim, NULL),
          dataset;

    (void)state;
    H5Pset_chunk(dcpl, 1, &dim);
    H5Pset_deflate(dcpl, 1);
    dataset =
        H5Dcreate2(file, "raw", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    for (int kind = 0; kind < 2; kind++) {
        uint8_t raw[100] = {0};
        uint32_t mask = 7;
        size_t len = kind == 0 ? 20 : 60;

        write_raw(dataset, 0, 40, 1);
        before_request(2, kind == 0 ? come_and_write_shorter : come_and_write_longer);
        assert_true(H5Dread_chunk(dataset, H5P_DEFAULT, &offset, &mask, raw) >= 0);
        assert_true(requests >= 2);
        before_request(0, NULL);
        assert_int_equal(mask, 1);
        for (size_t i = 0; i < sizeof raw; i++) {
            assert_int_equal(raw[i], i < len ? 2 + kind : 0);
        }
    }
    H5Dclose(dataset);
    assert_true(H5Ldelete(file, "raw", H5P_DEFAULT) >= 0);
    H5Sclose(space);
    H5Pclose(dcpl);
}

/* ---- what goes and what comes ------------------------------------------------------ */

static const int thirty[3] = {30, 31, 32};

/* The object may have gone, and then it does not come back. */
static void link_by_token(void)
{
    H5O_token_t token;
    hid_t object;

    CHECK(H5Otoken_from_str(file, getenv("VARJFS_TEST_TOKEN"), &token) >= 0);
    H5E_BEGIN_TRY
    {
        object = H5Oopen_by_token(file, token);
        H5Lcreate_hard(object, ".", file, "again", H5P_DEFAULT, H5P_DEFAULT);
        H5Oclose(object);
    }
    H5E_END_TRY
}

static void come_and_link(void)
{
    other("link_by_token");
}

/* One takes the last link away, the other one has made a new one at each moment of that:
 * what it leads to is there, with all that it has. */
static void a_link_leads_to_what_is_there(void **state)
{
    hsize_t dim = 3;
    hid_t space = H5Screate_simple(1, &dim, NULL), dataset;
    bool is_over = false;
    unsigned links = 0;

    (void)state;
    for (unsigned when = 1; !is_over; when++) {
        int got[3] = {0};
        H5O_info2_t info;
        char *text;

        dataset = H5Dcreate2(file, "old", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT,
                             H5P_DEFAULT);
        assert_true(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                             thirty) >= 0);
        assert_true(H5Oget_info3(dataset, &info, H5O_INFO_BASIC) >= 0);
        assert_true(H5Otoken_to_str(dataset, &info.token, &text) >= 0);
        setenv("VARJFS_TEST_TOKEN", text, 1);
        H5free_memory(text);
        H5Dclose(dataset);
        before_request(when, come_and_link);
        assert_true(H5Ldelete(file, "old", H5P_DEFAULT) >= 0);
        is_over = requests < when;
        before_request(0, NULL);
        if (H5Lexists(file, "again", H5P_DEFAULT) > 0) {
            dataset = open_of("again");
            assert_true(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                                got) >= 0);
            assert_memory_equal(got, thirty, sizeof got);
            H5Dclose(dataset);
            assert_true(H5Ldelete(file, "again", H5P_DEFAULT) >= 0);
            links++;
        }
    }
    assert_true(links > 1);
    H5Sclose(space);
}

/* Between its elements and what they refer to. */
static void texts_are_replaced_while_they_are_copied(void **state)
{
    bool is_over = false;

    (void)state;
    for (unsigned when = 1; !is_over; when++) {
        hid_t dataset = make_texts("rewritten", 4);
        g_autofree char *got = NULL;

        assert_true(write_texts(dataset, 0, 0, four) >= 0);
        H5Dclose(dataset);
        before_request(when, come_and_rewrite);
        assert_true(H5Ocopy(file, "rewritten", file, "copy", H5P_DEFAULT, H5P_DEFAULT) >=
                    0);
        is_over = requests < when;
        before_request(0, NULL);
        dataset = open_of("copy");
        got = read_texts(dataset);
        if (strcmp(got, "1,2,3,4,") != 0) {
            assert_string_equal(got, "e,f,g,h,");
        }
        H5Dclose(dataset);
        assert_true(H5Ldelete(file, "rewritten", H5P_DEFAULT) >= 0);
        assert_true(H5Ldelete(file, "copy", H5P_DEFAULT) >= 0);
    }
    assert_int_equal(segments(), 0);
}

#define LONG_BYTES 40000

static void write_long(int value)
{
    static char bytes[LONG_BYTES];
    hid_t a = H5Aopen(file, "long", H5P_DEFAULT);

    memset(bytes, value, sizeof bytes);
    CHECK(H5Awrite(a, H5T_NATIVE_CHAR, bytes) >= 0);
    H5Aclose(a);
}

static void rewrite_long(void)
{
    write_long(2);
}

static void come_and_rewrite_long(void)
{
    other("rewrite_long");
}

/* Between its key and the object that has its data. */
static void a_long_attribute_is_replaced_while_it_is_copied(void **state)
{
    hsize_t dim = LONG_BYTES;
    hid_t space = H5Screate_simple(1, &dim, NULL);
    bool is_over = false;

    (void)state;
    H5Aclose(H5Acreate2(file, "long", H5T_NATIVE_CHAR, space, H5P_DEFAULT, H5P_DEFAULT));
    for (unsigned when = 1; !is_over; when++) {
        static char bytes[LONG_BYTES];
        hid_t a;

        write_long(1);
        before_request(when, come_and_rewrite_long);
        assert_true(H5Ocopy(file, "/", file, "copy", H5P_DEFAULT, H5P_DEFAULT) >= 0);
        is_over = requests < when;
        before_request(0, NULL);
        a = H5Aopen_by_name(file, "copy", "long", H5P_DEFAULT, H5P_DEFAULT);
        assert_true(H5Aread(a, H5T_NATIVE_CHAR, bytes) >= 0);
        assert_true(bytes[0] == 1 || bytes[0] == 2);
        assert_true(bytes[LONG_BYTES - 1] == bytes[0]);
        H5Aclose(a);
        assert_true(H5Ldelete(file, "copy", H5P_DEFAULT) >= 0);
    }
    assert_true(H5Adelete(file, "long") >= 0);
    H5Sclose(space);
}

/* ---- the other one's work ---------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(void);
} work[] = {
    {"grow_texts", grow_texts},
    {"rewrite_texts", rewrite_texts},
    {"write_named", write_named},
    {"write_numbers", write_numbers},
    {"grow_numbers", grow_numbers},
    {"write_some_numbers", write_some_numbers},
    {"write_an_element", write_an_element},
    {"write_shorter_chunk", write_shorter_chunk},
    {"write_longer_chunk", write_longer_chunk},
    {"link_by_token", link_by_token},
    {"rewrite_long", rewrite_long},
};

static int be_other(const char *name)
{
    file = H5Fopen("rivals.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    CHECK(file >= 0);
    for (size_t i = 0; i < G_N_ELEMENTS(work); i++) {
        if (strcmp(work[i].name, name) == 0) {
            work[i].run();
            CHECK(H5Fclose(file) >= 0);
            return H5close() < 0;
        }
    }
    return 101;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(members_keep_their_texts),
    cmocka_unit_test(a_write_that_failed_keeps_no_texts),
    cmocka_unit_test(kept_texts_stay_beside_a_write_of_all),
    cmocka_unit_test(texts_of_a_larger_extent_stay),
    cmocka_unit_test(texts_are_replaced_while_they_are_read),
    cmocka_unit_test(texts_are_replaced_while_they_are_written),
    cmocka_unit_test(a_dataset_grows_from_what_it_is),
    cmocka_unit_test(early_chunks_of_others_stay),
    cmocka_unit_test(a_dataset_shrinks_from_what_it_is),
    cmocka_unit_test(an_extent_is_read_when_it_is_opened),
    cmocka_unit_test(extents_that_are_too_large_are_refused),
    cmocka_unit_test(what_was_never_written_has_the_fill_value),
    cmocka_unit_test(two_are_the_first_to_write),
    cmocka_unit_test(a_chunk_is_replaced_while_it_is_read),
    cmocka_unit_test(a_link_leads_to_what_is_there),
    cmocka_unit_test(texts_are_replaced_while_they_are_copied),
    cmocka_unit_test(a_long_attribute_is_replaced_while_it_is_copied),
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
    if (argc == 3 && strcmp(argv[1], "--other") == 0) {
        return be_other(argv[2]);
    }
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    return cmocka_run_group_tests(tests, start, stop);
}
