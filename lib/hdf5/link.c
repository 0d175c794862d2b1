/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Links of groups, and the callbacks of H5L
 *
 * A link, its back reference and its number in creation order change in one atomic batch
 * of exclusive puts, so that processes that add links to one group do not lose any.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5-private.h"

/* Numbers of creation order that others were faster to take. */
#define ORDER_TRIES_MAX 1000

int vjh_check_name(const char *name)
{
    size_t len = strlen(name);

    if (len == 0) {
        return vjh_error(-EINVAL, "an empty name");
    }
    if (len > VJH_LINK_NAME_MAX) {
        return vjh_error(-ENAMETOOLONG, "a name of %zu bytes: %d are the most", len,
                         VJH_LINK_NAME_MAX);
    }
    return 0;
}

/* Puts the rest of a very long name together: *raw, which *l points into, grows. */
static int complete(struct vjh_container *c, uint64_t group, const struct vjh_key *link,
                    struct vjh_link *l, struct vjh_buffer *raw)
{
    struct vjh_key key = *link;
    struct vjh_buffer more;
    size_t target;
    char *longer;
    int r;

    if (!(l->flags & VJH_LONG_NAME)) {
        return 0;
    }
    vjh_key(&key, group, VJH_KEY_LINK_MORE);
    key.len = link->len;
    r = vjh_get(c, &key, &more);
    if (r != 0) {
        return r == -ENOENT ? vjh_error(-EIO, "the name of a link is not whole") : r;
    }
    longer = malloc(raw->len + l->rest.len + more.len + 1);
    if (longer) {
        target = l->target.len
                     ? (size_t)((const char *)l->target.data - (const char *)raw->data)
                     : 0;
        if (raw->len) {
            memcpy(longer, raw->data, raw->len);
        }
        memcpy(longer + raw->len, l->rest.data, l->rest.len);
        memcpy(longer + raw->len + l->rest.len, more.data, more.len);
        l->rest = (struct vjh_slice){longer + raw->len, l->rest.len + more.len};
        l->target.data = longer + target;
        free(raw->data);
        raw->data = longer;
    }
    vjh_buffer_free(&more);
    return longer ? 0 : -ENOMEM;
}

int vjh_link_get(struct vjh_container *c, uint64_t group, const char *name,
                 struct vjh_link *l, struct vjh_buffer *raw)
{
    struct vjh_key key;
    int r;

    *raw = (struct vjh_buffer){0};
    vjh_key_name(&key, group, VJH_KEY_LINK, name);
    r = vjh_get(c, &key, raw);
    if (r == 0) {
        r = vjh_link_decode((struct vjh_slice){raw->data, raw->len}, l);
        r = r == 0 ? complete(c, group, &key, l, raw) : r;
    }
    if (r == 0 && !vjh_name_is(name, l->rest)) {
        r = vjh_error(-EIO, "two long names of links have the same hash");
    }
    if (r != 0) {
        vjh_buffer_free(raw);
    }
    return r;
}

/* ---- creation order ---------------------------------------------------------------- */

static int order_step(void *opaque, struct vjh_slice rest, struct vjh_slice value)
{
    const uint8_t *p = rest.data;
    struct vjh_order *o = opaque;

    (void)value;
    if (rest.len == 0) {
        o->is_first = false;
        return 0;
    }
    for (size_t i = 0; i < 8 && rest.len == 8; i++) {
        o->number = o->number << 8 | p[i];
    }
    return rest.len == 8 ? 1 : -EIO;
}

int vjh_order_next(struct vjh_container *c, uint64_t id, char kind, struct vjh_order *out)
{
    int r;

    *out = (struct vjh_order){.kind = kind, .is_first = true};
    r = vjh_each(c, id, kind, order_step, out);
    if (r < 0) {
        return r;
    }
    return (r == 1) == out->is_first
               ? vjh_error(-EIO, "the creation order of an object is damaged")
               : 0;
}

int vjh_order_add(varjfs_batch *b, struct vjh_container *c, uint64_t id,
                  struct vjh_order *o)
{
    int r;

