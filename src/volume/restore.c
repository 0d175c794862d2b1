/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * restore.c - a checkpoint takes the place of the metadata
 *
 * The store is newer than the metadata then: it has objects that these do not know, and
 * lacks some that they know.  Neither may give a wrong byte.  The first lie under numbers
 * that the counter in the checkpoint would hand out again: so it is raised above all that
 * the store has.  The second are found by the check that follows, which takes them out of
 * the index and marks them as lost.  Inode numbers that were handed out since are not
 * known any more; the counter is raised by more than there can have been, so that no
 * client finds another file under a number that it remembers.
 *
 * A file in SOURCE, durable before anything is changed, keeps every other process out
 * until that has been done.  In it stands, once they are in place, which file the
 * metadata from the checkpoint are, and under which name the old ones were kept: when the
 * rest is cut off and begun again, that file is not needed, and is not kept beside them.
 */
#include "file/inode-format.h"
#include "object/object-format.h"
#include "volume/checkpoint-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Inodes made between a checkpoint and its restore are fewer. */
#define INODES_SINCE ((uint64_t)1 << 24)
/* Objects that were made and removed again since. */
#define OBJECTS_SINCE ((uint64_t)1 << 24)

static bool has_checkpoints(const VjPlace *p, GError **error)
{
    return p->dir_fd >= 0 ||
           vj_error_set(error, EOPNOTSUPP,
                        "%s is a volume file: its metadata are elsewhere, and no "
                        "checkpoint of them is here",
                        p->name);
}

/* ---- choosing ---------------------------------------------------------------------- */

GArray *vj_volume_checkpoints(const char *source, GError **error)
{
    g_autoptr(VjPlace) p = NULL;
    VJ_AUTO_FD dir = -1;
    GArray *list = NULL;
    int r;

    if (!vj_place_open(source, &p, error) || !has_checkpoints(p, error)) {
        return NULL;
    }
    dir = vj_checkpoint_open_dir(p, false);
    r = dir == -ENOENT ? 0 : dir < 0 ? dir : vj_checkpoint_list(dir, &list);
    if (r < 0) {
        vj_error_set_errno(error, -r, "%s/" VJ_CHECKPOINTS_NAME, source);
        return NULL;
    }
    return list != NULL ? list : g_array_new(FALSE, FALSE, sizeof(VjCheckpoint));
}

/* The one that is wanted, or the newest that is whole. */
static bool choose(int dir, const char *wanted, const VjSuperblock *super,
                   VjCheckpoint *chosen, int *fd, VjCheckpointEnd *end, GError **error)
{
    g_autoptr(GArray) list = NULL;
    int r = vj_checkpoint_list(dir, &list);

    if (r < 0) {
        return vj_error_set_errno(error, -r, VJ_CHECKPOINTS_NAME);
    }
    for (guint i = 0; i < list->len; i++) {
        const VjCheckpoint *c = &g_array_index(list, VjCheckpoint, i);
        g_autoptr(GError) why = NULL;

        if (wanted != NULL && strcmp(wanted, c->name) != 0) {
            continue;
        }
        if (vj_checkpoint_open_whole(dir, c->name, super, fd, end, &why)) {
            *chosen = *c;
            return true;
        }
        if (wanted != NULL) {
            g_propagate_error(error, g_steal_pointer(&why));
            return false;
        }
        vj_log_warn("%s", why->message);
    }
    return wanted != NULL
               ? vj_error_set(error, ENOENT, "there is no checkpoint %s", wanted)
               : vj_error_set(error, ENOENT, "there is no checkpoint");
}

/* ---- putting it in place ----------------------------------------------------------- */

/* No other process uses the volume from now on.  @was_there: an earlier restore was cut
 * off. */
static bool mark(int dir_fd, bool *was_there, GError **error)
{
    VJ_AUTO_FD fd = -1;

    *was_there = vj_fd_has(dir_fd, VJ_RESTORING_NAME);
    fd = openat(dir_fd, VJ_RESTORING_NAME, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                0600);
    return (fd >= 0 && fsync(dir_fd) == 0) ||
           vj_error_set_errno(error, errno, VJ_RESTORING_NAME);
}

/* Nothing was changed: the volume is what it was. */
static void unmark(int dir_fd)
{
    if (unlinkat(dir_fd, VJ_RESTORING_NAME, 0) != 0 || fsync(dir_fd) != 0) {
        vj_log_error(VJ_RESTORING_NAME ": cannot be removed: %s", g_strerror(errno));
    }
}

/* Restores within one second; also what is damaged may answer that every name is
 * taken. */
#define KEPT_NAMES_MOST 100u

/* What is kept is called as the file was, and this with the time. */
#define KEPT_WORD ".damaged-"

