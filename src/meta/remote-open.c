/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-open.c - the engine remote: its options, and whether its node is there
 *
 * open() waits for the node's first answer, so that a client which is not let in learns
 * why.  Later on a connection that is lost is made again without end, and calls wait for
 * it as long as timeout= says.
 */
#include <unistd.h>

#include "base/uuid.h"
#include "meta/remote-private.h"
#include "meta/session.h"

/* Of a client's name in its hello, bytes. */
#define HELLO_NAME_MAX VJ_WIRE_VOLUME_NAME_MAX

const VjOptSpec vj_remote_engine_options[] = {
    VJ_SESSION_OPTIONS,
    {.name = "node",
     .type = VJ_OPT_STRING,
     .leads = true,
     .help = "where the node is: HOST, HOST:PORT, [V6]:PORT or unix:PATH; no default"},
    {.name = "key",
     .type = VJ_OPT_STRING,
     .is_file = true,
     .help = "file with the key that the node has too; default: none"},
    {.name = "identity",
     .type = VJ_OPT_STRING,
     .help = "name by which the node knows the key; default: that of the volume"},
    {.name = "cert",
     .type = VJ_OPT_STRING,
     .is_file = true,
     .help = "file with this client's certificate (PEM); default: none"},
    {.name = "certkey",
     .type = VJ_OPT_STRING,
     .is_file = true,
     .help = "file with the private key of the certificate (PEM); default: none"},
    {.name = "ca",
     .type = VJ_OPT_STRING,
     .is_file = true,
     .help = "file with the certificates that vouch for the node's (PEM); default: none"},
    {.name = "insecure",
     .type = VJ_OPT_FLAG,
     .fallback = "no",
     .help = "no TLS: to nodes of this machine alone"},
    {.name = "volume",
     .type = VJ_OPT_STRING,
     .fallback = "default",
     .help = "name of the volume in the node's configuration"},
    {.name = "timeout",
     .type = VJ_OPT_NUMBER,
     .fallback = "30",
     .min = 1,
     .max = 86400,
     .help = "seconds that a call waits for a node that is away"},
    {.name = NULL},
};

/* ---- Options --------------------------------------------------------------------- */

static bool has(const VjOpts *opts, const char *name)
{
    const char *value = vj_opts_string(opts, name);

    return value != NULL && value[0] != '\0';
}

static VjCredentialsFiles files_of(const VjOpts *opts)
{
    return (VjCredentialsFiles){
        .key = has(opts, "key") ? vj_opts_string(opts, "key") : NULL,
        .identity = vj_opts_string(opts, has(opts, "identity") ? "identity" : "volume"),
        .certificate = has(opts, "cert") ? vj_opts_string(opts, "cert") : NULL,
        .certificate_key = has(opts, "certkey") ? vj_opts_string(opts, "certkey") : NULL,
        .ca = has(opts, "ca") ? vj_opts_string(opts, "ca") : NULL,
        .insecure = vj_opts_flag(opts, "insecure"),
    };
}

/* One of the three ways, and all that belongs to it. */
static bool check_ways(const VjCredentialsFiles *files, GError **error)
{
    unsigned parts = (files->certificate != NULL) + (files->certificate_key != NULL) +
                     (files->ca != NULL);

    if (parts != 0 && parts != 3) {
        return vj_error_set(error, EINVAL, "cert=, certkey= and ca= belong together");
    }
    if ((files->key != NULL) + (parts == 3) + files->insecure != 1) {
        return vj_error_set(error, EINVAL,
                            "one of key=FILE, cert=FILE and insecure is needed");
    }
    return true;
}

bool vj_remote_engine_check(const VjOpts *opts, GError **error)
{
    const char *volume = vj_opts_string(opts, "volume");
    VjCredentialsFiles files = files_of(opts);

    if (!has(opts, "node")) {
        return vj_error_set(error, EINVAL, "no node is named: remote:HOST");
    }
    if (!vj_wire_is_volume_name(vj_slice(volume, strlen(volume)))) {
        return vj_error_set(error, EINVAL, "volume=%s is no name of a volume", volume);
    }
    return vj_rpc_address_check(vj_opts_string(opts, "node"), error) &&
           check_ways(&files, error);
}

uint32_t vj_remote_engine_needs_of(const VjOpts *opts)
{
    const char *node = vj_opts_string(opts, "node");

    return node != NULL ? vj_rpc_address_needs(node) : 0;
}

/* ---- Whether the node is there --------------------------------------------------- */

/* What it answers may be another one some time later. */
static bool is_passing(int rc)
{
    return rc == -EBUSY || rc == -ESHUTDOWN || rc == -ESTALE || rc == -ETIMEDOUT;
}

