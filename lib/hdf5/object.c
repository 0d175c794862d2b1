/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Objects that are open, their creation and removal, and the callbacks of H5O
 *
 * An object that loses its last link goes away at once, or when this process closes it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5-private.h"

/* Links that others made to an object while this process was about to remove it. */
#define REMOVAL_TRIES_MAX 1000

/* ---- nodes ------------------------------------------------------------------------- */

struct vjh_node *vjh_node_find(struct vjh_container *c, uint64_t id)
{
    struct vjh_node *n = c->nodes;

    while (n && n->id != id) {
        n = n->next;
    }
    return n;
}

static struct vjh_node *node_get(struct vjh_container *c, uint64_t id, uint16_t flags)
{
    struct vjh_node *n = vjh_node_find(c, id);

    if (!n) {
        n = calloc(1, sizeof *n);
        if (!n) {
            return NULL;
        }
        *n =
            (struct vjh_node){.next = c->nodes, .container = c, .id = id, .flags = flags};
        c->nodes = n;
    }
    n->refs++;
    return n;
}

static int node_put(struct vjh_node *n)
{
    struct vjh_container *c = n->container;
    uint64_t id = n->id;
    bool unlinked = n->unlinked;

    if (--n->refs > 0) {
        return 0;
    }
    for (struct vjh_node **p = &c->nodes; *p; p = &(*p)->next) {
        if (*p == n) {
            *p = n->next;
            break;
        }
    }
    free(n);
    return unlinked ? vjh_object_remove_unlinked(c, id) : 0;
}

bool vjh_is_open(const struct vjh_container *c, const void *p)
{
    for (const struct vjh_file *f = vjh_files(); f; f = f->next) {
        if (f->container != c) {
            continue;
        }
        for (const struct vjh_object *o = f->objects; o; o = o->next) {
            if (o == p) {
                return true;
            }
        }
    }
    return false;
}

int vjh_object_init(struct vjh_object *o, H5I_type_t type, struct vjh_file *file,
                    uint64_t id, uint16_t flags, char *path)
{
    *o = (struct vjh_object){.type = type, .file = file, .path = path};
    o->node = node_get(file->container, id, flags);
    if (!o->node) {
        free(path);
        o->path = NULL;
        return -ENOMEM;
    }
    vjh_data_name(o->data_name, id);
    if (&file->o == o) {
        return 0;
    }
    o->next = file->objects;
    o->link = &file->objects;
    if (o->next) {
        o->next->link = &o->next;
    }
    file->objects = o;
    return 0;
}

/* HDF5 forgets an object, but not a file, that could not be closed: the next flush of the
 * file says what was the matter. */
static void defer(struct vjh_container *c, int error)
{
    if (error != 0 && c->deferred == 0) {
        c->deferred = error;
        snprintf(c->deferred_text, sizeof c->deferred_text, "%s", vjh_error_text(error));
    }
}

int vjh_object_closing(struct vjh_object *o)
{
    const struct vjh_file *file = o->file;
    int r = 0;

    if (!(file->intent & H5F_ACC_RDWR)) {
        return 0;
    }
    if (file->ids == 0 && file->objects == o && !o->next) {
        r = vjh_flush_closing(o);
    } else if (o->is_changed) {
        defer(file->container, vjh_object_confirm(o));
    }
    return r;
}

void vjh_object_term(struct vjh_object *o)
{
    struct vjh_file *file = o->file;
    struct vjh_container *c = file->container;
    int r;

    vjh_blobs_free(o->blobs);
    free(o->path);
    o->blobs = NULL;
    o->path = NULL;
    if (o->link) {
        *o->link = o->next;
        if (o->next) {
            o->next->link = o->link;
        }
        o->link = NULL;
    }
    r = node_put(o->node);
    o->node = NULL;
    defer(c, r);
    if (&file->o != o) {
        vjh_file_unused(file);
    }
}

void vjh_object_discard(struct vjh_object *o)
{
    o->close_failed = true; /* nothing was written through it */
    switch (o->type) {
    case H5I_GROUP:
        vjh_group_class.close(o, H5P_DEFAULT, NULL);
        break;
    case H5I_DATASET:
        vjh_dataset_class.close(o, H5P_DEFAULT, NULL);
        break;
    default:
        vjh_datatype_class.close(o, H5P_DEFAULT, NULL);
    }
}

