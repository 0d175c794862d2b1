/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * workload.c - what is done on a recorded mount before its power is cut
 *
 *   workload NAME --dir MNT --log LOG [--seed N] [--ops N] [--remount COMMAND]
 *
 * Every call is noted in the log before it is made (stream.h).  At random, but the same
 * for the same seed.
 */
#include "stream.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

typedef struct Options {
    char *dir, *log, *remount, *source;
    gint64 seed;
    int ops;
} Options;

typedef struct Workload {
    const char *name;
    int ops; /* unless it is told */
    void (*run)(StreamWriter *w, const Options *o);
} Workload;

#define EDIT_FILES 4u
#define EDIT_MOST ((size_t)192 << 10)

static bool one_in(StreamWriter *w, uint64_t n)
{
    return vj_rng_below(&w->rng, n) == 0;
}

static WFile *some_file(StreamWriter *w, WFile **files, unsigned count)
{
    return files[vj_rng_below(&w->rng, count)];
}

static void run_command(StreamWriter *w, const char *command)
{
    if (system(command) != 0) {
        stream_failed(w, "%s", command);
    }
}

/* ---- edits ------------------------------------------------------------------------- */

static void sync_some(StreamWriter *w, WFile *f)
{
    switch (vj_rng_below(&w->rng, 8)) {
    case 0:
        stream_sync_all(w);
        break;
    case 1:
        stream_sync_names(w);
        break;
    case 2:
        stream_write_sync(w, f, (size_t)vj_rng_below(&w->rng, f->shadow.len + 1), 700);
        break;
    default:
        stream_fsync(w, f, one_in(w, 2));
    }
}

static void make_files(StreamWriter *w, WFile **files, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        g_autofree char *name = g_strdup_printf("f%u", i);

        files[i] = stream_create(w, name);
    }
}

static void run_edits(StreamWriter *w, const Options *o)
{
    WFile *files[EDIT_FILES];

    make_files(w, files, EDIT_FILES);
    for (int i = 0; i < o->ops; i++) {
        WFile *f = some_file(w, files, EDIT_FILES);

        stream_edit(w, f, some_file(w, files, EDIT_FILES), EDIT_MOST);
        if (one_in(w, 5)) {
            sync_some(w, f);
        }
    }
}

/* Small edits, most of them made durable at once: fragments, which become objects beside
 * them. */
static void run_fragments(StreamWriter *w, const Options *o)
{
    WFile *files[EDIT_FILES];

    make_files(w, files, EDIT_FILES);
    for (int i = 0; i < o->ops; i++) {
        WFile *f = some_file(w, files, EDIT_FILES);

        stream_edit(w, f, some_file(w, files, EDIT_FILES), EDIT_MOST);
        if (!one_in(w, 4)) {
            stream_fsync(w, f, one_in(w, 2));
        } else if (one_in(w, 4)) {
            sync_some(w, f);
        }
    }
}

/* ---- editors ----------------------------------------------------------------------- */

#define DOCUMENTS 5u

/* The new text of a document, in a file under another name. */
static WFile *write_text(StreamWriter *w, const char *path)
{
    WFile *f = stream_create(w, path);
    unsigned parts = 1 + (unsigned)vj_rng_below(&w->rng, 3);

    for (unsigned i = 0; i < parts; i++) {
        stream_write(w, f, f->shadow.len, 1 + data_length(&w->rng, 60000));
    }
    return f;
}

