/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-hostile-records.c - records that somebody wrote with care: right checksums, wrong
 * values
 *
 * A round changes a few bytes of one record of a small volume and makes its checksum
 * right again.  Then the volume is mounted, read, changed, unmounted and checked.
 * Nothing has to come out right; but nothing may crash, hang, read outside of a buffer
 * (the sanitizers tell) or take memory without bounds.
 *
 * VARJFS_HOSTILE_ROUNDS and VARJFS_HOSTILE_SEED choose a longer or another run.
 */
#include "../lib/right-sums.h"
#include "../lib/test.h"

#include "fs/fs-format.h"
#include "fs/fs.h"
#include "fsck/fsck.h"
#include "volume/volume-private.h"

#include <sys/stat.h>

#define ROUNDS_DEFAULT 30u
#define FILE_BYTES ((size_t)30000)
/* A round takes a few hundredths of a second; this long is a hang. */
#define HANG_SECONDS 60u

static const VjCaller root_caller = {.umask = 022};

typedef struct Round {
    uint64_t seed;
    char *dir;
    VjVolume *v;
    VjFs *fs;
    VjRng rng;
} Round;

/* ---- a small volume with each kind of record --------------------------------------- */

static VjHandle *make_file(Round *x, uint64_t dir, const char *name, size_t len)
{
    g_autofree uint8_t *bytes = g_malloc(len + 1);
    VjHandle *h;
    VjAttr attr;

    for (size_t i = 0; i < len; i++) {
        bytes[i] = (uint8_t)vj_rng_below(&x->rng, 256);
    }
    assert_int_equal(
        vj_fs_create(x->fs, &root_caller, dir, name, 0644, O_RDWR, &attr, &h), 0);
    assert_int_equal(vj_fs_write(h, 0, bytes, len, 0, NULL), 0);
    assert_int_equal(vj_fs_fsync(h), 0);
    return h;
}

static int plant_fragment(VjTxn *txn, void *opaque)
{
    const uint64_t *ino = opaque;
    g_autoptr(GArray) removed = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    g_autoptr(GArray) detached = g_array_new(FALSE, FALSE, sizeof(VjMapDetached));
    VjEntry entry = {.kind = VJ_ENTRY_FRAGMENT, .length = 100, .stored_bytes = 100};
    uint8_t bytes[100] = "fragment";
    VjInode inode;
    int r = vj_inode_get(txn, *ino, &inode);

    entry.id = inode.root.next_node++;
    if (r == 0) {
        r = vj_fragment_put(txn, *ino, (uint32_t)entry.id, NULL, bytes, sizeof bytes);
    }
    if (r == 0) {
        r = vj_map_replace(txn, *ino, &inode.root, 0, 0, &entry, 1, removed, detached);
    }
    inode.size = inode.root.bytes;
    inode.stored_bytes = inode.root.stored_bytes;
    inode.map_version++;
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

static int plant_orphan(VjTxn *txn, void *opaque)
{
    VjInode orphan = {.ino = 0, .generation = 1, .mode = S_IFREG | 0600};
    int r = vj_ino_take(txn, &orphan.ino);

    (void)opaque;
    if (r == 0) {
        r = vj_inode_put(txn, &orphan);
    }
    return r < 0 ? r : vj_orphan_put(txn, orphan.ino);
}

/* An id block as a crash leaves it, and an object that nobody refers to any more. */
static int plant_leftovers(VjTxn *txn, void *opaque)
{
    uint8_t key[8], id_block[VJ_ID_BLOCK_BYTES];
    VjObject object = {.id = 60000, .plain_bytes = 100, .stored_bytes = 132};
    int r;

    (void)opaque;
    vj_be64_set(key, 1);
    vj_id_block_encode(&(VjIdRange){.first_id = 1, .last_id = 65536, .owner = 1},
                       id_block);
    r = vj_txn_put(txn, VJ_SPACE_ID_BLOCK, vj_slice(key, sizeof key),
                   vj_slice(id_block, sizeof id_block));
    return r < 0 ? r : vj_object_record_put(txn, VJ_SPACE_DEAD, &object);
}

static void open_volume(Round *x)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = x->dir, .workers = 1};

    if (!vj_volume_open(&how, &x->v, &error)) {
        x->v = NULL;
        return;
    }
    x->fs = vj_fs_new(x->v);
}

