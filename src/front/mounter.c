/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mounter.c - mount, sync and detach: what the guard does with the privileges that it
 * keeps
 *
 * Runs in the guard's process alone, which has one thread and nothing of the file
 * system's.  By mount(2) where that is allowed, else through fusermount3, which is
 * set-user-ID root and decides what an ordinary user may.
 *
 * Another process may have renamed a directory above the mount point since.  So what is
 * detached is what was opened, and only if it is the mount that was made.
 */
#include "front/front-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* Readahead of buffered sequential reads, KiB; the kernel's own is 128. */
#define READAHEAD_KIB "1024"

static const struct {
    const char *name;
    unsigned long flag;
    bool on;
} mount_words[] = {
    {"ro", MS_RDONLY, true},
    {"rw", MS_RDONLY, false},
    {"nosuid", MS_NOSUID, true},
    {"suid", MS_NOSUID, false},
    {"nodev", MS_NODEV, true},
    {"dev", MS_NODEV, false},
    {"noexec", MS_NOEXEC, true},
    {"exec", MS_NOEXEC, false},
    {"noatime", MS_NOATIME, true},
    {"atime", MS_NOATIME, false},
    {"nodiratime", MS_NODIRATIME, true},
    {"sync", MS_SYNCHRONOUS, true},
    {"async", MS_SYNCHRONOUS, false},
    {"dirsync", MS_DIRSYNC, true},
};

unsigned long vj_mount_flags(const char *options, unsigned long flags)
{
    g_auto(GStrv) words = g_strsplit(options, ",", -1);

    for (char **word = words; *word != NULL; word++) {
        for (size_t i = 0; i < G_N_ELEMENTS(mount_words); i++) {
            if (strcmp(*word, mount_words[i].name) == 0) {
                flags = mount_words[i].on ? flags | mount_words[i].flag
                                          : flags & ~mount_words[i].flag;
            }
        }
    }
    return flags;
}

bool vj_mount_has_word(const char *options, const char *word)
{
    g_auto(GStrv) words = g_strsplit(options, ",", -1);

    return g_strv_contains((const char *const *)words, word);
}

static void fail(VjMounted *out, int error, const char *what)
{
    out->error = error;
    g_strlcpy(out->text, what, sizeof out->text);
}

/* ---- fusermount3 ------------------------------------------------------------------- */

/* Never returns.  @comm_fd: where fusermount3 hands over the connection; -1: nowhere. */
static void exec_fusermount(char *const argv[], int comm_fd, int said_fd)
{
    static const char *const places[] = {"/usr/bin/fusermount3", "/bin/fusermount3"};
    char number[16];
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(said_fd, STDERR_FILENO) < 0) {
        _exit(127);
    }
    if (comm_fd >= 0) {
        int kept = dup(comm_fd); /* without close-on-exec */

        g_snprintf(number, sizeof number, "%d", kept);
        if (kept < 0 || setenv("_FUSE_COMMFD", number, 1) != 0) {
            _exit(127);
        }
    }
    execvp("fusermount3", argv);
    for (size_t i = 0; i < G_N_ELEMENTS(places) && errno == ENOENT; i++) {
        execv(places[i], argv);
    }
    _exit(errno == ENOENT ? 126 : 127);
}

/* All that comes until the other end is closed; what does not fit is read and dropped. */
static void read_said(int fd, char *text, size_t size)
{
    size_t len = 0;
    char rest[256];
    ssize_t n;

    do {
        bool full = len + 1 >= size;

        n = read(fd, full ? rest : text + len, full ? sizeof rest : size - 1 - len);
        len += n > 0 && !full ? (size_t)n : 0;
    } while (n > 0 || (n < 0 && errno == EINTR));
    text[len] = '\0';
    g_strchomp(text);
}

/* "fusermount3: why" becomes "why", and several lines one. */
static void take_text(VjMounted *out, const char *said)
{
    static const char own[] = "fusermount3: ";
    g_auto(GStrv) lines = g_strsplit(said, "\n", -1);
    g_autofree char *text = NULL;

    for (char **line = lines; *line != NULL; line++) {
        if (g_str_has_prefix(*line, own)) {
            memmove(*line, *line + strlen(own), strlen(*line + strlen(own)) + 1);
        }
    }
    text = g_strjoinv("; ", lines);
    g_strlcpy(out->text, text, sizeof out->text);
}

static void run_fusermount(char *const argv[], int comm_fd, VjMounted *out)
{
    char said[VJ_MOUNTED_TEXT_MAX] = "";
    int ends[2], status = 0;
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) < 0) {
        fail(out, errno, g_strerror(errno));
        return;
    }
    child = fork();
    if (child == 0) {
        exec_fusermount(argv, comm_fd, ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        fail(out, errno, g_strerror(errno));
        close(ends[0]);
        return;
    }
    read_said(ends[0], said, sizeof said);
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        out->error = 0;
        take_text(out, said); /* what it left out */
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 126) {
        fail(out, ENOENT,
             "only root may mount without fusermount3, which is not installed (Debian: "
             "package fuse3)");
    } else if (said[0] != '\0') {
        out->error = EPERM;
        take_text(out, said);
    } else {
        fail(out, EIO, "fusermount3 failed and does not say why");
    }
}

