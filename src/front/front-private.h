/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * front-private.h - what the files of this room share
 */
#ifndef VJ_FRONT_FRONT_PRIVATE_H
#define VJ_FRONT_FRONT_PRIVATE_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "front/front.h"

/* How long the kernel may believe names and attributes that nobody changes behind its
 * back, seconds. */
#define VJ_FRONT_TIMEOUT_S 86400.0
/* Largest READ and WRITE, bytes. */
#define VJ_FRONT_IO_MAX (1u << 20)
/* Request threads; started when all others are busy. */
#define VJ_FRONT_THREADS_MAX 256u
#define VJ_FRONT_THREADS_IDLE 16u
/* Threads that make FSYNC; before them so many request threads do. */
#define VJ_FRONT_SYNC_THREADS_MAX 64
#define VJ_FRONT_SYNCS_HERE 16u
#define VJ_FRONT_BACKGROUND_MAX 64u
/* Edits that wait; each holds at most 16 KiB or a stage.  More are -ENOMEM. */
#define VJ_FRONT_EDITS_MAX 4096
#define VJ_FRONT_EDIT_THREADS 4u
/* Edits that request threads make themselves, at a time. */
#define VJ_FRONT_EDITS_HERE 4u
/* Threads that invalidate what a WRITE left stale: one that waits for a page of one inode
 * does not keep the others waiting. */
#define VJ_FRONT_STALE_THREADS 4u
/* How long after an edit a plain WRITE may still come from before it, microseconds. */
#define VJ_FRONT_HOT_US ((int64_t)1000000)

/* How long others wait until the caller of an edit has told the kernel of a smaller size. */
#define VJ_FRONT_TELL_US ((int64_t)10000)
/* How long the kernel may need to take a size that it has been answered, and how long an edit
 * waits for that altogether. */
#define VJ_FRONT_RAISE_US ((int64_t)2000)
#define VJ_FRONT_RAISE_MOST_US ((int64_t)20000)

#define VJ_PAGE_BYTES 4096u

typedef struct VjFront VjFront;

/* ---- inodes that the kernel knows (known.c) ------------------------------------------ */

typedef struct VjKnown VjKnown;
VjKnown *vj_known_new(void);
void vj_known_free(VjKnown *k);
/* The kernel was told of @ino once more.  Any thread. */
void vj_known_add(VjKnown *k, uint64_t ino);
/* It forgot @count of them; true: the last one. */
bool vj_known_sub(VjKnown *k, uint64_t ino, uint64_t count);
bool vj_known_has(VjKnown *k, uint64_t ino);
/* Inodes, and the bytes that the tables take. */
void vj_known_size(VjKnown *k, uint64_t *inodes, uint64_t *bytes);

/* ---- ranges of pages (ranges.c) ------------------------------------------------------ */

typedef struct VjPageRange {
    uint64_t first, last; /* page numbers, inclusive */
} VjPageRange;

/* The pages of @len bytes at @offset; of one byte where @len is 0. */
VjPageRange vj_pages_of(uint64_t offset, uint64_t len);
/* The same; @len 0: to the end of any file. */
VjPageRange vj_pages_from(uint64_t offset, uint64_t len);

/* A set of pages: a GArray of VjPageRange, which the caller locks, or NULL while it is empty. */
/* Adds @r, and makes the set if need be; false: there are @most ranges already, and the last one
 * grew to hold it. */
bool vj_ranges_add(GArray **ranges, guint most, VjPageRange r);
/* Takes @r out.  Where one range would have to become two and there are @most, more stays. */
void vj_ranges_remove(GArray *ranges, guint most, VjPageRange r);
bool vj_ranges_meet(const GArray *ranges, VjPageRange r);
/* Cuts @offset and @len down to where the set meets them; false: nowhere. */
bool vj_ranges_common(const GArray *ranges, uint64_t *offset, uint64_t *len);

/* ---- who is in a file while it is edited (gate.c) ------------------------------------ */

typedef struct VjGates VjGates;
typedef struct VjGate VjGate;
typedef struct VjJob VjJob;

VjGates *vj_gates_new(void);
void vj_gates_free(VjGates *gates);

typedef enum VjPassKind {
    VJ_PASS_READ,
    VJ_PASS_READ_DIRECT,  /* into the reader's memory: brings no page */
    VJ_PASS_WRITE,        /* a plain WRITE, copy_file_range, fallocate: one at a time */
    VJ_PASS_WRITE_DIRECT, /* from the writer's memory: several at a time */
    VJ_PASS_WRITE_PAGE,   /* from the page cache: FUSE_WRITE_CACHE */
    VJ_PASS_SIZE,         /* a change of size, whose pages the kernel handles itself */
} VjPassKind;

