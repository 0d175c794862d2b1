/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Attributes: the callbacks of H5A
 *
 * An attribute is one key of its object; its blobs follow its elements.  Data that are
 * too long for a key get a new object with each write, so that a crash leaves the old
 * value or the new one; the old object goes after the key has the new one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"
#include "hdf5-private.h"

/* Bytes of an attribute's data that are read or written at once. */
#define ATTRIBUTE_BYTES_MAX (UINT64_C(4) << 30)
/* Other processes that wrote it while it was read. */
#define DATA_TRIES_MAX 1000

struct vjh_attribute {
    struct vjh_object o;
    char *name;
    char *new_name; /* that it gets when it is renamed */
    hid_t type_id, space_id;
    uint64_t committed_id;
    uint64_t order; /* by which another attribute of its name is told from it */
    uint8_t cset;
    bool has_blobs;
    size_t count;
};

static void attribute_free(struct vjh_attribute *a)
{
    if (!a) {
        return;
    }
    if (a->type_id >= 0) {
        H5Tclose(a->type_id);
    }
    if (a->space_id >= 0) {
        H5Sclose(a->space_id);
    }
    free(a->name);
    free(a->new_name);
    free(a);
}

/* Variable-length data or references are somewhere in it. */
static bool type_has_blobs(hid_t type_id)
{
    if (H5Tget_class(type_id) == H5T_STRING) {
        return H5Tis_variable_str(type_id) > 0;
    }
    return H5Tdetect_class(type_id, H5T_VLEN) > 0 ||
           H5Tdetect_class(type_id, H5T_REFERENCE) > 0 ||
           H5Tdetect_class(type_id, H5T_STRING) > 0;
}

static void data_name(char out[48], uint64_t id, uint64_t data_id)
{
    snprintf(out, 48, "%016" PRIx64 ".a.%016" PRIx64, id, data_id);
}

/* ---- records ----------------------------------------------------------------------- */

static int record_get(struct vjh_container *c, uint64_t id, const char *name,
                      struct vjh_attribute_record *rec, struct vjh_buffer *raw)
{
    struct vjh_key key;
    int r;

    *raw = (struct vjh_buffer){0};
    vjh_key_name(&key, id, VJH_KEY_ATTRIBUTE, name);
    r = vjh_get(c, &key, raw);
    if (r == -ENOENT) {
        return vjh_error(r, "there is no attribute %.200s", name);
    }
    if (r == 0) {
        r = vjh_attribute_decode((struct vjh_slice){raw->data, raw->len}, rec);
    }
    if (r == 0 && !vjh_name_is(name, rec->rest)) {
        r = vjh_error(-EIO, "two long names of attributes have the same hash");
    }
    if (r != 0) {
        vjh_buffer_free(raw);
    }
    return r;
}

/* Of an open attribute: one that was deleted is not what has its name since. */
static int own_record_get(struct vjh_attribute *a, struct vjh_attribute_record *rec,
                          struct vjh_buffer *raw)
{
    int r = record_get(a->o.file->container, a->o.node->id, a->name, rec, raw);

    if (r == 0 && rec->order != a->order) {
        vjh_buffer_free(raw);
        r = vjh_error(-ENOENT, "attribute %.200s has been deleted, and another one made",
                      a->name);
    }
    return r;
}

/* Of an attribute that is there; one that another process has deleted or given another
 * name does not come back: -ENOENT. */
static int record_put(struct vjh_container *c, uint64_t id, const char *name,
                      const struct vjh_attribute_record *rec)
{
    struct vjh_buffer value;
    struct vjh_key key;
    varjfs_batch *b = NULL;
    int r = vjh_attribute_encode(rec, &value);

    if (r == 0) {
        vjh_key_name(&key, id, VJH_KEY_ATTRIBUTE, name);
        r = vjh_batch(c->connection, true, &b);
    }
    r = r == 0 ? varjfs_kv_delete(b, c->space, key.bytes, key.len, NULL) : r;
    r = r == 0 ? varjfs_kv_put(b, c->space, key.bytes, key.len, value.data, value.len, 0,
                               NULL)
               : r;
    r = r == 0 ? varjfs_batch_execute(b) : r;
    varjfs_batch_free(b);
    vjh_buffer_free(&value);
    return r == -ENOENT ? vjh_error(r, "there is no attribute %.200s", name) : r;
}

/* What one try of vjh_attribute_add came to. */
struct addition {
    int attribute, owner;
};

static int add_once(struct vjh_container *c, uint64_t id, const char *name,
                    const struct vjh_attribute_record *rec, struct vjh_order *order,
                    struct addition *result)
{
    struct vjh_buffer value;
    struct vjh_key key, owner, user;
    varjfs_batch *b = NULL;
    int r = vjh_attribute_encode(rec, &value);

