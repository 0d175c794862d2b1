/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sandbox.h - what a process gives up before it reads what others wrote
 *
 * For a process that serves a directory and nothing else: capabilities, privileges by
 * exec, core files, and, as far as the kernel has Landlock and seccomp, every file but
 * those below a few directories, and the system calls that are of use to intruders alone.
 * All of it is for good, and for the threads that are started from then on.
 */
#ifndef VJ_BASE_SANDBOX_H
#define VJ_BASE_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Capabilities that are kept, of those that the process has. */
typedef enum VjSandboxKeep {
    VJ_SANDBOX_NONE,   /* files by ownership and mode */
    VJ_SANDBOX_FILES,  /* other users' files: DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER */
    VJ_SANDBOX_MOUNTS, /* SYS_ADMIN, and DAC_READ_SEARCH for the way to a mount point */
} VjSandboxKeep;

/* What may be done with what is below a directory; each one includes those before it. */
typedef enum VjSandboxAccess {
    VJ_SANDBOX_READ,
    VJ_SANDBOX_NAMES, /* empty files are made, renamed in their directory, and removed */
    VJ_SANDBOX_WRITE, /* files are written, directories made and removed */
} VjSandboxAccess;

/* A directory with what is below it, or one file, which can be read alone. */
typedef struct VjSandboxDir {
    int fd;
    VjSandboxAccess access;
} VjSandboxDir;

#define VJ_SANDBOX_DIRS_MAX 1024u

typedef struct VjSandbox {
    VjSandboxKeep keep;
    VjSandboxDir dirs[VJ_SANDBOX_DIRS_MAX];
    unsigned dir_count;
    /* VJ_NEEDS_UNIX, VJ_NEEDS_TCP: sockets of that kind are made and connected.  Without
     * any there are none; none begins to listen.  With TCP also what finds the addresses
     * of names: datagrams of IP, and the files of the resolver. */
    uint32_t sockets;
    bool listens;    /* connections to sockets that listen already are taken */
    bool has_syslog; /* datagrams of AF_UNIX go out, as syslog(3) sends them */
    bool is_quiet;   /* what this kernel lacks is reported by another process */
} VjSandbox;

/*
 * vj_sandbox_enter - from here on
 *
 * What this kernel lacks is left out, and logged once.
 * Threads   the only thread of the process
 */
void vj_sandbox_enter(const VjSandbox *plan);

/*
 * vj_sandbox_refuse - ends the program with status 1 and a line when it has more
 * privileges than its caller
 *
 * A set-user-ID program believes an environment, a directory and descriptors that others
 * chose; ours were not made for that.  The first call of main().
 */
void vj_sandbox_refuse(const char *program);

/*
 * vj_sandbox_allow_calls - from here on the system calls @calls, what a C library does by
 * itself (memory, clocks, the end of a signal, of the process), fork(2), and no others
 *
 * @calls   numbers, SYS_*
 * The others fail with EPERM; with ENOSYS those for which a C library has an older one.
 * The kernel's audit log names them.  Takes no_new_privs or CAP_SYS_ADMIN.
 *
 * Returns   0; -errno: nothing is refused then
 * Threads   the only thread of the process
 */
int vj_sandbox_allow_calls(const unsigned *calls, size_t count);

/* Capabilities alone, from the effective, permitted, ambient and bounding sets. */
void vj_sandbox_drop_capabilities(VjSandboxKeep keep);

#endif