int vjh_check_writable(const struct vjh_object *o)
{
    if (!(o->file->intent & H5F_ACC_RDWR)) {
        return vjh_error(-EROFS, "%s was opened for reading alone", o->file->name);
    }
    return 0;
}

int vjh_plist_flags(hid_t plist_id, uint16_t *out)
{
    unsigned order = 0, attributes = 0;
    hbool_t times = false;
    bool group = H5Pisa_class(plist_id, H5P_GROUP_CREATE) > 0;

    *out = 0;
    if ((group && H5Pget_link_creation_order(plist_id, &order) < 0) ||
        H5Pget_attr_creation_order(plist_id, &attributes) < 0 ||
        H5Pget_obj_track_times(plist_id, &times) < 0) {
        return vjh_error(-EINVAL, "the creation property list cannot be read");
    }
    *out = (uint16_t)((order & H5P_CRT_ORDER_TRACKED ? VJH_LINK_ORDER_TRACKED : 0) |
                      (order & H5P_CRT_ORDER_INDEXED ? VJH_LINK_ORDER_INDEXED : 0) |
                      (attributes & H5P_CRT_ORDER_TRACKED ? VJH_ATTRIBUTE_ORDER_TRACKED
                                                          : 0) |
                      (attributes & H5P_CRT_ORDER_INDEXED ? VJH_ATTRIBUTE_ORDER_INDEXED
                                                          : 0) |
                      (times ? VJH_TIMES_TRACKED : 0));
    return 0;
}

/* ---- headers ----------------------------------------------------------------------- */

int vjh_header_get(struct vjh_container *c, uint64_t id, struct vjh_header *h,
                   struct vjh_buffer *raw)
{
    struct vjh_key key;
    int r;

    vjh_key(&key, id, VJH_KEY_HEADER);
    r = vjh_get(c, &key, raw);
    if (r == -ENOENT) {
        return vjh_error(r, "%s: object %016" PRIx64 " has been deleted", c->name, id);
    }
    if (r == 0) {
        r = vjh_header_decode((struct vjh_slice){raw->data, raw->len}, h);
        if (r != 0) {
            vjh_buffer_free(raw);
        }
    }
    return r;
}

int vjh_header_require(varjfs_batch *b, struct vjh_container *c, uint64_t id,
                       struct vjh_key *key, int *result)
{
    /* Nobody looks at it. */
    static char header[VARJFS_VALUE_MAX];

    vjh_key(key, id, VJH_KEY_HEADER);
    return varjfs_kv_get(b, c->space, key->bytes, key->len, header, sizeof header, NULL,
                         result);
}

int vjh_linked_add(varjfs_batch *b, struct vjh_container *c, uint64_t id,
                   struct vjh_key *header, struct vjh_key *linked, int *result)
{
    int r = vjh_header_require(b, c, id, header, result);

    vjh_key(linked, id, VJH_KEY_LINKED);
    return r == 0
               ? varjfs_kv_put(b, c->space, linked->bytes, linked->len, NULL, 0, 0, NULL)
               : r;
}

int vjh_header_check(struct vjh_container *c, uint64_t id)
{
    struct vjh_buffer raw;
    struct vjh_header h;
    int r = vjh_header_get(c, id, &h, &raw);

    if (r == 0) {
        vjh_buffer_free(&raw);
    }
    return r;
}

int vjh_object_is_gone(struct vjh_container *c, uint64_t id)
{
    char name[48];
    int r;

    /* Nothing leads to what was written after that. */
    vjh_data_name(name, id);
    r = vjh_delete_objects(c, name);
    return r == 0 ? vjh_error(-ENOENT,
                              "%s: object %016" PRIx64 " has been deleted: what was "
                              "written to it is lost",
                              c->name, id)
                  : r;
}

int vjh_object_confirm(struct vjh_object *o)
{
    struct vjh_container *c = o->file->container;
    int r = vjh_header_check(c, o->node->id);

    o->is_changed = o->is_changed && r != 0 && r != -ENOENT; /* not known yet */
    return r == -ENOENT ? vjh_object_is_gone(c, o->node->id) : r;
}

