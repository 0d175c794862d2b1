/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sweep-work.c - the workloads
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "sweep.h"

#include "varjfs/ioctl.h"

static char *numbered(const char *format, unsigned i) G_GNUC_FORMAT(1);
static char *numbered(const char *format, unsigned i)
{
    return g_strdup_printf(format, i);
}

/* ---- edits: two files, inserts, deletions, copies, holes, fsync after each --------- */

static void prepare_edits(World *w)
{
    Node *n;

    world_make(w, "a", S_IFREG | 0644);
    world_make(w, "b", S_IFREG | 0644);
    n = world_file(w, "b");
    world_write(w, n, 0, 20000, false);
    world_sync(w);
}

static void work_edits(World *w)
{
    Node *a, *b;

    world_open(w);
    a = world_file(w, "a");
    b = world_file(w, "b");
    if (a == NULL || b == NULL) {
        return;
    }
    world_write(w, a, 0, 40000, false);
    world_fsync(w, a);
    world_copy(w, a, 1000, b, world_size(b), 30000);
    world_fsync(w, b);
    world_replace(w, a, 20000, 0, 3000, false);
    world_replace(w, a, 9000, 2000, 0, false);
    world_fsync(w, a);
    world_replace(w, a, 100, 50, 70, false);
    world_fsync(w, a);
    world_verify(w);
    world_truncate(w, b, world_size(b) / 2);
    world_write(w, b, world_size(b), 9000, false);
    world_punch(w, b, 3000, 9000);
    world_fsync(w, b);
    world_write(w, b, 150000, 5000, false);
    world_copy(w, b, 0, a, 5000, 12000);
    world_fsync(w, b);
    world_fsync(w, a);
    world_verify(w);
    world_truncate(w, a, 100);
    world_fsync(w, a);
    world_truncate(w, b, 0);
    world_sync(w);
}

/* ---- names: many small files, as programs make, rename and remove them ------------- */

static void prepare_names(World *w)
{
    world_make(w, "dir", S_IFDIR | 0755);
    world_sync(w);
}

/* As an editor saves: a new file over the old one. */
static void save_as_editor(World *w, const char *path, size_t bytes, bool synced)
{
    g_autofree char *temporary = g_strdup_printf("%s~", path);
    Node *n;

    world_make(w, temporary, S_IFREG | 0600);
    n = world_file(w, temporary);
    world_write(w, n, 0, bytes, false);
    if (synced) {
        world_fsync(w, n);
    }
    world_release(w, n);
    world_rename(w, temporary, path, 0);
}

static void work_names(World *w)
{
    Node *n;

    world_open(w);
    for (unsigned i = 0; i < 12; i++) {
        g_autofree char *path = numbered("dir/%u", i);

        world_make(w, path, S_IFREG | 0644);
        n = world_file(w, path);
        world_write(w, n, 0, i % 3 == 0 ? 100 : 3000 * i, false);
        world_release(w, n);
    }
    world_sync_names(w);
    save_as_editor(w, "dir/3", 6000, true);
    save_as_editor(w, "dir/4", 200, false);
    world_make(w, "dir/sub", S_IFDIR | 0755);
    world_link(w, "dir/5", "dir/sub/5");
    world_symlink(w, "dir/sub/to", "../5");
    world_rename(w, "dir/6", "dir/sub/6", VJ_RENAME_NOREPLACE);
    world_rename(w, "dir/7", "dir/8", VJ_RENAME_EXCHANGE);
    world_rename(w, "dir/7", "dir/sub/7", VJ_RENAME_WHITEOUT);
    world_sync_names(w);
    world_unlink(w, "dir/5");
    world_rename(w, "dir/sub", "other", 0);
    n = world_file(w, "dir/9");
    world_unlink(w, "dir/9"); /* open still */
    world_write(w, n, 10, 9000, false);
    world_release(w, n);
    for (unsigned i = 0; i < 3; i++) {
        g_autofree char *path = numbered("dir/%u", i);

        world_unlink(w, path);
    }
    world_unlink(w, "other/to");
    world_unlink(w, "other/5");
    world_unlink(w, "other/6");
    world_unlink(w, "other");
    world_verify(w);
    world_sync(w);
}

/* ---- attributes -------------------------------------------------------------------- */

static void prepare_attributes(World *w)
{
    static const uint8_t large[9000] = "large";

    world_make(w, "f", S_IFREG | 0644);
    world_make(w, "d", S_IFDIR | 0755);
    world_setxattr(w, "f", "user.old", large, sizeof large);
    world_sync(w);
}

/* user::rw-, user:5:rw-, group::r--, mask::rw-, other::--- */
static const uint8_t access_list[] = {
    2, 0, 0,    0,    1,    0,    6,  0, 0xff, 0xff, 0xff, 0xff, 2,    0,    6,
    0, 5, 0,    0,    0,    4,    0,  4, 0,    0xff, 0xff, 0xff, 0xff, 16,   0,
    6, 0, 0xff, 0xff, 0xff, 0xff, 32, 0, 0,    0,    0xff, 0xff, 0xff, 0xff,
};

