/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * hostile ADDRESS PID HELD-MiB [CONNECTIONS [SECONDS [SEED]]] - attacks on a node
 *
 *   ADDRESS      without TLS; a volume "home" without a uuid or with the examples', roles
 *                object and meta, that may be adopted
 *   PID          of the node, whose memory is watched; 0: it is not
 *   HELD-MiB     the most that it may hold for connections (memory= of its configuration)
 *   CONNECTIONS  of each attack (500)
 *   SECONDS      of the last attack, random frames (5)
 *
 * Run by hostile.sh.  In all of it an honest client's requests are answered, and the node
 * has no more memory than its limits say.  Prints TAP.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../lib/rpc-frames.h"
#include "honest.h"
#include "raw.h"
#include "report.h"

/* An allocator keeps holes where large buffers were: so many times what is held. */
#define HELD_FACTOR 4u
/* What a connection may cost besides what it holds of requests and replies. */
#define CONNECTION_KIB 64u
/* Threads, the store, the engine, what malloc keeps. */
#define SLACK_KIB (96u << 10)
/* Answers that the honest client gets while an attack lasts. */
#define ANSWERS 40u

static Honest *honest;
static VjRng rng;
static const char *address;
static unsigned connections = 500, seconds = 5;
static uint64_t held_kib, base_kib;

/* ---- what attacks have in common --------------------------------------------------- */

static GArray *sockets_new(void)
{
    return g_array_new(FALSE, FALSE, sizeof(int));
}

static void close_all(GArray *sockets)
{
    for (guint i = 0; i < sockets->len; i++) {
        close(g_array_index(sockets, int, i));
    }
    g_array_set_size(sockets, 0);
}

static GArray *welcome_many(unsigned count, uint8_t role)
{
    GArray *sockets = sockets_new();

    for (unsigned i = 0; i < count; i++) {
        int fd = raw_welcome(role);

        g_array_append_val(sockets, fd);
    }
    return sockets;
}

static GByteArray *example(const char *name, uint64_t tag)
{
    for (const RpcExample *e = rpc_examples; e->name != NULL; e++) {
        if (strcmp(e->name, name) == 0) {
            GByteArray *bytes = rpc_example_frame(e);
            VjFrame frame;

            g_assert(vj_frame_decode(bytes->data, &frame) == 0);
            frame.tag = tag;
            vj_frame_encode(&frame, bytes->data);
            return bytes;
        }
    }
    g_assert_not_reached();
}

/* ---- attacks ----------------------------------------------------------------------- */

/* Noise instead of a hello; some of it too short to be wrong. */
static bool garbage(void)
{
    GArray *sockets = sockets_new();
    bool ok;

    for (unsigned i = 0; i < connections; i++) {
        uint8_t bytes[8192];
        size_t len = 1 + (size_t)vj_rng_below(&rng, sizeof bytes);
        int fd = raw_connect();

        vj_rng_bytes(&rng, bytes, len);
        (void)raw_offer(fd, bytes, len);
        if (len < VJ_FRAME_HEAD_BYTES) {
            g_array_append_val(sockets, fd);
        } else {
            raw_wait_for_end(fd);
        }
    }
    ok = honest_wait(honest, ANSWERS);
    close_all(sockets);
    g_array_unref(sockets);
    return ok;
}

/* Connections that say nothing; a new honest client gets in beside them. */
static bool silence(void)
{
    GArray *sockets = sockets_new();
    bool ok;
    int fd;

    for (unsigned i = 0; i < connections; i++) {
        fd = raw_connect();
        g_array_append_val(sockets, fd);
    }
    fd = raw_welcome(VJ_ROLE_OBJECT);
    close(fd);
    ok = honest_wait(honest, ANSWERS);
    close_all(sockets);
    g_array_unref(sockets);
    return ok;
}

/* A hello, and each a part of a frame, then nothing. */
static bool half_frames(void)
{
    GArray *sockets = welcome_many(connections, VJ_ROLE_OBJECT);
    bool ok;

    for (guint i = 0; i < sockets->len; i++) {
        g_autoptr(GByteArray) put = example("put", 2);

        (void)raw_offer(g_array_index(sockets, int, i), put->data,
                        1 + (size_t)vj_rng_below(&rng, put->len - 1));
    }
    ok = honest_wait(honest, ANSWERS);
    close_all(sockets);
    g_array_unref(sockets);
    return ok;
}

