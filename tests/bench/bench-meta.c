/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-meta.c - how many small transactions a second, against a bare GTree in the same
 * run?
 *
 * Keys of 16 bytes, values of 100, in $TMPDIR.  "put" is one vj_meta_run with one put,
 * "create" one with two gets and four puts, of which one is at random, as a file's
 * creation; "get" and "next" are one read transaction each with one call.  Durability
 * goes on in the background as it always does.  Rounds are interleaved; figures are
 * medians of 7.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "figure.h"
#include "meta/meta.h"

#define ROUNDS 7
#define ROUND_COUNT 100000u /* calls of each candidate in a round */

typedef struct Key {
    uint8_t bytes[16];
} Key;

typedef struct Bench {
    VjMeta *meta;
    GTree *tree;
    uint64_t number; /* of the next key */
} Bench;

typedef struct Candidate {
    const char *name;
    void (*run)(Bench *b);
    double kilo_per_s[ROUNDS];
} Candidate;

static void must(int rc)
{
    if (rc < 0) {
        g_error("%s", g_strerror(-rc));
    }
}

static void found(int rc)
{
    must(rc == -ENOENT ? 0 : rc);
}

/* Half of the keys grow, half are spread like digests. */
static Key key_of(uint64_t number)
{
    Key k;
    uint64_t spread = number * UINT64_C(0x9e3779b97f4a7c15);

    vj_be64_set(k.bytes, number % 2 == 0 ? number : spread);
    vj_be64_set(k.bytes + 8, number);
    return k;
}

static VjSlice slice_of(const Key *k)
{
    return vj_slice(k->bytes, sizeof k->bytes);
}

static VjSlice value_of(uint64_t number)
{
    static uint8_t bytes[100];

    vj_be64_set(bytes, number);
    return vj_slice(bytes, sizeof bytes);
}

static gint compare_keys(gconstpointer a, gconstpointer b, gpointer unused)
{
    (void)unused;
    return memcmp(a, b, sizeof(Key));
}

static void run_tree(Bench *b)
{
    for (unsigned i = 0; i < ROUND_COUNT; i++, b->number++) {
        Key k = key_of(b->number);
        VjSlice v = value_of(b->number);

        g_tree_replace(b->tree, g_memdup2(&k, sizeof k), g_memdup2(v.data, v.len));
    }
}

static int put_body(VjTxn *txn, void *opaque)
{
    uint64_t number = *(uint64_t *)opaque;
    Key k = key_of(number);

    return vj_txn_put(txn, VJ_SPACE_INDEX, slice_of(&k), value_of(number));
}

static void run_put(Bench *b)
{
    for (unsigned i = 0; i < ROUND_COUNT; i++, b->number++) {
        must(vj_meta_run(b->meta, VJ_RUN_DEFAULT, put_body, &b->number));
    }
}

static int create_body(VjTxn *txn, void *opaque)
{
    uint64_t number = *(uint64_t *)opaque;
    Key inode = key_of(number * 2), name = key_of(number * 2 + 1), parent = key_of(0);
    VjSlice value;

    found(vj_txn_get(txn, VJ_SPACE_INODE, slice_of(&parent), &value));
    if (vj_txn_get(txn, VJ_SPACE_DENTRY, slice_of(&name), &value) == 0) {
        return -EEXIST;
    }
    must(vj_txn_put(txn, VJ_SPACE_INODE, slice_of(&inode), value_of(number)));
    must(vj_txn_put(txn, VJ_SPACE_COOKIE, slice_of(&inode), value_of(number)));
    must(vj_txn_put(txn, VJ_SPACE_DENTRY, slice_of(&name), value_of(number)));
    return vj_txn_put(txn, VJ_SPACE_INODE, slice_of(&parent), value_of(number));
}

static void run_create(Bench *b)
{
    for (unsigned i = 0; i < ROUND_COUNT; i++, b->number++) {
        must(vj_meta_run(b->meta, VJ_RUN_DEFAULT, create_body, &b->number));
    }
}

static int get_body(VjTxn *txn, void *opaque)
{
    const Key *k = opaque;
    VjSlice value;

    found(vj_txn_get(txn, VJ_SPACE_INDEX, slice_of(k), &value));
    return 0;
}

static void run_get(Bench *b)
{
    for (unsigned i = 0; i < ROUND_COUNT; i++) {
        Key k = key_of(g_random_int_range(0, (gint32)b->number));

        must(vj_meta_view(b->meta, get_body, &k));
    }
}

static int next_body(VjTxn *txn, void *opaque)
{
    VjSlice key = vj_slice(NULL, 0), value;

    (void)opaque;
    for (unsigned i = 0; i < ROUND_COUNT; i++) {
        if (vj_txn_next(txn, VJ_SPACE_INDEX, key, &key, &value) < 0) {
            key = vj_slice(NULL, 0);
        }
    }
    return 0;
}

static void run_next(Bench *b)
{
    must(vj_meta_view(b->meta, next_body, NULL));
}

static void run_flush(Bench *b)
{
    must(vj_meta_flush(b->meta));
}

static Candidate candidates[] = {
    {.name = "insert into a GTree", .run = run_tree},
    {.name = "put", .run = run_put},
    {.name = "create", .run = run_create},
    {.name = "get", .run = run_get},
    {.name = "next", .run = run_next},
    {.name = "flush", .run = run_flush},
};

static void run_all(Bench *b)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < G_N_ELEMENTS(candidates); i++) {
            int64_t begin_us = vj_clock_mono_us(), took_us;

            candidates[i].run(b);
            took_us = MAX(vj_clock_mono_us() - begin_us, 1);
            candidates[i].kilo_per_s[round] =
                (double)ROUND_COUNT * 1000 / (double)took_us;
        }
    }
}

static void report(void)
{
    figure_print(candidates[0].name, "thousand/s", candidates[0].kilo_per_s, ROUNDS);
    for (size_t i = 1; i + 1 < G_N_ELEMENTS(candidates); i++) {
        figure_against(candidates[i].name, "thousand/s", candidates[i].kilo_per_s, ROUNDS,
                       "higher", candidates[0].name, NULL);
    }
}

int main(int argc, char **argv)
{
    g_autofree char *path = g_build_filename(g_get_tmp_dir(), "bench-meta-XXXXXX", NULL);
    Bench b = {.tree = g_tree_new_full(compare_keys, NULL, g_free, g_free)};
    GError *error = NULL;
    VjMetaPlace place = {.create = true};

    place.path = g_mkdtemp(path);
    place.dir_fd =
        place.path == NULL ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place.dir_fd < 0 ||
        !vj_meta_open(argc > 1 ? argv[1] : "lmdb", &place, &b.meta, &error)) {
        g_error("%s: %s", path, error != NULL ? error->message : g_strerror(errno));
    }
    run_all(&b);
    report();
    must(vj_meta_close(b.meta));
    (void)unlinkat(place.dir_fd, "data.mdb", 0);
    (void)unlinkat(place.dir_fd, "lmdb/data.mdb", 0);
    (void)unlinkat(place.dir_fd, "lmdb/lock.mdb", 0);
    (void)unlinkat(place.dir_fd, "lmdb", AT_REMOVEDIR);
    (void)unlinkat(place.dir_fd, "redo.log", 0);
    close(place.dir_fd);
    (void)rmdir(path);
    g_tree_destroy(b.tree);
    return 0;
}
