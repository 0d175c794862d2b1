/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * superblock.c - varjfs.conf: what mkfs decided, as readable text with a checksum
 *
 * "key = value" lines in a fixed order; the last line is the XXH3-64 of all bytes before
 * it.  A value never contains a line break.  What a later version adds is a line with a
 * key of its own: one that is not known here means that this program would misread the
 * volume, so it is refused, unless the key begins with "x-".
 */
#include "volume/volume-private.h"

#include <stdio.h>

#define HEAD                                                                             \
    "# A varjfs volume, made by mkfs.varjfs.  The last line is a checksum of the "       \
    "others.\n"
#define CHECKSUM_KEY "checksum = "
#define FORMAT_KEY "format = "
/* Keys that a program need not know to use the volume begin with it. */
#define HARMLESS_PREFIX "x-"

enum {
    UUID,
    LABEL,
    STORE,
    META,
    HASH,
    CHUNKER,
    OBJECTS,
    SEED,
    TRANSFORM,
    SEQUENCE, /* may be missing: nothing was changed since mkfs */
    KEY_COUNT
};

static const char *const keys[KEY_COUNT] = {
    [UUID] = "uuid",         [LABEL] = "label", [STORE] = "store",
    [META] = "meta",         [HASH] = "hash",   [CHUNKER] = "chunker",
    [OBJECTS] = "objects",   [SEED] = "seed",   [TRANSFORM] = "transform",
    [SEQUENCE] = "sequence",
};

void vj_superblock_clear(VjSuperblock *s)
{
    g_free(s->uuid);
    g_free(s->label);
    g_free(s->store);
    g_free(s->meta);
    g_free(s->text);
    *s = (VjSuperblock){0};
}

char *vj_superblock_format(const VjSuperblock *s)
{
    g_autofree char *transform_text = vj_transform_text(&s->transform);
    g_autofree char *text = g_strdup_printf(
        HEAD "format = %u\nuuid = %s\nlabel = %s\nstore = %s\nmeta = %s\nhash = %s\n"
             "chunker = %s\nobjects = %u:%u:%u\nseed = %016" G_GINT64_MODIFIER "x\n"
             "transform = %s\n",
        VJ_FORMAT_VERSION, s->uuid, s->label, s->store, s->meta, s->digest->name,
        s->chunker->name, s->sizes.min_bytes, s->sizes.avg_bytes, s->sizes.max_bytes,
        s->chunk_seed, transform_text);

    return g_strdup_printf("%s" CHECKSUM_KEY "%016" G_GINT64_MODIFIER "x\n", text,
                           vj_checksum64(text, strlen(text)));
}

/* All other lines stay as they are, those of later versions that may be ignored too. */
char *vj_superblock_text_with(const char *text, const char *store, uint64_t sequence)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", 0);
    g_autoptr(GString) out = g_string_new(NULL);

    for (size_t i = 0; lines[i] != NULL; i++) {
        if (g_str_has_prefix(lines[i], "store = ")) {
            g_string_append_printf(out, "store = %s\n", store);
        } else if (*lines[i] != '\0' && !g_str_has_prefix(lines[i], "sequence = ") &&
                   !g_str_has_prefix(lines[i], CHECKSUM_KEY)) {
            g_string_append_printf(out, "%s\n", lines[i]);
        }
    }
    g_string_append_printf(out, "sequence = %" G_GUINT64_FORMAT "\n", sequence);
    return g_strdup_printf("%s" CHECKSUM_KEY "%016" G_GINT64_MODIFIER "x\n", out->str,
                           vj_checksum64(out->str, out->len));
}

/* The first @len characters are lower-case hexadecimal digits, and no more are. */
static bool has_hex(const char *text, size_t len)
{
    return strspn(text, "0123456789abcdef") == len;
}

/* The checksum line is there, is the last and is right.  It is one text alone: another
 * that a number is read from as well was damaged. */
static bool check_sum(const char *text, size_t len, GError **error)
{
    const char *line = g_strrstr_len(text, (gssize)len, "\n" CHECKSUM_KEY);
    const char *sum;

    if (line == NULL) {
        return vj_error_set(error, EBADMSG, "it has no checksum line");
    }
    line++;
    sum = line + strlen(CHECKSUM_KEY);
    if (!has_hex(sum, 16) || strcmp(sum + 16, "\n") != 0) {
        return vj_error_set(error, EBADMSG, "its checksum line is damaged");
    }
    if (g_ascii_strtoull(sum, NULL, 16) != vj_checksum64(text, (size_t)(line - text))) {
        return vj_error_set(error, EBADMSG,
                            "its checksum is wrong: it was damaged or edited");
    }
    return true;
}

/* With our format in the place of what stands between @line and @end the checksum is
 * right. */
static bool was_ours(const char *text, const char *line, const char *end)
{
    g_autofree char *ours =
        g_strdup_printf("%.*s%u%s", (int)(line - text), text, VJ_FORMAT_VERSION, end);

    return check_sum(ours, strlen(ours), NULL);
}