    o->result = 0;
    if (o->is_first) {
        vjh_key(&o->keys[0], id, o->kind);
        r = varjfs_kv_put(b, c->space, o->keys[0].bytes, o->keys[0].len, NULL, 0,
                          VARJFS_EXCLUSIVE, &o->result);
    } else {
        vjh_key_number(&o->keys[0], id, o->kind, o->number);
        r = varjfs_kv_delete(b, c->space, o->keys[0].bytes, o->keys[0].len, &o->result);
    }
    vjh_key_number(&o->keys[1], id, o->kind, o->number + 1);
    return r == 0 ? varjfs_kv_put(b, c->space, o->keys[1].bytes, o->keys[1].len, NULL, 0,
                                  0, NULL)
                  : r;
}

int vjh_order_try(struct vjh_container *c, uint64_t id, char kind, uint64_t hint,
                  unsigned try, struct vjh_order *out)
{
    if (try == 0 && hint) {
        *out = (struct vjh_order){.kind = kind, .number = hint};
        return 0;
    }
    if (try > ORDER_TRIES_MAX) {
        return vjh_error(-EBUSY, "others are always faster to take a number of the "
                                 "creation order");
    }
    return vjh_order_next(c, id, kind, out);
}

/* ---- making ------------------------------------------------------------------------ */

/* Adds the removal of a link to an atomic batch, which uses @keys. */
static int add_removal(varjfs_batch *b, struct vjh_container *c, uint64_t group,
                       const char *name, const struct vjh_link *l, struct vjh_key keys[3],
                       int *result)
{
    int r;

    vjh_key_name(&keys[0], group, VJH_KEY_LINK, name);
    r = varjfs_kv_delete(b, c->space, keys[0].bytes, keys[0].len, result);
    if (r == 0 && l->flags & VJH_LONG_NAME) {
        vjh_key_name(&keys[1], group, VJH_KEY_LINK_MORE, name);
        r = varjfs_kv_delete(b, c->space, keys[1].bytes, keys[1].len, NULL);
    }
    if (r == 0 && l->type == VJH_LINK_HARD) {
        vjh_key_referrer(&keys[2], l->id, group, name);
        r = varjfs_kv_delete(b, c->space, keys[2].bytes, keys[2].len, NULL);
    }
    return r;
}

/* A link that goes where another one comes. */
struct moved {
    uint64_t group;
    const char *name;
    const struct vjh_link *link;
};

/* What one try of an insertion came to. */
struct insertion {
    int link, group, object, moved;
};

static int insert_once(struct vjh_container *c, uint64_t group, const char *name,
                       const struct vjh_link *l, const struct vjh_new *new,
                       const struct moved *from, struct vjh_order *order,
                       struct insertion *result)
{
    struct vjh_buffer value = {0};
    struct vjh_key key, in, object, referrer, linked, user, more, gone[3];
    struct vjh_link stored = *l;
    varjfs_batch *b = NULL;
    int r;

