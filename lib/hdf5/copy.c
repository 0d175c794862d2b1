/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * H5Ocopy: an object, with its attributes, its data, and what is below it
 *
 * The copy gets its link last: until then nothing leads to it.
 *
 * Others may write what is copied.  Elements are copied before the segments that they
 * refer to; where one of these has gone meanwhile, all of that is copied again.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5-private.h"

#define COPY_BYTES (8u << 20)
/* Of copying what others replace meanwhile. */
#define TRIES_MAX 100

struct pair {
    uint64_t from, to;
};

struct copy {
    struct vjh_file *src_file, *dst_file;
    struct vjh_container *src, *dst;
    unsigned flags; /* H5O_COPY_... */
    struct pair *done;
    size_t n, cap;
    void *buf; /* of COPY_BYTES; NULL: was not needed yet */
};

static uint64_t done_find(const struct copy *w, uint64_t from)
{
    for (size_t i = 0; i < w->n; i++) {
        if (w->done[i].from == from) {
            return w->done[i].to;
        }
    }
    return 0;
}

static int done_add(struct copy *w, uint64_t from, uint64_t to)
{
    if (w->n == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 32;
        struct pair *v = realloc(w->done, cap * sizeof *v);

        if (!v) {
            return -ENOMEM;
        }
        w->done = v;
        w->cap = cap;
    }
    w->done[w->n++] = (struct pair){from, to};
    return 0;
}

/* A committed type is referred to within its file; in another file its copy is, where
 * that is among what is copied, else the type is an ordinary one. */
static uint64_t committed(const struct copy *w, uint64_t id)
{
    uint64_t to = id ? done_find(w, id) : 0;

    return to ? to : w->src == w->dst ? id : 0;
}

/* ---- data -------------------------------------------------------------------------- */

/* @transform: NULL: as the volume has it.  -ENOENT without a text: it has gone since. */
static int copy_object(struct copy *w, const char *from, const char *to,
                       const char *transform)
{
    struct varjfs_object_options options = {.size = sizeof options,
                                            .transform = transform};
    uint64_t offset = 0;
    size_t got = COPY_BYTES;
    int r = 0;

    w->buf = w->buf ? w->buf : malloc(COPY_BYTES);
    if (!w->buf) {
        return -ENOMEM;
    }
    while (r == 0 && got == COPY_BYTES) {
        varjfs_batch *b;

        r = vjh_batch(w->src->connection, false, &b);
        if (r != 0) {
            break;
        }
        r = varjfs_object_read(b, w->src->space, from, w->buf, COPY_BYTES, offset, &got,
                               NULL);
        r = r == 0 ? varjfs_batch_execute(b) : r;
        varjfs_batch_free(b);
        if (r == 0 && got > COPY_BYTES) {
            r = -EIO;
        }
        if (r == 0) {
            r = vjh_batch(w->dst->connection, false, &b);
        }
        if (r == 0) {
            r = offset == 0 ? varjfs_object_create(b, w->dst->space, to, &options, NULL)
                            : 0;
            r = r == 0 ? varjfs_object_write(b, w->dst->space, to, w->buf, got, offset, 0,
                                             NULL)
                       : r;
            r = r == 0 ? varjfs_batch_execute(b) : r;
            varjfs_batch_free(b);
        }
        offset += got;
    }
    return r;
}

/* Of names behind the 16 digits of an object. */
#define SEGMENT_MARK ".v."
#define ATTRIBUTE_MARK ".a."

static bool has_mark(const char *name, const char *mark)
{
    return strncmp(name + 16, mark, 3) == 0;
}

/* Names of segments in order, each with its NUL: those of two lists are compared. */
struct segments {
    char *names;
    size_t len, cap;
};

static int segments_add(struct segments *s, const char *name, size_t len)
{
    if (s->len + len + 1 > s->cap) {
        size_t cap = 2 * s->cap + len + 1024;
        char *names = realloc(s->names, cap);

        if (!names) {
            return -ENOMEM;
        }
        s->names = names;
        s->cap = cap;
    }
    memcpy(s->names + s->len, name, len + 1);
    s->len += len + 1;
    return 0;
}

typedef int name_step(struct copy *w, const char *name, size_t len, void *opaque);

/* Objects whose names begin with @prefix. */
static int each_object(struct copy *w, const char *prefix, name_step *step, void *opaque)
{
    struct varjfs_entry e = {.size = sizeof e};
    varjfs_iterator *i = NULL;
    varjfs *v;
    int r = vjh_varjfs(w->src->connection, &v);

    r = r == 0 ? varjfs_object_iterate(v, w->src->space, prefix, &i) : r;
    while (r == 0) {
        r = varjfs_iterator_next(i, &e);
        if (r <= 0) {
            break;
        }
        r = e.name_len < 16 ? 0 : step(w, e.name, e.name_len, opaque);
    }
    varjfs_iterator_free(i);
    return r;
}

