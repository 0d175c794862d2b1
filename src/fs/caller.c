/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * caller.c - what a request does not say of the calling process: groups, capabilities
 *
 * A request carries the caller's user, group and thread.  The rest stands in /proc, and
 * the caller sits in its system call meanwhile, so it stays true until the answer.  Asked
 * for rarely: only where an inode has something that depends on it, and the kernel has
 * not said it.  Where /proc does not show the caller (another PID namespace, a request of
 * the kernel's own, a caller that has ended), it has no capability, and no group beside
 * its own.
 *
 * A process that makes a user namespace has every capability in it, and its status shows
 * them.  They count where it is the daemon's namespace.  /proc/PID/ns/user would show
 * that, but following it is tracing, which Landlock forbids the daemon, as the kernel
 * does where the caller has more capabilities.  The mappings of users and groups show it
 * as well: to have those of the daemon's namespace, a namespace below it has to be given
 * every user and group of it, and a process that may do that may become any of them.
 */
#include "fs/fs-private.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <unistd.h>

/* Most that is read of one file: the kernel writes 340 lines of a mapping, 34 bytes
 * each. */
#define PROC_TEXT_MAX ((size_t)16 << 10)

/* A file of the directory @dir of /proc, owned; NULL: it is not known. */
static char *proc_text(int dir, const char *name)
{
    VJ_AUTO_FD fd = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_CLOEXEC);
    g_autofree char *text = g_malloc(PROC_TEXT_MAX);
    size_t len = 0;
    ssize_t n = 0;

    while (fd >= 0 && len < PROC_TEXT_MAX - 1 &&
           (n = read(fd, text + len, PROC_TEXT_MAX - 1 - len)) > 0) {
        len += (size_t)n;
    }
    if (fd < 0 || n < 0 || len == 0 || len == PROC_TEXT_MAX - 1) {
        return NULL;
    }
    text[len] = '\0';
    return g_steal_pointer(&text);
}

/* -1: it is not known. */
static int open_proc(const char *who)
{
    g_autofree char *path = g_strdup_printf("/proc/%s", who);

    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The daemon's own; it stays where it is as long as it lives. */
typedef struct Home {
    char *users, *groups; /* mappings; NULL: no caller can be looked up */
} Home;

static gpointer look_home(gpointer data)
{
    static Home home;
    g_autofree char *number = g_strdup_printf("%ld", (long)getpid());
    char self[32] = "";
    VJ_AUTO_FD dir = open_proc(number);

    (void)data;
    /* Another PID namespace's /proc has other processes under the callers' numbers. */
    if (readlink("/proc/self", self, sizeof self - 1) > 0 && strcmp(self, number) == 0) {
        home.users = proc_text(dir, "uid_map");
        home.groups = proc_text(dir, "gid_map");
    }
    return &home;
}

static const Home *home_get(void)
{
    static GOnce once = G_ONCE_INIT;

    return g_once(&once, look_home, NULL);
}

/* Whatever becomes of the number later, this is the caller's; -1: it is not known. */
static int open_caller(const VjCaller *who)
{
    g_autofree char *number = g_strdup_printf("%ld", (long)who->pid);
    const Home *home = home_get();

    return who->pid <= 0 || home->users == NULL || home->groups == NULL
               ? -1
               : open_proc(number);
}

/* The text behind "@field:" of the caller's status, owned; NULL: it is not known. */
static char *status_field(int dir, const char *field)
{
    g_autofree char *head = g_strdup_printf("\n%s:", field);
    g_autofree char *text = proc_text(dir, "status");
    const char *at = text != NULL ? strstr(text, head) : NULL;

    if (at == NULL) {
        return NULL;
    }
    at += strlen(head);
    return g_strstrip(g_strndup(at, strcspn(at, "\n")));
}

/* In the caller's own user namespace, whichever that is. */
static bool has_capability(int dir, unsigned capability)
{
    g_autofree char *text = status_field(dir, "CapEff");

    g_assert(capability < 64);
    return text != NULL && (g_ascii_strtoull(text, NULL, 16) >> capability & 1) != 0;
}

/* @id is among those that the lines "first there, first here, count" of a mapping
 * name. */
static bool mapping_has(const char *mapping, uint64_t id)
{
    g_auto(GStrv) lines = g_strsplit(mapping, "\n", -1);

    for (size_t i = 0; lines[i] != NULL; i++) {
        char *at = lines[i];
        uint64_t first, count;

        (void)g_ascii_strtoull(at, &at, 10);
        first = g_ascii_strtoull(at, &at, 10);
        count = g_ascii_strtoull(at, &at, 10);
        if (id >= first && id - first < count) {
            return true;
        }
    }
    return false;
}

/* @over: NULL, or whose owner and group make a caller below the daemon's namespace
 * capable too. */
static bool is_believed(int dir, const VjInode *over)
{
    g_autofree char *users = proc_text(dir, "uid_map");
    g_autofree char *groups = proc_text(dir, "gid_map");
    const Home *home = home_get();

    if (users == NULL || groups == NULL) {
        return false;
    }
    if (strcmp(users, home->users) == 0 && strcmp(groups, home->groups) == 0) {
        return true;
    }
    return over != NULL && mapping_has(users, over->uid) &&
           mapping_has(groups, over->gid);
}

bool vj_caller_capable(const VjCaller *who, unsigned capability)
{
    VJ_AUTO_FD dir = open_caller(who);

    return has_capability(dir, capability) && is_believed(dir, NULL);
}

static bool in_group(int dir, gid_t gid)
{
    g_autofree char *text = status_field(dir, "Groups");
    g_auto(GStrv) groups = text != NULL ? g_strsplit_set(text, " \t", -1) : NULL;

    for (size_t i = 0; groups != NULL && groups[i] != NULL; i++) {
        if (groups[i][0] != '\0' && g_ascii_strtoull(groups[i], NULL, 10) == gid) {
            return true;
        }
    }
    return false;
}

bool vj_caller_is_member(const VjCaller *who, const VjInode *inode)
{
    VJ_AUTO_FD dir = who->gid == inode->gid ? -1 : open_caller(who);

    return who->gid == inode->gid || in_group(dir, inode->gid) ||
           (has_capability(dir, CAP_FSETID) && is_believed(dir, inode));
}
