/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * caller.c - what the kernel does not tell of the process that asks: groups, capabilities
 *
 * A request carries the caller's user, group and thread.  The rest stands in /proc, and the
 * caller sits in its system call meanwhile, so it stays true until the answer.  Asked for
 * rarely: only where an inode has something that depends on it.  Where /proc does not show
 * the caller (another PID namespace, a request of the kernel's own), root is taken to have
 * every capability, and nobody to have a group beside its own.
 */
#include "fs/fs-private.h"

/* The text behind "@field:" of the caller's status, owned; NULL: it is not known. */
static char *status_field(const VjCaller *who, const char *field)
{
    g_autofree char *path = g_strdup_printf("/proc/%ld/status", (long)who->pid);
    g_autofree char *head = g_strdup_printf("\n%s:", field);
    g_autofree char *text = NULL;
    const char *at;

    if (who->pid <= 0 || !g_file_get_contents(path, &text, NULL, NULL)) {
        return NULL;
    }
    at = strstr(text, head);
    if (at == NULL) {
        return NULL;
    }
    at += strlen(head);
    return g_strstrip(g_strndup(at, strcspn(at, "\n")));
}

bool vj_caller_capable(const VjCaller *who, unsigned capability)
{
    g_autofree char *text = status_field(who, "CapEff");

    g_assert(capability < 64);
    if (text == NULL) {
        return who->uid == 0;
    }
    return (g_ascii_strtoull(text, NULL, 16) >> capability & 1) != 0;
}

bool vj_caller_in_group(const VjCaller *who, gid_t gid)
{
    g_autofree char *text = NULL;
    g_auto(GStrv) groups = NULL;

    if (who->gid == gid) {
        return true;
    }
    text = status_field(who, "Groups");
    if (text == NULL) {
        return false;
    }
    groups = g_strsplit_set(text, " \t", -1);
    for (size_t i = 0; groups[i] != NULL; i++) {
        if (groups[i][0] != '\0' && g_ascii_strtoull(groups[i], NULL, 10) == gid) {
            return true;
        }
    }
    return false;
}
