/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * stored.c - classes of damage: bytes of objects, and the files of SOURCE
 */
#include "sweep.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FOOTER_BYTES 24u

typedef enum How {
    FLIP,
    SMEAR,
    MISSING,
    SHORT,
    LONG,
    SWAPPED,
    AS_DIRECTORY,
    AS_FIFO,
    AS_LINK,
    NO_MODE,
    RENAMED,
    EXTRA,
} How;

/* What of SOURCE. */
typedef enum Kind {
    DATA,      /* of objects: the bytes of blocks */
    TABLE,     /* checksums and ends of blocks */
    FOOTER,    /* of the trailer */
    OBJECT,    /* the file as such */
    FAN_OUT,   /* directories of objects */
    STORE,     /* objects/ */
    STORE_TAG, /* objects/format */
    CONF,      /* varjfs.conf */
    META_DIR,  /* meta/ */
} Kind;

/* ---- which files ------------------------------------------------------------------- */

static bool is_of(const Kept *k, Kind kind)
{
    switch (kind) {
    case DATA:
    case TABLE:
    case FOOTER:
    case OBJECT:
        return k->object != 0;
    case FAN_OUT:
        return k->bytes == NULL && g_str_has_prefix(k->path, "objects/");
    case STORE:
        return strcmp(k->path, "objects") == 0;
    case STORE_TAG:
        return strcmp(k->path, "objects/format") == 0;
    case CONF:
        return strcmp(k->path, "varjfs.conf") == 0;
    default:
        return strcmp(k->path, "meta") == 0;
    }
}

/* Where data, table and footer of an object lie. */
static void bounds(const Kept *k, Kind kind, uint64_t *first, uint64_t *end)
{
    gsize len;
    const uint8_t *bytes = g_bytes_get_data(k->bytes, &len);
    uint64_t data = vj_le32_get(bytes + len - FOOTER_BYTES + 8);

    *first = kind == DATA ? 0 : kind == TABLE ? data : len - FOOTER_BYTES;
    *end = kind == DATA ? data : kind == TABLE ? len - FOOTER_BYTES : len;
}

static uint64_t positions_in(const Kept *k, const Class *c)
{
    uint64_t first = 0, end = k->bytes == NULL ? 0 : g_bytes_get_size(k->bytes);

    if (!is_of(k, (Kind)c->kind)) {
        return 0;
    }
    if (c->kind == DATA || c->kind == TABLE || c->kind == FOOTER) {
        bounds(k, (Kind)c->kind, &first, &end);
    }
    switch ((How)c->how) {
    case FLIP:
        return 8 * (end - first);
    case SMEAR:
    case SHORT:
        return end - first;
    case EXTRA:
        return 6;
    default:
        return 1;
    }
}

static uint64_t positions(const Tree *t, const Class *c)
{
    uint64_t count = 0;

    for (guint i = 0; i < t->kept->len; i++) {
        count += positions_in(&g_array_index(t->kept, Kept, i), c);
    }
    return count;
}

static const Kept *find(const Tree *t, const Class *c, uint64_t *at)
{
    for (guint i = 0; i < t->kept->len; i++) {
        const Kept *k = &g_array_index(t->kept, Kept, i);
        uint64_t count = positions_in(k, c);

        if (*at < count) {
            return k;
        }
        *at -= count;
    }
    g_assert_not_reached();
}

/* ---- what they stand for ----------------------------------------------------------- */

/* The content of the block that holds byte @at of the object's data. */
static void hit_block(const Tree *t, Hit *h, const Kept *k, uint64_t at)
{
    gsize len;
    const uint8_t *bytes = g_bytes_get_data(k->bytes, &len);
    const uint8_t *footer = bytes + len - FOOTER_BYTES;
    uint32_t count = vj_le32_get(footer), block = (uint32_t)(at >> footer[13]);

    if (footer[13] == 16) {
        const uint8_t *ends = footer - 4 * (size_t)count;

        for (block = 0; vj_le32_get(ends + 4 * (size_t)block) <= at; block++) {
        }
    }
    hit_object(t, h, k->object, (uint64_t)block << footer[13],
               ((uint64_t)block + 1) << footer[13]);
}

static void hit_all_objects(const Tree *t, Hit *h)
{
    for (guint i = 0; i < t->kept->len; i++) {
        const Kept *k = &g_array_index(t->kept, Kept, i);

        if (k->object != 0) {
            hit_object(t, h, k->object, 0, UINT32_MAX);
        }
    }
}

