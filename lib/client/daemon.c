/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * daemon.c - the daemon of a directory, which is started unless it runs
 *
 * "varjfsd -d --source DIR" returns when DIR/varjfsd.sock is served.  Several programs
 * may come here at once: one of the daemons that they start gets the volume, the others
 * fail, and their programs find the first one's socket.  A daemon that is about to end
 * still has the volume when its socket refuses already.  So after a start that failed
 * both are tried again, for some seconds.
 *
 * The daemon inherits nothing but the environment: signals as they are by default, no
 * descriptor, and instead of stderr a pipe, whose last line says why a start failed.
 */
#include "client-private.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Before glibc 2.34 the daemon gets what this process has open without FD_CLOEXEC. */
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 34)
#define HAS_CLOSEFROM
#endif
#endif

#define DAEMON "varjfsd"
/* Where it is installed; what is compiled without that is not installed. */
#ifndef VARJFS_SBINDIR
#define VARJFS_SBINDIR "/usr/sbin"
#endif
#define SUPERBLOCK_NAME "varjfs.conf"
#define RETRY_FIRST_MS 10
#define RETRY_LONGEST_MS 200
/* How often an exit is looked for while the pipe is silent. */
#define LOOK_MS 5
/* What the daemon says where another program has the volume. */
#define TEXT_IN_USE "in use"

extern char **environ;

typedef struct Start {
    char said[1024];
    size_t said_len;
    int status; /* of exit: 0 and above; -1: not known, somebody else has waited for it */
} Start;

/* The last line, without its end. */
static const char *last_line(const Start *start, size_t *len)
{
    size_t end = start->said_len, begin;

    while (end > 0 && start->said[end - 1] == '\n') {
        end--;
    }
    begin = end;
    while (begin > 0 && start->said[begin - 1] != '\n') {
        begin--;
    }
    *len = end - begin;
    return start->said + begin;
}

/* What it said is in the pipe; what does not fit drops the older half. */
static bool read_said(Start *start, int fd)
{
    ssize_t got;

    if (start->said_len == sizeof start->said) {
        size_t half = sizeof start->said / 2;

        memmove(start->said, start->said + half, half);
        start->said_len = half;
    }
    got = read(fd, start->said + start->said_len, sizeof start->said - start->said_len);
    if (got > 0) {
        start->said_len += (size_t)got;
    }
    return got > 0;
}

static int set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    int rc;

    sigemptyset(&none);
    sigfillset(&all);
    rc = posix_spawnattr_setsigmask(attributes, &none);
    if (rc == 0) {
        rc = posix_spawnattr_setsigdefault(attributes, &all);
    }
    if (rc == 0) {
        rc = posix_spawnattr_setflags(attributes,
                                      POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    }
    return rc;
}

static int set_actions(posix_spawn_file_actions_t *actions, int said_fd)
{
    int rc = posix_spawn_file_actions_adddup2(actions, said_fd, STDERR_FILENO);

    if (rc == 0) {
        rc = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null",
                                              O_RDONLY, 0);
    }
    if (rc == 0) {
        rc = posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null",
                                              O_WRONLY, 0);
    }
#ifdef HAS_CLOSEFROM
    if (rc == 0) {
        rc = posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1);
    }
#endif
    return rc;
}

static int spawn(const char *daemon, const char *directory, int said_fd, pid_t *pid)
{
    /* Not written to: the type of argv is older than const. */
    char *argv[] = {(char *)(uintptr_t)daemon, (char *)(uintptr_t) "-d",
                    (char *)(uintptr_t) "--source", (char *)(uintptr_t)directory, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int rc = posix_spawn_file_actions_init(&actions);

    if (rc != 0) {
        return -rc;
    }
    rc = posix_spawnattr_init(&attributes);
    if (rc == 0) {
        rc = set_attributes(&attributes);
        if (rc == 0) {
            rc = set_actions(&actions, said_fd);
        }
        if (rc == 0) {
            rc = posix_spawnp(pid, daemon, &actions, &attributes, argv, environ);
        }
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return -rc;
}

/* Until the process has ended, not longer than the deadline. */
static int wait_for_exit(Start *start, pid_t pid, int said_fd, int64_t deadline)
{
    bool may_say_more = true;
    int status = 0;

    while (true) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        struct pollfd wait = {.fd = may_say_more ? said_fd : -1, .events = POLLIN};

        if (ended == pid) {
            start->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
            return 0;
        }
        if (ended < 0 && errno != EINTR) {
            start->status = -1; /* the program ignores SIGCHLD, or waits for all */
            return 0;
        }
        if (vjc_left_ms(deadline, 1) == 0) {
            kill(pid, SIGKILL);
            while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
            }
            return -ETIMEDOUT;
        }
        if (poll(&wait, 1, LOOK_MS) > 0) {
            may_say_more = read_said(start, said_fd);
        }
    }
}

/* 0: it has started and ended its first process, as start->status says. */
static int run_daemon(const char *daemon, const char *directory, int64_t deadline,
                      Start *start)
{
    int ends[2];
    pid_t pid;
    int rc;

    start->said_len = 0;
    start->status = -1;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return -errno;
    }
    rc = spawn(daemon, directory, ends[1], &pid);
    close(ends[1]);
    if (rc == 0) {
        rc = wait_for_exit(start, pid, ends[0], deadline);
        while (read_said(start, ends[0])) {
        }
    }
    close(ends[0]);
    return rc;
}

/* DIR/NAME, owned, or NULL: no memory. */
static char *join(const char *directory, const char *name)
{
    size_t size = strlen(directory) + 1 + strlen(name) + 1;
    char *path = malloc(size);

    if (path != NULL) {
        snprintf(path, size, "%s/%s", directory, name);
    }
    return path;
}

