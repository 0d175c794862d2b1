/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * text.c - what varjfsctl shows: pages of text about a file's map and the volume
 */
#include <unistd.h>

#include "fs/fs-private.h"
#include "varjfs/ioctl.h"

const char *vj_fs_mode_name(uint8_t mode)
{
    static const char *const names[] = {"client", "server", "transport"};

    return mode < G_N_ELEMENTS(names) ? names[mode] : "unknown";
}

/* ---- user.varjfs.status ------------------------------------------------------------ */

typedef struct StatusSum {
    GHashTable *own; /* int64 object id → entries of this file that name it */
    uint64_t objects, unique;
} StatusSum;

static bool status_visit(void *opaque, const VjFileExtent *e)
{
    StatusSum *s = opaque;
    gint64 *id;
    gpointer seen;

    if (e->kind != VJ_EXTENT_OBJECT) {
        return true;
    }
    s->objects++;
    id = g_new(gint64, 1);
    *id = (gint64)e->object_id;
    seen = g_hash_table_lookup(s->own, id);
    if (seen == NULL) {
        s->unique++;
    }
    g_hash_table_insert(s->own, id, GUINT_TO_POINTER(GPOINTER_TO_UINT(seen) + 1));
    return true;
}

/* Counts entries that are objects, and distinct objects among them; walks the whole
 * map. */
int vj_fs_status_text(VjFs *fs, uint64_t ino, char **out)
{
    g_autoptr(VjFile) file = NULL;
    g_autofree char *transform_name = NULL;
    StatusSum sum = {.objects = 0};
    VjTransform transform;
    VjInode inode;
    int r = vj_file_getattr(fs->files, ino, &inode);

    *out = NULL;
    if (r < 0) {
        return r;
    }
    if (S_ISREG(inode.mode)) {
        r = vj_file_open(fs->files, ino, &file);
        if (r < 0) {
            return r;
        }
        sum.own = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
        r = vj_file_extents(file, 0, status_visit, &sum);
        g_hash_table_unref(sum.own);
        if (r < 0) {
            return r;
        }
    }
    transform = vj_file_transform(fs->files, &inode);
    transform_name = vj_file_transform_text(fs->files, &inode);
    *out = g_strdup_printf("original_size=%" G_GUINT64_FORMAT "\n"
                           "stored_size=%" G_GUINT64_FORMAT "\n"
                           "objects=%" G_GUINT64_FORMAT "\n"
                           "unique_objects=%" G_GUINT64_FORMAT "\n"
                           "transform=%s\n"
                           "mode=%s\n",
                           inode.size, inode.stored_bytes, sum.objects, sum.unique,
                           transform_name, vj_fs_mode_name(transform.mode));
    return 0;
}

/* Root, and the user who mounted. */
static bool is_owner(const VjCaller *who)
{
    return who->uid == 0 || who->uid == geteuid();
}

/* ---- pages ------------------------------------------------------------------------- */

/* Whole lines up to cap; what did not fit is the next page's. */
typedef struct Page {
    char *dst;
    size_t cap, len;
    uint64_t from; /* lines before this cursor are not wanted */
    uint64_t at;   /* cursor of the line that comes now */
    bool full;
    bool shows_others; /* what depends on the files of other users too */
} Page;

static bool page_line(Page *p, const char *line)
{
    size_t len = strlen(line);

    if (p->full || len > p->cap - p->len) {
        p->full = true;
        return false;
    }
    memcpy(p->dst + p->len, line, len);
    p->len += len;
    return true;
}

