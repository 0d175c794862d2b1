/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * server.c - sockets that listen, and the threads of a server
 *
 * The first loop accepts connections and deals them out to all loops.  Workers take
 * requests of the connections in turn, so that one with many does not hold up others.
 */
#include "rpc/server-private.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rpc/address-private.h"

#define BYTES_MAX_DEFAULT VJ_GIB
#define SWEEP_US ((int64_t)250 * 1000)
/* Without descriptors nothing is accepted for so long. */
#define ACCEPT_PAUSE_US ((int64_t)100 * 1000)
/* Of one wake-up. */
#define ACCEPTS_MAX 64u

struct VjListener {
    VjRpcServer *server;
    int fd;
    struct event *event; /* of loop 0; NULL: stopped */
    VjCredentials *credentials;
    unsigned index;
    char *path; /* of a socket file that is removed at the end */
    dev_t device;
    ino_t inode;
};

/* ---- jobs -------------------------------------------------------------------------- */

static void add_job(VjJob **first, VjJob **last, VjJob *job)
{
    job->next = NULL;
    *(*last == NULL ? first : &(*last)->next) = job;
    *last = job;
}

static VjJob *take_job(VjJob **first, VjJob **last)
{
    VjJob *job = *first;

    *first = job->next;
    if (*first == NULL) {
        *last = NULL;
    }
    return job;
}

/* There is something to do.  A worker that has been woken and does not run yet wakes the
 * next one if it does not take all of it. */
static void wake_worker(VjRpcServer *s)
{
    vj_mutex_assert_held(&s->lock);
    if (s->idle > 0 && !s->is_waking) {
        s->is_waking = true;
        vj_cond_signal(&s->work);
    }
}

void vj_server_push(VjRpcServer *s, VjPeer *p, VjJob *job)
{
    vj_mutex_lock(&s->lock);
    if (p == NULL) {
        add_job(&s->first, &s->last, job);
    } else {
        if (p->first == NULL) {
            g_queue_push_tail_link(&s->ring, &p->ring_link);
        }
        add_job(&p->first, &p->last, job);
    }
    wake_worker(s);
    vj_mutex_unlock(&s->lock);
}

static VjJob *next_job(VjRpcServer *s)
{
    VjPeer *p;
    VjJob *job;

    vj_mutex_assert_held(&s->lock);
    if (s->first != NULL) {
        return take_job(&s->first, &s->last);
    }
    if (s->ring.head == NULL) {
        return NULL;
    }
    p = s->ring.head->data;
    g_queue_unlink(&s->ring, &p->ring_link);
    job = take_job(&p->first, &p->last);
    if (p->first != NULL) {
        g_queue_push_tail_link(&s->ring, &p->ring_link);
    }
    return job;
}

static gpointer worker_main(gpointer opaque)
{
    VjRpcServer *s = opaque;

    for (;;) {
        VjJob *job;

        vj_mutex_lock(&s->lock);
        while ((job = next_job(s)) == NULL && !s->stop) {
            s->idle++;
            vj_cond_wait(&s->work, &s->lock);
            s->idle--;
            s->is_waking = false;
        }
        if (s->first != NULL || s->ring.head != NULL) {
            wake_worker(s);
        }
        vj_mutex_unlock(&s->lock);
        if (job == NULL) {
            return NULL;
        }
        job->run(job);
    }
}

void vj_server_say_quiet(VjRpcServer *s)
{
    vj_mutex_lock(&s->lock);
    vj_cond_broadcast(&s->quiet);
    vj_mutex_unlock(&s->lock);
}

/* ---- connections that come --------------------------------------------------------- */

static void accept_peer(VjRpcServer *s, VjListener *l, int fd)
{
    VjServerLoop *loop = &s->loops[s->next_loop++ % s->loop_count];

    if ((unsigned)g_atomic_int_get(&s->connections) >= s->config.connections_max) {
        __atomic_fetch_add(&s->refused, 1, __ATOMIC_RELAXED);
        close(fd);
        return;
    }
    vj_socket_tune(fd);
    if (!vj_peer_new(s, loop, fd, l->credentials)) {
        __atomic_fetch_add(&s->refused, 1, __ATOMIC_RELAXED);
    }
}

static void set_listening(VjRpcServer *s, bool is_on)
{
    for (guint i = 0; i < s->listeners->len; i++) {
        VjListener *l = s->listeners->pdata[i];

        if (l->event != NULL) {
            int rc = is_on ? event_add(l->event, NULL) : event_del(l->event);

            g_assert(rc == 0);
        }
    }
}

