/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* worker.c - the processes and threads that use the files */
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/raw-edit.h"

#define PAGE 4096u
#define FAR_WORDS 1024u        /* from the end: no page in which it moves */
#define CACHED_WORDS_MAX 8192u /* of a read through the page cache */

typedef struct OpenFile {
    int plain, append, append_direct, direct_read, direct_write;
    uint8_t *map;
    size_t map_bytes;
} OpenFile;

typedef struct Worker {
    const Load *l;
    unsigned thread;
    VjRng rng;
    Window *w;
    Log *log;
    OpenFile files[FILES_MAX];
    int pool, names;
    uint8_t *bytes, *before; /* WORDS_MAX and a page */
    size_t before_words;
} Worker;

typedef struct Operation {
    const char *name;
    void (*run)(Worker *w, unsigned file);
    unsigned weights[MIXES];
} Operation;

static __thread sigjmp_buf beyond_end;
static __thread volatile sig_atomic_t in_mapping;

static void on_bus(int signal_number)
{
    if (!in_mapping) {
        (void)signal(signal_number, SIG_DFL);
        (void)raise(signal_number);
        return;
    }
    siglongjmp(beyond_end, 1);
}

static uint64_t below(Worker *w, uint64_t bound)
{
    return vj_rng_below(&w->rng, bound);
}

static const FileWindow *window_of(const Worker *w, unsigned file)
{
    return &w->w->files[file];
}

static off_t byte_of(const Worker *w, unsigned file, uint64_t word)
{
    return (off_t)(window_of(w, file)->phase + word * WORD_BYTES);
}

static uint64_t size_of(const Worker *w, unsigned file)
{
    return __atomic_load_n(&w->l->shared->size_words[file], __ATOMIC_RELAXED);
}

static void size_is(const Worker *w, unsigned file, uint64_t words)
{
    __atomic_store_n(&w->l->shared->size_words[file], words, __ATOMIC_RELAXED);
}

static uint32_t new_op(const Worker *w)
{
    return __atomic_fetch_add(&w->l->shared->next_op, 1, __ATOMIC_RELAXED);
}

/* Mostly short. */
static uint64_t any_length(Worker *w, uint64_t most)
{
    switch (below(w, 8)) {
    case 0:
        return 1 + below(w, most);
    case 1:
    case 2:
        return 1 + below(w, MIN(most, 2100));
    case 3:
        return MIN(most, PAGE / WORD_BYTES);
    default:
        return 1 + below(w, MIN(most, 40));
    }
}

static uint64_t any_word(Worker *w, unsigned file)
{
    uint64_t size = size_of(w, file);

    switch (below(w, 12)) {
    case 0:
        return size;
    case 1:
        return 0;
    case 2:
        return size + below(w, 50);
    case 3:
        return below(w, size / 512 + 1) * 512;
    default:
        return below(w, size + 1);
    }
}

/* Room for so many words more. */
static uint64_t room(Worker *w, unsigned file)
{
    uint64_t size = size_of(w, file), limit = window_of(w, file)->limit_words;

    return size >= limit ? 0 : MIN(limit - size, WORDS_MAX);
}

/* ---- edits */

static void stage(Worker *w, int fd, const uint8_t *src, size_t len, uint64_t *id)
{
    union {
        struct varjfs_stage head;
        uint8_t bytes[VARJFS_IOC_MAX];
    } argument;
    size_t done = 0;

    *id = 0;
    while (done < len) {
        size_t part = MIN(len - done, VARJFS_STAGE_DATA_MAX);

        argument.head = (struct varjfs_stage){
            .version = VARJFS_IOC_VERSION, .stage_id = *id, .offset = done, .len = part};
        memcpy(argument.bytes + sizeof(argument.head), src + done, part);
        if (ioctl(fd, VARJFS_IOC_STAGE(part), &argument) != 0) {
            load_fail(w->l, "stage: %s", strerror(errno));
        }
        *id = argument.head.stage_id;
        done += part;
    }
}

static void edit(Worker *w, int fd, const struct varjfs_edit *want, const void *src,
                 struct varjfs_edit *got)
{
    union {
        struct varjfs_edit head;
        uint8_t bytes[VARJFS_IOC_MAX];
    } argument = {.head = *want};
    bool is_inline = want->len <= VARJFS_EDIT_INLINE_MAX;

