/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-check.c - vj_fsck_contents finds each violation, and nothing in a sound volume
 *
 * Each plant is one wrong key in a volume that was sound; the check opens it afterwards
 * and has to say the right line; then the sound metadata is put back.  Where one damage
 * must not be told as many, the number of problems is asserted too.
 */
#include "../../lib/test.h"

#include "../../lib/plant.h"

#include "file/inode-format.h"
#include "fsck/fsck.h"
#include "map/map-private.h"
#include "object/object-format.h"
#include "volume/volume-private.h"

#include <dirent.h>
#include <sys/stat.h>

#define NODE_ITEMS 8u
#define BIG_BYTES ((size_t)60 << 10)

typedef struct Fixture {
    char *dir;
    VjVolume *v;
    uint64_t big, small, hole, link; /* inode numbers */
    GString *said;
    VjCheckReport report;
} Fixture;

static void open_as(Fixture *x, const VjVolumeOpen *how)
{
    g_autoptr(GError) error = NULL;

    if (!vj_volume_open(how, &x->v, &error)) {
        fail_msg("%s", error->message);
    }
}

static void open_volume(Fixture *x, bool check)
{
    VjVolumeOpen how = {.source = x->dir, .check = check};

    open_as(x, &how);
}

/* The metadata will be put back, so that what is dead now has to stay in the store. */
static void open_keeping_objects(Fixture *x)
{
    VjVolumeOpen how = {.source = x->dir, .wrap_store = "fault:kinds=remove,every=1"};

    open_as(x, &how);
}

static void close_volume(Fixture *x)
{
    assert_int_equal(vj_volume_close(x->v), 0);
    x->v = NULL;
}

typedef struct Create {
    uint64_t *ino;
    bool symlink;
} Create;

static int create_body(VjTxn *txn, void *opaque)
{
    const Create *c = opaque;
    int r = vj_ino_take(txn, c->ino);
    VjInode inode = {.ino = *c->ino,
                     .generation = 1,
                     .mode = c->symlink ? S_IFLNK | 0777 : S_IFREG | 0644,
                     .nlink = 1};

    if (r == 0 && c->symlink) {
        r = vj_symlink_put(txn, &inode, "where/it/leads", 14);
    }
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

static VjFile *create(Fixture *x, uint64_t *ino, bool symlink)
{
    Create c = {.ino = ino, .symlink = symlink};
    VjFile *f;

    assert_int_equal(vj_meta_run(vj_volume_meta(x->v), VJ_RUN_DEFAULT, create_body, &c),
                     0);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), *ino, &f), 0);
    return f;
}

static void write_all(VjFile *f, size_t len, uint64_t seed)
{
    g_autofree uint8_t *bytes = g_malloc(len);
    VjRng rng;

    vj_rng_init(&rng, seed);
    vj_rng_bytes(&rng, bytes, len);
    assert_int_equal(vj_file_write(f, 0, bytes, len, false, NULL), 0);
}

static int setup(void **state)
{
    g_autoptr(GError) error = NULL;
    Fixture *x = g_new0(Fixture, 1);
    VjVolumeMake how = {.options = "objects=1K"};
    VjFile *f;

    vj_map_set_most_for_test(NODE_ITEMS);
    x->dir = vj_test_make_dir();
    x->said = g_string_new(NULL);
    how.source = x->dir;
    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    open_volume(x, false);
    f = create(x, &x->big, false);
    write_all(f, BIG_BYTES, 1);
    vj_file_unref(f);
    f = create(x, &x->small, false);
    write_all(f, 100, 2);
    vj_file_unref(f);
    f = create(x, &x->hole, false);
    assert_int_equal(vj_file_truncate(f, 1 << 20), 0);
    vj_file_unref(f);
    vj_file_unref(create(x, &x->link, true));
    assert_int_equal(vj_volume_sync(x->v), 0);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    Fixture *x = *state;

    if (x->v != NULL) {
        close_volume(x);
    }
    vj_test_remove_dir(x->dir);
    g_string_free(x->said, TRUE);
    g_free(x);
    vj_map_set_most_for_test(0);
    return 0;
}