static void on_accept_pause_over(evutil_socket_t fd, short what, void *opaque)
{
    (void)fd;
    (void)what;
    set_listening(((VjServerLoop *)opaque)->server, true);
}

static void on_connection(evutil_socket_t listener, short what, void *opaque)
{
    VjListener *l = opaque;
    VjRpcServer *s = l->server;
    struct timeval pause = {.tv_usec = ACCEPT_PAUSE_US};

    (void)what;
    for (unsigned i = 0; i < ACCEPTS_MAX; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            accept_peer(s, l, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
                   errno == ENOBUFS) {
            vj_log_warn("rpc: cannot accept connections: %s", g_strerror(errno));
            set_listening(s, false);
            evtimer_add(s->loops[0].accept_event, &pause);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return; /* no more, or one that failed before it was taken */
        }
    }
}

/* ---- loops ------------------------------------------------------------------------- */

static VjServerLoop *loop_of(VjLoopTask *task, size_t offset)
{
    return (VjServerLoop *)(void *)((uint8_t *)task - offset);
}

static void loop_changed(VjRpcServer *s)
{
    vj_mutex_lock(&s->lock);
    s->loops_changed++;
    vj_cond_broadcast(&s->quiet);
    vj_mutex_unlock(&s->lock);
}

/* Has @task run in the loop's thread. */
static void run_in_loop(VjServerLoop *l, VjLoopTask *task)
{
    VjRpcServer *s = l->server;
    unsigned before;

    vj_mutex_lock(&s->lock);
    before = s->loops_changed;
    vj_loop_post(l->loop, task);
    while (s->loops_changed == before) {
        vj_cond_wait(&s->quiet, &s->lock);
    }
    vj_mutex_unlock(&s->lock);
}

static void on_sweep(evutil_socket_t fd, short what, void *opaque)
{
    (void)fd;
    (void)what;
    vj_peers_sweep(opaque);
}

static void begin_loop(VjLoopTask *task)
{
    VjServerLoop *l = loop_of(task, offsetof(VjServerLoop, begin_task));
    VjRpcServer *s = l->server;
    struct event_base *base = vj_loop_base(l->loop);
    struct timeval period = {.tv_usec = SWEEP_US};
    bool good;

    l->sweep_event = event_new(base, -1, EV_PERSIST, on_sweep, l);
    l->accept_event = evtimer_new(base, on_accept_pause_over, l);
    good = l->sweep_event != NULL && l->accept_event != NULL &&
           event_add(l->sweep_event, &period) == 0;
    for (guint i = 0; good && l == &s->loops[0] && i < s->listeners->len; i++) {
        VjListener *listener = s->listeners->pdata[i];

        listener->event =
            event_new(base, listener->fd, EV_READ | EV_PERSIST, on_connection, listener);
        good = listener->event != NULL && event_add(listener->event, NULL) == 0;
    }
    if (!good) {
        g_error("rpc: no memory for events"); /* as small allocations of GLib's end */
    }
    loop_changed(s);
}

static void close_listener(VjListener *l)
{
    struct stat st;

    if (l->event != NULL) {
        event_free(l->event);
        l->event = NULL;
    }
    vj_fd_close(&l->fd);
    if (l->path != NULL && lstat(l->path, &st) == 0 && st.st_dev == l->device &&
        st.st_ino == l->inode) {
        (void)unlink(l->path); /* one that stays is replaced by the next server */
    }
    g_clear_pointer(&l->path, g_free);
}

static void close_listeners(VjRpcServer *s)
{
    for (guint i = 0; i < s->listeners->len; i++) {
        close_listener(s->listeners->pdata[i]);
    }
}

static void stop_listening(VjLoopTask *task)
{
    VjServerLoop *l = loop_of(task, offsetof(VjServerLoop, listen_task));

    event_del(l->accept_event);
    close_listeners(l->server);
    loop_changed(l->server);
}

static void end_loop(VjLoopTask *task)
{
    VjServerLoop *l = loop_of(task, offsetof(VjServerLoop, end_task));

    vj_peers_close_all(l);
    event_free(l->sweep_event);
    event_free(l->accept_event);
    loop_changed(l->server);
}

/* ---- the server -------------------------------------------------------------------- */

static void listener_free(gpointer opaque)
{
    VjListener *l = opaque;

    close_listener(l);
    vj_credentials_unref(l->credentials);
    g_free(l);
}

