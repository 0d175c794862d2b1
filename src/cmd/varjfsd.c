/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * varjfsd.c - main() of the storage daemon: varjfsd -c FILE
 *
 * It listens, gives up what serving does not take, serves until SIGTERM or SIGINT, lets
 * what is running end, and closes its volumes.  SIGHUP reads the configuration again:
 * volumes and keys; what else has changed takes a restart, and is named.
 */
#include "cmd/varjfsd.h"
#include "node/notify.h"
#include "varjfs/client-protocol.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* How long a daemon of --source stays without a program, and waits for the first one. */
#define IDLE_US ((int64_t)5 * G_USEC_PER_SEC)
#define FIRST_US ((int64_t)30 * G_USEC_PER_SEC)

/* The longest bulk that comes often: a reply of a batch of programs. */
#define BUFFER_MOST ((size_t)16 << 20)

typedef struct Daemon {
    const char *conf_path;
    const char *stats;  /* --stats; NULL: serve */
    const char *source; /* --source; NULL: what conf_path says */
    bool only_checks, in_background;
    bool is_busy;     /* of --source: another process has the volume */
    VjNodeConf *conf; /* that was read last */
    VjNode *node;
    VjRpcServer *server;
    GArray *dirs;  /* of the volumes, until the sandbox is entered */
    int ready_fd;  /* the parent waits on it; -1: none */
    int notify_fd; /* of the service manager; -1: none */
} Daemon;

static const VjCmdSwitch switches[] = {
    {'c', NULL, "FILE", "the configuration, varjfsd.conf(5)"},
    {'d', NULL, NULL, "serve in the background; returns when it does"},
    {'\0', "source", "DIR",
     "serve the volume in DIR to programs, at DIR/varjfsd.sock, until the last has gone"},
    {'\0', "check", NULL, "read the configuration, and end"},
    {'\0', "stats", "FORMAT",
     "what the daemon that serves FILE has done: json or prometheus"},
    {.help = NULL},
};

static const VjCmd program = {
    .name = "varjfsd",
    .operands = "-c FILE|--source=DIR [-d | --check | --stats=FORMAT]",
    .summary = "Serves varjfs volumes to other machines, and to programs.",
    .switches = switches,
};

static bool set(void *opaque, const VjCmdSwitch *s, const char *value, GError **error)
{
    Daemon *d = opaque;

    if (s->letter == 'c') {
        d->conf_path = value;
    } else if (s->letter == 'd') {
        d->in_background = true;
    } else if (strcmp(s->word, "check") == 0) {
        d->only_checks = true;
    } else if (strcmp(s->word, "source") == 0) {
        d->source = value;
    } else {
        d->stats = value;
        return strcmp(value, "json") == 0 || strcmp(value, "prometheus") == 0 ||
               vj_error_set(error, EINVAL, "--stats: %s is not one of json|prometheus",
                            value);
    }
    return true;
}

/* ---- listening --------------------------------------------------------------------- */

static bool listen_at(Daemon *d, char **addresses, const VjCredentialsFiles *files,
                      GError **error)
{
    g_autoptr(VjCredentials) credentials = NULL;

    if (*addresses == NULL) {
        return true;
    }
    if (!vj_credentials_load_server(AT_FDCWD, files, vj_node_find_key, d->node,
                                    &credentials, error)) {
        return false;
    }
    for (char **a = addresses; *a != NULL; a++) {
        if (!vj_rpc_server_listen(d->server, *a, credentials, error)) {
            return false;
        }
    }
    return true;
}

static bool listen_all(Daemon *d, GError **error)
{
    const VjNodeConf *conf = d->conf;
    VjRpcServerConfig config = {
        .handlers = vj_node_handlers,
        .hello = vj_node_hello,
        .gone = vj_node_gone,
        .opaque = d->node,
        .workers = (unsigned)vj_opts_number(conf->node, "workers"),
        .connections_max = (unsigned)vj_opts_number(conf->node, "connections"),
        .connection_bytes_max = vj_opts_number(conf->node, "connection_memory"),
        .bytes_max = vj_opts_number(conf->node, "memory"),
    };

    d->server = vj_rpc_server_new(&config);
    return listen_at(d, conf->listen,
                     &(VjCredentialsFiles){.certificate = conf->certificate,
                                           .certificate_key = conf->certificate_key,
                                           .ca = conf->ca},
                     error) &&
           listen_at(d, conf->listen_insecure, &(VjCredentialsFiles){.insecure = true},
                     error);
}