static bool map_visit(void *opaque, const VjFileExtent *e)
{
    static const char *const kinds[] = {
        [VJ_EXTENT_OBJECT] = "object",
        [VJ_EXTENT_INLINE] = "inline",
        [VJ_EXTENT_HOLE] = "hole",
        [VJ_EXTENT_FRAGMENT] = "fragment",
    };
    Page *p = opaque;
    char line[512], id[17] = "-", refs[24] = "-";
    char digest[2 * VJ_DIGEST_MAX_BYTES + 1] = "-";
    bool object = e->kind == VJ_EXTENT_OBJECT;

    if (!object) {
        g_strlcpy(refs, e->kind == VJ_EXTENT_HOLE ? "0" : "1", sizeof refs);
    } else if (p->shows_others) {
        g_snprintf(refs, sizeof refs, "%" G_GUINT64_FORMAT, e->refs);
        g_snprintf(id, sizeof id, "%016" G_GINT64_MODIFIER "x", e->object_id);
        for (size_t i = 0; i < e->digest_len; i++) {
            g_snprintf(digest + 2 * i, 3, "%02x", e->digest.bytes[i]);
        }
    }
    g_snprintf(line, sizeof line,
               "%" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT " %s %s %" G_GUINT64_FORMAT
               " %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT " %s %s %u\n",
               e->offset, e->length, kinds[e->kind], id, object ? e->object_start : 0,
               object ? e->object_bytes : 0,
               e->kind == VJ_EXTENT_HOLE ? 0 : e->stored_bytes, refs, digest, e->codec);
    p->at = e->offset;
    return page_line(p, line);
}

static int text_map(VjFs *fs, uint64_t ino, Page *p)
{
    g_autoptr(VjFile) file = NULL;
    VjInode inode;
    int r = vj_file_getattr(fs->files, ino, &inode);

    if (r < 0) {
        return r;
    }
    if (!S_ISREG(inode.mode)) {
        return S_ISDIR(inode.mode) ? -EISDIR : -EINVAL;
    }
    if (p->from > inode.size) {
        return 0; /* cut off since the last page */
    }
    r = vj_file_open(fs->files, ino, &file);
    return r < 0 ? r : vj_file_extents(file, p->from, map_visit, p);
}

/* A line of a list that is short: the cursor is its number.  Full: the next page begins
 * with it. */
static void text_line(Page *p, const char *text)
{
    g_autofree char *line = g_strdup_printf("%s\n", text);

    if (!p->full && (p->at < p->from || page_line(p, line))) {
        p->at++;
    }
}

static void text_pair(Page *p, const char *name, const char *value)
{
    g_autofree char *line = g_strdup_printf("%s=%s", name, value);

    text_line(p, line);
}

static void list_line(Page *p, const char *name, uint64_t value)
{
    char text[24];

    g_snprintf(text, sizeof text, "%" G_GUINT64_FORMAT, value);
    text_pair(p, name, text);
}

/* A figure that would show a writer whether another user has stored the same content. */
static void telling_line(Page *p, const char *name, uint64_t value)
{
    if (p->shows_others) {
        list_line(p, name, value);
    } else {
        text_pair(p, name, "-");
    }
}

static int text_df(VjFs *fs, Page *p)
{
    VjVolumeUsage u;
    int r = vj_volume_usage(fs->volume, &u);

    if (r < 0) {
        return r;
    }
    list_line(p, "total_bytes", u.space.total_bytes);
    list_line(p, "free_bytes", u.space.free_bytes);
    list_line(p, "available_bytes", u.space.available_bytes);
    list_line(p, "reserved_bytes", u.reserved_bytes);
    list_line(p, "inodes", u.inodes);
    telling_line(p, "objects", u.objects);
    telling_line(p, "object_plain_bytes", u.object_plain_bytes);
    telling_line(p, "object_stored_bytes", u.object_stored_bytes);
    list_line(p, "dirty_bytes", u.dirty_bytes);
    telling_line(p, "cache_bytes", u.cache_bytes);
    return 0;
}

static int text_scrub(VjFs *fs, Page *p)
{
    VjScrubStatus s;
    int r = vj_volume_scrub_status(fs->volume, &s);

    if (r < 0) {
        return r;
    }
    list_line(p, "place", s.place);
    list_line(p, "pass_begun", s.pass.begun_s);
    list_line(p, "pass_objects", s.pass.objects);
    list_line(p, "pass_bytes", s.pass.bytes);
    list_line(p, "pass_damaged", s.pass.damaged);
    list_line(p, "finished", s.finished_s);
    list_line(p, "last_begun", s.last.begun_s);
    list_line(p, "last_objects", s.last.objects);
    list_line(p, "last_bytes", s.last.bytes);
    list_line(p, "last_damaged", s.last.damaged);
    return 0;
}

static void counter_visit(void *opaque, const char *name, uint64_t value)
{
    list_line(opaque, name, value);
}

