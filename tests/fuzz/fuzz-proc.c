/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Texts of /proc: a caller's status, where a process chooses its own name, and the table
 * of mounts, where users choose paths.  The files under test are compiled in here with a
 * file system that holds the input.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>

#define WHOLE_MAPPING "0 0 4294967295\n"

static VjSlice fuzzed_text;
static bool in_our_namespace; /* mappings are the daemon's own, whatever the input is */

/* A directory of /proc, or a file in it. */
static int proc_open(const char *name)
{
    bool is_mapping = in_our_namespace && g_str_has_suffix(name, "_map");
    VjSlice text =
        is_mapping ? vj_slice(WHOLE_MAPPING, strlen(WHOLE_MAPPING)) : fuzzed_text;
    int fd = memfd_create("proc", MFD_CLOEXEC);

    g_assert(fd >= 0 && pwrite(fd, text.data, text.len, 0) == (ssize_t)text.len);
    return fd;
}

static gboolean proc_contents(const char *path, char **text, gsize *len, GError **error)
{
    (void)error;
    g_assert(g_str_has_prefix(path, "/proc/"));
    *text = g_strndup(fuzzed_text.data, fuzzed_text.len);
    if (len != NULL) {
        *len = strlen(*text);
    }
    return fuzzed_text.len > 0;
}

#define g_file_get_contents proc_contents
#include "../../src/cmd/mount-table.c"
#define open(path, flags) proc_open(path)
#define openat(dir, name, flags) proc_open(name)
#include "../../src/fs/caller.c"

/* What the kernel writes for a process that is called as @name says: it escapes line
 * breaks. */
static void try_name(const uint8_t *data, size_t len)
{
    const VjCaller who = {.uid = 1000, .gid = 1000, .pid = 7};
    g_autofree char *name = g_strndup((const char *)data, MIN(len, 15));
    g_autofree char *text = NULL;

    g_strdelimit(name, "\n", 'n');
    text = g_strdup_printf("Name:\t%s\nUid:\t1000\t1000\nGroups:\t5 17 \nCapEff:\t"
                           "0000000000000001\n",
                           name);
    fuzzed_text = vj_slice(text, strlen(text));
    in_our_namespace = true;
    g_assert(vj_caller_capable(&who, 0) && !vj_caller_capable(&who, 1));
    g_assert(vj_caller_is_member(&who, &(VjInode){.gid = 17}));
    g_assert(vj_caller_is_member(&who, &(VjInode){.gid = 1000}));
    g_assert(!vj_caller_is_member(&who, &(VjInode){.gid = 0}));
}

FUZZ_MUTATIONS(400);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const VjCaller who = {.uid = 1000, .gid = 1000, .pid = 7};
    g_auto(VjMountEntry) entry = {.source = NULL};

    fuzz_quiet();
    in_our_namespace = true;
    (void)home_get();
    in_our_namespace = false;
    fuzzed_text = vj_slice(data, len);
    (void)vj_caller_capable(&who, len % 64);
    (void)vj_caller_is_member(&who, &(VjInode){.gid = (gid_t)len});
    (void)vj_mount_table_has("/srv/a b");
    if (vj_mount_table_find("/mnt/a b", &entry)) {
        g_assert(vj_mount_table_has(entry.source));
        g_assert(entry.device != NULL && entry.options != NULL);
    }
    try_name(data, len);
    return 0;
}