    *result = (struct insertion){0};
    if (l->rest.len > VJH_REST_MAX) {
        stored.rest.len = VJH_REST_MAX;
        stored.flags |= VJH_LONG_NAME;
    }
    r = vjh_link_encode(&stored, &value);
    if (r == 0) {
        r = vjh_batch(c->connection, true, &b);
    }
    if (r == 0) {
        r = vjh_header_require(b, c, group, &in, &result->group);
    }
    if (r == 0) {
        vjh_key_name(&key, group, VJH_KEY_LINK, name);
        r = varjfs_kv_put(b, c->space, key.bytes, key.len, value.data, value.len,
                          VARJFS_EXCLUSIVE, &result->link);
    }
    if (r == 0 && l->flags & VJH_HAS_ORDER) {
        r = vjh_order_add(b, c, group, order);
    }
    if (r == 0 && stored.flags & VJH_LONG_NAME) {
        vjh_key_name(&more, group, VJH_KEY_LINK_MORE, name);
        r = varjfs_kv_put(b, c->space, more.bytes, more.len,
                          (const char *)l->rest.data + VJH_REST_MAX,
                          l->rest.len - VJH_REST_MAX, 0, NULL);
    }
    if (r == 0 && new) {
        vjh_key(&object, l->id, VJH_KEY_HEADER);
        r = varjfs_kv_put(b, c->space, object.bytes, object.len, new->header.data,
                          new->header.len, VARJFS_EXCLUSIVE, NULL);
    }
    if (r == 0 && new &&new->committed_id) {
        vjh_key_user(&user, new->committed_id, l->id, "");
        r = varjfs_kv_put(b, c->space, user.bytes, user.len, NULL, 0, 0, NULL);
    }
    if (r == 0 && l->type == VJH_LINK_HARD && !new) {
        r = vjh_linked_add(b, c, l->id, &object, &linked, &result->object);
    }
    if (r == 0 && l->type == VJH_LINK_HARD) {
        vjh_key_referrer(&referrer, l->id, group, name);
        r = varjfs_kv_put(b, c->space, referrer.bytes, referrer.len, NULL, 0, 0, NULL);
    }
    if (r == 0 && from) {
        r = add_removal(b, c, from->group, from->name, from->link, gone, &result->moved);
    }
    if (r == 0) {
        r = varjfs_batch_execute(b);
    }
    varjfs_batch_free(b);
    vjh_buffer_free(&value);
    return r;
}

/* @from: NULL, or what goes in the same step. */
static int insert(struct vjh_container *c, uint64_t group, const char *name,
                  struct vjh_link *l, const struct vjh_new *new, const struct moved *from)
{
    struct vjh_node *open = vjh_node_find(c, group);
    struct vjh_order order = {0};
    struct insertion result = {0};
    uint16_t flags;
    int r = vjh_object_flags(c, group, &flags);
    bool is_ordered = r == 0 && flags & VJH_LINK_ORDER_TRACKED;

    l->rest = vjh_name_rest(name);
    l->flags = is_ordered ? VJH_HAS_ORDER : 0;
    l->order = 0;
    for (unsigned try = 0; r == 0; try++) {
        if (is_ordered) {
            r = vjh_order_try(c, group, VJH_KEY_LINK_ORDER,
                              open ? open->next_link_order : 0, try, &order);
            l->order = order.number;
        }
        r = r == 0 ? insert_once(c, group, name, l, new, from, &order, &result) : r;
        if (r == 0 || order.result == 0) {
            break;
        }
        if (order.result == -EEXIST || order.result == -ENOENT) {
            r = 0;
        }
    }
    if (r == 0 && open && is_ordered) {
        open->next_link_order = l->order + 1;
    }
    if (r != 0 && result.link == -EEXIST) {
        return vjh_error(-EEXIST, "there is a link %.200s already", name);
    }
    if (r != 0 && (result.group == -ENOENT || result.object == -ENOENT)) {
        return vjh_error(-ENOENT, "link %.200s: %s has been deleted", name,
                         result.group == -ENOENT ? "the group that is to have it"
                                                 : "the object that it is to lead to");
    }
    if (r != 0 && result.moved == -ENOENT) {
        return vjh_error(-ENOENT, "there is no link %.200s", from->name);
    }
    return r;
}

int vjh_link_insert(struct vjh_container *c, uint64_t group, const char *name,
                    struct vjh_link *l, const struct vjh_new *new)
{
    return insert(c, group, name, l, new, NULL);
}

static int any_step(void *opaque, struct vjh_slice rest, struct vjh_slice value)
{
    (void)opaque;
    (void)rest;
    (void)value;
    return 1;
}

