/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * record.h - the log of a recorded mount: every change below a directory, in one order
 *
 * A log is a row of records, each a head, its name and name2 (no NUL) and its bytes,
 * without padding.  Several processes append to it; each record is one write(2) to a
 * descriptor that is open with O_APPEND, so records never mix and their order is one for
 * all.  Host byte order: a log is read on the machine that wrote it.
 *
 * Plain C without GLib: the recorder runs in other programs.
 */
#ifndef VJ_CRASH_RECORD_H
#define VJ_CRASH_RECORD_H

#include <stdint.h>

#define VJ_RECORD_MAGIC 0x564a4352u

enum {
    VJ_RECORD_START = 'G', /* a process begins; ino: of the directory that is recorded */
    /* ino, a new empty file, as name in dir (0: without a name). */
    VJ_RECORD_CREATE = 'C',
    VJ_RECORD_MKDIR = 'M',    /* ino, a new directory, as name in dir */
    VJ_RECORD_SYMLINK = 'Y',  /* ino, a new link that leads to name2, as name in dir */
    VJ_RECORD_LINK = 'L',     /* ino also as name in dir */
    VJ_RECORD_UNLINK = 'U',   /* name of dir goes; also of an empty directory */
    VJ_RECORD_RENAME = 'R',   /* name of dir becomes name2 of dir2 */
    VJ_RECORD_EXCHANGE = 'X', /* both names change places */
    VJ_RECORD_WRITE = 'W',    /* ino, offset, bytes */
    VJ_RECORD_TRUNCATE = 'T', /* ino, offset: the new size */
    VJ_RECORD_ALLOCATE = 'F', /* ino, offset, length, mode: as fallocate(2) */
    VJ_RECORD_SYNC = 'S',     /* ino: a sync of it begins, under number */
    VJ_RECORD_SYNC_ALL = 'A', /* one of the whole file system */
    VJ_RECORD_SYNCED = 'E',   /* the sync of number returned 0 */
    /* It failed: what it was to cover no later sync covers, unless it is written again */
    VJ_RECORD_UNSYNCED = 'N',
    VJ_RECORD_DURABLE = 'D', /* the write of number, through O_DSYNC, returned */
    VJ_RECORD_MARK = 'K', /* bytes: a line of the program under which all this happens */
};

typedef struct VjRecordHead {
    uint32_t magic;
    uint8_t kind;
    uint8_t dsync; /* WRITE: a DURABLE of the same number follows */
    uint16_t name_bytes, name2_bytes;
    uint16_t mode;
    uint32_t pid;
    uint64_t ino, dir, dir2;
    uint64_t offset, length;
    uint64_t number;
    uint64_t data_bytes; /* behind the names */
} VjRecordHead;

#endif
