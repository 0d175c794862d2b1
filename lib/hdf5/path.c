/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * From a location and a path to an object
 *
 * Components are what is between slashes; "." is where one is; ".." is a name as any
 * other. A soft link's target begins at the group that has the link, or at the root.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5-private.h"

void vjh_target_free(struct vjh_target *t)
{
    free(t->path);
    *t = (struct vjh_target){0};
}

char *vjh_path_join(const char *path, const char *name)
{
    char *out = NULL;

    if (!path || asprintf(&out, "%s/%s", strcmp(path, "/") == 0 ? "" : path, name) < 0) {
        return NULL;
    }
    return out;
}

int vjh_check_plist(hid_t plist_id, const char *what)
{
    if (plist_id != H5P_DEFAULT && H5Iget_type(plist_id) != H5I_GENPROP_LST) {
        return vjh_error(-EINVAL, "%s: that is no property list", what);
    }
    return 0;
}

static int walk(struct vjh_container *c, struct vjh_target *t, const char *name,
                unsigned *soft_links);

/* Goes on to what the link @name of the group *t leads to. */
static int step(struct vjh_container *c, struct vjh_target *t, const char *name,
                unsigned *soft_links)
{
    struct vjh_buffer raw;
    struct vjh_link l;
    char *path, *target;
    int r = vjh_link_get(c, t->id, name, &l, &raw);

    if (r == -ENOENT) {
        return vjh_error(r, "%s: there is no link %s%s%s", c->name,
                         t->path ? t->path : "",
                         t->path && strcmp(t->path, "/") != 0 ? "/" : "", name);
    }
    if (r != 0) {
        return r;
    }
    path = vjh_path_join(t->path, name);
    if (l.type == VJH_LINK_HARD) {
        t->id = l.id;
    } else if (++*soft_links > VJH_SOFT_LINKS_MAX) {
        r = vjh_error(-ELOOP, "%s: more than %d soft links lead to one another", name,
                      VJH_SOFT_LINKS_MAX);
    } else {
        target = strndup(l.target.data, l.target.len);
        r = target ? walk(c, t, target, soft_links) : -ENOMEM;
        free(target);
    }
    vjh_buffer_free(&raw);
    if (r != 0) {
        free(path);
        return r;
    }
    free(t->path);
    t->path = path;
    return 0;
}

/* Bytes of the component that *p begins with, behind slashes; 0: none follows. */
static size_t component(const char **p)
{
    *p += strspn(*p, "/");
    return strcspn(*p, "/");
}

static int walk(struct vjh_container *c, struct vjh_target *t, const char *name,
                unsigned *soft_links)
{
    size_t len;

    if (*name == '/') {
        char *root = strdup("/");

        if (!root) {
            return -ENOMEM;
        }
        free(t->path);
        *t = (struct vjh_target){VJH_ROOT_ID, root};
    }
    while ((len = component(&name)) > 0) {
        if (len != 1 || *name != '.') {
            char *s = strndup(name, len);
            int r = s ? step(c, t, s, soft_links) : -ENOMEM;

            free(s);
            if (r != 0) {
                return r;
            }
        }
        name += len;
    }
    return 0;
}

static int begin(const struct vjh_object *from, struct vjh_target *out)
{
    *out = (struct vjh_target){.id = from->node->id};
    if (from->path && !(out->path = strdup(from->path))) {
        return -ENOMEM;
    }
    return 0;
}

static int locate_by_index(struct vjh_object *from, const H5VL_loc_by_idx_t *by,
                           struct vjh_target *out)
{
    struct vjh_container *c = from->file->container;
    unsigned soft_links = 0;
    struct vjh_entries all;
    struct vjh_entry *e;
    int r = vjh_check_plist(by->lapl_id, "link access");

    r = r == 0 ? walk(c, out, by->name, &soft_links) : r;
    if (r == 0) {
        r = vjh_link_by_index(c, out->id, by->idx_type, by->order, by->n, &all, &e);
    }
    if (r == 0) {
        r = step(c, out, e->name, &soft_links);
        vjh_entries_free(&all);
    }
    return r;
}

int vjh_locate(struct vjh_object *from, const H5VL_loc_params_t *loc,
               struct vjh_target *out)
{
    unsigned soft_links = 0;
    int r = begin(from, out);

