/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sweep-world.c - the volume, the model of it, and how the two are compared
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fsck/fsck.h"
#include "sweep-world.h"

/* Contents stay below. */
enum { CONTENT_MAX = 1 << 20 };

const VjCaller world_root = {.uid = 0, .gid = 0, .umask = 0};

void world_problem(World *w, const char *format, ...)
{
    va_list args;

    if (w->problem[0] == '\0') {
        va_start(args, format);
        g_vsnprintf(w->problem, sizeof w->problem, format, args);
        va_end(args);
    }
}

bool world_hit(const World *w)
{
    return sweep_faults_hits() > w->hits_before;
}

/* ---- trees ------------------------------------------------------------------------- */

GHashTable *world_tree_new(void)
{
    return g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
}

GHashTable *world_tree_copy(GHashTable *tree)
{
    GHashTable *copy = world_tree_new();
    GHashTableIter each;
    gpointer key, value;

    g_hash_table_iter_init(&each, tree);
    while (g_hash_table_iter_next(&each, &key, &value)) {
        g_hash_table_insert(copy, g_strdup(key), g_strdup(value));
    }
    return copy;
}

static uint64_t mix_text(uint64_t sum, const char *text)
{
    for (; *text != '\0'; text++) {
        sum = (sum ^ (uint8_t)*text) * 0x100000001b3;
    }
    return sum;
}

/* Two trees with the same sum are the same. */
uint64_t world_tree_sum(GHashTable *tree)
{
    uint64_t sum = 0;
    GHashTableIter each;
    gpointer key, value;

    g_hash_table_iter_init(&each, tree);
    while (g_hash_table_iter_next(&each, &key, &value)) {
        uint64_t one = mix_text(mix_text(0xcbf29ce484222325, key) ^ '=', value);

        one ^= one >> 29;
        sum += one * 0x9e3779b97f4a7c15;
    }
    return sum;
}

char *world_value_text(const void *value, size_t len)
{
    g_autofree char *sum = g_compute_checksum_for_data(G_CHECKSUM_MD5, value, len);

    return g_strdup_printf("%zu:%s", len, sum);
}

typedef struct Listing {
    GPtrArray *names;
    GArray *inos;
    uint64_t cookie; /* of the last name, also of . and .. */
} Listing;

static bool list_one(void *opaque, const VjDirent *entry, const VjAttr *attr)
{
    Listing *l = opaque;

    (void)attr;
    l->cookie = entry->cookie;
    if (strcmp(entry->name, ".") != 0 && strcmp(entry->name, "..") != 0) {
        g_ptr_array_add(l->names, g_strdup(entry->name));
        g_array_append_val(l->inos, entry->ino);
    }
    return true;
}

static int observe_xattrs(World *w, GHashTable *tree, uint64_t ino)
{
    char names[8192];
    size_t len = 0;
    int r = vj_fs_listxattr(w->fs, &world_root, ino, names, sizeof names, &len);

    for (size_t at = 0; r == 0 && at < len; at += strlen(names + at) + 1) {
        g_autofree char *value = g_malloc(VJ_META_VALUE_MAX);
        size_t value_len = 0;

        r = vj_fs_getxattr(w->fs, ino, names + at, value, VJ_META_VALUE_MAX, &value_len);
        if (r == 0) {
            g_hash_table_insert(
                tree, g_strdup_printf("A:%" G_GUINT64_FORMAT ":%s", ino, names + at),
                world_value_text(value, value_len));
        }
    }
    return r;
}