/* ---- reading the configuration again ----------------------------------------------- */

/* What takes a restart. */
static void name_changes(const VjNodeConf *before, const VjNodeConf *now)
{
    for (const VjOptSpec *spec = vj_node_options; spec->name != NULL; spec++) {
        if (strcmp(spec->name, "key") != 0 &&
            g_strcmp0(vj_opts_string(before->node, spec->name),
                      vj_opts_string(now->node, spec->name)) != 0) {
            vj_log_warn("%s: [node] %s has changed: that takes a restart", now->path,
                        spec->name);
        }
    }
}

static void reload(Daemon *d)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(VjNodeConf) now = NULL;
    GArray *dirs = NULL;

    vj_node_notify(d->notify_fd, "RELOADING=1");
    now = vj_node_conf_load(d->conf->path, &error);
    if (now == NULL || !vj_daemon_open_dirs(now, &dirs, &error)) {
        vj_log_error("%s; it goes on as before", error->message);
    } else {
        vj_daemon_close_dirs(dirs);
        name_changes(d->conf, now);
        vj_node_reload(d->node, now);
        vj_log_info("%s was read again: %u volumes", now->path, now->volumes->len);
        vj_node_conf_free(d->conf);
        d->conf = g_steal_pointer(&now);
    }
    vj_node_notify(d->notify_fd, "READY=1");
}

/* ---- serving ----------------------------------------------------------------------- */

static sigset_t wanted_signals(void)
{
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    return signals;
}

static void tell_ready(Daemon *d)
{
    static const char done = 0;

    vj_node_notify(d->notify_fd, "READY=1");
    if (d->ready_fd >= 0) {
        VJ_AUTO_FD null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

        (void)!write(d->ready_fd, &done, 1);
        vj_fd_close(&d->ready_fd);
        /* A program that reads the output of this one waits for its end. */
        if (null_fd >= 0) {
            dup2(null_fd, STDOUT_FILENO);
            dup2(null_fd, STDERR_FILENO);
        }
    }
}

/* A daemon that programs have started, and that none has used for some seconds. */
typedef struct Idle {
    uint64_t accepted;
    int64_t since_us;
    bool was_used;
} Idle;

static bool is_unused(const Daemon *d, Idle *idle)
{
    VjRpcServerStats stats;
    int64_t now_us = vj_clock_mono_us();

    vj_rpc_server_stats(d->server, &stats);
    if (stats.connections > 0 || stats.accepted != idle->accepted) {
        idle->accepted = stats.accepted;
        idle->since_us = now_us;
        idle->was_used = true;
    }
    return now_us - idle->since_us >= (idle->was_used ? IDLE_US : FIRST_US);
}

/* Until SIGTERM or SIGINT; of --source also until nobody uses it any more. */
static void wait_for_end(Daemon *d)
{
    static const struct timespec second = {.tv_sec = 1};
    Idle idle = {.since_us = vj_clock_mono_us()};
    sigset_t signals = wanted_signals();
    int number = 0;

    while (number != SIGTERM && number != SIGINT) {
        number = sigtimedwait(&signals, NULL, d->source != NULL ? &second : NULL);
        if (number == SIGHUP && d->source == NULL) {
            reload(d);
        } else if (number < 0 && errno == EAGAIN && is_unused(d, &idle)) {
            vj_log_info("no program uses it any more");
            return;
        }
    }
    vj_log_info("signal %d: no new requests, and the end when those in flight have ended",
                number);
}

static void drain(Daemon *d)
{
    int64_t limit_us = (int64_t)vj_opts_number(d->conf->node, "drain") * G_USEC_PER_SEC;

    vj_node_notify(d->notify_fd, "STOPPING=1");
    if (!vj_rpc_server_drain(d->server, vj_clock_mono_us() + limit_us)) {
        vj_log_warn("some requests were not answered within drain=%" G_GINT64_FORMAT
                    " seconds",
                    limit_us / G_USEC_PER_SEC);
    }
}

static const char *log_target(const Daemon *d)
{
    return d->conf->log != NULL ? d->conf->log : d->in_background ? "syslog" : "stderr";
}

static void enter_sandbox(Daemon *d)
{
    if (strcmp(vj_opts_string(d->conf->node, "sandbox"), "off") != 0) {
        vj_daemon_confine(d->conf, d->dirs, strcmp(log_target(d), "syslog") == 0);
    }
    vj_daemon_close_dirs(g_steal_pointer(&d->dirs));
}

