/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * model.h - random edits of several files of one volume, against plain byte arrays
 *
 *     model.c    options, rounds, remounts, the check after each
 *     ops.c      the operations; what each does to the file and to its shadow
 *     settings.c transformations and object sizes that change, and recoding
 *     history.c  readers beside the writers: each read shows one state the file had
 */
#ifndef VJ_TEST_MODEL_MODEL_H
#define VJ_TEST_MODEL_MODEL_H

#include "common.h"
#include "volume/volume.h"

/* States of a file that are kept for concurrent readers. */
#define STATES 12u

typedef struct State {
    uint64_t ino;
    size_t len;
    uint8_t *bytes;
} State;

/* One file.  Only its owner changes it; readers look at the part under lock. */
typedef struct ModelFile {
    unsigned number;
    VjFile *f; /* owner's */
    Shadow shadow;
    size_t last; /* where the last change ended: sequential access */
    uint32_t error_mark;
    VjRecode recode;        /* how far the owner has come */
    pthread_rwlock_t alive; /* readers hold it while they have the inode open */
    pthread_mutex_t lock;   /* not GLib's: checkers of races know these */
    pthread_cond_t published_changed;
    /* guarded by lock: */
    uint64_t ino;
    uint64_t begun, published; /* changes */
    State states[STATES];      /* by change number modulo STATES */
} ModelFile;

typedef struct Options {
    uint64_t ops, seed, rounds;
    unsigned threads, readers, recoders, files, conflicts, faults;
    uint64_t size; /* most bytes of a file */
    const char *objects, *chunker, *dir;
    bool verbose, read_data;
    char *again; /* all of them, as on the command line */
} Options;

typedef struct Model {
    Options o;
    char *source;
    VjVolume *v;
    DataPool pool;
    ModelFile *files; /* o.threads × o.files, then the shared ones */
    unsigned file_count;
    gint stop_readers;                   /* atomic */
    gint64 reads_checked, reads_skipped; /* atomic */
    gint64 recodings;                    /* atomic */
} Model;

#define SHARED_FILES 2u

/* One thread that edits. */
typedef struct Worker {
    Model *m;
    unsigned number;
    VjRng rng;
    uint64_t op, until; /* numbers of operations */
    ModelFile *files;   /* its own, o.files of them */
    uint8_t *data, *back;
    GThread *thread;
} Worker;

/* Says what went wrong where, and how to run it again; ends the process. */
void fail(const Worker *w, const char *format, ...) G_GNUC_PRINTF(2, 3) G_GNUC_NORETURN;
/* Fails unless @r is 0. */
void must(const Worker *w, int r, const char *what);

#define say(w, ...)                                                                      \
    do {                                                                                 \
        if ((w)->m->o.verbose) {                                                         \
            g_autofree char *text_ = g_strdup_printf(__VA_ARGS__);                       \
            g_printerr("%u.%" G_GUINT64_FORMAT " %s\n", (w)->number, (w)->op, text_);    \
        }                                                                                \
    } while (0)

/* Faults are on and this was one: once more. */
static inline bool is_fault(const Worker *w, int r)
{
    return r == -EIO && w->m->o.faults > 0;
}

/* @call until it does not meet a fault; what does not go away is none. */
#define MUST(w, what, call)                                                              \
    do {                                                                                 \
        int r_ = (call);                                                                 \
                                                                                         \
        for (unsigned i_ = 0; i_ < 1000 && is_fault(w, r_); i_++) {                      \
            r_ = (call);                                                                 \
        }                                                                                \
        must(w, r_, what);                                                               \
    } while (0)

/* settings.c */
void choose_settings(Worker *w, unsigned number, uint64_t ino);
void op_choose(Worker *w, ModelFile *f);
void op_recode(Worker *w, ModelFile *f);
void op_recode_all(Worker *w, ModelFile *f);
/* Recodes files of all workers until told to stop. */
gpointer recoder_main(gpointer worker);

/* ops.c */
void file_create(Worker *w, ModelFile *f);
void file_compare(Worker *w, ModelFile *f);
void run_op(Worker *w);

/* history.c */
void history_init(ModelFile *f);
void history_clear(ModelFile *f);
/* Around each change: what readers may see. */
void change_begin(Model *m, ModelFile *f);
void change_end(Model *m, ModelFile *f);
gpointer reader_main(gpointer worker);

#endif