static void say(void *opaque, const char *text)
{
    Fixture *x = opaque;

    g_string_append_printf(x->said, "%s\n", text);
}

static void check_as(Fixture *x, const char *wrap_meta, bool read_data)
{
    VjVolumeOpen how = {.source = x->dir, .check = true, .wrap_meta = wrap_meta};

    open_as(x, &how);
    g_string_truncate(x->said, 0);
    assert_int_equal(vj_fsck_contents(x->v, read_data, say, x, &x->report), 0);
    close_volume(x);
}

/* Closes the volume, opens it for a check and checks; views that begin anew find the
 * same, once. */
static void check(Fixture *x, bool read_data)
{
    g_autofree char *said = NULL;
    VjCheckReport report;

    if (x->v != NULL) {
        close_volume(x);
    }
    check_as(x, "fault:conflicts=400,seed=11", read_data);
    said = g_strdup(x->said->str);
    report = x->report;
    check_as(x, NULL, read_data);
    assert_string_equal(said, x->said->str);
    assert_memory_equal(&report, &x->report, sizeof report);
}

static void expect_said(Fixture *x, uint64_t ino, const char *what)
{
    g_autofree char *line = g_strdup_printf("inode %" G_GUINT64_FORMAT ": %s", ino, what);

    if (strstr(x->said->str, ino != UINT64_MAX ? line : what) == NULL) {
        fail_msg("\"%s\" is not in:\n%s", ino != UINT64_MAX ? line : what, x->said->str);
    }
    assert_true(x->report.problems > 0);
}

/* ---- planting -------------------------------------------------------------------- */

typedef int Plant(VjTxn *txn, const Fixture *x);

typedef struct Planting {
    Plant *plant;
    const Fixture *x;
} Planting;

static int plant_body(VjTxn *txn, void *opaque)
{
    const Planting *p = opaque;

    return p->plant(txn, p->x);
}

static void plant_and_check(Fixture *x, Plant *plant)
{
    Planting p = {.plant = plant, .x = x};

    vj_plant(x->dir, plant_body, &p);
    check(x, false);
}

static int flip_inode(VjTxn *txn, uint64_t ino)
{
    uint8_t key[8];

    return vj_plant_flip(txn, VJ_SPACE_INODE, vj_ino_key(ino, key), 70);
}

/* The first node of the big file at @level. */
static int find_node(VjTxn *txn, const Fixture *x, uint8_t level, VjMapImage *out)
{
    for (uint32_t node = 1; node < 1000; node++) {
        uint8_t key[VJ_MAP_KEY_BYTES];
        VjSlice value;

        vj_map_key_encode(x->big, node, key);
        if (vj_txn_get(txn, VJ_SPACE_NODE, vj_slice(key, sizeof key), &value) == 0 &&
            vj_map_image_decode(value, x->big, node, out) == 0 && out->level == level) {
            return 0;
        }
    }
    return -ENOENT;
}

static int put_node(VjTxn *txn, const VjMapImage *image)
{
    uint8_t key[VJ_MAP_KEY_BYTES], bytes[VJ_META_VALUE_CHEAP];
    size_t len = vj_map_image_encode(image, bytes);

    vj_map_key_encode(image->ino, image->node, key);
    return vj_txn_put(txn, VJ_SPACE_NODE, vj_slice(key, sizeof key),
                      vj_slice(bytes, len));
}

static int change_first_entry(VjTxn *txn, const Fixture *x, void (*change)(VjEntry *e))
{
    VjMapImage image;
    int r = find_node(txn, x, 0, &image);

    if (r == 0) {
        change(&image.entries[0]);
        r = put_node(txn, &image);
    }
    return r;
}

