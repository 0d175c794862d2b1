/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * attributes.c - what stat(2) shows beside edits
 *
 *     attributes DIR SECONDS SEED
 *
 * One process edits a file in DIR and asks for its attributes; others ask for them too,
 * by descriptor, by name, in a listing and by the name of a link, and change them with
 * chmod(2), utimensat(2) of atime alone and link(2); one calls fsync(2), so that the
 * kernel may keep what it is told.  Nobody else changes size or mtime: whoever asks when
 * an edit has been answered must see its size and a later mtime than was seen before it,
 * at the second look at the latest (the first may take what the answer to a change of
 * somebody else said).  Status 1 when somebody did not.
 */
#include "../lib/raw-edit.h"
#include "base/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE_LEAST ((uint64_t)20000)
#define SIZE_MOST ((uint64_t)200000)
#define EDIT_MOST 9000u

/* What has been answered, and what may come; in memory that all share. */
typedef struct Truth {
    uint64_t begun, done; /* edits; atomic */
    uint64_t size;        /* behind the last one that was answered */
    uint64_t looks, edits;
    int failures;
} Truth;

typedef struct Worker {
    Truth *truth;
    const char *file, *link, *name;
    int fd, dir_fd;
    int64_t until_us;
    VjRng rng;
    struct timespec mtime; /* that was seen last */
    uint64_t mtime_by;     /* edits that had begun when it came */
} Worker;

G_NORETURN static void die(const char *what)
{
    fprintf(stderr, "attributes: %s: %s\n", what, g_strerror(errno));
    exit(2);
}

static void fail(Worker *w, const char *how, const char *what, uint64_t got,
                 uint64_t expected)
{
    printf("%s: %s: %" G_GUINT64_FORMAT " instead of %" G_GUINT64_FORMAT
           ", after %" G_GUINT64_FORMAT " edits\n",
           how, what, got, expected, __atomic_load_n(&w->truth->done, __ATOMIC_SEQ_CST));
    fflush(stdout);
    __atomic_fetch_add(&w->truth->failures, 1, __ATOMIC_SEQ_CST);
}

