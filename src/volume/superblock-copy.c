/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * superblock-copy.c - copies of varjfs.conf, and putting one in its place
 *
 * A volume cannot be read without its superblock, so the text is there again: in a record
 * of the metadata, which mkfs writes and each writable open makes true again where it
 * differs, and at the end of each checkpoint, for when the metadata cannot be read.  A
 * copy is believed when its own checksum is right, when it names the volume that the
 * metadata or the checkpoint say they are of, and when the store does not belong to
 * another one.
 */
#include "file/inode-format.h"
#include "volume/checkpoint-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Lines that differ, of a damaged superblock; it has about a dozen. */
#define LINES_SHOWN 16u
/* Within one second; also what is damaged may answer that every name is taken. */
#define KEPT_NAMES_MOST 100u

/* ---- the record -------------------------------------------------------------------- */

static VjSlice record_key(void)
{
    return vj_slice(VJ_SUPERBLOCK_KEY, strlen(VJ_SUPERBLOCK_KEY));
}

int vj_superblock_record_put(VjTxn *txn, const char *text)
{
    VjSuperblockHead head = {.magic = GUINT32_TO_LE(VJ_SUPERBLOCK_MAGIC)};
    size_t len = strlen(text), all = sizeof head + len;
    g_autofree uint8_t *bytes = NULL;
    uint64_t sum;

    g_assert(len <= VJ_SUPERBLOCK_MAX);
    bytes = g_malloc(all + sizeof sum);
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, text, len);
    sum = GUINT64_TO_LE(vj_checksum64(bytes, all));
    memcpy(bytes + all, &sum, sizeof sum);
    return vj_txn_put(txn, VJ_SPACE_SYSTEM, record_key(),
                      vj_slice(bytes, all + sizeof sum));
}

int vj_superblock_record_get(VjTxn *txn, char **text)
{
    VjSuperblockHead head;
    VjSlice value;
    size_t len;
    int r = vj_txn_get(txn, VJ_SPACE_SYSTEM, record_key(), &value);

    *text = NULL;
    if (r < 0) {
        return r;
    }
    if (value.len < sizeof head + sizeof(uint64_t)) {
        return -EBADMSG;
    }
    memcpy(&head, value.data, sizeof head);
    len = value.len - sizeof head - sizeof(uint64_t);
    if (GUINT32_FROM_LE(head.magic) != VJ_SUPERBLOCK_MAGIC || head.reserved != 0 ||
        len > VJ_SUPERBLOCK_MAX ||
        vj_le64_get((const uint8_t *)value.data + sizeof head + len) !=
            vj_checksum64(value.data, sizeof head + len)) {
        return -EBADMSG;
    }
    *text = g_strndup((const char *)value.data + sizeof head, len);
    return 0;
}

static int put_body(VjTxn *txn, void *opaque)
{
    return vj_superblock_record_put(txn, opaque);
}

static int get_record_body(VjTxn *txn, void *opaque)
{
    char **text = opaque;

    g_free(*text);
    *text = NULL;
    return vj_superblock_record_get(txn, text);
}

static int read_record(VjMeta *m, char **text)
{
    *text = NULL;
    return vj_meta_view(m, get_record_body, text);
}

void vj_superblock_record_update(VjVolume *v)
{
    g_autofree char *text = NULL;
    int r = read_record(v->meta, &text);

    if (r == 0 && strcmp(text, v->super.text) == 0) {
        return;
    }
    v->copy_mended = r == -EBADMSG;
    if (r == 0 || r == -ENOENT || r == -EBADMSG) {
        r = vj_meta_run(v->meta, VJ_RUN_RELEASE, put_body, v->super.text);
    }
    if (r < 0) {
        v->copy_mended = false;
        vj_log_warn("the copy of " VJ_SUPERBLOCK_NAME
                    " in the metadata cannot be written: %s",
                    g_strerror(-r));
    }
}