/* Bytes of a WRITE and where they belong now. */
typedef struct VjPassPart {
    uint64_t skip;   /* bytes from the start of the request */
    uint64_t offset; /* in the file as it is now */
    uint64_t len;    /* bytes */
} VjPassPart;

typedef struct VjPass {
    VjGate *gate;
    uint64_t ino;
    uint64_t offset, len;
    uint64_t edits; /* that had begun when it came in */
    VjPassKind kind;
    bool hot;    /* an edit was being made or was recent */
    bool raises; /* set before _leave: its answer may make the kernel's size larger */
    uint64_t applied; /* edits, at that time */
    GArray *parts;    /* of VjPassPart; NULL: the request as it stands */
    /* Of a WRITE_PAGE: zeroes from here to the end of the page are not to be believed. */
    uint64_t cleared_from;
    uint64_t cleared_to; /* not above cleared_from: all are */
} VjPass;

/*
 * vj_gate_enter - a request begins to read or change @ino; waits while an edit is applied
 *
 * A WRITE_PAGE in old coordinates gets @parts, without the bytes that the edit replaced.
 * Threads: any; waits only for requests that are inside and for one vj_fs_replace.
 */
void vj_gate_enter(VjGates *gates, uint64_t ino, VjPassKind kind, uint64_t offset,
                   uint64_t len, VjPass *pass);
/*
 * What of @parts of @buf is to be stored; free it with g_array_unref.  The kernel clears a page behind
 * the end that it knows before it sends it, and an edit has moved the end since: such zeroes are
 * nobody's.  One that is somebody's, in these microseconds, was stored beside the edit.
 */
GArray *vj_pass_believed(const VjPass *pass, const char *buf, const VjPassPart *parts,
                         size_t count);
/* The request is done with the file.  True: what it wrote must be invalidated again; of a
 * WRITE, what @pass's offset and len are then. */
bool vj_gate_leave(VjGates *gates, VjPass *pass);

/* Edits of one inode, one at a time.  True: run @job now; false: it comes from _end. */
bool vj_gate_edit_begin(VjGates *gates, uint64_t ino, VjJob *job, VjGate **out);
/* As _begin, but only where nobody edits the inode and the kernel holds no page of the range
 * (@len 0: to its end).  True: the caller makes the edit and calls _end. */
bool vj_gate_edit_try(VjGates *gates, uint64_t ino, uint64_t offset, uint64_t len,
                      VjGate **out);
/* From here on WRITEs are suspect. */
void vj_gate_edit_start(VjGates *gates, VjGate *gate);
/* Waits until nobody is inside and lets nobody in. */
void vj_gate_close(VjGates *gates, VjGate *gate);
/* Lets them in again; @edited: what was applied, or unchanged; @end: the last byte of the file
 * if that came with it, else NULL.  True: the kernel may hold pages in old coordinates, which are
 * to be invalidated; the window is open until _settle. */
bool vj_gate_open(VjGates *gates, VjGate *gate, const VjEdited *edited,
                  const uint8_t *end);
/* Whether the kernel may hold a page of the range; @len 0: from @offset to the end. */
bool vj_gate_may_hold(VjGates *gates, VjGate *gate, uint64_t offset, uint64_t len);
/* After vj_gate_forget_marks: the range was invalidated; @ok: and all of it is gone. */
void vj_gate_dropped(VjGates *gates, VjGate *gate, uint64_t offset, uint64_t len,
                     bool ok);
/*
 * The last byte of the file, as vj_gate_end_known was told when vj_gate_writes was @writes; edits
 * before that byte do not change it.  False: somebody has to read it.
 */
bool vj_gate_end_byte(VjGates *gates, VjGate *gate, uint64_t writes, uint8_t *byte);
void vj_gate_end_known(VjGates *gates, VjGate *gate, uint64_t writes, uint8_t byte);
/* The second invalidation has returned. */
void vj_gate_settle(VjGates *gates, VjGate *gate);
/* The byte at @at is about to be stored into the page cache. */
void vj_gate_note_store(VjGates *gates, VjGate *gate, uint64_t at);
/* A pass with raises has been answered, to @who.  Nothing for the others. */
void vj_gate_answered(VjGates *gates, const VjPass *pass, pid_t who);
/* Behind an edit of @who: the kernel has probably taken the sizes of answers from before the
 * edit.  True: it had to wait. */
