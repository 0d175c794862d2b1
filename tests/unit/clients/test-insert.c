/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-insert.c - what 4 KiB in the middle of an object cost, counted: requests that
 * libvarjfs sends, nodes of the map and bytes of the metadata that are written
 *
 * The library is on one side of a pair of sockets, on the other a thread answers by the
 * room clients.  Objects of 1 MiB and 10 GiB; the large one has its content in islands,
 * most of them around the middle, so that its map has many entries.
 * VARJFS_INSERT_MIB=N: one of N MiB without holes too; 1024 and 10240 are the long form.
 */
#include "request.h"

#include "../../../lib/client/client-private.h"

#include <sys/socket.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define INSERT_BYTES 4096u
#define PIECE_BYTES ((size_t)4 << 20)
/* Of the large object. */
#define ISLANDS 3000u
#define ISLAND_BYTES 4096u
/* What an insert may cost at most, however large the object is. */
#define REQUESTS_MAX 3u
#define NODES_MAX 4u
#define BYTES_MAX 65536u

/* ---- the daemon -------------------------------------------------------------------- */

typedef struct Daemon {
    VjClients *c;
    int fd;
    GThread *thread;
    gint requests; /* atomic */
} Daemon;

static bool receive(int fd, void *dst, size_t len)
{
    return len == 0 || recv(fd, dst, len, MSG_WAITALL) == (ssize_t)len;
}

static void send_whole(int fd, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    while (len > 0) {
        ssize_t sent = send(fd, at, len, MSG_NOSIGNAL);

        g_assert(sent > 0);
        at += sent;
        len -= (size_t)sent;
    }
}

static void answer(Daemon *d, const VjFrame *asked, const uint8_t *body)
{
    VjClientsReply reply = {0};
    VjFrame frame = {.flags = VJ_FRAME_REPLY, .op = asked->op, .tag = asked->tag};
    g_autoptr(GByteArray) out = g_byte_array_new();
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    int rc;

    if (asked->op == VARJFS_WIRE_BATCH) {
        rc = vj_clients_batch(d->c, vj_slice(body, asked->message_bytes),
                              vj_slice(body + asked->message_bytes, asked->bulk_bytes),
                              false, NULL, (VjClientsArea){0}, &reply);
    } else {
        g_assert(asked->op == VARJFS_WIRE_SYNC);
        rc = vj_clients_sync(d->c);
    }
    g_assert(rc == 0);
    if (reply.message != NULL) {
        g_byte_array_append(out, reply.message->data, reply.message->len);
        frame.message_bytes = reply.message->len;
    }
    if (reply.bulk_bytes > 0) {
        g_byte_array_append(out, reply.bulk->data, reply.bulk_bytes);
        frame.bulk_bytes = reply.bulk_bytes;
    }
    frame.body_checksum = out->len > 0 ? vj_checksum64(out->data, out->len) : 0;
    vj_frame_encode(&frame, head);
    send_whole(d->fd, head, sizeof head);
    send_whole(d->fd, out->data, out->len);
    vj_clients_reply_clear(&reply);
}

/* The test has no cmocka here: what must hold is asserted. */
static gpointer serve(gpointer opaque)
{
    Daemon *d = opaque;
    uint8_t head[VJ_FRAME_HEAD_BYTES];

    while (receive(d->fd, head, sizeof head)) {
        g_autofree uint8_t *body = NULL;
        VjFrame frame;

        g_assert(vj_frame_decode(head, &frame) == 0);
        body = g_malloc((size_t)frame.message_bytes + frame.bulk_bytes + 1);
        g_assert(receive(d->fd, body, (size_t)frame.message_bytes + frame.bulk_bytes));
        if (frame.op != VJ_OP_PING) {
            g_atomic_int_inc(&d->requests);
            answer(d, &frame, body);
        }
    }
    return NULL;
}