static int tend_heal(VjFs *fs, VjTend *step)
{
    VjHealed healed = {0};
    int rc = vj_volume_heal(fs->volume, &healed);

    step->cursor = VARJFS_TEND_END;
    step->examined = healed.examined;
    step->found = healed.healed_last;
    step->bad_count = (unsigned)MIN(healed.failed, UINT_MAX);
    return rc;
}

static void text_nodes(VjFs *fs, Page *p)
{
    VjStoreNode node;

    for (unsigned i = 0; vj_volume_node(fs->volume, i, &node); i++) {
        g_autofree char *line = g_strdup_printf(
            "node=%u address=%s state=%s%s weight=%u sent_bytes=%" G_GUINT64_FORMAT
            " received_bytes=%" G_GUINT64_FORMAT " losses=%" G_GUINT64_FORMAT,
            i, *node.address != '\0' ? node.address : "-", node.state,
            node.is_draining ? " draining=1" : "", node.weight, node.sent_bytes,
            node.received_bytes, node.losses);

        text_line(p, line);
    }
}

bool vj_fs_change_nodes(VjFs *fs, const VjCaller *who, const VjNodeChange *change,
                        GError **error)
{
    return is_owner(who) ? vj_volume_change_nodes(fs->volume, change, error)
                         : vj_error_set(error, EPERM, "it is for root and who mounted");
}

int vj_fs_count_at_node(VjFs *fs, const VjCaller *who, const char *address, uint64_t *out)
{
    return is_owner(who) ? vj_volume_count_at_node(fs->volume, address, out) : -EPERM;
}

/* A value is one line, whatever its path has. */
static void tell_pair(void *opaque, const char *name, const char *value)
{
    g_autofree char *line = vj_one_line(value);

    text_pair(opaque, name, line);
}

static void text_conf(VjFs *fs, Page *p)
{
    g_autofree char *conf = vj_volume_conf(fs->volume);
    g_auto(GStrv) lines = g_strsplit(conf, "\n", -1);

    for (size_t i = 0; lines[i] != NULL && lines[i + 1] != NULL; i++) {
        text_line(p, lines[i]);
    }
}

/* A line of one kind: the buckets that are not empty, by their numbers. */
static void call_visit(void *opaque, const char *group, const char *kind,
                       const VjCallSums *sums)
{
    g_autoptr(GString) line = g_string_new(NULL);
    const char *separator = "";

    g_string_printf(line,
                    "group=%s kind=%s calls=%" G_GUINT64_FORMAT
                    " failures=%" G_GUINT64_FORMAT " bytes=%" G_GUINT64_FORMAT
                    " total_ns=%" G_GUINT64_FORMAT " max_ns=%" G_GUINT64_FORMAT
                    " latencies=",
                    group, kind, sums->calls, sums->failures, sums->bytes, sums->total_ns,
                    sums->max_ns);
    for (unsigned i = 0; i < VJ_LATENCY_BUCKETS; i++) {
        if (sums->buckets[i] > 0) {
            g_string_append_printf(line, "%s%u:%" G_GUINT64_FORMAT, separator, i,
                                   sums->buckets[i]);
            separator = ",";
        }
    }
    text_line(opaque, line->str);
}

static void text_calls(VjFs *fs, Page *p)
{
    if (fs->requests != NULL) {
        fs->requests->visit(fs->requests_opaque, call_visit, p);
    }
    vj_volume_calls(fs->volume, call_visit, p);
}

/* Of a path that is longer its end, as that says more; bytes. */
#define BUSY_PATH_MAX 1000u

static void busy_line(Page *p, const char *of, const VjFsBusy *busy, const char *path)
{
    g_autoptr(GString) line = g_string_new(NULL);

    g_string_printf(line,
                    "of=%s id=%" G_GUINT64_FORMAT " requests=%" G_GUINT64_FORMAT
                    " over=%" G_GUINT64_FORMAT " bytes=%" G_GUINT64_FORMAT,
                    of, busy->id, busy->requests, busy->over, busy->bytes);
    if (path != NULL) {
        size_t len = strlen(path);
        bool is_cut = len > BUSY_PATH_MAX;

        g_string_append_printf(line, " path=%s", is_cut ? "..." : "");
        for (path += is_cut ? len - BUSY_PATH_MAX : 0; *path != '\0'; path++) {
            bool is_plain = (unsigned char)*path >= ' ' && *path != 0x7f && *path != '\\';

            g_string_append_printf(line, is_plain ? "%c" : "\\x%02x",
                                   (unsigned char)*path);
        }
    }
    text_line(p, line->str);
}

