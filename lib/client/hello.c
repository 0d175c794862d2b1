/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * hello.c - varjfs_open and varjfs_close, and the first request of a connection
 */
#include "client-private.h"
#include "tls.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define VERSION 1u
/* Least, largest; features; role, flags; uuid; client; connection; two lengths. */
#define HELLO_FIXED_BYTES (2 + 2 + 8 + 1 + 1 + 16 + 16 + 8 + 4 + 4)
#define HELLO_REPLY_BYTES 55u
#define HELLO_READ_ONLY 8u

static const char client_name[] = "libvarjfs " VARJFS_VERSION;

static bool place_hello(VjcRequest *r, const uint8_t *message, uint32_t len,
                        uint32_t bulk)
{
    (void)r;
    (void)message;
    return len >= HELLO_REPLY_BYTES && len <= VJC_HELLO_MESSAGE_MAX && bulk == 0;
}

static bool finish_hello(VjcRequest *r, const uint8_t *message, uint32_t len)
{
    VjcReader reply = vjc_reader(message, len);

    uint16_t version = vjc_get16(&reply);
    varjfs *v = r->owner;

    v->sends_bare = (vjc_get64(&reply) & VJC_FEATURE_BARE_BATCH) != 0;
    return version == VERSION;
}

static const VjcReplyHandler hello_handler = {.place = place_hello,
                                              .finish = finish_hello};

/* Letters, digits, ".", "_" and "-", the first a letter or digit. */
static bool is_volume_name(const char *name)
{
    size_t len = strlen(name);

    if (len == 0 || len > VJC_VOLUME_NAME_MAX) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool is_alnum =
            (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');

        if (!is_alnum && (i == 0 || (c != '.' && c != '_' && c != '-'))) {
            return false;
        }
    }
    return true;
}

static size_t encode_hello(const VjcHello *hello, uint8_t *dst, size_t room)
{
    static const uint8_t zero[16 + 16 + 8];
    size_t name_len = strlen(hello->volume);
    VjcWriter w = vjc_writer(dst, room);

    vjc_put_number(&w, VERSION, 2);
    vjc_put_number(&w, VERSION, 2);
    vjc_put_number(&w, VJC_FEATURE_BARE_BATCH, 8);
    vjc_put_number(&w, VARJFS_WIRE_ROLE_CLIENT, 1);
    vjc_put_number(&w, hello->read_only ? HELLO_READ_ONLY : 0, 1);
    vjc_put_bytes(&w, zero, sizeof zero);
    vjc_put_number(&w, name_len, 4);
    vjc_put_bytes(&w, hello->volume, name_len);
    vjc_put_number(&w, sizeof client_name - 1, 4);
    vjc_put_bytes(&w, client_name, sizeof client_name - 1);
    return room - w.left;
}

static void set_tls_error(const VjcTls *tls, int error)
{
    const char *why = vjc_tls_why(tls);

    vjc_set_open_error(error == -EACCES   ? "TLS: one side does not believe the other one"
                       : error == -EPROTO ? "TLS: the other side does not speak as we do"
                                          : varjfs_strerror(error),
                       why, why != NULL ? strlen(why) : 0);
}

/* What a refusal means to who opens. */
static int hello_error(varjfs *v, int error)
{
    bool is_refusal = v->fd >= 0; /* a reply has come */

    if (!is_refusal && v->tls != NULL && vjc_tls_why(v->tls) != NULL) {
        set_tls_error(v->tls, error);
        return error;
    }
    if (!is_refusal) {
        vjc_set_open_error(error == -EPROTO ? "the other side does not speak the protocol"
                                            : varjfs_strerror(error),
                           NULL, 0);
        return error;
    }
    vjc_set_open_error("the daemon refuses the connection", v->message,
                       v->frame.message_bytes);
    switch (error) {
    case -ENOTSUP:
        return -EPROTO; /* no role client, or no version of ours */
    case -ENODATA:
        return -ENOENT;
    case -ESHUTDOWN:
        return -EAGAIN;
    default:
        return error;
    }
}

