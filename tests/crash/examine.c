/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * examine.c - see examine.h
 *
 * 1. Read-only, with nothing repaired or recovered: all that fsck.varjfs -n looks at.
 * 2. Opened as a mount opens it: names and contents are compared with the history; gc;
 *    the same again; then the volume is written to, synced and closed.
 * 3. As 1: and nothing leaks any more.
 *
 * Where a checkpoint was restored, objects may be missing that it names, and objects be
 * there that it does not name.  Then reading gives an error, but never bytes that there
 * were not.
 */
#include "examine.h"
#include "fsck/fsck.h"

#include "fs/fs.h"
#include "volume/volume.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define WRITTEN_BYTES ((size_t)40 * 1000)
#define TOLD_MOST 20u
#define FILE_MOST ((uint64_t)64 << 20)

static void G_GNUC_PRINTF(2, 3) say(Examine *e, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    g_string_append_vprintf(e->said, format, args);
    va_end(args);
    g_string_append_c(e->said, '\n');
}

static void must(Examine *e, int r, const char *what)
{
    if (r < 0) {
        say(e, "%s: %s", what, g_strerror(-r));
    }
}

/* ---- 1 and 3: the check ------------------------------------------------------------ */

/* Only told: what is counted decides. */
static void say_problem(void *opaque, const char *text)
{
    Examine *e = opaque;

    if (++e->told <= TOLD_MOST) {
        fprintf(stderr, "check: %s\n", text);
    }
}

static bool check(Examine *e, bool is_second)
{
    VjVolumeOpen how = {
        .source = e->source, .read_only = true, .check = true, .workers = 1};
    VjCheckReport report = {.tick = NULL};
    g_autoptr(GError) error = NULL;
    VjVolume *v;

    if (!vj_volume_open(&how, &v, &error)) {
        if (!e->in_the_making) {
            say(e, "it cannot be opened to be checked: %s", error->message);
        }
        return false;
    }
    must(e, vj_fsck_contents(v, true, say_problem, e, &report), "check");
    must(e, vj_fsck_names(v, say_problem, e, &report), "check of names");
    if (report.problems > 0) {
        say(e, "%" G_GUINT64_FORMAT " problems", report.problems);
    }
    if ((report.lost > 0 || report.whole > 0) && !e->at.is_restored) {
        say(e, "%" G_GUINT64_FORMAT " objects are marked as damaged", report.lost);
    }
    if (report.leaks > 0 && (is_second || !e->at.is_restored)) {
        say(e, "%" G_GUINT64_FORMAT " objects leak%s", report.leaks,
            is_second ? " after gc" : "");
    }
    if (!is_second) {
        e->leaks = report.leaks;
        e->pending = report.pending;
        e->objects = report.objects;
        e->names = report.names;
    }
    must(e, vj_volume_close(v), "close after the check");
    return true;
}

/* ---- 2: names ---------------------------------------------------------------------- */

typedef struct Tree {
    Examine *e;
    VjFs *fs;
    const Stream *stream;
    const char *prefix; /* of the directory being read, with its slash */
    GHashTable *found;  /* path → inode, 0 for a directory */
    GPtrArray *dirs;    /* char *, guint64 *: still to be read */
    uint64_t sum;
} Tree;

static bool visit_name(void *opaque, const VjDirent *entry, const VjAttr *attr)
{
    Tree *t = opaque;
    bool is_directory = entry->type == DT_DIR;
    uint64_t number = STREAM_DIRECTORY;
    guint64 ino = entry->ino, found = is_directory ? 0 : ino;
    char *path;

    (void)attr;
    if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0) {
        return true;
    }
    path = g_strconcat(t->prefix, entry->name, NULL);
    if (is_directory) {
        g_ptr_array_add(t->dirs, g_strconcat(path, "/", NULL));
        g_ptr_array_add(t->dirs, g_memdup2(&ino, sizeof ino));
    } else {
        const StreamFile *f = g_hash_table_lookup(t->stream->by_ino, &ino);

        number = f != NULL ? f->number : 0;
    }
    t->sum ^= history_name_sum(path, number);
    g_hash_table_insert(t->found, path, g_memdup2(&found, sizeof found));
    return true;
}

