/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* varjfsd.c - main() of the storage daemon: read the configuration, listen, serve, end */
#include "cmd/cmd.h"
#include "node/node.h"

#include <signal.h>
#include <stdlib.h>

typedef struct Options {
    const char *conf;
} Options;

static const VjCmdSwitch switches[] = {
    {'c', NULL, "FILE", "the configuration, varjfsd.conf(5)"},
    {.help = NULL},
};

static const VjCmd program = {
    .name = "varjfsd",
    .operands = "-c FILE",
    .summary = "Serves the objects and keys of varjfs volumes to other machines.",
    .switches = switches,
};

static bool set(void *opaque, const VjCmdSwitch *s, const char *value, GError **error)
{
    Options *o = opaque;

    (void)s, (void)error;
    o->conf = value;
    return true;
}

static bool listen_all(VjRpcServer *server, char **addresses, VjCredentials *credentials,
                       GError **error)
{
    for (size_t i = 0; addresses[i] != NULL; i++) {
        if (!vj_rpc_server_listen(server, addresses[i], credentials, error)) {
            return false;
        }
    }
    return true;
}

static bool listen_secure(VjRpcServer *server, const VjNodeConf *conf, VjNode *node,
                          GError **error)
{
    VjCredentialsFiles files = {.certificate = conf->certificate,
                                .certificate_key = conf->certificate_key,
                                .ca = conf->ca};
    g_autoptr(VjCredentials) credentials = NULL;

    return conf->listen[0] == NULL ||
           (vj_credentials_load_server(-1, &files, vj_node_find_key, node, &credentials,
                                       error) &&
            listen_all(server, conf->listen, credentials, error));
}

static bool listen_insecure(VjRpcServer *server, const VjNodeConf *conf, VjNode *node,
                            GError **error)
{
    VjCredentialsFiles files = {.insecure = true};
    g_autoptr(VjCredentials) credentials = NULL;

    return conf->listen_insecure[0] == NULL ||
           (vj_credentials_load_server(-1, &files, vj_node_find_key, node, &credentials,
                                       error) &&
            listen_all(server, conf->listen_insecure, credentials, error));
}

static void reload(const char *path, VjNode *node)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(VjNodeConf) conf = vj_node_conf_load(path, &error);

    if (conf == NULL) {
        vj_log_error("%s; it goes on as before", error->message);
        return;
    }
    vj_node_reload(node, conf);
    vj_log_info("%s was read again", path);
}

/* Until SIGTERM or SIGINT. */
static void serve(const sigset_t *signals, const char *path, VjNode *node)
{
    int number = 0;

    while (number != SIGTERM && number != SIGINT) {
        if (sigwait(signals, &number) != 0) {
            number = 0;
        } else if (number == SIGHUP) {
            reload(path, node);
        }
    }
}

static int run(const Options *o, const VjNodeConf *conf, VjNode *node)
{
    VjRpcServerConfig config = {
        .handlers = vj_node_handlers,
        .hello = vj_node_hello,
        .gone = vj_node_gone,
        .opaque = node,
        .workers = (unsigned)vj_opts_number(conf->node, "workers"),
        .connections_max = (unsigned)vj_opts_number(conf->node, "connections"),
        .connection_bytes_max = vj_opts_number(conf->node, "connection_memory"),
        .bytes_max = vj_opts_number(conf->node, "memory"),
    };
    g_autoptr(GError) error = NULL;
    VjRpcServer *server;
    sigset_t signals;
    int64_t drain_us = (int64_t)vj_opts_number(conf->node, "drain") * G_USEC_PER_SEC;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* for all threads to come */
    server = vj_rpc_server_new(&config);
    if (!listen_secure(server, conf, node, &error) ||
        !listen_insecure(server, conf, node, &error) ||
        !vj_rpc_server_start(server, &error)) {
        vj_rpc_server_free(server);
        vj_cmd_fail(&program, error);
        return EXIT_FAILURE;
    }
    vj_log_info("varjfsd serves %u volumes", conf->volumes->len);
    serve(&signals, o->conf, node);
    if (!vj_rpc_server_drain(server, vj_clock_mono_us() + drain_us)) {
        vj_log_warn("some requests were not answered in time");
    }
    vj_rpc_server_free(server);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    Options o = {.conf = NULL};
    g_autoptr(VjNodeConf) conf = NULL;
    g_autoptr(GError) error = NULL;
    VjNode *node;
    int first, rc = vj_cmd_parse(&program, argc, argv, set, &o, &first);

    if (rc >= 0) {
        return rc;
    }
    if (o.conf == NULL || first < argc) {
        return vj_cmd_usage_error(&program, o.conf == NULL ? "-c" : argv[first],
                                  o.conf == NULL ? "missing" : "unexpected");
    }
    conf = vj_node_conf_load(o.conf, &error);
    if (conf == NULL) {
        vj_cmd_fail(&program, error);
        return EXIT_FAILURE;
    }
    node = vj_node_new(conf);
    rc = run(&o, conf, node);
    return vj_node_free(node) < 0 ? EXIT_FAILURE : rc;
}