void vj_superblock_record_take_newer(VjVolume *v)
{
    g_autofree char *text = NULL;
    g_autoptr(GError) error = NULL;
    VjSuperblock super;

    /* One that is missing or damaged is reported where it is written anew. */
    if (read_record(v->meta, &text) < 0) {
        return;
    }
    if (!vj_superblock_parse(text, strlen(text), &super, &error)) {
        vj_log_warn("the copy of " VJ_SUPERBLOCK_NAME " in the metadata: %s",
                    error->message);
        return;
    }
    if (strcmp(super.uuid, v->super.uuid) != 0 || super.sequence <= v->super.sequence) {
        vj_superblock_clear(&super);
        return;
    }
    vj_log_warn("%s has an older list of nodes than the volume itself, which counts: "
                "\"varjfsctl node refresh MOUNT\" writes it anew",
                v->place->name);
    super.text = g_steal_pointer(&text);
    vj_superblock_clear(&v->super);
    v->super = super;
}

int vj_superblock_record_change(VjVolume *v, const char *text)
{
    int r = vj_meta_run(v->meta, VJ_RUN_DEFAULT, put_body, (void *)(uintptr_t)text);

    return r < 0 ? r : vj_meta_flush(v->meta);
}

/* ---- finding a copy ---------------------------------------------------------------- */

typedef struct Copy {
    char *text;  /* owned */
    char *where; /* "the metadata", "checkpoint 2026…"; owned */
} Copy;

typedef struct Search {
    const VjPlace *place;
    VjMetaFlaw *say;
    void *opaque;
} Search;

static void say(const Search *s, const char *format, ...) G_GNUC_PRINTF(2, 3);

static void say(const Search *s, const char *format, ...)
{
    g_autofree char *line = NULL;
    va_list ap;

    va_start(ap, format);
    line = g_strdup_vprintf(format, ap);
    va_end(ap);
    s->say(s->opaque, line);
}

/* Objects of another volume would be taken for leftovers of a crash. */
static bool store_agrees(const Search *s, const VjSuperblock *super, GError **error)
{
    g_auto(VjPlaceDir) dir = VJ_PLACE_DIR_NONE;
    g_autoptr(GError) local = NULL;
    VjStorePlace place = {.volume = super->uuid, .read_only = true};
    VjStore *store;

    if (!vj_place_dir_open(s->place, VJ_OBJECTS_DIR, vj_store_needs(super->store), false,
                           &dir, NULL)) {
        return true; /* opening the store reports it */
    }
    vj_place_store_at(s->place, &dir, &place);
    if (vj_store_open(super->store, &place, &store, &local)) {
        vj_store_close(store);
        return true;
    }
    if (local->code != EBADMSG) {
        return true;
    }
    g_propagate_error(error, g_steal_pointer(&local));
    return false;
}

/* @owner: the volume that what holds the copy is of. */
static bool is_plausible(const Search *s, const char *text, const uint8_t owner[16],
                         GError **error)
{
    VjSuperblock super;
    uint8_t uuid[16];
    bool ok;

    if (!vj_superblock_parse(text, strlen(text), &super, error)) {
        return false;
    }
    ok = (vj_uuid_parse(super.uuid, uuid) && memcmp(uuid, owner, sizeof uuid) == 0)
             ? store_agrees(s, &super, error)
             : vj_error_set(error, EBADMSG, "it is of another volume");
    vj_superblock_clear(&super);
    return ok;
}

static int read_from(VjMeta *m, uint8_t owner[16], char **text)
{
    int r = vj_volume_record_get(m, owner);

    *text = NULL;
    return r < 0 ? r : read_record(m, text);
}

static bool open_metadata(const Search *s, VjMeta **out, GError **error)
{
    const char *engine = VJ_ENGINE_IN_SOURCE;
    g_auto(VjPlaceDir) dir = VJ_PLACE_DIR_NONE;
    /* What a damaged log has lost is not this record. */
    VjMetaPlace place = {.read_only = true, .salvage = true};
    VjMetaExam exam;
    int r;

    if (!vj_place_dir_open(s->place, VJ_META_DIR, vj_meta_needs(engine), false, &dir,
                           error)) {
        return false;
    }
    vj_place_meta_at(s->place, &dir, &place);
    r = vj_meta_examine(engine, &place, -1, NULL, NULL, &exam);
    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s/%s", dir.path, vj_meta_file(engine));
    }
    return exam.flaws > 0 ? vj_error_set(error, EBADMSG, "they are damaged")
                          : vj_meta_open(engine, &place, out, error);
}