/* Takes the socket and @tls. */
static int hello_over(int fd, VjcTls *tls, const VjcHello *hello, int64_t deadline,
                      varjfs **out)
{
    uint8_t bytes[VJC_HEAD_BYTES + HELLO_FIXED_BYTES + VJC_VOLUME_NAME_MAX +
                  sizeof client_name];
    VjcRequest r = {.op = VJC_OP_HELLO, .handler = &hello_handler};
    varjfs *v = vjc_connection_new(fd, tls, hello->timeout_ms);
    size_t len;
    int rc;

    if (v == NULL) {
        return -ENOMEM;
    }
    r.owner = v;
    len = encode_hello(hello, bytes + VJC_HEAD_BYTES, sizeof bytes - VJC_HEAD_BYTES);
    if (hello->timeout_ms >= 0) {
        v->timeout_ms = vjc_left_ms(deadline, hello->timeout_ms);
    }
    rc = vjc_send(v, &r, bytes, VJC_HEAD_BYTES + len, NULL, 0);
    if (rc == 0 || r.done) {
        rc = vjc_wait(v, &r);
    }
    v->timeout_ms = hello->timeout_ms;
    if (rc != 0) {
        rc = hello_error(v, rc);
        vjc_connection_free(v);
        return rc;
    }
    *out = v;
    return 0;
}

int vjc_hello(const char *path, const VjcHello *hello, int64_t deadline, varjfs **out)
{
    int fd = vjc_connect(path, deadline);

    *out = NULL;
    return fd < 0 ? fd : hello_over(fd, NULL, hello, deadline, out);
}

/* Takes @tls. */
static int hello_by_tls(const VjcHost *host, VjcTls *tls, const VjcHello *hello,
                        varjfs **out)
{
    int64_t deadline = vjc_deadline(hello->timeout_ms);
    int fd = vjc_connect_host(host, deadline);
    int rc = fd < 0 ? fd : vjc_tls_handshake(tls, fd, deadline);

    if (rc != 0) {
        if (fd >= 0) {
            set_tls_error(tls, rc);
            close(fd);
        }
        vjc_tls_free(tls);
        return rc;
    }
    return hello_over(fd, tls, hello, deadline, out);
}

/* ---- opening ----------------------------------------------------------------------- */

/* What the first version has. */
#define OPTIONS_BYTES_MIN offsetof(struct varjfs_options, key)

/* Of a later version everything that this one does not know has to be zero. */
static int copy_options(const struct varjfs_options *options, struct varjfs_options *out)
{
    *out = (struct varjfs_options){.size = sizeof *out};
    if (options != NULL) {
        const uint8_t *bytes = (const uint8_t *)options;

        if (options->size < OPTIONS_BYTES_MIN || options->size > VJC_STRUCT_MAX) {
            return -EINVAL;
        }
        for (size_t i = sizeof *out; i < options->size; i++) {
            if (bytes[i] != 0) {
                return -EINVAL; /* a setting of a later version */
            }
        }
        memcpy(out, options, options->size < sizeof *out ? options->size : sizeof *out);
    }
    if (out->timeout_ms == 0) {
        out->timeout_ms = VJC_DEFAULT_TIMEOUT_MS;
    }
    return out->timeout_ms < -1 || (out->flags & ~VARJFS_READ_ONLY) != 0 ? -EINVAL : 0;
}

static bool check_volume(const struct varjfs_options *o)
{
    if (o->volume != NULL && is_volume_name(o->volume)) {
        return true;
    }
    vjc_set_open_error("an address needs the name of a volume there (options.volume; of "
                       "programs -o volume=NAME, or a configuration)",
                       NULL, 0);
    return false;
}

static bool has_credentials(const struct varjfs_options *o)
{
    return o->key != NULL || o->identity != NULL || o->certificate != NULL ||
           o->certificate_key != NULL || o->ca != NULL;
}

/* Who gives credentials wants them used. */
static bool check_plain(const struct varjfs_options *o)
{
    if (has_credentials(o)) {
        vjc_set_open_error("credentials are for addresses with TLS (tls:HOST)", NULL, 0);
        return false;
    }
    return true;
}