    *result = (struct addition){0};
    if (r == 0) {
        r = vjh_batch(c->connection, true, &b);
    }
    if (r == 0) {
        r = vjh_header_require(b, c, id, &owner, &result->owner);
    }
    if (r == 0) {
        vjh_key_name(&key, id, VJH_KEY_ATTRIBUTE, name);
        r = varjfs_kv_put(b, c->space, key.bytes, key.len, value.data, value.len,
                          VARJFS_EXCLUSIVE, &result->attribute);
    }
    if (r == 0 && rec->flags & VJH_HAS_ORDER) {
        r = vjh_order_add(b, c, id, order);
    }
    if (r == 0 && rec->committed_id) {
        vjh_key_user(&user, rec->committed_id, id, name);
        r = varjfs_kv_put(b, c->space, user.bytes, user.len, NULL, 0, 0, NULL);
    }
    r = r == 0 ? varjfs_batch_execute(b) : r;
    varjfs_batch_free(b);
    vjh_buffer_free(&value);
    return r;
}

int vjh_attribute_add(struct vjh_container *c, uint64_t id, const char *name,
                      struct vjh_attribute_record *rec)
{
    struct vjh_node *open = vjh_node_find(c, id);
    struct addition result = {0};
    struct vjh_order order = {0};
    uint16_t flags;
    int r = vjh_object_flags(c, id, &flags);
    bool is_ordered = r == 0 && flags & VJH_ATTRIBUTE_ORDER_TRACKED;

    rec->rest = vjh_name_rest(name);
    rec->flags &= (uint16_t)~VJH_HAS_ORDER;
    rec->flags |= is_ordered ? VJH_HAS_ORDER : 0;
    rec->order = (uint64_t)vjh_now_us();
    for (unsigned try = 0; r == 0; try++) {
        if (is_ordered) {
            r = vjh_order_try(c, id, VJH_KEY_ATTRIBUTE_ORDER,
                              open ? open->next_attribute_order : 0, try, &order);
            rec->order = order.number;
        }
        r = r == 0 ? add_once(c, id, name, rec, &order, &result) : r;
        if (r == 0 || order.result == 0) {
            break;
        }
        if (order.result == -EEXIST || order.result == -ENOENT) {
            r = 0;
        }
    }
    if (r == 0 && open && is_ordered) {
        open->next_attribute_order = rec->order + 1;
    }
    if (r != 0 && result.attribute == -EEXIST) {
        return vjh_error(-EEXIST, "there is an attribute %.200s already", name);
    }
    if (r != 0 && result.owner == -ENOENT) {
        return vjh_error(-ENOENT, "attribute %.200s: the object has been deleted", name);
    }
    return r;
}

/* Blobs, and data in an object, that an attribute had. */
static int delete_data(struct vjh_container *c, uint64_t id, uint64_t data_id)
{
    char name[48];

    if (!data_id) {
        return 0;
    }
    data_name(name, id, data_id);
    return vjh_delete_objects(c, name);
}

/* ---- creating and opening ---------------------------------------------------------- */

static struct vjh_attribute *attribute_alloc(const char *name)
{
    struct vjh_attribute *a = calloc(1, sizeof *a);

    if (a) {
        a->type_id = a->space_id = H5I_INVALID_HID;
        a->name = strdup(name);
        if (!a->name) {
            free(a);
            a = NULL;
        }
    }
    return a;
}

/* The rest of what an open attribute has, from its type and space; after a failure it is
 * freed by attribute_free, else by attribute_close. */
static int attribute_init(struct vjh_attribute *a, struct vjh_file *file,
                          struct vjh_target *t)
{
    hssize_t count = H5Sget_simple_extent_npoints(a->space_id);
    hid_t stored_id;
    uint16_t flags;
    char *path = t->path;
    int r;

    if (count < 0 || (uint64_t)count > SIZE_MAX) {
        return vjh_error(-EIO, "the dataspace of attribute %.200s", a->name);
    }
    a->count = (size_t)count;
    a->has_blobs = type_has_blobs(a->type_id);
    t->path = NULL;
    r = vjh_object_flags(file->container, t->id, &flags);
    if (r != 0) {
        free(path);
        return r;
    }
    r = vjh_object_init(&a->o, H5I_ATTR, file, t->id, flags, path);
    /* Identifiers of types count as open objects in H5Fget_obj_count: not those of stored
     * types, which are the same where there are no blobs. */
    if (r == 0 && !a->has_blobs && vjh_stored_type(file, a->type_id, &stored_id) == 0) {
        H5Tclose(a->type_id);
        a->type_id = stored_id;
    }
    return r;
}

static void attribute_close(struct vjh_attribute *a)
{
    /* The type refers to the file, which may go with its last object. */
    H5Tclose(a->type_id);
    a->type_id = H5I_INVALID_HID;
    vjh_object_term(&a->o);
    attribute_free(a);
}

