/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-nodes.c - how many objects of 4 KiB and keys a second at a node, one by one?
 *
 * By the drivers remote of the rooms store and meta, as a mount has them.  Of an object
 * or key under
 *
 *     none     nobody waits for it: objects are in flight, 64 of them; keys are visible
 *              here, and go to the node together
 *     network  it is at the node
 *     storage  it is durable there
 *
 * "get" asks for keys that this process has not seen.  Values of a figure are rounds.
 *
 * usage: bench-nodes ADDRESS VOLUME COUNT [KIND]: of KIND alone, "object read" say
 */
#include <stdio.h>
#include <stdlib.h>

#include "figure.h"
#include "meta/meta.h"
#include "store/store.h"

#define ROUNDS 5
#define OBJECT_BYTES ((size_t)4096)
#define IN_FLIGHT 64u

typedef struct Bench {
    VjStore *store;
    VjMeta *meta;
    unsigned count;
    uint64_t next_id, next_key;
    VjPut *puts; /* of the last round */
    uint8_t bytes[OBJECT_BYTES];
    VjMutex lock; /* VJ_RANK_BASE */
    VjCond ended;
    unsigned in_flight; /* guarded by lock */
} Bench;

static void must(int rc, const char *what)
{
    if (rc < 0) {
        fprintf(stderr, "bench-nodes: %s: %s\n", what, g_strerror(-rc));
        exit(1);
    }
}

/* ---- objects ----------------------------------------------------------------------- */

static void put(Bench *b, unsigned i, bool durable)
{
    struct iovec iov = {.iov_base = b->bytes, .iov_len = OBJECT_BYTES};

    must(vj_store_put(b->store, b->next_id++, &iov, 1, &b->puts[i]), "put");
    if (durable) {
        must(vj_store_flush(b->store), "flush");
    }
}

static void write_network(Bench *b)
{
    for (unsigned i = 0; i < b->count; i++) {
        put(b, i, false);
    }
}

static void write_storage(Bench *b)
{
    for (unsigned i = 0; i < b->count; i++) {
        put(b, i, true);
    }
}

static void put_done(VjIo *io)
{
    Bench *b = io->opaque;

    must(io->rc, "put");
    vj_mutex_lock(&b->lock);
    b->in_flight--;
    vj_cond_signal(&b->ended);
    vj_mutex_unlock(&b->lock);
}

static void wait_until_in_flight(Bench *b, unsigned most)
{
    vj_mutex_lock(&b->lock);
    while (b->in_flight > most) {
        vj_cond_wait(&b->ended, &b->lock);
    }
    vj_mutex_unlock(&b->lock);
}

static void write_none(Bench *b)
{
    g_autoptr(GPtrArray) ios =
        g_ptr_array_new_with_free_func((GDestroyNotify)vj_io_unref);

    for (unsigned i = 0; i < b->count; i++) {
        VjBuf *buf = vj_buf_new(OBJECT_BYTES);
        VjIo *io;

        memcpy(buf->data, b->bytes, OBJECT_BYTES);
        io = vj_io_new_put(b->next_id++, buf, OBJECT_BYTES);
        vj_buf_unref(buf);
        io->done = put_done;
        io->opaque = b;
        wait_until_in_flight(b, IN_FLIGHT - 1);
        vj_mutex_lock(&b->lock);
        b->in_flight++;
        vj_mutex_unlock(&b->lock);
        if (!vj_store_submit(b->store, io)) {
            must(-EBUSY, "submit");
        }
        g_ptr_array_add(ios, io);
    }
    wait_until_in_flight(b, 0);
    for (unsigned i = 0; i < b->count; i++) {
        b->puts[i] = ((VjIo *)ios->pdata[i])->put;
    }
}

static void read_all(Bench *b)
{
    uint8_t dst[OBJECT_BYTES];

    for (unsigned i = 0; i < b->count; i++) {
        must(vj_store_get(b->store, b->puts[i].id, b->puts[i].loc, 0, dst, sizeof dst),
             "get");
    }
}

static void status_all(Bench *b)
{
    uint8_t none;

    for (unsigned i = 0; i < b->count; i++) {
        must(
            vj_store_get(b->store, b->puts[i].id, b->puts[i].loc, OBJECT_BYTES, &none, 0),
            "status");
    }
}

static void delete_each(Bench *b)
{
    for (unsigned i = 0; i < b->count; i++) {
        must(vj_store_remove(b->store, b->puts[i].id, b->puts[i].loc), "remove");
    }
}

static void delete_together(Bench *b)
{
    g_autofree int *results = g_new(int, b->count);

    for (unsigned i = 0; i < b->count; i += IN_FLIGHT) {
        vj_store_remove_all(b->store, b->puts + i, MIN(IN_FLIGHT, b->count - i), results);
        must(results[0], "remove");
    }
}

