/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Iteration: H5Literate, H5Lvisit, H5Ovisit
 *
 * A group's links are listed first, so that what the program's function does to the group
 * does not matter.  Walks visit an object once, however many links lead to it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5-private.h"

/* Ids that were visited: a table of a power of two, half empty at least. */
struct visited {
    uint64_t *v;
    size_t n, cap;
};

static uint64_t *place(const struct visited *t, uint64_t id)
{
    size_t i = (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (t->cap - 1);

    while (t->v[i] && t->v[i] != id) {
        i = (i + 1) & (t->cap - 1);
    }
    return &t->v[i];
}

/* 1: it was visited before; 0; -ENOMEM. */
static int visit_first(struct visited *t, uint64_t id)
{
    uint64_t *p;

    if (2 * (t->n + 1) > t->cap) {
        struct visited larger = {.cap = t->cap ? 2 * t->cap : 64, .n = t->n};

        larger.v = calloc(larger.cap, sizeof *larger.v);
        if (!larger.v) {
            return -ENOMEM;
        }
        for (size_t i = 0; i < t->cap; i++) {
            if (t->v[i]) {
                *place(&larger, t->v[i]) = t->v[i];
            }
        }
        free(t->v);
        *t = larger;
    }
    p = place(t, id);
    if (*p == id) {
        return 1;
    }
    *p = id;
    t->n++;
    return 0;
}

int vjh_open_id(struct vjh_file *file, uint64_t id, const char *path, hid_t *out)
{
    struct vjh_object *o = NULL;
    struct vjh_buffer raw;
    struct vjh_header h;
    char *copy = path ? strdup(path) : NULL;
    int r = vjh_header_get(file->container, id, &h, &raw);

    *out = H5I_INVALID_HID;
    if (r != 0) {
        free(copy);
        return r;
    }
    r = h.kind == VJH_GROUP     ? vjh_group_new(file, id, copy, &h, &o)
        : h.kind == VJH_DATASET ? vjh_dataset_new(file, id, copy, &h, &o)
                                : vjh_datatype_new(file, id, copy, &h, &o);
    vjh_buffer_free(&raw);
    if (r == 0) {
        *out = H5VLwrap_register(o, o->type);
        if (*out < 0) {
            vjh_object_discard(o);
            r = vjh_error(-EINVAL, "HDF5 gives no identifier for an object");
        }
    }
    return r;
}

/* Those of a group that is @depth groups down. */
static int links_to_visit(struct vjh_container *c, uint64_t group, unsigned depth,
                          H5_index_t index, H5_iter_order_t order,
                          struct vjh_entries *out)
{
    int r;

    if (depth > VJH_DEPTH_MAX) {
        return vjh_error(-ELOOP, "groups are more than %d deep", VJH_DEPTH_MAX);
    }
    r = vjh_links(c, group, index, order, out);
    /* What does not track the order of links is visited by name. */
    return r == -EINVAL ? vjh_links(c, group, H5_INDEX_NAME, order, out) : r;
}

/* ---- links ------------------------------------------------------------------------- */

struct link_walk {
    struct vjh_container *c;
    const H5VL_link_iterate_args_t *args;
    hid_t group_id;
    struct visited visited;
    int error; /* of ours; the program's own value is the result */
};

static char *join(const char *prefix, const char *name)
{
    char *out = NULL;

    return asprintf(&out, "%s%s%s", prefix, *prefix ? "/" : "", name) < 0 ? NULL : out;
}

static herr_t walk_links(struct link_walk *w, uint64_t group, const char *prefix,
                         unsigned depth);

/* The links of what @e leads to, if that is a group that was not visited. */
static herr_t descend(struct link_walk *w, const struct vjh_entry *e, const char *path,
                      unsigned depth)
{
    struct vjh_buffer raw;
    struct vjh_header h;
    int r = visit_first(&w->visited, e->id);

    if (r == 0) {
        r = vjh_header_get(w->c, e->id, &h, &raw);
        if (r == 0) {
            vjh_buffer_free(&raw);
            if (h.kind == VJH_GROUP) {
                return walk_links(w, e->id, path, depth + 1);
            }
        } else if (r == -ENOENT) {
            r = 0; /* it has gone since */
        }
    }
    w->error = r < 0 ? r : 0;
    return w->error ? -1 : 0;
}

static herr_t walk_links(struct link_walk *w, uint64_t group, const char *prefix,
                         unsigned depth)
{
    struct vjh_entries all;
    herr_t ret = 0;

    w->error =
        links_to_visit(w->c, group, depth, w->args->idx_type, w->args->order, &all);
    if (w->error) {
        return -1;
    }
    for (size_t i = 0; ret == 0 && i < all.n; i++) {
        const struct vjh_entry *e = &all.v[i];
        char *path = join(prefix, e->name);
        H5L_info2_t info;

        if (!path) {
            w->error = -ENOMEM;
            ret = -1;
            break;
        }
        vjh_link_info(e, &info);
        ret = w->args->op(w->group_id, path, &info, w->args->op_data);
        if (ret == 0 && e->type == VJH_LINK_HARD) {
            ret = descend(w, e, path, depth);
        }
        free(path);
    }
    vjh_entries_free(&all);
    return ret;
}

static herr_t iterate_links(struct link_walk *w, uint64_t group)
{
    struct vjh_entries all;
    hsize_t first = w->args->idx_p ? *w->args->idx_p : 0;
    herr_t ret = 0;

    w->error = vjh_links(w->c, group, w->args->idx_type, w->args->order, &all);
    if (!w->error && first > 0 && first >= all.n) {
        w->error = vjh_error(-EINVAL, "index %llu: the group has %zu links",
                             (unsigned long long)first, all.n);
    }
    if (w->error) {
        vjh_entries_free(&all);
        return -1;
    }
    for (size_t i = (size_t)first; ret == 0 && i < all.n; i++) {
        H5L_info2_t info;

        vjh_link_info(&all.v[i], &info);
        if (w->args->idx_p) {
            *w->args->idx_p = i + 1;
        }
        ret = w->args->op(w->group_id, all.v[i].name, &info, w->args->op_data);
    }
    vjh_entries_free(&all);
    return ret;
}

herr_t vjh_link_iterate(struct vjh_object *o, const H5VL_loc_params_t *loc,
                        H5VL_link_iterate_args_t *args)
{
    struct link_walk w = {.c = o->file->container, .args = args};
    struct vjh_target t;
    struct vjh_header h;
    struct vjh_buffer raw;
    herr_t ret = -1;

    w.error = vjh_object_find(o, loc, NULL, VJH_GROUP, &t, &h, &raw);
    if (w.error) {
        VJH_RETURN(w.error);
    }
    vjh_buffer_free(&raw);
    w.error = vjh_open_id(o->file, t.id, t.path, &w.group_id);
    if (!w.error) {
        if (args->recursive) {
            w.error = visit_first(&w.visited, t.id);
            ret = w.error ? -1 : walk_links(&w, t.id, "", 0);
        } else {
            ret = iterate_links(&w, t.id);
        }
        H5Idec_ref(w.group_id);
    }
    free(w.visited.v);
    vjh_target_free(&t);
    if (w.error) {
        VJH_RETURN(w.error);
    }
    return ret;
}

/* ---- objects ----------------------------------------------------------------------- */

struct object_walk {
    struct vjh_container *c;
    const H5VL_object_visit_args_t *args;
    hid_t object_id;
    struct visited visited;
    int error;
};

static herr_t visit_object(struct object_walk *w, uint64_t id, const char *path,
                           H5O_type_t *type)
{
    unsigned fields = w->args->fields;
    H5O_info2_t info, basic;

    w->error = vjh_object_info(w->c, id, fields, &info);
    if (!w->error && !(fields & H5O_INFO_BASIC)) {
        w->error = vjh_object_info(w->c, id, H5O_INFO_BASIC, &basic);
        *type = basic.type;
    } else {
        *type = info.type;
    }
    return w->error ? -1 : w->args->op(w->object_id, path, &info, w->args->op_data);
}

static herr_t walk_objects(struct object_walk *w, uint64_t group, const char *prefix,
                           unsigned depth)
{
    struct vjh_entries all;
    herr_t ret = 0;

    w->error =
        links_to_visit(w->c, group, depth, w->args->idx_type, w->args->order, &all);
    if (w->error) {
        return -1;
    }
    for (size_t i = 0; ret == 0 && i < all.n; i++) {
        const struct vjh_entry *e = &all.v[i];
        H5O_type_t type = H5O_TYPE_UNKNOWN;
        char *path;
        int r = e->type == VJH_LINK_HARD ? visit_first(&w->visited, e->id) : 1;

        if (r > 0) {
            continue;
        }
        path = r == 0 ? join(prefix, e->name) : NULL;
        if (!path) {
            w->error = -ENOMEM;
            ret = -1;
            break;
        }
        ret = visit_object(w, e->id, path, &type);
        if (w->error == -ENOENT) {
            w->error = 0; /* it has gone since */
            ret = 0;
        } else if (ret == 0 && type == H5O_TYPE_GROUP) {
            ret = walk_objects(w, e->id, path, depth + 1);
        }
        free(path);
    }
    vjh_entries_free(&all);
    return ret;
}

herr_t vjh_object_visit(struct vjh_object *o, const H5VL_loc_params_t *loc,
                        H5VL_object_visit_args_t *args)
{
    struct object_walk w = {.c = o->file->container, .args = args};
    H5O_type_t type = H5O_TYPE_UNKNOWN;
    struct vjh_target t;
    herr_t ret = -1;

    w.error = vjh_locate(o, loc, &t);
    if (w.error) {
        VJH_RETURN(w.error);
    }
    w.error = vjh_open_id(o->file, t.id, t.path, &w.object_id);
    if (!w.error) {
        w.error = visit_first(&w.visited, t.id);
        ret = w.error ? -1 : visit_object(&w, t.id, ".", &type);
        if (ret == 0 && type == H5O_TYPE_GROUP) {
            ret = walk_objects(&w, t.id, "", 0);
        }
        H5Idec_ref(w.object_id);
    }
    free(w.visited.v);
    vjh_target_free(&t);
    if (w.error) {
        VJH_RETURN(w.error);
    }
    return ret;
}
