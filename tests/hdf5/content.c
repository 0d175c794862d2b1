/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* content FILE [WHAT]: an HDF5 file that has something of everything.
 *
 * The same in each run, through the connector that the environment names.  WHAT: "data"
 * (no links but those to objects), "all" (the default), or "references", which stand
 * apart because a tool needs more to print them. */
#include <hdf5.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, int line)
{
    fprintf(stderr, "content: line %d: %s\n", line, what);
    exit(1);
}

/* An HDF5 call that must not fail; gives what it returned. */
#define MUST(call) must((int64_t)(call), #call, __LINE__)

static int64_t must(int64_t result, const char *what, int line)
{
    if (result < 0) {
        fail(what, line);
    }
    return result;
}

#define NOTHING H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT

static hid_t space_of(int rank, hsize_t rows, hsize_t columns)
{
    hsize_t size[] = {rows, columns};
    return MUST(H5Screate_simple(rank, size, NULL));
}

/* ---- Attributes -------------------------------------------------------------------- */

static void attribute(hid_t object, const char *name, hid_t type, hid_t space,
                      const void *data)
{
    hid_t a = MUST(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT));

    if (data) {
        MUST(H5Awrite(a, type, data));
    }
    MUST(H5Aclose(a));
}

static void attributes(hid_t object)
{
    hid_t scalar = MUST(H5Screate(H5S_SCALAR)), none = MUST(H5Screate(H5S_NULL)),
          row = space_of(1, 5, 0);
    hid_t text = MUST(H5Tcopy(H5T_C_S1)), words = MUST(H5Tcopy(H5T_C_S1));
    const char *const variable[] = {"", "one", "\xc3\xbc\xc3\xb1\xc3\xaf",
                                    "a longer text than the others", "end"};
    const int numbers[] = {1, -2, 3, -4, 5};
    const double pi = 3.25;
    char name[32];

    MUST(H5Tset_size(text, 12));
    MUST(H5Tset_strpad(text, H5T_STR_SPACEPAD));
    MUST(H5Tset_size(words, H5T_VARIABLE));
    MUST(H5Tset_cset(words, H5T_CSET_UTF8));
    attribute(object, "pi", H5T_NATIVE_DOUBLE, scalar, &pi);
    attribute(object, "numbers", H5T_NATIVE_INT, row, numbers);
    attribute(object, "text", text, scalar, "fixed       ");
    attribute(object, "words", words, row, variable);
    attribute(object, "none", H5T_STD_I16BE, none, NULL);
    attribute(object, "\xc3\xa4ttribut", H5T_NATIVE_INT, scalar, numbers);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "of many %02d", i);
        attribute(object, name, H5T_NATIVE_INT, scalar, &i);
    }
    MUST(H5Tclose(text));
    MUST(H5Tclose(words));
    MUST(H5Sclose(scalar));
    MUST(H5Sclose(none));
    MUST(H5Sclose(row));
}

/* ---- Datasets ---------------------------------------------------------------------- */

