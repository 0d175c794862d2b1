/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * guard.c - the process that keeps what the daemon gives up, and outlives it
 *
 * The daemon reads what other users wrote and answers any process, so it has no
 * privileges.  What takes some is done by the guard: it mounts and detaches the one mount
 * point that it was started with, and opens the switch that ends the kernel's connection.
 *
 * That switch is for a daemon that is killed.  It may keep a thread that waits in the
 * kernel, unkillable, for a page that stays locked until a request is answered which no
 * thread answers any more.  That thread keeps /dev/fuse open, so the kernel does not end
 * the connection by itself, and every process that uses the mount waits too.  The kernel
 * signals the guard when the daemon's main thread dies of whatever cause; it aborts the
 * connection through fusectl, which wakes all.
 *
 * It is forked before the daemon has threads, files or memory worth speaking of, holds a
 * pipe and the connection's abort file alone, and ends when the daemon says so.  The
 * pipe's end without that is a death as well: the kernel closes files before it sends the
 * signal.  The open abort file belongs to this one connection: once that has ended,
 * writing to it does nothing, also if another connection has got its number.
 *
 * Once it has mounted, it can make the system calls of guard-calls.c alone.  Not where
 * fusermount3 has: without privileges of its own a process gets a filter only with
 * no_new_privs, and fusermount3, which is to unmount as well, would then be no more than
 * the user.
 *
 * The end of the pipe would not show a kill: the waiting thread keeps the daemon's
 * side of it open as well.
 */
#include "front/front-private.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUSECTL "/sys/fs/fuse/connections"
/* What the kernel sends the guard when the daemon's main thread is dead. */
#define DEATH_SIGNAL SIGUSR1
/* Descriptors of the guard.  That of signals takes no bytes: what is for stderr is lost
 * there. */
enum {
    GUARD_IN,
    GUARD_OUT,
    GUARD_SIGNAL,
    GUARD_ABORT,
    GUARD_FUSE,
    GUARD_COMM,
    GUARD_FDS
};

typedef enum Verb {
    VERB_MOUNT,
    VERB_LOOK,  /* the mount answers: its device; readahead */
    VERB_WATCH, /* @number: the connection */
    VERB_SYNC,  /* dirty mapped pages */
    VERB_DETACH,
    VERB_LEAVE, /* the daemon ends in an orderly way; without an answer */
} Verb;

typedef struct Order {
    Verb verb;
    unsigned number;
} Order;

struct VjGuard {
    pid_t pid;
    int to_guard, from_guard; /* an Order goes there, a VjMounted comes back */
    int fuse_fd;              /* the connection, until it is taken */
    int comm_fd;              /* where fusermount3 sends another one; -1: nowhere */
    char *mountpoint;
};

/* ---- the guard --------------------------------------------------------------------- */

/* What the daemon may ask for is what it needs once, in case an intruder speaks for
 * it. */
typedef struct Guard {
    VjMountPlan plan;
    dev_t dev;       /* of the mount; 0: none yet, or another process made it */
    bool is_mounted; /* the one mount was ordered */
    bool is_watched; /* and so was the one connection */
    bool by_helper;  /* fusermount3 has mounted, and is to unmount */
    bool is_listed;  /* umount(8) knows of it */
    pid_t syncing;   /* child; 0: none */
} Guard;

/* Another process has mounted, and handed over /dev/fuse. */
static bool is_fd_path(const char *path)
{
    return g_str_has_prefix(path, "/dev/fd/");
}

static void close_number(int fd)
{
    (void)close_range((unsigned)fd, (unsigned)fd, 0);
}

/* The kernel's number of the connection of the file system @dev. */
static unsigned number_of(dev_t dev)
{
    return major(dev) << 20 | minor(dev);
}

/* The connection to watch over: there is one, and it is that of our mount if we made
 * it. */
static int watch(Guard *g, unsigned number)
{
    char path[sizeof FUSECTL + 32];
    int fd, error;

    if (g->is_watched || (g->dev != 0 && number != number_of(g->dev))) {
        return EPERM;
    }
    g->is_watched = true;
    g_snprintf(path, sizeof path, FUSECTL "/%u/abort", number);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    error = fd < 0 || dup2(fd, GUARD_ABORT) < 0 ? errno : 0;
    if (fd >= 0 && fd != GUARD_ABORT) {
        close(fd);
    }
    return error;
}

