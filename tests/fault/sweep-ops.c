/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sweep-ops.c - the operations of the world, each on the volume and on the model
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fsck/fsck.h"
#include "sweep-world.h"

#include "varjfs/ioctl.h"

/* Which step of gc or scrub is one too many. */
enum { STEPS_MAX = 10000 };

/* ---- names ------------------------------------------------------------------------- */

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

/* 0: the model has no such name. */
static uint64_t ino_of(World *w, const char *path)
{
    g_autofree char *key = g_strdup_printf("N:%s", path);
    const char *text = g_hash_table_lookup(w->tree, key);

    return text == NULL ? 0 : strtoull(text, NULL, 10);
}

static uint64_t parent_of(World *w, const char *path)
{
    g_autofree char *dir = g_path_get_dirname(path);

    return strcmp(dir, ".") == 0 ? VJ_INO_ROOT : ino_of(w, dir);
}

static void set_name(GHashTable *tree, const char *path, uint64_t ino)
{
    g_hash_table_insert(tree, g_strdup_printf("N:%s", path),
                        g_strdup_printf("%" G_GUINT64_FORMAT, ino));
}

static void set_attribute(GHashTable *tree, uint64_t ino, const char *what, char *value)
{
    g_hash_table_insert(tree, g_strdup_printf("A:%" G_GUINT64_FORMAT ":%s", ino, what),
                        value);
}

static gboolean is_attribute_of(gpointer key, gpointer value, gpointer prefix)
{
    (void)value;
    return g_str_has_prefix(key, prefix);
}

/* Takes the name, and with the last name of an inode its attributes. */
static void unset_name(GHashTable *tree, const char *path)
{
    g_autofree char *key = g_strdup_printf("N:%s", path);
    g_autofree char *ino = g_strdup(g_hash_table_lookup(tree, key));
    g_autofree char *prefix = g_strdup_printf("A:%s:", ino);
    GHashTableIter each;
    gpointer name, value;

    if (ino == NULL) {
        return;
    }
    g_hash_table_remove(tree, key);
    g_hash_table_iter_init(&each, tree);
    while (g_hash_table_iter_next(&each, &name, &value)) {
        if (g_str_has_prefix(name, "N:") && strcmp(value, ino) == 0) {
            return;
        }
    }
    g_hash_table_foreach_remove(tree, is_attribute_of, prefix);
}

/* Names of @tree below the directory @from are below @to from now on. */
static void move_name(GHashTable *tree, const char *from, const char *to)
{
    g_autofree char *key = g_strdup_printf("N:%s", from);
    g_autofree char *below = g_strdup_printf("N:%s/", from);
    g_autoptr(GPtrArray) moved = g_ptr_array_new_with_free_func(g_free);
    GHashTableIter each;
    gpointer name, value;

    g_hash_table_iter_init(&each, tree);
    while (g_hash_table_iter_next(&each, &name, &value)) {
        if (strcmp(name, key) == 0 || g_str_has_prefix(name, below)) {
            g_ptr_array_add(moved,
                            g_strdup_printf("N:%s%s", to, (char *)name + strlen(key)));
            g_ptr_array_add(moved, g_strdup(value));
            g_hash_table_iter_remove(&each);
        }
    }
    for (guint i = 0; i < moved->len; i += 2) {
        g_hash_table_insert(tree, g_strdup(moved->pdata[i]),
                            g_strdup(moved->pdata[i + 1]));
    }
}

/*
 * An operation on names returned @r; @after, taken, is the tree if it was done.  One that
 * says an error may have been done all the same, as a whole.
 */
static void check_tree(World *w, int r, GHashTable *after, const char *what)
{
    g_autoptr(GHashTable) got = NULL;
    g_autofree char *text = NULL;
    uint64_t sum;
    int seen;

    if (world_result(w, r, what)) {
        world_tree_is(w, after);
        return;
    }
    got = world_observe(w, &seen);
    if (got == NULL) {
        w->loose = true;
        g_hash_table_unref(after);
        return;
    }
    sum = world_tree_sum(got);
    if (w->loose) {
        world_tree_is(w, g_steal_pointer(&got));
        g_hash_table_unref(after);
    } else if (sum == world_tree_sum(after)) {
        w->late++;
        world_tree_is(w, after);
    } else {
        if (sum != world_tree_sum(w->tree)) {
            text = world_tree_difference(w->tree, got);
            world_problem(w, "%s said %s and left neither the old nor the new names:%s",
                          what, g_strerror(-r), text);
        }
        g_hash_table_unref(after);
    }
}