static int observe_inode(World *w, GHashTable *tree, uint64_t ino, mode_t *mode)
{
    VjAttr attr;
    int r = vj_fs_getattr(w->fs, ino, &attr);

    if (r < 0) {
        return r;
    }
    *mode = attr.st.st_mode;
    g_hash_table_insert(tree, g_strdup_printf("A:%" G_GUINT64_FORMAT ":mode", ino),
                        g_strdup_printf("%o", attr.st.st_mode));
    if (S_ISLNK(*mode)) {
        char target[VJ_SYMLINK_MAX + 1];

        r = vj_fs_readlink(w->fs, ino, target);
        if (r == 0) {
            g_hash_table_insert(tree,
                                g_strdup_printf("A:%" G_GUINT64_FORMAT ":target", ino),
                                g_strdup(target));
        }
        return r;
    }
    return observe_xattrs(w, tree, ino);
}

static int observe_dir(World *w, GHashTable *tree, uint64_t dir, const char *prefix)
{
    Listing l = {.names = g_ptr_array_new_with_free_func(g_free),
                 .inos = g_array_new(FALSE, FALSE, sizeof(uint64_t))};
    guint before;
    int r;

    do {
        before = l.names->len;
        r = vj_fs_readdir(w->fs, dir, l.cookie, NULL, 4096, false, list_one, &l);
    } while (r == 0 && l.names->len > before);
    for (guint i = 0; r == 0 && i < l.names->len; i++) {
        uint64_t ino = g_array_index(l.inos, uint64_t, i);
        g_autofree char *path =
            g_strdup_printf("%s%s", prefix, (char *)l.names->pdata[i]);
        mode_t mode = 0;

        g_hash_table_insert(tree, g_strdup_printf("N:%s", path),
                            g_strdup_printf("%" G_GUINT64_FORMAT, ino));
        r = observe_inode(w, tree, ino, &mode);
        if (r == 0 && S_ISDIR(mode)) {
            g_autofree char *below = g_strdup_printf("%s/", path);

            r = observe_dir(w, tree, ino, below);
        }
    }
    g_ptr_array_unref(l.names);
    g_array_unref(l.inos);
    return r;
}

/* NULL when it cannot be read now; *@r is why. */
GHashTable *world_observe(World *w, int *r)
{
    GHashTable *tree = world_tree_new();

    *r = observe_dir(w, tree, VJ_INO_ROOT, "");
    if (*r < 0) {
        g_clear_pointer(&tree, g_hash_table_unref);
    }
    return tree;
}

/* What is in one and not in the other, for messages; owned. */
char *world_tree_difference(GHashTable *want, GHashTable *got)
{
    GString *text = g_string_new("");
    GHashTableIter each;
    gpointer key, value;

    g_hash_table_iter_init(&each, want);
    while (g_hash_table_iter_next(&each, &key, &value) && text->len < 300) {
        const char *other = g_hash_table_lookup(got, key);

        if (other == NULL || strcmp(other, value) != 0) {
            g_string_append_printf(text, " %s is %s, not %s;", (char *)key,
                                   other == NULL ? "absent" : other, (char *)value);
        }
    }
    g_hash_table_iter_init(&each, got);
    while (g_hash_table_iter_next(&each, &key, &value) && text->len < 300) {
        if (!g_hash_table_contains(want, key)) {
            g_string_append_printf(text, " %s=%s is too much;", (char *)key,
                                   (char *)value);
        }
    }
    return g_string_free(text, FALSE);
}

void world_tree_is(World *w, GHashTable *tree)
{
    uint64_t sum = world_tree_sum(tree);

    if (tree != w->tree) {
        g_hash_table_unref(w->tree);
        w->tree = tree;
    }
    g_array_append_val(w->trees, sum);
}

/* ---- nodes ------------------------------------------------------------------------- */

static void node_free(gpointer opaque)
{
    Node *n = opaque;

    g_assert(n->h == NULL);
    g_ptr_array_unref(n->states);
    g_ptr_array_unref(n->perhaps);
    g_free(n);
}

Node *world_node(World *w, uint64_t ino)
{
    Node *n = g_hash_table_lookup(w->nodes, &ino);

    if (n == NULL) {
        n = g_new0(Node, 1);
        n->ino = ino;
        n->perhaps = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
        n->states = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
        g_ptr_array_add(n->states, g_bytes_new(NULL, 0));
        g_hash_table_insert(w->nodes, &n->ino, n);
    }
    return n;
}

