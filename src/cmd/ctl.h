/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl.h - varjfsctl from the inside: its subcommands, and how they print
 *
 * Most of them go through a mount: ioctls and xattrs of files that the caller may open.
 * objects, items and kv use a daemon as programs do, keygen nothing.
 */
#ifndef VJ_CMD_CTL_H
#define VJ_CMD_CTL_H

#include "cmd/cmd.h"

#include <stdio.h>

typedef enum VjCtlFormat {
    VJ_CTL_TEXT,
    VJ_CTL_JSON,
    VJ_CTL_PROMETHEUS,
} VjCtlFormat;

/* One call of a subcommand. */
typedef struct VjCtl {
    const VjCmd *cmd; /* for messages */
    VjCtlFormat format;
    bool no_sync;
    bool recursive;
    bool resume, progress, status;
    uint64_t rate;       /* bytes a second; 0: as fast as it goes */
    uint64_t max_bytes;  /* 0: all */
    uint64_t max_time_s; /* 0: until it is done */
    bool makes_ca;
    const char *node, *client; /* names in certificates; NULL: not asked for */
    uint64_t days;             /* that one is good for; 0: the default */
    uint64_t weight;           /* of a node; 0: not said, which is 1 */
    bool is_forced;
    uint64_t count;        /* of intervals; 0: no end */
    uint64_t interval_ms;  /* 0: not said */
    const char *volume;    /* of a daemon's address; NULL: not said */
    const char *transform; /* of a new object; NULL: the volume's */
    char **operands;       /* ends with NULL; as many as the table of ctl.c allows */
} VjCtl;

/* ctl-stats.c: the pairs of VARJFS_TEXT_*, in the format that was asked for. */
int vj_ctl_show_pairs(const VjCtl *ctl, const char *path, uint32_t what);

/* Each returns an exit code and has reported what went wrong. */
int vj_ctl_sync(const VjCtl *ctl);
int vj_ctl_status(const VjCtl *ctl);
int vj_ctl_map(const VjCtl *ctl);
int vj_ctl_df(const VjCtl *ctl);
int vj_ctl_stats(const VjCtl *ctl);
int vj_ctl_top(const VjCtl *ctl);
int vj_ctl_insert(const VjCtl *ctl);
int vj_ctl_delete(const VjCtl *ctl);
int vj_ctl_replace(const VjCtl *ctl);
int vj_ctl_recode(const VjCtl *ctl);
int vj_ctl_gc(const VjCtl *ctl);
int vj_ctl_scrub(const VjCtl *ctl);
int vj_ctl_checkpoint(const VjCtl *ctl);
int vj_ctl_keygen(const VjCtl *ctl);
int vj_ctl_node(const VjCtl *ctl);
int vj_ctl_store(const VjCtl *ctl);
int vj_ctl_objects(const VjCtl *ctl);
int vj_ctl_items(const VjCtl *ctl);
int vj_ctl_kv(const VjCtl *ctl);
int vj_ctl_config(const VjCtl *ctl);
int vj_ctl_statistics(const VjCtl *ctl);

/* Called for each line, without its end; false: stop with an error that was reported. */
typedef bool VjCtlLine(void *opaque, char *line);

/* Every line of VARJFS_TEXT_@what; false after a message. */
bool vj_ctl_text(const VjCtl *ctl, const char *path, int fd, uint32_t what,
                 VjCtlLine *visit, void *opaque);

/*
 * Open something on a varjfs mount; -1 after a message, also when it lies elsewhere.
 * @flags as open(2).
 */
int vj_ctl_open(const VjCtl *ctl, const char *path, int flags);

/*
 * Splits "key=value" in place and returns the value; NULL when it is none.  A key is
 * lower-case letters, digits and "_", so that it can be printed as a name in JSON and for
 * Prometheus, also where the daemon is another version.
 */
char *vj_ctl_split_pair(char *line);

/* One step of VARJFS_IOC_TEND, from io->cursor on; false after a message. */
struct varjfs_tend;
bool vj_ctl_tend_step(const VjCtl *ctl, const char *path, int fd, uint32_t what,
                      struct varjfs_tend *io);

/* @text as a JSON string, quotes included; bytes that are not UTF-8 become U+FFFD;
 * owned. */
char *vj_ctl_json_string(const char *text);
/* The same of bytes with NULs. */
char *vj_ctl_json_bytes(const void *bytes, size_t len);

/* A value that is all decimal digits is a JSON number, anything else a string; owned. */
char *vj_ctl_json_value(const char *text);

#endif