static void hit_kind(const Tree *t, const Class *c, const Kept *k, uint64_t at, Hit *h)
{
    switch ((Kind)c->kind) {
    case DATA:
        for (uint64_t i = 0; i < (c->how == SMEAR ? 8 : 1); i++) {
            uint64_t first, end;

            bounds(k, DATA, &first, &end);
            hit_block(t, h, k, MIN(at + i, end - 1));
        }
        break;
    case TABLE:
    case FOOTER:
    case OBJECT:
        if (c->how != EXTRA && c->how != NO_MODE) {
            hit_object(t, h, k->object, 0, UINT32_MAX);
        }
        break;
    case FAN_OUT:
        if (c->how != NO_MODE && c->how != EXTRA) {
            hit_all_objects(t, h);
        }
        break;
    case STORE:
    case STORE_TAG:
    case CONF:
    case META_DIR:
        h->refusable = h->beyond = c->how != NO_MODE && c->how != EXTRA;
        break;
    }
}

/* ---- doing it ---------------------------------------------------------------------- */

static void write_at(const char *path, uint64_t at, const void *bytes, size_t len)
{
    VJ_AUTO_FD fd = open(path, O_WRONLY | O_CREAT, 0600);
    ssize_t n = pwrite(fd, bytes, len, (off_t)at);

    g_assert(n == (ssize_t)len);
}

static void smear(const Kept *k, const char *path, uint64_t at)
{
    gsize len;
    const uint8_t *bytes = g_bytes_get_data(k->bytes, &len);
    uint8_t some[8];
    size_t count = MIN(sizeof some, len - at);

    for (size_t i = 0; i < count; i++) {
        some[i] = bytes[at + i] ^ (uint8_t)(0x59 + i);
    }
    write_at(path, at, some, count);
}

static void flip_bit(const Kept *k, const char *path, uint64_t bit, uint64_t first)
{
    gsize len;
    const uint8_t *bytes = g_bytes_get_data(k->bytes, &len);
    uint8_t byte = bytes[first + bit / 8] ^ (uint8_t)(1u << (bit % 8));

    write_at(path, first + bit / 8, &byte, 1);
}

static void move_away(const char *path, const char *to)
{
    int r = rename(path, to);

    g_assert(r == 0);
}

/* With another object; its files are hit as well. */
static void swap(Tree *t, const Kept *k, const char *path, Hit *h)
{
    g_autofree char *aside = g_strconcat(t->source, "/aside", NULL);
    const Kept *other = k;

    while (other == k || other->object == 0) {
        other = &g_array_index(t->kept, Kept, vj_rng_below(&t->rng, t->kept->len));
    }
    hit_object(t, h, other->object, 0, UINT32_MAX);
    g_autofree char *its = g_build_filename(t->source, other->path, NULL);

    g_string_append_printf(h->what, " with %s", other->path);
    move_away(path, aside);
    move_away(its, path);
    move_away(aside, its);
}

/* Things that nobody put there. */
static void add_extra(const Kept *k, const char *path, uint64_t at)
{
    g_autofree char *dir = k->bytes == NULL ? g_strdup(path) : g_path_get_dirname(path);
    static const char *const names[] = {
        "foreign.txt",                       /* no name of ours */
        "0000000000000001.0123456789abcdef", /* a second put of an object, or misplaced */
        "0000000000000fff.0123456789abcdef", /* a number without a record */
        "000000000002000a.0123456789abcdef", /* of the open id block, in a wrong place */
        "0000000000000001.0123456789abcdeg", /* almost a name */
        "0ff",                               /* as a directory of numbers is called */
    };
    g_autofree char *extra = g_build_filename(dir, names[at], NULL);

    write_at(extra, 0, "something", 9);
}

static void replace(const Tree *t, const Kept *k, const char *path, How how)
{
    g_autofree char *aside = g_strconcat(t->source, "/aside", NULL);
    g_autofree char *renamed = g_strdup(path);
    int r = 0;

    move_away(path, aside);
    if (how == AS_DIRECTORY && k->bytes != NULL) {
        r = mkdir(path, 0700);
    } else if (how == AS_DIRECTORY) {
        write_at(path, 0, "a file", 6);
    } else if (how == AS_FIFO) {
        r = mkfifo(path, 0600);
    } else if (how == AS_LINK) {
        r = symlink(aside, path);
    } else if (how == RENAMED) {
        size_t last = strlen(renamed) - 1;

        renamed[last] = renamed[last] == '0' ? '1' : '0';
        move_away(aside, renamed);
    }
    g_assert(r == 0);
    if (how != AS_LINK && how != RENAMED) {
        g_autofree char *line = g_strdup_printf("rm -r '%s'", aside);

        r = system(line);
        g_assert(r == 0);
    }
}

