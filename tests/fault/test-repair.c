/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-repair.c - random damage to records and objects, then what fsck.varjfs -y does
 *
 * A round takes a sound volume, damages some records (bits, bytes, whole records gone)
 * and some objects, and repairs it: in one go, or cut off by SIGKILL after the N-th thing
 * that was mended and run again.  Then nothing is wrong any more, a second repair finds
 * nothing to do, and each file is as it was: each byte that can be read is the right one,
 * and only what the damage hit can be missing.
 *
 * VARJFS_REPAIR_ROUNDS and VARJFS_REPAIR_SEED choose a longer or another run.
 */
#include "../lib/test.h"

#include "../lib/plant.h"

#include "fs/fs-private.h"
#include "fsck/fsck.h"
#include "map/map-private.h"
#include "object/object-format.h"
#include "volume/volume-private.h"

#include <dirent.h>
#include <sys/stat.h>

#define ROUNDS_DEFAULT 12u
#define FILES 14u
#define DIRS 3u
#define LENGTH_MOST ((size_t)50000)
#define CHECKS_MOST 8u
/* A round takes a tenth of a second; this long is a hang. */
#define HANG_SECONDS 120u

static const VjCaller root_caller = {.umask = 022};

typedef struct Model {
    char path[32]; /* dir, name */
    unsigned dir;
    uint64_t ino;
    size_t len;
    uint8_t *bytes;
} Model;

typedef struct Touched {
    VjSpace space;
    GBytes *key;
    bool one_bit;
} Touched;

typedef struct Fixture {
    char *dir, *sound; /* the volume, and its copy */
    VjVolume *v;
    VjFs *fs;
    VjRng rng;
    uint64_t seed;
    uint64_t dirs[DIRS];
    Model files[FILES];
    GArray *touched;     /* Touched */
    GHashTable *objects; /* ids (gint64) whose bytes were damaged */
    GString *said;
    unsigned kill_at, mended;
} Fixture;

/* ---- the volume -------------------------------------------------------------------- */

static void open_volume(Fixture *x, bool check)
{
    g_autoptr(GError) error = NULL;
    /* Bodies run again, of views too: a repair says and does each thing once. */
    VjVolumeOpen how = {.source = x->dir,
                        .check = check,
                        .repair = check,
                        .wrap_meta = check ? "fault:conflicts=50,seed=3" : NULL};

    if (!vj_volume_open(&how, &x->v, &error)) {
        fail_msg("seed %" G_GUINT64_FORMAT ": %s\n%s", x->seed, error->message,
                 x->said->str);
    }
}

static void close_volume(Fixture *x)
{
    assert_int_equal(vj_volume_close(x->v), 0);
    x->v = NULL;
}

/* Some files are equal, some are small, some have holes, one is encoded. */
static void make_file(Fixture *x, unsigned i)
{
    static const size_t lengths[] = {0, 10, 3000, 5000, 20000, LENGTH_MOST, 40000};
    Model *m = &x->files[i];
    VjAttr attr;
    VjHandle *h;

    m->dir = i % DIRS;
    g_snprintf(m->path, sizeof m->path, "file %u", i);
    m->len = lengths[i % G_N_ELEMENTS(lengths)];
    m->bytes = g_malloc0(LENGTH_MOST);
    if (i >= G_N_ELEMENTS(lengths) && i % 2 == 0) {
        memcpy(m->bytes, x->files[i - G_N_ELEMENTS(lengths)].bytes, m->len);
    } else {
        vj_rng_bytes(&x->rng, m->bytes, m->len);
    }
    assert_int_equal(vj_fs_create(x->fs, &root_caller, x->dirs[m->dir], m->path, 0644,
                                  O_RDWR, &attr, &h),
                     0);
    m->ino = attr.st.st_ino;
    if (i == 4) {
        memset(m->bytes, 'z', m->len);
        assert_int_equal(vj_fs_setxattr(x->fs, &root_caller, m->ino,
                                        "user.varjfs.transform", "rle", 3, 0),
                         0);
    }
    assert_int_equal(vj_fs_setxattr(x->fs, &root_caller, m->ino, "user.name", m->path,
                                    strlen(m->path), 0),
                     0);
    assert_int_equal(vj_fs_write(h, 0, m->bytes, m->len, 0, NULL), 0);
    assert_int_equal(vj_fs_fsync(h), 0);
    vj_fs_release(x->fs, h);
}