bool vj_gate_raise_wait(VjGates *gates, VjGate *gate, pid_t who);
/*
 * After an edit that made the file shorter the kernel's size is too large.  @teller, the caller
 * of the edit, is to read the byte behind the new end, or to call stat(2): nobody else may be told
 * of the size until then.  Before the edit's answer.
 */
void vj_gate_untold(VjGates *gates, VjGate *gate, pid_t teller);
/* @pass, a READ of pages that met the end, is answered: the kernel has taken the size. */
void vj_gate_told(VjGates *gates, const VjPass *pass);
/* Before @who is told of the size: edits that have begun are over, and the kernel knows.  True:
 * it was not so, and what was found out about the inode before is old. */
bool vj_gate_told_wait(VjGates *gates, uint64_t ino, pid_t who, int64_t most_us);
/* WRITEs that came in or went out so far. */
uint64_t vj_gate_writes(VjGates *gates, VjGate *gate);
/* The edit is over.  Returns the next one that waits, whose turn it is, or NULL. */
VjJob *vj_gate_edit_end(VjGates *gates, VjGate *gate);

/* Pages that READs brought are about to be invalidated; @len 0: all from @offset on. */
void vj_gate_forget_marks(VjGates *gates, VjGate *gate, uint64_t offset, uint64_t len);

/*
 * Ranges to invalidate: a queue a gate, one at a time.
 * add: true when the caller has to queue @ino (the gate is then held until _done says that
 * nothing is left).  @ticket is what _wait wants.
 */
bool vj_gate_stale_add(VjGates *gates, uint64_t ino, uint64_t offset, uint64_t len,
                       uint64_t *ticket);
void vj_gate_stale_take(VjGates *gates, uint64_t ino, uint64_t *offset, uint64_t *len);
/* What was taken is invalidated.  True: there is more, queue @ino again. */
bool vj_gate_stale_done(VjGates *gates, uint64_t ino);
/* Waits until the range of @ticket and all before it are invalidated; false: not in time. */
#define VJ_TICKET_ALL UINT64_MAX
bool vj_gate_stale_wait(VjGates *gates, uint64_t ino, uint64_t ticket, int64_t most_us);
/* Takes back what nobody has begun to invalidate; false: somebody has, or others want it. */
bool vj_gate_stale_withdraw(VjGates *gates, uint64_t ino, uint64_t ticket);
/*
 * How long requests wait for invalidations before their answer.  An end is needed because an
 * invalidation may wait for a page that is locked until that answer.
 *
 * GETATTR: the kernel drops the size in an answer that it asked for before an invalidation,
 * and after a shrinking edit its own would stay too large.
 * WRITE: whoever wrote must not read the pages that the invalidation takes away; and the kernel
 * must not take the new size while it writes dirty pages back (README.md).
 */
#define VJ_FRONT_QUIET_GETATTR_US ((int64_t)1000000)
#define VJ_FRONT_QUIET_WRITE_US ((int64_t)2000000)

/* ---- edits and invalidations (edit.c) ------------------------------------------------ */

typedef enum VjJobStage {
    VJ_JOB_NEW,
    VJ_JOB_APPLIED, /* the second invalidation comes next */
    VJ_JOB_SETTLED, /* the kernel's idea of the size comes next */
    VJ_JOB_TOLD,    /* what that has left stale comes next */
} VjJobStage;

struct VjJob {
    fuse_req_t req;
    uint64_t ino;
    VjHandle *handle; /* the request keeps it open */
    VjCaller who;
    VjEdit edit;
    VjFileShift shift; /* instead of the edit when its len is not 0 */
    VjBuf *data;       /* owned; what comes into the file points into it.  NULL: a hole */
    VjGate *gate;
    VjJobStage stage;
    /* From VJ_JOB_APPLIED on: */
    int result; /* -errno */
    VjEdited edited;
    bool window;    /* the kernel may hold pages in old coordinates */
    uint64_t reach; /* bytes from the edit on that its pages change in; 0: to the end */
    bool stale;     /* from VJ_JOB_TOLD on: pages from stale_from on have to go */
    uint64_t stale_from;
};

typedef struct VjEditor VjEditor;
VjEditor *vj_editor_new(VjFront *f);
/* Answers all that was submitted, then ends the threads; later edits are refused.  Needs
 * threads that serve requests.  Again is fine. */