/* All send a frame at the same time, a byte in each round. */
static bool slow_senders(void)
{
    GArray *sockets = welcome_many(connections, VJ_ROLE_OBJECT);
    g_autoptr(GByteArray) put = example("put", 2);
    bool ok = true;

    for (guint at = 0; at + 1 < put->len && ok; at++) {
        for (guint i = 0; i < sockets->len; i++) {
            (void)raw_offer(g_array_index(sockets, int, i), put->data + at, 1);
        }
        ok = honest_wait(honest, 1);
    }
    close_all(sockets);
    g_array_unref(sockets);
    return ok;
}

/* Lengths beyond all limits: each connection is ended, and nothing is reserved. */
static bool huge_lengths(void)
{
    static const struct {
        uint16_t op;
        uint32_t message_bytes, bulk_bytes;
    } heads[] = {
        {VJ_OP_PUT, 17, UINT32_MAX},
        {VJ_OP_PUT, UINT32_MAX, UINT32_MAX},
        {VJ_OP_GET, UINT32_MAX, 0},
        {VJ_OP_PING, 0, 1 << 20},
        {VJ_OP_CANCEL, 1 << 20, 0},
        {VJ_OP_PUT, 17, VJ_WIRE_OBJECT_MAX + 1},
        {VJ_OP_REMOVE, 4u << 20, 0},
        {VJ_OP_HELLO, VJ_WIRE_HELLO_MAX + 1, 0},
        {0x7777, 4u << 20, VJ_WIRE_OBJECT_MAX},
    };

    for (unsigned i = 0; i < connections; i++) {
        unsigned which = i % G_N_ELEMENTS(heads);
        uint8_t head[VJ_FRAME_HEAD_BYTES];
        int fd =
            heads[which].op == VJ_OP_HELLO ? raw_connect() : raw_welcome(VJ_ROLE_OBJECT);

        raw_announce(heads[which].op, heads[which].message_bytes, heads[which].bulk_bytes,
                     head);
        (void)raw_send(fd, head, sizeof head);
        raw_wait_for_end(fd);
    }
    return honest_wait(honest, ANSWERS);
}

/* Objects of all sizes, up to the largest that there may be, are announced and do not
 * come. */
static bool announced(void)
{
    GArray *sockets = welcome_many(connections, VJ_ROLE_OBJECT);
    bool ok;

    for (guint i = 0; i < sockets->len; i++) {
        uint8_t head[VJ_FRAME_HEAD_BYTES];

        raw_announce(VJ_OP_PUT, 17, VJ_WIRE_OBJECT_MAX >> i % 12, head);
        (void)raw_offer(g_array_index(sockets, int, i), head, sizeof head);
    }
    ok = honest_wait(honest, ANSWERS);
    close_all(sockets);
    g_array_unref(sockets);
    return ok;
}

/* Most of an object comes, as much as the node takes, and no more. */
static bool half_objects(void)
{
    unsigned count = MIN(connections, 64u);
    GArray *sockets = welcome_many(count, VJ_ROLE_OBJECT);
    g_autofree uint8_t *bytes = g_malloc0(1 << 20);
    bool ok;

    for (guint i = 0; i < sockets->len; i++) {
        raw_announce(VJ_OP_PUT, 17, VJ_WIRE_OBJECT_MAX, bytes);
        for (unsigned n = 0; n < 16; n++) {
            if (raw_offer(g_array_index(sockets, int, i), bytes, 1 << 20) != RAW_SENT) {
                break;
            }
            memset(bytes, 0, VJ_FRAME_HEAD_BYTES);
        }
    }
    ok = honest_wait(honest, ANSWERS);
    close_all(sockets);
    g_array_unref(sockets);
    return ok;
}