GBytes *world_content(const Node *n)
{
    return n->states->pdata[n->states->len - 1];
}

size_t world_size(const Node *n)
{
    return g_bytes_get_size(world_content(n));
}

/* Takes @content. */
void world_content_is(Node *n, GBytes *content)
{
    g_assert(g_bytes_get_size(content) <= CONTENT_MAX);
    g_ptr_array_add(n->states, content);
}

/* All earlier states are past. */
void world_node_durable(Node *n)
{
    if (n->states->len > 1) {
        g_ptr_array_remove_range(n->states, 0, n->states->len - 1);
    }
}

void world_names_durable(World *w)
{
    if (!w->loose && w->trees->len > 1) {
        g_array_remove_range(w->trees, 0, w->trees->len - 1);
    }
}

/* 0 and *@out owned, or why it cannot be read. */
static int read_content(World *w, uint64_t ino, GBytes **out)
{
    g_autofree uint8_t *bytes = g_malloc(CONTENT_MAX + 1);
    VjHandle *h;
    size_t got = 0;
    int r = vj_fs_open(w->fs, &world_root, ino, O_RDONLY, &h);

    *out = NULL;
    if (r < 0) {
        return r;
    }
    r = vj_fs_read(h, 0, bytes, CONTENT_MAX + 1, &got);
    vj_fs_release(w->fs, h);
    if (r == 0) {
        *out = g_bytes_new(bytes, got);
    }
    return r;
}

static bool is_fault_error(int r)
{
    return r == -EIO || r == -ENOSPC || r == -ENOMEM || r == -EBADMSG ||
           r == -ETIMEDOUT || r == -EDQUOT || r == -EFBIG || r == -EMFILE;
}

/* What an operation that may have met the fault returned; true: it did what it was to
 * do. */
bool world_result(World *w, int r, const char *what)
{
    if (r == 0) {
        return true;
    }
    w->errors++;
    if (!is_fault_error(r)) {
        if (!w->loose) {
            world_problem(w, "%s: %s is no answer to a fault", what, g_strerror(-r));
        }
    } else if (w->calm || !world_hit(w)) {
        world_problem(w, "%s: %s without a fault", what, g_strerror(-r));
    }
    return false;
}

static void verify_file(World *w, const char *path, Node *n)
{
    g_autoptr(GBytes) got = NULL;
    int r = read_content(w, n->ino, &got);

    for (guint i = 0; r == 0 && i < n->perhaps->len; i++) {
        if (g_bytes_equal(got, n->perhaps->pdata[i])) {
            w->late++;
            world_content_is(n, g_bytes_ref(got));
            break;
        }
    }
    if (r == 0) {
        g_ptr_array_set_size(n->perhaps, 0);
    }
    if (world_result(w, r, path) && !g_bytes_equal(got, world_content(n))) {
        world_problem(w, "%s: wrong content: %zu bytes, not %zu", path,
                      g_bytes_get_size(got), world_size(n));
    }
}

/* The regular files among the names; visits in no order. */
void world_each_file(World *w, void (*visit)(World *, const char *path, Node *))
{
    GHashTableIter each;
    gpointer key, value;

    g_hash_table_iter_init(&each, w->tree);
    while (g_hash_table_iter_next(&each, &key, &value)) {
        if (g_str_has_prefix(key, "N:")) {
            g_autofree char *mode_key = g_strdup_printf("A:%s:mode", (char *)value);
            const char *mode = g_hash_table_lookup(w->tree, mode_key);

            if (S_ISREG(strtoul(mode, NULL, 8))) {
                visit(w, (char *)key + 2, world_node(w, strtoull(value, NULL, 10)));
            }
        }
    }
}