void vj_editor_stop(VjEditor *e);
void vj_editor_free(VjEditor *e);
/*
 * Makes the edit in the caller's request thread and answers it, where it has nothing to wait for
 * but requests that other request threads serve; where that turns out otherwise an edit thread does the
 * rest.  False: @job is to be submitted.  @job and what it points to are the caller's.
 */
bool vj_editor_run(VjEditor *e, VjJob *job);
/* Takes @job and answers its request, at once with -ENOMEM when too many wait. */
void vj_editor_submit(VjEditor *e, VjJob *job);
/* The kernel's pages of the range are stale.  Does not block. */
void vj_editor_stale(VjEditor *e, uint64_t ino, uint64_t offset, uint64_t len);
/* The same, and waits until they are gone, but not for ever.  @extending:
 * what was not begun by then is begun when the kernel is sure to have taken the new size. */
void vj_editor_fresh(VjEditor *e, uint64_t ino, uint64_t offset, uint64_t len,
                     bool extending);

/* ---- the guard (guard.c), and what it does (mounter.c) -------------------------------- */

#define VJ_MOUNTED_TEXT_MAX 400

/* What came of an order to the guard. */
typedef struct VjMounted {
    int error;                      /* a positive errno; 0: it is done */
    bool by_helper;                 /* fusermount3 did it */
    dev_t dev;                      /* of the mount */
    char text[VJ_MOUNTED_TEXT_MAX]; /* why not; or what fusermount3 said all the same */
} VjMounted;

/* In the guard's process alone. */
void vj_mounter_mount(const VjMountPlan *plan, int fuse_fd, int comm_fd, VjMounted *out);
/* The mount answers: its device.  Waits for the daemon. */
void vj_mounter_look(const VjMountPlan *plan, VjMounted *out);
/* Has the kernel write dirty mapped pages of our mount back; a positive errno, or 0. */
int vj_mounter_sync(const VjMountPlan *plan, dev_t dev);
/* By whom it was mounted.  Nothing to do where something else is mounted by now. */
void vj_mounter_detach(const VjMountPlan *plan, dev_t dev, bool by_helper,
                       VjMounted *out);
/* From here on the system calls alone that the guard makes behind vj_mounter_mount. */
void vj_guard_confine(void);

/*
 * What makes umount(8) wait for the daemon (utab.c): a line for @mountpoint, named after
 * the calling process.  0 or -errno; -EWOULDBLOCK: somebody keeps the table locked.
 */
int vj_utab_add(const char *mountpoint);
int vj_utab_remove(const char *mountpoint);
bool vj_mount_has_word(const char *options, const char *word);

/* Mounts.  The connection, which the caller owns; -1 and why not.  Once. */
int vj_guard_mount(VjGuard *g, GError **error);
/* The connection is there and served: waits until the mount answers, has the guard watch over
 * it, or says in the log why it cannot.  False and @why, owned: the mount does not answer. */
bool vj_guard_watch(const VjGuard *g, const VjFront *f, char **why);
/* The end on a signal; each says in the log what it could not do. */
void vj_guard_sync(const VjGuard *g);
void vj_guard_detach(const VjGuard *g);

/* ---- waits that a killed caller leaves (interrupt.c) ---------------------------------- */

/* First member of what g_new made for a request that waits for durability. */
typedef struct VjWait {
    VjFront *front;
    fuse_req_t req;
    VjHandle *handle; /* stays valid until the last reference goes; NULL: none */
    pid_t tid;        /* who waits; 0: somebody whom this process cannot see */

    /* guarded by front->lock: */
    unsigned refs;
    bool is_answered, is_interrupted;
} VjWait;

/* With one reference; from now on somebody else may answer.  No locks held. */
void vj_wait_begin(VjWait *w, VjFront *f, fuse_req_t req, VjHandle *h);
/* True: the request has no answer yet, and this thread gives it.  No locks held. */
bool vj_wait_claim(VjWait *w);
/* The last reference frees it, and the handle if that was dropped meanwhile. */
void vj_wait_unref(VjWait *w);
/* At the end, until none is left: a thread of the rooms below may still have one to answer.  No locks held. */
void vj_front_await_waits(VjFront *f);
/* A thread of its own while there are interrupted requests. */
void vj_front_watch(gpointer data, gpointer user_data);
/* The kernel does not use @h any more: forgets and releases it, now or when the last wait for it is over. */
void vj_front_handle_drop(VjFront *f, VjHandle *h);

