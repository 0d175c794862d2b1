/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * confine.h - a program that from now on needs SOURCE alone
 */
#ifndef VJ_CMD_CONFINE_H
#define VJ_CMD_CONFINE_H

#include "base/base.h"
#include "cmd/owners.h"

/*
 * vj_confine - gives up what reading and writing SOURCE does not take
 *
 * @source_fd  SOURCE; what it holds has not been read yet
 * @owners     of it: other users' files take capabilities
 * @other_fd   another directory that is needed; -1: none
 * Threads     the only thread of the process
 */
void vj_confine(int source_fd, VjSourceOwners owners, int other_fd);

/* "auto" and "off", the values of --sandbox. */
bool vj_confine_parse(const char *value, bool *is_off, GError **error);

#endif
