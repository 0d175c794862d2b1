/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Groups: the callbacks of H5G
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5-private.h"

int vjh_group_new(struct vjh_file *file, uint64_t id, char *path,
                  const struct vjh_header *h, struct vjh_object **out)
{
    struct vjh_group *g = calloc(1, sizeof *g);
    hid_t gcpl_id = H5I_INVALID_HID;
    int r = g ? vjh_plist_decode(h->plist, H5P_GROUP_CREATE, &gcpl_id) : -ENOMEM;

    *out = NULL;
    if (r != 0) {
        free(path);
        free(g);
        return r;
    }
    r = vjh_object_init(&g->o, H5I_GROUP, file, id, h->flags, path);
    if (r != 0) {
        H5Pclose(gcpl_id);
        free(g);
        return r;
    }
    g->gcpl_id = gcpl_id;
    *out = &g->o;
    return 0;
}

static void *group_create(void *obj, const H5VL_loc_params_t *loc, const char *name,
                          hid_t lcpl_id, hid_t gcpl_id, hid_t gapl_id, hid_t dxpl_id,
                          void **req)
{
    struct vjh_header h = {.kind = VJH_GROUP, .created_us = (uint64_t)vjh_now_us()};
    struct vjh_buffer plist = {0};
    struct vjh_group *g = calloc(1, sizeof *g);
    hid_t copy = H5Pcopy(gcpl_id);
    int r = g && copy >= 0 ? vjh_check_plist(gapl_id, "group access") : -ENOMEM;

    (void)dxpl_id;
    (void)req;
    r = r == 0 ? vjh_plist_flags(gcpl_id, &h.flags) : r;
    r = r == 0 ? vjh_plist_encode(gcpl_id, &plist) : r;
    h.plist = (struct vjh_slice){plist.data, plist.len};
    if (r == 0) {
        r = vjh_object_create(obj, loc, name, lcpl_id, &h, H5I_GROUP, &g->o);
    }
    vjh_buffer_free(&plist);
    if (r != 0) {
        if (copy >= 0) {
            H5Pclose(copy);
        }
        free(g);
        g = NULL;
    } else {
        g->gcpl_id = copy;
    }
    VJH_RETURN_POINTER(r, g);
}

static void *group_open(void *obj, const H5VL_loc_params_t *loc, const char *name,
                        hid_t gapl_id, hid_t dxpl_id, void **req)
{
    struct vjh_object *from = obj, *out = NULL;
    struct vjh_target t;
    struct vjh_header h;
    struct vjh_buffer raw;
    int r = vjh_check_plist(gapl_id, "group access");

    r = r == 0 ? vjh_object_find(from, loc, name, VJH_GROUP, &t, &h, &raw) : r;
    (void)dxpl_id;
    (void)req;
    if (r == 0) {
        r = vjh_group_new(from->file, t.id, t.path, &h, &out);
        vjh_buffer_free(&raw);
    }
    VJH_RETURN_POINTER(r, out);
}

static int get_info(struct vjh_object *from, H5VL_group_get_info_args_t *args)
{
    struct vjh_container *c = from->file->container;
    struct vjh_entries all;
    struct vjh_target t;
    struct vjh_header h;
    struct vjh_buffer raw;
    struct vjh_order next = {0};
    int r = vjh_object_find(from, &args->loc_params, NULL, VJH_GROUP, &t, &h, &raw);

    if (r != 0) {
        return r;
    }
    r = vjh_links(c, t.id, H5_INDEX_NAME, H5_ITER_NATIVE, &all);
    if (r == 0 && h.flags & VJH_LINK_ORDER_TRACKED) {
        r = vjh_order_next(c, t.id, VJH_KEY_LINK_ORDER, &next);
    }
    if (r == 0) {
        memset(args->ginfo, 0, sizeof *args->ginfo);
        args->ginfo->storage_type = H5G_STORAGE_TYPE_COMPACT;
        args->ginfo->nlinks = all.n;
        args->ginfo->max_corder = (int64_t)next.number;
        args->ginfo->mounted = false;
    }
    vjh_entries_free(&all);
    vjh_buffer_free(&raw);
    vjh_target_free(&t);
    return r;
}

/* Of the root group, which a file stands for, too. */
static int get_gcpl(struct vjh_object *o, hid_t *out)
{
    struct vjh_header h;
    struct vjh_buffer raw;
    int r;

    if (o->type == H5I_GROUP) {
        *out = H5Pcopy(((struct vjh_group *)o)->gcpl_id);
        return *out < 0 ? -ENOMEM : 0;
    }
    r = vjh_header_get(o->file->container, o->node->id, &h, &raw);
    if (r == 0) {
        r = vjh_plist_decode(h.plist, H5P_GROUP_CREATE, out);
        vjh_buffer_free(&raw);
    }
    return r;
}

static herr_t group_get(void *obj, H5VL_group_get_args_t *args, hid_t dxpl_id, void **req)
{
    int r = -ENOTSUP;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_GROUP_GET_GCPL:
        r = get_gcpl(obj, &args->args.get_gcpl.gcpl_id);
        break;
    case H5VL_GROUP_GET_INFO:
        r = get_info(obj, &args->args.get_info);
        break;
    }
    VJH_RETURN(r);
}

static herr_t group_specific(void *obj, H5VL_group_specific_args_t *args, hid_t dxpl_id,
                             void **req)
{
    struct vjh_object *o = obj;
    int r = -ENOTSUP;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_GROUP_MOUNT:
    case H5VL_GROUP_UNMOUNT:
        r = vjh_error(-ENOTSUP, "varjfs does not mount files on groups (H5Fmount)");
        break;
    case H5VL_GROUP_FLUSH:
        r = vjh_flush(o->file->container);
        break;
    case H5VL_GROUP_REFRESH:
        r = 0;
        break;
    }
    VJH_RETURN(r);
}

static herr_t group_close(void *grp, hid_t dxpl_id, void **req)
{
    struct vjh_group *g = grp;
    int r = vjh_object_closing(&g->o);

    (void)dxpl_id;
    (void)req;
    if (r == 0) {
        vjh_object_term(&g->o);
        H5Pclose(g->gcpl_id);
        free(g);
    }
    VJH_RETURN(r);
}

const H5VL_group_class_t vjh_group_class = {
    .create = group_create,
    .open = group_open,
    .get = group_get,
    .specific = group_specific,
    .close = group_close,
};