/* As an editor saves: the old text is never given up before the new one is there. */
static WFile *save(StreamWriter *w, WFile *old, const char *path)
{
    g_autofree char *temporary = g_strconcat(path, ".new", NULL);
    g_autofree char *backup = g_strconcat(path, "~", NULL);
    unsigned way = (unsigned)vj_rng_below(&w->rng, 6);
    WFile *f;

    if (way == 0) { /* in place: may be seen empty, or in part */
        stream_truncate(w, old, 0);
        stream_write(w, old, 0, 1 + data_length(&w->rng, 60000));
        stream_fsync(w, old, false);
        return old;
    }
    f = write_text(w, temporary);
    if (way <= 2) {
        stream_fsync(w, f, way == 1);
    }
    if (way == 5) {
        stream_exchange(w, f, temporary, old, path);
        stream_unlink(w, temporary);
    } else if (way == 4) {
        stream_link(w, old, backup);
        stream_rename(w, f, temporary, path, true);
        stream_unlink(w, backup);
    } else {
        stream_rename(w, f, temporary, path, true);
    }
    if (one_in(w, 4)) {
        stream_sync_names(w);
    }
    stream_drop(w, old);
    return f;
}

static void run_editors(StreamWriter *w, const Options *o)
{
    WFile *files[DOCUMENTS];

    make_files(w, files, DOCUMENTS);
    for (unsigned i = 0; i < DOCUMENTS; i++) {
        stream_write(w, files[i], 0, 1 + data_length(&w->rng, 60000));
        stream_fsync(w, files[i], false);
    }
    for (int i = 0; i < o->ops; i++) {
        unsigned k = (unsigned)vj_rng_below(&w->rng, DOCUMENTS);
        g_autofree char *path = g_strdup_printf("f%u", k);

        files[k] = save(w, files[k], path);
    }
}

/* ---- many small files -------------------------------------------------------------- */

#define SMALL_FILES 40u
#define SMALL_DIRS 4u

typedef struct Small {
    WFile *file; /* NULL: the place is free */
    char *path, *link;
} Small;

static void small_make(StreamWriter *w, Small *s, unsigned place)
{
    s->path =
        g_strdup_printf("d%u/s%u-%" G_GUINT64_FORMAT,
                        (unsigned)vj_rng_below(&w->rng, SMALL_DIRS), place, w->files);
    s->file = stream_create(w, s->path);
    if (!one_in(w, 5)) {
        stream_write(w, s->file, 0, data_length(&w->rng, one_in(w, 6) ? 20000 : 3000));
    }
}

static void small_remove(StreamWriter *w, Small *s)
{
    stream_unlink(w, s->path);
    if (s->link != NULL) {
        stream_unlink(w, s->link);
    }
    stream_drop(w, s->file);
    g_free(s->path);
    g_free(s->link);
    *s = (Small){.file = NULL};
}

static void small_change(StreamWriter *w, Small *s, unsigned place)
{
    g_autofree char *path =
        g_strdup_printf("d%u/r%u-%" G_GUINT64_FORMAT,
                        (unsigned)vj_rng_below(&w->rng, SMALL_DIRS), place, w->steps);

    switch (vj_rng_below(&w->rng, 6)) {
    case 0:
        small_remove(w, s);
        break;
    case 1:
        if (s->link == NULL) {
            stream_link(w, s->file, path);
            s->link = g_steal_pointer(&path);
        } else {
            stream_unlink(w, s->link);
            g_clear_pointer(&s->link, g_free);
        }
        break;
    case 2:
    case 3:
        stream_rename(w, s->file, s->path, path, false);
        g_free(s->path);
        s->path = g_steal_pointer(&path);
        break;
    case 4:
        stream_fsync(w, s->file, false);
        break;
    default:
        stream_write(w, s->file, (size_t)vj_rng_below(&w->rng, s->file->shadow.len + 1),
                     data_length(&w->rng, 2000));
    }
}

static void small_over(StreamWriter *w, Small *from, Small *to)
{
    if (from == to || from->file == NULL || to->file == NULL) {
        return;
    }
    stream_rename(w, from->file, from->path, to->path, true);
    if (to->link != NULL) {
        stream_unlink(w, to->link);
        g_clear_pointer(&to->link, g_free);
    }
    stream_drop(w, to->file);
    to->file = NULL;
    g_free(from->path);
    from->path = g_steal_pointer(&to->path);
}

