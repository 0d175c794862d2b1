/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Fails the N-th call that a volume makes to its store, N = 1, 2, … until a run makes
 * fewer calls.  A run writes, shares, edits, cuts and syncs two files of many small
 * objects and compares them with byte arrays.  A call of the volume may fail, but then it
 * has changed nothing.  After the run, with a store that works again: a sync succeeds,
 * every byte is right, also after a remount, and the check finds neither problems nor
 * leaks.
 *
 * usage: test-volume-store [FIRST [LAST]]   numbers N to try
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/records.h"
#include "fsck/fsck.h"
#include "volume/volume.h"

/*
 * Nothing here has to reach a device: these stand in front of the C library's, also for
 * the metadata engine's shared library.
 */
int fsync(int fd)
{
    (void)fd;
    return 0;
}

int fdatasync(int fd)
{
    (void)fd;
    return 0;
}

int syncfs(int fd)
{
    (void)fd;
    return 0;
}

enum { FILES = 2, MODEL_MAX = 200000 };

typedef struct Row {
    const char *faults;
    const char *make; /* mkfs options */
    bool soft;     /* content that a transformation makes smaller, recoded at the end */
    unsigned step; /* every so many calls */
} Row;

typedef struct Run {
    const Row *row;
    char *source;
    VjVolume *v;
    uint64_t inos[FILES];
    VjFile *files[FILES];
    uint8_t models[FILES][MODEL_MAX];
    size_t lens[FILES];
    VjRng rng;
} Run;

static const char *problem;
static char detail[512];

static void expect(bool good, const char *what)
{
    if (!good && problem == NULL) {
        problem = what;
    }
}

static bool open_volume(Run *run, const char *wrap_store, bool check)
{
    VjVolumeOpen how = {.source = run->source, .check = check, .wrap_store = wrap_store};
    g_autoptr(GError) error = NULL;
    bool good = vj_volume_open(&how, &run->v, &error);

    if (!good) {
        g_snprintf(detail, sizeof detail, "%s", error->message);
    }
    return good;
}

static int create_body(VjTxn *txn, void *opaque)
{
    uint64_t *ino = opaque;
    int result = vj_ino_take(txn, ino);
    VjInode inode = {.ino = *ino, .generation = 1, .mode = S_IFREG | 0644, .nlink = 1};

    return result < 0 ? result : vj_inode_put(txn, &inode);
}

static void open_files(Run *run)
{
    for (size_t i = 0; i < FILES; i++) {
        if (run->inos[i] == 0) {
            expect(vj_meta_run(vj_volume_meta(run->v), VJ_RUN_DEFAULT, create_body,
                               &run->inos[i]) == 0,
                   "cannot create");
        }
        expect(vj_file_open(vj_volume_files(run->v), run->inos[i], &run->files[i]) == 0,
               "cannot open");
    }
}

static void close_files(Run *run)
{
    for (size_t i = 0; i < FILES; i++) {
        vj_file_unref(g_steal_pointer(&run->files[i]));
    }
}

static void replace(Run *run, size_t file, size_t offset, size_t old_len, size_t len)
{
    g_autofree uint8_t *bytes = g_malloc(len + 1);
    uint8_t *model = run->models[file];
    size_t tail;

    g_assert(offset + old_len <= run->lens[file]);
    vj_rng_bytes(&run->rng, bytes, len);
    for (size_t i = 0; run->row->soft && i < len; i++) {
        bytes[i] = bytes[i - i % 8];
    }
    if (vj_file_replace(run->files[file], offset, old_len, bytes, len, false, NULL) !=
        0) {
        return;
    }
    tail = run->lens[file] - offset - old_len;
    g_assert(offset + len + tail <= MODEL_MAX);
    memmove(model + offset + len, model + offset + old_len, tail);
    memcpy(model + offset, bytes, len);
    run->lens[file] = offset + len + tail;
}

static void share(Run *run, size_t from, size_t to, size_t len)
{
    size_t at = 0;

    while (at < len && at < run->lens[from]) {
        uint64_t copied = 0;
        size_t target = run->lens[to];

        if (vj_file_copy(run->files[from], at, run->files[to], target, len - at,
                         &copied) != 0 ||
            copied == 0) {
            return;
        }
        memcpy(run->models[to] + target, run->models[from] + at, copied);
        run->lens[to] += copied;
        at += copied;
    }
}

static void truncate_to(Run *run, size_t file, size_t size)
{
    if (size <= run->lens[file] && vj_file_truncate(run->files[file], size) == 0) {
        run->lens[file] = size;
    }
}

static void compare(Run *run, bool must_work)
{
    g_autofree uint8_t *got = g_malloc(MODEL_MAX);

    for (size_t i = 0; i < FILES; i++) {
        size_t len = 0;
        int result = vj_file_read(run->files[i], 0, got, MODEL_MAX, &len);

        expect(result == 0 || !must_work, "cannot read");
        if (result == 0) {
            expect(len == run->lens[i], "wrong length");
            expect(memcmp(got, run->models[i], MIN(len, run->lens[i])) == 0,
                   "wrong bytes");
        }
    }
}

static void sync_all(Run *run, bool must_work)
{
    for (size_t i = 0; i < FILES; i++) {
        int result = vj_file_sync(run->files[i]);

        expect(result == 0 || !must_work, "cannot sync");
    }
}