static bool copy_of_metadata(const Search *s, Copy *out, GError **error)
{
    g_autofree char *text = NULL;
    uint8_t owner[16];
    VjMeta *m;
    int r, closed;

    if (!open_metadata(s, &m, error)) {
        return false;
    }
    r = read_from(m, owner, &text);
    closed = vj_meta_close(m);
    r = r < 0 ? r : closed;
    if (r < 0) {
        return r == -ENOENT    ? vj_error_set(error, ENOENT, "they have no copy")
               : r == -EBADMSG ? vj_error_set(error, EBADMSG, "the record is damaged")
                               : vj_error_set_errno(error, -r, "the record");
    }
    if (!is_plausible(s, text, owner, error)) {
        return false;
    }
    *out = (Copy){.text = g_steal_pointer(&text), .where = g_strdup("the metadata")};
    return true;
}

static bool copy_of_checkpoint(const Search *s, int dir, const char *name, Copy *out,
                               GError **error)
{
    g_autofree char *text = NULL;
    VJ_AUTO_FD fd = -1;
    VjCheckpointEnd end;
    int r;

    if (!vj_checkpoint_open_whole(dir, name, NULL, &fd, &end, error)) {
        return false;
    }
    r = vj_checkpoint_read_conf(fd, &end, &text);
    if (r < 0) {
        return vj_error_set_errno(error, -r, "its copy");
    }
    if (!is_plausible(s, text, end.uuid, error)) {
        return false;
    }
    *out = (Copy){.text = g_steal_pointer(&text),
                  .where = g_strdup_printf("checkpoint %s", name)};
    return true;
}

static bool copy_of_any_checkpoint(const Search *s, Copy *out)
{
    VJ_AUTO_FD dir = vj_checkpoint_open_dir(s->place, false);
    g_autoptr(GArray) list = NULL;

    if (dir < 0 || vj_checkpoint_list(dir, &list) < 0) {
        return false;
    }
    for (guint i = 0; i < list->len; i++) {
        const char *name = g_array_index(list, VjCheckpoint, i).name;
        g_autoptr(GError) why = NULL;

        if (copy_of_checkpoint(s, dir, name, out, &why)) {
            return true;
        }
        say(s, "no copy of " VJ_SUPERBLOCK_NAME " is in checkpoint %s: %s", name,
            why->message);
    }
    return false;
}

static bool find_copy(const Search *s, Copy *out)
{
    g_autoptr(GError) why = NULL;

    if (copy_of_metadata(s, out, &why)) {
        return true;
    }
    say(s, "no copy of " VJ_SUPERBLOCK_NAME " is in the metadata: %s", why->message);
    return copy_of_any_checkpoint(s, out);
}

/* ---- what is wrong with the one that is there -------------------------------------- */

/* One by one: a line that was damaged is a line still, mostly. */
static void say_differences(const Search *s, const char *damaged, const char *right)
{
    g_auto(GStrv) is = g_strsplit(damaged, "\n", 0);
    g_auto(GStrv) be = g_strsplit(right, "\n", 0);

    if (g_strv_length(is) != g_strv_length(be)) {
        say(s, VJ_SUPERBLOCK_NAME ": it has %u lines and should have %u",
            g_strv_length(is), g_strv_length(be));
        return;
    }
    for (guint i = 0, count = 0; be[i] != NULL && count < LINES_SHOWN; i++) {
        if (strcmp(is[i], be[i]) != 0) {
            g_autofree char *shown = vj_one_line(is[i]);

            say(s, VJ_SUPERBLOCK_NAME ": line %u is \"%s\" and should be \"%s\"", i + 1,
                shown, be[i]);
            count++;
        }
    }
}