static void small_ops(StreamWriter *w, int ops, unsigned syncs)
{
    Small small[SMALL_FILES] = {{.file = NULL}};

    for (unsigned i = 0; i < SMALL_DIRS; i++) {
        g_autofree char *path = g_strdup_printf("d%u", i);

        stream_mkdir(w, path);
    }
    for (int i = 0; i < ops; i++) {
        unsigned place = (unsigned)vj_rng_below(&w->rng, SMALL_FILES);
        Small *s = &small[place];

        if (s->file == NULL) {
            small_make(w, s, place);
        } else if (one_in(w, 8)) {
            small_over(w, s, &small[vj_rng_below(&w->rng, SMALL_FILES)]);
        } else {
            small_change(w, s, place);
        }
        if (one_in(w, 20)) {
            g_autofree char *path = g_strdup_printf("e%d", i);

            stream_mkdir(w, path);
            if (one_in(w, 2)) {
                stream_rmdir(w, path);
            }
        }
        if (syncs > 0 && one_in(w, syncs)) {
            stream_sync_names(w);
        }
    }
    stream_sync_names(w);
    for (unsigned i = 0; i < SMALL_FILES; i++) {
        if (small[i].file != NULL) {
            small_remove(w, &small[i]);
        }
    }
}

static void run_small(StreamWriter *w, const Options *o)
{
    small_ops(w, o->ops, 12);
}

/*
 * More than a thousand commits and no flush between: each replacing is three at least.
 * Mounted with a long commit=; what is so small lies inline, so nothing dies that the
 * reaper would flush for.
 */
static void run_commits(StreamWriter *w, const Options *o)
{
    for (int i = 0; i < o->ops; i++) {
        g_autofree char *path = g_strdup_printf("n%d", i % 50);
        g_autofree char *over = i >= 50 ? g_strconcat(path, ".new", NULL) : NULL;
        WFile *f = stream_create(w, over != NULL ? over : path);

        stream_write(w, f, 0, 1 + data_length(&w->rng, 3000));
        if (over != NULL) {
            stream_rename(w, f, over, path, true);
        }
        if (i % 500 == 499) {
            stream_fsync(w, f, false);
        }
        stream_drop(w, f);
    }
}

/* ---- recode, gc, orphans ----------------------------------------------------------- */

static void run_recode(StreamWriter *w, const Options *o)
{
    static const char *const transforms[] = {"none", "xor", "rle", "lz4", "zstd"};
    WFile *files[EDIT_FILES];

    make_files(w, files, EDIT_FILES);
    for (int i = 0; i < o->ops; i++) {
        unsigned k = (unsigned)vj_rng_below(&w->rng, EDIT_FILES);
        WFile *f = files[k];

        if (one_in(w, 5)) {
            const char *transform =
                transforms[vj_rng_below(&w->rng, G_N_ELEMENTS(transforms))];
            g_autofree char *command =
                g_strdup_printf("varjfsctl recode %s/f%u", w->dir, k);

            /* A build may lack one. */
            if (fsetxattr(f->fd, "user.varjfs.transform", transform, strlen(transform),
                          0) < 0 &&
                errno != EINVAL) {
                stream_failed(w, "setxattr");
            }
            run_command(w, command);
        } else {
            stream_edit(w, f, some_file(w, files, EDIT_FILES), EDIT_MOST);
        }
        if (one_in(w, 6)) {
            sync_some(w, f);
        }
    }
}

static void run_gc(StreamWriter *w, const Options *o)
{
    g_autofree char *gc = g_strdup_printf("varjfsctl gc %s >/dev/null", w->dir);
    g_autofree char *scrub = g_strdup_printf("varjfsctl scrub %s >/dev/null", w->dir);
    WFile *files[EDIT_FILES];

    make_files(w, files, EDIT_FILES);
    for (int i = 0; i < o->ops; i++) {
        WFile *f = some_file(w, files, EDIT_FILES);

        if (one_in(w, 4)) { /* much dies at once */
            stream_truncate(w, f, 0);
            stream_write(w, f, 0, STREAM_WRITE_MOST);
        } else {
            stream_edit(w, f, some_file(w, files, EDIT_FILES), EDIT_MOST);
        }
        if (one_in(w, 6)) {
            sync_some(w, f);
        }
        if (one_in(w, 10)) {
            run_command(w, one_in(w, 4) ? scrub : gc);
        }
    }
}

