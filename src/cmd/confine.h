/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * confine.h - a program that from now on takes what the drivers of SOURCE take
 */
#ifndef VJ_CMD_CONFINE_H
#define VJ_CMD_CONFINE_H

#include "base/base.h"
#include "cmd/owners.h"
#include "volume/volume.h"

/* Credential files that one volume names, more are not readable; and devices. */
#define VJ_CONFINE_FILES_MAX 8u

typedef struct VjConfine {
    /* The directory SOURCE, or that of the volume file; what it holds has not been read
     * yet. */
    int dir_fd;
    bool is_file;          /* a volume file */
    int file_fd;           /* with is_file: it; -1: it is to be made */
    VjSourceOwners owners; /* of it: other users' files take capabilities */
    VjDriverNeeds drivers; /* vj_confine_drivers, or the options of mkfs */
    /* Names of credential files and devices, relative to dir_fd.  NULL: none. */
    const VjOptFiles *files;
    bool trusts_files; /* the caller has named them himself */
    /* varjfs.conf and the like are written, not the mark alone; a volume file gets its
     * name. */
    bool rewrites;
    bool has_syslog; /* the log goes there */
    int other_fd;    /* another directory that is needed; -1: none */
} VjConfine;

/*
 * vj_confine_drivers - what the drivers that SOURCE names need
 *
 * A process that may read SOURCE and do nothing else reads varjfs.conf, and sends these
 * two numbers, and the names of credential files and devices, to this one.  Where it
 * cannot, they are those of drivers that keep files: what is wrong is reported when the
 * volume is opened.
 * @files      gets the names, which it owns
 * Threads     the only thread of the process
 */
VjDriverNeeds vj_confine_drivers(const VjPlace *place, const char *source,
                                 VjSourceOwners owners, VjOptFiles *files);

/* Where @place is, for vj_confine; the rest is the caller's. */
void vj_confine_to(const VjPlace *place, VjConfine *out);

/*
 * vj_confine - gives up what serving or changing SOURCE does not take
 *
 * Of the credential files those stay readable that belong to the owner of SOURCE, and
 * likewise devices can be written; others only where nobody but root may write SOURCE, or
 * the caller has named them.
 * Threads     the only thread of the process
 */
void vj_confine(const VjConfine *how);

/* "auto" and "off", the values of --sandbox. */
bool vj_confine_parse(const char *value, bool *is_off, GError **error);

#endif