/* Puts the number back to 0, unless another process has taken one since. */
static int set_order_back(struct vjh_container *c, uint64_t group, uint64_t number)
{
    struct vjh_node *open = vjh_node_find(c, group);
    struct vjh_key old, zero;
    varjfs_batch *b;
    int r = vjh_batch(c->connection, true, &b);

    if (r != 0) {
        return r;
    }
    vjh_key_number(&old, group, VJH_KEY_LINK_ORDER, number);
    vjh_key_number(&zero, group, VJH_KEY_LINK_ORDER, 0);
    r = varjfs_kv_delete(b, c->space, old.bytes, old.len, NULL);
    r = r == 0 ? varjfs_kv_put(b, c->space, zero.bytes, zero.len, NULL, 0, 0, NULL) : r;
    r = r == 0 ? varjfs_batch_execute(b) : r;
    varjfs_batch_free(b);
    if (open) {
        open->next_link_order = 0;
    }
    return r == -ENOENT ? 0 : r;
}

/* A group that has become empty counts from 0 again, as HDF5's own groups do. */
static int restart_order(struct vjh_container *c, uint64_t group)
{
    struct vjh_order next;
    int r = vjh_each(c, group, VJH_KEY_LINK, any_step, NULL);

    if (r == 0) {
        r = vjh_order_next(c, group, VJH_KEY_LINK_ORDER, &next);
    }
    if (r == 0) {
        /* Empty, and nobody takes this number: then it stays empty. */
        r = vjh_each(c, group, VJH_KEY_LINK, any_step, NULL);
    }
    if (r == 0 && next.number > 0) {
        r = set_order_back(c, group, next.number);
    }
    return r == 1 ? 0 : r;
}

int vjh_link_delete(struct vjh_container *c, uint64_t group, const char *name)
{
    struct vjh_buffer raw;
    struct vjh_link l;
    struct vjh_key keys[3];
    varjfs_batch *b = NULL;
    int r = vjh_link_get(c, group, name, &l, &raw);

    if (r == -ENOENT) {
        return vjh_error(r, "there is no link %.200s", name);
    }
    if (r == 0) {
        r = vjh_batch(c->connection, true, &b);
    }
    if (r == 0) {
        r = add_removal(b, c, group, name, &l, keys, NULL);
        r = r == 0 ? varjfs_batch_execute(b) : r;
        varjfs_batch_free(b);
    }
    vjh_buffer_free(&raw);
    if (r == 0 && l.flags & VJH_HAS_ORDER) {
        r = restart_order(c, group);
    }
    if (r == 0 && l.type == VJH_LINK_HARD) {
        r = vjh_object_remove_unlinked(c, l.id);
    }
    return r;
}

/* ---- listing ----------------------------------------------------------------------- */

void vjh_entries_free(struct vjh_entries *e)
{
    for (size_t i = 0; i < e->n; i++) {
        free(e->v[i].name);
    }
    free(e->v);
    *e = (struct vjh_entries){0};
}

/* Where the links of a group come together. */
struct listing {
    struct vjh_container *c;
    uint64_t group;
    struct vjh_entries *all;
};

/* The name of a link that iteration has come to. */
static int entry_name(struct listing *w, struct vjh_slice in_key,
                      const struct vjh_link *l, char **out)
{
    struct vjh_link whole = *l;
    struct vjh_buffer raw = {0};
    struct vjh_key key;
    int r = 0;

    if (in_key.len > VJH_NAME_KEY_MAX && l->flags & VJH_LONG_NAME) {
        vjh_key(&key, w->group, VJH_KEY_LINK);
        if (in_key.len > sizeof key.bytes - key.len) {
            return -EIO;
        }
        memcpy(key.bytes + key.len, in_key.data, in_key.len);
        key.len += in_key.len;
        whole.target = (struct vjh_slice){0};
        r = complete(w->c, w->group, &key, &whole, &raw);
    }
    r = r == 0 ? vjh_name_restore(in_key, whole.rest, out) : r;
    vjh_buffer_free(&raw);
    return r;
}

