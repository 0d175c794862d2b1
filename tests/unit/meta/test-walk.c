/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-walk.c - files of the lmdb driver examined, copied while in use, put back, made
 * smaller
 *
 * The property that matters: what the walk finds whole, LMDB reads without harm.
 */
#include "meta-fixture.h"
#include "meta/lmdb-walk.h"

#include <sys/stat.h>
#include <sys/wait.h>

#define FLIPS_DEFAULT 140u

static uint64_t rng_state;

static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

static void seed(void)
{
    const char *text = g_getenv("VARJFS_MODEL_SEED");

    rng_state = text != NULL ? g_ascii_strtoull(text, NULL, 10) : vj_random_u64();
    rng_state = rng_state != 0 ? rng_state : 1;
    print_message("# VARJFS_MODEL_SEED=%" G_GUINT64_FORMAT "\n", rng_state);
}

static void tell(void *opaque, const char *text)
{
    (void)opaque;
    print_message("# %s\n", text);
}

static VjMetaPlace place_of(const Fixture *f)
{
    return (VjMetaPlace){.dir_fd = f->dir_fd, .path = f->path};
}

static VjMetaExam examine(const Fixture *f, int fd, bool loud)
{
    VjMetaPlace place = place_of(f);
    VjMetaExam exam;

    assert_int_equal(vj_meta_examine("lmdb", &place, fd, loud ? tell : NULL, NULL, &exam),
                     0);
    return exam;
}

/* Values of all lengths, among them some that take pages of their own. */
static size_t value_bytes(void)
{
    uint64_t kind = rng() % 1000;

    return 8 + rng() % (kind < 900 ? 200 : kind < 995 ? 4000 : 60000);
}

typedef struct Batch {
    unsigned count;
    uint64_t keys;
} Batch;

static int batch_body(VjTxn *txn, void *opaque)
{
    const Batch *b = opaque;

    for (unsigned i = 0; i < b->count; i++) {
        NumberedPut p = {.space = (VjSpace)(rng() % 5),
                         .number = rng() % b->keys,
                         .value_bytes = rng() % 3 == 0 ? 0 : value_bytes()};
        int rc = numbered_body(txn, &p);

        if (rc < 0 && rc != -ENOENT) {
            return rc;
        }
    }
    return 0;
}

static void change(VjMeta *m, unsigned commits, Batch b)
{
    for (unsigned i = 0; i < commits; i++) {
        assert_int_equal(vj_meta_run(m, VJ_RUN_DEFAULT, batch_body, &b), 0);
        if (rng() % 4 == 0) {
            assert_int_equal(vj_meta_flush(m), 0);
        }
    }
}

static uint64_t count_all(VjMeta *m)
{
    uint64_t sum = 0;

    for (VjSpace s = 0; s < VJ_SPACE_COUNT; s++) {
        VjListing l;

        vj_listing_begin(&l, m, s);
        while (vj_listing_next(&l)) {
            sum++;
        }
        assert_int_equal(vj_listing_end(&l), 0);
    }
    return sum;
}

static uint64_t lost_pages(const Fixture *f)
{
    int fd = openat(f->dir_fd, "data.mdb", O_RDONLY | O_CLOEXEC);
    VjLmdbWalk w;

    assert_int_equal(vj_lmdb_walk(fd, UINT64_MAX, NULL, NULL, NULL, &w), 0);
    vj_lmdb_walk_clear(&w);
    close(fd);
    return w.lost_pages;
}

/* All leaves of a space are found without LMDB, and no others. */
static void expect_leaves(const Fixture *f)
{
    VjLmdb *d = (VjLmdb *)fixture_engine(f);

    for (VjSpace s = 0; s < VJ_SPACE_COUNT; s++) {
        uint64_t leaves;

        vj_mutex_lock(&d->lock);
        leaves = d->file.spaces[s].leaf_pages;
        vj_mutex_unlock(&d->lock);
        assert_int_equal(vj_lmdb_expect(d, s), leaves);
    }
}

/* After any work the file is whole, to the last page and key. */
static void test_sound(void **state)
{
    Fixture f = fixture_new("lmdb");

    (void)state;
    seed();
    fixture_close(&f);
    assert_int_equal(examine(&f, -1, true).flaws, 0);
    for (unsigned round = 0; round < 6; round++) {
        VjMetaExam exam;
        uint64_t entries;

        fixture_open(&f, "lmdb:overlay=1M", false);
        change(f.meta, 40, (Batch){.count = 100, .keys = round < 3 ? 4000 : 100});
        assert_int_equal(vj_meta_flush(f.meta), 0);
        entries = count_all(f.meta);
        expect_leaves(&f);
        fixture_close(&f);
        exam = examine(&f, -1, true);
        assert_int_equal(exam.flaws, 0);
        assert_int_equal(exam.entries, entries);
        assert_int_equal(lost_pages(&f), 0);
        assert_true(exam.used_bytes <= exam.total_bytes);
    }
    fixture_free(&f);
}

/* ---- damage ------------------------------------------------------------------------ */

typedef struct Image {
    uint8_t *bytes;
    size_t len, used; /* used: as far as LMDB has pages */
} Image;

