/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * A sound volume, some of whose records and objects are made wrong as the input says,
 * mostly with right checksums: such as no device makes, but somebody who wants to harm.
 * It is checked, mounted as it is and used, repaired, and mounted and used again.
 * Whatever it is, no step crashes; after a repair that says that all is well, all is.
 *
 * The input: how (1), then changes: space (1), which record (1), what (1), where (2), a
 * number (8).
 */
#include "fsck/fsck.h"
#include "fuzz-volume.h"

#include <dirent.h>
#include <fcntl.h>

#include "../lib/right-sums.h"

#define CHANGES_MAX 12
#define ROUNDS_MOST 8u
#define READ_MAX ((size_t)64 << 10)

/* ---- the sound volume -------------------------------------------------------------- */

static char *dir; /* where it lies */

static void write_file(VjFs *fs, const char *name, size_t len, uint64_t seed)
{
    g_autofree uint8_t *bytes = g_malloc(len);
    VjHandle *h;
    VjAttr attr;
    VjRng r;

    vj_rng_init(&r, seed);
    vj_rng_bytes(&r, bytes, len);
    g_assert(vj_fs_create(fs, &fuzz_root, VJ_INO_ROOT, name, 0644, O_RDWR, &attr, &h) ==
             0);
    g_assert(vj_fs_write(h, 0, bytes, len, 0, NULL) == 0);
    g_assert(vj_fs_fsync(h) == 0);
    vj_fs_release(fs, h);
}

static void make_tree(VjFs *fs)
{
    static const uint8_t acl[] = {2,   0,   0,   0,   1,   0,   6,  0,   255, 255, 255,
                                  255, 2,   0,   7,   0,   9,   0,  0,   0,   4,   0,
                                  4,   0,   255, 255, 255, 255, 16, 0,   5,   0,   255,
                                  255, 255, 255, 32,  0,   0,   0,  255, 255, 255, 255};
    VjAttr attr, sub;

    write_file(fs, "small", 100, 1);
    write_file(fs, "large", 250000, 2);
    write_file(fs, "same", 20000, 2);
    g_assert(vj_fs_mkdir(fs, &fuzz_root, VJ_INO_ROOT, "d", 0755, &attr) == 0);
    g_assert(vj_fs_mkdir(fs, &fuzz_root, attr.st.st_ino, "e", 0755, &sub) == 0);
    g_assert(vj_fs_symlink(fs, &fuzz_root, sub.st.st_ino, "l", "../x", &attr) == 0);
    g_assert(vj_fs_mknod(fs, &fuzz_root, sub.st.st_ino, "p", S_IFIFO | 0600, 0, &attr) ==
             0);
    g_assert(vj_fs_link(fs, attr.st.st_ino, VJ_INO_ROOT, "q", &attr) == 0);
    g_assert(vj_fs_setxattr(fs, &fuzz_root, attr.st.st_ino, "trusted.t", "v", 1, 0) == 0);
    g_assert(vj_fs_setxattr(fs, &fuzz_root, sub.st.st_ino, VJ_ACL_ACCESS, acl, sizeof acl,
                            0) == 0);
}

static void end(void)
{
    fuzz_kept_clear();
    fuzz_dir_remove(dir);
}

static void begin(void)
{
    VjVolume *v;
    VjFs *fs;

    dir = fuzz_dir_new();
    fuzz_volume_make(dir, "objects=1K,transform=rle,meta=lmdb");
    v = fuzz_volume_open(dir, false);
    fs = vj_fs_new(v);
    make_tree(fs);
    vj_fs_free(fs);
    g_assert(vj_volume_close(v) == 0);
    fuzz_keep(dir);
    atexit(end);
}

/* ---- changes ----------------------------------------------------------------------- */

typedef struct Change {
    uint8_t space, which, what;
    uint16_t where;
    uint64_t number;
} Change;

/* The n-th record of a space, counted around. */
static bool find_record(VjTxn *txn, VjSpace space, unsigned which, GByteArray *key,
                        GByteArray *value)
{
    VjSlice k, v;
    int r = 0;

    for (unsigned n = 0; n <= which && r == 0; n++) {
        r = vj_txn_next(txn, space, vj_slice(key->data, key->len), &k, &v);
        if (r == 0) {
            g_byte_array_set_size(key, 0);
            g_byte_array_append(key, k.data, (guint)k.len);
            g_byte_array_set_size(value, 0);
            g_byte_array_append(value, v.data, (guint)v.len);
        }
    }
    return key->len > 0;
}

