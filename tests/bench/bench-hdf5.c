/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-hdf5.c - one round of one kind of work on an HDF5 file
 *
 *   bench-hdf5 [-n COUNT] [-b BYTES] [-s SEED] [-f] write|read|remove FILE
 *
 *   write   a new file of COUNT datasets of BYTES, each with one attribute; -f: the time
 *           ends when it is durable (H5Fflush, and fsync of FILE where that is a file)
 *   read    all of them and their attributes, and compares them with what write has
 *           written with the same SEED
 *   remove  FILE and what these have made beside it
 *
 * Through the connector that the environment names.  Prints the seconds that HDF5's calls
 * took.  What is written is random, differs with SEED and never repeats; neither that nor
 * the comparison is in the time, nor is the start of a connector: a second file,
 * FILE.anchor, is open all the while.
 */
#include <fcntl.h>
#include <hdf5.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct Work {
    unsigned count;
    size_t bytes;
    uint64_t seed;
    bool durable;
    const char *file;
    double seconds; /* of HDF5's calls */
} Work;

static void fail(const char *what, int line)
{
    fprintf(stderr, "bench-hdf5: line %d: %s\n", line, what);
    exit(1);
}

/* A call that must not fail; gives what it returned. */
#define MUST(call) must((int64_t)(call), #call, __LINE__)

static int64_t must(int64_t result, const char *what, int line)
{
    if (result < 0) {
        fail(what, line);
    }
    return result;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The content of dataset @i: xorshift64*. */
static void make_data(const Work *w, unsigned i, uint64_t *words)
{
    uint64_t x = (w->seed << 32 | (i + 1)) * 0x9e3779b97f4a7c15u;

    for (size_t at = 0; at < w->bytes / sizeof(*words); at++) {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        words[at] = x * 0x2545f4914f6cdd1du;
    }
}

static void name_of(unsigned i, char name[32])
{
    snprintf(name, 32, "dataset %06u", i);
}

static void write_one(Work *w, hid_t file, unsigned i, hid_t plane, hid_t scalar,
                      const uint64_t *data)
{
    double begin = now();
    char name[32];
    hid_t d, a;

    name_of(i, name);
    d = MUST(H5Dcreate2(file, name, H5T_NATIVE_UINT64, plane, H5P_DEFAULT, H5P_DEFAULT,
                        H5P_DEFAULT));
    MUST(H5Dwrite(d, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
    a = MUST(H5Acreate2(d, "number", H5T_NATIVE_UINT, scalar, H5P_DEFAULT, H5P_DEFAULT));
    MUST(H5Awrite(a, H5T_NATIVE_UINT, &i));
    MUST(H5Aclose(a));
    MUST(H5Dclose(d));
    w->seconds += now() - begin;
}

static void write_all(Work *w, uint64_t *data)
{
    const hsize_t words = w->bytes / sizeof(*data);
    hid_t plane = MUST(H5Screate_simple(1, &words, NULL)),
          scalar = MUST(H5Screate(H5S_SCALAR));
    double begin = now();
    hid_t file = MUST(H5Fcreate(w->file, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));

    w->seconds += now() - begin;
    for (unsigned i = 0; i < w->count; i++) {
        make_data(w, i, data);
        write_one(w, file, i, plane, scalar, data);
    }
    begin = now();
    if (w->durable) {
        MUST(H5Fflush(file, H5F_SCOPE_GLOBAL));
    }
    MUST(H5Fclose(file));
    if (w->durable && access(w->file, F_OK) == 0) {
        int fd = (int)MUST(open(w->file, O_RDWR | O_CLOEXEC));

        MUST(fsync(fd));
        MUST(close(fd));
    }
    w->seconds += now() - begin;
    MUST(H5Sclose(plane));
    MUST(H5Sclose(scalar));
}

static void read_one(Work *w, hid_t file, unsigned i, uint64_t *data,
                     const uint64_t *expected)
{
    double begin = now();
    unsigned number;
    char name[32];
    hid_t d, a;

    name_of(i, name);
    d = MUST(H5Dopen2(file, name, H5P_DEFAULT));
    MUST(H5Dread(d, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
    a = MUST(H5Aopen(d, "number", H5P_DEFAULT));
    MUST(H5Aread(a, H5T_NATIVE_UINT, &number));
    MUST(H5Aclose(a));
    MUST(H5Dclose(d));
    w->seconds += now() - begin;
    if (number != i || memcmp(data, expected, w->bytes) != 0) {
        fail("not what was written", __LINE__);
    }
}

static void read_all(Work *w, uint64_t *data)
{
    uint64_t *expected = malloc(w->bytes);
    double begin = now();
    hid_t file = MUST(H5Fopen(w->file, H5F_ACC_RDONLY, H5P_DEFAULT));

    if (expected == NULL) {
        fail("no memory", __LINE__);
    }
    w->seconds += now() - begin;
    for (unsigned i = 0; i < w->count; i++) {
        make_data(w, i, expected);
        read_one(w, file, i, data, expected);
    }
    begin = now();
    MUST(H5Fclose(file));
    w->seconds += now() - begin;
    free(expected);
}

static int usage(void)
{
    fputs(
        "usage: bench-hdf5 [-n COUNT] [-b BYTES] [-s SEED] [-f] write|read|remove FILE\n",
        stderr);
    return 2;
}

static bool parse(int argc, char **argv, Work *w)
{
    int option;

    while ((option = getopt(argc, argv, "n:b:s:f")) != -1) {
        switch (option) {
        case 'n':
            w->count = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'b':
            w->bytes = strtoul(optarg, NULL, 10) / 8 * 8;
            break;
        case 's':
            w->seed = strtoul(optarg, NULL, 10);
            break;
        case 'f':
            w->durable = true;
            break;
        default:
            return false;
        }
    }
    return optind + 2 == argc && w->bytes > 0;
}

int main(int argc, char **argv)
{
    Work w = {.count = 10, .bytes = 1u << 20, .seed = 1};
    uint64_t *data;
    char *anchor;
    hid_t file;

    if (!parse(argc, argv, &w)) {
        return usage();
    }
    w.file = argv[optind + 1];
    data = malloc(w.bytes);
    if (data == NULL || asprintf(&anchor, "%s.anchor", w.file) < 0) {
        fail("no memory", __LINE__);
    }
    memset(data, 1, w.bytes); /* no page fault is in the time */
    file = MUST(H5Fcreate(anchor, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    if (strcmp(argv[optind], "write") == 0) {
        write_all(&w, data);
    } else if (strcmp(argv[optind], "read") == 0) {
        read_all(&w, data);
    } else if (strcmp(argv[optind], "remove") == 0) {
        MUST(H5Fdelete(w.file, H5P_DEFAULT));
    } else {
        return usage();
    }
    MUST(H5Fclose(file));
    if (strcmp(argv[optind], "remove") == 0) {
        MUST(H5Fdelete(anchor, H5P_DEFAULT));
    }
    printf("%.6f\n", w.seconds);
    free(anchor);
    free(data);
    return 0;
}