static bool is_ready(World *w, const char *path)
{
    return w->v != NULL && (path == NULL || parent_of(w, path) != 0);
}

void world_make(World *w, const char *path, mode_t mode)
{
    GHashTable *after;
    uint64_t ino = 0;
    VjAttr attr;
    int r;

    if (!is_ready(w, path) || (w->loose && ino_of(w, path) != 0)) {
        return;
    }
    r = S_ISDIR(mode) ? vj_fs_mkdir(w->fs, &world_root, parent_of(w, path), name_of(path),
                                    mode & 07777, &attr)
                      : vj_fs_mknod(w->fs, &world_root, parent_of(w, path), name_of(path),
                                    mode, 0, &attr);
    if (r == 0) {
        ino = attr.st.st_ino;
    } else if (vj_fs_lookup(w->fs, &world_root, parent_of(w, path), name_of(path),
                            &attr) == 0) {
        ino = attr.st.st_ino; /* only if it was made all the same */
    }
    after = world_tree_copy(w->tree);
    set_name(after, path, ino);
    set_attribute(after, ino, "mode", g_strdup_printf("%o", mode));
    check_tree(w, r, after, "mknod");
}

void world_symlink(World *w, const char *path, const char *target)
{
    GHashTable *after;
    uint64_t ino = 0;
    VjAttr attr;
    int r;

    if (!is_ready(w, path)) {
        return;
    }
    r = vj_fs_symlink(w->fs, &world_root, parent_of(w, path), name_of(path), target,
                      &attr);
    if (r == 0 ||
        vj_fs_lookup(w->fs, &world_root, parent_of(w, path), name_of(path), &attr) == 0) {
        ino = attr.st.st_ino;
    }
    after = world_tree_copy(w->tree);
    set_name(after, path, ino);
    set_attribute(after, ino, "mode", g_strdup_printf("%o", S_IFLNK | 0777));
    set_attribute(after, ino, "target", g_strdup(target));
    check_tree(w, r, after, "symlink");
}

void world_link(World *w, const char *from, const char *to)
{
    uint64_t ino = ino_of(w, from);
    GHashTable *after;
    VjAttr attr;
    int r;

    if (!is_ready(w, to) || ino == 0) {
        return;
    }
    r = vj_fs_link(w->fs, ino, parent_of(w, to), name_of(to), &attr);
    after = world_tree_copy(w->tree);
    set_name(after, to, ino);
    check_tree(w, r, after, "link");
}

static bool has_names_below(World *w, const char *path)
{
    g_autofree char *below = g_strdup_printf("N:%s/", path);
    GHashTableIter each;
    gpointer name;

    g_hash_table_iter_init(&each, w->tree);
    while (g_hash_table_iter_next(&each, &name, NULL)) {
        if (g_str_has_prefix(name, below)) {
            return true;
        }
    }
    return false;
}

void world_unlink(World *w, const char *path)
{
    uint64_t ino = ino_of(w, path);
    g_autofree char *key = g_strdup_printf("A:%" G_GUINT64_FORMAT ":mode", ino);
    GHashTable *after;
    int r;

    if (!is_ready(w, path) || ino == 0 || has_names_below(w, path)) {
        return;
    }
    r = S_ISDIR(strtoul(g_hash_table_lookup(w->tree, key), NULL, 8))
            ? vj_fs_rmdir(w->fs, parent_of(w, path), name_of(path))
            : vj_fs_unlink(w->fs, parent_of(w, path), name_of(path));
    after = world_tree_copy(w->tree);
    unset_name(after, path);
    check_tree(w, r, after, "unlink");
}

/* What is at @path now, if the rename happened.  The fault may come in the question,
 * too. */
static void whiteout_left(World *w, GHashTable *after, const char *path)
{
    VjAttr attr;
    int r = vj_fs_lookup(w->fs, &world_root, parent_of(w, path), name_of(path), &attr);

    if (r == 0) {
        set_name(after, path, attr.st.st_ino);
        set_attribute(after, attr.st.st_ino, "mode", g_strdup_printf("%o", S_IFCHR));
    } else if (r != -ENOENT) {
        w->loose = true;
    }
}