static void change_bytes(const Change *c, GByteArray *bytes)
{
    guint at = bytes->len > 0 ? c->where % bytes->len : 0;
    guint len = MIN(bytes->len - at, 8);

    switch (c->what % 8) {
    case 0:
    case 1:
        if (bytes->len > 0) {
            bytes->data[at] = (uint8_t)c->number;
        }
        break;
    case 2:
    case 3:
        memcpy(bytes->data + at, &c->number, len);
        break;
    case 4:
        if (bytes->len > 0) {
            bytes->data[at] ^= (uint8_t)(1u << (c->number % 8));
        }
        break;
    case 5:
        g_byte_array_set_size(bytes, at);
        break;
    default:
        g_byte_array_append(bytes, (const uint8_t *)&c->number, sizeof c->number);
        break;
    }
}

static int change_body(VjTxn *txn, void *opaque)
{
    const Change *c = opaque;
    VjSpace space = (VjSpace)(c->space % VJ_SPACE_COUNT);
    g_autoptr(GByteArray) key = g_byte_array_new();
    g_autoptr(GByteArray) value = g_byte_array_new();
    VjSlice k;

    if (!find_record(txn, space, c->which, key, value)) {
        return 0;
    }
    k = vj_slice(key->data, key->len);
    if (c->what / 8 % 8 == 1) {
        return vj_txn_del(txn, space, k);
    }
    if (c->what / 8 % 8 == 2) { /* the key is another, the record stays or goes */
        int r = c->what >= 128 ? vj_txn_del(txn, space, k) : 0;

        change_bytes(c, key);
        if (r < 0 || key->len == 0 || key->len > VJ_META_KEY_MAX) {
            return r;
        }
        k = vj_slice(key->data, key->len);
    } else {
        change_bytes(c, value);
    }
    if (c->what / 8 % 8 != 3) {
        vj_put_right(space, k, value->data, value->len);
    }
    return vj_txn_put(txn, space, k, vj_slice(value->data, value->len));
}

static void change_metadata(const Change *changes, unsigned count)
{
    g_autofree char *path = g_build_filename(dir, "meta", NULL);
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    VjMetaPlace place = {.dir_fd = fd, .path = path};
    g_autoptr(GError) error = NULL;
    VjMeta *meta;

    if (!vj_meta_open("lmdb", &place, &meta, &error)) {
        g_error("%s", error->message);
    }
    for (unsigned i = 0; i < count; i++) {
        g_assert(vj_meta_run(meta, VJ_RUN_DEFAULT, change_body,
                             (void *)(uintptr_t)&changes[i]) == 0);
    }
    g_assert(vj_meta_close(meta) == 0);
}

/* ---- use --------------------------------------------------------------------------- */

typedef struct Listing {
    VjFs *fs;
    GArray *inodes;
    GPtrArray *names;
} Listing;

static bool visit_name(void *opaque, const VjDirent *entry, const VjAttr *attr)
{
    Listing *l = opaque;
    uint64_t ino = entry->ino;

    (void)attr;
    if (strcmp(entry->name, ".") != 0 && strcmp(entry->name, "..") != 0) {
        g_array_append_val(l->inodes, ino);
        g_ptr_array_add(l->names, g_strdup(entry->name));
    }
    return true;
}

static void use_content(VjFs *fs, uint64_t ino)
{
    g_autofree uint8_t *bytes = g_malloc(READ_MAX);
    VjHandle *h;
    size_t got;
    uint64_t at = 0;

    if (vj_fs_open(fs, &fuzz_root, ino, O_RDWR, &h) < 0) {
        return;
    }
    for (int n = 0; n < 8; n++) {
        if (vj_fs_read(h, at, bytes, READ_MAX, &got) < 0 || got == 0) {
            got = 4096;
        }
        at += got;
    }
    (void)!vj_fs_read(h, UINT64_MAX - 5, bytes, 10, &got);
    (void)!vj_fs_write(h, 5000, "written", 7, 0, NULL);
    (void)!vj_fs_fallocate(h, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 9000);
    (void)!vj_fs_fsync(h);
    vj_fs_release(fs, h);
}

static void use_inode(VjFs *fs, uint64_t ino)
{
    char text[VJ_SYMLINK_MAX + 1], names[4096];
    uint64_t cursor = 0;
    size_t len;
    VjAttr attr;

    if (vj_fs_getattr(fs, ino, &attr) < 0) {
        return;
    }
    (void)!vj_fs_readlink(fs, ino, text);
    (void)!vj_fs_listxattr(fs, &fuzz_root, ino, names, sizeof names, &len);
    (void)!vj_fs_getxattr(fs, ino, VJ_ACL_ACCESS, names, sizeof names, &len);
    (void)!vj_fs_getxattr(fs, ino, "user.varjfs.status", names, sizeof names, &len);
    (void)!vj_fs_text(fs, &fuzz_root, ino, 1, &cursor, text, sizeof text, &len);
    if (S_ISREG(attr.st.st_mode)) {
        use_content(fs, ino);
    }
}