/* An object of a MiB that is there to be asked for. */
static void put_large(int fd, VjWireObject object)
{
    g_autoptr(GByteArray) message = g_byte_array_new(), frame = NULL;
    g_autofree uint8_t *content = g_malloc0(1 << 20);
    VjWirePut m = {.object = object};
    VjFrame reply;

    vj_wire_put_encode(message, &m);
    frame = raw_request(VJ_OP_PUT, 2, vj_slice(message->data, message->len),
                        vj_slice(content, 1 << 20));
    g_assert(raw_send(fd, frame->data, frame->len) == RAW_SENT);
    g_assert_cmpint((int)raw_reply(fd, &reply), ==, VJ_WIRE_OK);
}

/* Each asks for hundreds of MiB and takes none of it. */
static bool answers_not_taken(void)
{
    GArray *sockets = welcome_many(MIN(connections, 64u), VJ_ROLE_OBJECT);
    VjWireObject object = {.id = UINT64_MAX - 1, .nonce = vj_rng_u64(&rng)};
    VjWireGet m = {.object = object, .len = 1 << 20};
    g_autoptr(GByteArray) message = g_byte_array_new();
    bool ok;

    put_large(g_array_index(sockets, int, 0), object);
    vj_wire_get_encode(message, &m);
    for (guint i = 0; i < sockets->len; i++) {
        for (unsigned n = 0; n < 256; n++) {
            g_autoptr(GByteArray) frame =
                raw_request(VJ_OP_GET, 10 + n, vj_slice(message->data, message->len),
                            vj_slice(NULL, 0));

            if (raw_offer(g_array_index(sockets, int, i), frame->data, frame->len) !=
                RAW_SENT) {
                break;
            }
        }
    }
    ok = honest_wait(honest, ANSWERS);
    close_all(sockets);
    g_array_unref(sockets);
    return ok;
}

/* PING and CANCEL, as many as the node takes, without reading. */
static bool floods(void)
{
    GArray *sockets = welcome_many(MIN(connections, 100u), VJ_ROLE_OBJECT);
    bool ok;

    for (guint i = 0; i < sockets->len; i++) {
        for (unsigned n = 0; n < 5000; n++) {
            g_autoptr(GByteArray) frame = example(n % 2 == 0 ? "ping" : "cancel", 10 + n);

            if (raw_offer(g_array_index(sockets, int, i), frame->data, frame->len) !=
                RAW_SENT) {
                break;
            }
        }
    }
    ok = honest_wait(honest, ANSWERS);
    close_all(sockets);
    g_array_unref(sockets);
    return ok;
}

/* An APPLY of as many changes as fit, out of order at the end: it is taken apart before
 * that is seen, and nothing is done. */
