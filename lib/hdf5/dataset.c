/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Datasets: the callbacks of H5D
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <varjfs/hdf5.h>

#include "dataset.h"

/* ---- making and freeing ------------------------------------------------------------ */

static struct vjh_dataset *new_dataset(void)
{
    struct vjh_dataset *d = calloc(1, sizeof *d);

    if (d != NULL) {
        d->type_id = d->stored_type_id = d->dcpl_id = d->dapl_id = H5I_INVALID_HID;
    }
    return d;
}

static void close_id(hid_t id, herr_t (*close)(hid_t))
{
    if (id >= 0) {
        close(id);
    }
}

/* All but what vjh_object_term does. */
static void free_dataset(struct vjh_dataset *d)
{
    if (d == NULL) {
        return;
    }
    if (d->type_id != d->stored_type_id) {
        close_id(d->type_id, H5Tclose);
    }
    close_id(d->stored_type_id, H5Tclose);
    close_id(d->dcpl_id, H5Pclose);
    close_id(d->dapl_id, H5Pclose);
    free(d->transform);
    free(d->fill);
    free(d);
}

static void close_dataset(struct vjh_dataset *d)
{
    /* The type refers to the file, which may go with its last object. */
    close_id(d->stored_type_id, H5Tclose);
    if (d->type_id == d->stored_type_id) {
        d->type_id = H5I_INVALID_HID;
    }
    d->stored_type_id = H5I_INVALID_HID;
    vjh_object_term(&d->o);
    free_dataset(d);
}

static int set_type(struct vjh_dataset *d, struct vjh_file *file)
{
    int rc = vjh_stored_type(file, d->type_id, &d->stored_type_id);

    if (rc == 0) {
        d->stored_size = H5Tget_size(d->stored_type_id);
        d->has_blobs = H5Tequal(d->type_id, d->stored_type_id) == 0;
    }
    return rc;
}

/* Identifiers of types count as open objects in H5Fget_obj_count, those of stored
 * types do not: they are the same where there are no blobs. */
static void hide_type(struct vjh_dataset *d)
{
    if (!d->has_blobs && d->type_id != d->stored_type_id) {
        H5Tclose(d->type_id);
        d->type_id = d->stored_type_id;
    }
}

static int set_transform(struct vjh_dataset *d, const void *text, size_t len)
{
    if (len == 0) {
        return 0;
    }
    if (len > VJH_TRANSFORM_MAX || memchr(text, '\0', len) != NULL) {
        return vjh_error(-EIO, "the transformation of a dataset is damaged");
    }
    d->transform = calloc(1, len + 1);
    if (d->transform == NULL) {
        return -ENOMEM;
    }
    memcpy(d->transform, text, len);
    return 0;
}

/* ---- creation ---------------------------------------------------------------------- */

static int take_space(struct vjh_dataset *d, hid_t space_id)
{
    d->space_class = H5Sget_simple_extent_type(space_id);
    if (d->space_class == H5S_NO_CLASS) {
        return vjh_error(-EINVAL, "this is not a dataspace");
    }
    if (d->space_class != H5S_SIMPLE) {
        return 0;
    }
    d->rank = H5Sget_simple_extent_dims(space_id, d->new_dims, d->max_dims);
    if (d->rank <= 0) {
        d->rank = 0;
        return vjh_error(-EINVAL, "the dataspace has no extent");
    }
    return 0;
}

static int take_properties(struct vjh_dataset *d, hid_t dcpl_id, hid_t dapl_id)
{
    char transform[VARJFS_HDF5_TRANSFORM_BYTES];
    int rc;

    d->dcpl_id = H5Pcopy(dcpl_id);
    d->dapl_id = H5Pcopy(dapl_id);
    if (d->dcpl_id < 0 || d->dapl_id < 0 ||
        varjfs_hdf5_get_transform(dcpl_id, transform) < 0) {
        return vjh_error(-EINVAL, "the properties of the dataset cannot be copied");
    }
    rc = set_transform(d, transform, strlen(transform));
    return rc == 0 ? vjh_layout_from_dcpl(dcpl_id, &d->layout) : rc;
}

/* The link, the header and all that is in it. */
static int store(struct vjh_dataset *d, struct vjh_object *from,
                 const H5VL_loc_params_t *loc, const char *name, hid_t lcpl_id)
{
    struct vjh_header h = {.kind = VJH_DATASET,
                           .created_us = (uint64_t)vjh_now_us(),
                           .committed_id = d->committed_id};
    struct vjh_buffer layout = {0}, type = {0};
    struct vjh_blobs *blobs;
    int rc = vjh_plist_flags(d->dcpl_id, &h.flags);

    if (rc == 0) {
        rc = vjh_layout_encode(d, &layout);
    }
    if (rc == 0) {
        rc = vjh_type_encode(d->type_id, &type);
    }
    h.plist = (struct vjh_slice){layout.data, layout.len};
    h.type = (struct vjh_slice){type.data, type.len};
    if (d->transform != NULL) {
        h.transform = (struct vjh_slice){d->transform, strlen(d->transform)};
    }
    blobs = d->o.blobs; /* of the fill value */
    if (rc == 0) {
        rc = vjh_object_create(from, loc, name, lcpl_id, &h, H5I_DATASET, &d->o);
    }
    if (rc == 0) {
        d->o.blobs = blobs;
        memcpy(d->o.node->dims, d->new_dims, sizeof d->new_dims);
        d->o.node->has_dims = true;
    } else {
        vjh_blobs_free(blobs);
        d->o.blobs = NULL;
    }
    vjh_buffer_free(&layout);
    vjh_buffer_free(&type);
    return rc;
}