static int choose_body(VjTxn *txn, void *opaque)
{
    const uint64_t *ino = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, *ino, &inode);

    if (r == 0 && !vj_transform_parse("xor:5a", &inode.transform, NULL)) {
        r = -EINVAL;
    }
    inode.flags |= VJ_INODE_TRANSFORM;
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

/* All of the first file under another transformation; a failed step leaves what there
 * was. */
static void recode(Run *run)
{
    VjRecode step = {0};
    int r = 0;

    expect(vj_meta_run(vj_volume_meta(run->v), VJ_RUN_DEFAULT, choose_body,
                       &run->inos[0]) == 0 &&
               vj_file_settings_changed(vj_volume_files(run->v), run->inos[0]) == 0,
           "cannot choose");
    while (r == 0 && !step.done) {
        r = vj_file_recode(run->files[0], &step);
    }
}

static void work(Run *run)
{
    replace(run, 0, 0, 0, 40000);
    sync_all(run, false);
    share(run, 0, 1, 30000);
    sync_all(run, false);
    compare(run, false);
    replace(run, 0, run->lens[0] / 2, 0, 3000);
    replace(run, 0, run->lens[0] / 4, MIN(2000, run->lens[0] / 4), 0);
    sync_all(run, false);
    truncate_to(run, 1, run->lens[1] / 2);
    replace(run, 1, run->lens[1], 0, 9000);
    sync_all(run, false);
    if (run->row->soft) {
        recode(run);
        compare(run, false);
    }
    truncate_to(run, 0, 100);
    sync_all(run, false);
    compare(run, false);
}

static void say(void *opaque, const char *text)
{
    (void)opaque;
    g_snprintf(detail, sizeof detail, "%s", text);
}

static void check(Run *run)
{
    VjCheckReport report = {0};

    if (!open_volume(run, NULL, true)) {
        expect(false, "cannot open for the check");
        return;
    }
    expect(vj_fsck_contents(run->v, true, say, NULL, &report) == 0,
           "the check cannot run");
    expect(report.problems == 0, "the check finds problems");
    expect(report.leaks == 0, "the check finds leaks");
    expect(vj_volume_close(run->v) == 0, "cannot close after the check");
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

static void make_volume(Run *run)
{
    VjVolumeMake how = {.options = run->row->make};
    g_autoptr(GError) error = NULL;

    run->source = g_dir_make_tmp("varjfs-fault-XXXXXX", NULL);
    how.source = run->source;
    if (!vj_volume_make(&how, &error)) {
        g_error("%s", error->message);
    }
    vj_rng_init(&run->rng, 1);
    /* What recovery finds: an unclean end would leave more, this at least a used
     * volume. */
    expect(open_volume(run, NULL, false), "cannot open the new volume");
    open_files(run);
    replace(run, 1, 0, 0, 20000);
    sync_all(run, true);
    close_files(run);
    expect(vj_volume_close(run->v) == 0, "cannot close the new volume");
}

/* False when the run made fewer calls, so that none failed. */
static bool run_once(unsigned number, const Row *row)
{
    g_autofree char *wrap = g_strdup_printf("fault:fail=%u,%s", number, row->faults);
    Run *run = g_new0(Run, 1);
    bool failed_one = true;

    run->row = row;
    make_volume(run);
    /* The call may be one of recovery: then the mount fails, and the next one works. */
    if (open_volume(run, wrap, false) || open_volume(run, "fault", false)) {
        open_files(run);
        work(run);
        failed_one = vj_store_fault_calls(vj_volume_store(run->v)) >= number;
        expect(vj_store_fault_set(vj_volume_store(run->v), "", NULL), "fault_set");
        sync_all(run, true);
        compare(run, true);
        close_files(run);
        expect(vj_volume_close(run->v) == 0, "cannot close");
        check(run);
    } else {
        expect(false, "cannot open after a failed open");
    }
    if (open_volume(run, NULL, false)) {
        open_files(run);
        compare(run, true);
        close_files(run);
        expect(vj_volume_close(run->v) == 0, "cannot close the second time");
    } else {
        expect(false, "cannot open again");
    }
    remove_tree(run->source);
    g_free(run->source);
    g_free(run);
    return failed_one;
}

int main(int argc, char **argv)
{
    static const Row rows[] = {
        {"errno=EIO", "objects=1K", false, 1},
        {"errno=ENOSPC,kinds=put+flush", "objects=1K", false, 1},
        {"errno=ETIMEDOUT,after,kinds=put+remove+flush", "objects=1K", false, 1},
        {"errno=EIO,kinds=get+put", "objects=1K,transform=rle", true, 4},
    };
    unsigned first = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    unsigned last = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : UINT_MAX;
    int failures = 0;

    g_assert(vj_log_open("test-volume-store", "/dev/null", VJ_LOG_ERROR, NULL));
    printf("1..%zu\n", G_N_ELEMENTS(rows));
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        unsigned number = first;

        problem = NULL;
        detail[0] = '\0';
        while (run_once(number, &rows[i]) && problem == NULL && number < last) {
            number += rows[i].step;
        }
        if (problem != NULL) {
            printf("# call %u: %s (%s)\n", number, problem, detail);
            failures++;
        }
        printf("%s %zu - fault:%s %s at every %u. of %u calls\n",
               problem == NULL ? "ok" : "not ok", i + 1, rows[i].faults, rows[i].make,
               rows[i].step, number - first);
        fflush(stdout);
    }
    vj_log_close();
    return failures == 0 ? 0 : 1;
}