static int entry_step(void *opaque, struct vjh_slice rest, struct vjh_slice value)
{
    struct listing *w = opaque;
    struct vjh_entries *all = w->all;
    struct vjh_link l;
    char *name = NULL;
    int r = vjh_link_decode(value, &l);

    r = r == 0 ? entry_name(w, rest, &l, &name) : r;
    if (r != 0) {
        return r;
    }
    if (all->n == all->cap) {
        size_t cap = all->cap ? 2 * all->cap : 32;
        struct vjh_entry *v = realloc(all->v, cap * sizeof *v);

        if (!v) {
            free(name);
            return -ENOMEM;
        }
        all->v = v;
        all->cap = cap;
    }
    all->v[all->n] = (struct vjh_entry){.name = name,
                                        .order = l.order,
                                        .id = l.id,
                                        .type = l.type,
                                        .cset = l.cset,
                                        .flags = l.flags,
                                        .target_len = l.target.len + 1};
    all->n++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct vjh_entry *)a)->name,
                  ((const struct vjh_entry *)b)->name);
}

static int by_order(const void *a, const void *b)
{
    uint64_t x = ((const struct vjh_entry *)a)->order;
    uint64_t y = ((const struct vjh_entry *)b)->order;

    return (x > y) - (x < y);
}

void vjh_entries_sort(struct vjh_entries *all, H5_index_t index, H5_iter_order_t order)
{
    if (all->n > 1) {
        qsort(all->v, all->n, sizeof *all->v,
              index == H5_INDEX_CRT_ORDER ? by_order : by_name);
    }
    for (size_t i = 0; order == H5_ITER_DEC && i < all->n / 2; i++) {
        struct vjh_entry e = all->v[i];

        all->v[i] = all->v[all->n - 1 - i];
        all->v[all->n - 1 - i] = e;
    }
}

int vjh_links(struct vjh_container *c, uint64_t group, H5_index_t index,
              H5_iter_order_t order, struct vjh_entries *out)
{
    struct listing w = {c, group, out};
    uint16_t flags = 0;
    int r = 0;

    *out = (struct vjh_entries){0};
    if (index == H5_INDEX_CRT_ORDER) {
        r = vjh_object_flags(c, group, &flags);
        if (r == 0 && !(flags & VJH_LINK_ORDER_TRACKED)) {
            r = vjh_error(-EINVAL,
                          "the group does not track the creation order of links");
        }
    }
    if (r == 0) {
        r = vjh_each(c, group, VJH_KEY_LINK, entry_step, &w);
    }
    if (r != 0) {
        vjh_entries_free(out);
        return r;
    }
    vjh_entries_sort(out, index, order);
    return 0;
}

int vjh_link_by_index(struct vjh_container *c, uint64_t group, H5_index_t index,
                      H5_iter_order_t order, hsize_t n, struct vjh_entries *all,
                      struct vjh_entry **e)
{
    int r = vjh_links(c, group, index, order, all);

    if (r == 0 && n >= all->n) {
        r = vjh_error(-EINVAL, "index %llu: the group has %zu links",
                      (unsigned long long)n, all->n);
        vjh_entries_free(all);
    }
    *e = r == 0 ? &all->v[n] : NULL;
    return r;
}

/* ---- callbacks --------------------------------------------------------------------- */

/* The group and the name of a link that a location means. */
static int find_link(struct vjh_object *o, const H5VL_loc_params_t *loc,
                     struct vjh_target *group, char **name)
{
    if (loc->type == H5VL_OBJECT_BY_IDX) {
        const H5VL_loc_by_idx_t *by = &loc->loc_data.loc_by_idx;
        H5VL_loc_params_t base = {.obj_type = loc->obj_type, .type = H5VL_OBJECT_BY_NAME};
        struct vjh_entries all;
        struct vjh_entry *e;
        int r;

        *name = NULL;
        base.loc_data.loc_by_name = (H5VL_loc_by_name_t){by->name, by->lapl_id};
        r = vjh_locate(o, &base, group);
        if (r == 0) {
            r = vjh_link_by_index(o->file->container, group->id, by->idx_type, by->order,
                                  by->n, &all, &e);
            if (r == 0) {
                *name = e->name;
                e->name = NULL;
                vjh_entries_free(&all);
            }
        }
        if (r != 0) {
            vjh_target_free(group);
        }
        return r;
    }
    if (loc->type != H5VL_OBJECT_BY_NAME) {
        *name = NULL;
        return vjh_error(-EINVAL, "a link needs a name");
    }
    *name = NULL;
    int r = vjh_check_plist(loc->loc_data.loc_by_name.lapl_id, "link access");