void world_verify(World *w)
{
    g_autoptr(GHashTable) got = NULL;
    int r;

    if (w->v == NULL || (w->loose && !w->calm)) {
        return;
    }
    got = world_observe(w, &r);
    if (world_result(w, r, "listing") && world_tree_sum(got) != world_tree_sum(w->tree)) {
        if (w->loose) {
            world_tree_is(w, g_steal_pointer(&got));
        } else {
            g_autofree char *text = world_tree_difference(w->tree, got);

            world_problem(w, "wrong names:%s", text);
        }
    }
    if (r == 0) {
        w->loose = false;
    }
    world_each_file(w, verify_file);
}

/* ---- after an unmount that failed, or kill -9 -------------------------------------- */

static void adopt_file(World *w, const char *path, Node *n)
{
    g_autoptr(GBytes) got = NULL;
    int r = read_content(w, n->ino, &got);

    if (!world_result(w, r, path)) {
        return;
    }
    for (guint i = 0; i < n->states->len; i++) {
        if (g_bytes_equal(n->states->pdata[i], got)) {
            GBytes *state = g_bytes_ref(n->states->pdata[i]);

            world_content_is(n, state);
            world_node_durable(n);
            return;
        }
    }
    world_problem(w,
                  "%s: %zu bytes, a content that it never had since it was durable (%u)",
                  path, g_bytes_get_size(got), n->states->len);
}

/* What is there is one of the states since the last durable one; the model follows. */
void world_adopt(World *w, const char *when)
{
    GHashTable *got;
    bool is_known = w->loose;
    uint64_t sum;
    int r;

    got = world_observe(w, &r);
    if (!world_result(w, r, when) || got == NULL) {
        return;
    }
    sum = world_tree_sum(got);
    for (guint i = 0; i < w->trees->len; i++) {
        is_known = is_known || g_array_index(w->trees, uint64_t, i) == sum;
    }
    if (!is_known) {
        g_autofree char *text = world_tree_difference(w->tree, got);

        world_problem(w, "%s: names as they never were; beside the last:%s", when, text);
    }
    w->loose = false;
    world_tree_is(w, got);
    world_names_durable(w);
    world_each_file(w, adopt_file);
}

/* ---- opening and closing ----------------------------------------------------------- */

static char *wrap_text(const World *w, Layer layer, bool faulty)
{
    g_auto(GStrv) parts = NULL;
    g_autofree char *number = g_strdup_printf("%" G_GUINT64_FORMAT, w->number);
    g_autofree char *options = NULL;

    if (!faulty || w->kind->layer != layer) {
        return g_strdup("fault");
    }
    parts = g_strsplit(w->kind->options, "#", -1);
    options = g_strjoinv(number, parts);
    return g_strdup_printf("fault:%s", options);
}

bool world_open_at(World *w, const char *source, bool faulty, bool check, bool repair)
{
    g_autofree char *wrap_store = wrap_text(w, LAYER_STORE, faulty);
    g_autofree char *wrap_meta = wrap_text(w, LAYER_META, faulty);
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = source,
                        .check = check,
                        .repair = repair,
                        .commit_seconds = 3600,
                        .workers = 2,
                        .wrap_store = wrap_store,
                        .wrap_meta = wrap_meta};

    if (faulty && w->kind->layer >= LAYER_SYS) {
        sweep_faults_arm(w->kind, w->number);
    }
    if (!vj_volume_open(&how, &w->v, &error)) {
        if (w->calm || !world_hit(w)) {
            world_problem(w, "cannot open: %s", error->message);
        }
        return false;
    }
    return true;
}

void world_open(World *w)
{
    bool faulty = w->segment++ == w->fault_segment && !w->faults_ended;

    g_assert(w->v == NULL);
    w->calm = !faulty && !(w->kind->layer >= LAYER_SYS && w->segment > w->fault_segment);
    if (!world_open_at(w, w->source, faulty, false, false)) {
        w->errors++;
        w->faults_ended = true;
        w->calm = true;
        sweep_faults_clear();
        if (!world_open_at(w, w->source, false, false, false)) {
            world_problem(w, "cannot open after a fault kept it from opening");
            return;
        }
    }
    w->fs = vj_fs_new(w->v);
}

