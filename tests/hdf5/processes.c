/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * processes FILE STEP NUMBER OF: what several processes do with one file at the same
 * time; NUMBER of OF
 *
 *   make    the file: two datasets of OF times ROWS rows, a group
 *   work    writes its rows of both, makes datasets of its own in the same group and a
 *           group of its own, and competes with the others for the links "/all/same-N";
 *           says how many it got
 *   die     as work, but kills itself after the flush in the middle
 *   check   all that work is to leave; NUMBER: the one that has died, or OF
 */
#include <hdf5.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 40
#define COLUMNS 1000
#define DATASETS 30
#define SAME 10

static void fail(const char *what, int line)
{
    fprintf(stderr, "processes: line %d: %s\n", line, what);
    exit(1);
}

#define MUST(call) must((int64_t)(call), #call, __LINE__)
#define EXPECT(condition)                                                                \
    do {                                                                                 \
        if (!(condition))                                                                \
            fail(#condition, __LINE__);                                                  \
    } while (0)

static int64_t must(int64_t result, const char *what, int line)
{
    if (result < 0) {
        fail(what, line);
    }
    return result;
}

#define NOTHING H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT

static const char *const shared[] = {"/contiguous", "/chunked"};

static void make(const char *name, int of)
{
    hsize_t size[] = {(hsize_t)of * ROWS, COLUMNS}, chunk[] = {7, 300};
    hid_t file = MUST(H5Fcreate(name, H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT));
    hid_t space = MUST(H5Screate_simple(2, size, NULL)),
          plist = MUST(H5Pcreate(H5P_DATASET_CREATE));

    for (int i = 0; i < 2; i++) {
        MUST(H5Dclose(MUST(H5Dcreate2(file, shared[i], H5T_STD_I32LE, space, H5P_DEFAULT,
                                      plist, H5P_DEFAULT))));
        MUST(H5Pset_chunk(plist, 2, chunk));
    }
    MUST(H5Gclose(MUST(H5Gcreate2(file, "/all", NOTHING))));
    MUST(H5Pclose(plist));
    MUST(H5Sclose(space));
    MUST(H5Fclose(file));
}

static int value_at(int number, int row, int column)
{
    return number * 1000000 + row * COLUMNS + column;
}

static void write_rows(hid_t file, int number)
{
    static int data[ROWS][COLUMNS];
    hsize_t start[] = {(hsize_t)number * ROWS, 0}, count[] = {ROWS, COLUMNS};
    hid_t memory = MUST(H5Screate_simple(2, count, NULL));

    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            data[r][c] = value_at(number, r, c);
        }
    }
    for (int i = 0; i < 2; i++) {
        hid_t set = MUST(H5Dopen2(file, shared[i], H5P_DEFAULT)),
              space = MUST(H5Dget_space(set));

        MUST(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
        MUST(H5Dwrite(set, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, data));
        MUST(H5Sclose(space));
        MUST(H5Dclose(set));
    }
    MUST(H5Sclose(memory));
}