static int segment_step(struct copy *w, const char *name, size_t len, void *opaque)
{
    (void)w;
    return segments_add(opaque, name, len);
}

static int list_segments(struct copy *w, uint64_t id, struct segments *out)
{
    char prefix[48];

    *out = (struct segments){0};
    vjh_data_name(prefix, id);
    strcat(prefix, SEGMENT_MARK);
    return each_object(w, prefix, segment_step, out);
}

/* What is copied of an object's data. */
struct data_copy {
    char prefix[48]; /* of the new names */
    const char *transform;
    bool has_changed; /* a segment has gone since it was listed */
};

static int data_step(struct copy *w, const char *name, size_t len, void *opaque)
{
    struct data_copy *d = opaque;
    char *new_name;
    int r;

    if (has_mark(name, ATTRIBUTE_MARK)) {
        return 0; /* copied with its record */
    }
    new_name = strndup(name, len);
    if (!new_name) {
        return -ENOMEM;
    }
    memcpy(new_name, d->prefix, 16);
    r = copy_object(w, name, new_name, d->transform);
    free(new_name);
    d->has_changed = d->has_changed || (r == -ENOENT && has_mark(name, SEGMENT_MARK));
    return r == -ENOENT ? 0 : r;
}

/* Is one of @before not among @after, or is any where none was?  Then elements may refer
 * to what has gone. */
static bool has_gone(const struct segments *before, const struct segments *after)
{
    size_t at = 0;

    for (size_t i = 0; i < before->len; i += strlen(before->names + i) + 1) {
        while (at < after->len && strcmp(after->names + at, before->names + i) < 0) {
            at += strlen(after->names + at) + 1;
        }
        if (at >= after->len || strcmp(after->names + at, before->names + i) != 0) {
            return true;
        }
    }
    return before->len == 0 && after->len > 0;
}

static int copy_data_once(struct copy *w, uint64_t from, struct data_copy *d)
{
    struct segments before, after = {0};
    char prefix[48];
    int r = list_segments(w, from, &before);

    d->has_changed = false;
    vjh_data_name(prefix, from);
    r = r == 0 ? each_object(w, prefix, data_step, d) : r;
    r = r == 0 ? list_segments(w, from, &after) : r;
    d->has_changed = r == 0 && (d->has_changed || has_gone(&before, &after));
    free(before.names);
    free(after.names);
    return r;
}

/* All objects of @from, but those of attributes. */
static int copy_data(struct copy *w, uint64_t from, uint64_t to, const char *transform)
{
    struct data_copy d = {.transform = transform};
    int r;

    vjh_data_name(d.prefix, to);
    for (int i = 0; i < TRIES_MAX; i++) {
        r = copy_data_once(w, from, &d);
        if (r != 0 || !d.has_changed) {
            return r;
        }
        r = vjh_delete_objects(w->dst, d.prefix);
        if (r != 0) {
            return r;
        }
    }
    return vjh_error(-EBUSY, "H5Ocopy: others replace the data again and again");
}

/* ---- attributes -------------------------------------------------------------------- */

/* Its data, where they stand in an object.  -ENOENT: another process has written the
 * attribute since the record was read. */
static int copy_attribute_data(struct copy *w, uint64_t from, uint64_t to,
                               const struct vjh_attribute_record *rec)
{
    char name[48], new_name[48];

    if (!(rec->flags & VJH_DATA_IN_OBJECT)) {
        return 0;
    }
    snprintf(name, sizeof name, "%016" PRIx64 ATTRIBUTE_MARK "%016" PRIx64, from,
             rec->data_id);
    snprintf(new_name, sizeof new_name, "%016" PRIx64 ATTRIBUTE_MARK "%016" PRIx64, to,
             rec->data_id);
    return copy_object(w, name, new_name, NULL);
}

static int copy_attribute(struct copy *w, uint64_t from, uint64_t to, const char *name)
{
    struct vjh_attribute_record rec;
    struct vjh_buffer raw;
    struct vjh_key key;
    uint64_t last = 0;
    int r = -ENOENT;

    vjh_key_name(&key, from, VJH_KEY_ATTRIBUTE, name);
    for (int i = 0; r == -ENOENT; i++) {
        if (i == TRIES_MAX) {
            return vjh_error(-EBUSY, "attribute %.200s is replaced again and again",
                             name);
        }
        r = vjh_get(w->src, &key, &raw);
        if (r != 0) {
            return r == -ENOENT ? 0 : r; /* it has gone since */
        }
        r = vjh_attribute_decode((struct vjh_slice){raw.data, raw.len}, &rec);
        r = r == 0 ? copy_attribute_data(w, from, to, &rec) : r;
        if (r != 0) {
            vjh_buffer_free(&raw);
        }
        if (r == -ENOENT && rec.data_id == last) {
            return vjh_error(-EIO, "attribute %.200s: its data are missing", name);
        }
        last = rec.data_id;
    }
    if (r == 0) {
        rec.committed_id = committed(w, rec.committed_id);
        r = vjh_attribute_add(w->dst, to, name, &rec);
        vjh_buffer_free(&raw);
    }
    return r;
}

