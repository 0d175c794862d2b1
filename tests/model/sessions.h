/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sessions.h - several sessions on one volume at random, against a simple model
 *
 *     sessions.c           options, rounds, the comparison of everything
 *     sessions-names.c     operations on names and attributes
 *     sessions-contents.c  open files: what is written, read, synced
 *     sessions-crash.c     opening a session, its crash, what is left of it
 *
 * Each session has one thread.  A thread locks what its operation is about (names by
 * number, then inodes by address), so the model knows what the operation has to do;
 * sessions work on different names of the same directories, on the same objects and
 * counters at the same time, and meet in the engine alone.
 */
#ifndef VJ_TEST_MODEL_SESSIONS_H
#define VJ_TEST_MODEL_SESSIONS_H

#include "common.h"
#include "fs/fs.h"

#define DIRS 4u
#define NAMES 8u        /* of a directory */
#define HANDLES 5u      /* that a session has open at most */
#define STATES_MOST 12u /* contents of a file since it was durable last */

/* Between two looks at what others do in the background.  One that waits for ever is
 * ended by the test's time limit; --verbose says what it waits for. */
#define LOOK_US 500u

typedef struct Session Session;

/* A file, symlink or empty directory.  Lives as long as a name or handle has it. */
typedef struct Inode {
    pthread_mutex_t lock;
    gint refs;
    mode_t type; /* never changes */
    /* guarded by lock: */
    uint64_t ino;
    mode_t mode; /* with the type */
    unsigned nlink;
    unsigned changing; /* operations that change mode or nlink now */
    char target[16];   /* of a symlink */
    /*
     * Of a regular file: what it holds now is the last one; what a crash of the session
     * that has it open may leave is any of them.
     */
    GPtrArray *states; /* of GBytes */
    uint64_t opener;   /* the life of a session that had it open last; 0: none */
    unsigned handles;  /* of that session */
    bool is_doubtful;  /* a session may have it claimed that could not open it */
} Inode;

/* A name of a directory; the place is there for ever, the inode comes and goes. */
typedef struct Name {
    pthread_mutex_t lock;
    /* never change: */
    unsigned dir; /* of World.dirs */
    char text[8];
    /* guarded by lock: */
    Inode *inode; /* referenced; NULL: there is none */
} Name;

typedef struct Handle {
    VjHandle *h;   /* NULL: not open, or gone with a crash */
    Inode *inode;  /* referenced; NULL: not open */
    uint64_t life; /* of the session that opened it */
} Handle;

typedef struct Options {
    uint64_t ops, seed, rounds;
    unsigned sessions, crashes; /* of each session: one in so many operations */
    uint64_t size;              /* most bytes of a file */
    const char *dir, *store;    /* NULL: in memory */
    unsigned far;               /* one session in so many reads without snapshots */
    bool verbose;
    char *again; /* all of them, as on the command line */
} Options;

typedef enum Operation {
    OP_MAKE,
    OP_REMOVE,
    OP_RENAME,
    OP_LINK,
    OP_LOOK,
    OP_CHMOD,
    OP_LIST,
    OP_OPEN,
    OP_CLOSE,
    OP_WRITE,
    OP_READ,
    OP_SYNC,
    OP_PURGE,
    OPS,
} Operation;

/* What happened; added to by any thread. */
typedef struct Counts {
    uint64_t ops[OPS];
    uint64_t crashes; /* sessions that ended otherwise than in order, of them: */
    uint64_t by_engine, by_store, by_eviction;
    uint64_t unsure;      /* operations whose session crashed before they were answered */
    uint64_t unsure_done; /* of them: that were there */
    uint64_t lost;        /* contents of which a crash has taken changes */
    uint64_t timed_out;   /* operations that were not done, of sessions that live on */
    uint64_t busy;        /* opens of a content that another session had */
    uint64_t removed;     /* objects */
    uint64_t taken;       /* contents that came from one session to another */
    uint64_t orphans; /* files whose last name went while another session had them open */
    uint64_t conflicts; /* commits that were repeated */
    uint64_t far;       /* sessions that read without snapshots */
    uint64_t lives;     /* sessions */
} Counts;

typedef struct World {
    Options o;
    char *source;
    DataPool pool;
    Session *sessions; /* o.sessions of them */
    uint64_t dirs[DIRS];
    Name names[DIRS * NAMES];
    Counts counts;         /* atomic, each */
    pthread_mutex_t lives; /* of all sessions; innermost */
} World;