/* @type_id: as the program gave it, perhaps a committed type, which a copy is not. */
static int attribute_create(struct vjh_object *from, uint64_t id, hid_t type_id,
                            hid_t acpl_id, struct vjh_attribute *a)
{
    struct vjh_attribute_record rec = {.flags = VJH_NOT_WRITTEN};
    struct vjh_buffer type = {0}, space = {0};
    H5T_cset_t cset = H5T_CSET_ASCII;
    int r;

    if (acpl_id != H5P_DEFAULT && H5Pget_char_encoding(acpl_id, &cset) < 0) {
        return vjh_error(-EINVAL, "the attribute creation property list cannot be read");
    }
    a->cset = rec.cset = (uint8_t)cset;
    a->committed_id = rec.committed_id = vjh_committed_id(from, type_id);
    r = vjh_type_encode(type_id, &type);
    r = r == 0 ? vjh_space_encode(a->space_id, &space) : r;
    rec.type = (struct vjh_slice){type.data, type.len};
    rec.space = (struct vjh_slice){space.data, space.len};
    r = r == 0 ? vjh_attribute_add(from->file->container, id, a->name, &rec) : r;
    a->order = rec.order;
    vjh_buffer_free(&type);
    vjh_buffer_free(&space);
    return r;
}

static void *attr_create(void *obj, const H5VL_loc_params_t *loc, const char *name,
                         hid_t type_id, hid_t space_id, hid_t acpl_id, hid_t aapl_id,
                         hid_t dxpl_id, void **req)
{
    struct vjh_object *from = obj;
    struct vjh_attribute *a = attribute_alloc(name);
    struct vjh_target t = {0};
    bool is_open = false;
    uint64_t id = 0;
    int r = a ? vjh_check_writable(from) : -ENOMEM;

    r = r == 0 ? vjh_check_plist(aapl_id, "attribute access") : r;
    (void)dxpl_id;
    (void)req;
    r = r == 0 ? vjh_check_name(name) : r;
    r = r == 0 ? vjh_locate(from, loc, &t) : r;
    if (r == 0) {
        id = t.id;
        a->type_id = H5Tcopy(type_id);
        a->space_id = H5Scopy(space_id);
        r = a->type_id < 0 || a->space_id < 0 ? -ENOMEM : 0;
    }
    /* Before others see it. */
    r = r == 0 ? attribute_init(a, from->file, &t) : r;
    is_open = r == 0;
    r = r == 0 ? attribute_create(from, id, type_id, acpl_id, a) : r;
    vjh_target_free(&t);
    if (r != 0) {
        if (is_open) {
            attribute_close(a);
        } else {
            attribute_free(a);
        }
        a = NULL;
    }
    VJH_RETURN_POINTER(r, a);
}

/* Names of all attributes of an object, in the order that is asked for. */
static int entry_step(void *opaque, struct vjh_slice rest, struct vjh_slice value)
{
    struct vjh_attribute_record rec;
    struct vjh_entries *all = opaque;
    char *name = NULL;
    int r = vjh_attribute_decode(value, &rec);

    r = r == 0 ? vjh_name_restore(rest, rec.rest, &name) : r;
    if (r == 0 && all->n == all->cap) {
        size_t cap = all->cap ? 2 * all->cap : 32;
        struct vjh_entry *v = realloc(all->v, cap * sizeof *v);

        if (!v) {
            free(name);
            return -ENOMEM;
        }
        all->v = v;
        all->cap = cap;
    }
    if (r == 0) {
        all->v[all->n++] = (struct vjh_entry){.name = name, .order = rec.order};
    }
    return r;
}

int vjh_attributes(struct vjh_container *c, uint64_t id, H5_index_t index,
                   H5_iter_order_t order, struct vjh_entries *out)
{
    int r;

    *out = (struct vjh_entries){0};
    r = vjh_each(c, id, VJH_KEY_ATTRIBUTE, entry_step, out);
    if (r != 0) {
        vjh_entries_free(out);
        return r;
    }
    vjh_entries_sort(out, index, order);
    return 0;
}

static int name_by_index(struct vjh_container *c, uint64_t id, H5_index_t index,
                         H5_iter_order_t order, hsize_t n, char **name)
{
    struct vjh_entries all;
    int r = vjh_attributes(c, id, index, order, &all);

    *name = NULL;
    if (r != 0) {
        return r;
    }
    if (n < all.n) {
        *name = all.v[n].name;
        all.v[n].name = NULL;
    } else {
        r = vjh_error(-EINVAL, "index %llu: the object has %zu attributes",
                      (unsigned long long)n, all.n);
    }
    vjh_entries_free(&all);
    return r;
}

/* The object whose attributes are meant, and the attribute's name if the location has an
 * index. */
