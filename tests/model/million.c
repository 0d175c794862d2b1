/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * million.c - what an edit and a cold read cost on a map of 10^6 entries
 *
 * A file of 1000 objects is copied 1000 times behind another, which shares the objects
 * and makes a map of a million entries over 32 GiB.  Then counts are asserted: map
 * nodes written by an insert, metadata read by a cold open and a read of 4 KiB, and
 * memory.
 *
 *     million [--entries N] [--dir DIR]
 *
 * Prints TAP.
 */
#include "common.h"
#include "file/records.h"
#include "fsck/fsck.h"
#include "volume/volume.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* What the assertions allow. */
#define NODES_WRITTEN_MOST 8u
#define READS_MOST 6u
/* A quarter of what the map's entries take when all are loaded.  A worker that has its
 * first turn here brings its buffers and its part of the heap, 2 MiB or so; how many do
 * is the scheduler's. */
#define MEMORY_KIB_MOST(entries) ((entries)*ENTRY_BYTES / 4 / 1024)
#define ENTRY_BYTES 32u

#define SEED_OBJECTS 1000u
#define OBJECT_BYTES ((size_t)32 << 10) /* the mean */
#define INSERT_BYTES 4096u

static char *source;
static VjVolume *volume;
static unsigned results, failed;

static void die(const char *what, const char *why)
{
    printf("Bail out! %s: %s\n", what, why);
    fflush(NULL);
    _exit(1);
}

static void must(int r, const char *what)
{
    if (r != 0) {
        die(what, g_strerror(-r));
    }
}

static void at_most(const char *name, uint64_t got, uint64_t most)
{
    results++;
    failed += got > most;
    printf("%sok %u - %s: %" G_GUINT64_FORMAT ", at most %" G_GUINT64_FORMAT "\n",
           got > most ? "not " : "", results, name, got, most);
}

static void is_true(const char *name, bool ok)
{
    results++;
    failed += !ok;
    printf("%sok %u - %s\n", ok ? "" : "not ", results, name);
}

/* ---- the volume ------------------------------------------------------------------ */

static void volume_make(void)
{
    g_autoptr(GError) error = NULL;
    VjVolumeMake how = {.source = source, .options = "objects=32K", .force = true};

    if (!vj_volume_make(&how, &error)) {
        die("make", error->message);
    }
}

static void volume_open(bool check)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {
        .source = source, .check = check, .commit_seconds = 600, .cache_bytes = 1 << 20};

    if (!vj_volume_open(&how, &volume, &error)) {
        die("open", error->message);
    }
}

static int create_body(VjTxn *txn, void *opaque)
{
    uint64_t *ino = opaque;
    int r = vj_ino_take(txn, ino);
    VjInode inode = {.ino = *ino, .generation = 1, .mode = S_IFREG | 0644, .nlink = 1};

    return r < 0 ? r : vj_inode_put(txn, &inode);
}

static VjFile *create(void)
{
    uint64_t ino;
    VjFile *f;

    must(vj_meta_run(vj_volume_meta(volume), VJ_RUN_DEFAULT, create_body, &ino),
         "create");
    must(vj_file_open(vj_volume_files(volume), ino, &f), "open");
    return f;
}

static bool count_extent(void *opaque, const VjFileExtent *extent)
{
    uint64_t *count = opaque;

    (void)extent;
    ++*count;
    return true;
}

static uint64_t size_of(uint64_t ino)
{
    VjInode inode;

    must(vj_file_getattr(vj_volume_files(volume), ino, &inode), "getattr");
    return inode.size;
}

/* ---- making the map -------------------------------------------------------------- */

static VjFile *make_seed(void)
{
    g_autofree uint8_t *bytes = g_malloc(VJ_MIB);
    VjFile *f = create();
    VjRng rng;

    vj_rng_init(&rng, 1);
    for (uint64_t at = 0; at < SEED_OBJECTS * OBJECT_BYTES; at += VJ_MIB) {
        vj_rng_bytes(&rng, bytes, VJ_MIB);
        must(vj_file_write(f, at, bytes, VJ_MIB, false, NULL), "write");
    }
    must(vj_file_sync(f), "sync");
    return f;
}

static uint64_t append_copy(VjFile *seed, uint64_t seed_size, VjFile *big, uint64_t end)
{
    uint64_t from = 0, copied = 1;

    while (from < seed_size && copied > 0) {
        must(vj_file_copy(seed, from, big, end + from, seed_size - from, &copied),
             "copy");
        from += copied;
    }
    return end + from;
}

static uint64_t make_big(uint64_t entries)
{
    g_autoptr(VjFile) seed = make_seed();
    g_autoptr(VjFile) big = create();
    uint64_t seed_size = size_of(vj_file_ino(seed)), per_copy = 0, count = 0, end = 0;

    must(vj_file_extents(seed, 0, count_extent, &per_copy), "extents");
    for (uint64_t i = 0; i * per_copy < entries; i++) {
        end = append_copy(seed, seed_size, big, end);
        if (i % 16 == 15) {
            must(vj_file_commit(big), "commit");
        }
    }
    must(vj_file_sync(big), "sync");
    must(vj_file_extents(big, 0, count_extent, &count), "extents");
    printf("# %" G_GUINT64_FORMAT " entries over %" G_GUINT64_FORMAT " GiB\n", count,
           end >> 30);
    is_true("the map has the entries that were asked for", count >= entries);
    return vj_file_ino(big);
}