static void close_volume(Round *x)
{
    vj_fs_free(x->fs);
    (void)!vj_volume_close(x->v);
    x->v = NULL;
}

/* Both access control lists of a directory; what is made in it inherits them. */
static void set_lists(Round *x, uint64_t ino)
{
    static const VjAcl acl = {.count = 5,
                              .entries = {{VJ_ACL_OWNER, 7, VJ_ACL_NO_ID},
                                          {VJ_ACL_USER, 6, 1000},
                                          {VJ_ACL_OWNING_GROUP, 5, VJ_ACL_NO_ID},
                                          {VJ_ACL_MASK, 7, VJ_ACL_NO_ID},
                                          {VJ_ACL_OTHER, 5, VJ_ACL_NO_ID}}};
    static const char *const names[] = {VJ_ACL_ACCESS, VJ_ACL_DEFAULT};
    uint8_t bytes[VJ_ACL_MAX_BYTES];
    size_t len = vj_acl_encode(&acl, bytes);

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        assert_int_equal(
            vj_fs_setxattr(x->fs, &root_caller, ino, names[i], bytes, len, 0), 0);
    }
}

static void make_volume(Round *x)
{
    g_autoptr(GError) error = NULL;
    VjVolumeMake make = {.options = "objects=1K,hash=sha256"};
    VjHandle *h;
    VjAttr attr;
    uint64_t ino;

    x->dir = vj_test_make_dir();
    make.source = x->dir;
    if (!vj_volume_make(&make, &error)) {
        fail_msg("%s", error->message);
    }
    open_volume(x);
    assert_int_equal(vj_fs_mkdir(x->fs, &root_caller, VJ_INO_ROOT, "d", 0755, &attr), 0);
    set_lists(x, attr.st.st_ino);
    vj_fs_release(x->fs, make_file(x, attr.st.st_ino, "file", FILE_BYTES));
    vj_fs_release(x->fs, make_file(x, VJ_INO_ROOT, "small", 100));
    assert_int_equal(
        vj_fs_symlink(x->fs, &root_caller, VJ_INO_ROOT, "link", "d/file", &attr), 0);
    h = make_file(x, VJ_INO_ROOT, "mixed", FILE_BYTES);
    ino = vj_fs_handle_ino(h);
    assert_int_equal(vj_fs_setxattr(x->fs, &root_caller, ino, "user.colour", "red", 3, 0),
                     0);
    assert_int_equal(vj_fs_fallocate(h, 0, FILE_BYTES, FILE_BYTES), 0);
    assert_int_equal(vj_fs_fsync(h), 0);
    vj_fs_release(x->fs, h);
    close_volume(x);
    open_volume(x);
    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, plant_fragment, &ino), 0);
    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, plant_orphan, NULL), 0);
    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, plant_leftovers, NULL), 0);
    close_volume(x);
}

/* ---- one record -------------------------------------------------------------------- */

static void mutate(Round *x, uint8_t *bytes, size_t len)
{
    static const uint8_t edges[] = {0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff};
    size_t changes = 1 + vj_rng_below(&x->rng, 3);

    while (changes-- > 0) {
        size_t at = vj_rng_below(&x->rng, len);
        size_t run = 1 + vj_rng_below(&x->rng, 8);

        switch (vj_rng_below(&x->rng, 3)) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << vj_rng_below(&x->rng, 8));
            break;
        case 1:
            bytes[at] = edges[vj_rng_below(&x->rng, sizeof edges)];
            break;
        default: /* a whole field */
            memset(bytes + at, edges[vj_rng_below(&x->rng, sizeof edges)],
                   MIN(run, len - at));
        }
    }
}