static int find_owner(struct vjh_object *from, const H5VL_loc_params_t *loc,
                      struct vjh_target *t, char **name)
{
    H5VL_loc_params_t base = {.obj_type = loc->obj_type, .type = H5VL_OBJECT_BY_NAME};
    int r;

    *name = NULL;
    if (loc->type != H5VL_OBJECT_BY_IDX) {
        return vjh_locate(from, loc, t);
    }
    base.loc_data.loc_by_name = (H5VL_loc_by_name_t){loc->loc_data.loc_by_idx.name,
                                                     loc->loc_data.loc_by_idx.lapl_id};
    r = vjh_locate(from, &base, t);
    if (r == 0) {
        const H5VL_loc_by_idx_t *by = &loc->loc_data.loc_by_idx;

        r = name_by_index(from->file->container, t->id, by->idx_type, by->order, by->n,
                          name);
        if (r != 0) {
            vjh_target_free(t);
        }
    }
    return r;
}

static int attribute_from(struct vjh_attribute *a, const struct vjh_attribute_record *rec)
{
    int r = vjh_type_decode(rec->type, &a->type_id);

    r = r == 0 ? vjh_space_decode(rec->space, &a->space_id) : r;
    a->cset = rec->cset;
    a->committed_id = rec->committed_id;
    a->order = rec->order;
    return r;
}

static void *attr_open(void *obj, const H5VL_loc_params_t *loc, const char *name,
                       hid_t aapl_id, hid_t dxpl_id, void **req)
{
    struct vjh_object *from = obj;
    struct vjh_attribute *a = NULL;
    struct vjh_attribute_record rec;
    struct vjh_buffer raw = {0};
    struct vjh_target t = {0};
    char *found = NULL;
    int r = vjh_check_plist(aapl_id, "attribute access");

    r = r == 0 ? find_owner(from, loc, &t, &found) : r;
    (void)dxpl_id;
    (void)req;
    if (r == 0 && !name && !found) {
        r = vjh_error(-EINVAL, "an attribute needs a name");
    }
    if (r == 0) {
        a = attribute_alloc(found ? found : name);
        r = a ? record_get(from->file->container, t.id, a->name, &rec, &raw) : -ENOMEM;
    }
    r = r == 0 ? attribute_from(a, &rec) : r;
    r = r == 0 ? attribute_init(a, from->file, &t) : r;
    vjh_buffer_free(&raw);
    vjh_target_free(&t);
    free(found);
    if (r != 0) {
        attribute_free(a);
        a = NULL;
    }
    VJH_RETURN_POINTER(r, a);
}

/* ---- data -------------------------------------------------------------------------- */

/* At least @len bytes; behind these stands what variable-length elements refer to. */
/* Of an object, whose length stands in the record. */
static int data_read(struct vjh_attribute *a, const struct vjh_attribute_record *rec,
                     struct vjh_buffer *out)
{
    struct vjh_container *c = a->o.file->container;
    const uint8_t *p = rec->data.data;
    uint64_t len = 0;
    size_t got = 0;
    varjfs_batch *b;
    char name[48];
    int r;

    *out = (struct vjh_buffer){0};
    for (size_t i = 0; i < 8 && i < rec->data.len; i++) {
        len |= (uint64_t)p[i] << (8 * i);
    }
    if (rec->data.len != 8 || len > ATTRIBUTE_BYTES_MAX) {
        return vjh_error(-EIO, "attribute %.200s: the length of its data", a->name);
    }
    *out = (struct vjh_buffer){.data = malloc(len + 1), .len = (size_t)len};
    if (!out->data) {
        return -ENOMEM;
    }
    data_name(name, a->o.node->id, rec->data_id);
    r = vjh_batch(c->connection, false, &b);
    if (r == 0) {
        r = varjfs_object_read(b, c->space, name, out->data, out->len, 0, &got, NULL);
        r = r == 0 ? varjfs_batch_execute(b) : r;
        varjfs_batch_free(b);
    }
    if (r == -ENOENT || (r == 0 && got != len)) {
        r = vjh_error(-EIO, "attribute %.200s: its data are missing", a->name);
    }
    if (r != 0) {
        vjh_buffer_free(out);
    }
    return r;
}

static int too_long(const struct vjh_attribute *a)
{
    return vjh_error(-EFBIG, "attribute %.200s: more than 4 GiB", a->name);
}

/* Bytes of all elements as they are stored, without blobs. */
static int stored_bytes(struct vjh_attribute *a, size_t *out)
{
    size_t size;
    int r = vjh_stored_size(&a->o, a->type_id, &size);

    if (r == 0 && size && a->count > ATTRIBUTE_BYTES_MAX / size) {
        r = too_long(a);
    }
    *out = r == 0 ? size * a->count : 0;
    return r;
}

/* What is stored, of an attribute that was written: *bytes points into *data or the
 * record. */