static int copy_attributes(struct copy *w, uint64_t from, uint64_t to)
{
    struct vjh_entries all;
    uint16_t flags;
    int r = vjh_object_flags(w->src, from, &flags);

    r = r == 0 ? vjh_attributes(w->src, from,
                                flags & VJH_ATTRIBUTE_ORDER_TRACKED ? H5_INDEX_CRT_ORDER
                                                                    : H5_INDEX_NAME,
                                H5_ITER_INC, &all)
               : r;
    if (r != 0) {
        return r;
    }
    for (size_t i = 0; r == 0 && i < all.n; i++) {
        r = copy_attribute(w, from, to, all.v[i].name);
    }
    vjh_entries_free(&all);
    return r;
}

/* ---- objects ----------------------------------------------------------------------- */

static int copy_one(struct copy *w, uint64_t from, unsigned depth, uint64_t *to);

static int copy_link(struct copy *w, uint64_t from_group, const char *name,
                     uint64_t to_group, unsigned depth)
{
    struct vjh_buffer raw;
    struct vjh_link l, new;
    uint64_t id;
    int r = vjh_link_get(w->src, from_group, name, &l, &raw);

    if (r != 0) {
        return r == -ENOENT ? 0 : r;
    }
    id = l.id;
    new = l;
    if (l.type == VJH_LINK_SOFT && w->flags & H5O_COPY_EXPAND_SOFT_LINK_FLAG) {
        struct vjh_object at = w->src_file->o;
        struct vjh_node node = {.container = w->src, .id = from_group};
        H5VL_loc_params_t loc = {.obj_type = H5I_GROUP, .type = H5VL_OBJECT_BY_NAME};
        struct vjh_target t;

        at.node = &node;
        loc.loc_data.loc_by_name.name = name;
        r = vjh_locate(&at, &loc, &t);
        if (r == 0) {
            id = t.id;
            new.type = VJH_LINK_HARD;
            new.target = (struct vjh_slice){0};
            vjh_target_free(&t);
        } else if (r == -ENOENT) {
            r = 0; /* a link that leads nowhere is copied as it is */
        }
    }
    if (r == 0 && new.type == VJH_LINK_HARD) {
        r = copy_one(w, id, depth + 1, &new.id);
    }
    r = r == 0 ? vjh_link_insert(w->dst, to_group, name, &new, NULL) : r;
    vjh_buffer_free(&raw);
    return r;
}

static int copy_links(struct copy *w, uint64_t from, uint64_t to, uint16_t flags,
                      unsigned depth)
{
    struct vjh_entries all;
    int r = vjh_links(w->src, from,
                      flags & VJH_LINK_ORDER_TRACKED ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME,
                      H5_ITER_INC, &all);

    for (size_t i = 0; r == 0 && i < all.n; i++) {
        r = copy_link(w, from, all.v[i].name, to, depth);
    }
    vjh_entries_free(&all);
    return r;
}

/* The extent of a dataset, where it was changed. */
static int copy_extent(struct copy *w, uint64_t from, uint64_t to)
{
    struct vjh_buffer raw;
    struct vjh_key key;
    int r;

    vjh_key(&key, from, VJH_KEY_EXTENT);
    r = vjh_get(w->src, &key, &raw);
    if (r == 0) {
        vjh_key(&key, to, VJH_KEY_EXTENT);
        r = vjh_put(w->dst, &key, raw.data, raw.len, 0);
        vjh_buffer_free(&raw);
    }
    return r == -ENOENT ? 0 : r;
}

static int copy_contents(struct copy *w, const struct vjh_header *h, uint64_t from,
                         uint64_t to, unsigned depth)
{
    char *transform = NULL;
    int r = 0;

    if (h->kind == VJH_DATASET) {
        r = copy_extent(w, from, to);
    }
    if (r == 0 && h->transform.len > 0) {
        transform = strndup(h->transform.data, h->transform.len);
        r = transform ? 0 : -ENOMEM;
    }
    r = r == 0 ? copy_data(w, from, to, transform) : r;
    free(transform);
    if (r == 0 && !(w->flags & H5O_COPY_WITHOUT_ATTR_FLAG)) {
        r = copy_attributes(w, from, to);
    }
    if (r == 0 && h->kind == VJH_GROUP &&
        !(w->flags & H5O_COPY_SHALLOW_HIERARCHY_FLAG && depth > 0)) {
        r = copy_links(w, from, to, h->flags, depth);
    }
    return r;
}

