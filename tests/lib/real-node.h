/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * real-node.h - a node as varjfsd has it, in the process of a test, at a unix socket
 *
 * Its one volume "default" is in a directory of its own.
 */
#ifndef VJ_TESTS_LIB_REAL_NODE_H
#define VJ_TESTS_LIB_REAL_NODE_H

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/test.h"
#include "node/node.h"

typedef struct RealNode {
    char *dir, *address;
    VjNode *node;
    VjRpcServer *server;
} RealNode;

/* @lines: of the section of its volume. */
static inline RealNode *real_node_new_with(const char *lines)
{
    RealNode *n = g_new0(RealNode, 1);
    g_autofree char *volume = NULL;
    g_autofree char *text = NULL;
    VjCredentialsFiles files = {.insecure = true};
    g_autoptr(VjCredentials) credentials = NULL;
    g_autoptr(VjNodeConf) conf = NULL;
    VjRpcServerConfig config = {.handlers = vj_node_handlers,
                                .hello = vj_node_hello,
                                .gone = vj_node_gone,
                                .workers = 4};
    g_autoptr(GError) error = NULL;

    n->dir = vj_test_make_dir();
    n->address = g_strdup_printf("unix:%s/socket", n->dir);
    volume = g_build_filename(n->dir, "volume", NULL);
    g_assert(mkdir(volume, 0700) == 0);
    text = g_strdup_printf("[node]\nlisten_insecure = %s\n[volume default]\n"
                           "directory = %s\n%s\n",
                           n->address, volume, lines);
    conf = vj_node_conf_parse("/test.conf", text, strlen(text), &error);
    if (conf == NULL) {
        g_error("%s", error->message);
    }
    n->node = vj_node_new(conf, NULL, NULL);
    config.opaque = n->node;
    n->server = vj_rpc_server_new(&config);
    g_assert(vj_credentials_load_server(-1, &files, vj_node_find_key, n->node,
                                        &credentials, NULL));
    if (!vj_rpc_server_listen(n->server, n->address, credentials, &error) ||
        !vj_rpc_server_start(n->server, &error)) {
        g_error("%s", error->message);
    }
    return n;
}

/* @meta: the engine that it has. */
static inline RealNode *real_node_new(const char *meta)
{
    g_autofree char *lines = g_strdup_printf("meta = %s\nroles = meta", meta);

    return real_node_new_with(lines);
}

static inline void real_node_free(RealNode *n)
{
    vj_rpc_server_free(n->server);
    g_assert(vj_node_free(n->node) == 0);
    vj_test_remove_dir(n->dir);
    g_free(n->address);
    g_free(n);
}

#endif