static int stored_data(struct vjh_attribute *a, const struct vjh_attribute_record *rec,
                       struct vjh_buffer *data, struct vjh_slice *bytes)
{
    int r = 0;

    *data = (struct vjh_buffer){0};
    *bytes = rec->data;
    if (rec->flags & VJH_DATA_IN_OBJECT) {
        r = data_read(a, rec, data);
        *bytes = (struct vjh_slice){data->data, data->len};
    }
    return r;
}

/* The record, and, where @wanted, what is stored; another process may write and remove
 * the older data in between. */
static int record_and_data(struct vjh_attribute *a, bool wanted,
                           struct vjh_attribute_record *rec, struct vjh_buffer *raw,
                           struct vjh_buffer *data, struct vjh_slice *bytes)
{
    uint64_t last = 0;
    int r;

    *data = (struct vjh_buffer){0};
    *bytes = (struct vjh_slice){0};
    for (int i = 0;; i++) {
        r = own_record_get(a, rec, raw);
        if (r != 0 || !wanted || rec->flags & VJH_NOT_WRITTEN) {
            return r;
        }
        r = stored_data(a, rec, data, bytes);
        if (r == 0) {
            return 0;
        }
        vjh_buffer_free(raw);
        if (r != -EIO || rec->data_id == last || i == DATA_TRIES_MAX) {
            return r;
        }
        last = rec->data_id;
    }
}

static herr_t attr_read(void *attr, hid_t mem_type_id, void *buf, hid_t dxpl_id,
                        void **req)
{
    struct vjh_attribute *a = attr;
    struct vjh_attribute_record rec;
    struct vjh_buffer raw = {0}, data;
    struct vjh_slice bytes;
    int r = record_and_data(a, a->count > 0, &rec, &raw, &data, &bytes);

    (void)dxpl_id;
    (void)req;
    if (r == 0 && a->count > 0) {
        if (rec.flags & VJH_NOT_WRITTEN) {
            memset(buf, 0, a->count * H5Tget_size(mem_type_id));
        } else {
            r = vjh_convert_read(&a->o, a->type_id, mem_type_id, a->count, bytes, buf);
        }
    }
    vjh_buffer_free(&data);
    vjh_buffer_free(&raw);
    VJH_RETURN(r);
}

static int data_write(struct vjh_attribute *a, uint64_t data_id,
                      const struct vjh_buffer *data)
{
    struct vjh_container *c = a->o.file->container;
    varjfs_batch *b;
    char name[48];
    int r = vjh_batch(c->connection, false, &b);

    if (r == 0) {
        data_name(name, a->o.node->id, data_id);
        r = varjfs_object_write(b, c->space, name, data->data, data->len, 0,
                                VARJFS_CREATE, NULL);
        r = r == 0 ? varjfs_batch_execute(b) : r;
        varjfs_batch_free(b);
    }
    return r;
}

static int write_record(struct vjh_attribute *a, struct vjh_attribute_record *rec,
                        const struct vjh_buffer *data)
{
    uint8_t len[8];
    int r = 0;

    rec->flags &= (uint16_t) ~(VJH_NOT_WRITTEN | VJH_DATA_IN_OBJECT);
    rec->data_id = 0;
    rec->data = (struct vjh_slice){data->data, data->len};
    if (data->len > VJH_ATTRIBUTE_INLINE_MAX) {
        for (int i = 0; i < 8; i++) {
            len[i] = (uint8_t)((uint64_t)data->len >> (8 * i));
        }
        rec->data_id = vjh_random() | 1;
        rec->flags |= VJH_DATA_IN_OBJECT;
        rec->data = (struct vjh_slice){len, sizeof len};
        r = data_write(a, rec->data_id, data);
    }
    if (r == 0) {
        r = record_put(a->o.file->container, a->o.node->id, a->name, rec);
        if (r == -ENOENT) {
            int r2 = delete_data(a->o.file->container, a->o.node->id, rec->data_id);

            r = r2 == 0 ? r : r2;
        }
    }
    return r;
}

/* Members that were kept have their blobs among all that there were: each is written
 * anew, so that those of members that were replaced do not stay. */
static int drop_unused(struct vjh_attribute *a, struct vjh_buffer *data)
{
    struct vjh_buffer used = {0};
    void *memory = calloc(a->count, H5Tget_size(a->type_id));
    int r = memory ? vjh_convert_read(&a->o, a->type_id, a->type_id, a->count,
                                      (struct vjh_slice){data->data, data->len}, memory)
                   : -ENOMEM;

    if (r == 0) {
        r = vjh_convert_write(&a->o, a->type_id, a->type_id, a->count, memory,
                              (struct vjh_slice){0}, &used);
        H5Treclaim(a->type_id, a->space_id, H5P_DEFAULT, memory);
    }
    free(memory);
    if (r == 0) {
        vjh_buffer_free(data);
        *data = used;
    }
    return r;
}