int vjh_object_flags(struct vjh_container *c, uint64_t id, uint16_t *out)
{
    struct vjh_node *n = vjh_node_find(c, id);
    struct vjh_buffer raw;
    struct vjh_header h;
    int r;

    if (n) {
        *out = n->flags;
        return 0;
    }
    r = vjh_header_get(c, id, &h, &raw);
    if (r == 0) {
        *out = h.flags;
        vjh_buffer_free(&raw);
    }
    return r;
}

int vjh_header_put(struct vjh_container *c, uint64_t id, const struct vjh_new *new)
{
    struct vjh_key key, user;
    varjfs_batch *b;
    int r = vjh_batch(c->connection, true, &b);

    if (r != 0) {
        return r;
    }
    vjh_key(&key, id, VJH_KEY_HEADER);
    r = varjfs_kv_put(b, c->space, key.bytes, key.len, new->header.data, new->header.len,
                      VARJFS_EXCLUSIVE, NULL);
    if (r == 0 && new->committed_id) {
        vjh_key_user(&user, new->committed_id, id, "");
        r = varjfs_kv_put(b, c->space, user.bytes, user.len, NULL, 0, 0, NULL);
    }
    r = r == 0 ? varjfs_batch_execute(b) : r;
    varjfs_batch_free(b);
    return r;
}

int vjh_object_create(struct vjh_object *from, const H5VL_loc_params_t *loc,
                      const char *name, hid_t lcpl_id, const struct vjh_header *h,
                      H5I_type_t type, struct vjh_object *o)
{
    struct vjh_container *c = from->file->container;
    struct vjh_target group = {0};
    struct vjh_link link = {.type = VJH_LINK_HARD};
    struct vjh_new new = {.committed_id = h->committed_id};
    H5T_cset_t cset = H5T_CSET_ASCII;
    bool is_open = false;
    char *leaf = NULL;
    int r = vjh_check_writable(from);

    link.id = vjh_random() >> 1;
    link.id += link.id <= VJH_ROOT_ID ? 2 : 0;
    if (r == 0) {
        r = vjh_header_encode(h, &new.header);
    }
    if (r == 0 && name) {
        if (H5Pget_char_encoding(lcpl_id, &cset) >= 0) {
            link.cset = (uint8_t)cset;
        }
        r = vjh_locate_parent(from, loc, name, lcpl_id, &group, &leaf);
    }
    /* All that may fail here comes before what others see. */
    if (r == 0) {
        r = vjh_object_init(o, type, from->file, link.id, h->flags,
                            name ? vjh_path_join(group.path, leaf) : NULL);
        is_open = r == 0;
    }
    if (r == 0) {
        r = name ? vjh_link_insert(c, group.id, leaf, &link, &new)
                 : vjh_header_put(c, link.id, &new);
    }
    if (r == 0 && !name) {
        o->node->unlinked = true;
    } else if (r != 0 && is_open) {
        vjh_object_term(o);
    }
    vjh_buffer_free(&new.header);
    vjh_target_free(&group);
    free(leaf);
    return r;
}

int vjh_object_find(struct vjh_object *from, const H5VL_loc_params_t *loc,
                    const char *name, enum vjh_kind kind, struct vjh_target *target,
                    struct vjh_header *h, struct vjh_buffer *raw)
{
    static const char *const kinds[] = {"", "group", "dataset", "committed datatype"};
    H5VL_loc_params_t by_name = {.obj_type = loc->obj_type, .type = H5VL_OBJECT_BY_NAME};
    int r;

    *raw = (struct vjh_buffer){0};
    by_name.loc_data.loc_by_name.name = name;
    r = vjh_locate(from, name ? &by_name : loc, target);
    if (r != 0) {
        return r;
    }
    r = vjh_header_get(from->file->container, target->id, h, raw);
    if (r == 0 && kind && h->kind != kind) {
        r = vjh_error(-EINVAL, "%s is a %s, not a %s", name ? name : "the object",
                      kinds[h->kind], kinds[kind]);
        vjh_buffer_free(raw);
    }
    if (r != 0) {
        vjh_target_free(target);
    }
    return r;
}