/* ---- request threads (serve.c) --------------------------------------------------------- */

/* Takes a thread out of a wait in the kernel; its handler does nothing. */
#define VJ_FRONT_WAKE_SIGNAL SIGUSR2

/* Serves with up to @most threads until the connection or the session ends, or f->ending. -errno. */
int vj_serve(VjFront *f, unsigned most) G_GNUC_WARN_UNUSED_RESULT;

/* The thread that calls does nothing from now on that waits for another request: it answers, and counts
 * as one that waits.  Threads: any. */
void vj_serve_answers(void);

/* The buffer of a WRITE on its way into a file. */
typedef struct VjLoan {
    void *block; /* for vj_fs_write_block(), which takes it or not */
    void *next;  /* what the thread goes on with then */
} VjLoan;

/* In the request's thread: true when @src, as libfuse gives it, stands in a buffer that may be given
 * away.  vj_serve_lent() follows in any case, and @src is not looked at any more. */
bool vj_serve_lend(const char *src, size_t len, VjLoan *loan);
void vj_serve_lent(VjLoan *loan);

/* ---- the rest ------------------------------------------------------------------------ */

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
    VJ_HOLD_POINTS,
} VjHoldPoint;

typedef struct VjDelays {
    unsigned ms[VJ_HOLD_POINTS];
    unsigned threads;                         /* most request threads */
    unsigned idle, background, io_bytes, off; /* capabilities */
    int64_t
        quiet_us; /* how long a WRITE waits for invalidations: VJ_FRONT_QUIET_WRITE_US */
    char *dir;    /* of the fifos; owned; NULL: none */
} VjDelays;

bool vj_delays_parse(const char *text, VjDelays *out, GError **error);
void vj_delays_clear(VjDelays *d);
/* A request comes past @point. */
void vj_front_hold(VjFront *f, VjHoldPoint point);

struct VjFront {
    VjFs *fs;
    struct fuse_session *session;
    const char *mountpoint;
    VjKnown *known;
    VjGates *gates;
    VjEditor *editor;
    GThreadPool *syncers;
    GThreadPool
        *sync_reserve; /* one thread, from the start: for when no other can be started */
    GThreadPool *watchers; /* one at most */
    VjDelays delays;
    bool
        maps_direct_files; /* by INIT: a file that is opened past the page cache has mmap */
    bool clears_privileges; /* by INIT: what a change takes away is for us to find out */
    gint short_of_threads; /* atomic; it stays so */
    gint syncs_here;       /* atomic: waits for durability in request threads */

    VjMutex lock; /* VJ_RANK_FRONT */
    VjCond changed;
    /* guarded by lock: */
    bool initialised;       /* INIT was answered */
    bool ending;            /* the loop is to end */
    bool ended;             /* the loop is over */
    GHashTable *handles;    /* VjHandle that are open */
    GHashTable *listings;   /* of open directories: uint64_t, owned */
    GQueue sync_jobs;       /* what the sync threads are to do; begins with a VjWait */
    GPtrArray *interrupted; /* VjWait whose caller got a signal; with a reference */
    GHashTable *awaited;    /* VjHandle to the number of its VjWait */
    GHashTable *left;       /* VjHandle of these that the kernel does not use any more */
    unsigned waits;         /* VjWait that are not freed yet */
};

/* The one table from the errors of the rooms below to what the kernel sees; positive. */
int vj_front_errno(int negative_errno);
void vj_front_caller(fuse_req_t req, VjCaller *out);
/* While a thread serves a request another one waits for the next, or there are all that there may be: four
 * times @busy at least.  False once one could not be started. */
bool vj_front_has_threads(VjFront *f, unsigned busy);
static inline VjHandle *vj_front_handle(const struct fuse_file_info *fi)
{
    return (VjHandle *)(uintptr_t)fi->fh;
}
/* Remembers handles, so that those left at the end are released. */
void vj_front_handle_add(VjFront *f, VjHandle *h);

/* ops.c; ops-io.c and ops-ioctl.c hold the handlers of open files. */
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
/* A thread of the sync pool: answers the first of f->sync_jobs when it is durable. */
void vj_front_sync_job(gpointer data, gpointer user_data);

/* Fills what the kernel wants to know of an inode and counts it as known. */
void vj_front_entry(VjFront *f, const VjAttr *attr, struct fuse_entry_param *e);
void vj_front_forget_one(VjFront *f, uint64_t ino, uint64_t count);

#endif