static int attribute_write(struct vjh_attribute *a, hid_t mem_type_id, const void *buf)
{
    struct vjh_container *c = a->o.file->container;
    struct vjh_buffer raw = {0}, before = {0}, data = {0};
    struct vjh_attribute_record rec;
    struct vjh_slice bytes = {0};
    uint64_t old_data_id = 0;
    size_t len;
    /* A program may write some members of a compound: the others stay as they are. */
    bool keeps = a->count > 0 && H5Tdetect_class(a->type_id, H5T_COMPOUND) > 0;
    int r = vjh_check_writable(&a->o);

    r = r == 0 ? record_and_data(a, keeps, &rec, &raw, &before, &bytes) : r;
    if (r != 0 || a->count == 0) {
        vjh_buffer_free(&raw);
        return r;
    }
    old_data_id = rec.data_id;
    r = stored_bytes(a, &len);
    if (r == 0) {
        r = vjh_convert_write(&a->o, a->type_id, mem_type_id, a->count, buf, bytes,
                              &data);
    }
    if (r == 0 && bytes.len > 0 && a->has_blobs) {
        r = drop_unused(a, &data);
    }
    if (r == 0 && data.len > ATTRIBUTE_BYTES_MAX) {
        r = too_long(a);
    }
    r = r == 0 ? write_record(a, &rec, &data) : r;
    vjh_buffer_free(&data);
    vjh_buffer_free(&before);
    vjh_buffer_free(&raw);
    return r == 0 ? delete_data(c, a->o.node->id, old_data_id) : r;
}

static herr_t attr_write(void *attr, hid_t mem_type_id, const void *buf, hid_t dxpl_id,
                         void **req)
{
    (void)dxpl_id;
    (void)req;
    VJH_RETURN(attribute_write(attr, mem_type_id, buf));
}

/* ---- asking ------------------------------------------------------------------------ */

/* @name of the object @t. */
static int info_of(struct vjh_object *from, uint64_t id, const char *name,
                   H5A_info_t *out)
{
    struct vjh_attribute a = {.type_id = H5I_INVALID_HID, .space_id = H5I_INVALID_HID};
    struct vjh_attribute_record rec;
    struct vjh_buffer raw;
    hssize_t count;
    size_t size = 0;
    int r = record_get(from->file->container, id, name, &rec, &raw);

    if (r != 0) {
        return r;
    }
    r = attribute_from(&a, &rec);
    if (r == 0) {
        count = H5Sget_simple_extent_npoints(a.space_id);
        r = vjh_stored_size(from, a.type_id, &size);
        memset(out, 0, sizeof *out);
        out->corder_valid = (rec.flags & VJH_HAS_ORDER) != 0;
        out->corder = (H5O_msg_crt_idx_t)rec.order;
        out->cset = (H5T_cset_t)rec.cset;
        out->data_size = count > 0 ? (hsize_t)count * size : 0;
    }
    if (a.type_id >= 0) {
        H5Tclose(a.type_id);
    }
    if (a.space_id >= 0) {
        H5Sclose(a.space_id);
    }
    vjh_buffer_free(&raw);
    return r;
}

static int get_acpl(const struct vjh_attribute *a, hid_t *out)
{
    *out = H5Pcreate(H5P_ATTRIBUTE_CREATE);
    if (*out < 0 || H5Pset_char_encoding(*out, (H5T_cset_t)a->cset) < 0) {
        return -ENOMEM;
    }
    return 0;
}

static int get_info(struct vjh_object *o, H5VL_attr_get_info_args_t *args)
{
    struct vjh_target t;
    char *found = NULL;
    int r;

    if (args->loc_params.type == H5VL_OBJECT_BY_SELF && o->type == H5I_ATTR) {
        return info_of(o, o->node->id, ((struct vjh_attribute *)o)->name, args->ainfo);
    }
    r = find_owner(o, &args->loc_params, &t, &found);
    if (r == 0 && !found && !args->attr_name) {
        r = vjh_error(-EINVAL, "an attribute needs a name");
    }
    if (r == 0) {
        r = info_of(o, t.id, found ? found : args->attr_name, args->ainfo);
        vjh_target_free(&t);
    }
    free(found);
    return r;
}

static int get_name(struct vjh_object *o, H5VL_attr_get_name_args_t *args)
{
    struct vjh_target t = {0};
    char *found = NULL;
    const char *name = NULL;
    int r = 0;

    if (args->loc_params.type == H5VL_OBJECT_BY_SELF && o->type == H5I_ATTR) {
        name = ((struct vjh_attribute *)o)->name;
    } else {
        r = find_owner(o, &args->loc_params, &t, &found);
        name = found;
    }
    if (r == 0 && !name) {
        r = vjh_error(-EINVAL, "an attribute needs an index");
    }
    if (r == 0) {
        *args->attr_name_len = strlen(name);
        if (args->buf && args->buf_size > 0) {
            snprintf(args->buf, args->buf_size, "%s", name);
        }
    }
    vjh_target_free(&t);
    free(found);
    return r;
}

