/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * front-private.h - what the files of this room share
 */
#ifndef VJ_FRONT_FRONT_PRIVATE_H
#define VJ_FRONT_FRONT_PRIVATE_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "front/coherence-private.h"
#include "front/count-private.h"
#include "front/front.h"
#include "front/guard-private.h"
#include "front/wait-private.h"

#include "varjfs/ioctl.h"

/* How long the kernel may believe names and attributes that change through this mount
 * alone, seconds. */
#define VJ_FRONT_TIMEOUT_S 86400.0
/* The same where other sessions change them: a change may not be reported in time. */
#define VJ_FRONT_SHARED_TIMEOUT_S 1.0
/* Since Linux 5.13 the kernel checks the caller that sets flags before it asks a FUSE
 * daemon; 5.14 was the first after it with a new number of the protocol, this one. */
#define VJ_FRONT_MINOR_FILEATTR 34u
/* Since Linux 6.16 the kernel does not keep the answer to SETATTR where attributes were
 * invalidated after it had asked; 6.18 was the first after it with a new number. */
#define VJ_FRONT_MINOR_SETATTR 45u
/* Largest READ and WRITE, bytes. */
#define VJ_FRONT_IO_MAX (1u << 20)
/* Request threads; started when all others are busy. */
#define VJ_FRONT_THREADS_MAX 256u
#define VJ_FRONT_THREADS_IDLE 16u
/* How often an edit begins anew because a page has come meanwhile; then it is applied
 * beside it, or tried again by its caller. */
#define VJ_FRONT_EDIT_TRIES 16u
/* Threads that make FSYNC; before them so many request threads do. */
#define VJ_FRONT_SYNC_THREADS_MAX 64
#define VJ_FRONT_SYNCS_HERE 16u
#define VJ_FRONT_BACKGROUND_MAX 64u
/* Threads that invalidate pages of the kernel: one that waits for a page of one inode
 * does not keep the others waiting. */
#define VJ_FRONT_EDIT_THREADS 4u

typedef struct VjFront VjFront;

/* ---- inodes that the kernel knows (lookup-count.c) --------------------------------- */

typedef struct VjLookupCounts VjLookupCounts;
VjLookupCounts *vj_lookup_counts_new(void);
void vj_lookup_counts_free(VjLookupCounts *k);
/* An answer names @ino to the kernel once more.  Any thread. */
void vj_lookup_counts_add(VjLookupCounts *k, uint64_t ino);
/* It forgot @count of them; true: the last one. */
bool vj_lookup_counts_sub(VjLookupCounts *k, uint64_t ino, uint64_t count);
bool vj_lookup_counts_has(VjLookupCounts *k, uint64_t ino);
/* Those of one of VJ_LOOKUP_SHARDS parts, as it is at one moment; uint64_t, owned. */
#define VJ_LOOKUP_SHARDS 16u
GArray *vj_lookup_counts_list(VjLookupCounts *k, unsigned shard);
/* Inodes, and the bytes that the tables take. */
void vj_lookup_counts_size(VjLookupCounts *k, uint64_t *inodes, uint64_t *bytes);

/* ---- directories that are being listed (dir-streams.c) ----------------------------- */

/* So many listings are remembered. */
#define VJ_DIR_STREAMS_MAX 512u

typedef struct VjDirStreams VjDirStreams;
VjDirStreams *vj_dir_streams_new(void);
void vj_dir_streams_free(VjDirStreams *s); /* NULL is fine */
/* Names of @dir behind @cookie are wanted: where that listing ends, as vj_fs_readdir
 * takes it; UINT64_MAX: it begins, or is not remembered.  Any thread. */
uint64_t vj_dir_streams_end(VjDirStreams *s, uint64_t dir, uint64_t cookie);
/* Names behind @cookie, up to that at @last (0: there is none any more), are given to a
 * listing that goes to @end.  Any thread. */
void vj_dir_streams_note(VjDirStreams *s, uint64_t dir, uint64_t cookie, uint64_t last,
                         uint64_t end);

