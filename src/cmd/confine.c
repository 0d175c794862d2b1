/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * confine.c - a program that from now on takes what the drivers of SOURCE take
 *
 * Which drivers these are stands in varjfs.conf, which another user may have written, and
 * nothing in SOURCE is read by a process that may do more than the drivers.  So a child
 * process reads it that may do less.
 *
 * Of a volume file there is that file, and those with credentials that it names.
 *
 * What is below SOURCE by itself is named by itself: it may be mounted there, and such a
 * mount can be taken away and come back.
 */
#include "cmd/confine.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* An answer of the process that reads: a superblock has no more text. */
#define HEARD_MAX ((size_t)32 << 10)

/* ---- which drivers ----------------------------------------------------------------- */

static VjSandboxKeep capabilities_for(VjSourceOwners owners)
{
    return owners.has_others ? VJ_SANDBOX_FILES : VJ_SANDBOX_NONE;
}

static int send_names(int to_fd, const GPtrArray *names)
{
    int r = 0;

    for (guint i = 0; r == 0 && i < names->len; i++) {
        r = vj_fd_write_all(to_fd, names->pdata[i], strlen(names->pdata[i]) + 1);
    }
    return r;
}

/* The numbers, then the names, each with its NUL: files to be read, an empty one, and
 * those to be written. */
static int send_needs(int to_fd, const VjDriverNeeds *needs, const VjOptFiles *files)
{
    int r = vj_fd_write_all(to_fd, needs, sizeof *needs);

    r = r == 0 ? send_names(to_fd, files->read) : r;
    r = r == 0 ? vj_fd_write_all(to_fd, "", 1) : r;
    return r == 0 ? send_names(to_fd, files->written) : r;
}

/* The child process.  What it cannot read it does not send. */
static void read_and_send(const VjPlace *place, VjSourceOwners owners,
                          int to_fd) G_GNUC_NORETURN;