static void count_calls(World *w)
{
    if (w->v == NULL || w->segment != w->fault_segment + 1) {
        return;
    }
    switch (w->kind->layer) {
    case LAYER_STORE:
        w->calls = vj_store_fault_calls(vj_volume_store(w->v));
        break;
    case LAYER_META:
        w->calls = vj_meta_fault_calls(vj_volume_meta(w->v));
        break;
    default:
        w->calls = sweep_faults_calls();
        break;
    }
}

static void release_all(World *w)
{
    GHashTableIter each;
    gpointer node;

    g_hash_table_iter_init(&each, w->nodes);
    while (g_hash_table_iter_next(&each, NULL, &node)) {
        world_release(w, node);
    }
}

static void node_is_durable(World *w, const char *path, Node *n)
{
    (void)w;
    (void)path;
    world_node_durable(n);
}

void world_close(World *w)
{
    int r;

    if (w->v == NULL) {
        return;
    }
    release_all(w);
    count_calls(w);
    vj_fs_free(g_steal_pointer(&w->fs));
    r = vj_volume_close(g_steal_pointer(&w->v));
    if (world_result(w, r, "unmount")) {
        world_each_file(w, node_is_durable);
        world_names_durable(w);
        return;
    }
    /* What it lost, the unmount has said. */
    sweep_faults_clear();
    w->faults_ended = true;
    w->calm = true;
    if (world_open_at(w, w->source, false, false, false)) {
        w->fs = vj_fs_new(w->v);
        world_adopt(w, "after an unmount that failed");
        vj_fs_free(g_steal_pointer(&w->fs));
        if (vj_volume_close(g_steal_pointer(&w->v)) < 0) {
            world_problem(w, "cannot unmount after an unmount that failed");
        }
    }
}

void world_calm(World *w)
{
    count_calls(w);
    if (w->v != NULL) {
        g_assert(vj_store_fault_set(vj_volume_store(w->v), "", NULL));
        g_assert(vj_meta_fault_set(vj_volume_meta(w->v), "", NULL));
    }
    sweep_faults_clear();
    w->calm = true;
    w->faults_ended = true;
}

/* ---- a daemon that is killed ------------------------------------------------------- */

static bool copy_file(const char *from, const char *to)
{
    VJ_AUTO_FD in = open(from, O_RDONLY | O_CLOEXEC);
    VJ_AUTO_FD out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    static const uint8_t zeroes[65536];
    static uint8_t bytes[65536]; /* by one thread */
    off_t at = 0;
    ssize_t got;

    if (in < 0 || out < 0) {
        return false;
    }
    while ((got = read(in, bytes, sizeof bytes)) > 0) {
        bool good = memcmp(bytes, zeroes, (size_t)got) == 0
                        ? lseek(out, got, SEEK_CUR) >= 0
                        : write(out, bytes, (size_t)got) == got;

        if (!good) {
            return false;
        }
        at += got;
    }
    return got == 0 && truncate(to, at) == 0;
}

/* What is removed while it is copied is not there. */
static void copy_tree(const char *from, const char *to)
{
    g_autoptr(GDir) dir = g_dir_open(from, 0, NULL);
    const char *name;

    g_assert(mkdir(to, 0700) == 0);
    while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *source = g_build_filename(from, name, NULL);
        g_autofree char *target = g_build_filename(to, name, NULL);

        if (g_file_test(source, G_FILE_TEST_IS_DIR)) {
            copy_tree(source, target);
        } else {
            (void)copy_file(source, target);
        }
    }
}

void world_remove_tree(const char *path)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    const char *name;

    while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *below = g_build_filename(path, name, NULL);

        if (g_file_test(below, G_FILE_TEST_IS_DIR)) {
            world_remove_tree(below);
        } else {
            unlink(below);
        }
    }
    rmdir(path);
}

