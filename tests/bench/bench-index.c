/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-index.c - what the index of so many objects costs, without their bytes
 *
 *   bench-index [-n OBJECTS] [-q COUNT] [-P PASSES] [-m ENGINE] [-k] DIRECTORY
 *
 * DIRECTORY/meta is filled with the index entry and the record of each object, by the
 * record code of the file room, in PASSES (8) passes over the whole range of digests,
 * each in their order: that leaves the pages as full as random order does, and takes
 * minutes for 10^8 objects.  Then, with the engine as a mount opens it ("lmdb" or
 * ENGINE), 7 rounds of each:
 *
 *   lookup   index entry and record of an object there is, by its digest; a transaction
 *            each
 *   absent   index entry of a digest that there is not, as for new content
 *   insert   new objects at random digests, 16 to a commit as a write-back makes them;
 *            the time until all are durable counts
 *   flush-K  K new objects in one commit, and the flush that makes them durable: its
 *            milliseconds alone
 *
 * COUNT (20000) calls each in all rounds together.  "cold": the file was closed and has
 * left the page cache; "warm": all of it was read, as far as memory has room.  Lines as
 * figure.h has them.  -k keeps what was made, and uses it again; with -q 0 nothing else
 * is done.
 */
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "figure.h"
#include "meta/lmdb-private.h"
#include "meta/session-private.h"
#include "object/object-format.h"

#define ROUNDS 7
#define FILL_COMMIT 256u /* objects of a commit while filling */
#define COMMIT 16u       /* objects of a commit when measured */
#define FILL_ENGINE "lmdb:overlay=512M,commit=60"
#define THREADS 4u

static const char *directory;
static const char *engine = "lmdb";
static uint64_t object_count = 1000000, call_count = 20000, passes = 8;
static uint64_t next_new; /* number of the next object that was not there when filled */
static VjMeta *meta;

static void must(int rc, const char *what)
{
    if (rc < 0) {
        fprintf(stderr, "bench-index: %s: %s\n", what, g_strerror(-rc));
        exit(1);
    }
}

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/*
 * Object @number, from 0.  In each pass digests ascend, and lie at random within steps of
 * equal width; those after the last pass are wholly at random.
 */
static VjObject object_of(uint64_t number)
{
    uint64_t of_pass = object_count / passes, pass = number / of_pass;
    VjObject o = {.id = number + 1, .plain_bytes = 262144, .stored_bytes = 262144 + 1064};
    uint64_t top = mix(number);

    if (pass < passes) {
        uint64_t step = UINT64_MAX / of_pass;

        top = number % of_pass * step + top % step;
    }
    o.refs = 1;
    o.trailer_checksum = mix(~number);
    vj_be64_set(o.digest.bytes, top);
    for (unsigned i = 8; i < VJ_DIGEST_MAX_BYTES; i += 8) {
        vj_be64_set(o.digest.bytes + i, mix(number * 4 + i));
    }
    vj_be64_set(o.loc.bytes, o.id);
    return o;
}

typedef struct Batch {
    uint64_t first, count;
} Batch;

static int insert_body(VjTxn *txn, void *opaque)
{
    const Batch *b = opaque;

    for (uint64_t i = b->first; i < b->first + b->count; i++) {
        VjObject o = object_of(i);
        VjIndexKey key;
        uint64_t id;
        int rc;

        vj_index_key_of(&o, &key);
        rc = vj_index_get(txn, &key, &id);
        if (rc != -ENOENT) {
            return rc < 0 ? rc : -EEXIST;
        }
        rc = vj_index_put(txn, &key, o.id);
        rc = rc < 0 ? rc : vj_object_record_put(txn, VJ_SPACE_OBJECT, &o);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static void insert(uint64_t first, uint64_t count, uint64_t of_commit)
{
    for (uint64_t i = 0; i < count; i += of_commit) {
        Batch b = {.first = first + i, .count = MIN(of_commit, count - i)};

        must(vj_meta_run(meta, VJ_RUN_DEFAULT, insert_body, &b), "insert");
    }
}

/* ---- the file ---------------------------------------------------------------------- */

static void meta_open(const char *spec, bool create)
{
    g_autofree char *path = g_build_filename(directory, "meta", NULL);
    GError *error = NULL;
    VjMetaPlace place = {.path = path, .create = create};

    place.dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place.dir_fd < 0 || !vj_meta_open(spec, &place, &meta, &error)) {
        fprintf(stderr, "bench-index: %s: %s\n", path,
                error != NULL ? error->message : g_strerror(errno));
        exit(1);
    }
    close(place.dir_fd);
}

static void meta_close(void)
{
    must(vj_meta_close(meta), "close");
    meta = NULL;
}

static char *data_path(void)
{
    return g_build_filename(directory, "meta", VJ_LMDB_FILE, NULL);
}

static void make_cold(void)
{
    g_autofree char *path = data_path();
    int fd;

    meta_close();
    fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd < 0 || fdatasync(fd) < 0 ? -errno : 0, path);
    must(-posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), path);
    close(fd);
    meta_open(engine, false);
}

