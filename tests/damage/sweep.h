/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sweep.h - a small volume with each kind of thing in it, hurt at one position at a time
 *
 *     tree.c      the sound volume, what is in it, and how it is brought back
 *     record.c    classes: records of the metadata
 *     stored.c    classes: bytes of objects, files of SOURCE
 *     view.c      what a user sees: in this process, or through a mount
 *     compare.c   is what he sees right, and is what fails what was hurt?
 *     sweep.c     positions, outcomes, the table at the end
 *
 * A harness error aborts; a fault of the program under test is a violation and is
 * counted.
 */
#ifndef VJ_TEST_DAMAGE_SWEEP_H
#define VJ_TEST_DAMAGE_SWEEP_H

#include "fs/fs-format.h"
#include "fs/fs.h"
#include "map/map-private.h"
#include "object/object-format.h"
#include "volume/volume-private.h"

#include <sys/stat.h>

#define LENGTH_MOST ((size_t)262144)

/* ---- what is in the volume --------------------------------------------------------- */

typedef struct Thing {
    const char *path; /* "/d/plain" */
    mode_t mode;      /* its type */
    uint64_t ino, dir;
    size_t len;
    uint8_t *bytes; /* NULL unless a file or a link */
} Thing;

/* A range of a file: where an object or a map node stands in it. */
typedef struct Use {
    uint64_t ino, at, len;
    uint64_t id;    /* object id; node number */
    uint32_t start; /* objects: first byte used */
} Use;

/* A record of the metadata. */
typedef struct Record {
    VjSpace space;
    GBytes *key, *value;
} Record;

/* A file, directory or link of SOURCE. */
typedef struct Kept {
    char *path; /* below SOURCE */
    mode_t mode;
    GBytes *bytes;   /* NULL: a directory or a link */
    char *link;      /* what the link says; NULL: no link */
    uint64_t object; /* id; 0: no object */
} Kept;

typedef struct Tree {
    char *source;
    VjRng rng;
    GArray *things;    /* Thing; at most 64: sets of them are bits */
    GArray *uses;      /* Use, of objects */
    GArray *fragments; /* Use: bytes that fragments keep; id: their number */
    GArray *nodes;     /* Use, of map nodes */
    GArray *records;   /* Record */
    GArray *objects;   /* VjObject */
    GArray *kept;      /* Kept, directories before what is in them */
} Tree;

Tree *tree_new(const char *source, uint64_t seed);
void tree_free(Tree *t);
/* SOURCE is as it was made. */
void tree_restore(Tree *t);
/* Runs @body on the metadata of the closed volume. */
void tree_run(Tree *t, VjTxnBody *body, void *opaque);
/* The things with that inode, as bits. */
uint64_t things_of(const Tree *t, uint64_t ino);
/* The things below a directory, and itself. */
uint64_t things_below(const Tree *t, uint64_t ino);

/* ---- what was hurt ----------------------------------------------------------------- */

typedef struct Hit {
    GString *what;
    GArray *ranges; /* Use without id: content that may be lost */
    /* Things, as bits. */
    uint64_t names;    /* they may not be found under their names until repaired */
    uint64_t whole;    /* nothing of them may be readable until repaired */
    uint64_t contents; /* all of the content may be lost for good */
    uint64_t records;  /* mode and times may be lost for good; size too with contents */
    uint64_t attrs;    /* an attribute may be lost for good */
    uint64_t listing;  /* directories: their names may not be listed until repaired */
    bool refusable;    /* the volume may be refused until repaired */
    bool beyond;       /* a repair may refuse as well */
    bool is_silent;    /* nobody can find it */
    bool hostile;      /* checksums are right: what is hit may say anything */
    bool is_dir_root;  /* the root directory is among them: it may not be listed */
    bool is_mended;    /* a repair brings back all content */
} Hit;

Hit *hit_new(void);
void hit_free(Hit *h);
void hit_object(const Tree *t, Hit *h, uint64_t id, uint64_t from, uint64_t to);

/* ---- classes ----------------------------------------------------------------------- */

typedef struct Class Class;
struct Class {
    const char *name;
    int kind, how;                                        /* its family's own */
    uint64_t (*positions)(const Tree *t, const Class *c); /* 0: there is nothing of it */
    void (*hurt)(Tree *t, const Class *c, uint64_t at, Hit *h);
};

void record_classes(GArray *classes);
void stored_classes(GArray *classes);

/* ---- what a user sees -------------------------------------------------------------- */

typedef struct View View;
struct View {
    int (*look)(View *v, const char *path, struct stat *st);
    int (*open)(View *v, const char *path, void **file);
    int (*read)(View *v, void *file, uint64_t at, void *dst, size_t len, size_t *got);
    void (*close)(View *v, void *file);
    /* Names into a set of owned strings. */
    int (*list)(View *v, const char *path, GHashTable *names);
    int (*attr)(View *v, const char *path, const char *name, void *dst, size_t cap,
                size_t *len);
    int (*target)(View *v, const char *path, char *dst, size_t cap, size_t *len);
    VjFs *fs;
    const char *root;
};

void view_of_fs(View *v, VjFs *fs);
void view_of_mount(View *v, const char *root);

/* ---- comparison -------------------------------------------------------------------- */

typedef struct Loss {
    uint64_t names, contents, attrs, listing; /* things, as bits */
    uint64_t bytes;
} Loss;

/*
 * Each thing is right or is lost where @h allows it; what is neither is a line in @wrong.
 * @after   the volume was repaired
 */
void compare(const Tree *t, View *v, const Hit *h, bool after, size_t step, Loss *loss,
             GString *wrong);

#endif
