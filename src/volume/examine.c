/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * examine.c - can the metadata engine read what is in SOURCE?
 *
 * An engine believes what it reads.  So its files are examined before it opens them:
 * after a crash, when they are few, and when fsck asks.
 */
#include "volume/volume-private.h"

/* Files up to this size are examined at each mount: it takes about 0.1 s. */
#define EXAMINE_ALWAYS_BYTES (256 * VJ_MIB)

static bool open_meta_dir(const VjPlace *p, const VjSuperblock *super, VjPlaceDir *out,
                          GError **error)
{
    return vj_place_dir_open(p, VJ_META_DIR, vj_meta_needs(super->meta), false, out,
                             error);
}

static VjMetaPlace read_only_place(const VjPlace *p, const VjPlaceDir *dir)
{
    VjMetaPlace place = {.read_only = true};

    vj_place_meta_at(p, dir, &place);
    return place;
}

/* ---- without looking at them ------------------------------------------------------- */

static bool has_metadata(const VjPlace *p, const VjSuperblock *super)
{
    g_auto(VjPlaceDir) dir = VJ_PLACE_DIR_NONE;
    VjMetaPlace place;
    uint64_t bytes;

    if (!open_meta_dir(p, super, &dir, NULL)) {
        return false;
    }
    place = read_only_place(p, &dir);
    return vj_meta_file_bytes(super->meta, &place, &bytes) != -ENOENT;
}

bool vj_volume_is_clean(const char *source)
{
    g_autoptr(VjPlace) p = NULL;
    VjSuperblock super;
    bool has;

    if (!vj_place_open(source, &p, NULL) || p->dir_fd < 0 ||
        !vj_fd_has(p->dir_fd, VJ_CLEAN_NAME) || vj_fd_has(p->dir_fd, VJ_IN_USE_NAME) ||
        vj_fd_has(p->dir_fd, VJ_RESTORING_NAME) ||
        !vj_place_read_superblock(p, &super, NULL)) {
        return false;
    }
    has = has_metadata(p, &super);
    vj_superblock_clear(&super);
    return has;
}

/* ---- before a volume is opened ----------------------------------------------------- */

typedef struct Flaws {
    const char *source;
    char *first; /* owned; NULL: none so far */
} Flaws;

static void note_flaw(void *opaque, const char *text)
{
    Flaws *f = opaque;

    vj_log_error("%s: the metadata are damaged: %s", f->source, text);
    if (f->first == NULL) {
        f->first = g_strdup(text);
    }
}

/* Metadata that are missing are reported also where no examination was asked for. */
static bool is_due(const VjPlace *p, const VjSuperblock *super, VjExamine when,
                   const VjMetaPlace *place)
{
    uint64_t bytes;
    int r = vj_meta_file_bytes(super->meta, place, &bytes);

    return r == -ENOENT || when == VJ_EXAMINE_ALWAYS ||
           (when == VJ_EXAMINE_AUTO &&
            (vj_place_was_left_in_use(p) || r < 0 || bytes <= EXAMINE_ALWAYS_BYTES));
}

bool vj_examine_before_open(const VjPlace *p, const VjSuperblock *super, VjExamine when,
                            const VjMetaPlace *place, GError **error)
{
    Flaws flaws = {.source = p->name};
    g_autofree char *first = NULL;
    VjMetaExam exam;
    int r;

    if (!is_due(p, super, when, place)) {
        return true;
    }
    r = vj_meta_examine(super->meta, place, -1, note_flaw, &flaws, &exam);
    first = flaws.first;
    if (r == -EOPNOTSUPP) {
        return true;
    }
    if (r == -ENOENT) {
        return vj_error_set(error, EBADMSG,
                            "%s/%s is missing: fsck.varjfs --restore puts the newest "
                            "checkpoint in its place",
                            place->path, vj_meta_file(super->meta));
    }
    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s: the metadata cannot be examined",
                                  place->path);
    }
    if (exam.flaws + exam.log_flaws > 0) {
        return vj_error_set(error, EBADMSG,
                            "%s: the metadata are damaged (%s); see fsck.varjfs(8)",
                            p->name, first);
    }
    return true;
}

/* ---- for fsck ---------------------------------------------------------------------- */

/* What is missing is a flaw of its own. */
static void say_missing(const VjSuperblock *super, bool has_dir, VjMetaFlaw *say,
                        void *opaque, VjMetaExam *out)
{
    g_autofree char *line = g_strdup_printf(
        "%s: %s", vj_meta_file(super->meta),
        has_dir ? "it is missing" : "the directory that it was in is missing");

    out->flaws = 1;
    say(opaque, line);
}

static bool examine(const VjPlace *p, const VjSuperblock *super, VjMetaFlaw *say,
                    void *opaque, VjMetaExam *out, GError **error)
{
    g_auto(VjPlaceDir) dir = VJ_PLACE_DIR_NONE;
    g_autoptr(GError) local = NULL;
    bool has_dir = open_meta_dir(p, super, &dir, &local);
    VjMetaPlace place = read_only_place(p, &dir);
    int r = has_dir ? vj_meta_examine(super->meta, &place, -1, say, opaque, out)
                    : -local->code;

    if (!has_dir && r != -ENOENT) {
        g_propagate_error(error, g_steal_pointer(&local));
        return false;
    }
    if (r == -ENOENT) {
        say_missing(super, has_dir, say, opaque, out);
        r = 0;
    }
    return r == 0 || r == -EOPNOTSUPP || vj_error_set_errno(error, -r, "%s", dir.path);
}

bool vj_volume_examine(const char *source, int64_t lock_wait_us, VjMetaFlaw *say,
                       void *opaque, VjMetaExam *out, GError **error)
{
    g_autoptr(VjPlace) p = NULL;
    VjSuperblock super;
    bool ok;

    *out = (VjMetaExam){0};
    if (!vj_place_open(source, &p, error) ||
        !vj_place_read_superblock(p, &super, error)) {
        return false;
    }
    ok = vj_place_lock(p, false, lock_wait_us, error) &&
         examine(p, &super, say, opaque, out, error);
    vj_superblock_clear(&super);
    return ok;
}