static void append_escaped(GString *s, const char *value)
{
    for (; *value != '\0'; value++) {
        if (*value == ',' || *value == '\\') {
            g_string_append_c(s, '\\');
        }
        g_string_append_c(s, *value);
    }
}

/* Its own words; what it does itself, or the guard does, is left out. */
static char *helper_options(const VjMountPlan *plan)
{
    GString *out = g_string_new("default_permissions,subtype=varjfs,fsname=");
    g_auto(GStrv) words = g_strsplit(plan->options, ",", -1);

    append_escaped(out, plan->source);
    for (char **word = words; *word != NULL; word++) {
        if (**word != '\0' && strcmp(*word, "auto_unmount") != 0) {
            g_string_append_printf(out, ",%s", *word);
        }
    }
    return g_string_free(out, FALSE);
}

static void mount_by_helper(const VjMountPlan *plan, int comm_fd, VjMounted *out)
{
    g_autofree char *options = helper_options(plan);
    char *argv[] = {(char *)"fusermount3",    (char *)"-o", options, (char *)"--",
                    (char *)plan->mountpoint, NULL};

    out->by_helper = true;
    run_fusermount(argv, comm_fd, out);
}

/* ---- the mount point --------------------------------------------------------------- */

/* What is mounted there, without asking the daemon for anything.  False: that cannot be
 * found out. */
static bool device_of(int fd, dev_t *out)
{
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) < 0) {
        return false;
    }
    *out = makedev(st.stx_dev_major, st.stx_dev_minor);
    return *out != 0;
}

/* What has just been mounted; without its device it could not be distinguished from
 * another mount later. */
static void take_device(const VjMountPlan *plan, VjMounted *out)
{
    VJ_AUTO_FD fd = open(plan->mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || !device_of(fd, &out->dev)) {
        g_autofree char *text = g_strdup_printf(
            "it is mounted and has to be unmounted, as it does not show its device: %s",
            g_strerror(errno));

        fail(out, EIO, text);
        out->dev = 0;
    }
}

/* The mount point, if what is there is still our mount; else -1. */
static int open_own(const VjMountPlan *plan, dev_t dev, int flags)
{
    VJ_AUTO_FD fd =
        dev == 0 ? -1 : open(plan->mountpoint, flags | O_DIRECTORY | O_CLOEXEC);
    dev_t found;

    return fd >= 0 && device_of(fd, &found) && found == dev ? vj_fd_steal(&fd) : -1;
}

/* ---- mount(2) ---------------------------------------------------------------------- */

void vj_mounter_mount(const VjMountPlan *plan, int fuse_fd, int comm_fd, VjMounted *out)
{
    unsigned long flags = vj_mount_flags(plan->options, MS_NOSUID | MS_NODEV);
    g_autofree char *data = g_strdup_printf(
        "fd=%d,rootmode=40000,user_id=%u,group_id=%u,default_permissions%s", fuse_fd,
        geteuid(), getegid(),
        vj_mount_has_word(plan->options, "allow_other") ? ",allow_other" : "");

    if (mount(plan->source, plan->mountpoint, "fuse.varjfs", flags, data) == 0) {
        take_device(plan, out);
    } else if (errno == EPERM) {
        mount_by_helper(plan, comm_fd, out);
        if (out->error == 0) {
            take_device(plan, out);
        }
    } else if (errno == ENODEV) {
        fail(out, ENODEV, "the kernel has no FUSE (modprobe fuse)");
    } else {
        fail(out, errno, g_strerror(errno));
    }
}

/* Only root may, and only where sysfs is writable: without it reads are smaller. */
static void raise_readahead(dev_t dev)
{
    char path[64];
    VJ_AUTO_FD fd = -1;

    g_snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev),
               minor(dev));
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || vj_fd_write_all(fd, READAHEAD_KIB, strlen(READAHEAD_KIB)) < 0) {
        vj_trace(front, "readahead stays as it is: %s", path);
    }
}

void vj_mounter_look(const VjMountPlan *plan, VjMounted *out)
{
    struct stat st;

    if (stat(plan->mountpoint, &st) < 0) {
        fail(out, errno, g_strerror(errno));
        return;
    }
    out->dev = st.st_dev;
    raise_readahead(st.st_dev);
}

/* ---- the end ----------------------------------------------------------------------- */

int vj_mounter_sync(const VjMountPlan *plan, dev_t dev)
{
    VJ_AUTO_FD fd = open_own(plan, dev, O_RDONLY);

    return fd >= 0 && syncfs(fd) < 0 ? errno : 0;
}

void vj_mounter_detach(const VjMountPlan *plan, dev_t dev, bool by_helper, VjMounted *out)
{
    char *argv[] = {
        (char *)"fusermount3",    (char *)"-u", (char *)"-q", (char *)"-z", (char *)"--",
        (char *)plan->mountpoint, NULL};
    VJ_AUTO_FD fd = open_own(plan, dev, O_PATH);
    char opened[32];

    if (fd < 0) {
        return; /* another process has unmounted it */
    }
    if (by_helper) {
        vj_fd_close(&fd);
        run_fusermount(argv, -1, out);
        return;
    }
    g_snprintf(opened, sizeof opened, "/proc/self/fd/%d", fd);
    if (umount2(opened, MNT_DETACH) < 0) {
        fail(out, errno, g_strerror(errno));
    }
}