    return r == 0 ? vjh_locate_parent(o, loc, loc->loc_data.loc_by_name.name, H5P_DEFAULT,
                                      group, name)
                  : r;
}

/* A location of H5Lcreate_hard, H5Lcopy and others: @obj NULL is H5L_SAME_LOC. */
static int create(struct vjh_object *o, const H5VL_loc_params_t *loc, hid_t lcpl_id,
                  struct vjh_link *l, const struct moved *from)
{
    struct vjh_target group;
    H5T_cset_t cset = H5T_CSET_ASCII;
    char *leaf;
    int r = vjh_check_writable(o);

    if (r != 0) {
        return r;
    }
    if (loc->type != H5VL_OBJECT_BY_NAME) {
        return vjh_error(-EINVAL, "a link needs a name");
    }
    if (lcpl_id != H5P_DEFAULT && H5Pget_char_encoding(lcpl_id, &cset) >= 0) {
        l->cset = (uint8_t)cset;
    }
    r = vjh_locate_parent(o, loc, loc->loc_data.loc_by_name.name, lcpl_id, &group, &leaf);
    if (r == 0) {
        r = insert(o->file->container, group.id, leaf, l, NULL, from);
        vjh_target_free(&group);
        free(leaf);
    }
    return r;
}

static int create_hard(H5VL_link_create_args_t *args, struct vjh_object *o,
                       const H5VL_loc_params_t *loc, hid_t lcpl_id)
{
    struct vjh_link l = {.type = VJH_LINK_HARD};
    struct vjh_object *current = args->args.hard.curr_obj;
    struct vjh_target t;
    struct vjh_node *open;
    int r;

    current = current ? current : o;
    o = o ? o : current;
    if (current->file->container != o->file->container) {
        return vjh_error(-EXDEV, "a hard link leads to an object of its own file");
    }
    r = vjh_locate(current, &args->args.hard.curr_loc_params, &t);
    if (r != 0) {
        return r;
    }
    l.id = t.id;
    r = create(o, loc, lcpl_id, &l, NULL);
    open = vjh_node_find(o->file->container, l.id);
    /* What was made without a name has one now. */
    if (r == 0 && open && current->node == open && !current->path &&
        loc->loc_data.loc_by_name.name[0] == '/') {
        current->path = strdup(loc->loc_data.loc_by_name.name);
    }
    vjh_target_free(&t);
    return r;
}

static herr_t link_create(H5VL_link_create_args_t *args, void *obj,
                          const H5VL_loc_params_t *loc, hid_t lcpl_id, hid_t lapl_id,
                          hid_t dxpl_id, void **req)
{
    struct vjh_link l = {.type = VJH_LINK_SOFT};
    int r = vjh_check_plist(lapl_id, "link access");

    (void)dxpl_id;
    (void)req;
    if (r != 0) {
        VJH_RETURN(r);
    }
    switch (args->op_type) {
    case H5VL_LINK_CREATE_HARD:
        r = create_hard(args, obj, loc, lcpl_id);
        break;
    case H5VL_LINK_CREATE_SOFT:
        l.target =
            (struct vjh_slice){args->args.soft.target, strlen(args->args.soft.target)};
        r = vjh_check_name(args->args.soft.target);
        r = r == 0 ? create(obj, loc, lcpl_id, &l, NULL) : r;
        break;
    case H5VL_LINK_CREATE_UD:
        r = vjh_error(-ENOTSUP, "external and user-defined links are not supported by "
                                "varjfs: hard and soft ones are");
        break;
    }
    VJH_RETURN(r);
}

