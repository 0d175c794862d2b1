/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * H5Ocopy: an object, with its attributes, its data, and what is below it
 *
 * The copy gets its link last: until then nothing leads to it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5-private.h"

#define COPY_BYTES (8u << 20)

struct pair {
    uint64_t from, to;
};

struct copy {
    struct vjh_file *src_file, *dst_file;
    struct vjh_container *src, *dst;
    unsigned flags; /* H5O_COPY_... */
    struct pair *done;
    size_t n, cap;
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

/* @transform: NULL: as the volume has it. */
static int copy_object(struct copy *w, const char *from, const char *to,
                       const char *transform, void *buf)
{
    struct varjfs_object_options options = {.size = sizeof options,
                                            .transform = transform};
    uint64_t offset = 0;
    size_t got = COPY_BYTES;
    int r = 0;

    while (r == 0 && got == COPY_BYTES) {
        varjfs_batch *b;

        r = vjh_batch(w->src->connection, false, &b);
        if (r != 0) {
            break;
        }
        r = varjfs_object_read(b, w->src->space, from, buf, COPY_BYTES, offset, &got,
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
            r = r == 0
                    ? varjfs_object_write(b, w->dst->space, to, buf, got, offset, 0, NULL)
                    : r;
            r = r == 0 ? varjfs_batch_execute(b) : r;
            varjfs_batch_free(b);
        }
        offset += got;
    }
    return r == -ENOENT ? 0 : r; /* it has gone since */
}

/* All but attributes has the transformation of its dataset. */
static bool is_transformed(const char *name)
{
    return strncmp(name + 16, ".a.", 3) != 0;
}

/* All objects of @from, whose names begin with its 16 digits. */
static int copy_data(struct copy *w, uint64_t from, uint64_t to, const char *transform)
{
    struct varjfs_entry e = {.size = sizeof e};
    varjfs_iterator *i = NULL;
    char prefix[48], new_prefix[48];
    void *buf = NULL;
    varjfs *v;
    int r = vjh_varjfs(w->src->connection, &v);

    vjh_data_name(prefix, from);
    vjh_data_name(new_prefix, to);
    r = r == 0 ? varjfs_object_iterate(v, w->src->space, prefix, &i) : r;
    while (r == 0) {
        char *name, *new_name;

        r = varjfs_iterator_next(i, &e);
        if (r <= 0) {
            break;
        }
        r = 0;
        if (e.name_len < 16) {
            continue;
        }
        if (w->flags & H5O_COPY_WITHOUT_ATTR_FLAG && e.name_len > 18 &&
            !memcmp((const char *)e.name + 16, ".a.", 3)) {
            continue;
        }
        buf = buf ? buf : malloc(COPY_BYTES);
        name = strndup(e.name, e.name_len);
        new_name = name ? strdup(name) : NULL;
        if (buf && new_name) {
            memcpy(new_name, new_prefix, 16);
            r = copy_object(w, name, new_name, is_transformed(name) ? transform : NULL,
                            buf);
        } else {
            r = -ENOMEM;
        }
        free(name);
        free(new_name);
    }
    varjfs_iterator_free(i);
    free(buf);
    return r;
}

/* ---- attributes -------------------------------------------------------------------- */

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
        struct vjh_attribute_record rec;
        struct vjh_buffer raw;
        struct vjh_key key;

        vjh_key_name(&key, from, VJH_KEY_ATTRIBUTE, all.v[i].name);
        r = vjh_get(w->src, &key, &raw);
        if (r == -ENOENT) {
            r = 0;
            continue;
        }
        if (r == 0) {
            r = vjh_attribute_decode((struct vjh_slice){raw.data, raw.len}, &rec);
            rec.committed_id = r == 0 ? committed(w, rec.committed_id) : 0;
            r = r == 0 ? vjh_attribute_add(w->dst, to, all.v[i].name, &rec) : r;
            vjh_buffer_free(&raw);
        }
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