static bool is_later(struct timespec a, struct timespec b)
{
    return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

static bool look_in_listing(const Worker *w, struct stat *st)
{
    DIR *dir = fdopendir(openat(w->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const struct dirent *entry;
    bool found = false;

    if (dir == NULL) {
        die("opendir");
    }
    while ((entry = readdir(dir)) != NULL) {
        found = found || strcmp(entry->d_name, w->name) == 0;
    }
    if (closedir(dir) < 0 || !found) {
        die("the listing");
    }
    return fstatat(w->dir_fd, w->name, st, 0) == 0;
}

/* Forces a LOOKUP: the kernel does not take its own word for it that the name is
 * there. */
static bool look_by_name(const Worker *w, struct stat *st)
{
    if (open(w->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0 ||
        errno != EEXIST) {
        die("open of a name that is there");
    }
    return stat(w->file, st) == 0;
}

static bool look_once(const Worker *w, unsigned how, struct stat *st)
{
    switch (how) {
    case 0:
        return fstat(w->fd, st) == 0;
    case 1:
        return stat(w->file, st) == 0;
    case 2:
        return look_by_name(w, st);
    case 3:
        return look_in_listing(w, st);
    default:
        return stat(w->link, st) == 0 || (errno == ENOENT && stat(w->file, st) == 0);
    }
}

/*
 * What the kernel should not have kept is there again at the next look.  Once is not
 * enough: the answers to SETATTR and LINK set its size whatever has come since it asked,
 * and who has found what it keeps to be valid in that moment takes it from there.
 */
static void look(Worker *w, unsigned how)
{
    static const char *const names[] = {"fstat", "stat", "lookup", "listing", "link"};
    Truth *t = w->truth;
    uint64_t done = __atomic_load_n(&t->done, __ATOMIC_SEQ_CST);
    uint64_t size = __atomic_load_n(&t->size, __ATOMIC_SEQ_CST), begun = 0;
    bool size_is_right = false, mtime_is_right = false;
    struct stat st;

    for (unsigned i = 0; i < 2 && !(size_is_right && mtime_is_right); i++) {
        if (!look_once(w, i == 0 ? how : 0, &st)) {
            die(names[how]);
        }
        begun = __atomic_load_n(&t->begun, __ATOMIC_SEQ_CST);
        size_is_right = size_is_right || begun != done || (uint64_t)st.st_size == size;
        /* An edit that was answered before this look had not begun when the last one came
         * back. */
        mtime_is_right =
            mtime_is_right || done <= w->mtime_by || is_later(st.st_mtim, w->mtime);
    }
    if (!size_is_right) {
        fail(w, names[how], "size", (uint64_t)st.st_size, size);
    }
    if (!mtime_is_right) {
        fail(w, names[how], "edits since that mtime", done, w->mtime_by);
    }
    w->mtime = st.st_mtim;
    w->mtime_by = begun;
    __atomic_fetch_add(&t->looks, 1, __ATOMIC_RELAXED);
}

static void edit_once(Worker *w)
{
    union {
        struct varjfs_edit edit;
        uint8_t bytes[sizeof(struct varjfs_edit) + EDIT_MOST];
    } arg;
    Truth *t = w->truth;
    uint64_t size = t->size, old_len = 0, len = 0, offset;
    uint8_t byte;

    switch (vj_rng_below(&w->rng, 4)) {
    case 0:
        old_len = 1 + vj_rng_below(&w->rng, EDIT_MOST);
        break;
    case 1:
        old_len = len = 1 + vj_rng_below(&w->rng, EDIT_MOST);
        break;
    default:
        len = 1 + vj_rng_below(&w->rng, EDIT_MOST);
        break;
    }
    if (size + len > SIZE_MOST) {
        len = 0;
        old_len = size - SIZE_LEAST;
    } else if (size < SIZE_LEAST + old_len) {
        old_len = 0;
        len = 1 + vj_rng_below(&w->rng, EDIT_MOST);
    }
    offset = vj_rng_below(&w->rng, size - old_len + 1);
    memset(arg.bytes, 'e', sizeof arg.edit + len);
    arg.edit = (struct varjfs_edit){
        .version = VARJFS_IOC_VERSION, .offset = offset, .old_len = old_len, .len = len};
    __atomic_fetch_add(&t->begun, 1, __ATOMIC_SEQ_CST);
    if (raw_edit(w->fd, &arg.edit, len) < 0) {
        die("edit");
    }
    if (arg.edit.size != size - old_len + len) {
        fail(w, "edit", "size", arg.edit.size, size - old_len + len);
    }
    __atomic_store_n(&t->size, arg.edit.size, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&t->done, 1, __ATOMIC_SEQ_CST);
    t->edits++;
    switch (vj_rng_below(&w->rng, 16)) {
    case 0:
    case 1:
        look(w, (unsigned)vj_rng_below(&w->rng, 2));
        break;
    case 2: /* brings pages */
        if (pread(w->fd, &byte, 1, (off_t)t->size - 1) < 0) {
            die("pread");
        }
        break;
    default:
        break; /* in a row */
    }
}

static void edit_all(Worker *w)
{
    while (vj_clock_mono_us() < w->until_us) {
        edit_once(w);
        /* Let others see the file at rest, too. */
        if (vj_rng_below(&w->rng, 50) == 0) {
            usleep((useconds_t)vj_rng_below(&w->rng, 3000));
        }
    }
}

static void look_all(Worker *w)
{
    while (vj_clock_mono_us() < w->until_us) {
        look(w, (unsigned)vj_rng_below(&w->rng, 5));
    }
}

static void change_all(Worker *w)
{
    static const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_nsec = UTIME_OMIT}};

    while (vj_clock_mono_us() < w->until_us) {
        switch (vj_rng_below(&w->rng, 3)) {
        case 0:
            if (fchmod(w->fd, 0600 | (mode_t)vj_rng_below(&w->rng, 0100)) < 0) {
                die("fchmod");
            }
            break;
        case 1:
            if (futimens(w->fd, times) < 0) {
                die("futimens");
            }
            break;
        default:
            (void)unlink(w->link);
            /* ENOENT: the kernel believes for a moment that the last name is gone
             * (doc/page-cache.md). */
            if (link(w->file, w->link) < 0 && errno != ENOENT) {
                die("link");
            }
            break;
        }
        look(w, (unsigned)vj_rng_below(&w->rng, 5));
    }
}

static void sync_all(Worker *w)
{
    while (vj_clock_mono_us() < w->until_us) {
        if (fsync(w->fd) < 0) {
            die("fsync");
        }
        look(w, 0);
    }
}

static const struct {
    void (*run)(Worker *w);
} workers[] = {{edit_all}, {look_all}, {look_all}, {change_all}, {sync_all}};

int main(int argc, char **argv)
{
    g_autofree char *file = NULL, *link_name = NULL, *bytes = NULL;
    pid_t pids[G_N_ELEMENTS(workers)];
    Worker w;
    bool failed = false;
    int status;

    if (argc != 4) {
        fprintf(stderr, "usage: attributes DIR SECONDS SEED\n");
        return 2;
    }
    file = g_strdup_printf("%s/file", argv[1]);
    link_name = g_strdup_printf("%s/link", argv[1]);
    bytes = g_malloc0(SIZE_LEAST);
    w = (Worker){.file = file, .link = link_name, .name = "file"};
    w.truth = mmap(NULL, sizeof *w.truth, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    w.fd = open(file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    w.dir_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w.truth == MAP_FAILED || w.fd < 0 || w.dir_fd < 0 ||
        write(w.fd, bytes, SIZE_LEAST) != (ssize_t)SIZE_LEAST || fsync(w.fd) < 0) {
        die(file);
    }
    w.truth->size = SIZE_LEAST;
    w.until_us = vj_clock_mono_us() + (int64_t)(atof(argv[2]) * 1e6);
    for (size_t i = 0; i < G_N_ELEMENTS(workers); i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            vj_rng_init(&w.rng, (uint64_t)atoll(argv[3]) * 16 + i);
            workers[i].run(&w);
            exit(0);
        }
    }
    for (size_t i = 0; i < G_N_ELEMENTS(workers); i++) {
        failed = waitpid(pids[i], &status, 0) < 0 || status != 0 || failed;
    }
    printf("%" G_GUINT64_FORMAT " edits, %" G_GUINT64_FORMAT " looks, %d wrong\n",
           w.truth->edits, w.truth->looks, w.truth->failures);
    return failed || w.truth->failures > 0 ? 1 : 0;
}