static bool many_changes(void)
{
    unsigned count = MIN(connections, 8u);
    GArray *sockets = welcome_many(count, VJ_ROLE_META);
    g_autoptr(GByteArray) message = g_byte_array_new(), bulk = g_byte_array_new();
    g_autoptr(GByteArray) frame = NULL;
    VjWireApply m = {0};
    bool ok = true;

    for (uint32_t i = 0; bulk->len < (16u << 20); i++) {
        uint8_t key[3] = {(uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i};
        VjWireChange change = {.key = {.space = 3, .key = vj_slice(key, sizeof key)},
                               .is_delete = 1};

        vj_wire_change_encode(bulk, &change);
        m.change_count++;
    }
    vj_wire_change_encode(
        bulk,
        &(VjWireChange){.key = {.space = 0, .key = vj_slice("a", 1)}, .is_delete = 1});
    m.change_count++;
    vj_wire_apply_encode(message, &m);
    frame = raw_request(VJ_OP_APPLY, 2, vj_slice(message->data, message->len),
                        vj_slice(bulk->data, bulk->len));
    for (guint i = 0; i < sockets->len; i++) {
        ok = raw_send(g_array_index(sockets, int, i), frame->data, frame->len) ==
                 RAW_SENT &&
             ok;
    }
    for (guint i = 0; i < sockets->len; i++) {
        VjFrame reply;
        int64_t status = raw_reply(g_array_index(sockets, int, i), &reply);

        if (status != VJ_WIRE_PROTOCOL) {
            printf("# connection %u: status %" G_GINT64_FORMAT "\n", i, status);
            ok = false;
        }
    }
    ok = honest_wait(honest, ANSWERS) && ok;
    close_all(sockets);
    g_array_unref(sockets);
    return ok;
}

/* ---- hellos ------------------------------------------------------------------------ */

static bool is_refused(const VjHello *m, const char *what)
{
    int fd = raw_connect();
    int64_t status = raw_say_hello(fd, m);

    raw_wait_for_end(fd);
    if (status == VJ_WIRE_OK) {
        printf("# hello with %s was not refused\n", what);
    }
    return status != VJ_WIRE_OK;
}

static bool wrong_hellos(void)
{
    bool ok = true;

    for (unsigned i = 0; i < connections; i++) {
        VjHello m = raw_hello(VJ_ROLE_OBJECT);

        switch (i % 6) {
        case 0:
            m.volume = vj_slice("nobody", 6);
            ok = is_refused(&m, "the name of no volume") && ok;
            break;
        case 1:
            m.uuid[0] ^= 0xff;
            ok = is_refused(&m, "another volume's uuid") && ok;
            break;
        case 2:
            m.role = (uint8_t)(3 + i % 250);
            ok = is_refused(&m, "a role that is none") && ok;
            break;
        case 3:
            m.version_min = m.version_max = 2;
            ok = is_refused(&m, "a later version") && ok;
            break;
        case 4:
            m.uuid[0] ^= 0xff;
            m.flags = VJ_HELLO_ADOPT;
            ok = is_refused(&m, "another uuid, to adopt it") && ok;
            break;
        default:
            m.flags = VJ_HELLO_CREATE | VJ_HELLO_ADOPT;
            ok = is_refused(&m, "flags that deny each other") && ok;
        }
    }
    return honest_wait(honest, ANSWERS) && ok;
}

/* A recorded hello cannot end the connection of who said it. */
static bool replays(void)
{
    VjHello m = raw_hello(VJ_ROLE_OBJECT);
    g_autoptr(GByteArray) ping = example("ping", 5), put = example("put", 6);
    VjFrame reply;
    int64_t status;
    bool ok;
    int victim = raw_connect();

    vj_rng_bytes(&rng, m.client, sizeof m.client);
    m.connection = 2;
    status = raw_say_hello(victim, &m);
    ok = status == VJ_WIRE_OK;
    for (unsigned i = 0; i < connections && ok; i++) {
        g_autoptr(GByteArray) hello = raw_hello_frame(&m);
        int fd = raw_connect();

        (void)raw_send(fd, hello->data, hello->len);
        (void)raw_offer(fd, put->data, put->len);
        status = raw_reply(fd, &reply);
        ok = status != VJ_WIRE_OK;
        raw_wait_for_end(fd);
    }
    if (!ok) {
        printf("# a hello, and its replay: status %" G_GINT64_FORMAT "\n", status);
    }
    ok = ok && raw_send(victim, ping->data, ping->len) == RAW_SENT;
    ok = ok && raw_reply(victim, &reply) == VJ_WIRE_OK && reply.tag == 5;
    close(victim);
    return honest_wait(honest, ANSWERS) && ok;
}

/* Keys are not for who came for objects, nor the other way round. */
static bool other_role(void)
{
    static const struct {
        uint8_t role;
        const char *request;
    } cases[] = {
        {VJ_ROLE_OBJECT, "apply"}, {VJ_ROLE_OBJECT, "scan"},
        {VJ_ROLE_OBJECT, "count"}, {VJ_ROLE_OBJECT, "get-many"},
        {VJ_ROLE_OBJECT, "clock"}, {VJ_ROLE_META, "put"},
        {VJ_ROLE_META, "get"},     {VJ_ROLE_META, "remove"},
        {VJ_ROLE_META, "list"},    {VJ_ROLE_META, "flush"},
        {VJ_ROLE_META, "space"},   {VJ_ROLE_META, "have"},
    };
    bool ok = true;

    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GByteArray) request = example(cases[i].request, 2);
        int fd = raw_welcome(cases[i].role);
        VjFrame reply;
        int64_t status;

        (void)raw_send(fd, request->data, request->len);
        status = raw_reply(fd, &reply);
        if (status != VJ_WIRE_UNSUPPORTED) {
            printf("# %s in role %u: status %" G_GINT64_FORMAT "\n", cases[i].request,
                   cases[i].role, status);
            ok = false;
        }
        close(fd);
    }
    return honest_wait(honest, ANSWERS) && ok;
}