static herr_t attr_get(void *obj, H5VL_attr_get_args_t *args, hid_t dxpl_id, void **req)
{
    struct vjh_attribute *a = obj;
    size_t len = 0;
    int r = -ENOTSUP;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_ATTR_GET_ACPL:
        r = get_acpl(a, &args->args.get_acpl.acpl_id);
        break;
    case H5VL_ATTR_GET_INFO:
        r = get_info(obj, &args->args.get_info);
        break;
    case H5VL_ATTR_GET_NAME:
        r = get_name(obj, &args->args.get_name);
        break;
    case H5VL_ATTR_GET_SPACE:
        args->args.get_space.space_id = H5Scopy(a->space_id);
        r = args->args.get_space.space_id < 0 ? -ENOMEM : 0;
        break;
    case H5VL_ATTR_GET_STORAGE_SIZE:
        r = stored_bytes(a, &len);
        *args->args.get_storage_size.data_size = len;
        break;
    case H5VL_ATTR_GET_TYPE:
        r = vjh_type_id(a->o.file, a->committed_id, a->type_id,
                        &args->args.get_type.type_id);
        break;
    }
    VJH_RETURN(r);
}

/* ---- changing ---------------------------------------------------------------------- */

static int delete_attribute(struct vjh_container *c, uint64_t id, const char *name)
{
    struct vjh_attribute_record rec;
    struct vjh_key key, user;
    struct vjh_buffer raw;
    varjfs_batch *b;
    int r = record_get(c, id, name, &rec, &raw);

    if (r != 0) {
        return r;
    }
    r = vjh_batch(c->connection, true, &b);
    if (r == 0) {
        vjh_key_name(&key, id, VJH_KEY_ATTRIBUTE, name);
        r = varjfs_kv_delete(b, c->space, key.bytes, key.len, NULL);
        if (r == 0 && rec.committed_id) {
            vjh_key_user(&user, rec.committed_id, id, name);
            r = varjfs_kv_delete(b, c->space, user.bytes, user.len, NULL);
        }
        r = r == 0 ? varjfs_batch_execute(b) : r;
        varjfs_batch_free(b);
    }
    vjh_buffer_free(&raw);
    if (r == 0 && rec.committed_id) {
        r = vjh_object_remove_unlinked(c, rec.committed_id);
    }
    return r == 0 ? delete_data(c, id, rec.data_id) : r;
}

/* What this process has open of it gets the new name.  @to: it may get it, and memory for
 * that is had; NULL: it gets it, or not, as @is_done says. */
static int rename_open(struct vjh_container *c, uint64_t id, uint64_t order,
                       const char *to, bool is_done)
{
    for (struct vjh_file *f = vjh_files(); f; f = f->next) {
        for (struct vjh_object *o = f->objects; o && f->container == c; o = o->next) {
            struct vjh_attribute *a = (struct vjh_attribute *)o;

            if (o->type != H5I_ATTR || o->node->id != id || a->order != order) {
                continue;
            }
            if (to) {
                free(a->new_name);
                a->new_name = strdup(to);
                if (!a->new_name) {
                    return -ENOMEM;
                }
            } else if (is_done && a->new_name) {
                free(a->name);
                a->name = a->new_name;
                a->new_name = NULL;
            }
        }
    }
    return 0;
}

static int rename_attribute(struct vjh_container *c, uint64_t id, const char *from,
                            const char *to)
{
    struct vjh_attribute_record rec;
    struct vjh_buffer raw, value = {0};
    struct vjh_key key, new_key, user, new_user;
    varjfs_batch *b;
    int result = 0;
    int r = record_get(c, id, from, &rec, &raw);

    if (r != 0) {
        return r;
    }
    rec.rest = vjh_name_rest(to);
    r = vjh_check_name(to);
    r = r == 0 ? rename_open(c, id, rec.order, to, false) : r;
    r = r == 0 ? vjh_attribute_encode(&rec, &value) : r;
    r = r == 0 ? vjh_batch(c->connection, true, &b) : r;
    if (r == 0) {
        vjh_key_name(&key, id, VJH_KEY_ATTRIBUTE, from);
        vjh_key_name(&new_key, id, VJH_KEY_ATTRIBUTE, to);
        r = varjfs_kv_put(b, c->space, new_key.bytes, new_key.len, value.data, value.len,
                          VARJFS_EXCLUSIVE, &result);
        r = r == 0 ? varjfs_kv_delete(b, c->space, key.bytes, key.len, NULL) : r;
        if (r == 0 && rec.committed_id) {
            vjh_key_user(&user, rec.committed_id, id, from);
            vjh_key_user(&new_user, rec.committed_id, id, to);
            r = varjfs_kv_put(b, c->space, new_user.bytes, new_user.len, NULL, 0, 0,
                              NULL);
            r = r == 0 ? varjfs_kv_delete(b, c->space, user.bytes, user.len, NULL) : r;
        }
        r = r == 0 ? varjfs_batch_execute(b) : r;
        varjfs_batch_free(b);
    }
    if (result == -EEXIST) {
        r = vjh_error(-EEXIST, "there is an attribute %.200s already", to);
    }
    rename_open(c, id, rec.order, NULL, r == 0);
    vjh_buffer_free(&raw);
    vjh_buffer_free(&value);
    return r;
}

