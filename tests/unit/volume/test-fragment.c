/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-fragment.c - maps that name fragments in ways that this version does not leave
 * them
 *
 * The tests plant them in a transaction of their own.  What small changes leave:
 * test-small.c.
 */
#include "../../lib/test.h"

#include "codec/codec.h"
#include "fsck/fsck.h"
#include "volume/volume-private.h"

#include <sys/stat.h>

#define FRAGMENTS 3u
#define FRAGMENT_BYTES 3000u

typedef struct Fixture {
    char *dir;
    VjVolume *v;
    uint64_t ino;
    uint8_t bytes[FRAGMENTS * FRAGMENT_BYTES];
} Fixture;

static void open_volume(Fixture *x, bool check)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = x->dir, .check = check};

    if (!vj_volume_open(&how, &x->v, &error)) {
        fail_msg("%s", error->message);
    }
}

static void close_volume(Fixture *x)
{
    assert_int_equal(vj_volume_close(x->v), 0);
    x->v = NULL;
}

/* A file of three fragments; the second entry uses the middle of a longer one. */
static int plant_body(VjTxn *txn, void *opaque)
{
    Fixture *x = opaque;
    const VjTransform plain = {.codec = VJ_CODEC_ID_NONE};
    const VjTransform xored = {.codec = VJ_CODEC_ID_XOR, .param = 0x5a};
    uint8_t padded[FRAGMENT_BYTES + 200];
    VjEntry entries[FRAGMENTS];
    g_autoptr(GArray) removed = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    g_autoptr(GArray) detached = g_array_new(FALSE, FALSE, sizeof(VjMapDetached));
    VjInode inode = {.generation = 1, .mode = S_IFREG | 0644, .nlink = 1};
    int r = vj_ino_take(txn, &x->ino);

    inode.ino = x->ino;
    inode.root.next_node = 1;
    memset(padded, 0xee, sizeof padded);
    memcpy(padded + 100, x->bytes + FRAGMENT_BYTES, FRAGMENT_BYTES);
    for (uint32_t i = 0; r == 0 && i < FRAGMENTS; i++) {
        uint32_t number = inode.root.next_node++;

        entries[i] = (VjEntry){.id = number,
                               .length = FRAGMENT_BYTES,
                               .start = i == 1 ? 100 : 0,
                               .stored_bytes = FRAGMENT_BYTES,
                               .kind = VJ_ENTRY_FRAGMENT};
        r = i == 1 ? vj_fragment_put(txn, x->ino, number, &plain, padded, sizeof padded)
                   : vj_fragment_put(txn, x->ino, number, &xored,
                                     x->bytes + i * FRAGMENT_BYTES, FRAGMENT_BYTES);
    }
    if (r == 0) {
        r = vj_map_replace(txn, x->ino, &inode.root, 0, 0, entries, FRAGMENTS, removed,
                           detached);
    }
    inode.content = VJ_CONTENT_MAP;
    inode.size = sizeof x->bytes;
    inode.stored_bytes = sizeof x->bytes;
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

static int setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);
    g_autoptr(GError) error = NULL;
    VjVolumeMake how = {.options = "objects=1K"};
    VjRng rng;

    x->dir = vj_test_make_dir();
    how.source = x->dir;
    assert_true(vj_volume_make(&how, &error));
    open_volume(x, false);
    vj_rng_init(&rng, 7);
    vj_rng_bytes(&rng, x->bytes, sizeof x->bytes);
    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, plant_body, x), 0);
    *state = x;
    return 0;
}

static void say(void *opaque, const char *text)
{
    g_string_append_printf(opaque, "%s\n", text);
}

/* What fsck says about the contents, without the names, of which there are none here. */
static void expect_fsck(Fixture *x, const char *part)
{
    g_autoptr(GString) said = g_string_new(NULL);
    VjCheckReport report = {0};

    close_volume(x);
    open_volume(x, true);
    assert_int_equal(vj_fsck_contents(x->v, true, say, said, &report), 0);
    if (part == NULL ? strstr(said->str, "fragment") != NULL
                     : strstr(said->str, part) == NULL) {
        fail_msg("check said: %s", said->str);
    }
    close_volume(x);
    open_volume(x, false);
}