static int open_tls(const char *address, const struct varjfs_options *o, varjfs **out)
{
    VjcHello hello = {.volume = o->volume,
                      .timeout_ms = o->timeout_ms,
                      .read_only = (o->flags & VARJFS_READ_ONLY) != 0};
    VjcHost host;
    VjcTls *tls;
    int rc;

    if (!vjc_host_parse(address, &host)) {
        vjc_set_open_error("no address: it is tls:HOST, tls:HOST:PORT, tls:[IPV6] or "
                           "tls:[IPV6]:PORT",
                           NULL, 0);
        return -EINVAL;
    }
    if (!check_volume(o)) {
        return -EINVAL;
    }
    rc = vjc_tls_new(o, host.name, &tls);
    if (rc != 0) {
        return rc;
    }
    rc = hello_by_tls(&host, tls, &hello, out);
    return rc == -EAGAIN ? -ECONNREFUSED : rc;
}

static int open_socket(const char *path, const struct varjfs_options *o, varjfs **out)
{
    VjcHello hello;
    int rc;

    if (!check_volume(o) || !check_plain(o)) {
        return -EINVAL;
    }
    if (*path == '\0') {
        vjc_set_open_error("unix: has no path behind it", NULL, 0);
        return -EINVAL;
    }
    hello = (VjcHello){.volume = o->volume,
                       .timeout_ms = o->timeout_ms,
                       .read_only = (o->flags & VARJFS_READ_ONLY) != 0};
    rc = vjc_hello(path, &hello, vjc_deadline(o->timeout_ms), out);
    if (rc == -ENOENT && varjfs_open_error()[0] == '\0') {
        rc = -ECONNREFUSED; /* no socket: no daemon */
    }
    return rc == -EAGAIN ? -ECONNREFUSED : rc;
}

/* "tcp:…", "tls:…": an address; "./a:b" and "/a:b" are directories. */
static bool is_address(const char *source)
{
    size_t len = strspn(source, "abcdefghijklmnopqrstuvwxyz0123456789+-.");

    return len > 0 && source[len] == ':';
}

int varjfs_open(const char *source, const struct varjfs_options *options, varjfs **out)
{
    struct varjfs_options o;
    int rc;

    *out = NULL;
    vjc_set_open_error("", NULL, 0);
    rc = copy_options(options, &o);
    if (rc != 0 || source == NULL || *source == '\0') {
        vjc_set_open_error(rc != 0 ? "options are not those of this version"
                                   : "there is no source",
                           NULL, 0);
        return -EINVAL;
    }
    if (strncmp(source, "unix:", 5) == 0) {
        rc = open_socket(source + 5, &o, out);
    } else if (strncmp(source, "tls:", 4) == 0) {
        rc = open_tls(source + 4, &o, out);
    } else if (strncmp(source, "tcp:", 4) == 0) {
        vjc_set_open_error("tcp: is in clear text, which leaves no machine: tls:HOST",
                           NULL, 0);
        rc = -EPROTONOSUPPORT;
    } else if (is_address(source)) {
        rc = -EPROTONOSUPPORT;
    } else if (!check_plain(&o)) {
        rc = -EINVAL;
    } else {
        rc = vjc_open_directory(source, &o, VJC_RETRY_MS, out);
    }
    if (rc != 0 && varjfs_open_error()[0] == '\0') {
        vjc_set_open_error(varjfs_strerror(rc), NULL, 0);
    }
    return rc;
}

int varjfs_close(varjfs *v)
{
    int error;

    if (v == NULL) {
        return 0;
    }
    while (v->batches != NULL) {
        varjfs_batch_free(v->batches); /* waits for it */
    }
    vjc_iterators_free(v);
    vjc_wait_deferred(v, 0); /* a failure is the error of each of them */
    error = v->late_error;
    vjc_connection_free(v);
    return error;
}

int varjfs_sync(varjfs *v)
{
    VjcRequest r = {.op = VARJFS_WIRE_SYNC};
    uint8_t head[VJC_HEAD_BYTES];
    int rc = vjc_wait_deferred(v, 0), late;

    if (rc == 0) {
        rc = vjc_send(v, &r, head, sizeof head, NULL, 0);
    }
    if (rc == 0) {
        rc = vjc_wait(v, &r);
    }
    late = v->late_error;
    v->late_error = 0;
    return late != 0 ? late : rc;
}
