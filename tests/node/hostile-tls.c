/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * hostile-tls SOCKET CLEAR PID KEY OTHER-KEY [CONNECTIONS [SEED]] - attacks on TLS
 *
 *   SOCKET       path of a unix socket where the node wants TLS: volumes "secret", with
 *                KEY, and "other", with OTHER-KEY
 *   CLEAR        path of one where it does not
 *   PID          of the node, whose memory is watched
 *   CONNECTIONS  of each attack (500)
 *
 * Run by hostile.sh.  Who has not the key of a volume gets nothing of it, and an honest
 * client's requests are answered all the time.  Prints TAP.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "honest.h"
#include "raw.h"
#include "report.h"

/* Of a handshake that goes on. */
#define CONNECTION_KIB 256u
#define SLACK_KIB (96u << 10)
#define ANSWERS 40u
/* How long a client that cannot get in tries. */
#define TRIES_US ((int64_t)2 * 1000 * 1000)

static Honest *honest;
static VjRng rng;
static char *socket_address, *clear_address;
static const char *key, *other_key;
static unsigned connections = 500;

/* ---- who has not the key ----------------------------------------------------------- */

typedef struct Answer {
    gint hellos; /* atomic; how many were answered */
    gint told;   /* atomic; how often its own side said that the key is not known */
    gint status; /* atomic; of the last one */
} Answer;

static bool connected(void *opaque, int status, VjSlice reply)
{
    Answer *a = opaque;

    g_atomic_int_set(&a->status, status);
    g_atomic_int_inc(status == -EACCES && reply.len > 0 ? &a->told : &a->hellos);
    return status == 0;
}

/* What a client with this key gets that calls itself @identity and asks for @volume; the
 * result of a call of it. */
static int try_client(const char *key_file, const char *identity, const char *volume,
                      Answer *answer)
{
    VjCredentialsFiles files = {.key = key_file, .identity = identity};
    g_autoptr(VjCredentials) credentials = NULL;
    g_autoptr(GByteArray) hello = g_byte_array_new();
    g_autoptr(VjRpcCall) call = vj_rpc_call_new(VJ_OP_SPACE);
    VjHello m = raw_hello(VJ_ROLE_OBJECT);
    VjRpcClientConfig config = {
        .address = socket_address, .connected = connected, .opaque = answer};
    VjRpcClient *c;
    int rc;

    g_assert(vj_credentials_load(-1, &files, &credentials, NULL));
    m.volume = vj_slice(volume, strlen(volume));
    vj_hello_encode(hello, &m);
    config.hello = vj_slice(hello->data, hello->len);
    config.credentials = credentials;
    c = vj_rpc_client_new(&config, NULL);
    g_assert(c != NULL);
    call->waits_for_connection = true;
    call->deadline_us = vj_clock_mono_us() + TRIES_US;
    rc = vj_rpc_run(c, call);
    vj_rpc_client_free(c);
    return rc;
}

/* Its handshake fails: the node tells it nothing at all, and its own side why. */
static bool is_shut_out(const char *key_file, const char *identity)
{
    Answer answer = {0};
    int rc = try_client(key_file, identity, "secret", &answer);

    return rc < 0 && answer.hellos == 0 && answer.told > 0;
}

static bool wrong_key(void)
{
    return is_shut_out(other_key, "secret") && honest_wait(honest, ANSWERS);
}

static bool unknown_identity(void)
{
    return is_shut_out(key, "nobody") && is_shut_out(key, "other") &&
           honest_wait(honest, ANSWERS);
}

/* It proves who it is, and asks for what is another's. */
static bool other_volume(void)
{
    Answer answer = {0};
    int rc = try_client(other_key, "other", "secret", &answer);

    printf("# %d hellos, the last one: %s\n", answer.hellos, g_strerror(-answer.status));
    return rc < 0 && answer.hellos > 0 && answer.status == -EACCES &&
           honest_wait(honest, ANSWERS);
}

static bool without_key(void)
{
    VjHello m = raw_hello(VJ_ROLE_OBJECT);
    int64_t status;
    int fd;

    raw_set_address(clear_address);
    fd = raw_connect();
    m.volume = vj_slice("secret", 6);
    status = raw_say_hello(fd, &m);
    raw_wait_for_end(fd);
    raw_set_address(socket_address);
    return status == VJ_WIRE_REFUSED && honest_wait(honest, ANSWERS);
}

/* ---- who speaks no TLS ------------------------------------------------------------- */

/* What comes back, if anything, is an alert and no frame. */
static bool clear_text(void)
{
    VjHello m = raw_hello(VJ_ROLE_OBJECT);
    g_autoptr(GByteArray) hello = raw_hello_frame(&m);
    bool ok = true;

    for (unsigned i = 0; i < connections; i++) {
        uint8_t bytes[4] = {0};
        int fd = raw_connect();

        (void)raw_send(fd, hello->data, hello->len);
        ok = (raw_receive(fd, bytes, 4) < 4 || memcmp(bytes, "VJFR", 4) != 0) && ok;
        raw_wait_for_end(fd);
    }
    return honest_wait(honest, ANSWERS) && ok;
}