/* All of the file is in the page cache, as far as it has room. */
static void make_warm(void)
{
    g_autofree char *path = data_path();
    g_autofree char *buf = g_malloc(VJ_MIB);
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    must(fd < 0 ? -errno : 0, path);
    while (read(fd, buf, VJ_MIB) > 0) {
    }
    close(fd);
}

/* ---- what the process and the file take -------------------------------------------- */

static uint64_t number_after(const char *file, const char *key)
{
    g_autofree char *text = NULL;
    const char *at;

    if (!g_file_get_contents(file, &text, NULL, NULL)) {
        return 0;
    }
    at = strstr(text, key);
    return at == NULL ? 0 : strtoull(at + strlen(key), NULL, 10);
}

static uint64_t anonymous_bytes(void)
{
    return number_after("/proc/self/status", "RssAnon:") * 1024;
}

static uint64_t written_bytes(void)
{
    return number_after("/proc/self/io", "\nwrite_bytes: ");
}

static void single(const char *name, const char *unit, double value)
{
    figure_print(name, unit, &value, 1);
}

/* ---- lookups ----------------------------------------------------------------------- */

typedef struct Reader {
    uint64_t seed, count;
    bool absent;
} Reader;

/* @opaque: in, what the index is asked for; out, the record that it names. */
static int look_up_body(VjTxn *txn, void *opaque)
{
    VjObject *o = opaque;
    VjIndexKey key;
    uint64_t id;
    int rc;

    vj_index_key_of(o, &key);
    rc = vj_index_get(txn, &key, &id);
    return rc < 0 ? rc : vj_object_record_get(txn, VJ_SPACE_OBJECT, id, o);
}

static void look_up(uint64_t number, bool absent)
{
    VjObject o = object_of(number), found = o;
    int rc = vj_meta_view(meta, look_up_body, &found);

    if (absent) {
        must(rc == -ENOENT ? 0 : -EEXIST, "absent");
        return;
    }
    must(rc, "index and record");
    must(found.id == o.id && memcmp(&found.digest, &o.digest, sizeof o.digest) == 0
             ? 0
             : -EBADMSG,
         "record");
}

static gpointer reader_main(gpointer opaque)
{
    const Reader *r = opaque;

    for (uint64_t i = 0; i < r->count; i++) {
        uint64_t random = mix(r->seed << 32 | i);

        look_up(r->absent ? random | UINT64_C(1) << 62 : random % object_count,
                r->absent);
    }
    return NULL;
}

/* Thousands a second. */
static double lookups(uint64_t seed, bool absent, unsigned threads)
{
    Reader readers[THREADS];
    GThread *others[THREADS];
    uint64_t each = MAX(call_count / ROUNDS / threads, 1);
    int64_t begin_us = vj_clock_mono_us();

    for (unsigned i = 0; i < threads; i++) {
        readers[i] =
            (Reader){.seed = seed * THREADS + i + 1, .count = each, .absent = absent};
        others[i] = g_thread_new("reader", reader_main, &readers[i]);
    }
    for (unsigned i = 0; i < threads; i++) {
        g_thread_join(others[i]);
    }
    return (double)(each * threads) * 1e3 / (double)MAX(vj_clock_mono_us() - begin_us, 1);
}

static void measure_lookups(bool cold)
{
    double found[ROUNDS], absent[ROUNDS], several[ROUNDS];
    static uint64_t seed;

    for (int round = 0; round < ROUNDS; round++) {
        if (cold) {
            make_cold();
        }
        found[round] = lookups(++seed, false, 1);
        if (cold) {
            make_cold();
        }
        absent[round] = lookups(++seed, true, 1);
        if (cold) {
            make_cold();
        }
        several[round] = lookups(++seed, false, THREADS);
    }
    figure_print(cold ? "lookup cold" : "lookup warm", "thousand/s", found, ROUNDS);
    figure_print(cold ? "lookup cold, 4 threads" : "lookup warm, 4 threads", "thousand/s",
                 several, ROUNDS);
    figure_print(cold ? "absent cold" : "absent warm", "thousand/s", absent, ROUNDS);
}

/* ---- inserts ----------------------------------------------------------------------- */

static void measure_inserts(bool cold)
{
    double rate[ROUNDS], bytes[ROUNDS], moves[ROUNDS];
    uint64_t each = MAX(call_count / ROUNDS, 1);

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t written, moved;
        int64_t begin_us;

        if (cold) {
            make_cold();
        }
        written = written_bytes();
        moved = vj_session_moves_for_test(meta);
        begin_us = vj_clock_mono_us();
        insert(next_new, each, COMMIT);
        must(vj_meta_flush(meta), "flush");
        rate[round] = (double)each * 1e3 / (double)MAX(vj_clock_mono_us() - begin_us, 1);
        bytes[round] = (double)(written_bytes() - written) / (double)each;
        moves[round] = (double)each / (double)(vj_session_moves_for_test(meta) - moved);
        next_new += each;
    }
    figure_print(cold ? "insert cold" : "insert warm", "thousand/s", rate, ROUNDS);
    figure_print(cold ? "written for an insert, cold" : "written for an insert, warm",
                 "bytes", bytes, ROUNDS);
    figure_print(cold ? "inserts in a move, cold" : "inserts in a move, warm", "", moves,
                 ROUNDS);
}