/* Adds one to a member of Counts. */
#define COUNT(world, member)                                                             \
    ((void)__atomic_add_fetch(&(world)->counts.member, 1, __ATOMIC_RELAXED))

struct Session {
    World *w;
    unsigned index;
    VjRng rng;
    uint64_t op, until;
    /* guarded by w->lives, but for its own thread, which alone changes the first three:
     */
    uint64_t life;   /* another one after each open */
    uint64_t number; /* of its session in the volume */
    uint64_t target; /* the same, where another one may shut it out; else 0 */
    uint64_t over;   /* the last life that has ended, or is about to */
    bool crashed;    /* in this operation; its handles are to be forgotten */
    bool is_armed;
    bool loses;           /* one commit's answer; perhaps the commit too */
    uint64_t store_calls; /* at which of them it dies; 0: none */
    VjVolume *v;
    VjFs *fs;
    Handle handles[HANDLES];
    uint8_t *data, *back;
    GThread *thread;
    GThread *syncer; /* of its volume */
    pthread_mutex_t sync_lock;
    pthread_cond_t sync_wanted;
    /* guarded by sync_lock: */
    unsigned syncs; /* asked for and not begun */
    bool syncer_ends;
    char doing[160]; /* for failures */
};

/* Says what went wrong where, and how to run it again; ends the process. */
void fail(const Session *s, const char *format, ...) G_GNUC_PRINTF(2, 3) G_GNUC_NORETURN;

/* What is done next, for failures and with --verbose. */
void doing(Session *s, const char *format, ...) G_GNUC_PRINTF(2, 3);

extern const VjCaller caller;

/* ---- sessions.c ------------------------------------------------------------------ */

/* Locks one or two names (@b may be NULL or @a), the lower first. */
void lock_names(Name *a, Name *b);
void unlock_names(Name *a, Name *b);
Name *any_name(Session *s);

Inode *inode_new(uint64_t ino, mode_t mode);
Inode *inode_ref(Inode *i);
void inode_unref(Inode *i); /* NULL is fine */
GBytes *content_now(const Inode *i);
/* What it holds now is durable. */
void content_is_durable(Inode *i);
void content_push(Inode *i, GBytes *content); /* takes */

/* ---- sessions-crash.c ------------------------------------------------------------ */

/* Opens it for the first time, or after a crash or a close, and shuts out those of its
 * name that came before. */
void session_open(Session *s);
/* In order, and it has to go well unless it was armed, or a commit gets no answer.  True:
 * it did. */
bool session_close(Session *s);
/* From one of the next @calls calls of the engine or the store on nothing is answered any
 * more. */
void session_arm(Session *s, unsigned calls);
/* It has come to that call, or another session has shut it out, or is about to. */
bool session_is_dead(Session *s);
/*
 * The dead session is abandoned and another one takes its place, which shuts it out.  The
 * handles are gone; the operation under way holds what it is about.
 */
void session_crash(Session *s);
/* It lives, and a commit got no answer: what returned @r has not been done. */
bool session_timed_out(Session *s, int r);
/* Another thread writes back what is dirty, and what is done next goes on beside that. */
void session_sync_soon(Session *s);
/* Others may shut it out from now on. */
void session_is_used(Session *s);
/* No session has a record but those that live: nobody crashes any more. */
void session_await_release(Session *s);
/* Another one, which lives and knows nothing of it, is shut out. */
void session_evict_another(Session *s);
/* The life @life of a session has not ended in a crash or a close. */
bool life_goes_on(World *w, uint64_t life);

/* ---- sessions-names.c ------------------------------------------------------------ */

void op_make(Session *s);
void op_remove(Session *s);
void op_rename(Session *s);
void op_link(Session *s);
void op_look(Session *s);
void op_chmod(Session *s);
void op_list(Session *s);
/* As op_look and op_list for all names; nobody else runs. */
void compare_names(Session *s);

/* ---- sessions-contents.c --------------------------------------------------------- */

void op_open(Session *s);
void op_close(Session *s);
void op_write(Session *s);
void op_read(Session *s);
void op_sync(Session *s);
/* What is dead is removed from the store. */
void op_purge(Session *s);
/* All handles. */
void close_all(Session *s);
/* After a crash, with nothing locked: its handles are gone. */
void forget_handles(Session *s);
/* Opens the file of @n in one of the sessions and reads all of it; nobody else runs. */
void compare_content(World *w, Name *n);

#endif