static int read_tree(Tree *t, uint64_t root)
{
    int r = 0;

    t->dirs = g_ptr_array_new_with_free_func(g_free);
    g_ptr_array_add(t->dirs, g_strdup(""));
    g_ptr_array_add(t->dirs, g_memdup2(&root, sizeof root));
    for (guint i = 0; r == 0 && i < t->dirs->len; i += 2) {
        t->prefix = t->dirs->pdata[i];
        r = vj_fs_readdir(t->fs, *(guint64 *)t->dirs->pdata[i + 1], 0, NULL, SIZE_MAX / 2,
                          false, visit_name, t);
    }
    g_ptr_array_unref(t->dirs);
    return r;
}

static void say_names(Examine *e, const Tree *t, size_t least, size_t most)
{
    g_autoptr(GHashTable) before = stream_names(t->stream, least);
    g_autoptr(GHashTable) after = stream_names(t->stream, most);
    GHashTableIter iter;
    gpointer path, value;

    say(e,
        "/%s: its names are those after none of the steps %zu to %zu; different from "
        "both:",
        t->stream->name, least, most);
    g_hash_table_iter_init(&iter, t->found);
    while (g_hash_table_iter_next(&iter, &path, &value)) {
        const StreamFile *f = g_hash_table_lookup(t->stream->by_ino, value);
        uint64_t number = *(guint64 *)value == 0 ? STREAM_DIRECTORY
                          : f != NULL            ? f->number
                                                 : 0;
        const guint64 *a = g_hash_table_lookup(before, path);
        const guint64 *b = g_hash_table_lookup(after, path);

        if ((a == NULL || *a != number) && (b == NULL || *b != number)) {
            say(e, "  %s is inode %" G_GUINT64_FORMAT ", file %" G_GUINT64_FORMAT,
                (char *)path, *(guint64 *)value, number);
        }
    }
    g_hash_table_iter_init(&iter, before);
    while (g_hash_table_iter_next(&iter, &path, &value)) {
        if (!g_hash_table_contains(t->found, path) &&
            g_hash_table_contains(after, path)) {
            say(e, "  %s is missing, file %" G_GUINT64_FORMAT, (char *)path,
                *(guint64 *)value);
        }
    }
    for (size_t i = least; i < most && i < least + 20; i++) {
        say(e, "  step %zu: %s", i + 1, g_array_index(t->stream->steps, Step, i).text);
    }
}

