/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mount-model.h - the model through a mount: processes that edit files and know what is
 * due
 *
 *     mount-model.c    options, processes, rounds; between rounds a command remounts
 *     mount-ops.c      the operations
 *     mount-history.c  which states a file may have after a crash
 *
 * Each process owns its files, several descriptors and a mapping of each, and copies
 * from files that all share.  With --pid-file one of them kills the daemon in each
 * round; every call may fail from then on, and after the remount each file has to be in
 * a state that it had between its last fsync and the kill.
 */
#ifndef VJ_TEST_MODEL_MOUNT_MODEL_H
#define VJ_TEST_MODEL_MOUNT_MODEL_H

#include "common.h"

#include <setjmp.h>

#define SHARED_FILES 2u
/* States that a file may have without an fsync in between; then one is forced. */
#define HISTORY_MOST 48u

typedef struct MountOptions {
    uint64_t ops, seed, rounds;
    unsigned processes, files;
    uint64_t size;
    const char *dir, *remount, *pid_file;
    bool verbose;
    char *again; /* all of them, as on the command line */
} MountOptions;

/* What all processes see. */
typedef struct Common {
    int killed; /* atomic: the daemon was, or is about to be */
} Common;

/* A state that the file had. */
typedef struct Past {
    unsigned name, birth;
    bool exists;
    size_t len;
    uint8_t *bytes;
} Past;

typedef struct MountFile {
    unsigned number;
    unsigned name;  /* it is called f<number>.<name> */
    unsigned birth; /* grows with every new inode */
    Shadow shadow;
    int fd, append_fd;
    uint8_t *map; /* of options.size * 2 bytes; NULL: not now */
    size_t last;
    GArray *history; /* Past; the last is the present; since the last fsync */
} MountFile;

typedef struct Process {
    const MountOptions *o;
    Common *common;
    unsigned number;
    VjRng rng;
    uint64_t op;
    char *dir;
    MountFile *files;
    Shadow shared[SHARED_FILES];
    int shared_fd[SHARED_FILES];
    DataPool *pool;
    uint8_t *data, *back;
    sigjmp_buf lost; /* the daemon is gone: leave the operation */
} Process;

void fail(const Process *p, const char *format, ...) G_GNUC_PRINTF(2, 3) G_GNUC_NORETURN;
/* The same for what a call returned, which may be anything when the daemon is gone. */
#define wrong(p, ...)                                                                    \
    do {                                                                                 \
        leave_if_killed(p);                                                              \
        fail(p, __VA_ARGS__);                                                            \
    } while (0)
void leave_if_killed(Process *p);
/* A call failed: leaves the operation when the daemon was killed, else the test. */
void failed_call(Process *p, const MountFile *f, const char *what) G_GNUC_NORETURN;

#define say(p, ...)                                                                      \
    do {                                                                                 \
        if ((p)->o->verbose) {                                                           \
            g_autofree char *text_ = g_strdup_printf(__VA_ARGS__);                       \
            g_printerr("%u.%" G_GUINT64_FORMAT " %s\n", (p)->number, (p)->op, text_);    \
        }                                                                                \
    } while (0)

/* mount-ops.c */
char *file_path(const Process *p, const MountFile *f, unsigned name);
void file_make(Process *p, MountFile *f);
void file_open(Process *p, MountFile *f);
void file_close(MountFile *f);
/* All of it, through every descriptor and the mapping. */
void file_compare(Process *p, MountFile *f);
void run_op(Process *p);

/* mount-history.c: nothing happens in them unless the daemon is to be killed. */
void history_note(Process *p,
                  MountFile *f); /* the present, before the call that makes it */
void history_note_missing(Process *p, MountFile *f); /* it is not there */
void history_durable(Process *p, MountFile *f);      /* fsync returned */
void history_free(MountFile *f);
/* After a crash: finds which state is there, takes it as the present. */
void history_recover(Process *p, MountFile *f);

#endif