    argument.head.version = VARJFS_IOC_VERSION;
    if (is_inline) {
        memcpy(argument.bytes + sizeof(argument.head), src, want->len);
    }
    if (raw_edit(fd, &argument.head, is_inline ? want->len : 0) != 0) {
        load_fail(w->l, "edit: %s", strerror(errno));
    }
    *got = argument.head;
}

static void edit_once(Worker *w, unsigned file, struct Logged *entry)
{
    int fd = w->files[file].plain;
    struct varjfs_edit want = {.offset = (uint64_t)byte_of(w, file, entry->e.at),
                               .old_len = entry->e.old_len * WORD_BYTES,
                               .len = entry->e.len * WORD_BYTES},
                       got;
    uint64_t size;

    if (want.len > VARJFS_EDIT_INLINE_MAX) {
        uint64_t id;

        stage(w, fd, w->bytes, want.len, &id);
        want.flags = VARJFS_EDIT_STAGED;
        want.stage_id = id;
    }
    log_call(w->log, entry);
    if (w->l->plant == PLANT_TORN && want.old_len > 0 && want.len > 0) {
        struct varjfs_edit cut = {.offset = want.offset, .old_len = want.old_len};

        edit(w, fd, &cut, NULL, &got);
        want.old_len = 0;
    }
    edit(w, fd, &want, w->bytes, &got);
    if ((got.size - window_of(w, file)->phase) % WORD_BYTES != 0) {
        load_fail(w->l, "file %u has %llu bytes after an edit", file,
                  (unsigned long long)got.size);
    }
    size = (got.size - window_of(w, file)->phase) / WORD_BYTES;
    size_is(w, file, size);
    /* Only what grows is not carried out where the size has changed since it was
     * staged. */
    if (got.carry.call == VARJFS_CARRY_NOTHING ||
        (got.carry.call == VARJFS_CARRY_FALLOCATE && got.carry.mode == 0)) {
        entry->e.size_after = size;
    }
    log_return(entry);
}

static void run_edit(Worker *w, unsigned file)
{
    struct Logged *entry = log_begin(w->log, EDIT, file);
    Event *e = &entry->e;
    uint64_t free_words = room(w, file), size = size_of(w, file);
    unsigned what = (unsigned)below(w, 10);

    if (window_of(w, file)->mix >= MIXED) {
        size = MIN(size / 8, FAR_WORDS / 16);
    }
    e->at = any_word(w, file);
    e->op = new_op(w);
    if (what < 4 && free_words > 0) { /* insert */
        e->len = any_length(w, free_words);
    } else if (what < 6 || free_words == 0) { /* delete */
        e->at = below(w, size_of(w, file) + 1);
        e->old_len = any_length(w, MAX(size / (free_words == 0 ? 1 : 4), 1));
    } else { /* replace */
        e->len = any_length(w, free_words);
        e->old_len = any_length(w, MAX(size / 2, 1));
    }
    content_fill(w->bytes, e->op, 0, e->len);
    edit_once(w, file, entry);
}

/* ---- writes */

static void must_be(const Worker *w, const char *what, ssize_t got, uint64_t words)
{
    if (got < 0 || (uint64_t)got != words * WORD_BYTES) {
        load_fail(w->l, "%s of %llu words: %zd, %s", what, (unsigned long long)words, got,
                  got < 0 ? strerror(errno) : "short");
    }
}

static void finish_write(Worker *w, struct Logged *entry, const char *what, int fd,
                         bool at_end)
{
    Event *e = &entry->e;
    ssize_t n = (ssize_t)(e->len * WORD_BYTES);

    content_fill(w->bytes, e->op, 0, e->len);
    log_call(w->log, entry);
    if (w->l->plant == PLANT_EARLY) {
        log_return(entry);
    }
    if (w->l->plant != PLANT_LOST || below(w, 8) > 0) {
        n = at_end ? write(fd, w->bytes, e->len * WORD_BYTES)
                   : pwrite(fd, w->bytes, e->len * WORD_BYTES,
                            byte_of(w, entry->file, e->at));
    }
    must_be(w, what, n, e->len);
    if (w->l->plant != PLANT_EARLY) {
        log_return(entry);
    }
    if (!at_end && e->at + e->len > size_of(w, entry->file)) {
        size_is(w, entry->file, e->at + e->len);
    }
}

static struct Logged *begin_write(Worker *w, unsigned file, Kind kind)
{
    struct Logged *entry = log_begin(w->log, kind, file);
    uint64_t free_words = room(w, file), size = size_of(w, file);