/* The least number of steps whose names these are; SIZE_MAX: none. */
static size_t find_step(const Stream *s, uint64_t sum, size_t least, size_t most)
{
    for (size_t i = least; i <= most; i++) {
        uint64_t names = i == 0 ? 0 : g_array_index(s->steps, Step, i - 1).names;

        if (names == sum) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* ---- 2: contents ------------------------------------------------------------------- */

static int read_file(VjFs *fs, uint64_t ino, GByteArray *out)
{
    static const VjCaller who = {.uid = 0};
    VjHandle *h;
    VjAttr attr;
    size_t got = 0;
    int r = vj_fs_getattr(fs, ino, &attr);

    if (r == 0 && (uint64_t)attr.st.st_size > FILE_MOST) {
        return -EFBIG;
    }
    if (r == 0) {
        r = vj_fs_open(fs, &who, ino, O_RDONLY, &h);
    }
    if (r < 0) {
        return r;
    }
    g_byte_array_set_size(out, (guint)attr.st.st_size + 1);
    r = vj_fs_read(h, 0, out->data, out->len, &got);
    g_byte_array_set_size(out, (guint)got);
    vj_fs_release(fs, h);
    return r < 0 ? r : got == (size_t)attr.st.st_size ? 0 : -EBADMSG;
}

static void check_content(Examine *e, VjFs *fs, const Stream *s, const char *path,
                          const StreamFile *f, size_t steps)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    size_t least, most;
    uint64_t sum;
    int r = read_file(fs, f->ino, bytes);

    if (e->at.is_restored && (r == -EIO || r == -EBADMSG)) {
        e->unreadable++;
        return;
    }
    if (r < 0) {
        say(e, "/%s/%s: it cannot be read: %s", s->name, path, g_strerror(-r));
        return;
    }
    e->bytes += bytes->len;
    sum = vj_checksum64(bytes->data, bytes->len);
    stream_versions_at(s, f, e->at, steps, &least, &most);
    for (size_t i = least; i <= most; i++) {
        const Version *v = &g_array_index(f->versions, Version, i);

        if (v->bytes == bytes->len && v->sum == sum) {
            return;
        }
    }
    say(e,
        "/%s/%s (file %" G_GUINT64_FORMAT ", inode %" G_GUINT64_FORMAT
        "): %u bytes, sum %" G_GINT64_MODIFIER "x, are none of its contents %zu to %zu",
        s->name, path, f->number, f->ino, bytes->len, sum, least, most);
    for (size_t i = 0; i < f->versions->len; i++) {
        const Version *v = &g_array_index(f->versions, Version, i);

        if (v->bytes == bytes->len && v->sum == sum) {
            say(e, "  they are content %zu", i);
        }
    }
}

/* One stream: the names of one step, and for each file a content that it may have. */
static void check_stream(Examine *e, VjFs *fs, const Stream *s)
{
    static const VjCaller who = {.uid = 0};
    g_autoptr(GHashTable) found =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    g_autoptr(GHashTable) seen = g_hash_table_new(g_direct_hash, g_direct_equal);
    Tree t = {.e = e, .fs = fs, .stream = s, .found = found};
    size_t least, most, steps;
    GHashTableIter iter;
    gpointer path, value;
    VjAttr attr;
    int r = vj_fs_lookup(fs, &who, VJ_INO_ROOT, s->name, &attr);

    if (r == 0) {
        r = read_tree(&t, attr.st.st_ino);
    }
    if (r < 0) {
        say(e, "/%s: %s", s->name, g_strerror(-r));
        return;
    }
    stream_steps_at(s, e->at, &least, &most);
    steps = find_step(s, t.sum, least, most);
    if (steps == SIZE_MAX) {
        say_names(e, &t, least, most);
        return;
    }
    g_hash_table_iter_init(&iter, found);
    while (g_hash_table_iter_next(&iter, &path, &value)) {
        StreamFile *f = g_hash_table_lookup(s->by_ino, value);

        if (f != NULL && g_hash_table_add(seen, f)) {
            check_content(e, fs, s, path, f, steps);
        }
    }
}

static bool was_there(const Examine *e, const Stream *s)
{
    size_t least, most;

    stream_steps_at(s, e->at, &least, &most);
    return s->first < e->at.cut && (!e->at.is_restored || least > 0);
}

static void check_history(Examine *e, VjFs *fs)
{
    for (guint i = 0; i < e->history->streams->len; i++) {
        const Stream *s = e->history->streams->pdata[i];

        if (was_there(e, s)) {
            check_stream(e, fs, s);
        }
    }
}

/* ---- 2: a copy --------------------------------------------------------------------- */

typedef struct Export {
    VjFs *fs;
    int dir_fd;
    int failed;
} Export;

static int export_dir(VjFs *fs, uint64_t ino, int dir_fd);

static int export_file(VjFs *fs, uint64_t ino, int dir_fd, const char *name)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    VJ_AUTO_FD fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : read_file(fs, ino, bytes);

    return r < 0 ? r : vj_fd_write_all(fd, bytes->data, bytes->len);
}

static bool export_name(void *opaque, const VjDirent *entry, const VjAttr *attr)
{
    Export *x = opaque;

    (void)attr;
    if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0) {
        return true;
    }
    if (entry->type == DT_REG) {
        x->failed = export_file(x->fs, entry->ino, x->dir_fd, entry->name);
    } else if (entry->type == DT_DIR) {
        VJ_AUTO_FD fd = -1;

        if (mkdirat(x->dir_fd, entry->name, 0700) < 0 ||
            (fd = openat(x->dir_fd, entry->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) <
                0) {
            x->failed = -errno;
        } else {
            x->failed = export_dir(x->fs, entry->ino, fd);
        }
    }
    return x->failed == 0;
}