/* ---- edits that are announced (stage.c) -------------------------------------------- */

/* Offsets and sizes from here on name staged edits: no file is as long. */
#define VJ_STAGED_BASE (UINT64_C(1) << 62)
G_STATIC_ASSERT(VJ_STAGED_BASE > VJ_FILE_SIZE_MAX);

typedef struct VjStaged {
    VjHandle *handle;
    uint64_t ino;
    uid_t uid; /* whose share it is taken from */
    pid_t tid; /* of the thread that carries it out; 0: of another pid namespace */
    VjEdit edit;
    VjFileShift shift; /* instead of the edit when its len is not 0 */
    VjBuf *data;       /* owned; what was sent before, once it is taken from stage_id */
    uint64_t stage_id; /* data that was sent before; 0: none */
    bool any_size, limited;     /* VARJFS_EDIT_* */
    uint64_t at, old_len, size; /* what becomes of it as the file is */
    struct varjfs_carry carry;
    uint64_t token; /* set by vj_stage_put; never used twice */
    bool is_single; /* never announced: only where the kernel holds no page */
    bool is_done;   /* edit.offset is where it happened */
    size_t copied;  /* bytes of data that came with it */
    uint8_t bytes[];
} VjStaged;

typedef struct VjStagedEdits VjStagedEdits;
VjStagedEdits *vj_staged_edits_new(void);
void vj_staged_edits_free(VjStagedEdits *e);
/* With a copy of @src, and all else zero. */
VjStaged *vj_staged_new(const void *src, size_t len);
/* The delete that ftruncate(2) to @size stands for (VARJFS_DELETE_SIZE); NULL: none. */
VjStaged *vj_staged_of_size(VjHandle *h, uint64_t ino, uint64_t size);
void vj_staged_free(VjStaged *s); /* NULL is fine */
/* Takes @s, in the place of what its thread has staged on the handle.  @out: the call
 * that names it.  -ENOMEM: too many are, of threads that are alive.  -EAGAIN: threads
 * without a number have taken all names for that size. */
int vj_stage_put(VjStagedEdits *e, VjStaged *s,
                 struct varjfs_carry *out) G_GNUC_WARN_UNUSED_RESULT;
/* Take out what a call names; owned.  NULL: none, and the call is what it says. */
VjStaged *vj_stage_take_fallocate(VjStagedEdits *e, VjHandle *h, pid_t tid, int mode,
                                  uint64_t offset, uint64_t len);
VjStaged *vj_stage_take_ftruncate(VjStagedEdits *e, VjHandle *h, pid_t tid,
                                  uint64_t size);
/* Whatever the thread has, also what is done. */
VjStaged *vj_stage_take_any(VjStagedEdits *e, VjHandle *h, pid_t tid);
/* Takes @s, whose thread makes another call for it. */
void vj_stage_put_back(VjStagedEdits *e, VjStaged *s);
/* Takes @s, which happened @at: its thread will ask. */
void vj_stage_keep_result(VjStagedEdits *e, VjStaged *s, uint64_t at);
/* The handle ends. */
void vj_stage_forget_handle(VjStagedEdits *e, VjHandle *h);

/* ---- edits and invalidations (edit.c) ---------------------------------------------- */

/* A request that stages an edit or carries it out. */
typedef struct VjCarry {
    fuse_req_t req;
    uint64_t ino;
    VjCaller who;
    VjStaged *staged; /* owned */
    bool is_truncate; /* SETATTR, else FALLOCATE or the ioctl */
} VjCarry;

typedef struct VjEditor VjEditor;
VjEditor *vj_editor_new(VjFront *f);
/* Answers all that was submitted, then ends the threads; later edits are refused.  Needs
 * threads that serve requests.  Again is fine. */
void vj_editor_stop(VjEditor *e);
void vj_editor_free(VjEditor *e);
/* Answer the request, perhaps later; c->staged is theirs.  Wait for requests that are
 * being served and for nothing else. */