    entry->e.at = free_words > 0 ? any_word(w, file) : below(w, size);
    entry->e.op = new_op(w);
    entry->e.len = any_length(w, MIN(free_words > 0 ? free_words : size - entry->e.at,
                                     WORDS_MAX - PAGE / WORD_BYTES));
    return entry;
}

static void run_write(Worker *w, unsigned file)
{
    struct Logged *entry = begin_write(w, file, WRITE);
    uint64_t half = size_of(w, file) / 2;

    entry->through_cache = true;
    if (window_of(w, file)->mix == MIXED) { /* far from the end: see README.md */
        if (half < FAR_WORDS) {
            return;
        }
        entry->e.at = below(w, half);
        entry->e.len = MIN(entry->e.len, half - entry->e.at);
    }
    finish_write(w, entry, "write", w->files[file].plain, false);
}

static void run_write_direct(Worker *w, unsigned file)
{
    finish_write(w, begin_write(w, file, WRITE), "direct write",
                 w->files[file].direct_write, false);
}

static void run_append(Worker *w, unsigned file)
{
    struct Logged *entry;

    if (room(w, file) == 0) {
        return;
    }
    entry = log_begin(w->log, APPEND, file);
    entry->e.op = new_op(w);
    entry->e.len = 1;
    finish_write(w, entry, "append", w->files[file].append, true);
    size_is(w, file, size_of(w, file) + 1);
}

static void run_append_direct(Worker *w, unsigned file)
{
    struct Logged *entry;

    if (room(w, file) == 0) {
        return;
    }
    entry = log_begin(w->log, APPEND, file);
    entry->e.op = new_op(w);
    entry->e.len = any_length(w, MIN(room(w, file), 4096));
    finish_write(w, entry, "direct append", w->files[file].append_direct, true);
    /* Not before: stores into mappings keep away from the end that there was, too. */
    size_is(w, file, size_of(w, file) + entry->e.len);
}

static void run_copy(Worker *w, unsigned file)
{
    struct Logged *entry = begin_write(w, file, WRITE);
    Event *e = &entry->e;
    off_t from, to = byte_of(w, file, e->at);
    ssize_t n;

    e->op = OP_POOL;
    e->index = (uint32_t)below(w, POOL_WORDS - e->len + 1);
    from = (off_t)(e->index * WORD_BYTES);
    log_call(w->log, entry);
    n = copy_file_range(w->pool, &from, w->files[file].plain, &to, e->len * WORD_BYTES,
                        0);
    if (n <= 0 || n % WORD_BYTES != 0) {
        load_fail(w->l, "copy_file_range of %llu words: %zd, %s",
                  (unsigned long long)e->len, n, strerror(errno));
    }
    e->len = (uint64_t)n / WORD_BYTES;
    log_return(entry);
}

static void run_truncate(Worker *w, unsigned file)
{
    struct Logged *entry = log_begin(w->log, TRUNCATE, file);
    uint64_t size = size_of(w, file), free_words = room(w, file), cut;

    cut = below(w, 4) > 0 ? below(w, 100) : below(w, size + 1);
    if (free_words > 0 && below(w, 4) == 0) {
        entry->e.at = size + below(w, MIN(free_words, 600));
    } else {
        entry->e.at = size - MIN(size, cut);
    }
    log_call(w->log, entry);
    if (ftruncate(w->files[file].plain, byte_of(w, file, entry->e.at)) != 0) {
        load_fail(w->l, "ftruncate: %s", strerror(errno));
    }
    size_is(w, file, entry->e.at);
    log_return(entry);
}

/* SIGBUS: the file has no such page. */
static void was_beyond_end(struct Logged *entry)
{
    entry->e.kind = READ;
    entry->e.len = 0;
    entry->e.to_the_end = true;
    entry->through_cache = true;
    log_return(entry);
}

static void run_store(Worker *w, unsigned file)
{
    OpenFile *f = &w->files[file];
    uint64_t word, half = MIN(size_of(w, file) / 2, f->map_bytes / WORD_BYTES);
    struct Logged *entry;

    if (half < FAR_WORDS) {
        return;
    }
    entry = log_begin(w->log, STORE, file);
    entry->e.at = below(w, half);
    entry->e.op = new_op(w);
    entry->e.len = 1;
    content_fill(&word, entry->e.op, 0, 1);
    log_call(w->log, entry);
    if (sigsetjmp(beyond_end, 1) == 0) {
        in_mapping = 1;
        __atomic_store_n((uint64_t *)(void *)f->map + entry->e.at, word,
                         __ATOMIC_SEQ_CST);
        log_return(entry);
    } else {
        was_beyond_end(entry);
    }
    in_mapping = 0;
}