/* Each connection and each object in use has a descriptor. */
static void lift_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Before it listens: another daemon of the directory may be about to end. */
static bool open_source(Daemon *d, GError **error)
{
    if (d->source == NULL || vj_node_open(d->node, VARJFS_SOURCE_VOLUME, error)) {
        return true;
    }
    d->is_busy = error != NULL && (*error)->code == EBUSY;
    return false;
}

static bool start(Daemon *d, GError **error)
{
    if (!vj_daemon_open_dirs(d->conf, &d->dirs, error) ||
        !vj_log_open_outside("varjfsd", log_target(d), VJ_LOG_INFO,
                             (const int *)(const void *)d->dirs->data, d->dirs->len,
                             error) ||
        !open_source(d, error) || !listen_all(d, error)) {
        return false;
    }
    d->notify_fd = vj_node_notify_open();
    enter_sandbox(d);
    vj_node_set_server(d->node, d->server);
    return vj_rpc_server_start(d->server, error);
}

static int run(Daemon *d)
{
    g_autoptr(GError) error = NULL;
    sigset_t signals = wanted_signals();
    int status = EXIT_SUCCESS;

    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* for all threads to come */
    signal(SIGPIPE, SIG_IGN);
    lift_limit();
    vj_trace_init();
    d->node = vj_node_new(d->conf, g_getenv("VARJFS_TEST_WRAP_STORE"),
                          g_getenv("VARJFS_TEST_WRAP_META"));
    if (start(d, &error)) {
        vj_log_info("varjfsd " VARJFS_VERSION " serves %u volumes",
                    d->conf->volumes->len);
        tell_ready(d);
        wait_for_end(d);
        drain(d);
    } else {
        status = vj_cmd_fail(&program, error);
        status = d->is_busy ? VARJFS_SOURCE_EXIT_IN_USE : status;
    }
    if (d->server != NULL) {
        vj_rpc_server_free(d->server);
        vj_node_set_server(d->node, NULL);
    }
    if (vj_node_free(d->node) < 0) {
        vj_log_error("not all that was written is durable");
        status = EXIT_FAILURE;
    }
    vj_daemon_close_dirs(d->dirs);
    vj_fd_close(&d->notify_fd);
    vj_log_close();
    return status;
}

/* ---- in the background ------------------------------------------------------------- */

static int run_in_background(Daemon *d)
{
    VJ_AUTO_FD null_fd = -1;
    int ends[2];
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) < 0 || (child = fork()) < 0) {
        return vj_cmd_fail_errno(&program, "cannot start in the background", errno);
    }
    if (child > 0) {
        close(ends[1]);
        return vj_cmd_wait_ready(program.name, ends[0], child, "it served");
    }
    close(ends[0]);
    d->ready_fd = ends[1];
    setsid();
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd >= 0) {
        dup2(null_fd, STDIN_FILENO);
    }
    if (chdir("/") < 0) {
        return vj_cmd_fail_errno(&program, "/", errno);
    }
    return run(d);
}

int main(int argc, char **argv)
{
    Daemon d = {.ready_fd = -1, .notify_fd = -1};
    g_autoptr(GError) error = NULL;
    int first, status = vj_cmd_parse(&program, argc, argv, set, &d, &first);

    if (status >= 0) {
        return status;
    }
    if ((d.conf_path == NULL) == (d.source == NULL)) {
        return vj_cmd_usage_error(&program, "-c, --source", "one of them");
    }
    if (first < argc) {
        return vj_cmd_usage_error(&program, argv[first], "unexpected");
    }
    if (d.source != NULL && (d.only_checks || d.stats != NULL)) {
        return vj_cmd_usage_error(&program, "--check, --stats", "not with --source");
    }
    if (d.only_checks + d.in_background + (d.stats != NULL) > 1) {
        return vj_cmd_usage_error(&program, "-d, --check, --stats", "one of them");
    }
    vj_memory_init(BUFFER_MOST);
    d.conf = d.source != NULL ? vj_node_conf_of_source(d.source, &error)
                              : vj_node_conf_load(d.conf_path, &error);
    if (d.conf == NULL) {
        return vj_cmd_fail(&program, error);
    }
    if (d.stats != NULL) {
        status = vj_daemon_print_stats(&program, d.conf, d.stats);
    } else if (d.only_checks) {
        status = EXIT_SUCCESS;
    } else {
        status = d.in_background ? run_in_background(&d) : run(&d);
    }
    vj_node_conf_free(d.conf);
    return status;
}