static int copy_one(struct copy *w, uint64_t from, unsigned depth, uint64_t *to)
{
    struct vjh_new new = {0};
    struct vjh_buffer raw;
    struct vjh_header h;
    int r;

    *to = done_find(w, from);
    if (*to) {
        return 0;
    }
    if (depth > VJH_DEPTH_MAX) {
        return vjh_error(-ELOOP, "groups are more than %d deep", VJH_DEPTH_MAX);
    }
    r = vjh_header_get(w->src, from, &h, &raw);
    if (r != 0) {
        return r;
    }
    *to = vjh_random() >> 1 | 2;
    h.committed_id = new.committed_id = committed(w, h.committed_id);
    r = done_add(w, from, *to);
    r = r == 0 ? vjh_header_encode(&h, &new.header) : r;
    r = r == 0 ? vjh_header_put(w->dst, *to, &new) : r;
    r = r == 0 ? copy_contents(w, &h, from, *to, depth) : r;
    vjh_buffer_free(&new.header);
    vjh_buffer_free(&raw);
    return r;
}

/* ---- the callback ------------------------------------------------------------------ */

static int copy_flags(hid_t ocpypl_id, unsigned *out)
{
    unsigned refused =
        H5O_COPY_EXPAND_REFERENCE_FLAG | H5O_COPY_MERGE_COMMITTED_DTYPE_FLAG;

    if (H5Pget_copy_object(ocpypl_id, out) < 0) {
        return vjh_error(-EINVAL, "the object copy property list cannot be read");
    }
    if (*out & refused) {
        return vjh_error(-ENOTSUP,
                         "H5Ocopy: varjfs copies no objects that references lead to, and "
                         "merges no committed types");
    }
    return 0;
}

/* What was made before it failed goes again. */
static void undo(struct copy *w)
{
    for (size_t i = w->n; i > 0; i--) {
        vjh_object_remove_unlinked(w->dst, w->done[i - 1].to);
    }
}

static int copy(struct vjh_object *src, const H5VL_loc_params_t *src_loc,
                const char *src_name, struct vjh_object *dst,
                const H5VL_loc_params_t *dst_loc, const char *dst_name, hid_t ocpypl_id,
                hid_t lcpl_id)
{
    struct copy w = {.src_file = src->file,
                     .dst_file = dst->file,
                     .src = src->file->container,
                     .dst = dst->file->container};
    struct vjh_link l = {.type = VJH_LINK_HARD};
    struct vjh_target from = {0}, group = {0};
    struct vjh_buffer raw = {0};
    struct vjh_header h;
    H5T_cset_t cset = H5T_CSET_ASCII;
    char *leaf = NULL;
    int r = vjh_check_writable(dst);

    r = r == 0 ? copy_flags(ocpypl_id, &w.flags) : r;
    r = r == 0 ? vjh_object_find(src, src_loc, src_name, 0, &from, &h, &raw) : r;
    vjh_buffer_free(&raw);
    r = r == 0 ? vjh_locate_parent(dst, dst_loc, dst_name, lcpl_id, &group, &leaf) : r;
    if (r == 0) {
        if (H5Pget_char_encoding(lcpl_id, &cset) >= 0) {
            l.cset = (uint8_t)cset;
        }
        r = vjh_link_get(w.dst, group.id, leaf, &l, &raw);
        vjh_buffer_free(&raw);
        r = r == 0         ? vjh_error(-EEXIST, "there is a link %.200s already", leaf)
            : r == -ENOENT ? 0
                           : r;
        l = (struct vjh_link){.type = VJH_LINK_HARD, .cset = (uint8_t)cset};
    }
    if (r == 0) {
        r = copy_one(&w, from.id, 0, &l.id);
        r = r == 0 ? vjh_link_insert(w.dst, group.id, leaf, &l, NULL) : r;
        if (r != 0) {
            undo(&w);
        }
    }
    free(w.done);
    free(w.buf);
    free(leaf);
    vjh_target_free(&from);
    vjh_target_free(&group);
    return r;
}

herr_t vjh_object_copy(void *src_obj, const H5VL_loc_params_t *src_loc,
                       const char *src_name, void *dst_obj,
                       const H5VL_loc_params_t *dst_loc, const char *dst_name,
                       hid_t ocpypl_id, hid_t lcpl_id, hid_t dxpl_id, void **req)
{
    (void)dxpl_id;
    (void)req;
    VJH_RETURN(
        copy(src_obj, src_loc, src_name, dst_obj, dst_loc, dst_name, ocpypl_id, lcpl_id));
}