VjRpcServer *vj_rpc_server_new(const VjRpcServerConfig *config)
{
    VjRpcServer *s = g_new0(VjRpcServer, 1);

    g_assert(config->handlers != NULL && config->hello != NULL && config->workers > 0);
    s->config = *config;
    if (s->config.connections_max == 0) {
        s->config.connections_max = VJ_RPC_CONNECTIONS_MAX;
    }
    if (s->config.connection_bytes_max == 0) {
        s->config.connection_bytes_max = VJ_RPC_CONNECTION_BYTES_MAX;
    }
    if (s->config.bytes_max == 0) {
        s->config.bytes_max = BYTES_MAX_DEFAULT;
    }
    while (config->handlers[s->handler_count].op != 0) {
        s->handler_count++;
    }
    s->op_stats = g_new0(VjOpStats, s->handler_count);
    s->listeners = g_ptr_array_new_with_free_func(listener_free);
    s->workers = g_ptr_array_new();
    s->clients = vj_server_clients_new();
    s->loop_count = CLAMP(g_get_num_processors() / 2, 1, VJ_SERVER_LOOPS_MAX);
    vj_mutex_init(&s->lock, VJ_RANK_RPC, "rpc.server");
    vj_cond_init(&s->work);
    vj_cond_init(&s->quiet);
    vj_pipes_init(&s->pipes);
    return s;
}

static bool may_listen(const VjAddress *a, int fd, VjCredentials *credentials,
                       GError **error)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;

    if (a->path != NULL || !vj_credentials_is_insecure(credentials)) {
        return true;
    }
    if (getsockname(fd, (struct sockaddr *)&at, &len) < 0) {
        return vj_error_set_errno(error, errno, "getsockname");
    }
    return vj_socket_address_is_local((const struct sockaddr *)&at) ||
           vj_error_set(error, EACCES,
                        "without TLS only the machine's own loopback addresses");
}

static void add_listener(VjRpcServer *s, const VjAddress *a, int fd,
                         VjCredentials *credentials)
{
    VjListener *l = g_new0(VjListener, 1);
    struct stat st;

    l->server = s;
    l->fd = fd;
    l->credentials = vj_credentials_ref(credentials);
    l->index = s->listen_count;
    if (a->path != NULL && lstat(a->path, &st) == 0) {
        l->path = g_strdup(a->path);
        l->device = st.st_dev;
        l->inode = st.st_ino;
    }
    g_ptr_array_add(s->listeners, l);
}

bool vj_rpc_server_listen(VjRpcServer *s, const char *address, VjCredentials *credentials,
                          GError **error)
{
    g_autoptr(GArray) fds = g_array_new(FALSE, FALSE, sizeof(int));
    VjAddress a;
    bool good;

    g_assert(!s->is_started);
    good = vj_address_parse(address, &a, error) && vj_socket_listen(&a, fds, error);
    for (guint i = 0; good && i < fds->len; i++) {
        good = may_listen(&a, g_array_index(fds, int, i), credentials, error);
    }
    for (guint i = 0; i < fds->len; i++) {
        int *fd = &g_array_index(fds, int, i);

        if (good) {
            add_listener(s, &a, *fd, credentials);
        } else {
            vj_fd_close(fd);
        }
    }
    s->listen_count += good;
    vj_address_clear(&a);
    return good || vj_error_prefix(error, "%s", address);
}

unsigned vj_rpc_server_port(const VjRpcServer *s, unsigned index)
{
    for (guint i = 0; i < s->listeners->len; i++) {
        const VjListener *l = s->listeners->pdata[i];

        if (l->index == index && l->fd >= 0) {
            return vj_socket_port(l->fd);
        }
    }
    return 0;
}

