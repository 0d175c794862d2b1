/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * confine.c - a program that from now on takes what the drivers of SOURCE take
 *
 * Which drivers these are stands in varjfs.conf, which another user may have written, and
 * nothing in SOURCE is read by a process that may do more than the drivers.  So a child
 * process reads it that may do less.
 *
 * What is below SOURCE by itself is named by itself: it may be mounted there, and such a
 * mount can be taken away and come back.
 */
#include "cmd/confine.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- which drivers ----------------------------------------------------------------- */

static VjSandboxKeep capabilities_for(VjSourceOwners owners)
{
    return owners.has_others ? VJ_SANDBOX_FILES : VJ_SANDBOX_NONE;
}

/* The child process.  What it cannot read it does not send. */
static void read_and_send(int source_fd, const char *source, VjSourceOwners owners,
                          int to_fd) G_GNUC_NORETURN;

static void read_and_send(int source_fd, const char *source, VjSourceOwners owners,
                          int to_fd)
{
    VjSandbox plan = {.keep = capabilities_for(owners),
                      .dirs = {{source_fd, VJ_SANDBOX_READ}},
                      .dir_count = 1,
                      .is_quiet = true};
    VjDriverNeeds needs;
    bool is_sent;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    vj_sandbox_enter(&plan);
    is_sent = vj_volume_driver_needs(source_fd, source, &needs, NULL) &&
              vj_fd_write_all(to_fd, &needs, sizeof needs) == 0;
    _exit(is_sent ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* The whole answer or nothing: it is one write of few bytes. */
static bool hear(int from_fd, VjDriverNeeds *out)
{
    ssize_t got;

    do {
        got = read(from_fd, out, sizeof *out);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof *out &&
           ((out->meta | out->store) & ~(uint32_t)VJ_NEEDS_ALL) == 0;
}

VjDriverNeeds vj_confine_drivers(int source_fd, const char *source, VjSourceOwners owners)
{
    VjDriverNeeds out = {.meta = VJ_NEEDS_FILES, .store = VJ_NEEDS_FILES}, heard;
    int ends[2], status = 0;
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) < 0) {
        vj_log_warn("%s: its drivers cannot be asked for: %s", source, g_strerror(errno));
        return out;
    }
    child = fork();
    if (child == 0) {
        close(ends[0]);
        read_and_send(source_fd, source, owners, ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        vj_log_warn("%s: its drivers cannot be asked for: %s", source, g_strerror(errno));
    } else {
        if (hear(ends[0], &heard)) {
            out = heard;
        }
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
    }
    close(ends[0]);
    if (WIFSIGNALED(status)) {
        vj_log_warn("%s/" VJ_SUPERBLOCK_NAME ": reading it ended with signal %d", source,
                    WTERMSIG(status));
    }
    return out;
}

/* ---- all of it --------------------------------------------------------------------- */

static void allow(VjSandbox *plan, int fd, VjSandboxAccess access)
{
    g_assert(plan->dir_count < VJ_SANDBOX_DIRS_MAX);
    plan->dirs[plan->dir_count++] = (VjSandboxDir){fd, access};
}

void vj_confine(const VjConfine *how)
{
    VjVolumeNeeds needs = vj_volume_needs(how->drivers);
    VjSandbox plan = {.keep = capabilities_for(how->owners),
                      .sockets = needs.drivers & (VJ_NEEDS_UNIX | VJ_NEEDS_TCP),
                      .has_syslog = how->has_syslog};
    int opened[VJ_VOLUME_DIRS_MAX];

    allow(&plan, how->source_fd,
          needs.writes_source || how->rewrites ? VJ_SANDBOX_WRITE : VJ_SANDBOX_NAMES);
    if (how->other_fd >= 0) {
        allow(&plan, how->other_fd, VJ_SANDBOX_WRITE);
    }
    for (unsigned i = 0; i < needs.dir_count; i++) {
        opened[i] = openat(how->source_fd, needs.dirs[i],
                           O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (opened[i] >= 0) {
            allow(&plan, opened[i], VJ_SANDBOX_WRITE);
        }
    }
    vj_sandbox_enter(&plan);
    for (unsigned i = 0; i < needs.dir_count; i++) {
        vj_fd_close(&opened[i]);
    }
}

bool vj_confine_parse(const char *value, bool *is_off, GError **error)
{
    *is_off = strcmp(value, "off") == 0;
    return *is_off || strcmp(value, "auto") == 0 ||
           vj_error_set(error, EINVAL, "--sandbox: %s is not one of auto|off", value);
}