void world_rename(World *w, const char *from, const char *to, unsigned flags)
{
    GHashTable *after;
    int r;

    if (!is_ready(w, from) || !is_ready(w, to) || ino_of(w, from) == 0 ||
        ((flags & VJ_RENAME_EXCHANGE) && ino_of(w, to) == 0)) {
        return;
    }
    r = vj_fs_rename(w->fs, &world_root, parent_of(w, from), name_of(from),
                     parent_of(w, to), name_of(to), flags);
    after = world_tree_copy(w->tree);
    if (flags & VJ_RENAME_EXCHANGE) {
        move_name(after, to, "\001");
        move_name(after, from, to);
        move_name(after, "\001", from);
    } else {
        unset_name(after, to);
        move_name(after, from, to);
    }
    if (flags & VJ_RENAME_WHITEOUT) {
        whiteout_left(w, after, from);
    }
    check_tree(w, r, after, "rename");
}

void world_chmod(World *w, const char *path, mode_t mode)
{
    uint64_t ino = ino_of(w, path);
    VjSetattr set = {.what = VJ_SET_MODE, .mode = mode};
    g_autofree char *key = g_strdup_printf("A:%" G_GUINT64_FORMAT ":mode", ino);
    GHashTable *after;
    VjAttr attr;
    mode_t type;
    int r;

    if (!is_ready(w, path) || ino == 0) {
        return;
    }
    type = (mode_t)strtoul(g_hash_table_lookup(w->tree, key), NULL, 8) & S_IFMT;
    r = vj_fs_setattr(w->fs, &world_root, ino, NULL, &set, &attr);
    after = world_tree_copy(w->tree);
    set_attribute(after, ino, "mode", g_strdup_printf("%o", type | mode));
    check_tree(w, r, after, "chmod");
}

void world_setxattr(World *w, const char *path, const char *name, const void *value,
                    size_t len)
{
    uint64_t ino = ino_of(w, path);
    GHashTable *after;
    int r;

    if (!is_ready(w, path) || ino == 0) {
        return;
    }
    r = vj_fs_setxattr(w->fs, &world_root, ino, name, value, len, 0);
    after = world_tree_copy(w->tree);
    set_attribute(after, ino, name, world_value_text(value, len));
    if (strcmp(name, "system.posix_acl_access") == 0) {
        /* The list of this test goes with that mode. */
        set_attribute(after, ino, "mode", g_strdup_printf("%o", S_IFREG | 0660));
    }
    check_tree(w, r, after, "setxattr");
}

void world_removexattr(World *w, const char *path, const char *name)
{
    uint64_t ino = ino_of(w, path);
    g_autofree char *key = g_strdup_printf("A:%" G_GUINT64_FORMAT ":%s", ino, name);
    GHashTable *after;
    int r;

    if (!is_ready(w, path) || ino == 0 || !g_hash_table_contains(w->tree, key)) {
        return;
    }
    r = vj_fs_removexattr(w->fs, ino, name);
    after = world_tree_copy(w->tree);
    g_hash_table_remove(after, key);
    check_tree(w, r, after, "removexattr");
}

/* ---- contents ---------------------------------------------------------------------- */

Node *world_file(World *w, const char *path)
{
    uint64_t ino = ino_of(w, path);
    Node *n;

    if (!is_ready(w, path) || ino == 0) {
        return NULL;
    }
    n = world_node(w, ino);
    if (n->h == NULL &&
        !world_result(w, vj_fs_open(w->fs, &world_root, ino, O_RDWR, &n->h), "open")) {
        return NULL;
    }
    return n;
}

void world_release(World *w, Node *n)
{
    if (n != NULL && n->h != NULL) {
        VjHandle *h = g_steal_pointer(&n->h);

        /* close(2) tells what write-back met; nothing is lost by that. */
        (void)world_result(w, vj_fs_flush(h), "close");
        vj_fs_release(w->fs, h);
    }
}

/* @content with @old_len bytes at @offset replaced; zeroes up to @offset. */
static GBytes *edited(GBytes *content, size_t offset, size_t old_len, const void *src,
                      size_t len)
{
    size_t size;
    const uint8_t *old = g_bytes_get_data(content, &size);
    size_t kept = MIN(offset, size), tail_at = MIN(size, offset + old_len);
    size_t whole = offset + len + (size - tail_at);
    uint8_t *bytes = g_malloc0(whole + 1);

    if (kept > 0) {
        memcpy(bytes, old, kept);
    }
    if (len > 0 && src != NULL) {
        memcpy(bytes + offset, src, len);
    }
    if (size > tail_at) {
        memcpy(bytes + offset + len, old + tail_at, size - tail_at);
    }
    return g_bytes_new_take(bytes, whole);
}

