/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * thread-time.c - whether a thread of another process has run
 *
 * /proc/TID/stat and schedstat may be read by every user (proc(5)).
 */
#include "front/front-private.h"

static char *proc_file(pid_t tid, const char *name)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/%s", (int)tid, name);
    char *text = NULL;

    return g_file_get_contents(path, &text, NULL, NULL) ? text : NULL;
}

bool vj_thread_is_runnable(pid_t tid, uint64_t *run_ns)
{
    g_autofree char *time = NULL, *stat = NULL;
    const char *behind_name;

    if (tid <= 0) {
        return false;
    }
    /* The time first: what it runs between the two does not hide that it has. */
    time = proc_file(tid, "schedstat");
    stat = proc_file(tid, "stat");
    behind_name = stat == NULL ? NULL : strrchr(stat, ')');
    if (time == NULL || behind_name == NULL) {
        return false;
    }
    *run_ns = g_ascii_strtoull(time, NULL, 10);
    return g_str_has_prefix(behind_name, ") R");
}