/* ---- what is counted ------------------------------------------------------------- */

/* Everything that a small file needs is in memory after this: threads, buffers. */
static void warm_up(void)
{
    g_autoptr(VjFile) f = create();
    g_autofree uint8_t *bytes = g_malloc(VJ_MIB);
    VjRng rng;
    size_t got;

    vj_rng_init(&rng, 2);
    vj_rng_bytes(&rng, bytes, VJ_MIB);
    must(vj_file_write(f, 0, bytes, VJ_MIB, false, NULL), "write");
    must(vj_file_sync(f), "sync");
    must(vj_file_replace(f, 500000, 0, bytes, INSERT_BYTES, false, NULL), "insert");
    must(vj_file_sync(f), "sync");
    must(vj_file_read(f, 0, bytes, VJ_MIB, &got), "read");
}

static uint64_t sum_of_gets(const VjMetaStats *a, const VjMetaStats *b)
{
    return b->gets[VJ_SPACE_NODE] - a->gets[VJ_SPACE_NODE] + b->gets[VJ_SPACE_INODE] -
           a->gets[VJ_SPACE_INODE] + b->gets[VJ_SPACE_OBJECT] - a->gets[VJ_SPACE_OBJECT];
}

/* What one open and one read at @at cost. */
static uint64_t cost_of_read(uint64_t ino, uint64_t at)
{
    g_autoptr(VjFile) big = NULL;
    uint8_t bytes[4096];
    VjMetaStats before, after;
    size_t got;

    vj_meta_stats(vj_volume_meta(volume), &before);
    must(vj_file_open(vj_volume_files(volume), ino, &big), "open");
    must(vj_file_read(big, at, bytes, sizeof bytes, &got), "read");
    vj_meta_stats(vj_volume_meta(volume), &after);
    is_true("the read is whole", got == sizeof bytes);
    return sum_of_gets(&before, &after);
}

/* In places of their own, so each is as cold as the first.  The volume's threads, which
 * tidy up behind what was written before, can only add to a figure; so does an end of an
 * object within the 4 KiB, about one time in three. */
static void cold_read(uint64_t ino)
{
    uint64_t size = size_of(ino), least = UINT64_MAX;

    for (uint64_t part = 3; part <= 23; part += 2) {
        uint64_t cost = cost_of_read(ino, size / part);

        printf("# read at 1/%u: %u\n", (unsigned)part, (unsigned)cost);
        least = MIN(least, cost);
    }
    at_most("nodes and records read by a cold open and a read of 4 KiB", least,
            READS_MOST);
}

static void insert(uint64_t ino)
{
    g_autoptr(VjFile) big = NULL;
    uint8_t bytes[INSERT_BYTES], back[INSERT_BYTES];
    uint64_t at = size_of(ino) / 2 + 12345, nodes;
    VjMetaStats before, after;
    VjRng rng;
    size_t got;

    vj_rng_init(&rng, 3);
    vj_rng_bytes(&rng, bytes, sizeof bytes);
    must(vj_file_open(vj_volume_files(volume), ino, &big), "open");
    vj_meta_stats(vj_volume_meta(volume), &before);
    must(vj_file_replace(big, at, 0, bytes, sizeof bytes, false, NULL), "insert");
    must(vj_file_sync(big), "sync");
    vj_meta_stats(vj_volume_meta(volume), &after);
    nodes = after.puts[VJ_SPACE_NODE] - before.puts[VJ_SPACE_NODE];
    is_true("the insert writes map nodes", nodes > 0);
    at_most("map nodes written by an insert", nodes, NODES_WRITTEN_MOST);
    must(vj_file_read(big, at, back, sizeof back, &got), "read");
    is_true("what was inserted is there",
            got == sizeof back && memcmp(bytes, back, sizeof back) == 0);
}

static void say(void *opaque, const char *text)
{
    (void)opaque;
    printf("# %s\n", text);
}

static void check(void)
{
    VjCheckReport r = {0};

    volume_open(true);
    must(vj_fsck_contents(volume, false, say, NULL, &r), "check");
    is_true("the volume is clean", r.problems == 0 && r.leaks == 0);
    must(vj_volume_close(volume), "close");
}

static void run(uint64_t entries)
{
    uint64_t ino, before, after;

    volume_make();
    volume_open(false);
    ino = make_big(entries);
    must(vj_volume_close(volume), "close");
    volume_open(false);
    warm_up();
    before = memory_kib();
    cold_read(ino);
    insert(ino);
    after = memory_kib();
    at_most("memory grows, KiB", after > before ? after - before : 0,
            MEMORY_KIB_MOST(entries));
    must(vj_volume_close(volume), "close");
    check();
}

int main(int argc, char **argv)
{
    const char *dir = g_get_tmp_dir();
    g_autofree char *command = NULL;
    uint64_t entries = 1000000;
    const ModelOption options[] = {
        {"entries", "N", .number = &entries, .least = 1, .most = UINT32_MAX},
        {"dir", "DIR", .text = &dir},
    };

    g_free(options_parse(argc, argv, options, G_N_ELEMENTS(options)));
    source = g_strdup_printf("%s/varjfs-million-XXXXXX", dir);
    if (g_mkdtemp(source) == NULL) {
        die(source, g_strerror(errno));
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    run(entries);
    printf("1..%u\n", results);
    command = g_strdup_printf("rm -rf '%s'", source);
    return system(command) == 0 && failed == 0 ? 0 : 1;
}