static hid_t dataset(hid_t where, const char *name, hid_t type, hid_t space, hid_t how,
                     hid_t memory_type, const void *data)
{
    hid_t d = MUST(H5Dcreate2(where, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT));

    if (data) {
        MUST(H5Dwrite(d, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
    }
    return d;
}

static void layouts(hid_t file)
{
    hid_t g = MUST(H5Gcreate2(file, "layouts", NOTHING)), plane = space_of(2, 20, 30);
    hid_t compact = MUST(H5Pcreate(H5P_DATASET_CREATE)),
          chunked = MUST(H5Pcreate(H5P_DATASET_CREATE));
    hid_t filtered = MUST(H5Pcreate(H5P_DATASET_CREATE)),
          scalar = MUST(H5Screate(H5S_SCALAR));
    hid_t none = MUST(H5Screate(H5S_NULL)), zero = space_of(1, 0, 0);
    const hsize_t chunk[] = {7, 8};
    int data[20][30];

    for (int i = 0; i < 20 * 30; i++) {
        data[i / 30][i % 30] = i / 30 * 1000 - i % 30;
    }
    MUST(H5Pset_layout(compact, H5D_COMPACT));
    MUST(H5Pset_chunk(chunked, 2, chunk));
    MUST(H5Pset_chunk(filtered, 2, chunk));
    MUST(H5Pset_shuffle(filtered));
    MUST(H5Pset_deflate(filtered, 6));
    MUST(H5Pset_fletcher32(filtered));
    MUST(H5Dclose(dataset(g, "contiguous", H5T_STD_I32LE, plane, H5P_DEFAULT,
                          H5T_NATIVE_INT, data)));
    MUST(H5Dclose(dataset(g, "big-endian", H5T_STD_I64BE, plane, H5P_DEFAULT,
                          H5T_NATIVE_INT, data)));
    MUST(H5Dclose(
        dataset(g, "float", H5T_IEEE_F32LE, plane, H5P_DEFAULT, H5T_NATIVE_INT, data)));
    MUST(H5Dclose(
        dataset(g, "compact", H5T_STD_I16LE, plane, compact, H5T_NATIVE_INT, data)));
    MUST(H5Dclose(
        dataset(g, "chunked", H5T_STD_I32LE, plane, chunked, H5T_NATIVE_INT, data)));
    MUST(H5Dclose(
        dataset(g, "filtered", H5T_STD_I32LE, plane, filtered, H5T_NATIVE_INT, data)));
    MUST(H5Dclose(dataset(g, "scalar", H5T_STD_I32LE, scalar, H5P_DEFAULT, H5T_NATIVE_INT,
                          data[3])));
    MUST(H5Dclose(
        dataset(g, "no value", H5T_STD_I32LE, none, H5P_DEFAULT, H5T_NATIVE_INT, NULL)));
    MUST(H5Dclose(
        dataset(g, "of size 0", H5T_STD_I32LE, zero, H5P_DEFAULT, H5T_NATIVE_INT, NULL)));
    MUST(H5Dclose(dataset(g, "never written", H5T_STD_I32LE, plane, H5P_DEFAULT,
                          H5T_NATIVE_INT, NULL)));
    MUST(H5Pclose(compact));
    MUST(H5Pclose(chunked));
    MUST(H5Pclose(filtered));
    MUST(H5Sclose(plane));
    MUST(H5Sclose(scalar));
    MUST(H5Sclose(none));
    MUST(H5Sclose(zero));
    MUST(H5Gclose(g));
}

/* Datasets that are written in part, by all kinds of selection, and grow and shrink. */
static void parts(hid_t file)
{
    hid_t g = MUST(H5Gcreate2(file, "parts", NOTHING)),
          how = MUST(H5Pcreate(H5P_DATASET_CREATE));
    hid_t fixed = MUST(H5Pcreate(H5P_DATASET_CREATE)), plane, memory = space_of(1, 6, 0),
          d;
    const hsize_t size[] = {10, 10}, most[] = {H5S_UNLIMITED, 40}, chunk[] = {4, 4},
                  more[] = {15, 23}, less[] = {9, 23};
    const hsize_t start[] = {1, 2}, stride[] = {3, 4}, count[] = {3, 2},
                  point[] = {0, 0, 9, 9, 5, 1, 5, 0, 8, 8, 2, 2};
    const short six[] = {1, 2, 3, 4, 5, 6}, filler = -7;

    MUST(H5Pset_fill_value(fixed, H5T_NATIVE_SHORT, &filler));
    MUST(H5Pset_fill_value(how, H5T_NATIVE_SHORT, &filler));
    MUST(H5Pset_chunk(how, 2, chunk));
    for (int i = 0; i < 2; i++) {
        plane = MUST(H5Screate_simple(2, size, i ? most : NULL));
        d = dataset(g, i ? "grown" : "strided", H5T_STD_I16LE, plane, i ? how : fixed,
                    H5T_NATIVE_SHORT, NULL);
        MUST(H5Sselect_hyperslab(plane, H5S_SELECT_SET, start, stride, count, NULL));
        MUST(H5Dwrite(d, H5T_NATIVE_SHORT, memory, plane, H5P_DEFAULT, six));
        MUST(H5Sselect_elements(plane, H5S_SELECT_SET, 6, point));
        MUST(H5Dwrite(d, H5T_NATIVE_SHORT, memory, plane, H5P_DEFAULT, six));
        MUST(H5Sclose(plane));
        if (i) {
            MUST(H5Dset_extent(d, more));
            MUST(H5Dset_extent(d, less));
            MUST(H5Dset_extent(d, more));
        }
        MUST(H5Dclose(d));
    }
    MUST(H5Sclose(memory));
    MUST(H5Pclose(how));
    MUST(H5Pclose(fixed));
    MUST(H5Gclose(g));
}

/* ---- Types ------------------------------------------------------------------------- */

struct inner {
    short s;
    char text[6];
};

struct outer {
    int number;
    double real;
    struct inner inner;
    float three[3];
    const char *word;
    hvl_t list;
    uint8_t colour;
};

/* A committed type, and a dataset and an attribute of it. */
static void compound(hid_t g)
{
    hid_t text = MUST(H5Tcopy(H5T_C_S1)), word = MUST(H5Tcopy(H5T_C_S1)),
          list = MUST(H5Tvlen_create(H5T_NATIVE_INT));
    hid_t inner = MUST(H5Tcreate(H5T_COMPOUND, sizeof(struct inner)));
    hid_t outer = MUST(H5Tcreate(H5T_COMPOUND, sizeof(struct outer))),
          colour = MUST(H5Tenum_create(H5T_NATIVE_UINT8));
    const hsize_t three = 3;
    hid_t array = MUST(H5Tarray_create2(H5T_NATIVE_FLOAT, 1, &three)),
          space = space_of(1, 4, 0), d;
    struct outer data[4];
    int numbers[] = {10, 20, 30, 40};
    const char *const words[] = {
        "red", "", "a word of more letters than fit into any small buffer", "end"};

    MUST(H5Tset_size(text, sizeof(data->inner.text)));
    MUST(H5Tset_size(word, H5T_VARIABLE));
    MUST(H5Tenum_insert(colour, "RED", &(uint8_t){1}));
    MUST(H5Tenum_insert(colour, "GREEN", &(uint8_t){2}));
    MUST(H5Tinsert(inner, "s", HOFFSET(struct inner, s), H5T_NATIVE_SHORT));
    MUST(H5Tinsert(inner, "text", HOFFSET(struct inner, text), text));
    MUST(H5Tinsert(outer, "number", HOFFSET(struct outer, number), H5T_NATIVE_INT));
    MUST(H5Tinsert(outer, "real", HOFFSET(struct outer, real), H5T_NATIVE_DOUBLE));
    MUST(H5Tinsert(outer, "inner", HOFFSET(struct outer, inner), inner));
    MUST(H5Tinsert(outer, "three", HOFFSET(struct outer, three), array));
    MUST(H5Tinsert(outer, "word", HOFFSET(struct outer, word), word));
    MUST(H5Tinsert(outer, "list", HOFFSET(struct outer, list), list));
    MUST(H5Tinsert(outer, "colour", HOFFSET(struct outer, colour), colour));
    MUST(H5Tcommit2(g, "record", outer, NOTHING));
    memset(data, 0, sizeof(data));
    for (int i = 0; i < 4; i++) {
        data[i] = (struct outer){.number = i,
                                 .real = i / 4.0,
                                 .three = {1, 2, (float)i},
                                 .word = words[i],
                                 .list = {(size_t)i, numbers},
                                 .colour = (uint8_t)(1 + i % 2)};
        data[i].inner.s = (short)-i;
        strcpy(data[i].inner.text, "abcde");
    }
    d = dataset(g, "records", outer, space, H5P_DEFAULT, outer, data);
    attribute(d, "of a record", outer, space, data);
    attribute(outer, "of a type", H5T_NATIVE_INT, space, numbers);
    MUST(H5Dclose(d));
    MUST(H5Tclose(text));
    MUST(H5Tclose(word));
    MUST(H5Tclose(list));
    MUST(H5Tclose(inner));
    MUST(H5Tclose(outer));
    MUST(H5Tclose(colour));
    MUST(H5Tclose(array));
    MUST(H5Sclose(space));
}

static void types(hid_t file)
{
    hid_t g = MUST(H5Gcreate2(file, "types", NOTHING)), space = space_of(1, 6, 0);
    hid_t opaque = MUST(H5Tcreate(H5T_OPAQUE, 5)),
          lists = MUST(H5Tvlen_create(H5T_STD_I32BE));
    hid_t texts = MUST(H5Tcopy(H5T_C_S1)), how = MUST(H5Pcreate(H5P_DATASET_CREATE));
    const char *const variable[] = {"",   "one", "two", NULL, "\xe4\xb8\xad\xe6\x96\x87",
                                    "end"};
    const hsize_t chunk = 4;
    hvl_t list[6];
    int numbers[100];

    for (int i = 0; i < 100; i++) {
        numbers[i] = i * i;
    }
    for (int i = 0; i < 6; i++) {
        list[i] = (hvl_t){(size_t)(i * i), numbers};
    }
    MUST(H5Tset_tag(opaque, "five bytes"));
    MUST(H5Tset_size(texts, H5T_VARIABLE));
    MUST(H5Tset_cset(texts, H5T_CSET_UTF8));
    MUST(H5Pset_chunk(how, 1, &chunk));
    MUST(H5Dclose(dataset(g, "opaque", opaque, space, H5P_DEFAULT, opaque,
                          "abcdefghijklmnopqrstuvwxyz1234")));
    MUST(H5Dclose(
        dataset(g, "bits", H5T_STD_B16BE, space, H5P_DEFAULT, H5T_NATIVE_B16, numbers)));
    hid_t in = MUST(H5Tvlen_create(H5T_NATIVE_INT));
    MUST(H5Dclose(dataset(g, "lists", lists, space, H5P_DEFAULT, in, list)));
    MUST(H5Dclose(dataset(g, "lists in chunks", lists, space, how, in, list)));
    MUST(H5Dclose(dataset(g, "texts", texts, space, H5P_DEFAULT, texts, variable)));
    compound(g);
    MUST(H5Tclose(in));
    MUST(H5Tclose(opaque));
    MUST(H5Tclose(lists));
    MUST(H5Tclose(texts));
    MUST(H5Pclose(how));
    MUST(H5Sclose(space));
    MUST(H5Gclose(g));
}

/* ---- Links ------------------------------------------------------------------------- */

static void links(hid_t file)
{
    hid_t g = MUST(H5Gcreate2(file, "links", NOTHING)), deep = g,
          ordered = MUST(H5Pcreate(H5P_GROUP_CREATE)), next;
    hid_t utf8 = MUST(H5Pcreate(H5P_LINK_CREATE));
    char name[300];

    MUST(H5Lcreate_hard(file, "/layouts/chunked", g, "the same", H5P_DEFAULT,
                        H5P_DEFAULT));
    MUST(H5Lcreate_hard(file, "/links", g, "itself", H5P_DEFAULT, H5P_DEFAULT));
    MUST(H5Lcreate_soft("/layouts/chunked", g, "soft", H5P_DEFAULT, H5P_DEFAULT));
    MUST(H5Lcreate_soft("nothing/there", g, "dangling", H5P_DEFAULT, H5P_DEFAULT));
    MUST(H5Pset_char_encoding(utf8, H5T_CSET_UTF8));
    MUST(H5Gclose(MUST(H5Gcreate2(g,
                                  "gr\xc3\xb6\xc3\x9f"
                                  "e",
                                  utf8, H5P_DEFAULT, H5P_DEFAULT))));
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    MUST(H5Gclose(MUST(H5Gcreate2(g, name, NOTHING))));
    MUST(H5Pset_link_creation_order(ordered,
                                    H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED));
    next = MUST(H5Gcreate2(g, "in order", H5P_DEFAULT, ordered, H5P_DEFAULT));
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "%02d", i * 7 % 20);
        MUST(H5Gclose(MUST(H5Gcreate2(next, name, NOTHING))));
    }
    MUST(H5Ldelete(next, "07", H5P_DEFAULT));
    MUST(H5Lmove(next, "14", next, "moved", H5P_DEFAULT, H5P_DEFAULT));
    MUST(H5Gclose(next));
    for (int i = 0; i < 20; i++) {
        next = MUST(H5Gcreate2(deep, "deeper", NOTHING));
        MUST(H5Gclose(deep));
        deep = next;
    }
    attributes(deep);
    MUST(H5Gclose(deep));
    MUST(H5Pclose(ordered));
    MUST(H5Pclose(utf8));
    MUST(H5Ocopy(file, "/types", file, "/copy of types", H5P_DEFAULT, H5P_DEFAULT));
}