/* Within a file, in one step. */
static int move_link(struct vjh_object *dst, const H5VL_loc_params_t *loc, hid_t lcpl_id,
                     struct vjh_link *l, const struct moved *from)
{
    struct vjh_container *c = dst->file->container;
    struct vjh_node *open;
    int r = create(dst, loc, lcpl_id, l, from);

    open = r == 0 && l->type == VJH_LINK_HARD ? vjh_node_find(c, l->id) : NULL;
    if (open) {
        open->unlinked = true; /* its path is another one */
    }
    return r == 0 && from->link->flags & VJH_HAS_ORDER ? restart_order(c, from->group)
                                                       : r;
}

/* H5Lcopy and H5Lmove. */
static int copy_link(struct vjh_object *src, const H5VL_loc_params_t *src_loc,
                     struct vjh_object *dst, const H5VL_loc_params_t *dst_loc,
                     hid_t lcpl_id, bool move)
{
    struct vjh_buffer raw = {0};
    struct vjh_target group;
    struct vjh_link l;
    char *name;
    int r;

    src = src ? src : dst;
    dst = dst ? dst : src;
    r = vjh_check_writable(dst);
    r = r == 0 ? find_link(src, src_loc, &group, &name) : r;
    if (r != 0) {
        return r;
    }
    r = vjh_link_get(src->file->container, group.id, name, &l, &raw);
    if (r == -ENOENT) {
        vjh_error(r, "there is no link %.200s", name);
    }
    if (r == 0 && l.type == VJH_LINK_HARD &&
        src->file->container != dst->file->container) {
        r = vjh_error(-EXDEV, "a hard link leads to an object of its own file");
    }
    if (r == 0 && move) {
        r = vjh_check_writable(src);
    }
    if (r == 0) {
        struct vjh_link new = l;

        r = move && src->file->container == dst->file->container
                ? move_link(dst, dst_loc, lcpl_id, &new,
                            &(struct moved){group.id, name, &l})
                : create(dst, dst_loc, lcpl_id, &new, NULL);
        /* Into another file: a crash between the two leaves both links, never none. */
        if (r == 0 && move && src->file->container != dst->file->container) {
            r = vjh_link_delete(src->file->container, group.id, name);
        }
    }
    vjh_buffer_free(&raw);
    vjh_target_free(&group);
    free(name);
    return r;
}

static herr_t link_copy(void *src, const H5VL_loc_params_t *src_loc, void *dst,
                        const H5VL_loc_params_t *dst_loc, hid_t lcpl_id, hid_t lapl_id,
                        hid_t dxpl_id, void **req)
{
    int r = vjh_check_plist(lapl_id, "link access");

    (void)dxpl_id;
    (void)req;
    VJH_RETURN(r == 0 ? copy_link(src, src_loc, dst, dst_loc, lcpl_id, false) : r);
}

static herr_t link_move(void *src, const H5VL_loc_params_t *src_loc, void *dst,
                        const H5VL_loc_params_t *dst_loc, hid_t lcpl_id, hid_t lapl_id,
                        hid_t dxpl_id, void **req)
{
    int r = vjh_check_plist(lapl_id, "link access");

    (void)dxpl_id;
    (void)req;
    VJH_RETURN(r == 0 ? copy_link(src, src_loc, dst, dst_loc, lcpl_id, true) : r);
}

void vjh_link_info(const struct vjh_entry *e, H5L_info2_t *out)
{
    memset(out, 0, sizeof *out);
    out->type = e->type == VJH_LINK_HARD ? H5L_TYPE_HARD : H5L_TYPE_SOFT;
    out->corder_valid = (e->flags & VJH_HAS_ORDER) != 0;
    out->corder = (int64_t)e->order;
    out->cset = (H5T_cset_t)e->cset;
    if (e->type == VJH_LINK_HARD) {
        vjh_id_token(e->id, &out->u.token);
    } else {
        out->u.val_size = e->target_len;
    }
}

