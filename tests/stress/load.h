/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* load.h - what the parts of the load share */
#ifndef VJ_TEST_STRESS_LOAD_H
#define VJ_TEST_STRESS_LOAD_H

#include "history.h"

#define FILES_MAX 16u
#define PROCESSES_MAX 16u
#define THREADS_MAX 32u
#define EVENTS_MAX 128u     /* of a thread in a window */
#define RUNS_MAX (1u << 17) /* that it has seen */
#define WORD_BYTES 8u
#define WORDS_MAX (1u << 17) /* of one operation: what max_read takes */
#define POOL_WORDS WORDS_MAX
#define FILE_WORDS_MAX (1u << 20)

/* What is done with a file in one window; worker.c has the weights. */
typedef enum Mix { EDITS, WRITES, MIXED, MAPPED, MIXES } Mix;

typedef enum Plant {
    NO_PLANT,
    PLANT_TORN,   /* an edit is two */
    PLANT_STALE,  /* a read returns what the last one returned */
    PLANT_EARLY,  /* a write says that it has returned before it is called */
    PLANT_LOST,   /* a write is not done */
    PLANT_ABSENT, /* a rename takes the old name away first */
} Plant;

typedef struct Log {
    unsigned count; /* an entry is complete before it is counted */
    unsigned run_count;
    struct Logged {
        Event e;
        unsigned file;      /* or the number of files: the directory */
        bool through_cache; /* a read or write; else in one request */
    } entries[EVENTS_MAX];
    Run runs[RUNS_MAX];
} Log;

typedef struct FileWindow {
    Mix mix;
    unsigned phase;       /* bytes before word 0 */
    uint64_t limit_words; /* it should not get larger */
    uint64_t first_size;  /* its state when the window begins */
    unsigned first_count;
    Run first[RUNS_MAX];
} FileWindow;

typedef struct Window {
    uint64_t number, seed;
    unsigned ops;                    /* of a thread */
    FileWindow files[FILES_MAX + 1]; /* the last one stands for the directory */
    uint64_t first_names[NAMES];
    Log logs[THREADS_MAX + 1]; /* the last one is the parent's */
} Window;

typedef struct Totals {
    uint64_t windows, events, reads, slices, kills, explained, undecided, skipped, states;
    uint64_t states_most;
    uint64_t cleared; /* files whose cached pages had zeroes instead of data in the end */
} Totals;

/* Mapped into all processes at one address. */
typedef struct Shared {
    uint32_t started; /* windows, a futex */
    uint32_t ended;   /* threads that have ended their window, a futex */
    uint32_t next_op;
    uint32_t failed;
    bool stop;
    struct {
        uint32_t window; /* the last one that it has ended */
        const char *doing;
        uint64_t since_ns;
    } threads[THREADS_MAX];
    uint64_t size_words[FILES_MAX]; /* about */
    Totals totals;
    Window windows[2];
} Shared;

typedef struct Load {
    Shared *shared;
    const char *dir;
    uint64_t seconds, seed;
    unsigned processes, threads, files; /* threads of a process */
    Plant plant;
    Mix only; /* MIXES: all */
    bool kills;
    bool strict; /* nothing is forgiven that the kernel does to a page (README.md) */
} Load;

Window *load_window(const Load *l); /* the one that runs */
void load_fail(const Load *l, const char *format, ...)
    G_GNUC_PRINTF(2, 3) G_GNUC_NORETURN;
uint64_t load_now_ns(void);
void load_futex_wait(uint32_t *word, uint32_t value, unsigned timeout_ms);
void load_futex_wake(uint32_t *word);
char *load_path(const Load *l, const char *what, unsigned i);

/* One event into a log. */
struct Logged *log_begin(Log *log, Kind kind, unsigned file);
void log_call(Log *log, struct Logged *entry);
void log_return(struct Logged *entry);

void content_fill(void *dst, uint32_t op, uint32_t index, size_t words);
/* Into @log's runs; false: they are full. */
bool content_decode(const void *src, size_t words, Log *log, Event *e);

void worker_run(const Load *l, unsigned process) G_GNUC_NORETURN;

/* The histories of a window; false after a message. */
bool window_check(const Load *l, const Window *w);

#endif
