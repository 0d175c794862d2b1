/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * needs.h - what a driver takes of its process
 *
 * Each driver of a store and each metadata engine says it in its table.  A process that
 * serves a volume gives up all that its drivers do not take before it reads what others
 * wrote (sandbox.h).
 */
#ifndef VJ_BASE_NEEDS_H
#define VJ_BASE_NEEDS_H

enum {
    VJ_NEEDS_FILES =
        1 << 0,             /* a directory of its own, whose files it makes and changes */
    VJ_NEEDS_UNIX = 1 << 1, /* to connect sockets of AF_UNIX */
    VJ_NEEDS_TCP = 1 << 2,  /* to connect TCP sockets of AF_INET and AF_INET6 */
    VJ_NEEDS_ALL = VJ_NEEDS_FILES | VJ_NEEDS_UNIX | VJ_NEEDS_TCP,
};

#endif