/* ---- types ------------------------------------------------------------------------- */

uint64_t vjh_committed_id(const struct vjh_object *o, hid_t type_id)
{
    const struct vjh_object *type = NULL;

    if (H5Tcommitted(type_id) > 0) {
        type = H5VLobject(type_id);
    }
    if (!type || !vjh_is_open(o->file->container, type) || type->type != H5I_DATATYPE) {
        return 0;
    }
    return type->node->id;
}

int vjh_type_id(struct vjh_file *file, uint64_t committed_id, hid_t type_id, hid_t *out)
{
    struct vjh_object *type = NULL;
    struct vjh_buffer raw = {0};
    struct vjh_header h;
    int r;

    *out = H5I_INVALID_HID;
    if (committed_id) {
        r = vjh_header_get(file->container, committed_id, &h, &raw);
        if (r == 0 && h.kind == VJH_TYPE) {
            r = vjh_datatype_new(file, committed_id, NULL, &h, &type);
            if (r == 0) {
                *out = H5VLwrap_register(type, H5I_DATATYPE);
                if (*out < 0) {
                    vjh_object_discard(type);
                }
            }
        }
        vjh_buffer_free(&raw);
        /* Where the committed type has gone, its copy is the type. */
        if (*out >= 0 || (r != 0 && r != -ENOENT)) {
            return r;
        }
    }
    /* Not a copy, which would refer to the file, as a stored type does. */
    r = vjh_type_encode(type_id, &raw);
    r = r == 0 ? vjh_type_decode((struct vjh_slice){raw.data, raw.len}, out) : r;
    vjh_buffer_free(&raw);
    return r;
}

/* ---- removal ----------------------------------------------------------------------- */

static int count_step(void *opaque, struct vjh_slice rest, struct vjh_slice value)
{
    (void)rest;
    (void)value;
    (*(uint64_t *)opaque)++;
    return 0;
}

int vjh_link_count(struct vjh_container *c, uint64_t id, uint64_t *out)
{
    int r;

    *out = 0;
    r = vjh_each(c, id, VJH_KEY_REFERRER, count_step, out);
    return r == 0 ? vjh_each(c, id, VJH_KEY_TYPE_USER, count_step, out) : r;
}

/* Objects that have lost a link, in a list of their own instead of in recursion. */
struct candidates {
    uint64_t *v;
    size_t n, cap;
};

static int candidates_add(struct candidates *d, uint64_t id)
{
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 16;
        uint64_t *v = realloc(d->v, cap * sizeof *v);

        if (!v) {
            return -ENOMEM;
        }
        d->v = v;
        d->cap = cap;
    }
    d->v[d->n++] = id;
    return 0;
}

/* Takes the links out of a group that goes away. */
static int remove_links(struct vjh_container *c, uint64_t group, struct candidates *d)
{
    struct vjh_entries all;
    int r = vjh_links(c, group, H5_INDEX_NAME, H5_ITER_NATIVE, &all);

    for (size_t i = 0; r == 0 && i < all.n; i++) {
        const struct vjh_entry *e = &all.v[i];
        struct vjh_key key, referrer;
        varjfs_batch *b;

        if (e->type != VJH_LINK_HARD) {
            continue;
        }
        vjh_key_name(&key, group, VJH_KEY_LINK, e->name);
        vjh_key_referrer(&referrer, e->id, group, e->name);
        r = vjh_batch(c->connection, true, &b);
        if (r == 0) {
            r = varjfs_kv_delete(b, c->space, key.bytes, key.len, NULL);
            r = r == 0 ? varjfs_kv_delete(b, c->space, referrer.bytes, referrer.len, NULL)
                       : r;
            r = r == 0 ? varjfs_batch_execute(b) : r;
            varjfs_batch_free(b);
        }
        if (r == 0) {
            r = candidates_add(d, e->id);
        } else if (r == -ENOENT) {
            r = 0; /* another process has taken it out */
        }
    }
    vjh_entries_free(&all);
    return r;
}

