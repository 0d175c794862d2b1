/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* credentials.c - by what two peers believe each other: insecure ones alone */
#include "rpc/rpc.h"

#include "rpc/stream-private.h"

struct VjCredentials {
    gint refs;
};

bool vj_credentials_load(int dir_fd, const VjCredentialsFiles *files, VjCredentials **out,
                         GError **error)
{
    (void)dir_fd;
    *out = NULL;
    if (!files->insecure) {
        return vj_error_set(error, EOPNOTSUPP,
                            "this build has insecure connections only");
    }
    *out = g_new0(VjCredentials, 1);
    (*out)->refs = 1;
    return true;
}

bool vj_credentials_load_server(int dir_fd, const VjCredentialsFiles *files,
                                VjCredentialsFind *find, void *opaque,
                                VjCredentials **out, GError **error)
{
    (void)find;
    (void)opaque;
    return vj_credentials_load(dir_fd, files, out, error);
}

VjCredentials *vj_credentials_ref(VjCredentials *c)
{
    g_atomic_int_inc(&c->refs);
    return c;
}

void vj_credentials_unref(VjCredentials *c)
{
    if (c != NULL && g_atomic_int_dec_and_test(&c->refs)) {
        g_free(c);
    }
}

bool vj_credentials_is_insecure(const VjCredentials *c)
{
    (void)c;
    return true;
}

VjStream *vj_tls_stream_new(int fd, bool is_server, VjCredentials *credentials,
                            const char *host, int *rc)
{
    (void)fd;
    (void)is_server;
    (void)credentials;
    (void)host;
    *rc = -EOPNOTSUPP;
    return NULL;
}