/* ---- keys -------------------------------------------------------------------------- */

static int put_key_body(VjTxn *txn, void *opaque)
{
    static const uint8_t value[100];
    uint8_t key[8];

    vj_be64_set(key, *(uint64_t *)opaque);
    return vj_txn_put(txn, VJ_SPACE_INDEX, vj_slice(key, sizeof key),
                      vj_slice(value, sizeof value));
}

static void put_keys(Bench *b, int (*then)(VjMeta *m))
{
    for (unsigned i = 0; i < b->count; i++, b->next_key++) {
        must(vj_meta_run(b->meta, VJ_RUN_DEFAULT, put_key_body, &b->next_key), "key");
        if (then != NULL) {
            must(then(b->meta), "key");
        }
    }
    must(vj_meta_flush(b->meta), "flush of keys");
}

static void put_none(Bench *b)
{
    put_keys(b, NULL);
}

static void put_network(Bench *b)
{
    put_keys(b, vj_meta_send);
}

static void put_storage(Bench *b)
{
    put_keys(b, vj_meta_flush);
}

static int get_key_body(VjTxn *txn, void *opaque)
{
    uint8_t key[8];
    VjSlice value;
    int rc;

    vj_be64_set(key, *(uint64_t *)opaque);
    rc = vj_txn_get(txn, VJ_SPACE_INODE, vj_slice(key, sizeof key), &value);
    return rc == -ENOENT ? 0 : rc;
}

/* Each is a question to the node: this process has not asked for it before. */
static void get_keys(Bench *b)
{
    for (unsigned i = 0; i < b->count; i++, b->next_key++) {
        must(vj_meta_view(b->meta, get_key_body, &b->next_key), "get");
    }
}

/* ---- all --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(Bench *b);
} kinds[] = {
    {"object write 4 KiB, storage", write_storage},
    {"object delete", delete_each},
    {"object write 4 KiB, none", write_none},
    {"object delete, 64 in flight", delete_together},
    {"object write 4 KiB, network", write_network},
    {"object read 4 KiB", read_all},
    {"object status", status_all},
    {"key put, none", put_none},
    {"key put, network", put_network},
    {"key put, storage", put_storage},
    {"key get", get_keys},
};

static double measure(Bench *b, void (*run)(Bench *b))
{
    int64_t begin_us = vj_clock_mono_us();

    run(b);
    return b->count * 1e6 / (double)MAX(vj_clock_mono_us() - begin_us, 1);
}

int main(int argc, char **argv)
{
    const char *kind;
    g_autofree char *store = NULL, *meta = NULL;
    g_autoptr(GError) error = NULL;
    double per_s[G_N_ELEMENTS(kinds)][ROUNDS];
    Bench b = {.next_id = 1};
    g_autofree char *volume = g_uuid_string_random();
    VjStorePlace store_place = {
        .dir_fd = -1, .path = "bench", .volume = volume, .create = true};
    VjMetaPlace meta_place = {
        .dir_fd = -1, .path = "bench", .volume = volume, .create = true};

    if (argc < 4 || argc > 5 || atoi(argv[3]) <= 0) {
        fprintf(stderr, "usage: bench-nodes ADDRESS VOLUME COUNT [KIND]\n");
        return 2;
    }
    vj_memory_init((size_t)4 << 20); /* as a mount does */
    kind = argc == 5 ? argv[4] : "";
    b.count = (unsigned)atoi(argv[3]);
    b.puts = g_new0(VjPut, b.count);
    vj_mutex_init(&b.lock, VJ_RANK_BASE, "bench");
    vj_cond_init(&b.ended);
    store = g_strdup_printf("remote:%s:replicas=1,volume=%s,insecure", argv[1], argv[2]);
    meta = g_strdup_printf("remote:%s:volume=%s,insecure", argv[1], argv[2]);
    if (!vj_meta_open(meta, &meta_place, &b.meta, &error) ||
        !vj_store_open(store, &store_place, &b.store, &error)) {
        fprintf(stderr, "bench-nodes: %s\n", error->message);
        return 1;
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        write_none(&b); /* objects for those of one kind alone */
        for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
            if (strstr(kinds[i].name, kind) != NULL) {
                per_s[i][round] = measure(&b, kinds[i].run);
            }
        }
        delete_together(&b);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
        if (strstr(kinds[i].name, kind) != NULL) {
            figure_print(kinds[i].name, "1/s", per_s[i], ROUNDS);
        }
    }
    vj_store_close(b.store);
    must(vj_meta_close(b.meta), "close");
    g_free(b.puts);
    return 0;
}