/* It may wait for requests, and the daemon may be killed meanwhile: so by a child. */
static int begin_sync(Guard *g)
{
    pid_t child = fork();

    if (child == 0) {
        _exit(vj_mounter_sync(&g->plan, g->dev));
    }
    if (child < 0) {
        return errno;
    }
    g->syncing = child;
    return 0;
}

/* Where no privileges, and no program that has them, are needed any more. */
static void drop_privileges(const Guard *g, VjSandboxKeep keep)
{
    vj_sandbox_drop_capabilities(keep);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (g->plan.is_confined) {
        vj_guard_confine();
    }
}

/* A mount without it is as good, but for its end. */
static void list(Guard *g, VjMounted *out)
{
    int r = geteuid() == 0 ? vj_utab_add(g->plan.mountpoint) : 0;

    g->is_listed = r == 0;
    if (r < 0) {
        g_snprintf(out->text, sizeof out->text,
                   "umount(8) will not wait for the daemon: /run/mount/utab: %s",
                   g_strerror(-r));
    }
}

/* What stays makes umount(8) look at the mount table, no more. */
static void unlist(const Guard *g)
{
    if (g->is_listed && vj_utab_remove(g->plan.mountpoint) < 0) {
        vj_trace(front, "/run/mount/utab keeps %s", g->plan.mountpoint);
    }
}

static void mount_once(Guard *g, VjMounted *out)
{
    if (g->is_mounted) {
        out->error = EPERM;
        return;
    }
    g->is_mounted = true;
    vj_mounter_mount(&g->plan, GUARD_FUSE, GUARD_COMM, out);
    /* Ours would keep the connection alive. */
    close_number(GUARD_FUSE);
    close_number(GUARD_COMM);
    g->dev = out->dev;
    g->by_helper = out->by_helper;
    if (out->error == 0 && !out->by_helper) {
        list(g, out);
        drop_privileges(g, VJ_SANDBOX_MOUNTS); /* no need of fusermount3 */
    }
}

static bool answer(const VjMounted *out)
{
    return write(GUARD_OUT, out, sizeof *out) == sizeof *out;
}

static G_GNUC_NORETURN void daemon_died(const Guard *g)
{
    VjMounted out = {0};
    bool aborted = write(GUARD_ABORT, "1", 1) == 1;

    if (g->dev != 0 && vj_mount_has_word(g->plan.options, "auto_unmount")) {
        vj_mounter_detach(&g->plan, g->dev, g->by_helper, &out);
    }
    unlist(g);
    _exit(aborted ? 0 : 1);
}

/* False: the daemon needs no guard any more. */
static bool take_order(Guard *g)
{
    VjMounted out = {0};
    Order given;

    if (read(GUARD_IN, &given, sizeof given) != sizeof given) {
        daemon_died(g);
    }
    switch (given.verb) {
    case VERB_LEAVE:
        unlist(g);
        return false;
    case VERB_MOUNT:
        mount_once(g, &out);
        break;
    case VERB_LOOK:
        vj_mounter_look(&g->plan, &out);
        break;
    case VERB_WATCH:
        out.error = watch(g, given.number);
        break;
    case VERB_SYNC:
        out.error = begin_sync(g);
        if (out.error == 0) {
            return true; /* its end is the answer */
        }
        break;
    case VERB_DETACH:
        vj_mounter_detach(&g->plan, g->dev, g->by_helper, &out);
        break;
    }
    return answer(&out);
}

/* Whatever children end here, the one that syncs is waited for. */
static bool reap(Guard *g)
{
    VjMounted out = {0};
    int status = 0;

    if (g->syncing == 0 || waitpid(g->syncing, &status, WNOHANG) != g->syncing) {
        return true;
    }
    g->syncing = 0;
    out.error = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
    return answer(&out);
}

/* Only these stay open; those that are -1 stay closed. */
static bool arrange_fds(const int fds[GUARD_FDS])
{
    int moved[GUARD_FDS];

    for (int i = 0; i < GUARD_FDS; i++) {
        moved[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, GUARD_FDS);
        if (fds[i] >= 0 && moved[i] < 0) {
            return false;
        }
    }
    for (int i = 0; i < GUARD_FDS; i++) {
        if (moved[i] < 0) {
            close_number(i);
        } else if (dup3(moved[i], i, O_CLOEXEC) < 0) {
            return false;
        }
    }
    return close_range(GUARD_FDS, ~0u, 0) == 0 && chdir("/") == 0;
}