/* The @nth record of all spaces, changed. */
static int change_body(VjTxn *txn, void *opaque)
{
    Round *x = opaque;
    VjSpace space = VJ_SPACE_SYSTEM;
    unsigned count = 0;
    VjSlice key, value;
    uint8_t key_bytes[VJ_META_KEY_MAX];
    g_autofree uint8_t *bytes = NULL;
    size_t len;
    int r;

    do {
        space = (VjSpace)vj_rng_below(&x->rng, VJ_SPACE_COUNT);
        r = vj_txn_next(txn, space, vj_slice(NULL, 0), &key, &value);
    } while (r == -ENOENT);
    /* Some record of that space: each is the last one looked at with equal chance. */
    for (VjSlice at = key, found = value; r == 0;
         r = vj_txn_next(txn, space, at, &at, &found)) {
        count++;
        if (vj_rng_below(&x->rng, count) == 0) {
            memcpy(key_bytes, at.data, at.len);
            key.len = at.len;
        }
        if (count > 300) {
            break;
        }
    }
    key = vj_slice(key_bytes, key.len);
    r = vj_txn_get(txn, space, key, &value);
    if (r < 0) {
        return r;
    }
    len = value.len;
    bytes = g_memdup2(value.data, len);
    mutate(x, bytes, len);
    vj_put_right(space, key, bytes, len);
    return vj_txn_put(txn, space, key, vj_slice(bytes, len));
}

static void change_record(Round *x)
{
    g_autofree char *path = g_build_filename(x->dir, "meta", NULL);
    g_autoptr(GError) error = NULL;
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    VjMetaPlace place = {.dir_fd = fd, .path = path};
    VjMeta *meta;

    if (!vj_meta_open("lmdb", &place, &meta, &error)) {
        fail_msg("%s", error->message);
    }
    assert_int_equal(vj_meta_run(meta, VJ_RUN_DEFAULT, change_body, x), 0);
    assert_int_equal(vj_meta_close(meta), 0);
}

/* ---- what a user does with it ------------------------------------------------------ */

static void use_file(Round *x, uint64_t ino)
{
    g_autofree uint8_t *bytes = g_malloc(4096);
    VjEdit edit = {.offset = 1000, .old_len = 50, .src = "edited", .len = 6};
    VjEdited edited;
    VjSetattr shorter = {.what = VJ_SET_SIZE, .size = 500};
    VjAttr attr;
    VjHandle *h;
    size_t got;

    if (vj_fs_open(x->fs, &root_caller, ino, O_RDWR, &h) != 0) {
        return;
    }
    for (uint64_t at = 0; at < 3 * FILE_BYTES; at += 4096) {
        (void)!vj_fs_read(h, at, bytes, 4096, &got);
    }
    (void)!vj_fs_replace(&root_caller, h, &edit, &edited);
    (void)!vj_fs_write(h, 0, "tail", 4, VJ_WRITE_APPEND, NULL);
    (void)!vj_fs_fsync(h);
    (void)!vj_fs_setattr(x->fs, &root_caller, ino, h, &shorter, &attr);
    (void)!vj_fs_fsync(h);
    vj_fs_release(x->fs, h);
}

static void use_inode(Round *x, uint64_t ino)
{
    g_autofree char *text = g_malloc(VJ_XATTR_VALUE_MAX);
    VjAttr attr;
    size_t len;

    if (vj_fs_getattr(x->fs, ino, &attr) != 0) {
        return;
    }
    (void)!vj_fs_listxattr(x->fs, &root_caller, ino, text, VJ_XATTR_VALUE_MAX, &len);
    (void)!vj_fs_getxattr(x->fs, ino, "user.colour", text, VJ_XATTR_VALUE_MAX, &len);
    (void)!vj_fs_getxattr(x->fs, ino, "user.varjfs.status", text, VJ_XATTR_VALUE_MAX,
                          &len);
    (void)!vj_fs_getxattr(x->fs, ino, "user.varjfs.objects", text, VJ_XATTR_VALUE_MAX,
                          &len);
    if (S_ISDIR(attr.st.st_mode)) {
        VjSetattr mode = {.what = VJ_SET_MODE, .mode = 0700};
        VjAttr made;

        (void)!vj_fs_setattr(x->fs, &root_caller, ino, NULL, &mode, &made);
        (void)!vj_fs_mkdir(x->fs, &root_caller, ino, "made", 0777, &made);
        (void)!vj_fs_rmdir(x->fs, ino, "made");
    } else if (S_ISLNK(attr.st.st_mode)) {
        (void)!vj_fs_readlink(x->fs, ino, text);
    } else if (S_ISREG(attr.st.st_mode)) {
        use_file(x, ino);
    }
}