static int teardown(void **state)
{
    Fixture *x = *state;

    close_volume(x);
    vj_test_remove_dir(x->dir);
    g_free(x);
    return 0;
}

static void expect_bytes(VjFile *f, const uint8_t *want, size_t len)
{
    g_autofree uint8_t *got = g_malloc(len + 1);
    size_t read_len;

    assert_int_equal(vj_file_read(f, 0, got, len + 1, &read_len), 0);
    assert_int_equal(read_len, len);
    assert_memory_equal(got, want, len);
}

static unsigned count_fragments(Fixture *x)
{
    VjListing l;
    unsigned count = 0;

    vj_listing_begin(&l, x->v->meta, VJ_SPACE_FRAGMENT);
    while (vj_listing_next(&l)) {
        count++;
    }
    assert_int_equal(vj_listing_end(&l), 0);
    return count;
}

static void read_and_check(void **state)
{
    Fixture *x = *state;
    VjFile *f;

    assert_int_equal(vj_file_open(vj_volume_files(x->v), x->ino, &f), 0);
    expect_bytes(f, x->bytes, sizeof x->bytes);
    vj_file_unref(f);
    expect_fsck(x, NULL);
}

static void an_edit_makes_objects_of_them(void **state)
{
    Fixture *x = *state;
    uint8_t want[sizeof x->bytes + 5];
    VjFile *f;

    memcpy(want, x->bytes, 4000);
    memcpy(want + 4000, "hello", 5);
    memcpy(want + 4005, x->bytes + 4000, sizeof x->bytes - 4000);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), x->ino, &f), 0);
    assert_int_equal(vj_file_replace(f, 4000, 0, "hello", 5, false, NULL), 0);
    expect_bytes(f, want, sizeof want);
    assert_int_equal(vj_file_commit(f), 0);
    expect_bytes(f, want, sizeof want);
    assert_true(count_fragments(x) < FRAGMENTS);
    vj_file_unref(f);
    expect_fsck(x, NULL);
}

static void cutting_drops_them(void **state)
{
    Fixture *x = *state;
    VjFile *f;

    assert_int_equal(vj_file_open(vj_volume_files(x->v), x->ino, &f), 0);
    assert_int_equal(vj_file_truncate(f, FRAGMENT_BYTES + 10), 0);
    assert_int_equal(vj_file_sync(f), 0);
    expect_bytes(f, x->bytes, FRAGMENT_BYTES + 10); /* small enough to be inline now */
    assert_int_equal(count_fragments(x), 0);
    vj_file_unref(f);
    expect_fsck(x, NULL);
}

static int orphan_body(VjTxn *txn, void *opaque)
{
    Fixture *x = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, x->ino, &inode);

    inode.nlink = 0;
    if (r == 0) {
        r = vj_inode_put(txn, &inode);
    }
    return r < 0 ? r : vj_orphan_put(txn, x->ino);
}

static void an_orphan_drops_them(void **state)
{
    Fixture *x = *state;

    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, orphan_body, x), 0);
    vj_volume_reap(x->v, x->ino);
    vj_orphan_purge_drain(x->v->purge);
    assert_int_equal(count_fragments(x), 0);
    expect_fsck(x, NULL);
}

/* The fragments of earlier mounts are counted before any of them is dropped. */
static void what_an_orphan_drops_is_counted(void **state)
{
    Fixture *x = *state;
    uint32_t all;

    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, orphan_body, x), 0);
        close_volume(x);
        open_volume(x, false);
        vj_orphan_purge_drain(x->v->purge);
        (void)vj_file_table_fragments(vj_volume_files(x->v), x->ino, &all);
        assert_int_equal(all, 0);
        assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, plant_body, x), 0);
    }
}

