/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The connector: what HDF5 finds in the plugin, and what it can do
 */
#include <H5PLextern.h>
#include <errno.h>

#include "hdf5-private.h"

static H5VL_class_t connector;

static herr_t connector_initialize(hid_t vipl_id)
{
    (void)vipl_id;
    VJH_RETURN(vjh_error_init());
}

static herr_t connector_terminate(void)
{
    vjh_error_term();
    return 0;
}

static herr_t get_conn_cls(void *obj, H5VL_get_conn_lvl_t lvl, const H5VL_class_t **out)
{
    (void)obj;
    (void)lvl;
    *out = &connector;
    return 0;
}

static herr_t get_cap_flags(const void *info, uint64_t *flags)
{
    (void)info;
    *flags = connector.cap_flags;
    return 0;
}

/* Optional operations are those of the native connector. */
static herr_t opt_query(void *obj, H5VL_subclass_t cls, int opt_type, uint64_t *flags)
{
    (void)obj;
    *flags = cls == H5VL_SUBCLS_DATASET && vjh_has_optional(opt_type)
                 ? H5VL_OPT_QUERY_SUPPORTED
                 : 0;
    return 0;
}

#define CAPABILITIES                                                                     \
    (H5VL_CAP_FLAG_ATTR_BASIC | H5VL_CAP_FLAG_ATTR_MORE | H5VL_CAP_FLAG_DATASET_BASIC |  \
     H5VL_CAP_FLAG_DATASET_MORE | H5VL_CAP_FLAG_FILE_BASIC | H5VL_CAP_FLAG_FILE_MORE |   \
     H5VL_CAP_FLAG_GROUP_BASIC | H5VL_CAP_FLAG_GROUP_MORE | H5VL_CAP_FLAG_LINK_BASIC |   \
     H5VL_CAP_FLAG_LINK_MORE | H5VL_CAP_FLAG_OBJECT_BASIC | H5VL_CAP_FLAG_OBJECT_MORE |  \
     H5VL_CAP_FLAG_REF_BASIC | H5VL_CAP_FLAG_REF_MORE | H5VL_CAP_FLAG_OBJ_REF |          \
     H5VL_CAP_FLAG_REG_REF | H5VL_CAP_FLAG_ATTR_REF | H5VL_CAP_FLAG_STORED_DATATYPES |   \
     H5VL_CAP_FLAG_CREATION_ORDER | H5VL_CAP_FLAG_ITERATE | H5VL_CAP_FLAG_STORAGE_SIZE | \
     H5VL_CAP_FLAG_BY_IDX | H5VL_CAP_FLAG_GET_PLIST | H5VL_CAP_FLAG_FLUSH_REFRESH |      \
     H5VL_CAP_FLAG_TRACK_TIMES | H5VL_CAP_FLAG_HARD_LINKS | H5VL_CAP_FLAG_SOFT_LINKS |   \
     H5VL_CAP_FLAG_FILTERS | H5VL_CAP_FLAG_FILL_VALUES)

/* Complete when HDF5 has asked for it: each file of the room has its part. */
static H5VL_class_t connector = {
    .version = H5VL_VERSION,
    .value = VJH_CONNECTOR_VALUE,
    .name = VJH_CONNECTOR_NAME,
    .conn_version = VJH_FORMAT_VERSION,
    .cap_flags = CAPABILITIES,
    .initialize = connector_initialize,
    .terminate = connector_terminate,
    .introspect_cls = {.get_conn_cls = get_conn_cls,
                       .get_cap_flags = get_cap_flags,
                       .opt_query = opt_query},
};

H5PLUGIN_DLL H5PL_type_t H5PLget_plugin_type(void)
{
    return H5PL_TYPE_VOL;
}

const void *H5PLget_plugin_info(void)
{
    connector.info_cls = vjh_info_class;
    connector.attr_cls = vjh_attribute_class;
    connector.dataset_cls = vjh_dataset_class;
    connector.datatype_cls = vjh_datatype_class;
    connector.file_cls = vjh_file_class;
    connector.group_cls = vjh_group_class;
    connector.link_cls = vjh_link_class;
    connector.object_cls = vjh_object_class;
    connector.blob_cls = vjh_blob_class;
    connector.token_cls = vjh_token_class;
    return &connector;
}