static int check_hello(VjRemoteEngine *r, VjSlice reply, VjHelloReply *hello)
{
    int rc = vj_hello_reply_decode(reply, hello);

    vj_mutex_assert_held(&r->lock);
    if (rc == 0 && hello->version != VJ_WIRE_VERSION) {
        rc = -EPROTO;
    }
    if (rc == 0 && r->has_place && memcmp(r->place, hello->node, sizeof r->place) != 0) {
        rc = -ENXIO;
    }
    return rc;
}

/* In the loop's thread. */
static bool remote_connected(void *opaque, int status, VjSlice reply)
{
    VjRemoteEngine *r = opaque;
    VjHelloReply hello;
    bool is_back = false, is_said;
    int rc = status;

    vj_mutex_lock(&r->lock);
    if (rc == 0) {
        rc = check_hello(r, reply, &hello);
    }
    if (rc == 0) {
        is_back = r->is_away;
        r->is_away = false;
        r->has_place = true;
        memcpy(r->place, hello.node, sizeof r->place);
    }
    is_said = !r->is_open || rc == r->refusal || is_passing(rc);
    r->refusal = rc;
    g_free(r->refusal_text);
    r->refusal_text = status < 0 ? vj_wire_text(reply) : NULL;
    vj_cond_broadcast(&r->greeted);
    vj_mutex_unlock(&r->lock);
    if (is_back) {
        vj_log_info("meta remote: node %s is back", r->node);
    } else if (rc < 0 && !is_said) {
        vj_log_error("meta remote: node %s is not used: %s", r->node,
                     rc == -ENXIO ? "its metadata are others now" : g_strerror(-rc));
    }
    return rc == 0;
}

/* In the loop's thread. */
static void remote_lost(void *opaque)
{
    VjRemoteEngine *r = opaque;
    bool is_open;

    vj_mutex_lock(&r->lock);
    is_open = r->is_open;
    r->is_away = is_open;
    vj_mutex_unlock(&r->lock);
    if (is_open) {
        vj_log_warn("meta remote: the connection to node %s is lost; calls wait for it "
                    "up to %" G_GINT64_FORMAT " s",
                    r->node, r->timeout_us / 1000000);
        vj_rpc_client_connect(r->client);
    }
}

/* ---- Open and close -------------------------------------------------------------- */

/* For people, in one line; owned. */
static char *name_of(const VjMetaPlace *place)
{
    g_autofree char *name =
        place->session != NULL && place->session->name != NULL
            ? g_utf8_make_valid(place->session->name, -1)
            : g_strdup_printf("process %ld on %s", (long)getpid(), g_get_host_name());
    const char *end = name;

    while (*end != '\0' && g_utf8_next_char(end) <= name + HELLO_NAME_MAX &&
           g_unichar_isprint(g_utf8_get_char(end))) {
        end = g_utf8_next_char(end);
    }
    return g_strndup(name, (gsize)(end - name));
}

static bool make_hello(const VjMetaPlace *place, const VjOpts *opts, GByteArray *to,
                       GError **error)
{
    const char *volume = vj_opts_string(opts, "volume");
    g_autofree char *name = name_of(place);
    VjHello hello = {.version_min = 1,
                     .version_max = VJ_WIRE_VERSION,
                     .role = VJ_ROLE_META,
                     .volume = vj_slice(volume, strlen(volume)),
                     .name = vj_slice(name, strlen(name))};

    if (place->volume == NULL || !vj_uuid_parse(place->volume, hello.uuid)) {
        return vj_error_set(error, EINVAL, "it is not said which volume is meant");
    }
    if (place->create) {
        hello.flags = VJ_HELLO_CREATE | (place->destroy ? VJ_HELLO_DESTROY : 0);
    } else if (place->read_only) {
        hello.flags = VJ_HELLO_READ_ONLY;
    }
    vj_hello_encode(to, &hello);
    return true;
}

static bool load_credentials(const VjMetaPlace *place, const VjOpts *opts,
                             VjCredentials **out, GError **error)
{
    VjCredentialsFiles files = files_of(opts);
    const char *names[] = {files.key, files.certificate, files.certificate_key, files.ca};

    for (size_t i = 0; place->credentials_dir == NULL && i < G_N_ELEMENTS(names); i++) {
        if (names[i] != NULL && !g_path_is_absolute(names[i])) {
            return vj_error_set(error, EINVAL,
                                "%s: the name of a file that begins with "
                                "/ is needed here",
                                names[i]);
        }
    }
    return vj_credentials_load(place->credentials_dir != NULL ? place->credentials_dir_fd
                                                              : -1,
                               &files, out, error);
}

/* What the node said for people; owned; NULL: nothing. */
static char *refusal_text(VjRemoteEngine *r)
{
    char *text;

    vj_mutex_lock(&r->lock);
    text = g_strdup(r->refusal_text);
    vj_mutex_unlock(&r->lock);
    return text;
}