/* ---- reads */

static void saw(Worker *w, struct Logged *entry, const uint8_t *bytes, uint64_t wanted,
                size_t got)
{
    /* The kernel looks at its size before each page. */
    if (got % WORD_BYTES != 0 &&
        (!entry->through_cache ||
         (uint64_t)(byte_of(w, entry->file, entry->e.at)) % PAGE !=
             (PAGE - got % PAGE) % PAGE)) {
        load_fail(w->l, "a read of %llu words of file %u gave %zu bytes",
                  (unsigned long long)wanted, entry->file, got);
    }
    entry->e.to_the_end = got / WORD_BYTES < wanted;
    if (content_decode(bytes, got / WORD_BYTES, w->log, &entry->e)) {
        __atomic_store_n(&entry->e.has_returned, true, __ATOMIC_RELEASE);
    }
}

static void run_read(Worker *w, unsigned file)
{
    struct Logged *entry = log_begin(w->log, READ, file);
    bool stale = w->l->plant == PLANT_STALE;
    uint64_t words = stale              ? 600
                     : below(w, 3) == 0 ? WORDS_MAX - 1
                                        : any_length(w, WORDS_MAX - 1);
    ssize_t n;

    entry->e.at = stale || below(w, 3) == 0 ? 0 : any_word(w, file);
    log_call(w->log, entry);
    n = pread(w->files[file].direct_read, w->bytes, words * WORD_BYTES,
              byte_of(w, file, entry->e.at));
    entry->e.returned_ns = load_now_ns();
    if (n < 0) {
        load_fail(w->l, "direct read: %s", strerror(errno));
    }
    if (stale && file == 0 && n == 600 * WORD_BYTES) {
        if (w->before_words > 0 && below(w, 4) == 0) {
            memcpy(w->bytes, w->before, (size_t)n);
        }
        memcpy(w->before, w->bytes, (size_t)n);
        w->before_words = 600;
    }
    saw(w, entry, w->bytes, words, (size_t)n);
}

static void run_read_cached(Worker *w, unsigned file)
{
    struct Logged *entry = log_begin(w->log, READ, file);
    uint64_t words = any_length(w, CACHED_WORDS_MAX);
    ssize_t n;

    entry->through_cache = true;
    entry->e.at = any_word(w, file);
    log_call(w->log, entry);
    n = pread(w->files[file].plain, w->bytes, words * WORD_BYTES,
              byte_of(w, file, entry->e.at));
    entry->e.returned_ns = load_now_ns();
    if (n < 0) {
        load_fail(w->l, "read: %s", strerror(errno));
    }
    saw(w, entry, w->bytes, words, (size_t)n);
}

/* Within the page of the end the kernel has zeroes. */
static void run_read_mapped(Worker *w, unsigned file)
{
    struct Logged *entry = log_begin(w->log, READ, file);
    OpenFile *f = &w->files[file];
    uint64_t words = 1 + below(w, 12), at;

    at = below(w, MIN(size_of(w, file) + 1, (f->map_bytes - 4 * PAGE) / WORD_BYTES));
    entry->through_cache = true;
    entry->e.at = at;
    log_call(w->log, entry);
    if (sigsetjmp(beyond_end, 1) == 0) {
        in_mapping = 1;
        memcpy(w->bytes, f->map + byte_of(w, file, at), words * WORD_BYTES);
        in_mapping = 0;
        entry->e.returned_ns = load_now_ns();
        entry->e.is_mapped = true;
        saw(w, entry, w->bytes, words, words * WORD_BYTES);
    } else {
        entry->e.at += words;
        was_beyond_end(entry);
    }
    in_mapping = 0;
}

/* ---- what changes no content */