static int change_inode(VjTxn *txn, uint64_t ino, void (*change)(VjInode *inode))
{
    VjInode inode;
    int r = vj_inode_get(txn, ino, &inode);

    if (r == 0) {
        change(&inode);
        r = vj_inode_put(txn, &inode);
    }
    return r;
}

/* The object of the big file's first leaf's first entry. */
static int first_object(VjTxn *txn, const Fixture *x, VjObject *out)
{
    VjMapImage image;
    int r = find_node(txn, x, 0, &image);

    return r < 0 ? r : vj_object_get(txn, image.entries[0].id, out);
}

static int plant_damaged_inode(VjTxn *txn, const Fixture *x)
{
    return flip_inode(txn, x->big);
}

static int plant_missing_inode(VjTxn *txn, const Fixture *x)
{
    return vj_inode_del(txn, x->big);
}

static int plant_missing_inline_owner(VjTxn *txn, const Fixture *x)
{
    return vj_inode_del(txn, x->small);
}

static int plant_future_inode(VjTxn *txn, const Fixture *x)
{
    VjInode inode = {.ino = x->link + 7, .mode = S_IFREG | 0600, .nlink = 1};

    return vj_inode_put(txn, &inode);
}

static void set_no_type(VjInode *inode)
{
    inode->mode = 0644;
}

static int plant_no_type(VjTxn *txn, const Fixture *x)
{
    return change_inode(txn, x->hole, set_no_type);
}

static void set_directory(VjInode *inode)
{
    inode->mode = S_IFDIR | 0755;
    inode->parent = VJ_INO_ROOT;
    inode->next_cookie = 3;
}

static int plant_directory_with_content(VjTxn *txn, const Fixture *x)
{
    return change_inode(txn, x->small, set_directory);
}

static int plant_damaged_inline(VjTxn *txn, const Fixture *x)
{
    uint8_t key[8];

    return vj_plant_flip(txn, VJ_SPACE_INLINE, vj_ino_key(x->small, key), 50);
}

static int plant_missing_inline(VjTxn *txn, const Fixture *x)
{
    return vj_inline_del(txn, x->link);
}

static int plant_second_content(VjTxn *txn, const Fixture *x)
{
    VjInode other = {.ino = x->big};
    VjInlineRecord record;

    vj_inline_make(x->big, NULL, "abc", 3, &record);
    return vj_inline_put(txn, &other, &record);
}

static void set_long_inline(VjInode *inode)
{
    inode->size = inode->stored_bytes = VJ_FILE_INLINE_MAX + 1;
}

static int plant_long_inline(VjTxn *txn, const Fixture *x)
{
    return change_inode(txn, x->small, set_long_inline);
}

static void add_stored(VjInode *inode)
{
    inode->stored_bytes++;
    inode->root.stored_bytes++;
}

static int plant_inline_stored(VjTxn *txn, const Fixture *x)
{
    return change_inode(txn, x->small, add_stored);
}

static int plant_empty_stored(VjTxn *txn, const Fixture *x)
{
    return change_inode(txn, x->hole, add_stored);
}

static int plant_map_stored(VjTxn *txn, const Fixture *x)
{
    return change_inode(txn, x->big, add_stored);
}

static void add_byte(VjInode *inode)
{
    inode->size++;
    inode->root.bytes++;
}

static int plant_map_size(VjTxn *txn, const Fixture *x)
{
    return change_inode(txn, x->big, add_byte);
}

static int plant_missing_leaf(VjTxn *txn, const Fixture *x)
{
    uint8_t key[VJ_MAP_KEY_BYTES];
    VjMapImage image;
    int r = find_node(txn, x, 0, &image);

    vj_map_key_encode(x->big, image.node, key);
    return r < 0 ? r : vj_txn_del(txn, VJ_SPACE_NODE, vj_slice(key, sizeof key));
}

static int plant_damaged_inner(VjTxn *txn, const Fixture *x)
{
    uint8_t key[VJ_MAP_KEY_BYTES];
    VjMapImage image;
    int r = find_node(txn, x, 1, &image);

    vj_map_key_encode(x->big, image.node, key);
    return r < 0 ? r : vj_plant_flip(txn, VJ_SPACE_NODE, vj_slice(key, sizeof key), 30);
}

