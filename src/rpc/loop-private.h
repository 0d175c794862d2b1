/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * loop-private.h - a thread that waits for sockets and times
 *
 * All events of a loop (libevent's) are made, changed and freed in its thread.  Another
 * thread that wants something of it posts a task.
 *
 * A thread that only waits for the answer to a call may borrow the loop, and is its
 * thread meanwhile: then the answer wakes one thread instead of two.  It may as long as
 * its call is the only one of the process; the loop's own thread is back as soon as there
 * is another, or a task, or nobody has borrowed it for 20 ms.
 *
 * Sockets from which nothing but bytes is waited for are known to the loop (sources).  A
 * borrower looks at these itself, without the events of libevent, as long as there is
 * nothing else to wait for; and what was read last is read again before all events are
 * looked at, a few times at most (VJ_LOOP_AGAIN_MAX).
 *
 * A loop with a follower has two threads.  The leader runs it, and when nothing is due it
 * may run something else that blocks: no other thread is woken for that.  When that takes
 * longer than a millisecond or two the follower takes the loop, and the two have changed
 * places.
 */
#ifndef VJ_RPC_LOOP_PRIVATE_H
#define VJ_RPC_LOOP_PRIVATE_H

#include <event2/event.h>

#include "base/base.h"

/* Of vj_loop_scratch. */
#define VJ_LOOP_SCRATCH_BYTES ((size_t)16 << 10)

/* A socket that was read is read again so often before the loop looks at all events. */
#define VJ_LOOP_AGAIN_MAX 8u
/* Of so many looks at memory one is at all events. */
#define VJ_LOOP_LOOKS_MAX 8u
/* A socket is read again only where it had no more than this: a stream waits for the turn
 * of others. */
#define VJ_LOOP_AGAIN_BYTES_MAX ((size_t)64 << 10)

typedef struct VjLoop VjLoop;

typedef struct VjLoopTask VjLoopTask;
struct VjLoopTask {
    void (*run)(VjLoopTask *task); /* in the loop's thread */
    /* the loop's: */
    VjLoopTask *next;
    bool is_posted;
};

/* Its thread begins, with all signals blocked; with @has_follower nobody borrows it. */
VjLoop *vj_loop_new(const char *name, bool has_follower, GError **error);
/* Runs what was posted, then ends the thread.  All its events have been freed.  Threads:
 * any but its own. */
void vj_loop_free(VjLoop *loop);

/* False: it is posted already, and has not begun to run.  Threads: any.  Locks: any
 * below VJ_RANK_RPC_LOOP. */
bool vj_loop_post(VjLoop *loop, VjLoopTask *task);
/* It does not run any more, if it was posted.  In the loop's thread. */
void vj_loop_unpost(VjLoop *loop, VjLoopTask *task);
bool vj_loop_is_current(const VjLoop *loop);
struct event_base *vj_loop_base(VjLoop *loop);

/* A socket with an event of its own in the loop. */
typedef struct VjLoopSource VjLoopSource;
struct VjLoopSource {
    int fd;
    /* In the loop's thread: reads what is there.  False: nothing was. */
    bool (*read)(VjLoopSource *source);
    size_t bytes; /* that were read the last time: its owner's */
    /* the loop's: */
    enum {
        VJ_SOURCE_IDLE,  /* waits for nothing */
        VJ_SOURCE_READS, /* for bytes, and for nothing else */
        VJ_SOURCE_OTHER, /* for something else, or that too */
    } wants;
};

/* What its event waits for has changed.  It is idle before it ends.  In the loop's
 * thread. */
void vj_loop_source_wants(VjLoop *loop, VjLoopSource *source, int wants);
/* Something was read from it.  Likewise. */
void vj_loop_source_was_read(VjLoop *loop, VjLoopSource *source);

/* Memory that a peer writes: nothing says when it has, so the loop looks at it. */
typedef struct VjLoopMemory VjLoopMemory;
struct VjLoopMemory {
    /* In the loop's thread: takes what is there.  False: nothing is. */
    bool (*take)(VjLoopMemory *memory);
    /* Likewise: tells the peer whether the loop looks at it. */
    void (*listen)(VjLoopMemory *memory, bool does);
    bool is_watched; /* the loop's */
};

/*
 * Something of the peer has come, and more may follow in @memory: the loop, which has a
 * follower, looks at it for a while before it waits for events, and gives its processor
 * away between two looks.  Whether that is worth it is learned.  In the loop's thread.
 */
void vj_loop_watch(VjLoop *loop, VjLoopMemory *memory);
void vj_loop_unwatch(VjLoop *loop, VjLoopMemory *memory);
/* Something has come by other ways than sources: these are read when they say so. */
void vj_loop_read_no_more(VjLoop *loop);

/* A call of a client is submitted, and answered.  Threads: any. */
void vj_loop_call_begins(VjLoop *loop);
void vj_loop_call_ends(VjLoop *loop);
/* Nobody borrows the loop for the call that has begun. */
void vj_loop_call_waits_elsewhere(VjLoop *loop);
/* In a thread that waits for the call that it has begun, without any lock.  True: the
 * calling thread runs the loop by vj_loop_borrowed_run, until it gives it back. */
bool vj_loop_borrow(VjLoop *loop) G_GNUC_WARN_UNUSED_RESULT;
/* Until something has happened, or @until_us.  False: the loop is to be given back. */
bool vj_loop_borrowed_run(VjLoop *loop, int64_t until_us) G_GNUC_WARN_UNUSED_RESULT;
void vj_loop_give_back(VjLoop *loop);

/* In the loop's thread.  True: @run is called in this thread when the callbacks that are
 * due have returned, and then it is not the loop's thread.  False: something else runs
 * so, or is to, or the loop has no follower. */
bool vj_loop_run_aside(VjLoop *loop, void (*run)(void *opaque),
                       void *opaque) G_GNUC_WARN_UNUSED_RESULT;

/* For bytes of the callback that runs just now.  In the loop's thread. */
uint8_t *vj_loop_scratch(VjLoop *loop);

/* One for all clients of the process: begun by the first one, ended with the last.  NULL
 * with @error.  Unref is called in any thread but the loop's. */
VjLoop *vj_loop_client_ref(GError **error);
void vj_loop_client_unref(void);

#endif
