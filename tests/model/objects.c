/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * objects.c - what opening a volume costs that has very many objects
 *
 * A volume is filled with small objects, each of another content.  Then it is opened, by
 * a process that has not done anything else: after it was closed in order, and after the
 * one that had it open died.  The memory that it takes is asserted; times are printed.
 * DIR is empty again at the end, however that comes.
 *
 *     objects [--objects N] [--dir DIR] [--store DRIVER] [--rounds N]
 *
 * The long form is --objects 1000000, which takes 5 GiB in DIR.  Prints TAP.
 */
#include "common.h"
#include "file/records.h"
#include "object/object.h"
#include "volume/volume.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEAN_BYTES 1024u
#define FILE_BYTES ((uint64_t)32 << 20)
/* What the assertions allow: for an object, and for all else, which has the list of what
 * is in the id block that a crash leaves open. */
#define MEMORY_BYTES_MOST 44u
#define MEMORY_KIB_ELSE (VJ_IS_SANITIZED ? 65536u : 8192u) /* what is freed stays there */

static char *source;
static VjVolume *volume;
/* Of all processes. */
static struct Shared {
    uint64_t objects;
    unsigned results, failed;
} * shared;

static void die(const char *what, const char *why)
{
    printf("Bail out! %s: %s\n", what, why);
    fflush(NULL);
    _exit(1);
}

static void must(int r, const char *what)
{
    if (r != 0) {
        die(what, g_strerror(-r));
    }
}

static void at_most(const char *when, const char *what, uint64_t got, uint64_t most)
{
    shared->results++;
    shared->failed += got > most;
    printf("%sok %u - %s: %s: %" G_GUINT64_FORMAT ", at most %" G_GUINT64_FORMAT "\n",
           got > most ? "not " : "", shared->results, when, what, got, most);
}

static void volume_open(void)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = source, .commit_seconds = 600};

    if (!vj_volume_open(&how, &volume, &error)) {
        die("open", error->message);
    }
}

static int create_body(VjTxn *txn, void *opaque)
{
    uint64_t *ino = opaque;
    int r = vj_ino_take(txn, ino);
    VjInode inode = {.ino = *ino, .generation = 1, .mode = S_IFREG | 0644, .nlink = 1};

    return r < 0 ? r : vj_inode_put(txn, &inode);
}

/* New objects of a file of its own. */
static void fill(VjRng *rng, uint64_t bytes)
{
    g_autofree uint8_t *some = g_malloc(VJ_MIB);
    g_autoptr(VjFile) f = NULL;
    uint64_t ino;

    must(vj_meta_run(vj_volume_meta(volume), VJ_RUN_DEFAULT, create_body, &ino),
         "create");
    must(vj_file_open(vj_volume_files(volume), ino, &f), "open");
    for (uint64_t at = 0; at < bytes; at += VJ_MIB) {
        vj_rng_bytes(rng, some, VJ_MIB);
        must(vj_file_write(f, at, some, VJ_MIB, false, NULL), "write");
    }
    must(vj_file_sync(f), "sync");
}

static int count_body(VjTxn *txn, void *opaque)
{
    uint64_t plain, stored;

    return vj_objects_sum(txn, opaque, &plain, &stored);
}

static void count(void)
{
    must(vj_meta_view(vj_volume_meta(volume), count_body, &shared->objects), "count");
}

/* ---- each a process ---------------------------------------------------------------- */

static void make(uint64_t objects, const char *store)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *options = g_strdup_printf("objects=1K,store=%s", store);
    VjVolumeMake how = {.source = source, .options = options, .force = true};
    VjRng rng;

    if (!vj_volume_make(&how, &error)) {
        die("make", error->message);
    }
    volume_open();
    vj_rng_init(&rng, 1);
    while (shared->objects < objects) {
        fill(&rng, FILE_BYTES);
        count();
    }
    must(vj_volume_close(volume), "close");
    printf("# %" G_GUINT64_FORMAT " objects\n", shared->objects);
}

