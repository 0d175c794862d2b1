/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rounds.h - a few concurrent operations on one small file, and which results are
 * possible
 *
 * rounds-check.c decides, and rounds-kernel.c whether the kernel alone is to blame;
 * they know neither mounts nor threads (test-rounds.c tests them).  rounds-make.c draws
 * the operations, rounds-work.c does them, rounds.c runs the rounds and looks at the
 * file through every view.
 */
#ifndef VJ_TEST_STRESS_ROUNDS_H
#define VJ_TEST_STRESS_ROUNDS_H

#include "base/base.h"

#define ROUND_OPS 4u
#define ROUND_PAGE ((size_t)4096)
#define OP_BYTES ((size_t)24 << 10) /* what one operation writes or reads, at most */
#define FILE_BYTES                                                                       \
    ((size_t)96 << 10) /* the file, whatever the operations of a round do */

typedef enum OpKind {
    OP_WRITE,
    OP_APPEND,
    OP_INSERT,
    OP_DELETE,
    OP_REPLACE,
    OP_APPEND_EDIT, /* rwrite on an O_APPEND descriptor */
    OP_TRUNCATE,
    OP_PUNCH,
    OP_ZERO,
    OP_ZERO_KEEP,
    OP_ALLOCATE,
    OP_STORE,     /* one store of 1, 2, 4 or 8 bytes through a mapping */
    OP_COPY,      /* copy_file_range from a file that never changes */
    OP_COPY_SELF, /* within the file */
    OP_READ,
    OP_TAIL, /* reads at what was the end until something is there, as tail -f does */
    OP_LOAD, /* one load through a mapping */
    OP_STAT,
    OP_DROP, /* POSIX_FADV_DONTNEED */
    OP_SYNC, /* fsync or msync */
    OP_REOPEN,
    OP_KINDS
} OpKind;

typedef struct OpClass {
    const char *name;
    unsigned weight;
    bool changes; /* the file, whether or not it does so here */
    bool edits;   /* needs librwrite to be one step */
    bool looks;   /* Op.bytes or Op.result says what it saw */
    bool direct;  /* may go by an O_DIRECT descriptor */
} OpClass;

extern const OpClass op_classes[OP_KINDS];

typedef struct Op {
    OpKind kind;
    bool direct;
    bool variant;      /* rwrite, truncate by name, msync, a descriptor that only reads */
    uint32_t delay_ns; /* before it begins */
    uint64_t offset;   /* OP_TRUNCATE: the new size */
    uint64_t len;      /* bytes written, read, zeroed; new bytes of an edit */
    uint64_t old_len;  /* of an edit */
    uint64_t source;   /* OP_COPY, OP_COPY_SELF: where it copies from */

    /* what became of it */
    int64_t result;   /* of the call, or -errno */
    int64_t position; /* of the descriptor behind an append, else -1 */
    uint64_t called_ns, returned_ns;
    bool bus_error; /* OP_STORE, OP_LOAD */

    uint8_t bytes[OP_BYTES]; /* what it writes; what it has read */
} Op;

/* A file as it may be.  What is behind @size is zero, but for what was stored there. */
typedef struct Content {
    uint64_t size;
    uint8_t bytes[FILE_BYTES];
} Content;

static inline uint64_t page_end(uint64_t size)
{
    return (size + ROUND_PAGE - 1) / ROUND_PAGE * ROUND_PAGE;
}

typedef struct Round {
    Content before; /* nobody was at work */
    Op ops[ROUND_OPS];
    unsigned op_count;
    bool is_dirty;     /* a page, by a store before the round */
    uint64_t dirty_at; /* where that was */
    bool exact_reads;  /* a direct read sees all of what is one request, or nothing */
} Round;

/* How near the nearest possible result is, when none is right. */
typedef struct Nearest {
    unsigned order[ROUND_OPS]; /* ends with ROUND_OPS where fewer matter */
    Content content;
    uint64_t different;    /* bytes; another size is worse than any bytes */
    bool size_is_possible; /* of any order */
} Nearest;