static void grow(StreamWriter *w, WFile *f, unsigned parts)
{
    for (unsigned i = 0; i < parts; i++) {
        stream_write(w, f, f->shadow.len, STREAM_WRITE_MOST);
    }
}

/* With small objects, a file of more entries than one transaction drops. */
static void run_orphans(StreamWriter *w, const Options *o)
{
    for (int i = 0; i < o->ops; i++) {
        g_autofree char *path = g_strdup_printf("o%d", i);
        bool tmpfile = one_in(w, 3);
        WFile *f = tmpfile ? stream_tmpfile(w) : NULL;

        tmpfile = f != NULL;
        if (f == NULL) {
            f = stream_create(w, path);
        }
        grow(w, f, 1 + (unsigned)vj_rng_below(&w->rng, 12));
        if (one_in(w, 2)) {
            stream_fsync(w, f, false);
        }
        if (tmpfile && one_in(w, 2)) {
            stream_link(w, f, path);
            tmpfile = false;
        }
        if (one_in(w, 3)) {
            stream_truncate(w, f, (size_t)vj_rng_below(&w->rng, 9000));
        }
        if (!tmpfile && !one_in(w, 4)) {
            stream_unlink(w, path);
        }
        if (one_in(w, 2)) { /* it is still open */
            stream_edit(w, f, f, f->shadow.len + EDIT_MOST);
        }
        if (one_in(w, 3)) {
            stream_sync_names(w);
        }
        stream_drop(w, f);
    }
    stream_sync_all(w);
}

/* ---- remounts ---------------------------------------------------------------------- */

static void remount(StreamWriter *w, const Options *o)
{
    stream_close_files(w);
    run_command(w, o->remount);
    stream_reopen(w);
}

static void run_remounts(StreamWriter *w, const Options *o)
{
    WFile *files[EDIT_FILES];

    make_files(w, files, EDIT_FILES);
    for (int i = 0; i < o->ops; i++) {
        WFile *f = some_file(w, files, EDIT_FILES);

        stream_edit(w, f, some_file(w, files, EDIT_FILES), EDIT_MOST);
        if (one_in(w, 4)) {
            g_autofree char *path = g_strdup_printf("f%d.new", i),
                            *to = g_strdup(f->path);
            WFile *text = write_text(w, path);

            stream_rename(w, text, path, to, true);
            for (unsigned k = 0; k < EDIT_FILES; k++) {
                files[k] = files[k] == f ? text : files[k];
            }
            stream_drop(w, f);
        }
        if (one_in(w, 6)) {
            remount(w, o);
        }
    }
}

/* ---- the metadata file is written anew --------------------------------------------- */

#define BALLAST_FILES 26u
#define BALLAST_VALUES 40u
#define BALLAST_VALUE_BYTES ((size_t)64 << 10)
#define SHRUNK_WAIT_US ((int64_t)60 * G_USEC_PER_SEC)

/* Metadata beside the stream, in bulk: attributes of zeroes, which take no room in a
 * state. */
static void load_ballast(StreamWriter *w, const Options *o)
{
    g_autofree char *value = g_malloc0(BALLAST_VALUE_BYTES);

    for (unsigned i = 0; i < BALLAST_FILES; i++) {
        g_autofree char *path = g_strdup_printf("%s/ballast%u", o->dir, i);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

        for (unsigned k = 0; fd >= 0 && k < BALLAST_VALUES; k++) {
            g_autofree char *name = g_strdup_printf("user.ballast%u", k);

            if (fsetxattr(fd, name, value, BALLAST_VALUE_BYTES, 0) < 0) {
                stream_failed(w, "%s: setxattr", path);
            }
        }
        if (fd < 0 || close(fd) < 0) {
            stream_failed(w, "%s", path);
        }
    }
}