static void make_tree(Fixture *x)
{
    VjAttr attr;

    x->dirs[0] = VJ_INO_ROOT;
    for (unsigned i = 1; i < DIRS; i++) {
        char name[16];

        g_snprintf(name, sizeof name, "dir%u", i);
        assert_int_equal(
            vj_fs_mkdir(x->fs, &root_caller, x->dirs[i - 1], name, 0755, &attr), 0);
        x->dirs[i] = attr.st.st_ino;
    }
    for (unsigned i = 0; i < FILES; i++) {
        make_file(x, i);
    }
    assert_int_equal(
        vj_fs_symlink(x->fs, &root_caller, x->dirs[1], "link", "file 1", &attr), 0);
    assert_int_equal(
        vj_fs_mknod(x->fs, &root_caller, x->dirs[2], "pipe", S_IFIFO | 0600, 0, &attr),
        0);
}

static void run(const char *command, const char *from, const char *to)
{
    g_autofree char *line = g_strdup_printf("%s '%s' '%s'", command, from, to);

    assert_int_equal(system(line), 0);
}

static void touched_clear(gpointer data)
{
    g_bytes_unref(((Touched *)data)->key);
}

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *text = g_getenv(variable);

    return text == NULL ? otherwise : g_ascii_strtoull(text, NULL, 10);
}

static int setup(void **state)
{
    g_autoptr(GError) error = NULL;
    Fixture *x = g_new0(Fixture, 1);
    VjVolumeMake how = {.options = "objects=1K"};

    vj_map_set_most_for_test(8);
    x->seed = number_from("VARJFS_REPAIR_SEED", 1);
    vj_rng_init(&x->rng, x->seed);
    x->dir = vj_test_make_dir();
    x->sound = g_strconcat(x->dir, ".sound", NULL);
    x->said = g_string_new(NULL);
    x->touched = g_array_new(FALSE, FALSE, sizeof(Touched));
    g_array_set_clear_func(x->touched, touched_clear);
    x->objects = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    how.source = x->dir;
    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    open_volume(x, false);
    x->fs = vj_fs_new(x->v);
    make_tree(x);
    vj_fs_free(x->fs);
    close_volume(x);
    run("cp -a", x->dir, x->sound);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    Fixture *x = *state;

    vj_test_remove_dir(x->dir);
    vj_test_remove_dir(x->sound);
    g_array_unref(x->touched);
    g_hash_table_unref(x->objects);
    g_string_free(x->said, TRUE);
    for (unsigned i = 0; i < FILES; i++) {
        g_free(x->files[i].bytes);
    }
    g_free(x);
    vj_map_set_most_for_test(0);
    return 0;
}

static void restore(Fixture *x)
{
    run("rm -rf", x->dir, x->dir);
    run("cp -a", x->sound, x->dir);
    g_array_set_size(x->touched, 0);
    g_hash_table_remove_all(x->objects);
    g_string_truncate(x->said, 0);
}

/* ---- damage ------------------------------------------------------------------------ */

static const VjSpace spaces[] = {
    VJ_SPACE_SYSTEM, VJ_SPACE_INODE, VJ_SPACE_INODE,    VJ_SPACE_DENTRY, VJ_SPACE_COOKIE,
    VJ_SPACE_XATTR,  VJ_SPACE_NODE,  VJ_SPACE_NODE,     VJ_SPACE_NODE,   VJ_SPACE_INLINE,
    VJ_SPACE_OBJECT, VJ_SPACE_INDEX, VJ_SPACE_ID_BLOCK,
};

