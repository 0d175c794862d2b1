/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mount-table.h - which varjfs file systems this mount namespace shows, and where
 */
#ifndef VJ_CMD_MOUNT_TABLE_H
#define VJ_CMD_MOUNT_TABLE_H

#include "base/base.h"

/* True when @source (absolute) is mounted anywhere.  Any thread. */
bool vj_mount_table_has(const char *source);

/* The SOURCE of what is mounted last at @mountpoint (absolute), owned; NULL: no varjfs. */
char *vj_mount_table_source(const char *mountpoint);

#endif