/* Takes the objects with these ids out of a copy: no flush covered them. */
static void drop_objects(const char *path, const GArray *ids)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    const char *name;

    while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *below = g_build_filename(path, name, NULL);
        uint64_t id = strtoull(name, NULL, 16);

        if (g_file_test(below, G_FILE_TEST_IS_DIR)) {
            drop_objects(below, ids);
            continue;
        }
        for (guint i = 0; strchr(name, '.') != NULL && i < ids->len; i++) {
            if (g_array_index(ids, uint64_t, i) == id) {
                unlink(below);
                break;
            }
        }
    }
}

/* The pages of the engine that each of its commits writes. */
static void read_roots(World *w, uint8_t bytes[8192])
{
    g_autofree char *path = g_build_filename(w->source, "meta", "data.mdb", NULL);
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);

    g_assert(fd >= 0 && read(fd, bytes, 8192) == 8192);
}

/* SOURCE as it would be if the power went now and took what no flush of the store
 * covered. */
static void copy_source(World *w)
{
    g_autofree char *objects = g_build_filename(w->copy, "objects", NULL);
    uint8_t before[8192], after[8192];

    do {
        g_autoptr(GArray) ids = NULL;

        world_remove_tree(w->copy);
        read_roots(w, before);
        ids = vj_store_fault_unflushed(vj_volume_store(w->v));
        copy_tree(w->source, w->copy);
        drop_objects(objects, ids);
        read_roots(w, after);
        /* Else a commit in the background came between the files. */
    } while (memcmp(before, after, sizeof before) != 0);
}

static void say(void *opaque, const char *text)
{
    World *w = opaque;

    world_problem(w, "fsck: %s", text);
}

static void check_at(World *w, const char *source, const char *when, bool may_leak)
{
    VjCheckReport report = {0};
    VjVolume *before = g_steal_pointer(&w->v);
    char *end;

    if (!world_open_at(w, source, false, true, false)) {
        w->v = before;
        return;
    }
    if (vj_fsck_contents(w->v, true, say, w, &report) < 0 ||
        vj_fsck_names(w->v, say, w, &report) < 0) {
        world_problem(w, "%s: the check cannot run", when);
    }
    if (report.problems > 0 || report.lost > 0 || (report.leaks > 0 && !may_leak)) {
        world_problem(w,
                      "%s: the check finds %" G_GUINT64_FORMAT
                      " problems, %" G_GUINT64_FORMAT " lost, %" G_GUINT64_FORMAT
                      " leaks",
                      when, report.problems, report.lost, report.leaks);
    }
    if (vj_volume_close(g_steal_pointer(&w->v)) < 0) {
        world_problem(w, "%s: cannot close after the check", when);
    }
    end = strchr(w->problem, '\0');
    if (strstr(w->problem, "fsck: ") == w->problem && strstr(w->problem, when) == NULL) {
        g_snprintf(end, (gulong)(w->problem + sizeof w->problem - end), " (%s)", when);
    }
    w->v = before;
}

void world_check(World *w, const char *when)
{
    check_at(w, w->source, when, false);
}

#define SWAP(a, b)                                                                       \
    do {                                                                                 \
        gpointer swapped = a;                                                            \
        a = b;                                                                           \
        b = swapped;                                                                     \
    } while (0)

/* A copy of the model is compared with the copy of SOURCE.  @follow: what is there is
 * what the model knows from then on; nothing is open. */
