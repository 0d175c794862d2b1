/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Committed datatypes: the callbacks of H5T
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5-private.h"

static void datatype_free(struct vjh_datatype *t)
{
    if (t) {
        vjh_buffer_free(&t->type);
    }
    if (t && t->tcpl_id >= 0) {
        H5Pclose(t->tcpl_id);
    }
    free(t);
}

static struct vjh_datatype *datatype_alloc(void)
{
    struct vjh_datatype *t = calloc(1, sizeof *t);

    if (t) {
        t->tcpl_id = H5I_INVALID_HID;
    }
    return t;
}

int vjh_datatype_new(struct vjh_file *file, uint64_t id, char *path,
                     const struct vjh_header *h, struct vjh_object **out)
{
    struct vjh_datatype *t = datatype_alloc();
    hid_t type_id = H5I_INVALID_HID;
    int r = t ? vjh_type_decode(h->type, &type_id) : -ENOMEM;

    *out = NULL;
    if (r == 0) {
        r = vjh_type_encode(type_id, &t->type);
        H5Tclose(type_id);
    }
    if (r == 0) {
        r = vjh_plist_decode(h->plist, H5P_DATATYPE_CREATE, &t->tcpl_id);
    }
    if (r == 0) {
        r = vjh_object_init(&t->o, H5I_DATATYPE, file, id, h->flags, path);
        path = NULL;
    }
    if (r != 0) {
        free(path);
        datatype_free(t);
        return r;
    }
    *out = &t->o;
    return 0;
}

static void *datatype_commit(void *obj, const H5VL_loc_params_t *loc, const char *name,
                             hid_t type_id, hid_t lcpl_id, hid_t tcpl_id, hid_t tapl_id,
                             hid_t dxpl_id, void **req)
{
    struct vjh_header h = {.kind = VJH_TYPE, .created_us = (uint64_t)vjh_now_us()};
    struct vjh_buffer plist = {0};
    struct vjh_datatype *t = datatype_alloc();
    int r = t ? vjh_check_plist(tapl_id, "datatype access") : -ENOMEM;

    (void)dxpl_id;
    (void)req;
    if (r == 0) {
        t->tcpl_id = H5Pcopy(tcpl_id);
        r = t->tcpl_id < 0 ? -ENOMEM : 0;
    }
    r = r == 0 ? vjh_plist_flags(tcpl_id, &h.flags) : r;
    r = r == 0 ? vjh_plist_encode(tcpl_id, &plist) : r;
    r = r == 0 ? vjh_type_encode(type_id, &t->type) : r;
    h.plist = (struct vjh_slice){plist.data, plist.len};
    if (r == 0) {
        h.type = (struct vjh_slice){t->type.data, t->type.len};
        r = vjh_object_create(obj, loc, name, lcpl_id, &h, H5I_DATATYPE, &t->o);
    }
    vjh_buffer_free(&plist);
    if (r != 0) {
        datatype_free(t);
        t = NULL;
    }
    VJH_RETURN_POINTER(r, t);
}

static void *datatype_open(void *obj, const H5VL_loc_params_t *loc, const char *name,
                           hid_t tapl_id, hid_t dxpl_id, void **req)
{
    struct vjh_object *from = obj, *out = NULL;
    struct vjh_target target;
    struct vjh_header h;
    struct vjh_buffer raw;
    int r = vjh_check_plist(tapl_id, "datatype access");

    r = r == 0 ? vjh_object_find(from, loc, name, VJH_TYPE, &target, &h, &raw) : r;
    (void)dxpl_id;
    (void)req;
    if (r == 0) {
        r = vjh_datatype_new(from->file, target.id, target.path, &h, &out);
        vjh_buffer_free(&raw);
    }
    VJH_RETURN_POINTER(r, out);
}

static herr_t datatype_get(void *dt, H5VL_datatype_get_args_t *args, hid_t dxpl_id,
                           void **req)
{
    struct vjh_datatype *t = dt;
    int r = 0;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_DATATYPE_GET_BINARY_SIZE:
        *args->args.get_binary_size.size = t->type.len;
        break;
    case H5VL_DATATYPE_GET_BINARY:
        if (args->args.get_binary.buf_size < t->type.len) {
            r = -ERANGE;
        } else {
            memcpy(args->args.get_binary.buf, t->type.data, t->type.len);
        }
        break;
    case H5VL_DATATYPE_GET_TCPL:
        args->args.get_tcpl.tcpl_id = H5Pcopy(t->tcpl_id);
        r = args->args.get_tcpl.tcpl_id < 0 ? -ENOMEM : 0;
        break;
    default:
        r = -ENOTSUP;
    }
    VJH_RETURN(r);
}

static herr_t datatype_specific(void *obj, H5VL_datatype_specific_args_t *args,
                                hid_t dxpl_id, void **req)
{
    struct vjh_object *o = obj;
    int r = -ENOTSUP;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_DATATYPE_FLUSH:
        r = vjh_flush(o->file->container);
        break;
    case H5VL_DATATYPE_REFRESH:
        r = 0;
        break;
    }
    VJH_RETURN(r);
}

static herr_t datatype_close(void *dt, hid_t dxpl_id, void **req)
{
    struct vjh_datatype *t = dt;
    int r = vjh_object_closing(&t->o);

    (void)dxpl_id;
    (void)req;
    if (r == 0) {
        vjh_object_term(&t->o);
        datatype_free(t);
    }
    VJH_RETURN(r);
}

const H5VL_datatype_class_t vjh_datatype_class = {
    .commit = datatype_commit,
    .open = datatype_open,
    .get = datatype_get,
    .specific = datatype_specific,
    .close = datatype_close,
};