/* The metadata in their directory. */
typedef struct Old {
    const VjPlace *place;
    int meta_fd;
    const char *path; /* of the directory; for messages */
    const char *file; /* the engine's */
} Old;

static bool has_kept_name(const Old *old, const char *name)
{
    g_autofree char *prefix = g_strdup_printf("%s" KEPT_WORD, old->file);

    return g_str_has_prefix(name, prefix) && strchr(name, '/') == NULL;
}

/* "FILE.damaged-20261120T201903Z"; NULL: they are all taken. */
static char *name_to_keep(const Old *old)
{
    for (unsigned i = 0; i < KEPT_NAMES_MOST; i++) {
        g_autoptr(GDateTime) now = g_date_time_new_now_utc();
        g_autofree char *date = g_date_time_format(now, "%Y%m%dT%H%M%SZ");
        g_autofree char *more = i > 0 ? g_strdup_printf("-%u", i) : g_strdup("");
        g_autofree char *name =
            g_strdup_printf("%s" KEPT_WORD "%s%s", old->file, date, more);

        if (!vj_fd_has(old->meta_fd, name)) {
            return g_steal_pointer(&name);
        }
    }
    return NULL;
}

#define NOTE_MAX 256u

static bool is_another_name(const Old *old, const char *name)
{
    struct stat a, b;

    return fstatat(old->meta_fd, name, &a, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(old->meta_fd, old->file, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Which file the metadata are, also where another one gets its number; owned, NULL: it
 * cannot be found out. */
static char *identity(const Old *old)
{
    struct statx st;

    if (statx(old->meta_fd, old->file, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME,
              &st) != 0 ||
        (st.stx_mask & STATX_BTIME) == 0) {
        return NULL;
    }
    return g_strdup_printf("%ju-%jd.%09u", (uintmax_t)st.stx_ino,
                           (intmax_t)st.stx_btime.tv_sec, st.stx_btime.tv_nsec);
}

/* For the next restore, should what follows be cut off: it may be lost without harm. */
static void note_restored(const Old *old, const char *kept)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *text = NULL;
    g_autofree char *now = identity(old);

    if (kept == NULL || now == NULL) {
        return;
    }
    text = g_strdup_printf("%s %s", kept, now);
    if (!vj_file_replace_contents(old->place->dir_fd, VJ_RESTORING_NAME, text,
                                  strlen(text), 0600, &error)) {
        vj_log_warn("%s", error->message);
    }
}

/* What an earlier restore kept, if the metadata now are what that restore made; owned,
 * else NULL. */
static char *kept_before(const Old *old)
{
    g_autofree char *text =
        vj_file_read_small(old->place->dir_fd, VJ_RESTORING_NAME, NOTE_MAX, NULL, NULL);
    char *space = text == NULL ? NULL : strchr(text, ' ');
    g_autofree char *now = identity(old);
    struct stat kept;

    if (space == NULL) {
        return NULL;
    }
    *space = '\0';
    if (!has_kept_name(old, text) || g_strcmp0(now, space + 1) != 0 ||
        is_another_name(old, text) ||
        fstatat(old->meta_fd, text, &kept, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(kept.st_mode)) {
        return NULL;
    }
    return g_steal_pointer(&text);
}

/* @name is not needed: half a restore, or a second name of the metadata that stay. */
static void forget(const Old *old, const char *name)
{
    if (unlinkat(old->meta_fd, name, 0) != 0 || fsync(old->meta_fd) != 0) {
        vj_log_warn(VJ_META_DIR "/%s: cannot be removed: %s", name, g_strerror(errno));
    }
}

/* The metadata are those of the checkpoint; *kept: the name for those that were there. */
static void name_kept(const Old *old, char *before, char **kept)
{
    if (before != NULL) {
        forget(old, *kept);
        g_free(*kept);
        *kept = before;
    } else if (!vj_fd_has(old->meta_fd, *kept)) {
        g_clear_pointer(kept, g_free); /* there was nothing */
    }
    note_restored(old, *kept);
}

/* The first @bytes of @fd. */
static bool put_in_place(const Old *old, const VjSuperblock *super, int fd,
                         uint64_t bytes, char **kept, GError **error)
{
    VjMetaPlace place = {.dir_fd = old->meta_fd, .path = old->path};
    g_autofree char *before = NULL;
    bool was_marked, replaced;

    *kept = name_to_keep(old);
    if (*kept == NULL) {
        return vj_error_set(error, EEXIST,
                            VJ_META_DIR "/%s" KEPT_WORD "*: too many of them", old->file);
    }
    if (!mark(old->place->dir_fd, &was_marked, error)) {
        return false;
    }
    before = was_marked ? kept_before(old) : NULL;
    if (vj_meta_restore(super->meta, &place, fd, bytes, *kept, &replaced, error)) {
        name_kept(old, g_steal_pointer(&before), kept);
        return true;
    }
    if (!replaced && is_another_name(old, *kept)) {
        forget(old, *kept);
    }
    if (!was_marked && !replaced) {
        unmark(old->place->dir_fd);
    }
    return false;
}

static bool restore_in(const VjPlace *p, const char *name, const VjSuperblock *super,
                       VjCheckpoint *out, char **kept, GError **error)
{
    g_auto(VjPlaceDir) meta = VJ_PLACE_DIR_NONE;
    VJ_AUTO_FD dir = vj_checkpoint_open_dir(p, false);
    VJ_AUTO_FD fd = -1;
    Old old = {.place = p, .file = vj_meta_file(super->meta)};
    VjCheckpointEnd end;

    if (old.file == NULL) {
        return vj_error_set(error, EOPNOTSUPP, "meta=%s has no checkpoints", super->meta);
    }
    if (dir < 0) {
        return dir == -ENOENT ? vj_error_set(error, ENOENT, "there is no checkpoint")
                              : vj_error_set_errno(error, -dir, VJ_CHECKPOINTS_NAME);
    }
    if (!choose(dir, name, super, out, &fd, &end, error) ||
        !vj_place_dir_open(p, VJ_META_DIR, vj_meta_needs(super->meta), true, &meta,
                           error)) {
        return false;
    }
    old.meta_fd = meta.fd;
    old.path = meta.path;
    return put_in_place(&old, super, fd, end.image_bytes, kept, error);
}

bool vj_volume_restore(const char *source, const char *name, int64_t lock_wait_us,
                       VjCheckpoint *out, char **kept, GError **error)
{
    g_autoptr(VjPlace) p = NULL;
    VjSuperblock super;
    bool ok;

    *kept = NULL;
    if (!vj_place_open(source, &p, error) || !has_checkpoints(p, error) ||
        !vj_place_read_superblock(p, &super, error)) {
        return false;
    }
    ok = vj_place_lock(p, false, lock_wait_us, error) &&
         (restore_in(p, name, &super, out, kept, error) ||
          vj_error_prefix(error, "%s", source));
    vj_superblock_clear(&super);
    return ok;
}

/* ---- numbers ----------------------------------------------------------------------- */

static bool see_stored(void *opaque, const VjPut *object, int64_t mtime_us)
{
    uint64_t *most = opaque;

    (void)mtime_us;
    *most = MAX(*most, object->id);
    return true;
}

/* Damaged counters are the repair's, which looks at the store as well. */
static int raise_body(VjTxn *txn, void *opaque)
{
    const uint64_t *most = opaque;
    VjSlice counter = vj_slice(VJ_NEXT_ID_KEY, strlen(VJ_NEXT_ID_KEY)), value;
    uint8_t bytes[VJ_NEXT_ID_BYTES], ino_bytes[VJ_NEXT_INO_BYTES];
    uint64_t next = 1, ino;
    int r = vj_txn_get(txn, VJ_SPACE_SYSTEM, counter, &value);

    r = r == 0 ? vj_next_id_decode(value, &next) : r == -ENOENT ? 0 : r;
    if (r == 0 && MAX(next, *most) < UINT64_MAX - 2 * OBJECTS_SINCE) {
        vj_next_id_encode(MAX(next, *most + 1) + OBJECTS_SINCE, bytes);
        r = vj_txn_put(txn, VJ_SPACE_SYSTEM, counter, vj_slice(bytes, sizeof bytes));
    }
    if (r < 0 && r != -EBADMSG) {
        return r;
    }
    r = vj_ino_next(txn, &ino);
    if (r == 0 && ino < UINT64_MAX / 2 - INODES_SINCE) {
        vj_ino_next_encode(ino + INODES_SINCE, ino_bytes);
        r = vj_txn_put(txn, VJ_SPACE_SYSTEM,
                       vj_slice(VJ_NEXT_INO_KEY, strlen(VJ_NEXT_INO_KEY)),
                       vj_slice(ino_bytes, sizeof ino_bytes));
    }
    return r == -EBADMSG ? 0 : r;
}

int vj_volume_restored(VjVolume *v)
{
    uint64_t most = 0;
    int r = vj_store_each(v->store, 1, UINT64_MAX, see_stored, &most);

    if (r == 0) {
        r = vj_meta_run(v->meta, VJ_RUN_RELEASE, raise_body, &most);
    }
    if (r == 0) {
        r = vj_meta_flush(v->meta);
    }
    v->place->is_restored = r == 0;
    return r;
}
