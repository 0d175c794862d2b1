/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * coherence-private.h - what the kernel may hold of a file, and what waits beside edits
 */
#ifndef VJ_FRONT_COHERENCE_PRIVATE_H
#define VJ_FRONT_COHERENCE_PRIVATE_H

#include "front/front.h"

#define VJ_PAGE_BYTES 4096u

/* ---- ranges of pages (ranges.c) ---------------------------------------------------- */

typedef struct VjPageRange {
    uint64_t first, last; /* page numbers, inclusive */
} VjPageRange;

/* The pages of @len bytes at @offset; of one byte where @len is 0. */
VjPageRange vj_pages_of(uint64_t offset, uint64_t len);
/* The same; @len 0: to the end of any file. */
VjPageRange vj_pages_from(uint64_t offset, uint64_t len);

/* A set of pages: a GArray of VjPageRange, which the caller locks, or NULL while it is
 * empty. */
/* Adds @r, and makes the set if need be; false: there are @most ranges already, and the
 * last one grew to hold it. */
bool vj_ranges_add(GArray **ranges, guint most, VjPageRange r);
/* Takes @r out.  Where one range would have to become two and there are @most, more
 * stays. */
void vj_ranges_remove(GArray *ranges, guint most, VjPageRange r);
bool vj_ranges_meet(const GArray *ranges, VjPageRange r);

/* ---- what the kernel may hold of a file (coherence.c) ------------------------------ */

typedef struct VjCoherence VjCoherence;
typedef struct VjCoherenceState VjCoherenceState;

VjCoherence *vj_coherence_new(void);
void vj_coherence_free(VjCoherence *c);

typedef enum VjPassKind {
    VJ_PASS_READ,  /* of pages: not into the reader's memory */
    VJ_PASS_PAGES, /* a WRITE of pages from the cache: FUSE_WRITE_CACHE */
} VjPassKind;

/* Bytes of a WRITE and where they belong now. */
typedef struct VjPassPart {
    uint64_t skip;   /* bytes from the start of the request */
    uint64_t offset; /* in the file as it is now */
    uint64_t len;    /* bytes */
} VjPassPart;

typedef struct VjPass {
    VjCoherenceState *state;
    GArray *parts;   /* of VjPassPart; NULL: the request as it stands */
    uint64_t offset; /* of the request */
    /* Set at the end: what may have been read without bytes that have moved there. */
    uint64_t stale_offset, stale_len; /* bytes; 0: nothing */
} VjPass;

/*
 * vj_coherence_pages_begin - a READ of pages, or a WRITE of pages, begins
 *
 * Waits while an edit is applied and answered, and where @who reads the end of a file
 * whose size the kernel is about to take.  Pages in old coordinates get @parts, without
 * the bytes that the edit replaced.  -ECANCELED (base/cancel.h): it has not begun.
 * Threads: any.  Locks: none.
 */
int vj_coherence_pages_begin(VjCoherence *c, uint64_t ino, VjPassKind kind,
                             uint64_t offset, uint64_t len, pid_t who,
                             VjPass *pass) G_GNUC_WARN_UNUSED_RESULT;
/* A READ is answered; a WRITE is done with the file. */
void vj_coherence_pages_end(VjCoherence *c, VjPass *pass);
/*
 * A request has come that the kernel sends under the lock of the inode, so what it did
 * for the one before is over.  @len bytes at @offset, if any, have filled pages: not
 * those of a direct WRITE.
 */
void vj_coherence_locked(VjCoherence *c, uint64_t ino, uint64_t offset, uint64_t len);

/* Whether the kernel may hold a page of the range; @len 0: from @offset to the end. */
bool vj_coherence_may_hold(VjCoherence *c, uint64_t ino, uint64_t offset, uint64_t len);
/*
 * vj_coherence_direct_written - a direct WRITE of the range is in the file, but not
 * answered
 *
 * The kernel dropped the pages of the range before it sent the WRITE; behind it, it does
 * so only where the caller waits for the write, and does not say whether that is so.
 * Returns   true: old pages may have come meanwhile, and @offset and @len are what to
 *           invalidate before the answer: the range, or 0 and 0 for all
 * Threads   any      Locks   none
 */
bool vj_coherence_direct_written(VjCoherence *c, uint64_t ino, uint64_t *offset,
                                 uint64_t *len);
/* Around an invalidation of the range; @ok: it is gone. */
typedef struct VjDrop {
    VjCoherenceState *state;
    uint64_t offset, len;
    uint64_t number; /* of the inode, rising */
} VjDrop;
void vj_coherence_drop_begin(VjCoherence *c, uint64_t ino, uint64_t offset, uint64_t len,
                             VjDrop *drop);
void vj_coherence_drop_end(VjCoherence *c, VjDrop *drop, bool ok);

/* An edit on its way, from edit_begin to edit_end. */
typedef struct VjEditPass {
    VjCoherenceState *state;
    bool may_hold;     /* as vj_coherence_may_hold of the range, when no request is
                        * inside */
    bool has_room;     /* one more window may be open: they are bounded in number */
    uint64_t held_end; /* bytes: from there on the kernel holds no page; UINT64_MAX: that
                        * is not known */
} VjEditPass;

/*
 * vj_coherence_edit_begin - an edit of the range is about to be applied
 *
 * The kernel holds the lock of the inode.  Waits until the READs and WRITEs of pages that
 * are being served have left; those that come from now on wait for edit_end.  @len 0: to
 * the end.
 * Returns   -ECANCELED (base/cancel.h): it is not
 * Threads   any      Locks   none
 */
int vj_coherence_edit_begin(VjCoherence *c, uint64_t ino, uint64_t offset, uint64_t len,
                            VjEditPass *pass) G_GNUC_WARN_UNUSED_RESULT;

/* Until when pages may come back that lie where their bytes were before the edit. */
typedef enum VjWindow {
    VJ_WINDOW_NONE,
    VJ_WINDOW_EDIT,   /* vj_coherence_locked: they are invalidated */
    VJ_WINDOW_KERNEL, /* the kernel drops them, and then lets go of the inode's lock */
} VjWindow;
/*
 * vj_coherence_edit_end - the edit is over: what waits comes in
 *
 * @edited     what was applied; looked at where there is a @window or an answer
 * @answered   the caller that was answered with the new size, and whose thread shows when
 *             the kernel has taken it: until then READs behind a smaller end, and of the
 *             page of the old end, wait.  NULL: no caller was
 * Threads     any      Locks   none
 */
void vj_coherence_edit_end(VjCoherence *c, VjEditPass *pass, const VjEdited *edited,
                           VjWindow window, const VjCaller *answered);

/* ---- threads of other processes (thread-time.c) ------------------------------------ */

/* Whether @tid has a processor or waits for one, and for how long it has had one since it
 * began; false also where that is not known: it is gone, or /proc does not show it. */
bool vj_thread_is_runnable(pid_t tid, uint64_t *run_ns);

#endif