/* Another name for what is there; false: it has none, and nothing was done. */
static bool keep_damaged(const Search *s, char **kept, GError **error)
{
    int dir_fd = s->place->dir_fd;
    g_autoptr(GDateTime) now = g_date_time_new_now_utc();
    g_autofree char *date = g_date_time_format(now, "%Y%m%dT%H%M%SZ");
    int failed = EEXIST;

    for (unsigned i = 0; i < KEPT_NAMES_MOST && failed == EEXIST; i++) {
        g_autofree char *name =
            i == 0 ? g_strdup_printf(VJ_SUPERBLOCK_NAME ".damaged-%s", date)
                   : g_strdup_printf(VJ_SUPERBLOCK_NAME ".damaged-%s-%u", date, i);

        failed = linkat(dir_fd, VJ_SUPERBLOCK_NAME, dir_fd, name, 0) == 0 ? 0 : errno;
        if (failed == 0) {
            *kept = g_steal_pointer(&name);
        }
    }
    return failed == 0 ||
           vj_error_set_errno(error, failed, "%s/" VJ_SUPERBLOCK_NAME, s->place->name);
}

static bool put_in_place(const Search *s, const Copy *c, bool is_there, GError **error)
{
    g_autofree char *kept = NULL;

    if (is_there && !keep_damaged(s, &kept, error)) {
        return false;
    }
    if (!vj_file_replace_contents(s->place->dir_fd, VJ_SUPERBLOCK_NAME, c->text,
                                  strlen(c->text), 0644, error)) {
        if (kept != NULL) {
            (void)unlinkat(s->place->dir_fd, kept, 0);
        }
        return vj_error_prefix(error, "%s", s->place->name);
    }
    say(s, VJ_SUPERBLOCK_NAME " is the copy that was in %s%s%s; repaired", c->where,
        kept != NULL ? ", and what was there is " : "", kept != NULL ? kept : "");
    return true;
}

/* Under the lock.  @damaged NULL: there is none, or it cannot be read. */
static bool mend(const Search *s, bool is_there, const char *damaged, bool repair,
                 VjSuperblockState *out, GError **error)
{
    Copy c = {NULL, NULL};
    bool ok = true;

    *out = VJ_SUPERBLOCK_DAMAGED;
    if (!find_copy(s, &c)) {
        say(s, "no copy of " VJ_SUPERBLOCK_NAME
               " can be used: it has to come from a backup");
        return true;
    }
    if (damaged != NULL) {
        say_differences(s, damaged, c.text);
    }
    if (repair) {
        ok = put_in_place(s, &c, is_there, error);
        *out = ok ? VJ_SUPERBLOCK_RESTORED : VJ_SUPERBLOCK_DAMAGED;
    } else {
        say(s, "\"fsck.varjfs -y\" puts the copy that is in %s in its place", c.where);
    }
    g_free(c.text);
    g_free(c.where);
    return ok;
}

/* @text: what could be read of it; @why: what is wrong with it; both replace what was
 * there.  False: it is whole, or it cannot be read for a reason that opening the volume
 * reports. */
static bool is_damaged(const VjPlace *p, char **text, GError **why)
{
    VjSuperblock super;

    g_clear_error(why);
    g_clear_pointer(text, g_free);
    if (vj_superblock_read(p, text, &super, why)) {
        vj_superblock_clear(&super);
        return false;
    }
    return vj_superblock_is_lost(p, *why);
}

bool vj_volume_mend_superblock(const char *source, bool repair, int64_t lock_wait_us,
                               VjMetaFlaw *note, void *opaque, VjSuperblockState *out,
                               GError **error)
{
    g_autoptr(VjPlace) p = NULL;
    Search s = {.say = note, .opaque = opaque};
    g_autoptr(GError) why = NULL;
    g_autofree char *text = NULL;

    *out = VJ_SUPERBLOCK_WHOLE;
    if (!vj_place_open(source, &p, error)) {
        return false;
    }
    if (!is_damaged(p, &text, &why)) {
        return true;
    }
    if (!vj_place_lock(p, false, lock_wait_us, error)) {
        return false;
    }
    /* Another process may have mended it before this one had the lock. */
    if (!is_damaged(p, &text, &why)) {
        return true;
    }
    s.place = p;
    say(&s, "%s", why->message);
    return mend(&s, why->code != ENOENT, text, repair, out, error);
}
