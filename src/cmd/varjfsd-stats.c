/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * varjfsd-stats.c - varjfsd -c FILE --stats: asks the daemon that serves FILE
 *
 * With the key of [node], over the first address of listen; without one as a peer without
 * credentials, over the first of listen_insecure, and then of the volumes for such peers.
 */
#include "cmd/varjfsd.h"

#include "rpc/messages.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#define WAIT_US ((int64_t)10 * 1000 * 1000)
/* A hello has the name of a volume; that of one without a role is not looked at. */
#define NO_VOLUME "node"

/* How the daemon is asked; NULL with an error. */
static VjCredentials *credentials_for(const VjNodeConf *conf, const char **address,
                                      GError **error)
{
    VjCredentialsFiles files = {.insecure = true};
    g_autofree char *key = NULL;
    VjCredentials *out = NULL;

    if (conf->has_key && *conf->listen != NULL) {
        key = vj_node_conf_path(conf, vj_opts_string(conf->node, "key"));
        files = (VjCredentialsFiles){.key = key, .identity = VJ_NODE_OPERATOR};
        *address = *conf->listen;
    } else if (*conf->listen_insecure != NULL) {
        *address = *conf->listen_insecure;
    } else {
        vj_error_set(error, EACCES,
                     "%s: statistics take a key in [node], or listen_insecure",
                     conf->path);
        return NULL;
    }
    return vj_credentials_load(AT_FDCWD, &files, &out, error) ? out : NULL;
}

static VjRpcClient *client_for(const VjNodeConf *conf, GError **error)
{
    const char *address = NULL;
    g_autoptr(VjCredentials) credentials = credentials_for(conf, &address, error);
    g_autoptr(GByteArray) hello = g_byte_array_new();

    if (credentials == NULL) {
        return NULL;
    }
    vj_hello_encode(hello, &(VjHello){.version_min = 1,
                                      .version_max = VJ_WIRE_VERSION,
                                      .role = VJ_ROLE_ANY,
                                      .volume = vj_slice(NO_VOLUME, strlen(NO_VOLUME)),
                                      .name = vj_slice("varjfsd", strlen("varjfsd"))});
    return vj_rpc_client_new(
        &(VjRpcClientConfig){.address = address,
                             .credentials = credentials,
                             .hello = vj_slice(hello->data, hello->len)},
        error);
}

static bool ask(VjRpcClient *client, bool for_prometheus, GError **error)
{
    g_autoptr(VjRpcCall) call = vj_rpc_call_new(VJ_OP_STATS);
    g_autofree char *why = NULL;
    int rc;

    call->message = g_byte_array_new();
    vj_wire_u8_encode(call->message, for_prometheus ? 1 : 0);
    call->bulk_max = VJ_WIRE_STATS_MAX;
    call->deadline_us = vj_clock_mono_us() + WAIT_US;
    call->waits_for_connection = true;
    rc = vj_rpc_run(client, call);
    if (rc < 0) {
        why = call->is_answered ? NULL : vj_rpc_client_why(client);
        return why != NULL ? vj_error_set(error, -rc, "%s", why)
                           : vj_error_set_errno(error, -rc, "the daemon does not say");
    }
    if (call->reply_bulk != NULL) {
        fwrite(call->reply_bulk->data, 1, call->reply_bulk_bytes, stdout);
    }
    return true;
}

int vj_daemon_print_stats(const VjCmd *cmd, const VjNodeConf *conf, const char *format)
{
    g_autoptr(GError) error = NULL;
    VjRpcClient *client = client_for(conf, &error);
    bool ok = client != NULL && ask(client, strcmp(format, "prometheus") == 0, &error);

    if (client != NULL) {
        vj_rpc_client_free(client);
    }
    return vj_cmd_flush(cmd, ok ? EXIT_SUCCESS : vj_cmd_fail(cmd, error));
}
