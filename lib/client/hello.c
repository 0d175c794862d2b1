/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * hello.c - varjfs_open and varjfs_close, and the first request of a connection
 */
#include "client-private.h"
#include "tls.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

    uint64_t features = vjc_get64(&reply);

    v->sends_bare = (features & VJC_FEATURE_BARE_BATCH) != 0;
    v->may_share = v->tls == NULL && (features & VJC_FEATURE_SHARE) != 0;
    v->may_call = v->tls == NULL && (features & VJC_FEATURE_MAILBOX) != 0;
    return version == VERSION;
}

static const VjcReplyHandler hello_handler = {.place = place_hello,
                                              .finish = finish_hello};

bool vjc_is_volume_name(const char *name)
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
    vjc_put_number(&w, VJC_FEATURES, 8);
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

static int copy_options(const struct varjfs_options *options, struct varjfs_options *out)
{
    *out = (struct varjfs_options){.size = sizeof *out};
    if (options != NULL) {
        if (!vjc_is_structure(options, OPTIONS_BYTES_MIN, sizeof *options)) {
            return -EINVAL;
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
    if (o->volume != NULL && vjc_is_volume_name(o->volume)) {
        return true;
    }
    vjc_set_open_error("an address needs the name of a volume there (options.volume; of "
                       "programs --volume, or volume= in a configuration)",
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

    if (!vjc_host_parse(address, &host) || !check_volume(o)) {
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

const char *vjc_source_fault(const char *source)
{
    VjcHost host;

    if (strncmp(source, "unix:", 5) == 0) {
        return source[5] != '\0' ? NULL : "unix: has no path behind it";
    }
    if (strncmp(source, "tls:", 4) == 0) {
        return vjc_host_parse(source + 4, &host)
                   ? NULL
                   : "no address: it is tls:HOST, tls:HOST:PORT, tls:[IPV6] or "
                     "tls:[IPV6]:PORT";
    }
    if (strncmp(source, "tcp:", 4) == 0) {
        return "tcp: is in clear text, which leaves no machine: tls:HOST";
    }
    return is_address(source) ? "no address of a kind that is known here" : NULL;
}

/* Not a configuration. */
static int open_source(const char *source, const struct varjfs_options *o, varjfs **out)
{
    const char *fault = vjc_source_fault(source);

    if (fault != NULL) {
        bool is_known =
            strncmp(source, "unix:", 5) == 0 || strncmp(source, "tls:", 4) == 0;

        vjc_set_open_error(fault, NULL, 0);
        return is_known ? -EINVAL : -EPROTONOSUPPORT;
    }
    if (strncmp(source, "unix:", 5) == 0) {
        return open_socket(source + 5, o, out);
    }
    if (strncmp(source, "tls:", 4) == 0) {
        return open_tls(source + 4, o, out);
    }
    if (!check_plain(o)) {
        return -EINVAL;
    }
    return vjc_open_directory(source, o, VJC_RETRY_MS, out);
}

/* ---- configurations ---------------------------------------------------------------- */

/* Of the first fault alone. */
typedef struct ConfFault {
    const char *path;
    bool is_set;
} ConfFault;

static void take_fault(void *opaque, unsigned line, const char *key, const char *value,
                       const char *fault)
{
    ConfFault *f = opaque;
    char text[160];
    int len;

    (void)value;
    if (fault == NULL || f->is_set) {
        return;
    }
    f->is_set = true;
    len = line > 0 ? snprintf(text, sizeof text, "line %u: %.40s%s%s", line,
                              key != NULL ? key : "", key != NULL ? ": " : "", fault)
                   : snprintf(text, sizeof text, "%s", fault);
    if (len > 0) {
        vjc_set_open_error(f->path, text, strlen(text));
    }
}

static bool is_file(const char *source)
{
    struct stat st;

    return stat(source, &st) == 0 && S_ISREG(st.st_mode);
}

/* What a configuration says and @o does not. */
static void add_options(const VjcConf *conf, struct varjfs_options *o, bool has_timeout)
{
    bool has_own = has_credentials(o); /* those go together */
    const struct {
        const char **option;
        size_t value;
        bool is_credential;
    } all[] = {
        {&o->volume, VJC_CONF_VOLUME, false},
        {&o->daemon, VJC_CONF_DAEMON, false},
        {&o->key, VJC_CONF_KEY, true},
        {&o->identity, VJC_CONF_IDENTITY, true},
        {&o->certificate, VJC_CONF_CERTIFICATE, true},
        {&o->certificate_key, VJC_CONF_CERTIFICATE_KEY, true},
        {&o->ca, VJC_CONF_CA, true},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (*all[i].option == NULL && !(all[i].is_credential && has_own)) {
            *all[i].option = conf->values[all[i].value];
        }
    }
    if (!has_timeout && conf->values[VJC_CONF_TIMEOUT] != NULL) {
        o->timeout_ms = atoi(conf->values[VJC_CONF_TIMEOUT]) * 1000;
    }
    if (conf->values[VJC_CONF_READ_ONLY] != NULL &&
        strcmp(conf->values[VJC_CONF_READ_ONLY], "yes") == 0) {
        o->flags |= VARJFS_READ_ONLY;
    }
}

static int open_configuration(const char *path, struct varjfs_options *o,
                              bool has_timeout, varjfs **out)
{
    ConfFault fault = {.path = path};
    VjcConf conf;
    int rc = vjc_conf_load(path, &conf, take_fault, &fault);

    if (rc != 0) {
        return rc;
    }
    add_options(&conf, o, has_timeout);
    rc = open_source(conf.values[VJC_CONF_SOURCE], o, out);
    vjc_conf_free(&conf);
    return rc;
}

int varjfs_open(const char *source, const struct varjfs_options *options, varjfs **out)
{
    bool has_timeout = options != NULL && options->timeout_ms != 0;
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
    rc = !is_address(source) && is_file(source)
             ? open_configuration(source, &o, has_timeout, out)
             : open_source(source, &o, out);
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
    if (v->process != getpid()) {
        vjc_fail(v, -EPERM); /* what is on its way, or gathered, is the parent's */
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
    VjcRequest r = {.op = VARJFS_WIRE_SYNC, .at_once = true};
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

/* ---- statistics -------------------------------------------------------------------- */

typedef struct Statistics {
    struct iovec into;
    size_t cap, len;
} Statistics;

static bool place_statistics(VjcRequest *r, const uint8_t *message, uint32_t len,
                             uint32_t bulk)
{
    Statistics *s = r->owner;

    (void)message;
    s->len = bulk;
    s->into.iov_len = bulk;
    r->in_count = bulk > 0 ? 1 : 0;
    r->in_max = bulk <= s->cap ? 1 : 0; /* else nobody wants it */
    return len == 0 && bulk <= VARJFS_WIRE_STATISTICS_MAX;
}

static bool finish_statistics(VjcRequest *r, const uint8_t *message, uint32_t len)
{
    const Statistics *s = r->owner;

    (void)message;
    (void)len;
    r->error = s->len > s->cap ? -ERANGE : 0;
    return true;
}

static const VjcReplyHandler statistics_handler = {.place = place_statistics,
                                                   .finish = finish_statistics};

int varjfs_statistics(varjfs *v, char *dst, size_t cap, size_t *len, unsigned flags)
{
    uint8_t message[VJC_HEAD_BYTES + 1] = {0};
    Statistics s = {.into = {.iov_base = dst}, .cap = cap};
    VjcRequest r = {.op = VARJFS_WIRE_STATISTICS,
                    .handler = &statistics_handler,
                    .owner = &s,
                    .in = &s.into};
    int rc;

    *len = 0;
    if ((flags & ~VARJFS_PROMETHEUS) != 0) {
        return -EINVAL;
    }
    message[VJC_HEAD_BYTES] = (flags & VARJFS_PROMETHEUS) != 0 ? 1 : 0;
    rc = vjc_send(v, &r, message, sizeof message, NULL, 0);
    if (rc == 0 || r.done) {
        rc = vjc_wait(v, &r);
    }
    *len = rc == 0 || rc == -ERANGE ? s.len : 0;
    return rc;
}