static void measure_flush(uint64_t count)
{
    g_autofree char *name = g_strdup_printf("flush of %" G_GUINT64_FORMAT, count);
    double ms[ROUNDS];

    for (int round = 0; round < ROUNDS; round++) {
        int64_t begin_us;

        must(vj_meta_flush(meta), "flush");
        insert(next_new, count, count);
        next_new += count;
        begin_us = vj_clock_mono_us();
        must(vj_meta_flush(meta), "flush");
        ms[round] = (double)(vj_clock_mono_us() - begin_us) / 1e3;
    }
    figure_print(name, "ms", ms, ROUNDS);
}

/* ---- all of it --------------------------------------------------------------------- */

static void fill(void)
{
    int64_t begin_us = vj_clock_mono_us();
    uint64_t step = MAX(object_count / 100, FILL_COMMIT);

    for (uint64_t i = 0; i < object_count; i += step) {
        insert(i, MIN(step, object_count - i), FILL_COMMIT);
        if (isatty(STDERR_FILENO)) {
            fprintf(stderr, "\r%3.0f %%", 100.0 * (double)i / (double)object_count);
        }
    }
    meta_close();
    single("fill", "thousand/s",
           (double)object_count * 1e3 / (double)(vj_clock_mono_us() - begin_us));
}

/* In another process, whose memory is not measured. */
static void fill_apart(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        meta_open(FILL_ENGINE, true);
        fill();
        _exit(0);
    }
    must(child < 0 || waitpid(child, &status, 0) < 0 ? -errno : 0, "fork");
    must(status == 0 ? 0 : -EIO, "fill");
}

static void flaw(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "bench-index: %s\n", text);
}

static void report_size(void)
{
    g_autofree char *path = g_build_filename(directory, "meta", NULL);
    VjMetaPlace place = {.path = path};
    VjMetaExam exam;

    place.dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(place.dir_fd < 0 ? -errno : 0, path);
    must(vj_meta_examine(engine, &place, -1, flaw, NULL, &exam), "examine");
    close(place.dir_fd);
    single("bytes on disk for an object", "bytes",
           (double)exam.used_bytes * 2 / (double)exam.entries);
    single("bytes on disk for an object, with free pages", "bytes",
           (double)exam.total_bytes * 2 / (double)exam.entries);
}

static void measure(void)
{
    uint64_t empty = anonymous_bytes();

    meta_open(engine, false);
    must(vj_meta_count(meta, VJ_SPACE_OBJECT, &next_new), "count");
    next_new += UINT64_C(1) << 40; /* no two runs insert the same */
    next_new += (uint64_t)vj_clock_mono_us();
    measure_lookups(true);
    make_warm();
    measure_lookups(false);
    single("memory behind lookups", "MiB", (double)(anonymous_bytes() - empty) / 1048576);
    measure_inserts(true);
    make_warm();
    measure_inserts(false);
    single("memory behind inserts", "MiB", (double)(anonymous_bytes() - empty) / 1048576);
    measure_flush(1);
    measure_flush(64);
    measure_flush(4096);
    meta_close();
}

static void clean_up(void)
{
    g_autofree char *path = g_build_filename(directory, "meta", NULL);
    GDir *dir = g_dir_open(path, 0, NULL);
    const char *name;

    while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *file = g_build_filename(path, name, NULL);

        (void)unlink(file);
    }
    if (dir != NULL) {
        g_dir_close(dir);
    }
    (void)rmdir(path);
}

int main(int argc, char **argv)
{
    g_autofree char *made = NULL, *data = NULL;
    bool keep = false;
    int c;

    while ((c = getopt(argc, argv, "n:q:P:m:k")) != -1) {
        switch (c) {
        case 'n':
            object_count = (uint64_t)strtod(optarg, NULL);
            break;
        case 'q':
            call_count = (uint64_t)strtod(optarg, NULL);
            break;
        case 'P':
            passes = strtoull(optarg, NULL, 10);
            break;
        case 'm':
            engine = optarg;
            break;
        case 'k':
            keep = true;
            break;
        default:
            return 2;
        }
    }
    if (optind != argc - 1 || passes == 0 || object_count < passes * 16) {
        fprintf(stderr, "usage: bench-index [-n OBJECTS] [-q COUNT] [-P PASSES] "
                        "[-m ENGINE] [-k] DIRECTORY\n");
        return 2;
    }
    directory = argv[optind];
    object_count -= object_count % passes;
    made = g_build_filename(directory, "meta", NULL);
    data = data_path();
    must(mkdir(made, 0700) < 0 && errno != EEXIST ? -errno : 0, made);
    if (access(data, F_OK) < 0) {
        fill_apart();
    }
    if (call_count > 0) {
        report_size();
        measure();
    }
    if (!keep) {
        clean_up();
    }
    return 0;
}