/* Nothing was heard of it.  EHOSTUNREACH: nor has anything been sent to it. */
static bool refuse_silent(VjRemoteEngine *r, GError **error)
{
    g_autofree char *why = vj_rpc_client_why(r->client);
    VjRpcTraffic traffic;

    vj_rpc_client_traffic(r->client, &traffic);
    return vj_error_set(error, traffic.sent_bytes == 0 ? EHOSTUNREACH : ETIMEDOUT,
                        "node %s: no answer within %" G_GINT64_FORMAT " s%s%s", r->node,
                        r->timeout_us / 1000000, why != NULL ? ": " : "",
                        why != NULL ? why : "");
}

/* What kept this client out. */
static bool refuse(VjRemoteEngine *r, const VjMetaPlace *place, const char *volume,
                   int rc, GError **error)
{
    g_autofree char *text = refusal_text(r);
    const char *said = text != NULL ? text : "";
    const char *colon = text != NULL ? ": " : "";

    switch (rc) {
    case -ETIMEDOUT:
        return refuse_silent(r, error);
    case -ENXIO:
        return vj_error_set(error, place->create ? EEXIST : ENXIO,
                            "node %s: its volume \"%s\" is another file system%s%s",
                            r->node, volume, colon, said);
    case -ENODATA:
        return vj_error_set(error, ENOENT,
                            "node %s: its volume \"%s\" has no file system%s%s", r->node,
                            volume, colon, said);
    case -EACCES:
        return vj_error_set(error, EACCES,
                            "node %s: volume \"%s\" is not for this client%s%s", r->node,
                            volume, colon, said);
    case -EOPNOTSUPP:
        return vj_error_set(error, EOPNOTSUPP,
                            "node %s: it keeps no metadata, or speaks another version of "
                            "the protocol%s%s",
                            r->node, colon, said);
    default:
        return vj_error_set_errno(error, -rc, "node %s%s%s", r->node, colon, said);
    }
}

/* Waits until the node has let this client in, or will not. */
static int wait_for_node(VjRemoteEngine *r)
{
    int64_t until_us = MIN(vj_cancel_deadline_us(), vj_clock_mono_us() + r->timeout_us);
    int rc = 0;

    vj_mutex_lock(&r->lock);
    while (rc == 0 && !r->has_place) {
        rc = r->refusal < 0 && !is_passing(r->refusal)
                 ? r->refusal
                 : vj_cond_wait_or_cancel(&r->greeted, &r->lock, until_us);
    }
    if (r->has_place) {
        rc = 0;
        r->is_open = true;
    }
    vj_mutex_unlock(&r->lock);
    return rc;
}

static void remote_free(VjRemoteEngine *r)
{
    if (r->client != NULL) {
        vj_rpc_client_free(r->client);
    }
    vj_cond_clear(&r->pause);
    vj_cond_clear(&r->greeted);
    vj_mutex_clear(&r->lock);
    g_free(r->refusal_text);
    g_free(r->node);
}

static bool connect_to_node(VjRemoteEngine *r, const VjMetaPlace *place,
                            const VjOpts *opts, GError **error)
{
    g_autoptr(GByteArray) hello = g_byte_array_new();
    g_autoptr(VjCredentials) credentials = NULL;
    VjRpcClientConfig config = {.address = r->node,
                                .connected = remote_connected,
                                .lost = remote_lost,
                                .opaque = r};
    int rc;

    if (!make_hello(place, opts, hello, error) ||
        !load_credentials(place, opts, &credentials, error)) {
        return false;
    }
    config.credentials = credentials;
    config.hello = vj_slice(hello->data, hello->len);
    r->client = vj_rpc_client_new(&config, error);
    if (r->client == NULL) {
        return false;
    }
    vj_rpc_client_connect(r->client);
    rc = wait_for_node(r);
    return rc == 0 || refuse(r, place, vj_opts_string(opts, "volume"), rc, error);
}

bool vj_remote_engine_open(VjEngine *e, const VjMetaPlace *place, const VjOpts *opts,
                           GError **error)
{
    VjRemoteEngine *r = (VjRemoteEngine *)e;

    if (!vj_remote_engine_check(opts, error)) {
        return false;
    }
    r->node = g_strdup(vj_opts_string(opts, "node"));
    r->timeout_us = (int64_t)vj_opts_number(opts, "timeout") * 1000 * 1000;
    r->read_only = place->read_only;
    vj_mutex_init(&r->lock, VJ_RANK_META_ENGINE, "meta remote");
    vj_cond_init(&r->greeted);
    vj_cond_init(&r->pause);
    if (!connect_to_node(r, place, opts, error)) {
        remote_free(r);
        return false;
    }
    return true;
}

int vj_remote_engine_close(VjEngine *e, bool in_order)
{
    VjRemoteEngine *r = (VjRemoteEngine *)e;

    (void)in_order;
    vj_mutex_lock(&r->lock);
    r->is_open = false;
    vj_mutex_unlock(&r->lock);
    remote_free(r);
    return 0;
}