void vj_edit_stage(VjFront *f, VjCarry *c);
void vj_edit_carry_out(VjFront *f, VjCarry *c);
/*
 * vj_edit_written_past - @size bytes at @offset have come past the page cache
 *
 * They are in the file.
 * Returns   true: @req is answered when the kernel holds no older page of them; false:
 *           the caller answers, now
 * Threads   any; waits for nothing      Locks   none
 */
bool vj_edit_written_past(VjFront *f, fuse_req_t req, uint64_t ino, uint64_t offset,
                          size_t size);
/*
 * The kernel asks for attributes again, also where an answer of before is on its way.
 * Behind all that changes content and leaves the size: the kernel does not count that as
 * a change.  Waits for nothing.
 */
void vj_front_attributes_stale(VjFront *f, uint64_t ino);
/* Has a thread do it, before the editor stops.  False: refused, and @job is the
 * caller's. */
bool vj_editor_flags(VjEditor *e, VjFlagsJob *job);
/* Invalidates the kernel's pages of the range; @len 0: to the end.  False: they may still
 * be there; the log says why, unless the file system is unmounted.  On a thread that
 * serves no requests, with no lock. */
bool vj_edit_drop_pages(VjFront *f, uint64_t ino, uint64_t offset, uint64_t len);
/* The kernel's pages of the range are stale.  Does not block. */
void vj_editor_stale(VjEditor *e, uint64_t ino, uint64_t offset, uint64_t len);

/* ---- what other sessions change (invalidate.c) ------------------------------------- */

/* Changes that wait; of more it is all that the kernel knows. */
#define VJ_INVALIDATE_MAX 16384u

/* Called by the thread of one invalidator; each may block. */
typedef struct VjInvalidateCalls {
    void (*inode)(void *opaque, uint64_t ino, bool content);
    void (*name)(void *opaque, uint64_t dir, const char *name);
    void (*all)(void *opaque);
} VjInvalidateCalls;

typedef struct VjInvalidator VjInvalidator;
/* Starts its thread.  @calls and @opaque: borrowed. */
VjInvalidator *vj_invalidator_new(const VjInvalidateCalls *calls, void *opaque);
/* The thread ends; what waits is dropped.  Needs threads that serve requests.  Again and
 * NULL are fine. */
void vj_invalidator_stop(VjInvalidator *i);
void vj_invalidator_free(VjInvalidator *i);
/* Wait for nothing.  Any thread. */
void vj_invalidate_inode(VjInvalidator *i, uint64_t ino, bool content);
void vj_invalidate_name(VjInvalidator *i, uint64_t dir, const char *name);
void vj_invalidate_all(VjInvalidator *i);
/*
 * A call that changes @name in @dir, or attributes of @ino, returned @r.  Where that is a
 * failure that may have come after the change, the kernel asks for it again; it would
 * take the call for not done.  Before the reply.
 */
void vj_front_doubt_name(VjFront *f, int r, uint64_t dir, const char *name);
void vj_front_doubt_inode(VjFront *f, int r, uint64_t ino);

/* ---- request threads (serve.c) ----------------------------------------------------- */

/* Takes a thread out of a wait in the kernel; its handler does nothing. */
#define VJ_FRONT_WAKE_SIGNAL SIGUSR2

/* Serves with up to @most threads until the connection or the session ends, or f->ending.
 * -errno. */
int vj_serve(VjFront *f, unsigned most) G_GNUC_WARN_UNUSED_RESULT;

/* From now on the calling request thread waits for no other request: it answers and
 * receives again, so it counts as one that waits.  Threads: any. */
void vj_serve_answers(void);

/* The buffer of a WRITE on its way into a file. */
typedef struct VjHandOff {
    void *block; /* for vj_fs_write_block(), which takes it or not */
    void *next;  /* what the thread goes on with then */
} VjHandOff;

/* In the request's thread: true when @src, as libfuse gives it, stands in a buffer that
 * may be given away.  vj_serve_handed_off() follows in any case, and @src is not looked
 * at any more. */
bool vj_serve_hand_off(const char *src, size_t len, VjHandOff *hand_off);
void vj_serve_handed_off(VjHandOff *hand_off);

