/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sweep.h - a volume beside a model of it, on which one call below fails
 *
 * The world runs operations of the room fs and knows what each has to leave behind.  An
 * operation that fails has changed nothing, or all that it had to change.  For each
 * content and for the tree of names and attributes it keeps the states since they were
 * last durable: one of those is what is there after an unmount that failed, and after
 * kill -9.
 */
#ifndef VJ_TEST_FAULT_SWEEP_H
#define VJ_TEST_FAULT_SWEEP_H

#include "fs/fs.h"

/* ---- what fails (sweep-faults.c) --------------------------------------------------- */

typedef enum Layer {
    LAYER_STORE, /* calls of the room file to its store */
    LAYER_META,  /* and to its metadata engine */
    LAYER_SYS,   /* system calls of both */
    LAYER_ALLOC, /* failing allocators */
} Layer;

typedef struct Kind {
    const char *name;
    Layer layer;
    /* For the wrappers: their options, with # for the number.  Else errno=. */
    const char *options;
    int error;      /* of the layers without wrappers, positive */
    uint64_t times; /* of those: how many calls from the number on; 0: all */
} Kind;

extern const Kind sweep_kinds[];
extern const size_t sweep_kind_count;

/* From call @number on the layers sys and alloc fail as @kind says; 0: none does. */
void sweep_faults_arm(const Kind *kind, uint64_t number);
void sweep_faults_clear(void);
/* Neither counted nor failed meanwhile. */
void sweep_faults_pause(bool paused);
/* Calls of the layers sys and alloc since they were armed. */
uint64_t sweep_faults_calls(void);
/* How many calls of any layer were made to fail so far. */
uint64_t sweep_faults_hits(void);

/* ---- the world (sweep-world.c) ----------------------------------------------------- */

typedef struct Node {
    uint64_t ino;
    /* Of GBytes: contents since the last that is durable; never empty. */
    GPtrArray *states;
    GPtrArray *perhaps; /* GBytes: the contents if operations that failed were done */
    VjHandle *h;        /* NULL: not open */
} Node;

typedef struct World {
    char *source, *copy;
    VjVolume *v;
    VjFs *fs;
    GHashTable *tree;  /* "N:path" → inode, "A:inode:what" → text */
    GArray *trees;     /* of uint64_t: sums of the trees since one was durable */
    GHashTable *nodes; /* inode → Node, also those without a name now */
    bool loose;        /* it is not known which names there are */
    VjRng rng;
    /* the fault */
    const Kind *kind;
    uint64_t number;
    unsigned segment, fault_segment; /* opened so many times; fails in this one */
    uint64_t hits_before;            /* sweep_faults_hits() at the start */
    uint64_t calls;                  /* in the segment of the fault, as far as known */
    bool calm;                       /* no call fails any more */
    bool faults_ended;               /* the rest of the run is calm */
    bool killed_after_error, killed_after_sync;
    /* what came of it */
    unsigned errors; /* operations that said one */
    unsigned late;   /* that said one and had been done */
    char problem[600];
} World;

void world_new(World *w, const Kind *kind, uint64_t number, unsigned segment,
               const char *make_options, uint64_t seed);
void world_free(World *w);
/* The first one is kept. */
void world_problem(World *w, const char *format, ...) G_GNUC_PRINTF(2, 3);
bool world_hit(const World *w);

/* Opens or closes the volume; a fault may be in it, and is over when it kept it from
 * opening. */
void world_open(World *w);
void world_close(World *w);
/* What a mount of a SOURCE finds whose daemon was killed now takes the place of this
 * one. */
void world_kill(World *w);
/* From now on nothing fails. */
void world_calm(World *w);

/* Operations.  Paths are "a/b" below the root. */
void world_make(World *w, const char *path, mode_t mode); /* file or directory */
void world_symlink(World *w, const char *path, const char *target);
void world_link(World *w, const char *from, const char *to);
void world_unlink(World *w, const char *path);
void world_rename(World *w, const char *from, const char *to, unsigned flags);
void world_chmod(World *w, const char *path, mode_t mode);
void world_setxattr(World *w, const char *path, const char *name, const void *value,
                    size_t len);
void world_removexattr(World *w, const char *path, const char *name);
/* NULL when it could not be opened.  Stays open until world_release. */
Node *world_file(World *w, const char *path);
void world_release(World *w, Node *n);
size_t world_size(const Node *n);
void world_replace(World *w, Node *n, size_t offset, size_t old_len, size_t len,
                   bool soft);
void world_write(World *w, Node *n, size_t offset, size_t len, bool soft);
void world_truncate(World *w, Node *n, size_t size);
void world_punch(World *w, Node *n, size_t offset, size_t len);
void world_copy(World *w, Node *from, size_t offset, Node *to, size_t target, size_t len);
void world_recode(World *w, Node *n);
void world_tend(World *w, unsigned what);
bool world_fsync(World *w, Node *n);
void world_sync(World *w); /* all of it */
void world_sync_names(World *w);
/* Reads everything and compares. */
void world_verify(World *w);
/* fsck of the closed volume; fsck -y of it with the fault. */
void world_check(World *w, const char *when);
void world_repair(World *w);

/* ---- what is done (sweep-work.c) --------------------------------------------------- */

typedef struct Workload {
    const char *name, *make_options;
    unsigned segments; /* how many times it opens the volume, prepare not counted */
    void (*prepare)(World *); /* without faults; the volume is open */
    void (*work)(World *);    /* opens and closes it; leaves it open or closed */
} Workload;

extern const Workload sweep_workloads[];
extern const size_t sweep_workload_count;

#endif