int vjh_type_unuse(struct vjh_container *c, uint64_t type, uint64_t user,
                   const char *name)
{
    struct vjh_key key;
    int r;

    vjh_key_user(&key, type, user, name);
    r = vjh_delete(c, &key);
    return r == -ENOENT ? 0 : r;
}

struct attribute_types {
    struct vjh_container *c;
    uint64_t id;
    struct candidates *d;
};

static int type_step(void *opaque, struct vjh_slice rest, struct vjh_slice value)
{
    struct attribute_types *w = opaque;
    struct vjh_attribute_record rec;
    char *name;
    int r = vjh_attribute_decode(value, &rec);

    if (r != 0 || !rec.committed_id) {
        return r;
    }
    r = vjh_name_restore(rest, rec.rest, &name);
    if (r == 0) {
        r = vjh_type_unuse(w->c, rec.committed_id, w->id, name);
        r = r == 0 ? candidates_add(w->d, rec.committed_id) : r;
        free(name);
    }
    return r;
}

/* Committed types that an object and its attributes used, which goes away. */
static int remove_uses(struct vjh_container *c, uint64_t id, const struct vjh_header *h,
                       struct candidates *d)
{
    struct attribute_types w = {c, id, d};
    int r = 0;

    if (h->committed_id) {
        r = vjh_type_unuse(c, h->committed_id, id, "");
        r = r == 0 ? candidates_add(d, h->committed_id) : r;
    }
    return r == 0 ? vjh_each(c, id, VJH_KEY_ATTRIBUTE, type_step, &w) : r;
}

/* Unless a link has been made to it since VJH_KEY_LINKED was deleted: -EEXIST without a
 * text.  -ENOENT another process has deleted it. */
static int delete_header(struct vjh_container *c, uint64_t id)
{
    struct vjh_key header, linked;
    int since = 0, gone = 0, r;
    varjfs_batch *b;

    r = vjh_batch(c->connection, true, &b);
    if (r != 0) {
        return r;
    }
    vjh_key(&header, id, VJH_KEY_HEADER);
    vjh_key(&linked, id, VJH_KEY_LINKED);
    r = varjfs_kv_put(b, c->space, linked.bytes, linked.len, NULL, 0, VARJFS_EXCLUSIVE,
                      &since);
    r = r == 0 ? varjfs_kv_delete(b, c->space, linked.bytes, linked.len, NULL) : r;
    r = r == 0 ? varjfs_kv_delete(b, c->space, header.bytes, header.len, &gone) : r;
    r = r == 0 ? varjfs_batch_execute(b) : r;
    varjfs_batch_free(b);
    return since == -EEXIST ? since : gone == -ENOENT ? gone : r;
}

/* The header of an object that has no links.  1: it has some. */
static int remove_header(struct vjh_container *c, uint64_t id)
{
    struct vjh_key linked;
    uint64_t count;
    int r = -EEXIST;

    vjh_key(&linked, id, VJH_KEY_LINKED);
    for (int i = 0; r == -EEXIST; i++) {
        if (i > REMOVAL_TRIES_MAX) {
            return vjh_error(-EBUSY, "others make and remove links to an object that "
                                     "is to go");
        }
        r = i > 0 ? vjh_delete(c, &linked) : 0;
        r = r == 0 || r == -ENOENT ? vjh_link_count(c, id, &count) : r;
        if (r != 0 || count > 0) {
            return r != 0 ? r : 1;
        }
        r = delete_header(c, id);
    }
    return r;
}

static int remove_one(struct vjh_container *c, uint64_t id, struct candidates *d)
{
    struct vjh_node *open = vjh_node_find(c, id);
    char name[48];
    struct vjh_buffer raw;
    struct vjh_header h;
    int r;

    if (open) {
        open->unlinked = true;
        return 0;
    }
    if (id == VJH_ROOT_ID) {
        return 0;
    }
    r = vjh_header_get(c, id, &h, &raw);
    if (r != 0) {
        return r == -ENOENT ? 0 : r;
    }
    /* It goes before what is listed: what finds it there has put what is listed then, and
     * a write that does not removes what it has put. */
    r = remove_header(c, id);
    if (r != 0) {
        vjh_buffer_free(&raw);
        return r == 1 || r == -ENOENT ? 0 : r; /* or another process is at it */
    }
    if (h.kind == VJH_GROUP) {
        r = remove_links(c, id, d);
    }
    r = r == 0 ? remove_uses(c, id, &h, d) : r;
    vjh_buffer_free(&raw);
    vjh_data_name(name, id);
    if (r == 0) {
        r = vjh_delete_objects(c, name);
    }
    return r == 0 ? vjh_delete_keys(c, id) : r;
}