typedef enum Verdict {
    VERDICT_RIGHT,
    /* The content is right, where an append says that it stands is not. */
    VERDICT_POSITION,
    VERDICT_RESULT,   /* the content is right, what the calls returned is not */
    VERDICT_WRONG
} Verdict;

/*
 * round_judge - is @seen what one of the possible orders leaves behind?
 *
 * An order is possible when each operation that had returned before another one was
 * called comes before it, and when each returned what it does there.  Calls that failed
 * have not happened.  @nearest may be NULL; it is set when the verdict is VERDICT_WRONG.
 */
Verdict round_judge(const Round *round, const Content *seen, Nearest *nearest);

/* Bytes of the file or of its pages that a fault of the kernel may have changed. */
typedef struct Damage {
    bool zeroed[FILE_BYTES]; /* they may be zero */
    bool undone[FILE_BYTES]; /* they may be as if some of @undoes had not happened */
    unsigned undoes;         /* operations, bits */
} Damage;

/* Is the verdict VERDICT_RIGHT but for bytes that @damage explains? */
bool round_is_right_but(const Round *round, const Content *seen, const Damage *damage);
/* Sets @excused (FILE_BYTES) where @damage explains the byte of @seen. */
void round_excuse(const Round *round, const Content *seen, const Damage *damage,
                  bool *excused);

typedef enum ReadFault {
    READ_RIGHT,
    READ_ZEROES, /* that nobody has written */
    READ_BYTES,  /* that were never there, or no longer */
    READ_SIZE,   /* it ends where the file never did; OP_STAT: a size that it never had */
} ReadFault;

/*
 * round_judge_look - could operation @index see what it has seen?
 *
 * Byte by byte: each must be there in some state between its call and its return, or be
 * explained by @damage (NULL: none).  A cached read may have pages of different
 * moments.
 */
ReadFault round_judge_look(const Round *round, unsigned index, const Damage *damage);

/* A state of the file that a possible order goes through; @done: operations (bits) that
 * have happened or are no part of the order. */
typedef void RoundVisit(void *opaque, const Content *content, unsigned done);

/* All such states; @without: operations (bits) that are left out. */
void round_visit(const Round *round, unsigned without, RoundVisit *visit, void *opaque);

/* What is wrong with @seen, in one word, when @nearest is the best that can be said of
 * it. */
const char *round_name_fault(const Round *round, const Content *seen,
                             const Nearest *nearest);

/*
 * What the kernel's FUSE client loses by itself, whatever the daemon does (README.md):
 * which operations have to overlap, and which bytes are then wrong in which way, is in
 * rounds-kernel.c.
 */
typedef enum KernelFault {
    KERNEL_NONE,
    KERNEL_APPEND, /* to a dirty page that is written back meanwhile */
    KERNEL_COPY,   /* copy_file_range to a page that is stored into */
    KERNEL_PUNCH,  /* of a page that is stored into and written back meanwhile */
    KERNEL_DIRECT, /* a direct write to a page that is stored into */
    /* A cached page is read while a direct write or an edit makes the file longer. */
    KERNEL_GROWTH,
    KERNEL_FAULTS
} KernelFault;

extern const char *const kernel_fault_names[KERNEL_FAULTS];

/* The one that explains what is wrong, if there is one; beside an edit there is none. */
KernelFault round_kernel_fault(const Round *round, const Content *seen);
/* Of a view of the file that differs from @truth, which is right. */
KernelFault round_kernel_fault_of_view(const Round *round, const Content *view,
                                       const Content *truth);
KernelFault round_kernel_fault_of_look(const Round *round, unsigned index);

/* A write, or an edit that librwrite makes by one: as many bytes for as many. */
bool op_is_write(const Op *op);

/* Through a mapping, by one of its operations. */
bool round_stores(const Round *round);