/* Something is at @path; else, or if it should be a directory and is none, says so. */
static int check_path(const char *path, bool is_directory, const char *missing)
{
    struct stat st;
    int rc = 0;

    if (stat(path, &st) != 0) {
        rc = -errno;
    } else if (is_directory && !S_ISDIR(st.st_mode)) {
        rc = -ENOTDIR;
    }
    if (rc != 0) {
        vjc_set_open_error(rc == -ENOENT ? missing : varjfs_strerror(rc), path,
                           strlen(path));
    }
    return rc;
}

/* There is a volume in it? */
static int check_directory(const char *directory)
{
    char *path;
    int rc = check_path(directory, true, "there is no such directory");

    if (rc != 0) {
        return rc;
    }
    path = join(directory, SUPERBLOCK_NAME);
    if (path == NULL) {
        return -ENOMEM;
    }
    rc = check_path(path, false, "there is no volume (mkfs.varjfs makes one)");
    free(path);
    return rc;
}

static bool is_in_use(const Start *start)
{
    size_t len;
    const char *line = last_line(start, &len);

    return start->status == VARJFS_SOURCE_EXIT_IN_USE ||
           (start->status > 0 &&
            memmem(line, len, TEXT_IN_USE, sizeof TEXT_IN_USE - 1) != NULL);
}

/* What a start that failed means. */
static int start_error(const char *daemon, const Start *start, int rc)
{
    size_t len;
    const char *line = last_line(start, &len);

    if (rc == -ENOENT || rc == -EACCES) {
        vjc_set_open_error("the daemon cannot be started", daemon, strlen(daemon));
        return rc == -ENOENT ? -ECONNREFUSED : rc;
    }
    vjc_set_open_error(rc == 0 ? "the daemon does not start"
                               : "the daemon cannot be started",
                       line, len);
    if (rc != 0) {
        return rc;
    }
    return is_in_use(start) ? -EBUSY : -ECONNREFUSED;
}

static bool is_no_daemon(int rc)
{
    return rc == -ENOENT || rc == -ECONNREFUSED;
}

/* Nobody serves it, or who did is about to end. */
static bool may_try_again(int rc)
{
    return is_no_daemon(rc) || rc == -ECONNRESET || rc == -EAGAIN;
}

/* The program that was asked for; else the one of PATH, or where it was installed, which
 * for ordinary users is not in PATH.  A program with rights of its own (set-user-id) does
 * not believe PATH. */
static int run_named(const char *name, const char *directory, int64_t deadline,
                     Start *start)
{
    int rc;

    if (name != NULL) {
        return run_daemon(name, directory, deadline, start);
    }
    rc = getauxval(AT_SECURE) != 0 ? -ENOENT
                                   : run_daemon(DAEMON, directory, deadline, start);
    return rc == -ENOENT
               ? run_daemon(VARJFS_SBINDIR "/" DAEMON, directory, deadline, start)
               : rc;
}

/* One try; *again: what failed may pass. */
static int try_to_open(const char *directory, const char *path, const char *daemon,
                       const VjcHello *hello, int64_t deadline, bool *again, varjfs **out)
{
    int rc = vjc_hello(path, hello, deadline, out);
    Start start;

    *again = may_try_again(rc);
    if (!is_no_daemon(rc)) {
        return rc;
    }
    rc = run_named(daemon, directory, deadline, &start);
    if (rc != 0) {
        *again = false;
        return start_error(daemon != NULL ? daemon : DAEMON, &start, rc);
    }
    rc = vjc_hello(path, hello, deadline, out);
    *again = may_try_again(rc);
    if (is_no_daemon(rc)) {
        *again = start.status <= 0 || is_in_use(&start);
        rc = start_error(daemon != NULL ? daemon : DAEMON, &start, 0);
    }
    return rc;
}

static int connect_or_start(const char *directory, const char *path, const char *daemon,
                            const VjcHello *hello, int retry_ms, varjfs **out)
{
    int64_t deadline = vjc_deadline(hello->timeout_ms);
    int64_t retry_until = vjc_now_ms() + retry_ms;
    int pause_ms = RETRY_FIRST_MS;

    while (true) {
        bool again;
        int rc = try_to_open(directory, path, daemon, hello, deadline, &again, out);

        if (!again) {
            return rc;
        }
        if (vjc_left_ms(deadline, 1) == 0) {
            return -ETIMEDOUT;
        }
        if (vjc_now_ms() >= retry_until) {
            return rc == -EBUSY ? rc : -ECONNREFUSED;
        }
        /* Another process is what is waited for; there is no event. */
        poll(NULL, 0, vjc_left_ms(deadline, pause_ms));
        pause_ms = pause_ms * 2 < RETRY_LONGEST_MS ? pause_ms * 2 : RETRY_LONGEST_MS;
    }
}

int vjc_open_directory(const char *directory, const struct varjfs_options *options,
                       int retry_ms, varjfs **out)
{
    VjcHello hello = {.volume = VARJFS_SOURCE_VOLUME,
                      .timeout_ms = options->timeout_ms,
                      .read_only = (options->flags & VARJFS_READ_ONLY) != 0};
    int rc = check_directory(directory);
    char *path;

    if (rc != 0) {
        return rc;
    }
    path = join(directory, VARJFS_SOURCE_SOCKET);
    if (path == NULL) {
        return -ENOMEM;
    }
    rc = connect_or_start(directory, path, options->daemon, &hello, retry_ms, out);
    free(path);
    return rc;
}
