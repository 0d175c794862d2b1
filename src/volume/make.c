/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * make.c - mkfs: a new file system in a directory
 *
 * The superblock gets its name last: until then the directory holds no file system.  From
 * the first change on it is there as varjfs.making.  Whoever finds that name finds what a
 * mkfs that was cut off left, and nobody's data: the next one clears it away unasked.
 * With force it is the superblock of the old file system that is renamed, so that there
 * is never one of each name.
 *
 * A failure removes what was made, and that name last.
 */
#include "volume/source-lock-private.h"
#include "volume/volume-private.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define LABEL_MAX 255u
#define TREE_DEPTH_MAX 16

const VjOptSpec vj_volume_make_options[] = {
    {.name = "store",
     .type = VJ_OPT_STRING,
     .fallback = "posix",
     .choices = "posix|null",
     .help = "driver that keeps the objects, with its own options as NAME:K=V"},
    {.name = "meta",
     .type = VJ_OPT_STRING,
     .fallback = "lmdb",
     .choices = "lmdb",
     .help = "engine that keeps the metadata, with its own options as NAME:K=V"},
    {.name = "hash",
     .type = VJ_OPT_CHOICE,
     .choices = "blake3|sha256|sha1",
     .help = "digest that names contents (default blake3 where built in, else sha256)"},
    {.name = "chunker",
     .type = VJ_OPT_CHOICE,
     .choices = "mincdc|gear|rabin",
     .fallback = "mincdc",
     .help = "algorithm that cuts files into objects"},
    {.name = "objects",
     .type = VJ_OPT_STRING,
     .help =
         "object sizes, AVG or MIN:AVG:MAX with K or M (default 256K; rabin 2K:1M:8M)"},
    {.name = "transform",
     .type = VJ_OPT_STRING,
     .fallback = "none",
     .choices = "none|xor|rle|lz4|zstd",
     .help = "transformation of files that have none of their own, as zstd:3"},
    {.name = "label",
     .type = VJ_OPT_STRING,
     .fallback = "",
     .help = "name of the volume, at most 255 bytes"},
    {0},
};

/* ---- what the options mean --------------------------------------------------------- */

static bool has_line_break(const char *text)
{
    return strpbrk(text, "\r\n") != NULL;
}

static char *new_uuid(void)
{
    uint8_t b[16];

    vj_random_bytes(b, sizeof b);
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    return g_strdup_printf(
        "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
        b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
        b[14], b[15]);
}

static bool choose_digest(const VjOpts *o, VjSuperblock *s, GError **error)
{
    const char *name = vj_opts_string(o, "hash");
    bool is_known;

    s->digest = name == NULL ? vj_digest_default() : vj_digest_by_name(name, &is_known);
    return s->digest != NULL ||
           vj_error_set(error, EOPNOTSUPP, "hash=%s is not built into this program",
                        name);
}

static bool choose_sizes(const VjOpts *o, VjSuperblock *s, GError **error)
{
    const char *objects = vj_opts_string(o, "objects");

    s->chunker = vj_chunk_by_name(vj_opts_string(o, "chunker"));
    if (s->chunker == NULL) {
        return vj_error_set(error, EOPNOTSUPP,
                            "chunker=%s is not built into this program",
                            vj_opts_string(o, "chunker"));
    }
    s->sizes = vj_chunk_sizes_default(s->chunker);
    return objects == NULL || vj_chunk_sizes_parse(s->chunker, objects, &s->sizes, error);
}

static bool choose(const VjOpts *o, bool may_forget, VjSuperblock *s, GError **error)
{
    static const char *const texts[] = {"store", "meta", "label"};

    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        if (has_line_break(vj_opts_string(o, texts[i]))) {
            return vj_error_set(error, EINVAL, "%s= holds a line break", texts[i]);
        }
    }
    if (strlen(vj_opts_string(o, "label")) > LABEL_MAX) {
        return vj_error_set(error, EINVAL, "label= is longer than %u bytes", LABEL_MAX);
    }
    s->uuid = new_uuid();
    s->chunk_seed = vj_random_u64();
    s->label = g_strdup(vj_opts_string(o, "label"));
    s->store = g_strdup(vj_opts_string(o, "store"));
    s->meta = g_strdup(vj_opts_string(o, "meta"));
    if (!vj_store_spec_check(s->store, error) || !vj_meta_spec_check(s->meta, error) ||
        !choose_digest(o, s, error) || !choose_sizes(o, s, error) ||
        !vj_transform_parse(vj_opts_string(o, "transform"), &s->transform, error)) {
        return false;
    }
    return may_forget || !vj_meta_forgets(s->meta) ||
           vj_error_set(error, EINVAL,
                        "meta=%s: nothing of it would be left to be mounted", s->meta);
}