/* All signals blocked: they are for the program's other threads. */
static GThread *start_worker(VjRpcServer *s, GError **error)
{
    sigset_t all, before;
    GThread *thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread = g_thread_try_new("vj-rpc-work", worker_main, s, error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return thread;
}

bool vj_rpc_server_start(VjRpcServer *s, GError **error)
{
    g_assert(!s->is_started);
    for (unsigned i = 0; i < s->loop_count; i++) {
        VjServerLoop *l = &s->loops[i];

        l->server = s;
        l->begin_task.run = begin_loop;
        l->listen_task.run = stop_listening;
        l->end_task.run = end_loop;
        l->loop = vj_loop_new("vj-rpc-server", true, error);
        if (l->loop == NULL) {
            return false; /* vj_rpc_server_free ends those that began */
        }
    }
    for (unsigned i = 0; i < s->config.workers; i++) {
        GThread *thread = start_worker(s, error);

        if (thread == NULL) {
            return false;
        }
        g_ptr_array_add(s->workers, thread);
    }
    s->is_started = true;
    for (unsigned i = s->loop_count; i-- > 0;) {
        run_in_loop(&s->loops[i], &s->loops[i].begin_task); /* 0, which accepts, last */
    }
    return true;
}

bool vj_rpc_server_drain(VjRpcServer *s, int64_t deadline_us)
{
    bool is_quiet;

    g_atomic_int_set(&s->is_draining, 1);
    if (!s->is_started) {
        return true;
    }
    run_in_loop(&s->loops[0], &s->loops[0].listen_task);
    vj_mutex_lock(&s->lock);
    while (g_atomic_int_get(&s->active) > 0 &&
           vj_cond_wait_until(&s->quiet, &s->lock, deadline_us)) {
    }
    is_quiet = g_atomic_int_get(&s->active) == 0;
    vj_mutex_unlock(&s->lock);
    return is_quiet;
}

static void stop_workers(VjRpcServer *s)
{
    vj_mutex_lock(&s->lock);
    s->stop = true;
    vj_cond_broadcast(&s->work);
    vj_mutex_unlock(&s->lock);
    for (guint i = 0; i < s->workers->len; i++) {
        g_thread_join(s->workers->pdata[i]);
    }
}

void vj_rpc_server_free(VjRpcServer *s)
{
    if (s->is_started) {
        run_in_loop(&s->loops[0], &s->loops[0].listen_task);
        for (unsigned i = 0; i < s->loop_count; i++) {
            run_in_loop(&s->loops[i], &s->loops[i].end_task);
        }
        vj_mutex_lock(&s->lock);
        while (g_atomic_int_get(&s->connections) > 0) {
            vj_cond_wait(&s->quiet, &s->lock);
        }
        vj_mutex_unlock(&s->lock);
    }
    stop_workers(s);
    for (unsigned i = 0; i < s->loop_count; i++) {
        if (s->loops[i].loop != NULL) {
            vj_loop_free(s->loops[i].loop);
        }
    }
    g_ptr_array_unref(s->listeners);
    g_assert(s->first == NULL && s->ring.length == 0 && s->active == 0 &&
             s->held_bytes == 0);
    g_assert(s->stalled.length == 0 && s->bulks.length == 0 && s->deferred.length == 0);
    g_hash_table_unref(s->clients);
    g_ptr_array_unref(s->workers);
    vj_mutex_clear(&s->lock);
    vj_cond_clear(&s->work);
    vj_cond_clear(&s->quiet);
    g_free(s->op_stats);
    vj_pipes_clear(&s->pipes);
    g_free(s);
}

void vj_rpc_server_stats(VjRpcServer *s, VjRpcServerStats *out)
{
    *out = (VjRpcServerStats){
        .connections = (uint64_t)g_atomic_int_get(&s->connections),
        .accepted = __atomic_load_n(&s->accepted, __ATOMIC_RELAXED),
        .refused = __atomic_load_n(&s->refused, __ATOMIC_RELAXED),
        .protocol_errors = __atomic_load_n(&s->protocol_errors, __ATOMIC_RELAXED),
        .received_bytes = __atomic_load_n(&s->counters.received_bytes, __ATOMIC_RELAXED),
        .sent_bytes = __atomic_load_n(&s->counters.sent_bytes, __ATOMIC_RELAXED),
        .held_bytes = __atomic_load_n(&s->held_bytes, __ATOMIC_RELAXED),
        .requests = __atomic_load_n(&s->requests, __ATOMIC_RELAXED),
        .failures = __atomic_load_n(&s->failures, __ATOMIC_RELAXED),
    };
}

void vj_rpc_server_op_stats(VjRpcServer *s, unsigned index, uint64_t *requests,
                            uint64_t *failures, uint64_t *busy_us)
{
    const VjOpStats *o = &s->op_stats[index];

    g_assert(index < s->handler_count);
    *requests = __atomic_load_n(&o->requests, __ATOMIC_RELAXED);
    *failures = __atomic_load_n(&o->failures, __ATOMIC_RELAXED);
    *busy_us = __atomic_load_n(&o->busy_us, __ATOMIC_RELAXED);
}