static int plant_loose_leaf(VjTxn *txn, const Fixture *x)
{
    VjMapImage image;
    int r = find_node(txn, x, 0, &image);

    image.node = 900;
    return r < 0 ? r : put_node(txn, &image);
}

static void move_start(VjEntry *e)
{
    e->start++;
}

static int plant_entry_outside(VjTxn *txn, const Fixture *x)
{
    return change_first_entry(txn, x, move_start);
}

static void add_share(VjEntry *e)
{
    e->stored_bytes++;
}

static int plant_wrong_share(VjTxn *txn, const Fixture *x)
{
    return change_first_entry(txn, x, add_share);
}

static void make_fragment(VjEntry *e)
{
    e->kind = VJ_ENTRY_FRAGMENT;
}

static int plant_fragment_entry(VjTxn *txn, const Fixture *x)
{
    return change_first_entry(txn, x, make_fragment);
}

static int plant_fragment(VjTxn *txn, const Fixture *x)
{
    uint8_t key[8];

    return vj_txn_put(txn, VJ_SPACE_FRAGMENT, vj_ino_key(x->big, key), vj_slice("f", 1));
}

static int plant_reference(VjTxn *txn, const Fixture *x)
{
    VjObject object;
    int r = first_object(txn, x, &object);

    object.refs++;
    return r < 0 ? r : vj_object_record_put(txn, VJ_SPACE_OBJECT, &object);
}

static int plant_missing_object(VjTxn *txn, const Fixture *x)
{
    VjObject object;
    int r = first_object(txn, x, &object);

    return r < 0 ? r : vj_object_record_del(txn, VJ_SPACE_OBJECT, object.id);
}

/* Maps name it all the same. */
static int plant_object_being_removed(VjTxn *txn, const Fixture *x)
{
    VjObject object;
    int r = first_object(txn, x, &object);

    if (r == 0) {
        r = vj_object_record_del(txn, VJ_SPACE_OBJECT, object.id);
    }
    object.refs = 0;
    object.flags |= VJ_OBJECT_REMOVING;
    return r < 0 ? r : vj_object_record_put(txn, VJ_SPACE_DEAD, &object);
}

static int plant_damaged_epoch(VjTxn *txn, const Fixture *x)
{
    uint8_t epoch[VJ_EPOCH_BYTES];

    (void)x;
    vj_epoch_encode(7, epoch);
    epoch[VJ_EPOCH_BYTES / 2] ^= 1;
    epoch[0] ^= 1;
    return vj_txn_put(txn, VJ_SPACE_SYSTEM, vj_slice(VJ_EPOCH_KEY, strlen(VJ_EPOCH_KEY)),
                      vj_slice(epoch, sizeof epoch));
}

static int plant_missing_index(VjTxn *txn, const Fixture *x)
{
    VjIndexKey key;
    VjObject object;
    int r = first_object(txn, x, &object);

    vj_index_key_of(&object, &key);
    return r < 0 ? r : vj_index_del(txn, &key);
}

static int plant_orphan_with_links(VjTxn *txn, const Fixture *x)
{
    return vj_orphan_put(txn, x->big);
}

static int plant_orphan_of_nothing(VjTxn *txn, const Fixture *x)
{
    return vj_orphan_put(txn, x->link + 1);
}

static int plant_damaged_orphan(VjTxn *txn, const Fixture *x)
{
    uint8_t key[VJ_MAP_KEY_BYTES];
    VjMapRoot root = {.node = 901, .height = 1, .bytes = 5};
    int r = vj_orphan_put_tree(txn, x->big, &root);

    vj_map_key_encode(x->big, 901, key);
    return r < 0 ? r : vj_plant_flip(txn, VJ_SPACE_ORPHAN, vj_slice(key, sizeof key), 20);
}