/* It was made, but could not be allocated: the link goes, and it when it is closed. */
static void undo(struct vjh_dataset *d, struct vjh_object *from,
                 const H5VL_loc_params_t *loc, const char *name)
{
    struct vjh_container *c = from->file->container;
    struct vjh_target group;
    struct vjh_buffer raw;
    struct vjh_link l;
    char *leaf;

    if (name == NULL || vjh_locate_parent(from, loc, name, H5P_DEFAULT, &group, &leaf)) {
        return;
    }
    if (vjh_link_get(c, group.id, leaf, &l, &raw) == 0) {
        if (l.type == VJH_LINK_HARD && l.id == d->o.node->id) {
            vjh_link_delete(c, group.id, leaf);
        }
        vjh_buffer_free(&raw);
    }
    vjh_target_free(&group);
    free(leaf);
}

static void *dataset_create(void *obj, const H5VL_loc_params_t *loc, const char *name,
                            hid_t lcpl_id, hid_t type_id, hid_t space_id, hid_t dcpl_id,
                            hid_t dapl_id, hid_t dxpl_id, void **req)
{
    struct vjh_object *from = obj;
    struct vjh_dataset *d = new_dataset();
    int rc = d == NULL ? -ENOMEM : vjh_check_writable(from);

    (void)dxpl_id;
    (void)req;
    if (rc == 0) {
        d->type_id = H5Tcopy(type_id);
        d->committed_id = vjh_committed_id(from, type_id);
        rc = d->type_id < 0 ? vjh_error(-EINVAL, "the type cannot be copied")
                            : set_type(d, from->file);
    }
    if (rc == 0) {
        rc = take_space(d, space_id);
    }
    if (rc == 0) {
        rc = take_properties(d, dcpl_id, dapl_id);
    }
    if (rc == 0) {
        rc = vjh_layout_check(d);
    }
    if (rc == 0 && d->layout.filter_count > 0) {
        rc = vjh_filters_take_values(d);
    }
    if (rc == 0) {
        d->o.file = from->file;
        rc = vjh_check_transform(d);
    }
    if (rc == 0) {
        rc = store(d, from, loc, name, lcpl_id);
    }
    if (rc != 0) {
        free_dataset(d);
        VJH_RETURN_POINTER(rc, NULL);
    }
    hide_type(d);
    d->is_new = true;
    rc = vjh_allocate(d, NULL);
    if (rc != 0) {
        undo(d, from, loc, name);
        close_dataset(d);
        d = NULL;
    }
    VJH_RETURN_POINTER(rc, d);
}

/* ---- opening ----------------------------------------------------------------------- */

int vjh_dataset_new(struct vjh_file *file, uint64_t id, char *path,
                    const struct vjh_header *h, struct vjh_object **out)
{
    struct vjh_dataset *d = new_dataset();
    int rc;

    *out = NULL;
    if (d == NULL) {
        free(path);
        return -ENOMEM;
    }
    rc = vjh_object_init(&d->o, H5I_DATASET, file, id, h->flags, path);
    if (rc != 0) {
        free_dataset(d);
        return rc;
    }
    d->committed_id = h->committed_id;
    rc = vjh_type_decode(h->type, &d->type_id);
    if (rc == 0) {
        rc = set_type(d, file);
    }
    if (rc == 0) {
        rc = set_transform(d, h->transform.data, h->transform.len);
    }
    if (rc == 0) {
        rc = vjh_layout_decode(d, h->plist);
    }
    if (rc != 0) {
        close_dataset(d);
        return rc;
    }
    hide_type(d);
    *out = &d->o;
    return 0;
}

static void *dataset_open(void *obj, const H5VL_loc_params_t *loc, const char *name,
                          hid_t dapl_id, hid_t dxpl_id, void **req)
{
    struct vjh_object *from = obj, *out = NULL;
    struct vjh_target target;
    struct vjh_header h;
    struct vjh_buffer raw;
    int rc = H5Pisa_class(dapl_id, H5P_DATASET_ACCESS) > 0
                 ? 0
                 : vjh_error(-EINVAL, "this is not a dataset access property list");

    (void)dxpl_id;
    (void)req;
    if (rc == 0) {
        rc = vjh_object_find(from, loc, name, VJH_DATASET, &target, &h, &raw);
    }
    if (rc == 0) {
        rc = vjh_dataset_new(from->file, target.id, target.path, &h, &out);
        vjh_buffer_free(&raw);
    }
    if (rc == 0) {
        ((struct vjh_dataset *)out)->dapl_id = H5Pcopy(dapl_id);
    }
    VJH_RETURN_POINTER(rc, out);
}