/* A key of @space at random; NULL: there is none. */
static GBytes *choose_key(Fixture *x, VjTxn *txn, VjSpace space)
{
    g_autoptr(GPtrArray) keys =
        g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    VjSlice after = vj_slice(NULL, 0), key, value;

    while (vj_txn_next(txn, space, after, &key, &value) == 0) {
        GBytes *copy = g_bytes_new(key.data, key.len);
        gsize len;

        g_ptr_array_add(keys, copy);
        after.data = g_bytes_get_data(copy, &len);
        after.len = len;
    }
    return keys->len == 0 ? NULL
                          : g_bytes_ref(keys->pdata[vj_rng_below(&x->rng, keys->len)]);
}

static int damage_body(VjTxn *txn, void *opaque)
{
    Fixture *x = opaque;
    Touched t = {.space = spaces[vj_rng_below(&x->rng, G_N_ELEMENTS(spaces))]};
    unsigned how = (unsigned)vj_rng_below(&x->rng, 10);
    VjSlice key, value;
    gsize len;
    int r;

    t.key = choose_key(x, txn, t.space);
    if (t.key == NULL) {
        return 0;
    }
    key.data = g_bytes_get_data(t.key, &len);
    key.len = len;
    r = vj_txn_get(txn, t.space, key, &value);
    if (r == 0 && how < 2) {
        r = vj_txn_del(txn, t.space, key);
    } else if (r == 0) {
        vj_plant_smears = how < 5;
        t.one_bit = !vj_plant_smears;
        r = vj_plant_flip(txn, t.space, key, vj_rng_below(&x->rng, value.len));
        vj_plant_smears = false;
    }
    g_array_append_val(x->touched, t);
    return r;
}

static GPtrArray *listed; /* char *: files of the store */

static int list_file(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    if (type == FTW_F && strlen(path + where->base) >= 33) {
        g_ptr_array_add(listed, g_strdup(path));
    }
    return 0;
}

static gint by_path(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void damage_file(Fixture *x, const char *path)
{
    uint64_t id = g_ascii_strtoull(strrchr(path, '/') + 1, NULL, 16);
    VJ_AUTO_FD fd = open(path, O_RDWR);
    struct stat st;
    uint8_t byte = 0;
    off_t at;

    assert_int_equal(fstat(fd, &st), 0);
    g_hash_table_add(x->objects, g_memdup2(&id, sizeof id));
    at = (off_t)vj_rng_below(&x->rng, (uint64_t)st.st_size);
    switch (vj_rng_below(&x->rng, 4)) {
    case 0:
        assert_int_equal(unlink(path), 0);
        break;
    case 1:
        assert_int_equal(ftruncate(fd, at), 0);
        break;
    default:
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (uint8_t)(1u << vj_rng_below(&x->rng, 8));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        break;
    }
}

static void damage(Fixture *x)
{
    g_autofree char *objects = g_build_filename(x->dir, "objects", NULL);
    unsigned count = 1 + (unsigned)vj_rng_below(&x->rng, 8);

    for (unsigned i = 0; i < count; i++) {
        vj_plant(x->dir, damage_body, x);
    }
    listed = g_ptr_array_new_with_free_func(g_free);
    assert_int_equal(nftw(objects, list_file, 16, FTW_PHYS), 0);
    g_ptr_array_sort(listed, by_path);
    for (guint i = 0; i < listed->len; i++) {
        if (vj_rng_below(&x->rng, 150) == 0) {
            damage_file(x, listed->pdata[i]);
        }
    }
    g_ptr_array_unref(listed);
}

static const Touched *touched(const Fixture *x, VjSpace space, const void *key,
                              size_t len)
{
    for (guint i = 0; i < x->touched->len; i++) {
        const Touched *t = &g_array_index(x->touched, Touched, i);
        gsize its_len;
        const void *its = g_bytes_get_data(t->key, &its_len);

        if (t->space == space && its_len >= len && memcmp(its, key, len) == 0) {
            return t;
        }
    }
    return NULL;
}

static bool touched_ino(const Fixture *x, VjSpace space, uint64_t ino)
{
    uint8_t key[8];

    return touched(x, space, vj_ino_key(ino, key).data, sizeof key) != NULL;
}

/* ---- repair ------------------------------------------------------------------------ */

static void say(void *opaque, const char *text)
{
    Fixture *x = opaque;

    g_string_append_printf(x->said, "%s\n", text);
}

static void say_repaired(void *opaque, const char *text)
{
    Fixture *x = opaque;

    g_string_append_printf(x->said, "  repaired: %s\n", text);
    if (++x->mended == x->kill_at) {
        kill(getpid(), SIGKILL);
    }
}

/* As fsck.varjfs -y does.  Returns the number of things that were mended. */
static uint64_t repair(Fixture *x)
{
    VjCheckReport report = {0};
    uint64_t count = 0;

    open_volume(x, true);
    count += vj_volume_mended_at_open(x->v);
    for (unsigned i = 0;; i++) {
        assert_int_equal(vj_fsck_contents(x->v, i == 0, say, x, &report), 0);
        assert_int_equal(vj_fsck_names(x->v, say, x, &report), 0);
        if (report.problems == 0 && report.whole == 0) {
            break;
        }
        if (i == CHECKS_MOST) {
            fail_msg("seed %" G_GUINT64_FORMAT ": %" G_GUINT64_FORMAT
                     " problems are left:\n%s",
                     x->seed, report.problems, x->said->str);
        }
        g_autoptr(VjRepair) r = vj_repair_new(x->v, say_repaired, x);

        assert_int_equal(vj_repair_all(r), 0);
        count += vj_repair_count(r);
    }
    g_autoptr(VjRepair) r = vj_repair_new(x->v, say_repaired, x);

    assert_int_equal(vj_repair_store(r), 0);
    count += vj_repair_count(r);
    close_volume(x);
    return count;
}

/* In a process of its own that ends after @kill_at repairs.  True: it came to its end. */
static bool repair_and_die(Fixture *x, unsigned kill_at)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        x->kill_at = kill_at;
        x->mended = 0;
        repair(x);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) &&
        !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
        fail_msg("seed %" G_GUINT64_FORMAT ": the repair that was to be killed ended "
                 "with status %x",
                 x->seed, (unsigned)status);
    }
    return WIFEXITED(status);
}