static int plant_shared_subtree(VjTxn *txn, const Fixture *x)
{
    VjMapImage image;
    VjMapRoot root = {.height = 1};
    int r = find_node(txn, x, 0, &image);

    root.node = image.node;
    root.bytes = image.sums.bytes;
    root.stored_bytes = image.sums.stored_bytes;
    return r < 0 ? r : vj_orphan_put_tree(txn, x->big, &root);
}

static int plant_missing_root(VjTxn *txn, const Fixture *x)
{
    (void)x;
    return vj_inode_del(txn, VJ_INO_ROOT);
}

static int plant_damaged_counter(VjTxn *txn, const Fixture *x)
{
    (void)x;
    return vj_txn_put(txn, VJ_SPACE_SYSTEM, vj_slice("next-ino", 8), vj_slice("xyz", 3));
}

static int plant_damaged_session(VjTxn *txn, const Fixture *x)
{
    uint8_t key[8];

    (void)x;
    vj_be64_set(key, 7);
    return vj_txn_put(txn, VJ_SPACE_SESSION, vj_slice(key, sizeof key),
                      vj_slice("xyz", 3));
}

static int plant_damaged_claim(VjTxn *txn, const Fixture *x)
{
    (void)x;
    return vj_txn_put(txn, VJ_SPACE_CLAIM, vj_slice("claim", 5), vj_slice("xyz", 3));
}

typedef enum Who { BIG, SMALL, HOLE, LINK, ROOT, NOBODY, OTHER } Who;

typedef struct Case {
    const char *name;
    Plant *plant;
    Who who; /* the inode that the line names */
    const char *line;
    unsigned problems; /* exactly; 0: one or more */
} Case;

static const Case cases[] = {
    {"damaged inode", plant_damaged_inode, BIG, "its record is damaged", 1},
    {"missing inode", plant_missing_inode, BIG, "map nodes without an inode", 0},
    {"inline without inode", plant_missing_inline_owner, SMALL,
     "inline content without an inode", 1},
    {"inode of the future", plant_future_inode, OTHER, "its number was never given out",
     1},
    {"no type", plant_no_type, HOLE, "mode 644 is no type of file", 1},
    {"directory with content", plant_directory_with_content, SMALL,
     "it has content and is no regular file", 1},
    {"damaged inline", plant_damaged_inline, SMALL,
     "its inline content is missing or damaged", 1},
    {"missing target", plant_missing_inline, LINK, "its inline content is missing", 1},
    {"second content", plant_second_content, BIG, "inline content beside other content",
     1},
    {"long inline", plant_long_inline, SMALL, "inline content of 4097 bytes", 1},
    {"inline stored", plant_inline_stored, SMALL, "101 stored bytes for 100 inline", 1},
    {"empty stored", plant_empty_stored, HOLE, "1 stored bytes without content", 1},
    {"map stored", plant_map_stored, BIG, "map node", 1},
    {"map size", plant_map_size, BIG, "map node", 1},
    {"missing leaf", plant_missing_leaf, BIG, "map node", 0},
    {"damaged inner node", plant_damaged_inner, BIG, "map node", 1},
    {"loose leaf", plant_loose_leaf, BIG, "map node 900: nothing names it", 1},
    {"entry outside", plant_entry_outside, BIG, "the entry at offset", 1},
    {"wrong share", plant_wrong_share, BIG, "the entry at offset", 0},
    {"fragment entry", plant_fragment_entry, BIG, "the entry at offset", 0},
    {"fragment", plant_fragment, BIG, "a fragment's key has 8 bytes", 1},
    {"reference", plant_reference, BIG, "its bytes", 1},
    {"missing object", plant_missing_object, BIG, "its bytes", 0},
    {"object being removed", plant_object_being_removed, BIG, "its bytes", 0},
    {"damaged epoch", plant_damaged_epoch, NOBODY, "the counter of epochs is damaged", 1},
    {"missing index", plant_missing_index, NOBODY, "it is not in the index", 1},
    {"orphan with links", plant_orphan_with_links, BIG,
     "an orphan although it has 1 links", 1},
    {"orphan of nothing", plant_orphan_of_nothing, OTHER, "", 1},
    {"damaged orphan", plant_damaged_orphan, BIG, "its orphan record 901 is damaged", 1},
    {"shared subtree", plant_shared_subtree, BIG, "map node", 1},
    {"missing root", plant_missing_root, ROOT, "there is no root directory", 1},
    {"damaged counter", plant_damaged_counter, NOBODY,
     "the counter of inode numbers is damaged", 1},
    {"damaged session", plant_damaged_session, NOBODY,
     "the record of a session is damaged", 1},
    {"damaged claim", plant_damaged_claim, NOBODY, "what a session had alone is damaged",
     1},
};