static int exists(struct vjh_container *c, uint64_t id, const char *name, hbool_t *out)
{
    struct vjh_attribute_record rec;
    struct vjh_buffer raw;
    int r = record_get(c, id, name, &rec, &raw);

    *out = r == 0;
    if (r == 0) {
        vjh_buffer_free(&raw);
    }
    return r == -ENOENT ? 0 : r;
}

/* *ret: what the program's function returned. */
static int iterate(struct vjh_object *o, const struct vjh_target *t,
                   H5VL_attr_iterate_args_t *args, herr_t *ret)
{
    struct vjh_container *c = o->file->container;
    hsize_t first = args->idx ? *args->idx : 0;
    struct vjh_entries all;
    hid_t id = H5I_INVALID_HID;
    int r = vjh_attributes(c, t->id, args->idx_type, args->order, &all);

    if (r == 0 && first > 0 && first >= all.n) {
        r = vjh_error(-EINVAL, "index %llu: the object has %zu attributes",
                      (unsigned long long)first, all.n);
    }
    if (r == 0 && all.n > 0) {
        r = vjh_open_id(o->file, t->id, t->path, &id);
    }
    for (size_t i = (size_t)first; r == 0 && *ret == 0 && i < all.n; i++) {
        H5A_info_t info;

        r = info_of(o, t->id, all.v[i].name, &info);
        if (r == -ENOENT) {
            r = 0; /* it has gone since */
            continue;
        }
        if (r == 0) {
            if (args->idx) {
                *args->idx = i + 1;
            }
            *ret = args->op ? args->op(id, all.v[i].name, &info, args->op_data) : 0;
        }
    }
    if (id >= 0) {
        H5Idec_ref(id);
    }
    vjh_entries_free(&all);
    return r;
}

static int specific(struct vjh_object *o, const struct vjh_target *t,
                    H5VL_attr_specific_args_t *args, herr_t *ret)
{
    struct vjh_container *c = o->file->container;
    char *name;
    int r = 0;

    if (args->op_type != H5VL_ATTR_EXISTS && args->op_type != H5VL_ATTR_ITER) {
        r = vjh_check_writable(o);
    }
    if (r != 0) {
        return r;
    }
    switch (args->op_type) {
    case H5VL_ATTR_DELETE:
        return delete_attribute(c, t->id, args->args.del.name);
    case H5VL_ATTR_DELETE_BY_IDX:
        r = name_by_index(c, t->id, args->args.delete_by_idx.idx_type,
                          args->args.delete_by_idx.order, args->args.delete_by_idx.n,
                          &name);
        if (r == 0) {
            r = delete_attribute(c, t->id, name);
            free(name);
        }
        return r;
    case H5VL_ATTR_EXISTS:
        return exists(c, t->id, args->args.exists.name, args->args.exists.exists);
    case H5VL_ATTR_ITER:
        return iterate(o, t, &args->args.iterate, ret);
    case H5VL_ATTR_RENAME:
        return rename_attribute(c, t->id, args->args.rename.old_name,
                                args->args.rename.new_name);
    default:
        return -ENOTSUP;
    }
}

static herr_t attr_specific(void *obj, const H5VL_loc_params_t *loc,
                            H5VL_attr_specific_args_t *args, hid_t dxpl_id, void **req)
{
    struct vjh_target t;
    herr_t ret = 0;
    int r = vjh_locate(obj, loc, &t);

    (void)dxpl_id;
    (void)req;
    if (r == 0) {
        r = specific(obj, &t, args, &ret);
        vjh_target_free(&t);
    }
    if (r != 0) {
        VJH_RETURN(r);
    }
    return ret;
}

static herr_t attr_close(void *attr, hid_t dxpl_id, void **req)
{
    struct vjh_attribute *a = attr;
    int r = vjh_object_closing(&a->o);

    (void)dxpl_id;
    (void)req;
    if (r == 0) {
        attribute_close(a);
    }
    VJH_RETURN(r);
}

const H5VL_attr_class_t vjh_attribute_class = {
    .create = attr_create,
    .open = attr_open,
    .read = attr_read,
    .write = attr_write,
    .get = attr_get,
    .specific = attr_specific,
    .close = attr_close,
};