static Image image_of(Fixture *f)
{
    g_autofree char *name = g_build_filename(f->path, "data.mdb", NULL);
    Image image;

    assert_true(g_file_get_contents(name, (char **)&image.bytes, &image.len, NULL));
    image.used = image.len = (size_t)examine(f, -1, true).total_bytes;
    return image;
}

static void write_image(const Fixture *f, const void *bytes, size_t len)
{
    int fd = openat(f->dir_fd, "data.mdb", O_WRONLY | O_TRUNC | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(vj_fd_write_all(fd, bytes, len), 0);
    close(fd);
}

/* Opens it and reads all keys, in a process of its own: how that ended. */
static int read_in_child(const Fixture *f)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        VjMetaPlace place = place_of(f);
        VjMeta *m;

        alarm(20);
        place.read_only = true;
        if (vj_meta_open("lmdb", &place, &m, NULL)) {
            (void)count_all(m);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

typedef enum Damage {
    FLIP,
    FLIP_HEAD,
    BYTE,
    ZERO_PAGE,
    SWAP_PAGES,
    OLD_PAGE,
    CUT,
    DAMAGE_COUNT,
} Damage;

static const char *const damage_names[] = {
    "bit flipped anywhere", "bit flipped in the first 32 bytes of a page",
    "random bytes",         "page of zeroes",
    "two pages swapped",    "page under another's number",
    "file cut off",
};

/* Returns the length that is left. */
static size_t do_damage(Damage kind, uint8_t *bytes, const Image *image)
{
    size_t pages = image->used / 4096, a = rng() % pages, b = rng() % pages;
    uint8_t page[4096];

    switch (kind) {
    case FLIP:
        bytes[rng() % image->used] ^= (uint8_t)(1u << rng() % 8);
        break;
    case FLIP_HEAD:
        bytes[a * 4096 + rng() % 32] ^= (uint8_t)(1u << rng() % 8);
        break;
    case BYTE:
        for (unsigned i = 0; i < 8; i++) {
            bytes[a * 4096 + rng() % 4096] = (uint8_t)rng();
        }
        break;
    case ZERO_PAGE:
        memset(bytes + a * 4096, 0, 4096);
        break;
    case SWAP_PAGES:
        memcpy(page, bytes + a * 4096, 4096);
        memcpy(bytes + a * 4096, bytes + b * 4096, 4096);
        memcpy(bytes + b * 4096, page, 4096);
        break;
    case OLD_PAGE: /* as if a write had gone to the wrong place */
        memcpy(bytes + a * 4096 + 8, bytes + b * 4096 + 8, 4088);
        break;
    default:
        return 1 + rng() % image->used;
    }
    return image->len;
}

/* What is found whole is read whole, or at least without harm. */
static void test_damage(void **state)
{
    Fixture f = fixture_new("lmdb");
    const char *wanted = g_getenv("VARJFS_DAMAGE_TRIES");
    unsigned tries = wanted != NULL ? (unsigned)atoi(wanted) : FLIPS_DEFAULT;
    unsigned found[DAMAGE_COUNT] = {0}, passed[DAMAGE_COUNT] = {0};
    g_autofree uint8_t *bytes = NULL;
    Image image;

    (void)state;
    seed();
    change(f.meta, 40, (Batch){.count = 100, .keys = 1500});
    fixture_close(&f);
    image = image_of(&f);
    bytes = g_malloc(image.len);
    for (unsigned i = 0; i < tries; i++) {
        Damage kind = (Damage)(i % DAMAGE_COUNT);
        size_t len;

        memcpy(bytes, image.bytes, image.len);
        len = do_damage(kind, bytes, &image);
        write_image(&f, bytes, len);
        if (examine(&f, -1, false).flaws > 0) {
            found[kind]++;
        } else {
            int status = read_in_child(&f);

            passed[kind]++;
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                fail_msg("damage %u (%s): no flaw was found, and reading ended with %#x",
                         i, damage_names[kind], status);
            }
        }
    }
    for (unsigned i = 0; i < DAMAGE_COUNT; i++) {
        print_message("# %s: %u found, %u harmless to LMDB\n", damage_names[i], found[i],
                      passed[i]);
    }
    write_image(&f, image.bytes, image.len);
    fixture_open(&f, "lmdb", false);
    g_free(image.bytes);
    fixture_free(&f);
}

/* ---- copies ------------------------------------------------------------------------ */

static int new_file(const Fixture *f)
{
    int fd = openat(f->dir_fd, "copy", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    (void)unlinkat(f->dir_fd, "copy", 0);
    return fd;
}

typedef struct Writer {
    VjMeta *meta;
    gint stop;
} Writer;

static gpointer write_on(gpointer opaque)
{
    Writer *w = opaque;

    while (!g_atomic_int_get(&w->stop)) {
        change(w->meta, 1, (Batch){.count = 50, .keys = 5000});
    }
    return NULL;
}

/* Copies beside a writer are whole; one that is put back has what it had. */
static void test_copy(void **state)
{
    Fixture f = fixture_new("lmdb:overlay=1M");
    Writer w = {.meta = f.meta};
    VjMetaPlace place = place_of(&f);
    g_autoptr(GError) error = NULL;
    VjMetaSaved saved;
    bool replaced;
    VjMetaExam exam;
    GThread *writer;
    struct stat st;
    int fd = -1;

    (void)state;
    seed();
    change(f.meta, 50, (Batch){.count = 100, .keys = 5000});
    writer = g_thread_new("writer", write_on, &w);
    for (unsigned i = 0; i < 12; i++) {
        if (fd >= 0) {
            close(fd);
        }
        fd = new_file(&f);
        assert_int_equal(vj_meta_save(f.meta, fd, &saved), 0);
        exam = examine(&f, fd, true);
        assert_int_equal(exam.flaws, 0);
        assert_int_equal(exam.commit, saved.commit);
        assert_int_equal(exam.total_bytes, saved.bytes);
        assert_int_equal(exam.used_bytes, saved.used_bytes);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_size, saved.bytes);
    }
    g_atomic_int_set(&w.stop, 1);
    g_thread_join(writer);
    fixture_close(&f);

    if (!vj_meta_restore("lmdb", &place, fd, saved.bytes, "data.mdb.kept", &replaced,
                         &error)) {
        fail_msg("restore: %s", error->message);
    }
    assert_true(replaced);
    assert_int_equal(unlinkat(f.dir_fd, "data.mdb.kept", 0), 0);
    fixture_open(&f, "lmdb", false);
    assert_int_equal(count_all(f.meta), exam.entries);
    change(f.meta, 20, (Batch){.count = 100, .keys = 5000});
    fixture_close(&f);
    assert_int_equal(examine(&f, -1, true).flaws, 0);

    /* A copy that is damaged is not put in place. */
    assert_int_equal(pwrite(fd, "xx", 2, 4096), 2);
    assert_false(vj_meta_restore("lmdb", &place, fd, saved.bytes, "data.mdb.kept",
                                 &replaced, NULL));
    assert_false(replaced);
    assert_int_equal(faccessat(f.dir_fd, "data.mdb.kept", F_OK, 0), -1);
    assert_int_equal(examine(&f, -1, true).flaws, 0);
    close(fd);
    fixture_free(&f);
}

/* ---- size -------------------------------------------------------------------------- */

static off_t file_bytes(const Fixture *f)
{
    struct stat st;

    assert_int_equal(fstatat(f->dir_fd, "data.mdb", &st, 0), 0);
    return st.st_size;
}

static int drop_body(VjTxn *txn, void *opaque)
{
    uint64_t *at = opaque;

    for (unsigned i = 0; i < 100; i++) {
        uint8_t key[8];
        int rc = vj_txn_del(txn, VJ_SPACE_INLINE, numbered_key((*at)++, key));

        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* Most of what was there is gone: so is its space, when the file is closed. */
static void test_compact(void **state)
{
    enum { KEYS = 30000 };
    Fixture f = fixture_new("lmdb:reserve=1M");
    uint64_t at = 0;
    off_t full;

    (void)state;
    for (uint64_t i = 0; i < KEYS; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_INLINE, i, 4000), 0);
    }
    fixture_close(&f);
    full = file_bytes(&f);
    assert_true(full > (off_t)KEYS * 4000);
    fixture_open(&f, "lmdb:reserve=1M", false);
    while (at < KEYS - 100) {
        assert_int_equal(vj_meta_run(f.meta, VJ_RUN_RELEASE, drop_body, &at), 0);
    }
    assert_int_equal(vj_meta_flush(f.meta), 0);
    fixture_close(&f);
    assert_true(file_bytes(&f) < full / 8);
    assert_int_equal(examine(&f, -1, true).flaws, 0);
    assert_int_equal(faccessat(f.dir_fd, VJ_LMDB_NEW_FILE, F_OK, 0), -1);

    fixture_open(&f, "lmdb:reserve=1M", false);
    assert_int_equal(count_all(f.meta), 100);
    for (uint64_t i = KEYS - 100; i < KEYS; i++) {
        assert_int_equal(get_numbered(f.meta, VJ_SPACE_INLINE, i), 4000);
    }
    change(f.meta, 20, (Batch){.count = 100, .keys = 5000});
    fixture_free(&f);
}

/* What a crash left of a smaller file that was not in its place yet. */
static void test_compact_cut_off(void **state)
{
    Fixture f = fixture_new("lmdb");
    int fd;

    (void)state;
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 1, 100), 0);
    fixture_close(&f);
    fd = openat(f.dir_fd, VJ_LMDB_NEW_FILE, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "half", 4), 4);
    close(fd);
    fixture_open(&f, "lmdb", false);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 1), 100);
    assert_int_equal(faccessat(f.dir_fd, VJ_LMDB_NEW_FILE, F_OK, 0), -1);
    fixture_free(&f);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_compact),
        cmocka_unit_test(test_compact_cut_off),
    };

    if (argc == 3 && strcmp(argv[1], "-p") == 0) {
        cmocka_set_test_filter(argv[2]);
    } else if (argc != 1) {
        fprintf(stderr, "usage: %s [-p PATTERN]\n", argv[0]);
        return 2;
    }
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