/* ---- the rest ---------------------------------------------------------------------- */

/* Where tests may hold a request up to force races (VARJFS_TEST_DELAY; delay.c). */
typedef enum VjHoldPoint {
    VJ_HOLD_READ,
    VJ_HOLD_READ_REPLY,
    VJ_HOLD_WRITE,
    VJ_HOLD_PAGES,
    VJ_HOLD_WRITE_REPLY,
    VJ_HOLD_STALE,
    VJ_HOLD_APPLY,
    VJ_HOLD_EDIT,
    VJ_HOLD_FSYNC,
    VJ_HOLD_ATTR_REPLY, /* the answer to GETATTR, SETATTR or LINK is known */
    VJ_HOLD_FLAGS,
    VJ_HOLD_FLUSHED,
    VJ_HOLD_DROPPED,
    VJ_HOLD_POINTS,
} VjHoldPoint;

typedef struct VjDelays {
    unsigned ms[VJ_HOLD_POINTS];
    unsigned threads;                         /* most request threads */
    unsigned tries;                           /* of an edit */
    unsigned idle, background, io_bytes, off; /* capabilities */
    char *dir;                                /* of the fifos; owned; NULL: none */
} VjDelays;

bool vj_delays_parse(const char *text, VjDelays *out, GError **error);
void vj_delays_clear(VjDelays *d);
/* A request comes past @point. */
void vj_front_hold(VjFront *f, VjHoldPoint point);

/* INTERRUPTs that are remembered until their request comes, and for how long,
 * microseconds: that of one that has just ended never comes. */
#define VJ_FRONT_EARLY_MAX 64u
#define VJ_FRONT_EARLY_US ((int64_t)10 * 1000 * 1000)
/* A request that waits so long for another machine at once is given up, microseconds. */
#define VJ_FRONT_FAR_US ((int64_t)60 * 1000 * 1000)

typedef struct VjEarly {
    uint64_t unique; /* of the request; 0: none */
    int64_t at_us;
} VjEarly;

struct VjFront {
    VjFs *fs;
    struct fuse_session *session;
    const char *mountpoint;
    VjCount *count;
    VjLookupCounts *lookups;
    VjDirStreams *dir_streams;
    VjCoherence *coherence;
    VjStagedEdits *staged;
    VjEditor *editor;
    VjInvalidator *invalidator; /* NULL: no other session changes anything */
    GThreadPool *syncers;
    /* One thread, from the start: for when no other can be started. */
    GThreadPool *sync_reserve;
    GThreadPool *watchers; /* one at most */
    /* One thread, from the start, for the handles that the watcher lets go. */
    GThreadPool *releaser;
    /* Never changes: what the kernel believes of @ino is stale.  Does not block. */
    void (*tell_changed)(VjFront *f, uint64_t ino);
    VjDelays delays;
    unsigned busy_poll_us; /* never changes */
    /* By INIT: */
    bool maps_direct_files;    /* a file that is opened past the page cache has mmap */
    bool compares_setattr;     /* the kernel keeps no answer to it that is overtaken */
    bool knows_who_sets_flags; /* the kernel looks at the caller of chattr(1) itself */
    bool clears_privileges;    /* what a change takes away is for us to find out */
    bool may_open_dirs;        /* the kernel, without asking */
    int64_t wait_us;           /* never changes: how long one wait may take */
    bool is_shared;            /* never changes: vj_fs_is_shared */

    gint short_of_threads; /* atomic; never reset */
    gint syncs_here;       /* atomic: waits for durability in request threads */
    gint early_count;      /* atomic: of `early`; changes under lock */
    gint is_looking;       /* atomic: at the requests, once a second */