/* ---- random frames ----------------------------------------------------------------- */

/* An example that is changed, with right checksums: nine of ten are understood as far as
 * the operation. */
static GByteArray *random_frame(uint64_t tag)
{
    static unsigned count;
    g_autoptr(GByteArray) bytes = NULL;
    VjFrame frame;
    unsigned changes = (unsigned)vj_rng_below(&rng, 4);

    while (rpc_examples[count].name != NULL) {
        count++;
    }
    bytes = rpc_example_frame(&rpc_examples[vj_rng_below(&rng, count)]);
    g_assert(vj_frame_decode(bytes->data, &frame) == 0);
    frame.flags = vj_rng_below(&rng, 50) == 0 ? VJ_FRAME_REPLY : 0;
    frame.timeout_ms = (uint32_t)vj_rng_below(&rng, 1000);
    frame.tag = vj_rng_below(&rng, 100) == 0 ? 1 : tag;
    for (; changes > 0 && bytes->len > VJ_FRAME_HEAD_BYTES; changes--) {
        size_t at = VJ_FRAME_HEAD_BYTES +
                    (size_t)vj_rng_below(&rng, bytes->len - VJ_FRAME_HEAD_BYTES);

        /* A hello that destroys would be obeyed. */
        if (frame.op != VJ_OP_HELLO || at != VJ_FRAME_HEAD_BYTES + 13) {
            bytes->data[at] = (uint8_t)vj_rng_u64(&rng);
        }
    }
    if (vj_rng_below(&rng, 200) == 0) {
        frame.op = (uint16_t)vj_rng_u64(&rng);
    }
    if (frame.op == VJ_OP_PUT && frame.message_bytes > 15) {
        /* No more than 64 objects, however long it goes on. */
        memset(bytes->data + VJ_FRAME_HEAD_BYTES, 0x11, 15);
        bytes->data[VJ_FRAME_HEAD_BYTES + 15] = (uint8_t)vj_rng_below(&rng, 64);
    }
    return rpc_frame(frame,
                     vj_slice(bytes->data + VJ_FRAME_HEAD_BYTES, frame.message_bytes),
                     vj_slice(bytes->data + VJ_FRAME_HEAD_BYTES + frame.message_bytes,
                              frame.bulk_bytes));
}

/* What has come is read and thrown away; false: the node has closed. */
static bool drain(int fd)
{
    uint8_t bytes[16384];
    ssize_t got;

    do {
        got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    } while (got > 0);
    return got < 0 && errno == EAGAIN;
}

static bool random_frames(void)
{
    unsigned count = MIN(connections, 200u);
    GArray *sockets = sockets_new();
    int64_t until_us = vj_clock_mono_us() + (int64_t)seconds * 1000 * 1000;
    uint64_t sent = 0, reconnects = 0;
    bool ok = true;

    while (vj_clock_mono_us() < until_us && ok) {
        for (unsigned i = 0; i < count; i++) {
            g_autoptr(GByteArray) frame = random_frame(10 + sent);
            guint len = frame->len;
            int *fd;

            if (i >= sockets->len) {
                int another = raw_welcome(i % 2 == 0 ? VJ_ROLE_OBJECT : VJ_ROLE_META);

                g_array_append_val(sockets, another);
            }
            fd = &g_array_index(sockets, int, i);
            if (vj_rng_below(&rng, 100) == 0) {
                len = (guint)vj_rng_below(&rng, len);
            }
            sent++;
            if (raw_offer(*fd, frame->data, len) == RAW_CLOSED ||
                (vj_rng_below(&rng, 4) == 0 && !drain(*fd)) ||
                vj_rng_below(&rng, 1000) == 0) {
                close(*fd);
                *fd = raw_welcome(vj_rng_below(&rng, 2) == 0 ? VJ_ROLE_OBJECT
                                                             : VJ_ROLE_META);
                reconnects++;
            }
        }
        ok = honest_wait(honest, 1);
    }
    printf("# %" G_GUINT64_FORMAT " frames, %" G_GUINT64_FORMAT " new connections\n",
           sent, reconnects);
    close_all(sockets);
    g_array_unref(sockets);
    return honest_wait(honest, ANSWERS) && ok;
}

