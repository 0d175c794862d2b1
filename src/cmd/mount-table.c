/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mount-table.c - /proc/PID/mountinfo, of which five words a line are looked at
 *
 * Field 3 is the device, 5 the mount point, 6 the options of the mount; behind " - " come
 * type, source and the options of the file system.  Blanks are written as octal escapes.
 */
#include "cmd/mount-table.h"

#include <unistd.h>

#define TYPE "fuse.varjfs"

enum { DEVICE = 2, MOUNTPOINT = 4, OPTIONS = 5, FRONT_WORDS };
enum { SOURCE, SUPER_OPTIONS, BACK_WORDS };

void vj_mount_entry_clear(VjMountEntry *e)
{
    g_clear_pointer(&e->mountpoint, g_free);
    g_clear_pointer(&e->source, g_free);
    g_clear_pointer(&e->device, g_free);
    g_clear_pointer(&e->options, g_free);
}

/* True for a line about a varjfs. */
static bool line_parse(const char *line, VjMountEntry *out)
{
    const char *behind = strstr(line, " - " TYPE " ");
    g_auto(GStrv) front = NULL;
    g_auto(GStrv) back = NULL;

    if (behind == NULL) {
        return false;
    }
    front = g_strsplit(line, " ", FRONT_WORDS + 1);
    back = g_strsplit(behind + strlen(" - " TYPE " "), " ", BACK_WORDS + 1);
    if (g_strv_length(front) < FRONT_WORDS || g_strv_length(back) < BACK_WORDS) {
        return false;
    }
    out->device = g_strdup(front[DEVICE]);
    out->mountpoint = g_strcompress(front[MOUNTPOINT]);
    out->source = g_strcompress(back[SOURCE]);
    out->options = g_strconcat(front[OPTIONS], ",", back[SUPER_OPTIONS], NULL);
    return true;
}

/* Returns whether to go on. */
typedef bool EntryVisit(VjMountEntry *e, void *opaque);

static void each_entry(const char *table_path, EntryVisit *visit, void *opaque)
{
    g_autofree char *table = NULL;
    g_auto(GStrv) lines = NULL;

    if (!g_file_get_contents(table_path, &table, NULL, NULL)) {
        return;
    }
    lines = g_strsplit(table, "\n", -1);
    for (char **line = lines; *line != NULL; line++) {
        g_auto(VjMountEntry) e = {.source = NULL};

        if (line_parse(*line, &e) && !visit(&e, opaque)) {
            return;
        }
    }
}

typedef struct Search {
    const char *wanted;
    const VjMountEntry *like;
    VjMountEntry *entry; /* the last one found */
    bool found;
} Search;

static bool visit_source(VjMountEntry *e, void *opaque)
{
    Search *s = opaque;

    s->found = strcmp(e->source, s->wanted) == 0;
    return !s->found;
}

/* The kernel gives the number of a device that is gone to the next one. */
static bool visit_same(VjMountEntry *e, void *opaque)
{
    Search *s = opaque;

    s->found = strcmp(e->device, s->like->device) == 0 &&
               strcmp(e->source, s->like->source) == 0;
    return !s->found;
}

static bool visit_mountpoint(VjMountEntry *e, void *opaque)
{
    Search *s = opaque;

    if (strcmp(e->mountpoint, s->wanted) == 0) {
        vj_mount_entry_clear(s->entry);
        *s->entry = *e;
        *e = (VjMountEntry){.source = NULL};
        s->found = true;
    }
    return true;
}

bool vj_mount_table_has(const char *source)
{
    Search s = {.wanted = source};

    each_entry("/proc/self/mountinfo", visit_source, &s);
    return s.found;
}

bool vj_mount_table_find(const char *mountpoint, VjMountEntry *out)
{
    Search s = {.wanted = mountpoint, .entry = out};

    *out = (VjMountEntry){.source = NULL};
    each_entry("/proc/self/mountinfo", visit_mountpoint, &s);
    return s.found;
}

/* ---- other namespaces -------------------------------------------------------------- */

/* The mount namespace of the process @name in /proc; "": it is not shown to us. */
static char *namespace_of(const char *name)
{
    g_autofree char *path = g_build_filename("/proc", name, "ns/mnt", NULL);
    char *link = g_file_read_link(path, NULL);

    return link != NULL ? link : g_strdup("");
}

static bool shows(const char *name, const VjMountEntry *entry)
{
    g_autofree char *path = g_build_filename("/proc", name, "mountinfo", NULL);
    Search s = {.like = entry};

    each_entry(path, visit_same, &s);
    return s.found;
}

static char *describe(const char *name)
{
    g_autofree char *path = g_build_filename("/proc", name, "comm", NULL);
    g_autofree char *comm = NULL;

    return g_file_get_contents(path, &comm, NULL, NULL)
               ? g_strdup_printf("%s (%s)", name, g_strchomp(comm))
               : g_strdup(name);
}

char *vj_mount_table_holder(const VjMountEntry *entry)
{
    g_autoptr(GHashTable) seen =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GDir) processes = g_dir_open("/proc", 0, NULL);
    const char *name;

    g_hash_table_add(seen, namespace_of("self"));
    g_hash_table_add(seen, g_strdup(""));
    while (processes != NULL && (name = g_dir_read_name(processes)) != NULL) {
        if (g_ascii_isdigit(name[0]) && g_hash_table_add(seen, namespace_of(name)) &&
            shows(name, entry)) {
            return describe(name);
        }
    }
    return NULL;
}