static herr_t dataset_close(void *dset, hid_t dxpl_id, void **req)
{
    struct vjh_dataset *d = dset;
    int rc = vjh_object_closing(&d->o);

    (void)dxpl_id;
    (void)req;
    if (rc == 0) {
        close_dataset(d);
    }
    VJH_RETURN(rc);
}

/* ---- data -------------------------------------------------------------------------- */

static herr_t dataset_read(size_t count, void *dset[], hid_t mem_type_id[],
                           hid_t mem_space_id[], hid_t file_space_id[], hid_t dxpl_id,
                           void *buf[], void **req)
{
    int rc = 0;

    (void)req;
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = vjh_transfer(dset[i], false, mem_type_id[i], mem_space_id[i],
                          file_space_id[i], dxpl_id, buf[i]);
    }
    VJH_RETURN(rc);
}

static herr_t dataset_write(size_t count, void *dset[], hid_t mem_type_id[],
                            hid_t mem_space_id[], hid_t file_space_id[], hid_t dxpl_id,
                            const void *buf[], void **req)
{
    int rc = 0;

    (void)req;
    for (size_t i = 0; i < count && rc == 0; i++) {
        struct vjh_dataset *d = dset[i];

        rc = vjh_check_writable(&d->o);
        if (rc == 0) {
            /* It is only read: vjh_transfer has one parameter for both directions. */
            rc = vjh_transfer(d, true, mem_type_id[i], mem_space_id[i], file_space_id[i],
                              dxpl_id, (void *)(uintptr_t)buf[i]);
        }
    }
    VJH_RETURN(rc);
}

/* ---- properties -------------------------------------------------------------------- */

static int get_space(struct vjh_dataset *d, hid_t *out)
{
    *out = d->space_class == H5S_SIMPLE
               ? H5Screate_simple(d->rank, vjh_dims(d), d->max_dims)
               : H5Screate(d->space_class);
    return *out < 0 ? vjh_error(-ENOMEM, "no dataspace can be made") : 0;
}

static int get_dapl(const struct vjh_dataset *d, hid_t *out)
{
    *out = d->dapl_id >= 0 ? H5Pcopy(d->dapl_id) : H5Pcreate(H5P_DATASET_ACCESS);
    return *out < 0 ? -ENOMEM : 0;
}

static herr_t dataset_get(void *obj, H5VL_dataset_get_args_t *args, hid_t dxpl_id,
                          void **req)
{
    struct vjh_dataset *d = obj;
    H5D_space_status_t status;
    hsize_t bytes;
    int rc;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_DATASET_GET_DAPL:
        VJH_RETURN(get_dapl(d, &args->args.get_dapl.dapl_id));
    case H5VL_DATASET_GET_DCPL:
        args->args.get_dcpl.dcpl_id = H5Pcopy(d->dcpl_id);
        VJH_RETURN(args->args.get_dcpl.dcpl_id < 0 ? -ENOMEM : 0);
    case H5VL_DATASET_GET_SPACE:
        VJH_RETURN(get_space(d, &args->args.get_space.space_id));
    case H5VL_DATASET_GET_SPACE_STATUS:
        VJH_RETURN(vjh_storage(d, &bytes, args->args.get_space_status.status));
    case H5VL_DATASET_GET_STORAGE_SIZE:
        VJH_RETURN(vjh_storage(d, args->args.get_storage_size.storage_size, &status));
    case H5VL_DATASET_GET_TYPE:
        rc = vjh_type_id(d->o.file, d->committed_id, d->type_id,
                         &args->args.get_type.type_id);
        VJH_RETURN(rc);
    }
    VJH_RETURN(vjh_error(-ENOTSUP, "this query of a dataset is not known"));
}

/* ---- other operations -------------------------------------------------------------- */

static herr_t dataset_specific(void *obj, H5VL_dataset_specific_args_t *args,
                               hid_t dxpl_id, void **req)
{
    struct vjh_dataset *d = obj;
    int rc;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_DATASET_SET_EXTENT:
        rc = vjh_check_writable(&d->o);
        rc = rc == 0 ? vjh_extent_set(d, args->args.set_extent.size) : rc;
        d->o.is_changed = d->o.is_changed || rc == 0;
        VJH_RETURN(rc);
    case H5VL_DATASET_FLUSH:
        rc = vjh_sync(d->o.file->container->connection);
        VJH_RETURN(rc == 0 ? vjh_object_confirm(&d->o) : rc);
    case H5VL_DATASET_REFRESH:
        VJH_RETURN(d->layout.type == H5D_CHUNKED ? vjh_extent_read(d) : 0);
    }
    VJH_RETURN(vjh_error(-ENOTSUP, "this operation on a dataset is not known"));
}

const H5VL_dataset_class_t vjh_dataset_class = {
    .create = dataset_create,
    .open = dataset_open,
    .read = dataset_read,
    .write = dataset_write,
    .get = dataset_get,
    .specific = dataset_specific,
    .optional = vjh_dataset_optional,
    .close = dataset_close,
};