static void drop_ballast(StreamWriter *w, const Options *o)
{
    for (unsigned i = 0; i < BALLAST_FILES; i++) {
        g_autofree char *path = g_strdup_printf("%s/ballast%u", o->dir, i);

        if (unlink(path) < 0) {
            stream_failed(w, "%s", path);
        }
    }
}

/* The metadata file: another one when it was written anew. */
static ino_t data_file(StreamWriter *w, const Options *o)
{
    g_autofree char *path = g_build_filename(o->source, "meta", "data.mdb", NULL);
    struct stat st = {0};

    if (stat(path, &st) < 0) {
        stream_failed(w, "%s", path);
    }
    return st.st_ino;
}

/* Of a mount with shrink=1. */
static void edit_until_shrunk(StreamWriter *w, const Options *o, WFile **files,
                              ino_t before)
{
    int64_t until_us = vj_clock_mono_us() + SHRUNK_WAIT_US;

    while (data_file(w, o) == before) {
        WFile *f = some_file(w, files, DOCUMENTS);

        stream_edit(w, f, some_file(w, files, DOCUMENTS), EDIT_MOST);
        sync_some(w, f);
        if (vj_clock_mono_us() > until_us) {
            errno = ETIMEDOUT;
            stream_failed(w, "data.mdb is not written anew");
        }
    }
}

/*
 * Most of the metadata goes, so that the unmount writes the rest to a new file; with many
 * ops twice.  Around that names and contents are made, some of them not synced before.
 */
static void compact(StreamWriter *w, const Options *o, bool mounted)
{
    int rounds = o->ops < 40 ? 1 : 2;
    WFile *files[DOCUMENTS];
    ino_t written;

    make_files(w, files, DOCUMENTS);
    for (int round = 0; round < rounds; round++) {
        load_ballast(w, o);
        written = data_file(w, o);
        for (int i = 0; i < o->ops / rounds; i++) {
            unsigned k = (unsigned)vj_rng_below(&w->rng, DOCUMENTS);
            g_autofree char *path = g_strdup_printf("f%u", k);
            g_autofree char *one = g_strdup_printf("m%d-%d", round, i);
            WFile *f = stream_create(w, one);

            stream_write(w, f, 0, data_length(&w->rng, 3000));
            stream_drop(w, f);
            if (!one_in(w, 4)) {
                stream_unlink(w, one);
            }
            files[k] = save(w, files[k], path);
        }
        stream_sync_all(w);
        drop_ballast(w, o);
        stream_edit(w, files[0], files[1], EDIT_MOST);
        if (mounted) {
            edit_until_shrunk(w, o, files, written);
        } else {
            remount(w, o);
        }
    }
    for (int i = 0; i < o->ops / 4; i++) {
        WFile *f = some_file(w, files, DOCUMENTS);

        stream_edit(w, f, some_file(w, files, DOCUMENTS), EDIT_MOST);
        if (one_in(w, 4)) {
            sync_some(w, f);
        }
    }
}

static void run_compact(StreamWriter *w, const Options *o)
{
    compact(w, o, false);
}

/* The same, but that nothing is unmounted: the rest goes to a new file beside edits. */
static void run_shrink(StreamWriter *w, const Options *o)
{
    compact(w, o, true);
}

/* ---- what is removed is overwritten ------------------------------------------------ */

#define SECRET_FILES 3u
#define SECRET_BYTES ((size_t)40 << 10)
#define ERASED_WAIT_US ((int64_t)60 * G_USEC_PER_SEC)
#define POLL_US 2000

/* As erase-state.sh looks for it. */
static char *secret_text(int round)
{
    return g_strdup_printf("nobody is to find number %d again\n", round);
}

static char *secret_path(const Options *o, int round, unsigned i)
{
    return g_strdup_printf("%s/secret%d-%u", o->dir, round, i);
}

