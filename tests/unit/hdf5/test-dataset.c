/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-dataset.c - datasets through the connector and varjfsd of this build, beside a
 * plain array
 *
 * Datasets of random type, shape, layout, fill value and filters are written, read, grown
 * and shrunk by random selections.  VARJFS_TEST_SEED and VARJFS_TEST_ROUNDS change the
 * walk; the seed is printed.
 */
#include "volume.h"

#include <malloc.h>
#include <spawn.h>

#include <H5VLconnector.h>
#include <hdf5.h>

#include <varjfs/hdf5.h>
#include <varjfs/varjfs.h>

#include "requests.h"

#define RANK_MAX 3
#define DIM_MAX 14
#define CELLS (DIM_MAX * DIM_MAX * DIM_MAX)

static char *directory;
static hid_t file;

static uint64_t state_of_random;

static unsigned pick(unsigned below)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state_of_random >> 33) % below;
}

/* ---- requests ---------------------------------------------------------------------- */

static unsigned requests;
static size_t memory_most; /* that was allocated at one of them */

/* Of a sanitizer's own malloc: always 0. */
static size_t memory_now(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

static void before_each_request(void)
{
    requests++;
    memory_most = MAX(memory_most, memory_now());
}

/* ---- the file ---------------------------------------------------------------------- */

static int start(void **state)
{
    (void)state;
    directory = volume_start();
    file = H5Fcreate("model.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
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

static void reopen_file(void)
{
    assert_true(H5Fclose(file) >= 0);
    file = H5Fopen("model.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(file >= 0);
}

/* ---- the model --------------------------------------------------------------------- */

typedef struct Model {
    hid_t dataset, mem_type;
    char name[32];
    int rank;
    hsize_t dims[RANK_MAX], chunk[RANK_MAX];
    bool is_chunked, is_extendible;
    int fill;
    int cells[CELLS]; /* element x, y, z at (x * DIM_MAX + y) * DIM_MAX + z */
} Model;

static size_t cell(const Model *m, const hsize_t *at)
{
    size_t out = 0;

    for (int i = 0; i < RANK_MAX; i++) {
        out = out * DIM_MAX + (i < m->rank ? (size_t)at[i] : 0);
    }
    return out;
}

static hid_t stored_type(void)
{
    static const char *const names[] = {"a", "b"};
    hid_t type;

    switch (pick(6)) {
    case 0:
        return H5Tcopy(H5T_NATIVE_INT);
    case 1:
        return H5Tcopy(H5T_STD_I16BE);
    case 2:
        return H5Tcopy(H5T_STD_I8LE);
    case 3:
        return H5Tcopy(H5T_IEEE_F64LE);
    case 4:
        return H5Tcopy(H5T_STD_I64BE);
    default:
        type = H5Tcreate(H5T_COMPOUND, 12);
        H5Tinsert(type, names[0], 0, H5T_STD_I64LE);
        H5Tinsert(type, names[1], 8, H5T_STD_I32BE);
        return type;
    }
}

static hid_t properties(Model *m)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);

    if (m->is_chunked) {
        H5Pset_chunk(dcpl, m->rank, m->chunk);
        if (pick(2) == 0) {
            H5Pset_shuffle(dcpl);
            H5Pset_deflate(dcpl, 3);
        }
        if (pick(4) == 0) {
            H5Pset_fletcher32(dcpl);
        }
        if (pick(4) == 0) {
            H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
        }
        if (pick(4) == 0) {
            H5Pset_chunk_opts(dcpl, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
        }
    } else if (pick(4) == 0) {
        H5Pset_layout(dcpl, H5D_COMPACT);
    }
    if (pick(5) == 0) {
        varjfs_hdf5_set_transform(dcpl, "none");
    }
    return dcpl;
}

static void create(Model *m, unsigned number)
{
    hid_t type, space, dcpl;
    hsize_t max[RANK_MAX];
    bool is_compound;

    memset(m, 0, sizeof *m);
    snprintf(m->name, sizeof m->name, "d%u", number);
    m->rank = 1 + (int)pick(RANK_MAX);
    m->is_chunked = pick(3) != 0;
    m->is_extendible = m->is_chunked && pick(2) == 0;
    for (int i = 0; i < m->rank; i++) {
        m->dims[i] = 1 + pick(DIM_MAX);
        max[i] = m->is_extendible ? H5S_UNLIMITED : m->dims[i];
        m->chunk[i] = 1 + pick((unsigned)m->dims[i]);
    }
    type = stored_type();
    is_compound = H5Tget_class(type) == H5T_COMPOUND;
    /* Of a compound only member b is looked at: a has to stay what it is. */
    m->mem_type = is_compound ? H5Tcreate(H5T_COMPOUND, sizeof(int)) : H5T_NATIVE_INT;
    if (is_compound) {
        H5Tinsert(m->mem_type, "b", 0, H5T_NATIVE_INT);
    }
    dcpl = properties(m);
    if (pick(2) == 0) {
        m->fill = (int)pick(200) - 100;
        H5Pset_fill_value(dcpl, m->mem_type, &m->fill);
    }
    for (size_t i = 0; i < CELLS; i++) {
        m->cells[i] = m->fill;
    }
    space = H5Screate_simple(m->rank, m->dims, max);
    m->dataset = H5Dcreate2(file, m->name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(m->dataset >= 0);
    H5Sclose(space);
    H5Pclose(dcpl);
    H5Tclose(type);
}

static void destroy(Model *m)
{
    assert_true(H5Dclose(m->dataset) >= 0);
    if (H5Tget_class(m->mem_type) == H5T_COMPOUND) {
        H5Tclose(m->mem_type);
    }
    if (pick(2) == 0) {
        assert_true(H5Ldelete(file, m->name, H5P_DEFAULT) >= 0);
    }
}

/* ---- selections -------------------------------------------------------------------- */

static void slab(const Model *m, hid_t space, H5S_seloper_t op)
{
    hsize_t start[RANK_MAX], stride[RANK_MAX], count[RANK_MAX], block[RANK_MAX];

    for (int i = 0; i < m->rank; i++) {
        hsize_t left;

        start[i] = pick((unsigned)m->dims[i]);
        left = m->dims[i] - start[i];
        block[i] = 1 + pick((unsigned)left);
        stride[i] = block[i] + pick(3);
        count[i] = 1 + pick((unsigned)((left - block[i]) / stride[i] + 1));
    }
    assert_true(H5Sselect_hyperslab(space, op, start, stride, count, block) >= 0);
}

static void points(const Model *m, hid_t space)
{
    size_t count = 1 + pick(20);
    hsize_t at[20][RANK_MAX], flat[20 * RANK_MAX];

    for (size_t p = 0; p < count; p++) {
        for (int i = 0; i < m->rank; i++) {
            at[p][i] = pick((unsigned)m->dims[i]);
            flat[p * (size_t)m->rank + (size_t)i] = at[p][i];
        }
    }
    assert_true(H5Sselect_elements(space, H5S_SELECT_SET, count, flat) >= 0);
}

/* HDF5 1.14.5 itself walks some unions of two hyperslabs wrongly (H5Dfill crashes with
 * them): as other elements than it counts. */
static bool is_sound(hid_t space)
{
    hid_t iterator = H5Ssel_iter_create(space, 1, 0);
    hsize_t offsets[64], sum = 0;
    size_t lengths[64], n, elements;

    while (H5Ssel_iter_get_seq_list(iterator, 64, SIZE_MAX, &n, &elements, offsets,
                                    lengths) >= 0 &&
           n > 0) {
        for (size_t i = 0; i < n; i++) {
            sum += lengths[i];
        }
    }
    H5Ssel_iter_close(iterator);
    return sum == (hsize_t)H5Sget_select_npoints(space);
}

static hid_t selection(const Model *m)
{
    hid_t space = H5Dget_space(m->dataset);

    assert_true(space >= 0);
    switch (pick(5)) {
    case 0:
        break;
    case 1:
        points(m, space);
        break;
    case 2:
        do {
            slab(m, space, H5S_SELECT_SET);
            slab(m, space, H5S_SELECT_OR);
        } while (!is_sound(space));
        break;
    default:
        slab(m, space, H5S_SELECT_SET);
    }
    return space;
}

/* Memory of every third element, or of one after the other. */
static hid_t memory(hsize_t count, hsize_t stride)
{
    hsize_t all = count * stride, start = 0;
    hid_t space = H5Screate_simple(1, &all, NULL);

    if (stride > 1) {
        assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, &stride, &count,
                                        NULL) >= 0);
    }
    return space;
}

/* Calls for each selected element, in the order of the selection. */
static void apply(Model *m, hid_t space, int *values, hsize_t stride, bool is_write)
{
    hid_t iterator = H5Ssel_iter_create(space, 1, 0);
    hsize_t offsets[64], at[RANK_MAX];
    size_t lengths[64], n, elements, next = 0;

    while (H5Ssel_iter_get_seq_list(iterator, 64, SIZE_MAX, &n, &elements, offsets,
                                    lengths) >= 0 &&
           n > 0) {
        for (size_t s = 0; s < n; s++) {
            for (size_t e = 0; e < lengths[s]; e++) {
                hsize_t rest = offsets[s] + e;

                for (int i = m->rank - 1; i >= 0; i--) {
                    at[i] = rest % m->dims[i];
                    rest /= m->dims[i];
                }
                if (is_write) {
                    m->cells[cell(m, at)] = values[next];
                } else if (m->cells[cell(m, at)] != values[next]) {
                    fail_msg("%s: element %" PRIu64 " is %d, not %d", m->name,
                             (uint64_t)(offsets[s] + e), values[next],
                             m->cells[cell(m, at)]);
                }
                next += stride;
            }
        }
    }
    H5Ssel_iter_close(iterator);
}

static void transfer(Model *m, bool is_write)
{
    hid_t space = selection(m), mem;
    hsize_t count = (hsize_t)H5Sget_select_npoints(space), stride = pick(3) == 0 ? 3 : 1;
    g_autofree int *values = g_new0(int, count *stride);
    herr_t rc;

    mem = memory(count, stride);
    for (hsize_t i = 0; i < count * stride && is_write; i++) {
        values[i] = (int)pick(200) - 100;
    }
    rc = is_write ? H5Dwrite(m->dataset, m->mem_type, mem, space, H5P_DEFAULT, values)
                  : H5Dread(m->dataset, m->mem_type, mem, space, H5P_DEFAULT, values);
    assert_true(rc >= 0);
    apply(m, space, values, stride, is_write);
    H5Sclose(mem);
    H5Sclose(space);
}

static void resize(Model *m)
{
    hsize_t dims[RANK_MAX], at[RANK_MAX];

    for (int i = 0; i < m->rank; i++) {
        dims[i] = 1 + pick(DIM_MAX);
    }
    assert_true(H5Dset_extent(m->dataset, dims) >= 0);
    for (size_t c = 0; c < CELLS; c++) {
        size_t rest = c;
        bool is_kept = true;

        for (int i = RANK_MAX - 1; i >= 0; i--) {
            at[i] = rest % DIM_MAX;
            rest /= DIM_MAX;
            is_kept = is_kept && (i >= m->rank || at[i] < dims[i]);
        }
        if (!is_kept) {
            m->cells[c] = m->fill;
        }
    }
    memcpy(m->dims, dims, sizeof dims);
}

static void reopen(Model *m)
{
    assert_true(H5Dclose(m->dataset) >= 0);
    if (pick(4) == 0) {
        reopen_file();
    }
    m->dataset = H5Dopen2(file, m->name, H5P_DEFAULT);
    assert_true(m->dataset >= 0);
}

static unsigned setting(const char *name, unsigned otherwise)
{
    const char *value = getenv(name);

    return value == NULL ? otherwise : (unsigned)strtoul(value, NULL, 10);
}

static void test_model(void **state)
{
    unsigned seed = setting("VARJFS_TEST_SEED", (unsigned)time(NULL));
    unsigned rounds = setting("VARJFS_TEST_ROUNDS", 40);
    g_autofree Model *m = g_new0(Model, 1);

    (void)state;
    printf("# seed %u\n", seed);
    state_of_random = seed;
    for (unsigned r = 0; r < rounds; r++) {
        unsigned steps = 3 + pick(20);

        create(m, r);
        for (unsigned s = 0; s < steps; s++) {
            switch (pick(8)) {
            case 0:
                if (m->is_extendible) {
                    resize(m);
                }
                break;
            case 1:
                reopen(m);
                break;
            case 2:
            case 3:
            case 4:
                transfer(m, true);
                break;
            default:
                transfer(m, false);
            }
        }
        destroy(m);
    }
}

/* ---- members of compounds ---------------------------------------------------------- */

typedef struct Pair {
    int64_t a;
    int b;
} Pair;

static void test_members(void **state)
{
    hid_t both = H5Tcreate(H5T_COMPOUND, sizeof(Pair)), one, space, dataset;
    Pair pairs[10], got[10];
    int b[10], only[10] = {0};
    hsize_t dim = 10;

    (void)state;
    H5Tinsert(both, "a", offsetof(Pair, a), H5T_NATIVE_INT64);
    H5Tinsert(both, "b", offsetof(Pair, b), H5T_NATIVE_INT);
    one = H5Tcreate(H5T_COMPOUND, sizeof(int));
    H5Tinsert(one, "b", 0, H5T_NATIVE_INT);
    memset(pairs, 0, sizeof pairs);
    memset(got, 0, sizeof got);
    for (int i = 0; i < 10; i++) {
        pairs[i].a = i * 1000;
        pairs[i].b = i;
        b[i] = -i;
    }
    space = H5Screate_simple(1, &dim, NULL);
    dataset =
        H5Dcreate2(file, "members", both, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(dataset >= 0);
    assert_true(H5Dwrite(dataset, both, H5S_ALL, H5S_ALL, H5P_DEFAULT, pairs) >= 0);
    assert_true(H5Dwrite(dataset, one, H5S_ALL, H5S_ALL, H5P_DEFAULT, b) >= 0);
    assert_true(H5Dread(dataset, both, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
    assert_true(H5Dread(dataset, one, H5S_ALL, H5S_ALL, H5P_DEFAULT, only) >= 0);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(got[i].a, i * 1000);
        assert_int_equal(got[i].b, -i);
        assert_int_equal(only[i], -i);
    }
    H5Dclose(dataset);
    H5Sclose(space);
    H5Tclose(one);
    H5Tclose(both);
}

/* ---- what is stored ---------------------------------------------------------------- */

/* A key of a file, or an object. */
typedef struct Stored {
    char space[VARJFS_NAMESPACE_MAX + 1];
    uint8_t name[VARJFS_NAME_MAX + 1];
    size_t name_len, len;
    uint8_t bytes[4096];
    bool is_key;
} Stored;

/* All of them in @space. */
static void list_stored(varjfs *v, const char *space, bool is_key, GArray *out)
{
    struct varjfs_entry entry = {.size = sizeof entry};
    varjfs_iterator *i;

    assert_int_equal(is_key ? varjfs_kv_iterate(v, space, NULL, 0, &i)
                            : varjfs_object_iterate(v, space, NULL, &i),
                     0);
    while (varjfs_iterator_next(i, &entry) > 0) {
        Stored s = {.is_key = is_key, .name_len = entry.name_len};

        g_strlcpy(s.space, space, sizeof s.space);
        memcpy(s.name, entry.name, entry.name_len);
        g_array_append_val(out, s);
    }
    varjfs_iterator_free(i);
}

/* Of all files. */
static GArray *all_stored(varjfs *v)
{
    GArray *all = g_array_new(FALSE, FALSE, sizeof(Stored));
    struct varjfs_entry entry = {.size = sizeof entry};
    varjfs_iterator *spaces;

    assert_int_equal(varjfs_kv_iterate(v, NULL, NULL, 0, &spaces), 0);
    while (varjfs_iterator_next(spaces, &entry) > 0) {
        g_autofree char *space = g_strndup(entry.name, entry.name_len);

        if (strcmp(space, "hdf5") != 0) {
            list_stored(v, space, true, all);
            list_stored(v, space, false, all);
        }
    }
    varjfs_iterator_free(spaces);
    return all;
}

/* Segments of variable-length data. */
static unsigned segments(void)
{
    unsigned count = 0;
    GArray *all;
    varjfs *v;

    assert_int_equal(varjfs_open(getenv("VARJFS_SOURCE"), NULL, &v), 0);
    all = all_stored(v);
    for (unsigned i = 0; i < all->len; i++) {
        const Stored *s = &g_array_index(all, Stored, i);

        count += !s->is_key && strstr((const char *)s->name, ".v.") != NULL;
    }
    g_array_free(all, TRUE);
    varjfs_close(v);
    return count;
}

/* ---- variable length --------------------------------------------------------------- */

static hid_t text_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    assert_true(H5Tset_size(type, H5T_VARIABLE) >= 0);
    return type;
}

static void read_texts(hid_t dataset, hid_t type, hid_t space, const char *const *want)
{
    char *got[4] = {0};

    assert_true(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
    for (size_t i = 0; i < 4; i++) {
        if (want[i] == NULL) {
            assert_null(got[i]);
        } else {
            assert_non_null(got[i]);
            assert_string_equal(got[i], want[i]);
        }
    }
    assert_true(H5Treclaim(type, space, H5P_DEFAULT, got) >= 0);
}

/* Also with a fill value, with chunks and filters, after a partial write, and after the
 * file was opened again. */
static void test_texts(void **state)
{
    static const char *const all[] = {"one", "", "three and more", "4"};
    static const char *const partly[] = {"fill", "fill", "x", "y"};
    const char *fill = "fill";
    unsigned before;
    hid_t type = text_type(), dcpl, dataset, part, mem;
    hsize_t dim = 4, chunk = 3, start = 2, count = 2;
    hid_t space = H5Screate_simple(1, &dim, NULL);

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        g_autofree char *name = g_strdup_printf("texts%d", kind);

        dcpl = H5Pcreate(H5P_DATASET_CREATE);
        assert_true(H5Pset_fill_value(dcpl, type, &fill) >= 0);
        if (kind > 0) {
            H5Pset_chunk(dcpl, 1, &chunk);
        }
        if (kind > 1) {
            H5Pset_deflate(dcpl, 1);
        }
        dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
        assert_true(dataset >= 0);
        part = H5Screate_simple(1, &dim, NULL);
        mem = H5Screate_simple(1, &count, NULL);
        H5Sselect_hyperslab(part, H5S_SELECT_SET, &start, NULL, &count, NULL);
        assert_true(H5Dwrite(dataset, type, mem, part, H5P_DEFAULT, partly + 2) >= 0);
        read_texts(dataset, type, space, partly);
        H5Dclose(dataset);
        reopen_file();
        dataset = H5Dopen2(file, name, H5P_DEFAULT);
        assert_true(dataset >= 0);
        read_texts(dataset, type, space, partly);
        before = segments();
        for (int again = 0; again < 3; again++) {
            assert_true(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0);
            read_texts(dataset, type, space, all);
            assert_int_equal(segments(), before); /* the one before has gone */
        }
        H5Dclose(dataset);
        H5Sclose(mem);
        H5Sclose(part);
        H5Pclose(dcpl);
    }
    H5Sclose(space);
    H5Tclose(type);
}

/* ---- long ones --------------------------------------------------------------------- */

static void test_long(void **state)
{
    static const hsize_t sizes[] = {1 << 20, 4 << 20, 16 << 20, 20 << 20};
    /* Of 1 MiB each, four at a time. */
    static const unsigned reads[] = {1, 4, 16, 20};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        g_autofree char *name = g_strdup_printf("long%zu", i);
        g_autofree uint8_t *bytes = g_malloc(sizes[i]), *got = g_malloc0(sizes[i]);
        hid_t space = H5Screate_simple(1, &sizes[i], NULL), dataset;
        hsize_t stored = 0;

        for (hsize_t b = 0; b < sizes[i]; b++) {
            bytes[b] = (uint8_t)(b * 7 + (b >> 12));
        }
        dataset = H5Dcreate2(file, name, H5T_NATIVE_UINT8, space, H5P_DEFAULT,
                             H5P_DEFAULT, H5P_DEFAULT);
        assert_true(dataset >= 0);
        assert_int_equal(H5Dget_storage_size(dataset), 0);
        requests = 0;
        assert_true(H5Dwrite(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                             bytes) >= 0);
        assert_int_equal(requests, 1);
        stored = H5Dget_storage_size(dataset);
        assert_int_equal(stored, sizes[i]);
        H5Dclose(dataset);
        dataset = H5Dopen2(file, name, H5P_DEFAULT);
        requests = 0;
        assert_true(
            H5Dread(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
        assert_int_equal(requests, reads[i]);
        assert_memory_equal(got, bytes, sizes[i]);
        H5Dclose(dataset);
        H5Sclose(space);
    }
}

/* So many since the last call. */
static void expect_requests(unsigned count)
{
    assert_int_equal(requests, count);
    requests = 0;
}

/* What programs do most often: dataset after dataset, each with an attribute. */
static void test_requests(void **state)
{
    hsize_t dim = 1 << 20, one = 1;
    hid_t space = H5Screate_simple(1, &dim, NULL),
          small = H5Screate_simple(1, &one, NULL), dataset, attribute;
    g_autofree uint8_t *bytes = g_malloc0(dim);
    int value = 5;

    (void)state;
    for (int i = 0; i < 3; i++) {
        g_autofree char *name = g_strdup_printf("counted %d", i);

        requests = 0;
        dataset = H5Dcreate2(file, name, H5T_NATIVE_UINT8, space, H5P_DEFAULT,
                             H5P_DEFAULT, H5P_DEFAULT);
        assert_true(dataset >= 0);
        expect_requests(1);
        assert_true(H5Dwrite(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                             bytes) >= 0);
        expect_requests(1);
        attribute =
            H5Acreate2(dataset, "a", H5T_NATIVE_INT, small, H5P_DEFAULT, H5P_DEFAULT);
        assert_true(H5Awrite(attribute, H5T_NATIVE_INT, &value) >= 0);
        expect_requests(3);
        H5Aclose(attribute);
        assert_true(H5Dclose(dataset) >= 0);
        expect_requests(0);
        dataset = H5Dopen2(file, name, H5P_DEFAULT);
        expect_requests(2);
        assert_true(H5Dread(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                            bytes) >= 0);
        expect_requests(1);
        attribute = H5Aopen(dataset, "a", H5P_DEFAULT);
        assert_true(H5Aread(attribute, H5T_NATIVE_INT, &value) >= 0);
        expect_requests(2);
        H5Aclose(attribute);
        H5Dclose(dataset);
        expect_requests(0);
    }
    H5Sclose(small);
    H5Sclose(space);
}

/* What is read besides, between elements, takes memory too: not more than others. */
static void test_gaps(void **state)
{
    hsize_t dim = 96 << 20, start = 0, stride = 4096, count = dim / stride, chunk = dim;
    hid_t space = H5Screate_simple(1, &dim, NULL), dataset,
          memory = H5Screate_simple(1, &count, NULL), dcpl;
    g_autofree uint8_t *bytes = g_malloc(count);
    size_t before;

    (void)state;
    H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, &stride, &count, NULL);
    for (int kind = 0; kind < 2; kind++) {
        g_autofree char *name = g_strdup_printf("gaps%d", kind);

        dcpl = H5Pcreate(H5P_DATASET_CREATE);
        if (kind == 1) {
            H5Pset_chunk(dcpl, 1, &chunk);
        }
        memset(bytes, 1, count);
        dataset = H5Dcreate2(file, name, H5T_NATIVE_UINT8, space, H5P_DEFAULT, dcpl,
                             H5P_DEFAULT);
        assert_true(dataset >= 0);
        memory_most = 0;
        before = memory_now();
        assert_true(
            H5Dread(dataset, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, bytes) >= 0);
        /* 32 MiB, and a little for the list of them. */
        assert_in_range(memory_most, before, before + (40 << 20));
        for (hsize_t i = 0; i < count; i++) {
            assert_int_equal(bytes[i], 0);
        }
        H5Dclose(dataset);
        H5Pclose(dcpl);
    }
    H5Sclose(memory);
    H5Sclose(space);
}

/* More chunks than one call keeps in memory: each is still filtered and written once,
 * also where elements are converted. */
static void test_many_chunks(void **state)
{
    hsize_t dims[2] = {3000, 3000}, chunk[2] = {1000, 1000};
    hid_t space = H5Screate_simple(2, dims, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    g_autofree int *values = g_new(int, dims[0] * dims[1]);
    g_autofree int64_t *wide = g_new(int64_t, dims[0] * dims[1]);
    hid_t dataset;

    (void)state;
    H5Pset_chunk(dcpl, 2, chunk);
    H5Pset_shuffle(dcpl);
    dataset =
        H5Dcreate2(file, "many", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    for (hsize_t i = 0; i < dims[0] * dims[1]; i++) {
        values[i] = (int)i;
        wide[i] = -(int64_t)i;
    }
    requests = 0;
    assert_true(
        H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    assert_int_equal(requests, 2); /* 36 MB, of which 32 MiB at once */
    memset(values, 0, dims[0] * dims[1] * sizeof *values);
    assert_true(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >=
                0);
    for (hsize_t i = 0; i < dims[0] * dims[1]; i++) {
        assert_true(values[i] == (int)i);
    }
    requests = 0;
    assert_true(
        H5Dwrite(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, wide) >= 0);
    assert_int_equal(requests, 9); /* each chunk by itself */
    memset(wide, 0, dims[0] * dims[1] * sizeof *wide);
    assert_true(H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, wide) >=
                0);
    for (hsize_t i = 0; i < dims[0] * dims[1]; i++) {
        assert_true(wide[i] == -(int64_t)i);
    }
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Sclose(space);
}

/* ---- transformations --------------------------------------------------------------- */

/* Objects that have it. */
static unsigned transformed(const char *prefix)
{
    unsigned count = 0;
    GArray *all;
    varjfs *v;

    assert_int_equal(varjfs_open(getenv("VARJFS_SOURCE"), NULL, &v), 0);
    all = all_stored(v);
    for (unsigned i = 0; i < all->len; i++) {
        const Stored *s = &g_array_index(all, Stored, i);
        struct varjfs_object_status status = {.size = sizeof status};
        varjfs_batch *b;

        if (!s->is_key) {
            assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
            varjfs_object_status(b, s->space, (const char *)s->name, &status, NULL);
            assert_int_equal(varjfs_batch_execute(b), 0);
            varjfs_batch_free(b);
            count += strncmp(status.transform, prefix, strlen(prefix)) == 0;
        }
    }
    g_array_free(all, TRUE);
    varjfs_close(v);
    return count;
}

static hid_t create_transformed(const char *name, const char *value, hid_t dcpl)
{
    hsize_t dim = 1000;
    hid_t space = H5Screate_simple(1, &dim, NULL), dataset;

    assert_true(varjfs_hdf5_set_transform(dcpl, value) >= 0);
    H5E_BEGIN_TRY
    {
        dataset =
            H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    }
    H5E_END_TRY
    H5Sclose(space);
    return dataset;
}

static void test_transform(void **state)
{
    static const char *const texts[] = {"a", "bc", "def", ""};
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), dataset, got, type, space;
    char value[VARJFS_HDF5_TRANSFORM_BYTES];
    hsize_t chunk = 300, four = 4;
    int values[1000] = {0}, back[1000];

    (void)state;
    assert_true(create_transformed("unknown", "no-such-one", dcpl) < 0);
    assert_true(H5Lexists(file, "unknown", H5P_DEFAULT) == 0);
    assert_int_equal(transformed("rle"), 0);
    for (int i = 0; i < 1000; i++) {
        values[i] = i % 7;
    }
    for (int kind = 0; kind < 2; kind++) {
        g_autofree char *name = g_strdup_printf("transformed%d", kind);

        if (kind == 1) {
            H5Pset_chunk(dcpl, 1, &chunk);
        }
        dataset = create_transformed(name, "rle", dcpl);
        assert_true(dataset >= 0);
        assert_true(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                             values) >= 0);
        H5Dclose(dataset);
        dataset = H5Dopen2(file, name, H5P_DEFAULT);
        got = H5Dget_create_plist(dataset);
        assert_true(varjfs_hdf5_get_transform(got, value) >= 0);
        assert_string_equal(value, "rle");
        assert_true(
            H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, back) >= 0);
        assert_memory_equal(back, values, sizeof values);
        H5Pclose(got);
        H5Dclose(dataset);
        assert_int_equal(transformed("rle"), kind == 0 ? 1 : 5);
    }
    assert_true(H5Ocopy(file, "transformed1", file, "copy", H5P_DEFAULT, H5P_DEFAULT) >=
                0);
    assert_int_equal(transformed("rle"), 9);
    H5Pclose(dcpl);
    /* Of variable-length data both the elements and what they refer to. */
    dcpl = H5Pcreate(H5P_DATASET_CREATE);
    type = text_type();
    space = H5Screate_simple(1, &four, NULL);
    assert_true(varjfs_hdf5_set_transform(dcpl, "rle") >= 0);
    dataset = H5Dcreate2(file, "transformed texts", type, space, H5P_DEFAULT, dcpl,
                         H5P_DEFAULT);
    assert_true(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts) >= 0);
    read_texts(dataset, type, space, texts);
    assert_int_equal(transformed("rle"), 11);
    assert_true(H5Ocopy(file, "transformed texts", file, "copied texts", H5P_DEFAULT,
                        H5P_DEFAULT) >= 0);
    assert_int_equal(transformed("rle"), 13);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Tclose(type);
    H5Pclose(dcpl);
}

/* ---- chunks as they are stored ----------------------------------------------------- */

static int add_bytes(const hsize_t *offset, unsigned mask, haddr_t address, hsize_t size,
                     void *data)
{
    assert_true(offset[0] % 10 == 0);
    assert_int_equal(mask, 0);
    assert_true(address == HADDR_UNDEF);
    *(hsize_t *)data += size;
    return H5_ITER_CONT;
}

static void test_chunks(void **state)
{
    hsize_t dim = 25, chunk = 10, count = 0, size = 0, offset = 20, sum = 0;
    hid_t space = H5Screate_simple(1, &dim, NULL), dcpl, from, to;
    int values[25], got[25] = {0};
    g_autofree uint8_t *raw = NULL;
    uint32_t mask = 1;

    (void)state;
    for (int i = 0; i < 25; i++) {
        values[i] = i / 5;
    }
    dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 1, &chunk);
    H5Pset_deflate(dcpl, 6);
    from =
        H5Dcreate2(file, "from", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    to = H5Dcreate2(file, "to", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(H5Dget_num_chunks(from, H5S_ALL, &count) >= 0);
    assert_int_equal(count, 0);
    assert_true(H5Dwrite(from, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >=
                0);
    assert_true(H5Dget_num_chunks(from, H5S_ALL, &count) >= 0);
    assert_int_equal(count, 3);
    assert_true(H5Dchunk_iter(from, H5P_DEFAULT, add_bytes, &sum) >= 0);
    assert_int_equal(sum, H5Dget_storage_size(from));
    for (offset = 0; offset < 30; offset += 10) {
        assert_true(H5Dget_chunk_storage_size(from, &offset, &size) >= 0);
        assert_true(size > 0 && size < 40);
        raw = g_realloc(raw, size);
        assert_true(H5Dread_chunk(from, H5P_DEFAULT, &offset, &mask, raw) >= 0);
        assert_int_equal(mask, 0);
        assert_true(H5Dwrite_chunk(to, H5P_DEFAULT, 0, &offset, size, raw) >= 0);
    }
    assert_true(H5Dread(to, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
    assert_memory_equal(got, values, sizeof got);
    H5Dclose(from);
    H5Dclose(to);
    H5Pclose(dcpl);
    H5Sclose(space);
}

/* Other objects are none, whatever their names begin with. */
static void test_names(void **state)
{
    static const char *const names[] = {".-1", ". 1", ".0x1", ".01", ".1.1", "."};
    hsize_t dim = 25, chunk = 10, count = 0;
    hid_t space = H5Screate_simple(1, &dim, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE),
          dataset;
    int values[25] = {0};
    g_autoptr(GHashTable) before =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    Stored chunk_0 = {0};
    varjfs_batch *b;
    GArray *all;
    varjfs *v;

    (void)state;
    H5Pset_chunk(dcpl, 1, &chunk);
    dataset =
        H5Dcreate2(file, "names", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_int_equal(varjfs_open(getenv("VARJFS_SOURCE"), NULL, &v), 0);
    all = all_stored(v);
    for (unsigned i = 0; i < all->len; i++) {
        const char *name = (const char *)g_array_index(all, Stored, i).name;

        g_hash_table_add(before, g_strdup(name));
    }
    g_array_free(all, TRUE);
    assert_true(
        H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    all = all_stored(v);
    for (unsigned i = 0; i < all->len; i++) {
        const Stored *s = &g_array_index(all, Stored, i);

        if (!s->is_key && g_str_has_suffix((const char *)s->name, ".c.0") &&
            !g_hash_table_contains(before, s->name)) {
            chunk_0 = *s;
        }
    }
    assert_true(chunk_0.name_len > 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *name = g_strdup_printf("%.*s%s", (int)chunk_0.name_len - 2,
                                                (const char *)chunk_0.name, names[i]);

        varjfs_object_write(b, chunk_0.space, name, "", 0, 0, VARJFS_CREATE, NULL);
        assert_int_equal(varjfs_batch_execute(b), 0);
    }
    varjfs_batch_free(b);
    assert_true(H5Dget_num_chunks(dataset, H5S_ALL, &count) >= 0);
    assert_int_equal(count, 3);
    g_array_free(all, TRUE);
    varjfs_close(v);
    H5Dclose(dataset);
    assert_true(H5Ldelete(file, "names", H5P_DEFAULT) >= 0);
    H5Pclose(dcpl);
    H5Sclose(space);
}

/* A number of bytes that is none of 64 bits is an error, not another number. */
static void test_storage(void **state)
{
    hsize_t dim = (UINT64_C(1) << 62) + (1 << 20), chunk = 1 << 20, size = 0;
    hid_t space = H5Screate_simple(1, &dim, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE),
          dataset;

    (void)state;
    H5Pset_chunk(dcpl, 1, &chunk);
    H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
    dataset = H5Dcreate2(file, "storage", H5T_NATIVE_INT64, space, H5P_DEFAULT, dcpl,
                         H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5E_BEGIN_TRY
    {
        size = H5Dget_storage_size(dataset);
    }
    H5E_END_TRY
    assert_int_equal(size, 0);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Sclose(space);
}

/* ---- several processes ------------------------------------------------------------- */

#define WRITERS 3
#define ROWS 60
#define COLUMNS 50

/* Another process: every third row. */
static int write_rows(unsigned first)
{
    hid_t shared = H5Fopen("model.h5", H5F_ACC_RDWR, H5P_DEFAULT), all, row, dataset;
    hsize_t start[2] = {first, 0}, count[2] = {1, COLUMNS};
    int values[COLUMNS];
    herr_t rc = 0;

    dataset = H5Dopen2(shared, "rows", H5P_DEFAULT);
    all = H5Dget_space(dataset);
    row = H5Screate_simple(2, count, NULL);
    for (; start[0] < ROWS && rc >= 0; start[0] += WRITERS) {
        for (int i = 0; i < COLUMNS; i++) {
            values[i] = (int)start[0] * 1000 + i;
        }
        H5Sselect_hyperslab(all, H5S_SELECT_SET, start, NULL, count, NULL);
        rc = H5Dwrite(dataset, H5T_NATIVE_INT, row, all, H5P_DEFAULT, values);
    }
    H5Sclose(row);
    H5Sclose(all);
    rc = H5Dclose(dataset) < 0 || rc < 0 ? -1 : 0;
    return H5Fclose(shared) < 0 || rc < 0 ? 1 : 0;
}

/* Their rows have parts of the same chunks, which a fill value is in from the start. */
static void test_processes(void **state)
{
    hsize_t dims[2] = {ROWS, COLUMNS}, chunk[2] = {8, 16};
    hid_t space = H5Screate_simple(2, dims, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    int fill = -1, status, values[ROWS][COLUMNS];
    pid_t writers[WRITERS];
    hid_t dataset;

    (void)state;
    H5Pset_chunk(dcpl, 2, chunk);
    H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill);
    H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
    dataset =
        H5Dcreate2(file, "rows", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    for (int w = 0; w < WRITERS; w++) {
        char number[16], program[] = "/proc/self/exe", word[] = "--write-rows";
        char *words[] = {program, word, number, NULL};

        snprintf(number, sizeof number, "%d", w);
        assert_int_equal(posix_spawn(&writers[w], program, NULL, NULL, words, environ),
                         0);
    }
    for (int w = 0; w < WRITERS; w++) {
        assert_int_equal(waitpid(writers[w], &status, 0), writers[w]);
        assert_int_equal(status, 0);
    }
    assert_true(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >=
                0);
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < COLUMNS; i++) {
            assert_int_equal(values[r][i], r * 1000 + i);
        }
    }
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Sclose(space);
}

/* ---- bytes that are not what was stored -------------------------------------------- */

#define VICTIMS 3

static void make_victims(void)
{
    hsize_t dim = 30, chunk = 7;
    hid_t space = H5Screate_simple(1, &dim, NULL), texts = text_type(), dcpl, pair;
    const char *words[30];
    Pair pairs[30] = {{0}};
    hid_t dataset[VICTIMS];

    pair = H5Tcreate(H5T_COMPOUND, sizeof(Pair));
    H5Tinsert(pair, "a", offsetof(Pair, a), H5T_NATIVE_INT64);
    H5Tinsert(pair, "b", offsetof(Pair, b), H5T_NATIVE_INT);
    for (int i = 0; i < 30; i++) {
        words[i] = i % 3 == 0 ? "a" : "bcd";
        pairs[i].b = i;
    }
    dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 1, &chunk);
    H5Pset_fill_value(dcpl, texts, words);
    dataset[0] =
        H5Dcreate2(file, "victim0", texts, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    H5Pclose(dcpl);
    dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 1, &chunk);
    H5Pset_deflate(dcpl, 1);
    dataset[1] = H5Dcreate2(file, "victim1", pair, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    dataset[2] =
        H5Dcreate2(file, "victim2", texts, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(dataset[0], texts, H5S_ALL, H5S_ALL, H5P_DEFAULT, words) >= 0);
    assert_true(H5Dwrite(dataset[1], pair, H5S_ALL, H5S_ALL, H5P_DEFAULT, pairs) >= 0);
    assert_true(H5Dwrite(dataset[2], texts, H5S_ALL, H5S_ALL, H5P_DEFAULT, words) >= 0);
    for (int i = 0; i < VICTIMS; i++) {
        H5Dclose(dataset[i]);
    }
    H5Pclose(dcpl);
    H5Tclose(pair);
    H5Tclose(texts);
    H5Sclose(space);
}

/* Everything that decodes what is stored; true: no error. */
static bool read_victim(int number)
{
    g_autofree char *name = g_strdup_printf("victim%d", number);
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space, type, dcpl;
    hssize_t count;
    bool is_read = false;

    if (dataset < 0) {
        return false;
    }
    space = H5Dget_space(dataset);
    type = H5Dget_type(dataset);
    dcpl = H5Dget_create_plist(dataset);
    count = H5Sget_select_npoints(space);
    if (type >= 0 && count > 0 && count < 1000 && H5Tget_size(type) < 1000) {
        g_autofree uint8_t *elements = g_malloc0((size_t)count * H5Tget_size(type));

        is_read = H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements) >= 0;
        if (is_read) {
            H5Treclaim(type, space, H5P_DEFAULT, elements);
        }
    }
    H5Pclose(dcpl);
    H5Tclose(type);
    H5Sclose(space);
    H5Dclose(dataset);
    return is_read;
}

static void write_stored(varjfs *v, const Stored *s, const uint8_t *bytes, size_t len)
{
    varjfs_batch *b;

    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    if (s->is_key) {
        varjfs_kv_put(b, s->space, s->name, s->name_len, bytes, len, 0, NULL);
    } else {
        varjfs_object_rwrite(b, s->space, (const char *)s->name, bytes, len, 0, INT64_MAX,
                             0, NULL);
    }
    assert_int_equal(varjfs_batch_execute(b), 0);
    varjfs_batch_free(b);
}

static void read_stored(varjfs *v, Stored *s)
{
    varjfs_batch *b;

    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    if (s->is_key) {
        varjfs_kv_get(b, s->space, s->name, s->name_len, s->bytes, sizeof s->bytes,
                      &s->len, NULL);
    } else {
        varjfs_object_read(b, s->space, (const char *)s->name, s->bytes, sizeof s->bytes,
                           0, &s->len, NULL);
    }
    assert_int_equal(varjfs_batch_execute(b), 0);
    varjfs_batch_free(b);
}

static void damage(const Stored *s, uint8_t *bytes, size_t *len)
{
    memcpy(bytes, s->bytes, s->len);
    *len = s->len;
    if (pick(4) == 0) {
        *len = pick((unsigned)s->len + 1);
    }
    for (unsigned n = pick(4); n > 0 && *len > 0; n--) {
        bytes[pick((unsigned)*len)] ^=
            (uint8_t)(pick(2) == 0 ? 1u << pick(8) : pick(256));
    }
}

static void test_hostile(void **state)
{
    unsigned rounds = setting("VARJFS_TEST_ROUNDS", 40), failures = 0;
    GArray *all;
    uint8_t bytes[4096];
    varjfs *v;

    (void)state;
    state_of_random = setting("VARJFS_TEST_SEED", 1);
    assert_true(H5Fclose(file) >= 0);
    file = H5Fcreate("victims.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    make_victims();
    assert_int_equal(varjfs_open(getenv("VARJFS_SOURCE"), NULL, &v), 0);
    all = all_stored(v); /* this test is the first: they are short */
    assert_true(all->len > 2 * VICTIMS);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    for (unsigned r = 0; r < rounds; r++) {
        Stored *s = &g_array_index(all, Stored, pick(all->len));
        size_t len;

        read_stored(v, s);
        damage(s, bytes, &len);
        write_stored(v, s, bytes, len);
        for (int i = 0; i < VICTIMS; i++) {
            failures += !read_victim(i);
        }
        write_stored(v, s, s->bytes, s->len);
    }
    H5Eset_auto2(H5E_DEFAULT, (H5E_auto2_t)H5Eprint2, stderr);
    for (int i = 0; i < VICTIMS; i++) {
        assert_true(read_victim(i));
    }
    printf("# %u of %u reads failed\n", failures, VICTIMS * rounds);
    assert_true(failures > 0);
    g_array_free(all, TRUE);
    varjfs_close(v);
    assert_true(H5Fclose(file) >= 0);
    file = H5Fopen("model.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(file >= 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_hostile),     cmocka_unit_test(test_chunks),
    cmocka_unit_test(test_many_chunks), cmocka_unit_test(test_long),
    cmocka_unit_test(test_members),     cmocka_unit_test(test_transform),
    cmocka_unit_test(test_texts),       cmocka_unit_test(test_processes),
    cmocka_unit_test(test_model),       cmocka_unit_test(test_requests),
    cmocka_unit_test(test_gaps),        cmocka_unit_test(test_names),
    cmocka_unit_test(test_storage),
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
    if (argc == 3 && strcmp(argv[1], "--write-rows") == 0) {
        return write_rows((unsigned)strtoul(argv[2], NULL, 10));
    }
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    return cmocka_run_group_tests(tests, start, stop);
}