/* Never returns. */
static void guard_run(int fds[GUARD_FDS], pid_t daemon, const VjMountPlan *plan)
{
    struct pollfd polled[2] = {{GUARD_IN, POLLIN, 0}, {GUARD_SIGNAL, POLLIN, 0}};
    struct signalfd_siginfo news;
    Guard g = {.plan = *plan, .is_mounted = is_fd_path(plan->mountpoint)};
    sigset_t signals;

    vj_log_close(); /* its descriptor goes */
    /* What ends the daemon in an orderly way ends us through the pipe. */
    sigfillset(&signals);
    sigprocmask(SIG_SETMASK, &signals, NULL);
    sigemptyset(&signals);
    sigaddset(&signals, DEATH_SIGNAL);
    sigaddset(&signals, SIGCHLD);
    fds[GUARD_SIGNAL] = signalfd(-1, &signals, SFD_CLOEXEC);
    if (fds[GUARD_SIGNAL] < 0 || prctl(PR_SET_PDEATHSIG, DEATH_SIGNAL) < 0 ||
        getppid() != daemon || !arrange_fds(fds)) {
        _exit(1);
    }
    prctl(PR_SET_NAME, "varjfs-guard");
    setsid();
    if (g.is_mounted) {
        drop_privileges(&g,
                        VJ_SANDBOX_NONE); /* it is neither mounted nor detached by us */
    }
    for (;;) {
        if (poll(polled, G_N_ELEMENTS(polled), -1) < 0) {
            continue;
        }
        /* First: the pipe has news as well when the whole daemon is gone. */
        if (polled[1].revents != 0) {
            if (read(GUARD_SIGNAL, &news, sizeof news) == sizeof news &&
                news.ssi_signo == DEATH_SIGNAL) {
                daemon_died(&g);
            }
            if (!reap(&g)) {
                _exit(0);
            }
            continue;
        }
        if (polled[0].revents != 0 && !take_order(&g)) {
            _exit(0);
        }
    }
}

/* ---- the daemon -------------------------------------------------------------------- */

static int open_fuse(GError **error)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    if (fd < 0) {
        vj_error_set(error, errno, "/dev/fuse: %s%s", g_strerror(errno),
                     errno == ENOENT || errno == ENODEV || errno == ENXIO
                         ? " (the kernel has no FUSE here: modprobe fuse)"
                     : errno == EACCES || errno == EPERM
                         ? " (whoever mounts has to read and write it)"
                         : "");
    }
    return fd;
}

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

VjGuard *vj_guard_start(const VjMountPlan *plan, GError **error)
{
    enum {
        TO_READ,
        TO_WRITE,
        FROM_READ,
        FROM_WRITE,
        COMM_OURS,
        COMM_THEIRS,
        FUSE,
        COUNT
    };
    int fds[COUNT] = {-1, -1, -1, -1, -1, -1, -1};
    pid_t daemon = getpid(), pid = -1;
    VjGuard *g;

    if (!is_fd_path(plan->mountpoint)) {
        fds[FUSE] = open_fuse(error);
        if (fds[FUSE] < 0) {
            return NULL;
        }
    }
    if (pipe2(fds + TO_READ, O_CLOEXEC) == 0 && pipe2(fds + FROM_READ, O_CLOEXEC) == 0 &&
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds + COMM_OURS) == 0) {
        pid = fork();
    }
    if (pid < 0) {
        vj_error_set_errno(error, errno, "cannot start the process that mounts");
        close_all(fds, COUNT);
        return NULL;
    }
    if (pid == 0) {
        int theirs[GUARD_FDS] = {
            [GUARD_IN] = fds[TO_READ],     [GUARD_SIGNAL] = -1,
            [GUARD_OUT] = fds[FROM_WRITE], [GUARD_ABORT] = -1,
            [GUARD_FUSE] = fds[FUSE],      [GUARD_COMM] = fds[COMM_THEIRS]};

        guard_run(theirs, daemon, plan);
    }
    close(fds[TO_READ]);
    close(fds[FROM_WRITE]);
    close(fds[COMM_THEIRS]);
    g = g_new(VjGuard, 1);
    *g = (VjGuard){.pid = pid,
                   .to_guard = fds[TO_WRITE],
                   .from_guard = fds[FROM_READ],
                   .fuse_fd = fds[FUSE],
                   .comm_fd = fds[COMM_OURS],
                   .mountpoint = g_strdup(plan->mountpoint)};
    return g;
}