static void try_copy(World *w, const char *when, bool follow)
{
    World other = {
        .source = w->copy, .kind = w->kind, .calm = true, .faults_ended = true};
    GHashTableIter each;
    gpointer node;

    other.loose = w->loose;
    other.hits_before = w->hits_before;
    other.tree = world_tree_copy(w->tree);
    other.trees = g_array_copy(w->trees);
    other.nodes = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, node_free);
    g_hash_table_iter_init(&each, w->nodes);
    while (g_hash_table_iter_next(&each, NULL, &node)) {
        const Node *from = node;
        Node *to = world_node(&other, from->ino);

        g_ptr_array_set_size(to->states, 0);
        for (guint i = 0; i < from->states->len; i++) {
            g_ptr_array_add(to->states, g_bytes_ref(from->states->pdata[i]));
        }
    }
    check_at(&other, w->copy, when, false);
    if (world_open_at(&other, w->copy, false, false, false)) {
        other.fs = vj_fs_new(other.v);
        world_adopt(&other, when);
        vj_fs_free(g_steal_pointer(&other.fs));
        if (vj_volume_close(g_steal_pointer(&other.v)) < 0) {
            world_problem(&other, "%s: cannot close", when);
        }
    }
    if (other.problem[0] != '\0') {
        world_problem(w, "%s: %s", when, other.problem);
    }
    if (follow) {
        SWAP(w->nodes, other.nodes);
        SWAP(w->tree, other.tree);
        SWAP(w->trees, other.trees);
        w->loose = other.loose;
    }
    g_hash_table_unref(other.nodes);
    g_hash_table_unref(other.tree);
    g_array_unref(other.trees);
}

void world_try_kill(World *w, const char *when)
{
    Layer layer = w->kind->layer;

    copy_source(w);
    if (layer >= LAYER_SYS) {
        /* The fault is not for the copy. */
        sweep_faults_pause(true);
    }
    try_copy(w, when, false);
    sweep_faults_pause(false);
}

void world_kill(World *w)
{
    g_autofree char *kept = g_strdup_printf("%s-kept", w->copy);
    char *source = w->source;

    if (w->v == NULL) {
        return;
    }
    copy_source(w);
    copy_tree(w->copy, kept);
    count_calls(w);
    release_all(w);
    sweep_faults_pause(true);
    try_copy(w, "killed", true);
    world_remove_tree(w->copy);
    g_assert(rename(kept, w->copy) == 0);
    vj_fs_free(g_steal_pointer(&w->fs));
    /* What becomes of the daemon that is not there any more is nobody's business. */
    (void)!vj_volume_close(g_steal_pointer(&w->v));
    sweep_faults_pause(false);
    w->source = w->copy;
    w->copy = source;
}

/* ---- a whole run ------------------------------------------------------------------- */

void world_new(World *w, const Kind *kind, uint64_t number, unsigned segment,
               const char *make_options, uint64_t seed)
{
    const char *place = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : g_get_tmp_dir();
    /* A small log: it is copied often, and comes to its end. */
    g_autofree char *options = g_strdup_printf("%s,meta=lmdb:redo=256K", make_options);
    VjVolumeMake how = {.options = options};
    g_autoptr(GError) error = NULL;
    g_autofree char *dir = g_build_filename(place, "varjfs-sweep-XXXXXX", NULL);

    if (g_mkdtemp(dir) == NULL) {
        g_error("%s: %s", dir, g_strerror(errno));
    }
    *w = (World){.kind = kind, .number = number, .fault_segment = UINT_MAX, .calm = true};
    w->source = g_build_filename(dir, "source", NULL);
    w->copy = g_build_filename(dir, "copy", NULL);
    w->tree = world_tree_new();
    w->trees = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    w->nodes = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, node_free);
    w->hits_before = sweep_faults_hits();
    world_tree_is(w, w->tree);
    vj_rng_init(&w->rng, seed);
    how.source = w->source;
    if (!vj_volume_make(&how, &error)) {
        g_error("%s", error->message);
    }
    world_open(w);
    w->segment = 0;
    w->fault_segment = segment;
}

void world_free(World *w)
{
    g_autofree char *dir = g_path_get_dirname(w->source);

    g_assert(w->v == NULL);
    world_remove_tree(dir);
    g_hash_table_unref(w->nodes);
    g_hash_table_unref(w->tree);
    g_array_unref(w->trees);
    g_free(w->source);
    g_free(w->copy);
}
