/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * disk.h - what a device may hold after a power cut, from the log of a recorder
 *
 * A disk is fed with the records of a log, one by one.  It keeps what is durable, and
 * apart from it, in order, each change that no sync has covered yet.  disk_cut() decides
 * for every one of those whether it survives; what is then there can be written to a
 * directory.
 *
 * Threads: one at a time.
 */
#ifndef VJ_CRASH_DISK_H
#define VJ_CRASH_DISK_H

#include "base/base.h"
#include "record.h"

/* ---- the log ----------------------------------------------------------------------- */

typedef struct CrashRecord {
    VjRecordHead head;
    const char *name, *name2; /* not terminated */
    const uint8_t *data;
} CrashRecord;

typedef struct CrashLog {
    uint8_t *bytes;
    size_t len;
    GArray *offsets; /* size_t: where each record begins */
} CrashLog;

bool crash_log_open(CrashLog *log, const char *path, GError **error);
void crash_log_close(CrashLog *log);
size_t crash_log_count(const CrashLog *log);
CrashRecord crash_log_get(const CrashLog *log, size_t i);

/* ---- the disk ---------------------------------------------------------------------- */

typedef struct Disk Disk;

/* @log is borrowed.  The first record says which directory is the root; it is empty
 * then. */
Disk *disk_new(const CrashLog *log);
void disk_free(Disk *d);
/* The next record.  false: a log that cannot be. */
bool disk_feed(Disk *d, GError **error);
/* Records fed so far. */
size_t disk_position(const Disk *d);
/* Changes that no sync has covered. */
size_t disk_pending(const Disk *d);

/* How a cut treats what is pending. */
typedef enum CutKind {
    CUT_ALL,      /* everything survives: as after kill -9 */
    CUT_NONE,     /* nothing does */
    CUT_SOME,     /* each change with one probability */
    CUT_BY_FILE,  /* all or none of a file or directory */
    CUT_NO_NAMES, /* contents survive, names do not */
    CUT_NO_DATA,  /* names survive, contents do not */
    CUT_PREFIX,   /* all before a moment */
    CUT_LOSE_ONE, /* all but one */
    CUT_KEEP_ONE, /* one alone */
    CUT_KINDS
} CutKind;

typedef struct Cut {
    CutKind kind;
    /* 0, 512 or 4096: what survives of a write may be some of its parts. */
    uint32_t tear_bytes;
    unsigned keep_percent;
    bool sizes; /* a lost write beyond the end may have made the file longer */
    bool stale; /* such room holds what the device held before, not zeroes */
} Cut;

void cut_choose(Cut *cut, VjRng *rng);
const char *cut_text(const Cut *cut);
/* Decides, and ends the disk's life as one that can be fed. */
void disk_cut(Disk *d, const Cut *cut, VjRng *rng);
/* Writes what survived into the empty directory @path. */
bool disk_write(const Disk *d, const char *path, GError **error);

#endif