static int export_dir(VjFs *fs, uint64_t ino, int dir_fd)
{
    Export x = {.fs = fs, .dir_fd = dir_fd};
    int r = vj_fs_readdir(fs, ino, 0, NULL, SIZE_MAX / 2, false, export_name, &x);

    return r < 0 ? r : x.failed;
}

static void export_all(Examine *e, VjFs *fs)
{
    VJ_AUTO_FD fd = open(e->export_to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    must(e, fd < 0 ? -errno : export_dir(fs, VJ_INO_ROOT, fd), "copying the tree");
}

/* ---- 2: it goes on ----------------------------------------------------------------- */

/* Writes, edits, syncs, replaces and removes. */
static int write_on(VjFs *fs, uint64_t seed)
{
    static const VjCaller who = {.uid = 0};
    g_autofree uint8_t *bytes = g_malloc(WRITTEN_BYTES), *back = g_malloc(WRITTEN_BYTES);
    VjEdit edit = {.offset = WRITTEN_BYTES / 2, .old_len = 7, .src = "instead", .len = 7};
    VjHandle *h = NULL;
    VjEdited edited;
    VjAttr attr;
    VjRng rng;
    size_t got = 0;
    int r = vj_fs_create(fs, &who, VJ_INO_ROOT, "after", 0600, O_RDWR, &attr, &h);

    if (r < 0) {
        return r;
    }
    vj_rng_init(&rng, seed);
    vj_rng_bytes(&rng, bytes, WRITTEN_BYTES);
    r = vj_fs_write(h, 0, bytes, WRITTEN_BYTES, 0, NULL);
    if (r == 0) {
        r = vj_fs_fsync(h);
    }
    if (r == 0) {
        r = vj_fs_replace(&who, h, &edit, &edited);
        memcpy(bytes + edit.offset, edit.src, edit.len);
    }
    if (r == 0) {
        r = vj_fs_fsync(h);
    }
    if (r == 0) {
        r = vj_fs_read(h, 0, back, WRITTEN_BYTES, &got);
    }
    if (r == 0 && (got != WRITTEN_BYTES || memcmp(bytes, back, WRITTEN_BYTES) != 0)) {
        r = -EBADMSG;
    }
    vj_fs_release(fs, h);
    if (r == 0) {
        r = vj_fs_mknod(fs, &who, VJ_INO_ROOT, "over", S_IFREG | 0600, 0, &attr);
    }
    if (r == 0) {
        r = vj_fs_rename(fs, &who, VJ_INO_ROOT, "after", VJ_INO_ROOT, "over", 0);
    }
    return r < 0 ? r : vj_fs_unlink(fs, VJ_INO_ROOT, "over");
}

static int collect(VjVolume *v)
{
    VjTend step = {.cursor = 0};
    int r = vj_volume_purge(v);

    while (r == 0 && step.cursor != UINT64_MAX) {
        r = vj_volume_gc(v, &step);
    }
    return r;
}

static bool mount_and_use(Examine *e)
{
    VjVolumeOpen how = {.source = e->source, .workers = 1};
    g_autoptr(GError) error = NULL;
    VjVolume *v;
    VjFs *fs;

    if (!vj_volume_open(&how, &v, &error)) {
        say(e, "it cannot be opened as a mount does: %s", error->message);
        return false;
    }
    fs = vj_fs_new(v);
    check_history(e, fs);
    if (e->export_to != NULL) {
        export_all(e, fs);
    }
    must(e, collect(v), "gc");
    if (e->said->len == 0) {
        check_history(e, fs);
        must(e, write_on(fs, e->seed), "writing on");
    }
    vj_fs_free(fs);
    must(e, vj_volume_close(v), "close");
    return true;
}

/* Half a copy of the metadata, as a cut compaction leaves it. */
static void check_left_over(Examine *e)
{
    static const char *const names[] = {"data.mdb.new", "data.mdb.copy", "data.mdb.old"};

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *path = g_build_filename(e->source, "meta", names[i], NULL);

        if (access(path, F_OK) == 0) {
            say(e, "meta/%s is still there", names[i]);
        }
    }
}

bool examine(Examine *e)
{
    e->said = g_string_new(NULL);
    if (check(e, false) && mount_and_use(e)) {
        check(e, true);
        check_left_over(e);
    }
    return e->said->len == 0;
}
