/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mount-table.c - /proc/self/mountinfo, of which two words a line are looked at
 *
 * Field 5 is the mount point; behind " - " come type and device.  Both are written with
 * octal escapes.
 */
#include "cmd/mount-table.h"

#define TYPE "fuse.varjfs"

/* True for a line about a varjfs; both are owned. */
static bool line_parse(const char *line, char **mountpoint, char **source)
{
    const char *behind = strstr(line, " - " TYPE " ");
    g_auto(GStrv) front = NULL;
    g_auto(GStrv) back = NULL;

    if (behind == NULL) {
        return false;
    }
    front = g_strsplit(line, " ", 6);
    back = g_strsplit(behind + strlen(" - " TYPE " "), " ", 2);
    if (g_strv_length(front) < 5 || back[0] == NULL) {
        return false;
    }
    *mountpoint = g_strcompress(front[4]);
    *source = g_strcompress(back[0]);
    return true;
}

typedef bool LineVisit(const char *mountpoint, const char *source, void *opaque);

static void each_line(LineVisit *visit, void *opaque)
{
    g_autofree char *table = NULL;
    g_auto(GStrv) lines = NULL;

    if (!g_file_get_contents("/proc/self/mountinfo", &table, NULL, NULL)) {
        return;
    }
    lines = g_strsplit(table, "\n", -1);
    for (char **line = lines; *line != NULL; line++) {
        g_autofree char *mountpoint = NULL;
        g_autofree char *source = NULL;

        if (line_parse(*line, &mountpoint, &source) &&
            !visit(mountpoint, source, opaque)) {
            return;
        }
    }
}

typedef struct Search {
    const char *wanted;
    char *source; /* owned */
    bool found;
} Search;

static bool visit_source(const char *mountpoint, const char *source, void *opaque)
{
    Search *s = opaque;

    (void)mountpoint;
    s->found = strcmp(source, s->wanted) == 0;
    return !s->found;
}

static bool visit_mountpoint(const char *mountpoint, const char *source, void *opaque)
{
    Search *s = opaque;

    if (strcmp(mountpoint, s->wanted) == 0) {
        g_free(s->source);
        s->source = g_strdup(source);
    }
    return true;
}

bool vj_mount_table_has(const char *source)
{
    Search s = {.wanted = source};

    each_line(visit_source, &s);
    return s.found;
}

char *vj_mount_table_source(const char *mountpoint)
{
    Search s = {.wanted = mountpoint};

    each_line(visit_mountpoint, &s);
    return s.source;
}
