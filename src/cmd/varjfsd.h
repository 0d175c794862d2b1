/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * varjfsd.h - the parts of the program varjfsd
 *
 *   varjfsd.c           the command line, listening, serving, the end
 *   varjfsd-confine.c   what it gives up
 *   varjfsd-stats.c     --stats: a client of the daemon
 */
#ifndef VJ_CMD_VARJFSD_H
#define VJ_CMD_VARJFSD_H

#include "cmd/cmd.h"
#include "node/node.h"

/*
 * Opens each volume's directory, to be closed by the caller; they stay in *out until
 * then.  False with one line: one cannot be opened.
 */
bool vj_daemon_open_dirs(const VjNodeConf *conf, GArray **out, GError **error);
void vj_daemon_close_dirs(GArray *dirs); /* of int; NULL is fine */

/* From here on what serving @conf takes, and reading it again.  The only thread. */
void vj_daemon_confine(const VjNodeConf *conf, const GArray *dirs, bool has_syslog);

/* The statistics of the daemon that serves @conf, on stdout; the exit status. */
int vj_daemon_print_stats(const VjCmd *cmd, const VjNodeConf *conf, const char *format);

#endif