static int get_value(const struct vjh_link *l, void *buf, size_t buf_size)
{
    size_t n = l->target.len < buf_size ? l->target.len : buf_size;

    if (l->type != VJH_LINK_SOFT) {
        return vjh_error(-EINVAL, "a hard link has no value");
    }
    if (buf && buf_size > 0) {
        memcpy(buf, l->target.data, n);
        if (n < buf_size) {
            ((char *)buf)[n] = 0;
        } else {
            ((char *)buf)[buf_size - 1] = 0;
        }
    }
    return 0;
}

static herr_t link_get(void *obj, const H5VL_loc_params_t *loc,
                       H5VL_link_get_args_t *args, hid_t dxpl_id, void **req)
{
    struct vjh_object *o = obj;
    struct vjh_target group;
    struct vjh_buffer raw = {0};
    struct vjh_link l;
    char *name;
    int r = find_link(o, loc, &group, &name);

    (void)dxpl_id;
    (void)req;
    if (r != 0) {
        VJH_RETURN(r);
    }
    r = vjh_link_get(o->file->container, group.id, name, &l, &raw);
    if (r == -ENOENT) {
        vjh_error(r, "there is no link %.200s", name);
    }
    if (r == 0) {
        struct vjh_entry e = {.order = l.order,
                              .id = l.id,
                              .type = l.type,
                              .cset = l.cset,
                              .flags = l.flags,
                              .target_len = l.target.len + 1};

        switch (args->op_type) {
        case H5VL_LINK_GET_INFO:
            vjh_link_info(&e, args->args.get_info.linfo);
            break;
        case H5VL_LINK_GET_NAME:
            *args->args.get_name.name_len = strlen(name);
            if (args->args.get_name.name && args->args.get_name.name_size > 0) {
                snprintf(args->args.get_name.name, args->args.get_name.name_size, "%s",
                         name);
            }
            break;
        case H5VL_LINK_GET_VAL:
            r = get_value(&l, args->args.get_val.buf, args->args.get_val.buf_size);
            break;
        }
    }
    vjh_buffer_free(&raw);
    vjh_target_free(&group);
    free(name);
    VJH_RETURN(r);
}

/* "/" and "." are always there; a component before the last has to be an object. */
static int exists(struct vjh_object *o, const H5VL_loc_params_t *loc, hbool_t *out)
{
    struct vjh_target group;
    struct vjh_buffer raw;
    struct vjh_link l;
    char *name;
    int r;

    *out = false;
    if (loc->type == H5VL_OBJECT_BY_NAME) {
        const char *s = loc->loc_data.loc_by_name.name;

        if (s[strspn(s, "/")] == 0 || strcmp(s, ".") == 0) {
            *out = true;
            return 0;
        }
    }
    r = find_link(o, loc, &group, &name);
    if (r != 0) {
        return r;
    }
    r = vjh_link_get(o->file->container, group.id, name, &l, &raw);
    *out = r == 0;
    vjh_buffer_free(&raw);
    vjh_target_free(&group);
    free(name);
    return r == -ENOENT ? 0 : r;
}

static herr_t link_specific(void *obj, const H5VL_loc_params_t *loc,
                            H5VL_link_specific_args_t *args, hid_t dxpl_id, void **req)
{
    struct vjh_object *o = obj;
    struct vjh_target group;
    char *name;
    int r = -ENOTSUP;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_LINK_DELETE:
        r = vjh_check_writable(o);
        r = r == 0 ? find_link(o, loc, &group, &name) : r;
        if (r == 0) {
            r = vjh_link_delete(o->file->container, group.id, name);
            vjh_target_free(&group);
            free(name);
        }
        break;
    case H5VL_LINK_EXISTS:
        r = exists(o, loc, args->args.exists.exists);
        break;
    case H5VL_LINK_ITER:
        return vjh_link_iterate(o, loc, &args->args.iterate);
    }
    VJH_RETURN(r);
}

const H5VL_link_class_t vjh_link_class = {
    .create = link_create,
    .copy = link_copy,
    .move = link_move,
    .get = link_get,
    .specific = link_specific,
};
