/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * posix.h - what the checks of tests/posix share
 *
 * A topic is one file:
 *
 *   TOPIC(chmod)
 *   {
 *       const char *n = fresh();
 *
 *       MUST(make(REGULAR, n, 0644));
 *       AS(BOB)
 *       {
 *           WANT(EPERM, chmod(n, 0600));
 *       }
 *       OK(chmod(n, 0600));
 *       EQ(0600, mode_of(n));
 *   }
 *
 * Each topic runs in a process of its own, in an empty directory that anybody may write
 * to, with umask 0; what it leaves behind is removed.  It is run once as root and once as
 * an ordinary user, on any file system; nothing here knows varjfs.  A check prints one
 * line: where it stands, what about() said last, the call, and what it wants.  These
 * words are the check's name when two file systems are compared: no random numbers, no
 * paths of this run.
 *
 * Identities change in the process itself (as the saved user it stays root), so an AS
 * block is left at its end alone: no break, return or goto, and none within another.
 */
#ifndef POSIX_H
#define POSIX_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* ---- topics ------------------------------------------------------------------------ */

void topic_add(const char *name, void (*run)(void), bool alone);

#define TOPIC_WITH(name, alone)                                                          \
    static void topic_##name(void);                                                      \
    __attribute__((constructor)) static void topic_add_##name(void)                      \
    {                                                                                    \
        topic_add(#name, topic_##name, alone);                                           \
    }                                                                                    \
    static void topic_##name(void)
#define TOPIC(name) TOPIC_WITH(name, false)
/* Runs when no other topic does. */
#define TOPIC_ALONE(name) TOPIC_WITH(name, true)

/* ---- checks ------------------------------------------------------------------------ */

/* The functions take errno as the call, their last argument, left it. */

/* The call fails with @error; 0: it does not fail.  Gives what the call gave. */
#define WANT(error, call)                                                                \
    check_call(__FILE__, __LINE__, #call, (error), (error), (errno = 0, (long)(call)))
/* Where POSIX or Linux file systems differ on purpose. */
#define WANT_EITHER(error, other, call)                                                  \
    check_call(__FILE__, __LINE__, #call, (error), (other), (errno = 0, (long)(call)))
#define OK(call) WANT(0, call)

/* Two integers. */
#define EQ(wanted, value)                                                                \
    check_equal(__FILE__, __LINE__, #value, #wanted, (long long)(wanted),                \
                (long long)(value))
#define IS_TRUE(condition) check_true(__FILE__, __LINE__, #condition, (condition))

/* Set-up: no check when it succeeds, a failed one when it does not. */
#define MUST(call) check_must(__FILE__, __LINE__, #call, (errno = 0, (long)(call)))

long check_call(const char *file, int line, const char *call, int wanted, int or_wanted,
                long got);
bool check_equal(const char *file, int line, const char *value, const char *wanted_text,
                 long long wanted, long long got);
bool check_true(const char *file, int line, const char *condition, bool held);
long check_must(const char *file, int line, const char *call, long got);

/* Part of the name of the checks that follow; "" ends it. */
void about(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* One check that cannot be made here. */
void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- who --------------------------------------------------------------------------- */

#define WHO_GROUPS_MAX 8

typedef struct Who {
    const char *name;
    uid_t uid;
    gid_t gid;
    int group_count; /* supplementary ones */
    gid_t groups[WHO_GROUPS_MAX];
} Who;

#define GROUP_ALICE 70001
#define GROUP_BOB 70002
#define GROUP_CAROL 70003
#define GROUP_TEAM 70010

/* Alice and Dave are in the team, Dave by his main group.  Numbers, no names: no
 * passwd. */
extern const Who ROOT, ALICE, BOB, CAROL, DAVE;
/* Who runs the topic: root, or the user of --user. */
extern Who ME;

bool am_root(void);

/* Leaves the topic's function, with one skipped check. */
#define NEEDS_ROOT(what)                                                                 \
    do {                                                                                 \
        if (!am_root()) {                                                                \
            skip("%s: needs root", what);                                                \
            return;                                                                      \
        }                                                                                \
    } while (0)

#define AS(who)                                                                          \
    for (bool as_block_is_entered_ = who_become(&(who)); as_block_is_entered_;           \
         as_block_is_entered_ = who_return())
/* A copy of @who with one supplementary group more. */
Who who_with_group(Who who, gid_t group);
bool who_become(const Who *who);
bool who_return(void); /* false */
/* For ever, all ids; in a child that will exec, or wants no way back. */
void who_become_wholly(const Who *who);

/* A block in a child process; its checks count.  The parent waits for its end. */
#define CHILD                                                                            \
    for (int child_of_this_block_ = child_begin(); child_of_this_block_ >= 0;            \
         child_of_this_block_ = child_end(child_of_this_block_))
/* The next child that ends, whichever it is: its status; -1: there was none. */
int wait_for_child(void);
int child_begin(void);
int child_end(int pid);

/* ---- files ------------------------------------------------------------------------- */

typedef enum Kind { REGULAR, DIRECTORY, SYMLINK, FIFO, SOCKET, CHARDEV, BLOCKDEV } Kind;

#define KIND_COUNT 7
extern const char *const kind_names[KIND_COUNT];
extern const mode_t kind_modes[KIND_COUNT]; /* S_IFREG, … */

/* All kinds that ME may make. */
#define EACH_KIND(k)                                                                     \
    for (Kind k = REGULAR; k < (Kind)(am_root() ? KIND_COUNT : CHARDEV);                 \
         about("%s", ""), k++)

/* A name that this topic has not used.  The same in each run. */
const char *fresh(void);
/* Like printf; kept until the topic ends. */
const char *path(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* 0 or -1.  Symlinks lead to "nowhere" and have no mode; the others have exactly
 * @mode. */
int make(Kind kind, const char *name, mode_t mode);
int give(const char *name, uid_t uid, gid_t gid);
/* Unlinks or rmdirs. */
int gone(Kind kind, const char *name);
/* Empty names are made with MUST and end. */
const char *made(Kind kind, mode_t mode);
const char *made_for(Kind kind, mode_t mode, uid_t uid, gid_t gid);
int spew(const char *name, const char *text);   /* 0 or -1 */
bool holds(const char *name, const char *text); /* that and nothing else */

/* What lstat(2) says; all ones, and a failed check, when it fails. */
struct stat stat_of(const char *name);
struct stat fstat_of(int fd);
mode_t mode_of(const char *name); /* 07777 of it */
bool exists(const char *name);
int names_in(const char *dir); /* but "." and ".."; -1 */

/* ---- time -------------------------------------------------------------------------- */

bool later(struct timespec a, struct timespec b); /* a > b */
bool same_time(struct timespec a, struct timespec b);
/* Returns when a change made from now on gets a time later than all times of @name. */
void tick(const char *name);
/* The two together: what lstat says, and later changes will differ. */
struct stat before(const char *name);

enum { TIME_A = 1, TIME_M = 2, TIME_C = 4 };
/* Exactly these times of @name grew since @then; one check for each of the three. */
#define TIMES(then, name, which) check_times(__FILE__, __LINE__, (then), (name), (which))
void check_times(const char *file, int line, struct stat then, const char *name,
                 int which);
/* The same but for atime, which relatime and caches decide about. */
#define MC_TIMES(then, name, which)                                                      \
    check_mc_times(__FILE__, __LINE__, (then), (name), (which))
void check_mc_times(const char *file, int line, struct stat then, const char *name,
                    int which);

#endif
