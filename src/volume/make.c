/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * make.c - mkfs: what is chosen, and the contents of a new file system
 *
 * Where the drivers keep files they are made in a directory (place-make.c); else what was
 * chosen becomes a volume file (volume-file.c), or is handed to the caller.
 */
#include "volume/volume-private.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LABEL_MAX 255u

const VjOptSpec vj_volume_make_options[] = {
    {.name = "store",
     .type = VJ_OPT_STRING,
     .fallback = "posix",
     .choices = "posix|block|memory|null|remote",
     .is_spec = true,
     .help = "driver that keeps the objects, with its own options as NAME:K=V"},
    {.name = "meta",
     .type = VJ_OPT_STRING,
     .fallback = "lmdb",
     .choices = "lmdb|remote",
     .is_spec = true,
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
    uint8_t b[VJ_UUID_BYTES];
    char text[VJ_UUID_TEXT_BYTES];

    vj_random_bytes(b, sizeof b);
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    vj_uuid_text(b, text);
    return g_strdup(text);
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

static bool make_meta(const VjPlace *p, const VjSuperblock *super, bool force,
                      GError **error)
{
    g_auto(VjPlaceDir) dir = VJ_PLACE_DIR_NONE;
    VjMetaPlace place = {.volume = super->uuid, .create = true, .destroy = force};
    VjMeta *meta;
    int r, closed;

    if (!vj_place_dir_open(p, VJ_META_DIR, vj_meta_needs(super->meta), true, &dir,
                           error)) {
        return false;
    }
    vj_place_meta_at(p, &dir, &place);
    if (!vj_meta_open(super->meta, &place, &meta, error)) {
        return false;
    }
    r = vj_meta_run(meta, VJ_RUN_DEFAULT, root_body, (void *)(uintptr_t)super);
    closed = vj_meta_close(meta);
    r = r < 0 ? r : closed;
    return r == 0 || vj_error_set_errno(error, -r, "%s", dir.path);
}

static bool make_store(const VjPlace *p, const VjSuperblock *super, bool force,
                       GError **error)
{
    g_auto(VjPlaceDir) dir = VJ_PLACE_DIR_NONE;
    VjStorePlace place = {.volume = super->uuid, .create = true, .destroy = force};
    VjStore *store;

    if (!vj_place_dir_open(p, VJ_OBJECTS_DIR, vj_store_needs(super->store), true, &dir,
                           error)) {
        return false;
    }
    vj_place_store_at(p, &dir, &place);
    if (!vj_store_open(super->store, &place, &store, error)) {
        return false;
    }
    vj_store_close(store);
    return true;
}

/* ---- where it is made -------------------------------------------------------------- */

static bool make_in(const VjPlace *p, const VjVolumeMake *how, const VjSuperblock *super,
                    GError **error)
{
    const VjPlaceMake make = {
        .force = how->force, .cancelled = how->cancelled, .opaque = how->opaque};
    g_autofree char *text = vj_superblock_format(super);

    if (!vj_place_make_begin(p, &make, error)) {
        return false;
    }
    if (vj_place_make_superblock(p, text, error) &&
        vj_place_make_go_on(p, &make, error) && make_meta(p, super, how->force, error) &&
        vj_place_make_go_on(p, &make, error) && make_store(p, super, how->force, error) &&
        vj_place_make_go_on(p, &make, error) && vj_place_make_end(p, error)) {
        vj_place_close_to_others(p);
        return true;
    }
    vj_place_make_undo(p);
    return false;
}

static bool lock_and_make(int dir_fd, const VjVolumeMake *how, const VjSuperblock *super,
                          GError **error)
{
    g_autoptr(VjPlace) p = NULL;

    return vj_place_open_at(dir_fd, how->source, &p, error) &&
           vj_place_lock(p, false, 0, error) && make_in(p, how, super, error);
}

static void tell_opened(const VjVolumeMake *how, int dir_fd, bool is_file, bool is_new,
                        const VjSuperblock *super)
{
    g_autoptr(VjOptFiles) files = vj_opt_files_new();
    VjVolumeMaking making = {.dir_fd = dir_fd,
                             .is_file = is_file,
                             .is_new = is_new,
                             .drivers = vj_driver_needs(super),
                             .files = files};

    vj_driver_files(super, files);
    if (how->opened != NULL) {
        how->opened(how->opaque, &making);
    }
}

static bool make_in_directory(const VjVolumeMake *how, const VjSuperblock *super,
                              GError **error)
{
    bool is_new = mkdir(how->source, 0700) == 0;
    VJ_AUTO_FD dir_fd = -1;

    if (!is_new && errno != EEXIST) {
        return vj_error_set_errno(error, errno, "%s", how->source);
    }
    /* A user who may rename the directory that was just made here cannot put a link in
     * its place. */
    dir_fd =
        open(how->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (is_new ? O_NOFOLLOW : 0));
    if (dir_fd < 0) {
        return vj_error_set_errno(error, errno, "%s", how->source);
    }
    tell_opened(how, dir_fd, false, is_new, super);
    return lock_and_make(dir_fd, how, super, error);
}

/* As it will be opened: relative names are beside the file. */
static VjPlace *place_of_file(const VjVolumeMake *how, const VjVolumeFileMake *file,
                              const char *text)
{
    VjPlace *p = vj_place_of_text(how->source, text);

    p->credentials_dir = g_strdup(file->dir);
    p->credentials_dir_fd = fcntl(file->dir_fd, F_DUPFD_CLOEXEC, 0);
    return p;
}

/* *is_begun: something may have been made elsewhere. */
static bool make_elsewhere(const VjVolumeMake *how, VjVolumeFileMake *file,
                           const VjSuperblock *super, bool *is_begun, GError **error)
{
    const VjPlaceMake make = {
        .force = how->force, .cancelled = how->cancelled, .opaque = how->opaque};
    g_autofree char *text = vj_superblock_format(super);
    g_autoptr(VjPlace) p = place_of_file(how, file, text);
    g_autoptr(GError) local = NULL;

    if (!vj_volume_file_make_text(file, text, error) ||
        !vj_place_make_go_on(p, &make, error)) {
        return false;
    }
    if (!make_meta(p, super, how->force, &local)) {
        /* Else it was refused, or the other side was not there. */
        *is_begun = *is_begun || local->code == ETIMEDOUT;
        g_propagate_error(error, g_steal_pointer(&local));
        return false;
    }
    *is_begun = true;
    return vj_place_make_go_on(p, &make, error) &&
           make_store(p, super, how->force, error) &&
           vj_place_make_go_on(p, &make, error) && vj_volume_file_make_end(file, error);
}

static bool make_file(const VjVolumeMake *how, VjSuperblock *super, GError **error)
{
    g_auto(VjVolumeFileMake) file = VJ_VOLUME_FILE_MAKE_NONE;
    bool is_begun, made;

    made = vj_volume_file_make_begin(&file, how->source, how->force, error);
    is_begun = file.uuid != NULL;
    if (is_begun) {
        g_free(super->uuid);
        super->uuid = g_strdup(file.uuid);
    }
    if (made) {
        tell_opened(how, file.dir_fd, true, false, super);
        made = make_elsewhere(how, &file, super, &is_begun, error);
        if (!made) {
            vj_volume_file_make_undo(&file, is_begun);
        }
    }
    return made;
}

/* Something that is there decides; else whether a directory would be of any use. */
static bool is_to_be_file(const char *source, const VjSuperblock *super, bool *is_there)
{
    VjDriverNeeds needs = vj_driver_needs(super);
    struct stat st;

    *is_there = stat(source, &st) == 0;
    return *is_there ? !S_ISDIR(st.st_mode)
                     : ((needs.meta | needs.store) & VJ_NEEDS_FILES) == 0 &&
                           !g_str_has_suffix(source, "/");
}

static bool make_at_source(const VjVolumeMake *how, VjSuperblock *super, GError **error)
{
    VjDriverNeeds needs = vj_driver_needs(super);
    bool is_there;

    if (!is_to_be_file(how->source, super, &is_there)) {
        return make_in_directory(how, super, error);
    }
    if (((needs.meta | needs.store) & VJ_NEEDS_FILES) == 0) {
        return make_file(how, super, error);
    }
    return vj_error_set(error, ENOTDIR,
                        "%s is no directory, and %s keeps files in one; a volume file "
                        "takes meta= and store= that are elsewhere",
                        how->source,
                        (needs.meta & VJ_NEEDS_FILES) != 0 ? super->meta : super->store);
}

/* The place of a volume that has no directory is the text that is returned. */
static bool make_without_directory(const VjVolumeMake *how, const VjSuperblock *super,
                                   GError **error)
{
    g_autofree char *text = vj_superblock_format(super);
    g_autoptr(VjPlace) p = vj_place_of_text(how->source, text);

    if (!make_meta(p, super, how->force, error) ||
        !make_store(p, super, how->force, error)) {
        return false;
    }
    *how->conf = g_steal_pointer(&text);
    return true;
}

bool vj_volume_make(const VjVolumeMake *how, GError **error)
{
    g_autoptr(VjOpts) opts = vj_opts_new(vj_volume_make_options);
    VjSuperblock super = {0};
    bool made;

    if (how->conf != NULL) {
        *how->conf = NULL;
    }
    if (how->options != NULL && !vj_opts_parse(opts, how->options, error)) {
        return false;
    }
    made = choose(opts, how->may_forget, &super, error) &&
           (how->conf != NULL ? make_without_directory(how, &super, error)
                              : make_at_source(how, &super, error));
    vj_superblock_clear(&super);
    return made;
}