static varjfs *daemon_start(Daemon *d, Fixture *x)
{
    VjClientsOpen how = {.source = x->dir, .name = "test", .wrap_meta = "stats"};
    g_autoptr(GError) error = NULL;
    int ends[2];
    varjfs *v;

    assert_int_equal(vj_clients_close(x->c), 0);
    if (!vj_clients_open(&how, &x->c, &error)) {
        fail_msg("%s", error->message);
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    d->c = x->c;
    d->fd = ends[0];
    d->thread = g_thread_new("daemon", serve, d);
    v = vjc_connection_new(ends[1], NULL, 120000);
    assert_non_null(v);
    return v;
}

/* ---- objects ----------------------------------------------------------------------- */

static uint64_t size_of(varjfs *v, varjfs_batch *b)
{
    struct varjfs_object_status status = {.size = sizeof status};

    assert_int_equal(varjfs_object_status(b, "s", "o", &status, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    return v != NULL ? status.bytes : 0;
}

/* Bytes that are not alike, and follow from where they are. */
static void fill(uint8_t *dst, uint64_t offset, size_t len)
{
    VjRng rng;

    vj_rng_init(&rng, offset);
    vj_rng_bytes(&rng, dst, len);
}

static void make_full(varjfs_batch *b, uint64_t bytes)
{
    g_autofree uint8_t *piece = g_malloc(PIECE_BYTES);

    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t len = (size_t)MIN(PIECE_BYTES, bytes - at);

        fill(piece, at, len);
        assert_int_equal(
            varjfs_object_write(b, "s", "o", piece, len, at, VARJFS_CREATE, NULL), 0);
        assert_int_equal(varjfs_batch_execute(b), 0);
    }
}

/* Islands at the middle, from there to both ends further and further apart. */
static uint64_t island_at(uint64_t bytes, unsigned n)
{
    uint64_t half = bytes / 2 - ISLAND_BYTES, away = n / 2, steps = ISLANDS / 2;
    uint64_t distance = half / steps / steps * away * away / 4096 * 4096;

    return n % 2 == 0 ? bytes / 2 + distance + away * ISLAND_BYTES / 2
                      : bytes / 2 - distance - away * ISLAND_BYTES / 2 - ISLAND_BYTES;
}

static void make_islands(varjfs_batch *b, uint64_t bytes)
{
    g_autofree uint8_t *all = g_malloc((size_t)ISLANDS * ISLAND_BYTES);

    assert_int_equal(varjfs_object_create(b, "s", "o", NULL, NULL), 0);
    assert_int_equal(varjfs_object_resize(b, "s", "o", bytes, NULL), 0);
    for (unsigned n = 0; n < ISLANDS; n++) {
        uint64_t at = island_at(bytes, n);
        uint8_t *piece = all + (size_t)n * ISLAND_BYTES;

        if (at > bytes - ISLAND_BYTES) {
            continue;
        }
        fill(piece, at, ISLAND_BYTES);
        assert_int_equal(
            varjfs_object_write(b, "s", "o", piece, ISLAND_BYTES, at, 0, NULL), 0);
    }
    assert_int_equal(varjfs_batch_execute(b), 0);
}

/* ---- what it costs ----------------------------------------------------------------- */

typedef struct Cost {
    int requests;
    uint64_t nodes, nodes_of_map; /* written; all that the map has */
    uint64_t commits, bytes;      /* of the log of the metadata */
} Cost;

static Cost cost_now(const Daemon *d)
{
    VjMeta *meta = vj_volume_meta(vj_clients_volume(d->c));
    VjMetaStats s;

    vj_meta_stats(meta, &s);
    return (Cost){.requests = g_atomic_int_get(&d->requests),
                  .nodes = s.puts[VJ_SPACE_NODE],
                  .nodes_of_map = s.puts[VJ_SPACE_NODE] - s.dels[VJ_SPACE_NODE],
                  .commits = s.commits,
                  .bytes = s.log.bytes};
}

static void expect_bytes(varjfs_batch *b, uint64_t offset, const uint8_t *bytes,
                         size_t len)
{
    g_autofree uint8_t *got = g_malloc(len);
    size_t count;

    assert_int_equal(varjfs_object_read(b, "s", "o", got, len, offset, &count, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(count, len);
    assert_memory_equal(got, bytes, len);
}

/* 4 KiB in the middle, durable when it returns; what was behind is behind them. */
static Cost insert(Daemon *d, varjfs *v)
{
    struct varjfs_semantics s = {.size = sizeof s};
    uint8_t bytes[INSERT_BYTES], before[INSERT_BYTES], behind[INSERT_BYTES];
    uint64_t size, at;
    varjfs_batch *b;
    Cost cost, now;

    assert_int_equal(varjfs_semantics_template("checkpoint", &s), 0);
    assert_int_equal(varjfs_batch_new(v, &s, &b), 0);
    size = size_of(v, b);
    at = size / 2 + 100;
    assert_int_equal(varjfs_object_read(b, "s", "o", before, sizeof before,
                                        at - sizeof before, NULL, NULL),
                     0);
    assert_int_equal(
        varjfs_object_read(b, "s", "o", behind, sizeof behind, at, NULL, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    memset(bytes, 'i', sizeof bytes);
    cost = cost_now(d);
    assert_int_equal(
        varjfs_object_rwrite(b, "s", "o", bytes, sizeof bytes, at, 0, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    now = cost_now(d);
    assert_int_equal(size_of(v, b), size + sizeof bytes);
    expect_bytes(b, at - sizeof before, before, sizeof before);
    expect_bytes(b, at, bytes, sizeof bytes);
    expect_bytes(b, at + sizeof bytes, behind, sizeof behind);
    varjfs_batch_free(b);
    return (Cost){.requests = now.requests - cost.requests,
                  .nodes = now.nodes - cost.nodes,
                  .nodes_of_map = cost.nodes_of_map,
                  .commits = now.commits - cost.commits,
                  .bytes = now.bytes - cost.bytes};
}

/* @islands: else without holes. */
static Cost cost_of(uint64_t size, bool islands)
{
    void *state;
    Daemon d = {0};
    varjfs_batch *b;
    varjfs *v;
    Cost cost;

    fixture_setup(&state);
    v = daemon_start(&d, state);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    if (islands) {
        make_islands(b, size);
    } else {
        make_full(b, size);
    }
    assert_int_equal(varjfs_sync(v), 0);
    cost = insert(&d, v);
    assert_int_equal(varjfs_close(v), 0);
    g_thread_join(d.thread);
    close(d.fd);
    print_message("# %" G_GUINT64_FORMAT " MiB%s: %d requests, %" G_GUINT64_FORMAT
                  " nodes of %" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
                  " commits, %" G_GUINT64_FORMAT " bytes of metadata\n",
                  size / MIB, islands ? " with holes" : "", cost.requests, cost.nodes,
                  cost.nodes_of_map, cost.commits, cost.bytes);
    fixture_teardown(&state);
    assert_in_range(cost.requests, 1, REQUESTS_MAX);
    assert_in_range(cost.nodes, 0, NODES_MAX);
    assert_in_range(cost.bytes, 1, BYTES_MAX);
    return cost;
}

static void test_insert(void **state)
{
    Cost small = cost_of(MIB, false), large = cost_of(10 * GIB, true);
    const char *more = g_getenv("VARJFS_INSERT_MIB");

    (void)state;
    assert_true(large.nodes_of_map > 10 * NODES_MAX);
    assert_int_equal(small.requests, large.requests);
    assert_int_equal(small.commits, large.commits);
    if (more != NULL) {
        Cost full = cost_of(g_ascii_strtoull(more, NULL, 10) * MIB, false);

        assert_int_equal(small.requests, full.requests);
        assert_int_equal(small.commits, full.commits);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_insert),
};

VJ_TEST_MAIN(tests)
