/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Fails the N-th system call of the posix store, N = 1, 2, … until a run makes fewer
 * calls, with each of several errors.  After each run, with calls that work again:
 *
 *   - what a successful flush covered, and was not removed, is there and whole;
 *   - what was removed with success is gone;
 *   - flush succeeds once the objects that it may have complained about are removed;
 *   - each() shows no object but those that the run knows, or that it said it left
 *     behind;
 *   - no descriptor is left open;
 *   - what begins the writing of an object failed: the put or a flush has.  Nobody else
 *     says it.
 *
 * The linker hands the calls of the code under test to the __wrap_ functions below.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "store/store.h"

/* ---- Calls that fail --------------------------------------------------------------- */

static bool counting;
static unsigned call_count, fail_at;
static int fail_error;
static const char *failed_call;

/* True when this call is the one; errno is set. */
static bool call_fails(const char *name)
{
    if (!counting || ++call_count != fail_at) {
        return false;
    }
    failed_call = name;
    errno = fail_error;
    return true;
}

#define WRAP(type, name, bad, params, args)                                              \
    type __real_##name params;                                                           \
    type __wrap_##name params;                                                           \
    type __wrap_##name params                                                            \
    {                                                                                    \
        return call_fails(#name) ? (bad) : __real_##name args;                           \
    }

/* Nothing here has to reach a device. */
#define WRAP_SYNC(name)                                                                  \
    int __wrap_##name(int fd);                                                           \
    int __wrap_##name(int fd)                                                            \
    {                                                                                    \
        (void)fd;                                                                        \
        return call_fails(#name) ? -1 : 0;                                               \
    }

WRAP(ssize_t, pread64, -1, (int fd, void *dst, size_t len, off_t at), (fd, dst, len, at))
WRAP(ssize_t, pwritev64, -1, (int fd, const struct iovec *iov, int count, off_t at),
     (fd, iov, count, at))
WRAP(int, mkdirat, -1, (int fd, const char *name, mode_t mode), (fd, name, mode))
WRAP(int, unlinkat, -1, (int fd, const char *name, int flags), (fd, name, flags))
WRAP_SYNC(fdatasync)
WRAP_SYNC(fsync)
WRAP_SYNC(syncfs)
WRAP(int, sync_file_range, -1, (int fd, off64_t at, off64_t len, unsigned flags),
     (fd, at, len, flags))
WRAP(int, fstat64, -1, (int fd, struct stat *st), (fd, st))
WRAP(int, fstatat64, -1, (int fd, const char *name, struct stat *st, int flags),
     (fd, name, st, flags))
WRAP(int, fstatvfs64, -1, (int fd, struct statvfs *st), (fd, st))
WRAP(DIR *, fdopendir, NULL, (int fd), (fd))
WRAP(struct dirent *, readdir64, NULL, (DIR * dir), (dir))

int __real_openat64(int fd, const char *name, int flags, mode_t mode);
int __wrap_openat64(int fd, const char *name, int flags, mode_t mode);
int __wrap_openat64(int fd, const char *name, int flags, mode_t mode)
{
    return call_fails("openat64") ? -1 : __real_openat64(fd, name, flags, mode);
}

/* What fails has been closed all the same: so it is on Linux. */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    int result = __real_close(fd);

    return call_fails("close") ? -1 : result;
}

/* ---- One run ----------------------------------------------------------------------- */

enum { OBJECTS = 24, OBJECT_BYTES_MOST = 70000 };

typedef enum State { ABSENT, PUT, FLUSHED, REMOVED, UNKNOWN } State;

typedef struct Run {
    VjStore *s;
    VjPut puts[OBJECTS];
    State states[OBJECTS]; /* UNKNOWN: removing it failed */
    unsigned failures;     /* of puts and flushes */
} Run;

static const char *problem;

static void expect(bool good, const char *what)
{
    if (!good && problem == NULL) {
        problem = what;
    }
}

static uint64_t id_of(size_t i)
{
    return i * 700; /* several directories */
}

/* Large ones are on their way to the device as they are put. */
static size_t bytes_of(size_t i)
{
    return i % 7 == 2 ? OBJECT_BYTES_MOST : 3000;
}

static void fill(uint8_t *dst, size_t i)
{
    for (size_t k = 0; k < bytes_of(i); k++) {
        dst[k] = (uint8_t)(i * 31 + k * 7 + (k >> 8));
    }
}

static void put_some(Run *run, size_t first, size_t count)
{
    static uint8_t bytes[OBJECT_BYTES_MOST];

    for (size_t i = first; i < first + count; i++) {
        struct iovec iov = {.iov_base = bytes, .iov_len = bytes_of(i)};
        bool good;

        fill(bytes, i);
        good = vj_store_put(run->s, id_of(i), &iov, 1, &run->puts[i]) == 0;
        run->states[i] = good ? PUT : ABSENT;
        run->failures += !good;
    }
}

static void flush(Run *run)
{
    bool good = vj_store_flush(run->s) == 0;

    run->failures += !good;
    for (size_t i = 0; good && i < OBJECTS; i++) {
        if (run->states[i] == PUT) {
            run->states[i] = FLUSHED;
        }
    }
}

static void get_all(Run *run, bool must_work)
{
    static uint8_t want[OBJECT_BYTES_MOST], got[OBJECT_BYTES_MOST];

    for (size_t i = 0; i < OBJECTS; i++) {
        const VjPut *put = &run->puts[i];
        int result;

        if (run->states[i] == ABSENT || run->states[i] == UNKNOWN) {
            continue;
        }
        result = vj_store_get(run->s, put->id, put->loc, 0, got, bytes_of(i));
        if (run->states[i] == REMOVED) {
            expect(result == -ENOENT || (!must_work && result < 0),
                   "a removed object lives");
            continue;
        }
        expect(result == 0 || !must_work, "an object cannot be read");
        fill(want, i);
        expect(result != 0 || memcmp(want, got, bytes_of(i)) == 0,
               "an object is damaged");
    }
}

static void remove_one(Run *run, size_t i)
{
    if (run->states[i] == PUT || run->states[i] == FLUSHED || run->states[i] == UNKNOWN) {
        run->states[i] = vj_store_remove(run->s, run->puts[i].id, run->puts[i].loc) == 0
                             ? REMOVED
                             : UNKNOWN;
    }
}

typedef struct Census {
    const Run *run;
    unsigned seen[OBJECTS], strangers;
} Census;

static bool count_object(void *opaque, const VjPut *object, int64_t mtime_us)
{
    Census *census = opaque;

    (void)mtime_us;
    for (size_t i = 0; i < OBJECTS; i++) {
        if (census->run->states[i] != ABSENT && object->id == census->run->puts[i].id &&
            memcmp(&object->loc, &census->run->puts[i].loc, sizeof object->loc) == 0) {
            census->seen[i]++;
            return true;
        }
    }
    census->strangers++;
    return true;
}

static void walk(Run *run, bool must_work)
{
    Census census = {.run = run};
    int result = vj_store_each(run->s, 0, UINT64_MAX, count_object, &census);

    expect(result == 0 || !must_work, "each() fails");
    for (size_t i = 0; i < OBJECTS; i++) {
        expect(census.seen[i] <= 1, "an object is seen twice");
        if (result == 0 && (run->states[i] == PUT || run->states[i] == FLUSHED)) {
            expect(census.seen[i] == 1, "an object is not seen");
        }
        expect(run->states[i] != REMOVED || census.seen[i] == 0,
               "a removed object is seen");
    }
    /* A put that failed, and whose file could not be removed either, is said in the
     * log. */
    expect(census.strangers == 0, "a failed put left an object");
}

/* What a file system does with its store, in small. */
static void work(Run *run)
{
    VjStoreSpace space;

    put_some(run, 0, 3);
    flush(run);
    put_some(run, 3, 2); /* one by one */
    flush(run);
    get_all(run, false);
    remove_one(run, 1);
    put_some(run, 5, 10); /* many */
    remove_one(run, 6);   /* not yet flushed */
    flush(run);
    walk(run, false);
    put_some(run, 15, OBJECTS - 15);
    get_all(run, false);
    flush(run);
    remove_one(run, 0);
    (void)(vj_store_space(run->s, &space) == 0);
}

/* Everything works again: the rule of store.h leads out of any failure. */
static void verify(Run *run)
{
    get_all(run, true);
    walk(run, true);
    for (size_t i = 0; i < OBJECTS; i++) {
        if (run->states[i] == PUT || run->states[i] == UNKNOWN) {
            remove_one(run, i);
            expect(run->states[i] == REMOVED, "cannot remove");
        }
    }
    expect(vj_store_flush(run->s) == 0, "flush fails after all in doubt were removed");
    get_all(run, true);
    walk(run, true);
}

static unsigned open_descriptors(void)
{
    g_autoptr(GDir) dir = g_dir_open("/proc/self/fd", 0, NULL);
    unsigned count = 0;

    while (g_dir_read_name(dir) != NULL) {
        count++;
    }
    return count;
}

static void remove_tree(const char *path)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    const char *name;

    while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *below = g_build_filename(path, name, NULL);

        if (g_file_test(below, G_FILE_TEST_IS_DIR)) {
            remove_tree(below);
        } else {
            unlink(below);
        }
    }
    rmdir(path);
}