/* ---- all --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    bool (*run)(void);
} attacks[] = {
    {"garbage", garbage},
    {"silent connections", silence},
    {"half frames", half_frames},
    {"a byte at a time", slow_senders},
    {"huge lengths", huge_lengths},
    {"large objects that do not come", announced},
    {"large objects of which half comes", half_objects},
    {"answers that are not taken", answers_not_taken},
    {"floods of PING and CANCEL", floods},
    {"an APPLY of many changes", many_changes},
    {"wrong hellos", wrong_hellos},
    {"replays", replays},
    {"requests of the other role", other_role},
    {"random frames", random_frames},
};

static void attack(unsigned n)
{
    uint64_t before = honest_answers(honest), failures = honest_failures(honest);
    uint64_t most_kib = base_kib + HELD_FACTOR * held_kib +
                        (uint64_t)connections * CONNECTION_KIB + SLACK_KIB;
    int64_t begin_us = vj_clock_mono_us();
    uint64_t peak_kib;
    bool ok;

    report_forget_peak();
    (void)honest_slowest_us(honest);
    ok = attacks[n].run();
    report(ok && honest_failures(honest) == failures, attacks[n].name);
    peak_kib = report_memory_kib(true);
    printf("# %.1f s, %" G_GUINT64_FORMAT " honest answers, the slowest after %.3f s; "
           "memory %" G_GUINT64_FORMAT " MiB; %" G_GUINT64_FORMAT
           " of its connections lost until now\n",
           (double)(vj_clock_mono_us() - begin_us) / 1e6, honest_answers(honest) - before,
           (double)honest_slowest_us(honest) / 1e6, peak_kib >> 10,
           honest_losses(honest));
    if (peak_kib > 0) {
        g_autofree char *name =
            g_strdup_printf("%s: memory stays below %" G_GUINT64_FORMAT " MiB",
                            attacks[n].name, most_kib >> 10);

        report(peak_kib <= most_kib, name);
    }
}

/* The node has noticed that all attackers are gone: by what it has open. */
static bool all_are_gone(unsigned before)
{
    for (unsigned tries = 0; tries < 600 && report_sockets() > before + 20; tries++) {
        if (!honest_wait(honest, 4)) {
            return false;
        }
    }
    printf("# sockets: %u before, %u after\n", before, report_sockets());
    return report_sockets() <= before + 20;
}

static void allow_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur < connections + 100) {
        connections = (unsigned)limit.rlim_cur - 100;
        printf("# %u connections: there are no more descriptors\n", connections);
    }
}

int main(int argc, char **argv)
{
    VjCredentialsFiles files = {.insecure = true};
    g_autoptr(VjCredentials) credentials = NULL;
    uint64_t seed = argc > 6 ? g_ascii_strtoull(argv[6], NULL, 0) : vj_random_u64();
    unsigned open_before;

    if (argc < 4) {
        fprintf(stderr,
                "usage: hostile ADDRESS PID HELD-MiB [CONNECTIONS [SECONDS [SEED]]]\n");
        return 2;
    }
    address = argv[1];
    report_watch(atoi(argv[2]));
    held_kib = g_ascii_strtoull(argv[3], NULL, 10) << 10;
    connections = argc > 4 ? (unsigned)atoi(argv[4]) : connections;
    seconds = argc > 5 ? (unsigned)atoi(argv[5]) : seconds;
    g_assert(connections > 0);
    printf("# seed %" G_GUINT64_FORMAT "\n", seed);
    vj_rng_init(&rng, seed);
    allow_descriptors();
    raw_set_address(address);
    g_assert(vj_credentials_load(-1, &files, &credentials, NULL));
    honest = honest_start(address, credentials, "home");
    report(honest_wait(honest, ANSWERS), "an honest client is served");
    base_kib = report_memory_kib(false);
    open_before = report_sockets();
    for (unsigned n = 0; n < G_N_ELEMENTS(attacks); n++) {
        attack(n);
    }
    if (report_sockets() > 0) {
        report(all_are_gone(open_before), "no connection of an attacker is left");
    }
    report(honest_failures(honest) == 0, "no honest request failed");
    honest_stop(honest);
    return report_end();
}