/* Of files beside the stream: one inline, one of objects, one of a fragment; and an
 * attribute. */
static void make_secrets(StreamWriter *w, const Options *o, int round)
{
    static const size_t lengths[SECRET_FILES] = {3000, SECRET_BYTES, SECRET_BYTES};
    g_autofree char *text = secret_text(round), *bytes = g_malloc(SECRET_BYTES);
    size_t len = strlen(text);

    for (unsigned i = 0; i < SECRET_FILES; i++) {
        g_autofree char *path = secret_path(o, round, i);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

        for (size_t at = 0; at < lengths[i]; at += len) {
            memcpy(bytes + at, text, MIN(len, lengths[i] - at));
        }
        if (fd < 0 || fsetxattr(fd, "user.secret", text, len, 0) < 0 ||
            write(fd, bytes, lengths[i]) != (ssize_t)lengths[i] || fsync(fd) < 0 ||
            (i == 2 && (pwrite(fd, bytes + 7, 2000, 100) != 2000 || fsync(fd) < 0)) ||
            close(fd) < 0) {
            stream_failed(w, "%s", path);
        }
    }
}

static void remove_secrets(StreamWriter *w, const Options *o, int round)
{
    g_autofree char *gc = g_strdup_printf(
        "varjfsctl sync %s && varjfsctl gc %s >/dev/null", o->dir, o->dir);

    for (unsigned i = 0; i < SECRET_FILES; i++) {
        g_autofree char *path = secret_path(o, round, i);

        if (unlink(path) < 0) {
            stream_failed(w, "%s", path);
        }
    }
    run_command(w, gc);
}

/* The file, as it is now: the log may have it until the unmount. */
static bool is_secret_in(const char *path, const char *text)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *bytes = NULL;
    gsize len = 0;

    return g_file_get_contents(path, &bytes, &len, &error) &&
           memmem(bytes, len, text, strlen(text)) != NULL;
}

static void edit_once(StreamWriter *w, WFile **files, int64_t until_us, const char *what)
{
    WFile *f = some_file(w, files, EDIT_FILES);

    stream_edit(w, f, some_file(w, files, EDIT_FILES), EDIT_MOST);
    sync_some(w, f);
    if (vj_clock_mono_us() > until_us) {
        errno = ETIMEDOUT;
        stream_failed(w, "%s", what);
    }
}

/* Until the metadata file has it, and not the log alone. */
static void edit_until_moved(StreamWriter *w, const Options *o, WFile **files, int round)
{
    g_autofree char *text = secret_text(round);
    g_autofree char *data = g_build_filename(o->source, "meta", "data.mdb", NULL);
    int64_t until_us = vj_clock_mono_us() + ERASED_WAIT_US;

    while (!is_secret_in(data, text)) {
        edit_once(w, files, until_us, "what was made is not in data.mdb");
    }
}

/* Until the metadata have been written anew, twice without it: then it is durable that
 * they are without. */
static void edit_until_erased(StreamWriter *w, const Options *o, WFile **files, int round)
{
    g_autofree char *text = secret_text(round);
    g_autofree char *data = g_build_filename(o->source, "meta", "data.mdb", NULL);
    g_autofree char *old = g_build_filename(o->source, "meta", "data.mdb.old", NULL);
    int64_t until_us = vj_clock_mono_us() + ERASED_WAIT_US;
    unsigned anew = 0;
    ino_t before = data_file(w, o), now;

    while (anew < 2 || access(old, F_OK) == 0) {
        /* Edits would use the pages again that have it, before the first time. */
        if (anew > 0 || vj_clock_mono_us() > until_us) {
            edit_once(w, files, until_us, "what was removed is not overwritten");
        } else {
            g_usleep(POLL_US);
        }
        now = data_file(w, o);
        if (now != before) {
            anew = is_secret_in(data, text) ? 0 : anew + 1;
            before = now;
        }
    }
}