static void read_and_send(const VjPlace *place, VjSourceOwners owners, int to_fd)
{
    VjSandbox plan = {.keep = capabilities_for(owners),
                      .dirs = {{vj_place_fd(place), VJ_SANDBOX_READ}},
                      .dir_count = 1,
                      .is_quiet = true};
    g_autoptr(VjOptFiles) files = vj_opt_files_new();
    VjDriverNeeds needs;
    bool is_sent;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    vj_sandbox_enter(&plan);
    is_sent = vj_volume_driver_needs(place, &needs, files, NULL) &&
              send_needs(to_fd, &needs, files) == 0;
    _exit(is_sent ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* Until the other end is closed; more than @cap bytes are no answer. */
static ssize_t hear_all(int from_fd, char *dst, size_t cap)
{
    size_t len = 0;
    ssize_t got = 1;

    while (got != 0 && len < cap) {
        got = read(from_fd, dst + len, cap - len);
        if (got < 0 && errno != EINTR) {
            return -1;
        }
        len += got > 0 ? (size_t)got : 0;
    }
    return got == 0 ? (ssize_t)len : -1;
}

/* The process that sends may have been taken over by what it has read. */
static bool hear(int from_fd, VjDriverNeeds *out, VjOptFiles *files)
{
    g_autofree char *heard = g_malloc(HEARD_MAX);
    ssize_t len = hear_all(from_fd, heard, HEARD_MAX);
    const char *at = heard + sizeof *out, *end = heard + len;
    GPtrArray *names = files->read;

    if (len < (ssize_t)sizeof *out) {
        return false;
    }
    memcpy(out, heard, sizeof *out);
    while (at < end && names->len < VJ_CONFINE_FILES_MAX &&
           memchr(at, '\0', (size_t)(end - at)) != NULL) {
        if (at[0] == '\0') {
            names = files->written;
        } else {
            g_ptr_array_add(names, g_strdup(at));
        }
        at += strlen(at) + 1;
    }
    return at == end && ((out->meta | out->store) & ~(uint32_t)VJ_NEEDS_ALL) == 0;
}

VjDriverNeeds vj_confine_drivers(const VjPlace *place, const char *source,
                                 VjSourceOwners owners, VjOptFiles *files)
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
        read_and_send(place, owners, ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        vj_log_warn("%s: its drivers cannot be asked for: %s", source, g_strerror(errno));
    } else {
        if (hear(ends[0], &heard, files)) {
            out = heard;
        }
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
    }
    close(ends[0]);
    if (WIFSIGNALED(status)) {
        vj_log_warn("%s%s: reading it ended with signal %d", source,
                    vj_place_is_file(place) ? "" : "/" VJ_SUPERBLOCK_NAME,
                    WTERMSIG(status));
    }
    return out;
}

/* ---- all of it --------------------------------------------------------------------- */

void vj_confine_to(const VjPlace *place, VjConfine *out)
{
    out->is_file = vj_place_is_file(place);
    out->file_fd = out->is_file ? vj_place_fd(place) : -1;
    out->dir_fd = out->is_file ? vj_place_credentials_dir_fd(place) : vj_place_fd(place);
}

/* Descriptors that are open until the sandbox is entered. */
typedef struct Opened {
    int fds[VJ_VOLUME_DIRS_MAX + 2 * VJ_CONFINE_FILES_MAX];
    unsigned count;
} Opened;

static void allow(VjSandbox *plan, int fd, VjSandboxAccess access)
{
    g_assert(plan->dir_count < VJ_SANDBOX_DIRS_MAX);
    plan->dirs[plan->dir_count++] = (VjSandboxDir){fd, access};
}

static void allow_opened(VjSandbox *plan, Opened *opened, int fd, VjSandboxAccess access)
{
    if (fd >= 0) {
        opened->fds[opened->count++] = fd;
        allow(plan, fd, access);
    }
}

/* A user who writes SOURCE has root's daemon use what is his own. */
static bool may_use(const VjConfine *how, int fd, VjSandboxAccess access)
{
    struct stat source, file;

    return fstat(how->is_file && how->file_fd >= 0 ? how->file_fd : how->dir_fd,
                 &source) == 0 &&
           fstat(fd, &file) == 0 &&
           (S_ISREG(file.st_mode) ||
            (S_ISBLK(file.st_mode) && access == VJ_SANDBOX_WRITE)) &&
           (how->trusts_files || !how->owners.others_may_write || geteuid() != 0 ||
            file.st_uid == source.st_uid);
}

/* What is missing, or not to be used, is reported by the driver that needs it. */
static void allow_files(const VjConfine *how, const GPtrArray *names,
                        VjSandboxAccess access, VjSandbox *plan, Opened *opened)
{
    for (guint i = 0; i < MIN(names->len, VJ_CONFINE_FILES_MAX); i++) {
        VJ_AUTO_FD fd = openat(how->dir_fd, names->pdata[i], O_PATH | O_CLOEXEC);

        if (fd >= 0 && may_use(how, fd, access)) {
            allow_opened(plan, opened, vj_fd_steal(&fd), access);
        }
    }
}

static void allow_place(const VjConfine *how, const VjVolumeNeeds *needs, VjSandbox *plan,
                        Opened *opened)
{
    if (how->is_file) {
        if (how->file_fd >= 0) {
            allow(plan, how->file_fd, VJ_SANDBOX_READ);
        }
        if (how->rewrites) {
            allow(plan, how->dir_fd, VJ_SANDBOX_NAMES);
        }
        return;
    }
    allow(plan, how->dir_fd,
          needs->writes_source || how->rewrites ? VJ_SANDBOX_WRITE : VJ_SANDBOX_NAMES);
    for (unsigned i = 0; i < needs->dir_count; i++) {
        allow_opened(plan, opened,
                     openat(how->dir_fd, needs->dirs[i],
                            O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW),
                     VJ_SANDBOX_WRITE);
    }
}

void vj_confine(const VjConfine *how)
{
    VjVolumeNeeds needs = vj_volume_needs(how->drivers);
    VjSandbox plan = {.keep = capabilities_for(how->owners),
                      .sockets = needs.drivers & (VJ_NEEDS_UNIX | VJ_NEEDS_TCP),
                      .has_syslog = how->has_syslog};
    Opened opened = {.count = 0};

    allow_place(how, &needs, &plan, &opened);
    if (how->files != NULL) {
        allow_files(how, how->files->read, VJ_SANDBOX_READ, &plan, &opened);
        allow_files(how, how->files->written, VJ_SANDBOX_WRITE, &plan, &opened);
    }
    if (how->other_fd >= 0) {
        allow(&plan, how->other_fd, VJ_SANDBOX_WRITE);
    }
    vj_sandbox_enter(&plan);
    for (unsigned i = 0; i < opened.count; i++) {
        vj_fd_close(&opened.fds[i]);
    }
}

bool vj_confine_parse(const char *value, bool *is_off, GError **error)
{
    *is_off = strcmp(value, "off") == 0;
    return *is_off || strcmp(value, "auto") == 0 ||
           vj_error_set(error, EINVAL, "--sandbox: %s is not one of auto|off", value);
}