/* Before the checksum, whose place or kind may be another in a later version. */
static bool check_format(const char *text, GError **error)
{
    const char *line = strstr(text, "\n" FORMAT_KEY);
    guint64 format;
    char *end;

    if (line == NULL) {
        return vj_error_set(error, EBADMSG, "it has no line \"format\"");
    }
    line += strlen("\n" FORMAT_KEY);
    format = g_ascii_strtoull(line, &end, 10);
    if (!g_ascii_isdigit(*line) || *end != '\n' || format == 0 ||
        (format != VJ_FORMAT_VERSION && was_ours(text, line, end))) {
        return vj_error_set(error, EBADMSG, "its format line is damaged");
    }
    if (format < VJ_FORMAT_VERSION) {
        return vj_error_set(error, EPROTO,
                            "format %" G_GUINT64_FORMAT
                            " was never released: copy the files, with the development "
                            "version that made it, to a volume of format %u",
                            format, VJ_FORMAT_VERSION);
    }
    if (format > VJ_FORMAT_VERSION) {
        return vj_error_set(error, EPROTO,
                            "format %" G_GUINT64_FORMAT
                            " is newer than this program, which knows format %u",
                            format, VJ_FORMAT_VERSION);
    }
    return true;
}

/* Exactly @len lower-case hexadecimal digits. */
static bool is_hex(const char *text, size_t len)
{
    return has_hex(text, len) && text[len] == '\0';
}

static bool read_digest(const char *name, VjSuperblock *out, GError **error)
{
    bool is_known;

    out->digest = vj_digest_by_name(name, &is_known);
    if (out->digest == NULL && is_known) {
        return vj_error_set(error, EOPNOTSUPP,
                            "its digest %s is not built into this program", name);
    }
    return out->digest != NULL ||
           vj_error_set(error, EBADMSG, "unknown digest \"%s\"", name);
}

static bool read_chunker(const char *name, const char *sizes, VjSuperblock *out,
                         GError **error)
{
    unsigned min, avg, max;
    char rest;
    g_autoptr(VjChunker) probe = NULL;

    out->chunker = vj_chunk_by_name(name);
    if (out->chunker == NULL) {
        return vj_error_set(error, EOPNOTSUPP,
                            "its chunker %s is not built into this program", name);
    }
    if (sscanf(sizes, "%u:%u:%u%c", &min, &avg, &max, &rest) != 3) {
        return vj_error_set(error, EBADMSG, "object sizes \"%s\" are damaged", sizes);
    }
    out->sizes = (VjChunkSizes){.min_bytes = min, .avg_bytes = avg, .max_bytes = max};
    if (vj_chunker_new(out->chunker, out->sizes, 0, &probe) < 0) {
        return vj_error_set(error, EBADMSG, "object sizes \"%s\" are out of range",
                            sizes);
    }
    return true;
}

static bool read_seed(const char *text, VjSuperblock *out, GError **error)
{
    if (!is_hex(text, 16)) {
        return vj_error_set(error, EBADMSG, "seed \"%s\" is damaged", text);
    }
    out->chunk_seed = g_ascii_strtoull(text, NULL, 16);
    return true;
}

static bool read_values(const char *const v[KEY_COUNT], VjSuperblock *out, GError **error)
{
    uint8_t uuid[16];

    for (size_t i = 0; i < KEY_COUNT; i++) {
        if (v[i] == NULL && i != SEQUENCE) {
            return vj_error_set(error, EBADMSG, "it has no line \"%s\"", keys[i]);
        }
    }
    if (!vj_uuid_parse(v[UUID], uuid)) {
        return vj_error_set(error, EBADMSG, "uuid \"%s\" is damaged", v[UUID]);
    }
    out->uuid = g_strdup(v[UUID]);
    out->label = g_strdup(v[LABEL]);
    out->store = g_strdup(v[STORE]);
    out->meta = g_strdup(v[META]);
    if (v[SEQUENCE] != NULL && !g_ascii_string_to_unsigned(v[SEQUENCE], 10, 1, UINT64_MAX,
                                                           &out->sequence, NULL)) {
        return vj_error_set(error, EBADMSG, "sequence \"%s\" is damaged", v[SEQUENCE]);
    }
    if (!read_seed(v[SEED], out, error) || !read_digest(v[HASH], out, error) ||
        !read_chunker(v[CHUNKER], v[OBJECTS], out, error) ||
        !vj_transform_parse(v[TRANSFORM], &out->transform, error)) {
        return false;
    }
    return true;
}