static void open_files(Worker *w, unsigned file)
{
    OpenFile *f = &w->files[file];
    g_autofree char *path = load_path(w->l, "file", file);

    f->plain = open(path, O_RDWR | O_CLOEXEC);
    f->append = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    f->append_direct = open(path, O_WRONLY | O_APPEND | O_DIRECT | O_CLOEXEC);
    f->direct_read = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    f->direct_write = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (f->plain < 0 || f->append < 0 || f->append_direct < 0 || f->direct_read < 0 ||
        f->direct_write < 0) {
        load_fail(w->l, "open %s: %s", path, strerror(errno));
    }
    f->map_bytes = window_of(w, file)->limit_words * WORD_BYTES + 8 * PAGE;
    f->map = mmap(NULL, f->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->plain, 0);
    if (f->map == MAP_FAILED) {
        load_fail(w->l, "mmap: %s", strerror(errno));
    }
}

static void close_files(Worker *w, unsigned file)
{
    OpenFile *f = &w->files[file];
    int fds[] = {f->plain, f->append, f->append_direct, f->direct_read, f->direct_write};

    munmap(f->map, f->map_bytes);
    for (unsigned i = 0; i < G_N_ELEMENTS(fds); i++) {
        if (close(fds[i]) != 0) {
            load_fail(w->l, "close: %s", strerror(errno));
        }
    }
}

static void run_reopen(Worker *w, unsigned file)
{
    close_files(w, file);
    open_files(w, file);
}

static void run_sync(Worker *w, unsigned file)
{
    OpenFile *f = &w->files[file];
    int r = below(w, 3) == 0 ? fdatasync(f->append) : fsync(f->plain);

    if (r == 0 && below(w, 3) == 0) {
        r = msync(f->map, f->map_bytes, MS_SYNC);
    }
    if (r != 0) {
        load_fail(w->l, "fsync: %s", strerror(errno));
    }
}

static void run_drop(Worker *w, unsigned file)
{
    (void)posix_fadvise(w->files[file].plain, 0, 0, POSIX_FADV_DONTNEED);
}

/*                                       edits writes mixed mapped */
static const Operation operations[] = {
    {"edit", run_edit, {30, 0, 25, 25}},
    {"write", run_write, {0, 22, 14, 0}},
    {"append", run_append, {0, 6, 0, 0}},
    {"direct append", run_append_direct, {4, 8, 6, 6}},
    {"direct write", run_write_direct, {6, 8, 5, 0}},
    {"copy_file_range", run_copy, {4, 4, 4, 0}},
    {"truncate", run_truncate, {3, 5, 0, 0}},
    {"mapped store", run_store, {0, 0, 0, 30}},
    {"direct read", run_read, {25, 25, 25, 0}},
    {"read", run_read_cached, {22, 22, 22, 16}},
    {"mapped read", run_read_mapped, {10, 6, 8, 12}},
    {"fsync", run_sync, {3, 3, 3, 3}},
    {"reopen", run_reopen, {2, 2, 2, 2}},
    {"drop", run_drop, {2, 2, 0, 2}}, /* a WRITE would wait two seconds */
};

/* ---- names */