/* Fills op->bytes with what identifies it: no zero, and another sequence for each @id. */
void op_fill(Op *op, uint64_t id);
void op_print(const Op *op, uint64_t from_ns, GString *out);

/* rounds-make.c */
typedef struct Choice {
    unsigned weights[OP_KINDS];
    bool direct;           /* O_DIRECT is to be had */
    uint64_t direct_align; /* of offsets and lengths */
    unsigned most;         /* operations at once */
    bool strict;           /* direct writes beside stores through a mapping, too */
    const uint8_t *source; /* OP_COPY's file, SOURCE_BYTES */
} Choice;

#define SOURCE_BYTES ((size_t)64 << 10)

uint64_t any_size(VjRng *rng);
void round_make(Round *round, VjRng *rng, const Choice *choice, uint64_t id);

/* rounds-views.c */
typedef enum ViewKind {
    VIEW_BUFFERED,
    VIEW_FRESH, /* a descriptor that has just been opened */
    VIEW_DIRECT,
    VIEW_MAPPED, /* whole pages; its size is theirs */
    VIEW_FSTAT,
    VIEW_STAT,
    VIEW_END, /* lseek */
    VIEW_KINDS
} ViewKind;

extern const char *const view_names[VIEW_KINDS];

typedef struct Views {
    const char *path;
    int fd, direct;           /* open all the time; no O_DIRECT: -1 */
    uint8_t *mapping;         /* FILE_BYTES of the file */
    uint8_t *aligned;         /* FILE_BYTES, for O_DIRECT */
    Content seen[VIEW_KINDS]; /* of some the size alone */
} Views;

/* In any order: each of them may put the next one right. */
void views_take(Views *v, VjRng *rng);
bool view_has_bytes(ViewKind kind);
/* NULL: it agrees with what is read past the cache.  @stores: bytes may be behind the
 * end. */
const char *view_fault(const Views *v, ViewKind kind, bool stores);
bool views_agree(const Views *v, bool stores);
bool view_shows_bytes_behind(const Content *mapped, uint64_t size);

/* rounds-report.c */
typedef struct Report {
    uint64_t seed, round, violations, kernel_faults, growths;
    uint64_t done[OP_KINDS];
    unsigned show;      /* of each kind, in full */
    GHashTable *counts; /* kind, and kind with operations -> uint64_t */
} Report;

/* True: it is to be told in full.  What the kernel does by itself has a name of its
 * own. */
bool report_violation(Report *r, const Round *round, const char *fault,
                      KernelFault by_kernel);
void report_round(const Report *r, const Round *round, const char *why);
/* The first ranges in which two contents differ. */
void print_difference(const Round *round, const Content *seen, const Content *right);
void report_figures(const Report *r, double seconds);

/* rounds-work.c */
G_NORETURN void die(const char *what);
typedef struct Shared {
    uint32_t go[ROUND_OPS]; /* futex: the number of the round that the worker is to do */
    uint32_t running;       /* futex: workers that have not done theirs */
    uint32_t changing;      /* of them, those whose operation changes the file */
    uint32_t quit;
    uint32_t generation; /* of the file: another number, another file */
    char path[4096], source[4096];
    bool direct;
    Round round;
} Shared;

G_NORETURN void worker_run(Shared *shared, unsigned number);
uint64_t now_ns(void);
void futex_wait(uint32_t *word, uint32_t value, unsigned timeout_ms);
void futex_wake(uint32_t *word);

/* Copies pages of a mapping until one has none in the file; returns the bytes copied. */
size_t mapping_copy(const uint8_t *mapping, uint8_t *dst, size_t len);
/* One access of 1, 2, 4 or 8 bytes; false: SIGBUS. */
bool mapping_store(uint8_t *mapping, const uint8_t *src, size_t len);
bool mapping_load(const uint8_t *mapping, uint8_t *dst, size_t len);
void mapping_handle_bus_errors(void);

#endif