static void make_datasets(hid_t file, int number, int from, int to)
{
    hsize_t size = 100;
    hid_t space = MUST(H5Screate_simple(1, &size, NULL)),
          one = MUST(H5Screate(H5S_SCALAR));

    for (int i = from; i < to; i++) {
        int data[100];
        char name[40];
        hid_t set, attribute;

        snprintf(name, sizeof name, "/all/of-%d-%d", number, i);
        for (int k = 0; k < 100; k++) {
            data[k] = value_at(number, i, k);
        }
        set = MUST(H5Dcreate2(file, name, H5T_STD_I32BE, space, NOTHING));
        MUST(H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
        attribute = MUST(
            H5Acreate2(set, "number", H5T_NATIVE_INT, one, H5P_DEFAULT, H5P_DEFAULT));
        MUST(H5Awrite(attribute, H5T_NATIVE_INT, &i));
        MUST(H5Aclose(attribute));
        MUST(H5Dclose(set));
    }
    MUST(H5Sclose(one));
    MUST(H5Sclose(space));
}

/* Each name is made by one of those who try. */
static int compete(hid_t file)
{
    int won = 0;

    for (int i = 0; i < SAME; i++) {
        char name[40];
        hid_t group;

        snprintf(name, sizeof name, "/all/same-%d", i);
        H5E_BEGIN_TRY
        {
            group = H5Gcreate2(file, name, NOTHING);
        }
        H5E_END_TRY
        if (group >= 0) {
            won++;
            MUST(H5Gclose(group));
        }
    }
    return won;
}

static void work(const char *name, int number, bool dies)
{
    hid_t file = MUST(H5Fopen(name, H5F_ACC_RDWR, H5P_DEFAULT));
    char own[40];
    int won;

    write_rows(file, number);
    make_datasets(file, number, 0, DATASETS / 2);
    MUST(H5Fflush(file, H5F_SCOPE_GLOBAL));
    if (dies) {
        make_datasets(file, number, DATASETS / 2, DATASETS / 2 + 3);
        raise(SIGKILL);
    }
    make_datasets(file, number, DATASETS / 2, DATASETS);
    snprintf(own, sizeof own, "/own-%d", number);
    MUST(H5Gclose(MUST(H5Gcreate2(file, own, NOTHING))));
    won = compete(file);
    MUST(H5Fclose(file));
    printf("%d\n", won);
}

static void check_rows(hid_t file, int of)
{
    for (int i = 0; i < 2; i++) {
        hid_t set = MUST(H5Dopen2(file, shared[i], H5P_DEFAULT));
        int *data = calloc((size_t)of * ROWS * COLUMNS, sizeof *data);

        EXPECT(data != NULL);
        MUST(H5Dread(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
        for (int r = 0; r < of * ROWS; r++) {
            for (int c = 0; c < COLUMNS; c++) {
                EXPECT(data[r * COLUMNS + c] == value_at(r / ROWS, r % ROWS, c));
            }
        }
        free(data);
        MUST(H5Dclose(set));
    }
}

static void check_dataset(hid_t file, int number, int i)
{
    int data[100], value;
    char name[40];
    hid_t set, attribute;

    snprintf(name, sizeof name, "/all/of-%d-%d", number, i);
    set = MUST(H5Dopen2(file, name, H5P_DEFAULT));
    MUST(H5Dread(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
    for (int k = 0; k < 100; k++) {
        EXPECT(data[k] == value_at(number, i, k));
    }
    attribute = MUST(H5Aopen(set, "number", H5P_DEFAULT));
    MUST(H5Aread(attribute, H5T_NATIVE_INT, &value));
    EXPECT(value == i);
    MUST(H5Aclose(attribute));
    MUST(H5Dclose(set));
}

static void check(const char *name, int dead, int of)
{
    hid_t file = MUST(H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT));
    hid_t group = MUST(H5Gopen2(file, "/all", H5P_DEFAULT));
    H5G_info_t all, root;
    hsize_t whole = (hsize_t)(dead < of ? of - 1 : of);

    check_rows(file, of); /* the dead one has flushed its own */
    for (int number = 0; number < of; number++) {
        for (int i = 0; i < (number == dead ? DATASETS / 2 : DATASETS); i++) {
            check_dataset(file, number, i);
        }
    }
    MUST(H5Gget_info(group, &all));
    EXPECT(all.nlinks >= whole * DATASETS + SAME + (dead < of ? DATASETS / 2 : 0));
    EXPECT(all.nlinks <= whole * DATASETS + SAME + (dead < of ? DATASETS / 2 + 3 : 0));
    MUST(H5Gclose(group));
    group = MUST(H5Gopen2(file, "/", H5P_DEFAULT));
    MUST(H5Gget_info(group, &root));
    EXPECT(root.nlinks == 3 + whole);
    MUST(H5Gclose(group));
    MUST(H5Fclose(file));
}

int main(int argc, char **argv)
{
    const char *file = argc > 4 ? argv[1] : "", *step = argc > 4 ? argv[2] : "";
    int number = argc > 4 ? atoi(argv[3]) : 0, of = argc > 4 ? atoi(argv[4]) : 0;

    if (strcmp(step, "make") == 0) {
        make(file, of);
    } else if (strcmp(step, "work") == 0 || strcmp(step, "die") == 0) {
        work(file, number, strcmp(step, "die") == 0);
    } else if (strcmp(step, "check") == 0) {
        check(file, number, of);
    } else {
        fprintf(stderr, "usage: processes FILE make|work|die|check NUMBER OF\n");
        return 2;
    }
    return 0;
}