/* ---- the directory ----------------------------------------------------------------- */

static bool is_cancelled(const VjVolumeMake *how)
{
    return how != NULL && how->cancelled != NULL && how->cancelled(how->opaque);
}

/* Removes a tree that an older file system left; follows no link.  @how NULL: to the
 * end. */
static int remove_tree(const VjVolumeMake *how, int dir_fd, const char *name, int depth)
{
    VJ_AUTO_FD fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir;
    struct dirent *entry;
    int copy, r = 0;

    if (fd < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    if (depth > TREE_DEPTH_MAX) {
        return -ELOOP;
    }
    copy = dup(fd);
    dir = copy >= 0 ? fdopendir(copy) : NULL;
    if (dir == NULL) {
        r = -errno;
        vj_fd_close(&copy);
        return r;
    }
    while (r == 0 && (errno = 0, entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (unlinkat(fd, entry->d_name, 0) < 0) {
            r = errno == EISDIR ? remove_tree(how, fd, entry->d_name, depth + 1) : -errno;
        }
        if (r == 0 && is_cancelled(how)) {
            r = -ECANCELED;
        }
    }
    closedir(dir);
    if (r == 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) < 0) {
        r = -errno;
    }
    return r;
}

static bool has_entries(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    bool found = false;

    if (dir == NULL) {
        /* What cannot be looked into may hold anything. */
        found = errno != ENOENT;
        vj_fd_close(&fd);
        return found;
    }
    while (!found && (errno = 0, entry = readdir(dir)) != NULL) {
        found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    found = found || errno != 0;
    closedir(dir);
    return found;
}

/*
 * What is in the directory: a file system, what is left of one whose superblock is lost
 * (all of its data may be there), other files, or nothing but what a mkfs that was cut
 * off left.
 */
static int look_around(int dir_fd, bool *is_varjfs, bool *is_rest, bool *is_foreign)
{
    bool is_cut_off = vj_fd_has(dir_fd, VJ_MAKING_NAME);
    int copy = dup(dir_fd);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    struct dirent *entry;

    *is_varjfs = vj_fd_has(dir_fd, VJ_SUPERBLOCK_NAME);
    *is_rest =
        !is_cut_off && (has_entries(dir_fd, "meta") || has_entries(dir_fd, "objects"));
    *is_foreign = false;
    if (dir == NULL) {
        int r = -errno;

        vj_fd_close(&copy);
        return r;
    }
    while ((errno = 0, entry = readdir(dir)) != NULL) {
        static const char *const ours[] = {".",
                                           "..",
                                           VJ_SUPERBLOCK_NAME,
                                           VJ_MAKING_NAME,
                                           "meta",
                                           "objects",
                                           VJ_OLD_LOCK_NAME,
                                           VJ_IN_USE_NAME,
                                           VJ_CLEAN_NAME,
                                           VJ_RESTORING_NAME,
                                           VJ_CHECKPOINTS_NAME,
                                           "lost+found"};
        bool is_known = false;

        for (size_t i = 0; i < G_N_ELEMENTS(ours); i++) {
            is_known = is_known || strcmp(entry->d_name, ours[i]) == 0;
        }
        *is_foreign = *is_foreign || !is_known;
    }
    closedir(dir);
    return 0;
}

/* @is_varjfs: it holds a file system, which may be destroyed. */
static bool may_make(int dir_fd, const VjVolumeMake *how, bool *is_varjfs, GError **error)
{
    bool is_rest, is_foreign;
    int r = look_around(dir_fd, is_varjfs, &is_rest, &is_foreign);

    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s", how->source);
    }
    if (*is_varjfs && !how->force) {
        return vj_error_set(error, EEXIST,
                            "%s already holds a varjfs file system; -f destroys it",
                            how->source);
    }
    if (is_rest && !how->force) {
        return vj_error_set(error, ENOTEMPTY,
                            "%s has no " VJ_SUPERBLOCK_NAME
                            " but a meta or objects directory that is not empty; "
                            "-f destroys what is in them",
                            how->source);
    }
    return !is_foreign || how->force ||
           vj_error_set(error, ENOTEMPTY,
                        "%s holds other files; -f makes a file system beside them",
                        how->source);
}

/* From here on what is in the directory is no file system. */
static bool mark(int dir_fd, const VjVolumeMake *how, bool is_varjfs, GError **error)
{
    VJ_AUTO_FD fd = -1;
    int failed = 0;

    if (is_varjfs) {
        failed =
            renameat(dir_fd, VJ_SUPERBLOCK_NAME, dir_fd, VJ_MAKING_NAME) < 0 ? errno : 0;
    } else {
        fd = openat(dir_fd, VJ_MAKING_NAME,
                    O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
        failed = fd < 0 ? errno : 0;
    }
    if (failed == 0 && fsync(dir_fd) < 0) {
        failed = errno;
        if (is_varjfs) {
            (void)renameat(dir_fd, VJ_MAKING_NAME, dir_fd, VJ_SUPERBLOCK_NAME);
        } else {
            (void)unlinkat(dir_fd, VJ_MAKING_NAME, 0);
        }
    }
    return failed == 0 ||
           vj_error_set_errno(error, failed, "%s/" VJ_MAKING_NAME, how->source);
}

/* What is left of an older file system, or of a mkfs that was cut off. */
static bool clear_way(int dir_fd, const VjVolumeMake *how, GError **error)
{
    static const char *const trees[] = {VJ_CHECKPOINTS_NAME, "meta", "objects"};
    int r = 0;

    if ((unlinkat(dir_fd, VJ_IN_USE_NAME, 0) < 0 && errno != ENOENT) ||
        (unlinkat(dir_fd, VJ_CLEAN_NAME, 0) < 0 && errno != ENOENT) ||
        (unlinkat(dir_fd, VJ_RESTORING_NAME, 0) < 0 && errno != ENOENT)) {
        return vj_error_set_errno(error, errno, "%s/" VJ_IN_USE_NAME, how->source);
    }
    for (size_t i = 0; r == 0 && i < G_N_ELEMENTS(trees); i++) {
        r = remove_tree(how, dir_fd, trees[i], 0);
    }
    return r == 0 ||
           vj_error_set_errno(error, -r, "%s: what is left of an older file system",
                              how->source);
}

/* ---- the contents ------------------------------------------------------------------ */

static int root_body(VjTxn *txn, void *opaque)
{
    struct timespec now = vj_clock_real();
    VjInode root = {.ino = VJ_INO_ROOT,
                    .generation = 1,
                    .mode = S_IFDIR | 0755,
                    .uid = getuid(),
                    .gid = getgid(),
                    .nlink = 2,
                    .atime = now,
                    .mtime = now,
                    .ctime = now,
                    .btime = now,
                    .parent = VJ_INO_ROOT,
                    .next_cookie = 3};

    const VjSuperblock *super = opaque;
    g_autofree char *text = vj_superblock_format(super);
    int r = vj_inode_put(txn, &root);

    r = r < 0 ? r : vj_volume_record_put(txn, super->uuid);
    return r < 0 ? r : vj_superblock_record_put(txn, text);
}

static bool make_meta(int dir_fd, const VjVolumeMake *how, const VjSuperblock *super,
                      GError **error)
{
    g_autofree char *path = g_build_filename(how->source, "meta", NULL);
    VJ_AUTO_FD fd = -1;
    VjMetaPlace place = {.path = path, .create = true};
    VjMeta *meta;
    int r, closed;

    if (mkdirat(dir_fd, "meta", 0700) < 0 && errno != EEXIST) {
        return vj_error_set_errno(error, errno, "%s", path);
    }
    fd = openat(dir_fd, "meta", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return vj_error_set_errno(error, errno, "%s", path);
    }
    place.dir_fd = fd;
    if (!vj_meta_open(super->meta, &place, &meta, error)) {
        return false;
    }
    r = vj_meta_run(meta, VJ_RUN_DEFAULT, root_body, (void *)(uintptr_t)super);
    closed = vj_meta_close(meta);
    r = r < 0 ? r : closed;
    return r == 0 || vj_error_set_errno(error, -r, "%s", path);
}

static bool make_store(int dir_fd, const VjVolumeMake *how, const VjSuperblock *super,
                       GError **error)
{
    g_autofree char *path = g_build_filename(how->source, "objects", NULL);
    VJ_AUTO_FD fd = -1;
    VjStorePlace place = {.path = path, .volume = super->uuid, .create = true};
    VjStore *store;

    if (mkdirat(dir_fd, "objects", 0700) < 0 && errno != EEXIST) {
        return vj_error_set_errno(error, errno, "%s", path);
    }
    fd = openat(dir_fd, "objects", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return vj_error_set_errno(error, errno, "%s", path);
    }
    place.dir_fd = fd;
    if (!vj_store_open(super->store, &place, &store, error)) {
        return false;
    }
    vj_store_close(store);
    return true;
}

/* Under the name that says that the rest is not there yet. */
static bool write_superblock(int dir_fd, const VjVolumeMake *how,
                             const VjSuperblock *super, GError **error)
{
    g_autofree char *text = vj_superblock_format(super);
    VJ_AUTO_FD fd = openat(dir_fd, VJ_MAKING_NAME,
                           O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int r = fd < 0 ? -errno : vj_fd_write_all(fd, text, strlen(text));

    if (r == 0 && fsync(fd) < 0) {
        r = -errno;
    }
    return r == 0 || vj_error_set_errno(error, -r, "%s/" VJ_MAKING_NAME, how->source);
}

static bool go_on(const VjVolumeMake *how, GError **error)
{
    return !is_cancelled(how) ||
           vj_error_set(error, ECANCELED, "%s: interrupted, nothing was made",
                        how->source);
}

/* All is there and durable. */
static bool name_superblock(int dir_fd, const VjVolumeMake *how, GError **error)
{
    int failed;

    if (renameat(dir_fd, VJ_MAKING_NAME, dir_fd, VJ_SUPERBLOCK_NAME) == 0) {
        if (fsync(dir_fd) == 0) {
            return true;
        }
        failed = errno;
        (void)renameat(dir_fd, VJ_SUPERBLOCK_NAME, dir_fd, VJ_MAKING_NAME);
        errno = failed;
    }
    return vj_error_set_errno(error, errno, "%s/" VJ_SUPERBLOCK_NAME, how->source);
}

/* After a failure.  What cannot be removed stays under the mark, as after a crash. */
static void undo(int dir_fd)
{
    int r = remove_tree(NULL, dir_fd, "objects", 0), one;

    one = remove_tree(NULL, dir_fd, "meta", 0);
    r = r < 0 ? r : one;
    if (r < 0 || unlinkat(dir_fd, VJ_MAKING_NAME, 0) < 0) {
        vj_log_warn("what was made cannot be removed: %s; the next mkfs.varjfs does it",
                    g_strerror(r < 0 ? -r : errno));
    }
}

static bool make_in(int dir_fd, const VjVolumeMake *how, const VjSuperblock *super,
                    GError **error)
{
    bool is_varjfs;

    if (!may_make(dir_fd, how, &is_varjfs, error) || !go_on(how, error) ||
        !mark(dir_fd, how, is_varjfs, error) || !clear_way(dir_fd, how, error)) {
        return false;
    }
    if (write_superblock(dir_fd, how, super, error) && go_on(how, error) &&
        make_meta(dir_fd, how, super, error) && go_on(how, error) &&
        make_store(dir_fd, how, super, error) && go_on(how, error) &&
        name_superblock(dir_fd, how, error)) {
        vj_source_close_to_others(dir_fd, how->source);
        return true;
    }
    undo(dir_fd);
    return false;
}

static bool lock_and_make(int dir_fd, const VjVolumeMake *how, const VjSuperblock *super,
                          GError **error)
{
    VJ_AUTO_FD lock_fd = -1;

    return vj_source_lock(dir_fd, how->source, 0, &lock_fd, error) &&
           make_in(dir_fd, how, super, error);
}

bool vj_volume_make(const VjVolumeMake *how, GError **error)
{
    g_autoptr(VjOpts) opts = vj_opts_new(vj_volume_make_options);
    VjSuperblock super = {0};
    VJ_AUTO_FD dir_fd = -1;
    bool made, is_new;

    if (how->options != NULL && !vj_opts_parse(opts, how->options, error)) {
        return false;
    }
    if (!choose(opts, how->may_forget, &super, error)) {
        vj_superblock_clear(&super);
        return false;
    }
    is_new = mkdir(how->source, 0700) == 0;
    if (!is_new && errno != EEXIST) {
        vj_superblock_clear(&super);
        return vj_error_set_errno(error, errno, "%s", how->source);
    }
    /* Whoever may rename what we have just made leads us nowhere. */
    dir_fd =
        open(how->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (is_new ? O_NOFOLLOW : 0));
    if (dir_fd >= 0 && how->opened != NULL) {
        how->opened(how->opaque, dir_fd, is_new);
    }
    made = dir_fd >= 0 ? lock_and_make(dir_fd, how, &super, error)
                       : vj_error_set_errno(error, errno, "%s", how->source);
    vj_superblock_clear(&super);
    return made;
}
