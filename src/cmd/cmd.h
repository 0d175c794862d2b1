/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * cmd.h - what the programs share: command line by table, messages, exit codes
 *
 * A program describes itself in one VjCmd; --help, --version, the parser and the check of
 * the man page (tests/doc/options.sh reads --help) follow from it.  Messages are one line
 * on stderr, "program: what: why".
 *
 * Threads: main alone.  Locks: none.
 */
#ifndef VJ_CMD_CMD_H
#define VJ_CMD_CMD_H

#include "base/base.h"

/* Beside EXIT_SUCCESS and EXIT_FAILURE: the command line is wrong. */
#define VJ_EXIT_USAGE 2

typedef struct VjCmdSwitch {
    char letter;       /* '\0': a word alone */
    const char *word;  /* without "--"; NULL: a letter alone */
    const char *value; /* what --help calls its value; NULL: it takes none */
    const char *help;  /* one line */
} VjCmdSwitch;

typedef struct VjCmd {
    const char *name;     /* as in messages: "mkfs.varjfs", "varjfsctl map" */
    const char *operands; /* behind the name in the usage line: "[-f] SOURCE" */
    const char *summary;  /* one or more lines, no line break at the end */
    /* Ends with a NULL help; --help and --version are implied. */
    const VjCmdSwitch *switches;
    const VjOptSpec *options; /* what -o takes; NULL: there is no -o */
    const char *more;         /* printed behind it all by --help; NULL: nothing */
    /* The same, made when it is asked for; owned; NULL: nothing. */
    char *(*more_of)(void);
} VjCmd;

/*
 * Called for each switch in the order of the command line; @value is NULL where it takes
 * none.  False with @error: wrong usage.
 */
typedef bool VjCmdSet(void *opaque, const VjCmdSwitch *s, const char *value,
                      GError **error);

/*
 * vj_cmd_parse - read the switches of a command line, in any order with the operands
 *
 * @argv     reordered: what is not a switch stands at the end
 * @first    index of the first operand
 * Returns   -1: go on; else the exit code: --help and --version are done, a wrong switch
 *           has been reported
 */
int vj_cmd_parse(const VjCmd *cmd, int argc, char **argv, VjCmdSet *set, void *opaque,
                 int *first);

/* --help on stdout. */
void vj_cmd_help(const VjCmd *cmd);

/*
 * The name of this process's session of a volume, for people: "varjfs[7] on host, /mnt".
 * What is longer than a session's name may be is cut off at its end.  Owned.
 */
char *vj_cmd_session_name(const char *program, const char *where);

/*
 * Of a program that serves in the background: the parent's end.  The child writes a byte
 * to the pipe of @fd when it serves.  EXIT_SUCCESS then; else the child's exit code, or
 * EXIT_FAILURE with "program: the daemon ended before @event" on stderr.
 */
int vj_cmd_wait_ready(const char *program, int fd, pid_t child, const char *event);

/* For more_of: the transformations of this build. */
char *vj_cmd_transforms(void);

/* "name: what: why" (or "name: why" with @what NULL) on stderr, then the usage line;
 * VJ_EXIT_USAGE. */
int vj_cmd_usage_error(const VjCmd *cmd, const char *what, const char *why);

/* "name: message" on stderr; EXIT_FAILURE. */
int vj_cmd_fail(const VjCmd *cmd, const GError *error);

/* "name: what: strerror" on stderr; EXIT_FAILURE. */
int vj_cmd_fail_errno(const VjCmd *cmd, const char *what, int positive_errno);

/*
 * vj_cmd_flush - stdout has taken everything
 *
 * A program whose output matters ends with this: a full disk behind a pipe is an error.
 * Returns @status, or EXIT_FAILURE after a message.
 */
int vj_cmd_flush(const VjCmd *cmd, int status);

#endif