int vjh_object_remove_unlinked(struct vjh_container *c, uint64_t id)
{
    struct candidates d = {0};
    int r = candidates_add(&d, id);

    while (r == 0 && d.n > 0) {
        r = remove_one(c, d.v[--d.n], &d);
    }
    free(d.v);
    return r;
}

/* ---- names ------------------------------------------------------------------------- */

struct first_referrer {
    uint64_t group;
    struct vjh_key rest;
};

static int first_step(void *opaque, struct vjh_slice rest, struct vjh_slice value)
{
    struct first_referrer *f = opaque;
    const uint8_t *p = rest.data;

    (void)value;
    if (rest.len < 9 || rest.len > sizeof f->rest.bytes - 9) {
        return 0;
    }
    f->group = 0;
    for (int i = 0; i < 8; i++) {
        f->group = f->group << 8 | p[i];
    }
    if (f->group == 0) {
        return 0;
    }
    f->rest.len = rest.len - 8;
    memcpy(f->rest.bytes, p + 8, f->rest.len);
    return 1;
}

int vjh_object_path(struct vjh_container *c, uint64_t id, char **out)
{
    char *path = strdup(id == VJH_ROOT_ID ? "/" : "");
    int r = path ? 0 : -ENOMEM;

    *out = NULL;
    for (int depth = 0; r == 0 && id != VJH_ROOT_ID; depth++) {
        struct first_referrer f = {0};
        struct vjh_key key;
        struct vjh_buffer raw;
        struct vjh_link l;
        char *longer = NULL;

        r = depth < VJH_DEPTH_MAX ? vjh_each(c, id, VJH_KEY_REFERRER, first_step, &f) : 0;
        if (r <= 0) {
            free(path);
            return r; /* nothing leads there from the root */
        }
        vjh_key(&key, f.group, VJH_KEY_LINK);
        memcpy(key.bytes + key.len, f.rest.bytes, f.rest.len);
        key.len += f.rest.len;
        r = vjh_get(c, &key, &raw);
        if (r == 0) {
            char *name = NULL;

            r = vjh_link_decode((struct vjh_slice){raw.data, raw.len}, &l);
            r = r == 0 ? vjh_name_restore((struct vjh_slice){f.rest.bytes, f.rest.len},
                                          l.rest, &name)
                       : r;
            if (r == 0 && asprintf(&longer, "/%s%s", name, path) < 0) {
                longer = NULL;
                r = -ENOMEM;
            }
            free(name);
            vjh_buffer_free(&raw);
        }
        free(path);
        path = longer;
        id = f.group;
    }
    if (r != 0) {
        free(path);
        return r == -ENOENT ? 0 : r;
    }
    *out = path;
    return 0;
}

/* ---- callbacks --------------------------------------------------------------------- */

static const H5O_type_t h5_types[] = {H5O_TYPE_UNKNOWN, H5O_TYPE_GROUP, H5O_TYPE_DATASET,
                                      H5O_TYPE_NAMED_DATATYPE};

static void *object_open(void *obj, const H5VL_loc_params_t *loc, H5I_type_t *opened_type,
                         hid_t dxpl_id, void **req)
{
    struct vjh_object *from = obj, *out = NULL;
    struct vjh_target t;
    struct vjh_header h;
    struct vjh_buffer raw;
    int r = vjh_object_find(from, loc, NULL, 0, &t, &h, &raw);

    (void)dxpl_id;
    (void)req;
    if (r == 0) {
        switch (h.kind) {
        case VJH_GROUP:
            r = vjh_group_new(from->file, t.id, t.path, &h, &out);
            *opened_type = H5I_GROUP;
            break;
        case VJH_DATASET:
            r = vjh_dataset_new(from->file, t.id, t.path, &h, &out);
            *opened_type = H5I_DATASET;
            break;
        case VJH_TYPE:
            r = vjh_datatype_new(from->file, t.id, t.path, &h, &out);
            *opened_type = H5I_DATATYPE;
            break;
        }
        vjh_buffer_free(&raw);
    }
    VJH_RETURN_POINTER(r, out);
}

