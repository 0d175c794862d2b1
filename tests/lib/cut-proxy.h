/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * cut-proxy.h - a unix socket in front of another one, whose connections a test cuts
 *
 * After so many bytes in one direction the connection is cut, with what is on its way;
 * and as long as the test wants, no connection is made.
 */
#ifndef VJ_TESTS_LIB_CUT_PROXY_H
#define VJ_TESTS_LIB_CUT_PROXY_H

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"

#define CUT_PROXY_NEVER UINT64_MAX

typedef struct CutProxy {
    char *dir, *address; /* "unix:PATH" */
    char *to;            /* path of the socket behind it */
    int listen_fd, wake[2];
    GThread *accepts;
    VjMutex lock;
    /* guarded by lock: */
    GPtrArray *threads; /* of the connections */
    bool ends, is_down;
    uint64_t bytes[2]; /* that are left of each direction: to the server, to the client */
    unsigned cuts;
} CutProxy;

typedef struct CutConnection {
    CutProxy *proxy;
    int fds[2]; /* the client's, the server's */
} CutConnection;

static inline void cut_proxy_address(const char *path, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    g_assert(strlen(path) < sizeof out->sun_path);
    g_strlcpy(out->sun_path, path, sizeof out->sun_path);
}

/* Some bytes of one direction.  False: the connection is over, or cut. */
static inline bool cut_proxy_pass(CutConnection *c, unsigned direction)
{
    CutProxy *p = c->proxy;
    uint8_t bytes[4096];
    size_t most, sent = 0;
    ssize_t got;
    bool is_cut;

    vj_mutex_lock(&p->lock);
    most = (size_t)MIN(p->bytes[direction], sizeof bytes);
    vj_mutex_unlock(&p->lock);
    got = read(c->fds[direction], bytes, MAX(most, 1));
    if (got <= 0) {
        return false;
    }
    vj_mutex_lock(&p->lock);
    is_cut = p->is_down || p->bytes[direction] < (uint64_t)got;
    if (!is_cut && p->bytes[direction] != CUT_PROXY_NEVER) {
        p->bytes[direction] -= (uint64_t)got;
    }
    if (is_cut) {
        p->cuts++;
        p->bytes[direction] = CUT_PROXY_NEVER; /* once */
    }
    vj_mutex_unlock(&p->lock);
    while (!is_cut && sent < (size_t)got) {
        ssize_t n =
            send(c->fds[1 - direction], bytes + sent, (size_t)got - sent, MSG_NOSIGNAL);

        if (n <= 0) {
            return false;
        }
        sent += (size_t)n;
    }
    return !is_cut;
}

static inline gpointer cut_proxy_connection(gpointer opaque)
{
    CutConnection *c = opaque;
    bool goes_on = true;

    while (goes_on) {
        struct pollfd polled[] = {{.fd = c->fds[0], .events = POLLIN},
                                  {.fd = c->fds[1], .events = POLLIN},
                                  {.fd = c->proxy->wake[0], .events = POLLIN}};

        goes_on = poll(polled, 3, -1) > 0 && polled[2].revents == 0;
        for (unsigned i = 0; goes_on && i < 2; i++) {
            goes_on = polled[i].revents == 0 || cut_proxy_pass(c, i);
        }
    }
    close(c->fds[0]);
    close(c->fds[1]);
    g_free(c);
    return NULL;
}

static inline gpointer cut_proxy_accepts(gpointer opaque)
{
    CutProxy *p = opaque;
    struct sockaddr_un address;
    bool ends = false;
    int fd;

    cut_proxy_address(p->to, &address);
    while (!ends && (fd = accept(p->listen_fd, NULL, NULL)) >= 0) {
        int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool is_down;

        vj_mutex_lock(&p->lock);
        ends = p->ends;
        is_down = p->is_down || ends;
        vj_mutex_unlock(&p->lock);
        if (is_down ||
            connect(to, (const struct sockaddr *)&address, sizeof address) < 0) {
            close(to);
            close(fd);
        } else {
            CutConnection *c = g_new(CutConnection, 1);

            *c = (CutConnection){p, {fd, to}};
            vj_mutex_lock(&p->lock);
            g_ptr_array_add(p->threads, g_thread_new("proxy", cut_proxy_connection, c));
            vj_mutex_unlock(&p->lock);
        }
    }
    return NULL;
}

/* @to: "unix:PATH" */
static inline CutProxy *cut_proxy_new(const char *to)
{
    CutProxy *p = g_new0(CutProxy, 1);
    g_autofree char *template =
        g_build_filename(g_get_tmp_dir(), "cut-proxy-XXXXXX", NULL);
    struct sockaddr_un address;

    p->dir = g_strdup(g_mkdtemp(template));
    p->address = g_strdup_printf("unix:%s/socket", p->dir);
    p->to = g_strdup(to + strlen("unix:"));
    p->bytes[0] = p->bytes[1] = CUT_PROXY_NEVER;
    p->threads = g_ptr_array_new();
    vj_mutex_init(&p->lock, VJ_RANK_BASE, "cut proxy");
    p->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cut_proxy_address(p->address + strlen("unix:"), &address);
    g_assert(bind(p->listen_fd, (const struct sockaddr *)&address, sizeof address) == 0);
    g_assert(listen(p->listen_fd, 16) == 0);
    g_assert(pipe(p->wake) == 0);
    p->accepts = g_thread_new("proxy", cut_proxy_accepts, p);
    return p;
}

static inline void cut_proxy_free(CutProxy *p)
{
    vj_mutex_lock(&p->lock);
    p->ends = true;
    vj_mutex_unlock(&p->lock);
    shutdown(p->listen_fd, SHUT_RDWR);
    g_thread_join(p->accepts);
    close(p->wake[1]); /* all connections end */
    for (guint i = 0; i < p->threads->len; i++) {
        g_thread_join(g_ptr_array_index(p->threads, i));
    }
    g_ptr_array_unref(p->threads);
    close(p->wake[0]);
    close(p->listen_fd);
    vj_mutex_clear(&p->lock);
    (void)unlink(p->address + strlen("unix:"));
    (void)rmdir(p->dir);
    g_free(p->to);
    g_free(p->address);
    g_free(p->dir);
    g_free(p);
}

/* The next connection that has passed so many more bytes in that direction is cut. */
static inline void cut_proxy_after(CutProxy *p, bool to_client, uint64_t bytes)
{
    vj_mutex_lock(&p->lock);
    p->bytes[to_client] = bytes;
    p->cuts = 0;
    vj_mutex_unlock(&p->lock);
}

/* As long as it is down nothing passes. */
static inline void cut_proxy_set_down(CutProxy *p, bool is_down)
{
    vj_mutex_lock(&p->lock);
    p->is_down = is_down;
    vj_mutex_unlock(&p->lock);
}

static inline unsigned cut_proxy_cuts(CutProxy *p)
{
    unsigned cuts;

    vj_mutex_lock(&p->lock);
    cuts = p->cuts;
    p->bytes[0] = p->bytes[1] = CUT_PROXY_NEVER;
    vj_mutex_unlock(&p->lock);
    return cuts;
}

#endif