/* Records of TLS whose content is noise, cut off or whole. */
static bool noise(void)
{
    GArray *sockets = g_array_new(FALSE, FALSE, sizeof(int));
    bool ok;

    for (unsigned i = 0; i < connections; i++) {
        uint8_t bytes[2048];
        size_t len = (size_t)vj_rng_below(&rng, sizeof bytes - 5);
        int fd = raw_connect();

        vj_rng_bytes(&rng, bytes, sizeof bytes);
        if (i % 4 != 0) {
            bytes[0] = 22; /* a handshake */
            bytes[1] = 3;
            bytes[2] = 1;
            bytes[3] = (uint8_t)(len >> 8);
            bytes[4] = (uint8_t)len;
            bytes[5] = 1; /* ClientHello, of a length that fits or is huge */
            bytes[6] = i % 4 == 1 ? 0 : bytes[6];
            bytes[7] = (uint8_t)((len - 4) >> 8);
            bytes[8] = (uint8_t)(len - 4);
        }
        (void)raw_offer(fd, bytes, i % 3 == 0 ? len / 2 : 5 + len);
        g_array_append_val(sockets, fd);
    }
    ok = honest_wait(honest, ANSWERS);
    for (guint i = 0; i < sockets->len; i++) {
        close(g_array_index(sockets, int, i));
    }
    g_array_unref(sockets);
    return ok;
}

/* Connections that do not shake hands; another honest client gets in. */
static bool silence(void)
{
    GArray *sockets = g_array_new(FALSE, FALSE, sizeof(int));
    Answer answer = {0};
    bool ok;

    for (unsigned i = 0; i < connections; i++) {
        int fd = raw_connect();

        g_array_append_val(sockets, fd);
    }
    ok =
        try_client(key, "secret", "secret", &answer) == 0 && honest_wait(honest, ANSWERS);
    for (guint i = 0; i < sockets->len; i++) {
        close(g_array_index(sockets, int, i));
    }
    g_array_unref(sockets);
    return ok;
}

static const struct {
    const char *name;
    bool (*run)(void);
} attacks[] = {
    {"TLS: another key", wrong_key},
    {"TLS: another name for the key", unknown_identity},
    {"TLS: the key of another volume", other_volume},
    {"TLS: no key, where there is no TLS", without_key},
    {"TLS: frames in clear text", clear_text},
    {"TLS: noise", noise},
    {"TLS: no handshake", silence},
};

static void attack(unsigned n, uint64_t most_kib)
{
    uint64_t before = honest_answers(honest), failures = honest_failures(honest);
    uint64_t peak_kib;
    bool ok;

    report_forget_peak();
    ok = attacks[n].run();
    peak_kib = report_memory_kib(true);
    printf("# %" G_GUINT64_FORMAT " honest answers, the slowest after %.3f s; memory "
           "%" G_GUINT64_FORMAT " MiB\n",
           honest_answers(honest) - before, (double)honest_slowest_us(honest) / 1e6,
           peak_kib >> 10);
    report(ok && honest_failures(honest) == failures && peak_kib <= most_kib,
           attacks[n].name);
}

int main(int argc, char **argv)
{
    VjCredentialsFiles files = {.identity = "secret"};
    g_autoptr(VjCredentials) credentials = NULL;
    g_autoptr(GError) error = NULL;
    uint64_t seed = argc > 7 ? g_ascii_strtoull(argv[7], NULL, 0) : vj_random_u64();
    uint64_t most_kib;

    if (argc < 6) {
        fprintf(stderr, "usage: hostile-tls SOCKET CLEAR PID KEY OTHER-KEY [CONNECTIONS "
                        "[SEED]]\n");
        return 2;
    }
    socket_address = g_strdup_printf("unix:%s", argv[1]);
    clear_address = g_strdup_printf("unix:%s", argv[2]);
    report_watch(atoi(argv[3]));
    files.key = key = argv[4];
    other_key = argv[5];
    connections = argc > 6 ? (unsigned)atoi(argv[6]) : connections;
    printf("# seed %" G_GUINT64_FORMAT "\n", seed);
    vj_rng_init(&rng, seed);
    raw_set_address(socket_address);
    if (!vj_credentials_load(-1, &files, &credentials, &error)) {
        printf("Bail out! %s\n", error->message);
        return 1;
    }
    honest = honest_start(socket_address, credentials, "secret");
    report(honest_wait(honest, ANSWERS), "TLS: an honest client is served");
    most_kib =
        report_memory_kib(false) + (uint64_t)connections * CONNECTION_KIB + SLACK_KIB;
    for (unsigned n = 0; n < G_N_ELEMENTS(attacks); n++) {
        attack(n, most_kib);
    }
    report(honest_failures(honest) == 0, "TLS: no honest request failed");
    honest_stop(honest);
    g_free(socket_address);
    g_free(clear_address);
    return report_end();
}