static uint64_t ino_of(const Fixture *x, const Case *c)
{
    switch (c->who) {
    case BIG:
        return x->big;
    case SMALL:
        return x->small;
    case HOLE:
        return x->hole;
    case LINK:
        return x->link;
    case ROOT:
        return VJ_INO_ROOT;
    case OTHER:
        return c->plant == plant_future_inode ? x->link + 7 : x->link + 1;
    case NOBODY:
        break;
    }
    return UINT64_MAX;
}

static void each_violation_is_found(void **state)
{
    Fixture *x = *state;
    g_autoptr(GHashTable) files = vj_plant_files_new();

    close_volume(x);
    vj_plant_keep(x->dir, files, false);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        plant_and_check(x, cases[i].plant);
        expect_said(x, ino_of(x, &cases[i]), cases[i].line);
        if (cases[i].problems != 0 && x->report.problems != cases[i].problems) {
            fail_msg("%s: %" G_GUINT64_FORMAT " problems:\n%s", cases[i].name,
                     x->report.problems, x->said->str);
        }
        vj_plant_keep(x->dir, files, true);
    }
    check(x, true);
    assert_int_equal(x->report.problems, 0);
}

/* ---- repair ---------------------------------------------------------------------- */

static void say_repaired(void *opaque, const char *text)
{
    Fixture *x = opaque;

    g_string_append_printf(x->said, "repaired: %s\n", text);
}

/* The steps that belong to fs are left out: an inode whose record is lost stays lost. */
static void repair(Fixture *x, const char *name)
{
    VjVolumeOpen how = {.source = x->dir,
                        .check = true,
                        .repair = true,
                        .wrap_meta = "fault:conflicts=100,seed=12"};

    open_as(x, &how);
    g_string_truncate(x->said, 0);
    for (unsigned i = 0;; i++) {
        x->report = (VjCheckReport){0};
        assert_int_equal(vj_fsck_contents(x->v, i == 0, say, x, &x->report), 0);
        if (x->report.problems == 0) {
            break;
        }
        if (i == 3) {
            fail_msg("%s: %" G_GUINT64_FORMAT " problems are left:\n%s", name,
                     x->report.problems, x->said->str);
        }
        g_autoptr(VjRepair) r = vj_repair_new(x->v, say_repaired, x);

        assert_int_equal(vj_repair_records(r), 0);
        assert_int_equal(vj_repair_contents(r), 0);
        assert_int_equal(vj_repair_objects(r), 0);
    }
    close_volume(x);
}

/* Each range of the big file is as it was written or cannot be read. */
static uint64_t readable_bytes(Fixture *x, uint64_t ino)
{
    g_autofree uint8_t *bytes = g_malloc(BIG_BYTES);
    uint64_t readable = 0;
    g_autoptr(VjFile) f = NULL;
    VjRng rng;

    vj_rng_init(&rng, 1);
    vj_rng_bytes(&rng, bytes, BIG_BYTES);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), ino, &f), 0);
    for (size_t at = 0; at < BIG_BYTES; at += 64) {
        uint8_t got[64];
        size_t len;
        int r = vj_file_read(f, at, got, sizeof got, &len);

        if (r == 0 && len == sizeof got) {
            assert_memory_equal(got, bytes + at, sizeof got);
            readable += len;
        } else {
            assert_true(r == 0 || vj_is_damage(r));
        }
    }
    return readable;
}