/* Of HDF5 1.12 and later; the older kinds are for HDF5's own files alone. */
static void references(hid_t file)
{
    hid_t plane = space_of(2, 8, 8), row = space_of(1, 3, 0), d;
    const hsize_t start[] = {1, 2}, count[] = {3, 4};
    H5R_ref_t any[3];
    char data[8][8];

    for (int i = 0; i < 64; i++) {
        data[i / 8][i % 8] = (char)i;
    }
    d = dataset(file, "plane", H5T_STD_I8LE, plane, H5P_DEFAULT, H5T_NATIVE_CHAR, data);
    attribute(d, "attribute", H5T_NATIVE_CHAR, row, data);
    MUST(H5Dclose(d));
    MUST(H5Sselect_hyperslab(plane, H5S_SELECT_SET, start, NULL, count, NULL));
    MUST(H5Rcreate_object(file, "/plane", H5P_DEFAULT, &any[0]));
    MUST(H5Rcreate_region(file, "/plane", plane, H5P_DEFAULT, &any[1]));
    MUST(H5Rcreate_attr(file, "/plane", "attribute", H5P_DEFAULT, &any[2]));
    d = dataset(file, "any", H5T_STD_REF, row, H5P_DEFAULT, H5T_STD_REF, any);
    attribute(d, "references", H5T_STD_REF, row, any);
    MUST(H5Dclose(d));
    for (int i = 0; i < 3; i++) {
        MUST(H5Rdestroy(&any[i]));
    }
    MUST(H5Sclose(plane));
    MUST(H5Sclose(row));
}

int main(int argc, char **argv)
{
    hid_t access, file;

    if (argc < 2) {
        fputs("usage: content FILE [data|all|references]\n", stderr);
        return 2;
    }
    access = MUST(H5Pcreate(H5P_FILE_ACCESS));
    MUST(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
    file = MUST(H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access));
    if (argc > 2 && !strcmp(argv[2], "references")) {
        references(file);
    } else {
        attributes(file);
        layouts(file);
        parts(file);
        types(file);
        if (argc == 2 || !strcmp(argv[2], "all")) {
            links(file);
        }
    }
    MUST(H5Fclose(file));
    MUST(H5Pclose(access));
    return 0;
}
