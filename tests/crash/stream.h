/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * stream.h - system calls in one directory of a mount, each with its marks (history.h)
 *
 * A stream is a directory that one thread changes.  Every call below first notes what it
 * is going to do, then does it; what fails ends the program.
 *
 * Threads: one at a time for each stream.
 */
#ifndef VJ_CRASH_STREAM_H
#define VJ_CRASH_STREAM_H

#include "../model/shadow.h"

/* Of one write, so that the kernel makes one request of it. */
#define STREAM_WRITE_MOST ((size_t)128 << 10)

typedef struct StreamWriter {
    const char *name;
    char *dir; /* with the mount point */
    int log_fd, dir_fd;
    VjRng rng;
    const DataPool *pool;
    uint64_t files, steps;
    GPtrArray *open; /* WFile */
    /* The device fails now and then: what gives EIO is done again.  A sync that returns 0
     * then promises the same as one that did not fail before. */
    bool repeats;
} StreamWriter;

/* A file of the workload: its content as it ought to be, and where it is open. */
typedef struct WFile {
    uint64_t number, version, durable;
    int fd;
    char *path; /* one of its names; NULL: it has none */
    Shadow shadow;
} WFile;

void stream_open(StreamWriter *w, const char *mount_point, const char *name, int log_fd,
                 const DataPool *pool, uint64_t seed);
void stream_close(StreamWriter *w);
void G_GNUC_PRINTF(2, 3) G_GNUC_NORETURN
    stream_failed(const StreamWriter *w, const char *format, ...);

/* A mark as it is, for a hook. */
void stream_note(const StreamWriter *w, const char *text);

/* ---- contents ---------------------------------------------------------------------- */

/* A new file under a new name, open. */
WFile *stream_create(StreamWriter *w, const char *path);
/* One without a name; NULL where the build has none. */
WFile *stream_tmpfile(StreamWriter *w);
/* Closes; the file is of no more interest. */
void stream_drop(StreamWriter *w, WFile *f);
void stream_replace(StreamWriter *w, WFile *f, size_t offset, size_t old_len, size_t len);
void stream_write(StreamWriter *w, WFile *f, size_t offset, size_t len);
/* As write, durable when it returns. */
void stream_write_sync(StreamWriter *w, WFile *f, size_t offset, size_t len);
void stream_truncate(StreamWriter *w, WFile *f, size_t size);
void stream_punch(StreamWriter *w, WFile *f, size_t offset, size_t len);
void stream_copy(StreamWriter *w, WFile *from, size_t from_offset, WFile *to,
                 size_t offset, size_t len);
/* One of the above at random, on a file of at most @most bytes. */
void stream_edit(StreamWriter *w, WFile *f, WFile *other, size_t most);
void stream_fsync(StreamWriter *w, WFile *f, bool data_only);
/* Everything of this stream is durable: varjfsctl sync. */
void stream_sync_all(StreamWriter *w);
/*
 * What a checkpoint has at least that is made from now on: to be given to stream_kept
 * when it has been made, by any thread.
 */
GPtrArray *stream_to_keep(const StreamWriter *w);
void stream_kept(const StreamWriter *w, GPtrArray *to_keep);
/* Around an unmount in good order, which makes everything durable.  Every file has a
 * name. */
void stream_close_files(StreamWriter *w);
void stream_reopen(StreamWriter *w);

/* ---- names ------------------------------------------------------------------------- */

void stream_mkdir(StreamWriter *w, const char *path);
void stream_rmdir(StreamWriter *w, const char *path);
void stream_link(StreamWriter *w, WFile *f, const char *path);
void stream_unlink(StreamWriter *w, const char *path);
/* @replaces: there is a file at @to. */
void stream_rename(StreamWriter *w, WFile *f, const char *from, const char *to,
                   bool replaces);
void stream_exchange(StreamWriter *w, WFile *a, const char *a_path, WFile *b,
                     const char *b_path);
void stream_sync_names(StreamWriter *w);

#endif