static void run_name(Worker *w)
{
    static const Kind kinds[] = {LOOK_UP, LOOK_UP, LOOK_UP, CREATE, CREATE,
                                 UNLINK,  RENAME,  RENAME,  LINK,   EXCHANGE};
    struct Logged *entry =
        log_begin(w->log, kinds[below(w, G_N_ELEMENTS(kinds))], w->l->files);
    Event *e = &entry->e;
    char a[] = {'n', (char)('0' + below(w, NAMES)), 0},
         b[] = {'n', (char)('0' + below(w, NAMES)), 0};
    struct stat st = {0};
    int r = 0, fd = -1;

    e->a = (unsigned)(a[1] - '0');
    e->b = (unsigned)(b[1] - '0');
    /* linkat(2) by name would look the name up first, which is an operation of its
     * own. */
    if (e->kind == LINK) {
        e->since_ns = load_now_ns();
        fd = openat(w->names, a, O_PATH | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0) {
            return;
        }
        e->inode = st.st_ino;
    }
    log_call(w->log, entry);
    switch (e->kind) {
    case LOOK_UP:
        r = fstatat(w->names, a, &st, AT_SYMLINK_NOFOLLOW);
        break;
    case CREATE:
        fd = openat(w->names, a, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        r = fd < 0 || fstat(fd, &st) != 0 ? -1 : 0;
        break;
    case UNLINK:
        r = unlinkat(w->names, a, 0);
        break;
    case RENAME:
        if (w->l->plant == PLANT_ABSENT && e->a != e->b &&
            faccessat(w->names, a, F_OK, 0) == 0) {
            (void)unlinkat(w->names, b, 0);
        }
        r = renameat(w->names, a, w->names, b);
        break;
    case LINK:
        r = linkat(fd, "", w->names, b, AT_EMPTY_PATH);
        break;
    default:
        r = renameat2(w->names, a, w->names, b, RENAME_EXCHANGE);
    }
    e->error = r == 0 ? 0 : errno;
    e->inode = st.st_ino;
    if (e->error != 0 && e->error != ENOENT && e->error != EEXIST) {
        load_fail(w->l, "names %s, %s: operation %d: %s", a, b, (int)e->kind,
                  strerror(e->error));
    }
    log_return(entry);
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* ---- threads */

static const Operation *any_operation(Worker *w, Mix mix)
{
    uint64_t total = 0, chosen;
    size_t i;

    for (i = 0; i < G_N_ELEMENTS(operations); i++) {
        total += operations[i].weights[mix];
    }
    chosen = below(w, total);
    for (i = 0; chosen >= operations[i].weights[mix]; i++) {
        chosen -= operations[i].weights[mix];
    }
    return &operations[i];
}

static void doing(Worker *w, const char *what)
{
    w->l->shared->threads[w->thread].doing = what;
    w->l->shared->threads[w->thread].since_ns = load_now_ns();
}

static void run_window(Worker *w)
{
    vj_rng_init(&w->rng, w->w->seed + w->thread);
    w->before_words = 0;
    doing(w, "open");
    for (unsigned f = 0; f < w->l->files; f++) {
        open_files(w, f);
    }
    for (unsigned i = 0; i < w->w->ops; i++) {
        unsigned file = (unsigned)below(w, w->l->files);

        if (below(w, 8) == 0) {
            doing(w, "an operation on names");
            run_name(w);
        } else {
            const Operation *o = any_operation(w, window_of(w, file)->mix);

            doing(w, o->name);
            o->run(w, file);
        }
    }
    doing(w, "close");
    for (unsigned f = 0; f < w->l->files; f++) {
        close_files(w, f);
    }
    doing(w, "nothing");
}

static gpointer thread_main(gpointer worker)
{
    Worker *w = worker;
    Shared *shared = w->l->shared;
    uint32_t ended =
        __atomic_load_n(&shared->threads[w->thread].window, __ATOMIC_RELAXED);

    while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE)) {
        uint32_t started = __atomic_load_n(&shared->started, __ATOMIC_ACQUIRE);

        if (started == ended) {
            load_futex_wait(&shared->started, started, 1000);
            if (getppid() == 1) {
                _exit(0);
            }
            continue;
        }
        w->w = load_window(w->l);
        w->log = &w->w->logs[w->thread];
        run_window(w);
        ended = started;
        __atomic_store_n(&shared->threads[w->thread].window, ended, __ATOMIC_RELEASE);
        __atomic_fetch_add(&shared->ended, 1, __ATOMIC_RELEASE);
        load_futex_wake(&shared->ended);
    }
    return NULL;
}

static void worker_init(Worker *w, const Load *l, unsigned thread)
{
    g_autofree char *pool = load_path(l, "pool", 0);
    g_autofree char *names = load_path(l, "names", 0);

    *w = (Worker){.l = l, .thread = thread};
    w->pool = open(pool, O_RDONLY | O_CLOEXEC);
    w->names = open(names, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->pool < 0 || w->names < 0 ||
        posix_memalign((void **)&w->bytes, PAGE, WORDS_MAX * WORD_BYTES + PAGE) != 0 ||
        posix_memalign((void **)&w->before, PAGE, WORDS_MAX * WORD_BYTES + PAGE) != 0) {
        load_fail(l, "worker: %s", strerror(errno));
    }
}

void worker_run(const Load *l, unsigned process)
{
    g_autofree Worker *workers = g_new0(Worker, l->threads);
    g_autofree pthread_t *ids = g_new0(pthread_t, l->threads);
    struct sigaction action = {.sa_handler = on_bus, .sa_flags = SA_NODEFER};

    sigaction(SIGBUS, &action, NULL);
    for (unsigned i = 0; i < l->threads; i++) {
        worker_init(&workers[i], l, process * l->threads + i);
        if (pthread_create(&ids[i], NULL, thread_main, &workers[i]) != 0) {
            load_fail(l, "no thread");
        }
    }
    for (unsigned i = 0; i < l->threads; i++) {
        pthread_join(ids[i], NULL);
    }
    _exit(0);
}