/* Of a mount with erase=1 for the metadata, and erase=yes for objects. */
static void run_erase(StreamWriter *w, const Options *o)
{
    int rounds = MAX(o->ops / 20, 1);
    WFile *files[EDIT_FILES];

    make_files(w, files, EDIT_FILES);
    for (int round = 1; round <= rounds; round++) {
        g_autofree char *removed = g_strdup_printf("!removed %d", round);
        g_autofree char *erased = g_strdup_printf("!erased %d", round);

        make_secrets(w, o, round);
        for (int i = 0; i < o->ops / rounds; i++) {
            WFile *f = some_file(w, files, EDIT_FILES);

            stream_edit(w, f, some_file(w, files, EDIT_FILES), EDIT_MOST);
            if (one_in(w, 4)) {
                sync_some(w, f);
            }
        }
        edit_until_moved(w, o, files, round);
        remove_secrets(w, o, round);
        stream_note(w, removed);
        edit_until_erased(w, o, files, round);
        stream_note(w, erased);
        if (round < rounds) {
            remount(w, o);
        }
    }
}

/* ---- checkpoints ------------------------------------------------------------------- */

typedef struct Checkpoint {
    StreamWriter *w;
    const Options *o;
    GPtrArray *to_keep;
    GThread *thread;
} Checkpoint;

static gpointer checkpoint_thread(gpointer opaque)
{
    Checkpoint *c = opaque;
    g_autofree char *command =
        g_strdup_printf("varjfsctl checkpoint %s >/dev/null", c->o->dir);

    run_command(c->w, command);
    stream_kept(c->w, g_steal_pointer(&c->to_keep));
    return NULL;
}

static void end_checkpoint(Checkpoint *c)
{
    if (c->thread != NULL) {
        g_thread_join(c->thread);
        c->thread = NULL;
    }
}

static void begin_checkpoint(Checkpoint *c)
{
    end_checkpoint(c);
    c->to_keep = stream_to_keep(c->w);
    c->thread = g_thread_new("checkpoint", checkpoint_thread, c);
}

static void run_checkpoint(StreamWriter *w, const Options *o)
{
    Checkpoint c = {.w = w, .o = o};
    WFile *files[EDIT_FILES];

    make_files(w, files, EDIT_FILES);
    for (int i = 0; i < o->ops; i++) {
        unsigned k = (unsigned)vj_rng_below(&w->rng, EDIT_FILES);
        g_autofree char *path = g_strdup_printf("f%u", k);

        if (one_in(w, 3)) {
            files[k] = save(w, files[k], path);
        } else {
            stream_edit(w, files[k], some_file(w, files, EDIT_FILES), EDIT_MOST);
        }
        if (one_in(w, 6)) {
            sync_some(w, files[k]);
        }
        if (one_in(w, 10)) {
            begin_checkpoint(&c);
        }
        if (one_in(w, 25)) {
            end_checkpoint(&c);
            remount(w, o);
        }
    }
    end_checkpoint(&c);
}

/* ---- a device that fails ----------------------------------------------------------- */

static void run_faults(StreamWriter *w, const Options *o)
{
    WFile *files[EDIT_FILES];

    w->repeats = true;
    make_files(w, files, EDIT_FILES);
    for (int i = 0; i < o->ops; i++) {
        unsigned k = (unsigned)vj_rng_below(&w->rng, EDIT_FILES);
        g_autofree char *path = g_strdup_printf("f%u", k);

        if (one_in(w, 3)) {
            files[k] = save(w, files[k], path);
        } else {
            stream_edit(w, files[k], some_file(w, files, EDIT_FILES), EDIT_MOST);
        }
        if (one_in(w, 2)) {
            sync_some(w, files[k]);
        }
    }
}

/* ---- all at once ------------------------------------------------------------------- */

typedef struct Part {
    StreamWriter w;
    Options o;
    void (*run)(StreamWriter *w, const Options *o);
} Part;

static gpointer part_thread(gpointer opaque)
{
    Part *p = opaque;

    p->run(&p->w, &p->o);
    return NULL;
}