/* The metadata are not in memory any more. */
static void forget(void)
{
    static const char *const names[] = {"data.mdb", "redo.log"};

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *path = g_build_filename(source, "meta", names[i], NULL);
        VJ_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);

        if (fd >= 0) {
            vj_fd_drop_pages(fd);
        }
    }
}

/* By this process, from the device. */
static uint64_t read_mib(void)
{
    g_autofree char *text = NULL;
    const char *at;

    if (!g_file_get_contents("/proc/self/io", &text, NULL, NULL)) {
        return 0;
    }
    at = strstr(text, "\nread_bytes: ");
    return at != NULL ? g_ascii_strtoull(at + strlen("\nread_bytes: "), NULL, 10) >> 20
                      : 0;
}

static void open_and_measure(const char *when)
{
    uint64_t before = memory_kib(), after, mib = read_mib();
    int64_t begin_us = vj_clock_mono_us();

    volume_open();
    printf("# %s: opened in %d ms, %" G_GUINT64_FORMAT " MiB read\n", when,
           (int)((vj_clock_mono_us() - begin_us) / 1000), read_mib() - mib);
    after = memory_kib();
    at_most(when, "memory, KiB", after - MIN(after, before),
            shared->objects * MEMORY_BYTES_MOST / 1024 + MEMORY_KIB_ELSE);
}

static void open_and_close(const char *when)
{
    open_and_measure(when);
    must(vj_volume_close(volume), "close");
}

/* It dies with a file that is being written. */
static void open_and_die(const char *when)
{
    VjRng rng;

    open_and_measure(when);
    vj_rng_init(&rng, 2);
    fill(&rng, VJ_MIB);
    count();
    fflush(NULL);
    _exit(0);
}

static void run(void (*work)(const char *), const char *when)
{
    pid_t child;
    int status;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        work(when);
        fflush(NULL);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        die(when, "its process failed");
    }
}

static uint64_t wanted = 60000;
static const char *driver = "block";

static void make_wanted(const char *when)
{
    (void)when;
    make(wanted, driver);
}

static uint64_t rounds;

static void forget_and(void (*work)(const char *), const char *when)
{
    forget();
    run(work, when);
}

/* For measuring. */
static void run_round(void)
{
    run(open_and_close, "closed in order, in memory");
    forget_and(open_and_die, "closed in order, not in memory");
    run(open_and_die, "killed, in memory");
    forget_and(open_and_close, "killed, not in memory");
}

static void run_all(void)
{
    run(make_wanted, "made");
    run(open_and_die, "closed in order");
    run(open_and_die, "after a crash");
    run(open_and_close, "after another crash");
    run(open_and_close, "closed in order again");
    for (uint64_t i = 0; i < rounds; i++) {
        run_round();
    }
}

/* All that has to be removed is the work of one process, which may end in any way, and
 * so may this one be asked to. */
static int run_and_remove(void)
{
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", source);
    int status = -1, number = 0;
    sigset_t ends, before;
    pid_t child;

    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigaddset(&ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ends, &before);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        setpgid(0, 0); /* it ends with those that it has begun */
        run_all();
        printf("1..%u\n", shared->results);
        fflush(NULL);
        _exit(shared->failed == 0 ? 0 : 1);
    }
    (void)setpgid(child, child); /* whoever comes first */
    while (child > 0 && waitpid(child, &status, WNOHANG) == 0) {
        if (sigwait(&ends, &number) == 0 && number != SIGCHLD) {
            (void)kill(-child, SIGKILL);
        }
    }
    return system(command) == 0 && child > 0 && status == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *dir = g_get_tmp_dir();
    const ModelOption options[] = {
        {"objects", "N", .number = &wanted, .least = 1, .most = UINT32_MAX},
        {"dir", "DIR", .text = &dir},
        {"store", "DRIVER", .text = &driver},
        {"rounds", "N", .number = &rounds, .most = 1000},
    };

    g_free(options_parse(argc, argv, options, G_N_ELEMENTS(options)));
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        die("mmap", g_strerror(errno));
    }
    source = g_strdup_printf("%s/varjfs-objects-XXXXXX", dir);
    if (g_mkdtemp(source) == NULL) {
        die(source, g_strerror(errno));
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    return run_and_remove();
}
