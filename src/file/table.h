/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * table.h - the table of open files: what the volume that has one may do with all of them
 *
 * A VjFileTable has every VjFile of one volume and what they share: metadata, objects,
 * memory for changes, space that was promised, workers.  It starts the threads that read
 * ahead and that make fragments into objects.  When files are written back is decided by
 * the volume (its flusher), which learns of changes through VjFileEvents.
 */
#ifndef VJ_FILE_TABLE_H
#define VJ_FILE_TABLE_H

#include "chunk/chunk.h"
#include "file/file.h"

/* ---- open and close ---------------------------------------------------------------- */

typedef enum VjFlushWhen {
    VJ_FLUSH_AGED, /* after the age at which changes are written back */
    VJ_FLUSH_ANEW, /* the same from now on, also where an earlier change that is committed
                    * by now asked for less */
    VJ_FLUSH_GATHERED, /* with others that hold little and are closed about then */
    VJ_FLUSH_SOON,     /* with others that are closed within the same few milliseconds */
    VJ_FLUSH_NOW,
} VjFlushWhen;

/* What a table of files reports to its volume, and asks of it.  Threads: any.  Locks:
 * none is held. */
typedef struct VjFileEvents {
    /* @f has changes.  Keeps it in memory: takes a reference until they are
     * committed. */
    void (*changed)(void *opaque, VjFile *f, VjFlushWhen when);
    /* What was changed by @since_us is committed; what is not is no older than that. */
    void (*committed)(void *opaque, VjFile *f, int64_t since_us);
    /* In a shared session: nothing of @f waits for write-back.  Gives back the reference
     * of changed, unless there are changes again.  May wait for the round of a file. */
    void (*clean)(void *opaque, VjFile *f);
    /* Memory for changes is short: write back without waiting for age.  @any: also what
     * holds little of it, beside a file that holds much. */
    void (*pressure)(void *opaque, bool any);
    /* Memory was freed: what the allocator keeps of it is given back within seconds. */
    void (*memory_freed)(void *opaque);
    /* A commit put the orphan (@ino, @node) into the metadata.  May wait for the round of
     * a file. */
    void (*orphaned)(void *opaque, uint64_t ino, uint32_t node);
    /* Drops every orphan that can be dropped; waits for it. */
    void (*drop_orphans)(void *opaque);
} VjFileEvents;

typedef struct VjFileTableConfig {
    /* All borrowed, and valid until close. */
    VjMeta *meta;
    VjObjects *objects;
    const VjFileEvents *events;
    void *opaque; /* of events */
    const VjDigestOps *digest;
    const VjChunkerOps *chunker;
    /* of files that have none of their own */
    VjChunkSizes sizes;
    uint64_t chunk_seed;
    VjTransform transform;
    const VjTransform *new_transform; /* of new files whose directory says nothing; NULL:
                                       * transform */
    uint64_t dirty_bytes;             /* changes in memory */
    uint64_t cache_bytes;             /* of the object cache: read-ahead takes a part */
    uint64_t fragment_bytes; /* metadata that fragments may take; 0: none are made */
    unsigned workers;
    bool read_only;
    bool is_check; /* no thread changes anything */
} VjFileTableConfig;

/* Setup only.  Counts the fragments of earlier mounts: before an orphan is dropped. */
bool vj_file_table_open(const VjFileTableConfig *config, VjFileTable **out,
                        GError **error);
/* Threads that change something begin: after everything that events calls is there. */
void vj_file_table_start(VjFileTable *table);
/* The table's threads end.  No thread reads any more.  NULL is fine, here and below. */
void vj_file_table_stop(VjFileTable *table);
/* What is left of the block of inode numbers (ino-block.c): at a close in order, before
 * the last flush.  What fails is logged: numbers are lost then. */
void vj_inos_give_back(VjFileTable *table);
/* After stop; no file is open, and nothing waits to be dropped. */
void vj_file_table_close(VjFileTable *table);

void vj_file_table_set_read_only(VjFileTable *table, bool read_only); /* remount */
/* Closing, and space was short: what is put may use what is kept free of data. */
void vj_file_table_set_last_chance(VjFileTable *table);

/* ---- all files --------------------------------------------------------------------- */

/* Every file in memory, referenced; owned (GPtrArray of VjFile). */
GPtrArray *vj_file_table_list(VjFileTable *table);
/* Everything accepted so far is committed on 0, else the first error. */
int vj_file_table_write_back(VjFileTable *table) G_GNUC_WARN_UNUSED_RESULT;
/* All fragments of the volume become objects, now: the first error.  Blocks. */
int vj_file_table_remap(VjFileTable *table) G_GNUC_WARN_UNUSED_RESULT;

