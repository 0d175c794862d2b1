/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * history.h - what a workload did and was promised, from the marks in a log
 *
 * A mark is one line.  "begin" alone: the file system is made and mounted.  Lines that
 * begin with '!' are for whoever checks states by a program of his own.  All others
 * belong to a stream, a directory below the root whose name they begin with; in it one
 * thread does one thing after the other:
 *
 *   S c F V BYTES SUM   before a call that may bring content V of file F; V counts from 0
 *                       (empty)
 *   S n CHANGE...       before a call that changes names, all CHANGEs in one step:
 *                       +PATH=F  PATH (below S) names file F     +PATH=d  ... a directory
 *                       -PATH    nothing  ^F=V  where this step is seen, F has content V
 *                                                                 or a later one
 *   S i F INO           after F was made: its inode
 *   S d F V             after a sync: content V of F is durable (or a later one)
 *   S D N               after a sync: the first N steps of names are durable
 *   S k F V, S K N      the same of what is in the newest checkpoint
 *
 * Threads: one at a time.
 */
#ifndef VJ_CRASH_HISTORY_H
#define VJ_CRASH_HISTORY_H

#include "disk.h"

typedef struct Version {
    size_t at; /* the mark */
    uint64_t bytes, sum;
} Version;

/* From this mark on, F has content V or a later one; of a step: where the step is
 * seen. */
typedef struct Floor {
    size_t at;
    guint64 file;
    uint64_t version;
} Floor;

typedef struct Step {
    size_t at;
    char *text;     /* its changes */
    uint64_t names; /* of all names after it, in any order */
} Step;

typedef struct StreamFile {
    guint64 number, ino;
    GArray *versions; /* Version */
    GArray *durable;  /* Floor */
    GArray *kept;     /* Floor: in a checkpoint */
} StreamFile;

typedef struct Stream {
    char *name;
    size_t first;       /* mark: its directory is durable from then on */
    GArray *steps;      /* Step */
    GArray *floors;     /* Floor: at is the number of the step */
    GArray *durable;    /* Floor: version is a number of steps */
    GArray *kept;       /* the same, of a checkpoint */
    GHashTable *files;  /* number → StreamFile */
    GHashTable *by_ino; /* inode → StreamFile */
    GHashTable *now;    /* path → number; while reading */
    uint64_t names;     /* while reading */
} Stream;

typedef struct History {
    size_t begin;       /* the mark "begin"; SIZE_MAX: there is none */
    GPtrArray *streams; /* Stream */
} History;

/* What a directory is named by in place of a file. */
#define STREAM_DIRECTORY G_MAXUINT64

bool history_read(History *h, const CrashLog *log, GError **error);
void history_clear(History *h);
uint64_t history_name_sum(const char *path, uint64_t file);

/* When the power was cut, and whether the newest checkpoint was restored then. */
typedef struct CutAt {
    size_t cut; /* records of the log that came before it */
    bool is_restored;
} CutAt;

/* The steps that the names may show then: from @least to @most, counted. */
void stream_steps_at(const Stream *s, CutAt at, size_t *least, size_t *most);
/* The versions that @f may have then, when the names show @steps steps. */
void stream_versions_at(const Stream *s, const StreamFile *f, CutAt at, size_t steps,
                        size_t *least, size_t *most);
/* The names after @steps steps: path → number; owned. */
GHashTable *stream_names(const Stream *s, size_t steps);

#endif