/* Sets what the line says; it loses its line end, and gets a NUL behind its key. */
static bool read_line(char *line, const char *v[KEY_COUNT], GError **error)
{
    char *equals = strstr(line, " = ");

    if (equals == NULL) {
        return vj_error_set(error, EBADMSG, "line \"%s\" is not \"key = value\"", line);
    }
    *equals = '\0';
    for (size_t i = 0; i < KEY_COUNT; i++) {
        if (strcmp(line, keys[i]) != 0) {
            continue;
        }
        if (v[i] != NULL) {
            return vj_error_set(error, EBADMSG, "it has two lines \"%s\"", keys[i]);
        }
        v[i] = equals + 3;
        return true;
    }
    return g_str_has_prefix(line, HARMLESS_PREFIX) ||
           vj_error_set(error, EPROTO, "\"%s\" is of a newer version than this program",
                        line);
}

bool vj_superblock_parse(const char *text, size_t len, VjSuperblock *out, GError **error)
{
    g_auto(GStrv) lines = NULL;
    const char *v[KEY_COUNT] = {NULL};

    *out = (VjSuperblock){0};
    if (strlen(text) != len) {
        return vj_error_set(error, EBADMSG, "it is not text");
    }
    if (!check_format(text, error) || !check_sum(text, len, error)) {
        return false;
    }
    lines = g_strsplit(text, "\n", 0);
    for (size_t i = 0; lines[i] != NULL; i++) {
        bool is_read = g_str_has_prefix(lines[i], FORMAT_KEY) ||
                       g_str_has_prefix(lines[i], CHECKSUM_KEY);

        if (lines[i][0] != '#' && lines[i][0] != '\0' && !is_read &&
            !read_line(lines[i], v, error)) {
            return false;
        }
    }
    if (!read_values(v, out, error)) {
        vj_superblock_clear(out);
        return false;
    }
    return true;
}

/* ---- the file ---------------------------------------------------------------------- */

static char *read_text(const VjPlace *p, size_t *len, GError **error)
{
    if (p->dir_fd >= 0) {
        return vj_file_read_small(p->dir_fd, VJ_SUPERBLOCK_NAME, VJ_SUPERBLOCK_MAX, len,
                                  error);
    }
    if (p->file_fd >= 0) {
        return vj_volume_file_read(p->file_fd, len, error);
    }
    *len = strlen(p->conf);
    return g_strdup(p->conf);
}

/* What a message calls it. */
static const char *text_name(const VjPlace *p)
{
    return p->file_fd >= 0 ? p->name : VJ_SUPERBLOCK_NAME;
}

bool vj_volume_text_check(const char *text, size_t len, GError **error)
{
    VjSuperblock super;

    if (!vj_superblock_parse(text, len, &super, error)) {
        return false;
    }
    vj_superblock_clear(&super);
    return true;
}

bool vj_superblock_read(const VjPlace *p, char **text, VjSuperblock *out, GError **error)
{
    size_t len;

    *text = read_text(p, &len, error);
    if (*text == NULL) {
        return p->file_fd >= 0 && vj_error_prefix(error, "%s", p->name);
    }
    if (!vj_superblock_parse(*text, len, out, error)) {
        return vj_error_prefix(error, "%s", text_name(p));
    }
    out->text = g_strdup(*text);
    return true;
}

/* Of the engine that keeps them in SOURCE. */
static bool has_metadata(const VjPlace *p)
{
    g_auto(VjPlaceDir) dir = VJ_PLACE_DIR_NONE;
    VjMetaPlace place = {.read_only = true};
    uint64_t bytes;

    if (!vj_place_dir_open(p, VJ_META_DIR, vj_meta_needs(VJ_ENGINE_IN_SOURCE), false,
                           &dir, NULL)) {
        return false;
    }
    vj_place_meta_at(p, &dir, &place);
    return vj_meta_file_bytes(VJ_ENGINE_IN_SOURCE, &place, &bytes) == 0;
}

bool vj_superblock_is_lost(const VjPlace *p, const GError *error)
{
    if (p->dir_fd < 0) {
        return false; /* there is nothing to find another one by */
    }
    if (error->code == ENOENT) {
        return !vj_fd_has(p->dir_fd, VJ_MAKING_NAME) &&
               (has_metadata(p) || vj_fd_has(p->dir_fd, VJ_CHECKPOINTS_NAME));
    }
    return error->code == EBADMSG || error->code == EFBIG || error->code == EIO;
}

bool vj_place_read_superblock(const VjPlace *p, VjSuperblock *out, GError **error)
{
    g_autoptr(GError) local = NULL;
    g_autofree char *text = NULL;

    if (vj_superblock_read(p, &text, out, &local)) {
        return true;
    }
    if (vj_superblock_is_lost(p, local)) {
        return vj_error_set(error, EBADMSG,
                            "%s/%s; fsck.varjfs -y looks for a copy of it", p->name,
                            local->message);
    }
    if (local->code == ENOENT) {
        return vj_error_set(error, ENOENT,
                            "%s holds no varjfs file system (no " VJ_SUPERBLOCK_NAME ")",
                            p->name);
    }
    if (p->file_fd >= 0) {
        g_propagate_error(error, g_steal_pointer(&local));
        return false;
    }
    return vj_error_set(error, local->code, "%s/%s", p->name, local->message);
}