void vj_guard_end(VjGuard *g)
{
    const Order leave = {.verb = VERB_LEAVE};

    if (g == NULL) {
        return;
    }
    if (write(g->to_guard, &leave, sizeof leave) != sizeof leave) {
        vj_trace(front, "the guard is gone already");
    }
    close(g->to_guard);
    close(g->from_guard);
    vj_fd_close(&g->fuse_fd);
    vj_fd_close(&g->comm_fd);
    while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    g_free(g->mountpoint);
    g_free(g);
}

/* One order and its answer; a guard that is gone is EPIPE. */
static VjMounted order(const VjGuard *g, Verb verb, unsigned number)
{
    VjMounted out = {.error = EPIPE, .text = "the process varjfs-guard is gone"};
    VjMounted answer_read;
    Order o = {verb, number};
    ssize_t n;

    if (write(g->to_guard, &o, sizeof o) != sizeof o) {
        return out;
    }
    do {
        n = read(g->from_guard, &answer_read, sizeof answer_read);
    } while (n < 0 && errno == EINTR);
    return n == sizeof answer_read ? answer_read : out;
}

/* The descriptor that fusermount3 has sent; -1: none. */
static int receive_fd(int comm_fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    char byte;
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const struct cmsghdr *head;
    ssize_t n;
    int fd;

    do {
        n = recvmsg(comm_fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    head = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (head == NULL || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS ||
        head->cmsg_len != CMSG_LEN(sizeof fd)) {
        return -1;
    }
    memcpy(&fd, CMSG_DATA(head), sizeof fd);
    return fd;
}

int vj_guard_mount(VjGuard *g, GError **error)
{
    VjMounted made = order(g, VERB_MOUNT, 0);

    if (made.error == 0 && made.by_helper) {
        vj_fd_close(&g->fuse_fd);
        g->fuse_fd = receive_fd(g->comm_fd);
        if (g->fuse_fd < 0) {
            made.error = EIO;
            g_strlcpy(made.text, "fusermount3 did not hand over the connection",
                      sizeof made.text);
        } else if (made.text[0] != '\0') {
            vj_log_info("%s: fusermount3: %s", g->mountpoint, made.text);
        }
    } else if (made.error == 0 && made.text[0] != '\0') {
        vj_log_info("%s: %s", g->mountpoint, made.text);
    }
    vj_fd_close(&g->comm_fd);
    if (made.error != 0) {
        vj_error_set(error, made.error, "%s: cannot mount: %s", g->mountpoint, made.text);
        return -1;
    }
    return vj_fd_steal(&g->fuse_fd);
}

/* The kernel's number of the connection; 0: it does not say. */
static unsigned connection_of(const VjFront *f, dev_t dev)
{
    g_autofree char *path =
        g_strdup_printf("/proc/self/fdinfo/%d", fuse_session_fd(f->session));
    g_autofree char *text = NULL;
    const char *at;

    if (g_file_get_contents(path, &text, NULL, NULL)) {
        at = strstr(text, "fuse_connection:");
        if (at != NULL) {
            return (unsigned)strtoul(at + strlen("fuse_connection:"), NULL, 10);
        }
    }
    return number_of(dev);
}

bool vj_guard_watch(const VjGuard *g, const VjFront *f, char **why)
{
    VjMounted looked = {0};
    unsigned number;
    int error = ESRCH;

    *why = NULL;
    if (!is_fd_path(g->mountpoint)) {
        looked = order(g, VERB_LOOK, 0);
        if (looked.error != 0) {
            *why = g_strdup(looked.text);
            return false;
        }
    }
    number = connection_of(f, looked.dev);
    if (number != 0) {
        error = order(g, VERB_WATCH, number).error;
    }
    if (error != 0) {
        vj_log_warn(
            "%s: nobody watches over the connection to the kernel (" FUSECTL
            "/%u/abort: %s): should the daemon be killed, umount -f may be needed",
            g->mountpoint, number, g_strerror(error));
    }
    return true;
}

void vj_guard_sync(const VjGuard *g)
{
    int error = order(g, VERB_SYNC, 0).error;

    if (error != 0) {
        vj_log_warn("%s: mapped pages could not be synced: %s", g->mountpoint,
                    g_strerror(error));
    }
}

void vj_guard_detach(const VjGuard *g)
{
    VjMounted out = order(g, VERB_DETACH, 0);

    if (out.error != 0) {
        vj_log_warn("%s: cannot be detached: %s", g->mountpoint, out.text);
    }
}