/* False when the run made fewer than @fail_at calls, so that none failed. */
static bool run_once(const char *spec)
{
    g_autofree char *path = g_dir_make_tmp("varjfs-fault-XXXXXX", NULL);
    VJ_AUTO_FD dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unsigned descriptors = open_descriptors();
    VjStorePlace place = {.dir_fd = dir_fd, .path = path, .create = true};
    Run run = {0};

    failed_call = NULL;
    g_assert(vj_store_open(spec, &place, &run.s, NULL));
    call_count = 0;
    counting = true;
    work(&run);
    counting = false;
    expect(failed_call == NULL || strcmp(failed_call, "sync_file_range") != 0 ||
               run.failures > 0,
           "an error of writing was told nobody");
    verify(&run);
    vj_store_close(run.s);
    place.create = false;
    g_assert(vj_store_open(spec, &place, &run.s, NULL));
    get_all(&run, true);
    walk(&run, true);
    vj_store_close(run.s);
    expect(open_descriptors() == descriptors, "a descriptor is left open");
    remove_tree(path);
    return failed_call != NULL;
}

/* The log says what each failure was; it is not wanted on stderr a thousand times. */
static void silence(void)
{
    g_autoptr(GError) error = NULL;

    g_assert(vj_log_open("test-store-calls", "/dev/null", VJ_LOG_ERROR, &error));
}

int main(void)
{
    static const struct {
        int error;
        const char *name, *spec;
    } rows[] = {
        {EIO, "EIO", "posix:sync_batch=4"},
        {EIO, "EIO", "posix:sync_batch=0,open_files=0"},
        {EMFILE, "EMFILE", "posix:sync_batch=4"},
        {EINTR, "EINTR", "posix:sync_batch=4"},
    };
    int failures = 0;

    silence();
    printf("1..%zu\n", G_N_ELEMENTS(rows));
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        unsigned runs = 0;
        bool more = true;

        fail_error = rows[i].error;
        problem = NULL;
        for (fail_at = 1; more && problem == NULL; fail_at++) {
            more = run_once(rows[i].spec);
            runs++;
        }
        if (problem != NULL) {
            printf("# call %u, %s: %s\n", fail_at - 1,
                   failed_call != NULL ? failed_call : "none", problem);
            failures++;
        }
        printf("%s %zu - %s: %s from each of %u calls\n",
               problem == NULL ? "ok" : "not ok", i + 1, rows[i].spec, rows[i].name,
               runs - 1);
        fflush(stdout);
    }
    vj_log_close();
    return failures == 0 ? 0 : 1;
}
