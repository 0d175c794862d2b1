/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * confine.h - a program that from now on takes what the drivers of SOURCE take
 */
#ifndef VJ_CMD_CONFINE_H
#define VJ_CMD_CONFINE_H

#include "base/base.h"
#include "cmd/owners.h"
#include "volume/volume.h"

typedef struct VjConfine {
    int source_fd;         /* SOURCE; what it holds has not been read yet */
    VjSourceOwners owners; /* of it: other users' files take capabilities */
    VjDriverNeeds drivers; /* vj_confine_drivers, or the options of mkfs */
    bool rewrites;         /* varjfs.conf and the like are written, not the mark alone */
    bool has_syslog;       /* the log goes there */
    int other_fd;          /* another directory that is needed; -1: none */
} VjConfine;

/*
 * vj_confine_drivers - what the drivers that SOURCE names need
 *
 * A process that may read SOURCE and do nothing else reads varjfs.conf, and sends these
 * two numbers to this one.  Where it cannot, they are those of drivers that keep files:
 * what is wrong is reported when the volume is opened.
 * Threads     the only thread of the process
 */
VjDriverNeeds vj_confine_drivers(int source_fd, const char *source,
                                 VjSourceOwners owners);

/*
 * vj_confine - gives up what serving or changing SOURCE does not take
 *
 * Threads     the only thread of the process
 */
void vj_confine(const VjConfine *how);

/* "auto" and "off", the values of --sandbox. */
bool vj_confine_parse(const char *value, bool *is_off, GError **error);

#endif