/* ---- comparison -------------------------------------------------------------------- */

/* The inode of a file by its name; 0: the name is gone. */
static uint64_t look_up(const Fixture *x, const Model *m)
{
    VjAttr attr;

    return vj_fs_lookup(x->fs, &root_caller, x->dirs[m->dir], m->path, &attr) == 0
               ? attr.st.st_ino
               : 0;
}

/* A name has two records: one restores the other. */
static bool may_lose_name(const Fixture *x, const Model *m)
{
    uint64_t dir = x->dirs[m->dir];
    VjFsKey key;

    vj_fs_key_name(&key, dir, m->path, strlen(m->path));
    return touched(x, VJ_SPACE_DENTRY, key.bytes, key.len) != NULL &&
           touched_ino(x, VJ_SPACE_COOKIE, dir);
}

static bool may_lose_content(const Fixture *x, const Model *m)
{
    return touched_ino(x, VJ_SPACE_NODE, m->ino) ||
           touched_ino(x, VJ_SPACE_INLINE, m->ino) || g_hash_table_size(x->objects) > 0 ||
           touched(x, VJ_SPACE_OBJECT, "", 0) != NULL;
}

/* Each byte is right or cannot be read; how many cannot. */
static size_t compare(Fixture *x, const Model *m)
{
    g_autoptr(VjFile) f = NULL;
    size_t lost = 0;
    VjInode inode;

    assert_int_equal(vj_file_getattr(vj_volume_files(x->v), m->ino, &inode), 0);
    if (inode.size != m->len) {
        fail_msg("seed %" G_GUINT64_FORMAT ": %s has %" G_GUINT64_FORMAT
                 " bytes and had %zu:\n%s",
                 x->seed, m->path, inode.size, m->len, x->said->str);
    }
    assert_int_equal(vj_file_open(vj_volume_files(x->v), m->ino, &f), 0);
    for (size_t at = 0; at < m->len; at += 32) {
        uint8_t got[32];
        size_t want = MIN(sizeof got, m->len - at), len = 0;
        int r = vj_file_read(f, at, got, want, &len);

        if (r < 0 && vj_is_damage(r)) {
            lost += want;
        } else if (r < 0 || len != want || memcmp(got, m->bytes + at, want) != 0) {
            g_clear_pointer(&f, vj_file_unref);
            fail_msg("seed %" G_GUINT64_FORMAT ": %s: %zu bytes at %zu (%d):\n%s",
                     x->seed, m->path, len, at, r, x->said->str);
        }
    }
    return lost;
}