static void busy_file_visit(void *opaque, const VjFsBusy *busy, const char *path)
{
    busy_line(opaque, "file", busy, path);
}

static void text_busiest(VjFs *fs, Page *p)
{
    g_autofree VjFsBusy *busy = g_new(VjFsBusy, VJ_BUSIEST_MAX);
    unsigned count;

    if (fs->requests == NULL) {
        return;
    }
    count = fs->requests->busiest_files(fs->requests_opaque, busy);
    vj_fs_busy_paths(fs, busy, count, busy_file_visit, p);
    count = fs->requests->busiest_threads(fs->requests_opaque, busy);
    for (unsigned i = 0; i < count; i++) {
        busy_line(p, "thread", &busy[i], NULL);
    }
}

int vj_fs_tend(VjFs *fs, const VjCaller *who, unsigned what, VjTend *step)
{
    if (!is_owner(who)) {
        return -EPERM;
    }
    switch (what) {
    case VARJFS_TEND_GC:
        return vj_volume_gc(fs->volume, step);
    case VARJFS_TEND_SCRUB:
        return vj_volume_scrub(fs->volume, step);
    case VARJFS_TEND_HEAL:
        return tend_heal(fs, step);
    case VARJFS_TEND_GROW:
        step->cursor = VARJFS_TEND_END;
        return vj_volume_grow_store(fs->volume, &step->found_bytes);
    case VARJFS_TEND_CHECKPOINT:
        step->cursor = VARJFS_TEND_END;
        return vj_volume_checkpoint(fs->volume, &step->found_bytes);
    default:
        return -EINVAL;
    }
}

static bool is_for_owner(unsigned what)
{
    return what == VARJFS_TEXT_STATS || what == VARJFS_TEXT_SCRUB ||
           what == VARJFS_TEXT_NODES || what == VARJFS_TEXT_CONF ||
           what == VARJFS_TEXT_CALLS || what == VARJFS_TEXT_BUSIEST ||
           what == VARJFS_TEXT_STORE;
}

int vj_fs_text(VjFs *fs, const VjCaller *who, uint64_t ino, unsigned what,
               uint64_t *cursor, char *dst, size_t cap, size_t *len)
{
    Page p = {.dst = dst, .cap = cap, .from = *cursor, .shows_others = is_owner(who)};
    int r = 0;

    if (!p.shows_others && is_for_owner(what)) {
        return -EPERM;
    }
    switch (what) {
    case VARJFS_TEXT_MAP:
        r = text_map(fs, ino, &p);
        break;
    case VARJFS_TEXT_DF:
        r = text_df(fs, &p);
        break;
    case VARJFS_TEXT_SCRUB:
        r = text_scrub(fs, &p);
        break;
    case VARJFS_TEXT_VOLUME:
        text_pair(&p, "uuid", vj_volume_uuid(fs->volume));
        text_pair(&p, "label", vj_volume_label(fs->volume));
        break;
    case VARJFS_TEXT_STATS:
        vj_volume_counters(fs->volume, counter_visit, &p);
        break;
    case VARJFS_TEXT_CALLS:
        text_calls(fs, &p);
        break;
    case VARJFS_TEXT_BUSIEST:
        text_busiest(fs, &p);
        break;
    case VARJFS_TEXT_NODES:
        text_nodes(fs, &p);
        break;
    case VARJFS_TEXT_CONF:
        text_conf(fs, &p);
        break;
    case VARJFS_TEXT_STORE:
        vj_volume_describe_store(fs->volume, tell_pair, &p);
        break;
    default:
        return -EINVAL;
    }
    if (r < 0) {
        return r;
    }
    *len = p.len;
    *cursor = p.full ? p.at : VARJFS_TEXT_END;
    return 0;
}