/* Where a case leaves the big file whole. */
static bool spares_big(Plant *plant)
{
    return plant != plant_damaged_inode && plant != plant_missing_leaf &&
           plant != plant_damaged_inner && plant != plant_entry_outside &&
           plant != plant_fragment_entry && plant != plant_map_size &&
           plant != plant_missing_object && plant != plant_shared_subtree;
}

static void repair_each(Fixture *x)
{
    g_autoptr(GHashTable) files = vj_plant_files_new();

    close_volume(x);
    vj_plant_keep(x->dir, files, false);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        Planting p = {.plant = cases[i].plant, .x = x};
        uint64_t readable;

        if (cases[i].plant == plant_missing_root ||
            cases[i].plant == plant_orphan_with_links ||
            (vj_plant_smears && cases[i].plant == plant_damaged_inode)) {
            continue; /* fs puts these right */
        }
        vj_plant(x->dir, plant_body, &p);
        repair(x, cases[i].name);
        if (strstr(x->said->str, "repaired: ") == NULL) {
            fail_msg("%s: nothing was repaired:\n%s", cases[i].name, x->said->str);
        }
        if (g_getenv("VARJFS_TEST_TELL") != NULL) {
            print_message("---- %s\n%s", cases[i].name, x->said->str);
        }
        open_keeping_objects(x);
        /* An entry of the wrong length moves what is behind it. */
        readable = cases[i].plant != plant_entry_outside ? readable_bytes(x, x->big) : 0;
        if (spares_big(cases[i].plant) && readable != BIG_BYTES) {
            fail_msg("%s: %" G_GUINT64_FORMAT " bytes can be read:\n%s", cases[i].name,
                     readable, x->said->str);
        }
        close_volume(x);
        vj_plant_keep(x->dir, files, true);
    }
}

static void each_violation_is_repaired(void **state)
{
    repair_each(*state);
}

static void smears_are_repaired(void **state)
{
    vj_plant_smears = true;
    repair_each(*state);
    vj_plant_smears = false;
}

/* ---- without planting ------------------------------------------------------------ */

static void sound_volume_is_clean(void **state)
{
    Fixture *x = *state;

    check(x, true);
    assert_string_equal(x->said->str, "");
    assert_int_equal(x->report.problems, 0);
    assert_int_equal(x->report.leaks, 0);
    assert_int_equal(x->report.pending, 0);
    assert_int_equal(x->report.inodes, 5);
    assert_true(x->report.map_entries >= 40);
    assert_true(x->report.map_nodes > x->report.map_entries / NODE_ITEMS);
    assert_int_equal(x->report.objects, x->report.map_entries);
    assert_int_equal(x->report.stored_objects, x->report.objects);
    assert_int_equal(x->report.index_entries, x->report.objects);
    assert_int_equal(x->report.bytes_verified, BIG_BYTES + 100 + 14);
}

/* A subtree that waits to be dropped holds its references and its nodes. */
static int detach_body(VjTxn *txn, void *opaque)
{
    const Fixture *x = opaque;
    g_autoptr(GArray) removed = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    g_autoptr(GArray) detached = g_array_new(FALSE, FALSE, sizeof(VjMapDetached));
    VjInode inode;
    int r = vj_inode_get(txn, x->big, &inode);

    if (r == 0) {
        r = vj_map_replace(txn, x->big, &inode.root, 0, inode.root.bytes, NULL, 0,
                           removed, detached);
    }
    for (guint i = 0; r == 0 && i < detached->len; i++) {
        r = vj_orphan_put_tree(txn, x->big,
                               &g_array_index(detached, VjMapDetached, i).root);
    }
    for (guint i = 0; r == 0 && i < removed->len; i++) {
        VjObject object;

        r = vj_object_unref(txn, g_array_index(removed, VjEntry, i).id, &object);
    }
    inode.size = 0;
    inode.stored_bytes = 0;
    inode.content = VJ_CONTENT_EMPTY;
    inode.map_version++;
    if (r == 0) {
        r = vj_inode_put(txn, &inode);
    }
    return r;
}