static void work_attributes(World *w)
{
    static const uint8_t bytes[30000] = "some bytes";

    world_open(w);
    world_setxattr(w, "f", "user.small", "x", 1);
    world_setxattr(w, "f", "user.large", bytes, sizeof bytes);
    world_setxattr(w, "d", "user.small", "y", 1);
    world_sync_names(w);
    world_chmod(w, "f", 0660);
    world_setxattr(w, "f", "system.posix_acl_access", access_list, sizeof access_list);
    world_setxattr(w, "d", "system.posix_acl_default", access_list, sizeof access_list);
    world_setxattr(w, "f", "user.large", bytes, 5);
    world_setxattr(w, "f", "user.varjfs.transform", "rle", 3);
    world_removexattr(w, "f", "user.old");
    world_sync_names(w);
    world_removexattr(w, "f", "user.varjfs.transform");
    world_removexattr(w, "d", "system.posix_acl_default");
    world_verify(w);
    world_link(w, "f", "g");
    world_unlink(w, "f");
    world_unlink(w, "g");
    world_sync(w);
}

/* ---- recode, gc and scrub ---------------------------------------------------------- */

static void prepare_recode(World *w)
{
    Node *n;

    world_make(w, "a", S_IFREG | 0644);
    world_make(w, "b", S_IFREG | 0644);
    n = world_file(w, "a");
    world_write(w, n, 0, 60000, true);
    world_copy(w, n, 0, world_file(w, "b"), 0, 20000);
    world_sync(w);
    world_truncate(w, n, 50000);
    world_sync(w);
}

static void work_recode(World *w)
{
    Node *a, *b;

    world_open(w);
    a = world_file(w, "a");
    b = world_file(w, "b");
    if (a == NULL || b == NULL) {
        return;
    }
    world_setxattr(w, "a", "user.varjfs.transform", "xor:5a", 6);
    world_recode(w, a);
    world_verify(w);
    world_tend(w, VARJFS_TEND_GC);
    world_replace(w, a, 7000, 100, 300, true);
    world_fsync(w, a);
    world_setxattr(w, "b", "user.varjfs.transform", "rle", 3);
    world_write(w, b, 10000, 20000, true);
    world_recode(w, b);
    world_fsync(w, b);
    world_tend(w, VARJFS_TEND_SCRUB);
    world_truncate(w, a, 0);
    world_fsync(w, a);
    world_tend(w, VARJFS_TEND_GC);
    world_verify(w);
    world_sync(w);
}

/* ---- remounts: closing, opening, recovery ------------------------------------------ */

static void prepare_remounts(World *w)
{
    prepare_recode(w);
    world_make(w, "gone", S_IFREG | 0644);
    world_write(w, world_file(w, "gone"), 0, 30000, false);
}

static void work_remounts(World *w)
{
    Node *n;

    world_open(w);
    n = world_file(w, "gone");
    world_unlink(w, "gone");
    world_write(w, world_file(w, "a"), 30000, 30000, false);
    world_sync(w);
    world_kill(w); /* an orphan, dead objects and open id blocks are left behind */
    (void)n;
    world_open(w);
    world_verify(w);
    world_write(w, world_file(w, "b"), 5000, 20000, false);
    world_make(w, "new", S_IFREG | 0644);
    world_close(w);
    world_open(w);
    world_write(w, world_file(w, "new"), 0, 3000, false);
    world_verify(w);
    world_sync(w);
}

/* ---- fsck -y of a volume that is whole --------------------------------------------- */

static void prepare_fsck(World *w)
{
    prepare_attributes(w);
    prepare_recode(w);
    world_setxattr(w, "b", "user.varjfs.transform", "rle", 3);
    world_write(w, world_file(w, "b"), 10000, 20000, true);
    world_recode(w, world_file(w, "b"));
    world_write(w, world_file(w, "f"), 0, 300, true);
    world_symlink(w, "s", "target");
    world_sync(w);
}

static void work_fsck(World *w)
{
    world_repair(w);
}

const Workload sweep_workloads[] = {
    {"edits", "objects=1K", 1, prepare_edits, work_edits},
    {"names", "objects=2K", 1, prepare_names, work_names},
    {"attributes", "objects=2K", 1, prepare_attributes, work_attributes},
    {"recode", "objects=2K,transform=rle", 1, prepare_recode, work_recode},
    {"remounts", "objects=2K", 3, prepare_remounts, work_remounts},
    {"fsck", "objects=2K", 1, prepare_fsck, work_fsck},
};
const size_t sweep_workload_count = G_N_ELEMENTS(sweep_workloads);