static void hurt(Tree *t, const Class *c, uint64_t at, Hit *h)
{
    uint64_t place = at, first = 0, end;
    const Kept *k = find(t, c, &place);
    g_autofree char *path = g_build_filename(t->source, k->path, NULL);
    int r = 0;

    if (c->kind == DATA || c->kind == TABLE || c->kind == FOOTER) {
        bounds(k, (Kind)c->kind, &first, &end);
    }
    g_string_append_printf(h->what, "%s place %" G_GUINT64_FORMAT, k->path,
                           first + place);
    hit_kind(t, c, k, c->how == FLIP ? place / 8 : place, h);
    switch ((How)c->how) {
    case FLIP:
        flip_bit(k, path, place, first);
        break;
    case SMEAR:
        smear(k, path, first + place);
        break;
    case SHORT:
        r = truncate(path, (off_t)place);
        break;
    case LONG:
        write_at(path, g_bytes_get_size(k->bytes), "longer\n\n", 8);
        break;
    case SWAPPED:
        swap(t, k, path, h);
        break;
    case NO_MODE:
        r = chmod(path, 0);
        break;
    case EXTRA:
        add_extra(k, path, place);
        break;
    default:
        replace(t, k, path, (How)c->how);
    }
    g_assert(r == 0);
}

void stored_classes(GArray *classes)
{
    static const struct {
        const char *name;
        Kind kind;
        How how;
    } list[] = {
        {"data-flip", DATA, FLIP},
        {"data-smear", DATA, SMEAR},
        {"table-flip", TABLE, FLIP},
        {"table-smear", TABLE, SMEAR},
        {"footer-flip", FOOTER, FLIP},
        {"footer-smear", FOOTER, SMEAR},
        {"file-missing", OBJECT, MISSING},
        {"file-short", OBJECT, SHORT},
        {"file-lengthened", OBJECT, LONG},
        {"file-swapped", OBJECT, SWAPPED},
        {"file-is-directory", OBJECT, AS_DIRECTORY},
        {"file-is-fifo", OBJECT, AS_FIFO},
        {"file-is-link", OBJECT, AS_LINK},
        {"file-no-permission", OBJECT, NO_MODE},
        {"file-renamed", OBJECT, RENAMED},
        {"file-extra", OBJECT, EXTRA},
        {"fan-out-missing", FAN_OUT, MISSING},
        {"fan-out-is-file", FAN_OUT, AS_DIRECTORY},
        {"fan-out-is-link", FAN_OUT, AS_LINK},
        {"fan-out-no-permission", FAN_OUT, NO_MODE},
        {"fan-out-renamed", FAN_OUT, RENAMED},
        {"fan-out-extra", FAN_OUT, EXTRA},
        {"store-missing", STORE, MISSING},
        {"store-is-file", STORE, AS_DIRECTORY},
        {"store-is-link", STORE, AS_LINK},
        {"store-extra", STORE, EXTRA},
        {"format-flip", STORE_TAG, FLIP},
        {"format-short", STORE_TAG, SHORT},
        {"format-lengthened", STORE_TAG, LONG},
        {"format-missing", STORE_TAG, MISSING},
        {"format-is-directory", STORE_TAG, AS_DIRECTORY},
        {"format-is-fifo", STORE_TAG, AS_FIFO},
        {"superblock-flip", CONF, FLIP},
        {"superblock-smear", CONF, SMEAR},
        {"superblock-short", CONF, SHORT},
        {"superblock-lengthened", CONF, LONG},
        {"superblock-missing", CONF, MISSING},
        {"superblock-is-directory", CONF, AS_DIRECTORY},
        {"superblock-is-fifo", CONF, AS_FIFO},
        {"meta-missing", META_DIR, MISSING},
        {"meta-is-file", META_DIR, AS_DIRECTORY},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(list); i++) {
        Class c = {.name = g_strdup(list[i].name),
                   .kind = (int)list[i].kind,
                   .how = (int)list[i].how,
                   .positions = positions,
                   .hurt = hurt};

        g_array_append_val(classes, c);
    }
}