    VjMutex lock; /* VJ_RANK_FRONT */
    VjCond changed;
    /* guarded by lock: */
    bool initialised;       /* INIT was answered */
    bool ending;            /* the loop is to end */
    bool ended;             /* the loop is over */
    GHashTable *handles;    /* VjHandle that are open */
    GQueue sync_jobs;       /* what the sync threads are to do; begins with a VjWait */
    GHashTable *waiting;    /* all VjWait */
    GQueue let_go;          /* VjHandle for the releaser; each one of `waits` */
    GPtrArray *interrupted; /* VjWait whose caller got a signal; with a reference */
    GPtrArray *served;      /* VjServed of the request threads and of edits */
    VjEarly early[VJ_FRONT_EARLY_MAX]; /* INTERRUPTs that came before their requests */
    unsigned early_next;
    unsigned threads_left; /* request threads with a request that was abandoned */
    GHashTable *awaited; /* VjHandle to how many VjWait and abandoned requests need it */
    GHashTable *left;    /* VjHandle of these that the kernel does not use any more */
    unsigned waits;      /* VjWait that are not freed yet */
};

/* Whether request threads may wait for durability, up to @busy of them: there are, or may
 * be, four times as many.  False once a thread could not be started. */
bool vj_front_has_threads(VjFront *f, unsigned busy);
static inline VjHandle *vj_front_handle(const struct fuse_file_info *fi)
{
    VjHandle *h = (VjHandle *)(uintptr_t)fi->fh;

    vj_served_uses(h);
    return h;
}
/* Remembers handles, so that those left at the end are released. */
void vj_front_handle_add(VjFront *f, VjHandle *h);

/* ops.c; ops-io.c and ops-ioctl.c hold the handlers of open files, ops-dir.c those that
 * list. */
extern const struct fuse_lowlevel_ops vj_front_ops;
void vj_front_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void vj_front_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                     struct fuse_file_info *fi);
#ifdef HAVE_STRUCT_FUSE_LOWLEVEL_OPS_TMPFILE
void vj_front_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode,
                      struct fuse_file_info *fi);
#endif
void vj_front_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                   struct fuse_file_info *fi);
void vj_front_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
                    off_t off, struct fuse_file_info *fi);
void vj_front_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void vj_front_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void vj_front_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
                    struct fuse_file_info *fi);
void vj_front_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync,
                       struct fuse_file_info *fi);
void vj_front_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset,
                        off_t length, struct fuse_file_info *fi);
void vj_front_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
                              struct fuse_file_info *fi_in, fuse_ino_t ino_out,
                              off_t off_out, struct fuse_file_info *fi_out, size_t len,
                              int flags);
void vj_front_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
                    struct fuse_file_info *fi);
void vj_front_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
                    struct fuse_file_info *fi, unsigned flags, const void *in_buf,
                    size_t in_bufsz, size_t out_bufsz);
void vj_front_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void vj_front_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                      struct fuse_file_info *fi);
void vj_front_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                          struct fuse_file_info *fi);
/* A thread of the sync pool: answers the first of f->sync_jobs when it is durable. */
void vj_front_sync_job(gpointer data, gpointer user_data);

/* ---- what chattr(1) sends (ops-flags.c) -------------------------------------------- */

/* True: @cmd is about flags, and was answered or will be. */
bool vj_front_flags(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, const void *in,
                    size_t in_len, size_t out_len);
/* ---- what handlers share (request.c) ----------------------------------------------- */

/* The one table from the errors of the rooms below to what the kernel sees; positive. */
int vj_front_errno(int negative_errno);
void vj_front_caller(fuse_req_t req, VjCaller *out);
/* How long the kernel may believe names, and attributes, seconds. */
double vj_front_timeout(const VjFront *f);
double vj_front_attr_timeout(const VjFront *f, const VjAttr *attr);
/* What the kernel wants to know of an inode; its lookup count stays. */
void vj_front_entry_fill(const VjFront *f, const VjAttr *attr,
                         struct fuse_entry_param *e);
/* The same, and counts one lookup more, to be taken back if the answer does not
 * arrive. */
void vj_front_entry(VjFront *f, const VjAttr *attr, struct fuse_entry_param *e);
/* The kernel forgot @count lookups of @ino, or never got the answers that named it. */
void vj_front_forget_one(VjFront *f, uint64_t ino, uint64_t count);

#endif