static int get_name(struct vjh_object *from, const H5VL_loc_params_t *loc, char *buf,
                    size_t buf_size, size_t *name_len)
{
    struct vjh_target t;
    int r = vjh_locate(from, loc, &t);

    /* One whose links have changed may have no name any more, or another. */
    if (r == 0 && from->node->unlinked && t.id == from->node->id) {
        free(t.path);
        t.path = NULL;
    }
    if (r == 0 && !t.path) {
        r = vjh_object_path(from->file->container, t.id, &t.path);
    }
    if (r != 0) {
        return r;
    }
    *name_len = t.path ? strlen(t.path) : 0;
    if (buf && buf_size > 0) {
        snprintf(buf, buf_size, "%s", t.path ? t.path : "");
    }
    vjh_target_free(&t);
    return 0;
}

int vjh_object_info(struct vjh_container *c, uint64_t id, unsigned fields,
                    H5O_info2_t *out)
{
    struct vjh_buffer raw;
    struct vjh_header h;
    uint64_t count = 0;
    int r = vjh_header_get(c, id, &h, &raw);

    if (r != 0) {
        return r;
    }
    vjh_buffer_free(&raw);
    memset(out, 0, sizeof *out);
    if (fields & H5O_INFO_BASIC) {
        out->fileno = vjh_fileno(c);
        vjh_id_token(id, &out->token);
        out->type = h5_types[h.kind];
        r = vjh_link_count(c, id, &count);
        out->rc = (unsigned)(count + (id == VJH_ROOT_ID));
    }
    if (fields & H5O_INFO_TIME && h.flags & VJH_TIMES_TRACKED) {
        out->ctime = out->atime = out->mtime = out->btime =
            (time_t)(h.created_us / 1000000);
    }
    if (r == 0 && fields & H5O_INFO_NUM_ATTRS) {
        count = 0;
        r = vjh_each(c, id, VJH_KEY_ATTRIBUTE, count_step, &count);
        out->num_attrs = count;
    }
    return r;
}

static herr_t object_get(void *obj, const H5VL_loc_params_t *loc,
                         H5VL_object_get_args_t *args, hid_t dxpl_id, void **req)
{
    struct vjh_object *o = obj;
    struct vjh_target t = {0};
    struct vjh_header h;
    struct vjh_buffer raw;
    int r = -ENOTSUP;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_OBJECT_GET_FILE:
        *args->args.get_file.file = vjh_file_again(o->file);
        r = 0;
        break;
    case H5VL_OBJECT_GET_NAME:
        r = get_name(o, loc, args->args.get_name.buf, args->args.get_name.buf_size,
                     args->args.get_name.name_len);
        break;
    case H5VL_OBJECT_GET_TYPE:
        r = vjh_object_find(o, loc, NULL, 0, &t, &h, &raw);
        if (r == 0) {
            *args->args.get_type.obj_type = h5_types[h.kind];
            vjh_buffer_free(&raw);
        }
        break;
    case H5VL_OBJECT_GET_INFO:
        r = vjh_locate(o, loc, &t);
        if (r == 0) {
            r = vjh_object_info(o->file->container, t.id, args->args.get_info.fields,
                                args->args.get_info.oinfo);
        }
        break;
    }
    vjh_target_free(&t);
    VJH_RETURN(r);
}

