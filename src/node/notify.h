/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * notify.h - what the daemon tells the service manager that started it
 *
 * As sd_notify(3) does it, by datagrams to the socket that NOTIFY_SOCKET names; without
 * that variable nothing happens.
 * Threads: one at a time.  Locks: none.
 */
#ifndef VJ_NODE_NOTIFY_H
#define VJ_NODE_NOTIFY_H

/* Connects; afterwards no socket has to be made.  Returns a descriptor, -1: there is no
 * service manager, or it cannot be reached, which is logged. */
int vj_node_notify_open(void);
/* "READY=1", "RELOADING=1", "STOPPING=1", …; -1: does nothing. */
void vj_node_notify(int fd, const char *state);

#endif