static void pending_is_no_problem(void **state)
{
    Fixture *x = *state;

    assert_int_equal(vj_meta_run(vj_volume_meta(x->v), VJ_RUN_DEFAULT, detach_body, x),
                     0);
    check(x, true);
    assert_string_equal(x->said->str, "");
    assert_int_equal(x->report.problems, 0);
    assert_true(x->report.pending > 0);
    assert_true(x->report.map_entries >= 40);

    /* What a mount resumes is done after it. */
    open_volume(x, false);
    vj_orphan_purge_drain(x->v->purge);
    assert_int_equal(vj_objects_reap_now(x->v->objects), 0);
    check(x, true);
    assert_string_equal(x->said->str, "");
    assert_int_equal(x->report.pending, 0);
    assert_int_equal(x->report.objects, 0);
    assert_int_equal(x->report.stored_objects, 0);
    assert_int_equal(x->report.map_nodes, 0);
}

static bool remember_one(void *opaque, const VjPut *object, int64_t mtime_us)
{
    (void)mtime_us;
    *(VjPut *)opaque = *object;
    return false;
}

static void lost_and_leaked_bytes(void **state)
{
    Fixture *x = *state;
    struct iovec iov = {.iov_base = (char[]){"nobody's"}, .iov_len = 8};
    VjPut one, leaked;

    assert_int_equal(
        vj_store_each(vj_volume_store(x->v), 1, UINT64_MAX, remember_one, &one), 0);
    assert_int_equal(vj_store_remove(vj_volume_store(x->v), one.id, one.loc), 0);
    assert_int_equal(vj_store_put(vj_volume_store(x->v), 60000, &iov, 1, &leaked), 0);
    check(x, false);
    expect_said(x, x->big, "its bytes ");
    expect_said(x, UINT64_MAX, "its bytes are not in the store");
    expect_said(x, UINT64_MAX, "store: object 60000: 8 bytes that no record names");
    assert_int_equal(x->report.problems, 1);
    assert_int_equal(x->report.leaks, 1);
}

static char *damaged_path;

static int damage_file(const char *path, const struct stat *st, int type,
                       struct FTW *where)
{
    uint8_t byte;
    VJ_AUTO_FD fd = -1;

    (void)where;
    if (type != FTW_F || st->st_size < 100 || damaged_path != NULL) {
        return 0;
    }
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, 10), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 10), 1);
    damaged_path = g_strdup(path);
    return 1;
}

static void damaged_bytes(void **state)
{
    Fixture *x = *state;
    g_autofree char *objects = g_build_filename(x->dir, "objects", NULL);

    close_volume(x);
    assert_int_equal(nftw(objects, damage_file, 16, FTW_PHYS), 1);
    check(x, false);
    assert_int_equal(x->report.problems, 0); /* nobody looked */
    check(x, true);
    expect_said(x, UINT64_MAX, "they are damaged");
    expect_said(x, x->big, "its bytes ");
    assert_int_equal(x->report.problems, 1);
    g_clear_pointer(&damaged_path, g_free);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(sound_volume_is_clean, setup, teardown),
    cmocka_unit_test_setup_teardown(each_violation_is_found, setup, teardown),
    cmocka_unit_test_setup_teardown(each_violation_is_repaired, setup, teardown),
    cmocka_unit_test_setup_teardown(smears_are_repaired, setup, teardown),
    cmocka_unit_test_setup_teardown(pending_is_no_problem, setup, teardown),
    cmocka_unit_test_setup_teardown(lost_and_leaked_bytes, setup, teardown),
    cmocka_unit_test_setup_teardown(damaged_bytes, setup, teardown),
};

VJ_TEST_MAIN(tests)