/* Looks at everything below @ino, then takes it away. */
static void use_directory(VjFs *fs, uint64_t ino, unsigned depth)
{
    g_autoptr(GArray) inodes = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    Listing l = {.fs = fs, .inodes = inodes, .names = names};
    VjAttr attr;

    (void)!vj_fs_readdir(fs, ino, 0, NULL, 1 << 16, true, visit_name, &l);
    for (guint i = 0; i < inodes->len; i++) {
        uint64_t child = g_array_index(inodes, uint64_t, i);
        const char *name = names->pdata[i];

        if (vj_fs_lookup(fs, &fuzz_root, ino, name, &attr) == 0) {
            child = attr.st.st_ino;
        }
        use_inode(fs, child);
        if (depth < 4) {
            use_directory(fs, child, depth + 1);
        }
        (void)!vj_fs_link(fs, child, ino, "another", &attr);
        (void)!vj_fs_rename(fs, &fuzz_root, ino, name, VJ_INO_ROOT, "moved", 0);
        (void)!vj_fs_unlink(fs, VJ_INO_ROOT, "moved");
        (void)!vj_fs_rmdir(fs, VJ_INO_ROOT, "moved");
        (void)!vj_fs_unlink(fs, ino, name);
    }
}

/* False: it cannot be opened. */
static bool use_volume(void)
{
    VjVolumeOpen how = {.source = dir, .workers = 1};
    g_autoptr(GError) error = NULL;
    VjTend gc = {.cursor = 0}, scrub = {.cursor = 0};
    VjVolumeUsage usage;
    VjVolume *v;
    VjFs *fs;

    if (!vj_volume_open(&how, &v, &error)) {
        fuzz_expect_line(error->message);
        return false;
    }
    fs = vj_fs_new(v);
    (void)!vj_volume_usage(v, &usage);
    (void)!vj_volume_scrub(v, &scrub);
    use_directory(fs, VJ_INO_ROOT, 0);
    (void)!vj_volume_sync(v);
    (void)!vj_volume_gc(v, &gc);
    vj_fs_free(fs);
    (void)!vj_volume_close(v);
    return true;
}

/* ---- repair ------------------------------------------------------------------------ */

static void say(void *opaque, const char *text)
{
    (void)opaque;
    fuzz_expect_line(text);
}

static int check(VjVolume *v, bool read_data, VjCheckReport *out)
{
    int r;

    *out = (VjCheckReport){0};
    r = vj_fsck_contents(v, read_data, say, NULL, out);
    return r == 0 ? vj_fsck_names(v, say, NULL, out) : r;
}

/* As fsck -y.  True: it says that all is well. */
static bool repair(void)
{
    VjVolumeOpen how = {.source = dir, .check = true, .repair = true, .workers = 1};
    g_autoptr(GError) error = NULL;
    VjCheckReport report;
    VjVolume *v;
    int r;

    if (!vj_volume_open(&how, &v, &error)) {
        fuzz_expect_line(error->message);
        return false;
    }
    r = check(v, true, &report);
    for (unsigned n = 0; r == 0 && report.problems > 0 && n < ROUNDS_MOST; n++) {
        g_autoptr(VjRepair) p = vj_repair_new(v, say, NULL);

        r = vj_repair_all(p);
        if (r < 0 || vj_repair_count(p) == 0) {
            break;
        }
        r = check(v, false, &report);
    }
    if (r == 0 && report.problems == 0 && report.leaks > 0) {
        g_autoptr(VjRepair) p = vj_repair_new(v, say, NULL);

        r = vj_repair_store(p);
    }
    g_assert(vj_volume_close(v) == 0);
    return r == 0 && report.problems == 0;
}

static void expect_well(void)
{
    VjVolume *v = fuzz_volume_open(dir, true);
    VjCheckReport report = {0};

    g_assert(vj_fsck_contents(v, true, fuzz_volume_say, NULL, &report) == 0);
    g_assert(vj_fsck_names(v, fuzz_volume_say, NULL, &report) == 0);
    g_assert(report.problems == 0);
    g_assert(vj_volume_close(v) == 0);
}

FUZZ_MUTATIONS(2);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    VjReader in = vj_reader(vj_slice(data, len));
    uint8_t how = vj_read_u8(&in);
    Change changes[CHANGES_MAX];
    unsigned count = 0;

    fuzz_quiet();
    if (dir == NULL) {
        begin();
    }
    fuzz_put_back(dir);
    while (count < CHANGES_MAX && in.left >= 13) {
        Change *c = &changes[count++];

        c->space = vj_read_u8(&in);
        c->which = vj_read_u8(&in);
        c->what = vj_read_u8(&in);
        c->where = vj_read_u16(&in);
        c->number = vj_read_u64(&in);
    }
    change_metadata(changes, count);
    if (how & 1) {
        (void)use_volume();
    }
    if (repair()) {
        expect_well();
        g_assert(use_volume());
        expect_well();
    }
    return 0;
}