/* A link from nowhere. */
static int add_count(struct vjh_container *c, uint64_t id)
{
    struct vjh_key key, header, linked;
    varjfs_batch *b;
    int there = 0, r = vjh_batch(c->connection, true, &b);

    if (r != 0) {
        return r;
    }
    vjh_key_referrer(&key, id, 0, "");
    for (int i = 0; i < 8; i++) {
        key.bytes[key.len++] = (uint8_t)vjh_random();
    }
    r = vjh_linked_add(b, c, id, &header, &linked, &there);
    r = r == 0 ? varjfs_kv_put(b, c->space, key.bytes, key.len, NULL, 0, VARJFS_EXCLUSIVE,
                               NULL)
               : r;
    r = r == 0 ? varjfs_batch_execute(b) : r;
    varjfs_batch_free(b);
    return there == -ENOENT
               ? vjh_error(there, "object %016" PRIx64 " has been deleted", id)
               : r;
}

/* H5Oincr_refcount and H5Odecr_refcount. */
static int change_count(struct vjh_object *o, uint64_t id, int delta)
{
    struct vjh_container *c = o->file->container;
    struct vjh_node *open;
    int r = vjh_check_writable(o);

    if (r != 0) {
        return r;
    }
    if (delta > 0) {
        return add_count(c, id);
    }
    r = vjh_referrer_drop(c, id);
    open = vjh_node_find(c, id);
    if (open) {
        open->unlinked = true;
    }
    return r;
}

struct drop {
    struct vjh_key key;
    bool found;
};

static int drop_step(void *opaque, struct vjh_slice rest, struct vjh_slice value)
{
    static const uint8_t none[8];
    struct drop *d = opaque;

    (void)value;
    if (rest.len < 8 || memcmp(rest.data, none, 8) != 0 ||
        d->key.len + rest.len > sizeof d->key.bytes) {
        return 1; /* those without a group come first */
    }
    memcpy(d->key.bytes + d->key.len, rest.data, rest.len);
    d->key.len += rest.len;
    d->found = true;
    return 1;
}

int vjh_referrer_drop(struct vjh_container *c, uint64_t id)
{
    struct drop d = {0};
    int r;

    vjh_key(&d.key, id, VJH_KEY_REFERRER);
    r = vjh_each(c, id, VJH_KEY_REFERRER, drop_step, &d);
    if (r < 0) {
        return r;
    }
    if (!d.found) {
        return vjh_error(-EINVAL,
                         "only what H5Oincr_refcount has added can be taken away: "
                         "links are removed by H5Ldelete");
    }
    return vjh_delete(c, &d.key);
}

static herr_t object_specific(void *obj, const H5VL_loc_params_t *loc,
                              H5VL_object_specific_args_t *args, hid_t dxpl_id,
                              void **req)
{
    struct vjh_object *o = obj;
    struct vjh_target t = {0};
    int r = -ENOTSUP;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_OBJECT_CHANGE_REF_COUNT:
        r = vjh_locate(o, loc, &t);
        if (r == 0) {
            r = change_count(o, t.id, args->args.change_rc.delta);
        }
        break;
    case H5VL_OBJECT_EXISTS:
        r = vjh_locate(o, loc, &t);
        *args->args.exists.exists = r == 0;
        r = r == -ENOENT ? 0 : r;
        break;
    case H5VL_OBJECT_LOOKUP:
        r = vjh_locate(o, loc, &t);
        if (r == 0) {
            vjh_id_token(t.id, args->args.lookup.token_ptr);
        }
        break;
    case H5VL_OBJECT_VISIT:
        vjh_target_free(&t);
        return vjh_object_visit(o, loc, &args->args.visit);
    case H5VL_OBJECT_FLUSH:
        r = vjh_flush(o->file->container);
        break;
    case H5VL_OBJECT_REFRESH: /* nothing is kept that others may change */
        r = 0;
        break;
    }
    vjh_target_free(&t);
    VJH_RETURN(r);
}

static herr_t object_optional(void *obj, const H5VL_loc_params_t *loc,
                              H5VL_optional_args_t *args, hid_t dxpl_id, void **req)
{
    (void)obj;
    (void)loc;
    (void)args;
    (void)dxpl_id;
    (void)req;
    VJH_RETURN(vjh_error(-ENOTSUP, "comments, and what else only HDF5's own file format "
                                   "has, are not kept by varjfs"));
}

const H5VL_object_class_t vjh_object_class = {
    .open = object_open,
    .copy = vjh_object_copy,
    .get = object_get,
    .specific = object_specific,
    .optional = object_optional,
};