/* An edit that was done, of whatever the content was. */
static void node_edit(Node *n, size_t offset, size_t old_len, const void *src, size_t len)
{
    for (guint i = 0; i < n->perhaps->len; i++) {
        GBytes *before = n->perhaps->pdata[i];

        n->perhaps->pdata[i] = edited(before, offset, old_len, src, len);
        g_bytes_unref(before);
    }
    world_content_is(n, edited(world_content(n), offset, old_len, src, len));
}

static GBytes *cut(GBytes *content, size_t size)
{
    size_t old = g_bytes_get_size(content);

    return edited(content, size, size < old ? old - size : 0, NULL, 0);
}

/* A truncation that failed, and may have been done, of whatever the content was. */
static void node_cut_perhaps(Node *n, size_t size)
{
    guint count = n->perhaps->len;

    g_ptr_array_add(n->perhaps, cut(world_content(n), size));
    for (guint i = 0; i < count; i++) {
        g_ptr_array_add(n->perhaps, cut(n->perhaps->pdata[i], size));
    }
}

static uint8_t *new_bytes(World *w, size_t len, bool soft)
{
    uint8_t *bytes = g_malloc(len + 1);

    vj_rng_bytes(&w->rng, bytes, len);
    for (size_t i = 0; soft && i < len; i++) {
        bytes[i] = bytes[i - i % 32];
    }
    return bytes;
}

void world_replace(World *w, Node *n, size_t offset, size_t old_len, size_t len,
                   bool soft)
{
    g_autofree uint8_t *bytes = new_bytes(w, len, soft);
    VjEdit edit = {.offset = offset, .old_len = old_len, .src = bytes, .len = len};
    VjEdited done;

    if (n == NULL || offset > world_size(n)) {
        return;
    }
    edit.old_len = MIN(old_len, world_size(n) - offset);
    if (world_result(w, vj_fs_replace(&world_root, n->h, &edit, &done), "replace")) {
        node_edit(n, offset, edit.old_len, bytes, len);
    }
}

void world_write(World *w, Node *n, size_t offset, size_t len, bool soft)
{
    g_autofree uint8_t *bytes = new_bytes(w, len, soft);

    if (n != NULL &&
        world_result(w, vj_fs_write(n->h, offset, bytes, len, 0, NULL), "write")) {
        node_edit(n, offset, len, bytes, len);
    }
}

void world_truncate(World *w, Node *n, size_t size)
{
    VjSetattr set = {.what = VJ_SET_SIZE, .size = size};
    VjAttr attr;
    size_t old;
    int r, seen;

    if (n == NULL) {
        return;
    }
    old = world_size(n);
    r = vj_fs_setattr(w->fs, &world_root, n->ino, n->h, &set, &attr);
    seen = r;
    /* Whether it was done all the same; some calls in a row fail. */
    for (unsigned i = 0; seen < 0 && i < 100; i++) {
        seen = vj_fs_getattr(w->fs, n->ino, &attr);
    }
    if (seen < 0) {
        node_cut_perhaps(n, size);
    }
    if (r < 0 && seen == 0 && old != size && (size_t)attr.st.st_size == size) {
        (void)world_result(w, r, "truncate");
        w->late++;
        r = 0;
    }
    if (world_result(w, r, "truncate")) {
        for (guint i = 0; i < n->perhaps->len; i++) {
            GBytes *before = n->perhaps->pdata[i];

            n->perhaps->pdata[i] = cut(before, size);
            g_bytes_unref(before);
        }
        world_content_is(n, cut(world_content(n), size));
    }
}

void world_punch(World *w, Node *n, size_t offset, size_t len)
{
    if (n == NULL || offset >= world_size(n)) {
        return;
    }
    len = MIN(len, world_size(n) - offset);
    if (world_result(w,
                     vj_fs_fallocate(n->h, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                     offset, len),
                     "punch")) {
        node_edit(n, offset, len, NULL, len);
    }
}

void world_copy(World *w, Node *from, size_t offset, Node *to, size_t target, size_t len)
{
    size_t done = 0;

    while (from != NULL && to != NULL && done < len && offset + done < world_size(from)) {
        g_autoptr(GBytes) source = g_bytes_ref(world_content(from));
        const uint8_t *bytes = g_bytes_get_data(source, NULL);
        uint64_t copied = 0;

        if (!world_result(w,
                          vj_fs_copy(from->h, offset + done, to->h, target + done,
                                     len - done, &copied),
                          "copy_file_range")) {
            return;
        }
        if (copied == 0 || offset + done + copied > world_size(from)) {
            world_problem(w, "copy_file_range copied %" G_GUINT64_FORMAT " bytes",
                          copied);
            return;
        }
        node_edit(to, target + done, copied, bytes + offset + done, copied);
        done += copied;
    }
}