static bool collect(void *opaque, const VjDirent *entry, const VjAttr *attr)
{
    (void)attr;
    g_array_append_val(opaque, entry->ino);
    return true;
}

static void use_volume(Round *x)
{
    g_autoptr(GArray) inos = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    static const char *const names[] = {"small", "link", "mixed"};
    VjAttr d, attr;

    for (uint64_t ino = 1; ino < 10; ino++) {
        (void)!vj_fs_readdir(x->fs, ino, 0, NULL, 1 << 16, true, collect, inos);
    }
    for (guint i = 0; i < inos->len; i++) {
        use_inode(x, g_array_index(inos, uint64_t, i));
    }
    if (vj_fs_lookup(x->fs, &root_caller, VJ_INO_ROOT, "d", &d) == 0) {
        (void)!vj_fs_rename(x->fs, &root_caller, d.st.st_ino, "file", VJ_INO_ROOT,
                            "moved", 0);
        (void)!vj_fs_mkdir(x->fs, &root_caller, d.st.st_ino, "e", 0755, &attr);
        (void)!vj_fs_rename(x->fs, &root_caller, VJ_INO_ROOT, "d", d.st.st_ino, "loop",
                            0);
        (void)!vj_fs_rmdir(x->fs, VJ_INO_ROOT, "d");
    }
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        (void)!vj_fs_unlink(x->fs, VJ_INO_ROOT, names[i]);
    }
    (void)!vj_fs_sync_all(x->fs);
    vj_orphan_purge_drain(x->v->purge);
}

static void say(void *opaque, const char *text)
{
    (void)opaque;
    (void)text;
}

static void check_volume(Round *x)
{
    VjVolumeOpen how = {.source = x->dir, .check = true};
    VjCheckReport report = {0};

    if (!vj_volume_open(&how, &x->v, NULL)) {
        return;
    }
    (void)!vj_fsck_contents(x->v, true, say, NULL, &report);
    (void)!vj_fsck_names(x->v, say, NULL, &report);
    (void)!vj_volume_close(x->v);
}

/* What cannot be put right stays; a second round sees what the first one made of it. */
static void repair_volume(Round *x)
{
    VjVolumeOpen how = {.source = x->dir, .check = true, .repair = true};
    VjCheckReport report = {0};

    if (!vj_volume_open(&how, &x->v, NULL)) {
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        g_autoptr(VjRepair) r = vj_repair_new(x->v, say, NULL);

        (void)!vj_fsck_contents(x->v, i == 0, say, NULL, &report);
        (void)!vj_fsck_names(x->v, say, NULL, &report);
        if (vj_repair_all(r) == 0) {
            (void)!vj_repair_store(r);
        }
    }
    (void)!vj_volume_close(x->v);
}

static uint64_t number_from(const char *name, uint64_t fallback)
{
    const char *text = g_getenv(name);

    return text != NULL ? g_ascii_strtoull(text, NULL, 0) : fallback;
}

static void one_round(uint64_t seed)
{
    Round x = {.seed = seed};

    printf("# round of seed %" G_GUINT64_FORMAT "\n", x.seed);
    fflush(stdout);
    alarm(HANG_SECONDS);
    vj_rng_init(&x.rng, x.seed);
    make_volume(&x);
    change_record(&x);
    check_volume(&x);
    if (x.seed % 2 == 1) {
        repair_volume(&x);
    }
    open_volume(&x);
    if (x.v != NULL) {
        use_volume(&x);
        close_volume(&x);
    }
    check_volume(&x);
    repair_volume(&x);
    vj_test_remove_dir(x.dir);
    alarm(0);
}

static void rounds(void **state)
{
    uint64_t count = number_from("VARJFS_HOSTILE_ROUNDS", ROUNDS_DEFAULT);
    uint64_t seed = number_from("VARJFS_HOSTILE_SEED", 1);

    (void)state;
    for (uint64_t i = 0; i < count; i++) {
        one_round(seed + i);
    }
}

/* Each of them has found something once. */
static void seeds_that_found_something(void **state)
{
    static const uint64_t seeds[] = {
        101017, /* an object shorter than the entry that write-back leaves alone */
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(seeds); i++) {
        one_round(seeds[i]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(seeds_that_found_something),
    cmocka_unit_test(rounds),
};

VJ_TEST_MAIN(tests)