static void compare_file(Fixture *x, const Model *m)
{
    uint8_t key[8];
    const Touched *record =
        touched(x, VJ_SPACE_INODE, vj_ino_key(m->ino, key).data, sizeof key);
    uint64_t ino = look_up(x, m);
    size_t lost;

    if (ino != m->ino) {
        bool empty_and_gone = record != NULL && m->len == 0;

        if (ino == 0 && !may_lose_name(x, m) && !empty_and_gone && record == NULL) {
            fail_msg("seed %" G_GUINT64_FORMAT ": %s is gone:\n%s", x->seed, m->path,
                     x->said->str);
        }
        return;
    }
    if (record != NULL && !record->one_bit && may_lose_content(x, m)) {
        return; /* of both together not even the length is known */
    }
    lost = compare(x, m);
    if (lost > 0 && !may_lose_content(x, m)) {
        fail_msg("seed %" G_GUINT64_FORMAT ": %s has lost %zu bytes:\n%s", x->seed,
                 m->path, lost, x->said->str);
    }
}

static void compare_all(Fixture *x)
{
    open_volume(x, false);
    x->fs = vj_fs_new(x->v);
    for (unsigned i = 0; i < FILES; i++) {
        compare_file(x, &x->files[i]);
    }
    vj_fs_free(x->fs);
    assert_int_equal(vj_volume_purge(x->v), 0);
    close_volume(x);
}

static void second_finds_nothing(Fixture *x)
{
    g_string_append(x->said, "---- again\n");
    if (repair(x) != 0) {
        fprintf(stderr, "%s", x->said->str); /* cmocka cuts long messages off */
        fail_msg("seed %" G_GUINT64_FORMAT ": a second repair had to do:\n%s", x->seed,
                 x->said->str);
    }
}

static void begin_round(Fixture *x, uint64_t seed)
{
    alarm(HANG_SECONDS);
    restore(x);
    x->seed = seed;
    vj_rng_init(&x->rng, seed);
    damage(x);
}

static void end_round(Fixture *x)
{
    second_finds_nothing(x);
    compare_all(x);
    second_finds_nothing(x);
    alarm(0);
    if (g_getenv("VARJFS_TEST_TELL") != NULL) {
        print_message("---- seed %" G_GUINT64_FORMAT "\n%s", x->seed, x->said->str);
    }
}

static void damage_is_repaired(void **state)
{
    Fixture *x = *state;
    uint64_t rounds = number_from("VARJFS_REPAIR_ROUNDS", ROUNDS_DEFAULT),
             first = x->seed;

    for (uint64_t i = 0; i < rounds; i++) {
        begin_round(x, first + i);
        x->kill_at = 0;
        (void)repair(x);
        end_round(x);
    }
    print_message("# seeds %" G_GUINT64_FORMAT " to %" G_GUINT64_FORMAT "\n", first,
                  first + rounds - 1);
}

static void a_killed_repair_is_repeated(void **state)
{
    Fixture *x = *state;
    uint64_t rounds = number_from("VARJFS_REPAIR_ROUNDS", ROUNDS_DEFAULT) / 4;
    uint64_t first = x->seed + 1000000;

    for (uint64_t i = 0; i < rounds; i++) {
        unsigned kill_at = 1;

        begin_round(x, first + i);
        while (kill_at < 40 && !repair_and_die(x, kill_at)) {
            kill_at += 1 + (unsigned)vj_rng_below(&x->rng, 3);
        }
        x->kill_at = 0;
        (void)repair(x);
        end_round(x);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(damage_is_repaired, setup, teardown),
    cmocka_unit_test_setup_teardown(a_killed_repair_is_repeated, setup, teardown),
};

VJ_TEST_MAIN(tests)
