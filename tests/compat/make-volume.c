/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * make-volume.c - make-volume DIR: the volume of volume-content.h, left as by a crash
 *
 * The process ends without closing the volume: an id block is open, one of its numbers
 * has bytes and no record; an orphan of a file that was open and one of a part of a map
 * are not dropped; objects that nobody refers to are not removed, because the store
 * refuses to.
 */
#include "volume-content.h"

#include "fs/fs.h"
#include "volume/volume-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Stops with the line and what was tried. */
#define MUST(call)                                                                       \
    do {                                                                                 \
        int result_ = (call);                                                            \
        if (result_ != 0) {                                                              \
            fprintf(stderr, "make-volume: line %d: %s: %s\n", __LINE__, #call,           \
                    g_strerror(-result_));                                               \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

static const VjCaller root_caller = {.umask = 0};
static VjVolume *volume;
static VjFs *fs;

/* The directory that @path ends in; *name is its last part. */
static uint64_t parent_of(const char *path, const char **name)
{
    uint64_t dir = VJ_INO_ROOT;
    const char *slash;

    while ((slash = strchr(path, '/')) != NULL) {
        g_autofree char *part = g_strndup(path, (gsize)(slash - path));
        VjAttr attr;

        MUST(vj_fs_lookup(fs, &root_caller, dir, part, &attr));
        dir = attr.st.st_ino;
        path = slash + 1;
    }
    *name = path;
    return dir;
}

static uint64_t ino_of(const char *path)
{
    const char *name;
    uint64_t dir = parent_of(path, &name);
    VjAttr attr;

    MUST(vj_fs_lookup(fs, &root_caller, dir, name, &attr));
    return attr.st.st_ino;
}

static void make_dir(const char *path, mode_t mode)
{
    const char *name;
    uint64_t dir = parent_of(path, &name);
    VjAttr attr;

    MUST(vj_fs_mkdir(fs, &root_caller, dir, name, mode, &attr));
}

static VjHandle *make_file(const char *path)
{
    const char *name;
    uint64_t dir = parent_of(path, &name);
    VjAttr attr;
    VjHandle *h;

    MUST(vj_fs_create(fs, &root_caller, dir, name, 0644, O_RDWR, &attr, &h));
    return h;
}

static void write_part(VjHandle *h, const FileContent *f, uint64_t at, uint64_t len)
{
    g_autofree uint8_t *bytes = g_malloc(VJ_MIB);

    while (len > 0) {
        size_t step = MIN(len, VJ_MIB);

        content_read(f, at, bytes, step);
        MUST(vj_fs_write(h, at, bytes, step, 0, NULL));
        at += step;
        len -= step;
    }
}

static void write_file(VjHandle *h, const FileContent *f)
{
    uint64_t at = 0;
    VjAttr attr;
    VjSetattr size = {.what = VJ_SET_SIZE, .size = content_size(f)};

    for (size_t i = 0; i < PARTS_MAX && f->parts[i].kind != PART_END; i++) {
        if (f->parts[i].kind != PART_HOLE) {
            write_part(h, f, at, f->parts[i].length);
        }
        at += f->parts[i].length;
    }
    MUST(vj_fs_setattr(fs, &root_caller, vj_fs_handle_ino(h), h, &size, &attr));
    MUST(vj_fs_fsync(h));
}

static const FileContent *content_of(const char *path)
{
    for (const FileContent *f = volume_files; f->path != NULL; f++) {
        if (strcmp(f->path, path) == 0) {
            return f;
        }
    }
    g_assert_not_reached();
}

static void edit(const char *path, uint64_t offset, uint64_t old_len, const void *src,
                 size_t len)
{
    VjEdit e = {.offset = offset, .old_len = old_len, .src = src, .len = len};
    VjEdited edited;
    VjHandle *h;

    MUST(vj_fs_open(fs, &root_caller, ino_of(path), O_RDWR, &h));
    MUST(vj_fs_replace(&root_caller, h, &e, &edited));
    MUST(vj_fs_fsync(h));
    vj_fs_release(fs, h);
}

static void make_files(void)
{
    uint8_t insert[33];

    for (const FileContent *f = volume_files; f->path != NULL; f++) {
        VjHandle *h = make_file(f->path);

        /* Those come about by an edit of another content. */
        if (strcmp(f->path, "inserted") == 0 || strcmp(f->path, "deleted") == 0) {
            write_file(h, content_of("random"));
        } else {
            write_file(h, f);
        }
        vj_fs_release(fs, h);
    }
    /* What the edits bring stays in fragments. */
    MUST(vj_file_table_remap(volume->files));
    content_read(content_of("inserted"), 7000, insert, sizeof insert);
    edit("inserted", 7000, 0, insert, sizeof insert);
    edit("deleted", 5000, 4000, NULL, 0);
}

static void make_links(void)
{
    g_autofree char *target = g_strnfill(SYMLINK_LONG_BYTES, 's');
    uint64_t ino = ino_of(LINK_FIRST);
    VjAttr attr;

    MUST(vj_fs_link(fs, ino, ino_of("d"), "link-2", &attr));
    MUST(vj_fs_link(fs, ino, ino_of("d/e"), "link-3", &attr));
    MUST(vj_fs_symlink(fs, &root_caller, VJ_INO_ROOT, "symlink", SYMLINK_SHORT_TARGET,
                       &attr));
    MUST(vj_fs_symlink(fs, &root_caller, VJ_INO_ROOT, "symlink-long", target, &attr));
}

static void make_nodes(void)
{
    VjAttr attr;

    MUST(vj_fs_mknod(fs, &root_caller, VJ_INO_ROOT, "fifo", S_IFIFO | 0600, 0, &attr));
    MUST(vj_fs_mknod(fs, &root_caller, VJ_INO_ROOT, "socket", S_IFSOCK | 0600, 0, &attr));
    MUST(vj_fs_mknod(fs, &root_caller, VJ_INO_ROOT, "char", S_IFCHR | 0600, CHAR_DEVICE,
                     &attr));
    MUST(vj_fs_mknod(fs, &root_caller, VJ_INO_ROOT, "block", S_IFBLK | 0600, BLOCK_DEVICE,
                     &attr));
}

static void make_names(void)
{
    g_autofree char *longest = g_strnfill(LONG_NAME_BYTES, 'n');
    uint64_t dir = ino_of("names"), many = ino_of("many");
    VjAttr attr;

    MUST(vj_fs_mkdir(fs, &root_caller, dir, longest, 0755, &attr));
    for (size_t i = 0; odd_names[i] != NULL; i++) {
        MUST(vj_fs_mkdir(fs, &root_caller, dir, odd_names[i], 0755, &attr));
    }
    for (unsigned i = 0; i < MANY_COUNT; i++) {
        g_autofree char *name = g_strdup_printf("%u", i);

        MUST(vj_fs_mkdir(fs, &root_caller, many, name, 0755, &attr));
    }
    for (unsigned i = 0; i < MANY_COUNT; i += 3) {
        g_autofree char *name = g_strdup_printf("%u", i);

        MUST(vj_fs_rmdir(fs, many, name));
    }
    MUST(vj_fs_rename(fs, &root_caller, many, "1", many, "one", VJ_RENAME_NOREPLACE));
    MUST(vj_fs_mkdir(fs, &root_caller, many, "last", 0755, &attr));
}

static void make_attributes(void)
{
    g_autofree char *big = g_strnfill(BIG_BYTES, 'b');
    uint8_t binary[BINARY_BYTES];
    uint64_t ino = ino_of("attributes");
    VjCaller capable = {.pid = getpid()}; /* root may give others set-gid files */
    VjSetattr owner = {
        .what = VJ_SET_UID | VJ_SET_GID, .uid = ATTRIBUTES_UID, .gid = ATTRIBUTES_GID};
    VjSetattr rest = {.what = VJ_SET_MODE | VJ_SET_ATIME | VJ_SET_MTIME,
                      .mode = ATTRIBUTES_MODE,
                      .atime = ATTRIBUTES_ATIME,
                      .mtime = ATTRIBUTES_MTIME};
    VjAttr attr;

    for (size_t i = 0; i < sizeof binary; i++) {
        binary[i] = (uint8_t)i;
    }
    MUST(vj_fs_setxattr(fs, &root_caller, ino, "user.empty", "", 0, 0));
    MUST(vj_fs_setxattr(fs, &root_caller, ino, "user.binary", binary, sizeof binary,
                        XATTR_CREATE));
    MUST(vj_fs_setxattr(fs, &root_caller, ino, "user.big", big, BIG_BYTES, 0));
    MUST(vj_fs_setxattr(fs, &root_caller, ino, "user.varjfs.mode", "transport",
                        strlen("transport"), 0));
    MUST(vj_fs_setattr(fs, &root_caller, ino, NULL, &owner, &attr));
    MUST(vj_fs_setattr(fs, &capable, ino, NULL, &rest, &attr));
}

/* ---- what a crash leaves ----------------------------------------------------------- */

static void sync_all(void)
{
    MUST(vj_fs_sync_all(fs));
    vj_orphan_purge_drain(volume->purge);
    MUST(vj_store_flush(volume->store));
    MUST(vj_meta_flush(volume->meta));
}

static VjHandle *make_contents(const char *path, Part part)
{
    const FileContent f = {.path = path, .parts = {part}};
    VjHandle *h = make_file(path);

    write_file(h, &f);
    return h;
}

/* Objects without references, which the store does not remove. */
static void make_dead(void)
{
    vj_fs_release(fs, make_contents("gone", (Part){PART_RANDOM, 11, 4500, 0}));
    MUST(vj_file_table_remap(volume->files));
    MUST(vj_fs_unlink(fs, VJ_INO_ROOT, "gone"));
    sync_all();
}

/* All of its map is cut off, and the part that one node does not hold is left to the
 * orphan purge, which does not hear of it. */
static int cut_body(VjTxn *txn, void *opaque)
{
    const uint64_t *ino = opaque;
    g_autoptr(GArray) removed = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    g_autoptr(GArray) detached = g_array_new(FALSE, FALSE, sizeof(VjMapDetached));
    VjInode inode;
    VjObject object;
    int r = vj_inode_get(txn, *ino, &inode);

    if (r == 0) {
        r = vj_map_replace(txn, *ino, &inode.root, 0, inode.root.bytes, NULL, 0, removed,
                           detached);
    }
    for (guint i = 0; r == 0 && i < removed->len; i++) {
        r = vj_object_unref(txn, g_array_index(removed, VjEntry, i).id, &object);
    }
    for (guint i = 0; r == 0 && i < detached->len; i++) {
        r = vj_orphan_put_tree(txn, *ino,
                               &g_array_index(detached, VjMapDetached, i).root);
    }
    if (r < 0) {
        return r;
    }
    g_assert(detached->len > 0 && inode.root.node == 0);
    inode.content = VJ_CONTENT_EMPTY;
    inode.size = inode.stored_bytes = 0;
    inode.map_version++;
    return vj_inode_put(txn, &inode);
}

static void make_leftovers(void)
{
    struct iovec leaked = {.iov_base = (void *)(uintptr_t) "leaked", .iov_len = 6};
    uint64_t ino = ino_of("cut");
    VjHandle *h;
    VjPut put;

    /* A part of a map. */
    MUST(vj_fs_open(fs, &root_caller, ino, O_RDWR, &h));
    write_file(h, &(FileContent){.path = "cut", .parts = {{PART_FILL, 'y', VJ_MIB, 0}}});
    vj_fs_release(fs, h);
    sync_all();
    MUST(vj_meta_run(volume->meta, VJ_RUN_DEFAULT, cut_body, &ino));
    /* A file that is open and has no name; the handle is never released. */
    h = make_contents("orphan", (Part){PART_RANDOM, 10, 5000, 0});
    MUST(vj_fs_setxattr(fs, &root_caller, vj_fs_handle_ino(h), "user.orphan", "yes", 3,
                        0));
    MUST(vj_fs_unlink(fs, VJ_INO_ROOT, "orphan"));
    /* Bytes on their way to a record. */
    MUST(vj_store_put(volume->store, 60000, &leaked, 1, &put));
    sync_all();
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    VjVolumeMake make = {.options = VOLUME_OPTIONS};
    VjVolumeOpen open = {.session_name = "make-volume",
                         .wrap_store = "fault:kinds=remove,every=1,errno=EIO"};

    if (argc != 2) {
        fprintf(stderr, "usage: make-volume DIR\n");
        return 2;
    }
    make.source = open.source = argv[1];
    if (!vj_volume_make(&make, &error) || !vj_volume_open(&open, &volume, &error)) {
        fprintf(stderr, "make-volume: %s\n", error->message);
        return 1;
    }
    fs = vj_fs_new(volume);
    make_dead();
    make_dir("d", 0755);
    make_dir("d/e", 0700);
    make_dir("d/e/f", 01777);
    make_dir("d/e/f/g", 02755);
    make_dir("names", 0755);
    make_dir("many", 0755);
    make_dir("settings", 0755);
    MUST(vj_fs_setxattr(fs, &root_caller, ino_of("settings"), "user.varjfs.objects",
                        "2048", 4, 0));
    make_files();
    make_links();
    make_nodes();
    make_names();
    make_attributes();
    make_leftovers();
    _exit(0); /* a crash */
}