static void a_copy_takes_the_bytes(void **state)
{
    Fixture *x = *state;
    uint64_t first = x->ino, copied;
    VjFile *from, *to;

    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, plant_body, x), 0);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), first, &from), 0);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), x->ino, &to), 0);
    assert_int_equal(vj_file_truncate(to, 0), 0);
    assert_int_equal(vj_file_copy(from, 0, to, 0, sizeof x->bytes, &copied), 0);
    assert_int_equal(copied, sizeof x->bytes);
    expect_bytes(to, x->bytes, sizeof x->bytes);
    assert_int_equal(vj_file_sync(to), 0);
    expect_bytes(to, x->bytes, sizeof x->bytes);
    vj_file_unref(from);
    vj_file_unref(to);
    expect_fsck(x, NULL);
}

static int damage_body(VjTxn *txn, void *opaque)
{
    uint8_t last[12], copy[8192];
    VjSlice key, value;
    int r = vj_txn_next(txn, VJ_SPACE_FRAGMENT, vj_slice(NULL, 0), &key, &value);

    (void)opaque;
    if (r == 0) {
        memcpy(last, key.data, sizeof last);
        memcpy(copy, value.data, value.len);
        copy[value.len / 2] ^= 1;
        r = vj_txn_put(txn, VJ_SPACE_FRAGMENT, vj_slice(last, sizeof last),
                       vj_slice(copy, value.len));
    }
    return r;
}

static void damage_is_found_and_the_rest_is_read(void **state)
{
    Fixture *x = *state;
    uint8_t got[FRAGMENT_BYTES];
    size_t read_len;
    VjFile *f;

    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, damage_body, NULL), 0);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), x->ino, &f), 0);
    assert_int_equal(vj_file_read(f, 0, got, sizeof got, &read_len), -EBADMSG);
    assert_int_equal(vj_file_read(f, FRAGMENT_BYTES, got, sizeof got, &read_len), 0);
    assert_memory_equal(got, x->bytes + FRAGMENT_BYTES, sizeof got);
    vj_file_unref(f);
    expect_fsck(x, "names fragment");
}

/* A write beside it, over a part of it, into its middle: all become durable, what is left
 * of it still cannot be read, and it goes with its last entry. */
static void a_damaged_one_keeps_no_change_back(void **state)
{
    static const uint64_t at[] = {FRAGMENT_BYTES + 5, FRAGMENT_BYTES - 10, 1000};
    Fixture *x = *state;
    uint8_t got[20];
    size_t read_len;
    VjFile *f;

    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, damage_body, NULL), 0);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), x->ino, &f), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(at); i++) {
        assert_int_equal(
            vj_file_write(f, at[i], "0123456789abcdefghij", sizeof got, false, NULL), 0);
        assert_int_equal(vj_file_sync(f), 0);
        assert_int_equal(vj_file_read(f, at[i], got, sizeof got, &read_len), 0);
        assert_memory_equal(got, "0123456789abcdefghij", sizeof got);
        assert_int_equal(vj_file_read(f, 0, got, sizeof got, &read_len), -EBADMSG);
        assert_int_equal(vj_file_read(f, at[i] - 30, got, sizeof got, &read_len),
                         -EBADMSG);
    }
    vj_file_unref(f);
    close_volume(x);
    open_volume(x, false);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), x->ino, &f), 0);
    assert_int_equal(vj_file_read(f, 1000, got, sizeof got, &read_len), 0);
    assert_int_equal(vj_file_read(f, 1500, got, sizeof got, &read_len), -EBADMSG);
    assert_int_equal(vj_file_truncate(f, 0), 0);
    assert_int_equal(vj_file_sync(f), 0);
    assert_int_equal(count_fragments(x), 0);
    vj_file_unref(f);
}

#define FRAGMENT_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    FRAGMENT_TEST(read_and_check),
    FRAGMENT_TEST(an_edit_makes_objects_of_them),
    FRAGMENT_TEST(cutting_drops_them),
    FRAGMENT_TEST(an_orphan_drops_them),
    FRAGMENT_TEST(what_an_orphan_drops_is_counted),
    FRAGMENT_TEST(a_copy_takes_the_bytes),
    FRAGMENT_TEST(a_damaged_one_keeps_no_change_back),
    FRAGMENT_TEST(damage_is_found_and_the_rest_is_read),
};

VJ_TEST_MAIN(tests)
