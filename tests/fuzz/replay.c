/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * replay.c - main() of a fuzz target without libFuzzer
 *
 *   fuzz-NAME            the files of tests/fuzz/corpus/NAME, each with fuzz_mutations
 *                        others
 *   fuzz-NAME FILE...    these files as they are: to look at one that failed
 *
 * Mutations come from a fixed seed, so a failure comes again.  The input lies in memory
 * of its exact length, so that sanitizers and valgrind see a read behind it.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#define SEED UINT64_C(20261120)
#define INPUT_MAX_BYTES ((size_t)1 << 20)

static void run_exact(const uint8_t *data, size_t len)
{
    g_autofree uint8_t *exact = g_malloc(MAX(len, 1));

    if (len > 0) {
        memcpy(exact, data, len);
    }
    LLVMFuzzerTestOneInput(exact, len);
}

static size_t place_in(VjRng *r, size_t len)
{
    return (size_t)vj_rng_below(r, len + 1);
}

/* A few changes: bytes overwritten, cut out, doubled, cut off. */
static void mutate(VjRng *r, GByteArray *data)
{
    for (int changes = 1 + (int)vj_rng_below(r, 4); changes > 0; changes--) {
        guint at = (guint)place_in(r, data->len);
        guint part = (guint)place_in(r, MIN(data->len - at, 16));
        uint8_t fresh[4];

        switch (vj_rng_below(r, 4)) {
        case 0:
            for (guint i = at; i < at + part; i++) {
                data->data[i] = (uint8_t)vj_rng_u64(r);
            }
            break;
        case 1:
            g_byte_array_remove_range(data, at, part);
            break;
        case 2:
            vj_rng_bytes(r, fresh, sizeof fresh);
            g_byte_array_append(data, fresh, sizeof fresh);
            break;
        default:
            g_byte_array_set_size(data, at);
            break;
        }
    }
}

static bool read_input(const char *path, char **text, size_t *len)
{
    g_autoptr(GError) error = NULL;

    *text = vj_file_read_small(AT_FDCWD, path, INPUT_MAX_BYTES, len, &error);
    if (*text == NULL) {
        printf("# %s\n", error->message);
    }
    return *text != NULL;
}

static bool replay(const char *path, int mutations)
{
    g_autofree char *text = NULL;
    size_t len;
    VjRng r;

    if (!read_input(path, &text, &len)) {
        return false;
    }
    run_exact((const uint8_t *)text, len);
    vj_rng_init(&r, SEED);
    for (int n = 0; n < mutations; n++) {
        g_autoptr(GByteArray) data = g_byte_array_new();

        g_byte_array_append(data, (const uint8_t *)text, (guint)len);
        mutate(&r, data);
        run_exact(data->data, data->len);
    }
    return true;
}

/* tests/fuzz/corpus/NAME of the source tree; owned. */
static char *corpus_dir(const char *program)
{
    g_autofree char *base = g_path_get_basename(program);
    const char *name = g_str_has_prefix(base, "lt-") ? base + 3 : base;
    const char *top = getenv("VARJFS_SRCDIR");

    name = g_str_has_prefix(name, "fuzz-") ? name + 5 : name;
    return g_build_filename(top != NULL ? top : ".", "tests/fuzz/corpus", name, NULL);
}

static int compare_names(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The files of @dir in order; owned. */
static GPtrArray *list(const char *dir)
{
    GPtrArray *paths = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GDir) entries = g_dir_open(dir, 0, NULL);
    const char *name;

    while (entries != NULL && (name = g_dir_read_name(entries)) != NULL) {
        g_ptr_array_add(paths, g_build_filename(dir, name, NULL));
    }
    g_ptr_array_sort(paths, compare_names);
    return paths;
}

int main(int argc, char **argv)
{
    g_autofree char *dir = corpus_dir(argv[0]);
    g_autoptr(GPtrArray) paths = argc > 1 ? g_ptr_array_new() : list(dir);
    bool passed = true;

    for (int i = 1; i < argc; i++) {
        g_ptr_array_add(paths, argv[i]);
    }
    printf("1..%u\n", MAX(paths->len, 1u));
    if (paths->len == 0) {
        printf("not ok 1 - there is a corpus in %s\n", dir);
        return 1;
    }
    printf("# seed %" G_GUINT64_FORMAT "\n", SEED);
    for (guint i = 0; i < paths->len; i++) {
        const char *path = g_ptr_array_index(paths, i);
        g_autofree char *name = g_path_get_basename(path);
        bool ok;

        fflush(stdout);
        ok = replay(path, argc > 1 ? 0 : fuzz_mutations);
        printf("%s %u - %s\n", ok ? "ok" : "not ok", i + 1, name);
        passed = passed && ok;
    }
    return passed ? 0 : 1;
}