/* Promised to what is not written back, bytes of the store. */
uint64_t vj_file_table_reserved(VjFileTable *table);
/* Kept free of data for metadata and rounding, bytes. */
#define VJ_SPACE_MARGIN (8 * VJ_MIB)
/* Memory that changes take, bytes. */
uint64_t vj_file_table_dirty(VjFileTable *table);
/* Files that pressure was for are written back, or had no changes: who still waits for
 * memory calls it once more. */
void vj_file_table_ask_again(VjFileTable *table);
/* Blocks that are kept for the next write: are there any; and, once a second, give them
 * back if none was used for some seconds. */
bool vj_file_table_has_blocks(VjFileTable *table);
void vj_file_table_look(VjFileTable *table);

/* Since open. */
typedef struct VjFileCounters {
    guint64 commits, regions, forced_cuts, write_back_errors;
    guint64 fragments_made, fragments_dropped, small_commits, remap_steps;
    guint64 bytes_in, shifts, shifted_bytes;
} VjFileCounters;

void vj_file_table_counters(VjFileTable *table, VjFileCounters *out);

/* ---- one file ---------------------------------------------------------------------- */

/* The flusher's place in each file; guarded by the flusher's lock, zeroes at first. */
typedef struct VjFlushLink {
    GQueue *queue; /* NULL: in none */
    int64_t due_us;
    GList *link; /* its place in the queue */
} VjFlushLink;

VjFlushLink *vj_file_flush_link(VjFile *f);

/* Everything up to now is committed on 0; the flusher's and fsync's common step. */
int vj_file_write_back(VjFile *f) G_GNUC_WARN_UNUSED_RESULT;
/*
 * One round of write-back for each of @files that has changes and is not being written
 * back, with one flush of the store for all of them.  *first_error; which one failed is
 * in its last_error.  At most VJ_WRITE_BACK_BATCH files.
 */
#define VJ_WRITE_BACK_BATCH 128u
int vj_file_write_back_many(VjFileTable *table, VjFile *const *files,
                            size_t count) G_GNUC_WARN_UNUSED_RESULT;
/* The same, for a file that grows without its end (hold.c), which stays dirty then. */
int vj_file_write_back_grown(VjFileTable *table, VjFile *const *files,
                             size_t count) G_GNUC_WARN_UNUSED_RESULT;
/* It has so many changes that it is not to wait for its age, and no thread writes it
 * back. */
bool vj_file_is_much(VjFile *f);
/* A good deal of memory comes back when it is written back.  Takes no lock. */
bool vj_file_holds_much(VjFile *f);

/* Throws away what is changed and everything changed from now on: an orphan is dropped.
 * *ino* need not be open. */
void vj_file_discard(VjFile *f);
void vj_file_discard_ino(VjFileTable *table, uint64_t ino);
/* So many fragments of @ino were dropped. */
void vj_file_fragments_dropped(VjFileTable *table, uint64_t ino, uint32_t count);

/* ---- for tests --------------------------------------------------------------------- */

/* Metadata that fragments of a volume may take; one file may have half of it. */
#define VJ_FRAGMENTS_DEFAULT (256 * VJ_MIB)
/* A fragment takes a page of it at most. */
#define VJ_FRAGMENT_PAGE 4096u
/* The metadata may take so much of the space that is left for them: one part in so
 * many. */
#define VJ_FRAGMENTS_SPACE_PART 16u
/* A file whose fragments did not change for so long has them made into objects. */
#define VJ_REMAP_IDLE_US ((int64_t)5 * 1000 * 1000)
/* What could not be made into objects is tried again after so long. */
#define VJ_REMAP_RETRY_US ((int64_t)30 * 1000 * 1000)
/* A step is over behind so many bytes of objects. */
#define VJ_REMAP_STEP_BYTES (2 * VJ_MIB)

typedef struct VjRemapLimits {
    uint32_t most, file_most;  /* fragments */
    int64_t idle_us, retry_us; /* VJ_REMAP_IDLE_US, VJ_REMAP_RETRY_US */
    uint64_t step_bytes;
} VjRemapLimits;

/* Other limits than the ones above; files that wait do so for the new time, from now. */
void vj_file_table_limit_fragments(VjFileTable *table, const VjRemapLimits *limits);
/* As counted: of @ino, and of all. */
uint32_t vj_file_table_fragments(VjFileTable *table, uint64_t ino, uint32_t *all);
/* Numbers that a session takes at once from the counter of inodes. */
#define VJ_INO_BLOCK 1024u
/* As many instead, from the next block on. */
void vj_file_table_set_ino_block(VjFileTable *table, uint64_t numbers);
/* Other bytes than VJ_RECODE_STEP_BYTES. */
void vj_file_table_set_recode_step(VjFileTable *table, uint64_t bytes);
/* Read-ahead: while @hold, what is pushed waits; wait until nothing is under way. */
void vj_file_table_hold_read_ahead(VjFileTable *table, bool hold);
void vj_file_table_drain_read_ahead(VjFileTable *table);

#endif