    if (r != 0) {
        return r;
    }
    switch (loc->type) {
    case H5VL_OBJECT_BY_SELF:
        break;
    case H5VL_OBJECT_BY_NAME:
        r = vjh_check_plist(loc->loc_data.loc_by_name.lapl_id, "link access");
        r = r == 0 ? walk(from->file->container, out, loc->loc_data.loc_by_name.name,
                          &soft_links)
                   : r;
        break;
    case H5VL_OBJECT_BY_IDX:
        r = locate_by_index(from, &loc->loc_data.loc_by_idx, out);
        break;
    case H5VL_OBJECT_BY_TOKEN:
        vjh_target_free(out);
        r = vjh_token_id(loc->loc_data.loc_by_token.token, &out->id);
        break;
    default:
        r = vjh_error(-EINVAL, "a location of an unknown kind");
    }
    if (r != 0) {
        vjh_target_free(out);
    }
    return r;
}

/* ---- what is made ------------------------------------------------------------------ */

/* A group with the defaults between the one and the other. */
static int make_group(struct vjh_container *c, struct vjh_target *t, const char *name,
                      uint8_t cset)
{
    struct vjh_header h = {.kind = VJH_GROUP, .created_us = (uint64_t)vjh_now_us()};
    struct vjh_link l = {
        .type = VJH_LINK_HARD, .cset = cset, .id = vjh_random() >> 1 | 2};
    struct vjh_new new = {0};
    struct vjh_buffer plist;
    int r = vjh_plist_encode(H5P_GROUP_CREATE_DEFAULT, &plist);

    if (r == 0) {
        r = vjh_plist_flags(H5P_GROUP_CREATE_DEFAULT, &h.flags);
    }
    if (r == 0) {
        h.plist = (struct vjh_slice){plist.data, plist.len};
        r = vjh_header_encode(&h, &new.header);
    }
    if (r == 0) {
        r = vjh_link_insert(c, t->id, name, &l, &new);
    }
    vjh_buffer_free(&plist);
    vjh_buffer_free(&new.header);
    return r;
}

static int walk_making(struct vjh_container *c, struct vjh_target *t, const char *name,
                       size_t len, hid_t lcpl_id)
{
    unsigned intermediate = 0, soft_links = 0;
    H5T_cset_t cset = H5T_CSET_ASCII;
    char *s = strndup(name, len);
    int r = s ? step(c, t, s, &soft_links) : -ENOMEM;

    if (r == -ENOENT && lcpl_id != H5P_DEFAULT &&
        H5Pget_create_intermediate_group(lcpl_id, &intermediate) >= 0 && intermediate) {
        H5Pget_char_encoding(lcpl_id, &cset);
        r = make_group(c, t, s, (uint8_t)cset);
        if (r == 0 || r == -EEXIST) {
            r = step(c, t, s, &soft_links);
        }
    }
    free(s);
    return r;
}

/* Links are in groups alone. */
static int check_group(struct vjh_container *c, const struct vjh_target *t)
{
    struct vjh_buffer raw;
    struct vjh_header h;
    int r;

    if (t->id == VJH_ROOT_ID) {
        return 0;
    }
    r = vjh_header_get(c, t->id, &h, &raw);
    if (r == 0) {
        vjh_buffer_free(&raw);
        if (h.kind != VJH_GROUP) {
            r = vjh_error(-ENOTDIR, "%s is no group", t->path ? t->path : "the object");
        }
    }
    return r;
}

int vjh_locate_parent(struct vjh_object *from, const H5VL_loc_params_t *loc,
                      const char *name, hid_t lcpl_id, struct vjh_target *group,
                      char **leaf)
{
    struct vjh_container *c = from->file->container;
    H5VL_loc_params_t base = *loc;
    size_t len;
    int r;

    *leaf = NULL;
    /* The name is given beside the location, also where that has it too. */
    if (base.type == H5VL_OBJECT_BY_NAME) {
        base.type = H5VL_OBJECT_BY_SELF;
    }
    r = vjh_locate(from, &base, group);
    if (r == 0 && *name == '/') {
        unsigned soft_links = 0;

        r = walk(c, group, "/", &soft_links);
    }
    len = component(&name);
    while (r == 0 && len > 0) {
        const char *next = name + len;
        size_t next_len = component(&next);

        if (next_len == 0) {
            *leaf = strndup(name, len);
            r = *leaf ? 0 : -ENOMEM;
        } else if (len != 1 || *name != '.') {
            r = walk_making(c, group, name, len, lcpl_id);
        }
        name = next;
        len = next_len;
    }
    if (r == 0 && (!*leaf || strcmp(*leaf, ".") == 0)) {
        r = vjh_error(-EEXIST, "a link needs a name: \"\", \"/\" and \".\" are none");
    }
    if (r == 0) {
        r = vjh_check_name(*leaf);
    }
    if (r == 0) {
        r = check_group(c, group);
    }
    if (r != 0) {
        free(*leaf);
        *leaf = NULL;
        vjh_target_free(group);
    }
    return r;
}