static void run_mixed(StreamWriter *w, const Options *o)
{
    static const struct {
        const char *name;
        void (*run)(StreamWriter *w, const Options *o);
    } parts[] = {{"edits", run_edits},
                 {"editors", run_editors},
                 {"small", run_small},
                 {"gc", run_gc}};
    Part run[G_N_ELEMENTS(parts)];
    GThread *threads[G_N_ELEMENTS(parts)];

    for (unsigned i = 0; i < G_N_ELEMENTS(parts); i++) {
        run[i].run = parts[i].run;
        run[i].o = *o;
        run[i].o.ops = o->ops / (int)G_N_ELEMENTS(parts);
        stream_open(&run[i].w, o->dir, parts[i].name, w->log_fd, w->pool,
                    vj_rng_u64(&w->rng));
        threads[i] = g_thread_new(parts[i].name, part_thread, &run[i]);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(parts); i++) {
        g_thread_join(threads[i]);
        stream_close(&run[i].w);
    }
}

/* ------------------------------------------------------------------------------------ */

static const Workload workloads[] = {
    {"edits", 500, run_edits},
    {"editors", 150, run_editors},
    {"fragments", 500, run_fragments},
    {"small", 800, run_small},
    {"commits", 2600, run_commits},
    {"recode", 200, run_recode},
    {"gc", 250, run_gc},
    {"orphans", 60, run_orphans},
    {"remounts", 120, run_remounts},
    {"mixed", 800, run_mixed},
    {"compact", 60, run_compact},
    {"shrink", 60, run_shrink},
    {"erase", 60, run_erase},
    {"checkpoint", 150, run_checkpoint},
    {"metafault", 200, run_faults},
    {"storefault", 200, run_faults},
};

static int run(const Workload *workload, const Options *o)
{
    DataPool *pool = g_new(DataPool, 1);
    int fd = open(o->log, O_WRONLY | O_APPEND | O_CLOEXEC);
    StreamWriter w;

    if (fd < 0) {
        fprintf(stderr, "workload: %s: %s\n", o->log, g_strerror(errno));
        return EXIT_FAILURE;
    }
    data_pool_init(pool, (uint64_t)o->seed);
    stream_open(&w, o->dir, "w", fd, pool, (uint64_t)o->seed);
    workload->run(&w, o);
    stream_sync_names(&w);
    stream_close(&w);
    close(fd);
    g_free(pool);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    Options o = {.seed = 1};
    const GOptionEntry entries[] = {
        {"dir", 0, 0, G_OPTION_ARG_FILENAME, &o.dir, "the mount", "DIR"},
        {"log", 0, 0, G_OPTION_ARG_FILENAME, &o.log, "the recorder's", "FILE"},
        {"seed", 0, 0, G_OPTION_ARG_INT64, &o.seed, "of what is done", "N"},
        {"ops", 0, 0, G_OPTION_ARG_INT, &o.ops, "how much", "N"},
        {"source", 0, 0, G_OPTION_ARG_FILENAME, &o.source, "what is mounted", "DIR"},
        {"remount", 0, 0, G_OPTION_ARG_STRING, &o.remount, "unmounts and mounts",
         "COMMAND"},
        {NULL},
    };
    g_autoptr(GOptionContext) context = g_option_context_new("NAME");
    g_autoptr(GError) error = NULL;

    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &error)) {
        fprintf(stderr, "workload: %s\n", error->message);
        return EXIT_FAILURE;
    }
    for (size_t i = 0;
         argc == 2 && o.dir != NULL && o.log != NULL && i < G_N_ELEMENTS(workloads);
         i++) {
        if (strcmp(workloads[i].name, argv[1]) == 0) {
            o.ops = o.ops > 0 ? o.ops : workloads[i].ops;
            return run(&workloads[i], &o);
        }
    }
    for (size_t i = 0; i < G_N_ELEMENTS(workloads); i++) {
        fprintf(stderr, "%s\n", workloads[i].name);
    }
    return EXIT_FAILURE;
}