void world_recode(World *w, Node *n)
{
    VjRecode step = {0};

    while (n != NULL && !step.done) {
        if (!world_result(w, vj_fs_recode(n->h, &world_root, &step), "recode")) {
            return;
        }
    }
}

void world_tend(World *w, unsigned what)
{
    VjTend step = {0};

    for (unsigned i = 0; w->v != NULL && step.cursor != UINT64_MAX; i++) {
        if (!world_result(w, vj_fs_tend(w->fs, &world_root, what, &step), "tend")) {
            return;
        }
        if (i > STEPS_MAX) {
            world_problem(w, "gc or scrub does not end");
            return;
        }
    }
    if (step.found > 0 && what == VARJFS_TEND_SCRUB && !world_hit(w)) {
        world_problem(w, "scrub finds damage");
    }
}

/* ---- durability -------------------------------------------------------------------- */

/* After the first error, and after the first sync behind it, a mount of what there is. */
static void look_at_copy(World *w, int r)
{
    if (!world_hit(w) || w->v == NULL) {
        return;
    }
    if (!w->killed_after_error) {
        w->killed_after_error = true;
        world_try_kill(w, r < 0 ? "killed after the fault" : "killed after it healed");
    } else if (r == 0 && !w->killed_after_sync) {
        w->killed_after_sync = true;
        world_try_kill(w, "killed after the next sync");
    }
}

bool world_fsync(World *w, Node *n)
{
    int r;

    if (n == NULL) {
        return false;
    }
    r = vj_fs_fsync(n->h);
    if (world_result(w, r, "fsync")) {
        world_node_durable(n);
        world_names_durable(w);
    }
    look_at_copy(w, r);
    return r == 0;
}

static void file_is_durable(World *w, const char *path, Node *n)
{
    (void)w;
    (void)path;
    world_node_durable(n);
}

void world_sync(World *w)
{
    int r;

    if (w->v == NULL) {
        return;
    }
    r = vj_fs_sync_all(w->fs);
    if (world_result(w, r, "sync")) {
        world_each_file(w, file_is_durable);
        world_names_durable(w);
    }
    look_at_copy(w, r);
}

void world_sync_names(World *w)
{
    int r;

    if (w->v == NULL) {
        return;
    }
    r = vj_fs_sync_names(w->fs);
    if (world_result(w, r, "fsync of a directory")) {
        world_names_durable(w);
    }
    look_at_copy(w, r);
}

/* ---- fsck -y ----------------------------------------------------------------------- */

static void say_nothing(void *opaque, const char *text)
{
    (void)opaque;
    (void)text;
}

/* As fsck.varjfs -y does it, with the fault in it; errors are fine, and whatever it
 * does. */
void world_repair(World *w)
{
    bool faulty = w->segment++ == w->fault_segment && !w->faults_ended;
    VjCheckReport report = {0};
    int r;

    g_assert(w->v == NULL);
    w->calm = !faulty;
    if (!world_open_at(w, w->source, faulty, true, true)) {
        sweep_faults_clear();
        w->errors++;
        return;
    }
    r = vj_fsck_contents(w->v, true, say_nothing, NULL, &report);
    if (r == 0) {
        r = vj_fsck_names(w->v, say_nothing, NULL, &report);
    }
    if (r == 0 && report.problems > 0) {
        g_autoptr(VjRepair) repair = vj_repair_new(w->v, say_nothing, NULL);

        w->errors++;
        r = vj_repair_all(repair);
    }
    if (r == 0 && report.leaks > 0) {
        g_autoptr(VjRepair) repair = vj_repair_new(w->v, say_nothing, NULL);

        r = vj_repair_store(repair);
    }
    w->errors += r < 0;
    w->calls = w->kind->layer == LAYER_STORE ? vj_store_fault_calls(vj_volume_store(w->v))
               : w->kind->layer == LAYER_META ? vj_meta_fault_calls(vj_volume_meta(w->v))
                                              : sweep_faults_calls();
    r = vj_volume_close(g_steal_pointer(&w->v));
    w->errors += r < 0;
    sweep_faults_clear();
    w->calm = true;
}
