/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mount-table.h - which varjfs file systems a mount namespace shows, and where
 */
#ifndef VJ_CMD_MOUNT_TABLE_H
#define VJ_CMD_MOUNT_TABLE_H

#include "base/base.h"

/* One mount of a varjfs; all owned. */
typedef struct VjMountEntry {
    char *mountpoint, *source;
    char *device;  /* "MAJOR:MINOR" */
    char *options; /* those of the mount, then those of the file system: "rw,nosuid,rw" */
} VjMountEntry;

void vj_mount_entry_clear(VjMountEntry *e);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(VjMountEntry, vj_mount_entry_clear)

/* True when @source (absolute) is mounted anywhere in this namespace.  Any thread. */
bool vj_mount_table_has(const char *source);

/* What is mounted last at @mountpoint (absolute); false, and @out empty: no varjfs. */
bool vj_mount_table_find(const char *mountpoint, VjMountEntry *out);

/*
 * vj_mount_table_holder - a process in another mount namespace that shows the file system
 * of @entry
 *
 * Returns   "NUMBER (NAME)", owned; NULL: none that we may look at
 */
char *vj_mount_table_holder(const VjMountEntry *entry);

#endif
