/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * check.h - what a check of stored state counts and says; every room that checks its own
 * fills it
 */
#ifndef VJ_BASE_CHECK_H
#define VJ_BASE_CHECK_H

#include <glib.h>
#include <stdint.h>

typedef struct VjCheckReport VjCheckReport;
struct VjCheckReport {
    uint64_t inodes, names, map_nodes, map_entries, objects, index_entries,
        stored_objects;
    uint64_t bytes_verified;
    uint64_t problems; /* violations of an invariant */
    uint64_t leaks;    /* stored objects that no record names, outside what recovery
                        * removes */
    uint64_t lost;     /* objects whose record says that they are damaged: no problem */
    uint64_t pending; /* orphans, dead objects and open id blocks: what a mount resumes */
    uint64_t whole;   /* objects that are whole although their record says that */
    /* Called now and then while the counts above grow; NULL: not wanted. */
    void (*tick)(void *opaque, const VjCheckReport *so_far);
    void *tick_opaque;
};

/*
 * One line per problem, whatever names hold (vj_one_line).  @text begins with "inode N: "
 * or "object N: ", so that a caller that has names can add them.  Lines that only say
 * more of a problem are not counted.
 */
typedef void VjCheckSay(void *opaque, const char *text);

static inline void vj_check_tick(const VjCheckReport *report)
{
    if (report->tick != NULL) {
        report->tick(report->tick_opaque, report);
    }
}

#endif
