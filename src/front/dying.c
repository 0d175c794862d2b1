/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * dying.c - whether the caller of a request is about to end
 *
 * The kernel says at most that it has a signal, and not which: /proc tells.
 */
#include "front/front-private.h"

#include <signal.h>
#include <stdio.h>

/* Of the kernel's task flags, in proc(5). */
#define PF_EXITING 0x4u

/* Signals that do not end a process which has said nothing about them. */
static uint64_t harmless_signals(void)
{
    static const int harmless[] = {SIGCHLD, SIGCONT, SIGURG,  SIGWINCH,
                                   SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    uint64_t set = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(harmless); i++) {
        set |= (uint64_t)1 << (harmless[i] - 1);
    }
    return set;
}

/* The set of signals in the line "NAME:\t0123456789abcdef"; 0: there is none. */
static uint64_t signal_set(const char *status, const char *name)
{
    const char *at = strstr(status, name);

    return at == NULL ? 0 : g_ascii_strtoull(at + strlen(name), NULL, 16);
}

/* What stands behind @name in decimal. */
static uint64_t status_number(const char *status, const char *name)
{
    const char *at = strstr(status, name);

    return at == NULL ? 0 : g_ascii_strtoull(at + strlen(name), NULL, 10);
}

/* The first process of a pid namespace: the last number of "NStgid:\t4711\t1". */
static bool is_init(const char *status)
{
    const char *at = strstr(status, "\nNStgid:");
    const char *end = at == NULL ? NULL : strchr(at + 1, '\n');

    return end != NULL && end - at > 3 && end[-1] == '1' && end[-2] == '\t';
}

/* The signals that do not end the thread of @status.  What is pending for a traced one
 * its tracer may take away, and for the first process of a namespace the kernel does; but
 * not SIGKILL. */
static uint64_t kept_signals(const char *status)
{
    if (is_init(status) || status_number(status, "\nTracerPid:") != 0) {
        return ~((uint64_t)1 << (SIGKILL - 1));
    }
    return signal_set(status, "\nSigBlk:") | signal_set(status, "\nSigIgn:") |
           signal_set(status, "\nSigCgt:") | harmless_signals();
}

static char *read_status(pid_t tid)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/status", (int)tid);
    char *status = NULL;

    return tid > 0 && g_file_get_contents(path, &status, NULL, NULL) ? status : NULL;
}

bool vj_thread_is_dying(pid_t tid)
{
    g_autofree char *status = read_status(tid);

    return status != NULL &&
           ((signal_set(status, "\nSigPnd:") | signal_set(status, "\nShdPnd:")) &
            ~kept_signals(status)) != 0;
}

pid_t vj_thread_group(pid_t tid)
{
    g_autofree char *status = read_status(tid);

    return status == NULL ? 0 : (pid_t)status_number(status, "\nTgid:");
}

/* PF_EXITING in the flags, which are the seventh field behind the name of the program.
 * The last field is the status that wait(2) returns: *is_killed, by a signal. */
static bool is_exiting(pid_t group, const char *tid, bool *is_killed)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/task/%s/stat", (int)group, tid);
    g_autofree char *stat = NULL;
    unsigned flags = 0;
    const char *at;

    if (!g_file_get_contents(path, &stat, NULL, NULL)) {
        return true; /* it has just gone */
    }
    at = strrchr(stat, ' ');
    *is_killed =
        *is_killed || (at != NULL && (g_ascii_strtoull(at, NULL, 10) & 0x7f) != 0);
    at = strrchr(stat, ')');
    return at != NULL && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
           (flags & PF_EXITING) != 0;
}

bool vj_thread_group_is_killed(pid_t group)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/task", (int)group);
    GDir *dir = group > 0 ? g_dir_open(path, 0, NULL) : NULL;
    bool ends = dir != NULL, is_killed = false;
    const char *tid;

    while (ends && (tid = g_dir_read_name(dir)) != NULL) {
        ends = is_exiting(group, tid, &is_killed);
    }
    g_clear_pointer(&dir, g_dir_close);
    return ends && is_killed;
}
